/* Blocks of operands to the layout of the micro-kernels, blocks of results to where they belong, and the memory for both. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "transpose_x86.h"
#endif

/* ------------------------------------------------------------------ transposes */

/* Matrices of 32-bit words, which are moved and never computed with: floats, or pairs of bfloat16. Strides in bytes, any alignment. */
static void transpose_any(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) memcpy(dst + j * dst_row + 4 * i, src + i * src_row + 4 * j, 4);
}

#if defined(__x86_64__)
/* 8x8 in registers: pairs of rows are interleaved, then pairs of pairs, then halves:
 *
 *     unpack          a0 b0 a1 b1 | a4 b4 a5 b5        of rows a, b (and c, d)
 *     unpack 64 bit   a0 b0 c0 d0 | a4 b4 c4 d4
 *     halves          a0 b0 c0 d0 e0 f0 g0 h0 */
__attribute__((target("avx2"))) static void transpose_8x8(char *dst, int64_t dst_row, const char *src, int64_t src_row) {
    __m256 r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps((const float *)(const void *)(src + i * src_row));
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
        _mm256_storeu_ps((float *)(void *)(dst + i * dst_row), _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps((float *)(void *)(dst + (i + 4) * dst_row), _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

static void transpose_by_8(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t cols) {
    int64_t i = 0;
    for (; i + 8 <= rows; i += 8) {
        int64_t j = 0;
        for (; j + 8 <= cols; j += 8) transpose_8x8(dst + j * dst_row + 4 * i, dst_row, src + i * src_row + 4 * j, src_row);
        transpose_any(dst + j * dst_row + 4 * i, dst_row, src + i * src_row + 4 * j, src_row, 8, cols - j);
    }
    transpose_any(dst + 4 * i, dst_row, src + i * src_row, src_row, rows - i, cols);
}

#define AVX512        __attribute__((target("avx512f,avx512bw,avx512vl")))
#define AVX512_INLINE AVX512 static inline __attribute__((always_inline))

/* Stores the first `cols` registers, `rows` words of each. */
AVX512_INLINE void store_16_registers(char *dst, int64_t dst_row, const __m512i r[16], int64_t rows, int64_t cols) {
    const __mmask16 m = amp_first16(rows);
    if (cols >= 16) {
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) _mm512_mask_storeu_epi32(dst + j * dst_row, m, r[j]);
        return;
    }
    _Alignas(64) char held[16 * 64];
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) _mm512_store_si512(held + j * 64, r[j]);
    for (int64_t j = 0; j < cols; j++) _mm512_mask_storeu_epi32(dst + j * dst_row, m, _mm512_load_si512(held + j * 64));
}

/* Bytes: so many rows at once are more streams than the machine follows by itself. They come no nearer than the second-level cache:
 * rows at a multiple of a page meet in one set of the first. */
enum { AHEAD = 256 };

AVX512 static void transpose_by_16(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t cols) {
    for (int64_t j = 0; j < cols; j += 16) {
        const __mmask16 m = amp_first16(cols - j);
        for (int64_t i = 0; i < rows; i += 16) {
            const char *from = src + i * src_row + 4 * j;
            __m512i r[16];
            if (rows - i >= 16) {
#pragma GCC unroll 16
                for (int l = 0; l < 16; l++) {
                    _mm_prefetch((const char *)((uintptr_t)(from + l * src_row) + AHEAD), _MM_HINT_T1);
                    r[l] = _mm512_maskz_loadu_epi32(m, from + l * src_row);
                }
            } else {
#pragma GCC unroll 16
                for (int l = 0; l < 16; l++)
                    r[l] = _mm512_maskz_loadu_epi32(l < rows - i ? m : 0, from + (l < rows - i ? l : 0) * src_row);
            }
            amp_transpose_16(r);
            store_16_registers(dst + j * dst_row + 4 * i, dst_row, r, rows - i, cols - j);
        }
    }
}
#endif

/* Words that are moved one by one sooner than through registers. */
enum { FEW_WORDS = 32 };

static void transpose_words(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t cols) {
#if defined(__x86_64__)
    if (rows * cols <= FEW_WORDS) {
        transpose_any(dst, dst_row, src, src_row, rows, cols);
        return;
    }
    if (amp_isa() >= ISA_AVX512) {
        transpose_by_16(dst, dst_row, src, src_row, rows, cols);
        return;
    }
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
    if (src->dtype == AMP_FLOAT32 && src->rounding == INPUT_IEEE) { /* nothing to widen */
        transpose_words((char *)dst, 4 * dst_row, src->data, src->col, cols, rows);
        return;
    }
    const WidenFn widen = gemm_widen(src->dtype, src->rounding);
    float square[SIDE * SIDE];
    for (int64_t j = 0; j < cols; j += SIDE) {
        const int64_t width = cols - j < SIDE ? cols - j : SIDE;
        for (int64_t i = 0; i < rows; i += SIDE) {
            const int64_t height = rows - i < SIDE ? rows - i : SIDE;
            widen(square, SIDE, src->data + j * src->col + i * src->row, src->col, width, height);
            transpose_words((char *)(dst + i * dst_row + j), 4 * dst_row, (char *)square, 4 * SIDE, width, height);
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

/* dst[j] = low[j], high[j]; high NULL: zero. Strides in bytes. */
static void zip_any(char *dst, const char *low, const char *high, int64_t cols) {
    for (int64_t j = 0; j < cols; j++) {
        uint32_t pair = pair_of(low + 2 * j, high ? high + 2 * j : NULL);
        memcpy(dst + 4 * j, &pair, sizeof pair);
    }
}

/* dst[i][j] = src[2i][j], src[2i + 1][j] for dense rows. */
static void zip_rows_any(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t k, int64_t cols) {
    for (int64_t i = 0; i < k; i += 2, dst += dst_row, src += 2 * src_row)
        zip_any(dst, src, i + 1 < k ? src + src_row : NULL, cols);
}

#if defined(__x86_64__)
/* The machine does not foresee rows that lie a page or more apart: they are asked for ROWS_AHEAD earlier. */
enum { ROWS_AHEAD = 64 };

/* 32 columns at a time: the words of two rows change places into two vectors of pairs. */
AVX512 static void zip_rows_avx512(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t k, int64_t cols) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); /* words of y count from 32 on */
    const __m512i first = _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(32)), 16));
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    for (int64_t j = 0; j < cols; j += 32) {
        const __mmask32 m = cols - j < 32 ? ((__mmask32)1 << (cols - j)) - 1 : (__mmask32)-1;
        const __mmask16 low = (__mmask16)m, high = (__mmask16)(m >> 16);
        const char *from = src + 2 * j;
        char *to = dst + 4 * j;
        for (int64_t i = 0; i < k; i += 2, from += 2 * src_row, to += dst_row) {
            if (i < k - ROWS_AHEAD) {
                _mm_prefetch(from + ROWS_AHEAD * src_row, _MM_HINT_T1);
                _mm_prefetch(from + (ROWS_AHEAD + (i + 1 < k - ROWS_AHEAD)) * src_row, _MM_HINT_T1);
            }
            const __m512i x = _mm512_maskz_loadu_epi16(m, from);
            const __m512i y = _mm512_maskz_loadu_epi16(i + 1 < k ? m : 0, i + 1 < k ? from + src_row : from);
            _mm512_mask_storeu_epi32(to, low, _mm512_permutex2var_epi16(x, first, y));
            if (high) _mm512_mask_storeu_epi32(to + 64, high, _mm512_permutex2var_epi16(x, second, y));
        }
    }
}
#endif

