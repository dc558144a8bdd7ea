"""python -m kernels r_table --record ledger/NNNNNN.json: the module engine/r_table.py that the sweep of a record makes.

Prints it; with --write it is the tree's own from then on. For each matrix and M the R of the lowest median, but a
smaller one that was seen as fast: whose lowest sample is not above that median. So a difference inside the spread
decides nothing, and a sample that something delayed does not make a slow R equal. Matrices that one launch multiplies
by one row take the R of the matrix with as many columns whose rows are the nearest to theirs together.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernels.engine import r_table
from kernels.engine.config import SHAPES, shape
from kernels.engine.errors import KernelError
from kernels.engine.r_table import R_VALUES, ROWS_MAX

from .sweep import FIGURE, matrices, named

MODULE = '''\
"""R: how many weight rows a warp works on in the q4 product for M rows, by matrix and M. It moves no bit.

Written by `python -m kernels r_table` from the figures of the record that each row names, measured by `sweep`.
"""

R_VALUES = {values}  # that the binary has instances for, with M in 1..ROWS_MAX: gemv.cuh
ROWS_MAX = {rows_max}

#    a tensor's name ends in           R for M = 1..{rows_max}              of the shape    record
R_TABLE = (
{table}
)  # fmt: skip
assert all(len(by_m) == ROWS_MAX and set(by_m) <= set(R_VALUES) for _end, by_m, _shape, _record in R_TABLE)

#    first of matrices in a launch     R    together       as             record
R_TOGETHER = (
{together}
)  # fmt: skip
assert all(r in R_VALUES for _end, r, _shape, _like, _record in R_TOGETHER)


def weight_rows(name: str, m: int) -> int:
    """The R of a q4 matrix for m rows of x."""
    return next(by_m[m - 1] for end, by_m, _shape, _record in R_TABLE if name.endswith(end))


def weight_rows_together(first: str) -> int:
    """The R of several q4 matrices in one launch for one row of x, by the name of the first."""
    return next(r for end, r, _shape, _like, _record in R_TOGETHER if first.endswith(end))


def instance(r: int, m: int) -> str:
    """The kernel that multiplies m rows with r weight rows a warp."""
    return f"gemv_q4_r{{r}}_m{{m}}"


def together(r: int) -> str:
    """The kernel that multiplies one row with several matrices, r weight rows a warp."""
    return f"project_r{{r}}"
'''

# The matrices that step.py multiplies by one row in one launch.
LAUNCHES = (
    ("linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_z.weight"),
    ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
    ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
)


@dataclass(frozen=True, slots=True)
class Timed:
    """What a record has of one figure, in ns."""

    median: int
    lowest: int


Sweep = Mapping[tuple[str, int, int], Timed]  # by shape, R, M


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels r_table", description=__doc__, allow_abbrev=False)
    parser.add_argument("--record", required=True, type=Path, metavar="FILE", help="of the ledger")
    parser.add_argument("--shape", default="27b", choices=tuple(SHAPES))
    parser.add_argument("--write", action="store_true", help="engine/r_table.py is this text")
    options = parser.parse_args(argv)
    made = text(options.record, options.shape)
    if options.write:
        Path(r_table.__file__).write_text(made, encoding="utf-8")
    else:
        print(made, end="")
    return 0


def text(record: Path, model: str) -> str:
    """engine/r_table.py by this record. Raises KernelError for a file that is none, or that has not swept the model."""
    try:
        predicate = json.loads(record.read_bytes())["predicate"]
        source, rows = f"#{predicate['sequence']}", predicate["figures"]
        found = {}
        for row in rows:
            if place := FIGURE.fullmatch(row["name"]):
                found[place["shape"], int(place["r"]), int(place["m"])] = Timed(
                    row["value"], row.get("low", row["value"])
                )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KernelError(record, f"is no record with figures ({error})", "name one of ledger/") from error
    sizes = matrices(shape(model, layers="hybrid"))
    table = []
    for size, ends in sizes.items():
        by_m = tuple(best(found, named(size), m, where=record) for m in range(1, ROWS_MAX + 1))
        table += [f'    ("{end}",'.ljust(39) + f'{by_m},  "{named(size)}",'.ljust(43) + f'"{source}"),' for end in ends]
    together = []
    for ends in LAUNCHES:
        members = [next(size for size, names in sizes.items() if end in names) for end in ends]
        rows, cols = sum(rows for rows, _cols in members), members[0][1]
        like = min((size for size in sizes if size[1] == cols), key=lambda size: abs(size[0] - rows))
        r, joined = best(found, named(like), 1, where=record), named((rows, cols))
        together.append(f'    ("{ends[0]}",'.ljust(39) + f'{r},  "{joined}",  "{named(like)}",  "{source}"),')
    return MODULE.format(values=R_VALUES, rows_max=ROWS_MAX, table="\n".join(table), together="\n".join(together))


def best(sweep: Sweep, matrix: str, m: int, *, where: object) -> int:
    """The R of a shape for m rows. Raises KernelError where one was not measured."""
    for r in R_VALUES:
        if (matrix, r, m) not in sweep:
            what = f"has no figure gemv_q4 {matrix} R{r} M{m}"
            raise KernelError(where, what, "name a record whose landing swept the whole model")
    fastest = min(sweep[matrix, r, m].median for r in R_VALUES)
    return next(r for r in R_VALUES if sweep[matrix, r, m].lowest <= fastest)
