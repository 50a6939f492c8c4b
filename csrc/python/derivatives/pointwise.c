/* Derivatives of pointwise ops, copies and fills. */
#include "derivatives.h"

#include <math.h>
#include <string.h>

#include "../classes.h"

static const double LN2 = 0.693147180559945309417232121458176568;
static const double LN10 = 2.30258509299404568401799145468436421;
static const double SQRT_PI = 1.77245385090551602729816748334114518;
static const double SQRT_HALF = 0.707106781186547524400844362104849039;
static const double SQRT_2_OVER_PI = 0.797884560802865355879892119868763737;

void d_identity(Back *b) { GRAD(0, b->g); }

void d_zero(Back *b) {
    for (int i = 0; i < b->node->nin; i++) {
        GRAD(i, zeros_like(b, b->g));
    }
}

/* What PyTorch has no derivative of either. As part of another operation, div with a rounding mode, its slope is zero. */
void d_absent(Back *b) {
    if (b->node->shown != b->node->op) {
        d_zero(b);
        return;
    }
    PyErr_Format(PyExc_RuntimeError, "derivative for aten::%s is not implemented: call it on .detach()",
                 amp_rows[b->node->op].name);
    b->failed = true;
}

/* ---- one input ---- */

void d_abs(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_sign, IN(0)))); }

void d_neg(Back *b) { GRAD(0, neg(b, b->g)); }

void d_exp(Back *b) { GRAD(0, mul(b, b->g, OUT(0))); }

void d_exp2(Back *b) { GRAD(0, scale(b, mul(b, b->g, OUT(0)), LN2)); }

void d_expm1(Back *b) { GRAD(0, mul(b, b->g, plus(b, OUT(0), 1.0))); }

void d_log(Back *b) { GRAD(0, divide(b, b->g, IN(0))); }

void d_log2(Back *b) { GRAD(0, divide(b, b->g, scale(b, IN(0), LN2))); }

void d_log10(Back *b) { GRAD(0, divide(b, b->g, scale(b, IN(0), LN10))); }

void d_log1p(Back *b) { GRAD(0, divide(b, b->g, plus(b, IN(0), 1.0))); }

void d_sqrt(Back *b) { GRAD(0, divide(b, b->g, scale(b, OUT(0), 2.0))); }

void d_rsqrt(Back *b) { GRAD(0, mul(b, scale(b, b->g, -0.5), op1k(b, OP_pow, OUT(0), 3.0))); }

void d_reciprocal(Back *b) { GRAD(0, mul(b, neg(b, b->g), square(b, OUT(0)))); }

void d_sin(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_cos, IN(0)))); }

void d_cos(Back *b) { GRAD(0, mul(b, b->g, neg(b, op1(b, OP_sin, IN(0))))); }

void d_tan(Back *b) { GRAD(0, mul(b, b->g, plus(b, square(b, OUT(0)), 1.0))); }

void d_asin(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_rsqrt, one_minus(b, square(b, IN(0)))))); }

void d_acos(Back *b) { GRAD(0, mul(b, b->g, neg(b, op1(b, OP_rsqrt, one_minus(b, square(b, IN(0))))))); }

void d_atan(Back *b) { GRAD(0, divide(b, b->g, plus(b, square(b, IN(0)), 1.0))); }

void d_sinh(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_cosh, IN(0)))); }

void d_cosh(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_sinh, IN(0)))); }

/* tanh and sigmoid: in fp32 like the kernels of f_tanh and f_sigmoid. */
void d_tanh(Back *b) { GRAD(0, mul(b, wide(b, b->g), one_minus(b, square(b, wide(b, OUT(0)))))); }

void f_tanh(Back *b) { GRAD(0, op2(b, OP_tanh_grad, b->g, OUT(0))); }

void d_sigmoid(Back *b) {
    if (NEED(0)) {
        Tensor *y = wide(b, OUT(0));
        b->grad[0] = mul(b, mul(b, wide(b, b->g), one_minus(b, y)), y);
    }
}

void f_sigmoid(Back *b) { GRAD(0, op2(b, OP_sigmoid_grad, b->g, OUT(0))); }

void d_asinh(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_rsqrt, plus(b, square(b, IN(0)), 1.0)))); }

void d_acosh(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_rsqrt, plus(b, square(b, IN(0)), -1.0)))); }

