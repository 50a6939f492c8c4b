/* Reads and writes at indices along one dimension: gather, scatter and its reductions, index_select, index_add, index_copy, index_fill;
 * diagonals and windows. */
#include <string.h>

#include "classes.h"

/* A 0-dim tensor counts as one with a single element along its only dimension. */
static int dims_of(const Tensor *t) { return t->v.ndim ? t->v.ndim : 1; }
static int64_t size_of(const Tensor *t, int d) { return t->v.ndim ? t->v.shape[d] : 1; }

/* index as int64, a vector or a scalar; new reference. */
static Tensor *line_index(const OpCall *c, Tensor *index) {
    if (index->v.ndim > 1) {
        PyErr_Format(PyExc_IndexError, "%s_(): Index is supposed to be a vector, but got a tensor of %d dimensions", c->row->name,
                     index->v.ndim);
        return NULL;
    }
    bool narrow = index->v.dtype == AMP_INT32 && c->row->op == OP_index_add;
    if (index->v.dtype != AMP_INT64 && !narrow) {
        PyErr_Format(c->row->op == OP_index_fill ? PyExc_IndexError : PyExc_RuntimeError,
                     c->row->op == OP_index_add    ? "%s_(): Expected dtype int32/int64 for index but got: %s"
                     : c->row->op == OP_index_fill ? "%s_(): Expected dtype int64 for index, but got %s"
                                                   : "%s_(): Expected a long tensor for index, but got %s",
                     c->row->name, amp_dtype_info[index->v.dtype].name);
        return NULL;
    }
    return raw_cast(index, AMP_INT64);
}

/* The dimension that the index counts in, its tensors on one device; -1 with an exception. */
static int dim_of_call(const OpCall *c) { return same_device(c) < 0 ? -1 : wrap_dim(c->arg[1].i, c->arg[0].t->v.ndim); }

/* Every index is checked before anything is written. `from_end`: negative ones count from the end. */
static int check_positions(const OpCall *c, const Tensor *index, int dim, int64_t size, bool from_end) {
    const char *p = index->v.data;
    int64_t step = index->v.ndim ? index->v.stride[0] * (int64_t)sizeof(int64_t) : 0;
    for (int64_t i = 0; index->v.device != AMP_META && i < index->v.numel; i++, p += step) {
        int64_t k;
        memcpy(&k, p, sizeof k);
        if (k < (from_end ? -size : 0) || k >= size) {
            PyErr_Format(PyExc_IndexError,
                         "%s%s(): index out of range in self: index %lld is out of bounds for dimension %d with size %lld",
                         c->row->name, c->row->op == OP_index_select ? "" : "_", (long long)k, dim, (long long)size);
            return -1;
        }
    }
    return 0;
}

/* A view with dimension `dim` first; a 0-dim tensor gets one. */
typedef struct Rows {
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
} Rows;

static View dim_first(const View *v, int dim, Rows *r) {
    View out = *v;
    int n = 1;
    out.ndim = (int8_t)(v->ndim ? v->ndim : 1);
    r->shape[0] = v->ndim ? v->shape[dim] : 1;
    r->stride[0] = v->ndim ? v->stride[dim] : 1;
    for (int d = 0; d < v->ndim; d++) {
        if (d != dim) {
            r->shape[n] = v->shape[d];
            r->stride[n++] = v->stride[d];
        }
    }
    out.shape = r->shape;
    out.stride = r->stride;
    out.layout = 0;
    return out;
}

/* table[index[i]] += values[i] as scatter_add does it, which sums 16-bit elements in float32; the index is repeated along the other
 * dimensions. */
static int add_rows(const OpCall *c, View *table, const View *index, View *values) {
    int64_t stride[AMP_MAX_DIMS] = {index->stride[0]};
    View places = *index;
    places.ndim = values->ndim;
    places.shape = values->shape;
    places.stride = stride;
    places.numel = values->numel;
    places.layout = 0;
    Call call = {.op = OP_scatter_add, .nin = 2, .nout = 1, .in = {values, &places}, .out = {table}, .dims = 1};
    return values->numel == 0
               ? 0
               : run_slot(table->device, AMP_BACKEND_SLOT(table->device, gather), &call, values->numel * 16, c->row->name);
}

/* The vector or scalar as a vector. */
static View line_of(const Tensor *index, int64_t *count, int64_t *step) {
    View line = index->v;
    *count = index->v.numel;
    *step = index->v.ndim ? index->v.stride[0] : 1;
    line.ndim = 1;
    line.shape = count;
    line.stride = step;
    line.layout = 0;
    return line;
}

