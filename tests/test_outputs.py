"""outputs.py and layout.py: dumps compared as bytes, every fault with its place."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import canonical, layout, outputs
from pipeline.errors import ManifestError
from pipeline.layout import Entry
from pipeline.proof import Bound, Difference, File


def dump(folder: Path, files: dict[str, bytes], laid_out: dict[str, Any] | None = None) -> Path:
    """A folder of dumps."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    folder.mkdir(exist_ok=True)
    if laid_out is not None:
        (folder / "layout.json").write_text(json.dumps(laid_out))
    return folder


def f32(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def entry(name: str, dtype: str, shape: list[int], offset: int = 0) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": shape, "offset": offset}


LOGITS = {"logits.f32": [entry("logits", "f32", [2, 3])]}
STATE = {
    "state.bin": [
        entry("conv", "f32", [2, 3]),
        entry("kv", "u32", [2, 2, 2], 24),
        entry("cursor", "i32", [], 56),
        entry("flags", "u8", [3], 60),
        entry("scale", "f64", [1], 64),
        entry("half", "u16", [2], 72),
    ]
}


def places(*differences: Difference) -> list[str]:
    """Kind and place of each, as one text."""
    return [f"{one.kind}: {one.place}" for one in differences]


def test_listing_is_names_digests_and_sizes(tmp_path: Path) -> None:
    """Every file below the folder, sorted, with relative names; what a command says about its dumps is left out."""
    folder = dump(tmp_path / "a", {"z.f32": b"1234", "M3/logits.f32": b"", "M3/layout.json": b"{}"}, {})
    dump(folder, {"inputs.json": b"[]", "toolchain.json": b"[]"})
    files = outputs.listing(folder)
    assert files == (
        File("M3/layout.json", canonical.sha256(b"{}"), 2),
        File("M3/logits.f32", canonical.sha256(b""), 0),
        File("z.f32", canonical.sha256(b"1234"), 4),
    )
    rows = [[file.name, file.sha256, file.bytes] for file in files]
    assert outputs.listing_digest(files) == canonical.sha256(canonical.dumps(rows))
    assert outputs.listing_digest(files[:1]) != outputs.listing_digest(files)


@pytest.mark.parametrize("what", ["link", "linked folder", "fifo"])
def test_odd_files_among_dumps_are_refused(tmp_path: Path, what: str) -> None:
    """A link, to a file or to a folder, and a FIFO are no dumps; nothing waits for them."""
    folder, other = dump(tmp_path / "a", {"x.f32": f32(1)}), dump(tmp_path / "b", {"x.f32": f32(1)})
    if what == "fifo":
        os.mkfifo(folder / "odd")
    else:
        (folder / "odd").symlink_to(other / "x.f32" if what == "link" else other)
    word = "a FIFO" if what == "fifo" else "a link"
    for use in (lambda: outputs.listing(folder), lambda: outputs.compare([other, folder])):
        with pytest.raises(ManifestError, match=f"odd: is {word} among the dumps"):
            use()


@pytest.mark.parametrize("name", [b"\xff.f32", b"a\nb.f32", b"a\x1b[1m.f32"])
def test_a_dump_whose_name_cannot_be_printed_is_refused(tmp_path: Path, name: bytes) -> None:
    """A record, and each line that is said of it, must be able to hold the name."""
    folder = dump(tmp_path / "a", {"x.f32": f32(1)})
    (folder / os.fsdecode(name)).write_bytes(b"")
    with pytest.raises(ManifestError, match="is no name for a dump") as caught:
        outputs.listing(folder)
    assert str(caught.value).isprintable()


def test_equal_folders_have_no_difference(tmp_path: Path) -> None:
    """The same names and bytes, one NaN among them, are the same; how metadata differs does not matter."""
    sides = [dump(tmp_path / name, {"a.f32": f32(1, math.nan), "m/b.bin": b"x"}) for name in "abc"]
    dump(sides[1], {"inputs.json": b"[]"})
    assert outputs.compare(sides) == ()


def test_a_folder_is_never_compared_with_itself(tmp_path: Path) -> None:
    """The same folder twice, by whatever path, or one folder alone, is a mistake of the caller."""
    folder = dump(tmp_path / "a", {"a.f32": f32(1)})
    (tmp_path / "link").symlink_to(folder)
    for sides in ([folder], [folder, folder], [folder, tmp_path / "link"], []):
        with pytest.raises(ValueError, match="at least one other"):
            outputs.compare(sides)
    with pytest.raises(ValueError, match="another one"):
        outputs.within(folder, tmp_path / "link", ("a.f32",), "f32")


def test_missing_extra_and_empty_files_are_differences(tmp_path: Path) -> None:
    """Each by its own kind, with the side's number; an empty file that all sides have compares nothing."""
    one = dump(tmp_path / "1", {"a.f32": f32(1), "e.f32": b"", "m.f32": f32(2), "n.f32": f32(1)})
    two = dump(tmp_path / "2", {"a.f32": f32(1), "e.f32": b"", "n.f32": b""})
    three = dump(tmp_path / "3", {"a.f32": f32(1), "e.f32": b"", "m.f32": f32(2), "n.f32": f32(1), "x.f32": b"1"})
    assert places(*outputs.compare([one, two, three])) == [
        "missing: m.f32: side 2 did not leave it",
        "extra: x.f32: only side 3 left it",
        "empty: e.f32: an empty file",
        "bytes: n.f32: 0 bytes where the first side has 4",
    ]
    empty = [dump(tmp_path / name, {}) for name in "ab"]
    assert places(*outputs.compare(empty)) == ["empty: the first side left no file"]


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [
        (f32(1, 2, 3, 4, 5, 6), f32(1, 2, 3, 4, 5, 7), "row 1 col 2: 0x40c00000 0x40e00000 (2097152 ulp)"),
        (u32(*[0x3F800000] * 6), u32(0x3F800000, *[0x3F800001] * 5), "row 0 col 1: 0x3f800000 0x3f800001 (1 ulp)"),
        (f32(0, 0, 0, 0, 0, 0), f32(0, 0, 0, -0.0, 0, 0), "row 1 col 0: 0x00000000 0x80000000 (zeros of two signs)"),
        (u32(*[0x7FC00000] * 6), u32(*[0x7FC00000] * 4, 0x7FC00001, 0), "row 1 col 1: 0x7fc00000 0x7fc00001 (NaN)"),
        (u32(*[0x7FA00001] * 6), u32(0x7FE00001, *[0x7FA00001] * 5), "row 0 col 0: 0x7fa00001 0x7fe00001 (NaN)"),
        (u32(0x80000001, *[9] * 5), u32(0x00000001, *[9] * 5), "row 0 col 0: 0x80000001 0x00000001 (2 ulp)"),
        (u32(0x7F7FFFFF, *[9] * 5), u32(0x7F800000, *[9] * 5), "row 0 col 0: 0x7f7fffff 0x7f800000 (1 ulp)"),
    ],
)
def test_the_first_difference_is_located(tmp_path: Path, left: bytes, right: bytes, place: str) -> None:
    """Row, column, both bit patterns and their distance; -0.0, NaN payloads and quiet bits are seen."""
    sides = [dump(tmp_path / "a", {"logits.f32": left}, LOGITS), dump(tmp_path / "b", {"logits.f32": right})]
    assert outputs.compare(sides) == (Difference("bytes", "logits.f32", f"logits.f32 {place}"),)
    found = outputs.first_difference(sides[0] / "logits.f32", sides[1] / "logits.f32", layout.read(sides[0]))
    assert found is not None
    assert str(found) == f"logits.f32 {place}"
    assert left[: found.offset] == right[: found.offset]
    assert left[found.offset] != right[found.offset]
    assert outputs.first_difference(sides[0] / "logits.f32", sides[0] / "logits.f32", {}) is None


