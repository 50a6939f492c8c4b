/* A normalisation under way, and runs of any length and stored format cut into pieces for the kernels. Steps are dense. */
#ifndef AMP_NORM_WALK_H
#define AMP_NORM_WALK_H
#include <math.h>

#include "cast.h"
#include "norm.h"

enum { NORM_CHUNK = 1024, NORM_COLUMNS = 128 };

typedef struct Norm {
    const NormPlan *plan;
    const NormKernels *k;
    int compute, x_dtype, g_dtype, y_dtype;
    int64_t item, x_item, g_item, y_item; /* bytes per element: compute format, stored formats */
    int64_t rows, blocks;
    bool large; /* more is read and written than would stay in the caches until somebody reads the result */
    const char *x, *g;
    char *y;                                /* result, or the input's gradient; NULL: not wanted */
    char *weight, *bias;                    /* dense, compute format, or NULL */
    double *mean, *rstd, *var;              /* per row; var may be NULL */
    double *dw, *db;                        /* sums per block and channel, or NULL */
    char *part;                             /* compute format: of dw and db, what few rows of a block add up to, or NULL */
    char *factor[5];                        /* of each column, compute format; see norm.c */
    const View *running_mean, *running_var; /* or NULL */
} Norm;

#define NORM_FN static inline __attribute__((unused))

NORM_FN const char *norm_load(int dtype, const char *p, int64_t n, int compute, char *buffer) {
    if (dtype == compute) return p;
    amp_convert(dtype, p, (int64_t)amp_itemsize(dtype), compute, buffer, (int64_t)amp_itemsize(compute), n);
    return buffer;
}
/* What a kernel wrote to `from`, which is y itself if the formats agree. */
NORM_FN void norm_store(const Norm *s, const char *from, char *y, int64_t n) {
    if (from != y) amp_convert(s->compute, from, s->item, s->y_dtype, y, s->y_item, n);
}
NORM_FN NormMean norm_mean(const Norm *s, double mean) {
    double hi = s->compute == AMP_FLOAT32 ? (double)(float)mean : mean;
    double lo = mean - hi;
    return (NormMean){mean, hi, lo == lo ? lo : 0.0};
}
NORM_FN const char *norm_at(const Norm *s, const char *parameter, int64_t i) {
    return parameter ? parameter + i * s->item : NULL;
}
NORM_FN double norm_value(const Norm *s, const char *parameter, int64_t i, double otherwise) {
    if (!parameter) return otherwise;
    if (s->compute == AMP_FLOAT32) return (double)((const float *)(const void *)parameter)[i];
    return ((const double *)(const void *)parameter)[i];
}
NORM_FN void norm_put(const Norm *s, char *to, int64_t i, double value) {
    if (s->compute == AMP_FLOAT32) ((float *)(void *)to)[i] = (float)value;
    else ((double *)(void *)to)[i] = value;
}

/* For each piece of m elements from `at` on. */
#define NORM_PIECES       for (int64_t at = 0, m; at < n && (m = n - at < NORM_CHUNK ? n - at : NORM_CHUNK) > 0; at += m)
#define NORM_BUFFER(name) _Alignas(64) char name[NORM_CHUNK * sizeof(double)]
#define NORM_X(x)         norm_load(s->x_dtype, (x) + at * s->x_item, m, s->compute, xs)
#define NORM_G(g)         norm_load(s->g_dtype, (g) + at * s->g_item, m, s->compute, gs)
/* Where the kernel writes the piece of y. */
#define NORM_TO(y) (s->y_dtype == s->compute ? (y) + at * s->y_item : out)

