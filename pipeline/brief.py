"""Rules 2 and later: the verdict of rules 1, told in the room that a record has. Pure.

A record is bounded, and a subject's checks are not few. An input that several checks read is a row of the record that
they point at, the tool's own word for the artifact that it was given is left out, and the samples of a figure stay in
the evidence, with n and their range on record. Later rules leave out what is as it should be: the green of neutral
mutants, which the reasons count, and, in sizes.py, the sizes that did not change; and of a place where a mutant was
caught they keep the beginning. Since rules 5 a run against a mutant ends where it was caught; since
rules 6 n is too small where no verdict is left after Holm's correction. As with rules 1, no
stored verdict may come to depend on other code.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline import claims, verdict
from pipeline.claims import Counterproof, Input
from pipeline.proof import CANDIDATE, WHEN, Evidence, Plan
from pipeline.verdict import Decision


@dataclass(frozen=True, slots=True)
class _Telling:
    """What a record is told: inputs that every check names itself; neutral mutants' green; letters of a place."""

    own: tuple[str, ...]
    green: bool
    place_max: int


_TOLD: Final[Mapping[int, _Telling]] = {
    2: _Telling(own=(f"{{{CANDIDATE}}}", WHEN), green=True, place_max=10_000),
    3: _Telling(own=(f"{{{CANDIDATE}}}", WHEN), green=False, place_max=64),
    4: _Telling(own=(WHEN,), green=False, place_max=32),
    5: _Telling(own=(WHEN,), green=False, place_max=32),
    6: _Telling(own=(WHEN,), green=False, place_max=32),
}
RULES: Final = tuple(_TOLD)


def judge(plan: Plan, evidence: Evidence) -> Decision:
    """The verdict by the plan's rules. Raises ValueError for evidence that lacks a job of it or contradicts itself."""
    made, telling = verdict.judge(plan, evidence), _TOLD[plan.rules]
    own = {check.id: _without_echoes(check.inputs) for check in made.checks}
    times = Counter(row for rows in own.values() for row in rows)
    shared = tuple(row for row, n in sorted(times.items(), key=_by_name) if n > 1 and row.name not in telling.own)
    places = {row: i for i, row in enumerate(shared)}
    checks = tuple(
        dataclasses.replace(
            check,
            inputs=tuple(row for row in own[check.id] if row not in places),
            also=tuple(places[row] for row in own[check.id] if row in places),
            counterproofs=tuple(
                _cut(proof, telling.place_max)
                for proof in check.counterproofs
                if telling.green or proof.outcome != "green"
            ),
        )
        for check in made.checks
    )
    return dataclasses.replace(made, checks=checks, inputs=shared, figures=tuple(map(_ranged, made.figures)))


def _by_name(row: tuple[Input, int]) -> tuple[str, str, str]:
    return row[0].name, row[0].origin, row[0].digest


def _without_echoes(rows: tuple[Input, ...]) -> tuple[Input, ...]:
    """The rows without those that a command added for bytes which one of its placeholders names already."""
    given = {row.digest for row in rows if row.name.startswith("{")}
    return tuple(row for row in rows if row.name.startswith("{") or row.digest not in given)


def _cut(proof: Counterproof, letters: int) -> Counterproof:
    long = proof.outcome == "caught" and proof.where is not None and len(proof.where) > letters
    return dataclasses.replace(proof, where=f"{proof.where:.{letters}}...") if long else proof


def _ranged(figure: claims.Figure) -> claims.Figure:
    """One sample is the value; of more, the range is said."""
    low, high = (min(figure.samples), max(figure.samples)) if figure.n > 1 else (None, None)
    return dataclasses.replace(figure, samples=(), low=low, high=high)
