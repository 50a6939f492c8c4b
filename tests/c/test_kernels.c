/* The CPU kernels against scalar references in float64, without Python.
 *
 * Every op runs at every instruction-set level that the machine has, on lengths 0..67 and long ones, dense, strided, reversed,
 * broadcast and misaligned. Values must be within a stated bound of the reference; levels must agree to the bit.
 *
 *     cc -std=c11 -g -O1 -fsanitize=address,undefined -ffp-contract=off tests/c/test_kernels.c csrc/core/(asterisk).c csrc/cpu/(asterisk).c -lm -lpthread */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../csrc/core/backend.h"
#include "../../csrc/core/numeric.h"
#include "../../csrc/core/ops.h"
#include "../../csrc/cpu/cast.h"

static int failures, checks;
#define CHECK(condition, ...)                                  \
    do {                                                       \
        checks++;                                              \
        static int shown;                                      \
        if (!(condition) && (failures++, shown++ < 4)) {       \
            printf("%s:%d [%s] %s: ", __FILE__, __LINE__, amp_isa_name(amp_isa()), #condition); \
            printf(__VA_ARGS__);                               \
            printf("\n");                                      \
        }                                                      \
    } while (0)

static uint64_t seed = 88172645463325252u;
static uint64_t draw(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}
static double uniform(double low, double high) { return low + (high - low) * (double)(draw() >> 11) * 0x1p-53; }

/* ---- tensors ---- */

typedef enum Layout { DENSE, MISALIGNED, SPACED, REVERSED, TRANSPOSED, BROADCAST, LAYOUTS } Layout;
typedef struct Array {
    View v;
    int64_t shape[4], stride[4];
    char *memory;
} Array;

static Array make(int dtype, int ndim, const int64_t *shape, Layout layout) {
    Array a = {.memory = NULL};
    int64_t item = (int64_t)amp_itemsize(dtype), n = 1, step = layout == SPACED ? 3 : 1;
    for (int d = 0; d < ndim; d++) a.shape[d] = shape[d], n *= shape[d];
    for (int i = 0; i < ndim; i++) {
        int d = layout == TRANSPOSED ? i : ndim - 1 - i;
        a.stride[d] = layout == BROADCAST ? 0 : step;
        step *= shape[d] ? shape[d] : 1;
    }
    a.memory = calloc((size_t)(n * 3 + 2), (size_t)item);
    a.v.data = a.memory + (layout == MISALIGNED);
    if (layout == REVERSED && ndim && n) {
        a.v.data += (shape[ndim - 1] - 1) * a.stride[ndim - 1] * item;
        a.stride[ndim - 1] = -a.stride[ndim - 1];
    }
    a.v.numel = n;
    a.v.ndim = (int8_t)ndim;
    a.v.dtype = (int8_t)dtype;
    return a;
}
static View *view(Array *a) {
    a->v.shape = a->shape;
    a->v.stride = a->stride;
    a->v.layout = amp_is_contiguous(a->v.ndim, a->shape, a->stride) ? LAYOUT_CONTIGUOUS : 0;
    return &a->v;
}
static char *element(const Array *a, int64_t i) {
    char *p = a->v.data;
    for (int d = a->v.ndim - 1; d >= 0; d--) {
        p += i % a->shape[d] * a->stride[d] * (int64_t)amp_itemsize(a->v.dtype);
        i /= a->shape[d];
    }
    return p;
}
static double get(const Array *a, int64_t i) {
    double v[2];
    amp_convert(a->v.dtype, element(a, i), 0, AMP_FLOAT64, (char *)v, 0, 1);
    return v[0];
}
static int64_t get_int(const Array *a, int64_t i) {
    int64_t v;
    amp_convert(a->v.dtype, element(a, i), 0, AMP_INT64, (char *)&v, 0, 1);
    return v;
}
static void set(Array *a, int64_t i, double x) { amp_convert(AMP_FLOAT64, (char *)&x, 0, a->v.dtype, element(a, i), 0, 1); }
static void fill_uniform(Array *a, double low, double high) {
    for (int64_t i = 0; i < a->v.numel; i++) set(a, i, uniform(low, high));
}

/* Size of the last mantissa bit of `x` in a format. */
static double ulp(int dtype, double x) {
    int bits = dtype == AMP_FLOAT16 ? 10 : dtype == AMP_BFLOAT16 ? 7 : dtype == AMP_FLOAT32 ? 23 : dtype == AMP_FLOAT64 ? 52 : dtype == AMP_FLOAT8_E5M2 ? 2 : 3;
    int least = dtype == AMP_FLOAT16 ? -14 : dtype == AMP_FLOAT64 ? -1022 : dtype == AMP_FLOAT8_E5M2 ? -14 : dtype == AMP_FLOAT8_E4M3FN ? -6 : -126;
    int e = x == 0 || !isfinite(x) ? least : ilogb(x);
    return ldexp(1, (e < least ? least : e) - bits);
}
static bool near_value(int dtype, double got, double want, double bound) {
    if (isnan(want)) return isnan(got);
    if (got == want) return true;
    double edge = dtype == AMP_FLOAT16 ? 65504 : dtype == AMP_BFLOAT16 || dtype == AMP_FLOAT32 ? 0x1.fep127 : 1e308;
    if (isinf(got) && fabs(want) >= edge * 0.999 && (got > 0) == (want > 0)) return true;
    return fabs(got - want) <= bound * ulp(dtype, want);
}

static const char *const levels[] = {"baseline", "avx2", "avx512", "amx"};
static const int floats[] = {AMP_FLOAT16, AMP_BFLOAT16, AMP_FLOAT32, AMP_FLOAT64};

/* ---- conversions ---- */

static double widen_reference(int h, int E, int M) {
    int e = (h >> M) & ((1 << E) - 1), m = h & ((1 << M) - 1), bias = (1 << (E - 1)) - 1;
    double v = e == (1 << E) - 1 ? (m ? (double)NAN : (double)INFINITY) : e ? ldexp(1 + ldexp(m, -M), e - bias) : ldexp(m, 1 - bias - M);
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
        CHECK(isnan(want) ? isnan(wide[i]) && !!signbit(wide[i]) == (i >> 15) : (double)wide[i] == want && !!signbit(wide[i]) == (i >> 15), "pattern %x", i);
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
        for (int i = 0; i < n; i++) CHECK(out[i] == amp_f32_to_f16(in[i]), "f16 of %a: %x, not %x", (double)in[i], out[i], amp_f32_to_f16(in[i]));
        amp_convert(AMP_FLOAT32, (char *)in, 4, AMP_BFLOAT16, (char *)out, 2, n);
        for (int i = 0; i < n; i++) CHECK(out[i] == amp_f32_to_bf16(in[i]), "bf16 of %a: %x", (double)in[i], out[i]);
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
                CHECK(got == (a == AMP_BOOL || b == AMP_BOOL ? x != 0 : x), "%d from %s to %s: %g", x, amp_dtype_info[a].name, amp_dtype_info[b].name, got);
            }
}

