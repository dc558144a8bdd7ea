"""The R table: the seed's rows, a row for every q4 matrix, an instance for every R and M."""

import ctypes

import pytest

from kernels import artifact
from kernels.engine import config, r_table
from kernels.engine.weights import EMBEDDING, Q4, tensors

# 2.1 of the seed: shape to R; where it says "2 (or 1)" the first
SEED = {
    **dict.fromkeys(("mlp gate/up", "gdn in_qkv", "attn q", "lm_head"), 4),
    **dict.fromkeys(("mlp down", "gdn out / attn o", "attn k/v", "gdn in_proj_z"), 2),
}


def test_rows_are_the_seeds() -> None:
    """Every shape of the seed's table has its R here, and no other shape has one."""
    assert {shape: r for _name, r, shape in r_table.R_TABLE} == SEED
    assert "not measured here" in (r_table.__doc__ or "")


@pytest.mark.parametrize("name", config.SHAPES)
def test_every_q4_matrix_has_a_row(name: str) -> None:
    """And only one that its name ends in."""
    for tensor in tensors(config.shape(name, layers="hybrid", depth=4)):
        ends = [row for row in r_table.R_TABLE if tensor.name.endswith(row[0])]
        assert len(ends) == (tensor.form == Q4), tensor.name
        assert tensor.form != Q4 or r_table.weight_rows(tensor.name) == ends[0][1]
    assert r_table.weight_rows(EMBEDDING) == r_table.weight_rows("lm_head.weight")


def test_every_instance_is_in_the_artifact() -> None:
    """For each R, used by the table or not, and each M."""
    library = ctypes.CDLL(str(artifact.load(artifact.tree()).binary))
    for r in r_table.R_VALUES:
        for m in range(2, r_table.ROWS_MAX + 1):
            assert getattr(library, r_table.instance(r, m))
