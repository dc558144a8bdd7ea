"""Everything that the ledger claims, derived again from what is stored: chain, objects, verdicts, sources, sizes, views.

It writes nothing. What is wrong is an error that names it; what is only worth knowing is a line of the report.
"""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from pipeline import kit, manifest, protocol, registrar, stage, tree, workshop
from pipeline.claims import Digest
from pipeline.errors import ArchiveError, HistoryError, LedgerError, MachineError, ToolchainMoved
from pipeline.house import House, Say
from pipeline.kit import CANDIDATE, Evidence, Plan
from pipeline.progress import track
from pipeline.records import Attempt, Promote, Record, Result, Void

R = TypeVar("R", bound=Record)
_RESTORE: Final = "restore ledger/ from git"


def audit(house: House, say: Say, *, deep: bool = False, base: str | None = None, strict: bool = False) -> Sequence[Record]:
    """Raises LandingError at the first thing that does not hold; returns the records, all of which do.

    With `base`, every record and object of that commit must still be there; with `deep`, every landed artifact is
    built again from its archived source, where today's toolchain is the one that its record names.
    """
    book = house.ledger.read()
    say(f"ledger    {len(book)} records, each follows the one before")
    _order(house, book)
    with track("auditing records", len(book)) as step:
        for record in book:
            _RULES[type(record)](house, book, record)
            step(f"record {record.sequence}")
    say("verdicts  every verdict follows from its archived plan and evidence")
    _objects(house, book, say)
    registrar.require_views(house, book)
    say("views     current and previous are what the newest promotes name")
    _history(house, base, say)
    if deep:
        _deep(house, book, say, strict=strict)
    return book


def _order(house: House, book: Sequence[Record]) -> None:
    """Attempts are closed once, results promoted once, and each compares with what stood then."""
    closed: dict[int, int] = {}
    promoted: dict[int, int] = {}
    newest: dict[str, Promote] = {}
    for record in book:
        if isinstance(record, Attempt) and record.baseline != stage.baseline_row(newest.get(record.target)):
            raise _broken(house, record, "its baseline is not what the target stood at")
        about = record.attempt if isinstance(record, Result) else record.voids if isinstance(record, Void) else None
        if about is not None and closed.setdefault(about, record.sequence) != record.sequence:
            raise _broken(house, record, f"attempt {about} was closed by record {closed[about]} before")
        if isinstance(record, Promote):
            if promoted.setdefault(record.result, record.sequence) != record.sequence:
                raise _broken(house, record, f"result {record.result} was promoted by record {promoted[record.result]} before")
            newest[record.target] = record


def _attempt(house: House, book: Sequence[Record], record: Record) -> None:
    assert isinstance(record, Attempt)
    plan = read_plan(house, record)
    said = (plan.sequence, plan.target, plan.block, plan.revision, plan.artifacts[CANDIDATE], plan.baseline, plan.rules)
    kept = (record.sequence, record.target, record.block, record.revision, record.artifact.sha256, record.baseline, record.rules)
    if said != kept:
        raise _broken(house, record, "its plan is another attempt's")


def _result(house: House, book: Sequence[Record], record: Record) -> None:
    assert isinstance(record, Result)
    attempt = _referred(house, book, record, record.attempt, Attempt)
    if (attempt.target, attempt.artifact, attempt.plan) != (record.target, record.artifact, record.plan):
        raise _broken(house, record, f"it is not about attempt {attempt.sequence}")
    plan, evidence = read_plan(house, record), read_evidence(house, record)
    try:
        made = protocol.judge(plan, evidence)
    except ValueError as error:
        raise _broken(house, record, f"its evidence cannot be judged: {error}") from None
    told = (record.verdict, record.reasons, record.checks, record.timing, record.figures)
    if told != (made.verdict, made.reasons, made.checks, made.timing, made.figures):
        name = next(n for n in ("verdict", "reasons", "checks", "timing", "figures") if getattr(made, n) != getattr(record, n))
        raise _broken(house, record, f"its {name} do not follow from its plan and evidence")
    _sources(house, record, plan)


def _promote(house: House, book: Sequence[Record], record: Record) -> None:
    assert isinstance(record, Promote)
    result = _referred(house, book, record, record.result, Result)
    if result.verdict != "landed" or (result.target, result.artifact, result.block) != (record.target, record.artifact, record.block):
        raise _broken(house, record, f"result {result.sequence} did not land this artifact")
    house.baselines.fetch(record.artifact.sha256)
    sizes = registrar.measured(house.baselines.path_of, read_plan(house, result))
    if sizes != result.sizes:
        raise _broken(house, result, "its sizes are not those of the archived artifacts")


def _void(house: House, book: Sequence[Record], record: Record) -> None:
    assert isinstance(record, Void)
    if not 0 < record.voids < record.sequence:
        raise _broken(house, record, f"it voids record {record.voids}, which does not come before it")


_RULES: Final[Mapping[type[Record], Callable[[House, Sequence[Record], Record], None]]] = {
    Attempt: _attempt,
    Result: _result,
    Promote: _promote,
    Void: _void,
}


