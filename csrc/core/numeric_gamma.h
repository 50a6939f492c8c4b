/* Functions around gamma and Bessel I, sums of exponentials and the normal quantile, in float64. float32 kernels round their results. */
#ifndef AMP_NUMERIC_GAMMA_H
#define AMP_NUMERIC_GAMMA_H

double amp_lgamma(double x);
double amp_digamma(double x);
double amp_polygamma(double n, double x);  /* the n-th derivative of digamma, n >= 1 */
double amp_bessel_i(int order, double x);  /* order 0 or 1 */
double amp_bessel_ie(int order, double x); /* times exp(-|x|) */
double amp_logaddexp(double a, double b);
double amp_logaddexp2(double a, double b);
double amp_ndtri(double p); /* the x with P(X < x) = p for the normal distribution */

#endif
