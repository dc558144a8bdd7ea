"""The two forms of M rows, one launch of all and M launches of one, and what stands around both.

Values are made of whole numbers, so that every machine makes the same bytes. Whatever a kernel writes starts as
canaries, and so do rows beyond the last: they must still be there afterwards. Every launch is counted by name and grid,
since two forms that launched the same things were held against themselves.
"""

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact
from kernels.engine.errors import KernelError

from .inputs import file_digest
from .outputs import Input, report, write_dump, write_inputs

FORMS = ("singles", "rows")
ROWS_MAX = 8
GUARD_ROWS = 2  # beyond the last row
CANARY = np.uint32(0x7FC0DEAD)  # a NaN as a float, so that reading it spoils a result as well
ZERO_EVERY = 61  # one value in so many is a zero, of either sign


class Values:
    """Finite f32 of both signs over four powers of two, zeros of both signs too, from a name; hashed once made."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        drawn = _drawn(name, shape)
        whole = (drawn >> np.uint64(40)).astype(np.float32) - np.float32(1 << 23)  # 24 bits: exact
        whole *= np.float32(2.0) ** ((drawn & np.uint64(3)).astype(np.float32) - np.float32(24))
        whole[(drawn >> np.uint64(2)) % np.uint64(ZERO_EVERY) == 0] *= np.float32(0)
        return self.named(name, whole.reshape(shape))

    def words(self, name: str, *shape: int) -> np.ndarray:
        """u32 of any bits, from a name."""
        return self.named(name, (_drawn(name, shape) >> np.uint64(32)).astype(np.uint32).reshape(shape))

    def halves(self, name: str, *shape: int) -> np.ndarray:
        """u16, the bits of halves of both signs between 2^-10 and 2^-6, from a name."""
        drawn = _drawn(name, shape)
        exponents = (np.uint64(5) + (drawn >> np.uint64(40)) % np.uint64(4)) << np.uint64(10)
        return self.named(name, ((drawn & np.uint64(0x83FF)) | exponents).astype(np.uint16).reshape(shape))

    def named(self, name: str, array: np.ndarray) -> np.ndarray:
        """The same array, which decides bytes from now on."""
        self._hash.update(f"{name} {array.dtype} {array.shape}\n".encode())
        self._hash.update(np.ascontiguousarray(array).data)
        return array

    def input(self) -> Input:
        """What has been made, in the order of making."""
        return Input("values", "PCG64 seeded by the name of each array", self._hash.hexdigest())


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """u64, one an element. The bits that this generator makes are promised to stay."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    drawn: np.ndarray = np.random.PCG64(seed).random_raw(int(np.prod(shape)))
    return drawn


class Stage:
    """A device, and what was launched on it."""

    def __init__(self, opened: artifact.Artifact):
        self._device = opened.entry("open_device")(opened.binary)
        self._kernels: list[str] = []
        self._launched: list[tuple[int, int]] = []  # number of the kernel, grid

    def put(self, array: np.ndarray) -> Any:
        """A buffer with a copy of an array."""
        return self._device.upload(np.ascontiguousarray(array))

    def blank(self, rows: int, width: int) -> Any:
        """A buffer [rows + GUARD_ROWS][width] of canaries."""
        return self.put(np.full((rows + GUARD_ROWS, width), CANARY, np.uint32))

    def run(self, kernel: str, grid: int, *args: Any) -> None:
        self._device.run([self._device.bind(kernel, grid, *args)])
        if kernel not in self._kernels:
            self._kernels.append(kernel)
        self._launched.append((self._kernels.index(kernel), grid))

    def bits(self, buffer: Any) -> np.ndarray:
        """A buffer as u32, in its own shape."""
        found: np.ndarray = self._device.download(buffer)
        return found.view(np.uint32)

    def one_row(self, buffer: Any) -> np.ndarray:
        """The first row of a buffer that was blank(1, ...). Raises KernelError if a canary behind it is gone."""
        self.check_guard(buffer)
        row: np.ndarray = self.bits(buffer)[0]
        return row

    def check_guard(self, buffer: Any) -> None:
        """Raises KernelError if a canary behind the rows of a blank() buffer is gone."""
        if not (self.bits(buffer)[-GUARD_ROWS:] == CANARY).all():
            raise KernelError("one row", "was written beyond its end", "mend the kernel, or what it was given")

    def launches(self) -> np.ndarray:
        """int32 [launches][2]: which kernel, in the order of first use, and its grid."""
        return np.array(self._launched, np.int32).reshape(-1, 2)

    def close(self) -> None:
        self._device.close()


def leave(folder: Path, files: Mapping[str, Mapping[str, np.ndarray]], path: Path, made: Values, command: str) -> None:
    """The files are written, with the artifact and the values that they were made of, and printed."""
    outputs = write_dump(folder, files)
    inputs = [Input("artifact", path.name, file_digest(path)), made.input()]
    write_inputs(folder, inputs)
    report(command, inputs, outputs)


def guarded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """What blank() holds once its rows are these and nothing else was written."""
    return np.concatenate([np.stack(rows), np.full((GUARD_ROWS, *rows[0].shape), CANARY, np.uint32)])


def row_counts(text: str) -> tuple[int, ...]:
    """1..8 is all from 1 to 8; 2,4,8 is these."""
    low, dots, high = text.partition("..")
    numbers = tuple(range(int(low), int(high) + 1)) if dots else tuple(map(int, text.split(",")))
    if not numbers or not all(1 <= number <= ROWS_MAX for number in numbers):
        raise argparse.ArgumentTypeError(f"give numbers in 1..{ROWS_MAX}")
    return numbers


def blocks(items: int, a_block: int) -> int:
    """Blocks that hold so many items: the quotient, rounded up."""
    return -(-items // a_block)
