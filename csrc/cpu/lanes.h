/* Sixteen numbers at a time, as float32, at each instruction-set level:
 *
 *     load_F32 load_B16 load_H16 (to, p)           to[0..16) = p[0..16), exact
 *     part_B16 part_H16 (to, p, n)                 the same for n < 16; the rest of `to` is 0
 *     store_B16 store_H16 (p, v)                   p[0..16) = v[0..16), rounded once with the bits of numeric.h
 *     store_part_B16 store_part_H16 (p, v, n)
 *
 * each with the level behind its name. `to` and `v` are local arrays of 16 float that a compiler keeps in registers when the loop
 * between load and store is vectorised, so that a loop over such chunks converts without a way through memory. */
#ifndef AMP_LANES_H
#define AMP_LANES_H
#include "vectorize.h"

#include "../core/numeric.h"

enum { AMP_LANES = 16 };
typedef U16 B16; /* bfloat16 */
typedef U16 H16; /* float16 */

AMP_FN float amp_lane_F32(const F32 *p) { return *p; }
AMP_FN float amp_lane_B16(const B16 *p) { return amp_bf16_to_f32(*p); }
/* Without a branch: the exponent is moved by a product, which makes subnormals normal; infinity and NaN get theirs after it. */
AMP_FN float amp_lane_H16(const H16 *p) {
    const uint32_t h = *p, size = (h & 0x7fffu) << 13, bits = amp_f32_bits(amp_bits_f32(size) * 0x1p112f);
    return amp_bits_f32((size >= 0x0f800000u ? bits | 0x7f800000u : bits) | (h & 0x8000u) << 16);
}
AMP_FN uint16_t amp_narrow_B16(float v) { return amp_f32_to_bf16(v); }
AMP_FN uint16_t amp_narrow_H16(float v) { return amp_f32_to_f16(v); }

/* What holds for every level, from load_T and store_T of the whole. */
#define LANES_BY_ELEMENTS(T, LEVEL, TARGET) \
    TARGET AMP_FN void part_##T##_##LEVEL(float *to, const T *p, int64_t n) { \
        T all[AMP_LANES] = {0}; \
        memcpy(all, p, (size_t)n * sizeof(T)); \
        load_##T##_##LEVEL(to, all); \
    } \
    TARGET AMP_FN void store_part_##T##_##LEVEL(T *p, const float *v, int64_t n) { \
        T all[AMP_LANES]; \
        store_##T##_##LEVEL(all, v); \
        memcpy(p, all, (size_t)n * sizeof(T)); \
    }

#define LANES_BASELINE_LOAD(T) \
    AMP_FN void load_##T##_baseline(float *to, const T *p) { \
        for (int l = 0; l < AMP_LANES; l++) to[l] = amp_lane_##T(p + l); \
    }
#define LANES_BASELINE(T) \
    LANES_BASELINE_LOAD(T) \
    AMP_FN void store_##T##_baseline(T *p, const float *v) { \
        for (int l = 0; l < AMP_LANES; l++) p[l] = amp_narrow_##T(v[l]); \
    } \
    LANES_BY_ELEMENTS(T, baseline, )
LANES_BASELINE_LOAD(F32)
LANES_BASELINE(B16)
LANES_BASELINE(H16)

#if defined(__x86_64__)
#include "bf16_x86.h"
#define LANES_AVX2   __attribute__((target("avx2,f16c")))
#define LANES_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c")))

LANES_AVX2 AMP_FN __m128i amp_lanes_half(const void *p) { return _mm_loadu_si128(p); }
LANES_AVX2 AMP_FN __m256i amp_lanes_widen8(const U16 *p) {
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(amp_lanes_half(p)), 16);
}
LANES_AVX2 AMP_FN void load_F32_avx2(float *to, const F32 *p) {
    _mm256_storeu_ps(to, _mm256_loadu_ps((const float *)p)), _mm256_storeu_ps(to + 8, _mm256_loadu_ps((const float *)p + 8));
}
LANES_AVX2 AMP_FN void load_B16_avx2(float *to, const B16 *p) {
    _mm256_storeu_ps(to, _mm256_castsi256_ps(amp_lanes_widen8(p)));
    _mm256_storeu_ps(to + 8, _mm256_castsi256_ps(amp_lanes_widen8(p + 8)));
}
LANES_AVX2 AMP_FN void load_H16_avx2(float *to, const H16 *p) {
    _mm256_storeu_ps(to, _mm256_cvtph_ps(amp_lanes_half(p))), _mm256_storeu_ps(to + 8, _mm256_cvtph_ps(amp_lanes_half(p + 8)));
}
LANES_AVX2 AMP_FN void store_B16_avx2(B16 *p, const float *v) {
    const __m256i a = amp_bf16_bits8(_mm256_loadu_ps(v)), b = amp_bf16_bits8(_mm256_loadu_ps(v + 8));
    _mm256_storeu_si256((void *)p, _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8)); /* packed by 128 bits: 0 2 1 3 */
}
LANES_AVX2 AMP_FN void store_H16_avx2(H16 *p, const float *v) {
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(_mm256_loadu_ps(v), _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((void *)(p + 8), _mm256_cvtps_ph(_mm256_loadu_ps(v + 8), _MM_FROUND_TO_NEAREST_INT));
}
LANES_BY_ELEMENTS(B16, avx2, LANES_AVX2)
LANES_BY_ELEMENTS(H16, avx2, LANES_AVX2)

LANES_AVX512 AMP_FN void load_F32_avx512(float *to, const F32 *p) { _mm512_storeu_ps(to, _mm512_loadu_ps((const void *)p)); }
LANES_AVX512 AMP_FN void load_B16_avx512(float *to, const B16 *p) {
    _mm512_storeu_si512(to, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}
LANES_AVX512 AMP_FN void load_H16_avx512(float *to, const H16 *p) {
    _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)));
}
LANES_AVX512 AMP_FN void store_B16_avx512(B16 *p, const float *v) {
    _mm256_storeu_si256((void *)p, amp_bf16_narrow16(_mm512_loadu_ps(v)));
}
LANES_AVX512 AMP_FN void store_H16_avx512(H16 *p, const float *v) {
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(_mm512_loadu_ps(v), _MM_FROUND_TO_NEAREST_INT));
}
LANES_BY_ELEMENTS(B16, avx512, LANES_AVX512)
LANES_BY_ELEMENTS(H16, avx512, LANES_AVX512)
#endif

#endif
