"""python -m kernels resources --artifact A [--out DIR]: what each kernel of a CUDA artifact takes, needing no GPU.

Prints a line a kernel, and one with the word for it where registers did not suffice. Leaves DIR/figures.json: what a
kernel takes of a multiprocessor and is not nothing. The bytes of its code are among the sizes of every landing.
With --before B also a line for each kernel of B whose machine code is another in A, or that A lacks.
"""

import argparse
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from kernels import artifact
from kernels.engine.errors import KernelError

from .cubin import RESOURCES, Kernel, kernels, machine_code
from .outputs import Figure, write_figures

UNITS = {"registers": "registers a thread", "shared": "bytes a block", "local": "bytes a thread"}  # what is recorded
INSTANCE = re.compile(r"_m\d+$")  # the rows of an instance, at the end of its name


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels resources", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", type=Path, help="without it: the CUDA build of this tree")
    parser.add_argument("--before", type=Path, metavar="B", help="an artifact to whose kernels A may only add")
    parser.add_argument("--out", type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    data = _cubin(options.artifact or artifact.tree("cuda-sm_90"))
    found = kernels(data, where="the artifact")
    print(f"{'kernel':18}" + "".join(f"{name:>11}" for name in RESOURCES))
    for kernel in found:
        print(f"{kernel.name:18}" + "".join(f"{getattr(kernel, name):>11}" for name in RESOURCES))
    for kernel in found:
        if kernel.local:
            print(f"spill: {kernel.name} keeps {kernel.local} bytes a thread in local memory")
    if options.before:
        before, now = (machine_code(code, where="an artifact") for code in (_cubin(options.before), data))
        changed = [name for name, code in before.items() if now.get(name) != code]
        print(f"of {len(before)} kernels before, {len(before) - len(changed)} are the same")
        for name in changed:
            print(f"changed: {name} has other machine code" if name in now else f"changed: {name} is not there")
    if options.out:
        write_figures(options.out, _figures(found))
    return 0


def _cubin(path: Path) -> bytes:
    """Raises KernelError for an artifact of another target."""
    opened = artifact.load(path)
    if opened.binary.suffix != ".cubin":
        raise KernelError(f"artifact {opened.digest[:12]}", f"is for {opened.target}", "name one for a CUDA target")
    return opened.binary.read_bytes()


def _figures(found: Sequence[Kernel]) -> list[Figure]:
    """What is not nothing of every kernel; the instances of a template for 2 to 8 rows are samples of one figure."""
    figures = []
    for name, group in groupby(found, key=lambda kernel: INSTANCE.sub("", kernel.name)):
        kernels = tuple(group)
        for resource, unit in UNITS.items():
            values = tuple(getattr(kernel, resource) for kernel in kernels)
            if any(values):
                figures.append(Figure(f"{name} {resource}", unit, values))
    return figures
