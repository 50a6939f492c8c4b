/* Reductions, scans, softmax. */
#include <math.h>
#include <string.h>

#include "classes.h"

static int find_param(const OpRow *row, const char *name) {
    for (int i = 0; i < row->nparams; i++) {
        if (!strcmp(row->param[i].name, name)) {
            return i;
        }
    }
    return -1;
}

static const Arg *arg_named(const OpCall *c, const char *name) {
    int i = find_param(c->row, name);
    return i < 0 ? NULL : &c->arg[i];
}

static int given_dtype(const OpCall *c) {
    const Arg *a = c->row->dtype_index >= 0 ? &c->arg[c->row->dtype_index] : NULL;
    return a && a->kind == ARG_DTYPE ? (int)a->i : -1;
}

typedef struct Reduction {
    uint64_t mask;
    bool keepdim;
    int nkept, nfull;
    int64_t kept[AMP_MAX_DIMS], full[AMP_MAX_DIMS]; /* result's shape without and with the reduced dimensions as 1 */
    int64_t count;                                  /* elements per result */
} Reduction;

static int plan_reduction(const OpCall *c, const Tensor *in, Reduction *r) {
    const Arg *dim = c->row->dim_index < 0 ? NULL : &c->arg[c->row->dim_index],
              *keep = c->row->keepdim_index < 0 ? NULL : &c->arg[c->row->keepdim_index];
    if (dims_mask(dim, in->v.ndim, &r->mask) < 0) {
        return -1;
    }
    if ((c->row->op == OP_any_dim || c->row->op == OP_all_dim) && dim->kind == ARG_INTS && dim->n == 0) {
        r->mask = 0; /* of each element alone, as in PyTorch */
    }
    r->keepdim = keep && keep->kind == ARG_BOOL && keep->i;
    r->nkept = 0;
    r->nfull = in->v.ndim;
    r->count = 1;
    for (int d = 0; d < in->v.ndim; d++) {
        bool reduced = (r->mask >> d) & 1;
        r->full[d] = reduced ? 1 : in->v.shape[d];
        r->count = amp_mul_clamped(r->count, reduced ? in->v.shape[d] : 1);
        if (!reduced || r->keepdim) {
            r->kept[r->nkept++] = r->full[d];
        }
    }
    return 0;
}

/* The result seen with the input's number of dimensions. */
static View full_view(Tensor *out, Reduction *r, int64_t *strides) {
    View v = out->v;
    int k = 0;
    for (int d = 0; d < r->nfull; d++) {
        bool reduced = (r->mask >> d) & 1;
        strides[d] = reduced && !r->keepdim ? 0 : out->v.stride[k];
        k += !reduced || r->keepdim;
    }
    v.ndim = (int8_t)r->nfull;
    v.shape = r->full;
    v.stride = strides;
    return v;
}

static bool is_extremum(int op) { return op == OP_max || op == OP_min || op == OP_amax || op == OP_amin; }

static int refuse_empty(const OpCall *c, const Tensor *in, const Reduction *r) {
    if (r->count != 0 || in->v.ndim == 0) {
        return 0;
    }
    PyErr_Format(
        r->mask && in->v.numel == 0 && r->nkept == 0 ? PyExc_RuntimeError : PyExc_IndexError,
        "%s(): Expected reduction dim to be specified for input.numel() == 0: the reduction of no elements has no identity",
        c->row->name);
    return -1;
}

/* Norms that have no value over nothing: infinite and negative orders. */
static int refuse_norm(const OpCall *c, const Tensor *in, const Reduction *r) {
    double ord = c->arg[1].num.f;
    if (r->count != 0 || in->v.ndim == 0 || !(ord < 0 || isinf(ord))) {
        return 0;
    }
    PyObject *shown = PyFloat_FromDouble(ord);
    PyErr_Format(
        PyExc_RuntimeError,
        "linalg.vector_norm cannot compute the %S norm on an empty tensor or dimension because the operation does not have "
        "an identity",
        shown ? shown : Py_None);
    Py_XDECREF(shown);
    return -1;
}

