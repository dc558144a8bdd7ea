"""The tensors of a model: the one table of names, shapes and forms, and the packed form that the kernels read.

Names and shapes are those of a published checkpoint after its prefix. Source: reference qwen35.md, sections 6 and 8.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .config import GDN, Config
from .errors import KernelError

Q4, F32 = "q4", "f32"
FORMS = (Q4, F32)
BLOCK = 32  # columns that share a scale
CHUNK = 256  # columns that a warp reads in one sweep: 32 words of 8 nibbles
BLOCKS_A_CHUNK = CHUNK // BLOCK
NIBBLE_ZERO = 8  # the nibble that stands for 0
ROWS_AT_ONCE_BYTES = 1 << 24  # packing works on this much of a matrix at a time
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"

# Which tensor is q4 and which stays f32. Sizes by letter: E hidden, F intermediate, V vocab, C convolution channels,
# T taps, N value heads, Z value width, W value head size, Q query width, 2Q query and gate, K key/value width,
# D head size.
#    part    name                              shape           form
TABLE = (
    ("top", EMBEDDING,                        ("V", "E"),       Q4),
    ("all", "input_layernorm.weight",         ("E",),           F32),
    ("gdn", "linear_attn.in_proj_qkv.weight", ("C", "E"),       Q4),
    ("gdn", "linear_attn.in_proj_z.weight",   ("Z", "E"),       Q4),
    ("gdn", "linear_attn.in_proj_b.weight",   ("N", "E"),       F32),
    ("gdn", "linear_attn.in_proj_a.weight",   ("N", "E"),       F32),
    ("gdn", "linear_attn.conv1d.weight",      ("C", "1", "T"),  F32),
    ("gdn", "linear_attn.A_log",              ("N",),           F32),
    ("gdn", "linear_attn.dt_bias",            ("N",),           F32),
    ("gdn", "linear_attn.norm.weight",        ("W",),           F32),
    ("gdn", "linear_attn.out_proj.weight",    ("E", "Z"),       Q4),
    ("attn", "self_attn.q_proj.weight",       ("2Q", "E"),      Q4),
    ("attn", "self_attn.k_proj.weight",       ("K", "E"),       Q4),
    ("attn", "self_attn.v_proj.weight",       ("K", "E"),       Q4),
    ("attn", "self_attn.q_norm.weight",       ("D",),           F32),
    ("attn", "self_attn.k_norm.weight",       ("D",),           F32),
    ("attn", "self_attn.o_proj.weight",       ("E", "Q"),       Q4),
    ("all", "post_attention_layernorm.weight", ("E",),          F32),
    ("all", "mlp.gate_proj.weight",           ("F", "E"),       Q4),
    ("all", "mlp.up_proj.weight",             ("F", "E"),       Q4),
    ("all", "mlp.down_proj.weight",           ("E", "F"),       Q4),
    ("end", "norm.weight",                    ("E",),           F32),
    ("end", HEAD,                             ("V", "E"),       Q4),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a model; `form` is what it is kept in where a model is packed."""

    name: str
    shape: tuple[int, ...]
    form: str


@dataclass(frozen=True, slots=True)
class Packed:
    """A q4 matrix: value = (nibble - 8) * scale.

    words u32 [rows][chunks*32]: nibble j of word c*32+l is column c*256 + j*32 + l.
    scales u16, f16 bits, [rows][chunks*8]: entry c*8+j belongs to columns c*256 + j*32 .. +31. Absent columns: 8 and 0.
    """

    words: np.ndarray
    scales: np.ndarray
    rows: int
    cols: int


class Weights(Protocol):
    """Where tensors come from. `form` is Q4 or F32: what the table's q4 matrices arrive in."""

    form: str
    origin: str

    def read(self, tensor: Tensor) -> np.ndarray | Packed: ...


