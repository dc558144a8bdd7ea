"""teeth.py: the whole matrix, in which a green neutral run is seen as well as a fault that was caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import teeth
from pipeline.errors import UsageError
from tests import landings


def test_the_matrix_shows_what_each_check_saw_of_each_mutant(tmp_path: Path) -> None:
    """Every cell has its sign: a neutral mutant is green under every check, and each of the others is caught."""
    where = landings.house(tmp_path, "sum")
    said: list[str] = []
    code, last = teeth.teeth(where, None, (), said.append)
    assert (code, last.partition(":")[0]) == (teeth.SHARP, "SHARP")
    head, *rows = (line.split() for line in said[0].splitlines())
    signs = {name: cells for name, *cells in rows}
    for mutant in where.subject.mutants_at(landings.TARGET, "sum"):
        assert len(signs[mutant.name]) == len(head) - 1
        assert set(signs[mutant.name]) == {"g"} if mutant.neutral else "x" in signs[mutant.name]


def test_a_row_of_the_matrix_is_a_mutants(tmp_path: Path) -> None:
    """A mutant that is named is tried alone, against every check; a name that is none is told with the nearest."""
    where = landings.house(tmp_path, "sum")
    name = next(m.name for m in where.subject.mutants_at(landings.TARGET, "sum") if not m.neutral)
    said: list[str] = []
    code, last = teeth.teeth(where, None, (name,), said.append)
    assert code == teeth.SHARP and last.startswith("SHARP: 1 mutants, 0 neutral")
    (_head, row) = said[0].splitlines()
    assert row.split()[0] == name and said[1:] == []
    with pytest.raises(UsageError, match=f"mutant {name}x: is none .* did you mean {name}"):
        teeth.teeth(where, None, (f"{name}x",), said.append)
