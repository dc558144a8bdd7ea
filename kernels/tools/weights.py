"""python -m kernels weights: synthetic weights as a device makes them, or as NumPy does with --numpy, as digests.

Leaves weights.u8: a sha256 for every buffer of the embedding, the head, the final norm and the sampled layers.
"""

import argparse
import hashlib
import os
import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact, engine
from kernels.engine.weights import Packed, Tensor, tensors

from .inputs import file_digest
from .outputs import Input, report, write_dump, write_inputs


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels weights", description=__doc__, allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--artifact", type=Path)
    source.add_argument("--numpy", action="store_true", help="the generator of this tree, on the host")
    parser.add_argument("--shape", required=True)
    parser.add_argument("--layers", required=True)
    parser.add_argument("--depth", required=True, type=int)
    parser.add_argument("--seed", required=True, type=int)
    parser.add_argument("--sample", required=True, type=_numbers, metavar="0,3", help="layers")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    model = options.shape, options.layers, options.depth
    inputs = [Input("seed", f"synthetic weights of {options.shape}", hashlib.sha256(b"%d" % options.seed).hexdigest())]
    if options.numpy:
        config = engine.shape(model[0], layers=model[1], depth=model[2])
        read = _host(engine.Synthetic(options.seed))
    else:
        opened = artifact.load(options.artifact)
        config = opened.entry("shape")(model[0], layers=model[1], depth=model[2])
        weights = opened.entry("Synthetic")(options.seed)
        threads = {"threads": os.cpu_count() or 1} if opened.target.startswith("cpu") else {}
        made = opened.entry("open")(opened.binary, config, weights, capacity=1, **threads)
        read = _device(made)
        inputs.append(Input("artifact", options.artifact.name, file_digest(options.artifact)))
    arrays = dict(digests(sampled(config, options.sample), read))
    outputs = write_dump(options.out, {"weights.u8": arrays})
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "weights", *argv]), inputs, outputs)
    return 0


Read = Callable[[Tensor], tuple[np.ndarray, ...]]


def sampled(config: Any, layers: tuple[int, ...]) -> Iterator[Tensor]:
    """The tensors outside every layer, and those of these layers."""
    wanted = tuple(f"layers.{layer}." for layer in layers)
    yield from (t for t in tensors(config) if not t.name.startswith("layers.") or t.name.startswith(wanted))


def digests(chosen: Iterator[Tensor], read: Read) -> Iterator[tuple[str, np.ndarray]]:
    """By tensor and buffer the sha256 of its bytes, hashed on as many threads as there are processors."""

    def digest(values: np.ndarray) -> np.ndarray:
        return np.frombuffer(hashlib.sha256(np.ascontiguousarray(values).data).digest(), np.uint8)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = [
            (f"{tensor.name} {part}", pool.submit(digest, values))
            for tensor in chosen
            for part, values in enumerate(read(tensor))
        ]
        yield from ((name, future.result()) for name, future in waiting)


def _device(made: Any) -> Read:
    def read(tensor: Tensor) -> tuple[np.ndarray, ...]:
        return tuple(made.weight(tensor.name))

    return read


def _host(weights: engine.Synthetic) -> Read:
    def read(tensor: Tensor) -> tuple[np.ndarray, ...]:
        value = weights.read(tensor)
        if isinstance(value, Packed):
            return value.words, value.scales
        return (value[:, 0, :].T if value.ndim == 3 else value,)

    return read


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
