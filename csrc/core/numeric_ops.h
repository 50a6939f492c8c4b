/* The scalar meaning of the element ops: amp_f32_* and amp_f64_* for real numbers, amp_i64_* for integers (narrower integers are
 * computed in 64 bits and cut, which wraps as they would), amp_c128_* for complex numbers. */
#ifndef AMP_NUMERIC_OPS_H
#define AMP_NUMERIC_OPS_H
#include "numeric_double.h"
#include "numeric_gamma.h"
#include "numeric_math.h"

#define REAL    float
#define R(name) amp_f32_##name
#define M(name) name##f
#define C(x)    ((float)x)
#include "numeric_real.h"
#undef REAL
#undef R
#undef M
#undef C

#define REAL    double
#define R(name) amp_f64_##name
#define M(name) name
#define C(x)    ((double)x)
#include "numeric_real.h"
#undef REAL
#undef R
#undef M
#undef C

/* float32: one rounding from a float64 evaluation. */
AMP_FN float amp_f32_exp(float x) { return (float)amp_exp_wide((double)x); }
AMP_FN float amp_f32_exp2(float x) { return amp_exp2_f32(x); }
AMP_FN float amp_f32_expm1(float x) { return copysignf((float)amp_expm1_wide((double)x), x); } /* keeps -0 */
AMP_FN float amp_f32_log(float x) { return (float)amp_log_wide((double)x, 1.0); }
AMP_FN float amp_f32_log2(float x) { return (float)amp_log_wide((double)x, 0x1.71547652b82fep0); }
AMP_FN float amp_f32_log10(float x) { return (float)amp_log_wide((double)x, 0x1.bcb7b1526e50ep-2); }
AMP_FN float amp_f32_asin(float x) { return (float)amp_atan2_wide((double)x, sqrt((1.0 - (double)x) * (1.0 + (double)x))); }
AMP_FN float amp_f32_acos(float x) { return (float)amp_atan2_wide(sqrt((1.0 - (double)x) * (1.0 + (double)x)), (double)x); }
AMP_FN float amp_f32_atan(float x) { return (float)amp_atan2_wide(amp_clip((double)x, -1e30, 1e30), 1.0); }
/* From m = exp(|x|) - 1. */
AMP_FN float amp_f32_sinh(float x) {
    double m = amp_expm1_wide(fabs((double)x));
    return copysignf((float)(0.5 * (m < (double)INFINITY ? m + m / (m + 1.0) : m)), x);
}
AMP_FN float amp_f32_cosh(float x) {
    double e = amp_exp_wide(fabs((double)x));
    return (float)(0.5 * (e + 1.0 / e));
}
AMP_FN float amp_f32_asinh(float x) {
    double a = fabs((double)x), z = a * a, more = z / (1.0 + sqrt(1.0 + z));
    return copysignf((float)amp_log1p_wide(a + (z < (double)INFINITY ? more : 0.0)), x);
}
AMP_FN float amp_f32_acosh(float x) {
    double m = (double)x - 1.0;
    return m < 0 ? NAN : (float)amp_log1p_wide(m + sqrt(m * (m + 2.0)));
}
AMP_FN float amp_f32_atanh(float x) {
    double a = fabs((double)x);
    return copysignf((float)(0.5 * amp_log1p_wide(2.0 * a / (1.0 - a))), x);
}
AMP_FN float amp_f32_pow(float x, float y) { return (float)amp_pow_wide((double)x, (double)y); }
/* The squares of float32 neither overflow nor vanish in float64; an infinite side wins over NaN. */
AMP_FN float amp_f32_hypot(float x, float y) {
    float v = (float)sqrt((double)x * (double)x + (double)y * (double)y);
    return fabsf(x) == INFINITY || fabsf(y) == INFINITY ? INFINITY : v;
}
AMP_FN float amp_f32_logaddexp(float x, float y) {
    double a = (double)x, b = (double)y, larger = a > b ? a : b, v = larger + amp_log1p_unit(amp_exp_below(a - b));
    return a == b && fabsf(x) == INFINITY ? x : a != a || b != b ? x + y : (float)v;
}
AMP_FN float amp_f32_log1p(float x) { return (float)amp_log1p_wide((double)x); }
/* In float32, error below 1.5 units in the last place: a minimax polynomial up to 1, then from the normal distribution's tail. */
AMP_FN float amp_f32_erf(float x) {
    float a = fabsf(x), s = amp_smaller(a, 10.0f), z = x * x, z2 = z * z, density,
          tail = amp_normal_tail_f32(s * 1.41421356f, &density);
    float p = (0x1.ce2f08p-4f + z * -0x1.b829c8p-6f) +
              z2 * ((0x1.562a60p-8f + z * -0x1.bccf66p-11f) + z2 * (0x1.d88750p-14f + z * -0x1.445f48p-17f));
    float small = x + x * (0x1.06eba8p-3f + z * (-0x1.812746p-2f + z * p));
    return a >= 1.0f ? copysignf(1.0f - tail * density * 0x1p-23f, x) : small;
}
AMP_FN float amp_f32_erfc(float x) { return (float)amp_erfc_wide((double)x); }
AMP_FN float amp_f32_erfinv(float x) { return (float)amp_erfinv_wide((double)x); }
AMP_FN float amp_f32_tanh(float x) { return copysignf((float)amp_tanh_wide((double)x), x); }
/* In float32, from e = exp(-|x|): the logistic function is 1 / (1 + e) or e / (1 + e). Its error stays below 4 * 2^-24. */
AMP_FN float amp_f32_sigmoid(float x) {
    float e = amp_exp_f32_times_2p24(-fabsf(x)), share = 1.0f / (1.0f + e * 0x1p-24f);
    return (x > 0 ? 1.0f : e) * share * (x > 0 ? 1.0f : 0x1p-24f);
}
/* Likewise; -inf gives NaN. */
AMP_FN float amp_f32_silu(float x) {
    float e = amp_exp_f32_times_2p24(-fabsf(x)), share = 1.0f / (1.0f + e * 0x1p-24f);
    return x * ((x > 0 ? 1.0f : e) * share) * (x > 0 ? 1.0f : 0x1p-24f);
}
AMP_FN float amp_f32_elu(float x, float alpha) { return x < 0 ? (float)((double)alpha * amp_expm1_wide((double)x)) : x; }
AMP_FN float amp_f32_selu(float x) {
    double v = (double)x, low = 1.6732632423543772 * amp_expm1_wide(v);
    return (float)(1.0507009873554805 * (x < 0 ? low : v));
}
AMP_FN float amp_f32_celu(float x, float alpha) {
    return x < 0 ? (float)((double)alpha * amp_expm1_wide((double)x / (double)alpha)) : x;
}
AMP_FN float amp_f32_tanhshrink(float x) { return (float)((double)x - amp_tanh_wide((double)x)) + 0.0f; }
AMP_FN float amp_f32_logit(float x) { return (float)amp_log_wide((double)x / (1.0 - (double)x), 1.0); }
AMP_FN float amp_f32_sinc(float x) {
    double v = 3.141592653589793 * (double)x;
    return x == 0 ? 1 : (float)(sin(v) / v);
}
AMP_FN float amp_f32_xlogy(float x, float y) {
    double v = (double)x * amp_log_wide((double)y, 1.0);
    return y != y ? y : x == 0 ? 0 : (float)v;
}
AMP_FN float amp_f32_entr(float x) {
    double v = -(double)x * amp_log_wide((double)x, 1.0);
    return x > 0 ? (float)v : x == 0 ? 0.0f : x < 0 ? -INFINITY : x;
}
AMP_FN float amp_f32_glu(float x, float gate) { return x * amp_f32_sigmoid(gate); }
AMP_FN float amp_f32_silu_grad(float g, float x) {
    float e = amp_exp_f32_times_2p24(-fabsf(x)) * 0x1p-24f, share = 1.0f / (1.0f + e);
    float one = x > 0 ? share : e * share, other = x > 0 ? e * share : share;
    return g * (one * (1.0f + x * other)); /* NaN at infinity, as in PyTorch: a scaler has to see that a layer overflowed */
}
/* mish(x) = x tanh(log(1 + e)), e = exp(x):  tanh = n / (n + 2) with n = e (e + 2); above 100 it is 1. */
AMP_FN float amp_f32_mish(float x) {
    double e = amp_exp_wide((double)x > 100.0 ? 100.0 : (double)x), n = e * (e + 2.0);
    return (float)((double)x * (n / (n + 2.0)));
}
AMP_FN float amp_f32_mish_grad(float g, float x) {
    double v = (double)x, low = v > 100.0 ? 100.0 : v, e = amp_exp_wide(low), n = e * (e + 2.0), t = n / (n + 2.0);
    double slope = t + low * (e / (1.0 + e)) * (2.0 / (n + 2.0)) * (1.0 + t);
    return (float)((double)g * (slope * (1.0 + (v - v)))) + 0.0f; /* NaN at infinity */
}
AMP_FN float amp_f32_logsigmoid(float x) {
    double v = (double)x;
    return (float)((v > 0 ? 0.0 : v) - amp_log1p_unit(amp_exp_below(v))) + 0.0f;
}
AMP_FN float amp_f32_softplus(float x, float beta, float threshold) {
    double v = (double)x * (double)beta;
    double soft = ((v < 0 ? 0.0 : v) + amp_log1p_unit(amp_exp_below(v))) / (double)beta;
    return v > (double)threshold ? x : (float)soft;
}

