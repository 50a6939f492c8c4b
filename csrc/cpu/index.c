/* Advanced indexing: index, index_put, gather, scatters. Every index is checked before anything is written. */
#include "cast.h"
#include "elementwise.h"
#include "index.h"
#include "lines.h"

static int64_t read_index(const char *p) {
    int64_t i;
    memcpy(&i, p, sizeof i);
    return i;
}

/* A walk in C order over one shape with several views. Steps in bytes. */
typedef struct Odometer {
    int nd, nview;
    const int64_t *shape;
    int64_t at[AMP_MAX_DIMS];
    int64_t step[AMP_MAX_OPERANDS][AMP_MAX_DIMS];
    char *ptr[AMP_MAX_OPERANDS];
} Odometer;

static void odometer_start(Odometer *o, int nd, const int64_t *shape) {
    o->nd = nd, o->nview = 0, o->shape = shape;
    for (int d = 0; d < nd; d++) o->at[d] = 0;
}
static void odometer_add(Odometer *o, const View *v, int first_dim, char *data) {
    int k = o->nview++;
    o->ptr[k] = data;
    for (int d = 0; d < o->nd; d++) o->step[k][d] = v->stride[first_dim + d] * (int64_t)amp_itemsize(v->dtype);
}
static void odometer_next(Odometer *o) {
    for (int d = o->nd - 1; d >= 0; d--) {
        for (int v = 0; v < o->nview; v++) o->ptr[v] += o->step[v][d];
        if (++o->at[d] < o->shape[d]) return;
        for (int v = 0; v < o->nview; v++) o->ptr[v] -= o->at[d] * o->step[v][d];
        o->at[d] = 0;
    }
}

static Status check_indices(const View *index, int64_t size, bool from_end) {
    Odometer o;
    odometer_start(&o, index->ndim, index->shape);
    odometer_add(&o, index, 0, index->data);
    for (int64_t i = 0; i < index->numel; i++) {
        int64_t k = read_index(o.ptr[0]);
        if (k < (from_end ? -size : 0) || k >= size) return from_end ? AMP_BAD_INDEX : AMP_BAD_POSITION;
        odometer_next(&o);
    }
    return AMP_OK;
}

/* ---- index and index_put ----
 *
 *     table (I1..Ik, R...)        list: k index views of shape B        values (B..., R...)
 *
 * For each position b the block table[i1(b)]..[ik(b)] of shape R meets the block values[b]. */
typedef struct Blocks {
    const View *table, *values;
    const View *const *list;
    int64_t nlist, positions;
    int nb;         /* dimensions of B */
    View from, to;  /* one block; data is set per position */
    int64_t *shape; /* R */
} Blocks;

static char *block_of(const Blocks *b, char *table, char *const *index) {
    int64_t item = (int64_t)amp_itemsize(b->table->dtype);
    for (int64_t k = 0; k < b->nlist; k++) {
        int64_t i = read_index(index[k]);
        if (i < 0) i += b->table->shape[k];
        table += i * b->table->stride[k] * item;
    }
    return table;
}

static View block_view(const View *v, int first_dim) {
    View r = *v;
    r.ndim = (int8_t)(v->ndim - first_dim);
    r.shape = v->shape + first_dim;
    r.stride = v->stride + first_dim;
    r.numel = 1;
    for (int d = 0; d < r.ndim; d++) r.numel *= r.shape[d];
    r.layout = amp_is_contiguous(r.ndim, r.shape, r.stride) ? LAYOUT_CONTIGUOUS : 0;
    return r;
}

/* *to += *from in the dtype's compute format. */
static void add_one(int dtype, char *to, const char *from) {
    if (dtype == AMP_FLOAT32) {
        float a, b;
        memcpy(&a, to, sizeof a);
        memcpy(&b, from, sizeof b);
        a += b;
        memcpy(to, &a, sizeof a);
        return;
    }
    _Alignas(16) char a[AMP_MAX_ITEM], b[AMP_MAX_ITEM];
    int compute = amp_compute_dtype(dtype);
    amp_convert(dtype, to, 0, compute, a, 0, 1);
    amp_convert(dtype, from, 0, compute, b, 0, 1);
    const char *in[2] = {a, b};
    amp_find_kernel(compute, OP_add)(in, a, 1, 0, &(Params){.zero_divisor = NULL});
    amp_convert(compute, a, 0, dtype, to, 0, 1);
}