/* out[index[i]] = or += source[i], along dim. */
static int put_rows(const OpCall *c, View *out, const Tensor *index, const View *source, int dim, bool accumulate) {
    Rows to, from;
    int64_t count, step;
    View table = dim_first(out, dim, &to), values = dim_first(source, dim, &from), places = line_of(index, &count, &step);
    if (accumulate && amp_is_16bit(out->dtype)) {
        return add_rows(c, &table, &places, &values);
    }
    const View *list[1] = {&places};
    Call call = {.op = OP_index_put,
                 .nin = 1,
                 .nout = 1,
                 .in = {&values},
                 .out = {&table},
                 .list = list,
                 .nlist = 1,
                 .nnum = 1,
                 .num = {number_int(accumulate)}};
    return run_slot(out->device, AMP_BACKEND_SLOT(out->device, index_put), &call, source->numel * 16, c->row->name);
}

/* out[i] = source[index[i]], along dim. */
static int take_rows(const OpCall *c, const View *source, const Tensor *index, const View *out, int dim) {
    Rows to, from;
    int64_t count, step;
    View values = dim_first(out, dim, &to), table = dim_first(source, dim, &from), places = line_of(index, &count, &step);
    const View *list[1] = {&places};
    Call call = {.op = OP_index, .nin = 1, .nout = 1, .in = {&table}, .out = {&values}, .list = list, .nlist = 1};
    return run_slot(out->device, AMP_BACKEND_SLOT(out->device, index), &call, out->numel * 16, c->row->name);
}

/* The result, holding the input's values. Borrowed, or NULL. */
static Tensor *copied_input(OpCall *c, Tensor *in) {
    Tensor *out = result_new(c, 0, in->v.ndim, in->v.shape, in->v.dtype, in->v.device, ALIAS_INPUT);
    return out && (out == in || raw_copy(&out->v, &in->v) == 0) ? out : NULL;
}

static int check_rows(const OpCall *c, const Tensor *in, const Tensor *index, const Tensor *source, int dim) {
    if (source->v.dtype != in->v.dtype) {
        PyErr_Format(PyExc_RuntimeError,
                     c->row->op == OP_index_add ? "%s_(): self (%s) and source (%s) must have the same scalar type: convert one"
                                                : "%s_(): self and source expected to have the same dtype, but got (self) %s and "
                                                  "(source) %s: convert one",
                     c->row->name, amp_dtype_info[in->v.dtype].name, amp_dtype_info[source->v.dtype].name);
        return -1;
    }
    if (c->row->op == OP_index_copy && in->v.ndim && source->v.ndim && in->v.ndim != source->v.ndim) {
        PyErr_Format(
            PyExc_IndexError,
            "index_copy_(): When source and destination are not scalars, their dimensionality must match: source has %d, "
            "destination %d dimensions",
            source->v.ndim, in->v.ndim);
        return -1;
    }
    int64_t rows = source->v.ndim ? source->v.shape[dim < source->v.ndim ? dim : 0] : 1;
    if (rows != index->v.numel) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s_(): Number of indices (%lld) should be equal to source.size(dim): (%lld), for dim: %d", c->row->name,
                     (long long)index->v.numel, (long long)rows, dim);
        return -1;
    }
    /* index_copy takes one element for a scalar */
    bool same = c->row->op == OP_index_add ? in->v.ndim == source->v.ndim : dims_of(in) == dims_of(source);
    for (int d = 0; same && d < in->v.ndim; d++) {
        same = d == dim || in->v.shape[d] == source->v.shape[d];
    }
    if (!same) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s_(): source tensor shape must match self tensor shape, excluding the specified dimension %d",
                     c->row->name, dim);
        return -1;
    }
    return 0;
}

