"""performance.py: figures with a place as tables of markdown, in units that suit them, and no other figure."""

from __future__ import annotations

from pipeline import performance
from pipeline.claims import Figure
from pipeline.subject import Figure as Command
from tests import drawn

PLAN = drawn.plan(figures=(Command("device", ("{python}", "tool.py", "figures", "{out}"), "one", ("cpu",)),))


def figure(name: str, unit: str, value: int, low: int | None = None, high: int | None = None, n: int = 1) -> Figure:
    return Figure(name=name, unit=unit, value=value, n=n, low=low, high=high)


def test_a_topic_is_a_table_of_rows_and_columns() -> None:
    """In the order in which they were left, with n; a place without a figure is an empty cell."""
    figures = (
        figure(
            "copy: on the device, read and written", "bytes/s", 4_264_467_822_136, 4_245_314_102_259, 4_268 * 10**9, 20
        ),
        figure("step: M 1, streamed", "ns", 25_825_537, 25_758_368, 25_849_600, 9),
        figure("step: M 1, graph", "ns", 8_912_345, 8_900_000, 9_000_000, 9),
        figure("add registers", "registers a thread", 9),
        figure("step: M 8, graph", "ns", 12_000_000, n=7),
        figure("gemv_q4 17408x5120 R1 M2", "ns", 20_000),
    )
    text = performance.section(drawn.result(sequence=5, figures=figures), PLAN)
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert tables == [
        [
            "| copy (n = 20) | read and written |",
            "| --- | --: |",
            "| on the device | 4.264 TB/s (4.245 .. 4.268) |",
        ],
        [
            "| step (n = 7, 9) | streamed | graph |",
            "| --- | --: | --: |",
            "| M 1 | 25.83 ms (25.76 .. 25.85) | 8.912 ms (8.9 .. 9) |",
            "| M 8 |  | 12 ms |",
        ],
    ]
    assert "registers" not in text and "gemv_q4" not in text


def test_the_head_says_what_ran_and_on_what() -> None:
    """Record, command, machine with all its versions, artifact, compiler."""
    record = drawn.result(sequence=5, figures=(figure("a: b, c", "ns", 1),), machine={"gpu": "H200", "cupy": "14.2.0"})
    head = performance.section(record, PLAN).split("| a (n = 1)")[0]
    for part in (
        "Record 5, two on cpu",
        "`{python} tool.py figures {out}`",
        "cupy 14.2.0; gpu H200",
        drawn.AFTER,
        "cc 1.0",
    ):
        assert part in head, part


def test_units_suit_their_numbers() -> None:
    """The largest of which there is one; ppm as percent; a unit without scales as it is."""
    cells = {
        ("ns", 0): "0 ns",
        ("ns", 999): "999 ns",
        ("ns", 1_500): "1.5 µs",
        ("ns", 2_000_000_000): "2 s",
        ("bytes", 14_414_315_520): "14.41 GB",
        ("ppm", 391_234): "39.12 %",
        ("ppm", 9): "0.0009 %",
        ("launches", 12_345): "12,345 launches",
    }
    for (unit, value), cell in cells.items():
        text = performance.section(drawn.result(figures=(figure("a: b, c", unit, value),)), PLAN)
        assert text.endswith(f"| b | {cell} |")


def test_a_record_without_such_figures_has_no_section() -> None:
    """Nor has one without any."""
    assert performance.section(drawn.result(), PLAN) == performance.section(drawn.result(figures=()), PLAN) == ""
