/* Cross entropy of class numbers and its gradient, one line of logits at a time and in pieces that stay in the nearest cache, or, where
 * the classes do not lie innermost, blocks of neighbouring lines: nothing of the logits' size is formed but the gradient. With p = softmax(x), t the class, w its weight and s the share that is spread over C classes:
 *
 *     loss    = (1 - s) w[t] (-log p[t]) + s / C sum over c of w[c] (-log p[c])
 *     d/dx[c] = a p[c] - b [c = t] - d w[c],  b = (1 - s) w[t],  d = s / C,  a = b + d sum of w
 *
 * Of a line that is ignored they are 0, times p: NaN, the whole line, where logits have no softmax. Where nothing is spread, weights of
 * other classes than t count nowhere, be they infinite. */
#include "softmax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cast.h"
#include "lines.h"

enum { PIECE = 2048, GRAIN = 8 * 1024, BLOCK = 16 * 1024 };

typedef struct Entropy {
    Lines lines; /* logits, and the gradient */
    LineBlocks blocks;
    const SoftmaxKernels *k;
    int type;
    int64_t item, ignore;
    bool dense[2], stream; /* lines dense in the compute format; the gradient is stored around the caches */
    const int64_t *target;
    const double *weight; /* NULL: all 1 */
    double smoothing, all_weights;
    double *loss, *top, *sum; /* per row: loss, largest logit, sum of exp(x - top) */
    const double *grad;       /* per row */
    int64_t grad_step;
    int no_memory;
} Entropy;

/* Elements [at, at + m) of a line, dense in the compute format. */
static const char *piece(const Entropy *e, const char *x, int64_t at, int64_t m, char *buffer) {
    const Lines *l = &e->lines;
    if (e->dense[0]) return x + at * l->along[0];
    amp_convert(l->dtype[0], x + at * l->along[0], l->along[0], e->type, buffer, e->item, m);
    return buffer;
}

static double logit(const Entropy *e, const char *x, int64_t c) {
    double v;
    amp_convert(e->lines.dtype[0], x + c * e->lines.along[0], 0, AMP_FLOAT64, (char *)&v, sizeof v, 1);
    return v;
}

/* Value i of a run in the compute format. */
static double value_at(const Entropy *e, const char *x, int64_t i) {
    float f;
    double d;
    if (e->type == AMP_FLOAT64) return memcpy(&d, x + i * (int64_t)sizeof d, sizeof d), d;
    return memcpy(&f, x + i * (int64_t)sizeof f, sizeof f), (double)f;
}

static void set_value(const Entropy *e, char *x, int64_t i, double d) {
    float f = (float)d;
    if (e->type == AMP_FLOAT64) memcpy(x + i * (int64_t)sizeof d, &d, sizeof d);
    else memcpy(x + i * (int64_t)sizeof f, &f, sizeof f);
}

/* Whether 0 times the slope of a row, after the way forward, is 0: its logits have a softmax, the weights that are spread are finite. */
static bool vanishes(const Entropy *e, int64_t row) {
    return isfinite(e->top[row]) && !isnan(e->sum[row]) && (e->smoothing == 0.0 || isfinite(e->all_weights));
}

static double weight_of(const Entropy *e, int64_t c) { return e->weight ? e->weight[c] : 1.0; }

#define PIECES for (int64_t at = 0, m; at < n && (m = n - at < PIECE ? n - at : PIECE) > 0; at += m)

/* The sum of exponentials follows the maximum: what was summed before a new maximum is scaled down to it. Without one so far, NaN still
 * has to reach the sum, and -inf adds nothing. */
static void forward_row(const Entropy *e, int64_t row, const char *x) {
    _Alignas(64) char buffer[PIECE * sizeof(double)];
    int64_t n = e->lines.length, t = e->target[row];
    const int64_t item = (int64_t)amp_itemsize(e->lines.dtype[0]);
    double top = -(double)INFINITY, sum = 0.0, total = 0.0;
    bool spread = e->smoothing > 0.0, packed = e->lines.along[0] == item;
    PIECES {
        const char *p = piece(e, x, at, m, buffer);
        double high = e->k->max(p, m);
        if (high > top) {
            sum *= exp(top - high);
            top = high;
        }
        const char *next = packed && n - at - m >= m ? x + (at + m) * item : NULL;
        sum += e->k->exp_sum(p, NULL, m, top == -(double)INFINITY ? 0.0 : top, next, item);
        if (spread) total += e->weight ? e->k->weighted_sum(p, e->weight + at, m) : e->k->sum(p, m);
    }
    sum /= e->k->unit;
    e->top[row] = top;
    e->sum[row] = sum;
    if (t == e->ignore) {
        e->loss[row] = 0.0;
        return;
    }
    double log_sum = log(sum), loss = ((top - logit(e, x, t)) + log_sum) * weight_of(e, t);
    if (spread) {
        double even = (top * e->all_weights - total) + log_sum * e->all_weights;
        loss = (1.0 - e->smoothing) * loss + e->smoothing / (double)n * even;
    }
    e->loss[row] = loss;
}

