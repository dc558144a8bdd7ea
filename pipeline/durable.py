"""How permanent files are made: whole, on the disk, and never over another. Knows no ledger, record or rule.

A file is written under a temporary name in its own folder, flushed, and given its name by `link()`, which fails if
the name is taken (`rename()` would overwrite). The folder is flushed last, so a name that was acknowledged survives
a power cut. A writer that is killed leaves at most one `.tmp-*` file, which readers ignore and `sweep` removes.
CPython ignores SIGXFSZ, so a file-size limit is an EFBIG here like a full disk is an ENOSPC: one MachineError.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pipeline.errors import MachineError

READ_MAX = 2**30  # bytes; an artifact is some megabytes
ROOM_BYTES = 2**20  # what is left of a disk that counts as full
TEMPORARY = ".tmp-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
)


def create_once(path: Path, data: bytes) -> None:
    """`path` holds `data`, durably, and nothing was there before.

    Raises FileExistsError if the name is taken, whatever is there; MachineError if the disk refuses, and then
    nothing is left behind.
    """
    with _machine(path), _opened(path.parent) as folder:
        with _temporary(folder, data) as name:
            os.link(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)


def replace(path: Path, data: bytes) -> None:
    """`path` holds `data`, durably; a reader saw what was there before or this, never a part. Raises MachineError."""
    with _machine(path), _opened(path.parent) as folder:
        with _temporary(folder, data) as name:
            os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)


def open_regular(path: Path) -> BinaryIO:
    """A regular file, open for reading; never waits for a FIFO, never follows a link at its end.

    Raises FileNotFoundError; ValueError that says what is there instead of such a file; MachineError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ENOTDIR):  # no file can have this name here
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ValueError(f"is {kind(path)}, not a regular file") from None
        raise machine_error(path, error) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise ValueError(f"is {_named(mode)}, not a regular file")
    return os.fdopen(descriptor, "rb")


def read(path: Path, limit: int = READ_MAX) -> bytes:
    """The bytes of a regular file of at most `limit` bytes. Raises what `open_regular` does; ValueError if larger."""
    with open_regular(path) as file, _machine(path):
        data = file.read() if os.fstat(file.fileno()).st_size <= limit else None  # a buffer as large as the file
    if data is None or len(data) > limit:
        raise ValueError(f"is larger than {limit} bytes")
    return data


def names(folder: Path) -> tuple[str, ...]:
    """What lies in a folder, sorted, without what killed writers left.

    Raises FileNotFoundError; ValueError if it is a link or no folder; MachineError.
    """
    try:
        with _opened(folder) as descriptor:
            return tuple(sorted(name for name in os.listdir(descriptor) if not name.startswith(TEMPORARY)))
    except FileNotFoundError:
        raise
    except NotADirectoryError:
        raise ValueError(f"is {kind(folder)}, not a folder") from None
    except OSError as error:
        raise machine_error(folder, error) from error


def kind(path: Path) -> str:
    """What stands at a path, in words; a link is not followed."""
    try:
        return _named(os.lstat(path).st_mode)
    except OSError:
        return "missing"


def make_folder(path: Path) -> None:
    """`path` is a real folder, and so are those above it, durably. Raises MachineError."""
    with _machine(path):
        if not os.path.lexists(path):
            if path.parent != path:
                make_folder(path.parent)
            with suppress(FileExistsError):
                path.mkdir()
            flush_folder(path.parent)
        elif not path.is_dir():
            raise MachineError(path, f"is {kind(path)} where a folder belongs", "move it away")


def flush_folder(path: Path) -> None:
    """The names in a folder are on the disk. Raises MachineError."""
    with _machine(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sweep(folder: Path) -> None:
    """What killed writers left in a folder is gone. Only for the holder of the lock. Raises MachineError."""
    with _machine(folder):
        for name in os.listdir(folder) if folder.is_dir() else ():
            if name.startswith(TEMPORARY):
                remove(folder / name)


def require_room(folder: Path) -> None:
    """There is room for `ROOM_BYTES` in a folder, so what failed there did not fail for want of it.

    Raises MachineError.
    """
    path = folder / temporary_name()
    with _machine(path):
        try:
            path.write_bytes(bytes(ROOM_BYTES))
        finally:
            path.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Nothing stands at `path`; a link is removed, not followed. Raises MachineError."""
    with _machine(path), suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def move_in(staged: Path, folder: Path, name: str) -> None:
    """`folder` holds the file `name` of the folder `staged`, durably; a reader saw the old file or the new one.

    Raises MachineError.
    """
    with _machine(folder / name):
        try:
            os.rename(staged, folder)  # where nothing is, or an empty folder
        except OSError:
            if not folder.is_dir():
                raise
            os.replace(staged / name, folder / name)
    flush_folder(folder)
    flush_folder(folder.parent)


def temporary_name() -> str:
    """A name that readers ignore and `sweep` removes."""
    return TEMPORARY + secrets.token_hex(8)


def machine_error(path: Path, error: OSError) -> MachineError:
    """The one line for a disk that refuses."""
    todo = {
        errno.ENOSPC: "free some space and run the same command again",
        errno.EDQUOT: "free some space and run the same command again",
        errno.EFBIG: "raise the file size limit and run the same command again",
        errno.EACCES: "allow this user to use it and run the same command again",
        errno.EPERM: "allow this user to use it and run the same command again",
        errno.EROFS: "mount it writable and run the same command again",
    }.get(error.errno or 0, "look at the disk and run the same command again")
    return MachineError(path, os.strerror(error.errno or errno.EIO), todo)


@contextmanager
def _machine(path: Path) -> Iterator[None]:
    """Turns what the operating system refuses into a MachineError; a taken name stays a FileExistsError."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise machine_error(path, error) from error


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _temporary(folder: int, data: bytes) -> Iterator[str]:
    """The name of a flushed file that holds `data`; the name is gone afterwards, the file too unless it got another."""
    name = temporary_name()
    try:
        descriptor = os.open(name, _NEW, 0o644, dir_fd=folder)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def _named(mode: int) -> str:
    return next((word for test, word in _KINDS if test(mode)), "a file" if stat.S_ISREG(mode) else "a device")
