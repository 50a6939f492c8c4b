/* 2^x at each instruction-set level, and the passes over scores that are made of it (attention_rows.h). */
#include "attention.h"

#if defined(__x86_64__)
#include "attention_x86.h"
#endif

/* 2^f for |f| <= 1/2, relative error below 2^-23: 1 + f (c0 + f (c1 + ...)); exact at 0. */
#define C0 0x1.62e430p-1f
#define C1 0x1.ebfbdcp-3f
#define C2 0x1.c6aee8p-5f
#define C3 0x1.3b2d4cp-7f
#define C4 0x1.5f3e52p-10f
#define C5 0x1.41fbbcp-13f

/* ------------------------------------------------------------------ any machine */

/* Adding 1.5 * 2^23 rounds to an integer, which is then found in the low bits of the mantissa. */
static inline float exp2_any(float x) {
    const float round = 0x1.8p23f, t = x + round, f = x - (t - round);
    float p = C5;
    p = p * f + C4;
    p = p * f + C3;
    p = p * f + C2;
    p = p * f + C1;
    p = p * f + C0;
    p = p * f + 1.0f;
    const float scaled = amp_bits_f32(amp_f32_bits(p) + (amp_f32_bits(t) << 23));
    return x < ATTENTION_LEAST ? 0.0f : x == x ? scaled : x;
}

#define SET   rows_portable
#define V     float
#define LANES 1
#define TARGET
#define SET1(x)       (x)
#define LOAD(p)       (*(p))
#define STORE(p, v)   (*(p) = (v))
#define ADD(x, y)     ((x) + (y))
#define SUB(x, y)     ((x) - (y))
#define MUL(x, y)     ((x) * (y))
#define MAX(x, y)     ((x) > (y) ? (x) : (y))
#define MIN(x, y)     ((x) < (y) ? (x) : (y))
#define MADD(x, y, z) ((x) * (y) + (z))
#define EXP2(x)       exp2_any(x)
#define SUM(v)        (v)
#define TOP(v)        (v)
#include "attention_rows.h"

#if defined(__x86_64__)
/* ------------------------------------------------------------------ AVX2 */

#define AVX2 __attribute__((target("avx2,fma")))

AVX2 static inline __attribute__((always_inline)) __m256 exp2_avx2(__m256 x) {
    const __m256 t = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm256_sub_ps(x, t);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(C5), f, _mm256_set1_ps(C4));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(C3));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(C2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(C1));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(C0));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
    const __m256i k = _mm256_slli_epi32(_mm256_cvtps_epi32(t), 23);
    const __m256 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), k));
    const __m256 known = _mm256_blendv_ps(scaled, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_and_ps(known, _mm256_cmp_ps(x, _mm256_set1_ps(ATTENTION_LEAST), _CMP_NLT_UQ));
}

AVX2 static inline float sum_avx2(__m256 v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

AVX2 static inline float top_avx2(__m256 v) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

#define SET           rows_avx2
#define V             __m256
#define LANES         8
#define TARGET        AVX2
#define SET1(x)       _mm256_set1_ps(x)
#define LOAD(p)       _mm256_loadu_ps(p)
#define STORE(p, v)   _mm256_storeu_ps(p, v)
#define ADD(x, y)     _mm256_add_ps(x, y)
#define SUB(x, y)     _mm256_sub_ps(x, y)
#define MUL(x, y)     _mm256_mul_ps(x, y)
#define MAX(x, y)     _mm256_max_ps(x, y)
#define MIN(x, y)     _mm256_min_ps(x, y)
#define MADD(x, y, z) _mm256_fmadd_ps(x, y, z)
#define EXP2(x)       exp2_avx2(x)
#define SUM(v)        sum_avx2(v)
#define TOP(v)        top_avx2(v)
#include "attention_rows.h"

/* ------------------------------------------------------------------ AVX512 */

#define SET           rows_avx512
#define V             __m512
#define LANES         16
#define TARGET        AVX512
#define SET1(x)       _mm512_set1_ps(x)
#define LOAD(p)       _mm512_loadu_ps(p)
#define STORE(p, v)   _mm512_storeu_ps(p, v)
#define ADD(x, y)     _mm512_add_ps(x, y)
#define SUB(x, y)     _mm512_sub_ps(x, y)
#define MUL(x, y)     _mm512_mul_ps(x, y)
#define MAX(x, y)     _mm512_max_ps(x, y)
#define MIN(x, y)     _mm512_min_ps(x, y)
#define MADD(x, y, z) _mm512_fmadd_ps(x, y, z)
#define EXP2(x)       exp2_avx512(x)
#define SUM(v)        _mm512_reduce_add_ps(v)
#define TOP(v)        _mm512_reduce_max_ps(v)
#include "attention_rows.h"

#define SET           rows_avx512_bf16
#define V             __m512
#define LANES         16
#define TARGET        AVX512_BF16
#define SET1(x)       _mm512_set1_ps(x)
#define LOAD(p)       _mm512_loadu_ps(p)
#define STORE(p, v)   _mm512_storeu_ps(p, v)
#define ADD(x, y)     _mm512_add_ps(x, y)
#define SUB(x, y)     _mm512_sub_ps(x, y)
#define MUL(x, y)     _mm512_mul_ps(x, y)
#define MAX(x, y)     _mm512_max_ps(x, y)
#define MIN(x, y)     _mm512_min_ps(x, y)
#define MADD(x, y, z) _mm512_fmadd_ps(x, y, z)
#define EXP2(x)       exp2_coarse(x)
#define SUM(v)        _mm512_reduce_add_ps(v)
#define TOP(v)        _mm512_reduce_max_ps(v)
#define PAIRS
#define MADD_PAIRS(x, y, z) _mm512_dpbf16_ps(z, (__m512bh)(x), (__m512bh)(y))
#define STORE_BF16(p, v)    _mm256_storeu_si256((__m256i *)(void *)(p), (__m256i)_mm512_cvtneps_pbh(v))
#define ROUNDED             __m512i
#define ROUND(v, w)         ((__m512i)_mm512_cvtne2ps_pbh(w, v))
#define STORE_TWO(p, r)     _mm512_storeu_si512(p, r)
#define STORE_LOW(p, r)     store_low(p, r)
#define STORE_HIGH(p, r)    store_high(p, r)
#define STORE_ZIP(p, r)     store_zip(p, r)
#include "attention_rows.h"
#endif

const AttentionRows *attention_rows(bool pairs) {
#if defined(__x86_64__)
    if (pairs) return &rows_avx512_bf16;
    if (amp_isa() >= ISA_AVX512) return &rows_avx512;
    if (amp_isa() >= ISA_AVX2) return &rows_avx2;
#endif
    (void)pairs;
    return &rows_portable;
}
