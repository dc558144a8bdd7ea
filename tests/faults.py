"""Bad luck for tests, all of it real: full disks, other users, SIGKILL before any chosen system call, flipped bytes."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NOBODY = 65534
STEPS = {"open", "write", "fsync", "link", "unlink", "rename", "replace", "mkdir", "rmdir"}  # calls that leave a trace


def flip(path: Path, at: int = 0) -> None:
    """One bit of a file is different; size, mode and times are as before."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mode, after.st_mtime_ns) == (before.st_size, before.st_mode, before.st_mtime_ns)


class Disk:
    """A folder that can be made full and have room again."""

    def __init__(self, folder: Path, *, mounted: bool) -> None:
        self.folder, self.mounted = folder, mounted

    def fill(self) -> None:
        """Not one byte more can be written: no space on a mounted tmpfs, else a file size limit for this process."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            return
        with suppress(OSError), (self.folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        """There is room again."""
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        (self.folder / "filler").unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, *, mount: bool) -> Iterator[Disk]:
    """A disk of 512 KiB; where mounting is not asked for, or not allowed, a folder that a size limit fills."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(folder)]
    try:
        mounted = mount and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    disk = Disk(folder, mounted=mounted)
    try:
        yield disk
    finally:
        disk.free()
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that every user can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def as_other_user(function: Callable[[], Any]) -> Any:
    """What `function` returns, or the exception it raises, in a child of another uid (root may write anywhere)."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        result: Any = None
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            result = function()
        except BaseException as error:
            result = error
        finally:
            with suppress(BaseException):
                os.write(writer, pickle.dumps(result))
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    return pickle.loads(data)


def calls(function: Callable[[], Any]) -> list[str]:
    """The system calls of STEPS that `function` makes, in order."""
    made: list[str] = []

    def watch(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in STEPS and called.__module__ in ("posix", "_io"):
            made.append(called.__name__)

    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
    return made


def killed_at(step: int, function: Callable[[], Any]) -> bool:
    """True if a child that runs `function` was killed just before its system call number `step`; False if it ended.

    Counts calls of STEPS. Raises AssertionError if the child failed otherwise.
    """
    child = os.fork()
    if not child:
        left = step

        def watch(frame: Any, event: str, called: Any) -> None:
            nonlocal left
            if event == "c_call" and called.__name__ in STEPS and called.__module__ in ("posix", "_io"):
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)

        code = 1
        try:
            sys.setprofile(watch)
            function()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the child failed by itself"
    return False
