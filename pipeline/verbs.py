"""The five verbs: what was seen of one job, to green, red or unobtainable, with the first place that is wrong.

Pure. A command's own word that it passed counts for nothing: only files, exit codes and printed words do.
Evidence that contradicts itself raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pipeline import canonical
from pipeline.claims import Outputs
from pipeline.proof import File, JobSeen, SideSeen
from pipeline.subject import Check, Refusal, matches

UNOBTAINABLE_CODE: Final = 77  # a command's way to say: the tool or the device that this proof needs is not here
PPB: Final = 1000  # parts per billion in one part per million


class Colour(Enum):
    """The outcome of one job."""

    GREEN = "green"
    RED = "red"
    UNOBTAINABLE = "unobtainable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Colour of a job; where it is not green, why. `differing` counts files, or cases, that are not as promised."""

    colour: Colour
    where: str | None
    differing: int


def outcome(check: Check, seen: JobSeen, *, teeth: bool, stops: bool = False) -> Outcome:
    """The colour of one job, run in its teeth form or not; where it `stops`, no side after a wrong one need have run.

    A side that could not be obtained excuses no other side. Raises ValueError when what was seen contradicts itself.
    """
    planned = check.commands(teeth=teeth)
    if stops and 0 < len(seen.sides) < len(planned) and alone(check, seen.sides[-1], len(seen.sides) - 1):
        planned = planned[: len(seen.sides)]  # it is red, whatever the others would have done
    if len(seen.sides) != len(planned):
        raise ValueError(f"job {seen.id} has {len(seen.sides)} sides where the plan has {len(planned)}")
    if tuple(side.argv for side in seen.sides) != planned:
        raise ValueError(f"job {seen.id} ran another command than the plan's")
    lost = [i for i, side in enumerate(seen.sides) if side.code == UNOBTAINABLE_CODE]
    if lost:
        faults = [fault for i, side in enumerate(seen.sides) for fault in alone(check, side, i)]
        if not faults:
            where = f"side {lost[0] + 1}: {_last_line(seen.sides[lost[0]])}"
            return Outcome(colour=Colour.UNOBTAINABLE, where=where, differing=0)
    else:
        faults = _VERBS[check.verb](check, seen)
    colour = Colour.RED if faults else Colour.GREEN
    return Outcome(colour=colour, where=faults[0] if faults else None, differing=len(faults))


def listed(seen: JobSeen) -> Outputs:
    """The first side's files, as a record names them."""
    return listing_of(seen.sides[0].files if seen.sides else ())


def listing_of(files: tuple[File, ...]) -> Outputs:
    """Digest of the listing [[name, digest, bytes], …], how many files, how many bytes."""
    rows = [[file.name, file.sha256, file.bytes] for file in files]
    return Outputs(sha256=canonical.sha256(canonical.dumps(rows)), files=len(files), bytes=sum(f.bytes for f in files))


def _ended(side: SideSeen, index: int) -> list[str]:
    if side.timed_out:
        return [f"side {index + 1}: stopped at its time limit after {side.seconds_ms} ms"]
    if side.code:
        return [f"side {index + 1}: ended with exit code {side.code}: {_last_line(side)}"]
    return []


def alone(check: Check, side: SideSeen, index: int) -> list[str]:
    """What is wrong with one side, whatever the others did; nothing with one that could not be obtained."""
    if side.code == UNOBTAINABLE_CODE:
        return []
    return _refused(check.refuses[index], side, index) if check.verb == "refuses" else _ended(side, index)


def _all_ended(seen: JobSeen) -> list[str]:
    return [fault for i, side in enumerate(seen.sides) for fault in _ended(side, i)]


def _same(check: Check, seen: JobSeen) -> list[str]:
    faults = _all_ended(seen)
    if faults:
        return faults
    if not any(file.bytes for file in seen.sides[0].files):
        return ["nothing was compared: the first side left no byte"]
    differ = any(_digests(side) != _digests(seen.sides[0]) for side in seen.sides[1:])
    places = [difference.place for difference in seen.differences]
    unequal = [d for d in seen.differences if d.kind in ("bytes", "missing", "extra")]
    if differ != bool(unequal):
        raise ValueError(f"job {seen.id}: its digests and its differences contradict each other")
    return places


def _differs(check: Check, seen: JobSeen) -> list[str]:
    faults = _all_ended(seen)
    if faults:
        return faults
    left, right = (_digests(side) for side in seen.sides)
    for glob in check.differs:
        names = [name for name in {**left, **right} if matches(name, (glob,))]
        faults += [f"{name}: not both sides left it" for name in names if not (name in left and name in right)]
        faults += [
            f"{name}: the same bytes on both sides, and they must differ"
            for name in names
            if left.get(name) == right.get(name)
        ]
        if not names:
            faults.append(f"{glob}: neither side left such a file")
    return faults


def _within(check: Check, seen: JobSeen) -> list[str]:
    faults = _all_ended(seen) or [difference.place for difference in seen.differences]
    if faults:
        return faults
    for bound in check.within:
        for glob in bound.files:
            names = [file.name for file in seen.sides[0].files if matches(file.name, (glob,))]
            rows = [row for row in seen.bounds if matches(row.file, (glob,))]
            bare = [name for name in names if not any(row.file == name for row in rows)]
            faults += [f"{name}: nothing was compared" for name in (bare if names else [glob])]
            faults += [
                f"{row.place}: off by {row.worst_ppb / PPB:.3f} ppm of the largest magnitude, "
                f"bound {bound.bound_ppm} ppm"
                for row in rows
                if not row.worst_ppb <= bound.bound_ppm * PPB
            ]
    return faults


def _refuses(check: Check, seen: JobSeen) -> list[str]:
    cases = zip(check.refuses[: len(seen.sides)], seen.sides, strict=True)
    faults = [fault for i, (case, side) in enumerate(cases) for fault in _refused(case, side, i)]
    return faults or ([] if seen.sides else ["no case was run"])


def _refused(case: Refusal, side: SideSeen, index: int) -> list[str]:
    if side.timed_out or side.code != case.code:
        return [f"case {index + 1}: exit code {side.code}, expected {case.code}: {_last_line(side)}"]
    if case.word not in side.tail:
        return [f"case {index + 1}: the word {case.word!r} is not in: {_last_line(side)}"]
    if case.state:
        left = {file.name: file for file in side.files}
        if not {"before.bin", "after.bin"} <= set(left):
            return [f"case {index + 1}: before.bin and after.bin were not left"]
        if not left["before.bin"].bytes:
            return [f"case {index + 1}: nothing was compared: before.bin is empty"]
        if left["before.bin"].sha256 != left["after.bin"].sha256:
            return [f"case {index + 1}: the refusal changed the state"]
    return []


def _clean(check: Check, seen: JobSeen) -> list[str]:
    found = [
        f"side {i + 1}: printed more than a log holds, so it was not searched whole"
        for i, s in enumerate(seen.sides)
        if s.cut
    ]
    found += [f"side {i + 1}: {s.matches} lines hold {check.absent!r}" for i, s in enumerate(seen.sides) if s.matches]
    return _all_ended(seen) or found


_VERBS: Final[Mapping[str, Callable[[Check, JobSeen], list[str]]]] = {
    "same": _same,
    "differs": _differs,
    "within": _within,
    "refuses": _refuses,
    "clean": _clean,
}


def _digests(side: SideSeen) -> dict[str, str]:
    return {file.name: file.sha256 for file in side.files}


def _last_line(side: SideSeen) -> str:
    lines = [line for line in side.tail.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"
