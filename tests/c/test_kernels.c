/* Conversions and element-wise kernels against scalar references in float64, without Python.
 *
 * Every op runs at every instruction-set level that the machine has, on lengths 0..67 and long ones, dense, strided, reversed,
 * transposed, broadcast and misaligned. Values must be within a stated bound of the reference; levels must agree to the bit. */
#include "kernel_support.h"

#include "../../csrc/core/numeric_ops.h"

static int64_t get_int(const Array *a, int64_t i) {
    int64_t v;
    amp_convert(a->v.dtype, element(a, i), 0, AMP_INT64, (char *)&v, 0, 1);
    return v;
}

/* ---- conversions ---- */

static double widen_reference(int h, int E, int M) {
    int e = (h >> M) & ((1 << E) - 1), m = h & ((1 << M) - 1), bias = (1 << (E - 1)) - 1;
    double v = e == (1 << E) - 1 ? (m ? (double)NAN : (double)INFINITY)
               : e               ? ldexp(1 + ldexp(m, -M), e - bias)
                                 : ldexp(m, 1 - bias - M);
    return copysign(v, h >> (E + M) ? -1.0 : 1.0);
}

/* All 65536 patterns of a 16-bit float to float32 and back, and the rounding of both neighbours of every midpoint. */
static void test_halves(int dtype, int E, int M) {
    enum { N = 65536 };
    uint16_t *in = malloc(N * 2), *back = malloc(N * 2);
    float *wide = malloc(N * 4);
    for (int i = 0; i < N; i++) in[i] = (uint16_t)i;
    amp_convert(dtype, (char *)in, 2, AMP_FLOAT32, (char *)wide, 4, N);
    amp_convert(AMP_FLOAT32, (char *)wide, 4, dtype, (char *)back, 2, N);
    uint16_t quiet = (uint16_t)(1 << (M - 1));
    for (int i = 0; i < N; i++) {
        double want = widen_reference(i, E, M);
        CHECK(isnan(want) ? isnan(wide[i]) && !!signbit(wide[i]) == (i >> 15)
                          : (double)wide[i] == want && !!signbit(wide[i]) == (i >> 15),
              "pattern %x", i);
        CHECK(back[i] == (isnan(want) ? i | quiet : i), "pattern %x came back as %x", i, back[i]);
    }
    for (int i = 0; i < ((1 << E) - 1) << M; i++) { /* between pattern i and the next, which may be infinity */
        double low = widen_reference(i, E, M), high = widen_reference(i + 1, E, M);
        if (isinf(high)) high = low + (low - widen_reference(i - 1, E, M));
        double middle = low + (high - low) / 2;
        int even = i & 1 ? i + 1 : i, sources[2] = {AMP_FLOAT64, AMP_FLOAT32};
        for (int s = 0; s < 2; s++) {
            double x[3] = {nextafter(middle, 0), middle, nextafter(middle, 1e300)};
            if (s) x[0] = (double)nextafterf((float)middle, 0), x[2] = (double)nextafterf((float)middle, INFINITY);
            int want[3] = {i, even, i + 1};
            if (s && (double)(float)middle != middle) continue; /* below float32's range */
            for (int k = 0; k < 3; k++)
                for (int sign = 0; sign < 2; sign++) {
                    double v = sign ? -x[k] : x[k];
                    float f = (float)v;
                    uint16_t got;
                    amp_convert(sources[s], s ? (char *)&f : (char *)&v, 0, dtype, (char *)&got, 0, 1);
                    CHECK(got == (want[k] | sign << 15), "%a gave %x, not %x", v, got, want[k] | sign << 15);
                }
        }
    }
    free(in), free(back), free(wide);
}

/* The vector versions against numeric.h on random bits, every length, NaN payloads included. */
static void test_narrowing_bits(void) {
    float in[100];
    uint16_t out[100];
    for (int round = 0; round < 3000; round++) {
        int n = (int)(draw() % 100);
        for (int i = 0; i < n; i++) {
            uint32_t u = (uint32_t)draw();
            if (draw() % 4 == 0) u |= 0x7f800000u;
            memcpy(&in[i], &u, 4);
        }
        amp_convert(AMP_FLOAT32, (char *)in, 4, AMP_FLOAT16, (char *)out, 2, n);
        for (int i = 0; i < n; i++)
            CHECK(out[i] == amp_f32_to_f16(in[i]), "f16 of %a: %x, not %x", (double)in[i], out[i], amp_f32_to_f16(in[i]));
        amp_convert(AMP_FLOAT32, (char *)in, 4, AMP_BFLOAT16, (char *)out, 2, n);
        for (int i = 0; i < n; i++) CHECK(out[i] == amp_f32_to_bf16(in[i]), "bf16 of %a: %x", (double)in[i], out[i]);
    }
}

