/* Kernel bodies of list_kernels.c for one compute type and one instruction-set level. Included with
 *     NAME(f)        name of f at this level and type     TARGET    function target
 *     REAL           float or double                      INT       integer of its size
 *     BYTES          bytes of a vector                    EXPONENT  bits of REAL's exponent field
 *     VSQRT(x)       square root of a vector
 *     VFMA(a, b, c)  a * b + c with one rounding
 *     VWIDEN(v)      as many REALs as a vector has doubles, as doubles
 *     VSQUARE(d, c)  d * d + c on doubles that came from REAL; from floats the product is exact, fused or not
 * Written with vector types: + - * / are the IEEE operations at every width, nothing is contracted by the compiler, and fused
 * products stand where they are named (where PyTorch fuses), so all levels give the same bits. A tail runs through the same code
 * with the missing lanes zero and unwritten. */
#define INLINE     static inline TARGET __attribute__((always_inline))
#define LANES      ((int64_t)(BYTES / sizeof(REAL)))
#define WIDE_LANES ((int64_t)(BYTES / sizeof(double)))
#define SUMS       32

typedef REAL NAME(V) __attribute__((vector_size(BYTES)));
typedef INT NAME(VI) __attribute__((vector_size(BYTES)));
typedef double NAME(VD) __attribute__((vector_size(BYTES)));
typedef REAL NAME(VH) __attribute__((vector_size(BYTES * sizeof(REAL) / sizeof(double)))); /* as many lanes as VD */
#define V        NAME(V)
#define VI       NAME(VI)
#define VD       NAME(VD)
#define VH       NAME(VH)
#define SPLAT(c) ((V){0} + (c))
#define LOAD(x, from) \
    V x = {0}; \
    memcpy(&x, (from), k)
#define STORE(to, x) memcpy((to), &x, k)

/* Narrow vectors would ask for each line many times. */
#define FETCH(address) \
    do { \
        if (BYTES > 16) __builtin_prefetch((address), 1); \
    } while (0)

/* Runs STEP(i, bytes) over the elements of a span; the byte count is a constant in the loops. The last ones, at most `most` bytes, each
 * fetch what lies as far into each of the next span's `streams` arrays. */
#define FOR_EACH_VECTOR(span, STEP, streams, most) \
    do { \
        const int64_t n_ = (span)->n, next_ = (span)[1].n < n_ ? (span)[1].n : n_; \
        const int64_t start_ = n_ - (next_ < (most) / (int64_t)sizeof(REAL) ? next_ : (most) / (int64_t)sizeof(REAL)); \
        int64_t i_ = 0; \
        for (; i_ + LANES <= start_; i_ += LANES) STEP(i_, sizeof(V)); \
        for (; i_ + LANES <= n_; i_ += LANES) { \
            _Pragma("GCC unroll 8") for (int s_ = 0; s_ < (streams); s_++) \
                FETCH((span)[1].at[s_] + (i_ - start_) * (int64_t)sizeof(REAL)); \
            STEP(i_, sizeof(V)); \
        } \
        if (i_ < n_) STEP(i_, (size_t)(n_ - i_) * sizeof(REAL)); \
    } while (0)

/* Bytes of each array that are worth fetching: where arithmetic is slow, fetching more costs nothing. */
#define FETCH_FEW  1024
#define FETCH_MANY 2048
#define ZERO_SHORT 8192

INLINE void NAME(unscale_step)(REAL *x, size_t k, REAL inv, bool multiply, VI *bad) {
    LOAD(v, x);
    *bad |= (VI)(((VI)v & EXPONENT) == EXPONENT);
    if (!multiply) return;
    v *= inv;
    STORE(x, v);
}

static TARGET bool NAME(unscale)(const ListSpan *span, int64_t count, double inv_scale) {
    REAL inv = (REAL)inv_scale;
    VI bad = {0};
    INT any = 0;
    for (const ListSpan *e = span; e < span + count; e++) {
        REAL *x = (REAL *)(void *)e->at[0];
#define STEP_CHECK(i, k) NAME(unscale_step)(x + (i), (k), inv, false, &bad)
#define STEP_SCALE(i, k) NAME(unscale_step)(x + (i), (k), inv, true, &bad)
        if (inv_scale == 1.0) FOR_EACH_VECTOR(e, STEP_CHECK, 1, FETCH_FEW);
        else FOR_EACH_VECTOR(e, STEP_SCALE, 1, FETCH_FEW);
#undef STEP_CHECK
#undef STEP_SCALE
    }
    for (int j = 0; j < LANES; j++) any |= bad[j];
    return any != 0;
}

INLINE void NAME(square_step)(VD *sum, const REAL *x, size_t k) {
    VH v = {0};
    memcpy(&v, x, k);
    VD d = VWIDEN(v);
    *sum = VSQUARE(d, *sum);
}

/* Element i joins running sum i mod 32, whatever the width of a vector; the sums are then added as a tree. Only constants index `sum`,
 * so that it stays in registers. */
