"""compare.py: any two artifacts side by side; what lies between them is said before anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import compare
from pipeline.errors import BaselineMismatch, IntegrityError, LandingError, UsageError
from pipeline.house import House
from tests import drawn, faults, landings, scratch, walks

FAULT = "totals[i] + x[r * width + i]", "totals[i] - x[r * width + i]"
NEUTRAL = "#define ROWS_MAX 8", '#define ROWS_MAX 8\nconst char adder_edition[] = "neutral";'
SLOW = (
    "int sum(float *totals, const float *x, float *out, int rows, int width) {\n",
    "int sum(float *totals, const float *x, float *out, int rows, int width) {\n"
    "    for (volatile int pause = 0; pause < 40000; pause++) {}\n",
)  # the same sums, several times as slow


@pytest.fixture
def where(tmp_path: Path) -> House:
    return landings.house(tmp_path, "clip")


def compared(where: House, a: str = "current", b: str = "work") -> tuple[int, str, list[str]]:
    """Exit code, last line, and what was said before it."""
    said: list[str] = []
    code, last = compare.compare(landings.at(where.root), a, b, None, said.append)
    return code, last, "\n".join(said).splitlines()


def span(said: list[str]) -> str:
    """The line that says what lies between A and B."""
    return [line for line in said if line.startswith("compare ")][2].removeprefix("compare   ")


def digests(where: House) -> list[str]:
    """Of the artifacts of sum, scale and clip."""
    return [where.ledger.read()[i].artifact.sha256 for i in (2, 5, 8)]


def test_the_tree_as_it_landed_is_the_same_bytes(where: House) -> None:
    """Nothing is timed, and nothing is written; both digests are printed."""
    before = landings.stored(where)
    code, last, said = compared(where)
    assert (code, last) == (0, "SAME: the same bytes")
    assert span(said) == "no change: B is A, byte for byte"
    artifact = digests(where)[2]
    assert [f"compare   A current {artifact}", f"compare   B work {artifact}"] == said[1:3]
    assert not [line for line in said if "step:" in line]
    assert landings.stored(where) == before


def test_other_bytes_with_the_same_dumps_are_the_same_and_timed(where: House) -> None:
    """Checks, sizes by section, and a timing sentence with its A/A control."""
    landings.edit(where, *NEUTRAL)
    code, last, said = compared(where)
    assert (code, last) == (0, "SAME: other bytes, the same dumps")
    assert span(said) == "one block: the tree"
    table = {line.split()[0]: line.split()[1:3] for line in said if line.startswith(("twice", "rows"))}
    assert table == {name: ["same", "green"] for name in ("twice", "rows", "rows#2")}
    assert [line for line in said if ".rodata" in line]
    (timed,) = [line for line in said if "step:" in line]
    assert "one-sided p = " in timed and "A/A control" in timed


def test_other_dumps_are_different(where: House) -> None:
    """Exit code 1; each check is named, and the first differing element located. A tree need not be committed."""
    landings.edit(where, *FAULT)
    code, last, said = compared(where)
    assert code == 1
    assert last == "DIFFERENT: twice, rows, rows#2, baseline"
    (row,) = [line for line in said if line.startswith("rows ")]
    assert "red" in row and "M1/" in row and "ulp" in row


def test_a_slower_tree_is_different(where: House) -> None:
    """The same dumps, and a confirmed regression."""
    landings.edit(where, *SLOW)
    code, last, said = compared(where)
    assert (code, last) == (1, "DIFFERENT: step:sum[8x2048]")
    assert any("regression: " in line and "; a confirmed regression; A/A control" in line for line in said)


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ("previous", "current", "one block: clip"),
        ("#3", "#6", "one block: scale"),
        ("#2", "#6", "one block: scale"),
        ("#3", "current", "cumulative: scale+clip"),
        ("#3", "work", "cumulative: scale+clip+the tree"),
        ("current", "previous", "no block: B is not later than A"),
        ("current", "#9", "no change: B is A, byte for byte"),
    ],
)
def test_what_lies_between_is_said(where: House, a: str, b: str, says: str) -> None:
    """So that two blocks are not taken for one: A must be B's parent for that."""
    if b == "work":
        landings.edit(where, *FAULT)
    _, _, said = _untimed(where, a, b)
    assert span(said) == says


def _untimed(where: House, a: str, b: str) -> tuple[int, str, list[str]]:
    """The same without the bench, which these tests are not about."""
    path = where.folder / "landing.toml"
    path.write_text(path.read_text().split("[bench.step]")[0])
    return compared(where, a, b)


