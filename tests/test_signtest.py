"""signtest.py: exact numbers, checked against binomials counted another way and against published tables."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from pipeline import signtest
from pipeline.signtest import Sign, Tally


def drawn(text: str) -> Tally:
    """`+` the candidate was slower, `-` faster, `0` a tie."""
    return signtest.tally(Sign(letter) for letter in text)


def pascal(rows: int) -> list[list[int]]:
    """Rows of Pascal's triangle, by addition alone."""
    made = [[1]]
    for _ in range(rows):
        made.append([a + b for a, b in zip([0, *made[-1]], [*made[-1], 0], strict=True)])
    return made


def level(n: int, least: int, heads: float = 0.5) -> float:
    """P[X >= least] for X ~ Binomial(n, heads), in floats, by its definition."""
    return sum(math.comb(n, k) * heads**k * (1 - heads) ** (n - k) for k in range(least, n + 1))


def test_sign_has_three_outcomes() -> None:
    """A tie is neither faster nor slower."""
    assert signtest.sign(candidate_ps=9, baseline_ps=10) is Sign.FASTER
    assert signtest.sign(candidate_ps=11, baseline_ps=10) is Sign.SLOWER
    assert signtest.sign(candidate_ps=10, baseline_ps=10) is Sign.TIE


@pytest.mark.parametrize("odd", [0, -1, 1.5, float("nan"), True, "3", None])
def test_sign_refuses_what_is_no_time(odd: object) -> None:
    """Zero, a negative, a float, NaN: none of them is a time, on either side."""
    with pytest.raises(ValueError, match="is not a time in picoseconds"):
        signtest.sign(candidate_ps=odd, baseline_ps=10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not a time in picoseconds"):
        signtest.sign(candidate_ps=10, baseline_ps=odd)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "slower", "n", "ties_ppm", "p"),
    [
        ("++-+0+", 4, 5, 166_667, Fraction(6, 32)),
        ("+++", 3, 3, 0, Fraction(1, 8)),
        ("+++++", 5, 5, 0, Fraction(1, 32)),
        ("-----", 0, 5, 0, Fraction(1)),
        ("+-+-+-", 3, 6, 0, Fraction(42, 64)),
        ("+++++++++++++", 13, 13, 0, Fraction(1, 8192)),
        ("++++++++++---", 10, 13, 0, Fraction(378, 8192)),
        ("+++++++++----", 9, 13, 0, Fraction(1093, 8192)),
        ("0000", 0, 0, 1_000_000, Fraction(1)),
        ("+0-0000000", 1, 2, 800_000, Fraction(3, 4)),
        ("", 0, 0, 1_000_000, Fraction(1)),
    ],
)
def test_drawn_cases(text: str, slower: int, n: int, ties_ppm: int, p: Fraction) -> None:
    """Signs counted by hand: ties leave n, are counted apart, and no pairs at all show nothing."""
    tally = drawn(text)
    assert (tally.slower, tally.n, tally.pairs, tally.ties_ppm) == (slower, n, len(text), ties_ppm)
    assert signtest.p_value(tally.slower, tally.n) == p


def test_p_value_is_exact_for_every_k_up_to_64() -> None:
    """Every p for n <= 64 is the sum of Pascal's row, made by addition."""
    for n, row in enumerate(pascal(64)):
        for k in range(n + 1):
            assert signtest.p_value(k, n) == Fraction(sum(row[k:]), 2**n)
        assert signtest.smallest_p(n) == Fraction(1, 2**n)


def test_p_value_counts_what_coins_do() -> None:
    """For n = 9, p is the share of all 512 sequences of coins with that many heads or more."""
    heads = [sum(coins) for coins in itertools.product((0, 1), repeat=9)]
    for k in range(10):
        assert signtest.p_value(k, 9) == Fraction(sum(1 for h in heads if h >= k), 512)


