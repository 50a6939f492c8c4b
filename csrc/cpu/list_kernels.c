/* The arithmetic of list.c and list_optim.c: list_template.h at every instruction-set level, and the 16-bit rows. */
#include <math.h>
#include <string.h>

#include "../core/numeric.h"
#include "list.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define EXPONENT32 0x7f800000
#define EXPONENT64 0x7ff0000000000000

/* A fused product without the instruction: the C library knows how. */
typedef float Quad __attribute__((vector_size(16)));
typedef double Pair __attribute__((vector_size(16)));
static inline Quad fma_base_vf32(Quad a, Quad b, Quad c) {
    return (Quad){fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]), fmaf(a[3], b[3], c[3])};
}
static inline Pair fma_base_vf64(Pair a, Pair b, Pair c) { return (Pair){fma(a[0], b[0], c[0]), fma(a[1], b[1], c[1])}; }

/* ---- baseline: 16-byte vectors; where the target has none, the compiler splits them ---- */

#define NAME(f) f##_base_f32
#define TARGET
#define REAL  float
#define INT   int32_t
#define BYTES 16
#if defined(__x86_64__)
#define VSQRT(x) ((NAME(V))_mm_sqrt_ps((__m128)(x)))
#else
#define VSQRT(x) ((NAME(V)){sqrtf((x)[0]), sqrtf((x)[1]), sqrtf((x)[2]), sqrtf((x)[3])})
#endif
#define VFMA(a, b, c) fma_base_vf32(a, b, c)
#define EXPONENT      EXPONENT32
#define VSQUARE(d, c) ((d) * (d) + (c))
#define VWIDEN(v)     __builtin_convertvector(v, NAME(VD))
#include "list_template.h"

#define NAME(f) f##_base_f64
#define TARGET
#define REAL  double
#define INT   int64_t
#define BYTES 16
#if defined(__x86_64__)
#define VSQRT(x) ((NAME(V))_mm_sqrt_pd((__m128d)(x)))
#else
#define VSQRT(x) ((NAME(V)){sqrt((x)[0]), sqrt((x)[1])})
#endif
#define VFMA(a, b, c) fma_base_vf64(a, b, c)
#define EXPONENT      EXPONENT64
#define VSQUARE(d, c) ((d) * (d) + (c))
#define VWIDEN(v)     __builtin_convertvector(v, NAME(VD))
#include "list_template.h"

static void load_f16_base(float *to, const char *from, int64_t n) {
    uint16_t h;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&h, from + 2 * i, 2);
        to[i] = amp_f16_to_f32(h);
    }
}

static void store_f16_base(char *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) memcpy(to + 2 * i, &(uint16_t){amp_f32_to_f16(from[i])}, 2);
}

static void load_bf16_base(float *to, const char *from, int64_t n) {
    uint16_t h;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&h, from + 2 * i, 2);
        to[i] = amp_bf16_to_f32(h);
    }
}

static void store_bf16_base(char *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) memcpy(to + 2 * i, &(uint16_t){amp_f32_to_bf16(from[i])}, 2);
}

static const ListRows rows_base = {load_f16_base, store_f16_base, load_bf16_base, store_bf16_base};

#if defined(__x86_64__)

#define NAME(f)       f##_avx2_f32
#define TARGET        __attribute__((target("avx2,fma,f16c")))
#define REAL          float
#define INT           int32_t
#define BYTES         32
#define VSQRT(x)      ((NAME(V))_mm256_sqrt_ps((__m256)(x)))
#define VFMA(a, b, c) ((NAME(V))_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define EXPONENT      EXPONENT32
#define VSQUARE(d, c) ((NAME(VD))_mm256_fmadd_pd((__m256d)(d), (__m256d)(d), (__m256d)(c)))
#define VWIDEN(v)     ((NAME(VD))_mm256_cvtps_pd((__m128)(v)))
#include "list_template.h"

