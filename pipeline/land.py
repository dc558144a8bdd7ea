"""The walk of `land`: one call a step, in the order of the protocol. No rule lives here; every step is safe to repeat.

After a crash anywhere the same command goes on: the ledger says how far the walk came, and the workspace of an
attempt, `.landing/NNNNNN/`, holds its kit and what its proof has seen so far.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline import durable, kit, ledger, machine, protocol, prove, registrar, report, stage, verify, views
from pipeline.baselines import CURRENT, PREVIOUS
from pipeline.errors import BaselineMismatch, EvidenceError, UsageError, Waiting
from pipeline.house import House, Say
from pipeline.kit import Kit
from pipeline.proof import Evidence, Plan
from pipeline.records import Attempt, Promote, Record, Result
from pipeline.source import Source
from pipeline.stage import Ask, Staged
from pipeline.subject import Target
from pipeline.verdict import Decision

CODES: Final = {"landed": 0, "refused": 1, "inconclusive": 5}
USAGE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a walk ended: exit code, the last line, and the record that it wrote, if any."""

    code: int
    last: str
    record: Record | None = None
    decision: Decision | None = None


def land(house: House, ask: Ask, say: Say) -> Ended:
    """Lands one block, or proves that nothing is to land. Raises LandingError for everything but a verdict."""
    with ledger.lock(house.root, f"land {ask.block or 'the next block'}"):
        house = dataclasses.replace(house, at=ask.at)
        target = house.subject.target(ask.target)
        if not target.proved:
            proved = ", ".join(other.name for other in house.subject.targets if other.proved)
            raise UsageError(
                f"target {target.name}", "is built and pinned in the records of the others alone", f"land on {proved}"
            )
        if ask.kit is not None and target.needs is None:
            raise UsageError("--kit", f"{target.name} needs nothing that is not here", "leave it out")
        for known, name in ((house.subject.block, ask.block), (house.subject.check, ask.check)):
            if name is not None:
                known(name)
        book, finished = finish(house, target, ask, say)
        copy = snapshot(house, target, book, say)
        waiting = protocol.open_attempts(book, target.name)
        ended = _ended_before(house, target, book, None if waiting else finished, ask)
        if ended is not None:
            return ended
        if ask.evidence is not None or ask.resume is not None:
            return conclude(house, target, _asked(waiting, ask, target), ask, say)
        taken = house.repository.collect(house.folder, house.subject, at=ask.at, target=target)
        tried = _local(ask) or bool(taken.dirty)
        if waiting and not tried:
            if _goes_on(waiting[-1], taken, ask):
                return conclude(house, target, waiting, ask, say)
            if not _follows(house, target, waiting[-1], ask):
                why = "the source, or what was asked, changed before there was a verdict"
                book = (*book, registrar.void(house, waiting[-1], why, say))
        shutil.rmtree(house.workspace("stage"), ignore_errors=True)
        here = protocol.standing(book, target.name) if tried else protocol.start(book, target.name)
        baseline = copy.read_bytes() if copy else None
        if isinstance(here, Attempt):
            baseline = kit.load(registrar.room_of(house, here) / "kit").objects[here.artifact.sha256]
        staged = stage.stage(house, target, book, ask, taken, here, baseline, say)
        if staged.proof or tried:
            return rehearse(house, staged, say)
        registrar.require_committed(house, book)
        attempt = registrar.begin(house, staged, book, say)
        return conclude(
            house, target, (*waiting[: waiting.index(here) + 1 if here in waiting else 0], attempt), ask, say
        )


def finish(house: House, target: Target, ask: Ask, say: Say) -> tuple[Sequence[Record], Result | None]:
    """The ledger, verified, with what a crash left between result, promote and views completed; its result, if any.

    Raises UsageError where nothing may be written.
    """
    book = house.book()
    landed = protocol.unpromoted(book, target.name)
    newest = protocol.standing(book, target.name)
    if landed is None and (newest is None or not _unfinished_view(house, book, newest)):
        return book, None
    if _local(ask):
        raise UsageError(
            "the last landing", "was cut off before its artifact became current", "run `land` to complete it"
        )
    if landed is not None:
        say(f"finish    result {landed.sequence} landed and was not promoted: promoting it")
        registrar.promote(house, landed, say)
        return house.ledger.read(), landed
    assert newest is not None
    say(f"finish    promote {newest.sequence} had not reached the view: completing it")
    views.show(house, book, target.name)
    return book, protocol.result_of(book, newest)


