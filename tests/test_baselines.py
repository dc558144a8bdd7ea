"""baselines.py: an archive that only grows, and views that are old or new."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from faults import as_other_user, flip, killed_at, open_folder, small_disk

from pipeline import durable
from pipeline.baselines import Baselines
from pipeline.canonical import sha256
from pipeline.errors import ArchiveError, BaselineMismatch, MachineError, UsageError

NAME = "adder.so"
ONE, TWO, THREE = b"artifact one", b"artifact two", b"artifact three"


def promoted(folder: Path, *artifacts: bytes) -> Baselines:
    """Baselines of target cpu after these artifacts were promoted in order."""
    baselines = Baselines(folder)
    for data in artifacts:
        baselines.promote("cpu", artifact_name=NAME, digest=baselines.archive(data))
    return baselines


def views(baselines: Baselines) -> tuple[tuple[str, str] | None, tuple[str, str] | None]:
    """What `current` and `previous` of cpu hold."""
    return baselines.look("cpu"), baselines.look("cpu", view="previous")


def files(folder: Path) -> dict[str, bytes]:
    """Every regular file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_promote_moves_current_to_previous(tmp_path: Path) -> None:
    """After each promote `current` holds the new artifact alone and `previous` the one before it."""
    baselines = promoted(tmp_path / "baselines")
    assert views(baselines) == (None, None)
    promoted(baselines.folder, ONE)
    assert views(baselines) == ((NAME, sha256(ONE)), None)
    promoted(baselines.folder, TWO)
    assert views(baselines) == ((NAME, sha256(TWO)), (NAME, sha256(ONE)))
    promoted(baselines.folder, TWO)
    assert views(baselines) == ((NAME, sha256(TWO)), (NAME, sha256(TWO)))
    promoted(baselines.folder, THREE)
    assert files(baselines.folder) == {
        f"archive/{sha256(ONE)}": ONE,
        f"archive/{sha256(TWO)}": TWO,
        f"archive/{sha256(THREE)}": THREE,
        f"current/cpu/{NAME}": THREE,
        f"previous/cpu/{NAME}": TWO,
    }
    assert sorted(os.listdir(baselines.folder)) == ["archive", "current", "previous"]


def test_targets_do_not_touch_each_other(tmp_path: Path) -> None:
    """Promoting one target leaves another target's views as they were."""
    baselines = promoted(tmp_path, ONE, TWO)
    baselines.promote("cuda", artifact_name="adder.cubin", digest=baselines.archive(THREE))
    assert views(baselines) == ((NAME, sha256(TWO)), (NAME, sha256(ONE)))
    assert baselines.look("cuda") == ("adder.cubin", sha256(THREE))


def test_an_artifact_of_another_name_stands_alone(tmp_path: Path) -> None:
    """Where an artifact has a new name, the old file is gone from `current` and keeps its name in `previous`."""
    baselines = promoted(tmp_path, ONE)
    baselines.promote("cpu", artifact_name="sum.so", digest=baselines.archive(TWO))
    assert views(baselines) == (("sum.so", sha256(TWO)), (NAME, sha256(ONE)))


def test_snapshot_is_a_copy_of_the_promoted_bytes(tmp_path: Path) -> None:
    """The snapshot is another file with the same bytes: what happens to `current` afterwards does not reach it."""
    baselines = promoted(tmp_path / "baselines", ONE)
    copy = baselines.snapshot("cpu", artifact_name=NAME, digest=sha256(ONE), into=tmp_path / "aside")
    assert copy == tmp_path / "aside" / NAME
    flip(baselines.folder / "current" / "cpu" / NAME)
    assert copy.read_bytes() == ONE


def beside(folder: Path) -> None:
    (folder / "notes.txt").touch()