static int reduce_dtype(const OpCall *c, const Tensor *in) {
    int dtype = in->v.dtype, given = given_dtype(c);
    switch ((DTypeRule)c->row->rule) {
    case RULE_SUM: return given >= 0 ? given : amp_is_integral(dtype) ? AMP_INT64 : dtype;
    case RULE_BOOL: return dtype == AMP_UINT8 ? AMP_UINT8 : AMP_BOOL;
    case RULE_INDEX: return AMP_INT64;
    default: break;
    }
    if (c->row->op == OP_vector_norm && given >= 0 &&
        amp_promote_dtypes(amp_real_of(dtype), amp_real_of(given)) != amp_real_of(given)) {
        PyErr_Format(PyExc_RuntimeError,
                     "linalg.vector_norm: the dtype of the input (%s) should be convertible without narrowing to the specified "
                     "dtype (%s): norm in the input's dtype, then convert",
                     amp_dtype_info[dtype].name, amp_dtype_info[given].name);
        return -1;
    }
    if (given >= 0) {
        dtype = given;
    }
    bool needs_float = c->row->op == OP_mean || c->row->op == OP_mean_dim || c->row->op == OP_vector_norm;
    if (needs_float && !amp_is_floating(dtype) && !amp_is_complex(dtype)) {
        PyErr_Format(PyExc_NotImplementedError,
                     "%s(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: %s",
                     c->row->name, amp_dtype_info[dtype].name);
        return -1;
    }
    return dtype;
}

static int reduce_from(OpCall *c, Tensor *in) {
    Reduction r;
    int dtype = reduce_dtype(c, in);
    if (dtype < 0 || plan_reduction(c, in, &r) < 0 || (is_extremum(c->row->op) && refuse_empty(c, in, &r) < 0) ||
        (c->row->op == OP_vector_norm && refuse_norm(c, in, &r) < 0)) {
        return -1;
    }
    int device = in->v.device;
    Tensor *out = result_new(c, 0, r.nkept, r.kept, dtype, device, ALIAS_NEVER);
    if (!out) {
        return -1;
    }
    int64_t strides[AMP_MAX_DIMS];
    View v = full_view(out, &r, strides);
    Call call;
    amp_call_one(&call, c->row->op, &in->v, &v);
    call.dims = r.mask;
    if (c->row->op == OP_vector_norm) {
        call.nnum = 1;
        call.num[0] = c->arg[1].num;
    }
    return run_slot(device, AMP_BACKEND_SLOT(device, reduce), &call, in->v.numel * 4, c->row->name);
}

int run_REDUCE(OpCall *c) {
    Tensor *in = c->arg[0].t;
    if (given_dtype(c) != AMP_BOOL || c->row->rule != RULE_SUM) {
        return reduce_from(c, in);
    }
    Tensor *truth = raw_cast(in, AMP_BOOL); /* 0.5 counts, which the integers that bools are summed in would drop */
    int failed = truth ? reduce_from(c, truth) : -1;
    Py_XDECREF(truth);
    return failed;
}

static int run_indexed(OpCall *c, bool values) {
    Tensor *in = c->arg[0].t;
    Reduction r;
    if (plan_reduction(c, in, &r) < 0) {
        return -1;
    }
    if (amp_is_complex(in->v.dtype)) {
        PyErr_Format(PyExc_TypeError, "%s(): does not support complex input, which has no order", c->row->name);
        return -1;
    }
    if (r.count == 0) {
        PyErr_Format(PyExc_IndexError,
                     "%s(): Expected reduction dim to have non-zero size: the extremum of no elements does not exist",
                     c->row->name);
        return -1;
    }
    int device = in->v.device;
    int64_t strides[2][AMP_MAX_DIMS];
    View v[2];
    Call call = {.op = c->row->op, .nin = 1, .nout = values ? 2 : 1, .in = {&in->v}, .dims = r.mask};
    for (int i = 0; i < call.nout; i++) {
        bool index = i == 1 || !values;
        Tensor *out = result_new(c, i, r.nkept, r.kept, index ? AMP_INT64 : in->v.dtype, device, ALIAS_NEVER);
        if (!out) {
            return -1;
        }
        v[i] = full_view(out, &r, strides[i]);
        call.out[i] = &v[i];
    }
    return run_slot(device, AMP_BACKEND_SLOT(device, reduce), &call, in->v.numel * 4, c->row->name);
}

