// gemv_q4: y = W x, W in 4-bit blocks, a row of x.
//   words [rows][chunks * 32], scales [rows][chunks * 8] (bits of a finite half), x [M][cols], y [M][rows]
// gemv_f32: ya = Wa x, yb = Wb x in one launch.  wa [rows_a][cols], wb [rows_b][cols]; rows_b may be 0.
//
// chunks = ceil(cols / 256). Nibble j of word (chunk c, lane l), its bits 4j..4j+3, is column c*256 + j*32 + l, and
// scale c*8 + j is the one of those 32 columns. A weight is (nibble - 8) * scale, which is exact in f32.
// Order: lane l adds the columns l, l + 32, l + 64, ... one after the other by fma; then sum().
// gemv_q4_rR_mM: the same product by the instance <R, M>, which reads R rows of W once for M rows of x. The order of
// each element is the same, so neither R nor M moves a bit.
// Launch: gemv_q4 one warp a row of W, ceil(rows / 8) blocks a row of x and M times as many for M; gemv_q4_rR_mM one
// warp R rows of W, ceil(rows / 8R); gemv_f32 ceil((rows_a + rows_b) / 8). Reference: gemv.py.
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

// (nibble j - 8) * scale as (1 + nibble / 128) * (128 scale) - 136 scale: one exact fma, and no integer to convert.
DEV Floats weight_q4(int j, Words words, float scale_128) {
    const Words placed = 4 * j < PLACE ? words << (PLACE - 4 * j) : words >> (4 * j - PLACE);
    const Floats shifted = float_of((placed & (15u << PLACE)) | ONE_BITS);
    return fma_rn(shifted, splat(scale_128), splat(mul_rn(scale_128, -1.0625f)));
}

template <int J> DEV Floats weight_q4(Words words, float scale_128) { return weight_q4(J, words, scale_128); }

// total[r][m] + the products of columns j*32.. of a chunk of weight row r with row m of x.
// words, scales and x begin where the chunk does in their row 0; weight row r lies chunks_on[r] chunks further on,
// row m of x m * cols floats; `count` columns are left from there on.
template <int R, int M>
DEV void dot_q4_rows(int j, Floats (&total)[R][M], const unsigned* words, const unsigned short* scales,
                     const Index (&chunks_on)[R], const float* x, int cols, int count) {
    reload();
    UNROLLED for (int r = 0; r < R; ++r) {
        const Index on = chunks_on[r];
        const Floats weights = weight_q4(j, load(words + on * LANES), scale_times_128(scales[on * NIBBLES + j]));
        UNROLLED for (int m = 0; m < M; ++m) {
            const Floats part = load(x + (Index)m * cols + j * LANES, count - j * LANES);
            total[r][m] = fma_rn(weights, part, total[r][m]);
        }
    }
}

// The same of columns J*32.. and of all later ones.
template <int J, int R, int M>
DEV void dot_q4_chunk(Floats (&total)[R][M], const unsigned* words, const unsigned short* scales,
                      const Index (&chunks_on)[R], const float* x, int cols, int count) {
    dot_q4_rows(J, total, words, scales, chunks_on, x, cols, count);
    if constexpr (J + 1 < NIBBLES) dot_q4_chunk<J + 1>(total, words, scales, chunks_on, x, cols, count);
}

// What one warp does of y = x W^T: the weight rows first .. first + R - 1, read once for M rows of x.
//   x [M][cols], y [M][rows]. The last weight row of all stands for those that are absent, a whole warp's too.
template <int R, int M>
DEV void gemv_q4_rows(const unsigned* words, const unsigned short* scales, const float* x, float* y, int rows, int cols,
                      int first) {
    const int whole = cols / CHUNK;
    const int chunks = (cols + CHUNK - 1) / CHUNK;
    const unsigned* row_words = words + (Index)first * chunks * LANES;
    const unsigned short* row_scales = scales + (Index)first * chunks * NIBBLES;
    Index chunks_on[R];
    Floats total[R][M];
    UNROLLED for (int r = 0; r < R; ++r) {
        chunks_on[r] = (Index)(R * M == 1 || first + r < rows ? r : rows - 1 - first) * chunks;
        UNROLLED for (int m = 0; m < M; ++m) {
            total[r][m] = splat(0.f);
            reload();  // or it becomes a call of memset, which the library does not have
        }
    }
    if constexpr (R * M == 1) {
        for (int c = 0; c < whole; ++c)
            dot_q4_chunk<0>(total, row_words + c * LANES, row_scales + c * NIBBLES, chunks_on, x + c * CHUNK, cols,
                            CHUNK);
        if (whole < chunks)
            dot_q4_chunk<0>(total, row_words + whole * LANES, row_scales + whole * NIBBLES, chunks_on,
                            x + whole * CHUNK, cols, cols - whole * CHUNK);
        store_one(y + first, sum(total[0][0]));
    } else {  // for the size of the code: one loop over all chunks, rolled, and sums outside every condition
        for (int c = 0; c < chunks; ++c)
#pragma unroll 1
            for (int j = 0; j < NIBBLES; ++j)
                dot_q4_rows(j, total, row_words + c * LANES, row_scales + c * NIBBLES, chunks_on, x + c * CHUNK, cols,
                            cols - c * CHUNK);
        UNROLLED for (int r = 0; r < R; ++r) {
            UNROLLED for (int m = 0; m < M; ++m) {
                const float product = sum(total[r][m]);
                if (first + r < rows) store_one(y + (Index)m * rows + first + r, product);
            }
        }
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

// The instances of 2 to 8 rows, for every R that the engine's table may name: r_table.py.
#define GEMV_Q4_ROWS(R, M)                                                                                            \
    ENTRY(gemv_q4_r##R##_m##M, const unsigned* words, const unsigned short* scales, const float* x, float* y,        \
          int rows, int cols) {                                                                                       \
        BLOCK PHASE {                                                                                                 \
            gemv_q4_rows<R, M>(words, scales, x, y, rows, cols, (block * WARPS + warp) * R);                           \
        }                                                                                                             \
    }
#define GEMV_Q4_EACH_M(R) \
    GEMV_Q4_ROWS(R, 2) GEMV_Q4_ROWS(R, 3) GEMV_Q4_ROWS(R, 4) GEMV_Q4_ROWS(R, 5) GEMV_Q4_ROWS(R, 6) \
    GEMV_Q4_ROWS(R, 7) GEMV_Q4_ROWS(R, 8)
GEMV_Q4_EACH_M(1)
GEMV_Q4_EACH_M(2)
GEMV_Q4_EACH_M(4)
GEMV_Q4_EACH_M(8)