@pytest.mark.parametrize(
    ("at", "place"),
    [
        (0, "state.bin conv row 0 col 0: 0x00000000 0x00000001 (1 ulp)"),
        (23, "state.bin conv row 1 col 2: 0x00000000 0x01000000 (16777216 ulp)"),
        (24 + 4 * 5, "state.bin kv at [1, 0, 1]: 0x00000000 0x00000001"),
        (57, "state.bin cursor: 0x00000000 0x00000100"),
        (62, "state.bin flags at 2: 0x00 0x01"),
        (63, "state.bin byte 63: 0x00 0x01"),
        (64, "state.bin scale at 0: 0x0000000000000000 0x0000000000000001 (1 ulp)"),
        (74, "state.bin half at 1: 0x0000 0x0001"),
        (79, "state.bin byte 79: 0x00 0x01"),
    ],
)
def test_places_of_every_type_and_shape(tmp_path: Path, at: int, place: str) -> None:
    """Each kind of entry names its element; a byte that no entry covers is named as a byte."""
    changed = bytearray(80)
    changed[at] = 1
    sides = [dump(tmp_path / "a", {"state.bin": bytes(80)}, STATE), dump(tmp_path / "b", {"state.bin": bytes(changed)})]
    assert [difference.place for difference in outputs.compare(sides)] == [place]


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [
        (math.inf, math.nan, "(NaN)"),
        (math.inf, 1.7976931348623157e308, "(1 ulp)"),
        (-0.0, 0.0, "(zeros of two signs)"),
        (-5e-324, 5e-324, "(2 ulp)"),
    ],
)
def test_distances_of_float64(tmp_path: Path, left: float, right: float, distance: str) -> None:
    """What holds for f32 holds for f64: NaN, the step to infinity, both zeros, the step over them."""
    laid_out = {"x.bin": [entry("x", "f64", [1])]}
    one = dump(tmp_path / "a", {"x.bin": struct.pack("<d", left)}, laid_out)
    two = dump(tmp_path / "b", {"x.bin": struct.pack("<d", right)}, laid_out)
    (found,) = outputs.compare([one, two])
    assert found.place.endswith(distance)


