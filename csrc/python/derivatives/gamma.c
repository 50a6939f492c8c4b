/* Derivatives of functions around gamma and Bessel I, and of sums of exponentials. */
#include "derivatives.h"

#include "../classes.h"

static Tensor *polygamma(Back *b, Tensor *x, int64_t n) { return op_int(b, OP_polygamma, x, n); }

void d_lgamma(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_digamma, IN(0)))); }

void d_digamma(Back *b) { GRAD(0, mul(b, b->g, polygamma(b, IN(0), 1))); }

void d_polygamma(Back *b) { GRAD(0, mul(b, b->g, polygamma(b, IN(0), ARG(1).i < INT64_MAX ? ARG(1).i + 1 : INT64_MAX))); }

void d_i0(Back *b) { GRAD(0, mul(b, b->g, op1(b, OP_i1, IN(0)))); }

/* The output; for 16-bit inputs anew in fp32, where it isn't rounded. */
static Tensor *wide_output(Back *b, Tensor *x) { return amp_is_16bit(IN_META(0).dtype) ? op1(b, node_op(b), x) : OUT(0); }

void d_i0e(Back *b) {
    if (NEED(0)) {
        Tensor *x = wide(b, IN(0)), *y = wide_output(b, x);
        b->grad[0] = mul(b, wide(b, b->g), sub(b, op1(b, OP_i1e, x), mul(b, op1(b, OP_sign, x), y)));
    }
}

/* i1(x) / x, or with `decay` i1e(x) / x. Near 0, where the quotient and even more its own derivatives cancel or, of subnormal numbers,
 * are coarse, it is i1's power series; each way replaces the x that is not its own. */
static Tensor *i1_over_x(Back *b, Tensor *x, Tensor *y, bool decay) {
    static const double series[] = {1.0 / 2, 1.0 / 16, 1.0 / 384, 1.0 / 18432, 1.0 / 1474560, 1.0 / 176947200, 1.0 / 29727129600};
    Tensor *size = op1(b, OP_abs, x), *near = op1k(b, OP_lt, size, 0.5), *small = fill_where(b, x, not_(b, near), 0.0);
    Tensor *z = square(b, small), *sum = scale(b, z, series[6]);
    for (int i = 5; i > 0; i--) {
        sum = mul(b, plus(b, sum, series[i]), z);
    }
    sum = plus(b, sum, series[0]);
    sum = decay ? mul(b, sum, op1(b, OP_exp, neg(b, op1(b, OP_abs, small)))) : sum;
    Arg arg[MAX_ARGS] = {arg_tensor(near), arg_tensor(sum), arg_tensor(divide(b, y, fill_where(b, x, near, 1.0)))};
    return op_args(b, OP_where, arg);
}

void d_i1(Back *b) {
    if (NEED(0)) {
        Tensor *x = wide(b, IN(0));
        b->grad[0] = mul(b, wide(b, b->g), sub(b, op1(b, OP_i0, x), i1_over_x(b, x, wide_output(b, x), false)));
    }
}

void d_i1e(Back *b) {
    if (NEED(0)) {
        Tensor *x = wide(b, IN(0)), *y = wide_output(b, x);
        Tensor *slope = sub(b, sub(b, op1(b, OP_i0e, x), i1_over_x(b, x, y, true)), mul(b, op1(b, OP_sign, x), y));
        b->grad[0] = mul(b, wide(b, b->g), slope);
    }
}

/* -log x - 1; below 0 there is none */
void d_entr(Back *b) { GRAD(0, mul(b, wide(b, b->g), op1k(b, OP_rsub, op1(b, OP_log, wide(b, IN(0))), -1.0))); }

/* 1 / density: sqrt(2 pi) exp(x^2 / 2) */
void d_ndtri(Back *b) {
    if (NEED(0)) {
        Tensor *x = wide_output(b, wide(b, IN(0))), *slope = op1(b, OP_exp, scale(b, square(b, x), 0.5));
        b->grad[0] = mul(b, wide(b, b->g), scale(b, slope, 2.5066282746310002));
    }
}

/* The part of a in the sum is sigmoid(a - b); of equal infinities each has half. */
static void shares(Back *b, double unit) {
    Tensor *x = IN(0), *y = IN(1), *d = sub(b, x, y);
    d = fill_where(b, d, op2(b, OP_logical_and, op2(b, OP_eq, x, y), op1(b, OP_isinf, x)), 0.0);
    Tensor *part = op1(b, OP_sigmoid, scale(b, d, unit));
    GRAD(0, mul(b, b->g, part));
    GRAD(1, mul(b, b->g, op1(b, OP_sigmoid, scale(b, d, -unit))));
}

void d_logaddexp(Back *b) { shares(b, 1.0); }

void d_logaddexp2(Back *b) { shares(b, 0.6931471805599453); }
