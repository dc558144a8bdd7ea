"""Drives an adder.so: python adder/run.py dump | reference | rows | refuse | guards | bench.

What it leaves in --out: one .f32 file a result, layout.json (what lies where in them), inputs.json (what it was fed).
Exit codes: 0, or 5 with a line `refused: WORD`. Nothing that decides bytes has a default.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import statistics
import sys
import time
from array import array
from pathlib import Path

import reference

REFUSED = 5
REASONS = {1: "rows", 2: "width", 3: "limit"}
GUARD = 16  # floats before and behind every buffer
POISON = array("f", [float("nan")]).tobytes()
FENCE = array("f", [12.1414]).tobytes()  # not NaN: NaN plus something is the same NaN, and the guard would not see it
BENCH_ROWS, BENCH_WIDTH, BENCH_ROUNDS = 8, 2048, 101

FLOATS, INT, FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
ENTRIES = {  # name -> parameters, in the order in which the blocks brought them
    "sum": (FLOATS, FLOATS, FLOATS, INT, INT),
    "scale": (FLOATS, FLOATS, INT, INT, FLOAT),
    "clip": (FLOATS, FLOATS, INT, INT, FLOAT),
}


class RefusedError(Exception):
    """The artifact, or this tool for it, says no."""


class Buffer:
    """Floats between two guards. An element that nobody wrote is NaN."""

    def __init__(self, values: list[float] | int) -> None:
        self.length = values if isinstance(values, int) else len(values)
        whole = FENCE * GUARD + POISON * self.length + FENCE * GUARD
        self.memory = ctypes.create_string_buffer(whole, len(whole))
        self.pointer = ctypes.addressof(self.memory) + 4 * GUARD
        if not isinstance(values, int):
            ctypes.memmove(self.pointer, array("f", values).tobytes(), 4 * self.length)

    def bytes(self) -> bytes:
        return self.memory.raw[4 * GUARD : 4 * (GUARD + self.length)]

    def overrun(self) -> bool:
        guards = self.memory.raw[: 4 * GUARD] + self.memory.raw[4 * (GUARD + self.length) :]
        return guards != FENCE * (2 * GUARD)


class Adder:
    """An open artifact."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path.resolve()))

    def call(self, entry: str, *arguments: object) -> None:
        try:
            function = getattr(self.library, entry)
        except AttributeError:
            raise RefusedError("entry") from None
        function.argtypes, function.restype = ENTRIES[entry], INT
        reason = function(*(item.pointer if isinstance(item, Buffer) else item for item in arguments))
        if reason:
            raise RefusedError(REASONS[reason])


class Dumps:
    """The folder that the pipeline compares: files of f32, and what lies where in them."""

    def __init__(self, out: Path) -> None:
        self.out, self.layout, self.inputs = out, {}, []

    def add(self, name: str, data: bytes, *shape: int) -> None:
        path = self.out / f"{name}.f32"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.layout[f"{name}.f32"] = [{"name": name, "dtype": "f32", "shape": list(shape), "offset": 0}]

    def close(self) -> None:
        (self.out / "layout.json").write_text(json.dumps(self.layout))
        (self.out / "inputs.json").write_text(json.dumps(self.inputs))


def rows_of(options: argparse.Namespace, dumps: Dumps) -> list[list[float]]:
    """The input, [rows][width]: from a file, or integers from a seed over 1024, which f32 holds exactly."""
    if options.file:
        text = options.file.read_text()
        x, name, origin = [[float(word) for word in line.split()] for line in text.splitlines()], "file", "given"
    else:
        state, x = options.seed, []
        for _ in range(options.rows):
            x.append([])
            for _ in range(options.width):
                state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
                x[-1].append(((state >> 40) - 2**23) / 1024)
        name, origin = "x", f"seed {options.seed}, {options.rows} rows of {options.width}"
    data = array("f", flat(x)).tobytes()
    dumps.inputs.append({"name": name, "origin": origin, "digest": hashlib.sha256(data).hexdigest()})
    return x


def flat(x: list[list[float]]) -> list[float]:
    return [value for row in x for value in row]


def dump(options: argparse.Namespace) -> None:
    """What the artifact makes of the input: one file for each of --ops."""
    adder, dumps = Adder(options.artifact), Dumps(options.out)
    x = rows_of(options, dumps)
    rows, width, fed = len(x), len(x[0]), Buffer(flat(x))
    for entry in options.ops.split(","):
        out = Buffer(rows * width)
        if entry == "sum":
            totals = Buffer([0.0] * width)
            adder.call("sum", totals, fed, out, rows, width)
            dumps.add("totals", totals.bytes(), width)
        else:
            adder.call(entry, fed, out, rows, width, options.factor if entry == "scale" else options.limit)
        dumps.add(entry, out.bytes(), rows, width)
    dumps.close()