def test_places_without_a_layout(tmp_path: Path) -> None:
    """By its suffix a file is f32 in one row; any other is bytes; an element that only one side has whole is bytes."""
    one = dump(tmp_path / "a", {"m/x.f32": f32(1, 2), "y.bin": b"abc", "z.f32": b"\1\2\3\4\5\6"})
    two = dump(tmp_path / "b", {"m/x.f32": f32(1, -2), "y.bin": b"abd", "z.f32": b"\1\2\3\4\5\7"})
    assert places(*outputs.compare([one, two])) == [
        "bytes: m/x.f32 at 1: 0x40000000 0xc0000000 (2147483648 ulp)",
        "bytes: y.bin byte 2: 0x63 0x64",
        "bytes: z.f32 byte 5: 0x06 0x07",
    ]


def test_a_shorter_file_is_located_by_its_end(tmp_path: Path) -> None:
    """Where one file is the beginning of the other, both sizes are said; else the first byte decides."""
    one = dump(tmp_path / "a", {"x.f32": f32(1, 2), "y.f32": f32(1, 2)})
    two = dump(tmp_path / "b", {"x.f32": f32(1), "y.f32": f32(3)})
    assert places(*outputs.compare([one, two])) == [
        "bytes: x.f32: 4 bytes where the first side has 8",
        "bytes: y.f32 at 0: 0x3f800000 0x40400000 (12582912 ulp)",
    ]


@pytest.mark.parametrize("at", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 2**21 + 12])
def test_large_files_are_compared_to_their_last_byte(tmp_path: Path, at: int) -> None:
    """A single byte is found on either side of every chunk's edge."""
    data = bytearray(2**21 + 13)
    one = dump(tmp_path / "a", {"x.bin": bytes(data)})
    data[at] = 255
    two = dump(tmp_path / "b", {"x.bin": bytes(data)})
    assert [difference.place for difference in outputs.compare([one, two])] == [f"x.bin byte {at}: 0x00 0xff"]


def test_the_third_side_is_compared_too(tmp_path: Path) -> None:
    """A difference that only a later side has is found."""
    sides = [dump(tmp_path / str(i), {"x.f32": f32(1, 2 if i < 3 else 3)}) for i in range(4)]
    assert places(*outputs.compare(sides)) == ["bytes: x.f32 at 1: 0x40000000 0x40400000 (4194304 ulp)"]
    assert outputs.compare(sides[:3]) == ()


