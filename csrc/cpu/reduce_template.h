/* Fold kernels for one instruction set: needs K(name), TARGET. Sixteen lanes whatever the vector width, combined as a tree, so that all
 * sets add in the same order; twice as many while there are enough values, so that additions do not wait for each other. */

/* Sums of float32 and 16-bit numbers: eight values of a lane are added as a tree in float32, the trees in float64. Three roundings to
 * 24 bits then stand between a value and its sum, however long the sum is, and the additions keep up with the memory. What leaves
 * float32's range is summed again by the fold in float64 alone, which gives the same where nothing overflows. */
#define EIGHT(T, at, by) \
    float v0[16], v1[16], v2[16], v3[16], v4[16], v5[16], v6[16], v7[16]; \
    K(load_##T)(v0, (const T *)(const void *)(at)), K(load_##T)(v1, (const T *)(const void *)((at) + (by))); \
    K(load_##T)(v2, (const T *)(const void *)((at) + 2 * (by))), K(load_##T)(v3, (const T *)(const void *)((at) + 3 * (by))); \
    K(load_##T)(v4, (const T *)(const void *)((at) + 4 * (by))), K(load_##T)(v5, (const T *)(const void *)((at) + 5 * (by))); \
    K(load_##T)(v6, (const T *)(const void *)((at) + 6 * (by))), K(load_##T)(v7, (const T *)(const void *)((at) + 7 * (by)));
#define TREE(l) (((v0[l] + v1[l]) + (v2[l] + v3[l])) + ((v4[l] + v5[l]) + (v6[l] + v7[l])))
/* acc0 and acc1 hold sixteen lanes: of an array the compiler would keep some lanes apart. */
#define ADD_LANES(value) \
    do { \
        Double8 low, high; \
        double wide[AMP_FOLD_LANES]; \
        for (int l = 0; l < AMP_FOLD_LANES; l++) wide[l] = (double)(value); \
        memcpy(&low, wide, sizeof low), memcpy(&high, wide + 8, sizeof high); \
        acc0 += low, acc1 += high; \
    } while (0)
#define ADD_EIGHT(T, at, by) \
    do { \
        EIGHT(T, at, by) \
        ADD_LANES(TREE(l)); \
    } while (0)
#define ADD_ONE(T, at) \
    do { \
        float one[AMP_FOLD_LANES]; \
        K(load_##T)(one, (const T *)(const void *)(at)); \
        ADD_LANES(one[l]); \
    } while (0)
/* The last sixteen of n values, of which those from lane *first on are not taken yet: [i, n). Of fewer than sixteen `few` is made. */
#define LAST_ONES(T, data, n, i, few, first) (const T *)last_ones(data, n, i, sizeof(T), few, first)
#define BLOCKED_SUM(X, T) \
    FOLD(wide_sum_##X, T, float, double, 0, ADD, (double)v) \
    TARGET static void K(fold_sum_##X)(void *acc, const char *data, int64_t n, const double *num) { \
        const int64_t item = (int64_t)sizeof(T), row = AMP_FOLD_LANES * item; \
        Double8 acc0 = {0}, acc1 = {0}; \
        double *total = acc; \
        int64_t i = 0; \
        for (; i + 8 * AMP_FOLD_LANES <= n; i += 8 * AMP_FOLD_LANES) ADD_EIGHT(T, data + i * item, row); \
        for (; i + AMP_FOLD_LANES <= n; i += AMP_FOLD_LANES) ADD_ONE(T, data + i * item); \
        if (i < n) { \
            T few[AMP_FOLD_LANES]; \
            float one[AMP_FOLD_LANES]; \
            int first; \
            const T *last = LAST_ONES(T, data, n, i, few, &first); \
            K(load_##T)(one, last); \
            for (int l = 0; l < AMP_FOLD_LANES; l++) one[l] = l >= first ? one[l] : 0.0f; \
            ADD_LANES(one[l]); \
        } \
        acc0 += acc1; \
        const Double4 half = {acc0[0] + acc0[4], acc0[1] + acc0[5], acc0[2] + acc0[6], acc0[3] + acc0[7]}; \
        const double sum = (half[0] + half[2]) + (half[1] + half[3]); \
        if (fabs(sum) < (double)INFINITY) *total += sum; \
        else K(fold_wide_sum_##X)(acc, data, n, num); \
    } \
    TARGET static void K(rows_sum_##X)(void *acc, const char *data, int64_t n, int64_t rows, int64_t step, const double *num) { \
        double *a = acc; \
        int64_t c = 0, item = (int64_t)sizeof(T); \
        for (; rows >= 8 && c + AMP_FOLD_LANES <= n; c += AMP_FOLD_LANES) { \
            Double8 acc0, acc1; \
            const char *at = data + c * item; \
            int64_t r = 0; \
            memcpy(&acc0, a + c, sizeof acc0), memcpy(&acc1, a + c + 8, sizeof acc1); \
            for (; r + 8 <= rows; r += 8, at += 8 * step) ADD_EIGHT(T, at, step); \
            for (; r < rows; r++, at += step) ADD_ONE(T, at); \
            const Double8 zero = {0}, left = (acc0 - acc0) + (acc1 - acc1); /* NaN where a sum isn't finite */ \
            if (memcmp(&left, &zero, sizeof left) == 0) \
                memcpy(a + c, &acc0, sizeof acc0), memcpy(a + c + 8, &acc1, sizeof acc1); \
            else K(rows_wide_sum_##X)(a + c, data + c * item, AMP_FOLD_LANES, rows, step, num); \
        } \
        if (c < n) K(rows_wide_sum_##X)(a + c, data + c * item, n - c, rows, step, num); \
    }

#define FOLD(name, T, VALUE, ACC, identity, COMBINE, mapped) FOLD_BY(name, T, VALUE, ACC, identity, COMBINE, mapped, true)
/* EACH: a value is quickly mapped, those that do not count, too. */
/* Left a loop until it is vectorised. */
#define HALVE(w, COMBINE) _Pragma("GCC unroll 1") for (int l = 0; l < w; l++) lane[l] = COMBINE(lane[l], lane[l + w]);
#define EACH_LANE         _Pragma("GCC unroll 1") for (int l = 0; l < AMP_FOLD_LANES; l++)
#define FOLD_BY(name, T, VALUE, ACC, identity, COMBINE, mapped, EACH) \
    TARGET static void K(fold_##name)(void *acc, const char *data, int64_t n, const double *num) { \
        const T *x = (const T *)(const void *)data; \
        ACC lane[AMP_FOLD_LANES], wide[2 * AMP_FOLD_LANES], *total = acc; \
        int64_t i = 0; \
        (void)num; \
        EACH_LANE lane[l] = identity; \
        if (n >= 4 * AMP_FOLD_LANES) { \
            for (int l = 0; l < 2 * AMP_FOLD_LANES; l++) wide[l] = identity; \
            for (; i + 2 * AMP_FOLD_LANES <= n; i += 2 * AMP_FOLD_LANES) \
                for (int l = 0; l < 2 * AMP_FOLD_LANES; l++) { \
                    VALUE v = get_##T(x + i + l); \
                    wide[l] = COMBINE(wide[l], mapped); \
                } \
            EACH_LANE lane[l] = COMBINE(wide[l], wide[l + AMP_FOLD_LANES]); \
        } \
        for (; i + AMP_FOLD_LANES <= n; i += AMP_FOLD_LANES) EACH_LANE { \
                VALUE v = get_##T(x + i + l); \
                lane[l] = COMBINE(lane[l], mapped); \
            } \
        if (i < n) { \
            T few[AMP_FOLD_LANES]; \
            int first; \
            const T *last = LAST_ONES(T, data, n, i, few, &first); \
            _Pragma("GCC unroll 1") for (int l = EACH ? 0 : first; l < AMP_FOLD_LANES; l++) { \
                VALUE v = get_##T(last + l); \
                ACC c = COMBINE(lane[l], mapped); \
                lane[l] = l >= first ? c : lane[l]; \
            } \
        } \
        HALVE(8, COMBINE) HALVE(4, COMBINE) HALVE(2, COMBINE) HALVE(1, COMBINE) *total = COMBINE(*total, lane[0]); \
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
#define NARROW_FOLDS(X, T, VALUE)                                                                                \
    FOLD(max_##X, T, VALUE, VALUE, -(VALUE)INFINITY, MAX, v)                                                     \
    FOLD(min_##X, T, VALUE, VALUE, (VALUE)INFINITY, MIN, v)                                                      \
    FOLD(count_##X, T, VALUE, int64_t, 0, ADD, (v != 0))                                                         \
    FOLD(abs_sum_##X, T, VALUE, double, 0, ADD, fabs((double)v))                                                 \
    FOLD(abs_max_##X, T, VALUE, double, 0, MAX, fabs((double)v))                                                 \
    FOLD(abs_min_##X, T, VALUE, double, (double)INFINITY, MIN, fabs((double)v))                                  \
    FOLD(squares_##X, T, VALUE, double, 0, ADD, square((double)v * num[0]))                                      \
    FOLD(deviation_##X, T, VALUE, double, 0, ADD, square((double)v - num[0]))
#define FLOAT_FOLDS(X, T, VALUE)                                                                                 \
    NARROW_FOLDS(X, T, VALUE)                                                                                    \
    FOLD(prod_##X, T, VALUE, double, 1, MUL, (double)v)
FLOAT_FOLDS(f32, F32, float)
FLOAT_FOLDS(f64, F64, double)
FOLD(powers_f32, F32, float, double, 0, ADD, power((double)v * num[0], num[1]))
FOLD_BY(powers_f64, F64, double, double, 0, ADD, pow(fabs(v * num[0]), num[1]), false)
NARROW_FOLDS(b16, B16, float)
NARROW_FOLDS(h16, H16, float)
BLOCKED_SUM(f32, F32)
BLOCKED_SUM(b16, B16)
BLOCKED_SUM(h16, H16)
FOLD(sum_f64, F64, double, double, 0, ADD, v)
FOLD(sum_i32, I32, int32_t, int64_t, 0, WRAP_ADD, (int64_t)v)
FOLD(max_i32, I32, int32_t, int32_t, INT32_MIN, MAX, v)
FOLD(min_i32, I32, int32_t, int32_t, INT32_MAX, MIN, v)
FOLD(count_i32, I32, int32_t, int64_t, 0, ADD, (v != 0))
FOLD(count_bool, U8, uint8_t, int64_t, 0, ADD, (v != 0))
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
#define NARROW_ENTRIES(X)                                                                                        \
    ENTRY(SUM, sum_##X, FLOAT64), ENTRY(SUM_WIDE, wide_sum_##X, FLOAT64), ENTRY(MAX, max_##X, FLOAT32),            \
    ENTRY(MIN, min_##X, FLOAT32), COMMON_ENTRIES(X)
#define COMMON_ENTRIES(X)                                                                                        \
    ENTRY(COUNT, count_##X, INT64), ENTRY(ABS_SUM, abs_sum_##X, FLOAT64), ENTRY(ABS_MAX, abs_max_##X, FLOAT64),  \
    ENTRY(ABS_MIN, abs_min_##X, FLOAT64), ENTRY(SQUARES, squares_##X, FLOAT64), ENTRY(DEVIATION, deviation_##X, FLOAT64)
#define FLOAT_ENTRIES(X, DT)                                                                                     \
    ENTRY(SUM, sum_##X, FLOAT64), ENTRY(PROD, prod_##X, FLOAT64), ENTRY(MAX, max_##X, DT), ENTRY(MIN, min_##X, DT), \
    ENTRY(POWERS, powers_##X, FLOAT64), COMMON_ENTRIES(X)
static const FoldKernel K(table)[AMP_DTYPE_COUNT][FOLD_KINDS] = {
    [AMP_FLOAT32] = {FLOAT_ENTRIES(f32, FLOAT32), ENTRY(SUM_WIDE, wide_sum_f32, FLOAT64)},
    [AMP_FLOAT64] = {FLOAT_ENTRIES(f64, FLOAT64), ENTRY(SUM_WIDE, sum_f64, FLOAT64)},
    [AMP_INT64] = {ENTRY(SUM, sum_i64, INT64), ENTRY(PROD, prod_i64, INT64), ENTRY(MAX, max_i64, INT64),
                   ENTRY(MIN, min_i64, INT64), ENTRY(COUNT, count_i64, INT64)},
    [AMP_COMPLEX128] = {ENTRY(SUM, sum_c128, COMPLEX128), ENTRY(PROD, prod_c128, COMPLEX128), ENTRY(COUNT, count_c128, INT64)},
    [AMP_BFLOAT16] = {NARROW_ENTRIES(b16)},
    [AMP_FLOAT16] = {NARROW_ENTRIES(h16)},
    [AMP_INT32] = {ENTRY(SUM, sum_i32, INT64), ENTRY(MAX, max_i32, INT32), ENTRY(MIN, min_i32, INT32),
                   ENTRY(COUNT, count_i32, INT64)},
    [AMP_BOOL] = {ENTRY(COUNT, count_bool, INT64)},
};
/* clang-format on */

#undef FOLD
#undef FOLD_BY
#undef EACH_LANE
#undef HALVE
#undef LAST_ONES
#undef EIGHT
#undef TREE
#undef ADD_LANES
#undef ADD_EIGHT
#undef ADD_ONE
#undef BLOCKED_SUM
#undef NARROW_FOLDS
#undef FLOAT_FOLDS
#undef ENTRY
#undef NARROW_ENTRIES
#undef COMMON_ENTRIES
#undef FLOAT_ENTRIES
#undef K
#undef TARGET
