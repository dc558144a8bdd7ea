"""What bounds a product that reads its matrix once: the rate of a copy, and matrices that no cache holds.

One matrix read again and again would be read from the cache. Here copies of it, each of other values, lie in a ring
that is larger than four caches; launches walk around it, as one graph where the device captures them, so that the
host's pace does not show. Times are the device's own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.engine.device import WARPS_A_BLOCK
from kernels.engine.errors import KernelError
from kernels.engine.placed import placed
from kernels.engine.r_table import ROWS_MAX
from kernels.engine.synthetic import Synthetic
from kernels.engine.weights import Q4, Tensor, stored_bytes

from .forms import Values, blocks
from .outputs import Figure

SEED = 1
COPIES = 20  # samples; one more is the warm-up
COPY_COLS = 5120  # columns of the q4 words that are copied: any whole number of chunks
NS_A_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes: of a copy, which is many times a cache; of a ring; of what is read between two events at the least."""

    copy: int
    ring: int
    read: int


CACHE = 60 << 20  # bytes, of an H200: 50 MiB, and some more
MEASURED = Sizes(copy=4 << 30, ring=4 * CACHE, read=1 << 29)  # read: 0.13 ms at the rate of a copy
TRIED = Sizes(copy=1 << 20, ring=1 << 15, read=1 << 16)  # for any device, and for no number


def copy_figure(device: Any, name: str, size: int) -> Figure:
    """Rates of a copy within the device, both directions counted, in bytes/s."""
    tensor = Tensor("copied", (blocks(size, COPY_COLS // 2), COPY_COLS), Q4)
    source, _scales = placed(device, Synthetic(SEED), tensor)
    target = device.zeros(source.shape, np.uint32)
    moved = 2 * stored_bytes(tensor, Q4)[0]
    launch = device.copy(target, source)
    device.timed([launch])
    rates = tuple(moved * NS_A_SECOND // device.timed([launch]) for _ in range(COPIES))
    return Figure(name, "bytes/s", rates)


def passes(size: int, sizes: Sizes) -> tuple[int, int]:
    """(matrices of so many bytes in a ring, walks around it between two events)."""
    count = blocks(sizes.ring, size)
    return count, blocks(sizes.read, count * size)


class Ring:
    """Copies of one q4 matrix [rows][cols] on a device, and rows of x to multiply them by."""

    def __init__(self, device: Any, rows: int, cols: int, sizes: Sizes):
        self._device, self._rows, self._cols = device, rows, cols
        tensors = [Tensor(f"{rows}x{cols} of a ring", (rows, cols), Q4)]
        self.bytes = sum(stored_bytes(tensors[0], Q4))  # of one matrix
        count, self._walks = passes(self.bytes, sizes)
        tensors += [Tensor(f"{tensors[0].name} {i}", (rows, cols), Q4) for i in range(1, count)]
        self._weights = [placed(device, Synthetic(SEED), tensor) for tensor in tensors]
        self._x = device.upload(Values()("x of a ring", ROWS_MAX, cols))
        self._y = device.zeros((ROWS_MAX, rows))

    @property
    def products(self) -> int:
        """Between two events."""
        return len(self._weights) * self._walks

    def sequence(self, kernel: str, r: int) -> Sequence[Any]:
        """Launches of a kernel with r weight rows a warp, for ns(). Raises KernelError where the artifact lacks it."""
        grid, sizes = blocks(self._rows, WARPS_A_BLOCK * r), (self._rows, self._cols)
        launches = [self._device.bind(kernel, grid, *one, self._x, self._y, *sizes) for one in self._weights]
        launches *= self._walks
        return [self._device.captured(launches)] if self._device.graphs else launches

    def ns(self, sequence: Sequence[Any]) -> int:
        """The time of one product of a sequence."""
        return blocks(self._device.timed(sequence), self.products)


def samples(turns: Mapping[str, Callable[[], int]], count: int) -> dict[str, tuple[int, ...]]:
    """What each gives in so many rounds, one after the other in each; a round before is the warm-up and left out."""
    rounds = [{name: turn() for name, turn in turns.items()} for _ in range(1 + count)][1:]
    return {name: tuple(one[name] for one in rounds) for name in turns}


def median(values: Sequence[int]) -> int:
    """As a record has it: of an even number the upper one in the middle."""
    return sorted(values)[len(values) // 2]


def check_rate(figure: Figure, read: int, copies: Figure) -> None:
    """Raises KernelError for a time in which memory cannot give so many bytes: no copy of the run was as fast."""
    rate, fastest = read * NS_A_SECOND // min(figure.values), max(copies.values)
    if rate > fastest:
        what = f"reads {rate} bytes/s, and the fastest copy of this run moved {fastest}"
        raise KernelError(figure.name, what, "use a larger ring: some of it came from a cache")
