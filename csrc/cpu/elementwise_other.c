/* Complex and selecting kernels, and what of the integers is no vector code: of every width, and bool, computed in 64 bits. */
#include "vectorize.h"

#include <complex.h>
#include <math.h>
#undef I

#include "../core/numeric_ops.h"
#include "elementwise.h"

/* A complex number in memory of any alignment. */
typedef struct __attribute__((packed, may_alias)) C128 {
    double re, im;
} C128;
static inline AmpComplex get_C128(const C128 *p) { return (AmpComplex){p->re, p->im}; }
static inline C128 put_C128(AmpComplex v) { return (C128){v.re, v.im}; }
static inline int64_t get_I64(const I64 *p) { return *p; }
static inline int64_t put_I64(int64_t v) { return v; }
static inline uint8_t put_U8(bool v) { return v; }

#define KERNEL1(K, T, VALUE, OUT, expr) \
    static void K(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const T *a = (const T *)(const void *)in[0]; \
        OUT *o = (OUT *)(void *)out; \
        (void)scalar, (void)params; \
        for (int64_t i = 0; i < n; i++) { \
            VALUE x = get_##T(a + i); \
            (void)x; \
            o[i] = put_##OUT(expr); \
        } \
    }
#define KERNEL2(K, T, VALUE, OUT, expr) \
    static void K(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const T *a = (const T *)(const void *)in[0], *b = (const T *)(const void *)in[1]; \
        const int64_t sa = !(scalar & 1), sb = !(scalar & 2); \
        OUT *o = (OUT *)(void *)out; \
        (void)params; \
        for (int64_t i = 0; i < n; i++) { \
            VALUE x = get_##T(a + i * sa), y = get_##T(b + i * sb); \
            o[i] = put_##OUT(expr); \
        } \
    }

/* ---- integers ---- */

#define N0 (params->i[0])
/* clang-format off */
#define I64_UNARY(X) X(floor, x) X(ceil, x) X(round, x) X(trunc, x) X(nan_to_num, x)
#define I64_UNARY_TESTS(X) X(isnan, 0) X(isinf, 0) X(isfinite, 1) X(signbit, x < 0)
#define I64_BINARY(X)                                                                                                  \
    X(pow, amp_i64_pow(x, y)) X(gcd, amp_i64_gcd(x, y)) X(lcm, amp_i64_lcm(x, y)) X(heaviside, x == 0 ? y : x > 0)
/* A zero divisor is reported, and counted as 1 meanwhile. */
#define I64_DIVISIONS(X) X(div_trunc) X(floor_divide) X(remainder) X(fmod)
/* clang-format on */

