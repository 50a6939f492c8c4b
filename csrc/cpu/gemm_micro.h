/* One family of micro-kernels; included once per (instruction set, number type) with these macros:
 *
 *     S, V, LANES      scalar, vector, elements per vector
 *     ROWS             most rows of a tile
 *     TARGET           function attributes
 *     BROADCAST LOAD STORE MULTIPLY_ADD      on V; MULTIPLY_ADD(x, y, sum)
 *     FAMILY           name of the MicroSet that is defined
 *
 * A kernel forms a tile of `rows` (1..ROWS) by `vectors` (1 or 2) * LANES in registers:
 *
 *                      b[k]:   | v0 v0 v0 v0 | v1 v1 v1 v1 |      two loads per k
 *                              +-------------+-------------+
 *     a[0][k] broadcast   x    |   sum[0][0] |   sum[0][1] |
 *     a[1][k]             x    |   sum[1][0] |   sum[1][1] |      rows * 2 multiply-adds per k, all independent
 *     ...
 *
 * Each element is one chain over k, and the chain goes on from c if `add`: so the result depends neither on the blocking over k nor on
 * where in which tile the element lies. `a` may have any strides: packed blocks and small operands in place use the same kernel. The
 * rows of `b` follow each other at one distance, or lie wherever `at` says. K may come in lines, `a_line` apart in `a`. On the way,
 * memory that a later call reads may be brought near, `ahead_step` bytes per k. The rows of `a` are reached as base, base + stride, base + 2 * stride from one pointer per three rows, which the addressing
 * modes give for free. */
#define CONCAT_(a, b)   a##b
#define CONCAT(a, b)    CONCAT_(a, b)
#define BODY            CONCAT(body_, FAMILY)
#define KERNEL(r, v)    CONCAT(kernel_##r##x##v##_, FAMILY)
#define KERNEL_AT(r, v) CONCAT(kernel_at_##r##x##v##_, FAMILY)
#define KERNEL_IN(r, v) CONCAT(kernel_in_##r##x##v##_, FAMILY)
#define KERNEL_AHEAD(r) CONCAT(kernel_ahead_##r##_, FAMILY)

TARGET static inline __attribute__((always_inline)) void BODY(const int rows, const int vectors, int64_t lines, int64_t line,
                                                              const void *a_data, int64_t a_row, int64_t a_col, int64_t a_line,
                                                              const void *b_data, int64_t b_row, const bool placed,
                                                              const int32_t *at, int64_t second, void *c_data, int64_t c_row,
                                                              bool add, const bool early, const char *ahead, int64_t ahead_step) {
    const S *a[(ROWS + 2) / 3], *b = b_data, *const b_base = b_data;
    S *c = c_data;
    V sum[ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < (rows + 2) / 3; i++) a[i] = (const S *)a_data + 3 * i * a_row;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) sum[i][j] = BROADCAST(0);
    if (add) {
        const S *from = c;
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++, from += c_row)
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) sum[i][j] = LOAD(from + j * LANES);
    }
    for (; lines > 0; lines--) {
        for (int64_t k = line; k > 0; k--) {
            V right[2];
            if (placed) b = b_base + *at++;
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) right[j] = LOAD(b + j * (placed ? second : LANES));
            if (!placed) b += b_row;
            if (early) {
                __builtin_prefetch(ahead, 0, 2);
                ahead += ahead_step;
            }
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                V left = BROADCAST(a[i / 3][(i % 3) * a_row]);
#pragma GCC unroll 2
                for (int j = 0; j < vectors; j++) sum[i][j] = MULTIPLY_ADD(left, right[j], sum[i][j]);
            }
#pragma GCC unroll 8
            for (int i = 0; i < (rows + 2) / 3; i++) a[i] += a_col;
        }
        if (lines == 1) break;
#pragma GCC unroll 8
        for (int i = 0; i < (rows + 2) / 3; i++) a[i] += a_line - line * a_col;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, c += c_row)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) STORE(c + j * LANES, sum[i][j]);
}

#define KERNEL_BODY(r, v) \
    TARGET static void KERNEL(r, v)(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row, \
                                    void *c, int64_t c_row, bool add) { \
        BODY(r, v, 1, k, a, a_row, a_col, 0, b, b_row, false, NULL, 0, c, c_row, add, false, NULL, 0); \
    } \
    TARGET static void KERNEL_AT(r, v)(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, const int32_t *at, \
                                       int64_t second, void *c, int64_t c_row, bool add) { \
        BODY(r, v, 1, k, a, a_row, a_col, 0, b, 0, true, at, second, c, c_row, add, false, NULL, 0); \
    } \
    TARGET static void KERNEL_IN(r, v)(int64_t lines, int64_t line, const void *a, int64_t a_row, int64_t a_col, int64_t a_line, \
                                       const void *b, int64_t b_row, void *c, int64_t c_row, bool add) { \
        BODY(r, v, lines, line, a, a_row, a_col, a_line, b, b_row, false, NULL, 0, c, c_row, add, false, NULL, 0); \
    }
#define KERNEL_EARLY(r) \
    TARGET static void KERNEL_AHEAD(r)(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row, \
                                       void *c, int64_t c_row, bool add, const void *ahead, int64_t ahead_step) { \
        BODY(r, 2, 1, k, a, a_row, a_col, 0, b, b_row, false, NULL, 0, c, c_row, add, true, ahead, ahead_step); \
    }
