/* The fold kernels at three instruction-set levels. */
#include "vectorize.h"

#if !defined(__clang__)
/* Partial redundancy elimination would do the first lane of a loop once more outside it, and so by itself. */
#pragma GCC optimize("no-tree-pre")
#endif

#include "../core/numeric_ops.h"
#include "lanes.h"
#include "reduce.h"

typedef struct __attribute__((packed, may_alias)) C128 {
    double re, im;
} C128;
typedef double __attribute__((vector_size(32))) Double4;
typedef double __attribute__((vector_size(64))) Double8;
#define GET AMP_FN
GET AmpComplex get_C128(const C128 *p) { return (AmpComplex){p->re, p->im}; }
GET int64_t get_I64(const I64 *p) { return *p; }
GET int32_t get_I32(const I32 *p) { return *p; }
GET uint8_t get_U8(const U8 *p) { return *p; }
#define get_F32 amp_lane_F32
#define get_B16 amp_lane_B16
#define get_H16 amp_lane_H16
GET double get_F64(const F64 *p) { return *p; }
GET double square(double x) { return x * x; }
/* |x|^p of a float32 number, relative error below 2^-35, down to 2^-1009: what is less counts as about that much, but for 0 itself. Sums
 * that small are not trusted anyway. */
GET double power(double x, double p) {
    double t = p * amp_log_wide(fabs(x), 1.0), v = amp_exp_core(amp_clip(t, -699.5, 699.5));
    v = t == -(double)INFINITY ? 0.0 : v;
    return t > 699.5 ? (double)INFINITY : v;
}

/* See LAST_ONES. */
static inline const void *last_ones(const char *data, int64_t n, int64_t i, size_t item, void *few, int *first) {
    *first = AMP_FOLD_LANES - (int)(n - i);
    if (n >= AMP_FOLD_LANES) return data + (size_t)(n - AMP_FOLD_LANES) * item;
    memset(few, 0, AMP_FOLD_LANES * item);
    memcpy((char *)few + (size_t)*first * item, data, (size_t)n * item);
    return few;
}

#define ADD(a, b)      ((a) + (b))
#define MUL(a, b)      ((a) * (b))
#define MAX(a, b)      (((b) != (b)) | ((b) > (a)) ? (b) : (a)) /* NaN wins; without a branch, which would keep the loop scalar */
#define MIN(a, b)      (((b) != (b)) | ((b) < (a)) ? (b) : (a))
#define WRAP_ADD(a, b) amp_i64_add(a, b)
#define WRAP_MUL(a, b) amp_i64_mul(a, b)

#define K(name) name##_baseline
#define TARGET
#include "reduce_template.h"

#if defined(__x86_64__)
#define K(name) name##_avx2
#define TARGET  __attribute__((target("avx2,f16c")))
#include "reduce_template.h"

#define K(name) name##_avx512
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,prefer-vector-width=512")))
#include "reduce_template.h"
#endif

FoldKernel amp_fold_kernel(Fold fold, int load_dtype) {
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return table_avx512[load_dtype][fold];
    if (isa >= ISA_AVX2) return table_avx2[load_dtype][fold];
#endif
    return table_baseline[load_dtype][fold];
}