def snapshot(house: House, target: Target, book: Sequence[Record], say: Say) -> Path | None:
    """A verified copy of the current artifact; None before the first landing. Raises BaselineMismatch."""
    newest = protocol.standing(book, target.name)
    if newest is None:
        found = house.baselines.look(target.name)
        if found is not None:
            raise BaselineMismatch(
                house.baselines.view("current", target.name) / found[0],
                f"is {found[1]}, and the ledger has promoted nothing on {target.name}",
                "move it away: an artifact becomes current by landing",
            )
        say(f"snapshot  {target.name}: nothing has landed yet, the baseline is empty")
        return None
    digest = newest.artifact.sha256
    into = house.workspace("snapshot")
    copy = house.baselines.snapshot(target.name, artifact_name=newest.artifact.name, digest=digest, into=into)
    say(f"snapshot  {target.name}: {newest.artifact.name} {digest} is what record {newest.sequence} promoted")
    return copy


def conclude(house: House, target: Target, attempts: Sequence[Attempt], ask: Ask, say: Say) -> Ended:
    """Proves attempts, or takes the evidence that was carried here; one that fails voids those after it."""
    if ask.evidence is None and target.needs is not None and target.needs not in machine.describe(target.needs):
        raise _carried(house, target, attempts, ask)
    ended = _conclude(house, target, attempts[0], ask, say)
    for attempt in attempts[1:]:
        if ended.code:
            registrar.void(
                house, attempt, f"attempt {attempt.baseline and attempt.baseline.sequence} did not land", say
            )
        else:
            say(ended.last)
            ended = _conclude(house, target, attempt, ask, say)
    return ended


def _conclude(house: House, target: Target, attempt: Attempt, ask: Ask, say: Say) -> Ended:
    """One attempt: judged, archived, recorded, promoted."""
    if not protocol.stands_on(house.ledger.read(), attempt):
        registrar.void(house, attempt, "the target moved on before there was a verdict", say)
        raise UsageError(
            f"attempt {attempt.sequence}", "its baseline is no longer the current one; it is void now", "land again"
        )
    room = registrar.room_of(house, attempt)
    if not registrar.is_whole(room):
        registrar.void(house, attempt, "its workspace is gone, and its samples with it", say)
        raise Waiting(f"attempt {attempt.sequence}", "its workspace is gone; it is void now, and counts", "land again")
    opened = kit.load(room / "kit")
    plan = _own_plan(opened, attempt)
    evidence = _evidence(room, plan, ask, say)
    decision = registrar.judged(plan, evidence)
    measured = registrar.measured(plan, opened.objects, room / "sizes")
    result = registrar.record(house, attempt, opened, plan, evidence, decision, measured)
    say(report.decision(decision, sizes=measured))
    last = report.verdict(decision.verdict, block=plan.block, target=plan.target, rest=f"record {result.sequence}")
    if decision.verdict == "landed":
        registrar.promote(house, result, say)
    shutil.rmtree(room, ignore_errors=True)
    return Ended(code=CODES[decision.verdict], last=last, record=result, decision=decision)


def rehearse(house: House, staged: Staged, say: Say) -> Ended:
    """The walk without a record: a dry run, the proof of an unchanged tree, or a tree that is not committed."""
    decision, measured = registrar.rehearsed(house, staged.plan, staged.objects)
    say(report.decision(decision, sizes=measured))
    code, rest = CODES[decision.verdict], "nothing was written"
    word = {"landed": "would land", "refused": "would be refused", "inconclusive": "inconclusive"}[decision.verdict]
    if staged.proof and code == 0:
        verify.require_lanes(house, staged.plan.target, say)
    dirty = ", ".join(staged.taken.dirty[:3])
    if staged.proof and code == 0:
        word, rest = "sound", f"the tree is what record {staged.proof} promoted"
    elif dirty:
        code, rest = code or USAGE, f"{'' if code else 'commit first: '}{dirty} not committed; nothing was written"
    last = report.verdict(word, block=staged.block.name, target=staged.plan.target, rest=rest)
    return Ended(code=code, last=last, decision=decision)


def _ended_before(
    house: House, target: Target, book: Sequence[Record], finished: Result | None, ask: Ask
) -> Ended | None:
    """How the walk that this command is about ended, where a crash came between its result and its last line."""
    result = finished
    if ask.resume is not None:
        result = protocol.result_about(book, ask.resume)
    if result is None or result.target != target.name or ask.block not in (None, result.block):
        return None
    if ask.revert is not None and (ask.revert, result.artifact) not in [(r.sequence, r.artifact) for r in book]:
        return None
    shutil.rmtree(house.workspace(f"{result.attempt:06d}"), ignore_errors=True)
    last = report.verdict(result.verdict, block=result.block, target=result.target, rest=f"record {result.sequence}")
    return Ended(code=CODES[result.verdict], last=last, record=result)


