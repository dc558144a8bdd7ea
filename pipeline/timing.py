"""Samples to a verdict on time, pure: order of the runs from the seed, tallies, Holm over the cases, one sentence.

Only a confirmed regression counts against a candidate: p <= alpha after Holm's correction, and a median ratio
beyond the target's margin. Where the A/A control moved the same way, the candidate must be beyond the control too.
Valid from five untied pairs on (2^-5 <= 0.05); below that the sentence says so and there is no verdict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pipeline import canonical, signtest
from pipeline.claims import Control, Digest, Timing
from pipeline.proof import ROLES, Plan, Sample
from pipeline.signtest import Tally
from pipeline.subject import Bench

PPM: Final = 1_000_000
CORRECTED: Final = 6  # the rules since which n is too small where Holm's correction leaves no verdict to reach
TIES_MAX_PPM: Final = 200_000  # of the pairs; above, the timer is too coarse for this case
REGRESSION, GAIN, INSIDE, INCONCLUSIVE, TOO_FEW = (
    "regression",
    "gain",
    "inside the noise band",
    "inconclusive",
    "too few",
)


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
    return canonical.pack(tuple(samples))


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
            raise ValueError(
                f"bench {bench.name}: it timed {', '.join(next(iter(cases)))} and not the manifest's cases"
            )
    if any(value <= 0 for s in samples for value in s.medians_ps.values()):
        raise ValueError("a sample took no time: the clock stood still")


def judge(plan: Plan, samples: Sequence[Sample]) -> tuple[Timing, ...]:
    """One Timing a case. Raises ValueError for samples that are not the plan's."""
    check_samples(plan, samples)
    digest = Digest(sha256=canonical.sha256(samples_bytes(samples)))
    rows = [(bench, case) for bench in plan.benches for case in _cases(bench, samples)]
    seen = [_medians(bench, case, samples) for bench, case in rows]
    against = [_Pairs.of(medians["candidate"], medians["baseline"]) for medians in seen]
    slower = signtest.holm([pairs.p_slower for pairs in against], plan.alpha_ppm)
    faster = signtest.holm([pairs.p_faster for pairs in against], plan.alpha_ppm)
    made = []
    for i, ((bench, case), medians, pairs) in enumerate(zip(rows, seen, against, strict=True)):
        control = _Pairs.of(medians["control"], medians["baseline"])
        p = min(pairs.p_slower, pairs.p_faster)
        made.append(
            Timing(
                case=f"{bench.name}:{case}",
                pairs=bench.pairs,
                seed=plan.seed,
                faster=pairs.tally.faster,
                slower=pairs.tally.slower,
                ties=pairs.tally.ties,
                p_numerator=p.numerator,
                p_denominator=p.denominator,
                ratio_ppm=pairs.median_ppm,
                interval_ppm=signtest.interval(pairs.ratios_ppm) or (),
                verdict=_verdict(plan, len(rows), medians, pairs, control, slower=slower[i], faster=faster[i]),
                control=Control(
                    faster=control.tally.faster,
                    slower=control.tally.slower,
                    ties=control.tally.ties,
                    ratio_ppm=control.median_ppm,
                ),
                samples=digest,
            )
        )
    return tuple(made)


def sentence(timing: Timing) -> str:
    """What a reviewer reads of one case."""
    more, count = ("slower", timing.slower) if timing.slower >= timing.faster else ("faster", timing.faster)
    shown = INSIDE if timing.verdict == TOO_FEW else timing.verdict
    text = f"{timing.case}: {shown}: {count} of {timing.slower + timing.faster} {more}, {_percent(timing.ratio_ppm)} %"
    if timing.interval_ppm:
        low, high = map(_percent, timing.interval_ppm)
        text += f" (95 % interval {low} to {high})"
    text += f", one-sided p = {timing.p_numerator / timing.p_denominator:.3g}"
    if timing.ties:
        text += f", {timing.ties} ties dropped"
    text += _ending(timing)
    if timing.control is not None:
        text += f"; A/A control {_percent(timing.control.ratio_ppm)} %"
    return text


