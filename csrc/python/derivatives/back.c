/* The shorthands of derivatives.h: each one runs an op and leaves the result with the frame. */
#include "derivatives.h"

#include "../classes.h"

Tensor *op_args(Back *b, OpId op, Arg *arg) {
    const OpRow *row = &amp_rows[op];
    if (b->failed) {
        return NULL;
    }
    for (int i = 0; i < row->nparams; i++) {
        if (row->param[i].kind == ARG_TENSOR && arg[i].kind == ARG_TENSOR && !arg[i].t) {
            return NULL;
        }
    }
    return back_own(b, run_op_tensor(op, arg));
}

/* The row's defaults for all parameters; the caller sets those it means. */
static void default_args(OpId op, Arg *arg) {
    const OpRow *row = &amp_rows[op];
    for (int i = 0; i < row->nparams; i++) {
        arg[i] = row->param[i].fallback;
    }
}

Tensor *op1(Back *b, OpId op, Tensor *x) { return x && !b->failed ? back_own(b, call_unary(op, x)) : NULL; }

Tensor *op2(Back *b, OpId op, Tensor *x, Tensor *y) { return x && y && !b->failed ? back_own(b, call_binary(op, x, y)) : NULL; }

/* A number to meet x, which takes part in promotion by its category only: an integer for integer tensors, where it can be one. */
static Tensor *wrapped(Back *b, const Tensor *x, double number) {
    bool whole = amp_is_integral(x->v.dtype) && number == (double)(int64_t)number;
    Number n = whole ? number_int((int64_t)number) : number_float(number);
    return b->failed ? NULL : back_own(b, tensor_from_number(n, whole ? AMP_INT64 : AMP_FLOAT64, AMP_CPU, true));
}

Tensor *op1k(Back *b, OpId op, Tensor *x, double number) { return x ? op2(b, op, x, wrapped(b, x, number)) : NULL; }

Tensor *op_int(Back *b, OpId op, Tensor *x, int64_t i) {
    Arg arg[MAX_ARGS];
    default_args(op, arg);
    arg_put(&arg[0], x);
    arg[1] = arg_int(i);
    return x ? op_args(b, op, arg) : NULL;
}

Tensor *op_int2(Back *b, OpId op, Tensor *x, int64_t i, int64_t k) {
    Arg arg[MAX_ARGS];
    default_args(op, arg);
    arg_put(&arg[0], x);
    arg[1] = arg_int(i);
    arg[2] = arg_int(k);
    return x ? op_args(b, op, arg) : NULL;
}

Tensor *scale(Back *b, Tensor *x, double factor) {
    return factor == 1.0 ? x : factor == -1.0 ? neg(b, x) : op1k(b, OP_mul, x, factor);
}

Tensor *fill_where(Back *b, Tensor *x, Tensor *mask, double value) {
    if (!x || !mask) {
        return NULL;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(x), arg_tensor(mask), arg_tensor(wrapped(b, x, value))};
    return op_args(b, OP_masked_fill, arg);
}

Tensor *cast(Back *b, Tensor *x, int dtype) {
    return !x || x->v.dtype == dtype || b->failed ? x : back_own(b, call_cast(x, dtype));
}

Tensor *on_device(Back *b, Tensor *x, int device) {
    return !x || x->v.device == device || b->failed ? x : back_own(b, call_to(x, x->v.dtype, device));
}

Tensor *wide(Back *b, Tensor *x) { return x && amp_is_16bit(x->v.dtype) ? cast(b, x, AMP_FLOAT32) : x; }

Tensor *reshape(Back *b, Tensor *x, int ndim, const int64_t *shape) {
    return x && !b->failed ? back_own(b, call_reshape(x, ndim, shape)) : NULL;
}

Tensor *expand(Back *b, Tensor *x, int ndim, const int64_t *shape) {
    return x && !b->failed ? back_own(b, call_expand(x, ndim, shape)) : NULL;
}

Tensor *reshape_like(Back *b, Tensor *x, const TensorMeta *m) { return reshape(b, x, m->ndim, m->shape); }

Tensor *expand_like(Back *b, Tensor *x, const TensorMeta *m) { return expand(b, x, m->ndim, m->shape); }

Tensor *transpose(Back *b, Tensor *x, int dim0, int dim1) {
    return x && !b->failed ? back_own(b, call_transpose(x, dim0, dim1)) : NULL;
}

Tensor *transpose_last(Back *b, Tensor *x) { return transpose(b, x, -2, -1); }

Tensor *unsqueeze(Back *b, Tensor *x, int dim) { return x && !b->failed ? back_own(b, call_unsqueeze(x, dim)) : NULL; }

Tensor *narrow(Back *b, Tensor *x, int dim, int64_t start, int64_t length) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), arg_int(dim), arg_int(start), arg_int(length)};
    return op_args(b, OP_narrow, arg);
}

Tensor *flip(Back *b, Tensor *x, int dim) {
    int64_t dims[1] = {dim};
    Arg arg[MAX_ARGS] = {arg_tensor(x), arg_ints(dims, 1)};
    return op_args(b, OP_flip, arg);
}

Tensor *cat(Back *b, int n, Tensor **x, int dim) {
    for (int i = 0; i < n; i++) {
        if (!x[i]) {
            return NULL;
        }
    }
    Arg arg[MAX_ARGS];
    default_args(OP_cat, arg);
    arg[0] = (Arg){.kind = ARG_TENSORS, .n = n, .ts = x};
    arg[1] = arg_int(dim);
    return op_args(b, OP_cat, arg);
}

Tensor *sum_dims(Back *b, Tensor *x, uint64_t dims, bool keepdim) {
    int64_t list[AMP_MAX_DIMS];
    int n = 0;
    for (int d = 0; x && d < x->v.ndim; d++) {
        if (dims >> d & 1) {
            list[n++] = d;
        }
    }
    return n == 0 || b->failed ? x : back_own(b, call_sum(x, list, n, keepdim));
}

Tensor *constant(Back *b, const Tensor *x, int ndim, const int64_t *shape, double value) {
    if (!x || b->failed) {
        return NULL;
    }
    Tensor *t = back_own(b, tensor_new(ndim, shape, x->v.dtype, x->v.device));
    if (t && raw_fill(t, number_float(value)) < 0) {
        b->failed = true;
        return NULL;
    }
    return t;
}

Tensor *scatter_add(Back *b, Tensor *x, int dim, Tensor *index, Tensor *src) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), arg_int(dim), arg_tensor(index), arg_tensor(src)};
    return op_args(b, OP_scatter_add, arg);
}

Tensor *gather(Back *b, Tensor *x, int dim, Tensor *index) {
    Arg arg[MAX_ARGS];
    default_args(OP_gather, arg);
    arg_put(&arg[0], x);
    arg[1] = arg_int(dim);
    arg_put(&arg[2], index);
    return op_args(b, OP_gather, arg);
}

/* ---- rows without a derivative: the driver never records them ---- */

static void unreachable(Back *b, const char *why) {
    PyErr_Format(PyExc_SystemError, "%s: %s", amp_rows[b->node->op].id, why);
    b->failed = true;
}

void d_none(Back *b) { unreachable(b, "has no derivative"); }

void d_composite(Back *b) { unreachable(b, "the ops it is made of have derivatives, itself it has none"); }

void f_none(Back *b) { unreachable(b, "has no fast derivative"); }
