"""Any two artifacts side by side: bytes of the canonical dumps, sizes, timings. Writes no record."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline import canonical, durable, ledger, protocol, registrar, report, stage, timing, views, workshop
from pipeline.cargo import Cargo
from pipeline.claims import Baseline
from pipeline.errors import UsageError
from pipeline.house import House, Say
from pipeline.proof import CANDIDATE, Plan
from pipeline.records import Promote, Record
from pipeline.source import Source
from pipeline.subject import Check, Target

SAME, DIFFERENT = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One of the two artifacts: how it was named, what it is, and the promote that it is the artifact of, if any."""

    name: str
    data: bytes
    promote: Promote | None = None

    @property
    def sha256(self) -> str:
        """The digest of the artifact."""
        return canonical.sha256(self.data)


def compare(house: House, left: str, right: str, target_name: str | None, say: Say) -> tuple[int, str]:
    """Exit code and last line. Both operands are hashed before anything runs. Raises LandingError."""
    with ledger.lock(house.root, f"compare {left} {right}"):
        target = house.subject.target(target_name)
        book = house.book()
        views.require(house, book)
        stored = {name: _operand(house, target, book, name) for name in (left, right) if name != "work"}
        taken = house.repository.collect(house.folder, house.subject, target=target)
        a, b = (stored.get(name) or _work(house, target, taken, say) for name in (left, right))
        say(f"compare   A {a.name} {a.sha256}")
        say(f"compare   B {b.name} {b.sha256}")
        say(f"compare   {_span(house, target, book, a, b)}")
        cargo = Cargo()
        cargo.add_tree(CANDIDATE, taken.files)
        cargo.add_artifact("baseline", a.data)
        cargo.add_artifact(CANDIDATE, b.data)
        decision, measured = registrar.rehearsed(house, _plan(house, target, book, taken, cargo, a), cargo.objects)
    say(report.checks_table(decision.checks))
    decision.require_obtained()
    say(report.sizes_lines(measured))
    for row in decision.timing:
        say(f"  {timing.sentence(row)}")
    if not decision.timing:
        say(f"  no timing: {'A is B' if a.sha256 == b.sha256 else 'the dumps differ, or there is no bench'}")
    differing = [check.id for check in decision.checks if check.verdict != "green"]
    slower = [row.case for row in decision.timing if row.verdict == timing.REGRESSION]
    equal = "the same bytes" if a.sha256 == b.sha256 else "other bytes, the same dumps"
    last = "DIFFERENT: " + ", ".join(differing + slower) if differing or slower else f"SAME: {equal}"
    return (DIFFERENT if differing or slower else SAME), last


def _operand(house: House, target: Target, book: Sequence[Record], name: str) -> Operand:
    """`current`, `previous`, `#12`, a digest or a path. Raises BaselineMismatch, ArchiveError or UsageError."""
    promotes = [r for r in book if isinstance(r, Promote) and r.target == target.name]
    if name in ("current", "previous"):
        found = promotes[-1:] if name == "current" else promotes[-2:-1]
        if not found:
            raise UsageError(name, f"{target.name} has none yet", "land a block first")
        return Operand(name=name, data=house.baselines.fetch(found[0].artifact.sha256), promote=found[0])
    if name.startswith("#"):
        record = next((row for row in book if name == f"#{row.sequence}"), None)
        if record is None:
            raise UsageError(name, f"the ledger has {len(book)} records", "name one of them")
        told = [record] if isinstance(record, Promote) and record in promotes else promotes
        return _archived(house, told, name, record.artifact.sha256)
    if canonical.is_digest(name):
        return _archived(house, promotes, name, name)
    try:
        data = durable.read(Path(name))
        return Operand(name=Path(name).name, data=data, promote=_landed(promotes, canonical.sha256(data)))
    except (FileNotFoundError, ValueError) as error:
        what = "is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise UsageError(name, what, "name current, previous, work, #RECORD, a digest or a file") from None


def _archived(house: House, promotes: Sequence[Promote], name: str, digest: str) -> Operand:
    promote = _landed(promotes, digest)
    if promote is None and digest not in house.baselines.objects():
        raise UsageError(name, "its artifact is not archived: it did not land", "compare what has landed")
    return Operand(name=name, data=house.baselines.fetch(digest), promote=promote)


def _landed(promotes: Sequence[Promote], digest: str) -> Promote | None:
    """The newest promote of an artifact."""
    return next((r for r in reversed(promotes) if r.artifact.sha256 == digest), None)


def _span(house: House, target: Target, book: Sequence[Record], a: Operand, b: Operand) -> str:
    """`one block: d`, or `cumulative: c+d` when A is not B's parent: blocks must not be taken for one."""
    promotes = [r for r in book if isinstance(r, Promote) and r.target == target.name]
    if a.promote is None or (b.promote is None and b.name != "work"):
        return "operands outside the ledger: whatever lies between them"
    start = promotes.index(a.promote)
    between = promotes[start + 1 : promotes.index(b.promote) + 1] if b.promote else promotes[start + 1 :]
    if b.sha256 == a.sha256:
        return "no change: B is A, byte for byte"
    names = [r.block for r in between] + (["the tree"] if b.promote is None else [])
    if b.promote is not None and promotes.index(b.promote) <= start:
        return "no block: B is not later than A"
    return f"one block: {names[0]}" if len(names) == 1 else f"cumulative: {'+'.join(names)}"


def canonical_dumps(checks: Sequence[Check]) -> list[Check]:
    """For each side of a `same` check that dumps the candidate alone, one that runs that command on both artifacts."""
    made = []
    for check in checks:
        sides = dict.fromkeys(check.sides if check.verb == "same" else ())
        alone = [side for side in sides if "{candidate}" in side and "{baseline}" not in side]
        for i, side in enumerate(alone, start=1):
            before = tuple(word.replace("{candidate}", "{baseline}") for word in side)
            name = check.id if i == 1 else f"{check.id}#{i}"
            made.append(dataclasses.replace(check, id=name, sides=(before, side), when=()))
    return made


def _work(house: House, target: Target, taken: Source, say: Say) -> Operand:
    """The working tree's artifact, dirty or not."""
    room = house.workspace("work")
    shutil.rmtree(room, ignore_errors=True)
    try:
        made = workshop.build_candidate(house, target, taken, room, say, live=True)
        return Operand(name="work", data=durable.read(made.path))
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _plan(house: House, target: Target, book: Sequence[Record], taken: Source, cargo: Cargo, a: Operand) -> Plan:
    here = protocol.standing(book, target.name)
    block = house.subject.block(here.block) if here else house.subject.blocks_of(target.name)[0]
    checks = tuple(canonical_dumps(house.subject.checks_at(target.name, block.name)))
    if not checks:
        raise UsageError(house.subject.where, "no `same` check dumps the candidate", "add one: it is what is compared")
    cargo.add_earlier(house, target, book, [side for check in checks for side in check.sides])
    equal = cargo.artifacts["baseline"] == cargo.artifacts[CANDIDATE]
    return dataclasses.replace(
        stage.blank(house, target, block, cargo, taken, checks),
        baseline=Baseline(sequence=a.promote.sequence if a.promote else 0, sha256=a.sha256),
        jobs=protocol.plan_jobs(checks, (), green={}, short=False),
        identity=equal,
        benches=() if equal else house.subject.benches_at(target.name, block.name),
    )
