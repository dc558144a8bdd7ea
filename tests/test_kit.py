"""kit.py: plans and all that they name in one folder, the same bytes for the same plans, and nothing else is opened."""

from __future__ import annotations

import dataclasses
import io
import lzma
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline import canonical, kit
from pipeline.errors import EvidenceError, IntegrityError, UsageError
from pipeline.proof import Plan
from tests import drawn, faults, landings

FILE, SO, OLD = b"print()\n", b"\x7fELF candidate", b"\x7fELF baseline"
OBJECTS = {canonical.sha256(data): data for data in (FILE, SO, OLD, b"wrong", b"renamed")}  # mutants too


def plan(**changes: object) -> Plan:
    """A drawn plan whose trees and artifacts are real bytes."""
    tree = drawn.Tree(files=(("tool.py", canonical.sha256(FILE), 0o644),))
    artifacts = {"candidate": canonical.sha256(SO), "baseline": canonical.sha256(OLD)}
    return drawn.plan(trees={"candidate": tree}, artifacts=artifacts, **changes)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    kit.pack(tmp_path / "kit", [plan()], OBJECTS)
    return tmp_path / "kit"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_kit_comes_back_as_it_was_packed(tmp_path: Path) -> None:
    """Its plans in order, and every object by its digest, the plans among them."""
    plans = (plan(), plan(block="three", sequence=5))
    kit.pack(tmp_path / "kit", plans, OBJECTS)
    opened = kit.load(tmp_path / "kit")
    assert opened.plans == plans
    assert opened.objects == OBJECTS | {canonical.sha256(p.to_bytes()): p.to_bytes() for p in plans}
    assert sorted(files(tmp_path / "kit")) == ["kit.json", "objects.tar.xz"]


def test_the_same_plans_and_objects_give_the_same_bytes(tmp_path: Path, packed: Path) -> None:
    """Whatever the order of the objects and the clock; and other plans give others."""
    os.utime(packed / "kit.json", (0, 0))
    kit.pack(tmp_path / "again", [plan()], dict(reversed(OBJECTS.items())))
    assert files(tmp_path / "again") == files(packed)
    kit.pack(tmp_path / "other", [plan(seed=8)], OBJECTS)
    assert files(tmp_path / "other") != files(packed)


def test_a_real_plan_comes_back_from_its_kit(tmp_path: Path) -> None:
    """With checks of every verb, mutants over each other, an input; and the kit holds just what the plan names."""
    staged = landings.staged(landings.house(tmp_path, None))
    kit.pack(tmp_path / "kit", [staged.plan], staged.objects)
    opened = kit.load(tmp_path / "kit")
    assert opened.plans == (staged.plan,)
    assert set(opened.objects) == staged.plan.objects() | {canonical.sha256(staged.plan.to_bytes())}
    assert {check.verb for check in staged.plan.checks} == {"same", "within", "refuses", "clean"}


def test_a_kit_is_written_once(packed: Path) -> None:
    """Into a folder that is not there."""
    before = files(packed)
    with pytest.raises(UsageError, match="the folder exists"):
        kit.pack(packed, [plan()], OBJECTS)
    assert files(packed) == before


