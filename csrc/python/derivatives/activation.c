/* Derivatives of activations. Where a slope is a product of several factors, 16-bit inputs are taken as fp32. */
#include "derivatives.h"

#include <math.h>

#include "../classes.h"

static Tensor *where(Back *b, Tensor *mask, Tensor *x, Tensor *y) {
    Arg arg[MAX_ARGS] = {arg_tensor(mask), arg_tensor(x), arg_tensor(y)};
    return op_args(b, OP_where, arg);
}

static Tensor *either(Back *b, Tensor *x, Tensor *y) { return op2(b, OP_logical_or, x, y); }

/* The kernel `op` of the gradient and the input. */
static void fast(Back *b, OpId op) { GRAD(0, op2(b, op, b->g, IN(0))); }

/* The same with the numbers of the op, or others. */
static void fast_numbers(Back *b, OpId op, Arg n0, Arg n1, Arg n2) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_tensor(IN(0)), n0, n1, n2};
    GRAD(0, op_args(b, op, arg));
}

static void fast_inside(Back *b, Arg low, Arg high, double slope) {
    fast_numbers(b, OP_inside_grad, low, high, arg_float(slope));
}

static void fast_elu(Back *b, double low, double high, double rate) {
    fast_numbers(b, OP_elu_grad, arg_float(low), arg_float(high), arg_float(rate));
}

/* x s(x): s (1 + x (1 - s)) */
void d_silu(Back *b) {
    if (NEED(0)) {
        Tensor *x = wide(b, IN(0)), *s = op1(b, OP_sigmoid, x);
        b->grad[0] = mul(b, mul(b, wide(b, b->g), s), plus(b, mul(b, x, one_minus(b, s)), 1.0));
    }
}

void d_leaky_relu(Back *b) { GRAD(0, where(b, op1k(b, OP_gt, IN(0), 0.0), b->g, scale(b, b->g, ARG(1).f))); }

void f_leaky_relu(Back *b) { fast_numbers(b, OP_leaky_relu_grad, ARG(1), (Arg){0}, (Arg){0}); }

/* The exponential is formed of min(x, 0): its overflow on the side not taken would come back as NaN in the second derivative, which
 * is 0 at 0. */
void d_elu(Back *b) {
    if (NEED(0)) {
        Tensor *x = IN(0), *positive = op1k(b, OP_gt, x, 0.0);
        Tensor *slope = scale(b, op1(b, OP_exp, zero_where(b, x, op1k(b, OP_ge, x, 0.0))), ARG(1).f);
        b->grad[0] = where(b, positive, b->g, mul(b, b->g, slope));
    }
}

void f_elu(Back *b) { fast_elu(b, ARG(1).f, 1.0, 1.0); }

/* As for elu: the slope is exp(x / alpha), times `low`, below 0 and `high` above. */
static void exponential_below(Back *b, double alpha, double low, double high) {
    if (NEED(0)) {
        Tensor *x = wide(b, IN(0)), *positive = op1k(b, OP_gt, x, 0.0), *g = wide(b, b->g);
        Tensor *slope = scale(b, op1(b, OP_exp, scale(b, zero_where(b, x, op1k(b, OP_ge, x, 0.0)), 1.0 / alpha)), low);
        b->grad[0] = where(b, positive, scale(b, g, high), mul(b, g, slope));
    }
}

void d_selu(Back *b) { exponential_below(b, 1.0, 1.0507009873554805 * 1.6732632423543772, 1.0507009873554805); }

void d_celu(Back *b) { exponential_below(b, ARG(1).f, 1.0, 1.0); }

void f_selu(Back *b) { fast_elu(b, 1.0507009873554805 * 1.6732632423543772, 1.0507009873554805, 1.0); }

void f_celu(Back *b) { fast_elu(b, 1.0, 1.0, 1.0 / ARG(1).f); }

void f_silu(Back *b) { fast(b, OP_silu_grad); }