static void zip_rows(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t k, int64_t cols) {
#if defined(__x86_64__)
    if (amp_isa() >= ISA_AVX512) {
        zip_rows_avx512(dst, dst_row, src, src_row, k, cols);
        return;
    }
#endif
    zip_rows_any(dst, dst_row, src, src_row, k, cols);
}

#if defined(__x86_64__)
AVX512_INLINE __m512i zip_16(const char *low, const char *high, __mmask16 m, __mmask16 m_high) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, low)),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m_high, high)), 16));
}
#endif

/* The last of an odd number of neighbours, paired with zero; `at` points to where its pair goes, row by row. */
static void close_pairs(char *at, int64_t step, const char *last, int64_t last_step, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        const uint32_t pair = pair_of(last + i * last_step, NULL);
        memcpy(at + i * step, &pair, sizeof pair);
    }
}

void gemm_load_pairs_down(void *dst_data, int64_t dst_row, const Source *src, int64_t k, int64_t cols) {
    char *dst = dst_data;
    if (src->row == 2 && src->col != 2) { /* pairs lie beside each other */
        transpose_words(dst, 4 * dst_row, src->data, src->col, cols, k / 2);
        if (k & 1) close_pairs(dst + k / 2 * 4 * dst_row, 4, src->data + (k - 1) * 2, src->col, cols);
        return;
    }
    if (src->col == 2) {
        zip_rows(dst, 4 * dst_row, src->data, src->row, k, cols);
        return;
    }
    for (int64_t i = 0; i < k; i += 2) {
        const char *low = src->data + i * src->row, *high = i + 1 < k ? low + src->row : NULL;
        char *to = dst + i / 2 * 4 * dst_row;
        for (int64_t j = 0; j < cols; j++) zip_any(to + 4 * j, low + j * src->col, high ? high + j * src->col : NULL, 1);
    }
}

