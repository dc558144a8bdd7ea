// kv_append: row *cursor of the caches becomes this token's k and v.  k, v [kv_width], caches [capacity][kv_width].
// attention: one token's heads over the visible n = *cursor + 1 positions, with the output gate.
//   q, out [heads][head_dim], qg [heads][2][head_dim] (q, gate), caches [capacity][kv_heads][head_dim],
//   scratch [heads][scratch_stride], scratch_stride >= n + 256. Query head h reads kv head h / (heads / kv_heads).
//   s[t] = (q . k[t]) * scale;  p[t] = exp(s[t] - max s);  out = (sum p[t] v[t]) / (sum p[t]) * sigmoid(gate)
//
// Order: q . k[t]: lane l adds the columns l, l + 32, ... by fma, then sum(). Sums over t run over spans of 256
// positions at fixed places, 0..255, 256..511, ...; each starts at +0, and they are added in their order. Within a
// span p[t] v[t] is added t after t by fma; of p[t] lane l adds t = l, l + 32, ..., then sum().
// Launch: one block a head. Reference: attention.py.
#pragma once
#include "bitmath.cuh"

constexpr int SPAN = 256;  // positions; a later split over warps or blocks may cut only here

DEV float dot(const float* a, const float* b, int n) {
    Floats total = splat(0.f);
    for (int at = 0; at < n; at += LANES) total = fma_rn(load(a + at, n - at), load(b + at, n - at), total);
    return sum(total);
}

// sum of p[0..n)
DEV float sum_of_spans(const float* p, int n) {
    float total = 0.f;
    for (int start = 0; start < n; start += SPAN) {
        const int end = start + SPAN < n ? start + SPAN : n;
        Floats lanes = splat(0.f);
        for (int t = start; t < end; t += LANES) lanes = add_rn(lanes, load(p + t, end - t));
        total = add_rn(total, sum(lanes));
    }
    return total;
}

// sum of p[t] * values[t * stride + lane] over t in [0, n), for the first `count` lanes
DEV Floats weighted_sum(const float* p, const float* values, Index stride, int n, int count) {
    Floats total = splat(0.f);
    for (int start = 0; start < n; start += SPAN) {
        const int end = start + SPAN < n ? start + SPAN : n;
        Floats part = splat(0.f);
        for (int t = start; t < end; ++t) part = fma_rn(splat(p[t]), load(values + t * stride, count), part);
        total = add_rn(total, part);
    }
    return total;
}

ENTRY(kv_append, const float* k, const float* v, float* k_cache, float* v_cache, const int* cursor, int kv_width) {
    BLOCK PHASE {
        const int at = (block * WARPS + warp) * LANES;
        const Index row = (Index)*cursor * kv_width;
        store(k_cache + row + at, load(k + at, kv_width - at), kv_width - at);
        store(v_cache + row + at, load(v + at, kv_width - at), kv_width - at);
    }
}

ENTRY(attention, const float* q, const float* qg, const float* k_cache, const float* v_cache, const int* cursor,
      float* scratch, float* out, int heads, int kv_heads, int head_dim, int scratch_stride, float scale) {
    const int n = *cursor + 1;
    const Index stride = (Index)kv_heads * head_dim;
    BLOCK {
        const int head = block;
        const int kv_head = head / (heads / kv_heads);
        const float* keys = k_cache + (Index)kv_head * head_dim;
        const float* values = v_cache + (Index)kv_head * head_dim;
        float* p = scratch + (Index)head * scratch_stride;
        float* result = out + (Index)head * head_dim;
        SHARED(float, tops, WARPS)
        SHARED(float, denominator, 1)
        PHASE {  // scores; the position t goes to warp t mod 8
            float top = float_of(0xff800000u);
            for (int t = warp; t < n; t += WARPS) {
                const float score = mul_rn(dot(q + (Index)head * head_dim, keys + t * stride, head_dim), scale);
                top = score > top ? score : top;
                store_one(p + t, score);
            }
            store_one(tops + warp, top);
        }
        PHASE {
            float top = tops[0];
            for (int other = 1; other < WARPS; ++other) top = tops[other] > top ? tops[other] : top;
            for (int t = warp * LANES; t < n; t += BLOCK_WIDTH)
                store(p + t, bitmath::exp(sub_rn(load(p + t, n - t), splat(top))), n - t);
        }
        PHASE {
            if (warp == 0) store_one(denominator, sum_of_spans(p, n));
            for (int at = warp * LANES; at < head_dim; at += BLOCK_WIDTH)
                store(result + at, weighted_sum(p, values + at, stride, n, head_dim - at), head_dim - at);
        }
        PHASE {
            const float* gate = qg + ((Index)head * 2 + 1) * head_dim;
            for (int at = warp * LANES; at < head_dim; at += BLOCK_WIDTH) {
                const int count = head_dim - at;
                const Floats mean = div_rn(load(result + at, count), splat(denominator[0]));
                store(result + at, mul_rn(mean, bitmath::sigmoid(load(gate + at, count))), count);
            }
        }
    }
}
