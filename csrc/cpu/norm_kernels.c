/* The runs of norm.h for both compute formats. Every instruction set compiles the same expressions and so gives the same bits. */
#include "vectorize.h"

#if !defined(__clang__)
#pragma GCC optimize("no-tree-loop-distribute-patterns") /* a short memset starts slowly */
#endif

#include <string.h>

#include "norm.h"

enum { LANES = 16, WIDTH = 32, BLOCK = 8 };

#define LOOP         IVDEP for (int64_t i = 0; i < n; i++)
#define IN(T, name)  ((const T *)(const void *)(name))
#define OUT(T, name) ((T *)(void *)(name))
/* Four or eight values as float64: what an instruction set holds in a register. */
typedef double Wide4 __attribute__((vector_size(32)));
typedef float Narrow4 __attribute__((vector_size(16)));
typedef double Wide8 __attribute__((vector_size(64)));
typedef float Narrow8 __attribute__((vector_size(32)));
typedef float Narrow16 __attribute__((vector_size(64)));
#define LOAD_F64(W, name, p) memcpy(&name, p, sizeof name)
#define LOAD_F32(W, name, p) \
    do { \
        Narrow##W v_; \
        memcpy(&v_, p, sizeof v_); \
        name = __builtin_convertvector(v_, Wide##W); \
    } while (0)
#define SUM_OF_8(v) ((((v)[0] + (v)[4]) + ((v)[2] + (v)[6])) + (((v)[1] + (v)[5]) + ((v)[3] + (v)[7])))
/* Two sums over 16 lanes, element k in lane k % 16 whatever the register. `set` forms `first` and `second` of the W elements from k on,
 * `set_one` those of element k. */
#define LANE_SUMS(W, set, set_one) \
    double lane[2][LANES]; \
    Wide##W s[LANES / W] = {{0}}, t[LANES / W] = {{0}}; \
    int64_t at = 0; \
    for (; at + LANES <= n; at += LANES) { \
        _Pragma("GCC unroll 4") for (int v = 0; v < LANES / W; v++) { \
            const int64_t k = at + v * W; \
            Wide##W first, second; \
            set; \
            s[v] += first, t[v] += second; \
        } \
    } \
    memcpy(lane[0], s, sizeof s), memcpy(lane[1], t, sizeof t); \
    for (int64_t k = at; k < n; k++) { \
        double one, other; \
        set_one; \
        lane[0][k - at] += one; \
        lane[1][k - at] += other; \
    } \
    for (int j = 0; j < 2; j++) { \
        for (int l = 0; l < 8; l++) lane[j][l] += lane[j][l + 8]; \
        sums[j] += SUM_OF_8(lane[j]); \
    }
/* The same sums with WIDTH lanes of the values' own format, which go over to float64 every BLOCK elements: at most BLOCK roundings more per
 * element, for less than half the work. One load walks each operand in order: hardware prefetches that, and not eight walks abreast. */
#define QUICK_SUMS(V, REAL, set, set_one) \
    enum { VECTORS = WIDTH * sizeof(REAL) / sizeof(V), STEP = WIDTH / VECTORS }; \
    double lane_[2][WIDTH], sums[2]; \
    int64_t at_ = 0; \
    for (int l = 0; l < WIDTH; l++) lane_[0][l] = lane_[1][l] = 0; \
    while (at_ + WIDTH <= n) { \
        REAL block_[2][WIDTH]; \
        V s_[VECTORS] = {{0}}, t_[VECTORS] = {{0}}; \
        for (int few_ = 0; few_ < BLOCK && at_ + WIDTH <= n; few_++, at_ += WIDTH) { \
            _Pragma("GCC unroll 8") for (int v_ = 0; v_ < (int)VECTORS; v_++) { \
                const int64_t k = at_ + v_ * (int)STEP; \
                V a, b = {0}; \
                set; \
                s_[v_] += a, t_[v_] += b; \
            } \
        } \
        memcpy(block_[0], s_, sizeof s_), memcpy(block_[1], t_, sizeof t_); \
        for (int l = 0; l < WIDTH; l++) lane_[0][l] += (double)block_[0][l], lane_[1][l] += (double)block_[1][l]; \
    } \
    for (int64_t k = at_; k < n; k++) { \
        REAL a, b = 0; \
        set_one; \
        lane_[0][k - at_] += (double)a; \
        lane_[1][k - at_] += (double)b; \
    } \
    for (int half_ = WIDTH / 2; half_ >= 8; half_ /= 2) \
        for (int l = 0; l < half_; l++) lane_[0][l] += lane_[0][l + half_], lane_[1][l] += lane_[1][l + half_]; \
    for (int j_ = 0; j_ < 2; j_++) sums[j_] = SUM_OF_8(lane_[j_]);
#define GET(name, p) memcpy(&name, p, sizeof name)
#define OFF(k, at)   ((double)x[k] - (at))

#define BODIES(K, T, REAL, V, W, LOAD, TARGET) \
    TARGET static void moments_##K(const char *x_, int64_t n, double shift, double *sums) { \
        const T *x = IN(T, x_); \
        LANE_SUMS(W, LOAD(W, first, x + k); first -= shift; second = first * first, one = OFF(k, shift); other = one * one) \
    } \
    TARGET static void scale_##K(const char *x_, char *y_, int64_t n, const NormMean *mean, double a_, double b_) { \
        const T *x = IN(T, x_); \
        T *y = OUT(T, y_); \
        const REAL hi = (REAL)mean->hi, lo = (REAL)mean->lo, a = (REAL)a_, b = (REAL)b_; \
        LOOP y[i] = ((x[i] - hi) - lo) * a + b; \
    } \
    TARGET static void scale_each_##K(const char *x_, char *y_, int64_t n, const NormMean *mean, double a_, const char *w_, \
                                      const char *b_) { \
        const T *x = IN(T, x_), *w = IN(T, w_), *b = IN(T, b_); \
        T *y = OUT(T, y_); \
        const REAL hi = (REAL)mean->hi, lo = (REAL)mean->lo, a = (REAL)a_; \
        if (w && b) LOOP y[i] = (((x[i] - hi) - lo) * a) * w[i] + b[i]; \
        else if (w) LOOP y[i] = (((x[i] - hi) - lo) * a) * w[i]; \
        else if (b) LOOP y[i] = ((x[i] - hi) - lo) * a + b[i]; \
        else LOOP y[i] = ((x[i] - hi) - lo) * a; \
    } \
    TARGET static void dots_##K(const char *g_, const char *x_, int64_t n, double mean, double *sums) { \
        const T *g = IN(T, g_), *x = IN(T, x_); \
        LANE_SUMS(W, LOAD(W, first, g + k); LOAD(W, second, x + k); second = (second - mean) * first, one = (double)g[k]; \
                  other = OFF(k, mean) * one) \
    } \
    TARGET static void dots_each_##K(const char *g_, const char *x_, int64_t n, double mean, const char *w_, double *sums) { \
        const T *g = IN(T, g_), *x = IN(T, x_), *w = IN(T, w_); \
        if (!w) { \
            dots_##K(g_, x_, n, mean, sums); \
            return; \
        } \
        Wide##W u; \
        LANE_SUMS(W, LOAD(W, first, g + k); LOAD(W, u, w + k); LOAD(W, second, x + k); first *= u; \
                  second = (second - mean) * first, one = (double)g[k] * (double)w[k]; other = OFF(k, mean) * one) \
    } \
    TARGET static double total_##K(const char *x_, int64_t n) { \
        const T *x = IN(T, x_); \
        QUICK_SUMS(V, REAL, GET(a, x + k), a = x[k]) \
        return sums[0]; \
    } \
    TARGET static double average_##K(const char *x_) { \
        const T *x = IN(T, x_); \
        REAL lane[LANES]; \
        for (int l = 0; l < LANES; l++) lane[l] = (x[l] + x[l + LANES]) + (x[l + 2 * LANES] + x[l + 3 * LANES]); \
        for (int l = 0; l < 8; l++) lane[l] += lane[l + 8]; \
        return (double)SUM_OF_8(lane) / (4 * LANES); \
    } \
    TARGET static void quick_moments_##K(const char *x_, int64_t n, double shift, double *sums_) { \
        const T *x = IN(T, x_); \
        const REAL from = (REAL)shift; \
        QUICK_SUMS(V, REAL, GET(a, x + k); a -= from; b = a * a, a = x[k] - from; b = a * a) \
        sums_[0] += sums[0]; \
        sums_[1] += sums[1]; \
    } \
    TARGET static void quick_dots_##K(const char *g_, const char *x_, int64_t n, const NormMean *mean, const char *w_, \
                                      double *sums_) { \
        const T *g = IN(T, g_), *x = IN(T, x_), *w = IN(T, w_); \
        const REAL hi = (REAL)mean->hi; \
        if (w) { \
            V u; \
            QUICK_SUMS(V, REAL, GET(a, g + k); GET(u, w + k); GET(b, x + k); a *= u; b = a * (b - hi), a = g[k] * w[k]; \
                       b = a * (x[k] - hi)) \
            sums_[0] += sums[0]; \
            sums_[1] += sums[1] - mean->lo * sums[0]; \
        } else { \
            QUICK_SUMS(V, REAL, GET(a, g + k); GET(b, x + k); b = a * (b - hi), a = g[k]; b = a * (x[k] - hi)) \
            sums_[0] += sums[0]; \
            sums_[1] += sums[1] - mean->lo * sums[0]; \
        } \
    } \
    TARGET static void add_each_##K(const char *g_, const char *x_, int64_t n, const NormMean *mean, double rstd_, char *dw_, \
                                    char *db_) { \
        const T *g = IN(T, g_), *x = IN(T, x_); \
        T *dw = OUT(T, dw_), *db = OUT(T, db_); \
        const REAL hi = (REAL)mean->hi, lo = (REAL)mean->lo, rstd = (REAL)rstd_; \
        if (dw) LOOP dw[i] += g[i] * (((x[i] - hi) - lo) * rstd); \
        if (db) LOOP db[i] += g[i]; \
    } \
    TARGET static void add_##K(const char *x_, int64_t n, double *sums) { \
        const T *x = IN(T, x_); \
        LOOP sums[i] += (double)x[i]; \
    } \
    TARGET static void grad_##K(const char *g_, const char *x_, char *dx_, int64_t n, const NormMean *mean, double p_, \
                                double q_, double r_) { \
        const T *g = IN(T, g_), *x = IN(T, x_); \
        T *dx = OUT(T, dx_); \
        const REAL hi = (REAL)mean->hi, lo = (REAL)mean->lo, p = (REAL)p_, q = (REAL)q_, r = (REAL)r_; \
        LOOP dx[i] = p * g[i] + (q * ((x[i] - hi) - lo) + r); \
    } \
    TARGET static void grad_each_##K(const char *g_, const char *x_, char *dx_, int64_t n, const NormMean *mean, const char *w_, \
                                     double p_, double q_, double r_) { \
        const T *g = IN(T, g_), *x = IN(T, x_), *w = IN(T, w_); \
        T *dx = OUT(T, dx_); \
        const REAL hi = (REAL)mean->hi, lo = (REAL)mean->lo, p = (REAL)p_, q = (REAL)q_, r = (REAL)r_; \
        if (w) LOOP dx[i] = p * (g[i] * w[i]) + (q * ((x[i] - hi) - lo) + r); \
        else LOOP dx[i] = p * g[i] + (q * ((x[i] - hi) - lo) + r); \
    } \
    TARGET static void grad_add_##K(const char *g_, const char *x_, char *dx_, int64_t n, const NormMean *mean, const char *w_, \
                                    double rstd_, double q_, double r_, char *dw_, char *db_) { \
        const T *g = IN(T, g_), *x = IN(T, x_), *w = IN(T, w_); \
        T *dx = OUT(T, dx_), *dw = OUT(T, dw_), *db = OUT(T, db_); \
        const REAL hi = (REAL)mean->hi, lo = (REAL)mean->lo, p = (REAL)rstd_, q = (REAL)q_, r = (REAL)r_; \
        LOOP { \
            REAL gi = g[i], xm = (x[i] - hi) - lo; \
            dw[i] += gi * (xm * p); \
            db[i] += gi; \
            dx[i] = p * (w ? gi * w[i] : gi) + (q * xm + r); \
        } \
    } \
    TARGET static void column_moments_##K(const char *x_, int64_t n, const double *shift, double *s, double *s2) { \
        const T *x = IN(T, x_); \
        LOOP { \
            double d = OFF(i, shift[i]); \
            s[i] += d; \
            s2[i] += d * d; \
        } \
    } \
    TARGET static void column_quick_moments_##K(const char *x_, int64_t step, int64_t rows, int64_t n, const char *shift_, \
                                                double *s, double *s2) { \
        const T *x = IN(T, x_), *shift = IN(T, shift_); \
        for (; rows >= BLOCK; rows -= BLOCK, x += BLOCK * step) LOOP { \
                REAL a = 0, b = 0; \
                _Pragma("GCC unroll 8") for (int r = 0; r < BLOCK; r++) { \
                    const REAL d = x[r * step + i] - shift[i]; \
                    a += d, b += d * d; \
                } \
                s[i] += (double)a, s2[i] += (double)b; \
            } \
        for (; rows > 0; rows--, x += step) LOOP { \
                const REAL d = x[i] - shift[i], square = d * d; \
                s[i] += (double)d, s2[i] += (double)square; \
            } \
    } \
    TARGET static void column_quick_dots_##K(const char *g_, int64_t g_step, const char *x_, int64_t x_step, int64_t rows, \
                                             int64_t n, const char *hi_, double *s, double *sx) { \
        const T *g = IN(T, g_), *x = IN(T, x_), *hi = IN(T, hi_); \
        for (; rows >= BLOCK; rows -= BLOCK, g += BLOCK * g_step, x += BLOCK * x_step) LOOP { \
                REAL a = 0, b = 0; \
                _Pragma("GCC unroll 8") for (int r = 0; r < BLOCK; r++) { \
                    const REAL d = g[r * g_step + i]; \
                    a += d, b += d * (x[r * x_step + i] - hi[i]); \
                } \
                s[i] += (double)a, sx[i] += (double)b; \
            } \
        for (; rows > 0; rows--, g += g_step, x += x_step) LOOP { \
                const REAL d = g[i], product = d * (x[i] - hi[i]); \
                s[i] += (double)d, sx[i] += (double)product; \
            } \
    } \
    TARGET static void column_scale_##K(const char *x_, char *y_, int64_t n, const char *hi_, const char *lo_, const char *a_, \
                                        const char *b_) { \
        const T *x = IN(T, x_), *hi = IN(T, hi_), *lo = IN(T, lo_), *a = IN(T, a_), *b = IN(T, b_); \
        T *y = OUT(T, y_); \
        LOOP y[i] = ((x[i] - hi[i]) - lo[i]) * a[i] + b[i]; \
    } \
    TARGET static void column_dots_##K(const char *g_, const char *x_, int64_t n, const double *mean, double *s, double *sx) { \
        const T *g = IN(T, g_), *x = IN(T, x_); \
        LOOP { \
            s[i] += (double)g[i]; \
            sx[i] += (double)g[i] * OFF(i, mean[i]); \
        } \
    } \
    TARGET static void column_grad_##K(const char *g_, const char *x_, char *dx_, int64_t n, const char *hi_, const char *lo_, \
                                       const char *p_, const char *q_, const char *r_) { \
        const T *g = IN(T, g_), *x = IN(T, x_), *hi = IN(T, hi_), *lo = IN(T, lo_), *p = IN(T, p_), *q = IN(T, q_); \
        const T *r = IN(T, r_); \
        T *dx = OUT(T, dx_); \
        LOOP dx[i] = p[i] * g[i] + (q[i] * ((x[i] - hi[i]) - lo[i]) + r[i]); \
    } \
    static const NormKernels kernels_##K = {total_##K, \
                                            quick_moments_##K, \
                                            quick_dots_##K, \
                                            add_##K, \
                                            moments_##K, \
                                            scale_##K, \
                                            scale_each_##K, \
                                            dots_##K, \
                                            dots_each_##K, \
                                            add_each_##K, \
                                            grad_##K, \
                                            grad_each_##K, \
                                            grad_add_##K, \
                                            column_moments_##K, \
                                            column_scale_##K, \
                                            column_dots_##K, \
                                            column_grad_##K, \
                                            column_quick_moments_##K, \
                                            column_quick_dots_##K, \
                                            average_##K};

#define NO_TARGET
BODIES(f64, F64, double, Wide4, 4, LOAD_F64, NO_TARGET)
BODIES(f32_baseline, F32, float, Narrow4, 4, LOAD_F32, NO_TARGET)
#if defined(__x86_64__)
BODIES(f32_avx2, F32, float, Narrow8, 4, LOAD_F32, __attribute__((target("avx2"))))
BODIES(f32_avx512, F32, float, Narrow16, 8, LOAD_F32,
       __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512"))))
#endif

const NormKernels *amp_norm_kernels(int compute_dtype) {
    if (compute_dtype == AMP_FLOAT64) return &kernels_f64;
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return &kernels_f32_avx512;
    if (isa >= ISA_AVX2) return &kernels_f32_avx2;
#endif
    return &kernels_f32_baseline;
}