void d_atanh(Back *b) { GRAD(0, divide(b, b->g, one_minus(b, square(b, IN(0))))); }

/* exp(-x^2), scaled */
static Tensor *bell(Back *b, Tensor *x, double factor) { return scale(b, op1(b, OP_exp, neg(b, square(b, x))), factor); }

void d_erf(Back *b) { GRAD(0, mul(b, b->g, bell(b, IN(0), 2.0 / SQRT_PI))); }

void d_erfc(Back *b) { GRAD(0, mul(b, b->g, bell(b, IN(0), -2.0 / SQRT_PI))); }

void d_erfinv(Back *b) { GRAD(0, mul(b, b->g, scale(b, op1(b, OP_exp, square(b, OUT(0))), SQRT_PI / 2.0))); }

void d_square(Back *b) { GRAD(0, mul(b, b->g, scale(b, IN(0), 2.0))); }

void d_nan_to_num(Back *b) { GRAD(0, zero_where(b, b->g, not_(b, op1(b, OP_isfinite, IN(0))))); }

/* Passes where min < x < max: not on the bounds, and a NaN lies nowhere. */
void d_clamp(Back *b) {
    if (!NEED(0) || !b->g) {
        return;
    }
    Tensor *x = IN(0), *inside = NULL;
    if (ARG(1).kind != ARG_NONE) {
        inside = op1k(b, OP_gt, x, ARG(1).num.f);
    }
    if (ARG(2).kind != ARG_NONE) {
        Tensor *below = op1k(b, OP_lt, x, ARG(2).num.f);
        inside = inside ? op2(b, OP_logical_and, inside, below) : below;
    }
    b->grad[0] = zero_where(b, b->g, not_(b, inside));
}

void d_relu(Back *b) { GRAD(0, zero_where(b, b->g, op1k(b, OP_le, OUT(0), 0.0))); }

void f_relu(Back *b) { GRAD(0, op2(b, OP_relu_grad, b->g, OUT(0))); }

/* x Phi(x): Phi(x) + x phi(x) */
static Tensor *gelu_slope(Back *b, Tensor *x) {
    Tensor *cdf = scale(b, plus(b, op1(b, OP_erf, scale(b, x, SQRT_HALF)), 1.0), 0.5);
    Tensor *density = bell(b, scale(b, x, SQRT_HALF), SQRT_HALF / SQRT_PI);
    return add(b, cdf, mul(b, x, density));
}

/* x (1 + tanh u) / 2 with u = k (x + 0.044715 x^3): (1 + tanh u) / 2 + x (1 - tanh^2 u) u' / 2 */
static Tensor *gelu_tanh_slope(Back *b, Tensor *x) {
    const double cubic = 0.044715;
    Tensor *x2 = square(b, x);
    Tensor *t = op1(b, OP_tanh, mul(b, scale(b, x, SQRT_2_OVER_PI), plus(b, scale(b, x2, cubic), 1.0)));
    Tensor *inner = scale(b, plus(b, scale(b, x2, 3.0 * cubic), 1.0), 0.5 * SQRT_2_OVER_PI);
    Tensor *steep = mul(b, mul(b, x, one_minus(b, square(b, t))), inner);
    return add(b, scale(b, plus(b, t, 1.0), 0.5), steep);
}

void d_gelu(Back *b) {
    if (NEED(0) && b->g) {
        Tensor *x = wide(b, IN(0));
        b->grad[0] = mul(b, wide(b, b->g), !strcmp(ARG(1).s, "tanh") ? gelu_tanh_slope(b, x) : gelu_slope(b, x));
    }
}

void f_gelu(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_tensor(IN(0)), ARG(1)};
    GRAD(0, op_args(b, OP_gelu_grad, arg));
}

static Tensor *where(Back *b, Tensor *mask, Tensor *x, Tensor *y) {
    Arg arg[MAX_ARGS] = {arg_tensor(mask), arg_tensor(x), arg_tensor(y)};
    return op_args(b, OP_where, arg);
}

void d_softplus(Back *b) {
    if (NEED(0)) {
        Tensor *z = scale(b, wide(b, IN(0)), ARG(1).f);
        b->grad[0] = where(b, op1k(b, OP_gt, z, ARG(2).f), wide(b, b->g), mul(b, wide(b, b->g), op1(b, OP_sigmoid, z)));
    }
}