def test_not_finite_finds_nan_and_inf_in_f32_alone(tmp_path: Path) -> None:
    """The first of each f32 entry with its bits and how many; poisoned images of other types are left in peace."""
    state = bytearray(80)
    state[4:8] = u32(0x7FC00000)
    state[20:24] = u32(0xFF800000)
    state[24:64] = b"\xff" * 40
    state[64:72] = struct.pack("<d", math.nan)
    folder = dump(
        tmp_path / "a", {"state.bin": bytes(state), "x.f32": f32(1, 2, math.inf), "y.bin": b"\xff" * 8}, STATE
    )
    assert places(*outputs.not_finite(folder)) == [
        "nan: state.bin conv row 0 col 1: 0x7fc00000 (NaN), 2 of 6",
        "nan: x.f32 at 2: 0x7f800000 (Inf), 1 of 3",
    ]
    assert outputs.not_finite(dump(tmp_path / "b", {"x.f32": f32(1, -0.0, 1e-45), "e.f32": b""})) == ()


def test_a_dump_shorter_than_its_layout_is_a_difference(tmp_path: Path) -> None:
    """An entry that ends beyond its file, an element cut in two, and a file that is only in the layout are said."""
    laid_out = {**LOGITS, "gone.f32": [entry("gone", "f32", [1])]}
    folder = dump(tmp_path / "a", {"logits.f32": f32(1, 2, 3), "torn.f32": b"123456"}, laid_out)
    assert places(*outputs.not_finite(folder)) == [
        "layout: gone.f32: layout.json names it and it is not there",
        "layout: logits.f32: 12 bytes, and its entry logits ends at byte 24",
        "layout: torn.f32: 6 bytes, and its entry torn ends at byte 8",
    ]
    reference = dump(tmp_path / "b", {"logits.f32": f32(1, 2, 3, 4, 5, 6)}, LOGITS)
    for sides in ((folder, reference), (reference, folder)):
        bounds, (row,) = outputs.within(*sides, ("logits.f32",), "f32")
        assert bounds == ()
        assert row.place == "logits.f32: 12 bytes, and its entry logits ends at byte 24"


def test_within_is_the_worst_error_over_the_largest_magnitude(tmp_path: Path) -> None:
    """By hand: off by 3 of 1000 is 3,000,000 ppb, at that element; off by nothing is 0; a part of a billionth is 1."""
    reference = dump(tmp_path / "r", {"x.f32": f32(-1000, 1, 2, 3, 4, 5)}, {"x.f32": [entry("x", "f32", [2, 3])]})
    one = dump(tmp_path / "a", {"x.f32": f32(-1000, 1, 2, 3, 7, 6)}, {"x.f32": [entry("x", "f32", [2, 3])]})
    assert outputs.within(one, reference, ("x.f32",), "f32") == (
        (Bound("x.f32", "x", 3_000_000, "x.f32 row 1 col 1"),),
        (),
    )
    same = dump(tmp_path / "s", {"x.f32": f32(-1000, 1, 2, 3, 4, 5)}, {"x.f32": [entry("x", "f32", [2, 3])]})
    assert outputs.within(same, reference, ("x.f32",), "f32") == ((Bound("x.f32", "x", 0, "x.f32 row 0 col 0"),), ())
    tiny = dump(tmp_path / "t", {"x.f32": f32(-1000, 1, 2, 3, 4, 5.0000005)}, {"x.f32": [entry("x", "f32", [2, 3])]})
    ((row,), ()) = outputs.within(tiny, reference, ("x.f32",), "f32")
    assert row.worst_ppb == 1


