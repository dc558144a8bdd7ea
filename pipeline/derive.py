"""One record derived again: what it claims must follow from its plan, evidence and source, and from the ledger.

It reads and never writes. What does not follow is a LedgerError that names the record's file.
"""

from __future__ import annotations

import dataclasses
import functools
import lzma
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pipeline import build, canonical, kit, manifest, protocol, registrar, sizes, stage, tree
from pipeline.baselines import Baselines
from pipeline.cargo import earlier, inputs
from pipeline.claims import Digest
from pipeline.errors import ArchiveError, LandingError, LedgerError
from pipeline.house import House
from pipeline.proof import CANDIDATE, Evidence, Plan, PlannedMutant
from pipeline.protocol import Stood
from pipeline.records import Attempt, Promote, Record, Result, Void
from pipeline.subject import Block, Mutant, Subject, Target
from pipeline.tree import Tree

R = TypeVar("R", bound=Record)
T = TypeVar("T")
_RESTORE: Final = "restore ledger/ from git"
_OF_ATTEMPT: Final = (
    *("artifact", "target", "block", "revision", "title", "baseline", "build", "plan"),
    *("limits", "rules", "pipeline", "environment", "builds"),
)  # what a result repeats of its attempt
_OF_RESULT: Final = ("artifact", "target", "block", "revision", "title")  # what a promote repeats of its result
_OF_VOIDED: Final = ("artifact", "target", "block", "revision")


def record(house: House, book: Sequence[Record], stood: Sequence[Stood], made: Record) -> None:
    """Everything that the record claims, derived again; `stood` is `protocol.stood` of the book.

    Raises LedgerError or ArchiveError.
    """
    _RULES[type(made)](house, book, stood, made)


def read_plan(house: House, made: Attempt | Result) -> Plan:
    """The archived plan of a record. Raises ArchiveError."""
    return _read_plan(house, made)[0]


def read_evidence(house: House, made: Result) -> Evidence:
    """The archived evidence of a result. Raises ArchiveError."""
    return _read(house, made.evidence, _evidence_of, "evidence")


def broken(house: House, made: Record, what: str) -> LedgerError:
    """The error for a record that does not hold."""
    return LedgerError(house.ledger.path(made.sequence), what, _RESTORE)


def _attempt(house: House, book: Sequence[Record], stood: Sequence[Stood], made: Record) -> None:
    assert isinstance(made, Attempt)
    plan = read_plan(house, made)
    told = {
        "sequence": (made.sequence, plan.sequence),
        "target": (made.target, plan.target),
        "block": (made.block, plan.block),
        "revision": (made.revision, plan.revision),
        "artifact": ((made.artifact.name, made.artifact.sha256), (plan.artifact, plan.artifacts[CANDIDATE])),
        "baseline": (made.baseline, plan.baseline),
        "rules": (made.rules, plan.rules),
        "pipeline": (made.pipeline.sha256, plan.pipeline),
    }
    _equal(house, made, told, "is not what its plan says")
    at = stood[made.sequence - 1]
    if (made.baseline, made.revision) != (protocol.baseline_row(at.here), at.revision):
        raise broken(house, made, "its baseline or revision is not what the target stood at")


def _result(house: House, book: Sequence[Record], stood: Sequence[Stood], made: Record) -> None:
    assert isinstance(made, Result)
    attempt = _referred(house, book, made, made.attempt, Attempt)
    told = {name: (getattr(made, name), getattr(attempt, name)) for name in _OF_ATTEMPT}
    told["source"] = (dataclasses.replace(made.source, archive=None, large=()), attempt.source)
    _equal(house, made, told, f"is not what attempt {attempt.sequence} says")
    (plan, key), evidence = _read_plan(house, made), read_evidence(house, made)
    try:
        decision = protocol.judge(plan, evidence, key=key)
    except ValueError as error:
        raise broken(house, made, f"its evidence cannot be judged: {error}") from None
    told = {f.name: (getattr(made, f.name), getattr(decision, f.name)) for f in dataclasses.fields(decision)}
    told |= {"machine": (made.machine, evidence.machine), "time": (made.time, evidence.time)}
    _equal(house, made, told, "does not follow from its plan and evidence")
    kept = _kept(house, made, plan)
    _source(house, made, kept)
    _plan(house, book[: attempt.sequence - 1], stood[attempt.sequence - 1].here, made, plan, kept)
    _sizes(house, made, plan)


def _promote(house: House, book: Sequence[Record], stood: Sequence[Stood], made: Record) -> None:
    assert isinstance(made, Promote)
    result = _referred(house, book, made, made.result, Result)
    if result.verdict != "landed":
        raise broken(house, made, f"result {result.sequence} did not land")
    told = {name: (getattr(made, name), getattr(result, name)) for name in _OF_RESULT}
    _equal(house, made, told, f"is not what result {result.sequence} says")


