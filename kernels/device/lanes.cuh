// A warp of 32 lanes for two compilers. The only file that asks which compiler this is.
//
// A block is 8 warps of 32 lanes for every kernel. On CUDA a lane is a thread: Floats, Words and Ints are one value
// each. On the CPU a warp is one thread: they are vectors of 32, and the warps of a block run one after the other.
//
// A kernel is ENTRY(name, parameters) { BLOCK { SHARED(...) PHASE { ... } PHASE { ... } } }:
//   ENTRY   exports it: name(parameters) on CUDA, name(block_lo, block_hi, parameters) on the CPU: blocks lo..hi-1
//           ENTRY_AT_LEAST(blocks, name, parameters) where so many blocks shall fit a multiprocessor at once
//   BLOCK   what one block does; declares `block`
//   SHARED  an array that all warps of the block see; uninitialised
//   PHASE   what one warp does between two barriers; declares `warp`. Only SHARED and global memory outlive it.
//           Leave it early by `continue`, never by `return` or `break`
//
// LANE_IS_THREAD: what is done with threads, and is not there where a warp is one.
//
// Bits: a function that rounds is named *_rn, rounds once, to nearest even, and keeps denormals; nothing else rounds.
// Comparisons, selection by ?:, negation, widening and loads are exact. sum() is the five-step xor tree 16, 8, 4, 2, 1,
// and sum_of_warps() is ((0+1)+(2+3))+((4+5)+(6+7)). Of a load with a count, the lanes from count on are +0.
#pragma once

constexpr int LANES = 32;
constexpr int WARPS = 8;
constexpr int BLOCK_WIDTH = LANES * WARPS;

typedef long long Index;  // an offset in elements: a matrix may hold more than 2^31

#ifdef __CUDACC__

#define LANE_IS_THREAD 1
#define DEV __device__ __forceinline__
#define ENTRY(NAME, ...) extern "C" __global__ void __launch_bounds__(BLOCK_WIDTH) NAME(__VA_ARGS__)
#define ENTRY_AT_LEAST(BLOCKS, NAME, ...) \
    extern "C" __global__ void __launch_bounds__(BLOCK_WIDTH, BLOCKS) NAME(__VA_ARGS__)
#define BLOCK if ([[maybe_unused]] const int block = (int)blockIdx.x; true)
#define SHARED(TYPE, NAME, COUNT) __shared__ __align__(16) TYPE NAME[COUNT];
#define PHASE for (int warp = (int)threadIdx.x / LANES, once = 1; once; once = 0, __syncthreads())

#define UNROLLED _Pragma("unroll")

typedef float Floats;
typedef unsigned Words;
typedef int Ints;
typedef unsigned short Halves;  // bits of finite halves

constexpr int AHEAD = 16;      // loads that a lane has under way before it uses the first
constexpr int FAR_AHEAD = 64;   // the same where few warps run

DEV Ints lane_index() { return (int)threadIdx.x % LANES; }

DEV float add_rn(float a, float b) { return __fadd_rn(a, b); }
DEV float sub_rn(float a, float b) { return __fsub_rn(a, b); }
DEV float mul_rn(float a, float b) { return __fmul_rn(a, b); }
DEV float div_rn(float a, float b) { return __fdiv_rn(a, b); }
DEV float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEV float sqrt_rn(float a) { return __fsqrt_rn(a); }
DEV float float_rn(int a) { return __int2float_rn(a); }

DEV Floats widen(Halves a) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(a));
    return wide;
}

// (a & MASK) | bits: one instruction, if bits stay in a register
template <unsigned MASK> DEV Words put(Words a, unsigned bits) {
    unsigned merged;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(merged) : "r"(a), "n"(MASK), "r"(bits));
    return merged;
}
DEV unsigned in_register(unsigned a) {
    unsigned kept;
    asm volatile("mov.u32 %0, %1;" : "=r"(kept) : "r"(a));
    return kept;
}

DEV Words bits_of(float a) { return __float_as_uint(a); }
DEV float float_of(unsigned a) { return __uint_as_float(a); }
DEV Floats splat(float a) { return a; }
DEV Words splat(unsigned a) { return a; }
DEV Ints splat(int a) { return a; }

template <typename T> DEV T load(const T* p) { return p[lane_index()]; }
template <typename T> DEV T load(const T* p, int count) { return lane_index() < count ? p[lane_index()] : T(0); }
template <typename T> DEV void store(T* p, T a, int count) { if (lane_index() < count) p[lane_index()] = a; }
template <typename T> DEV void store_one(T* p, T a) { if (lane_index() == 0) *p = a; }
DEV void reload() {}
DEV void warp_barrier() { __syncwarp(); }  // loads stay before it, and what lanes wrote can be read by the others

