/* Triangles, flips, sequences, positions of non-zero elements, running sums. */
#include "vectorize.h"

#include "arrange.h"

#include "../core/numeric_ops.h"
#include "../core/ops.h"
#include "cast.h"
#include "elementwise.h"
#include "lines.h"
#include "scan.h"

/* Columns [first, last) of a row are copied, the others become zero. */
typedef struct Row {
    int dtype;
    const char *in;
    char *out;
    int64_t in_step, out_step, width;
} Row;
static void keep_columns(const Row *r, int64_t first, int64_t last) {
    static const char zero[AMP_MAX_ITEM];
    if (first < 0) first = 0;
    if (last > r->width) last = r->width;
    if (first >= last) first = last = r->width;
    amp_convert(r->dtype, zero, 0, r->dtype, r->out, r->out_step, first);
    amp_convert(r->dtype, r->in + first * r->in_step, r->in_step, r->dtype, r->out + first * r->out_step, r->out_step,
                last - first);
    amp_convert(r->dtype, zero, 0, r->dtype, r->out + last * r->out_step, r->out_step, r->width - last);
}

static int64_t clip(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

static Status triangle(const Call *call) {
    const View *view[2] = {call->in[0], call->out[0]};
    int last = call->out[0]->ndim - 1;
    int64_t rows = call->out[0]->shape[last - 1], width = call->out[0]->shape[last];
    int64_t diagonal = call->nnum > 0 && call->num[0].kind != NUMBER_NONE ? clip(call->num[0].i, -rows, width) : 0;
    Lines l;
    amp_lines(&l, 2, view, last);
    for (int64_t i = 0; i < l.count; i++) {
        char *ptr[AMP_MAX_LINE_VIEWS];
        int64_t row = i % rows;
        amp_line_at(&l, i, ptr);
        Row r = {l.dtype[0], ptr[0], ptr[1], l.along[0], l.along[1], width};
        if (call->op == OP_tril) keep_columns(&r, 0, row + diagonal + 1);
        else keep_columns(&r, row + diagonal, width);
    }
    return AMP_OK;
}

/* The input read backwards: from its last element with the opposite stride. */
static Status flip(const Call *call) {
    View in = *call->in[0];
    int64_t stride[AMP_MAX_DIMS];
    for (int d = 0; d < in.ndim; d++) {
        stride[d] = in.stride[d];
        if (!(call->dims >> d & 1)) continue;
        in.data += (in.shape[d] - 1) * stride[d] * (int64_t)amp_itemsize(in.dtype);
        stride[d] = -stride[d];
    }
    in.stride = stride;
    in.layout = 0;
    const View *view[1] = {&in};
    ElementLoop copy = {.nin = 1};
    amp_element_loop(&copy, call->out[0], view);
    return AMP_OK;
}

/* Sequences are made in strips: FLOAT64 for floats (rounded once), INT64 for integers. */
typedef struct Sequence {
    double start, step, end;
    int64_t istart, istep, n;
    bool integral, from_both_ends;
} Sequence;

static void sequence_strip(const Sequence *q, int64_t first, int64_t n, void *strip) {
    int64_t *whole = strip;
    double *real = strip;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = first + i;
        if (q->integral && !q->from_both_ends) {
            whole[i] = amp_i64_add(q->istart, amp_i64_mul(k, q->istep));
            continue;
        }
        double v = q->start + q->step * (double)k;
        if (q->from_both_ends && k >= q->n / 2) v = q->end - q->step * (double)(q->n - 1 - k);
        if (q->integral) whole[i] = amp_f64_to_i64(v);
        else real[i] = v;
    }
}

static void write_sequence(const Sequence *q, View *out) {
    _Alignas(64) char strip[AMP_STRIP * sizeof(double)];
    int64_t step = out->ndim ? out->stride[0] * (int64_t)amp_itemsize(out->dtype) : 0;
    for (int64_t i = 0; i < out->numel; i += AMP_STRIP) {
        int64_t n = out->numel - i < AMP_STRIP ? out->numel - i : AMP_STRIP;
        sequence_strip(q, i, n, strip);
        amp_convert(q->integral ? AMP_INT64 : AMP_FLOAT64, strip, sizeof(double), out->dtype, out->data + i * step, step, n);
    }
}

static int64_t whole_number(const Number *n) {
    return n->kind == NUMBER_INT || n->kind == NUMBER_BOOL ? n->i : amp_f64_to_i64(n->f);
}

