"""python -m kernels old_artifact: artifacts of earlier blocks, and this tree's, under the tools of this tree.

Leaves a file for each: check, file, sha256 and bytes of what its dumps of one row after another hold. --recorded FILE
leaves what the ledger holds of them, without a run. An artifact is given with the block that it is of: what came later
it must lack, and asking for that must be refused by name.
"""

import argparse
import contextlib
import io
import tempfile
import tomllib
from pathlib import Path

from kernels import artifact
from kernels.engine.errors import KernelError

from . import dump
from .inputs import file_digest

HERE = Path(__file__).parents[1]
DUMPED = ("h_out.f32", "logits.f32", "state.bin")
# check of landing.toml: what its dumps run
CASES = {
    "m1": "--shape mini64 --layers hybrid --seed 1 --text kernels/text/kestrel.txt --length 64",
    "m1-checkpoint": (
        "--checkpoint kernels/fixtures/hf_small --weights f32 --tokens kernels/fixtures/hf_small/tokens.i32"
    ),
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels old_artifact", description=__doc__, allow_abbrev=False)
    parser.add_argument("--recorded", type=Path, metavar="FILE")
    parser.add_argument("--of", nargs="+", default=[], metavar="NAME", help="what the recorded digests are of")
    parser.add_argument("--artifacts", nargs="+", default=[], type=_named, metavar="BLOCK=FILE")
    parser.add_argument("--artifact", type=Path, metavar="FILE", help="of this tree, which lacks nothing")
    parser.add_argument("--cases", required=True, type=_cases, metavar="NAMES", help=f"of {', '.join(CASES)}")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    if options.recorded:
        rows = [row for row in recorded(options.recorded) if row[0] in options.cases]
        found = dict.fromkeys(options.of, rows)
    else:
        found = {block: seen(path, options.cases, block) for block, path in options.artifacts}
    if options.artifact:
        found["candidate"] = seen(options.artifact, options.cases, None)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, rows in found.items():
        (options.out / f"{name}.txt").write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
    return 0


def recorded(path: Path) -> list[list[str]]:
    """Check, file, sha256 and bytes of every row that the file holds. Raises KernelError."""
    try:
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise KernelError(path, f"cannot be read ({error})", "name the recorded digests") from error
    if any(len(row) != 4 or row[0] not in CASES for row in rows):
        raise KernelError(path, "is no list of check, file, sha256 and bytes", "restore it from git")
    return rows


def seen(path: Path, cases: tuple[str, ...], block: str | None) -> list[list[str]]:
    """The rows of an artifact whose entries are those of its block. Raises KernelError."""
    check_entries(artifact.load(path), block)
    return [row for case in cases for row in dumped(path, case)]


def dumped(path: Path, case: str) -> list[list[str]]:
    """The rows of one dump. Raises KernelError."""
    with tempfile.TemporaryDirectory(prefix="kestrel-old-") as private:
        with contextlib.redirect_stdout(io.StringIO()):
            dump.main(["--artifact", str(path), *CASES[case].split(), "--out", private])
        files = [Path(private) / file for file in DUMPED]
        return [[case, file.name, file_digest(file), str(file.stat().st_size)] for file in files]


def check_entries(opened: artifact.Artifact, block: str | None) -> None:
    """Every entry up to the block is there, and what came later is refused by name. Raises KernelError."""
    blocks = list(tomllib.loads((HERE / "landing.toml").read_text(encoding="utf-8"))["block"])
    if block is not None and block not in blocks:
        raise KernelError(f"block {block}", "is not in landing.toml", f"use one of {', '.join(blocks)}")
    for entry in artifact.ENTRIES:
        later = block is not None and blocks.index(entry.since) > blocks.index(block)
        try:
            opened.entry(entry.name)
            word = "found"
        except KernelError as error:
            word = getattr(error, "reason", "no reason") if f"entry {entry.name}" in str(error) else "not named"
        if word != (artifact.NO_ENTRY if later else "found"):
            what = f"entry {entry.name}, of block {entry.since}: {word}"
            raise KernelError(f"artifact {opened.digest[:12]}", what, "mend ENTRIES, or what reads it")


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError("give BLOCK=FILE")
    return name, Path(path)


def _cases(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(CASES):
        raise argparse.ArgumentTypeError(f"give some of {', '.join(CASES)}")
    return names