@pytest.mark.parametrize(("k", "n"), [(-1, 3), (4, 3), (0, -1), (0, signtest.PAIRS_MAX + 1)])
def test_p_value_states_its_domain(k: int, n: int) -> None:
    """Outside 0 <= k <= n <= PAIRS_MAX there is no p."""
    with pytest.raises(ValueError, match="is outside"):
        signtest.p_value(k, n)


def test_slower_min_table_is_the_binomial() -> None:
    """Every row of SLOWER_MIN is the least k with p <= alpha, counted from Pascal's triangle."""
    triangle = pascal(max(signtest.SLOWER_MIN))
    assert list(signtest.SLOWER_MIN) == list(range(1, max(signtest.PAIRS_ADVISED) + 1))
    assert signtest.ALPHAS_PPM == (50_000, 10_000)
    for n, columns in signtest.SLOWER_MIN.items():
        for alpha_ppm, least in zip(signtest.ALPHAS_PPM, columns, strict=True):
            enough = [k for k in range(n + 1) if sum(triangle[n][k:]) * 1_000_000 <= alpha_ppm * 2**n]
            assert least == (enough[0] if enough else None)


def test_slower_min_beyond_its_table() -> None:
    """Another alpha, or more pairs than the table has, is computed by the same rule."""
    assert signtest.slower_min(13, 1_000) == 13
    assert signtest.slower_min(9, 1_000) is None
    assert signtest.slower_min(64, 50_000) == 40
    assert signtest.slower_min(0, 50_000) is None
    for n in (24, 30, 64):
        least = signtest.slower_min(n, 50_000)
        assert least is not None
        assert signtest.p_value(least, n) <= Fraction(1, 20) < signtest.p_value(least - 1, n)
    for alpha_ppm in (0, 1_000_000, -5):
        with pytest.raises(ValueError, match="alpha"):
            signtest.slower_min(12, alpha_ppm)


# reference landing.md 3.8: n, smallest p, least k at 5 %, at 1 %, rank of the interval's ends, its coverage
PUBLISHED = [
    (3, 0.125, None, None, None, None),
    (4, 0.0625, None, None, None, None),
    (5, 0.03125, 5, None, None, None),
    (6, 0.015625, 6, None, 1, 0.9688),
    (7, 0.0078125, 7, 7, 1, 0.9844),
    (8, 0.00390625, 7, 8, 1, 0.9922),
    (9, 0.001953125, 8, 9, 2, 0.9609),
    (10, 0.0009765625, 9, 10, 2, 0.9785),
    (11, 0.00048828125, 9, 10, 2, 0.9883),
    (12, 0.000244140625, 10, 11, 3, 0.9614),
    (16, 2**-16, 12, 14, 4, 0.9787),
    (20, 2**-20, 15, 16, 6, 0.9586),
]


@pytest.mark.parametrize(("n", "p", "least_5", "least_1", "rank", "coverage"), PUBLISHED)
def test_published_table(
    n: int, p: float, least_5: int | None, least_1: int | None, rank: int | None, coverage: float | None
) -> None:
    """Smallest p, least number of slower pairs and interval agree with the published table, row by row."""
    assert float(signtest.smallest_p(n)) == p
    assert (signtest.slower_min(n, 50_000), signtest.slower_min(n, 10_000)) == (least_5, least_1)
    assert signtest.interval_rank(n) == rank
    if rank is None:
        assert signtest.interval(range(n)) is None
    else:
        assert signtest.interval(range(1, n + 1)) == (rank, n + 1 - rank)
        assert round(1 - 2 * level(n, n - rank + 1), 4) == coverage
        assert 1 - 2 * level(n, n - rank) < 0.95


# reference landing.md 3.9: n, least k, true level, power at +0.5 % and at +1 % for noise of 0.5 % on each side
POWER = [
    (5, 5, 0.031, 0.25, 0.66),
    (6, 6, 0.016, 0.19, 0.61),
    (8, 7, 0.035, 0.39, 0.87),
    (10, 9, 0.011, 0.27, 0.82),
    (11, 9, 0.033, 0.49, 0.95),
    (12, 10, 0.019, 0.42, 0.94),
    (13, 10, 0.046, 0.62, 0.98),
    (16, 12, 0.038, 0.67, 0.99),
    (18, 13, 0.048, 0.75, 1.0),
    (20, 15, 0.021, 0.66, 1.0),
    (23, 16, 0.047, 0.84, 1.0),
]


