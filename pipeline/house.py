"""Where things are: the subject's folder, the root that holds ledger/ and baselines/, and the repository around them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline import canonical, commands, manifest
from pipeline.baselines import Baselines
from pipeline.claims import without_folders
from pipeline.errors import UsageError
from pipeline.ledger import LOCK_FOLDER, Ledger
from pipeline.source import Repository
from pipeline.subject import Subject

WORKSPACE: Final = LOCK_FOLDER
Say = Callable[[str], None]  # takes one line of what a walk does


@dataclass(frozen=True)
class House:
    """One subject and one ledger. Nothing is read before it is asked for."""

    folder: Path
    root: Path

    @functools.cached_property
    def subject(self) -> Subject:
        return manifest.load(self.folder)

    @functools.cached_property
    def repository(self) -> Repository:
        return Repository(self.folder)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.root / "ledger")

    @property
    def baselines(self) -> Baselines:
        return Baselines(self.root / "baselines")

    def workspace(self, name: str) -> Path:
        """A folder for one walk, beside the ledger and outside every tree that is landed. Git does not see it."""
        top = self.root / WORKSPACE
        top.mkdir(parents=True, exist_ok=True)
        if not (top / ".gitignore").exists():
            (top / ".gitignore").write_text("*\n")
        return top / name


def find(subject: str, root: str | None) -> House:
    """The house of a command line. Raises UsageError if a folder is not there."""
    folder = Path(subject).absolute()
    if not folder.is_dir():
        raise UsageError(subject, "there is no such folder", "give the subject's folder with --subject")
    top = Path(root).absolute() if root else Repository(folder).top
    if not top.is_dir():
        raise UsageError(str(root), "there is no such folder", "give the folder that holds ledger/ and baselines/")
    return House(folder=folder, root=top)


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
