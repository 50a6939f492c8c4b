/* Fold kernels for one instruction set: needs K(name), TARGET. Sixteen lanes whatever the vector width, combined as a tree, so that all
 * sets add in the same order; twice as many while there are enough values, so that additions do not wait for each other. */

#define FOLD(name, T, VALUE, ACC, identity, COMBINE, mapped) \
    TARGET static void K(fold_##name)(void *acc, const char *data, int64_t n, const double *num) { \
        const T *x = (const T *)(const void *)data; \
        ACC lane[AMP_FOLD_LANES], wide[2 * AMP_FOLD_LANES], *total = acc; \
        int64_t i = 0; \
        (void)num; \
        for (int l = 0; l < AMP_FOLD_LANES; l++) lane[l] = identity; \
        if (n >= 4 * AMP_FOLD_LANES) { \
            for (int l = 0; l < 2 * AMP_FOLD_LANES; l++) wide[l] = identity; \
            for (; i + 2 * AMP_FOLD_LANES <= n; i += 2 * AMP_FOLD_LANES) \
                for (int l = 0; l < 2 * AMP_FOLD_LANES; l++) { \
                    VALUE v = get_##T(x + i + l); \
                    wide[l] = COMBINE(wide[l], mapped); \
                } \
            for (int l = 0; l < AMP_FOLD_LANES; l++) lane[l] = COMBINE(wide[l], wide[l + AMP_FOLD_LANES]); \
        } \
        for (; i + AMP_FOLD_LANES <= n; i += AMP_FOLD_LANES) \
            for (int l = 0; l < AMP_FOLD_LANES; l++) { \
                VALUE v = get_##T(x + i + l); \
                lane[l] = COMBINE(lane[l], mapped); \
            } \
        for (int l = 0; i < n; i++, l++) { \
            VALUE v = get_##T(x + i); \
            lane[l] = COMBINE(lane[l], mapped); \
        } \
        for (int w = AMP_FOLD_LANES / 2; w; w /= 2) \
            for (int l = 0; l < w; l++) lane[l] = COMBINE(lane[l], lane[l + w]); \
        *total = COMBINE(*total, lane[0]); \
    } \
    TARGET static void K(rows_##name)(void *acc, const char *data, int64_t n, int64_t rows, int64_t step, const double *num) { \
        ACC *a = acc; \
        int64_t c = 0; \
        (void)num; \
        for (; rows > 1 && c + AMP_FOLD_COLUMNS <= n; c += AMP_FOLD_COLUMNS) { \
            ACC column[AMP_FOLD_COLUMNS]; \
            const char *at = data + c * (int64_t)sizeof(T); \
            for (int l = 0; l < AMP_FOLD_COLUMNS; l++) column[l] = a[c + l]; \
            for (int64_t r = 0; r < rows; r++, at += step) { \
                const T *x = (const T *)(const void *)at; \
                for (int l = 0; l < AMP_FOLD_COLUMNS; l++) { \
                    VALUE v = get_##T(x + l); \
                    column[l] = COMBINE(column[l], mapped); \
                } \
            } \
            for (int l = 0; l < AMP_FOLD_COLUMNS; l++) a[c + l] = column[l]; \
        } \
        for (int64_t r = 0; r < rows; r++, data += step) { \
            const T *x = (const T *)(const void *)data; \
            IVDEP for (int64_t i = c; i < n; i++) { \
                VALUE v = get_##T(x + i); \
                a[i] = COMBINE(a[i], mapped); \
            } \
        } \
    }

