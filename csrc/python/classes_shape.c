/* Views: results that share the input's storage. No kernel runs. */
#include <string.h>

#include "classes.h"

static int view_result(OpCall *c, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset) {
    c->is_view = true;
    return result_set(c, tensor_window(c->arg[0].t, ndim, shape, stride, offset));
}

/* Fills in one -1 and checks the number of elements. */
static int infer_shape(const Tensor *t, const Arg *wanted, int64_t *shape) {
    int hole = -1;
    int64_t known = 1;
    if (wanted->n > AMP_MAX_DIMS) {
        PyErr_Format(PyExc_RuntimeError, "a tensor has at most %d dimensions, not %d", AMP_MAX_DIMS, wanted->n);
        return -1;
    }
    for (int d = 0; d < wanted->n; d++) {
        shape[d] = wanted->ints[d];
        if (shape[d] == -1) {
            if (hole >= 0) {
                PyErr_SetString(PyExc_RuntimeError, "only one dimension can be inferred: the shape has more than one -1");
                return -1;
            }
            hole = d;
        } else if (shape[d] < 0) {
            PyErr_Format(PyExc_RuntimeError, "invalid shape dimension %lld", (long long)shape[d]);
            return -1;
        } else if (__builtin_mul_overflow(known, shape[d], &known)) {
            known = -1;
            break;
        }
    }
    bool fits = known == t->v.numel;
    if (hole >= 0) {
        if (known == 0) {
            PyErr_SetString(
                PyExc_RuntimeError,
                "cannot reshape tensor of 0 elements into this shape because the unspecified dimension size -1 can be any value");
            return -1;
        }
        fits = known > 0 && t->v.numel % known == 0;
        shape[hole] = fits ? t->v.numel / known : 0;
    }
    if (!fits) {
        PyObject *size = size_from_dims(wanted->n, wanted->ints), *list = size ? PySequence_List(size) : NULL;
        if (list) {
            PyErr_Format(PyExc_RuntimeError, "shape '%R' is invalid for input of size %lld", list, (long long)t->v.numel);
        }
        Py_XDECREF(size);
        Py_XDECREF(list);
        return -1;
    }
    return 0;
}

/* Strides with which the new shape addresses the same elements in the same order; false if that needs a copy.
 *
 * Old dimensions are taken in runs that are dense among themselves (stride[d] == stride[d+1] * shape[d+1]); each run must be made of
 * whole new dimensions. Both are walked from the last to the first. */
static bool view_strides(const Tensor *t, int ndim, const int64_t *shape, int64_t *stride) {
    const View *v = &t->v;
    if (v->numel == 0) {
        amp_contiguous_strides(ndim, shape, stride);
        return true;
    }
    int n = ndim - 1;
    int64_t step = v->ndim ? v->stride[v->ndim - 1] : 1, run = 1, covered = 1;
    for (int d = v->ndim - 1; d >= 0; d--) {
        run *= v->shape[d];
        bool ends = d == 0 || (v->shape[d - 1] != 1 && v->stride[d - 1] != run * step);
        if (!ends) {
            continue;
        }
        while (n >= 0 && (covered < run || shape[n] == 1)) {
            stride[n] = covered * step;
            covered *= shape[n];
            n--;
        }
        if (covered != run) {
            return false;
        }
        if (d > 0) {
            step = v->stride[d - 1];
            run = covered = 1;
        }
    }
    for (; n >= 0; n--) {
        stride[n] = step; /* only ones are left */
    }
    return true;
}

int run_VIEW(OpCall *c) {
    Tensor *t = c->arg[0].t;
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    if (infer_shape(t, &c->arg[1], shape) < 0) {
        return -1;
    }
    if (!view_strides(t, c->arg[1].n, shape, stride)) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
            "subspaces). Use .reshape(...) instead.");
        return -1;
    }
    return view_result(c, c->arg[1].n, shape, stride, 0);
}

int run_RESHAPE(OpCall *c) {
    Tensor *t = c->arg[0].t;
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    if (infer_shape(t, &c->arg[1], shape) < 0) {
        return -1;
    }
    int n = c->arg[1].n;
    Tensor *source = view_strides(t, n, shape, stride) ? (Tensor *)Py_NewRef(t) : call_contiguous(t);
    if (!source) {
        return -1;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(source), arg_ints(shape, n)};
    Tensor *result = run_op_tensor(OP_view, arg);
    Py_DECREF(source);
    return result_set(c, result);
}

