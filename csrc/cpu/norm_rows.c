/* The row kernels of norm_rows.h for every stored format. */
#include "vectorize.h"

#if !defined(__clang__)
#pragma GCC optimize("no-tree-loop-distribute-patterns") /* a short memset starts slowly */
#endif

#include <math.h>
#include <string.h>

#include "lanes.h"
#include "norm_rows.h"
#include "stream.h"

enum { BLOCK = 8 };

typedef float Narrow2 __attribute__((vector_size(8)));
typedef float Narrow4 __attribute__((vector_size(16)));
typedef float Narrow8 __attribute__((vector_size(32)));
typedef float Narrow16 __attribute__((vector_size(64)));
typedef double Wide2 __attribute__((vector_size(16)));
typedef double Wide4 __attribute__((vector_size(32)));
typedef double Wide8 __attribute__((vector_size(64)));

/* Formats without a conversion. */
#define COPY_IN(to, p)         memcpy(to, p, sizeof *(p)*AMP_LANES)
#define COPY_PART_IN(to, p, n) memset(to, 0, sizeof *(p)*AMP_LANES), memcpy(to, p, sizeof *(p) * (size_t)(n))
#define COPY_OUT(p, v)         memcpy(p, v, sizeof *(p)*AMP_LANES)
#define COPY_PART_OUT(p, v, n) memcpy(p, v, sizeof *(p) * (size_t)(n))

#define REAL         double
#define STREAM       STREAM_16
#define STREAM_BYTES 16
#define V            Wide2
#define NARROW       Wide2
#define WIDE         Wide2
#define WIDEN(v)     __builtin_convertvector(v, Wide2)
#define TARGET
#define T         F64
#define K(name)   name##_f64
#define TAKE      COPY_IN
#define TAKE_PART COPY_PART_IN
#define GIVE      COPY_OUT
#define GIVE_PART COPY_PART_OUT
#include "norm_rows_template.h"
#undef REAL
#undef V
#undef STREAM
#undef STREAM_BYTES
#undef NARROW
#undef WIDE
#undef WIDEN
#undef TARGET

#define REAL float

#define STREAM       STREAM_16
#define STREAM_BYTES 16
#define V            Narrow4
#define NARROW       Narrow2
#define WIDE         Wide2
#define WIDEN(v)     __builtin_convertvector(v, Wide2)
#define TARGET
#define LEVEL(name) name##_baseline
#include "norm_rows_level.h"

#if defined(__x86_64__)
#define STREAM       STREAM_32
#define STREAM_BYTES 32
#define V            Narrow8
#define NARROW       Narrow4
#define WIDE         Wide4
#define WIDEN(v)     (Wide4) _mm256_cvtps_pd((__m128)(v))
#define TARGET       LANES_AVX2
#define LEVEL(name)  name##_avx2
#include "norm_rows_level.h"

#define STREAM       STREAM_32
#define STREAM_BYTES 32
#define V            Narrow16
#define NARROW       Narrow8
#define WIDE         Wide8
#define WIDEN(v)     (Wide8) _mm512_cvtps_pd((__m256)(v))
#define TARGET       __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,prefer-vector-width=512")))
#define LEVEL(name)  name##_avx512
#include "norm_rows_level.h"

/* bfloat16 where the machine has an instruction to round to it. */
#define STREAM       STREAM_32
#define STREAM_BYTES 32
#define V            Narrow16
#define NARROW       Narrow8
#define WIDE         Wide8
#define WIDEN(v)     (Wide8) _mm512_cvtps_pd((__m256)(v))
#define TARGET       __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,f16c,prefer-vector-width=512")))
#define T            B16
#define K(name)      name##_b16_avx512_bf16
#define TAKE         load_B16_avx512
#define TAKE_PART    part_B16_avx512
#define GIVE(p, v)   _mm256_storeu_si256((void *)(p), amp_bf16_narrow16_fast(_mm512_loadu_ps(v)))
#define GIVE_PART    store_part_B16_avx512
#include "norm_rows_template.h"
#endif

static const NormRowKernels *of_level(int dtype, const NormRowKernels *f32, const NormRowKernels *b16,
                                      const NormRowKernels *h16) {
    return dtype == AMP_FLOAT32 ? f32 : dtype == AMP_BFLOAT16 ? b16 : dtype == AMP_FLOAT16 ? h16 : NULL;
}

const NormRowKernels *amp_norm_row_kernels(int dtype) {
    if (dtype == AMP_FLOAT64) return &kernels_f64;
#if defined(__x86_64__)
    const Isa isa = amp_isa();
    if (isa >= ISA_AVX512_BF16) return of_level(dtype, &kernels_f32_avx512, &kernels_b16_avx512_bf16, &kernels_h16_avx512);
    if (isa >= ISA_AVX512) return of_level(dtype, &kernels_f32_avx512, &kernels_b16_avx512, &kernels_h16_avx512);
    if (isa >= ISA_AVX2) return of_level(dtype, &kernels_f32_avx2, &kernels_b16_avx2, &kernels_h16_avx2);
#endif
    return of_level(dtype, &kernels_f32_baseline, &kernels_b16_baseline, &kernels_h16_baseline);
}
