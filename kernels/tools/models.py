"""The small models that rows are tried on: named shapes with weights from a seed, and the fixtures' checkpoint."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels import artifact

from .inputs import LARGE, Digested, file_digest, recipes
from .outputs import Input
from .watch import Watched, open_watched, set_gate

FIXTURES = Path(__file__).parents[1] / "fixtures"
TEXT = Path(__file__).parents[1] / "text" / "kestrel.txt"
SHAPES, CHECKPOINT = ("tiny", "mini64", "27b"), "hf_small"
CHECKPOINTS = {CHECKPOINT: "q4", f"{CHECKPOINT}-f32": "f32"}  # the fixture, and how it is kept
LAYERS = ("attn", "gdn", "hybrid")
SEED = 1


@dataclass(frozen=True, slots=True)
class Model:
    """A named shape with one kind of layers, or the checkpoint, which has its own."""

    shape: str
    layers: str | None

    @property
    def name(self) -> str:
        return f"{self.shape}-{self.layers}" if self.layers else self.shape

    def config(self, opened: artifact.Artifact) -> Any:
        """As the artifact sees it."""
        if self.layers is None:
            return opened.entry("from_folder")(FIXTURES / CHECKPOINT)
        return opened.entry("shape")(self.shape, layers=self.layers)

    def open(self, opened: artifact.Artifact, *, capacity: int, rows: int, **more: int) -> tuple[Any, Watched, Input]:
        """An engine that takes so many rows, what its device notes, and its weights. Raises KernelError."""
        config = self.config(opened)
        if self.layers is None:
            weights = opened.entry("Checkpoint")(FIXTURES / CHECKPOINT, config, CHECKPOINTS[self.shape])
        else:
            weights = opened.entry("Synthetic")(SEED)
        source = weights if self.shape == LARGE else Digested(weights, self.name)
        set_gate(str(rows))
        engine, device = open_watched(opened, config, source, capacity=capacity, **more)
        return engine, device, source.input() if isinstance(source, Digested) else recipes(source, config, self.name)


def add_models(parser: argparse.ArgumentParser) -> None:
    """The arguments that choose an artifact and models, and where to leave what was seen."""
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    known = (*SHAPES, *CHECKPOINTS)
    parser.add_argument("--shape", required=True, type=_words(*known), metavar="NAMES", help=f"of {', '.join(known)}")
    text = f"of {', '.join(LAYERS)}; {CHECKPOINT} has its own"
    parser.add_argument("--layers", required=True, type=_words(*LAYERS), metavar="NAMES", help=text)
    parser.add_argument("--out", type=Path, metavar="DIR")


def models(options: argparse.Namespace) -> tuple[Model, ...]:
    """Every shape with every kind of layers."""
    kinds = {shape: (None,) if shape in CHECKPOINTS else options.layers for shape in options.shape}
    return tuple(Model(shape, layers) for shape, named in kinds.items() for layers in named)


def text(vocab: int, count: int) -> tuple[int, ...]:
    """The first tokens of the text."""
    return tuple(byte % vocab for byte in TEXT.read_bytes()[:count])


def read(path: Path) -> list[Input]:
    """What every run of these tools reads beside weights."""
    return [Input("artifact", path.name, file_digest(path)), Input("text", TEXT.name, file_digest(TEXT))]


def _words(*known: str) -> Any:
    def words(argument: str) -> tuple[str, ...]:
        found = tuple(argument.split(","))
        if not set(found) <= set(known):
            raise argparse.ArgumentTypeError(f"give some of {', '.join(known)}")
        return found

    return words
