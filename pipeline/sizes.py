"""What an artifact weighs: its bytes, zip members, ELF sections and kernels. The only user of pyelftools.

Sizes are exact, so they are compared without statistics. A section that takes no room in the file (.bss, .nv.shared.*)
is listed apart, by the memory it asks for.
"""

from __future__ import annotations

import functools
import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline import claims, durable
from pipeline.errors import BuildError

if TYPE_CHECKING:
    from elftools.elf.structs import ELFStructs

ELF_MAGIC: Final = b"\x7fELF"
ZIP_MAGIC: Final = b"PK\x03\x04"
MEMBER_BYTES_MAX: Final = 2**30
MEMBERS_MAX: Final = 10_000
SYMBOLS_MAX: Final = 1_000_000
TABLES: Final = ("sections", "kernels", "host")
CHANGED_ALONE: Final = 3  # the rules since which a record says nothing of a size that did not change
_EM_CUDA: Final = (190, "EM_CUDA")
_CUBIN_CODE: Final = ".text."
_CLASSES: Final = {1: 32, 2: 64}  # e_ident[EI_CLASS] -> bits
_ORDERS: Final = {1: True, 2: False}  # e_ident[EI_DATA] -> little-endian
_SYMBOLS: Final = ("SHT_SYMTAB", "SHT_DYNSYM")
_XINDEX: Final = 0xFFFF  # the index of the names stands in section 0
_TODO: Final = "look at what the build command writes"
_BINARY = (".so", ".cubin")