/* ---- element-wise ---- */

typedef double (*Fn)(double, double, double, const double *num);
#define F(name, expr)                                                        \
    static double name(double x, double y, double z, const double *num) {    \
        (void)x, (void)y, (void)z, (void)num;                                \
        return expr;                                                         \
    }
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
F(r_pow, pow(x, y)) F(r_atan2, atan2(x, y)) F(r_hypot, hypot(x, y)) F(r_fmax, fmax(x, y)) F(r_fmin, fmin(x, y)) F(r_copysign, copysign(x, y))
F(r_maximum, isnan(x) || isnan(y) ? NAN : fmax(x, y)) F(r_minimum, isnan(x) || isnan(y) ? NAN : fmin(x, y))
F(r_eq, x == y) F(r_ne, x != y) F(r_lt, x < y) F(r_le, x <= y) F(r_gt, x > y) F(r_ge, x >= y)
F(r_and, x != 0 && y != 0) F(r_or, x != 0 || y != 0) F(r_xor, (x != 0) != (y != 0))
F(r_relu_grad, y > 0 ? x : 0) F(r_tanh_grad, x * (1 - y * y)) F(r_sigmoid_grad, x * y * (1 - y))
F(r_gelu_grad, x * (0.5 * erfc(-y / sqrt(2)) + y * exp(-y * y / 2) / sqrt(2 * 3.14159265358979323846)))
F(r_where, x != 0 ? y : z) F(r_masked, y != 0 ? z : x) F(r_addcmul, x + num[0] * y * z) F(r_addcdiv, x + num[0] * (y / z)) F(r_lerp, x + z * (y - x))
F(r_gelu_tanh, 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))))

