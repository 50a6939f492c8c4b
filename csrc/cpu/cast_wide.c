/* Conversions that a compiler vectorises, at the wider instruction sets: between integers and floats, and to bool. The same bits as
 * cast.c, one rounding. */
#include "cast.h"
#include "vectorize.h"

#if defined(__x86_64__)
#include "../core/numeric.h"

/* Integers of 32 bits: 2^24 and above lose eight low bits to one sticky bit (round to odd), so that float32 holds the rest and a
 * narrowing to 16 bits rounds once. */
AMP_FN float i32_to_f32_odd(int32_t i) {
    const int32_t odd = (i & ~0xff) | ((i & 0xff) ? 0x100 : 0);
    return (float)(i >= -(1 << 24) && i < 1 << 24 ? i : odd);
}
/* amp_f64_to_f32_odd without a branch, for what is then rounded to bfloat16. */
AMP_FN float f64_to_f32_odd(double f) {
    const float r = (float)f;
    const uint32_t u = amp_f32_bits(r), down = fabs((double)r) > fabs(f) ? u - 1 : u;
    return (double)r == f || f != f ? r : amp_bits_f32(down | 1u);
}
/* amp_f64_to_i64 for a float, where the target's own instruction does the same. */
AMP_FN int64_t f32_to_i64(float f) { return f >= -0x1p63f && f < 0x1p63f ? (int64_t)f : INT64_MIN; }
AMP_FN int64_t f64_to_i64(double f) { return f >= -0x1p63 && f < 0x1p63 ? (int64_t)f : INT64_MIN; }

#define CASTS(X) \
    X(bool_i64, U8, I64, x != 0) \
    X(u8_i64, U8, I64, x) \
    X(i8_i64, I8, I64, x) \
    X(i16_i64, I16, I64, x) \
    X(i32_i64, I32, I64, x) \
    X(i64_i32, I64, I32, (I32)x) \
    X(i64_i16, I64, I16, (I16)x) \
    X(i64_u8, I64, U8, (U8)x) \
    X(i64_bool, I64, U8, x != 0) \
    X(i32_bool, I32, U8, x != 0) \
    X(u16_bool, U16, U8, (x & 0x7fff) != 0) \
    X(f32_bool, F32, U8, x != 0) \
    X(f64_bool, F64, U8, x != 0) \
    X(bool_f32, U8, F32, (float)(x != 0)) \
    X(u8_f32, U8, F32, (float)x) \
    X(i8_f32, I8, F32, (float)x) \
    X(i16_f32, I16, F32, (float)x) \
    X(i32_f32, I32, F32, (float)x) \
    X(i32_f64, I32, F64, (double)x) \
    X(i64_f32, I64, F32, (float)x) \
    X(i64_f64, I64, F64, (double)x) \
    X(bool_bf16, U8, U16, x != 0 ? 0x3f80 : 0) \
    X(bool_f16, U8, U16, x != 0 ? 0x3c00 : 0) \
    X(i32_bf16, I32, U16, amp_f32_to_bf16(i32_to_f32_odd(x))) \
    X(i64_bf16, I64, U16, amp_f32_to_bf16(f64_to_f32_odd(amp_i64_to_f64_odd(x)))) \
    X(f64_bf16, F64, U16, amp_f32_to_bf16(f64_to_f32_odd(x))) \
    X(f32_f64, F32, F64, (double)x) \
    X(f64_f32, F64, F32, (float)x) \
    X(f32_i64, F32, I64, f32_to_i64(x)) \
    X(f64_i64, F64, I64, f64_to_i64(x))

#define CAST(name, S, D, expr) \
    TARGET static void K(name)(const char *src, char *dst, int64_t n) { \
        const S *s = (const S *)(const void *)src; \
        D *d = (D *)(void *)dst; \
        IVDEP for (int64_t i = 0; i < n; i++) { \
            const S x = s[i]; \
            d[i] = expr; \
        } \
    }
/* clang-format off */
#define TABLE                                                                                                          \
    {                                                                                                                  \
        [AMP_BOOL] = {[AMP_INT64] = K(bool_i64), [AMP_FLOAT32] = K(bool_f32), [AMP_BFLOAT16] = K(bool_bf16), [AMP_FLOAT16] = K(bool_f16)}, \
        [AMP_UINT8] = {[AMP_INT64] = K(u8_i64), [AMP_FLOAT32] = K(u8_f32)},                                            \
        [AMP_INT8] = {[AMP_INT64] = K(i8_i64), [AMP_FLOAT32] = K(i8_f32)},                                             \
        [AMP_INT16] = {[AMP_INT64] = K(i16_i64), [AMP_FLOAT32] = K(i16_f32)},                                          \
        [AMP_INT32] = {[AMP_INT64] = K(i32_i64), [AMP_BOOL] = K(i32_bool), [AMP_FLOAT32] = K(i32_f32), [AMP_FLOAT64] = K(i32_f64), \
                       [AMP_BFLOAT16] = K(i32_bf16)},                                                                  \
        [AMP_INT64] = {[AMP_INT32] = K(i64_i32), [AMP_INT16] = K(i64_i16), [AMP_UINT8] = K(i64_u8), [AMP_INT8] = K(i64_u8), \
                       [AMP_BOOL] = K(i64_bool), [AMP_FLOAT32] = K(i64_f32), [AMP_FLOAT64] = K(i64_f64), [AMP_BFLOAT16] = K(i64_bf16)}, \
        [AMP_FLOAT16] = {[AMP_BOOL] = K(u16_bool)},                                                                    \
        [AMP_BFLOAT16] = {[AMP_BOOL] = K(u16_bool)},                                                                   \
        [AMP_FLOAT32] = {[AMP_BOOL] = K(f32_bool), [AMP_FLOAT64] = K(f32_f64), [AMP_INT64] = K(f32_i64)},              \
        [AMP_FLOAT64] = {[AMP_BOOL] = K(f64_bool), [AMP_FLOAT32] = K(f64_f32), [AMP_INT64] = K(f64_i64), [AMP_BFLOAT16] = K(f64_bf16)}, \
    }
/* clang-format on */

#define K(name) name##_avx2
#define TARGET  __attribute__((target("avx2")))
CASTS(CAST)
static const CastFn table_avx2[AMP_DTYPE_COUNT][AMP_DTYPE_COUNT] = TABLE;
#undef K
#undef TARGET

#define K(name) name##_avx512
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512")))
CASTS(CAST)
static const CastFn table_avx512[AMP_DTYPE_COUNT][AMP_DTYPE_COUNT] = TABLE;

CastFn amp_cast_wide(int src, int dst) {
    Isa isa = amp_isa();
    return isa >= ISA_AVX512 ? table_avx512[src][dst] : isa >= ISA_AVX2 ? table_avx2[src][dst] : NULL;
}
#else
CastFn amp_cast_wide(int src, int dst) {
    (void)src, (void)dst;
    return NULL;
}
#endif
