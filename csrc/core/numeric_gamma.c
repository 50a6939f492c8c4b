#define _DEFAULT_SOURCE /* lgamma_r: lgamma writes a global variable */
#include "numeric_gamma.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

double amp_lgamma(double x) {
    int sign;
    return lgamma_r(x, &sign);
}

/* Recurrence up to 10, then log x - 1/2x - sum B_2k / (2k x^2k). Below 0 by reflection; the poles are NaN, at zero infinite. */
double amp_digamma(double x) {
    double result = 0;
    if (x == 0) return copysign((double)INFINITY, -x);
    if (x < 0) {
        if (x == floor(x)) return (double)NAN;
        result = -pi / tan(pi * (x - trunc(x)));
        x = 1 - x;
    }
    if (x == (double)INFINITY) return x;
    for (; x < 10; x += 1) result -= 1 / x;
    double z = 1 / (x * x);
    double tail = z *
                  (1.0 / 12 -
                   z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z * (1.0 / 12)))))));
    return result + log(x) - 0.5 / x - tail;
}

/* Sum of (x + k)^-s for k = 0, 1, ...; s >= 2, x > 0: terms up to x + k >= 12, then Euler-Maclaurin. */
static double zeta_positive(double s, double x) {
    /* B_2k / (2k)! */
    static const double weight[] = {1.0 / 12,          -1.0 / 720,
                                    1.0 / 30240,       -1.0 / 1209600,
                                    1.0 / 47900160,    -691.0 / 1307674368000.0,
                                    1.0 / 74724249600, -3617.0 / 10670622842880000.0};
    double sum = 0;
    for (; x < 12 + s; x += 1) {
        double term = pow(x, -s);
        sum += term;
        if (term <= sum * 0x1p-60) return sum; /* also where the terms are 0: a large s takes no longer */
    }
    if (x == (double)INFINITY) return 0;
    double power = pow(x, -s), factor = s, scale = power / x;
    if (power == 0) return sum;
    sum += power * x / (s - 1) + 0.5 * power;
    for (int k = 0; k < 8; k++) {
        sum += weight[k] * factor * scale;
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2);
        scale /= x * x;
    }
    return sum;
}

/* Between the poles at x <= 0 the sum runs both ways:  x = -m + f = -(m - 1) - g, 0 < f, g < 1
 *
 *     zeta(s, x) = zeta(s, f) + (-1)^s (zeta(s, g) - zeta(s, g + m)) */
static double zeta(double s, double x) {
    if (x > 0) return zeta_positive(s, x);
    if (x == floor(x)) return (double)INFINITY;
    double f = x - floor(x), g = ceil(x) - x, m = -floor(x);
    double behind = zeta_positive(s, g) - zeta_positive(s, g + m);
    return zeta_positive(s, f) + (fmod(s, 2) == 0 ? behind : -behind);
}

double amp_polygamma(double n, double x) {
    if (x != x) return x;
    double size = tgamma(n + 1) * zeta(n + 1, x);
    return fmod(n, 2) == 0 ? -size : size;
}

/* Power series: all terms have one sign. */
static double bessel_series(int order, double x) {
    double z = 0.25 * x * x, term = order ? 0.5 * x : 1, sum = term;
    for (int k = 1; fabs(term) > fabs(sum) * 0x1p-56 && k < 500; k++) {
        term *= z / ((double)k * (k + order));
        sum += term;
    }
    return sum;
}

/* sqrt(2 pi x) exp(-x) I(x) for large x: 1 - (m-1)/8x + (m-1)(m-9)/(2! (8x)^2) - ..., m = 4 order^2 */
static double bessel_tail(int order, double x) {
    double m = 4.0 * order * order, term = 1, sum = 1;
    for (int k = 1; k < 60 && fabs(term) > 0x1p-56; k++) {
        double odd = 2.0 * k - 1;
        term *= -(m - odd * odd) / (k * 8 * x);
        sum += term;
    }
    return sum / sqrt(2 * pi * x);
}

enum { BESSEL_LARGE = 25 };

double amp_bessel_i(int order, double x) {
    double size = fabs(x);
    if (!(size > BESSEL_LARGE)) return bessel_series(order, x);
    if (size == (double)INFINITY) return (double)NAN;                            /* inf times 0, as in PyTorch */
    double half = exp(0.5 * size), v = half * (half * bessel_tail(order, size)); /* exp(x) alone may overflow first */
    return order ? copysign(v, x) : v;
}

double amp_bessel_ie(int order, double x) {
    double size = fabs(x);
    if (!(size > BESSEL_LARGE)) return exp(-size) * bessel_series(order, x);
    if (size == (double)INFINITY) return order ? copysign(0, x) : 0;
    double v = bessel_tail(order, size);
    return order ? copysign(v, x) : v;
}

/* From the larger one, so that nothing overflows; two equal infinities stay themselves. */
double amp_logaddexp(double a, double b) {
    if (a == b && isinf(a)) return a;
    return (a > b ? a : b) + log1p(exp(-fabs(a - b)));
}

double amp_logaddexp2(double a, double b) {
    if (a == b && isinf(a)) return a;
    return (a > b ? a : b) + log1p(exp2(-fabs(a - b))) * 1.4426950408889634;
}
