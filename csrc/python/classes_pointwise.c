/* UNARY, BINARY, TERNARY and their relatives: broadcast, promote, one slot call. */
#include <math.h>
#include <string.h>

#include "classes.h"
#include "node.h"
#include "outputs.h"

/* The Python number that t stands for; false: it is none, or a complex one. */
static bool wrapped_number(const Tensor *t, Number *n) {
    float f;
    int64_t i;
    if (!(t->flags & TENSOR_WRAPPED)) {
        return false;
    }
    switch (t->v.dtype) {
    case AMP_INT64: memcpy(&i, t->v.data, sizeof i); break;
    case AMP_FLOAT32: memcpy(&f, t->v.data, sizeof f); break;
    case AMP_FLOAT64:
        *n = (Number){.kind = NUMBER_FLOAT};
        memcpy(&n->f, t->v.data, sizeof n->f);
        return true;
    default: return false;
    }
    *n = t->v.dtype == AMP_INT64 ? number_int(i) : (Number){.f = (double)f, .kind = NUMBER_FLOAT};
    return true;
}

/* What holds number i beside tensors of `dtype`. Beside 16 bits that is fp32, but for numbers that PyTorch's kernels round first; the ones
 * that derivatives pass and nan_to_num's may be any. */
static int number_dtype(const OpCall *c, int i, int dtype) {
    if (c->row->op == OP_hardtanh && amp_is_integral(dtype)) {
        return AMP_INT64;
    }
    if (c->row->param[c->row->number[i]].kind == ARG_FLOAT &&
        (c->row->variants & VARIANT_P || c->row->op == OP_nan_to_num || amp_is_integral(dtype))) {
        return AMP_FLOAT64; /* kernels that don't take integers say so themselves */
    }
    switch (c->row->op) {
    case OP_add:
    case OP_sub:
    case OP_rsub:
    case OP_clamp:
    case OP_hardtanh:
    case OP_hardshrink:
    case OP_softshrink:
    case OP_logit: return dtype;
    case OP_threshold: return i == 0 && amp_is_16bit(dtype) ? AMP_FLOAT32 : dtype;
    default: return amp_is_16bit(dtype) ? AMP_FLOAT32 : dtype;
    }
}

/* The op's numbers in signature order; optional ones may be absent. RuntimeError, -1, for one that `dtype`, which is computed in,
 * does not hold. */
static int fill_numbers(const OpCall *c, Call *call, int dtype) {
    for (int i = 0; i < c->row->nnumbers; i++) {
        const Arg *a = &c->arg[c->row->number[i]];
        Number *n = &call->num[call->nnum++];
        *n = a->num;
        if (a->kind == ARG_NONE) {
            n->kind = NUMBER_NONE;
            continue;
        }
        if (a->kind == ARG_STR) { /* gelu's approximate: "none" or "tanh" */
            *n = number_int(!strcmp(a->s, "tanh"));
        }
        if ((a->kind != ARG_NUMBER && a->kind != ARG_FLOAT) || (a->num.kind == NUMBER_INT && (a->num.i == 0 || a->num.i == 1))) {
            continue; /* alpha as it usually is: every dtype holds it */
        }
        bool held = amp_is_floating(dtype) && fabs(n->f) <= 65504.0 && n->kind != NUMBER_COMPLEX; /* by every floating dtype */
        if (held && !amp_is_16bit(dtype)) {
            continue;
        }
        int holds = number_dtype(c, i, dtype);
        if (!held && (c->row->op == OP_clamp ? check_bound(n, dtype, i == 0) : check_number(n, holds)) < 0) {
            return -1;
        }
        if (dtype == AMP_BOOL) {
            *n = number_int(n->kind == NUMBER_FLOAT ? n->f != 0 : n->i != 0);
        }
        if (amp_is_16bit(holds) && c->arg[0].t->v.device == AMP_CPU) { /* as for operands: see stays_wide */
            n->f = amp_held_by(n->f, holds);
        }
    }
    if (c->row->op == OP_pow) {
        call->nnum = (uint8_t)wrapped_number(c->arg[1].t, &call->num[0]);
    }
    return 0;
}