def test_within_rounds_up_exactly(tmp_path: Path) -> None:
    """Of seeded arrays no recorded error is smaller than the exact one, nor a whole billionth larger."""
    random = np.random.default_rng(7)
    for i in range(20):
        a, r = (random.standard_normal(31).astype(np.float32) for _ in range(2))
        one, two = dump(tmp_path / f"a{i}", {"x.f32": a.tobytes()}), dump(tmp_path / f"r{i}", {"x.f32": r.tobytes()})
        ((row,), ()) = outputs.within(one, two, ("x.f32",), "f32")
        exact = max(abs(float(x) - float(y)) for x, y in zip(a, r, strict=True)) / max(abs(float(y)) for y in r) * 1e9
        assert exact * (1 - 1e-12) <= row.worst_ppb <= exact + 1 + 1e-3


def test_within_looks_at_each_entry(tmp_path: Path) -> None:
    """Each entry of the type has its own bound and its own scale; entries of other types have none."""
    laid_out = {"s.bin": [entry("large", "f32", [2]), entry("small", "f32", [2], 8), entry("count", "u32", [1], 16)]}
    one = dump(tmp_path / "a", {"s.bin": f32(1000, 1, 1, 0.5) + u32(0x7FC00000)}, laid_out)
    two = dump(tmp_path / "b", {"s.bin": f32(1000, 0, 1, 0.25) + u32(8)}, laid_out)
    assert outputs.within(one, two, ("s.bin",), "f32")[0] == (
        Bound("s.bin", "large", 1_000_000, "s.bin large at 1"),
        Bound("s.bin", "small", 250_000_000, "s.bin small at 1"),
    )


def test_within_reads_a_float64_reference(tmp_path: Path) -> None:
    """The reference may be f64: an f32 result is held against numbers that f32 does not have."""
    one = dump(tmp_path / "a", {"x.bin": f32(1.0, 0.1)}, {"x.bin": [entry("x", "f32", [2])]})
    two = dump(tmp_path / "b", {"x.bin": struct.pack("<2d", 1.0, 0.1)}, {"x.bin": [entry("x", "f64", [2])]})
    ((row,), ()) = outputs.within(one, two, ("x.bin",), "f32")
    assert row.worst_ppb == math.ceil((float(np.float32(0.1)) - 0.1) * 1e9) == 2


@pytest.mark.parametrize(
    ("left", "right", "kind", "place"),
    [
        (f32(1, math.nan), f32(1, 2), "nan", "x.f32 at 1: 0x7fc00000 (NaN), 1 of 2"),
        (f32(1, 2), f32(1, math.nan), "nan", "x.f32 at 1: 0x7fc00000 (NaN in the reference), 1 of 2"),
        (f32(1, math.nan), f32(1, math.nan), "nan", "x.f32 at 1: 0x7fc00000 (NaN), 1 of 2"),
        (f32(math.inf, 1), f32(math.inf, 1), "nan", "x.f32 at 0: 0x7f800000 (Inf), 1 of 2"),
        (f32(1, 2), f32(1), "layout", "x.f32: entry x has shape [2], the reference's is [1]"),
        (b"", b"", "empty", "x.f32: entry x has no element"),
        (f32(0, 0), f32(0, 0), "empty", "x.f32: the reference is zero throughout"),
        (f32(1, 2), None, "missing", "x.f32: not left by the reference"),
        (None, f32(1, 2), "missing", "x.f32: not left by the first side"),
        (None, None, "missing", "x.f32: not left by the first side and the reference"),
    ],
)
def test_what_has_no_bound(tmp_path: Path, left: bytes | None, right: bytes | None, kind: str, place: str) -> None:
    """NaN and Inf on either side, other shapes, nothing to compare, nothing there: a Difference, never a bound."""
    one = dump(tmp_path / "a", {} if left is None else {"x.f32": left})
    two = dump(tmp_path / "b", {} if right is None else {"x.f32": right})
    bounds, differences = outputs.within(one, two, ("x.f32",), "f32")
    assert f"{kind}: {place}" in places(*differences)
    assert all(bound.worst_ppb == 0 for bound in bounds)


