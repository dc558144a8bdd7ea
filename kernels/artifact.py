"""The artifact: one deterministic zip of the engine's host code and its device binary. Made here, and opened here.

build() compiles device/kestrel.cu of the tree that this file lies in; load() opens a zip, as many in one process as
are wanted; tree() is the tree's own build, kept in the user's cache. Tools reach an engine by the ENTRIES table alone.
"""

import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from . import compilers
from .engine.errors import KernelError, Refused

HERE = Path(__file__).parent
BUILDERS = ("artifact.py", "compilers.py")  # what else decides the artifact's bytes
MEMBER_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say
MEMBER_MODE = 0o100644
MEMBER_NAME = re.compile(r"engine/[A-Za-z_][A-Za-z0-9_]*\.py")
MEMBER_BYTES_MAX = 16 << 20
MEMBERS_MAX = 64
UNIX = 3  # create_system of a zip member
NO_ENTRY = "no-entry"  # the reason of a refusal


@dataclass(frozen=True, slots=True)
class Entry:
    """A verb of the engine. A missing required one fails the load; a missing optional one refuses its use alone."""

    name: str
    since: str  # block
    required: bool


ENTRIES = (
    *(Entry(name, since="base", required=True) for name in ("open", "forward", "planes", "reset")),
    *(Entry(name, since="base", required=True) for name in ("hidden", "logits", "argmax")),
    *(Entry(name, since="base", required=True) for name in ("shape", "from_folder", "Synthetic", "Checkpoint")),
    *(Entry(name, since="base", required=False) for name in ("open_device", "weight", "step_ns", "step_kernels")),
    *(Entry(name, since="e", required=False) for name in ("forward_rows", "hidden_rows", "logits_rows", "argmax_rows")),
    *(Entry(name, since="e", required=False) for name in ("slab", "poison")),
    *(Entry(name, since="rollback", required=False) for name in ("mark", "rollback")),
    Entry("spec_verify", since="spec", required=False),
    *(Entry(name, since="gemv", required=False) for name in ("timed", "seek")),
)


@dataclass(frozen=True, slots=True)
class Artifact:
    """An opened artifact: an engine package and a file of the binary of its own, shared with no other artifact."""

    digest: str
    target: str
    engine: ModuleType
    binary: Path

    def entry(self, name: str) -> Callable[..., Any]:
        """The engine's function of that name, or else the method of its Engine. Raises Refused without either."""
        found = _callable_of(self.engine, name)
        if found is None:
            where, todo = f"artifact {self.digest[:12]}", "use an artifact of a later block"
            raise Refused(where, f"has no entry {name}", todo, reason=NO_ENTRY)
        return found


def build(target: str, out: Path, *, cpu: str = compilers.DEFAULT_CPU) -> Path:
    """out/kestrel-<target>.zip and out/toolchain.json exist, made of this tree; returns the zip.

    The same texts are compiled once a cache: the caches of who must see a compiler work are empty.
    Raises KernelError when the compiler is missing, fails, hangs, or leaves something that is no binary.
    """
    row = compilers.target(target)
    sources = _sources()
    texts = {name.removeprefix("device/"): text for name, text in sources.items() if name.startswith("device/")}
    host = {name: text for name, text in sources.items() if name.startswith("engine/")}
    compiled = _compiled(target, texts, cpu)
    listing = json.dumps([asdict(tool) for tool in compiled.tools], indent=1) + "\n"
    try:
        out.mkdir(parents=True, exist_ok=True)
        _replace(out / "toolchain.json", listing.encode())
        return _replace(out / f"kestrel-{target}.zip", _pack(host | {row.binary: compiled.binary}))
    except OSError as error:
        raise KernelError(out, f"cannot be written ({error.strerror})", "name another folder") from error


def load(path: Path) -> Artifact:
    """The artifact in that zip, opened. The same bytes opened twice are one artifact.

    Raises KernelError for anything that build() would not have written, and for a missing required entry.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise KernelError(path, f"cannot be read ({error.strerror})", "name an artifact that exists") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest not in _opened:
        _opened[digest] = _open(path, digest, _unpack(path, data))
    return _opened[digest]


def tree(target: str = "cpu-x86_64") -> Path:
    """The artifact of this very tree: built when its sources or the compiler are new, else taken from the cache."""
    package = compilers.target(target).package
    digest = hashlib.sha256(f"{target} {package} {compilers.version(package)}\n".encode())
    for name, text in (_sources() | {name: (HERE / name).read_bytes() for name in BUILDERS}).items():
        digest.update(f"{name} {len(text)}\n".encode() + text)
    try:
        root = _cache()
        kept = root / digest.hexdigest() / f"kestrel-{target}.zip"
        if not kept.exists():
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".building-", dir=root) as private:
                _keep(build(target, Path(private) / "out").parent, kept)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home
        raise KernelError("the build cache", f"cannot be used ({error})", "set XDG_CACHE_HOME to a folder") from error
    return kept


_opened: dict[str, Artifact] = {}  # by digest


@cache
def _private() -> tempfile.TemporaryDirectory[str]:
    """Where opened artifacts lie; removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="kestrel-open-")


