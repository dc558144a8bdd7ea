"""A subject's files as values: copied out into a folder, packed into one tar and taken from it again. Knows no git."""

from __future__ import annotations

import functools
import hashlib
import io
import lzma
import os
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline import durable
from pipeline.canonical import dumps, is_digest, sha256
from pipeline.errors import ArchiveError, MachineError, ManifestError, UsageError
from pipeline.subject import matches, shown

FILES_MAX: Final = 10_000
FILE_BYTES_MAX: Final = 64 << 20
TREE_BYTES_MAX: Final = 256 << 20
MEMORY_MAX: Final = 128 << 20  # of the unpacker; preset 6 needs 9 MiB
RESTORE: Final = "restore baselines/archive/ from git"
LARGE_MIN: Final = 64 << 10  # bytes of a file that is archived on its own
MODES: Final = (0o644, 0o755)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file: its path from the subject's folder on, and its bytes."""

    path: str
    sha256: str
    mode: int
    data: bytes

    @classmethod
    def of(cls, path: str, data: bytes, mode: int = 0o644) -> SourceFile:
        """A file with its digest. Raises UsageError for a path that leads elsewhere."""
        return cls(plain_path(path), sha256(data), mode, data)


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of a subject, sorted by path, and the name of the folder that holds them."""

    folder: str
    files: tuple[SourceFile, ...]

    def changed_in(self, parent: Path) -> tuple[str, ...]:
        """The paths whose bytes in a copy are no longer the tree's. What a command added is not looked at."""
        return tuple(file.path for file in self.files if not _holds(parent / self.folder / file.path, file))


@dataclass(frozen=True, slots=True)
class Source(Tree):
    """A subject's files and where they come from.

    `commit` and `git_tree` are None while a file differs from HEAD; `dirty` names those files, from the subject's
    folder on. `sources` and `tools` are digests of [[path, sha256], …] over what the globs of one target match.
    """

    commit: str | None
    git_tree: str | None
    dirty: tuple[str, ...]
    sources: str
    tools: str


def digest(files: Iterable[SourceFile], globs: Sequence[str], *, where: str) -> str:
    """The digest of the files that the globs match. Raises ManifestError for a glob that matches none."""
    files = tuple(files)
    for glob in globs:
        if not any(matches(file.path, (glob,)) for file in files):
            raise ManifestError(where, f"the glob {glob} matches no file", "correct it, or add the file to git")
    rows = sorted([file.path, file.sha256] for file in files if matches(file.path, globs))
    return sha256(dumps(rows))


def plain_path(path: str) -> str:
    """The path, if it is relative and stays where it starts. Raises UsageError otherwise."""
    if not path or path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise UsageError(shown(path), "is not a plain relative path", "rename the file")
    return path


