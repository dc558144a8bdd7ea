// kv_append: rows *cursor + m of the caches become the k and v of M tokens.  k, v [M][kv_width], caches [..][kv_width].
// attention: the heads of M tokens with the output gate; row m sees the n = *cursor + m + 1 positions up to its own.
//   q, out [M][heads][head_dim], qg [M][heads][2][head_dim] (q, gate), caches [capacity][kv_heads][head_dim],
//   scratch [M][heads][scratch_stride], scratch_stride >= *cursor + M + 256. Query head h reads kv head
//   h / (heads / kv_heads).
//   s[t] = (q . k[t]) * scale;  p[t] = exp(s[t] - max s);  out = (sum p[t] v[t]) / (sum p[t]) * sigmoid(gate)
//
// Order: q . k[t]: lane l adds the columns l, l + 32, ... by fma, then sum(). Sums over t run over spans of 256
// positions at fixed places, 0..255, 256..511, ...; each starts at +0, and they are added in their order. Within a
// span p[t] v[t] is added t after t by fma; of p[t] lane l adds t = l, l + 32, ..., then sum().
// Launch: kv_append ceil(kv_width / 256) blocks a row; attention one block a head of a row. Reference: attention.py.
#pragma once
#include "bitmath.cuh"

constexpr int SPAN = 256;  // positions; a later split over warps or blocks may cut only here

constexpr int POSITIONS = AHEAD > 1 ? 4 : 1;  // that a warp works on at once

// products[i] = what each lane has of a . b[i] over n columns, for i below `present`; b[i] begins i * stride on.
DEV void dots(Floats (&products)[POSITIONS], const float* a, const float* b, Index stride, int n, int present) {
    UNROLLED for (int i = 0; i < POSITIONS; ++i) products[i] = splat(0.f);
#pragma unroll 2
    for (int at = 0; at < n; at += LANES) {
        const Floats part = load(a + at, n - at);
        UNROLLED for (int i = 0; i < POSITIONS; ++i)
            products[i] = fma_rn(part, load(b + i * stride + at, i < present ? n - at : 0), products[i]);
    }
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
        int t = start;
        if constexpr (AHEAD > 1) {
            for (; t + AHEAD <= end; t += AHEAD) {
                Floats some[AHEAD];
                UNROLLED for (int i = 0; i < AHEAD; ++i) some[i] = load(values + (t + i) * stride, count);
                warp_barrier();
                UNROLLED for (int i = 0; i < AHEAD; ++i) part = fma_rn(splat(p[t + i]), some[i], part);
            }
        }
        for (; t < end; ++t) part = fma_rn(splat(p[t]), load(values + t * stride, count), part);
        total = add_rn(total, part);
    }
    return total;
}

ENTRY(kv_append, const float* k, const float* v, float* k_cache, float* v_cache, const int* cursor, int kv_width) {
    const int blocks_per_row = (kv_width + BLOCK_WIDTH - 1) / BLOCK_WIDTH;
    BLOCK {
        const int m = block / blocks_per_row;
        const Index source = (Index)m * kv_width;
        const Index target = (Index)(*cursor + m) * kv_width;
        PHASE {
            const int at = ((block - m * blocks_per_row) * WARPS + warp) * LANES;
            store(k_cache + target + at, load(k + source + at, kv_width - at), kv_width - at);
            store(v_cache + target + at, load(v + source + at, kv_width - at), kv_width - at);
        }
    }
}

ENTRY(attention, const float* q, const float* qg, const float* k_cache, const float* v_cache, const int* cursor,
      float* scratch, float* out, int heads, int kv_heads, int head_dim, int scratch_stride, float scale) {
    const Index stride = (Index)kv_heads * head_dim;
    BLOCK {
        const int m = block / heads;
        const int head = block - m * heads;
        const int n = *cursor + m + 1;
        const int kv_head = head / (heads / kv_heads);
        const float* keys = k_cache + (Index)kv_head * head_dim;
        const float* values = v_cache + (Index)kv_head * head_dim;
        const float* query = q + (Index)block * head_dim;
        const float* gate = qg + ((Index)block * 2 + 1) * head_dim;
        float* p = scratch + (Index)block * scratch_stride;
        float* result = out + (Index)block * head_dim;
        SHARED(float, tops, WARPS)
        SHARED(float, denominator, 1)
        PHASE {  // scores; the position t goes to warp t mod 8
            float top = float_of(0xff800000u);
            for (int first = warp; first < n; first += POSITIONS * WARPS) {
                Floats products[POSITIONS];
                dots(products, query, keys + first * stride, WARPS * stride, head_dim, (n - first + WARPS - 1) / WARPS);
                UNROLLED for (int i = 0; i < POSITIONS; ++i) {
                    const int t = first + i * WARPS;
                    const float score = mul_rn(sum(products[i]), scale);
                    if (t >= n) continue;
                    top = score > top ? score : top;
                    store_one(p + t, score);
                }
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
            for (int at = warp * LANES; at < head_dim; at += BLOCK_WIDTH) {
                const int count = head_dim - at;
                const Floats mean = div_rn(load(result + at, count), splat(denominator[0]));
                store(result + at, mul_rn(mean, bitmath::sigmoid(load(gate + at, count))), count);
            }
        }
    }
}