enum { EDGES = 1, TEST = 2, NUM_INT = 4, NO_F64_BOUND = 8, STEEP = 16 /* a rounded argument moves the result by many units */ };
typedef struct Case {
    int op, nin;
    Fn fn;
    double low, high, bound; /* arguments; units in the last place of float32 */
    double num[2];
    int nnum, flags;
} Case;
static const Case cases[] = {
    {OP_abs, 1, r_abs, -9, 9, 0, {0}, 0, EDGES}, {OP_neg, 1, r_neg, -9, 9, 0, {0}, 0, EDGES}, {OP_square, 1, r_square, -9, 9, .51, {0}, 0, EDGES},
    {OP_exp, 1, r_exp, -110, 95, .51, {0}, 0, EDGES}, {OP_exp2, 1, r_exp2, -150, 129, .51, {0}, 0, EDGES}, {OP_expm1, 1, r_expm1, -2, 2, .51, {0}, 0, EDGES},
    {OP_log, 1, r_log, -.1, 30, .51, {0}, 0, EDGES}, {OP_log2, 1, r_log2, -.1, 30, .51, {0}, 0, EDGES}, {OP_log10, 1, r_log10, -.1, 30, .51, {0}, 0, EDGES},
    {OP_log1p, 1, r_log1p, -1.1, 3, .51, {0}, 0, EDGES}, {OP_sqrt, 1, r_sqrt, -.1, 30, .51, {0}, 0, EDGES}, {OP_rsqrt, 1, r_rsqrt, .001, 30, 1.6, {0}, 0, EDGES},
    {OP_reciprocal, 1, r_reciprocal, -9, 9, .51, {0}, 0, EDGES}, {OP_sin, 1, r_sin, -9, 9, 1.1, {0}, 0, EDGES}, {OP_cos, 1, r_cos, -9, 9, 1.1, {0}, 0, EDGES},
    {OP_tan, 1, r_tan, -1.5, 1.5, 1.5, {0}, 0, EDGES}, {OP_asin, 1, r_asin, -1, 1, 1.5, {0}, 0, EDGES}, {OP_acos, 1, r_acos, -1, 1, 1.5, {0}, 0, EDGES},
    {OP_atan, 1, r_atan, -9, 9, 1.5, {0}, 0, EDGES}, {OP_sinh, 1, r_sinh, -9, 9, 2, {0}, 0, EDGES}, {OP_cosh, 1, r_cosh, -9, 9, 2, {0}, 0, EDGES},
    {OP_tanh, 1, r_tanh, -12, 12, .51, {0}, 0, EDGES}, {OP_asinh, 1, r_asinh, -9, 9, 2, {0}, 0, EDGES}, {OP_acosh, 1, r_acosh, 1, 9, 2, {0}, 0, EDGES},
    {OP_atanh, 1, r_atanh, -1, 1, 2, {0}, 0, EDGES}, {OP_sigmoid, 1, r_sigmoid, -90, 90, .51, {0}, 0, EDGES}, {OP_erf, 1, r_erf, -5, 5, .51, {0}, 0, EDGES},
    {OP_erfc, 1, r_erfc, -5, 11, .51, {0}, 0, EDGES}, {OP_floor, 1, r_floor, -9, 9, 0, {0}, 0, EDGES}, {OP_ceil, 1, r_ceil, -9, 9, 0, {0}, 0, EDGES},
    {OP_round, 1, r_round, -9, 9, 0, {0}, 0, EDGES}, {OP_trunc, 1, r_trunc, -9, 9, 0, {0}, 0, EDGES}, {OP_frac, 1, r_frac, -9, 9, 0, {0}, 0, EDGES},
    {OP_sign, 1, r_sign, -9, 9, 0, {0}, 0, EDGES}, {OP_relu, 1, r_relu, -9, 9, 0, {0}, 0, EDGES}, {OP_gelu, 1, r_gelu, -6, 9, .51, {0}, 0, EDGES | STEEP},
    {OP_gelu, 1, r_gelu_tanh, -1, 9, .51, {1}, 1, NUM_INT}, {OP_silu, 1, r_silu, -90, 9, .51, {0}, 0, EDGES}, {OP_leaky_relu, 1, r_leaky, -9, 9, .51, {.25}, 1, EDGES},
    {OP_elu, 1, r_elu, -9, 9, .51, {1.5}, 1, EDGES}, {OP_logsigmoid, 1, r_logsigmoid, -30, 30, .51, {0}, 0, 0}, {OP_softplus, 1, r_softplus, -30, 30, .51, {1, 20}, 2, 0},
    {OP_clamp, 1, r_clamp, -9, 9, 0, {-2, 3}, 2, EDGES}, {OP_isnan, 1, r_isnan, -1, 1, 0, {0}, 0, EDGES | TEST}, {OP_isinf, 1, r_isinf, -1, 1, 0, {0}, 0, EDGES | TEST},
    {OP_isfinite, 1, r_isfinite, -1, 1, 0, {0}, 0, EDGES | TEST}, {OP_signbit, 1, r_signbit, -1, 1, 0, {0}, 0, EDGES | TEST}, {OP_logical_not, 1, r_not, -1, 1, 0, {0}, 0, EDGES | TEST},
    {OP_add, 2, r_add, -9, 9, .51, {1}, 1, EDGES}, {OP_sub, 2, r_sub, -9, 9, .51, {1}, 1, EDGES}, {OP_add, 2, r_add, 1, 9, 1.1, {.375}, 1, 0},
    {OP_rsub, 2, r_rsub, -9, 9, .51, {1}, 1, 0}, {OP_mul, 2, r_mul, -9, 9, .51, {0}, 0, EDGES}, {OP_div, 2, r_div, -9, 9, .51, {0}, 0, EDGES},
    {OP_remainder, 2, r_remainder, -9, 9, .51, {0}, 0, 0}, {OP_fmod, 2, r_fmod, -9, 9, .51, {0}, 0, EDGES}, {OP_pow, 2, r_pow, .1, 5, 1, {0}, 0, 0},
    {OP_atan2, 2, r_atan2, -9, 9, 1.5, {0}, 0, EDGES}, {OP_hypot, 2, r_hypot, -9, 9, 1.1, {0}, 0, EDGES}, {OP_maximum, 2, r_maximum, -9, 9, 0, {0}, 0, EDGES},
    {OP_minimum, 2, r_minimum, -9, 9, 0, {0}, 0, EDGES}, {OP_fmax, 2, r_fmax, -9, 9, 0, {0}, 0, EDGES}, {OP_fmin, 2, r_fmin, -9, 9, 0, {0}, 0, EDGES},
    {OP_copysign, 2, r_copysign, -9, 9, 0, {0}, 0, EDGES}, {OP_eq, 2, r_eq, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_ne, 2, r_ne, -2, 2, 0, {0}, 0, EDGES | TEST},
    {OP_lt, 2, r_lt, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_le, 2, r_le, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_gt, 2, r_gt, -2, 2, 0, {0}, 0, EDGES | TEST},
    {OP_ge, 2, r_ge, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_logical_and, 2, r_and, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_logical_or, 2, r_or, -2, 2, 0, {0}, 0, EDGES | TEST},
    {OP_logical_xor, 2, r_xor, -2, 2, 0, {0}, 0, EDGES | TEST}, {OP_relu_grad, 2, r_relu_grad, -2, 2, 0, {0}, 0, 0}, {OP_tanh_grad, 2, r_tanh_grad, -.9, .9, 5, {0}, 0, 0},
    {OP_sigmoid_grad, 2, r_sigmoid_grad, .1, .9, 4, {0}, 0, 0}, {OP_gelu_grad, 2, r_gelu_grad, .2, 4, .51, {0}, 1, NUM_INT}, {OP_div_trunc, 2, r_div_trunc, -9, 9, .51, {0}, 0, NO_F64_BOUND},
    {OP_floor_divide, 2, r_floor_divide, -9, 9, .51, {0}, 0, 0},
    {OP_addcmul, 3, r_addcmul, 1, 9, 1.6, {.5}, 1, 0}, {OP_addcdiv, 3, r_addcdiv, 1, 9, 1.6, {.5}, 1, 0}, {OP_lerp, 3, r_lerp, 0, 1, 3, {0}, 0, 0},
};

static const double edges[] = {0.0, -0.0, 1, -1, (double)INFINITY, -(double)INFINITY, (double)NAN, 0x1p-140, 0x1p-20, -0x1p-20, 0.5, 2.5, 3.5, 1e30};
enum { NEDGES = sizeof edges / sizeof *edges };