/* x tanh(softplus(x)): t + x s (1 - t^2) */
void d_mish(Back *b) {
    if (NEED(0)) {
        Tensor *x = wide(b, IN(0)), *s = op1(b, OP_sigmoid, x), *t = op1(b, OP_tanh, neg(b, op1(b, OP_logsigmoid, neg(b, x))));
        b->grad[0] = mul(b, wide(b, b->g), add(b, t, mul(b, mul(b, x, s), one_minus(b, square(b, t)))));
    }
}

void f_mish(Back *b) { fast(b, OP_mish_grad); }

/* 0 on the bounds and beyond, and for NaN: PyTorch's vector code, which nearly all elements go through. */
void d_hardtanh(Back *b) {
    Tensor *inside = NEED(0) ? op2(b, OP_logical_and, op1k(b, OP_gt, IN(0), ARG(1).f), op1k(b, OP_lt, IN(0), ARG(2).f)) : NULL;
    GRAD(0, zero_where(b, b->g, not_(b, inside)));
}

/* A bound as it meets 16-bit numbers in the comparisons above. */
static Arg bound(const Back *b, int i) { return arg_float(amp_held_by(ARG(i).f, IN_META(0).dtype)); }

void f_hardtanh(Back *b) { fast_inside(b, bound(b, 1), bound(b, 2), 1.0); }

/* x / 3 + 1/2 between -3 and 3 */
void d_hardswish(Back *b) {
    if (NEED(0)) {
        Tensor *x = wide(b, IN(0)), *g = wide(b, b->g), *above = op1k(b, OP_ge, x, 3.0);
        Tensor *inner = where(b, above, g, mul(b, g, plus(b, scale(b, x, 1.0 / 3.0), 0.5)));
        b->grad[0] = zero_where(b, inner, op1k(b, OP_le, x, -3.0));
    }
}

void f_hardswish(Back *b) { fast(b, OP_hardswish_grad); }

void f_hardsigmoid(Back *b) { fast_inside(b, arg_float(-3.0), arg_float(3.0), 1.0 / 6.0); }

void d_hardsigmoid(Back *b) {
    Tensor *inside = NEED(0) ? op2(b, OP_logical_and, op1k(b, OP_gt, IN(0), -3.0), op1k(b, OP_lt, IN(0), 3.0)) : NULL;
    GRAD(0, zero_where(b, scale(b, b->g, 1.0 / 6.0), not_(b, inside)));
}

/* With one bound only, an infinite input on the open side would count as being on a bound. */
void f_clamp(Back *b) {
    if (ARG(1).kind == ARG_NONE || ARG(2).kind == ARG_NONE) {
        d_clamp(b);
    } else {
        fast_inside(b, arg_float(ARG(1).num.f), arg_float(ARG(2).num.f), 1.0);
    }
}

void f_softplus(Back *b) { fast_numbers(b, OP_softplus_grad, ARG(1), ARG(2), (Arg){0}); }

/* logsigmoid(x) is -softplus(-x). */
void f_logsigmoid(Back *b) { fast_numbers(b, OP_softplus_grad, arg_float(-1.0), arg_float((double)INFINITY), (Arg){0}); }

/* The threshold is not rounded to 16 bits: the kernel of the op compares in fp32. */
void d_threshold(Back *b) { GRAD(0, zero_where(b, b->g, op1k(b, OP_le, wide(b, IN(0)), ARG(1).num.f))); }

/* NaN counts as small, as in d_hardtanh. */
static void shrink(Back *b) { GRAD(0, zero_where(b, b->g, not_(b, op1k(b, OP_gt, op1(b, OP_abs, IN(0)), ARG(1).f)))); }

void d_hardshrink(Back *b) { shrink(b); }

void d_softshrink(Back *b) { shrink(b); }

void f_shrink(Back *b) { fast_numbers(b, OP_shrink_grad, bound(b, 1), (Arg){0}, (Arg){0}); }

