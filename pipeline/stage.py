"""Sources to everything that a plan needs: baseline, candidate and mutants are built, trees and objects gathered.

Nothing is measured here and nothing permanent is written. All builds happen in copies below the workspace.
"""

from __future__ import annotations

import dataclasses
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline import canonical, claims, durable, protocol, workshop
from pipeline.build import Built
from pipeline.cargo import Cargo, inputs, require_hashed
from pipeline.claims import Digest, Pinned, Tool
from pipeline.errors import UsageError
from pipeline.house import House, Say, pipeline_digest
from pipeline.proof import CANDIDATE, Plan
from pipeline.protocol import Owed, Step
from pipeline.records import Attempt, Promote, Record, Result
from pipeline.source import Source
from pipeline.subject import Block, Check, Target, matches
from pipeline.tree import SourceFile

INCREMENT_MAX: Final = 20  # commits that a record lists
# Options that exclude each other: an attempt that goes on was asked for before, and what is carried away is no trial.
APART: Final[Mapping[str, tuple[str, ...]]] = {
    "resume": ("dry_run", "check", "revert", "toolchain"),
    "evidence": ("dry_run", "check", "revert", "toolchain", "kit"),
    "kit": ("dry_run", "check"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a command line asks of the walk."""

    block: str | None = None
    target: str | None = None
    at: str | None = None
    dry_run: bool = False
    kit: Path | None = None
    evidence: Path | None = None
    resume: int | None = None
    revert: int | None = None
    toolchain: bool = False
    check: str | None = None
    quick: bool = False  # checks in their teeth form, no mutants, nothing timed: for the tour
    own: bool = False  # the checks alone that came with the block, if any did

    def __post_init__(self) -> None:
        given = [field.name for field in dataclasses.fields(self) if getattr(self, field.name) not in (None, False)]
        for name in given:
            for other in APART.get(name, ()):
                if other in given:
                    one, two = (f"--{word.replace('_', '-')}" for word in (name, other))
                    raise UsageError(one, f"and {two} exclude each other", "give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A plan with the bytes that it names. `proof` is the promote that the tree already is, 0 if it is none."""

    plan: Plan
    block: Block
    taken: Source
    built: Built
    objects: Mapping[str, bytes]
    increment: tuple[str, ...]
    build: claims.Build
    builds: tuple[Pinned, ...] | None
    proof: int

    def source_row(self) -> claims.Source:
        """What a record says of the source."""
        return claims.Source(
            sources=Digest(sha256=self.taken.sources),
            tools=Digest(sha256=self.taken.tools),
            git_tree=self.taken.git_tree,
            git_commit=self.taken.commit,
            increment=self.increment,
        )


def stage(
    house: House,
    target: Target,
    book: Sequence[Record],
    ask: Ask,
    taken: Source,
    here: Promote | Attempt | None,
    baseline: bytes | None,
    say: Say,
) -> Staged:
    """Builds what the next landing compares with `here`, whose artifact is `baseline`.

    Raises UsageError, BuildError, ToolchainMoved, ManifestError.
    """
    before = protocol.result_of(book, here) if isinstance(here, Promote) else None
    step = (
        protocol.choose(house.subject, target, book, here, ask.block)
        if ask.revert is None
        else _reverted(house, target, book, ask.revert)
    )
    room = house.workspace("stage")
    shutil.rmtree(room, ignore_errors=True)
    known = None if ask.toolchain else before
    unchanged = known is not None and _unchanged(known, taken)
    if known is not None and not unchanged:
        workshop.build_baseline(house, target, known, room / "baseline", say)
    built = workshop.build_candidate(house, target, taken, room / "candidate", say, live=ask.at is None)
    if known is not None and unchanged and built.sha256 != known.artifact.sha256:
        workshop.build_baseline(house, target, known, room / "baseline", say)  # did the toolchain move?
    _as_asked(ask, before, taken, built, book)
    identity = here is not None and built.sha256 == here.artifact.sha256
    proof = _proof(ask, here, before, step, taken) if identity and isinstance(here, Promote) else 0
    builds = None if proof or ask.quick or ask.check else workshop.pin(house, taken, room / "pinned", say)
    cargo = Cargo()
    cargo.add_tree(CANDIDATE, taken.files)
    cargo.add_artifact(CANDIDATE, durable.read(built.path))
    if baseline is not None:
        cargo.add_artifact("baseline", baseline)
    plan = _plan(house, target, book, ask, step, taken, built, here, cargo, proof=proof)
    shutil.rmtree(room, ignore_errors=True)
    older = here if isinstance(here, Attempt) else before
    head = taken.commit or house.repository.head()
    increment = house.repository.commits_between(older.source.git_commit, head, house.folder) if older and head else ()
    return Staged(
        plan=plan,
        block=step.block,
        taken=taken,
        built=built,
        objects=cargo.objects,
        increment=increment[:INCREMENT_MAX],
        build=workshop.build_row(built, target),
        builds=builds,
        proof=proof,
    )


def _plan(
    house: House,
    target: Target,
    book: Sequence[Record],
    ask: Ask,
    step: Step,
    taken: Source,
    built: Built,
    here: Promote | Attempt | None,
    cargo: Cargo,
    *,
    proof: int,
) -> Plan:
    subject, block = house.subject, step.block
    require_hashed(subject, target, block, taken)
    when = {c.id: when_digest(c, taken.files, built.toolchain) for c in subject.checks if c.when}
    owed = protocol.owed(subject, target, block, book, here, artifact=built.sha256, tools=taken.tools, when=when)
    if ask.check is not None:
        owed = _narrowed(owed, ask.check, block)
    if ask.own:
        owed = dataclasses.replace(owed, checks=tuple(c for c in owed.checks if c.since == block.name) or owed.checks)
    wanted = () if ask.quick else owed.mutants
    made = workshop.build_mutants(house, target, taken, built, wanted, house.workspace("stage") / "mutants")
    mutants = cargo.add_mutants(taken, ((mutant, *rest) for mutant, rest in zip(wanted, made, strict=True)))
    cargo.add_earlier(house, target, book, [argv for c in owed.checks for argv in c.commands(teeth=False)])
    return dataclasses.replace(
        blank(house, target, block, cargo, taken, owed.checks),
        sequence=len(book) + 1,
        revision=step.revision,
        baseline=owed.baseline,
        identity=owed.identity,
        mutants=mutants,
        jobs=protocol.plan_jobs(owed.checks, mutants, green=owed.green, short=bool(proof) or ask.quick),
        green=owed.green,
        when=owed.when,
        dropped=() if ask.revert else owed.dropped,
        benches=() if ask.quick else owed.benches,
        figures=() if ask.quick else owed.figures,
        gate="regression" if ask.quick else owed.gate,
    )


def _narrowed(owed: Owed, name: str, block: Block) -> Owed:
    """One check and its mutants alone, untimed: for a dry run."""
    checks = tuple(check for check in owed.checks if check.id == name)
    if not checks:
        todo = f"run one of: {', '.join(check.id for check in owed.checks)}"
        raise UsageError(f"check {name}", f"does not run on {block.name}", todo)
    mutants = protocol.biting(owed.mutants, checks, owed.green)
    return dataclasses.replace(
        owed, checks=checks, mutants=mutants, dropped=(), benches=(), figures=(), gate="regression"
    )


def blank(house: House, target: Target, block: Block, cargo: Cargo, taken: Source, checks: tuple[Check, ...]) -> Plan:
    """A plan over some checks that runs nothing yet: no job, mutant or bench."""
    return Plan(
        sequence=0,
        subject=house.subject.name,
        folder=house.subject.folder,
        target=target.name,
        needs=target.needs,
        block=block.name,
        revision=0,
        artifact=target.artifact,
        baseline=None,
        identity=False,
        trees=cargo.trees,
        artifacts=cargo.artifacts,
        inputs=inputs(house.subject, taken),
        checks=checks,
        mutants=(),
        jobs=(),
        green={},
        when={},
        dropped=(),
        benches=(),
        figures=(),
        seed=secrets.randbits(62),
        alpha_ppm=house.subject.alpha_ppm,
        margin_ppm=target.margin_ppm,
        gate="regression",
        rules=protocol.RULES,
        pipeline=pipeline_digest(),
    )


def _proof(ask: Ask, here: Promote | None, before: Result | None, step: Step, taken: Source) -> int:
    """The promote that an identical tree already is; 0 if a landing was asked for that has something to record."""
    if here is None or before is None or ask.revert is not None or step.block.name != here.block:
        return 0
    recorded = (before.source.sources.sha256, before.source.tools.sha256) == (taken.sources, taken.tools)
    return here.sequence if recorded or ask.block is None else 0


def _reverted(house: House, target: Target, book: Sequence[Record], sequence: int) -> Step:
    """The step of going back to an earlier promote. Raises UsageError unless it is at most one block back."""
    found = next(
        (r for r in book if isinstance(r, Promote) and r.sequence == sequence and r.target == target.name), None
    )
    here = protocol.standing(book, target.name)
    if found is None or here is None or found.sequence == here.sequence:
        choices = ", ".join(
            str(r.sequence) for r in book if isinstance(r, Promote) and r.target == target.name and r != here
        )
        raise UsageError(
            f"--revert {sequence}",
            f"is no earlier promote of {target.name}",
            f"choose one of: {choices or 'there is none'}",
        )
    names = [block.name for block in house.subject.blocks_of(target.name)]
    for name in (here.block, found.block):
        house.subject.block(name)
    if abs(names.index(here.block) - names.index(found.block)) > 1:
        raise UsageError(
            f"--revert {sequence}", f"goes back more than one block from {here.block}", "go back block by block"
        )
    revision = protocol.revision(book, target.name, found.block)
    return Step(block=house.subject.block(found.block), revision=revision)


def _as_asked(ask: Ask, before: Result | None, taken: Source, built: Built, book: Sequence[Record]) -> None:
    """Raises UsageError when the tree is not what --revert or --toolchain say that it is."""
    if ask.revert is not None and built.sha256 != book[ask.revert - 1].artifact.sha256:
        raise UsageError(
            f"--revert {ask.revert}",
            f"the tree builds to {built.sha256}, that record promoted {book[ask.revert - 1].artifact.sha256}",
            "git revert the commits since then first",
        )
    if ask.toolchain and (before is None or not _unchanged(before, taken)):
        raise UsageError(
            "--toolchain", "moves the toolchain alone, and the sources changed too", "land the sources apart"
        )


def _unchanged(before: Result, taken: Source) -> bool:
    return before.source.sources.sha256 == taken.sources


def when_digest(check: Check, files: Sequence[SourceFile], toolchain: Sequence[Tool]) -> str:
    """What a check with `when` depends on: those files, the toolchain, and all that the manifest says of the check."""
    rows = [[file.path, file.sha256] for file in files if matches(file.path, check.when)]
    tools = [[tool.name, tool.digest] for tool in toolchain]
    return canonical.sha256(canonical.dumps([rows, tools, canonical.plain(check)]))