#if defined(__x86_64__)
/* Rows lie beside each other: 16 rows of 16 pairs are zipped from 32 lines into registers and turned. */
AVX512 static void turn_pairs_avx512(char *dst, int64_t dst_row, const Source *src, int64_t rows, int64_t k) {
    for (int64_t j = 0; j < k; j += 32) {
        for (int64_t i = 0; i < rows; i += 16) {
            const __mmask16 m = amp_first16(rows - i);
            const char *from = src->data + j * src->col + 2 * i;
            __m512i r[16];
#pragma GCC unroll 16
            for (int l = 0; l < 16; l++) {
                const __mmask16 low = j + 2 * l < k ? m : 0, high = j + 2 * l + 1 < k ? m : 0;
                const char *p = low ? from + 2 * l * src->col : from, *q = high ? p + src->col : p;
                if (!(i & 16)) { /* the lines of the round after the next, each once */
                    _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)(64 * src->col)), _MM_HINT_T1);
                    _mm_prefetch((const char *)((uintptr_t)q + (uintptr_t)(64 * src->col)), _MM_HINT_T1);
                }
                r[l] = zip_16(p, q, low, high);
            }
            amp_transpose_16(r);
            store_16_registers(dst + i * 4 * dst_row + 2 * j, 4 * dst_row, r, (k - j + 1) / 2, rows - i);
        }
    }
}
#endif

void gemm_load_pairs_along(void *dst_data, int64_t dst_row, const Source *src, int64_t rows, int64_t k) {
    char *dst = dst_data;
    if (src->col == 2) {
        for (int64_t i = 0; i < rows; i++) memcpy(dst + i * 4 * dst_row, src->data + i * src->row, (size_t)k / 2 * 4);
        if (k & 1) close_pairs(dst + k / 2 * 4, 4 * dst_row, src->data + (k - 1) * 2, src->row, rows);
        return;
    }
#if defined(__x86_64__)
    if (src->row == 2 && amp_isa() >= ISA_AVX512) {
        turn_pairs_avx512(dst, dst_row, src, rows, k);
        return;
    }
#endif
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < k; j += 2) {
            const char *low = src->data + i * src->row + j * src->col;
            zip_any(dst + (i * dst_row + j / 2) * 4, low, j + 1 < k ? low + src->col : NULL, 1);
        }
    }
}

/* ------------------------------------------------------------------ writing blocks */

static void store_doubles(char *p, const Matrix *dst, const double *src, int64_t src_row, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) memcpy(p + (i * dst->row + j * dst->col) * 8, src + i * src_row + j, 8);
}

/* To fp32 through dst->via. */
static void store_rounded(char *p, const Matrix *dst, const float *src, int64_t src_row, int64_t rows, int64_t cols) {
    const WidenFn round = gemm_round(dst->via);
    if (dst->col == 1 && ((uintptr_t)p & 3) == 0) {
        round((float *)(void *)p, dst->row, (const char *)src, src_row * 4, rows, cols);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float rounded;
            round(&rounded, 0, (const char *)(src + i * src_row + j), 0, 1, 1);
            memcpy(p + (i * dst->row + j * dst->col) * 4, &rounded, 4);
        }
}

void gemm_store_block(const Matrix *dst, int64_t batch, int64_t row, int64_t col, const void *src, int64_t src_row, int64_t rows,
                      int64_t cols) {
    const int64_t size = (int64_t)amp_itemsize(dst->dtype);
    const float *from = src;
    char *p = gemm_at(dst, batch, row, col);
    if (dst->dtype == AMP_FLOAT64) {
        store_doubles(p, dst, src, src_row, rows, cols);
    } else if (dst->via) {
        store_rounded(p, dst, from, src_row, rows, cols);
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

enum { HUGE_PAGE = 2 << 20 };

static void make_key(void) { have_key = pthread_key_create(&scratch_key, free) == 0; }

void *gemm_scratch(size_t nbytes) {
    if (nbytes <= scratch_bytes && scratch) return scratch;
    pthread_once(&scratch_once, make_key);
    free(scratch);
    scratch_bytes = 0;
    const size_t page = nbytes >= HUGE_PAGE ? HUGE_PAGE : 4096;
    nbytes = (nbytes + page - 1) & ~(page - 1);
    if (posix_memalign(&scratch, page < HUGE_PAGE ? 64 : page, nbytes)) scratch = NULL;
#ifdef MADV_HUGEPAGE
    if (scratch && page == HUGE_PAGE) madvise(scratch, nbytes, MADV_HUGEPAGE);
#endif
    if (scratch) scratch_bytes = nbytes;
    if (have_key) pthread_setspecific(scratch_key, scratch);
    return scratch;
}