#define VALUE1(name, expr) KERNEL1(name##_i64, I64, int64_t, I64, expr)
#define TEST1(name, expr)  KERNEL1(name##_i64, I64, int64_t, U8, expr)
#define VALUE2(name, expr) KERNEL2(name##_i64, I64, int64_t, I64, expr)
#define DIVISION(name) \
    KERNEL2(name##_i64, I64, int64_t, I64, \
            amp_i64_##name(x, y ? y : (__atomic_store_n(params->zero_divisor, 1, __ATOMIC_RELAXED), 1)))
/* clang-format off */
I64_UNARY(VALUE1)
I64_UNARY_TESTS(TEST1)
I64_BINARY(VALUE2)
I64_DIVISIONS(DIVISION)
/* clang-format on */

static void addcmul_i64(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) {
    const I64 *a = (const I64 *)(const void *)in[0], *b = (const I64 *)(const void *)in[1], *c = (const I64 *)(const void *)in[2];
    const int64_t sa = !(scalar & 1), sb = !(scalar & 2), sc = !(scalar & 4);
    I64 *o = (I64 *)(void *)out;
    for (int64_t i = 0; i < n; i++) o[i] = amp_i64_add(a[i * sa], amp_i64_mul(N0, amp_i64_mul(b[i * sb], c[i * sc])));
}

#define OP_ENTRY(name, ...) [OP_##name] = name##_i64,
/* clang-format off */
static const Kernel table_i64[KERNEL_COUNT] = {
    I64_UNARY(OP_ENTRY) I64_UNARY_TESTS(OP_ENTRY) I64_BINARY(OP_ENTRY) I64_DIVISIONS(OP_ENTRY) [OP_addcmul] = addcmul_i64,
};
/* clang-format on */

Kernel amp_kernel_i64(int id) {
    Kernel kernel = amp_kernel_integer(id, AMP_INT64);
    return kernel ? kernel : table_i64[id];
}

/* ---- complex numbers: arithmetic, functions and equality ---- */

static inline double _Complex to_c(AmpComplex v) { return CMPLX(v.re, v.im); }
static inline AmpComplex from_c(double _Complex v) { return (AmpComplex){creal(v), cimag(v)}; }
/* without the loss of cexp(z) - 1 near 0:  e^a cos b - 1 = expm1(a) cos b - 2 sin^2(b / 2) */
static inline AmpComplex complex_expm1(AmpComplex v) {
    const double s = sin(0.5 * v.im);
    return (AmpComplex){expm1(v.re) * cos(v.im) - 2 * s * s, exp(v.re) * sin(v.im)};
}
/* log |1 + z| = log1p(2 a + |z|^2) / 2 where that is near 0 */
static inline AmpComplex complex_log1p(AmpComplex v) {
    const double more = v.re * (2 + v.re) + v.im * v.im;
    const bool near = fabs(v.re) < 0.5 && fabs(v.im) < 0.5;
    return (AmpComplex){near ? 0.5 * log1p(more) : log(hypot(1 + v.re, v.im)), atan2(v.im, 1 + v.re)};
}
static inline AmpComplex complex_sigmoid(AmpComplex v) { return from_c(1 / (1 + cexp(-to_c(v)))); }

#define ZERO(v) ((v).re == 0 && (v).im == 0)
/* clang-format off */
#define C128_UNARY(X) X(neg, ((AmpComplex){-x.re, -x.im})) X(square, amp_c128_mul(x, x)) X(reciprocal, amp_c128_div((AmpComplex){1, 0}, x)) \
    X(exp, from_c(cexp(to_c(x)))) X(log, from_c(clog(to_c(x)))) X(sqrt, from_c(csqrt(to_c(x))))                        \
    X(sin, from_c(csin(to_c(x)))) X(cos, from_c(ccos(to_c(x)))) X(tan, from_c(ctan(to_c(x))))                          \
    X(asin, from_c(casin(to_c(x)))) X(acos, from_c(cacos(to_c(x)))) X(atan, from_c(catan(to_c(x))))                    \
    X(sinh, from_c(csinh(to_c(x)))) X(cosh, from_c(ccosh(to_c(x)))) X(tanh, from_c(ctanh(to_c(x))))                    \
    X(asinh, from_c(casinh(to_c(x)))) X(acosh, from_c(cacosh(to_c(x)))) X(atanh, from_c(catanh(to_c(x))))              \
    X(exp2, from_c(cexp(to_c(x) * 0.69314718055994530942))) X(expm1, complex_expm1(x)) X(log1p, complex_log1p(x))      \
    X(log2, from_c(clog(to_c(x)) / 0.69314718055994530942)) X(log10, from_c(clog(to_c(x)) / 2.30258509299404568402))   \
    X(rsqrt, from_c(1 / csqrt(to_c(x)))) X(sigmoid, complex_sigmoid(x)) X(silu, amp_c128_mul(x, complex_sigmoid(x)))
#define C128_UNARY_TESTS(X)                                                                                            \
    X(isnan, x.re != x.re || x.im != x.im) X(isinf, amp_f64_isinf(x.re) || amp_f64_isinf(x.im))                        \
    X(isfinite, amp_f64_isfinite(x.re) && amp_f64_isfinite(x.im)) X(logical_not, ZERO(x))
#define C128_BINARY(X) X(add, amp_c128_add(x, y)) X(sub, amp_c128_sub(x, y)) X(mul, amp_c128_mul(x, y)) X(div, amp_c128_div(x, y)) X(pow, amp_c128_pow(x, y))
#define C128_BINARY_VARIANTS(X)                                                                                        \
    X(add_alpha, amp_c128_add(x, amp_c128_mul(params->c, y))) X(sub_alpha, amp_c128_sub(x, amp_c128_mul(params->c, y)))
#define C128_BINARY_TESTS(X)                                                                                           \
    X(eq, amp_c128_eq(x, y)) X(ne, !amp_c128_eq(x, y)) X(logical_and, !ZERO(x) && !ZERO(y))                            \
    X(logical_or, !ZERO(x) || !ZERO(y)) X(logical_xor, ZERO(x) != ZERO(y))
/* clang-format on */

#define CVALUE1(name, expr) KERNEL1(name##_c128, C128, AmpComplex, C128, expr)
#define CTEST1(name, expr)  KERNEL1(name##_c128, C128, AmpComplex, U8, expr)
#define CVALUE2(name, expr) KERNEL2(name##_c128, C128, AmpComplex, C128, expr)
#define CTEST2(name, expr)  KERNEL2(name##_c128, C128, AmpComplex, U8, expr)
/* clang-format off */
C128_UNARY(CVALUE1)
C128_UNARY_TESTS(CTEST1)
C128_BINARY(CVALUE2)
C128_BINARY_VARIANTS(CVALUE2)
C128_BINARY_TESTS(CTEST2)
/* clang-format on */

#undef OP_ENTRY
#define OP_ENTRY(name, ...)       [OP_##name] = name##_c128,
#define VARIANT_ENTRY(name, expr) [KERNEL_##name] = name##_c128,
/* clang-format off */
static const Kernel table_c128[KERNEL_COUNT] = {
    C128_UNARY(OP_ENTRY) C128_UNARY_TESTS(OP_ENTRY) C128_BINARY(OP_ENTRY) C128_BINARY_TESTS(OP_ENTRY)
    C128_BINARY_VARIANTS(VARIANT_ENTRY)
};
/* clang-format on */

Kernel amp_kernel_c128(int id) { return table_c128[id]; }

/* ---- where: only moves elements, so one kernel per size serves all dtypes ---- */

/* Both values are loaded whatever the condition says: only then is the choice a vector operation. One-value operands are spread over
 * a block, so that every combination runs the same loop. */
enum { BLOCK = 256 };
#define SELECT(name, T, TARGET) \
    TARGET static void name(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const U8 *c = (const U8 *)(const void *)in[0]; \
        const T *a = (const T *)(const void *)in[1], *b = (const T *)(const void *)in[2]; \
        U8 cs[BLOCK]; \
        T as[BLOCK], bs[BLOCK], *o = (T *)(void *)out; \
        (void)params; \
        for (int64_t j = 0; (scalar & 1) && j < BLOCK; j++) cs[j] = c[0]; \
        for (int64_t j = 0; (scalar & 2) && j < BLOCK; j++) as[j] = a[0]; \
        for (int64_t j = 0; (scalar & 4) && j < BLOCK; j++) bs[j] = b[0]; \
        for (int64_t i = 0; i < n; i += BLOCK) { \
            const int64_t m = n - i < BLOCK ? n - i : BLOCK; \
            const U8 *p = scalar & 1 ? cs : c + i; \
            const T *yes = scalar & 2 ? as : a + i, *no = scalar & 4 ? bs : b + i; \
            T *to = o + i; \
            IVDEP for (int64_t j = 0; j < m; j++) { \
                const T x = yes[j], y = no[j]; \
                to[j] = p[j] ? x : y; \
            } \
        } \
    }
typedef uint32_t STORED U32;
typedef uint64_t STORED U64;
#define SELECTS(level, TARGET) \
    SELECT(select_1_##level, U8, TARGET) \
    SELECT(select_2_##level, U16, TARGET) \
    SELECT(select_4_##level, U32, TARGET) \
    SELECT(select_8_##level, U64, TARGET) \
    SELECT(select_16_##level, C128, TARGET)
SELECTS(baseline, )
#if defined(__x86_64__)
SELECTS(avx2, __attribute__((target("avx2"))))
#endif

#define BY_SIZE(level) \
    (itemsize == 1   ? select_1_##level \
     : itemsize == 2 ? select_2_##level \
     : itemsize == 4 ? select_4_##level \
     : itemsize == 8 ? select_8_##level \
                     : select_16_##level)
Kernel amp_kernel_select(size_t itemsize) {
#if defined(__x86_64__)
    if (amp_isa() >= ISA_AVX2) return BY_SIZE(avx2);
#endif
    return BY_SIZE(baseline);
}