/* index_add, index_copy */
int run_INDEX_WRITE(OpCall *c) {
    Tensor *in = c->arg[0].t, *source = c->arg[3].t;
    bool adds = c->row->op == OP_index_add;
    int dim = dim_of_call(c), failed = -1;
    Tensor *index = dim < 0 ? NULL : line_index(c, c->arg[2].t), *scaled = NULL;
    if (!index || check_rows(c, in, index, source, dim) < 0 ||
        check_positions(c, index, dim, in->v.ndim ? in->v.shape[dim] : 1, false) < 0) {
        goto done;
    }
    bool scales = adds && c->arg[4].num.f != 1;
    if (scales) { /* not recorded: the derivative knows about alpha */
        Call call = {.op = OP_mul, .nin = 2, .nout = 1, .in = {&source->v, NULL}};
        int64_t strides[AMP_MAX_DIMS];
        Tensor *alpha = tensor_new(0, NULL, source->v.dtype, source->v.device);
        scaled = alpha && fill_number(alpha, &c->arg[4].num) == 0
                     ? tensor_new(source->v.ndim, source->v.shape, source->v.dtype, source->v.device)
                     : NULL;
        if (scaled) {
            View factor = broadcast_view(&alpha->v, source->v.ndim, source->v.shape, strides);
            call.in[1] = &factor;
            call.out[0] = &scaled->v;
            if (run_slot(source->v.device, AMP_BACKEND_SLOT(source->v.device, binary), &call, source->v.numel * 16, "mul") < 0) {
                Py_CLEAR(scaled);
            }
        }
        Py_XDECREF(alpha);
    }
    Tensor *values = scales ? scaled : source, *out = values ? copied_input(c, in) : NULL;
    failed = out ? put_rows(c, &out->v, index, &values->v, dim, adds) : -1;
done:
    Py_XDECREF(index);
    Py_XDECREF(scaled);
    return failed;
}

int run_INDEX_FILL(OpCall *c) {
    Tensor *in = c->arg[0].t, *value = c->arg[3].t;
    int dim = dim_of_call(c), failed = -1;
    if (dim < 0) {
        return -1;
    }
    if (value->v.ndim) {
        PyErr_Format(PyExc_RuntimeError,
                     "index_fill_ only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
                     value->v.ndim);
        return -1;
    }
    Tensor *index = check_value(value, in->v.dtype) < 0 ? NULL : line_index(c, c->arg[2].t);
    Tensor *same = index ? raw_cast(value, in->v.dtype) : NULL;
    if (same && check_positions(c, index, dim, in->v.ndim ? in->v.shape[dim] : 1, true) == 0) {
        int64_t shape[AMP_MAX_DIMS], strides[AMP_MAX_DIMS];
        memcpy(shape, in->v.shape, (size_t)in->v.ndim * sizeof *shape);
        if (in->v.ndim) {
            shape[dim] = index->v.numel;
        }
        View values = broadcast_view(&same->v, in->v.ndim, shape, strides);
        values.numel = amp_numel(in->v.ndim, shape);
        Tensor *out = copied_input(c, in);
        failed = out ? put_rows(c, &out->v, index, &values, dim, false) : -1;
    }
    Py_XDECREF(index);
    Py_XDECREF(same);
    return failed;
}

/* ---- gather and scatter ---- */

/* The index as int64; new reference. */
static Tensor *place_index(const OpCall *c, Tensor *index) {
    if (index->v.dtype != AMP_INT64 && index->v.dtype != AMP_INT32) {
        PyErr_Format(PyExc_RuntimeError, "%s(): Expected dtype int32/int64 for index, got %s", c->row->name,
                     amp_dtype_info[index->v.dtype].name);
        return NULL;
    }
    return raw_cast(index, AMP_INT64);
}

/* The index as int64 of fitting shape; new reference. src NULL: a number. An empty index fits everything. */
static Tensor *scatter_index(const OpCall *c, const Tensor *in, Tensor *index, const Tensor *src, int dim) {
    if (src && src->v.dtype != in->v.dtype) {
        PyErr_Format(PyExc_RuntimeError, "scatter(): Expected self.dtype to be equal to src.dtype, got %s and %s",
                     amp_dtype_info[in->v.dtype].name, amp_dtype_info[src->v.dtype].name);
        return NULL;
    }
    int nd = dims_of(index);
    if (index->v.numel && (nd != dims_of(in) || (src && dims_of(src) != nd))) {
        PyErr_Format(PyExc_RuntimeError, "%s(): Index tensor must have the same number of dimensions as %s tensor", c->row->name,
                     nd != dims_of(in) ? "self" : "src");
        return NULL;
    }
    bool fits = true;
    for (int d = 0; fits && index->v.numel && d < nd; d++) {
        int64_t asked = size_of(index, d);
        fits = (d == dim || asked <= size_of(in, d)) && (!src || asked <= size_of(src, d));
    }
    if (!fits) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s(): Expected index to be no larger than self apart from dimension %d and to be no larger size than src",
                     c->row->name, dim);
        return NULL;
    }
    return place_index(c, index);
}

