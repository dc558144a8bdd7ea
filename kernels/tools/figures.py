"""python -m kernels figures --artifact A --out DIR: what a device does in a second, recorded and never judged.

The rate of a copy on the device, both directions counted; all that steps.py says of the whole synthetic 27B, made on
the device; and its matrices beside torch's, where torch is: peers.py. Times are the device's own. A figure's name is
TOPIC: ROW, COLUMN, its place in the tables that `python -m pipeline show N --performance` prints of a record. On an
H200 it takes less than a minute: two engines of 14 GiB, 320 steps, 96 products of 8 samples, and the import of torch.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from kernels import artifact
from kernels.engine.config import SHAPES, shape

from .bandwidth import MEASURED, TRIED, copy_figure
from .outputs import Figure, tell, write_figures
from .peers import peer_figures
from .steps import model_figures
from .sweep import matrices

COPY = "copy: on the device, read and written"
CONTEXTS = {"27b": (128, 4096)}  # tokens before a step
CONTEXTS_TRIED = (20, 40)  # of the shapes that nobody measures


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels figures", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", required=True, type=Path)
    parser.add_argument("--shape", default="27b", choices=tuple(SHAPES), help="another than 27b: a try on any device")
    parser.add_argument("--depth", type=int, help="only the first layers")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    opened = artifact.load(options.artifact)
    found = []
    for figure in _figures(opened, options.shape, options.depth):
        tell(figure)
        found.append(figure)
    write_figures(options.out, found)
    return 0


def _figures(opened: artifact.Artifact, model: str, depth: int | None) -> Iterator[Figure]:
    sizes, contexts = (MEASURED, CONTEXTS[model]) if model in CONTEXTS else (TRIED, CONTEXTS_TRIED)
    copies = _copies(opened, sizes.copy)
    yield copies
    config = opened.entry("shape")(model, layers="hybrid", depth=depth)
    yield from model_figures(opened, config, f"{model} hybrid of {len(config.kinds)} layers", contexts, copies)
    device = opened.entry("open_device")(opened.binary)
    yield from peer_figures(device, matrices(shape(model, layers="hybrid")), sizes)
    device.close()


def _copies(opened: artifact.Artifact, size: int) -> Figure:
    """On a device of its own, so that its buffers are given back."""
    device = opened.entry("open_device")(opened.binary)
    figure = copy_figure(device, COPY, size)
    device.close()
    return figure