static void backward_row(const Entropy *e, int64_t row, const char *x, char *dx) {
    _Alignas(64) char buffer[PIECE * sizeof(double)], result[PIECE * sizeof(double)];
    const Lines *l = &e->lines;
    int64_t n = l->length, t = e->target[row];
    bool kept = t != e->ignore, direct = e->dense[1];
    double g = kept ? e->grad[row * e->grad_step] : 0.0, w = kept ? weight_of(e, t) : 0.0;
    double b = g * (1.0 - e->smoothing) * w, d = g * e->smoothing / (double)n;
    double a = e->smoothing > 0.0 ? b + d * e->all_weights : b, ignored = vanishes(e, row) ? 0.0 : (double)NAN;
    bool each = e->weight && d != 0.0, whole = direct && e->dense[0] && !each;
    for (int64_t at = 0, m; at < n; at += m) {
        m = whole || n - at < PIECE ? n - at : PIECE;
        char *out = direct ? dx + at * e->item : result;
        if (kept) {
            e->k->slope(piece(e, x, at, m, buffer), out, m, e->top[row], a / e->sum[row], e->weight ? 0.0 : d,
                        whole && e->stream);
            if (each) e->k->subtract_each(out, e->weight + at, m, d);
        } else {
            amp_convert(AMP_FLOAT64, (const char *)&ignored, 0, e->type, out, e->item, m);
        }
        if (kept && t >= at && t < at + m) {
            double p = exp(logit(e, x, t) - e->top[row]) / e->sum[row], slope = (a * p - b) - d * w;
            amp_convert(AMP_FLOAT64, (const char *)&slope, 0, e->type, out + (t - at) * e->item, 0, 1);
        }
        if (!direct) amp_convert(e->type, out, e->item, l->dtype[1], dx + at * l->along[1], l->along[1], m);
    }
}

static void forward_rows(void *context, int64_t begin, int64_t end) {
    const Entropy *e = context;
    for (int64_t row = begin; row < end; row++) {
        char *at[AMP_MAX_LINE_VIEWS];
        amp_line_at(&e->lines, row, at);
        forward_row(e, row, at[0]);
    }
}

/* The last rows first: what was read last may be in a cache still. */
static void backward_rows(void *context, int64_t begin, int64_t end) {
    const Entropy *e = context;
    for (int64_t row = e->lines.count - 1 - begin; row > e->lines.count - 1 - end; row--) {
        char *at[AMP_MAX_LINE_VIEWS];
        amp_line_at(&e->lines, row, at);
        backward_row(e, row, at[0], at[1]);
    }
}

/* Rows [first, first + w) of logits beside each other, dense in the compute format, `step` bytes from class to class. */
static void forward_columns(const Entropy *e, int64_t first, const char *x, int64_t step, int64_t w) {
    double log_sum[AMP_COLUMNS], *top = e->top + first;
    e->k->columns_top_sum(x, step, e->lines.length, w, top, e->sum + first, log_sum);
    for (int64_t i = 0; i < w; i++) {
        int64_t t = e->target[first + i];
        double loss = 0.0;
        if (t != e->ignore) loss = ((top[i] - value_at(e, x + t * step, i)) + log_sum[i]) * weight_of(e, t);
        e->loss[first + i] = loss;
    }
}

static void backward_columns(const Entropy *e, int64_t first, const char *x, int64_t step, char *out, int64_t out_step,
                             int64_t w) {
    double factor[AMP_COLUMNS] = {0}, at_target[AMP_COLUMNS];
    const double *top = e->top + first, *sum = e->sum + first;
    int64_t n = e->lines.length;
    for (int64_t i = 0; i < w; i++) {
        int64_t t = e->target[first + i];
        double a = t == e->ignore ? 0.0 : e->grad[(first + i) * e->grad_step] * weight_of(e, t);
        factor[i] = a / sum[i];
        if (t != e->ignore) at_target[i] = factor[i] * exp(value_at(e, x + t * step, i) - top[i]) - a;
    }
    e->k->columns_slope(x, step, out, out_step, n, w, top, factor);
    for (int64_t i = 0; i < w; i++) {
        int64_t t = e->target[first + i];
        if (t != e->ignore) set_value(e, out + t * out_step, i, at_target[i]);
        else
            for (int64_t c = 0; c < n; c++) set_value(e, out + c * out_step, i, vanishes(e, first + i) ? 0.0 : (double)NAN);
    }
}