/* The first index, in memory's order of dimensions, that is not one of 0 .. size-1; false if there is none. */
static bool find_outside(const View *index, int64_t size, int64_t *found) {
    int64_t at[AMP_MAX_DIMS] = {0};
    const char *p = index->data;
    for (int64_t i = 0; i < index->numel; i++) {
        memcpy(found, p, sizeof *found);
        if (*found < 0 || *found >= size) {
            return true;
        }
        for (int d = index->ndim - 1; d >= 0; d--) {
            const int64_t step = index->stride[d] * (int64_t)sizeof *found;
            p += step;
            if (++at[d] < index->shape[d]) {
                break;
            }
            p -= at[d] * step;
            at[d] = 0;
        }
    }
    return false;
}

/* gather: other = table at index; scatters: table at index = other (one element everywhere if it has fewer dimensions), or combined with
 * it; `how`: the number of scatter_into, or 0. */
static int gather_slot(const OpCall *c, View *table, const View *index, View *other, int dim, int64_t how) {
    Call call = {.op = c->row->op, .nin = 2, .nout = 1, .dims = (uint64_t)1 << dim, .nnum = 1, .num = {number_int(how)}};
    int64_t strides[AMP_MAX_DIMS], one[1] = {1}, step[1] = {1};
    View part = *other, place = *index, all = *table;
    if (index->numel == 0) {
        return 0;
    }
    if (place.ndim == 0) {
        place.ndim = 1;
        place.shape = one;
        place.stride = step;
    }
    if (all.ndim == 0) {
        all.ndim = 1;
        all.shape = one;
        all.stride = step;
    }
    if (other->ndim < place.ndim) {
        memset(strides, 0, sizeof strides);
        part.stride = strides;
    }
    part.ndim = place.ndim; /* only the leading block that index covers takes part */
    part.shape = place.shape;
    part.numel = place.numel;
    part.layout = 0;
    bool reads = c->row->op == OP_gather;
    call.in[0] = reads ? &all : &part;
    call.in[1] = &place;
    call.out[0] = reads ? &part : &all;
    int failed = run_slot(table->device, AMP_BACKEND_SLOT(table->device, gather), &call, index->numel * 16, c->row->name);
    int64_t outside;
    if (failed && PyErr_ExceptionMatches(PyExc_RuntimeError) && find_outside(&place, all.shape[dim], &outside)) {
        PyErr_Clear();
        PyErr_Format(PyExc_RuntimeError, "%s(): index %lld is out of bounds for dimension %d with size %lld%s", c->row->name,
                     (long long)outside, dim, (long long)all.shape[dim],
                     outside < 0 ? ": these indices count from 0, not from the end" : "");
    }
    return failed;
}

int run_GATHER(OpCall *c) {
    Tensor *in = c->arg[0].t, *given = c->arg[2].t;
    int dim = dim_of_call(c);
    Tensor *index = dim < 0 ? NULL : place_index(c, given);
    if (!index) {
        return -1;
    }
    int failed = -1, large = -1;
    if (index->v.numel && dims_of(in) != dims_of(index)) {
        PyErr_SetString(PyExc_RuntimeError, "Index tensor must have the same number of dimensions as input tensor");
        goto done;
    }
    for (int d = 0; index->v.numel && d < index->v.ndim; d++) {
        large = d != dim && index->v.shape[d] > size_of(in, d) ? d : large;
    }
    if (large >= 0) {
        PyErr_Format(
            PyExc_RuntimeError,
            "Size does not match at dimension %d: expected index size to be no larger than self's apart from dimension %d", large,
            dim);
        goto done;
    }
    Tensor *out = result_new(c, 0, given->v.ndim, given->v.shape, in->v.dtype, in->v.device, ALIAS_APART);
    failed = out ? gather_slot(c, &in->v, &index->v, &out->v, dim, 0) : -1;
done:
    Py_DECREF(index);
    return failed;
}

/* The scatters: = a number, = src, += src. */
int run_SCATTER(OpCall *c) {
    Tensor *in = c->arg[0].t, *src = c->row->op == OP_scatter_value ? NULL : c->arg[3].t;
    int dim = dim_of_call(c), failed = -1;
    Tensor *index = dim < 0 ? NULL : scatter_index(c, in, c->arg[2].t, src, dim);
    if (!index) {
        return -1;
    }
    Tensor *from = src ? (Tensor *)Py_NewRef(src) : tensor_new(0, NULL, in->v.dtype, in->v.device);
    if (from && (src || fill_number(from, &c->arg[3].num) == 0)) {
        Tensor *out = copied_input(c, in);
        failed = out ? gather_slot(c, &out->v, &index->v, &from->v, dim, 0) : -1;
    }
    Py_XDECREF(from);
    Py_DECREF(index);
    return failed;
}

