/* The table made from dtypes.def and the promotion of two formats. */
#include "core.h"

#include "numeric.h"

const DTypeInfo amp_dtype_info[AMP_DTYPE_COUNT] = {
#define DTYPE(id, name, numpy, bytes, category, shortname) [AMP_##id] = {name, numpy, shortname, bytes, AMP_##category},
#include "dtypes.def"
#undef DTYPE
};

int amp_complex_of(int dtype) {
    switch (dtype) {
    case AMP_BFLOAT16: return AMP_BCOMPLEX32;
    case AMP_FLOAT16: return AMP_COMPLEX32;
    case AMP_FLOAT64: return AMP_COMPLEX128;
    default: return AMP_COMPLEX64;
    }
}

int amp_real_of(int dtype) {
    switch (dtype) {
    case AMP_BCOMPLEX32: return AMP_BFLOAT16;
    case AMP_COMPLEX32: return AMP_FLOAT16;
    case AMP_COMPLEX64: return AMP_FLOAT32;
    case AMP_COMPLEX128: return AMP_FLOAT64;
    default: return dtype;
    }
}

/* The categories are ordered: the higher one decides, and a complex format's parts are as wide as the real operand. Inside a category the
 * later row is the wider format, except where neither holds the other: uint8 with int8 (int16 holds both), the two 16-bit floats, the two
 * 8-bit floats and the two complex formats of 16-bit parts. */
int amp_promote_dtypes(int a, int b) {
    if (a == b) return a;
    int ca = amp_dtype_info[a].category, cb = amp_dtype_info[b].category;
    if (ca != cb) {
        int high = ca > cb ? a : b, low = ca > cb ? b : a;
        return amp_is_complex(high) && amp_is_floating(low) ? amp_promote_dtypes(high, amp_complex_of(low)) : high;
    }
    int high = a > b ? a : b, low = a > b ? b : a;
    if (low == AMP_UINT8 && high == AMP_INT8) return AMP_INT16;
    if (low == AMP_FLOAT16 && high == AMP_BFLOAT16) return AMP_FLOAT32;
    if (low == AMP_FLOAT8_E5M2 && high == AMP_FLOAT8_E4M3FN) return AMP_FLOAT32;
    if (low == AMP_BCOMPLEX32 && high == AMP_COMPLEX32) return AMP_COMPLEX64;
    return high;
}

double amp_held_by(double f, int dtype) {
    if (dtype == AMP_FLOAT16) return (double)amp_f16_to_f32(amp_f32_to_f16((float)f));
    return dtype == AMP_BFLOAT16 ? (double)amp_bf16_to_f32(amp_f32_to_bf16((float)f)) : f;
}
