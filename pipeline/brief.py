"""Rules 2 and 3: the verdict of rules 1, with what a record would say again and again said once. Pure.

A record is bounded, and a subject's checks are not few. Rules 2: an input that several checks read is a row of the
record that they point at, the tool's own word for the artifact that it was given is left out, and the samples of a
figure stay in the evidence, with n and their range on record. Rules 3 leave out what is as it should be: the green of
neutral mutants, which the reasons count, and, in sizes.py, the sizes that did not change; of a place where a mutant was
caught they keep the beginning. As with rules 1, no stored verdict may come to depend on other code.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Final

from pipeline import claims, verdict
from pipeline.claims import Counterproof, Input
from pipeline.proof import CANDIDATE, WHEN, Evidence, Plan
from pipeline.verdict import Decision


def judge(plan: Plan, evidence: Evidence) -> Decision:
    """The verdict by rules 2. Raises ValueError for evidence that lacks a job of the plan or contradicts itself."""
    made = verdict.judge(plan, evidence)
    own = {check.id: _without_echoes(check.inputs) for check in made.checks}
    times = Counter(row for rows in own.values() for row in rows)
    shared = tuple(row for row, n in sorted(times.items(), key=_by_name) if n > 1 and row.name not in _KEPT)
    places = {row: i for i, row in enumerate(shared)}
    checks = tuple(
        dataclasses.replace(
            check,
            inputs=tuple(row for row in own[check.id] if row not in places),
            also=tuple(places[row] for row in own[check.id] if row in places),
        )
        for check in made.checks
    )
    return dataclasses.replace(made, checks=checks, inputs=shared, figures=tuple(map(_ranged, made.figures)))


def judge_briefly(plan: Plan, evidence: Evidence) -> Decision:
    """The verdict by rules 3. Raises ValueError for evidence that lacks a job of the plan or contradicts itself."""
    made = judge(plan, evidence)
    checks = tuple(
        dataclasses.replace(
            check, counterproofs=tuple(_cut(proof) for proof in check.counterproofs if proof.outcome != "green")
        )
        for check in made.checks
    )
    return dataclasses.replace(made, checks=checks)


WHERE_MAX: Final = 64  # characters of the place at which a mutant was caught
_KEPT: Final = (f"{{{CANDIDATE}}}", WHEN)  # what every check says for itself


def _by_name(row: tuple[Input, int]) -> tuple[str, str, str]:
    return row[0].name, row[0].origin, row[0].digest


def _without_echoes(rows: tuple[Input, ...]) -> tuple[Input, ...]:
    """The rows without those that a command added for bytes which one of its placeholders names already."""
    given = {row.digest for row in rows if row.name.startswith("{")}
    return tuple(row for row in rows if row.name.startswith("{") or row.digest not in given)


def _cut(proof: Counterproof) -> Counterproof:
    long = proof.outcome == "caught" and proof.where is not None and len(proof.where) > WHERE_MAX
    return dataclasses.replace(proof, where=f"{proof.where:.{WHERE_MAX}}...") if long else proof


def _ranged(figure: claims.Figure) -> claims.Figure:
    """One sample is the value; of more, the range is said."""
    low, high = (min(figure.samples), max(figure.samples)) if figure.n > 1 else (None, None)
    return dataclasses.replace(figure, samples=(), low=low, high=high)
