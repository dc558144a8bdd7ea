"""The section table of a 64-bit little-endian ELF file, checked against the file's own size. Pure.

For what a build must give and what two builds must share; `sizes` reads symbols and is for people.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from pipeline.canonical import sha256

# System V ABI, "Object Files": e_ident, then type, machine, version, entry, phoff, shoff, flags and six halfwords.
_IDENT: Final = b"\x7fELF\x02\x01\x01"
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
NOTE, NOBITS = 7, 8  # sh_type
ALLOCATED: Final = 2  # sh_flags: the section is in memory when the program runs


@dataclass(frozen=True, slots=True)
class Section:
    """A section; `data` is empty for one that takes memory and no bytes of the file."""

    name: str
    kind: int
    allocated: bool
    size: int
    offset: int
    data: bytes


def sections(data: bytes) -> tuple[Section, ...]:
    """All sections in the order of the table. Raises ValueError for anything but a whole ELF file with sections."""
    if len(data) < _HEADER.size or not data.startswith(_IDENT):
        raise ValueError("is no 64-bit ELF file")
    header = _HEADER.unpack_from(data)
    table, size, count, names = header[6], header[11], header[12], header[13]
    if size != _SECTION.size or not 0 < names < count or table + size * count > len(data):
        raise ValueError("is a cut or malformed ELF file: its section table is not in it")
    rows = [_SECTION.unpack_from(data, table + size * i) for i in range(count)]
    if any(kind != NOBITS and kind and offset + length > len(data) for _, kind, _, _, offset, length, *_ in rows):
        raise ValueError("is a cut or malformed ELF file: a section is not in it")
    text = data[rows[names][4] : rows[names][4] + rows[names][5]]
    made = []
    for name, kind, flags, _, offset, length, *_ in rows[1:]:
        held = b"" if kind in (0, NOBITS) else data[offset : offset + length]
        word = text[name : text.find(b"\0", name)].decode("utf-8", "replace")
        made.append(Section(word, kind, bool(flags & ALLOCATED), length, offset, held))
    return tuple(made)


def payload(data: bytes) -> list[list[str | int]]:
    """What runs: [name, size, digest] of the allocated sections but notes, which hold build ids and names."""
    return [[s.name, s.size, sha256(s.data)] for s in sections(data) if s.allocated and s.kind != NOTE]


def place(data: bytes, offset: int) -> str:
    """Which section a byte lies in: `.text+0x10`, or `0x40 of the file`."""
    try:
        found = sections(data)
    except ValueError:
        found = ()
    for section in found:
        if section.data and section.offset <= offset < section.offset + len(section.data):
            return f"{section.name}+{offset - section.offset:#x}"
    return f"{offset:#x} of the file"
