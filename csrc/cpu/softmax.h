/* Softmax and cross entropy: runs of values, and the walks of softmax.c and cross_entropy.c that feed them. */
#ifndef AMP_SOFTMAX_H
#define AMP_SOFTMAX_H
#include "../core/backend.h"

/* Runs of n dense values of one format, float or double; sums and w are float64.
 *
 *   max               the largest value; NaN does not count, nothing gives -inf
 *   exp_sum           out = unit exp(x - m), returns their sum; out may be NULL. ahead: n elements of ahead_item bytes that are fetched
 *                     meanwhile, or NULL
 *   scale             x = x factor
 *   shift             out = (x - a) - b
 *   sum, weighted_sum sum of x, of w x
 *   softmax_grad      out = y (g - sum of g y)
 *   log_softmax_grad  out = g - exp(y) sum of g
 *   slope             out = exp(x - m) factor - less, stored around the caches if `stream`; then out is aligned to its elements
 *   subtract_each     x = x - w factor
 *
 * columns_: n rows of w dense values, at most AMP_COLUMNS, rows `step` bytes apart: the same down each column, which is a line.
 *   columns_top_sum   per column the largest value, sum of exp(x - top) (without the unit) and its logarithm
 *   columns_slope     out = exp(x - top) factor
 *
 * unit keeps small exponentials out of the denormal range; it is a power of two. Output and input may coincide. float: relative error of
 * exp(x - m) below (|x - m| + 2) 2^-24. */
enum { AMP_COLUMNS = 256 };

typedef void (*ColumnsFn)(const char *x, int64_t step, char *out, int64_t out_step, int64_t n, int64_t w);
typedef void (*ColumnsGradFn)(const char *g, int64_t g_step, const char *y, int64_t y_step, char *out, int64_t out_step,
                              int64_t n, int64_t w);
typedef struct SoftmaxKernels {
    double unit;
    double (*max)(const char *x, int64_t n);
    double (*exp_sum)(const char *x, char *out, int64_t n, double m, const char *ahead, int64_t ahead_item);
    void (*scale)(char *x, int64_t n, double factor);
    void (*shift)(const char *x, char *out, int64_t n, double a, double b);
    double (*sum)(const char *x, int64_t n);
    double (*weighted_sum)(const char *x, const double *w, int64_t n);
    void (*softmax_grad)(const char *g, const char *y, char *out, int64_t n);
    void (*log_softmax_grad)(const char *g, const char *y, char *out, int64_t n);
    void (*slope)(const char *x, char *out, int64_t n, double m, double factor, double less, bool stream);
    void (*subtract_each)(char *x, const double *w, int64_t n, double factor);
    ColumnsFn columns_softmax, columns_log_softmax;
    ColumnsGradFn columns_softmax_grad, columns_log_softmax_grad;
    void (*columns_top_sum)(const char *x, int64_t step, int64_t n, int64_t w, double *top, double *sum, double *log_sum);
    void (*columns_slope)(const char *x, int64_t step, char *out, int64_t out_step, int64_t n, int64_t w, const double *top,
                          const double *factor);
} SoftmaxKernels;

/* For FLOAT32 or FLOAT64, at the instruction-set level in use. */
const SoftmaxKernels *amp_softmax_kernels(int compute_dtype);

Status amp_softmax(const Call *call);
Status amp_cross_entropy(const Call *call);
Status amp_cross_entropy_grad(const Call *call);

#endif
