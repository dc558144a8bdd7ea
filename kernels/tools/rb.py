"""python -m kernels rb: M rows are tried and taken back, k of them run again, and nothing tells it from never trying.

For every M and every k in 0..M: mark, M rows of which k are right, rollback, the k right tokens one by one; then mark
again, and the same once more. In singles there is no mark and no rows, only the right tokens one by one. Leaves hidden
states, logits, and a digest of every plane after each try. --form both prints a line for each M, and ends with 0 only
if all is equal. --leave launches is launches.i32, in which the forms differ; --leave moved is moved.u32, the bytes and
launches of each mark and rollback, which --form expected works out from the sizes of the layers.
"""

import argparse
import shlex
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from kernels import artifact

from .forms import row_counts
from .models import Model, add_models, models, read, text
from .outputs import Input, digest, report, write_dump, write_inputs
from .watch import Moved, Watched

SINGLES, ROLLED, EXPECTED, BOTH = "singles", "rolled", "expected", "both"
ROUNDS = 2
OUTPUTS = ("h_out", "logits")  # left as they are; planes are left as digests
CURSOR_BYTES = 4  # all that a rollback writes
DIFFERING_MAX = 12  # states that are named
TITLES = ("model", "M", "tries", "planes", "bytes", "differing", "digest")
LINE = "{:<14} {:>2} {:>6} {:>7} {:>13} {:>10}  {}"


@dataclass(frozen=True, slots=True)
class Try:
    """M rows behind `at` tokens, k of them right."""

    rows: int
    right: int
    at: int

    @property
    def end(self) -> int:
        return self.at + self.right


@dataclass(slots=True)
class Seen:
    """What a run over a model showed, an entry for each try: states by name, and the bytes that they stand for."""

    states: dict[str, list[np.ndarray]] = field(default_factory=dict)
    sizes: dict[str, list[int]] = field(default_factory=dict)
    marks: list[Moved] = field(default_factory=list)
    rollbacks: list[Moved] = field(default_factory=list)
    launches: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.int32))

    def add(self, engine: Any) -> None:
        """The state as it is now."""
        for name, array in {"h_out": engine.hidden(), "logits": engine.logits(), **engine.planes()}.items():
            self.states.setdefault(name, []).append(array if name in OUTPUTS else digest(array))
            self.sizes.setdefault(name, []).append(array.nbytes)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels rb", description=__doc__, allow_abbrev=False)
    add_models(parser)
    parser.add_argument("--rows", required=True, type=row_counts, metavar="M", help="2..8, or 2,4,8")
    parser.add_argument("--form", required=True, choices=(*RUN, BOTH))
    parser.add_argument("--leave", default="states", choices=tuple(FILES))
    options = parser.parse_args(argv)
    if (options.out is None) != (options.form == BOTH):
        parser.error(f"--out is needed, but for --form {BOTH}, which leaves nothing")
    if min(options.rows) < 2:
        parser.error("--rows: one row is a token alone; give numbers in 2..8")
    path = options.artifact or artifact.tree()
    opened, tries = artifact.load(path), planned(options.rows)
    if options.form == BOTH:
        print(LINE.format(*TITLES))
        found = [show(opened, model, tries) for model in models(options)]  # all of them
        return int(any(found))
    inputs, files = read(path), dict[str, dict[str, np.ndarray]]()
    for model in models(options):
        seen, made = RUN[options.form](opened, model, tries)
        inputs += made
        for file, arrays in FILES[options.leave](seen):
            files.setdefault(file, {}).update({f"{model.name} {name}": array for name, array in arrays.items()})
    digests = write_dump(options.out, files)
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "rb", *argv]), inputs, digests)
    return 0


def planned(rows: tuple[int, ...]) -> tuple[Try, ...]:
    """Every M with every k, in each round, one behind the other."""
    sizes = [(m, k) for m in rows for k in range(m + 1) for _round in range(ROUNDS)]
    starts = accumulate((k for _m, k in sizes), initial=1)  # one token is there before the first
    return tuple(Try(m, k, at) for (m, k), at in zip(sizes, starts, strict=False))


def singles(opened: artifact.Artifact, model: Model, tries: tuple[Try, ...]) -> tuple[Seen, list[Input]]:
    """The right tokens, one by one."""

    def act(engine: Any, seen: Seen, tokens: tuple[int, ...], this: Try, device: Any) -> None:
        for token in tokens[this.at : this.end]:
            engine.forward(token)

    return _run(opened, model, tries, act, rows=1)


