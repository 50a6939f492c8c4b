/* Conversions between float32 and the 16-bit floats with wide instructions; the same bits as numeric.h. */
#include "cast.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include "../core/numeric.h"
#include "bf16_x86.h"

#define AVX2   __attribute__((target("avx2,f16c")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c")))

static inline float load_f32(const char *p) {
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint16_t load_u16(const char *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* The last n < width elements of a run. */
static void widen_rest(bool half, const char *s, char *d, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float v = half ? amp_f16_to_f32(load_u16(s + 2 * i)) : amp_bf16_to_f32(load_u16(s + 2 * i));
        memcpy(d + 4 * i, &v, sizeof v);
    }
}
static void narrow_rest(bool half, const char *s, char *d, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t v = half ? amp_f32_to_f16(load_f32(s + 4 * i)) : amp_f32_to_bf16(load_f32(s + 4 * i));
        memcpy(d + 2 * i, &v, sizeof v);
    }
}

AVX2 static void f16_f32_avx2(const char *s, char *d, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps((float *)(void *)(d + 4 * i), _mm256_cvtph_ps(_mm_loadu_si128((const void *)(s + 2 * i))));
    widen_rest(true, s + 2 * i, d + 4 * i, n - i);
}
AVX2 static void bf16_f32_avx2(const char *s, char *d, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(s + 2 * i)));
        _mm256_storeu_si256((void *)(d + 4 * i), _mm256_slli_epi32(wide, 16));
    }
    widen_rest(false, s + 2 * i, d + 4 * i, n - i);
}
AVX2 static void f32_f16_avx2(const char *s, char *d, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps((const float *)(const void *)(s + 4 * i));
        _mm_storeu_si128((void *)(d + 2 * i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    narrow_rest(true, s + 4 * i, d + 2 * i, n - i);
}
AVX2 static void f32_bf16_avx2(const char *s, char *d, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i a = amp_bf16_bits8(_mm256_loadu_ps((const float *)(const void *)(s + 4 * i)));
        __m256i b = amp_bf16_bits8(_mm256_loadu_ps((const float *)(const void *)(s + 4 * i + 32)));
        __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8); /* packing works per 128-bit half: 0 2 1 3 */
        _mm256_storeu_si256((void *)(d + 2 * i), packed);
    }
    narrow_rest(false, s + 4 * i, d + 2 * i, n - i);
}

AVX512 static inline __mmask16 rest_mask(int64_t n) { return (__mmask16)((1u << n) - 1u); }

AVX512 static void f16_f32_avx512(const char *s, char *d, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps(d + 4 * i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(s + 2 * i))));
    if (i == n) return;
    __mmask16 m = rest_mask(n - i);
    _mm512_mask_storeu_ps(d + 4 * i, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, s + 2 * i)));
}
AVX512 static void bf16_f32_avx512(const char *s, char *d, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(s + 2 * i)));
        _mm512_storeu_si512(d + 4 * i, _mm512_slli_epi32(wide, 16));
    }
    if (i == n) return;
    __mmask16 m = rest_mask(n - i);
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, s + 2 * i));
    _mm512_mask_storeu_epi32(d + 4 * i, m, _mm512_slli_epi32(wide, 16));
}
AVX512 static void f32_f16_avx512(const char *s, char *d, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(d + 2 * i), _mm512_cvtps_ph(_mm512_loadu_ps(s + 4 * i), _MM_FROUND_TO_NEAREST_INT));
    if (i == n) return;
    __mmask16 m = rest_mask(n - i);
    _mm256_mask_storeu_epi16(d + 2 * i, m, _mm512_cvtps_ph(_mm512_maskz_loadu_ps(m, s + 4 * i), _MM_FROUND_TO_NEAREST_INT));
}
#define F32_BF16_AVX512(name, target_text, narrow16) \
    __attribute__((target(target_text))) static void name(const char *s, char *d, int64_t n) { \
        int64_t i = 0; \
        for (; i + 16 <= n; i += 16) _mm256_storeu_si256((void *)(d + 2 * i), narrow16(_mm512_loadu_ps(s + 4 * i))); \
        if (i == n) return; \
        __mmask16 m = (__mmask16)((1u << (n - i)) - 1u); \
        _mm256_mask_storeu_epi16(d + 2 * i, m, narrow16(_mm512_maskz_loadu_ps(m, s + 4 * i))); \
    }
