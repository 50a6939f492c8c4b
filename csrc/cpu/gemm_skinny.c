/* Products with at most GEMM_SKINNY rows of a: b is read once, so copying it would cost more than multiplying it.
 *
 *     b dense along k (x @ W^T): dot products; 16-bit columns are widened a chunk at a time into a buffer on the stack
 *     b dense along n (x @ W):   four rows of b are added to the row sums per pass, in the order of k
 *
 *          a0 a1 a2 a3  x   b0: |----------- COLS -----------|
 *                           b1: |----------------------------|   -> sums of COLS columns, in L1
 *                           b2: |----------------------------|
 *                           b3: |----------------------------| */
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { COLS = 512, DEPTH = 4, CHUNK = 1024 };

typedef struct Skinny {
    const Product *p;
    const float *a; /* (m, k) fp32, rows dense */
    Source b;
    int64_t batch;
} Skinny;

/* ------------------------------------------------------------------ inner loops */

/* sums[i] += a[i] . y for `rows` rows of a. Lanes are added in a fixed order. */
typedef void (*DotFn)(float *sums, const float *a, int64_t a_row, const float *y, int64_t k, int rows);
/* sums[j] += a[0] * b[0][j] + ... + a[depth - 1] * b[depth - 1][j], in this order. */
typedef void (*SweepFn)(float *sums, const float *a, const float *b, int64_t b_row, int depth, int64_t cols);

static void dot_any(float *sums, const float *a, int64_t a_row, const float *y, int64_t k, int rows) {
    for (int i = 0; i < rows; i++) {
        float lane[8] = {0};
        int64_t l = 0;
        for (; l + 8 <= k; l += 8)
            for (int u = 0; u < 8; u++) lane[u] += a[i * a_row + l + u] * y[l + u];
        for (; l < k; l++) lane[0] += a[i * a_row + l] * y[l];
        sums[i] += ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
    }
}

static void sweep_any(float *sums, const float *a, const float *b, int64_t b_row, int depth, int64_t cols) {
    for (int d = 0; d < depth; d++)
        for (int64_t j = 0; j < cols; j++) sums[j] += a[d] * b[d * b_row + j];
}

#if defined(__x86_64__)
#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512dq")))

AVX2 static float total8(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

AVX2 static void dot_avx2(float *sums, const float *a, int64_t a_row, const float *y, int64_t k, int rows) {
    for (int i = 0; i < rows; i++, a += a_row) {
        __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
        int64_t l = 0;
        for (; l + 32 <= k; l += 32)
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++)
                sum[u] = _mm256_fmadd_ps(_mm256_loadu_ps(a + l + 8 * u), _mm256_loadu_ps(y + l + 8 * u), sum[u]);
        for (; l + 8 <= k; l += 8) sum[0] = _mm256_fmadd_ps(_mm256_loadu_ps(a + l), _mm256_loadu_ps(y + l), sum[0]);
        float rest = 0;
        for (; l < k; l++) rest += a[l] * y[l];
        sums[i] += total8(_mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]))) + rest;
    }
}

AVX2 static void sweep_avx2(float *sums, const float *a, const float *b, int64_t b_row, int depth, int64_t cols) {
    int64_t j = 0;
    for (; j + 8 <= cols; j += 8) {
        __m256 sum = _mm256_loadu_ps(sums + j);
        for (int d = 0; d < depth; d++) sum = _mm256_fmadd_ps(_mm256_set1_ps(a[d]), _mm256_loadu_ps(b + d * b_row + j), sum);
        _mm256_storeu_ps(sums + j, sum);
    }
    for (; j < cols; j++)
        for (int d = 0; d < depth; d++)
            sums[j] = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a[d]), _mm_set_ss(b[d * b_row + j]), _mm_set_ss(sums[j])));
}

AVX512 static void dot_avx512(float *sums, const float *a, int64_t a_row, const float *y, int64_t k, int rows) {
    for (int i = 0; i < rows; i++, a += a_row) {
        __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
        int64_t l = 0;
        for (; l + 64 <= k; l += 64)
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++)
                sum[u] = _mm512_fmadd_ps(_mm512_loadu_ps(a + l + 16 * u), _mm512_loadu_ps(y + l + 16 * u), sum[u]);
        for (; l < k; l += 16) {
            const __mmask16 m = k - l < 16 ? (__mmask16)((1u << (k - l)) - 1) : (__mmask16)0xffff;
            sum[0] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, a + l), _mm512_maskz_loadu_ps(m, y + l), sum[0]);
        }
        sums[i] += _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
    }
}

