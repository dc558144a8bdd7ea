"""A target with `proved = false`: built from every landed source and pinned by digest, never promoted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pipeline import records
from pipeline.records import Attempt, Promote, Record, Result
from tests import drawn, landings, walks
from tests.walks import Ended, Scene

ARM = """[target.cpu-aarch64]
artifact = "adder.so"
build = ["{python}", "-m", "ziglang", "cc", "-shared", "-fPIC", "-O2", "-g0", "-s", "-nostdlib", "-ffp-contract=off",
         "-target", "aarch64-linux-gnu.2.17", "adder/adder.c", "-o", "{out}/adder.so"]
toolchain = ["ziglang"]
proved = false

"""
AARCH64 = 183  # e_machine


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """The adder at block sum with a second target that is built alone; nothing has landed."""
    made = walks.fresh().copy(tmp_path)
    made.edit("landing.toml", "[block.sum]\n", ARM + "[block.sum]\n")
    made.commit("a target that is built alone")
    return made


def run(scene: Scene, *argv: str) -> Ended:
    return scene.run(*argv, "--subject", "adder")


def book(scene: Scene) -> list[Record]:
    return [records.from_bytes(data) for _, data in sorted(scene.records().items())]


def test_a_landing_pins_what_the_other_target_gives_and_the_audit_builds_it_again(scene: Scene) -> None:
    """Attempt and result say the same of it, `show` prints it, and nothing of it is archived or current."""
    assert run(scene, "land").code == 0
    attempt, result, promote = book(scene)
    assert isinstance(attempt, Attempt) and isinstance(result, Result) and isinstance(promote, Promote)
    assert result.builds is not None and attempt.builds == result.builds
    (pin,) = result.builds
    assert (pin.target, pin.build.toolchain) == ("cpu-aarch64", result.build.toolchain)
    assert pin.artifact.sha256 != result.artifact.sha256
    assert not (scene.baselines / "archive" / pin.artifact.sha256).exists()
    assert [folder.name for folder in (scene.baselines / "current").iterdir()] == [result.target]
    assert pin.artifact.sha256 in run(scene, "show", "2").out
    scene.commit("landed")
    assert "2 of 2 artifacts rebuilt" in run(scene, "audit", "--deep").out


def test_nothing_lands_on_it(scene: Scene) -> None:
    """One line, exit code 2, and nothing is written."""
    ended = run(scene, "land", "--target", "cpu-aarch64")
    assert ended.code == 2
    assert "target cpu-aarch64: is built and pinned in the records of the others alone; land on cpu-x86_64" in ended.err
    assert scene.records() == {}


@pytest.mark.parametrize(
    ("builds", "argv", "says"),
    [
        (None, (), "what it says of its pinned builds is not what its archived source gives"),
        ("0" * 64, ("--deep",), "its source now builds to"),
    ],
)
def test_a_pin_left_out_or_altered_is_found(scene: Scene, builds: str | None, argv: tuple[str, ...], says: str) -> None:
    """Left out: by its manifest. Another digest: by building it again, since no artifact of it is kept."""
    assert run(scene, "land").code == 0
    told = []
    for row in book(scene):
        if isinstance(row, (Attempt, Result)):
            (pin,) = row.builds or ()
            other = dataclasses.replace(pin, artifact=dataclasses.replace(pin.artifact, sha256=builds or "1" * 64))
            row = dataclasses.replace(row, builds=(other,) if builds else None)
        told.append(row)
    landings.rewrite(landings.at(scene.root), told)
    scene.commit("landed, and told otherwise")
    ended = run(scene, "audit", *argv)
    assert ended.code in (3, 4)
    assert says in ended.err


def test_a_record_with_a_pin_comes_back_from_its_bytes() -> None:
    """Of both kinds that hold one."""
    for made in (drawn.attempt(), drawn.result()):
        assert made.builds == (drawn.pinned(),)
        assert records.from_bytes(records.to_bytes(made)) == made
