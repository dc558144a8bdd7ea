"""durable.py: files that are whole, new and on the disk, or not there."""

from __future__ import annotations

import os
import socket
from itertools import count
from pathlib import Path

import pytest
from faults import as_other_user, calls, killed_at, open_folder, small_disk

from pipeline import durable
from pipeline.errors import MachineError


def test_create_once_leaves_the_file_alone(tmp_path: Path) -> None:
    """A created file holds its bytes, however many, and its folder holds nothing else."""
    for size in (0, 1, 3_000_001):
        durable.create_once(tmp_path / str(size), bytes(size))
        assert (tmp_path / str(size)).read_bytes() == bytes(size)
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "3000001"]


@pytest.mark.parametrize("what", ["same bytes", "other bytes", "folder", "dangling link", "fifo"])
def test_create_once_never_overwrites(tmp_path: Path, what: str) -> None:
    """A taken name is a FileExistsError, whatever has taken it, and stays as it was."""
    path = tmp_path / "taken"
    make = {
        "same bytes": lambda: path.write_bytes(b"new"),
        "other bytes": lambda: path.write_bytes(b"old"),
        "folder": path.mkdir,
        "dangling link": lambda: path.symlink_to(tmp_path / "elsewhere"),
        "fifo": lambda: os.mkfifo(path),
    }
    make[what]()
    before = path.lstat()
    with pytest.raises(FileExistsError):
        durable.create_once(path, b"new")
    after = path.lstat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert os.listdir(tmp_path) == ["taken"]


def test_nothing_is_written_through_a_linked_folder(tmp_path: Path) -> None:
    """A folder that is a link is refused, and the place it points to stays empty."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path / "outside")
    for write in (durable.create_once, durable.replace):
        with pytest.raises(MachineError, match="folder/name: Not a directory"):
            write(tmp_path / "folder" / "name", b"data")
    assert os.listdir(tmp_path / "outside") == []


def test_bytes_are_on_the_disk_before_their_name_and_the_name_before_the_end(tmp_path: Path) -> None:
    """The file is flushed before it is named, the folder afterwards; so are a new folder's parents."""
    path = tmp_path / "name"
    made, replaced = calls(lambda: durable.create_once(path, b"data")), calls(lambda: durable.replace(path, b"more"))
    assert " ".join(made) == "open open write fsync link unlink fsync"
    assert " ".join(replaced) == "open open write fsync replace unlink fsync"
    assert calls(lambda: durable.make_folder(tmp_path / "a" / "b")) == ["mkdir", "open", "fsync"] * 2
    durable.make_folder(tmp_path / "staged")
    durable.create_once(tmp_path / "staged" / "name", b"data")
    moved = calls(lambda: durable.move_in(tmp_path / "staged", tmp_path / "view", "name"))
    assert moved == ["rename", "open", "fsync", "open", "fsync"]


def test_move_in_takes_the_place_of_nothing_or_of_one_file(tmp_path: Path) -> None:
    """A staged file goes to a missing folder, an empty one, and one that has a file of its name, which it replaces."""
    for name in ("missing", "empty", "taken"):
        folder = tmp_path / name
        if name != "missing":
            folder.mkdir()
        if name == "taken":
            (folder / "artifact").write_bytes(b"old")
            (folder / "other").write_bytes(b"other")
        durable.make_folder(tmp_path / "staged")
        durable.create_once(tmp_path / "staged" / "artifact", b"new")
        durable.move_in(tmp_path / "staged", folder, "artifact")
        assert (folder / "artifact").read_bytes() == b"new"
        durable.remove(tmp_path / "staged")
    assert sorted(os.listdir(tmp_path / "taken")) == ["artifact", "other"]
    (tmp_path / "file").touch()
    durable.make_folder(tmp_path / "staged")
    with pytest.raises(MachineError, match="Not a directory"):
        durable.move_in(tmp_path / "staged", tmp_path / "file", "artifact")


def test_replace_is_old_or_new_at_every_kill(tmp_path: Path) -> None:
    """A replace killed before any of its system calls leaves the old bytes or the new; `sweep` keeps the file."""
    path = tmp_path / "view"
    seen = set()
    for step in count(1):
        path.write_bytes(b"old")
        killed = killed_at(step, lambda: durable.replace(path, b"new"))
        seen.add(path.read_bytes())
        assert durable.names(tmp_path) == ("view",)
        durable.sweep(tmp_path)
        assert os.listdir(tmp_path) == ["view"]
        if not killed:
            break
    assert seen == {b"old", b"new"}
    assert step > 5
    assert path.read_bytes() == b"new"


