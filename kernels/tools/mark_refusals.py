"""The refusals of mark, rollback and spec_verify, drawn as words: the last is refused, and those before it are done."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels import artifact

from .forms import ROWS_MAX
from .models import CHECKPOINT, Model
from .outputs import write_dump
from .rb import snapshot_bytes

CLOSED = 1  # rows: no gate is open
CAPACITY, TOKEN = 16, 17
BEYOND = 1 << 20  # no token
MODEL = Model(CHECKPOINT, None)
Case = Callable[[artifact.Artifact, Path], None]


def _refused(words: str, *, rows: int = ROWS_MAX, capacity: int = CAPACITY) -> Case:
    def case(opened: artifact.Artifact, out: Path) -> None:
        engine, _device, _weights = MODEL.open(opened, capacity=capacity, rows=rows)
        _last_of(engine, words, out)

    return case


def _beyond_limit(opened: artifact.Artifact, out: Path) -> None:
    """One byte less than model and snapshot need."""
    _engine, device, _weights = MODEL.open(opened, capacity=CAPACITY, rows=ROWS_MAX)
    limit = device.moved.allocated + snapshot_bytes(MODEL.config(opened)) - 1
    engine, _device, _weights = MODEL.open(opened, capacity=CAPACITY, rows=ROWS_MAX, limit_bytes=limit)
    _last_of(engine, "one mark", out)


def _last_of(engine: Any, words: str, out: Path) -> None:
    """Leaves the state on either side of the last word."""
    *done, last = words.split()
    for word in done:
        VERBS[word](engine)
    before = engine.planes()
    try:
        VERBS[last](engine)
    finally:
        write_dump(out, {"before.bin": before, "after.bin": engine.planes()})


VERBS: dict[str, Callable[[Any], object]] = {
    "one": lambda engine: engine.forward(TOKEN),
    "mark": lambda engine: engine.mark(),
    "rollback": lambda engine: engine.rollback(),
    "reset": lambda engine: engine.reset(),
    "draft0": lambda engine: engine.spec_verify(lambda room: ()),
    "draft1": lambda engine: engine.spec_verify(lambda room: (TOKEN,)),
    "draft2": lambda engine: engine.spec_verify(lambda room: (TOKEN, TOKEN)),
    "draft9": lambda engine: engine.spec_verify(lambda room: (TOKEN,) * (ROWS_MAX + 1)),
    "draft-beyond": lambda engine: engine.spec_verify(lambda room: (TOKEN, BEYOND)),
}

# case: (exit code, a word of the line that is printed, what to do)
CASES: dict[str, tuple[int, str, Case]] = {
    "mark-gate": (5, "gate-closed", _refused("one mark", rows=CLOSED)),
    "rollback-gate": (5, "gate-closed", _refused("one rollback", rows=CLOSED)),
    "rollback-without-mark": (5, "mark-missing", _refused("one rollback")),
    "rollback-twice": (5, "mark-used", _refused("one mark one rollback one rollback")),
    "rollback-after-reset": (5, "mark-reset", _refused("one mark one reset one rollback")),
    "snapshot-limit": (5, "limit-bytes", _beyond_limit),
    "spec-gate": (5, "gate-closed", _refused("one draft1", rows=CLOSED)),
    "spec-context-full": (5, "context-full", _refused("one one draft0", capacity=2)),
    "spec-beyond-context": (5, "context-full", _refused("one draft2", capacity=2)),
    "spec-rows-0": (5, "rows-range", _refused("one draft0")),
    "spec-rows-9": (5, "rows-range", _refused("one draft9")),
    "spec-token": (5, "token-range", _refused("one draft-beyond")),
}