def test_a_kit_that_would_be_too_large_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must fit through a narrow door; the folder is not made."""
    monkeypatch.setattr(kit, "KIT_BYTES_MAX", 4096)
    noise = os.urandom(8192)
    with pytest.raises(UsageError, match="larger than 4096"):
        kit.pack(tmp_path / "kit", [plan()], OBJECTS | {canonical.sha256(noise): noise})
    assert not (tmp_path / "kit").exists()


def _tar(objects: Mapping[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name, data in objects.items():
            row = tarfile.TarInfo(name)
            row.type, row.size = kind, len(data) if kind == tarfile.REGTYPE else 0
            tar.addfile(row, io.BytesIO(data))
    return lzma.compress(sink.getvalue())


def _put(name: str, data: Callable[[Path], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data(folder))


def _head(**changes: object) -> Callable[[Path], object]:
    digest = canonical.sha256(plan().to_bytes())
    return _put("kit.json", lambda folder: canonical.dumps({"format": 1, "plans": [digest]} | changes))


def _objects(change: Callable[[dict[str, bytes]], object], kind: bytes = tarfile.REGTYPE) -> Callable[[Path], object]:
    def tamper(folder: Path) -> None:
        objects = dict(kit.load(folder).objects)
        change(objects)
        (folder / "objects.tar.xz").write_bytes(_tar(objects, kind))

    return tamper


def _link(folder: Path) -> None:
    shutil.move(folder / "objects.tar.xz", folder / "elsewhere")
    (folder / "objects.tar.xz").symlink_to("elsewhere")


def _fifo(folder: Path) -> None:
    (folder / "kit.json").unlink()
    os.mkfifo(folder / "kit.json")


TAMPERED: dict[str, Callable[[Path], object]] = {
    "a bit of the objects": lambda folder: faults.flip(folder / "objects.tar.xz", 200),
    "the last bit of the objects": lambda folder: faults.flip(folder / "objects.tar.xz", -1),
    "objects cut": _put("objects.tar.xz", lambda folder: (folder / "objects.tar.xz").read_bytes()[:-40]),
    "objects with a tail": _put("objects.tar.xz", lambda folder: (folder / "objects.tar.xz").read_bytes() + b"x"),
    "objects of nothing": _put("objects.tar.xz", lambda folder: b""),
    "objects in another compression": _put("objects.tar.xz", lambda folder: b"\x1f\x8b\x08\x00"),
    "an object lost": _objects(lambda objects: objects.pop(canonical.sha256(OLD))),
    "an object under another name": _objects(lambda o: o.update({canonical.sha256(OLD): SO})),
    "a name that is no digest": _objects(lambda o: o.update({"../../outside": SO})),
    "the plan lost": _objects(lambda objects: objects.pop(canonical.sha256(plan().to_bytes()))),
    "links": _objects(lambda objects: None, tarfile.SYMTYPE),
    "folders": _objects(lambda objects: None, tarfile.DIRTYPE),
    "another plan": _head(plans=[canonical.sha256(FILE)]),
    "an unknown plan": _head(plans=["0" * 64]),
    "no plan": _head(plans=[]),
    "another format": _head(format=2),
    "an unknown key": _head(signature="x"),
    "plans of another type": _head(plans=[3]),
    "kit.json that is a list": _put("kit.json", lambda folder: b"[]\n"),
    "kit.json with spaces": _put("kit.json", lambda folder: (folder / "kit.json").read_bytes().replace(b":", b": ")),
    "kit.json with a mark": _put("kit.json", lambda folder: b"\xef\xbb\xbf" + (folder / "kit.json").read_bytes()),
    "kit.json too long": _put("kit.json", lambda folder: b" " * 70_000),
    "a link": _link,
    "a FIFO": _fifo,
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_kit_is_not_opened(packed: Path, name: str) -> None:
    """Changed, cut, lengthened, incomplete or of another kind: exit code 3, and nothing of it is run."""
    TAMPERED[name](packed)
    with pytest.raises(IntegrityError, match=r"not a kit: .*; carry the kit again") as caught:
        kit.load(packed)
    assert caught.value.exit_code == 3


OVER = {"candidate": drawn.Tree(files=(), over="wrong"), "wrong": drawn.Tree(files=(), over="candidate")}
OTHER_JOB = {"check": "thrice", "of": "other", "tree": "other"}
INCOMPLETE: dict[str, dict[str, Any]] = {
    "trees that lie over each other": {"trees": OVER},
    "a tree over itself": {"trees": {"candidate": drawn.Tree(files=(), over="candidate")}},
    "a tree over one that is not there": {"trees": {"candidate": drawn.Tree(files=(), over="nothing")}},
    "no tree": {"trees": {}},
    "no artifact": {"artifacts": {}},
    "no check": {"checks": ()},
    "no input": {"checks": (drawn.check(sides=(("{input:data}", "{candidate}", "{out}"),) * 2),), "inputs": {}},
    **{f"a job of another {name}": {name: word} for name, word in OTHER_JOB.items()},
}


@pytest.mark.parametrize("name", INCOMPLETE)
def test_a_plan_that_lacks_what_it_refers_to_is_not_read(name: str) -> None:
    """Whoever forged it: it is no plan, wherever it is read from, and nothing of it is run or judged."""
    whole, changes = plan(), INCOMPLETE[name]
    assert kit.read_plan(whole.to_bytes()) == whole
    if set(changes) <= set(OTHER_JOB):
        changes = {"jobs": (dataclasses.replace(whole.jobs[0], **changes), *whole.jobs[1:])}
    with pytest.raises(ValueError, match=r"lies over|refers to '"):
        kit.read_plan(dataclasses.replace(whole, **changes).to_bytes())


@pytest.mark.parametrize("name", ["kit.json", "objects.tar.xz"])
def test_a_folder_that_is_no_kit_is_a_usage_error(packed: Path, name: str) -> None:
    """Something is missing: another folder was meant."""
    (packed / name).unlink()
    with pytest.raises(UsageError, match=f"{name} is missing"):
        kit.load(packed)


def test_compressed_bytes_never_become_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred bytes that would unpack to more than the limit are refused, not unpacked."""
    bomb = kit.squeeze(bytes(10_000_000))
    assert len(bomb) < 3000
    assert len(kit.unsqueeze(bomb)) == 10_000_000
    monkeypatch.setattr(kit, "OBJECT_BYTES_MAX", 1_000_000)
    with pytest.raises(ValueError, match="too large"):
        kit.unsqueeze(bomb)
    thirsty = lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}])
    with pytest.raises(lzma.LZMAError):
        kit.unsqueeze(thirsty)


