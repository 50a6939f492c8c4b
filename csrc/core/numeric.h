/* The scalar meaning of every number format and every conversion. Plain C without state, so that the CPU kernels, their vector
 * versions (which must give the same bits) and device code can all include it. AMP_FN carries the qualifiers of the compiler in use.
 *
 * Formats (s sign, e exponent, m mantissa; bias in brackets):
 *
 *   float16       s eeeee mmmmmmmmmm                 [15]   largest 65504, subnormal step 2^-24
 *   bfloat16      s eeeeeeee mmmmmmm                 [127]  upper half of a float32
 *   TF32          s eeeeeeee mmmmmmmmmm 0000000000000 [127] kept in a float32
 *   float8_e5m2   s eeeee mm                         [15]   upper half of a float16
 *   float8_e4m3fn s eeee mmm                         [7]    no infinity; only x1111.111 is NaN; largest 448
 *   float32       s eeeeeeee m(23)                   [127]
 *   float64       s e(11) m(52)                      [1023]
 *
 * Every narrowing rounds once, to nearest, ties to even (TF32: ties away), with exact subnormals. NaN stays a quiet NaN and keeps
 * its sign and the upper bits of its payload, which is also what the F16C and AVX512 instructions give. */
#ifndef AMP_NUMERIC_H
#define AMP_NUMERIC_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef AMP_FN
#define AMP_FN static inline __attribute__((always_inline, unused))
#endif

typedef struct AmpComplex {
    double re, im;
} AmpComplex;

