"""The subject's build command, run on a copy of its tree: what it must leave, and whether it leaves it again.

A result of the wrong kind is a BuildError that names the command's fault; nothing is ever built under baselines/.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import shutil
import signal
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline import canonical, commands, durable, elf
from pipeline.claims import Tool, without_folders
from pipeline.errors import BuildError, MachineError, ManifestError, UsageError
from pipeline.subject import Mutant, Subject, Target, shown
from pipeline.tree import SourceFile, Tree, copy_out

ARTIFACT_BYTES_MAX: Final = 256 << 20
TOOLCHAIN: Final = "toolchain.json"
TOOLS_MAX: Final = 32
BINARIES: Final = (".so", ".cubin")
UNSOUND: Final = (ValueError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)  # of a zip
LIMIT_S: Final = 600
VERSION_LIMIT_S: Final = 20
SUSPECT: Final = "see the build command in landing.toml"


@dataclass(frozen=True, slots=True)
class Built:
    """An artifact that a build left. `argv` has its placeholders; `path` is where it lies now."""

    path: Path
    sha256: str
    bytes: int
    argv: tuple[str, ...]
    toolchain: tuple[Tool, ...]
    seconds_ms: int


@dataclass(frozen=True, slots=True)
class Twice:
    """Two builds of one tree that agree as the target's `reproducible` demands. `payload` is None under "no"."""

    first: Built
    second: Built
    payload: str | None

    @property
    def same_bytes(self) -> bool:
        """True if the two artifacts are one file."""
        return self.first.sha256 == self.second.sha256


def build(
    subject: Subject, target: Target, parent: Path, out: Path, limit_s: float = LIMIT_S, *, cache: Path | None = None
) -> Built:
    """The artifact that the build command leaves in `out`, run with its working directory at `parent`.

    `parent` holds a copy of the tree, `out` is made and must be empty; caches start empty, but for a `cache`.
    Raises BuildError: program missing, failing, too slow; no artifact, an empty, malformed or linked one; a source
    that it changed.
    """
    _fresh(out, parent)
    where = f"{subject.folder} for {target.name}"
    argv = commands.fill(target.build, {"python": sys.executable, "out": str(out)} | _inputs(subject, parent))
    with tempfile.TemporaryDirectory(prefix="build-") as caches:
        log = Path(caches) / "log"
        extra = {"XDG_CACHE_HOME": str(cache or caches), "TMPDIR": caches}
        try:
            done = commands.run(argv, cwd=parent, env=extra, limit_s=limit_s, log=log)
        except MachineError as error:
            raise BuildError(where, f"the compiler {error.where} {error.what}", error.todo) from None
        if done.timed_out:
            raise MachineError(where, f"the build did not end in {limit_s:g} s", "see what it waits for")
        if done.code == -signal.SIGKILL:
            raise MachineError(where, "the build was killed from outside", "see to memory")
        if done.code:
            durable.require_room(Path(caches))
            said = without_folders(done.last_line)
            raise BuildError(where, f"the build ended with exit code {done.code}: {said}", SUSPECT)
        toolchain = _toolchain(target, out, Path(caches))
    path = out / target.artifact
    data = _artifact(path, where)
    return Built(path, canonical.sha256(data), len(data), target.build, toolchain, done.seconds_ms)


def build_twice(subject: Subject, target: Target, tree: Tree, work: Path, limit_s: float = LIMIT_S) -> Twice:
    """Two builds of a tree in two fresh folders below `work`, which agree as the target demands.

    The first artifact stays in work/one-out. Raises BuildError as `build` does, and if the two differ.
    """
    made = []
    for name in ("one", "two"):
        parent = work / name
        copy_out(tree, parent)
        made.append(build(subject, target, parent, work / f"{name}-out", limit_s))
        touched = tree.changed_in(parent)
        if touched:
            where = f"{subject.folder}/{touched[0]}"
            raise BuildError(where, "was changed by the build", "let it write to {out} alone")
    first, second = made
    one, two = (durable.read(each.path, ARTIFACT_BYTES_MAX) for each in made)
    where = f"{subject.folder} for {target.name}"
    if target.reproducible == "bytes" and first.sha256 != second.sha256:
        todo = 'find what the compiler puts there, or declare reproducible = "payload"'
        raise BuildError(where, f"two builds differ at {_difference(one, two)}", todo)
    if target.reproducible == "no":
        return Twice(first, second, None)
    payloads = {payload(one), payload(two)}
    if len(payloads) != 1:
        todo = 'find what the compiler puts there, or declare reproducible = "no"'
        raise BuildError(where, f"the payloads of two builds differ, first at {_difference(one, two)}", todo)
    return Twice(first, second, payloads.pop())


def mutate(files: Sequence[SourceFile], mutant: Mutant) -> tuple[SourceFile, ...]:
    """The files with the mutant's fault planted. Raises ManifestError unless `find` occurs once, in a text file."""
    where = f"mutant.{mutant.name}"
    found = next((file for file in files if file.path == mutant.file), None)
    if found is None:
        raise ManifestError(where, f"{mutant.file}: there is no such file in the tree", "correct file, since or until")
    try:
        text = found.data.decode("utf-8")
    except UnicodeDecodeError:
        raise ManifestError(where, f"{mutant.file}: is not text", "plant the fault elsewhere") from None
    count = _occurrences(text, mutant.find)
    if count != 1:
        raise ManifestError(where, f"{mutant.file}: find occurs {count} times", "it must occur exactly once")
    planted = SourceFile.of(found.path, text.replace(mutant.find, mutant.replace).encode(), found.mode)
    return tuple(planted if file is found else file for file in files)


