/* exp, log, erf and what is made of them, for float32: evaluated in float64 by short polynomials and rounded once, so that the error
 * stays below 0.51 units in the last place, or in float32 where a name or comment says so. Straight-line code without tables or calls,
 * and without fused operations except where a name says so: a compiler turns a loop around it into vector code, and every instruction
 * set gives the same bits. float64 has numeric_double.h and the C library. */
#ifndef AMP_NUMERIC_MATH_H
#define AMP_NUMERIC_MATH_H
#include "numeric.h"

/* exp(x) for |x| < 700, relative error below 2^-39; NaN stays NaN.
 *   x = k ln 2 + r, |r| <= ln 2 / 2;  adding 1.5 * 2^52 rounds x / ln 2 to the integer k and leaves k in the low mantissa bits,
 *   which are then added to the exponent field of p(r). p(0) is 1: exp(0) is exact. */
AMP_FN double amp_exp_core(double x) {
    const double round = 0x1.8p52, log2_e = 0x1.71547652b82fep0, ln_2 = 0x1.62e42fefa39efp-1;
    double t = x * log2_e + round, r = x - (t - round) * ln_2, r2 = r * r, r4 = r2 * r2;
    double a = 1.0 + r * 0x1.ffffffffd388bp-1, b = 0x1.ffffffffe74eap-2 + r * 0x1.555555a271001p-3;
    double c = 0x1.55555588d0748p-5 + r * 0x1.111080ab2bc4dp-7, d = 0x1.6c162b74f8dcdp-10 + r * 0x1.a1aa8238df38bp-13;
    double p = (a + r2 * b) + r4 * ((c + r2 * d) + r4 * 0x1.a17e4b23a5102p-16);
    return amp_bits_f64(amp_f64_bits(p) + (amp_f64_bits(t) << 52));
}

/* 2^24 exp(x + rest) in float32 for x <= 71 and a rest far below 1: the inner loop of the softmax family and of the normal distribution.
 * Relative error below 1.5 * 2^-24; the factor keeps results that would be denormal normal, and is taken out by what the result is
 * multiplied with anyway. Below x = -104, where exp(x) rounds to 0, exactly 0; NaN stays NaN.
 *   x = k ln 2 + r as above;  adding 1.5 * 2^23 + 127 + 24 leaves the exponent field of 2^(k + 24) in the low mantissa bits
 *   exp(r) = 1 + (r + r^2 q(r)), q a minimax polynomial on |r| <= ln 2 / 2 */
