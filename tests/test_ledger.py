"""ledger.py: records that follow each other, and one writer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from faults import as_other_user, flip, killed_at, open_folder, small_disk

from pipeline import canonical, durable, records
from pipeline.errors import Busy, LedgerError, MachineError, UsageError
from pipeline.ledger import Ledger, lock
from tests import scratch


def void(why: str = "by hand") -> records.Void:
    """The smallest record there is."""
    return records.Void(
        artifact=records.Artifact(name="adder.so", sha256="1" * 64),
        target="cpu",
        block="sum",
        revision=0,
        argv=("void", "1"),
        time={},
        voids=1,
        who="Ada",
        why=why,
    )


def ledger_of(folder: Path, number: int) -> Ledger:
    """A ledger with that many records."""
    ledger = Ledger(folder)
    for i in range(1, number + 1):
        ledger.append(void(f"reason {i}"))
    return ledger


def written(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_append_gives_sequence_and_previous(tmp_path: Path) -> None:
    """Records are numbered from one and each names the digest of the bytes before it; the first names zeros."""
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.read() == ()
    assert ledger.head() == (0, "0" * 64)
    assert not ledger.folder.exists()
    appended = tuple(ledger.append(void(f"reason {i}")) for i in range(3))
    assert sorted(written(ledger.folder)) == ["000001.json", "000002.json", "000003.json"]
    assert ledger.read() == appended
    assert [record.sequence for record in appended] == [1, 2, 3]
    digests = [canonical.sha256(data) for _, data in sorted(written(ledger.folder).items())]
    assert [record.previous for record in appended] == ["0" * 64, *digests[:2]]
    assert ledger.head() == (3, digests[2])


def test_append_never_changes_a_record(tmp_path: Path) -> None:
    """What was there before is there afterwards, byte for byte and the same inode."""
    ledger = ledger_of(tmp_path / "ledger", 3)
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in ledger.folder.iterdir()}
    ledger.append(void())
    after = {path.name: (path.read_bytes(), path.stat().st_ino) for path in ledger.folder.iterdir()}
    assert {name: after[name] for name in before} == before
    assert sorted(set(after) - set(before)) == ["000004.json"]


def test_a_record_made_for_another_head_is_busy(tmp_path: Path) -> None:
    """A record that brings its own sequence and previous is appended only where they are the next."""
    ledger = ledger_of(tmp_path / "ledger", 2)
    third = ledger.append(void("third"))
    ledger.path(3).unlink()
    assert ledger.append(third) == third
    with pytest.raises(Busy, match=r"000004.json: .* number 3"):
        ledger.append(third)
    assert len(ledger.read()) == 3


def test_a_record_too_large_is_refused_before_it_is_written(tmp_path: Path) -> None:
    """More than 256 KiB is a UsageError, and the ledger is as it was."""
    ledger = ledger_of(tmp_path / "ledger", 1)
    before = written(ledger.folder)
    with pytest.raises(UsageError, match=r"000002.json: this record cannot be stored: .* 262144"):
        ledger.append(void("x" * 262144))
    assert written(ledger.folder) == before


def edit(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """A fault that changes the bytes of record 2 of 4."""
    return lambda folder: (folder / "000002.json").write_bytes(change((folder / "000002.json").read_bytes()))


def swap(folder: Path) -> None:
    two, three = folder / "000002.json", folder / "000003.json"
    a, b = two.read_bytes(), three.read_bytes()
    two.write_bytes(b)
    three.write_bytes(a)


def put(name: str, of: str) -> Callable[[Path], object]:
    """A fault that puts a copy of one record under another name."""
    return lambda folder: (folder / name).write_bytes((folder / of).read_bytes())


def instead(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """A fault that puts something else in the place of record 2."""

    def fault(folder: Path) -> None:
        path = folder / "000002.json"
        path.rename(folder.parent / "aside")
        make(path)

    return fault


def begun_elsewhere(folder: Path) -> None:
    path = folder / "000001.json"
    path.write_bytes(path.read_bytes().replace(b"0" * 64, b"1" * 64))


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "one bit of a word": (edit(lambda d: d.replace(b"reason 2", b"reason 3")), "000003.json: does not follow record 2"),
    "one bit of syntax": (lambda folder: flip(folder / "000002.json", 0), "000002.json: "),
    "a beginning that follows": (begun_elsewhere, "000001.json: is the first record and follows another"),
    "another sequence": (edit(lambda d: d.replace(b'"sequence":2', b'"sequence":7')), "000002.json: says .* number 7"),
    "removed": (lambda folder: (folder / "000002.json").unlink(), "000002.json: is missing, and 000003.json is there"),
    "first removed": (lambda folder: (folder / "000001.json").unlink(), "000001.json: is missing"),
    "duplicated": (put("000005.json", "000004.json"), "000005.json: says that it is number 4"),
    "inserted": (put("000003.json", "000002.json"), "000003.json: says that it is number 2"),
    "re-ordered": (swap, "000002.json: says that it is number 3"),
    "a gap at the end": (put("000006.json", "000004.json"), "000005.json: is missing, and 000006.json is there"),
    "number zero": (put("000000.json", "000001.json"), "000001.json: is missing, and 000000.json is there"),
    "duplicate key": (edit(lambda d: d.replace(b'"voids":1', b'"voids":1,"voids":1')), "000002.json: .*voids.* twice"),
    "byte order mark": (edit(lambda d: b"\xef\xbb\xbf" + d), "000002.json: "),
    "line ends of another system": (edit(lambda d: d.replace(b"\n", b"\r\n")), "000002.json: not in canonical form"),
    "no last newline": (edit(lambda d: d[:-1]), "000002.json: not in canonical form"),
    "a space more": (edit(lambda d: d.replace(b":2", b": 2", 1)), "000002.json: not in canonical form"),
    "a key more": (edit(lambda d: d.replace(b'reason 2"', b'reason 2","zeal":1')), "000002.json: .*unknown key 'zeal'"),
    "a key less": (edit(lambda d: d.replace(b',"voids":1', b"")), "000002.json: .*lacks 'voids'"),
    "a float": (edit(lambda d: d.replace(b'"voids":1', b'"voids":1.0')), "000002.json: .*1.0 is not an integer"),
    "NaN": (edit(lambda d: d.replace(b'"voids":1', b'"voids":NaN')), "000002.json: .*NaN is not an integer"),
    "unknown kind": (edit(lambda d: d.replace(b":void:v1", b":hold:v1")), "000002.json: unknown kind"),
    "unknown version": (edit(lambda d: d.replace(b":void:v1", b":void:v2")), "000002.json: unknown kind"),
    "empty": (edit(lambda d: b""), "000002.json: "),
    "torn": (edit(lambda d: d[: len(d) // 2]), "000002.json: "),
    "not UTF-8": (edit(lambda d: d.replace(b"Ada", b"\xff\xff\xff")), "000002.json: "),
    "larger than 256 KiB": (edit(lambda d: d + b" " * 262144), "000002.json: is larger than 262144 bytes"),
    "deeper than any stack": (edit(lambda d: b"[" * 60_000), "000002.json: "),
    "a link": (instead(lambda path: path.symlink_to("../aside")), "000002.json: is a link, not a regular file"),
    "a FIFO": (instead(os.mkfifo), "000002.json: is a FIFO, not a regular file"),
    "a folder": (instead(os.mkdir), "000002.json: is a folder, not a regular file"),
    "a stray file": (lambda folder: (folder / "notes.txt").touch(), "notes.txt: is no record; move it away"),
    "seven digits": (put("0000005.json", "000004.json"), "0000005.json: is no record"),
    "a backup": (put("000004.json~", "000004.json"), "000004.json~: is no record"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_named(tmp_path: Path, name: str) -> None:
    """A ledger with this fault cannot be read or appended to; the line names the file; nothing is written."""
    fault, line = FAULTS[name]
    ledger = ledger_of(tmp_path / "ledger", 4)
    fault(ledger.folder)
    before = sorted(os.listdir(ledger.folder))
    for use in (ledger.read, ledger.head, lambda: ledger.append(void())):
        with pytest.raises(LedgerError, match=f"^LedgerError: [^ ]*/{line}") as caught:
            use()
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 3
    assert sorted(os.listdir(ledger.folder)) == before


def test_a_linked_ledger_is_refused(tmp_path: Path) -> None:
    """The ledger's folder itself is no link and no file."""
    ledger_of(tmp_path / "other", 1)
    (tmp_path / "ledger").symlink_to("other")
    with pytest.raises(LedgerError, match="ledger: is a link, not a folder"):
        Ledger(tmp_path / "ledger").read()
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="file: is a file, not a folder"):
        Ledger(tmp_path / "file").read()


