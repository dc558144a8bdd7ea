// qk_prep: q and k of one token, normed a head and turned to the token's position.
//   qg [heads][2][head_dim] (q, gate), k [kv_heads][head_dim], q_weight, k_weight [head_dim], cursor [1],
//   cos, sin [positions][rotary / 2], rotary even, q_out [heads][head_dim], k_out [kv_heads][head_dim].
//   a = x / sqrt(mean(x^2) + eps) * (1 + w), then for i < rotary / 2, with j = i + rotary / 2 and the row *cursor:
//   out[i] = a[i] cos[i] - a[j] sin[i];  out[j] = a[j] cos[i] + a[i] sin[i];  out[i] = a[i] from rotary on.
//
// Order: the squares as in rms_norm, in one warp: lane l adds columns l, l + 32, ... by fma, then sum().
// The product with sin is rounded, then fma with the one with cos.
// Launch: one warp a head, the q heads first, ceil((heads + kv_heads) / 8) blocks. Reference: rope.py.
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
    BLOCK PHASE {
        const int head = block * WARPS + warp;
        if (head >= heads + kv_heads) continue;
        const Index angle = (Index)*cursor * (rotary / 2);
        const bool is_q = head < heads;
        const int kv_head = head - heads;
        prepare_head(is_q ? qg + (Index)head * 2 * head_dim : k + (Index)kv_head * head_dim, is_q ? q_weight : k_weight,
                     cos + angle, sin + angle,
                     is_q ? q_out + (Index)head * head_dim : k_out + (Index)kv_head * head_dim, head_dim, rotary, eps);
    }
}
