/* exp, log, erf and what is made of them for float16 and bfloat16: evaluated in float32 from 16-bit arguments, relative error below
 * 2^-19, so that the one rounding to 16 bits goes the other way than the exact value's in one case of a hundred at most, next to a tie.
 * Straight-line code like numeric_math.h: a compiler turns a loop around it into vector code, every instruction set gives the same bits. */
#ifndef AMP_NUMERIC_NARROW_H
#define AMP_NUMERIC_NARROW_H
#include "numeric_ops.h"

/* exp(x) - 1 = 2^k (exp(r) - 1) + (2^k - 1); near 0, where k is 0, it is the first term alone. */
AMP_FN float amp_near_expm1(float x) {
    AmpExpParts e = amp_exp_f32_parts(x < -18.0f ? -18.0f : x);
    const float one = x < 0 ? 0x1p24f : 0x1p-24f, v = (e.factor * e.part + (e.factor - one)) * e.rest;
    return copysignf(fabsf(x) < 0x1p-12f ? x + 0.5f * (x * x) : v, x); /* the scaled terms would be denormal */
}

/* log u for normal u; x is u - 1 without u's rounding, and counts where u is in [sqrt 1/2, sqrt 2). */
AMP_FN float amp_near_log_core(float u, float x, float scale) {
    const uint32_t half_root = 0x3f3504f3u;
    uint32_t i = amp_f32_bits(u) + (0x3f800000u - half_root);
    float k = (float)(int32_t)((i >> 23) - 127u) - scale, m = amp_bits_f32((i & 0x007fffffu) + half_root),
          f = k == 0 ? x : m - 1.0f;
    float z = f * f, z2 = z * z;
    float a = (3.3333331174e-1f + f * -2.4999993993e-1f) + z * (2.0000714765e-1f + f * -1.6668057665e-1f);
    float b = (1.4249322787e-1f + f * -1.2420140846e-1f) + z * (1.1676998740e-1f + f * -1.1514610310e-1f);
    float v = f + (f * z * (a + z2 * (b + z2 * 7.0376836292e-2f)) - 0.5f * z + k * -2.12194440e-4f);
    return v + k * 0.693359375f;
}
AMP_FN float amp_near_log(float x) {
    const bool tiny = x < 0x1p-126f;
    float u = tiny ? x * 0x1p24f : x, v = amp_near_log_core(u, x - 1.0f, tiny ? 24.0f : 0.0f);
    v = x < INFINITY ? v : x;
    v = x == 0.0f ? -INFINITY : v;
    return x < 0.0f ? NAN : v;
}
AMP_FN float amp_near_log2(float x) { return amp_near_log(x) * 0x1.715476p+0f; }
AMP_FN float amp_near_log10(float x) { return amp_near_log(x) * 0x1.bcb7b2p-2f; }
AMP_FN float amp_near_log1p(float x) {
    float u = 1.0f + x, v = amp_near_log_core(u, x, 0.0f);
    v = x < INFINITY ? v : x;
    v = u == 0.0f ? -INFINITY : v;
    return u < 0.0f ? NAN : copysignf(v, x);
}
/* log(1 + e) for e in [0, 1] */
AMP_FN float amp_near_log1p_unit(float e) {
    float e2 = e * e, e4 = e2 * e2;
    float a = (0x1.000000p+0f + e * -0x1.ffffb8p-2f) + e2 * (0x1.554bd6p-2f + e * -0x1.ff0254p-3f);
    float b = (0x1.92b430p-3f + e * -0x1.38b908p-3f) + e2 * (0x1.afdde8p-4f + e * -0x1.cdd008p-5f);
    return e * (a + e4 * (b + e4 * (0x1.402f4cp-6f + e * -0x1.a04acap-9f)));
}

AMP_FN float amp_near_tanh(float x) {
    float a = fabsf(x), t = amp_exp_f32(-2.0f * a), z = x * x;
    float p = -3.33332819422e-1f +
              z * (1.33314422036e-1f + z * (-5.37397155531e-2f + z * (2.06390887954e-2f + z * -5.70498872745e-3f)));
    float v = a < 0.6f ? a + a * z * p : (1.0f - t) / (1.0f + t);
    return copysignf(v, x);
}

/* 2^24 2^y for y up to 47, relative error below 2^-23; 0 below -150. See amp_exp_f32_times_2p24. */
AMP_FN float amp_near_exp2_times_2p24(float y) {
    const float low = -150.0f, round = 0x1.8p23f + 151.0f;
    float c = y < low ? low : y, t = c + round, r = c - (t - round), r2 = r * r;
    float p = (0x1.62e42ap-1f + r * 0x1.ebf9bcp-3f) + r2 * ((0x1.c6b752p-5f + r * 0x1.3cea88p-7f) + r2 * 0x1.5bba28p-10f);
    float v = (1.0f + r * p) * amp_bits_f32(amp_f32_bits(t) << 23);
    return y < low ? 0.0f : v;
}

/* P(X > s) for s = |x| and the normal distribution is density times the result; s up to 15. The square is rounded; p of
 * amp_normal_tail_poly has a degree less. */