#define AMP_EXP_F32_TIMES_2P24(x, add_rest) \
    const float low = -104.0f, round = 0x1.8p23f + 151.0f; \
    float c = x < low ? low : x, t = c * 0x1.715476p+0f + round, k = t - round; \
    float r = (c - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f add_rest, r2 = r * r; \
    float q = (0x1.fffffcp-2f + r * 0x1.555492p-3f) + r2 * ((0x1.5558f2p-5f + r * 0x1.123a2p-7f) + r2 * 0x1.6a23cep-10f); \
    float v = (1.0f + (r + r2 * q)) * amp_bits_f32(amp_f32_bits(t) << 23); \
    return x < low ? 0.0f : v;
AMP_FN float amp_exp_f32_times_2p24(float x){AMP_EXP_F32_TIMES_2P24(x, )} AMP_FN
    float amp_exp_sum_f32_times_2p24(float x, float rest) {
    AMP_EXP_F32_TIMES_2P24(x, +rest)
}

/* exp(x) in float32 for any x, relative error below 1.5 * 2^-24:  x = k ln 2 + r as above. exp(r) - 1 is `part`; the two factors give 2^k without leaving the range of normal
 * numbers: 2^(k + 24) 2^-24 for negative x, 2^(k - 24) 2^24 for others. */
typedef struct AmpExpParts {
    float part, factor, rest;
} AmpExpParts;
AMP_FN AmpExpParts amp_exp_f32_parts(float x) {
    const float round = 0x1.8p23f, low = -104.0f, high = 89.0f;
    float c = x < low ? low : x;
    c = c > high ? high : c;
    float t = c * 0x1.715476p+0f + round, k = t - round;
    float r = (c - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f, r2 = r * r;
    float q = (0x1.fffffcp-2f + r * 0x1.555492p-3f) + r2 * ((0x1.5558f2p-5f + r * 0x1.123a2p-7f) + r2 * 0x1.6a23cep-10f);
    const uint32_t bias = x < 0 ? 127u + 24u : 127u - 24u;
    return (AmpExpParts){r + r2 * q, amp_bits_f32((amp_f32_bits(t) + bias) << 23), x < 0 ? 0x1p-24f : 0x1p24f};
}
AMP_FN float amp_exp_f32(float x) {
    AmpExpParts e = amp_exp_f32_parts(x);
    return (1.0f + e.part) * e.factor * e.rest;
}
/* 2^x in float32, relative error below 1.5 * 2^-24: x is its nearest integer, which moves the exponent, and the rest. */
AMP_FN float amp_exp2_f32(float x) {
    const float round = 0x1.8p23f;
    float c = x < -152.0f ? -152.0f : x;
    c = c > 130.0f ? 130.0f : c;
    float t = c + round, r = c - (t - round), r2 = r * r;
    float p = (0x1.62e430p-1f + r * 0x1.ebfbe0p-3f) +
              r2 * ((0x1.c6b08ep-5f + r * 0x1.3b2a1ap-7f) + r2 * (0x1.5d87b8p-10f + r * 0x1.444098p-13f + r2 * 0x1.0091f8p-16f));
    const uint32_t bias = x < 0 ? 127u + 26u : 127u - 26u;
    return (1.0f + r * p) * amp_bits_f32((amp_f32_bits(t) + bias) << 23) * (x < 0 ? 0x1p-26f : 0x1p26f);
}

/* The smaller of two numbers that are not negative, NaN counting as large. By bits: of a choice between x and a constant the compiler makes
 * two ways through all that follows. */
AMP_FN float amp_smaller(float x, float limit) {
    uint32_t a = amp_f32_bits(x), b = amp_f32_bits(limit);
    return amp_bits_f32(a < b ? a : b);
}

/* The same for instruction sets with fused multiply-adds, of which it is made; other bits, the same bounds. */
AMP_FN float amp_exp_f32_times_2p24_fused(float x) {
    const float low = -104.0f, round = 0x1.8p23f + 151.0f;
    float c = x < low ? low : x, t = __builtin_fmaf(c, 0x1.715476p+0f, round), k = t - round;
    float r = __builtin_fmaf(k, -0x1.7f7d1cp-20f, __builtin_fmaf(k, -0x1.62e4p-1f, c));
    float q = __builtin_fmaf(__builtin_fmaf(0x1.6a23cep-10f, r, 0x1.123a2p-7f), r, 0x1.5558f2p-5f);
    q = __builtin_fmaf(__builtin_fmaf(q, r, 0x1.555492p-3f), r, 0x1.fffffcp-2f);
    float v = __builtin_fmaf(__builtin_fmaf(q, r, 1.0f), r, 1.0f) * amp_bits_f32(amp_f32_bits(t) << 23);
    return x < low ? 0.0f : v;
}

/* The tails of the normal distribution in float32, for s = |x| up to 15 (beyond 14.5 they are 0): *density = 2^24 exp(-s^2 / 2), and
 * the result times that is 2^24 P(X > s). Relative errors below 5 * 2^-24: s^2 is taken in two parts, the first of which is exact.
 *   P(X > s) = exp(-s^2 / 2) t p(t), t = 1 / (1 + s / sqrt 8), p a minimax polynomial */
AMP_FN float amp_normal_tail_poly(float s) {
    float t = 1.0f / (1.0f + s * 0.35355338f), t2 = t * t, t4 = t2 * t2;
    float a = (0x1.20d9f0p-3f + t * 0x1.214008p-3f) + t2 * (0x1.f05d72p-4f + t * 0x1.a55f44p-4f);
    float b = (-0x1.1785e6p-6f + t * 0x1.282b6cp-3f) + t2 * (-0x1.fd0e60p-3f + t * 0x1.285daep-3f);
    return t * (a + t4 * (b + t4 * -0x1.ec12a4p-6f));
}
AMP_FN float amp_normal_tail_f32(float s, float *density) {
    float high = amp_bits_f32(amp_f32_bits(s) & 0xfffff000u), rest = (s - high) * (s + high) * -0.5f;
    *density = amp_exp_sum_f32_times_2p24(high * high * -0.5f, rest);
    return amp_normal_tail_poly(s);
}

/* Selects keep NaN: a comparison with NaN is false. */
AMP_FN double amp_clip(double x, double low, double high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* Beyond these bounds float32 is 0 or infinity anyway; exact limits let infinity times zero become NaN where it must. */
AMP_FN double amp_exp_wide(double x) {
    double v = amp_exp_core(amp_clip(x, -200.0, 200.0));
    v = x < -200.0 ? 0.0 : v;
    return x > 200.0 ? (double)INFINITY : v;
}

/* exp(x) - 1 without cancellation; the series is used where the difference would lose more than 20 bits. */
AMP_FN double amp_expm1_wide(double x) {
    double direct = amp_exp_wide(x) - 1.0, series = x + x * x * (0.5 + x * (1.0 / 6 + x * (1.0 / 24 + x * (1.0 / 120))));
    return fabs(x) < 0x1p-7 ? series : direct;
}

/* log(x) for positive normal float64, relative error below 2^-44.
 *   x = 2^k m, m in [sqrt 1/2, sqrt 2);  s = (m-1)/(m+1);  log m = 2 (s + s^3/3 + s^5/5 + ...)
 * k is read from the exponent field by placing it under the exponent of 2^52 and subtracting. */
AMP_FN double amp_log_core(double x) {
    const uint64_t half_root = 0x3fe6a09e667f3bcdu;
    uint64_t i = amp_f64_bits(x) + (0x3ff0000000000000u - half_root);
    double k = amp_bits_f64((i >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0);
    double m = amp_bits_f64((i & 0x000fffffffffffffu) + half_root), s = (m - 1.0) / (m + 1.0), z = s * s;
    double tail = z *
                  (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13 + z * (1.0 / 15)))))));
    return k * 0x1.62e42fefa39efp-1 + 2.0 * (s + s * tail);
}