/* clang-format off */
#define FLOAT_FOLDS(X, T, VALUE)                                                                                 \
    FOLD(sum_##X, T, VALUE, double, 0, ADD, (double)v)                                                           \
    FOLD(prod_##X, T, VALUE, double, 1, MUL, (double)v)                                                          \
    FOLD(max_##X, T, VALUE, VALUE, -(VALUE)INFINITY, MAX, v)                                                     \
    FOLD(min_##X, T, VALUE, VALUE, (VALUE)INFINITY, MIN, v)                                                      \
    FOLD(count_##X, T, VALUE, int64_t, 0, ADD, (v != 0))                                                         \
    FOLD(abs_sum_##X, T, VALUE, double, 0, ADD, fabs((double)v))                                                 \
    FOLD(abs_max_##X, T, VALUE, double, 0, MAX, fabs((double)v))                                                 \
    FOLD(abs_min_##X, T, VALUE, double, (double)INFINITY, MIN, fabs((double)v))                                  \
    FOLD(squares_##X, T, VALUE, double, 0, ADD, square((double)v * num[0]))                                      \
    FOLD(powers_##X, T, VALUE, double, 0, ADD, pow(fabs((double)v * num[0]), num[1]))                            \
    FOLD(deviation_##X, T, VALUE, double, 0, ADD, square((double)v - num[0]))
FLOAT_FOLDS(f32, F32, float)
FLOAT_FOLDS(f64, F64, double)
FOLD(sum_b16, B16, float, double, 0, ADD, (double)v)
FOLD(sum_i64, I64, int64_t, int64_t, 0, WRAP_ADD, v)
FOLD(prod_i64, I64, int64_t, int64_t, 1, WRAP_MUL, v)
FOLD(max_i64, I64, int64_t, int64_t, INT64_MIN, MAX, v)
FOLD(min_i64, I64, int64_t, int64_t, INT64_MAX, MIN, v)
FOLD(count_i64, I64, int64_t, int64_t, 0, ADD, (v != 0))
/* Complex products only for the baseline set: gcc 12 fuses a multiplication with an alternating add and subtract even where
 * contraction is off, if the target can. */
#undef TARGET
#define TARGET
FOLD(sum_c128, C128, AmpComplex, AmpComplex, ((AmpComplex){0, 0}), amp_c128_add, v)
FOLD(prod_c128, C128, AmpComplex, AmpComplex, ((AmpComplex){1, 0}), amp_c128_mul, v)
FOLD(count_c128, C128, AmpComplex, int64_t, 0, ADD, (v.re != 0 || v.im != 0))

#define ENTRY(kind, name, acc_dtype) [FOLD_##kind] = {K(fold_##name), K(rows_##name), AMP_##acc_dtype}
#define FLOAT_ENTRIES(X, DT)                                                                                     \
    ENTRY(SUM, sum_##X, FLOAT64), ENTRY(PROD, prod_##X, FLOAT64), ENTRY(MAX, max_##X, DT), ENTRY(MIN, min_##X, DT), \
    ENTRY(COUNT, count_##X, INT64), ENTRY(ABS_SUM, abs_sum_##X, FLOAT64), ENTRY(ABS_MAX, abs_max_##X, FLOAT64),  \
    ENTRY(ABS_MIN, abs_min_##X, FLOAT64), ENTRY(SQUARES, squares_##X, FLOAT64), ENTRY(POWERS, powers_##X, FLOAT64), \
    ENTRY(DEVIATION, deviation_##X, FLOAT64)
static const FoldKernel K(table)[5][FOLD_KINDS] = {
    {FLOAT_ENTRIES(f32, FLOAT32)},
    {FLOAT_ENTRIES(f64, FLOAT64)},
    {ENTRY(SUM, sum_i64, INT64), ENTRY(PROD, prod_i64, INT64), ENTRY(MAX, max_i64, INT64), ENTRY(MIN, min_i64, INT64),
     ENTRY(COUNT, count_i64, INT64)},
    {ENTRY(SUM, sum_c128, COMPLEX128), ENTRY(PROD, prod_c128, COMPLEX128), ENTRY(COUNT, count_c128, INT64)},
    {ENTRY(SUM, sum_b16, FLOAT64)},
};
/* clang-format on */

#undef FOLD
#undef FLOAT_FOLDS
#undef ENTRY
#undef FLOAT_ENTRIES
#undef K
#undef TARGET
