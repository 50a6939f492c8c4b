/* The normalisation slots: walks over rows of elements that share their statistics.
 *
 * By groups (layer, RMS and group normalisation): a row is one piece of memory, `channels` segments of `length` elements with a weight
 * each. By channels (batch normalisation): a row is one segment of every sample; short segments are taken as columns.
 *
 *     groups    [ segment | segment | .. ] [ segment | ..     channels  [ c0 | c1 | c2 ] [ c0 | c1 | c2 ]  one row per c
 *                       row 0                  row 1                      sample 0         sample 1
 *
 * Rows of one stored format that stay in the caches between passes, with a weight per element, are norm_rows.c's.
 *
 * Statistics are sums of x - shift and its square. The quick sums take an average of some elements as the shift and stand where that was
 * near the mean: then the variance is no small difference. Else, and where the compute format's range was left, the sums are formed again
 * in float64 with the row's first element as the shift: since that element takes part in the variance, its distance from the mean is
 * below sqrt(n) deviations, and the difference of sums loses no more than a factor n. */
#include "norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cast.h"
#include "norm_rows.h"

/* The average of the first elements, as a number of the compute format; 0 if it is none. */
static double rough_mean(const Norm *s, const char *x, int64_t n) {
    _Alignas(64) char buffer[NORM_SAMPLE * sizeof(double)];
    double v = n < NORM_SAMPLE ? norm_total(s, x, n) / (double)n
                               : s->k->average(norm_load(s->x_dtype, x, NORM_SAMPLE, s->compute, buffer));
    v = norm_mean(s, v).hi;
    return isfinite(v) ? v : 0.0;
}

/* Sums over one piece of memory; returns the shift. */
static double row_sums(const Norm *s, const char *x, int64_t n, double *sums) {
    bool centered = s->plan->centered;
    double shift = centered ? rough_mean(s, x, n) : 0.0;
    sums[0] = sums[1] = 0.0;
    norm_quick_moments(s, x, n, shift, sums);
    if (norm_good_moments(s, sums, (double)n)) return shift;
    return norm_exact_moments(s, x, n, sums);
}

/* sums[0] = sum of g w, sums[1] = sum of g w (x - mean) over one piece of memory; w may be NULL. */
static void row_dots(const Norm *s, const char *g, const char *x, int64_t n, const NormMean *mean, const char *w, double *sums) {
    sums[0] = sums[1] = 0.0;
    norm_quick_dots(s, g, x, n, mean, w, sums);
    if (!norm_good_dots(sums)) norm_exact_dots(s, g, x, n, mean->value, w, sums);
}

/* ---- by groups ---- */

enum { FEW_ROWS = 8, MANY_ROWS = 32 };

/* For rows that these can take, or NULL. */
static const NormRowKernels *row_kernels(const Norm *s) {
    const NormPlan *p = s->plan;
    if (p->length != 1 || p->groups != 1 || p->channels > NORM_LONG_ROW || !s->y || s->y_dtype != s->x_dtype) return NULL;
    return s->g && s->g_dtype != s->x_dtype ? NULL : amp_norm_row_kernels(s->x_dtype);
}

/* A short row of another format is converted once, not once per pass. `copy` becomes what the passes then work on. */
static const Norm *convert_row(const Norm *s, Norm *copy, const char **x, const char **g, int64_t n,
                               char (*buffer)[NORM_CHUNK * sizeof(double)]) {
    if (s->x_dtype == s->compute || n > NORM_CHUNK) return s;
    *copy = *s;
    *x = norm_load(s->x_dtype, *x, n, s->compute, buffer[0]);
    copy->x_dtype = s->compute, copy->x_item = s->item;
    if (!g) return copy;
    *g = norm_load(s->g_dtype, *g, n, s->compute, buffer[1]);
    copy->g_dtype = s->compute, copy->g_item = s->item;
    return copy;
}

/* A row whose statistics are there; x in the compute format if it is short. */
typedef struct GroupRow {
    Norm copy;
    const Norm *s;
    const char *x;
    int64_t row;
} GroupRow;

static void find_stats(const Norm *given, int64_t row, GroupRow *to, char (*buffer)[NORM_CHUNK * sizeof(double)]) {
    const int64_t n = given->plan->channels * given->plan->length;
    double sums[2];
    to->row = row;
    to->x = given->x + row * n * given->x_item;
    to->s = convert_row(given, &to->copy, &to->x, NULL, n, buffer);
    const double shift = row_sums(to->s, to->x, n, sums);
    norm_finish_row(to->s, row, sums, (double)n, shift);
}

