"""Where things are: the subject's folder, the root of ledger/ and baselines/, and the repository around them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline import canonical, commands, ledger, manifest
from pipeline.baselines import Baselines
from pipeline.claims import without_folders
from pipeline.errors import UsageError
from pipeline.ledger import Ledger
from pipeline.records import Record
from pipeline.source import Repository, top_of
from pipeline.subject import Subject, shown

Say = Callable[[str], None]  # takes one line of what a walk does


@dataclass(frozen=True)
class House:
    """One subject and one ledger. Nothing is read before it is asked for."""

    folder: Path
    root: Path
    at: str | None = None  # the commit whose landing.toml counts; None: the working tree's

    @functools.cached_property
    def subject(self) -> Subject:
        """What landing.toml says. Raises ManifestError, and UsageError for a commit that has none."""
        if self.at is None:
            return manifest.load(self.folder)
        data = self.repository.committed(self.folder / manifest.MANIFEST, self.at)
        if data is None:
            raise UsageError(self.at, f"has no {self.folder.name}/{manifest.MANIFEST}", "name a commit that has")
        return manifest.parse(data, folder=self.folder.name)

    @functools.cached_property
    def repository(self) -> Repository:
        """The git repository around the subject. Raises UsageError if there is none."""
        return Repository(self.folder)

    @property
    def ledger(self) -> Ledger:
        """The records below the root."""
        return Ledger(self.root / "ledger")

    @property
    def baselines(self) -> Baselines:
        """The artifacts below the root."""
        return Baselines(self.root / "baselines")

    def book(self) -> tuple[Record, ...]:
        """Every record, verified, and all that HEAD holds is there: a chain cannot see its own end cut off or forged.

        Raises LedgerError, HistoryError.
        """
        made = self.ledger.read()
        self.require_kept()
        return made

    def require_kept(self) -> None:
        """Raises HistoryError unless every record and archived object that HEAD holds is there as it was."""
        if self.root.is_relative_to(self.repository.top):
            self.repository.require_kept([self.ledger.folder, self.baselines.objects_folder])

    def workspace(self, name: str) -> Path:
        """A folder for one walk, beside the ledger and outside every tree that is landed. Git does not see it."""
        return ledger.workspace(self.root) / name


def find(subject: str, root: str | None) -> House:
    """The house of a command line. Raises UsageError if a folder is not there."""
    folder = _folder(subject, "give the subject's folder with --subject")
    if root is None:
        return House(folder=folder, root=top_of(folder))
    return House(folder=folder, root=_folder(root, "give the folder that holds ledger/ and baselines/").resolve())


def _folder(name: str, todo: str) -> Path:
    """A folder that is there, by a name that is one. Raises UsageError."""
    folder = Path(name).absolute()
    try:
        found = bool(name) and folder.is_dir()
    except OSError:  # a name that no file can have
        found = False
    if not found:
        raise UsageError(shown(name), "there is no such folder", todo)
    return folder


@functools.cache
def pipeline_digest() -> str:
    """The digest of this pipeline's own text: [[file name, digest], …] of its modules."""
    here = Path(__file__).parent
    rows = [[path.name, canonical.sha256(path.read_bytes())] for path in sorted(here.glob("*.py"))]
    return canonical.sha256(canonical.dumps(rows))


def environment() -> dict[str, str]:
    """The variables of this process that change what a program does, for the record; no other is ever recorded."""
    return {name: without_folders(os.environ[name]) for name in commands.noted(os.environ)}


def command_line() -> tuple[str, ...]:
    """How this process was called, without the machine's paths."""
    return ("python", "-m", "pipeline", *(without_folders(word) for word in sys.argv[1:]))