static int bool_refused(const OpCall *c, const char *cure) {
    PyErr_Format(PyExc_NotImplementedError, "%s of bool tensors is not supported. %s", c->row->name, cure);
    return -1;
}

/* Ops of numbers that PyTorch has no kernels for bool of. */
static bool wants_numbers(const OpCall *c, const Tensor *in) {
    switch (c->row->op) {
    case OP_floor:
    case OP_ceil:
    case OP_round:
    case OP_trunc:
    case OP_relu:
    case OP_softsign:
    case OP_tanhshrink:
    case OP_threshold: return true;
    case OP_abs: return in->v.device == AMP_CPU;
    default: return false;
    }
}

static int unary_dtypes(const OpCall *c, const Tensor *in, int *compute, int *out) {
    int dtype = in->v.dtype;
    *compute = *out = dtype;
    switch ((DTypeRule)c->row->rule) {
    case RULE_FLOAT:
        if (amp_is_integral(dtype)) {
            *compute = *out = amp_state.default_dtype;
        }
        break;
    case RULE_REAL: *out = amp_real_of(dtype); break;
    case RULE_BOOL: *out = AMP_BOOL; break;
    case RULE_OWN: /* clamp: a float bound makes an integer tensor float, an integer one a bool tensor int64 */
        for (int i = 1; i <= 2; i++) {
            if (c->arg[i].kind == ARG_NUMBER && c->arg[i].num.kind == NUMBER_FLOAT && amp_is_integral(dtype)) {
                *compute = *out = amp_state.default_dtype;
            } else if (c->arg[i].kind == ARG_NUMBER && c->arg[i].num.kind == NUMBER_INT && *compute == AMP_BOOL) {
                *compute = *out = AMP_INT64;
            }
        }
        if (c->arg[1].kind == ARG_NONE && c->arg[2].kind == ARG_NONE) {
            PyErr_SetString(PyExc_RuntimeError, "clamp: At least one of 'min' or 'max' must not be None");
            return -1;
        }
        break;
    default: break;
    }
    if (dtype == AMP_BOOL && c->row->op == OP_square) { /* as pow(input, 2) */
        *compute = *out = AMP_INT64;
    }
    if (dtype == AMP_BOOL && (wants_numbers(c, in) || (c->row->op == OP_clamp && *compute == AMP_BOOL))) {
        return bool_refused(c, "Convert it to a number dtype first.");
    }
    if (dtype == AMP_BOOL && c->row->op == OP_neg) {
        return bool_refused(c, "Use logical_not() or the ~ operator instead.");
    }
    if (c->row->op == OP_bitwise_not && !amp_is_integral(dtype)) {
        PyErr_Format(PyExc_NotImplementedError, "\"bitwise_not\" not implemented for '%s': it works on integers and bools",
                     amp_dtype_info[dtype].name);
        return -1;
    }
    return 0;
}

int complex_parts(Tensor *z, Tensor **part) {
    Arg view[MAX_ARGS] = {arg_tensor(call_unsqueeze(z, z->v.ndim)), {.kind = ARG_DTYPE, .i = amp_real_of(z->v.dtype)}};
    Tensor *pairs = view[0].t ? run_op_tensor(OP_view_dtype, view) : NULL;
    part[0] = part[1] = NULL;
    for (int i = 0; i < 2 && pairs; i++) {
        Arg at[MAX_ARGS] = {arg_tensor(pairs), arg_int(-1), arg_int(i)};
        part[i] = run_op_tensor(OP_select, at);
    }
    Py_XDECREF(pairs);
    Py_XDECREF(view[0].t);
    return part[0] && part[1] ? 0 : -1;
}

/* |z| = hypot of the parts. */
static int complex_abs(OpCall *c, Tensor *z) {
    Tensor *part[2];
    int failed = complex_parts(z, part);
    failed = result_set(c, failed ? NULL : call_binary(OP_hypot, part[0], part[1]));
    Py_XDECREF(part[0]);
    Py_XDECREF(part[1]);
    return failed;
}