def read_plan(house: House, record: Attempt | Result) -> Plan:
    """The archived plan of a record. Raises ArchiveError."""
    try:
        return kit.read_plan(kit.unsqueeze(house.baselines.fetch(record.plan.sha256)))
    except (ValueError, lzma.LZMAError) as error:
        raise ArchiveError(house.baselines.path_of(record.plan.sha256), f"is no plan: {error}", _RESTORE) from None


def read_evidence(house: House, record: Result) -> Evidence:
    """The archived evidence of a result. Raises ArchiveError."""
    try:
        return kit.evidence_of(kit.unsqueeze(house.baselines.fetch(record.evidence.sha256)))
    except (ValueError, lzma.LZMAError) as error:
        raise ArchiveError(house.baselines.path_of(record.evidence.sha256), f"is no evidence: {error}", _RESTORE) from None


def _sources(house: House, record: Result, plan: Plan) -> None:
    """The archived source is the plan's tree, and its digests are the record's."""
    archive = record.source.archive
    if archive is None:
        raise _broken(house, record, "it names no source")
    kept = tree.untar(house.baselines.fetch(archive.sha256))
    if {file.path: (file.sha256, file.mode) for file in kept.files} != plan.tree(CANDIDATE):
        raise _broken(house, record, "its archived source is not the tree that was proved")
    text = next((file.data for file in kept.files if file.path == manifest.MANIFEST), b"")
    subject = manifest.parse(text, folder=kept.folder)
    sources, tools = registrar.source_digests(subject, subject.target(record.target), kept)
    if (record.source.sources, record.source.tools) != (Digest(sha256=sources), Digest(sha256=tools)):
        raise _broken(house, record, "the digests of its sources are not those of its archived source")


def _objects(house: House, book: Sequence[Record], say: Say) -> None:
    """Every object is what its name says; those that no record names are listed."""
    named = {digest for record in book for digest in registrar.named_objects(record)}
    objects = house.baselines.objects()
    total = 0
    with track("hashing objects", len(objects)) as step:
        for digest in objects:
            total += len(house.baselines.fetch(digest))
            step(digest[:12])
    for digest in sorted(named):
        house.baselines.fetch(digest)
    orphans = [digest for digest in objects if digest not in named]
    say(f"archive   {len(objects)} objects, {total:,} bytes, every one is what its name says")
    for digest in orphans:
        say(f"archive   {digest} is named by no record (an attempt that was not concluded leaves such)")


def _history(house: House, base: str | None, say: Say) -> None:
    """No commit changed, renamed or removed a permanent file. Raises HistoryError, and MachineError for a shallow clone."""
    repository = house.repository
    permanent = [house.ledger.folder, house.baselines.objects_folder]
    if not house.root.is_relative_to(repository.top):
        say("history   the ledger lies outside the repository: git says nothing about it")
        return
    if repository.is_shallow():
        raise MachineError("git", "this clone is shallow: the ledger's history cannot be seen", "git fetch --unshallow")
    touched = repository.touched(permanent)
    if touched:
        commit, status, path = touched[0].split(" ", 2)
        raise HistoryError(path, f"was {_STATUS.get(status, 'changed')} by commit {commit}", "it is permanent: take that commit back")
    say("history   no commit changed, renamed or removed a record or an archived object")
    for folder in permanent if base else ():
        repository.extends(str(base), folder)
    if base:
        say(f"history   every record and object of {base} is still there")


_STATUS: Final = {"M": "changed", "D": "removed", "T": "changed"}


def _deep(house: House, book: Sequence[Record], say: Say, *, strict: bool) -> None:
    """Builds every landed artifact again. Raises ToolchainMoved, and with `strict` also where a toolchain is missing."""
    promotes = [record for record in book if isinstance(record, Promote)]
    skipped: list[ToolchainMoved] = []
    room = house.workspace("deep")
    with track("rebuilding artifacts", len(promotes)) as step:
        for promote in promotes:
            result = protocol.result_of(book, promote)
            made = workshop.rebuild(house, result, room)
            step(f"record {promote.sequence}")
            if made.sha256 == promote.artifact.sha256 or result.build.reproducible != "bytes":
                continue
            moved = workshop.toolchain_moved(result, made)
            if not workshop.moved_tools(result, made):
                raise moved
            say(f"deep      record {promote.sequence} was not rebuilt: {moved.what}")
            skipped.append(moved)
    shutil.rmtree(room, ignore_errors=True)
    say(f"deep      {len(promotes) - len(skipped)} of {len(promotes)} landed artifacts rebuilt from their archived sources")
    if skipped and strict:
        raise skipped[0]


def _referred(house: House, book: Sequence[Record], record: Record, sequence: int, kind: type[R]) -> R:
    found = book[sequence - 1] if 0 < sequence < record.sequence else None
    if not isinstance(found, kind):
        raise _broken(house, record, f"it refers to record {sequence}, which is no earlier {kind.__name__.lower()}")
    return found


def _broken(house: House, record: Record, what: str) -> LedgerError:
    return LedgerError(Path(house.ledger.path(record.sequence)), what, _RESTORE)
