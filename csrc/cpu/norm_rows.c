/* Which row kernels of norm_rows.h are in use: each level is compiled in a file of its own. */
#include <stddef.h>

#include "cpu_features.h"
#include "norm_rows.h"

const NormRowKernels *amp_norm_row_kernels(int dtype) {
    if (dtype == AMP_FLOAT64) return amp_norm_rows_f64();
#if defined(__x86_64__)
    const Isa isa = amp_isa();
    if (isa >= ISA_AVX512_BF16 && dtype == AMP_BFLOAT16) return amp_norm_rows_avx512_bf16();
    if (isa >= ISA_AVX512) return amp_norm_rows_avx512(dtype);
    if (isa >= ISA_AVX2) return amp_norm_rows_avx2(dtype);
#endif
    return amp_norm_rows_baseline(dtype);
}