/* log for any argument, times `unit` (1, 1 / ln 2, 1 / ln 10). */
AMP_FN double amp_log_wide(double x, double unit) {
    double v = amp_log_core(x) * unit;
    v = x < (double)INFINITY ? v : x; /* infinity and NaN */
    v = x == 0.0 ? -(double)INFINITY : v;
    return x < 0.0 ? (double)NAN : v;
}

/* log(1 + e) for e in [0, 1], relative error below 2^-38: a minimax polynomial. */
AMP_FN double amp_log1p_unit(double e) {
    double e2 = e * e, e4 = e2 * e2;
    double a = (0x1.fffffffff86b5p-1 + e * -0x1.ffffffe8bacf7p-2) + e2 * (0x1.55554f5aec742p-2 + e * -0x1.fffec73566606p-3);
    double b = (0x1.9988bae7eb394p-3 + e * -0x1.54c7d9de59b45p-3) + e2 * (0x1.21836b26cd1cap-3 + e * -0x1.e870cfc7ec930p-4);
    double c = (0x1.857d9d16e4542p-4 + e * -0x1.115728ff59d28p-4) + e2 * (0x1.35d69718c9848p-5 + e * -0x1.0095666260602p-6);
    return e * (a + e4 * (b + e4 * (c + e4 * (0x1.0d9c076344c9dp-8 + e * -0x1.0a0f7d8e0335ap-11))));
}
/* exp(-|x|); NaN stays NaN, beyond float32's range it is tiny instead of 0. */
AMP_FN double amp_exp_below(double x) {
    double a = fabs(x);
    return amp_exp_core(a > 200.0 ? -200.0 : -a);
}