@pytest.mark.parametrize(("n", "least", "true_level", "half", "one"), POWER)
def test_published_power(n: int, least: int, true_level: float, half: float, one: float) -> None:
    """Level and power of the advised numbers of pairs agree with the published table: power is not monotone in n."""
    assert signtest.slower_min(n, 50_000) == least
    assert round(float(signtest.p_value(least, n)), 3) == true_level
    for effect, power in ((0.5, half), (1.0, one)):
        heads = 0.5 * (1 + math.erf(effect / (0.5 * math.sqrt(2)) / math.sqrt(2)))  # difference of two normals
        assert abs(level(n, least, heads) - power) < 0.0051


def test_advised_pairs_waste_least_alpha() -> None:
    """Each advised n has more power than every smaller n, which is why these and no others are advised."""
    heads = 0.76
    power = {n: level(n, columns[0], heads) for n, columns in signtest.SLOWER_MIN.items() if columns[0]}
    for n in signtest.PAIRS_ADVISED:
        assert all(power[n] > power[smaller] for smaller in power if smaller < n)
    assert power[10] < power[8]
    assert power[20] < power[18]


def test_interval_takes_sorted_ratios() -> None:
    """Unsorted ratios are refused; equal ones are in order; the ends are values that were measured."""
    assert signtest.interval([7, 7, 7, 7, 7, 7]) == (7, 7)
    assert signtest.interval([]) is None
    assert signtest.interval([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]) == (4, 1024)
    with pytest.raises(ValueError, match="not sorted"):
        signtest.interval([1, 3, 2, 4, 5, 6])


def test_ratio_and_median_are_integers_rounded_half_up() -> None:
    """Ratios and medians by hand."""
    assert signtest.ratio_ppm(candidate_ps=1_003_300, baseline_ps=1_000_000) == 1_003_300
    assert signtest.ratio_ppm(candidate_ps=1, baseline_ps=3) == 333_333
    assert signtest.ratio_ppm(candidate_ps=2, baseline_ps=3) == 666_667
    assert signtest.ratio_ppm(candidate_ps=1, baseline_ps=2_000_000) == 1
    assert signtest.median_ppm([5]) == 5
    assert signtest.median_ppm([9, 1, 4]) == 4
    assert signtest.median_ppm([1, 4]) == 3
    assert signtest.median_ppm([4, 1, 9, 5]) == 5


@pytest.mark.parametrize(
    ("p_values", "significant"),
    [
        ([], ()),
        (["1/20"], (True,)),
        (["51/1000"], (False,)),
        (["1/25", "1/25"], (False, False)),
        (["1/40", "1/20"], (True, True)),
        (["1/20", "1/40"], (True, True)),
        (["1/40", "51/1000"], (True, False)),
        (["1/100", "4/100", "3/100", "5/1000"], (True, False, False, True)),
        (["1", "1/1000", "1/2"], (False, True, False)),
        (["2/100", "2/100", "2/100"], (False, False, False)),
    ],
)
def test_holm_by_hand(p_values: list[str], significant: tuple[bool, ...]) -> None:
    """Holm's step-down by hand: the smallest p meets alpha / m, the next alpha / (m - 1), until one fails."""
    assert signtest.holm([Fraction(text) for text in p_values], 50_000) == significant


def test_holm_lies_between_bonferroni_and_no_correction() -> None:
    """What Bonferroni finds, Holm finds; what Holm finds, single tests find."""
    values = [Fraction(k, 100) for k in (0, 1, 2, 3, 4, 5, 6)]
    for three in itertools.product(values, repeat=3):
        found = signtest.holm(three, 50_000)
        for p, yes in zip(three, found, strict=True):
            assert yes or p > Fraction(1, 60)
            assert not yes or p <= Fraction(1, 20)
