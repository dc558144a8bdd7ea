"""Float64 reference of rms_norm.cuh."""

import numpy as np


def scaled(x: np.ndarray, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) over the last axis, with no gain."""
    x = np.asarray(x, np.float64)
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps))


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x [..., n] normed over n, times the gain 1 + weight [n]."""
    return scaled(x, eps) * (1.0 + np.asarray(weight, np.float64))
