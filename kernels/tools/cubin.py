"""What each kernel of a cubin takes of a multiprocessor, read from the file itself; no GPU, and no parser beside this.

A cubin is a 64-bit ELF file. A kernel NAME has .text.NAME (code), .nv.constant0.NAME (parameters and the driver's own
constants) and, if it shares memory, .nv.shared.NAME; .nv.info holds, by the index of its symbol, how many registers and
how much stack a kernel has. Source: the ELF specification; the attribute codes of `cuobjdump -elf`.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields

from kernels.engine.errors import KernelError

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
IDENT = b"\x7fELF\x02\x01\x01"
CUDA = 190  # e_machine
NOBITS = 8  # sh_type: the section takes no bytes of the file
ATTRIBUTE = struct.Struct("<BBH")  # form, code, value or size
SIZED = 4  # form: `size` bytes follow
REGISTERS, STACK = 0x2F, 0x12  # codes: REGCOUNT, MIN_STACK_SIZE; each a pair (symbol, value)
PAIR = struct.Struct("<II")
SYSTEM_SHARED = 1024  # bytes of every block's shared memory that are not the kernel's own: from capability 8.0 on
TODO = "build the artifact again"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: registers a thread; the rest in bytes. `local` is what spills out of registers, a thread."""

    name: str
    registers: int
    shared: int
    local: int
    constant: int
    code: int


RESOURCES = tuple(field.name for field in fields(Kernel))[1:]


def kernels(data: bytes, *, where: object) -> tuple[Kernel, ...]:
    """Every kernel of a cubin, by name. Raises KernelError for bytes that are no sound one."""
    try:
        if not data.startswith(IDENT):
            raise ValueError("is no 64-bit ELF file")
        found = tuple(_kernels(data))
    except (struct.error, ValueError, KeyError, IndexError) as error:
        raise KernelError(where, f"is no sound cubin ({error})", TODO) from error
    if not found:
        raise KernelError(where, "holds no kernel", TODO)
    return found


def machine_code(data: bytes, *, where: object) -> dict[str, bytes]:
    """The code of every kernel, by name. Raises KernelError for bytes that are no sound cubin."""
    names = {f".text.{kernel.name}": kernel.name for kernel in kernels(data, where=where)}
    return {names[section]: content for section, _size, content in _sections(data) if section in names}


def _kernels(data: bytes) -> Iterator[Kernel]:
    sections = _sections(data)
    sizes = {name: size for name, size, _content in sections}
    contents = {name: content for name, _size, content in sections}
    symbols = [row[0] for row in SYMBOL.iter_unpack(contents[".symtab"])]
    names = [_text(contents[".strtab"], at) for at in symbols]
    pairs = dict(_pairs(contents[".nv.info"]))
    for name in sorted(key.removeprefix(".text.") for key in sizes if key.startswith(".text.")):
        index = names.index(name)
        yield Kernel(
            name,
            registers=pairs[REGISTERS, index],
            shared=max(sizes.get(f".nv.shared.{name}", 0) - SYSTEM_SHARED, 0),
            local=pairs[STACK, index],
            constant=sizes[f".nv.constant0.{name}"],
            code=sizes[f".text.{name}"],
        )


def _sections(data: bytes) -> list[tuple[str, int, bytes]]:
    """(name, bytes in memory, bytes in the file) of every section."""
    header = HEADER.unpack_from(data)
    machine, table, size, count, names = (header[i] for i in (2, 6, 11, 12, 13))
    if machine != CUDA or size != SECTION.size:
        raise ValueError("is an ELF file for another machine")
    rows = [SECTION.unpack_from(data, table + size * i) for i in range(count)]
    if any(row[1] != NOBITS and row[4] + row[5] > len(data) for row in rows):
        raise ValueError("a section is not in it")
    held = [b"" if row[1] == NOBITS else data[row[4] : row[4] + row[5]] for row in rows]
    return [(_text(held[names], row[0]), row[5], content) for row, content in zip(rows, held, strict=True)]


def _pairs(info: bytes) -> Iterator[tuple[tuple[int, int], int]]:
    """((code, symbol), value) of the attributes that are such pairs."""
    at = 0
    while at < len(info):
        form, code, size = ATTRIBUTE.unpack_from(info, at)
        at += ATTRIBUTE.size
        if form == SIZED:
            if size == PAIR.size:
                symbol, value = PAIR.unpack_from(info, at)
                yield (code, symbol), value
            at += size


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode("utf-8", "replace")
