"""Plans, evidence and records for pure tests, from a few words: `drawn.plan()`, `drawn.samples(plan, "++-+0+")`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline import canonical, claims, records, timing
from pipeline.claims import Baseline, Digest, Input
from pipeline.proof import CANDIDATE, Evidence, File, Job, JobSeen, Plan, PlannedMutant, Sample, SideSeen, Tree
from pipeline.subject import Bench, Check, Refusal

BASE_PS = 1_000_000_000  # one millisecond
MORE_PS = 50_000_000  # five percent of it
BEFORE, AFTER = "b" * 64, "c" * 64  # digests of two artifacts
DUMP = ("{python}", "tool.py", "--artifact", "{candidate}", "--out", "{out}")
OLD_DUMP = ("{python}", "tool.py", "--artifact", "{baseline}", "--out", "{out}")


def check(name: str = "twice", verb: str = "same", **changes: Any) -> Check:
    """A check of two sides; of `refuses`, one case."""
    row = Check(
        id=name,
        verb=verb,
        sides=() if verb == "refuses" else (DUMP, DUMP),
        since="one",
        until=None,
        targets=("cpu",),
        teeth=(),
        env=(),
        limit_s=60,
        when=(),
        refuses=(Refusal(argv=DUMP, code=5, word="rows", state=False),) if verb == "refuses" else (),
        within=(),
        differs=(),
        absent="error" if verb == "clean" else None,
    )
    return dataclasses.replace(row, **changes)


def side(files: Mapping[str, bytes] | None = None, **changes: Any) -> SideSeen:
    """What one command left: a file `out.f32` unless others are given."""
    left = {"out.f32": b"1234"} if files is None else files
    rows = tuple(File(name, canonical.sha256(data), len(data)) for name, data in sorted(left.items()))
    tree = Input(name="tree", origin="candidate tree", digest="d" * 64)
    row = SideSeen(argv=DUMP, code=0, timed_out=False, seconds_ms=7, tail="", files=rows, inputs=(tree,))
    return dataclasses.replace(row, **changes)


def seen(job: str, *sides: SideSeen, **changes: Any) -> JobSeen:
    """One job's evidence; two equal sides unless others are given."""
    return JobSeen(id=job, sides=sides or (side(), side()), **changes)


def red(job: str, why: str = "Segmentation fault") -> JobSeen:
    """A job whose second side crashed."""
    return seen(job, side(), side(files={}, code=-11, tail=why))


def bench(name: str = "step", pairs: int = 13, cases: tuple[str, ...] = ()) -> Bench:
    """A bench of so many pairs."""
    return Bench(name, ("{python}", "bench.py", "{artifact}", "{out}"), pairs, "one", ("cpu",), cases)


def plan(**changes: Any) -> Plan:
    """A plan of one check, one mutant that it must catch, a neutral one; nothing is timed."""
    row = Plan(
        sequence=4,
        subject="adder",
        folder="adder",
        target="cpu",
        needs=None,
        block="two",
        revision=0,
        artifact="adder.so",
        baseline=Baseline(sequence=3, sha256=BEFORE),
        identity=False,
        trees={CANDIDATE: Tree(files=(("tool.py", "e" * 64, 0o644),))},
        artifacts={CANDIDATE: AFTER, "baseline": BEFORE},
        inputs={},
        checks=(check(),),
        mutants=(
            PlannedMutant(name="wrong", neutral=False, caught_by=("twice",)),
            PlannedMutant(name="renamed", neutral=True, caught_by=()),
        ),
        jobs=(),
        green={},
        when={},
        dropped=(),
        benches=(),
        figures=(),
        seed=7,
        alpha_ppm=50_000,
        margin_ppm=10_000,
        gate="regression",
        rules=1,
        pipeline="f" * 64,
    )
    made = dataclasses.replace(row, **changes)
    planted = [mutant.name for mutant in made.mutants if mutant.set_up is None]
    made = dataclasses.replace(
        made,
        trees={name: Tree(files=(), over=CANDIDATE) for name in planted} | dict(made.trees),
        artifacts={name: canonical.sha256(name.encode()) for name in planted} | dict(made.artifacts),
    )
    return made if "jobs" in changes else dataclasses.replace(made, jobs=_jobs(made))


def evidence(of: Plan, *, samples: Sequence[Sample] = (), **jobs: JobSeen) -> Evidence:
    """Evidence in which every check is green, every mutant caught and every neutral one green.

    `jobs` replaces what was seen of a job; in a job's name `_at_` stands for `@`. After a red check there are no
    counterproofs, as in a proof.
    """
    other = {name.replace("_at_", "@"): row for name, row in jobs.items()}
    neutral = {mutant.name for mutant in of.mutants if mutant.neutral}
    rows = []
    for job in of.jobs:
        sound = job.of == CANDIDATE or job.of in neutral
        rows.append(other.get(job.id, _green(of.check(job.check), job.id) if sound else red(job.id)))
    if any(other.get(job.id) for job in of.jobs if job.of == CANDIDATE):
        rows = [row for row, job in zip(rows, of.jobs, strict=True) if job.of == CANDIDATE]
    rows = [_fed(of, next(job for job in of.jobs if job.id == row.id), row) for row in rows]
    return Evidence(
        plan=canonical.sha256(of.to_bytes()),
        machine={"model": "an abacus"},
        time={"startedOn": "2024-01-01T00:00:00Z", "finishedOn": "2024-01-01T00:01:00Z"},
        jobs=tuple(rows),
        samples=tuple(samples),
    )