/* num: start, end, step; or only end (OP_arange_end). */
static Status arange(const Call *call) {
    static const Number zero = {.f = 0, .i = 0, .kind = NUMBER_INT}, one = {.f = 1, .i = 1, .kind = NUMBER_INT};
    bool only_end = call->nnum < 2 || call->num[1].kind == NUMBER_NONE;
    const Number *start = only_end ? &zero : &call->num[0];
    const Number *step = call->nnum > 2 && call->num[2].kind != NUMBER_NONE ? &call->num[2] : &one;
    Sequence q = {.start = start->f,
                  .step = step->f,
                  .istart = whole_number(start),
                  .istep = whole_number(step),
                  .n = call->out[0]->numel,
                  .integral = amp_is_integral(call->out[0]->dtype)};
    write_sequence(&q, call->out[0]);
    return AMP_OK;
}

/* Counted from the nearer end, so that both ends are exact. */
static Status linspace(const Call *call) {
    int64_t n = call->out[0]->numel;
    double start = call->num[0].f, end = call->num[1].f;
    Sequence q = {.start = start,
                  .end = n > 1 ? end : start,
                  .step = n > 1 ? (end - start) / (double)(n - 1) : 0,
                  .n = n,
                  .integral = amp_is_integral(call->out[0]->dtype),
                  .from_both_ends = true};
    write_sequence(&q, call->out[0]);
    return AMP_OK;
}

static Status eye(const Call *call) {
    View *out = call->out[0];
    Call clear = {.out = {out}, .nout = 1, .nnum = 1, .num = {{.f = 0, .i = 0, .kind = NUMBER_INT}}};
    Status status = amp_fill(&clear);
    Number one = {.f = 1, .i = 1, .kind = NUMBER_INT};
    int64_t n = out->shape[0] < out->shape[1] ? out->shape[0] : out->shape[1], item = (int64_t)amp_itemsize(out->dtype);
    for (int64_t i = 0; i < n; i++)
        amp_convert_number(&one, out->dtype, out->data + i * (out->stride[0] + out->stride[1]) * item);
    return status;
}

Status amp_arrange(const Call *call) {
    if (call->out[0]->numel == 0) return AMP_OK;
    switch (call->op) {
    case OP_tril:
    case OP_triu: return triangle(call);
    case OP_flip: return flip(call);
    case OP_arange:
    case OP_arange_end: return arange(call);
    case OP_linspace: return linspace(call);
    case OP_eye: return eye(call);
    default: return AMP_NO_KERNEL;
    }
}

/* Positions in C order of the elements that are not zero (NaN is not zero). */
Status amp_nonzero(const Call *call) {
    const View *in = call->in[0];
    View *out = call->out[0];
    int64_t count = 0;
    Lines l;
    bool mask[AMP_STRIP];
    if (in->numel == 0) goto done;
    amp_lines(&l, 1, &in, in->ndim - 1);
    for (int64_t i = 0; i < l.count; i++) {
        char *ptr[AMP_MAX_LINE_VIEWS];
        amp_line_at(&l, i, ptr);
        for (int64_t j = 0; j < l.length; j += AMP_STRIP) {
            int64_t n = l.length - j < AMP_STRIP ? l.length - j : AMP_STRIP;
            amp_convert(in->dtype, ptr[0] + j * l.along[0], l.along[0], AMP_BOOL, (char *)mask, 1, n);
            for (int64_t k = 0; k < n; k++) {
                if (!mask[k]) continue;
                int64_t row = count++, rest = i * l.length + j + k;
                if (!out) continue;
                for (int d = in->ndim - 1; d >= 0; d--) {
                    int64_t at = rest % in->shape[d];
                    rest /= in->shape[d];
                    memcpy(out->data + (row * out->stride[0] + d * out->stride[1]) * (int64_t)sizeof at, &at, sizeof at);
                }
            }
        }
    }
done:
    if (!out) *(int64_t *)call->extra = count;
    return AMP_OK;
}

/* ---- cumsum, cumprod ---- */

typedef struct Scan {
    Lines lines;
    LineBlocks blocks;
    bool product;
    int type;    /* format of the strips */
    bool narrow; /* 16 bits and less: the running value is float32; float32 runs in float64 */
} Scan;

#define RUN_ON(T, RUNNING, ADD, MUL) \
    { \
        T *x = strip; \
        RUNNING *r = running; \
        for (int64_t i = 0; i < n; i++) { \
            *r = s->product ? MUL(*r, (RUNNING)x[i]) : ADD(*r, (RUNNING)x[i]); \
            x[i] = (T)*r; \
        } \
        return; \
    }
#define PLUS(a, b)  ((a) + (b))
#define TIMES(a, b) ((a) * (b))
static void scan_strip(const Scan *s, void *strip, void *running, int64_t n) {
    if (s->type == AMP_INT64) RUN_ON(int64_t, int64_t, amp_i64_add, amp_i64_mul)
    if (s->type == AMP_FLOAT64) RUN_ON(double, double, PLUS, TIMES)
    if (s->narrow) RUN_ON(float, float, PLUS, TIMES)
    if (s->type == AMP_FLOAT32) RUN_ON(float, double, PLUS, TIMES)
    AmpComplex *x = strip, *r = running;
    for (int64_t i = 0; i < n; i++) x[i] = *r = s->product ? amp_c128_mul(*r, x[i]) : amp_c128_add(*r, x[i]);
}

