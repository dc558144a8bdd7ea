"""mt, alone and allocations: what they leave and print, and that what they compare is not one thing with itself."""

import json
from pathlib import Path

import numpy as np
import pytest

from kernels import __main__, artifact
from kernels.engine.errors import KernelError
from kernels.tools import allocations, alone, forms, mt
from kernels.tools.rows import Call, Result, Row

TINY = ("--shape", "tiny", "--layers", "attn")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools set the gate; a test leaves it as it was."""
    monkeypatch.setenv("KESTREL_Q35_MM", "1")


def leave(folder: Path, form: str, *more: str) -> Path:
    out = folder / "-".join((form, *(word.strip("-") for word in more)))
    command = [*TINY, "--rows", "2,5", "--prefix", "0,3", "--form", form, *more, "--out", str(out)]
    assert mt.main(command) == 0
    return out


def test_both_forms_leave_the_same(tmp_path: Path) -> None:
    """Outputs of M + 4 tokens and digests of every plane, twice, for each MM, M and prefix."""
    folders = [leave(tmp_path, form, "--mm", "8,same") for form in forms.FORMS]
    names = ("h_out.f32", "logits.f32", "greedy.i32", "planes.u8")
    for name in names:
        first, second = ((folder / name).read_bytes() for folder in folders)
        assert first == second != b"", name
    layout = json.loads((folders[1] / "layout.json").read_text())
    assert sorted(layout) == sorted(names)
    cases = [f"M{rows} of {mm} behind {prefix}" for mm, rows in ((8, 2), (8, 5), (2, 2), (5, 5)) for prefix in (0, 3)]
    assert [row["name"] for row in layout["h_out.f32"]] == cases
    assert layout["logits.f32"][2]["shape"] == [5 + 4, 512]
    planes = [row["name"] for row in layout["planes.u8"]]
    assert len(planes) == len(set(planes)) == len(cases) * 2 * (2 * 4 + 1)
    assert planes[0] == "M2 of 8 behind 0: layers.0.keys after M" and planes[-1].endswith("cursor after M + 4")


def test_the_forms_launched_other_things(tmp_path: Path) -> None:
    """And nothing else is left than what they launched."""
    folders = [leave(tmp_path, form, "--leave", "launches") for form in forms.FORMS]
    singles, rows = ((folder / "launches.i32").read_bytes() for folder in folders)
    assert singles != rows and len(singles) > len(rows) > 0
    assert {path.name for path in folders[0].iterdir()} == {"launches.i32", "layout.json", "inputs.json"}


def test_both_prints_a_line_for_each_m(capsys: pytest.CaptureFixture[str]) -> None:
    """M, planes, bytes, how many differ, and a digest; exit 0 where none does."""
    assert __main__.main(["mt", *TINY, "--rows", "2,4", "--prefix", "1,5", "--form", "both"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["M", "planes", "bytes", "differing"]
    assert [line.split()[0] for line in lines] == ["2", "4"]
    for line in lines:
        _rows, planes, size, differing, digest = line.split()
        assert (int(planes), differing, len(digest)) == (2 * 2 * 9, "0", 64) and int(size.replace(",", "")) > 10**5


@pytest.mark.parametrize("form", ["f32", "q4"])
def test_rows_of_a_checkpoint(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A real checkpoint, kept in f32 or packed: no byte differs."""
    folder = str(Path(mt.__file__).parents[1] / "fixtures" / "hf_small")
    command = ["mt", "--checkpoint", folder, "--weights", form, "--rows", "2,5,8", "--prefix", "0,5", "--form", "both"]
    assert __main__.main(command) == 0
    assert [line.split()[3] for line in capsys.readouterr().out.splitlines()[1:]] == ["0", "0", "0"]


def test_a_line_counts_what_differs() -> None:
    """Bytes, one by one, -0.0 and 0.0 too; an array that one form lacks differs whole; the first is named."""
    line = mt.Line()
    one = {"h_out": np.array([0.0, 1.0], np.float32), "x after M": np.zeros(3, np.uint8)}
    line.add(one, one)
    assert (line.planes, line.bytes, line.differing, line.first) == (1, 11, 0, "")
    line.add(one, {"h_out": np.array([-0.0, 1.0], np.float32)})
    assert (line.planes, line.bytes, line.differing, line.first) == (2, 19, 1 + 3, "h_out")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--form", "rows"), "--out is needed"),
        (("--form", "both", "--out", "unused"), "and only there"),
        (("--form", "both", "--mm", "9"), "give same, or numbers in 2..8"),
        (("--form", "both", "--prefix", "-1"), "give numbers in 0..512"),
        (("--form", "both", "--checkpoint", "x"), "not allowed with"),
        (("--form", "both", "--weights", "q4"), "--weights is needed with --checkpoint"),
    ],
)
def test_a_wrong_argument_is_named(more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with the word for it."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(["mt", *TINY, "--rows", "2", *more])
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_more_rows_than_the_slab_are_the_engines_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    """With --mm 4 five rows end in exit 5."""
    assert __main__.main(["mt", *TINY, "--rows", "5", "--mm", "4", "--form", "both"]) == 5
    assert "[rows-range]" in capsys.readouterr().err


def test_a_row_beside_junk_is_the_same(tmp_path: Path) -> None:
    """Both forms of alone leave the same files."""
    for form in alone.FORMS:
        command = ["--form", form, "--rows", "1,3", "--layers", "hybrid", "--out", str(tmp_path / form)]
        assert alone.main(command) == 0
    names = ("kernels.u32", "h_out.f32", "logits.f32", "planes.u8")
    for name in names:
        first, second = ((tmp_path / form / name).read_bytes() for form in alone.FORMS)
        assert first == second != b"", name
    layout = json.loads((tmp_path / "alone" / "layout.json").read_text())
    assert sorted(layout) == sorted(names)
    kernels = {row["name"].split(" ")[0] for row in layout["kernels.u32"]}
    assert {"rms_norm", "add", "swiglu", "gemv_q4", "qk_prep", "attention", "13x33"} <= kernels


def test_a_canary_that_is_gone_is_an_error() -> None:
    """A launch of more rows than there are is no result."""
    stage = forms.Stage(artifact.load(artifact.tree()))
    x, w = np.ones((4, 8), np.float32), np.ones(8, np.float32)
    call = Call("rms_norm", lambda rows: rows + 1, (Row(x[:3]), w, Result(8), 8, np.float32(1e-6)))
    with pytest.raises(KernelError, match="rms_norm: wrote behind 3 rows"):
        alone.alone(stage, call, 3)
    stage.close()


def test_allocations_are_the_same_under_every_gate(tmp_path: Path) -> None:
    """Until rows run, a gate that is unset, closed or open takes the same bytes in the same order."""
    assert allocations.main(["--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "layout.json").read_text())["allocations.u32"]
    data = (tmp_path / "allocations.u32").read_bytes()
    found = {row["name"]: np.frombuffer(data, "<u4", row["shape"][0], row["offset"]).tolist() for row in rows}
    for layers in ("attn", "gdn", "hybrid"):
        same = [found[f"{layers}, gate {gate}"] for gate in allocations.GATES]
        assert same[0] == same[1] == same[2] and len(same[0]) > 50