int run_EXTREMUM(OpCall *c) { return run_indexed(c, true); }

int run_ARGREDUCE(OpCall *c) { return run_indexed(c, false); }

/* The variance of complex numbers is that of their real parts and that of their imaginary parts together. */
static int complex_var(OpCall *c) {
    bool std = c->row->op == OP_std || c->row->op == OP_std_unbiased || c->row->op == OP_std_dim;
    OpId row = !std ? (OpId)c->row->op : c->row->op == OP_std ? OP_var : c->row->op == OP_std_dim ? OP_var_dim : OP_var_unbiased;
    Tensor *part[2], *sum = NULL;
    int failed = complex_parts(c->arg[0].t, part);
    for (int i = 0; i < 2 && !failed; i++) {
        Arg arg[MAX_ARGS];
        memcpy(arg, c->arg, (size_t)c->row->nparams * sizeof *arg);
        arg[0] = arg_tensor(part[i]);
        if (c->row->out_index >= 0) {
            arg[c->row->out_index].kind = ARG_NONE;
        }
        Tensor *var = run_op_tensor(row, arg);
        Py_SETREF(part[i], var);
        failed = var ? 0 : -1;
    }
    if (!failed && (sum = call_binary(OP_add, part[0], part[1])) && std) {
        Py_SETREF(sum, call_unary(OP_sqrt, sum));
    }
    if (sum && c->out && amp_is_complex(c->out->v.dtype)) { /* of an input of that kind, out may be too */
        Py_SETREF(sum, call_cast(sum, c->out->v.dtype));
    }
    Py_XDECREF(part[0]);
    Py_XDECREF(part[1]);
    return result_set(c, sum);
}

/* var and std in their three spellings: correction=, unbiased, or neither. */
int run_VAR(OpCall *c) {
    Tensor *in = c->arg[0].t;
    Reduction r;
    if (amp_is_complex(in->v.dtype)) {
        return complex_var(c);
    }
    if (!amp_is_floating(in->v.dtype)) {
        PyErr_Format(PyExc_NotImplementedError,
                     "std and var only support floating point and complex dtypes: %s of %s, convert it", c->row->name,
                     amp_dtype_info[in->v.dtype].name);
        return -1;
    }
    if (plan_reduction(c, in, &r) < 0) {
        return -1;
    }
    const Arg *correction = arg_named(c, "correction"), *unbiased = arg_named(c, "unbiased");
    double value = correction && correction->kind != ARG_NONE ? correction->num.f : unbiased && !unbiased->i ? 0.0 : 1.0;
    /* Into a wider out= nothing is rounded on the way. */
    bool wider = c->out && amp_is_floating(c->out->v.dtype) && amp_itemsize(c->out->v.dtype) > amp_itemsize(in->v.dtype);
    int device = in->v.device, dtype = wider ? c->out->v.dtype : in->v.dtype;
    Tensor *out = result_new(c, 0, r.nkept, r.kept, dtype, device, ALIAS_NEVER);
    if (!out) {
        return -1;
    }
    if ((double)r.count - value <= 0 &&
        PyErr_WarnFormat(PyExc_UserWarning, 1,
                         "%s(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor",
                         c->row->name) < 0) {
        return -1;
    }
    Tensor *x = raw_cast(in, dtype);
    if (!x) {
        return -1;
    }
    bool is_std = c->row->op == OP_std || c->row->op == OP_std_unbiased || c->row->op == OP_std_dim;
    int64_t strides[AMP_MAX_DIMS];
    View v = full_view(out, &r, strides);
    Call call = {.op = is_std ? OP_std : OP_var,
                 .nin = 1,
                 .nout = 1,
                 .in = {&x->v},
                 .out = {&v},
                 .dims = r.mask,
                 .nnum = 1,
                 .num = {number_float(value)}};
    int failed = run_slot(device, AMP_BACKEND_SLOT(device, reduce), &call, in->v.numel * 8, c->row->name);
    Py_DECREF(x);
    return failed;
}

