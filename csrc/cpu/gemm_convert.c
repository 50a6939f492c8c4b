/* Rows of narrow formats to fp32 and back, at each instruction-set level; same bits as numeric.h at each. */
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "bf16_x86.h"
#include "gemm_widen_x86.h"
#endif

/* ------------------------------------------------------------------ any machine */

#define WIDEN_ROWS(name, target, body) \
    target static void name(float *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t cols) { \
        for (; rows > 0; rows--, dst += dst_row, src += src_row) body \
    }
#define NARROW_ROWS(name, target, body) \
    target static void name(char *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows, int64_t cols) { \
        for (; rows > 0; rows--, dst += dst_row, src += src_row) body \
    }
#define WIDEN_ANY(name, size, expression) \
    WIDEN_ROWS(name, , { \
        for (int64_t j = 0; j < cols; j++) { \
            const char *p = src + j * (size); \
            dst[j] = (expression); \
        } \
    })
#define NARROW_ANY(name, size, dtype) \
    NARROW_ROWS(name, , { \
        for (int64_t j = 0; j < cols; j++) gemm_store(dst + j * (size), dtype, src[j]); \
    })

WIDEN_ANY(widen_f16, 2, gemm_load(p, AMP_FLOAT16))
WIDEN_ANY(widen_bf16, 2, gemm_load(p, AMP_BFLOAT16))
WIDEN_ANY(widen_e5m2, 1, gemm_load(p, AMP_FLOAT8_E5M2))
WIDEN_ANY(widen_e4m3, 1, gemm_load(p, AMP_FLOAT8_E4M3FN))
WIDEN_ANY(widen_tf32, 4, gemm_round_input(gemm_load(p, AMP_FLOAT32), INPUT_TF32))
WIDEN_ANY(widen_f32_as_bf16, 4, gemm_round_input(gemm_load(p, AMP_FLOAT32), INPUT_BF16))
WIDEN_ANY(round_f16, 4, amp_f16_to_f32(amp_f32_to_f16(gemm_load(p, AMP_FLOAT32))))
WIDEN_ROWS(widen_f32, , { memcpy(dst, src, (size_t)cols * 4); })

NARROW_ANY(narrow_f16, 2, AMP_FLOAT16)
NARROW_ANY(narrow_bf16, 2, AMP_BFLOAT16)
NARROW_ANY(narrow_e5m2, 1, AMP_FLOAT8_E5M2)
NARROW_ANY(narrow_e4m3, 1, AMP_FLOAT8_E4M3FN)
NARROW_ROWS(narrow_f32, , { memcpy(dst, src, (size_t)cols * 4); })

/* Whole rows: the compiler makes vectors of a loop of constant length. */
#define SCALE(name, target) \
    target static void name(float *restrict tile, int64_t rows, float alpha, float beta, const float *restrict d, \
                            int64_t d_row) { \
        for (; rows > 0; rows--, tile += GEMM_MAX_COLS, d += d_row) \
            for (int j = 0; j < GEMM_MAX_COLS; j++) tile[j] = alpha * tile[j] + beta * d[j]; \
    }
SCALE(scale_rows_any, )

#if defined(__x86_64__)
/* ------------------------------------------------------------------ AVX2: full vectors, then the scalar meaning */

#define AVX2        __attribute__((target("avx2,f16c")))
#define AVX2_INLINE AVX2 static inline __attribute__((always_inline))

AVX2_INLINE __m256 load8_f16(const char *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
AVX2_INLINE __m256 load8_bf16(const char *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}
/* Half a unit of the last kept bit is added to the magnitude, the rest cut; infinity and NaN pass. */
AVX2_INLINE __m256 load8_tf32(const char *p) {
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p), top = _mm256_set1_epi32(0x7f800000);
    const __m256i special = _mm256_cmpeq_epi32(_mm256_and_si256(x, top), top);
    const __m256i rounded = _mm256_and_si256(_mm256_add_epi32(x, _mm256_set1_epi32(0x1000)), _mm256_set1_epi32((int)0xffffe000));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(rounded, x, special));
}
AVX2_INLINE __m256 load8_f32_as_bf16(const char *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(amp_bf16_bits8(_mm256_loadu_ps((const float *)(const void *)p)), 16));
}
AVX2_INLINE __m256 round8_f16(const char *p) {
    const __m256 f = _mm256_loadu_ps((const float *)(const void *)p);
    return _mm256_cvtph_ps(_mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
}
AVX2_INLINE void store8_f16(char *p, __m256 f) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
}
AVX2_INLINE void store8_bf16(char *p, __m256 f) {
    const __m256i bits = amp_bf16_bits8(f);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
}