int run_FLATTEN(OpCall *c) {
    Tensor *t = c->arg[0].t;
    int first = wrap_dim(c->arg[1].i, t->v.ndim), last = wrap_dim(c->arg[2].i, t->v.ndim);
    if (first < 0 || last < 0) {
        return -1;
    }
    if (first > last) {
        PyErr_SetString(PyExc_RuntimeError, "flatten() has invalid args: start_dim cannot come after end_dim");
        return -1;
    }
    if (first == last && t->v.ndim) { /* nothing to merge: the tensor itself */
        return result_set(c, (Tensor *)Py_NewRef(t));
    }
    int64_t shape[AMP_MAX_DIMS], merged = 1;
    int n = 0;
    for (int d = 0; d < t->v.ndim; d++) {
        if (d >= first && d <= last) {
            merged *= t->v.shape[d];
            if (d == last) {
                shape[n++] = merged;
            }
        } else {
            shape[n++] = t->v.shape[d];
        }
    }
    if (t->v.ndim == 0) {
        shape[n++] = 1;
    }
    return result_set(c, call_reshape(t, n, shape));
}

/* view(dtype): the same bits read as another format. */
int run_VIEW_DTYPE(OpCall *c) {
    Tensor *t = c->arg[0].t;
    int dtype = (int)c->arg[1].i;
    int64_t from = (int64_t)amp_itemsize(t->v.dtype), to = (int64_t)amp_itemsize(dtype);
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    int nd = t->v.ndim;
    memcpy(shape, t->v.shape, (size_t)nd * sizeof *shape);
    memcpy(stride, t->v.stride, (size_t)nd * sizeof *stride);
    if (from != to) {
        if (nd == 0 || stride[nd - 1] != 1 || (shape[nd - 1] * from) % to) {
            PyErr_Format(PyExc_RuntimeError,
                         "self.size(-1) must be divisible by %lld to view %s as %s (different element sizes), and "
                         "self.stride(-1) must be 1",
                         (long long)(to > from ? to / from : 1), amp_dtype_info[t->v.dtype].name, amp_dtype_info[dtype].name);
            return -1;
        }
        for (int d = 0; d < nd - 1; d++) {
            if ((stride[d] * from) % to) {
                PyErr_SetString(PyExc_RuntimeError, "self.stride() must be divisible by the ratio of the element sizes");
                return -1;
            }
            stride[d] = stride[d] * from / to;
        }
        if ((t->v.data - t->st->data) % to) {
            PyErr_Format(
                PyExc_RuntimeError,
                "self.storage_offset() must be divisible by %lld to view %s as %s (different element sizes), but got %lld",
                (long long)(to / from), amp_dtype_info[t->v.dtype].name, amp_dtype_info[dtype].name,
                (long long)((t->v.data - t->st->data) / from));
            return -1;
        }
        shape[nd - 1] = shape[nd - 1] * from / to;
    }
    Tensor *result = tensor_window(t, nd, shape, stride, 0);
    if (result) {
        result->v.dtype = (int8_t)dtype;
    }
    return result_set(c, result);
}

int run_AS_STRIDED(OpCall *c) {
    Tensor *t = c->arg[0].t;
    int n = c->arg[1].n;
    if (n != c->arg[2].n || n > AMP_MAX_DIMS) {
        PyErr_SetString(PyExc_RuntimeError, "mismatch in length of strides and shape");
        return -1;
    }
    int64_t item = (int64_t)amp_itemsize(t->v.dtype);
    int64_t offset = c->arg[3].kind == ARG_INT ? c->arg[3].i : (t->v.data - t->st->data) / item;
    int64_t last = offset;
    bool empty = false, overflow = false;
    for (int d = 0; d < n; d++) {
        if (c->arg[1].ints[d] < 0 || c->arg[2].ints[d] < 0) {
            PyErr_SetString(PyExc_RuntimeError, "as_strided: Negative sizes and strides are not supported");
            return -1;
        }
        int64_t size = c->arg[1].ints[d], walk = 0;
        empty |= size == 0;
        overflow |= __builtin_mul_overflow(size ? size - 1 : 0, c->arg[2].ints[d], &walk);
        overflow |= __builtin_add_overflow(last, walk, &last);
    }
    overflow |= last > INT64_MAX / item - 1;
    if (!empty && overflow) {
        PyErr_SetString(PyExc_RuntimeError,
                        "as_strided: Storage size calculation overflowed: the sizes and strides reach beyond 63 bits");
        return -1;
    }
    int64_t needed = empty ? 0 : (last + 1) * item;
    if (offset < 0 || needed > (int64_t)t->st->nbytes) {
        PyErr_Format(PyExc_RuntimeError,
                     "setStorage: the sizes, strides and storage offset %lld require a storage of %lld bytes, it has %zu",
                     (long long)offset, (long long)needed, t->st->nbytes);
        return -1;
    }
    return view_result(c, n, c->arg[1].ints, c->arg[2].ints, offset - (t->v.data - t->st->data) / item);
}

