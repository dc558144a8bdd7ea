"""What goes wrong in a scene: wrong trees, baselines, records and evidence, bad compilers, full disks, other users.

A fault is a function of a scene; one that lasts while a command runs is a context manager; one that changes how the
command runs takes its words and returns how it ended.
"""

from __future__ import annotations

import functools
import io
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from faults import NOBODY, Disk, as_other_user, flip, open_folder, small_disk

from pipeline import canonical, records
from pipeline.__main__ import main
from tests import scratch, walks
from tests.walks import TARGET, Ended, Scene

Plant = Callable[[Scene], object]


def nothing(scene: Scene) -> None:
    """No fault."""


# --- the tree ---


def edited(name: str, old: str, new: str) -> Plant:
    """A file of the adder is another, and is committed."""

    def plant(scene: Scene) -> None:
        scene.edit(name, old, new)
        scene.commit(f"adder: edit {name}")

    return plant


def manifest(old: str, new: str) -> Plant:
    """The manifest says something else, and is committed."""
    return edited("landing.toml", old, new)


def at_clip(scene: Scene) -> None:
    """The adder is at its last block."""
    scene.write("clip")
    scene.commit("adder: block clip")


def not_committed(scene: Scene) -> None:
    """Block sum has landed, the next one is committed, and the records of the first are not."""
    scene.land("sum")
    scene.write("scale")
    scratch.git(scene.root, "add", "adder")
    scratch.git(scene.root, "commit", "-qm", "adder: block scale")


# --- the baseline ---


def current(fault: Callable[[Path], object]) -> Plant:
    """A fault of the promoted artifact, by its path."""
    return lambda scene: fault(scene.current)


def instead(make: Callable[[Path], object]) -> Plant:
    """Something else stands in the place of the promoted artifact, which is near."""

    def plant(scene: Scene) -> None:
        scene.current.rename(scene.baselines / "current" / "aside")
        make(scene.current)

    return plant


def swapped(scene: Scene) -> None:
    """`current` is what `previous` is."""
    scene.current.write_bytes((scene.baselines / "previous" / TARGET / "adder.so").read_bytes())


def behind(scene: Scene) -> None:
    """The same, and committed: a baseline that nobody refreshed."""
    swapped(scene)
    scene.commit("forget the newest baseline")


def unlanded(scene: Scene) -> None:
    """An artifact is current that never landed."""
    scene.current.parent.mkdir(parents=True)
    scene.current.write_bytes(b"mine")


# --- ledger and archive ---


def record(change: Callable[[bytes], bytes], number: int = 2) -> Plant:
    """A record's bytes are others."""

    def plant(scene: Scene) -> None:
        path = scene.ledger / f"{number:06d}.json"
        before = path.read_bytes()
        path.write_bytes(change(before))
        assert path.read_bytes() != before

    return plant


def word(old: bytes, new: bytes, number: int = 2) -> Plant:
    """Words of a record are others."""
    return record(lambda data: data.replace(old, new), number)


def removed(number: int) -> Plant:
    """A record is gone."""
    return lambda scene: (scene.ledger / f"{number:06d}.json").unlink()


def duplicated(scene: Scene) -> None:
    """The last record stands twice."""
    shutil.copy2(scene.ledger / "000006.json", scene.ledger / "000007.json")


def reordered(scene: Scene) -> None:
    """Records 2 and 3 have changed their names."""
    two, three = scene.ledger / "000002.json", scene.ledger / "000003.json"
    a, b = two.read_bytes(), three.read_bytes()
    two.write_bytes(b)
    three.write_bytes(a)


def unpromoted(scene: Scene) -> None:
    """A landed result whose promote a crash prevented."""
    scene.land("sum")
    (scene.ledger / "000003.json").unlink()
    shutil.rmtree(scene.baselines / "current")


def archived(scene: Scene, name: str) -> Path:
    """An object of the archive that the newest result names: its artifact, source, plan, evidence or samples."""
    result = records.from_bytes((scene.ledger / "000005.json").read_bytes())
    assert isinstance(result, records.Result)
    assert result.source.archive is not None
    digests = {
        "artifact": result.artifact.sha256,
        "source": result.source.archive.sha256,
        "plan": result.plan.sha256,
        "evidence": result.evidence.sha256,
        "samples": result.timing[0].samples.sha256,
    }
    return scene.baselines / "archive" / digests[name]