int run_UNARY(OpCall *c) {
    Tensor *in = c->arg[0].t;
    int compute, dtype;
    if (c->row->op == OP_abs && amp_is_complex(in->v.dtype)) {
        if (c->inplace) {
            PyErr_SetString(PyExc_RuntimeError,
                            "In-place abs is not supported for complex tensors: the result is real. Use abs()");
            return -1;
        }
        return complex_abs(c, in);
    }
    if (unary_dtypes(c, in, &compute, &dtype) < 0) {
        return -1;
    }
    if (c->row->op == OP_gelu && strcmp(c->arg[1].s, "none") && strcmp(c->arg[1].s, "tanh")) {
        PyErr_Format(PyExc_RuntimeError, "approximate argument must be either 'none' or 'tanh', not '%s'", c->arg[1].s);
        return -1;
    }
    if (c->row->op == OP_celu && c->arg[1].f == 0) {
        PyErr_SetString(PyExc_RuntimeError, "ZeroDivisionError: alpha cannot be 0 for CELU: it divides the input");
        return -1;
    }
    Tensor *out = result_new(c, 0, in->v.ndim, in->v.shape, dtype, in->v.device, ALIAS_ELEMENTWISE);
    if (!out) {
        return -1;
    }
    result_keep_layout(c, out, in);
    Tensor *x = raw_cast(in, compute);
    if (!x) {
        return -1;
    }
    Call call;
    amp_call_init(&call, c->row->op);
    call.nin = call.nout = 1;
    call.in[0] = &x->v;
    call.out[0] = &out->v;
    int failed = fill_numbers(c, &call, compute);
    if (!failed) {
        failed = run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, unary), &call, out->v.numel * 16, c->row->name);
    }
    Py_DECREF(x);
    return failed;
}

/* F.relu(x, inplace=True) and kin: the last argument chooses the variant of the row that stands right before this one. */
int run_INPLACE_FLAG(OpCall *c) {
    const OpRow *row = &amp_rows[c->row->op - 1];
    int flag = c->row->nparams - 1;
    Arg arg[MAX_ARGS];
    for (int i = 0; i < row->nparams; i++) {
        arg[i] = i < flag ? c->arg[i] : row->param[i].fallback;
    }
    return result_set(c, (Tensor *)run_op(row, arg, c->arg[flag].i != 0));
}

enum { VALUE_BYTES = 16 }; /* an element of the widest dtype */

/* Whether 0-dim operand i of another dtype takes part unrounded beside 16-bit tensors, as fp32: on the CPU as a factor or divisor on the
 * right, on CUDA always; elsewhere it is rounded first. That is what PyTorch's kernels do. */
static bool stays_wide(const OpCall *c, int i, int device) {
    switch (c->row->op) {
    case OP_mul:
    case OP_div:
    case OP_div_trunc:
    case OP_floor_divide: return i == 1 || device != AMP_CPU;
    case OP_lerp: return c->arg[i].t->flags & TENSOR_WRAPPED || device != AMP_CPU;
    default: return c->row->ntensors > 2 || device != AMP_CPU;
    }
}

/* The 0-dim operand t in `dtype`, broadcast to out: *v shows `value`, with the strides `zero`. */
static int scalar_operand(const Tensor *t, int dtype, const Tensor *out, char *value, int64_t *zero, View *v) {
    *v = t->v;
    v->data = value;
    v->dtype = (int8_t)dtype;
    if (t->v.dtype == AMP_FLOAT64 && dtype == AMP_FLOAT32) { /* a Python number beside the usual tensor */
        double wide;
        memcpy(&wide, t->v.data, sizeof wide);
        float f = (float)wide;
        memcpy(value, &f, sizeof f);
    } else if (raw_copy(v, &t->v) < 0) {
        return -1;
    }
    for (int d = 0; d < out->v.ndim; d++) {
        zero[d] = 0;
    }
    v->numel = out->v.numel;
    v->shape = out->v.shape;
    v->stride = zero;
    v->ndim = out->v.ndim;
    v->layout = 0;
    return 0;
}

static bool same_shape(const Tensor *a, const Tensor *b) {
    if (a->v.ndim != b->v.ndim) {
        return false;
    }
    for (int d = 0; d < a->v.ndim; d++) {
        if (a->v.shape[d] != b->v.shape[d]) {
            return false;
        }
    }
    return true;
}

