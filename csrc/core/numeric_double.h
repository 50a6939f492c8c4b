/* exp, log and what is made of them for float64, straight-line code like numeric_math.h. Errors in units in the last place stay
 * below 1 for exp, 1.1 for exp2, 1.3 for log and log1p, 1.6 for log2, 2.1 for expm1 and 2.6 for tanh. */
#ifndef AMP_NUMERIC_DOUBLE_H
#define AMP_NUMERIC_DOUBLE_H
#include "numeric_math.h"

/* As amp_exp_f32_parts: exp(r) - 1 is `part`, and factor times rest is 2^k, for any x. ln 2 is taken in two parts, of which the first
 * times k is exact. */
typedef struct AmpExpParts64 {
    double part, factor, rest;
} AmpExpParts64;
AMP_FN double amp_exp_f64_slope(double r) { /* (exp(r) - 1 - r) / r^2 */
    double r2 = r * r, r4 = r2 * r2;
    double a = (0x1.0p-1 + r * 0x1.5555555555557p-3) + r2 * (0x1.5555555555556p-5 + r * 0x1.11111111100dcp-7);
    double b = (0x1.6c16c16c162d4p-10 + r * 0x1.a01a01abe7fe1p-13) + r2 * (0x1.a01a01a6d889cp-16 + r * 0x1.71de0231960ebp-19);
    double c = (0x1.27e4db646b17ep-22 + r * 0x1.af4de97ca4194p-26) + r2 * 0x1.1f730349868cep-29;
    return a + r4 * (b + r4 * c);
}
/* t holds k in its low mantissa bits. */
AMP_FN AmpExpParts64 amp_exp_f64_scaled(double part, double t, bool negative) {
    const uint64_t bias = negative ? 1023u + 60u : 1023u - 60u;
    return (AmpExpParts64){part, amp_bits_f64((amp_f64_bits(t) + bias) << 52), negative ? 0x1p-60 : 0x1p60};
}
AMP_FN AmpExpParts64 amp_exp_f64_parts(double x) {
    const double round = 0x1.8p52;
    double c = amp_clip(x, -746.0, 710.0), t = c * 0x1.71547652b82fep0 + round, k = t - round;
    double r = (c - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
    return amp_exp_f64_scaled(r + r * r * amp_exp_f64_slope(r), t, x < 0);
}
AMP_FN double amp_exp_f64(double x) {
    AmpExpParts64 e = amp_exp_f64_parts(x);
    return (1.0 + e.part) * e.factor * e.rest;
}
AMP_FN double amp_exp2_f64(double x) {
    const double round = 0x1.8p52;
    double c = amp_clip(x, -1078.0, 1030.0), t = c + round, d = c - (t - round), r = d * 0x1.62e42fefa39efp-1;
    double low = d * 0x1.abc9e3b39803fp-56; /* what ln 2 is beyond its 53 bits */
    AmpExpParts64 e = amp_exp_f64_scaled(r + (low + r * r * amp_exp_f64_slope(r)), t, x < 0);
    return (1.0 + e.part) * e.factor * e.rest;
}
/* See amp_near_expm1. */
AMP_FN double amp_expm1_f64(double x) {
    AmpExpParts64 e = amp_exp_f64_parts(x < -40.0 ? -40.0 : x);
    const double one = x < 0 ? 0x1p60 : 0x1p-60, v = (e.factor * e.part + (e.factor - one)) * e.rest;
    return copysign(fabs(x) < 0x1p-26 ? x + 0.5 * (x * x) : v, x);
}

/* log u for normal u = 2^k (1 + f); x is u - 1 without u's rounding, and is f where k is 0; `more` is added where it isn't.
 *   log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + R), s = f / (2 + f), R the rest of 2 atanh(s) / s - 2 by a minimax polynomial in s^2 */
typedef struct AmpLogParts {
    double k, log;
} AmpLogParts;
AMP_FN AmpLogParts amp_log_f64_parts(double u, double x, double more) {
    const uint64_t half_root = 0x3fe6a09e667f3bcdu;
    uint64_t i = amp_f64_bits(u) + (0x3ff0000000000000u - half_root);
    double k = amp_bits_f64((i >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0);
    double m = amp_bits_f64((i & 0x000fffffffffffffu) + half_root), f = k == 0 ? x : m - 1.0;
    double s = f / (2.0 + f), z = s * s, w = z * z, half = 0.5 * f * f;
    double a = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    double b = z * (6.666666666666735130e-01 +
                    w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    double low = k == 0 ? 0.0 : more;
    return (AmpLogParts){k, f - (half - (s * (half + (a + b)) + low))};
}
AMP_FN double amp_log_f64_ends(double v, double x) {
    v = x < (double)INFINITY ? v : x;
    v = x == 0.0 ? -(double)INFINITY : v;
    return x < 0.0 ? (double)NAN : v;
}
AMP_FN AmpLogParts amp_log_f64_of(double x) {
    const bool tiny = x < 0x1p-1022;
    double u = tiny ? x * 0x1p54 : x;
    AmpLogParts l = amp_log_f64_parts(u, x - 1.0, 0.0);
    l.k -= tiny ? 54.0 : 0.0;
    return l;
}
AMP_FN double amp_log_f64(double x) {
    AmpLogParts l = amp_log_f64_of(x);
    return amp_log_f64_ends(l.k * 0x1.62e42feep-1 + (l.log + l.k * 0x1.a39ef35793c76p-33), x);
}
AMP_FN double amp_log2_f64(double x) {
    AmpLogParts l = amp_log_f64_of(x);
    return amp_log_f64_ends(l.k + (l.log * 0x1.71547652b82fep0 + l.log * 0x1.777d0ffda0d24p-56), x);
}
/* The rounding of 1 + x comes back as its share of u. */
AMP_FN double amp_log1p_f64(double x) {
    double u = 1.0 + x, lost = x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0);
    AmpLogParts l = amp_log_f64_parts(u, x, lost / u);
    double v = amp_log_f64_ends(l.k * 0x1.62e42feep-1 + (l.log + l.k * 0x1.a39ef35793c76p-33), u);
    return u < 0.0 ? v : copysign(v, x);
}
/* tanh(a) = -m / (m + 2), m = exp(-2a) - 1 */
AMP_FN double amp_tanh_f64(double x) {
    double m = amp_expm1_f64(-2.0 * fabs(x));
    return copysign(m / (m + 2.0), x);
}

#endif