def _asked(waiting: Sequence[Attempt], ask: Ask, target: Target) -> Sequence[Attempt]:
    """The open attempts that --resume or --evidence is about. Raises UsageError."""
    if not waiting:
        raise UsageError(target.name, "has no open attempt", "run `land` without --resume and --evidence")
    if ask.resume not in (None, waiting[0].sequence):
        raise UsageError(
            f"--resume {ask.resume}",
            f"the open attempt of {target.name} is {waiting[0].sequence}",
            f"--resume {waiting[0].sequence}",
        )
    blocks = [attempt.block for attempt in waiting]
    if ask.block is not None and ask.block not in blocks:
        raise UsageError(ask.block, "has no open attempt", f"leave it out, or name {', '.join(blocks)}")
    return waiting


def _local(ask: Ask) -> bool:
    """True if the walk is only tried: nothing is recorded."""
    return ask.dry_run or ask.check is not None


def _goes_on(attempt: Attempt, taken: Source, ask: Ask) -> bool:
    """True if the open attempt is about this very tree and block."""
    same = (attempt.source.sources.sha256, attempt.source.tools.sha256) == (taken.sources, taken.tools)
    return same and ask.block in (None, attempt.block) and ask.revert is None


def _follows(house: House, target: Target, attempt: Attempt, ask: Ask) -> bool:
    """True if what is asked for is the block after an attempt that waits for evidence: one kit carries both."""
    names = [block.name for block in house.subject.blocks_of(target.name)]
    after = names[names.index(attempt.block) + 1 :][:1] if attempt.block in names else []
    return target.needs is not None and [ask.block] == after


def _own_plan(opened: Kit, attempt: Attempt) -> Plan:
    """The plan of the kit that the attempt names. Raises EvidenceError if its workspace holds another."""
    for plan in opened.plans:
        if registrar.plan_digest(plan) == attempt.plan.sha256:
            return plan
    raise EvidenceError(
        f"attempt {attempt.sequence}", "its workspace holds another plan", "remove .landing/ and land again"
    )


def _carried(house: House, target: Target, attempts: Sequence[Attempt], ask: Ask) -> Waiting:
    """The kit of all open attempts is written where it was asked for; says what to run there and here."""
    where = registrar.room_of(house, attempts[-1]) / "kit"
    if ask.kit is not None:
        where = ask.kit
        opened = [kit.load(registrar.room_of(house, attempt) / "kit") for attempt in attempts]
        objects = {digest: data for one in opened for digest, data in one.objects.items()}
        kit.pack(where, [plan for one in opened for plan in one.plans], objects)
    there = f"python -m pipeline prove {where.name} --out evidence.json"
    todo = f"there: {there}; here: land --target {target.name} --evidence evidence.json"
    named = ", ".join(str(attempt.sequence) for attempt in attempts)
    return Waiting(f"attempt {named}", f"{target.name} needs a {target.needs}, which is not here", todo)


def _evidence(room: Path, plan: Plan, ask: Ask, say: Say) -> Evidence:
    """What a proof of the plan saw: carried here, left by an earlier run, or seen now."""
    path = registrar.evidence_of(room)
    if ask.evidence is not None:
        try:
            data = durable.read(ask.evidence)
        except (FileNotFoundError, ValueError) as error:
            what = "is missing" if isinstance(error, FileNotFoundError) else str(error)
            raise UsageError(ask.evidence, what, "name the file that `prove` wrote") from None
        return _answer(ask.evidence, data, plan)
    if not path.exists():
        say("prove     checks, counterproofs, timings")
        prove.prove(room / "kit", path)
    return _answer(path, durable.read(path), plan)


def _answer(path: Path, data: bytes, plan: Plan) -> Evidence:
    """The evidence in a file that answers this plan. Raises EvidenceError."""
    own = registrar.evidence_key(plan)
    found = next((e for e in kit.read_evidence(path, data) if e.plan == own), None)
    if found is None:
        raise EvidenceError(path, f"answers another plan than attempt {plan.sequence}'s", "prove this attempt's kit")
    return found


def _unfinished_view(house: House, book: Sequence[Record], newest: Promote) -> bool:
    """True if a crash left the views before the newest promote, or between them, and that is not committed yet."""
    if house.repository.committed(house.ledger.path(newest.sequence)) is not None:
        return False
    promotes = [r.artifact.sha256 for r in reversed(book) if isinstance(r, Promote) and r.target == newest.target]
    now, older, oldest, *_ = (*promotes, None, None)
    looked = (house.baselines.look(newest.target, view=view) for view in (CURRENT, PREVIOUS))
    shown = tuple(found and found[1] for found in looked)
    return shown in ((older, oldest), (older, older)) and shown != (now, older)