/* scatter_reduce with include_self, without sums. */
int run_SCATTER_INTO(OpCall *c) {
    Tensor *in = c->arg[0].t;
    int dim = dim_of_call(c), failed = -1;
    Tensor *index = dim < 0 ? NULL : scatter_index(c, in, c->arg[2].t, c->arg[3].t, dim);
    if (!index) {
        return -1;
    }
    int op = !strcmp(c->arg[4].s, "prod") ? OP_mul : !strcmp(c->arg[4].s, "amax") ? OP_maximum : OP_minimum;
    Tensor *out = copied_input(c, in);
    failed = out ? gather_slot(c, &out->v, &index->v, &c->arg[3].t->v, dim, op) : -1;
    Py_DECREF(index);
    return failed;
}

/* Unlike x[index], index_select does not count from the end. */
int run_INDEX_SELECT(OpCall *c) {
    Tensor *in = c->arg[0].t, *given = c->arg[2].t;
    int dim = dim_of_call(c), failed = -1;
    if (dim < 0) {
        return -1;
    }
    if (given->v.ndim > 1) {
        PyErr_Format(PyExc_IndexError, "index_select(): Index is supposed to be a vector, got a %d-D tensor", given->v.ndim);
        return -1;
    }
    if (given->v.dtype != AMP_INT64 && given->v.dtype != AMP_INT32) {
        PyErr_Format(PyExc_RuntimeError, "index_select(): Expected dtype int32 or int64 for index, got %s",
                     amp_dtype_info[given->v.dtype].name);
        return -1;
    }
    if (in->v.ndim == 0 && given->v.numel != 1) {
        PyErr_Format(PyExc_RuntimeError, "index_select(): Index to scalar can have only 1 value, got %lld value(s)",
                     (long long)given->v.numel);
        return -1;
    }
    Tensor *index = raw_cast(given, AMP_INT64);
    if (index && check_positions(c, index, dim, in->v.ndim ? in->v.shape[dim] : 1, false) == 0) {
        int64_t shape[AMP_MAX_DIMS];
        memcpy(shape, in->v.shape, (size_t)in->v.ndim * sizeof *shape);
        if (in->v.ndim) {
            shape[dim] = index->v.numel;
        }
        Tensor *out = result_new(c, 0, in->v.ndim, shape, in->v.dtype, in->v.device, ALIAS_APART);
        failed = out ? take_rows(c, &in->v, index, &out->v, dim) : -1;
    }
    Py_XDECREF(index);
    return failed;
}

/* ---- diagonals and windows ---- */

/* The view of a diagonal: the two dimensions go, their diagonal comes last. */
static int plan_diagonal(const View *v, int64_t offset, int64_t dim1, int64_t dim2, View *out, int64_t *shape, int64_t *stride,
                         int64_t *start) {
    int a = wrap_dim(dim1, v->ndim), b = a < 0 ? -1 : wrap_dim(dim2, v->ndim), n = 0;
    if (b < 0) {
        return -1;
    }
    if (a == b || v->ndim < 2) {
        PyErr_Format(PyExc_RuntimeError, "diagonal dimensions cannot be identical %lld, %lld", (long long)dim1, (long long)dim2);
        return -1;
    }
    int64_t rows = v->shape[a] + (offset < 0 ? offset : 0), columns = v->shape[b] - (offset > 0 ? offset : 0);
    int64_t length = rows < columns ? rows : columns;
    length = length < 0 ? 0 : length;
    for (int d = 0; d < v->ndim; d++) {
        if (d != a && d != b) {
            shape[n] = v->shape[d];
            stride[n++] = v->stride[d];
        }
    }
    shape[n] = length;
    stride[n++] = v->stride[a] + v->stride[b];
    *start = length == 0 ? 0 : offset >= 0 ? amp_mul_clamped(offset, v->stride[b]) : amp_mul_clamped(-offset, v->stride[a]);
    *out = *v;
    out->ndim = (int8_t)n;
    out->shape = shape;
    out->stride = stride;
    out->numel = amp_numel(n, shape);
    out->layout = 0;
    out->data += *start * (int64_t)amp_itemsize(v->dtype);
    return 0;
}

