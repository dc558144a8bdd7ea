"""python -m kernels generate: what a model says next, the likeliest token each time, with or without drafts.

--draft ngram guesses what followed the last time that the latest tokens were there, and lets the engine verify all
guesses in one forward; --draft none runs a token at a time. The text is the same; how it came about is printed, and
with --out left as text.i32. Weights, prompt and artifact are named by their digests.
"""

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact

from .forms import ROWS_MAX
from .inputs import add_run, file_digest, read_run
from .outputs import Input, report, write_dump, write_inputs
from .watch import set_gate

NGRAM_MAX = 3  # tokens that must agree before what followed them is a guess; fewer, where so many never came
Guess = Callable[[Sequence[int], int], Sequence[int]]  # all tokens so far, the due one last; at most so many guesses


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens that were chosen, and how many of them each round kept."""

    tokens: tuple[int, ...]
    rounds: tuple[int, ...]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels generate", description=__doc__, allow_abbrev=False)
    add_run(parser)
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    parser.add_argument("--count", required=True, type=int, metavar="N", help="tokens to choose")
    parser.add_argument("--draft", required=True, choices=("none", "ngram"))
    parser.add_argument("--guesses", type=int, default=ROWS_MAX - 1, metavar="G", help="of a draft at most, 1..7")
    parser.add_argument("--out", type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    if not 1 <= options.guesses < ROWS_MAX or options.count < 1:
        parser.error(f"give --guesses 1..{ROWS_MAX - 1} and --count of 1 or more")
    path = options.artifact or artifact.tree()
    opened = artifact.load(path)
    run = read_run(parser, options, opened.entry)
    if options.draft != "none":
        opened.entry("spec_verify")  # an artifact without it is refused before anything runs
        set_gate(str(1 + options.guesses))
    capacity = len(run.tokens) + options.count
    engine = opened.entry("open")(opened.binary, run.config, run.weights, capacity=capacity)
    if options.draft == "none":
        text = plain(engine, run.tokens, options.count)
    else:
        text = speculative(engine, run.tokens, options.count, partial(ngram, longest=options.guesses))
    engine.close()
    print(f"text: {' '.join(map(str, text.tokens))}")
    print(f"rounds: {len(text.rounds)} for {len(text.tokens)} tokens, {max(text.rounds)} in one at most")
    inputs = [run.weights.input(), run.tokens_input, Input("artifact", path.name, file_digest(path))]
    digests = {}
    if options.out is not None:
        digests = write_dump(options.out, {"text.i32": {"text": np.array(text.tokens, np.int32)}})
        write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "generate", *argv]), inputs, digests)
    return 0


def plain(engine: Any, prompt: Sequence[int], count: int) -> Text:
    """A token at a time."""
    due, chosen = _read(engine, prompt), list[int]()
    for _place in range(count):
        engine.forward(due)
        chosen.append(due)
        due = engine.argmax()
    return Text(tuple(chosen), (1,) * count)


def speculative(engine: Any, prompt: Sequence[int], count: int, guess: Guess) -> Text:
    """Guesses verified by rows, as many as fit into what is wanted."""
    due, chosen, rounds = _read(engine, prompt), list[int](), list[int]()
    while len(chosen) < count:
        wanted = count - len(chosen)
        seen = (*prompt, *chosen, due)

        def draft(room: int, seen: Sequence[int] = seen, wanted: int = wanted) -> Sequence[int]:
            return (seen[-1], *guess(seen, min(room, wanted) - 1))

        *right, after = engine.spec_verify(draft)
        chosen += [due, *right]
        rounds.append(1 + len(right))
        due = after
    return Text(tuple(chosen), tuple(rounds))


def ngram(seen: Sequence[int], most: int, *, longest: int) -> Sequence[int]:
    """What followed the last time that the latest tokens were there: the longest match counts, then the latest."""
    most = min(most, longest)
    for size in range(min(NGRAM_MAX, len(seen) - 1), 0, -1):
        latest = tuple(seen[-size:])
        for start in range(len(seen) - size - 1, -1, -1):
            if tuple(seen[start : start + size]) == latest:
                return seen[start + size : start + size + most]
    return ()


def _read(engine: Any, prompt: Sequence[int]) -> int:
    """The token that is due behind a prompt."""
    for token in prompt:
        engine.forward(token)
    due: int = engine.argmax()
    return due
