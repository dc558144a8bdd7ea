"""sizes.py: exact sizes of real binaries, and what is not one."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline import sizes
from pipeline.errors import BuildError

SOURCE = """
int counter;
static int table[64];
const char word[] = "constant";
__attribute__((noinline)) int add(int a, int b) { return a + b + counter; }
int sum(const int *x, int n) { int s = 0; for (int i = 0; i < n; i++) s += add(x[i], table[i & 63]++); return s; }
"""
KERNELS = b"""
extern "C" __global__ void turn(float *x) {
    __shared__ float row[64];
    row[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = row[63 - threadIdx.x];
}
extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small .so of two functions, by a real compiler."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "sum.c").write_text(SOURCE)
    compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-nostdlib", "-O1", "-g0"]
    subprocess.run([*compiler, "sum.c", "-o", "sum.so"], cwd=folder, check=True)
    return folder / "sum.so"


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cubin of two kernels for sm_90, by NVRTC, which needs no GPU."""
    spec = importlib.util.find_spec("nvidia.cu13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (libraries,) = (path for place in spec.submodule_search_locations for path in Path(place).glob("lib"))
    ctypes.CDLL(str(libraries / "libnvrtc-builtins.so.13.0"), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(libraries / "libnvrtc.so.13"))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), KERNELS, b"two.cu", 0, None, None) == 0
    assert nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90")) == 0
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    data = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetCUBIN(program, data) == 0
    path = tmp_path_factory.mktemp("cubin") / "two.cubin"
    path.write_bytes(data.raw)
    return path


def test_a_library_has_sections_and_functions(library: Path) -> None:
    """A plain .so: its bytes, sections in the file, .bss apart, one line a function and none for data."""
    measured = sizes.measure(library)
    sections = dict(measured.sections)
    assert measured.artifact == library.stat().st_size
    assert sections[".rodata"] == len("constant") + 1
    assert ".bss" not in sections
    assert dict(measured.memory)[".bss"] >= 4 + 64 * 4
    assert [name for name, _ in measured.kernels] == ["add", "sum"]
    assert all(count > 0 for _, count in measured.kernels)
    assert sum(count for _, count in measured.kernels) <= sections[".text"]
    assert sum(sections.values()) < measured.artifact
    assert measured.members == measured.host == ()


def test_a_stripped_library_keeps_its_exported_functions(library: Path, tmp_path: Path) -> None:
    """Without .symtab the dynamic symbols give the same lines."""
    compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-nostdlib", "-O1", "-g0", "-s"]
    stripped = tmp_path / "sum.so"
    subprocess.run([*compiler, "sum.c", "-o", stripped], cwd=library.parent, check=True)
    measured = sizes.measure(stripped)
    assert ".symtab" not in dict(measured.sections)
    assert measured.kernels == sizes.measure(library).kernels


def test_a_cubin_has_kernels(cubin: Path) -> None:
    """A cubin: one line a kernel, its code; shared memory takes no room in the file and stands apart."""
    measured = sizes.measure(cubin)
    sections = dict(measured.sections)
    assert [name for name, _ in measured.kernels] == ["turn", "twice"]
    assert dict(measured.kernels) == {name: sections[f".text.{name}"] for name in ("turn", "twice")}
    assert ".nv.constant0.turn" in sections
    assert dict(measured.memory)[".nv.shared.turn"] >= 64 * 4
    assert ".nv.shared.turn" not in sections


def test_a_zip_has_members_and_the_sections_of_its_binary(library: Path, tmp_path: Path) -> None:
    """A zip: every member, the ones that are no binary as host, and what the binary alone would have."""
    path = tmp_path / "artifact.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("engine/config.py", b"x" * 1000)
        archive.writestr("engine/__init__.py", b"")
        archive.write(library, "sum.so")
    measured, alone = sizes.measure(path), sizes.measure(library)
    assert measured.artifact == path.stat().st_size < alone.artifact + 1000
    assert measured.members == (
        ("engine/__init__.py", 0),
        ("engine/config.py", 1000),
        ("sum.so", library.stat().st_size),
    )
    assert measured.host == measured.members[:2]
    assert (measured.sections, measured.memory, measured.kernels) == (alone.sections, alone.memory, alone.kernels)


def test_two_binaries_in_a_zip_are_told_apart(library: Path, cubin: Path, tmp_path: Path) -> None:
    """With several binaries each line carries its member's name."""
    path = tmp_path / "both.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(library, "sum.so")
        archive.write(cubin, "two.cubin")
    kernels = [name for name, _ in sizes.measure(path).kernels]
    assert kernels == ["sum.so:add", "sum.so:sum", "two.cubin:turn", "two.cubin:twice"]


def test_anything_else_has_its_bytes_alone(tmp_path: Path) -> None:
    """An artifact that is neither zip nor ELF is not an error, and only its size is known."""
    (tmp_path / "table.bin").write_bytes(b"12345")
    assert sizes.measure(tmp_path / "table.bin") == sizes.Sizes(5)


def test_a_function_more_is_seen(library: Path, tmp_path: Path) -> None:
    """Code that nothing calls is emitted and counted: no size is inferred from a call."""
    (tmp_path / "more.c").write_text(SOURCE + "int never(int x) { return x * 40503; }\n")
    compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-nostdlib", "-O1", "-g0"]
    subprocess.run([*compiler, "more.c", "-o", "more.so"], cwd=tmp_path, check=True)
    before, after = dict(sizes.measure(library).kernels), dict(sizes.measure(tmp_path / "more.so").kernels)
    assert set(after) - set(before) == {"never"}
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("a.so", b"", "is no sound ELF file"),
        ("a.so", b"#!/bin/sh\n", "is no sound ELF file"),
        ("a.cubin", b"text", "is no sound ELF file"),
        ("a.bin", b"\x7fELF", "is no sound ELF file"),
        ("a.zip", b"", "is no sound zip file"),
        ("a.zip", b"PK\x03\x04 and no more", "is no sound zip file"),
    ],
)
def test_malformed_artifacts_are_named(tmp_path: Path, name: str, data: bytes, line: str) -> None:
    """What ought to be a binary or a zip and is not is a BuildError of one line that names it."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BuildError, match=line) as caught:
        sizes.measure(tmp_path / name)
    assert str(caught.value).startswith(f"BuildError: {tmp_path / name}: ")
    assert "\n" not in str(caught.value)


def test_a_malformed_member_is_named(tmp_path: Path) -> None:
    """The line names the zip and the member; members of one name, and a member with a wrong CRC, are refused."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("engine.py", b"pass")
        archive.writestr("bad.so", b"\x7fELF junk")
    with pytest.raises(BuildError, match=r"a.zip: bad.so: is no sound ELF file"):
        sizes.measure(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("engine.py", b"a long line of text")
    path.write_bytes(path.read_bytes().replace(b"long", b"lung"))
    with pytest.raises(BuildError, match=r"a.zip: is no sound zip file: Bad CRC"):
        sizes.measure(path)
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("engine.py", b"one")
        archive.writestr("engine.py", b"two")
    with pytest.raises(BuildError, match="two members of one name"):
        sizes.measure(path)


def test_missing_odd_and_truncated_artifacts_are_named(library: Path, tmp_path: Path) -> None:
    """A missing file, a FIFO, and a library cut anywhere below its section table: BuildError, never anything else."""
    with pytest.raises(BuildError, match=r"none.so: is missing"):
        sizes.measure(tmp_path / "none.so")
    os.mkfifo(tmp_path / "fifo.so")
    with pytest.raises(BuildError, match=r"fifo.so: is a FIFO"):
        sizes.measure(tmp_path / "fifo.so")
    data = library.read_bytes()
    cut = tmp_path / "cut.so"
    for length in range(0, len(data), 97):
        cut.write_bytes(data[:length])
        with pytest.raises(BuildError, match="is no sound ELF file"):
            sizes.measure(cut)


def test_flipped_bytes_never_escape_as_another_error(library: Path, tmp_path: Path) -> None:
    """400 seeded faults of a real library give sizes or a BuildError."""
    data, drawn = library.read_bytes(), random.Random(20)
    outcomes = set()
    path = tmp_path / "fault.so"
    for _ in range(400):
        changed = bytearray(data)
        for at in drawn.sample([*range(64), *range(len(data) - 2000, len(data))], 3):
            changed[at] = drawn.randrange(256)
        path.write_bytes(changed)
        try:
            outcomes.add(sizes.measure(path).artifact)
        except BuildError as error:
            assert str(path) in str(error)
            outcomes.add("refused")
    assert outcomes == {len(data), "refused"}
