// embed_f32: x = table[*token].  table [vocabulary][cols], x [cols].
// embed_q4: the same row of a q4 matrix, laid out as in gemv.cuh.
// argmax: token = the index of the largest of logits[n], the first of equals; NaN never wins; 0 if all are NaN.
//
// Order: none that moves a bit; a maximum is exact and ties go to the smaller index.
// Launch: embed_f32 ceil(cols / 256) blocks; embed_q4 one warp a chunk of 256 columns, ceil(chunks / 8); argmax 1.
// Reference: sample.py.
#pragma once
#include "gemv.cuh"

ENTRY(embed_f32, const float* table, const int* token, float* x, int cols) {
    BLOCK PHASE {
        const int at = (block * WARPS + warp) * LANES;
        store(x + at, load(table + (Index)*token * cols + at, cols - at), cols - at);
    }
}

// x[J*32..] of a chunk, then the later ones
template <int J> DEV void expand_q4(Words words, const unsigned short* scales, float* x, int count) {
    store(x + J * LANES, weight_q4<J>(words, scale_times_128(scales[J])), count - J * LANES);
    if constexpr (J + 1 < NIBBLES) expand_q4<J + 1>(words, scales, x, count);
}

ENTRY(embed_q4, const unsigned* words, const unsigned short* scales, const int* token, float* x, int cols) {
    const int chunks = (cols + CHUNK - 1) / CHUNK;
    BLOCK PHASE {
        const int chunk = block * WARPS + warp;
        if (chunk >= chunks) continue;
        const Index place = (Index)*token * chunks + chunk;
        expand_q4<0>(load(words + place * LANES), scales + place * NIBBLES, x + chunk * CHUNK, cols - chunk * CHUNK);
    }
}

// A value and its index; on ties the smaller index is the better one, so any order of better() gives the same.
struct Best {
    Floats value;
    Ints index;
};

DEV Best better(Best a, Best b) {
    const auto second = (b.value > a.value) | ((b.value == a.value) & (b.index < a.index));
    return {second ? b.value : a.value, second ? b.index : a.index};
}

template <int STEP> DEV Best better_across(Best a) { return better(a, {across<STEP>(a.value), across<STEP>(a.index)}); }

DEV Best best_lane(Best a) {
    a = better_across<16>(a);
    a = better_across<8>(a);
    a = better_across<4>(a);
    a = better_across<2>(a);
    return better_across<1>(a);
}

ENTRY(argmax, const float* logits, int* token, int n) {
    const int none = 0x7fffffff;
    const Best nothing = {splat(float_of(0xff800000u)), splat(none)};  // any number, -inf too, is better
    BLOCK {
        SHARED(float, values, WARPS)
        SHARED(int, indices, WARPS)
        PHASE {
            Best best = nothing;
            for (int at = warp * LANES; at < n; at += BLOCK_WIDTH) {
                const Ints index = lane_index() + splat(at);
                const auto present = index < splat(n);
                const Floats value = load(logits + at, n - at);
                best = better(best, {present ? value : nothing.value, present ? index : nothing.index});
            }
            best = best_lane(best);
            store_one(values + warp, common(best.value));
            store_one(indices + warp, common(best.index));
        }
        PHASE {
            if (warp != 0) continue;
            const auto present = lane_index() < splat(WARPS);
            const Floats value = load(values, WARPS);
            const Ints index = load(indices, WARPS);
            const Best best = best_lane({present ? value : nothing.value, present ? index : nothing.index});
            const int found = common(best.index);
            store_one(token, found == none ? 0 : found);
        }
    }
}
