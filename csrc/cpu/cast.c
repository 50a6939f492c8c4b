/* Conversions between all number formats.
 *
 * Every source widens exactly to its compute format (hub); every hub narrows to every destination with one rounding:
 *
 *     e5m2 e4m3 f16 bf16 -> FLOAT32 \
 *                           FLOAT64  -> any
 *     bool u8 i8 i16 i32 -> INT64   /
 *     c64                -> COMPLEX128 -> c64, bool (either part), or the real part as FLOAT64 -> any
 */
#include "cast.h"
#include "../core/numeric.h"
#include "vectorize.h"

int amp_compute_dtype(int dtype) {
    switch (amp_dtype_info[dtype].category) {
    case AMP_FLOATING: return dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
    case AMP_COMPLEX: return AMP_COMPLEX128;
    default: return AMP_INT64;
    }
}

#define CAST(name, S, D, expr) \
    static void name(const char *src, char *dst, int64_t n) { \
        const S *s = (const S *)(const void *)src; \
        D *d = (D *)(void *)dst; \
        IVDEP for (int64_t i = 0; i < n; i++) { \
            S x = s[i]; \
            d[i] = expr; \
        } \
    }

CAST(e5m2_f32, U8, F32, amp_e5m2_to_f32(x))
CAST(e4m3_f32, U8, F32, amp_e4m3_to_f32(x))
CAST(f16_f32, U16, F32, amp_f16_to_f32(x))
CAST(bf16_f32, U16, F32, amp_bf16_to_f32(x))
CAST(bool_i64, U8, I64, x != 0)
CAST(u8_i64, U8, I64, x)
CAST(i8_i64, I8, I64, x)
CAST(i16_i64, I16, I64, x)
CAST(i32_i64, I32, I64, x)

