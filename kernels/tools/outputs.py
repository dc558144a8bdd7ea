"""What a tool leaves behind: dump files with their layout, the list of inputs, and the lines that name both."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

LAYOUT, INPUTS, FIGURES = "layout.json", "inputs.json", "figures.json"
DTYPE_NAMES = {"float32": "f32", "int32": "i32", "uint32": "u32", "uint8": "u8"}


@dataclass(frozen=True, slots=True)
class Input:
    """Something that decided bytes: what it is, where it came from, its sha256."""

    name: str
    origin: str
    digest: str


@dataclass(frozen=True, slots=True)
class Figure:
    """Numbers that are recorded and never judged: one for each time that it was measured."""

    name: str
    unit: str
    values: tuple[int, ...]


def tell(figure: Figure) -> None:
    """Prints a figure's median."""
    print(f"{figure.name}: {sorted(figure.values)[len(figure.values) // 2]:,} {figure.unit}, n {len(figure.values)}")


def write_figures(folder: Path, figures: list[Figure]) -> None:
    """Writes figures.json. Creates `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FIGURES).write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n", encoding="utf-8")


def write_dump(folder: Path, files: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, str]:
    """Writes each file as its arrays side by side, and layout.json; returns every file's digest. Creates `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    layout: dict[str, list[dict[str, object]]] = {}
    digests = {}
    for file, arrays in files.items():
        rows: list[dict[str, object]] = []
        content = b""
        for name, array in arrays.items():
            dtype = DTYPE_NAMES[array.dtype.name]
            rows.append({"name": name, "dtype": dtype, "shape": list(array.shape), "offset": len(content)})
            content += array.astype(array.dtype.newbyteorder("<")).tobytes()
        (folder / file).write_bytes(content)
        layout[file], digests[file] = rows, hashlib.sha256(content).hexdigest()
    (folder / LAYOUT).write_text(json.dumps(layout, indent=1) + "\n", encoding="utf-8")
    return digests


def digest(array: np.ndarray) -> np.ndarray:
    """u8 [32], the sha256 of an array's bytes."""
    return np.frombuffer(hashlib.sha256(np.ascontiguousarray(array).data).digest(), np.uint8)


def write_inputs(folder: Path, inputs: list[Input]) -> None:
    """Says in inputs.json what a dump was made from."""
    (folder / INPUTS).write_text(json.dumps([asdict(item) for item in inputs], indent=1) + "\n", encoding="utf-8")


def report(command: str, inputs: list[Input], outputs: Mapping[str, str]) -> None:
    """Prints what was run, on what, and what came out."""
    print(f"command: {command}")
    for item in inputs:
        print(f"input {item.name}: sha256:{item.digest} ({item.origin})")
    for name, digest in outputs.items():
        print(f"output {name}: sha256:{digest}")
