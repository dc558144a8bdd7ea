"""Sources to artifacts: the baseline again, the candidate twice, mutants. Builds in copies alone."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pipeline import build, claims, commands, manifest
from pipeline.build import Built
from pipeline.claims import Artifact, Pinned
from pipeline.errors import BuildError, ManifestError, ToolchainMoved
from pipeline.house import House, Say
from pipeline.progress import track
from pipeline.records import Result
from pipeline.source import Source
from pipeline.subject import Mutant, Target, matches
from pipeline.tree import SourceFile, copy_out, untar


def build_baseline(house: House, target: Target, before: Result, room: Path, say: Say) -> None:
    """Today's toolchain gives the recorded baseline from its source, so a difference is the candidate's own."""
    again = rebuild(house, before, room)
    if target.reproducible == "bytes" and again.sha256 != before.artifact.sha256:
        raise toolchain_moved(before, again)
    say(f"build     baseline from its archived source: {again.sha256} ({again.seconds_ms / 1000:.1f} s)")


def build_candidate(house: House, target: Target, taken: Source, room: Path, say: Say, *, live: bool) -> Built:
    """The candidate, built twice in two folders; `live` sources are hashed again afterwards."""
    twice = build.build_twice(house.subject, target, taken, room)
    if live:
        again = house.repository.collect(house.folder, house.subject, target=target)
        if again.files != taken.files:
            changed = sorted({file.path for file in {*again.files} ^ {*taken.files}})
            raise BuildError(
                f"{house.subject.folder}/{changed[0]}", "changed during the build", "land again, and edit later"
            )
    made = twice.first
    seconds = (made.seconds_ms + twice.second.seconds_ms) / 1000
    say(f"build     candidate twice: {made.sha256}, {made.bytes:,} bytes ({seconds:.1f} s)")
    return made


def build_once(house: House, target: Target, taken: Source, room: Path) -> Built:
    """The tree's artifact, built in a copy."""
    copy_out(taken, room / "source")
    return build.build(house.subject, target, room / "source", room / "out")


def pin(house: House, taken: Source, room: Path, say: Say) -> tuple[Pinned, ...] | None:
    """The tree's artifact for every target that is never proved, by digest; None where the manifest has no such."""
    targets = [other for other in house.subject.targets if not other.proved]
    made = []
    with commands.threads(os.cpu_count() or 1) as pool:
        found = tuple(pool.map(lambda target: build_once(house, target, taken, room / target.name), targets))
    for target, built in zip(targets, found, strict=True):
        name = Artifact(name=target.artifact, sha256=built.sha256)
        row = build_row(built, target)
        made.append(Pinned(target=target.name, artifact=name, bytes=built.bytes, build=row))
        say(f"build     {target.name}, pinned and not proved: {built.sha256} ({built.seconds_ms / 1000:.1f} s)")
    return tuple(made) or None


def build_row(built: Built, target: Target) -> claims.Build:
    """What a record says of a build."""
    return claims.Build(argv=(built.argv,), toolchain=built.toolchain, reproducible=target.reproducible)


def rebuild(house: House, result: Result, room: Path) -> Built:
    """An artifact built again from its archived source, by the manifest in it. Its digest is the caller's to judge."""
    archive = result.source.archive
    assert archive is not None
    kept = untar(house.baselines.fetch(archive.sha256), house.baselines.fetch)
    shutil.rmtree(room, ignore_errors=True)
    copy = copy_out(kept, room / "source")
    subject = manifest.load(copy)
    return build.build(subject, subject.target(result.target), room / "source", room / "out")


def moved_tools(result: Result, made: Built) -> tuple[str, ...]:
    """Tools whose bytes are not the recorded ones, each with both versions."""
    was = {tool.name: (tool.version, tool.digest) for tool in result.build.toolchain}
    return tuple(
        f"{tool.name} {was.get(tool.name, ('none', ''))[0]} -> {tool.version}"
        for tool in made.toolchain
        if was.get(tool.name) != (tool.version, tool.digest)
    )


def toolchain_moved(result: Result, made: Built) -> ToolchainMoved:
    """The error for a recorded source that no longer builds to its recorded artifact."""
    moved = moved_tools(result, made)
    return ToolchainMoved(
        f"{result.target} record {result.sequence}",
        f"its source now builds to {made.sha256}, recorded was {result.artifact.sha256}"
        + (f"; moved: {', '.join(moved)}" if moved else "; no tool that it names has moved"),
        "use the recorded toolchain, or land the move alone with --toolchain",
    )


def build_mutants(
    house: House, target: Target, taken: Source, built: Built, mutants: Sequence[Mutant], room: Path
) -> list[tuple[tuple[SourceFile, ...], Built | str]]:
    """Each mutant's files, and its artifact or why it was not planted: a fault in the tree may stand in its way.

    Their builds share a cache, which no other build sees: most of them compile what another one compiled.
    """

    def make(mutant: Mutant) -> tuple[tuple[SourceFile, ...], Built | str]:
        try:
            files = build.mutate(taken.files, mutant)
        except ManifestError as error:
            return (), error.what
        if not matches(mutant.file, house.subject.sources_of(target)):
            return files, built
        place = room / mutant.name
        copy_out(dataclasses.replace(taken, files=files), place / "source")
        try:
            made = build.build(house.subject, target, place / "source", place / "out", cache=cache)
        except BuildError as error:
            return files, f"does not build: {error.what}"
        return files, made if made.sha256 != built.sha256 else "its artifact equals the candidate's"

    cache = room / ".cache"
    cache.mkdir(parents=True, exist_ok=True)
    made = []
    with track("planting mutants", len(mutants)) as step, commands.threads(os.cpu_count() or 1) as pool:
        for mutant, got in zip(mutants, pool.map(make, mutants), strict=True):
            made.append(got)
            step(mutant.name)
    return made
