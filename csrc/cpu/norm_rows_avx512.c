/* The row kernels of norm_rows.h with AVX-512. */
#include "norm_rows_parts.h"

#if defined(__x86_64__)
#define STREAM       STREAM_32
#define STREAM_BYTES 32
#define V            Narrow16
#define NARROW       Narrow8
#define WIDE         Wide8
#define WIDEN(v)     (Wide8) _mm512_cvtps_pd((__m256)(v))
#define TARGET       __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,prefer-vector-width=512")))
#define LEVEL(name)  name##_avx512
#include "norm_rows_level.h"
#endif
