/* Derivatives of views, joining and indexing. */
#include "derivatives.h"

#include <string.h>

#include "../classes.h"

void d_reshape(Back *b) { GRAD(0, reshape_like(b, b->g, &IN_META(0))); }

/* The engine sums over what was broadcast. */
void d_expand(Back *b) { GRAD(0, b->g); }

void d_transpose(Back *b) { GRAD(0, IN_META(0).ndim == 0 ? b->g : transpose(b, b->g, (int)ARG(1).i, (int)ARG(2).i)); }

void d_t(Back *b) { GRAD(0, IN_META(0).ndim < 2 ? b->g : transpose(b, b->g, 0, 1)); }

void d_permute(Back *b) {
    int64_t inverse[AMP_MAX_DIMS];
    int ndim = IN_META(0).ndim;
    if (!NEED(0) || !b->g || b->failed) {
        return;
    }
    for (int d = 0; d < ndim; d++) {
        inverse[dim_of(ARG(1).ints[d], ndim)] = d;
    }
    b->grad[0] = back_own(b, call_permute(b->g, inverse));
}

void d_flip(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), ARG(1)};
    GRAD(0, op_args(b, OP_flip, arg));
}

void d_tril(Back *b) { GRAD(0, op_int(b, OP_tril, b->g, ARG(1).i)); }

void d_triu(Back *b) { GRAD(0, op_int(b, OP_triu, b->g, ARG(1).i)); }

/* ---- parts of a dimension ---- */

/* g with `before` and `after` zeros added along dim. */
static Tensor *pad(Back *b, Tensor *g, int dim, int64_t before, int64_t after) {
    if (!g || (before == 0 && after == 0)) {
        return g;
    }
    int64_t shape[AMP_MAX_DIMS];
    memcpy(shape, g->v.shape, (size_t)g->v.ndim * sizeof *shape);
    Tensor *parts[3];
    int n = 0;
    if (before) {
        shape[dim] = before;
        parts[n++] = constant(b, g, g->v.ndim, shape, 0.0);
    }
    parts[n++] = g;
    if (after) {
        shape[dim] = after;
        parts[n++] = constant(b, g, g->v.ndim, shape, 0.0);
    }
    return cat(b, n, parts, dim);
}

/* step - 1 zeros behind each element along dim:  a b  ->  a 0 0 b 0 0 */
static Tensor *dilate(Back *b, Tensor *g, int dim, int64_t step) {
    if (!g || step == 1) {
        return g;
    }
    int64_t shape[AMP_MAX_DIMS];
    memcpy(shape, g->v.shape, (size_t)g->v.ndim * sizeof *shape);
    shape[dim] *= step;
    return reshape(b, pad(b, unsqueeze(b, g, dim + 1), dim + 1, 0, step - 1), g->v.ndim, shape);
}

/* What a gradient of elements start, start + step, ... is for the whole dimension. */
static Tensor *unslice(Back *b, Tensor *g, int dim, int64_t start, int64_t length, int64_t step, int64_t size) {
    if (length == 0) {
        return zeros_meta(b, g, &IN_META(0));
    }
    step = length == 1 ? 1 : step; /* however far the next would have been */
    int64_t room = size - start;
    Tensor *wide_g = dilate(b, g, dim, step);
    if (length * step > room) { /* zeros behind the last element stand over */
        return pad(b, narrow(b, wide_g, dim, 0, room), dim, start, 0);
    }
    return pad(b, wide_g, dim, start, room - length * step);
}

void d_select(Back *b) {
    const TensorMeta *m = &IN_META(0);
    int dim = dim_of(ARG(1).i, m->ndim);
    int64_t size = m->shape[dim], index = ARG(2).i < 0 ? ARG(2).i + size : ARG(2).i;
    GRAD(0, unslice(b, unsqueeze(b, b->g, dim), dim, index, 1, 1, size));
}

void d_slice(Back *b) {
    const TensorMeta *m = &IN_META(0);
    int dim = dim_of(ARG(1).i, m->ndim);
    GRAD(0, unslice(b, b->g, dim, ARG(2).i, ARG(3).i, ARG(4).i, m->shape[dim]));
}

