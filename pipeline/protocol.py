"""The rules of landing, pure: which block may land next, what will be run, and what the evidence amounts to.

`judge` is a function of (plan, evidence) alone, so an auditor derives every verdict again from what is archived.
A change of its rules is a new row of `JUDGES`; old rows stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline import claims, timing, verbs
from pipeline.claims import Counterproof, Input, Timing
from pipeline.errors import UsageError
from pipeline.kit import CANDIDATE, Evidence, Job, Plan, PlannedMutant
from pipeline.records import Attempt, Promote, Record, Result, Void
from pipeline.subject import Block, Check, Subject, Target
from pipeline.verbs import Colour, Outcome

RULES: Final = 1
Argv = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a landing may do now: the block, and how often it has landed on this target before."""

    block: Block
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict with its reasons, and everything of it that a result record holds."""

    verdict: str
    reasons: tuple[str, ...]
    checks: tuple[claims.Check, ...]
    timing: tuple[Timing, ...]
    figures: tuple[claims.Figure, ...] = ()


def standing(ledger: Iterable[Record], target: str) -> Promote | None:
    """The newest promote of a target: its position, and the only artifact that may be current."""
    return next((r for r in reversed(list(ledger)) if isinstance(r, Promote) and r.target == target), None)


def result_of(ledger: Sequence[Record], promote: Promote) -> Result:
    """The result that a promote rests on. The ledger was read, so it is there."""
    result = ledger[promote.result - 1]
    assert isinstance(result, Result)
    return result


def open_attempt(ledger: Iterable[Record], target: str) -> Attempt | None:
    """The target's attempt that has neither a result nor a void."""
    ledger = list(ledger)
    closed = {r.attempt for r in ledger if isinstance(r, Result)} | {r.voids for r in ledger if isinstance(r, Void)}
    attempts = (r for r in ledger if isinstance(r, Attempt) and r.target == target and r.sequence not in closed)
    return next(attempts, None)


def unpromoted(ledger: Iterable[Record], target: str) -> Result | None:
    """The target's landed result whose promote a crash prevented."""
    ledger = list(ledger)
    done = {r.result for r in ledger if isinstance(r, Promote)} | {r.voids for r in ledger if isinstance(r, Void)}
    landed = (r for r in ledger if isinstance(r, Result) and r.target == target and r.verdict == "landed")
    return next((r for r in landed if r.sequence not in done), None)


def choose(subject: Subject, target: Target, ledger: Sequence[Record], asked: str | None) -> Step:
    """The block that this landing is about. Raises UsageError for a block out of order, naming what may land."""
    here = standing(ledger, target.name)
    blocks = [block.name for block in subject.blocks_of(target.name)]
    if here is not None and here.block not in blocks:
        raise UsageError(subject.where, f"block {here.block}, at which {target.name} stands, is gone", "bring it back")
    after = blocks[blocks.index(here.block) + 1 :] if here else blocks
    allowed = ([here.block] if here else []) + after[:1]
    name = subject.block(asked).name if asked else (after + allowed)[0]
    if name not in allowed:
        stands = f"{target.name} stands at {here.block}" if here else f"nothing has landed on {target.name} yet"
        raise UsageError(f"block {name}", f"is out of order: {stands}", f"land {' or '.join(allowed)}")
    revision = sum(1 for r in ledger if isinstance(r, Promote) and (r.target, r.block) == (target.name, name))
    return Step(block=subject.block(name), revision=revision)


def applicable(subject: Subject, target: Target, block: Block, *, baseline: bool) -> tuple[Check, ...]:
    """The checks of a plan. One that compares with the baseline needs one that is another artifact."""
    checks = subject.checks_at(target.name, block.name)
    return tuple(c for c in checks if c.id not in block.changes and (baseline or not compares_with_baseline(c)))


def compares_with_baseline(check: Check) -> bool:
    """True for a check one of whose sides runs the baseline."""
    return any("{baseline}" in word for argv in check.commands(teeth=False) for word in argv)


def green_records(ledger: Iterable[Record], *, target: str, artifact: str, tools: str) -> dict[tuple[str, Argv], int]:
    """(check, command) to the record that proved it green for this very artifact with these very tools."""
    results = [r for r in ledger if isinstance(r, Result) and r.target == target and r.artifact.sha256 == artifact]
    return {
        (check.id, check.argv): check.green_in or result.sequence
        for result in results
        if result.source.tools.sha256 == tools
        for check in result.checks
        if check.verdict == Colour.GREEN.value
    }


