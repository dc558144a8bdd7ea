"""The q4 product as a template: every instance of it, compiled by this test alone, gives the bytes of gemv_q4."""

import ctypes
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from kernel_calls import Call, Out, floats, open_library, packed, run, run_in_splits

from kernels import compilers

DEVICE = Path(__file__).parents[1] / "kernels" / "device"
INSTANCES = [(r, m) for r in (1, 2, 4) for m in (1, 3, 8)]
ENTRY = """
ENTRY(gemv_q4_R{r}_M{m}, const unsigned* words, const unsigned short* scales, const float* x, float* y, int rows,
      int cols) {{
    BLOCK PHASE {{
        const int first = (block * WARPS + warp) * {r};
        if (first >= rows) continue;
        gemv_q4_rows<{r}, {m}>(words, scales, x, y, rows, cols, first);
    }}
}}
"""


@cache
def instances() -> ctypes.CDLL:
    """The device text of this tree and an entry for each instance."""
    texts = {file.name: file.read_bytes() for file in DEVICE.glob("*.cu*")}
    texts[compilers.SOURCE] += "".join(ENTRY.format(r=r, m=m) for r, m in INSTANCES).encode()
    binary = Path(mkdtemp(prefix="kestrel-instances-")) / "kestrel.so"
    binary.write_bytes(compilers.compile_cpu(texts, compilers.DEFAULT_CPU).binary)
    return open_library(binary)


@pytest.mark.parametrize(("r", "m"), INSTANCES)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (2, 97), (13, 255), (13, 256), (35, 257), (8, 1021)])
def test_an_instance_gives_each_row_the_bytes_of_the_product_for_one(r: int, m: int, rows: int, cols: int) -> None:
    """Whatever R and M are, and where R does not divide the rows of the matrix too."""
    rng = np.random.default_rng([r, m, rows, cols])
    words, scales = packed(rng, rows, cols)
    x = floats(rng, m, cols)
    blocks = -(-rows // (8 * r))
    call = Call(f"gemv_q4_R{r}_M{m}", blocks, (words, scales, x, Out((m, rows)), rows, cols))
    (y,) = run(call, on=instances())
    for row, got in zip(x, y, strict=True):
        (want,) = run_in_splits(Call("gemv_q4", -(-rows // 8), (words, scales, row, Out((rows,)), rows, cols)))
        assert got.tobytes() == want.tobytes()