/* elu, selu, celu: g times `high` above 0, else times low exp(rate x). */
AMP_FN float amp_f32_elu_grad(float g, float x, double low, double high, double rate) {
    float e = (float)low * amp_exp_f32((x > 0 ? 0.0f : x) * (float)rate);
    return g * (x > 0 ? (float)high : e);
}
AMP_FN float amp_f32_softplus_grad(float g, float x, double beta, double threshold) {
    float z = x * (float)beta, s = amp_f32_sigmoid(z);
    return z > (float)threshold ? g : g * s;
}

/* Functions with a range in which straight-line code serves, name_near where name_in is true; the C library serves the rest. Both
 * agree on which is whose, so that a value does not depend on its neighbours. */
AMP_FN bool amp_f32_sin_in(float x) { return fabsf(x) < 1e5f; }
AMP_FN bool amp_f32_cos_in(float x) { return fabsf(x) < 1e5f; }
AMP_FN float amp_f32_sin_near(float x) { return copysignf(1.0f, x) * (float)amp_sin_wide(fabs((double)x), 0); } /* keeps -0 */
AMP_FN float amp_f32_cos_near(float x) { return (float)amp_sin_wide((double)x, 1); }
AMP_FN float amp_f32_sin(float x) { return amp_f32_sin_in(x) ? amp_f32_sin_near(x) : sinf(x); }
AMP_FN float amp_f32_cos(float x) { return amp_f32_cos_in(x) ? amp_f32_cos_near(x) : cosf(x); }
AMP_FN bool amp_f32_tan_in(float x) { return fabsf(x) < 1e5f; }
AMP_FN float amp_f32_tan_near(float x) { return copysignf(1.0f, x) * (float)amp_tan_wide(fabs((double)x)); }
AMP_FN float amp_f32_tan(float x) { return amp_f32_tan_in(x) ? amp_f32_tan_near(x) : tanf(x); }
AMP_FN bool amp_f32_lgamma_in(float x) { return x > 0 && x < INFINITY; }
AMP_FN bool amp_f32_digamma_in(float x) { return x > 0 && x < INFINITY; }
AMP_FN float amp_f32_lgamma_near(float x) { return (float)amp_lgamma_wide((double)x) + 0.0f; }
AMP_FN float amp_f32_digamma_near(float x) { return (float)amp_digamma_wide((double)x); }
AMP_FN float amp_f32_lgamma(float x) { return amp_f32_lgamma_in(x) ? amp_f32_lgamma_near(x) : (float)amp_lgamma((double)x); }
AMP_FN float amp_f32_digamma(float x) { return amp_f32_digamma_in(x) ? amp_f32_digamma_near(x) : (float)amp_digamma((double)x); }
AMP_FN bool amp_f32_fmod_in(float a, float b) { return fabsf(a) < 0x1p27f * fabsf(b) && fabsf(b) < INFINITY; }
AMP_FN bool amp_f32_remainder_in(float a, float b) { return amp_f32_fmod_in(a, b); }
AMP_FN bool amp_f32_floor_divide_in(float a, float b) { return amp_f32_fmod_in(a, b); }
AMP_FN float amp_f32_fmod_near(float a, float b) { return amp_fmod_small(a, b); }
AMP_FN float amp_f32_remainder_near(float a, float b) { return amp_f32_remainder_of(amp_fmod_small(a, b), b); }
AMP_FN float amp_f32_floor_divide_near(float a, float b) { return amp_f32_floor_divide_of(amp_fmod_small(a, b), a, b); }
AMP_FN float amp_f32_fmod(float a, float b) { return fmodf(a, b); }
AMP_FN bool amp_f32_atan2_in(float y, float x) { return fabsf(y) + fabsf(x) > 0 && fabsf(y) + fabsf(x) < INFINITY; }
AMP_FN float amp_f32_atan2_near(float y, float x) { return (float)amp_atan2_wide((double)y, (double)x); }
AMP_FN float amp_f32_atan2(float y, float x) { return amp_f32_atan2_in(y, x) ? amp_f32_atan2_near(y, x) : atan2f(y, x); }