static void scale_row(const GroupRow *from) {
    const Norm *s = from->s;
    const NormPlan *p = s->plan;
    const int64_t n = p->channels * p->length, first = from->row % p->groups * p->channels;
    const char *x = from->x;
    char *y = s->y + from->row * n * s->y_item;
    const double rstd = s->rstd[from->row];
    const NormMean mean = norm_mean(s, s->mean[from->row]);
    if (p->length == 1) norm_scale_each(s, x, y, n, &mean, rstd, norm_at(s, s->weight, first), norm_at(s, s->bias, first));
    for (int64_t c = 0; p->length > 1 && c < p->channels; c++) {
        const double w = norm_value(s, s->weight, first + c, 1.0), b = norm_value(s, s->bias, first + c, 0.0);
        const int64_t at = c * p->length;
        norm_scale(s, x + at * s->x_item, y + at * s->y_item, p->length, &mean, rstd * w, b);
    }
}

static void group_rows(void *context, int64_t begin, int64_t end) {
    _Alignas(64) char buffer[1][NORM_CHUNK * sizeof(double)];
    const NormRowKernels *kernels = row_kernels(context);
    GroupRow row;
    if (kernels) {
        kernels->rows(context, begin, end);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        find_stats(context, i, &row, buffer);
        scale_row(&row);
    }
}

/* dx = rstd (g w - (sum g w + xhat sum g w xhat) / n), xhat = (x - mean) rstd; dw and db: sums of a few rows in the compute format, or NULL. */
static void group_row_grad(const Norm *given, int64_t row, char *dw, char *db) {
    const NormPlan *p = given->plan;
    Norm copy;
    _Alignas(64) char buffer[2][NORM_CHUNK * sizeof(double)];
    int64_t n = p->channels * p->length, first = row % p->groups * p->channels;
    const char *x = given->x + row * n * given->x_item, *g = given->g + row * n * given->g_item;
    const Norm *s = convert_row(given, &copy, &x, &g, n, buffer);
    char *dx = s->y ? s->y + row * n * s->y_item : NULL;
    double rstd = s->rstd[row], sums[2] = {0, 0};
    NormMean mean = norm_mean(s, s->mean[row]);
    if (p->length == 1) {
        if (dx) row_dots(s, g, x, n, &mean, norm_at(s, s->weight, first), sums);
        if (dx && dw && db) {
            double q, r;
            norm_row_factors(s, row, sums, n, &q, &r);
            norm_grad_add(s, g, x, dx, n, &mean, norm_at(s, s->weight, first), rstd, q, r, dw + first * s->item,
                          db + first * s->item);
            return;
        }
        if (dw || db) norm_add_each(s, g, x, n, &mean, rstd, dw ? dw + first * s->item : NULL, db ? db + first * s->item : NULL);
    }
    for (int64_t c = 0; p->length > 1 && c < p->channels; c++) {
        double w = norm_value(s, s->weight, first + c, 1.0), part[2];
        row_dots(s, g + c * p->length * s->g_item, x + c * p->length * s->x_item, p->length, &mean, NULL, part);
        sums[0] += w * part[0];
        sums[1] += w * part[1];
        if (dw) norm_put(s, dw, first + c, norm_value(s, dw, first + c, 0.0) + rstd * part[1]);
        if (db) norm_put(s, db, first + c, norm_value(s, db, first + c, 0.0) + part[0]);
    }
    if (!dx) return;
    double q, r;
    norm_row_factors(s, row, sums, n, &q, &r);
    if (p->length == 1) norm_grad_each(s, g, x, dx, n, &mean, norm_at(s, s->weight, first), rstd, q, r);
    for (int64_t c = 0; p->length > 1 && c < p->channels; c++) {
        double w = norm_value(s, s->weight, first + c, 1.0);
        int64_t at = c * p->length;
        norm_grad(s, g + at * s->g_item, x + at * s->x_item, dx + at * s->y_item, p->length, &mean, rstd * w, q, r);
    }
}

/* Sums that a block of rows forms: in the compute format over a few rows, then in float64; each may be NULL. */
typedef struct BlockSums {
    double *dw, *db;
    char *dw_part, *db_part;
} BlockSums;

