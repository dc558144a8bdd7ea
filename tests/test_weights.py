"""The table of tensors, and Q4_0 packing against a scalar reading of its rule."""

import numpy as np
import pytest

from kernels.engine import config, weights
from kernels.engine.errors import KernelError

HYBRID = config.shape("27b", layers="hybrid")


def test_27b_has_851_tensors() -> None:
    """The table gives 27B the 851 tensors and 26,895,998,464 parameters that qwen35.md section 1 counts."""
    found = list(weights.tensors(HYBRID))
    assert len(found) == len({tensor.name for tensor in found}) == 851
    assert sum(int(np.prod(tensor.shape, dtype=np.int64)) for tensor in found) == 26_895_998_464


def test_matrices_are_q4_but_for_two() -> None:
    """Every matrix is q4, embedding and head among them, but for the projections a and b; all else stays f32."""
    plain = {t.name.split(".", 2)[-1] for t in weights.tensors(HYBRID) if len(t.shape) == 2 and t.form == weights.F32}
    assert plain == {"linear_attn.in_proj_a.weight", "linear_attn.in_proj_b.weight"}
    assert all(len(t.shape) == 2 for t in weights.tensors(HYBRID) if t.form == weights.Q4)
    tops = {t.name: t.form for t in weights.tensors(HYBRID)}
    assert tops[weights.EMBEDDING] == tops[weights.HEAD] == weights.Q4


def test_a_tied_head_is_no_tensor() -> None:
    """A tied model has one tensor less: the head."""
    from dataclasses import replace

    names = {tensor.name for tensor in weights.tensors(replace(HYBRID, tied=True))}
    assert weights.HEAD not in names and len(names) == 850


def unpacked(packed: weights.Packed) -> np.ndarray:
    """(nibble - 8) * scale by the documented places, one column at a time."""
    out = np.empty((packed.rows, packed.cols), dtype=np.float32)
    for column in range(packed.cols):
        c, j, lane = column // 256, column % 256 // 32, column % 32
        nibble = (packed.words[:, c * 32 + lane] >> np.uint32(4 * j)) & np.uint32(15)
        scale = packed.scales[:, c * 8 + j].view(np.float16).astype(np.float32)
        out[:, column] = (nibble.astype(np.float32) - 8) * scale
    return out


def q4_0(row: np.ndarray) -> list[np.float32]:
    """One row by the rule of qwen35.md section 8, block after block, weight after weight."""
    out = []
    for start in range(0, len(row), 32):
        block = [np.float32(w) for w in row[start : start + 32]]
        m = max(block, key=abs)  # the first of equals
        d = m / np.float32(-8)
        inverse = np.float32(1) / d if d else np.float32(0)
        for w in block:
            q = min(15, int(w * inverse + np.float32(8.5)))
            out.append(np.float32(q - 8) * np.float32(np.float16(d)))
    return out


@pytest.mark.parametrize("cols", [1, 31, 32, 33, 97, 255, 256, 257, 512, 600])
def test_packing_is_q4_0(cols: int) -> None:
    """At any width the packed matrix, read back by the documented places, is Q4_0 of each row."""
    matrix = np.random.default_rng(cols).standard_normal((5, cols)).astype(np.float32)
    found = unpacked(weights.pack(matrix, where="m"))
    assert found.tobytes() == np.array([q4_0(row) for row in matrix], dtype=np.float32).tobytes()


def test_a_tie_takes_the_first() -> None:
    """Of two elements of one magnitude the first gives the block its sign, so the second is clipped to 7 steps."""
    matrix = np.zeros((1, 32), dtype=np.float32)
    matrix[0, 3], matrix[0, 9] = 4.0, -4.0
    found = unpacked(weights.pack(matrix, where="m"))
    assert (found[0, 3], found[0, 9]) == (4.0, -3.5)


@pytest.mark.parametrize("cols", [1, 33, 300])
def test_absent_columns_are_nothing(cols: int) -> None:
    """Beyond the last column a nibble is 8, and a block without a column has scale +0."""
    packed = weights.pack(np.ones((3, cols), dtype=np.float32), where="m")
    here = weights.present(cols)
    nibbles = (packed.words[0][:, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    assert here.sum() == cols and (nibbles[~here] == 8).all()
    assert (packed.scales[:, -(-cols // 32) :] == 0).all()


def test_a_block_of_zeros_has_scale_plus_zero() -> None:
    """An all-zero block packs to nibbles 8 and a scale whose bits are 0."""
    packed = weights.pack(np.zeros((2, 64), dtype=np.float32), where="m")
    assert (packed.words == 0x88888888).all() and (packed.scales == 0).all()


def test_tall_matrices_are_packed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces that packing works in do not show in its result."""
    matrix = np.random.default_rng(1).standard_normal((23, 40)).astype(np.float32)
    whole = weights.pack(matrix, where="m")
    monkeypatch.setattr(weights, "ROWS_AT_ONCE_BYTES", 1 << 12)
    pieces = weights.pack(matrix, where="m")
    assert pieces.words.tobytes() == whole.words.tobytes() and pieces.scales.tobytes() == whole.scales.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 8 * 65520.0])
def test_weights_without_a_half_are_refused(bad: float) -> None:
    """A NaN, an infinity, or a block whose scale is beyond f16 is refused with the tensor's name."""
    matrix = np.ones((2, 40), dtype=np.float32)
    matrix[1, 39] = bad
    with pytest.raises(KernelError, match="the_tensor"):
        weights.pack(matrix, where="the_tensor")


def test_stored_bytes_are_what_packing_makes() -> None:
    """What a tensor is said to take on the device, buffer by buffer, is what its arrays take."""
    tensor = weights.Tensor("m", (7, 300), weights.Q4)
    matrix = np.ones(tensor.shape, dtype=np.float32)
    packed = weights.pack(matrix, where="m")
    assert weights.stored_bytes(tensor, weights.Q4) == (packed.words.nbytes, packed.scales.nbytes)
    assert weights.stored_bytes(tensor, weights.F32) == (matrix.nbytes,)
