/* float16 kernels that read and write the format itself, at three instruction-set levels. */
#include "vectorize.h"

#include "../core/numeric_narrow.h"
#include "elementwise.h"
#include "elementwise_ops.h"
#include "lanes.h"

#define T              H16
#define REAL           float
#define FORMAT(name)   name##_H16
#define R(name)        amp_f32_##name
#define M(name)        name##f
#define MINUS_INFINITY (-1024) /* 0xfc00 */

#define K(name) name##_baseline
#define TARGET
#include "narrow_template.h"

#if defined(__x86_64__)
#define K(name) name##_avx2
#define TARGET  __attribute__((target("avx2,f16c")))
#include "narrow_template.h"

#define K(name) name##_avx512
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,prefer-vector-width=512")))
#include "narrow_template.h"
#endif

Kernel amp_kernel_f16(int id) {
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return table_avx512[id];
    if (isa >= ISA_AVX2) return table_avx2[id];
#endif
    return table_baseline[id];
}