static BlockSums block_sums(const Norm *s, int64_t block, int64_t all) {
    BlockSums t = {NULL, NULL, NULL, NULL};
    if (s->dw) t.dw = s->dw + block * all, memset(t.dw, 0, (size_t)all * sizeof *t.dw);
    if (s->db) t.db = s->db + block * all, memset(t.db, 0, (size_t)all * sizeof *t.db);
    if (!s->part) return t;
    t.dw_part = s->part + block * 2 * all * s->item, t.db_part = t.dw_part + all * s->item;
    memset(t.dw_part, 0, (size_t)(2 * all * s->item));
    return t;
}

static void few_to_float64(const Norm *s, const BlockSums *t, int64_t all) {
    if (t->dw) s->k->add(t->dw_part, all, t->dw);
    if (t->db) s->k->add(t->db_part, all, t->db);
    if (s->part) memset(t->dw_part, 0, (size_t)(2 * all * s->item));
}

/* Blocks of rows, whose number follows from the rows alone: so the order of additions does not depend on the threads. */
static void group_blocks(void *context, int64_t begin, int64_t end) {
    const Norm *s = context;
    const NormRowKernels *kernels = row_kernels(s);
    const int64_t all = s->plan->groups * s->plan->channels, few = kernels ? MANY_ROWS : FEW_ROWS * s->plan->groups;
    for (int64_t block = begin; block < end; block++) {
        const BlockSums t = block_sums(s, block, all);
        const int64_t from = s->rows * block / s->blocks, to = s->rows * (block + 1) / s->blocks;
        for (int64_t row = from; row < to; row += few) {
            const int64_t last = to - row < few ? to : row + few;
            if (kernels) kernels->rows_grad(s, row, last, t.dw_part, t.db_part);
            for (int64_t i = row; !kernels && i < last; i++)
                group_row_grad(s, i, t.dw ? t.dw_part : NULL, t.db ? t.db_part : NULL);
            few_to_float64(s, &t, all);
        }
    }
}

/* ---- by channels ---- */

static void update_running(const View *running, int64_t c, double momentum, double value) {
    double old, new;
    char *p = running->data + c * running->stride[0] * (int64_t)amp_itemsize(running->dtype);
    amp_convert(running->dtype, p, 0, AMP_FLOAT64, (char *)&old, sizeof old, 1);
    new = (1.0 - momentum) * old + momentum *value;
    amp_convert(AMP_FLOAT64, (const char *)&new, 0, running->dtype, p, (int64_t)amp_itemsize(running->dtype), 1);
}

/* A channel's statistics from sums, or from the running ones. */
static void finish_channel(const Norm *s, int64_t c, const double *sums, double shift) {
    const NormPlan *p = s->plan;
    double n = (double)(p->samples * p->length);
    if (p->training) {
        norm_finish_row(s, c, sums, n, shift);
        if (s->running_mean) update_running(s->running_mean, c, p->momentum, s->mean[c]);
        if (s->running_var) update_running(s->running_var, c, p->momentum, s->var[c] * n / (n - 1.0));
        return;
    }
    const View *const from[2] = {s->running_mean, s->running_var};
    double *const to[2] = {s->mean, s->var};
    for (int k = 0; k < 2; k++) {
        const char *data = from[k]->data + c * from[k]->stride[0] * (int64_t)amp_itemsize(from[k]->dtype);
        amp_convert(from[k]->dtype, data, 0, AMP_FLOAT64, (char *)(to[k] + c), sizeof(double), 1);
    }
    s->rstd[c] = 1.0 / sqrt(s->var[c] + p->eps);
}

/* As row_sums, over a channel's segments. */
static double channel_sums(const Norm *s, int64_t c, double *sums) {
    const NormPlan *p = s->plan;
    const char *x = s->x + c * p->length * s->x_item;
    int64_t step = p->channels * p->length * s->x_item;
    double shift = rough_mean(s, x, p->length);
    for (int64_t i = 0; i < p->samples; i++) norm_quick_moments(s, x + i * step, p->length, shift, sums);
    if (norm_good_moments(s, sums, (double)(p->samples * p->length))) return shift;
    shift = norm_first_value(s, x);
    sums[0] = sums[1] = 0.0;
    for (int64_t i = 0; i < p->samples; i++) norm_moments(s, x + i * step, p->length, shift, sums);
    return shift;
}