/* clang-format off */
/* float64: the C library serves all. */
AMP_FN double amp_f64_fmod(double a, double b) { return fmod(a, b); }
AMP_FN double amp_f64_atan2(double y, double x) { return atan2(y, x); }
#define LIBRARY1(name)                                                         \
    AMP_FN bool amp_f64_##name##_in(double x) { (void)x; return false; }       \
    AMP_FN double amp_f64_##name##_near(double x) { return x; }
#define LIBRARY2(name)                                                                              \
    AMP_FN bool amp_f64_##name##_in(double x, double y) { (void)x, (void)y; return false; }         \
    AMP_FN double amp_f64_##name##_near(double x, double y) { return amp_f64_##name(x, y); }
LIBRARY1(sin) LIBRARY1(cos) LIBRARY1(tan) LIBRARY1(lgamma) LIBRARY1(digamma) LIBRARY2(fmod) LIBRARY2(remainder) LIBRARY2(floor_divide) LIBRARY2(atan2)
#undef LIBRARY1
#undef LIBRARY2

/* What the C library does for float64. */
#define WIDE(name) AMP_FN double amp_f64_##name(double x) { return name(x); }
WIDE(sin) WIDE(cos) WIDE(tan) WIDE(asin) WIDE(acos) WIDE(atan) WIDE(sinh) WIDE(cosh) WIDE(asinh) WIDE(acosh) WIDE(atanh)
WIDE(log10) WIDE(erf) WIDE(erfc)
#undef WIDE
#define STRAIGHT(name) AMP_FN double amp_f64_##name(double x) { return amp_##name##_f64(x); }
STRAIGHT(exp) STRAIGHT(exp2) STRAIGHT(expm1) STRAIGHT(log) STRAIGHT(log2) STRAIGHT(log1p) STRAIGHT(tanh)
#undef STRAIGHT
AMP_FN double amp_f64_pow(double x, double y) { return pow(x, y); }
AMP_FN double amp_f64_hypot(double x, double y) { return hypot(x, y); }
AMP_FN double amp_f64_logaddexp(double x, double y) {
    double larger = x > y ? x : y, v = larger + amp_log1p_f64(amp_exp_f64(-fabs(x - y)));
    return x == y && fabs(x) == (double)INFINITY ? x : x != x || y != y ? x + y : v;
}
AMP_FN double amp_f64_lgamma(double x) { return amp_lgamma(x); }
AMP_FN double amp_f64_digamma(double x) { return amp_digamma(x); }
AMP_FN double amp_f64_erfinv(double x) { return amp_erfinv(x); }
/* clang-format on */

