/* Scaled dot-product attention out of ops, which record themselves:
 *
 *     scores = (query * sqrt(scale)) @ (key * sqrt(scale))^T + mask        (..., L, S)
 *     output = dropout(softmax(scores)) @ value                            (..., L, Ev)
 *
 * Both factors carry half of the scale, so that fp16 scores overflow later. */
#include <math.h>

#include "../core/autocast.h"
#include "../core/precision.h"
#include "classes.h"
#include "derivatives/derivatives.h"

enum { QUERY, KEY, VALUE, MASK, DROPOUT_P, IS_CAUSAL, SCALE, ENABLE_GQA };

static const char *dtype_name(const Tensor *t) { return amp_dtype_info[t->v.dtype].name; }

static int check_operands(const OpCall *c) {
    const Tensor *q = c->arg[QUERY].t, *k = c->arg[KEY].t, *v = c->arg[VALUE].t;
    if (q->v.dtype != k->v.dtype || q->v.dtype != v->v.dtype) {
        PyErr_Format(PyExc_RuntimeError,
                     "Expected query, key, and value to have the same dtype, but got query.dtype: %s, key.dtype: %s and "
                     "value.dtype: %s. Cast them with .to(), or use autocast",
                     dtype_name(q), dtype_name(k), dtype_name(v));
        return -1;
    }
    if (common_device(c) < 0) {
        return -1;
    }
    if (q->v.ndim < 2 || k->v.ndim < 2 || v->v.ndim < 2) {
        PyErr_Format(PyExc_RuntimeError,
                     "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: %d, key.dim: %d and "
                     "value.dim: %d. The last two are (length, features)",
                     q->v.ndim, k->v.ndim, v->v.ndim);
        return -1;
    }
    return 0;
}

static int check_numbers(const OpCall *c) {
    const Tensor *q = c->arg[QUERY].t;
    double p = c->arg[DROPOUT_P].f;
    if (amp_is_complex(q->v.dtype)) {
        PyErr_Format(PyExc_NotImplementedError, "scaled_dot_product_attention: softmax is not implemented for '%s'",
                     dtype_name(q));
        return -1;
    }
    if (!amp_is_floating(q->v.dtype)) {
        PyErr_Format(PyExc_RuntimeError,
                     "scaled_dot_product_attention: expected scalar type Float but found %s. Convert query, key and value with "
                     ".float()",
                     dtype_name(q));
        return -1;
    }
    if (!(p >= 0.0 && p <= 1.0)) {
        PyObject *shown = PyFloat_FromDouble(p);
        PyErr_Format(PyExc_RuntimeError, "dropout probability has to be between 0 and 1, but got %S", shown ? shown : Py_None);
        Py_XDECREF(shown);
        return -1;
    }
    return 0;
}

static int check_mask(const OpCall *c) {
    const Tensor *q = c->arg[QUERY].t, *mask = c->arg[MASK].kind == ARG_TENSOR ? c->arg[MASK].t : NULL;
    if (!mask) {
        return 0;
    }
    if (mask->v.dtype != AMP_BOOL && mask->v.dtype != AMP_FLOAT32 && mask->v.dtype != q->v.dtype) {
        PyErr_Format(PyExc_RuntimeError,
                     "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: %s and "
                     "query.dtype: %s",
                     dtype_name(mask), dtype_name(q));
        return -1;
    }
    if (c->arg[IS_CAUSAL].i) {
        PyErr_SetString(PyExc_RuntimeError, "scaled_dot_product_attention: Explicit attn_mask should not be set when "
                                            "is_causal=True. Add the causal part to the mask, or leave one of them out");
        return -1;
    }
    return 0;
}

static int check_groups(const OpCall *c) {
    for (int i = QUERY; i <= VALUE; i++) {
        const View *x = &c->arg[i].t->v;
        if (x->ndim < 3) {
            PyErr_Format(
                PyExc_IndexError,
                "Dimension out of range (expected to be in range of [%d, %d], but got -3): enable_gqa needs (..., heads, "
                "length, features)",
                -x->ndim, x->ndim - 1);
            return -1;
        }
    }
    const View *q = &c->arg[QUERY].t->v;
    int64_t heads = q->shape[q->ndim - 3];
    for (int i = KEY; i <= VALUE; i++) {
        const View *x = &c->arg[i].t->v;
        int64_t own = x->shape[x->ndim - 3];
        if (own == 0 ? heads != 0 : heads % own != 0) {
            PyErr_Format(PyExc_RuntimeError,
                         "Number of heads in key and value must divide the number of heads in query: got %lld and %lld",
                         (long long)own, (long long)heads);
            return -1;
        }
    }
    return 0;
}

