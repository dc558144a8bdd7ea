"""python -m kernels sweep --out DIR: the time of the q4 product by every instance <R, M>, for every matrix of a model.

Leaves figures.json: a copy of this run, and for each shape, R and M the time of one product, beside each other: the
samples of the four R of a shape and M take turns. A time that no copy of the run allows is an error, and no figure.
What r_table makes of it reads the names by FIGURE.

On an H200 the 27b is 8 shapes x 8 M x 4 R x 8 samples, one of them a warm-up: 2048 sequences that read half a GiB or
little more, 0.13 ms each at the rate of a copy and up to 40 ms where 8 rows bound the product; and 256 graphs of 1 to
182 launches. Weights are made on the device in no time.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kernels import artifact
from kernels.engine.config import SHAPES, Config, shape
from kernels.engine.r_table import R_VALUES, instance
from kernels.engine.weights import Q4, TABLE, tensors

from .bandwidth import MEASURED, NS_A_SECOND, TRIED, Ring, Sizes, check_rate, copy_figure, median, samples
from .forms import row_counts
from .outputs import Figure, tell, write_figures
from .rows import SMALL_MATRICES

SAMPLES = 7  # of each R
COPY = "copy beside gemv_q4, read and written"
FIGURE = re.compile(r"gemv_q4 (?P<shape>\d+x\d+) R(?P<r>\d+) M(?P<m>\d+)")
Shape = tuple[int, int]  # rows and columns of a matrix


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels sweep", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", type=Path, help="without it: the CUDA build of this tree")
    parser.add_argument("--shape", default="27b", choices=tuple(SHAPES))
    parser.add_argument("--matrices", default="model", choices=("model", "small"), help="small: a try on any device")
    parser.add_argument("--rows", default="1..8", type=row_counts, metavar="M", help="1..8, or 2,4,8")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    opened = artifact.load(options.artifact or artifact.tree("cuda-sm_90"))
    sizes, chosen = MEASURED, matrices(shape(options.shape, layers="hybrid"))
    if options.matrices == "small":
        sizes, chosen = TRIED, dict.fromkeys(SMALL_MATRICES, ("of no model",))
    device = opened.entry("open_device")(opened.binary)
    copies = copy_figure(device, COPY, sizes.copy)
    figures = [copies]
    tell(copies)
    for size, names in chosen.items():
        print(f"{named(size)}: {', '.join(names)}")
        figures += swept(device, size, options.rows, sizes, copies)
    device.close()
    write_figures(options.out, figures)
    return 0


def matrices(config: Config) -> dict[Shape, tuple[str, ...]]:
    """The shapes of a model's q4 matrices, and what the names of each end in, as the R table has them."""
    ends = [name for _part, name, _letters, form in TABLE if form == Q4]
    found: dict[Shape, dict[str, None]] = {}
    for tensor in tensors(config):
        if tensor.form == Q4:
            rows, cols = tensor.shape
            found.setdefault((rows, cols), {})[next(end for end in ends if tensor.name.endswith(end))] = None
    return {size: tuple(names) for size, names in found.items()}


def named(size: Shape) -> str:
    """A shape as figures name it."""
    return "x".join(map(str, size))


def swept(device: Any, size: Shape, rows: Sequence[int], sizes: Sizes, copies: Figure) -> Iterator[Figure]:
    """The times of one shape. Raises KernelError for an instance that the artifact lacks, and for an impossible one."""
    ring = Ring(device, *size, sizes)
    for m in rows:
        found = samples({f"R{r}": partial(ring.ns, ring.sequence(instance(r, m), r)) for r in R_VALUES}, SAMPLES)
        for r, times in found.items():
            figure = Figure(f"gemv_q4 {named(size)} {r} M{m}", "ns", times)
            check_rate(figure, ring.bytes, copies)
            yield figure
        medians = {r: median(times) for r, times in found.items()}
        share = 100 * ring.bytes * NS_A_SECOND // (min(medians.values()) * max(copies.values))
        print(f"  M {m}: {', '.join(f'{r} {ns:,} ns' for r, ns in medians.items())}; {share} % of a copy's rate")
