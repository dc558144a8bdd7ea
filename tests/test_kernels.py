"""Each kernel family against its float64 reference, over small, odd, prime and real sizes; every call in three splits.

A bound counts the roundings that the stated order of summation lets an element meet, U = 2^-24 each, times the sum of
the magnitudes: no constant is fitted. bitmath's functions count as 4 ulp, 8 U.
"""

from collections.abc import Callable

import numpy as np
import pytest
from kernel_calls import Call, InOut, Out, U, assert_within, floats, packed, run, run_in_splits, sum_roundings

from kernels.device import attention, gdn, gemv, rms_norm, rope, sample, swiglu

WIDTHS = (1, 7, 31, 32, 33, 97, 255, 256, 257, 1021, 5120)
EPS = 1e-6
FUNCTION = 8 * U


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """The same numbers for a test whatever ran before it."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.mark.parametrize("n", [*WIDTHS, 17408])
def test_rms_norm(n: int, rng: np.random.Generator) -> None:
    """y = x / sqrt(mean(x^2) + eps) * (1 + w), with half the sum's relative error and seven roundings more."""
    x, w = floats(rng, n), floats(rng, n)
    (y,) = run_in_splits(Call("rms_norm", 1, (x, w, Out((n,)), n, EPS)))
    want = rms_norm.rms_norm(x, w, EPS)
    exact_gain = np.abs(rms_norm.scaled(x, EPS)) * (1 + np.abs(w))  # 1 + w may cancel
    assert_within(y, want, (sum_roundings(n) / 2 + 7) * U * exact_gain)


@pytest.mark.parametrize("n", WIDTHS)
def test_rms_norm_over_rows(n: int, rng: np.random.Generator) -> None:
    """Each of M rows of one launch has the bytes that it has alone, whatever is in the others."""
    x, w = floats(rng, 8, n), floats(rng, n)
    alone = [run(Call("rms_norm", 1, (row, w, Out((n,)), n, EPS)))[0] for row in x]
    for rows in range(1, 9):
        (y,) = run_in_splits(Call("rms_norm", rows, (x[:rows], w, Out((rows, n)), n, EPS)))
        assert y.tobytes() == b"".join(row.tobytes() for row in alone[:rows])


def test_rms_norm_of_zeros_is_zero() -> None:
    """eps keeps a row of zeros finite, and its signs are kept."""
    x = np.array([0.0, -0.0, 0.0], np.float32)
    (y,) = run(Call("rms_norm", 1, (x, np.ones(3, np.float32), Out((3,)), 3, EPS)))
    assert y.tobytes() == x.tobytes()