static void channel_rows(void *context, int64_t begin, int64_t end) {
    const Norm *s = context;
    const NormPlan *p = s->plan;
    for (int64_t c = begin; c < end; c++) {
        double sums[2] = {0, 0}, shift = p->training ? channel_sums(s, c, sums) : 0.0;
        finish_channel(s, c, sums, shift);
        NormMean mean = norm_mean(s, s->mean[c]);
        double a = s->rstd[c] * norm_value(s, s->weight, c, 1.0), b = norm_value(s, s->bias, c, 0.0);
        for (int64_t i = 0; i < p->samples; i++) {
            int64_t at = (i * p->channels + c) * p->length;
            norm_scale(s, s->x + at * s->x_item, s->y + at * s->y_item, p->length, &mean, a, b);
        }
    }
}

/* As for groups, with one weight for the row; with fixed statistics only rstd w g is left. */
static void channel_grad(void *context, int64_t begin, int64_t end) {
    const Norm *s = context;
    const NormPlan *p = s->plan;
    double n = (double)(p->samples * p->length);
    for (int64_t c = begin; c < end; c++) {
        double rstd = s->rstd[c], w = norm_value(s, s->weight, c, 1.0), sums[2] = {0, 0};
        NormMean mean = norm_mean(s, s->mean[c]);
        for (int64_t i = 0; i < p->samples && (p->training || s->dw || s->db); i++) {
            int64_t at = (i * p->channels + c) * p->length;
            double part[2];
            row_dots(s, s->g + at * s->g_item, s->x + at * s->x_item, p->length, &mean, NULL, part);
            sums[0] += part[0];
            sums[1] += part[1];
        }
        if (s->dw) s->dw[c] = rstd * sums[1];
        if (s->db) s->db[c] = sums[0];
        double q = -rstd * (rstd * (rstd * sums[1])) * w / n, r = -rstd * w * sums[0] / n;
        for (int64_t i = 0; s->y && i < p->samples; i++) {
            int64_t at = (i * p->channels + c) * p->length;
            const char *g = s->g + at * s->g_item, *x = s->x + at * s->x_item;
            char *dx = s->y + at * s->y_item;
            if (p->training) norm_grad(s, g, x, dx, p->length, &mean, rstd * w, q, r);
            else norm_factor(s, g, dx, p->length, rstd * w);
        }
    }
}

/* ---- by channels with short segments: columns of a matrix ----
 *
 * A sample is a row; `length` columns side by side belong to one channel. Strips are whole channels, up to NORM_COLUMNS columns. */

enum { SHORT_SEGMENT = 16, SOME_STRIPS = 2, CACHE_LINE = 64, GRAIN = 8 * 1024 };

/* Channels and columns of a strip. */
typedef struct Strip {
    int64_t first, channels, columns;
} Strip;

/* Strips enough for some threads, as long as each takes whole cache lines. Their number changes no sum. */
static int64_t strip_channels(const Norm *s) {
    const NormPlan *p = s->plan;
    int64_t columns = NORM_COLUMNS, all = p->channels * p->length;
    while (all < SOME_STRIPS * columns && columns / 2 * s->x_item >= CACHE_LINE) columns /= 2;
    columns /= p->length ? p->length : 1;
    return columns ? columns : 1;
}

static Strip strip_at(const Norm *s, int64_t number) {
    const NormPlan *p = s->plan;
    int64_t wide = strip_channels(s), first = number * wide, left = p->channels - first, n = left < wide ? left : wide;
    return (Strip){first, n, n * p->length};
}

/* Where a strip lies in sample i, in elements. */
static int64_t strip_place(const NormPlan *p, const Strip *t, int64_t i) { return (i * p->channels + t->first) * p->length; }

static double over_segment(const double *columns, int64_t length, int64_t channel) {
    double sum = 0.0;
    for (int64_t l = 0; l < length; l++) sum += columns[channel * length + l];
    return sum;
}

/* Rows of a strip, converted in batches of CONVERTED_ROWS, or where they lie: dense in the compute format, `step` elements apart. */
typedef struct StripRows {
    const char *data;
    int64_t step, rows;
} StripRows;

/* AHEAD: rows from a row to the one that is fetched while it is converted: pieces of rows are no run that the machine follows by itself. */
enum { CONVERTED_ROWS = 8, AHEAD = 8 };
typedef char StripBuffer[CONVERTED_ROWS * NORM_COLUMNS * sizeof(double)];

