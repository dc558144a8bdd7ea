// rms_norm: y = x / sqrt(mean(x^2) + eps) * (1 + w), a row.  x, y [M][n], w [n].
// add_rms_norm: x = x + z first, then the same of it.  z [M][n].
//
// Order: chunk c of 32 columns goes to warp c mod 8; a lane adds its squares by fma, chunk after chunk; then sum() and
// sum_of_warps(). r = 1 / sqrt(sum / n + eps), each rounded; x * r first, then the gain 1 + w.
// Launch: one block a row, so M blocks. Reference: rms_norm.py.
#pragma once
#include "lanes.cuh"

constexpr int CHUNKS = AHEAD > 1 ? 20 : 1;  // of 32 columns, loaded before the first is used: 5120 columns by 8 warps

// 1 / sqrt(sum_of_squares / n + eps)
DEV float rms_scale(float sum_of_squares, int n, float eps) {
    return div_rn(1.f, sqrt_rn(add_rn(div_rn(sum_of_squares, float_rn(n)), eps)));
}

// What one warp adds of the squares of x[n]: the chunks first, first + step, ... of 32 columns.
DEV float sum_of_squares(const float* x, int n, int first, int step) {
    Floats total = splat(0.f);
    int at = first * LANES;
    if constexpr (CHUNKS > 1) {
        for (; at + ((CHUNKS - 1) * step + 1) * LANES <= n; at += CHUNKS * step * LANES) {
            Floats some[CHUNKS];
            UNROLLED for (int i = 0; i < CHUNKS; ++i) some[i] = load(x + at + i * step * LANES);
            warp_barrier();
            UNROLLED for (int i = 0; i < CHUNKS; ++i) total = fma_rn(some[i], some[i], total);
        }
    }
    for (; at < n; at += step * LANES) {
        const Floats a = load(x + at, n - at);
        total = fma_rn(a, a, total);
    }
    return sum(total);
}

DEV Floats zero_centred_gain(Floats x, float scale, Floats w) {
    return mul_rn(mul_rn(x, splat(scale)), add_rn(splat(1.f), w));
}

// What one warp does of y = x * scale * (1 + w), a row.
DEV void store_normed(const float* x, const float* w, float* y, int n, float scale, int warp) {
    int at = warp * LANES;
    if constexpr (CHUNKS > 1) {
        for (; at + (CHUNKS - 1) * BLOCK_WIDTH + LANES <= n; at += CHUNKS * BLOCK_WIDTH) {
            Floats some[CHUNKS], gain[CHUNKS];
            UNROLLED for (int i = 0; i < CHUNKS; ++i) {
                some[i] = load(x + at + i * BLOCK_WIDTH);
                gain[i] = load(w + at + i * BLOCK_WIDTH);
            }
            warp_barrier();
            UNROLLED for (int i = 0; i < CHUNKS; ++i)
                store(y + at + i * BLOCK_WIDTH, zero_centred_gain(some[i], scale, gain[i]), LANES);
        }
    }
    for (; at < n; at += BLOCK_WIDTH)
        store(y + at, zero_centred_gain(load(x + at, n - at), scale, load(w + at, n - at)), n - at);
}

// What one warp does of x = x + z, a row, and the squares of it that it adds.
DEV float sum_of_squares_added(const float* z, float* x, int n, int warp) {
    Floats total = splat(0.f);
    int at = warp * LANES;
    if constexpr (CHUNKS > 1) {
        for (; at + (CHUNKS - 1) * BLOCK_WIDTH + LANES <= n; at += CHUNKS * BLOCK_WIDTH) {
            Floats some[CHUNKS], more[CHUNKS];
            UNROLLED for (int i = 0; i < CHUNKS; ++i) {
                some[i] = load(x + at + i * BLOCK_WIDTH);
                more[i] = load(z + at + i * BLOCK_WIDTH);
            }
            warp_barrier();
            UNROLLED for (int i = 0; i < CHUNKS; ++i) {
                const Floats added = add_rn(some[i], more[i]);
                store(x + at + i * BLOCK_WIDTH, added, LANES);
                total = fma_rn(added, added, total);
            }
        }
    }
    for (; at < n; at += BLOCK_WIDTH) {
        const Floats added = add_rn(load(x + at, n - at), load(z + at, n - at));
        store(x + at, added, n - at);
        total = fma_rn(added, added, total);
    }
    return sum(total);
}

ENTRY(rms_norm, const float* x, const float* w, float* y, int n, float eps) {
    BLOCK {
        const Index row = (Index)block * n;
        SHARED(float, partials, WARPS)
        PHASE { store_one(partials + warp, sum_of_squares(x + row, n, warp, WARPS)); }
        PHASE { store_normed(x + row, w, y + row, n, rms_scale(sum_of_warps(partials), n, eps), warp); }
    }
}

ENTRY(add_rms_norm, const float* __restrict__ z, float* __restrict__ x, const float* __restrict__ w,
      float* __restrict__ y, int n, float eps) {
    BLOCK {
        const Index row = (Index)block * n;
        SHARED(float, partials, WARPS)
        PHASE { store_one(partials + warp, sum_of_squares_added(z + row, x + row, n, warp)); }
        PHASE { store_normed(x + row, w, y + row, n, rms_scale(sum_of_warps(partials), n, eps), warp); }
    }
}
