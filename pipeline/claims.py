"""The rows that records are made of, and what may not be claimed. Pure.

What cannot be believed cannot be built: a check with outputs but without its whole command line and the digest and
origin of every input raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline import canonical

_FOLDERS = re.compile(r"(?<![\w.}/])(?!(?<=:)//)/+(?:[^\s/:'\"]+/+)+")  # of an absolute path, not of an address


def without_folders(text: str) -> str:
    """Text in which absolute paths are cut to their last part: no record holds a path of a machine."""
    return _FOLDERS.sub("", text)


def need(holds: bool, otherwise: str) -> None:
    """Raises ValueError unless `holds`."""
    if not holds:
        raise ValueError(otherwise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Names bytes that the archive holds, or that were seen once."""

    sha256: str

    def __post_init__(self) -> None:
        need(canonical.is_digest(self.sha256), "a digest is 64 lower-case hex digits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """The Statement's subject. The name is decoration, the digest decides."""

    name: str
    sha256: str

    def __post_init__(self) -> None:
        need(canonical.is_digest(self.sha256), "an artifact has a digest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The promote record that a candidate is compared with; in a kit, the attempt before it."""

    sequence: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What was built. Tree and source tar are its identity; the commit may be lost to a squash."""

    sources: Digest
    tools: Digest
    archive: Digest | None = None
    large: tuple[Digest, ...] = ()  # files that the source tar only links to
    git_tree: str | None = None
    git_commit: str | None = None
    increment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One program of the toolchain; the digest is of its own bytes."""

    name: str
    version: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """How the artifact was made, with placeholders left in."""

    argv: tuple[tuple[str, ...], ...]
    toolchain: tuple[Tool, ...]
    reproducible: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """What a target that is built and never proved gives from the same source; an artifact by digest alone."""

    target: str
    artifact: Artifact
    bytes: int
    build: Build


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One thing that a command read: where it came from, and its digest."""

    name: str
    origin: str
    digest: str

    def __post_init__(self) -> None:
        if not (self.name and self.origin):
            raise ValueError(f"the input {self.name!r} has no origin")
        if not canonical.is_digest(self.digest):
            raise ValueError(f"the input {self.name!r} has no digest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What a command left: digest of the listing (name, digest, bytes of each file), files, bytes in all."""

    sha256: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterproof:
    """A check run against a planted fault. `where` is the first place that turned red."""

    mutant: str
    outcome: str  # caught, missed, green (a neutral one), red (a neutral one), or set-up error
    by: tuple[str, ...] = ()
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of a result. `green_in` names the record that already proved this very statement.

    `also` are the places, in the record's own `inputs`, of what this check and others read.
    """

    id: str
    verb: str
    argv: tuple[tuple[str, ...], ...]
    inputs: tuple[Input, ...]
    verdict: str  # green, red or unobtainable
    outputs: Outputs | None = None
    differing: int = 0
    skipped: int = 0
    where: str | None = None
    green_in: int | None = None
    counterproofs: tuple[Counterproof, ...] = ()
    also: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        whole = bool(self.argv) and all(self.argv)
        need(whole, f"check {self.id} has no command line: a digest without the way to get it again is no record")
        need(bool(self.inputs or self.also), f"check {self.id} names no input")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """[before, after] in bytes, for the artifact, its ELF sections, its kernels and its host files."""

    artifact: tuple[int | None, int]
    sections: Mapping[str, tuple[int | None, int | None]]
    kernels: Mapping[str, tuple[int | None, int | None]]
    host: Mapping[str, tuple[int | None, int | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The A/A control: the baseline against a byte copy of itself, in the same run."""

    faster: int
    slower: int
    ties: int
    ratio_ppm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Sign test of one case. `faster` counts pairs in which the candidate took less time."""

    case: str
    pairs: int
    seed: int
    faster: int
    slower: int
    ties: int
    p_numerator: int
    p_denominator: int
    ratio_ppm: int
    verdict: str
    samples: Digest
    interval_ppm: tuple[int, ...] = ()
    control: Control | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that is recorded and never judged: a median of n, and their range; the samples are in the evidence."""

    name: str
    value: int
    unit: str
    n: int
    samples: tuple[int, ...] = ()  # rules 1 alone
    low: int | None = None
    high: int | None = None