void d_narrow(Back *b) {
    const TensorMeta *m = &IN_META(0);
    int dim = dim_of(ARG(1).i, m->ndim);
    int64_t size = m->shape[dim], start = ARG(2).i < 0 ? ARG(2).i + size : ARG(2).i;
    GRAD(0, unslice(b, b->g, dim, start, ARG(3).i, 1, size));
}

/* An empty 1-d tensor may stand among tensors of any shape: it takes no part. */
void d_cat(Back *b) {
    if (!b->g) {
        return;
    }
    int ndim = b->g->v.ndim, dim = dim_of(ARG(1).i, ndim);
    int64_t start = 0;
    for (int i = 0; i < b->node->nin; i++) {
        const TensorMeta *m = &IN_META(i);
        if (m->ndim != ndim) {
            GRAD(i, zeros_meta(b, b->g, m));
            continue;
        }
        GRAD(i, narrow(b, b->g, dim, start, m->shape[dim]));
        start += m->shape[dim];
    }
}

/* ---- as_strided ---- */

/* A range of storage elements, [begin, end). */
typedef struct Range {
    int64_t begin, end;
} Range;

static Range cover(Range r, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset) {
    Range mine = {offset, offset + 1};
    for (int d = 0; d < ndim; d++) {
        if (shape[d] == 0) {
            return r;
        }
        int64_t reach = amp_mul_clamped(shape[d] - 1, stride[d]);
        mine.begin = amp_add_clamped(mine.begin, reach < 0 ? reach : 0);
        mine.end = amp_add_clamped(mine.end, reach > 0 ? reach : 0);
    }
    if (r.begin == r.end) {
        return mine;
    }
    return (Range){mine.begin < r.begin ? mine.begin : r.begin, mine.end > r.end ? mine.end : r.end};
}

/* Writes the storage element that each element of the window shows; the first one is `first`. */
static void window_elements(int ndim, const int64_t *shape, const int64_t *stride, int64_t first, int64_t numel, int64_t *out) {
    int64_t at[AMP_MAX_DIMS] = {0}, element = first;
    for (int64_t i = 0; i < numel; i++) {
        out[i] = element;
        for (int d = ndim - 1; d >= 0; d--) {
            if (shape[d] == 1) { /* its stride may be anything */
                continue;
            }
            element += stride[d];
            if (++at[d] < shape[d]) {
                break;
            }
            element -= at[d] * stride[d];
            at[d] = 0;
        }
    }
}

/* Where the input lies in its storage: as the node says, or contiguous from the first element on. */
static int64_t input_layout(const Node *n, const TensorMeta *m, int64_t *stride) {
    if (n->slice) {
        memcpy(stride, n->slice->base_stride, (size_t)m->ndim * sizeof *stride);
        return n->slice->base_offset;
    }
    amp_contiguous_strides(m->ndim, m->shape, stride);
    return 0;
}

/* False if no two elements lie at one place: steps, from small to large, each pass over all that the smaller ones reach. */
static bool may_overlap(int ndim, const int64_t *shape, const int64_t *stride) {
    int64_t reach = 0;
    uint32_t done = 0;
    for (int k = 0; k < ndim; k++) {
        int least = -1;
        for (int d = 0; d < ndim; d++) {
            if (!(done >> d & 1) && (least < 0 || llabs(stride[d]) < llabs(stride[least]))) {
                least = d;
            }
        }
        done |= 1U << least;
        if (shape[least] <= 1) {
            continue;
        }
        if (llabs(stride[least]) <= reach) {
            return true;
        }
        reach = amp_add_clamped(reach, amp_mul_clamped(shape[least] - 1, llabs(stride[least])));
    }
    return false;
}

