"""python -m kernels spec_text: text with a perfect, a wrong, a half-right and a random draft, or with none.

A draft knows the text that comes without it, and guesses from that. Leaves for every draft and length text.i32, and
planes.u8, a digest of every plane behind the text. --leave rounds is rounds.i32, how many tokens each round kept, which
--form expected works out from the guesses and the text alone.
"""

import argparse
import random
import shlex
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from kernels import artifact

from .forms import ROWS_MAX, row_counts
from .generate import Guess, Text, plain, speculative
from .models import Model, add_models, models, read
from .models import text as prompt_of
from .outputs import Input, digest, report, write_dump, write_inputs

PLAIN, SPEC, EXPECTED = "plain", "spec", "expected"
PROMPT, COUNT, SEED = 7, 24, 1
CAPACITY = PROMPT + 2 * ROWS_MAX * COUNT  # so that what is never stepped back has room too
Files = dict[str, dict[str, np.ndarray]]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels spec_text", description=__doc__, allow_abbrev=False)
    add_models(parser)
    parser.add_argument("--drafts", required=True, type=_drafts, metavar="NAMES", help=f"of {', '.join(DRAFTS)}")
    parser.add_argument("--lengths", required=True, type=row_counts, metavar="G", help="guesses of a draft: 1..7")
    parser.add_argument("--form", required=True, choices=(PLAIN, SPEC, EXPECTED))
    parser.add_argument("--leave", default="text", choices=("text", "rounds"))
    options = parser.parse_args(argv)
    if options.out is None or max(options.lengths) >= ROWS_MAX:
        parser.error(f"--out is needed, and --lengths in 1..{ROWS_MAX - 1}")
    if (options.form == EXPECTED) != (options.form != SPEC and options.leave == "rounds"):
        parser.error(f"--leave rounds has --form {SPEC} and --form {EXPECTED}, which leaves nothing else")
    path = options.artifact or artifact.tree()
    opened, cases = artifact.load(path), tuple(product(options.drafts, options.lengths))
    inputs, files = read(path), Files()
    for model in models(options):
        left, made = run(opened, model, cases, options.form)
        inputs.append(made)
        for file, arrays in left.items():
            if (file == "rounds.i32") == (options.leave == "rounds"):
                files.setdefault(file, {}).update({f"{model.name} {name}": array for name, array in arrays.items()})
    digests = write_dump(options.out, files)
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "spec_text", *argv]), inputs, digests)
    return 0


def run(opened: artifact.Artifact, model: Model, cases: Sequence[tuple[str, int]], form: str) -> tuple[Files, Input]:
    """The files of a model, and its weights."""
    engine, _device, weights = model.open(opened, capacity=CAPACITY, rows=ROWS_MAX)
    vocab = engine.config.vocab
    prompt = prompt_of(vocab, PROMPT)
    truth = plain(engine, prompt, COUNT).tokens
    after, planes = engine.argmax(), _digests(engine)
    files: Files = {"text.i32": {}, "planes.u8": {}, "rounds.i32": {}}
    for name, length in cases:
        case = f"{name} {length}"
        guess = guesses(name, length, (*truth, after), vocab)
        if form == SPEC:
            engine.reset()
            text, left = speculative(engine, prompt, COUNT, guess), _digests(engine)
        else:
            text, left = Text(truth, rounds(prompt, truth, guess)), planes
        files["text.i32"][case] = np.array(text.tokens, np.int32)
        files["rounds.i32"][case] = np.array(text.rounds, np.int32)
        files["planes.u8"] |= {f"{case} {plane}": array for plane, array in left.items()}
    engine.close()
    return files, weights


def guesses(name: str, length: int, truth: Sequence[int], vocab: int) -> Guess:
    """A draft of at most so many guesses, by what truly follows."""

    def guess(seen: Sequence[int], most: int) -> Sequence[int]:
        at = len(seen) - PROMPT
        return DRAFTS[name](truth[at : at + min(length, most)], vocab, at)

    return guess


def _half(right: Sequence[int], vocab: int, at: int) -> Sequence[int]:
    middle = (len(right) + 1) // 2
    return (*right[:middle], *_wrong(right[middle:], vocab, at))


def _wrong(right: Sequence[int], vocab: int, at: int) -> Sequence[int]:
    return [(token + 1) % vocab for token in right]


def _random(right: Sequence[int], vocab: int, at: int) -> Sequence[int]:
    """Each guess is right or any token, as a coin falls."""
    draw = random.Random(SEED * COUNT + at)
    return [token if draw.random() < 0.5 else draw.randrange(vocab) for token in right]


# name: guesses from the tokens that truly follow, the vocabulary, and where in the text they are
DRAFTS: dict[str, Callable[[Sequence[int], int, int], Sequence[int]]] = {
    "perfect": lambda right, vocab, at: right,
    "wrong": _wrong,
    "half": _half,
    "random": _random,
}


def rounds(prompt: Sequence[int], truth: Sequence[int], guess: Guess) -> tuple[int, ...]:
    """How many tokens each round keeps: the due one, and guesses up to the first wrong one."""
    kept, at = list[int](), 0
    while at < len(truth):
        room = min(ROWS_MAX, len(truth) - at) - 1
        right = 0
        for token in guess((*prompt, *truth[: at + 1]), room):
            if token != truth[at + 1 + right]:
                break
            right += 1
        kept.append(1 + right)
        at += kept[-1]
    return tuple(kept)


def _digests(engine: Any) -> dict[str, np.ndarray]:
    return {name: digest(plane) for name, plane in engine.planes().items()}


def _drafts(word: str) -> tuple[str, ...]:
    found = tuple(word.split(","))
    if not set(found) <= set(DRAFTS):
        raise argparse.ArgumentTypeError(f"give some of {', '.join(DRAFTS)}")
    return found
