"""The figures of a device: every number of rows and context, the floor and its bytes, shares that make a whole."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import artifact
from kernels.engine.config import shape
from kernels.tools import bandwidth, figures, peers, steps, sweep
from kernels.tools.watch import open_watched, set_gate


@pytest.fixture(autouse=True)
def closed_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate is what it was, afterwards."""
    monkeypatch.setenv("KESTREL_Q35_MM", "1")


def topics(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """Values by topic and place."""
    found: dict[str, dict[str, list[int]]] = {}
    for row in rows:
        topic, place = row["name"].split(": ", 1)
        found.setdefault(topic, {})[place] = row["values"]
    return found


def test_one_run_leaves_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whole numbers: a step of every M at two contexts, the floor in it, marks, kernels; and peers where torch is."""
    assert figures.main(["--artifact", str(artifact.tree()), "--shape", "tiny", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "figures.json").read_text())
    assert all(type(value) is int and value >= 0 for row in rows for value in row["values"])
    assert len({row["name"] for row in rows}) == len(rows)
    assert all(re.fullmatch(r"[^:,]+: [^:,]+, [^:,]+", row["name"]) for row in rows)
    found = topics(rows)
    assert len(found["copy"]["on the device, read and written"]) == bandwidth.COPIES
    wanted = {f"M {m}, streamed at {context}" for context in figures.CONTEXTS_TRIED for m in range(1, 9)}
    assert wanted <= set(found["step"]) == set(found["floor in step"])
    ((floor,),) = (v for place, v in found["floor of tiny hybrid of 4 layers"].items() if place.endswith("time"))
    for place, times in found["step"].items():
        assert len(times) == steps.STEPS
        assert found["floor in step"][place] == [floor * steps.PPM // time for time in times]
    assert {"mark, streamed", "rollback, streamed", "mark and rollback, streamed"} <= set(found["state"])
    shares = [values for place, values in found["kernel"].items() if place.endswith("share")]
    assert 2 * len(shares) == len(found["kernel"])
    assert all(steps.PPM - len(shares) <= sum(one) <= steps.PPM for one in zip(*shares, strict=True))
    assert ("product" in found) != ("left out what torch would take" in capsys.readouterr().out)


def test_what_is_timed_computes_with_numbers() -> None:
    """After steps at two contexts no value of state, keys or values is zero for want of a token, and none is a NaN."""
    set_gate("8")
    config = shape("tiny", layers="hybrid")
    (made,) = steps._engines(artifact.load(artifact.tree()), config, 48).values()
    for context in (20, 40):
        list(steps._steps({"streamed": made}, config, context, 1))
        made.seek(context)
        planes = {name: plane for name, plane in made.planes().items() if name != "cursor"}
        assert planes and all(np.isfinite(plane).all() and plane.all() for plane in planes.values())


def test_the_floor_of_27b_is_its_q4_matrices_and_its_state() -> None:
    """13.4 GiB of q4 without the embedding, 0.3 GB of state read and written; with a tied head that is read instead."""
    found = steps.floor_bytes(shape("27b", layers="hybrid"))
    assert round(found["q4 matrices"] / 2**30, 1) == 13.4
    assert round(found["state read and written"] / 1e9, 1) == 0.3
    one = steps.floor_bytes(shape("tiny", layers="attn", depth=1))
    assert one["state read and written"] == 0
    rows = sum(n for n in (2 * 384, 128, 128, 512, 512, 512)) * 256 + 256 * (384 + 512)  # q k v gate up head, o down
    assert one["q4 matrices"] == rows * 9 // 16 + 256 * 128 * 9 // 16  # o's 384 columns are two whole chunks


def test_memory_is_what_an_engine_allocates() -> None:
    """The model, the slab of 8 rows, the copies of a mark: the bytes that a device was asked for."""
    set_gate("8")
    opened, config = artifact.load(artifact.tree()), shape("tiny", layers="hybrid")
    made, watched = open_watched(opened, config, opened.entry("Synthetic")(1), capacity=40)
    made.forward_rows((1, 2))
    made.mark()
    assert watched.moved.allocated == steps.taken_bytes(config, 40)


def test_peers_read_as_many_bytes_from_memory_as_we_do() -> None:
    """Every ring of every shape is larger than four caches: int4 with its scales and zeros, and bf16."""
    for rows, cols in sweep.matrices(shape("27b", layers="hybrid")):
        assert not cols % peers.GROUP and not rows % 8 and not cols % (16 * peers.INNER_K_TILES)
        for size in (rows * (cols // 2 + 4 * cols // peers.GROUP), 2 * rows * cols):
            count, walks = bandwidth.passes(size, bandwidth.MEASURED)
            assert count * size >= 4 * bandwidth.CACHE and count * walks < 1000