/* Stores around the caches: the bits of the usual way at every length and alignment, nothing beside them. */
static void test_streams(void) {
    static const int pair[][2] = {{AMP_FLOAT32, AMP_FLOAT16},  {AMP_FLOAT32, AMP_BFLOAT16}, {AMP_FLOAT16, AMP_FLOAT32},
                                  {AMP_BFLOAT16, AMP_FLOAT32}, {AMP_FLOAT16, AMP_FLOAT16},  {AMP_INT32, AMP_INT32},
                                  {AMP_INT64, AMP_INT64}};
    enum { N = 150, GUARD = 64 };
    _Alignas(64) char in[N * 8 + 8], out[N * 8 + 2 * GUARD], want[N * 8 + 2 * GUARD];
    for (int round = 0; round < 2000; round++) {
        const int *p = pair[draw() % (sizeof pair / sizeof *pair)];
        CastFn stream = amp_cast_stream(p[0], p[1]);
        if (!stream) continue;
        int from = (int)amp_itemsize(p[0]), to = (int)amp_itemsize(p[1]), n = (int)(draw() % N), shift = (int)(draw() % 33);
        for (int i = 0; i < (int)sizeof in; i++) in[i] = (char)draw();
        memset(out, 7, sizeof out);
        memset(want, 7, sizeof want);
        const char *s = in + draw() % 2 * (unsigned)from;
        amp_convert(p[0], s, from, p[1], want + GUARD + shift, to, n);
        stream(s, out + GUARD + shift, n);
        CHECK(memcmp(out, want, sizeof out) == 0, "%d to %d, %d elements", p[0], p[1], n);
    }
}

static void test_special_conversions(void) {
    double d = 1 + 0x1p-11 + 0x1p-40; /* through float32 this would round to even, downwards */
    uint16_t h;
    amp_convert(AMP_FLOAT64, (char *)&d, 0, AMP_FLOAT16, (char *)&h, 0, 1);
    CHECK(h == 0x3c01, "%x", h);
    int64_t big = ((int64_t)1 << 60) + ((int64_t)1 << 52) + 1; /* just above the middle of two bfloat16 */
    amp_convert(AMP_INT64, (char *)&big, 0, AMP_BFLOAT16, (char *)&h, 0, 1);
    CHECK(h == 0x5d81, "%x", h);
    double odd[] = {NAN, INFINITY, -INFINITY, 1e30, 3e9, -1.5, 300};
    int64_t want[] = {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, 3000000000, -1, 300};
    for (int i = 0; i < 7; i++) {
        int64_t got;
        uint8_t low;
        amp_convert(AMP_FLOAT64, (char *)&odd[i], 0, AMP_INT64, (char *)&got, 0, 1);
        amp_convert(AMP_FLOAT64, (char *)&odd[i], 0, AMP_UINT8, (char *)&low, 0, 1);
        CHECK(got == want[i] && low == (uint8_t)want[i], "%g gave %lld, %d", odd[i], (long long)got, low);
    }
    float t[] = {1024.5f, -1024.5f, 1024.49f, INFINITY, 0x1p-149f}, r[] = {1025, -1025, 1024, INFINITY, 0};
    for (int i = 0; i < 5; i++) CHECK(amp_round_tf32(t[i]) == r[i], "%a", (double)t[i]);
    CHECK(isnan(amp_round_tf32(NAN)), "NaN lost");
    /* every pair of dtypes carries small integers unchanged */
    for (int a = 0; a < AMP_DTYPE_COUNT; a++)
        for (int b = 0; b < AMP_DTYPE_COUNT; b++)
            for (int x = 0; x < 8; x++) {
                char u[16], v[16];
                double value = x, got;
                amp_convert(AMP_FLOAT64, (char *)&value, 0, a, u, 0, 1);
                amp_convert(a, u, 0, b, v, 0, 1);
                amp_convert(b, v, 0, AMP_FLOAT64, (char *)&got, 0, 1);
                CHECK(got == (a == AMP_BOOL || b == AMP_BOOL ? x != 0 : x), "%d from %s to %s: %g", x, amp_dtype_info[a].name,
                      amp_dtype_info[b].name, got);
            }
}

/* ---- element-wise ---- */

typedef double (*Fn)(double, double, double, const double *num);
#define F(name, expr) \
    static double name(double x, double y, double z, const double *num) { \
        (void)x, (void)y, (void)z, (void)num; \
        return expr; \
    }
