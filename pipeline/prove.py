"""A kit to evidence: runs every command that the plans ask for and writes down what was seen. It never judges.

All that a machine needs for it is Python, NumPy, pytest-benchmark and what the subject's tools import. What was done
lies on disk as it is done, so a proof that was stopped or killed goes on where it was.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from pipeline import canonical, commands, durable, kit, outputs, placeholders, timing, verbs
from pipeline.claims import Input, without_folders
from pipeline.errors import BuildError, IntegrityError, UsageError, Waiting
from pipeline.kit import CANDIDATE, Evidence, FigureSeen, FiguresSeen, Job, JobSeen, Kit, Plan, Sample, SideSeen
from pipeline.progress import track
from pipeline.subject import Bench, Check, Figure, matches

T = TypeVar("T")
TAIL_MAX: Final = 2_000  # characters of a command's output that evidence keeps
PICOSECONDS: Final = 10**12


def prove(folder: Path, out: Path, *, seconds: int | None = None) -> tuple[Evidence, ...]:
    """Runs a kit and writes its evidence to `out`, once.

    With `seconds` it stops cleanly when they are over, and raises Waiting; the next call goes on. Raises UsageError,
    IntegrityError for a broken kit, and MachineError.
    """
    if out.exists():
        raise UsageError(out, "the file exists", "name a new one: evidence is written once")
    deadline = time.monotonic() + seconds if seconds is not None else None
    opened = kit.load(folder)
    work = out.with_name(out.name + ".work")
    found = tuple(_Room(opened, plan, work / canonical.sha256(plan.to_bytes())[:16], deadline).run() for plan in opened.plans)
    durable.create_once(out, canonical.dumps(canonical.plain(kit.EvidenceFile(evidence=found))))
    shutil.rmtree(work, ignore_errors=True)
    return found


def machine() -> dict[str, str]:
    """What evidence says of the machine: model, kernel, libc, Python. No host name, user or path."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = (line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name"))
        model = next(names, model)
    return {
        "model": model,
        "cpus": str(os.cpu_count()),
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
    }


