"""The CPU device: buffers that never move, calls into the artifact's library, and host threads over ranges of blocks.

The only home of ctypes in the engine. A kernel is `void NAME(int block_lo, int block_hi, ...)`; a launch is such a call
with every argument converted once. How blocks are spread over threads decides no bit.
"""

import ctypes
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from .device import Launch
from .errors import KernelError
from .r_table import R_VALUES, ROWS_MAX, instance, together

THREADS_MAX = 256
ALIGNMENT = 64  # bytes; a cache line
# A launch is split where it is estimated to take longer than this. Handing ranges to two threads costs some 35 us.
SPLIT_NS_MIN = 100_000


def _rows_cost(m: int) -> Callable[..., int]:
    return lambda rows, cols: m * rows * cols // 8


# Estimated time of a launch on one core in ns, from its whole-number arguments; a kernel that is not here counts as 0.
# 8 multiply-adds of q4 and 4 of f32 weights a ns: toolchain.md, CPU binary.
COST_NS: dict[str, Callable[..., int]] = {
    "gemv_q4": lambda rows, cols: rows * cols // 8,
    **{instance(r, m): _rows_cost(m) for r in R_VALUES for m in range(1, ROWS_MAX + 1)},
    **{together(r): lambda *sizes: (sum(sizes[:3]) // 8 + sum(sizes[3:5]) // 4) * sizes[5] for r in R_VALUES},
    "gemv_f32": lambda rows_a, rows_b, cols: (rows_a + rows_b) * cols // 4,
    "gdn_delta": lambda key_heads, value_heads, key_dim, value_dim: value_heads * key_dim * value_dim,
    "attention": lambda heads, kv_heads, head_dim, stride: heads * head_dim * stride // 4,
    "synthetic_words": lambda low, high, rows, cols: rows * cols // 16,
    "synthetic_scales": lambda low, high, exponent, rows, cols: rows * cols // 64,
}


class Buffer:
    """Memory of the device, or the rest of it from an element on."""

    __slots__ = ("address", "array")

    def __init__(self, array: np.ndarray):
        self.array = array
        self.address = array.ctypes.data

    def after(self, elements: int) -> "Buffer":
        """The same memory without its first elements, flat."""
        return Buffer(self.array.reshape(-1)[elements:])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def part(self, start: int, shape: tuple[int, ...], dtype: type) -> "Buffer":
        """The same memory from an element on, in a shape and a type of as many bytes."""
        end = start + int(np.prod(shape, dtype=np.int64))
        return Buffer(self.array.reshape(-1)[start:end].view(dtype).reshape(shape))


class Device:
    """The library of one artifact and the threads that run it. Raises KernelError if it cannot be loaded."""

    graphs = False

    def __init__(self, binary: Path, *, threads: int = 1, split_ns: int = SPLIT_NS_MIN):
        if type(threads) is not int or not 1 <= threads <= THREADS_MAX:
            raise KernelError(f"threads {threads}", "out of range", f"use 1..{THREADS_MAX}")
        if sys.float_info.min / 2 == 0.0:
            what = "this process flushes denormal numbers to zero"
            raise KernelError("cpu", what, "unload what was built with -ffast-math")
        try:
            self._library = ctypes.CDLL(str(binary))
        except OSError as error:
            raise KernelError(binary, "is no library that this machine loads", "build the artifact again") from error
        self._threads, self._split_ns, self._kept = threads, split_ns, list[Buffer]()
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def zeros(self, shape: tuple[int, ...], dtype: type = np.float32) -> Buffer:
        return Buffer(_aligned(shape, np.dtype(dtype)))

    def upload(self, array: np.ndarray) -> Buffer:
        """A buffer with a copy of an array."""
        buffer = Buffer(_aligned(array.shape, array.dtype))
        buffer.array[...] = array
        return buffer

    def download(self, buffer: Buffer) -> np.ndarray:
        return buffer.array.copy()

    def write(self, buffer: Buffer, array: np.ndarray) -> None:
        """Fills a buffer. Raises KernelError unless shape and dtype are the buffer's own."""
        if buffer.array.shape != array.shape or buffer.array.dtype != array.dtype:
            what = f"{array.shape} {array.dtype} does not fit {buffer.array.shape} {buffer.array.dtype}"
            raise KernelError("cpu", what, "this is a fault of the engine")
        buffer.array[...] = array

    def copy(self, target: Buffer, source: Buffer) -> Launch:
        """The copy of one buffer to another of its size, bound."""
        if target.array.nbytes != source.array.nbytes:
            what = f"a copy of {source.array.nbytes} bytes to {target.array.nbytes}"
            raise KernelError("cpu", what, "this is a fault of the engine")
        self._kept += (target, source)
        return Launch("copy", 0, partial(ctypes.memmove, target.address, source.address, source.array.nbytes))

    def bind(self, kernel: str, grid: int, *args: Buffer | int | np.float32 | None) -> Launch:
        """One launch of `grid` blocks, ready to run. The buffers live as long as the launch does."""
        try:
            function = self._library[kernel]
        except AttributeError as error:
            raise KernelError("cpu", f"the artifact has no kernel {kernel}", "build the artifact again") from error
        function.restype = None
        ready = [_converted(kernel, arg) for arg in args]
        self._kept.extend(arg for arg in args if isinstance(arg, Buffer))
        cost = COST_NS.get(kernel, _free)(*(arg for arg in args if type(arg) is int))
        parts = min(self._threads, grid) if cost >= self._split_ns else 1
        edges = [grid * i // parts for i in range(parts + 1)]
        calls = [partial(function, ctypes.c_int(low), ctypes.c_int(high), *ready) for low, high in pairwise(edges)]
        return Launch(kernel, grid, calls[0] if parts == 1 else partial(self._together, calls))

    def run(self, launches: Iterable[Launch]) -> None:
        """Runs launches one after the other; returns when the last has ended."""
        for launch in launches:
            launch.call()

    def captured(self, launches: Sequence[Launch]) -> Launch:
        raise KernelError("cpu", "has no graphs", "this is a fault of the engine")

    def timed(self, launches: Sequence[Launch]) -> int:
        """Runs launches; ns from before the first to after the last."""
        start = time.perf_counter_ns()
        self.run(launches)
        return time.perf_counter_ns() - start

    def close(self) -> None:
        """Ends the threads; the device is not used again."""
        if self._pool is not None:
            self._pool.shutdown()

    def _together(self, calls: Sequence[Callable[[], object]]) -> None:
        """The first range here, the others on the pool; returns when all have ended."""
        assert self._pool is not None
        others = [self._pool.submit(call) for call in calls[1:]]
        calls[0]()
        for other in others:
            other.result()


def _free(*sizes: int) -> int:
    return 0


def _converted(kernel: str, arg: object) -> object:
    if isinstance(arg, Buffer):
        return ctypes.c_void_p(arg.address)
    if arg is None:
        return ctypes.c_void_p(None)
    if isinstance(arg, np.float32):
        return ctypes.c_float(float(arg))
    if type(arg) is int:
        return ctypes.c_int32(arg)
    raise KernelError("cpu", f"{kernel} was given a {type(arg).__name__}", "this is a fault of the engine")


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that begin on a cache line."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
