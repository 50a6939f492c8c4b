/* Copies, joins, indexing by tensors, triangles. */
#include <string.h>

#include "classes.h"
#include "outputs.h"

/* memory_format: anything given asks for row-major order; without it the order of dimensions in memory stays. */
int run_CLONE(OpCall *c) {
    Tensor *t = c->arg[0].t;
    Tensor *out = result_new(c, 0, t->v.ndim, t->v.shape, t->v.dtype, t->v.device, ALIAS_NEVER);
    if (out && c->arg[1].kind != ARG_ANY) {
        result_keep_layout(c, out, t);
    }
    return out ? raw_copy(&out->v, &t->v) : -1;
}

int run_CONTIGUOUS(OpCall *c) {
    Tensor *t = c->arg[0].t;
    if (t->v.layout & LAYOUT_CONTIGUOUS) {
        return result_set(c, (Tensor *)Py_NewRef(t));
    }
    Arg arg[MAX_ARGS] = {arg_tensor(t), {.kind = ARG_ANY, .o = Py_True}};
    return result_set(c, run_op_tensor(OP_clone, arg));
}

int run_TO_COPY(OpCall *c) {
    Tensor *t = c->arg[0].t;
    int dtype = c->arg[1].kind == ARG_DTYPE ? (int)c->arg[1].i : t->v.dtype;
    int device = c->arg[2].kind == ARG_DEVICE ? (int)c->arg[2].i : t->v.device;
    if (device_require(device) < 0) {
        return -1;
    }
    Tensor *twin = device == t->v.device ? tensor_take_twin(t, dtype) : NULL;
    if (device == t->v.device) {
        tensor_ask_twin(t, dtype);
    }
    if (twin) {
        return result_set(c, twin);
    }
    Tensor *out = tensor_new(t->v.ndim, t->v.shape, dtype, device);
    if (out) {
        tensor_keep_layout(out, t);
    }
    return result_set(c, out) < 0 ? -1 : raw_copy(&out->v, &t->v); /* emulated cuda: both memories are the host's */
}

/* Writes `from` (broadcast) over the in-place target. */
static bool same_elements(const View *a, const View *b) {
    return a->data == b->data && a->dtype == b->dtype && !memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof *a->stride);
}

static int overwrite(OpCall *c, Tensor *from) {
    Tensor *to = c->out;
    if ((from->flags & TENSOR_WRAPPED) && check_value(from, to->v.dtype) < 0) {
        return -1;
    }
    int64_t joined[AMP_MAX_DIMS], strides[AMP_MAX_DIMS];
    memcpy(joined, to->v.shape, (size_t)to->v.ndim * sizeof *joined);
    int nd = amp_broadcast_shapes(to->v.ndim, to->v.shape, from->v.ndim, from->v.shape, joined);
    if (nd != to->v.ndim || memcmp(joined, to->v.shape, (size_t)nd * sizeof *joined)) {
        PyObject *a = tensor_describe(to), *b = tensor_describe(from);
        if (a && b) {
            PyErr_Format(PyExc_RuntimeError,
                         "The expanded size of the tensor must match the existing size: a %U cannot be written to a %U", b, a);
        }
        Py_XDECREF(a);
        Py_XDECREF(b);
        return -1;
    }
    if (c->row->op != OP_fill && amp_has_internal_overlap(&to->v)) { /* one value may be written twice */
        return amp_raise(AMP_OVERLAP, c->row->name);
    }
    if (output_check_overlap(c, to, from) < 0) {
        return -1;
    }
    View v = broadcast_view(&from->v, to->v.ndim, to->v.shape, strides);
    Tensor *apart = NULL;
    if (to->v.device == from->v.device && amp_ranges_meet(&to->v, &from->v) && !same_elements(&to->v, &v)) {
        apart = tensor_new(from->v.ndim, from->v.shape, from->v.dtype, from->v.device);
        if (!apart || raw_copy(&apart->v, &from->v) < 0) {
            Py_XDECREF(apart);
            return -1;
        }
        v = broadcast_view(&apart->v, to->v.ndim, to->v.shape, strides);
    }
    int failed = raw_copy(&to->v, &v);
    Py_XDECREF(apart);
    return failed < 0 ? -1 : result_set(c, (Tensor *)Py_NewRef(to));
}

