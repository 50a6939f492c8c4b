/* Whole tiles of the gradients with scores in registers:
 *
 *     for each panel of 32 keys        query tile x keys: 14 x 32 sums in 28 registers  ->  p, kept as fp32, stored as pairs
 *                                      grad tile x values: likewise                     ->  ds = p (dp - delta), stored twice
 *
 * What a store costs is not hidden behind the products, so the sums themselves are never stored. */
#include "attention_x86.h"

#if defined(__x86_64__)
enum { ROWS = 14, COLS = 32 };

typedef __m512 Sums[ROWS][2];

/* As the micro-kernel of gemm_micro.h. */
#define MULTIPLY(sum, depth, left, right) \
    do { \
        const float *at[(ROWS + 2) / 3], *b = (right); \
        const int64_t row = (left).row; \
        _Pragma("GCC unroll 8") for (int i = 0; i < (ROWS + 2) / 3; i++) at[i] = (left).data + 3 * i * row; \
        _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps(); \
        for (int64_t k = (depth); k > 0; k--, b += COLS) { \
            const __m512bh b0 = (__m512bh)_mm512_loadu_ps(b), b1 = (__m512bh)_mm512_loadu_ps(b + 16); \
            _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; i++) { \
                const __m512bh element = (__m512bh)_mm512_set1_ps(at[i / 3][i % 3 * row]); \
                sum[i][0] = _mm512_dpbf16_ps(sum[i][0], element, b0); \
                sum[i][1] = _mm512_dpbf16_ps(sum[i][1], element, b1); \
            } \
            _Pragma("GCC unroll 8") for (int i = 0; i < (ROWS + 2) / 3; i++) at[i]++; \
        } \
    } while (0)

/* See CHANCE in attention_rows.h. */
AVX512_INLINE __m512 chance_of(__m512 s, __m512 shift, __m512 factor) {
    return exp2_coarse(_mm512_min_ps(_mm512_setzero_ps(), _mm512_mul_ps(_mm512_sub_ps(s, shift), factor)));
}

AVX512_BF16 static void run_panels(const AttentionPanels *t) {
    _Alignas(64) float chance[ROWS * COLS];
    const AttentionTile *tile = &t->tile;
    const float *keys = t->key_down, *values = t->value_down;
    for (int64_t col = 0; col < t->panels * COLS; col += COLS) {
        Sums sum;
        for (int i = 0; i < 2; i++) attention_fetch(t->fetch[i]);
        MULTIPLY(sum, t->depth_e, t->query, keys);
        const __m512 factor = _mm512_set1_ps(tile->factor);
        float *p = tile->p + col, *ds = tile->ds + col, *along = tile->along + col / 2;
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i += 2, p += tile->out_pitch) {
            const __m512 shift0 = _mm512_set1_ps(tile->shift[i]), shift1 = _mm512_set1_ps(tile->shift[i + 1]);
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                const __m512 p0 = chance_of(sum[i][j], shift0, factor);
                const __m512 p1 = chance_of(sum[i + 1][j], shift1, factor);
                _mm512_store_ps(chance + i * COLS + 16 * j, p0);
                _mm512_store_ps(chance + (i + 1) * COLS + 16 * j, p1);
                store_zip(p + 16 * j, (__m512i)_mm512_cvtne2ps_pbh(p1, p0));
            }
        }
        MULTIPLY(sum, t->depth_v, t->grad, values);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i += 2, ds += tile->out_pitch, along += 2 * tile->along_pitch) {
            const __m512 delta0 = _mm512_set1_ps(tile->delta[i]), delta1 = _mm512_set1_ps(tile->delta[i + 1]);
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                const __m512 p0 = _mm512_load_ps(chance + i * COLS + 16 * j);
                const __m512 p1 = _mm512_load_ps(chance + (i + 1) * COLS + 16 * j);
                const __m512 ds0 = _mm512_mul_ps(p0, _mm512_sub_ps(sum[i][j], delta0));
                const __m512 ds1 = _mm512_mul_ps(p1, _mm512_sub_ps(sum[i + 1][j], delta1));
                const __m512i slopes = (__m512i)_mm512_cvtne2ps_pbh(ds1, ds0);
                store_zip(ds + 16 * j, slopes);
                store_low(along + 8 * j, slopes);
                store_high(along + tile->along_pitch + 8 * j, slopes);
            }
        }
        keys += t->depth_e * COLS;
        values += t->depth_v * COLS;
    }
}
#endif

AttentionPanelsFn attention_panels(const Attention *a) {
#if defined(__x86_64__)
    if (a->micro == &gemm_avx512_bf16) return run_panels;
#endif
    (void)a;
    return NULL;
}
