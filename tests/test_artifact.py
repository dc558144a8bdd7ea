"""The artifact: the same bytes from any folder, a library that needs no other, and two of them in one process."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from kernel_calls import one_call_each, open_library, run, without_instances

from kernels import artifact, compilers
from kernels.engine.errors import KernelError, Refused

ROOT = Path(__file__).parent.parent
KERNELS = {call.kernel for call in one_call_each(np.random.default_rng(0))}
SHORT = "from pathlib import Path; import sys; from kernels import artifact; artifact.build(sys.argv[1], Path('out'))"


def copy_tree(folder: Path) -> Path:
    """The files that artifacts are built from, in another place."""
    for part in ("*.py", "engine/*.py", "device/*"):
        for file in (ROOT / "kernels").glob(part):
            if file.is_file():
                to = folder / file.relative_to(ROOT)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, to)
    return folder


def build_in(folder: Path, target: str) -> Path:
    """A build by a process of its own, with a home of its own, of the tree copied to the folder."""
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", SHORT, target], cwd=folder, env=environment, check=True)
    return folder / "out" / f"kestrel-{target}.zip"


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@cache
def this_tree() -> Path:
    return artifact.tree()


@pytest.fixture
def mutated(tmp_path: Path) -> Path:
    """An artifact of another tree: its add subtracts."""
    tree = copy_tree(tmp_path / "mutated")
    source = tree / "kernels" / "device" / "swiglu.cuh"
    text = source.read_text()
    assert text.count("add_rn(load(y + at, count)") == 1
    source.write_text(text.replace("add_rn(load(y + at, count)", "sub_rn(load(y + at, count)"))
    return build_in(tree, "cpu-x86_64")


@pytest.mark.parametrize("target", compilers.TARGETS)
def test_two_folders_give_the_same_bytes(target: str, tmp_path: Path) -> None:
    """Two builds in folders of other names and depths, with other homes, differ in no byte; nor in their toolchain."""
    trees = [copy_tree(tmp_path / folder) for folder in ("a", "b/a longer name")]
    for tree in trees if target.startswith("cuda") else ():
        gemv = tree / "kernels" / "device" / "gemv.cuh"
        gemv.write_bytes(without_instances(gemv.read_bytes()))
    first, second = (build_in(tree, target) for tree in trees)
    assert first.read_bytes() == second.read_bytes()
    listings = [path.with_name("toolchain.json").read_bytes() for path in (first, second)]
    assert listings[0] == listings[1]
    assert str(tmp_path).encode() not in first.read_bytes()


def test_the_zip_says_nothing_but_names_and_bytes() -> None:
    """Members are stored in the order of their names, dated 1980, mode 0644: the host half and one binary."""
    with zipfile.ZipFile(this_tree()) as archive:
        rows = archive.infolist()
    assert [row.filename for row in rows] == sorted(row.filename for row in rows)
    assert {(row.compress_type, row.date_time, row.external_attr >> 16, row.create_system) for row in rows} == {
        (zipfile.ZIP_STORED, (1980, 1, 1, 0, 0, 0), 0o100644, 3)
    }
    host = {f"engine/{file.name}" for file in (ROOT / "kernels" / "engine").glob("*.py")}
    assert {row.filename for row in rows} == host | {"kestrel.so"}


def test_the_library_exports_the_kernels_and_needs_nothing() -> None:
    """Every defined dynamic symbol is a kernel, every kernel is one, none is undefined, no other library is named."""
    elf = ELFFile(io.BytesIO(members(this_tree())["kestrel.so"]))
    symbols = [symbol for symbol in elf.get_section_by_name(".dynsym").iter_symbols() if symbol.name]
    assert [symbol.name for symbol in symbols if symbol["st_shndx"] == "SHN_UNDEF"] == []
    assert {symbol.name for symbol in symbols} == KERNELS
    assert {symbol["st_info"]["type"] for symbol in symbols} == {"STT_FUNC"}
    assert not [tag for tag in elf.get_section_by_name(".dynamic").iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
    assert elf.get_section_by_name(".symtab") is None


def test_the_same_text_is_a_cubin_without_a_gpu() -> None:
    """NVRTC makes of it a CUDA binary whose global functions are the kernels."""
    elf = ELFFile(io.BytesIO(members(artifact.tree("cuda-sm_90"))["kestrel.cubin"]))
    assert elf["e_machine"] == "EM_CUDA"
    kernels = {
        symbol.name
        for symbol in elf.get_section_by_name(".symtab").iter_symbols()
        if symbol["st_info"] == {"bind": "STB_GLOBAL", "type": "STT_FUNC"}
    }
    assert kernels == KERNELS


@pytest.mark.parametrize("swapped", [False, True])
def test_two_artifacts_in_one_process_are_two_libraries(mutated: Path, swapped: bool) -> None:
    """Whatever order they are opened in, handles, symbols and engines differ, and each computes its own sum."""
    paths = [this_tree(), mutated]
    opened = {path: artifact.load(path) for path in (reversed(paths) if swapped else paths)}
    ours, theirs = (opened[path] for path in paths)
    assert ours.digest != theirs.digest
    assert ours.engine is not theirs.engine
    assert ours.engine.__name__.endswith(ours.digest)
    assert ours.entry("open") is not theirs.entry("open")
    assert artifact.load(paths[0]) is ours
    libraries = [open_library(one.binary) for one in (ours, theirs)]
    assert libraries[0]._handle != libraries[1]._handle
    call = next(call for call in one_call_each(np.random.default_rng(1)) if call.kernel == "add")
    x, y = call.args[0], call.args[1].array
    for library, want in zip(libraries, (y + x, y - x), strict=True):
        (got,) = run(call, on=library)
        assert got.tobytes() == want.tobytes()


def test_equal_binaries_of_two_artifacts_are_two_libraries(tmp_path: Path) -> None:
    """Artifacts that differ in host code alone still share no handle."""
    other = tmp_path / "other.zip"
    parts = members(this_tree())
    other.write_bytes(artifact._pack(parts | {"engine/errors.py": parts["engine/errors.py"] + b"# one line more\n"}))
    handles = [open_library(artifact.load(path).binary)._handle for path in (this_tree(), other)]
    assert handles[0] != handles[1]


def test_wider_registers_move_no_bit(tmp_path: Path) -> None:
    """x86_64_v4 code gives the bytes of x86_64_v3 code in every kernel, where the machine runs both."""
    libraries = []
    wide = " avx512f " in Path("/proc/cpuinfo").read_text()
    for cpu in ("x86_64_v3", "x86_64_v4") if wide else ("x86_64_v3",):
        binary = tmp_path / f"{cpu}.so"
        binary.write_bytes(members(artifact.build("cpu-x86_64", tmp_path / cpu, cpu=cpu))["kestrel.so"])
        libraries.append(open_library(binary))
    for call in one_call_each(np.random.default_rng(2)):
        results = [b"".join(array.tobytes() for array in run(call, on=library)) for library in libraries]
        assert len(results[0]) > 0
        assert results[0] == results[-1], call.kernel
    if not wide:
        pytest.skip("this machine has no AVX-512: x86_64_v3 was built and run, and had nothing to be compared with")


def test_private_files_go_with_the_process() -> None:
    """The opened binary is named by its digest in a folder that only the process can read, and is gone after it."""
    show = "from kernels import artifact; import sys; print(artifact.load(sys.argv[1]).binary)"
    done = subprocess.run(
        [sys.executable, "-c", show, str(this_tree())], cwd=ROOT, capture_output=True, text=True, check=True
    )
    binary = Path(done.stdout.strip())
    assert len(binary.stem) == 64
    assert not binary.parent.parent.exists()


def test_the_cache_follows_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One build serves until a source changes; no half-made folder is left beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(artifact, "HERE", copy_tree(tmp_path) / "kernels")
    first = artifact.tree()
    stamp = first.stat().st_mtime_ns
    assert artifact.tree() == first
    assert first.stat().st_mtime_ns == stamp
    text = tmp_path / "kernels" / "device" / "kestrel.cu"
    text.write_text(text.read_text() + "// one line more\n")
    second = artifact.tree()
    assert second != first
    assert second.read_bytes() == first.read_bytes()
    folders = (path.name for path in (tmp_path / "cache" / "kestrel").iterdir() if path.is_dir())
    assert sorted(folders) == sorted(path.parent.name for path in (first, second))


def test_the_same_texts_are_compiled_once_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host file asks no compiler; another text, other flags or a damaged cache do; the artifact is the same."""
    compiled: list[str] = []
    compile_cpu = compilers.TARGETS["cpu-x86_64"].compile

    def counted(texts: Mapping[str, bytes], cpu: str) -> compilers.Compiled:
        compiled.append(cpu)
        return compile_cpu(texts, cpu)

    row = dataclasses.replace(compilers.TARGETS["cpu-x86_64"], compile=counted)
    monkeypatch.setitem(compilers.TARGETS, "cpu-x86_64", row)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(artifact, "HERE", copy_tree(tmp_path) / "kernels")
    first = artifact.build("cpu-x86_64", tmp_path / "one").read_bytes()
    assert artifact.build("cpu-x86_64", tmp_path / "two").read_bytes() == first
    assert (tmp_path / "one" / "toolchain.json").read_bytes() == (tmp_path / "two" / "toolchain.json").read_bytes()
    host = tmp_path / "kernels" / "engine" / "errors.py"
    host.write_text(host.read_text() + "# one line more\n")
    assert artifact.build("cpu-x86_64", tmp_path / "three").read_bytes() != first
    assert len(compiled) == 1
    (kept,) = (tmp_path / "cache" / "kestrel").glob("compiled-*.zip")
    kept.write_bytes(kept.read_bytes().replace(b"\x7fELF", b"\x7fELG"))
    artifact.build("cpu-x86_64", tmp_path / "four")
    artifact.build("cpu-x86_64", tmp_path / "five", cpu="x86_64_v4")
    assert compiled == ["x86_64_v3", "x86_64_v3", "x86_64_v4"]


