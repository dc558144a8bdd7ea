"""The whole adder landed block by block in this process, once a session, and copied for each test that wants it."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline import canonical, land, protocol, records, stage
from pipeline.house import House
from pipeline.land import Ended
from pipeline.proof import Evidence, JobSeen, Plan
from pipeline.stage import Ask, Staged
from pipeline.verdict import Decision
from tests import scratch

TARGET = "cpu-x86_64"
PAIRS = 8  # of the bench: enough for a verdict, and quicker than thirteen


def house(into: Path, block: str | None) -> House:
    """A repository of its own in which the adder landed up to a block, everything committed; None: nothing landed."""
    root = into / "repository"
    shutil.copytree(_landed(block), root)
    return at(root)


def apart(into: Path, block: str) -> House:
    """Ledger and baselines alone, outside of the repository in which the adder landed up to a block."""
    shared = _landed(block)
    for name in ("ledger", "baselines"):
        shutil.copytree(shared / name, into / name)
    return House(folder=shared / "adder", root=into)


def at(root: Path) -> House:
    """The house of a scratch repository, with nothing cached."""
    return House(folder=root / "adder", root=root)


def walk(where: House, say: Callable[[str], None] | None = None, **ask: object) -> Ended:
    """A landing in this process, in a house that has cached nothing."""
    return land.land(at(where.root), Ask(**ask), say or (lambda line: None))  # type: ignore[arg-type]


def staged(where: House, **ask: object) -> Staged:
    """What a landing would prove, with every byte of it: built, and not measured."""
    wanted = Ask(**ask)  # type: ignore[arg-type]
    target, book = where.subject.target(), where.ledger.read()
    taken = where.repository.collect(where.folder, where.subject, target=target)
    copy = land.snapshot(where, target, book, lambda line: None)
    here, baseline = protocol.standing(book, target.name), copy.read_bytes() if copy else None
    return stage.stage(where, target, book, wanted, taken, here, baseline, lambda line: None)


def edit(where: House, find: str, replace: str, *, file: str = "adder.c") -> None:
    """One place of one file of the adder is different."""
    path = where.folder / file
    text = path.read_text()
    assert text.count(find) == 1, f"{find!r} is not in {file} once"
    path.write_text(text.replace(find, replace))


def stored(where: House) -> dict[str, bytes]:
    """Every file of ledger and baselines."""
    folders = (where.root / "ledger", where.root / "baselines")
    files = (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(where.root).as_posix(): path.read_bytes() for path in files}


def forge(where: House, sequence: int, **changes: object) -> None:
    """A record says something else, and every later one follows it: a forgery that the chain alone cannot see."""
    book = list(where.ledger.read())
    book[sequence - 1] = dataclasses.replace(book[sequence - 1], **changes)  # type: ignore[arg-type]
    rewrite(where, book)


def rewrite(where: House, book: Sequence[records.Record]) -> None:
    """The ledger holds these records, numbered and chained anew."""
    shutil.rmtree(where.ledger.folder)
    where.ledger.folder.mkdir()
    previous = records.NO_RECORD
    for i, record in enumerate(book, start=1):
        data = records.to_bytes(dataclasses.replace(record, sequence=i, previous=previous))
        where.ledger.path(i).write_bytes(data)
        previous = canonical.sha256(data)


def said(decision: Decision) -> dict[str, Any]:
    """All that a result takes over from the decision that it records."""
    return {field.name: getattr(decision, field.name) for field in dataclasses.fields(decision)}


def fed(plan: Plan, evidence: Evidence) -> tuple[JobSeen, ...]:
    """What was seen of each job, as if its commands had been given the plan's own trees, artifacts and inputs."""
    planned = {job.id: job for job in plan.jobs}
    jobs = []
    for seen in evidence.jobs:
        job, sides = planned[seen.id], []
        for side in seen.sides:
            given = plan.reads(side.argv, of=job.of, tree=job.tree)
            sides.append(dataclasses.replace(side, inputs=given + side.inputs[len(given) :]))
        jobs.append(dataclasses.replace(seen, sides=tuple(sides)))
    return tuple(jobs)


@functools.cache
def _landed(block: str | None) -> Path:
    if block is None:
        root = _room() / "nothing"
        scratch.repository(root, scratch.BLOCKS[0])
        return root
    root = _room() / block
    before = scratch.BLOCKS.index(block) - 1
    shutil.copytree(_landed(scratch.BLOCKS[before] if before >= 0 else None), root)
    scratch.write(root / "adder", block)
    edit(at(root), "pairs = 13", f"pairs = {PAIRS}", file="landing.toml")
    scratch.commit(root, f"adder: block {block}")
    ended = walk(at(root), block=block)
    assert ended.code == 0, ended.last
    scratch.commit(root, f"land {block}")
    return root


_room = functools.cache(scratch.room)
