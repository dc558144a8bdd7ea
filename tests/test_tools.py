"""The commands: what they write and print, and what they refuse, as a shell sees it."""

import hashlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kernels import __main__, artifact
from kernels.tools import mark_refusals, refusals
from kernels.tools.outputs import write_dump

REPOSITORY = Path(__file__).parents[1]
FIXTURE = REPOSITORY / "kernels" / "fixtures" / "hf_small"
TEXT = REPOSITORY / "kernels" / "text" / "kestrel.txt"
TINY = ("--shape", "tiny", "--layers", "hybrid", "--seed", "1", "--text", str(TEXT), "--length", "4")
STORED = ("--checkpoint", str(FIXTURE), "--weights", "f32", "--tokens", str(FIXTURE / "tokens.i32"))
DUMPED = ("h_out.f32", "logits.f32", "state.bin")


@cache
def built() -> Path:
    return artifact.tree()


def kernels(*arguments: object) -> subprocess.CompletedProcess[str]:
    """python -m kernels, in a process of its own."""
    command = [sys.executable, "-m", "kernels", *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)


def arrays(folder: Path) -> dict[str, np.ndarray]:
    """Every array of a dump by its name, read by layout.json; the files hold nothing else."""
    found = {}
    for file, rows in json.loads((folder / "layout.json").read_text()).items():
        data = (folder / file).read_bytes()
        end = 0
        for row in rows:
            assert row["offset"] == end
            count = int(np.prod(row["shape"]))
            dtype = {"f32": "<f4", "i32": "<i4"}[row["dtype"]]
            found[row["name"]] = np.frombuffer(data, dtype, count, end).reshape(row["shape"])
            end += 4 * count
        assert end == len(data)
    return found


def test_help_imports_nothing_heavy() -> None:
    """--help names every command without loading NumPy."""
    code = (
        "import sys, runpy; sys.argv = ['kernels', '--help']\ntry: runpy.run_module('kernels', run_name='__main__')\n"
    )
    code += "finally: print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("False\n")
    assert all(f"\n  {name} " in done.stdout for name in __main__.COMMANDS)


def test_dump_writes_what_its_layout_says(tmp_path: Path) -> None:
    """dump creates the folder and writes hidden states, logits and all planes where layout.json says; nothing else."""
    out = tmp_path / "new" / "folder"
    assert kernels("dump", *TINY, "--artifact", built(), "--out", out).returncode == 0
    found = arrays(out)
    assert {path.name for path in out.iterdir()} == {*DUMPED, "layout.json", "inputs.json"}
    assert found["h_out"].shape == (4, 256) and found["logits"].shape == (4, 512)
    assert found["layers.0.state"].shape == (6, 64, 64) and found["layers.3.keys"].shape == (4, 128)
    assert found["cursor"].tolist() == [4] and list(found)[-1] == "cursor"


def test_greedy_is_the_argmax_of_the_same_dump(tmp_path: Path) -> None:
    """With --greedy dump and oracle leave the chosen tokens alone: the largest logit of every step."""
    kernels("dump", *TINY, "--out", tmp_path / "a")
    assert kernels("dump", *TINY, "--greedy", "--out", tmp_path / "b").returncode == 0
    assert kernels("oracle", *TINY, "--greedy", "--out", tmp_path / "c").returncode == 0
    chosen = arrays(tmp_path / "b")
    assert list(chosen) == ["greedy"]
    assert chosen["greedy"].tolist() == arrays(tmp_path / "a")["logits"].argmax(axis=1).tolist()
    assert chosen["greedy"].tolist() == arrays(tmp_path / "c")["greedy"].tolist()