enum { INDEXED_MAX = AMP_MAX_DIMS };
typedef enum BlockAction { BLOCK_READ, BLOCK_ASSIGN, BLOCK_ADD } BlockAction;

/* Walks the positions [begin, end) of B in order. */
static void walk_blocks(const Blocks *b, BlockAction action, int64_t begin, int64_t end) {
    View table = block_view(b->table, (int)b->nlist), values = block_view(b->values, b->nb);
    int compute = amp_compute_dtype(table.dtype);
    ElementLoop add = {.kernel = amp_find_kernel(compute, OP_add), .nin = 2, .type = {compute, compute, compute}},
                copy = {.nin = 1};
    const View *out = action == BLOCK_READ ? &values : &table, *sum_in[2] = {&table, &values};
    const View *copy_in[1] = {action == BLOCK_READ ? &table : &values};
    Params none = {.zero_divisor = NULL};
    add.params = &none;
    size_t bytes = amp_itemsize(table.dtype) * (size_t)table.numel;
    bool dense = action != BLOCK_ADD && (table.layout & values.layout & LAYOUT_CONTIGUOUS);
    for (int64_t i = begin; i < end; i++) {
        char *index[INDEXED_MAX], *base = b->values->data;
        int64_t rest = i;
        for (int64_t k = 0; k < b->nlist; k++) index[k] = b->list[k]->data;
        for (int d = b->nb - 1; d >= 0; d--) {
            int64_t at = rest % b->values->shape[d];
            rest /= b->values->shape[d];
            base += at * b->values->stride[d] * (int64_t)amp_itemsize(b->values->dtype);
            for (int64_t k = 0; k < b->nlist; k++) index[k] += at * b->list[k]->stride[d] * (int64_t)sizeof(int64_t);
        }
        table.data = block_of(b, b->table->data, index);
        values.data = base;
        if (dense) memcpy(out->data, copy_in[0]->data, bytes);
        else if (action == BLOCK_ADD && table.numel == 1) add_one(table.dtype, table.data, values.data);
        else if (action == BLOCK_ADD) amp_element_loop(&add, &table, sum_in);
        else amp_element_loop(&copy, action == BLOCK_READ ? &values : &table, copy_in);
    }
}

static void read_blocks(void *context, int64_t begin, int64_t end) { walk_blocks(context, BLOCK_READ, begin, end); }

static Status set_blocks(Blocks *b, const Call *call, const View *table, const View *values) {
    *b = (Blocks){.table = table, .values = values, .list = call->list, .nlist = call->nlist, .positions = 1};
    b->nb = call->nlist ? call->list[0]->ndim : 0;
    for (int d = 0; d < b->nb; d++) b->positions *= call->list[0]->shape[d];
    for (int64_t k = 0; k < call->nlist; k++) {
        Status status = check_indices(call->list[k], table->shape[k], true);
        if (status != AMP_OK) return status;
    }
    return AMP_OK;
}

Status amp_index(const Call *call) {
    Blocks b;
    Status status = set_blocks(&b, call, call->in[0], call->out[0]);
    if (status != AMP_OK || call->out[0]->numel == 0) return status;
    int64_t per_block = call->out[0]->numel / b.positions;
    amp_parallel_for(b.positions, 16 * 1024 / per_block + 1, read_blocks, &b);
    return AMP_OK;
}

Status amp_index_put(const Call *call) {
    Blocks b;
    Status status = set_blocks(&b, call, call->out[0], call->in[0]);
    if (status != AMP_OK || call->in[0]->numel == 0) return status;
    walk_blocks(&b, call->nnum > 0 && call->num[0].i == 1 ? BLOCK_ADD : BLOCK_ASSIGN, 0, b.positions);
    return AMP_OK;
}

/* ---- gather and scatters ---- */