def rolled(opened: artifact.Artifact, model: Model, tries: tuple[Try, ...]) -> tuple[Seen, list[Input]]:
    """Rows that are taken back, and the right tokens of them again."""

    def act(engine: Any, seen: Seen, tokens: tuple[int, ...], this: Try, device: Any) -> None:
        right = tokens[this.at : this.end]
        wrong = [(token + 1) % engine.config.vocab for token in tokens[this.end : this.at + this.rows]]
        seen.marks.append(_moved_by(engine.mark, device))
        engine.forward_rows([*right, *wrong])
        seen.rollbacks.append(_moved_by(engine.rollback, device))
        for token in right:
            engine.forward(token)

    return _run(opened, model, tries, act, rows=max(this.rows for this in tries))


def _moved_by(verb: Callable[[], None], device: Watched) -> Moved:
    before = device.moved
    verb()
    return device.moved.since(before)


def expected(opened: artifact.Artifact, model: Model, tries: tuple[Try, ...]) -> tuple[Seen, list[Input]]:
    """What a mark and a rollback move: the snapshot, and no row of keys or values."""
    size = snapshot_bytes(model.config(opened))
    marks = [Moved(copied=size, allocated=0 if number else size) for number in range(len(tries))]
    return Seen(marks=marks, rollbacks=[Moved(copied=size, written=CURSOR_BYTES)] * len(tries)), []


def snapshot_bytes(config: Any) -> int:
    """S and the history of every GDN layer, f32."""
    state = config.value_heads * config.key_dim * config.value_dim
    history = (config.conv_kernel - 1) * (2 * config.key_heads * config.key_dim + config.value_heads * config.value_dim)
    return int(4 * (state + history) * config.kinds.count("gdn"))


RUN = {SINGLES: singles, ROLLED: rolled, EXPECTED: expected}


def _run(
    opened: artifact.Artifact, model: Model, tries: tuple[Try, ...], act: Callable[..., None], *, rows: int
) -> tuple[Seen, list[Input]]:
    """One engine through all tries; `rows` is its gate, 1 a closed one."""
    seen = Seen()
    room = tries[0].at + sum(this.rows + this.right for this in tries)  # so that what never goes back has room too
    engine, device, weights = model.open(opened, capacity=room, rows=rows)
    tokens = text(engine.config.vocab, room)
    for token in tokens[: tries[0].at]:
        engine.forward(token)
    for this in tries:
        act(engine, seen, tokens, this, device)
        seen.add(engine)
    seen.launches = device.numbered()
    engine.close()
    return seen, [weights]


def _states(seen: Seen) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    for name, arrays in seen.states.items():
        yield f"{name}.f32" if name in OUTPUTS else "planes.u8", {name: np.stack(arrays)}


def _launches(seen: Seen) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    yield "launches.i32", {"launches": seen.launches}


def _moved(seen: Seen) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """u32 [tries][5] each, in the order of Moved's fields."""
    for name, rows in (("mark", seen.marks), ("rollback", seen.rollbacks)):
        yield "moved.u32", {name: np.array([astuple(row) for row in rows], np.uint32)}


FILES = {"states": _states, "launches": _launches, "moved": _moved}


def show(opened: artifact.Artifact, model: Model, tries: tuple[Try, ...]) -> bool:
    """Prints a line for each M, and one for each state that differs; returns whether any does."""
    one, other = (RUN[form](opened, model, tries)[0] for form in (SINGLES, ROLLED))
    differing = []
    for rows in sorted({this.rows for this in tries}):
        places = [place for place, this in enumerate(tries) if this.rows == rows]
        cells = [(name, place) for name in one.states for place in places]
        bad = [cell for cell in cells if not _same(one, other, *cell)]
        size = sum(one.sizes[name][place] for name, place in cells)
        whole = digest(np.concatenate([one.states[name][place].view(np.uint8) for name, place in cells])).tobytes()
        planes = len(one.states) - len(OUTPUTS)
        print(LINE.format(model.name, rows, len(places), planes, f"{size:,}", len(bad), whole.hex()))
        differing += bad
    for name, place in differing[:DIFFERING_MAX]:
        this = tries[place]
        print(f"  {model.name} M={this.rows} k={this.right} at {this.at}, round {place % ROUNDS + 1}: {name} differs")
    if len(differing) > DIFFERING_MAX:
        print(f"  and {len(differing) - DIFFERING_MAX} more")
    return bool(differing)


def _same(one: Seen, other: Seen, name: str, place: int) -> bool:
    return one.states[name][place].tobytes() == other.states[name][place].tobytes()
