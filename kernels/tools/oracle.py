"""python -m kernels oracle: what a dump of the same arguments should hold, to within rounding.

From the float64 model, rounded to f32 at the end; q4 weights are taken as the values that they stand for. With
`--stored DIR` instead: what DIR/reference holds, the outputs that transformers computed from the checkpoint in DIR.
"""

import argparse
import json
import shlex
from pathlib import Path

import numpy as np

from kernels import engine
from kernels.device import sample
from kernels.engine.errors import KernelError

from . import model
from .inputs import add_arguments, file_digest, read_run
from .outputs import LAYOUT, Input, report, write_dump, write_inputs

STORED = "--stored"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels oracle", description=__doc__, allow_abbrev=False)
    if STORED in argv:
        parser.add_argument(STORED, required=True, type=Path, metavar="DIR", help="a folder of make_fixture.py")
        parser.add_argument("--out", required=True, type=Path, metavar="DIR")
        options = parser.parse_args(argv)
        inputs, digests = _stored(options.stored, options.out)
    else:
        add_arguments(parser)
        options = parser.parse_args(argv)
        inputs, digests = _computed(parser, options)
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "oracle", *argv]), inputs, digests)
    return 0


def _computed(parser: argparse.ArgumentParser, options: argparse.Namespace) -> tuple[list[Input], dict[str, str]]:
    run = read_run(parser, options, (vars(engine) | {"Checkpoint": _checkpoint}).__getitem__)
    hidden, logits, planes = model.run(run.config, run.weights, run.tokens)
    files: dict[str, model.Planes] = {
        "h_out.f32": {"h_out": hidden.astype(np.float32)},
        "logits.f32": {"logits": logits.astype(np.float32)},
        "state.bin": {name: v if v.dtype == np.int32 else v.astype(np.float32) for name, v in planes.items()},
    }
    if options.greedy:
        files = {"greedy.i32": {"greedy": np.array([sample.argmax(row) for row in logits], dtype=np.int32)}}
    return [run.weights.input(), run.tokens_input], write_dump(options.out, files)


def _checkpoint(folder: Path, config: engine.Config, form: str) -> engine.Checkpoint | model.Rounded:
    """A checkpoint whose q4 matrices went through no layout of the engine's."""
    plain = engine.Checkpoint(folder, config, "f32" if form == "q4" else form)
    return model.Rounded(plain) if form == "q4" else plain


def _stored(folder: Path, out: Path) -> tuple[list[Input], dict[str, str]]:
    """Copies the stored outputs. Raises KernelError unless every file has the digest that its maker wrote down."""
    path = folder / "origin.json"
    try:
        origin = json.loads(path.read_text(encoding="utf-8"))
        listed = dict(origin["files"])
        made_by = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KernelError(path, f"no origin of stored outputs ({error})", "name a folder of make_fixture.py") from error
    out.mkdir(parents=True, exist_ok=True)
    digests = {}
    for name in listed:
        if file_digest(folder / name) != listed[name]:
            raise KernelError(folder / name, "is not what its origin.json names", "restore the folder from git")
        if name.startswith("reference/"):
            copy = out / Path(name).name
            copy.write_bytes((folder / name).read_bytes())
            if copy.name != LAYOUT:
                digests[copy.name] = listed[name]
    return [Input("stored outputs", f"{folder.name}, {origin['command']}, {made_by}", file_digest(path))], digests