/* clang-format off */
F(r_abs, fabs(x)) F(r_neg, -x) F(r_exp, exp(x)) F(r_exp2, exp2(x)) F(r_expm1, expm1(x)) F(r_log, log(x)) F(r_log2, log2(x))
F(r_log10, log10(x)) F(r_log1p, log1p(x)) F(r_sqrt, sqrt(x)) F(r_rsqrt, 1 / sqrt(x)) F(r_reciprocal, 1 / x) F(r_sin, sin(x)) F(r_cos, cos(x))
F(r_tan, tan(x)) F(r_asin, asin(x)) F(r_acos, acos(x)) F(r_atan, atan(x)) F(r_sinh, sinh(x)) F(r_cosh, cosh(x)) F(r_tanh, tanh(x))
F(r_asinh, asinh(x)) F(r_acosh, acosh(x)) F(r_atanh, atanh(x)) F(r_sigmoid, 1 / (1 + exp(-x))) F(r_erf, erf(x)) F(r_erfc, erfc(x))
F(r_square, x * x) F(r_floor, floor(x)) F(r_ceil, ceil(x)) F(r_round, rint(x)) F(r_trunc, trunc(x)) F(r_frac, x - trunc(x))
F(r_sign, (x > 0) - (x < 0)) F(r_relu, isnan(x) ? x : x < 0 ? 0 : x) F(r_gelu, (double)(0.5L * (long double)x * erfcl((long double)x * -0.70710678118654752440L))) F(r_silu, x / (1 + exp(-x)))
F(r_leaky, x < 0 ? num[0] * x : x) F(r_elu, x < 0 ? num[0] * expm1(x) : x) F(r_logsigmoid, fmin(x, 0) - log1p(exp(-fabs(x))))
F(r_softplus, x > num[1] ? x : fmax(x, 0) + log1p(exp(-fabs(x)))) F(r_clamp, isnan(x) ? x : fmin(fmax(x, num[0]), num[1]))
F(r_isnan, isnan(x)) F(r_isinf, isinf(x) != 0) F(r_isfinite, isfinite(x) != 0) F(r_signbit, signbit(x) != 0) F(r_not, x == 0)
F(r_add, x + num[0] * y) F(r_sub, x - num[0] * y) F(r_rsub, y - num[0] * x) F(r_mul, x * y) F(r_div, x / y) F(r_div_trunc, trunc(x / y))
F(r_floor_divide, floor(x / y)) F(r_remainder, fmod(x, y) && (fmod(x, y) < 0) != (y < 0) ? fmod(x, y) + y : fmod(x, y)) F(r_fmod, fmod(x, y))
F(r_pow, pow(x, y)) F(r_power, pow(x, num[0])) F(r_atan2, atan2(x, y)) F(r_hypot, hypot(x, y)) F(r_fmax, fmax(x, y)) F(r_fmin, fmin(x, y)) F(r_copysign, copysign(x, y))
F(r_maximum, isnan(x) || isnan(y) ? NAN : fmax(x, y)) F(r_minimum, isnan(x) || isnan(y) ? NAN : fmin(x, y))
F(r_eq, x == y) F(r_ne, x != y) F(r_lt, x < y) F(r_le, x <= y) F(r_gt, x > y) F(r_ge, x >= y)
F(r_and, x != 0 && y != 0) F(r_or, x != 0 || y != 0) F(r_xor, (x != 0) != (y != 0))
F(r_relu_grad, y <= 0 ? 0 : x) F(r_tanh_grad, x * (1 - y * y)) F(r_sigmoid_grad, x * y * (1 - y))
F(r_huber, fabs(x) > num[0] ? (fabs(x) - num[0] / 2) * num[2] : x * x * num[1]) F(r_huber_grad, x * fmax(fmin(y, num[0]), -num[0]) * num[1])
F(r_bce, x * -0.0 + y * log1p(exp(-x)) + (1 - y) * (x + log1p(exp(-x)))) F(r_bce_grad, x * ((1 - z) / (1 + exp(-y)) - z / (1 + exp(y))))
F(r_leaky_grad, y > 0 ? x : x * num[0]) F(r_inside_grad, y > num[0] && y < num[1] ? x : 0)
F(r_hardswish_grad, y <= -3 ? 0 : y < 3 ? x * (y / 3 + .5) : x) F(r_elu_grad, x * (y > 0 ? num[1] : num[0] * exp(y)))
F(r_softplus_grad, y * num[0] > num[1] ? x : x / (1 + exp(-y * num[0])))
F(r_gelu_grad, x * (0.5 * erfc(-y / sqrt(2)) + y * exp(-y * y / 2) / sqrt(2 * 3.14159265358979323846)))
F(r_lgamma, lgamma(x)) F(r_digamma, amp_digamma(x)) F(r_erfinv, amp_erfinv(x)) F(r_logaddexp, fmax(x, y) + log1p(exp(-fabs(x - y)))) F(r_glu, x / (1 + exp(-y)))
F(r_ndtri, amp_ndtri(x)) F(r_entr, x > 0 ? -x * log(x) : x < 0 ? -INFINITY : x)
F(r_mish, x * tanh(log1p(exp(x)))) F(r_selu, 1.0507009873554805 * (x < 0 ? 1.6732632423543772 * expm1(x) : x)) F(r_celu, x < 0 ? num[0] * expm1(x / num[0]) : x)
F(r_shrink_grad, fabs(y) > num[0] ? x : 0) F(r_nan_to_num, isnan(x) ? num[0] : isinf(x) ? x > 0 ? num[1] : num[2] : x) F(r_threshold, x <= num[0] ? num[1] : x)
F(r_where, x != 0 ? y : z) F(r_addcmul, x + num[0] * y * z) F(r_addcdiv, x + num[0] * (y / z)) F(r_lerp, x + z * (y - x))
F(r_squared_difference, (x - y) * (x - y)) F(r_mse_grad, (y - z) * num[0] * x)
F(r_inner, 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)) F(r_inner_slope, 2 * sqrt(2 / 3.14159265358979323846) * (1 + 3 * 0.044715 * x * x))
F(r_gelu_tanh, x / (1 + exp(-r_inner(x, 0, 0, NULL))))
F(r_gelu_tanh_grad, x * (1 + y * r_inner_slope(y, 0, 0, NULL) / (1 + exp(r_inner(y, 0, 0, NULL)))) / (1 + exp(-r_inner(y, 0, 0, NULL))))
    /* clang-format on */

    enum {
        EDGES = 1,
        TEST = 2,
        NUM_INT = 4,
        NO_F64_BOUND = 8,
        STEEP = 16, /* a rounded argument moves the result by many units */
        SINGLE = 32 /* the bound is that of float32 arithmetic: other types keep to .51 */
    };