static int broadcast_all(const OpCall *c, int n, Tensor *const *t, int64_t *shape) {
    int ndim = t[0]->v.ndim;
    memcpy(shape, t[0]->v.shape, (size_t)ndim * sizeof *shape);
    for (int i = 1; i < n; i++) {
        int64_t joined[AMP_MAX_DIMS];
        if (same_shape(t[0], t[i]) && ndim == t[0]->v.ndim) {
            continue;
        }
        memcpy(joined, shape, (size_t)ndim * sizeof *shape);
        int nd = amp_broadcast_shapes(ndim, shape, t[i]->v.ndim, t[i]->v.shape, joined);
        if (nd < 0) {
            for (int k = 1; k <= ndim && k <= t[i]->v.ndim; k++) {
                int64_t a = shape[ndim - k], b = t[i]->v.shape[t[i]->v.ndim - k];
                if (a != b && a != 1 && b != 1) {
                    int largest = ndim > t[i]->v.ndim ? ndim : t[i]->v.ndim;
                    PyErr_Format(
                        PyExc_RuntimeError,
                        "%s: The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d",
                        c->row->name, (long long)a, (long long)b, largest - k);
                    break;
                }
            }
            return -1;
        }
        ndim = nd;
        memcpy(shape, joined, (size_t)ndim * sizeof *shape);
    }
    return ndim;
}

static bool is_beside(const Tensor *first, const Tensor *t) {
    return t->v.ndim == 0 && first->v.ndim > 0 && t->v.device == AMP_CPU;
}

/* Dense operands of one shape in the dtype that is computed in, perhaps a number beside them, and a new result: nothing to broadcast,
 * cast or lay out. */
static bool is_plain(const OpCall *c, int n, Tensor *const *t, const int *dtype) {
    for (int i = 0; i < n; i++) {
        if (i && is_beside(t[0], t[i])) {
            continue;
        }
        if (t[i]->v.dtype != dtype[i] || !(t[i]->v.layout & LAYOUT_CONTIGUOUS) || (i && !same_shape(t[0], t[i]))) {
            return false;
        }
    }
    return !c->out;
}

/* What a 0-dim operand that is no operand of the compute dtype already takes part as. */
static int scalar_dtype(const OpCall *c, int i, int dtype, int device) {
    return amp_is_16bit(dtype) && stays_wide(c, i, device) ? AMP_FLOAT32 : dtype;
}

static int run_plain(OpCall *c, int n, Tensor *const *t, const int *dtype, int out_dtype, int device, Slot slot) {
    int64_t zero[AMP_MAX_DIMS];
    _Alignas(16) char value[3][VALUE_BYTES];
    View view[3];
    Tensor *out = c->result[0] = tensor_new_like(t[0], out_dtype, device);
    if (!out) {
        return -1;
    }
    c->nresult = 1;
    Call call;
    amp_call_one(&call, c->row->op, &t[0]->v, &out->v);
    call.nin = (uint8_t)n;
    for (int i = 1; i < n; i++) {
        call.in[i] = &t[i]->v;
        if (is_beside(t[0], t[i])) {
            int to = t[i]->v.dtype == dtype[i] ? dtype[i] : scalar_dtype(c, i, dtype[i], device);
            if (scalar_operand(t[i], to, out, value[i], zero, &view[i]) < 0) {
                return -1;
            }
            call.in[i] = &view[i];
        }
    }
    return fill_numbers(c, &call, dtype[0]) < 0 ? -1 : run_slot(device, slot, &call, out->v.numel * 16, c->row->name);
}

