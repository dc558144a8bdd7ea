"""python -m kernels gemv_rows: the q4 product for M rows by an instance <R, M>, or by M launches of the one-row kernel.

Leaves y.u32, by matrix and M the raw words [M + guard][rows of the matrix], canaries behind the last row. --sizes all
has every shape that the R table names, of every model, its rows cut to a few. With --leave launches instead
launches.i32, in which two values of --r differ.
"""

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact
from kernels.device.gemv import CHUNK, LANES, NIBBLES
from kernels.engine.config import SHAPES, shape
from kernels.engine.device import WARPS_A_BLOCK
from kernels.engine.r_table import R_VALUES, ROWS_MAX, instance
from kernels.engine.weights import Q4, tensors

from .forms import Stage, Values, blocks, guarded, leave, row_counts
from .rows import MATRICES, SMALL_MATRICES

SINGLES = "singles"  # --r: no instance
ROWS_CUT = 8 * WARPS_A_BLOCK + 5  # of a matrix whose shape is in the table: blocks of every R, and a remainder of each


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels gemv_rows", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    parser.add_argument("--r", required=True, choices=(SINGLES, *map(str, R_VALUES)), help="weight rows a warp")
    parser.add_argument("--rows", required=True, type=row_counts, metavar="M", help="2..8, or 2,4,8")
    parser.add_argument("--sizes", required=True, choices=("small", "all"))
    parser.add_argument("--leave", required=True, choices=("outputs", "launches"))
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    path = options.artifact or artifact.tree()
    stage, values = Stage(artifact.load(path)), Values()
    found = {name: y for size in matrices(options.sizes) for name, y in products(stage, values, *size, options)}
    files = {"y.u32": found}
    if options.leave == "launches":
        files = {"launches.i32": {"launches": stage.launches()}}
    stage.close()
    leave(options.out, files, path, values, shlex.join(["python", "-m", "kernels", "gemv_rows", *argv]))
    return 0


def matrices(sizes: str) -> tuple[tuple[int, int], ...]:
    """(rows, columns)."""
    if sizes == "small":
        return SMALL_MATRICES
    models = [shape(name, layers="hybrid", depth=4) for name in SHAPES]
    shapes = [tensor.shape for model in models for tensor in tensors(model) if tensor.form == Q4]
    return tuple(dict.fromkeys((*MATRICES, *((min(rows, ROWS_CUT), cols) for rows, cols in shapes))))


def products(
    stage: Stage, values: Values, rows: int, cols: int, options: argparse.Namespace
) -> Iterator[tuple[str, np.ndarray]]:
    """y of one matrix for every M, by name. The rows of x for M are the first of those for 8."""
    name, chunks = f"{rows}x{cols}", blocks(cols, CHUNK)
    words = stage.put(values.words(f"gemv_rows {name} words", rows, chunks * LANES))
    scales = stage.put(values.halves(f"gemv_rows {name} scales", rows, chunks * NIBBLES))
    x = values(f"gemv_rows {name} x", ROWS_MAX, cols)
    for m in options.rows:
        if options.r == SINGLES:
            parts = [_product(stage, "gemv_q4", 1, (words, scales), x[i : i + 1], rows, cols) for i in range(m)]
            yield f"{name} M{m}", guarded([stage.one_row(part) for part in parts])
        else:
            r = int(options.r)
            yield f"{name} M{m}", stage.bits(_product(stage, instance(r, m), r, (words, scales), x[:m], rows, cols))


def _product(stage: Stage, kernel: str, r: int, matrix: tuple[Any, ...], x: np.ndarray, rows: int, cols: int) -> Any:
    y = stage.blank(len(x), rows)
    stage.run(kernel, blocks(rows, WARPS_A_BLOCK * r), *matrix, stage.put(x), y, rows, cols)
    return y
