"""protocol.py and verdict.py: which block may land, what is run, and what a plan and its evidence amount to."""

from __future__ import annotations

import dataclasses
import random
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from pipeline import protocol, verdict
from pipeline.claims import Artifact, Baseline, Digest, Input
from pipeline.errors import UsageError
from pipeline.proof import CANDIDATE, Evidence, FigureSeen, JobSeen, Plan, PlannedMutant
from pipeline.records import Promote, Record, Result
from pipeline.subject import Block, Check, Subject, Target
from tests import drawn

CPU, GPU = "cpu", "gpu"


def target(name: str = CPU) -> Target:
    """A target of that name."""
    return Target(name, "adder.so", ("make",), None, 10_000, "bytes", (), (), False)


def block(name: str, **changes: Any) -> Block:
    """A block on both targets."""
    return dataclasses.replace(Block(name, name, (), (), "regression", (), (CPU, GPU)), **changes)


def subject(*checks: Check, blocks: Sequence[Block] = (), targets: Sequence[str] = (CPU, GPU)) -> Subject:
    """A subject of three blocks."""
    return Subject(
        folder="adder",
        name="adder",
        sources=("*.c",),
        tools=("*.py",),
        alpha_ppm=50_000,
        refusal_code=5,
        targets=tuple(map(target, targets)),
        blocks=tuple(blocks) or (block("one"), block("two"), block("three")),
        checks=checks,
        mutants=(),
        benches=(),
        figures=(),
        inputs=(),
    )


def book(*words: str) -> tuple[Record, ...]:
    """A ledger drawn as words: `attempt`, `landed`, `refused`, `promote`, `void N`; `two@gpu`: block and target."""
    made: list[Record] = []
    for i, text in enumerate(words, start=1):
        kind, *rest = text.split()
        about = int(rest.pop(0)) if rest and rest[0].isdigit() else i - 1
        name, _, on = (rest[0] if rest else "one").partition("@")
        common = {"sequence": i, "block": name, "target": on or CPU}
        made.append(
            drawn.attempt(**common)
            if kind == "attempt"
            else drawn.promote(result=about, **common)
            if kind == "promote"
            else drawn.void(voids=about, **common)
            if kind == "void"
            else drawn.result(attempt=about, verdict=kind, **common)
        )
    return tuple(made)


def choose(whole: Subject, words: tuple[str, ...], asked: str | None) -> protocol.Step:
    """The step that may be taken from what the words draw."""
    ledger = book(*words)
    return protocol.choose(whole, target(), ledger, protocol.start(ledger, CPU), asked)


LANDED_ONE = ("attempt one", "landed one", "promote one")
LANDED_TWO = (*LANDED_ONE, "attempt two", "landed two", "promote two")
LANDED_THREE = (*LANDED_TWO, "attempt three", "landed three", "promote three")


@pytest.mark.parametrize(
    ("words", "asked", "step"),
    [
        ((), None, "one r0"),
        ((), "one", "one r0"),
        (LANDED_ONE, None, "two r0"),
        (LANDED_ONE, "two", "two r0"),
        (LANDED_ONE, "one", "one r1"),
        (LANDED_TWO, None, "three r0"),
        (LANDED_THREE, None, "three r1"),
        ((*LANDED_ONE, "attempt one", "landed one", "promote one"), "one", "one r2"),
        (("attempt one", "refused one"), None, "one r0"),
        ((*LANDED_ONE, "attempt two@gpu", "refused two@gpu"), None, "two r0"),
        (LANDED_ONE[:2], None, "one r0"),  # landed and not promoted is not a position
        ((*LANDED_ONE, "attempt two"), None, "three r0"),  # a kit may carry several blocks in a row
        ((*LANDED_ONE, "attempt two"), "two", "two r0"),
    ],
)
def test_the_next_block_or_the_same_one_may_land(words: tuple[str, ...], asked: str | None, step: str) -> None:
    """After the newest promote, or after an attempt that is still open; the same block again is a revision."""
    made = choose(subject(), words, asked)
    assert f"{made.block.name} r{made.revision}" == step


