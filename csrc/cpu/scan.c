/* Running extremes with their positions, and running log-sum-exp. */
#include "cast.h"
#include "lines.h"
#include "scan.h"
#include "../core/numeric.h"
#include "../core/ops.h"

typedef struct Scan {
    Lines lines; /* input, output, and for extremes the positions */
    int op, type;
} Scan;

/* log(exp(a) + exp(b)) without overflow; equal infinities stay themselves, NaN wins. */
static double log_add(double a, double b) {
    double high = a > b ? a : b, low = a > b ? b : a;
    if (a != a || b != b) return a + b;
    return high == low && fabs(high) == (double)INFINITY ? high : high + log1p(exp(low - high));
}

/* A line goes through strips in the compute format: input converted, running values converted back. */
static void log_sum_line(const Scan *s, char *const *ptr) {
    const Lines *l = &s->lines;
    double running = -(double)INFINITY, x[AMP_STRIP];
    for (int64_t j = 0; j < l->length; j += AMP_STRIP) {
        int64_t n = l->length - j < AMP_STRIP ? l->length - j : AMP_STRIP;
        amp_convert(l->dtype[0], ptr[0] + j * l->along[0], l->along[0], AMP_FLOAT64, (char *)x, sizeof *x, n);
        for (int64_t i = 0; i < n; i++) x[i] = running = log_add(running, x[i]);
        amp_convert(AMP_FLOAT64, (const char *)x, sizeof *x, l->dtype[1], ptr[1] + j * l->along[1], l->along[1], n);
    }
}

/* Of equal values the latest counts; from the first NaN on every extreme is NaN. */
#define EXTREME_LINE(NAME, T) \
    static void NAME(const Scan *s, char *const *ptr) { \
        const Lines *l = &s->lines; \
        T best = 0, x[AMP_STRIP]; \
        int64_t position = 0; \
        bool max = s->op == OP_cummax; \
        for (int64_t j = 0; j < l->length; j += AMP_STRIP) { \
            int64_t n = l->length - j < AMP_STRIP ? l->length - j : AMP_STRIP; \
            amp_convert(l->dtype[0], ptr[0] + j * l->along[0], l->along[0], s->type, (char *)x, sizeof *x, n); \
            if (j == 0) best = x[0]; \
            for (int64_t i = 0; i < n; i++) { \
                if (x[i] != x[i] || (best == best && (max ? x[i] >= best : x[i] <= best))) best = x[i], position = j + i; \
                x[i] = best; \
                memcpy(ptr[2] + (j + i) * l->along[2], &position, sizeof position); \
            } \
            amp_convert(s->type, (const char *)x, sizeof *x, l->dtype[1], ptr[1] + j * l->along[1], l->along[1], n); \
        } \
    }
EXTREME_LINE(extreme_i64, int64_t)
EXTREME_LINE(extreme_f32, float)
EXTREME_LINE(extreme_f64, double)

static void scan_range(void *context, int64_t begin, int64_t end) {
    const Scan *s = context;
    for (int64_t i = begin; i < end; i++) {
        char *ptr[AMP_MAX_LINE_VIEWS];
        amp_line_at(&s->lines, i, ptr);
        if (s->op == OP_logcumsumexp) log_sum_line(s, ptr);
        else if (s->type == AMP_INT64) extreme_i64(s, ptr);
        else if (s->type == AMP_FLOAT32) extreme_f32(s, ptr);
        else extreme_f64(s, ptr);
    }
}

Status amp_scan_other(const Call *call) {
    const View *view[3] = {call->in[0], call->out[0], call->nout > 1 ? call->out[1] : NULL};
    Scan s = {.op = call->op, .type = amp_compute_dtype(call->in[0]->dtype)};
    if (s.type == AMP_COMPLEX128 || (s.op == OP_logcumsumexp && s.type == AMP_INT64)) return AMP_BAD_DTYPE;
    if (call->out[0]->numel == 0) return AMP_OK;
    amp_lines(&s.lines, call->nout > 1 ? 3 : 2, view, amp_first_dim(call->dims));
    amp_parallel_for(s.lines.count, 4 * 1024 / s.lines.length + 1, scan_range, &s);
    return AMP_OK;
}
