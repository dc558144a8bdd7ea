"""A landing that is interrupted or killed at any stage goes on: by the same command, and by `--resume`.

Real processes and real signals. A stage is met either in a command of the manifest, which waits for a test, or at the
link or rename of the file that ends it.
"""

from __future__ import annotations

import functools
import re
import resource
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline import audit, canonical, durable, records
from pipeline.house import House
from tests import scratch, walks
from tests.walks import Ended, Scene

LAND = ("land", "scale", "--subject", "adder")
RESUME = ("land", "--resume", "4", "--subject", "adder")
SAMPLES, JOBS = 3, 3  # of the short manifest: one pair with a control; a check, a mutant, a neutral one
ATTEMPTED = "rename started.json"  # the first file of a proof
KNOWN_S = 0.2  # after which a command that was started is known to what kills it: microseconds, on an idle machine
SIGNALS = (signal.SIGINT, signal.SIGKILL)


def held(scene: Scene, pattern: str, number: signal.Signals) -> Ended:
    """A landing was sent a signal while a command of the manifest ran, and that command has ended too."""
    scene.hold(pattern)
    process = scene.start(*LAND)
    command = scene.held()
    time.sleep(KNOWN_S)
    process.send_signal(number)
    ended = walks.ended(process)
    walks.until(lambda: not walks.alive(command))
    scene.let_go()
    return ended


def stopped(scene: Scene, at: str, number: signal.Signals, earlier: str = "") -> Ended:
    """A landing was sent a signal just before a file got its name."""
    process = scene.stop(*LAND, at=at, earlier=earlier)
    process.send_signal(number)
    return walks.ended(process)


@functools.cache
def committed() -> Scene:
    """Block sum has landed, records 1 to 3; the tree is at block scale; everything is committed."""
    scene = walks.fresh().copy(scratch.room())
    scene.land("sum")
    scene.write("scale")
    scene.commit("adder: block scale")
    return scene


@functools.cache
def attempted() -> Scene:
    """The landing of block scale was killed when its attempt was on record."""
    scene = committed().copy(scratch.room())
    assert stopped(scene, ATTEMPTED, signal.SIGKILL).code == -signal.SIGKILL
    assert len(scene.records()) == 4
    return scene


@functools.cache
def timed() -> Scene:
    """Then it was killed while its last sample was taken."""
    scene = attempted().copy(scratch.room())
    assert held(scene, "step-000-2", signal.SIGKILL).code == -signal.SIGKILL
    assert len(taken(scene, "sample")) == SAMPLES - 1
    return scene


# Stage -> the scene before it, how a signal meets it, the records that are there afterwards.
Crash = Callable[[Scene, signal.Signals], Ended]
STAGES: dict[str, tuple[Callable[[], Scene], Crash, int]] = {
    "snapshot": (committed, lambda scene, number: stopped(scene, "rename adder.so$", number), 3),
    "build": (committed, lambda scene, number: held(scene, "one-out", number), 3),
    "planting mutants": (committed, lambda scene, number: held(scene, "/mutants/", number), 3),
    "before the attempt": (committed, lambda scene, number: stopped(scene, "link 000004.json", number), 3),
    "attempt appended": (committed, lambda scene, number: stopped(scene, ATTEMPTED, number), 4),
    "during checks": (attempted, lambda scene, number: held(scene, "runs/twice/1", number), 4),
    "during timing": (attempted, lambda scene, number: held(scene, "step-000-1", number), 4),
    "after evidence": (timed, lambda scene, number: stopped(scene, "link [0-9a-f]{64}", number, "link evidence"), 4),
    "after archive": (timed, lambda scene, number: stopped(scene, "link 000005.json", number), 4),
    "between result and promote": (timed, lambda scene, number: stopped(scene, "link 000006.json", number), 5),
    "between promote and views": (timed, lambda scene, number: stopped(scene, "rename .*/previous/", number), 6),
    "between the two views": (timed, lambda scene, number: stopped(scene, "rename .*/current/", number), 6),
}


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("stage", STAGES)
def test_a_landing_goes_on_after_a_crash(tmp_path: Path, stage: str, number: signal.Signals) -> None:
    """It ends landed, no acknowledged record is lost, no finished run or sample is taken again, the ledger is sound."""
    before, crash, count = STAGES[stage]
    scene = before().copy(tmp_path / "crashed")
    ended = crash(scene, number)
    assert ended.code == (7 if number == signal.SIGINT else -number), ended
    assert number == signal.SIGKILL or re.fullmatch("Waiting: .+: .+; run the same command again", ended.err), ended
    stored = scene.records()
    assert len(stored) == count
    assert stored.items() >= before().records().items()
    assert scene.current.read_bytes() in artifacts(scene)
    with ThreadPoolExecutor(2) as pool:
        again = pool.submit(goes_on, scene.copy(tmp_path / "again"), LAND)
        resume = pool.submit(goes_on, scene.copy(tmp_path / "resume"), RESUME)
    again.result()
    resume.result()