/* |x|, NaN for infinity. */
static Tensor *finite_size(Back *b, Tensor *x) {
    Arg arg[MAX_ARGS] = {arg_tensor(op1(b, OP_abs, x)), arg_float((double)NAN), arg_float((double)NAN), {.kind = ARG_NONE}};
    return op_args(b, OP_nan_to_num, arg);
}

/* 1 / (1 + |x|)^2; no value at infinity, as for silu: what overflowed has to be seen. */
void d_softsign(Back *b) { GRAD(0, divide(b, wide(b, b->g), square(b, plus(b, finite_size(b, wide(b, IN(0))), 1.0)))); }

void d_tanhshrink(Back *b) { GRAD(0, mul(b, wide(b, b->g), square(b, op1(b, OP_tanh, wide(b, IN(0)))))); }

/* 1 / (x (1 - x)); outside [eps, 1 - eps] the input was clamped, without eps there is no value. */
void d_logit(Back *b) {
    if (!NEED(0)) {
        return;
    }
    bool clamped = ARG(1).kind != ARG_NONE;
    Tensor *x = wide(b, IN(0)), *slope = divide(b, wide(b, b->g), mul(b, x, one_minus(b, x)));
    double low = clamped ? ARG(1).f : 0.0, high = clamped ? 1.0 - ARG(1).f : 1.0;
    Tensor *outside = either(b, op1k(b, OP_lt, x, low), op1k(b, OP_gt, x, high));
    b->grad[0] = fill_where(b, slope, outside, clamped ? 0.0 : (double)NAN);
}

/* sin(pi x) / (pi x): (cos(pi x) - sinc(x)) / x. Near 0, where that cancels, the series
 * -pi^2 x / 3 + pi^4 x^3 / 30 - pi^6 x^5 / 840; there x is replaced before the division. */
void d_sinc(Back *b) {
    if (NEED(0)) {
        Tensor *x = wide(b, IN(0)), *near = op1k(b, OP_lt, op1(b, OP_abs, x), 0.02), *far = fill_where(b, x, near, 1.0);
        Tensor *x2 = square(b, x), *tail = plus(b, scale(b, x2, -1.1445109447325057), 3.2469697011334144);
        Tensor *series = mul(b, x, plus(b, mul(b, x2, tail), -3.289868133696453));
        Tensor *closed = divide(b, sub(b, op1(b, OP_cos, scale(b, far, 3.141592653589793)), op1(b, OP_sinc, far)), far);
        b->grad[0] = mul(b, wide(b, b->g), where(b, near, series, closed));
    }
}

/* x log y, 0 where x is 0 */
void d_xlogy(Back *b) {
    if (!b->g) {
        return;
    }
    /* both as they were in the product: promoted, and on its device */
    Tensor *x = on_device(b, cast(b, IN(0), b->g->v.dtype), b->g->v.device);
    Tensor *y = on_device(b, cast(b, IN(1), b->g->v.dtype), b->g->v.device);
    if (NEED(0)) {
        Tensor *none = op2(b, OP_logical_and, op1k(b, OP_eq, x, 0.0), op1k(b, OP_le, y, 0.0));
        b->grad[0] = mul(b, b->g, op1(b, OP_log, fill_where(b, expand_like(b, y, &b->node->out[0]), none, 1.0)));
    }
    GRAD(1, divide(b, mul(b, b->g, x), y));
}

/* x s(y) */
void d_glu(Back *b) {
    Tensor *g = wide(b, b->g), *s = op1(b, OP_sigmoid, wide(b, IN(1)));
    GRAD(0, mul(b, g, s));
    GRAD(1, mul(b, mul(b, g, wide(b, IN(0))), mul(b, s, one_minus(b, s))));
}

void d_prelu_kernel(Back *b) {
    Tensor *positive = op1k(b, OP_gt, IN(0), 0.0);
    GRAD(0, where(b, positive, b->g, mul(b, b->g, IN(1))));
    GRAD(1, zero_where(b, mul(b, b->g, IN(0)), positive));
}