@pytest.mark.parametrize(
    ("words", "asked", "says"),
    [
        ((), "two", "block two: is out of order: nothing has landed on cpu yet; land one"),
        (LANDED_ONE, "three", "block three: is out of order: cpu stands at one; land one or two"),
        (LANDED_TWO, "one", "block one: is out of order: cpu stands at two; land two or three"),
        ((), "tow", "block tow: there is no such block; did you mean two"),
        ((), "../one", "there is no such block"),
        (("attempt one@gpu", "landed one@gpu", "promote one@gpu"), "two", "nothing has landed on cpu yet"),
        (("attempt x", "landed x", "promote x"), None, "block x, at which cpu stands, is gone; bring it back"),
    ],
)
def test_a_block_out_of_order_is_refused_with_what_may_land(words: tuple[str, ...], asked: str, says: str) -> None:
    """Exit code 2, and one line that names the way on."""
    with pytest.raises(UsageError) as caught:
        choose(subject(), words, asked)
    assert says in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_block_lands_only_on_its_targets() -> None:
    """A lane skips what is not meant for it."""
    rows = (block("one"), block("two", targets=(GPU,)), block("three"))
    made = choose(subject(blocks=rows), LANDED_ONE, None)
    assert made.block.name == "three"
    with pytest.raises(UsageError, match="block two: is out of order"):
        choose(subject(blocks=rows), LANDED_ONE, "two")


def test_the_ledger_says_what_is_open_and_what_stands() -> None:
    """A result or a void closes an attempt; a promote record alone makes a position."""
    ledger = book(*LANDED_ONE, "attempt two", "void 4 two", "attempt two@gpu", "attempt two", "landed 7 two")
    assert protocol.standing(ledger, CPU) == ledger[2]
    assert protocol.standing(ledger, GPU) is None
    assert protocol.open_attempts(ledger, CPU) == ()
    assert protocol.open_attempts(ledger, GPU) == (ledger[5],)
    assert protocol.open_attempts(ledger[:4], CPU) == (ledger[3],)
    assert protocol.start(ledger, CPU) == ledger[2]
    assert protocol.start(ledger[:4], CPU) == ledger[3]
    assert protocol.start(ledger[:2], CPU) is None
    assert protocol.result_about(ledger, 7) == ledger[7]
    assert protocol.result_about(ledger, 4) is None
    assert protocol.unpromoted(ledger, CPU) == ledger[7]
    assert protocol.unpromoted(ledger[:7], CPU) is None
    assert protocol.unpromoted(book(*LANDED_ONE, "attempt two", "landed two", "void 5 two"), CPU) is None
    assert protocol.result_of(ledger, ledger[2]) == ledger[1]  # type: ignore[arg-type]


def test_one_pass_tells_where_every_record_found_its_target() -> None:
    """Drawn ledgers, also with answers to what is not open or comes later: as if it were asked before each record."""
    drawn_by = random.Random(7)
    for _ in range(60):
        words = []
        for _ in range(drawn_by.randrange(1, 25)):
            kind = drawn_by.choice(("attempt", "landed", "refused", "promote", "void"))
            about = f" {drawn_by.randrange(1, 26)}" if kind != "attempt" else ""
            words.append(f"{kind}{about} {drawn_by.choice(('one', 'two'))}@{drawn_by.choice((CPU, GPU))}")
        ledger = book(*words)
        for record, at in zip(ledger, protocol.stood(ledger), strict=True):
            before = ledger[: record.sequence - 1]
            assert at.here == protocol.start(before, record.target)
            assert at.revision == protocol.revision(before, record.target, record.block)


def test_an_attempt_stands_while_the_target_does() -> None:
    """At its baseline, or at what that attempt has landed as; not once another was promoted in between."""
    first = Baseline(sequence=3, sha256=drawn.AFTER)
    ledger = list(book(*LANDED_ONE, "attempt two", "attempt three"))
    ledger[3] = dataclasses.replace(ledger[3], baseline=first)  # type: ignore[type-var]
    ledger[4] = dataclasses.replace(ledger[4], baseline=Baseline(sequence=4, sha256=drawn.AFTER))  # type: ignore[type-var]
    assert protocol.stands_on(ledger, ledger[3])  # type: ignore[arg-type]
    assert not protocol.stands_on(ledger, ledger[4])  # type: ignore[arg-type]
    landed = drawn.result(sequence=6, block="two", attempt=4)
    after = [*ledger, landed, drawn.promote(sequence=7, block="two", result=6)]
    assert protocol.stands_on(after, ledger[4])  # type: ignore[arg-type]
    assert not protocol.stands_on(after, ledger[3])  # type: ignore[arg-type]
    assert protocol.stands_on((), dataclasses.replace(ledger[3], baseline=None))  # type: ignore[arg-type,type-var]
    assert not protocol.stands_on((), ledger[3])  # type: ignore[arg-type]


