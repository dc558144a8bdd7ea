"""The tools that hold M rows by one launch against M launches of one row: what they leave, and what they refuse."""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kernels import __main__, artifact
from kernels.engine.errors import KernelError
from kernels.tools import forms, rows

BUILT = artifact.tree


@cache
def opened() -> artifact.Artifact:
    return artifact.load(BUILT())


@pytest.fixture
def stage() -> Iterator[forms.Stage]:
    made = forms.Stage(opened())
    yield made
    made.close()


def entries(folder: Path, file: str) -> dict[str, np.ndarray]:
    """The arrays of a dump's file by name."""
    kinds = {"u32": "<u4", "i32": "<i4"}
    data = (folder / file).read_bytes()
    return {
        row["name"]: np.frombuffer(data, kinds[row["dtype"]], int(np.prod(row["shape"])), row["offset"]).reshape(
            row["shape"]
        )
        for row in json.loads((folder / "layout.json").read_text())[file]
    }


def leave(folder: Path, family: str, form: str, *more: str) -> Path:
    """The folder in which the tool left a form of a family."""
    out = folder / form
    command = ["--family", family, "--form", form, "--rows", "1,3,8", "--sizes", "small", *more, "--out", str(out)]
    assert rows.main(command) == 0
    return out


@pytest.mark.parametrize("family", rows.FAMILIES)
def test_both_forms_leave_the_same(family: str, tmp_path: Path) -> None:
    """Every output of every case and M, with canaries behind the last row and none in the rows."""
    folders = [leave(tmp_path, family, form) for form in forms.FORMS]
    first, second = ((folder / f"{family}.u32").read_bytes() for folder in folders)
    assert first == second != b""
    for name, words in entries(folders[1], f"{family}.u32").items():
        assert len(words) == int(name.split(" M")[1].split(" ")[0]) + forms.GUARD_ROWS
        assert (words[-forms.GUARD_ROWS :] == forms.CANARY).all()
        assert np.isfinite(words[: -forms.GUARD_ROWS].view(np.float32)).all()


def test_the_forms_launched_other_things(tmp_path: Path) -> None:
    """Singles launch one row so many times, rows all of them once; with --launches nothing else is left."""
    folders = [leave(tmp_path, "rms_norm", form, "--launches") for form in forms.FORMS]
    singles, together = (entries(folder, "launches.i32")["launches"].tolist() for folder in folders)
    widths = len(rows.SMALL_WIDTHS)
    assert singles == widths * 12 * [[0, 1]] and together == widths * [[0, 1], [0, 3], [0, 8]]
    assert {path.name for path in folders[0].iterdir()} == {"launches.i32", "layout.json", "inputs.json"}


def test_widths_have_every_remainder() -> None:
    """Modulo 256 every multiple of 32 that a model's widths leave; the tails of a warp; the widths of 27B."""
    assert {n % 256 for n in rows.WIDTHS} >= {*range(0, 256, 32), 1, 31, 33, 255}
    assert {5120, 17408} < set(rows.WIDTHS) and set(rows.SMALL_WIDTHS) < {*rows.WIDTHS}
    assert {cols % 256 for _rows, cols in rows.MATRICES} >= {*range(0, 256, 32), 1, 31, 33, 255}
    assert {matrix_rows % 8 for matrix_rows, _cols in rows.MATRICES} >= {0, 1, 5, 7}


def test_values_are_the_same_on_every_machine() -> None:
    """Finite, of both signs, with zeros of both signs, and of a digest that was written down."""
    made = forms.Values()
    found = made("x", 100, 100)
    assert np.isfinite(found).all() and (found < 0).any() and (found > 0).any()
    assert set(np.signbit(found[found == 0])) == {True, False}
    assert len(np.unique(found)) > 9000 and found.tobytes() != made("y", 100, 100).tobytes()
    digest = hashlib.sha256(found.tobytes()).hexdigest()
    assert digest == "399755ee6fdcccfac18a2b4f32babb2a02b54999a137fff1bd1ccbb6be949e1a"


def test_a_row_that_is_written_beyond_is_an_error(stage: forms.Stage) -> None:
    """A launch of one row that reaches the canaries behind it ends in an error, and no dump says that it is right."""
    x, y = stage.put(np.ones(34, np.float32)), stage.blank(1, 32)
    stage.run("swiglu", 1, x, x, y, 34)
    with pytest.raises(KernelError, match="one row: was written beyond its end"):
        stage.one_row(y)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--family", "rms_norm,dance", "give some of rms_norm"),
        ("--rows", "0..8", "give numbers in 1..8"),
        ("--rows", "9", "give numbers in 1..8"),
        ("--rows", "3..2", "give numbers in 1..8"),
        ("--rows", "x", "invalid row_counts value"),
        ("--form", "both", "invalid choice"),
        ("--sizes", "huge", "invalid choice"),
    ],
)
def test_a_wrong_argument_is_named(option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with the word for it."""
    command = ["--family", "add", "--form", "rows", "--rows", "1", "--sizes", "small", "--out", "unused"]
    command[command.index(option) + 1] = value
    with pytest.raises(SystemExit) as ended:
        __main__.main(["rows", *command])
    assert ended.value.code == 2 and words in capsys.readouterr().err
