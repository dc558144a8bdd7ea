"""python -m kernels refusals --case NAME [--artifact A] --out DIR: drive an artifact into one refusal.

The refusal ends the process: exit 5 where the engine says no, 2 where a file is at fault, 0 if nothing was refused,
which is the failure. Where a state exists DIR gets before.bin and after.bin, all planes on either side of it; they must
be equal. A case works on the fixture kernels/fixtures/hf_small, or on a copy that it spoils; for rows: row_refusals.py.
"""

import argparse
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kernels import artifact, compilers
from kernels.engine.errors import KernelError, Refused

from . import mark_refusals, row_refusals
from .outputs import write_dump

FIXTURE = Path(__file__).parents[1] / "fixtures" / "hf_small"
WARM_UP = (17, 3, 250)  # tokens that give every plane a value
LIMIT_BYTES = 1_000_000  # the fixture's weights alone are larger
ABSENT = "model.layers.1.mlp.up_proj.weight"
MISSHAPEN = "model.layers.0.linear_attn.conv1d.weight"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels refusals", description=__doc__, allow_abbrev=False)
    parser.add_argument("--case", required=True, choices=tuple(CASES))
    parser.add_argument("--artifact", type=Path, help="without it: the build of this tree")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    opened = artifact.load(options.artifact or artifact.tree())
    CASES[options.case][2](opened, options.out)
    print(f"{options.case}: not refused")
    return 0


def _open(opened: artifact.Artifact, folder: Path, **limits: Any) -> Any:
    config = opened.entry("from_folder")(folder)
    weights = opened.entry("Checkpoint")(folder, config, "f32")
    return opened.entry("open")(opened.binary, config, weights, **limits)


def _on_state(last: int, *, capacity: int) -> Callable[[artifact.Artifact, Path], None]:
    """A case: after the warm-up, the token `last`."""

    def case(opened: artifact.Artifact, out: Path) -> None:
        engine = _open(opened, FIXTURE, capacity=capacity)
        for token in WARM_UP:
            engine.forward(token)
        before = engine.planes()
        try:
            engine.forward(last)
        finally:
            write_dump(out, {"before.bin": before, "after.bin": engine.planes()})

    return case


def _on_limit(opened: artifact.Artifact, out: Path) -> None:
    _open(opened, FIXTURE, capacity=len(WARM_UP), limit_bytes=LIMIT_BYTES)


def _with_graphs(opened: artifact.Artifact, out: Path) -> None:
    _open(opened, FIXTURE, capacity=len(WARM_UP), graphs=True)


def _on_file(spoil: Callable[[Path], None]) -> Callable[[artifact.Artifact, Path], None]:
    """A case: opening a spoilt copy of the fixture."""

    def case(opened: artifact.Artifact, out: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="kestrel-spoilt-") as private:
            folder = Path(private)
            for name in ("config.json", "model.safetensors"):
                shutil.copyfile(FIXTURE / name, folder / name)
            spoil(folder)
            _open(opened, folder, capacity=len(WARM_UP))

    return case


def _without_required(opened: artifact.Artifact, out: Path) -> None:
    """Each required entry in turn is taken away: no such artifact loads. The last one's error stays."""
    required = [entry.name for entry in artifact.ENTRIES if entry.required]
    for name in required[:-1]:
        try:
            _without(opened, name)
        except KernelError as error:
            if f"lacks the required entry {name}" in str(error):
                continue
            raise
        return
    _without(opened, required[-1])


def _without_optional(opened: artifact.Artifact, out: Path) -> None:
    """Each optional entry in turn is taken away: every such artifact loads, and using it is refused."""
    optional = [entry.name for entry in artifact.ENTRIES if not entry.required]
    for name in optional[:-1]:
        try:
            _without(opened, name).entry(name)
        except Refused as error:
            if error.reason == artifact.NO_ENTRY:
                continue
            raise
        return
    _without(opened, optional[-1]).entry(optional[-1])


def _without(opened: artifact.Artifact, name: str) -> artifact.Artifact:
    """The artifact of these files without one entry, opened. Raises KernelError."""
    folder = opened.binary.parent
    members = {f"engine/{path.name}": path.read_bytes() for path in sorted((folder / "engine").glob("*.py"))}
    members[compilers.target(opened.target).binary] = opened.binary.read_bytes()
    members["engine/__init__.py"] += f"\n{name} = Engine.{name} = None\n".encode()
    with tempfile.TemporaryDirectory(prefix="kestrel-spoilt-") as private:
        path = Path(private) / "without.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for member, data in members.items():
                archive.writestr(member, data)
        return artifact.load(path)


def _other_architecture(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "qwen3_next"}))


def _without_tensor(folder: Path) -> None:
    _edit_header(folder, lambda entries: entries.pop(ABSENT))


def _misshapen_tensor(folder: Path) -> None:
    _edit_header(folder, lambda entries: entries[MISSHAPEN]["shape"].reverse())


def _truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 1])


def _edit_header(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    end = 8 + int(np.frombuffer(data[:8], dtype="<u8")[0])
    entries = json.loads(data[8:end])
    edit(entries)
    header = json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])


VOCAB = 288  # of the fixture

# case: (exit code, a word of the line that is printed, what to do)
CASES: dict[str, tuple[int, str, Callable[[artifact.Artifact, Path], None]]] = {
    "token-above": (5, "token-range", _on_state(VOCAB, capacity=8)),
    "token-negative": (5, "token-range", _on_state(-1, capacity=8)),
    "context-full": (5, "context-full", _on_state(1, capacity=len(WARM_UP))),
    "limit-bytes": (5, "limit-bytes", _on_limit),
    "required-entry": (2, "lacks the required entry", _without_required),
    "optional-entry": (5, artifact.NO_ENTRY, _without_optional),
    "architecture": (2, "unsupported", _on_file(_other_architecture)),
    "missing-tensor": (2, "missing", _on_file(_without_tensor)),
    "misshapen-tensor": (2, "shape", _on_file(_misshapen_tensor)),
    "truncated-file": (2, "truncated", _on_file(_truncated)),
    "graphs": (5, "no-graphs", _with_graphs),
    **row_refusals.CASES,
    **mark_refusals.CASES,
}