void d_logsigmoid(Back *b) { GRAD(0, mul(b, wide(b, b->g), op1(b, OP_sigmoid, neg(b, wide(b, IN(0)))))); }

/* ---- two inputs ---- */

void d_add(Back *b) {
    GRAD(0, b->g);
    GRAD(1, scale(b, b->g, ARG(2).num.f));
}

void d_sub(Back *b) {
    GRAD(0, b->g);
    GRAD(1, scale(b, b->g, -ARG(2).num.f));
}

void d_rsub(Back *b) {
    GRAD(0, scale(b, b->g, -ARG(2).num.f));
    GRAD(1, b->g);
}

void d_mul(Back *b) {
    GRAD(0, mul(b, b->g, IN(1)));
    GRAD(1, mul(b, b->g, IN(0)));
}

void d_div(Back *b) {
    GRAD(0, divide(b, b->g, IN(1)));
    GRAD(1, mul(b, neg(b, b->g), divide(b, divide(b, IN(0), IN(1)), IN(1))));
}

/* div with a mode, not floor_divide, which would have no second derivative. */
static Tensor *floor_quotient(Back *b, Tensor *x, Tensor *y) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), arg_tensor(y), {.kind = ARG_STR, .s = "floor"}};
    return op_args(b, OP_div_mode, arg);
}

void d_remainder(Back *b) {
    GRAD(0, b->g);
    GRAD(1, mul(b, neg(b, b->g), floor_quotient(b, IN(0), IN(1))));
}

void d_fmod(Back *b) {
    GRAD(0, b->g);
    GRAD(1, mul(b, neg(b, b->g), op2(b, OP_div_trunc, IN(0), IN(1))));
}

/* x in g's dtype, on its device and of its shape. A Python number needs it where it would meet another one or be masked. */
static Tensor *match(Back *b, Tensor *x, Tensor *g) {
    return x && g ? expand(b, on_device(b, cast(b, x, g->v.dtype), g->v.device), g->v.ndim, g->v.shape) : NULL;
}

/* Whether x was a Python number, and which. */
static bool was_number(Back *b, Tensor *x, double *number) {
    if (!x || !(x->flags & TENSOR_WRAPPED)) {
        return false;
    }
    PyObject *item = tensor_item(x);
    *number = item ? PyFloat_AsDouble(item) : 0.0;
    Py_XDECREF(item);
    b->failed |= PyErr_Occurred() != NULL;
    return !b->failed;
}

/* e x^(e-1). For e = 0 that is 0 everywhere, also where x^-1 is not finite: such x are replaced before the power is formed, because a
 * mask behind it would let inf * 0 back in through the second derivative. */
static Tensor *pow_slope(Back *b, Tensor *x, Tensor *e) {
    double number;
    if (was_number(b, e, &number)) {
        if (number == 0.0) {
            return zeros_like(b, x);
        }
        return scale(b, number == 2.0 ? x : op1k(b, OP_pow, x, number - 1.0), number);
    }
    x = match(b, x, b->g);
    Tensor *no_size = not_(b, op1k(b, OP_gt, op1(b, OP_abs, x), 0.0));
    Tensor *lost = op2(b, OP_logical_and, op1k(b, OP_eq, e, 0.0), no_size);
    return mul(b, e, op2(b, OP_pow, fill_where(b, x, lost, 1.0), plus(b, e, -1.0)));
}

/* x^e log x; at x = 0 the limit for e >= 0 is 0 */
static Tensor *exponent_slope(Back *b, Tensor *x, Tensor *e) {
    x = match(b, x, b->g);
    Tensor *flat = op2(b, OP_logical_and, op1k(b, OP_eq, x, 0.0), op1k(b, OP_ge, e, 0.0));
    return mul(b, OUT(0), op1(b, OP_log, fill_where(b, x, flat, 1.0)));
}

void d_pow(Back *b) {
    GRAD(0, mul(b, b->g, pow_slope(b, IN(0), IN(1))));
    GRAD(1, mul(b, b->g, exponent_slope(b, IN(0), IN(1))));
}

