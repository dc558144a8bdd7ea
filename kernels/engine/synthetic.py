"""Weights from a seed: whole numbers only, so every machine makes the same bytes, and a device could.

Element i of a stream is hash(key, i): two rounds of the 32-bit finaliser of MurmurHash3 (public domain) over i, with
the two halves of a key between them. A key is the first 8 bytes of sha256("SEED:STREAM"), little-endian.
q4 matrix NAME: stream NAME gives its words, stream "NAME scale" its f16 scales: sign, and 10 bits of fraction over a
power of two near 1 / sqrt(columns), so that rows of the product have a size near 1. f32 tensors: small whole numbers
over a power of two, by the table below. Nothing is 0 or 1 where a formula would not show it, and what is normed is
small somewhere, since a norm's epsilon shows in nothing else.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from .errors import KernelError
from .weights import BLOCK, BLOCKS_A_CHUNK, CHUNK, EMBEDDING, NIBBLE_ZERO, Q4, Packed, Tensor, chunks, present

VERSION = 1  # of the bytes: any change to them is a new version
SEED_MAX = 1 << 63
STREAM_MAX = 1 << 32  # elements that a 32-bit counter can name
AT_ONCE = 1 << 16  # elements hashed in one go, so that they stay in cache
HALF_BIAS = 15  # of the exponent of a f16

# value = (u - 32768 + offset) / 2**shift for u in 0..65535; shift None: near 1 / sqrt(columns)
#  name ends in                       offset   shift   range
VALUES = (
    ("input_layernorm.weight",          0,      16),    # -1/2 .. 1/2, gain 1+w
    ("post_attention_layernorm.weight", 0,      16),
    ("q_norm.weight",                   0,      16),
    ("k_norm.weight",                   0,      16),
    ("linear_attn.norm.weight",         65536,  16),    # 1/2 .. 3/2, gain w
    ("linear_attn.conv1d.weight",       0,      15),    # -1 .. 1
    ("linear_attn.A_log",               -32768, 14),    # -4 .. 0
    ("linear_attn.dt_bias",             0,      14),    # -2 .. 2
    ("linear_attn.in_proj_a.weight",    0,      None),
    ("linear_attn.in_proj_b.weight",    0,      None),
    ("norm.weight",                     0,      16),    # the final one: it ends like others, so it comes last
)  # fmt: skip

# q4 matrices that are smaller by a power of two, as far as a half goes: what is normed next is near its epsilon
SMALLER = ((EMBEDDING, 8), ("linear_attn.in_proj_qkv.weight", 5), ("self_attn.k_proj.weight", 7))


class Synthetic:
    """Weights of a named model from a seed; always q4."""

    form = Q4

    def __init__(self, seed: int):
        if not 0 <= seed < SEED_MAX:
            raise KernelError(f"seed {seed}", "out of range", f"use 0..{SEED_MAX - 1}")
        self.seed = seed
        self.origin = f"synthetic version {VERSION}, seed {seed}"

    def read(self, tensor: Tensor) -> np.ndarray | Packed:
        return self._packed(tensor) if tensor.form == Q4 else self._plain(tensor)

    def recipe(self, tensor: Tensor) -> "Recipe":
        """What a device needs to make a q4 tensor with the bytes that read() gives; device/synthetic.cuh."""
        rows, cols = tensor.shape
        _in_range(tensor.name, rows * chunks(cols) * BLOCK)
        words, scales = (_key(self.seed, name) for name in (tensor.name, _scales_of(tensor)))
        return Recipe(words, scales, int(_exponent(tensor)))

    def _packed(self, tensor: Tensor) -> Packed:
        rows, cols = tensor.shape
        count = chunks(cols)
        words = stream(self.seed, tensor.name, rows * count * BLOCK).reshape(rows, count * BLOCK)
        draws = stream(self.seed, _scales_of(tensor), rows * count * BLOCKS_A_CHUNK).reshape(rows, -1)
        halves = ((draws >> np.uint32(16)) & np.uint32(0x8000)) | _exponent(tensor) | (draws & np.uint32(0x03FF))
        if cols % CHUNK:
            nibbles = np.uint32(15) << (4 * np.arange(BLOCKS_A_CHUNK, dtype=np.uint32))
            keep = (present(cols) * nibbles).sum(axis=1, dtype=np.uint32)
            words = (words & keep) | (np.uint32(0x11111111 * NIBBLE_ZERO) & ~keep)
            halves = halves * (np.arange(count * BLOCKS_A_CHUNK) * BLOCK < cols)
        return Packed(words, halves.astype(np.uint16), rows, cols)

    def _plain(self, tensor: Tensor) -> np.ndarray:
        offset, shift = next(row[1:] for row in VALUES if tensor.name.endswith(row[0]))
        if shift is None:
            shift = 14 + _bits(tensor.shape[-1]) // 2
        draws = stream(self.seed, tensor.name, int(np.prod(tensor.shape))) >> np.uint32(16)
        numbers = draws.astype(np.int64) - 32768 + offset
        return (numbers.astype(np.float32) * np.float32(2.0**-shift)).reshape(tensor.shape)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A q4 tensor as numbers: the keys (low, high) of its two streams, and the exponent's bits of its scales."""

    words: tuple[int, int]
    scales: tuple[int, int]
    exponent: int


def _scales_of(tensor: Tensor) -> str:
    """The stream of a q4 matrix's scales."""
    return f"{tensor.name} scale"


def _exponent(tensor: Tensor) -> np.uint32:
    """The bits of every scale's exponent, in their place in a f16."""
    size = 1 if tensor.name == EMBEDDING else tensor.shape[-1]  # of a sum; a row of the embedding is not summed
    power = 3 + (_bits(size) + 1) // 2 + sum(less for name, less in SMALLER if tensor.name.endswith(name))
    return np.uint32((HALF_BIAS - min(power, HALF_BIAS - 1)) << 10)


def _bits(cols: int) -> int:
    """log2(cols), rounded up."""
    return (cols - 1).bit_length()


def stream(seed: int, name: str, count: int) -> np.ndarray:
    """The first `count` numbers of a stream, u32."""
    _in_range(name, count)
    low, high = map(np.uint32, _key(seed, name))
    out = np.empty(count, dtype=np.uint32)
    places = np.arange(min(count, AT_ONCE), dtype=np.uint32)
    for start in range(0, count, AT_ONCE):
        part = out[start : start + AT_ONCE]
        np.add(places[: len(part)], low + np.uint32(start) if start else low, out=part)
        _mix(part)
        np.bitwise_xor(part, high, out=part)
        _mix(part)
    return out


def _in_range(name: str, count: int) -> None:
    if count > STREAM_MAX:
        raise KernelError(name, f"{count} elements", f"a stream has {STREAM_MAX} at most")


def _key(seed: int, name: str) -> tuple[int, int]:
    """The two halves of a stream's key."""
    key = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(key[:4], "little"), int.from_bytes(key[4:8], "little")


def _mix(x: np.ndarray) -> None:
    """The finaliser, in place; a multiplication wraps at 32 bits."""
    for right, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        np.bitwise_xor(x, x >> np.uint32(right), out=x)
        np.multiply(x, np.uint32(factor), out=x)
    np.bitwise_xor(x, x >> np.uint32(16), out=x)
