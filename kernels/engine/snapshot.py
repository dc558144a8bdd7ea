"""One mark of the state, and the way back to it: what a step overwrites in place is one buffer, copied on the device.

A plane of rows is not copied: the cursor is its length, so a row beyond it is never read, and the next append writes
over it. No kernel runs, and no byte passes the host but the cursor. A mark is good for one rollback; its copies stay
allocated for the next.
"""

from typing import Any

from .device import Launch
from .errors import Refused
from .limits import Memory, check_gate
from .step import Model

# why there is no mark: reason, and what the caller is told
Absent = tuple[str, str]
NEVER: Absent = ("mark-missing", "nothing was marked")
USED: Absent = ("mark-used", "the mark has been used, and is good for one rollback")
RESET: Absent = ("mark-reset", "the mark went with the reset")


class Snapshot:
    """Whether there is a mark of the buffer `live`, at which cursor, and the copies that it is made of."""

    def __init__(self, model: Model, live: Any, size: int, limit: int, memory: Memory):
        self._model, self._limit, self._memory = model, limit, memory
        self._live, self._bytes = live, size
        self._save, self._restore = tuple[Launch, ...](), tuple[Launch, ...]()
        self._allocated = False
        self._tokens: int | None = None
        self._absent = NEVER

    def mark(self, tokens: int) -> None:
        """The state at this cursor is kept. Raises Refused: the gate, or the bytes of the first mark."""
        check_gate("mark", self._limit)
        if not self._allocated:
            self._save, self._restore = self._memory.take("the snapshot", self._bytes, self._copies)
            self._allocated = True
        self._model.device.run(self._save)
        self._tokens = tokens

    def rollback(self) -> int:
        """The planes are what they were at the mark; returns its cursor. Raises Refused without a mark."""
        check_gate("rollback", self._limit)
        if self._tokens is None:
            reason, what = self._absent
            raise Refused("rollback", what, "mark first", reason=reason)
        self._model.device.run(self._restore)
        tokens = self._tokens
        self.forget(USED)
        return tokens

    def forget(self, why: Absent) -> None:
        """There is no mark from now on, for this reason; where there was none, the older one stays."""
        if self._tokens is not None:
            self._tokens, self._absent = None, why

    def _copies(self) -> tuple[tuple[Launch, ...], tuple[Launch, ...]]:
        """Allocates what a mark keeps; the copies to it and back."""
        device, live = self._model.device, self._live
        kept = device.zeros(live.shape)
        return (device.copy(kept, live),), (device.copy(live, kept),)
