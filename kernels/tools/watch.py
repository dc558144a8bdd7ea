"""What an engine asks of its device, noted on the way: allocations and launches, of any artifact, whatever its block.

The gate of rows is set here as well: an engine reads it when it opens.
"""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from kernels import artifact
from kernels.engine.limits import GATE


class Watched:
    """A device that notes what is asked of it."""

    def __init__(self, device: Any):
        self._device = device
        self.allocated: list[int] = []  # bytes, in order
        self.launched: list[tuple[str, int]] = []  # kernel or copy, grid

    def zeros(self, shape: tuple[int, ...], dtype: type = np.float32) -> Any:
        self.allocated.append(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
        return self._device.zeros(shape, dtype)

    def upload(self, array: np.ndarray) -> Any:
        self.allocated.append(array.nbytes)
        return self._device.upload(array)

    def run(self, launches: Iterable[Any]) -> None:
        ready = list(launches)
        self.launched += [(launch.kernel, launch.grid) for launch in ready]
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
