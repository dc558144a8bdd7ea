"""A plan, and the evidence that answers it: what a proof is asked, and what it saw. Frozen values, pure.

The verdict is a function of these two alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline import canonical, placeholders
from pipeline.claims import Baseline, Input
from pipeline.subject import Bench, Check, Figure

ROLES: Final = ("baseline", "candidate", "control")
WHEN: Final = "when"  # the input of a check that stands for the files which its `when` names
CANDIDATE: Final = "candidate"  # the tree, and the artifact, under test
STOPS: Final = 5  # the rules since which a run against a mutant ends with the first command that is wrong


@dataclass(frozen=True, slots=True)
class File:
    """One dump: path relative to its folder, digest, size."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as promised: missing, extra, bytes, empty, nan or layout; and where, in words."""

    kind: str
    file: str
    place: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The worst |a - reference| of an entry over the reference's largest magnitude; billionths, rounded up; where."""

    file: str
    entry: str
    worst_ppb: int
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Files of a copy of the subject: path, digest, mode. Rows of `over` come first, then these."""

    files: tuple[tuple[str, str, int], ...]
    over: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMutant:
    """A planted fault: its artifact is in `Plan.artifacts` under its name, unless `set_up` says why not."""

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


@dataclass(frozen=True, kw_only=True)  # without slots: what is asked of it again and again is kept with it
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
        """The plan as a kit carries it; evidence names it by the digest of these bytes."""
        return canonical.pack(self)

    def objects(self) -> set[str]:
        """The digest of everything that a proof of this plan reads: files of the trees, artifacts, inputs."""
        files = {digest for tree in self.trees.values() for _, digest, _ in tree.files}
        return files | {*self.artifacts.values()} | {digest for _, digest, _ in self.inputs.values()}

    def check(self, name: str) -> Check:
        """The planned check of that name."""
        return next(check for check in self.checks if check.id == name)

    def stops(self, job: Job) -> bool:
        """True if the run ends with the first command that is wrong by itself: the mutant is caught."""
        return self.rules >= STOPS and job.of != CANDIDATE

    def tree(self, name: str) -> dict[str, tuple[str, int]]:
        """Path to digest and mode, with the rows of the tree below."""
        tree = self.trees[name]
        below = self.tree(tree.over) if tree.over else {}
        return below | {path: (digest, mode) for path, digest, mode in tree.files}

    def require_whole(self) -> None:
        """Raises ValueError unless the plan holds all that its jobs, benches and figures refer to."""
        for name, tree in self.trees.items():
            below = [name]
            while tree.over:
                if tree.over in below or tree.over not in self.trees:
                    raise ValueError(f"the tree {name} lies over {tree.over}, which is no tree below it")
                below.append(tree.over)
                tree = self.trees[tree.over]
        checks = {check.id: check for check in self.checks}
        try:
            self.artifacts[CANDIDATE], self.trees[CANDIDATE]
            for job in self.jobs:
                for argv in checks[job.check].commands(teeth=job.teeth):
                    self.reads(argv, of=job.of, tree=job.tree)
            for command in [bench.command for bench in self.benches] + [figure.command for figure in self.figures]:
                self.reads(command, of=CANDIDATE, tree=CANDIDATE)
        except KeyError as error:
            raise ValueError(f"it refers to {error}, which it does not hold") from None

    def role(self, word: str, *, of: str) -> str:
        """Which of the artifacts a placeholder stands for, in a run of `of`; the control is a copy of the baseline."""
        role = of if word in ("candidate", "artifact") else word
        return "baseline" if role == "control" else role

    def reads(self, argv: Sequence[str], *, of: str, tree: str) -> tuple[Input, ...]:
        """Digest and origin of all that a command of this plan is given: its tree, then each of its placeholders."""
        key = (placeholders.words(argv), of, tree)
        if key not in self._read:
            self._read[key] = self._inputs(*key)
        return self._read[key]

    @functools.cached_property
    def _read(self) -> dict[tuple[tuple[str, ...], str, str], tuple[Input, ...]]:
        """What was asked of `reads`: most commands of a plan are given what others are."""
        return {}

    def _inputs(self, words: tuple[str, ...], of: str, tree: str) -> tuple[Input, ...]:
        rows = [_input("tree", f"{tree} tree", self._digests[tree])]
        for word in words:
            if word.startswith("input:"):
                _, digest, origin = self.inputs[word.removeprefix("input:")]
            elif word.startswith("tools:"):
                digest, origin = self._digests[word], f"{word} tree"
            elif word in ("python", "out"):
                continue
            else:
                role = self.role(word, of=of)
                digest, origin = self.artifacts[role], f"{role} {self.artifact}"
            rows.append(_input(f"{{{word}}}", origin, digest))
        return tuple(rows)

    @functools.cached_property
    def _digests(self) -> dict[str, str]:
        """The digest of every tree: of [[path, digest], …], its own rows over those of the tree below."""
        made: dict[str, dict[str, str]] = {}

        def rows(name: str) -> dict[str, str]:
            if name not in made:
                tree = self.trees[name]
                made[name] = (rows(tree.over) if tree.over else {}) | {path: digest for path, digest, _ in tree.files}
            return made[name]

        return {name: canonical.sha256(canonical.dumps(sorted(rows(name).items()))) for name in self.trees}


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSeen:
    """What one command of a check did and left."""

    argv: tuple[str, ...]
    code: int
    timed_out: bool
    seconds_ms: int
    tail: str
    matches: int = 0  # lines that hold the pattern which a `clean` check forbids
    cut: bool = False  # it printed more than a log holds
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
        """The evidence as an evidence file carries it."""
        return canonical.pack(self)


@functools.lru_cache(maxsize=64)  # many jobs of a plan are given the same
def _input(name: str, origin: str, digest: str) -> Input:
    return Input(name=name, origin=origin, digest=digest)