def test_an_append_killed_anywhere_keeps_whole_records(tmp_path: Path) -> None:
    """Killed before any of its system calls, an append added a whole record or nothing, and the next one succeeds."""
    lengths = set()
    for step in count(1):
        ledger = ledger_of(tmp_path / f"ledger{step}", 2)
        before = written(ledger.folder)
        killed = killed_at(step, lambda ledger=ledger: ledger.append(void("the killed one")))
        read = ledger.read()
        lengths.add(len(read))
        assert {name: data for name, data in written(ledger.folder).items() if name in before} == before
        following = ledger.append(void("after it"))
        assert following.sequence == len(read) + 1
        assert durable.names(ledger.folder) == tuple(sorted(os.listdir(ledger.folder)))
        if not killed:
            break
    assert lengths == {2, 3}
    assert step > 6


def test_leftovers_are_ignored_then_removed(tmp_path: Path) -> None:
    """A killed writer's temporary file is no record; the next append removes it."""
    ledger = ledger_of(tmp_path / "ledger", 1)
    leftover = ledger.folder / durable.temporary_name()
    leftover.write_bytes(b'{"half')
    assert len(ledger.read()) == 1
    assert leftover.exists()
    ledger.append(void())
    assert not leftover.exists()


@pytest.mark.parametrize("mount", [True, False], ids=["tmpfs", "size-limit"])
def test_a_full_disk_keeps_the_ledger(tmp_path: Path, mount: bool) -> None:
    """On a full disk an append is a MachineError with what to do, the ledger is as it was, and later it succeeds."""
    with small_disk(tmp_path / "disk", mount=mount) as disk:
        ledger = ledger_of(disk.folder / "ledger", 2)
        before = written(ledger.folder)
        disk.fill()
        with pytest.raises(MachineError, match=r"000003.json: .*(space|size limit) and run the same command again"):
            ledger.append(void())
        assert written(ledger.folder) == before
        disk.free()
        assert ledger.append(void()).sequence == 3