static Status run_elementwise(const Case *c, Array *out, Array *in) {
    Call call = {.op = (uint16_t)c->op, .nin = (uint8_t)c->nin, .nout = 1, .nnum = (uint8_t)c->nnum, .out = {view(out)}};
    for (int v = 0; v < c->nin; v++) call.in[v] = view(&in[v]);
    for (int k = 0; k < c->nnum; k++) {
        call.num[k] = (Number){.f = c->num[k], .kind = NUMBER_FLOAT};
        if (c->flags & NUM_INT) call.num[k] = (Number){.f = c->num[k], .i = (int64_t)c->num[k], .kind = NUMBER_INT};
    }
    return c->nin == 1 ? amp_cpu_backend.unary(&call) : c->nin == 2 ? amp_cpu_backend.binary(&call) : amp_cpu_backend.ternary(&call);
}

static void check_elementwise(const Case *c, int dtype, int ndim, const int64_t *shape, const Layout *layout, uint64_t *hash) {
    Array in[3], out = make(c->flags & TEST ? AMP_BOOL : dtype, ndim, shape, layout[3] == BROADCAST ? DENSE : layout[3]);
    for (int v = 0; v < c->nin; v++) {
        in[v] = make(dtype, ndim, shape, layout[v]);
        fill_uniform(&in[v], c->low, c->high);
        if (c->flags & EDGES)
            for (int64_t i = 0; i < in[v].v.numel; i += 3) set(&in[v], i, edges[draw() % NEDGES]);
    }
    CHECK(run_elementwise(c, &out, in) == AMP_OK, "op %d, %s", c->op, amp_dtype_info[dtype].name);
    double bound = dtype == AMP_FLOAT32 ? c->bound : dtype == AMP_FLOAT64 ? c->flags & STEEP ? 64 : c->bound * 4 + 1 : c->bound > .51 ? .51 + .51 * c->bound / 8 : c->bound;
    for (int64_t i = 0; i < out.v.numel; i++) {
        double x[3] = {0};
        for (int v = 0; v < c->nin; v++) x[v] = get(&in[v], i);
        double want = c->fn(x[0], x[1], x[2], c->num), got = get(&out, i);
        if (c->flags & TEST) CHECK(got == want, "op %d (%g, %g): %g", c->op, x[0], x[1], got);
        else if (!(dtype == AMP_FLOAT64 && c->flags & NO_F64_BOUND))
            CHECK(near_value(dtype, got, want, bound), "op %d %s (%a, %a, %a): %a, not %a", c->op, amp_dtype_info[dtype].name, x[0], x[1], x[2], got, want);
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
                Layout layout[4] = {(Layout)(draw() % LAYOUTS), (Layout)(draw() % LAYOUTS), (Layout)(draw() % LAYOUTS), (Layout)(draw() % LAYOUTS)};
                check_elementwise(&cases[k], floats[f], 1, &n, layout, &hash);
            }
            int64_t shape[3] = {3, 5, 7}, large[2] = {3, 700};
            Layout mixed[4] = {DENSE, TRANSPOSED, REVERSED, TRANSPOSED}, dense[4] = {DENSE, DENSE, DENSE, DENSE}, other[4] = {MISALIGNED, BROADCAST, SPACED, MISALIGNED};
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
    for (int64_t i = 0; i < n; i++) CHECK(get(&out, i) == (double)amp_bf16_to_f32(amp_f32_to_bf16((float)get(&a, i) + 0.1f)), "scalar was rounded first");
    double before[100];
    for (int64_t i = 0; i < n; i++) before[i] = get(&a, i);
    Case mul = {.op = OP_mul, .nin = 2};
    Array same[2] = {a, a};
    CHECK(run_elementwise(&mul, &a, same) == AMP_OK, "mul");
    for (int64_t i = 0; i < n; i++) CHECK(near_value(AMP_BFLOAT16, get(&a, i), before[i] * before[i], .51), "in place");
    Array mask = make(AMP_BOOL, 1, &n, DENSE);
    for (int64_t i = 0; i < n; i++) set(&mask, i, draw() & 1);
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
        for (int64_t i = 0; i < n; i++) set(&x[0], i, floor(uniform(ints[t] ? -120 : 0, 120))), set(&x[1], i, floor(uniform(1, 9)) * (ints[t] == AMP_UINT8 ? 1 : draw() & 1 ? 1 : -1));
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
                CHECK(get(&r, i) == w, "%s op %d (%lld, %lld): %g, not %g", amp_dtype_info[ints[t]].name, ops[k], (long long)p, (long long)q, get(&r, i), w);
            }
        }
        set(&x[1], n / 2, 0);
        Case c = {.op = OP_remainder, .nin = 2};
        CHECK(run_elementwise(&c, &r, x) == AMP_ZERO_DIVISION, "zero divisor");
        free(x[0].memory), free(x[1].memory), free(r.memory);
    }
}

/* ---- reductions ---- */

static double reduce_reference(int op, double order, const double *x, int64_t n) {
    long double s = 0, p = 1, mean = 0;
    double top = -(double)INFINITY, low = (double)INFINITY;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        s += x[i], p *= x[i];
        if (isnan(x[i]) || x[i] > top) top = isnan(top) ? top : x[i];
        if (isnan(x[i]) || x[i] < low) low = isnan(low) ? low : x[i];
        count += x[i] != 0;
    }
    mean = s / n;
    long double squares = 0, dev = 0, powers = 0;
    for (int64_t i = 0; i < n; i++) squares += (long double)x[i] * x[i], dev += (x[i] - mean) * (x[i] - mean), powers += powl(fabsl((long double)x[i]), (long double)order);
    switch (op) {
    case OP_sum: return (double)s;
    case OP_mean: return (double)mean;
    case OP_prod: return (double)p;
    case OP_amax: return top;
    case OP_amin: return low;
    case OP_count_nonzero: return (double)count;
    case OP_any: return count > 0;
    case OP_all: return count == n;
    case OP_var: return (double)(dev / (n > 1 ? n - 1 : 0));
    case OP_std: return sqrt((double)(dev / (n > 1 ? n - 1 : 0)));
    default: return order == 2 ? (double)sqrtl(squares) : (double)powl(powers, 1 / (long double)order);
    }
}