typedef struct Case {
    int op, nin;
    Fn fn;
    double low, high, bound; /* arguments; units in the last place of float32 */
    double num[3];
    int nnum, flags;
} Case;
/* clang-format off */
static const Case cases[] = {
    {OP_abs, 1, r_abs, -9, 9, 0, {0}, 0, EDGES}, {OP_neg, 1, r_neg, -9, 9, 0, {0}, 0, EDGES}, {OP_square, 1, r_square, -9, 9, .51, {0}, 0, EDGES},
    {OP_exp, 1, r_exp, -110, 95, .51, {0}, 0, EDGES}, {OP_exp2, 1, r_exp2, -150, 129, 1.3, {0}, 0, EDGES | SINGLE}, {OP_expm1, 1, r_expm1, -2, 2, .51, {0}, 0, EDGES},
    {OP_log, 1, r_log, -.1, 30, .51, {0}, 0, EDGES}, {OP_log2, 1, r_log2, -.1, 30, .51, {0}, 0, EDGES}, {OP_log10, 1, r_log10, -.1, 30, .51, {0}, 0, EDGES},
    {OP_log1p, 1, r_log1p, -1.1, 3, .51, {0}, 0, EDGES}, {OP_sqrt, 1, r_sqrt, -.1, 30, .51, {0}, 0, EDGES}, {OP_rsqrt, 1, r_rsqrt, .001, 30, 1.6, {0}, 0, EDGES},
    {OP_reciprocal, 1, r_reciprocal, -9, 9, .51, {0}, 0, EDGES}, {OP_sin, 1, r_sin, -9, 9, .51, {0}, 0, EDGES}, {OP_cos, 1, r_cos, -9, 9, .51, {0}, 0, EDGES},
    {OP_tan, 1, r_tan, -1.5, 1.5, .51, {0}, 0, EDGES}, {OP_asin, 1, r_asin, -1, 1, .51, {0}, 0, EDGES}, {OP_acos, 1, r_acos, -1, 1, .51, {0}, 0, EDGES},
    {OP_atan, 1, r_atan, -9, 9, .51, {0}, 0, EDGES}, {OP_sinh, 1, r_sinh, -9, 9, .51, {0}, 0, EDGES}, {OP_cosh, 1, r_cosh, -9, 9, .51, {0}, 0, EDGES},
    {OP_tanh, 1, r_tanh, -12, 12, .51, {0}, 0, EDGES}, {OP_asinh, 1, r_asinh, -9, 9, .51, {0}, 0, EDGES}, {OP_acosh, 1, r_acosh, 1, 9, .51, {0}, 0, EDGES},
    {OP_atanh, 1, r_atanh, -1, 1, .51, {0}, 0, EDGES}, {OP_sigmoid, 1, r_sigmoid, -90, 90, 4, {0}, 0, EDGES | SINGLE}, {OP_erf, 1, r_erf, -5, 5, 1.5, {0}, 0, EDGES | SINGLE},
    {OP_erfc, 1, r_erfc, -5, 11, .51, {0}, 0, EDGES}, {OP_floor, 1, r_floor, -9, 9, 0, {0}, 0, EDGES}, {OP_ceil, 1, r_ceil, -9, 9, 0, {0}, 0, EDGES},
    {OP_round, 1, r_round, -9, 9, 0, {0}, 0, EDGES}, {OP_trunc, 1, r_trunc, -9, 9, 0, {0}, 0, EDGES}, {OP_frac, 1, r_frac, -9, 9, 0, {0}, 0, EDGES},
    {OP_sign, 1, r_sign, -9, 9, 0, {0}, 0, EDGES}, {OP_relu, 1, r_relu, -9, 9, 0, {0}, 0, EDGES}, {OP_gelu, 1, r_gelu, -6, 9, 7.5, {0}, 0, EDGES | STEEP | SINGLE},
    {OP_gelu, 1, r_gelu_tanh, -6, 9, 4, {1}, 1, NUM_INT | STEEP | SINGLE}, {OP_silu, 1, r_silu, -90, 9, 4, {0}, 0, EDGES | SINGLE}, {OP_leaky_relu, 1, r_leaky, -9, 9, .51, {.25}, 1, EDGES},
    {OP_elu, 1, r_elu, -9, 9, .51, {1.5}, 1, EDGES}, {OP_logsigmoid, 1, r_logsigmoid, -30, 30, .51, {0}, 0, 0}, {OP_softplus, 1, r_softplus, -30, 30, .51, {1, 20}, 2, 0},
    {OP_clamp, 1, r_clamp, -9, 9, 0, {-2, 3}, 2, EDGES}, {OP_isnan, 1, r_isnan, -1, 1, 0, {0}, 0, EDGES | TEST}, {OP_isinf, 1, r_isinf, -1, 1, 0, {0}, 0, EDGES | TEST},
    {OP_isfinite, 1, r_isfinite, -1, 1, 0, {0}, 0, EDGES | TEST}, {OP_signbit, 1, r_signbit, -1, 1, 0, {0}, 0, EDGES | TEST}, {OP_logical_not, 1, r_not, -1, 1, 0, {0}, 0, EDGES | TEST},
    {OP_add, 2, r_add, -9, 9, .51, {1}, 1, EDGES}, {OP_sub, 2, r_sub, -9, 9, .51, {1}, 1, EDGES}, {OP_add, 2, r_add, 1, 9, 1.1, {.375}, 1, 0},
    {OP_rsub, 2, r_rsub, -9, 9, .51, {1}, 1, 0}, {OP_mul, 2, r_mul, -9, 9, .51, {0}, 0, EDGES}, {OP_div, 2, r_div, -9, 9, .51, {0}, 0, EDGES},
    {OP_remainder, 2, r_remainder, -9, 9, .51, {0}, 0, 0}, {OP_fmod, 2, r_fmod, -9, 9, .51, {0}, 0, EDGES}, {OP_pow, 2, r_pow, .1, 5, .51, {0}, 0, 0}, {OP_pow, 2, r_pow, -4, 4, .51, {0}, 0, EDGES},
    {OP_atan2, 2, r_atan2, -9, 9, 1.5, {0}, 0, EDGES}, {OP_atan2, 2, r_atan2, -9, 9, .51, {0}, 0, 0}, {OP_hypot, 2, r_hypot, -9, 9, .51, {0}, 0, EDGES}, {OP_maximum, 2, r_maximum, -9, 9, 0, {0}, 0, EDGES},
    {OP_minimum, 2, r_minimum, -9, 9, 0, {0}, 0, EDGES}, {OP_fmax, 2, r_fmax, -9, 9, 0, {0}, 0, EDGES}, {OP_fmin, 2, r_fmin, -9, 9, 0, {0}, 0, EDGES},
    {OP_copysign, 2, r_copysign, -9, 9, 0, {0}, 0, EDGES}, {OP_eq, 2, r_eq, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_ne, 2, r_ne, -2, 2, 0, {0}, 0, EDGES | TEST},
    {OP_lt, 2, r_lt, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_le, 2, r_le, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_gt, 2, r_gt, -2, 2, 0, {0}, 0, EDGES | TEST},
    {OP_ge, 2, r_ge, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_logical_and, 2, r_and, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_logical_or, 2, r_or, -2, 2, 0, {0}, 0, EDGES | TEST},
    {OP_logical_xor, 2, r_xor, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_relu_grad, 2, r_relu_grad, -2, 2, 0, {0}, 0, 0}, {OP_tanh_grad, 2, r_tanh_grad, -.9, .9, 5, {0}, 0, 0},
    {OP_sigmoid_grad, 2, r_sigmoid_grad, .1, .9, 4, {0}, 0, 0}, {OP_gelu_grad, 2, r_gelu_grad, .2, 4, 6, {0}, 1, NUM_INT | SINGLE}, {OP_gelu_grad, 2, r_gelu_tanh_grad, .2, 4, 4, {1}, 1, NUM_INT | SINGLE}, {OP_div_trunc, 2, r_div_trunc, -9, 9, .51, {0}, 0, NO_F64_BOUND},
    {OP_floor_divide, 2, r_floor_divide, -9, 9, .51, {0}, 0, 0},
    {OP_sin, 1, r_sin, -99999, 99999, .51, {0}, 0, 0}, {OP_cos, 1, r_cos, -99999, 99999, .51, {0}, 0, 0}, {OP_sin, 1, r_sin, -3e5, 3e5, 1.1, {0}, 0, EDGES},
    {OP_fmod, 2, r_fmod, -9e4, 9e4, 0, {0}, 0, 0}, {OP_huber_kernel, 1, r_huber, -9, 9, 1.51, {2, .25, 1}, 3, 0}, {OP_huber_grad, 2, r_huber_grad, -9, 9, 1.1, {2, .25}, 2, 0},
    {OP_bce_logits_kernel, 2, r_bce, 0, 1, .51, {0}, 0, 0}, {OP_bce_logits_grad, 3, r_bce_grad, 3, 9, 12, {0}, 0, STEEP},
    {OP_leaky_relu_grad, 2, r_leaky_grad, -9, 9, .51, {.25}, 1, EDGES}, {OP_inside_grad, 2, r_inside_grad, -9, 9, 0, {-2, 2.5, 1}, 3, EDGES},
    {OP_hardswish_grad, 2, r_hardswish_grad, -1.2, 9, 16, {0}, 0, SINGLE | STEEP}, {OP_elu_grad, 2, r_elu_grad, -20, 9, 2.6, {1.5, 2, 1}, 3, SINGLE},
    {OP_softplus_grad, 2, r_softplus_grad, -30, 30, 6, {1, 20}, 2, SINGLE | STEEP},
    {OP_pow, 2, r_power, -9, 9, 0, {0}, 1, EDGES}, {OP_pow, 2, r_power, -9, 9, 0, {1}, 1, EDGES}, {OP_pow, 2, r_power, -9, 9, .51, {2}, 1, EDGES},
    {OP_pow, 2, r_power, -9, 9, 1.51, {3}, 1, 0}, {OP_pow, 2, r_power, -9, 9, .51, {-1}, 1, EDGES}, {OP_pow, 2, r_power, -9, 9, 1.51, {-2}, 1, 0},
    {OP_pow, 2, r_power, .01, 9, .51, {.5}, 1, 0}, {OP_pow, 2, r_power, .01, 9, 1.6, {-.5}, 1, 0}, {OP_pow, 2, r_power, .01, 9, 1, {1.5}, 1, 0},
    {OP_squared_difference, 2, r_squared_difference, 0, 9, 2.6, {0}, 0, STEEP}, {OP_mse_grad, 3, r_mse_grad, 1, 9, 2.1, {.375}, 1, STEEP},
    {OP_lgamma, 1, r_lgamma, .001, 40, .51, {0}, 0, 0}, {OP_lgamma, 1, r_lgamma, -9, 9, 1.1, {0}, 0, EDGES | STEEP}, {OP_digamma, 1, r_digamma, 2, 40, .51, {0}, 0, 0},
    {OP_erfinv, 1, r_erfinv, -1, 1, .51, {0}, 0, 0}, {OP_logaddexp, 2, r_logaddexp, -30, 30, .51, {0}, 0, STEEP}, {OP_glu, 2, r_glu, -9, 9, 5, {0}, 0, SINGLE},
    {OP_ndtri, 1, r_ndtri, 0, 1, .51, {0}, 0, STEEP}, {OP_entr, 1, r_entr, .001, 9, .51, {0}, 0, STEEP | EDGES},
    {OP_mish, 1, r_mish, -20, 9, .51, {0}, 0, STEEP}, {OP_selu, 1, r_selu, -9, 9, .51, {0}, 0, 0}, {OP_celu, 1, r_celu, -9, 9, .51, {1.5}, 1, 0},
    {OP_shrink_grad, 2, r_shrink_grad, -2, 2, 0, {.5}, 1, EDGES}, {OP_nan_to_num, 1, r_nan_to_num, -2, 2, 0, {7, 8, -8}, 3, EDGES}, {OP_threshold, 1, r_threshold, -2, 2, 0, {.25, .5}, 2, 0},
    {OP_addcmul, 3, r_addcmul, 1, 9, 1.6, {.5}, 1, 0}, {OP_addcdiv, 3, r_addcdiv, 1, 9, 1.6, {.5}, 1, 0}, {OP_lerp, 3, r_lerp, 0, 1, 3, {0}, 0, 0},
};
/* clang-format on */