def proved_before(checks: Iterable[Check], ledger: Iterable[Record], *, target: str, artifact: str, tools: str) -> dict[str, int]:
    """Check to the record in which this very (artifact, tools, command) was green."""
    green = green_records(ledger, target=target, artifact=artifact, tools=tools)
    keyed = {check.id: (check.id, check.commands(teeth=False)) for check in checks}
    return {name: green[key] for name, key in keyed.items() if key in green}


def proved_when(checks: Iterable[Check], ledger: Sequence[Record], *, target: str, when: Mapping[str, str]) -> dict[str, int]:
    """The same for checks with `when`: green once for these very files, toolchain and command."""
    found: dict[str, int] = {}
    for result in (r for r in ledger if isinstance(r, Result) and r.target == target):
        for seen in result.checks:
            mark = next((i.digest for i in seen.inputs if i.name == "when"), None)
            asked = next((c for c in checks if c.id == seen.id), None)
            if mark and asked and seen.verdict == "green" and when.get(seen.id) == mark and seen.argv == asked.commands(teeth=False):
                found[seen.id] = seen.green_in or result.sequence
    return found


def dropped(subject: Subject, target: Target, block: Block, before: Result | None) -> tuple[str, ...]:
    """Checks that the baseline's record holds, that this plan lacks, and that the manifest did not end with `until`."""
    known = {check.id for check in subject.checks_at(target.name, block.name)}
    ended = {c.id for c in subject.checks if c.until is not None and subject.order(c.until) <= subject.order(block.name)}
    return tuple(check.id for check in (before.checks if before else ()) if check.id not in known | ended)


def plan_jobs(checks: Sequence[Check], mutants: Sequence[PlannedMutant], *, green: Mapping[str, int], short: bool) -> tuple[Job, ...]:
    """Every run of a plan: checks on the candidate, then each mutant against what must catch it, neutral ones against all.

    With `short` a check that is green already runs again in its teeth form; without it, such a check does not run.
    """
    run = [c for c in checks if short or c.id not in green]
    jobs = [Job(id=c.id, check=c.id, of=CANDIDATE, tree=CANDIDATE, teeth=short and c.id in green) for c in run]
    fresh = [c.id for c in run if c.id not in green]
    for mutant in mutants:
        if mutant.set_up is None:
            against = fresh if mutant.neutral else [name for name in mutant.caught_by if name in fresh]
            jobs += [Job(id=f"{c}@{mutant.name}", check=c, of=mutant.name, tree=mutant.name, teeth=True) for c in against]
    return tuple(jobs)


def judge(plan: Plan, evidence: Evidence) -> Decision:
    """The verdict. Raises ValueError when the evidence does not answer the plan or contradicts itself."""
    judge_by = JUDGES.get(plan.rules)
    if judge_by is None:
        raise ValueError(f"the plan was made under rules {plan.rules}, which this pipeline does not know")
    return judge_by(plan, evidence)


