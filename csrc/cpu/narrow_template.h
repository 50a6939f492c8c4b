/* Kernels on a 16-bit format itself, for one instruction set: chunks of sixteen are widened, computed in float32 and rounded once. Needs
 *   T (B16 or H16), FORMAT(name) the name with T behind it, K(name) the name with the level behind it, TARGET function attribute,
 *   MINUS_INFINITY its bits as a signed number.
 * The heavy functions are those of numeric_narrow.h. */

#define KX(name) K(name)
/* clang-format off */
#define UNARY_OPS(X)                                                                                                   \
    LIGHT_UNARY(X) X(exp, amp_exp_f32(x)) X(exp2, amp_exp2_f32(x)) X(expm1, amp_near_expm1(x)) X(log, amp_near_log(x)) \
    X(log2, amp_near_log2(x)) X(log10, amp_near_log10(x)) X(log1p, amp_near_log1p(x)) X(tanh, amp_near_tanh(x))        \
    X(sigmoid, R(sigmoid)(x)) X(silu, R(silu)(x)) X(erf, amp_near_erf(x)) X(erfc, amp_near_erfc(x))                    \
    X(gelu, amp_near_gelu(x)) X(softplus, amp_near_softplus(x, n0, n1)) X(logsigmoid, amp_near_logsigmoid(x))          \
    X(elu, amp_near_elu(x, n0)) X(selu, amp_near_selu(x)) X(celu, amp_near_celu(x, n0)) X(mish, amp_near_mish(x))
/* Beyond the range the float32 kernel's function. */
#define UNARY_RANGED(X) X(sin) X(cos)
#define UNARY_VARIANTS(X) LIGHT_UNARY_VARIANTS(X) X(gelu_tanh, amp_near_gelu_tanh(x))
#define BINARY_OPS(X)                                                                                                  \
    LIGHT_BINARY(X) X(gelu_grad, amp_near_gelu_grad(x, y)) X(silu_grad, R(silu_grad)(x, y))                            \
    X(mish_grad, amp_near_mish_grad(x, y)) X(elu_grad, amp_near_elu_grad(x, y, n0, n1, n2))                            \
    X(softplus_grad, R(softplus_grad)(x, y, w0, w1)) X(glu, x * R(sigmoid)(y)) X(pow, R(pow)(x, y)) X(hypot, R(hypot)(x, y))
#define BINARY_VARIANTS(X) LIGHT_BINARY_VARIANTS(X) X(gelu_tanh_grad, amp_near_gelu_tanh_grad(x, y))
#define TERNARY_OPS(X) LIGHT_TERNARY(X)
/* clang-format on */

TARGET AMP_FN void K(take)(float *to, const T *p, int64_t n) {
    if (n >= AMP_LANES) KX(FORMAT(load))(to, p);
    else KX(FORMAT(part))(to, p, n);
}
TARGET AMP_FN void K(give)(T *p, const float *v, int64_t n) {
    if (n >= AMP_LANES) KX(FORMAT(store))(p, v);
    else KX(FORMAT(store_part))(p, v, n);
}

/* Left a loop until it is vectorised. */
#define EACH_LANE      _Pragma("GCC unroll 1") for (int l = 0; l < AMP_LANES; l++)
#define OUTPUT         T *o = (T *)(void *)out;
#define INPUT(k, name) const T *name = (const T *)(const void *)in[k];
#define CHUNKS(takes, operands, expr) \
    for (int64_t i = 0; i < n; i += AMP_LANES) { \
        float xs[AMP_LANES], ys[AMP_LANES], zs[AMP_LANES], result[AMP_LANES]; \
        (void)xs, (void)ys, (void)zs; \
        takes EACH_LANE { operands result[l] = (float)(expr); } \
        K(give)(o + i, result, n - i); \
    }
#define TAKE(xs, p) K(take)(xs, (p) + i, n - i);
#define UNARY_KERNEL(name, expr) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        (void)scalar; \
        INPUT(0, a) OUTPUT NUMBERS CHUNKS(TAKE(xs, a), const float x = xs[l];, expr) \
    }
#define UNARY_RANGED_KERNEL(name) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        (void)scalar, (void)params; \
        INPUT(0, a) OUTPUT for (int64_t i = 0; i < n; i += AMP_LANES) { \
            float xs[AMP_LANES], result[AMP_LANES]; \
            unsigned outside = 0; \
            TAKE(xs, a) \
            EACH_LANE outside |= (unsigned)!amp_near_##name##_in(xs[l]); \
            EACH_LANE result[l] = amp_near_##name##_near(xs[l]); \
            for (int l = 0; outside && l < AMP_LANES; l++) \
                if (!amp_near_##name##_in(xs[l])) result[l] = R(name)(xs[l]); \
            K(give)(o + i, result, n - i); \
        } \
    }
/* One value is spread over a chunk, which is then taken again and again; by is 0 then. A float32 value counts instead of the operand. */
#define SPREAD(k, p) \
    T spread##k[AMP_LANES]; \
    const int64_t by##k = !(scalar >> k & 1); \
    for (int l = 0; l < AMP_LANES; l++) spread##k[l] = p[0]; \
    if (!by##k) p = spread##k;
#define TAKE_BY(k, xs, p) K(take)(xs, (p) + i * by##k, n - i);
#define WIDE(k, value)    (params->wide >> k & 1 ? params->one[k] : (value))
/* clang-format off */
#define BINARY_KERNEL(name, expr) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const unsigned one = scalar | params->wide; \
        INPUT(0, a) INPUT(1, b) OUTPUT NUMBERS \
        if (one & 1) { \
            const float x = WIDE(0, FORMAT(amp_lane)(a)); \
            SPREAD(1, b) \
            CHUNKS(TAKE_BY(1, ys, b), const float y = ys[l];, expr) \
        } else if (one & 2) { \
            const float y = WIDE(1, FORMAT(amp_lane)(b)); \
            CHUNKS(TAKE(xs, a), const float x = xs[l];, expr) \
        } else { \
            CHUNKS(TAKE(xs, a) TAKE(ys, b), const float x = xs[l]; const float y = ys[l];, expr) \
        } \
    }
