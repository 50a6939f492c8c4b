/* Gradients as the inputs of nodes take them. */
#include <string.h>

#include "../core/autocast.h"
#include "classes.h"
#include "node.h"

/* The sum of g over `dims` in m's shape by one kernel call: for a pass that records nothing and that nobody watches. */
static Tensor *sum_unrecorded(Tensor *g, const TensorMeta *m, int n, const int64_t *dims) {
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    Tensor *out = tensor_new(m->ndim, m->shape, g->v.dtype, g->v.device);
    if (!out) {
        return NULL;
    }
    View full = out->v; /* seen with g's dimensions */
    uint64_t mask = 0;
    for (int i = 0; i < n; i++) {
        mask |= (uint64_t)1 << dims[i];
    }
    int extra = g->v.ndim - m->ndim;
    for (int d = 0; d < g->v.ndim; d++) {
        bool summed = mask >> d & 1;
        shape[d] = summed ? 1 : g->v.shape[d];
        stride[d] = summed ? 0 : out->v.stride[d - extra];
    }
    full.ndim = g->v.ndim;
    full.shape = shape;
    full.stride = stride;
    Call call;
    amp_call_one(&call, OP_sum_dim, &g->v, &full);
    call.dims = mask;
    if (run_slot(g->v.device, AMP_BACKEND_SLOT(g->v.device, reduce), &call, g->v.numel * 4, "sum") < 0) {
        Py_CLEAR(out);
    }
    return out;
}

Tensor *sum_to_meta(Tensor *g, const TensorMeta *m) {
    Tensor *x = (Tensor *)Py_NewRef((PyObject *)g);
    if (x->v.ndim != m->ndim || memcmp(x->v.shape, m->shape, (size_t)m->ndim * sizeof(int64_t))) {
        int64_t dims[AMP_MAX_DIMS];
        int n = 0, extra = x->v.ndim - m->ndim;
        bool fits = extra >= 0;
        for (int d = 0; fits && d < x->v.ndim; d++) {
            int64_t want = d < extra ? 1 : m->shape[d - extra];
            if (d < extra || (want == 1 && x->v.shape[d] != 1)) {
                dims[n++] = d;
            } else {
                fits = want == x->v.shape[d];
            }
        }
        if (!fits) {
            PyObject *have = tensor_describe(g), *want = size_from_dims(m->ndim, m->shape);
            PyErr_Format(PyExc_RuntimeError,
                         "a backward function returned an invalid gradient: got a %U, but expected shape compatible with %R",
                         have, want);
            Py_XDECREF(have);
            Py_XDECREF(want);
            Py_DECREF(x);
            return NULL;
        }
        if (n && !grad_recording() && !amp_mode && amp_is_floating(x->v.dtype)) {
            Py_SETREF(x, sum_unrecorded(x, m, n, dims));
        } else if (n) {
            Py_SETREF(x, call_sum(x, dims, n, true));
        }
        if (x && x->v.ndim != m->ndim) {
            Py_SETREF(x, call_reshape(x, m->ndim, m->shape));
        }
    }
    if (x && (x->v.dtype != m->dtype || x->v.device != m->device)) {
        Py_SETREF(x, call_to(x, m->dtype, m->device));
    }
    return x;
}