static void check_reduce(int op, double order, int dtype, int ndim, const int64_t *shape, uint64_t dims, Layout layout, uint64_t *hash) {
    int64_t kept[4], n = 1, m = 1;
    for (int d = 0; d < ndim; d++) {
        bool reduced = dims >> d & 1;
        kept[d] = reduced ? 1 : shape[d];
        n *= reduced ? shape[d] : 1, m *= kept[d];
    }
    bool test = op == OP_any || op == OP_all, count = op == OP_count_nonzero;
    Array in = make(dtype, ndim, shape, layout), out = make(test ? AMP_BOOL : count ? AMP_INT64 : dtype, ndim, kept, draw() & 1 ? DENSE : MISALIGNED);
    fill_uniform(&in, op == OP_prod ? 0.9 : -1, op == OP_prod ? 1.1 : 1);
    Call call = {.op = (uint16_t)op, .nin = 1, .nout = 1, .in = {view(&in)}, .out = {view(&out)}, .dims = dims};
    if (op == OP_vector_norm || op == OP_var || op == OP_std) call.nnum = 1, call.num[0] = (Number){.f = op == OP_vector_norm ? order : 1, .kind = NUMBER_FLOAT};
    CHECK(amp_cpu_backend.reduce(&call) == AMP_OK, "reduce");
    double *x = malloc(sizeof *x * (size_t)(n + 1));
    for (int64_t k = 0; k < m; k++) {
        int64_t fill = 0;
        for (int64_t i = 0; i < in.v.numel; i++) {
            int64_t rest = i, place = 0, step = 1;
            for (int d = ndim - 1; d >= 0; d--) {
                if (!(dims >> d & 1)) place += rest % shape[d] * step, step *= shape[d];
                rest /= shape[d];
            }
            if (place == k) x[fill++] = get(&in, i);
        }
        double want = reduce_reference(op, order, x, n), got = get(&out, k), size = 0;
        for (int64_t i = 0; i < n; i++) size += fabs(x[i]);
        /* one rounding of the result, and for float64 the rounding of the additions */
        double slack = dtype == AMP_FLOAT64 ? 40 * 0x1p-53 * (size + 1) : 1e-12 * size;
        CHECK(near_value(dtype, got, want, .501) || fabs(got - want) <= slack + .501 * ulp(dtype, want), "op %d %s n=%lld dims=%llx layout %d: %.17g, not %.17g", op,
              amp_dtype_info[dtype].name, (long long)n, (unsigned long long)dims, (int)layout, got, want);
        uint64_t bits;
        memcpy(&bits, &got, 8);
        *hash = *hash * 6364136223846793005u + bits;
    }
    free(x), free(in.memory), free(out.memory);
}

static uint64_t test_reduce(void) {
    static const int ops[] = {OP_sum, OP_mean, OP_prod, OP_amax, OP_amin, OP_count_nonzero, OP_any, OP_all, OP_var, OP_std};
    static const double orders[] = {1, 2, 3};
    uint64_t hash = 1;
    for (int k = 0; k < 13; k++)
        for (int f = 0; f < 4; f++) {
            int op = k < 10 ? ops[k] : OP_vector_norm;
            double order = k < 10 ? 0 : orders[k - 10];
            for (int64_t n = 1; n < 68; n += n < 20 ? 1 : 7) check_reduce(op, order, floats[f], 1, &n, 1, (Layout)(draw() % LAYOUTS), &hash);
            int64_t long_line = 9001, cube[3] = {5, 6, 7}, tall[2] = {600, 9};
            check_reduce(op, order, floats[f], 1, &long_line, 1, DENSE, &hash);
            for (uint64_t dims = 0; dims < 8; dims++)
                for (int layout = 0; layout < LAYOUTS; layout++) check_reduce(op, order, floats[f], 3, cube, dims, (Layout)layout, &hash);
            check_reduce(op, order, floats[f], 2, tall, 1, DENSE, &hash);
        }
    return hash;
}

