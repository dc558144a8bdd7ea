"""What a landing.toml says, as frozen values with the few questions that others ask of them. Pure.

`manifest.load` alone makes them, so whoever holds a Subject holds one that was checked.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pipeline.errors import ManifestError

SHOWN_MAX = 80  # characters of a mistaken name that an error repeats


@dataclass(frozen=True, slots=True)
class Target:
    """What an artifact runs on, and how it is built for it. `sources` is empty unless it overrides the subject's."""

    name: str
    artifact: str
    build: tuple[str, ...]
    needs: str | None
    margin_ppm: int
    reproducible: str
    toolchain: tuple[str, ...]
    sources: tuple[str, ...]
    proved: bool


@dataclass(frozen=True, slots=True)
class Block:
    """One landing: a named, additive step. Blocks stand in the order in which they land."""

    name: str
    title: str
    limits: tuple[str, ...]
    changes: tuple[str, ...]
    gate: str
    faster_on: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A command that must end with this code and this word; with `state`, leaving before.bin equal to after.bin."""

    argv: tuple[str, ...]
    code: int
    word: str
    state: bool


@dataclass(frozen=True, slots=True)
class Bound:
    """How far, in millionths of the reference's largest magnitude, the first side may be from the second."""

    files: tuple[str, ...]
    dtype: str
    bound_ppm: int
    reason: str


@dataclass(frozen=True, slots=True)
class Check:
    """One statement about outputs, with a verb. Of the last four fields only the verb's own is filled."""

    id: str
    verb: str
    sides: tuple[tuple[str, ...], ...]
    since: str
    until: str | None
    targets: tuple[str, ...]
    teeth: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    limit_s: int
    when: tuple[str, ...]
    refuses: tuple[Refusal, ...]
    within: tuple[Bound, ...]
    differs: tuple[str, ...]
    absent: str | None

    def commands(self, *, teeth: bool) -> tuple[tuple[str, ...], ...]:
        """Every command of the check in order; the teeth form has the `teeth` arguments at its end."""
        argvs = self.sides or tuple(case.argv for case in self.refuses)
        return tuple(argv + self.teeth for argv in argvs) if teeth else argvs


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted fault, or with `neutral` a planted nothing. `only`: no check but `caught_by` may catch it."""

    name: str
    file: str
    find: str
    replace: str
    since: str
    until: str | None
    targets: tuple[str, ...]
    caught_by: tuple[str, ...]
    neutral: bool
    only: bool


@dataclass(frozen=True, slots=True)
class Bench:
    """A command that is timed in pairs. `cases`, where given, are all the names that its samples must have."""

    name: str
    command: tuple[str, ...]
    pairs: int
    since: str
    targets: tuple[str, ...]
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A command whose numbers are recorded and never judged."""

    name: str
    command: tuple[str, ...]
    since: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """A file, relative to the subject's folder, that commands read, and where it came from."""

    name: str
    path: str
    origin: str


class _Lives(Protocol):
    @property
    def since(self) -> str: ...
    @property
    def targets(self) -> tuple[str, ...]: ...


L = TypeVar("L", bound=_Lives)


@dataclass(frozen=True, slots=True)
class Subject:
    """A whole landing.toml. `folder` is the bare name of the folder it lies in."""

    folder: str
    name: str
    sources: tuple[str, ...]
    tools: tuple[str, ...]
    alpha_ppm: int
    refusal_code: int
    targets: tuple[Target, ...]
    blocks: tuple[Block, ...]
    checks: tuple[Check, ...]
    mutants: tuple[Mutant, ...]
    benches: tuple[Bench, ...]
    figures: tuple[Figure, ...]
    inputs: tuple[Input, ...]

    @property
    def where(self) -> str:
        """How errors name the manifest."""
        return f"{self.folder}/landing.toml"

    def target(self, name: str | None = None) -> Target:
        """The named target, or the first. Raises ManifestError that names the nearest."""
        if name is None:
            return self.targets[0]
        return self.targets[_position(self.where, "target", name, [target.name for target in self.targets])]

    def block(self, name: str) -> Block:
        """The named block. Raises ManifestError that names the nearest."""
        return self.blocks[self.order(name)]

    def order(self, name: str) -> int:
        """The place of a block in the manifest, from 0. Raises ManifestError that names the nearest."""
        return _position(self.where, "block", name, [block.name for block in self.blocks])

    def check(self, name: str) -> Check:
        """The named check. Raises ManifestError that names the nearest."""
        return self.checks[_position(self.where, "check", name, [check.id for check in self.checks])]

    def blocks_of(self, target: str) -> tuple[Block, ...]:
        """The blocks that land on a target, in order."""
        return tuple(block for block in self.blocks if target in block.targets)

    def sources_of(self, target: Target) -> tuple[str, ...]:
        """The globs of what goes into the target's artifact."""
        return target.sources or self.sources

    def checks_at(self, target: str, block: str) -> tuple[Check, ...]:
        """The checks that run when the block lands on the target."""
        return self._alive(self.checks, target, block)

    def mutants_at(self, target: str, block: str) -> tuple[Mutant, ...]:
        """The mutants that exist when the block lands on the target."""
        return self._alive(self.mutants, target, block)

    def benches_at(self, target: str, block: str) -> tuple[Bench, ...]:
        """The benches that are timed when the block lands on the target."""
        return self._alive(self.benches, target, block)

    def figures_at(self, target: str, block: str) -> tuple[Figure, ...]:
        """The figures that are recorded when the block lands on the target."""
        return self._alive(self.figures, target, block)

    def _alive(self, items: tuple[L, ...], target: str, block: str) -> tuple[L, ...]:
        here = self.order(block)
        self.target(target)
        order = {block.name: i for i, block in enumerate(self.blocks)}

        def spans(item: _Lives) -> bool:
            until: str | None = getattr(item, "until", None)
            return order[item.since] <= here and (until is None or here < order[until])

        return tuple(item for item in items if target in item.targets and spans(item))


def suggest(name: str, choices: Iterable[str]) -> str:
    """What to do about a name that does not exist: the nearest one, or else all that there are."""
    known = list(choices)
    near = difflib.get_close_matches(name[:SHOWN_MAX], known, n=1)
    if near:
        return f"did you mean {near[0]}"
    return f"known: {', '.join(known)}" if known else "there is none"


def shown(name: str) -> str:
    """A mistaken name as an error prints it: clipped, on one line, without control characters."""
    text = name if len(name) <= SHOWN_MAX else name[:SHOWN_MAX] + "..."
    return text if text.isprintable() and text.strip() else repr(text)


def matches(path: str, globs: Iterable[str]) -> bool:
    """True if one of the globs names the path. `*` and `?` stay inside a folder, `**` stands for any folders."""
    return any(_pattern(glob).fullmatch(path) is not None for glob in globs)


@functools.lru_cache(maxsize=1024)
def _pattern(glob: str) -> re.Pattern[str]:
    *folders, last = glob.split("/")
    parts = ["(?:[^/]+/)*" if part == "**" else _segment(part) + "/" for part in folders]
    return re.compile("".join(parts) + (".+" if last == "**" else _segment(last)), re.DOTALL)


def _segment(part: str) -> str:
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)) for letter in part)


def _position(where: str, noun: str, name: str, names: list[str]) -> int:
    if name not in names:
        raise ManifestError(where, f"{noun} {shown(name)}: there is no such {noun}", suggest(name, names))
    return names.index(name)
