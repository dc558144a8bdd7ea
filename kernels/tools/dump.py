"""python -m kernels dump: one artifact over a row of tokens, every bit of what it computed.

Writes h_out.f32 [T][hidden] (after the final norm), logits.f32 [T][vocab] and state.bin (all planes after the last
token), or with --greedy instead greedy.i32 [T] (the engine's own argmax); layout.json and inputs.json beside them.
Prints the command and every digest. The threads, and what they split, decide no byte.
"""

import argparse
import shlex
from pathlib import Path

import numpy as np

from kernels import artifact

from .inputs import add_arguments, file_digest, read_run
from .outputs import Input, report, write_dump, write_inputs


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels dump", description=__doc__, allow_abbrev=False)
    add_arguments(parser)
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--split-ns", type=int, help="split launches estimated above this; without it the engine's own")
    options = parser.parse_args(argv)
    path = options.artifact or artifact.tree()
    opened = artifact.load(path)
    run = read_run(parser, options, opened.entry)
    split = {} if options.split_ns is None else {"split_ns": options.split_ns}
    engine = opened.entry("open")(
        opened.binary, run.config, run.weights, capacity=len(run.tokens), threads=options.threads, **split
    )
    hidden, logits, greedy = [], [], []
    for token in run.tokens:
        engine.forward(token)
        hidden.append(engine.hidden())
        logits.append(engine.logits())
        if options.greedy:
            greedy.append(engine.argmax())
    if options.greedy:
        files = {"greedy.i32": {"greedy": np.array(greedy, dtype=np.int32)}}
    else:
        files = {
            "h_out.f32": {"h_out": np.stack(hidden)},
            "logits.f32": {"logits": np.stack(logits)},
            "state.bin": engine.planes(),
        }
    engine.close()
    digests = write_dump(options.out, files)
    origin = path.name if options.artifact else f"{path.name}, built from this tree"
    inputs = [run.weights.input(), run.tokens_input, Input("artifact", origin, file_digest(path))]
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "dump", *argv]), inputs, digests)
    return 0
