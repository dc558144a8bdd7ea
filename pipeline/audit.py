"""Everything that the ledger claims, derived again from what is stored: chain, claims, objects, views, history.

It writes nothing. What is wrong is an error that names it; what is only worth knowing is a line of the report.
"""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import shutil
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Final

from pipeline import build, derive, durable, protocol, registrar, views, workshop
from pipeline.build import Built
from pipeline.errors import HistoryError, LandingError, MachineError, ToolchainMoved
from pipeline.house import House, Say
from pipeline.progress import track
from pipeline.protocol import Stood
from pipeline.records import Promote, Record, Result, Void

SPAN: Final = 30  # records that one worker derives before the next span is handed out: few, so that all end together


def audit(
    house: House, say: Say, *, deep: bool = False, base: str | None = None, strict: bool = False
) -> Sequence[Record]:
    """Raises LandingError at the first thing that does not hold; returns the records, all of which do.

    With `base`, every record and object of that commit must still be there; with `deep`, every landed artifact is
    built again from its archived source, where today's toolchain is the one that its record names.
    """
    if base is not None:
        house.repository.resolve(base)
    book = house.ledger.read()
    say(f"ledger    {len(book)} records, each follows the one before")
    _order(house, book)
    with _deriving(house, book):
        _objects(house, book, say)
        house.require_kept()
        _history(house, book, base, say)
    say("claims    every record follows from its archived plan, evidence and source")
    views.require(house, book)
    say("views     current and previous are what the newest promotes name")
    if deep:
        _deep(house, book, say, strict=strict)
    return book


@contextmanager
def _deriving(house: House, book: Sequence[Record]) -> Iterator[None]:
    """When the block has ended, every record follows from what is archived; on all processors, if there are many.

    A record that does not is the error, before any of the block's own.
    """
    stood = protocol.stood(book)
    spans = [range(i, min(i + SPAN, len(book))) for i in range(0, len(book), SPAN)]
    if len(spans) < 2:
        for span in spans:
            _derive(house, book, stood, span)
        yield
        return
    share = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(mp_context=share, initializer=_enter, initargs=(house, book, stood))
    around: LandingError | None = None
    try:
        with track("auditing records", len(book)) as step, pool:
            derived = pool.map(_derive_shared, spans)
            try:
                yield
            except LandingError as error:
                around = error
            for span in derived:  # in order, so that the first error counts
                for i in span:
                    step(f"record {i + 1}")
    except BrokenProcessPool:
        what, todo = "a process of it was killed from outside", "see to memory, and run the same command again"
        raise MachineError("audit", what, todo) from None
    if around is not None:
        raise around


def _enter(house: House, book: Sequence[Record], stood: Sequence[Stood]) -> None:
    """A worker begins: its parent alone stops it. It leaves no garbage worth walking every record for."""
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _shared[:] = [house, book, stood]


def _derive_shared(span: range) -> range:
    house, book, stood = _shared
    _derive(house, book, stood, span)
    return span


def _derive(house: House, book: Sequence[Record], stood: Sequence[Stood], span: range) -> None:
    for i in span:
        derive.record(house, book, stood, book[i])


def _order(house: House, book: Sequence[Record]) -> None:
    """Every record is answered once: an attempt by a result or a void, a result by a promote, any by a void."""
    answered: dict[tuple[bool, int], int] = {}
    for record in book:
        about = _about(record)
        if about and answered.setdefault((isinstance(record, Promote), about), record.sequence) != record.sequence:
            before = answered[isinstance(record, Promote), about]
            raise derive.broken(house, record, f"record {about} was answered by record {before} before")


def _about(record: Record) -> int | None:
    """The earlier record that this one closes, promotes or takes back."""
    if isinstance(record, Promote):
        return record.result
    return record.attempt if isinstance(record, Result) else record.voids if isinstance(record, Void) else None


