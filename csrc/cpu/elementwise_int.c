/* Kernels on integers of every width, and on bool, at three instruction-set levels. */
#include "vectorize.h"

#include "elementwise.h"

#define AVX2   __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512")))

#define T        I8
#define BITS     8
#define UNSIGNED uint32_t
#define K(name)  name##_i8_baseline
#define TARGET
#include "integer_template.h"
#define T        U8
#define BITS     8
#define UNSIGNED uint32_t
#define K(name)  name##_u8_baseline
#define TARGET
#include "integer_template.h"
#define T        I16
#define BITS     16
#define UNSIGNED uint32_t
#define K(name)  name##_i16_baseline
#define TARGET
#include "integer_template.h"
#define T        I32
#define BITS     32
#define UNSIGNED uint32_t
#define K(name)  name##_i32_baseline
#define TARGET
#include "integer_template.h"
#define T        I64
#define BITS     64
#define UNSIGNED uint64_t
#define K(name)  name##_i64_baseline
#define TARGET
#include "integer_template.h"

#if defined(__x86_64__)
#define T        I8
#define BITS     8
#define UNSIGNED uint32_t
#define K(name)  name##_i8_avx2
#define TARGET   AVX2
#include "integer_template.h"
#define T        U8
#define BITS     8
#define UNSIGNED uint32_t
#define K(name)  name##_u8_avx2
#define TARGET   AVX2
#include "integer_template.h"
#define T        I16
#define BITS     16
#define UNSIGNED uint32_t
#define K(name)  name##_i16_avx2
#define TARGET   AVX2
#include "integer_template.h"
#define T        I32
#define BITS     32
#define UNSIGNED uint32_t
#define K(name)  name##_i32_avx2
#define TARGET   AVX2
#include "integer_template.h"
#define T        I64
#define BITS     64
#define UNSIGNED uint64_t
#define K(name)  name##_i64_avx2
#define TARGET   AVX2
#include "integer_template.h"

#define T        I32
#define BITS     32
#define UNSIGNED uint32_t
#define K(name)  name##_i32_avx512
#define TARGET   AVX512
#include "integer_template.h"
#define T        I64
#define BITS     64
#define UNSIGNED uint64_t
#define K(name)  name##_i64_avx512
#define TARGET   AVX512
#include "integer_template.h"
#endif

/* ---- bool: any byte but 0 is true ---- */

/* clang-format off */
#define BOOL_OPS(X)                                                                                                    \
    X(eq, x == y) X(ne, x != y) X(lt, x < y) X(le, x <= y) X(gt, x > y) X(ge, x >= y)                                \
    X(logical_and, x & y) X(logical_or, x | y) X(logical_xor, x != y)                                                  \
    X(bitwise_and, x & y) X(bitwise_or, x | y) X(bitwise_xor, x != y) X(add, x | y) X(mul, x & y)                      \
    X(maximum, x | y) X(minimum, x & y)
/* clang-format on */
#define BOOL_LOOP(X, Y, expr) \
    IVDEP for (int64_t i = 0; i < n; i++) { \
        const int x = (X) != 0, y = (Y) != 0; \
        o[i] = (U8)(expr); \
    }
#define BOOL_KERNEL(name, TARGET, expr) \
    TARGET static void name(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) { \
        const U8 *a = (const U8 *)(const void *)in[0], *b = (const U8 *)(const void *)in[1], first = a[0], second = b[0]; \
        U8 *o = (U8 *)(void *)out; \
        (void)params; \
        if (scalar & 1) BOOL_LOOP(first, b[i], expr) \
        else if (scalar & 2) BOOL_LOOP(a[i], second, expr) \
        else BOOL_LOOP(a[i], b[i], expr) \
    }
#define BOOL_BASELINE(name, expr) BOOL_KERNEL(name##_bool_baseline, , expr)
#define BOOL_ENTRY(name, expr)    [OP_##name] = name##_bool_baseline,
/* clang-format off */
BOOL_OPS(BOOL_BASELINE)
static const Kernel table_bool_baseline[KERNEL_COUNT] = {BOOL_OPS(BOOL_ENTRY) [OP_logical_not] = logical_not_u8_baseline};
#if defined(__x86_64__)
#define BOOL_AVX2(name, expr) BOOL_KERNEL(name##_bool_avx2, AVX2, expr)
#define BOOL_AVX2_ENTRY(name, expr) [OP_##name] = name##_bool_avx2,
BOOL_OPS(BOOL_AVX2)
static const Kernel table_bool_avx2[KERNEL_COUNT] = {BOOL_OPS(BOOL_AVX2_ENTRY) [OP_logical_not] = logical_not_u8_avx2};
#endif
/* clang-format on */

Kernel amp_kernel_integer(int id, int dtype) {
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512 && dtype == AMP_INT32) return table_i32_avx512[id];
    if (isa >= ISA_AVX512 && dtype == AMP_INT64) return table_i64_avx512[id];
#define BY_LEVEL(name) (isa >= ISA_AVX2 ? table_##name##_avx2[id] : table_##name##_baseline[id])
#else
#define BY_LEVEL(name) table_##name##_baseline[id]
#endif
    switch (dtype) {
    case AMP_BOOL: return BY_LEVEL(bool);
    case AMP_UINT8: return BY_LEVEL(u8);
    case AMP_INT8: return BY_LEVEL(i8);
    case AMP_INT16: return BY_LEVEL(i16);
    case AMP_INT32: return BY_LEVEL(i32);
    case AMP_INT64: return BY_LEVEL(i64);
    default: return NULL;
    }
}