/* log(1 + x), |x| small included: below 2^-20 the sum would lose x's low bits. */
AMP_FN double amp_log1p_wide(double x) { return fabs(x) < 0x1p-20 ? x - 0.5 * x * x : amp_log_wide(1.0 + x, 1.0); }

/* x^y for float32 numbers, relative error below 2^-36: exp(y log |x|), then the sign and the exceptions of IEEE 754. */
AMP_FN double amp_pow_wide(double x, double y) {
    double a = fabs(x), v = amp_exp_wide(y * amp_log_wide(a, 1.0)), half = 0.5 * y;
    bool whole = y == trunc(y), odd = whole && half != trunc(half);
    v = x < 0 && !whole && a < (double)INFINITY ? (double)NAN : v;
    v = odd ? copysign(v, x) : v;
    return y == 0 || x == 1.0 || (x == -1.0 && fabs(y) == (double)INFINITY) ? 1.0 : v;
}

/* erfc(a) for a >= 1/2, relative error below 2^-35: exp(-a^2) times a polynomial in t = 2 / (2 + a), centred on [0.16, 0.8]. */
AMP_FN double amp_erfc_tail(double a) {
    double t = 2.0 / (2.0 + a), u = (t - 0.4793650793650794) * 3.1188118811881185, u2 = u * u;
    double p = 9.099746698855572e-07 + u * (-1.814144184057513e-08 + u * -6.411010393479013e-08);
    p = -9.124757214780366e-06 + u * -9.578331239901476e-07 + u2 * p;
    p = 9.795953259718818e-05 + u * 2.3515950009446118e-05 + u2 * p;
    p = -0.0016992710451328578 + u * -0.000391055688723313 + u2 * p;
    p = 0.05649129505779008 + u * 0.005258142469337391 + u2 * p;
    p = 0.496848533259779 + u * 0.21299306556888564 + u2 * p;
    return p * t * amp_exp_wide(-a * a);
}

/* erf(x) for |x| <= 1/2: the Taylor series. */
AMP_FN double amp_erf_small(double x) {
    double z = x * x;
    return x * (1.1283791670955126 +
                z * (-0.37612638903183754 +
                     z * (0.11283791670955126 +
                          z * (-0.026866170645131252 +
                               z * (0.005223977625442188 + z * (-0.0008548327023450853 +
                                                                z * (0.00012055332981789664 + z * -1.4925650358406252e-05)))))));
}

AMP_FN double amp_erfc_wide(double x) {
    double tail = amp_erfc_tail(fabs(x));
    tail = x < 0.0 ? 2.0 - tail : tail;
    return fabs(x) < 0.5 ? 1.0 - amp_erf_small(x) : tail;
}

/* tanh(x) = (e - 1) / (e + 1) with e = exp(2x); 2|x| > 40 is 1 in float32. */
AMP_FN double amp_tanh_wide(double x) {
    double e = amp_expm1_wide(amp_clip(2.0 * x, -40.0, 40.0));
    return e / (e + 2.0);
}

AMP_FN double amp_sigmoid_wide(double x) { return 1.0 / (1.0 + amp_exp_wide(-x)); }

/* sin(x + turns pi/2) for float32 numbers below 1e5 in size, relative error below 2^-32.
 *   x = k pi/2 + r, |r| <= pi/4;  pi/2 is taken in two parts, of which the first has 33 bits: k times it, and x minus that, are exact
 *   k's two lowest bits, left in t's mantissa by the rounding, tell which of the two series counts, and with which sign */
