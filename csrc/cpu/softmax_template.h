/* The runs of softmax.h for one type and one instruction set. Needs
 *   T (stored type), REAL (its value type), UNIT_EXP(x) = UNIT exp(x), LOG(x) of float64, K(name) kernel name, TARGET function
 *   attribute, WIDE: WIDTH doubles, NARROW: so many REAL, STREAM.
 * Lanes do not depend on the vector width, and nothing is contracted: every instruction set that has the same UNIT_EXP gives the same
 * bits. */

#define LOOP         IVDEP for (int64_t i = 0; i < n; i++)
#define IN(name)     ((const T *)(const void *)(name))
#define OUT(name)    ((T *)(void *)(name))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

/* The sum and the maximum over lanes: halves by vectors, then single values, because a vector read from where single values were just
 * written waits for them. */
TARGET static inline __attribute__((always_inline)) double K(total)(double *lane) {
    for (int l = 0; l < 8; l++) lane[l] += lane[l + 8];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

TARGET static inline __attribute__((always_inline)) REAL K(top)(REAL *lane) {
    for (int l = 0; l < 8; l++) lane[l] = LARGER(lane[l + 8], lane[l]);
    REAL a = LARGER(lane[4], lane[0]), b = LARGER(lane[5], lane[1]), c = LARGER(lane[6], lane[2]), d = LARGER(lane[7], lane[3]);
    a = LARGER(c, a), b = LARGER(d, b);
    return LARGER(b, a);
}

TARGET static double K(max)(const char *x_, int64_t n) {
    const T *x = IN(x_);
    REAL wide[4 * LANES], *lane = wide;
    int64_t i = 0;
    for (int l = 0; l < LANES; l++) lane[l] = -(REAL)INFINITY;
    if (n >= 4 * LANES) {
        for (int l = 0; l < 4 * LANES; l++) wide[l] = -(REAL)INFINITY;
        for (; i + 4 * LANES <= n; i += 4 * LANES)
            for (int l = 0; l < 4 * LANES; l++) wide[l] = LARGER(x[i + l], wide[l]);
        for (int l = 0; l < 2 * LANES; l++) wide[l] = LARGER(wide[l + 2 * LANES], wide[l]);
        for (int l = 0; l < LANES; l++) wide[l] = LARGER(wide[l + LANES], wide[l]);
    }
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] = LARGER(x[i + l], lane[l]);
    REAL top = K(top)(lane);
    for (; i < n; i++) top = LARGER(x[i], top);
    return (double)top;
}

/* Sums of positive values: four in their own format, then float64. What is fetched lies ahead: exponentials take longer than memory does,
 * the search for the maximum that follows does not. */
TARGET static inline __attribute__((always_inline)) double K(exp_sum_body)(const T *x, T *o, int64_t n, const REAL m,
                                                                           const char *ahead, int64_t ahead_item) {
    WIDE sums[LANES / WIDTH] = {{0}};
    double lane[LANES];
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        REAL e[4 * LANES], four[LANES];
        for (int64_t line = 0; ahead && line < 4 * LANES * ahead_item; line += CACHE_LINE)
            __builtin_prefetch(ahead + i * ahead_item + line);
        for (int k = 0; k < 4 * LANES; k++) e[k] = UNIT_EXP(x[i + k] - m);
        if (o) memcpy(o + i, e, sizeof e);
        for (int l = 0; l < LANES; l++) four[l] = (e[l] + e[l + LANES]) + (e[l + 2 * LANES] + e[l + 3 * LANES]);
        _Pragma("GCC unroll 4") for (int v = 0; v < LANES / WIDTH; v++) {
            NARROW part;
            memcpy(&part, four + v * WIDTH, sizeof part);
            sums[v] += __builtin_convertvector(part, WIDE);
        }
    }
    memcpy(lane, sums, sizeof lane);
    for (; i + LANES <= n; i += LANES) {
        REAL e[LANES];
        for (int l = 0; l < LANES; l++) e[l] = UNIT_EXP(x[i + l] - m);
        if (o) memcpy(o + i, e, sizeof e);
        for (int l = 0; l < LANES; l++) lane[l] += (double)e[l];
    }
    for (int l = 0; i < n; i++, l++) {
        REAL e = UNIT_EXP(x[i] - m);
        if (o) o[i] = e;
        lane[l] += (double)e;
    }
    return K(total)(lane);
}

TARGET static double K(exp_sum)(const char *x, char *out, int64_t n, double m, const char *ahead, int64_t ahead_item) {
    if (out) return K(exp_sum_body)(IN(x), OUT(out), n, (REAL)m, NULL, 0);
    if (ahead) return K(exp_sum_body)(IN(x), NULL, n, (REAL)m, ahead, ahead_item);
    return K(exp_sum_body)(IN(x), NULL, n, (REAL)m, NULL, 0);
}

