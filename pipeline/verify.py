"""What CI runs: ledger, archive and views agree, the tree builds to what was promoted, its dumps come again."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline import audit, ledger, protocol, registrar, stage, verbs, views, workshop
from pipeline.build import Built
from pipeline.cargo import Cargo
from pipeline.claims import Check as Proved
from pipeline.errors import BaselineMismatch, Inconclusive, IntegrityError
from pipeline.house import House, Say
from pipeline.proof import CANDIDATE, Job
from pipeline.records import Promote, Record, Result
from pipeline.source import Source
from pipeline.subject import Target


def verify(house: House, say: Say) -> str:
    """The last line. Raises LandingError at the first thing that does not hold; writes nothing."""
    with ledger.lock(house.root, "verify"):
        book = audit.audit(house, say)
        if not book:
            views.require(house, book)
            return "SOUND: nothing landed yet"
        lanes = _lanes(house, book)
        landed = _is_landed(lanes)
        for lane in lanes:
            made = _built(house, lane, say, may_lag=landed)
            _dumps(house, lane.target, book, lane.result, lane.taken, made, say)
        return f"SOUND: {len(book)} records, " + ", ".join(_stands(book, lane.target.name) for lane in lanes)


def require_lanes(house: House, beside: str, say: Say) -> None:
    """A tree that no lane has landed builds for every lane beside that one what stands there. Raises BaselineMismatch.

    So an edit that moves no byte of one lane is not sound because of it.
    """
    lanes = _lanes(house, house.ledger.read())
    if not _is_landed(lanes):
        for lane in lanes:
            if lane.target.name != beside:
                _built(house, lane, say, may_lag=False)


@dataclass(frozen=True, slots=True)
class _Lane:
    """A target on which something stands: what landed it, and what the tree has for it."""

    target: Target
    result: Result
    taken: Source


def _lanes(house: House, book: Sequence[Record]) -> list[_Lane]:
    stands = [(t, protocol.standing(book, t.name)) for t in house.subject.targets]
    return [
        _Lane(t, protocol.result_of(book, promote), _taken(house, t)) for t, promote in stands if promote is not None
    ]


def _taken(house: House, target: Target) -> Source:
    return house.repository.collect(house.folder, house.subject, at=house.at, target=target)


def _is_landed(lanes: Sequence[_Lane]) -> bool:
    """True if a target that needs no hardware has landed the tree's very sources: others may lag behind it then."""
    return any(lane.target.needs is None and lane.result.source.sources.sha256 == lane.taken.sources for lane in lanes)


def _built(house: House, lane: _Lane, say: Say, *, may_lag: bool) -> bytes:
    """The promoted artifact, built here: of a target that needs hardware and lags behind the tree, its own source."""
    target, result, taken = lane.target, lane.result, lane.taken
    room = house.workspace("verify")
    shutil.rmtree(room, ignore_errors=True)
    lags = may_lag and target.needs is not None and result.source.sources.sha256 != taken.sources
    try:
        made: Built
        if lags:
            lag = f"lags behind the tree, at record {result.sequence}"
            say(f"build     {target.name} {lag}: building its archived source")
            made = workshop.rebuild(house, result, room)
        else:
            made = workshop.build_once(house, target, taken, room)
        if made.sha256 == result.artifact.sha256:
            say(f"build     {target.name}: {made.sha256}, as promoted ({made.seconds_ms / 1000:.1f} s)")
        elif workshop.moved_tools(result, made):
            raise workshop.toolchain_moved(result, made)
        elif target.reproducible == "bytes":
            raise BaselineMismatch(
                f"{house.subject.folder} for {target.name}",
                f"the tree builds to {made.sha256}, promoted was {result.artifact.sha256}",
                "land the change, or take it back",
            )
        return house.baselines.fetch(result.artifact.sha256)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _dumps(
    house: House, target: Target, book: Sequence[Record], result: Result, taken: Source, data: bytes, say: Say
) -> None:
    """The first side of every recorded `same` check gives the recorded listing again.

    Where the target needs hardware, the artifact of one that does not stands in for it: lanes that agree leave the
    same bytes.
    """
    runner = target
    if target.needs is not None:
        stand_in = _stand_in(house, book, result.block)
        if stand_in is None:
            none = f"no target without needs has landed {result.block}"
            say(f"dumps     {target.name}: {none}; its dumps were not made again")
            return
        runner, data = stand_in
        device = result.machine.get(target.needs)
        say(f"dumps     {target.name}: recorded on {device}, made again by the artifact of {runner.name}")
    known = {
        check.id: check
        for check in house.subject.checks_at(target.name, result.block)
        if runner.name in check.targets or not any("{candidate}" in word for word in (*check.sides, ())[0])
    }
    recorded = {
        c.id: c for c in _outputs(book, result) if c.id in known and c.argv == known[c.id].commands(teeth=False)
    }
    checks = tuple(
        dataclasses.replace(known[name], sides=known[name].sides[:1] * 2, limit_s=known[name].limit_s)
        for name in recorded
        if not protocol.compares_with_baseline(known[name])
    )
    if not checks:
        raise Inconclusive(house.subject.where, "no recorded dump can be made again", "land the changed checks")
    cargo = Cargo()
    cargo.add_tree(CANDIDATE, taken.files)
    cargo.add_artifact(CANDIDATE, data)
    cargo.add_earlier(house, runner, book, [side for check in checks for side in check.sides])
    jobs = tuple(Job(id=c.id, check=c.id, of=CANDIDATE, tree=CANDIDATE, teeth=False) for c in checks)
    plan = dataclasses.replace(
        stage.blank(house, runner, house.subject.block(result.block), cargo, taken, checks), jobs=jobs
    )
    decision, _ = registrar.rehearsed(house, plan, cargo.objects)
    decision.require_obtained()
    for check in decision.checks:
        was = recorded[check.id].outputs
        if check.verdict != verbs.Colour.GREEN.value or check.outputs != was:
            now = check.where or (check.outputs and check.outputs.sha256)
            todo = "land what changed them, or take it back"
            raise IntegrityError(f"dumps of check {check.id}", f"are {now}, recorded were {was and was.sha256}", todo)
        say(f"dumps     {check.id}: {check.outputs.files if check.outputs else 0} files, as recorded")


def _stand_in(house: House, book: Sequence[Record], block: str) -> tuple[Target, bytes] | None:
    """A target that runs anywhere, and the newest artifact of that block on it."""
    for target in house.subject.targets:
        landed = [r for r in book if isinstance(r, Promote) and (r.target, r.block) == (target.name, block)]
        if target.needs is None and landed:
            return target, house.baselines.fetch(landed[-1].artifact.sha256)
    return None


def _outputs(book: Sequence[Record], result: Result) -> list[Proved]:
    """The newest result's `same` checks; those that an earlier record proved are taken from there."""
    made = []
    for check in result.checks:
        earlier = book[check.green_in - 1] if check.green_in else result
        found = next((c for c in earlier.checks if c.id == check.id), check) if isinstance(earlier, Result) else check
        if found.verb == "same" and found.outputs is not None:
            made.append(found)
    return made


def _stands(book: Sequence[Record], target: str) -> str:
    promote = protocol.standing(book, target)
    assert promote is not None
    return f"{target} stands at {promote.block} (record {promote.sequence})"
