"""Samples to a verdict on time, pure: order of the runs from the seed, tallies, Holm over the cases, one sentence.

Only a confirmed regression counts against a candidate: p <= alpha after Holm's correction, and a median ratio
beyond the target's margin, and an A/A control that did not move the same way. Valid from five untied pairs on
(2^-5 <= 0.05); below that the sentence says so and there is no verdict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from pipeline import canonical, signtest
from pipeline.claims import Control, Digest, Timing
from pipeline.kit import ROLES, Plan, Sample
from pipeline.signtest import Tally
from pipeline.subject import Bench

PPM: Final = 1_000_000
TIES_MAX_PPM: Final = 200_000  # of the pairs; above, the timer is too coarse for this case
REGRESSION, GAIN, INSIDE, INCONCLUSIVE, TOO_FEW = "regression", "gain", "inside the noise band", "inconclusive", "too few"


def turns(seed: int, bench: str, pair: int) -> tuple[str, ...]:
    """The order of baseline, candidate and control in one pair.

    A fair coin says whether the baseline runs before the candidate; a second throw places the control. Both come
    from SHA-256 of the logged seed, so any reader can throw them again.
    """
    throw = int.from_bytes(hashlib.sha256(f"{seed}/{bench}/{pair}".encode()).digest(), "big")
    order = ["baseline", "candidate"] if throw & 1 else ["candidate", "baseline"]
    order.insert((throw >> 1) % 3, "control")
    return tuple(order)


def samples_bytes(samples: Sequence[Sample]) -> bytes:
    """The samples object that a record names: every sample in the order in which it was planned."""
    return canonical.dumps([canonical.plain(sample) for sample in samples])


def check_samples(plan: Plan, samples: Sequence[Sample]) -> None:
    """Raises ValueError unless the samples are exactly those that the plan asks for, in the order of its coin."""
    planned = [
        (bench.name, pair, role, order)
        for bench in plan.benches
        for pair in range(bench.pairs)
        for order, role in enumerate(turns(plan.seed, bench.name, pair))
    ]
    if [(s.bench, s.pair, s.role, s.order) for s in samples] != planned:
        raise ValueError("the samples are not the ones that the plan asks for, in the order of its coin")
    for bench in plan.benches:
        cases = {tuple(sorted(s.medians_ps)) for s in samples if s.bench == bench.name}
        if len(cases) != 1 or not all(s.medians_ps for s in samples):
            raise ValueError(f"bench {bench.name}: not every sample timed the same cases")
        if bench.cases and set(bench.cases) != set(next(iter(cases))):
            raise ValueError(f"bench {bench.name}: it timed {', '.join(next(iter(cases)))} and not the manifest's cases")
    if any(value <= 0 for s in samples for value in s.medians_ps.values()):
        raise ValueError("a sample took no time: the clock stood still")


def judge(plan: Plan, samples: Sequence[Sample]) -> tuple[Timing, ...]:
    """One Timing a case. Raises ValueError for samples that are not the plan's."""
    check_samples(plan, samples)
    digest = Digest(sha256=canonical.sha256(samples_bytes(samples)))
    rows = [(bench, case) for bench in plan.benches for case in _cases(bench, samples)]
    seen = [_pairs(bench, case, samples) for bench, case in rows]
    tallies = [_tally(candidate, baseline) for candidate, baseline, _ in seen]
    slower = signtest.holm([_p(t.slower, t) for t in tallies], plan.alpha_ppm)
    faster = signtest.holm([_p(t.faster, t) for t in tallies], plan.alpha_ppm)
    made = []
    for (bench, case), (candidate, baseline, control), tally, is_slower, is_faster in zip(rows, seen, tallies, slower, faster, strict=True):
        ratios = _ratios(candidate, baseline)
        aa = _tally(control, baseline)
        p = _p(max(tally.slower, tally.faster), tally)
        ratio, control_ratio = signtest.median_ppm(ratios), signtest.median_ppm(_ratios(control, baseline))
        made.append(
            Timing(
                case=f"{bench.name}:{case}",
                pairs=bench.pairs,
                seed=plan.seed,
                faster=tally.faster,
                slower=tally.slower,
                ties=tally.ties,
                p_numerator=p.numerator,
                p_denominator=p.denominator,
                ratio_ppm=ratio,
                interval_ppm=signtest.interval(ratios) or (),
                verdict=_verdict(plan, tally, aa, ratio, control_ratio, is_slower, is_faster),
                control=Control(faster=aa.faster, slower=aa.slower, ties=aa.ties, ratio_ppm=control_ratio),
                samples=digest,
            )
        )
    return tuple(made)


