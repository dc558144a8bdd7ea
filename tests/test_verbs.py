"""verbs.py: what was seen of a job is green, red or unobtainable, and what compared nothing is red."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import canonical, outputs, verbs
from pipeline.proof import Bound, Difference, File, JobSeen
from pipeline.subject import Bound as Allowed
from pipeline.subject import Check, Refusal
from pipeline.verbs import Colour
from tests.drawn import DUMP, check, seen, side

WITHIN = check(verb="within", within=(Allowed(files=("*.f32",), dtype="f32", bound_ppm=2, reason="two roundings"),))
DIFFERS = check(verb="differs", differs=("out.f32",))
REFUSES = check(verb="refuses")
STATE = dataclasses.replace(REFUSES, refuses=(Refusal(argv=DUMP, code=5, word="rows", state=True),))
CLEAN = check(verb="clean", sides=(DUMP,))
REFUSED = side(code=5, tail="refused: rows")


def bound(ppb: int, file: str = "a.f32") -> Bound:
    return Bound(file, "a", ppb, f"{file} row 1 col 2")


def near(ppb: int, file: str = "a.f32") -> JobSeen:
    sides = [side({"a.f32": b"1234"})] * 2
    return seen("c", *sides, bounds=(bound(ppb, file),))


def state(before: bytes, after: bytes | None) -> JobSeen:
    files = {"before.bin": before} | ({} if after is None else {"after.bin": after})
    return seen("c", side(files, code=5, tail="refused: rows"))


GREEN = {
    "same: two equal sides": (check(), seen("c")),
    "same: three equal sides": (check(sides=(DUMP,) * 3), seen("c", side(), side(), side())),
    "differs: other bytes": (DIFFERS, seen("c", side(), side({"out.f32": b"12345"}))),
    "within: at the bound": (WITHIN, near(2000)),
    "refuses: code and word": (REFUSES, seen("c", REFUSED)),
    "refuses: the state is as it was": (STATE, state(b"1", b"1")),
    "clean: nothing found": (CLEAN, seen("c", side({}))),
}

NAN = Difference("nan", "out.f32", "out.f32 at 3: 0x7fc00000 (NaN), 1 of 4")
RED = {
    "same: NaN on both sides": (check(), seen("c", differences=(NAN,)), "out.f32 at 3: 0x7fc00000"),
    "same: other bytes": (
        check(),
        seen(
            "c", side(), side({"out.f32": b"1235"}), differences=(Difference("bytes", "out.f32", "out.f32 at 0: 1 2"),)
        ),
        "out.f32 at 0",
    ),
    "same: a file more": (
        check(),
        seen(
            "c",
            side(),
            side({"out.f32": b"1234", "x": b"1"}),
            differences=(Difference("extra", "x", "x: only side 2"),),
        ),
        "x: only side 2",
    ),
    "same: a file less": (
        check(),
        seen("c", side(), side({}), differences=(Difference("missing", "out.f32", "out.f32: side 2 did not"),)),
        "side 2 did not",
    ),
    "same: an empty file beside a full one": (
        check(),
        seen("c", *[side({"a": b"1", "b": b""})] * 2, differences=(Difference("empty", "b", "b: an empty file"),)),
        "b: an empty file",
    ),
    "same: no file": (check(), seen("c", side({}), side({})), "nothing was compared"),
    "same: empty files alone": (check(), seen("c", side({"a": b""}), side({"a": b""})), "nothing was compared"),
    "same: a side failed": (check(), seen("c", side(), side(code=1, tail="boom\n\n")), "side 2: .* exit code 1: boom"),
    "same: both sides failed alike": (check(), seen("c", side(code=1), side(code=1)), "side 1: .* it printed nothing"),
    "same: a side was killed": (check(), seen("c", side(), side(code=-11)), "side 2: ended with exit code -11"),
    "same: a side was too slow": (
        check(),
        seen("c", side(timed_out=True), side()),
        "side 1: stopped at its time limit",
    ),
    "differs: the same bytes": (DIFFERS, seen("c"), "out.f32: the same bytes on both sides"),
    "differs: neither left it": (DIFFERS, seen("c", side({"a": b"1"}), side({"a": b"2"})), "neither side left such"),
    "differs: one left it": (DIFFERS, seen("c", side(), side({"a": b"2"})), "out.f32: not both sides left it"),
    "differs: a side failed": (DIFFERS, seen("c", side(), side({}, code=2)), "side 2: ended with exit code 2"),
    "differs: one of two globs": (
        check(verb="differs", differs=("out.f32", "b.*")),
        seen("c", side({"out.f32": b"1", "b.bin": b"1"}), side({"out.f32": b"2", "b.bin": b"1"})),
        "b.bin: the same bytes",
    ),
    "within: just beyond": (WITHIN, near(2001), r"a.f32 row 1 col 2: off by 2\.001 ppm"),
    "within: no such file": (WITHIN, seen("c", side({}), side({})), r"\*\.f32: nothing was compared"),
    "within: a file without a bound": (WITHIN, near(0, "b.f32"), "a.f32: nothing was compared"),
    "within: NaN": (WITHIN, seen("c", bounds=(bound(0),), differences=(NAN,)), "NaN"),
    "within: one of two globs": (
        check(verb="within", within=(Allowed(("a.f32", "b.f32"), "f32", 2, "r"),)),
        near(0),
        "b.f32: nothing was compared",
    ),
    "within: a side failed": (WITHIN, seen("c", side(code=3), side()), "side 1: ended with exit code 3"),
    "refuses: it accepted": (REFUSES, seen("c", side(tail="rows")), "case 1: exit code 0, expected 5"),
    "refuses: another code": (REFUSES, seen("c", side(code=1, tail="rows")), "case 1: exit code 1, expected 5"),
    "refuses: another word": (REFUSES, seen("c", side(code=5, tail="refused: width")), "the word 'rows' is not in"),
    "refuses: too slow": (REFUSES, seen("c", side(code=5, tail="rows", timed_out=True)), "case 1: exit code 5"),
    "refuses: crashed": (REFUSES, seen("c", side(code=-11, tail="rows")), "case 1: exit code -11"),
    "refuses: state changed": (STATE, state(b"1", b"2"), "the refusal changed the state"),
    "refuses: no state": (STATE, state(b"1", None), "before.bin and after.bin were not left"),
    "refuses: empty state": (STATE, state(b"", b""), "nothing was compared: before.bin is empty"),
    "clean: the pattern": (CLEAN, seen("c", side({}, matches=2)), "2 lines hold 'error'"),
    "clean: a failure": (CLEAN, seen("c", side({}, code=1)), "side 1: ended with exit code 1"),
    "clean: a log that was cut": (CLEAN, seen("c", side({}, cut=True)), "not searched whole"),
}


@pytest.mark.parametrize("case", GREEN)
def test_what_keeps_its_word_is_green(case: str) -> None:
    """Each verb on evidence that holds; what a record lists is the first side's."""
    row, job = GREEN[case]
    made = verbs.outcome(row, job, teeth=False)
    assert (made.colour, made.where, made.differing) == (Colour.GREEN, None, 0)
    assert verbs.listed(job) == verbs.listing_of(job.sides[0].files)


