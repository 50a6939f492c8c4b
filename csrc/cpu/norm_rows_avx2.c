/* The row kernels of norm_rows.h with AVX2. */
#include "norm_rows_parts.h"

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
#endif