def test_dump_prints_and_lists_where_all_of_it_came_from(tmp_path: Path) -> None:
    """The command, and digest and origin of weights, tokens, artifact and outputs, are printed; the inputs are kept."""
    done = kernels("dump", *TINY, "--artifact", built(), "--out", tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("command: python -m kernels dump --shape tiny --layers hybrid --seed 1 --text ")
    inputs = json.loads((tmp_path / "inputs.json").read_text())
    assert [item["name"] for item in inputs] == ["weights", "tokens", "artifact"]
    for item in inputs:
        assert f"input {item['name']}: sha256:{item['digest']} ({item['origin']})" in lines
        assert str(REPOSITORY) not in item["origin"]
    assert inputs[0]["origin"] == "tiny hybrid of 4 layers: synthetic version 1, seed 1"
    assert inputs[1]["origin"] == "bytes of kestrel.txt modulo 512, the first 4"
    assert inputs[1]["digest"] == hashlib.sha256(TEXT.read_bytes()).hexdigest()
    assert inputs[2]["digest"] == hashlib.sha256(built().read_bytes()).hexdigest()
    for file in DUMPED:
        assert f"output {file}: sha256:{hashlib.sha256((tmp_path / file).read_bytes()).hexdigest()}" in lines


def test_dump_twice_and_on_threads_is_the_same(tmp_path: Path) -> None:
    """Without --artifact the tree's build is run; on five threads with every launch split it leaves the same bytes."""
    assert kernels("dump", *TINY, "--out", tmp_path / "a").returncode == 0
    assert kernels("dump", *TINY, "--threads", 5, "--split-ns", 0, "--out", tmp_path / "b").returncode == 0
    for file in DUMPED:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_oracle_is_a_dump_to_within_rounding(tmp_path: Path) -> None:
    """oracle writes the same files in the same layout from the same weights and tokens, and no bits of the engine's."""
    kernels("dump", *TINY, "--out", tmp_path / "a")
    assert kernels("oracle", *TINY, "--out", tmp_path / "b").returncode == 0
    a, b = arrays(tmp_path / "a"), arrays(tmp_path / "b")
    assert list(a) == list(b)
    for name, wanted in b.items():
        assert (np.abs(a[name] - wanted) <= 4e-6 * np.abs(wanted).max()).all(), name
    assert a["h_out"].tobytes() != b["h_out"].tobytes()
    inputs = [json.loads((tmp_path / side / "inputs.json").read_text()) for side in "ab"]
    assert inputs[0][:2] == inputs[1]


def test_oracle_stored_is_what_transformers_said(tmp_path: Path) -> None:
    """--stored writes the reference outputs of a checkpoint folder in the layout that a dump of it has."""
    assert kernels("oracle", "--stored", FIXTURE, "--out", tmp_path / "a").returncode == 0
    assert kernels("dump", *STORED, "--out", tmp_path / "b").returncode == 0
    assert (tmp_path / "a" / "layout.json").read_bytes() == (tmp_path / "b" / "layout.json").read_bytes()
    assert list(arrays(tmp_path / "a")) == list(arrays(tmp_path / "b"))
    assert "transformers 5.24.0" in (tmp_path / "a" / "inputs.json").read_text()


def test_oracle_stored_refuses_an_altered_file(tmp_path: Path) -> None:
    """A stored output that is not what its maker wrote down is named, and exit is 2."""
    for file in FIXTURE.rglob("*"):
        if file.is_file():
            copy = tmp_path / "f" / file.relative_to(FIXTURE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    logits = tmp_path / "f" / "reference" / "logits.f32"
    logits.write_bytes(logits.read_bytes()[:-1] + b"\x01")
    done = kernels("oracle", "--stored", tmp_path / "f", "--out", tmp_path / "out")
    assert done.returncode == 2 and "logits.f32: is not what its origin.json names" in done.stderr


OUT = ("--out", "unused")
USAGE = [
    ((), "usage"),
    (("dance",), "no command 'dance'"),
    (("dump", *TINY), "--out"),
    (("dump", "--shape", "tiny", "--layers", "hybrid", "--text", TEXT, *OUT), "--seed is needed with --shape"),
    (("dump", "--shape", "tiny", "--seed", "1", "--text", TEXT, *OUT), "--layers is needed with --shape"),
    (("dump", "--checkpoint", FIXTURE, "--text", TEXT, *OUT), "--weights is needed with --checkpoint"),
    (("dump", *STORED, "--seed", "1", *OUT), "--seed is needed with --shape, and only there"),
    (("dump", *STORED, "--depth", "1", *OUT), "--depth needs --shape"),
    (("dump", *TINY, "--weights", "q4", *OUT), "--weights is needed with --checkpoint, and only there"),
    (("dump", "--shape", "tiny", "--layers", "hybrid", "--seed", "1", *OUT), "--text"),
    (("dump", *TINY, "--tokens", "x", *OUT), "not allowed with"),
    (("dump", *TINY[:-1], "884", *OUT), "holds 883 tokens, not 884"),
    (("dump", *TINY[:-1], "0", *OUT), "not 0"),
    (("dump", *TINY, "--artifact", "absent.zip", *OUT), "absent.zip"),
    (("dump", *TINY, "--threads", "0", *OUT), "threads 0"),
    (("dump", "--shape", "huge", *TINY[2:], *OUT), "shape huge"),
    (("dump", "--shape", "tiny", "--layers", "hybrid", "--seed", "1", "--text", "absent.txt", *OUT), "absent.txt"),
    (("oracle", "--stored", REPOSITORY, *OUT), "origin.json"),
    (("refusals", "--case", "nonesuch", *OUT), "invalid choice"),
    (("build", "--target", "abacus", *OUT), "invalid choice"),
]


@pytest.mark.parametrize(("arguments", "words"), USAGE, ids=[words for _arguments, words in USAGE])
def test_what_decides_bytes_has_no_default(arguments: tuple[object, ...], words: str) -> None:
    """A missing, contradicting or unknown argument ends in exit 2 with the word for it, and nothing is written."""
    done = kernels(*arguments)
    assert done.returncode == 2 and words in (done.stderr + done.stdout) and "Traceback" not in done.stderr
    assert not (REPOSITORY / "unused").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "holds 0 tokens"), (b"abcde", "no whole number of int32"), (bytes((1 << 20) + 4), "larger")],
)
def test_a_bad_token_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """An empty file of tokens, one with a broken last token and one beyond every context end in exit 2."""
    (tmp_path / "t.i32").write_bytes(content)
    done = kernels("dump", *STORED[:4], "--tokens", tmp_path / "t.i32", "--out", tmp_path / "out")
    assert done.returncode == 2 and words in done.stderr


