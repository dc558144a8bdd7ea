"""The face that every device has, and the choice of one: what a binary's name ends in says what it runs on.

The engine and the tools know this face alone. cpu.py and gpu.py are loaded when a binary of theirs is opened, so that
a machine without CuPy runs the one and a machine without a compiler the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from .errors import KernelError, Refused

WARPS_A_BLOCK, THREADS_A_BLOCK = 8, 256  # of every kernel: lanes.cuh
B = TypeVar("B")  # a device's own kind of buffer: memory that never moves


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel over `grid` blocks, or one copy, with its arguments converted; ready to run any number of times."""

    kernel: str
    grid: int
    call: Callable[[], object]


class Device(Protocol[B]):
    """One artifact's binary on one device. A buffer has a shape, `after(elements)`: the same memory from there on,
    flat, and `part(start, shape, dtype)`: a piece of it. `graphs`: whether captured() is to be had.
    """

    graphs: bool

    def zeros(self, shape: tuple[int, ...], dtype: type = np.float32) -> B: ...

    def upload(self, array: np.ndarray) -> B: ...

    def download(self, buffer: B) -> np.ndarray: ...

    def write(self, buffer: B, array: np.ndarray) -> None: ...

    def copy(self, target: B, source: B) -> Launch: ...

    def bind(self, kernel: str, grid: int, *args: B | int | np.float32 | None) -> Launch: ...

    def run(self, launches: Iterable[Launch]) -> None: ...

    def captured(self, launches: Sequence[Launch]) -> Launch: ...

    def timed(self, launches: Sequence[Launch]) -> int: ...

    def close(self) -> None: ...


def open_device(
    binary: Path,
    *,
    threads: int = 1,
    split_ns: int | None = None,
    sizes: Sequence[int] = (),
    graphs: bool = False,
) -> Device[Any]:
    """The device that a binary is for. `sizes`: bytes of every buffer that will be asked of it.

    Raises KernelError, and Refused when the device's memory does not hold them all, or it has no graphs.
    """
    if binary.suffix == ".so":
        if graphs:
            raise Refused("graphs", "a CPU has none", "open without them, or open a CUDA artifact", reason="no-graphs")
        from .cpu import Device as Cpu

        return Cpu(binary, threads=threads) if split_ns is None else Cpu(binary, threads=threads, split_ns=split_ns)
    if binary.suffix != ".cubin":
        raise KernelError(binary.name, "is a binary for no device", "open an artifact's own .so or .cubin")
    if threads != 1 or split_ns is not None:
        raise KernelError("threads", "belong to the CPU", "leave --threads and --split-ns out for a CUDA artifact")
    from .gpu import Device as Gpu

    return Gpu(binary, sizes=sizes)