AMP_FN float amp_near_normal_tail(float s, float *density) {
    float t = 1.0f / (1.0f + s * 0.35355338f), t2 = t * t;
    float a = (0x1.210236p-3f + t * 0x1.1dff92p-3f) + t2 * (0x1.13bf86p-3f + t * 0x1.553a70p-5f);
    float b = (0x1.2cee70p-3f + t * -0x1.f1fe8ap-4f) + t2 * (0x1.129412p-7f + t * 0x1.2d7e20p-7f);
    *density = amp_near_exp2_times_2p24(s * s * -0.72134752f);
    return t * (a + t2 * t2 * b);
}
AMP_FN float amp_near_erf_small(float x) {
    float z = x * x;
    return x * (1.12837917f +
                z * (-0.376126389f + z * (0.112837917f + z * (-0.0268661706f + z * (0.00522397762f + z * -0.00085483270f)))));
}
AMP_FN float amp_near_erf(float x) {
    float a = fabsf(x), s = amp_smaller(a, 10.0f), density, tail = amp_near_normal_tail(s * 1.41421356f, &density);
    float v = 1.0f - tail * density * 0x1p-23f;
    return a >= 0.5f ? copysignf(v, x) : amp_near_erf_small(x);
}
AMP_FN float amp_near_erfc(float x) {
    float a = fabsf(x), s = amp_smaller(a, 10.6f), density,
          tail = amp_near_normal_tail(s * 1.41421356f, &density) * density * 0x1p-23f;
    tail = a > 10.5f ? 0.0f : tail;
    tail = x < 0.0f ? 2.0f - tail : tail;
    return a < 0.5f ? 1.0f - amp_near_erf_small(x) : x != x ? x : tail;
}
/* See amp_f32_gelu and its slope. */
AMP_FN float amp_near_gelu(float x) {
    float size = fabsf(x), s = amp_smaller(size, 15.0f), density, tail = amp_near_normal_tail(s, &density);
    float less = (x > 0 ? s : size) * tail * density * 0x1p-24f;
    return copysignf((x > 0 ? x : 0.0f) - less, x);
}
AMP_FN float amp_near_gelu_grad(float g, float x) {
    float size = fabsf(x), s = amp_smaller(size, 15.0f), density, tail = amp_near_normal_tail(s, &density);
    float h = (size * 0.3989423f - tail) * density * 0x1p-24f;
    return g * (x > 0 ? 1.0f + h : 0.0f - h);
}
AMP_FN float amp_near_gelu_tanh_decay(float s) { /* in powers of 2 */
    return amp_near_exp2_times_2p24(s * (s * s * -0.10294324f + -2.3022082f));
}
AMP_FN float amp_near_gelu_tanh(float x) {
    float s = amp_smaller(fabsf(x), AMP_GELU_TANH_LIMIT);
    return amp_gelu_tanh_by(x, s, amp_near_gelu_tanh_decay(s));
}
AMP_FN float amp_near_gelu_tanh_grad(float g, float x) {
    float s = amp_smaller(fabsf(x), AMP_GELU_TANH_LIMIT);
    return amp_gelu_tanh_grad_by(g, x, s, amp_near_gelu_tanh_decay(s));
}
AMP_FN float amp_near_softplus(float x, float beta, float threshold) {
    float v = x * beta, soft = ((v < 0 ? 0.0f : v) + amp_near_log1p_unit(amp_exp_f32(-fabsf(v)))) / beta;
    return v > threshold ? x : soft;
}
AMP_FN float amp_near_logsigmoid(float x) { return (x > 0 ? 0.0f : x) - amp_near_log1p_unit(amp_exp_f32(-fabsf(x))); }
AMP_FN float amp_near_elu(float x, float alpha) {
    float low = alpha * amp_near_expm1(x);
    return x < 0 ? low : x;
}
AMP_FN float amp_near_selu(float x) { return 1.05070098735548f * amp_near_elu(x, 1.67326324235438f); }
AMP_FN float amp_near_celu(float x, float alpha) {
    float low = alpha * amp_near_expm1(x / alpha);
    return x < 0 ? low : x;
}
AMP_FN float amp_near_elu_grad(float g, float x, float low, float high, float rate) {
    float e = low * amp_exp_f32((x > 0 ? 0.0f : x) * rate);
    return g * (x > 0 ? high : e);
}
AMP_FN float amp_near_mish(float x) {
    float e = amp_exp_f32(x > 30.0f ? 30.0f : x), n = e * (e + 2.0f);
    return x * (n / (n + 2.0f));
}
AMP_FN float amp_near_mish_grad(float g, float x) {
    float low = x > 30.0f ? 30.0f : x, e = amp_exp_f32(low), n = e * (e + 2.0f), t = n / (n + 2.0f);
    float slope = t + low * (e / (1.0f + e)) * (2.0f / (n + 2.0f)) * (1.0f + t);
    return g * (slope * (1.0f + (x - x))) + 0.0f;
}

/* x = k pi/2 + r for |x| < 8192: pi/2 in three parts, of which the first two times k, and what is left of x after them, are exact for an x
 * of 11 bits. k's lowest bits choose the series and the sign as in amp_sin_wide. */
AMP_FN float amp_near_sin_turned(float x, uint32_t turns) {
    const float round = 0x1.8p23f;
    float t = x * 0x1.45f306p-1f + round, k = t - round;
    float r = ((x - k * 0x1.92p0f) - k * 0x1.fb4p-12f) - k * 0x1.4442d2p-24f, z = r * r;
    float s = r + r * z * (-1.6666654611e-1f + z * (8.3321608736e-3f + z * -1.9515295891e-4f));
    float c = (1.0f - 0.5f * z) + z * z * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
    uint32_t quarter = amp_f32_bits(t) + turns;
    return amp_bits_f32(amp_f32_bits(quarter & 1u ? c : s) ^ (quarter & 2u) << 30);
}
AMP_FN bool amp_near_sin_in(float x) { return fabsf(x) < 8192.0f; }
AMP_FN bool amp_near_cos_in(float x) { return fabsf(x) < 8192.0f; }
AMP_FN float amp_near_sin_near(float x) { return copysignf(1.0f, x) * amp_near_sin_turned(fabsf(x), 0); }
AMP_FN float amp_near_cos_near(float x) { return amp_near_sin_turned(x, 1); }

#endif
