/* Integer kernels for one type and one instruction set. Needs
 *   T (stored type), BITS, UNSIGNED (the unsigned type in which T's arithmetic wraps: T's width, but not below int's), K(name), TARGET.
 * Only what a compiler turns into vector code; the other ops are computed in 64 bits. Numbers of the call fit T, or wrap like T. */

#define N0        ((T)params->i[0])
#define N1        ((T)params->i[1])
#define WRAP(e)   ((T)(e))
#define W(x)      ((UNSIGNED)(x))
#define BELOW0(x) ((T)-1 < (T)1 && x >> (BITS - 1) != 0)
/* clang-format off */
#define UNARY_OPS(X)                                                                                                   \
    X(abs, BELOW0(x) ? WRAP(0 - W(x)) : x) X(neg, WRAP(0 - W(x))) X(square, WRAP(W(x) * W(x))) X(sign, WRAP((x > 0) - BELOW0(x))) \
    X(relu, x > 0 ? x : WRAP(0)) X(bitwise_not, WRAP(~x)) X(threshold, x <= N0 ? N1 : x)                               \
    X(clamp, (x < N0 ? N0 : x) > N1 ? N1 : (x < N0 ? N0 : x)) X(hardtanh, (x < N0 ? N0 : x) > N1 ? N1 : (x < N0 ? N0 : x))
#define UNARY_VARIANTS(X) X(clamp_low, x < N0 ? N0 : x) X(clamp_high, x > N1 ? N1 : x)
#define BINARY_OPS(X)                                                                                                  \
    X(add, WRAP(W(x) + W(y))) X(sub, WRAP(W(x) - W(y))) X(mul, WRAP(W(x) * W(y)))                                      \
    X(maximum, x > y ? x : y) X(minimum, x < y ? x : y) X(fmax, x > y ? x : y) X(fmin, x < y ? x : y)                  \
    X(bitwise_and, WRAP(x & y)) X(bitwise_or, WRAP(x | y)) X(bitwise_xor, WRAP(x ^ y)) X(relu_grad, y > 0 ? x : WRAP(0)) \
    X(bitwise_left_shift, W(y) > BITS - 1 ? WRAP(0) : WRAP(W(x) << (y & (BITS - 1))))                            \
    X(bitwise_right_shift, W(y) > BITS - 1 ? BELOW0(x) ? WRAP(-1) : WRAP(0) : WRAP(x >> (y & (BITS - 1))))
#define BINARY_VARIANTS(X) X(add_alpha, WRAP(W(x) + W(N0) * W(y))) X(sub_alpha, WRAP(W(x) - W(N0) * W(y)))
#define UNARY_TESTS(X) X(logical_not, x == 0)
#define BINARY_TESTS(X)                                                                                                \
    X(eq, x == y) X(ne, x != y) X(lt, x < y) X(le, x <= y) X(gt, x > y) X(ge, x >= y)                                  \
    X(logical_and, (x != 0) & (y != 0)) X(logical_or, (x != 0) | (y != 0)) X(logical_xor, (x != 0) != (y != 0))
/* clang-format on */

#define UNARY_KERNEL(name, OUT, expr) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const T *a = (const T *)(const void *)in[0]; \
        OUT *o = (OUT *)(void *)out; \
        (void)scalar, (void)params; \
        IVDEP for (int64_t i = 0; i < n; i++) { \
            const T x = a[i]; \
            o[i] = expr; \
        } \
    }
#define BINARY_LOOP(X, Y, expr) \
    IVDEP for (int64_t i = 0; i < n; i++) { \
        const T x = X, y = Y; \
        o[i] = expr; \
    }
#define BINARY_KERNEL(name, OUT, expr) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const T *a = (const T *)(const void *)in[0], *b = (const T *)(const void *)in[1], first = a[0], second = b[0]; \
        OUT *o = (OUT *)(void *)out; \
        (void)params; \
        if (scalar & 1) BINARY_LOOP(first, b[i], expr) \
        else if (scalar & 2) BINARY_LOOP(a[i], second, expr) \
        else BINARY_LOOP(a[i], b[i], expr) \
    }

#define VALUE1(name, expr) UNARY_KERNEL(name, T, expr)
#define VALUE2(name, expr) BINARY_KERNEL(name, T, expr)
#define TEST1(name, expr)  UNARY_KERNEL(name, U8, expr)
#define TEST2(name, expr)  BINARY_KERNEL(name, U8, expr)
UNARY_OPS(VALUE1)
UNARY_VARIANTS(VALUE1)
UNARY_TESTS(TEST1)
BINARY_OPS(VALUE2)
BINARY_VARIANTS(VALUE2)
BINARY_TESTS(TEST2)

/* clang-format off */
#define OP_ENTRY(name, ...) [OP_##name] = K(name),
#define VARIANT_ENTRY(name, expr) [KERNEL_##name] = K(name),
static const Kernel K(table)[KERNEL_COUNT] = {
    UNARY_OPS(OP_ENTRY) UNARY_TESTS(OP_ENTRY) BINARY_OPS(OP_ENTRY) BINARY_TESTS(OP_ENTRY)
    UNARY_VARIANTS(VARIANT_ENTRY) BINARY_VARIANTS(VARIANT_ENTRY)
};
/* clang-format on */

#undef N0
#undef N1
#undef WRAP
#undef W
#undef BELOW0
#undef UNARY_OPS
#undef UNARY_VARIANTS
#undef UNARY_TESTS
#undef BINARY_OPS
#undef BINARY_VARIANTS
#undef BINARY_TESTS
#undef UNARY_KERNEL
#undef BINARY_LOOP
#undef BINARY_KERNEL
#undef VALUE1
#undef VALUE2
#undef TEST1
#undef TEST2
#undef OP_ENTRY
#undef VARIANT_ENTRY
#undef T
#undef BITS
#undef UNSIGNED
#undef K
#undef TARGET
