"""verify.py: what CI runs is red for every way in which tree, ledger, archive and views can disagree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import ledger, verify
from pipeline.claims import Tool
from pipeline.errors import (
    ArchiveError,
    BaselineMismatch,
    Busy,
    HistoryError,
    Inconclusive,
    IntegrityError,
    LandingError,
    ToolchainMoved,
)
from pipeline.house import House
from pipeline.records import Attempt, Result
from tests import faults, landings, scratch

COMMENT = "/* Block sum:", "/* The block named sum:"
FAULT = "totals[i] + x[r * width + i]", "totals[i] - x[r * width + i]"
LCG = "6364136223846793005", "6364136223846793007"  # of the inputs that run.py makes from a seed


@pytest.fixture
def where(tmp_path: Path) -> House:
    return landings.house(tmp_path, "scale")


def verified(where: House) -> list[str]:
    """What is said, and the last line."""
    said: list[str] = []
    return [*said, verify.verify(landings.at(where.root), said.append), *said]


def test_what_was_landed_is_verified(where: House) -> None:
    """The audit, a fresh build, the recorded dumps of every `same` check; and nothing is written."""
    before = landings.stored(where)
    last, *said = verified(where)
    assert last == "SOUND: 6 records, cpu-x86_64 stands at scale (record 6)"
    artifact = where.ledger.read()[5].artifact.sha256
    assert any(line.startswith(f"build     cpu-x86_64: {artifact}, as promoted") for line in said)
    dumps = [line for line in said if line.startswith("dumps ")]
    assert dumps == ["dumps     twice: 2 files, as recorded", "dumps     rows: 16 files, as recorded"]
    assert landings.stored(where) == before


def test_a_ledger_that_never_held_a_record_is_sound(tmp_path: Path) -> None:
    """Unless something stands in baselines without one."""
    where = landings.house(tmp_path, None)
    assert verified(where)[0] == "SOUND: nothing landed yet"


def test_a_tree_that_builds_to_the_same_bytes_is_sound(where: House) -> None:
    """A comment changes the source and not the artifact; so does a dirty tree."""
    landings.edit(where, *COMMENT)
    assert verified(where)[0].startswith("SOUND")


def flip_object(where: House) -> None:
    artifact = where.ledger.read()[5].artifact.sha256
    faults.flip(where.baselines.path_of(artifact), 100)


def flip_view(where: House) -> None:
    faults.flip(next(where.baselines.view("current", landings.TARGET).iterdir()), 100)


def no_view(where: House) -> None:
    next(where.baselines.view("previous", landings.TARGET).iterdir()).unlink()


def rewrite(where: House) -> None:
    path = where.ledger.path(1)
    path.write_bytes(path.read_bytes().replace(b"running", b"walking"))


def remove_object(where: House) -> None:
    plan = where.ledger.read()[0].plan.sha256  # type: ignore[attr-defined]
    where.baselines.path_of(plan).unlink()
    scratch.commit(where.root, "make room")


RED: dict[str, tuple[Callable[[House], Any], type[LandingError], str]] = {
    "another artifact": (
        lambda where: landings.edit(where, *FAULT),
        BaselineMismatch,
        "the tree builds to [0-9a-f]{64}, promoted was [0-9a-f]{64}; land the change, or take it back",
    ),
    "other dumps": (
        lambda where: landings.edit(where, *LCG, file="run.py"),
        IntegrityError,
        "dumps of check rows: are [0-9a-f]{64}, recorded were [0-9a-f]{64}; land what changed them",
    ),
    "no dump to make again": (
        lambda where: (where.folder / "landing.toml").write_text(
            (where.folder / "landing.toml")
            .read_text()
            .replace('"--seed", "1"', '"--seed", "9"')
            .replace('"--ops", "sum", "--file"', '"--ops", "scale", "--factor", "1", "--file"')
        ),
        Inconclusive,
        "no recorded dump can be made again",
    ),
    "a bit of the archive": (flip_object, ArchiveError, "holds [0-9a-f]{64}, not [0-9a-f]{64}"),
    "a bit of the view": (flip_view, BaselineMismatch, "adder.so: is [0-9a-f]{64}, promoted was [0-9a-f]{64}"),
    "a view that is gone": (no_view, BaselineMismatch, "is missing, promoted was [0-9a-f]{64}"),
    "a record": (rewrite, IntegrityError, "000002.json: does not follow record 1"),
    "an object that a commit removed": (
        remove_object,
        (ArchiveError, HistoryError),
        "is missing|was removed by commit",
    ),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", RED)
def test_what_does_not_agree_is_red(where: House, name: str) -> None:
    """Exit code 3, or 5 where nothing can be shown; the line says what disagrees."""
    plant, error, says = RED[name]
    plant(where)
    with pytest.raises(error, match=says) as caught:
        verified(where)
    assert caught.value.exit_code == (5 if error is Inconclusive else 3)


def test_another_artifact_by_another_compiler_is_a_moved_toolchain(where: House) -> None:
    """Exit code 4, with the versions: a compiler's change is not blamed on the tree."""
    book = []
    for row in where.ledger.read():
        if isinstance(row, (Attempt, Result)):
            tools = (Tool(name="ziglang", version="0.0.1", digest="0" * 64),)
            row = dataclasses.replace(row, build=dataclasses.replace(row.build, toolchain=tools))
        book.append(row)
    landings.rewrite(where, book)
    scratch.git(where.root, "checkout", "-q", "--orphan", "compiler")
    landings.edit(where, *FAULT)
    scratch.commit(where.root, "anew")
    with pytest.raises(ToolchainMoved, match=r"moved: ziglang 0\.0\.1 -> ") as caught:
        verified(where)
    assert caught.value.exit_code == 4


def test_a_landing_in_progress_is_not_verified(where: House) -> None:
    """Exit code 6: what is half done would look broken."""
    with ledger.lock(where.root, "land clip"), pytest.raises(Busy, match="land clip"):
        verified(where)
