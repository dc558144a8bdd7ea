"""A checkpoint folder: config.json and model.safetensors in f32 or bf16, both published prefixes, head tied or not.

Reads the header of the file itself, checks all of it against the table of tensors first, and copies tensors as they are
asked for. Source: reference qwen35.md section 6; the safetensors format description.
"""

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from .config import Config
from .errors import KernelError
from .weights import F32, FORMS, HEAD, Packed, Tensor, pack, tensors

PREFIXES = ("model.language_model.", "model.")  # the longer one first
SKIPPED = ("model.visual.", "mtp.")  # parts of a published file that a text decoder does not use
DTYPES = {"F32": 4, "BF16": 2}  # bytes an element
HEADER_BYTES_MAX = 100_000_000  # the format's own limit
AGAIN = "fetch the file again"


class Checkpoint:
    """Weights of a folder, kept in `form`. Raises KernelError at once for anything that a later read would miss."""

    def __init__(self, folder: Path, config: Config, form: str):
        if form not in FORMS:
            raise KernelError(f"weights {form}", "unknown form", f"use one of {', '.join(FORMS)}")
        self.form = form
        self.path = Path(folder) / "model.safetensors"
        self.origin = f"checkpoint, kept in {form}"
        self._data = _mapped(self.path)
        self._start, self._entries = _header(self.path, self._data)
        self._prefix = _prefix(self.path, self._entries)
        wanted = {self._stored_name(tensor.name): tensor for tensor in tensors(config)}
        for name, tensor in wanted.items():
            self._place(name, tensor)
        for name in self._entries.keys() - wanted.keys():
            if not name.startswith(SKIPPED) and not (config.tied and name == HEAD):
                raise KernelError(self.path, f"unknown tensor {name}", "use a model of this architecture")

    def read(self, tensor: Tensor) -> np.ndarray | Packed:
        """f32 in the tensor's shape, or packed."""
        name = self._stored_name(tensor.name)
        dtype, start, count = self._place(name, tensor)
        if dtype == "F32":
            values = np.frombuffer(self._data, dtype="<f4", count=count, offset=start).astype(np.float32)
        else:
            halves = np.frombuffer(self._data, dtype="<u2", count=count, offset=start)
            values = (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
        values = values.reshape(tensor.shape)
        if self.form == F32 or tensor.form == F32:
            return values
        return pack(values, where=f"{self.path}: {name}")

    def _stored_name(self, name: str) -> str:
        return name if name == HEAD else self._prefix + name

    def _place(self, name: str, tensor: Tensor) -> tuple[str, int, int]:
        """dtype, first byte and number of elements of a tensor."""
        entry = self._entries.get(name)
        if entry is None:
            todo = "set tie_word_embeddings, or use a complete file" if name == HEAD else "use a complete file"
            raise KernelError(self.path, f"missing tensor {name}", todo)
        dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
        if shape != list(tensor.shape):
            what = f"tensor {name} has shape {shape}, not {list(tensor.shape)}"
            raise KernelError(self.path, what, "config.json is another model's")
        if dtype not in DTYPES:
            raise KernelError(self.path, f"tensor {name} has dtype {dtype}", f"use a file in {' or '.join(DTYPES)}")
        count = int(np.prod(tensor.shape, dtype=np.int64))
        first, last = _offsets(offsets)
        if first < 0 or last - first != count * DTYPES[dtype]:
            raise KernelError(self.path, f"tensor {name} has offsets {offsets}, which do not fit its shape", AGAIN)
        if self._start + last > len(self._data):
            raise KernelError(self.path, f"truncated in tensor {name}", AGAIN)
        return dtype, self._start + first, count


def _offsets(value: Any) -> tuple[int, int]:
    if isinstance(value, list) and len(value) == 2 and all(type(item) is int for item in value):
        return value[0], value[1]
    return -1, -1


def _mapped(path: Path) -> mmap.mmap:
    """The file's bytes, read only."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        sharded = path.with_name(path.name + ".index.json").exists()
        todo = "merge the parts of this checkpoint into one file" if sharded else "name a checkpoint folder"
        raise KernelError(path, f"cannot be read ({error.strerror})", todo) from error
    except ValueError as error:
        raise KernelError(path, "truncated: the file is empty", AGAIN) from error


def _header(path: Path, data: mmap.mmap) -> tuple[int, dict[str, dict[str, Any]]]:
    """First byte of the data, and the entries by name."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(len(data) - 8, HEADER_BYTES_MAX):
        raise KernelError(path, "truncated in its header, or no safetensors file", AGAIN)
    try:
        entries = json.loads(data[8 : 8 + size].decode("utf-8"))
    except ValueError as error:
        raise KernelError(path, "has a header that is not JSON", AGAIN) from error
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise KernelError(path, "has a header that is not a table of tensors", AGAIN)
    entries.pop("__metadata__", None)
    return 8 + size, entries


def _prefix(path: Path, entries: dict[str, Any]) -> str:
    """The prefix that this file's names have."""
    for prefix in PREFIXES:
        if f"{prefix}embed_tokens.weight" in entries:
            return prefix
    raise KernelError(path, f"missing tensor {PREFIXES[1]}embed_tokens.weight", "use a Qwen3.5 checkpoint")
