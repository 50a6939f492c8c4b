/* The columns of softmax.h for one type and one instruction set; part of softmax_template.h, which sets the macros.
 *
 *        w columns          Each column is a line of its own; vector lanes are columns, so that no value depends on the vector width,
 *     [ x x x x x x ]       on the width of a block or on the columns beside it. Sums run down the rows: two values in their own
 *     [ x x x x x x ]       format, then float64, and groups of rows apart, which keeps the chains short.
 *     [ x x x x x x ]  n rows, `step` bytes apart                                                                              */

#define EACH       IVDEP for (int64_t i = 0; i < w; i++)
#define ROW(p, r)  ((const T *)(const void *)((p) + (r)*p##_step))
#define OROW(p, r) ((T *)(void *)((p) + (r)*p##_step))

TARGET static void K(columns_max)(const char *x, int64_t x_step, int64_t n, int64_t w, REAL *m) {
    int64_t r = 0;
    EACH m[i] = -(REAL)INFINITY;
    for (; r + 4 <= n; r += 4) {
        const T *a = ROW(x, r), *b = ROW(x, r + 1), *c = ROW(x, r + 2), *d = ROW(x, r + 3);
        EACH {
            REAL v = LARGER(a[i], m[i]);
            v = LARGER(b[i], v);
            v = LARGER(c[i], v);
            m[i] = LARGER(d[i], v);
        }
    }
    for (; r < n; r++) {
        const T *a = ROW(x, r);
        EACH m[i] = LARGER(a[i], m[i]);
    }
}

TARGET static void K(columns_exp_sum_group)(const char *x, int64_t x_step, char *out, int64_t out_step, int64_t n, int64_t w,
                                            const REAL *m, double *sum) {
    int64_t r = 0;
    EACH sum[i] = 0.0;
    for (; r + 2 <= n; r += 2) {
        const T *a = ROW(x, r), *b = ROW(x, r + 1);
        if (out) {
            T *o = OROW(out, r), *p = OROW(out, r + 1);
            EACH {
                REAL u = UNIT_EXP(a[i] - m[i]), v = UNIT_EXP(b[i] - m[i]), both = u + v;
                o[i] = u;
                p[i] = v;
                sum[i] += (double)both;
            }
        } else {
            EACH {
                REAL u = UNIT_EXP(a[i] - m[i]), v = UNIT_EXP(b[i] - m[i]), both = u + v;
                sum[i] += (double)both;
            }
        }
    }
    if (r < n) {
        const T *a = ROW(x, r);
        REAL e[AMP_COLUMNS];
        EACH e[i] = UNIT_EXP(a[i] - m[i]);
        EACH sum[i] += (double)e[i];
        if (out) {
            T *o = OROW(out, r);
            EACH o[i] = e[i];
        }
    }
}

TARGET static void K(columns_exp_sum)(const char *x, int64_t x_step, char *out, int64_t out_step, int64_t n, int64_t w,
                                      const REAL *m, double *sum) {
    double part[AMP_COLUMNS];
    EACH sum[i] = 0.0;
    for (int64_t r = 0; r < n; r += COLUMN_GROUP) {
        int64_t rows = n - r < COLUMN_GROUP ? n - r : COLUMN_GROUP;
        K(columns_exp_sum_group)(x + r * x_step, x_step, out ? out + r * out_step : NULL, out_step, rows, w, m, part);
        EACH sum[i] += part[i];
    }
}

/* The sums of g, or of g y. */
TARGET static void K(columns_sum)(const char *g, int64_t g_step, const char *y, int64_t y_step, int64_t n, int64_t w,
                                  double *sum) {
    double part[AMP_COLUMNS];
    EACH sum[i] = 0.0;
    for (int64_t from = 0; from < n; from += COLUMN_GROUP) {
        int64_t to = n - from < COLUMN_GROUP ? n : from + COLUMN_GROUP;
        EACH part[i] = 0.0;
        for (int64_t r = from; r < to; r++) {
            const T *a = ROW(g, r);
            if (y) {
                const T *b = ROW(y, r);
                EACH part[i] += (double)a[i] * (double)b[i];
            } else {
                EACH part[i] += (double)a[i];
            }
        }
        EACH sum[i] += part[i];
    }
}