@pytest.mark.parametrize("rows", [1, 8, 13])
@pytest.mark.parametrize("cols", [*WIDTHS, 6144, 17408])
def test_gemv_q4(rows: int, cols: int, rng: np.random.Generator) -> None:
    """The product with the dequantised matrix, within the roundings of the order times the sum of |w x|."""
    words, scales = packed(rng, rows, cols)
    x = floats(rng, cols)
    (y,) = run_in_splits(Call("gemv_q4", -(-rows // 8), (words, scales, x, Out((rows,)), rows, cols)))
    weights = gemv.dequantise(words, scales, cols)
    assert_within(y, gemv.gemv(weights, x), sum_roundings(cols) * U * gemv.gemv(np.abs(weights), np.abs(x)))


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (8, 256), (13, 97), (9, 1021)])
def test_gemv_q4_over_rows(rows: int, cols: int, rng: np.random.Generator) -> None:
    """M times as many blocks give M rows, each with the bytes that it has alone."""
    words, scales = packed(rng, rows, cols)
    x, blocks = floats(rng, 8, cols), -(-rows // 8)
    alone = [run(Call("gemv_q4", blocks, (words, scales, row, Out((rows,)), rows, cols)))[0] for row in x]
    for m in range(1, 9):
        (y,) = run_in_splits(Call("gemv_q4", m * blocks, (words, scales, x[:m], Out((m, rows)), rows, cols)))
        assert y.tobytes() == b"".join(row.tobytes() for row in alone[:m])


def test_gemv_q4_weights_are_exact(rng: np.random.Generator) -> None:
    """A unit vector picks a column out of the matrix with no rounding: all 16 nibbles, denormal and negative scales."""
    words, scales = packed(rng, 64, 33)
    for column in (0, 1, 31, 32):
        x = np.zeros(33, np.float32)
        x[column] = 1.0
        (y,) = run(Call("gemv_q4", 8, (words, scales, x, Out((64,)), 64, 33)))
        assert np.array_equal(y.astype(np.float64), gemv.dequantise(words, scales, 33)[:, column])


@pytest.mark.parametrize(("rows_a", "rows_b"), [(1, 0), (8, 8), (3, 10), (48, 48)])
@pytest.mark.parametrize("cols", WIDTHS)
def test_gemv_f32(rows_a: int, rows_b: int, cols: int, rng: np.random.Generator) -> None:
    """Two products in one launch; with no second matrix its pointers are null."""
    wa, wb, x = floats(rng, rows_a, cols), floats(rng, rows_b, cols), floats(rng, cols)
    second = (wb, Out((rows_b,))) if rows_b else (None, None)
    args = (wa, second[0], x, Out((rows_a,)), second[1], rows_a, rows_b, cols)
    results = run_in_splits(Call("gemv_f32", -(-(rows_a + rows_b) // 8), args))
    for weights, y in zip((wa, wb), results, strict=False):
        bound = sum_roundings(cols) * U * gemv.gemv(np.abs(weights), np.abs(x))
        assert_within(y, gemv.gemv(weights, x), bound)


@pytest.mark.parametrize("n", WIDTHS)
def test_swiglu_and_add(n: int, rng: np.random.Generator) -> None:
    """silu(gate) * up within bitmath's error and one rounding; y + x is the rounded sum, byte for byte."""
    gate, up = floats(rng, n), floats(rng, n)
    (y,) = run_in_splits(Call("swiglu", -(-n // 256), (gate, up, Out((n,)), n)))
    want = swiglu.swiglu(gate, up)
    assert_within(y, want, (FUNCTION + U) * np.abs(want))
    (total,) = run_in_splits_in_place("add", n, gate, up)
    assert total.tobytes() == (gate + up).tobytes()
    assert_within(total, swiglu.add(gate, up), U * np.abs(swiglu.add(gate, up)))


@pytest.mark.parametrize("n", [1, 33, 97, 257, 1021])
def test_swiglu_and_add_take_rows_as_one(n: int, rng: np.random.Generator) -> None:
    """Over [M][n] one launch of M n elements gives each row the bytes that it has alone."""
    gate, up = floats(rng, 3, n), floats(rng, 3, n)
    (y,) = run_in_splits(Call("swiglu", -(-3 * n // 256), (gate, up, Out((3, n)), 3 * n)))
    (total,) = run_in_splits(Call("add", -(-3 * n // 256), (gate, InOut(up), 3 * n)))
    for m in range(3):
        (alone,) = run(Call("swiglu", -(-n // 256), (gate[m], up[m], Out((n,)), n)))
        assert y[m].tobytes() == alone.tobytes()
        assert total[m].tobytes() == run(Call("add", -(-n // 256), (gate[m], InOut(up[m]), n)))[0].tobytes()


def run_in_splits_in_place(kernel: str, n: int, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    return run_in_splits(Call(kernel, -(-n // 256), (x, InOut(y), n)))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "rotary"),
    [(1, 1, 1, 0), (2, 1, 7, 4), (3, 1, 33, 32), (4, 2, 64, 16), (5, 5, 97, 70), (6, 2, 128, 128), (24, 4, 256, 64)],
)
def test_qk_prep(heads: int, kv_heads: int, head_dim: int, rotary: int, rng: np.random.Generator) -> None:
    """Each head is normed and turned by the row of the cursor's position; columns from rotary on are only normed."""
    qg, k = floats(rng, heads, 2, head_dim), floats(rng, kv_heads, head_dim)
    q_weight, k_weight = floats(rng, head_dim), floats(rng, head_dim)
    angles = rng.uniform(-np.pi, np.pi, (5, rotary // 2))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    outs = (Out((heads, head_dim)), Out((kv_heads, head_dim)))
    sizes = (heads, kv_heads, head_dim, rotary, EPS)
    args = (qg, k, q_weight, k_weight, cos, sin, np.array([3], np.int32), *outs, *sizes)
    got = run_in_splits(Call("qk_prep", -(-(heads + kv_heads) // 8), args))
    want = rope.qk_prep(qg, k, q_weight, k_weight, cos[3], sin[3], EPS)
    gained = [np.abs(rms_norm.scaled(x, EPS)) * (1 + np.abs(w)) for x, w in ((qg[:, 0], q_weight), (k, k_weight))]
    for y, exact, a in zip(got, want, gained, strict=True):
        magnitude = rope.rotate(a, np.abs(cos[3]), -np.abs(sin[3]))
        half = rotary // 2
        magnitude[:, half:rotary] = rope.rotate(a, np.abs(cos[3]), np.abs(sin[3]))[:, half:rotary]
        assert_within(y, exact, (sum_roundings(head_dim) / 2 + 9) * U * magnitude)


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "rotary"), [(2, 1, 7, 4), (6, 2, 64, 16), (5, 5, 97, 70)])
@pytest.mark.parametrize("cursor", [0, 5])
def test_qk_prep_over_rows(
    heads: int, kv_heads: int, head_dim: int, rotary: int, cursor: int, rng: np.random.Generator
) -> None:
    """Row m of M has the bytes of a launch of its own at cursor + m."""
    qg, k = floats(rng, 8, heads, 2, head_dim), floats(rng, 8, kv_heads, head_dim)
    shared = (*(floats(rng, head_dim) for _ in range(2)), *(floats(rng, cursor + 8, rotary // 2) for _ in range(2)))
    sizes, blocks = (heads, kv_heads, head_dim, rotary, EPS), -(-(heads + kv_heads) // 8)

    def prepared(rows: slice, m: int, run_: Callable[[Call], list[np.ndarray]]) -> list[np.ndarray]:
        count = len(qg[rows])
        outs = (Out((count, heads, head_dim)), Out((count, kv_heads, head_dim)))
        args = (qg[rows], k[rows], *shared, np.array([cursor + m], np.int32), *outs, *sizes)
        return run_(Call("qk_prep", count * blocks, args))

    alone = [prepared(slice(m, m + 1), m, run) for m in range(8)]
    for rows in range(1, 9):
        for got, want in zip(prepared(slice(rows), 0, run_in_splits), zip(*alone, strict=True), strict=True):
            assert got.tobytes() == b"".join(row.tobytes() for row in want[:rows])


@pytest.mark.parametrize(("width", "cursor"), [(1, 0), (97, 4), (256, 2), (1024, 0)])
def test_kv_append(width: int, cursor: int, rng: np.random.Generator) -> None:
    """The row of the cursor becomes k and v byte for byte, and no other row changes."""
    k, v = floats(rng, width), floats(rng, width)
    caches = floats(rng, 5, width), floats(rng, 5, width)
    args = (k, v, InOut(caches[0]), InOut(caches[1]), np.array([cursor], np.int32), width)
    for got, before, row in zip(run_in_splits(Call("kv_append", -(-width // 256), args)), caches, (k, v), strict=True):
        want = before.copy()
        want[cursor] = row
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(("width", "cursor"), [(1, 0), (97, 4), (257, 2)])
def test_kv_append_of_rows(width: int, cursor: int, rng: np.random.Generator) -> None:
    """Row m becomes row cursor + m of the caches, and no other row changes."""
    k, v = floats(rng, 3, width), floats(rng, 3, width)
    caches = floats(rng, 9, width), floats(rng, 9, width)
    args = (k, v, InOut(caches[0]), InOut(caches[1]), np.array([cursor], np.int32), width)
    for got, before, rows in zip(
        run_in_splits(Call("kv_append", 3 * -(-width // 256), args)), caches, (k, v), strict=True
    ):
        want = before.copy()
        want[cursor : cursor + 3] = rows
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "n"),
    [(2, 1, 7, 1), (4, 2, 33, 31), (3, 1, 64, 254), (2, 2, 97, 520)],
)
def test_attention_of_rows(heads: int, kv_heads: int, head_dim: int, n: int, rng: np.random.Generator) -> None:
    """Row m of M has the bytes of a launch of its own behind m more tokens: it sees no later row of the cache."""
    q, qg = floats(rng, 8, heads, head_dim, spread=0.3), floats(rng, 8, heads, 2, head_dim)
    keys, values = floats(rng, 2, n + 7, kv_heads, head_dim, spread=0.3)
    sizes = (heads, kv_heads, head_dim, n + 8 + 256, float(np.float32(head_dim**-0.5)))

    def attended(rows: slice, visible: int, run_: Callable[[Call], list[np.ndarray]]) -> np.ndarray:
        count = len(q[rows])
        outs = (Out((count, heads, n + 8 + 256)), Out((count, heads, head_dim)))
        before = np.array([visible - 1], np.int32)
        return run_(Call("attention", count * heads, (q[rows], qg[rows], keys, values, before, *outs, *sizes)))[1]

    alone = [attended(slice(m, m + 1), n + m, run) for m in range(8)]
    for rows in (1, 2, 3, 8):
        assert attended(slice(rows), n, run_in_splits).tobytes() == b"".join(row.tobytes() for row in alone[:rows])


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "n"),
    [
        *((1, 1, 1, 1), (2, 1, 7, 2), (4, 2, 33, 31), (4, 2, 64, 97), (6, 3, 97, 255), (2, 2, 64, 256)),
        *((2, 1, 64, 257), (24, 4, 256, 5), (3, 1, 256, 521), (1, 1, 8, 1021)),
    ],
)
def test_attention(heads: int, kv_heads: int, head_dim: int, n: int, rng: np.random.Generator) -> None:
    """Softmax over the visible rows alone times the gate; later rows of the cache, all NaN here, are not read."""
    q, qg = floats(rng, heads, head_dim, spread=0.3), floats(rng, heads, 2, head_dim)
    caches = np.full((2, n + 3, kv_heads, head_dim), np.nan, np.float32)
    caches[:, :n] = floats(rng, 2, n, kv_heads, head_dim, spread=0.3)
    keys, values = caches
    scale, stride = float(np.float32(head_dim**-0.5)), n + 256
    outs = (Out((heads, stride)), Out((heads, head_dim)))
    sizes = (heads, kv_heads, head_dim, stride, scale)
    args = (q, qg, keys, values, np.array([n - 1], np.int32), *outs, *sizes)
    _, got = run_in_splits(Call("attention", heads, args))
    want = attention.attention(q, qg[:, 1], keys[:n], values[:n], scale)
    shared = heads // kv_heads
    widest = np.einsum("hd,thd->ht", np.abs(q), np.repeat(np.abs(keys[:n]), shared, axis=1)).max(axis=1) * scale
    each = 2 * (sum_roundings(head_dim) + 2) * U * widest + FUNCTION + 2 * U * widest  # relative error of one p[t]
    spans = -(-n // 256)
    bound = 2 * each + (min(n, 256) + spans + sum_roundings(256) + spans + 3) * U + FUNCTION
    magnitude = attention.attention(q, qg[:, 1], keys[:n], np.abs(values[:n]), scale)
    assert_within(got, want, bound[:, None] * magnitude)


@pytest.mark.parametrize("channels", [1, 33, 97, 256, 10240])
@pytest.mark.parametrize("kernel", [1, 2, 4])
def test_gdn_conv(channels: int, kernel: int, rng: np.random.Generator) -> None:
    """The taps meet the window oldest first, and the history keeps the raw inputs, byte for byte."""
    u, history, taps = floats(rng, channels), floats(rng, kernel - 1, channels), floats(rng, kernel, channels)
    args = (u, InOut(history), taps, Out((channels,)), channels, kernel)
    got_history, y = run_in_splits(Call("gdn_conv", -(-channels // 256), args))
    want, next_history = gdn.conv(u, history, taps)
    magnitude = (np.abs(np.concatenate([history, u[None]])) * np.abs(taps)).sum(axis=0)
    assert_within(y, want, 1.1 * kernel * U * magnitude + FUNCTION * np.abs(want))  # no slope of silu is above 1.1
    assert got_history.tobytes() == next_history.astype(np.float32).tobytes()


@pytest.mark.parametrize(("key_heads", "key_dim"), [(1, 1), (3, 7), (2, 33), (5, 64), (16, 128)])
def test_gdn_qk_norm(key_heads: int, key_dim: int, rng: np.random.Generator) -> None:
    """q and k are the first two parts of y, each head of length 1; q alone is divided by the root of its width."""
    y = floats(rng, 2 * key_heads * key_dim + 5)
    outs = (Out((key_heads, key_dim)), Out((key_heads, key_dim)))
    args = (y, *outs, key_heads, key_dim, float(np.sqrt(np.float32(key_dim))))
    got = run_in_splits(Call("gdn_qk_norm", -(-2 * key_heads // 8), args))
    for one, want in zip(got, gdn.qk_norm(y, key_heads, key_dim), strict=True):
        assert_within(one, want, (sum_roundings(key_dim) / 2 + 6) * U * np.abs(want))


@pytest.mark.parametrize("heads", [1, 6, 33, 48, 257])
def test_gdn_gates(heads: int, rng: np.random.Generator) -> None:
    """decay and beta, the error of the exponent counted with its size."""
    a, b, a_log, dt_bias = (floats(rng, heads) for _ in range(4))
    args = (a, b, a_log, dt_bias, Out((heads,)), Out((heads,)), heads)
    decay, beta = run_in_splits(Call("gdn_gates", -(-heads // 256), args))
    want_decay, want_beta = gdn.gates(a, b, a_log, dt_bias)
    step = np.exp(a_log.astype(np.float64)) * (
        U * np.abs(a.astype(np.float64) + dt_bias)
    )  # softplus has no slope above 1
    exponent = step - (2 * FUNCTION + U) * np.log(np.maximum(want_decay, 1e-300))
    assert_within(decay, want_decay, want_decay * (exponent + FUNCTION) + 2.0**-149)
    assert_within(beta, want_beta, FUNCTION * want_beta)


@pytest.mark.parametrize(
    ("key_heads", "value_heads", "key_dim", "value_dim"),
    [(1, 1, 1, 1), (1, 2, 7, 5), (2, 6, 33, 31), (2, 2, 64, 97), (2, 6, 64, 64), (3, 3, 30, 257), (16, 48, 128, 128)],
)
def test_gdn_delta(key_heads: int, value_heads: int, key_dim: int, value_dim: int, rng: np.random.Generator) -> None:
    """Decay, read, update, read again: output and state within the roundings of four chains over key_dim."""
    q, k = (floats(rng, key_heads, key_dim, spread=0.3) * np.float32(key_dim**-0.5) for _ in range(2))
    v, state = floats(rng, value_heads, value_dim), floats(rng, value_heads, key_dim, value_dim)
    decay, beta = (rng.random(value_heads).astype(np.float32) for _ in range(2))
    args = (q, k, v, decay, beta, InOut(state), Out((value_heads, value_dim)))
    call = Call("gdn_delta", value_heads, (*args, key_heads, value_heads, key_dim, value_dim))
    got_state, got = run_in_splits(call)
    want, want_state = gdn.delta(q, k, v, decay, beta, state)

    chain = (-(-key_dim // 4) + 2) * U
    q, k = (np.repeat(np.abs(array.astype(np.float64)), value_heads // key_heads, axis=0) for array in (q, k))
    old = np.abs(state.astype(np.float64)) * decay[:, None, None]
    read = np.einsum("hin,hi->hn", old, k)
    d = beta[:, None] * (np.abs(v) + read)
    d_error = beta[:, None] * (chain + U) * read + 2 * U * d
    new = old + k[:, :, None] * d[:, None, :]
    state_error = k[:, :, None] * d_error[:, None, :] + 2 * U * new
    assert_within(got_state, want_state, state_error)
    assert_within(got, want, np.einsum("hin,hi->hn", state_error + chain * new, q))


@pytest.mark.parametrize(("heads", "dim"), [(1, 1), (3, 7), (9, 33), (6, 64), (48, 128)])
def test_gdn_gate_norm(heads: int, dim: int, rng: np.random.Generator) -> None:
    """The norm with the gain w itself, then the gate."""
    o, z, w = floats(rng, heads, dim), floats(rng, heads, dim), floats(rng, dim)
    (y,) = run_in_splits(Call("gdn_gate_norm", -(-heads // 8), (o, z, w, Out((heads, dim)), heads, dim, EPS)))
    want = gdn.gate_norm(o, z, w, EPS)
    assert_within(y, want, ((sum_roundings(dim) / 2 + 7) * U + FUNCTION) * np.abs(want))


@pytest.mark.parametrize("cols", WIDTHS)
def test_embedding_rows(cols: int, rng: np.random.Generator) -> None:
    """The token's row, exactly: copied from f32, or each weight of a q4 row."""
    table, token = floats(rng, 3, cols), np.array([2], np.int32)
    (x,) = run_in_splits(Call("embed_f32", -(-cols // 256), (table, token, Out((cols,)), cols)))
    assert np.array_equal(x.astype(np.float64), sample.embed(table, 2))
    words, scales = packed(rng, 3, cols)
    (x,) = run_in_splits(Call("embed_q4", -(-cols // 2048), (words, scales, token, Out((cols,)), cols)))
    assert np.array_equal(x.astype(np.float64), sample.embed(gemv.dequantise(words, scales, cols), 2))


@pytest.mark.parametrize("n", [*WIDTHS, 4001])
def test_argmax(n: int, rng: np.random.Generator) -> None:
    """The first of the largest wherever it is; infinities count, zeros are equal, NaN never wins."""
    plain = floats(rng, n)
    ties = np.round(plain).astype(np.float32)
    with_nan = np.where(rng.random(n) < 0.3, np.float32(np.nan), ties)
    zeros = np.where(rng.random(n) < 0.5, np.float32(0.0), np.float32(-0.0))
    ends = [np.full(n, value, np.float32) for value in (np.nan, -np.inf, np.inf)]
    mixed = ends[1].copy()
    mixed[: n // 2] = np.nan
    for logits in (plain, ties, with_nan, zeros, *ends, mixed):
        (token,) = run_in_splits(Call("argmax", 1, (logits, Out((1,), np.int32), n)))
        assert token[0] == sample.argmax(logits)
