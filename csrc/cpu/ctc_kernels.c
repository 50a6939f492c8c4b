/* The steps of ctc.h for both formats, float at three instruction-set levels. */
#include "vectorize.h"

#include "../core/numeric_math.h"
#include "ctc.h"

#define T          F64
#define REAL       double
#define EXP(x)     exp(x)
#define EXP_ANY(x) exp(x)
#define LOG(x)     log(x)
#define K(name)    name##_f64
#define TARGET
#include "ctc_template.h"
#undef T
#undef REAL
#undef EXP
#undef EXP_ANY
#undef LOG

/* exp of what is at most 0 but for rounding; NaN stays NaN. */
AMP_FN double share_of(double x) {
    double v = amp_exp_core(amp_clip(x, -700.0, 700.0));
    return x < -700.0 ? 0.0 : v;
}

#define T          F32
#define REAL       float
#define EXP(x)     share_of(x)
#define EXP_ANY(x) amp_exp_wide(x)
#define LOG(x)     amp_log_core(x)

#define K(name) name##_baseline
#define TARGET
#include "ctc_template.h"

#if defined(__x86_64__)
#define K(name) name##_avx2
#define TARGET  __attribute__((target("avx2")))
#include "ctc_template.h"

#define K(name) name##_avx512
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512")))
#include "ctc_template.h"
#endif

const CtcKernels *amp_ctc_kernels(int dtype) {
    if (dtype == AMP_FLOAT64) return &kernels_f64;
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return &kernels_avx512;
    if (isa >= ISA_AVX2) return &kernels_avx2;
#endif
    return &kernels_baseline;
}
