"""The folder that carries plans to a machine that can prove them, and the file that carries evidence back.

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
from pipeline.errors import EvidenceError, IntegrityError, UsageError
from pipeline.proof import Evidence, Plan

HEAD: Final = "kit.json"
OBJECTS: Final = "objects.tar.xz"
KIT_BYTES_MAX: Final = 24 * 2**20
HEAD_BYTES_MAX: Final = 64 * 1024
OBJECT_BYTES_MAX: Final = 256 * 2**20
OBJECTS_MAX: Final = 20_000
MEMORY_MAX: Final = 128 * 2**20  # of the unpacker; preset 6 needs 9 MiB
PRESET: Final = 3  # of a kit's objects: 37 % of the time of 6, and 3 % more bytes
FORMAT: Final = 1  # of kit.json and of an evidence file


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """kit.json: the digests of the plans, in order."""

    plans: tuple[str, ...]
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFile:
    """What `prove` writes: one Evidence for each plan of the kit, in the kit's order."""

    evidence: tuple[Evidence, ...]
    format: int = FORMAT


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
    packed = lzma.compress(_tar(whole), preset=PRESET)
    if len(packed) > KIT_BYTES_MAX:
        raise UsageError(
            folder, f"a kit of {len(packed)} bytes is larger than {KIT_BYTES_MAX}", "make the inputs smaller"
        )
    head = Head(plans=tuple(canonical.sha256(data) for data in plan_bytes))
    folder.mkdir(parents=True)
    durable.create_once(folder / OBJECTS, packed)
    durable.create_once(folder / HEAD, canonical.pack(head))


def load(folder: Path) -> Kit:
    """Reads a kit and hashes every object. Raises IntegrityError for one that is changed, cut or incomplete."""
    try:
        head = canonical.typed(Head, canonical.loads(durable.read(folder / HEAD, HEAD_BYTES_MAX)), HEAD)
        if head.format != FORMAT or not head.plans:
            raise ValueError(f"{HEAD} has format {head.format} and {len(head.plans)} plans")
        objects = _untar(unsqueeze(durable.read(folder / OBJECTS, KIT_BYTES_MAX)))
        plans = tuple(read_plan(objects[digest]) for digest in head.plans)
        lost = {digest for plan in plans for digest in plan.objects()} - set(objects)
        if lost:
            raise ValueError(f"object {min(lost)}, which a plan names, is missing")
    except FileNotFoundError as error:
        raise UsageError(folder, f"{error.filename} is missing", "name a folder that `land --kit` wrote") from None
    except (ValueError, KeyError, tarfile.TarError, lzma.LZMAError) as error:
        raise IntegrityError(folder, f"not a kit: {error}", "carry the kit again") from None
    return Kit(plans=plans, objects=objects)


def read_plan(data: bytes) -> Plan:
    """The plan whose bytes these are, in the one spelling that `Plan.to_bytes` has. Raises ValueError."""
    made = canonical.typed(Plan, canonical.loads(data), "plan")
    made.require_whole()
    return made


def evidence_of(data: bytes) -> Evidence:
    """The evidence of bytes that are stored under their digest. Raises ValueError."""
    return canonical.typed(Evidence, canonical.loads(data, pinned=True), "evidence")


def read_evidence(path: Path, data: bytes) -> tuple[Evidence, ...]:
    """The evidence of a file that `prove` wrote. Raises EvidenceError."""
    try:
        whole = canonical.typed(EvidenceFile, canonical.loads(data), "evidence")
    except ValueError as error:
        raise EvidenceError(path, f"not evidence: {error}", "carry the file again, or prove the kit again") from None
    if whole.format != FORMAT:
        raise EvidenceError(path, f"evidence of format {whole.format}", "use the pipeline that made the kit")
    return whole.evidence


def squeeze(data: bytes) -> bytes:
    """Compressed bytes, as plans and evidence are stored."""
    return lzma.compress(data, preset=6)


def unsqueeze(data: bytes) -> bytes:
    """The bytes that `squeeze` was given. Raises ValueError or LZMAError; never makes more than `OBJECT_BYTES_MAX`."""
    reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MEMORY_MAX)
    made = reader.decompress(data, max_length=OBJECT_BYTES_MAX)
    if not reader.eof or reader.unused_data:
        raise ValueError("compressed bytes are cut short, too large, or have a tail")
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
