"""Folders of dumps: listed, compared byte by byte, searched for NaN, held against a reference.

Equality is equality of bytes, so -0.0 is not 0.0 and a NaN's payload counts. A wrong result is a value, a Difference
or a Bound; a folder that does not keep to the seam (a link, a malformed layout.json) is an error.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from pipeline import canonical, durable, layout
from pipeline.errors import ManifestError
from pipeline.layout import Entry, Layout
from pipeline.proof import Bound, Difference, File

if TYPE_CHECKING:
    import numpy as np

    Row = tuple[Entry, "np.ndarray[Any, Any] | None"]  # an entry and its elements

METADATA: Final = (layout.LAYOUT, "inputs.json", "toolchain.json")  # what a command says about its dumps
FILES_MAX: Final = 10_000
CHUNK: Final = 2**20  # bytes
PPB: Final = 10**9
PPB_MAX: Final = 10**15  # a worst error is never recorded as more


@dataclass(frozen=True, slots=True)
class Place:
    """The first byte in which two files differ, and the element around it in words."""

    file: str
    offset: int
    text: str

    def __str__(self) -> str:
        return self.text


def listing(folder: Path) -> tuple[File, ...]:
    """Every dump in a folder, sorted by name; METADATA left out. Raises ManifestError for a link or worse."""
    return tuple(_file(folder, name) for name in _names(folder))


def listing_digest(files: Sequence[File]) -> str:
    """The digest that stands for a whole folder of dumps."""
    return canonical.sha256(canonical.dumps([[file.name, file.sha256, file.bytes] for file in files]))


def compare(sides: Sequence[Path]) -> tuple[Difference, ...]:
    """How two or more folders differ from the first; empty if names and bytes are the same and there is something.

    A file that is empty everywhere, and a folder without a file, are differences too: nothing was compared.
    """
    if len(sides) < 2 or any(os.path.samefile(sides[0], side) for side in sides[1:]):
        raise ValueError("a folder is compared with at least one other")
    first, *others = (_names(side) for side in sides)
    laid_out: Layout = {}
    for side in reversed(sides):
        laid_out = {**laid_out, **layout.read(side)}
    found = [] if first else [Difference("empty", "", "the first side left no file")]
    for i, names in enumerate(others, start=2):
        found += [Difference("missing", n, f"{n}: side {i} did not leave it") for n in first if n not in names]
        found += [Difference("extra", n, f"{n}: only side {i} left it") for n in names if n not in first]
    for name in first:
        holders = [side for side, names in zip(sides[1:], others, strict=True) if name in names]
        places = (first_difference(sides[0] / name, side / name, laid_out, file=name) for side in holders)
        place = next((p for p in places if p is not None), None)
        if place is not None:
            found.append(Difference("bytes", name, place.text))
        elif not (sides[0] / name).stat().st_size:
            found.append(Difference("empty", name, f"{name}: an empty file"))
    return tuple(found)


def first_difference(a: Path, b: Path, laid_out: Layout, *, file: str | None = None) -> Place | None:
    """Where two files first differ; None if they hold the same bytes. `file` is their name in the layout."""
    name = a.name if file is None else file
    with durable.open_regular(a) as left, durable.open_regular(b) as right:
        sizes = [os.fstat(one.fileno()).st_size for one in (left, right)]
        offset = _first_byte(left, right)
        if offset is None:
            return None
        if offset >= min(sizes):
            return Place(name, offset, f"{name}: {sizes[1]} bytes where the first side has {sizes[0]}")
        entries = layout.entries(name, sizes[0], laid_out)
        _, _, start, width = layout.element_at(entries, offset)
        if start + width > min(sizes):
            entries, start, width = (), offset, 1
        elements = []
        for one in (left, right):
            one.seek(start)
            elements.append(one.read(width))
    return Place(name, offset, layout.difference(name, entries, offset, *elements))


def not_finite(folder: Path, laid_out: Layout | None = None) -> tuple[Difference, ...]:
    """The first NaN or Inf of every f32 entry, and every entry that its file is too short for.

    Entries of other types are not searched: a poisoned memory image is declared u32.
    """
    known = layout.read(folder) if laid_out is None else laid_out
    names = _names(folder)
    found = [Difference("layout", n, f"{n}: layout.json names it and it is not there") for n in known if n not in names]
    for name in names:
        for entry, array in _arrays(folder, name, known, ("f32",)):
            if array is None:
                found.append(_short(folder / name, entry, name))
                continue
            odd = _not_finite(name, entry, array)
            if odd is not None:
                found.append(odd)
    return tuple(found)


def within(
    folder: Path, reference: Path, files: Sequence[str], dtype: str
) -> tuple[tuple[Bound, ...], tuple[Difference, ...]]:
    """A Bound for each entry of type `dtype` of the named files, and what kept others from having one.

    The reference's entries have the same names and shapes; they may be f32 or f64. Errors are taken in float64.
    NaN and Inf on either side, a missing or empty file, and a reference that is zero throughout have no bound.
    Whether a Bound is small enough is not decided here.
    """
    if dtype not in layout.FLOATS:
        raise ManifestError("within", f"dtype {dtype!r} has no error bound", f"use {' or '.join(layout.FLOATS)}")
    if os.path.samefile(folder, reference):
        raise ValueError("a folder is held against another one")
    left, right = _names(folder), _names(reference)
    found: list[Bound | Difference] = []
    for name in files:
        absent = [side for side, has in (("the first side", left), ("the reference", right)) if name not in has]
        if absent:
            found.append(Difference("missing", name, f"{name}: not left by {' and '.join(absent)}"))
        else:
            found += _file_within((folder, reference), name, dtype)
    bounds = tuple(one for one in found if isinstance(one, Bound))
    return bounds, tuple(one for one in found if isinstance(one, Difference))


def _file_within(sides: tuple[Path, Path], name: str, dtype: str) -> list[Bound | Difference]:
    folder, reference = sides
    rows = list(_arrays(folder, name, layout.read(folder), (dtype,), dtype))
    wanted = {row[0].name: row for row in _arrays(reference, name, layout.read(reference), tuple(layout.FLOATS), dtype)}
    found = [_bound(sides, name, row, wanted.get(row[0].name)) for row in rows]
    for lost in sorted(set(wanted) - {entry.name for entry, _ in rows}):
        found.append(Difference("missing", name, f"{name}: the reference's entry {lost} was not left"))
    if not any(array is None or array.size for _, array in rows):
        found.append(Difference("empty", name, f"{name}: no {dtype} element to compare"))
    elif not any(array is None or array.any() for _, array in wanted.values()):
        found.append(Difference("empty", name, f"{name}: the reference is zero throughout"))
    return found


def _bound(sides: tuple[Path, Path], name: str, row: Row, other: Row | None) -> Bound | Difference:
    import numpy as np

    entry, array = row
    if other is None:
        return Difference("missing", name, f"{name}: the reference has no entry {entry.name}")
    if array is None or other[1] is None:
        return _short(sides[0] / name, entry, name) if array is None else _short(sides[1] / name, other[0], name)
    if entry.shape != other[0].shape:
        shapes = f"shape {list(entry.shape)}, the reference's is {list(other[0].shape)}"
        return Difference("layout", name, f"{name}: entry {entry.name} has {shapes}")
    odd = _not_finite(name, entry, array) or _not_finite(name, other[0], other[1], " in the reference")
    if odd is not None:
        return odd
    if not array.size:
        return Difference("empty", name, f"{name}: entry {entry.name} has no element")
    wanted = other[1].astype(np.float64)
    with np.errstate(over="ignore"):
        error = np.abs(array.astype(np.float64) - wanted)
    at = int(np.argmax(error))
    worst, scale = float(error[at]), float(np.abs(wanted).max())
    if worst == 0.0:
        return Bound(name, entry.name, 0, layout.place(name, entry, 0))
    enough = scale > 0.0 and worst < math.inf
    most = min(math.ceil(Fraction(worst) / Fraction(scale) * PPB), PPB_MAX) if enough else PPB_MAX
    return Bound(name, entry.name, most, layout.place(name, entry, at))


def _not_finite(name: str, entry: Entry, array: np.ndarray[Any, Any], suffix: str = "") -> Difference | None:
    import numpy as np

    odd = np.flatnonzero(~np.isfinite(array))
    if not odd.size:
        return None
    at = int(odd[0])
    width = layout.WIDTH[entry.dtype]
    bits = int.from_bytes(array[at : at + 1].tobytes(), "little")
    word = "NaN" if np.isnan(array[at]) else "Inf"
    where = layout.place(name, entry, at)
    return Difference("nan", name, f"{where}: {bits:#0{2 + 2 * width}x} ({word}{suffix}), {odd.size} of {array.size}")


def _short(path: Path, entry: Entry, name: str) -> Difference:
    size = path.stat().st_size
    return Difference("layout", name, f"{name}: {size} bytes, and its entry {entry.name} ends at byte {entry.end}")


def _arrays(folder: Path, name: str, laid_out: Layout, dtypes: tuple[str, ...], otherwise: str = "") -> Iterator[Row]:
    """The entries of these types with their elements, flat; None where the file ends before the entry does.

    A file without an entry is one row of `otherwise`, or by its suffix of f32.
    """
    import numpy as np

    with durable.open_regular(folder / name) as file:
        size = os.fstat(file.fileno()).st_size
        for entry in layout.entries(name, size, laid_out, otherwise):
            if entry.dtype in dtypes:
                file.seek(entry.offset)
                kind = f"<{entry.dtype[0]}{layout.WIDTH[entry.dtype]}"
                yield entry, np.frombuffer(file.read(entry.end - entry.offset), kind) if entry.end <= size else None


def _first_byte(left: IO[bytes], right: IO[bytes]) -> int | None:
    """The offset of the first byte that differs, an end among them; None if both end without one."""
    base = 0
    while True:
        a, b = left.read(CHUNK), right.read(CHUNK)
        if a != b:
            low, high = 0, min(len(a), len(b))  # a[:low] == b[:low], and the difference is at `high` or before
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
            return base + low
        if not a:
            return None
        base += len(a)


def _names(folder: Path) -> tuple[str, ...]:
    names: list[str] = []
    for where, folders, files in os.walk(folder, onerror=_raise):
        for name in folders + files:
            path = Path(where, name)
            relative = path.relative_to(folder).as_posix()
            if name in folders and not path.is_symlink():
                continue
            if not stat.S_ISREG(path.lstat().st_mode):
                raise ManifestError(path, f"is {durable.kind(path)} among the dumps", "write regular files to {out}")
            if not relative.isprintable():
                raise ManifestError(
                    repr(relative), "is no name for a dump", "use letters that can be printed, as UTF-8"
                )
            if relative not in METADATA:
                names.append(relative)
        if len(names) > FILES_MAX:
            raise ManifestError(folder, f"holds more than {FILES_MAX} dumps", "write fewer, larger files")
    return tuple(sorted(names))


def _raise(error: OSError) -> None:
    raise durable.machine_error(Path(error.filename), error) from error


def _file(folder: Path, name: str) -> File:
    digest, size = hashlib.sha256(), 0
    with durable.open_regular(folder / name) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return File(name, digest.hexdigest(), size)
