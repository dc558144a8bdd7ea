"""python -m kernels schedules: rows, marks and rollbacks in an order drawn from a seed, against tokens one by one.

A schedule is words: one, rowsM, mark, rollbackK (back to the mark, and the first K tokens since it again, one by one).
Tokens that a later rollback does not keep are wrong ones, so that what is taken back never comes again. In serial each
state is reached from nothing by the tokens that led to it. Leaves a digest of every plane after each word; --leave
launches is launches.i32, in which the forms differ.
"""

import argparse
import random
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels import artifact
from kernels.engine.errors import KernelError

from .forms import ROWS_MAX
from .models import Model, add_models, models, read, text
from .outputs import Input, digest, report, write_dump, write_inputs

SERIAL, SCHEDULED = "serial", "scheduled"
PLANES, LAUNCHES = "planes", "launches"
FILES = {PLANES: "planes.u8", LAUNCHES: "launches.i32"}
WORDS = 24  # of a schedule
SEEDS_MAX = 1 << 10
VERBS = ("one", "rows", "rows", "mark", "mark", "rollback", "rollback", "rollback")
_WORD = re.compile(r"(one|mark)|(rows|rollback)([0-9])")


@dataclass(frozen=True, slots=True)
class Step:
    """One word: its tokens, run at once or, after a rollback, one by one; and all tokens of the state behind it."""

    verb: str
    tokens: tuple[int, ...]
    state: tuple[int, ...]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels schedules", description=__doc__, allow_abbrev=False)
    add_models(parser)
    parser.add_argument("--seeds", required=True, type=_seeds, metavar="N", help="so many schedules")
    parser.add_argument("--form", required=True, choices=tuple(RUN))
    parser.add_argument("--leave", default=PLANES, choices=(PLANES, LAUNCHES))
    options = parser.parse_args(argv)
    if options.out is None:
        parser.error("--out is needed")
    path = options.artifact or artifact.tree()
    opened, schedules = artifact.load(path), [drawn(seed) for seed in range(options.seeds)]
    inputs, arrays = read(path), dict[str, np.ndarray]()
    for model in models(options):
        seen, made = run(opened, model, schedules, options.form)
        kept = {name: array for name, array in seen.items() if (name == LAUNCHES) == (options.leave == LAUNCHES)}
        arrays |= {f"{model.name} {name}": array for name, array in kept.items()}
        inputs.append(made)
    digests = write_dump(options.out, {FILES[options.leave]: arrays})
    write_inputs(options.out, inputs)
    for seed, words in enumerate(schedules):
        print(f"schedule {seed}: {words}")
    report(shlex.join(["python", "-m", "kernels", "schedules", *argv]), inputs, digests)
    return 0


def drawn(seed: int) -> str:
    """A schedule in which every rollback has its mark, and takes back at least one token."""
    choose, words, since = random.Random(seed), list[str](), -1  # since: tokens behind the mark, -1 without one
    while len(words) < WORDS:
        verb = choose.choice(VERBS)
        if (verb == "rollback" and since < 1) or [verb] == words[-1:] == ["mark"]:
            continue
        if verb == "mark":
            since = 0
        elif verb == "rollback":
            verb += str(choose.randint(0, min(since, ROWS_MAX)))
            since = -1
        else:
            count = choose.randint(2, ROWS_MAX) if verb == "rows" else 1
            verb += str(count) if verb == "rows" else ""
            since += count if since >= 0 else 0
        words.append(verb)
    return " ".join(words)


def steps(schedule: str, right: Sequence[int], vocab: int) -> tuple[Step, ...]:
    """The words with their tokens. Raises KernelError for a word that is none, or a rollback without a mark."""
    words = [_parsed(word) for word in schedule.split()]
    made = list[Step]()
    state: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    marked: tuple[int, ...] | None = None
    for place, (verb, count) in enumerate(words):
        if verb == "mark":
            marked, tokens = state, ()
        elif verb == "rollback":
            if marked is None or len(state) - len(marked) < count:
                raise KernelError(f"schedule {schedule!r}", f"word {place} has no such mark", "mark first")
            state, tokens, marked = marked, state[len(marked) : len(marked) + count], None
        else:
            kept = _kept(words[place + 1 :], len(state) - len(marked)) if marked is not None else count
            places = range(len(state), len(state) + count)
            tokens = tuple((right[at] + (i >= kept)) % vocab for i, at in enumerate(places))
        state += tokens
        made.append(Step(verb, tokens, state))
    return tuple(made)


def _kept(words: Sequence[tuple[str, int]], since: int) -> int:
    """How many of the tokens that follow `since` behind a mark a rollback keeps: all, where the mark is not used."""
    for verb, count in words:
        if verb == "mark":
            break
        if verb == "rollback":
            return count - since
    return ROWS_MAX


def run(
    opened: artifact.Artifact, model: Model, schedules: Sequence[str], form: str
) -> tuple[dict[str, np.ndarray], Input]:
    """By plane u8 [words of all schedules][32], the launches, and the weights."""
    longest = WORDS * ROWS_MAX
    engine, device, weights = model.open(opened, capacity=longest, rows=ROWS_MAX if form == SCHEDULED else 1)
    vocab, found = engine.config.vocab, dict[str, list[np.ndarray]]()
    right = text(vocab, longest)
    for schedule in schedules:
        engine.reset()
        before: tuple[int, ...] = ()
        for step in steps(schedule, right, vocab):
            RUN[form](engine, step, before)
            before = step.state
            for name, plane in engine.planes().items():
                found.setdefault(name, []).append(digest(plane))
    engine.close()
    planes = {name: np.stack(rows) for name, rows in found.items()}
    return {**planes, LAUNCHES: device.numbered()}, weights


def serial(engine: Any, step: Step, before: tuple[int, ...]) -> None:
    """The state from what was there before, or, where that is no part of it, from nothing."""
    if step.state[: len(before)] != before:
        engine.reset()
        before = ()
    for token in step.state[len(before) :]:
        engine.forward(token)


def scheduled(engine: Any, step: Step, before: tuple[int, ...]) -> None:
    """What the word says."""
    if step.verb == "rows":
        engine.forward_rows(step.tokens)
        return
    if step.verb in ("mark", "rollback"):
        getattr(engine, step.verb)()
    for token in step.tokens:
        engine.forward(token)


RUN = {SERIAL: serial, SCHEDULED: scheduled}


def _parsed(word: str) -> tuple[str, int]:
    """Verb and count. Raises KernelError."""
    match = _WORD.fullmatch(word)
    if match is None:
        raise KernelError(f"word {word!r}", "is none of a schedule", "use one, rows2.., mark, rollback0..")
    return (match[1], 1) if match[1] else (match[2], int(match[3]))


def _seeds(word: str) -> int:
    count = int(word)
    if not 1 <= count <= SEEDS_MAX:
        raise argparse.ArgumentTypeError(f"give 1..{SEEDS_MAX}")
    return count