@dataclass(frozen=True, slots=True)
class _Pairs:
    """One side against another, pair by pair."""

    tally: Tally
    ratios_ppm: tuple[int, ...]  # sorted

    @classmethod
    def of(cls, one_ps: Sequence[int], other_ps: Sequence[int]) -> _Pairs:
        """Of medians in picoseconds, in the order of the pairs. `slower` counts pairs in which `one` was slower."""
        pairs = [{"candidate_ps": one, "baseline_ps": other} for one, other in zip(one_ps, other_ps, strict=True)]
        ratios = sorted(signtest.ratio_ppm(**pair) for pair in pairs)
        return cls(signtest.tally(signtest.sign(**pair) for pair in pairs), tuple(ratios))

    @property
    def median_ppm(self) -> int:
        return signtest.median_ppm(self.ratios_ppm)

    @property
    def p_slower(self) -> Fraction:
        return signtest.p_value(self.tally.slower, self.tally.n)

    @property
    def p_faster(self) -> Fraction:
        return signtest.p_value(self.tally.faster, self.tally.n)


def _verdict(
    plan: Plan,
    cases: int,
    medians: Mapping[str, Sequence[int]],
    pairs: _Pairs,
    control: _Pairs,
    *,
    slower: bool,
    faster: bool,
) -> str:
    """`slower` and `faster` say what is significant after Holm's correction over so many cases."""
    if _is_coarse(pairs.tally):
        return INCONCLUSIVE
    corrected = cases if plan.rules >= CORRECTED and not (slower or faster) else 1
    if signtest.smallest_p(pairs.tally.n) * PPM * corrected > plan.alpha_ppm:
        return TOO_FEW
    found = _beyond(plan, pairs, slower=slower, faster=faster)
    if found != INSIDE and _alone(plan, control) == found:
        beyond_control = _alone(plan, _Pairs.of(medians["candidate"], medians["control"]))
        return found if beyond_control == found else INCONCLUSIVE
    return found


def _beyond(plan: Plan, pairs: _Pairs, *, slower: bool, faster: bool) -> str:
    if slower and pairs.median_ppm > PPM + plan.margin_ppm:
        return REGRESSION
    return GAIN if faster and pairs.median_ppm < PPM - plan.margin_ppm else INSIDE


def _alone(plan: Plan, pairs: _Pairs) -> str:
    """What one comparison shows by itself, without a correction for others."""
    slower, faster = (p * PPM <= plan.alpha_ppm for p in (pairs.p_slower, pairs.p_faster))
    return _beyond(plan, pairs, slower=slower, faster=faster)


def _is_coarse(tally: Tally) -> bool:
    return tally.ties_ppm > TIES_MAX_PPM


def _percent(ratio_ppm: int) -> str:
    return f"{(ratio_ppm - PPM) / 10_000:+.2f}"


def _ending(timing: Timing) -> str:
    if timing.verdict == INCONCLUSIVE:
        coarse = _is_coarse(Tally(timing.faster, timing.slower, timing.ties))
        return "; the timer is too coarse" if coarse else "; the control moved too"
    return _ENDINGS[timing.verdict]


_ENDINGS: Final = {
    REGRESSION: "; a confirmed regression",
    GAIN: "; a confirmed gain",
    INSIDE: "; not a confirmed regression",
    TOO_FEW: ", n too small for any verdict; not a confirmed regression",
}


def _cases(bench: Bench, samples: Sequence[Sample]) -> tuple[str, ...]:
    return tuple(sorted(next(s.medians_ps for s in samples if s.bench == bench.name)))


def _medians(bench: Bench, case: str, samples: Sequence[Sample]) -> dict[str, list[int]]:
    """Role to the medians of one case, in picoseconds, by pair."""
    made: dict[str, list[int]] = {role: [] for role in ROLES}
    for sample in samples:
        if sample.bench == bench.name:
            made[sample.role].append(sample.medians_ps[case])
    return made
