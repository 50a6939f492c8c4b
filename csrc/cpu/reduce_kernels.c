/* The fold kernels at three instruction-set levels. */
#include "vectorize.h"

#include "../core/numeric_ops.h"
#include "reduce.h"

typedef struct __attribute__((packed, may_alias)) C128 {
    double re, im;
} C128;
typedef U16 B16;
#define GET AMP_FN
GET AmpComplex get_C128(const C128 *p) { return (AmpComplex){p->re, p->im}; }
GET int64_t get_I64(const I64 *p) { return *p; }
GET float get_F32(const F32 *p) { return *p; }
GET float get_B16(const B16 *p) { return amp_bits_f32((uint32_t)*p << 16); }
GET double get_F64(const F64 *p) { return *p; }
GET double square(double x) { return x * x; }

#define ADD(a, b)      ((a) + (b))
#define MUL(a, b)      ((a) * (b))
#define MAX(a, b)      (((a) != (a)) | ((a) >= (b)) ? (a) : (b)) /* NaN wins; without a branch, which would keep the loop scalar */
#define MIN(a, b)      (((a) != (a)) | ((a) <= (b)) ? (a) : (b))
#define WRAP_ADD(a, b) amp_i64_add(a, b)
#define WRAP_MUL(a, b) amp_i64_mul(a, b)

#define K(name) name##_baseline
#define TARGET
#include "reduce_template.h"

#if defined(__x86_64__)
#define K(name) name##_avx2
#define TARGET  __attribute__((target("avx2")))
#include "reduce_template.h"

#define K(name) name##_avx512
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512")))
#include "reduce_template.h"
#endif

FoldKernel amp_fold_kernel(Fold fold, int load_dtype) {
    int type = load_dtype == AMP_FLOAT32      ? 0
               : load_dtype == AMP_FLOAT64    ? 1
               : load_dtype == AMP_INT64      ? 2
               : load_dtype == AMP_COMPLEX128 ? 3
                                              : 4;
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return table_avx512[type][fold];
    if (isa >= ISA_AVX2) return table_avx2[type][fold];
#endif
    return table_baseline[type][fold];
}
