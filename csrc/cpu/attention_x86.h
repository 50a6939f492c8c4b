/* Scores in registers: 2^x on AVX512, and results as pairs of bfloat16. */
#ifndef AMP_ATTENTION_X86_H
#define AMP_ATTENTION_X86_H
#include "attention.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512        __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define AVX512_BF16   __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define AVX512_INLINE AVX512 static inline __attribute__((always_inline))

/* 2^x = 2^(n / 16) 2^f with |f| <= 1/32. Adding 1.5 * 2^19 rounds to sixteenths, after which n lies in the low bits of the mantissa: four
 * of them choose a root, and all of them, 19 bits up, are added to its bits, so what the four add below the exponent has been taken off. */
AVX512_INLINE __m512i sixteenth_roots(void) {
    return _mm512_set_epi32(0x3f7d257d, 0x3f7ac0c7, 0x3f78ccdf, 0x3f7744fd, 0x3f76248c, 0x3f75672a, 0x3f7508a4, 0x3f7504f3,
                            0x3f75583f, 0x3f75fed7, 0x3f76f532, 0x3f7837f0, 0x3f79c3d3, 0x3f7b95c2, 0x3f7daac3, 0x3f800000);
}

AVX512_INLINE __m512 exp2_by_roots(__m512 x, const bool coarse) {
    const __m512 round = _mm512_set1_ps(0x1.8p19f), t = _mm512_add_ps(x, round), f = _mm512_sub_ps(x, _mm512_sub_ps(t, round));
    const __m512i n = _mm512_castps_si512(t), root = _mm512_permutexvar_epi32(n, sixteenth_roots());
    const __m512 power = _mm512_castsi512_ps(_mm512_add_epi32(root, _mm512_slli_epi32(n, 19)));
    const __mmask16 seen = _mm512_cmp_ps_mask(x, _mm512_set1_ps(ATTENTION_LEAST), _CMP_NLT_UQ);
    __m512 p;
    if (coarse) {
        p = _mm512_fmadd_ps(f, _mm512_set1_ps(0x1.ebfbf2p-3f), _mm512_set1_ps(0x1.62e980p-1f));
    } else {
        p = _mm512_fmadd_ps(f, _mm512_set1_ps(0x1.c6ac6ap-5f), _mm512_set1_ps(0x1.ebfff4p-3f));
        p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(0x1.62e430p-1f));
    }
    return _mm512_maskz_fmadd_ps(seen, _mm512_mul_ps(power, f), p, power);
}
/* Relative error below 2^-22, and for results that are rounded to bfloat16, below 2^-20. */
AVX512_INLINE __m512 exp2_avx512(__m512 x) { return exp2_by_roots(x, false); }
AVX512_INLINE __m512 exp2_coarse(__m512 x) { return exp2_by_roots(x, true); }

/* Of two vectors of bfloat16 in one: the first, the second, and pairs (element i of the first low, of the second high). */
AVX512_INLINE void store_low(void *p, __m512i r) { _mm256_storeu_si256(p, _mm512_castsi512_si256(r)); }
AVX512_INLINE void store_high(void *p, __m512i r) { _mm256_storeu_si256(p, _mm512_extracti64x4_epi64(r, 1)); }
AVX512_INLINE void store_zip(void *p, __m512i r) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20,
                                           4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(order, r));
}
#endif
#endif
