"""python -m kernels bitmath: what every function of bitmath.cuh gives for every f32 there is, as digests.

Inputs are all 2^32 bit patterns, in blocks of 2^24 with one top byte; a digest is the sha256 of a block's outputs.
Leaves bitmath.u8, by function [blocks][32]. From an artifact, or with --stored from a file that --write left: so one
machine's results are held against another's without computing them twice.
"""

import argparse
import hashlib
import os
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from kernels import artifact
from kernels.engine.device import THREADS_A_BLOCK
from kernels.engine.errors import KernelError

from .inputs import file_digest
from .outputs import Input, report, write_dump, write_inputs

FUNCTIONS = ("exp", "log1p", "sigmoid", "silu", "softplus")
BLOCK_BITS = 24
BLOCK = 1 << BLOCK_BITS  # inputs; 64 MiB
BLOCKS = 1 << (32 - BLOCK_BITS)
WAITING_MAX = 16  # outputs that wait for their digest: 1 GiB
STORED_BYTES_MAX = 1 << 20

Digests = dict[str, list[bytes]]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels bitmath", description=__doc__, allow_abbrev=False)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--artifact", type=Path, help="without it, and without --stored: the build of this tree")
    source.add_argument("--stored", type=Path, metavar="FILE", help="digests that --write left")
    parser.add_argument("--blocks", type=_numbers, default=tuple(range(BLOCKS)), help="only these, as 0,63,255")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the digests as text, for --stored")
    options = parser.parse_args(argv)
    if options.stored:
        digests = _read(options.stored, options.blocks)
        inputs = [Input("stored digests", options.stored.name, file_digest(options.stored))]
    else:
        path = options.artifact or artifact.tree()
        digests = compute(artifact.load(path), options.blocks)
        inputs = [Input("artifact", path.name, file_digest(path))]
    if options.write:
        options.write.write_text(_text(digests, options.blocks), encoding="ascii")
    arrays = {name: np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 32) for name, rows in digests.items()}
    outputs = write_dump(options.out, {"bitmath.u8": arrays})
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "bitmath", *argv]), inputs, outputs)
    return 0


def compute(opened: artifact.Artifact, blocks: Sequence[int]) -> Digests:
    """By function the digests of these blocks of outputs, on the artifact's device."""
    cores = os.cpu_count() or 1
    on_threads = {"threads": cores, "split_ns": 0} if opened.target.startswith("cpu") else {}
    device = opened.entry("open_device")(opened.binary, **on_threads, sizes=(4 * BLOCK, 4 * BLOCK))
    x, y = (device.zeros((BLOCK,)) for _ in range(2))
    launches = {name: device.bind(f"math_{name}", BLOCK // THREADS_A_BLOCK, x, y, BLOCK) for name in FUNCTIONS}

    def outputs() -> Iterator[tuple[str, np.ndarray]]:
        for block in blocks:
            inputs = np.arange(BLOCK, dtype=np.uint32) + np.uint32(block << BLOCK_BITS)
            device.write(x, inputs.view(np.float32))
            for name, launch in launches.items():
                device.run([launch])
                yield name, device.download(y)

    found: Digests = {name: [] for name in FUNCTIONS}
    waiting: deque[tuple[str, Future[bytes]]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        for name, values in outputs():
            waiting.append((name, pool.submit(_digest, values)))
            if len(waiting) > WAITING_MAX:
                first, future = waiting.popleft()
                found[first].append(future.result())
        for first, future in waiting:
            found[first].append(future.result())
    device.close()
    return found


def _digest(values: np.ndarray) -> bytes:
    return hashlib.sha256(values.data).digest()


def _text(digests: Digests, blocks: Sequence[int]) -> str:
    """One line a function and block: `exp 3f <sha256>`."""
    lines = [
        f"{name} {block:02x} {row.hex()}\n"
        for name, rows in digests.items()
        for block, row in zip(blocks, rows, strict=True)
    ]
    return "".join(lines)


def _read(path: Path, blocks: Sequence[int]) -> Digests:
    """The digests of these blocks out of a file of _text(). Raises KernelError where one is missing or malformed."""
    todo = "write it again: bitmath --artifact A --write FILE"
    try:
        if path.stat().st_size > STORED_BYTES_MAX:
            raise KernelError(path, f"is larger than {STORED_BYTES_MAX} bytes", todo)
        rows = (line.split(" ") for line in path.read_text(encoding="ascii").splitlines())
        known = {(name, int(block, 16)): bytes.fromhex(digest) for name, block, digest in rows}
        found = {name: [known[name, block] for block in blocks] for name in FUNCTIONS}
    except OSError as error:
        raise KernelError(path, f"cannot be read ({error.strerror})", "name a file that --write left") from error
    except (ValueError, KeyError) as error:
        raise KernelError(path, f"does not hold a digest of every function and block ({error})", todo) from error
    if any(len(row) != hashlib.sha256().digest_size for rows in found.values() for row in rows):
        raise KernelError(path, "holds a line without a sha256", todo)
    return found


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(map(int, text.split(",")))
    if not all(0 <= number < BLOCKS for number in numbers):
        raise argparse.ArgumentTypeError(f"give numbers in 0..{BLOCKS - 1}")
    return numbers
