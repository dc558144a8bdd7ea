"""Every way the pipeline can stop, each with its exit code. Raised anywhere, caught once, in `__main__`.

A refused candidate is not an error: it is a verdict (exit code 1) and lives in `protocol`.
"""

from __future__ import annotations


class LandingError(Exception):
    """Says in one line where it happened, what is wrong, and what to do."""

    exit_code = 4

    def __init__(self, where: object, what: str, todo: str) -> None:
        super().__init__(where, what, todo)
        self.where, self.what, self.todo = str(where), what, todo

    def __str__(self) -> str:
        return f"{type(self).__name__}: {self.where}: {self.what}; {self.todo}".replace("\n", " ")


class UsageError(LandingError):
    """The command line asks for something that does not exist or may not be done now."""

    exit_code = 2


class ManifestError(UsageError):
    """landing.toml, or what it points at, is wrong."""


class IntegrityError(LandingError):
    """Stored bytes are not the bytes that were recorded."""

    exit_code = 3


class BaselineMismatch(IntegrityError):
    """The current artifact is not the one that the newest promote record names."""


class LedgerError(IntegrityError):
    """A record, or the chain of records, is broken."""


class ArchiveError(IntegrityError):
    """An archived object is missing or is not what its name says."""


class EvidenceError(IntegrityError):
    """Evidence that answers another plan, or contradicts itself."""


class HistoryError(IntegrityError):
    """A commit changed, renamed or removed a permanent file."""


class MachineError(LandingError):
    """Disk, permissions, git or a tool of this machine stands in the way; nothing was decided."""


class BuildError(MachineError):
    """The subject's build command gave no usable artifact; nothing was decided."""


class ToolchainMoved(MachineError):
    """Today's toolchain does not give a recorded artifact from its recorded source."""


class Inconclusive(LandingError):
    """A proof could not be obtained here."""

    exit_code = 5


class Busy(LandingError):
    """Another landing holds this workspace."""

    exit_code = 6


class Waiting(LandingError):
    """The walk stopped at a safe place and goes on later: evidence is awaited, or it was interrupted."""

    exit_code = 7
