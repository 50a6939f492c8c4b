/* double kernels at three instruction-set levels, all made from one template. */
#include "vectorize.h"

#include "../core/numeric_gamma.h"
#include "../core/numeric_ops.h"
#include "elementwise.h"
#include "elementwise_ops.h"

#define T        F64
#define REAL     double
#define R(name)  amp_f64_##name
#define M(name)  name
#define LOAD(x)  (x)
#define STORE(x) (x)

#define K(name) name##_baseline
#define TARGET
#include "elementwise_template.h"

#if defined(__x86_64__)
#define K(name) name##_avx2
#define TARGET  __attribute__((target("avx2,f16c")))
#include "elementwise_template.h"

#define K(name) name##_avx512
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,prefer-vector-width=512")))
#include "elementwise_template.h"
#endif

Kernel amp_kernel_f64(int id) {
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return table_avx512[id];
    if (isa >= ISA_AVX2) return table_avx2[id];
#endif
    return table_baseline[id];
}