def now() -> str:
    """RFC 3339, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class _Room:
    """One plan's place on this machine: trees, artifacts, and one file for each finished job and sample."""

    kit: Kit
    plan: Plan
    folder: Path
    deadline: float | None

    def run(self) -> Evidence:
        started = self._once("started", lambda: now(), str)
        for name in self.plan.trees:
            self._spread(name)
        first = [job for job in self.plan.jobs if job.of == CANDIDATE]
        jobs = self._jobs("checks", first)
        sound = all(self._green(job, seen) for job, seen in zip(first, jobs, strict=True))
        if sound:
            jobs += self._jobs("counterproofs", [job for job in self.plan.jobs if job.of != CANDIDATE])
        samples = [s for bench in self.plan.benches for s in self._samples(bench)] if sound else []
        figures = [f for figure in self.plan.figures for f in self._figure(figure)] if sound else []
        return Evidence(
            plan=canonical.sha256(self.plan.to_bytes()),
            machine=machine(),
            time={"startedOn": started, "finishedOn": self._once("finished", lambda: now(), str)},
            jobs=tuple(jobs),
            samples=tuple(samples),
            figures=tuple(figures),
        )

    def _green(self, job: Job, seen: JobSeen) -> bool:
        return verbs.outcome(self.plan.check(job.check), seen).colour is verbs.Colour.GREEN

    def _jobs(self, title: str, jobs: list[Job]) -> list[JobSeen]:
        """Every job's evidence, in order. As many run at once as there are processors, on a device one."""
        workers = 1 if self.plan.needs else os.cpu_count() or 1
        with track(title, len(jobs)) as step, ThreadPoolExecutor(workers) as pool:
            waiting = {pool.submit(self._job, job): job for job in jobs}
            try:
                for done in as_completed(waiting):
                    done.result()
                    step(waiting[done].id)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                commands.stop_all()
                raise
            return [done.result() for done in waiting]

    def _job(self, job: Job) -> JobSeen:
        return self._once(f"job-{job.id}", lambda: self._run_job(job), JobSeen)

    def _run_job(self, job: Job) -> JobSeen:
        check = self.plan.check(job.check)
        room = self.folder / "runs" / job.id
        shutil.rmtree(room, ignore_errors=True)
        sides, folders = [], []
        for i, argv in enumerate(check.commands(teeth=job.teeth)):
            folders.append(room / str(i))
            sides.append(self._side(check, job, argv, folders[-1]))
        differences, bounds = _compare(check, folders) if not any(s.code or s.timed_out for s in sides) else ((), ())
        shutil.rmtree(room, ignore_errors=True)
        return JobSeen(id=job.id, sides=tuple(sides), differences=differences, bounds=bounds)

    def _side(self, check: Check, job: Job, argv: tuple[str, ...], out: Path) -> SideSeen:
        out.mkdir(parents=True)
        where, inputs = self._placeholders(argv, of=job.of, tree=job.tree)
        log = out.with_suffix(".log")
        done = commands.run(
            placeholders.fill(argv, where | {"out": str(out)}),
            cwd=self.folder / "trees" / job.tree,
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
            files=outputs.listing(out),
            inputs=(*inputs, *_declared(out)),
        )

    def _placeholders(self, argv: Sequence[str], *, of: str, tree: str) -> tuple[dict[str, str], tuple[Input, ...]]:
        """Paths of the placeholders that a command uses, and the table that gives each one's digest."""
        where, table = {"python": sys.executable}, [Input(name="tree", origin=f"{tree} tree", digest=self._tree_digest(tree))]
        for name in sorted({*placeholders.words(argv)} - {"python", "out"}):
            if name.startswith("input:"):
                file, digest, origin = self.plan.inputs[name.removeprefix("input:")]
                where[name] = str(self._place(digest, digest[:16], file))
            elif name.startswith("tools:"):
                digest, origin = self._tree_digest(name), f"{name} tree"
                where[name] = str(self.folder / "trees" / name)
            else:
                role = of if name in ("candidate", "artifact") else name
                digest, origin = self.plan.artifacts["baseline" if role == "control" else role], f"{role} {self.plan.artifact}"
                where[name] = str(self._place(digest, role, self.plan.artifact))
            table.append(Input(name=f"{{{name}}}", origin=origin, digest=digest))
        return where, tuple(table)

    def _place(self, digest: str, role: str, name: str) -> Path:
        """An object as a file of its own, named as its command expects it."""
        path = self.folder / "files" / role / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            durable.replace(path, self.kit.objects[digest])
        return path

    def _tree_digest(self, name: str) -> str:
        rows = sorted((path, digest) for path, (digest, _) in self.plan.tree(name).items())
        return canonical.sha256(canonical.dumps(rows))

    def _spread(self, name: str) -> None:
        """Writes a copy of the subject; a half-written one of a killed run is written again."""
        parent = self.folder / "trees" / name
        done = self.folder / "done" / f"tree-{name}"
        if done.exists():
            return
        shutil.rmtree(parent, ignore_errors=True)
        for path, (digest, mode) in self.plan.tree(name).items():
            file = parent / self.plan.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.kit.objects[digest])
            file.chmod(mode)
        done.parent.mkdir(parents=True, exist_ok=True)
        durable.replace(done, b"")

    def _samples(self, bench: Bench) -> list[Sample]:
        made = []
        with track(f"timing {bench.name}", bench.pairs * len(kit.ROLES)) as step:
            for pair in range(bench.pairs):
                for order, role in enumerate(timing.turns(self.plan.seed, bench.name, pair)):
                    sample = self._once(f"sample-{bench.name}-{pair}-{role}", lambda: self._sample(bench, pair, role, order), Sample)  # noqa: B023
                    made.append(sample)
                    step(f"pair {pair + 1}, {role}")
        return made

    def _sample(self, bench: Bench, pair: int, role: str, order: int) -> Sample:
        data = self._measure(f"{bench.name}-{pair}-{role}", bench.command, of=role, leaves="bench.json")
        try:
            medians = {row["name"]: round(row["stats"]["median"] * PICOSECONDS) for row in data["benchmarks"]}
            rounds = {row["name"]: int(row["stats"]["rounds"]) for row in data["benchmarks"]}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BuildError(f"bench {bench.name}", f"bench.json is not pytest-benchmark's: {error}", "correct the command") from None
        return Sample(bench=bench.name, pair=pair, role=role, order=order, medians_ps=medians, rounds=rounds)

    def _figure(self, figure: Figure) -> tuple[FigureSeen, ...]:
        def measure() -> FiguresSeen:
            rows = self._measure(f"figure-{figure.name}", figure.command, of=CANDIDATE, leaves="figures.json")
            try:
                return canonical.typed(FiguresSeen, {"rows": rows}, "figures.json")
            except ValueError as error:
                raise BuildError(f"figure {figure.name}", str(error), "leave [{name, unit, values}] of integers") from None

        return self._once(f"figure-{figure.name}", measure, FiguresSeen).rows

    def _measure(self, room: str, command: tuple[str, ...], *, of: str, leaves: str) -> Any:
        """What a timing command leaves as JSON in its output folder. Raises BuildError if it leaves none."""
        out = self.folder / "runs" / room
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        where, _ = self._placeholders(command, of=of, tree=CANDIDATE)
        cwd, log = self.folder / "trees" / CANDIDATE, out / "log"
        done = commands.run(placeholders.fill(command, where | {"out": str(out)}), cwd=cwd, env={}, limit_s=600, log=log)
        try:
            if done.code or done.timed_out:
                raise ValueError(f"exit code {done.code}: {done.tail[-300:]}")
            return json.loads((out / leaves).read_bytes())
        except (OSError, ValueError) as error:
            raise BuildError(f"command of {room}", f"left no {leaves}: {error}", "correct the command, or the fault it met") from None
        finally:
            shutil.rmtree(out, ignore_errors=True)

    def _once(self, name: str, make: Callable[[], T], kind: type[T]) -> T:
        """What `make` gave, now or in an earlier run that was stopped."""
        path = self.folder / "done" / f"{name}.json"
        try:
            return canonical.typed(kind, canonical.loads(durable.read(path)))
        except FileNotFoundError:
            pass
        except ValueError as error:
            raise IntegrityError(path, f"not what a proof left: {error}", "remove the work folder and prove again") from None
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise Waiting("prove", "the time that --seconds gave is over; what was done is kept", "run the same command again")
        made = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.replace(path, canonical.dumps(canonical.plain(made)))
        return made


def _declared(out: Path) -> tuple[Input, ...]:
    """The inputs that a command says it generated, in inputs.json."""
    path = out / "inputs.json"
    if not path.exists():
        return ()
    try:
        return tuple(canonical.typed(Input, row, f"[{i}]") for i, row in enumerate(json.loads(path.read_bytes())))
    except (ValueError, TypeError) as error:
        raise BuildError("inputs.json", f"a command left a bad one: {error}", "give name, origin and digest of each input") from None


def _compare(check: Check, folders: list[Path]) -> tuple[tuple[outputs.Difference, ...], tuple[outputs.Bound, ...]]:
    """Differences and bounds of the sides, before their files are removed."""
    if check.verb == "same":
        return outputs.compare(folders) + outputs.not_finite(folders[0]), ()
    found: tuple[outputs.Difference, ...] = ()
    bounds: tuple[outputs.Bound, ...] = ()
    left = {file.name for folder in folders for file in outputs.listing(folder)} if check.within else set()
    for bound in check.within:
        files = sorted(name for name in left if matches(name, bound.files))
        seen, missed = outputs.within(folders[0], folders[1], files, bound.dtype)
        bounds, found = bounds + seen, found + missed
    return found, bounds