#define NAME(f)       f##_avx2_f64
#define TARGET        __attribute__((target("avx2,fma,f16c")))
#define REAL          double
#define INT           int64_t
#define BYTES         32
#define VSQRT(x)      ((NAME(V))_mm256_sqrt_pd((__m256d)(x)))
#define VFMA(a, b, c) ((NAME(V))_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define EXPONENT      EXPONENT64
#define VSQUARE(d, c) ((d) * (d) + (c))
#define VWIDEN(v)     __builtin_convertvector(v, NAME(VD))
#include "list_template.h"

#define NAME(f)       f##_avx512_f32
#define TARGET        __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define REAL          float
#define INT           int32_t
#define BYTES         64
#define VSQRT(x)      ((NAME(V))_mm512_sqrt_ps((__m512)(x)))
#define VFMA(a, b, c) ((NAME(V))_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define EXPONENT      EXPONENT32
#define VSQUARE(d, c) ((NAME(VD))_mm512_fmadd_pd((__m512d)(d), (__m512d)(d), (__m512d)(c)))
#define VWIDEN(v)     ((NAME(VD))_mm512_cvtps_pd((__m256)(v)))
#include "list_template.h"

#define NAME(f)       f##_avx512_f64
#define TARGET        __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define REAL          double
#define INT           int64_t
#define BYTES         64
#define VSQRT(x)      ((NAME(V))_mm512_sqrt_pd((__m512d)(x)))
#define VFMA(a, b, c) ((NAME(V))_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define EXPONENT      EXPONENT64
#define VSQUARE(d, c) ((d) * (d) + (c))
#define VWIDEN(v)     __builtin_convertvector(v, NAME(VD))
#include "list_template.h"

#define AVX2 __attribute__((target("avx2,fma,f16c")))

static AVX2 void load_f16_avx2(float *to, const char *from, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + 2 * i))));
    load_f16_base(to + i, from + 2 * i, n - i);
}

static AVX2 void store_f16_avx2(char *to, const float *from, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + 2 * i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    store_f16_base(to + 2 * i, from + i, n - i);
}

static AVX2 void load_bf16_avx2(float *to, const char *from, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(from + 2 * i)));
        _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_slli_epi32(h, 16));
    }
    load_bf16_base(to + i, from + 2 * i, n - i);
}

/* amp_f32_to_bf16 on eight values: the low half of each 32-bit lane is the answer. */
static inline AVX2 __attribute__((always_inline)) __m256i narrow8(const float *from) {
    __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)from), top = _mm256_srli_epi32(u, 16);
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)),
                                       _mm256_and_si256(top, _mm256_set1_epi32(1)));
    __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, _mm256_set1_epi32(INT32_MAX)), _mm256_set1_epi32(EXPONENT32));
    return _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan);
}

static AVX2 void store_bf16_avx2(char *to, const float *from, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        /* packus works within 128-bit halves: 0 2 | 1 3 goes back into order */
        __m256i packed = _mm256_packus_epi32(narrow8(from + i), narrow8(from + i + 8));
        _mm256_storeu_si256((__m256i *)(void *)(to + 2 * i), _mm256_permute4x64_epi64(packed, 0xd8));
    }
    store_bf16_base(to + 2 * i, from + i, n - i);
}

static const ListRows rows_avx2 = {load_f16_avx2, store_f16_avx2, load_bf16_avx2, store_bf16_avx2};

#endif

const ListKernels *amp_list_kernels(bool wide) {
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return wide ? &kernels_avx512_f64 : &kernels_avx512_f32;
    if (isa >= ISA_AVX2) return wide ? &kernels_avx2_f64 : &kernels_avx2_f32;
#endif
    return wide ? &kernels_base_f64 : &kernels_base_f32;
}

const ListRows *amp_list_rows(void) {
#if defined(__x86_64__)
    if (amp_isa() >= ISA_AVX2) return &rows_avx2;
#endif
    return &rows_base;
}
