"""A subject's files as values: copies, tars, digests; and no tar that leads elsewhere."""

from __future__ import annotations

import io
import lzma
import tarfile
from pathlib import Path

import pytest

from pipeline import tree
from pipeline.errors import ArchiveError, MachineError, UsageError
from pipeline.tree import SourceFile, Tree
from tests.scratch import write

GLOBS = ("*.py", "*.txt", "landing.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "adder")
    return tmp_path / "adder"


def adder(folder: Path) -> Tree:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = (SourceFile.of(str(p.relative_to(folder)), p.read_bytes(), p.stat().st_mode & 0o755) for p in paths)
    return Tree("adder", tuple(files))


def test_a_copy_holds_the_same_bytes_and_modes_and_tells_what_changed_in_it(folder: Path, tmp_path: Path) -> None:
    """A second copy in the same place is refused; a changed, replaced or removed file is named."""
    made = adder(folder)
    copy = tree.copy_out(made, tmp_path / "copies" / "one")
    assert copy == tmp_path / "copies" / "one" / "adder"
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == {file.path: file.data for file in made.files}
    assert made.changed_in(copy.parent) == ()
    (copy / "added").write_text("")
    (copy / "adder.c").write_text("changed")
    (copy / "run.py").unlink()
    (copy / "sample.txt").unlink()
    (copy / "sample.txt").symlink_to(folder / "sample.txt")
    assert made.changed_in(copy.parent) == ("adder.c", "run.py", "sample.txt")
    with pytest.raises(MachineError, match="adder: cannot be copied"):
        tree.copy_out(made, copy.parent)


def test_a_tar_gives_the_tree_again_and_the_same_tree_the_same_tar(folder: Path) -> None:
    """Times, owners and the place of the tree are not in it."""
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "tool.sh").write_text("true\n")
    (folder / "deep" / "er" / "tool.sh").chmod(0o755)
    made = adder(folder)
    data = tree.tar(made)
    again = tree.untar(data, {}.__getitem__)
    assert (again.folder, again.files) == (made.folder, made.files)
    assert {file.mode for file in again.files} == {0o644, 0o755}
    assert tree.tar(again) == data
    assert tree.digest(again.files, GLOBS, where="tar") == tree.digest(made.files, GLOBS, where="files")


def test_a_large_file_is_a_link_in_the_tar_and_comes_from_elsewhere(folder: Path) -> None:
    """Two trees that share it differ by what is small; the tar without the file is no tree."""
    (folder / "large.bin").write_bytes(bytes(range(256)) * 256)
    made = adder(folder)
    (big,) = tree.large(made)
    assert big.path == "large.bin" and len(big.data) == tree.LARGE_MIN
    data = tree.tar(made)
    assert tree.untar(data, {big.sha256: big.data}.__getitem__).files == made.files
    with pytest.raises(KeyError):
        tree.untar(data, {}.__getitem__)


def packed(*members: tarfile.TarInfo, data: bytes = b"x") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for entry in members:
            entry.size = len(data) if entry.isreg() else 0
            archive.addfile(entry, io.BytesIO(data))
    return lzma.compress(made.getvalue())


def member(name: str, mode: int = 0o644, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.type, entry.linkname = mode, kind, "x"
    return entry


GOOD = packed(member("a/b"))
TARS = {
    "nothing": b"",
    "no xz": b"BZh9" + bytes(100),
    "cut": GOOD[:-4],
    "tail": GOOD + b"x",
    "two streams": GOOD + GOOD,
    "no tar": lzma.compress(b"x" * 2000),
    "empty": packed(),
    "link": packed(member("a/b", kind=tarfile.SYMTYPE)),
    "hard link": packed(member("a/b", kind=tarfile.LNKTYPE)),
    "folder": packed(member("a/b", kind=tarfile.DIRTYPE)),
    "device": packed(member("a/b", kind=tarfile.CHRTYPE)),
    "absolute": packed(member("/a/b")),
    "outside": packed(member("a/../../b")),
    "no folder": packed(member("b")),
    "two folders": packed(member("a/b"), member("c/b")),
    "twice": packed(member("a/b"), member("a/b")),
    "mode": packed(member("a/b", mode=0o4755)),
}


@pytest.mark.parametrize("data", TARS.values(), ids=TARS)
def test_a_tar_that_was_not_packed_here_is_not_unpacked(data: bytes) -> None:
    """Nothing is written; the error is an archive's, exit code 3."""
    with pytest.raises(ArchiveError, match="ArchiveError: source tar: ") as caught:
        tree.untar(data, {}.__getitem__)
    assert caught.value.exit_code == 3
    assert tree.untar(GOOD, {}.__getitem__).files[0].path == "b"


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a\0b"])
def test_a_path_stays_where_it_starts(path: str) -> None:
    """No file of a tree can be written beside it."""
    with pytest.raises(UsageError, match="is not a plain relative path"):
        SourceFile.of(path, b"")


def test_a_digest_moves_with_a_byte_or_a_name_and_not_with_a_mode_or_another_file() -> None:
    """What the globs do not match has its own digest; modes are compared by git's subtree."""
    one = (SourceFile.of("a.c", b"1"), SourceFile.of("b.py", b"2"))

    def digest(*files: SourceFile) -> str:
        return tree.digest(files, ["*.c"], where="here")

    assert digest(*one) == digest(one[0]) == digest(SourceFile.of("a.c", b"1", 0o755), one[1])
    assert digest(*one) != digest(SourceFile.of("a.c", b"3"), one[1])
    assert digest(*one) != digest(SourceFile.of("c.c", b"1"), one[1])