@pytest.mark.parametrize("case", RED)
def test_what_does_not_is_red_at_a_place(case: str) -> None:
    """Each verb on evidence that does not hold, and everything vacuous."""
    row, job, says = RED[case]
    made = verbs.outcome(row, job, teeth=False)
    assert made.colour is Colour.RED
    assert made.differing > 0
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(made.where)


@pytest.mark.parametrize("row", [check(), DIFFERS, WITHIN, REFUSES, CLEAN], ids=lambda row: row.verb)
def test_a_tool_that_is_absent_is_unobtainable(row: Check) -> None:
    """Exit code 77 is neither green nor red; the last printed line says what is missing."""
    sides = [side(code=0) for _ in row.commands(teeth=False)]
    sides[-1] = side({}, code=77, tail="compute-sanitizer: not found\n")
    made = verbs.outcome(row, seen("c", *sides), teeth=False)
    assert made.colour is Colour.UNOBTAINABLE
    assert made.where == f"side {len(sides)}: compute-sanitizer: not found"


def test_a_side_that_fails_is_red_though_another_is_unobtainable() -> None:
    """What was seen to be wrong is not excused by what could not be seen."""
    crashed = side({}, code=-11, tail="Segmentation fault")
    made = verbs.outcome(check(), seen("c", side({}, code=77), crashed), teeth=False)
    assert made.colour is Colour.RED
    assert made.where == "side 2: ended with exit code -11: Segmentation fault"


THREE = dataclasses.replace(REFUSES, refuses=REFUSES.refuses * 3)
TAKEN = side(tail="taken")


