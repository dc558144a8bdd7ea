"""The only writer of baselines/: the archive, to which things are only ever added, and the two views made from it.

`archive/<sha256>` holds every artifact, source tar, plan and evidence that a record names. `current/<target>/` and
`previous/<target>/` each hold one artifact alone and can be made again from the archive at any time. Nothing here is
believed for its name, size or time: bytes are hashed whenever they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipeline import canonical, durable
from pipeline.errors import ArchiveError, BaselineMismatch, UsageError

CURRENT: Final = "current"
PREVIOUS: Final = "previous"
NAME_BYTES_MAX: Final = 255
_RESTORE = "find out who changed it, then `python -m pipeline restore`"
_GIT = "restore baselines/archive/ from git"


class Baselines:
    """One baselines folder. A folder that is not there holds nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects_folder = folder / "archive"

    def view(self, view: str, target: str) -> Path:
        """The folder of `current` or `previous` of a target."""
        return self.folder / view / _plain(self.folder / view, target)

    def look(self, target: str, *, view: str = CURRENT) -> tuple[str, str] | None:
        """Name and digest of the one artifact in a view; None if the folder is not there, or is empty.

        Raises BaselineMismatch for a link, a FIFO, a folder in its place, a second file.
        """
        found = self._artifact(self.view(view, target))
        return found and (found[0], canonical.sha256(found[1]))

    def snapshot(self, target: str, *, artifact_name: str, digest: str, into: Path) -> Path:
        """A copy of the current artifact in the folder `into`, itself hashed: what the walk may run.

        Raises BaselineMismatch, which names the file and both digests, unless `current` holds this artifact alone.
        """
        folder = self.view(CURRENT, target)
        path = folder / _plain(folder, artifact_name)
        found = self._artifact(folder)
        if found is None or found[0] != artifact_name:
            instead = "nothing is there" if found is None else f"{found[0]} {canonical.sha256(found[1])} is there"
            raise BaselineMismatch(path, f"is missing; {instead}, promoted was {digest}", _RESTORE)
        copy = into / artifact_name
        durable.make_folder(into)
        durable.replace(copy, found[1])
        actual = canonical.sha256(durable.read(copy))
        if actual != digest:
            raise BaselineMismatch(path, f"is {actual}, promoted was {digest}", _RESTORE)
        return copy

    def archive(self, data: bytes) -> str:
        """The digest of `data`, which the archive now holds. For the holder of the lock.

        Raises ArchiveError if the archive holds something else for it.
        """
        digest = canonical.sha256(data)
        path = self.path_of(digest)
        _make_own(self.objects_folder, ArchiveError, _GIT)
        durable.sweep(self.objects_folder)
        if not os.path.lexists(path):
            with suppress(FileExistsError):
                durable.create_once(path, data)
        self.fetch(digest)
        return digest

    def fetch(self, digest: str) -> bytes:
        """The bytes of an object, hashed again. Raises ArchiveError if it is missing, or not what its name says."""
        path = self.path_of(digest)
        try:
            data = durable.read(path)
        except FileNotFoundError:
            raise ArchiveError(path, "is missing", _GIT) from None
        except ValueError as error:
            raise ArchiveError(path, str(error), _GIT) from None
        actual = canonical.sha256(data)
        if actual != digest:
            raise ArchiveError(path, f"holds {actual}, not {digest}", _GIT)
        return data

    def path(self, digest: str) -> Path:
        """Where an object lies, after it was hashed again. Raises ArchiveError."""
        self.fetch(digest)
        return self.path_of(digest)

    def path_of(self, digest: str) -> Path:
        """Where an object lies, or would; nothing is read. Raises ArchiveError for what is no digest."""
        if not canonical.is_digest(digest):
            raise ArchiveError(self.objects_folder, f"{digest[:80]!r} is no digest", "name 64 lower-case hex digits")
        return self.objects_folder / digest

    def objects(self) -> tuple[str, ...]:
        """All objects, sorted; their bytes are not read. Raises ArchiveError for a name that is no digest."""
        try:
            names = durable.names(self.objects_folder)
        except FileNotFoundError:
            return ()
        except ValueError as error:
            raise ArchiveError(self.objects_folder, str(error), _GIT) from None
        for name in names:
            if not canonical.is_digest(name):
                raise ArchiveError(self.objects_folder / name, "is no object", "move it away")
        return names

    def promote(self, target: str, *, artifact_name: str, digest: str) -> None:
        """`previous` holds what `current` held, then `current` the object `digest`; each old or new, never neither.

        Not for finishing what a crash left: `restore` is, since it is told both. Raises ArchiveError before anything
        is touched if either artifact is not in the archive; BaselineMismatch; MachineError.
        """
        old = self.look(target)
        data = self.fetch(digest)
        if old is not None:
            self._show(PREVIOUS, target, old[0], self.fetch(old[1]))
        self._show(CURRENT, target, artifact_name, data)

    def restore(
        self,
        target: str,
        *,
        artifact_name: str,
        current: str,
        previous: str | None,
        previous_name: str | None = None,
    ) -> None:
        """Both views hold these objects alone, whatever was there. A `previous` of None: there is none.

        The previous artifact's name is the current one's unless it is given. Raises ArchiveError before
        anything is touched if an object is not in the archive; MachineError.
        """
        data = self.fetch(current)
        older = None if previous is None else self.fetch(previous)
        if older is None:
            _make_own(self.folder / PREVIOUS, BaselineMismatch, "move it away")
            durable.remove(self.view(PREVIOUS, target))
        else:
            self._show(PREVIOUS, target, previous_name or artifact_name, older)
        self._show(CURRENT, target, artifact_name, data)

    def _artifact(self, folder: Path) -> tuple[str, bytes] | None:
        """Name and bytes of the one regular file in a view's folder."""
        try:
            durable.names(folder.parent)
            names = durable.names(folder)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise BaselineMismatch(folder, str(error), _RESTORE) from None
        if len(names) > 1:
            raise BaselineMismatch(folder, f"holds {', '.join(names)[:200]} where one artifact belongs", _RESTORE)
        for name in names:
            try:
                return name, durable.read(folder / name)
            except FileNotFoundError:
                raise BaselineMismatch(folder / name, "has gone while it was read", _RESTORE) from None
            except ValueError as error:
                raise BaselineMismatch(folder / name, str(error), _RESTORE) from None
        return None

    def _show(self, view: str, target: str, name: str, data: bytes) -> None:
        """The view holds this artifact alone.

        A folder that is missing or empty is replaced by a rename, an artifact of the same name by a rename inside the
        folder: both whole for any reader. Only where the artifact's name changes does the old one stay beside the new
        one for a moment, and `look` refuses that.
        """
        folder = self.view(view, target)
        path = folder / _plain(folder, name)
        durable.sweep(self.folder)
        _make_own(folder.parent, BaselineMismatch, "move it away")
        if durable.kind(folder) not in ("missing", "a folder"):
            durable.remove(folder)
        if durable.kind(path) == "a folder":
            durable.remove(path)
        staged = self.folder / durable.temporary_name()
        try:
            durable.make_folder(staged)
            durable.create_once(staged / name, data)
            durable.move_in(staged, folder, name)
        finally:
            durable.remove(staged)
        for other in os.listdir(folder):
            if other != name:
                durable.remove(folder / other)
        durable.flush_folder(folder)


def _make_own(folder: Path, error: Callable[[Path, str, str], Exception], todo: str) -> None:
    """`folder` is a real folder: a link would let another place be written to."""
    if durable.kind(folder) == "missing":
        durable.make_folder(folder)
    if durable.kind(folder) != "a folder":
        raise error(folder, f"is {durable.kind(folder)}, not a folder", todo)


def _plain(where: Path, name: str) -> str:
    """`name`, which is a single visible file name. Raises UsageError."""
    plain = name.isprintable() and "/" not in name and not name.startswith((".", "-"))
    if not plain or not 0 < len(os.fsencode(name)) <= NAME_BYTES_MAX:
        raise UsageError(where, f"{name[:80]!r} is no file name", "use letters, digits, dots, dashes")
    return name