static StripRows strip_rows(const Norm *s, const Strip *t, const char *data, int dtype, int64_t i, StripBuffer buffer) {
    const NormPlan *p = s->plan;
    const int64_t left = p->samples - i, step = p->channels * p->length, item = (int64_t)amp_itemsize(dtype);
    const char *from = data + strip_place(p, t, i) * item;
    if (dtype == s->compute) return (StripRows){from, step, left};
    const int64_t rows = left < CONVERTED_ROWS ? left : CONVERTED_ROWS;
    const CastFn cast = amp_cast_vector(dtype, s->compute);
    for (int64_t r = 0; r < rows; r++) {
        const char *row = from + r * step * item;
        for (int64_t line = 0; r + AHEAD < left && line < t->columns * item; line += CACHE_LINE)
            __builtin_prefetch(row + AHEAD * step * item + line);
        if (cast) cast(row, buffer + r * t->columns * s->item, t->columns);
        else norm_load(dtype, row, t->columns, s->compute, buffer + r * t->columns * s->item);
    }
    return (StripRows){buffer, t->columns, rows};
}

static void quick_column_moments(const Norm *s, const Strip *t, const char *shift, double *s1, double *s2) {
    _Alignas(64) StripBuffer buffer;
    for (int64_t j = 0; j < t->columns; j++) s1[j] = s2[j] = 0.0;
    for (int64_t i = 0; i < s->plan->samples;) {
        const StripRows x = strip_rows(s, t, s->x, s->x_dtype, i, buffer);
        s->k->column_quick_moments(x.data, x.step, x.rows, t->columns, shift, s1, s2);
        i += x.rows;
    }
}

/* Each channel's average over a few rows, as a number of the compute format, for each of its columns; 0 if it is none. */
static void rough_column_means(const Norm *s, const Strip *t, double *shift, char *shift_run) {
    double s1[NORM_COLUMNS] = {0}, s2[NORM_COLUMNS] = {0};
    const NormPlan *p = s->plan;
    _Alignas(64) StripBuffer buffer;
    StripRows x = strip_rows(s, t, s->x, s->x_dtype, 0, buffer);
    if (x.rows > CONVERTED_ROWS) x.rows = CONVERTED_ROWS;
    memset(shift_run, 0, (size_t)(t->columns * s->item));
    s->k->column_quick_moments(x.data, x.step, x.rows, t->columns, shift_run, s1, s2);
    for (int64_t c = 0; c < t->channels; c++) {
        const double v = norm_mean(s, over_segment(s1, p->length, c) / (double)(x.rows * p->length)).hi;
        for (int64_t j = c * p->length; j < (c + 1) * p->length; j++) {
            shift[j] = isfinite(v) ? v : 0.0;
            norm_put(s, shift_run, j, shift[j]);
        }
    }
}

/* As row_sums: true if the quick sums stand for every channel of the strip. */
static bool quick_column_sums(const Norm *s, const Strip *t, double *shift, double *s1, double *s2) {
    const NormPlan *p = s->plan;
    _Alignas(64) char shift_run[NORM_COLUMNS * sizeof(double)];
    rough_column_means(s, t, shift, shift_run);
    quick_column_moments(s, t, shift_run, s1, s2);
    for (int64_t c = 0; c < t->channels; c++) {
        const double sums[2] = {over_segment(s1, p->length, c), over_segment(s2, p->length, c)};
        if (!norm_good_moments(s, sums, (double)(p->samples * p->length))) return false;
    }
    return true;
}

static void column_stats(const Norm *s, const Strip *t) {
    double shift[NORM_COLUMNS], s1[NORM_COLUMNS], s2[NORM_COLUMNS];
    const NormPlan *p = s->plan;
    _Alignas(64) char buffer[NORM_COLUMNS * sizeof(double)];
    if (!p->training || !quick_column_sums(s, t, shift, s1, s2)) {
        for (int64_t j = 0; j < t->columns; j++) {
            shift[j] = p->training ? norm_first_value(s, s->x + (t->first + j / p->length) * p->length * s->x_item) : 0.0;
            s1[j] = s2[j] = 0.0;
        }
        for (int64_t i = 0; p->training && i < p->samples; i++) {
            const char *x = norm_load(s->x_dtype, s->x + strip_place(p, t, i) * s->x_item, t->columns, s->compute, buffer);
            s->k->column_moments(x, t->columns, shift, s1, s2);
        }
    }
    for (int64_t c = 0; c < t->channels; c++) {
        double sums[2] = {over_segment(s1, p->length, c), over_segment(s2, p->length, c)};
        finish_channel(s, t->first + c, sums, shift[c * p->length]);
    }
}

