"""The two compilers, pinned packages both: the device text in, a binary and the compiler's own identity out.

The only user of ziglang and of CuPy's NVRTC. Nothing is read from the tree and nothing is left on disk.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .engine.errors import KernelError

SOURCE = "kestrel.cu"  # the one translation unit
DEFAULT_CPU = "x86_64_v3"
AARCH64_CPU = "generic"  # the only kind that is built for
COMPILE_LIMIT_S = 120
COMPLAINT_CHARACTERS_MAX = 200
ELF_MAGIC = b"\x7fELF"  # a cubin is one too
ELF64_PROGRAM_HEADERS = ((32, 8), (54, 2), (56, 2))  # where its header says their offset, size and number; bytes

ZIG_FLAGS = (
    *("-x", "c++", "-std=c++17", "-shared", "-fPIC", "-O3", "-g0", "-s", "-nostdlib", "-fno-exceptions", "-fno-rtti"),
    *("-ffp-contract=off", "-fno-math-errno"),
)
NVRTC_OPTIONS = ("--fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "--std=c++17")


@dataclass(frozen=True, slots=True)
class Tool:
    """One file of a compiler, as toolchain.json names it."""

    name: str
    version: str
    digest: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """A binary, and every file of the compiler that made it."""

    binary: bytes
    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """What a target's binary is called, and how it is made of the device texts by name (and a kind of CPU)."""

    binary: str
    package: str
    compile: Callable[[Mapping[str, bytes], str], Compiled]


def version(package: str) -> str:
    """The installed version. Raises KernelError when there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise KernelError(package, "is not installed", "install the project's dependency group") from error


def target(name: str) -> Target:
    """The row of TARGETS. Raises KernelError for a name that is not there."""
    if name not in TARGETS:
        raise KernelError(name, "is no target", f"use one of {', '.join(TARGETS)}")
    return TARGETS[name]


def compile_aarch64(texts: Mapping[str, bytes], cpu: str = "") -> Compiled:
    """compile_cpu() for another machine."""
    return compile_cpu(texts, AARCH64_CPU, system="aarch64-linux-gnu.2.17")


def compile_cpu(texts: Mapping[str, bytes], cpu: str, *, system: str = "x86_64-linux-gnu.2.17") -> Compiled:
    """A shared library that needs no other, from empty caches. Raises KernelError with the compiler's complaint."""
    installed = version("ziglang")
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise KernelError("ziglang", "cannot be imported", "install it again")
    zig = Path(spec.origin).with_name("zig")  # what `python -m ziglang` becomes
    with tempfile.TemporaryDirectory(prefix="kestrel-compile-") as private:
        for name, text in texts.items():
            (Path(private) / name).write_bytes(text)
        result = Path(private) / "result"
        _run_zig([str(zig), "cc", *ZIG_FLAGS, "-target", system, f"-mcpu={cpu}", "-o", str(result), SOURCE], private)
        binary = result.read_bytes() if result.exists() else b""
    return Compiled(_checked(binary, "zig"), (Tool("ziglang/zig", installed, _file_digest(zig)),))


def compile_cuda(texts: Mapping[str, bytes], cpu: str = "", *, architecture: str = "sm_90") -> Compiled:
    """A cubin; needs no GPU, and no kind of CPU matters. Raises KernelError with the compiler's complaint."""
    installed = version("nvidia-cuda-nvrtc")
    try:
        from cupy.cuda import nvrtc  # heavy, and only this target needs it
    except ImportError as error:
        raise KernelError("cupy", f"cannot be imported ({error})", "install the project's dependency group") from error

    headers = {name.encode(): text for name, text in texts.items() if name != SOURCE}
    program = nvrtc.createProgram(texts[SOURCE].decode(), SOURCE, list(headers.values()), list(headers))
    try:
        nvrtc.compileProgram(program, [f"--gpu-architecture={architecture}", *NVRTC_OPTIONS])
        cubin = _whole(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError as error:
        raise _failure("NVRTC failed", nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)
    mappings = Path("/proc/self/maps").read_text().splitlines()
    loaded = sorted({Path(line.split(maxsplit=5)[5]) for line in mappings if "/libnvrtc" in line})
    tools = tuple(Tool(f"nvidia-cuda-nvrtc/{file.name}", installed, _file_digest(file)) for file in loaded)
    return Compiled(_checked(cubin, "NVRTC"), tools)


TARGETS = {
    "cpu-x86_64": Target(binary="kestrel.so", package="ziglang", compile=compile_cpu),
    "cuda-sm_90": Target(binary="kestrel.cubin", package="nvidia-cuda-nvrtc", compile=compile_cuda),
    **{
        f"cuda-{architecture}": Target(
            binary=f"kestrel-{architecture}.cubin",
            package="nvidia-cuda-nvrtc",
            compile=partial(compile_cuda, architecture=architecture),
        )
        for architecture in ("sm_100", "sm_120")
    },
    "cpu-aarch64": Target(binary="kestrel-aarch64.so", package="ziglang", compile=compile_aarch64),
}


def _whole(cubin: bytes) -> bytes:
    """A cubin with the byte that CuPy takes for the end of a string: the program headers end the file."""
    start, size, count = (int.from_bytes(cubin[at : at + width], "little") for at, width in ELF64_PROGRAM_HEADERS)
    return cubin.ljust(start + size * count, b"\0") if start + size * count == len(cubin) + 1 else cubin


def _run_zig(command: list[str], private: str) -> None:
    """Its caches, its home and its temporary files all lie in the private folder."""
    names = ("HOME", "TMPDIR", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
    environment = {"PATH": os.defpath, **dict.fromkeys(names, private)}
    try:
        done = subprocess.run(
            command, cwd=private, env=environment, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise KernelError(SOURCE, f"zig ran past {COMPILE_LIMIT_S} s and was ended", "look at the machine") from error
    except OSError as error:
        raise KernelError("zig", f"cannot be run ({error.strerror})", "install ziglang again") from error
    if done.returncode != 0:
        raise _failure(f"zig ended with {done.returncode}", done.stderr)


def _failure(what: str, log: str) -> KernelError:
    lines = log.splitlines()
    complaint = next((line.strip() for line in lines if "error" in line), lines[0] if lines else "no word of why")
    return KernelError(SOURCE, f"{what}: {complaint[:COMPLAINT_CHARACTERS_MAX]}", "mend the device text")


def _checked(binary: bytes, compiler: str) -> bytes:
    if not binary.startswith(ELF_MAGIC):
        raise KernelError(SOURCE, f"{compiler} left {len(binary)} bytes that are no ELF", "install the compiler again")
    return binary


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
