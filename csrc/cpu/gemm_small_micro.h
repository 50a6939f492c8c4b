/* One family of micro-kernels for small products; included once per number type with these macros:
 *
 *     FAMILY                 name of the table that is defined
 *     TARGET                 function attributes
 *     MULTIPLY_ADD           (x, y, sum) on __m512
 *     NARROW(x)              16 values in the family's 16-bit type, __m256i
 *     NARROW_TWO(x, y)       32 values, __m512i
 *     ROUND(x)               fp32 through that type
 *     ROUND_TWO(x, y)        the same of two __m512 *, in place
 *     NARROWS_DENORMALS      whether these three are right for denormal values
 *
 * As in gemm_micro.h, a tile lies in registers, rows (1..14) by vectors (1 or 2) of 16 columns, or rows (1..9) by 3 vectors, and each
 * element is one chain over k. The differences are what a short k asks for: the chain is never interrupted, so it starts at zero and ends in
 * the result itself, with bias and rounding done in registers; and the columns that are used are a mask, so that neither b nor the result
 * has to be padded. */
#define CONCAT_(a, b) a##b
#define CONCAT(a, b)  CONCAT_(a, b)
#define BODY          CONCAT(body_, FAMILY)
#define FINISH        CONCAT(finish_, FAMILY)
#define ONE_BY_ONE    CONCAT(one_by_one_, FAMILY)
#define KERNEL(r, v)  CONCAT(kernel_##r##x##v##_, FAMILY)

#if !NARROWS_DENORMALS
/* The exact rounding, for tiles in which the fast one could meet a denormal. */
TARGET static __attribute__((noinline)) void ONE_BY_ONE(const SmallTile *t, const float *sums, int rows) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < WIDE_COLS; j++) {
            const float f = sums[i * WIDE_COLS + j];
            if (!(t->mask >> j & 1)) continue;
            if (t->store == SMALL_NARROW) {
                gemm_store(t->c + i * t->c_row + 2 * j, AMP_BFLOAT16, f);
            } else {
                const float rounded = t->store == SMALL_ROUND ? amp_bf16_to_f32(amp_f32_to_bf16(f)) : f;
                memcpy(t->c + i * t->c_row + 4 * j, &rounded, sizeof rounded);
            }
        }
}
#endif

TARGET static inline __attribute__((always_inline)) void FINISH(const int rows, const int vectors, const SmallTile *t,
                                                                __m512 sum[SMALL_ROWS][3]) {
    const uint64_t all = t->mask;
    const __mmask16 mask[3] = {(__mmask16)all, (__mmask16)(all >> 16), (__mmask16)(all >> 32)};
    const __mmask32 two = (__mmask32)all;
    const int64_t c_row = t->c_row;
    char *c = t->c;
    if (t->bias) {
        __m512 bias[3];
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) bias[j] = _mm512_loadu_ps(t->bias + 16 * j);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
            for (int j = 0; j < vectors; j++) sum[i][j] = _mm512_add_ps(sum[i][j], bias[j]);
#if !NARROWS_DENORMALS
        enum { DENORMAL = 0x20 };
        unsigned denormal = 0;
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
            for (int j = 0; j < vectors; j++) denormal |= _mm512_fpclass_ps_mask(sum[i][j], DENORMAL);
        if (__builtin_expect(denormal != 0, 0)) {
            float sums[SMALL_ROWS * WIDE_COLS];
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
                for (int j = 0; j < vectors; j++) _mm512_storeu_ps(sums + i * WIDE_COLS + 16 * j, sum[i][j]);
            ONE_BY_ONE(t, sums, rows);
            return;
        }
#endif
    }
    if (t->store == SMALL_NARROW) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++, c += c_row) {
            if (vectors >= 2) _mm512_mask_storeu_epi16(c, two, NARROW_TWO(sum[i][0], sum[i][1]));
            if (vectors != 2) _mm256_mask_storeu_epi16(c + (vectors - 1) * 32, mask[vectors - 1], NARROW(sum[i][vectors - 1]));
        }
        return;
    }
    if (t->store == SMALL_ROUND) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            if (vectors >= 2) ROUND_TWO(&sum[i][0], &sum[i][1]);
            if (vectors != 2) sum[i][vectors - 1] = ROUND(sum[i][vectors - 1]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, c += c_row)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) _mm512_mask_storeu_ps(c + 64 * j, mask[j], sum[i][j]);
}

