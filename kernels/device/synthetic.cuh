// synthetic_words: words of a q4 matrix from a seed, laid out as in gemv.cuh.  words [rows][chunks * 32]
// synthetic_scales: its scales.  scales [rows][chunks * 8], written two at a time as words [rows][chunks * 4].
//   word i = hash(low, high, i), i counting from the start of the matrix; absent columns are nibble 8.
//   scale i = the sign and the 10 lowest bits of hash(low, high, i) around `exponent`; of absent columns +0.
//   hash(low, high, i) = mix(mix(i + low) ^ high), mix the 32-bit finaliser of MurmurHash3, all modulo 2^32
//
// Order: none, elements are independent whole numbers.
// Launch: words one warp a chunk, ceil(rows * chunks / 8) blocks; scales one lane a pair, ceil(rows * chunks * 4 / 256).
// Reference: engine/synthetic.py, which says where these bytes come from.
#pragma once
#include "gemv.cuh"

constexpr int PAIRS = NIBBLES / 2;  // words of two scales that a chunk has

DEV Words mix(Words x) {
    x = (x ^ (x >> 16)) * splat(0x85ebca6bu);
    x = (x ^ (x >> 13)) * splat(0xc2b2ae35u);
    return x ^ (x >> 16);
}

DEV Words hash(unsigned low, unsigned high, Words index) { return mix(mix(index + splat(low)) ^ splat(high)); }

// The nibbles from J on of a word whose columns from `count` on are absent
template <int J> DEV Words present_or_8(Words word, int count) {
    const Words nibble = splat(15u << (4 * J));
    const auto present = lane_index() < splat(count - J * LANES);
    word = present ? word : (word & ~nibble) | (splat(8u << (4 * J)) & nibble);
    if constexpr (J + 1 < NIBBLES)
        return present_or_8<J + 1>(word, count);
    else
        return word;
}

ENTRY(synthetic_words, unsigned* words, int low, int high, int rows, int cols) {
    const int chunks = (cols + CHUNK - 1) / CHUNK;
    BLOCK PHASE {
        const int chunk = block * WARPS + warp;
        if (chunk >= rows * chunks) continue;
        const unsigned first = (unsigned)chunk * LANES;
        const Words word = hash((unsigned)low + first, (unsigned)high, (Words)lane_index());
        const int count = cols - chunk % chunks * CHUNK;
        store(words + (Index)chunk * LANES, count < CHUNK ? present_or_8<0>(word, count) : word, LANES);
    }
}

DEV Words half_of(Words draw, int exponent) {
    return ((draw >> 16) & splat(0x8000u)) | splat((unsigned)exponent) | (draw & splat(0x03ffu));
}

ENTRY(synthetic_scales, unsigned* scales, int low, int high, int exponent, int rows, int cols) {
    const int chunks = (cols + CHUNK - 1) / CHUNK;
    const int pairs = rows * chunks * PAIRS;
    BLOCK PHASE {
        const int at = (block * WARPS + warp) * LANES;
        const Words even = ((Words)lane_index() + splat((unsigned)at)) * splat(2u);
        const Words first = half_of(hash((unsigned)low, (unsigned)high, even), exponent);
        const Words second = half_of(hash((unsigned)low, (unsigned)high, even + splat(1u)), exponent);
        const Words column = even % splat((unsigned)chunks * NIBBLES) * splat((unsigned)LANES);
        const Words low_half = column < splat((unsigned)cols) ? first : splat(0u);
        const Words high_half = column + splat((unsigned)LANES) < splat((unsigned)cols) ? second : splat(0u);
        store(scales + at, low_half | (high_half << 16), pairs - at);
    }
}