/* How many elements of the input lie at each place of the storage, at least 1; in the gradient's dtype. */
static Tensor *showings(Back *b, const TensorMeta *m, const int64_t *stride, int64_t first, const int64_t *size) {
    const int64_t numel = amp_numel(m->ndim, m->shape);
    Tensor *count = back_own(b, tensor_new(1, size, AMP_FLOAT64, AMP_CPU));
    int64_t *place = count ? PyMem_Malloc((size_t)numel * sizeof *place) : NULL;
    if (count && !place) {
        PyErr_NoMemory();
        b->failed = true;
    }
    if (!place) {
        return NULL;
    }
    double *n = (double *)(void *)count->v.data;
    memset(n, 0, (size_t)size[0] * sizeof *n);
    window_elements(m->ndim, m->shape, stride, first, numel, place);
    for (int64_t i = 0; i < numel; i++) {
        n[place[i]]++;
    }
    for (int64_t i = 0; i < size[0]; i++) {
        n[i] = n[i] > 1 ? n[i] : 1;
    }
    PyMem_Free(place);
    return back_own(b, call_to(count, b->g->v.dtype, b->g->v.device));
}

/* By way of a flat gradient of the storage:
 *
 *     window of g  --scatter_add-->  storage  --as_strided-->  gradient of the input
 *
 * The window may show an element several times (overlap, stride 0): each showing adds. What it shows outside of the input is lost.
 * Elements of the input that lie at one place share its sum evenly, which whoever made them of one number adds up again. */
void d_as_strided(Back *b) {
    const TensorMeta *m = &IN_META(0);
    int64_t stride[AMP_MAX_DIMS], input_offset = input_layout(b->node, m, stride);
    if (!NEED(0) || !b->g || b->failed) {
        return;
    }
    int64_t offset = ARG(3).kind == ARG_NONE ? input_offset : ARG(3).i, numel = b->g->v.numel;
    Range r = cover((Range){0, 0}, m->ndim, m->shape, stride, input_offset);
    r = cover(r, ARG(1).n, ARG(1).ints, ARG(2).ints, offset);
    if (b->g->v.device == AMP_META || amp_numel(m->ndim, m->shape) == 0 || numel == 0) {
        b->grad[0] = zeros_meta(b, b->g, m);
        return;
    }
    int64_t size[1] = {r.end - r.begin}, count[1] = {numel};
    Tensor *index = back_own(b, tensor_new(1, count, AMP_INT64, b->g->v.device));
    if (!index) {
        return;
    }
    window_elements(ARG(1).n, ARG(1).ints, ARG(2).ints, offset - r.begin, numel, (int64_t *)(void *)index->v.data);
    Tensor *storage = scatter_add(b, constant(b, b->g, 1, size, 0.0), 0, index, reshape(b, b->g, 1, count));
    if (may_overlap(m->ndim, m->shape, stride)) {
        storage = divide(b, storage, showings(b, m, stride, input_offset - r.begin, size));
    }
    Arg arg[MAX_ARGS] = {arg_tensor(storage), arg_ints(m->shape, m->ndim), arg_ints(stride, m->ndim),
                         arg_int(input_offset - r.begin)};
    b->grad[0] = op_args(b, OP_as_strided, arg);
}

/* ---- gather, scatter, advanced indexing ---- */

void d_gather(Back *b) {
    const TensorMeta *m = &IN_META(0);
    GRAD(0, b->g ? scatter_add(b, zeros_meta(b, b->g, m), dim_of(ARG(1).i, m->ndim), IN(1), b->g) : NULL);
}

void d_scatter_add(Back *b) {
    GRAD(0, b->g);
    GRAD(2, gather(b, b->g, dim_of(ARG(1).i, IN_META(0).ndim), IN(1)));
}

/* The saved index tensors as an argument; `room` holds the pointers. */
static bool saved_indices(Back *b, Arg *arg, Tensor **room, int limit) {
    const Node *n = b->node;
    if (n->state & NODE_RELEASED) {
        (void)back_saved(b, 0); /* sets the exception */
        return false;
    }
    if (b->failed || n->nlist > limit) {
        return false;
    }
    for (int i = 0; i < n->nlist; i++) {
        room[i] = n->list[i].t;
        if (!room[i] || room[i]->st->version != n->list[i].version) {
            PyErr_Format(
                PyExc_RuntimeError,
                "%s: one of the variables needed for gradient computation has been modified by an inplace operation: an index "
                "tensor changed between the forward and the backward pass. Index with a clone of it",
                amp_rows[n->op].name);
            b->failed = true;
            return false;
        }
    }
    *arg = (Arg){.kind = ARG_TENSORS, .n = n->nlist, .ts = room};
    return true;
}

