// swiglu: y = silu(gate) * up.  add: y = y + x.  All [n].
//
// Order: none, elements are independent. silu is bitmath's, the product is rounded once.
// Launch: one lane an element, ceil(n / 256) blocks. Reference: swiglu.py.
#pragma once
#include "bitmath.cuh"

ENTRY(swiglu, const float* gate, const float* up, float* y, int n) {
    BLOCK PHASE {
        const int at = (block * WARPS + warp) * LANES;
        const int count = n - at;
        store(y + at, mul_rn(bitmath::silu(load(gate + at, count)), load(up + at, count)), count);
    }
}

ENTRY(add, const float* x, float* y, int n) {
    BLOCK PHASE {
        const int at = (block * WARPS + warp) * LANES;
        const int count = n - at;
        store(y + at, add_rn(load(y + at, count), load(x + at, count)), count);
    }
}