AMP_FN uint32_t amp_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
AMP_FN float amp_bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
AMP_FN uint64_t amp_f64_bits(double f) {
    uint64_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
AMP_FN double amp_bits_f64(uint64_t u) {
    double f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* ---- widening: exact ---- */

/* A small IEEE-like format to float32. E exponent bits, M mantissa bits, `h` in the low 1+E+M bits. */
AMP_FN float amp_widen_ieee(uint32_t h, int E, int M) {
    const uint32_t bias = (1u << (E - 1)) - 1, top = (1u << E) - 1;
    uint32_t sign = (h >> (E + M)) << 31, e = (h >> M) & top, m = h & ((1u << M) - 1);
    if (e == top) return amp_bits_f32(sign | 0x7f800000u | (m ? 0x400000u : 0) | (m << (23 - M)));
    if (e == 0) { /* m * 2^(1-bias-M): a power of two times a small integer, exact */
        float v = (float)(int32_t)m * amp_bits_f32((128u - bias - (uint32_t)M) << 23);
        return amp_bits_f32(sign | amp_f32_bits(v));
    }
    return amp_bits_f32(sign | ((e + 127u - bias) << 23) | (m << (23 - M)));
}

AMP_FN float amp_f16_to_f32(uint16_t h) { return amp_widen_ieee(h, 5, 10); }
AMP_FN float amp_bf16_to_f32(uint16_t h) { return amp_bits_f32((uint32_t)h << 16); }
AMP_FN float amp_e5m2_to_f32(uint8_t h) { return amp_widen_ieee(h, 5, 2); }
AMP_FN float amp_e4m3_to_f32(uint8_t h) {
    uint32_t sign = (uint32_t)(h & 0x80) << 24, low = h & 0x7fu;
    if (low == 0x7f) return amp_bits_f32(sign | 0x7fc00000u);
    if (low < 8) return amp_bits_f32(sign | amp_f32_bits((float)(int32_t)low * 0x1p-9f));
    return amp_bits_f32(sign | ((low << 20) + (120u << 23)));
}

/* ---- narrowing ---- */

/* The magnitude `x` (float32 bits without sign) to E exponent and M mantissa bits; the result has no sign.
 *
 *        eeeeeeee mmmmmmmmmm|mmmmmmmmmmmmm        keep M bits, D = 23-M bits go
 *                         ^  ^^^^^^^^^^^^^        + 0111..1 + lowest kept bit: carries exactly when nearest-even rounds up,
 *                       lsb   D bits              also into the exponent (1.111 -> 10.00) and from the largest value to infinity
 *
 * Below the smallest normal number the value is added to a power of two whose unit in the last place is the subnormal step, so the
 * FPU does the rounding and the low bits of the sum are the answer. */
AMP_FN uint32_t amp_narrow32(uint32_t x, int E, int M) {
    const int D = 23 - M;
    const uint32_t bias = (1u << (E - 1)) - 1, inf = ((1u << E) - 1) << M;
    const uint32_t min_normal = (128u - bias) << 23;
    if (x > 0x7f800000u) return inf | (1u << (M - 1)) | ((x >> D) & ((1u << M) - 1));
    if (x < min_normal) {
        const uint32_t magic = (128u - bias + (uint32_t)D) << 23;
        return amp_f32_bits(amp_bits_f32(x) + amp_bits_f32(magic)) - magic;
    }
    uint32_t r = x - ((127u - bias) << 23);
    r = (r + ((1u << (D - 1)) - 1) + ((r >> D) & 1)) >> D;
    return r > inf ? inf : r;
}

/* The same from float64 bits: one rounding, never through float32. */
AMP_FN uint32_t amp_narrow64(uint64_t x, int E, int M) {
    const int D = 52 - M;
    const uint64_t bias = (1u << (E - 1)) - 1, inf = (uint64_t)((1u << E) - 1) << M;
    const uint64_t min_normal = (1024u - bias) << 52;
    if (x > 0x7ff0000000000000u) return (uint32_t)(inf | (1u << (M - 1)) | ((x >> D) & ((1u << M) - 1)));
    if (x < min_normal) {
        const uint64_t magic = (1024u - bias + (uint64_t)D) << 52;
        return (uint32_t)(amp_f64_bits(amp_bits_f64(x) + amp_bits_f64(magic)) - magic);
    }
    uint64_t r = x - ((1023u - bias) << 52);
    r = (r + (((uint64_t)1 << (D - 1)) - 1) + ((r >> D) & 1)) >> D;
    return (uint32_t)(r > inf ? inf : r);
}

AMP_FN uint16_t amp_f32_to_f16(float f) {
    uint32_t u = amp_f32_bits(f);
    return (uint16_t)((u >> 31) << 15 | amp_narrow32(u & 0x7fffffffu, 5, 10));
}
/* bfloat16 shares float32's exponent: adding to the whole word is enough, subnormals and overflow included. */
AMP_FN uint16_t amp_f32_to_bf16(float f) {
    uint32_t u = amp_f32_bits(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
}
AMP_FN uint8_t amp_f32_to_e5m2(float f) {
    uint32_t u = amp_f32_bits(f);
    return (uint8_t)((u >> 31) << 7 | amp_narrow32(u & 0x7fffffffu, 5, 2));
}
/* Rounded as if exponent 15 had all eight mantissas; what lands on or beyond x1111.111 is NaN (the tie 464 goes to the even 448). */
AMP_FN uint8_t amp_f32_to_e4m3(float f) {
    uint32_t u = amp_f32_bits(f), x = u & 0x7fffffffu, r;
    if (x > 0x43e80000u) r = 0x7f;                                                       /* above 464, infinity, NaN */
    else if (x < 0x3c800000u) r = amp_f32_bits(amp_bits_f32(x) + 0x1p14f) - 0x46800000u; /* below 2^-6: steps of 2^-9 */
    else r = amp_narrow32(x, 5, 3) - (8u << 3);                                          /* rounded with bias 15, then bias 7 */
    return (uint8_t)((u >> 31) << 7 | r);
}

AMP_FN uint16_t amp_f64_to_f16(double f) {
    uint64_t u = amp_f64_bits(f);
    return (uint16_t)((uint32_t)(u >> 63) << 15 | amp_narrow64(u & INT64_MAX, 5, 10));
}
AMP_FN uint16_t amp_f64_to_bf16(double f) {
    uint64_t u = amp_f64_bits(f);
    return (uint16_t)((uint32_t)(u >> 63) << 15 | amp_narrow64(u & INT64_MAX, 8, 7));
}
AMP_FN uint8_t amp_f64_to_e5m2(double f) {
    uint64_t u = amp_f64_bits(f);
    return (uint8_t)((uint32_t)(u >> 63) << 7 | amp_narrow64(u & INT64_MAX, 5, 2));
}
/* float64 to float32 rounded to odd: truncated, and the last bit set if anything was lost. A second rounding to a format that is at
 * least two bits shorter then equals one rounding of the float64. */
AMP_FN float amp_f64_to_f32_odd(double f) {
    float r = (float)f;
    if (!(fabs(f) < 0x1p127) || (double)r == f) return r;
    uint32_t u = amp_f32_bits(r);
    if (fabs((double)r) > fabs(f)) u--; /* back towards zero */
    return amp_bits_f32(u | 1u);
}
AMP_FN uint8_t amp_f64_to_e4m3(double f) { return amp_f32_to_e4m3(amp_f64_to_f32_odd(f)); }

/* An integer of 64 bits as a float64 that every later narrowing to 24 bits or fewer rounds as it would round the integer: above
 * 2^53 the low 11 bits are replaced by one sticky bit (round to odd). */
AMP_FN double amp_i64_to_f64_odd(int64_t i) {
    if (i <= -((int64_t)1 << 53) || i >= (int64_t)1 << 53) i = (i & ~(int64_t)0x7ff) | ((i & 0x7ff) ? (int64_t)0x800 : 0);
    return (double)i;
}
AMP_FN uint16_t amp_i64_to_f16(int64_t i) { return amp_f64_to_f16(amp_i64_to_f64_odd(i)); }
AMP_FN uint16_t amp_i64_to_bf16(int64_t i) { return amp_f64_to_bf16(amp_i64_to_f64_odd(i)); }
AMP_FN uint8_t amp_i64_to_e5m2(int64_t i) { return amp_f64_to_e5m2(amp_i64_to_f64_odd(i)); }
AMP_FN uint8_t amp_i64_to_e4m3(int64_t i) { return amp_f64_to_e4m3(amp_i64_to_f64_odd(i)); }

/* Truncation; what does not fit (NaN too) gives INT64_MIN, as the x86 instruction does, and narrower integers keep its low bits. */
AMP_FN int64_t amp_f64_to_i64(double f) {
    if (!(f >= -0x1p63 && f < 0x1p63)) return INT64_MIN;
    return (int64_t)f;
}
AMP_FN int64_t amp_f32_to_i64(float f) { return amp_f64_to_i64((double)f); }

/* TF32: half a unit of the tenth mantissa bit is added to the magnitude, then the rest is cut.
 *
 *     s eeeeeeee mmmmmmmmmm mmmmmmmmmmmmm
 *                           1000000000000   + (ties go away from zero)
 *
 * The carry may reach the exponent (and infinity from the largest values); infinity and NaN stay as they are. */
AMP_FN float amp_round_tf32(float f) {
    uint32_t u = amp_f32_bits(f);
    uint32_t rounded = (u + 0x1000u) & 0xffffe000u;
    return amp_bits_f32((u & 0x7f800000u) == 0x7f800000u ? u : rounded);
}

#endif
