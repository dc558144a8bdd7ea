"""M rows in one forward: their slab, which is allocated whole at the first, and a step for each M.

Nothing here touches a buffer of the one-row step but the state, the cursor and the weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .errors import Refused
from .limits import Memory, check_rows, row_room
from .placed import cut, dtype_of
from .state import POISON, slab
from .step import Model, Step


class Rows:
    """Forwards of 2..limit rows."""

    def __init__(self, model: Model, limit: int, memory: Memory):
        self._model, self._limit, self._memory = model, limit, memory
        self._regions: Mapping[str, Any] = {}
        self._steps: dict[int, Step] = {}
        self._last = 0  # rows of the last forward

    def check(self, tokens: Sequence[int], cursor: int) -> None:
        """Raises Refused unless these tokens can be the rows behind so many others."""
        check_rows(self._model, tokens, cursor, self._limit)

    def room(self, cursor: int) -> int:
        """How many rows may follow. Raises Refused for none, or where the gate is closed."""
        return row_room(self._model, cursor, self._limit)

    def run(self, tokens: Sequence[int], cursor: int) -> None:
        """Runs the tokens behind `cursor` others. Raises Refused, with nothing changed."""
        self.check(tokens, cursor)
        step = self._step(len(tokens))
        device, self._last = self._model.device, len(tokens)
        device.write(self._rows("token"), np.array(tokens, dtype=np.int32))
        device.run(step.program)

    def hidden(self) -> np.ndarray:
        """f32 [M][hidden] of the last rows. Raises Refused where there are none."""
        return self._download("hidden")

    def logits(self) -> np.ndarray:
        """f32 [M][vocab] of the last rows. Raises Refused where there are none."""
        return self._download("logits")

    def argmax(self) -> list[int]:
        """The token with the largest logit of each of the last rows. Raises Refused where there are none."""
        if self._last:
            self._model.device.run(self._steps[self._last].choice)
        found: list[int] = self._download("greedy").tolist()
        return found

    def regions(self) -> dict[str, np.ndarray]:
        """The slab by region, [limit][width]; empty before the first rows."""
        return {name: self._model.device.download(region) for name, region in self._regions.items()}

    def poison(self) -> None:
        """Makes the slab what it was when it was allocated."""
        for plane in slab(self._model.config, self._model.capacity, self._limit) if self._regions else ():
            region, dtype = self._regions[plane.name], dtype_of(plane.name)
            self._model.device.write(region, np.full(plane.shape, POISON).view(dtype))
        self._last = 0

    def _step(self, rows: int) -> Step:
        """Whole before any of it runs: what a kernel or weight lacks is told now."""
        if not self._regions:
            planes = tuple(slab(self._model.config, self._model.capacity, self._limit))
            size = sum(plane.bytes for plane in planes)
            self._regions = self._memory.take("the slab of rows", size, lambda: self._allocated(planes))
        if rows not in self._steps:
            self._steps[rows] = Step(self._model, self._regions, rows)
        return self._steps[rows]

    def _allocated(self, planes: Sequence[Any]) -> dict[str, Any]:
        """One buffer, cut into the regions."""
        return cut(self._model.device.upload(np.full(sum(plane.bytes for plane in planes) // 4, POISON)), planes)

    def _rows(self, name: str) -> Any:
        """A region without the rows that the last forward did not have."""
        _limit, *width = self._regions[name].shape
        return self._regions[name].part(0, (self._last, *width), dtype_of(name))

    def _download(self, name: str) -> np.ndarray:
        if not self._last:
            raise Refused(f"{name}_rows", "no rows have run", "call forward_rows first", reason="no-rows")
        found: np.ndarray = self._model.device.download(self._rows(name))
        return found
