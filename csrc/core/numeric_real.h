/* The scalar meaning of the element ops on real numbers. Included twice by numeric_ops.h:
 *   REAL     float or double
 *   R(name)  the op's name for that type
 *   M(name)  the C library's function for that type
 *   C(x)     a constant of that type */

AMP_FN bool R(isnan)(REAL x) { return x != x; }
AMP_FN bool R(isfinite)(REAL x) { return M(fabs)(x) < C(INFINITY); }
AMP_FN bool R(isinf)(REAL x) { return M(fabs)(x) == C(INFINITY); }

AMP_FN REAL R(sign)(REAL x) { return (REAL)((x > 0) - (x < 0)); } /* NaN has sign 0 */
AMP_FN REAL R(relu)(REAL x) { return x < 0 ? 0 : x; }             /* keeps NaN and -0 */
AMP_FN REAL R(frac)(REAL x) { return x - M(trunc)(x); }
AMP_FN REAL R(leaky_relu)(REAL x, REAL slope) { return x > 0 ? x : x * slope; } /* 0 of either sign takes part */

AMP_FN REAL R(hardswish)(REAL x) {
    REAL shifted = x + 3, part = shifted < 0 ? 0 : shifted > 6 ? 6 : shifted;
    return x * part / 6;
}
AMP_FN REAL R(hardsigmoid)(REAL x) {
    REAL shifted = x + 3;
    return (shifted < 0 ? 0 : shifted > 6 ? 6 : shifted) / 6;
}
AMP_FN REAL R(threshold)(REAL x, REAL limit, REAL value) { return x <= limit ? value : x; }
AMP_FN REAL R(hardshrink)(REAL x, REAL lambda) { return x >= -lambda && x <= lambda ? 0 : x; }
AMP_FN REAL R(softshrink)(REAL x, REAL lambda) { return x > lambda ? x - lambda : x < -lambda ? x + lambda : x != x ? x : 0; }
AMP_FN REAL R(softsign)(REAL x) { return x / (1 + M(fabs)(x)); }
AMP_FN REAL R(prelu)(REAL x, REAL slope) { return x > 0 ? x : x * slope; }

/* low first, then high, so that high wins if they cross; a NaN in x or in a bound gives NaN. */
AMP_FN REAL R(clamp_low)(REAL x, REAL low) { return x < low || low != low ? low : x; }
AMP_FN REAL R(clamp_high)(REAL x, REAL high) { return x > high || high != high ? high : x; }

AMP_FN REAL R(nan_to_num)(REAL x, REAL nan, REAL posinf, REAL neginf) {
    REAL v = x == C(INFINITY) ? posinf : x;
    v = x == -C(INFINITY) ? neginf : v;
    return x != x ? nan : v;
}

/* Half to even after scaling by `ten` = 10^|decimals|. */
AMP_FN REAL R(round_up)(REAL x, REAL ten) { return M(rint)(x * ten) / ten; }
AMP_FN REAL R(round_down)(REAL x, REAL ten) { return M(rint)(x / ten) * ten; }

/* NaN wins in maximum and minimum and loses in fmax and fmin. Equal numbers give the first, zeros of either sign included. */
AMP_FN REAL R(maximum)(REAL a, REAL b) { return a != a || a >= b ? a : b; }
AMP_FN REAL R(minimum)(REAL a, REAL b) { return a != a || a <= b ? a : b; }
AMP_FN REAL R(fmax)(REAL a, REAL b) { return b != b || a >= b ? a : b; }
AMP_FN REAL R(fmin)(REAL a, REAL b) { return b != b || a <= b ? a : b; }

/* Python's remainder: the sign of the divisor; m is fmod(a, b). */
AMP_FN REAL R(remainder_of)(REAL m, REAL b) {
    REAL moved = m + b;
    return m != 0 && (b < 0) != (m < 0) ? moved : m;
}
AMP_FN REAL R(remainder)(REAL a, REAL b) { return R(remainder_of)(M(fmod)(a, b), b); }
/* The floor of the exact quotient: (a - remainder) / b is an integer up to rounding. */
AMP_FN REAL R(floor_divide_of)(REAL m, REAL a, REAL b) {
    REAL q = (a - m) / b, below = q - 1;
    q = m != 0 && (b < 0) != (m < 0) ? below : q;
    REAL f = M(floor)(q), v = q - f > C(0.5) ? f + 1 : f;
    return q == 0 ? M(copysign)(0, a / b) : v;
}
AMP_FN REAL R(floor_divide)(REAL a, REAL b) {
    if (b == 0) return a / b;
    return R(floor_divide_of)(M(fmod)(a, b), a, b);
}

/* From the nearer end, so that weight 0 and 1 give the ends exactly. */
AMP_FN REAL R(lerp)(REAL a, REAL b, REAL w) { return M(fabs)(w) < C(0.5) ? a + w * (b - a) : b - (b - a) * (1 - w); }

AMP_FN REAL R(relu_grad)(REAL g, REAL y) { return y <= 0 ? 0 : g; } /* a NaN output lets the gradient through */
AMP_FN REAL R(tanh_grad)(REAL g, REAL y) { return g * (1 - y * y); }
AMP_FN REAL R(sigmoid_grad)(REAL g, REAL y) { return g * y * (1 - y); }

/* The derivative of (x - t)^2, in the steps of the ops that it is made of. */
AMP_FN REAL R(mse_grad)(REAL g, REAL x, REAL t, REAL slope) { return (x - t) * slope * g; }

/* g where x is positive, else g times the slope, NaN included. */
AMP_FN REAL R(leaky_relu_grad)(REAL g, REAL x, REAL slope) {
    REAL low = g * slope;
    return x > 0 ? g : low;
}
/* near x^2 up to delta, beyond it far (|x| - delta / 2). */
AMP_FN REAL R(huber_kernel)(REAL x, REAL delta, REAL near, REAL far) {
    REAL size = M(fabs)(x), inner = x * x * near, outer = (size - C(0.5) * delta) * far;
    return size > delta ? outer : inner;
}
/* g times x, cut at delta of either sign, times the slope; NaN stays. */
AMP_FN REAL R(huber_grad)(REAL g, REAL x, REAL delta, REAL slope) {
    REAL cut = x > delta ? delta : x;
    cut = cut < -delta ? -delta : cut;
    return g * (cut * slope);
}
/* g times the slope strictly between the bounds; 0 on them, beyond them and for NaN. */
AMP_FN REAL R(inside_grad)(REAL g, REAL x, REAL low, REAL high, REAL slope) {
    REAL v = g * slope;
    v = x > low ? v : 0;
    return x < high ? v : 0;
}
AMP_FN REAL R(hardswish_grad)(REAL g, REAL x) {
    REAL v = g * (x * C((1.0 / 3.0)) + C(0.5));
    v = x >= 3 ? g : v;
    return x <= -3 ? 0 : v;
}
/* g beyond lambda of either sign; NaN counts as small. */
AMP_FN REAL R(shrink_grad)(REAL g, REAL x, REAL lambda) { return M(fabs)(x) > lambda ? g : 0; }
