"""Attempt, Result, Promote and Void, to and from in-toto Statements. The only module that knows their JSON.

A record is a Statement whose subject is the artifact, whose predicate type names kind and major version, and
whose predicate is the claim.

Source: in-toto Attestation Framework, Statement v1.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline import canonical
from pipeline.claims import Artifact, Baseline, Build, Check, Digest, Figure, Input, Pinned, Sizes, Source, Timing, need

STATEMENT: Final = "https://in-toto.io/Statement/v1"
BYTES_MAX: Final = 256 * 1024  # a record; what is larger goes to the archive and is named by digest
NO_RECORD: Final = "0" * 64  # `previous` of the first record
VERDICTS: Final = ("landed", "refused", "inconclusive")
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What every record says. `sequence` and `previous` are given by the ledger when it appends."""

    artifact: Artifact
    target: str
    block: str
    revision: int
    argv: tuple[str, ...]
    time: Mapping[str, str]
    sequence: int = 0
    previous: str = NO_RECORD

    def __post_init__(self) -> None:
        need(NAME.match(self.target) is not None, "target is not a name")
        need(NAME.match(self.block) is not None, "block is not a name")
        need(self.sequence >= 0, "sequence is negative")
        need(canonical.is_digest(self.previous), "previous is not a digest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Record):
    """Written before anything is measured: what will be compared, and by which plan."""

    title: str
    baseline: Baseline | None = None
    source: Source
    build: Build
    plan: Digest
    limits: tuple[str, ...] = ()
    rules: int
    pipeline: Digest
    machine: Mapping[str, str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    builds: tuple[Pinned, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Record):
    """The verdict on an attempt, with everything that it rests on."""

    title: str
    attempt: int
    verdict: str
    reasons: tuple[str, ...]
    baseline: Baseline | None = None
    source: Source
    build: Build
    plan: Digest
    evidence: Digest
    checks: tuple[Check, ...]
    sizes: Sizes
    timing: tuple[Timing, ...] = ()
    figures: tuple[Figure, ...] = ()
    limits: tuple[str, ...] = ()
    rules: int
    pipeline: Digest
    machine: Mapping[str, str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    builds: tuple[Pinned, ...] | None = None
    inputs: tuple[Input, ...] | None = None  # rows that several checks read, and point at by their place

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        need(all(i < len(self.inputs or ()) for check in self.checks for i in check.also or ()), "an input is missing")
        need(self.verdict in VERDICTS, f"{self.verdict!r} is no verdict")
        need(bool(self.checks), "a result without a check proves nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote(Record):
    """Makes an artifact the target's baseline. Only a landed result can be promoted."""

    title: str
    result: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Void(Record):
    """Closes an attempt that will get no result, or corrects an earlier record; never changes `current` by itself."""

    voids: int
    who: str
    why: str

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        need(bool(self.who.strip() and self.why.strip()), "a void says who and why")


KINDS: Final[Mapping[str, type[Record]]] = {"attempt": Attempt, "result": Result, "promote": Promote, "void": Void}


def kind(record: Record) -> str:
    """attempt, result, promote or void."""
    return next(name for name, made in KINDS.items() if type(record) is made)


def to_bytes(record: Record) -> bytes:
    """The record as it is stored. Raises ValueError when it is larger than `BYTES_MAX`."""
    predicate = canonical.plain(record)
    artifact = predicate.pop("artifact")
    data = canonical.dumps(
        {
            "_type": STATEMENT,
            "subject": [{"name": artifact["name"], "digest": {"sha256": artifact["sha256"]}}],
            "predicateType": f"urn:kestrel:landing:{kind(record)}:v1",
            "predicate": predicate,
        }
    )
    need(len(data) <= BYTES_MAX, f"a record of {len(data)} bytes is larger than {BYTES_MAX}")
    return data


def from_bytes(data: bytes) -> Record:
    """A stored record. Raises ValueError for bytes that `to_bytes` would not have written, and for unknown kinds."""
    need(len(data) <= BYTES_MAX, f"a record of {len(data)} bytes is larger than {BYTES_MAX}")
    statement = canonical.loads(data)
    keys = ["_type", "predicate", "predicateType", "subject"]
    need(isinstance(statement, dict) and sorted(statement) == keys, "not a Statement")
    need(statement["_type"] == STATEMENT, "not an in-toto Statement v1")
    named, known = statement["predicateType"], {f"urn:kestrel:landing:{name}:v1": made for name, made in KINDS.items()}
    if not isinstance(named, str) or named not in known:
        raise ValueError(f"unknown kind {named!r:.80}")
    made = known[named]
    return canonical.typed(made, {**_object(statement["predicate"]), "artifact": _artifact(statement["subject"])})


def _artifact(subject: Any) -> dict[str, Any]:
    match subject:
        case [{"name": str(name), "digest": {"sha256": str(digest)}}]:
            if subject == [{"name": name, "digest": {"sha256": digest}}]:
                return {"name": name, "sha256": digest}
    raise ValueError("a record has one subject with a name and a sha256")


def _object(value: Any) -> dict[str, Any]:
    need(isinstance(value, dict) and "artifact" not in value, "the predicate is not an object")
    return dict(value)
