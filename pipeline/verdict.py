"""Rules 1: a plan and the evidence that answers it, to a verdict with its reasons. Pure.

What is written here decided records that are permanent. Other rules are another module and another row of
`protocol.JUDGES`; this one is changed in nothing that a stored verdict depends on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline import claims, timing, verbs
from pipeline.claims import Counterproof, Input, Timing
from pipeline.errors import Inconclusive
from pipeline.proof import CANDIDATE, WHEN, Evidence, Job, JobSeen, Plan
from pipeline.subject import Check
from pipeline.verbs import Colour, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict with its reasons, and everything of it that a result record holds."""

    verdict: str
    reasons: tuple[str, ...]
    checks: tuple[claims.Check, ...]
    timing: tuple[Timing, ...]
    figures: tuple[claims.Figure, ...] = ()
    inputs: tuple[Input, ...] | None = None

    def require_obtained(self) -> None:
        """Raises Inconclusive for the first check that says that it cannot be run here."""
        for check in self.checks:
            if check.verdict == Colour.UNOBTAINABLE.value:
                todo = "run it where the tool or the device is that it needs"
                raise Inconclusive(f"check {check.id}", f"could not be obtained here: {check.where}", todo)


def judge(plan: Plan, evidence: Evidence) -> Decision:
    """The verdict by rules 1. Raises ValueError for evidence that lacks a job of the plan or contradicts itself."""
    ran = [seen.id for seen in evidence.jobs]
    if ran not in ([job.id for job in plan.jobs], [job.id for job in plan.jobs if job.of == CANDIDATE]):
        raise ValueError("the evidence does not hold exactly the jobs of the plan, in order")
    if plan.needs is not None and plan.needs not in evidence.machine:
        raise ValueError(f"the plan needs a {plan.needs}, and the machine of the evidence names none")
    jobs = {job.id: job for job in plan.jobs}
    outcomes = {seen.id: _outcome(plan, jobs[seen.id], seen) for seen in evidence.jobs}
    unproved = [c.id for c in plan.checks if c.id not in outcomes and c.id not in plan.green]
    if unproved:
        raise ValueError(f"check {unproved[0]} is neither run by the plan nor proved by an earlier record")
    counterproofs = {check.id: _counterproofs(plan, check, outcomes) for check in plan.checks}
    checks = tuple(_check(plan, check, evidence, outcomes, counterproofs[check.id]) for check in plan.checks)
    sound = all(check.verdict == Colour.GREEN.value for check in checks)
    if sound and len(ran) != len(plan.jobs):
        raise ValueError("the evidence lacks the counterproofs, and no check was red before them")
    timings = timing.judge(plan, evidence.samples) if sound else ()
    figures = tuple(
        claims.Figure(
            name=f.name, unit=f.unit, n=len(f.values), samples=f.values, value=sorted(f.values)[len(f.values) // 2]
        )
        for f in evidence.figures
        if f.values
    )
    against = _against(plan, checks, timings)
    lost = [
        f"check {c.id}: could not be obtained here: {c.where}" for c in checks if c.verdict == Colour.UNOBTAINABLE.value
    ]
    verdict = "refused" if against else "inconclusive" if lost else "landed"
    reasons = (*against, *lost, *_in_favour(plan, checks, timings))
    return Decision(verdict=verdict, reasons=reasons, checks=checks, timing=timings, figures=figures)


def _outcome(plan: Plan, job: Job, seen: JobSeen) -> Outcome:
    """The colour of one job. Raises ValueError unless it was fed the plan's own tree, artifacts and inputs."""
    made = verbs.outcome(plan.check(job.check), seen, teeth=job.teeth, stops=plan.stops(job))
    wanted = {side.argv: plan.reads(side.argv, of=job.of, tree=job.tree) for side in seen.sides}
    if any(side.inputs[: len(wanted[side.argv])] != wanted[side.argv] for side in seen.sides):
        raise ValueError(f"job {seen.id} names other inputs than the plan's")
    return made


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
    inputs = {(i.name, i.digest): i for side in (seen.sides if seen else ()) for i in side.inputs} or {
        ("", ""): candidate
    }
    if check.id in plan.when:
        inputs[WHEN, ""] = Input(name=WHEN, origin="files that this check depends on", digest=plan.when[check.id])
    return claims.Check(
        id=check.id,
        verb=check.verb,
        argv=check.commands(teeth=teeth),
        inputs=tuple(inputs[key] for key in sorted(inputs)),
        verdict=outcome.colour.value if outcome else Colour.GREEN.value,
        outputs=verbs.listed(seen) if seen else None,
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
    found += [
        f"mutant {m.name}: is neutral, and could not be planted: {m.set_up}"
        for m in plan.mutants
        if m.neutral and m.set_up
    ]
    found += [
        f"check {name}: the baseline's record holds it and this plan lacks it; end it with `until`"
        for name in plan.dropped
    ]
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
    said = [
        f"{len(ran)} of {len(checks)} checks green in this run, {caught} counterproofs caught, "
        f"{neutral} neutral runs green"
    ]
    if plan.green:
        on = (
            "with all that they depend on" if plan.rules >= timing.CORRECTED else "for this artifact, tools and command"
        )
        said.append(f"proved before {on}: " + ", ".join(f"{n} (#{s})" for n, s in sorted(plan.green.items())))
    if plan.identity:
        said.append("the artifact keeps its bytes: no timing verdict, and no comparison with the baseline, is owed")
    elif plan.baseline is None:
        said.append("the first landing on this target: there is nothing to time against")
    return said + [timing.sentence(t) for t in timings if t.verdict != timing.REGRESSION]
