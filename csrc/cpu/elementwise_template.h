/* Real-number kernels for one type and one instruction set. Needs
 *   T (stored type), REAL (its value type), LOAD(x) and STORE(x) from T to REAL and back, R(name) scalar meaning, M(name) C library,
 *   K(name) kernel name, TARGET function attribute.
 * Every instruction set compiles the same expressions, without contraction, and so gives the same bits. */

/* clang-format off */
#define UNARY_OPS(X)                                                                                                   \
    LIGHT_UNARY(X) X(relu, R(relu)(x)) X(abs, M(fabs)(x)) X(neg, -x) X(round_to_tf32, R(round_to_tf32)(x))                                 \
    X(exp, R(exp)(x)) X(exp2, R(exp2)(x)) X(expm1, R(expm1)(x)) X(log, R(log)(x)) X(log2, R(log2)(x))                  \
    X(log10, R(log10)(x)) X(log1p, R(log1p)(x)) X(asin, R(asin)(x)) X(acos, R(acos)(x)) X(atan, R(atan)(x))            \
    X(sinh, R(sinh)(x)) X(cosh, R(cosh)(x)) X(asinh, R(asinh)(x)) X(acosh, R(acosh)(x)) X(atanh, R(atanh)(x))          \
    X(tanh, R(tanh)(x)) X(sigmoid, R(sigmoid)(x)) X(erf, R(erf)(x)) X(erfc, R(erfc)(x)) X(erfinv, R(erfinv)(x))        \
    X(gelu, R(gelu)(x)) X(silu, R(silu)(x)) X(logsigmoid, R(logsigmoid)(x)) X(elu, R(elu)(x, n0))                      \
    X(softplus, R(softplus)(x, n0, n1))                                                                               \
    X(polygamma, amp_polygamma((double)n0, (double)x)) X(i0, amp_bessel_i(0, (double)x)) X(i1, amp_bessel_i(1, (double)x)) \
    X(i0e, amp_bessel_ie(0, (double)x)) X(i1e, amp_bessel_ie(1, (double)x)) X(ndtri, amp_ndtri((double)x)) X(entr, R(entr)(x)) X(mish, R(mish)(x)) X(selu, R(selu)(x))    \
    X(celu, R(celu)(x, n0)) X(tanhshrink, R(tanhshrink)(x)) X(logit, R(logit)(x)) X(sinc, R(sinc)(x))
/* Straight-line code for a range, the C library beyond it. */
#define UNARY_RANGED(X)  X(sin) X(cos) X(tan) X(lgamma) X(digamma)
#define BINARY_RANGED(X) X(fmod) X(remainder) X(floor_divide) X(atan2)
#define UNARY_VARIANTS(X)                                                                                              \
    LIGHT_UNARY_VARIANTS(X) X(gelu_tanh, R(gelu_tanh)(x)) X(round_up, R(round_up)(x, n1)) X(round_down, R(round_down)(x, n1)) \
    X(logit_clamped, R(logit)(R(clamp_high)(R(clamp_low)(x, n0), 1 - n0)))
#define UNARY_TESTS(X)                                                                                                 \
    X(isnan, R(isnan)(x)) X(isinf, R(isinf)(x)) X(isfinite, R(isfinite)(x)) X(signbit, M(copysign)(1, x) < 0)          \
    X(logical_not, x == 0)

#define BINARY_OPS(X)                                                                                                  \
    LIGHT_BINARY(X) X(relu_grad, R(relu_grad)(x, y)) X(div_trunc, M(trunc)(x / y)) X(pow, R(pow)(x, y)) X(hypot, R(hypot)(x, y))                        \
    X(copysign, M(copysign)(x, y)) X(gelu_grad, R(gelu_grad)(x, y)) X(heaviside, x == 0 ? y : (REAL)(x > 0))           \
    X(logaddexp, R(logaddexp)(x, y)) X(logaddexp2, amp_logaddexp2((double)x, (double)y))                               \
    X(silu_grad, R(silu_grad)(x, y)) X(mish_grad, R(mish_grad)(x, y)) X(xlogy, R(xlogy)(x, y)) X(glu, R(glu)(x, y))    \
    X(bce_logits_kernel, R(bce_logits)(x, y)) X(elu_grad, R(elu_grad)(x, y, w0, w1, w2))                               \
    X(softplus_grad, R(softplus_grad)(x, y, w0, w1))
