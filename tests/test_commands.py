"""Commands end, with all that they started, and leave a bounded log; the environment is the one that is stated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import commands
from pipeline.commands import Finished
from pipeline.errors import MachineError, Waiting

ROOT = Path(__file__).parent.parent
LONG_S = 600  # how long a child sleeps that must not live so long


def run(folder: Path, *argv: str, limit_s: float = 20, env: dict[str, str] | None = None) -> Finished:
    return commands.run(argv, cwd=folder, env=env or {}, limit_s=limit_s, log=folder / "log")


def sh(folder: Path, script: str, limit_s: float = 20) -> Finished:
    return run(folder, "sh", "-c", script, limit_s=limit_s)


def is_alive(pid: int) -> bool:
    """True for a process that is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(fact: Callable[[], bool], seconds: float = 10) -> bool:
    """True as soon as the fact holds."""
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def written_pid(path: Path) -> int:
    assert until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def test_code_output_and_log_are_the_commands_own(tmp_path: Path) -> None:
    """Both streams, in order, in the log and at its end in `tail`; the exit code as it was."""
    done = sh(tmp_path, "echo one; echo two >&2; echo three; exit 3")
    assert (done.code, done.timed_out, done.cut) == (3, False, False)
    assert done.tail == "one\ntwo\nthree\n" == (tmp_path / "log").read_text()
    assert done.last_line == "three"
    assert 0 <= done.seconds_ms < 20_000


def test_no_shell_sees_the_arguments(tmp_path: Path) -> None:
    """Metacharacters, spaces, quotes and empty arguments arrive as they are."""
    words = ["$HOME", "a b", "; touch x", '"', "", "*", "\n"]
    done = run(tmp_path, sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *words)
    assert done.tail.strip() == ascii(words)
    assert not (tmp_path / "x").exists()


def test_a_killed_command_has_its_signal_as_a_negative_code(tmp_path: Path) -> None:
    """As a compiler that ran out of memory has."""
    assert sh(tmp_path, "kill -9 $$").code == -signal.SIGKILL


def test_a_command_without_output_says_so(tmp_path: Path) -> None:
    """The last line of nothing is `no output`."""
    assert sh(tmp_path, "true").last_line == "no output"


def test_a_command_that_closes_its_output_is_still_waited_for(tmp_path: Path) -> None:
    """End of output is not end of command."""
    assert sh(tmp_path, "exec 1>&- 2>&-; sleep 0.1; exit 7").code == 7


def test_a_slow_command_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    """A time limit is a value; the grandchild that the shell left in the background is dead too."""
    done = sh(tmp_path, f"sleep {LONG_S} & echo $! > pid; echo begun; sleep {LONG_S}", limit_s=0.3)
    assert (done.timed_out, done.code, done.tail) == (True, -signal.SIGKILL, "begun\n")
    assert 300 <= done.seconds_ms < 10_000
    assert until(lambda: not is_alive(written_pid(tmp_path / "pid")))


def test_what_a_command_left_in_the_background_ends_with_it(tmp_path: Path) -> None:
    """A daemon that holds the output open neither lives on nor is waited for."""
    done = sh(tmp_path, f"sleep {LONG_S} & echo $! > pid; echo done")
    assert (done.code, done.tail) == (0, "done\n")
    assert until(lambda: not is_alive(written_pid(tmp_path / "pid")))


def test_a_process_that_left_the_group_is_not_waited_for(tmp_path: Path) -> None:
    """It may hold the pipe and write for ever."""
    script = f"import os, sys, time; os.setsid(); open('pid', 'w').write(f'{{os.getpid()}}\\n'); time.sleep({LONG_S})"
    start = time.monotonic()
    done = run(tmp_path, "sh", "-c", f'"{sys.executable}" -c "{script}" & while ! test -s pid; do sleep 0.01; done')
    pid = written_pid(tmp_path / "pid")
    assert done.code == 0
    assert time.monotonic() - start < 10
    os.kill(pid, signal.SIGKILL)


def test_a_flood_of_output_is_kept_to_a_bounded_log(tmp_path: Path) -> None:
    """The log is cut and says so; the end of the output is kept all the same."""
    done = sh(tmp_path, f"yes flood | head -c {commands.LOG_BYTES_MAX + 100}; echo; echo the end")
    assert done.cut
    assert (tmp_path / "log").stat().st_size == commands.LOG_BYTES_MAX
    assert done.last_line == "the end"
    assert len(done.tail) <= commands.TAIL_BYTES


def test_control_sequences_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """The tail is text; the log holds every byte."""
    done = sh(tmp_path, r"printf '\033[31mred\033[0m\007\033]0;t\n\377'")
    assert done.tail == "red]0;t\n\N{REPLACEMENT CHARACTER}"
    assert (tmp_path / "log").read_bytes().startswith(b"\x1b[31mred")


def test_each_piece_of_output_goes_to_the_sink(tmp_path: Path) -> None:
    """Progress can be shown while the command runs."""
    pieces: list[bytes] = []
    commands.run(["echo", "hi"], cwd=tmp_path, env={}, limit_s=9, log=tmp_path / "log", sink=pieces.append)
    assert b"".join(pieces) == b"hi\n"


