"""python -m kernels figures --artifact A --out DIR: what a device does in a second, recorded and never judged.

The rate of a copy on the device, both directions counted; one step of the whole synthetic 27B, streamed, made on the
device; and what share of it each kernel takes. Times are the device's own, of events around the launches. A kernel's
time is that of all its launches of a step, queued behind whole steps so that the host's pace does not show in it. Alone
they take somewhat longer than in their step, so a share is of the sum of these times.
"""

import argparse
from pathlib import Path
from typing import Any

from kernels import artifact

from .outputs import Figure, write_figures

SEED = 1
COPY_BYTES = 4 << 30  # many times a cache
COPIES, STEPS, ROUNDS = 20, 20, 5  # samples; the first of each is a warm-up beside them
CAPACITY = 64
TOKENS = (101, 20_202, 3)  # steps that give every plane a value first
BEHIND = 2  # steps that are queued before a kernel's launches are timed
PPM = 1_000_000
NS_A_SECOND = 1_000_000_000


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels figures", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", required=True, type=Path)
    parser.add_argument("--shape", default="27b")
    parser.add_argument("--depth", type=int, help="only the first layers")
    parser.add_argument("--copy-bytes", type=int, default=COPY_BYTES)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    opened = artifact.load(options.artifact)
    found = [_copies(opened, options.copy_bytes)]
    config = opened.entry("shape")(options.shape, layers="hybrid", depth=options.depth)
    name = f"{options.shape} hybrid of {len(config.kinds)} layers"
    engine = opened.entry("open")(opened.binary, config, opened.entry("Synthetic")(SEED), capacity=CAPACITY)
    for token in TOKENS:
        engine.forward(token % config.vocab)
    found += _step(engine, name)
    engine.close()
    for figure in found:
        print(f"{figure.name}: {sorted(figure.values)[len(figure.values) // 2]} {figure.unit}, n {len(figure.values)}")
    write_figures(options.out, found)
    return 0


def _copies(opened: artifact.Artifact, size: int) -> Figure:
    device = opened.entry("open_device")(opened.binary, sizes=(size, size))
    source, target = (device.zeros((size // 4,)) for _ in range(2))
    launch = device.copy(target, source)
    device.timed([launch])
    rates = tuple(2 * size * NS_A_SECOND // device.timed([launch]) for _ in range(COPIES))
    device.close()
    return Figure("copy on the device, read and written", "bytes/s", rates)


def _step(engine: Any, name: str) -> list[Figure]:
    """The step's time, and by kernel its time and share."""
    engine.step_ns()
    found = [Figure(f"step of {name}, streamed", "ns", tuple(engine.step_ns() for _ in range(STEPS)))]
    kernels = engine.step_kernels()
    for kernel in kernels:
        engine.step_ns(kernel, behind=BEHIND)
    rounds = [{kernel: engine.step_ns(kernel, behind=BEHIND) for kernel in kernels} for _ in range(ROUNDS)]
    for kernel, count in kernels.items():
        times = tuple(one[kernel] for one in rounds)
        shares = tuple(one[kernel] * PPM // sum(one.values()) for one in rounds)
        found.append(Figure(f"{kernel}, {count} launches a step", "ns", times))
        found.append(Figure(f"{kernel}, share of a step", "ppm", shares))
    return found
