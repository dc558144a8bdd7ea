"""Cases of refusals.py for rows: the gate, how many rows, what they need. Each works on the tiny shape.

The weight that a case lacks is there in f32, so that single tokens run, and a q4 model's rows are refused: in the last
layer, since what is decided there must be decided before the first layer has written anything.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact
from kernels.device.gemv import dequantise
from kernels.engine.config import ATTN

from .outputs import write_dump
from .watch import open_watched, set_gate

Run = Callable[[artifact.Artifact, Path], None]

SHAPE, SEED, CAPACITY = "tiny", 1, 16
WARM_UP = (17, 3, 250)  # tokens that give every plane a value
ROWS = (5, 6, 7, 8, 9, 10, 11, 12, 13)
BEYOND = 1 << 20  # no token
LAST = 3  # the last layer
GARBAGE = {"empty": "", "0": "0", "9": "9", "word": "two", "fraction": "2.0", "space": " 2"}  # no limits of rows
NEEDED = {  # q4 matrices of the last layer, by its kind
    "attn": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    "gdn": ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"),
}


class Lacking:
    """Weights of which one matrix is not packed."""

    def __init__(self, weights: Any, name: str):
        self._weights, self._name = weights, name
        self.form, self.origin = weights.form, weights.origin

    def read(self, tensor: Any) -> Any:
        value = self._weights.read(tensor)
        if tensor.name != self._name:
            return value
        return dequantise(value.words, value.scales, value.cols).astype(np.float32)


def rows(
    count: int, *, gate: str | None = "8", layers: str = ATTN, capacity: int = CAPACITY, lacks: str = "", last: int = 13
) -> Run:
    """A case: after the warm-up so many rows, of which the last token is `last`."""

    def case(opened: artifact.Artifact, out: Path) -> None:
        set_gate(gate)
        config, weights = opened.entry("shape")(SHAPE, layers=layers), opened.entry("Synthetic")(SEED)
        source = Lacking(weights, f"layers.{LAST}.{lacks}.weight") if lacks else weights
        engine = opened.entry("open")(opened.binary, config, source, capacity=capacity)
        refused(engine, (*ROWS[: count - 1], last) if count else (), out)

    return case


def refused(engine: Any, tokens: tuple[int, ...], out: Path) -> None:
    """Runs the rows behind the warm-up; leaves all planes on either side of that."""
    for token in WARM_UP:
        engine.forward(token)
    before = engine.planes()
    try:
        engine.forward_rows(tokens)
    finally:
        write_dump(out, {"before.bin": before, "after.bin": engine.planes()})


def _slab_beyond_limit(opened: artifact.Artifact, out: Path) -> None:
    """The limit is what the model itself takes."""
    set_gate("8")
    config, weights = opened.entry("shape")(SHAPE, layers=ATTN), opened.entry("Synthetic")(SEED)
    _engine, device = open_watched(opened, config, weights, capacity=CAPACITY)
    limit = sum(device.allocated)
    refused(opened.entry("open")(opened.binary, config, weights, capacity=CAPACITY, limit_bytes=limit), ROWS[:2], out)


def _opened(gate: str) -> Run:
    """A case: opening under a word that is no limit."""

    def case(opened: artifact.Artifact, out: Path) -> None:
        set_gate(gate)
        config, weights = opened.entry("shape")(SHAPE, layers=ATTN), opened.entry("Synthetic")(SEED)
        opened.entry("open")(opened.binary, config, weights, capacity=CAPACITY)

    return case


# case: (exit code, a word of the line that is printed, what to do)
CASES: dict[str, tuple[int, str, Run]] = {
    "rows-gate-unset": (5, "gate-closed", rows(2, gate=None)),
    "rows-gate-1": (5, "gate-closed", rows(2, gate="1")),
    "rows-0": (5, "rows-range", rows(0)),
    "rows-1": (5, "rows-range", rows(1)),
    "rows-9": (5, "rows-range", rows(9)),
    "rows-above-mm": (5, "rows-range", rows(5, gate="4")),
    "rows-token": (5, "token-range", rows(4, last=BEYOND)),
    "rows-context-full": (5, "context-full", rows(3, capacity=len(WARM_UP) + 2)),
    "rows-slab-limit": (5, "limit-bytes", _slab_beyond_limit),
    **{
        f"rows-lacks-{name}": (5, "q4-missing", rows(2, layers=kind, lacks=name))
        for kind, names in NEEDED.items()
        for name in names
    },
    **{f"gate-{name}": (2, "row limit", _opened(word)) for name, word in GARBAGE.items()},
}
