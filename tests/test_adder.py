"""The adder subject keeps its own word: every check is green on it, and red on the mutants that it must catch."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline import build, commands, layout, manifest, outputs
from pipeline.manifest import Check, Mutant
from pipeline.subject import matches
from pipeline.tree import SourceFile, Tree, copy_out
from tests.scratch import ADDER, BLOCKS, write

SUBJECT = manifest.load(ADDER)


class Copy:
    """A built copy of the adder, and what one check says of it."""

    def __init__(self, tree: Tree, work: Path, baseline: Path | None = None) -> None:
        self.parent, self.runs = work / "copy", work / "runs"
        copy_out(tree, self.parent)
        self.artifact = build.build(SUBJECT, SUBJECT.target(), self.parent, work / "out").path
        self.baseline = baseline or self.artifact

    def run(self, argv: tuple[str, ...], name: str) -> tuple[Path, commands.Finished]:
        out = self.runs / name
        out.mkdir(parents=True, exist_ok=True)
        paths = {"python": sys.executable, "out": str(out), "input:sample": str(self.parent / "adder" / "sample.txt")}
        paths |= dict.fromkeys(("candidate", "artifact"), str(self.artifact)) | {"baseline": str(self.baseline)}
        filled = commands.fill(argv, paths)
        return out, commands.run(filled, cwd=self.parent, env={}, limit_s=30, log=self.runs / f"{name}.log")

    def is_green(self, check: Check, *, teeth: bool) -> bool:
        """The verb's rule in its shortest form, in a teeth or full run; a set-up error of a side is red."""
        ran = [self.run(argv, f"{check.id}-{i}") for i, argv in enumerate(check.commands(teeth=teeth))]
        folders = [out for out, _ in ran]
        if check.verb == "refuses":
            return all(
                done.code == case.code
                and case.word in done.tail
                and (out / "before.bin").read_bytes() == (out / "after.bin").read_bytes()
                for case, (out, done) in zip(check.refuses, ran, strict=True)
            )
        if any(done.code for _, done in ran):
            return False
        if check.verb == "clean":
            return not any(str(check.absent) in done.tail for _, done in ran)
        if check.verb == "differs":
            files = [{file.name: file.sha256 for file in outputs.listing(out)} for out in folders]
            return all(files[0][name] != files[1][name] for name in check.differs)
        if check.verb == "same":
            return bool(outputs.listing(folders[0])) and not outputs.compare(folders)
        return all(self.is_near(folders, bound) for bound in check.within)

    def is_near(self, folders: list[Path], bound: manifest.Bound) -> bool:
        names = [file.name for file in outputs.listing(folders[0]) if matches(file.name, bound.files)]
        bounds, differences = outputs.within(*folders, names, bound.dtype)
        return bool(bounds) and not differences and all(row.worst_ppb <= bound.bound_ppm * 1000 for row in bounds)


def tree(folder: Path = ADDER) -> Tree:
    files = (SourceFile.of(path.name, path.read_bytes()) for path in sorted(folder.iterdir()) if path.is_file())
    return Tree("adder", tuple(files))


@pytest.fixture(scope="module")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tree(), tmp_path_factory.mktemp("candidate"))


@pytest.mark.parametrize("check", SUBJECT.checks, ids=lambda check: check.id)
def test_every_check_is_green_on_the_adder(candidate: Copy, check: Check) -> None:
    """In its full form, the artifact standing for its own baseline."""
    assert candidate.is_green(check, teeth=False)


@pytest.mark.parametrize("mutant", SUBJECT.mutants, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_by_the_checks_that_it_names(candidate: Copy, tmp_path: Path, mutant: Mutant) -> None:
    """Red where it must be caught, in the teeth form; green elsewhere if it says `only`, or is neutral."""
    fault = Copy(Tree("adder", build.mutate(tree().files, mutant)), tmp_path, candidate.artifact)
    assert (fault.artifact.read_bytes() != candidate.artifact.read_bytes()) == (mutant.file == "adder.c")
    asked = [check for check in SUBJECT.checks if check.id in mutant.caught_by or mutant.neutral or mutant.only]
    with ThreadPoolExecutor(2) as pool:
        green = tuple(pool.map(lambda check: fault.is_green(check, teeth=True), asked))
    assert {check.id for check, passed in zip(asked, green, strict=True) if not passed} == set(mutant.caught_by)


def test_the_bench_leaves_what_pytest_benchmark_would(candidate: Copy) -> None:
    """Case, rounds and a median in seconds that is a positive number."""
    out, done = candidate.run(SUBJECT.benches[0].command, "bench")
    (row,) = json.loads((out / "bench.json").read_text())["benchmarks"]
    assert done.code == 0
    assert row["name"] == "sum[8x2048]"
    assert row["stats"]["rounds"] == 101
    assert 0 < row["stats"]["median"] < 1


def test_dumps_say_what_lies_where_and_what_they_were_made_from(candidate: Copy) -> None:
    """layout.json and inputs.json stand beside the dumps and are read by the pipeline's own reader."""
    argv = ("{python}", "adder/run.py", "dump", "--artifact", "{candidate}", "--ops", "sum,scale", "--factor", "2")
    out, done = candidate.run((*argv, "--seed", "1", "--rows", "2", "--width", "3", "--out", "{out}"), "layout")
    assert done.code == 0
    assert sorted(layout.read(out)) == ["scale.f32", "sum.f32", "totals.f32"]
    assert not outputs.not_finite(out, layout.read(out))
    (row,) = json.loads((out / "inputs.json").read_text())
    assert (row["name"], row["origin"], len(row["digest"])) == ("x", "seed 1, 2 rows of 3", 64)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_adder_of_each_block_builds_and_refuses_what_came_later(tmp_path: Path, block: str) -> None:
    """An old artifact under new tools refuses an entry that it lacks; it does not fail to open."""
    write(tmp_path / "adder", block)
    old = Copy(tree(tmp_path / "adder"), tmp_path / "work")
    assert all(old.is_green(check, teeth=True) for check in SUBJECT.checks_at("cpu-x86_64", block))
    argv = ("{python}", "adder/run.py", "dump", "--artifact", "{candidate}", "--ops", "clip", "--limit", "1")
    _, done = old.run((*argv, "--file", "{input:sample}", "--out", "{out}"), "later")
    assert done.code == (0 if block == "clip" else SUBJECT.refusal_code)
    assert ("refused: entry" in done.tail) == (block != "clip")
