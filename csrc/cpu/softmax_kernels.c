/* The runs of softmax.h for both compute formats, float at three instruction-set levels. */
#include "vectorize.h"

#include <string.h>

#include "../core/numeric_math.h"
#include "softmax.h"
#include "stream.h"

enum { LANES = 16, COLUMN_GROUP = 64, CACHE_LINE = 64 };

/* So many sums in float64 as a register of an instruction set holds, and their terms. */
typedef double Wide4 __attribute__((vector_size(32)));
typedef double Wide8 __attribute__((vector_size(64)));
typedef float Narrow4 __attribute__((vector_size(16)));
typedef float Narrow8 __attribute__((vector_size(32)));

#define T           F64
#define REAL        double
#define UNIT        1.0
#define UNIT_EXP(x) exp(x)
#define LOG(x)      log(x)
#define K(name)     name##_f64
#define TARGET
#define STREAM       STREAM_16
#define STREAM_BYTES 16
#define WIDTH        4
#define WIDE         Wide4
#define NARROW       Wide4
#include "softmax_template.h"
#undef T
#undef REAL
#undef UNIT
#undef UNIT_EXP
#undef LOG

#define T           F32
#define REAL        float
#define UNIT        0x1p24
#define UNIT_EXP(x) amp_exp_f32_times_2p24(x)
#define LOG(x)      amp_log_wide(x, 1.0)

#define K(name) name##_baseline
#define TARGET
#define STREAM       STREAM_16
#define STREAM_BYTES 16
#define WIDTH        4
#define WIDE         Wide4
#define NARROW       Narrow4
#include "softmax_template.h"

#if defined(__x86_64__)
#undef UNIT_EXP
#define UNIT_EXP(x) amp_exp_f32_times_2p24_fused(x)

#define K(name)      name##_avx2
#define TARGET       __attribute__((target("avx2,fma")))
#define STREAM       STREAM_32
#define STREAM_BYTES 32
#define WIDTH        4
#define WIDE         Wide4
#define NARROW       Narrow4
#include "softmax_template.h"

#define K(name)      name##_avx512
#define STREAM       STREAM_64
#define STREAM_BYTES 64
#define TARGET       __attribute__((target("avx512f,fma,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512")))
#define WIDTH        8
#define WIDE         Wide8
#define NARROW       Narrow8
#include "softmax_template.h"
#endif

const SoftmaxKernels *amp_softmax_kernels(int compute_dtype) {
    if (compute_dtype == AMP_FLOAT64) return &kernels_f64;
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return &kernels_avx512;
    if (isa >= ISA_AVX2) return &kernels_avx2;
#endif
    return &kernels_baseline;
}
