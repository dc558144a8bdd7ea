"""What a plan names, while it is gathered: trees, artifacts by placeholder, inputs, every byte by digest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipeline import canonical, durable, kit, placeholders, protocol
from pipeline.build import Built
from pipeline.errors import UsageError
from pipeline.house import House
from pipeline.proof import CANDIDATE, PlannedMutant, Tree
from pipeline.records import Promote, Record
from pipeline.source import Source
from pipeline.subject import Mutant, Subject, Target
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
        self.trees[name] = Tree(files=tuple((file.path, file.sha256, file.mode) for file in files), over=over)
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
        for word in sorted({word for argv in commands for word in placeholders.words(argv) if ":" in word}):
            kind, _, name = word.partition(":")
            if kind == "input":
                continue
            on, block = (name, None) if kind == "candidate" else (target.name, name)
            landed = [r for r in book if isinstance(r, Promote) and r.target == on and block in (None, r.block)]
            waiting = [a for a in protocol.open_attempts(book, on) if kind == "archive" and a.block == block]
            if waiting:  # for evidence: if it does not land, neither does what comes behind it
                carried = kit.load(house.workspace(f"{waiting[-1].sequence:06d}") / "kit")
                self.add_artifact(word, carried.objects[waiting[-1].artifact.sha256])
                continue
            if not landed:
                raise UsageError(f"{{{word}}}", f"{block or 'nothing'} has not landed on {on}", "land that first")
            if kind == "tools":
                archive = protocol.result_of(book, landed[-1]).source.archive
                assert archive is not None
                self.add_tree(word, untar(house.baselines.fetch(archive.sha256), house.baselines.fetch).files)
            else:
                self.add_artifact(word, house.baselines.fetch(landed[-1].artifact.sha256))


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
