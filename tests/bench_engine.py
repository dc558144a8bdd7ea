"""The time of one forward of one row on every shape, printed by `nox -s bench`. Nothing here is asserted as a time."""

from typing import Any

import numpy as np
import pytest

from kernels import artifact

SEED = 1
TOKENS = (101, 202, 303, 404)
DEPTH_27B = 4  # layers: three GDN and one attention; the whole model has 64 of them
CASES = {"tiny": None, "mini64": None, "27b": DEPTH_27B}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", CASES)
def bench_forward(benchmark: Any, shape: str, threads: int) -> None:
    """One token to its logits, hybrid layers; of 27b four layers and the whole head."""
    opened = artifact.load(artifact.tree())
    config = opened.engine.shape(shape, layers="hybrid", depth=CASES[shape])
    engine = opened.entry("open")(opened.binary, config, opened.engine.Synthetic(SEED), capacity=64, threads=threads)

    def step() -> None:
        if engine.cursor == len(TOKENS):
            engine.reset()
        engine.forward(TOKENS[engine.cursor])

    benchmark.pedantic(step, rounds=5, iterations=len(TOKENS), warmup_rounds=1)
    assert np.isfinite(engine.logits()).all()
    engine.close()