AVX512 static void sweep_avx512(float *sums, const float *a, const float *b, int64_t b_row, int depth, int64_t cols) {
    for (int64_t j = 0; j < cols; j += 16) {
        const __mmask16 m = cols - j < 16 ? (__mmask16)((1u << (cols - j)) - 1) : (__mmask16)0xffff;
        __m512 sum = _mm512_maskz_loadu_ps(m, sums + j);
        for (int d = 0; d < depth; d++)
            sum = _mm512_fmadd_ps(_mm512_set1_ps(a[d]), _mm512_maskz_loadu_ps(m, b + d * b_row + j), sum);
        _mm512_mask_storeu_ps(sums + j, m, sum);
    }
}
#define LEVELS(portable, avx2, avx512) (amp_isa() >= ISA_AVX512 ? avx512 : amp_isa() >= ISA_AVX2 ? avx2 : portable)
#else
#define LEVELS(portable, avx2, avx512) (portable)
#endif

/* ------------------------------------------------------------------ ranges of columns */

/* b may be used where it lies. */
static bool plain(const Source *b) {
    return b->dtype == AMP_FLOAT32 && b->rounding == INPUT_IEEE && ((uintptr_t)b->data & 3) == 0;
}

/* c[:, first .. first + cols) from the sums, with alpha, beta * d and the one rounding. */
static void finish(const Skinny *s, float *sums, int64_t sums_row, int64_t first, int64_t cols) {
    const Product *p = s->p;
    const float alpha = (float)p->alpha.f, beta = (float)p->beta.f;
    for (int64_t i = 0; i < p->m && (alpha != 1 || p->d.data); i++)
        for (int64_t j = 0; j < cols; j++) {
            float *x = sums + i * sums_row + j;
            *x *= alpha;
            if (p->d.data) *x += beta * gemm_load(gemm_at(&p->d, s->batch, i, first + j), p->d.dtype);
        }
    gemm_store_block(&p->c, s->batch, 0, first, sums, sums_row, p->m, cols);
}

static void dot_columns(void *ctx, int64_t begin, int64_t end) {
    const Skinny *s = ctx;
    const Product *p = s->p;
    const DotFn dot = LEVELS(dot_any, dot_avx2, dot_avx512);
    const WidenFn widen = gemm_widen(s->b.dtype, s->b.rounding);
    const bool in_place = plain(&s->b);
    float sums[GEMM_SKINNY * 16], buffer[CHUNK];
    for (int64_t first = begin; first < end; first += 16) {
        const int64_t cols = end - first < 16 ? end - first : 16;
        for (int64_t j = 0; j < cols; j++) {
            const char *column = s->b.data + (first + j) * s->b.col;
            float sum[GEMM_SKINNY] = {0};
            for (int64_t k = 0; k < p->k; k += CHUNK) {
                const int64_t depth = p->k - k < CHUNK ? p->k - k : CHUNK;
                const char *part = column + k * s->b.row;
                if (!in_place) widen(buffer, 0, part, 0, 1, depth);
                dot(sum, s->a + k, p->k, in_place ? (const float *)(const void *)part : buffer, depth, (int)p->m);
            }
            for (int64_t i = 0; i < p->m; i++) sums[i * 16 + j] = sum[i];
        }
        finish(s, sums, 16, first, cols);
    }
}

/* Units of COLS columns. */
static void sweep_columns(void *ctx, int64_t begin, int64_t end) {
    const Skinny *s = ctx;
    const Product *p = s->p;
    const SweepFn sweep = LEVELS(sweep_any, sweep_avx2, sweep_avx512);
    const WidenFn widen = gemm_widen(s->b.dtype, s->b.rounding);
    const bool in_place = plain(&s->b);
    float sums[GEMM_SKINNY * COLS], buffer[DEPTH * COLS];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * COLS, cols = p->n - first < COLS ? p->n - first : COLS;
        memset(sums, 0, sizeof sums);
        for (int64_t k = 0; k < p->k; k += DEPTH) {
            const int depth = p->k - k < DEPTH ? (int)(p->k - k) : DEPTH;
            const char *part = s->b.data + k * s->b.row + first * s->b.col;
            if (!in_place) widen(buffer, COLS, part, s->b.row, depth, cols);
            const float *b = in_place ? (const float *)(const void *)part : buffer;
            for (int64_t i = 0; i < p->m; i++)
                sweep(sums + i * COLS, s->a + i * p->k + k, b, in_place ? s->b.row / 4 : COLS, depth, cols);
        }
        finish(s, sums, COLS, first, cols);
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
