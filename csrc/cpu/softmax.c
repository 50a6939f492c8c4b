/* softmax, log_softmax and their gradients, one line at a time. Lines that are not dense in the compute format are converted to and
 * from buffers. Sums run in float64 over eight lanes at every instruction-set level. */
#include "vectorize.h"

#include <stdlib.h>

#include "../core/numeric_ops.h"
#include "../core/ops.h"
#include "cast.h"
#include "lines.h"
#include "reduce.h"

enum { LANES = 8, CHUNK = 256, SMALL_LINE = 1024, GRAIN = 8 * 1024 };

/* The four bodies for one type and one instruction set.
 *   exp_sum   o = exp(x - m), returns the sum of them before rounding; o may be NULL
 *   scale     o = o * factor
 *   shift     o = x - a - b
 *   dot       sum of x y, or of x if y is NULL
 *   softmax_grad      o = y (g - s)
 *   log_softmax_grad  o = g - exp(y) s */
#define LOOP IVDEP for (int64_t i = 0; i < n; i++)
#define LANE_SUM(expr) \
    double lane[LANES] = {0}; \
    int64_t i = 0; \
    for (; i + LANES <= n; i += LANES) \
        for (int l = 0; l < LANES; l++) lane[l] += expr(i + l); \
    for (int l = 0; i < n; i++, l++) lane[l] += expr(i); \
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
#define PRODUCT(k) ((double)x[k] * (double)y[k])
#define VALUE(k)   ((double)x[k])
#define BODIES(K, T, REAL, EXP, TARGET) \
    TARGET static double exp_sum_##K(const char *in, char *out, int64_t n, double m) { \
        const T *x = (const T *)(const void *)in; \
        T *o = (T *)(void *)out; \
        double lane[LANES] = {0}, e[CHUNK]; \
        for (int64_t at = 0; at < n; at += CHUNK) { \
            int64_t count = n - at < CHUNK ? n - at : CHUNK, i = 0; \
            for (int64_t k = 0; k < count; k++) e[k] = EXP((double)x[at + k] - m); \
            for (; i + LANES <= count; i += LANES) \
                for (int l = 0; l < LANES; l++) lane[l] += e[i + l]; \
            for (int l = 0; i < count; i++, l++) lane[l] += e[i]; \
            if (o) \
                for (int64_t k = 0; k < count; k++) o[at + k] = (REAL)e[k]; \
        } \
        return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])); \
    } \
    TARGET static void scale_##K(char *out, int64_t n, double factor) { \
        T *o = (T *)(void *)out; \
        LOOP o[i] = (REAL)((double)o[i] * factor); \
    } \
    TARGET static void shift_##K(const char *in, char *out, int64_t n, double a, double b) { \
        const T *x = (const T *)(const void *)in; \
        T *o = (T *)(void *)out; \
        LOOP o[i] = (REAL)(((double)x[i] - a) - b); \
    } \
    TARGET static double dot_##K(const char *in, const char *in2, int64_t n) { \
        const T *x = (const T *)(const void *)in, *y = (const T *)(const void *)in2; \
        LANE_SUM(PRODUCT) \
    } \
    TARGET static double sum_##K(const char *in, int64_t n) { \
        const T *x = (const T *)(const void *)in; \
        LANE_SUM(VALUE) \
    } \
    TARGET static void softmax_grad_##K(const char *grad, const char *output, char *out, int64_t n, double s) { \
        const T *g = (const T *)(const void *)grad, *y = (const T *)(const void *)output; \
        T *o = (T *)(void *)out; \
        LOOP o[i] = (REAL)((double)y[i] * ((double)g[i] - s)); \
    } \
    TARGET static void log_softmax_grad_##K(const char *grad, const char *output, char *out, int64_t n, double s) { \
        const T *g = (const T *)(const void *)grad, *y = (const T *)(const void *)output; \
        T *o = (T *)(void *)out; \
        LOOP o[i] = (REAL)((double)g[i] - EXP((double)y[i]) * s); \
    } \
    static const Bodies bodies_##K = {exp_sum_##K, scale_##K,        shift_##K,           dot_##K, \
                                      sum_##K,     softmax_grad_##K, log_softmax_grad_##K};

typedef struct Bodies {
    double (*exp_sum)(const char *, char *, int64_t, double);
    void (*scale)(char *, int64_t, double);
    void (*shift)(const char *, char *, int64_t, double, double);
    double (*dot)(const char *, const char *, int64_t);
    double (*sum)(const char *, int64_t);
    void (*softmax_grad)(const char *, const char *, char *, int64_t, double);
    void (*log_softmax_grad)(const char *, const char *, char *, int64_t, double);
} Bodies;