static void column_strips(void *context, int64_t begin, int64_t end) {
    const Norm *s = context;
    const NormPlan *p = s->plan;
    for (int64_t number = begin; number < end; number++) {
        Strip t = strip_at(s, number);
        column_stats(s, &t);
        for (int64_t j = 0; j < t.columns; j++) {
            int64_t c = t.first + j / p->length, at = t.first * p->length + j;
            NormMean mean = norm_mean(s, s->mean[c]);
            norm_put(s, s->factor[0], at, mean.hi);
            norm_put(s, s->factor[1], at, mean.lo);
            norm_put(s, s->factor[2], at, s->rstd[c] * norm_value(s, s->weight, c, 1.0));
            norm_put(s, s->factor[3], at, norm_value(s, s->bias, c, 0.0));
        }
    }
}

#define FACTOR(k) (s->factor[k] + at * s->item)

/* y = (x - mean) a + b over whole samples, x and y as kernels see them. */
static void column_samples(void *context, int64_t begin, int64_t end) {
    const Norm *s = context;
    const int64_t n = s->plan->channels * s->plan->length;
    NORM_BUFFER(xs);
    NORM_BUFFER(out);
    for (int64_t i = begin; i < end; i++) {
        const char *x = s->x + i * n * s->x_item;
        char *y = s->y + i * n * s->y_item;
        NORM_PIECES {
            s->k->column_scale(NORM_X(x), NORM_TO(y), m, FACTOR(0), FACTOR(1), FACTOR(2), FACTOR(3));
            norm_store(s, NORM_TO(y), y + at * s->y_item, m);
        }
    }
}

static void column_factors(const Norm *s, const Strip *t, const double *sg, const double *sx) {
    const NormPlan *p = s->plan;
    double n = (double)(p->samples * p->length);
    for (int64_t c = 0; c < t->channels; c++) {
        int64_t channel = t->first + c;
        double rstd = s->rstd[channel], w = norm_value(s, s->weight, channel, 1.0);
        double g = over_segment(sg, p->length, c), gx = over_segment(sx, p->length, c);
        NormMean mean = norm_mean(s, s->mean[channel]);
        const bool training = p->training; /* else dx is a multiple of g */
        for (int64_t j = channel * p->length; j < (channel + 1) * p->length; j++) {
            norm_put(s, s->factor[0], j, training ? mean.hi : 0.0);
            norm_put(s, s->factor[1], j, training ? mean.lo : 0.0);
            norm_put(s, s->factor[2], j, rstd * w);
            norm_put(s, s->factor[3], j, training ? -rstd * (rstd * (rstd * gx)) * w / n : 0.0);
            norm_put(s, s->factor[4], j, training ? -rstd * w * g / n : 0.0);
        }
        if (s->dw) s->dw[channel] = rstd * gx;
        if (s->db) s->db[channel] = g;
    }
}

/* As row_dots. */
static bool quick_column_dots(const Norm *s, const Strip *t, double *sg, double *sx) {
    const NormPlan *p = s->plan;
    _Alignas(64) StripBuffer gs, xs;
    _Alignas(64) char hi[NORM_COLUMNS * sizeof(double)];
    for (int64_t j = 0; j < t->columns; j++) {
        sg[j] = sx[j] = 0.0;
        norm_put(s, hi, j, norm_mean(s, s->mean[t->first + j / p->length]).hi);
    }
    for (int64_t i = 0; i < p->samples;) {
        const StripRows g = strip_rows(s, t, s->g, s->g_dtype, i, gs), x = strip_rows(s, t, s->x, s->x_dtype, i, xs);
        const int64_t rows = g.rows < x.rows ? g.rows : x.rows;
        s->k->column_quick_dots(g.data, g.step, x.data, x.step, rows, t->columns, hi, sg, sx);
        i += rows;
    }
    for (int64_t c = 0; c < t->channels; c++) {
        for (int64_t j = c * p->length; j < (c + 1) * p->length; j++) sx[j] -= norm_mean(s, s->mean[t->first + c]).lo * sg[j];
        if (!norm_in_range(over_segment(sx, p->length, c)) || !isfinite(over_segment(sg, p->length, c))) return false;
    }
    return true;
}

/* Per column, over the samples: the sum of g, and of g (x - mean). */
static void column_sums(const Norm *s, const Strip *t, double *sg, double *sx) {
    const NormPlan *p = s->plan;
    double mean[NORM_COLUMNS];
    _Alignas(64) char gs[NORM_COLUMNS * sizeof(double)], xs[NORM_COLUMNS * sizeof(double)];
    if (quick_column_dots(s, t, sg, sx)) return;
    for (int64_t j = 0; j < t->columns; j++) {
        mean[j] = s->mean[t->first + j / p->length];
        sg[j] = sx[j] = 0.0;
    }
    for (int64_t i = 0; i < p->samples; i++) {
        int64_t at = strip_place(p, t, i);
        const char *g = norm_load(s->g_dtype, s->g + at * s->g_item, t->columns, s->compute, gs);
        s->k->column_dots(g, norm_load(s->x_dtype, s->x + at * s->x_item, t->columns, s->compute, xs), t->columns, mean, sg, sx);
    }
}

