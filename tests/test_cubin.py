"""What a cubin says of its kernels, without a GPU."""

import io
import json
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import kernel_calls
import pytest
from elftools.elf.elffile import ELFFile

from kernels import artifact, compilers
from kernels.engine.errors import KernelError
from kernels.tools import cubin, resources

ROOT = Path(__file__).parents[1]


@cache
def data() -> bytes:
    return artifact.load(artifact.tree("cuda-sm_90")).binary.read_bytes()


def without_instances() -> dict[str, bytes]:
    """The device text without them."""
    texts = {file.name: file.read_bytes() for file in (ROOT / "kernels" / "device").glob("*.cu*")}
    return texts | {"gemv.cuh": kernel_calls.without_instances(texts["gemv.cuh"])}


@cache
def spilling() -> bytes:
    """The same kernels, held to half the registers that attention wants."""
    texts = without_instances()
    bounds = b"__launch_bounds__(BLOCK_WIDTH)"
    assert texts["lanes.cuh"].count(bounds) == 1
    texts["lanes.cuh"] = texts["lanes.cuh"].replace(bounds, b"__launch_bounds__(BLOCK_WIDTH, 8)")
    return compilers.compile_cuda(texts).binary


@pytest.mark.parametrize("target", [name for name in compilers.TARGETS if name.startswith("cuda-")])
def test_a_cubin_ends_with_its_program_headers(target: str) -> None:
    """No byte of them is cut off, for every architecture; the cut one is put right again."""
    binary = data() if target == "cuda-sm_90" else compilers.target(target).compile(without_instances(), "").binary
    headers = ELFFile(io.BytesIO(binary)).header
    assert len(binary) == headers["e_phoff"] + headers["e_phnum"] * headers["e_phentsize"]
    assert compilers._whole(binary[:-1]) == compilers._whole(binary) == binary


def test_every_kernel_has_its_resources() -> None:
    """Registers lie in 8..255, nothing spills, and code and constants are the sizes that another parser reads."""
    found = {kernel.name: kernel for kernel in cubin.kernels(data(), where="x")}
    sections = {s.name: s["sh_size"] for s in ELFFile(io.BytesIO(data())).iter_sections()}
    assert set(found) == {name.removeprefix(".text.") for name in sections if name.startswith(".text.")}
    assert {"attention", "gemv_q4", "math_exp", "synthetic_words"} <= set(found)
    for name, kernel in found.items():
        assert 8 <= kernel.registers <= 255 and kernel.local == 0
        assert kernel.code == sections[f".text.{name}"] and kernel.constant == sections[f".nv.constant0.{name}"]
    assert found["rms_norm"].shared == 8 * 4 and found["argmax"].shared == 2 * 8 * 4 and found["add"].shared == 0


def test_a_spill_is_seen() -> None:
    """Held to 32 registers a thread some kernel keeps bytes in local memory, and no other number of it is lost."""
    found = cubin.kernels(spilling(), where="x")
    assert any(kernel.local for kernel in found) and all(kernel.registers <= 32 for kernel in found)


def test_code_that_was_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the instances <R, M> every other kernel has the same machine code; a kernel that changed is named."""
    texts = without_instances()
    add = b"add_rn(load(y + at, count)"
    assert texts["swiglu.cuh"].count(add) == 1
    texts["swiglu.cuh"] = texts["swiglu.cuh"].replace(add, add.replace(b"add", b"sub"))
    before = tmp_path / "before.zip"
    with zipfile.ZipFile(artifact.tree("cuda-sm_90")) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    before.write_bytes(artifact._pack(members | {"kestrel.cubin": compilers.compile_cuda(texts).binary}))
    assert resources.main(["--before", str(before)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "changed" in line] == ["changed: add has other machine code"]
    there = len(cubin.kernels(data(), where="x")) - 36
    assert f"of {there} kernels before, {there - 1} are the same" in lines
    assert resources.main(["--artifact", str(before), "--before", str(artifact.tree("cuda-sm_90"))]) == 0
    assert "changed: gemv_q4_r1_m2 is not there" in capsys.readouterr().out


@pytest.mark.parametrize("size", [0, 3, 63, 64, 1000, -1000])
def test_a_cut_cubin_is_named(size: int) -> None:
    """Bytes that end too early are no sound cubin, whatever they end in."""
    with pytest.raises(KernelError, match=r"kestrel\.cubin: is no sound cubin"):
        cubin.kernels(data()[:size], where="kestrel.cubin")


def test_a_library_is_no_cubin() -> None:
    """An ELF file for another machine is refused."""
    with pytest.raises(KernelError, match="another machine"):
        cubin.kernels(artifact.load(artifact.tree()).binary.read_bytes(), where="x")


def test_resources_prints_and_leaves_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a kernel, figures of what it takes and of nothing that it does not; the word for a spill where one is."""
    assert resources.main(["--artifact", str(artifact.tree("cuda-sm_90")), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "\nattention " in printed and "spill" not in printed
    rows = json.loads((tmp_path / "figures.json").read_text())
    found = cubin.kernels(data(), where="x")
    single = [kernel for kernel in found if not resources.INSTANCE.search(kernel.name)]
    names = {row["name"] for row in rows}
    assert names >= {f"{kernel.name} registers" for kernel in single}
    assert {f"{kernel.name} shared" for kernel in single if kernel.shared} <= names
    (several,) = (row["values"] for row in rows if row["name"] == "gemv_q4_r2 registers")
    assert (
        several == [kernel.registers for kernel in found if kernel.name.startswith("gemv_q4_r2_m")]
        and len(several) == 8
    )
    assert not any("_m8" in name for name in names)
    assert all(set(row) == {"name", "unit", "values"} and type(row["values"][0]) is int for row in rows)
    assert {"name": "rms_norm shared", "unit": "bytes a block", "values": [32]} in rows


def test_a_spill_is_a_finding(tmp_path: Path) -> None:
    """Of an artifact whose kernels spill, resources prints a line with the word and ends in 0: the check reads it."""
    copy = tmp_path / "kernels"
    shutil.copytree(ROOT / "kernels", copy, ignore=shutil.ignore_patterns("__pycache__", "fixtures"))
    (copy / "device" / "gemv.cuh").write_bytes(without_instances()["gemv.cuh"])
    lanes = copy / "device" / "lanes.cuh"
    bounds = "__launch_bounds__(BLOCK_WIDTH)"
    lanes.write_text(lanes.read_text().replace(bounds, "__launch_bounds__(BLOCK_WIDTH, 8)"))
    build = [sys.executable, "-m", "kernels", "build", "--target", "cuda-sm_90", "--out", "out"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    command = [sys.executable, "-m", "kernels", "resources", "--artifact", "out/kestrel-cuda-sm_90.zip"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "spill: attention keeps " in done.stdout


def test_the_cpu_artifact_has_no_such_resources() -> None:
    """An artifact without a cubin is refused by its target."""
    with pytest.raises(KernelError, match="is for cpu-x86_64"):
        resources.main(["--artifact", str(artifact.tree())])
