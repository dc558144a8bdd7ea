"""What an engine asks of its device, noted on the way: allocations, launches, bytes that move, of any artifact.

The gate of rows is set here as well: an engine reads it when it opens.
"""

import os
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from kernels import artifact
from kernels.engine.limits import GATE

COPY = "copy"  # what a copy is called among the launches


@dataclass(frozen=True, slots=True)
class Moved:
    """Launches of kernels, and bytes: copied within the device, allocated there, written to it, read from it."""

    launches: int = 0
    copied: int = 0
    allocated: int = 0
    written: int = 0
    read: int = 0

    def since(self, before: "Moved") -> "Moved":
        """What came after an earlier look at the same device."""
        return Moved(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


class Watched:
    """A device that notes what is asked of it."""

    def __init__(self, device: Any):
        self._device = device
        self.allocated: list[int] = []  # bytes, in order
        self.launched: list[tuple[str, int]] = []  # kernel or copy, grid
        self._copies: dict[int, tuple[Any, int]] = {}  # by identity of a bound copy, which stays alive: its bytes
        self._kernels = self._copied = self._written = self._read = 0

    @property
    def moved(self) -> Moved:
        """All so far."""
        return Moved(self._kernels, self._copied, sum(self.allocated), self._written, self._read)

    def zeros(self, shape: tuple[int, ...], dtype: type = np.float32) -> Any:
        self.allocated.append(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
        return self._device.zeros(shape, dtype)

    def upload(self, array: np.ndarray) -> Any:
        self.allocated.append(array.nbytes)
        return self._device.upload(array)

    def download(self, buffer: Any) -> Any:
        found = self._device.download(buffer)
        self._read += found.nbytes
        return found

    def write(self, buffer: Any, array: np.ndarray) -> None:
        self._written += array.nbytes
        self._device.write(buffer, array)

    def copy(self, target: Any, source: Any) -> Any:
        launch = self._device.copy(target, source)
        self._copies[id(launch)] = (launch, self._device.download(source).nbytes)
        return launch

    def run(self, launches: Iterable[Any]) -> None:
        ready = list(launches)
        self.launched += [(launch.kernel, launch.grid) for launch in ready]
        copies = [self._copies[id(launch)][1] for launch in ready if launch.kernel == COPY]
        self._copied += sum(copies)
        self._kernels += len(ready) - len(copies)
        self._device.run(ready)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def numbered(self) -> np.ndarray:
        """int32 [launches][2]: which kernel, in the order of first use, and its grid."""
        kernels = list(dict.fromkeys(kernel for kernel, _grid in self.launched))
        return np.array([(kernels.index(kernel), grid) for kernel, grid in self.launched], np.int32).reshape(-1, 2)


def set_gate(word: str | None) -> None:
    """What an engine that opens from now on finds in the environment; None: nothing."""
    os.environ.pop(GATE, None)
    if word is not None:
        os.environ[GATE] = word


def open_watched(opened: artifact.Artifact, config: Any, weights: Any, **options: Any) -> tuple[Any, Watched]:
    """An engine of the artifact, and what its device notes."""
    module = opened.engine.forward  # where open() finds the device, since base
    noted: list[Watched] = []

    def watched(*args: Any, **more: Any) -> Watched:
        noted.append(Watched(open_device(*args, **more)))
        return noted[0]

    open_device, module.open_device = module.open_device, watched
    try:
        engine = opened.entry("open")(opened.binary, config, weights, **options)
    finally:
        module.open_device = open_device
    return engine, noted[0]
