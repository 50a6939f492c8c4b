/* Rows of a table by index, and the gradient of the table. */
#include "classes.h"

#include <string.h>

/* Indices as the kernel reads them: dense int64; new reference. */
static Tensor *dense_indices(const OpCall *c, Tensor *indices) {
    if (indices->v.dtype != AMP_INT64 && indices->v.dtype != AMP_INT32) {
        PyErr_Format(PyExc_RuntimeError,
                     "Expected tensor for argument 'indices' to have one of the following scalar types: Long, Int; but got %s "
                     "instead (while checking arguments for %s)",
                     amp_dtype_info[indices->v.dtype].name, c->row->name);
        return NULL;
    }
    Tensor *wide = raw_cast(indices, AMP_INT64), *dense = wide ? raw_contiguous(wide) : NULL;
    Py_XDECREF(wide);
    return dense;
}

/* The IndexError of the slot, with the first index that is no row and the number of rows. */
static void name_bad_index(const OpCall *c, const Tensor *dense, int64_t rows) {
    const char *p = dense->v.data;
    for (int64_t i = 0; i < dense->v.numel; i++, p += sizeof(int64_t)) {
        int64_t k;
        memcpy(&k, p, sizeof k);
        if (k < 0 || k >= rows) {
            PyErr_Format(PyExc_IndexError, "%s: index out of range in self: index %lld, but the table has %lld rows, from 0 on",
                         c->row->name, (long long)k, (long long)rows);
            return;
        }
    }
}

static int run_table(OpCall *c, Tensor *in, Tensor *out, int nnum) {
    Tensor *indices = dense_indices(c, c->arg[1].t), *dense = indices ? raw_contiguous(in) : NULL;
    int failed = -1;
    if (dense) {
        Call call;
        amp_call_init(&call, c->row->op);
        call.nin = 2;
        call.nout = 1;
        call.in[0] = &dense->v;
        call.in[1] = &indices->v;
        call.out[0] = &out->v;
        call.nnum = (uint8_t)nnum;
        for (int i = 0; i < nnum; i++) {
            call.num[i] = number_int(c->arg[3 + i].i);
        }
        failed = run_slot(out->v.device, AMP_BACKEND_SLOT(out->v.device, embedding), &call, out->v.numel * 8, c->row->name);
        if (failed && PyErr_ExceptionMatches(PyExc_IndexError)) {
            name_bad_index(c, indices, c->row->op == OP_embedding_grad ? out->v.shape[0] : in->v.shape[0]);
        }
    }
    Py_XDECREF(indices);
    Py_XDECREF(dense);
    return failed;
}

int run_EMBEDDING(OpCall *c) {
    Tensor *weight = c->arg[0].t, *indices = c->arg[1].t;
    int64_t shape[AMP_MAX_DIMS];
    if (weight->v.ndim != 2) {
        PyErr_Format(PyExc_RuntimeError, "'weight' must be 2-D: %s got one of %d dimensions", c->row->name, weight->v.ndim);
        return -1;
    }
    if (c->arg[4].i) {
        PyErr_SetString(
            PyExc_NotImplementedError,
            "embedding(sparse=True) asks for sparse gradients, which do not exist here: leave it out, the dense gradient "
            "has the same values");
        return -1;
    }
    if (indices->v.ndim == AMP_MAX_DIMS) {
        PyErr_Format(PyExc_RuntimeError, "a tensor has at most %d dimensions", AMP_MAX_DIMS);
        return -1;
    }
    if (common_device(c) < 0) {
        return -1;
    }
    memcpy(shape, indices->v.shape, (size_t)indices->v.ndim * sizeof *shape);
    shape[indices->v.ndim] = weight->v.shape[1];
    Tensor *out = result_new(c, 0, indices->v.ndim + 1, shape, weight->v.dtype, weight->v.device, ALIAS_NEVER);
    return out ? run_table(c, weight, out, 0) : -1;
}

/* (..., D) gradients of positions -> (rows, D) */
int run_EMBEDDING_GRAD(OpCall *c) {
    Tensor *g = c->arg[0].t;
    int64_t shape[2] = {c->arg[2].i, g->v.ndim ? g->v.shape[g->v.ndim - 1] : 0};
    bool fits = g->v.ndim == c->arg[1].t->v.ndim + 1 &&
                !memcmp(g->v.shape, c->arg[1].t->v.shape, (size_t)(g->v.ndim - 1) * sizeof *g->v.shape);
    if (!fits || shape[0] < 0) {
        PyErr_SetString(PyExc_RuntimeError, "_embedding_grad: the gradient has the indices' shape and one more dimension");
        return -1;
    }
    Tensor *out = result_new(c, 0, 2, shape, g->v.dtype, g->v.device, ALIAS_NEVER);
    return out ? run_table(c, g, out, 2) : -1;
}
