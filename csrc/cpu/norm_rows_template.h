/* The rows of norm_rows.h for one stored format and one instruction set: chunks of sixteen elements are widened in registers, so that no
 * format needs a buffer. Needs
 *   T (stored type), REAL (compute type), V: a register of REAL, NARROW: half a register of them (or V), WIDE: as many doubles,
 *   WIDEN(v) from one to the other,
 *   STREAM, STREAM_BYTES (stream.h), K(name) kernel name, TARGET function attribute, TAKE(to, p), TAKE_PART(to, p, n), GIVE(p, v), GIVE_PART(p, v, n): as in lanes.h.
 * Lanes do not depend on the instruction set, and nothing is contracted: all levels give the same bits. */

enum {
    K(PARTS) = AMP_LANES * sizeof(REAL) / sizeof(V),
    K(WIDES) = AMP_LANES * sizeof(double) / sizeof(WIDE),
    K(STEP) = sizeof(V) / sizeof(REAL),
    K(WIDE_STEP) = sizeof(WIDE) / sizeof(double)
};
typedef struct K(Chunk) {
    V v[K(PARTS)];
} K(Chunk);
/* Sixteen sums in float64. */
typedef struct K(Lanes) {
    WIDE w[K(WIDES)];
} K(Lanes);

#define CHUNK  K(Chunk)
#define INLINE TARGET static inline __attribute__((always_inline))
#define EACH_V _Pragma("GCC unroll 8") for (int v = 0; v < (int)K(PARTS); v++)

