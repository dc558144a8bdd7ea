"""Float64 reference of sample.cuh."""

import numpy as np


def embed(table: np.ndarray, token: int) -> np.ndarray:
    """The token's row of the table [vocabulary][cols]."""
    return np.asarray(table[token], np.float64)


def argmax(logits: np.ndarray) -> int:
    """The index of the largest, the first of equals; NaN never wins, and of nothing but NaN it is 0."""
    numbers = np.flatnonzero(~np.isnan(logits))
    return int(numbers[np.argmax(logits[numbers])]) if len(numbers) else 0
