"""python -m kernels lanes --artifact A --cases tiny,27b --out DIR: many runs in one process, to hold lanes together.

For every case hidden states, greedy tokens, and digests of the logits of each token and of all planes at several
cursors. Small shapes leave their logits and last planes whole as well; of 27b the last token's logits. Weights of small
shapes are made by NumPy and copied to the device, those of 27b are made there; inputs.json names what ran. --gates runs
them all once for each word of the gate of rows, unset among them, which no byte may show. --first N leaves the planes
of the first N layers alone, under a name that a model of more layers has, too.
"""

import argparse
import hashlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact
from kernels.engine.errors import KernelError
from kernels.engine.weights import tensors

from .inputs import Digested, file_digest
from .outputs import Input, digest, report, write_dump, write_inputs
from .watch import set_gate
from .weights import digests

TEXT = Path(__file__).parents[1] / "text" / "kestrel.txt"
SEED = 1
WHOLE = ("tiny", "mini64")  # shapes whose logits and planes are left whole
UNSET = "unset"
SPREAD = 997  # of 27b's tokens: the text's bytes alone are the first rows of its embedding


@dataclass(frozen=True, slots=True)
class Case:
    """One run. `cursors`: the planes are digested after so many tokens, and after the last."""

    name: str
    shape: str
    layers: str
    depth: int | None
    tokens: int
    cursors: tuple[int, ...]


# 27b at depth 1 and 4: one layer of each kind has every launch shape of the model, four have each on the other's output
CASES = (
    Case("tiny-attn", "tiny", "attn", None, 64, (1, 17)),
    Case("tiny-gdn", "tiny", "gdn", None, 64, (1, 17)),
    Case("tiny-hybrid", "tiny", "hybrid", None, 64, (1, 17)),
    Case("tiny-long", "tiny", "attn", 1, 600, (255, 256, 257)),  # beyond two spans of attention's sums
    Case("mini64-attn", "mini64", "attn", None, 32, (1, 17)),
    Case("mini64-gdn", "mini64", "gdn", None, 32, (1, 17)),
    Case("mini64-hybrid", "mini64", "hybrid", None, 64, (1, 33)),
    Case("27b-attn-1", "27b", "attn", 1, 3, (1,)),
    Case("27b-attn-4", "27b", "attn", 4, 3, (1,)),
    Case("27b-gdn-1", "27b", "gdn", 1, 3, (1,)),
    Case("27b-gdn-4", "27b", "gdn", 4, 3, (1,)),
    Case("27b-hybrid-4", "27b", "hybrid", 4, 3, (1,)),
    Case("whole-27b", "27b", "hybrid", None, 3, (1,)),
)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels lanes", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    parser.add_argument("--cases", required=True, metavar="NAMES", help=f"of {', '.join(case.name for case in CASES)}")
    parser.add_argument(
        "--gates", type=_gates, default=(), metavar="WORDS", help="unset,1,8; without it as it is found"
    )
    parser.add_argument("--first", type=int, metavar="N", help="leave digests of the first N layers' planes alone")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    path = options.artifact or artifact.tree()
    opened = artifact.load(path)
    text = TEXT.read_bytes()
    inputs = [Input("artifact", path.name, file_digest(path)), Input("text", TEXT.name, file_digest(TEXT))]
    files: dict[str, Mapping[str, np.ndarray]] = {}
    cases = chosen(options.cases)
    for gate in options.gates or (None,):
        if gate is not None:
            set_gate(None if gate == UNSET else gate)
        for case in cases:
            arrays, weights = run(opened, case, text)
            name = case.name if gate is None else f"{case.name}.gate-{gate}"
            if options.first is not None:
                name, arrays = f"{case.shape}-{case.layers}", _first(arrays, options.first)
            files |= {f"{name}.{file}": entries for file, entries in arrays.items()}
            inputs += [] if weights in inputs else [weights]
    outputs = write_dump(options.out, files)
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "lanes", *argv]), inputs, outputs)
    return 0


def _first(files: Mapping[str, Mapping[str, np.ndarray]], layers: int) -> dict[str, dict[str, np.ndarray]]:
    """Of all that a case left, the digests of the first layers' planes."""
    prefixes = tuple(f"layers.{i}." for i in range(layers))
    found = {name: array for name, array in files["digests.u8"].items() if name.startswith(prefixes)}
    return {"digests.u8": found}


def _gates(text: str) -> tuple[str, ...]:
    words = tuple(text.split(","))
    if not all(words):
        raise argparse.ArgumentTypeError(f"give {UNSET}, 1 or 8, or some of them")
    return words


def chosen(words: str) -> tuple[Case, ...]:
    """The cases of these names, or that begin with them: 27b is all of 27b-*. Raises KernelError for an empty word."""
    found = []
    for word in words.split(","):
        rows = [case for case in CASES if case.name == word or case.name.startswith(f"{word}-")]
        if not rows:
            names = ", ".join(case.name for case in CASES)
            raise KernelError(f"case {word!r}", "is none", f"use a part of {names}")
        found += rows
    return tuple(dict.fromkeys(found))


def run(opened: artifact.Artifact, case: Case, text: bytes) -> tuple[dict[str, dict[str, np.ndarray]], Input]:
    """The files of a case by their ending, and the weights that ran."""
    config = opened.entry("shape")(case.shape, layers=case.layers, depth=case.depth)
    whole = case.shape in WHOLE
    weights = opened.entry("Synthetic")(SEED)
    described = f"{case.shape} {case.layers} of {len(config.kinds)} layers"
    threads = {"threads": os.cpu_count() or 1} if opened.target.startswith("cpu") and not whole else {}
    source = Digested(weights, described) if whole else weights
    engine = opened.entry("open")(opened.binary, config, source, capacity=case.tokens, **threads)
    hidden, logits, greedy = [], [], []
    seen: dict[str, np.ndarray] = {}
    for position in range(case.tokens):
        engine.forward(text[position] * (1 if whole else SPREAD) % config.vocab)
        hidden.append(engine.hidden())
        logits.append(engine.logits())
        greedy.append(engine.argmax())
        if position + 1 in (*case.cursors, case.tokens):
            seen |= {f"{name} after {position + 1}": digest(plane) for name, plane in engine.planes().items()}
    files = {
        "h_out.f32": {"h_out": np.stack(hidden)},
        "greedy.i32": {"greedy": np.array(greedy, dtype=np.int32)},
        "digests.u8": {"logits": np.stack([digest(row) for row in logits]), **seen},
        "logits.f32": {"logits": np.stack(logits if whole else logits[-1:])},
    }
    if whole:
        files["state.bin"] = engine.planes()
    named = source.input() if isinstance(source, Digested) else _made(engine, config, f"{described}: {weights.origin}")
    engine.close()
    return files, named


def _made(engine: Any, config: Any, origin: str) -> Input:
    """What the device made, by a digest over the digests of its buffers in the table's order."""
    total = hashlib.sha256()
    for name, found in digests(tensors(config), lambda tensor: engine.weight(tensor.name)):
        total.update(name.encode() + found.tobytes())
    return Input("weights", f"{origin}, made on the device; of its buffers' digests", total.hexdigest())