def test_evidence_comes_back_from_its_file() -> None:
    """One Evidence a plan, in order."""
    found = (drawn.evidence(plan()), drawn.evidence(plan(seed=8)))
    data = canonical.dumps(canonical.plain(kit.EvidenceFile(evidence=found)))
    assert kit.read_evidence(Path("evidence.json"), data) == found
    assert kit.evidence_of(found[0].to_bytes()) == found[0]
    assert kit.read_plan(plan().to_bytes()) == plan()
    with pytest.raises(ValueError, match="not in canonical form"):  # evidence names a plan by its bytes
        kit.read_plan(plan().to_bytes().replace(b":", b": ", 1))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data.replace(b'"format":1', b'"format":2'), "evidence of format 2"),
        (lambda data: data.replace(b'"code":0', b'"code":0.0', 1), "0.0 is not an integer"),
        (lambda data: data.replace(b'"code":0', b'"code":0,"code":0', 1), "'code' stands twice"),
        (lambda data: data.replace(b'"code":0', b'"cade":0', 1), "unknown key 'cade'|canonical"),
        (lambda data: data[:-9], "not evidence"),
        (lambda data: b"", "not evidence"),
    ],
)
def test_a_file_that_is_no_evidence_is_refused(change: Callable[[bytes], bytes], says: str) -> None:
    """Exit code 3, naming the file and what is wrong in it."""
    data = canonical.dumps(canonical.plain(kit.EvidenceFile(evidence=(drawn.evidence(plan()),))))
    with pytest.raises(EvidenceError, match=says) as caught:
        kit.read_evidence(Path("evidence.json"), change(data))
    assert str(caught.value).startswith("EvidenceError: evidence.json: ")


def test_a_plan_names_every_object_that_its_proof_reads() -> None:
    """Files of all trees, the tree below a mutant's, artifacts and inputs."""
    over = drawn.Tree(files=(("a.c", "1" * 64, 0o644),), over="candidate")
    made = plan(inputs={"text": ("a.txt", "2" * 64, "by hand")})
    made = dataclasses.replace(made, trees={**made.trees, "wrong": over})
    assert made.objects() == {*OBJECTS, "1" * 64, "2" * 64}
    assert made.tree("wrong") == {"tool.py": (canonical.sha256(FILE), 0o644), "a.c": ("1" * 64, 0o644)}
