"""A plan, the evidence that answers it, and the folder that carries plans to a machine that can prove them.

A kit is `kit.json`, which names its plans in order, and `objects.tar.xz`, which holds every plan, source file,
artifact and input once, each named by its digest. The same plans and objects give the same kit, byte for byte.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipeline import canonical, durable
from pipeline.claims import Baseline, Input
from pipeline.errors import EvidenceError, IntegrityError, UsageError
from pipeline.outputs import Bound, Difference, File
from pipeline.subject import Bench, Check, Figure

KIT_BYTES_MAX: Final = 24 * 2**20
OBJECT_BYTES_MAX: Final = 256 * 2**20
OBJECTS_MAX: Final = 20_000
ROLES: Final = ("baseline", "candidate", "control")
CANDIDATE: Final = "candidate"  # the tree, and the artifact, under test


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Files of a copy of the subject: path, digest, mode. Rows of `over` come first, then these."""

    files: tuple[tuple[str, str, int], ...]
    over: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMutant:
    """A planted fault as it was built: its artifact is in `Plan.artifacts` under its name, unless `set_up` says why not."""

    name: str
    neutral: bool
    caught_by: tuple[str, ...]
    set_up: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a check: which artifact stands for the candidate, in which tree, in which form."""

    id: str
    check: str
    of: str  # "candidate", or the mutant's name
    tree: str
    teeth: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is decided before the first measurement. The verdict is a function of this and the evidence."""

    sequence: int  # of the attempt
    subject: str
    folder: str
    target: str
    needs: str | None
    block: str
    revision: int
    artifact: str  # file name
    baseline: Baseline | None
    identity: bool
    trees: Mapping[str, Tree]
    artifacts: Mapping[str, str]  # candidate, baseline, a mutant's name, archive:BLOCK -> digest
    inputs: Mapping[str, tuple[str, str, str]]  # name -> file name, digest, origin
    checks: tuple[Check, ...]
    mutants: tuple[PlannedMutant, ...]
    jobs: tuple[Job, ...]
    green: Mapping[str, int]  # check -> the record that proved this very statement, so that it need not run
    when: Mapping[str, str]  # check -> digest of the files and tools that it depends on, for checks that say so
    dropped: tuple[str, ...]  # checks that the baseline's record holds and this plan lacks
    benches: tuple[Bench, ...]
    figures: tuple[Figure, ...]
    seed: int
    alpha_ppm: int
    margin_ppm: int
    gate: str
    rules: int
    pipeline: str

    def to_bytes(self) -> bytes:
        return canonical.dumps(canonical.plain(self))

    def check(self, name: str) -> Check:
        return next(check for check in self.checks if check.id == name)

    def tree(self, name: str) -> dict[str, tuple[str, int]]:
        """Path to digest and mode, with the rows of the tree below."""
        tree = self.trees[name]
        below = self.tree(tree.over) if tree.over else {}
        return below | {path: (digest, mode) for path, digest, mode in tree.files}


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSeen:
    """What one command of a check did and left."""

    argv: tuple[str, ...]
    code: int
    timed_out: bool
    seconds_ms: int
    tail: str
    matches: int = 0  # lines that hold the pattern which a `clean` check forbids
    files: tuple[File, ...] = ()
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """All that was seen of one job."""

    id: str
    sides: tuple[SideSeen, ...]
    differences: tuple[Difference, ...] = ()
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One fresh process of a bench: pytest-benchmark's median of each case. `order` is its turn within the pair."""

    bench: str
    pair: int
    role: str
    order: int
    medians_ps: Mapping[str, int]
    rounds: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSeen:
    """Samples of one number that is recorded and never judged."""

    name: str
    unit: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresSeen:
    """What one figure command left in figures.json."""

    rows: tuple[FigureSeen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that one plan's proof saw. `plan` is the digest of the plan that it answers."""

    plan: str
    machine: Mapping[str, str]
    time: Mapping[str, str]
    jobs: tuple[JobSeen, ...]
    samples: tuple[Sample, ...] = ()
    figures: tuple[FigureSeen, ...] = ()

    def to_bytes(self) -> bytes:
        return canonical.dumps(canonical.plain(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFile:
    """What `prove` writes: one Evidence for each plan of the kit, in the kit's order."""

    evidence: tuple[Evidence, ...]
    format: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """An opened kit: its plans in order, and every object by digest."""

    plans: tuple[Plan, ...]
    objects: Mapping[str, bytes] = field(repr=False)


def pack(folder: Path, plans: Iterable[Plan], objects: Mapping[str, bytes]) -> None:
    """Writes a kit. Raises UsageError if the folder exists or the kit would be larger than `KIT_BYTES_MAX`."""
    if folder.exists():
        raise UsageError(folder, "the folder exists", "name a new one: a kit is written once")
    plan_bytes = [plan.to_bytes() for plan in plans]
    whole = {canonical.sha256(data): data for data in plan_bytes} | dict(objects)
    packed = squeeze(_tar(whole))
    if len(packed) > KIT_BYTES_MAX:
        raise UsageError(folder, f"a kit of {len(packed)} bytes is larger than {KIT_BYTES_MAX}", "make the inputs smaller")
    folder.mkdir(parents=True)
    durable.create_once(folder / "objects.tar.xz", packed)
    durable.create_once(folder / "kit.json", canonical.dumps({"format": 1, "plans": [canonical.sha256(d) for d in plan_bytes]}))


def load(folder: Path) -> Kit:
    """Reads a kit and hashes every object. Raises IntegrityError for anything that `pack` would not have written."""
    try:
        head = canonical.loads(durable.read(folder / "kit.json"))
        objects = _untar(unsqueeze(durable.read(folder / "objects.tar.xz", limit=KIT_BYTES_MAX)))
        plans = tuple(read_plan(objects[digest]) for digest in head["plans"])
    except FileNotFoundError as error:
        raise UsageError(folder, f"{error.filename} is missing", "name a folder that `land --kit` wrote") from None
    except (ValueError, KeyError, TypeError, tarfile.TarError, lzma.LZMAError) as error:
        raise IntegrityError(folder, f"not a kit: {error}", "carry the kit again") from None
    return Kit(plans=plans, objects=objects)


def read_plan(data: bytes) -> Plan:
    """The plan of stored bytes. Raises ValueError."""
    return canonical.typed(Plan, canonical.loads(data), "plan")


def evidence_of(data: bytes) -> Evidence:
    """The evidence of stored bytes. Raises ValueError."""
    return canonical.typed(Evidence, canonical.loads(data), "evidence")


def read_evidence(path: Path, data: bytes) -> tuple[Evidence, ...]:
    """The evidence of a file that `prove` wrote. Raises EvidenceError."""
    try:
        whole = canonical.typed(EvidenceFile, canonical.loads(data), "evidence")
    except ValueError as error:
        raise EvidenceError(path, f"not evidence: {error}", "carry the file again, or prove the kit again") from None
    if whole.format != 1:
        raise EvidenceError(path, f"evidence of format {whole.format}", "use the pipeline that made the kit")
    return whole.evidence


def squeeze(data: bytes) -> bytes:
    """Compressed bytes, as plans, evidence and kits are stored."""
    return lzma.compress(data, preset=6)


def unsqueeze(data: bytes) -> bytes:
    """The bytes that `squeeze` was given. Raises ValueError or LZMAError; never makes more than `OBJECT_BYTES_MAX`."""
    reader = lzma.LZMADecompressor()
    made = reader.decompress(data, max_length=OBJECT_BYTES_MAX)
    if not reader.eof:
        raise ValueError("compressed bytes are cut short or too large")
    return made


def _tar(objects: Mapping[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for digest in sorted(objects):
            row = tarfile.TarInfo(digest)
            row.size, row.mode = len(objects[digest]), 0o644
            tar.addfile(row, io.BytesIO(objects[digest]))
    return sink.getvalue()


def _untar(data: bytes) -> dict[str, bytes]:
    objects: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        for row in tar:
            member = tar.extractfile(row) if row.isreg() else None
            if member is None or len(objects) == OBJECTS_MAX:
                raise ValueError(f"{row.name!r} is no object")
            objects[row.name] = member.read()
            if canonical.sha256(objects[row.name]) != row.name:
                raise ValueError(f"object {row.name} is not what its name says")
    return objects
