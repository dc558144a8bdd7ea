"""python -m kernels causality: what M equal queries make of the keys that each of them sees, the first row or the last.

--same queries: q and gate of all rows are those of the first, after RoPE, and the appended rows stay different. Then
rows differ only in how many keys they see, and the first and the last must differ, with 2 rows or more.
--same all: the appended keys and values are equal too, small whole numbers so that every sum is exact. Behind no other
token the rows then see one key so many times, and the first and the last must be equal, with 2 rows or more.
A case outside the domain that its sentence states is an error. Leaves one file a case, so that each must differ.
"""

import argparse
import shlex
from dataclasses import replace

import numpy as np

from kernels import artifact
from kernels.engine.errors import KernelError

from .attn_m import Case, Tokens, add_arguments, cases, in_rows, tokens
from .forms import Stage, Values, leave

WHOLE_MOST = 8  # of the magnitude of a value
ROW = {"first": 0, "last": -1}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels causality", description=__doc__, allow_abbrev=False)
    add_arguments(parser)
    parser.add_argument("--same", required=True, choices=tuple(FLAT))
    parser.add_argument("--row", required=True, choices=tuple(ROW))
    options = parser.parse_args(argv)
    path = options.artifact or artifact.tree()
    stage, made = Stage(artifact.load(path)), Values()
    files = {}
    for case in cases(options):
        brought = FLAT[options.same](case, tokens(case, made), made)
        rows = in_rows(stage, case, brought)["out.u32"][: case.rows]
        files[f"{case.name.replace(' ', '-')}.u32"] = {"row": rows[ROW[options.row]]}
    stage.close()
    leave(options.out, files, path, made, shlex.join(["python", "-m", "kernels", "causality", *argv]))
    return 0


def equal_queries(case: Case, brought: Tokens, made: Values) -> Tokens:
    """Raises KernelError where the first row is the last."""
    if case.rows < 2:
        raise KernelError(case.name, "one row has no other to differ from", "use 2 rows or more")
    return replace(brought, q=_first(brought.q), qg=_first(brought.qg))


def equal_rows(case: Case, brought: Tokens, made: Values) -> Tokens:
    """Raises KernelError where rows see anything but the one key."""
    if case.cursor:
        what = f"rows behind {case.cursor} tokens see different keys"
        raise KernelError(case.name, what, "use --cursors 0: only there the difference cannot exist")
    whole = np.rint(made(f"{case.name} whole", 1, case.kv_width) * np.float32(WHOLE_MOST / 2))
    values = np.repeat(made.named(f"{case.name} v", whole.astype(np.float32)), case.rows, axis=0)
    return replace(equal_queries(case, brought, made), k=_first(brought.k), v=values)


FLAT = {"queries": equal_queries, "all": equal_rows}


def _first(array: np.ndarray) -> np.ndarray:
    """[M][...], every row the first."""
    return np.repeat(array[:1], len(array), axis=0)
