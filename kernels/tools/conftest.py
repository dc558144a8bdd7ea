"""The option of the benchmark in this folder, which runs whatever the project's own settings skip."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option of the benchmarks here."""
    text = "the artifact to time; without it the build of this tree"
    parser.addoption("--artifact", type=Path, default=None, help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Benchmarks here are run, which the repository's own setting would skip."""
    config.option.benchmark_skip = False
