"""Rows of tokens appended and attending: both forms, what proves that they say something, and no M among arguments."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from kernels import __main__
from kernels.engine.errors import KernelError
from kernels.tools import attn_m, causality, forms

DEVICE = Path(__file__).parents[1] / "kernels" / "device"
FILES = ("keys.u32", "values.u32", "out.u32", "scratch.u32")
# what a number among a kernel's arguments may be: a size of the model, an element count, a draw of synthetic.cuh
SIZES = {
    *("n", "rows", "cols", "rows_a", "rows_b", "heads", "kv_heads", "head_dim", "rotary", "kv_width"),
    *("scratch_stride", "channels", "kernel", "key_heads", "value_heads", "key_dim", "value_dim", "dim"),
    *("low", "high", "exponent"),
}


def leave(folder: Path, *arguments: str, rows: str = "1,2,8", cursors: str = "0,5,long") -> Path:
    """The folder in which attn_m left what the arguments say."""
    out = folder / "-".join(word.strip("-") for word in arguments)
    command = ["--shapes", "odd", "--rows", rows, "--cursors", cursors, *arguments, "--out", str(out)]
    assert attn_m.main(command) == 0
    return out


def entries(folder: Path, file: str) -> dict[str, np.ndarray]:
    data = (folder / file).read_bytes()
    return {
        row["name"]: np.frombuffer(data, "<u4", int(np.prod(row["shape"])), row["offset"]).reshape(row["shape"])
        for row in json.loads((folder / "layout.json").read_text())[file]
    }


def test_rows_at_once_are_rows_one_by_one(tmp_path: Path) -> None:
    """Both forms leave the same caches and finite outputs; behind outputs and scratch canaries survive."""
    folders = [leave(tmp_path, "--form", form, "--leave", "all") for form in forms.FORMS]
    for file in FILES:
        first, second = ((folder / file).read_bytes() for folder in folders)
        assert first == second != b"", file
    for name, words in entries(folders[1], "out.u32").items():
        assert (words[-forms.GUARD_ROWS :] == forms.CANARY).all()
        rows = words[: -forms.GUARD_ROWS].view(np.float32)
        assert np.isfinite(rows).all() and f" M{len(rows)} " in name
    assert all((words == forms.CANARY).all() for words in entries(folders[1], "scratch.u32").values())


def test_caches_hold_what_was_given(tmp_path: Path) -> None:
    """What the rows form leaves in the caches is what --form input says, made by no kernel."""
    made = leave(tmp_path, "--form", "input", "--leave", "caches")
    ran = leave(tmp_path, "--form", "rows", "--leave", "caches")
    for file in attn_m.CACHES:
        assert (made / file).read_bytes() == (ran / file).read_bytes() != b""
    words = entries(made, "keys.u32")["odd M8 at 5"]
    assert words.shape == (5 + 8 + forms.GUARD_ROWS, 3 * 97)
    assert (words[13:] == forms.CANARY).all() and not (words[:13] == forms.CANARY).any()


def test_the_forms_launched_other_things(tmp_path: Path) -> None:
    """For M rows at cursor 0: two launches of as many blocks, or two for each row."""
    folders = [leave(tmp_path, "--form", f, "--leave", "launches", rows="2", cursors="0") for f in forms.FORMS]
    singles, together = (entries(folder, "launches.i32")["launches"].tolist() for folder in folders)
    assert singles == 2 * [[0, 2], [1, 6]] and together == [[0, 4], [1, 12]]


def test_the_long_cursor_needs_more_than_two_head_sizes() -> None:
    """Of scratch; no small cursor of 27b's head size does, so that only the long one sees a scratch of that size."""
    for shape, (heads, kv_heads, head_dim) in attn_m.SHAPES.items():
        long = attn_m.Case(shape, 1, 2 * head_dim + attn_m.BEYOND, heads, kv_heads, head_dim)
        assert long.cursor + 1 > 2 * head_dim and long.scratch_stride == long.cursor + 1 + 256
    assert attn_m.Case("27b", 8, 17, 24, 4, 256).scratch_stride < 2 * 256


@pytest.mark.parametrize(("same", "cursors"), [("queries", "0,5,long"), ("all", "0")])
def test_equal_queries_differ_by_the_keys_that_they_see(same: str, cursors: str, tmp_path: Path) -> None:
    """The first and the last row of each case are other bytes, and the same ones where there is one key only."""
    for row in causality.ROW:
        command = ["--shapes", "odd,tiny", "--rows", "2,8", "--cursors", cursors, "--same", same, "--row", row]
        assert causality.main([*command, "--out", str(tmp_path / row)]) == 0
    files = sorted(path.name for path in (tmp_path / "first").glob("*.u32"))
    assert len(files) == 4 * len(cursors.split(","))
    for file in files:
        first, last = ((tmp_path / row / file).read_bytes() for row in causality.ROW)
        assert (first == last) == (same == "all") and np.isfinite(np.frombuffer(last, "<f4")).all()


@pytest.mark.parametrize(
    ("same", "rows", "cursor", "words"),
    [
        ("queries", "1", "5", "odd M1 at 5: one row has no other"),
        ("all", "1", "0", "odd M1 at 0: one row has no other"),
        ("all", "2", "1", "odd M2 at 1: rows behind 1 tokens see different keys"),
    ],
)
def test_a_case_outside_its_domain_is_an_error(same: str, rows: str, cursor: str, words: str, tmp_path: Path) -> None:
    """No case says something that it cannot say, and nothing is left."""
    command = ["--shapes", "odd", "--rows", rows, "--cursors", cursor, "--same", same, "--row", "last"]
    with pytest.raises(KernelError, match=words):
        causality.main([*command, "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--form", "input", "--leave", "all"), "has nothing but --leave caches"),
        (("--form", "rows", "--leave", "all", "--shapes", "huge"), "give some of tiny"),
        (("--form", "rows", "--leave", "all", "--cursors", "-1"), "give long, or numbers in 0..4096"),
        (("--form", "rows", "--leave", "all", "--rows", "0"), "give numbers in 1..8"),
    ],
)
def test_a_wrong_argument_is_named(more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with the word for it."""
    command = ["attn_m", "--shapes", "odd", "--rows", "1", "--cursors", "0", "--out", "unused", *more]
    with pytest.raises(SystemExit) as ended:
        __main__.main(command)
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_no_kernel_is_told_how_many_rows_or_where() -> None:
    """M comes from the grid and the cursor from memory: no exported kernel has either among its numbers."""
    text = "".join(file.read_text() for file in sorted(DEVICE.glob("*.cu*")))
    exported = re.findall(r"^ENTRY\((\w+),([^)]*)\)", text, re.MULTILINE)
    assert {name for name, _ in exported} >= {"rms_norm", "gemv_q4", "qk_prep", "kv_append", "attention"}
    for name, parameters in exported:
        for parameter in parameters.split(","):
            kind, word = re.fullmatch(r"\s*(.*?)(\w+)\s*", parameter, re.DOTALL).groups()  # type: ignore[union-attr]
            if word in ("cursor", "token"):
                assert "*" in kind, f"{name} has {word} by value"
            elif "*" not in kind and "int" in kind:
                assert word in SIZES, f"{name} has a number {word}"
