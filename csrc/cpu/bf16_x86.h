/* fp32 to bfloat16 in registers, with the bits of numeric.h: nearest even; NaN keeps sign and payload and becomes quiet. */
#ifndef AMP_BF16_X86_H
#define AMP_BF16_X86_H
#if defined(__x86_64__)
#include <immintrin.h>

#include "cpu_features.h"

#define BF16_INLINE(target_text) __attribute__((target(target_text))) static inline __attribute__((always_inline))

/* The 16 bits in the low half of each lane. */
BF16_INLINE("avx2") __m256i amp_bf16_bits8(__m256 f) {
    const __m256i x = _mm256_castps_si256(f), high = _mm256_srli_epi32(x, 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    const __m256i bias = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), _mm256_and_si256(high, _mm256_set1_epi32(1)));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(x, bias), 16);
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
}

BF16_INLINE("avx512f") __m512i amp_bf16_bits16(__m512 f) {
    const __m512i x = _mm512_castps_si512(f), high = _mm512_srli_epi32(x, 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q);
    const __m512i bias = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), _mm512_and_si512(high, _mm512_set1_epi32(1)));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(x, bias), 16);
    return _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
}

BF16_INLINE("avx512f") __m256i amp_bf16_narrow16(__m512 f) { return _mm512_cvtepi32_epi16(amp_bf16_bits16(f)); }

/* The machine's own instruction does the same, except that it takes denormals for zero: those go the long way. */
BF16_INLINE("avx512f,avx512dq,avx512bf16") __m256i amp_bf16_narrow16_fast(__m512 f) {
    enum { DENORMAL = 0x20 };
    if (__builtin_expect(_mm512_fpclass_ps_mask(f, DENORMAL) != 0, 0)) return amp_bf16_narrow16(f);
    return (__m256i)_mm512_cvtneps_pbh(f);
}

#undef BF16_INLINE
#endif
#endif