BROKEN = {
    "empty": b"",
    "no zip": b"\x7fELF, but no zip",
    "truncated": lambda parts: artifact._pack(parts)[:-100],
    "a flipped byte": lambda parts: artifact._pack(parts).replace(b"class KernelError", b"class KernelErros", 1),
    "no host code": lambda parts: artifact._pack({"kestrel.so": parts["kestrel.so"]}),
    "no binary": lambda parts: artifact._pack({name: data for name, data in parts.items() if name != "kestrel.so"}),
    "two binaries": lambda parts: artifact._pack(parts | {"kestrel.cubin": parts["kestrel.so"]}),
    "a binary that is none": lambda parts: artifact._pack(parts | {"kestrel.so": b"#!/bin/sh\n"}),
    "a stranger": lambda parts: artifact._pack(parts | {"engine/notes.txt": b"hello"}),
    "a climber": lambda parts: artifact._pack(parts | {"engine/../../x.py": b""}),
    "an absolute name": lambda parts: artifact._pack(parts | {"/engine/x.py": b""}),
    "host code that does not import": lambda parts: artifact._pack(parts | {"engine/__init__.py": b"import nothing_"}),
    "host code that does not parse": lambda parts: artifact._pack(parts | {"engine/__init__.py": b"def ("}),
    "a missing entry": lambda parts: artifact._pack(parts | {"engine/__init__.py": b"from .forward import Engine\n"}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_artifact_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    """Each is a KernelError of one line that says where, what and what to do, and leaves no module behind."""
    made = BROKEN[case]
    path = tmp_path / "broken.zip"
    path.write_bytes(made if isinstance(made, bytes) else made(members(this_tree())))
    before = set(sys.modules)
    with pytest.raises(KernelError) as caught:
        artifact.load(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("; ") >= 1
    assert caught.value.exit_code == 2
    assert not [name for name in set(sys.modules) - before if name.startswith("kestrel_")]


def test_a_missing_file_and_a_missing_entry_are_named(tmp_path: Path) -> None:
    """No file, a folder, and an entry of a later block: the error holds the name that was asked for."""
    for path in (tmp_path / "absent.zip", tmp_path):
        with pytest.raises(KernelError, match="cannot be read"):
            artifact.load(path)
    with pytest.raises(KernelError, match="has no entry levitate"):
        artifact.load(this_tree()).entry("levitate")
    with pytest.raises(KernelError, match="is no target"):
        artifact.build("cpu-z80", tmp_path)


def test_an_optional_entry_that_is_missing_refuses_its_use_alone(tmp_path: Path) -> None:
    """An artifact without forward_rows is opened and runs tokens; who asks for rows is refused by the entry's name."""
    parts = members(this_tree())
    assert parts["engine/forward.py"].count(b"def forward_rows(") == 1
    parts["engine/forward.py"] = parts["engine/forward.py"].replace(b"def forward_rows(", b"def _forward_rows(")
    path = tmp_path / "older.zip"
    path.write_bytes(artifact._pack(parts))
    older = artifact.load(path)
    engine = older.entry("open")(
        older.binary, older.entry("shape")("tiny", layers="attn", depth=1), older.entry("Synthetic")(1), capacity=1
    )
    engine.forward(1)
    with pytest.raises(Refused, match="has no entry forward_rows") as caught:
        older.entry("forward_rows")
    assert (caught.value.reason, caught.value.exit_code) == ("no-entry", 5)
    assert {entry.since for entry in artifact.ENTRIES if entry.required} == {"base"}


def test_a_fault_in_the_device_text_is_told_in_one_line() -> None:
    """Both compilers' complaints come out with the file and the line."""
    texts = {file.name: file.read_bytes() for file in (ROOT / "kernels" / "device").glob("*.cu*")}
    texts["swiglu.cuh"] += b"\nDEV int wrong() { return nowhere; }\n"
    for row in compilers.TARGETS.values():
        with pytest.raises(KernelError, match=r"kestrel\.cu: .*swiglu\.cuh.*error.*nowhere") as caught:
            row.compile(texts, compilers.DEFAULT_CPU)
        assert "\n" not in str(caught.value)


def test_a_compiler_that_hangs_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past its time it is ended and named; neither its private folder nor a half-made artifact remains."""
    monkeypatch.setattr(compilers, "COMPILE_LIMIT_S", 0.02)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(KernelError, match=r"zig ran past 0\.02 s"):
        artifact.build("cpu-x86_64", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without its package a target cannot be built, and the error names the package."""
    monkeypatch.setattr(compilers.importlib.metadata, "version", _absent)
    for name, package in (("cpu-x86_64", "ziglang"), ("cuda-sm_90", "nvidia-cuda-nvrtc")):
        with pytest.raises(KernelError, match=f"{package}: is not installed"):
            artifact.build(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def _absent(package: str) -> str:
    raise importlib.metadata.PackageNotFoundError(package)
