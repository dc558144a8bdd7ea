"""Synthetic weights: the rule read by one number at a time, and bytes that never change."""

import hashlib

import numpy as np
import pytest

from kernels.engine import config, synthetic, weights
from kernels.engine.errors import KernelError

TINY = config.shape("tiny", layers="hybrid")
DIGEST_TINY_SEED_1 = "0870343da669b069fbaf5f427f1f81875ef5f36e2a3e11388a31afad69f4bd49"


def mixed(x: int) -> int:
    """The finaliser of MurmurHash3 for 32 bits."""
    x ^= x >> 16
    x = x * 0x85EBCA6B % 2**32
    x ^= x >> 13
    x = x * 0xC2B2AE35 % 2**32
    return x ^ x >> 16


def drawn(seed: int, name: str, index: int) -> int:
    """Element `index` of a stream, in whole numbers as the module's docstring says it."""
    key = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    low, high = int.from_bytes(key[:4], "little"), int.from_bytes(key[4:8], "little")
    return mixed(mixed((index + low) % 2**32) ^ high)


def by_name(name: str) -> weights.Tensor:
    return next(tensor for tensor in weights.tensors(TINY) if tensor.name == name)


def test_a_stream_is_its_rule() -> None:
    """Streams agree with the rule at their start, around the pieces they are made in, and at their end."""
    count = 2 * synthetic.AT_ONCE + 7
    stream = synthetic.stream(3, "x", count)
    for index in (0, 1, synthetic.AT_ONCE - 1, synthetic.AT_ONCE, count - 1):
        assert int(stream[index]) == drawn(3, "x", index)


def test_every_tensor_has_the_same_bytes_everywhere() -> None:
    """A frozen digest of all weights of tiny: a machine, or an edit, that makes others is found out here."""
    digest = hashlib.sha256()
    for tensor in weights.tensors(TINY):
        value = synthetic.Synthetic(1).read(tensor)
        arrays = (value.words, value.scales) if isinstance(value, weights.Packed) else (value,)
        for array in arrays:
            digest.update(array.tobytes())
    assert digest.hexdigest() == DIGEST_TINY_SEED_1


def test_plain_values_are_small_whole_numbers() -> None:
    """An f32 tensor is (u - 32768 + offset) / 2**shift, exactly."""
    value = synthetic.Synthetic(9).read(by_name("layers.0.linear_attn.A_log"))
    assert isinstance(value, np.ndarray)
    assert value[4] == ((drawn(9, "layers.0.linear_attn.A_log", 4) >> 16) - 65536) / 2**14


def test_scales_come_from_bits() -> None:
    """A scale is a sign, a fixed power of two and ten random bits; words are the hash itself."""
    name = "layers.0.mlp.up_proj.weight"
    value = synthetic.Synthetic(2).read(by_name(name))
    assert isinstance(value, weights.Packed)
    draw = drawn(2, name + " scale", 9)
    wanted = (-1) ** (draw >> 31) * 2.0**-7 * (1 + (draw & 1023) / 1024)  # 256 columns: 3 + 8 / 2
    assert float(value.scales.view(np.float16)[1, 1]) == wanted
    assert int(value.words[1, 5]) == drawn(2, name, 37)


def test_rows_have_a_size_near_one() -> None:
    """A row of a matrix times a vector of size 1 has a size between 1/4 and 4, at every width that a shape has."""
    for cols in (192, 256, 512, 5120, 17408):
        value = synthetic.Synthetic(1).read(weights.Tensor("m", (16, cols), weights.Q4))
        assert isinstance(value, weights.Packed)
        step = np.abs(value.scales.view(np.float16).astype(np.float64)[:, : cols // 32]).mean()
        assert 0.25 < step * np.sqrt((np.arange(16) - 8.0) @ (np.arange(16) - 8.0) / 16 * cols) < 4


def test_absent_columns_are_nothing() -> None:
    """At a width that is no multiple of 256 the rest is nibble 8 and scale +0, as packing leaves it."""
    value = synthetic.Synthetic(1).read(weights.Tensor("m", (3, 200), weights.Q4))
    assert isinstance(value, weights.Packed)
    nibbles = (value.words[0][:, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    assert (nibbles[~weights.present(200)] == 8).all() and (value.scales[:, 7:] == 0).all()
    assert len(set(nibbles[weights.present(200)])) > 8 and (value.scales[:, :7] != 0).all()


def test_no_value_hides_a_formula() -> None:
    """Every f32 tensor holds at least two values, all finite, none of them all zero or all one."""
    for tensor in weights.tensors(TINY):
        if tensor.form == weights.F32:
            value = synthetic.Synthetic(1).read(tensor)
            assert isinstance(value, np.ndarray) and value.dtype == np.float32 and value.shape == tensor.shape
            assert np.isfinite(value).all() and len(np.unique(value)) > 1


def test_seeds_and_names_make_different_weights() -> None:
    """Another seed, or another layer, is another stream."""
    first = synthetic.stream(1, "layers.0.a", 8).tobytes()
    assert (
        len({first, synthetic.stream(2, "layers.0.a", 8).tobytes(), synthetic.stream(1, "layers.1.a", 8).tobytes()})
        == 3
    )


@pytest.mark.parametrize("seed", [-1, 1 << 63])
def test_seeds_have_a_range(seed: int) -> None:
    """A seed beyond 63 bits, or below 0, is refused."""
    with pytest.raises(KernelError, match="seed"):
        synthetic.Synthetic(seed)
