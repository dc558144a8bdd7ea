"""What a plan names, while it is gathered: trees, artifacts by placeholder, inputs, every byte by digest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipeline import canonical, durable, kit, placeholders, protocol
from pipeline.build import Built
from pipeline.errors import ManifestError, UsageError
from pipeline.house import House
from pipeline.proof import CANDIDATE, PlannedMutant, Tree
from pipeline.records import Attempt, Promote, Record
from pipeline.source import Source
from pipeline.subject import Block, Check, Mutant, Subject, Target, matches, shown
from pipeline.tree import SourceFile, untar
from pipeline.tree import Tree as Files


@dataclass(slots=True)
class Cargo:
    """Grows by what is added, and only by that."""

    trees: dict[str, Tree] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)

    def add_tree(self, name: str, files: Iterable[SourceFile], over: str | None = None) -> None:
        """Adds a tree, or what it changes over another."""
        files = tuple(files)
        self.trees[name] = _tree(files, over)
        self.objects |= {file.sha256: file.data for file in files}

    def add_artifact(self, name: str, data: bytes) -> None:
        """Adds an artifact under the word that stands for it."""
        self.artifacts[name] = canonical.sha256(data)
        self.objects[self.artifacts[name]] = data

    def add_mutants(
        self, taken: Source, planted: Iterable[tuple[Mutant, tuple[SourceFile, ...], Built | str]]
    ) -> tuple[PlannedMutant, ...]:
        """Adds trees and artifacts of the mutants that could be planted; returns all as a plan names them."""
        made = []
        for mutant, files, got in planted:
            if isinstance(got, Built):
                self.add_artifact(mutant.name, durable.read(got.path))
                self.add_tree(mutant.name, [file for file in files if file not in taken.files], over=CANDIDATE)
            set_up = got if isinstance(got, str) else None
            made.append(
                PlannedMutant(name=mutant.name, neutral=mutant.neutral, caught_by=mutant.caught_by, set_up=set_up)
            )
        return tuple(made)

    def add_earlier(
        self, house: House, target: Target, book: Sequence[Record], commands: Iterable[Sequence[str]]
    ) -> None:
        """Adds what {archive:BLOCK}, {tools:BLOCK} and {candidate:TARGET} stand for. Raises UsageError."""
        for word in _earlier_words(commands):
            found = _earlier(book, target.name, word)
            if found is None:
                kind, _, name = word.partition(":")
                what, on = ("nothing", name) if kind == "candidate" else (name, target.name)
                raise UsageError(f"{{{word}}}", f"{what} has not landed on {on}", "land that first")
            if isinstance(found, Attempt):
                carried = kit.load(house.workspace(f"{found.sequence:06d}") / "kit")
                self.add_artifact(word, carried.objects[found.artifact.sha256])
            elif word.startswith("tools:"):
                self.add_tree(word, _tools(house, book, found))
            else:
                self.add_artifact(word, house.baselines.fetch(found.artifact.sha256))


def earlier(
    house: House, target: Target, book: Sequence[Record], checks: Iterable[Check]
) -> tuple[dict[str, str], dict[str, Tree]]:
    """Artifacts and trees that `add_earlier` gives a plan by these records, by word. Raises ArchiveError."""
    artifacts, trees = {}, {}
    for word in _earlier_words(argv for check in checks for argv in check.commands(teeth=False)):
        found = _earlier(book, target.name, word)
        if isinstance(found, Promote) and word.startswith("tools:"):
            trees[word] = _tree(_tools(house, book, found), None)
        elif found is not None:
            artifacts[word] = found.artifact.sha256
    return artifacts, trees


def _earlier_words(commands: Iterable[Sequence[str]]) -> list[str]:
    """The placeholders of some commands that stand for what landed before, sorted, each once."""
    words = {word for argv in commands for word in placeholders.words(argv) if ":" in word}
    return sorted(word for word in words if not word.startswith("input:"))


def _earlier(ledger: Sequence[Record], target: str, word: str) -> Attempt | Promote | None:
    """What {archive:BLOCK}, {tools:BLOCK} or {candidate:TARGET} stands for after these records: the newest promote.

    For {archive:BLOCK} an attempt that waits for evidence comes first: if it does not land, nor does what is behind it.
    """
    kind, _, name = word.partition(":")
    on, block = (name, None) if kind == "candidate" else (target, name)
    waiting = [a for a in protocol.open_attempts(ledger, on) if kind == "archive" and a.block == block]
    landed = [r for r in ledger if isinstance(r, Promote) and r.target == on and block in (None, r.block)]
    return waiting[-1] if waiting else landed[-1] if landed else None


def _tools(house: House, book: Sequence[Record], landed: Promote) -> tuple[SourceFile, ...]:
    archive = protocol.result_of(book, landed).source.archive
    assert archive is not None
    return untar(house.baselines.fetch(archive.sha256), house.baselines.fetch).files


def _tree(files: Iterable[SourceFile], over: str | None) -> Tree:
    return Tree(files=tuple((file.path, file.sha256, file.mode) for file in files), over=over)


def require_hashed(subject: Subject, target: Target, block: Block, taken: Files) -> None:
    """Raises ManifestError for what a proof reads and no digest holds: it could change, and every check stay green.

    That is a `when` that names no file, and an input or a command's own file that is neither a source nor a tool.
    """
    globs = (*subject.sources_of(target), *subject.tools)
    for check in subject.checks_at(target.name, block.name):
        for glob in check.when:
            if not any(matches(file.path, (glob,)) for file in taken.files):
                where = f"check.{check.id}.when: {shown(glob)} names no file"
                raise ManifestError(subject.where, where, "correct it: the check would never run again")
    commands = [argv for check in subject.checks for argv in check.commands(teeth=False)]
    commands += [target.build, *(bench.command for bench in subject.benches), *(one.command for one in subject.figures)]
    words = {word for argv in commands for word in argv} | {f"{taken.folder}/{row.path}" for row in subject.inputs}
    for file in taken.files:
        if f"{taken.folder}/{file.path}" in words and not matches(file.path, globs):
            where = f"tools: {shown(file.path)} is read by a command, and is no source and no tool"
            raise ManifestError(subject.where, where, "add it: what a proof reads is part of it")


def inputs(subject: Subject, taken: Files) -> dict[str, tuple[str, str, str]]:
    """Name of an input to its file's name, digest and origin."""
    files = {file.path: file for file in taken.files}
    made = {}
    for row in subject.inputs:
        if row.path not in files:
            raise UsageError(
                f"input {row.name}", f"{row.path} is not in the subject's tree", "add it to git, or correct its path"
            )
        made[row.name] = (row.path.rsplit("/", 1)[-1], files[row.path].sha256, row.origin)
    return made
