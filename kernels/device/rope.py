"""Float64 reference of rope.cuh. The tables of cos and sin are the caller's: one row of each, for one position."""

import numpy as np

from .rms_norm import rms_norm


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x [heads][head_dim], its first `rotary` columns turned in pairs (i, i + rotary / 2); cos, sin [rotary / 2]."""
    x = np.asarray(x, np.float64)
    half = len(cos)
    low, high, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin, rest], axis=-1)


def qk_prep(
    qg: np.ndarray,
    k: np.ndarray,
    q_weight: np.ndarray,
    k_weight: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
    eps: float,
) -> tuple[np.ndarray, np.ndarray]:
    """q [heads][head_dim] and k [kv_heads][head_dim], normed a head and then turned.

    qg [heads][2][head_dim] (q, gate), k [kv_heads][head_dim], the weights [head_dim].
    """
    q = rotate(rms_norm(np.asarray(qg)[:, 0], q_weight, eps), cos, sin)
    return q, rotate(rms_norm(k, k_weight, eps), cos, sin)
