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
    if (n == 1 && x == -(double)INFINITY) return (double)NAN; /* between poles for ever */
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

/* c[0] + c[1] x + ... + c[7] x^7 */
static double polynomial7(const double *c, double x) {
    double v = c[7];
    for (int i = 6; i >= 0; i--) v = v * x + c[i];
    return v;
}

/* A quotient of two polynomials for each of three ranges (M. J. Wichura, Algorithm AS 241, Applied Statistics 37, 1988): of q^2 for
 * |q| = |p - 1/2| <= 0.425, beyond it of r = sqrt(-log of the smaller tail), up to 5 and above. p in the upper half loses nothing in
 * 1 - p. Error below 6 units in the last place. */
typedef struct Quotient {
    double over[8], under[8];
} Quotient;

double amp_ndtri(double p) {
    static const Quotient middle = {
        {3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3, 1.3731693765509461125e+4,
         4.5921953931549871457e+4, 6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3},
        {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3, 2.1213794301586595867e+4,
         3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3}};
    static const Quotient near = {
        {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
         1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4},
        {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
         1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9}};
    static const Quotient far = {
        {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
         2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7},
        {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
         1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15}};
    if (!(p > 0 && p < 1)) return p == 0 ? -(double)INFINITY : p == 1 ? (double)INFINITY : (double)NAN;
    double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        double r = 0.180625 - q * q;
        return q * polynomial7(middle.over, r) / polynomial7(middle.under, r);
    }
    double root = sqrt(-log(q < 0 ? p : 1 - p)), r = root <= 5 ? root - 1.6 : root - 5;
    const Quotient *tail = root <= 5 ? &near : &far;
    return copysign(polynomial7(tail->over, r) / polynomial7(tail->under, r), q);
}