static const double edges[] = {0.0, -0.0, 1,   -1,  (double)INFINITY, -(double)INFINITY, (double)NAN, 0x1p-140, 0x1p-20, -0x1p-20,
                               0.5, 2.5,  3.5, 1e30};
enum { NEDGES = sizeof edges / sizeof *edges };

static Status run_elementwise(const Case *c, Array *out, Array *in) {
    Call call = {.op = (uint16_t)c->op, .nin = (uint8_t)c->nin, .nout = 1, .nnum = (uint8_t)c->nnum, .out = {view(out)}};
    for (int v = 0; v < c->nin; v++) call.in[v] = view(&in[v]);
    for (int k = 0; k < c->nnum; k++) {
        call.num[k] = (Number){.f = c->num[k], .kind = NUMBER_FLOAT};
        if (c->flags & NUM_INT) call.num[k] = (Number){.f = c->num[k], .i = (int64_t)c->num[k], .kind = NUMBER_INT};
    }
    return c->nin == 1   ? amp_cpu_backend.unary(&call)
           : c->nin == 2 ? amp_cpu_backend.binary(&call)
                         : amp_cpu_backend.ternary(&call);
}

static void check_elementwise(const Case *c, int dtype, int ndim, const int64_t *shape, const Layout *layout, uint64_t *hash) {
    Array in[3], out = make(c->flags & TEST ? AMP_BOOL : dtype, ndim, shape, layout[3] == BROADCAST ? DENSE : layout[3]);
    for (int v = 0; v < c->nin; v++) {
        in[v] = make(dtype, ndim, shape, layout[v]);
        bool exponent = v == 1 && c->fn == r_power;
        fill_uniform(&in[v], exponent ? c->num[0] : c->low, exponent ? c->num[0] : c->high);
        if (c->flags & EDGES && !exponent)
            for (int64_t i = 0; i < in[v].v.numel; i += 3) set(&in[v], i, edges[draw() % NEDGES]);
    }
    CHECK(run_elementwise(c, &out, in) == AMP_OK, "op %d, %s", c->op, amp_dtype_info[dtype].name);
    double bound = dtype == AMP_FLOAT32   ? c->bound
                   : c->flags & SINGLE    ? dtype == AMP_FLOAT64 ? c->flags & STEEP ? 64 : 3.04 : .51
                   : dtype == AMP_FLOAT64 ? c->flags & STEEP ? 64 : c->bound * 4 + 1
                   : c->bound > .51       ? .51 + .51 * c->bound / 8
                                          : c->bound;
    for (int64_t i = 0; i < out.v.numel; i++) {
        double x[3] = {0};
        for (int v = 0; v < c->nin; v++) x[v] = get(&in[v], i);
        double want = c->fn(x[0], x[1], x[2], c->num), got = get(&out, i);
        if (c->flags & TEST) CHECK(got == want, "op %d (%g, %g): %g", c->op, x[0], x[1], got);
        else if (!(dtype == AMP_FLOAT64 && c->flags & NO_F64_BOUND))
            CHECK(near_value(dtype, got, want, bound), "op %d %s (%a, %a, %a): %a, not %a", c->op, amp_dtype_info[dtype].name,
                  x[0], x[1], x[2], got, want);
        uint64_t bits;
        memcpy(&bits, &got, 8);
        *hash = *hash * 6364136223846793005u + (got != got ? 1 : bits);
    }
    for (int v = 0; v < c->nin; v++) free(in[v].memory);
    free(out.memory);
}