def test_create_once_is_whole_or_absent_at_every_kill(tmp_path: Path) -> None:
    """A create killed before any of its system calls leaves no file or the whole file, never a part."""
    for step in count(1):
        path = tmp_path / f"{step}"
        killed = killed_at(step, lambda path=path: durable.create_once(path, b"whole" * 1000))
        assert not path.exists() or path.read_bytes() == b"whole" * 1000
        if not killed:
            break
    assert path.exists()
    assert not (tmp_path / "1").exists()
    assert step > 5


@pytest.mark.parametrize("mount", [True, False], ids=["tmpfs", "size-limit"])
def test_a_full_disk_leaves_nothing(tmp_path: Path, mount: bool) -> None:
    """On a full disk a write is a MachineError that names the file; no part of it stays, and later it succeeds."""
    with small_disk(tmp_path / "disk", mount=mount) as disk:
        folder = disk.folder / "folder"
        folder.mkdir()
        (folder / "view").write_bytes(b"old")
        disk.fill()
        for write, name in ((durable.create_once, "new"), (durable.replace, "view")):
            with pytest.raises(MachineError, match=f"{name}: .*; (free some space|raise the file size limit)"):
                write(folder / name, bytes(100_000))
        assert os.listdir(folder) == ["view"]
        assert (folder / "view").read_bytes() == b"old"
        disk.free()
        durable.create_once(folder / "new", bytes(100_000))
        assert (folder / "new").stat().st_size == 100_000


def test_a_part_is_taken_away_when_the_disk_fills_in_the_middle(tmp_path: Path) -> None:
    """A write that gets a part of its bytes onto the disk before it is full leaves none of them."""
    with small_disk(tmp_path / "disk", mount=True) as disk:
        if not disk.mounted:
            disk.fill()
        with pytest.raises(MachineError, match="large"):
            durable.create_once(disk.folder / "large", bytes(700_000))
        assert os.listdir(disk.folder) == []


def test_a_read_only_folder_is_a_machine_error() -> None:
    """Another user's folder is a MachineError with what to do, and stays empty."""
    with open_folder() as folder:
        folder.chmod(0o555)
        error = as_other_user(lambda: durable.create_once(folder / "name", b"data"))
        assert isinstance(error, MachineError)
        assert error.exit_code == 4
        assert str(error) == (
            f"MachineError: {folder}/name: Permission denied; allow this user to use it and run the same command again"
        )
        assert os.listdir(folder) == []
        folder.chmod(0o755)


def test_read_takes_regular_files_alone(tmp_path: Path) -> None:
    """A FIFO, a link, a folder, a socket, a device, a file too large: each said in words at once, nothing waits."""
    (tmp_path / "file").write_bytes(b"12345")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        where = os.open(tmp_path, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{where}/socket")
        os.close(where)
    for name, word in (("fifo", "a FIFO"), ("link", "a link"), ("folder", "a folder"), ("socket", "a socket")):
        with pytest.raises(ValueError, match=f"is {word}, not a regular file"):
            durable.read(tmp_path / name)
    with pytest.raises(ValueError, match="is a device, not a regular file"):
        durable.read(Path("/dev/null"))
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        durable.read(tmp_path / "file", 4)
    for name in ("none", "x" * 300, "file/below"):
        with pytest.raises(FileNotFoundError):
            durable.read(tmp_path / name)
    assert durable.read(tmp_path / "file", 5) == b"12345"


def test_names_leaves_out_what_killed_writers_left(tmp_path: Path) -> None:
    """Leftovers are not listed, and `sweep` removes them alone; a link to a folder is no folder."""
    for name in ("b", "a", durable.temporary_name()):
        (tmp_path / name).touch()
    (tmp_path / durable.temporary_name()).mkdir()
    assert durable.names(tmp_path) == ("a", "b")
    durable.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="is a link, not a folder"):
        durable.names(tmp_path / "link")
    with pytest.raises(ValueError, match="is a file, not a folder"):
        durable.names(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        durable.names(tmp_path / "none")


def test_make_folder_refuses_what_is_no_folder(tmp_path: Path) -> None:
    """Folders are made with those above them; a file in the way is a MachineError that names it."""
    durable.make_folder(tmp_path / "a" / "b" / "c")
    durable.make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="file: is a file where a folder belongs"):
        durable.make_folder(tmp_path / "file" / "b")


def test_remove_does_not_follow_links(tmp_path: Path) -> None:
    """Removing a link leaves what it points to; removing nothing is no error."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    durable.remove(tmp_path / "link")
    durable.remove(tmp_path / "link")
    assert os.listdir(tmp_path) == ["folder"]
    assert (tmp_path / "folder" / "file").exists()
    durable.remove(tmp_path / "folder")
    assert os.listdir(tmp_path) == []
