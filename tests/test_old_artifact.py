"""Artifacts of earlier blocks under the tools of this tree: what they give, what they lack, what is wrong about it."""

import hashlib
import json
from pathlib import Path

import pytest

from kernels import artifact
from kernels.engine.errors import KernelError
from kernels.tools import old_artifact

REPOSITORY = Path(__file__).parents[1]
RECORDED = REPOSITORY / "kernels" / "fixtures" / "m1.txt"


def promoted(block: str) -> tuple[Path, dict[str, str]]:
    """The newest artifact of a block on the CPU lane, and what its record says of its checks' listings."""
    records = [json.loads(path.read_text()) for path in sorted((REPOSITORY / "ledger").iterdir())]
    rows = [row for row in records if row["predicate"]["target"] == "cpu-x86_64"]
    made = [row for row in rows if "promote" in row["predicateType"] and row["predicate"]["block"] == block][-1]
    result = records[made["predicate"]["result"] - 1]["predicate"]
    digest = made["subject"][0]["digest"]["sha256"]
    return REPOSITORY / "baselines" / "archive" / digest, {
        check["id"]: check["outputs"]["sha256"] for check in result["checks"] if "outputs" in check
    }


@pytest.mark.parametrize("block", ["base", "a", "b", "c", "d"])
def test_the_recorded_digests_are_the_ledgers(block: str) -> None:
    """The files' digests of each check make up the listing that the block's record names."""
    _, outputs = promoted(block)
    for case in old_artifact.CASES:
        rows = [[row[1], row[2], int(row[3])] for row in old_artifact.recorded(RECORDED) if row[0] == case]
        listing = json.dumps(rows, separators=(",", ":")) + "\n"
        assert hashlib.sha256(listing.encode()).hexdigest() == outputs[case]


def test_the_cases_are_those_of_the_manifest() -> None:
    """What the dumps run is what landing.toml has the checks of these names run."""
    text = (REPOSITORY / "kernels" / "landing.toml").read_text()
    for case, command in old_artifact.CASES.items():
        side = text[text.index(f"[check.{case}]") :].split("\n")[3]
        assert ", ".join(f'"{word}"' for word in command.split()) in side


def test_the_first_artifact_gives_what_was_recorded(tmp_path: Path) -> None:
    """Opened by this tree it lacks nothing of its block, and its dumps are the recorded ones."""
    path, _ = promoted("base")
    cases = ["--cases", "m1-checkpoint"]
    assert old_artifact.main(["--recorded", str(RECORDED), "--of", "base", *cases, "--out", str(tmp_path / "a")]) == 0
    assert old_artifact.main(["--artifacts", f"base={path}", *cases, "--out", str(tmp_path / "b")]) == 0
    (left,) = (tmp_path / "b").iterdir()
    assert left.name == "base.txt"
    assert left.read_bytes() == (tmp_path / "a" / "base.txt").read_bytes() != b""


def test_what_is_lacked_is_lacked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of a later block is no fault of an earlier artifact, and one of its own block is."""
    opened = artifact.load(artifact.tree())
    later = artifact.Entry("levitate", since="d", required=False)
    monkeypatch.setattr(artifact, "ENTRIES", (artifact.Entry("forward", since="base", required=True), later))
    old_artifact.check_entries(opened, "c")
    with pytest.raises(KernelError, match="entry levitate, of block d: no-entry"):
        old_artifact.check_entries(opened, "d")
    with pytest.raises(KernelError, match="entry levitate, of block d: no-entry"):
        old_artifact.check_entries(opened, None)


def test_what_should_be_lacked_and_is_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An artifact that has what came later is not of that block."""
    opened = artifact.load(artifact.tree())
    monkeypatch.setattr(artifact, "ENTRIES", (artifact.Entry("forward", since="d", required=True),))
    with pytest.raises(KernelError, match="entry forward, of block d: found"):
        old_artifact.check_entries(opened, "a")
    with pytest.raises(KernelError, match=r"block z: is not in landing.toml"):
        old_artifact.check_entries(opened, "z")


@pytest.mark.parametrize("text", ["m2 logits.f32 00 1\n", "m1 logits.f32 00\n"])
def test_a_spoilt_list_is_refused(tmp_path: Path, text: str) -> None:
    """A row of an unknown check, or a word too few."""
    (tmp_path / "m1.txt").write_text(text)
    with pytest.raises(KernelError, match="is no list of check, file, sha256 and bytes"):
        old_artifact.recorded(tmp_path / "m1.txt")