def test_a_comparison_with_the_baseline_needs_another_artifact() -> None:
    """Without a baseline, or against itself, it would compare a thing with itself."""
    old = drawn.check("old", sides=(drawn.OLD_DUMP, drawn.DUMP))
    refusing = drawn.check("shut", "refuses")
    whole = subject(drawn.check(), old, refusing)
    assert [protocol.compares_with_baseline(check) for check in whole.checks] == [False, True, False]
    assert [c.id for c in protocol.applicable(whole, target(), block("one"), baseline=True)] == ["twice", "old", "shut"]
    assert [c.id for c in protocol.applicable(whole, target(), block("one"), baseline=False)] == ["twice", "shut"]


def test_a_check_runs_from_since_until_until_and_not_where_its_block_changes_it() -> None:
    """What a block says that it changes is not held against it, for that block alone."""
    rows = (block("one"), block("two", changes=("late",)), block("three"))
    whole = subject(drawn.check("early", until="two"), drawn.check("late", since="one"), blocks=rows)
    seen = [[c.id for c in protocol.applicable(whole, target(), row, baseline=True)] for row in rows]
    assert seen == [["early", "late"], [], ["late"]]


def _proved(ledger: Sequence[Record], **changes: Any) -> dict[str, int]:
    row: dict[str, Any] = {"artifact": drawn.AFTER, "tools": "2" * 64, "when": {}, "identity": True}
    checks = changes.pop("checks", (drawn.check(),))
    return protocol.proved(checks, ledger, target=CPU, **row | changes)


def test_a_landed_record_proves_a_check_for_the_very_same_artifact_tools_and_command() -> None:
    """And for nothing else: another artifact, other tools, another command, another target."""
    ledger = book(*LANDED_ONE)
    assert _proved(ledger) == {"twice": 2}
    assert _proved(ledger, identity=False) == {}
    assert _proved(ledger, artifact=drawn.BEFORE) == {}
    assert _proved(ledger, tools="3" * 64) == {}
    assert _proved(ledger, checks=(drawn.check(sides=(drawn.DUMP, (*drawn.DUMP, "-v"))),)) == {}
    assert _proved(ledger, checks=(drawn.check("other"),)) == {}
    assert _proved(book("attempt one@gpu", "landed one@gpu")) == {}


@pytest.mark.parametrize("word", ["refused", "inconclusive"])
def test_a_green_check_of_a_record_that_did_not_land_proves_nothing(word: str) -> None:
    """Its counterproofs may have been missed, or never run: else a refused tree would land when it is tried again."""
    assert _proved(book("attempt one", f"{word} one")) == {}


def test_a_result_that_was_voided_proves_nothing() -> None:
    """A correction takes the proof back too."""
    assert _proved(book(*LANDED_ONE, "void 2 one")) == {}


def test_a_proof_names_the_record_in_which_the_check_ran() -> None:
    """Not the one that only referred to it; of several, the newest."""
    ledger = book(*LANDED_ONE, "attempt one", "landed one", "promote one")
    again = dataclasses.replace(ledger[4], checks=(drawn.proved(green_in=2),))  # type: ignore[type-var]
    assert _proved((*ledger[:4], again, ledger[5])) == {"twice": 2}
    assert _proved(ledger) == {"twice": 5}


def test_a_check_with_when_is_proved_for_its_own_files() -> None:
    """Whatever the artifact is, as long as the digest of what it depends on is the same."""
    mark = Input(name="when", origin="files that this check depends on", digest="5" * 64)
    row = drawn.result(sequence=2, verdict="landed", checks=(drawn.proved(inputs=(mark,)),))
    ledger = (book("attempt one")[0], row)
    other = {"artifact": drawn.BEFORE, "identity": False}
    assert _proved(ledger, when={"twice": "5" * 64}, **other) == {"twice": 2}
    assert _proved(ledger, when={"twice": "6" * 64}, **other) == {}
    assert _proved(ledger, **other) == {}


