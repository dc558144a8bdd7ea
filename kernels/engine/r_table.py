"""R: how many weight rows a warp works on in the q4 product for M rows, by what the matrix is. It moves no bit.

Source of every row: the seed, measured there on an RTX 5090; not measured here. Where the seed leaves a choice, "2 (or
1)", the first is taken.
"""

from .weights import EMBEDDING, HEAD

R_VALUES = (1, 2, 4, 8)  # that the binary has instances for, with M in 1..ROWS_MAX: gemv.cuh
ROWS_MAX = 8
ONE_ROW = 2  # the R of one row of x

#    a tensor's name ends in           R   the seed's word for the shape
R_TABLE = (
    ("mlp.gate_proj.weight",           4,  "mlp gate/up"),
    ("mlp.up_proj.weight",             4,  "mlp gate/up"),
    ("linear_attn.in_proj_qkv.weight", 4,  "gdn in_qkv"),
    ("self_attn.q_proj.weight",        4,  "attn q"),
    (HEAD,                             4,  "lm_head"),
    (EMBEDDING,                        4,  "lm_head"),      # a tied head is the embedding
    ("mlp.down_proj.weight",           2,  "mlp down"),
    ("linear_attn.out_proj.weight",    2,  "gdn out / attn o"),
    ("self_attn.o_proj.weight",        2,  "gdn out / attn o"),
    ("self_attn.k_proj.weight",        2,  "attn k/v"),     # or 1
    ("self_attn.v_proj.weight",        2,  "attn k/v"),     # or 1
    ("linear_attn.in_proj_z.weight",   2,  "gdn in_proj_z"),  # or 1
)  # fmt: skip
assert all(r in R_VALUES for _name, r, _shape in R_TABLE)


def weight_rows(name: str, m: int) -> int:
    """The R of a q4 matrix for m rows."""
    return ONE_ROW if m == 1 else next(r for end, r, _shape in R_TABLE if name.endswith(end))


def instance(r: int, m: int) -> str:
    """The kernel that multiplies m rows with r weight rows a warp."""
    return f"gemv_q4_r{r}_m{m}"


def together(r: int) -> str:
    """The kernel that multiplies one row with several matrices, r weight rows a warp."""
    return f"project_r{r}"
