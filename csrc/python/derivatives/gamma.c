/* Derivatives of functions around gamma and Bessel I, and of sums of exponentials. */
#include "derivatives.h"

#include "../classes.h"

static Tensor *polygamma(Back *b, Tensor *x, int64_t n) { return op_int(b, OP_polygamma, x, n); }

void d_lgamma(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_digamma, IN(0)))); }

void d_digamma(Back *b) { GRAD(0, mul(b, b->g, polygamma(b, IN(0), 1))); }

void d_polygamma(Back *b) { GRAD(0, mul(b, b->g, polygamma(b, IN(0), ARG(1).i < INT64_MAX ? ARG(1).i + 1 : INT64_MAX))); }

void d_i0(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_i1, IN(0)))); }

void d_i0e(Back *b) { GRAD(0, mul(b, b->g, sub(b, op1(b, OP_i1e, IN(0)), mul(b, op1(b, OP_sign, IN(0)), OUT(0))))); }

/* y / x, with its limit 1/2 at 0. */
static Tensor *over_x(Back *b, Tensor *x, Tensor *y) {
    Tensor *zero = op1k(b, OP_eq, x, 0.0);
    return fill_where(b, divide(b, y, fill_where(b, x, zero, 1.0)), zero, 0.5);
}

void d_i1(Back *b) { GRAD(0, mul(b, b->g, sub(b, op1(b, OP_i0, IN(0)), over_x(b, IN(0), OUT(0))))); }

void d_i1e(Back *b) {
    if (NEED(0)) {
        Tensor *x = IN(0), *y = OUT(0);
        Tensor *slope = sub(b, sub(b, op1(b, OP_i0e, x), over_x(b, x, y)), mul(b, op1(b, OP_sign, x), y));
        b->grad[0] = mul(b, b->g, slope);
    }
}

/* The part of a in the sum is sigmoid(a - b); of equal infinities each has half. */
static void shares(Back *b, double unit) {
    Tensor *x = IN(0), *y = IN(1), *d = sub(b, x, y);
    d = fill_where(b, d, op2(b, OP_eq, x, y), 0.0);
    Tensor *part = op1(b, OP_sigmoid, scale(b, d, unit));
    GRAD(0, mul(b, b->g, part));
    GRAD(1, mul(b, b->g, op1(b, OP_sigmoid, scale(b, d, -unit))));
}

void d_logaddexp(Back *b) { shares(b, 1.0); }

void d_logaddexp2(Back *b) { shares(b, 0.6931471805599453); }
