"""The table of cosines and sines, computed on the host so that every machine and device reads the same bytes.

phi = f32(f32(p) * f_i), f_i = f32(1 / f32(theta ** f32(2i / R))), i = 0..R/2-1; cos and sin of phi rounded to f32.
No libm: a power is taken in whole numbers, cosines and sines in float64 from + - * alone, which IEEE 754 fixes.
Source: reference qwen35.md section 4.1; reduction after Cody and Waite, Software Manual for the Elementary Functions.
"""

import numpy as np

from .errors import KernelError

POSITIONS_MAX = 1 << 18  # the published context; the reduction below is exact up to here
FIXED_BITS = 192  # of the fractions that powers are taken in

# pi/2 in three parts: the first two have 33 bits, so that a multiple of up to 2**20 is exact
HALF_PI_PARTS = tuple(map(float.fromhex, ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2e037073p-69")))
TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
SIN_TERMS, COS_TERMS = 9, 9  # Taylor: the first term left out is below 2**-60 on |r| <= pi/4


def inverse_frequencies(theta: float, rotary: int) -> np.ndarray:
    """f_i, f32 [rotary/2]."""
    exponents = np.arange(0, rotary, 2, dtype=np.float32) / np.float32(rotary)
    powers = np.array([power(theta, float(e)) for e in exponents], dtype=np.float64).astype(np.float32)
    return np.float32(1) / powers


def power(base: float, exponent: float) -> float:
    """base ** exponent for base > 1 and exponent in 0..1, to within an ulp of float64 and the same everywhere."""
    one = 1 << FIXED_BITS
    top, bottom = float(exponent).as_integer_ratio()
    ln2 = _ln_one_to_two(2 * one)
    whole, shift = _fixed(base), 0
    while whole >= 2 * one:
        whole, shift = whole >> 1, shift + 1
    product = (_ln_one_to_two(whole) + shift * ln2) * top // bottom
    twos, rest = divmod(product, ln2)
    total = term = one
    for k in range(1, FIXED_BITS):
        term = term * rest // (k * one)
        if not term:
            break
        total += term
    return (total << twos) / one  # Python divides whole numbers with one correct rounding


def _fixed(value: float) -> int:
    top, bottom = float(value).as_integer_ratio()
    return (top << FIXED_BITS) // bottom


def _ln_one_to_two(value: int) -> int:
    """ln of value / 2**FIXED_BITS in 1..2, as such a fraction: 2 atanh((v-1) / (v+1))."""
    one = 1 << FIXED_BITS
    z = ((value - one) << FIXED_BITS) // (value + one)
    square, odd, total, k = z * z >> FIXED_BITS, z, 0, 1
    while odd:
        total += odd // k
        odd, k = odd * square >> FIXED_BITS, k + 2
    return 2 * total


def table(theta: float, rotary: int, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """(cos, sin), f32 [positions][rotary/2]. Raises KernelError beyond the published context."""
    if not 1 <= positions <= POSITIONS_MAX:
        raise KernelError("rope", f"{positions} positions", f"use 1..{POSITIONS_MAX}")
    places = np.arange(positions, dtype=np.float32)
    angles = places[:, None] * inverse_frequencies(theta, rotary)[None, :]
    return cos_sin(angles)


def cos_sin(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of f32 angles in 0..2**18, each within 1 ulp of f32 of the true value and the same everywhere."""
    x = angles.astype(np.float64)
    turns = np.rint(x * TWO_OVER_PI)
    r = x
    for part in HALF_PI_PARTS:
        r = r - turns * part
    square = r * r
    sine, cosine = r * _series(square, first=1, terms=SIN_TERMS), _series(square, first=0, terms=COS_TERMS)
    quarter = turns.astype(np.int64) & 3
    odd = (quarter & 1).astype(bool)
    cos = np.where(odd, sine, cosine) * np.where((quarter == 1) | (quarter == 2), -1.0, 1.0)
    sin = np.where(odd, cosine, sine) * np.where(quarter >= 2, -1.0, 1.0)
    return cos.astype(np.float32), sin.astype(np.float32)


def _series(square: np.ndarray, *, first: int, terms: int) -> np.ndarray:
    """sum over k < terms of (-square)**k * first! / (2k + first)!, by Horner's rule."""
    total = np.ones_like(square)
    for k in range(terms - 1, 0, -1):
        total = 1.0 - square * total * (1.0 / ((2 * k + first) * (2 * k + first - 1)))
    return total