/* Broadcasts, casts and calls: dtype[i] is what operand i is computed in, out_dtype the result's. */
static int run_elementwise(OpCall *c, int n, Tensor *const *t, const int *dtype, int out_dtype, int device, Slot slot) {
    int64_t shape[AMP_MAX_DIMS], strides[3][AMP_MAX_DIMS];
    _Alignas(16) char value[3][VALUE_BYTES];
    Tensor *x[3] = {NULL, NULL, NULL};
    View view[3];
    int failed = -1;
    if (is_plain(c, n, t, dtype)) {
        return run_plain(c, n, t, dtype, out_dtype, device, slot);
    }
    int ndim = broadcast_all(c, n, t, shape);
    if (ndim < 0) {
        return -1;
    }
    Tensor *out = result_new(c, 0, ndim, shape, out_dtype, device, ALIAS_ELEMENTWISE);
    if (!out) {
        return -1;
    }
    for (int i = 0; i < n; i++) { /* the first operand of the result's shape decides */
        if (same_shape(t[i], out)) {
            result_keep_layout(c, out, t[i]);
            break;
        }
    }
    Call call;
    amp_call_init(&call, c->row->op);
    call.nin = (uint8_t)n;
    call.nout = 1;
    call.out[0] = &out->v;
    for (int i = 0; i < n; i++) {
        if (t[i]->v.ndim == 0 && t[i]->v.dtype != dtype[i] && t[i]->v.device != AMP_META) {
            if (scalar_operand(t[i], scalar_dtype(c, i, dtype[i], device), out, value[i], strides[i], &view[i]) < 0) {
                goto done;
            }
            call.in[i] = &view[i];
            continue;
        }
        if (!(x[i] = raw_cast(t[i], dtype[i]))) {
            goto done;
        }
        if (same_shape(x[i], out)) {
            call.in[i] = &x[i]->v;
        } else {
            view[i] = broadcast_view(&x[i]->v, ndim, out->v.shape, strides[i]);
            call.in[i] = &view[i];
        }
    }
    failed = fill_numbers(c, &call, dtype[0]) < 0 ? -1 : run_slot(device, slot, &call, out->v.numel * 16, c->row->name);
done:
    for (int i = 0; i < n; i++) {
        Py_XDECREF(x[i]);
    }
    return failed;
}

static bool is_bitwise(int op) {
    return op == OP_bitwise_and || op == OP_bitwise_or || op == OP_bitwise_xor || op == OP_bitwise_left_shift ||
           op == OP_bitwise_right_shift;
}

