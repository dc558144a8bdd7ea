// qk_prep: q and k of M tokens, normed a head and turned to the token's position, for row m the position *cursor + m.
//   qg [M][heads][2][head_dim] (q, gate), k [M][kv_heads][head_dim], q_weight, k_weight [head_dim], cursor [1],
//   cos, sin [positions][rotary / 2], rotary even, q_out [M][heads][head_dim], k_out [M][kv_heads][head_dim].
//   a = x / sqrt(mean(x^2) + eps) * (1 + w), then for i < rotary / 2, with j = i + rotary / 2 and the position's row:
//   out[i] = a[i] cos[i] - a[j] sin[i];  out[j] = a[j] cos[i] + a[i] sin[i];  out[i] = a[i] from rotary on.
//
// Order: the squares as in rms_norm, in one warp: lane l adds columns l, l + 32, ... by fma, then sum().
// The product with sin is rounded, then fma with the one with cos.
// Launch: one warp a head, the q heads first, ceil((heads + kv_heads) / 8) blocks a row. Reference: rope.py.
#pragma once
#include "rms_norm.cuh"

// out[head_dim] from x[head_dim]; cos and sin are the position's row
DEV void prepare_head(const float* x, const float* w, const float* cos, const float* sin, float* out, int head_dim,
                      int rotary, float eps) {
    const float scale = rms_scale(sum_of_squares(x, head_dim, 0, 1), head_dim, eps);
    const int half = rotary / 2;
    for (int at = 0; at < half; at += LANES) {
        const int count = half - at;
        const int other = at + half;
        const Floats a = zero_centred_gain(load(x + at, count), scale, load(w + at, count));
        const Floats b = zero_centred_gain(load(x + other, count), scale, load(w + other, count));
        const Floats c = load(cos + at, count);
        const Floats s = load(sin + at, count);
        store(out + at, fma_rn(a, c, -mul_rn(b, s)), count);
        store(out + other, fma_rn(b, c, mul_rn(a, s)), count);
    }
    for (int at = rotary; at < head_dim; at += LANES) {
        const int count = head_dim - at;
        store(out + at, zero_centred_gain(load(x + at, count), scale, load(w + at, count)), count);
    }
}

ENTRY(qk_prep, const float* qg, const float* k, const float* q_weight, const float* k_weight, const float* cos,
      const float* sin, const int* cursor, float* q_out, float* k_out, int heads, int kv_heads, int head_dim,
      int rotary, float eps) {
    const int blocks_per_row = (heads + kv_heads + WARPS - 1) / WARPS;
    BLOCK {
        const int m = block / blocks_per_row;
        PHASE {
            const int head = (block - m * blocks_per_row) * WARPS + warp;
            if (head >= heads + kv_heads) continue;
            const Index angle = (Index)(*cursor + m) * (rotary / 2);
            const bool is_q = head < heads;
            const Index place = is_q ? (Index)m * heads + head : (Index)m * kv_heads + head - heads;
            prepare_head(is_q ? qg + place * 2 * head_dim : k + place * head_dim, is_q ? q_weight : k_weight,
                         cos + angle, sin + angle, (is_q ? q_out : k_out) + place * head_dim, head_dim, rotary, eps);
        }
    }
}
