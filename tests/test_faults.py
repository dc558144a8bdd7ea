"""What bad input and bad luck get: one table of faults, each met by the real command line in a scratch repository.

Whatever happens, standard error holds one line that says where, what and what to do, or nothing where there is a
verdict; the ledger is as it was or longer by whole records; `current` is old or new and never neither.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faults import flip

from pipeline import records, views
from pipeline.errors import BaselineMismatch
from pipeline.house import House
from tests import planted, walks
from tests.planted import Plant, manifest
from tests.walks import Ended, Scene

LINE = re.compile(r"[A-Z][A-Za-z]+: .+: .+; .+")
VERDICTS = {0: "LANDED", 1: "REFUSED|WOULD BE REFUSED"}
SCENES: dict[str, Callable[[], Scene]] = {"fresh": walks.fresh, "landed": walks.landed, "proved": planted.proved}


@dataclass(frozen=True, slots=True)
class Case:
    """A fault planted in a copy of a scene, a command line that meets it, the exit code and what is said."""

    name: str
    command: str
    code: int
    says: str  # in the line of an error; in what a verdict is printed with
    plant: Plant = planted.nothing
    scene: str = "landed"
    grows: int = 0  # records that are added
    runs: bool = True  # False: it must stop before the first command of the manifest
    argv: tuple[str, ...] = ()  # more words, which need not be without spaces
    around: Callable[[Scene], AbstractContextManager[object]] = nullcontext
    run: Callable[[Scene, tuple[str, ...]], Ended] = lambda scene, argv: scene.run(*argv)


def first(
    name: str, code: int, says: str, plant: Plant = planted.nothing, command: str = "land sum", **more: Any
) -> Case:
    """A case of a subject of which nothing has landed."""
    return Case(name, command, code, says, plant, scene="fresh", **more)


HEX = "[0-9a-f]{64}"
MOVED = f"BaselineMismatch: .*current/cpu-x86_64/adder.so: is {HEX}, promoted was {HEX};"
GONE = f"HistoryError: baselines/archive/{HEX}: is another in the working tree, or none; git checkout"
LAND, VERIFY, COMPARE, AUDIT = "land scale", "verify", "compare", "audit"
NAMES = ("a/b", "-x", "a\nb", "../../x", "", "x" * 300)
TWICE = ('find = "out[r * width + i] = totals[i];"', 'find = "totals[i]"')
NEVER = ('find = "#define', 'find = "#undef')

BASELINE: dict[str, tuple[Plant, str]] = {
    "first byte flipped": (planted.current(flip), MOVED),
    "last byte flipped": (planted.current(lambda path: flip(path, -1)), MOVED),
    "swapped": (planted.swapped, MOVED),
    "truncated": (planted.current(lambda path: os.truncate(path, 100)), MOVED),
    "missing": (planted.current(Path.unlink), f"BaselineMismatch: .*adder.so: is missing.*, promoted was {HEX};"),
    "a symlink": (planted.instead(lambda path: path.symlink_to("../aside")), "BaselineMismatch: .*adder.so: is a link"),
    "a FIFO": (planted.instead(os.mkfifo), "BaselineMismatch: .*adder.so: is a FIFO, not a regular file;"),
    "with an extra file": (
        planted.current(lambda path: path.with_name("notes").touch()),
        "BaselineMismatch: .*cpu-x86_64: holds adder.so, notes where one artifact belongs;",
    ),
    "stale, and committed": (planted.behind, MOVED),
}
LEDGER: dict[str, tuple[Plant, str]] = {
    "a record edited": (planted.word(b'"landed"', b'"Landed"'), "LedgerError: .*000002.json: "),
    "a title edited": (planted.word(b"running", b"Running"), "LedgerError: .*000003.json: does not follow record 2;"),
    "the last record edited": (
        planted.word(b'On":"2', b'On":"1', 6),
        "HistoryError: ledger/000006.json: is another in",
    ),
    "a record removed": (planted.removed(2), "LedgerError: .*000002.json: is missing, and 000003.json is there;"),
    "the last record removed": (planted.removed(6), "HistoryError: ledger/000006.json: .*, or none; git checkout"),
    "a record duplicated": (planted.duplicated, "LedgerError: .*000007.json: says that it is number 6;"),
    "records re-ordered": (planted.reordered, "LedgerError: .*000002.json: says that it is number 3;"),
    "a duplicate JSON key": (
        planted.word(b'"revision":0', b'"revision":0,"revision":0'),
        "LedgerError: .*000002.json: the key 'revision' stands twice;",
    ),
    "a BOM": (planted.record(lambda data: b"\xef\xbb\xbf" + data), "LedgerError: .*000002.json: "),
}
HISTORY: dict[str, tuple[Plant, str]] = {
    "edited a record": (planted.record(lambda data: data + b" "), "ledger/000002.json: was changed by commit"),
    "removed a record": (planted.removed(6), "ledger/000006.json: was removed by commit"),
    "edited an object": (planted.flipped("plan"), f"baselines/archive/{HEX}: was changed by commit"),
    "removed an object": (planted.lost("plan"), f"baselines/archive/{HEX}: was removed by commit"),
}
EVIDENCE: dict[str, tuple[Callable[[Any], object], str]] = {
    "of another plan": (lambda seen: seen.update(plan="0" * 64), "answers another plan than attempt 4's;"),
    "with a digest flipped": (planted.other_digest, "contradict each other;"),
    "without its differences": (planted.no_difference, "contradict each other;"),
    "without a job": (lambda seen: seen["jobs"].pop(0), "does not hold exactly the jobs of the plan"),
    "with a job twice": (lambda seen: seen["jobs"].append(seen["jobs"][-1]), "does not hold exactly the jobs"),
    "without its counterproofs": (lambda seen: seen.update(jobs=seen["jobs"][:1]), "lacks the counterproofs"),
    "without a side": (lambda seen: seen["jobs"][0]["sides"].pop(), "has 1 sides where the plan has 2;"),
    "with samples swapped": (planted.swapped_samples, "the samples are not the ones that the plan asks for"),
    "without a sample": (lambda seen: seen["samples"].pop(), "the samples are not the ones that the plan asks for"),
    "with a sample of no time": (planted.no_time, "a sample took no time: the clock stood still;"),
    "of other artifacts": (planted.other_artifact, "names other inputs than the plan's;"),
    "of another command": (planted.other_command, "ran another command than the plan's;"),
    "without inputs": (planted.no_inputs, "names other inputs than the plan's;"),
}
COMPILERS: dict[str, tuple[Plant, str]] = {
    "missing": (planted.no_compiler, "the compiler watched cannot be run .*; install it"),
    "not executable": (lambda scene: (scene.home / "watched").chmod(0o644), "the compiler watched cannot be run"),
    "failing": (planted.compiler("echo no such header >&2; exit 3"), "ended with exit code 3: no such header;"),
    "writing nothing": (planted.compiler("exit 0"), "succeeded and left no adder.so in {out};"),
    "writing an empty file": (planted.compiler(planted.LAST + ': > "$last"'), "is empty"),
    "writing a text": (planted.compiler(planted.LAST + 'echo int main > "$last"'), "is no 64-bit ELF file"),
    "writing a link": (planted.compiler(planted.LAST + 'ln -s /bin/true "$last"'), "is a link, not a regular file"),
    "writing other bytes each time": (
        planted.compiler(planted.LAST + '"$@" && date +%N >> "$last"'),
        "two builds differ at .*; find what the compiler puts there",
    ),
}
DUMPS: dict[str, tuple[Plant, str]] = {
    "NaN in a dump": (planted.spoiled("nan", "nan"), r"check twice: sum.f32 .*0x7fc00000 \(NaN\), 1 of 6"),
    "-0.0 against 0.0": (planted.spoiled("zero", "minus zero"), "check twice: sum.f32 .*: 0x00000000 0x80000000"),
    "a dump missing": (planted.spoiled("none", "missing"), "check twice: sum.f32: side 2 did not leave it"),
    "a dump too many": (planted.spoiled("none", "extra"), "check twice: more.f32: only side 2 left it"),
    "a dump empty": (planted.spoiled("none", "empty"), "check twice: sum.f32: 0 bytes where the first side has 24"),
    "dumps empty": (planted.spoiled("empty", "empty"), "check twice: sum.f32: an empty file"),
}

CASES = (
    # what is asked for does not exist, or may not be done now
    first("unknown block", 2, "landing.toml: block sums: .* no such block; did you mean sum", command="land sums"),
    first("unknown target", 2, "target cpu-x86: .*; did you mean cpu-x86_64", command="land sum --target cpu-x86"),
    first("unknown check", 2, "check twixe: .*; did you mean twice", command="land sum --check twixe", runs=False),
    first("unknown commit", 2, "nowhere: is no commit of this repository;", command="land sum --at nowhere"),
    first("unknown key", 2, "toml: bench.step.paris: unknown key; did you mean pairs", manifest("pairs", "paris")),
    Case("unknown table", VERIFY, 2, "landing.toml: mutants: unknown key; did you mean mutant",
         manifest("[mutant.another", "[mutants.another")),
    Case("unknown record", "show 7", 2, "show 7: the ledger has 6 records;"),
    first("a block out of order", 2, "block scale: is out of order: nothing has .*; land sum", command="land scale"),
    Case("a block out of order, back", "land sum", 2, "sum: is out of order: .* stands at scale; land scale or clip"),
    first("nothing to resume", 2, "cpu-x86_64: has no open attempt;", command="land --resume 4"),
    # a mutant that cannot be planted
    first("find occurs 0 times", 1, "another-name: is neutral, and .*: find occurs 0 times", manifest(*NEVER), grows=2),
    first("find occurs 2 times", 1, "not be planted for twice: .* find occurs [2-9] times", manifest(*TWICE), grows=2),
    first("find occurs 0 times, tried", 1, "find occurs 0 times", manifest(*NEVER), "land sum --dry-run"),
    first("find occurs 2 times, tried", 1, "find occurs [2-9] times", manifest(*TWICE), "land sum --dry-run"),
    # odd names
    *(Case(f"block {name[:9]!r}", "land", 2, "Error: ", argv=("--", name), runs=False) for name in NAMES),
    *(Case(f"{option} {name[:9]!r}", LAND, 2, "Error: ", argv=(f"{option}={name}",), runs=False)
      for option in ("--target", "--at", "--check", "--root", "--subject") for name in NAMES[-2:]),
    *(Case(f"evidence {name[:9]!r}", "land", 2, "Error: ", argv=(f"--evidence={name}",), scene="proved", runs=False)
      for name in NAMES[-2:]),
    *(Case(f"operand {name[:9]!r}", "compare current", 2, "Error: ", argv=("--", name), runs=False)
      for name in (*NAMES[-2:], "#0", "#7", "#\u00b2", "#" + "9" * 5000)),
    first("NUL in a name", 2, r"mutant.'a\\x00b': is not a name;", manifest("t.another-name", r't."a\u0000b"')),
    first("NUL in a path", 2, "input.sample.path: is empty, holds a NUL", manifest('"sample.txt"', r'"a\u0000b"')),
    first("a path out of the subject", 2, "input.sample.path: ../x is not a plain", manifest('"sample.txt"', '"../x"')),
    # the baseline
    *(Case(f"baseline {name}: {verb}", verb, 3, says, plant, runs=False)
      for name, (plant, says) in BASELINE.items() for verb in (LAND, VERIFY, COMPARE)),
    first("a baseline that never landed", 3, "BaselineMismatch: .*promoted nothing", planted.unlanded, runs=False),
    # the archive
    *(Case(f"{name} flipped: {verb}", verb, 3, f"ArchiveError: .*archive/{HEX}: holds {HEX}, not {HEX};",
           planted.flipped(name), runs=False)
      for name, verb in zip(("artifact", "source", "plan", "evidence", "samples"), (VERIFY, AUDIT) * 3, strict=False)),
    *(Case(f"artifact flipped: {verb}", verb, 3, GONE, planted.flipped("artifact"), runs=False)
      for verb in (LAND, COMPARE, "restore")),
    Case("an object removed: land", LAND, 3, GONE, planted.lost("plan"), runs=False),
    Case("source flipped and committed: land", "land clip", 3, f"ArchiveError: .*: holds {HEX}, not {HEX};",
         lambda scene: (planted.flipped("source")(scene), planted.at_clip(scene)), runs=False),
    # the ledger
    *(Case(f"{name}: {verb}", verb, 3, says, plant, runs=False)
      for name, (plant, says) in LEDGER.items() for verb in (LAND, VERIFY)),
    *(Case(f"{name}: restore", "restore", 3, says, plant, runs=False)
      for name, (plant, says) in LEDGER.items() if "last" in name),
    *(Case(f"history {name}: {verb}", verb, 3, f"HistoryError: {says}", planted.taken_back(plant), runs=False)
      for verb, (name, (plant, says)) in zip((VERIFY, AUDIT, AUDIT, VERIFY), HISTORY.items(), strict=True)),
    *(Case(f"a shallow clone: {verb}", verb, 4, "MachineError: git: this clone is shallow", planted.shallow, runs=False)
      for verb in (VERIFY, AUDIT)),
    Case("not a git repository", LAND, 2, "is not in a git repository;", planted.no_git, runs=False),
    first("records not committed", 2, ": of an earlier landing is not committed; git add", planted.not_committed, LAND),
    first("two landings started together", 6, r"held by process \d+: land sum; wait", around=planted.one_landing),
    # evidence
    Case("evidence as it is", "land --evidence evidence.json", 0, "1 of 1 checks green", scene="proved", runs=False),
    *(Case(f"evidence {name}", "land --evidence evidence.json", 3, f"EvidenceError: .*{says}", planted.evidence(change),
           scene="proved", runs=False) for name, (change, says) in EVIDENCE.items()),
    Case("evidence cut short", "land --evidence evidence.json", 3, "EvidenceError: .*evidence.json: not evidence",
         lambda scene: os.truncate(scene.root / "evidence.json", 500), scene="proved", runs=False),
    Case("no evidence", "land --evidence nowhere.json", 2, "nowhere.json: is missing;", scene="proved", runs=False),
    # the machine
    *(first(f"disk full under {part}", 4, "MachineError: .*run the same command again", around=planted.full(part))
      for part in ("ledger", "baselines", ".landing")),
    Case("ledger read-only: void", "void 5 --why mistaken", 4, "MachineError: .*/000007.json: Permission denied; allow",
         run=planted.as_nobody),
    first("ledger read-only: land", 4, "MachineError: .*/000003.json: Permission denied; allow", planted.unpromoted,
          run=planted.as_nobody),
    # the compiler
    *(first(f"compiler {name}", 4, f"BuildError: adder for cpu-x86_64: .*{says}", plant)
      for name, (plant, says) in COMPILERS.items()),
    first("compiler killed", 4, "MachineError: .*: the build was killed from outside; see to memory",
          planted.compiler("kill -9 $$")),
    first("compiler hanging", 4, "MachineError: .*: the build did not end in 1 s;",
          planted.compiler('echo $$ > "$HOME/held"; sleep 60 & wait'), run=planted.impatient),
    *(Case(f"compiler failing: {verb}", verb, 4, "BuildError: ", planted.compiler("exit 3"))
      for verb in (VERIFY, COMPARE)),
    Case("compiler missing, and a baseline", "land clip", 4, "BuildError: .*the compiler watched cannot be run",
         lambda scene: (planted.at_clip(scene), planted.no_compiler(scene))),
    first("source changed during the build", 4, "BuildError: adder/adder.c: changed during the build;",
          planted.meddler('echo "/* later */" >> ROOT/adder/adder.c')),
    first("source added during the build", 4, "BuildError: adder/more.c: changed during the build;",
          planted.meddler("touch ROOT/adder/more.c")),
    first("source changed by the build", 4, "BuildError: adder/adder.c: was changed by the build;",
          planted.meddler('echo "/* later */" >> adder/adder.c')),
    # dumps
    *(first(name, 1, says, plant, grows=2) for name, (plant, says) in DUMPS.items()),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_and_bad_luck(tmp_path: Path, case: Case) -> None:
    """One line, the exit code of the table, whole records, a whole `current`, and nothing run that must not run."""
    scene = SCENES[case.scene]().copy(tmp_path)
    case.plant(scene)
    with case.around(scene):
        stored, shown, ran = scene.records(), whole(scene.current.parent), scene.ran()
        done = case.run(scene, (*case.command.split(), "--subject", "adder", *case.argv))
        assert done.code == case.code, done
        if case.code in VERDICTS:
            assert done.err == ""
            assert re.match(f"({VERDICTS[case.code]}): ", done.last), done
            assert re.search(case.says, done.out), done
        else:
            assert LINE.fullmatch(done.err), done
            assert re.search(case.says, done.err), done
        after = scene.records()
        assert after.items() >= stored.items()
        assert case.code == 0 or len(after) == len(stored) + case.grows
        assert whole(scene.current.parent) == (newest(scene) if case.code == 0 else shown)
        assert case.runs or scene.ran() == ran
        assert not [path for path in scene.root.rglob(".tmp-*") if ".landing" not in path.parts]


def whole(folder: Path) -> dict[str, bytes | int]:
    """What stands in a folder, without following or opening what is no file."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return {p.name: p.read_bytes() if p.is_file() and not p.is_symlink() else p.lstat().st_mode for p in paths}


def newest(scene: Scene) -> dict[str, bytes]:
    """What `current` holds after the newest promote."""
    made = [records.from_bytes(data) for data in scene.records().values()]
    artifact = [record for record in made if isinstance(record, records.Promote)][-1].artifact
    return {artifact.name: (scene.baselines / "archive" / artifact.sha256).read_bytes()}


def test_the_table_has_a_case_for_every_exit_code() -> None:
    """But 5, what no fault here ends in, and 7, an interrupted walk; no case is there twice."""
    assert {case.code for case in CASES} == {0, 1, 2, 3, 4, 6}
    assert len({case.name for case in CASES}) == len(CASES)


def test_any_byte_of_the_baseline_counts(tmp_path: Path) -> None:
    """Whichever byte is flipped, here every ninth, the view is refused with both digests."""
    scene = walks.landed().copy(tmp_path)
    house = House(folder=scene.adder, root=scene.root)
    book = house.ledger.read()
    for at in range(0, scene.current.stat().st_size, 9):
        flip(scene.current, at)
        with pytest.raises(BaselineMismatch, match=f"adder.so: is {HEX}, promoted was {book[-1].artifact.sha256};"):
            views.require(house, book)
        flip(scene.current, at)
    views.require(house, book)