TARGET static inline __attribute__((always_inline)) void BODY(const int rows, const int vectors, const SmallTile *t) {
    const int64_t a_row = t->a_row, a_col = t->a_col, b_row = t->b_row;
    const __mmask16 last = (__mmask16)(t->mask >> (16 * (vectors - 1)));
    const char *a[(SMALL_ROWS + 2) / 3], *b = t->b;
    __m512 sum[SMALL_ROWS][3];
#pragma GCC unroll 8
    for (int i = 0; i < (rows + 2) / 3; i++) a[i] = t->a + 3 * i * a_row;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) sum[i][j] = _mm512_setzero_ps();
    for (int64_t k = t->k; k > 0; k--) {
        __m512 right[3];
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++)
            right[j] = j == vectors - 1 ? _mm512_maskz_loadu_ps(last, b + 64 * j) : _mm512_loadu_ps(b + 64 * j);
        b += b_row;
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            float element;
            memcpy(&element, a[i / 3] + (i % 3) * a_row, sizeof element);
            const __m512 left = _mm512_set1_ps(element);
#pragma GCC unroll 3
            for (int j = 0; j < vectors; j++) sum[i][j] = MULTIPLY_ADD(left, right[j], sum[i][j]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < (rows + 2) / 3; i++) a[i] += a_col;
    }
    FINISH(rows, vectors, t, sum);
}

#define KERNEL_PAIR(r) \
    TARGET static void KERNEL(r, 1)(const SmallTile *t) { BODY(r, 1, t); } \
    TARGET static void KERNEL(r, 2)(const SmallTile *t) { BODY(r, 2, t); }
#define KERNEL_WIDE(r) \
    TARGET static void KERNEL(r, 3)(const SmallTile *t) { BODY(r, 3, t); }
#define ENTRY(r) \
    { KERNEL(r, 1), KERNEL(r, 2), NULL }
#define ENTRY_WIDE(r) \
    { KERNEL(r, 1), KERNEL(r, 2), KERNEL(r, 3) }

/* No statement ends these lines, which the formatter does not understand. */
/* clang-format off */
KERNEL_PAIR(1) KERNEL_PAIR(2) KERNEL_PAIR(3) KERNEL_PAIR(4) KERNEL_PAIR(5) KERNEL_PAIR(6) KERNEL_PAIR(7)
KERNEL_PAIR(8) KERNEL_PAIR(9) KERNEL_PAIR(10) KERNEL_PAIR(11) KERNEL_PAIR(12) KERNEL_PAIR(13) KERNEL_PAIR(14)
KERNEL_WIDE(1) KERNEL_WIDE(2) KERNEL_WIDE(3) KERNEL_WIDE(4) KERNEL_WIDE(5) KERNEL_WIDE(6) KERNEL_WIDE(7) KERNEL_WIDE(8) KERNEL_WIDE(9)
    /* clang-format on */

    static const SmallFn FAMILY[SMALL_ROWS][3] = {ENTRY_WIDE(1), ENTRY_WIDE(2), ENTRY_WIDE(3), ENTRY_WIDE(4), ENTRY_WIDE(5),
                                                  ENTRY_WIDE(6), ENTRY_WIDE(7), ENTRY_WIDE(8), ENTRY_WIDE(9), ENTRY(10),
                                                  ENTRY(11),     ENTRY(12),     ENTRY(13),     ENTRY(14)};

#undef CONCAT_
#undef CONCAT
#undef BODY
#undef FINISH
#undef ONE_BY_ONE
#undef KERNEL
#undef KERNEL_PAIR
#undef KERNEL_WIDE
#undef ENTRY
#undef ENTRY_WIDE
#undef FAMILY
#undef TARGET
#undef MULTIPLY_ADD
#undef NARROW
#undef NARROW_TWO
#undef ROUND
#undef ROUND_TWO
#undef NARROWS_DENORMALS