static int binary_dtype_checks(const OpCall *c, int common) {
    int op = c->row->op;
    const Tensor *other = c->arg[1].t;
    if (op == OP_pow && amp_is_integral(common) && other->flags & TENSOR_WRAPPED && other->v.dtype == AMP_INT64) {
        int64_t value;
        memcpy(&value, other->v.data, sizeof value);
        if (value < 0) {
            return amp_raise(AMP_NEGATIVE_POWER, c->row->name);
        }
        if (check_value(other, common) < 0) {
            return -1;
        }
    }
    if (op == OP_pow && amp_is_16bit(common) && other->flags & TENSOR_WRAPPED && check_value(other, common) < 0) {
        return -1;
    }
    if ((op == OP_max_other || op == OP_min_other) && other->flags & TENSOR_WRAPPED) {
        PyErr_Format(
            PyExc_TypeError,
            "%s() received an invalid combination of arguments: `other` must be a tensor; with a dimension out= takes two",
            c->row->name);
        return -1;
    }
    if ((op == OP_sub || op == OP_rsub) && (c->arg[0].t->v.dtype == AMP_BOOL || c->arg[1].t->v.dtype == AMP_BOOL)) {
        PyErr_SetString(
            PyExc_NotImplementedError,
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the "
            "`~` or `logical_not()` operator instead, or bitwise_xor() for two bool tensors.");
        return -1;
    }
    bool extremum = op == OP_maximum || op == OP_minimum || op == OP_fmax || op == OP_fmin || op == OP_max_other ||
                    op == OP_min_other;
    if (extremum && amp_is_complex(common)) {
        const char *name = op == OP_max_other ? "maximum" : op == OP_min_other ? "minimum" : c->row->name;
        PyErr_Format(PyExc_TypeError, "%s not implemented for complex tensors, which have no order", name);
        return -1;
    }
    if (op == OP_heaviside && amp_is_complex(common)) {
        PyErr_SetString(PyExc_NotImplementedError, "heaviside is not yet implemented for complex tensors");
        return -1;
    }
    bool half_complex = (common == AMP_COMPLEX32 && (op == OP_div || op == OP_pow)) ||
                        (common == AMP_BCOMPLEX32 && c->row->rule != RULE_BOOL && !c->out),
         logical_floor = common == AMP_BOOL && (op == OP_floor_divide || op == OP_fmod || op == OP_remainder ||
                                                (op == OP_pow && !(c->arg[1].t->flags & TENSOR_WRAPPED)));
    if (half_complex || logical_floor) {
        PyErr_Format(PyExc_NotImplementedError, "\"%s\" not implemented for '%s': cast one operand to %s first", c->row->name,
                     amp_dtype_info[common].name, half_complex ? "complex64" : "int64");
        return -1;
    }
    if (op == OP_heaviside && c->arg[0].t->v.dtype != c->arg[1].t->v.dtype && !(c->arg[1].t->flags & TENSOR_WRAPPED)) {
        PyErr_Format(PyExc_RuntimeError,
                     "heaviside is not yet implemented for tensors with different dtypes: got %s and %s. Convert one",
                     amp_dtype_info[c->arg[0].t->v.dtype].name, amp_dtype_info[c->arg[1].t->v.dtype].name);
        return -1;
    }
    if (is_bitwise(op) && !amp_is_integral(common)) {
        PyErr_Format(PyExc_NotImplementedError, "\"%s\" not implemented for '%s': it works on integer and bool tensors",
                     c->row->name, amp_dtype_info[common].name);
        return -1;
    }
    if ((op == OP_add || op == OP_sub || op == OP_rsub) && c->arg[2].kind == ARG_NUMBER) {
        NumberKind kind = (NumberKind)c->arg[2].num.kind;
        if (kind == NUMBER_COMPLEX && !amp_is_complex(common)) {
            PyErr_SetString(PyExc_RuntimeError, "For non-complex input tensors, argument alpha must not be a complex number.");
            return -1;
        }
        if (kind == NUMBER_FLOAT && amp_is_integral(common)) {
            PyErr_Format(PyExc_RuntimeError, "For integral input tensors, argument alpha must not be a floating point number");
            return -1;
        }
        if (kind == NUMBER_BOOL && common != AMP_BOOL) {
            PyErr_Format(PyExc_RuntimeError, "Boolean alpha only supported for Boolean results, not for %s: pass a number",
                         amp_dtype_info[common].name);
            return -1;
        }
    }
    return 0;
}

int run_BINARY(OpCall *c) {
    Tensor *t[2] = {c->arg[0].t, c->arg[1].t};
    bool alike = t[0]->v.dtype == t[1]->v.dtype && !((t[0]->flags | t[1]->flags) & TENSOR_WRAPPED);
    int common = alike ? t[0]->v.dtype : promote_tensors(2, t);
    OpId op = (OpId)c->row->op;
    bool arithmetic = op == OP_add || op == OP_sub || op == OP_mul || op == OP_div;
    const int alpha = c->row->nnumbers ? c->arg[c->row->number[0]].num.kind : NUMBER_NONE;
    if (!(alike && arithmetic && amp_is_floating(common) && alpha != NUMBER_BOOL && alpha != NUMBER_COMPLEX) &&
        binary_dtype_checks(c, common) < 0) {
        return -1;
    }
    int out = common;
    if (c->row->rule == RULE_FLOAT && amp_is_integral(common)) {
        common = out = amp_state.default_dtype;
    } else if (c->row->rule == RULE_BOOL) {
        out = AMP_BOOL;
    }
    int dtype[2] = {common, common};
    int device = t[0]->v.device == t[1]->v.device ? t[0]->v.device : common_device(c);
    return device < 0 ? -1 : run_elementwise(c, 2, t, dtype, out, device, AMP_BACKEND_SLOT(device, binary));
}

int run_DIV_MODE(OpCall *c) {
    OpId op = OP_div;
    if (c->arg[2].kind == ARG_STR) {
        if (!strcmp(c->arg[2].s, "floor")) {
            op = OP_floor_divide;
        } else if (!strcmp(c->arg[2].s, "trunc")) {
            op = OP_div_trunc;
        } else {
            PyErr_Format(PyExc_RuntimeError, "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%s'",
                         c->arg[2].s);
            return -1;
        }
    }
    Arg arg[MAX_ARGS] = {c->arg[0], c->arg[1], c->inplace ? (Arg){.kind = ARG_NONE} : c->arg[3]};
    return result_set(c, (Tensor *)run_op(&amp_rows[op], arg, c->inplace));
}