def truth(options: argparse.Namespace) -> None:
    """The same files as dump, from reference.py."""
    dumps = Dumps(options.out)
    x = rows_of(options, dumps)
    made = {
        "sum": lambda: reference.sums(x),
        "scale": lambda: reference.scaled(x, options.factor),
        "clip": lambda: reference.clipped(x, options.limit),
    }
    for entry in options.ops.split(","):
        result = made[entry]()
        if entry == "sum":
            dumps.add("totals", array("f", result[-1]).tobytes(), len(x[0]))
        dumps.add(entry, array("f", flat(result)).tobytes(), len(x), len(x[0]))
    dumps.close()


def rows(options: argparse.Namespace) -> None:
    """Sums over 1 to --rows rows, in one call or one row a call: two forms of one file set."""
    adder, dumps = Adder(options.artifact), Dumps(options.out)
    x, width = rows_of(options, dumps), options.width
    for m in range(1, options.rows + 1):
        totals, step = Buffer([0.0] * width), m if options.form == "rows" else 1
        made = b""
        for r in range(0, m, step):
            out = Buffer(step * width)
            adder.call("sum", totals, Buffer(flat(x[r : r + step])), out, step, width)
            made += out.bytes()
        dumps.add(f"M{m}/sum", made, m, width)
        dumps.add(f"M{m}/totals", totals.bytes(), width)
    dumps.close()


def refuse(options: argparse.Namespace) -> None:
    """A call that must be refused, and the state before and after it."""
    adder, room = Adder(options.artifact), 16 * 16
    totals = Buffer([float(n) for n in range(room)])
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "before.bin").write_bytes(totals.bytes())
    try:
        if options.ops == "sum":
            adder.call("sum", totals, Buffer([1.0] * room), Buffer(room), options.rows, options.width)
        else:
            adder.call("clip", Buffer([1.0] * room), totals, options.rows, options.width, options.limit)
    finally:
        (options.out / "after.bin").write_bytes(totals.bytes())


def guards(options: argparse.Namespace) -> None:
    """Says `overrun: NAME` for a buffer that was written before its start or behind its end."""
    adder, names = Adder(options.artifact), ("totals", "x", "out")
    for width in range(1, options.width + 1):
        size = options.rows * width
        buffers = Buffer([0.0] * width), Buffer([1.0] * size), Buffer(size)
        adder.call("sum", *buffers, options.rows, width)
        for name, buffer in zip(names, buffers, strict=True):
            if buffer.overrun():
                print(f"overrun: {name} at width {width}")
    print("guards: done")


def bench(options: argparse.Namespace) -> None:
    """The median of some calls, in the few fields of pytest-benchmark's JSON that a landing reads."""
    adder, size = Adder(options.artifact), BENCH_ROWS * BENCH_WIDTH
    totals, x, out = Buffer([0.0] * BENCH_WIDTH), Buffer([1.0] * size), Buffer(size)
    seconds = []
    for _ in range(BENCH_ROUNDS):
        start = time.perf_counter()
        adder.call("sum", totals, x, out, BENCH_ROWS, BENCH_WIDTH)
        seconds.append(time.perf_counter() - start)
    stats = {"median": statistics.median(seconds), "rounds": BENCH_ROUNDS}
    options.out.mkdir(parents=True, exist_ok=True)
    found = {"benchmarks": [{"name": f"sum[{BENCH_ROWS}x{BENCH_WIDTH}]", "stats": stats}]}
    (options.out / "bench.json").write_text(json.dumps(found))


COMMANDS = {"dump": dump, "reference": truth, "rows": rows, "refuse": refuse, "guards": guards, "bench": bench}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ops", help="of sum,scale,clip")
    parser.add_argument("--form", choices=["rows", "singles"])
    parser.add_argument("--file", type=Path, help="the input, a line a row")
    for number in ("seed", "rows", "width"):
        parser.add_argument(f"--{number}", type=int)
    for number in ("factor", "limit"):
        parser.add_argument(f"--{number}", type=float)
    options = parser.parse_args()
    try:
        COMMANDS[options.command](options)
    except RefusedError as reason:
        print(f"refused: {reason}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
