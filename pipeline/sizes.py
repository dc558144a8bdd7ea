"""What an artifact weighs: its bytes, zip members, ELF sections and kernels. The only user of pyelftools.

Sizes are exact, so they are compared without statistics. A section that takes no room in the file (.bss, .nv.shared.*)
is listed apart, by the memory it asks for.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline import claims, durable
from pipeline.errors import BuildError

if TYPE_CHECKING:
    from elftools.elf.sections import Section

ELF_MAGIC: Final = b"\x7fELF"
ZIP_MAGIC: Final = b"PK\x03\x04"
MEMBER_BYTES_MAX: Final = 2**30
MEMBERS_MAX: Final = 10_000
SYMBOLS_MAX: Final = 1_000_000
_EM_CUDA: Final = (190, "EM_CUDA")
_CUBIN_CODE: Final = ".text."
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
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(data))
        whole = list(elf.iter_sections())
        found = [(part.name, part["sh_type"], part["sh_offset"], part["sh_size"]) for part in whole]
        kernels = _cubin_kernels(found) if elf["e_machine"] in _EM_CUDA else _functions(whole)
    except Exception as error:  # the parser meets foreign bytes, and raises whatever they lead it to
        raise BuildError(where, f"is no sound ELF file: {type(error).__name__} {error}".rstrip(), _TODO) from None
    here = [row for row in found if row[1] not in ("SHT_NOBITS", "SHT_NULL")]
    for name, _, offset, size in here:
        if offset + size > len(data):
            raise BuildError(where, f"is no sound ELF file: section {name} ends beyond its {len(data)} bytes", _TODO)
    nobits = _rows((row[0], row[3]) for row in found if row[1] == "SHT_NOBITS")
    return _rows((row[0], row[3]) for row in here), nobits, _rows(kernels)


def _cubin_kernels(sections: list[tuple[str, Any, int, int]]) -> list[tuple[str, int]]:
    return [(row[0].removeprefix(_CUBIN_CODE), row[3]) for row in sections if row[0].startswith(_CUBIN_CODE)]


def _functions(sections: list[Section]) -> list[tuple[str, int]]:
    """Defined functions of .symtab, or where that was stripped, of .dynsym."""
    from elftools.elf.sections import SymbolTableSection

    tables = {section.name: section for section in sections if section.name in (".symtab", ".dynsym")}
    table = tables.get(".symtab") or tables.get(".dynsym")
    if not isinstance(table, SymbolTableSection):
        return []
    if table.num_symbols() > SYMBOLS_MAX:
        raise ValueError(f"more than {SYMBOLS_MAX} symbols")
    return [
        (symbol.name, symbol["st_size"])
        for symbol in table.iter_symbols()
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF"
    ]


def _rows(pairs: Iterable[tuple[str, int]]) -> Rows:
    """Sorted; what has one name (local functions of two files) is added up."""
    made: dict[str, int] = {}
    for name, count in pairs:
        made[name] = made.get(name, 0) + count
    return tuple(sorted(made.items()))