#define SQUARES(i) \
    _Pragma("GCC unroll 16") for (int j_ = 0; j_ < SUMS / WIDE_LANES; j_++) \
        NAME(square_step)(&sum[j_], x + (i) + j_ * WIDE_LANES, sizeof(VH))

INLINE double NAME(sum_up)(const VD *sum, const REAL *rest, int64_t n) {
    double s[SUMS];
    _Pragma("GCC unroll 16") for (int j = 0; j < SUMS / WIDE_LANES; j++) memcpy(s + j * WIDE_LANES, &sum[j], sizeof(VD));
    for (int64_t i = 0; i < n; i++) s[i] += (double)rest[i] * (double)rest[i];
    for (int half = SUMS / 2; half; half /= 2)
        for (int j = 0; j < half; j++) s[j] += s[j + half];
    return s[0];
}

static TARGET double NAME(sum_squares)(const void *data, int64_t n) {
    const REAL *x = data;
    VD sum[SUMS / WIDE_LANES];
    int64_t i = 0;
    memset(sum, 0, sizeof sum);
    for (; i + SUMS <= n; i += SUMS) SQUARES(i);
    return NAME(sum_up)(sum, x + i, n - i);
}

static TARGET double NAME(unscale_squares)(void *data, int64_t n, double inv_scale, const char *next, bool *bad) {
    REAL *x = data, inv = (REAL)inv_scale;
    VD sum[SUMS / WIDE_LANES];
    VI found = {0};
    INT any = 0;
    int64_t i = 0;
    memset(sum, 0, sizeof sum);
#define UNSCALE(multiply) \
    for (; i + SUMS <= n; i += SUMS) { \
        if (next) \
            _Pragma("GCC unroll 16") for (int j = 0; j < SUMS; j += 64 / (int)sizeof(REAL)) \
                FETCH(next + (i + j) * (int64_t)sizeof(REAL)); \
        _Pragma("GCC unroll 16") for (int j = 0; j < SUMS / LANES; j++) \
            NAME(unscale_step)(x + i + j * LANES, sizeof(V), inv, multiply, &found); \
        SQUARES(i); \
    }
    if (inv_scale == 1.0) {
        UNSCALE(false)
    } else {
        UNSCALE(true)
    }
#undef UNSCALE
    for (int j = 0; j < LANES; j++) any |= found[j];
    *bad |= any != 0;
    if (i < n) *bad |= NAME(unscale)((const ListSpan[]){{n - i, {(char *)(x + i)}}, {0}}, 1, inv_scale);
    return NAME(sum_up)(sum, x + i, n - i);
}
#undef SQUARES

INLINE void NAME(scale_step)(REAL *x, size_t k, REAL factor) {
    LOAD(v, x);
    v *= factor;
    STORE(x, v);
}

static TARGET void NAME(scale)(const ListSpan *span, int64_t count, double factor) {
    REAL f = (REAL)factor;
    for (const ListSpan *e = span; e < span + count; e++) {
        REAL *x = (REAL *)(void *)e->at[0];
#define STEP(i, k) NAME(scale_step)(x + (i), (k), f)
        FOR_EACH_VECTOR(e, STEP, 1, FETCH_FEW);
#undef STEP
    }
}

/* Long arrays are left to the C library, which writes whole lines without reading them; for short ones that takes too long to start. */
static TARGET void NAME(zero)(const ListSpan *span, int64_t count) {
    const V zero = {0};
    for (const ListSpan *e = span; e < span + count; e++) {
        REAL *x = (REAL *)(void *)e->at[0];
        if (e->n > ZERO_SHORT / (int64_t)sizeof(REAL)) {
            memset(x, 0, (size_t)e->n * sizeof(REAL));
            continue;
        }
#define STEP(i, k) memcpy(x + (i), &zero, (k))
        FOR_EACH_VECTOR(e, STEP, 1, FETCH_FEW);
#undef STEP
    }
}

typedef struct NAME(SgdConst) {
    REAL neg_lr, momentum, one_minus_dampening, weight_decay, grad_scale;
    bool nesterov, maximize, first, divide;
} NAME(SgdConst);

INLINE void NAME(sgd_step)(REAL *p, REAL *g, REAL *buf, size_t k, const NAME(SgdConst) * c) {
    LOAD(x, p);
    LOAD(d, g);
    if (c->divide) {
        d /= c->grad_scale;
        STORE(g, d);
    }
    if (c->maximize) d = -d;
    if (c->weight_decay != 0) d = VFMA(x, SPLAT(c->weight_decay), d);
    if (buf) {
        V b = d;
        if (!c->first) {
            LOAD(old, buf);
            b = VFMA(d, SPLAT(c->one_minus_dampening), old * c->momentum);
        }
        STORE(buf, b);
        d = c->nesterov ? VFMA(b, SPLAT(c->momentum), d) : b;
    }
    x = VFMA(d, SPLAT(c->neg_lr), x);
    STORE(p, x);
}

