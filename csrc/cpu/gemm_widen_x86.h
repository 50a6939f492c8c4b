/* 16 elements of a format as fp32 in registers; those that `m` does not name are zero and not touched. */
#ifndef AMP_GEMM_WIDEN_X86_H
#define AMP_GEMM_WIDEN_X86_H
#if defined(__x86_64__)
#include <immintrin.h>

#define WIDEN_INLINE __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline)) static inline

WIDEN_INLINE __m512 gemm_load16_f32(const char *p, __mmask16 m) { return _mm512_maskz_loadu_ps(m, p); }
WIDEN_INLINE __m512 gemm_load16_f16(const char *p, __mmask16 m) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p)); }
WIDEN_INLINE __m512 gemm_load16_bf16(const char *p, __mmask16 m) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16));
}

#undef WIDEN_INLINE
#endif
#endif