def test_a_check_that_disappears_is_noticed() -> None:
    """One that the baseline's record holds may end with `until` alone."""
    ledger = book(*LANDED_ONE)
    assert protocol.dropped(subject(drawn.check()), target(), block("two"), ledger) == ()
    assert protocol.dropped(subject(), target(), block("two"), ledger) == ("twice",)
    assert protocol.dropped(subject(), target(), block("one"), ()) == ()
    ended = subject(drawn.check(until="two"))
    assert protocol.dropped(ended, target(), block("two"), ledger) == ()
    assert protocol.dropped(ended, target(), block("one"), ledger) == ()
    moved = subject(drawn.check(targets=(GPU,)))
    assert protocol.dropped(moved, target(), block("two"), ledger) == ("twice",)


def test_a_landing_that_kept_its_bytes_hides_no_check_of_the_one_before() -> None:
    """Its record has no comparison with the baseline, which is owed again by the next."""
    ledger = list(book(*LANDED_ONE, "attempt one", "landed one", "promote one"))
    ledger[1] = dataclasses.replace(ledger[1], checks=(drawn.proved(), drawn.proved(id="old")))  # type: ignore[type-var]
    same = Baseline(sequence=3, sha256=drawn.AFTER)
    ledger[4] = dataclasses.replace(ledger[4], baseline=same)  # type: ignore[type-var]
    assert protocol.dropped(subject(drawn.check()), target(), block("two"), ledger) == ("old",)
    ledger[4] = dataclasses.replace(ledger[4], baseline=Baseline(sequence=3, sha256=drawn.BEFORE))  # type: ignore[type-var]
    assert protocol.dropped(subject(drawn.check()), target(), block("two"), ledger) == ()


MUTANTS = (
    PlannedMutant(name="wrong", neutral=False, caught_by=("twice",)),
    PlannedMutant(name="bent", neutral=False, caught_by=("twice", "other")),
    PlannedMutant(name="renamed", neutral=True, caught_by=()),
    PlannedMutant(name="unbuilt", neutral=False, caught_by=("twice",), set_up="does not build"),
)


@pytest.mark.parametrize(
    ("green", "short", "jobs"),
    [
        ({}, False, "twice other twice@wrong! twice@bent! other@bent! twice@renamed! other@renamed!"),
        ({"twice": 2}, False, "other other@bent! other@renamed!"),
        ({"twice": 2, "other": 2}, False, ""),
        ({"twice": 2, "other": 2}, True, "twice! other!"),
        ({"twice": 2}, True, "twice! other other@bent! other@renamed!"),
    ],
)
def test_what_is_run(green: dict[str, int], short: bool, jobs: str) -> None:
    """Checks on the candidate, mutants against what must catch them, neutral ones against all; `!`: the teeth form."""
    checks = (drawn.check(), drawn.check("other"))
    made = protocol.plan_jobs(checks, MUTANTS, green=green, short=short)
    assert " ".join(job.id + "!" * job.teeth for job in made) == jobs
    assert all((job.of, job.tree) == (job.of, job.of) and (job.of == CANDIDATE) == ("@" not in job.id) for job in made)


TWO = (drawn.check(), drawn.check("other"))
LOST = drawn.seen("other", drawn.side({}, code=77, tail="sanitizer: not found"), drawn.side())
UNCAUGHT = drawn.seen("twice@wrong")
SEEN_RED = drawn.red("twice@renamed", "Illegal instruction")
TIMED = {"benches": (drawn.bench(),)}

