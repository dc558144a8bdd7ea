"""What a model remembers: the named planes, and the scratch that a step needs and nobody may rely on.

A plane is everything that decides a later token beside the weights. A rows plane grows by one row a step; only the rows
below the cursor are state.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .config import GDN, Config

# What a slab starts as. A signalling NaN as a float: it spoils every result, and what computes with it leaves another.
POISON = np.uint32(0x7FA0DEAD)
INT_REGIONS = ("token", "greedy")  # int32 [MM] of a slab: what runs, and what each row chooses
CURSOR = "cursor"  # int32 [1]: tokens seen, which is the visible length before a step
SCRATCH_EXTRA = 256  # floats a head beyond the visible length that attention needs: one partial sum a chunk


@dataclass(frozen=True, slots=True)
class Plane:
    """One buffer; rows: its first axis is a position."""

    name: str
    shape: tuple[int, ...]
    rows: bool = False

    @property
    def bytes(self) -> int:
        total = 4
        for size in self.shape:
            total *= size
        return total


def planes(config: Config, capacity: int) -> Iterator[Plane]:
    """All state but the cursor, in the order in which it is dumped."""
    for i, kind in enumerate(config.kinds):
        if kind == GDN:
            yield Plane(f"layers.{i}.state", (config.value_heads, config.key_dim, config.value_dim))
            yield Plane(f"layers.{i}.history", (config.conv_kernel - 1, config.channels))
        else:
            yield Plane(f"layers.{i}.keys", (capacity, config.kv_width), rows=True)
            yield Plane(f"layers.{i}.values", (capacity, config.kv_width), rows=True)


def scratch(config: Config, capacity: int) -> Iterator[Plane]:
    """What a step writes before it reads; layers share it."""
    sizes = {
        "x": config.hidden, "normed": config.hidden, "mixed": config.hidden, "hidden": config.hidden,
        "u": config.channels, "y": config.channels, "z": config.value_width, "o": config.value_width,
        "a": config.value_heads, "b": config.value_heads, "decay": config.value_heads, "beta": config.value_heads,
        "gdn_q": config.key_width, "gdn_k": config.key_width, "gated": max(config.value_width, config.q_width),
        "qg": 2 * config.q_width, "q": config.q_width, "k_raw": config.kv_width, "k": config.kv_width,
        "v": config.kv_width, "scores": config.heads * scratch_stride(capacity),
        "gate": config.intermediate, "up": config.intermediate, "act": config.intermediate, "logits": config.vocab,
    }  # fmt: skip
    for name, size in sizes.items():
        yield Plane(name, (size,))


def slab(config: Config, capacity: int, rows: int) -> Iterator[Plane]:
    """The regions that rows in one forward use in place of scratch, each [rows][width], and the int32 ones."""
    for name in INT_REGIONS:
        yield Plane(name, (rows,))
    for plane in scratch(config, capacity):
        yield Plane(plane.name, (rows, *plane.shape))


def scratch_stride(capacity: int) -> int:
    """Floats a head that attention may use: the visible length at the last position, and one chunk's worth more."""
    return capacity + SCRATCH_EXTRA
