"""R: how many weight rows a warp works on in the q4 product for M rows, by matrix and M. It moves no bit.

Written by `python -m kernels r_table` from the figures of the record that each row names, measured by `sweep`.
"""

R_VALUES = (1, 2, 4, 8)  # that the binary has instances for, with M in 1..ROWS_MAX: gemv.cuh
ROWS_MAX = 8

#    a tensor's name ends in           R for M = 1..8              of the shape    record
R_TABLE = (
    ("embed_tokens.weight",            (8, 4, 2, 2, 1, 8, 8, 2),  "248320x5120",  "#86"),
    ("lm_head.weight",                 (8, 4, 2, 2, 1, 8, 8, 2),  "248320x5120",  "#86"),
    ("linear_attn.in_proj_qkv.weight", (2, 2, 2, 2, 1, 1, 2, 2),  "10240x5120",   "#86"),
    ("linear_attn.in_proj_z.weight",   (2, 1, 1, 2, 1, 1, 2, 2),  "6144x5120",    "#86"),
    ("linear_attn.out_proj.weight",    (2, 1, 1, 2, 1, 1, 1, 2),  "5120x6144",    "#86"),
    ("self_attn.o_proj.weight",        (2, 1, 1, 2, 1, 1, 1, 2),  "5120x6144",    "#86"),
    ("mlp.gate_proj.weight",           (4, 2, 1, 2, 1, 1, 1, 2),  "17408x5120",   "#86"),
    ("mlp.up_proj.weight",             (4, 2, 1, 2, 1, 1, 1, 2),  "17408x5120",   "#86"),
    ("mlp.down_proj.weight",           (2, 1, 1, 2, 1, 1, 2, 2),  "5120x17408",   "#86"),
    ("self_attn.q_proj.weight",        (4, 2, 2, 2, 1, 1, 4, 2),  "12288x5120",   "#86"),
    ("self_attn.k_proj.weight",        (1, 1, 1, 2, 1, 1, 2, 2),  "1024x5120",    "#86"),
    ("self_attn.v_proj.weight",        (1, 1, 1, 2, 1, 1, 2, 2),  "1024x5120",    "#86"),
)  # fmt: skip
assert all(len(by_m) == ROWS_MAX and set(by_m) <= set(R_VALUES) for _end, by_m, _shape, _record in R_TABLE)

#    first of matrices in a launch     R    together       as             record
R_TOGETHER = (
    ("linear_attn.in_proj_qkv.weight", 4,  "16384x5120",  "17408x5120",  "#86"),
    ("self_attn.q_proj.weight",        4,  "14336x5120",  "12288x5120",  "#86"),
    ("mlp.gate_proj.weight",           4,  "34816x5120",  "17408x5120",  "#86"),
)  # fmt: skip
assert all(r in R_VALUES for _end, r, _shape, _like, _record in R_TOGETHER)


def weight_rows(name: str, m: int) -> int:
    """The R of a q4 matrix for m rows of x."""
    return next(by_m[m - 1] for end, by_m, _shape, _record in R_TABLE if name.endswith(end))


def weight_rows_together(first: str) -> int:
    """The R of several q4 matrices in one launch for one row of x, by the name of the first."""
    return next(r for end, r, _shape, _like, _record in R_TOGETHER if first.endswith(end))


def instance(r: int, m: int) -> str:
    """The kernel that multiplies m rows with r weight rows a warp."""
    return f"gemv_q4_r{r}_m{m}"


def together(r: int) -> str:
    """The kernel that multiplies one row with several matrices, r weight rows a warp."""
    return f"project_r{r}"