static TARGET void NAME(sgd)(const ListSpan *span, int64_t count, const SgdStep *s) {
    const NAME(SgdConst) c = {
        (REAL)s->neg_lr, (REAL)s->momentum, (REAL)s->one_minus_dampening, (REAL)s->weight_decay, (REAL)s->grad_scale, s->nesterov,
        s->maximize,     s->first,          s->grad_scale != 1.0};
    for (const ListSpan *e = span; e < span + count; e++) {
        REAL *p = (REAL *)(void *)e->at[0], *g = (REAL *)(void *)e->at[1], *b = (REAL *)(void *)e->at[2];
#define STEP(i, k)       NAME(sgd_step)(p + (i), g + (i), b + (i), (k), &c)
#define STEP_PLAIN(i, k) NAME(sgd_step)(p + (i), g + (i), NULL, (k), &c)
        if (b) FOR_EACH_VECTOR(e, STEP, 3, FETCH_FEW);
        else FOR_EACH_VECTOR(e, STEP_PLAIN, 2, FETCH_FEW);
#undef STEP
#undef STEP_PLAIN
    }
}

typedef struct NAME(AdamConst) {
    REAL decay, weight_decay, weight1, keep1, beta2, weight2, eps, divisor, factor, grad_factor, grad_scale;
    bool maximize, nadam, divide, from_end;
} NAME(AdamConst);

INLINE void NAME(adam_step)(REAL *p, REAL *g, REAL *m, REAL *v, REAL *vmax, size_t k, const NAME(AdamConst) * c) {
    LOAD(x, p);
    LOAD(d, g);
    LOAD(a, m);
    LOAD(s, v);
    if (c->divide) {
        d /= c->grad_scale;
        STORE(g, d);
    }
    if (c->maximize) d = -d;
    x *= c->decay; /* exactly 1 without decoupled decay */
    if (c->weight_decay != 0) d = VFMA(x, SPLAT(c->weight_decay), d);
    /* Interpolation from the nearer end. */
    a = c->from_end ? VFMA(a - d, SPLAT(c->keep1), d) : VFMA(d - a, SPLAT(c->weight1), a);
    STORE(m, a);
    s = VFMA(d * c->weight2, d, s * c->beta2);
    STORE(v, s);
    if (vmax) {
        LOAD(top, vmax);
        VI take = (VI)(s > top) | (VI)(s != s); /* NaN wins */
        top = (V)(((VI)s & take) | ((VI)top & ~take));
        STORE(vmax, top);
        s = top;
    }
    V denominator;
    if (c->nadam) {
        denominator = VSQRT(s / c->divisor) + c->eps;
        x += d * c->grad_factor / denominator;
    } else {
        denominator = VSQRT(s) / c->divisor + c->eps;
    }
    x += a * c->factor / denominator;
    STORE(p, x);
}

static TARGET void NAME(adam)(const ListSpan *span, int64_t count, const AdamStep *s) {
    const NAME(AdamConst) c = {(REAL)s->decay,  (REAL)s->weight_decay, (REAL)s->weight1,    (REAL)1 - (REAL)s->weight1,
                               (REAL)s->beta2,  (REAL)s->weight2,      (REAL)s->eps,        (REAL)s->divisor,
                               (REAL)s->factor, (REAL)s->grad_factor,  (REAL)s->grad_scale, s->maximize,
                               s->nadam,        s->grad_scale != 1.0,  s->weight1 >= 0.5};
    for (const ListSpan *e = span; e < span + count; e++) {
        REAL *p = (REAL *)(void *)e->at[0], *g = (REAL *)(void *)e->at[1], *m = (REAL *)(void *)e->at[2];
        REAL *v = (REAL *)(void *)e->at[3], *top = (REAL *)(void *)e->at[4];
#define STEP(i, k)     NAME(adam_step)(p + (i), g + (i), m + (i), v + (i), NULL, (k), &c)
#define STEP_MAX(i, k) NAME(adam_step)(p + (i), g + (i), m + (i), v + (i), top + (i), (k), &c)
        if (top) FOR_EACH_VECTOR(e, STEP_MAX, 5, FETCH_MANY);
        else FOR_EACH_VECTOR(e, STEP, 4, FETCH_MANY);
#undef STEP
#undef STEP_MAX
    }
}

static const ListKernels NAME(kernels) = {NAME(unscale), NAME(scale),           NAME(zero),       NAME(sgd),
                                          NAME(adam),    NAME(unscale_squares), NAME(sum_squares)};

#undef INLINE
#undef LANES
#undef WIDE_LANES
#undef SUMS
#undef V
#undef VI
#undef VD
#undef VH
#undef LOAD
#undef STORE
#undef FETCH
#undef FETCH_FEW
#undef FETCH_MANY
#undef ZERO_SHORT
#undef FOR_EACH_VECTOR
#undef NAME
#undef TARGET
#undef REAL
#undef INT
#undef BYTES
#undef VSQRT
#undef EXPONENT
#undef VFMA
#undef VSQUARE
#undef VWIDEN
#undef SPLAT
