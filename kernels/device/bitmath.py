"""Float64 reference of bitmath.cuh: the same functions by NumPy, elementwise on arrays of any shape."""

import numpy as np

IDENTITY_ABOVE = 20.0  # softplus, as the model's code has it
MOST = np.finfo(np.float64).max


def exp(x: np.ndarray) -> np.ndarray:
    """e^x; no warning where it leaves the range."""
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(np.asarray(x, np.float64))


def log1p(x: np.ndarray) -> np.ndarray:
    """log(1 + x); NaN below -1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log1p(np.asarray(x, np.float64))


def sigmoid(t: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-t), by the exponential that cannot overflow."""
    t = np.asarray(t, np.float64)
    e = exp(-np.abs(t))
    return np.asarray(np.where(t < 0, e, 1.0) / (1.0 + e))


def silu(t: np.ndarray) -> np.ndarray:
    """t * sigmoid(t); at minus infinity its limit, -0."""
    t = np.asarray(t, np.float64)
    return np.asarray(np.maximum(t, -MOST) * sigmoid(t))


def softplus(t: np.ndarray) -> np.ndarray:
    """log(1 + e^t); above 20 it is t itself."""
    t = np.asarray(t, np.float64)
    return np.where(t > IDENTITY_ABOVE, t, log1p(exp(np.minimum(t, IDENTITY_ABOVE))))
