"""Rules 2 and later: the same verdict as rules 1, and a record that says each thing once."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline import protocol, sizes, verdict
from pipeline.claims import Input
from pipeline.proof import Evidence, FigureSeen, JobSeen, Plan
from tests import drawn

TWO = (drawn.check(), drawn.check("other"))
WEIGHTS = Input(name="weights", origin="tiny, seed 1", digest="1" * 64)
ECHO = Input(name="artifact", origin="adder.so", digest=drawn.AFTER)
ALONE = Input(name="tokens", origin="the first 64", digest="2" * 64)


def _case(**inputs: tuple[Input, ...]) -> tuple[Plan, Evidence]:
    """Two checks under rules 2; `inputs` are what a check's commands added to what they were given."""
    plan = drawn.plan(checks=TWO, rules=2)
    evidence = drawn.evidence(plan)
    jobs = tuple(_added(job, inputs.get(job.id, ())) for job in evidence.jobs)
    return plan, dataclasses.replace(evidence, jobs=jobs)


def _added(job: JobSeen, rows: tuple[Input, ...]) -> JobSeen:
    return dataclasses.replace(
        job, sides=tuple(dataclasses.replace(side, inputs=(*side.inputs, *rows)) for side in job.sides)
    )


def test_an_input_of_several_checks_stands_once_and_each_check_still_names_all_that_it_read() -> None:
    """Own rows and those that `also` points at are what rules 1 would have written, without the tool's echo."""
    plan, evidence = _case(twice=(WEIGHTS, ECHO, ALONE), other=(WEIGHTS, ECHO))
    made, whole = protocol.judge(plan, evidence), verdict.judge(plan, evidence)
    assert made.inputs is not None
    assert [row.name for row in made.inputs] == ["tree", "weights"]
    for check, before in zip(made.checks, whole.checks, strict=True):
        said = {*check.inputs, *(made.inputs[place] for place in check.also or ())}
        assert said == {*before.inputs} - {ECHO}
    assert [[row.name for row in check.inputs] for check in made.checks] == [["tokens", "{candidate}"], ["{candidate}"]]


def test_rules_4_say_the_candidate_once() -> None:
    """Every check points at it."""
    plan, evidence = _case(twice=(WEIGHTS,), other=(WEIGHTS,))
    plan = dataclasses.replace(plan, rules=4)
    made = protocol.judge(plan, dataclasses.replace(drawn.evidence(plan), jobs=evidence.jobs))
    assert made.inputs is not None
    assert [row.name for row in made.inputs] == ["tree", "weights", "{candidate}"]
    assert [(check.inputs, check.also) for check in made.checks] == [((), (0, 1, 2))] * 2


def test_a_word_for_other_bytes_than_the_given_is_no_echo() -> None:
    """Only a row whose bytes a placeholder of the same check names is left out."""
    other = dataclasses.replace(ECHO, digest="3" * 64)
    plan, evidence = _case(twice=(other,))
    assert other in protocol.judge(plan, evidence).checks[0].inputs


@pytest.mark.parametrize(("values", "row"), [((9, 1, 5), (5, 3, 1, 9)), ((7,), (7, 1, None, None))])
def test_a_figure_keeps_n_and_range_and_leaves_its_samples_in_the_evidence(
    values: tuple[int, ...], row: tuple[int | None, ...]
) -> None:
    """The samples are archived with the evidence that the record names."""
    plan, evidence = _case()
    seen = (FigureSeen(name="step", unit="us", values=values),)
    (figure,) = protocol.judge(plan, dataclasses.replace(evidence, figures=seen)).figures
    assert (figure.value, figure.n, figure.low, figure.high) == row
    assert figure.samples == ()


def test_verdict_and_reasons_are_those_of_rules_1() -> None:
    """Green or red: only how it is said differs."""
    plan, evidence = _case()
    red = drawn.evidence(plan, twice=drawn.red("twice"))
    for seen in (evidence, red):
        made, whole = protocol.judge(plan, seen), verdict.judge(plan, seen)
        assert (made.verdict, made.reasons, made.timing) == (whole.verdict, whole.reasons, whole.timing)
    assert protocol.judge(plan, red).verdict == "refused"


@pytest.mark.parametrize(("rules", "letters"), [(3, 64), (4, 32)])
def test_later_rules_leave_out_the_green_of_neutral_mutants_and_cut_long_places(rules: int, letters: int) -> None:
    """A red neutral mutant, and one that was missed, stand as before; the reasons count those that are left out."""
    plan, evidence = _case()
    plan = dataclasses.replace(plan, rules=rules)
    long = drawn.seen("twice@wrong", drawn.side(), drawn.side(files={}, code=1, tail="x" * 100))
    evidence = drawn.evidence(plan, twice_at_wrong=long, other_at_renamed=drawn.red("other@renamed"))
    made, whole = protocol.judge(plan, evidence), verdict.judge(plan, evidence)
    assert (made.verdict, made.reasons) == (whole.verdict, whole.reasons)
    assert [(p.mutant, p.outcome) for check in made.checks for p in check.counterproofs] == [
        ("wrong", "caught"),
        ("renamed", "red"),
    ]
    assert made.checks[0].counterproofs[0].where == f"{whole.checks[0].counterproofs[0].where:.{letters}}..."
    assert made.checks[1].counterproofs[0].where == whole.checks[1].counterproofs[0].where


def test_rules_3_say_nothing_of_a_size_that_did_not_change() -> None:
    """And what they say of one that did stems from the sizes before, which an audit asks."""
    before = sizes.Sizes(100, host=(("a.py", 7), ("b.py", 9)))
    made = sizes.changes(before, sizes.Sizes(101, host=(("a.py", 7), ("b.py", 10))))
    assert sizes.told(made, rules=2) == made
    said = sizes.told(made, rules=3)
    assert (said.artifact, said.host) == ((100, 101), {"b.py": (9, 10)})
    assert sizes.stems_from(said, before)
    assert not sizes.stems_from(said, dataclasses.replace(before, host=(("a.py", 7), ("b.py", 8))))
    assert not sizes.stems_from(said, dataclasses.replace(before, artifact=99))