static int run_permutation(OpCall *c, const int *order) {
    Tensor *t = c->arg[0].t;
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    for (int d = 0; d < t->v.ndim; d++) {
        shape[d] = t->v.shape[order[d]];
        stride[d] = t->v.stride[order[d]];
    }
    return view_result(c, t->v.ndim, shape, stride, 0);
}

static int run_swap(OpCall *c, int a, int b) {
    int order[AMP_MAX_DIMS];
    for (int d = 0; d < c->arg[0].t->v.ndim; d++) {
        order[d] = d == a ? b : d == b ? a : d;
    }
    return run_permutation(c, order);
}

int run_TRANSPOSE(OpCall *c) {
    int nd = c->arg[0].t->v.ndim, a = wrap_dim(c->arg[1].i, nd), b = wrap_dim(c->arg[2].i, nd);
    return a < 0 || b < 0 ? -1 : run_swap(c, a, b);
}

int run_T(OpCall *c) {
    int nd = c->arg[0].t->v.ndim;
    if (nd > 2) {
        PyErr_Format(PyExc_RuntimeError, "t() expects a tensor with <= 2 dimensions, but self is %dD", nd);
        return -1;
    }
    return nd < 2 ? run_swap(c, 0, 0) : run_swap(c, 0, 1);
}

int run_PERMUTE(OpCall *c) {
    int nd = c->arg[0].t->v.ndim, order[AMP_MAX_DIMS];
    if (c->arg[1].n != nd) {
        PyErr_Format(PyExc_RuntimeError,
                     "permute(): number of dimensions in the tensor input does not match the length of the desired ordering of "
                     "dimensions i.e. input.dim() = %d is not equal to len(dims) = %d",
                     nd, c->arg[1].n);
        return -1;
    }
    uint64_t seen = 0;
    for (int d = 0; d < nd; d++) {
        order[d] = wrap_dim(c->arg[1].ints[d], nd);
        if (order[d] < 0) {
            return -1;
        }
        if (seen & ((uint64_t)1 << order[d])) {
            PyErr_SetString(PyExc_RuntimeError, "permute(dims): duplicate dims are not allowed.");
            return -1;
        }
        seen |= (uint64_t)1 << order[d];
    }
    return run_permutation(c, order);
}

int run_SQUEEZE(OpCall *c) {
    Tensor *t = c->arg[0].t;
    uint64_t mask;
    if (dims_mask(c->row->op == OP_squeeze ? NULL : &c->arg[1], t->v.ndim, &mask) < 0) {
        return -1;
    }
    if (c->row->op == OP_squeeze_dim && c->arg[1].n == 0) {
        mask = 0;
    }
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < t->v.ndim; d++) {
        if (!((mask >> d) & 1) || t->v.shape[d] != 1) {
            shape[n] = t->v.shape[d];
            stride[n++] = t->v.stride[d];
        }
    }
    return view_result(c, n, shape, stride, 0);
}

int run_UNSQUEEZE(OpCall *c) {
    Tensor *t = c->arg[0].t;
    int dim = wrap_dim(c->arg[1].i, t->v.ndim + 1), n = 0;
    if (dim < 0) {
        return -1;
    }
    if (t->v.ndim == AMP_MAX_DIMS) {
        PyErr_Format(PyExc_RuntimeError, "a tensor has at most %d dimensions", AMP_MAX_DIMS);
        return -1;
    }
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    for (int d = 0; d <= t->v.ndim; d++) {
        bool fresh = d == dim;
        shape[d] = fresh ? 1 : t->v.shape[n];
        stride[d] = !fresh ? t->v.stride[n] : n < t->v.ndim ? amp_mul_clamped(t->v.shape[n], t->v.stride[n]) : 1;
        n += !fresh;
    }
    return view_result(c, t->v.ndim + 1, shape, stride, 0);
}