int run_COPY(OpCall *c) { return overwrite(c, c->arg[1].t); }

int run_FILL(OpCall *c) {
    if (c->arg[1].t->v.ndim) {
        PyErr_Format(PyExc_RuntimeError, "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.",
                     c->arg[1].t->v.ndim);
        return -1;
    }
    return overwrite(c, c->arg[1].t);
}

int run_ZERO(OpCall *c) { return raw_fill(c->out, number_int(0)) < 0 ? -1 : result_set(c, (Tensor *)Py_NewRef(c->out)); }

/* A 1-d tensor without elements joins anything, as in PyTorch. */
static bool skipped(const Tensor *t) { return t->v.ndim == 1 && t->v.shape[0] == 0; }

int run_CAT(OpCall *c) {
    int n = c->arg[0].n;
    Tensor *const *t = c->arg[0].ts;
    if (n == 0) {
        PyErr_SetString(PyExc_ValueError, "cat(): expected a non-empty list of Tensors");
        return -1;
    }
    const Tensor *model = t[0];
    for (int i = 0; i < n; i++) {
        if (t[i]->v.ndim == 0) {
            PyErr_Format(PyExc_RuntimeError, "zero-dimensional tensor (at position %d) cannot be concatenated: use stack", i);
            return -1;
        }
        model = skipped(model) ? t[i] : model;
    }
    int dim = wrap_dim(c->arg[1].i, model->v.ndim), device = common_device(c);
    if (dim < 0 || device < 0) {
        return -1;
    }
    int64_t shape[AMP_MAX_DIMS];
    memcpy(shape, model->v.shape, (size_t)model->v.ndim * sizeof *shape);
    shape[dim] = 0;
    for (int i = 0; i < n; i++) {
        if (skipped(t[i])) {
            continue;
        }
        for (int d = 0; d < model->v.ndim || t[i]->v.ndim != model->v.ndim; d++) {
            if (t[i]->v.ndim != model->v.ndim || (d != dim && t[i]->v.shape[d] != shape[d])) {
                PyObject *want = tensor_describe(model), *got = tensor_describe(t[i]);
                if (want && got) {
                    PyErr_Format(
                        PyExc_RuntimeError,
                        t[i]->v.ndim == model->v.ndim
                            ? "Sizes of tensors must match except in dimension %d, but the list has a %U and, as number %d, a %U"
                            : "Tensors must have same number of dimensions to be joined in dimension %d, but the list has a %U "
                              "and, as number %d, a %U",
                        dim, want, i, got);
                }
                Py_XDECREF(want);
                Py_XDECREF(got);
                return -1;
            }
        }
        shape[dim] += t[i]->v.shape[dim];
    }
    int dtype = t[0]->v.dtype;
    for (int i = 1; i < n; i++) {
        dtype = amp_promote_dtypes(dtype, t[i]->v.dtype);
    }
    Tensor *out = result_new(c, 0, model->v.ndim, shape, dtype, device, ALIAS_APART);
    if (!out) {
        return -1;
    }
    View part = out->v;
    int64_t sizes[AMP_MAX_DIMS];
    memcpy(sizes, shape, (size_t)model->v.ndim * sizeof *sizes);
    part.shape = sizes;
    part.layout = 0;
    for (int i = 0; i < n; i++) {
        if (skipped(t[i])) {
            continue;
        }
        sizes[dim] = t[i]->v.shape[dim];
        part.numel = t[i]->v.numel;
        if (raw_copy(&part, &t[i]->v) < 0) {
            return -1;
        }
        part.data += sizes[dim] * out->v.stride[dim] * (int64_t)amp_itemsize(dtype);
    }
    return 0;
}

