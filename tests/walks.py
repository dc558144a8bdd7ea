"""Whole walks of the real command line, in scratch repositories that hold the adder with a short manifest."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import scratch

TOP = Path(__file__).parent.parent  # of the pipeline that is tested
TARGET = "cpu-x86_64"
LIMIT_S = 240  # seconds; a loaded machine is slow, and slow is not wrong

# What follows the adder's own targets and blocks: one check, what it must catch and must not, and a short bench.
SHORT = """
[check.twice]
verb = "same"
sides = [["{python}", "adder/run.py", "dump", "--artifact", "{candidate}", "--ops", "sum",
          "--seed", "1", "--rows", "2", "--width", "3", "--out", "{out}"],
         ["{python}", "adder/run.py", "dump", "--artifact", "{candidate}", "--ops", "sum",
          "--seed", "1", "--rows", "2", "--width", "3", "--out", "{out}"]]

[mutant.reads-the-clock]
file = "adder.c"
find = "out[r * width + i] = totals[i];"
replace = "out[r * width + i] = totals[i] + (float)(__builtin_ia32_rdtsc() & 0xffffff);"
caught_by = ["twice"]

[mutant.another-name]
file = "adder.c"
find = "#define ROWS_MAX 8"
replace = "#define ROWS_MAX 8\\nconst char adder_edition[] = \\"neutral\\";"
neutral = true

[bench.step]
since = "scale"
command = ["{python}", "adder/run.py", "bench", "--artifact", "{artifact}", "--out", "{out}"]
pairs = 1
"""

# Every command of the manifest is run through this: it tells that it ran, and waits where a test holds it.
WATCHED = """#!/bin/sh
echo "$*" >> "$HOME/ran"
if [ -e "$HOME/hold" ] && echo "$*" | grep -q -e "$(cat "$HOME/hold")"; then
    echo $$ > "$HOME/held.new" && mv "$HOME/held.new" "$HOME/held"
    while [ -e "$HOME/hold" ]; do sleep 0.02; done
fi
exec "$@"
"""

# The command line, which stops at the first link or rename that matches, once an earlier one has matched.
STOPPING = """
import os, re, runpy, sys, time
earlier, at, held = sys.argv[1:4]
del sys.argv[1:4]
passed = not earlier
def watch(event, arguments):
    global passed
    if event in ("os.link", "os.rename"):
        step = f"{event[3:]} {os.fspath(arguments[1])}"
        if passed and re.search(at, step):
            with open(held + ".new", "w") as file:
                file.write(str(os.getpid()))
            os.rename(held + ".new", held)
            time.sleep(60)
        passed = passed or re.search(earlier, step) is not None
