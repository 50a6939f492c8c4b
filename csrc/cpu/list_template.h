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

/* Into the second-level cache, element i of what comes next: narrow vectors would ask for each line many times. */
#define FETCH(ahead, stream, i) \
    do { \
        if (BYTES > 16) __builtin_prefetch((ahead)->at[stream] + (i) * (int64_t)sizeof(REAL), 0, 2); \
    } while (0)

/* Runs STEP(i, bytes) over n elements; the byte count is a constant in the loops. The last ones fetch from `streams` arrays ahead. */
#define FOR_EACH_VECTOR(n, STEP, ahead, streams) \
    do { \
        int64_t i_ = 0, start_ = (n) - (ahead)->n; \
        for (; i_ + LANES <= start_; i_ += LANES) STEP(i_, sizeof(V)); \
        for (; i_ + LANES <= (n); i_ += LANES) { \
            _Pragma("GCC unroll 8") for (int s_ = 0; s_ < (streams); s_++) FETCH(ahead, s_, i_ - start_); \
            STEP(i_, sizeof(V)); \
        } \
        if (i_ < (n)) STEP(i_, (size_t)((n)-i_) * sizeof(REAL)); \
    } while (0)

INLINE void NAME(unscale_step)(REAL *x, size_t k, REAL inv, bool multiply, VI *bad) {
    LOAD(v, x);
    *bad |= (VI)(((VI)v & EXPONENT) == EXPONENT);
    if (!multiply) return;
    v *= inv;
    STORE(x, v);
}

static TARGET bool NAME(unscale)(void *data, int64_t n, double inv_scale, const ListAhead *ahead) {
    REAL *x = data, inv = (REAL)inv_scale;
    VI bad = {0};
    INT any = 0;
#define STEP_CHECK(i, k) NAME(unscale_step)(x + (i), (k), inv, false, &bad)
#define STEP_SCALE(i, k) NAME(unscale_step)(x + (i), (k), inv, true, &bad)
    if (inv_scale == 1.0) FOR_EACH_VECTOR(n, STEP_CHECK, ahead, 1);
    else FOR_EACH_VECTOR(n, STEP_SCALE, ahead, 1);
#undef STEP_CHECK
#undef STEP_SCALE
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

static TARGET double NAME(unscale_squares)(void *data, int64_t n, double inv_scale, bool *bad, const ListAhead *ahead) {
    REAL *x = data, inv = (REAL)inv_scale;
    VD sum[SUMS / WIDE_LANES];
    VI found = {0};
    INT any = 0;
    int64_t i = 0;
    memset(sum, 0, sizeof sum);
    const int64_t start = n - ahead->n;
#define UNSCALE(multiply) \
    for (; i + SUMS <= n; i += SUMS) { \
        if (i >= start) \
            _Pragma("GCC unroll 16") for (int j = 0; j < SUMS; j += 64 / (int)sizeof(REAL)) FETCH(ahead, 0, i - start + j); \
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
    if (i < n) *bad |= NAME(unscale)(x + i, n - i, inv_scale, &AMP_LIST_NOTHING);
    return NAME(sum_up)(sum, x + i, n - i);
}
#undef SQUARES

INLINE void NAME(scale_step)(REAL *x, size_t k, REAL factor) {
    LOAD(v, x);
    v *= factor;
    STORE(x, v);
}

static TARGET void NAME(scale)(void *data, int64_t n, double factor, const ListAhead *ahead) {
    REAL *x = data, f = (REAL)factor;
#define STEP(i, k) NAME(scale_step)(x + (i), (k), f)
    FOR_EACH_VECTOR(n, STEP, ahead, 1);
#undef STEP
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

static TARGET void NAME(sgd)(void *param, void *grad, void *momentum, int64_t n, const SgdStep *s, const ListAhead *ahead) {
    const NAME(SgdConst) c = {
        (REAL)s->neg_lr, (REAL)s->momentum, (REAL)s->one_minus_dampening, (REAL)s->weight_decay, (REAL)s->grad_scale, s->nesterov,
        s->maximize,     s->first,          s->grad_scale != 1.0};
    REAL *p = param, *g = grad, *b = momentum;
#define STEP(i, k)       NAME(sgd_step)(p + (i), g + (i), b + (i), (k), &c)
#define STEP_PLAIN(i, k) NAME(sgd_step)(p + (i), g + (i), NULL, (k), &c)
    if (b) FOR_EACH_VECTOR(n, STEP, ahead, 3);
    else FOR_EACH_VECTOR(n, STEP_PLAIN, ahead, 2);
#undef STEP
#undef STEP_PLAIN
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

static TARGET void NAME(adam)(void *param, void *grad, void *exp_avg, void *exp_avg_sq, void *max_sq, int64_t n,
                              const AdamStep *s, const ListAhead *ahead) {
    const NAME(AdamConst) c = {(REAL)s->decay,  (REAL)s->weight_decay, (REAL)s->weight1,    (REAL)1 - (REAL)s->weight1,
                               (REAL)s->beta2,  (REAL)s->weight2,      (REAL)s->eps,        (REAL)s->divisor,
                               (REAL)s->factor, (REAL)s->grad_factor,  (REAL)s->grad_scale, s->maximize,
                               s->nadam,        s->grad_scale != 1.0,  s->weight1 >= 0.5};
    REAL *p = param, *g = grad, *m = exp_avg, *v = exp_avg_sq, *top = max_sq;
#define STEP(i, k)     NAME(adam_step)(p + (i), g + (i), m + (i), v + (i), NULL, (k), &c)
#define STEP_MAX(i, k) NAME(adam_step)(p + (i), g + (i), m + (i), v + (i), top + (i), (k), &c)
    if (top) FOR_EACH_VECTOR(n, STEP_MAX, ahead, 5);
    else FOR_EACH_VECTOR(n, STEP, ahead, 4);
#undef STEP
#undef STEP_MAX
}

static const ListKernels NAME(kernels) = {NAME(unscale), NAME(unscale_squares), NAME(scale), NAME(sum_squares), NAME(sgd),
                                          NAME(adam)};

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