def tensors(config: Config) -> Iterator[Tensor]:
    """Every tensor of the model in the order of its use; a tied head is no tensor of its own."""
    sizes = {
        "E": config.hidden, "F": config.intermediate, "V": config.vocab, "C": config.channels, "1": 1,
        "T": config.conv_kernel, "N": config.value_heads, "Z": config.value_width, "W": config.value_dim,
        "Q": config.q_width, "2Q": 2 * config.q_width, "K": config.kv_width, "D": config.head_dim,
    }  # fmt: skip

    def rows(part: tuple[str, ...], prefix: str) -> Iterator[Tensor]:
        for where, name, letters, form in TABLE:
            if where in part:
                yield Tensor(prefix + name, tuple(sizes[letter] for letter in letters), form)

    yield from rows(("top",), "")
    for i, kind in enumerate(config.kinds):
        yield from rows(("all", "gdn" if kind == GDN else "attn"), f"layers.{i}.")
    yield from (tensor for tensor in rows(("end",), "") if not (config.tied and tensor.name == HEAD))


def chunks(cols: int) -> int:
    """Sweeps of 256 columns that a row takes."""
    return -(-cols // CHUNK)


def stored_bytes(tensor: Tensor, form: str) -> tuple[int, ...]:
    """What a tensor takes on the device, buffer by buffer: words and scales, or plain values."""
    if form == Q4 and tensor.form == Q4:
        rows, cols = tensor.shape
        return rows * chunks(cols) * CHUNK // 2, rows * chunks(cols) * 2 * BLOCKS_A_CHUNK
    return (4 * int(np.prod(tensor.shape, dtype=np.int64)),)


def present(cols: int) -> np.ndarray:
    """bool [chunks*32][8]: whether nibble j of a word stands for a column that exists."""
    places = np.arange(chunks(cols) * CHUNK).reshape(-1, BLOCKS_A_CHUNK, BLOCK)  # [chunk][j][lane]
    return (places < cols).transpose(0, 2, 1).reshape(-1, BLOCKS_A_CHUNK)


def pack(matrix: np.ndarray, *, where: str) -> Packed:
    """A f32 matrix as Q4_0. Raises KernelError where a weight has no half-precision scale.

    Per block: m the element of largest magnitude (the first on ties), d = m / -8, q = min(15, trunc(w / d + 8.5)).
    """
    rows, cols = matrix.shape
    width = chunks(cols) * CHUNK
    words = np.empty((rows, width // BLOCKS_A_CHUNK), dtype=np.uint32)
    scales = np.empty((rows, width // BLOCK), dtype=np.uint16)
    step = max(1, ROWS_AT_ONCE_BYTES // (4 * width))
    for top in range(0, rows, step):
        part = np.zeros((min(step, rows - top), width), dtype=np.float32)
        part[:, :cols] = matrix[top : top + step]
        if not np.isfinite(part).all():
            raise KernelError(where, "holds a NaN or an infinity", "fetch the checkpoint again")
        nibbles, halves = _quantise(part.reshape(len(part), -1, BLOCK))
        if not np.isfinite(halves).all():
            raise KernelError(where, "has weights beyond half precision", "keep this checkpoint in f32 (--weights f32)")
        scales[top : top + step] = halves.view(np.uint16)
        words[top : top + step] = _words(nibbles)
    return Packed(words, scales, rows, cols)


def _quantise(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """blocks f32 [rows][n][32] to nibbles u32 [rows][n][32] and scales f16 [rows][n]."""
    first = np.abs(blocks).argmax(axis=2)
    scale = np.take_along_axis(blocks, first[:, :, None], axis=2)[:, :, 0] / np.float32(-8)
    scale = np.where(scale == 0, np.float32(0), scale)  # an all-zero block has scale +0
    with np.errstate(over="ignore"):
        inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
        halves = scale.astype(np.float16)
    steps = np.minimum(blocks * inverse[:, :, None] + np.float32(8.5), np.float32(15))
    return steps.astype(np.uint32), halves


def _words(nibbles: np.ndarray) -> np.ndarray:
    """nibbles u32 [rows][chunks*8][32] to words u32 [rows][chunks*32]: block j of a chunk is nibble j of its words."""
    rows = len(nibbles)
    lanes = nibbles.reshape(rows, -1, BLOCKS_A_CHUNK, BLOCK)
    words = np.zeros((rows, lanes.shape[1], BLOCK), dtype=np.uint32)
    for j in range(BLOCKS_A_CHUNK):
        words |= lanes[:, :, j] << np.uint32(4 * j)
    return words.reshape(rows, -1)
