"""The two lanes in the ledger: for every check that both ran on a block, the same command left the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import claims
from pipeline.ledger import Ledger
from pipeline.records import Result

TOP = Path(__file__).parent.parent
CPU, CUDA = "cpu-x86_64", "cuda-sm_90"
LANDED = {
    (result.block, result.target): result
    for result in Ledger(TOP / "ledger").read()
    if isinstance(result, Result) and result.verdict == "landed"
}


def _seen(block: str, target: str) -> dict[tuple[str, tuple[tuple[str, ...], ...]], claims.Outputs]:
    """Check and command to what it left, of the newest landing of a block; without those that run the baseline."""
    checks = LANDED[block, target].checks
    own = [check for check in checks if not any("{baseline}" in word for argv in check.argv for word in argv)]
    return {(check.id, check.argv): check.outputs for check in own if check.outputs is not None}


@pytest.mark.parametrize("block", [block for block, target in LANDED if target == CUDA])
def test_both_lanes_left_the_same_bytes(block: str) -> None:
    """Digest of the listing, number of files and bytes; and there is something to compare.

    A block that was repaired for one lane may have tools there that run a check over more: it left another number of
    bytes then, and nothing is said of these.
    """
    one, other = _seen(block, CPU), _seen(block, CUDA)
    both = one.keys() & other.keys()
    if LANDED[block, CPU].source.tools != LANDED[block, CUDA].source.tools:
        both = {name for name in both if one[name].bytes == other[name].bytes}
    assert len(both) >= 5
    assert {name: one[name] for name in both} == {name: other[name] for name in both}
