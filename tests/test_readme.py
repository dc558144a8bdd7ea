"""What README.md quotes of the ledger is what the ledger says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline import derive, performance
from pipeline.house import House
from pipeline.ledger import Ledger
from pipeline.records import Result

TOP = Path(__file__).parent.parent
TEXT = (TOP / "README.md").read_text()
ROW = re.compile(
    r"^\| (?P<block>(?!block)[a-z0-9-]+) \| [^|]+ \| (?P<cpu>[^|]+#\d+) \| (?P<cuda>[^|]+) \|[^|]*\|$", re.M
)
PERFORMANCE = re.compile(r"^<!-- performance -->\n(?P<text>.*?)<!-- end of performance -->$", re.M | re.S)
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


def test_the_performance_section_is_the_newest_landing_s() -> None:
    """What show --performance prints of the newest landed record that has such figures; nothing before there is one."""
    house = House(folder=TOP / "kernels", root=TOP)
    landed = [r for r in house.ledger.read() if isinstance(r, Result) and r.verdict == "landed" and r.figures]
    sections = (performance.section(record, derive.read_plan(house, record)) for record in reversed(landed))
    wanted = next(filter(None, sections), "")
    (found,) = PERFORMANCE.finditer(TEXT)
    assert found["text"].strip() == wanted