def flipped(name: str) -> Plant:
    """One bit of an object is another; its size, mode and times are as before."""
    return lambda scene: flip(archived(scene, name), 7)


def lost(name: str) -> Plant:
    """An object is gone."""
    return lambda scene: archived(scene, name).unlink()


# --- git ---


def no_git(scene: Scene) -> None:
    """The folder is in no repository."""
    (scene.root / ".git").rename(scene.home / "git")


def shallow(scene: Scene) -> None:
    """The repository is a clone without its history."""
    whole = scene.root.rename(scene.root.with_name("whole"))
    scratch.git(whole, "clone", "-q", "--depth", "1", whole.as_uri(), str(scene.root))


def taken_back(fault: Plant) -> Plant:
    """A fault was committed, and the commit after it took it back."""

    def plant(scene: Scene) -> None:
        before = scratch.git(scene.root, "rev-parse", "HEAD")
        fault(scene)
        scene.commit("tidy")
        scratch.git(scene.root, "checkout", "-q", before, "--", ".")
        scene.commit("tidy again")

    return plant


# --- evidence: an attempt is open, and a proof of its kit was carried here ---


@functools.cache
def proved() -> Scene:
    """Block sum has landed; an attempt of block scale is open, and evidence.json is a proof of its kit."""
    folder = scratch.room()
    scene = walks.fresh().copy(folder)
    scene.land("sum")
    scene.write("scale")
    scene.commit("adder: block scale")
    killed = scene.stop("land", "scale", "--subject", "adder", at="rename started.json")
    killed.kill()
    assert walks.ended(killed).code == -signal.SIGKILL
    assert scene.run("prove", ".landing/000004/kit", "--out", "evidence.json").code == 0
    return scene


def evidence(change: Callable[[Any], object]) -> Plant:
    """The evidence says something else, and is written as evidence is."""

    def plant(scene: Scene) -> None:
        path = scene.root / "evidence.json"
        whole = canonical.loads(path.read_bytes())
        change(whole["evidence"][0])
        path.write_bytes(canonical.dumps(whole))

    return plant


def other_digest(seen: Any) -> None:
    seen["jobs"][0]["sides"][0]["files"][0]["sha256"] = "0" * 64


def other_artifact(seen: Any) -> None:
    for side in seen["jobs"][0]["sides"]:
        row = next(row for row in side["inputs"] if row["name"] == "{candidate}")
        row["digest"] = "0" * 64


def other_command(seen: Any) -> None:
    for side in seen["jobs"][0]["sides"]:
        side["argv"] = ["true"]


def no_inputs(seen: Any) -> None:
    seen["jobs"][0]["sides"][0]["inputs"] = []


def no_difference(seen: Any) -> None:
    next(job for job in seen["jobs"] if "@reads-the-clock" in job["id"])["differences"] = []


def no_time(seen: Any) -> None:
    row = seen["samples"][1]["mediansPs"]
    row.update(dict.fromkeys(row, 0))


def swapped_samples(seen: Any) -> None:
    seen["samples"][:2] = seen["samples"][1::-1]


# --- the compiler, which is started through `watched` ---

LAST = "for last; do :; done; "  # the last word of a build command is where the artifact belongs


def compiler(body: str) -> Plant:
    """Every command of the manifest is this shell script."""
    return lambda scene: (scene.home / "watched").write_text("#!/bin/sh\n" + body)


def meddler(what: str) -> Plant:
    """Every command of the manifest does this too, before it does what it should; ROOT is the repository."""

    def plant(scene: Scene) -> None:
        path = scene.home / "watched"
        path.write_text(path.read_text().replace("exec", what.replace("ROOT", str(scene.root)) + "\nexec"))

    return plant


def no_compiler(scene: Scene) -> None:
    """There is none."""
    (scene.home / "watched").unlink()