static void column_strips_grad(void *context, int64_t begin, int64_t end) {
    const Norm *s = context;
    for (int64_t number = begin; number < end; number++) {
        Strip t = strip_at(s, number);
        double sg[NORM_COLUMNS], sx[NORM_COLUMNS];
        column_sums(s, &t, sg, sx);
        column_factors(s, &t, sg, sx);
    }
}

static void column_samples_grad(void *context, int64_t begin, int64_t end) {
    const Norm *s = context;
    const int64_t n = s->plan->channels * s->plan->length;
    NORM_BUFFER(xs);
    NORM_BUFFER(gs);
    NORM_BUFFER(out);
    for (int64_t i = begin; i < end; i++) {
        const char *x = s->x + i * n * s->x_item, *g = s->g + i * n * s->g_item;
        char *dx = s->y + i * n * s->y_item;
        NORM_PIECES {
            if (s->plan->training)
                s->k->column_grad(NORM_G(g), NORM_X(x), NORM_TO(dx), m, FACTOR(0), FACTOR(1), FACTOR(2), FACTOR(3), FACTOR(4));
            else s->k->column_scale(NORM_G(g), NORM_TO(dx), m, FACTOR(0), FACTOR(1), FACTOR(2), FACTOR(3));
            norm_store(s, NORM_TO(dx), dx + at * s->y_item, m);
        }
    }
}

/* Statistics go by strips, so that each sum is one thread's; then results by samples, which lie in one piece. */
static bool run_columns(Norm *s, RangeFn strips, RangeFn samples) {
    const NormPlan *p = s->plan;
    const int64_t n = p->channels * p->length, count = (p->channels + strip_channels(s) - 1) / strip_channels(s);
    const size_t run = (size_t)(n * s->item), room = 5 * run;
    char *factors = amp_host_alloc(AMP_CPU, room);
    if (!factors) return false;
    for (int k = 0; k < 5; k++) s->factor[k] = factors + (size_t)k * run;
    amp_parallel_for(count, GRAIN / (p->samples * NORM_COLUMNS + 1) + 1, strips, s);
    if (s->y) amp_parallel_for(p->samples, GRAIN / (n + 1) + 1, samples, s);
    amp_host_free(AMP_CPU, factors, room);
    return true;
}

/* ---- slots ---- */

/* APART, float64 values: the machine takes a load from just behind a store at the same place of another page for one that has to wait. */
enum { MAX_BLOCKS = 32, ROWS_PER_BLOCK = 8, APART = 160 };

/* A parameter as a dense run of the compute format; NULL stays NULL. */
static char *parameter(const Norm *s, const View *v, bool *failed) {
    if (!v) return NULL;
    char *dense = malloc((size_t)v->numel * (size_t)s->item + 1);
    if (!dense) {
        *failed = true;
        return NULL;
    }
    if (v->numel)
        amp_convert(v->dtype, v->data, v->stride[0] * (int64_t)amp_itemsize(v->dtype), s->compute, dense, s->item, v->numel);
    return dense;
}

static void set_stats(Norm *s, const View *stats) {
    s->rows = s->plan->by_channels ? s->plan->channels : s->plan->samples * s->plan->groups;
    s->mean = (double *)(void *)stats->data;
    s->rstd = s->mean + s->rows;
    s->var = stats->numel > 2 * s->rows ? s->rstd + s->rows : NULL;
}

static void set_formats(Norm *s, const View *x, const View *y) {
    s->x = x->data, s->x_dtype = x->dtype, s->x_item = (int64_t)amp_itemsize(x->dtype);
    if (y) s->y = y->data, s->y_dtype = y->dtype, s->y_item = (int64_t)amp_itemsize(y->dtype);
    s->compute = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
    s->item = (int64_t)amp_itemsize(s->compute);
    s->k = amp_norm_kernels(s->compute);
    s->large = x->numel > AMP_STREAMED_BYTES / (s->x_item + s->y_item + s->g_item);
}

