"""The time of one forward of one row, on the 64-layer shape with small widths; a case for each kind of layers.

    python -m pytest -q -p no:hypothesispytest kernels/tools/bench_step.py [--artifact A] --benchmark-json FILE

Every round is the same work: the same tokens from an empty state, one forward an iteration. What is timed is the whole
way from a token to its logits, on one thread, nothing read back; and, once a round, the reset.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels import artifact

SEED = 1
TOKENS = (101, 202, 303, 404, 55, 506)
ROUNDS = 5


@pytest.fixture(scope="module")
def opened(request: pytest.FixtureRequest) -> artifact.Artifact:
    """The artifact that --artifact names, or this tree's own."""
    return artifact.load(request.config.getoption("--artifact") or artifact.tree())


@pytest.mark.parametrize("layers", ["attn", "gdn", "hybrid"])
def test_step(benchmark: Any, opened: artifact.Artifact, layers: str) -> None:
    """A forward runs; how long it takes is the benchmark's to say."""
    config, weights = opened.entry("shape")("mini64", layers=layers), opened.entry("Synthetic")(SEED)
    engine = opened.entry("open")(opened.binary, config, weights, capacity=len(TOKENS))
    benchmark.group, benchmark.name = "step", f"step[{layers}]"
    benchmark.pedantic(_stepper(engine), rounds=ROUNDS, iterations=len(TOKENS), warmup_rounds=1)
    assert np.isfinite(engine.logits()).all()


def _stepper(engine: Any) -> Callable[[], None]:
    """Runs the next of TOKENS, and begins again after the last."""

    def step() -> None:
        if engine.cursor == len(TOKENS):
            engine.reset()
        engine.forward(TOKENS[engine.cursor])

    return step
