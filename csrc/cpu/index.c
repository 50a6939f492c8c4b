/* Advanced indexing: index, index_put, gather, scatters. Every index is checked before anything is written. */
#include <stdlib.h>

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

/* A dimension of stride 0 shows the same indices again. */
static Status check_indices(const View *index, int64_t size, bool from_end) {
    Odometer o;
    int64_t shape[AMP_MAX_DIMS], count = index->numel ? 1 : 0;
    for (int d = 0; d < index->ndim; d++) {
        shape[d] = index->stride[d] == 0 && index->shape[d] ? 1 : index->shape[d];
        count *= shape[d];
    }
    odometer_start(&o, index->ndim, shape);
    odometer_add(&o, index, 0, index->data);
    for (int64_t i = 0; i < count; i++) {
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

/* ---- gather and scatters ----
 *
 * All views have the index's shape, apart from one, the table (input of gather, output of scatters), which the index moves through
 * along `dim`. The last dimension is walked by the inner loops below, the others by the odometer. */
enum { TABLE, OTHER, INDEX };
typedef struct Places {
    Odometer o; /* the outer dimensions */
    int64_t runs, length;
    int64_t inner[3]; /* bytes between neighbours of a run; of the table: as far as the index does not move it */
    int64_t step;     /* bytes per unit of the index */
    int dtype;
} Places;

static void plan_places(Places *p, const View *table, const View *other, const View *index, int dim) {
    int last = index->ndim - 1;
    const View *view[3] = {table, other, index};
    int64_t item = (int64_t)amp_itemsize(table->dtype);
    p->dtype = table->dtype;
    p->step = table->ndim ? table->stride[dim] * item : 0;
    odometer_start(&p->o, last < 0 ? 0 : last, index->shape);
    for (int v = 0; v < 3; v++) {
        odometer_add(&p->o, view[v], 0, view[v]->data);
        p->inner[v] = last < 0 ? 0 : view[v]->stride[last] * (int64_t)amp_itemsize(view[v]->dtype);
    }
    if (dim < last) p->o.step[TABLE][dim] = 0;
    if (dim == last) p->inner[TABLE] = 0;
    p->length = last < 0 ? 1 : index->shape[last];
    p->runs = p->length ? index->numel / p->length : 0;
}

/* Where element i of the run stands in the table. */
static inline char *place(const Places *p, int64_t i) {
    return p->o.ptr[TABLE] + i * p->inner[TABLE] + read_index(p->o.ptr[INDEX] + i * p->inner[INDEX]) * p->step;
}
static inline char *counterpart(const Places *p, int64_t i) { return p->o.ptr[OTHER] + i * p->inner[OTHER]; }

/* One index for the whole run, dense on both sides. */
static bool is_block(const Places *p) {
    int64_t item = (int64_t)amp_itemsize(p->dtype);
    return p->inner[INDEX] == 0 && p->inner[TABLE] == item && p->inner[OTHER] == item && p->length > 1;
}

#define EACH_RUN(p) for (int64_t run = 0; run < (p)->runs; run++, odometer_next(&(p)->o))

#define MOVE_RUN(bytes) \
    case bytes: \
        for (int64_t i = 0; i < p->length; i++) \
            memcpy(to_table ? place(p, i) : counterpart(p, i), to_table ? counterpart(p, i) : place(p, i), bytes); \
        break;
static inline __attribute__((always_inline)) void move_run(const Places *p, bool to_table) {
    switch (amp_itemsize(p->dtype)) {
        MOVE_RUN(1)
        MOVE_RUN(2)
        MOVE_RUN(4)
        MOVE_RUN(8)
        MOVE_RUN(16)
    default: break;
    }
}

/* Of several values for one place the last stays. */
static void move_places(Places *p, bool to_table) {
    size_t bytes = amp_itemsize(p->dtype) * (size_t)p->length;
    if (is_block(p)) {
        EACH_RUN(p) memcpy(to_table ? place(p, 0) : counterpart(p, 0), to_table ? counterpart(p, 0) : place(p, 0), bytes);
    } else if (to_table) {
        EACH_RUN(p) move_run(p, true);
    } else {
        EACH_RUN(p) move_run(p, false);
    }
}

/* table = op(table, other) in the compute format, rounded each time. */
static void combine_one(int dtype, Kernel kernel, char *to, const char *from) {
    _Alignas(16) char a[AMP_MAX_ITEM], b[AMP_MAX_ITEM];
    int compute = amp_compute_dtype(dtype);
    const char *in[2] = {a, b};
    amp_convert(dtype, to, 0, compute, a, 0, 1);
    amp_convert(dtype, from, 0, compute, b, 0, 1);
    kernel(in, a, 1, 0, &(Params){.zero_divisor = NULL});
    amp_convert(compute, a, 0, dtype, to, 0, 1);
}

static void combine_block(const Places *p, Kernel kernel) {
    const char *in[2] = {place(p, 0), counterpart(p, 0)};
    kernel(in, place(p, 0), p->length, 0, &(Params){.zero_divisor = NULL});
}

/* Sums and products of 16-bit elements, in float32 and rounded once at the end, not with each step: a sum would stall as soon as the
 * steps are below half a unit of it. The places lie in a table of floats as long as this takes:
 *
 *     floats at the places = table at the places;  op= other, in order;  table at the places = floats at the places
 *
 * The rest of the floats is never touched, so that a few places in a large table cost little. */
#define INLINE static inline __attribute__((always_inline))
INLINE float read_half(const char *p, bool bf16) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return bf16 ? amp_bf16_to_f32(h) : amp_f16_to_f32(h);
}
INLINE void write_half(char *p, float f, bool bf16) {
    const uint16_t h = bf16 ? amp_f32_to_bf16(f) : amp_f32_to_f16(f);
    memcpy(p, &h, sizeof h);
}
INLINE float read_float(const char *p) {
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}
INLINE void write_float(char *p, float f) { memcpy(p, &f, sizeof f); }

INLINE void widen_run(const Places *p, const Places *floats, bool bf16) {
    for (int64_t i = 0; i < p->length; i++) write_float(place(floats, i), read_half(place(p, i), bf16));
}
INLINE void combine_run(const Places *p, const Places *floats, bool bf16, bool adds) {
    for (int64_t i = 0; i < p->length; i++) {
        char *to = place(floats, i);
        const float f = read_float(to), x = read_half(counterpart(p, i), bf16);
        write_float(to, adds ? f + x : f * x);
    }
}
INLINE void narrow_run(const Places *p, const Places *floats, bool bf16) {
    for (int64_t i = 0; i < p->length; i++) write_half(place(p, i), read_float(place(floats, i)), bf16);
}

/* No place twice: all three steps at once. */
INLINE void combine_apart_run(const Places *p, bool bf16, bool adds) {
    for (int64_t i = 0; i < p->length; i++) {
        char *to = place(p, i);
        const float f = read_half(to, bf16), x = read_half(counterpart(p, i), bf16);
        write_half(to, adds ? f + x : f * x, bf16);
    }
}
static void combine_apart(Places *p, bool adds) {
    if (p->dtype == AMP_BFLOAT16) {
        if (adds) EACH_RUN(p) combine_apart_run(p, true, true);
        else EACH_RUN(p) combine_apart_run(p, true, false);
    } else {
        if (adds) EACH_RUN(p) combine_apart_run(p, false, true);
        else EACH_RUN(p) combine_apart_run(p, false, false);
    }
}

enum { BLOCK = 256 };
static void combine_wide_block(const Places *p, const Places *floats, Kernel kernel) {
    _Alignas(64) float other[BLOCK];
    for (int64_t i = 0; i < p->length; i += BLOCK) {
        int64_t n = p->length - i < BLOCK ? p->length - i : BLOCK;
        char *to = place(floats, 0) + i * (int64_t)sizeof *other;
        const char *in[2] = {to, (const char *)other};
        amp_convert(p->dtype, counterpart(p, i), p->inner[OTHER], AMP_FLOAT32, (char *)other, (int64_t)sizeof *other, n);
        kernel(in, to, n, 0, &(Params){.zero_divisor = NULL});
    }
}

/* Both walks in step. */
#define EACH_RUN_OF_BOTH for (Places q = *p, w = *floats; q.runs; q.runs--, odometer_next(&q.o), odometer_next(&w.o))
static void combine_wide(const Places *p, const Places *floats, int op, Kernel kernel) {
    const bool bf16 = p->dtype == AMP_BFLOAT16, adds = op == OP_add;
    if (is_block(p)) {
        const int64_t wide = sizeof(float), item = p->inner[TABLE];
        EACH_RUN_OF_BOTH amp_convert(q.dtype, place(&q, 0), item, AMP_FLOAT32, place(&w, 0), wide, q.length);
        EACH_RUN_OF_BOTH combine_wide_block(&q, &w, kernel);
        EACH_RUN_OF_BOTH amp_convert(AMP_FLOAT32, place(&w, 0), wide, q.dtype, place(&q, 0), item, q.length);
    } else if (bf16) {
        EACH_RUN_OF_BOTH widen_run(&q, &w, true);
        if (adds) EACH_RUN_OF_BOTH combine_run(&q, &w, true, true);
        else EACH_RUN_OF_BOTH combine_run(&q, &w, true, false);
        EACH_RUN_OF_BOTH narrow_run(&q, &w, true);
    } else {
        EACH_RUN_OF_BOTH widen_run(&q, &w, false);
        if (adds) EACH_RUN_OF_BOTH combine_run(&q, &w, false, true);
        else EACH_RUN_OF_BOTH combine_run(&q, &w, false, false);
        EACH_RUN_OF_BOTH narrow_run(&q, &w, false);
    }
}

static Status combine_in_floats(Places *p, const Call *call, int op, Kernel kernel) {
    const int dim = amp_first_dim(call->dims);
    View floats = *call->out[0];
    int64_t stride[AMP_MAX_DIMS], count = 1;
    Places w;
    if (call->in[1]->ndim == 0 || call->in[1]->shape[dim] <= 1) {
        combine_apart(p, op == OP_add);
        return AMP_OK;
    }
    for (int d = floats.ndim - 1; d >= 0; d--) stride[d] = count, count *= floats.shape[d];
    if (count > INT64_MAX / (int64_t)sizeof(float)) return AMP_NO_MEMORY;
    floats.data = malloc((size_t)count * sizeof(float));
    if (!floats.data) return AMP_NO_MEMORY;
    floats.dtype = AMP_FLOAT32;
    floats.stride = stride;
    plan_places(&w, &floats, call->in[0], call->in[1], dim);
    combine_wide(p, &w, op, kernel);
    free(floats.data);
    return AMP_OK;
}

static Status combine_places(Places *p, const Call *call, int op) {
    int compute = amp_compute_dtype(p->dtype);
    Kernel kernel = amp_find_kernel(compute, op);
    if (!kernel) return AMP_BAD_DTYPE;
    if ((p->dtype == AMP_FLOAT16 || p->dtype == AMP_BFLOAT16) && (op == OP_add || op == OP_mul))
        return combine_in_floats(p, call, op, kernel);
    if (compute == p->dtype && is_block(p)) {
        EACH_RUN(p) combine_block(p, kernel);
    } else if (p->dtype == AMP_FLOAT32 && op == OP_add) {
        EACH_RUN(p) for (int64_t i = 0; i < p->length; i++) add_one(AMP_FLOAT32, place(p, i), counterpart(p, i));
    } else {
        EACH_RUN(p) for (int64_t i = 0; i < p->length; i++) combine_one(p->dtype, kernel, place(p, i), counterpart(p, i));
    }
    return AMP_OK;
}

Status amp_gather(const Call *call) {
    Places p;
    bool writes = call->op != OP_gather;
    const View *table = writes ? call->out[0] : call->in[0], *other = writes ? call->in[0] : call->out[0];
    int dim = amp_first_dim(call->dims);
    Status status = check_indices(call->in[1], table->ndim ? table->shape[dim] : 1, false);
    if (status != AMP_OK) return status;
    plan_places(&p, table, other, call->in[1], dim);
    switch (call->op) {
    case OP_scatter_add: return combine_places(&p, call, OP_add);
    case OP_scatter_into: return combine_places(&p, call, (int)call->num[0].i);
    default: move_places(&p, writes); return AMP_OK;
    }
}