def _objects(house: House, book: Sequence[Record], say: Say) -> None:
    """Every object is what its name says; those that no record names are listed."""
    named = {digest for record in book for digest in registrar.named_objects(record)}
    objects = house.baselines.objects()
    total = 0
    with track("hashing objects", len(objects)) as step:
        for digest in objects:
            total += len(house.baselines.fetch(digest))
            step(digest[:12])
    for digest in sorted(named.difference(objects)):
        house.baselines.fetch(digest)
    orphans = [digest for digest in objects if digest not in named]
    say(f"archive   {len(objects)} objects, {total:,} bytes, every one is what its name says")
    for digest in orphans:
        say(f"archive   {digest} is named by no record (an attempt that was not concluded leaves such)")


def _history(house: House, book: Sequence[Record], base: str | None, say: Say) -> None:
    """No commit changed, renamed or removed a permanent file. Raises HistoryError, MachineError."""
    repository = house.repository
    permanent = [house.ledger.folder, house.baselines.objects_folder]
    if not house.root.is_relative_to(repository.top):
        say("history   the ledger lies outside the repository: git says nothing about it")
        return
    if repository.is_shallow():
        raise MachineError("git", "this clone is shallow: the ledger's history cannot be seen", "git fetch --unshallow")
    touched = [row for row in repository.touched(permanent) if f"/{durable.TEMPORARY}" not in row]
    if touched:
        commit, status, path = touched[0].split(" ", 2)
        raise HistoryError(
            path, f"was {_STATUS.get(status, 'changed')} by commit {commit}", "it is permanent: take that commit back"
        )
    say("history   no commit changed, renamed or removed a record or an archived object")
    commits = (r.source.git_commit for r in book if isinstance(r, Result) and r.source.git_commit)
    for commit in repository.lost(commits):
        say(f"history   commit {commit} is not in this history; its source is archived")
    for folder in permanent if base else ():
        repository.extends(str(base), folder)
    if base:
        say(f"history   every record and object of {base} is still there")


_shared: list[Any] = []  # in a worker: the house, the records, and where each found its target
_STATUS: Final = {"M": "changed", "D": "removed", "T": "changed"}


def _same_payload(house: House, result: Result, made: Built) -> bool:
    """True if no more was claimed than what holds: under "payload" an equal one, under "no" nothing."""
    if result.build.reproducible == "payload":
        kept = house.baselines.fetch(result.artifact.sha256)
        return build.payload(durable.read(made.path)) == build.payload(kept)
    return result.build.reproducible == "no"


def _pinned(result: Result) -> list[Result]:
    """What the record claims of the targets that are built alone, each as if it were a result of its own."""
    pins = result.builds or ()
    return [dataclasses.replace(result, target=pin.target, artifact=pin.artifact, build=pin.build) for pin in pins]


def _deep(house: House, book: Sequence[Record], say: Say, *, strict: bool) -> None:
    """Builds every landed or pinned artifact again.

    Raises ToolchainMoved, with `strict` also where a toolchain is missing.
    """
    landed = [protocol.result_of(book, record) for record in book if isinstance(record, Promote)]
    claimed = [row for result in landed for row in (result, *_pinned(result))]
    skipped: list[ToolchainMoved] = []
    room = house.workspace("deep")
    with track("rebuilding artifacts", len(claimed)) as step:
        for result in claimed:
            made = workshop.rebuild(house, result, room)
            step(f"record {result.sequence}")
            if made.sha256 == result.artifact.sha256 or _same_payload(house, result, made):
                continue
            moved = workshop.toolchain_moved(result, made)
            if not workshop.moved_tools(result, made):
                raise moved
            say(f"deep      record {result.sequence} was not rebuilt for {result.target}: {moved.what}")
            skipped.append(moved)
    shutil.rmtree(room, ignore_errors=True)
    rebuilt = f"{len(claimed) - len(skipped)} of {len(claimed)} artifacts"
    say(f"deep      {rebuilt} rebuilt from their archived sources")
    if skipped and strict:
        raise skipped[0]
