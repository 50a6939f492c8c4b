/* The steps of ctc.c for one format and instruction set; see ctc.h for rows, emissions and skips. The includer defines
 *   T (stored type), REAL (its value type), EXP(x) for x up to 0, EXP_ANY(x), LOG(x) for x from 1 to 3, all of float64 at least to T's
 *   precision, K(name) kernel name, TARGET function attribute. K and TARGET are undefined again. */

/* Terms are taken relative to the largest, whose own is then exactly 1; none of a sum that is 0 has a largest. */
TARGET static inline double K(log_of)(double sum, double top) {
    double v = sum >= 1.0 ? LOG(sum) + top : sum;
    return sum == 0.0 ? -(double)INFINITY : v;
}

TARGET static inline double K(join_2)(double a, double b) {
    double top = a > b ? a : b, from = top == -(double)INFINITY ? 0.0 : top;
    return K(log_of)(EXP(a - from) + EXP(b - from), from);
}

TARGET static inline double K(join_3)(double a, double b, double c) {
    double top = a > b ? a : b, from;
    top = top > c ? top : c;
    from = top == -(double)INFINITY ? 0.0 : top;
    return K(log_of)((EXP(a - from) + EXP(b - from)) + EXP(c - from), from);
}

TARGET static void K(forward)(const double *before, double *now, const double *emit, const double *skip, double blank,
                              int64_t w) {
    IVDEP for (int64_t j = 0; j < w; j++) now[j] = K(join_3)(before[j], before[w + j - 1], before[j - 1] + skip[j]) + emit[j];
    IVDEP for (int64_t j = 0; j < w; j++) now[w + j] = K(join_2)(before[w + j], before[j]) + blank;
}

TARGET static void K(backward)(const double *after, double *now, const double *alpha, double *share, const double *emit,
                               const double *skip, double blank, double loss, int64_t w) {
    IVDEP for (int64_t j = 0; j < w; j++) {
        double rest = K(join_3)(after[j], after[w + j], after[j + 1] + skip[j + 1]), part = EXP((alpha[j] + rest) + loss);
        share[j] = emit[j] == -(double)INFINITY ? 0.0 : part;
        now[j] = rest + emit[j];
    }
    IVDEP for (int64_t j = 0; j < w; j++) {
        double rest = K(join_2)(after[w + j], after[j + 1]), part = EXP((alpha[w + j] + rest) + loss);
        share[w + j] = blank == -(double)INFINITY ? 0.0 : part;
        now[w + j] = rest + blank;
    }
}

TARGET static void K(slope)(const char *log_probs, char *out, const double *expected, double grad, int64_t n) {
    const T *x = (const T *)(const void *)log_probs;
    T *d = (T *)(void *)out;
    IVDEP for (int64_t c = 0; c < n; c++) d[c] = (REAL)((EXP_ANY((double)x[c]) - expected[c]) * grad);
}

static const CtcKernels K(kernels) = {K(forward), K(backward), K(slope)};

#undef K
#undef TARGET