// W rows side by side in a warp: a thread holds W neighbouring lanes of one of them, from spread_lane() on of the row
// spread_row(), so what the lanes of a row share is worked out once for W. Loads are given the thread's own p.
template <typename T, int W> struct alignas(sizeof(T) * W) Spread {
    T lane[W];
};
template <int W> DEV int spread_row() { return (int)(threadIdx.x % LANES / (LANES / W)); }
template <int W> DEV int spread_lane() { return (int)(threadIdx.x % (LANES / W) * W); }
template <int W, typename T> DEV Spread<T, W> load_spread(const T* p) { return *(const Spread<T, W>*)p; }
template <int W> DEV Spread<float, W> load_spread(const float* p, int count) {
    Spread<float, W> a;
    UNROLLED for (int w = 0; w < W; ++w) a.lane[w] = spread_lane<W>() + w < count ? p[w] : 0.f;
    return a;
}
// What nobody reads again leaves the caches to the rest.
template <int W> DEV Spread<unsigned, W> load_spread_once(const unsigned* p) {
    if constexpr (W == 1) return {__ldcs(p)};
    if constexpr (W == 2) {
        const uint2 a = __ldcs((const uint2*)p);
        return {a.x, a.y};
    }
    if constexpr (W == 4) {
        const uint4 a = __ldcs((const uint4*)p);
        return {a.x, a.y, a.z, a.w};
    }
}

// near[N], in shared memory, is x[N] once all warps of the block have been here; of x[count < N] it is that, and zeros
// up to the end of a piece of P.
template <int N, int P> DEV void bring_near(float* near, const float* x, int count) {
    constexpr int WIDE = 4, EACH = N / (WIDE * BLOCK_WIDTH);
    static_assert(EACH * WIDE * BLOCK_WIDTH == N && N % P == 0);
    typedef Spread<float, WIDE> Four;
    const int first = (int)threadIdx.x * WIDE;
    __syncthreads();
    if (count >= N) {
        Four some[EACH];
        UNROLLED for (int i = 0; i < EACH; ++i) some[i] = *(const Four*)(x + first + i * WIDE * BLOCK_WIDTH);
        UNROLLED for (int i = 0; i < EACH; ++i) *(Four*)(near + first + i * WIDE * BLOCK_WIDTH) = some[i];
    } else {
#pragma unroll 1
        for (int at = first; at < (count + P - 1) / P * P; at += WIDE * BLOCK_WIDTH)
            UNROLLED for (int i = at; i < at + WIDE; ++i) near[i] = i < count ? x[i] : 0.f;
    }
    __syncthreads();
}

// Lane l gets what lane l ^ STEP holds.
template <int STEP, typename T> DEV T across(T a) { return __shfl_xor_sync(0xffffffffu, a, STEP); }
template <typename T> DEV T common(T a) { return a; }  // the value that every lane holds

// sum() of each of W rows side by side, in the threads of that row.
template <int W> DEV float sum(Spread<float, W> a) {
    UNROLLED for (int w = 0; w < W; ++w) {
        a.lane[w] = add_rn(a.lane[w], across<16 / W>(a.lane[w]));
        a.lane[w] = add_rn(a.lane[w], across<8 / W>(a.lane[w]));
        a.lane[w] = add_rn(a.lane[w], across<4 / W>(a.lane[w]));
        if constexpr (W < 4) a.lane[w] = add_rn(a.lane[w], across<2 / W>(a.lane[w]));
        if constexpr (W < 2) a.lane[w] = add_rn(a.lane[w], across<1 / W>(a.lane[w]));
    }
    if constexpr (W == 4) return add_rn(add_rn(a.lane[0], a.lane[2]), add_rn(a.lane[1], a.lane[3]));
    if constexpr (W == 2) return add_rn(a.lane[0], a.lane[1]);
    return a.lane[0];
}

#else

#define LANE_IS_THREAD 0
#define DEV inline __attribute__((always_inline))
#define ENTRY(NAME, ...) extern "C" void NAME(int block_lo, int block_hi, __VA_ARGS__)
#define ENTRY_AT_LEAST(BLOCKS, NAME, ...) ENTRY(NAME, __VA_ARGS__)
#define BLOCK for (int block = block_lo; block < block_hi; ++block)
#define SHARED(TYPE, NAME, COUNT) alignas(128) TYPE NAME[COUNT];
#define PHASE for (int warp = 0; warp < WARPS; ++warp)

