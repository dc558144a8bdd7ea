"""python -m kernels attn_m: M tokens appended to the caches and attending, by one launch of each kernel or by M.

In singles each row is appended and attends before the next, at the cursor that it then has. Leaves the raw words of
keys.u32 and values.u32, whole caches with canaries where nothing was written; out.u32 [M + guard][heads * head_dim];
scratch.u32, what lies behind the scratch of every row and head. --leave caches is the first two, which --form input
makes of what is appended, by no kernel; --leave launches is launches.i32, in which the two forms differ.
"""

import argparse
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact
from kernels.engine.device import THREADS_A_BLOCK

from .forms import CANARY, FORMS, GUARD_ROWS, Stage, Values, blocks, guarded, leave, row_counts

# name: (heads, kv heads, head size)
SHAPES = {"tiny": (6, 2, 64), "odd": (6, 3, 97), "27b": (24, 4, 256)}
CURSOR_MAX = 1 << 12
BEYOND = 9  # rows: `long` is so much more than two head sizes, which the small cursors leave room for
INPUT = "input"
CACHES, LAUNCHES = ("keys.u32", "values.u32"), "launches.i32"


@dataclass(frozen=True, slots=True)
class Case:
    """M rows behind `cursor` tokens."""

    shape: str
    rows: int
    cursor: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def name(self) -> str:
        return f"{self.shape} M{self.rows} at {self.cursor}"

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def scratch_stride(self) -> int:
        """Floats a row and head: the contract of attention.cuh."""
        return self.cursor + self.rows + THREADS_A_BLOCK


