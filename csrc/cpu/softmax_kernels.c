/* The runs of softmax.h for both compute formats, float at three instruction-set levels. */
#include "vectorize.h"

#include "../core/numeric_math.h"
#include "softmax.h"

enum { LANES = 16, CHUNK = 512, COLUMN_GROUP = 64 };

#define T           F64
#define REAL        double
#define UNIT        1.0
#define UNIT_EXP(x) exp(x)
#define LOG(x)      log(x)
#define K(name)     name##_f64
#define TARGET
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
#include "softmax_template.h"

#if defined(__x86_64__)
#define K(name) name##_avx2
#define TARGET  __attribute__((target("avx2")))
#include "softmax_template.h"

#define K(name) name##_avx512
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512")))
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
