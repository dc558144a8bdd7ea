"""Float64 reference of swiglu.cuh."""

import numpy as np

from .bitmath import silu


def swiglu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """silu(gate) * up, elementwise."""
    return silu(gate) * np.asarray(up, np.float64)


def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y + x, elementwise."""
    return np.asarray(y, np.float64) + np.asarray(x, np.float64)
