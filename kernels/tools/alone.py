"""python -m kernels alone: M rows together, or each row beside junk; every row must come out the same.

--form together runs all rows as they are. --form alone runs them M times: run m keeps row m, and its other rows are NaN
where a kernel runs by itself, other tokens behind row m in an engine. There a second engine runs between, and what
nobody may read is NaN before: scratch, slab, keys and values from the cursor on. A canary behind row M - 1 that is gone
is an error. Leaves kernels.u32, h_out.f32 and logits.f32 by case, and planes.u8, the digests of all planes.
"""

import argparse
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact
from kernels.device.gemv import CHUNK, LANES, NIBBLES
from kernels.engine.config import LAYER_KINDS
from kernels.engine.device import THREADS_A_BLOCK, WARPS_A_BLOCK
from kernels.engine.errors import KernelError
from kernels.engine.r_table import R_VALUES, instance
from kernels.engine.state import POISON

from .forms import CANARY, GUARD_ROWS, Stage, Values, blocks, guarded, row_counts
from .inputs import file_digest
from .mt import TEXT
from .outputs import Input, digest, report, write_dump, write_inputs
from .rows import FAMILIES, SMALL_MATRICES, Call, Cursor, Result, Row, in_rows
from .watch import set_gate

FORMS = ("together", "alone")
SHAPE, SEED, PREFIX, CAPACITY = "tiny", 1, 5, 32
HEADS, KV_HEADS, HEAD_DIM, CURSOR = 6, 3, 33, 5  # of the attention kernel by itself
OTHER = 7  # a token is this much further on in the text where it stands for junk


@dataclass(frozen=True, slots=True)
class Seen:
    """A cache [cursor + M][width], of which row m sees what lies before its own place and that."""

    array: np.ndarray


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels alone", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    parser.add_argument("--form", required=True, choices=FORMS)
    parser.add_argument("--rows", required=True, type=row_counts, metavar="M", help="2..8, or 2,4,8")
    parser.add_argument("--layers", required=True, choices=LAYER_KINDS, help="of the engine")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    path = options.artifact or artifact.tree()
    opened = artifact.load(path)
    stage, values = Stage(opened), Values()
    files = {"kernels.u32": dict(_kernels(stage, values, options))}
    stage.close()
    for name, file, array in _engine(opened, options):
        files.setdefault(file, {})[name] = array
    outputs = write_dump(options.out, files)
    text = Input("text", TEXT.name, file_digest(TEXT))
    inputs = [Input("artifact", path.name, file_digest(path)), values.input(), text]
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "alone", *argv]), inputs, outputs)
    return 0


# kernels by themselves


def _kernels(stage: Stage, values: Values, options: argparse.Namespace) -> Iterator[tuple[str, np.ndarray]]:
    for rows in options.rows:
        for name, call in _calls(values, rows):
            results = RUN[options.form](stage, call, rows)
            yield from ((f"{name} output {i}", result) for i, result in enumerate(results))


def _calls(values: Values, rows: int) -> Iterator[tuple[str, Call]]:
    """One launch of every kernel that has rows, at small sizes."""
    for family, cases in FAMILIES.items():
        for name, case in cases(True).items():
            yield f"{family} {name} M{rows}", case(f"alone {family} {name} M{rows}", rows, values)
    if rows > 1:
        for weight_rows, cols in SMALL_MATRICES:
            for r in R_VALUES:
                yield f"{weight_rows}x{cols} R{r} M{rows}", _product(values, rows, r, weight_rows, cols)
    yield f"attention M{rows}", _attention(values, rows)


def _product(values: Values, rows: int, r: int, weight_rows: int, cols: int) -> Call:
    name, chunks = f"alone {weight_rows}x{cols} M{rows}", blocks(cols, CHUNK)
    words = values.words(f"{name} words", weight_rows, chunks * LANES)
    scales = values.halves(f"{name} scales", weight_rows, chunks * NIBBLES)
    args = (words, scales, Row(values(f"{name} x", rows, cols)), Result(weight_rows), weight_rows, cols)
    return Call(instance(r, rows), lambda _rows: blocks(weight_rows, WARPS_A_BLOCK * r), args)