/* Blocks of neighbouring lines, through buffers where logits or gradient are not dense in the compute format. */
static void block_range(void *context, int64_t begin, int64_t end) {
    Entropy *e = context;
    const Lines *l = &e->lines;
    int last = l->nd - 1;
    int64_t n = l->length, size = n * e->blocks.group * e->item;
    bool backward = l->nview > 1, load = l->dtype[0] != e->type || l->step[0][last] != e->item;
    bool store = backward && (l->dtype[1] != e->type || l->step[1][last] != e->item);
    char *buffer = NULL;
    if (load + store && !(buffer = malloc((size_t)size * (size_t)(load + store)))) {
        __atomic_store_n(&e->no_memory, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t block = begin; block < end; block++) {
        int64_t first, w = amp_block_at(&e->blocks, block, &first);
        char *at[AMP_MAX_LINE_VIEWS], *out = NULL;
        amp_line_at(l, first, at);
        for (int64_t c = 0; load && c < n; c++)
            amp_convert(l->dtype[0], at[0] + c * l->along[0], l->step[0][last], e->type, buffer + c * w * e->item, e->item, w);
        const char *x = load ? buffer : at[0];
        int64_t step = load ? w * e->item : l->along[0];
        if (!backward) {
            forward_columns(e, first, x, step, w);
            continue;
        }
        out = store ? buffer + load * size : at[1];
        int64_t out_step = store ? w * e->item : l->along[1];
        backward_columns(e, first, x, step, out, out_step, w);
        for (int64_t c = 0; store && c < n; c++)
            amp_convert(e->type, out + c * out_step, e->item, l->dtype[1], at[1] + c * l->along[1], l->step[1][last], w);
    }
    free(buffer);
}

static Status run(Entropy *e, const Call *call, View *gradient, View *stats, RangeFn fn) {
    const View *views[2] = {call->in[0], gradient};
    if (!amp_is_floating(call->in[0]->dtype)) return AMP_BAD_DTYPE;
    amp_lines(&e->lines, gradient ? 2 : 1, views, amp_first_dim(call->dims));
    e->type = call->in[0]->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
    e->item = (int64_t)amp_itemsize(e->type);
    e->k = amp_softmax_kernels(e->type);
    for (int v = 0; v < e->lines.nview; v++)
        e->dense[v] = e->lines.dtype[v] == e->type && (e->lines.along[v] == e->item || e->lines.length == 1);
    e->stream = gradient && gradient->numel > AMP_STREAMED_BYTES / e->item && (uintptr_t)gradient->data % (size_t)e->item == 0;
    e->target = (const int64_t *)(const void *)call->in[1]->data;
    e->weight = call->in[2] ? (const double *)(const void *)call->in[2]->data : NULL;
    e->ignore = call->num[0].i;
    e->smoothing = call->num[1].f;
    int64_t n = e->lines.length;
    e->all_weights = e->weight ? 0.0 : (double)n;
    for (int64_t c = 0; e->weight && c < n; c++) e->all_weights += e->weight[c];
    e->top = (double *)(void *)stats->data;
    e->sum = e->top + e->lines.count;
    for (int64_t row = 0; row < e->lines.count; row++)
        if (e->target[row] != e->ignore && (e->target[row] < 0 || e->target[row] >= n)) return AMP_BAD_INDEX;
    if (e->smoothing == 0.0 && amp_line_blocks(&e->lines, &e->blocks, true, BLOCK, AMP_COLUMNS))
        amp_parallel_for(e->blocks.count, GRAIN / (n * e->blocks.group) + 1, block_range, e);
    else amp_parallel_for(e->lines.count, GRAIN / (n + 1) + 1, fn, e);
    return e->no_memory ? AMP_NO_MEMORY : AMP_OK;
}

Status amp_cross_entropy(const Call *call) {
    Entropy e = {.loss = (double *)(void *)call->out[0]->data};
    return run(&e, call, NULL, call->out[1], forward_rows);
}

Status amp_cross_entropy_grad(const Call *call) {
    View stats = *call->in[3];
    Entropy e = {.grad = (const double *)(const void *)call->in[4]->data, .grad_step = call->in[4]->numel > 1};
    return run(&e, call, call->out[0], &stats, backward_rows);
}
