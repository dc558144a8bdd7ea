"""The tools that hold one lane against another: cases, digests of functions and weights, and what they refuse."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels import artifact
from kernels.engine.errors import KernelError
from kernels.tools import bitmath, lanes, weights

ROOT = Path(__file__).parents[1]
STORED = ROOT / "kernels" / "bitmath" / "cpu-x86_64.txt"
MODEL = ("--layers", "hybrid", "--seed", "1")


def entries(folder: Path, file: str) -> dict[str, bytes]:
    """The arrays of a dump's file by name, as bytes."""
    width = {"u8": 1, "f32": 4, "i32": 4}
    rows = json.loads((folder / "layout.json").read_text())[file]
    data = (folder / file).read_bytes()
    sizes = [int(np.prod(row["shape"])) * width[row["dtype"]] for row in rows]
    return {row["name"]: data[row["offset"] : row["offset"] + size] for row, size in zip(rows, sizes, strict=True)}


def test_a_case_leaves_what_the_engine_computed(tmp_path: Path) -> None:
    """Logits and planes of tiny are whole; their digests are those of the bytes, after each cursor and at the end."""
    assert lanes.main(["--cases", "tiny-hybrid", "--out", str(tmp_path)]) == 0
    logits = entries(tmp_path, "tiny-hybrid.logits.f32")["logits"]
    digests = entries(tmp_path, "tiny-hybrid.digests.u8")
    assert len(logits) == 64 * 512 * 4
    assert digests["logits"][-32:] == hashlib.sha256(logits[-512 * 4 :]).digest()
    planes = entries(tmp_path, "tiny-hybrid.state.bin")
    assert {name.rsplit(" after ", 1)[1] for name in digests if name != "logits"} == {"1", "17", "64"}
    for name, plane in planes.items():
        assert digests[f"{name} after 64"] == hashlib.sha256(plane).digest()
        assert digests[f"{name} after 1"] != digests[f"{name} after 64"]
    inputs = json.loads((tmp_path / "inputs.json").read_text())
    assert [row["name"] for row in inputs] == ["artifact", "text", "weights"]


def test_cases_are_chosen_by_their_beginning() -> None:
    """tiny is all of tiny-*, each once and in the order asked for; a word that chooses none is refused."""
    assert [case.name for case in lanes.chosen("tiny-gdn,tiny")][:2] == ["tiny-gdn", "tiny-attn"]
    assert len(lanes.chosen("tiny,mini64,27b,tiny")) == len(lanes.CASES) - 1  # the whole 27b is asked for alone
    with pytest.raises(KernelError, match="case 'tin': is none"):
        lanes.chosen("tin")


def test_cases_cover_both_lanes_of_every_kind() -> None:
    """Every shape has attn, gdn and hybrid layers; 27b at depth 1 and 4; one case runs beyond two spans of 256."""
    for shape in ("tiny", "mini64", "27b"):
        assert {case.layers for case in lanes.CASES if case.shape == shape} == {"attn", "gdn", "hybrid"}
    assert {(c.layers, c.depth) for c in lanes.CASES if c.shape == "27b"} >= {
        (layers, depth) for layers in ("attn", "gdn") for depth in (1, 4)
    }
    assert any(case.tokens > 512 for case in lanes.CASES)


def test_large_weights_are_named_by_what_the_device_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case whose weights are made on the device names them by a digest of its buffers, and leaves the last logits."""
    monkeypatch.setattr(lanes, "WHOLE", ())
    monkeypatch.setattr(lanes, "CASES", (lanes.Case("tiny-x", "tiny", "hybrid", None, 3, (1,)),))
    digests = []
    for seed in (1, 1, 2):
        monkeypatch.setattr(lanes, "SEED", seed)
        assert lanes.main(["--cases", "tiny-x", "--out", str(tmp_path)]) == 0
        row = json.loads((tmp_path / "inputs.json").read_text())[-1]
        digests.append(row["digest"])
        assert "made on the device" in row["origin"]
    assert digests[0] == digests[1] != digests[2]
    assert len(entries(tmp_path, "tiny-x.logits.f32")["logits"]) == 512 * 4
    assert not (tmp_path / "tiny-x.state.bin").exists()


@pytest.mark.parametrize("block", [0, 63, 192])
def test_the_stored_digests_are_this_artifacts(block: int) -> None:
    """A block of the committed file, over every function, is what the tree's CPU build gives."""
    assert bitmath.compute(artifact.load(artifact.tree()), (block,)) == bitmath._read(STORED, (block,))


