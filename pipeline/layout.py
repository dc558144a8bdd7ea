"""What layout.json says lies where in a dump, and a place in a dump put into words. Pure but for reading that one file.

    {"logits.f32": [{"name": "logits", "dtype": "f32", "shape": [64, 256], "offset": 0}, …], …}

Elements are little-endian and lie row by row from `offset` (bytes). Bytes that no entry covers are allowed; they are
compared like all others and named by their byte.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pipeline import durable
from pipeline.errors import ManifestError

LAYOUT: Final = "layout.json"
LAYOUT_BYTES_MAX: Final = 16 * 2**20
ENTRIES_MAX: Final = 100_000  # in one layout
DIMENSIONS_MAX: Final = 8
WIDTH: Final = {"f32": 4, "f64": 8, "u32": 4, "i32": 4, "u16": 2, "u8": 1}  # bytes
FLOATS: Final = {"f32": (31, 0x7F800000), "f64": (63, 0x7FF0000000000000)}  # sign bit's place, bits of infinity
_KEYS: Final = {"name", "dtype", "shape", "offset"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One array in a file of a dump."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.count * WIDTH[self.dtype]


Layout = Mapping[str, tuple[Entry, ...]]  # file name to entries


def read(folder: Path) -> Layout:
    """The layout that a command left beside its dumps; empty if it left none.

    Raises ManifestError: a tool that writes another format does not keep to the seam.
    """
    path = folder / LAYOUT
    try:
        value = json.loads(durable.read(path, LAYOUT_BYTES_MAX))
        if not isinstance(value, dict) or not all(isinstance(rows, list) for rows in value.values()):
            raise ValueError("is not an object of lists")
        if sum(map(len, value.values())) > ENTRIES_MAX:
            raise ValueError(f"has more than {ENTRIES_MAX} entries")
        return {name: _distinct(name, tuple(_entry(name, row) for row in rows)) for name, rows in value.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise ManifestError(path, str(error), 'write {file: [{"name", "dtype", "shape", "offset"}, …]}') from None


def entries(name: str, size: int, layout: Layout, otherwise: str = "") -> tuple[Entry, ...]:
    """The entries of a file. One that has none is one row of `otherwise`, or by its suffix of f32, or of nothing."""
    if name in layout:
        return layout[name]
    dtype = otherwise or ("f32" if name.endswith(".f32") else "")
    return (Entry(PurePosixPath(name).stem, dtype, (-(-size // WIDTH[dtype]),), 0),) if dtype else ()


def place(file: str, entry: Entry, index: int) -> str:
    """`logits.f32 row 2 col 17` for the element at a flat index; the entry is named where the file's name does not."""
    named = file if entry.name in (file, PurePosixPath(file).stem) else f"{file} {entry.name}"
    at = []
    for length in reversed(entry.shape):
        index, rest = divmod(index, length)
        at.append(rest)
    at.reverse()
    match at:
        case []:
            return named
        case [i]:
            return f"{named} at {i}"
        case [row, col]:
            return f"{named} row {row} col {col}"
    return f"{named} at {at}"


def difference(file: str, rows: tuple[Entry, ...], offset: int, left: bytes, right: bytes) -> str:
    """Where two files first differ, in words: place, both bit patterns, and for floats their distance in ulp.

    `left` and `right` are the bytes of the element, or the byte, that `element_at` names.
    """
    entry, index, _, width = element_at(rows, offset)
    a, b = int.from_bytes(left, "little"), int.from_bytes(right, "little")
    bits = f"{a:#0{2 + 2 * width}x} {b:#0{2 + 2 * width}x}"
    if entry is None:
        return f"{file} byte {offset}: {bits}"
    return f"{place(file, entry, index)}: {bits}{_distance(entry.dtype, a, b)}"


def element_at(rows: tuple[Entry, ...], offset: int) -> tuple[Entry | None, int, int, int]:
    """Entry, flat index, first byte and width of the element that covers a byte; no entry: the byte itself."""
    for entry in rows:
        if entry.offset <= offset < entry.end:
            width = WIDTH[entry.dtype]
            index = (offset - entry.offset) // width
            return entry, index, entry.offset + index * width, width
    return None, offset, offset, 1


def _distance(dtype: str, a: int, b: int) -> str:
    if dtype not in FLOATS:
        return ""
    sign, infinity = FLOATS[dtype]
    magnitude = [bits & ~(1 << sign) for bits in (a, b)]
    if max(magnitude) > infinity:
        return " (NaN)"
    left, right = (m if bits == m else -m for bits, m in zip((a, b), magnitude, strict=True))
    return f" ({abs(left - right)} ulp)" if left != right else " (zeros of two signs)"


def _entry(file: str, row: Any) -> Entry:
    if not isinstance(row, dict) or set(row) != _KEYS:
        raise ValueError(f"{file}: an entry has {', '.join(sorted(_KEYS))} and nothing else")
    name, dtype, shape, offset = row["name"], row["dtype"], row["shape"], row["offset"]
    if not isinstance(name, str) or not name:
        raise ValueError(f"{file}: an entry has no name")
    if not isinstance(dtype, str) or dtype not in WIDTH:
        raise ValueError(f"{file} {name}: dtype {dtype!r} is none of {', '.join(WIDTH)}")
    if not isinstance(shape, list) or len(shape) > DIMENSIONS_MAX or not all(_natural(n) for n in shape):
        raise ValueError(f"{file} {name}: shape {shape!r} is no list of at most {DIMENSIONS_MAX} sizes")
    if not _natural(offset):
        raise ValueError(f"{file} {name}: offset {offset!r} is not a number of bytes")
    return Entry(name, dtype, tuple(shape), offset)


def _distinct(file: str, rows: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if len({row.name for row in rows}) != len(rows):
        raise ValueError(f"{file}: two entries of one name")
    return rows


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**48
