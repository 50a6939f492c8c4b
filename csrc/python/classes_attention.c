/* Scaled dot-product attention: checks, the op that forms it by tiles, and for what that does not take, a composition of ops, which record
 * themselves:
 *
 *     scores = (query * sqrt(scale)) @ (key * sqrt(scale))^T + mask        (..., L, S)
 *     output = dropout(softmax(scores)) @ value                            (..., L, Ev)
 *
 * Both factors carry half of the scale, so that fp16 scores overflow later. */
#include "attention.h"

#include <math.h>
#include <string.h>

#include "../core/autocast.h"
#include "../core/precision.h"
#include "classes.h"

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

Tensor *attention_repeat_heads(Back *b, Tensor *x, int64_t heads) {
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

Tensor *attention_chances(Back *b, Tensor *q, Tensor *k, Tensor *mask, bool causal, double factor) {
    const double half = sqrt(fabs(factor));
    q = scale(b, q, factor < 0.0 ? -half : half);
    k = transpose_last(b, scale(b, k, half));
    Tensor *scores = op2(b, OP_matmul, q, k);
    return mask ? softmax_or_zero(b, add_mask(b, scores, mask)) : softmax_last(b, causal ? hide_future(b, scores) : scores);
}

static Tensor *mask_of(const OpCall *c) { return c->arg[MASK].kind == ARG_TENSOR ? c->arg[MASK].t : NULL; }

static double factor_of(const OpCall *c) {
    const View *q = &c->arg[QUERY].t->v;
    return c->arg[SCALE].kind == ARG_FLOAT ? c->arg[SCALE].f : 1.0 / sqrt((double)q->shape[q->ndim - 1]);
}

static Tensor *compose(Back *b, const OpCall *c) {
    Tensor *q = c->arg[QUERY].t, *k = c->arg[KEY].t, *v = c->arg[VALUE].t;
    int dtype = q->v.dtype;
    bool narrow_sums = amp_is_16bit(dtype) && amp_flag(amp_settings(), FLAG_MATH_SDP);
    if (!narrow_sums) {
        q = wide(b, q);
        k = wide(b, k);
        v = wide(b, v);
    }
    if (q && k && v && c->arg[ENABLE_GQA].i) {
        int64_t heads = q->v.shape[q->v.ndim - 3];
        k = attention_repeat_heads(b, k, heads);
        v = attention_repeat_heads(b, v, heads);
    }
    Tensor *chances = attention_chances(b, q, k, mask_of(c), c->arg[IS_CAUSAL].i, factor_of(c));
    return cast(b, op2(b, OP_matmul, drop(b, chances, c->arg[DROPOUT_P].f), v), dtype);
}

/* ---- by tiles ---- */

static bool numbers_fit(const OpCall *c) {
    const View *q = &c->arg[QUERY].t->v;
    Numerics numerics;
    if (c->arg[DROPOUT_P].f != 0.0 || (amp_is_16bit(q->dtype) && amp_flag(amp_settings(), FLAG_MATH_SDP))) {
        return false;
    }
    if (q->dtype == AMP_FLOAT32) {
        return amp_product_numerics(q->device, q->dtype, PRODUCT_MATRIX, PRECISION_AS_SET, &numerics) == AMP_OK &&
               numerics.fp32_inputs == INPUT_IEEE;
    }
    return amp_is_16bit(q->dtype);
}

/* The dimensions in front of (heads, length, features), or of (length, features) without grouped heads, as all operands are expanded to
 * them; false if that cannot be. */
static bool join_batch(const OpCall *c, int own, int *nd, int64_t *shape) {
    *nd = 0;
    for (int i = QUERY; i <= VALUE; i++) {
        const View *x = &c->arg[i].t->v;
        int64_t joined[AMP_MAX_DIMS];
        memcpy(joined, shape, (size_t)*nd * sizeof *joined);
        const int n = amp_broadcast_shapes(*nd, shape, x->ndim - own, x->shape, joined);
        if (n < 0 || n + own > AMP_MAX_DIMS) {
            return false;
        }
        memcpy(shape, joined, (size_t)n * sizeof *joined);
        *nd = n;
    }
    return true;
}

static bool lengths_fit(const OpCall *c) {
    const View *q = &c->arg[QUERY].t->v, *k = &c->arg[KEY].t->v, *v = &c->arg[VALUE].t->v;
    const int64_t *lq = q->shape + q->ndim - 2, *lk = k->shape + k->ndim - 2, *lv = v->shape + v->ndim - 2;
    if (c->arg[ENABLE_GQA].i && k->shape[k->ndim - 3] != v->shape[v->ndim - 3]) {
        return false;
    }
    return q->numel > 0 && k->numel > 0 && v->numel > 0 && lq[1] == lk[1] && lk[0] == lv[0];
}

/* scores: room for the shape that the mask must broadcast to, of nd + own dimensions. */
static void scores_shape(const OpCall *c, int own, int nd, const int64_t *batch, int64_t *scores) {
    const View *q = &c->arg[QUERY].t->v, *k = &c->arg[KEY].t->v;
    memcpy(scores, batch, (size_t)nd * sizeof *batch);
    memcpy(scores + nd, q->shape + q->ndim - own, (size_t)(own - 1) * sizeof *batch);
    scores[nd + own - 1] = k->shape[k->ndim - 2];
}

/* scores: their shape. */
static bool mask_fits(const Tensor *mask, int nd, const int64_t *scores) {
    if (!mask) {
        return true;
    }
    for (int d = 1; d <= mask->v.ndim && d <= nd; d++) {
        const int64_t n = mask->v.shape[mask->v.ndim - d];
        if (n != 1 && n != scores[nd - d]) {
            return false;
        }
    }
    return mask->v.ndim <= nd;
}

static Tensor *expand_batch(Back *b, Tensor *x, int own, int nd, const int64_t *batch) {
    int64_t shape[AMP_MAX_DIMS];
    if (x->v.ndim == nd + own && !memcmp(x->v.shape, batch, (size_t)nd * sizeof *batch)) {
        return x;
    }
    memcpy(shape, batch, (size_t)nd * sizeof *batch);
    memcpy(shape + nd, x->v.shape + x->v.ndim - own, (size_t)own * sizeof *batch);
    return expand(b, x, nd + own, shape);
}

static int fail_mask(const Tensor *mask, int nd, const int64_t *scores) {
    PyObject *has = size_from_dims(mask->v.ndim, mask->v.shape), *wanted = size_from_dims(nd, scores);
    if (has && wanted) {
        PyErr_Format(
            PyExc_RuntimeError,
            "scaled_dot_product_attention: attn_mask of shape %R does not broadcast to %R, which is (..., query length, key "
            "length)",
            has, wanted);
    }
    Py_XDECREF(has);
    Py_XDECREF(wanted);
    return -1;
}

/* What no composition of products takes either, in the words of the caller's tensors. */
static int check_shapes(const OpCall *c) {
    const View *q = &c->arg[QUERY].t->v, *k = &c->arg[KEY].t->v, *v = &c->arg[VALUE].t->v;
    const int own = c->arg[ENABLE_GQA].i ? 3 : 2;
    int64_t batch[AMP_MAX_DIMS], scores[AMP_MAX_DIMS];
    int nd;
    const char *wrong = q->shape[q->ndim - 1] != k->shape[k->ndim - 1]
                            ? "query and key must have the same number of features (their last sizes)"
                        : k->shape[k->ndim - 2] != v->shape[v->ndim - 2]
                            ? "key and value must have the same length (the last size but one)"
                        : !join_batch(c, own, &nd, batch) ? own == 3
                                                                ? "the sizes in front of (heads, length, features) must broadcast"
                                                                : "the sizes in front of (length, features) must broadcast"
                                                          : NULL;
    if (!wrong) {
        scores_shape(c, own, nd, batch, scores);
        return mask_fits(mask_of(c), nd + own, scores) ? 0 : fail_mask(mask_of(c), nd + own, scores);
    }
    PyObject *size[3] = {NULL, NULL, NULL};
    for (int i = QUERY; i <= VALUE; i++) {
        const View *x = &c->arg[i].t->v;
        size[i] = size_from_dims(x->ndim, x->shape);
    }
    if (size[0] && size[1] && size[2]) {
        PyErr_Format(PyExc_RuntimeError, "scaled_dot_product_attention: %s, but query is %R, key %R and value %R", wrong, size[0],
                     size[1], size[2]);
    }
    for (int i = QUERY; i <= VALUE; i++) {
        Py_XDECREF(size[i]);
    }
    return -1;
}

/* True if the tiles take the call: *output is theirs then, NULL if they failed. */
static bool by_tiles(Back *b, const OpCall *c, Tensor **output) {
    Tensor *t[3] = {c->arg[QUERY].t, c->arg[KEY].t, c->arg[VALUE].t}, *mask = mask_of(c);
    const int own = c->arg[ENABLE_GQA].i ? 3 : 2;
    int64_t batch[AMP_MAX_DIMS], scores[AMP_MAX_DIMS];
    int nd;
    if (!numbers_fit(c) || !lengths_fit(c) || !join_batch(c, own, &nd, batch)) {
        return false;
    }
    scores_shape(c, own, nd, batch, scores);
    if (!mask_fits(mask, nd + own, scores) || (mask && mask->v.device != t[QUERY]->v.device)) {
        return false;
    }
    for (int i = QUERY; i <= VALUE; i++) {
        t[i] = t[i] ? expand_batch(b, t[i], own, nd, batch) : NULL;
    }
    Arg arg[MAX_ARGS] = {
        arg_tensor(t[QUERY]),   arg_tensor(t[KEY]), arg_tensor(t[VALUE]), arg_tensor(mask), arg_bool(c->arg[IS_CAUSAL].i != 0),
        arg_float(factor_of(c))};
    *output = t[QUERY] && t[KEY] && t[VALUE] ? op_args(b, OP_attention, arg) : NULL;
    return true;
}

const View *attention_mask_view(const View *mask, const View *query, const View *key, View *view, int64_t *shape,
                                int64_t *strides) {
    if (!mask) {
        return NULL;
    }
    memcpy(shape, query->shape, (size_t)query->ndim * sizeof *shape);
    shape[query->ndim - 1] = key->shape[key->ndim - 2];
    *view = broadcast_view(mask, query->ndim, shape, strides);
    return view;
}

int64_t attention_cost(const View *query, const View *key) { return query->numel * key->shape[key->ndim - 2] / 2; }

/* The parameters are those of OP_attention, expanded already. */
int run_ATTENTION(OpCall *c) {
    const Tensor *q = c->arg[0].t, *k = c->arg[1].t, *v = c->arg[2].t;
    const int nd = q->v.ndim, device = q->v.device;
    int64_t shape[AMP_MAX_DIMS], mask_shape[AMP_MAX_DIMS], mask_stride[AMP_MAX_DIMS];
    View mask;
    const AttentionPlan plan = {c->arg[5].f, c->arg[4].i != 0};
    memcpy(shape, q->v.shape, (size_t)nd * sizeof *shape);
    shape[nd - 1] = v->v.shape[nd - 1];
    Tensor *out = result_new(c, 0, nd, shape, q->v.dtype, device, ALIAS_NEVER);
    Tensor *logarithms = out ? result_new(c, 1, nd - 1, shape, AMP_FLOAT32, device, ALIAS_NEVER) : NULL;
    if (!logarithms) {
        return -1;
    }
    tensor_keep_layout(out, q);
    Call call;
    amp_call_init(&call, c->row->op);
    call.extra = (void *)&plan;
    call.nin = 4;
    call.nout = 2;
    call.in[0] = &q->v;
    call.in[1] = &k->v;
    call.in[2] = &v->v;
    call.in[3] = attention_mask_view(c->arg[3].kind == ARG_TENSOR ? &c->arg[3].t->v : NULL, &q->v, &k->v, &mask, mask_shape,
                                     mask_stride);
    call.out[0] = &out->v;
    call.out[1] = &logarithms->v;
    return run_slot(device, AMP_BACKEND_SLOT(device, attention), &call, attention_cost(&q->v, &k->v), c->row->name);
}

/* Autocast casts the operands; what is computed of them is no business of its lists. */
int run_COMPOSE_SDPA(OpCall *c) {
    if (check_operands(c) < 0 || check_mask(c) < 0 || check_numbers(c) < 0 || (c->arg[ENABLE_GQA].i && check_groups(c) < 0)) {
        return -1;
    }
    const uint8_t regions = MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA, on = amp_mode & regions;
    Back frame, *b = &frame;
    back_begin(b);
    amp_mode &= (uint8_t)~regions;
    Tensor *output;
    if (!by_tiles(b, c, &output)) {
        output = NULL;
        if (check_shapes(c) == 0) {
            output = compose(b, c);
        } else {
            b->failed = true;
        }
    }
    amp_mode |= on;
    return frame_end(c, b, output);
}
