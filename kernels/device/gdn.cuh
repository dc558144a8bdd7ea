// The Gated DeltaNet mixer of one token, in launch order. channels = 2 * key_heads * key_dim + value_heads * value_dim.
// gdn_conv: y = silu(sum_j taps[j] * window[j]), window = history and then u; history becomes window less its oldest.
//   u, y [channels], history [kernel - 1][channels] oldest first, of raw u, taps [kernel][channels]
// gdn_qk_norm: q_out = l2(q) / root, k_out = l2(k), l2(t) = t / sqrt(sum t^2 + 1e-6), root = sqrt(key_dim).
//   y = [q | k | v] of gdn_conv, q_out, k_out [key_heads][key_dim]
// gdn_gates: beta = sigmoid(b), decay = exp(-exp(a_log) * softplus(a + dt_bias)).  All [heads].
// gdn_delta: for value head h and its key head h / (value_heads / key_heads), S in place,
//   S = decay * S;  m[n] = sum_i k[i] S[i][n];  d = beta * (v - m);  S[i][n] += k[i] d[n];  out[n] = sum_i q[i] S[i][n]
//   q, k [key_heads][key_dim], v, out [value_heads][value_dim], decay, beta [value_heads],
//   S [value_heads][key_dim][value_dim]
// gdn_gate_norm: y = o / sqrt(mean(o^2) + eps) * w * silu(z), a head.  o, z, y [heads][dim], w [dim] (the gain itself)
//
// Order: the taps oldest to newest, by fma from +0. Squares: lane l adds columns l, l + 32, ... by fma, then sum().
// Over i: four chains of fma from +0, chain i mod 4 in the order of i, then (0+1)+(2+3). decay * S is rounded, then
// S + k d is one fma. A reciprocal root is 1 / sqrt(), each rounded; it multiplies first, then the gain, then the gate.
// Launch: conv ceil(channels / 256) blocks; qk_norm one warp a vector, q first, ceil(2 * key_heads / 8); gates
// ceil(heads / 256); delta one block a value head; gate_norm one warp a head, ceil(heads / 8). Reference: gdn.py.
#pragma once
#include "bitmath.cuh"
#include "rms_norm.cuh"

constexpr int USUAL_DIM = 128;   // of keys and values of a head, in the large models
constexpr float L2_EPS = 1e-6f;  // inside the root, on the sum; a constant of the model's code, not rms_norm_eps

// The sum over i in [0, n): chain i mod 4 becomes term(i, row(i), chain), in the order of i; then (0+1)+(2+3).
// N rows are under way at once.
template <int N, typename Row, typename Term> DEV Floats sum_of_chains(int n, Row row, Term term) {
    Floats chain[4] = {splat(0.f), splat(0.f), splat(0.f), splat(0.f)};
    int first = 0;
    if constexpr (N > 1) {
        for (; first + N <= n; first += N) {
            Floats rows[N];
            UNROLLED for (int i = 0; i < N; ++i) rows[i] = row(first + i);
            warp_barrier();
            UNROLLED for (int i = 0; i < N; ++i) chain[i % 4] = term(first + i, rows[i], chain[i % 4]);
        }
    }
    for (; first < n; first += 4) {
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (first + c < n) chain[c] = term(first + c, row(first + c), chain[c]);
    }
    return add_rn(add_rn(chain[0], chain[1]), add_rn(chain[2], chain[3]));
}

ENTRY(gdn_conv, const float* __restrict__ u, float* __restrict__ history, const float* __restrict__ taps,
      float* __restrict__ y, int channels, int kernel) {
    BLOCK PHASE {
        const int at = (block * WARPS + warp) * LANES;
        const int count = channels - at;
        Floats total = splat(0.f);
        const int own = count < LANES ? count : LANES;
        for (int tap = 0; tap < kernel; ++tap) expect(taps + (Index)tap * channels + at, own);
        for (int tap = 1; tap + 1 < kernel; ++tap) expect(history + (Index)tap * channels + at, own);
        for (int tap = 0; tap + 1 < kernel; ++tap) {
            float* oldest = history + (Index)tap * channels + at;
            total = fma_rn(load(taps + (Index)tap * channels + at, count), load(oldest, count), total);
            store(oldest, load(tap + 2 < kernel ? oldest + channels : u + at, count), count);
        }
        total = fma_rn(load(taps + (Index)(kernel - 1) * channels + at, count), load(u + at, count), total);
        store(y + at, bitmath::silu(total), count);
    }
}