#define NO_TARGET
BODIES(f64, F64, double, exp, NO_TARGET)
BODIES(f32_baseline, F32, float, amp_exp_wide, NO_TARGET)
#if defined(__x86_64__)
BODIES(f32_avx2, F32, float, amp_exp_wide, __attribute__((target("avx2"))))
BODIES(f32_avx512, F32, float, amp_exp_wide,
       __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512"))))
#endif

static const Bodies *bodies_for(int type) {
    if (type == AMP_FLOAT64) return &bodies_f64;
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return &bodies_f32_avx512;
    if (isa >= ISA_AVX2) return &bodies_f32_avx2;
#endif
    return &bodies_f32_baseline;
}

typedef struct Softmax {
    Lines lines; /* inputs, then the output */
    const Bodies *bodies;
    FoldFn max;
    int op, type;
    int no_memory;
} Softmax;

/* One line, dense in the compute format. The output may be an input. */
static void line(const Softmax *s, const char *const *in, char *out, int64_t n) {
    const Bodies *b = s->bodies;
    if (s->op == OP_softmax_grad) {
        b->softmax_grad(in[0], in[1], out, n, b->dot(in[0], in[1], n));
        return;
    }
    if (s->op == OP_log_softmax_grad) {
        b->log_softmax_grad(in[0], in[1], out, n, b->sum(in[0], n));
        return;
    }
    double m = -(double)INFINITY;
    if (s->type == AMP_FLOAT32) {
        float top = -INFINITY;
        s->max(&top, in[0], n, NULL);
        m = (double)top;
    } else {
        s->max(&m, in[0], n, NULL);
    }
    bool logarithm = s->op == OP_log_softmax;
    double sum = b->exp_sum(in[0], logarithm ? NULL : out, n, m);
    if (logarithm) b->shift(in[0], out, n, m, log(sum));
    else b->scale(out, n, 1.0 / sum);
}

static void line_range(void *context, int64_t begin, int64_t end) {
    Softmax *s = context;
    const Lines *l = &s->lines;
    int64_t n = l->length, item = (int64_t)amp_itemsize(s->type);
    int nin = l->nview - 1;
    _Alignas(64) char small[AMP_MAX_LINE_VIEWS][SMALL_LINE * sizeof(double)];
    char *large = NULL;
    bool direct[AMP_MAX_LINE_VIEWS], all = true;
    for (int v = 0; v < l->nview; v++) {
        direct[v] = l->dtype[v] == s->type && (l->along[v] == item || n == 1);
        all = all && direct[v];
    }
    if (!all && n > SMALL_LINE && !(large = malloc((size_t)n * (size_t)item * (size_t)l->nview))) {
        __atomic_store_n(&s->no_memory, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        char *ptr[AMP_MAX_LINE_VIEWS];
        const char *in[AMP_MAX_LINE_VIEWS];
        amp_line_at(l, i, ptr);
        for (int v = 0; v < nin; v++) {
            char *buffer = large ? large + (size_t)v * (size_t)n * (size_t)item : small[v];
            in[v] = direct[v] ? ptr[v] : buffer;
            if (!direct[v]) amp_convert(l->dtype[v], ptr[v], l->along[v], s->type, buffer, item, n);
        }
        char *buffer = large ? large + (size_t)nin * (size_t)n * (size_t)item : small[nin];
        char *out = direct[nin] ? ptr[nin] : buffer;
        line(s, in, out, n);
        if (!direct[nin]) amp_convert(s->type, buffer, item, l->dtype[nin], ptr[nin], l->along[nin], n);
    }
    free(large);
}

Status amp_softmax(const Call *call) {
    Softmax s = {.op = call->op, .no_memory = 0};
    const View *out = call->out[0], *view[AMP_MAX_LINE_VIEWS];
    bool grad = call->op == OP_softmax_grad || call->op == OP_log_softmax_grad;
    int nin = grad ? 2 : 1;
    if (!amp_is_floating(call->in[0]->dtype)) return AMP_BAD_DTYPE;
    if (out->numel == 0) return AMP_OK;
    for (int v = 0; v < nin; v++) view[v] = call->in[v];
    view[nin] = out;
    amp_lines(&s.lines, nin + 1, view, amp_first_dim(call->dims));
    s.type = out->dtype == AMP_FLOAT64 || call->in[0]->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
    s.bodies = bodies_for(s.type);
    s.max = amp_fold_kernel(FOLD_MAX, s.type).fold;
    amp_parallel_for(s.lines.count, GRAIN / s.lines.length + 1, line_range, &s);
    return s.no_memory ? AMP_NO_MEMORY : AMP_OK;
}