static uint64_t test_elementwise(void) {
    uint64_t hash = 1;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int f = 0; f < 4; f++) {
            for (int64_t n = 0; n < 68; n += n < 20 ? 1 : 7) {
                Layout layout[4] = {(Layout)(draw() % LAYOUTS), (Layout)(draw() % LAYOUTS), (Layout)(draw() % LAYOUTS),
                                    (Layout)(draw() % LAYOUTS)};
                check_elementwise(&cases[k], floats[f], 1, &n, layout, &hash);
            }
            int64_t shape[3] = {3, 5, 7}, large[2] = {3, 700};
            Layout mixed[4] = {DENSE, TRANSPOSED, REVERSED, TRANSPOSED}, dense[4] = {DENSE, DENSE, DENSE, DENSE},
                   other[4] = {MISALIGNED, BROADCAST, SPACED, MISALIGNED};
            check_elementwise(&cases[k], floats[f], 3, shape, mixed, &hash);
            check_elementwise(&cases[k], floats[f], 2, large, dense, &hash);
            check_elementwise(&cases[k], floats[f], 2, large, other, &hash);
        }
    return hash;
}

/* In place, a float32 scalar beside 16 bits, where, masked_fill, fill, integers, bool. */
static void test_elementwise_rest(void) {
    int64_t n = 100;
    Array a = make(AMP_BFLOAT16, 1, &n, DENSE), s = make(AMP_FLOAT32, 1, &n, BROADCAST), out = make(AMP_BFLOAT16, 1, &n, DENSE);
    fill_uniform(&a, 1, 2);
    set(&s, 0, 0.1);
    Case add = {.op = OP_add, .nin = 2, .num = {1}, .nnum = 1};
    Array in[2] = {a, s};
    CHECK(run_elementwise(&add, &out, in) == AMP_OK, "add");
    for (int64_t i = 0; i < n; i++)
        CHECK(get(&out, i) == (double)amp_bf16_to_f32(amp_f32_to_bf16((float)get(&a, i) + 0.1f)), "scalar was rounded first");
    double before[100];
    for (int64_t i = 0; i < n; i++) before[i] = get(&a, i);
    Case mul = {.op = OP_mul, .nin = 2};
    Array same[2] = {a, a};
    CHECK(run_elementwise(&mul, &a, same) == AMP_OK, "mul");
    for (int64_t i = 0; i < n; i++) CHECK(near_value(AMP_BFLOAT16, get(&a, i), before[i] * before[i], .51), "in place");
    Array mask = make(AMP_BOOL, 1, &n, DENSE);
    for (int64_t i = 0; i < n; i++) set(&mask, i, (double)(draw() & 1));
    Call call = {.op = OP_where, .nin = 3, .nout = 1, .in = {view(&mask), view(&a), view(&s)}, .out = {view(&out)}};
    CHECK(amp_cpu_backend.ternary(&call) == AMP_OK, "where");
    for (int64_t i = 0; i < n; i++) CHECK(near_value(AMP_BFLOAT16, get(&out, i), get(&mask, i) ? get(&a, i) : 0.1, .51), "where");
    Call fill = {.op = OP_fill, .nout = 1, .nnum = 1, .out = {view(&out)}, .num = {{.f = 3, .i = 3, .kind = NUMBER_INT}}};
    CHECK(amp_cpu_backend.fill(&fill) == AMP_OK, "fill");
    for (int64_t i = 0; i < n; i++) CHECK(get(&out, i) == 3, "fill");
    free(a.memory), free(s.memory), free(out.memory), free(mask.memory);

    static const int ints[] = {AMP_UINT8, AMP_INT8, AMP_INT16, AMP_INT32, AMP_INT64};
    for (int t = 0; t < 5; t++) {
        Array x[2] = {make(ints[t], 1, &n, SPACED), make(ints[t], 1, &n, DENSE)}, r = make(ints[t], 1, &n, REVERSED);
        for (int64_t i = 0; i < n; i++)
            set(&x[0], i, floor(uniform(ints[t] ? -120 : 0, 120))), set(&x[1], i,
                                                                        floor(uniform(1, 9)) * (ints[t] == AMP_UINT8 ? 1
                                                                                                : draw() & 1         ? 1
                                                                                                                     : -1));
        static const int ops[] = {OP_add, OP_mul, OP_floor_divide, OP_remainder, OP_fmod, OP_maximum};
        for (int k = 0; k < 6; k++) {
            Case c = {.op = ops[k], .nin = 2};
            CHECK(run_elementwise(&c, &r, x) == AMP_OK, "integer op");
            for (int64_t i = 0; i < n; i++) {
                int64_t p = get_int(&x[0], i), q = get_int(&x[1], i), floor_q = (int64_t)floor((double)p / (double)q);
                int64_t want[] = {p + q, p * q, floor_q, p - q * floor_q, p % q, p > q ? p : q};
                double w;
                char cut[8];
                amp_convert(AMP_INT64, (char *)&want[k], 0, ints[t], cut, 0, 1);
                amp_convert(ints[t], cut, 0, AMP_FLOAT64, (char *)&w, 0, 1);
                CHECK(get(&r, i) == w, "%s op %d (%lld, %lld): %g, not %g", amp_dtype_info[ints[t]].name, ops[k], (long long)p,
                      (long long)q, get(&r, i), w);
            }
        }
        set(&x[1], n / 2, 0);
        Case c = {.op = OP_remainder, .nin = 2};
        CHECK(run_elementwise(&c, &r, x) == AMP_ZERO_DIVISION, "zero divisor");
        free(x[0].memory), free(x[1].memory), free(r.memory);
    }
}

