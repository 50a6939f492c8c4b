/* Products with at most GEMM_SKINNY rows of a: b is read once, so copying it would cost more than multiplying it.
 *
 *     b dense along k (x @ W^T): dot products
 *     b dense along n (x @ W):   DEPTH rows of b are added to the row sums per pass, in the order of k
 *
 *          a0 a1 ...    x   b0: |----------- COLS -----------|
 *                           b1: |----------------------------|   -> sums of COLS columns, in L1
 *                           ..: |----------------------------|
 *
 * 16-bit formats are widened in registers where there are loops for that, otherwise a chunk at a time into a buffer on the stack. Sums
 * are formed in the same order either way. */
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "gemm_widen_x86.h"
#endif

enum { COLS = 512, DEPTH = 8, CHUNK = 1024, GROUP = 16 };

typedef struct Skinny {
    const Product *p;
    const float *a; /* (m, k) fp32, rows dense */
    Source b;
    int64_t batch;
} Skinny;

/* ------------------------------------------------------------------ inner loops */

/* sums[i][j] += a[i] . b[j] for `rows` rows of a and at most GROUP columns of b, which lie b_col bytes apart. Rows of sums are COLS
 * apart. Lanes are added in a fixed order. */
typedef void (*DotFn)(float *sums, const float *a, int64_t a_row, const char *b, int64_t b_col, int64_t k, int rows, int cols);
/* sums[i][j] += a[i][0] * b[0][j] + ... + a[i][depth - 1] * b[depth - 1][j], in this order; rows of sums are COLS apart, of b b_row bytes. */
typedef void (*SweepFn)(float *sums, const float *a, int64_t a_row, const char *b, int64_t b_row, int depth, int64_t cols,
                        int rows);

/* The loops for a format at the level in use; `direct` if they read the format itself, otherwise they want fp32. */
typedef struct Loops {
    DotFn dot;
    SweepFn sweep;
    bool direct;
} Loops;

static float dot_any(const float *a, const float *y, int64_t k) {
    float lane[8] = {0};
    int64_t l = 0;
    for (; l + 8 <= k; l += 8)
        for (int u = 0; u < 8; u++) lane[u] += a[l + u] * y[l + u];
    for (; l < k; l++) lane[0] += a[l] * y[l];
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

#define DOTS(name, target, dot) \
    target static void name(float *sums, const float *a, int64_t a_row, const char *b, int64_t b_col, int64_t k, int rows, \
                            int cols) { \
        for (int j = 0; j < cols; j++) \
            for (int i = 0; i < rows; i++) \
                sums[i * COLS + j] += dot(a + i * a_row, (const float *)(const void *)(b + j * b_col), k); \
    }
DOTS(dots_any, , dot_any)

static void sweep_any(float *sums, const float *a, int64_t a_row, const char *b, int64_t b_row, int depth, int64_t cols,
                      int rows) {
    for (int i = 0; i < rows; i++, sums += COLS, a += a_row)
        for (int d = 0; d < depth; d++) {
            const float *row = (const float *)(const void *)(b + d * b_row);
            for (int64_t j = 0; j < cols; j++) sums[j] += a[d] * row[j];
        }
}

#if defined(__x86_64__)
#define AVX2          __attribute__((target("avx2,fma")))
#define AVX512        __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define AVX512_INLINE AVX512 static inline __attribute__((always_inline))

AVX2 static float total8(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

AVX2 static float dot_avx2(const float *a, const float *y, int64_t k) {
    __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t l = 0;
    for (; l + 32 <= k; l += 32)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            sum[u] = _mm256_fmadd_ps(_mm256_loadu_ps(a + l + 8 * u), _mm256_loadu_ps(y + l + 8 * u), sum[u]);
    for (; l + 8 <= k; l += 8) sum[0] = _mm256_fmadd_ps(_mm256_loadu_ps(a + l), _mm256_loadu_ps(y + l), sum[0]);
    float rest = 0;
    for (; l < k; l++) rest += a[l] * y[l];
    return total8(_mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]))) + rest;
}
DOTS(dots_avx2, AVX2, dot_avx2)

AVX2 static void sweep_avx2(float *sums, const float *a, int64_t a_row, const char *b, int64_t b_row, int depth, int64_t cols,
                            int rows) {
    for (int i = 0; i < rows; i++, sums += COLS, a += a_row) {
        int64_t j = 0;
        for (; j + 8 <= cols; j += 8) {
            __m256 sum = _mm256_loadu_ps(sums + j);
            for (int d = 0; d < depth; d++)
                sum = _mm256_fmadd_ps(_mm256_set1_ps(a[d]), _mm256_loadu_ps((const float *)(const void *)(b + d * b_row) + j),
                                      sum);
            _mm256_storeu_ps(sums + j, sum);
        }
        for (; j < cols; j++)
            for (int d = 0; d < depth; d++)
                sums[j] = _mm_cvtss_f32(_mm_fmadd_ss(
                    _mm_set_ss(a[d]), _mm_set_ss(((const float *)(const void *)(b + d * b_row))[j]), _mm_set_ss(sums[j])));
    }
}