/* From a hub T; `integer` turns it into int64 bits, of which narrower integers keep the low part. */
#define CASTS_FROM(T, X, integer) \
    CAST(X##_bool, T, U8, x != 0) \
    CAST(X##_u8, T, U8, (U8)(uint64_t)integer(x)) \
    CAST(X##_i8, T, I8, (I8)(uint64_t)integer(x)) \
    CAST(X##_i16, T, I16, (I16)(uint64_t)integer(x)) \
    CAST(X##_i32, T, I32, (I32)(uint64_t)integer(x)) \
    CAST(X##_e5m2, T, U8, amp_##X##_to_e5m2(x)) \
    CAST(X##_e4m3, T, U8, amp_##X##_to_e4m3(x)) \
    CAST(X##_f16, T, U16, amp_##X##_to_f16(x)) \
    CAST(X##_bf16, T, U16, amp_##X##_to_bf16(x))

#define SAME_INTEGER(x) (x)
CASTS_FROM(F32, f32, amp_f32_to_i64)
CASTS_FROM(F64, f64, amp_f64_to_i64)
CASTS_FROM(I64, i64, SAME_INTEGER)
CAST(f32_i64, F32, I64, amp_f32_to_i64(x))
CAST(f32_f64, F32, F64, (double)x)
CAST(f64_i64, F64, I64, amp_f64_to_i64(x))
CAST(f64_f32, F64, F32, (float)x)
CAST(i64_f32, I64, F32, (float)x)
CAST(i64_f64, I64, F64, (double)x)

static void c64_c128(const char *src, char *dst, int64_t n) { f32_f64(src, dst, 2 * n); }
static void c128_c64(const char *src, char *dst, int64_t n) { f64_f32(src, dst, 2 * n); }
static void c32_c128(const char *src, char *dst, int64_t n) {
    const U16 *s = (const U16 *)(const void *)src;
    F64 *d = (F64 *)(void *)dst;
    for (int64_t i = 0; i < 2 * n; i++) d[i] = (double)amp_f16_to_f32(s[i]);
}
static void bc32_c128(const char *src, char *dst, int64_t n) {
    const U16 *s = (const U16 *)(const void *)src;
    F64 *d = (F64 *)(void *)dst;
    for (int64_t i = 0; i < 2 * n; i++) d[i] = (double)amp_bf16_to_f32(s[i]);
}
static void c128_bc32(const char *src, char *dst, int64_t n) { f64_bf16(src, dst, 2 * n); }
static void c128_c32(const char *src, char *dst, int64_t n) { f64_f16(src, dst, 2 * n); }
static void f64_c128(const char *src, char *dst, int64_t n) {
    const F64 *s = (const F64 *)(const void *)src;
    F64 *d = (F64 *)(void *)dst;
    for (int64_t i = 0; i < n; i++) d[2 * i] = s[i], d[2 * i + 1] = 0;
}
static void c128_f64(const char *src, char *dst, int64_t n) {
    const F64 *s = (const F64 *)(const void *)src;
    F64 *d = (F64 *)(void *)dst;
    for (int64_t i = 0; i < n; i++) d[i] = s[2 * i];
}
static void c128_bool(const char *src, char *dst, int64_t n) {
    const F64 *s = (const F64 *)(const void *)src;
    for (int64_t i = 0; i < n; i++) dst[i] = s[2 * i] != 0 || s[2 * i + 1] != 0;
}

/* clang-format off */
/* One-step conversions; what is missing goes through the hub of the source. */
#define ROW(HUB, X)                                                                                                                     \
    [AMP_##HUB] = {[AMP_BOOL] = X##_bool,           [AMP_UINT8] = X##_u8,           [AMP_INT8] = X##_i8,      [AMP_INT16] = X##_i16,    \
                   [AMP_INT32] = X##_i32,           [AMP_FLOAT8_E5M2] = X##_e5m2,   [AMP_FLOAT8_E4M3FN] = X##_e4m3,                     \
                   [AMP_FLOAT16] = X##_f16,         [AMP_BFLOAT16] = X##_bf16,
static const CastFn direct[AMP_DTYPE_COUNT][AMP_DTYPE_COUNT] = {
    ROW(FLOAT32, f32)[AMP_INT64] = f32_i64, [AMP_FLOAT64] = f32_f64},
    ROW(FLOAT64, f64)[AMP_INT64] = f64_i64, [AMP_FLOAT32] = f64_f32, [AMP_COMPLEX128] = f64_c128},
    ROW(INT64, i64)[AMP_FLOAT32] = i64_f32, [AMP_FLOAT64] = i64_f64},
    [AMP_FLOAT8_E5M2] = {[AMP_FLOAT32] = e5m2_f32},
    [AMP_FLOAT8_E4M3FN] = {[AMP_FLOAT32] = e4m3_f32},
    [AMP_FLOAT16] = {[AMP_FLOAT32] = f16_f32},
    [AMP_BFLOAT16] = {[AMP_FLOAT32] = bf16_f32},
    [AMP_BOOL] = {[AMP_INT64] = bool_i64},
    [AMP_UINT8] = {[AMP_INT64] = u8_i64},
    [AMP_INT8] = {[AMP_INT64] = i8_i64},
    [AMP_INT16] = {[AMP_INT64] = i16_i64},
    [AMP_INT32] = {[AMP_INT64] = i32_i64},
    [AMP_BCOMPLEX32] = {[AMP_COMPLEX128] = bc32_c128},
    [AMP_COMPLEX32] = {[AMP_COMPLEX128] = c32_c128},
    [AMP_COMPLEX64] = {[AMP_COMPLEX128] = c64_c128},
    [AMP_COMPLEX128] = {[AMP_BOOL] = c128_bool, [AMP_BCOMPLEX32] = c128_bc32, [AMP_COMPLEX32] = c128_c32, [AMP_COMPLEX64] = c128_c64, [AMP_FLOAT64] = c128_f64},
};
/* clang-format on */

static CastFn one_step(int src, int dst) {
    CastFn fn = amp_cast_vector(src, dst);
    if (!fn) fn = amp_cast_wide(src, dst);
    return fn ? fn : direct[src][dst];
}

/* The next format on the way from src to dst. */
static int waypoint(int src, int dst) {
    int hub = amp_compute_dtype(src);
    if (hub != src) return hub;
    if (hub == AMP_COMPLEX128) return AMP_FLOAT64; /* to a real format: drop the imaginary part */
    return amp_is_complex(dst) && src == AMP_FLOAT64 ? AMP_COMPLEX128 : AMP_FLOAT64; /* to complex */
}

/* Dense to dense. Longer ways go strip by strip through at most three buffers. */
static void convert_dense(int sd, const char *src, int dd, char *dst, int64_t n) {
    size_t ss = amp_itemsize(sd), ds = amp_itemsize(dd);
    if (sd == dd) {
        if (src != dst) memcpy(dst, src, (size_t)n * ss);
        return;
    }
    CastFn fn = one_step(sd, dd);
    if (fn) {
        fn(src, dst, n);
        return;
    }
    _Alignas(64) char strip[AMP_STRIP * AMP_MAX_ITEM];
    int via = waypoint(sd, dd);
    CastFn first = one_step(sd, via);
    for (int64_t i = 0; i < n; i += AMP_STRIP) {
        int64_t m = n - i < AMP_STRIP ? n - i : AMP_STRIP;
        first(src + (size_t)i * ss, strip, m);
        convert_dense(via, strip, dd, dst + (size_t)i * ds, m);
    }
}

#define MOVE(T) \
    for (int64_t i = 0; i < n; i++, src += src_step, dst += dst_step) { \
        T v; \
        memcpy(&v, src, sizeof v); \
        memcpy(dst, &v, sizeof v); \
    } \
    break;
typedef struct Bytes16 {
    uint64_t low, high;
} Bytes16;

#define SPREAD(T) \
    { \
        T v; \
        memcpy(&v, src, sizeof v); \
        for (int64_t i = 0; i < first; i++) memcpy(dst + i * (int64_t)sizeof v, &v, sizeof v); \
        break; \
    }
/* One element to n dense places: the beginning by elements, the rest in copies of it, which take the widest stores there are. */
static void spread(size_t item, const char *src, char *dst, int64_t n) {
    const int64_t block = 2048 / (int64_t)item, first = item > 1 && n > block ? block : n;
    switch (item) {
    case 1: memset(dst, *src, (size_t)n); break;
    case 2: SPREAD(uint16_t)
    case 4: SPREAD(uint32_t)
    case 8: SPREAD(uint64_t)
    default: SPREAD(Bytes16)
    }
    for (int64_t i = first; i < n; i += first)
        memcpy(dst + i * (int64_t)item, dst, (size_t)((n - i < first ? n - i : first) * (int64_t)item));
}

#define REVERSE(T) \
    { \
        const T *s = (const T *)(const void *)src; \
        T *d = (T *)(void *)dst; \
        IVDEP for (int64_t i = 0; i < n; i++) d[i] = s[-i]; \
        return true; \
    }
/* Dense elements backwards, by vectors. False: not for this size. */
static bool reverse(size_t item, const char *src, char *dst, int64_t n) {
    switch (item) {
    case 2: REVERSE(U16)
    case 4: REVERSE(I32)
    case 8: REVERSE(I64)
    default: return false;
    }
}

/* Same-sized elements, any steps. */
static void move(size_t item, const char *src, int64_t src_step, char *dst, int64_t dst_step, int64_t n) {
    if (src_step == (int64_t)item && dst_step == (int64_t)item) {
        if (n && src != dst) memmove(dst, src, (size_t)n * item); /* of none, either may be NULL */
        return;
    }
    if (src_step == 0 && dst_step == (int64_t)item) {
        spread(item, src, dst, n);
        return;
    }
    if (src_step == -(int64_t)item && dst_step == (int64_t)item && reverse(item, src, dst, n)) return;
    switch (item) {
    case 1: MOVE(uint8_t)
    case 2: MOVE(uint16_t)
    case 4: MOVE(uint32_t)
    case 8: MOVE(uint64_t)
    default: MOVE(Bytes16)
    }
}

void amp_convert(int sd, const char *src, int64_t src_step, int dd, char *dst, int64_t dst_step, int64_t n) {
    int64_t ss = (int64_t)amp_itemsize(sd), ds = (int64_t)amp_itemsize(dd);
    if (n == 1) src_step = ss, dst_step = ds; /* nothing is stepped over */
    if (sd == dd) {
        move((size_t)ss, src, src_step, dst, dst_step, n);
        return;
    }
    if (src_step == ss && dst_step == ds) {
        convert_dense(sd, src, dd, dst, n);
        return;
    }
    if (src_step == 0 && n > 1) { /* one value: converted once, then spread */
        _Alignas(16) char one[AMP_MAX_ITEM];
        convert_dense(sd, src, dd, one, 1);
        move((size_t)ds, one, 0, dst, dst_step, n);
        return;
    }
    _Alignas(64) char from[AMP_STRIP * AMP_MAX_ITEM], to[AMP_STRIP * AMP_MAX_ITEM];
    for (int64_t i = 0; i < n; i += AMP_STRIP) {
        int64_t m = n - i < AMP_STRIP ? n - i : AMP_STRIP;
        const char *s = src + i * src_step;
        char *d = dst + i * dst_step;
        if (src_step != ss) {
            move((size_t)ss, s, src_step, from, ss, m);
            s = from;
        }
        convert_dense(sd, s, dd, dst_step == ds ? d : to, m);
        if (dst_step != ds) move((size_t)ds, to, ds, d, dst_step, m);
    }
}

void amp_convert_number(const Number *number, int dst_dtype, char *dst) {
    double parts[2] = {number->f, number->kind == NUMBER_COMPLEX ? number->imag : 0};
    if (number->kind == NUMBER_INT || number->kind == NUMBER_BOOL)
        convert_dense(AMP_INT64, (const char *)&number->i, dst_dtype, dst, 1);
    else if (number->kind == NUMBER_COMPLEX) convert_dense(AMP_COMPLEX128, (const char *)parts, dst_dtype, dst, 1);
    else convert_dense(AMP_FLOAT64, (const char *)parts, dst_dtype, dst, 1);
}
