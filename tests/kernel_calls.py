"""Calls of kernels for tests: outputs begin as poison, arrays have canaries on both sides, blocks run in any split."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact

CANARY = np.full(64, 0x7FC0DEAD, np.uint32)  # NaN as a float, so that reading it spoils a result as well
POISON = {np.dtype(np.float32): np.nan, np.dtype(np.int32): -1234567}
U = 2.0**-24  # the largest relative error of one rounded f32 operation


@dataclass(frozen=True, slots=True)
class Out:
    """An array that a kernel writes: poison before it does."""

    shape: tuple[int, ...]
    dtype: type = np.float32


@dataclass(frozen=True, slots=True)
class InOut:
    """An array that a kernel changes in place."""

    array: np.ndarray


@dataclass(frozen=True, slots=True)
class Call:
    """One launch. Arguments in the kernel's order: arrays, Out, InOut, int, float (f32), None (a null pointer)."""

    kernel: str
    blocks: int
    args: tuple[Any, ...]


class _Guarded:
    """A copy of an array between two canaries, at an address that is only as aligned as its elements are."""

    def __init__(self, array: np.ndarray) -> None:
        size, guard = array.nbytes, CANARY.nbytes
        self.memory = np.zeros(2 * guard + size, np.uint8)
        self.memory[:guard] = self.memory[guard + size :] = CANARY.view(np.uint8)
        self.array = self.memory[guard : guard + size].view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def intact(self) -> bool:
        guard = CANARY.nbytes
        return all(bytes(side) == CANARY.tobytes() for side in (self.memory[:guard], self.memory[-guard:]))


@cache
def library() -> ctypes.CDLL:
    """The kernels of this tree, built once."""
    return open_library(artifact.load(artifact.tree()).binary)


def open_library(binary: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(binary))


def run(call: Call, ranges: Sequence[tuple[int, int]] | None = None, on: ctypes.CDLL | None = None) -> list[np.ndarray]:
    """What the kernel leaves in its Out and InOut arguments, after those ranges of blocks in that order."""
    passed, guarded, results = [], [], []
    for arg in call.args:
        if isinstance(arg, Out):
            arg = InOut(np.full(arg.shape, POISON[np.dtype(arg.dtype)], arg.dtype))
            results.append(len(guarded))
        elif isinstance(arg, InOut):
            results.append(len(guarded))
        if isinstance(arg, InOut | np.ndarray):
            guarded.append(_Guarded(arg.array if isinstance(arg, InOut) else arg))
            passed.append(ctypes.c_void_p(guarded[-1].array.ctypes.data))
        elif arg is None:
            passed.append(ctypes.c_void_p(None))
        else:
            passed.append(ctypes.c_float(arg) if isinstance(arg, float) else ctypes.c_int32(arg))
    function = getattr(on or library(), call.kernel)
    function.restype = None
    for low, high in ranges or [(0, call.blocks)]:
        function(ctypes.c_int32(low), ctypes.c_int32(high), *passed)
    assert all(memory.intact() for memory in guarded), f"{call.kernel} wrote outside its arrays"
    inputs = [arg for arg in call.args if isinstance(arg, InOut | np.ndarray | Out)]
    for memory, arg in zip(guarded, inputs, strict=True):
        assert not isinstance(arg, np.ndarray) or memory.array.tobytes() == arg.tobytes(), "an input was changed"
    return [guarded[index].array for index in results]


def run_in_splits(call: Call) -> list[np.ndarray]:
    """The outputs, after the same bytes came out of the blocks at once, one by one from the last, and in odd pieces."""
    whole = run(call)
    backwards = [(block, block + 1) for block in reversed(range(call.blocks))]
    third = call.blocks // 3
    for ranges in (backwards, [(third, call.blocks), (0, 0), (0, third)]):
        for one, other in zip(whole, run(call, ranges), strict=True):
            assert one.tobytes() == other.tobytes(), f"{call.kernel}: a split moved a bit"
    return whole


def assert_within(got: np.ndarray, want: np.ndarray, bound: np.ndarray | float) -> None:
    """Every element is within its bound of the reference; NaN and poison are not."""
    error = np.abs(got.astype(np.float64) - want)
    bad = np.argwhere(~(error <= np.broadcast_to(bound, error.shape)))
    assert not len(bad), f"at {bad[0]}: {got[tuple(bad[0])]!r}, wanted {want[tuple(bad[0])]!r}, {len(bad)} in all"