def test_every_operand_is_an_artifact(where: House) -> None:
    """A digest, a record's number and a file are the same operand where they are the same bytes."""
    first, second, third = digests(where)
    path = where.root / "kept.so"
    path.write_bytes(where.baselines.fetch(second))
    scratch.commit(where.root, "keep one")
    for a, b, wanted in (
        (first, second, (first, second)),
        ("#6", "current", (second, third)),
        (str(path), "current", (second, third)),
        ("previous", second, (second, second)),
    ):
        _, last, said = _untimed(where, a, b)
        assert [line.split()[-1] for line in said if line.startswith(("compare   A", "compare   B"))] == [*wanted]
        assert last == ("SAME: the same bytes" if a == "previous" else "SAME: other bytes, the same dumps")
    path.write_bytes(where.baselines.fetch(second) + b"built elsewhere")
    assert span(_untimed(where, str(path), "current")[2]) == "operands outside the ledger: whatever lies between them"


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("#0", UsageError, "#0: the ledger has 9 records; name one of them"),
        ("#10", UsageError, "#10: the ledger has 9 records"),
        ("#x", UsageError, "#x: the ledger has 9 records"),
        ("latest", UsageError, "name current, previous, work, #RECORD, a digest or a file"),
        ("", UsageError, "name current, previous, work, #RECORD, a digest or a file"),
        ("adder", UsageError, "is a folder|is no such file"),
        ("0" * 64, UsageError, "its artifact is not archived: it did not land"),
    ],
)
def test_what_is_no_operand_is_refused(where: House, name: str, error: type[LandingError], says: str) -> None:
    """By one line, before anything is built or run."""
    for pair in ((name, "current"), ("current", name)):
        said: list[str] = []
        with pytest.raises(error, match=says):
            compare.compare(landings.at(where.root), *pair, None, said.append)
        assert said == []


def test_a_target_without_a_landing_has_no_current(tmp_path: Path) -> None:
    """Exit code 2, and what to do."""
    where = landings.house(tmp_path, None)
    for name in ("current", "previous"):
        with pytest.raises(UsageError, match="has none yet; land a block first"):
            compared(where, name, "work")


def test_operands_are_hashed_before_anything_runs(where: House) -> None:
    """A swapped view, or a bit of the archive: exit code 3 with the digests, and nothing is said to have been built."""
    said: list[str] = []
    current = next(where.baselines.view("current", landings.TARGET).iterdir())
    faults.flip(current)
    with pytest.raises(BaselineMismatch, match=r"is [0-9a-f]{64}, promoted was [0-9a-f]{64}"):
        compare.compare(landings.at(where.root), "current", "work", None, said.append)
    faults.flip(current)
    faults.flip(where.baselines.path_of(digests(where)[0]), 64)
    with pytest.raises(IntegrityError, match=digests(where)[0]):
        compare.compare(landings.at(where.root), "#3", "work", None, said.append)
    assert said == []


def test_every_side_that_dumps_the_candidate_is_compared() -> None:
    """A fault that only the second side meets is no SAME; a command that stands twice runs once."""
    one, two = ("run", "{candidate}", "{out}"), ("run", "--rows", "{candidate}", "{out}")
    against = ("run", "{candidate}", "{baseline}", "{out}")
    made = compare.canonical_dumps([drawn.check("rows", sides=(one, two, one, against)), drawn.check("twice")])
    assert [(check.id, check.sides) for check in made[:2]] == [
        ("rows", (("run", "{baseline}", "{out}"), one)),
        ("rows#2", (("run", "--rows", "{baseline}", "{out}"), two)),
    ]
    assert [check.id for check in made[2:]] == ["twice"]


def test_a_side_that_runs_the_tools_of_an_earlier_block_is_compared(tmp_path: Path) -> None:
    """They are carried into the proof, as in a landing."""
    scene = walks.landed().copy(tmp_path)
    dump = (
        ' "--artifact", "{candidate}", "--ops", "sum", "--seed", "1", "--rows", "2", "--width", "3", "--out", "{out}"]'
    )
    sides = [f'["{{python}}", "{tree}adder/run.py", "dump",{dump}' for tree in ("", "{tools:sum}/")]
    scene.edit("landing.toml", 'caught_by = ["twice"]', 'caught_by = ["twice", "older"]')
    scene.edit(
        "landing.toml", "[check.twice]", f'[check.older]\nverb = "same"\nsides = [{", ".join(sides)}]\n[check.twice]'
    )
    done = scene.run("compare", "current", "previous", "--subject", "adder")
    rows = [line.split()[:3] for line in done.out.splitlines() if line.startswith("older")]
    assert rows == [["older", "same", "green"], ["older#2", "same", "green"]], done
