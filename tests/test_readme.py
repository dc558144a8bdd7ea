"""What README.md quotes of the ledger is what the ledger says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.ledger import Ledger
from pipeline.records import Result

TOP = Path(__file__).parent.parent
TEXT = (TOP / "README.md").read_text()
ROW = re.compile(
    r"^\| (?P<block>(?!block)[a-z0-9]+) \| [^|]+ \| (?P<cpu>[^|]+#\d+) \| (?P<cuda>[^|]+) \|[^|]*\|$", re.M
)
CELL = re.compile(r"(?P<bytes>[\d,]+) \((?P<more>[+-][\d,]+|first)\) #(?P<record>\d+)")


@pytest.mark.parametrize("row", [*ROW.finditer(TEXT)], ids=lambda row: row["block"])
def test_a_row_of_the_trajectory_is_what_its_records_say(row: re.Match[str]) -> None:
    """Block, target, bytes and growth; a cell that is not a landing says that it waits."""
    book = Ledger(TOP / "ledger").read()
    for target in ("cpu", "cuda"):
        if row[target].strip() == "waits for a GPU":
            continue
        cell = CELL.fullmatch(row[target].strip())
        assert cell is not None, row[target]
        result = book[int(cell["record"]) - 1]
        assert isinstance(result, Result)
        assert (result.block, result.target.partition("-")[0], result.verdict) == (row["block"], target, "landed")
        before, after = result.sizes.artifact
        assert cell["bytes"] == f"{after:,}"
        assert cell["more"] == ("first" if before is None else f"{after - before:+,}")


def test_every_block_that_landed_has_its_row() -> None:
    """In the order in which they landed."""
    landed = [r.block for r in Ledger(TOP / "ledger").read() if isinstance(r, Result) and r.verdict == "landed"]
    assert [row["block"] for row in ROW.finditer(TEXT)] == list(dict.fromkeys(landed))
