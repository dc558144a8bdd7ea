"""python -m kernels rows: kernels over M rows by one launch, or by M launches of one row; both must leave the same.

Leaves FAMILY.u32 for each family, by case and M the raw words [M + guard][width] of what was written, canaries behind
the last row. With --launches instead launches.i32: which kernels ran on which grids, in which the two forms differ.
"""

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact
from kernels.device.gemv import CHUNK, LANES, NIBBLES
from kernels.engine.device import THREADS_A_BLOCK, WARPS_A_BLOCK

from .forms import FORMS, Stage, Values, blocks, guarded, row_counts
from .inputs import file_digest
from .outputs import Input, report, write_dump, write_inputs

EPS = np.float32(1e-6)

# Arguments of a kernel in its order, each as what it is to a row; an int, a float and an array are the same for all.


@dataclass(frozen=True, slots=True)
class Row:
    """An input with a part for each row: [M][...]."""

    array: np.ndarray


@dataclass(frozen=True, slots=True)
class Result:
    """An output [M][width]; where `start` is given it is changed in place, else it starts as canaries."""

    width: int
    start: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Elements:
    """A count that grows with the rows: n for one, M n for M."""

    n: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """The visible length before row 0, in device memory: a launch of row m alone finds m more."""

    value: int


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel over M rows. `grid`: blocks of so many rows."""

    kernel: str
    grid: Callable[[int], int]
    args: tuple[Any, ...]


Case = Callable[[str, int, Values], Call]  # (name, M) to the call


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels rows", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    parser.add_argument("--family", required=True, type=_families, metavar="NAMES", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--form", required=True, choices=FORMS)
    parser.add_argument("--rows", required=True, type=row_counts, metavar="M", help="1..8, or 2,4,8")
    parser.add_argument("--sizes", required=True, choices=("small", "all"))
    parser.add_argument("--launches", action="store_true", help="leave what was launched, and nothing else")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    path = options.artifact or artifact.tree()
    stage, values = Stage(artifact.load(path)), Values()
    files: dict[str, Mapping[str, np.ndarray]] = {}
    for family in options.family:
        files[f"{family}.u32"] = dict(_outputs(stage, values, family, options))
    if options.launches:
        files = {"launches.i32": {"launches": stage.launches()}}
    stage.close()
    outputs = write_dump(options.out, files)
    inputs = [Input("artifact", path.name, file_digest(path)), values.input()]
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "rows", *argv]), inputs, outputs)
    return 0


def _outputs(
    stage: Stage, values: Values, family: str, options: argparse.Namespace
) -> Iterator[tuple[str, np.ndarray]]:
    for name, case in FAMILIES[family](options.sizes == "small").items():
        for rows in options.rows:
            call = case(f"{family} {name} M{rows}", rows, values)
            results = RUN[options.form](stage, call, rows)
            yield from ((f"{name} M{rows} output {i}", result) for i, result in enumerate(results))


def in_singles(stage: Stage, call: Call, rows: int) -> list[np.ndarray]:
    """The outputs after a launch a row, none of which sees another row's memory."""
    found: list[list[np.ndarray]] = []
    for m in range(rows):
        passed = [_of_one(stage, arg, m) for arg in call.args]
        stage.run(call.kernel, call.grid(1), *passed)
        written = [buffer for arg, buffer in zip(call.args, passed, strict=True) if isinstance(arg, Result)]
        found.append([stage.one_row(buffer) for buffer in written])
    return [guarded(results) for results in zip(*found, strict=True)]


def in_rows(stage: Stage, call: Call, rows: int) -> list[np.ndarray]:
    """The outputs after one launch of all rows, with whatever it left behind them."""
    passed = [_of_all(stage, arg, rows) for arg in call.args]
    stage.run(call.kernel, call.grid(rows), *passed)
    return [stage.bits(buffer) for arg, buffer in zip(call.args, passed, strict=True) if isinstance(arg, Result)]


RUN = {"singles": in_singles, "rows": in_rows}


def _of_one(stage: Stage, arg: Any, m: int) -> Any:
    """What a launch of row m alone is given."""
    if isinstance(arg, Row):
        return stage.put(arg.array[m])
    if isinstance(arg, Result):
        return _written(stage, arg, slice(m, m + 1), 1)
    if isinstance(arg, Cursor):
        return stage.put(np.array([arg.value + m], np.int32))
    return _of_all(stage, arg, 1)


def _of_all(stage: Stage, arg: Any, rows: int) -> Any:
    """What a launch of all rows is given."""
    if isinstance(arg, Row):
        return stage.put(arg.array)
    if isinstance(arg, Result):
        return _written(stage, arg, slice(rows), rows)
    if isinstance(arg, Cursor):
        return stage.put(np.array([arg.value], np.int32))
    if isinstance(arg, Elements):
        return arg.n * rows
    return stage.put(arg) if isinstance(arg, np.ndarray) else arg


def _written(stage: Stage, result: Result, part: slice, rows: int) -> Any:
    if result.start is None:
        return stage.blank(rows, result.width)
    return stage.put(guarded(list(result.start[part].view(np.uint32))))


# the families: their cases by name

