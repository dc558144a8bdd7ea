"""The rules of landing, pure: which block may land next, what will be run, and what the evidence amounts to.

`judge` is a function of (plan, evidence) alone, so an auditor derives every verdict again from what is archived.
A change of its rules is a new row of `JUDGES`; old rows stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline import brief, canonical, verdict
from pipeline.claims import Baseline
from pipeline.errors import UsageError
from pipeline.proof import CANDIDATE, WHEN, Evidence, Job, Plan, PlannedMutant
from pipeline.records import Attempt, Promote, Record, Result, Void
from pipeline.subject import Bench, Block, Check, Figure, Mutant, Subject, Target
from pipeline.verbs import Colour
from pipeline.verdict import Decision

RULES: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a landing may do now: the block, and how often it has landed on this target before."""

    block: Block
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stood:
    """Where a record's target stood before it, as `start` says, and how often its block had landed there."""

    here: Promote | Attempt | None
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """What a landing must show, before anything of it is built or run for that."""

    baseline: Baseline | None
    identity: bool
    checks: tuple[Check, ...]
    green: Mapping[str, int]
    when: Mapping[str, str]
    mutants: tuple[Mutant, ...]
    dropped: tuple[str, ...]
    benches: tuple[Bench, ...]
    figures: tuple[Figure, ...]
    gate: str


def standing(ledger: Sequence[Record], target: str) -> Promote | None:
    """The newest promote of a target: its position, and the only artifact that may be current."""
    return next((r for r in reversed(ledger) if isinstance(r, Promote) and r.target == target), None)


def result_of(ledger: Sequence[Record], promote: Promote) -> Result:
    """The result that a promote rests on. The ledger was read, so it is there."""
    result = ledger[promote.result - 1]
    assert isinstance(result, Result)
    return result


def open_attempts(ledger: Sequence[Record], target: str) -> tuple[Attempt, ...]:
    """The target's attempts that have neither a result nor a void: several where a kit carries blocks in a row."""
    closed: set[int] = set()
    found: list[Attempt] = []
    for record in reversed(ledger):
        if isinstance(record, Result):
            closed.add(record.attempt)
        elif isinstance(record, Void):
            closed.add(record.voids)
        elif isinstance(record, Attempt) and record.target == target and record.sequence not in closed:
            found.append(record)
    return tuple(reversed(found))


def start(ledger: Sequence[Record], target: str) -> Promote | Attempt | None:
    """What the target's next attempt compares with: the last one that is still open, else the newest promote."""
    waiting = open_attempts(ledger, target)
    return waiting[-1] if waiting else standing(ledger, target)


def stood(ledger: Iterable[Record]) -> tuple[Stood, ...]:
    """Of every record: what `start` and `revision` give for the records before it, in one pass over all."""
    waiting: dict[int, Attempt] = {}
    newest: dict[str, Promote] = {}
    landed: Counter[tuple[str, str]] = Counter()
    made = []
    for record in ledger:
        last = next((a for a in reversed(waiting.values()) if a.target == record.target), None)
        here = last or newest.get(record.target)
        made.append(Stood(here=here, revision=landed[record.target, record.block]))
        if isinstance(record, Attempt):
            waiting[record.sequence] = record
        elif isinstance(record, Result):
            waiting.pop(record.attempt, None)
        elif isinstance(record, Void):
            waiting.pop(record.voids, None)
        elif isinstance(record, Promote):
            newest[record.target] = record
            landed[record.target, record.block] += 1
    return tuple(made)


def stands_on(ledger: Sequence[Record], attempt: Attempt) -> bool:
    """True while the target stands at what the attempt compares with, or at what that attempt landed as."""
    here = standing(ledger, attempt.target)
    if here is None or attempt.baseline is None:
        return here is None and attempt.baseline is None
    known = (here.sequence, result_of(ledger, here).attempt)
    return attempt.baseline.sequence in known and attempt.baseline.sha256 == here.artifact.sha256


def result_about(ledger: Iterable[Record], attempt: int) -> Result | None:
    """The result of an attempt, if it has one."""
    return next((r for r in ledger if isinstance(r, Result) and r.attempt == attempt), None)