int run_STACK(OpCall *c) {
    int n = c->arg[0].n;
    if (n == 0) {
        PyErr_SetString(PyExc_RuntimeError, "stack expects a non-empty TensorList");
        return -1;
    }
    Tensor *const *t = c->arg[0].ts;
    for (int i = 1; i < n; i++) {
        if (t[i]->v.ndim != t[0]->v.ndim || memcmp(t[i]->v.shape, t[0]->v.shape, (size_t)t[0]->v.ndim * sizeof(int64_t))) {
            PyObject *a = tensor_describe(t[0]), *b = tensor_describe(t[i]);
            if (a && b) {
                PyErr_Format(PyExc_RuntimeError,
                             "stack expects each tensor to be equal size, but got a %U at entry 0 and a %U at entry %d", a, b, i);
            }
            Py_XDECREF(a);
            Py_XDECREF(b);
            return -1;
        }
    }
    int dim = wrap_dim(c->arg[1].i, t[0]->v.ndim + 1);
    Tensor **wide = dim < 0 ? NULL : PyMem_Calloc((size_t)n, sizeof *wide), *result = NULL;
    if (!wide) {
        return dim < 0 ? -1 : (PyErr_NoMemory(), -1);
    }
    int made = 0;
    while (made < n && (wide[made] = call_unsqueeze(t[made], dim))) {
        made++;
    }
    if (made == n) {
        Arg arg[MAX_ARGS] = {{.kind = ARG_TENSORS, .n = n, .ts = wide}, arg_int(dim)};
        result = run_op_tensor(OP_cat, arg);
    }
    for (int i = 0; i < made; i++) {
        Py_DECREF(wide[i]);
    }
    PyMem_Free(wide);
    return result_set(c, result);
}

/* ---- advanced indexing ----
 *
 * indices: k int64 tensors for the dimensions first_dim .. first_dim + k - 1 of input (indexing.c has moved them there), broadcast to one
 * shape B. Result: adjacent: (before..., B..., after...), else (B..., before..., after...). The slot wants the indexed dimensions first
 * and gives (B..., rest...); both are permuted views of what the caller sees. */
typedef struct IndexPlan {
    int k, first, nb, nrest;
    int64_t shape[AMP_MAX_DIMS]; /* of the result as the caller sees it */
    int64_t source_shape[AMP_MAX_DIMS], source_stride[AMP_MAX_DIMS];
    int64_t batch[AMP_MAX_DIMS];
    int64_t index_stride[8][AMP_MAX_DIMS];
    View source, index[8];
    const View *list[8];
} IndexPlan;

static int check_index(const OpCall *c, const Tensor *index) {
    if (index->v.dtype == AMP_INT64) {
        return 0;
    }
    PyErr_Format(PyExc_RuntimeError, "%s(): Expected dtype int64 for index, got %s", c->row->name,
                 amp_dtype_info[index->v.dtype].name);
    return -1;
}

static int plan_index(const OpCall *c, const View *in, const Arg *indices, int first, bool adjacent, IndexPlan *p) {
    p->k = indices->n;
    p->first = first;
    if (p->k < 1 || p->k > 8 || first + p->k > in->ndim) {
        PyErr_Format(PyExc_IndexError, "too many indices: 1 to 8 index tensors for the %d dimensions of the tensor, got %d",
                     in->ndim, p->k);
        return -1;
    }
    p->nb = 0;
    for (int i = 0; i < p->k; i++) {
        int64_t joined[AMP_MAX_DIMS];
        if (check_index(c, indices->ts[i]) < 0 || readable_beside(c->row->name, c->arg[0].t, indices->ts[i]) < 0) {
            return -1;
        }
        memcpy(joined, p->batch, (size_t)p->nb * sizeof *joined);
        int nb = amp_broadcast_shapes(p->nb, p->batch, indices->ts[i]->v.ndim, indices->ts[i]->v.shape, joined);
        if (nb < 0) {
            PyErr_SetString(PyExc_IndexError, "shape mismatch: indexing tensors could not be broadcast together");
            return -1;
        }
        p->nb = nb;
        memcpy(p->batch, joined, (size_t)nb * sizeof *joined);
    }
    p->source = *in;
    p->source.shape = p->source_shape;
    p->source.stride = p->source_stride;
    p->source.layout = 0;
    int n = 0;
    for (int d = first; d < first + p->k; d++, n++) {
        p->source_shape[n] = in->shape[d];
        p->source_stride[n] = in->stride[d];
    }
    for (int d = 0; d < in->ndim; d++) {
        if (d < first || d >= first + p->k) {
            p->source_shape[n] = in->shape[d];
            p->source_stride[n++] = in->stride[d];
        }
    }
    p->nrest = in->ndim - p->k;
    int before = adjacent ? first : 0;
    memcpy(p->shape, p->source_shape + p->k, (size_t)before * sizeof(int64_t));
    memcpy(p->shape + before, p->batch, (size_t)p->nb * sizeof(int64_t));
    memcpy(p->shape + before + p->nb, p->source_shape + p->k + before, (size_t)(p->nrest - before) * sizeof(int64_t));
    for (int i = 0; i < p->k; i++) {
        p->index[i] = broadcast_view(&indices->ts[i]->v, p->nb, p->batch, p->index_stride[i]);
        p->list[i] = &p->index[i];
    }
    return 0;
}