def test_a_token_that_the_model_lacks_is_the_engines_refusal(tmp_path: Path) -> None:
    """A file with token 288 of a vocabulary of 288 ends in exit 5 with the engine's reason."""
    (tmp_path / "t.i32").write_bytes(np.array([1, 288], dtype="<i4").tobytes())
    done = kernels("dump", *STORED[:4], "--tokens", tmp_path / "t.i32", "--out", tmp_path / "out")
    assert (
        done.returncode == 5
        and done.stderr.startswith("Refused: forward: token 288")
        and "[token-range]" in done.stderr
    )


@pytest.mark.parametrize("case", [case for case in refusals.CASES if case not in mark_refusals.CASES])
def test_each_refusal_has_its_code_and_word(tmp_path: Path, case: str) -> None:
    """A case ends with its code and one line with its word; a state that existed did not change."""
    code, word, _run = refusals.CASES[case]
    done = kernels("refusals", "--case", case, "--artifact", built(), "--out", tmp_path)
    assert done.returncode == code and done.stderr.count("\n") == 1 and word in done.stderr
    kept = sorted(path.name for path in tmp_path.glob("*.bin"))
    if kept:
        assert kept == ["after.bin", "before.bin"]
        assert (tmp_path / "before.bin").read_bytes() == (tmp_path / "after.bin").read_bytes() != b""
    assert bool(kept) == case.startswith(("token", "context", "rows"))


def test_what_is_not_refused_ends_in_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A case that the engine lets pass is exit 0, which no case is allowed to be."""
    cases = dict(refusals.CASES)
    refusals.CASES["passes"] = (5, "nothing", refusals._on_state(1, capacity=8))
    try:
        assert refusals.main(["--case", "passes", "--artifact", str(built()), "--out", str(tmp_path)]) == 0
    finally:
        refusals.CASES.clear()
        refusals.CASES.update(cases)
    assert "passes: not refused" in capsys.readouterr().out
    assert (tmp_path / "before.bin").read_bytes() != (tmp_path / "after.bin").read_bytes()


def test_build_writes_an_artifact_and_its_toolchain(tmp_path: Path) -> None:
    """build leaves the zip and toolchain.json, and prints the digest of the one."""
    done = kernels("build", "--target", "cpu-x86_64", "--out", tmp_path)
    made = tmp_path / "kestrel-cpu-x86_64.zip"
    assert sorted(path.name for path in tmp_path.iterdir()) == [made.name, "toolchain.json"]
    assert f"sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}" in done.stdout


def test_a_layout_names_every_array(tmp_path: Path) -> None:
    """write_dump puts arrays side by side in little-endian order and returns the digest of what it wrote."""
    digests = write_dump(tmp_path, {"x.bin": {"a": np.arange(3, dtype=">i4"), "b": np.ones((2, 2), np.float32)}})
    data = (tmp_path / "x.bin").read_bytes()
    assert digests == {"x.bin": hashlib.sha256(data).hexdigest()} and len(data) == 28
    assert arrays(tmp_path)["a"].tolist() == [0, 1, 2]


def test_bench_times_three_cases(tmp_path: Path) -> None:
    """The benchmark file writes a median for step[attn], step[gdn] and step[hybrid], whatever the project skips."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "kernels/tools/bench_step.py"]
    command += ["--artifact", str(built()), "--benchmark-json", str(tmp_path / "bench.json")]
    environ = {name: value for name, value in os.environ.items() if "XDIST" not in name}  # a worker times nothing
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, done.stdout
    found = {row["name"]: row["stats"] for row in json.loads((tmp_path / "bench.json").read_text())["benchmarks"]}
    assert sorted(found) == ["step[attn]", "step[gdn]", "step[hybrid]"]
    assert all(stats["median"] > 0 and stats["rounds"] >= 5 for stats in found.values())


def test_the_canonical_text_is_long_enough() -> None:
    """The committed text has the 64 tokens of a canonical dump, in ASCII, so that every vocabulary holds its bytes."""
    data = TEXT.read_bytes()
    assert len(data) >= 64 and max(data) < 128 and len(set(data[:64])) > 16