def in_place(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """A fault that puts something else in the artifact's place; the artifact itself stays near."""

    def fault(folder: Path) -> None:
        (folder / NAME).rename(folder.parent / "aside")
        make(folder / NAME)

    return fault


def linked_folder(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to("elsewhere")


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "one bit": (lambda folder: flip(folder / NAME), f"cpu/{NAME}: is [0-9a-f]{{64}}, promoted was {sha256(TWO)}"),
    "swapped": (
        lambda folder: (folder / NAME).write_bytes(ONE),
        f"cpu/{NAME}: is {sha256(ONE)}, promoted was {sha256(TWO)}",
    ),
    "truncated": (lambda folder: os.truncate(folder / NAME, 3), f"cpu/{NAME}: is [0-9a-f]{{64}}, promoted was"),
    "empty": (lambda folder: os.truncate(folder / NAME, 0), f"cpu/{NAME}: is {sha256(b'')}, promoted was"),
    "missing": (lambda folder: (folder / NAME).unlink(), f"cpu/{NAME}: is missing; nothing is there, promoted was"),
    "folder missing": (durable.remove, f"cpu/{NAME}: is missing; nothing is there, promoted was {sha256(TWO)}"),
    "renamed": (
        lambda folder: (folder / NAME).rename(folder / "other.so"),
        f"cpu/{NAME}: is missing; other.so {sha256(TWO)} is there",
    ),
    "a link to a good copy": (
        in_place(lambda path: path.symlink_to("../aside")),
        f"cpu/{NAME}: is a link, not a regular file",
    ),
    "a FIFO": (in_place(os.mkfifo), f"cpu/{NAME}: is a FIFO, not a regular file"),
    "a folder": (in_place(os.mkdir), f"cpu/{NAME}: is a folder, not a regular file"),
    "an extra file": (beside, f"cpu: holds {NAME}, notes.txt where one artifact belongs"),
    "a linked folder": (linked_folder, "cpu: is a link, not a folder"),
    "a linked view": (lambda folder: linked_folder(folder.parent), "current/cpu: is a link"),
    "a FIFO as folder": (lambda folder: (durable.remove(folder), os.mkfifo(folder)), "cpu: is a FIFO, not a folder"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_baseline_is_refused_and_can_be_restored(tmp_path: Path, name: str) -> None:
    """A snapshot of a `current` with this fault is a BaselineMismatch, exit 3, that names it; `restore` mends it."""
    fault, line = FAULTS[name]
    baselines = promoted(tmp_path / "baselines", ONE, TWO)
    fault(baselines.folder / "current" / "cpu")
    with pytest.raises(BaselineMismatch) as caught:
        baselines.snapshot("cpu", artifact_name=NAME, digest=sha256(TWO), into=tmp_path / "aside")
    assert caught.value.exit_code == 3
    if name != "a linked view":
        assert caught.match(line)
        baselines.restore("cpu", artifact_name=NAME, current=sha256(TWO), previous=sha256(ONE))
        assert views(baselines) == ((NAME, sha256(TWO)), (NAME, sha256(ONE)))
        baselines.snapshot("cpu", artifact_name=NAME, digest=sha256(TWO), into=tmp_path / "aside")
    else:
        with pytest.raises(BaselineMismatch, match="current: is a link, not a folder; move it away"):
            baselines.restore("cpu", artifact_name=NAME, current=sha256(TWO), previous=sha256(ONE))


def test_a_tampered_current_never_becomes_previous(tmp_path: Path) -> None:
    """What is in `current` and not in the archive stops a promote before anything is touched."""
    baselines = promoted(tmp_path, ONE)
    digest = baselines.archive(TWO)
    flip(tmp_path / "current" / "cpu" / NAME)
    before = files(tmp_path)
    with pytest.raises(ArchiveError, match="is missing"):
        baselines.promote("cpu", artifact_name=NAME, digest=digest)
    assert files(tmp_path) == before


def test_only_what_is_archived_can_be_promoted(tmp_path: Path) -> None:
    """Promoting or restoring an absent object is an ArchiveError and leaves the views alone."""
    baselines = promoted(tmp_path, ONE, TWO)
    before = files(tmp_path)
    with pytest.raises(ArchiveError):
        baselines.promote("cpu", artifact_name=NAME, digest=sha256(THREE))
    for current, previous in ((THREE, ONE), (ONE, THREE)):
        with pytest.raises(ArchiveError):
            baselines.restore("cpu", artifact_name=NAME, current=sha256(current), previous=sha256(previous))
    assert files(tmp_path) == before


def test_archive_adds_once(tmp_path: Path) -> None:
    """An object is named by its digest and written once; the same bytes again leave the same file."""
    baselines = Baselines(tmp_path / "baselines")
    assert baselines.objects() == ()
    digest = baselines.archive(ONE)
    path = baselines.path(digest)
    before = path.stat()
    assert baselines.archive(ONE) == digest == sha256(ONE)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert baselines.fetch(digest) == ONE
    assert baselines.objects() == (digest,)
    assert baselines.fetch(baselines.archive(b"")) == b""


OBJECT_FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "one bit": (flip, f"{sha256(ONE)}: holds [0-9a-f]{{64}}, not {sha256(ONE)}"),
    "truncated": (lambda path: os.truncate(path, 0), f"holds {sha256(b'')}, not"),
    "swapped": (lambda path: path.write_bytes(TWO), f"holds {sha256(TWO)}, not"),
    "a link": (
        lambda path: (path.rename(path.parent.parent / "aside"), path.symlink_to("../aside")),
        "is a link, not a regular file",
    ),
    "a FIFO": (lambda path: (path.unlink(), os.mkfifo(path)), "is a FIFO, not a regular file"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "is a folder, not a regular file"),
}


@pytest.mark.parametrize("name", OBJECT_FAULTS)
def test_a_corrupt_object_is_never_used(tmp_path: Path, name: str) -> None:
    """A corrupt object is an ArchiveError, exit 3, when it is fetched, and when its bytes are archived again."""
    fault, line = OBJECT_FAULTS[name]
    baselines = Baselines(tmp_path / "baselines")
    digest = baselines.archive(ONE)
    fault(baselines.path(digest))
    for use in (baselines.fetch, baselines.path, lambda _: baselines.archive(ONE)):
        with pytest.raises(ArchiveError, match=line) as caught:
            use(digest)
        assert caught.value.exit_code == 3


def test_a_missing_object_can_be_archived_again(tmp_path: Path) -> None:
    """A missing object is an ArchiveError for whoever fetches it."""
    baselines = Baselines(tmp_path)
    digest = baselines.archive(ONE)
    baselines.path(digest).unlink()
    with pytest.raises(ArchiveError, match="is missing; restore baselines/archive/ from git"):
        baselines.fetch(digest)
    assert baselines.archive(ONE) == digest
    assert baselines.fetch(digest) == ONE


def test_a_linked_archive_is_not_written_to(tmp_path: Path) -> None:
    """An archive folder that is a link is refused, and the place it points to stays empty."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "archive").symlink_to(tmp_path / "outside")
    baselines = Baselines(tmp_path / "baselines")
    with pytest.raises(ArchiveError, match="archive: is a link, not a folder"):
        baselines.archive(ONE)
    with pytest.raises(ArchiveError, match="archive: is a link, not a folder"):
        baselines.objects()
    assert os.listdir(tmp_path / "outside") == []


def test_a_stray_name_in_the_archive_is_named(tmp_path: Path) -> None:
    """A file that no digest names is an ArchiveError; what a killed writer left is not listed."""
    baselines = Baselines(tmp_path)
    digest = baselines.archive(ONE)
    (baselines.objects_folder / durable.temporary_name()).touch()
    assert baselines.objects() == (digest,)
    baselines.archive(ONE)
    assert os.listdir(baselines.objects_folder) == [digest]
    (baselines.objects_folder / "README").touch()
    with pytest.raises(ArchiveError, match="README: is no object"):
        baselines.objects()


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "/etc", "-rf", ".hidden", "a\0b", "a\nb", "x" * 300, "é" * 128])
def test_names_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    """A target or artifact name that is not one plain file name is a UsageError, and nothing is written."""
    baselines = promoted(tmp_path / "baselines", ONE)
    digest = sha256(ONE)
    before = files(tmp_path)
    uses: tuple[Callable[[], object], ...] = (
        lambda: baselines.look(name),
        lambda: baselines.promote(name, artifact_name=NAME, digest=digest),
        lambda: baselines.promote("cpu", artifact_name=name, digest=digest),
        lambda: baselines.restore("cpu", artifact_name=name, current=digest, previous=None),
        lambda: baselines.snapshot("cpu", artifact_name=name, digest=digest, into=tmp_path / "aside"),
    )
    for use in uses:
        with pytest.raises(UsageError, match="is no file name") as caught:
            use()
        assert "\n" not in str(caught.value)
    assert baselines.look("cpu") == (NAME, digest)
    assert {key: data for key, data in files(tmp_path).items() if "previous" not in key} == before
    for odd in (name, "A" * 64, "0" * 63, "../" + "0" * 61):
        with pytest.raises(ArchiveError, match="is no digest"):
            baselines.fetch(odd)


def test_restore_rebuilds_both_views_from_nothing(tmp_path: Path) -> None:
    """With both views deleted, and with a `previous` that no record knows, restore gives what it was told."""
    baselines = promoted(tmp_path, ONE, TWO)
    durable.remove(tmp_path / "current")
    durable.remove(tmp_path / "previous")
    baselines.restore("cpu", artifact_name=NAME, current=sha256(TWO), previous=sha256(ONE))
    assert views(baselines) == ((NAME, sha256(TWO)), (NAME, sha256(ONE)))
    baselines.restore("cpu", artifact_name=NAME, current=sha256(ONE), previous=None)
    assert views(baselines) == ((NAME, sha256(ONE)), None)
    baselines.restore("cpu", artifact_name=NAME, current=sha256(TWO), previous=sha256(ONE), previous_name="old.so")
    assert views(baselines) == ((NAME, sha256(TWO)), ("old.so", sha256(ONE)))


@pytest.mark.parametrize("before", [(ONE,), (ONE, TWO)], ids=["second", "third"])
def test_a_promote_killed_anywhere_is_old_or_new(tmp_path: Path, before: tuple[bytes, ...]) -> None:
    """Killed before any of its system calls, a promote leaves `current` old or new, and `restore` finishes it."""
    seen = set()
    for step in count(1):
        baselines = promoted(tmp_path / f"{step}", *before)
        digest = baselines.archive(THREE)
        killed = killed_at(step, lambda b=baselines, d=digest: b.promote("cpu", artifact_name=NAME, digest=d))
        current, previous = views(baselines)
        seen.add((current, previous))
        assert current in ((NAME, sha256(before[-1])), (NAME, digest))
        assert current != (NAME, digest) or previous == (NAME, sha256(before[-1]))
        baselines.restore("cpu", artifact_name=NAME, current=digest, previous=sha256(before[-1]))
        assert views(baselines) == ((NAME, digest), (NAME, sha256(before[-1])))
        assert sorted(os.listdir(baselines.folder)) == ["archive", "current", "previous"]
        if not killed:
            break
    assert len(seen) == 3
    assert step > 15


def test_the_first_promote_killed_anywhere_is_nothing_or_new(tmp_path: Path) -> None:
    """Killed before any of its system calls, the first promote shows no artifact or the whole one."""
    seen = set()
    for step in count(1):
        baselines = Baselines(tmp_path / f"{step}")
        digest = baselines.archive(ONE)
        killed = killed_at(step, lambda b=baselines, d=digest: b.promote("cpu", artifact_name=NAME, digest=d))
        seen.add(baselines.look("cpu"))
        if not killed:
            break
    assert seen == {None, (NAME, sha256(ONE))}


@pytest.mark.parametrize("mount", [True, False], ids=["tmpfs", "size-limit"])
def test_a_full_disk_keeps_views_and_archive(tmp_path: Path, mount: bool) -> None:
    """On a full disk archive, promote and restore are MachineErrors that leave every file as it was and no other."""
    with small_disk(tmp_path / "disk", mount=mount) as disk:
        baselines = promoted(disk.folder / "baselines", ONE, TWO)
        digest = baselines.archive(THREE)
        before = files(baselines.folder)
        disk.fill()
        uses: tuple[Callable[[], object], ...] = (
            lambda: baselines.archive(b"one more object"),
            lambda: baselines.promote("cpu", artifact_name=NAME, digest=digest),
            lambda: baselines.restore("cpu", artifact_name=NAME, current=digest, previous=sha256(TWO)),
        )
        for use in uses:
            with pytest.raises(MachineError, match=r"(free some space|raise the file size limit)"):
                use()
            assert files(baselines.folder) == before
            assert sorted(os.listdir(baselines.folder)) == ["archive", "current", "previous"]
        disk.free()
        baselines.promote("cpu", artifact_name=NAME, digest=digest)
        assert views(baselines) == ((NAME, digest), (NAME, sha256(TWO)))


def test_another_user_can_look_and_not_promote() -> None:
    """With read-only baselines promote and archive are MachineErrors, looking works, and nothing changes."""
    with open_folder() as root:
        baselines = promoted(root / "baselines", ONE, TWO)
        before = files(root)
        for folder in (root / "baselines", root / "baselines" / "archive"):
            folder.chmod(0o555)
        for use in (
            lambda: baselines.archive(THREE),
            lambda: baselines.promote("cpu", artifact_name=NAME, digest=sha256(ONE)),
        ):
            error = as_other_user(use)
            assert isinstance(error, MachineError)
            assert "Permission denied" in str(error)
        assert as_other_user(lambda: baselines.look("cpu")) == (NAME, sha256(TWO))
        assert files(root) == before
        for folder in (root / "baselines", root / "baselines" / "archive"):
            folder.chmod(0o755)