/* v, which the caller sees as p->shape, with the batch dimensions first. */
static View batch_first(const IndexPlan *p, const View *v, bool adjacent, int64_t *shape, int64_t *stride) {
    int before = adjacent ? p->first : 0, n = 0;
    View out = *v;
    for (int d = before; d < before + p->nb; d++, n++) {
        shape[n] = v->shape[d];
        stride[n] = v->stride[d];
    }
    for (int d = 0; d < v->ndim; d++) {
        if (d < before || d >= before + p->nb) {
            shape[n] = v->shape[d];
            stride[n++] = v->stride[d];
        }
    }
    out.shape = shape;
    out.stride = stride;
    out.layout = 0;
    return out;
}

/* Says which index a kernel refused. -1. */
static int index_refused(const IndexPlan *p, const Arg *indices) {
    if (!PyErr_ExceptionMatches(PyExc_IndexError)) {
        return -1;
    }
    for (int i = 0; i < p->k; i++) {
        int64_t size = p->source_shape[i];
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        Tensor *dense = raw_contiguous(indices->ts[i]);
        PyErr_Restore(type, value, trace);
        for (int64_t k = 0; dense && k < dense->v.numel; k++) {
            int64_t at;
            memcpy(&at, dense->v.data + k * (int64_t)sizeof at, sizeof at);
            if (at < -size || at >= size) {
                PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for dimension %d with size %lld", (long long)at,
                             p->first + i, (long long)size);
                break;
            }
        }
        Py_XDECREF(dense);
    }
    return -1;
}

int run_INDEX(OpCall *c) {
    Tensor *in = c->arg[0].t;
    bool adjacent = c->arg[3].i != 0;
    IndexPlan p;
    if (plan_index(c, &in->v, &c->arg[1], (int)c->arg[2].i, adjacent, &p) < 0) {
        return -1;
    }
    Tensor *out = result_new(c, 0, p.nb + p.nrest, p.shape, in->v.dtype, in->v.device, ALIAS_NEVER);
    if (!out) {
        return -1;
    }
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    View to = batch_first(&p, &out->v, adjacent, shape, stride);
    Call call = {.op = OP_index, .nin = 1, .nout = 1, .in = {&p.source}, .out = {&to}, .list = p.list, .nlist = p.k};
    int failed = run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, index), &call, out->v.numel * 16, "index");
    return failed < 0 ? index_refused(&p, &c->arg[1]) : 0;
}

int run_INDEX_PUT(OpCall *c) {
    Tensor *in = c->arg[0].t, *values = c->arg[2].t;
    bool adjacent = c->arg[4].i != 0;
    IndexPlan p;
    Tensor *out = same_device(c) < 0 ? NULL : result_new(c, 0, in->v.ndim, in->v.shape, in->v.dtype, in->v.device, ALIAS_INPUT);
    if (!out || (out != in && raw_copy(&out->v, &in->v) < 0)) {
        return -1;
    }
    if (plan_index(c, &out->v, &c->arg[1], (int)c->arg[3].i, adjacent, &p) < 0) {
        return -1;
    }
    int64_t joined[AMP_MAX_DIMS], strides[AMP_MAX_DIMS], shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    int nd = p.nb + p.nrest;
    memcpy(joined, p.shape, (size_t)nd * sizeof *joined);
    int got = amp_broadcast_shapes(nd, p.shape, values->v.ndim, values->v.shape, joined);
    if (got != nd || memcmp(joined, p.shape, (size_t)nd * sizeof *joined)) {
        PyErr_SetString(PyExc_RuntimeError, "shape mismatch: value tensor cannot be broadcast to indexing result");
        return -1;
    }
    if (values->v.dtype != in->v.dtype && !(values->flags & TENSOR_WRAPPED)) {
        PyErr_Format(
            PyExc_RuntimeError,
            "Index put requires the source and destination dtypes match, got %s for the destination and %s for the source.",
            amp_dtype_info[in->v.dtype].name, amp_dtype_info[values->v.dtype].name);
        return -1;
    }
    Tensor *same = raw_cast(values, in->v.dtype);
    if (!same) {
        return -1;
    }
    View wide = broadcast_view(&same->v, nd, p.shape, strides), from = batch_first(&p, &wide, adjacent, shape, stride);
    Call call = {.op = OP_index_put,
                 .nin = 1,
                 .nout = 1,
                 .in = {&from},
                 .out = {&p.source},
                 .list = p.list,
                 .nlist = p.k,
                 .nnum = 1,
                 .num = {number_int(c->arg[5].i)}};
    int failed = run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, index_put), &call, wide.numel * 16, "index_put");
    Py_DECREF(same);
    return failed < 0 ? index_refused(&p, &c->arg[1]) : 0;
}

