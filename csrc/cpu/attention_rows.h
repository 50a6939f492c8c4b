/* The passes over scores for one instruction set; included once per set with these macros:
 *
 *     V, LANES         vector of float and its length
 *     SET               how the AttentionRows that is defined is called
 *     TARGET           function attributes
 *     SET1 LOAD STORE ADD SUB MUL MAX
 *     MADD(x, y, z)    x * y + z
 *     EXP2(x)          2^x, 0 below -125; NaN stays NaN
 *     SUM(v) TOP(v)    over the lanes
 *     PAIRS            defined: STORE_BF16(p, v) rounds to LANES bfloat16; ROUND(v, w) gives v's and w's together, of which STORE_LOW and
 *                      STORE_HIGH store one, STORE_ZIP LANES pairs (v low, w high) */
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
    const V f = SET1(factor), m = SET1(-shift);
    V a = SET1(0.0f), b = a;
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        const V x = EXP2(MADD(LOAD(s + j), f, m)), y = EXP2(MADD(LOAD(s + j + LANES), f, m));
        a = ADD(a, x);
        b = ADD(b, y);
#ifdef PAIRS
        STORE_BF16((char *)out + 2 * j, x);
        STORE_BF16((char *)out + 2 * (j + LANES), y);
#else
        STORE(out + j, x);
        STORE(out + j + LANES, y);
#endif
    }
    if (j < n) {
        const V x = EXP2(MADD(LOAD(s + j), f, m));
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
    for (int64_t j = 0; j < n; j += LANES) a = MADD(LOAD(x + j), LOAD(y + j), a);
    return SUM(a);
}

TARGET static inline __attribute__((always_inline)) V NAME(chance)(const AttentionTile *t, int64_t i, int64_t j) {
    return EXP2(MADD(LOAD(t->s + i * t->pitch + j), SET1(t->factor), SET1(-t->shift[i])));
}

TARGET static inline __attribute__((always_inline)) V NAME(slope)(const AttentionTile *t, int64_t i, int64_t j, V p) {
    return MUL(p, MUL(SUB(LOAD(t->dp + i * t->pitch + j), SET1(t->delta[i])), SET1(t->scale)));
}

#ifdef PAIRS
TARGET static void NAME(tile)(const AttentionTile *t) {
    for (int64_t i = 0; i < t->rows; i += 2) {
        const bool both = i + 1 < t->rows;
        float *p = t->p + i / 2 * t->out_pitch, *ds = t->ds + i / 2 * t->out_pitch;
        char *low = (char *)(t->along + i * t->along_pitch), *high = low + t->along_pitch * 4;
        for (int64_t j = 0; j < t->cols; j += LANES) {
            const V p0 = NAME(chance)(t, i, j), ds0 = NAME(slope)(t, i, j, p0);
            V p1 = SET1(0.0f), ds1 = p1;
            if (both) {
                p1 = NAME(chance)(t, i + 1, j);
                ds1 = NAME(slope)(t, i + 1, j, p1);
            }
            const ROUNDED slopes = ROUND(ds0, ds1);
            STORE_ZIP(p + j, ROUND(p0, p1));
            STORE_ZIP(ds + j, slopes);
            STORE_LOW(low + 2 * j, slopes);
            if (both) STORE_HIGH(high + 2 * j, slopes);
        }
    }
}
#else
TARGET static void NAME(tile)(const AttentionTile *t) {
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->cols; j += LANES) {
            const V p = NAME(chance)(t, i, j);
            STORE(t->p + i * t->out_pitch + j, p);
            STORE(t->ds + i * t->out_pitch + j, NAME(slope)(t, i, j, p));
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
#undef MADD
#undef EXP2
#undef SUM
#undef TOP
#undef PAIRS
#undef STORE_BF16
#undef ROUNDED
#undef ROUND
#undef STORE_LOW
#undef STORE_HIGH
#undef STORE_ZIP
#undef CONCAT_
#undef CONCAT
#undef NAME