int run_SCAN(OpCall *c) {
    Tensor *in = c->arg[0].t;
    int dim = wrap_dim(c->arg[1].i, in->v.ndim), given = given_dtype(c);
    if (dim < 0) {
        return -1;
    }
    int dtype = given >= 0 ? given : amp_is_integral(in->v.dtype) && !c->inplace ? AMP_INT64 : in->v.dtype;
    if (dtype == AMP_BOOL) {
        return amp_raise(AMP_NO_KERNEL, c->row->name);
    }
    Tensor *out = result_new(c, 0, in->v.ndim, in->v.shape, dtype, in->v.device, ALIAS_APART);
    Tensor *x = out ? raw_cast(in, dtype) : NULL;
    if (!x) {
        return -1;
    }
    int failed;
    if (in->v.ndim == 0) {
        failed = raw_copy(&out->v, &x->v);
    } else {
        Call call;
        amp_call_one(&call, c->row->op, &x->v, &out->v);
        call.dims = (uint64_t)1 << dim;
        failed = run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, scan), &call, in->v.numel * 8, c->row->name);
    }
    Py_DECREF(x);
    return failed;
}

static int softmax_slot(OpCall *c, Tensor *x, const Tensor *y, Tensor *out, int dim) {
    Call call = {.op = c->row->op,
                 .nin = y ? 2 : 1,
                 .nout = 1,
                 .in = {&x->v, y ? &y->v : NULL},
                 .out = {&out->v},
                 .dims = (uint64_t)1 << dim};
    return run_slot(x->v.device, AMP_BACKEND_SLOT(x->v.device, softmax), &call, x->v.numel * 32, c->row->name);
}

int run_SOFTMAX(OpCall *c) {
    Tensor *in = c->arg[0].t;
    int dim = wrap_dim(c->arg[1].i, in->v.ndim), given = given_dtype(c);
    if (dim < 0) {
        return -1;
    }
    int dtype = given >= 0 ? given : in->v.dtype;
    if (amp_is_integral(dtype)) {
        PyErr_Format(PyExc_NotImplementedError, "%s: not implemented for %s: convert the input, or give dtype=", c->row->name,
                     amp_dtype_info[dtype].name);
        return -1;
    }
    Tensor *out = result_new(c, 0, in->v.ndim, in->v.shape, dtype, in->v.device, ALIAS_NEVER);
    if (!out) {
        return -1;
    }
    int64_t one = 1, step = 1;
    View line = {.ndim = 1, .numel = 1, .shape = &one, .stride = &step};
    Tensor *x = raw_cast(in, dtype);
    if (!x) {
        return -1;
    }
    int failed;
    if (in->v.ndim == 0) { /* a 0-dim tensor is a line of one */
        View from = line, to = line;
        from.data = x->v.data;
        to.data = out->v.data;
        from.dtype = to.dtype = (int8_t)dtype;
        from.device = to.device = in->v.device;
        Call call;
        amp_call_one(&call, c->row->op, &from, &to);
        call.dims = 1;
        failed = run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, softmax), &call, 0, c->row->name);
    } else {
        failed = softmax_slot(c, x, NULL, out, dim);
    }
    Py_DECREF(x);
    return failed;
}

int run_SOFTMAX_GRAD(OpCall *c) {
    Tensor *g = c->arg[0].t, *y = c->arg[1].t;
    int dim = wrap_dim(c->arg[2].i, y->v.ndim);
    Tensor *out = dim < 0 ? NULL : result_new(c, 0, y->v.ndim, y->v.shape, y->v.dtype, y->v.device, ALIAS_NEVER);
    Tensor *same = out ? raw_cast(g, y->v.dtype) : NULL;
    if (!same) {
        return -1;
    }
    int failed;
    if (y->v.ndim == 0) { /* one element: the output does not depend on the input */
        failed = raw_fill(out, number_float(0.0));
    } else {
        failed = softmax_slot(c, same, y, out, dim);
    }
    Py_DECREF(same);
    return failed;
}
