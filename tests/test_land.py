"""land.py: the walk as a user takes it, on a small real subject; what is written, and what is only said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline import derive, kit, records
from pipeline.records import Attempt, Promote, Record, Result
from tests import landings, scratch, walks
from tests.walks import Ended, Scene

COMMENT = "adder.c", "/* Block sum:", "/* The block named sum:"
NEUTRAL = "adder.c", "static int refused(", 'const char edition[] = "second";\n\nstatic int refused('
FAULT = "adder.c", "x[n] * factor", "x[n] + factor"
TOTALS = "out[r * width + i] = totals[i];"
SLOW = (
    "    for (int r = 0; r < rows; r++)\n",
    "    for (volatile int pause = 0; pause < 40000; pause++) {}\n    for (int r = 0; r < rows; r++)\n",
)  # the same sums, several times as slow


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Blocks sum and scale have landed: records 1 to 6."""
    return walks.landed().copy(tmp_path)


@pytest.fixture
def fresh(tmp_path: Path) -> Scene:
    """The adder at block sum; nothing has landed."""
    return walks.fresh().copy(tmp_path)


def land(scene: Scene, *argv: str) -> Ended:
    return scene.run("land", *argv, "--subject", "adder")


def book(scene: Scene) -> list[Record]:
    return [records.from_bytes(data) for _, data in sorted(scene.records().items())]


def stored(scene: Scene) -> dict[str, bytes]:
    files = (path for top in (scene.ledger, scene.baselines) for path in top.rglob("*") if path.is_file())
    return {path.relative_to(scene.root).as_posix(): path.read_bytes() for path in files}


def result(scene: Scene) -> Result:
    return [record for record in book(scene) if isinstance(record, Result)][-1]


def manifest(scene: Scene, old: str, new: str) -> None:
    """The manifest says something else, and that is committed."""
    scene.edit("landing.toml", old, new)
    scene.commit("another manifest")


def test_a_first_landing_writes_attempt_result_and_promote(fresh: Scene) -> None:
    """Nothing to compare with, nothing to time; the last line is the verdict, and `current` is the new artifact."""
    done = land(fresh)
    assert (done.code, done.last, done.err) == (0, "LANDED: sum on cpu-x86_64: record 2", "")
    attempt, made, promote = book(fresh)
    assert isinstance(attempt, Attempt) and isinstance(made, Result) and isinstance(promote, Promote)
    assert (attempt.baseline, made.verdict, made.timing, promote.result) == (None, "landed", (), 2)
    assert made.reasons[-1] == "the first landing on this target: there is nothing to time against"
    assert walks.Path(fresh.current).read_bytes() == (fresh.baselines / "archive" / made.artifact.sha256).read_bytes()
    assert not (fresh.baselines / "previous").exists()
    assert not list((fresh.root / ".landing").glob("0*"))


def test_the_next_landing_keeps_the_old_artifact_as_previous(scene: Scene) -> None:
    """Baseline, increment, sizes before and after, a timing sentence with its control."""
    made = result(scene)
    assert made.baseline is not None and made.baseline.sequence == 3
    assert made.baseline.sha256 == book(scene)[2].artifact.sha256
    assert len(made.source.increment) == 1 and "block scale" in made.source.increment[0]
    before, after = made.sizes.artifact
    assert before is not None and before < after
    assert dict(made.sizes.kernels)["scale"][0] is None
    (timing,) = made.timing
    assert timing.pairs == timing.faster + timing.slower + timing.ties > 0
    assert "n too small for any verdict" in made.reasons[-1]
    previous = scene.baselines / "previous" / walks.TARGET / "adder.so"
    assert previous.read_bytes() == (scene.baselines / "archive" / made.baseline.sha256).read_bytes()


def test_the_proof_of_an_unchanged_tree_runs_every_check_and_writes_nothing(scene: Scene) -> None:
    """Green checks in their teeth form, no mutant, no timing; exit code 0, and not one byte of a record."""
    before = stored(scene)
    done = land(scene, "scale")
    assert done.code == 0
    assert done.last == "SOUND: scale on cpu-x86_64: the tree is what record 6 promoted"
    ran = [line for line in scene.ran() if " dump " in line]
    assert len(ran) == 2
    assert not [line for line in scene.ran() if " bench " in line]
    assert stored(scene) == before
    assert scratch.git(scene.root, "status", "--porcelain") == ""


