"""A kit to evidence: runs every command that the plans ask for and writes down what was seen. It never judges.

All that a machine needs for it is Python, NumPy, pytest-benchmark and what the subject's tools import. What was done
lies on disk as it is done, so a proof that was stopped or killed goes on where it was.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import signal
import time
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipeline import canonical, commands, durable, kit, machine, outputs, placeholders, timing, verbs
from pipeline.claims import Input, without_folders
from pipeline.errors import BuildError, MachineError, UsageError
from pipeline.progress import track
from pipeline.proof import (
    CANDIDATE,
    ROLES,
    Bound,
    Difference,
    Evidence,
    FigureSeen,
    FiguresSeen,
    Job,
    JobSeen,
    Plan,
    Sample,
    SideSeen,
)
from pipeline.room import Room
from pipeline.subject import Bench, Check, Figure, matches

TAIL_MAX: Final = 2_000  # characters of a command's output that evidence keeps
PICOSECONDS: Final = 10**12
SECONDS_MAX: Final = 100 * 86_400  # in picoseconds it has 63 bits
SHARE_MAX: Final = 14  # commands on one device at once: most of their time is their host's, and its memory is bounded
SPARE: Final = 2  # processors that they leave to this process, which hashes and compares what they wrote
MEASURE_LIMIT_S: Final = 600  # of one sample, or one figure command


def prove(folder: Path, out: Path, *, seconds: int | None = None) -> tuple[Evidence, ...]:
    """Runs a kit and writes its evidence to `out`, once.

    With `seconds` it stops cleanly when they are over, and raises Waiting; the next call goes on. Raises UsageError,
    IntegrityError for a broken kit, and MachineError.
    """
    if out.exists():
        raise UsageError(out, "the file exists", "name a new one: evidence is written once")
    deadline = time.monotonic() + seconds if seconds is not None else None
    opened = kit.load(folder)
    work = work_of(out)
    rooms = (Room(opened, plan, work / canonical.sha256(plan.to_bytes())[:16], deadline) for plan in opened.plans)
    found = tuple(_Proof(room.plan, room).run() for room in rooms)
    durable.create_once(out, canonical.pack(kit.EvidenceFile(evidence=found)))
    shutil.rmtree(work, ignore_errors=True)
    return found


def work_of(out: Path) -> Path:
    """Where a proof keeps what it has done until its evidence is whole. Absolute: commands run elsewhere."""
    return out.absolute().with_name(out.name + ".work")


@dataclass(frozen=True, slots=True)
class _Proof:
    """The proof of one plan, in its room."""

    plan: Plan
    room: Room

    def run(self) -> Evidence:
        started = self.room.once("started", machine.now, str)
        for name in self.plan.trees:
            self.room.spread(name)
        first = [job for job in self.plan.jobs if job.of == CANDIDATE]
        jobs = self._jobs("checks", first)
        sound = all(self._green(job, seen) for job, seen in zip(first, jobs, strict=True))
        if sound:
            jobs += self._jobs("counterproofs", [job for job in self.plan.jobs if job.of != CANDIDATE])
        samples = [s for bench in self.plan.benches for s in self._samples(bench)] if sound else []
        figures = [f for figure in self.plan.figures for f in self._figure(figure)] if sound else []
        return Evidence(
            plan=canonical.sha256(self.plan.to_bytes()),
            machine=machine.describe(self.plan.needs),
            time={"startedOn": started, "finishedOn": self.room.once("finished", machine.now, str)},
            jobs=tuple(jobs),
            samples=tuple(samples),
            figures=tuple(figures),
        )

    def _green(self, job: Job, seen: JobSeen) -> bool:
        return verbs.outcome(self.plan.check(job.check), seen, teeth=job.teeth).colour is verbs.Colour.GREEN

    def _jobs(self, title: str, jobs: list[Job]) -> list[JobSeen]:
        """Every job's evidence, in order. As many run at once as there are processors; a device is shared by a few."""
        processors = os.cpu_count() or 1
        workers = max(1, min(processors - SPARE, SHARE_MAX)) if self.plan.needs else processors
        with track(title, len(jobs)) as step, commands.threads(workers) as pool:
            waiting = {pool.submit(self._job, job): job for job in jobs}
            for done in as_completed(waiting):
                done.result()
                step(waiting[done].id)
            return [done.result() for done in waiting]

    def _job(self, job: Job) -> JobSeen:
        return self.room.once(f"job-{job.id}", lambda: self._run_job(job), JobSeen)

    def _run_job(self, job: Job) -> JobSeen:
        check = self.plan.check(job.check)
        room = self.room.run(job.id)
        sides, folders = [], []
        for i, argv in enumerate(check.commands(teeth=job.teeth)):
            folders.append(room / str(i))
            sides.append(self._side(check, job, argv, folders[-1]))
            if self.plan.stops(job) and verbs.alone(check, sides[i], i):
                break
        if any(side.code == -signal.SIGKILL and not side.timed_out for side in sides):
            todo = "see to memory, and run the same command again"
            raise MachineError(f"check {check.id}", "a command of it was killed from outside", todo)
        failed = any(side.code or side.timed_out for side in sides)
        if failed:
            durable.require_room(room)
        differences, bounds = ((), ()) if failed else _compare(check, folders)
        shutil.rmtree(room, ignore_errors=True)
        return JobSeen(id=job.id, sides=tuple(sides), differences=differences, bounds=bounds)

    def _side(self, check: Check, job: Job, argv: tuple[str, ...], out: Path) -> SideSeen:
        out.mkdir()
        where, inputs = self.room.placeholders(argv, of=job.of, tree=job.tree)
        log = out.with_suffix(".log")
        done = commands.run(
            placeholders.fill(argv, where | {"out": str(out)}),
            cwd=self.room.tree(job.tree),
            env=dict(check.env),
            limit_s=check.limit_s,
            log=log,
        )
        tail = done.tail[-TAIL_MAX:] if done.code or check.verb == "refuses" else ""
        absent = check.absent
        return SideSeen(
            argv=argv,
            code=done.code,
            timed_out=done.timed_out,
            seconds_ms=done.seconds_ms,
            tail=without_folders(tail),
            matches=sum(absent in line for line in log.read_text(errors="replace").splitlines()) if absent else 0,
            cut=done.cut,
            files=outputs.listing(out),
            inputs=(*inputs, *_declared(out)),
        )

    def _samples(self, bench: Bench) -> list[Sample]:
        made = []
        with track(f"timing {bench.name}", bench.pairs * len(ROLES)) as step:
            for pair in range(bench.pairs):
                for order, role in enumerate(timing.turns(self.plan.seed, bench.name, pair)):
                    take = functools.partial(self._sample, bench, pair, role, order)
                    made.append(self.room.once(f"sample-{bench.name}-{pair}-{role}", take, Sample))
                    step(f"pair {pair + 1}, {role}")
        return made

    def _sample(self, bench: Bench, pair: int, role: str, order: int) -> Sample:
        data = self._measure(f"{bench.name}-{pair:03d}-{order}", bench.command, of=role, leaves="bench.json")
        try:
            medians = {row["name"]: _picoseconds(row["stats"]["median"]) for row in data["benchmarks"]}
            rounds = {row["name"]: _rounds(row["stats"]["rounds"]) for row in data["benchmarks"]}
            if len(medians) != len(data["benchmarks"]):
                raise ValueError("two cases have one name")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BuildError(
                f"bench {bench.name}", f"bench.json is not pytest-benchmark's: {error}", "correct the command"
            ) from None
        return Sample(bench=bench.name, pair=pair, role=role, order=order, medians_ps=medians, rounds=rounds)

    def _figure(self, figure: Figure) -> tuple[FigureSeen, ...]:
        def measure() -> FiguresSeen:
            rows = self._measure(f"figure-{figure.name}", figure.command, of=CANDIDATE, leaves="figures.json")
            try:
                canonical.dumps(rows)
                made = canonical.typed(FiguresSeen, {"rows": rows}, "figures.json")
                return FiguresSeen(rows=tuple(dataclasses.replace(r, name=without_folders(r.name)) for r in made.rows))
            except ValueError as error:
                raise BuildError(
                    f"figure {figure.name}", str(error), "leave [{name, unit, values}] of integers"
                ) from None

        return self.room.once(f"figure-{figure.name}", measure, FiguresSeen).rows

    def _measure(self, room: str, command: tuple[str, ...], *, of: str, leaves: str) -> Any:
        """What a timing command leaves as JSON in its output folder. Raises BuildError if it leaves none."""
        out = self.room.run(room)
        where, _ = self.room.placeholders(command, of=of, tree=CANDIDATE)
        argv = placeholders.fill(command, where | {"out": str(out)})
        cwd, log = self.room.tree(CANDIDATE), out / "log"
        done = commands.run(argv, cwd=cwd, env={}, limit_s=MEASURE_LIMIT_S, log=log)
        try:
            if done.code or done.timed_out:
                raise ValueError(f"exit code {done.code}: {without_folders(done.last_line)}")
            return json.loads(durable.read(out / leaves))
        except FileNotFoundError:
            raise BuildError(f"command of {room}", f"left no {leaves}", "correct the command") from None
        except ValueError as error:
            raise BuildError(
                f"command of {room}", f"left no {leaves}: {error}", "correct the command, or the fault it met"
            ) from None
        finally:
            shutil.rmtree(out, ignore_errors=True)