/* x with `values` put or added at the indices */
static Tensor *index_put(Back *b, Tensor *x, Arg indices, Tensor *values, Arg first_dim, Arg adjacent, bool accumulate) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), indices, arg_tensor(values), first_dim, adjacent, arg_bool(accumulate)};
    return op_args(b, OP_index_put, arg);
}

/* Whole rows by one list of numbers, none of which counts from the end: then the gradient is that of a table. */
static bool is_table(Back *b, const Tensor *index, int64_t dim) {
    const TensorMeta *m = &IN_META(0);
    enum { WIDE = 16 }; /* elements of a row that make up for sorting */
    if (!index || dim != 0 || m->ndim < 2 || m->ndim + index->v.ndim > AMP_MAX_DIMS || !amp_is_floating(m->dtype) ||
        index->v.dtype != AMP_INT64 || index->v.layout != LAYOUT_CONTIGUOUS || index->v.device != m->device ||
        m->device == AMP_META || /* its numbers cannot be read */
        amp_numel(m->ndim - 1, m->shape + 1) < WIDE) {
        return false;
    }
    const int64_t *row = (const int64_t *)(const void *)index->v.data;
    for (int64_t i = 0; i < index->v.numel; i++) {
        if (row[i] < 0) {
            return false;
        }
    }
    return true;
}

static Tensor *table_gradient(Back *b, Tensor *index) {
    const TensorMeta *m = &IN_META(0);
    int64_t shape[AMP_MAX_DIMS];
    memcpy(shape, index->v.shape, (size_t)index->v.ndim * sizeof *shape);
    shape[index->v.ndim] = amp_numel(m->ndim - 1, m->shape + 1);
    Tensor *g = reshape(b, b->g, index->v.ndim + 1, shape);
    Arg arg[MAX_ARGS] = {arg_tensor(g), arg_tensor(index), arg_int(m->shape[0]), arg_int(-1), arg_bool(false)};
    return g ? reshape_like(b, op_args(b, OP_embedding_grad, arg), m) : NULL;
}

void d_index(Back *b) {
    Tensor *room[AMP_MAX_DIMS];
    Arg indices;
    if (NEED(0) && b->g && saved_indices(b, &indices, room, AMP_MAX_DIMS)) {
        if (is_table(b, indices.n == 1 ? indices.ts[0] : NULL, ARG(2).i)) {
            b->grad[0] = table_gradient(b, indices.ts[0]);
            return;
        }
        b->grad[0] = index_put(b, zeros_meta(b, b->g, &IN_META(0)), indices, b->g, ARG(2), ARG(3), true);
    }
}

void d_index_select(Back *b) {
    const TensorMeta *m = &IN_META(0);
    Tensor *index = cast(b, IN(1), AMP_INT64);
    if (!NEED(0) || !b->g || !index) {
        return;
    }
    if (is_table(b, index, dim_of(ARG(1).i, m->ndim))) {
        b->grad[0] = table_gradient(b, index);
        return;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(zeros_meta(b, b->g, m)), ARG(1), arg_tensor(index), arg_tensor(b->g), arg_float(1)};
    GRAD(0, op_args(b, OP_index_add, arg));
}

/* Inputs: the tensor, the indices, the values. */
void d_index_put(Back *b) {
    Tensor *room[AMP_MAX_DIMS];
    Arg indices;
    int values = b->node->nin - 1;
    if (!b->g || !saved_indices(b, &indices, room, AMP_MAX_DIMS)) {
        return;
    }
    bool accumulate = ARG(5).i;
    GRAD(0, accumulate ? b->g : index_put(b, b->g, indices, constant(b, b->g, 0, NULL, 0.0), ARG(3), ARG(4), false));
    if (NEED(values)) {
        Arg arg[MAX_ARGS] = {arg_tensor(b->g), indices, ARG(3), ARG(4)};
        b->grad[values] = op_args(b, OP_index, arg);
    }
}