int run_NONZERO(OpCall *c) {
    Tensor *in = c->arg[0].t;
    if (in->v.device == AMP_META) {
        PyErr_SetString(PyExc_NotImplementedError,
                        "nonzero(): the size of its result, and of what a mask selects, depends on values, which a tensor on "
                        "\"meta\" does not have: use one on \"cpu\"");
        return -1;
    }
    int64_t count = 0;
    Call call = {.op = OP_nonzero, .nin = 1, .in = {&in->v}, .extra = &count};
    if (run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, nonzero), &call, in->v.numel * 8, "nonzero") < 0) {
        return -1;
    }
    int64_t shape[2] = {count, in->v.ndim};
    Tensor *out = result_new(c, 0, 2, shape, AMP_INT64, in->v.device, ALIAS_NEVER);
    if (!out || out->v.numel == 0) {
        return out ? 0 : -1;
    }
    call.nout = 1;
    call.out[0] = &out->v;
    return run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, nonzero), &call, in->v.numel * 8, "nonzero");
}

int run_NONZERO_TUPLE(OpCall *c) {
    if (c->out && c->row->op == OP_nonzero_tuple && c->arg[1].i) {
        PyErr_SetString(PyExc_RuntimeError,
                        "nonzero does not support the out kwarg when as_tuple is True: leave one of them out");
        return -1;
    }
    Tensor *all = call_unary(OP_nonzero, c->arg[0].t);
    if (!all) {
        return -1;
    }
    if (c->row->op == OP_nonzero_tuple && !c->arg[1].i) {
        return result_set(c, all);
    }
    PyObject *tuple = PyTuple_New(all->v.shape[1]);
    for (int64_t d = 0; tuple && d < all->v.shape[1]; d++) {
        Arg arg[MAX_ARGS] = {arg_tensor(all), arg_int(1), arg_int(d)};
        Tensor *column = run_op_tensor(OP_select, arg);
        if (!column) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, d, (PyObject *)column);
    }
    Py_DECREF(all);
    c->object = tuple;
    return tuple ? 0 : -1;
}

int run_TRIANGLE(OpCall *c) {
    Tensor *in = c->arg[0].t;
    if (in->v.ndim < 2) {
        PyErr_Format(PyExc_RuntimeError, "%s: input tensor must have at least 2 dimensions", c->row->name);
        return -1;
    }
    Tensor *out = result_new(c, 0, in->v.ndim, in->v.shape, in->v.dtype, in->v.device, ALIAS_NEVER);
    Call call = {
        .op = c->row->op, .nin = 1, .nout = 1, .in = {&in->v}, .out = {out ? &out->v : NULL}, .nnum = 1, .num = {c->arg[1].num}};
    return out ? run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, arrange), &call, in->v.numel * 8, c->row->name) : -1;
}

int run_FLIP(OpCall *c) {
    Tensor *in = c->arg[0].t;
    uint64_t mask;
    if (dims_mask(&c->arg[1], in->v.ndim, &mask) < 0) {
        return -1;
    }
    Tensor *out = result_new(c, 0, in->v.ndim, in->v.shape, in->v.dtype, in->v.device, ALIAS_NEVER);
    Call call = {
        .op = OP_flip, .nin = 1, .nout = 1, .in = {&in->v}, .out = {out ? &out->v : NULL}, .dims = c->arg[1].n ? mask : 0};
    return out ? run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, arrange), &call, in->v.numel * 8, c->row->name) : -1;
}