#define BINARY_VARIANTS(X) LIGHT_BINARY_VARIANTS(X) X(gelu_tanh_grad, R(gelu_tanh_grad)(x, y))
#define BINARY_TESTS(X)                                                                                                \
    X(eq, x == y) X(ne, x != y) X(lt, x < y) X(le, x <= y) X(gt, x > y) X(ge, x >= y)                                  \
    X(logical_and, x != 0 && y != 0) X(logical_or, x != 0 || y != 0) X(logical_xor, (x != 0) != (y != 0))

#define TERNARY_OPS(X) LIGHT_TERNARY(X) X(bce_logits_grad, R(bce_logits_grad)(x, y, z))
/* clang-format on */

#define AS_IT_IS(x) (x)
#define UNARY_KERNEL(name, OUT, PUT, expr) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const T *a = (const T *)(const void *)in[0]; \
        OUT *o = (OUT *)(void *)out; \
        (void)scalar; \
        NUMBERS \
        IVDEP for (int64_t i = 0; i < n; i++) { \
            REAL x = LOAD(a[i]); \
            o[i] = (OUT)PUT(expr); \
        } \
    }
#define BINARY_KERNEL(name, OUT, PUT, expr) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const T *a = (const T *)(const void *)in[0], *b = (const T *)(const void *)in[1]; \
        OUT *o = (OUT *)(void *)out; \
        NUMBERS \
        if (scalar & 1) { \
            const REAL x = LOAD(a[0]); \
            IVDEP for (int64_t i = 0; i < n; i++) { \
                REAL y = LOAD(b[i]); \
                o[i] = (OUT)PUT(expr); \
            } \
        } else if (scalar & 2) { \
            const REAL y = LOAD(b[0]); \
            IVDEP for (int64_t i = 0; i < n; i++) { \
                REAL x = LOAD(a[i]); \
                o[i] = (OUT)PUT(expr); \
            } \
        } else { \
            IVDEP for (int64_t i = 0; i < n; i++) { \
                REAL x = LOAD(a[i]), y = LOAD(b[i]); \
                o[i] = (OUT)PUT(expr); \
            } \
        } \
    }
/* One-value operands are spread over a block, so that every combination runs the same loop. */
#define BLOCK 256
#define SPREAD(k, p) \
    T spread##k[BLOCK]; \
    const bool one##k = (scalar >> k & 1) != 0; \
    if (one##k) \
        for (int64_t j = 0; j < BLOCK; j++) spread##k[j] = p[0];
#define TERNARY_KERNEL(name, OUT, PUT, expr) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const T *a = (const T *)(const void *)in[0], *b = (const T *)(const void *)in[1]; \
        const T *c = (const T *)(const void *)in[2]; \
        OUT *o = (OUT *)(void *)out; \
        NUMBERS \
        if (scalar == 0) { \
            IVDEP for (int64_t i = 0; i < n; i++) { \
                REAL x = LOAD(a[i]), y = LOAD(b[i]), z = LOAD(c[i]); \
                o[i] = (OUT)PUT(expr); \
            } \
            return; \
        } \
        SPREAD(0, a) SPREAD(1, b) SPREAD(2, c) for (int64_t i = 0; i < n; i += BLOCK) { \
            const int64_t m = n - i < BLOCK ? n - i : BLOCK; \
            const T *p = one0 ? spread0 : a + i, *q = one1 ? spread1 : b + i, *r = one2 ? spread2 : c + i; \
            OUT *to = o + i; \
            IVDEP for (int64_t j = 0; j < m; j++) { \
                REAL x = LOAD(p[j]), y = LOAD(q[j]), z = LOAD(r[j]); \
                to[j] = (OUT)PUT(expr); \
            } \
        } \
    }

