"""Weights on a device: made there or copied there, the same bytes."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import artifact, engine
from kernels.engine import device, placed, synthetic, weights
from kernels.engine.errors import KernelError
from kernels.tools.inputs import Digested


@cache
def binary() -> Path:
    return artifact.load(artifact.tree()).binary


@cache
def opened() -> device.Device[Any]:
    return device.open_device(binary(), threads=2, split_ns=0)


SHAPES = [(1, 1), (3, 200), (5, 33), (13, 1021), (17, 256), (9, 513), (1000, 5120)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [1, (1 << 63) - 1])
def test_a_device_makes_the_bytes_of_numpy(shape: tuple[int, int], seed: int) -> None:
    """Words and scales made by the kernels are those of the NumPy generator, at odd sizes and over split launches."""
    source = synthetic.Synthetic(seed)
    tensor = weights.Tensor("layers.0.mlp.up_proj.weight", shape, weights.Q4)
    wanted = source.read(tensor)
    assert isinstance(wanted, weights.Packed)
    words, scales = (opened().download(buffer) for buffer in placed.placed(opened(), source, tensor))
    assert words.dtype == np.uint32 and words.tobytes() == wanted.words.tobytes()
    assert scales.dtype == np.uint16 and scales.tobytes() == wanted.scales.tobytes()


def test_keys_with_a_high_bit_are_arguments_too() -> None:
    """The int32 of a key's half has the same 32 bits, from 0 to all ones."""
    for bits in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        assert np.int32(placed._signed(bits)).view(np.uint32) == bits


@pytest.mark.parametrize("layers", ["attn", "gdn"])
def test_an_engine_holds_what_its_weights_are(layers: str) -> None:
    """Every tensor of a synthetic model, read back from its engine, is the NumPy one; taps are [taps][channels]."""
    config = engine.shape("mini64", layers=layers, depth=2)
    source = engine.Synthetic(5)
    made = engine.open(binary(), config, source, capacity=1)
    for tensor in weights.tensors(config):
        value = source.read(tensor)
        wanted = (value.words, value.scales) if isinstance(value, weights.Packed) else (value,)
        found = made.weight(tensor.name)
        for one, other in zip(found, wanted, strict=True):
            assert one.tobytes() == np.ascontiguousarray(other[:, 0, :].T if other.ndim == 3 else other).tobytes()
    with pytest.raises(KernelError, match="tensor nonesuch: is not in this model"):
        made.weight("nonesuch")


def test_what_is_hashed_is_read_on_the_host() -> None:
    """Weights wrapped to be hashed reach the device through the hash, every byte, and the logits are the same."""
    config = engine.shape("tiny", layers="hybrid")
    wrapped = Digested(engine.Synthetic(1), "tiny")
    rows = []
    for source in (engine.Synthetic(1), wrapped):
        made = engine.open(binary(), config, source, capacity=1)
        made.forward(3)
        rows.append(made.logits().tobytes())
    other = Digested(engine.Synthetic(1), "tiny")
    for tensor in weights.tensors(config):
        other.read(tensor)
    assert rows[0] == rows[1] and wrapped.input() == other.input()


def test_a_stream_that_a_counter_cannot_name_is_refused() -> None:
    """A matrix of more than 2^32 words has no recipe, as it has no NumPy bytes."""
    tensor = weights.Tensor("m", (1 << 20, 1 << 20), weights.Q4)
    with pytest.raises(KernelError, match="a stream has 4294967296 at most"):
        synthetic.Synthetic(1).recipe(tensor)