AMP_FN double amp_f64_round_to_tf32(double x) { return x; }
AMP_FN float amp_f32_round_to_tf32(float x) { return amp_round_tf32(x); }
AMP_FN double amp_f64_sigmoid(double x) { return 1.0 / (1.0 + amp_exp_f64(-x)); }
AMP_FN double amp_f64_silu(double x) { return x / (1.0 + amp_exp_f64(-x)); }
AMP_FN double amp_f64_elu(double x, double alpha) { return x < 0 ? alpha * amp_expm1_f64(x) : x; }
AMP_FN double amp_f64_selu(double x) { return 1.0507009873554805 * (x < 0 ? 1.6732632423543772 * amp_expm1_f64(x) : x); }
AMP_FN double amp_f64_celu(double x, double alpha) { return x < 0 ? alpha * amp_expm1_f64(x / alpha) : x; }
AMP_FN double amp_f64_tanhshrink(double x) { return x - amp_tanh_f64(x); }
AMP_FN double amp_f64_logit(double x) { return amp_log_f64(x / (1.0 - x)); }
AMP_FN double amp_f64_sinc(double x) { return x == 0 ? 1.0 : sin(3.141592653589793 * x) / (3.141592653589793 * x); }
AMP_FN double amp_f64_elu_grad(double g, double x, double low, double high, double rate) {
    return g * (x > 0 ? high : low * amp_exp_f64(x * rate));
}
AMP_FN double amp_f64_softplus_grad(double g, double x, double beta, double threshold) {
    return x * beta > threshold ? g : g * amp_f64_sigmoid(x * beta);
}
/* -t log s(x) - (1 - t) log s(-x): for t in [0, 1] two terms of one sign, so that nothing cancels; and its slope in x times g.
 * -inf has no value, as in PyTorch, where the two infinite terms differ in sign. */
