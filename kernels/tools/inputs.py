"""From a command line to what decides bytes: a model, its weights, its tokens. Nothing here has a default.

dump takes config and weights from the artifact that it runs; the oracle takes them from the tree. Both say on which
machine-independent inputs they ran.
"""

import argparse
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels.engine.errors import KernelError
from kernels.engine.weights import Q4, tensors

from .outputs import Input

TOKENS_MAX = 1 << 18
READ_BYTES_MAX = 4 * TOKENS_MAX
LARGE = "27b"  # the shape whose weights only a device makes in good time


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the model, where its tensors come from, the tokens."""

    config: Any
    weights: "Digested"
    tokens: tuple[int, ...]
    tokens_input: Input


class Digested:
    """Weights that are hashed as they are read, so that what ran is what is named."""

    def __init__(self, weights: Any, described: str):
        self._weights, self._hash = weights, hashlib.sha256()
        self.form: str = weights.form
        self.origin = f"{described}: {weights.origin}"

    def read(self, tensor: Any) -> Any:
        value = self._weights.read(tensor)
        arrays = (value,) if isinstance(value, np.ndarray) else (value.words, value.scales)
        for array in arrays:
            self._hash.update(f"{tensor.name} {array.dtype} {array.shape}\n".encode())
            self._hash.update(np.ascontiguousarray(array).data)
        return value

    def input(self) -> Input:
        """What has been read, in the order of reading."""
        return Input("weights", self.origin, self._hash.hexdigest())


def recipes(weights: Any, config: Any, described: str) -> Input:
    """Weights that a device makes: hashed is what it makes them of, the numbers of every q4 tensor, and the others."""
    total = hashlib.sha256()
    for tensor in tensors(config):
        total.update(f"{tensor.name} {tensor.shape}\n".encode())
        if tensor.form == Q4:
            recipe = weights.recipe(tensor)
            total.update(f"{recipe.words} {recipe.scales} {recipe.exponent}\n".encode())
        else:
            total.update(np.ascontiguousarray(weights.read(tensor)).data)
    return Input("weights", f"{described}: {weights.origin}, made on the device; of their recipes", total.hexdigest())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that decide bytes, for dump and oracle alike."""
    add_run(parser)
    parser.add_argument("--greedy", action="store_true", help="the token that each step would choose, and nothing else")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")


def add_run(parser: argparse.ArgumentParser) -> None:
    """The arguments of read_run: a model, and tokens."""
    model = parser.add_argument_group("model")
    which = model.add_mutually_exclusive_group(required=True)
    which.add_argument("--shape", help="a named shape, with --layers and --seed")
    which.add_argument("--checkpoint", type=Path, metavar="DIR", help="a checkpoint folder, with --weights")
    model.add_argument("--layers", help="attn, gdn or hybrid")
    model.add_argument("--seed", type=int)
    model.add_argument("--depth", type=int, help="only the first layers of the shape")
    model.add_argument("--weights", help="f32 or q4: how a checkpoint is kept")
    tokens = parser.add_argument_group("tokens")
    source = tokens.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path, metavar="FILE", help="its bytes modulo the vocabulary")
    source.add_argument("--tokens", type=Path, metavar="FILE", help="little-endian int32")
    tokens.add_argument("--length", type=int, metavar="T", help="only the first T tokens; without it all of the file")


def read_run(parser: argparse.ArgumentParser, options: argparse.Namespace, entry: Callable[[str], Any]) -> Run:
    """The run that the options name, by the entries of an engine. Exit 2 if one that decides bytes is missing."""
    for group, others in (("shape", ("layers", "seed")), ("checkpoint", ("weights",))):
        given = getattr(options, group) is not None
        for name in others:
            if given != (getattr(options, name) is not None):
                parser.error(f"--{name} is needed with --{group}, and only there")
    if options.depth is not None and options.shape is None:
        parser.error("--depth needs --shape")
    if options.shape is not None:
        config = entry("shape")(options.shape, layers=options.layers, depth=options.depth)
        described = f"{options.shape} {options.layers} of {len(config.kinds)} layers"
        weights = entry("Synthetic")(options.seed)
    else:
        config = entry("from_folder")(options.checkpoint)
        described = options.checkpoint.name
        weights = entry("Checkpoint")(options.checkpoint, config, options.weights)
    tokens, tokens_input = read_tokens(options, config.vocab)
    return Run(config, Digested(weights, described), tokens, tokens_input)


def read_tokens(options: argparse.Namespace, vocab: int) -> tuple[tuple[int, ...], Input]:
    """The tokens and what to call them. Raises KernelError for an empty, odd or short file."""
    path = options.text or options.tokens
    try:
        with path.open("rb") as file:
            data = file.read(READ_BYTES_MAX + 1)
    except OSError as error:
        raise KernelError(path, f"cannot be read ({error.strerror})", "name a file of tokens or text") from error
    if len(data) > READ_BYTES_MAX:
        raise KernelError(path, f"is larger than {READ_BYTES_MAX} bytes", "cut it: a digest is of the whole file")
    if options.text:
        numbers, rule = [byte % vocab for byte in data], f"bytes of {path.name} modulo {vocab}"
    elif len(data) % 4:
        raise KernelError(path, f"{len(data)} bytes are no whole number of int32", "write 4 bytes a token")
    else:
        numbers, rule = np.frombuffer(data, dtype="<i4").tolist(), f"int32 of {path.name}"
    length = len(numbers) if options.length is None else options.length
    if not 1 <= length <= min(len(numbers), TOKENS_MAX):
        raise KernelError(path, f"holds {len(numbers)} tokens, not {length}", f"use 1..{min(len(numbers), TOKENS_MAX)}")
    digest = hashlib.sha256(data).hexdigest()
    return tuple(numbers[:length]), Input("tokens", f"{rule}, the first {length}", digest)


def file_digest(path: Path) -> str:
    """The digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
