/* Tables of vectors: rows chosen by index, and the sums of gradients that go back to each row.
 *
 * The gradient is gathered per row of the table, not scattered per position: positions are sorted by their index first (counting sort,
 * stable), so that each row is written by one thread, its terms are added in order of position, in float64, and rounded once.
 *
 *     index     2 0 2 1        start   0 1 2 4        order   1 | 3 | 0 2        row 2 = g[0] + g[2] */
#include "vectorize.h"

#include <stdlib.h>
#include <string.h>

#include "cast.h"
#include "cpu_backend.h"
#include "norm_walk.h"

typedef struct Table {
    const char *in;
    char *out;
    const I64 *index;
    int64_t rows, width, padding; /* padding: the row that gets no gradient, or -1 */
    bool by_frequency;
    int dtype;
    int64_t *start, *order;
} Table;

enum { GRAIN = 16 * 1024, STRIP = NORM_CHUNK };

static void read_rows(void *context, int64_t begin, int64_t end) {
    const Table *t = context;
    size_t bytes = (size_t)t->width * amp_itemsize(t->dtype);
    for (int64_t i = begin; i < end; i++) memcpy(t->out + (size_t)i * bytes, t->in + (size_t)t->index[i] * bytes, bytes);
}

static void sum_row(const Table *t, const NormKernels *k, int compute, int64_t row) {
    int64_t item = (int64_t)amp_itemsize(t->dtype), first = t->start[row], n = t->start[row + 1] - first;
    char *out = t->out + row * t->width * item;
    if (n == 0 || row == t->padding) {
        memset(out, 0, (size_t)(t->width * item));
        return;
    }
    if (n == 1) {
        memcpy(out, t->in + t->order[first] * t->width * item, (size_t)(t->width * item));
        return;
    }
    _Alignas(64) double sum[STRIP];
    _Alignas(64) char buffer[STRIP * sizeof(double)];
    for (int64_t at = 0; at < t->width; at += STRIP) {
        int64_t m = t->width - at < STRIP ? t->width - at : STRIP;
        memset(sum, 0, (size_t)m * sizeof *sum);
        for (int64_t i = first; i < first + n; i++) {
            const char *g = norm_load(t->dtype, t->in + (t->order[i] * t->width + at) * item, m, compute, buffer);
            k->add(g, m, sum);
        }
        for (int64_t j = 0; t->by_frequency && j < m; j++) sum[j] /= (double)n;
        amp_convert(AMP_FLOAT64, (const char *)sum, sizeof *sum, t->dtype, out + at * item, item, m);
    }
}

static void sum_rows(void *context, int64_t begin, int64_t end) {
    const Table *t = context;
    int compute = amp_compute_dtype(t->dtype);
    const NormKernels *k = amp_norm_kernels(compute);
    for (int64_t row = begin; row < end; row++) sum_row(t, k, compute, row);
}

/* start[r] .. start[r + 1]: where row r's positions stand in order. */
static Status sort_positions(Table *t, int64_t n) {
    t->start = calloc((size_t)t->rows + 2, sizeof *t->start);
    t->order = malloc(((size_t)n + 1) * sizeof *t->order);
    if (!t->start || !t->order) return AMP_NO_MEMORY;
    int64_t *next = t->start + 1; /* one further: filling moves next[r] from the start of row r to its end */
    for (int64_t i = 0; i < n; i++) next[t->index[i] + 1]++;
    for (int64_t r = 0; r < t->rows; r++) next[r + 1] += next[r];
    for (int64_t i = 0; i < n; i++) t->order[next[t->index[i]]++] = i;
    return AMP_OK;
}

Status amp_embedding(const Call *call) {
    const View *in = call->in[0], *index = call->in[1], *out = call->out[0];
    bool back = call->op == OP_embedding_grad;
    Table t = {.in = in->data, .out = out->data, .index = (const I64 *)(const void *)index->data, .dtype = in->dtype};
    t.rows = back ? out->shape[0] : in->shape[0];
    t.width = back ? out->shape[1] : in->shape[1];
    if (!amp_is_floating(in->dtype) && back) return AMP_BAD_DTYPE;
    for (int64_t i = 0; i < index->numel; i++)
        if (t.index[i] < 0 || t.index[i] >= t.rows) return AMP_BAD_INDEX;
    if (out->numel == 0) return AMP_OK;
    if (!back) {
        amp_parallel_for(index->numel, GRAIN / t.width + 1, read_rows, &t);
        return AMP_OK;
    }
    t.padding = call->num[0].i;
    t.by_frequency = call->num[1].i != 0;
    Status status = sort_positions(&t, index->numel);
    if (status == AMP_OK) amp_parallel_for(t.rows, GRAIN / t.width + 1, sum_rows, &t);
    free(t.start);
    free(t.order);
    return status;
}
