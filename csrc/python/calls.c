/* Ops as C functions: what composites and derivatives are written with. */
#include <string.h>

#include "classes.h"

Arg arg_int(int64_t i) { return (Arg){.kind = ARG_INT, .i = i, .num = number_int(i)}; }

Arg arg_float(double f) { return (Arg){.kind = ARG_FLOAT, .f = f, .num = number_float(f)}; }

Arg arg_bool(bool on) { return (Arg){.kind = ARG_BOOL, .i = on, .num = {.f = on, .i = on, .kind = NUMBER_BOOL}}; }

/* Defaults for every parameter from `first` on. */
static void defaults(OpId op, Arg *arg, int first) {
    const OpRow *row = &amp_rows[op];
    for (int i = first; i < row->nparams; i++) {
        arg[i] = row->param[i].fallback;
    }
}

Tensor *call_unary(OpId op, Tensor *a) {
    if (!a) {
        return NULL;
    }
    Arg arg[MAX_ARGS];
    arg_put(&arg[0], a);
    defaults(op, arg, 1);
    return run_op_tensor(op, arg);
}

Tensor *call_binary(OpId op, Tensor *a, Tensor *b) {
    if (!a || !b) {
        return NULL;
    }
    Arg arg[MAX_ARGS];
    arg_put(&arg[0], a);
    arg_put(&arg[1], b);
    defaults(op, arg, 2);
    return run_op_tensor(op, arg);
}

Tensor *call_scalar(OpId op, Tensor *a, double number) {
    if (!a) {
        return NULL;
    }
    Tensor *n = tensor_from_number(number_float(number), amp_state.default_dtype, AMP_CPU, true);
    Tensor *result = call_binary(op, a, n);
    Py_XDECREF(n);
    return result;
}

Tensor *call_to(Tensor *a, int dtype, int device) {
    if (!a) {
        return NULL;
    }
    if (a->v.dtype == dtype && a->v.device == device) {
        return (Tensor *)Py_NewRef(a);
    }
    Arg arg[3] = {arg_tensor(a), {.kind = ARG_DTYPE, .i = dtype}, {.kind = ARG_DEVICE, .i = device}};
    return run_op_tensor(OP_to_copy, arg);
}

Tensor *call_cast(Tensor *a, int dtype) { return a ? call_to(a, dtype, a->v.device) : NULL; }

static Tensor *call_ints(OpId op, Tensor *a, int n, const int64_t *ints) {
    if (!a) {
        return NULL;
    }
    Arg arg[MAX_ARGS];
    arg_put(&arg[0], a);
    arg[1] = arg_ints((int64_t *)(uintptr_t)ints, n);
    defaults(op, arg, 2);
    return run_op_tensor(op, arg);
}

Tensor *call_reshape(Tensor *a, int ndim, const int64_t *shape) { return call_ints(OP_reshape, a, ndim, shape); }

Tensor *call_expand(Tensor *a, int ndim, const int64_t *shape) { return call_ints(OP_expand, a, ndim, shape); }

Tensor *call_permute(Tensor *a, const int64_t *dims) { return a ? call_ints(OP_permute, a, a->v.ndim, dims) : NULL; }

Tensor *call_transpose(Tensor *a, int dim0, int dim1) {
    if (!a) {
        return NULL;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(a), arg_int(dim0), arg_int(dim1)};
    return run_op_tensor(OP_transpose, arg);
}

Tensor *call_unsqueeze(Tensor *a, int dim) {
    if (!a) {
        return NULL;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(a), arg_int(dim)};
    return run_op_tensor(OP_unsqueeze, arg);
}

Tensor *call_sum(Tensor *a, const int64_t *dims, int ndims, bool keepdim) {
    if (!a) {
        return NULL;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(a), arg_ints((int64_t *)(uintptr_t)dims, ndims), arg_bool(keepdim)};
    return run_op_tensor(OP_sum_dim, arg);
}

Tensor *call_mean(Tensor *a) { return call_unary(OP_mean, a); }

Tensor *call_clone(Tensor *a) { return call_unary(OP_clone, a); }

Tensor *call_contiguous(Tensor *a) { return call_unary(OP_contiguous, a); }

int call_inplace(OpId op, Tensor *self, Tensor *other) {
    if (!self || !other) {
        return -1;
    }
    Arg arg[MAX_ARGS];
    arg_put(&arg[0], self);
    arg_put(&arg[1], other);
    defaults(op, arg, 2);
    PyObject *result = run_op(&amp_rows[op], arg, true);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

int call_copy(Tensor *dst, Tensor *src) { return call_inplace(OP_copy, dst, src); }