def _void(house: House, book: Sequence[Record], stood: Sequence[Stood], made: Record) -> None:
    assert isinstance(made, Void)
    voided = _referred(house, book, made, made.voids, Record)
    told = {name: (getattr(made, name), getattr(voided, name)) for name in _OF_VOIDED}
    _equal(house, made, told, f"is not what record {voided.sequence} says")


_RULES: Final[Mapping[type[Record], Callable[[House, Sequence[Record], Sequence[Stood], Record], None]]] = {
    Attempt: _attempt,
    Result: _result,
    Promote: _promote,
    Void: _void,
}


@dataclass(frozen=True, slots=True)
class _Kept:
    """The archived source of a result, read by the manifest that lies in it."""

    files: Tree
    subject: Subject
    target: Target
    block: Block


def _kept(house: House, made: Result, plan: Plan) -> _Kept:
    """The archived source, which is the tree that was proved."""
    archive = made.source.archive
    if archive is None:
        raise broken(house, made, "it names no source")
    files = tree.untar(house.baselines.fetch(archive.sha256), house.baselines.fetch)
    if {file.path: (file.sha256, file.mode) for file in files.files} != plan.tree(CANDIDATE):
        raise broken(house, made, "its archived source is not the tree that was proved")
    text = next((file.data for file in files.files if file.path == manifest.MANIFEST), b"")
    try:
        subject = manifest.parse(text, folder=files.folder)
        return _Kept(files, subject, subject.target(made.target), subject.block(made.block))
    except LandingError as error:
        raise broken(house, made, f"its archived source has another manifest: {error.what}") from None


def _source(house: House, made: Result, kept: _Kept) -> None:
    """Digests and name of the source, and what its manifest says, are the record's."""
    source, subject = made.source, kept.subject
    sources, tools = registrar.source_digests(subject, kept.target, kept.files)
    told: dict[str, tuple[Any, Any]] = {
        "sources": (source.sources.sha256, sources),
        "tools": (source.tools.sha256, tools),
        "large files": (source.large, tuple(Digest(sha256=file.sha256) for file in tree.large(kept.files))),
        "git tree": (source.git_tree, tree.git_name(kept.files, like=source.git_tree or "")),
        "title": (made.title, kept.block.title),
        "limits": (made.limits, kept.block.limits),
        "build command": (made.build.argv, (kept.target.build,)),
        "reproducible": (made.build.reproducible, kept.target.reproducible),
        "pinned builds": (
            [(pin.target, pin.artifact.name, pin.build.argv) for pin in made.builds or ()],
            [(other.name, other.artifact, (other.build,)) for other in subject.targets if not other.proved],
        ),
    }
    _equal(house, made, told, "is not what its archived source gives")


def _plan(
    house: House,
    before: Sequence[Record],
    here: Promote | Attempt | None,
    made: Result,
    plan: Plan,
    kept: _Kept,
) -> None:
    """The plan asks for all that its manifest and the ledger before it say is owed, and for nothing else."""
    subject, target, block = kept.subject, kept.target, kept.block
    when = {c.id: stage.when_digest(c, kept.files.files, made.build.toolchain) for c in subject.checks if c.when}
    artifact, tools = made.artifact.sha256, made.source.tools.sha256
    owed = protocol.owed(subject, target, block, before, here, artifact=artifact, tools=tools, when=when)
    _in_turn(house, before, here, made, kept)
    baseline = plan.baseline.sha256 if plan.baseline else None
    artifacts, trees = earlier(house, target, before, owed.checks)
    told: dict[str, tuple[Any, Any]] = {
        "subject": ((plan.subject, plan.folder, plan.needs), (subject.name, subject.folder, target.needs)),
        "identity": (plan.identity, owed.identity),
        "baseline": (plan.artifacts.get("baseline"), baseline),
        "earlier artifacts": ({word: held for word, held in plan.artifacts.items() if ":" in word}, artifacts),
        "earlier tools": ({word: held for word, held in plan.trees.items() if ":" in word}, trees),
        "checks": (plan.checks, owed.checks),
        "green": (plan.green, owed.green),
        "when": (plan.when, owed.when),
        "mutants": (_named(plan.mutants), [(m.name, m.neutral, m.caught_by) for m in owed.mutants]),
        "planted faults": (_planted(plan), _faults(plan, owed.mutants, kept.files)),
        "jobs": (plan.jobs, protocol.plan_jobs(owed.checks, plan.mutants, green=owed.green, short=False)),
        "benches": (plan.benches, owed.benches),
        "figures": (plan.figures, owed.figures),
        "inputs": (plan.inputs, inputs(subject, kept.files)),
        "numbers": ((plan.alpha_ppm, plan.margin_ppm), (subject.alpha_ppm, target.margin_ppm)),
        "gate": (plan.gate, owed.gate),
        "dropped": (plan.dropped, owed.dropped if plan.dropped or not owed.dropped or not _stood(before, made) else ()),
    }
    _equal(house, made, told, "is not what its source and the ledger ask of its plan")