/* end, and a weight with dimensions, have the input's dtype. */
static int check_lerp(Tensor *const *t) {
    static const char *const name[] = {"input", "end", "weight"};
    for (int i = 1; i < 3; i++) {
        if (t[i]->v.dtype != t[0]->v.dtype && (i == 1 || t[i]->v.ndim)) {
            PyErr_Format(PyExc_RuntimeError, "lerp: expected dtype %s for `%s` but got dtype %s: convert it to the input's dtype",
                         amp_dtype_info[t[0]->v.dtype].name, name[i], amp_dtype_info[t[i]->v.dtype].name);
            return -1;
        }
    }
    if (amp_is_integral(t[0]->v.dtype)) {
        PyErr_Format(PyExc_NotImplementedError, "\"lerp\" not implemented for '%s': it works on floating point tensors",
                     amp_dtype_info[t[0]->v.dtype].name);
        return -1;
    }
    int holds = amp_is_16bit(t[0]->v.dtype) ? AMP_FLOAT32 : t[0]->v.dtype;
    return t[2]->flags & TENSOR_WRAPPED ? check_value(t[2], holds) : 0;
}

int run_TERNARY(OpCall *c) {
    Tensor *t[3] = {c->arg[0].t, c->arg[1].t, c->arg[2].t};
    int device = common_device(c);
    if (device < 0) {
        return -1;
    }
    if (c->row->op == OP_where) {
        if (t[0]->v.dtype == AMP_UINT8) {
            if (PyErr_WarnEx(PyExc_UserWarning, "where received a uint8 condition tensor, which is deprecated: use .bool()", 1)) {
                return -1;
            }
        } else if (t[0]->v.dtype != AMP_BOOL) {
            PyErr_Format(PyExc_RuntimeError, "where expected condition to be a boolean tensor, but got a tensor with dtype %s",
                         amp_dtype_info[t[0]->v.dtype].name);
            return -1;
        }
        int common = promote_tensors(2, t + 1);
        for (int i = 1; i < 3; i++) {
            if (t[i]->flags & TENSOR_WRAPPED &&
                check_value(t[i], amp_is_16bit(common) ? AMP_BOOL : common) < 0) { /* there too large is inf */
                return -1;
            }
        }
        Tensor *wide[3] = {raw_cast(t[0], AMP_BOOL), raw_cast(t[1], common), raw_cast(t[2], common)};
        int dtype[3] = {AMP_BOOL, common, common}, failed = -1;
        if (wide[0] && wide[1] && wide[2]) {
            failed = run_elementwise(c, 3, wide, dtype, common, device, AMP_BACKEND_SLOT(device, ternary));
        }
        for (int i = 0; i < 3; i++) {
            Py_XDECREF(wide[i]);
        }
        return failed;
    }
    if (c->row->op == OP_lerp && check_lerp(t) < 0) {
        return -1;
    }
    if (c->row->op == OP_addcdiv && amp_is_integral(t[1]->v.dtype) && amp_is_integral(t[2]->v.dtype)) {
        PyErr_SetString(PyExc_RuntimeError, "addcdiv: Integer division with addcdiv is no longer supported: convert one of the "
                                            "divided tensors to a floating dtype");
        return -1;
    }
    int common = promote_tensors(3, t);
    if (common == AMP_BOOL) {
        return bool_refused(c, "Use the & and | operators.");
    }
    if (c->row->rule == RULE_FLOAT && amp_is_integral(common)) {
        common = amp_state.default_dtype;
    }
    int dtype[3] = {common, common, common};
    return run_elementwise(c, 3, t, dtype, common, device, AMP_BACKEND_SLOT(device, ternary));
}