def unpromoted(ledger: Iterable[Record], target: str) -> Result | None:
    """The target's landed result whose promote a crash prevented."""
    ledger = list(ledger)
    done = {r.result for r in ledger if isinstance(r, Promote)} | {r.voids for r in ledger if isinstance(r, Void)}
    landed = (r for r in ledger if isinstance(r, Result) and r.target == target and r.verdict == "landed")
    return next((r for r in landed if r.sequence not in done), None)


def choose(
    subject: Subject, target: Target, ledger: Sequence[Record], here: Promote | Attempt | None, asked: str | None
) -> Step:
    """The block that this landing is about. Raises UsageError for a block out of order, naming what may land."""
    blocks = [block.name for block in subject.blocks_of(target.name)]
    if here is not None and here.block not in blocks:
        raise UsageError(subject.where, f"block {here.block}, at which {target.name} stands, is gone", "bring it back")
    after = blocks[blocks.index(here.block) + 1 :] if here else blocks
    allowed = ([here.block] if here else []) + after[:1]
    name = subject.block(asked).name if asked is not None else (after + allowed)[0]
    if name not in allowed:
        stands = f"{target.name} stands at {here.block}" if here else f"nothing has landed on {target.name} yet"
        raise UsageError(f"block {name}", f"is out of order: {stands}", f"land {' or '.join(allowed)}")
    return Step(block=subject.block(name), revision=revision(ledger, target.name, name))


def revision(ledger: Iterable[Record], target: str, block: str) -> int:
    """How often a block has landed on a target."""
    return sum(1 for r in ledger if isinstance(r, Promote) and (r.target, r.block) == (target, block))


def applicable(subject: Subject, target: Target, block: Block, *, baseline: bool) -> tuple[Check, ...]:
    """The checks of a plan. One that compares with the baseline needs one that is another artifact."""
    checks = subject.checks_at(target.name, block.name)
    return tuple(c for c in checks if c.id not in block.changes and (baseline or not compares_with_baseline(c)))


def compares_with_baseline(check: Check) -> bool:
    """True for a check one of whose sides runs the baseline."""
    return any("{baseline}" in word for argv in check.commands(teeth=False) for word in argv)


def proved(
    checks: Sequence[Check],
    ledger: Sequence[Record],
    *,
    target: str,
    artifact: str,
    tools: str,
    when: Mapping[str, str],
    identity: bool,
) -> dict[str, int]:
    """Check to the record that proved this very statement, so that it need not run: none but a landed one proves.

    A check with `when` was proved for these files, toolchain and statement; any other, and only for an artifact that
    is the baseline byte for byte, for this artifact with these tools and this command.
    """
    commands = {check.id: check.commands(teeth=False) for check in checks}
    found: dict[str, int] = {}
    if not identity and not when:
        return found
    for result in _proofs(ledger, target):
        same = identity and (result.artifact.sha256, result.source.tools.sha256) == (artifact, tools)
        for seen in result.checks:
            mark = when.get(seen.id)  # few checks have one, and a ledger many rows of inputs
            marked = mark is not None and any((row.name, row.digest) == (WHEN, mark) for row in seen.inputs)
            if (same or marked) and seen.verdict == Colour.GREEN.value and seen.argv == commands.get(seen.id):
                found[seen.id] = seen.green_in or result.sequence
    return found


def dropped(subject: Subject, target: Target, block: Block, ledger: Sequence[Record]) -> tuple[str, ...]:
    """Checks that the baseline's record holds, that this plan lacks, and that the manifest did not end with `until`.

    An artifact that kept its bytes has a record without the comparisons with a baseline: the ones before count too.
    """
    held: dict[str, None] = {}
    here = standing(ledger, target.name)
    while here is not None:
        result = result_of(ledger, here)
        held |= dict.fromkeys(check.id for check in result.checks)
        kept = result.baseline is not None and result.baseline.sha256 == result.artifact.sha256
        here = standing(ledger[: here.sequence - 1], target.name) if kept else None
    known = {check.id for check in subject.checks_at(target.name, block.name)}
    ended = {
        c.id for c in subject.checks if c.until is not None and subject.order(c.until) <= subject.order(block.name)
    }
    return tuple(name for name in held if name not in known | ended)