def test_when_every_block_has_landed_a_bare_land_is_the_proof(scene: Scene) -> None:
    """Without BLOCK the next one is landed; after the last there is nothing to land."""
    scene.write("clip")
    scene.commit("adder: block clip")
    assert land(scene).last == "LANDED: clip on cpu-x86_64: record 8"
    scene.commit("land clip")
    assert land(scene).last == "SOUND: clip on cpu-x86_64: the tree is what record 9 promoted"
    assert len(book(scene)) == 9


def test_a_dry_run_says_what_would_happen_and_writes_nothing(scene: Scene) -> None:
    """Exit code 0 where it would land, 1 where it would be refused; the whole walk, mutants and timings too."""
    scene.write("clip")
    scene.commit("adder: block clip")
    before = stored(scene)
    done = land(scene, "clip", "--dry-run")
    assert (done.code, done.last) == (0, "WOULD LAND: clip on cpu-x86_64: nothing was written")
    assert [line for line in scene.ran() if " bench " in line]
    scene.edit("adder.c", TOTALS, TOTALS.replace("totals[i]", "totals[i] + (float)(__builtin_ia32_rdtsc() & 7)"))
    scene.commit("a fault")
    done = land(scene, "clip", "--dry-run")
    assert (done.code, done.last) == (1, "WOULD BE REFUSED: clip on cpu-x86_64: nothing was written")
    assert stored(scene) == before


def test_a_tree_that_is_not_committed_is_tried_and_not_recorded(scene: Scene) -> None:
    """Exit code 2 if it would land: commit first; exit code 1 if it would be refused, with the finding."""
    scene.write("clip")
    before = stored(scene)
    done = land(scene, "clip")
    assert done.code == 2
    assert done.last.startswith(
        "WOULD LAND: clip on cpu-x86_64: commit first: adder.c not committed; nothing was written"
    )
    scene.edit("adder.c", TOTALS, TOTALS.replace("totals[i]", "totals[i] + (float)(__builtin_ia32_rdtsc() & 7)"))
    done = land(scene, "clip")
    assert (done.code, done.last) == (
        1,
        "WOULD BE REFUSED: clip on cpu-x86_64: adder.c not committed; nothing was written",
    )
    assert re.search(r"check twice: \S+ row \d+ col \d+: 0x", done.out)
    assert stored(scene) == before


def test_one_check_can_be_tried_alone_with_its_mutants(scene: Scene) -> None:
    """Untimed, and never recorded; an unknown one is answered with the nearest."""
    scene.write("clip")
    scene.commit("adder: block clip")
    before = stored(scene)
    done = land(scene, "clip", "--check", "twice")
    assert (done.code, done.last) == (0, "WOULD LAND: clip on cpu-x86_64: nothing was written")
    assert "1 counterproofs caught, 1 neutral runs green" in done.out
    assert not [line for line in scene.ran() if " bench " in line]
    done = land(scene, "clip", "--check", "twixe")
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("check twixe: there is no such check; did you mean twice")
    assert stored(scene) == before


def test_a_comment_lands_by_the_identity_of_its_bytes(scene: Scene) -> None:
    """Asked for by name it is a revision: no timing verdict and no comparison is owed, and all of it is recorded."""
    scene.edit(*COMMENT)
    scene.commit("a comment")
    artifact = scene.current.read_bytes()
    ran = len(scene.ran())
    done = land(scene, "scale")
    assert (done.code, done.last) == (0, "LANDED: scale on cpu-x86_64: record 8")
    made = result(scene)
    assert (made.revision, made.timing) == (1, ())
    assert made.baseline is not None and made.baseline.sha256 == made.artifact.sha256
    assert (
        "the artifact keeps its bytes: no timing verdict, and no comparison with the baseline, is owed" in made.reasons
    )
    assert made.reasons[0] == "0 of 1 checks green in this run, 0 counterproofs caught, 0 neutral runs green"
    assert made.checks[0].green_in == 5
    assert not [line for line in scene.ran()[ran:] if " dump " in line or " bench " in line]
    assert scene.current.read_bytes() == artifact


def test_other_tools_make_every_check_run_again(scene: Scene) -> None:
    """The same artifact under a tool that changed: green before is not green now, and the mutants are owed too."""
    scene.edit("run.py", "REFUSED = 5", "REFUSED = 5  # as the manifest has it")
    scene.commit("a tool")
    assert land(scene, "scale").code == 0
    made = result(scene)
    assert made.reasons[0] == "1 of 1 checks green in this run, 1 counterproofs caught, 1 neutral runs green"
    assert made.checks[0].green_in is None