#define AMP_SIN_WIDE(x) \
    const double round = 0x1.8p52; \
    double t = x * 0x1.45f306dc9c883p-1 + round, k = t - round; \
    double r = (x - k * 0x1.921fb544p0) - k * 0x1.0b4611a626331p-34, z = r * r; \
    double s = r + r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800))))); \
    double c = 1.0 + z * (-0.5 + \
                          z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
AMP_FN double amp_sin_wide(double x, unsigned turns) {
    AMP_SIN_WIDE(x)
    uint64_t quarter = amp_f64_bits(t) + turns;
    double v = quarter & 1 ? c : s;
    return amp_bits_f64(amp_f64_bits(v) ^ ((quarter & 2) << 62));
}
AMP_FN double amp_tan_wide(double x) {
    AMP_SIN_WIDE(x)
    bool odd = amp_f64_bits(t) & 1;
    return (odd ? -c : s) / (odd ? s : c);
}

/* The remainder of a / b with a's sign, exact for float32 numbers whose quotient is below 2^28: then the quotient's rounding cannot reach
 * an integer that the quotient does not, and quotient times b fits float64. */
AMP_FN float amp_fmod_small(float a, float b) {
    double q = trunc((double)a / (double)b);
    return copysignf((float)((double)a - q * (double)b), a);
}

/* The angle of (x, y), not both 0, finite: relative error below 2^-39.
 *   the first octant is brought to |s| <= tan(pi/8) by atan q = pi/4 + atan((q - 1) / (q + 1));  atan(s) = s p(s^2), p minimax */
AMP_FN double amp_atan2_wide(double y, double x) {
    double ax = fabs(x), ay = fabs(y), large = ax > ay ? ax : ay, small = ax > ay ? ay : ax;
    bool upper = small > 0.41421356237309503 * large;
    double s = (upper ? small - large : small) / (upper ? small + large : large), z = s * s;
    double p = -0x1.705cb57988a55p-4 + z * (0x1.1dc72968cdecbp-4 + z * -0x1.34da2209f3facp-5);
    p = 0x1.9999907543770p-3 + z * (-0x1.24909793a0bbap-3 + z * (0x1.c6cd00527bcc8p-4 + z * p));
    double a = (upper ? 0.7853981633974483 : 0.0) + s * (0x1.fffffffffe659p-1 + z * (-0x1.5555554be4938p-2 + z * p));
    a = ay > ax ? 1.5707963267948966 - a : a;
    a = x < 0 ? 3.141592653589793 - a : a;
    return copysign(a, y);
}

/* The inverse of erf for float32 numbers, relative error below 2^-31: x times a minimax polynomial in w = -log(1 - x^2), or in its root
 * for x near 1. */
AMP_FN double amp_erfinv_wide(double x) {
    double w = -amp_log_wide((1.0 - x) * (1.0 + x), 1.0), t = w - 2.5, u = sqrt(w) - 3.0;
    double near = 0x1.c9c81e3d32853p-31 + t * (0x1.0e8b1b95876c9p-33 + t * -0x1.75045e38ab157p-36);
    near = 0x1.00f87199172cep-21 + t * (0x1.d66fac2cc622fp-27 + t * (-0x1.74f4495a33f4fp-27 + t * near));
    near = 0x1.c9b46cd91df43p-13 + t * (-0x1.4f4496f9c2330p-18 + t * (-0x1.caa32f746ee29p-19 + t * near));
    near = 0x1.f91e89955a57fp-3 + t * (-0x1.11c3c3612a2cbp-8 + t * (-0x1.4863d1009b534p-10 + t * near));
    double far = -0x1.bbda04a5e9885p-16 + u * (-0x1.62016da85d827p-16 + u * 0x1.ef0fb39d0ad1fp-18);
    far = -0x1.2752a21bc8a88p-13 + u * (-0x1.348d01d565c5ap-12 + u * (0x1.984ca1d045660p-13 + u * far));
    far = 0x1.748fb0c512343p-8 + u * (-0x1.d2c5b4ed96493p-9 + u * (0x1.85b650eb19b54p-10 + u * far));
    far = 0x1.006dca523481bp+0 + u * (0x1.3582ec14d3aa7p-7 + u * (-0x1.f4ed014275aa5p-8 + u * far));
    double v = x * (w < 5.0 ? 0x1.805c5cfcedef5p+0 + t * near : 0x1.6a9efbd6150f9p+1 + u * far);
    return fabs(x) == 1.0 ? copysign((double)INFINITY, x) : v;
}

/* log Gamma and its slope for positive float32 numbers, relative error below 2^-31 but for the slope next to its zero: below 8 by Gamma(x + 8) = x (x + 1) ... (x + 7) Gamma(x),
 * then Stirling's series. Next to its zeros at 1 and 2 the logarithm is a Taylor polynomial. */
AMP_FN double amp_lgamma_wide(double x) {
    bool low = x < 8.0;
    double p = x * (x + 7.0), product = p * (p + 6.0) * (p + 10.0) * (p + 12.0), z = low ? x + 8.0 : x, i = 1.0 / z, i2 = i * i;
    double series = i * (1.0 / 12 + i2 * (-1.0 / 360 + i2 * (1.0 / 1260 + i2 * (-1.0 / 1680 + i2 * (1.0 / 1188)))));
    double v = (z - 0.5) * amp_log_wide(z, 1.0) - z + 0.9189385332046728 + series;
    v -= low ? amp_log_wide(product, 1.0) : 0.0;
    double e = x - 1.0, f = x - 2.0;
    double one = e *
                 (-0.5772156649015329 +
                  e * (0.8224670334241132 + e * (-0.40068563438653143 + e * (0.27058080842778454 + e * -0.20738555102867398))));
    double two = f * (0.4227843350984671 +
                      f * (0.3224670334241132 +
                           f * (-0.06735230105319810 + f * (0.020580808427784548 + f * -0.0073855510286739857))));
    v = fabs(e) < 0x1p-8 ? one : v;
    return fabs(f) < 0x1p-8 ? two : v;
}
AMP_FN double amp_digamma_wide(double x) {
    bool low = x < 8.0;
    double p = x * (x + 7.0), a = p + 6.0, b = p + 10.0, c = p + 12.0; /* the factors in pairs; their slopes are all p's */
    double slope = (2.0 * x + 7.0) * ((a + p) * (b * c) + (p * a) * (b + c)), steps = low ? slope / (p * a * (b * c)) : 0.0;
    double z = low ? x + 8.0 : x, i = 1.0 / z, i2 = i * i;
    double series = i2 * (1.0 / 12 + i2 * (-1.0 / 120 + i2 * (1.0 / 252 + i2 * (-1.0 / 240 + i2 * (1.0 / 132)))));
    return amp_log_wide(z, 1.0) - 0.5 * i - series - steps;
}

/* The inverse of erf: a closed first guess, then Halley steps, each of which triples the right digits. Near 1 the residual is formed from
 * 1 - |x|, which is exact, and erfc. */
AMP_FN double amp_erfinv(double x) {
    double a = fabs(x);
    if (!(a < 1.0)) return a == 1.0 ? copysign((double)INFINITY, x) : (double)NAN;
    if (a < 0x1p-28) return x * 0.886226925452758;
    double l = log1p(-a * a), g = 4.330746750799873 + 0.5 * l;
    double y = sqrt(sqrt(g * g - l * 6.802721088435375) - g);
    for (int step = 0; step < 3; step++) {
        double residual = a > 0.5 ? (1.0 - a) - erfc(y) : erf(y) - a;
        double newton = residual / (1.1283791670955126 * exp(-y * y));
        y -= newton / (1.0 + y * newton);
    }
    return copysign(y, x);
}

#endif