def sum_roundings(n: int) -> int:
    """Roundings that an element of a row of n meets: its lane's chain, the five steps, three more over the warps."""
    return -(-n // 32) + 5 + 3


def floats(rng: np.random.Generator, *shape: int, spread: float = 1.0) -> np.ndarray:
    """f32 of both signs over some orders of magnitude."""
    return (rng.standard_normal(shape) * np.exp(spread * rng.standard_normal(shape))).astype(np.float32)


def packed(rng: np.random.Generator, rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Random q4 planes: every nibble, scales of both signs, denormal halves, and padding as weights have it."""
    chunks = -(-cols // 256)
    nibbles = rng.integers(0, 16, (rows, chunks * 256), dtype=np.uint32)
    scales = floats(rng, rows, chunks * 8, spread=3.0) * np.float32(0.01)
    scales[rng.random(scales.shape) < 0.05] = 3e-7
    nibbles[:, cols:], scales[:, -(-cols // 32) :] = 8, 0
    columns = nibbles.reshape(rows, chunks, 8, 32) << (4 * np.arange(8, dtype=np.uint32)[:, None])
    words = np.bitwise_or.reduce(columns, axis=2).reshape(rows, chunks * 32)
    return words, scales.astype(np.float16).view(np.uint16)


def without_instances(gemv: bytes) -> bytes:
    """The text of gemv.cuh without its instances <R, M>, which take a compiler longer than all the rest."""
    text, count = re.subn(rb"(?m)^GEMV_Q4_(EACH_M|ONE_ROW)\(\d\)$", b"", gemv)
    assert count == 8
    return text


def one_call_each(rng: np.random.Generator) -> list[Call]:
    """A call of every exported kernel, at sizes with tails."""
    n, heads, kv_heads, dim, positions = 1021, 6, 2, 97, 300
    x, y, w = floats(rng, n), floats(rng, n), floats(rng, n)
    words, scales = packed(rng, 13, n)
    q, qg = floats(rng, 2, heads, dim), floats(rng, 2, heads, 2, dim)
    k, appended = (floats(rng, 2, kv_heads, dim) for _ in range(2))
    cos, sin = floats(rng, 5, 35), floats(rng, 5, 35)
    caches = floats(rng, 2, positions, kv_heads, dim)
    third, last = np.array([3], np.int32), np.array([positions - 2], np.int32)
    out, root = Out((n,)), float(np.sqrt(np.float32(dim)))
    state, gate = floats(rng, heads, dim, 33), [floats(rng, heads) for _ in range(4)]
    v, o, z = (floats(rng, heads, 33) for _ in range(3))
    keys = Out((kv_heads, dim))
    stride = positions + 256
    maths = [Call(f"math_{name}", 4, (x, out, n)) for name in ("exp", "log1p", "sigmoid", "silu", "softplus")]
    instances = [(r, m) for r in (1, 2, 4, 8) for m in range(1, 9)]
    others = (floats(rng, 2, n), Out((2,)), 2, floats(rng, 1, n), Out((1,)), 1)
    several = floats(rng, 8, n)
    return [
        *maths,
        *(
            Call(f"gemv_q4_r{r}_m{m}", -(-13 // (8 * r)), (words, scales, several[:m], Out((m, 13)), 13, n))
            for r, m in instances
        ),
        *(
            Call(
                f"project_r{r}",
                1 + sum(-(-count // (8 * r)) for count in (13, 9, 1)),
                (
                    *(arg for count in (13, 9, 1) for arg in (words, scales, Out((count,)), count)),
                    *others,
                    *(several[0], n),
                ),
            )
            for r in (1, 2, 4, 8)
        ),
        Call("rms_norm", 3, (floats(rng, 3, n), w, Out((3, n)), n, 1e-6)),
        Call("add_rms_norm", 3, (floats(rng, 3, n), InOut(floats(rng, 3, n)), w, Out((3, n)), n, 1e-6)),
        Call("gemv_q4", 6, (words, scales, floats(rng, 3, n), Out((3, 13)), 13, n)),
        Call("gemv_f32", 1, (caches[0, 0], caches[1, 0], q[0, 0], Out((2,)), Out((2,)), 2, 2, dim)),
        Call("add", 4, (x, InOut(y), n)),
        Call("swiglu", 4, (x, y, out, n)),
        Call(
            "qk_prep",
            2,
            (
                *(qg, k, w, w, cos, sin, third, Out((2, heads, dim)), Out((2, kv_heads, dim))),
                *(heads, kv_heads, dim, 70, 1e-6),
            ),
        ),
        Call("kv_append", 2, (k, appended, InOut(caches[0]), InOut(caches[1]), third, kv_heads * dim)),
        Call(
            "attention",
            2 * heads,
            (
                *(q, qg, *caches, last, Out((2, heads, stride)), Out((2, heads, dim))),
                *(heads, kv_heads, dim, stride, 0.1),
            ),
        ),
        Call("gdn_conv", 4, (x, InOut(floats(rng, 3, n)), floats(rng, 4, n), out, n, 4)),
        Call("gdn_qk_norm", 1, (x, keys, keys, kv_heads, dim, root)),
        Call("gdn_gates", 1, (*gate, Out((heads,)), Out((heads,)), heads)),
        Call(
            "gdn_delta",
            heads,
            (k[0], k[1], v, gate[0], gate[1], InOut(state), Out((heads, 33)), kv_heads, heads, dim, 33),
        ),
        Call("gdn_gate_norm", 1, (o, z, w, Out((heads, 33)), heads, 33, 1e-6)),
        Call("embed_f32", 4, (floats(rng, 4, n), third, out, n)),
        Call("embed_q4", 1, (words, scales, third, out, n)),
        Call("argmax", 1, (x, Out((1,), np.int32), n)),
        Call("synthetic_words", 7, (Out((13, 4 * 32), np.int32), -5, 1 << 30, 13, n)),
        Call("synthetic_scales", 1, (Out((13, 4 * 4), np.int32), -5, 1 << 30, 7 << 10, 13, n)),
    ]