TARGET static void K(scale)(char *out, int64_t n, double factor_) {
    T *o = OUT(out);
    const REAL factor = (REAL)factor_;
    LOOP o[i] = o[i] * factor;
}

TARGET static void K(shift)(const char *x_, char *out, int64_t n, double a_, double b_) {
    const T *x = IN(x_);
    T *o = OUT(out);
    const REAL a = (REAL)a_, b = (REAL)b_;
    LOOP o[i] = (x[i] - a) - b;
}

#define LANE_SUM(name, expr) \
    double name; \
    { \
        double lane[LANES] = {0}; \
        int64_t i = 0; \
        for (; i + LANES <= n; i += LANES) \
            for (int l = 0; l < LANES; l++) lane[l] += expr(i + l); \
        for (int l = 0; i < n; i++, l++) lane[l] += expr(i); \
        name = K(total)(lane); \
    }
#define VALUE(k)    ((double)x[k])
#define WEIGHTED(k) ((double)x[k] * w[k])
#define PRODUCT(k)  ((double)g[k] * (double)y[k])
#define GRADIENT(k) ((double)g[k])

TARGET static double K(sum)(const char *x_, int64_t n) {
    const T *x = IN(x_);
    LANE_SUM(s, VALUE)
    return s;
}

TARGET static double K(weighted_sum)(const char *x_, const double *w, int64_t n) {
    const T *x = IN(x_);
    LANE_SUM(s, WEIGHTED)
    return s;
}

TARGET static void K(softmax_grad)(const char *grad, const char *output, char *out, int64_t n) {
    const T *g = IN(grad), *y = IN(output);
    T *o = OUT(out);
    LANE_SUM(s, PRODUCT)
    const REAL hi = (REAL)s; /* s in two parts, so that g - s loses nothing where g is near it */
    const double rest = s - (double)hi;
    const REAL lo = rest == rest ? (REAL)rest : 0;
    LOOP o[i] = y[i] * ((g[i] - hi) - lo);
}

TARGET static void K(log_softmax_grad)(const char *grad, const char *output, char *out, int64_t n) {
    const T *g = IN(grad), *y = IN(output);
    T *o = OUT(out);
    LANE_SUM(s, GRADIENT)
    const REAL factor = (REAL)(s * (1.0 / UNIT));
    LOOP o[i] = g[i] - UNIT_EXP(y[i]) * factor;
}

TARGET static void K(slope)(const char *x_, char *out, int64_t n, double m_, double factor_, double less_, bool stream) {
    const T *x = IN(x_);
    T *o = OUT(out);
    const REAL m = (REAL)m_, factor = (REAL)(factor_ * (1.0 / UNIT)), less = (REAL)less_;
    if (stream) {
        int64_t before = (int64_t)(-(uintptr_t)o % CACHE_LINE / sizeof(T));
        before = before < n ? before : n;
        for (int64_t i = 0; i < before; i++) o[i] = UNIT_EXP(x[i] - m) * factor - less;
        x += before, o += before, n -= before;
        for (; n >= 4 * LANES; x += 4 * LANES, o += 4 * LANES, n -= 4 * LANES) {
            _Alignas(CACHE_LINE) REAL v[4 * LANES];
            for (int k = 0; k < 4 * LANES; k++) v[k] = UNIT_EXP(x[k] - m) * factor - less;
            for (size_t k = 0; k < sizeof v; k += STREAM_BYTES) STREAM((char *)o + k, (const char *)v + k);
        }
        STREAMED;
    }
    LOOP o[i] = UNIT_EXP(x[i] - m) * factor - less;
}

TARGET static void K(subtract_each)(char *x_, const double *w, int64_t n, double factor) {
    T *x = OUT(x_);
    LOOP x[i] = (REAL)((double)x[i] - w[i] * factor);
}

#include "softmax_columns.h"

static const SoftmaxKernels K(kernels) = {UNIT,
                                          K(max),
                                          K(exp_sum),
                                          K(scale),
                                          K(shift),
                                          K(sum),
                                          K(weighted_sum),
                                          K(softmax_grad),
                                          K(log_softmax_grad),
                                          K(slope),
                                          K(subtract_each),
                                          K(columns_softmax),
                                          K(columns_log_softmax),
                                          K(columns_softmax_grad),
                                          K(columns_log_softmax_grad),
                                          K(columns_top_sum),
                                          K(columns_slope)};

#undef LOOP
#undef IN
#undef OUT
#undef LARGER
#undef LANE_SUM
#undef VALUE
#undef WEIGHTED
#undef PRODUCT
#undef GRADIENT
#undef K
#undef TARGET
#undef WIDTH
#undef WIDE
#undef NARROW
#undef STREAM
#undef STREAM_BYTES