Rows = tuple[tuple[str, int], ...]  # name, bytes; sorted by name


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of an artifact and of what is in it. `host` are the zip members that are no ELF file."""

    artifact: int
    members: Rows = ()
    host: Rows = ()
    sections: Rows = ()
    memory: Rows = ()  # sections without bytes in the file
    kernels: Rows = ()


def measure(artifact: Path) -> Sizes:
    """The sizes of an artifact: a zip, an ELF file, or anything else, which has its bytes alone.

    Raises BuildError that names the file, or the member, that is malformed.
    """
    try:
        data = durable.read(artifact)
    except (FileNotFoundError, ValueError) as error:
        raise BuildError(artifact, "is missing" if isinstance(error, OSError) else str(error), _TODO) from None
    return of(artifact, data)


def of(artifact: Path, data: bytes) -> Sizes:
    """The same of bytes that were read before. Raises BuildError."""
    if data[: len(ZIP_MAGIC)] == ZIP_MAGIC or artifact.suffix == ".zip":
        return _of_zip(artifact, data)
    if is_binary(artifact.name, data):
        return _of_elves(artifact, len(data), (), (), (("", data),))
    return Sizes(len(data))


def changes(before: Sizes | None, after: Sizes) -> claims.Sizes:
    """[before, after] of everything that a record lists; before is None where there was nothing."""

    def rows(name: str) -> dict[str, tuple[int | None, int | None]]:
        was, now = dict(getattr(before, name)) if before else {}, dict(getattr(after, name))
        return {row: (was.get(row), now.get(row)) for row in sorted({*was, *now})}

    return claims.Sizes(
        artifact=(before.artifact if before else None, after.artifact),
        sections=rows("sections"),
        kernels=rows("kernels"),
        host=rows("host"),
    )


def told(made: claims.Sizes, *, rules: int) -> claims.Sizes:
    """What a record says of them: since rules 3, of rows those alone that changed."""
    if rules < CHANGED_ALONE:
        return made
    tables = ({name: row for name, row in table.items() if row[0] != row[1]} for table in _tables(made))
    sections, kernels, host = tables
    return claims.Sizes(artifact=made.artifact, sections=sections, kernels=kernels, host=host)


def stems_from(made: claims.Sizes, before: Sizes | None) -> bool:
    """True if all that is said of sizes before is what these were."""
    known = [dict(getattr(before, name)) if before else {} for name in TABLES]
    was = [{name: row[0] for name, row in table.items() if row[0] is not None} for table in _tables(made)]
    whole = made.artifact[0] == (before.artifact if before else None)
    return whole and all(said.items() <= held.items() for said, held in zip(was, known, strict=True))


def _tables(made: claims.Sizes) -> list[Mapping[str, tuple[int | None, int | None]]]:
    return [getattr(made, name) for name in TABLES]


def is_binary(name: str, data: bytes) -> bool:
    """True if these bytes are an ELF file or, by their name, ought to be one."""
    return data[: len(ELF_MAGIC)] == ELF_MAGIC or name.endswith(_BINARY)


def _of_zip(artifact: Path, data: bytes) -> Sizes:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            rows = archive.infolist()
            names = [row.filename for row in rows]
            if len(rows) > MEMBERS_MAX or sum(row.file_size for row in rows) > MEMBER_BYTES_MAX:
                raise BuildError(artifact, f"holds more than {MEMBERS_MAX} members or {MEMBER_BYTES_MAX} bytes", _TODO)
            if len(set(names)) != len(names):
                raise BuildError(artifact, "holds two members of one name", _TODO)
            contents = [(name, archive.read(name)) for name in names]
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        raise BuildError(artifact, f"is no sound zip file: {error}", _TODO) from None
    members = _rows((name, len(content)) for name, content in contents)
    elves = tuple((name, content) for name, content in contents if is_binary(name, content))
    binary = {name for name, _ in elves}
    return _of_elves(artifact, len(data), members, tuple(row for row in members if row[0] not in binary), elves)


def _of_elves(artifact: Path, size: int, members: Rows, host: Rows, elves: tuple[tuple[str, bytes], ...]) -> Sizes:
    """Names carry their member in front only where there are several ELF files."""
    sections: list[tuple[str, int]] = []
    memory: list[tuple[str, int]] = []
    kernels: list[tuple[str, int]] = []
    for member, content in elves:
        where = f"{artifact}: {member}" if member else str(artifact)
        parts = _parts(where, content)
        front = f"{member}:" if len(elves) > 1 else ""
        for made, part in zip((sections, memory, kernels), parts, strict=True):
            made.extend((front + name, count) for name, count in part)
    return Sizes(size, members, host, _rows(sections), _rows(memory), _rows(kernels))


def _parts(where: str, data: bytes) -> tuple[Rows, Rows, Rows]:
    """Sections with bytes in the file, sections without, kernels."""
    try:
        structs, machine, sections = _sections(data)
        kernels = _cubin_kernels(sections) if machine in _EM_CUDA else _functions(structs, sections, data)
    except Exception as error:  # the parser meets foreign bytes, and raises whatever they lead it to
        raise BuildError(where, f"is no sound ELF file: {type(error).__name__} {error}".rstrip(), _TODO) from None
    here = [row for row in sections if row.kind not in ("SHT_NOBITS", "SHT_NULL")]
    for row in here:
        if row.offset + row.size > len(data):
            what = f"section {row.name} ends beyond its {len(data)} bytes"
            raise BuildError(where, f"is no sound ELF file: {what}", _TODO)
    nobits = _rows((row.name, row.size) for row in sections if row.kind == "SHT_NOBITS")
    return _rows((row.name, row.size) for row in here), nobits, _rows(kernels)


@dataclass(frozen=True, slots=True)
class _Section:
    """What a row of the section table says that sizes and symbols need."""

    name: str
    kind: Any  # pyelftools' word, or a number for which it has none
    offset: int
    size: int
    link: int
    entry_size: int


@functools.lru_cache(maxsize=16)
def _structs(*, little_endian: bool, bits: int, machine: Any = None) -> ELFStructs:
    """The tables of one kind of ELF file, made once: pyelftools takes longer to make them than to read a library."""
    from elftools.elf.structs import ELFStructs

    made = ELFStructs(little_endian=little_endian, elfclass=bits)
    made.create_basic_structs()
    made.create_advanced_structs(e_machine=machine)
    return made


def _sections(data: bytes) -> tuple[ELFStructs, Any, list[_Section]]:
    """The section table of an ELF file, and how its other tables are read."""
    if not data.startswith(ELF_MAGIC):
        raise ValueError("magic number does not match")
    order, bits = _ORDERS[data[5]], _CLASSES[data[4]]
    header = _structs(little_endian=order, bits=bits).Elf_Ehdr.parse(data)
    structs = _structs(little_endian=order, bits=bits, machine=header["e_machine"])
    at, size = header["e_shoff"], header["e_shentsize"]
    if not at:
        return structs, header["e_machine"], []
    if size < structs.Elf_Shdr.sizeof():
        raise ValueError(f"section headers of {size} bytes")
    first = structs.Elf_Shdr.parse(data[at : at + size])
    count = header["e_shnum"] or first["sh_size"]
    if at + size * count > len(data):
        raise ValueError(f"{count} section headers do not lie in it")
    rows = [structs.Elf_Shdr.parse(data[at + size * i : at + size * (i + 1)]) for i in range(count)]
    names = rows[header["e_shstrndx"] if header["e_shstrndx"] != _XINDEX else first["sh_link"]]["sh_offset"]
    made = [
        _Section(
            name=_text(data, names + row["sh_name"]),
            kind=row["sh_type"],
            offset=row["sh_offset"],
            size=row["sh_size"],
            link=row["sh_link"],
            entry_size=row["sh_entsize"],
        )
        for row in rows
    ]
    return structs, header["e_machine"], made


def _text(data: bytes, at: int) -> str:
    """The text that ends with a NUL; none where that is missing."""
    end = data.find(b"\0", at)
    return data[at:end].decode("utf-8", "replace") if end >= 0 else ""


def _cubin_kernels(sections: list[_Section]) -> list[tuple[str, int]]:
    code = (row for row in sections if row.name.startswith(_CUBIN_CODE))
    return [(row.name.removeprefix(_CUBIN_CODE), row.size) for row in code]


def _functions(structs: ELFStructs, sections: list[_Section], data: bytes) -> list[tuple[str, int]]:
    """Defined functions of .symtab, or where that was stripped, of .dynsym."""
    tables = {row.name: row for row in sections if row.name in (".symtab", ".dynsym")}
    table = tables.get(".symtab") or tables.get(".dynsym")
    if table is None or table.kind not in _SYMBOLS:
        return []
    names, size = sections[table.link], table.entry_size
    if names.kind != "SHT_STRTAB" or size < structs.Elf_Sym.sizeof() or table.size % size:
        raise ValueError(f"{table.name} is no table of symbols")
    if table.size // size > SYMBOLS_MAX:
        raise ValueError(f"more than {SYMBOLS_MAX} symbols")
    rows = range(table.offset, table.offset + table.size, size)
    symbols = (structs.Elf_Sym.parse(data[at : at + size]) for at in rows)
    return [
        (_text(data, names.offset + symbol["st_name"]), symbol["st_size"])
        for symbol in symbols
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF"
    ]


def _rows(pairs: Iterable[tuple[str, int]]) -> Rows:
    """Sorted; what has one name (local functions of two files) is added up."""
    made: dict[str, int] = {}
    for name, count in pairs:
        made[name] = made.get(name, 0) + count
    return tuple(sorted(made.items()))
