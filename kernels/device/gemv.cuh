// gemv_q4: y = W x, W in 4-bit blocks, a row of x.
//   words [rows][chunks * 32], scales [rows][chunks * 8] (bits of a finite half), x [M][cols], y [M][rows]
// gemv_f32: ya = Wa x, yb = Wb x in one launch.  wa [rows_a][cols], wb [rows_b][cols]; rows_b may be 0.
//
// chunks = ceil(cols / 256). Nibble j of word (chunk c, lane l), its bits 4j..4j+3, is column c*256 + j*32 + l, and
// scale c*8 + j is the one of those 32 columns. A weight is (nibble - 8) * scale, which is exact in f32.
// Order: lane l adds the columns l, l + 32, l + 64, ... one after the other by fma; then sum().
// gemv_q4_rows<R, M>, for R weight rows a warp and M rows of x, has the same order for each element of y [M][rows].
// Launch: gemv_q4 one warp a row of W, ceil(rows / 8) blocks a row of x and M times as many for M; gemv_f32
// ceil((rows_a + rows_b) / 8). Reference: gemv.py.
#pragma once
#include "lanes.cuh"

constexpr int CHUNK = 256;  // columns that one word a lane holds
constexpr int NIBBLES = CHUNK / LANES;
constexpr int PLACE = 16;   // the bit of a float's mantissa where a nibble is put: 1 + nibble / 128
constexpr unsigned ONE_BITS = 0x3f800000u;

// A scale times 128, exactly: the fields of the half go to their places in a float, and 2^112 corrects the exponent.
DEV float scale_times_128(unsigned short half_bits) {
    const unsigned moved = ((unsigned)(int)(short)half_bits << 13) & 0x8fffe000u;
    return mul_rn(float_of(moved), 0x1p119f);
}

// (nibble J - 8) * scale as (1 + nibble / 128) * (128 scale) - 136 scale: one exact fma, and no integer to convert.
template <int J> DEV Floats weight_q4(Words words, float scale_128) {
    Words placed;
    if constexpr (4 * J < PLACE)
        placed = words << (PLACE - 4 * J);
    else
        placed = words >> (4 * J - PLACE);
    const Floats shifted = float_of((placed & (15u << PLACE)) | ONE_BITS);
    return fma_rn(shifted, splat(scale_128), splat(mul_rn(scale_128, -1.0625f)));
}

// total[r][m] + the products of columns J*32.. of a chunk of weight row r with row m of x, then of the later columns.
// words, scales and x begin where the chunk does in their row 0; weight row r lies rows_on[r] rows of `chunks` further
// on, row m of x m * cols floats; `count` columns are left from there on.
template <int J, int R, int M>
DEV void dot_q4_rows(Floats (&total)[R][M], const unsigned* words, const unsigned short* scales,
                     const int (&rows_on)[R], int chunks, const float* x, int cols, int count) {
    reload();
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const Index on = (Index)rows_on[r] * chunks;
        const Floats weights = weight_q4<J>(load(words + on * LANES), scale_times_128(scales[on * NIBBLES + J]));
#pragma unroll
        for (int m = 0; m < M; ++m) {
            const Floats part = load(x + (Index)m * cols + J * LANES, count - J * LANES);
            total[r][m] = fma_rn(weights, part, total[r][m]);
        }
    }
    if constexpr (J + 1 < NIBBLES) dot_q4_rows<J + 1>(total, words, scales, rows_on, chunks, x, cols, count);
}

// What one warp does of y = x W^T: the weight rows first .. first + R - 1, read once for M rows of x.
//   x [M][cols], y [M][rows]. Where fewer than R weight rows are left, the last one stands for those that are absent.
template <int R, int M>
DEV void gemv_q4_rows(const unsigned* words, const unsigned short* scales, const float* x, float* y, int rows, int cols,
                      int first) {
    const int whole = cols / CHUNK;
    const int chunks = (cols + CHUNK - 1) / CHUNK;
    const unsigned* row_words = words + (Index)first * chunks * LANES;
    const unsigned short* row_scales = scales + (Index)first * chunks * NIBBLES;
    int rows_on[R];
    Floats total[R][M];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        rows_on[r] = r == 0 || first + r < rows ? r : rows - 1 - first;
#pragma unroll
        for (int m = 0; m < M; ++m) total[r][m] = splat(0.f);
    }
    for (int c = 0; c < whole; ++c)
        dot_q4_rows<0>(total, row_words + c * LANES, row_scales + c * NIBBLES, rows_on, chunks, x + c * CHUNK, cols,
                       CHUNK);
    if (whole < chunks)
        dot_q4_rows<0>(total, row_words + whole * LANES, row_scales + whole * NIBBLES, rows_on, chunks,
                       x + whole * CHUNK, cols, cols - whole * CHUNK);
#pragma unroll
    for (int r = 0; r < R; ++r) {
        if (first + r >= rows) continue;
#pragma unroll
        for (int m = 0; m < M; ++m) store_one(y + (Index)m * rows + first + r, sum(total[r][m]));
    }
}

ENTRY(gemv_q4, const unsigned* words, const unsigned short* scales, const float* x, float* y, int rows, int cols) {
    const int blocks_per_row = (rows + WARPS - 1) / WARPS;
    BLOCK {
        const int m = block / blocks_per_row;
        PHASE {
            const int row = (block - m * blocks_per_row) * WARPS + warp;
            if (row >= rows) continue;
            gemv_q4_rows<1, 1>(words, scales, x + (Index)m * cols, y + (Index)m * rows, rows, cols, row);
        }
    }
}

ENTRY(gemv_f32, const float* wa, const float* wb, const float* x, float* ya, float* yb, int rows_a, int rows_b,
      int cols) {
    BLOCK PHASE {
        const int row = block * WARPS + warp;
        if (row >= rows_a + rows_b) continue;
        const bool in_a = row < rows_a;
        const float* weights = in_a ? wa + (Index)row * cols : wb + (Index)(row - rows_a) * cols;
        Floats total = splat(0.f);
        for (int at = 0; at < cols; at += LANES)
            total = fma_rn(load(weights + at, cols - at), load(x + at, cols - at), total);
        store_one(in_a ? ya + row : yb + (row - rows_a), sum(total));
    }
}