def goes_on(scene: Scene, command: tuple[str, ...]) -> None:
    """The command ends the landing that a crash left."""
    stored, jobs, samples = scene.records(), taken(scene, "job"), taken(scene, "sample")
    proved = (scene.root / ".landing" / "000004" / "evidence.json").exists() or len(stored) > 4
    ended = scene.run(*command)
    if command == RESUME and len(stored) == 3:
        assert (ended.code, scene.records()) == (2, stored)
        return
    assert (ended.code, ended.err) == (0, "")
    assert ended.last == "LANDED: scale on cpu-x86_64: record 5"
    assert scene.records().items() >= stored.items()
    book = sound(scene)
    assert [records.kind(record) for record in book] == ["attempt", "result", "promote"] * 2
    result = book[4]
    assert isinstance(result, records.Result)
    kept = canonical.loads((scene.baselines / "archive" / result.timing[0].samples.sha256).read_bytes())
    assert all(canonical.loads(data) in kept for data in samples.values())
    ran = [sum(word in line for line in scene.ran()) for word in (" cc ", " dump ", " bench ")]
    assert ran[0] == (5 if len(stored) == 3 else 0)
    assert ran[1:] == ([0, 0] if proved else [2 * (JOBS - len(jobs)), SAMPLES - len(samples)])
    assert not (scene.root / ".landing" / "000004").exists()


def sound(scene: Scene) -> tuple[records.Record, ...]:
    """The records, after an audit of everything; nothing is left behind but what is recorded."""
    book = audit.audit(House(folder=scene.adder, root=scene.root), lambda line: None)
    left = [path for folder in (scene.ledger, scene.baselines) for path in folder.rglob(".tmp-*")]
    assert not left
    return tuple(book)


def taken(scene: Scene, kind: str) -> dict[str, bytes]:
    """The runs of a kind that a proof has finished, by the files that say so."""
    found = scene.root.glob(f".landing/000004/evidence.json.work/*/done/{kind}-*.json")
    return {path.name: path.read_bytes() for path in found}


def artifacts(scene: Scene) -> Iterable[bytes]:
    """What `current` may be: the artifact of block sum, or of block scale."""
    book = [records.from_bytes(data) for data in scene.records().values()]
    paths = [scene.baselines / "archive" / record.artifact.sha256 for record in book]
    return [path.read_bytes() for path in paths if path.exists()]


def test_a_landing_is_resumed_once(tmp_path: Path) -> None:
    """What has its result is not proved, recorded or promoted again: its verdict is said, and nothing is written."""
    scene = timed().copy(tmp_path)
    ended = scene.run(*RESUME)
    stored = scene.records()
    again = scene.run(*RESUME)
    assert (again.code, again.last, ended.code) == (0, ended.last, 0)
    assert (scene.records(), len(stored)) == (stored, 6)


@pytest.mark.parametrize("lost", ["000004", "000004/kit/objects.tar.xz", "000004/evidence.json.work"])
def test_a_lost_workspace_is_a_void_that_counts(tmp_path: Path, lost: str) -> None:
    """Samples that are gone are not taken again unseen: the attempt is void and stays on record; the next one lands."""
    scene = timed().copy(tmp_path)
    stored = scene.records()
    durable.remove(scene.root / ".landing" / lost)
    ended = scene.run(*LAND)
    assert ended.code == 7
    assert ended.err == "Waiting: attempt 4: its workspace is gone; it is void now, and counts; land again"
    assert scene.ran() == ()
    assert scene.records().items() >= stored.items()
    assert [records.kind(record) for record in sound(scene)[3:]] == ["attempt", "void"]
    assert scene.run(*RESUME).code == 2
    scene.commit("a landing whose samples were lost")
    assert scene.run(*LAND).last == "LANDED: scale on cpu-x86_64: record 7"
    assert [records.kind(record) for record in sound(scene)[3:]] == ["attempt", "void", "attempt", "result", "promote"]


def test_what_a_killed_writer_left_harms_nobody_who_commits_it(tmp_path: Path) -> None:
    """A temporary file is removed by the next landing, and its removal is no change of a permanent file."""
    scene = committed().copy(tmp_path)
    stopped(scene, "link 000004.json", signal.SIGKILL)
    assert list(scene.ledger.glob(".tmp-*"))
    scene.commit("whatever lies there")
    scene.land("scale")
    scene.commit("land scale")
    assert len(sound(scene)) == 6


