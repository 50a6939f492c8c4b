/* softmax, log_softmax and their gradients: one line at a time along the innermost dimension, blocks of neighbouring lines along the
 * others. What is not dense in the compute format is converted to and from buffers. */
#include "softmax.h"

#include <math.h>
#include <stdlib.h>

#include "../core/ops.h"
#include "cast.h"
#include "lines.h"

enum { SMALL_LINE = 1024, GRAIN = 8 * 1024, BLOCK = 16 * 1024 };

typedef struct Softmax {
    Lines lines; /* inputs, then the output */
    LineBlocks blocks;
    const SoftmaxKernels *k;
    int op, type;
    int no_memory;
} Softmax;

/* One line, dense in the compute format. The output may be an input. */
static void line(const Softmax *s, const char *const *in, char *out, int64_t n) {
    const SoftmaxKernels *k = s->k;
    if (s->op == OP_softmax_grad) {
        k->softmax_grad(in[0], in[1], out, n);
        return;
    }
    if (s->op == OP_log_softmax_grad) {
        k->log_softmax_grad(in[0], in[1], out, n);
        return;
    }
    double m = k->max(in[0], n);
    bool logarithm = s->op == OP_log_softmax;
    double sum = k->exp_sum(in[0], logarithm ? NULL : out, n, m, NULL, 0);
    if (logarithm) k->shift(in[0], out, n, m, log(sum / k->unit));
    else k->scale(out, n, 1.0 / sum);
}

/* How many lines are found and converted at once: 1 if they do not follow each other at one distance, or are converted and not dense. */
static int64_t batch_of(const Lines *l, const bool *direct) {
    if (l->nd > 1 || l->length == 0) return 1;
    for (int v = 0; v < l->nview; v++) {
        const int64_t size = (int64_t)amp_itemsize(l->dtype[v]);
        if (!direct[v] && (l->along[v] != size || (l->nd && l->step[v][0] != l->length * size))) return 1;
    }
    return l->length < SMALL_LINE ? SMALL_LINE / l->length : 1;
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
    int64_t step[AMP_MAX_LINE_VIEWS], batch = batch_of(l, direct);
    for (int v = 0; v < l->nview; v++) step[v] = direct[v] && l->nd ? l->step[v][0] : n * item;
    for (int64_t i = begin, rows; i < end; i += rows) {
        char *ptr[AMP_MAX_LINE_VIEWS];
        const char *in[AMP_MAX_LINE_VIEWS];
        rows = end - i < batch ? end - i : batch;
        amp_line_at(l, i, ptr);
        for (int v = 0; v < nin; v++) {
            char *buffer = large ? large + (size_t)v * (size_t)n * (size_t)item : small[v];
            in[v] = direct[v] ? ptr[v] : buffer;
            if (!direct[v]) amp_convert(l->dtype[v], ptr[v], l->along[v], s->type, buffer, item, rows * n);
        }
        char *buffer = large ? large + (size_t)nin * (size_t)n * (size_t)item : small[nin];
        char *out = direct[nin] ? ptr[nin] : buffer;
        for (int64_t r = 0; r < rows; r++) {
            line(s, in, out + r * step[nin], n);
            for (int v = 0; v < nin; v++) in[v] += step[v];
        }
        if (!direct[nin]) amp_convert(s->type, buffer, item, l->dtype[nin], ptr[nin], l->along[nin], rows * n);
    }
    free(large);
}

static void columns(const Softmax *s, const char *const *in, const int64_t *step, char *out, int64_t out_step, int64_t w) {
    const SoftmaxKernels *k = s->k;
    int64_t n = s->lines.length;
    switch (s->op) {
    case OP_softmax_grad: k->columns_softmax_grad(in[0], step[0], in[1], step[1], out, out_step, n, w); break;
    case OP_log_softmax_grad: k->columns_log_softmax_grad(in[0], step[0], in[1], step[1], out, out_step, n, w); break;
    case OP_log_softmax: k->columns_log_softmax(in[0], step[0], out, out_step, n, w); break;
    default: k->columns_softmax(in[0], step[0], out, out_step, n, w);
    }
}

static void block_range(void *context, int64_t begin, int64_t end) {
    Softmax *s = context;
    const Lines *l = &s->lines;
    int64_t n = l->length, item = (int64_t)amp_itemsize(s->type), size = n * s->blocks.group * item;
    int last = l->nd - 1, nin = l->nview - 1, buffers = 0;
    char *buffer[AMP_MAX_LINE_VIEWS] = {NULL}, *all = NULL;
    for (int v = 0; v < l->nview; v++) buffers += l->dtype[v] != s->type || l->step[v][last] != item;
    if (buffers && !(all = malloc((size_t)size * (size_t)buffers))) {
        __atomic_store_n(&s->no_memory, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int v = 0, b = 0; v < l->nview; v++)
        if (l->dtype[v] != s->type || l->step[v][last] != item) buffer[v] = all + size * b++;
    for (int64_t i = begin; i < end; i++) {
        char *ptr[AMP_MAX_LINE_VIEWS];
        const char *in[AMP_MAX_LINE_VIEWS];
        int64_t step[AMP_MAX_LINE_VIEWS], first, w = amp_block_at(&s->blocks, i, &first);
        amp_line_at(l, first, ptr);
        for (int v = 0; v < l->nview; v++) {
            in[v] = buffer[v] ? buffer[v] : ptr[v];
            step[v] = buffer[v] ? w * item : l->along[v];
        }
        for (int v = 0; v < nin; v++)
            for (int64_t r = 0; buffer[v] && r < n; r++)
                amp_convert(l->dtype[v], ptr[v] + r * l->along[v], l->step[v][last], s->type, buffer[v] + r * step[v], item, w);
        char *out = buffer[nin] ? buffer[nin] : ptr[nin];
        columns(s, in, step, out, step[nin], w);
        for (int64_t r = 0; buffer[nin] && r < n; r++)
            amp_convert(s->type, out + r * step[nin], item, l->dtype[nin], ptr[nin] + r * l->along[nin], l->step[nin][last], w);
    }
    free(all);
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
    s.k = amp_softmax_kernels(s.type);
    if (amp_line_blocks(&s.lines, &s.blocks, false, BLOCK, AMP_COLUMNS))
        amp_parallel_for(s.blocks.count, GRAIN / (s.lines.length * s.blocks.group) + 1, block_range, &s);
    else {
        amp_merge_lines(&s.lines);
        amp_parallel_for(s.lines.count, GRAIN / s.lines.length + 1, line_range, &s);
    }
    return s.no_memory ? AMP_NO_MEMORY : AMP_OK;
}