NORM_FN void norm_moments(const Norm *s, const char *x, int64_t n, double shift, double *sums) {
    NORM_BUFFER(xs);
    NORM_PIECES s->k->moments(NORM_X(x), m, shift, sums);
}
NORM_FN double norm_total(const Norm *s, const char *x, int64_t n) {
    double sum = 0.0;
    NORM_BUFFER(xs);
    NORM_PIECES sum += s->k->total(NORM_X(x), m);
    return sum;
}
NORM_FN void norm_quick_moments(const Norm *s, const char *x, int64_t n, double shift, double *sums) {
    NORM_BUFFER(xs);
    NORM_PIECES s->k->quick_moments(NORM_X(x), m, shift, sums);
}
NORM_FN void norm_quick_dots(const Norm *s, const char *g, const char *x, int64_t n, const NormMean *mean, const char *w,
                             double *sums) {
    NORM_BUFFER(xs);
    NORM_BUFFER(gs);
    NORM_PIECES s->k->quick_dots(NORM_G(g), NORM_X(x), m, mean, norm_at(s, w, at), sums);
}
NORM_FN void norm_scale(const Norm *s, const char *x, char *y, int64_t n, const NormMean *mean, double a, double b) {
    NORM_BUFFER(xs);
    NORM_BUFFER(out);
    NORM_PIECES {
        s->k->scale(NORM_X(x), NORM_TO(y), m, mean, a, b);
        norm_store(s, NORM_TO(y), y + at * s->y_item, m);
    }
}
NORM_FN void norm_scale_each(const Norm *s, const char *x, char *y, int64_t n, const NormMean *mean, double a, const char *w,
                             const char *b) {
    NORM_BUFFER(xs);
    NORM_BUFFER(out);
    NORM_PIECES {
        s->k->scale_each(NORM_X(x), NORM_TO(y), m, mean, a, norm_at(s, w, at), norm_at(s, b, at));
        norm_store(s, NORM_TO(y), y + at * s->y_item, m);
    }
}
NORM_FN void norm_dots_each(const Norm *s, const char *g, const char *x, int64_t n, double mean, const char *w, double *sums) {
    NORM_BUFFER(xs);
    NORM_BUFFER(gs);
    NORM_PIECES s->k->dots_each(NORM_G(g), NORM_X(x), m, mean, norm_at(s, w, at), sums);
}
NORM_FN void norm_add_each(const Norm *s, const char *g, const char *x, int64_t n, const NormMean *mean, double rstd, char *dw,
                           char *db) {
    NORM_BUFFER(xs);
    NORM_BUFFER(gs);
    NORM_PIECES s->k->add_each(NORM_G(g), NORM_X(x), m, mean, rstd, dw ? dw + at * s->item : NULL, db ? db + at * s->item : NULL);
}
NORM_FN void norm_grad(const Norm *s, const char *g, const char *x, char *dx, int64_t n, const NormMean *mean, double p, double q,
                       double r) {
    NORM_BUFFER(xs);
    NORM_BUFFER(gs);
    NORM_BUFFER(out);
    NORM_PIECES {
        s->k->grad(NORM_G(g), NORM_X(x), NORM_TO(dx), m, mean, p, q, r);
        norm_store(s, NORM_TO(dx), dx + at * s->y_item, m);
    }
}
NORM_FN void norm_grad_each(const Norm *s, const char *g, const char *x, char *dx, int64_t n, const NormMean *mean, const char *w,
                            double p, double q, double r) {
    NORM_BUFFER(xs);
    NORM_BUFFER(gs);
    NORM_BUFFER(out);
    NORM_PIECES {
        s->k->grad_each(NORM_G(g), NORM_X(x), NORM_TO(dx), m, mean, norm_at(s, w, at), p, q, r);
        norm_store(s, NORM_TO(dx), dx + at * s->y_item, m);
    }
}
NORM_FN void norm_grad_add(const Norm *s, const char *g, const char *x, char *dx, int64_t n, const NormMean *mean, const char *w,
                           double rstd, double q, double r, char *dw, char *db) {
    NORM_BUFFER(xs);
    NORM_BUFFER(gs);
    NORM_BUFFER(out);
    NORM_PIECES {
        s->k->grad_add(NORM_G(g), NORM_X(x), NORM_TO(dx), m, mean, norm_at(s, w, at), rstd, q, r, dw + at * s->item,
                       db + at * s->item);
        norm_store(s, NORM_TO(dx), dx + at * s->y_item, m);
    }
}
/* dx = factor g */
NORM_FN void norm_factor(const Norm *s, const char *g, char *dx, int64_t n, double factor) {
    const NormMean zero = {0, 0, 0};
    NORM_BUFFER(gs);
    NORM_BUFFER(out);
    NORM_PIECES {
        s->k->scale(NORM_G(g), NORM_TO(dx), m, &zero, factor, 0.0);
        norm_store(s, NORM_TO(dx), dx + at * s->y_item, m);
    }
}

/* ---- a row's statistics and factors ---- */

NORM_FN double norm_first_value(const Norm *s, const char *x) {
    double v;
    amp_convert(s->x_dtype, x, 0, AMP_FLOAT64, (char *)&v, sizeof v, 1);
    return isfinite(v) ? v : 0.0;
}

/* Whether a sum of products formed in the compute format stayed in its range. */
NORM_FN bool norm_in_range(double sum) { return fabs(sum) > 1e-20 && isfinite(sum); }

/* Whether the difference of n quick sums keeps its leading bits. */
NORM_FN bool norm_good_moments(const Norm *s, const double *sums, double n) {
    return norm_in_range(sums[1]) && (!s->plan->centered || sums[0] * sums[0] / n < 0.9 * sums[1]);
}

/* Whether quick dots stand. */
NORM_FN bool norm_good_dots(const double *sums) { return norm_in_range(sums[1]) && isfinite(sums[0]); }

/* The sums over one piece of memory in float64; returns the shift. */
NORM_FN double norm_exact_moments(const Norm *s, const char *x, int64_t n, double *sums) {
    const double shift = s->plan->centered ? norm_first_value(s, x) : 0.0;
    sums[0] = sums[1] = 0.0;
    norm_moments(s, x, n, shift, sums);
    return shift;
}

/* From sums over n elements. */
NORM_FN void norm_finish_row(const Norm *s, int64_t row, const double *sums, double n, double shift) {
    double at = sums[0] / n, var = (sums[1] - sums[0] * at) / n;
    if (!s->plan->centered) at = 0.0, var = sums[1] / n;
    if (var < 0.0) var = 0.0;
    s->mean[row] = shift + at;
    s->rstd[row] = 1.0 / sqrt(var + s->plan->eps);
    if (s->var) s->var[row] = var;
}

/* sums[0] = sum of g w, sums[1] = sum of g w (x - mean) in float64; w may be NULL. */
NORM_FN void norm_exact_dots(const Norm *s, const char *g, const char *x, int64_t n, double mean, const char *w, double *sums) {
    sums[0] = sums[1] = 0.0;
    norm_dots_each(s, g, x, n, mean, w, sums);
}

/* dx = rstd g w + (q (x - mean) + r), from the row's dots. */
NORM_FN void norm_row_factors(const Norm *s, int64_t row, const double *sums, int64_t n, double *q, double *r) {
    const double rstd = s->rstd[row];
    *q = -rstd * (rstd * (rstd * sums[1])) / (double)n; /* so, nothing overflows on the way */
    *r = s->plan->centered ? -rstd * sums[0] / (double)n : 0.0;
}

#endif
