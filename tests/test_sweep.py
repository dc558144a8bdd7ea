"""The sweep of R and M: times of real products of every instance, rings that no cache holds, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from kernels import artifact
from kernels.engine import r_table as landed
from kernels.engine.config import shape
from kernels.engine.device import open_device
from kernels.engine.errors import KernelError
from kernels.engine.weights import EMBEDDING, HEAD
from kernels.tools import bandwidth, sweep
from kernels.tools.outputs import Figure
from kernels.tools.rows import SMALL_MATRICES

MODEL = shape("27b", layers="hybrid")


def figures(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "figures.json").read_text())
    return rows


def test_a_sweep_leaves_a_time_of_every_r_and_m_of_every_shape(tmp_path: Path) -> None:
    """By names from which shape, R and M are read again, each with all its samples; and the copy beside them."""
    command = ["--artifact", str(artifact.tree()), "--matrices", "small", "--rows", "2,7", "--out", str(tmp_path)]
    assert sweep.main(command) == 0
    copy, *rows = figures(tmp_path)
    assert (copy["name"], copy["unit"], len(copy["values"])) == (sweep.COPY, "bytes/s", bandwidth.COPIES)
    places = [sweep.FIGURE.fullmatch(row["name"]) for row in rows]
    found = [(place["shape"], int(place["r"]), int(place["m"])) for place in places if place]
    wanted = [(sweep.named(size), r, m) for size in SMALL_MATRICES for m in (2, 7) for r in (1, 2, 4, 8)]
    assert found == wanted
    assert all(row["unit"] == "ns" and len(row["values"]) == sweep.SAMPLES for row in rows)
    assert all(type(value) is int and value > 0 for row in rows for value in row["values"])


def test_an_instance_that_an_artifact_lacks_is_named() -> None:
    """Not left out: a table would be made of the others."""
    ring = bandwidth.Ring(open_device(artifact.load(artifact.tree()).binary), 9, 257, bandwidth.TRIED)
    with pytest.raises(KernelError, match="no kernel gemv_q4_r3_m2"):
        ring.sequence("gemv_q4_r3_m2", 3)


def test_a_ring_is_larger_than_the_cache_and_its_sequence_walks_around_it() -> None:
    """Of 27b only the head fills it alone; what is read between two events outlasts the start of a graph many times."""
    for (rows, cols), names in sweep.matrices(MODEL).items():
        size = rows * cols // 2 + rows * cols // 16
        count, walks = bandwidth.passes(size, bandwidth.MEASURED)
        assert count * size >= 4 * bandwidth.CACHE and count * walks * size >= bandwidth.MEASURED.read
        assert (count == 1) == (HEAD in names) and count * walks < 1000
    device = open_device(artifact.load(artifact.tree()).binary)
    ring = bandwidth.Ring(device, 9, 257, bandwidth.TRIED)
    walk = ring.sequence("gemv_q4_r2_m2", 2)
    assert ring.bytes == 9 * 2 * (128 + 16)
    count, walks = bandwidth.passes(ring.bytes, bandwidth.TRIED)
    assert len(walk) == ring.products == count * walks and len({id(launch) for launch in walk}) == count
    weights = [device.download(words).tobytes() for words, _scales in ring._weights]
    assert len(set(weights)) == count


def test_a_time_that_memory_does_not_allow_is_refused() -> None:
    """One sample faster than every copy of the run; the same rate as the fastest is none."""
    copies = Figure("copy", "bytes/s", (900, 1000, 800))
    bandwidth.check_rate(Figure("product", "ns", (10**9, 2 * 10**9)), 1000, copies)
    with pytest.raises(KernelError, match=r"product: reads 1002 bytes/s, and the fastest copy .* 1000; use a larger"):
        bandwidth.check_rate(Figure("product", "ns", (2 * 10**9, 10**9 - 10**6)), 1001, copies)


def test_every_matrix_of_the_model_has_its_shape() -> None:
    """Eight shapes; a name is one of the table that the engine reads, and each of that table is there once."""
    found = sweep.matrices(MODEL)
    assert len(found) == 8
    names = [name for ends in found.values() for name in ends]
    assert sorted(names) == sorted(row[0] for row in landed.R_TABLE)
    assert found[17408, 5120] == ("mlp.gate_proj.weight", "mlp.up_proj.weight")
    assert found[248320, 5120] == (EMBEDDING, HEAD)