def test_a_fault_is_refused_on_record_and_current_stays(scene: Scene) -> None:
    """Exit code 1; the finding names check, file and element; the candidate is kept by digest alone."""
    artifact = scene.current.read_bytes()
    manifest(scene, '"--width", "3", "--out", "{out}"]]', '"--width", "4", "--out", "{out}"]]')
    done = land(scene, "scale")
    assert (done.code, done.last) == (1, "REFUSED: scale on cpu-x86_64: record 8")
    made = result(scene)
    assert made.verdict == "refused"
    assert made.reasons[0].startswith("check twice: ")
    assert scene.current.read_bytes() == artifact
    assert [type(record).__name__ for record in book(scene)[6:]] == ["Attempt", "Result"]


def test_a_refused_tree_is_refused_again_however_often_it_is_tried(scene: Scene) -> None:
    """A check that was green in a record that did not land proves nothing: its mutant was missed."""
    manifest(scene, "(float)(__builtin_ia32_rdtsc() & 0xffffff)", "0.0f * (float)(__builtin_ia32_rdtsc() & 1)")
    for sequence in (8, 10):
        done = land(scene, "scale")
        assert (done.code, done.last) == (1, f"REFUSED: scale on cpu-x86_64: record {sequence}")
        made = result(scene)
        assert made.reasons[0] == "mutant reads-the-clock: not caught by twice: it saw nothing"
        assert made.checks[0].verdict == "green"
        scene.commit("refused")


PLANTED = "totals[i] + (float)(__builtin_ia32_rdtsc() & 0xffffff);"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (f'find = "{TOTALS}"', 'find = "not there"', "could not be planted for twice: adder.c: find occurs 0 times"),
        (PLANTED, "nonsense;", "could not be planted for twice: does not build"),
        (PLANTED, "totals[i] ;", "could not be planted for twice: its artifact equals the candidate's"),
    ],
)
def test_a_mutant_that_shows_nothing_refuses_the_landing(scene: Scene, old: str, new: str, reason: str) -> None:
    """Set-up errors are no catches, and no record of one holds a path of this machine."""
    manifest(scene, old, new)
    done = land(scene, "scale")
    assert done.code == 1
    assert reason in result(scene).reasons[0]
    whole = b"".join(scene.records().values())
    assert str(scene.root).encode() not in whole and b"/tmp" not in whole and b"/root" not in whole


def test_a_check_that_disappears_refuses_the_landing_unless_the_manifest_ends_it(scene: Scene) -> None:
    """A comparison that the landing before had to pass cannot be left out in silence."""
    text = (scene.adder / "landing.toml").read_text()
    (scene.adder / "landing.toml").write_text(
        text.replace("[check.twice]", "[check.again]").replace('"twice"', '"again"')
    )
    scene.commit("another name for a check")
    done = land(scene, "scale")
    assert done.code == 1
    reason = "check twice: the baseline's record holds it and this plan lacks it; end it with `until`"
    assert result(scene).reasons[0] == reason
    scene.commit("refused")
    ended = """
[check.twice]
verb = "clean"
until = "scale"
sides = [["watched", "{python}", "-c", "{candidate}"]]
[check.twice.clean]
absent = "x"
[mutant.old]
file = "adder.c"
find = "ROWS_MAX 8"
replace = "ROWS_MAX 9"
until = "scale"
caught_by = ["twice"]
"""
    with (scene.adder / "landing.toml").open("a") as file:
        file.write(ended)
    scene.commit("the check ends here")
    assert land(scene, "scale").code == 0


def test_a_block_for_speed_needs_a_confirmed_gain(scene: Scene) -> None:
    """So few pairs cannot confirm one; the bits are right, and that is not its purpose."""
    scene.write("clip")
    scene.edit("landing.toml", "[block.clip]", '[block.clip]\ngate = "improvement"\nfaster_on = ["cpu-x86_64"]')
    scene.commit("adder: block clip, for speed")
    done = land(scene, "clip")
    assert (done.code, done.last) == (1, "REFUSED: clip on cpu-x86_64: record 8")
    assert result(scene).reasons[0] == "the block's purpose is speed, and no case shows a confirmed gain"
    scene.commit("refused")
    text = (scene.adder / "landing.toml").read_text()
    (scene.adder / "landing.toml").write_text(text.partition("[bench.step]")[0])
    scene.commit("without a bench")
    assert land(scene, "clip").code == 1, "not to time it at all is no way round"


