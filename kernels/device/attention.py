"""Float64 reference of attention.cuh."""

import numpy as np

from .bitmath import exp, sigmoid


def append(cache: np.ndarray, row: np.ndarray) -> np.ndarray:
    """cache [n][...] with the row [...] after it."""
    return np.concatenate([cache, np.asarray(row, np.float64)[None]])


def attention(q: np.ndarray, gate: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    """Softmax attention of one token times sigmoid(gate): [heads][head_dim].

    q, gate [heads][head_dim]; keys, values [n][kv_heads][head_dim], the token's own row last.
    """
    q, keys, values = (np.asarray(array, np.float64) for array in (q, keys, values))
    shared = len(q) // keys.shape[1]  # query heads that read one kv head
    keys, values = (np.repeat(array, shared, axis=1) for array in (keys, values))
    scores = np.einsum("hd,thd->ht", q, keys) * scale
    weights = exp(scores - scores.max(axis=1, keepdims=True))
    mixed = np.einsum("ht,thd->hd", weights, values) / weights.sum(axis=1, keepdims=True)
    return np.asarray(mixed * sigmoid(gate))
