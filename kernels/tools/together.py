"""python -m kernels together: kernels that do the work of several in one launch, or those that they stand for.

A row times three q4 matrices and two f32 ones, by every R; and a sum with the norm of it. Leaves y.u32, the raw words
of every output with canaries behind it. With --leave launches instead launches.i32, in which the two forms differ.
"""

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact
from kernels.device.gemv import CHUNK, LANES, NIBBLES
from kernels.engine.device import THREADS_A_BLOCK, WARPS_A_BLOCK
from kernels.engine.r_table import R_VALUES
from kernels.engine.r_table import together as projections

from .forms import Stage, Values, blocks
from .inputs import file_digest
from .outputs import Input, report, write_dump, write_inputs
from .rows import EPS

FORMS = ("apart", "together")
Q4_AT_ONCE = 3

# rows of three q4 matrices and of two f32 ones, and the columns of all: tails of each, one absent, 27B's widths
SMALL = ((13, 9, 5, 3, 2, 257), (8, 0, 0, 0, 0, 33), (13, 9, 5, 3, 2, 5409))
ALL = (*SMALL, (1, 1, 1, 0, 0, 1), (40, 24, 8, 6, 6, 256), (33, 64, 0, 1, 8, 1021), (70, 9, 17, 48, 48, 5120))
WIDTHS = (33, 64, 257)
ALL_WIDTHS = (*WIDTHS, 1, 31, 256, 1021, 1024, 5120)
ROWS = 3  # of a sum and its norm


@dataclass(frozen=True, slots=True)
class Operands:
    """A row x [cols], q4 matrices as words and scales, and f32 ones [rows][cols]."""

    rows: tuple[int, ...]
    cols: int
    x: np.ndarray
    q4: tuple[tuple[np.ndarray, np.ndarray], ...]
    plain: tuple[np.ndarray, ...]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels together", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    parser.add_argument("--form", required=True, choices=FORMS)
    parser.add_argument("--sizes", required=True, choices=("small", "all"))
    parser.add_argument("--leave", default="outputs", choices=("outputs", "launches"))
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    path = options.artifact or artifact.tree()
    stage, values = Stage(artifact.load(path)), Values()
    files = {"y.u32": dict(_outputs(stage, values, options.sizes == "small", options.form))}
    if options.leave == "launches":
        files = {"launches.i32": {"launches": stage.launches()}}
    stage.close()
    outputs = write_dump(options.out, files)
    inputs = [Input("artifact", path.name, file_digest(path)), values.input()]
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "together", *argv]), inputs, outputs)
    return 0


def _outputs(stage: Stage, values: Values, small: bool, form: str) -> Iterator[tuple[str, np.ndarray]]:
    products, normed = RUN[form]
    for sizes in SMALL if small else ALL:
        operands = _operands(values, sizes)
        for r in R_VALUES:
            ys = [stage.blank(1, rows) for rows in operands.rows]
            products(stage, operands, r, ys)
            yield from ((f"products {sizes} R{r} output {i}", stage.bits(y)) for i, y in enumerate(ys))
    for n in WIDTHS if small else ALL_WIDTHS:
        z, x = (values(f"together n{n} {name}", ROWS, n) for name in "zx")
        total, y = stage.put(x), stage.blank(ROWS, n)
        normed(stage, stage.put(z), total, stage.put(values(f"together n{n} w", n)), y, n)
        yield f"sum n{n}", stage.bits(total)
        yield f"norm of a sum n{n}", stage.bits(y)


def _products_together(stage: Stage, operands: Operands, r: int, ys: list[Any]) -> None:
    rows = operands.rows
    matrices = [(*map(stage.put, matrix), y, count) for matrix, y, count in zip(operands.q4, ys, rows, strict=False)]
    left, left_ys = rows[Q4_AT_ONCE:], ys[Q4_AT_ONCE:]
    others = [(stage.put(matrix), y, count) for matrix, y, count in zip(operands.plain, left_ys, left, strict=True)]
    grid = blocks(sum(left), WARPS_A_BLOCK) + sum(blocks(count, WARPS_A_BLOCK * r) for count in rows[:Q4_AT_ONCE])
    stage.run(projections(r), grid, *chain(*matrices, *others), stage.put(operands.x), operands.cols)


def _products_apart(stage: Stage, operands: Operands, r: int, ys: list[Any]) -> None:
    x, cols = stage.put(operands.x), operands.cols
    for q4, y, rows in zip(operands.q4, ys, operands.rows, strict=False):
        if rows:
            stage.run("gemv_q4", blocks(rows, WARPS_A_BLOCK), *map(stage.put, q4), x, y, rows, cols)
    for plain, y, rows in zip(operands.plain, ys[Q4_AT_ONCE:], operands.rows[Q4_AT_ONCE:], strict=True):
        if rows:
            stage.run("gemv_f32", blocks(rows, WARPS_A_BLOCK), stage.put(plain), None, x, y, None, rows, 0, cols)


def _normed_together(stage: Stage, z: Any, x: Any, w: Any, y: Any, n: int) -> None:
    stage.run("add_rms_norm", ROWS, z, x, w, y, n, EPS)


def _normed_apart(stage: Stage, z: Any, x: Any, w: Any, y: Any, n: int) -> None:
    stage.run("add", blocks(ROWS * n, THREADS_A_BLOCK), z, x, ROWS * n)
    stage.run("rms_norm", ROWS, x, w, y, n, EPS)


RUN = {"apart": (_products_apart, _normed_apart), "together": (_products_together, _normed_together)}


def _operands(values: Values, sizes: tuple[int, ...]) -> Operands:
    *rows, cols = sizes
    name, chunks = f"together {sizes}", blocks(cols, CHUNK)
    q4 = tuple(
        (
            values.words(f"{name} words {i}", count, chunks * LANES),
            values.halves(f"{name} scales {i}", count, chunks * NIBBLES),
        )
        for i, count in enumerate(rows[:Q4_AT_ONCE])
    )
    plain = tuple(values(f"{name} plain {i}", count, cols) for i, count in enumerate(rows[Q4_AT_ONCE:]))
    return Operands(tuple(rows), cols, values(f"{name} x", cols), q4, plain)