def _judge_1(plan: Plan, evidence: Evidence) -> Decision:
    ran = [seen.id for seen in evidence.jobs]
    if ran not in ([job.id for job in plan.jobs], [job.id for job in plan.jobs if job.of == CANDIDATE]):
        raise ValueError("the evidence does not hold exactly the jobs of the plan, in order")
    if plan.needs is not None and plan.needs not in evidence.machine:
        raise ValueError(f"the plan needs a {plan.needs}, and the machine of the evidence names none")
    jobs = {job.id: job for job in plan.jobs}
    outcomes = {
        seen.id: verbs.outcome(plan.check(jobs[seen.id].check), seen)
        for seen in evidence.jobs
    }
    counterproofs = {check.id: _counterproofs(plan, check, outcomes) for check in plan.checks}
    checks = tuple(_check(plan, check, evidence, outcomes, counterproofs[check.id]) for check in plan.checks)
    sound = all(check.verdict == Colour.GREEN.value for check in checks)
    if sound and len(ran) != len(plan.jobs):
        raise ValueError("the evidence lacks the counterproofs, and no check was red before them")
    timings = timing.judge(plan, evidence.samples) if sound else ()
    figures = tuple(
        claims.Figure(name=f.name, unit=f.unit, n=len(f.values), samples=f.values, value=sorted(f.values)[len(f.values) // 2])
        for f in evidence.figures
        if f.values
    )
    against = _against(plan, checks, timings)
    lost = [f"check {c.id}: could not be obtained here: {c.where}" for c in checks if c.verdict == Colour.UNOBTAINABLE.value]
    verdict = "refused" if against else "inconclusive" if lost else "landed"
    reasons = (*against, *lost, *_in_favour(plan, checks, timings))
    return Decision(verdict=verdict, reasons=reasons, checks=checks, timing=timings, figures=figures)


JUDGES: Final[Mapping[int, Callable[[Plan, Evidence], Decision]]] = {1: _judge_1}


def _counterproofs(plan: Plan, check: Check, outcomes: Mapping[str, Outcome]) -> tuple[Counterproof, ...]:
    made = []
    for mutant in plan.mutants:
        seen = outcomes.get(f"{check.id}@{mutant.name}")
        if mutant.set_up is not None and (check.id in mutant.caught_by):
            made.append(Counterproof(mutant=mutant.name, outcome="set-up error", where=mutant.set_up))
        elif seen is not None and mutant.neutral:
            outcome = "green" if seen.colour is Colour.GREEN else "red"
            made.append(Counterproof(mutant=mutant.name, outcome=outcome, where=seen.where))
        elif seen is not None:
            outcome = "caught" if seen.colour is Colour.RED else "missed"
            made.append(Counterproof(mutant=mutant.name, outcome=outcome, by=(check.id,), where=seen.where))
    return tuple(made)


def _check(
    plan: Plan, check: Check, evidence: Evidence, outcomes: Mapping[str, Outcome], proofs: tuple[Counterproof, ...]
) -> claims.Check:
    seen = next((s for s in evidence.jobs if s.id == check.id), None)
    outcome = outcomes.get(check.id)
    teeth = next((job.teeth for job in plan.jobs if job.id == check.id), False)
    candidate = Input(name="{candidate}", origin=plan.artifact, digest=plan.artifacts[CANDIDATE])
    inputs = {(i.name, i.digest): i for side in (seen.sides if seen else ()) for i in side.inputs} or {("", ""): candidate}
    if check.id in plan.when:
        inputs["when", ""] = Input(name="when", origin="files that this check depends on", digest=plan.when[check.id])
    return claims.Check(
        id=check.id,
        verb=check.verb,
        argv=check.commands(teeth=teeth),
        inputs=tuple(inputs[key] for key in sorted(inputs)),
        verdict=outcome.colour.value if outcome else Colour.GREEN.value,
        outputs=outcome.outputs if outcome else None,
        differing=outcome.differing if outcome else 0,
        where=outcome.where if outcome else None,
        green_in=plan.green.get(check.id),
        counterproofs=proofs,
    )


def _against(plan: Plan, checks: Sequence[claims.Check], timings: Sequence[Timing]) -> list[str]:
    """Every reason to refuse."""
    found = [f"check {c.id}: {c.where}" for c in checks if c.verdict == Colour.RED.value]
    found += [
        f"mutant {p.mutant}: {_COMPLAINTS[p.outcome]} {c.id}: {p.where or 'it saw nothing'}"
        for c in checks
        for p in c.counterproofs
        if p.outcome in _COMPLAINTS
    ]
    found += [f"mutant {m.name}: is neutral, and could not be planted: {m.set_up}" for m in plan.mutants if m.neutral and m.set_up]
    found += [f"check {name}: the baseline's record holds it and this plan lacks it; end it with `until`" for name in plan.dropped]
    found += [timing.sentence(t) for t in timings if t.verdict == timing.REGRESSION]
    if plan.gate == "improvement" and not any(t.verdict == timing.GAIN for t in timings):
        found.append("the block's purpose is speed, and no case shows a confirmed gain")
    return found


_COMPLAINTS: Final = {
    "missed": "not caught by",
    "red": "is neutral, and yet red under",
    "set-up error": "could not be planted for",
}


def _in_favour(plan: Plan, checks: Sequence[claims.Check], timings: Sequence[Timing]) -> list[str]:
    ran = [c for c in checks if c.verdict == Colour.GREEN.value and c.outputs is not None]
    proofs = [p for c in checks for p in c.counterproofs]
    caught = sum(p.outcome == "caught" for p in proofs)
    neutral = sum(p.outcome == "green" for p in proofs)
    said = [f"{len(ran)} of {len(checks)} checks green in this run, {caught} counterproofs caught, {neutral} neutral runs green"]
    if plan.green:
        said.append("proved before for this artifact, tools and command: " + ", ".join(f"{n} (#{s})" for n, s in sorted(plan.green.items())))
    if plan.identity:
        said.append("the artifact keeps its bytes: no timing verdict, and no comparison with the baseline, is owed")
    elif plan.baseline is None:
        said.append("the first landing on this target: there is nothing to time against")
    return said + [timing.sentence(t) for t in timings if t.verdict != timing.REGRESSION]