sys.addaudithook(watch)
runpy.run_module("pipeline", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command line ended. `err` is without the lines of progress, which are set in."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last line of standard output."""
        return self.out.rstrip().rpartition("\n")[2]


@dataclass(frozen=True, slots=True)
class Scene:
    """A scratch repository, and a home in which its commands leave word of themselves."""

    root: Path
    home: Path

    @property
    def adder(self) -> Path:
        return self.root / "adder"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger"

    @property
    def baselines(self) -> Path:
        return self.root / "baselines"

    @property
    def current(self) -> Path:
        """The promoted artifact, as the view shows it."""
        return self.baselines / "current" / TARGET / "adder.so"

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG", "LC_ALL") if name in os.environ}
        path = f"{self.home}{os.pathsep}{kept.get('PATH', os.defpath)}"
        return kept | scratch.ENVIRONMENT | {"HOME": str(self.home), "PYTHONPATH": str(TOP), "PATH": path}

    def start(self, *argv: str, program: tuple[str, ...] = ("-m", "pipeline"), **options: Any) -> subprocess.Popen[str]:
        """The command line, started at the top of the repository."""
        pipe = subprocess.PIPE
        command = [sys.executable, *program, *argv]
        options = {"cwd": self.root, "env": self.environ} | options
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, **options)

    def stop(self, *argv: str, at: str, earlier: str = "") -> subprocess.Popen[str]:
        """The command line, started, which has come to a link or rename and waits there for a signal."""
        process = self.start(*argv, program=("-c", STOPPING, earlier, at, str(self.home / "held")))
        self.held()
        (self.home / "held").unlink()
        return process

    def run(self, *argv: str, **options: Any) -> Ended:
        """The command line has ended."""
        return ended(self.start(*argv, **options))

    def land(self, block: str, *more: str) -> Ended:
        """A landing of the adder that must succeed."""
        done = self.run("land", block, "--subject", "adder", *more)
        assert done.code == 0, done
        return done

    def commit(self, message: str = "more") -> str:
        return scratch.commit(self.root, message)

    def edit(self, name: str, old: str, new: str) -> None:
        """One place in a file of the adder is another; nothing is committed."""
        path = self.adder / name
        text = path.read_text()
        assert text.count(old) == 1, (name, old)
        path.write_text(text.replace(old, new))

    def write(self, block: str) -> None:
        """The adder is what it was at a block, but for its manifest, which is the short one."""
        scratch.write(self.adder, block)
        (self.adder / "landing.toml").write_text(manifest())

    def ran(self) -> tuple[str, ...]:
        """Every command of the manifest that was run so far."""
        path = self.home / "ran"
        return tuple(path.read_text().splitlines()) if path.exists() else ()

    def records(self) -> dict[str, bytes]:
        """Every record, as stored."""
        paths = sorted(self.ledger.iterdir()) if self.ledger.is_dir() else []
        return {path.name: path.read_bytes() for path in paths if path.is_file() and path.suffix == ".json"}

    def copy(self, to: Path) -> Scene:
        """The same repository elsewhere, where nothing has run yet. Modes, times and links are kept."""
        shutil.copytree(self.root, to / "root", symlinks=True)
        return Scene(to / "root", home(to))

    def hold(self, pattern: str) -> None:
        """The next command that matches waits until it is let go."""
        (self.home / "hold").write_text(pattern)

    def held(self) -> int:
        """The process that waits, once there is one."""
        path = self.home / "held"
        until(path.exists)
        return int(path.read_text())

    def let_go(self) -> None:
        """What waits goes on."""
        (self.home / "held").unlink(missing_ok=True)
        (self.home / "hold").unlink(missing_ok=True)


def ended(process: subprocess.Popen[str]) -> Ended:
    """How a started command line ended; it is killed if it takes too long."""
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    lines = [line for line in err.splitlines() if not line.startswith("  ")]
    return Ended(process.returncode, out, "\n".join(lines))


def until(holds: Callable[[], bool], seconds: float = LIMIT_S / 2) -> None:
    """Waits until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.005)


def alive(process: int) -> bool:
    """True for a process that runs; a dead one that nobody has taken note of is dead."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def manifest() -> str:
    """The short landing.toml: the adder's own head, one check, and every command is watched."""
    head = (scratch.ADDER / "landing.toml").read_text().partition("# --- what every landing proves ---")[0]
    return (head + SHORT).replace('["{python}"', '["watched", "{python}"')


def home(folder: Path) -> Path:
    """A home with the program through which commands are watched."""
    made = folder / "home"
    made.mkdir(parents=True)
    (made / "watched").write_text(WATCHED)
    (made / "watched").chmod(0o755)
    return made


@functools.cache
def fresh() -> Scene:
    """The adder at block sum, committed, and nothing has landed. To be copied, not used."""
    folder = scratch.room()
    scratch.repository(folder / "root", "sum")
    scene = Scene(folder / "root", home(folder))
    scene.write("sum")
    scene.commit("adder: a short manifest")
    return scene


@functools.cache
def landed() -> Scene:
    """Blocks sum and scale have landed, and everything is committed: records 1 to 6. To be copied, not used."""
    folder = scratch.room()
    scene = fresh().copy(folder)
    scene.land("sum")
    scene.write("scale")
    scene.commit("adder: block scale")
    scene.land("scale")
    scene.commit("land scale")
    return scene
