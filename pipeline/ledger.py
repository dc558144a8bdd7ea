"""The only writer of ledger/, and the lock that makes it the only one.

One file a record, `NNNNNN.json` from 000001 without a gap, created once and never changed; `previous` is the digest
of the record before. A chain cannot see that its last records were cut off or written anew: whoever keeps an older
head can, and that is git's history and `audit --base`.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipeline import canonical, durable, records
from pipeline.errors import Busy, LedgerError, MachineError, UsageError

SEQUENCE_MAX: Final = 999_999
WORKSPACE: Final = ".landing"
HOLDER_BYTES_MAX: Final = 200
KNOWN_MAX: Final = 10_000  # records that a process remembers
_NAME = re.compile(r"[0-9]{6}\.json\Z")
_RESTORE = "restore ledger/ from git"


class Ledger:
    """The records of one folder. A folder that is not there is an empty ledger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sequence: int) -> Path:
        """Where the record of that sequence is, or will be."""
        return self.folder / f"{sequence:06d}.json"

    def read(self) -> tuple[records.Record, ...]:
        """Every record in order, verified. Raises LedgerError that names the first file that is wrong."""
        return self._read()[0]

    def head(self) -> tuple[int, str]:
        """Sequence and digest of the newest record; 0 and 64 zeros when there is none. Verifies what it read."""
        made, digest = self._read()
        return len(made), digest

    def append(self, record: records.Record) -> records.Record:
        """The ledger ends in this record, which now has its sequence and previous.

        For the holder of the lock. A record whose sequence is 0 is given the next one; one that has a sequence and a
        previous is appended only if they are the next. Raises Busy if another writer was first, UsageError for a
        record that cannot be stored, LedgerError, MachineError.
        """
        durable.make_folder(self.folder)
        durable.sweep(self.folder)
        sequence, previous = self.head()
        sequence += 1
        path = self.path(sequence)
        if record.sequence and (record.sequence, record.previous) != (sequence, previous):
            raise Busy(path, f"this record was made as number {record.sequence} of another ledger head", "land again")
        if sequence > SEQUENCE_MAX:
            raise UsageError(path, f"a ledger holds at most {SEQUENCE_MAX} records", "begin another one")
        made = dataclasses.replace(record, sequence=sequence, previous=previous)
        try:
            data = records.to_bytes(made)
            if records.from_bytes(data) != made:
                raise ValueError("the record does not come back from its own bytes")
        except ValueError as error:
            raise UsageError(
                path, f"this record cannot be stored: {error}", "shorten or correct what it says"
            ) from error
        try:
            durable.create_once(path, data)
        except FileExistsError:
            raise Busy(path, "another landing has written this record", "land again") from None
        if durable.read(path, records.BYTES_MAX) != data:
            raise LedgerError(path, "does not hold what was just written", "look at the disk; " + _RESTORE)
        return made

    def _read(self) -> tuple[tuple[records.Record, ...], str]:
        made: list[records.Record] = []
        previous = records.NO_RECORD
        for sequence, name in enumerate(self._names(), start=1):
            path = self.folder / name
            if name != self.path(sequence).name:
                raise LedgerError(self.path(sequence), f"is missing, and {name} is there", _RESTORE)
            record, previous = _follow(path, sequence, previous)
            made.append(record)
        return tuple(made), previous

    def _names(self) -> tuple[str, ...]:
        try:
            names = durable.names(self.folder)
        except FileNotFoundError:
            return ()
        except ValueError as error:
            raise LedgerError(self.folder, str(error), _RESTORE) from None
        stray = next((name for name in names if not _NAME.match(name)), None)
        if stray is not None:
            raise LedgerError(self.folder / stray, "is no record", "move it away; a ledger holds records alone")
        return names


def workspace(root: Path) -> Path:
    """The folder beside the ledger for what is not kept; git does not see it. Raises MachineError."""
    folder = root / WORKSPACE
    durable.make_folder(folder)
    if not (folder / ".gitignore").exists():
        durable.replace(folder / ".gitignore", b"*\n")
    return folder


@contextmanager
def lock(root: Path, what: str = "a landing") -> Iterator[None]:
    """Nobody else holds this workspace until the end of the block, or of this process, however it ends.

    The lock is on `.landing/lock`, which says who holds it and is never removed. Raises Busy that names the holder;
    MachineError.
    """
    path = workspace(root) / "lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise durable.machine_error(path, error) from error
    try:
        _take(descriptor, path, what)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path, what: str) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise MachineError(path, f"is {durable.kind(path)}, not a regular file", "move it away")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, HOLDER_BYTES_MAX, 0).decode(errors="replace").strip() or "another landing"
        raise Busy(path, f"this workspace is held by {holder}", "wait until it has ended") from None
    except OSError as error:
        raise durable.machine_error(path, error) from error
    try:
        if not os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            raise Busy(path, "the lock file was replaced by another landing", "wait until it has ended")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}: {what}\n".encode()[:HOLDER_BYTES_MAX], 0)
    except FileNotFoundError:
        raise Busy(path, "the lock file was removed meanwhile", "run the same command again") from None
    except OSError as error:
        raise durable.machine_error(path, error) from error


def _follow(path: Path, sequence: int, previous: str) -> tuple[records.Record, str]:
    """The record in a file that must be number `sequence` and follow `previous`, and the digest of its bytes."""
    try:
        data = durable.read(path, records.BYTES_MAX)
        digest = canonical.sha256(data)
        record = _known.get(digest) or _remember(digest, records.from_bytes(data))
    except FileNotFoundError:
        raise LedgerError(path, "has gone while it was read", _RESTORE) from None
    except ValueError as error:
        raise LedgerError(path, str(error), _RESTORE) from None
    if record.sequence != sequence:
        raise LedgerError(path, f"says that it is number {record.sequence}", _RESTORE)
    if record.previous != previous:
        what = f"does not follow record {sequence - 1}" if sequence > 1 else "is the first record and follows another"
        raise LedgerError(path, what, _RESTORE)
    return record, digest


def _remember(digest: str, record: records.Record) -> records.Record:
    """The record of these bytes, which need not be made of them again in this process: each append reads them all."""
    if len(_known) >= KNOWN_MAX:
        _known.clear()
    _known[digest] = record
    return record


_known: dict[str, records.Record] = {}  # by the digest of the bytes