# every remainder modulo a block's 256 lanes that the widths of a model have, those of a warp's tail, and 27B's widths
WIDTHS = (1, 31, 32, 33, 64, 96, 97, 128, 160, 192, 224, 255, 256, 257, 512, 1021, 5120, 17408)
SMALL_WIDTHS = (33, 64, 257)


def _by_width(case: Callable[[str, int, Values, int], Call]) -> Callable[[bool], dict[str, Case]]:
    """Cases of a kernel that has one size."""

    def cases(small: bool) -> dict[str, Case]:
        return {f"n{n}": _with(case, n) for n in (SMALL_WIDTHS if small else WIDTHS)}

    return cases


def _with(case: Callable[..., Call], *sizes: Any) -> Case:
    return lambda name, rows, values: case(name, rows, values, *sizes)


def _rms_norm(name: str, rows: int, values: Values, n: int) -> Call:
    x, w = values(f"{name} x", rows, n), values(f"{name} w", n)
    return Call("rms_norm", lambda count: count, (Row(x), w, Result(n), n, EPS))


def _add(name: str, rows: int, values: Values, n: int) -> Call:
    """No kernel of its own for rows: index by index over [M][n]."""
    x, y = values(f"{name} x", rows, n), values(f"{name} y", rows, n)
    return Call("add", _elementwise(n), (Row(x), Result(n, start=y), Elements(n)))


def _swiglu(name: str, rows: int, values: Values, n: int) -> Call:
    gate, up = values(f"{name} gate", rows, n), values(f"{name} up", rows, n)
    return Call("swiglu", _elementwise(n), (Row(gate), Row(up), Result(n), Elements(n)))


def _elementwise(n: int) -> Callable[[int], int]:
    return lambda rows: blocks(n * rows, THREADS_A_BLOCK)


# (rows of the matrix, its columns): tails of both, every remainder modulo a chunk, widths of small shapes and of 27B
MATRICES = (
    *((13, cols) for cols in (1, 31, 32, 33, 64, 96, 97, 128, 160, 192, 224, 255, 256, 257, 384, 512, 1021)),
    *((rows, 256) for rows in (1, 7, 8, 9, 48, 512)),
    *((32, cols) for cols in (5120, 6144, 17408)),
)
SMALL_MATRICES = ((13, 33), (8, 256), (9, 257), (9, 5409))


def _matrices(small: bool) -> dict[str, Case]:
    return {f"{rows}x{cols}": _with(_gemv_q4, rows, cols) for rows, cols in (SMALL_MATRICES if small else MATRICES)}


def _gemv_q4(name: str, rows: int, values: Values, weight_rows: int, cols: int) -> Call:
    chunks = blocks(cols, CHUNK)
    words = values.words(f"{name} words", weight_rows, chunks * LANES)
    scales = values.halves(f"{name} scales", weight_rows, chunks * NIBBLES)
    args = (words, scales, Row(values(f"{name} x", rows, cols)), Result(weight_rows), weight_rows, cols)
    return Call("gemv_q4", lambda count: count * blocks(weight_rows, WARPS_A_BLOCK), args)


# (heads, kv heads, head size, rotated part): odd sizes, the small shapes, 27B
HEADS = (
    *((1, 1, 1, 0), (2, 1, 7, 4), (3, 1, 33, 32), (5, 5, 97, 70), (6, 2, 128, 128), (9, 3, 255, 2)),
    *((6, 2, 64, 16), (6, 2, 32, 8), (24, 4, 256, 64)),
)
SMALL_HEADS = ((3, 1, 33, 32), (6, 2, 64, 16))
CURSORS = (0, 1, 5, 17)


def _heads(small: bool) -> dict[str, Case]:
    return {
        f"{'-'.join(map(str, sizes))} at {cursor}": _with(_qk_prep, cursor, *sizes)
        for sizes in (SMALL_HEADS if small else HEADS)
        for cursor in CURSORS
    }


def _qk_prep(
    name: str, rows: int, values: Values, cursor: int, heads: int, kv_heads: int, head_dim: int, rotary: int
) -> Call:
    """The tables end with the last row's position."""
    qg, k = values(f"{name} qg", rows, heads, 2, head_dim), values(f"{name} k", rows, kv_heads, head_dim)
    gains = (values(f"{name} q_weight", head_dim), values(f"{name} k_weight", head_dim))
    angles = tuple(values(f"{name} {table}", cursor + rows, rotary // 2) for table in ("cos", "sin"))
    outs = (Result(heads * head_dim), Result(kv_heads * head_dim))
    args = (Row(qg), Row(k), *gains, *angles, Cursor(cursor), *outs, heads, kv_heads, head_dim, rotary, EPS)
    return Call("qk_prep", lambda count: count * blocks(heads + kv_heads, WARPS_A_BLOCK), args)


FAMILIES: dict[str, Callable[[bool], dict[str, Case]]] = {
    "rms_norm": _by_width(_rms_norm),
    "add": _by_width(_add),
    "swiglu": _by_width(_swiglu),
    "gemv_q4": _matrices,
    "qk_prep": _heads,
}


def _families(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(FAMILIES):
        raise argparse.ArgumentTypeError(f"give some of {', '.join(FAMILIES)}")
    return names
