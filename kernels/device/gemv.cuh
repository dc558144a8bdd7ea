// gemv_q4: y = W x, W in 4-bit blocks, a row of x.
//   words [rows][chunks * 32], scales [rows][chunks * 8] (bits of a finite half), x [M][cols], y [M][rows]
// gemv_f32: ya = Wa x, yb = Wb x in one launch.  wa [rows_a][cols], wb [rows_b][cols]; rows_b may be 0.
//
// chunks = ceil(cols / 256). Nibble j of word (chunk c, lane l), its bits 4j..4j+3, is column c*256 + j*32 + l, and
// scale c*8 + j is the one of those 32 columns. A weight is (nibble - 8) * scale, which is exact in f32.
// Order: lane l adds the columns l, l + 32, l + 64, ... one after the other by fma; then sum().
// gemv_q4_rR_mM: the same product by the instance <R, M>, which reads R rows of W once for M rows of x. The order of
// each element is the same, so neither R nor M moves a bit. For M = 1 words, scales and x begin at whole 16 bytes.
// project_rR: for one row of x the products of three q4 matrices and two f32 ones in one launch; any may have no row.
// Launch: gemv_q4 one warp a row of W, ceil(rows / 8) blocks a row of x and M times as many for M; gemv_q4_rR_mM one
// warp R rows of W, ceil(rows / 8R); gemv_f32 ceil((rows_a + rows_b) / 8); project_rR ceil((rows_d + rows_e) / 8) and
// ceil(rows / 8R) for each of the others. Reference: gemv.py.
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

// One row of two f32 matrices that lie one behind the other: y = w . x.
DEV void gemv_f32_row(const float* wa, const float* wb, const float* x, float* ya, float* yb, int rows_a, int rows_b,
                      int cols, int row) {
    if (row >= rows_a + rows_b) return;
    const bool in_a = row < rows_a;
    const float* weights = in_a ? wa + (Index)row * cols : wb + (Index)(row - rows_a) * cols;
    Floats total = splat(0.f);
    int at = 0;
    if constexpr (AHEAD > 1) {
        for (; at + AHEAD * LANES <= cols; at += AHEAD * LANES) {
            Floats left[AHEAD], right[AHEAD];
            UNROLLED for (int i = 0; i < AHEAD; ++i) {
                left[i] = load(weights + at + i * LANES);
                right[i] = load(x + at + i * LANES);
            }
            warp_barrier();
            UNROLLED for (int i = 0; i < AHEAD; ++i) total = fma_rn(left[i], right[i], total);
        }
    }
    for (; at < cols; at += LANES) total = fma_rn(load(weights + at, cols - at), load(x + at, cols - at), total);
    store_one(in_a ? ya + row : yb + (row - rows_a), sum(total));
}