def samples(
    of: Plan, signs: str, control: str = "", *, more_ps: int = MORE_PS, case: str = "sum", name: str = "step"
) -> tuple[Sample, ...]:
    """Samples of one bench from two drawings, a sign a pair: `+` slower than the baseline, `-` faster, `0` the same."""
    step = {"+": more_ps, "-": -more_ps, "0": 0}
    drawn = {"baseline": "0" * len(signs), "candidate": signs, "control": control or "0" * len(signs)}
    return tuple(
        Sample(
            bench=name,
            pair=pair,
            role=role,
            order=order,
            medians_ps={case: BASE_PS + step[drawn[role][pair]]},
            rounds={case: 5},
        )
        for pair in range(len(signs))
        for order, role in enumerate(timing.turns(of.seed, name, pair))
    )


def attempt(**changes: Any) -> records.Attempt:
    """An attempt with a value in every field."""
    return _with(records.Attempt, changes, title="two", baseline=Baseline(sequence=3, sha256=BEFORE), **_PROVED)


def result(**changes: Any) -> records.Result:
    """A result with a value in every field, and one check of every kind of row."""
    rows: dict[str, Any] = {
        "title": "two",
        "attempt": 4,
        "verdict": "landed",
        "reasons": ("1 of 1 checks green in this run",),
        "baseline": Baseline(sequence=3, sha256=BEFORE),
        "evidence": Digest(sha256="3" * 64),
        "checks": (proved(),),
        "sizes": claims.Sizes(
            artifact=(100, 120), sections={".text": (10, 30)}, kernels={"sum": (10, 30), "old": (4, None)}, host={}
        ),
        "timing": (timed(),),
        "figures": (claims.Figure(name="bandwidth", value=7, unit="MB/s", n=3, low=6, high=8),),
        "inputs": (Input(name="y", origin="seed 2", digest="6" * 64),),
    }
    return _with(records.Result, changes, **rows, **_PROVED)


def proved(**changes: Any) -> claims.Check:
    """A green check of a result, with one caught mutant."""
    row = claims.Check(
        id="twice",
        verb="same",
        argv=(DUMP, DUMP),
        inputs=(Input(name="x", origin="seed 1", digest="4" * 64),),
        verdict="green",
        outputs=claims.Outputs(sha256="5" * 64, files=1, bytes=4),
        counterproofs=(claims.Counterproof(mutant="wrong", outcome="caught", by=("twice",), where="out.f32 at 0"),),
    )
    return dataclasses.replace(row, **changes)


def timed(**changes: Any) -> claims.Timing:
    """A timing of three pairs, all of them slower."""
    row = claims.Timing(
        case="step:sum",
        pairs=3,
        seed=7,
        faster=0,
        slower=3,
        ties=0,
        p_numerator=1,
        p_denominator=8,
        ratio_ppm=1_003_300,
        verdict=timing.TOO_FEW,
        samples=Digest(sha256="6" * 64),
        control=claims.Control(faster=1, slower=1, ties=1, ratio_ppm=1_000_000),
    )
    return dataclasses.replace(row, **changes)


def pinned(**changes: Any) -> claims.Pinned:
    """What a target that is never proved gives from the same source."""
    row = claims.Pinned(
        target="arm", artifact=claims.Artifact(name="adder-arm.so", sha256="0d" * 32), bytes=90, build=_PROVED["build"]
    )
    return dataclasses.replace(row, **changes)


def promote(**changes: Any) -> records.Promote:
    """A promote of the result."""
    return _with(records.Promote, changes, title="two", result=5)


def void(**changes: Any) -> records.Void:
    """A void of the attempt."""
    return _with(records.Void, changes, voids=4, who="Ada", why="its samples are lost")


_PROVED: dict[str, Any] = {
    "source": claims.Source(
        sources=Digest(sha256="1" * 64),
        tools=Digest(sha256="2" * 64),
        archive=Digest(sha256="7" * 64),
        git_tree="8" * 40,
        git_commit="9" * 40,
        increment=("1234567 add two",),
    ),
    "build": claims.Build(
        argv=(("{python}", "-m", "cc", "-o", "{out}/adder.so"),),
        toolchain=(claims.Tool(name="cc", version="1.0", digest="0" * 64),),
        reproducible="bytes",
    ),
    "plan": Digest(sha256="a" * 64),
    "limits": ("one thread",),
    "rules": 1,
    "pipeline": Digest(sha256="f" * 64),
    "machine": {"model": "an abacus"},
    "environment": {"OMP_NUM_THREADS": "1"},
}
_PROVED["builds"] = (pinned(),)


def _with(kind: type[Any], changes: Mapping[str, Any], **rows: Any) -> Any:
    whole: dict[str, Any] = {
        "artifact": claims.Artifact(name="adder.so", sha256=AFTER),
        "target": "cpu",
        "block": "two",
        "revision": 0,
        "argv": ("python", "-m", "pipeline", "land"),
        "time": {"on": "2024-01-01T00:00:00Z"},
    }
    return kind(**whole | rows | dict(changes))


def _fed(of: Plan, job: Job, row: JobSeen) -> JobSeen:
    """A job with the inputs that the plan gives it, where a test gave no others."""

    def fed(seen: SideSeen) -> SideSeen:
        other = seen.inputs != side().inputs
        return seen if other else dataclasses.replace(seen, inputs=of.reads(seen.argv, of=job.of, tree=job.tree))

    return dataclasses.replace(row, sides=tuple(map(fed, row.sides)))


def _green(of: Check, job: str) -> JobSeen:
    if of.verb == "refuses":
        return seen(job, *(side(code=case.code, tail=f"refused: {case.word}") for case in of.refuses))
    return seen(job, *(side() for _ in of.commands(teeth=False)))


def _jobs(of: Plan) -> tuple[Job, ...]:
    from pipeline import protocol

    return protocol.plan_jobs(of.checks, of.mutants, green=of.green, short=False)