static Status gather(const Call *call) {
    const View *in = call->in[0], *index = call->in[1], *out = call->out[0];
    int dim = amp_first_dim(call->dims);
    int64_t size = in->ndim ? in->shape[dim] : 1, item = (int64_t)amp_itemsize(in->dtype),
            step = in->ndim ? in->stride[dim] * item : 0;
    Status status = check_indices(index, size, false);
    if (status != AMP_OK) return status;
    Odometer o;
    odometer_start(&o, index->ndim, index->shape);
    odometer_add(&o, in, 0, in->data);
    odometer_add(&o, index, 0, index->data);
    odometer_add(&o, out, 0, out->data);
    if (index->ndim) o.step[0][dim] = 0; /* along `dim` the index moves the source */
    for (int64_t i = 0; i < index->numel; i++) {
        int64_t k = read_index(o.ptr[1]);
        memcpy(o.ptr[2], o.ptr[0] + k * step, (size_t)item);
        odometer_next(&o);
    }
    return AMP_OK;
}

/* Where a scatter writes: out at index along `dim`, src read in step (one value everywhere: strides 0). */
typedef struct Scatter {
    const View *index;
    Odometer o; /* src, index, out */
    int64_t step;
} Scatter;

static Status plan_scatter(Scatter *s, const Call *call) {
    const View *src = call->in[0], *out = call->out[0];
    int dim = amp_first_dim(call->dims);
    int64_t size = out->ndim ? out->shape[dim] : 1;
    s->index = call->in[1];
    s->step = out->ndim ? out->stride[dim] * (int64_t)amp_itemsize(out->dtype) : 0;
    odometer_start(&s->o, s->index->ndim, s->index->shape);
    odometer_add(&s->o, src, 0, src->data);
    odometer_add(&s->o, s->index, 0, s->index->data);
    odometer_add(&s->o, out, 0, out->data);
    if (s->index->ndim) s->o.step[2][dim] = 0;
    return check_indices(s->index, size, false);
}

static Status scatter_add(const Call *call) {
    Scatter s;
    Status status = plan_scatter(&s, call);
    for (int64_t i = 0; status == AMP_OK && i < s.index->numel; i++) {
        add_one(call->out[0]->dtype, s.o.ptr[2] + read_index(s.o.ptr[1]) * s.step, s.o.ptr[0]);
        odometer_next(&s.o);
    }
    return status;
}

/* In order: of several values for one place the last stays. */
static Status scatter(const Call *call) {
    Scatter s;
    size_t item = amp_itemsize(call->out[0]->dtype);
    Status status = plan_scatter(&s, call);
    for (int64_t i = 0; status == AMP_OK && i < s.index->numel; i++) {
        memcpy(s.o.ptr[2] + read_index(s.o.ptr[1]) * s.step, s.o.ptr[0], item);
        odometer_next(&s.o);
    }
    return status;
}

/* out = op(out, src) in the compute format, rounded each time: num[0].i is OP_mul, OP_maximum or OP_minimum. */
static Status scatter_reduce(const Call *call) {
    Scatter s;
    int dtype = call->out[0]->dtype, compute = amp_compute_dtype(dtype);
    Kernel kernel = amp_find_kernel(compute, (int)call->num[0].i);
    Status status = kernel ? plan_scatter(&s, call) : AMP_BAD_DTYPE;
    for (int64_t i = 0; status == AMP_OK && i < s.index->numel; i++) {
        _Alignas(16) char a[AMP_MAX_ITEM], b[AMP_MAX_ITEM];
        char *to = s.o.ptr[2] + read_index(s.o.ptr[1]) * s.step;
        amp_convert(dtype, to, 0, compute, a, 0, 1);
        amp_convert(dtype, s.o.ptr[0], 0, compute, b, 0, 1);
        const char *in[2] = {a, b};
        kernel(in, a, 1, 0, &(Params){.zero_divisor = NULL});
        amp_convert(compute, a, 0, dtype, to, 0, 1);
        odometer_next(&s.o);
    }
    return status;
}

Status amp_gather(const Call *call) {
    switch (call->op) {
    case OP_scatter_add: return scatter_add(call);
    case OP_scatter:
    case OP_scatter_value: return scatter(call);
    case OP_scatter_into: return scatter_reduce(call);
    default: return gather(call);
    }
}