static void scan_range(void *context, int64_t begin, int64_t end) {
    const Scan *s = context;
    const Lines *l = &s->lines;
    _Alignas(64) char strip[AMP_STRIP * AMP_MAX_ITEM];
    int64_t item = (int64_t)amp_itemsize(s->type);
    for (int64_t i = begin; i < end; i++) {
        char *ptr[AMP_MAX_LINE_VIEWS];
        union {
            double f64;
            float f32;
            int64_t i64;
            AmpComplex c128;
        } running = {.c128 = {0, 0}};
        if (s->type == AMP_INT64) running.i64 = s->product;
        else if (s->narrow) running.f32 = s->product;
        else running.f64 = s->product;
        amp_line_at(l, i, ptr);
        for (int64_t j = 0; j < l->length; j += AMP_STRIP) {
            int64_t n = l->length - j < AMP_STRIP ? l->length - j : AMP_STRIP;
            amp_convert(l->dtype[0], ptr[0] + j * l->along[0], l->along[0], s->type, strip, item, n);
            scan_strip(s, strip, &running, n);
            amp_convert(s->type, strip, item, l->dtype[1], ptr[1] + j * l->along[1], l->along[1], n);
        }
    }
}

#define ROW_ON(T, RUNNING, ADD, MUL) \
    { \
        T *x = strip; \
        RUNNING *r = running; \
        if (s->product) IVDEP for (int64_t i = 0; i < n; i++) x[i] = (T)(r[i] = MUL(r[i], (RUNNING)x[i])); \
        else IVDEP for (int64_t i = 0; i < n; i++) x[i] = (T)(r[i] = ADD(r[i], (RUNNING)x[i])); \
        return; \
    }
/* One element each of n neighbouring lines, with the bits that scan_strip gives. */
static void scan_row(const Scan *s, void *strip, void *running, int64_t n) {
    if (s->type == AMP_INT64) ROW_ON(int64_t, int64_t, amp_i64_add, amp_i64_mul)
    if (s->type == AMP_FLOAT64) ROW_ON(double, double, PLUS, TIMES)
    if (s->narrow) ROW_ON(float, float, PLUS, TIMES)
    ROW_ON(float, double, PLUS, TIMES)
}

static void block_range(void *context, int64_t begin, int64_t end) {
    const Scan *s = context;
    const Lines *l = &s->lines;
    int64_t item = (int64_t)amp_itemsize(s->type);
    int last = l->nd - 1, running_type = s->type == AMP_FLOAT32 && !s->narrow ? AMP_FLOAT64 : s->type;
    _Alignas(64) char strip[AMP_STRIP * sizeof(double)], running[AMP_STRIP * sizeof(double)];
    for (int64_t block = begin; block < end; block++) {
        char *ptr[AMP_MAX_LINE_VIEWS];
        int64_t first, n = amp_block_at(&s->blocks, block, &first), start = s->product;
        amp_convert(AMP_INT64, (const char *)&start, 0, running_type, running, (int64_t)amp_itemsize(running_type), n);
        amp_line_at(l, first, ptr);
        for (int64_t j = 0; j < l->length; j++) {
            amp_convert(l->dtype[0], ptr[0] + j * l->along[0], l->step[0][last], s->type, strip, item, n);
            scan_row(s, strip, running, n);
            amp_convert(s->type, strip, item, l->dtype[1], ptr[1] + j * l->along[1], l->step[1][last], n);
        }
    }
}

Status amp_scan(const Call *call) {
    if (call->op != OP_cumsum && call->op != OP_cumprod) return amp_scan_other(call);
    const View *view[2] = {call->in[0], call->out[0]};
    Scan s = {.product = call->op == OP_cumprod, .type = amp_compute_dtype(call->out[0]->dtype)};
    if (call->out[0]->numel == 0) return AMP_OK;
    s.narrow = s.type == AMP_FLOAT32 && call->out[0]->dtype != AMP_FLOAT32;
    amp_lines(&s.lines, 2, view, amp_first_dim(call->dims));
    if (s.type != AMP_COMPLEX128 && amp_line_blocks(&s.lines, &s.blocks, false, INT64_MAX, AMP_STRIP / 2))
        amp_parallel_for(s.blocks.count, 16 * 1024 / (s.lines.length * s.blocks.group) + 1, block_range, &s);
    else amp_parallel_for(s.lines.count, 16 * 1024 / s.lines.length + 1, scan_range, &s);
    return AMP_OK;
}