def test_a_slower_candidate_is_refused(tmp_path: Path) -> None:
    """A slowdown planted in the sums: every check is green, and eight pairs confirm a regression."""
    where = landings.house(tmp_path, "scale")
    landings.edit(where, *SLOW)
    scratch.commit(where.root, "the same, but slower")
    ended = landings.walk(where, block="scale")
    assert ended.code == 1
    made = ended.record
    assert isinstance(made, Result)
    assert {check.verdict for check in made.checks} == {"green"}
    (timing,) = made.timing
    assert (timing.verdict, timing.pairs) == ("regression", landings.PAIRS)
    assert timing.slower >= 7
    assert timing.ratio_ppm > 1_200_000
    assert made.reasons[0].startswith(f"step:sum[8x2048]: regression: {timing.slower} of ")
    assert "; a confirmed regression; A/A control" in made.reasons[0]


def test_a_landing_can_be_reverted_by_landing_what_was_archived(scene: Scene) -> None:
    """The tree must build to it; the block is landed again, one back, and its old artifact is current."""
    old = book(scene)[2].artifact.sha256
    done = land(scene, "--revert", "3")
    assert done.code == 2
    assert "the tree builds to" in done.err and "git revert the commits since then first" in done.err
    scene.write("sum")
    scene.commit("go back to block sum")
    done = land(scene, "--revert", "3")
    assert (done.code, done.last) == (0, "LANDED: sum on cpu-x86_64: record 8")
    made = result(scene)
    assert (made.block, made.revision, made.artifact.sha256) == ("sum", 1, old)
    assert made.baseline is not None and made.baseline.sequence == 6
    scene.commit("reverted")
    assert scene.run("audit", "--subject", "adder").code == 0
    scene.write("scale")
    scene.commit("and forward again")
    assert land(scene).last == "LANDED: scale on cpu-x86_64: record 11"


@pytest.mark.parametrize(
    ("sequence", "says"),
    [
        ("6", "--revert 6: is no earlier promote of cpu-x86_64; choose one of: 3"),
        ("2", "--revert 2: is no earlier promote of cpu-x86_64; choose one of: 3"),
        ("99", "--revert 99: is no earlier promote of cpu-x86_64; choose one of: 3"),
    ],
)
def test_only_an_earlier_promote_can_be_reverted_to(scene: Scene, sequence: str, says: str) -> None:
    """Exit code 2, and the choice."""
    done = land(scene, "--revert", sequence)
    assert (done.code, done.err) == (2, f"UsageError: {says}")


def test_a_commit_lands_as_it_was_by_its_own_manifest(fresh: Scene) -> None:
    """With --at the working tree says nothing: not its files, not its manifest, not that it is dirty."""
    first = scratch.git(fresh.root, "rev-parse", "HEAD")
    fresh.write("scale")
    text = (fresh.adder / "landing.toml").read_text()
    (fresh.adder / "landing.toml").write_text(
        text.replace("[check.twice]", "[check.renamed]").replace('"twice"', '"renamed"')
    )
    fresh.commit("adder: block scale, and other names")
    fresh.edit("adder.c", "x[n] * factor", "x[n] * nonsense")
    done = land(fresh, "sum", "--at", first[:12])
    assert (done.code, done.last) == (0, "LANDED: sum on cpu-x86_64: record 2")
    made = result(fresh)
    assert made.source.git_commit == first
    assert [check.id for check in made.checks] == ["twice"]
    fresh.edit("adder.c", "x[n] * nonsense", "x[n] * factor")
    fresh.commit("land sum")
    audited = fresh.run("audit", "--subject", "adder")
    assert (audited.code, audited.err) == (0, "")
    assert land(fresh, "sum", "--at", "no-such-revision").code == 2


def test_records_must_be_committed_before_the_next_landing(scene: Scene) -> None:
    """One landing at a time: exit code 2, and what to commit."""
    scene.edit(*NEUTRAL)
    scene.commit("other bytes")
    assert land(scene, "scale").code == 0
    scene.edit("adder.c", '"second"', '"third"')
    scratch.git(scene.root, "add", "adder")
    scratch.git(scene.root, "commit", "-q", "-m", "and others")
    before = scene.records()
    done = land(scene, "scale")
    assert done.code == 2
    assert "is not committed; git add ledger baselines, and commit" in done.err
    assert scene.records() == before


def test_toolchain_is_for_a_move_of_the_toolchain_alone(scene: Scene) -> None:
    """With other sources it is refused; without a move there is nothing to land."""
    assert land(scene, "scale", "--toolchain").last == "SOUND: scale on cpu-x86_64: the tree is what record 6 promoted"
    scene.edit(*NEUTRAL)
    scene.commit("other bytes")
    done = land(scene, "scale", "--toolchain")
    assert (done.code, done.err) == (
        2,
        "UsageError: --toolchain: moves the toolchain alone, and the sources changed too; land the sources apart",
    )
    assert len(book(scene)) == 6