INLINE CHUNK K(take)(const T *p, int64_t n) {
    REAL to[AMP_LANES];
    CHUNK c;
    if (n >= AMP_LANES) TAKE(to, p);
    else TAKE_PART(to, p, n);
    memcpy(&c, to, sizeof c);
    return c;
}
/* `stream`: around the caches; p is a multiple of STREAM_BYTES then. */
INLINE void K(give)(T *p, CHUNK c, int64_t n, bool stream) {
    REAL v[AMP_LANES];
    memcpy(v, &c, sizeof v);
    if (n < AMP_LANES) GIVE_PART(p, v, n);
    else if (stream) {
        _Alignas(STREAM_BYTES) T stored[AMP_LANES];
        GIVE(stored, v);
        _Pragma("GCC unroll 8") for (size_t at = 0; at < sizeof stored; at += STREAM_BYTES)
            STREAM((char *)p + at, (const char *)stored + at);
    } else GIVE(p, v);
}
/* Of a parameter or a sum, which are stored in the compute format. */
INLINE CHUNK K(get)(const REAL *p, int64_t n) {
    CHUNK c = {{{0}}};
    if (n >= AMP_LANES) memcpy(&c, p, sizeof c);
    else memcpy(&c, p, (size_t)n * sizeof(REAL));
    return c;
}
INLINE void K(put)(REAL *p, CHUNK c, int64_t n) {
    if (n >= AMP_LANES) memcpy(p, &c, sizeof c);
    else memcpy(p, &c, (size_t)n * sizeof(REAL));
}
/* Nothing in the lanes from n on. */
INLINE CHUNK K(first)(CHUNK c, int64_t n) {
    REAL v[AMP_LANES];
    if (n >= AMP_LANES) return c;
    memcpy(v, &c, sizeof v);
    for (int l = 0; l < AMP_LANES; l++) v[l] = l < n ? v[l] : 0;
    memcpy(&c, v, sizeof c);
    return c;
}
INLINE CHUNK K(plus)(CHUNK a, CHUNK b) {
    EACH_V a.v[v] += b.v[v];
    return a;
}
INLINE void K(widen_add)(K(Lanes) * to, CHUNK c) {
    REAL narrow[AMP_LANES];
    memcpy(narrow, &c, sizeof narrow);
    _Pragma("GCC unroll 8") for (int w = 0; w < (int)K(WIDES); w++) {
        NARROW part;
        memcpy(&part, narrow + w * (int)K(WIDE_STEP), sizeof part);
        to->w[w] += WIDEN(part);
    }
}
INLINE double K(total_of)(K(Lanes) lanes) {
    double l[AMP_LANES / 2];
    for (int w = 0; w < (int)K(WIDES) / 2; w++) lanes.w[w] += lanes.w[w + (int)K(WIDES) / 2];
    memcpy(l, &lanes, sizeof l);
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

/* Sums over the chunks of a row, two if `both`: of a and b, which the last argument makes of element `at` on, `left` of them. Pairs of
 * chunks add up in the compute format, BLOCK at a time, then go over to float64. */
#define ROW_SUMS(sums, both, ...) \
    { \
        K(Lanes) s_ = {{{0}}}, t_ = {{{0}}}; \
        int64_t at = 0; \
        CHUNK a, b = {{{0}}}; \
        while (n - at >= 2 * AMP_LANES) { \
            CHUNK a0_ = {{{0}}}, a1_ = a0_, b0_ = a0_, b1_ = a0_; \
            const int64_t left = AMP_LANES; \
            for (int few_ = 0; few_ < BLOCK && n - at >= 2 * AMP_LANES; few_++, at += AMP_LANES) { \
                { __VA_ARGS__; } \
                a0_ = K(plus)(a0_, a); \
                if (both) b0_ = K(plus)(b0_, b); \
                at += AMP_LANES; \
                { __VA_ARGS__; } \
                a1_ = K(plus)(a1_, a); \
                if (both) b1_ = K(plus)(b1_, b); \
            } \
            K(widen_add)(&s_, K(plus)(a0_, a1_)); \
            if (both) K(widen_add)(&t_, K(plus)(b0_, b1_)); \
        } \
        for (; n > at; at += AMP_LANES) { \
            const int64_t left = n - at; \
            { __VA_ARGS__; } \
            K(widen_add)(&s_, K(first)(a, left)); \
            if (both) K(widen_add)(&t_, K(first)(b, left)); \
        } \
        sums[0] = K(total_of)(s_), sums[1] = both ? K(total_of)(t_) : 0.0; \
    }

/* The mean of a row's first elements. */
INLINE REAL K(rough_mean)(const T *x, int64_t length) {
    const int64_t n = length < NORM_SAMPLE ? length : NORM_SAMPLE;
    double sums[2];
    ROW_SUMS(sums, false, a = K(take)(x + at, left))
    return isfinite(sums[0]) ? (REAL)(sums[0] / (double)n) : 0;
}

/* sums: of x - shift, and of its square. */
INLINE void K(moments)(const T *x, int64_t n, const REAL shift, double *sums) {
    ROW_SUMS(sums, true, a = K(take)(x + at, left); EACH_V a.v[v] -= shift, b.v[v] = a.v[v] * a.v[v])
}

/* sums: of g w, and of g w (x - mean). dw += g (x - mean) rstd, db += g, if not NULL. */
INLINE void K(dots)(const T *g, const T *x, int64_t n, const NormMean *mean, const REAL *w, double *sums, double rstd, REAL *dw,
                    REAL *db) {
    const REAL hi = (REAL)mean->hi, lo = (REAL)mean->lo, p = (REAL)rstd;
    ROW_SUMS(
        sums, true, a = K(take)(g + at, left); b = K(take)(x + at, left); EACH_V b.v[v] -= hi; if (dw) {
            CHUNK c = b;
            EACH_V c.v[v] = a.v[v] * ((c.v[v] - lo) * p);
            K(put)(dw + at, K(plus)(K(get)(dw + at, left), c), left);
            K(put)(db + at, K(plus)(K(get)(db + at, left), a), left);
        } if (w) {
            const CHUNK u = K(get)(w + at, left);
            EACH_V a.v[v] *= u.v[v];
        } EACH_V b.v[v] *= a.v[v])
    sums[1] -= mean->lo * sums[0];
}

#define EACH_CHUNK(...) \
    { \
        int64_t at = 0; \
        for (; at + AMP_LANES <= n; at += AMP_LANES) { \
            const int64_t left = AMP_LANES; \
            __VA_ARGS__; \
        } \
        if (at < n) { \
            const int64_t left = n - at; \
            __VA_ARGS__; \
        } \
    }

/* y = (x - mean) p w + b */
INLINE void K(scale)(const T *x, T *y, int64_t n, const NormMean *mean, double p_, const REAL *w, const REAL *b, bool stream) {
    const REAL hi = (REAL)mean->hi, lo = (REAL)mean->lo, p = (REAL)p_;
    EACH_CHUNK({
        CHUNK c = K(take)(x + at, left);
        EACH_V c.v[v] = ((c.v[v] - hi) - lo) * p;
        if (w) {
            const CHUNK u = K(get)(w + at, left);
            EACH_V c.v[v] *= u.v[v];
        }
        if (b) c = K(plus)(c, K(get)(b + at, left));
        K(give)(y + at, c, left, stream);
    })
}

INLINE bool K(can_stream)(const Norm *s) {
    return s->large && (uintptr_t)s->y % STREAM_BYTES == 0 && (size_t)s->plan->channels * sizeof(T) % STREAM_BYTES == 0;
}

/* Rows are read in order, because that is what the machine fetches ahead; only a glance at the next one comes early. */
TARGET static void K(rows)(const Norm *s, int64_t begin, int64_t end) {
    const int64_t n = s->plan->channels;
    const bool centered = s->plan->centered, stream = K(can_stream)(s);
    const REAL *w = (const REAL *)(const void *)s->weight, *b = (const REAL *)(const void *)s->bias;
    const T *x = (const T *)(const void *)s->x + begin * n;
    REAL about = centered && begin < end ? K(rough_mean)(x, n) : 0;
    for (int64_t row = begin; row < end; row++, x += n) {
        T *y = (T *)(void *)s->y + row * n;
        double sums[2], shift = (double)about;
        K(moments)(x, n, about, sums);
        if (!norm_good_moments(s, sums, (double)n)) shift = norm_exact_moments(s, (const char *)x, n, sums);
        norm_finish_row(s, row, sums, (double)n, shift);
        const NormMean mean = norm_mean(s, s->mean[row]);
        const double rstd = s->rstd[row];
        if (centered && row + 1 < end) about = K(rough_mean)(x + n, n);
        if (w && b) K(scale)(x, y, n, &mean, rstd, w, b, stream);
        else if (w) K(scale)(x, y, n, &mean, rstd, w, NULL, stream);
        else if (b) K(scale)(x, y, n, &mean, rstd, NULL, b, stream);
        else K(scale)(x, y, n, &mean, rstd, NULL, NULL, stream);
    }
    if (stream) STREAMED;
}

/* dx = p g w + (q (x - mean) + r) */
INLINE void K(slopes)(const T *g, const T *x, T *dx, int64_t n, const NormMean *mean, const REAL *w, double p_, double q_,
                      double r_, bool stream) {
    const REAL hi = (REAL)mean->hi, lo = (REAL)mean->lo, p = (REAL)p_, q = (REAL)q_, r = (REAL)r_;
    EACH_CHUNK({
        CHUNK gs = K(take)(g + at, left), c = K(take)(x + at, left);
        if (w) {
            const CHUNK u = K(get)(w + at, left);
            EACH_V gs.v[v] *= u.v[v];
        }
        EACH_V c.v[v] = gs.v[v] * p + (((c.v[v] - hi) - lo) * q + r);
        K(give)(dx + at, c, left, stream);
    })
}

INLINE void K(walk)(const Norm *s, int64_t begin, int64_t end, const REAL *w, REAL *dw, REAL *db) {
    const int64_t n = s->plan->channels;
    const bool stream = K(can_stream)(s);
    for (int64_t row = begin; row < end; row++) {
        const T *g = (const T *)(const void *)s->g + row * n, *x = (const T *)(const void *)s->x + row * n;
        const NormMean mean = norm_mean(s, s->mean[row]);
        double sums[2], q, r;
        K(dots)(g, x, n, &mean, w, sums, s->rstd[row], dw, db);
        if (!norm_good_dots(sums)) norm_exact_dots(s, (const char *)g, (const char *)x, n, s->mean[row], s->weight, sums);
        norm_row_factors(s, row, sums, n, &q, &r);
        K(slopes)(g, x, (T *)(void *)s->y + row * n, n, &mean, w, s->rstd[row], q, r, stream);
    }
    if (stream) STREAMED;
}

TARGET static void K(rows_grad)(const Norm *s, int64_t begin, int64_t end, char *dw_, char *db_) {
    const REAL *w = (const REAL *)(const void *)s->weight;
    REAL *dw = (REAL *)(void *)dw_, *db = (REAL *)(void *)db_;
    if (dw && w) K(walk)(s, begin, end, w, dw, db);
    else if (dw) K(walk)(s, begin, end, NULL, dw, db);
    else if (w) K(walk)(s, begin, end, w, NULL, NULL);
    else K(walk)(s, begin, end, NULL, NULL, NULL);
}

static const NormRowKernels K(kernels) = {K(rows), K(rows_grad)};

#undef CHUNK
#undef INLINE
#undef EACH_V
#undef EACH_CHUNK
#undef ROW_SUMS
#undef T
#undef K
#undef TAKE
#undef TAKE_PART
#undef GIVE
#undef GIVE_PART