#define TERNARY_KERNEL(name, expr) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        INPUT(0, a) INPUT(1, b) INPUT(2, c) OUTPUT NUMBERS SPREAD(0, a) SPREAD(1, b) SPREAD(2, c) \
        const bool wide0 = params->wide & 1, wide1 = params->wide & 2, wide2 = params->wide & 4; \
        const float one0 = params->one[0], one1 = params->one[1], one2 = params->one[2]; \
        CHUNKS(TAKE_BY(0, xs, a) TAKE_BY(1, ys, b) TAKE_BY(2, zs, c), const float x = wide0 ? one0 : xs[l]; \
               const float y = wide1 ? one1 : ys[l]; const float z = wide2 ? one2 : zs[l];, expr) \
    }
/* clang-format on */

/* The sign is a bit; NaN keeps its other bits. */
#define BITS1(name, expr) \
    TARGET static void K(name)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        (void)scalar, (void)params; \
        INPUT(0, a) OUTPUT IVDEP for (int64_t i = 0; i < n; i++) { \
            const unsigned x = a[i]; \
            o[i] = (T)(expr); \
        } \
    }
BITS1(neg, x ^ 0x8000u)
BITS1(abs, x & 0x7fffu)
TARGET static void K(copysign)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) {
    INPUT(0, a) INPUT(1, b) OUTPUT const unsigned size = a[0] & 0x7fffu, sign = b[0] & 0x8000u;
    (void)params;
    if (scalar & 1) IVDEP for (int64_t i = 0; i < n; i++) o[i] = (T)(size | (b[i] & 0x8000u));
    else if (scalar & 2) IVDEP for (int64_t i = 0; i < n; i++) o[i] = (T)((a[i] & 0x7fffu) | sign);
    else IVDEP for (int64_t i = 0; i < n; i++) o[i] = (T)((a[i] & 0x7fffu) | (b[i] & 0x8000u));
}

/* As signed 16-bit numbers: positive values and NaN > 0, 0, then NaN of negative sign down to -1, below them -infinity ... -0, the least.
 *
 *     -32768          MINUS_INFINITY    -1   0   1
 *       -0    ...    -inf |    -NaN        | 0 | 0 <    NaN      */
AMP_FN int K(below_zero)(int16_t x) { return x <= MINUS_INFINITY && x != INT16_MIN; }
AMP_FN int K(at_most_zero)(int16_t x) { return x <= MINUS_INFINITY || x == 0; }
BITS1(relu, K(below_zero)((int16_t)x) ? 0 : x)
TARGET static void K(relu_grad)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) {
    INPUT(0, grad) INPUT(1, y) OUTPUT const T first = grad[0];
    (void)params;
    if (scalar & 2) IVDEP for (int64_t i = 0; i < n; i++) o[i] = K(at_most_zero)((int16_t)y[0]) ? 0 : grad[i];
    else if (scalar & 1) IVDEP for (int64_t i = 0; i < n; i++) o[i] = K(at_most_zero)((int16_t)y[i]) ? 0 : first;
    else IVDEP for (int64_t i = 0; i < n; i++) o[i] = K(at_most_zero)((int16_t)y[i]) ? 0 : grad[i];
}

UNARY_OPS(UNARY_KERNEL)
UNARY_VARIANTS(UNARY_KERNEL)
UNARY_RANGED(UNARY_RANGED_KERNEL)
BINARY_OPS(BINARY_KERNEL)
BINARY_VARIANTS(BINARY_KERNEL)
TERNARY_OPS(TERNARY_KERNEL)

/* clang-format off */
#define OP_ENTRY(name, ...) [OP_##name] = K(name),
#define VARIANT_ENTRY(name, expr) [KERNEL_##name] = K(name),
static const Kernel K(table)[KERNEL_COUNT] = {
    UNARY_OPS(OP_ENTRY) UNARY_RANGED(OP_ENTRY) BINARY_OPS(OP_ENTRY) TERNARY_OPS(OP_ENTRY)
    UNARY_VARIANTS(VARIANT_ENTRY) BINARY_VARIANTS(VARIANT_ENTRY)
    [OP_neg] = K(neg), [OP_abs] = K(abs), [OP_copysign] = K(copysign), [OP_relu] = K(relu),
    [OP_relu_grad] = K(relu_grad),
};
/* clang-format on */

#undef KX
#undef UNARY_OPS
#undef UNARY_RANGED
#undef UNARY_VARIANTS
#undef BINARY_OPS
#undef BINARY_VARIANTS
#undef TERNARY_OPS
#undef EACH_LANE
#undef OUTPUT
#undef INPUT
#undef CHUNKS
#undef TAKE
#undef UNARY_KERNEL
#undef UNARY_RANGED_KERNEL
#undef BINARY_KERNEL
#undef SPREAD
#undef TAKE_BY
#undef WIDE
#undef TERNARY_KERNEL
#undef BITS1
#undef OP_ENTRY
#undef VARIANT_ENTRY
#undef K
#undef TARGET