def test_a_run_that_stops_is_red_where_it_stopped() -> None:
    """One case that is not as promised is enough, and so is one side that failed."""
    made = verbs.outcome(THREE, seen("c", REFUSED, TAKEN), teeth=False, stops=True)
    assert (made.colour, made.differing) == (Colour.RED, 1)
    assert made.where == verbs.outcome(THREE, seen("c", REFUSED, TAKEN, REFUSED), teeth=False).where
    crashed = side({}, code=-11, tail="Segmentation fault")
    assert verbs.outcome(check(), seen("c", crashed), teeth=False, stops=True).colour is Colour.RED


@pytest.mark.parametrize(
    "job",
    [
        seen("c", REFUSED),
        seen("c", REFUSED, REFUSED),
        seen("c", TAKEN, REFUSED),
        seen("c", side({}, code=77)),
        JobSeen(id="c", sides=()),
        seen("c", REFUSED, side(argv=("true",))),
    ],
)
def test_a_run_stops_nowhere_else(job: JobSeen) -> None:
    """Not after a case that is right or could not be obtained, not one later, not at once, not with another command."""
    with pytest.raises(ValueError, match=r"where the plan has 3|another command"):
        verbs.outcome(THREE, job, teeth=False, stops=True)


def test_a_run_that_must_not_stop_has_all_its_sides() -> None:
    """Red or not."""
    with pytest.raises(ValueError, match="2 sides where the plan has 3"):
        verbs.outcome(THREE, seen("c", REFUSED, TAKEN), teeth=False)


CONTRADICTIONS: dict[str, tuple[Check, Callable[[], JobSeen], str]] = {
    "a side less than planned": (check(), lambda: seen("c", side()), "1 sides where the plan has 2"),
    "a side more than planned": (REFUSES, lambda: seen("c", REFUSED, REFUSED), "2 sides where the plan has 1"),
    "other digests, no difference": (check(), lambda: seen("c", side(), side({"out.f32": b"1"})), "contradict"),
    "equal digests, a difference": (
        check(),
        lambda: seen("c", differences=(Difference("bytes", "out.f32", "out.f32 at 0"),)),
        "contradict",
    ),
    "another command than planned": (check(), lambda: seen("c", side(), side(argv=("true",))), "command"),
}


def test_the_teeth_form_is_another_command() -> None:
    """Evidence of a short run does not stand for a whole one, nor the other way round."""
    row = check(teeth=("--rows", "2"))
    short = seen("c", *[side(argv=argv) for argv in row.commands(teeth=True)])
    assert verbs.outcome(row, short, teeth=True).colour is Colour.GREEN
    with pytest.raises(ValueError, match="another command"):
        verbs.outcome(row, short, teeth=False)
    with pytest.raises(ValueError, match="another command"):
        verbs.outcome(row, seen("c"), teeth=True)


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_evidence_that_contradicts_itself_is_no_evidence(case: str) -> None:
    """Neither green nor red: ValueError."""
    row, job, says = CONTRADICTIONS[case]
    with pytest.raises(ValueError, match=says):
        verbs.outcome(row, job(), teeth=False)


def test_minus_zero_is_not_zero_and_a_nan_is_red_even_where_it_is_the_same(tmp_path: Path) -> None:
    """From real files: bytes decide, and bits are promised for finite values alone."""
    zero, minus, nan = b"\x00\x00\x00\x00", b"\x00\x00\x00\x80", b"\x00\x00\xc0\x7f"
    for name, left, right in (("zeros", zero, minus), ("nan", nan, nan)):
        folders = [tmp_path / name / side for side in ("0", "1")]
        for folder, data in zip(folders, (left, right), strict=True):
            folder.mkdir(parents=True)
            (folder / "x.f32").write_bytes(zero + data)
        differences = outputs.compare(folders) + outputs.not_finite(folders[0])
        sides = [side({"x.f32": zero + data}) for data in (left, right)]
        made = verbs.outcome(check(), seen("c", *sides, differences=differences), teeth=False)
        assert made.colour is Colour.RED
        assert made.where is not None and made.where.startswith("x.f32 at 1: ")


def test_the_listing_is_of_names_digests_and_sizes() -> None:
    """The digest that a record keeps changes with each of the three, and with the number of files."""
    files = (File("a", "1" * 64, 3), File("b", "2" * 64, 5))
    made = verbs.listing_of(files)
    assert (made.files, made.bytes) == (2, 8)
    assert made.sha256 == canonical.sha256(canonical.dumps([["a", "1" * 64, 3], ["b", "2" * 64, 5]]))
    assert made.sha256 == outputs.listing_digest(files)
    others = [(files[0],), (files[0], File("c", "2" * 64, 5)), (files[0], File("b", "3" * 64, 5))]
    assert all(verbs.listing_of(other).sha256 != made.sha256 for other in others)