static void test_reduce_rest(void) {
    /* norms whose squares leave the range */
    int64_t n = 5, one = 1;
    static const double scales[] = {1e200, 1e-200, 1e-310};
    for (int s = 0; s < 3; s++) {
        Array in = make(AMP_FLOAT64, 1, &n, DENSE), out = make(AMP_FLOAT64, 1, &one, DENSE);
        for (int64_t i = 0; i < n; i++) set(&in, i, 3 * scales[s]);
        Call call = {.op = OP_vector_norm, .nin = 1, .nout = 1, .nnum = 1, .in = {view(&in)}, .out = {view(&out)}, .dims = 1, .num = {{.f = 2, .kind = NUMBER_FLOAT}}};
        CHECK(amp_cpu_backend.reduce(&call) == AMP_OK, "norm");
        CHECK(fabs(get(&out, 0) / (3 * scales[s] * sqrt(5)) - 1) < 1e-9, "norm %g", get(&out, 0));
        free(in.memory), free(out.memory);
    }
    /* positions: first occurrence, NaN wins */
    int64_t shape[2] = {4, 6}, column[2] = {4, 1};
    static const double rows[4][6] = {{1, 5, 5, 2, 0, 0}, {0, (double)NAN, 9, (double)NAN, 0, 0}, {-1, -2, -1, -3, -4, -5}, {0, 0, 0, 0, 0, 0}};
    static const double top[4] = {1, 1, 0, 0}, low[4] = {4, 1, 5, 0};
    for (int f = 0; f < 4; f++)
        for (int layout = 0; layout < BROADCAST; layout++) {
            Array in = make(floats[f], 2, shape, (Layout)layout), value = make(floats[f], 2, column, DENSE), index = make(AMP_INT64, 2, column, DENSE);
            for (int64_t i = 0; i < 24; i++) set(&in, i, rows[i / 6][i % 6]);
            Call call = {.op = OP_max_dim, .nin = 1, .nout = 2, .in = {view(&in)}, .out = {view(&value), view(&index)}, .dims = 2};
            CHECK(amp_cpu_backend.reduce(&call) == AMP_OK, "max_dim");
            for (int i = 0; i < 4; i++) {
                double want = rows[i][(int)top[i]];
                CHECK(get(&index, i) == top[i] && (get(&value, i) == want || isnan(want)), "row %d: %g at %g", i, get(&value, i), get(&index, i));
            }
            call.op = OP_argmin, call.nout = 1, call.out[0] = view(&index);
            CHECK(amp_cpu_backend.reduce(&call) == AMP_OK, "argmin");
            for (int i = 0; i < 4; i++) CHECK(get(&index, i) == low[i], "argmin row %d: %g", i, get(&index, i));
            free(in.memory), free(value.memory), free(index.memory);
        }
    /* the same sum whatever the number of threads */
    int64_t big = 3000000;
    Array in = make(AMP_FLOAT64, 1, &big, DENSE), out = make(AMP_FLOAT64, 1, &one, DENSE);
    fill_uniform(&in, -1, 1);
    double sums[2];
    for (int t = 0; t < 2; t++) {
        amp_set_num_threads(t + 1);
        Call call = {.op = OP_sum, .nin = 1, .nout = 1, .in = {view(&in)}, .out = {view(&out)}, .dims = 1};
        CHECK(amp_cpu_backend.reduce(&call) == AMP_OK, "sum");
        sums[t] = get(&out, 0);
    }
    CHECK(sums[0] == sums[1], "%a with one thread, %a with two", sums[0], sums[1]);
    /* nothing to reduce */
    int64_t zero = 0;
    Array empty = make(AMP_FLOAT64, 1, &zero, DENSE);
    Call call = {.op = OP_sum, .nin = 1, .nout = 1, .in = {view(&empty)}, .out = {view(&out)}, .dims = 1};
    CHECK(amp_cpu_backend.reduce(&call) == AMP_OK && get(&out, 0) == 0, "empty sum");
    call.op = OP_prod;
    CHECK(amp_cpu_backend.reduce(&call) == AMP_OK && get(&out, 0) == 1, "empty product");
    call.op = OP_mean;
    CHECK(amp_cpu_backend.reduce(&call) == AMP_OK && isnan(get(&out, 0)), "empty mean");
    call.op = OP_amax;
    CHECK(amp_cpu_backend.reduce(&call) == AMP_EMPTY_REDUCE, "empty maximum");
    free(in.memory), free(out.memory), free(empty.memory);
}

/* ---- softmax, scans, indexing, arranging ---- */

static uint64_t test_softmax(void) {
    uint64_t hash = 1;
    static const int64_t widths[] = {1, 3, 8, 67, 1500};
    for (int f = 0; f < 4; f++)
        for (int w = 0; w < 5; w++)
            for (int layout = 0; layout < BROADCAST; layout++)
                for (int log_form = 0; log_form < 2; log_form++) {
                    int64_t shape[2] = {3, widths[w]}, n = widths[w];
                    Array x = make(floats[f], 2, shape, (Layout)layout), y = make(floats[f], 2, shape, DENSE), g = make(floats[f], 2, shape, DENSE), d = make(floats[f], 2, shape, (Layout)layout);
                    fill_uniform(&x, -6, 6);
                    fill_uniform(&g, -1, 1);
                    Call call = {.op = log_form ? OP_log_softmax : OP_softmax, .nin = 1, .nout = 1, .in = {view(&x)}, .out = {view(&y)}, .dims = 2};
                    Call grad = {.op = log_form ? OP_log_softmax_grad : OP_softmax_grad, .nin = 2, .nout = 1, .in = {view(&g), view(&y)}, .out = {view(&d)}, .dims = 2};
                    CHECK(amp_cpu_backend.softmax(&call) == AMP_OK && amp_cpu_backend.softmax(&grad) == AMP_OK, "softmax");
                    double bound = floats[f] == AMP_FLOAT64 ? 20 : 1.1;
                    for (int64_t r = 0; r < 3; r++) {
                        double sum = 0, dot = 0, total = 0;
                        for (int64_t i = 0; i < n; i++) sum += exp(get(&x, r * n + i)), dot += get(&g, r * n + i) * get(&y, r * n + i), total += get(&g, r * n + i);
                        for (int64_t i = 0; i < n; i++) {
                            int64_t k = r * n + i;
                            double want = log_form ? get(&x, k) - log(sum) : exp(get(&x, k)) / sum, got = get(&y, k);
                            double want_d = log_form ? get(&g, k) - exp(got) * total : got * (get(&g, k) - dot), got_d = get(&d, k);
                            double absolute = floats[f] == AMP_FLOAT64 ? 1e-14 : 1e-7;
                            CHECK(near_value(floats[f], got, want, bound) || fabs(got - want) < absolute * 1e-1, "softmax: %.17g, not %.17g", got, want);
                            CHECK(near_value(floats[f], got_d, want_d, bound) || fabs(got_d - want_d) < absolute * 1e-1, "gradient: %.17g, not %.17g", got_d, want_d);
                            uint64_t bits;
                            memcpy(&bits, &got, 8);
                            hash = hash * 6364136223846793005u + bits;
                        }
                    }
                    free(x.memory), free(y.memory), free(g.memory), free(d.memory);
                }
    return hash;
}