def test_a_commands_environment_is_the_stated_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes behaviour is not passed on unless the check says so, and neither is a secret."""
    for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "OMP_NUM_THREADS", "KESTREL_Q35_MM", "CUDA_VISIBLE_DEVICES", "TOKEN"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("HOME", "/somewhere")
    done = run(tmp_path, "env", env={"OMP_NUM_THREADS": "2"})
    seen = dict(line.split("=", 1) for line in done.tail.splitlines())
    assert set(seen) <= {*commands.PASSED_ON, *commands.SET, "OMP_NUM_THREADS"}
    assert (seen["HOME"], seen["OMP_NUM_THREADS"]) == ("/somewhere", "2")
    assert {name: seen[name] for name in commands.SET} == commands.SET
    assert (seen["PYTHONHASHSEED"], seen["PYTHONDONTWRITEBYTECODE"]) == ("0", "1")


def test_a_command_has_no_threads_but_those_that_it_starts(tmp_path: Path) -> None:
    """NumPy's library starts none, which would spin beside the other commands, and a sum is cut alike everywhere."""
    count = "import os, numpy; print(len(os.listdir('/proc/self/task')))"
    assert run(tmp_path, sys.executable, "-c", count).tail == "1\n"


def test_names_that_change_behaviour_are_noted_and_others_are_not() -> None:
    """Names alone, sorted: a value could be a secret."""
    environ = {"OMP_NUM_THREADS": "1", "LD_PRELOAD": "x", "TOKEN": "s", "PATH": "p", "KESTREL_Q35_MM": "4"}
    assert commands.noted(environ) == ("KESTREL_Q35_MM", "LD_PRELOAD", "OMP_NUM_THREADS")


def test_a_command_reads_nothing_and_inherits_nothing(tmp_path: Path) -> None:
    """Its standard input is empty, and it has no file of ours open."""
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        done = sh(tmp_path, "cat; ls /proc/self/fd | wc -l")
    assert int(done.tail) <= 4


@pytest.mark.parametrize("kind", ["missing", "not executable", "no program", "folder"])
def test_a_program_that_cannot_be_started_is_one_line(tmp_path: Path, kind: str) -> None:
    """Named, with what to do, exit code 4."""
    program = tmp_path / "compiler"
    if kind == "not executable":
        program.write_text("#!/bin/sh\n")
    elif kind == "no program":
        program.write_bytes(b"\x00\x01garbage")
        program.chmod(0o755)
    elif kind == "folder":
        program.mkdir()
    with pytest.raises(MachineError, match=r"MachineError: compiler: cannot be run \(.*\); install it") as caught:
        run(tmp_path, str(program))
    assert caught.value.exit_code == 4


def test_a_missing_working_folder_is_not_blamed_on_the_program(tmp_path: Path) -> None:
    """Both are a FileNotFoundError to the system."""
    with pytest.raises(MachineError, match="gone: is no folder to run a command in"):
        commands.run(["true"], cwd=tmp_path / "gone", env={}, limit_s=5, log=tmp_path / "log")


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A link in its place is not followed."""
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MachineError, match="log: cannot be written"):
        run(tmp_path, "true")
    assert not (tmp_path / "elsewhere").exists()


def test_no_file_stays_open_after_a_run(tmp_path: Path) -> None:
    """Thousands of commands run in one proof."""
    sh(tmp_path, "true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        sh(tmp_path, "true")
    with pytest.raises(MachineError):
        run(tmp_path, "./absent")
    assert len(os.listdir("/proc/self/fd")) == before


def test_commands_of_several_threads_are_stopped_together(tmp_path: Path) -> None:
    """Each stopped thread's run raises Waiting, and so does its next one; the thread that stops them goes on."""
    raised: list[str] = []

    def work(name: str) -> None:
        for _ in range(2):
            try:
                (tmp_path / name).mkdir(exist_ok=True)
                sh(tmp_path / name, f"echo $$ > pid; exec sleep {LONG_S}")
            except Waiting as error:
                raised.append(str(error))

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    pids = [written_pid(tmp_path / name / "pid") for name in ("a", "b")]
    commands.stop_all()
    for thread in threads:
        thread.join(10)
    assert len(raised) == 4
    assert until(lambda: not any(is_alive(pid) for pid in pids))
    assert sh(tmp_path, "true").code == 0


RUNNER = f"""
import sys
from pathlib import Path
from pipeline import commands
work, script = Path(sys.argv[1]), "sleep 0.1; sleep {LONG_S} & echo $! > pid; sleep {LONG_S}"
commands.run(["sh", "-c", script], cwd=work, env={{}}, limit_s=900, log=work / "log")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_when_the_pipeline_dies_its_commands_die(tmp_path: Path, number: signal.Signals) -> None:
    """A resumed walk never meets a command of the walk before it; SIGKILL included, grandchildren included."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", RUNNER, tmp_path], env=environ, stderr=subprocess.DEVNULL) as process:
        pid = written_pid(tmp_path / "pid")
        assert is_alive(pid)
        process.send_signal(number)
        assert process.wait(10) != 0
    assert until(lambda: not is_alive(pid))


def test_a_killed_watcher_is_replaced(tmp_path: Path) -> None:
    """The next command is watched again."""
    sh(tmp_path, "true")
    watcher = commands._running.watcher
    assert watcher is not None
    watcher.kill()
    watcher.wait()
    assert sh(tmp_path, "true").code == 0
    assert commands._running.watcher is not watcher
    assert commands._running.groups == set()
