"""Checkpoint folders: what is read, and the one line that each kind of broken file gets."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.engine import checkpoint, config, weights
from kernels.engine.errors import KernelError

FIXTURE = Path(__file__).parents[1] / "kernels" / "fixtures" / "hf_small"
CONFIG = config.from_folder(FIXTURE)
Entries = dict[str, tuple[str, list[int], bytes]]


def entries() -> Entries:
    """The fixture's tensors by name: dtype, shape, bytes."""
    data = (FIXTURE / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    return {
        name: (e["dtype"], e["shape"], data[start + e["data_offsets"][0] : start + e["data_offsets"][1]])
        for name, e in header.items()
        if name != "__metadata__"
    }


def written(folder: Path, tensors: Entries) -> Path:
    """A checkpoint folder with these tensors and the fixture's config."""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)
    shutil.copyfile(FIXTURE / "config.json", folder / "config.json")
    return folder


def everything(folder: Path, c: config.Config = CONFIG, form: str = "f32") -> dict[str, Any]:
    opened = checkpoint.Checkpoint(folder, c, form)
    return {tensor.name: opened.read(tensor) for tensor in weights.tensors(c)}


def test_f32_is_read_as_it_lies() -> None:
    """Every tensor of the fixture is its bytes in the file, in its shape."""
    stored = entries()
    for name, value in everything(FIXTURE).items():
        dtype, shape, data = stored[name if name == weights.HEAD else f"model.{name}"]
        assert (dtype, shape, data) == ("F32", list(value.shape), value.tobytes())


def test_the_multimodal_prefix_gives_the_same(tmp_path: Path) -> None:
    """Under `model.language_model.`, with vision and draft parts beside it, the same tensors are found."""
    renamed = {name.replace("model.", "model.language_model.", 1): entry for name, entry in entries().items()}
    other: Entries = {"model.visual.x": ("F32", [1], bytes(4)), "mtp.fc.weight": ("F16", [2], bytes(4))}
    found = everything(written(tmp_path, renamed | other))
    assert {name: v.tobytes() for name, v in found.items()} == {n: v.tobytes() for n, v in everything(FIXTURE).items()}


def test_bf16_is_widened_exactly(tmp_path: Path) -> None:
    """A bf16 tensor is its 16 bits above 16 zeros; f32 ones beside it stay as they are."""
    mixed = entries()
    for name, (_dtype, shape, data) in mixed.items():
        if not name.endswith(("A_log", "linear_attn.norm.weight")):
            halves = np.frombuffer(data, dtype="<u4") >> 16
            mixed[name] = ("BF16", shape, halves.astype("<u2").tobytes())
    for name, value in everything(written(tmp_path, mixed)).items():
        exact = np.frombuffer(entries()[name if name == weights.HEAD else f"model.{name}"][2], dtype="<u4")
        wanted = exact if name.endswith(("A_log", "linear_attn.norm.weight")) else exact & 0xFFFF0000
        assert value.tobytes() == wanted.astype("<u4").tobytes()


def test_q4_packs_by_the_table() -> None:
    """Kept in q4, the table's q4 tensors arrive packed and the others in f32."""
    found = everything(FIXTURE, form="q4")
    for tensor in weights.tensors(CONFIG):
        assert isinstance(found[tensor.name], weights.Packed) == (tensor.form == weights.Q4)


@pytest.mark.parametrize("stored", [True, False])
def test_a_tied_head_is_not_read(tmp_path: Path, stored: bool) -> None:
    """A tied model needs no head in the file, and one that is there is passed over, as its publisher does."""
    kept = {name: entry for name, entry in entries().items() if stored or name != weights.HEAD}
    assert weights.HEAD not in everything(written(tmp_path, kept), replace(CONFIG, tied=True))


def drop(name: str) -> Callable[[Entries], object]:
    return lambda tensors: tensors.pop(name)


def put(name: str, dtype: str, shape: list[int], size: int) -> Callable[[Entries], object]:
    return lambda tensors: tensors.__setitem__(name, (dtype, shape, bytes(size)))


