/* Normalisation: runs of values, and the walks of norm.c over rows, groups and channels that feed them. */
#ifndef AMP_NORM_H
#define AMP_NORM_H
#include "../core/backend.h"

/* A mean in two parts, so that x - mean loses nothing where all x are near the mean: (x - hi) is exact there, and lo is what rounding the
 * mean to the compute format took away. */
typedef struct NormMean {
    double value, hi, lo;
} NormMean;

enum { NORM_SAMPLE = 64 };

/* Runs of n dense values of one compute format, float or double; sums are float64. w, b, hi .. r: dense, of that format. `quick` sums are
 * formed by eights in the compute format, whose range they may leave: then they are not finite, or tiny.
 *
 *   total         sum of x, quick
 *   quick_moments as moments
 *   quick_dots    as dots_each
 *   add           sums[i] += x
 *   moments       sums[0] += sum of x - shift, sums[1] += sum of (x - shift)^2
 *   scale         y = (x - mean) a + b
 *   scale_each    y = (x - mean) a w[i] + b[i]; w and b may be NULL
 *   dots          sums[0] += sum of g, sums[1] += sum of g (x - mean)
 *   dots_each     the same with g w[i] for g; w may be NULL
 *   add_each      dw[i] += g (x - mean) rstd, db[i] += g; dw and db of the compute format, or NULL
 *   grad          dx = p g + (q (x - mean) + r)
 *   grad_each     the same with g w[i] for g; w may be NULL
 *   grad_add      grad_each with p = rstd, and add_each
 *   average       of NORM_SAMPLE values, roughly
 *   column_*      the same where every element has a mean and factors of its own. column_quick_*: of `rows` rows, `step` elements apart;
 *                 shift and hi: of the compute format, nothing is taken out for lo */
typedef struct NormKernels {
    double (*total)(const char *x, int64_t n);
    void (*quick_moments)(const char *x, int64_t n, double shift, double *sums);
    void (*quick_dots)(const char *g, const char *x, int64_t n, const NormMean *mean, const char *w, double *sums);
    void (*add)(const char *x, int64_t n, double *sums);
    void (*moments)(const char *x, int64_t n, double shift, double *sums);
    void (*scale)(const char *x, char *y, int64_t n, const NormMean *mean, double a, double b);
    void (*scale_each)(const char *x, char *y, int64_t n, const NormMean *mean, double a, const char *w, const char *b);
    void (*dots)(const char *g, const char *x, int64_t n, double mean, double *sums);
    void (*dots_each)(const char *g, const char *x, int64_t n, double mean, const char *w, double *sums);
    void (*add_each)(const char *g, const char *x, int64_t n, const NormMean *mean, double rstd, char *dw, char *db);
    void (*grad)(const char *g, const char *x, char *dx, int64_t n, const NormMean *mean, double p, double q, double r);
    void (*grad_each)(const char *g, const char *x, char *dx, int64_t n, const NormMean *mean, const char *w, double p, double q,
                      double r);
    void (*grad_add)(const char *g, const char *x, char *dx, int64_t n, const NormMean *mean, const char *w, double rstd,
                     double q, double r, char *dw, char *db);
    void (*column_moments)(const char *x, int64_t n, const double *shift, double *s, double *s2);
    void (*column_scale)(const char *x, char *y, int64_t n, const char *hi, const char *lo, const char *a, const char *b);
    void (*column_dots)(const char *g, const char *x, int64_t n, const double *mean, double *s, double *sx);
    void (*column_grad)(const char *g, const char *x, char *dx, int64_t n, const char *hi, const char *lo, const char *p,
                        const char *q, const char *r);
    void (*column_quick_moments)(const char *x, int64_t step, int64_t rows, int64_t n, const char *shift, double *s, double *s2);
    void (*column_quick_dots)(const char *g, int64_t g_step, const char *x, int64_t x_step, int64_t rows, int64_t n,
                              const char *hi, double *s, double *sx);
    double (*average)(const char *x);
} NormKernels;

/* For FLOAT32 or FLOAT64, at the instruction-set level in use. */
const NormKernels *amp_norm_kernels(int compute_dtype);

Status amp_normalize(const Call *call);
Status amp_normalize_grad(const Call *call);

#endif