/* (..., H, S, E) with every head `heads` / H times in a row. */
static Tensor *repeat_heads(Back *b, Tensor *x, int64_t heads) {
    int nd = x->v.ndim;
    int64_t own = x->v.shape[nd - 3], shape[AMP_MAX_DIMS + 1];
    if (own == heads) {
        return x;
    }
    if (nd == AMP_MAX_DIMS) {
        PyErr_Format(PyExc_RuntimeError, "scaled_dot_product_attention: enable_gqa takes at most %d dimensions",
                     AMP_MAX_DIMS - 1);
        b->failed = true;
        return NULL;
    }
    for (int d = 0; d < nd - 2; d++) {
        shape[d] = x->v.shape[d];
    }
    shape[nd - 2] = heads / own;
    shape[nd - 1] = x->v.shape[nd - 2];
    shape[nd] = x->v.shape[nd - 1];
    Tensor *repeated = expand(b, unsqueeze(b, x, nd - 2), nd + 1, shape);
    shape[nd - 3] = heads;
    shape[nd - 2] = x->v.shape[nd - 2];
    shape[nd - 1] = x->v.shape[nd - 1];
    return reshape(b, repeated, nd, shape);
}

/* scores += mask; what a bool mask has False is -inf. */
static Tensor *add_mask(Back *b, Tensor *scores, Tensor *mask) {
    if (!scores) {
        return NULL;
    }
    if (mask->v.dtype == AMP_BOOL) {
        mask = fill_where(b, constant(b, scores, mask->v.ndim, mask->v.shape, 0.0), not_(b, mask), -INFINITY);
    }
    if (!mask || call_inplace(OP_add, scores, mask) < 0) {
        b->failed = true;
        return NULL;
    }
    return scores;
}

/* Position i sees positions 0 .. i of the other sequence, counted from the start of both. */
static Tensor *hide_future(Back *b, Tensor *scores) {
    if (!scores) {
        return NULL;
    }
    const int64_t *lengths = scores->v.shape + scores->v.ndim - 2;
    Tensor *future = op_int(b, OP_triu, constant(b, scores, 2, lengths, 1.0), 1);
    return fill_where(b, scores, op1k(b, OP_ne, future, 0.0), -INFINITY);
}

static Tensor *softmax_last(Back *b, Tensor *scores) {
    Arg arg[MAX_ARGS] = {arg_tensor(scores), arg_int(-1)};
    return scores ? op_args(b, OP_softmax, arg) : NULL;
}

/* A row without anything to attend to gives zeros, not 0/0. Its scores are replaced before softmax as well: the gradient there would
 * be NaN times zero. */
static Tensor *softmax_or_zero(Back *b, Tensor *scores) {
    Tensor *hidden = scores ? op1k(b, OP_eq, scores, -INFINITY) : NULL;
    int64_t last = -1;
    Arg arg[MAX_ARGS] = {arg_tensor(hidden), arg_ints(&last, 1), arg_bool(true)};
    Tensor *empty = hidden ? op_args(b, OP_all_dim, arg) : NULL;
    return zero_where(b, softmax_last(b, zero_where(b, scores, empty)), empty);
}

static Tensor *drop(Back *b, Tensor *x, double p) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), arg_float(p), arg_bool(true)};
    return !x || p == 0.0 ? x : op_args(b, OP_dropout, arg);
}

static Tensor *attend(Back *b, const OpCall *c) {
    Tensor *q = c->arg[QUERY].t, *k = c->arg[KEY].t, *v = c->arg[VALUE].t;
    int dtype = q->v.dtype;
    int64_t features = q->v.shape[q->v.ndim - 1];
    double factor = c->arg[SCALE].kind == ARG_FLOAT ? c->arg[SCALE].f : 1.0 / sqrt((double)features);
    double half = sqrt(fabs(factor));
    bool narrow_sums = amp_is_16bit(dtype) && amp_flag(amp_settings(), FLAG_MATH_SDP);
    if (!narrow_sums) {
        q = wide(b, q);
        k = wide(b, k);
        v = wide(b, v);
    }
    if (q && k && v && c->arg[ENABLE_GQA].i) {
        int64_t heads = q->v.shape[q->v.ndim - 3];
        k = repeat_heads(b, k, heads);
        v = repeat_heads(b, v, heads);
    }
    q = scale(b, q, factor < 0.0 ? -half : half);
    k = transpose_last(b, scale(b, k, half));
    Tensor *scores = op2(b, OP_matmul, q, k), *chances;
    if (c->arg[MASK].kind == ARG_TENSOR) {
        chances = softmax_or_zero(b, add_mask(b, scores, c->arg[MASK].t));
    } else if (c->arg[IS_CAUSAL].i) {
        chances = softmax_last(b, hide_future(b, scores));
    } else {
        chances = softmax_last(b, scores);
    }
    return cast(b, op2(b, OP_matmul, drop(b, chances, c->arg[DROPOUT_P].f), v), dtype);
}

/* Autocast casts the operands; what is computed of them is no business of its lists. */
int run_COMPOSE_SDPA(OpCall *c) {
    if (check_operands(c) < 0 || check_mask(c) < 0 || check_numbers(c) < 0 || (c->arg[ENABLE_GQA].i && check_groups(c) < 0)) {
        return -1;
    }
    const uint8_t regions = MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA, on = amp_mode & regions;
    Back frame, *b = &frame;
    frame_begin(b);
    amp_mode &= (uint8_t)~regions;
    Tensor *output = attend(b, c);
    amp_mode |= on;
    return frame_end(c, b, output);
}
