"""python -m kernels mt: behind a prefix of single tokens M rows in one forward, or M single tokens; then four more.

Leaves for every case h_out.f32 and logits.f32 [M + 4][..], greedy.i32 [M + 4], and planes.u8: a digest of every state
plane after the M, and after the four. With --leave launches instead launches.i32: what ran on which grids, in which the
two forms differ. Singles run with the gate closed. --form both runs the two beside each other, prints a line for each M
and exits 1 unless every byte is equal; --out is then left alone.
"""

import argparse
import hashlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact
from kernels.engine.config import LAYER_KINDS
from kernels.engine.r_table import ROWS_MAX

from .forms import FORMS, row_counts
from .inputs import LARGE, Digested, file_digest, recipes
from .outputs import Input, digest, report, write_dump, write_inputs
from .watch import Watched, open_watched, set_gate

TEXT = Path(__file__).parents[1] / "text" / "kestrel.txt"
MORE = 4  # single tokens that follow
PREFIX_MAX = 512
SAME = "same"  # --mm: MM = M
BOTH = "both"
DIFFERENT = 1
STATE = " after "  # in the name of a plane


@dataclass(frozen=True, slots=True)
class Case:
    """M rows behind `prefix` tokens, in an engine whose slab holds mm."""

    mm: int
    rows: int
    prefix: int

    @property
    def name(self) -> str:
        return f"M{self.rows} of {self.mm} behind {self.prefix}"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels mt", description=__doc__, allow_abbrev=False)
    add_arguments(parser)
    parser.add_argument("--form", required=True, choices=(*FORMS, BOTH))
    parser.add_argument("--leave", choices=("outputs", "launches"), default="outputs")
    options = parser.parse_args(argv)
    if (options.form == BOTH) == (options.out is not None):
        parser.error(f"--out is needed with every form but {BOTH}, and only there")
    path = options.artifact or artifact.tree()
    bench = Bench(parser, options, artifact.load(path))
    if options.form == BOTH:
        return _compared(bench, options)
    files: dict[str, dict[str, np.ndarray]] = {}
    for case, found in run(bench, options, options.form):
        for name, array in found.items():
            file, entry = _place(case, name, array)
            files.setdefault(file, {}).update(entry)
    if options.leave == "launches":
        files = {"launches.i32": {"launches": np.concatenate([device.numbered() for device in bench.devices])}}
    leave(options.out, files, path, bench, shlex.join(["python", "-m", "kernels", "mt", *argv]))
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that choose model and cases."""
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--shape", help="a named shape, with --layers")
    which.add_argument("--checkpoint", type=Path, metavar="DIR", help="a checkpoint folder, with --weights")
    parser.add_argument("--layers", choices=LAYER_KINDS)
    parser.add_argument("--weights", help="f32 or q4: how a checkpoint is kept")
    parser.add_argument("--seed", type=int, default=1, help="of a named shape's weights; 1 without it")
    parser.add_argument("--rows", required=True, type=row_counts, metavar="M", help="2..8, or 2,4,8")
    parser.add_argument(
        "--mm", type=_limits, default=(ROWS_MAX,), metavar="MM", help="8, same, or 8,same; 8 without it"
    )
    parser.add_argument("--prefix", type=_prefixes, default=(0, 1, 5, 17), metavar="P", help="0,1,5,17 without it")
    parser.add_argument("--out", type=Path, metavar="DIR")


class Bench:
    """A model, its tokens, and engines on it."""

    def __init__(self, parser: argparse.ArgumentParser, options: argparse.Namespace, opened: artifact.Artifact):
        if (options.shape is None) == (options.layers is not None):
            parser.error("--layers is needed with --shape, and only there")
        if (options.checkpoint is None) == (options.weights is not None):
            parser.error("--weights is needed with --checkpoint, and only there")
        self._opened, self._options = opened, options
        entry = opened.entry
        entry("forward_rows")  # an artifact without it is refused before anything runs
        if options.shape is not None:
            self._config = entry("shape")(options.shape, layers=options.layers)
        else:
            self._config = entry("from_folder")(options.checkpoint)
        longest = max(options.prefix) + max(options.rows) + MORE
        self.tokens = tuple(byte % self._config.vocab for byte in TEXT.read_bytes()[:longest])
        self.devices: list[Watched] = []
        self.inputs = [Input("text", TEXT.name, file_digest(TEXT))]

    def engine(self, gate: str | None) -> Any:
        """A new engine under that gate."""
        set_gate(gate)
        options, entry = self._options, self._opened.entry
        if options.shape is not None:
            made, described = entry("Synthetic")(options.seed), f"{options.shape} {options.layers}"
        else:
            made, described = entry("Checkpoint")(options.checkpoint, self._config, options.weights), "a checkpoint"
        weights = made if options.shape == LARGE else Digested(made, described)
        engine, device = open_watched(self._opened, self._config, weights, capacity=len(self.tokens))
        if not self.devices:
            named = weights.input() if isinstance(weights, Digested) else recipes(made, self._config, described)
            self.inputs.append(named)
        self.devices.append(device)
        return engine


def run(bench: Bench, options: argparse.Namespace, form: str) -> Iterator[tuple[Case, dict[str, np.ndarray]]]:
    """Every case, and what it left by name. One engine for all rows of one MM."""
    engines: dict[int, Any] = {}
    for limit in options.mm:
        for rows in options.rows:
            mm = limit or rows
            engine = engines.get(mm) or engines.setdefault(mm, bench.engine(str(mm) if form == "rows" else None))
            for prefix in options.prefix:
                yield Case(mm, rows, prefix), RUN[form](engine, bench.tokens, prefix, rows)
    for engine in engines.values():
        engine.close()


def in_singles(engine: Any, tokens: tuple[int, ...], prefix: int, rows: int) -> dict[str, np.ndarray]:
    """What is seen of the rows behind a prefix, and of the tokens after them, one token at a time; by name."""
    _begin(engine, tokens[:prefix])
    seen = _singles(engine, tokens[prefix : prefix + rows])
    return _finished(engine, seen, tokens[prefix + rows : prefix + rows + MORE])


def in_rows(engine: Any, tokens: tuple[int, ...], prefix: int, rows: int) -> dict[str, np.ndarray]:
    """The same with the rows in one forward; before and after them one token at a time."""
    _begin(engine, tokens[:prefix])
    engine.forward_rows(tokens[prefix : prefix + rows])
    seen = list(zip(engine.hidden_rows(), engine.logits_rows(), engine.argmax_rows(), strict=True))
    return _finished(engine, seen, tokens[prefix + rows : prefix + rows + MORE])


RUN = {"singles": in_singles, "rows": in_rows}


def _begin(engine: Any, tokens: tuple[int, ...]) -> None:
    engine.reset()
    for token in tokens:
        engine.forward(token)


def _singles(engine: Any, tokens: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """(hidden, logits, greedy) of each."""
    seen = []
    for token in tokens:
        engine.forward(token)
        seen.append((engine.hidden(), engine.logits(), engine.argmax()))
    return seen


def _finished(engine: Any, seen: list[Any], more: tuple[int, ...]) -> dict[str, np.ndarray]:
    """What was seen, the planes now, four more tokens and the planes then."""
    planes = {f"{name}{STATE}M": plane for name, plane in engine.planes().items()}
    hidden, logits, greedy = zip(*seen, *_singles(engine, more), strict=True)
    planes |= {f"{name}{STATE}M + {MORE}": plane for name, plane in engine.planes().items()}
    rows = {"h_out": np.stack(hidden), "logits": np.stack(logits), "greedy": np.array(greedy, np.int32)}
    return rows | planes


FILES = {"h_out": "h_out.f32", "logits": "logits.f32", "greedy": "greedy.i32"}


def _place(case: Case, name: str, array: np.ndarray) -> tuple[str, dict[str, np.ndarray]]:
    """The file of an array, and the entry in it."""
    if name in FILES:
        return FILES[name], {case.name: array}
    return "planes.u8", {f"{case.name}: {name}": digest(array)}


def leave(folder: Path, files: Mapping[str, Mapping[str, np.ndarray]], path: Path, bench: Bench, command: str) -> None:
    """The files are written, with what they were made of, and printed."""
    outputs = write_dump(folder, files)
    inputs = [Input("artifact", path.name, file_digest(path)), *bench.inputs]
    write_inputs(folder, inputs)
    report(command, inputs, outputs)


def _compared(bench: Bench, options: argparse.Namespace) -> int:
    """Prints a line for each M; the exit code."""
    lines: dict[int, Line] = {}
    for (case, one), (_case, other) in zip(*(run(bench, options, form) for form in FORMS), strict=True):
        lines.setdefault(case.rows, Line()).add(one, other)
    print(f"{'M':>3} {'planes':>7} {'bytes':>12} {'differing':>10}  digest of the rows form")
    for rows, line in lines.items():
        print(f"{rows:>3} {line.planes:>7} {line.bytes:>12,} {line.differing:>10,}  {line.hash.hexdigest()}")
    for rows, line in lines.items():
        if line.first:
            print(f"M = {rows} differs first in {line.first}")
    return DIFFERENT if any(line.differing for line in lines.values()) else 0


class Line:
    """Two forms of one M, over all its cases."""

    def __init__(self) -> None:
        self.planes = self.bytes = self.differing = 0
        self.first = ""
        self.hash = hashlib.sha256()

    def add(self, one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
        """Arrays of the two by name. One that either lacks differs whole."""
        for name in dict.fromkeys((*one, *other)):
            left, right = (
                np.frombuffer(found[name].tobytes() if name in found else b"", np.uint8) for found in (one, other)
            )
            shared = min(len(left), len(right))
            differing = max(len(left), len(right)) - int((left[:shared] == right[:shared]).sum())
            self.planes += STATE in name
            self.bytes += len(right)
            self.differing += differing
            self.first = self.first or (name if differing else "")
            self.hash.update(right.tobytes())


def _limits(text: str) -> tuple[int | None, ...]:
    """Rows that a slab holds; None for `same`, which is each M."""
    found = tuple(None if word == SAME else int(word) for word in text.split(","))
    if not all(limit is None or 2 <= limit <= ROWS_MAX for limit in found):
        raise argparse.ArgumentTypeError(f"give {SAME}, or numbers in 2..{ROWS_MAX}")
    return found


def _prefixes(text: str) -> tuple[int, ...]:
    found = tuple(map(int, text.split(",")))
    if not all(0 <= prefix <= PREFIX_MAX for prefix in found):
        raise argparse.ArgumentTypeError(f"give numbers in 0..{PREFIX_MAX}")
    return found