#define UNROLLED _Pragma("clang loop unroll(disable)")

typedef float Floats __attribute__((vector_size(128)));
typedef unsigned Words __attribute__((vector_size(128)));
typedef int Ints __attribute__((vector_size(128)));
typedef unsigned short Halves __attribute__((vector_size(64)));

constexpr int AHEAD = 1, FAR_AHEAD = 1;  // a processor finds by itself what it may load

template <typename T> struct VectorOf;
template <> struct VectorOf<float> { typedef Floats Type; };
template <> struct VectorOf<unsigned> { typedef Words Type; };
template <> struct VectorOf<int> { typedef Ints Type; };
template <> struct VectorOf<unsigned short> { typedef Halves Type; };
template <typename T> using Vector = typename VectorOf<T>::Type;

DEV Ints lane_index() {
    return Ints{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
}

template <typename T> DEV T add_rn(T a, T b) { return a + b; }
template <typename T> DEV T sub_rn(T a, T b) { return a - b; }
template <typename T> DEV T mul_rn(T a, T b) { return a * b; }
template <typename T> DEV T div_rn(T a, T b) { return a / b; }
DEV float fma_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEV Floats fma_rn(Floats a, Floats b, Floats c) { return __builtin_elementwise_fma(a, b, c); }
DEV float sqrt_rn(float a) { return __builtin_sqrtf(a); }
DEV Floats sqrt_rn(Floats a) { return __builtin_elementwise_sqrt(a); }
DEV float float_rn(int a) { return (float)a; }

DEV Floats widen(Halves a) {
    typedef _Float16 Narrow __attribute__((vector_size(64)));
    return __builtin_convertvector((Narrow)a, Floats);
}

template <unsigned MASK> DEV Words put(Words a, unsigned bits) { return (a & MASK) | bits; }
DEV unsigned in_register(unsigned a) { return a; }

DEV Words bits_of(Floats a) { return (Words)a; }
DEV Floats float_of(Words a) { return (Floats)a; }
DEV float float_of(unsigned a) { return __builtin_bit_cast(float, a); }
template <typename T> DEV Vector<T> splat(T a) { return a - Vector<T>{}; }  // keeps -0

template <typename T> DEV Vector<T> load(const T* p) {
    Vector<T> a;
    __builtin_memcpy(&a, p, sizeof a);
    return a;
}
template <typename T> DEV Vector<T> load(const T* p, int count) {
    if (count >= LANES) return load(p);
    T lanes[LANES];
    for (int lane = 0; lane < LANES; ++lane) lanes[lane] = lane < count ? p[lane] : T(0);
    return load(lanes);
}
template <typename T> DEV void store(T* p, Vector<T> a, int count) {
    if (count >= LANES) {
        __builtin_memcpy(p, &a, sizeof a);
        return;
    }
    T lanes[LANES];
    __builtin_memcpy(lanes, &a, sizeof a);
    for (int lane = 0; lane < LANES; ++lane)
        if (lane < count) p[lane] = lanes[lane];
}
template <typename T> DEV void store_one(T* p, T a) { *p = a; }
DEV void reload() { asm volatile("" ::: "memory"); }  // what was loaded is loaded again: unrolled code must not spill
DEV void warp_barrier() {}

#define PAIR(L) (L) ^ STEP, ((L) + 1) ^ STEP
#define OCTET(L) PAIR(L), PAIR(L + 2), PAIR(L + 4), PAIR(L + 6)
template <int STEP, typename V> DEV V across(V a) {
    return __builtin_shufflevector(a, a, OCTET(0), OCTET(8), OCTET(16), OCTET(24));
}
DEV float common(Floats a) { return a[0]; }
DEV int common(Ints a) { return a[0]; }

#endif

// A number that the compiler knows, in the place of one that it does not: no load waits for a comparison with it.
template <int N> struct Fixed {
    DEV constexpr operator int() const { return N; }
};

// The sum of the lanes, the same in all of them.
DEV float sum(Floats a) {
    a = add_rn(a, across<16>(a));
    a = add_rn(a, across<8>(a));
    a = add_rn(a, across<4>(a));
    a = add_rn(a, across<2>(a));
    a = add_rn(a, across<1>(a));
    return common(a);
}

// The sum of one partial a warp.
DEV float sum_of_warps(const float* partials) {
    const float low = add_rn(add_rn(partials[0], partials[1]), add_rn(partials[2], partials[3]));
    const float high = add_rn(add_rn(partials[4], partials[5]), add_rn(partials[6], partials[7]));
    return add_rn(low, high);
}
