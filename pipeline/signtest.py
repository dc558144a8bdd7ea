"""The exact one-sided sign test over pairs of timings, in integers and fractions. Pure: no clock, no file, no float.

Valid for up to PAIRS_MAX pairs whose order inside each pair was drawn by an independent fair coin: then, if neither
side is slower, each pair that is not a tie is a fair coin too, whatever drift or position effect there is, and the
number of slower ones is Binomial(n, 1/2). Ties are dropped from n and counted. It says nothing about how much slower.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

PAIRS_MAX: Final = 1_000
PPM: Final = 1_000_000
COVERAGE_PPM: Final = 950_000  # of the interval of the median ratio
PAIRS_ADVISED: Final = (8, 11, 13, 16, 18, 23)  # power is not monotone in n; these use their alpha of 50,000 ppm best

# Pairs that are not ties -> the least number of slower ones with p <= alpha. None: even all of them are too few.
# Source: binomial sums, recomputed for every row in tests/test_signtest.py.
#  n    50,000 ppm  10,000 ppm
SLOWER_MIN: Final[dict[int, tuple[int | None, int | None]]] = {
    1: (None, None),
    2: (None, None),
    3: (None, None),
    4: (None, None),
    5: (5, None),
    6: (6, None),
    7: (7, 7),
    8: (7, 8),
    9: (8, 9),
    10: (9, 10),
    11: (9, 10),
    12: (10, 11),
    13: (10, 12),
    14: (11, 12),
    15: (12, 13),
    16: (12, 14),
    17: (13, 14),
    18: (13, 15),
    19: (14, 15),
    20: (15, 16),
    21: (15, 17),
    22: (16, 17),
    23: (16, 18),
}
ALPHAS_PPM: Final = (50_000, 10_000)  # the two columns
for _few, _more in itertools.pairwise(SLOWER_MIN):
    for _one, _next in zip(SLOWER_MIN[_few], SLOWER_MIN[_more], strict=True):
        assert _one is None or (_next is not None and _next - _one in (0, 1)), f"row {_more} does not follow {_few}"


class Sign(enum.Enum):
    """How the candidate did in one pair."""

    FASTER = "-"
    SLOWER = "+"
    TIE = "0"


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of the signs of a case."""

    faster: int
    slower: int
    ties: int

    @property
    def n(self) -> int:
        """Pairs that are not ties: the n of the test."""
        return self.faster + self.slower

    @property
    def pairs(self) -> int:
        """All pairs, ties among them."""
        return self.faster + self.slower + self.ties

    @property
    def ties_ppm(self) -> int:
        """Share of ties, rounded up; of no pairs at all, everything."""
        return -(-self.ties * PPM // self.pairs) if self.pairs else PPM


def sign(*, candidate_ps: int, baseline_ps: int) -> Sign:
    """FASTER, SLOWER or TIE. Picoseconds. Raises ValueError for a time that is not a positive integer."""
    for value in (candidate_ps, baseline_ps):
        if type(value) is not int or not value > 0:
            raise ValueError(f"{value!r} is not a time in picoseconds")
    if candidate_ps == baseline_ps:
        return Sign.TIE
    return Sign.SLOWER if candidate_ps > baseline_ps else Sign.FASTER


def tally(signs: Iterable[Sign]) -> Tally:
    """The counts of some signs."""
    drawn = tuple(signs)
    return Tally(*(sum(1 for one in drawn if one is kind) for kind in (Sign.FASTER, Sign.SLOWER, Sign.TIE)))


@functools.lru_cache(maxsize=1024)
def p_value(k: int, n: int) -> Fraction:
    """P[X >= k] for X ~ Binomial(n, 1/2), exactly. Raises ValueError outside 0 <= k <= n <= PAIRS_MAX."""
    if not 0 <= k <= n <= PAIRS_MAX:
        raise ValueError(f"{k} of {n} is outside 0 <= k <= n <= {PAIRS_MAX}")
    return Fraction(sum(math.comb(n, i) for i in range(k, n + 1)), 2**n)


def smallest_p(n: int) -> Fraction:
    """The p of n of n: what n pairs can show at best."""
    return p_value(n, n)


def slower_min(n: int, alpha_ppm: int) -> int | None:
    """The least k with p_value(k, n) <= alpha; None if n of n is too few, and then no verdict may be given."""
    if n in SLOWER_MIN and alpha_ppm in ALPHAS_PPM:
        return SLOWER_MIN[n][ALPHAS_PPM.index(alpha_ppm)]
    alpha = _alpha(alpha_ppm)
    if smallest_p(n) > alpha:
        return None
    return next(k for k in range(n + 1) if p_value(k, n) <= alpha)


@functools.lru_cache(maxsize=1024)
def interval_rank(n: int) -> int | None:
    """The largest r for which [x_r, x_{n+1-r}], counted from 1, covers the median with COVERAGE_PPM or more."""
    ranks = (r for r in range(n // 2, 0, -1) if 1 - 2 * p_value(n - r + 1, n) >= Fraction(COVERAGE_PPM, PPM))
    return next(ranks, None)


def interval(ratios_ppm: Sequence[int]) -> tuple[int, int] | None:
    """An interval that holds the median ratio with COVERAGE_PPM or more; None for fewer than six.

    Order statistics of all pairs, ties among them, already sorted. Raises ValueError if they are not.
    """
    if any(low > high for low, high in itertools.pairwise(ratios_ppm)):
        raise ValueError("the ratios are not sorted")
    rank = interval_rank(len(ratios_ppm))
    return None if rank is None else (ratios_ppm[rank - 1], ratios_ppm[-rank])


def ratio_ppm(*, candidate_ps: int, baseline_ps: int) -> int:
    """candidate / baseline in millionths, rounded half up. For the interval and for people, never for a sign."""
    return (2 * candidate_ps * PPM + baseline_ps) // (2 * baseline_ps)


def median_ppm(ratios_ppm: Sequence[int]) -> int:
    """The median of at least one ratio; of an even number the mean of the middle two, rounded half up."""
    ordered = sorted(ratios_ppm)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2] + 1) // 2


def holm(p_values: Sequence[Fraction], alpha_ppm: int) -> tuple[bool, ...]:
    """Which of several p are significant together, by Holm's step-down; in the order given.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).
    """
    alpha, count = _alpha(alpha_ppm), len(p_values)
    significant = [False] * count
    for step, i in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        if not p_values[i] <= alpha / (count - step):
            break
        significant[i] = True
    return tuple(significant)


def _alpha(alpha_ppm: int) -> Fraction:
    if not 0 < alpha_ppm < PPM:
        raise ValueError(f"alpha {alpha_ppm} ppm is outside 0 < alpha < {PPM}")
    return Fraction(alpha_ppm, PPM)