#define KERNEL_PAIR(r)        KERNEL_BODY(r, 1) KERNEL_BODY(r, 2) KERNEL_EARLY(r)
#define KERNEL_ENTRY(r)       {KERNEL(r, 1), KERNEL(r, 2)},
#define KERNEL_AT_ENTRY(r)    {KERNEL_AT(r, 1), KERNEL_AT(r, 2)},
#define KERNEL_IN_ENTRY(r)    {KERNEL_IN(r, 1), KERNEL_IN(r, 2)},
#define KERNEL_AHEAD_ENTRY(r) KERNEL_AHEAD(r),

/* No statement ends these lines, which the formatter does not understand. */
/* clang-format off */
KERNEL_PAIR(1) KERNEL_PAIR(2) KERNEL_PAIR(3) KERNEL_PAIR(4) KERNEL_PAIR(5) KERNEL_PAIR(6)
#if ROWS == 14
KERNEL_PAIR(7) KERNEL_PAIR(8) KERNEL_PAIR(9) KERNEL_PAIR(10) KERNEL_PAIR(11) KERNEL_PAIR(12) KERNEL_PAIR(13) KERNEL_PAIR(14)
#endif

static const MicroFn CONCAT(fn_, FAMILY)[ROWS][2] = {
    KERNEL_ENTRY(1) KERNEL_ENTRY(2) KERNEL_ENTRY(3) KERNEL_ENTRY(4) KERNEL_ENTRY(5) KERNEL_ENTRY(6)
#if ROWS == 14
    KERNEL_ENTRY(7) KERNEL_ENTRY(8) KERNEL_ENTRY(9) KERNEL_ENTRY(10) KERNEL_ENTRY(11) KERNEL_ENTRY(12) KERNEL_ENTRY(13) KERNEL_ENTRY(14)
#endif
};
static const MicroAtFn CONCAT(at_, FAMILY)[ROWS][2] = {
    KERNEL_AT_ENTRY(1) KERNEL_AT_ENTRY(2) KERNEL_AT_ENTRY(3) KERNEL_AT_ENTRY(4) KERNEL_AT_ENTRY(5) KERNEL_AT_ENTRY(6)
#if ROWS == 14
    KERNEL_AT_ENTRY(7) KERNEL_AT_ENTRY(8) KERNEL_AT_ENTRY(9) KERNEL_AT_ENTRY(10) KERNEL_AT_ENTRY(11) KERNEL_AT_ENTRY(12) KERNEL_AT_ENTRY(13) KERNEL_AT_ENTRY(14)
#endif
};
static const MicroInFn CONCAT(in_, FAMILY)[ROWS][2] = {
    KERNEL_IN_ENTRY(1) KERNEL_IN_ENTRY(2) KERNEL_IN_ENTRY(3) KERNEL_IN_ENTRY(4) KERNEL_IN_ENTRY(5) KERNEL_IN_ENTRY(6)
#if ROWS == 14
    KERNEL_IN_ENTRY(7) KERNEL_IN_ENTRY(8) KERNEL_IN_ENTRY(9) KERNEL_IN_ENTRY(10) KERNEL_IN_ENTRY(11) KERNEL_IN_ENTRY(12) KERNEL_IN_ENTRY(13) KERNEL_IN_ENTRY(14)
#endif
};
static const MicroAheadFn CONCAT(ahead_, FAMILY)[ROWS] = {
    KERNEL_AHEAD_ENTRY(1) KERNEL_AHEAD_ENTRY(2) KERNEL_AHEAD_ENTRY(3) KERNEL_AHEAD_ENTRY(4) KERNEL_AHEAD_ENTRY(5) KERNEL_AHEAD_ENTRY(6)
#if ROWS == 14
    KERNEL_AHEAD_ENTRY(7) KERNEL_AHEAD_ENTRY(8) KERNEL_AHEAD_ENTRY(9) KERNEL_AHEAD_ENTRY(10) KERNEL_AHEAD_ENTRY(11) KERNEL_AHEAD_ENTRY(12) KERNEL_AHEAD_ENTRY(13) KERNEL_AHEAD_ENTRY(14)
#endif
};
/* clang-format on */

const MicroSet FAMILY = {.rows = ROWS,
                         .lanes = LANES,
                         .step = 1,
                         .speed = 1,
                         .fn = CONCAT(fn_, FAMILY),
                         .at = CONCAT(at_, FAMILY),
                         .in = CONCAT(in_, FAMILY),
                         .ahead = CONCAT(ahead_, FAMILY)};

#undef S
#undef V
#undef LANES
#undef ROWS
#undef BROADCAST
#undef LOAD
#undef STORE
#undef MULTIPLY_ADD
#undef FAMILY
#undef TARGET
#undef CONCAT_
#undef CONCAT
#undef BODY
#undef KERNEL
#undef KERNEL_AT
#undef KERNEL_IN
#undef KERNEL_BODY
#undef KERNEL_PAIR
#undef KERNEL_ENTRY
#undef KERNEL_AT_ENTRY
#undef KERNEL_IN_ENTRY
#undef KERNEL_EARLY
#undef KERNEL_AHEAD
#undef KERNEL_AHEAD_ENTRY