F32_BF16_AVX512(f32_bf16_avx512, "avx512f,avx512bw,avx512vl", amp_bf16_narrow16)
F32_BF16_AVX512(f32_bf16_avx512_bf16, "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16", amp_bf16_narrow16_fast)

/* From fp64 by way of fp32 "to odd": cut off, with the last bit set where that lost something. As fp32 has more than two bits more than
 * either format, the second rounding then gives what a single one would. Vectors with a NaN go element by element. */
AVX512 static inline __m256 to_odd(__m512d x) {
    const __m256 cut = _mm512_cvt_roundpd_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __mmask8 lost = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), x, _CMP_NEQ_UQ);
    const __m256i bits = _mm256_castps_si256(cut);
    return _mm256_castsi256_ps(_mm256_mask_or_epi32(bits, lost, bits, _mm256_set1_epi32(1)));
}
#define F64_16_AVX512(name, narrow16, narrow) \
    AVX512 static void name(const char *s, char *d, int64_t n) { \
        for (int64_t i = 0; i < n; i += 16) { \
            const __mmask16 m = n - i >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << (n - i)) - 1u); \
            const __m512d a = _mm512_maskz_loadu_pd((__mmask8)m, s + 8 * i), \
                          b = _mm512_maskz_loadu_pd((__mmask8)(m >> 8), s + 8 * i + 64); \
            if (_mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q)) { \
                for (int64_t k = i; k < n && k < i + 16; k++) { \
                    double x; \
                    memcpy(&x, s + 8 * k, 8); \
                    const uint16_t h = narrow(x); \
                    memcpy(d + 2 * k, &h, 2); \
                } \
                continue; \
            } \
            const __m512 both = _mm512_insertf32x8(_mm512_castps256_ps512(to_odd(a)), to_odd(b), 1); \
            _mm256_mask_storeu_epi16(d + 2 * i, m, narrow16(both)); \
        } \
    }
#define HALF16(f) _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT)
F64_16_AVX512(f64_f16_avx512, HALF16, amp_f64_to_f16)
F64_16_AVX512(f64_bf16_avx512, amp_bf16_narrow16, amp_f64_to_bf16)

/* ---- past the caches: the output's lines are not read first, and do not push anything out ---- */

/* Elements of `size` bytes until d is aligned to a vector, at most n; n if it never is. */
static inline int64_t until_aligned(const char *d, int64_t size, int64_t n) {
    uintptr_t bytes = -(uintptr_t)d & 31;
    if (bytes % (uintptr_t)size) return n;
    return (int64_t)bytes / size < n ? (int64_t)bytes / size : n;
}

AVX2 static inline __attribute__((always_inline)) void narrow_stream(bool half, const char *s, char *d, int64_t n) {
    int64_t i = until_aligned(d, 2, n);
    narrow_rest(half, s, d, i);
    for (; i + 16 <= n; i += 16) {
        __m256i packed;
        if (half) {
            __m128i a = _mm256_cvtps_ph(_mm256_loadu_ps((const float *)(const void *)(s + 4 * i)), _MM_FROUND_TO_NEAREST_INT);
            __m128i b = _mm256_cvtps_ph(_mm256_loadu_ps((const float *)(const void *)(s + 4 * i + 32)),
                                        _MM_FROUND_TO_NEAREST_INT);
            packed = _mm256_set_m128i(b, a);
        } else {
            __m256i a = amp_bf16_bits8(_mm256_loadu_ps((const float *)(const void *)(s + 4 * i)));
            __m256i b = amp_bf16_bits8(_mm256_loadu_ps((const float *)(const void *)(s + 4 * i + 32)));
            packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
        }
        _mm256_stream_si256((void *)(d + 2 * i), packed);
    }
    narrow_rest(half, s + 4 * i, d + 2 * i, n - i);
    _mm_sfence(); /* whoever is told that the work is done sees it */
}
AVX2 static inline __attribute__((always_inline)) void widen_stream(bool half, const char *s, char *d, int64_t n) {
    int64_t i = until_aligned(d, 4, n);
    widen_rest(half, s, d, i);
    for (; i + 8 <= n; i += 8) {
        __m128i narrow = _mm_loadu_si128((const void *)(s + 2 * i));
        __m256i wide = half ? _mm256_castps_si256(_mm256_cvtph_ps(narrow)) : _mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16);
        _mm256_stream_si256((void *)(d + 4 * i), wide);
    }
    widen_rest(half, s + 2 * i, d + 4 * i, n - i);
    _mm_sfence();
}
AVX2 static void f32_f16_stream(const char *s, char *d, int64_t n) { narrow_stream(true, s, d, n); }
AVX2 static void f32_bf16_stream(const char *s, char *d, int64_t n) { narrow_stream(false, s, d, n); }
AVX2 static void f16_f32_stream(const char *s, char *d, int64_t n) { widen_stream(true, s, d, n); }
AVX2 static void bf16_f32_stream(const char *s, char *d, int64_t n) { widen_stream(false, s, d, n); }

