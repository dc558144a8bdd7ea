"""python -m kernels build --target T --out DIR: the artifact of this tree, and toolchain.json beside it."""

import argparse
import hashlib
from pathlib import Path

from kernels import artifact, compilers


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels build", description=__doc__, allow_abbrev=False)
    parser.add_argument("--target", required=True, choices=tuple(compilers.TARGETS))
    parser.add_argument("--out", required=True, type=Path)
    options = parser.parse_args(argv)
    path = artifact.build(options.target, options.out)
    print(f"output {path.name}: sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
    return 0
