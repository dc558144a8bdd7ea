"""The table of R that a record's sweep makes: what wins, what a tie is, and what is refused."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernels.engine import r_table as landed
from kernels.engine.config import shape
from kernels.engine.errors import KernelError
from kernels.engine.weights import Q4, tensors
from kernels.tools import r_table, sweep

ROOT = Path(__file__).resolve().parents[1]
MODEL = shape("27b", layers="hybrid")


def record(folder: Path, times: dict[tuple[str, int, int], tuple[int, int]], left_out: str = "") -> Path:
    """A record that has swept 27b: (median, lowest) by shape, R and M, 1000 and 990 where none is given."""
    rows = []
    for size in map(sweep.named, sweep.matrices(MODEL)):
        for r in landed.R_VALUES:
            for m in range(1, 9):
                median, low = times.get((size, r, m), (1000, 990))
                rows.append({"name": f"gemv_q4 {size} R{r} M{m}", "unit": "ns", "n": 7, "value": median, "low": low})
    kept = [{"name": "add registers", "unit": "registers", "n": 1, "value": 9}]
    kept += [row for row in rows if row["name"] != left_out]
    path = folder / "000076.json"
    path.write_text(json.dumps({"predicate": {"sequence": 76, "figures": kept}}))
    return path


def module(text: str) -> ModuleType:
    """The text, imported."""
    made = ModuleType("made")
    exec(compile(text, "r_table.py", "exec"), made.__dict__)
    return made


def test_the_table_takes_the_fastest_and_of_equals_the_smaller(tmp_path: Path) -> None:
    """The lowest median wins; a smaller R wins a tie, which is a lowest sample that is not above that median."""
    times = {
        ("17408x5120", 4, 2): (900, 890),  # clearly the fastest
        ("17408x5120", 8, 3): (980, 970),  # R1's lowest sample, 990, is above it
        ("17408x5120", 8, 5): (990, 980),  # and here it is not
        ("1024x5120", 1, 8): (1400, 1300),
        ("1024x5120", 2, 8): (995, 994),
    }
    made = module(r_table.text(record(tmp_path, times), "27b"))
    assert made.R_VALUES == landed.R_VALUES and made.ROWS_MAX == landed.ROWS_MAX
    for layer in ("layers.3.mlp.gate_proj.weight", "layers.0.mlp.up_proj.weight"):
        assert [made.weight_rows(layer, m) for m in range(1, 9)] == [1, 4, 8, 1, 1, 1, 1, 1]
    assert [made.weight_rows("layers.3.self_attn.v_proj.weight", m) for m in (7, 8)] == [1, 2]
    assert made.instance(4, 2) == "gemv_q4_r4_m2"
    assert {row[3] for row in made.R_TABLE} == {"#76"}
    packed = [tensor.name for tensor in tensors(MODEL) if tensor.form == Q4]
    assert all(made.weight_rows(name, 1) == 1 for name in packed)


def test_matrices_of_one_launch_take_the_r_of_the_nearest(tmp_path: Path) -> None:
    """By their rows together: 34816 and 16384 are nearest to 17408, 14336 to 12288."""
    times = {("17408x5120", 4, 1): (900, 890), ("12288x5120", 8, 1): (900, 890), ("10240x5120", 2, 1): (900, 890)}
    made = module(r_table.text(record(tmp_path, times), "27b"))
    first = (
        "layers.1.mlp.gate_proj.weight",
        "layers.0.linear_attn.in_proj_qkv.weight",
        "layers.3.self_attn.q_proj.weight",
    )
    assert [made.weight_rows_together(name) for name in first] == [4, 4, 8]
    assert made.weight_rows(first[1], 1) == 2 and made.together(4) == "project_r4"


def test_the_engine_has_the_table_of_the_record_that_it_names() -> None:
    """Its text is what r_table makes of that record again."""
    (source,) = {row[-1] for row in (*landed.R_TABLE, *landed.R_TOGETHER)}
    path = ROOT / "ledger" / f"{int(source.removeprefix('#')):06}.json"
    assert Path(landed.__file__).read_text() == r_table.text(path, "27b")


def test_the_table_is_printed_or_written(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text in either case, within a line's length."""
    path, target = record(tmp_path, {}), tmp_path / "r_table.py"
    assert r_table.main(["--record", str(path)]) == 0
    printed = capsys.readouterr().out
    monkeypatch.setattr(landed, "__file__", str(target))
    assert r_table.main(["--record", str(path), "--write"]) == 0
    assert target.read_text() == printed and max(map(len, printed.splitlines())) <= 120


def test_a_record_without_the_whole_sweep_is_refused(tmp_path: Path) -> None:
    """The figure that is missing is named, and so is a file that is no record."""
    name = "gemv_q4 10240x5120 R8 M3"
    with pytest.raises(KernelError, match=f"has no figure {name}; name a record"):
        r_table.text(record(tmp_path, {}, left_out=name), "27b")
    (tmp_path / "x.json").write_text("[]")
    for path in ("x.json", "y.json"):
        with pytest.raises(KernelError, match="is no record with figures"):
            r_table.text(tmp_path / path, "27b")
