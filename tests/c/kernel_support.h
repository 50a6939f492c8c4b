/* What the kernel drivers share: checks, random values, tensors of every layout, distances in units of the last place. */
#ifndef KERNEL_SUPPORT_H
#define KERNEL_SUPPORT_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../csrc/core/backend.h"
#include "../../csrc/core/numeric.h"
#include "../../csrc/core/ops.h"
#include "../../csrc/cpu/cast.h"
#include "emulation.h"

static int failures, checks;
#define CHECK(condition, ...) \
    do { \
        checks++; \
        static int shown; \
        if (!(condition) && (failures++, shown++ < 4)) { \
            printf("%s:%d [%s] %s: ", __FILE__, __LINE__, amp_isa_name(amp_isa()), #condition); \
            printf(__VA_ARGS__); \
            printf("\n"); \
        } \
    } while (0)

static uint64_t seed = 88172645463325252u;
static uint64_t draw(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}
static double uniform(double low, double high) { return low + (high - low) * (double)(draw() >> 11) * 0x1p-53; }

/* ---- tensors ---- */

typedef enum Layout { DENSE, MISALIGNED, SPACED, REVERSED, TRANSPOSED, BROADCAST, LAYOUTS } Layout;
typedef struct Array {
    View v;
    int64_t shape[4], stride[4];
    char *memory;
} Array;

static Array make(int dtype, int ndim, const int64_t *shape, Layout layout) {
    Array a = {.memory = NULL};
    int64_t item = (int64_t)amp_itemsize(dtype), n = 1, step = layout == SPACED ? 3 : 1;
    for (int d = 0; d < ndim; d++) a.shape[d] = shape[d], n *= shape[d];
    for (int i = 0; i < ndim; i++) {
        int d = layout == TRANSPOSED ? i : ndim - 1 - i;
        a.stride[d] = layout == BROADCAST ? 0 : step;
        step *= shape[d] ? shape[d] : 1;
    }
    a.memory = calloc((size_t)(n * 3 + 2), (size_t)item);
    a.v.data = a.memory + (layout == MISALIGNED);
    if (layout == REVERSED && ndim && n) {
        a.v.data += (shape[ndim - 1] - 1) * a.stride[ndim - 1] * item;
        a.stride[ndim - 1] = -a.stride[ndim - 1];
    }
    a.v.numel = n;
    a.v.ndim = (int8_t)ndim;
    a.v.dtype = (int8_t)dtype;
    return a;
}
static View *view(Array *a) {
    a->v.shape = a->shape;
    a->v.stride = a->stride;
    a->v.layout = amp_is_contiguous(a->v.ndim, a->shape, a->stride) ? LAYOUT_CONTIGUOUS : 0;
    return &a->v;
}
static char *element(const Array *a, int64_t i) {
    char *p = a->v.data;
    for (int d = a->v.ndim - 1; d >= 0; d--) {
        p += i % a->shape[d] * a->stride[d] * (int64_t)amp_itemsize(a->v.dtype);
        i /= a->shape[d];
    }
    return p;
}
static double get(const Array *a, int64_t i) {
    double v[2];
    amp_convert(a->v.dtype, element(a, i), 0, AMP_FLOAT64, (char *)v, 0, 1);
    return v[0];
}
static void set(Array *a, int64_t i, double x) { amp_convert(AMP_FLOAT64, (char *)&x, 0, a->v.dtype, element(a, i), 0, 1); }
static void fill_uniform(Array *a, double low, double high) {
    for (int64_t i = 0; i < a->v.numel; i++) set(a, i, uniform(low, high));
}

/* Size of the last mantissa bit of `x` in a format. */
static double ulp(int dtype, double x) {
    int bits = dtype == AMP_FLOAT16       ? 10
               : dtype == AMP_BFLOAT16    ? 7
               : dtype == AMP_FLOAT32     ? 23
               : dtype == AMP_FLOAT64     ? 52
               : dtype == AMP_FLOAT8_E5M2 ? 2
                                          : 3;
    int least = dtype == AMP_FLOAT16         ? -14
                : dtype == AMP_FLOAT64       ? -1022
                : dtype == AMP_FLOAT8_E5M2   ? -14
                : dtype == AMP_FLOAT8_E4M3FN ? -6
                                             : -126;
    int e = x == 0 || !isfinite(x) ? least : ilogb(x);
    return ldexp(1, (e < least ? least : e) - bits);
}
static bool near_value(int dtype, double got, double want, double bound) {
    if (isnan(want)) return isnan(got);
    if (got == want) return true;
    double edge = dtype == AMP_FLOAT16 ? 65504 : dtype == AMP_BFLOAT16 || dtype == AMP_FLOAT32 ? 0x1.fep127 : 1e308;
    if (isinf(got) && fabs(want) >= edge * 0.999 && (got > 0) == (want > 0)) return true;
    return fabs(got - want) <= bound * ulp(dtype, want);
}

static const char *const levels[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};
static const int floats[] = {AMP_FLOAT16, AMP_BFLOAT16, AMP_FLOAT32, AMP_FLOAT64};

/* One level after the other, as far as the machine goes. group(k) returns a hash of result bits that must not depend on the level; bit k
 * of `fused`: but the baseline, which has no fused multiply-adds, may differ. */
static int run_levels_fused(unsigned fused, int groups, uint64_t (*group)(int)) {
    uint64_t first[8] = {0};
    CHECK(emulation_works(), "its own test fails");
    for (int level = 0; level < 5 && level <= (int)amp_isa_best(); level++) {
        if (!is_tested(level)) continue;
        amp_isa_set_cap(levels[level]);
        for (int k = 0; k < groups; k++) {
            seed = 88172645463325252u;
            uint64_t hash = group(k);
            CHECK(tiles_are_free(), "after group %d", k);
            if (EMULATED || level <= (int)(fused >> k & 1)) first[k] = hash;
            CHECK(hash == first[k], "bits of group %d differ from a lower level's", k);
        }
        printf("%s: %d checks, %d failures\n", amp_isa_name(amp_isa()), checks, failures);
    }
    return failures != 0;
}

static inline int run_levels(int groups, uint64_t (*group)(int)) { return run_levels_fused(0, groups, group); }

#endif
