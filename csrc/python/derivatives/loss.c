/* Derivatives of the softmax family and of fused losses. */
#include "derivatives.h"

#include <string.h>

#include "../classes.h"

static uint64_t softmax_dim(Back *b) { return (uint64_t)1 << dim_of(ARG(1).i, IN_META(0).ndim); }

/* y (g - sum g y) */
void d_softmax(Back *b) {
    if (NEED(0) && b->g) {
        Tensor *y = wide(b, OUT(0)), *g = wide(b, b->g);
        b->grad[0] = mul(b, y, sub(b, g, sum_dims(b, mul(b, g, y), softmax_dim(b), true)));
    }
}

/* g - softmax sum g */
void d_log_softmax(Back *b) {
    if (NEED(0) && b->g) {
        Tensor *y = wide(b, OUT(0)), *g = wide(b, b->g);
        b->grad[0] = sub(b, g, mul(b, op1(b, OP_exp, y), sum_dims(b, g, softmax_dim(b), true)));
    }
}

static void fast_softmax(Back *b, OpId op) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_tensor(OUT(0)), arg_int(dim_of(ARG(1).i, IN_META(0).ndim))};
    GRAD(0, op_args(b, op, arg));
}

void f_softmax(Back *b) { fast_softmax(b, OP_softmax_grad); }

void f_log_softmax(Back *b) { fast_softmax(b, OP_log_softmax_grad); }

/* (x - t)^2: 2 (x - t), divided by the number of elements for the mean */
void d_mse_loss(Back *b) {
    if (!b->g) {
        return;
    }
    Tensor *x = IN(0), *t = IN(1);
    if (x && t && t->v.dtype == AMP_BOOL) {
        t = cast(b, t, x->v.dtype);
    }
    Tensor *difference = sub(b, x && t && x->v.dtype == AMP_BOOL ? cast(b, x, t->v.dtype) : x, t);
    if (!difference) {
        return;
    }
    double factor = !strcmp(ARG(2).s, "mean") ? 2.0 / (double)difference->v.numel : 2.0;
    Tensor *slope = mul(b, scale(b, difference, factor), b->g);
    GRAD(0, slope);
    GRAD(1, neg(b, slope));
}

/* One kernel where the plain derivative rounds to the computing format at each step anyway. */
void f_mse_loss(Back *b) {
    const TensorMeta *x = &IN_META(0), *t = &IN_META(1);
    bool wide_enough = x->dtype == AMP_FLOAT32 || x->dtype == AMP_FLOAT64, alike = x->ndim == t->ndim && x->dtype == t->dtype;
    for (int d = 0; alike && d < x->ndim; d++) {
        alike = x->shape[d] == t->shape[d];
    }
    if (!b->g || !alike || !wide_enough || b->g->v.dtype != x->dtype || NEED(1)) {
        d_mse_loss(b);
        return;
    }
    double factor = !strcmp(ARG(2).s, "mean") ? 2.0 / (double)amp_numel(x->ndim, x->shape) : 2.0;
    Arg arg[4] = {arg_tensor(b->g), arg_tensor(IN(0)), arg_tensor(IN(1)), arg_float(factor)};
    GRAD(0, op_args(b, OP_mse_grad, arg));
}

/* max(x, floor); its gradient is 0 below. */
static Tensor *op_floor(Back *b, Tensor *x, double floor) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), {.kind = ARG_NUMBER, .num = number_float(floor)}};
    return op_args(b, OP_clamp, arg);
}

/* g (x - t) / (x (1 - x)), the denominator at least 1e-12: at 0 and 1 the logarithms were clamped. */
static Tensor *bce_slope(Back *b, Tensor *g) {
    Tensor *x = IN(0);
    Tensor *room = op_floor(b, mul(b, x, one_minus(b, x)), (double)1e-12f);
    return divide(b, mul(b, g, sub(b, x, IN(1))), room);
}

/* A gradient of the terms, weighted and divided by their number where the op did. */
static Tensor *bce_reduced(Back *b, Tensor *slope) {
    Tensor *weighted = b->node->nin > 2 && IN(2) ? mul(b, slope, IN(2)) : slope;
    bool mean = !strcmp(ARG(3).s, "mean");
    return mean ? op1k(b, OP_div, weighted, (double)amp_numel(IN_META(0).ndim, IN_META(0).shape)) : weighted;
}

void d_bce(Back *b) {
    GRAD(0, bce_reduced(b, bce_slope(b, b->g)));
    GRAD(1, bce_reduced(b, mul(b, b->g, sub(b, op1(b, OP_log1p, neg(b, IN(0))), op1(b, OP_log, IN(0))))));
}

/* The difference, cut at delta of either sign, times 2 near. */
void d_huber_kernel(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(IN(0)), arg_float(-ARG(1).f), arg_float(ARG(1).f)};
    arg[1].kind = arg[2].kind = ARG_NUMBER;
    GRAD(0, mul(b, b->g, scale(b, op_args(b, OP_clamp, arg), 2.0 * ARG(2).f)));
}

void f_huber_kernel(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_tensor(IN(0)), ARG(1), arg_float(2.0 * ARG(2).f)};
    GRAD(0, op_args(b, OP_huber_grad, arg));
}

static void bce_logits_target(Back *b) { GRAD(1, neg(b, mul(b, b->g, IN(0)))); }

/* (1 - t) s(x) - t s(-x): the difference s(x) - t would cancel for confident inputs. */
void d_bce_logits_kernel(Back *b) {
    if (NEED(0)) {
        Tensor *x = wide(b, IN(0)), *t = wide(b, IN(1));
        Tensor *up = mul(b, one_minus(b, t), op1(b, OP_sigmoid, x)), *down = mul(b, t, op1(b, OP_sigmoid, neg(b, x)));
        b->grad[0] = mul(b, wide(b, b->g), sub(b, up, down));
    }
    bce_logits_target(b);
}

void f_bce_logits_kernel(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_tensor(IN(0)), arg_tensor(IN(1))};
    GRAD(0, op_args(b, OP_bce_logits_grad, arg));
    bce_logits_target(b);
}
