"""What an engine may do: the gate of rows, the memory limit, and the predicates of a step.

All that can be refused is refused here, before the first byte of state changes; a step asks the same predicates.
"""

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from .device import THREADS_A_BLOCK
from .errors import KernelError, Refused
from .r_table import ROWS_MAX
from .step import Model
from .weights import tensors

GATE = "KESTREL_Q35_MM"  # the most rows of a forward; read once, when an engine opens
CLOSED = 1
T = TypeVar("T")


def row_limit() -> int:
    """The most rows that the gate lets through; unset, or 1: it is closed. Raises KernelError for any other word."""
    limits = {None: CLOSED, "1": CLOSED} | {str(rows): rows for rows in range(2, ROWS_MAX + 1)}
    word = os.environ.get(GATE)
    if word not in limits:
        raise KernelError(f"{GATE}={word!r}", "is no row limit", f"use 2..{ROWS_MAX}, or leave it unset")
    return limits[word]


class Memory:
    """Bytes that an engine has taken of those that it may."""

    def __init__(self, limit_bytes: int | None):
        self._limit, self._taken = limit_bytes, 0

    def take(self, what: str, size: int, make: Callable[[], T]) -> T:
        """What `make` allocates, which is so many bytes. Raises Refused before it does, where they are too many."""
        if self._limit is not None and self._taken + size > self._limit:
            beside = f" beside {self._taken}" if self._taken else ""
            problem = f"{what} needs {size} bytes{beside}, the limit is {self._limit}"
            raise Refused("memory", problem, "raise the limit or lower the capacity", reason="limit-bytes")
        made = make()
        self._taken += size
        return made


def check_tokens(model: Model, tokens: Sequence[int], cursor: int, *, where: str) -> None:
    """Raises Refused unless these tokens can follow so many."""
    for token in tokens:
        if type(token) is not int or not 0 <= token < model.config.vocab:
            todo = f"use a whole number in 0..{model.config.vocab - 1}"
            raise Refused(where, f"token {token!r} is out of range", todo, reason="token-range")
    if cursor + len(tokens) > model.capacity:
        what = f"{cursor} of {model.capacity} tokens are seen, and {len(tokens)} more do not fit"
        raise Refused(where, what, "reset, or open with a larger capacity", reason="context-full")


def check_gate(where: str, limit: int) -> None:
    """Raises Refused where the gate is closed."""
    if limit == CLOSED:
        raise Refused(where, "the gate is closed", f"open with {GATE}=2..{ROWS_MAX}", reason="gate-closed")


def check_rows(model: Model, tokens: Sequence[int], cursor: int, limit: int) -> None:
    """Raises Refused unless these tokens can follow so many as the rows of one forward."""
    where, rows = "forward_rows", len(tokens)
    check_gate(where, limit)
    if not 2 <= rows <= limit:
        raise Refused(where, f"{rows} rows", f"use 2..{limit}, or open with another {GATE}", reason="rows-range")
    check_tokens(model, tokens, cursor, where=where)
    for tensor in tensors(model.config):
        model.packed(tensor, rows)
    needed = cursor + rows + THREADS_A_BLOCK
    if model.score_stride < needed:
        what = f"attention needs {needed} floats of scratch a head and row"
        raise Refused(where, what, "this is a fault of the engine", reason="scratch")


def row_room(model: Model, cursor: int, limit: int) -> int:
    """How many rows, or tokens, may follow so many at once. Raises Refused for none, or where the gate is closed."""
    check_gate("spec_verify", limit)
    check_tokens(model, (0,), cursor, where="spec_verify")
    return min(limit, model.capacity - cursor)