@dataclass(frozen=True, slots=True)
class Tokens:
    """What M rows bring, [M][...], and what the caches hold before them, [cursor][kv_width]."""

    q: np.ndarray
    qg: np.ndarray
    k: np.ndarray
    v: np.ndarray
    keys: np.ndarray
    values: np.ndarray


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels attn_m", description=__doc__, allow_abbrev=False)
    add_arguments(parser)
    parser.add_argument("--form", required=True, choices=(*FORMS, INPUT))
    parser.add_argument("--leave", required=True, choices=("all", "caches", "launches"))
    options = parser.parse_args(argv)
    if options.form == INPUT and options.leave != "caches":
        parser.error(f"--form {INPUT} has nothing but --leave caches")
    path = options.artifact or artifact.tree()
    stage, made = Stage(artifact.load(path)), Values()
    files: dict[str, dict[str, np.ndarray]] = {}
    for case in cases(options):
        for file, array in RUN[options.form](stage, case, tokens(case, made)).items():
            files.setdefault(file, {})[case.name] = array
    if options.leave == "caches":
        files = {file: files[file] for file in CACHES}
    elif options.leave == "launches":
        files = {LAUNCHES: {"launches": stage.launches()}}
    stage.close()
    leave(options.out, files, path, made, shlex.join(["python", "-m", "kernels", "attn_m", *argv]))
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that choose the cases."""
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    parser.add_argument("--shapes", required=True, type=_shapes, metavar="NAMES", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--rows", required=True, type=row_counts, metavar="M", help="1..8, or 2,4,8")
    parser.add_argument("--cursors", required=True, type=_cursors, metavar="N", help="0,1,5,17,long")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")


def cases(options: argparse.Namespace) -> list[Case]:
    """Every shape with every count of rows and every cursor that the command asks for."""
    return [
        Case(shape, rows, 2 * SHAPES[shape][2] + BEYOND if cursor is None else cursor, *SHAPES[shape])
        for shape in options.shapes
        for rows in options.rows
        for cursor in options.cursors
    ]


def tokens(case: Case, made: Values) -> Tokens:
    """All rows different."""
    m, n, name = case.rows, case.cursor, case.name
    q_width, kv_width = case.heads * case.head_dim, case.kv_width
    brought = (made(f"{name} q", m, q_width), made(f"{name} qg", m, 2 * q_width))
    rows = (made(f"{name} {what}", m, kv_width) for what in ("k", "v"))
    cached = (made(f"{name} {what}", n, kv_width) for what in ("keys", "values"))
    return Tokens(*brought, *rows, *cached)


def in_singles(stage: Stage, case: Case, brought: Tokens) -> dict[str, np.ndarray]:
    """Row after row, as a forward of one token does it."""
    caches = tuple(stage.put(_cache(case, held)) for held in (brought.keys, brought.values))
    outs = []
    for m in range(case.rows):
        out, scratch = _launch(stage, case, brought, slice(m, m + 1), caches)
        outs.append(stage.one_row(out))
        stage.check_guard(scratch)
    behind = np.full((GUARD_ROWS, case.scratch_stride), CANARY, np.uint32)
    return _files(stage, caches, guarded(outs), behind)


def in_rows(stage: Stage, case: Case, brought: Tokens) -> dict[str, np.ndarray]:
    """All rows at once, with whatever that left behind them."""
    caches = tuple(stage.put(_cache(case, held)) for held in (brought.keys, brought.values))
    out, scratch = _launch(stage, case, brought, slice(case.rows), caches)
    return _files(stage, caches, stage.bits(out), stage.bits(scratch)[-GUARD_ROWS:])


def _input(stage: Stage, case: Case, brought: Tokens) -> dict[str, np.ndarray]:
    """Caches as they must be once the rows lie in them."""
    found = {}
    for file, held, rows in zip(CACHES, (brought.keys, brought.values), (brought.k, brought.v), strict=True):
        found[file] = _cache(case, held)
        found[file][case.cursor : case.cursor + case.rows] = rows.view(np.uint32)
    return found


RUN = {"singles": in_singles, "rows": in_rows, INPUT: _input}


def _launch(stage: Stage, case: Case, brought: Tokens, part: slice, caches: tuple[Any, ...]) -> tuple[Any, Any]:
    """Some rows appended and attending; returns their outputs and their scratch."""
    q, qg, k, v = (stage.put(array[part]) for array in (brought.q, brought.qg, brought.k, brought.v))
    rows, first = len(brought.q[part]), part.start or 0
    cursor = stage.put(np.array([case.cursor + first], np.int32))
    stage.run("kv_append", rows * blocks(case.kv_width, THREADS_A_BLOCK), k, v, *caches, cursor, case.kv_width)
    out = stage.blank(rows, case.heads * case.head_dim)
    scratch = stage.blank(rows * case.heads, case.scratch_stride)
    sizes = (case.heads, case.kv_heads, case.head_dim, case.scratch_stride)
    scale = np.float32(1.0 / math.sqrt(case.head_dim))
    stage.run("attention", rows * case.heads, q, qg, *caches, cursor, scratch, out, *sizes, scale)
    return out, scratch


def _cache(case: Case, held: np.ndarray) -> np.ndarray:
    """u32 [cursor + M + guard][kv_width]: what it holds, and canaries."""
    empty = np.full((case.rows + GUARD_ROWS, case.kv_width), CANARY, np.uint32)
    return np.concatenate([held.view(np.uint32), empty])


def _files(stage: Stage, caches: tuple[Any, ...], out: np.ndarray, behind: np.ndarray) -> dict[str, np.ndarray]:
    found = {file: stage.bits(cache) for file, cache in zip(CACHES, caches, strict=True)}
    return {**found, "out.u32": out, "scratch.u32": behind}


def _shapes(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(SHAPES):
        raise argparse.ArgumentTypeError(f"give some of {', '.join(SHAPES)}")
    return names


def _cursors(text: str) -> tuple[int | None, ...]:
    """Tokens seen before; None for `long`, which depends on the shape."""
    found = tuple(None if word == "long" else int(word) for word in text.split(","))
    if not all(cursor is None or 0 <= cursor <= CURSOR_MAX for cursor in found):
        raise argparse.ArgumentTypeError(f"give long, or numbers in 0..{CURSOR_MAX}")
    return found