def sentence(timing: Timing) -> str:
    """What a reviewer reads of one case."""
    more, count = ("slower", timing.slower) if timing.slower >= timing.faster else ("faster", timing.faster)
    shown = INSIDE if timing.verdict == TOO_FEW else timing.verdict
    text = f"{timing.case}: {shown}: {count} of {timing.slower + timing.faster} {more}, {(timing.ratio_ppm - PPM) / 10_000:+.2f} %"
    if timing.interval_ppm:
        low, high = ((bound - PPM) / 10_000 for bound in timing.interval_ppm)
        text += f" (95 % interval {low:+.2f} to {high:+.2f})"
    text += f", one-sided p = {timing.p_numerator / timing.p_denominator:.3g}"
    if timing.ties:
        text += f", {timing.ties} ties dropped"
    if timing.control is not None:
        text += f"; control {(timing.control.ratio_ppm - PPM) / 10_000:+.2f} %"
    return text + _ENDINGS[timing.verdict]


_ENDINGS: Final = {
    REGRESSION: "; a confirmed regression",
    GAIN: "; a confirmed gain",
    INSIDE: "; not a confirmed regression",
    INCONCLUSIVE: "; not a confirmed regression",
    TOO_FEW: ", n too small for any verdict; not a confirmed regression",
}


def _verdict(plan: Plan, tally: Tally, aa: Tally, ratio: int, control: int, slower: bool, faster: bool) -> str:
    if tally.ties_ppm > TIES_MAX_PPM:
        return INCONCLUSIVE
    if signtest.smallest_p(tally.n) * PPM > plan.alpha_ppm:
        return TOO_FEW
    if slower and ratio > PPM + plan.margin_ppm:
        moved = _p(aa.slower, aa) * PPM <= plan.alpha_ppm and control > PPM + plan.margin_ppm
        return INCONCLUSIVE if moved else REGRESSION
    if faster and ratio < PPM - plan.margin_ppm:
        moved = _p(aa.faster, aa) * PPM <= plan.alpha_ppm and control < PPM - plan.margin_ppm
        return INCONCLUSIVE if moved else GAIN
    return INSIDE


def _cases(bench: Bench, samples: Sequence[Sample]) -> tuple[str, ...]:
    return tuple(sorted(next(s.medians_ps for s in samples if s.bench == bench.name)))


def _pairs(bench: Bench, case: str, samples: Sequence[Sample]) -> tuple[list[int], list[int], list[int]]:
    """Candidate, baseline and control medians of one case, in picoseconds, by pair."""
    by_role: dict[str, list[int]] = {role: [] for role in ROLES}
    for sample in samples:
        if sample.bench == bench.name:
            by_role[sample.role].append(sample.medians_ps[case])
    return by_role["candidate"], by_role["baseline"], by_role["control"]


def _tally(candidate: Sequence[int], baseline: Sequence[int]) -> Tally:
    signs = [signtest.sign(candidate_ps=c, baseline_ps=b) for c, b in zip(candidate, baseline, strict=True)]
    return signtest.tally(signs)


def _p(count: int, tally: Tally) -> Fraction:
    return signtest.p_value(count, tally.n)


def _ratios(candidate: Sequence[int], baseline: Sequence[int]) -> list[int]:
    pairs = zip(candidate, baseline, strict=True)
    return sorted(signtest.ratio_ppm(candidate_ps=c, baseline_ps=b) for c, b in pairs)
