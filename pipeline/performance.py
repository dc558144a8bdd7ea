"""The performance section of a README, from one record: figures that are named for a place in a table. Pure.

A figure's name is `TOPIC: ROW, COLUMN`; one with any other name is left to `show`. Every number is the record's, in a
unit that suits it.
"""

from __future__ import annotations

import re
from typing import Final

from pipeline.claims import Figure
from pipeline.proof import Plan
from pipeline.records import Result

_PLACE: Final = re.compile(r"(?P<topic>[^:,]+): (?P<row>[^:,]+), (?P<column>[^:,]+)")
_DIGITS: Final = ".4g"  # of a scaled number
# unit of a record -> (how many of it, what they are called), the largest first
_SCALES: Final = {
    "ns": ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")),
    "bytes": ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B")),
    "bytes/s": ((10**12, "TB/s"), (10**9, "GB/s"), (10**6, "MB/s"), (1, "B/s")),
    "ppm": ((10_000, "%"),),
}


def section(record: Result, plan: Plan) -> str:
    """Markdown: what was run, on what, and a table a topic; nothing where no figure has a place in one.

    The commands are all that left figures by the record's plan.
    """
    tables: dict[str, dict[tuple[str, str], Figure]] = {}
    for figure in record.figures:
        if place := _PLACE.fullmatch(figure.name):
            tables.setdefault(place["topic"], {})[place["row"], place["column"]] = figure
    if not tables:
        return ""
    ran = ", ".join(f"`{' '.join(figure.command)}`" for figure in plan.figures)
    machine = "; ".join(f"{name} {value}" for name, value in sorted(record.machine.items()))
    tools = "; ".join(f"{tool.name} {tool.version}" for tool in record.build.toolchain)
    head = [
        f"Record {record.sequence}, {record.block} on {record.target}: medians of n samples, and the lowest and the "
        "highest of them.",
        f"- command: {ran}",
        f"- machine: {machine}",
        f"- artifact: `{record.artifact.sha256}`, compiled by {tools}",
    ]
    return "\n\n".join([head[0], "\n".join(head[1:]), *(_table(topic, cells) for topic, cells in tables.items())])


def _table(topic: str, cells: dict[tuple[str, str], Figure]) -> str:
    """Rows and columns in the order in which they were left; a place without a figure is empty."""
    rows, columns = (list(dict.fromkeys(place[i] for place in cells)) for i in range(2))
    counts = ", ".join(map(str, sorted({figure.n for figure in cells.values()})))
    lines = [[f"{topic} (n = {counts})", *columns], ["---", *("--:" for _ in columns)]]
    lines += [[row, *(_cell(cells.get((row, column))) for column in columns)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(figure: Figure | None) -> str:
    """Median and range in the largest unit of which the median has one."""
    if figure is None:
        return ""
    scales = _SCALES.get(figure.unit, ((1, figure.unit),))
    factor, unit = next((scale for scale in scales if scale[0] <= figure.value), scales[-1])
    value, low, high = (
        None if number is None else f"{number / factor:{_DIGITS}}" if figure.unit in _SCALES else f"{number:,}"
        for number in (figure.value, figure.low, figure.high)
    )
    return f"{value} {unit}" if low is None else f"{value} {unit} ({low} .. {high})"