AVX512_INLINE __mmask16 first16(int64_t n) { return n < 16 ? (__mmask16)((1u << n) - 1) : (__mmask16)0xffff; }

typedef __m512 (*Load16)(const char *p, __mmask16 m);

/* The totals of 16 vectors. Halves of each are added, then quarters, pairs, neighbours, as _mm512_reduce_add_ps does for one; what two
 * vectors leave of themselves at each step fills one:
 *
 *     halves      0 4      quarters   0 4 8 12     pairs   0 0 1 1  4 4 5 5  8 8 9 9  12 12 13 13     neighbours   0 1 2 3  4 5 ... */
AVX512 static __m512 totals(const __m512 v[GROUP]) {
    __m512 pair[2], four[2];
#pragma GCC unroll 4
    for (int e = 0; e < 4; e++) {
        const __m512 x = _mm512_add_ps(_mm512_shuffle_f32x4(v[e], v[e + 4], 0x44), _mm512_shuffle_f32x4(v[e], v[e + 4], 0xee));
        const __m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(v[e + 8], v[e + 12], 0x44),
                                       _mm512_shuffle_f32x4(v[e + 8], v[e + 12], 0xee));
        four[e % 2] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
        if (e % 2 == 0) continue;
        const __m512d a = _mm512_castps_pd(four[0]), b = _mm512_castps_pd(four[1]);
        pair[e / 2] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    return _mm512_add_ps(_mm512_shuffle_ps(pair[0], pair[1], 0x88), _mm512_shuffle_ps(pair[0], pair[1], 0xdd));
}

/* All rows of a meet a vector of y while it is in a register. The lanes' sums go to sum[i * GROUP]. */
AVX512_INLINE void dot_rows(const int rows, const Load16 load, const int size, __m512 *total, const float *a, int64_t a_row,
                            const char *y, int64_t k) {
    __m512 sum[GEMM_SKINNY][4];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) sum[i][u] = _mm512_setzero_ps();
    int64_t l = 0;
    for (; l + 64 <= k; l += 64)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
            const __m512 right = load(y + (l + 16 * u) * size, 0xffff);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                sum[i][u] = _mm512_fmadd_ps(_mm512_loadu_ps(a + i * a_row + l + 16 * u), right, sum[i][u]);
        }
    for (; l < k; l += 16) {
        const __mmask16 m = first16(k - l);
        const __m512 right = load(y + l * size, m);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) sum[i][0] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, a + i * a_row + l), right, sum[i][0]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
        total[i * GROUP] = _mm512_add_ps(_mm512_add_ps(sum[i][0], sum[i][1]), _mm512_add_ps(sum[i][2], sum[i][3]));
}

AVX512_INLINE void dot_group(const int rows, const Load16 load, const int size, float *sums, const float *a, int64_t a_row,
                             const char *b, int64_t b_col, int64_t k, int cols) {
    const __mmask16 m = first16(cols);
    __m512 lanes[GEMM_SKINNY * GROUP];
    for (int j = 0; j < cols; j++) dot_rows(rows, load, size, lanes + j, a, a_row, b + j * b_col, k);
    for (int i = 0; i < rows; i++) {
        for (int j = cols; j < GROUP; j++) lanes[i * GROUP + j] = _mm512_setzero_ps();
        float *to = sums + i * COLS;
        _mm512_mask_storeu_ps(to, m, _mm512_add_ps(_mm512_maskz_loadu_ps(m, to), totals(lanes + i * GROUP)));
    }
}

/* `rows` rows of sums and `depth` rows of b, one vector of columns at a time. */
AVX512_INLINE void sweep_rows(const int rows, const int depth, const Load16 load, const int size, float *sums, const float *a,
                              int64_t a_row, const char *b, int64_t b_row, int64_t cols) {
    __m512 left[GEMM_SKINNY][DEPTH];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int d = 0; d < depth; d++) left[i][d] = _mm512_set1_ps(a[i * a_row + d]);
    for (int64_t j = 0; j < cols; j += 16) {
        const __mmask16 m = first16(cols - j);
        __m512 sum[GEMM_SKINNY];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) sum[i] = _mm512_maskz_loadu_ps(m, sums + i * COLS + j);