int run_EXPAND(OpCall *c) {
    Tensor *t = c->arg[0].t;
    int n = c->arg[1].n, extra = n - t->v.ndim;
    if (extra < 0 || n > AMP_MAX_DIMS) {
        PyErr_Format(
            PyExc_RuntimeError,
            "expand: the number of sizes provided (%d) must be greater or equal to the number of dimensions in the tensor (%d)",
            n, t->v.ndim);
        return -1;
    }
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    for (int d = 0; d < n; d++) {
        int64_t size = c->arg[1].ints[d], have = d >= extra ? t->v.shape[d - extra] : 1;
        if (size == -1 && d >= extra) {
            size = have;
        }
        if (size < 0) {
            PyErr_Format(PyExc_RuntimeError,
                         "The expanded size of the tensor (%lld) isn't allowed in a leading, non-existing dimension %d",
                         (long long)size, d);
            return -1;
        }
        if (size != have && have != 1) {
            PyErr_Format(
                PyExc_RuntimeError,
                "The expanded size of the tensor (%lld) must match the existing size (%lld) at non-singleton dimension %d",
                (long long)size, (long long)have, d);
            return -1;
        }
        shape[d] = size;
        stride[d] = d < extra || (have == 1 && size != 1) ? 0 : t->v.stride[d - extra];
    }
    return view_result(c, n, shape, stride, 0);
}

int run_SELECT(OpCall *c) {
    Tensor *t = c->arg[0].t;
    if (t->v.ndim == 0) {
        PyErr_SetString(PyExc_IndexError, "select() cannot be applied to a 0-dim tensor.");
        return -1;
    }
    int dim = wrap_dim(c->arg[1].i, t->v.ndim);
    if (dim < 0) {
        return -1;
    }
    int64_t size = t->v.shape[dim], index = c->arg[2].i;
    if (index < -size || index >= size) {
        PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for dimension %d with size %lld", (long long)index, dim,
                     (long long)size);
        return -1;
    }
    index += index < 0 ? size : 0;
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < t->v.ndim; d++) {
        if (d != dim) {
            shape[n] = t->v.shape[d];
            stride[n++] = t->v.stride[d];
        }
    }
    return view_result(c, n, shape, stride, amp_mul_clamped(index, t->v.stride[dim]));
}

static int run_part(OpCall *c, int dim, int64_t start, int64_t length, int64_t step) {
    Tensor *t = c->arg[0].t;
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    memcpy(shape, t->v.shape, (size_t)t->v.ndim * sizeof *shape);
    memcpy(stride, t->v.stride, (size_t)t->v.ndim * sizeof *stride);
    shape[dim] = length;
    stride[dim] = amp_mul_clamped(stride[dim], step);
    return view_result(c, t->v.ndim, shape, stride, length ? amp_mul_clamped(start, t->v.stride[dim]) : 0);
}

/* Called by indexing with values already brought into range. */
int run_SLICE(OpCall *c) { return run_part(c, (int)c->arg[1].i, c->arg[2].i, c->arg[3].i, c->arg[4].i); }

int run_NARROW(OpCall *c) {
    Tensor *t = c->arg[0].t;
    if (t->v.ndim == 0) {
        PyErr_SetString(PyExc_RuntimeError, "narrow() cannot be applied to a 0-dim tensor.");
        return -1;
    }
    int dim = wrap_dim(c->arg[1].i, t->v.ndim);
    if (dim < 0) {
        return -1;
    }
    int64_t size = t->v.shape[dim], start = c->arg[2].i, length = c->arg[3].i;
    if (start < -size || start > size) {
        PyErr_Format(PyExc_IndexError, "start (%lld) out of range: dimension %d has size %lld", (long long)start, dim,
                     (long long)size);
        return -1;
    }
    start += start < 0 ? size : 0;
    if (length < 0 || length > size - start) {
        PyErr_Format(PyExc_RuntimeError, "start (%lld) + length (%lld) exceeds dimension size (%lld).", (long long)start,
                     (long long)length, (long long)size);
        return -1;
    }
    return run_part(c, dim, start, length, 1);
}

int run_ALIAS(OpCall *c) {
    Tensor *t = c->arg[0].t;
    return view_result(c, t->v.ndim, t->v.shape, t->v.stride, 0);
}

int run_DETACH(OpCall *c) { return result_set(c, tensor_shallow(c->arg[0].t)); }