def test_a_full_disk_is_not_held_against_the_candidate(tmp_path: Path) -> None:
    """A check that fails where nothing more can be written is no verdict: exit 4; with room again the walk goes on."""
    scene = attempted().copy(tmp_path)
    watched = (scene.home / "watched").read_text()
    large = 'case "$*" in *" dump "*) head -c 200000 /dev/zero > "$last/large.bin" || exit 1;; esac'
    (scene.home / "watched").write_text(watched.replace("exec", f"for last; do :; done\n{large}\nexec"))
    ended = scene.run(*LAND, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**17)))
    assert (ended.code, ended.err.split(":")[0], len(scene.records())) == (4, "MachineError", 4)
    assert "raise the file size limit and run the same command again" in ended.err
    (scene.home / "watched").write_text(watched)
    assert scene.land("scale").last == "LANDED: scale on cpu-x86_64: record 5"
    sound(scene)


def test_an_attempt_goes_on_as_it_was_asked_for_or_not_at_all(tmp_path: Path) -> None:
    """A trial of it, another block, another kind of landing: nothing is run, and nothing written."""
    scene = timed().copy(tmp_path)
    stored = scene.records()
    for more in (("--dry-run",), ("--check", "twice"), ("--toolchain",), ("--revert", "3")):
        ended = scene.run(*RESUME, *more)
        assert (ended.code, "exclude each other" in ended.err) == (2, True), ended
    ended = scene.run("land", "sum", *RESUME[1:])
    assert (ended.code, "sum: has no open attempt" in ended.err) == (2, True), ended
    assert (scene.records(), scene.ran()) == (stored, ())
    assert scene.run("land", "scale", *RESUME[1:]).last == "LANDED: scale on cpu-x86_64: record 5"


def test_a_dry_run_completes_nothing(tmp_path: Path) -> None:
    """Where a landing was cut off before its views, a dry run says so and writes nothing; compare and verify stop."""
    scene = timed().copy(tmp_path)
    stopped(scene, "rename .*/previous/", signal.SIGKILL)
    stored, current = scene.records(), scene.current.read_bytes()
    for command, code in (((*LAND, "--dry-run"), 2), (("compare", *LAND[2:]), 3), (("verify", *LAND[2:]), 3)):
        assert scene.run(*command).code == code
    assert (scene.records(), scene.current.read_bytes()) == (stored, current)
    assert scene.run("restore", *LAND[2:]).code == 0
    assert scene.current.read_bytes() != current
    sound(scene)


def test_an_interrupted_landing_of_another_tree_is_void(tmp_path: Path) -> None:
    """The tree changed before there was a verdict: a void that says so closes the attempt, and nothing is lost."""
    scene = timed().copy(tmp_path)
    stored = scene.records()
    scene.write("clip")
    scene.commit("adder: block clip")
    ended = scene.run(*LAND)
    assert (ended.code, "is not committed" in ended.err) == (2, True)
    assert scene.records().items() >= stored.items()
    void = sound(scene)[4]
    assert isinstance(void, records.Void)
    assert "changed before there was a verdict" in void.why


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_matrix_of_teeth_goes_on_after_a_crash(tmp_path: Path, number: signal.Signals) -> None:
    """What was run is not run again, unless the tree is another; when the matrix is whole, nothing of it is left."""
    scene = walks.landed().copy(tmp_path / "same")
    scene.hold("runs/twice@another-name/1")
    process = scene.start("teeth", "--subject", "adder")
    command = scene.held()
    walks.until(lambda: len([*scene.root.glob(".landing/matrix/*/*/done/job-*")]) == JOBS - 1)
    process.send_signal(number)
    assert walks.ended(process).code == (7 if number == signal.SIGINT else -number)
    walks.until(lambda: not walks.alive(command))
    scene.let_go()
    other = scene.copy(tmp_path / "other")
    other.edit("adder.c", "#define ROWS_MAX 8", "#define ROWS_MAX 9")
    other.edit("landing.toml", '#define ROWS_MAX 8"', '#define ROWS_MAX 9"')
    assert scene.run("verify", "--subject", "adder").code == 0  # what is proved in between takes nothing away
    for left, jobs in ((scene, 1), (other, JOBS)):
        before = len([line for line in left.ran() if " dump " in line])
        assert left.run("teeth", "--subject", "adder").last.startswith("SHARP: 1 mutants, 1 neutral, 1 checks")
        assert len([line for line in left.ran() if " dump " in line]) - before == 2 * jobs
        assert not (left.root / ".landing" / "matrix").exists()


def test_views_are_finished_where_the_artifact_kept_its_bytes(tmp_path: Path) -> None:
    """Then `current` looks as it should, and `previous` alone tells that a crash came between promote and views."""
    scene = walks.landed().copy(tmp_path)
    (scene.adder / "run.py").write_text((scene.adder / "run.py").read_text() + "# a word more\n")
    scene.commit("another tool")
    assert stopped(scene, "rename .*/previous/", signal.SIGKILL).code == -signal.SIGKILL
    assert len(scene.records()) == 9
    assert scene.run("verify", "--subject", "adder").code == 3
    assert scene.run(*LAND).code == 0
    sound(scene)