def owed(
    subject: Subject,
    target: Target,
    block: Block,
    ledger: Sequence[Record],
    here: Promote | Attempt | None,
    *,
    artifact: str,
    tools: str,
    when: Mapping[str, str],
) -> Owed:
    """What a landing of this artifact must show against `here`, by its own manifest and the ledger before it."""
    identity = here is not None and here.artifact.sha256 == artifact
    apart = here is not None and not identity
    checks = applicable(subject, target, block, baseline=apart)
    green = proved(checks, ledger, target=target.name, artifact=artifact, tools=tools, when=when, identity=identity)
    return Owed(
        baseline=baseline_row(here),
        identity=identity,
        checks=checks,
        green=green,
        when={check.id: when[check.id] for check in checks if check.id in when},
        mutants=biting(subject.mutants_at(target.name, block.name), checks, green),
        dropped=dropped(subject, target, block, ledger),
        benches=subject.benches_at(target.name, block.name) if apart else (),
        figures=() if identity else subject.figures_at(target.name, block.name),
        gate=block.gate if apart and target.name in (block.faster_on or (target.name,)) else "regression",
    )


def biting(mutants: Iterable[Mutant], checks: Iterable[Check], green: Mapping[str, int]) -> tuple[Mutant, ...]:
    """The mutants that some check must be shown to catch in this run, and the neutral ones if any check runs."""
    fresh = {check.id for check in checks} - set(green)
    return tuple(mutant for mutant in mutants if fresh and (mutant.neutral or fresh & {*mutant.caught_by}))


def baseline_row(here: Promote | Attempt | None) -> Baseline | None:
    """How a plan and its records name the baseline."""
    return Baseline(sequence=here.sequence, sha256=here.artifact.sha256) if here else None


def plan_jobs(
    checks: Sequence[Check], mutants: Sequence[PlannedMutant], *, green: Mapping[str, int], short: bool
) -> tuple[Job, ...]:
    """Every run of a plan: checks on the candidate, mutants against what must catch them, neutral ones against all.

    With `short` a check that is green already runs again in its teeth form; without it, such a check does not run.
    """
    run = [c for c in checks if short or c.id not in green]
    jobs = [Job(id=c.id, check=c.id, of=CANDIDATE, tree=CANDIDATE, teeth=short and c.id in green) for c in run]
    fresh = [c.id for c in run if c.id not in green]
    for mutant in mutants:
        if mutant.set_up is None:
            against = fresh if mutant.neutral else [name for name in mutant.caught_by if name in fresh]
            jobs += [
                Job(id=f"{c}@{mutant.name}", check=c, of=mutant.name, tree=mutant.name, teeth=True) for c in against
            ]
    return tuple(jobs)


def judge(plan: Plan, evidence: Evidence, *, key: str | None = None) -> Decision:
    """The verdict. Raises ValueError when the evidence does not answer the plan or contradicts itself.

    `key` is the digest of the plan's bytes, where these were just read; else it is made of the plan.
    """
    judge_by = JUDGES.get(plan.rules)
    if evidence.plan != (key or canonical.sha256(plan.to_bytes())):
        raise ValueError("the evidence answers another plan")
    if judge_by is None:
        raise ValueError(f"the plan was made under rules {plan.rules}, which this pipeline does not know")
    return judge_by(plan, evidence)


JUDGES: Final[Mapping[int, Callable[[Plan, Evidence], Decision]]] = {
    1: verdict.judge,
    **dict.fromkeys(brief.RULES, brief.judge),
}


def _proofs(ledger: Sequence[Record], target: str) -> list[Result]:
    """The landed results of a target that no void has taken back, oldest first."""
    void = {record.voids for record in ledger if isinstance(record, Void)}
    results = (record for record in ledger if isinstance(record, Result) and record.sequence not in void)
    return [result for result in results if (result.target, result.verdict) == (target, "landed")]
