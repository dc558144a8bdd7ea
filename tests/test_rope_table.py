"""The table of cosines and sines: the published bits, the true values, the same bytes everywhere."""

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest

from kernels.engine import rope_table
from kernels.engine.errors import KernelError

# qwen35.md section 4.1: theta 1e7, 64 rotary dimensions, i = 0..31
PUBLISHED_27B = """
3f800000 3f1ab32b 3ebaf81b 3e61f835 3e088d77 3da50956 3d47763f 3cf11177 3c91ad39 3c301052 3bd4ca15
3b80967d 3b1b690d 3abbd3ed 3a6301e2 3a092e02 39a5cb60 394860c1 38f22ce2 3892587e 3830df52 37d5c441
37812dab 371c1fc4 36bcb0c1 36640cc6 3609cf4a 35a68e4c 35494c57 34f3499d 3493048e 3431af44
"""
TABLE_DIGEST = "4db9ae6e68450f8fd1f5a2f68baea0aedb9ca5c108458a810c8e464a5fb997cb"


def pi_half() -> Fraction:
    """pi / 2 by Machin's formula, to within 2**-200."""

    def arctan_of_inverse(n: int) -> Fraction:
        terms = range(200 // (2 * n.bit_length() - 2) + 2)
        return sum((Fraction((-1) ** k, (2 * k + 1) * n ** (2 * k + 1)) for k in terms), Fraction())

    return 2 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))


def test_frequencies_have_the_published_bits() -> None:
    """The 32 inverse frequencies of 27B are the float32 bits of the reference, which are torch's."""
    found = rope_table.inverse_frequencies(1e7, 64).view(np.uint32)
    assert [f"{bits:08x}" for bits in found] == PUBLISHED_27B.split()


@pytest.mark.parametrize(("base", "exponent"), [(1e7, 0.96875), (1e4, 0.5), (2.0, 1.0), (1.5, 0.1), (9e14, 0.75)])
def test_power_is_the_power(base: float, exponent: float) -> None:
    """power() is within an ulp of float64 of what libm says."""
    assert abs(rope_table.power(base, exponent) - base**exponent) <= math.ulp(base**exponent)


def test_power_of_nothing_is_one() -> None:
    """Whatever the base, the first frequency is exactly 1."""
    assert rope_table.power(1e7, 0.0) == 1.0


def test_parts_add_up_to_half_pi() -> None:
    """The three parts of pi/2 are exact to 2**-118, the first two have 33 bits, and 2/pi is the nearest float64."""
    parts = [Fraction(part) for part in rope_table.HALF_PI_PARTS]
    assert abs(sum(parts) - pi_half()) < Fraction(1, 2**118)
    assert all(part.numerator.bit_length() <= 33 for part in parts[:2])
    assert float(1 / pi_half()) == rope_table.TWO_OVER_PI


def test_values_are_true_to_an_ulp() -> None:
    """Over positions 0..2**18-1 in steps of a prime, cos and sin are within 1 ulp of f32 of math.cos and math.sin."""
    positions = np.arange(0, rope_table.POSITIONS_MAX, 3001, dtype=np.float32)
    angles = positions[:, None] * rope_table.inverse_frequencies(1e7, 64)
    for found, true in zip(rope_table.cos_sin(angles), (math.cos, math.sin), strict=True):
        wanted = np.array([true(x) for x in angles.astype(np.float64).ravel()]).reshape(angles.shape)
        assert (np.abs(found - wanted) <= np.spacing(np.abs(wanted).astype(np.float32))).all()


def test_angles_near_quarter_turns() -> None:
    """Where a cosine or sine nearly vanishes it is still true to an ulp, and its sign is right."""
    angles = np.array([k * math.pi / 2 for k in range(1, 4000)], dtype=np.float32)
    cos, sin = rope_table.cos_sin(angles)
    for found, true in ((cos, math.cos), (sin, math.sin)):
        wanted = np.array([true(x) for x in angles.astype(np.float64)])
        assert (np.abs(found - wanted) <= np.spacing(np.abs(wanted).astype(np.float32))).all()


def test_table_is_angles_of_positions() -> None:
    """Row p holds the angles f32(p) * f_i, each rounded once; row 0 is (1, 0)."""
    cos, sin = rope_table.table(1e7, 16, 300)
    f = rope_table.inverse_frequencies(1e7, 16)
    again_cos, again_sin = rope_table.cos_sin(np.float32(299) * f)
    assert cos.shape == sin.shape == (300, 8) and cos.dtype == np.float32
    assert cos[299].tobytes() == again_cos.tobytes() and sin[299].tobytes() == again_sin.tobytes()
    assert (cos[0] == 1).all() and (sin[0] == 0).all()


def test_table_has_the_same_bytes_everywhere() -> None:
    """A frozen digest of the first 2,048 positions of 27B: a machine or NumPy that disagrees is found out here."""
    cos, sin = rope_table.table(1e7, 64, 2048)
    assert hashlib.sha256(cos.tobytes() + sin.tobytes()).hexdigest() == TABLE_DIGEST


@pytest.mark.parametrize("positions", [0, rope_table.POSITIONS_MAX + 1])
def test_positions_have_a_limit(positions: int) -> None:
    """Beyond the published context the reduction is not proved, so there is no table."""
    with pytest.raises(KernelError, match="positions"):
        rope_table.table(1e7, 64, positions)