TARGET static void K(columns_softmax)(const char *x, int64_t x_step, char *out, int64_t out_step, int64_t n, int64_t w) {
    REAL m[AMP_COLUMNS], factor[AMP_COLUMNS];
    double sum[AMP_COLUMNS];
    K(columns_max)(x, x_step, n, w, m);
    K(columns_exp_sum)(x, x_step, out, out_step, n, w, m, sum);
    EACH factor[i] = (REAL)(1.0 / sum[i]);
    for (int64_t r = 0; r < n; r++) {
        T *o = OROW(out, r);
        EACH o[i] = o[i] * factor[i];
    }
}

TARGET static void K(columns_log_softmax)(const char *x, int64_t x_step, char *out, int64_t out_step, int64_t n, int64_t w) {
    REAL m[AMP_COLUMNS], less[AMP_COLUMNS];
    double sum[AMP_COLUMNS];
    K(columns_max)(x, x_step, n, w, m);
    K(columns_exp_sum)(x, x_step, NULL, 0, n, w, m, sum);
    EACH less[i] = (REAL)LOG(sum[i] * (1.0 / UNIT));
    for (int64_t r = 0; r < n; r++) {
        const T *a = ROW(x, r);
        T *o = OROW(out, r);
        EACH o[i] = (a[i] - m[i]) - less[i];
    }
}

TARGET static void K(columns_softmax_grad)(const char *g, int64_t g_step, const char *y, int64_t y_step, char *out,
                                           int64_t out_step, int64_t n, int64_t w) {
    REAL high[AMP_COLUMNS], low[AMP_COLUMNS]; /* the sum in two parts, as for a line */
    double sum[AMP_COLUMNS];
    K(columns_sum)(g, g_step, y, y_step, n, w, sum);
    EACH {
        high[i] = (REAL)sum[i];
        double rest = sum[i] - (double)high[i];
        low[i] = rest == rest ? (REAL)rest : 0;
    }
    for (int64_t r = 0; r < n; r++) {
        const T *a = ROW(g, r), *b = ROW(y, r);
        T *o = OROW(out, r);
        EACH o[i] = b[i] * ((a[i] - high[i]) - low[i]);
    }
}

TARGET static void K(columns_log_softmax_grad)(const char *g, int64_t g_step, const char *y, int64_t y_step, char *out,
                                               int64_t out_step, int64_t n, int64_t w) {
    REAL factor[AMP_COLUMNS];
    double sum[AMP_COLUMNS];
    K(columns_sum)(g, g_step, NULL, 0, n, w, sum);
    EACH factor[i] = (REAL)(sum[i] * (1.0 / UNIT));
    for (int64_t r = 0; r < n; r++) {
        const T *a = ROW(g, r), *b = ROW(y, r);
        T *o = OROW(out, r);
        EACH o[i] = a[i] - UNIT_EXP(b[i]) * factor[i];
    }
}

TARGET static void K(columns_top_sum)(const char *x, int64_t x_step, int64_t n, int64_t w, double *top, double *sum,
                                      double *log_sum) {
    REAL m[AMP_COLUMNS];
    K(columns_max)(x, x_step, n, w, m);
    K(columns_exp_sum)(x, x_step, NULL, 0, n, w, m, sum);
    EACH {
        top[i] = (double)m[i];
        sum[i] = sum[i] * (1.0 / UNIT);
        log_sum[i] = LOG(sum[i]);
    }
}

TARGET static void K(columns_slope)(const char *x, int64_t x_step, char *out, int64_t out_step, int64_t n, int64_t w,
                                    const double *top, const double *factor) {
    REAL m[AMP_COLUMNS], f[AMP_COLUMNS];
    EACH {
        m[i] = (REAL)top[i];
        f[i] = (REAL)(factor[i] * (1.0 / UNIT));
    }
    for (int64_t r = 0; r < n; r++) {
        const T *a = ROW(x, r);
        T *o = OROW(out, r);
        EACH o[i] = UNIT_EXP(a[i] - m[i]) * f[i];
    }
}

#undef EACH
#undef ROW
#undef OROW
