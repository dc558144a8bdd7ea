// exp, log1p, sigmoid, silu and softplus with fixed bits: y[i] = f(x[i]), f32 over the whole range.
//
// Made of the operations of lanes.cuh alone, so that both compilers give the same bytes; kernels have no other libm.
// Results in the denormal range are rounded once. Every NaN input gives the one NaN 7fc00000, and so does log1p below
// -1; silu(-inf) is -0, its limit. An integer is made from a float only by adding ROUNDER, after the range test that
// makes the sum's low bits the integer. The worst errors in ulp stand in tests/test_bitmath.py.
// Launch of the math_* entries: one lane an element, ceil(n / 256) blocks. Reference: bitmath.py.
#pragma once
#include "lanes.cuh"

namespace bitmath {

constexpr unsigned NAN_BITS = 0x7fc00000u;
constexpr unsigned INFINITY_BITS = 0x7f800000u;
constexpr float ROUNDER = 0x1.8p23f;       // x + ROUNDER has round(x) in its low bits while |x| < 2^22
constexpr float LOG2_E = 0x1.715476p0f;
constexpr float LN2_HIGH = 0x1.62e4p-1f;   // 15 bits: its product with an exponent is exact
constexpr float LN2_LOW = 0x1.7f7d1cp-20f; // ln 2 - LN2_HIGH
constexpr float EXP_LEAST = -126.f;        // below it even |x| * exp(x) rounds to 0; must keep both scales normal
constexpr float EXP_MOST = 89.f;           // from here on exp is +inf

// A value that is head * scale, where scale is a power of two and head is not near the end of the range.
struct Scaled {
    Floats head, scale;
};

DEV Floats power_of_two(Ints exponent) { return float_of((Words)(exponent + 127) << 23); }

// exp(x), rounded except for the last multiplication; x is clamped, NaN becomes EXP_LEAST.
// n = round(x / ln 2), r = x - n ln 2, e^r = 1 + (r + r^2 P(r)), |r| <= 0.347; P is minimax, relative error 2^-28.
DEV Scaled exp_scaled(Floats x) {
    x = x > splat(EXP_LEAST) ? x : splat(EXP_LEAST);
    x = x < splat(EXP_MOST) ? x : splat(EXP_MOST);
    const Floats shifted = fma_rn(x, splat(LOG2_E), splat(ROUNDER));
    const Floats n = sub_rn(shifted, splat(ROUNDER));
    Floats r = fma_rn(n, splat(-LN2_HIGH), x);
    r = fma_rn(n, splat(-LN2_LOW), r);
    Floats p = splat(0x1.6a2436p-10f);
    p = fma_rn(p, r, splat(0x1.1239e0p-7f));
    p = fma_rn(p, r, splat(0x1.5558f2p-5f));
    p = fma_rn(p, r, splat(0x1.555492p-3f));
    p = fma_rn(p, r, splat(0x1.fffffcp-2f));
    p = add_rn(fma_rn(mul_rn(r, r), p, r), splat(1.f));
    const Ints exponent = (Ints)(bits_of(shifted) - bits_of(splat(ROUNDER)));
    const Ints half = exponent >> 1;  // two scales, since 2^-151 and 2^128 are no floats
    return {mul_rn(p, power_of_two(half)), power_of_two(exponent - half)};
}

DEV Floats exp(Floats x) {
    const Scaled e = exp_scaled(x);
    return x == x ? mul_rn(e.head, e.scale) : float_of(splat(NAN_BITS));
}

// log(1 + x). 1 + x rounds to u = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); the rounding's loss comes back as c.
// With s = f / (2 + f) and z = s^2: log(1 + f) = f - (f^2/2 - s (f^2/2 + z L(z))); L is minimax, relative error 2^-29.
DEV Floats log1p(Floats x) {
    const Floats one = splat(1.f);
    const Floats infinity = float_of(splat(INFINITY_BITS));
    const auto regular = (x > -one) & (x < infinity);
    const Floats inside = regular ? x : one;
    const Floats u = add_rn(inside, one);
    const Words above = bits_of(u) - splat(0x3f3504f3u);  // sqrt(1/2): k is in the exponent's place, the rest below it
    const Ints k = (Ints)above >> 23;
    const Floats mantissa = float_of((above & splat(0x007fffffu)) + splat(0x3f3504f3u));
    const Floats lost = u < splat(2.f) ? sub_rn(inside, sub_rn(u, one)) : sub_rn(one, sub_rn(u, inside));
    const Floats f = k == splat(0) ? inside : sub_rn(mantissa, one);
    const Floats c = k == splat(0) ? splat(0.f) : div_rn(lost, u);
    const Floats kf = sub_rn(float_of((Words)k + bits_of(splat(ROUNDER))), splat(ROUNDER));
    const Floats s = div_rn(f, add_rn(splat(2.f), f));
    const Floats z = mul_rn(s, s);
    Floats l = splat(0x1.31e348p-2f);
    l = fma_rn(l, z, splat(0x1.995eb8p-2f));
    l = fma_rn(l, z, splat(0x1.55557ap-1f));
    const Floats half_square = mul_rn(splat(0.5f), mul_rn(f, f));
    const Floats tail = mul_rn(s, fma_rn(z, l, half_square));
    const Floats low = add_rn(tail, fma_rn(kf, splat(LN2_LOW), c));
    const Floats near = sub_rn(f, sub_rn(half_square, low));
    const Floats y = k == splat(0) ? near : fma_rn(kf, splat(LN2_HIGH), near);  // a sum with 0 would lose -0
    const Floats end = x == infinity ? x : x == -one ? -infinity : float_of(splat(NAN_BITS));
    return regular ? y : end;
}

// numerator(t) * exp(t) / (1 + exp(t)) with no exp above 1: the scale comes last, so a denormal is rounded once.
DEV Floats logistic(Floats t, Floats numerator) {
    const Floats one = splat(1.f);
    const Scaled e = exp_scaled(t < splat(0.f) ? t : -t);
    const Floats below = add_rn(one, mul_rn(e.head, e.scale));
    const Floats positive = div_rn(numerator, below);
    const Floats negative = mul_rn(div_rn(mul_rn(numerator, e.head), below), e.scale);
    return t < splat(0.f) ? negative : positive;
}

// 1 / (1 + exp(-t))
DEV Floats sigmoid(Floats t) { return t == t ? logistic(t, splat(1.f)) : float_of(splat(NAN_BITS)); }

// t * sigmoid(t)
DEV Floats silu(Floats t) {
    const Floats numerator = t > splat(EXP_LEAST) ? t : splat(EXP_LEAST);
    return t == t ? logistic(t, numerator) : float_of(splat(NAN_BITS));
}

// log(1 + exp(t)); above 20 it is t itself
DEV Floats softplus(Floats t) { return t > splat(20.f) ? t : log1p(exp(t)); }

}  // namespace bitmath

#define MATH_ENTRY(FUNCTION)                                               \
    ENTRY(math_##FUNCTION, const float* x, float* y, int n) {              \
        BLOCK PHASE {                                                      \
            const int at = (block * WARPS + warp) * LANES;                 \
            store(y + at, bitmath::FUNCTION(load(x + at, n - at)), n - at);\
        }                                                                  \
    }

MATH_ENTRY(exp)
MATH_ENTRY(log1p)
MATH_ENTRY(sigmoid)
MATH_ENTRY(silu)
MATH_ENTRY(softplus)