ENTRY(gdn_qk_norm, const float* y, float* q_out, float* k_out, int key_heads, int key_dim, float root) {
    BLOCK PHASE {
        const int vector = block * WARPS + warp;
        if (vector >= 2 * key_heads) continue;
        const bool is_q = vector < key_heads;
        const float* x = y + (Index)vector * key_dim;
        float* out = is_q ? q_out + (Index)vector * key_dim : k_out + (Index)(vector - key_heads) * key_dim;
        const float scale = div_rn(1.f, sqrt_rn(add_rn(sum_of_squares(x, key_dim, 0, 1), L2_EPS)));
        for (int at = 0; at < key_dim; at += LANES) {
            const Floats unit = mul_rn(load(x + at, key_dim - at), splat(scale));
            store(out + at, is_q ? div_rn(unit, splat(root)) : unit, key_dim - at);
        }
    }
}

ENTRY(gdn_gates, const float* a, const float* b, const float* a_log, const float* dt_bias, float* decay, float* beta,
      int heads) {
    BLOCK PHASE {
        const int at = (block * WARPS + warp) * LANES;
        const int count = heads - at;
        const Floats step = bitmath::softplus(add_rn(load(a + at, count), load(dt_bias + at, count)));
        const Floats rate = bitmath::exp(load(a_log + at, count));
        store(decay + at, bitmath::exp(-mul_rn(rate, step)), count);
        store(beta + at, bitmath::sigmoid(load(b + at, count)), count);
    }
}

// A warp's columns of S for one head, `count` of them: v, S and out begin there, rows of S are value_dim apart.
template <int N, typename Size, typename Count>
DEV void delta_columns(const float* q, const float* k, const float* v, float decay, float beta, float* S, float* out,
                       Size key_dim, Size value_dim, Count count) {
    const Floats e = splat(decay);
    const auto row = [&](int i) { return load(S + (Index)i * value_dim, count); };
    const Floats m = sum_of_chains<N>(key_dim, row, [&](int i, Floats found, Floats chain) {
        const Floats decayed = mul_rn(e, found);
        return fma_rn(splat(k[i]), decayed, chain);
    });
    const Floats d = mul_rn(splat(beta), sub_rn(load(v, count), m));
    const Floats o = sum_of_chains<N>(key_dim, row, [&](int i, Floats found, Floats chain) {
        const Floats updated = fma_rn(splat(k[i]), d, mul_rn(e, found));
        store(S + (Index)i * value_dim, updated, count);
        return fma_rn(splat(q[i]), updated, chain);
    });
    store(out, o, count);
}

ENTRY(gdn_delta, const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
      const float* __restrict__ decay, const float* __restrict__ beta, float* __restrict__ S, float* __restrict__ out,
      int key_heads, int value_heads, int key_dim, int value_dim) {
    BLOCK PHASE {  // the columns of S are independent: 32 of them a warp
        const int head = block;
        const Index key_head = head / (value_heads / key_heads);
        const float* head_q = q + key_head * key_dim;
        const float* head_k = k + key_head * key_dim;
        for (int at = warp * LANES; at < value_dim; at += BLOCK_WIDTH) {
            const Index column = (Index)head * value_dim + at;
            float* state = S + (Index)head * key_dim * value_dim + at;
            if (key_dim == USUAL_DIM && value_dim == USUAL_DIM)
                delta_columns<FAR_AHEAD>(head_q, head_k, v + column, decay[head], beta[head], state, out + column,
                                         Fixed<USUAL_DIM>{}, Fixed<USUAL_DIM>{}, Fixed<LANES>{});
            else
                delta_columns<AHEAD>(head_q, head_k, v + column, decay[head], beta[head], state, out + column, key_dim,
                                     value_dim, value_dim - at);
        }
    }
}

ENTRY(gdn_gate_norm, const float* __restrict__ o, const float* __restrict__ z, const float* __restrict__ w,
      float* __restrict__ y, int heads, int dim, float eps) {
    BLOCK PHASE {
        const int head = block * WARPS + warp;
        if (head >= heads) continue;
        const Index start = (Index)head * dim;
        const float scale = rms_scale(sum_of_squares(o + start, dim, 0, 1), dim, eps);
        for (int at = 0; at < dim; at += LANES) {
            const int count = dim - at;
            const Floats normed = mul_rn(mul_rn(load(o + start + at, count), splat(scale)), load(w + at, count));
            store(y + start + at, mul_rn(normed, bitmath::silu(load(z + start + at, count))), count);
        }
    }
}