def _attention(values: Values, rows: int) -> Call:
    name, width, stride = f"alone attention M{rows}", HEADS * HEAD_DIM, CURSOR + rows + THREADS_A_BLOCK
    q, qg = values(f"{name} q", rows, width), values(f"{name} qg", rows, 2 * width)
    caches = [Seen(values(f"{name} {what}", CURSOR + rows, KV_HEADS * HEAD_DIM)) for what in ("keys", "values")]
    sizes = (HEADS, KV_HEADS, HEAD_DIM, stride, np.float32(1.0 / math.sqrt(HEAD_DIM)))
    args = (Row(q), Row(qg), *caches, Cursor(CURSOR), Result(HEADS * stride), Result(width), *sizes)
    return Call("attention", lambda count: count * HEADS, args)


def together(stage: Stage, call: Call, rows: int) -> list[np.ndarray]:
    """The outputs of one launch, with whatever it left behind the rows."""
    plain = tuple(arg.array if isinstance(arg, Seen) else arg for arg in call.args)
    return in_rows(stage, replace(call, args=plain), rows)


def alone(stage: Stage, call: Call, rows: int) -> list[np.ndarray]:
    """Of each row the outputs beside junk. Raises KernelError if one of these launches wrote behind the rows."""
    found = []
    for m in range(rows):
        results = in_rows(stage, replace(call, args=tuple(_beside_junk(arg, m) for arg in call.args)), rows)
        if not all((result[-GUARD_ROWS:] == CANARY).all() for result in results):
            raise KernelError(call.kernel, f"wrote behind {rows} rows", "mend the kernel")
        found.append([result[m] for result in results])
    return [guarded(list(results)) for results in zip(*found, strict=True)]


RUN = {"together": together, "alone": alone}


def _beside_junk(arg: Any, m: int) -> Any:
    """The argument with NaN in place of all that row m has no part in."""
    if isinstance(arg, Row):
        return Row(_junk_but(arg.array, slice(m, m + 1)))
    if isinstance(arg, Result) and arg.start is not None:
        return replace(arg, start=_junk_but(arg.start, slice(m, m + 1)))
    if isinstance(arg, Seen):
        return _junk_but(arg.array, slice(CURSOR + m + 1))
    return arg


def _junk_but(array: np.ndarray, kept: slice) -> np.ndarray:
    junk = np.full(array.shape, CANARY).view(np.float32)
    junk[kept] = array[kept]
    return junk


# a whole engine


def _engine(opened: artifact.Artifact, options: argparse.Namespace) -> Iterator[tuple[str, str, np.ndarray]]:
    """(case, file, array)."""
    set_gate(str(max(options.rows)))
    config = opened.entry("shape")(SHAPE, layers=options.layers)
    weights = opened.entry("Synthetic")(SEED)
    engine, other = (opened.entry("open")(opened.binary, config, weights, capacity=CAPACITY) for _ in range(2))
    text = [byte % config.vocab for byte in TEXT.read_bytes()[: CAPACITY + OTHER]]
    for rows in options.rows:
        if rows < 2:
            continue
        tokens, name = text[PREFIX : PREFIX + rows], f"M{rows}"
        if options.form == "together":
            _begin(engine, text)
            engine.forward_rows(tokens)
            hidden, logits = engine.hidden_rows(), engine.logits_rows()
        else:
            found = [_row_alone(engine, other, text, tokens, m) for m in range(rows)]
            hidden, logits = (np.stack(parts) for parts in zip(*found, strict=True))
        yield name, "h_out.f32", hidden
        yield name, "logits.f32", logits
        for plane, array in engine.planes().items():
            yield f"{name} {plane}", "planes.u8", digest(array)
    for one in (engine, other):
        one.close()


def _begin(engine: Any, text: list[int]) -> None:
    engine.reset()
    for token in text[:PREFIX]:
        engine.forward(token)


def _row_alone(engine: Any, other: Any, text: list[int], tokens: list[int], m: int) -> tuple[np.ndarray, np.ndarray]:
    """(hidden, logits) of row m, behind which there are other tokens. The last row leaves the state of all of them."""
    other.reset()
    _begin(engine, text)
    other.forward_rows(text[OTHER : OTHER + len(tokens)])
    engine.poison()
    junk = text[PREFIX + OTHER : PREFIX + OTHER + len(tokens)]
    engine.forward_rows(tokens[: m + 1] + junk[m + 1 :])
    other.forward(text[m])
    for region, words in engine.slab().items():
        if not (words[len(tokens) :].view(np.uint32) == POISON).all():
            raise KernelError(f"region {region}", f"was written behind {len(tokens)} rows", "mend the step")
    return engine.hidden_rows()[m], engine.logits_rows()[m]
