"""Proof carried to another machine and back: kits, several blocks in one, what evidence is refused, what is void.

No machine of these tests has a GPU, so evidence that names one is made by hand here: who writes all of it anew is not
found out by digests, and the README says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import walks
from tests.walks import Ended, Scene

LAND = ("land", "--subject", "adder", "--target", "lab")


@pytest.fixture
def lab(tmp_path: Path) -> Scene:
    """The adder with a second target that needs a GPU; nothing has landed."""
    scene = walks.fresh().copy(tmp_path)
    manifest = scene.adder / "landing.toml"
    text = manifest.read_text()
    target = text[text.index("[target.cpu-x86_64]") : text.index("[block.sum]")]
    second = target.replace("cpu-x86_64]", "lab]").replace("artifact =", 'needs = "gpu"\nartifact =', 1)
    manifest.write_text(text.replace("[block.sum]", second + "[block.sum]", 1))
    scene.commit("a second target")
    return scene


def waiting(scene: Scene, *blocks: str) -> Path:
    """The kit of some blocks in a row, each landed from a commit of its own."""
    for block in blocks:
        scene.edit("adder.c", "#define ROWS_MAX 8", f"#define ROWS_MAX 8  // {block}")
        scene.commit(block)
        scene.edit("adder.c", f"#define ROWS_MAX 8  // {block}", "#define ROWS_MAX 8")
        done = scene.run(
            *LAND[:1], block, *LAND[1:], *(("--kit", "kit") if block == blocks[-1] else ()), "--at", "HEAD"
        )
        assert done.code == 7 and "needs a gpu, which is not here" in done.err, done
        scene.commit(f"records of {block}")
    return scene.root / "kit"


def proved(scene: Scene, kit: Path, edit: Callable[[Any], None] = lambda evidence: None) -> Ended:
    """The kit is proved here, its evidence edited, and carried back."""
    out = scene.home / "evidence.json"
    assert scene.run("prove", str(kit), "--out", str(out)).code == 0
    told = json.loads(out.read_text())
    for one in told["evidence"]:
        one["machine"]["gpu"] = "a card"
    edit(told["evidence"])
    out.write_text(json.dumps(told, sort_keys=True, separators=(",", ":")) + "\n")
    return scene.run(*LAND, "--evidence", str(out))


def test_blocks_in_a_row_are_carried_in_one_kit_and_judged_in_order(lab: Scene) -> None:
    """Each attempt's baseline is the one before; all land from one file of evidence, and the audit agrees."""
    done = proved(lab, waiting(lab, "sum", "scale"))
    assert done.code == 0 and done.last == "LANDED: scale on lab: record 5", done
    assert [line.split()[:4] for line in lab.run("log", "--subject", "adder").out.splitlines()[1:]] == [
        ["1", "attempt", "lab", "sum"],
        ["2", "attempt", "lab", "scale"],
        ["3", "result", "lab", "sum"],
        ["4", "promote", "lab", "sum"],
        ["5", "result", "lab", "scale"],
        ["6", "promote", "lab", "scale"],
    ]
    lab.commit("records")
    assert lab.run("audit", "--deep", "--subject", "adder").code == 0


def test_a_lane_may_lag_behind_what_another_landed_and_behind_nothing_else(lab: Scene) -> None:
    """An edit that moves no byte of one lane is red for the lane whose bytes it moves, until it is landed."""
    manifest = lab.adder / "landing.toml"
    head, tail = manifest.read_text().split("[target.lab]", 1)
    manifest.write_text(head + "[target.lab]" + tail.replace('"-shared"', '"-DLAB", "-shared"', 1))
    lab.commit("a lane with a text of its own")
    for block in ("sum", "scale", "clip"):
        assert lab.run("land", block, "--subject", "adder").code == 0
        lab.commit(f"records of {block}")
    assert proved(lab, waiting(lab, "sum")).code == 0
    lab.commit("records of sum in the lab")
    verify = ("verify", "--subject", "adder")
    assert lab.run(*verify).code == 0
    lab.edit("adder.c", "#define ROWS_MAX 8", "#define ROWS_MAX 8\n#ifdef LAB\nint lab_only = 1;\n#endif")
    for _ in ("dirty", "committed"):
        for command in (verify, ("land", "--subject", "adder")):
            done = lab.run(*command)
            assert done.code == 3 and "adder for lab: the tree builds to" in done.err, done
        lab.commit("only the lab sees it")
    assert lab.run("land", "--at", "HEAD~2", "--subject", "adder").code == 0
    lab.edit("adder.c", "int lab_only = 1;", "int lab_only = 0;")
    assert lab.run("land", "--at", "HEAD", "--subject", "adder").code == 3
    lab.edit("adder.c", "int lab_only = 0;", "int lab_only = 1;")
    lab.edit("adder.c", "int lab_only = 1;", "int lab_only = 2;")
    lab.edit("adder.c", "#define ROWS_MAX 8", "#define ROWS_MAX 8\n#ifndef LAB\nint all_but_lab = 1;\n#endif")
    lab.commit("both lanes see it")
    assert lab.run("land", "clip", "--subject", "adder").code == 0
    lab.commit("records of clip again")
    done = lab.run(*verify)
    assert done.code == 0 and "lab lags behind the tree" in done.out, done


