"""python -m kernels resources --artifact A [--out DIR]: what each kernel of a CUDA artifact takes, needing no GPU.

Prints a line a kernel, and one with the word for it where registers did not suffice. Leaves DIR/figures.json: what a
kernel takes of a multiprocessor and is not nothing. The bytes of its code are among the sizes of every landing.
"""

import argparse
from pathlib import Path

from kernels import artifact
from kernels.engine.errors import KernelError

from .cubin import RESOURCES, Kernel, kernels
from .outputs import Figure, write_figures

UNITS = {"registers": "registers a thread", "shared": "bytes a block", "local": "bytes a thread"}  # what is recorded


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels resources", description=__doc__, allow_abbrev=False)
    parser.add_argument("--artifact", type=Path, help="without it: the CUDA build of this tree")
    parser.add_argument("--out", type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    opened = artifact.load(options.artifact or artifact.tree("cuda-sm_90"))
    if opened.binary.suffix != ".cubin":
        raise KernelError(f"artifact {opened.digest[:12]}", f"is for {opened.target}", "name one for a CUDA target")
    found = kernels(opened.binary.read_bytes(), where=opened.binary.name)
    print(f"{'kernel':18}" + "".join(f"{name:>11}" for name in RESOURCES))
    for kernel in found:
        print(f"{kernel.name:18}" + "".join(f"{getattr(kernel, name):>11}" for name in RESOURCES))
    for kernel in found:
        if kernel.local:
            print(f"spill: {kernel.name} keeps {kernel.local} bytes a thread in local memory")
    if options.out:
        write_figures(options.out, [figure for kernel in found for figure in _figures(kernel)])
    return 0


def _figures(kernel: Kernel) -> list[Figure]:
    takes = {name: getattr(kernel, name) for name in UNITS}
    return [Figure(f"{kernel.name} {name}", UNITS[name], (value,)) for name, value in takes.items() if value]