#define WIDEN_AVX2(name, size, load8, scalar) \
    WIDEN_ROWS(name, AVX2, { \
        int64_t j = 0; \
        for (; j + 8 <= cols; j += 8) _mm256_storeu_ps(dst + j, load8(src + j * (size))); \
        if (j < cols) scalar(dst + j, 0, src + j * (size), 0, 1, cols - j); \
    })
#define NARROW_AVX2(name, store8, scalar) \
    NARROW_ROWS(name, AVX2, { \
        int64_t j = 0; \
        for (; j + 8 <= cols; j += 8) store8(dst + j * 2, _mm256_loadu_ps(src + j)); \
        if (j < cols) scalar(dst + j * 2, 0, src + j, 0, 1, cols - j); \
    })
SCALE(scale_rows_avx2, AVX2)
WIDEN_AVX2(widen_f16_avx2, 2, load8_f16, widen_f16)
WIDEN_AVX2(widen_bf16_avx2, 2, load8_bf16, widen_bf16)
WIDEN_AVX2(widen_tf32_avx2, 4, load8_tf32, widen_tf32)
WIDEN_AVX2(widen_f32_as_bf16_avx2, 4, load8_f32_as_bf16, widen_f32_as_bf16)
WIDEN_AVX2(round_f16_avx2, 4, round8_f16, round_f16)
NARROW_AVX2(narrow_f16_avx2, store8_f16, narrow_f16)
NARROW_AVX2(narrow_bf16_avx2, store8_bf16, narrow_bf16)

/* ------------------------------------------------------------------ AVX512: the last vector is masked */

#define AVX512        __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define AVX512_INLINE AVX512 static inline __attribute__((always_inline))