def test_another_user_reads_and_cannot_write() -> None:
    """In a read-only ledger an append is a MachineError with exit code 4, reading works, and nothing changes."""
    with open_folder() as root:
        ledger = ledger_of(root / "ledger", 2)
        before = written(ledger.folder)
        ledger.folder.chmod(0o555)
        error = as_other_user(lambda: ledger.append(void()))
        assert isinstance(error, MachineError)
        assert error.exit_code == 4
        assert "Permission denied; allow this user" in str(error)
        assert as_other_user(lambda: len(ledger.read())) == 2
        assert written(ledger.folder) == before
        ledger.folder.chmod(0o755)


def test_an_unreadable_record_is_the_machine_not_the_chain() -> None:
    """A record that this user may not read is a MachineError, not a broken ledger."""
    with open_folder() as root:
        ledger = ledger_of(root / "ledger", 2)
        ledger.path(2).chmod(0o000)
        error = as_other_user(ledger.read)
        assert isinstance(error, MachineError)
        assert str(ledger.path(2)) in str(error)


def test_the_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    """A second holder is told who the first one is; when that one is killed the lock is free; its file stays."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with lock(tmp_path, "landing scale on cpu"):
            os.write(writer, b"held")
            time.sleep(60)
        os._exit(0)
    assert os.read(reader, 4) == b"held"
    with pytest.raises(Busy, match=f"held by process {child}: landing scale on cpu; wait") as caught, lock(tmp_path):
        pass
    assert caught.value.exit_code == 6
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    with lock(tmp_path, "another landing"):
        assert (tmp_path / ".landing" / "lock").read_text() == f"process {os.getpid()}: another landing\n"
    with lock(tmp_path):
        pass
    assert (tmp_path / ".landing" / "lock").exists()


def test_the_lock_is_a_plain_file(tmp_path: Path) -> None:
    """A link or a FIFO in the lock's place is a MachineError, and what the link points to is untouched."""
    (tmp_path / ".landing").mkdir()
    outside = tmp_path / "outside"
    outside.write_text("mine")
    path = tmp_path / ".landing" / "lock"
    path.symlink_to(outside)
    with pytest.raises(MachineError, match="lock: "), lock(tmp_path):
        pass
    assert outside.read_text() == "mine"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(MachineError, match="lock: is a FIFO"), lock(tmp_path):
        pass


def test_landings_started_together_never_share_a_number(tmp_path: Path) -> None:
    """Of many processes that lock and append at once, each success is one record more, and all others were Busy."""
    reader, writer = os.pipe()
    children = []
    for _ in range(6):
        child = os.fork()
        if not child:
            for _ in range(10):
                try:
                    with lock(tmp_path):
                        Ledger(tmp_path / "ledger").append(void())
                    os.write(writer, b"+")
                except Busy:
                    os.write(writer, b"-")
                except BaseException:
                    os.write(writer, b"!")
            os._exit(0)
        children.append(child)
    os.close(writer)
    for child in children:
        os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as file:
        said = file.read()
    assert len(said) == 60
    assert b"!" not in said
    assert len(Ledger(tmp_path / "ledger").read()) == said.count(b"+") > 0


def test_git_does_not_see_what_the_lock_leaves(tmp_path: Path) -> None:
    """An audit of a clean clone leaves it clean, whatever that repository ignores."""
    scratch.repository(tmp_path / "root", "sum")
    with lock(tmp_path / "root"):
        assert (tmp_path / "root" / ".landing" / "lock").exists()
    assert scratch.git(tmp_path / "root", "status", "--porcelain") == ""
