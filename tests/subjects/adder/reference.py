"""The slow truth of adder.c in float64, one line a block. It imports nothing of what it judges."""

from __future__ import annotations


def sums(x: list[list[float]]) -> list[list[float]]:
    """Running totals over rows; x is [rows][width]."""
    return [[sum(row[i] for row in x[: r + 1]) for i in range(len(x[0]))] for r in range(len(x))]


def scaled(x: list[list[float]], factor: float) -> list[list[float]]:
    """Every element times the factor."""
    return [[value * factor for value in row] for row in x]


def clipped(x: list[list[float]], limit: float) -> list[list[float]]:
    """Every element, no further from zero than the limit."""
    return [[max(-limit, min(limit, value)) for value in row] for row in x]