# name: changes of the plan, changes of what was seen, drawn samples, verdict, a word of the first reason
VERDICTS: dict[str, tuple[dict[str, Any], dict[str, JobSeen], str, str, str]] = {
    "all green": (
        {},
        {},
        "",
        "landed",
        "1 of 1 checks green in this run, 1 counterproofs caught, 1 neutral runs green",
    ),
    "a red check": ({}, {"twice": drawn.red("twice")}, "", "refused", "check twice: side 2: ended with exit code -11"),
    "a check that is lost": (
        {"checks": TWO},
        {"other": LOST},
        "",
        "inconclusive",
        "check other: could not be obtained",
    ),
    "red and lost": (
        {"checks": TWO},
        {"other": LOST, "twice": drawn.red("twice")},
        "",
        "refused",
        "check twice: side 2",
    ),
    "a mutant missed": (
        {},
        {"twice_at_wrong": UNCAUGHT},
        "",
        "refused",
        "mutant wrong: not caught by twice: it saw nothing",
    ),
    "a mutant lost": (
        {},
        {"twice_at_wrong": drawn.seen("twice@wrong", *[drawn.side({}, code=77)] * 2)},
        "",
        "refused",
        "mutant wrong: not caught by twice",
    ),
    "a neutral one red": (
        {},
        {"twice_at_renamed": SEEN_RED},
        "",
        "refused",
        "mutant renamed: is neutral, and yet red under twice",
    ),
    "a mutant unbuilt": (
        {"mutants": (dataclasses.replace(MUTANTS[3], set_up="its artifact equals the candidate's"),)},
        {},
        "",
        "refused",
        "mutant unbuilt: could not be planted for twice: its artifact equals the candidate's",
    ),
    "a neutral one unbuilt": (
        {"mutants": (dataclasses.replace(MUTANTS[2], set_up="find occurs 0 times"),)},
        {},
        "",
        "refused",
        "mutant renamed: is neutral, and could not be planted: find occurs 0 times",
    ),
    "a check dropped": ({"dropped": ("old",)}, {}, "", "refused", "check old: the baseline's record holds it"),
    "slower": (TIMED, {}, "+" * 13, "refused", "step:sum: regression"),
    "faster": (TIMED, {}, "-" * 13, "landed", "1 of 1 checks green"),
    "inside": (TIMED, {}, "+-" * 6 + "+", "landed", "1 of 1 checks green"),
    "a coarse timer": (TIMED, {}, "0" * 13, "landed", "1 of 1 checks green"),
    "too few pairs": ({"benches": (drawn.bench(pairs=3),)}, {}, "+++", "landed", "1 of 1 checks green"),
    "no gain where one is owed": (
        {**TIMED, "gate": "improvement"},
        {},
        "+-" * 6 + "+",
        "refused",
        "the block's purpose",
    ),
    "a tie where a gain is owed": ({**TIMED, "gate": "improvement"}, {}, "0" * 13, "refused", "the block's purpose"),
    "a gain where one is owed": ({**TIMED, "gate": "improvement"}, {}, "-" * 13, "landed", "1 of 1 checks green"),
    "no bench where a gain is owed": ({"gate": "improvement"}, {}, "", "refused", "the block's purpose is speed"),
    "the first landing": ({"baseline": None}, {}, "", "landed", "1 of 1 checks green"),
    "the same bytes": ({"identity": True}, {}, "", "landed", "1 of 1 checks green"),
    "all proved before": (
        {"green": {"twice": 2}, "identity": True},
        {},
        "",
        "landed",
        "0 of 1 checks green in this run",
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_plan_and_its_evidence_have_one_verdict(name: str) -> None:
    """The table of verdicts; the first reason says why."""
    changes, jobs, signs, word, reason = VERDICTS[name]
    plan = drawn.plan(**changes)
    made = protocol.judge(plan, drawn.evidence(plan, samples=drawn.samples(plan, signs), **jobs))
    assert made.verdict == word
    assert made.reasons[0].startswith(reason)


def test_a_verdict_says_what_speaks_for_it() -> None:
    """Proofs that stand in earlier records, bytes that were kept, the first landing, each timing in its sentence."""
    plan = drawn.plan(green={"twice": 2}, identity=True)
    assert protocol.judge(plan, drawn.evidence(plan)).reasons[1:] == (
        "proved before for this artifact, tools and command: twice (#2)",
        "the artifact keeps its bytes: no timing verdict, and no comparison with the baseline, is owed",
    )
    plan = drawn.plan(baseline=None)
    said = protocol.judge(plan, drawn.evidence(plan)).reasons
    assert said[1] == "the first landing on this target: there is nothing to time against"
    plan = drawn.plan(**TIMED)
    said = protocol.judge(plan, drawn.evidence(plan, samples=drawn.samples(plan, "+-" * 6 + "+"))).reasons
    assert said[-1].startswith("step:sum: inside the noise band: 7 of 13 slower")


def test_every_check_is_in_the_record_with_its_command_inputs_outputs_and_counterproofs() -> None:
    """One that an earlier record proved names that record, and claims no output of its own."""
    plan = drawn.plan(checks=TWO, green={"other": 2})
    twice, other = protocol.judge(plan, drawn.evidence(plan)).checks
    assert twice.argv == (drawn.DUMP, drawn.DUMP)
    assert twice.inputs == plan.reads(drawn.DUMP, of=CANDIDATE, tree=CANDIDATE)
    assert twice.outputs is not None and (twice.outputs.files, twice.outputs.bytes) == (1, 4)
    assert [(p.mutant, p.outcome, p.by) for p in twice.counterproofs] == [
        ("wrong", "caught", ("twice",)),
        ("renamed", "green", ()),
    ]
    assert (other.verdict, other.green_in, other.outputs, other.counterproofs) == ("green", 2, None, ())
    assert [i.name for i in other.inputs] == ["{candidate}"]


def test_figures_are_recorded_and_never_judged() -> None:
    """Their median stands with its samples, however bad it is."""
    plan = drawn.plan()
    rows = (FigureSeen(name="step", unit="us", values=(9, 1, 5)), FigureSeen(name="none", unit="us", values=()))
    made = protocol.judge(plan, dataclasses.replace(drawn.evidence(plan), figures=rows))
    assert made.verdict == "landed"
    assert [(f.name, f.value, f.n, f.samples) for f in made.figures] == [("step", 5, 3, (9, 1, 5))]


def _without(evidence: Evidence, job: str) -> Evidence:
    return dataclasses.replace(evidence, jobs=tuple(row for row in evidence.jobs if row.id != job))


def _fed(job: JobSeen) -> JobSeen:
    """The job as if the baseline had stood for the candidate: it would be compared with itself."""
    tree, candidate = job.sides[0].inputs
    other = dataclasses.replace(job.sides[0], inputs=(tree, dataclasses.replace(candidate, digest=drawn.BEFORE)))
    return dataclasses.replace(job, sides=(other, *job.sides[1:]))


NO_EVIDENCE = {
    "of another plan": (lambda p, e: dataclasses.replace(e, plan="0" * 64), "answers another plan"),
    "of the plan with another seed": (lambda p, e: drawn.evidence(dataclasses.replace(p, seed=8)), "another plan"),
    "a job lost": (lambda p, e: _without(e, "twice@renamed"), "exactly the jobs"),
    "no job": (lambda p, e: dataclasses.replace(e, jobs=()), "exactly the jobs"),
    "a job more": (lambda p, e: dataclasses.replace(e, jobs=(*e.jobs, e.jobs[0])), "exactly the jobs"),
    "another order": (lambda p, e: dataclasses.replace(e, jobs=e.jobs[::-1]), "exactly the jobs"),
    "green, and no counterproof": (lambda p, e: dataclasses.replace(e, jobs=e.jobs[:1]), "lacks the counterproofs"),
    "a job that was fed another artifact": (
        lambda p, e: dataclasses.replace(e, jobs=(_fed(e.jobs[0]), *e.jobs[1:])),
        "names other inputs than the plan's",
    ),
    "samples that nobody asked for": (
        lambda p, e: dataclasses.replace(e, samples=drawn.samples(drawn.plan(**TIMED), "+" * 13)),
        "samples are not the ones",
    ),
}


@pytest.mark.parametrize("name", NO_EVIDENCE)
def test_evidence_that_does_not_answer_the_plan_is_no_evidence(name: str) -> None:
    """Neither landed nor refused: ValueError."""
    change, says = NO_EVIDENCE[name]
    plan = drawn.plan()
    with pytest.raises(ValueError, match=says):
        protocol.judge(plan, change(plan, drawn.evidence(plan)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rules": 99}, "made under rules 99, which this pipeline does not know"),
        ({"needs": "gpu"}, "the plan needs a gpu, and the machine of the evidence names none"),
        ({"jobs": ()}, "check twice is neither run by the plan nor proved by an earlier record"),
    ],
)
def test_a_plan_that_cannot_be_judged_is_not(changes: dict[str, Any], says: str) -> None:
    """Unknown rules fail closed; so do missing hardware, and a check that nothing proves."""
    plan = drawn.plan(**changes)
    with pytest.raises(ValueError, match=says):
        protocol.judge(plan, drawn.evidence(plan))


def test_every_version_of_the_rules_is_kept() -> None:
    """The row of today's rules exists, and rules 1 are the module that decided the first records."""
    assert protocol.RULES in protocol.JUDGES
    assert protocol.JUDGES[1] is verdict.judge
    assert sorted(protocol.JUDGES) == list(range(1, protocol.RULES + 1))


def test_since_rules_5_a_mutants_run_ends_where_it_was_caught() -> None:
    """Before, and for the candidate always, evidence holds every side that the plan has."""
    check, crashed = drawn.check("twice"), drawn.side({}, code=-11, tail="Segmentation fault")
    mutant = drawn.PlannedMutant(name="wrong", neutral=False, caught_by=("twice",))
    neutral = drawn.PlannedMutant(name="renamed", neutral=True, caught_by=())
    plan = drawn.plan(checks=(check,), mutants=(mutant, neutral), rules=5)
    stopped = drawn.evidence(plan, twice_at_wrong=drawn.seen("twice@wrong", crashed))
    decision = protocol.judge(plan, stopped)
    assert (decision.verdict, decision.checks[0].counterproofs[0].outcome) == ("landed", "caught")
    for refused, changes in (("twice", {"rules": 5}), ("twice@wrong", {"rules": 4})):
        plan = drawn.plan(checks=(check,), mutants=(mutant, neutral), **changes)
        row = drawn.seen(refused, crashed)
        with pytest.raises(ValueError, match="1 sides where the plan has 2"):
            protocol.judge(plan, drawn.evidence(plan, **{refused.replace("@", "_at_"): row}))


def test_rules_1_still_say_what_they_said() -> None:
    """Plan and evidence of a stored kind, and the reasons to the letter: a change of these words breaks old records."""
    plan = drawn.plan(checks=TWO, benches=(drawn.bench(pairs=8),))
    evidence = drawn.evidence(plan, samples=drawn.samples(plan, "+++++++-"), twice_at_wrong=UNCAUGHT)
    assert protocol.judge(plan, evidence).reasons == (
        "mutant wrong: not caught by twice: it saw nothing",
        "step:sum: regression: 7 of 8 slower, +5.00 % (95 % interval -5.00 to +5.00), one-sided p = 0.0352; "
        "a confirmed regression; A/A control +0.00 %",
        "2 of 2 checks green in this run, 0 counterproofs caught, 2 neutral runs green",
    )


def test_judging_is_a_function_of_plan_and_evidence_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no clock, file, socket or process to be had it says the same, as often as it is asked."""
    plan: Plan = drawn.plan(**TIMED)
    evidence = drawn.evidence(plan, samples=drawn.samples(plan, "+-" * 6 + "+"))
    before = protocol.judge(plan, evidence)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("judging looked at the world")

    for name in ("builtins.open", "os.open", "os.stat", "os.getenv", "time.time", "time.monotonic", "subprocess.Popen"):
        monkeypatch.setattr(name, refused)
    monkeypatch.setattr(socket, "socket", refused)
    assert protocol.judge(plan, evidence) == protocol.judge(plan, evidence) == before


def test_a_result_and_a_promote_keep_their_types_in_a_drawn_ledger() -> None:
    """The drawing above means what it says."""
    ledger = book(*LANDED_ONE, "attempt two", "void 4 two")
    assert [type(record).__name__ for record in ledger] == ["Attempt", "Result", "Promote", "Attempt", "Void"]
    assert isinstance(ledger[1], Result) and isinstance(ledger[2], Promote)
    assert ledger[1].artifact == Artifact(name="adder.so", sha256=drawn.AFTER)
    assert ledger[1].source.tools == Digest(sha256="2" * 64)