AVX512_INLINE __m512 load16_tf32(const char *p, __mmask16 m) {
    const __m512i x = _mm512_maskz_loadu_epi32(m, p), top = _mm512_set1_epi32(0x7f800000);
    const __mmask16 special = _mm512_cmpeq_epi32_mask(_mm512_and_si512(x, top), top);
    const __m512i rounded = _mm512_and_si512(_mm512_add_epi32(x, _mm512_set1_epi32(0x1000)), _mm512_set1_epi32((int)0xffffe000));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(rounded, special, x));
}
AVX512_INLINE __m512 load16_f32_as_bf16(const char *p, __mmask16 m) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(amp_bf16_bits16(_mm512_maskz_loadu_ps(m, p)), 16));
}
AVX512_INLINE __m512 round16_f16(const char *p, __mmask16 m) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_maskz_loadu_ps(m, p), _MM_FROUND_TO_NEAREST_INT));
}
AVX512_INLINE void store16_f32(char *p, __mmask16 m, __m512 f) { _mm512_mask_storeu_ps(p, m, f); }
AVX512_INLINE void store16_f16(char *p, __mmask16 m, __m512 f) {
    _mm256_mask_storeu_epi16(p, m, _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
}
AVX512_INLINE void store16_bf16(char *p, __mmask16 m, __m512 f) { _mm256_mask_storeu_epi16(p, m, amp_bf16_narrow16(f)); }

#define WIDEN_AVX512(name, size, load16) \
    WIDEN_ROWS(name, AVX512, { \
        int64_t j = 0; \
        for (; j + 16 <= cols; j += 16) _mm512_storeu_ps(dst + j, load16(src + j * (size), 0xffff)); \
        const __mmask16 tail = (__mmask16)((1u << (cols - j)) - 1); \
        if (tail) _mm512_mask_storeu_ps(dst + j, tail, load16(src + j * (size), tail)); \
    })
#define NARROW_AVX512(name, size, store16) \
    NARROW_ROWS(name, AVX512, { \
        int64_t j = 0; \
        for (; j + 16 <= cols; j += 16) store16(dst + j * (size), 0xffff, _mm512_loadu_ps(src + j)); \
        const __mmask16 tail = (__mmask16)((1u << (cols - j)) - 1); \
        if (tail) store16(dst + j * (size), tail, _mm512_maskz_loadu_ps(tail, src + j)); \
    })
SCALE(scale_rows_avx512, AVX512)
WIDEN_AVX512(widen_f32_avx512, 4, gemm_load16_f32)
WIDEN_AVX512(widen_f16_avx512, 2, gemm_load16_f16)
WIDEN_AVX512(widen_bf16_avx512, 2, gemm_load16_bf16)
WIDEN_AVX512(widen_tf32_avx512, 4, load16_tf32)
WIDEN_AVX512(widen_f32_as_bf16_avx512, 4, load16_f32_as_bf16)
WIDEN_AVX512(round_f16_avx512, 4, round16_f16)
NARROW_AVX512(narrow_f32_avx512, 4, store16_f32)
NARROW_AVX512(narrow_f16_avx512, 2, store16_f16)
NARROW_AVX512(narrow_bf16_avx512, 2, store16_bf16)

#define AVX512_BF16        __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define AVX512_BF16_INLINE AVX512_BF16 static inline __attribute__((always_inline))
AVX512_BF16_INLINE __m512 load16_f32_as_bf16_fast(const char *p, __mmask16 m) {
    const __m256i bits = amp_bf16_narrow16_fast(_mm512_maskz_loadu_ps(m, p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
AVX512_BF16_INLINE void store16_bf16_fast(char *p, __mmask16 m, __m512 f) {
    _mm256_mask_storeu_epi16(p, m, amp_bf16_narrow16_fast(f));
}
#undef AVX512
#define AVX512 AVX512_BF16
WIDEN_AVX512(widen_f32_as_bf16_fast, 4, load16_f32_as_bf16_fast)
NARROW_AVX512(narrow_bf16_fast, 2, store16_bf16_fast)

#define LEVELS(portable, avx2, avx512) (amp_isa() >= ISA_AVX512 ? avx512 : amp_isa() >= ISA_AVX2 ? avx2 : portable)
#else
#define LEVELS(portable, avx2, avx512) (portable)
#endif

/* ------------------------------------------------------------------ choice */

WidenFn gemm_widen(int dtype, InputRounding rounding) {
    switch (dtype) {
    case AMP_FLOAT16: return LEVELS(widen_f16, widen_f16_avx2, widen_f16_avx512);
    case AMP_BFLOAT16: return LEVELS(widen_bf16, widen_bf16_avx2, widen_bf16_avx512);
    case AMP_FLOAT8_E5M2: return widen_e5m2;
    case AMP_FLOAT8_E4M3FN: return widen_e4m3;
    default: break;
    }
    if (rounding == INPUT_TF32) return LEVELS(widen_tf32, widen_tf32_avx2, widen_tf32_avx512);
#if defined(__x86_64__)
    if (rounding == INPUT_BF16 && amp_isa() >= ISA_AVX512_BF16) return widen_f32_as_bf16_fast;
#endif
    if (rounding == INPUT_BF16) return LEVELS(widen_f32_as_bf16, widen_f32_as_bf16_avx2, widen_f32_as_bf16_avx512);
    return LEVELS(widen_f32, widen_f32, widen_f32_avx512);
}

WidenFn gemm_round(int dtype) {
    if (dtype == AMP_BFLOAT16) return gemm_widen(AMP_FLOAT32, INPUT_BF16);
    return LEVELS(round_f16, round_f16_avx2, round_f16_avx512);
}

ScaleFn gemm_scale(void) { return LEVELS(scale_rows_any, scale_rows_avx2, scale_rows_avx512); }

NarrowFn gemm_narrow(int dtype) {
#if defined(__x86_64__)
    if (dtype == AMP_BFLOAT16 && amp_isa() >= ISA_AVX512_BF16) return narrow_bf16_fast;
#endif
    switch (dtype) {
    case AMP_FLOAT16: return LEVELS(narrow_f16, narrow_f16_avx2, narrow_f16_avx512);
    case AMP_BFLOAT16: return LEVELS(narrow_bf16, narrow_bf16_avx2, narrow_bf16_avx512);
    case AMP_FLOAT8_E5M2: return narrow_e5m2;
    case AMP_FLOAT8_E4M3FN: return narrow_e4m3;
    default: return LEVELS(narrow_f32, narrow_f32, narrow_f32_avx512);
    }
}
