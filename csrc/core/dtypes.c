/* The table made from dtypes.def and the promotion of two formats. */
#include "core.h"

const DTypeInfo amp_dtype_info[AMP_DTYPE_COUNT] = {
#define DTYPE(id, name, numpy, bytes, category, shortname) [AMP_##id] = {name, numpy, shortname, bytes, AMP_##category},
#include "dtypes.def"
#undef DTYPE
};

/* The categories are ordered: the higher one decides. Inside a category the later row is the wider format, except where neither
 * holds the other: uint8 with int8 (int16 holds both), the two 16-bit floats and the two 8-bit floats (float32 holds both). */
int amp_promote_dtypes(int a, int b) {
    if (a == b) return a;
    int ca = amp_dtype_info[a].category, cb = amp_dtype_info[b].category;
    if (ca != cb) {
        int high = ca > cb ? a : b, low = ca > cb ? b : a;
        if (!amp_is_complex(high)) return high;
        /* parts as wide as the real operand; bf16 and fp8 have no complex counterpart of their own */
        int least = low == AMP_FLOAT64 ? AMP_COMPLEX128
                    : low == AMP_FLOAT32 || low == AMP_BFLOAT16 || low == AMP_FLOAT8_E5M2 || low == AMP_FLOAT8_E4M3FN
                        ? AMP_COMPLEX64
                        : AMP_COMPLEX32;
        return high > least ? high : least;
    }
    int high = a > b ? a : b, low = a > b ? b : a;
    if (low == AMP_UINT8 && high == AMP_INT8) return AMP_INT16;
    if (low == AMP_FLOAT16 && high == AMP_BFLOAT16) return AMP_FLOAT32;
    if (low == AMP_FLOAT8_E5M2 && high == AMP_FLOAT8_E4M3FN) return AMP_FLOAT32;
    return high;
}