AVX2 static void copy_stream(const char *s, char *d, int64_t bytes) {
    int64_t i = until_aligned(d, 1, bytes);
    memcpy(d, s, (size_t)i);
    for (; i + 32 <= bytes; i += 32) _mm256_stream_si256((void *)(d + i), _mm256_loadu_si256((const void *)(s + i)));
    memcpy(d + i, s + i, (size_t)(bytes - i));
    _mm_sfence();
}
AVX2 static void copy2_stream(const char *s, char *d, int64_t n) { copy_stream(s, d, 2 * n); }
AVX2 static void copy4_stream(const char *s, char *d, int64_t n) { copy_stream(s, d, 4 * n); }
AVX2 static void copy8_stream(const char *s, char *d, int64_t n) { copy_stream(s, d, 8 * n); }

CastFn amp_cast_stream(int src, int dst) {
    if (amp_isa() < ISA_AVX2) return NULL;
    if (src == dst) {
        size_t size = amp_itemsize(src);
        return size == 2 ? copy2_stream : size == 4 ? copy4_stream : size == 8 ? copy8_stream : NULL;
    }
    if (dst == AMP_FLOAT32 && src == AMP_FLOAT16) return f16_f32_stream;
    if (dst == AMP_FLOAT32 && src == AMP_BFLOAT16) return bf16_f32_stream;
    if (src == AMP_FLOAT32 && dst == AMP_FLOAT16) return f32_f16_stream;
    if (src == AMP_FLOAT32 && dst == AMP_BFLOAT16) return f32_bf16_stream;
    return NULL;
}

CastFn amp_cast_vector(int src, int dst) {
    Isa isa = amp_isa();
    if (isa < ISA_AVX2) return NULL;
    bool wide = isa >= ISA_AVX512;
    if (dst == AMP_FLOAT32 && src == AMP_FLOAT16) return wide ? f16_f32_avx512 : f16_f32_avx2;
    if (dst == AMP_FLOAT32 && src == AMP_BFLOAT16) return wide ? bf16_f32_avx512 : bf16_f32_avx2;
    if (src == AMP_FLOAT32 && dst == AMP_FLOAT16) return wide ? f32_f16_avx512 : f32_f16_avx2;
    if (src == AMP_FLOAT32 && dst == AMP_BFLOAT16)
        return amp_isa() >= ISA_AVX512_BF16 ? f32_bf16_avx512_bf16 : wide ? f32_bf16_avx512 : f32_bf16_avx2;
    if (wide && src == AMP_FLOAT64 && dst == AMP_FLOAT16) return f64_f16_avx512;
    if (wide && src == AMP_FLOAT64 && dst == AMP_BFLOAT16) return f64_bf16_avx512;
    return NULL;
}

#else
CastFn amp_cast_vector(int src, int dst) {
    (void)src;
    (void)dst;
    return NULL;
}
CastFn amp_cast_stream(int src, int dst) {
    (void)src;
    (void)dst;
    return NULL;
}
#endif