int run_CLAMP_TENSOR(OpCall *c) {
    Tensor *low = c->arg[1].kind == ARG_TENSOR ? c->arg[1].t : NULL, *high = c->arg[2].kind == ARG_TENSOR ? c->arg[2].t : NULL;
    if (!low && !high) {
        PyErr_SetString(PyExc_RuntimeError, "clamp: At least one of 'min' or 'max' must not be None");
        return -1;
    }
    Tensor *t[3] = {c->arg[0].t};
    int n = 1;
    if (low) {
        t[n++] = low;
    }
    if (high) {
        t[n++] = high;
    }
    for (int i = 0; i < n && c->out; i++) {
        if (output_check_overlap(c, c->out, t[i]) < 0) {
            return -1;
        }
    }
    /* All three are compared in one dtype: what maximum gives of two of them may be too narrow for the third. */
    int common = promote_tensors(n, t);
    if (c->inplace && output_check_dtype(c, common, c->out->v.dtype) < 0) {
        return -1;
    }
    if (amp_is_complex(common) || (common == AMP_BOOL && n == 3)) {
        PyErr_Format(PyExc_NotImplementedError, "\"clamp\" not implemented for '%s': %s", amp_dtype_info[common].name,
                     common == AMP_BOOL ? "use the & and | operators" : "complex numbers have no order");
        return -1;
    }
    Tensor *x = call_cast(t[0], common);
    if (x == t[0] && c->inplace && grad_recording()) { /* what the two steps keep must not be what is written to */
        Py_SETREF(x, call_clone(t[0]));
    }
    for (int i = 1; i < n && x; i++) {
        Tensor *bound = call_cast(t[i], common);
        Tensor *next = bound ? call_binary(t[i] == low && i == 1 ? OP_maximum : OP_minimum, x, bound) : NULL;
        Py_XDECREF(bound);
        Py_SETREF(x, next);
    }
    return result_set(c, x);
}

/* RuntimeError if `value`, which is `given` in the filled tensor's dtype, is infinite and `given` is not. Both have memory. */
static int check_fill_fits(Tensor *given, Tensor *value) {
    Tensor *number = raw_cast(given, AMP_FLOAT64), *back = raw_cast(value, AMP_FLOAT64);
    double wanted = 0, kept = 0;
    const bool read = number && back;
    if (read) {
        memcpy(&wanted, number->v.data, sizeof wanted);
        memcpy(&kept, back->v.data, sizeof kept);
    }
    Py_XDECREF(number);
    Py_XDECREF(back);
    if (read && isfinite(wanted) && !isfinite(kept)) {
        PyObject *shown = PyFloat_FromDouble(wanted);
        PyErr_Format(PyExc_RuntimeError,
                     "value cannot be converted to type %s without overflow: %R is outside its range (finfo tells it; -inf is "
                     "allowed)",
                     amp_dtype_info[value->v.dtype].name, shown);
        Py_XDECREF(shown);
        return -1;
    }
    return read ? 0 : -1;
}

int run_MASKED_FILL(OpCall *c) {
    Tensor *t[3] = {c->arg[0].t, c->arg[1].t, c->arg[2].t};
    int device = common_device(c);
    if (device < 0) {
        return -1;
    }
    if (t[1]->v.dtype != AMP_BOOL) {
        PyErr_Format(PyExc_RuntimeError, "masked_fill only supports boolean masks, but got mask with dtype %s",
                     amp_dtype_info[t[1]->v.dtype].name);
        return -1;
    }
    if (t[2]->v.ndim != 0) {
        PyErr_Format(PyExc_RuntimeError,
                     "masked_fill only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
                     t[2]->v.ndim);
        return -1;
    }
    int dtype = t[0]->v.dtype;
    Tensor *value = check_value(t[2], dtype) < 0 ? NULL : raw_cast(t[2], dtype);
    if (!value) {
        return -1;
    }
    if (t[2]->v.device != AMP_META && check_fill_fits(t[2], value) < 0) {
        Py_DECREF(value);
        return -1;
    }
    Tensor *x[3] = {t[0], t[1], value};
    int kinds[3] = {dtype, AMP_BOOL, dtype};
    int failed = run_elementwise(c, 3, x, kinds, dtype, device, AMP_BACKEND_SLOT(device, ternary));
    Py_DECREF(value);
    return failed;
}
