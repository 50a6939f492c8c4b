/* Blocks of operands to the layout of the micro-kernels, blocks of results to where they belong, and the memory for both. */
#include <pthread.h>
#include <stdlib.h>

#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ------------------------------------------------------------------ transposes */

static void transpose_any(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) dst[j * dst_row + i] = src[i * src_row + j];
}

#if defined(__x86_64__)
/* 8x8 in registers: pairs of rows are interleaved, then pairs of pairs, then halves:
 *
 *     unpack          a0 b0 a1 b1 | a4 b4 a5 b5        of rows a, b (and c, d)
 *     unpack 64 bit   a0 b0 c0 d0 | a4 b4 c4 d4
 *     halves          a0 b0 c0 d0 e0 f0 g0 h0 */
__attribute__((target("avx2"))) static void transpose_8x8(float *dst, int64_t dst_row, const float *src, int64_t src_row) {
    __m256 r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(src + i * src_row);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(t[i]), _mm256_castps_pd(t[i + 2])));
        r[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(t[i]), _mm256_castps_pd(t[i + 2])));
        r[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(t[i + 1]), _mm256_castps_pd(t[i + 3])));
        r[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(t[i + 1]), _mm256_castps_pd(t[i + 3])));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(dst + i * dst_row, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(dst + (i + 4) * dst_row, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

static void transpose_by_8(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows, int64_t cols) {
    int64_t i = 0;
    for (; i + 8 <= rows; i += 8) {
        int64_t j = 0;
        for (; j + 8 <= cols; j += 8) transpose_8x8(dst + j * dst_row + i, dst_row, src + i * src_row + j, src_row);
        transpose_any(dst + j * dst_row + i, dst_row, src + i * src_row + j, src_row, 8, cols - j);
    }
    transpose_any(dst + i, dst_row, src + i * src_row, src_row, rows - i, cols);
}
#endif

void gemm_transpose(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows, int64_t cols) {
#if defined(__x86_64__)
    if (amp_isa() >= ISA_AVX2) {
        transpose_by_8(dst, dst_row, src, src_row, rows, cols);
        return;
    }
#endif
    transpose_any(dst, dst_row, src, src_row, rows, cols);
}

/* ------------------------------------------------------------------ reading blocks */

enum { SIDE = 32 }; /* a dense-along-rows source is widened and transposed in squares of this side, 4 KiB */

static void load_transposed(float *dst, int64_t dst_row, const Source *src, int64_t rows, int64_t cols) {
    const WidenFn widen = gemm_widen(src->dtype, src->rounding);
    float square[SIDE * SIDE];
    for (int64_t j = 0; j < cols; j += SIDE) {
        const int64_t width = cols - j < SIDE ? cols - j : SIDE;
        for (int64_t i = 0; i < rows; i += SIDE) {
            const int64_t height = rows - i < SIDE ? rows - i : SIDE;
            widen(square, SIDE, src->data + j * src->col + i * src->row, src->col, width, height);
            gemm_transpose(dst + i * dst_row + j, dst_row, square, SIDE, width, height);
        }
    }
}

static void load_scattered(float *dst, int64_t dst_row, const Source *src, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            dst[i * dst_row + j] = gemm_round_input(gemm_load(src->data + i * src->row + j * src->col, src->dtype),
                                                    src->rounding);
}

static void load_doubles(double *dst, int64_t dst_row, const Source *src, int64_t rows, int64_t cols) {
    if (src->col == 8) {
        for (int64_t i = 0; i < rows; i++) memcpy(dst + i * dst_row, src->data + i * src->row, (size_t)cols * 8);
        return;
    }
    for (int64_t first = 0; first < cols; first += 8) { /* 8 columns at a time: a cache line of a transposed source is used up */
        const int64_t past = cols < first + 8 ? cols : first + 8;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = first; j < past; j++) memcpy(dst + i * dst_row + j, src->data + i * src->row + j * src->col, 8);
    }
}

void gemm_load_block(void *dst, int64_t dst_row, const Source *src, int64_t rows, int64_t cols) {
    const int64_t size = (int64_t)amp_itemsize(src->dtype);
    if (src->dtype == AMP_FLOAT64) load_doubles(dst, dst_row, src, rows, cols);
    else if (src->col == size) gemm_widen(src->dtype, src->rounding)(dst, dst_row, src->data, src->row, rows, cols);
    else if (src->row == size) load_transposed(dst, dst_row, src, rows, cols);
    else load_scattered(dst, dst_row, src, rows, cols);
}

/* ------------------------------------------------------------------ pairs of bfloat16 */

static inline uint32_t pair_of(const char *low, const char *high) {
    uint16_t l, h = 0;
    memcpy(&l, low, sizeof l);
    if (high) memcpy(&h, high, sizeof h);
    return (uint32_t)h << 16 | l;
}

/* dst[j] = low[j], high[j]; high NULL: zero. */
static void zip_any(char *dst, const char *low, const char *high, int64_t cols) {
    for (int64_t j = 0; j < cols; j++) {
        uint32_t pair = pair_of(low + 2 * j, high ? high + 2 * j : NULL);
        memcpy(dst + 4 * j, &pair, sizeof pair);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw,avx512vl"))) static void zip_avx512(char *dst, const char *low, const char *high,
                                                                            int64_t cols) {
    for (int64_t j = 0; j < cols; j += 16) {
        const __mmask16 m = cols - j < 16 ? (__mmask16)((1u << (cols - j)) - 1) : (__mmask16)0xffff;
        __m512i pair = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, low + 2 * j));
        if (high)
            pair = _mm512_or_si512(pair, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, high + 2 * j)), 16));
        _mm512_mask_storeu_epi32(dst + 4 * j, m, pair);
    }
}
#endif