def _stood(before: Sequence[Record], made: Result) -> bool:
    """True if this very artifact was promoted on this target before: then the landing may be a way back."""
    promotes = (record for record in before if isinstance(record, Promote) and record.target == made.target)
    return any(promote.artifact.sha256 == made.artifact.sha256 for promote in promotes)


def _in_turn(house: House, before: Sequence[Record], here: Promote | Attempt | None, made: Result, kept: _Kept) -> None:
    """The block is the next one, the same one, or one back with an artifact that stood there before."""
    names = [block.name for block in kept.subject.blocks_of(made.target)]
    at = names.index(here.block) if here and here.block in names else -1
    step = names.index(made.block) - at if made.block in names else 0
    if not (step in (0, 1) or (step == -1 and _stood(before, made))) or (here is None and step != 1):
        raise broken(house, made, f"block {made.block} was not in turn")


def _named(mutants: Sequence[PlannedMutant]) -> list[tuple[str, bool, tuple[str, ...]]]:
    return [(mutant.name, mutant.neutral, mutant.caught_by) for mutant in mutants]


def _planted(plan: Plan) -> dict[str, tuple[tuple[str, str, int], ...]]:
    names = [mutant.name for mutant in plan.mutants if mutant.set_up is None]
    return {name: plan.trees[name].files for name in names if name in plan.trees}


def _faults(plan: Plan, mutants: Sequence[Mutant], files: Tree) -> dict[str, tuple[tuple[str, str, int], ...]]:
    """What each planted fault must have changed: one file."""
    made: dict[str, tuple[tuple[str, str, int], ...]] = {}
    sound = {mutant.name for mutant in plan.mutants if mutant.set_up is None}
    for mutant in (mutant for mutant in mutants if mutant.name in sound):
        changed = next(file for file in build.mutate(files.files, mutant) if file.path == mutant.file)
        made[mutant.name] = ((changed.path, changed.sha256, changed.mode),)
    return made


def _sizes(house: House, made: Result, plan: Plan) -> None:
    """The sizes are the archived artifacts'; those of a candidate that did not land stay a claim."""
    folder = house.baselines.folder
    before = _measured(folder, plan.baseline.sha256) if plan.baseline else None
    if made.verdict == "landed":
        wanted = sizes.changes(before, _measured(folder, made.artifact.sha256))
        same = made.sizes == sizes.told(wanted, rules=plan.rules)
    else:
        same = sizes.stems_from(made.sizes, before)
    if not same:
        raise broken(house, made, "its sizes are not those of the archived artifacts")


@functools.lru_cache(maxsize=64)
def _measured(folder: Path, digest: str) -> sizes.Sizes:
    """Of an object of an archive, whose name is its content."""
    kept = Baselines(folder)
    return sizes.of(kept.path_of(digest), kept.fetch(digest))


def _read_plan(house: House, made: Attempt | Result) -> tuple[Plan, str]:
    """The plan, and the digest of its bytes, by which evidence names it."""
    return _read(house, made.plan, _plan_of, "plan")


@functools.lru_cache(maxsize=4)  # an attempt's plan is its result's, and comes up again at once
def _plan_of(squeezed: bytes) -> tuple[Plan, str]:
    data = kit.unsqueeze(squeezed)
    return kit.read_plan(data), canonical.sha256(data)


def _evidence_of(squeezed: bytes) -> Evidence:
    return kit.evidence_of(kit.unsqueeze(squeezed))


def _read(house: House, named: Digest, read: Callable[[bytes], T], noun: str) -> T:
    try:
        return read(house.baselines.fetch(named.sha256))
    except (ValueError, lzma.LZMAError) as error:
        raise ArchiveError(house.baselines.path_of(named.sha256), f"is no {noun}: {error}", _RESTORE) from None


def _referred(house: House, book: Sequence[Record], made: Record, sequence: int, kind: type[R]) -> R:
    found = book[sequence - 1] if 0 < sequence < made.sequence else None
    if not isinstance(found, kind):
        raise broken(house, made, f"it refers to record {sequence}, which is no earlier {kind.__name__.lower()}")
    return found


def _equal(house: House, made: Record, told: Mapping[str, tuple[Any, Any]], otherwise: str) -> None:
    """Raises LedgerError that names the first row whose two sides differ."""
    for name, (said, derived) in told.items():
        if said != derived:
            raise broken(house, made, f"what it says of its {name} {otherwise}")