def test_the_stored_digests_are_whole(tmp_path: Path) -> None:
    """The file names every function and block once, and --stored leaves them as the bytes that an artifact would."""
    lines = STORED.read_text().splitlines()
    assert len(set(lines)) == len(lines) == len(bitmath.FUNCTIONS) * bitmath.BLOCKS
    assert all(re.fullmatch(r"[a-z0-9]+ [0-9a-f]{2} [0-9a-f]{64}", line) for line in lines)
    assert bitmath.main(["--stored", str(STORED), "--blocks", "7,255", "--out", str(tmp_path)]) == 0
    found = entries(tmp_path, "bitmath.u8")
    assert list(found) == list(bitmath.FUNCTIONS)
    assert found["log1p"][32:].hex() == next(line for line in lines if line.startswith("log1p ff ")).split(" ")[2]


@pytest.mark.parametrize("content", ["", "exp 00 zz\n", "exp 00\n", "exp 00 abcd\n"])
def test_a_spoilt_file_of_digests_is_named(tmp_path: Path, content: str) -> None:
    """A missing line, a line of another form and a short digest are refused with how to make the file again."""
    (tmp_path / "d.txt").write_text(content)
    with pytest.raises(KernelError, match=r"d.txt: .*; write it again"):
        bitmath._read(tmp_path / "d.txt", (0,))


def test_weights_of_a_device_and_of_numpy_are_the_same(tmp_path: Path) -> None:
    """Both forms leave the same digests of the same buffers, and another seed other ones."""
    model = ("--shape", "tiny", "--depth", "4", "--sample", "0,3", *MODEL)
    sources = (("--artifact", str(artifact.tree())), ("--numpy",), ("--numpy",))
    for i, source in enumerate(sources):
        seed = ("--seed", "2") if i == 2 else ()
        assert weights.main([*source, *model, *seed, "--out", str(tmp_path / str(i))]) == 0
    files = [(tmp_path / str(i) / "weights.u8").read_bytes() for i in range(3)]
    assert files[0] == files[1] != files[2]
    names = entries(tmp_path / "1", "weights.u8")
    assert "layers.3.self_attn.q_proj.weight 1" in names and "layers.1.mlp.up_proj.weight 0" not in names


CLEAN = "========= COMPUTE-SANITIZER\nran\n========= ERROR SUMMARY: 0 errors\n"
FOUND = "========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 4 bytes\n=========     at add+0x10\n"
FOUND += "========= ERROR SUMMARY: 1 error\n"
RACES = "========= COMPUTE-SANITIZER\n========= Error: Race reported between a and b\n"
RACES += "========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)\n"
REFUSED = "========= COMPUTE-SANITIZER\n========= Error: Device not supported\n"


@pytest.mark.parametrize(
    ("text", "code", "wanted", "words"),
    [
        (CLEAN, 0, 0, "racecheck: 0 reported"),
        (FOUND, 0, 0, "finding: racecheck: Invalid __global__ write of size 4 bytes"),
        (RACES, 0, 0, "finding: racecheck: Error: Race reported between a and b"),
        (REFUSED, 1, 77, "cannot look at this device with racecheck: Error: Device not supported"),
        ("", 9, 2, "ended with 9"),
        (CLEAN, 9, 2, "ended with 9"),
        (None, 0, 77, "is not on this machine"),
    ],
)
def test_sanitize_tells_what_was_seen(tmp_path: Path, text: str | None, code: int, wanted: int, words: str) -> None:
    """Nothing, a finding, a refusing or absent tool and a failing run are five outcomes, told by word and exit code."""
    if text is not None:
        program = tmp_path / "compute-sanitizer"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n")
        program.chmod(0o755)
    command = [sys.executable, "-m", "kernels", "sanitize", "--tools", "racecheck"]
    command += ["--artifact", str(artifact.tree("cuda-sm_90"))]
    env = os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == wanted and words in done.stdout + done.stderr
    assert ("finding" in done.stdout) == (text in (FOUND, RACES)) and "Traceback" not in done.stderr
