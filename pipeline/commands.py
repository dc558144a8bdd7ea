"""Runs the commands of a manifest: no shell, a stated environment, a time limit, and nothing left running.

The only module that starts processes. Each command leads a process group of its own, which is killed whole when
the command ends, is too slow, or this process stops; if this process is killed, a watcher does it.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.errors import MachineError, Waiting
from pipeline.placeholders import fill as fill
from pipeline.subject import shown

PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
# NumPy's library else starts a thread for every processor, which spins, and whose number decides how a sum is cut.
SET: Final = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
# Prefixes of variables that change what a program does. They are not passed on; those that are set are recorded.
NOTED: Final = ("LD_", "CUDA_", "KESTREL_", "OMP_", "ZIG_", "CUPY_", "NVCC_", "NVIDIA_", "PYTHON", "CPATH", "MALLOC_")
LOG_BYTES_MAX: Final = 8 << 20
TAIL_BYTES: Final = 4096
POLL_S: Final = 0.05  # how often a silent command is looked at; one that ends closes its output and is noticed at once
CLOSED_POLL_S: Final = 0.001  # the same, once its output is closed
PIPE_READS_MAX: Final = 64  # of 64 KiB: more than a pipe holds
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")

# Reads `+GROUP` and `-GROUP` lines, and kills what is left when the writer is gone.
_WATCHER: Final = """
import os, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, 9)
    except OSError:
        pass
"""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended: a negative `code` is a signal, `tail` the end of its output; `cut`: the log lacks some."""

    code: int
    timed_out: bool
    seconds_ms: int
    tail: str
    cut: bool = False

    @property
    def last_line(self) -> str:
        """The last line of output that is not empty, or `no output`."""
        return next((line.strip() for line in reversed(self.tail.splitlines()) if line.strip()), "no output")


class _Running:
    """The process groups of this process: registered with a watcher, killed together by `stop_all`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.groups: set[int] = set()
        self.watcher: subprocess.Popen[bytes] | None = None
        self.stopped: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def watch(self) -> None:
        """The watcher is there, so that a command is known to it some microseconds after its start."""
        with self.lock:
            self._tell("")

    def add(self, group: int) -> None:
        with self.lock:
            self.groups.add(group)
            self._tell(f"+{group}\n")
            if threading.current_thread() in self.stopped:  # while the command was being started
                raise _stopped()

    def remove(self, group: int) -> None:
        with self.lock:
            self.groups.discard(group)
            self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        if self.watcher is None or self.watcher.poll() is not None:
            self.watcher = _watcher()
            line = "".join(f"+{one}\n" for one in self.groups)  # if there was one before it, it was killed
        assert self.watcher.stdin is not None
        try:
            self.watcher.stdin.write(line.encode())
            self.watcher.stdin.flush()
        except OSError:
            self.watcher = None
            self._tell(line)


def _watcher() -> subprocess.Popen[bytes]:
    quiet, argv = subprocess.DEVNULL, [sys.executable, "-I", "-S", "-c", _WATCHER]
    made = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)
    atexit.register(_end, made)
    return made


def _end(watcher: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        watcher.communicate(timeout=1)


_running: Final = _Running()


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    limit_s: float,
    log: Path,
    sink: Callable[[bytes], None] | None = None,
) -> Finished:
    """The command has ended, and its whole process group with it; its output, both streams in order, is in `log`.

    `env` is added to what every command gets (`environment`). A command that is too slow is killed: a value, not an
    error. `sink` is called with each piece of output. Raises MachineError if the program is missing or cannot be
    started, Waiting if `stop_all` was called meanwhile. May be called from several threads at once.
    """
    if threading.current_thread() in _running.stopped:
        raise _stopped()
    start = time.monotonic()
    with _Log(log, sink) as output, _started(argv, cwd, environment(env), output.end) as process:
        timed_out = not _ended(process, output, start + limit_s)
        seconds_ms = round((time.monotonic() - start) * 1000)
        _kill(process)
        output.drain()
    if threading.current_thread() in _running.stopped:
        raise _stopped()
    return Finished(process.returncode, timed_out, seconds_ms, output.tail(), output.cut)


@contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that run commands. Where the block fails or is interrupted, theirs are killed and the rest is dropped."""
    with ThreadPoolExecutor(count) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise


def stop_all() -> None:
    """Every command that another thread runs is killed, and what those threads run next raises Waiting."""
    with _running.lock:
        others = (thread for thread in threading.enumerate() if thread is not threading.current_thread())
        _running.stopped.update(others)
        for group in _running.groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """All the variables that a command gets: a few of this process, some that keep Python repeatable, and `extra`."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | SET | dict(extra)


def noted(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the variables that change what a program does, sorted. They are recorded and not passed on."""
    return tuple(sorted(name for name in environ if name.startswith(NOTED)))


class _Log:
    """The reading end of a command's output: a bounded file, the last bytes, and whoever listens."""

    def __init__(self, path: Path, sink: Callable[[bytes], None] | None) -> None:
        self.path, self.sink, self.size, self.last = path, sink, 0, b""
        self.begin, self.end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.begin, False)
        self.ready = select.poll()
        self.ready.register(self.begin, select.POLLIN)

    def __enter__(self) -> _Log:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self.file = os.open(self.path, flags, 0o644)
        except OSError as error:
            os.close(self.begin)
            os.close(self.end)
            raise MachineError(self.path.name, f"cannot be written ({error.strerror})", "see to the folder") from None
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.begin)
        os.close(self.file)

    @property
    def cut(self) -> bool:
        return self.size > LOG_BYTES_MAX

    def tail(self) -> str:
        return _CONTROL.sub("", self.last.decode("utf-8", "replace"))

    def take(self) -> bool:
        """Takes one piece. False if there will be no more."""
        try:
            data = os.read(self.begin, 1 << 16)
        except BlockingIOError:
            return True
        room = max(0, LOG_BYTES_MAX - self.size)
        self.size += len(data)
        self.last = (self.last + data)[-TAIL_BYTES:]
        try:
            kept = data[:room]
            while kept:
                kept = kept[os.write(self.file, kept) :]
        except OSError as error:
            raise MachineError(self.path.name, f"cannot be written ({error.strerror})", "make room") from None
        if self.sink is not None and data:
            self.sink(data)
        return bool(data)

    def wait(self, seconds: float) -> bool:
        """True if there is something to take, at the latest after some time."""
        return bool(self.ready.poll(seconds * 1000))

    def drain(self) -> None:
        """Takes what dead writers left in the pipe; what a survivor goes on writing is not waited for."""
        for _ in range(PIPE_READS_MAX):
            if not self.wait(0) or not self.take():
                return


@contextmanager
def _started(argv: Sequence[str], cwd: Path, env: Mapping[str, str], output: int) -> Iterator[subprocess.Popen[bytes]]:
    """A running command that is dead, with its group, when the block is left."""
    try:
        _running.watch()
        process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    except (OSError, ValueError) as error:
        if not cwd.is_dir():
            raise MachineError(cwd.name, "is no folder to run a command in", "run it again") from None
        text = error.strerror if isinstance(error, OSError) else str(error)
        name = shown(Path(argv[0]).name)
        raise MachineError(name, f"cannot be run ({text})", "install it, or correct PATH") from None
    finally:
        os.close(output)
    try:
        _running.add(process.pid)
        yield process
    finally:
        _kill(process)


def _ended(process: subprocess.Popen[bytes], output: _Log, deadline: float) -> bool:
    """True once the command has ended, False if the deadline came first. Its status is left for `_kill` to take."""
    open_still = True
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        left = deadline - time.monotonic()
        if not left > 0:
            return False
        if not open_still:
            time.sleep(min(left, CLOSED_POLL_S))
        elif output.wait(min(left, POLL_S)):
            open_still = output.take()
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The group is dead. It is signalled before its leader is reaped, so its number cannot be another's."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _running.remove(process.pid)
    process.wait()


def _stopped() -> Waiting:
    return Waiting("commands", "stopped with the rest; what was done is kept", "run the same command again")