int run_DIAGONAL(OpCall *c) {
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS], start;
    View view;
    Tensor *t = c->arg[0].t;
    if (plan_diagonal(&t->v, c->arg[1].i, c->arg[2].i, c->arg[3].i, &view, shape, stride, &start) < 0) {
        return -1;
    }
    c->is_view = true;
    return result_set(c, tensor_window(t, view.ndim, shape, stride, start));
}

int run_DIAGONAL_SCATTER(OpCall *c) {
    Tensor *in = c->arg[0].t, *src = c->arg[1].t;
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS], start;
    View view;
    Tensor *out = same_device(c) < 0 ? NULL : copied_input(c, in);
    if (!out || plan_diagonal(&out->v, c->arg[2].i, c->arg[3].i, c->arg[4].i, &view, shape, stride, &start) < 0) {
        return -1;
    }
    if (src->v.ndim != view.ndim || memcmp(src->v.shape, shape, (size_t)view.ndim * sizeof *shape)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "expected src to have a size equal to the slice of self: src must have the diagonal's shape");
        return -1;
    }
    return raw_copy(&view, &src->v);
}

/* Windows of `size` elements, one every `step`; the elements of a window become the last dimension. */
int run_UNFOLD(OpCall *c) {
    Tensor *t = c->arg[0].t;
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS], length = c->arg[2].i, step = c->arg[3].i;
    int dim = wrap_dim(c->arg[1].i, t->v.ndim), nd = t->v.ndim;
    if (dim < 0) {
        return -1;
    }
    int64_t room = nd ? t->v.shape[dim] : 1;
    if (length < 0 || length > room || step <= 0 || nd == AMP_MAX_DIMS) {
        PyErr_Format(PyExc_RuntimeError,
                     step <= 0 ? "unfold: step is %lld but must be > 0"
                               : "unfold: window of %lld; maximum size for tensor at dimension %d is %lld",
                     (long long)(step <= 0 ? step : length), dim, (long long)room);
        return -1;
    }
    memcpy(shape, t->v.shape, (size_t)nd * sizeof *shape);
    memcpy(stride, t->v.stride, (size_t)nd * sizeof *stride);
    if (nd) {
        shape[dim] = (room - length) / step + 1;
        stride[dim] = amp_mul_clamped(stride[dim], step);
    }
    shape[nd] = length;
    stride[nd] = nd ? t->v.stride[dim] : 1;
    c->is_view = true;
    return result_set(c, tensor_window(t, nd + 1, shape, stride, 0));
}

/* The sum of windows where they overlap: what unfold's gradient is. Element j of all windows in one go, which are apart:
 *
 *     out[j], out[j + step], out[j + 2 step] ...  +=  grad[0][j], grad[1][j], grad[2][j] ... */
int run_UNFOLD_GRAD(OpCall *c) {
    Tensor *g = c->arg[0].t;
    int nd = c->arg[1].n, dim = wrap_dim(c->arg[2].i, nd);
    int64_t length = c->arg[3].i, step = c->arg[4].i, shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    Tensor *out = dim < 0 ? NULL : result_new(c, 0, nd, c->arg[1].ints, g->v.dtype, g->v.device, ALIAS_NEVER);
    if (!out || raw_fill(out, number_int(0)) < 0) {
        return -1;
    }
    if (out->v.numel == 0 || g->v.numel == 0) {
        return 0;
    }
    View from = g->v, to = out->v;
    from.ndim = (int8_t)nd;
    from.numel = g->v.numel / length;
    memcpy(shape, g->v.shape, (size_t)nd * sizeof *shape);
    memcpy(stride, out->v.stride, (size_t)nd * sizeof *stride);
    if (nd && shape[dim] > 1) { /* one window: any step */
        stride[dim] *= step;
    }
    to.shape = shape;
    to.stride = stride;
    to.numel = from.numel;
    from.layout = to.layout = 0;
    for (int64_t j = 0; j < length; j++) {
        const int64_t item = (int64_t)amp_itemsize(g->v.dtype);
        from.data = g->v.data + j * g->v.stride[nd] * item;
        to.data = out->v.data + (nd ? j * out->v.stride[dim] * item : 0);
        Call call = {.op = OP_add, .nin = 2, .nout = 1, .in = {&to, &from}, .out = {&to}};
        if (run_slot(g->v.device, AMP_BACKEND_SLOT(g->v.device, binary), &call, from.numel * 16, "unfold") < 0) {
            return -1;
        }
    }
    return 0;
}