static void test_scan(void) {
    int64_t shape[2] = {3, 700};
    for (int f = 2; f < 4; f++)
        for (int layout = 0; layout < BROADCAST; layout++) {
            Array x = make(floats[f], 2, shape, (Layout)layout), y = make(floats[f], 2, shape, DENSE);
            fill_uniform(&x, -1, 1);
            Call call = {.op = OP_cumsum, .nin = 1, .nout = 1, .in = {view(&x)}, .out = {view(&y)}, .dims = 2};
            CHECK(amp_cpu_backend.scan(&call) == AMP_OK, "cumsum");
            for (int64_t r = 0; r < 3; r++) {
                double s = 0;
                for (int64_t i = 0; i < 700; i++) {
                    s += get(&x, r * 700 + i);
                    CHECK(near_value(floats[f], get(&y, r * 700 + i), s, .51), "cumsum: %.17g, not %.17g", get(&y, r * 700 + i), s);
                }
            }
            free(x.memory), free(y.memory);
        }
}

static void test_index(void) {
    int64_t table_shape[3] = {5, 4, 3}, at[1] = {6}, out_shape[2] = {6, 3};
    static const double first[6] = {0, -1, 4, 2, 2, 0}, second[6] = {3, 0, -4, 1, 1, 3};
    for (int f = 0; f < 4; f++)
        for (int layout = 0; layout < BROADCAST; layout++) {
            Array t = make(floats[f], 3, table_shape, (Layout)layout), i = make(AMP_INT64, 1, at, DENSE), j = make(AMP_INT64, 1, at, REVERSED), out = make(floats[f], 2, out_shape, (Layout)layout);
            for (int64_t k = 0; k < 60; k++) set(&t, k, (double)k);
            for (int64_t k = 0; k < 6; k++) set(&i, k, first[k]), set(&j, k, second[k]);
            const View *list[2] = {view(&i), view(&j)};
            Call call = {.op = OP_index, .nin = 1, .nout = 1, .in = {view(&t)}, .out = {view(&out)}, .list = list, .nlist = 2};
            CHECK(amp_cpu_backend.index(&call) == AMP_OK, "index");
            for (int64_t k = 0; k < 18; k++) {
                int64_t a = (int64_t)first[k / 3], b = (int64_t)second[k / 3];
                int64_t place = ((a < 0 ? a + 5 : a) * 4 + (b < 0 ? b + 4 : b)) * 3 + k % 3;
                CHECK(get(&out, k) == (double)place, "index %lld: %g", (long long)k, get(&out, k));
            }
            /* twice the same place: accumulate adds both, assign keeps the last */
            for (int64_t k = 0; k < 18; k++) set(&out, k, 1 + (double)(k / 3));
            Call put = {.op = OP_index_put, .nin = 1, .nout = 1, .nnum = 1, .in = {view(&out)}, .out = {view(&t)}, .list = list, .nlist = 2, .num = {{.i = 1, .f = 1, .kind = NUMBER_BOOL}}};
            CHECK(amp_cpu_backend.index_put(&put) == AMP_OK, "index_put");
            CHECK(get(&t, (2 * 4 + 1) * 3) == 27 + 4 + 5 && get(&t, 9) == 9 + 1 + 6, "accumulate: %g %g", get(&t, 27), get(&t, 9));
            put.num[0].i = 0;
            CHECK(amp_cpu_backend.index_put(&put) == AMP_OK && get(&t, 27) == 5 && get(&t, 9) == 6, "assign: %g %g", get(&t, 27), get(&t, 9));
            set(&i, 5, 5);
            set(&out, 0, 77);
            CHECK(amp_cpu_backend.index(&call) == AMP_BAD_INDEX && get(&out, 0) == 77, "index out of range");
            free(t.memory), free(i.memory), free(j.memory), free(out.memory);
        }
    int64_t shape[2] = {2, 4}, pick[2] = {2, 2};
    Array x = make(AMP_FLOAT32, 2, shape, TRANSPOSED), i = make(AMP_INT64, 2, pick, DENSE), y = make(AMP_FLOAT32, 2, pick, DENSE);
    for (int64_t k = 0; k < 8; k++) set(&x, k, (double)k);
    static const double columns[4] = {3, 0, 1, 1};
    for (int64_t k = 0; k < 4; k++) set(&i, k, columns[k]);
    Call call = {.op = OP_gather, .nin = 2, .nout = 1, .in = {view(&x), view(&i)}, .out = {view(&y)}, .dims = 2};
    CHECK(amp_cpu_backend.gather(&call) == AMP_OK && get(&y, 0) == 3 && get(&y, 1) == 0 && get(&y, 2) == 5 && get(&y, 3) == 5, "gather");
    Call scatter = {.op = OP_scatter_add, .nin = 2, .nout = 1, .in = {view(&y), view(&i)}, .out = {view(&x)}, .dims = 2};
    CHECK(amp_cpu_backend.gather(&scatter) == AMP_OK && get(&x, 5) == 15 && get(&x, 3) == 6, "scatter_add: %g %g", get(&x, 5), get(&x, 3));
    set(&i, 0, 4);
    CHECK(amp_cpu_backend.gather(&call) == AMP_BAD_INDEX, "gather out of range");
    free(x.memory), free(i.memory), free(y.memory);
}

