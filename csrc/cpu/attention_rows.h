/* The passes over scores for one instruction set; included once per set with these macros:
 *
 *     V, LANES         vector of float and its length
 *     SET               how the AttentionRows that is defined is called
 *     TARGET           function attributes
 *     SET1 LOAD STORE ADD SUB MUL
 *     MAX MIN          the second if one is NaN
 *     MADD(x, y, z)    x * y + z
 *     EXP2(x)          2^x, 0 below -125; NaN stays NaN
 *     SUM(v) TOP(v)    over the lanes
 *     PAIRS            defined: MADD_PAIRS(x, y, z) adds both products of each pair of bfloat16; STORE_BF16(p, v) rounds to LANES bfloat16;
 *                      ROUND(v, w) gives v's and w's together, of which STORE_TWO stores both, STORE_LOW and STORE_HIGH one, STORE_ZIP
 *                      LANES pairs (v low, w high) */
#define CONCAT_(a, b) a##b
#define CONCAT(a, b)  CONCAT_(a, b)
#define NAME(x)       CONCAT(x##_, SET)

TARGET static float NAME(max)(const float *s, int64_t n) {
    V a = SET1(-INFINITY), b = a;
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        a = MAX(a, LOAD(s + j));
        b = MAX(b, LOAD(s + j + LANES));
    }
    if (j < n) a = MAX(a, LOAD(s + j));
    return TOP(MAX(a, b));
}

TARGET static float NAME(exp)(const float *s, float *out, int64_t n, float factor, float shift) {
    const V f = SET1(factor), m = SET1(shift);
    V a = SET1(0.0f), b = a;
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        const V x = EXP2(MUL(SUB(LOAD(s + j), m), f)), y = EXP2(MUL(SUB(LOAD(s + j + LANES), m), f));
        a = ADD(a, x);
        b = ADD(b, y);
#ifdef PAIRS
        STORE_TWO((char *)out + 2 * j, ROUND(x, y));
#else
        STORE(out + j, x);
        STORE(out + j + LANES, y);
#endif
    }
    if (j < n) {
        const V x = EXP2(MUL(SUB(LOAD(s + j), m), f));
        a = ADD(a, x);
#ifdef PAIRS
        STORE_BF16((char *)out + 2 * j, x);
#else
        STORE(out + j, x);
#endif
    }
    return SUM(ADD(a, b));
}

TARGET static void NAME(adjust)(float *s, const float *add, int64_t n, float scale) {
    const V f = SET1(scale);
    for (int64_t j = 0; j < n; j += LANES) {
        const V x = MUL(LOAD(s + j), f);
        STORE(s + j, add ? ADD(x, LOAD(add + j)) : x);
    }
}

TARGET static void NAME(scale)(float *x, int64_t n, float factor) {
    const V f = SET1(factor);
    for (int64_t j = 0; j < n; j += LANES) STORE(x + j, MUL(LOAD(x + j), f));
}

TARGET static float NAME(dot)(const float *x, const float *y, int64_t n) {
    V a = SET1(0.0f);
    int64_t j = 0;
#ifdef PAIRS
    for (; j + LANES <= n; j += LANES) a = MADD_PAIRS(LOAD(x + j), LOAD(y + j), a);
#else
    for (; j + LANES <= n; j += LANES) a = MADD(LOAD(x + j), LOAD(y + j), a);
#endif
    float sum = SUM(a);
    for (; j < n; j++) {
#ifdef PAIRS
        const uint32_t left = amp_f32_bits(x[j]), right = amp_f32_bits(y[j]), high = 0xffff0000u;
        sum += amp_bits_f32(left << 16) * amp_bits_f32(right << 16) + amp_bits_f32(left & high) * amp_bits_f32(right & high);
#else
        sum += x[j] * y[j];
#endif
    }
    return sum;
}

/* Scores that are formed once more may be a little larger than the shift was made of, which is a lot where they are huge. NaN stays NaN. */
#define CHANCE(s, shift, factor) EXP2(MIN(SET1(0.0f), MUL(SUB(LOAD(s), shift), factor)))
/* ds of a vector of scores and of dp. */
#define SLOPE(p, dp, delta) MUL(p, SUB(LOAD(dp), delta))

#ifdef PAIRS
TARGET static void NAME(tile)(const AttentionTile *t) {
    const V factor = SET1(t->factor);
    const int64_t rows = t->rows, cols = t->cols, pitch = t->pitch;
    for (int64_t i = 0; i < rows; i += 2) {
        const bool both = i + 1 < rows;
        const float *s0 = t->s + i * pitch, *s1 = both ? s0 + pitch : s0, *dp0 = t->dp + i * pitch,
                    *dp1 = both ? dp0 + pitch : dp0;
        const V shift0 = SET1(t->shift[i]), shift1 = SET1(both ? t->shift[i + 1] : INFINITY);
        const V delta0 = SET1(t->delta[i]), delta1 = SET1(both ? t->delta[i + 1] : 0.0f);
        float *p = t->p + i / 2 * t->out_pitch, *ds = t->ds + i / 2 * t->out_pitch;
        char *low = (char *)(t->along + i * t->along_pitch), *high = both ? low + t->along_pitch * 4 : NULL;
        for (int64_t j = 0; j < cols; j += LANES) {
            const V p0 = CHANCE(s0 + j, shift0, factor), p1 = CHANCE(s1 + j, shift1, factor);
            const ROUNDED slopes = ROUND(SLOPE(p0, dp0 + j, delta0), SLOPE(p1, dp1 + j, delta1));
            STORE_ZIP(p + j, ROUND(p0, p1));
            STORE_ZIP(ds + j, slopes);
            STORE_LOW(low + 2 * j, slopes);
            if (high) STORE_HIGH(high + 2 * j, slopes);
        }
    }
}
#else
TARGET static void NAME(tile)(const AttentionTile *t) {
    const V factor = SET1(t->factor);
    const int64_t rows = t->rows, cols = t->cols;
    for (int64_t i = 0; i < rows; i++) {
        const float *s = t->s + i * t->pitch, *dp = t->dp + i * t->pitch;
        const V shift = SET1(t->shift[i]), delta = SET1(t->delta[i]);
        float *to_p = t->p + i * t->out_pitch, *ds = t->ds + i * t->out_pitch;
        for (int64_t j = 0; j < cols; j += LANES) {
            const V p = CHANCE(s + j, shift, factor);
            STORE(to_p + j, p);
            STORE(ds + j, SLOPE(p, dp + j, delta));
        }
    }
}
#endif

static const AttentionRows SET = {NAME(max), NAME(exp), NAME(adjust), NAME(scale), NAME(dot), NAME(tile)};

#undef V
#undef LANES
#undef SET
#undef TARGET
#undef SET1
#undef LOAD
#undef STORE
#undef ADD
#undef SUB
#undef MUL
#undef MAX
#undef MIN
#undef MADD
#undef EXP2
#undef SUM
#undef TOP
#undef PAIRS
#undef MADD_PAIRS
#undef STORE_BF16
#undef ROUNDED
#undef ROUND
#undef STORE_TWO
#undef STORE_LOW
#undef STORE_HIGH
#undef STORE_ZIP
#undef SLOPE
#undef CHANCE
#undef CONCAT_
#undef CONCAT
#undef NAME