/* A block wholly inside the range is vector code; else each element goes its own way, to the same bits. */
#define RANGED_LOOP(in_range, near, any) \
    unsigned outside = 0; \
    for (int64_t j = 0; j < m; j++) { \
        OPERANDS \
        outside |= (unsigned)!(in_range); \
    } \
    if (!outside) { \
        IVDEP for (int64_t j = 0; j < m; j++) { \
            OPERANDS \
            to[j] = (T)STORE(near); \
        } \
    } else { \
        for (int64_t j = 0; j < m; j++) { \
            OPERANDS \
            to[j] = (T)STORE((in_range) ? (near) : (any)); \
        } \
    }
#define UNARY_RANGED_KERNEL(name) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const T *a = (const T *)(const void *)in[0]; \
        T *o = (T *)(void *)out; \
        (void)scalar, (void)params; \
        for (int64_t i = 0; i < n; i += BLOCK) { \
            const int64_t m = n - i < BLOCK ? n - i : BLOCK; \
            const T *p = a + i; \
            T *to = o + i; \
            RANGED_LOOP(R(name##_in)(x), R(name##_near)(x), R(name)(x)) \
        } \
    }
#define BINARY_RANGED_KERNEL(name) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const T *a = (const T *)(const void *)in[0], *b = (const T *)(const void *)in[1]; \
        T *o = (T *)(void *)out; \
        (void)params; \
        SPREAD(0, a) SPREAD(1, b) for (int64_t i = 0; i < n; i += BLOCK) { \
            const int64_t m = n - i < BLOCK ? n - i : BLOCK; \
            const T *p = one0 ? spread0 : a + i, *q = one1 ? spread1 : b + i; \
            T *to = o + i; \
            RANGED_LOOP(R(name##_in)(x, y), R(name##_near)(x, y), R(name)(x, y)) \
        } \
    }

#define VALUE1(name, expr) UNARY_KERNEL(name, T, STORE, expr)
#define TEST1(name, expr)  UNARY_KERNEL(name, U8, AS_IT_IS, expr)
#define VALUE2(name, expr) BINARY_KERNEL(name, T, STORE, expr)
#define TEST2(name, expr)  BINARY_KERNEL(name, U8, AS_IT_IS, expr)
#define VALUE3(name, expr) TERNARY_KERNEL(name, T, STORE, expr)
UNARY_OPS(VALUE1)
UNARY_VARIANTS(VALUE1)
UNARY_TESTS(TEST1)
BINARY_OPS(VALUE2)
BINARY_VARIANTS(VALUE2)
BINARY_TESTS(TEST2)
TERNARY_OPS(VALUE3)
#define OPERANDS REAL x = LOAD(p[j]);
UNARY_RANGED(UNARY_RANGED_KERNEL)
#undef OPERANDS
#define OPERANDS REAL x = LOAD(p[j]), y = LOAD(q[j]);
BINARY_RANGED(BINARY_RANGED_KERNEL)
#undef OPERANDS

/* clang-format off */
#define OP_ENTRY(name, ...) [OP_##name] = K(name),
#define VARIANT_ENTRY(name, expr) [KERNEL_##name] = K(name),
static const Kernel K(table)[KERNEL_COUNT] = {
    UNARY_OPS(OP_ENTRY) UNARY_TESTS(OP_ENTRY) BINARY_OPS(OP_ENTRY) BINARY_TESTS(OP_ENTRY) TERNARY_OPS(OP_ENTRY)
    UNARY_RANGED(OP_ENTRY) BINARY_RANGED(OP_ENTRY)
    UNARY_VARIANTS(VARIANT_ENTRY) BINARY_VARIANTS(VARIANT_ENTRY)
};
/* clang-format on */

#undef UNARY_OPS
#undef UNARY_VARIANTS
#undef UNARY_TESTS
#undef UNARY_RANGED
#undef BINARY_RANGED
#undef RANGED_LOOP
#undef UNARY_RANGED_KERNEL
#undef BINARY_RANGED_KERNEL
#undef BINARY_OPS
#undef BINARY_VARIANTS
#undef BINARY_TESTS
#undef TERNARY_OPS
#undef AS_IT_IS
#undef UNARY_KERNEL
#undef BINARY_KERNEL
#undef TERNARY_KERNEL
#undef BLOCK
#undef SPREAD
#undef VALUE1
#undef TEST1
#undef VALUE2
#undef TEST2
#undef VALUE3
#undef OP_ENTRY
#undef VARIANT_ENTRY
#undef K
#undef TARGET
