"""bitmath: error against float64, the bits of a fixed set of inputs, and what happens at and beyond the ends."""

import hashlib

import numpy as np
import pytest
from kernel_calls import Call, Out, run, run_in_splits

from kernels.device import bitmath

# ulp over the sweep below; the worst found over every 97th pattern was 0.98, 0.83, 2.29, 3.05 and 1.65
ULP_MAX = {"exp": 1.0, "log1p": 1.0, "sigmoid": 2.5, "silu": 3.5, "softplus": 2.0}
STEP = 1009  # prime: the sweep is every 1009th of all 2^32 bit patterns, 4.3 million of every sign, exponent and NaN
DENSE = 1 << 16  # and this many evenly from -110 to 95, where exp is neither 0 nor infinity
NAN_BITS = 0x7FC00000

FROZEN_STEP = 65521  # prime
FROZEN = "ebd44a95d42179e0e71e0521e98f890ccc6be8847e70c57eaafc44ece5ca9bfd"


def apply(function: str, x: np.ndarray) -> np.ndarray:
    (y,) = run(Call(f"math_{function}", -(-len(x) // 256), (x, Out((len(x),)), len(x))))
    return y


def patterns(step: int) -> np.ndarray:
    return np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def specials() -> np.ndarray:
    """Zeros, infinities, NaNs of all kinds, denormals, the ends of every branch, and the neighbours of each."""
    edges = [0.0, 1.0, 2.0, 20.0, 88.72284, 89.0, 103.97208, 104.0, 126.0, 2.0**-126, 2.0**-149, 2.0**24, 3.4028235e38]
    edges += [np.sqrt(0.5), np.sqrt(2.0), np.sqrt(2.0) - 1.0, 1.0 - np.sqrt(0.5), 0.34657359, np.inf]
    middle = np.array([*edges, *(-edge for edge in edges)], np.float32)
    with np.errstate(over="ignore"):
        up, down = np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32)
    return np.concatenate([middle, up, down, nans.view(np.float32)])


def ulp_of(want: np.ndarray) -> np.ndarray:
    """The distance of f32 numbers at each value; 2^-149 in the denormal range."""
    exponent = np.floor(np.log2(np.maximum(np.abs(want), 2.0**-126)))
    return np.asarray(2.0 ** (exponent - 23))


@pytest.mark.parametrize("function", ULP_MAX)
def test_the_worst_error_over_the_sweep_is_within_the_stated_ulp(function: str) -> None:
    """Every 1009th of all bit patterns and a dense sweep: each finite result is within ULP_MAX of float64's."""
    x = np.concatenate([patterns(STEP), np.linspace(-110, 95, DENSE, dtype=np.float32), specials()])
    got = apply(function, x)
    with np.errstate(invalid="ignore"):  # signalling NaNs of the sweep
        want = getattr(bitmath, function)(x.astype(np.float64))
    with np.errstate(over="ignore"):
        nearest = want.astype(np.float32)
    finite = np.isfinite(nearest)
    error = np.abs(got[finite].astype(np.float64) - want[finite]) / ulp_of(want[finite])
    assert len(error) > 1 << 20
    assert np.all(error <= ULP_MAX[function]), f"{error.max()} at {x[finite][np.argmax(error)]!r}"
    ends = ~finite & ~np.isnan(nearest)
    assert got[ends].tobytes() == nearest[ends].tobytes()


@pytest.mark.parametrize("function", ULP_MAX)
def test_every_nan_becomes_the_one_canonical_nan(function: str) -> None:
    """Quiet, signalling and negative NaNs, thousands of them, all give the bytes of 7fc00000."""
    x = np.concatenate([patterns(STEP), specials()])
    assert np.isnan(x).sum() > 1000
    assert set(apply(function, x[np.isnan(x)]).view(np.uint32)) == {NAN_BITS}


@pytest.mark.parametrize(
    ("function", "x", "want"),
    [
        ("exp", "-inf", "0x00000000"),
        ("exp", "inf", "0x7f800000"),
        ("exp", "89.0", "0x7f800000"),
        ("exp", "-104.0", "0x00000000"),
        ("exp", "-0.0", "0x3f800000"),
        ("log1p", "-0.0", "0x80000000"),
        ("log1p", "-1.0", "0xff800000"),
        ("log1p", "-1.5", "0x7fc00000"),
        ("log1p", "-inf", "0x7fc00000"),
        ("log1p", "inf", "0x7f800000"),
        ("sigmoid", "-inf", "0x00000000"),
        ("sigmoid", "inf", "0x3f800000"),
        ("sigmoid", "-0.0", "0x3f000000"),
        ("silu", "-inf", "0x80000000"),
        ("silu", "inf", "0x7f800000"),
        ("silu", "-0.0", "0x80000000"),
        ("softplus", "-inf", "0x00000000"),
        ("softplus", "inf", "0x7f800000"),
        ("softplus", "20.5", "0x41a40000"),
    ],
)
def test_ends_have_these_exact_bits(function: str, x: str, want: str) -> None:
    """Zeros keep their sign where the function does, ends are the limits, and log1p below -1 is the canonical NaN."""
    assert apply(function, np.array([float(x)], np.float32)).view(np.uint32)[0] == int(want, 16)


def test_a_denormal_result_is_rounded_once() -> None:
    """exp between -103.9 and -87.4 gives denormals that are the nearest ones, or the next where float64 lies midway."""
    x = np.linspace(-103.9, -87.4, 4001, dtype=np.float32)
    got, want = apply("exp", x), np.exp(x.astype(np.float64))
    assert np.all((got > 0) & (got < 2.0**-126))
    assert np.all(np.abs(got.astype(np.float64) - want) <= 0.55 * 2.0**-149 + 2.0**-24 * want)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 97, 256, 257, 1021])
def test_a_tail_of_any_length_has_the_bits_of_the_whole(n: int) -> None:
    """The first n results do not depend on n, on what lies behind them, or on the split of the blocks."""
    x = np.linspace(-30, 30, 1021, dtype=np.float32)
    for function in ULP_MAX:
        (y,) = run_in_splits(Call(f"math_{function}", -(-n // 256), (x[:n].copy(), Out((n,)), n)))
        assert y.tobytes() == apply(function, x)[:n].tobytes()


def test_the_bits_are_the_frozen_ones() -> None:
    """All five functions over every 65521st bit pattern and the special values have one digest, on every machine."""
    x = np.concatenate([patterns(FROZEN_STEP), specials()])
    digest = hashlib.sha256(b"".join(apply(function, x).tobytes() for function in ULP_MAX)).hexdigest()
    assert digest == FROZEN