ENTRY(gemv_f32, const float* wa, const float* wb, const float* x, float* ya, float* yb, int rows_a, int rows_b,
      int cols) {
    BLOCK PHASE { gemv_f32_row(wa, wb, x, ya, yb, rows_a, rows_b, cols, block * WARPS + warp); }
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

// --- one row of x ---

#if LANE_IS_THREAD  // R rows lie side by side in a warp, which has the words of its next chunks under way

// A nibble is made a float where it lies: at bit p of a mantissa it is 2^(23-p) + nibble, and one exact fma with
// -(2^(23-p) + 8) * scale leaves (nibble - 8) * scale. The word is moved once for each three nibbles.
DEV constexpr int place_of(int j) { return j < 2 ? 8 + 4 * j : j < 5 ? 4 * j : 4 * j - 12; }
constexpr int PLACES = 3;  // 8, 12, 16
DEV constexpr unsigned exponent_at(int place) { return (unsigned)(127 + 23 - place) << 23; }
DEV constexpr float offset_at(int place) { return -(float)((1 << (23 - place)) + 8); }

template <int J> DEV unsigned moved(unsigned word) { return J < 2 ? word << 8 : J < 5 ? word : word >> 12; }

// R rows: W side by side, and that G times; U chunks at once; so FIT blocks a multiprocessor have registers enough.
// A block has NEAR columns of x in shared memory at once, or reads x where it lies. Measured, on an H200.
template <int R> struct Sweep {
    static constexpr int W = R < 4 ? R : 4, G = R / W, U = R == 1 ? 4 : R == 8 ? 1 : 2, FIT = R == 8 ? 2 : 3;
    static constexpr int NEAR = R < 4 ? 0 : 20 * CHUNK;
    typedef Spread<float, W> Total[G];
};

// Of R rows the words of U chunks, and their scales, the eight of a chunk in every thread.
template <int R, int U> struct Taken {
    Spread<unsigned, Sweep<R>::W> words[U][Sweep<R>::G];
    Spread<unsigned, NIBBLES / 2> scales[U][Sweep<R>::G];
};

// `at`: where a thread's rows begin, in chunks.
template <int R, int U>
DEV Taken<R, U> take(const unsigned* words, const unsigned short* scales, const int (&at)[Sweep<R>::G], int chunk) {
    constexpr int W = Sweep<R>::W;
    Taken<R, U> taken;
    UNROLLED for (int u = 0; u < U; ++u) {
        UNROLLED for (int g = 0; g < Sweep<R>::G; ++g) {
            const Index on = at[g] + chunk + u;
            taken.words[u][g] = load_spread_once<W>(words + on * LANES + spread_lane<W>());
            taken.scales[u][g] = load_spread<NIBBLES / 2>((const unsigned*)(scales + on * NIBBLES));
        }
    }
    return taken;
}

// total + the products of columns J*32.. of chunk u, then of the later ones; x is this thread's place in that chunk.
template <int J, int R, int U>
DEV void dot_taken(typename Sweep<R>::Total& total, const Taken<R, U>& taken, int u, const float* x,
                   const unsigned (&exponents)[PLACES]) {
    constexpr int P = place_of(J);
    const auto part = load_spread<Sweep<R>::W>(x + J * LANES);
    UNROLLED for (int g = 0; g < Sweep<R>::G; ++g) {
        const float scale = widen((Halves)(taken.scales[u][g].lane[J / 2] >> J % 2 * 16));
        const float offset = mul_rn(scale, offset_at(P));
        UNROLLED for (int w = 0; w < Sweep<R>::W; ++w) {
            const unsigned placed = put<(15u << P)>(moved<J>(taken.words[u][g].lane[w]), exponents[P / 4 - 2]);
            const float weight = fma_rn(float_of(placed), scale, offset);
            total[g].lane[w] = fma_rn(weight, part.lane[w], total[g].lane[w]);
        }
    }
    if constexpr (J + 1 < NIBBLES) dot_taken<J + 1>(total, taken, u, x, exponents);
}

// The same of one chunk, in few instructions.
template <int R>
DEV void dot_rest(typename Sweep<R>::Total& total, const unsigned* words, const unsigned short* scales,
                  const int (&at)[Sweep<R>::G], int chunk, const float* x, int left,
                  const unsigned (&exponents)[PLACES]) {
    constexpr int P = place_of(0);
    Taken<R, 1> taken = take<R, 1>(words, scales, at, chunk);
#pragma unroll 1
    for (int j = 0; j < NIBBLES; ++j) {
        const auto part = load_spread<Sweep<R>::W>(x + j * LANES, left - j * LANES);
        UNROLLED for (int g = 0; g < Sweep<R>::G; ++g) {
            const float scale = widen(scales[(Index)(at[g] + chunk) * NIBBLES + j]);
            const float offset = mul_rn(scale, offset_at(P));
            UNROLLED for (int w = 0; w < Sweep<R>::W; ++w) {
                unsigned& word = taken.words[0][g].lane[w];
                const float weight = fma_rn(float_of(put<(15u << P)>(word << P, exponents[0])), scale, offset);
                total[g].lane[w] = fma_rn(weight, part.lane[w], total[g].lane[w]);
                word >>= 4;
            }
        }
    }
}

// What one warp does of y = W x: the weight rows first .. first + R - 1; the last row of all stands for absent ones.
// All warps of the block are here with the same x, and `near` is theirs. y is not read before it is needed.
template <int R>
DEV void gemv_q4_one_row(const unsigned* words, const unsigned short* scales, const float* x, float* const& y, int rows,
                         int cols, int first, float* near) {
    constexpr int W = Sweep<R>::W, G = Sweep<R>::G, U = Sweep<R>::U, NEAR = Sweep<R>::NEAR;
    const int chunks = (cols + CHUNK - 1) / CHUNK, whole = cols / (U * CHUNK) * U;
    const unsigned exponents[PLACES] = {in_register(exponent_at(8)), in_register(exponent_at(12)),
                                        in_register(exponent_at(16))};
    int at[G];
    typename Sweep<R>::Total total;
    UNROLLED for (int g = 0; g < G; ++g) {
        const int row = first + g * W + spread_row<W>();
        at[g] = (row < rows ? row : rows - 1) * chunks;
        UNROLLED for (int w = 0; w < W; ++w) total[g].lane[w] = 0.f;
    }
    Taken<R, U> taken;
    if (whole > 0) taken = take<R, U>(words, scales, at, 0);
    for (int chunk = 0, end = chunks; chunk < chunks; end = chunks) {
        const float* from = x;  // column 0, as far as x is at hand
        if constexpr (NEAR > 0) {
            bring_near<NEAR, CHUNK>(near, x + chunk * CHUNK, cols - chunk * CHUNK);
            from = near - chunk * CHUNK;
            if (chunk + NEAR / CHUNK < chunks) end = chunk + NEAR / CHUNK;
        }
        from += spread_lane<W>();
#pragma unroll 2  // so that what is taken for the next round need not be moved
        for (; chunk + U <= (end < whole ? end : whole); chunk += U) {
            const Taken<R, U> next = take<R, U>(words, scales, at, chunk + U < whole ? chunk + U : chunk);
            warp_barrier();
            UNROLLED for (int u = 0; u < U; ++u)
                dot_taken<0>(total, taken, u, from + (chunk + u) * CHUNK, exponents);
            taken = next;
        }
#pragma unroll 1
        for (; chunk < end; ++chunk)
            dot_rest<R>(total, words, scales, at, chunk, from + chunk * CHUNK,
                        NEAR > 0 ? CHUNK : cols - chunk * CHUNK, exponents);
    }
    UNROLLED for (int g = 0; g < G; ++g) {
        const float product = sum(total[g]);
        if (spread_lane<W>() == 0) y[at[g] / chunks] = product;  // an absent row is the last one, to the bit
    }
}

template <int R> DEV constexpr int near_floats() { return Sweep<R>::NEAR > 0 ? Sweep<R>::NEAR : 1; }

#else  // row by row

template <int R> DEV constexpr int near_floats() { return 1; }

template <int R>
DEV void gemv_q4_one_row(const unsigned* words, const unsigned short* scales, const float* x, float* y, int rows,
                         int cols, int first, float*) {
    for (int row = first; row < first + R && row < rows; ++row)
        gemv_q4_rows<1, 1>(words, scales, x, y, rows, cols, row);
}

#endif

struct Matrix {
    const unsigned* words;
    const unsigned short* scales;
    float* y;
    int rows, blocks_before;
};

// The matrix of three that a block works on, where a block does so many rows.
DEV Matrix matrix_of(const Matrix (&matrices)[3], int block, int rows_a_block) {
    Matrix found = matrices[0];
    int before = 0;
    for (int i = 1; i < 3 && block >= before + (found.rows + rows_a_block - 1) / rows_a_block; ++i) {
        before += (found.rows + rows_a_block - 1) / rows_a_block;
        found = matrices[i];
    }
    found.blocks_before = before;
    return found;
}

#define GEMV_Q4_ONE_ROW(R)                                                                                            \
    ENTRY_AT_LEAST(Sweep<R>::FIT, gemv_q4_r##R##_m1, const unsigned* words, const unsigned short* scales,             \
                   const float* x, float* y, int rows, int cols) {                                                    \
        BLOCK {                                                                                                       \
            SHARED(float, near, near_floats<R>())                                                          \
            PHASE { gemv_q4_one_row<R>(words, scales, x, y, rows, cols, (block * WARPS + warp) * R, near); }          \
        }                                                                                                             \
    }                                                                                                                 \
    ENTRY_AT_LEAST(Sweep<R>::FIT, project_r##R, const unsigned* words_a, const unsigned short* scales_a, float* ya,   \
                   int rows_a, const unsigned* words_b, const unsigned short* scales_b, float* yb, int rows_b,        \
                   const unsigned* words_c, const unsigned short* scales_c, float* yc, int rows_c, const float* wd,   \
                   float* yd, int rows_d, const float* we, float* ye, int rows_e, const float* x, int cols) {         \
        const Matrix matrices[] = {                                                                                   \
            {words_a, scales_a, ya, rows_a}, {words_b, scales_b, yb, rows_b}, {words_c, scales_c, yc, rows_c}};       \
        const int plain = (rows_d + rows_e + WARPS - 1) / WARPS;                                                      \
        BLOCK {                                                                                                       \
            SHARED(float, near, near_floats<R>())                                                          \
            SHARED(Matrix, chosen, 1)                                                                                 \
            PHASE { if (warp == 0) store_one(chosen, matrix_of(matrices, block - plain, WARPS * R)); }                \
            PHASE {                                                                                                   \
                if (block < plain) {                                                                                  \
                    gemv_f32_row(wd, we, x, yd, ye, rows_d, rows_e, cols, block * WARPS + warp);                      \
                    continue;                                                                                         \
                }                                                                                                     \
                const int first = ((block - plain - chosen->blocks_before) * WARPS + warp) * R;                       \
                gemv_q4_one_row<R>(chosen->words, chosen->scales, x, chosen->y, chosen->rows, cols, first, near);     \
            }                                                                                                         \
        }                                                                                                             \
    }
GEMV_Q4_ONE_ROW(1)
GEMV_Q4_ONE_ROW(2)
GEMV_Q4_ONE_ROW(4)
GEMV_Q4_ONE_ROW(8)
