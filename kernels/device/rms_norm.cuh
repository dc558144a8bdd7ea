// rms_norm: y = x / sqrt(mean(x^2) + eps) * (1 + w), a row.  x, y [M][n], w [n].
//
// Order: chunk c of 32 columns goes to warp c mod 8; a lane adds its squares by fma, chunk after chunk; then sum() and
// sum_of_warps(). r = 1 / sqrt(sum / n + eps), each rounded; x * r first, then the gain 1 + w.
// Launch: one block a row, so M blocks. Reference: rms_norm.py.
#pragma once
#include "lanes.cuh"

// 1 / sqrt(sum_of_squares / n + eps)
DEV float rms_scale(float sum_of_squares, int n, float eps) {
    return div_rn(1.f, sqrt_rn(add_rn(div_rn(sum_of_squares, float_rn(n)), eps)));
}

// What one warp adds of the squares of x[n]: the chunks first, first + step, ... of 32 columns.
DEV float sum_of_squares(const float* x, int n, int first, int step) {
    Floats total = splat(0.f);
    for (int at = first * LANES; at < n; at += step * LANES) {
        const Floats a = load(x + at, n - at);
        total = fma_rn(a, a, total);
    }
    return sum(total);
}

DEV Floats zero_centred_gain(Floats x, float scale, Floats w) {
    return mul_rn(mul_rn(x, splat(scale)), add_rn(splat(1.f), w));
}

ENTRY(rms_norm, const float* x, const float* w, float* y, int n, float eps) {
    BLOCK {
        const Index row = (Index)block * n;
        SHARED(float, partials, WARPS)
        PHASE { store_one(partials + warp, sum_of_squares(x + row, n, warp, WARPS)); }
        PHASE {
            const float scale = rms_scale(sum_of_warps(partials), n, eps);
            for (int at = warp * LANES; at < n; at += BLOCK_WIDTH) {
                const int count = n - at;
                const Floats gained = zero_centred_gain(load(x + row + at, count), scale, load(w + at, count));
                store(y + row + at, gained, count);
            }
        }
    }
}
