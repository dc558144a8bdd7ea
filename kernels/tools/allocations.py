"""python -m kernels allocations --artifact A --out DIR: the bytes of everything that an engine allocates, in order.

Leaves allocations.u32, for each kind of layers and each word of the gate that leaves rows alone: unset and 1, and 8
before the first rows. A few tokens, the greedy choice of each, and a reset are run between.
"""

import argparse
import shlex
from pathlib import Path

import numpy as np

from kernels import artifact
from kernels.engine.config import LAYER_KINDS

from .inputs import file_digest
from .outputs import Input, report, write_dump, write_inputs
from .watch import open_watched, set_gate

GATES = {"unset": None, "1": "1", "8": "8"}
SEED, CAPACITY, TOKENS = 1, 16, (101, 202, 303)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels allocations", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    path = options.artifact or artifact.tree()
    opened = artifact.load(path)
    found = {
        f"{layers}, gate {word}": _allocated(opened, layers, gate)
        for layers in LAYER_KINDS
        for word, gate in GATES.items()
    }
    outputs = write_dump(options.out, {"allocations.u32": found})
    inputs = [Input("artifact", path.name, file_digest(path))]
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "allocations", *argv]), inputs, outputs)
    return 0


def _allocated(opened: artifact.Artifact, layers: str, gate: str | None) -> np.ndarray:
    """u32 [allocations]: bytes."""
    set_gate(gate)
    config, weights = opened.entry("shape")("tiny", layers=layers), opened.entry("Synthetic")(SEED)
    engine, device = open_watched(opened, config, weights, capacity=CAPACITY)
    for token in TOKENS:
        engine.forward(token)
        engine.argmax()
    engine.reset()
    engine.forward(TOKENS[0])
    engine.close()
    return np.array(device.allocated, np.uint32)
