"""The instances <R, M> of the q4 product give each row the bytes of the one-row kernel; and the tool that says so."""

import json
from pathlib import Path

import numpy as np
import pytest
from kernel_calls import Call, Out, floats, packed, run, run_in_splits

from kernels.engine.r_table import R_TABLE, R_VALUES, instance
from kernels.tools import forms, gemv_rows


@pytest.mark.parametrize("m", range(2, 9))
@pytest.mark.parametrize("r", R_VALUES)
def test_an_instance_gives_each_row_the_bytes_of_the_product_for_one(r: int, m: int) -> None:
    """Whatever R and M are, where R does not divide the rows of the matrix too, in any split of the blocks."""
    for rows, cols in [(1, 1), (2, 97), (13, 255), (13, 256), (35, 257), (8, 1021)]:
        rng = np.random.default_rng([r, m, rows, cols])
        words, scales = packed(rng, rows, cols)
        x = floats(rng, m, cols)
        (y,) = run_in_splits(Call(instance(r, m), -(-rows // (8 * r)), (words, scales, x, Out((m, rows)), rows, cols)))
        for row, got in zip(x, y, strict=True):
            (want,) = run(Call("gemv_q4", -(-rows // 8), (words, scales, row, Out((rows,)), rows, cols)))
            assert got.tobytes() == want.tobytes()


def leave(folder: Path, r: str, sizes: str, what: str) -> Path:
    out = folder / f"{r}-{what}"
    command = ["--r", r, "--rows", "2,8", "--sizes", sizes, "--leave", what, "--out", str(out)]
    assert gemv_rows.main(command) == 0
    return out


def test_every_r_leaves_the_same_and_launches_other_things(tmp_path: Path) -> None:
    """y.u32 is the one of single rows for each R, canaries behind; launches.i32 is another for each."""
    choices = (gemv_rows.SINGLES, *map(str, R_VALUES))
    outputs = {(leave(tmp_path, r, "small", "outputs") / "y.u32").read_bytes() for r in choices}
    launches = {(leave(tmp_path, r, "all", "launches") / "launches.i32").read_bytes() for r in choices}
    assert len(outputs) == 1 and len(launches) == len(choices)
    layout = json.loads((tmp_path / "4-outputs" / "layout.json").read_text())["y.u32"]
    assert [row["name"] for row in layout][:2] == ["13x33 M2", "13x33 M8"]
    assert layout[1]["shape"] == [8 + forms.GUARD_ROWS, 13]


def test_shapes_of_the_table_are_all_there() -> None:
    """Columns of every q4 matrix of every model, beside every remainder; rows for two warps of each R and more."""
    found = gemv_rows.matrices("all")
    assert {cols for _rows, cols in found} >= {256, 512, 384, 192, 5120, 6144, 17408}
    assert set(found) > set(gemv_rows.MATRICES) and len(found) > 30
    assert 8 * max(R_VALUES) < gemv_rows.ROWS_CUT
    assert (gemv_rows.ROWS_CUT, 17408) in found
    assert all(gemv_rows.ROWS_CUT % r for r in R_VALUES[1:]) and len(R_TABLE) == 12