def test_an_error_against_a_zero_entry_is_never_small(tmp_path: Path) -> None:
    """Beside another entry that is not zero, a zero entry holds exactly or is off by the largest number there is."""
    laid_out = {"s.bin": [entry("a", "f32", [1]), entry("b", "f32", [1], 4)]}
    two = dump(tmp_path / "r", {"s.bin": f32(1, 0)}, laid_out)
    for value, worst in ((0.0, 0), (-0.0, 0), (1e-45, outputs.PPB_MAX)):
        one = dump(tmp_path / "a", {"s.bin": f32(1, value)}, laid_out)
        bounds, differences = outputs.within(one, two, ("s.bin",), "f32")
        assert [bound.worst_ppb for bound in bounds] == [0, worst]
        assert differences == ()


def test_entries_must_have_their_partner(tmp_path: Path) -> None:
    """An entry that only one side has is missing, whichever side it is."""
    one = dump(tmp_path / "a", {"s.bin": f32(1, 2)}, {"s.bin": [entry("a", "f32", [1]), entry("b", "f32", [1], 4)]})
    two = dump(tmp_path / "b", {"s.bin": f32(1, 2)}, {"s.bin": [entry("a", "f32", [1]), entry("c", "f32", [1], 4)]})
    assert places(*outputs.within(one, two, ("s.bin",), "f32")[1]) == [
        "missing: s.bin: the reference has no entry b",
        "missing: s.bin: the reference's entry c was not left",
    ]
    assert places(*outputs.within(one, two, ("s.bin", "none.f32"), "f64")[1]) == [
        "missing: s.bin: the reference's entry a was not left",
        "missing: s.bin: the reference's entry c was not left",
        "empty: s.bin: no f64 element to compare",
        "missing: none.f32: not left by the first side and the reference",
    ]
    with pytest.raises(ManifestError, match="dtype 'u32' has no error bound"):
        outputs.within(one, two, ("s.bin",), "u32")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[]", "is not an object of lists"),
        ('{"a": {}}', "is not an object of lists"),
        ("{", "Expecting"),
        ("[" * 100_000, "recursion"),
        ('{"a": [1]}', "a: an entry has dtype, name, offset, shape and nothing else"),
        (json.dumps({"a": [{**entry("x", "f32", [1]), "unit": "m"}]}), "a: an entry has"),
        (json.dumps({"a": [entry("", "f32", [1])]}), "a: an entry has no name"),
        (json.dumps({"a": [entry("x", "f16", [1])]}), "a x: dtype 'f16' is none of f32, f64"),
        (json.dumps({"a": [entry("x", "f32", [-1])]}), r"a x: shape \[-1\]"),
        (json.dumps({"a": [entry("x", "f32", [1.5])]}), r"a x: shape \[1.5\]"),
        (json.dumps({"a": [entry("x", "f32", [True])]}), r"a x: shape \[True\]"),
        (json.dumps({"a": [entry("x", "f32", [1] * 9)]}), "at most 8 sizes"),
        (json.dumps({"a": [entry("x", "f32", [1], -4)]}), "a x: offset -4"),
        (json.dumps({"a": [entry("x", "f32", [1]), entry("x", "f32", [1], 4)]}), "a: two entries of one name"),
    ],
)
def test_a_malformed_layout_is_a_manifest_error(tmp_path: Path, text: str, line: str) -> None:
    """A layout.json that is not of the seam's format is named with what is wrong, and never ignored."""
    folder, other = dump(tmp_path / "a", {"a": b"1"}), dump(tmp_path / "b", {"a": b"1"})
    (folder / "layout.json").write_text(text)
    for use in (lambda: layout.read(folder), lambda: outputs.compare([other, folder])):
        with pytest.raises(ManifestError, match=f"layout.json: .*{line}") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_a_layout_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Entries keep their order, a scalar has one element, and no layout.json is an empty layout."""
    folder = dump(tmp_path / "a", {"state.bin": bytes(80)}, STATE)
    assert layout.read(folder)["state.bin"][2] == Entry("cursor", "i32", (), 56)
    assert [(one.count, one.end) for one in layout.read(folder)["state.bin"][:3]] == [(6, 24), (8, 56), (1, 60)]
    assert layout.read(tmp_path) == {}
    deep = dump(tmp_path / "b", {}, {"x.bin": [entry("x", "u8", [1] * 7 + [2])]})
    assert layout.read(deep)["x.bin"][0].count == 2
