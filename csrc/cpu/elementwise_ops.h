/* Ops on real numbers that cost about as much as the conversions of a 16-bit format: X(name, expression), made of x, y, z, the call's
 * numbers n0, n1, n2, and the scalar meanings R(name) and M(name) (numeric_ops.h, math.h). */
#ifndef AMP_ELEMENTWISE_OPS_H
#define AMP_ELEMENTWISE_OPS_H

#if !defined(__clang__)
/* A choice between a value and a constant, or one by the call's numbers, stays a select: separate ways through a loop body would each be
 * computed for every element, or leave the loop scalar. */
#pragma GCC optimize("no-unswitch-loops", "no-thread-jumps", "no-split-paths")
#endif

/* clang-format off */
#define LIGHT_UNARY(X)                                                                                                 \
    X(square, x * x) X(sqrt, M(sqrt)(x)) X(rsqrt, 1 / M(sqrt)(x)) X(reciprocal, 1 / x)                                 \
    X(floor, M(floor)(x)) X(ceil, M(ceil)(x)) X(round, M(rint)(x)) X(trunc, M(trunc)(x)) X(frac, R(frac)(x))           \
    X(sign, R(sign)(x)) X(nan_to_num, R(nan_to_num)(x, n0, n1, n2))                                \
    X(clamp, R(clamp_high)(R(clamp_low)(x, n0), n1)) X(hardtanh, R(clamp_high)(R(clamp_low)(x, n0), n1))               \
    X(leaky_relu, R(leaky_relu)(x, n0)) X(hardswish, R(hardswish)(x)) X(hardsigmoid, R(hardsigmoid)(x))                \
    X(threshold, R(threshold)(x, n0, n1)) X(hardshrink, R(hardshrink)(x, n0)) X(softshrink, R(softshrink)(x, n0))      \
    X(softsign, R(softsign)(x)) X(huber_kernel, R(huber_kernel)(x, n0, n1, n2))
#define LIGHT_UNARY_VARIANTS(X)                                                                                        \
    X(clamp_low, R(clamp_low)(x, n0)) X(clamp_high, R(clamp_high)(x, n1)) X(cube, x * x * x)                           \
    X(reciprocal_square, 1 / (x * x))
#define LIGHT_BINARY(X)                                                                                                \
    X(add, x + y) X(sub, x - y) X(squared_difference, (x - y) * (x - y)) X(mul, x * y) X(div, x / y)                   \
    X(maximum, R(maximum)(x, y)) X(minimum, R(minimum)(x, y))                                                          \
    X(fmax, R(fmax)(x, y)) X(fmin, R(fmin)(x, y)) X(tanh_grad, R(tanh_grad)(x, y))    \
    X(sigmoid_grad, R(sigmoid_grad)(x, y)) X(prelu_kernel, R(prelu)(x, y))                                             \
    X(leaky_relu_grad, R(leaky_relu_grad)(x, y, n0)) X(inside_grad, R(inside_grad)(x, y, n0, n1, n2))                  \
    X(hardswish_grad, R(hardswish_grad)(x, y)) X(huber_grad, R(huber_grad)(x, y, n0, n1))         \
    X(shrink_grad, R(shrink_grad)(x, y, n0))
#define LIGHT_BINARY_VARIANTS(X) X(add_alpha, x + n0 * y) X(sub_alpha, x - n0 * y)
#define LIGHT_TERNARY(X) X(addcmul, x + n0 * y * z) X(addcdiv, x + n0 * (y / z)) X(lerp, R(lerp)(x, y, z)) \
    X(mse_grad, R(mse_grad)(x, y, z, n0))
/* clang-format on */

#define NUMBERS \
    const double w0 = params->f[0], w1 = params->f[1], w2 = params->f[2]; \
    const REAL n0 = (REAL)w0, n1 = (REAL)w1, n2 = (REAL)w2; \
    (void)n0, (void)n1, (void)n2;

#endif
