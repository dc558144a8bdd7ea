"""report.py: records as a terminal and as markdown; every number comes from the record, and nothing is left out."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline import claims, protocol, records, report
from pipeline.claims import Counterproof
from tests import drawn


def lines(text: str) -> list[list[str]]:
    """Words of each line."""
    return [line.split() for line in text.splitlines()]


def test_the_log_is_one_line_a_record() -> None:
    """Sequence, kind, target, block with its revision, artifact, bytes and growth, what it says."""
    book = (
        drawn.attempt(sequence=1),
        drawn.result(sequence=2, revision=1),
        drawn.promote(sequence=3),
        drawn.void(sequence=4, voids=1),
        drawn.result(sequence=5, verdict="refused", reasons=("check twice: side 2: it crashed",)),
    )
    head, attempt, result, promote, void, refused = report.log(book).splitlines()
    assert head.split() == ["#", "kind", "target", "block", "artifact", "bytes", "says"]
    assert attempt.split() == ["1", "attempt", "cpu", "two", "cccccccccccc", "two"]
    assert result.split("  ")[0] == "2"
    assert "two r1" in result
    assert "120 (+20)" in result
    assert result.endswith("landed: 1 of 1 checks green in this run")
    assert promote.endswith("on #5: two")
    assert void.endswith("voids #1: its samples are lost")
    assert refused.endswith("refused: check twice: side 2: it crashed")


def test_the_log_can_be_of_one_target() -> None:
    """And says so where there is nothing."""
    book = (drawn.attempt(sequence=1), drawn.attempt(sequence=2, target="gpu"))
    assert [row[0] for row in lines(report.log(book, target="gpu"))] == ["#", "2"]
    assert report.log(book, target="tpu") == "the ledger holds no record"
    assert report.log(()) == "the ledger holds no record"


@pytest.mark.parametrize("markdown", [False, True])
def test_a_result_is_shown_with_everything_that_a_reviewer_reads(markdown: bool) -> None:
    """Verdict and reasons, increment, checks and mutants, sizes, the timing sentence, figures, machine, limits."""
    text = report.show(drawn.result(sequence=5), markdown=markdown)
    for part in (
        "record 5: result of two on cpu",
        "LANDED",
        "1 of 1 checks green in this run",
        "1234567 add two",
        "twice",
        "wrong",
        "artifact: 100 -> 120 bytes (+20)",
        ".text: 10 -> 30 bytes (+20)",
        "old: gone, 4 bytes",
        "3 of 3 slower, +0.33 %, one-sided p = 0.125, n too small for any verdict; not a confirmed regression",
        "bandwidth  7       MB/s  3",
        "an abacus",
        "OMP_NUM_THREADS",
        "one thread",
        "{python} -m cc -o {out}/adder.so",
        "reproducible",
        "9" * 40,
        "8" * 40,
        "7" * 64,
        drawn.AFTER,
        f"record 3, {drawn.BEFORE}",
        "python -m pipeline land",
    ):
        assert part in text, part
    assert (text.count("```") == 2 * text.count("## ") > 0) == markdown


def test_every_kind_of_record_is_shown() -> None:
    """What it refers to, and why."""
    assert "on the ground of result 5" in report.show(drawn.promote(sequence=6))
    assert "voids record 4: its samples are lost (Ada)" in report.show(drawn.void(sequence=6))
    attempt = report.show(drawn.attempt(sequence=4, baseline=None))
    assert "none: the first landing" in attempt
    assert "evidence" not in attempt


def test_every_value_of_a_record_stands_in_what_is_shown() -> None:
    """Every digest and text of a result and an attempt is there, but for what a table counts instead."""
    record = drawn.result(sequence=5, previous="d" * 64)
    shown = report.show(record)
    counted = {"5" * 64, "4" * 64, "6" * 64}  # outputs, inputs and samples, which the table gives by number

    def texts(value: object) -> list[str]:
        if isinstance(value, str):
            return [value]
        if isinstance(value, dict):
            return [text for item in value.values() for text in texts(item)]
        if isinstance(value, (list, tuple)):
            return [text for item in value for text in texts(item)]
        return (
            [text for f in dataclasses.fields(value) for text in texts(getattr(value, f.name))]
            if dataclasses.is_dataclass(value)
            else []
        )

    from_checks = {text for check in record.checks for text in texts(check)} - {"twice", "same", "green", "wrong"}
    from_timing = {text for row in record.timing for text in texts(row)} - {"step:sum"}
    missing = [
        t for t in texts(record) if t.lower() not in shown.lower() and t not in counted | from_checks | from_timing
    ]
    assert missing == []


def test_a_check_is_one_line() -> None:
    """Verb, verdict or the record that proved it, files, bytes, counterproofs caught of those that must be, place."""
    red = drawn.proved(id="rows", verdict="red", where="M3/out.f32 row 2", counterproofs=())
    mutants = (
        Counterproof(mutant="a", outcome="caught", by=("twice",)),
        Counterproof(mutant="b", outcome="missed", by=("twice",)),
        Counterproof(mutant="c", outcome="set-up error", where="does not build"),
        Counterproof(mutant="d", outcome="green"),
    )
    earlier = drawn.proved(id="old", outputs=None, green_in=7, counterproofs=())
    table = lines(report.checks_table([drawn.proved(counterproofs=mutants), red, earlier]))
    assert table[1] == ["twice", "same", "green", "1", "4", "1", "of", "3"]
    assert table[2] == ["rows", "same", "red", "1", "4", "-", "M3/out.f32", "row", "2"]
    assert table[3] == ["old", "same", "green", "in", "#7", "-", "-", "-"]


def test_the_matrix_has_a_sign_for_every_outcome() -> None:
    """x caught, . missed, ! not planted, g neutral and green, R neutral and red, and a blank where nothing ran."""
    outcomes = ("caught", "missed", "set-up error", "green", "red")
    proofs = tuple(Counterproof(mutant=f"m{i}", outcome=outcome) for i, outcome in enumerate(outcomes))
    table = report.matrix(
        [drawn.proved(counterproofs=proofs), drawn.proved(id="bare", counterproofs=())], [f"m{i}" for i in range(6)]
    )
    assert lines(table) == [["mutant", "twice", "bare"], *([f"m{i}", sign] for i, sign in enumerate("x.!gR")), ["m5"]]


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (100, 120, "artifact: 100 -> 120 bytes (+20)"),
        (120, 100, "artifact: 120 -> 100 bytes (-20)"),
        (1000, 1000, "artifact: 1,000 -> 1,000 bytes (+0)"),
        (None, 2000, "artifact: new, 2,000 bytes"),
    ],
)
def test_growth_has_its_sign(before: int | None, after: int, line: str) -> None:
    """Before, after, and the difference, exactly."""
    sizes = claims.Sizes(artifact=(before, after), sections={}, kernels={}, host={})
    assert report.sizes_lines(sizes).splitlines()[0].strip() == line


def test_only_what_changed_is_listed_and_all_is_counted() -> None:
    """New, gone, larger and smaller parts by name; equal ones by their number and bytes alone."""
    sections = {".text": (10, 30), ".data": (5, 5), ".new": (None, 7), ".gone": (9, None)}
    made = report.sizes_lines(claims.Sizes(artifact=(1, 2), sections=sections, kernels={}, host={}))
    assert "  sections: 4, 42 bytes, 3 of another size" in made.splitlines()
    assert [line.strip() for line in made.splitlines() if line.startswith("    ")] == [
        ".gone: gone, 9 bytes",
        ".new: new, 7 bytes",
        ".text: 10 -> 30 bytes (+20)",
    ]


def test_a_decision_ends_in_its_reasons() -> None:
    """The table, the sizes where there are any, then every reason on a line of its own, in order."""
    plan = drawn.plan()
    made = protocol.judge(plan, drawn.evidence(plan, twice=drawn.red("twice")))
    text = report.decision(made, sizes=drawn.result().sizes)
    assert text.splitlines()[-len(made.reasons) :] == [f"  {reason}" for reason in made.reasons]
    assert "artifact: 100 -> 120 bytes (+20)" in text
    assert "artifact" not in report.decision(made)


def test_every_verdict_has_a_last_line() -> None:
    """The word first, in capitals, so that it can be found."""
    for word in records.VERDICTS:
        assert (
            report.verdict(word, block="two", target="cpu", rest="record 5") == f"{word.upper()}: two on cpu: record 5"
        )
    assert report.verdict("would land", block="two", target="cpu", rest="nothing was written").startswith(
        "WOULD LAND: "
    )
