/* Binary search in sorted lines: searchsorted, bucketize. */
#include "../core/numeric.h"
#include "cast.h"
#include "lines.h"
#include "sort.h"

typedef struct Search {
    const View *sequence, *values, *sorter;
    View *out;
    bool right, shared; /* shared: one line for all values */
    int type;           /* comparisons are made in INT64 or FLOAT64 */
    int64_t length, per_line;
} Search;

typedef union Value {
    int64_t i64;
    double f64;
} Value;

static Value load(int dtype, const char *p, int type) {
    Value v;
    if (dtype == AMP_FLOAT32) {
        float f;
        memcpy(&f, p, sizeof f);
        v.f64 = (double)f;
    } else if (dtype == type) {
        memcpy(&v, p, sizeof v);
    } else {
        amp_convert(dtype, p, 0, type, (char *)&v, 0, 1);
    }
    return v;
}

/* Whether the element stays before the place of the value: NaN belongs at the end. */
static bool before(const Search *s, Value element, Value value) {
    if (s->type == AMP_INT64) return s->right ? element.i64 <= value.i64 : element.i64 < value.i64;
    return s->right ? !(element.f64 > value.f64) : !(element.f64 >= value.f64);
}

static int64_t place_of(const Search *s, const char *line, int64_t step, const char *order, int64_t order_step, Value value) {
    int64_t low = 0, high = s->length;
    while (low < high) {
        int64_t middle = low + (high - low) / 2, at = middle;
        if (order) memcpy(&at, order + middle * order_step, sizeof at);
        if (before(s, load(s->sequence->dtype, line + at * step, s->type), value)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int64_t byte_offset(const View *v, int ndim, const int64_t *at) {
    int64_t offset = 0;
    for (int d = 0; d < ndim; d++) offset += at[d] * v->stride[d];
    return offset * (int64_t)amp_itemsize(v->dtype);
}

static void search_range(void *context, int64_t begin, int64_t end) {
    const Search *s = context;
    const View *v = s->values, *q = s->sequence;
    int64_t step = q->stride[q->ndim - 1] * (int64_t)amp_itemsize(q->dtype);
    int64_t order_step = s->sorter ? s->sorter->stride[q->ndim - 1] * (int64_t)sizeof(int64_t) : 0;
    for (int64_t i = begin; i < end; i++) {
        int64_t at[AMP_MAX_DIMS], rest = i;
        for (int d = v->ndim - 1; d >= 0; d--) at[d] = rest % v->shape[d], rest /= v->shape[d];
        int outer = s->shared ? 0 : q->ndim - 1;
        const char *line = q->data + byte_offset(q, outer, at);
        const char *order = s->sorter ? s->sorter->data + byte_offset(s->sorter, outer, at) : NULL;
        Value value = load(v->dtype, v->data + byte_offset(v, v->ndim, at), s->type);
        int64_t place = place_of(s, line, step, order, order_step, value);
        amp_convert(AMP_INT64, (const char *)&place, 0, s->out->dtype, s->out->data + byte_offset(s->out, v->ndim, at), 0, 1);
    }
}

static Status check_order(const View *sorter, int64_t length) {
    int64_t at[AMP_MAX_DIMS], k;
    for (int64_t i = 0; i < sorter->numel; i++) {
        int64_t rest = i;
        for (int d = sorter->ndim - 1; d >= 0; d--) at[d] = rest % sorter->shape[d], rest /= sorter->shape[d];
        memcpy(&k, sorter->data + byte_offset(sorter, sorter->ndim, at), sizeof k);
        if (k < 0 || k >= length) return AMP_BAD_INDEX;
    }
    return AMP_OK;
}

Status amp_search(const Call *call) {
    Search s = {.sequence = call->in[0], .values = call->in[1], .sorter = call->in[2], .out = call->out[0]};
    s.length = s.sequence->shape[s.sequence->ndim - 1];
    s.shared = s.sequence->ndim == 1;
    s.right = call->nnum > 0 && call->num[0].i;
    int a = amp_compute_dtype(s.sequence->dtype), b = amp_compute_dtype(s.values->dtype);
    if (amp_is_complex(a) || amp_is_complex(b)) return AMP_BAD_DTYPE;
    s.type = a == AMP_INT64 && b == AMP_INT64 ? AMP_INT64 : AMP_FLOAT64;
    Status status = s.sorter ? check_order(s.sorter, s.length) : AMP_OK;
    if (status == AMP_OK) amp_parallel_for(s.values->numel, 1024, search_range, &s);
    return status;
}