def impatient(scene: Scene, argv: tuple[str, ...]) -> Ended:
    """The command line, waiting one second for a build and not ten minutes; nothing of the compiler is left."""
    shorter = "build.build.__defaults__ = build.build_twice.__defaults__ = (1.0,)"
    program = f"import sys; from pipeline import __main__, build; {shorter}; sys.exit(__main__.main())"
    done = scene.run(*argv, program=("-c", program))
    assert not walks.alive(scene.held())
    return done


# --- dumps: the two sides of the check are spoiled after they were made ---

SPOIL = '''"""Runs the adder's tool, then spoils what it left."""
import struct, subprocess, sys
from pathlib import Path
kind, *argv = sys.argv[1:]
code = subprocess.run([sys.executable, "adder/run.py", *argv]).returncode
path = Path(argv[-1]) / "sum.f32"
first = {"nan": struct.pack("<I", 0x7FC00000), "zero": struct.pack("<f", 0.0), "minus zero": struct.pack("<f", -0.0)}
if kind in first:
    path.write_bytes(first[kind] + path.read_bytes()[4:])
elif kind == "missing":
    path.unlink()
elif kind == "extra":
    path.with_name("more.f32").write_bytes(path.read_bytes())
elif kind == "empty":
    path.write_bytes(b"")
sys.exit(code)
'''


def spoiled(*kinds: str) -> Plant:
    """The sides of the check leave dumps of these kinds."""

    def plant(scene: Scene) -> None:
        (scene.adder / "spoil.py").write_text(SPOIL)
        path = scene.adder / "landing.toml"
        head, check, tail = path.read_text().partition("[check.twice]")
        for kind in kinds:
            tail = tail.replace('"adder/run.py", "dump"', f'"adder/spoil.py", "{kind}", "dump"', 1)
        path.write_text(head + check + tail)
        scene.commit("adder: spoiled dumps")

    return plant


# --- the machine ---


def full(part: str) -> Callable[[Scene], AbstractContextManager[None]]:
    """A folder of the house lies on a disk that has no room left; once it has, the block lands."""

    @contextmanager
    def around(scene: Scene) -> Iterator[None]:
        with small_disk(scene.home / "disk", mount=True) as disk, _laid(disk, part, scene.root / part):
            disk.fill()
            yield
            disk.free()
            scene.land("sum")
            assert len(scene.records()) == 3

    return around


@contextmanager
def _laid(disk: Disk, part: str, over: Path) -> Iterator[None]:
    """A folder of another disk stands in a place of this one; where there is no other disk, nothing is done."""
    if not disk.mounted:
        yield
        return
    (disk.folder / part).mkdir()
    over.mkdir()
    subprocess.run(["mount", "--bind", str(disk.folder / part), str(over)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(over)], check=True)


@contextmanager
def one_landing(scene: Scene) -> Iterator[None]:
    """Another landing was started, holds the workspace until this one was told so, and lands."""
    scene.hold("one-out")
    other = scene.start("land", "sum", "--subject", "adder")
    scene.held()
    yield
    scene.let_go()
    done = walks.ended(other)
    assert (done.code, done.err) == (0, "")
    assert done.last == "LANDED: sum on cpu-x86_64: record 2"


def as_nobody(scene: Scene, argv: tuple[str, ...]) -> Ended:
    """The command line as another user, who owns everything but the ledger and may not write there.

    That user may not reach the interpreter either, so what is run is a fork of this one with the same entry.
    """
    import git  # noqa: F401

    from pipeline import land  # noqa: F401

    with open_folder() as folder:
        other = scene.copy(folder / "scene")
        for path in (folder, *folder.rglob("*")) if os.getuid() == 0 else ():
            if other.ledger not in (path, path.parent):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        other.ledger.chmod(0o555)

        def call() -> Ended:
            os.chdir(other.root)
            os.environ.update(other.environ)
            out, err = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                code = main([*argv])
            return Ended(code, out.getvalue(), err.getvalue().rstrip())

        done = as_other_user(call)
        assert isinstance(done, Ended), done
        assert sorted(os.listdir(other.ledger)) == sorted(scene.records())
        assert other.records() == scene.records()
        other.ledger.chmod(0o755)
    return done