AMP_FN float amp_f32_bce_logits(float x, float target) {
    double v = (double)x, t = (double)target, l = amp_log1p_unit(amp_exp_below(v));
    float loss = (float)(t * ((v < 0 ? -v : 0.0) + l) + (1.0 - t) * ((v > 0 ? v : 0.0) + l));
    return x == -INFINITY ? NAN : loss;
}
AMP_FN double amp_f64_bce_logits(double x, double t) {
    double l = amp_log1p_f64(amp_exp_f64(-fabs(x)));
    double loss = t * ((x < 0 ? -x : 0.0) + l) + (1.0 - t) * ((x > 0 ? x : 0.0) + l);
    return x == -(double)INFINITY ? (double)NAN : loss;
}
AMP_FN float amp_f32_bce_logits_grad(float g, float x, float t) {
    return g * ((1.0f - t) * amp_f32_sigmoid(x) - t * amp_f32_sigmoid(-x));
}
AMP_FN double amp_f64_bce_logits_grad(double g, double x, double t) {
    return g * ((1.0 - t) * amp_f64_sigmoid(x) - t * amp_f64_sigmoid(-x));
}
AMP_FN double amp_f64_xlogy(double x, double y) { return y != y ? y : x == 0 ? 0.0 : x * amp_log_f64(y); }
AMP_FN double amp_f64_entr(double x) {
    double v = -x * amp_log_f64(x);
    return x > 0 ? v : x == 0 ? 0.0 : x < 0 ? -(double)INFINITY : x;
}
AMP_FN double amp_f64_glu(double x, double gate) { return x / (1.0 + amp_exp_f64(-gate)); }
AMP_FN double amp_f64_silu_grad(double g, double x) {
    double s = 1.0 / (1.0 + amp_exp_f64(-x));
    return g * (s * (1.0 + x * (1.0 - s)));
}
AMP_FN double amp_f64_mish(double x) {
    double e = amp_exp_f64(x > 300.0 ? 300.0 : x), n = e * (e + 2.0);
    return x * (n / (n + 2.0));
}
AMP_FN double amp_f64_mish_grad(double g, double x) {
    double low = x > 300.0 ? 300.0 : x, e = amp_exp_f64(low), n = e * (e + 2.0), t = n / (n + 2.0);
    return g * ((t + low * (e / (1.0 + e)) * (2.0 / (n + 2.0)) * (1.0 + t)) * (1.0 + (x - x)));
}
AMP_FN double amp_f64_logsigmoid(double x) { return (x > 0 ? 0.0 : x) - amp_log1p_f64(amp_exp_f64(-fabs(x))); }
AMP_FN double amp_f64_softplus(double x, double beta, double threshold) {
    double v = x * beta;
    return v > threshold ? x : ((v < 0 ? 0.0 : v) + amp_log1p_f64(amp_exp_f64(-fabs(v)))) / beta;
}

/* gelu(x) = x Phi(x), Phi the normal distribution: 1/2 erfc(-x / sqrt 2), or 1/2 (1 + tanh u) = sigmoid(2u) with
 * u = sqrt(2/pi) (x + 0.044715 x^3); the sigmoid does not cancel for negative x. */
