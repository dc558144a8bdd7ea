"""What the pipeline costs, printed by `nox -s bench`: bytes compared, an append, a verdict, an audit of 1,000 records.

Figures are for people. Nothing here is asserted as a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline import canonical, derive, outputs, protocol, verbs
from pipeline.ledger import Ledger
from pipeline.records import Attempt, Result
from tests import drawn, history, landings, scratch

TOP = Path(__file__).parent.parent
MIB = 2**20
RECORDS = 1_000


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], benchmark: Any) -> Any:
    """Prints a figure in its own unit, and keeps it beside the times."""

    def figure(name: str, value: float, unit: str) -> None:
        benchmark.extra_info[name] = f"{value:,.1f} {unit}"
        with capsys.disabled():
            print(f"\n  {name}: {value:,.1f} {unit}", end="")

    return figure


@pytest.mark.parametrize("mib", [1, 64])
def bench_compare(benchmark: Any, say: Any, tmp_path: Path, mib: int) -> None:
    """Two folders of dumps that are the same, every byte of both read."""
    folders = [tmp_path / name for name in ("one", "two")]
    data = os.urandom(MIB) * mib
    for folder in folders:
        folder.mkdir()
        (folder / "state.bin").write_bytes(data)
    assert benchmark.pedantic(outputs.compare, (folders,), rounds=5, warmup_rounds=1) == ()
    say("bytes compared", 2 * mib / benchmark.stats.stats.median, "MiB/s")


def bench_listing(benchmark: Any, say: Any, tmp_path: Path) -> None:
    """One folder of dumps, listed with the digest of each file."""
    data = os.urandom(MIB) * 64
    (tmp_path / "state.bin").write_bytes(data)
    (file,) = benchmark.pedantic(outputs.listing, (tmp_path,), rounds=5, warmup_rounds=1)
    assert file.sha256 == canonical.sha256(data)
    say("bytes listed", 64 / benchmark.stats.stats.median, "MiB/s")


@pytest.mark.parametrize("length", [0, 100])
def bench_append(benchmark: Any, say: Any, tmp_path: Path, length: int) -> None:
    """One record more, durably, on a ledger that is read and verified before."""
    ledger = Ledger(tmp_path / "ledger")
    for _ in range(length):
        ledger.append(drawn.void())
    made = benchmark.pedantic(ledger.append, (drawn.void(),), rounds=10)
    assert made.sequence == length + 10
    say("append", benchmark.stats.stats.median * 1000, "ms")


def bench_judge(benchmark: Any, say: Any, tmp_path: Path) -> None:
    """The verdict on a real landing of the adder: seven checks, ten mutants, eight pairs."""
    where = landings.house(tmp_path, "scale")
    attempt, result = where.ledger.read()[3:5]
    assert isinstance(attempt, Attempt) and isinstance(result, Result)
    plan, evidence = derive.read_plan(where, attempt), derive.read_evidence(where, result)
    decision = benchmark.pedantic(protocol.judge, (plan, evidence), rounds=20, warmup_rounds=2)
    assert decision.verdict == result.verdict
    assert {check.verdict for check in decision.checks} == {verbs.Colour.GREEN.value}
    say("judge", benchmark.stats.stats.median * 1000, "ms")


def bench_audit(benchmark: Any, say: Any, tmp_path: Path) -> None:
    """The whole command on 1,000 records: 332 landings of the adder, every one derived again from what is archived."""
    where = history.grow(landings.house(tmp_path, "scale"), RECORDS)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ = inherited | scratch.ENVIRONMENT | {"PYTHONPATH": str(TOP)}
    argv = [sys.executable, "-m", "pipeline", "audit", "--subject", "adder"]

    def audit() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, cwd=where.root, env=environ, capture_output=True, text=True, check=False)

    done = benchmark.pedantic(audit, rounds=3)
    assert done.returncode == 0, done.stderr
    assert f"{len(where.ledger.read())} records" in done.stdout
    say("audit of 1,000 records", benchmark.stats.stats.median, "s")