BROKEN = [
    (drop("model.layers.2.self_attn.q_norm.weight"), "missing tensor model.layers.2.self_attn.q_norm.weight"),
    (drop("lm_head.weight"), "tie_word_embeddings"),
    (drop("model.embed_tokens.weight"), "missing tensor model.embed_tokens.weight"),
    (put("model.norm.weight", "F32", [81], 324), "model.norm.weight has shape [81], not [80]"),
    (put("model.norm.weight", "F32", [80], 316), "model.norm.weight has offsets"),
    (put("model.norm.weight", "F16", [80], 160), "model.norm.weight has dtype F16"),
    (
        put("model.layers.2.self_attn.q_proj.bias", "F32", [4], 16),
        "unknown tensor model.layers.2.self_attn.q_proj.bias",
    ),
    (put("model.layers.4.input_layernorm.weight", "F32", [80], 320), "unknown tensor model.layers.4"),
]


@pytest.mark.parametrize(("edit", "words"), BROKEN, ids=[words for _edit, words in BROKEN])
def test_a_wrong_tensor_is_named(tmp_path: Path, edit: Callable[[Entries], object], words: str) -> None:
    """A missing, misshapen, mistyped or unknown tensor gets a line with file, tensor and remedy before any is read."""
    tensors = entries()
    edit(tensors)
    with pytest.raises(KernelError) as error:
        checkpoint.Checkpoint(written(tmp_path, tensors), CONFIG, "f32")
    line = str(error.value)
    assert words in line and line.startswith(str(tmp_path / "model.safetensors")) and "\n" not in line


GOOD = (FIXTURE / "model.safetensors").read_bytes()
HEADER_END = 8 + int.from_bytes(GOOD[:8], "little")


def with_header(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text + GOOD[HEADER_END:]


FILES = [
    (None, "cannot be read"),
    (b"", "truncated"),
    (GOOD[:7], "truncated"),
    (GOOD[: HEADER_END - 1], "truncated"),
    (GOOD[:-1], "truncated in tensor"),
    (b"\xff" * 64, "truncated"),
    (with_header(b"{]"), "not JSON"),
    (with_header(b"[1]"), "not a table"),
    (with_header(b'{"model.embed_tokens.weight": 5}'), "not a table"),
    (with_header(GOOD[8:HEADER_END].replace(b'"data_offsets":[', b'"data_offsets":[-4,', 1)), "offsets"),
    (with_header(GOOD[8:HEADER_END].replace(b'"data_offsets":', b'"else":', 1)), "offsets"),
]


@pytest.mark.parametrize(("content", "words"), FILES, ids=range(len(FILES)))
def test_a_broken_file_is_one_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    """A file that is absent, empty, cut anywhere, or has no sound header is refused in one line with its path."""
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(KernelError) as error:
        checkpoint.Checkpoint(tmp_path, CONFIG, "f32")
    assert words in str(error.value) and str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_parts_are_not_mistaken_for_nothing(tmp_path: Path) -> None:
    """A checkpoint in several files is told what to do."""
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(KernelError, match="merge the parts"):
        checkpoint.Checkpoint(tmp_path, CONFIG, "f32")


def test_a_form_has_two_names() -> None:
    """Weights are kept in f32 or q4 and in nothing else."""
    with pytest.raises(KernelError, match="q8"):
        checkpoint.Checkpoint(FIXTURE, CONFIG, "q8")


def test_the_fixture_is_what_its_maker_wrote() -> None:
    """Every file of the fixture has the digest that its origin.json records, with the command and versions."""
    import hashlib

    origin = json.loads((FIXTURE / "origin.json").read_text())
    for name, digest in origin["files"].items():
        assert hashlib.sha256((FIXTURE / name).read_bytes()).hexdigest() == digest, name
    assert origin["versions"]["transformers"] == "5.24.0" and "make_fixture.py" in origin["command"]
