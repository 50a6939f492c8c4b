/* The row kernels of norm_rows.h for bfloat16 where the machine has an instruction to round to it. */
#include "norm_rows_parts.h"

#if defined(__x86_64__)
#define REAL         float
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

const NormRowKernels *amp_norm_rows_avx512_bf16(void) { return &kernels_b16_avx512_bf16; }
#endif
