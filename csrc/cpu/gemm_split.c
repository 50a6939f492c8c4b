/* Numbers of 11 significant bits as sums of two bfloat16, exactly, for the tiles of AMX, which multiply nothing else:
 *
 *     fp16, TF32     1.mmmmmmmmmm          high part: the upper 16 bits of fp32, cut off
 *                    1.mmmmmmm             low part: the rest, at most 3 bits of it
 *                    +       mmm
 *
 * A product of two such numbers is four of bfloat16. They are made one long dimension: STEP pairs of k become four times as many,
 *
 *     a     high high low  low
 *     b     high low  high low
 *
 * so that kernels, blocks and epilogues are those of bfloat16. The parts of an infinity or a NaN are no numbers to multiply with, and
 * those of numbers below 2^-116 (of TF32; fp16 has none) may be denormal, which tiles read as zero, as they flush products: such
 * operands go another way, from 2^-100 down. */
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdatomic.h>

enum { STEP = 16, SPAN = 2 * STEP, ROWS = 64 };
_Static_assert(SPAN == (int)GEMM_SPLIT_SPAN, "elements that four steps stand for");

#define AVX512 __attribute__((target("avx512f,avx512bw")))

/* Rows of SPAN elements; those from k on are zero. */
static void load_span(float *dst, const Source *src, int64_t rows, int64_t k) {
    if (k < SPAN) memset(dst, 0, (size_t)(rows * SPAN) * sizeof *dst);
    gemm_load_block(dst, SPAN, src, rows, k);
}

AVX512 static inline __m512 high_part(__m512 x) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000u)));
}

/* The upper halves of 32 floats in order. */
AVX512 static inline __m512i upper_halves(__m512 x, __m512 y) {
    const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21,
                                         19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(_mm512_castps_si512(x), odd, _mm512_castps_si512(y));
}

AVX512 void gemm_load_split_along(void *dst_data, int64_t dst_row, const Source *src, int64_t rows, int64_t k) {
    _Alignas(64) float held[ROWS * SPAN];
    for (int64_t first = 0; first < rows; first += ROWS) {
        const int64_t n = rows - first < ROWS ? rows - first : ROWS;
        for (int64_t at = 0; at < k; at += SPAN) {
            const Source part = {src->data + first * src->row + at * src->col, src->row, src->col, src->dtype, src->rounding};
            char *dst = (char *)dst_data + (first * dst_row + 2 * at) * 4;
            load_span(held, &part, n, k - at < SPAN ? k - at : SPAN);
            for (int64_t i = 0; i < n; i++, dst += dst_row * 4) {
                const __m512 x = _mm512_load_ps(held + i * SPAN), y = _mm512_load_ps(held + i * SPAN + STEP);
                const __m512i high = upper_halves(x, y);
                const __m512i low = upper_halves(_mm512_sub_ps(x, high_part(x)), _mm512_sub_ps(y, high_part(y)));
                _mm512_storeu_si512(dst, high);
                _mm512_storeu_si512(dst + 64, high);
                _mm512_storeu_si512(dst + 128, low);
                _mm512_storeu_si512(dst + 192, low);
            }
        }
    }
}

/* Pairs of x and y, of which only upper halves count. */
AVX512 static inline __m512i zip_upper(__m512 x, __m512 y) {
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(x), 16), _mm512_castps_si512(high_part(y)));
}

AVX512 void gemm_load_split_down(void *dst_data, int64_t dst_row, const Source *src, int64_t k, int64_t cols) {
    _Alignas(64) float held[SPAN * GEMM_MAX_COLS];
    for (int64_t at = 0; at < k; at += SPAN) {
        const int64_t n = k - at < SPAN ? k - at : SPAN;
        const Source part = {src->data + at * src->row, src->row, src->col, src->dtype, src->rounding};
        if (n < SPAN || cols < GEMM_MAX_COLS) memset(held, 0, sizeof held);
        gemm_load_block(held, GEMM_MAX_COLS, &part, n, cols);
        for (int64_t i = 0; i < STEP; i++)
            for (int64_t j = 0; j < cols; j += 16) {
                char *dst = (char *)dst_data + ((2 * at + i) * dst_row + j) * 4;
                const float *from = held + 2 * i * GEMM_MAX_COLS + j;
                const __m512 x = _mm512_load_ps(from), y = _mm512_load_ps(from + GEMM_MAX_COLS);
                const __m512i high = zip_upper(x, y);
                const __m512i low = zip_upper(_mm512_sub_ps(x, high_part(x)), _mm512_sub_ps(y, high_part(y)));
                _mm512_storeu_si512(dst, high);
                _mm512_storeu_si512(dst + STEP * dst_row * 4, low);
                _mm512_storeu_si512(dst + 2 * STEP * dst_row * 4, high);
                _mm512_storeu_si512(dst + 3 * STEP * dst_row * 4, low);
            }
    }
}

/* ------------------------------------------------------------------ what cannot be split */

typedef struct Search {
    const Source *src;
    int64_t rows, cols;
    atomic_bool found;
} Search;

/* Infinity, NaN, or less than 2^-100 and not zero: as unsigned numbers, sizes outside [smallest, infinity). */
AVX512 static bool any_unfit(const float *x, int64_t n) {
    const __m512i smallest = _mm512_set1_epi32(0x0d800000), range = _mm512_set1_epi32(0x7f800000 - 0x0d800000);
    __mmask16 found = 0;
    for (int64_t i = 0; i < n; i += 16) {
        const __m512i size = _mm512_and_si512(_mm512_load_si512(x + i), _mm512_set1_epi32(0x7fffffff));
        found |= _mm512_mask_cmpge_epu32_mask(_mm512_test_epi32_mask(size, size), _mm512_sub_epi32(size, smallest), range);
    }
    return found != 0;
}

static void search_rows(void *ctx, int64_t begin, int64_t end) {
    Search *s = ctx;
    _Alignas(64) float held[ROWS * SPAN];
    for (int64_t i = begin; i < end && !atomic_load_explicit(&s->found, memory_order_relaxed); i++) {
        const int64_t row = i * ROWS, rows = s->rows - row < ROWS ? s->rows - row : ROWS;
        for (int64_t col = 0; col < s->cols; col += SPAN) {
            const Source part = {s->src->data + row * s->src->row + col * s->src->col, s->src->row, s->src->col, s->src->dtype,
                                 s->src->rounding};
            load_span(held, &part, rows, s->cols - col < SPAN ? s->cols - col : SPAN);
            if (any_unfit(held, rows * SPAN)) atomic_store_explicit(&s->found, true, memory_order_relaxed);
        }
    }
}

bool gemm_can_split(const Source *src, int64_t rows, int64_t cols) {
    Search s = {.src = src, .rows = rows, .cols = cols};
    atomic_init(&s.found, false);
    amp_parallel_for((rows + ROWS - 1) / ROWS, 1, search_rows, &s);
    return !atomic_load(&s.found);
}
#else
void gemm_load_split_along(void *dst, int64_t dst_row, const Source *src, int64_t rows, int64_t k) {
    (void)dst, (void)dst_row, (void)src, (void)rows, (void)k;
}
void gemm_load_split_down(void *dst, int64_t dst_row, const Source *src, int64_t k, int64_t cols) {
    (void)dst, (void)dst_row, (void)src, (void)k, (void)cols;
}
bool gemm_can_split(const Source *src, int64_t rows, int64_t cols) {
    (void)src, (void)rows, (void)cols;
    return false;
}
#endif