AMP_FN double amp_gelu_inner(double x) { return 0.7978845608028654 * (x + 0.044715 * x * x * x); }
AMP_FN double amp_gelu_inner_slope(double x) { return 0.7978845608028654 * (1.0 + 3 * 0.044715 * x * x); }
/* In float32: x P(X < x) = max(x, 0) - |x| P(X > |x|); -inf gives NaN. */
AMP_FN float amp_f32_gelu(float x) {
    float size = fabsf(x), s = amp_smaller(size, 15.0f), density, tail = amp_normal_tail_f32(s, &density);
    float less = (x > 0 ? s : size) * tail * density * 0x1p-24f;
    return copysignf((x > 0 ? x : 0.0f) - less, x);
}
/* The variant with tanh, from s = min(|x|, AMP_GELU_TANH_LIMIT) and e = 2^24 exp(-2u) of s: max(x, 0) - |x| / (1 + exp(2u)). */
#define AMP_GELU_TANH_LIMIT 12.0f /* e is 0 there */
AMP_FN float amp_gelu_tanh_by(float x, float s, float e) {
    float tail = e / ((0x1p24f + e) * 0x1p-24f), less = (x > 0 ? s : fabsf(x)) * tail * 0x1p-24f;
    return copysignf((x > 0 ? x : 0.0f) - less, x);
}
/* Share and tail, 1 together, are the sigmoid's values at 2u and -2u. */
AMP_FN float amp_gelu_tanh_grad_by(float g, float x, float s, float e) {
    float share = 0x1p24f / (0x1p24f + e), tail = e * share;
    float h = s * (1.5957691f + 0.21406445f * (s * s)) * share * tail;
    float square = x * x, overflow = square - square; /* NaN where float32 cannot form the slope, as in PyTorch */
    return g * (x > 0 ? share + h * 0x1p-24f : (tail - h) * 0x1p-24f) + overflow;
}
/* 2u is formed in float64, else its rounding would move the exponential by 2u units. */
AMP_FN float amp_gelu_tanh_decay(float s) {
    double twice = -2.0 * amp_gelu_inner((double)s);
    float high = (float)twice;
    return amp_exp_sum_f32_times_2p24(high, (float)(twice - (double)high));
}
AMP_FN float amp_f32_gelu_tanh(float x) {
    float s = amp_smaller(fabsf(x), AMP_GELU_TANH_LIMIT);
    return amp_gelu_tanh_by(x, s, amp_gelu_tanh_decay(s));
}
AMP_FN float amp_f32_gelu_grad(float g, float x) {
    float size = fabsf(x), s = amp_smaller(size, 15.0f), density, tail = amp_normal_tail_f32(s, &density);
    float h = (size * 0.3989423f - tail) * density * 0x1p-24f; /* |x| density - P(X > |x|); NaN at infinity */
    return g * (x > 0 ? 1.0f + h : 0.0f - h);
}
AMP_FN float amp_f32_gelu_tanh_grad(float g, float x) {
    float s = amp_smaller(fabsf(x), AMP_GELU_TANH_LIMIT);
    return amp_gelu_tanh_grad_by(g, x, s, amp_gelu_tanh_decay(s));
}
AMP_FN double amp_f64_gelu(double x) { return x * 0.5 * erfc(x * -0.7071067811865476); }
AMP_FN double amp_f64_gelu_tanh(double x) { return x / (1.0 + amp_exp_f64(-2.0 * amp_gelu_inner(x))); }
AMP_FN double amp_f64_gelu_grad(double g, double x) {
    return g * (0.5 * erfc(x * -0.7071067811865476) + x * 0.3989422804014327 * amp_exp_f64(-0.5 * x * x));
}
AMP_FN double amp_f64_gelu_tanh_grad(double g, double x) {
    double u = 2.0 * amp_gelu_inner(x), s = 1.0 / (1.0 + amp_exp_f64(-u)), other = 1.0 / (1.0 + amp_exp_f64(u));
    return g * (s + 2.0 * x * (s * other) * amp_gelu_inner_slope(x));
}

