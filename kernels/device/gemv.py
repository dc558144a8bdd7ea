"""Float64 reference of gemv.cuh: the q4 layout in memory, read back, and y = W x."""

import numpy as np

LANES = 32
NIBBLES = 8  # of a word
CHUNK = LANES * NIBBLES  # columns that 32 words hold
ZERO_POINT = 8  # the nibble that stands for 0


def dequantise(words: np.ndarray, scales: np.ndarray, cols: int) -> np.ndarray:
    """The matrix [rows][cols] in float64, exactly.

    words uint32 [rows][chunks * 32]: nibble j of word c * 32 + l is column c * 256 + j * 32 + l.
    scales uint16 [rows][chunks * 8], bits of a half: c * 8 + j belongs to the columns c * 256 + j * 32 .. + 31.
    """
    rows = words.shape[0]
    lanes = words.reshape(rows, -1, 1, LANES)
    shifts = 4 * np.arange(NIBBLES, dtype=np.uint32)[:, None]
    nibbles = ((lanes >> shifts) & np.uint32(15)).astype(np.float64)  # [rows][chunks][8][32]
    scale = scales.view(np.float16).astype(np.float64).reshape(rows, -1, NIBBLES, 1)
    return ((nibbles - ZERO_POINT) * scale).reshape(rows, -1)[:, :cols]


def gemv(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """weights [rows][cols] times x [cols]: [rows]."""
    return np.asarray(weights, np.float64) @ np.asarray(x, np.float64)