def _picoseconds(seconds: object) -> int:
    """Raises ValueError for what is no time: not a number, NaN, nothing, less, or more than 100 days."""
    if not isinstance(seconds, (int, float)) or not 0 < seconds < SECONDS_MAX:
        raise ValueError(f"{seconds!r} is no time in seconds")
    return round(seconds * PICOSECONDS)


def _rounds(count: object) -> int:
    if type(count) is not int or not 0 < count <= canonical.INTEGER_MAX:
        raise ValueError(f"{count!r:.40} is no number of rounds")
    return count


def _declared(out: Path) -> tuple[Input, ...]:
    """The inputs that a command says it generated, in inputs.json."""
    path = out / "inputs.json"
    if not path.exists():
        return ()
    try:
        rows = [canonical.typed(Input, row, f"[{i}]") for i, row in enumerate(json.loads(path.read_bytes()))]
        return tuple(dataclasses.replace(row, origin=without_folders(row.origin)) for row in rows)
    except (ValueError, TypeError) as error:
        raise BuildError(
            "inputs.json", f"a command left a bad one: {error}", "give name, origin and digest of each input"
        ) from None


def _compare(check: Check, folders: list[Path]) -> tuple[tuple[Difference, ...], tuple[Bound, ...]]:
    """Differences and bounds of the sides, before their files are removed."""
    if check.verb == "same":
        return outputs.compare(folders) + outputs.not_finite(folders[0]), ()
    found: tuple[Difference, ...] = ()
    bounds: tuple[Bound, ...] = ()
    left = {file.name for folder in folders for file in outputs.listing(folder)} if check.within else set()
    for bound in check.within:
        files = sorted(name for name in left if matches(name, bound.files))
        seen, missed = outputs.within(folders[0], folders[1], files, bound.dtype)
        bounds, found = bounds + seen, found + missed
    return found, bounds