Status amp_normalize(const Call *call) {
    const NormPlan *p = call->extra;
    Norm s = {.plan = p};
    bool failed = false;
    if (!amp_is_floating(call->in[0]->dtype)) return AMP_BAD_DTYPE;
    set_formats(&s, call->in[0], call->out[0]);
    set_stats(&s, call->out[1]);
    if (call->in[0]->numel == 0) {
        memset(call->out[1]->data, 0, (size_t)call->out[1]->numel * sizeof(double));
        return AMP_OK;
    }
    if (call->nlist) s.running_mean = call->list[0], s.running_var = call->list[1];
    s.weight = parameter(&s, call->in[1], &failed);
    s.bias = parameter(&s, call->in[2], &failed);
    int64_t per_row = call->in[0]->numel / s.rows, grain = GRAIN / (per_row + 1) + 1;
    if (!failed && p->by_channels && p->length <= SHORT_SEGMENT) {
        failed = !run_columns(&s, column_strips, column_samples);
    } else if (!failed) {
        amp_parallel_for(s.rows, grain, p->by_channels ? channel_rows : group_rows, &s);
    }
    free(s.weight);
    free(s.bias);
    return failed ? AMP_NO_MEMORY : AMP_OK;
}

/* Blocks of n sums, which are added to the first in order. */
typedef struct Blocks {
    double *sums;
    int64_t blocks, n;
} Blocks;

static void add_blocks(void *context, int64_t begin, int64_t end) {
    const Blocks *t = context;
    const NormKernels *k = amp_norm_kernels(AMP_FLOAT64);
    for (int64_t block = 1; block < t->blocks; block++)
        k->add((const char *)(t->sums + block * t->n + begin), end - begin, t->sums + begin);
}

static void deliver(double *sums, int64_t blocks, View *out) {
    Blocks t = {sums, blocks, out->numel};
    if (blocks > 1) amp_parallel_for(t.n, GRAIN / blocks + 1, add_blocks, &t);
    amp_convert(AMP_FLOAT64, (const char *)sums, sizeof *sums, out->dtype, out->data,
                out->stride[0] * (int64_t)amp_itemsize(out->dtype), t.n);
}

Status amp_normalize_grad(const Call *call) {
    const NormPlan *p = call->extra;
    Norm s = {.plan = p};
    bool failed = false;
    View *dw = call->out[1], *db = call->out[2];
    s.g = call->in[0]->data, s.g_dtype = call->in[0]->dtype, s.g_item = (int64_t)amp_itemsize(s.g_dtype);
    set_formats(&s, call->in[1], call->out[0]);
    set_stats(&s, call->in[2]);
    s.weight = parameter(&s, call->in[3], &failed);
    s.blocks = p->by_channels ? 1 : s.rows / ROWS_PER_BLOCK < MAX_BLOCKS ? s.rows / ROWS_PER_BLOCK + 1 : MAX_BLOCKS;
    size_t sums = (size_t)s.blocks * (size_t)(p->channels * p->groups);
    /* From the tensors' pool: the C library would give this memory back to the system each time and fetch it page by page again. */
    size_t room = dw || db ? 2 * sums * (sizeof *s.dw + (p->by_channels ? 0 : (size_t)s.item)) : 0;
    room += room ? 2 * APART * sizeof *s.dw : 0;
    double *scratch = room ? amp_host_alloc(AMP_CPU, room) : NULL;
    failed |= room && !scratch;
    if (scratch) {
        if (p->by_channels) memset(scratch, 0, room);
        s.dw = dw ? scratch : NULL;
        s.db = db ? scratch + sums + APART : NULL;
        s.part = p->by_channels ? NULL : (char *)(scratch + 2 * sums + 2 * APART);
    }
    int64_t per_row = s.rows ? call->in[1]->numel / s.rows : 0;
    if (!failed && p->by_channels && p->length <= SHORT_SEGMENT) {
        failed = !run_columns(&s, column_strips_grad, column_samples_grad);
    } else if (!failed && p->by_channels) {
        amp_parallel_for(s.rows, GRAIN / (per_row + 1) + 1, channel_grad, &s);
    } else if (!failed) {
        amp_parallel_for(s.blocks, GRAIN / (call->in[1]->numel / s.blocks + 1) + 1, group_blocks, &s);
    }
    if (!failed && dw) deliver(s.dw, s.blocks, dw);
    if (!failed && db) deliver(s.db, s.blocks, db);
    free(s.weight);
    if (scratch) amp_host_free(AMP_CPU, scratch, room);
    return failed ? AMP_NO_MEMORY : AMP_OK;
}
