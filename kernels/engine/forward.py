"""An engine: a model placed on a device, its state, and the verbs that move it.

Anything that can be refused is refused before the first byte of state changes: limits.py.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import rope_table
from .config import Config
from .device import Device, Launch, open_device
from .errors import KernelError
from .limits import Memory, check_tokens, row_limit
from .placed import cut, placed
from .rows import Rows
from .snapshot import RESET, USED, Snapshot
from .spec import Draft, right_rows
from .state import CURSOR, POISON, planes, scratch
from .step import Model, Step
from .weights import FORMS, Weights, stored_bytes, tensors


def open_engine(
    binary: Path,
    config: Config,
    weights: Weights,
    *,
    capacity: int,
    threads: int = 1,
    limit_bytes: int | None = None,
    split_ns: int | None = None,
    graphs: bool = False,
) -> "Engine":
    """An engine with an empty state for up to `capacity` tokens, and as many rows a forward as the gate lets through.

    With `graphs` a step is captured once for each number of rows, and replayed.
    Raises KernelError, or Refused before it allocates.
    """
    limit_rows = row_limit()
    if type(capacity) is not int or not 1 <= capacity <= rope_table.POSITIONS_MAX:
        raise KernelError(f"capacity {capacity}", "out of range", f"use 1..{rope_table.POSITIONS_MAX}")
    if weights.form not in FORMS:
        raise KernelError(f"weights {weights.form}", "unknown form", f"use one of {', '.join(FORMS)}")
    sizes, memory = tuple(_sizes(config, capacity, weights.form)), Memory(limit_bytes)

    def placed_engine() -> Engine:
        device = open_device(binary, threads=threads, split_ns=split_ns, sizes=sizes, graphs=graphs)
        return Engine(device, config, weights, capacity, limit_rows, memory, graphs)

    return memory.take("the model", sum(sizes), placed_engine)


def needed_bytes(config: Config, capacity: int, form: str) -> int:
    """All that an engine allocates on its device."""
    return sum(_sizes(config, capacity, form))


def _sizes(config: Config, capacity: int, form: str) -> Iterator[int]:
    """The bytes of every buffer."""
    for tensor in tensors(config):
        yield from stored_bytes(tensor, form)
    yield from (plane.bytes for source in (planes, scratch) for plane in source(config, capacity))
    yield from (4 * capacity * (config.rotary // 2),) * 2  # cosines, sines
    yield from (4,) * 3  # token, cursor, greedy token


class Engine:
    """A model, its state and its step. One at a time may call it."""

    def __init__(
        self,
        device: Device[Any],
        config: Config,
        weights: Weights,
        capacity: int,
        limit_rows: int,
        memory: Memory,
        graphs: bool,
    ):
        self.config, self.capacity = config, capacity
        self._device = device
        held = {tensor.name: placed(device, weights, tensor) for tensor in tensors(config)}
        self._planes = {plane.name: plane for plane in planes(config, capacity)}
        fixed = [plane for plane in self._planes.values() if not plane.rows]  # what a step overwrites in place
        size = sum(plane.bytes for plane in fixed)
        self._overwritten = device.zeros((size // 4,))
        self._state = cut(self._overwritten, fixed)
        self._state |= {plane.name: device.zeros(plane.shape) for plane in self._planes.values() if plane.rows}
        # scratch starts as NaN, so that a kernel that reads what no kernel wrote is seen
        self._scratch = {p.name: device.upload(np.full(p.shape, np.nan, np.float32)) for p in scratch(config, capacity)}
        self._token, self._cursor, self._greedy = (device.zeros((1,), np.int32) for _ in range(3))
        angles = rope_table.table(config.rope_theta, config.rotary, capacity)
        cos, sin = (device.upload(table) for table in angles)
        named = {tensor.name: tensor for tensor in tensors(config)}
        self._model = Model(
            device, config, capacity, weights.form, named, held, self._state, self._cursor, cos, sin, graphs
        )
        self._tokens_seen = 0
        self._step = Step(self._model, {**self._scratch, "token": self._token, "greedy": self._greedy}, 1)
        self._rows = Rows(self._model, limit_rows, memory)
        self._snapshot = Snapshot(self._model, self._overwritten, size, limit_rows, memory)

    @property
    def cursor(self) -> int:
        """Tokens seen."""
        return self._tokens_seen

    def forward(self, token: int) -> None:
        """Runs one token at the next position. Raises Refused, with nothing changed."""
        check_tokens(self._model, (token,), self._tokens_seen, where="forward")
        self._device.write(self._token, np.array([token], dtype=np.int32))
        self._device.run(self._step.program)
        self._move_cursor(self._tokens_seen + 1)

    def forward_rows(self, tokens: Sequence[int]) -> None:
        """Runs M tokens at the next M positions in one forward. Raises Refused, with nothing changed."""
        self._rows.run(tokens, self._tokens_seen)
        self._move_cursor(self._tokens_seen + len(tokens))

    def mark(self) -> None:
        """Remembers the state for one rollback, in place of an earlier mark. Raises Refused, with nothing changed."""
        self._snapshot.mark(self._tokens_seen)

    def rollback(self) -> None:
        """The state is the marked one again, and the mark is used. Raises Refused, with nothing changed."""
        self._move_cursor(self._snapshot.rollback())

    def spec_verify(self, draft: Draft) -> list[int]:
        """Runs the rows of a draft, keeps those that the model would have chosen, and returns its choice after each.

        All but the last of what it returns are guesses that were right; the last is due next. The state is then that of
        the kept tokens one by one. Guesses replace an earlier mark. Raises Refused, with nothing changed.
        """
        tokens = list(draft(self._rows.room(self._tokens_seen)))
        if len(tokens) == 1:
            self.forward(tokens[0])
            return [self.argmax()]
        self._rows.check(tokens, self._tokens_seen)
        self.mark()
        self.forward_rows(tokens)
        chosen = self.argmax_rows()
        kept = right_rows(tokens, chosen)
        if kept == len(tokens):
            self._snapshot.forget(USED)
            return chosen
        self.rollback()
        if kept == 1:
            self.forward(tokens[0])
        else:
            self.forward_rows(tokens[:kept])
        return chosen[:kept]

    def hidden(self) -> np.ndarray:
        """f32 [hidden] of the last token, after the final norm."""
        return self._device.download(self._scratch["hidden"])

    def logits(self) -> np.ndarray:
        """f32 [vocab] of the last token."""
        return self._device.download(self._scratch["logits"])

    def argmax(self) -> int:
        """The token with the largest logit, the first on ties."""
        self._device.run(self._step.choice)
        return int(self._device.download(self._greedy)[0])

    def hidden_rows(self) -> np.ndarray:
        """f32 [M][hidden] of the last rows, after the final norm. Raises Refused where no rows have run."""
        return self._rows.hidden()

    def logits_rows(self) -> np.ndarray:
        """f32 [M][vocab] of the last rows. Raises Refused where no rows have run."""
        return self._rows.logits()

    def argmax_rows(self) -> list[int]:
        """For each of the last rows what argmax() is for a token. Raises Refused where no rows have run."""
        return self._rows.argmax()

    def planes(self) -> dict[str, np.ndarray]:
        """All state by name, in a fixed order: of keys and values the rows below the cursor; last, the cursor."""
        found = {}
        for name, plane in self._planes.items():
            whole = self._device.download(self._state[name])
            found[name] = whole[: self._tokens_seen] if plane.rows else whole
        found[CURSOR] = self._device.download(self._cursor)
        return found

    def reset(self) -> None:
        """Forgets every token, and the mark."""
        self._snapshot.forget(RESET)
        self._device.write(self._overwritten, np.zeros(self._overwritten.shape, dtype=np.float32))
        self._move_cursor(0)

    def weight(self, name: str) -> tuple[np.ndarray, ...]:
        """A tensor as the device holds it: words and scales, or its f32 values. Raises KernelError."""
        if name not in self._model.weights:
            raise KernelError(f"tensor {name}", "is not in this model", "name one of the table of weights.py")
        return tuple(self._device.download(buffer) for buffer in self._model.weights[name])

    def step_ns(self, kernel: str | None = None, *, behind: int = 0) -> int:
        """How long a step's launches take, or those of one kernel of it; `behind` whole steps are queued before.

        What a step leaves in memory is written and the cursor stays, so reset() before the next forward.
        """
        chosen = self._step.program
        if kernel is not None:
            chosen = [launch for launch in self._step.launches if launch.kernel == kernel]
        self._device.run(behind * self._step.launches)
        return self._device.timed(chosen)

    def timed(self, verb: Callable[[], object]) -> int:
        """How long one call of a verb of this engine takes, with all that it waits for: ns, by the device's clock."""
        return self._device.timed([Launch("verb", 0, verb)])

    def seek(self, tokens: int) -> None:
        """The cursor stands behind so many tokens; where none was seen, keys and values are those of the first ones.

        For tools that time: what a step takes depends on the cursor, not on values. reset() before the next text.
        Raises KernelError.
        """
        seen = self._tokens_seen
        if not (seen and 0 < tokens <= self.capacity):
            what = f"{tokens} tokens, with {seen} seen of {self.capacity}"
            raise KernelError("seek", what, "run a token first, and stay within the capacity")
        for name, plane in self._planes.items():
            for start in range(seen, tokens, seen) if plane.rows else ():
                piece, width = (min(seen, tokens - start), *plane.shape[1:]), plane.shape[1]
                target, source = (self._state[name].part(at * width, piece, np.float32) for at in (start, 0))
                self._device.run([self._device.copy(target, source)])
        self._move_cursor(tokens)

    def step_kernels(self) -> dict[str, int]:
        """The kernels of a step by name, and how often each is launched."""
        return dict(Counter(launch.kernel for launch in self._step.launches))

    def slab(self) -> dict[str, np.ndarray]:
        """The memory of rows by region, [MM][width]; empty before the first rows. For tools that look behind a row."""
        return self._rows.regions()

    def poison(self) -> None:
        """Fills with NaN what nobody may read: scratch, the slab, keys and values from the cursor on."""
        for buffer in self._scratch.values():
            self._device.write(buffer, np.full(buffer.shape, np.nan, np.float32))
        self._rows.poison()
        for name, plane in self._planes.items():
            if plane.rows and self._tokens_seen < self.capacity:
                stale = (self.capacity - self._tokens_seen, *plane.shape[1:])
                rest = self._state[name].part(self._tokens_seen * plane.shape[1], stale, np.float32)
                self._device.write(rest, np.full(stale, POISON).view(np.float32))

    def close(self) -> None:
        self._device.close()

    def _move_cursor(self, tokens: int) -> None:
        self._device.write(self._cursor, np.array([tokens], dtype=np.int32))
        self._tokens_seen = tokens
