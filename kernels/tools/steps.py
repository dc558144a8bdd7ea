"""The figures of a model on a device: steps of 1 to 8 rows, the floor below them, mark and rollback, kernels, memory.

A time is that of the verb itself by the device's clock: forward, forward_rows, mark or rollback, with the tokens that
go to the device, all launches or the graph that replays them, and the cursor. Before each the cursor is set to the
context that the figure's name says; keys and values there are those of the tokens that were seen, repeated, and the
recurrent state is what the steps before have left. So a number stands for a context of that length, and for no text.

The floor is the time in which a copy of this run would move what every step reads whatever its rows are: the q4
matrices once, and the recurrent state, read and written. Keys and values are not in it. Memory is what an engine with
rows and a mark allocates on the device; what the driver keeps for itself, its graphs included, is not in that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any

from kernels import artifact
from kernels.engine.forward import needed_bytes
from kernels.engine.r_table import ROWS_MAX
from kernels.engine.state import planes, slab
from kernels.engine.weights import EMBEDDING, Q4, stored_bytes, tensors

from .bandwidth import NS_A_SECOND, median, samples
from .outputs import Figure
from .watch import set_gate

SEED = 1
FIRST, SPREAD = 16, 997  # tokens that are seen before anything is timed, and how far they lie apart
STEPS, STATES, ROUNDS = 5, 21, 5  # samples of a step, of a mark, of a kernel
BEHIND = 2  # steps that are queued before a kernel's launches are timed
PPM = 1_000_000
Engines = Mapping[str, Any]  # by what the name of a figure calls it


def model_figures(
    opened: artifact.Artifact, config: Any, name: str, contexts: Sequence[int], copies: Figure
) -> Iterator[Figure]:
    """All figures of a model that need no other library. Sets the gate."""
    set_gate(str(ROWS_MAX))
    capacity = max(contexts) + ROWS_MAX
    floor = floor_bytes(config)
    floor_ns = sum(floor.values()) * NS_A_SECOND // median(copies.values)
    topic = f"floor of {name}"
    yield from (Figure(f"{topic}: {what}, size", "bytes", (size,)) for what, size in floor.items())
    yield Figure(f"{topic}: both at the rate of the copy, time", "ns", (floor_ns,))
    taken = taken_bytes(config, capacity)
    yield Figure(f"memory: {ROWS_MAX} rows and a mark at capacity {capacity}, allocated", "bytes", (taken,))
    engines = _engines(opened, config, capacity)
    for context in contexts:
        yield from _steps(engines, config, context, floor_ns)
    yield from _marks(engines, contexts[0])
    yield from _kernels(engines["streamed"], contexts[0])
    for engine in engines.values():
        engine.close()


def floor_bytes(config: Any) -> dict[str, int]:
    """What a step of any number of rows reads and writes at the least; of the embedding it reads no more than rows."""
    read = [t for t in tensors(config) if t.form == Q4 and (config.tied or t.name != EMBEDDING)]
    state = sum(plane.bytes for plane in planes(config, 1) if not plane.rows)
    return {"q4 matrices": sum(sum(stored_bytes(t, Q4)) for t in read), "state read and written": 2 * state}


def taken_bytes(config: Any, capacity: int) -> int:
    """All that an engine allocates: the model, its slab of rows, and the copies of a mark."""
    kept = sum(plane.bytes for plane in planes(config, capacity) if not plane.rows)
    return needed_bytes(config, capacity, Q4) + sum(p.bytes for p in slab(config, capacity, ROWS_MAX)) + kept


def _engines(opened: artifact.Artifact, config: Any, capacity: int) -> dict[str, Any]:
    """One that streams, and one that replays graphs where artifact and device have them; each has seen some tokens."""
    open_engine = opened.entry("open")
    forms: dict[str, dict[str, bool]] = {"streamed": {}}
    if "graphs" in signature(open_engine).parameters and _captures(opened):
        forms["graph"] = {"graphs": True}
    weights, engines = opened.entry("Synthetic")(SEED), {}
    for form, more in forms.items():
        engines[form] = open_engine(opened.binary, config, weights, capacity=capacity, **more)
        for token in _tokens(config, FIRST):
            engines[form].forward(token)
    return engines


def _captures(opened: artifact.Artifact) -> bool:
    device = opened.entry("open_device")(opened.binary)
    found = bool(device.graphs)
    device.close()
    return found


def _tokens(config: Any, count: int) -> tuple[int, ...]:
    return tuple(SPREAD * (i + 1) % config.vocab for i in range(count))


def _steps(engines: Engines, config: Any, context: int, floor_ns: int) -> Iterator[Figure]:
    """Steps of every number of rows at one context, in turns, and how much of each the floor is."""
    for m in range(1, ROWS_MAX + 1):
        tokens = _tokens(config, m)
        verbs = {
            form: partial(engine.forward, tokens[0]) if m == 1 else partial(engine.forward_rows, tokens)
            for form, engine in engines.items()
        }
        turns = {form: partial(_at, engine, context, verbs[form]) for form, engine in engines.items()}
        for form, times in samples(turns, STEPS).items():
            yield Figure(f"step: M {m}, {form} at {context}", "ns", times)
            yield Figure(f"floor in step: M {m}, {form} at {context}", "ppm", tuple(floor_ns * PPM // t for t in times))


def _at(engine: Any, context: int, verb: Callable[[], object]) -> int:
    """The time of a verb at a context."""
    engine.seek(context)
    taken: int = engine.timed(verb)
    return taken


def _marks(engines: Engines, context: int) -> Iterator[Figure]:
    """A mark, the rollback to it, and one right after the other."""
    for form, engine in engines.items():

        def both(engine: Any = engine) -> None:
            engine.mark()
            engine.rollback()

        engine.seek(context)
        verbs = {"mark": engine.mark, "rollback": engine.rollback, "mark and rollback": both}
        turns = {name: partial(engine.timed, verb) for name, verb in verbs.items()}
        for name, times in samples(turns, STATES).items():
            yield Figure(f"state: {name}, {form}", "ns", times)


def _kernels(engine: Any, context: int) -> Iterator[Figure]:
    """By kernel the time of all its launches in a step of one row, and its share of the sum of these times.

    They are queued behind whole steps, so that the host's pace does not show; alone they take somewhat longer than in
    their step.
    """
    engine.seek(context)
    kernels = engine.step_kernels()
    turns = {kernel: partial(engine.step_ns, kernel, behind=BEHIND) for kernel in kernels}
    found = samples(turns, ROUNDS)
    sums = [sum(times) for times in zip(*found.values(), strict=True)]
    for kernel, times in found.items():
        shares = tuple(time * PPM // whole for time, whole in zip(times, sums, strict=True))
        yield Figure(f"kernel: {kernel} x {kernels[kernel]}, time", "ns", times)
        yield Figure(f"kernel: {kernel} x {kernels[kernel]}, share", "ppm", shares)