def _cache() -> Path:
    """Where what was built is kept. Raises RuntimeError without a home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kestrel"


def _compiled(target: str, texts: dict[str, bytes], cpu: str) -> compilers.Compiled:
    """The binary of these texts: from the cache if this compiler, called like this, has left it there."""
    row = compilers.target(target)
    made_of = [target, row.package, compilers.version(row.package), cpu, (HERE / BUILDERS[1]).read_text()]
    key = hashlib.sha256(json.dumps(made_of).encode() + _pack(texts)).hexdigest()
    try:
        kept = _cache() / f"compiled-{key}.zip"
        with zipfile.ZipFile(kept) as archive:  # which checks what it reads
            tools = tuple(compilers.Tool(**tool) for tool in json.loads(archive.read("tools.json")))
            return compilers.Compiled(archive.read(row.binary), tools)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        made = row.compile(texts, cpu)  # there is none, or none that is whole
    with suppress(OSError, RuntimeError):
        tools_json = json.dumps([asdict(tool) for tool in made.tools]).encode()
        _cache().mkdir(parents=True, exist_ok=True)
        _replace(kept, _pack({row.binary: made.binary, "tools.json": tools_json}))
    return made


def _sources() -> dict[str, bytes]:
    """Every file that decides the artifact's bytes, read once, by its name below this folder."""
    files = sorted([*(HERE / "device").glob("*.cu*"), *(HERE / "engine").glob("*.py")])
    return {file.relative_to(HERE).as_posix(): file.read_bytes() for file in files}


def _pack(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(members.items()):
            info = zipfile.ZipInfo(name, MEMBER_DATE)
            info.create_system, info.external_attr = UNIX, MEMBER_MODE << 16
            archive.writestr(info, data)
    return stream.getvalue()


def _replace(path: Path, data: bytes) -> Path:
    """The file at path holds data; at no moment does it hold a part of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.chmod(file.name, MEMBER_MODE & 0o777)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    return path


def _keep(built: Path, kept: Path) -> None:
    """The folder of a finished build becomes the kept one, unless another process was first with the same bytes."""
    try:
        built.rename(kept.parent)
    except OSError:
        if not kept.exists():
            raise


def _unpack(path: Path, data: bytes) -> dict[str, bytes]:
    """The members by name. Raises KernelError for a zip that is broken, or that has any member it should not have."""
    todo = "build the artifact again, or restore it"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            rows = archive.infolist()
            names = [row.filename for row in rows]
            if len(set(names)) != len(names) or len(names) > MEMBERS_MAX:
                raise KernelError(path, "has a member twice or too many members", todo)
            if large := [row.filename for row in rows if row.file_size > MEMBER_BYTES_MAX]:
                raise KernelError(path, f"has a member that is too large, {large[0]!r}", todo)
            members = {name: archive.read(name) for name in names}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise KernelError(path, f"is no sound zip ({error})", todo) from error
    binaries = [row.binary for row in compilers.TARGETS.values() if row.binary in members]
    strange = [name for name in names if not MEMBER_NAME.fullmatch(name) and name not in binaries]
    if strange:
        raise KernelError(path, f"has a member {strange[0]!r} that no artifact has", todo)
    if len(binaries) != 1 or "engine/__init__.py" not in members:
        raise KernelError(path, "lacks engine/__init__.py or has not exactly one binary", todo)
    if not members[binaries[0]].startswith(compilers.ELF_MAGIC):
        raise KernelError(path, f"holds a {binaries[0]} that is no ELF", todo)
    return members


def _open(path: Path, digest: str, members: dict[str, bytes]) -> Artifact:
    """Raises KernelError when the engine does not import or lacks a required entry; then nothing of it stays."""
    target, row = next((name, row) for name, row in compilers.TARGETS.items() if row.binary in members)
    folder, module = Path(_private().name) / digest, f"kestrel_{digest}"
    (folder / "engine").mkdir(parents=True)
    for name, data in members.items():
        if name != row.binary:
            (folder / name).write_bytes(data)
    binary = folder / (hashlib.sha256(members[row.binary]).hexdigest() + Path(row.binary).suffix)
    binary.write_bytes(members[row.binary])
    try:
        artifact = Artifact(digest, target, _import_engine(path, module, folder / "engine"), binary)
        for entry in ENTRIES:
            if entry.required and _callable_of(artifact.engine, entry.name) is None:
                raise KernelError(path, f"lacks the required entry {entry.name}", "build the artifact again")
    except BaseException:
        shutil.rmtree(folder)
        for loaded in [key for key in sys.modules if key == module or key.startswith(f"{module}.")]:
            del sys.modules[loaded]
        raise
    return artifact


def _callable_of(engine: ModuleType, name: str) -> Callable[..., Any] | None:
    """The function or class of the package, or else the method of its Engine."""
    for owner in (engine, getattr(engine, "Engine", None)):
        found: Callable[..., Any] | None = getattr(owner, name, None)
        if callable(found):
            return found
    return None


def _import_engine(path: Path, name: str, folder: Path) -> ModuleType:
    """The package in the folder, under a name that no other artifact has. Raises KernelError for any failure in it."""
    start = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise KernelError(path, "holds an engine that cannot be imported", "build the artifact again")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        what = f"holds an engine that does not import ({error!r})".replace("\n", " ")
        raise KernelError(path, what, "build the artifact again") from error
    return module