def test_what_needs_a_gpu_is_not_tried_without_one(lab: Scene) -> None:
    """A dry run, one check, a matrix: exit code 7, and no command of the manifest but the build was run."""
    for command in ((*LAND, "--dry-run"), (*LAND, "--check", "twice"), ("teeth", *LAND[1:])):
        done = lab.run(*command)
        assert done.code == 7 and "needs a gpu, which is not here" in done.err, done
    assert not [line for line in lab.ran() if " dump " in line]


OLDER = """
[check.older]
since = "scale"
verb = "same"
sides = [["{python}", "adder/run.py", "dump", "--artifact", "{candidate}", "--ops", "sum", "--seed", "1",
          "--rows", "2", "--width", "3", "--out", "{out}"],
         ["{python}", "adder/run.py", "dump", "--artifact", "{archive:sum}", "--ops", "sum", "--seed", "1",
          "--rows", "2", "--width", "3", "--out", "{out}"]]
"""


def test_an_artifact_that_waits_in_the_kit_is_an_earlier_one(lab: Scene) -> None:
    """{archive:BLOCK} of a block that is carried in the same kit is its attempt's artifact, promoted before."""
    lab.edit("landing.toml", 'caught_by = ["twice"]', 'caught_by = ["twice", "older"]')
    lab.edit("landing.toml", "[check.twice]", OLDER + "\n[check.twice]")
    lab.commit("a check that opens the archive")
    done = proved(lab, waiting(lab, "sum", "scale"))
    assert done.code == 0 and done.last == "LANDED: scale on lab: record 5", done
    promoted, result = (json.loads(lab.records()[f"00000{n}.json"]) for n in (4, 5))
    (older,) = [check for check in result["predicate"]["checks"] if check["id"] == "older"]
    opened = {row["name"]: row["digest"] for row in older["inputs"]}
    assert opened["{archive:sum}"] == promoted["subject"][0]["digest"]["sha256"]


def test_a_block_that_fails_voids_those_behind_it(lab: Scene) -> None:
    """The first is refused with its reason, the second is void and counts; nothing is current."""

    def differ(evidence: Any) -> None:
        job = next(job for job in evidence[0]["jobs"] if job["id"] == "twice")
        job["sides"][1]["code"] = 3

    done = proved(lab, waiting(lab, "sum", "scale"), differ)
    assert done.code == 1 and done.last == "REFUSED: sum on lab: record 3", done
    assert json.loads(lab.records()["000004.json"])["predicateType"] == "urn:kestrel:landing:void:v1"
    assert not (lab.baselines / "current").exists()


def test_a_kit_is_small_and_the_same_each_time(lab: Scene) -> None:
    """Asked for again, the same attempts give the same bytes."""
    kit = waiting(lab, "sum")
    again = lab.run(*LAND, "--at", "HEAD~1", "--kit", "again")
    assert again.code == 7
    for name in ("kit.json", "objects.tar.xz"):
        assert (kit / name).read_bytes() == (lab.root / "again" / name).read_bytes()
    assert (kit / "objects.tar.xz").stat().st_size < 64 << 10


REFUSED: dict[str, tuple[Callable[[Any], None], str]] = {
    "no gpu": (lambda evidence: evidence[0]["machine"].pop("gpu"), "the machine of the evidence names none"),
    "another plan": (lambda evidence: evidence[0].update(plan="0" * 64), "answers another plan"),
    "a job less": (lambda evidence: evidence[0]["jobs"].pop(), "does not hold exactly the jobs of the plan"),
    "other artifacts": (
        lambda evidence: [i.update(digest="1" * 64) for i in evidence[0]["jobs"][0]["sides"][0]["inputs"]],
        "",
    ),
    "a contradiction": (
        lambda evidence: evidence[0]["jobs"][0]["sides"][1]["files"][0].update(sha256="2" * 64),
        "contradict",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_evidence_that_does_not_answer_is_refused_by_name(lab: Scene, name: str) -> None:
    """Exit code 3, nothing is recorded, and the same attempt still takes good evidence."""
    edit, says = REFUSED[name]
    kit = waiting(lab, "sum")
    before = lab.records()
    done = proved(lab, kit, edit)
    assert done.code == 3 and done.err.startswith("EvidenceError: ") and says in done.err, done
    assert lab.records() == before
    (lab.home / "evidence.json").unlink()
    assert proved(lab, kit).code == 0