/* Gradient 0 at the origin. */
void d_atan2(Back *b) {
    Tensor *y = match(b, IN(0), b->g), *x = match(b, IN(1), b->g);
    Tensor *r = add(b, square(b, y), square(b, x));
    r = fill_where(b, r, op1k(b, OP_eq, r, 0.0), 1.0);
    GRAD(0, mul(b, b->g, divide(b, x, r)));
    GRAD(1, mul(b, b->g, divide(b, neg(b, y), r)));
}

void d_hypot(Back *b) {
    GRAD(0, mul(b, b->g, divide(b, IN(0), OUT(0))));
    GRAD(1, mul(b, b->g, divide(b, IN(1), OUT(0))));
}

/* g, halved where both inputs are equal: they share it. */
static Tensor *halved_at_ties(Back *b) { return where(b, op2(b, OP_eq, IN(0), IN(1)), scale(b, b->g, 0.5), b->g); }

/* The winner gets the gradient; with a NaN there is none, and both get it. */
static void share(Back *b, OpId loses, OpId wins) {
    if (b->g) {
        Tensor *g = halved_at_ties(b);
        GRAD(0, zero_where(b, g, op2(b, loses, IN(0), IN(1))));
        GRAD(1, zero_where(b, g, op2(b, wins, IN(0), IN(1))));
    }
}

void d_maximum(Back *b) { share(b, OP_lt, OP_gt); }

void d_minimum(Back *b) { share(b, OP_gt, OP_lt); }

/* fmax, fmin: a NaN loses, of two the second. */
static void share_without_nan(Back *b, OpId wins_or_equal, OpId wins) {
    if (!b->g) {
        return;
    }
    Tensor *g = halved_at_ties(b), *second_nan = op1(b, OP_isnan, IN(1));
    GRAD(0, zero_where(b, g, not_(b, op2(b, OP_logical_or, op2(b, wins_or_equal, IN(0), IN(1)), second_nan))));
    GRAD(1, zero_where(b, g, op2(b, OP_logical_or, op2(b, wins, IN(0), IN(1)), second_nan)));
}

void d_fmax(Back *b) { share_without_nan(b, OP_ge, OP_gt); }

void d_fmin(Back *b) { share_without_nan(b, OP_le, OP_lt); }

void d_copysign(Back *b) {
    GRAD(0, mul(b, b->g, mul(b, op1(b, OP_sign, IN(0)), op1(b, OP_sign, OUT(0)))));
    GRAD(1, zeros_like(b, b->g));
}

/* ---- three inputs ---- */

void d_where(Back *b) {
    GRAD(1, zero_where(b, b->g, not_(b, IN(0))));
    GRAD(2, zero_where(b, b->g, cast(b, IN(0), AMP_BOOL)));
}

void d_addcmul(Back *b) {
    double value = ARG(3).num.f;
    GRAD(0, b->g);
    GRAD(1, mul(b, b->g, scale(b, IN(2), value)));
    GRAD(2, mul(b, b->g, scale(b, IN(1), value)));
}

void d_addcdiv(Back *b) {
    double value = ARG(3).num.f;
    GRAD(0, b->g);
    GRAD(1, mul(b, b->g, divide(b, constant(b, IN(2), 0, NULL, value), IN(2))));
    GRAD(2, mul(b, neg(b, b->g), divide(b, scale(b, IN(1), value), square(b, IN(2)))));
}

void d_lerp(Back *b) {
    double weight;
    GRAD(0, was_number(b, IN(2), &weight) ? scale(b, b->g, 1.0 - weight) : mul(b, b->g, one_minus(b, IN(2))));
    GRAD(1, mul(b, b->g, IN(2)));
    GRAD(2, mul(b, b->g, sub(b, IN(1), IN(0))));
}

void d_masked_fill(Back *b) {
    GRAD(0, zero_where(b, b->g, IN(1)));
    GRAD(2, zero_where(b, b->g, not_(b, IN(1))));
}

/* ---- copies and fills ---- */

void d_to_copy(Back *b) { GRAD(0, on_device(b, b->g, IN_META(0).device)); }

void d_copy(Back *b) {
    GRAD(0, zeros_like(b, b->g));
    GRAD(1, on_device(b, b->g, IN_META(1).device));
}

void d_fill(Back *b) {
    GRAD(0, zeros_like(b, b->g));
    GRAD(1, on_device(b, b->g, IN_META(1).device));
}