/* A choice only moves bits: every size of element, every combination of one-value operands, lengths around the block of the loop. */
static void test_where(void) {
    static const int type[] = {AMP_UINT8, AMP_BFLOAT16, AMP_FLOAT32, AMP_FLOAT64, AMP_COMPLEX128};
    static const int64_t length[] = {2, 31, 255, 256, 257, 600};
    for (int t = 0; t < 5; t++)
        for (int k = 0; k < 6; k++)
            for (int one = 0; one < 8; one++) {
                Array in[3], out = make(type[t], 1, &length[k], DENSE);
                for (int v = 0; v < 3; v++) in[v] = make(v ? type[t] : AMP_BOOL, 1, &length[k], one >> v & 1 ? BROADCAST : DENSE);
                for (int64_t i = 0; i < length[k]; i++) {
                    set(&in[0], i, (double)(draw() & 1));
                    for (int v = 1; v < 3; v++) set(&in[v], i, (double)(draw() % 200));
                }
                Call call = {.op = OP_where, .nin = 3, .nout = 1, .out = {view(&out)}};
                for (int v = 0; v < 3; v++) call.in[v] = view(&in[v]);
                CHECK(amp_cpu_backend.ternary(&call) == AMP_OK, "where");
                for (int64_t i = 0; i < length[k]; i++)
                    CHECK(get(&out, i) == get(&in[get(&in[0], i) != 0 ? 1 : 2], i), "where of %s, %lld elements, one value: %d",
                          amp_dtype_info[type[t]].name, (long long)length[k], one);
                for (int v = 0; v < 3; v++) free(in[v].memory);
                free(out.memory);
            }
}

static uint64_t group(int k) {
    if (k == 0) return test_elementwise();
    test_special_conversions();
    test_halves(AMP_FLOAT16, 5, 10);
    test_halves(AMP_BFLOAT16, 8, 7);
    test_narrowing_bits();
    test_streams();
    test_elementwise_rest();
    test_where();
    return 0;
}

int main(void) { return run_levels(2, group); }