/* Integers: arithmetic modulo 2^64, formed without sign so that nothing is undefined. */
AMP_FN int64_t amp_i64_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
AMP_FN int64_t amp_i64_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
AMP_FN int64_t amp_i64_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
AMP_FN int64_t amp_i64_neg(int64_t a) { return (int64_t)(0 - (uint64_t)a); }
AMP_FN int64_t amp_i64_abs(int64_t a) { return a < 0 ? amp_i64_neg(a) : a; }
AMP_FN int64_t amp_i64_sign(int64_t a) { return (a > 0) - (a < 0); }
/* The divisor is not zero here; -1 is apart because INT64_MIN / -1 overflows. */
AMP_FN int64_t amp_i64_div_trunc(int64_t a, int64_t b) { return b == -1 ? amp_i64_neg(a) : a / b; }
AMP_FN int64_t amp_i64_fmod(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }
AMP_FN int64_t amp_i64_floor_divide(int64_t a, int64_t b) {
    int64_t q = amp_i64_div_trunc(a, b), m = amp_i64_fmod(a, b);
    return m != 0 && (m < 0) != (b < 0) ? q - 1 : q;
}
AMP_FN int64_t amp_i64_remainder(int64_t a, int64_t b) {
    int64_t m = amp_i64_fmod(a, b);
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}
/* A negative exponent leaves something only of 1 and -1. */
AMP_FN int64_t amp_i64_pow(int64_t a, int64_t n) {
    if (n < 0) return a == 1 ? 1 : a == -1 ? ((n & 1) ? -1 : 1) : 0;
    int64_t power = 1;
    for (; n; n >>= 1, a = amp_i64_mul(a, a))
        if (n & 1) power = amp_i64_mul(power, a);
    return power;
}
/* Shifts by a negative count or by the width and more: nothing, or only the sign, is left. */
AMP_FN int64_t amp_i64_shift_left(int64_t a, int64_t n) { return n < 0 || n > 63 ? 0 : (int64_t)((uint64_t)a << n); }
AMP_FN int64_t amp_i64_shift_right(int64_t a, int64_t n) { return a >> (n < 0 || n > 63 ? 63 : n); }

/* Never negative, but for INT64_MIN, whose size does not exist. */
AMP_FN int64_t amp_i64_gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = amp_i64_fmod(a, b);
        a = b, b = rest;
    }
    return amp_i64_abs(a);
}
AMP_FN int64_t amp_i64_lcm(int64_t a, int64_t b) {
    int64_t g = amp_i64_gcd(a, b);
    return g == 0 ? 0 : amp_i64_abs(amp_i64_mul(amp_i64_div_trunc(a, g), b));
}

AMP_FN AmpComplex amp_c128_add(AmpComplex a, AmpComplex b) { return (AmpComplex){a.re + b.re, a.im + b.im}; }
AMP_FN AmpComplex amp_c128_sub(AmpComplex a, AmpComplex b) { return (AmpComplex){a.re - b.re, a.im - b.im}; }
AMP_FN AmpComplex amp_c128_mul(AmpComplex a, AmpComplex b) {
    return (AmpComplex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
/* Scaled by the larger part of the divisor, so that its square neither overflows nor vanishes. */
AMP_FN AmpComplex amp_c128_div(AmpComplex a, AmpComplex b) {
    if (fabs(b.re) >= fabs(b.im)) {
        double q = b.im / b.re, d = b.re + b.im * q;
        if (b.re == 0 && b.im == 0) return (AmpComplex){a.re / fabs(b.re), a.im / fabs(b.im)};
        return (AmpComplex){(a.re + a.im * q) / d, (a.im - a.re * q) / d};
    }
    double q = b.re / b.im, d = b.re * q + b.im;
    return (AmpComplex){(a.re * q + a.im) / d, (a.im * q - a.re) / d};
}
AMP_FN bool amp_c128_eq(AmpComplex a, AmpComplex b) { return a.re == b.re && a.im == b.im; }

/* a^b = exp(b log a); anything to the power 0 is 1, 0 to a power with positive real part is 0. */
AMP_FN AmpComplex amp_c128_pow(AmpComplex a, AmpComplex b) {
    if (b.re == 0 && b.im == 0) return (AmpComplex){1, 0};
    if (a.re == 0 && a.im == 0 && b.re > 0) return (AmpComplex){0, 0};
    double r = log(hypot(a.re, a.im)), t = atan2(a.im, a.re);
    double size = exp(b.re * r - b.im * t), angle = b.im * r + b.re * t;
    return (AmpComplex){size * cos(angle), size * sin(angle)};
}

#endif