def copy_out(tree: Tree, parent: Path) -> Path:
    """A fresh copy of the tree in `parent`, which is made; returns the copy, parent/<folder>. Raises MachineError."""
    top = parent / plain_path(tree.folder)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        top.mkdir()
        for file in tree.files:
            path = top / plain_path(file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as opened:
                opened.write(file.data)
            path.chmod(file.mode)
    except OSError as error:
        raise MachineError(tree.folder, f"cannot be copied ({error.strerror})", "see to room and permissions") from None
    return top


def tar(tree: Tree) -> bytes:
    """The tree as one compressed tar: sorted, without times and owners, the same bytes for the same tree.

    A large file stands in it as a link to its digest, so that landings which share it keep it once.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in sorted(tree.files, key=lambda file: file.path):
            entry = tarfile.TarInfo(f"{tree.folder}/{file.path}")
            entry.mode = file.mode
            if len(file.data) < LARGE_MIN:
                entry.size = len(file.data)
                archive.addfile(entry, io.BytesIO(file.data))
            else:
                entry.type, entry.linkname = tarfile.SYMTYPE, file.sha256
                archive.addfile(entry)
    return lzma.compress(packed.getvalue(), format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, preset=6)


def large(tree: Tree) -> tuple[SourceFile, ...]:
    """The files that `tar` leaves out: objects of their own beside it."""
    return tuple(file for file in tree.files if len(file.data) >= LARGE_MIN)


def untar(data: bytes, fetch: Callable[[str], bytes]) -> Tree:
    """The tree of a tar that `tar` made; `fetch` gives the large files by digest. Raises ArchiveError."""
    try:
        unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MEMORY_MAX)
        unpacked = unpacker.decompress(data, TREE_BYTES_MAX)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError("it is cut, too large or has a tail")
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
            files = tuple(_members(archive, unpacked, fetch))
    except (lzma.LZMAError, tarfile.TarError, EOFError, UsageError, ValueError) as error:
        raise ArchiveError("source tar", f"cannot be unpacked ({error})", RESTORE) from None
    folders = {folder for folder, _ in files}
    if len(folders) != 1 or len({file.path for _, file in files}) != len(files):
        raise ArchiveError("source tar", "is not one folder of files", RESTORE)
    return Tree(folders.pop(), tuple(sorted((file for _, file in files), key=lambda file: file.path)))


def changed(files: Sequence[SourceFile], committed: Mapping[str, tuple[int, str]]) -> tuple[str, ...]:
    """The paths that are not, byte for byte and mode for mode, what was committed: path to mode and blob name."""
    gone = set(committed) - {file.path for file in files}
    known = {file.path: committed.get(file.path, (0, "")) for file in files}
    other = {file.path for file in files if known[file.path] != (file.mode, blob_name(file.data, known[file.path][1]))}
    return tuple(sorted(gone | other))


def blob_name(data: bytes, like: str, kind: bytes = b"blob") -> str:
    """The name that git gives to a file's bytes, by the algorithm of a name that it gave."""
    made = hashlib.new("sha256" if len(like) == 64 else "sha1", usedforsecurity=False)
    made.update(b"%s %d\0" % (kind, len(data)) + data)
    return made.hexdigest()


def git_name(tree: Tree, like: str) -> str:
    """The name that git gives to a tree that holds these files alone, by the algorithm of a name that it gave."""
    return _folder_name({file.path: file for file in tree.files}, like)


def _folder_name(files: Mapping[str, SourceFile], like: str) -> str:
    rows: dict[str, tuple[bytes, str]] = {}  # git sorts a folder as if its name ended in a slash
    inside: dict[str, dict[str, SourceFile]] = {}
    for path, file in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            inside.setdefault(name, {})[rest] = file
        else:
            rows[name] = (b"100755" if file.mode == 0o755 else b"100644", blob_name(file.data, like))
    for name, below in inside.items():
        rows[f"{name}/"] = (b"40000", _folder_name(below, like))
    data = [
        b"%s %s\0" % (mode, name.rstrip("/").encode()) + bytes.fromhex(blob)
        for name, (mode, blob) in sorted(rows.items(), key=lambda row: row[0].encode())
    ]
    return blob_name(b"".join(data), like, b"tree")


def _members(
    archive: tarfile.TarFile, unpacked: bytes, fetch: Callable[[str], bytes]
) -> Iterable[tuple[str, SourceFile]]:
    for count, entry in enumerate(archive):
        folder, slash, path = entry.name.partition("/")
        linked = entry.issym() and is_digest(entry.linkname)
        plain = entry.isreg() and not entry.issparse()
        if not (plain or linked) or not slash or entry.mode not in MODES or count >= FILES_MAX:
            raise ValueError(f"{entry.name!r} is not a plain file")
        data = unpacked[entry.offset_data : entry.offset_data + entry.size] if plain else fetch(entry.linkname)
        if plain and len(data) != entry.size:
            raise ValueError(f"{entry.name!r} is cut short")
        yield plain_path(folder), SourceFile.of(path, data, entry.mode)


def plain_reader(limit: int = FILE_BYTES_MAX) -> Callable[[Path, str], bytes]:
    """A function that gives the bytes of a regular file that no link leads to, or raises UsageError.

    It asks once for each folder whether a link leads there, so each look at a tree takes a new one.
    """
    behind = functools.cache(lambda folder: os.path.realpath(folder) != os.fspath(folder))

    def read(path: Path, name: str) -> bytes:
        todo = "keep plain files in the subject, and large ones out of it"
        try:
            if behind(path.parent):
                raise ValueError("lies behind a link")
            return durable.read(path, limit)
        except ValueError as error:
            raise UsageError(shown(name), str(error), todo) from None
        except FileNotFoundError:
            todo = "let nothing write there, and run again"
            raise UsageError(shown(name), "went away while it was read", todo) from None

    return read


def _holds(path: Path, file: SourceFile) -> bool:
    try:
        return not path.is_symlink() and path.is_file() and path.read_bytes() == file.data
    except OSError:
        return False
