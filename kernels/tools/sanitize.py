"""python -m kernels sanitize --artifact A --tools memcheck,racecheck: hybrid steps of tiny under compute-sanitizer.

Every kernel of them: two tokens, so that the second step has a state behind it, and the greedy choice of each; rows
behind a token; and graphs of every number of rows, with marks and rollbacks between. Prints a line with the word for it
for everything that a tool reports; exit 0 then too, since what was printed is the result.
Exit 77 with one line where there is no compute-sanitizer, or where it cannot look at this device.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernels import artifact
from kernels.engine.errors import KernelError

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PROGRAM = "compute-sanitizer"
UNOBTAINABLE = 77
LIMIT_S = 300
SUMMARY = re.compile(r"========= (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
REPORTED_MAX = 4  # lines of one report that are printed
PADDING = ("--padding", "512")  # bytes beside every allocation, so that a step beyond a buffer meets no other
REFUSED = ("Device not supported", "Internal Sanitizer Error", "is not supported", "Unable to find injection")
TEXT = Path(__file__).parents[1] / "text" / "kestrel.txt"
MODEL = ("--shape", "tiny", "--layers", "hybrid", "--seed", "1")
RUNS = (
    ("dump", *MODEL, "--text", str(TEXT), "--length", "2", "--greedy"),
    ("mt", *MODEL, "--form", "rows", "--rows", "3", "--prefix", "1"),
    ("graphs", *MODEL[:4], "--form", "graphs", "--prefix", "5"),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one tool printed, and how many things it reported; None if it never came to its summary."""

    tool: str
    lines: tuple[str, ...]
    reported: int | None
    code: int


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels sanitize", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", type=Path, help="without it: the CUDA build of this tree")
    parser.add_argument("--tools", type=_tools, default=TOOLS, help=f"of {','.join(TOOLS)}")
    options = parser.parse_args(argv)
    path = options.artifact or artifact.tree("cuda-sm_90")
    opened = artifact.load(path)
    if opened.binary.suffix != ".cubin":
        raise KernelError(f"artifact {opened.digest[:12]}", f"is for {opened.target}", "name one for a CUDA target")
    program = shutil.which(PROGRAM)
    if program is None:
        print(f"{PROGRAM} is not on this machine; prove this check where it is")
        return UNOBTAINABLE
    jobs = [(tool, run) for tool in options.tools for run in RUNS]
    with ThreadPoolExecutor(len(options.tools)) as pool:
        return _told(list(pool.map(lambda job: _under(program, job[0], job[1], path), jobs)))


def _told(found: list[Seen]) -> int:
    """Prints what was reported; the exit code."""
    for seen in found:
        if seen.reported:
            report = [line for line in seen.lines if line.startswith("=========") and line.strip("= ")]
            for line in report[1 : 1 + REPORTED_MAX]:
                print(f"finding: {seen.tool}: {line.strip('= ')}")
        elif seen.reported is None and any(word in line for word in REFUSED for line in seen.lines):
            line = next(line for line in seen.lines if any(word in line for word in REFUSED))
            print(f"{PROGRAM} cannot look at this device with {seen.tool}: {line.strip('= ')}")
            return UNOBTAINABLE
        elif seen.reported is None or seen.code:
            line = seen.lines[-1] if seen.lines else "no word"
            raise KernelError(f"{PROGRAM} --tool {seen.tool}", f"ended with {seen.code}: {line}", "run it by hand")
        else:
            print(f"{seen.tool}: 0 reported")
    return 0


def _under(program: str, tool: str, run: tuple[str, ...], path: Path) -> Seen:
    """One run under one tool."""
    padding = PADDING if tool == "memcheck" else ()
    with tempfile.TemporaryDirectory(prefix="kestrel-sanitize-") as out:
        inner = [sys.executable, "-m", "kernels", *run, "--artifact", str(path), "--out", out]
        command = [program, "--tool", tool, *padding, *inner]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return Seen(tool, (f"was ended after {LIMIT_S} s",), None, -1)
    lines = tuple((done.stdout + done.stderr).splitlines())
    counts = [int(match.group(1)) for match in map(SUMMARY.match, lines) if match]
    return Seen(tool, lines, max(counts) if counts else None, done.returncode)


def _tools(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(TOOLS):
        raise argparse.ArgumentTypeError(f"use of {','.join(TOOLS)}")
    return names