static void test_arrange(void) {
    int64_t shape[3] = {2, 4, 5};
    for (int layout = 0; layout < BROADCAST; layout++)
        for (int64_t diagonal = -6; diagonal < 7; diagonal++) {
            Array x = make(AMP_BFLOAT16, 3, shape, (Layout)layout), y = make(AMP_BFLOAT16, 3, shape, DENSE);
            for (int64_t k = 0; k < 40; k++) set(&x, k, (double)k + 1);
            for (int upper = 0; upper < 2; upper++) {
                Call call = {.op = upper ? OP_triu : OP_tril, .nin = 1, .nout = 1, .nnum = 1, .in = {view(&x)}, .out = {view(&y)}, .num = {{.i = diagonal, .f = (double)diagonal, .kind = NUMBER_INT}}};
                CHECK(amp_cpu_backend.arrange(&call) == AMP_OK, "triangle");
                for (int64_t k = 0; k < 40; k++) {
                    int64_t row = k / 5 % 4, col = k % 5;
                    bool keep = upper ? col >= row + diagonal : col <= row + diagonal;
                    CHECK(get(&y, k) == (keep ? (double)k + 1 : 0), "triangle %d %lld at %lld: %g", upper, (long long)diagonal, (long long)k, get(&y, k));
                }
            }
            Call flip = {.op = OP_flip, .nin = 1, .nout = 1, .in = {view(&x)}, .out = {view(&y)}, .dims = 5};
            CHECK(amp_cpu_backend.arrange(&flip) == AMP_OK, "flip");
            for (int64_t k = 0; k < 40; k++) CHECK(get(&y, k) == (double)((1 - k / 20) * 20 + k / 5 % 4 * 5 + 4 - k % 5) + 1, "flip");
            int64_t count = -1;
            set(&x, 7, 0), set(&x, 0, (double)NAN);
            Call nonzero = {.op = OP_nonzero, .nin = 1, .in = {view(&x)}, .extra = &count};
            CHECK(amp_cpu_backend.nonzero(&nonzero) == AMP_OK && count == 39, "count %lld", (long long)count);
            int64_t places[2] = {39, 3};
            Array p = make(AMP_INT64, 2, places, DENSE);
            nonzero.out[0] = view(&p), nonzero.nout = 1;
            CHECK(amp_cpu_backend.nonzero(&nonzero) == AMP_OK && get(&p, 7 * 3 + 1) == 1 && get(&p, 7 * 3 + 2) == 3, "positions");
            free(x.memory), free(y.memory), free(p.memory);
        }
    int64_t n = 11;
    Array x = make(AMP_FLOAT32, 1, &n, SPACED);
    Call call = {.op = OP_linspace, .nout = 1, .nnum = 2, .out = {view(&x)}, .num = {{.f = 0, .kind = NUMBER_FLOAT}, {.f = 1, .kind = NUMBER_FLOAT}}};
    CHECK(amp_cpu_backend.arrange(&call) == AMP_OK && get(&x, 10) == 1 && get(&x, 3) == (double)0.3f, "linspace");
    Call range = {.op = OP_arange, .nout = 1, .nnum = 3, .out = {view(&x)}, .num = {{.f = 1, .kind = NUMBER_FLOAT}, {.f = 2, .kind = NUMBER_FLOAT}, {.f = .1, .kind = NUMBER_FLOAT}}};
    CHECK(amp_cpu_backend.arrange(&range) == AMP_OK && get(&x, 0) == 1 && get(&x, 7) == (double)(float)1.7, "arange %g", get(&x, 7));
    free(x.memory);
}

static void test_views(void) {
    int64_t shape[3] = {2, 3, 4}, overlap[2] = {3, 4};
    Array a = make(AMP_FLOAT32, 3, shape, DENSE), b = make(AMP_FLOAT32, 2, overlap, DENSE);
    CHECK(!amp_has_internal_overlap(view(&a)), "dense");
    b.stride[0] = 2, b.stride[1] = 1;
    CHECK(amp_has_internal_overlap(view(&b)), "overlapping rows");
    b.stride[0] = 4, b.stride[1] = 0;
    CHECK(amp_has_internal_overlap(view(&b)), "expanded");
    const View *both[2] = {view(&a), view(&a)};
    int64_t merged[AMP_MAX_DIMS], strides[2][AMP_MAX_DIMS], out[8], wide[2] = {3, 1}, narrow[1] = {4};
    CHECK(amp_coalesce(2, both, merged, strides) == 1 && merged[0] == 24 && strides[1][0] == 1, "coalesce");
    CHECK(amp_broadcast_shapes(2, wide, 1, narrow, out) == 2 && out[0] == 3 && out[1] == 4, "broadcast");
    CHECK(amp_broadcast_shapes(2, overlap, 1, (int64_t[]){3}, out) == -1, "broadcast of 4 and 3");
    CHECK(amp_numel(2, (int64_t[]){INT64_MAX, 2}) == -1 && amp_numel(3, (int64_t[]){INT64_MAX, 2, 0}) == -1 + 1 * (amp_numel(3, (int64_t[]){INT64_MAX, 2, 0}) == 0), "overflow");
    CHECK(amp_promote_dtypes(AMP_FLOAT16, AMP_BFLOAT16) == AMP_FLOAT32 && amp_promote_dtypes(AMP_UINT8, AMP_INT8) == AMP_INT16, "promotion");
    CHECK(amp_promote_dtypes(AMP_INT64, AMP_FLOAT16) == AMP_FLOAT16 && amp_promote_dtypes(AMP_FLOAT64, AMP_COMPLEX64) == AMP_COMPLEX128, "promotion");
    free(a.memory), free(b.memory);
}

int main(void) {
    uint64_t first[3] = {0};
    test_views();
    test_special_conversions();
    for (int level = 0; level < 4; level++) {
        if (level > (int)amp_isa_best()) break;
        amp_isa_set_cap(levels[level]);
        test_halves(AMP_FLOAT16, 5, 10);
        test_halves(AMP_BFLOAT16, 8, 7);
        test_narrowing_bits();
        seed = 88172645463325252u;
        uint64_t hash[3] = {test_elementwise(), test_reduce(), test_softmax()};
        for (int k = 0; k < 3; k++) {
            if (level == 0) first[k] = hash[k];
            CHECK(hash[k] == first[k], "bits of group %d differ from the baseline's", k);
        }
        test_elementwise_rest();
        test_reduce_rest();
        test_scan();
        test_index();
        test_arrange();
        printf("%s: %d checks, %d failures\n", amp_isa_name(amp_isa()), checks, failures);
    }
    return failures != 0;
}