def payload(data: bytes) -> str:
    """The digest of what an artifact does: of a zip its members, of an ELF file the sections that are loaded."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        members = sorted((name, payload(held)) for name, held in _members(data).items())
        return canonical.sha256(canonical.dumps(members))
    try:
        return canonical.sha256(canonical.dumps(elf.payload(data)) if data.startswith(b"\x7fELF") else data)
    except ValueError:  # an ELF file of another kind: every byte of it counts
        return canonical.sha256(data)


def _occurrences(text: str, find: str) -> int:
    """How often, overlapping ones counted."""
    count, at = 0, text.find(find)
    while at >= 0:
        count, at = count + 1, text.find(find, at + 1)
    return count


def _fresh(out: Path, parent: Path) -> None:
    for folder in (out, parent):
        if "baselines" in (*folder.absolute().parts, *folder.resolve().parts):
            raise UsageError(shown(folder.name), "lies below a folder named baselines", "build in another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise UsageError(shown(out.name), "is not empty, so an old artifact could pass for a new one", "empty it")
    except OSError as error:
        raise MachineError(out.name, f"cannot be made ({error.strerror})", "see to room and permissions") from None


def _inputs(subject: Subject, parent: Path) -> dict[str, str]:
    return {f"input:{one.name}": str(parent / subject.folder / one.path) for one in subject.inputs}


def _artifact(path: Path, where: str) -> bytes:
    """The artifact's bytes, if it is what its name says."""
    try:
        data = durable.read(path, ARTIFACT_BYTES_MAX)
        if not data:
            raise ValueError("is empty")
        if path.suffix == ".zip":
            _members(data)
        elif path.suffix in BINARIES:
            elf.sections(data)
    except FileNotFoundError:
        raise BuildError(where, f"the build succeeded and left no {path.name} in {{out}}", SUSPECT) from None
    except UNSOUND as error:
        raise BuildError(where, f"the build's {path.name} {error}", SUSPECT) from None
    return data


def _members(data: bytes) -> dict[str, bytes]:
    """Name to bytes of a zip's members. Raises ValueError or BadZipFile for one that is not sound."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        rows = archive.infolist()
        if not rows or len({row.filename for row in rows}) < len(rows):
            raise ValueError("is a zip without members, or with one twice")
        if sum(row.file_size for row in rows) > ARTIFACT_BYTES_MAX:
            raise ValueError(f"unpacks to more than {ARTIFACT_BYTES_MAX} bytes")
        made = {row.filename: archive.read(row) for row in rows}
    for name, held in made.items():
        if name.endswith(BINARIES):
            try:
                elf.sections(held)
            except ValueError as error:
                raise ValueError(f"holds {name}, which {error}") from None
    return made


def _difference(one: bytes, two: bytes) -> str:
    """Where two artifacts differ first: `adder.so .text+0x10`, or the byte."""
    if zipfile.is_zipfile(io.BytesIO(one)) and zipfile.is_zipfile(io.BytesIO(two)):
        left, right = _members(one), _members(two)
        for name in sorted({*left, *right}):
            if left.get(name) != right.get(name):
                return f"{name} {_difference(left.get(name, b''), right.get(name, b''))}"
    shorter = min(len(one), len(two))
    at = next((i for i in range(shorter) if one[i] != two[i]), shorter)
    return elf.place(one, at) if one.startswith(b"\x7fELF") and at < len(one) else f"byte {at:#x}"


def _toolchain(target: Target, out: Path, work: Path) -> tuple[Tool, ...]:
    """What the build says it used, or the programs that the manifest names."""
    try:
        rows = json.loads(durable.read(out / TOOLCHAIN, 1 << 20))
        made = canonical.typed(tuple[Tool, ...], rows, TOOLCHAIN)
        if not 1 <= len(made) <= TOOLS_MAX or not all(canonical.is_digest(tool.digest) for tool in made):
            raise ValueError(f"it needs 1 to {TOOLS_MAX} tools, each with a sha256 digest")
    except FileNotFoundError:
        made = tuple(_tool(name, work) for name in target.toolchain)
    except (ValueError, RecursionError) as error:
        raise BuildError(TOOLCHAIN, f"is not [{{name, version, digest}}] ({error})", SUSPECT) from None
    if not made:
        todo = f"list its programs in target.{target.name}.toolchain, or leave {TOOLCHAIN} in {{out}}"
        raise ManifestError(f"target.{target.name}", "nothing says which compiler built it", todo)
    return made


def _tool(name: str, work: Path) -> Tool:
    """A program on PATH, or an installed Python package, by its content."""
    found = shutil.which(name)
    if found is None:
        return _package(name)
    with Path(found).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    log = work / "version"
    done = commands.run([found, "--version"], cwd=work, env={}, limit_s=VERSION_LIMIT_S, log=log)
    first = next(iter(log.read_text(errors="replace").splitlines()), "").strip()
    version = first[:200] if not done.code and first else "unknown"
    return Tool(name=name, version=version, digest=digest)


@functools.cache
def _package(name: str) -> Tool:
    """An installed package, by the digests that its own list of files gives. Reads no file of it."""
    import csv
    from importlib import metadata

    try:
        package = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        raise BuildError(shown(name), "is no program on PATH and no installed package", "install it") from None
    rows = csv.reader((package.read_text("RECORD") or "").splitlines())
    listed = (row[:2] for row in rows if len(row) > 1 and row[1])
    files = sorted(row for row in listed if ".dist-info/" not in row[0] and not row[0].startswith("../"))
    if not files:
        raise BuildError(shown(name), "is a package without a list of its files", "install it from a wheel")
    return Tool(name=name, version=package.version, digest=canonical.sha256(canonical.dumps(files)))
