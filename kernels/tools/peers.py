"""The q4 product beside what torch has for the same matrices, in one process: int4 in groups of 32, and bf16.

Each has a ring of its own weights that no cache holds and one graph a shape and M; samples take turns. torch multiplies
bf16 rows by torch._weight_int4pack_mm, 8 inner k tiles, and by torch.nn.functional.linear, and its events time it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kernels.engine.r_table import instance, weight_rows

from .bandwidth import Ring, Sizes, passes, samples
from .outputs import Figure
from .sweep import SAMPLES, Shape, named

ROWS = (1, 2, 4, 8)
GROUP, INNER_K_TILES = 32, 8  # columns that share a scale, as in our q4; how torch lays int4 out: its widest load
NS_A_MS = 1_000_000
Product = Callable[[Any], Any]  # of rows [M][cols] and one matrix


def peer_figures(device: Any, chosen: Mapping[Shape, Sequence[str]], sizes: Sizes) -> list[Figure]:
    """For each shape and M the time of our product and torch's. None, and a line, where torch is not or cannot."""
    try:
        import torch

        with torch.inference_mode():
            return [
                figure for size, names in chosen.items() for figure in _beside(torch, device, size, names[0], sizes)
            ]
    except (ImportError, AttributeError, TypeError, RuntimeError) as error:
        word = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"left out what torch would take: {word}")
        return []


def _beside(torch: Any, device: Any, size: Shape, name: str, sizes: Sizes) -> Iterator[Figure]:
    rows, cols = size
    version = f"torch {torch.__version__}"
    theirs = {f"{version} int4": _int4(torch, rows, cols, sizes), f"{version} bf16": _bf16(torch, rows, cols, sizes)}
    ours = Ring(device, rows, cols, sizes)
    for m in ROWS:
        x, r = torch.randn(m, cols, dtype=torch.bfloat16, device="cuda"), weight_rows(name, m)
        turns: dict[str, Callable[[], int]] = {"q4": partial(ours.ns, ours.sequence(instance(r, m), r))}
        turns |= {peer: _graph(torch, products, x, walks) for peer, (products, walks) in theirs.items()}
        for peer, times in samples(turns, SAMPLES).items():
            yield Figure(f"product: {named(size)} M {m}, {peer}", "ns", times)


def _int4(torch: Any, rows: int, cols: int, sizes: Sizes) -> tuple[list[Product], int]:
    """A ring of int4 matrices, scales and zeros of bf16 [groups][rows][2], and how often it is walked around."""
    groups = cols // GROUP

    def product() -> Product:
        nibbles = torch.randint(0, 256, (rows, cols // 2), dtype=torch.uint8, device="cuda")
        packed = torch._convert_weight_to_int4pack(nibbles, INNER_K_TILES)
        scales = torch.rand(groups, rows, 2, dtype=torch.bfloat16, device="cuda")
        return lambda x: torch._weight_int4pack_mm(x, packed, GROUP, scales)

    count, walks = passes(rows * (cols // 2 + 4 * groups), sizes)
    return [product() for _ in range(count)], walks


def _bf16(torch: Any, rows: int, cols: int, sizes: Sizes) -> tuple[list[Product], int]:
    """A ring of bf16 matrices, and how often it is walked around."""

    def product() -> Product:
        weights = torch.randn(rows, cols, dtype=torch.bfloat16, device="cuda")
        return lambda x: torch.nn.functional.linear(x, weights)

    count, walks = passes(2 * rows * cols, sizes)
    return [product() for _ in range(count)], walks


def _graph(torch: Any, products: Sequence[Product], x: Any, walks: int) -> Callable[[], int]:
    """What replays all products as one graph, and gives the ns of one."""
    aside = torch.cuda.Stream()  # a capture needs what the first call sets up, and that must not be captured
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for product in products:
            product(x)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for product in list(products) * walks:
            product(x)

    def ns() -> int:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        nanoseconds: int = round(start.elapsed_time(end) * NS_A_MS / (len(products) * walks))
        return nanoseconds

    return ns
