/* bfloat16 kernels that read and write the format itself, for ops that cost less than conversions by strips. Computed in fp32 and rounded
 * once, with the bits of the float kernels. */
#include "vectorize.h"

#include "../core/numeric_ops.h"
#include "elementwise.h"

#define FEW
#define T        U16
#define REAL     float
#define R(name)  amp_f32_##name
#define M(name)  name##f
#define LOAD(x)  amp_bf16_to_f32(x)
#define STORE(x) amp_f32_to_bf16(x)

#if defined(__x86_64__)
#define K(name) name##_avx2
#define TARGET  __attribute__((target("avx2,f16c")))
#include "elementwise_template.h"

#define K(name) name##_avx512
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,prefer-vector-width=512")))
#include "elementwise_template.h"
#endif

Kernel amp_kernel_bf16(int id) {
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return table_avx512[id];
    if (isa >= ISA_AVX2) return table_avx2[id];
#endif
    (void)id;
    return NULL;
}