static void zip(char *dst, const char *low, const char *high, int64_t cols) {
#if defined(__x86_64__)
    if (amp_isa() >= ISA_AVX512) {
        zip_avx512(dst, low, high, cols);
        return;
    }
#endif
    zip_any(dst, low, high, cols);
}

/* `k` neighbours, closed with zero to a whole pair. */
static void copy_pairs(char *dst, const char *src, int64_t k) {
    memcpy(dst, src, (size_t)k * 2);
    if (k & 1) memset(dst + k * 2, 0, 2);
}

/* In both functions one of the two dense cases goes through a square of pairs, because pairs are 32 bits wide and are transposed as
 * floats are: moved, never computed with. */
void gemm_load_pairs_down(void *dst, int64_t dst_row, const Source *src, int64_t k, int64_t cols) {
    float square[SIDE * SIDE];
    if (src->row == 2 && src->col != 2) {
        for (int64_t i = 0; i < k; i += 2 * SIDE) {
            const int64_t depth = k - i < 2 * SIDE ? k - i : 2 * SIDE;
            for (int64_t j = 0; j < cols; j += SIDE) {
                const int64_t width = cols - j < SIDE ? cols - j : SIDE;
                for (int64_t l = 0; l < width; l++)
                    copy_pairs((char *)(square + l * SIDE), src->data + i * 2 + (j + l) * src->col, depth);
                gemm_transpose((float *)dst + i / 2 * dst_row + j, dst_row, square, SIDE, width, (depth + 1) / 2);
            }
        }
        return;
    }
    for (int64_t i = 0; i < k; i += 2) {
        const char *low = src->data + i * src->row, *high = i + 1 < k ? low + src->row : NULL;
        char *to = (char *)((float *)dst + i / 2 * dst_row);
        if (src->col == 2) {
            zip(to, low, high, cols);
            continue;
        }
        for (int64_t j = 0; j < cols; j++) zip_any(to + 4 * j, low + j * src->col, high ? high + j * src->col : NULL, 1);
    }
}

void gemm_load_pairs_along(void *dst, int64_t dst_row, const Source *src, int64_t rows, int64_t k) {
    float square[SIDE * SIDE];
    if (src->col == 2) {
        for (int64_t i = 0; i < rows; i++) copy_pairs((char *)((float *)dst + i * dst_row), src->data + i * src->row, k);
        return;
    }
    for (int64_t j = 0; j < k; j += 2 * SIDE) {
        const int64_t depth = k - j < 2 * SIDE ? k - j : 2 * SIDE;
        for (int64_t i = 0; i < rows; i += SIDE) {
            const int64_t height = rows - i < SIDE ? rows - i : SIDE;
            const Source across = {src->data + i * src->row + j * src->col, src->col, src->row, src->dtype, src->rounding};
            gemm_load_pairs_down(square, SIDE, &across, depth, height);
            gemm_transpose((float *)dst + i * dst_row + j / 2, dst_row, square, SIDE, (depth + 1) / 2, height);
        }
    }
}

/* ------------------------------------------------------------------ writing blocks */

static void store_doubles(char *p, const Matrix *dst, const double *src, int64_t src_row, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) memcpy(p + (i * dst->row + j * dst->col) * 8, src + i * src_row + j, 8);
}

void gemm_store_block(const Matrix *dst, int64_t batch, int64_t row, int64_t col, const void *src, int64_t src_row, int64_t rows,
                      int64_t cols) {
    const int64_t size = (int64_t)amp_itemsize(dst->dtype);
    const float *from = src;
    char *p = gemm_at(dst, batch, row, col);
    if (dst->dtype == AMP_FLOAT64) {
        store_doubles(p, dst, src, src_row, rows, cols);
    } else if (dst->col == 1) {
        gemm_narrow(dst->dtype)(p, dst->row * size, from, src_row, rows, cols);
    } else {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                gemm_store(p + (i * dst->row + j * dst->col) * size, dst->dtype, from[i * src_row + j]);
    }
}

/* ------------------------------------------------------------------ scratch */

/* Two words per thread, not the memory itself: a large thread-local block could not be loaded into a running program. */
static _Thread_local void *scratch;
static _Thread_local size_t scratch_bytes;
static pthread_key_t scratch_key; /* frees it when the thread ends */
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static bool have_key;

static void make_key(void) { have_key = pthread_key_create(&scratch_key, free) == 0; }

void *gemm_scratch(size_t nbytes) {
    if (nbytes <= scratch_bytes && scratch) return scratch;
    pthread_once(&scratch_once, make_key);
    free(scratch);
    scratch_bytes = 0;
    nbytes = (nbytes + 4095) & ~(size_t)4095;
    if (posix_memalign(&scratch, 64, nbytes)) scratch = NULL;
    if (scratch) scratch_bytes = nbytes;
    if (have_key) pthread_setspecific(scratch_key, scratch);
    return scratch;
}
