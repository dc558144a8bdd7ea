"""What somebody guessed against what the model chose. Pure; the verbs that run it are the engine's."""

from collections.abc import Callable, Sequence

# Given the most rows that there is room for, some rows: the token that is due, and guesses of those that follow it.
Draft = Callable[[int], Sequence[int]]


def right_rows(tokens: Sequence[int], chosen: Sequence[int]) -> int:
    """How many rows stay: the first, which is no guess, and each that is what the row before it chose, in a row."""
    for place, (guess, choice) in enumerate(zip(tokens[1:], chosen, strict=False), start=1):
        if guess != choice:
            return place
    return len(tokens)