def test_a_build_command_that_changed_is_not_a_moved_toolchain(scene: Scene) -> None:
    """The old manifest still builds the old artifact, so the difference is the candidate's own, and lands as such."""
    manifest(scene, '"-O2"', '"-Os"')
    done = land(scene, "scale")
    assert (done.code, done.last) == (0, "LANDED: scale on cpu-x86_64: record 8")
    assert "build     baseline from its archived source: " in done.out


def test_everything_that_a_record_names_is_in_the_archive_and_little_else(scene: Scene) -> None:
    """Artifacts that were promoted, source tars, plans, evidence and samples."""
    named = set()
    for record in book(scene):
        if isinstance(record, Promote):
            named.add(record.artifact.sha256)
        if isinstance(record, (Attempt, Result)):
            named.add(record.plan.sha256)
        if isinstance(record, Result):
            assert record.source.archive is not None
            named |= {record.evidence.sha256, record.source.archive.sha256, *(t.samples.sha256 for t in record.timing)}
    assert {path.name for path in (scene.baselines / "archive").iterdir()} == named


def test_what_was_measured_holds_no_path_of_this_machine(scene: Scene) -> None:
    """Records, plans and evidence: no folder of the scratch repository, no home, no host name."""
    where = landings.at(scene.root)
    texts = list(scene.records().values())
    for record in book(scene):
        if isinstance(record, Result):
            texts += [derive.read_plan(where, record).to_bytes(), derive.read_evidence(where, record).to_bytes()]
    assert not [
        word
        for word in (b"/tmp", b"/root", b"/home", b"watched /", str(scene.root).encode())
        if any(word in t for t in texts)
    ]
    plans = [path for path in (scene.baselines / "archive").iterdir() if path.read_bytes().startswith(b"\xfd7zXZ")]
    assert all(str(scene.root).encode() not in kit.unsqueeze(path.read_bytes()) for path in plans)


def test_json_prints_the_record_alone(scene: Scene) -> None:
    """On standard output; what a walk says goes to standard error."""
    scene.edit(*NEUTRAL)
    scene.commit("other bytes")
    done = land(scene, "scale", "--json")
    assert done.code == 0
    assert done.out.encode() == scene.records()["000008.json"]
    assert "candidate twice" in done.err
    scene.commit("landed")
    tried = land(scene, "scale", "--json")
    row: dict[str, Any] = json.loads(tried.out)
    assert row["verdict"] == "SOUND: scale on cpu-x86_64: the tree is what record 9 promoted"
    assert row["reasons"]


UNHASHED: dict[str, tuple[str, str, str]] = {
    "a when that names nothing": (
        'verb = "same"',
        'verb = "same"\nwhen = ["adder_.c"]',
        "check.twice.when: adder_.c names no file",
    ),
    "an input": (
        "[check.twice]",
        '[input.truth]\npath = "truth.dat"\norigin = "by hand"\n[check.twice]',
        "tools: truth.dat is read by a command",
    ),
    "a command's own file": ('"*.py", "*.txt"', '"reference.py", "*.txt"', "tools: run.py is read by a command"),
}


@pytest.mark.parametrize("name", UNHASHED)
def test_what_a_proof_reads_is_part_of_what_is_hashed(tmp_path: Path, name: str) -> None:
    """Else it could be changed, and an unchanged artifact be called sound by what is another proof."""
    scene = walks.fresh().copy(tmp_path)
    old, new, says = UNHASHED[name]
    scene.edit("landing.toml", old, new)
    (scene.adder / "truth.dat").write_text("1\n")
    scene.commit("a manifest that forgets one")
    done = scene.run("land", "sum", "--subject", "adder")
    assert (done.code, scene.records()) == (2, {})
    assert f"ManifestError: adder/landing.toml: {says}" in done.err


def test_what_cannot_be_run_here_is_inconclusive_for_every_verb(tmp_path: Path) -> None:
    """A command's exit code 77 is no difference, no integrity error and no blunt check: exit code 5."""
    scene = walks.landed().copy(tmp_path)
    run = scene.adder / "run.py"
    run.write_text("raise SystemExit(77)\n")
    for command in (("land", "scale"), ("compare", "current", "previous"), ("verify",), ("teeth",)):
        done = scene.run(*command, "--dry-run" if command[0] == "land" else "--json", "--subject", "adder")
        assert done.code == 5, (command, done)
