"""The build: what a compiler can do wrong is named, two builds are held against each other, faults are planted once."""

from __future__ import annotations

import io
import os
import shutil
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import build, canonical, elf, manifest
from pipeline.build import Twice
from pipeline.claims import Tool
from pipeline.errors import BuildError, MachineError, ManifestError, UsageError
from pipeline.manifest import Mutant, Subject
from pipeline.tree import SourceFile, Tree, copy_out
from tests.scratch import ADDER

ADDER_SUBJECT = manifest.load(ADDER)
MANIFEST = """
[subject]
name = "small"
sources = ["*.c"]
tools = ["compile"]
[target.cpu]
artifact = "ARTIFACT"
build = ["small/compile", "{out}/ARTIFACT"]
toolchain = ["sh"]
[block.a]
title = "first"
"""


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real shared library, built once."""
    work = tmp_path_factory.mktemp("adder")
    files = tuple(SourceFile.of(p.name, p.read_bytes()) for p in sorted(ADDER.iterdir()) if p.is_file())
    copy_out(Tree("adder", files), work)
    return build.build(ADDER_SUBJECT, ADDER_SUBJECT.target(), work, work / "out").path.read_bytes()


def subject(artifact: str = "small.so", **changes: object) -> Subject:
    made = manifest.parse(MANIFEST.replace("ARTIFACT", artifact).encode(), folder="small")
    return replace(made, targets=(replace(made.target(), **changes),))  # type: ignore[arg-type]


def tree(script: str, binary: bytes = b"") -> Tree:
    """A subject whose compiler is a shell script: $1 is the artifact to write, real.so lies beside it."""
    compiler = SourceFile.of("compile", f"#!/bin/sh\nhere=$(dirname $0)\n{script}\n".encode(), 0o755)
    return Tree("small", (compiler, SourceFile.of("real.so", binary), SourceFile.of("small.c", b"int x;\n")))


def built(work: Path, script: str, binary: bytes = b"", artifact: str = "small.so", limit_s: float = 20) -> build.Built:
    copy_out(tree(script, binary), work)
    made = subject(artifact)
    return build.build(made, made.target(), work, work / "out", limit_s)


def test_a_build_is_its_artifact_with_digest_command_and_compiler(tmp_path: Path, binary: bytes) -> None:
    """The command keeps its placeholders: no path of this machine is in it."""
    made = built(tmp_path, 'cp $here/real.so "$1"', binary)
    assert made.path == tmp_path / "out" / "small.so"
    assert (made.sha256, made.bytes) == (canonical.sha256(binary), len(binary))
    assert made.argv == ("small/compile", "{out}/small.so")
    assert [(tool.name, len(tool.digest)) for tool in made.toolchain] == [("sh", 64)]
    assert made.seconds_ms >= 0


FAULTS = {
    "failing": (
        "echo noise; echo 'small.c:1: error' >&2; exit 3",
        "the build ended with exit code 3: small.c:1: error",
    ),
    "nothing": ("true", "the build succeeded and left no small.so in {out}"),
    "other name": ('echo x > "$1.o"', "the build succeeded and left no small.so in {out}"),
    "empty": (': > "$1"', "the build's small.so is empty"),
    "text": ('echo int main > "$1"', "the build's small.so is no 64-bit ELF file"),
    "cut": ('head -c 1000 $here/real.so > "$1"', "the build's small.so is a cut or malformed ELF file"),
    "head alone": ('head -c 64 $here/real.so > "$1"', "the build's small.so is a cut or malformed ELF file"),
    "link": ('ln -s $here/real.so "$1"', "the build's small.so is a link, not a regular file"),
    "folder": ('mkdir "$1"', "the build's small.so is a folder, not a regular file"),
    "fifo": ('mkfifo "$1"', "the build's small.so is a FIFO, not a regular file"),
}


@pytest.mark.parametrize(("script", "said"), FAULTS.values(), ids=FAULTS)
def test_a_compilers_fault_is_named(tmp_path: Path, binary: bytes, script: str, said: str) -> None:
    """One line, exit code 4: nothing was decided."""
    with pytest.raises(BuildError) as caught:
        built(tmp_path, script, binary)
    assert said in str(caught.value)
    assert str(caught.value).startswith("BuildError: small for cpu: ")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    """So is one that may not be executed."""
    for name, compiler in (("one", "compiler-that-is-absent"), ("two", "small/real.so")):
        copy_out(tree("true"), tmp_path / name)
        made = subject(build=(compiler, "{out}"))
        with pytest.raises(BuildError, match=f"the compiler {Path(compiler).name} cannot be run"):
            build.build(made, made.target(), tmp_path / name, tmp_path / name / "out")


def test_a_hanging_compiler_is_stopped(tmp_path: Path) -> None:
    """With what it started; the limit is in the line."""
    start = time.monotonic()
    with pytest.raises(MachineError, match=r"the build did not end in 0\.2 s"):
        built(tmp_path, "sleep 600 & sleep 600", limit_s=0.2)
    assert time.monotonic() - start < 10


def test_a_compiler_that_something_killed_is_no_verdict(tmp_path: Path, binary: bytes) -> None:
    """Not on a mutant either, which would be a fault that could not be planted: exit code 4, and no BuildError."""
    with pytest.raises(MachineError, match="the build was killed from outside") as caught:
        built(tmp_path, "kill -9 $$", binary)
    assert (caught.value.exit_code, type(caught.value)) == (4, MachineError)


def test_no_folder_of_this_machine_is_in_what_a_compiler_said(tmp_path: Path, binary: bytes) -> None:
    """A mutant that does not build is on record with it."""
    with pytest.raises(BuildError, match=r"exit code 1: cannot write adder\.o") as caught:
        built(tmp_path, 'echo "cannot write $PWD/adder.o"; exit 1', binary)
    assert str(tmp_path) not in str(caught.value)


def packed(**members: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_", "."), data)
    return made.getvalue()


def test_a_zip_must_open_and_the_binary_in_it_must_be_one(tmp_path: Path, binary: bytes) -> None:
    """A zip that is cut, empty, has a flipped byte in a member, or holds text under a binary's name."""
    good = packed(a_py=b"x = 1\n", small_so=binary)
    flipped = bytearray(good)
    flipped[good.index(b"x = 1")] ^= 1
    with zipfile.ZipFile(made := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.py", b"x = 1\n" * 100)
    stream = bytearray(made.getvalue())
    stream[stream.index(b"a.py") + 4] = 0xFF  # no deflate block begins so
    cases = {
        good[:-30]: "File is not a zip file",
        packed(): "is a zip without members",
        bytes(flipped): "Bad CRC-32 for file 'a.py'",
        packed(small_so=b"text"): "holds small.so, which is no 64-bit ELF file",
        b"PK": "File is not a zip file",
        bytes(stream): "Error -3 while decompressing data",
    }
    for i, (data, said) in enumerate(cases.items()):
        with pytest.raises(BuildError) as caught:
            built(tmp_path / str(i), 'cp $here/real.so "$1"', data, "small.zip")
        assert said in str(caught.value)
    assert built(tmp_path / "good", 'cp $here/real.so "$1"', good, "small.zip").bytes == len(good)


def test_an_old_artifact_cannot_pass_for_a_new_one(tmp_path: Path, binary: bytes) -> None:
    """An output folder that holds anything is refused before the compiler is started."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "small.so").write_bytes(binary)
    with pytest.raises(UsageError, match="out: is not empty"):
        built(tmp_path, "touch $here/ran")
    assert not (tmp_path / "small" / "ran").exists()


@pytest.mark.parametrize("through", ["name", "link"])
def test_nothing_is_ever_built_under_baselines(tmp_path: Path, binary: bytes, through: str) -> None:
    """Not by its name, and not behind a link; the baseline stays as it was."""
    current = tmp_path / "baselines" / "current" / "cpu"
    current.mkdir(parents=True)
    (current / "small.so").write_bytes(b"baseline")
    out = current
    if through == "link":
        out = tmp_path / "work"
        out.symlink_to(current)
    copy_out(tree('cp $here/real.so "$1"', binary), tmp_path / "copy")
    made = subject()
    with pytest.raises(UsageError, match="lies below a folder named baselines"):
        build.build(made, made.target(), tmp_path / "copy", out)
    assert (current / "small.so").read_bytes() == b"baseline"


def test_every_build_starts_with_empty_caches(tmp_path: Path, binary: bytes) -> None:
    """Else the second build would be a copy of the first: a compiler that finds its own cache fails here."""
    script = 'test ! -e "$XDG_CACHE_HOME/mine" -a ! -e "$TMPDIR/mine" || exit 9\n: > "$XDG_CACHE_HOME/mine"'
    assert twice(tmp_path, f'{script}\ncp $here/real.so "$1"', binary).same_bytes


def twice(work: Path, script: str, binary: bytes, reproducible: str = "bytes", artifact: str = "small.so") -> Twice:
    made = subject(artifact, reproducible=reproducible)
    return build.build_twice(made, made.target(), tree(script, binary), work)


def noisy(binary: bytes, section: str | None) -> str:
    """A compiler that puts other bytes into a section, or behind the last byte: its folder's name, then random ones."""
    found = [one for one in elf.sections(binary) if one.name == section]
    at = found[0].offset + 4 if section else len(binary)
    other = '{ basename "$PWD"; head -c 12 /dev/urandom; }'
    return f'cp $here/real.so "$1"; {other} | dd of="$1" bs=1 seek={at} conv=notrunc status=none'


def test_two_builds_of_a_repeatable_compiler_are_one_artifact(tmp_path: Path, binary: bytes) -> None:
    """The first lies where it was built; its payload is the digest of what is loaded."""
    made = twice(tmp_path, 'cp $here/real.so "$1"', binary)
    assert made.same_bytes
    assert made.first.path == tmp_path / "one-out" / "small.so"
    assert made.payload == canonical.sha256(canonical.dumps(elf.payload(binary)))


def test_different_bytes_each_time_are_a_named_error(tmp_path: Path, binary: bytes) -> None:
    """With the section, and the place in it."""
    with pytest.raises(BuildError, match=r"two builds differ at \.text\+0x4"):
        twice(tmp_path, noisy(binary, ".text"), binary)


def test_under_payload_only_what_is_loaded_must_be_equal(tmp_path: Path, binary: bytes) -> None:
    """Other names pass and are two digests; other code does not."""
    made = twice(tmp_path / "names", noisy(binary, None), binary, "payload")
    assert not made.same_bytes
    with pytest.raises(BuildError, match=r"the payloads of two builds differ, first at \.text\+0x4"):
        twice(tmp_path / "code", noisy(binary, ".text"), binary, "payload")


def test_the_payload_of_a_zip_is_its_members_and_not_their_times(tmp_path: Path, binary: bytes) -> None:
    """Two packings at two times differ in bytes alone; a changed member is named."""
    one = packed(a_py=b"x = 1\n", small_so=binary)
    two, three = io.BytesIO(), packed(a_py=b"x = 2\n", small_so=binary)
    with zipfile.ZipFile(two, "w") as archive:
        for name, data in (("small.so", binary), ("a.py", b"x = 1\n")):
            archive.writestr(zipfile.ZipInfo(name, (1999, 1, 1, 0, 0, 0)), data)
    (tmp_path / "one.zip").write_bytes(one)
    (tmp_path / "two.zip").write_bytes(two.getvalue())
    script = f'cp {tmp_path}/one.zip "$1"; mv {tmp_path}/two.zip {tmp_path}/one.zip || true'
    made = twice(tmp_path / "times", script, b"", "payload", "small.zip")
    assert not made.same_bytes
    (tmp_path / "one.zip").write_bytes(one)
    (tmp_path / "two.zip").write_bytes(three)
    with pytest.raises(BuildError, match=r"differ, first at a\.py byte 0x4"):
        twice(tmp_path / "member", script, b"", "payload", "small.zip")


def test_under_no_two_builds_need_not_agree(tmp_path: Path, binary: bytes) -> None:
    """The archived bytes are then the identity, and no payload is claimed."""
    made = twice(tmp_path, noisy(binary, ".text"), binary, "no")
    assert (made.same_bytes, made.payload) == (False, None)


def test_a_build_that_changes_a_source_is_named(tmp_path: Path, binary: bytes) -> None:
    """What was hashed is what was built, or nothing is."""
    with pytest.raises(BuildError, match=r"small/small\.c: was changed by the build"):
        twice(tmp_path, 'cp $here/real.so "$1"; echo >> $here/small.c', binary)


def test_the_adder_is_built_twice_to_the_same_bytes(tmp_path: Path, binary: bytes) -> None:
    """With a real compiler, in two folders; its toolchain is an installed package."""
    files = tuple(SourceFile.of(p.name, p.read_bytes()) for p in sorted(ADDER.iterdir()) if p.is_file())
    made = build.build_twice(ADDER_SUBJECT, ADDER_SUBJECT.target(), Tree("adder", files), tmp_path)
    assert made.same_bytes
    assert made.first.sha256 == canonical.sha256(binary)
    (tool,) = made.first.toolchain
    assert tool.name == "ziglang"
    assert canonical.is_digest(tool.digest)


def test_a_program_on_path_is_named_by_its_bytes_and_first_line(
    tmp_path: Path, binary: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version string alone is no identity."""
    program = tmp_path / "bin" / "mycc"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'mycc 1.2'; echo more\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    copy_out(tree('cp $here/real.so "$1"', binary), tmp_path / "copy")
    made = subject(toolchain=("mycc",))
    (tool,) = build.build(made, made.target(), tmp_path / "copy", tmp_path / "out").toolchain
    assert tool == Tool(name="mycc", version="mycc 1.2", digest=canonical.sha256(program.read_bytes()))


def test_what_the_build_says_of_its_toolchain_comes_first(tmp_path: Path, binary: bytes) -> None:
    """toolchain.json in the output folder."""
    said = f'[{{"name":"own","version":"7","digest":"{"a" * 64}"}}]'
    script = f"cp $here/real.so \"$1\"; echo '{said}' > $(dirname $1)/toolchain.json"
    assert built(tmp_path, script, binary).toolchain == (Tool(name="own", version="7", digest="a" * 64),)


TOOLCHAINS = [
    "",
    "{}",
    "[]",
    '[{"name":"x"}]',
    '[{"name":"x","version":"1","digest":"abc"}]',
    "[[]]",
    "[1]",
    "[" * 9999,
]


@pytest.mark.parametrize("said", TOOLCHAINS, ids=range(len(TOOLCHAINS)))
def test_a_toolchain_that_cannot_be_read_is_named(tmp_path: Path, binary: bytes, said: str) -> None:
    """Nothing is guessed instead."""
    (tmp_path / "said").write_text(said)
    with pytest.raises(BuildError, match=r"toolchain\.json: is not \[\{name, version, digest\}\]"):
        built(tmp_path, f'cp $here/real.so "$1"; cp {tmp_path}/said $(dirname $1)/toolchain.json', binary)


def test_an_unknown_toolchain_is_an_error(tmp_path: Path, binary: bytes) -> None:
    """A name that is nothing here, and no name at all."""
    for name, toolchain, error, said in [
        ("one", ("tool-that-is-absent",), BuildError, "is no program on PATH and no installed package"),
        ("two", (), ManifestError, "nothing says which compiler built it"),
    ]:
        copy_out(tree('cp $here/real.so "$1"', binary), tmp_path / name)
        made = subject(toolchain=toolchain)
        with pytest.raises(error, match=said):
            build.build(made, made.target(), tmp_path / name, tmp_path / name / "out")


def mutant(find: str, file: str = "a.c", put: str = "X") -> Mutant:
    return Mutant("fault", file, find, put, "a", None, ("cpu",), ("check",), neutral=False, only=False)


FILES = (SourceFile.of("a.c", "one é two\ntwo\naaa\n".encode(), 0o755), SourceFile.of("b.bin", b"\xff\xfe"))


def test_a_mutant_is_planted_once_and_touches_nothing_else() -> None:
    """Its file has a new digest and its old mode; the other files are the same values."""
    planted = build.mutate(FILES, mutant("é two"))
    assert planted[0] == SourceFile.of("a.c", b"one X\ntwo\naaa\n", 0o755)
    assert planted[1] is FILES[1]
    assert build.mutate(FILES, mutant("one é two\ntwo", put=""))[0].data == b"\naaa\n"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (mutant("three"), "mutant.fault: a.c: find occurs 0 times"),
        (mutant("two"), "mutant.fault: a.c: find occurs 2 times"),
        (mutant("aa"), "mutant.fault: a.c: find occurs 2 times"),
        (mutant("x", file="c.c"), "mutant.fault: c.c: there is no such file in the tree"),
        (mutant("x", file="b.bin"), "mutant.fault: b.bin: is not text"),
    ],
)
def test_a_mutant_that_cannot_be_planted_exactly_once_is_a_mistake(found: Mutant, said: str) -> None:
    """Overlapping occurrences count as two; exit code 2."""
    with pytest.raises(ManifestError) as caught:
        build.mutate(FILES, found)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_sections_are_those_that_pyelftools_reads(binary: bytes) -> None:
    """Names, sizes and bytes, from an independent reader."""
    from elftools.elf.elffile import ELFFile

    theirs = list(ELFFile(io.BytesIO(binary)).iter_sections())[1:]
    ours = elf.sections(binary)
    assert [(one.name, one.size) for one in ours] == [(one.name, one["sh_size"]) for one in theirs]
    assert all(one.data == other.data() for one, other in zip(ours, theirs, strict=True) if one.kind != elf.NOBITS)
    assert {one[0] for one in elf.payload(binary)} >= {".text", ".dynsym", ".dynstr"}


def test_a_damaged_elf_file_is_a_value_error_and_nothing_else(binary: bytes) -> None:
    """Cut anywhere, and with any one byte of its headers changed, it is read or refused."""
    for size in range(0, len(binary), 41):
        with pytest.raises(ValueError, match="ELF"):
            elf.sections(binary[:size])
    table = int.from_bytes(binary[40:48], "little")
    refused = 0
    for at in (*range(64), *range(table, len(binary), 3)):
        try:
            elf.payload(binary[:at] + bytes([binary[at] ^ 0xFF]) + binary[at + 1 :])
        except ValueError:
            refused += 1
    assert refused > 10


def test_build_folders_are_gone_when_their_build_is(
    tmp_path: Path, binary: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private caches of a build, failed or not, leave nothing in the temporary folder."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    built(tmp_path / "one", 'echo x > "$TMPDIR/left"; cp $here/real.so "$1"', binary)
    with pytest.raises(BuildError):
        built(tmp_path / "two", 'echo x > "$TMPDIR/left"; exit 1')
    assert list(temporary.iterdir()) == []
    shutil.rmtree(tmp_path / "one")


def test_an_elf_file_of_another_kind_counts_whole() -> None:
    """What cannot be told apart by its sections is told apart by every byte: no note of it is overlooked."""
    short = b"\x7fELF\x01" + bytes(60)
    assert build.payload(short) != build.payload(short + b"\0")
    assert elf.place(short, 7) == "0x7 of the file"