#pragma GCC unroll 8
        for (int d = 0; d < depth; d++) {
            const __m512 right = load(b + d * b_row + j * size, m);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) sum[i] = _mm512_fmadd_ps(left[i][d], right, sum[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) _mm512_mask_storeu_ps(sums + i * COLS + j, m, sum[i]);
    }
}

#define LOOPS_AVX512(format, size) \
    AVX512 static void dots_##format##_avx512(float *sums, const float *a, int64_t a_row, const char *b, int64_t b_col, \
                                              int64_t k, int rows, int cols) { \
        if (rows == 1) dot_group(1, gemm_load16_##format, size, sums, a, a_row, b, b_col, k, cols); \
        else if (rows == 2) dot_group(2, gemm_load16_##format, size, sums, a, a_row, b, b_col, k, cols); \
        else if (rows == 3) dot_group(3, gemm_load16_##format, size, sums, a, a_row, b, b_col, k, cols); \
        else dot_group(4, gemm_load16_##format, size, sums, a, a_row, b, b_col, k, cols); \
    } \
    AVX512 static void sweep_##format##_avx512(float *sums, const float *a, int64_t a_row, const char *b, int64_t b_row, \
                                               int depth, int64_t cols, int rows) { \
        while (depth > 0) { /* as many rows of b as leave registers for a */ \
            int n = depth < 4 ? 1 : depth < 8 || rows > 2 ? 4 : 8; \
            SWEEP_BY_ROWS(format, size, n) \
            depth -= n; \
            a += n; \
            b += n * b_row; \
        } \
    }
#define SWEEP_BY_ROWS(format, size, n) \
    if (n == 8 && rows == 1) sweep_rows(1, 8, gemm_load16_##format, size, sums, a, a_row, b, b_row, cols); \
    else if (n == 8) sweep_rows(2, 8, gemm_load16_##format, size, sums, a, a_row, b, b_row, cols); \
    else if (n == 4 && rows == 1) sweep_rows(1, 4, gemm_load16_##format, size, sums, a, a_row, b, b_row, cols); \
    else if (n == 4 && rows == 2) sweep_rows(2, 4, gemm_load16_##format, size, sums, a, a_row, b, b_row, cols); \
    else if (n == 4 && rows == 3) sweep_rows(3, 4, gemm_load16_##format, size, sums, a, a_row, b, b_row, cols); \
    else if (n == 4) sweep_rows(4, 4, gemm_load16_##format, size, sums, a, a_row, b, b_row, cols); \
    else \
        for (int i = 0; i < rows; i++) \
            sweep_rows(1, 1, gemm_load16_##format, size, sums + i * COLS, a + i * a_row, a_row, b, b_row, cols);
LOOPS_AVX512(f32, 4)
LOOPS_AVX512(f16, 2)
LOOPS_AVX512(bf16, 2)
#endif

static Loops loops_for(const Source *b) {
    const bool f32 = b->dtype == AMP_FLOAT32 && b->rounding == INPUT_IEEE && ((uintptr_t)b->data & 3) == 0;
#if defined(__x86_64__)
    if (amp_isa() >= ISA_AVX512) {
        if (b->dtype == AMP_BFLOAT16) return (Loops){dots_bf16_avx512, sweep_bf16_avx512, true};
        if (b->dtype == AMP_FLOAT16) return (Loops){dots_f16_avx512, sweep_f16_avx512, true};
        return (Loops){dots_f32_avx512, sweep_f32_avx512, f32};
    }
    if (amp_isa() >= ISA_AVX2) return (Loops){dots_avx2, sweep_avx2, f32};
#endif
    return (Loops){dots_any, sweep_any, f32};
}

/* ------------------------------------------------------------------ ranges of columns */

/* c[:, first .. first + cols) from the sums, with alpha, beta * d and the one rounding. */
static void finish(const Skinny *s, float *sums, int64_t first, int64_t cols) {
    enum { UNIT = 16 }; /* of a loop that the compiler vectorizes; sums that are not used are computed too */
    const Product *p = s->p;
    const float alpha = (float)p->alpha.f, beta = (float)p->beta.f;
    if (alpha != 1)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < cols; j++) sums[i * COLS + j] *= alpha;
    if (p->d.data) {
        const int64_t size = (int64_t)amp_itemsize(p->d.dtype), rows = p->d.row ? p->m : 1;
        const Source src = {gemm_at(&p->d, s->batch, 0, first), p->d.row * size, p->d.col * size, p->d.dtype, INPUT_IEEE};
        float d[GEMM_SKINNY * COLS];
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = cols; j % UNIT; j++) d[i * COLS + j] = 0;
        gemm_load_block(d, COLS, &src, rows, cols);
        for (int64_t i = 0; i < p->m; i++) {
            const float *from = d + (rows > 1 ? i : 0) * COLS;
            for (int64_t j = 0; j < cols; j += UNIT)
                for (int u = 0; u < UNIT; u++) sums[i * COLS + j + u] += beta * from[j + u];
        }
    }
    gemm_store_block(&p->c, s->batch, 0, first, sums, COLS, p->m, cols);
}

static void dot_columns(void *ctx, int64_t begin, int64_t end) {
    const Skinny *s = ctx;
    const Product *p = s->p;
    const Loops loops = loops_for(&s->b);
    const WidenFn widen = gemm_widen(s->b.dtype, s->b.rounding);
    float sums[GEMM_SKINNY * COLS], buffer[CHUNK];
    for (int64_t first = begin, cols; first < end; first += cols) {
        cols = end - first < COLS ? end - first : COLS;
        memset(sums, 0, (size_t)p->m * COLS * sizeof *sums);
        for (int64_t j = 0; j < cols; j += GROUP) {
            const int group = (int)(cols - j < GROUP ? cols - j : GROUP);
            for (int64_t k = 0; k < p->k; k += CHUNK) {
                const int64_t depth = p->k - k < CHUNK ? p->k - k : CHUNK;
                const char *part = s->b.data + (first + j) * s->b.col + k * s->b.row;
                if (loops.direct) {
                    loops.dot(sums + j, s->a + k, p->k, part, s->b.col, depth, (int)p->m, group);
                    continue;
                }
                for (int u = 0; u < group; u++) {
                    widen(buffer, 0, part + u * s->b.col, 0, 1, depth);
                    loops.dot(sums + j + u, s->a + k, p->k, (const char *)buffer, 0, depth, (int)p->m, 1);
                }
            }
        }
        finish(s, sums, first, cols);
    }
}

/* Units of COLS columns. */
static void sweep_columns(void *ctx, int64_t begin, int64_t end) {
    const Skinny *s = ctx;
    const Product *p = s->p;
    const Loops loops = loops_for(&s->b);
    const WidenFn widen = gemm_widen(s->b.dtype, s->b.rounding);
    float sums[GEMM_SKINNY * COLS], buffer[DEPTH * COLS];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * COLS, cols = p->n - first < COLS ? p->n - first : COLS;
        memset(sums, 0, (size_t)p->m * COLS * sizeof *sums);
        for (int64_t k = 0; k < p->k; k += DEPTH) {
            const int depth = p->k - k < DEPTH ? (int)(p->k - k) : DEPTH;
            const char *part = s->b.data + k * s->b.row + first * s->b.col;
            if (!loops.direct) widen(buffer, COLS, part, s->b.row, depth, cols);
            loops.sweep(sums, s->a + k, p->k, loops.direct ? part : (const char *)buffer, loops.direct ? s->b.row : COLS * 4,
                        depth, cols, (int)p->m);
        }
        finish(s, sums, first, cols);
    }
}

/* ------------------------------------------------------------------ entry */

bool gemm_is_skinny(const Product *p) {
    return p->m <= GEMM_SKINNY && p->a.dtype != AMP_FLOAT64 &&
           ((p->b.row == 1 && p->k >= 16) || (p->b.col == 1 && p->n > COLS / 8));
}

Status gemm_skinny(const Product *p, InputRounding rounding, int64_t batch) {
    const int64_t size = (int64_t)amp_itemsize(p->a.dtype);
    const Source a = {gemm_at(&p->a, batch, 0, 0), p->a.row * size, p->a.col * size, p->a.dtype, rounding};
    Skinny s = {.p = p, .batch = batch};
    float *copy = gemm_scratch((size_t)(p->m * (p->k + 1)) * sizeof *copy);
    if (!copy) return AMP_NO_MEMORY;
    if (p->k) gemm_load_block(copy, p->k, &a, p->m, p->k);
    s.a = copy;
    s.b = (Source){gemm_at(&p->b, batch, 0, 0), p->b.row * size, p->b.col * size, p->b.dtype, rounding};
    const double work = (double)(p->m * p->k + 1); /* multiply-adds per column; 64 Ki elements of b are worth a second thread */
    const int64_t grain = (int64_t)(65536 / work) + 1;
    if (p->b.row == 1 && p->k > 1) amp_parallel_for(p->n, (grain + 15) & ~(int64_t)15, dot_columns, &s);
    else amp_parallel_for((p->n + COLS - 1) / COLS, grain / COLS + 1, sweep_columns, &s);
    return AMP_OK;
}
