/* List kernels: unscale, norms, scale and the optimizer steps; layouts, dtypes, every instruction-set level, thread counts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "list.h"
#include "numeric.h"

static const int FLOATS[] = {AMP_FLOAT32, AMP_FLOAT64, AMP_FLOAT16, AMP_BFLOAT16};
static const char *const LEVELS[] = {"baseline", "avx2", "avx512"};

static uint32_t noise_state = 1;
static double noise(void) { /* in (-1, 1) */
    noise_state = noise_state * 1664525u + 1013904223u;
    return ((double)(noise_state >> 8) + 0.5) / 8388608.0 - 1.0;
}

static double get(int dtype, const void *data, int64_t i) {
    const char *p = (const char *)data + i * (int64_t)amp_itemsize(dtype);
    uint16_t h;
    float f;
    double d;
    switch (dtype) {
    case AMP_FLOAT64: memcpy(&d, p, 8); return d;
    case AMP_FLOAT32: memcpy(&f, p, 4); return (double)f;
    default: memcpy(&h, p, 2); return (double)(dtype == AMP_FLOAT16 ? amp_f16_to_f32(h) : amp_bf16_to_f32(h));
    }
}

static void put(int dtype, void *data, int64_t i, double v) {
    char *p = (char *)data + i * (int64_t)amp_itemsize(dtype);
    switch (dtype) {
    case AMP_FLOAT64: memcpy(p, &v, 8); break;
    case AMP_FLOAT32: memcpy(p, &(float){(float)v}, 4); break;
    case AMP_FLOAT16: memcpy(p, &(uint16_t){amp_f64_to_f16(v)}, 2); break;
    default: memcpy(p, &(uint16_t){amp_f64_to_bf16(v)}, 2); break;
    }
}

typedef struct Matrix { /* rows x cols view with its own shape storage */
    View v;
    int64_t shape[2], stride[2];
} Matrix;

static void matrix(Matrix *m, void *data, int dtype, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
    m->shape[0] = rows;
    m->shape[1] = cols;
    m->stride[0] = row_stride;
    m->stride[1] = col_stride;
    bool contiguous = rows * cols == 0 || (col_stride == 1 && row_stride == cols);
    m->v = (View){data, rows * cols, m->shape, m->stride, 2, (int8_t)dtype, AMP_CPU, contiguous ? LAYOUT_CONTIGUOUS : 0};
}

static void *zeros(size_t n) {
    void *p = calloc(n ? n : 1, 1);
    if (!p) exit(2);
    return p;
}

/* The norm that unscaling leaves is, bit for bit, the one that a second reading gives. */
static bool same_norm(const View *v, double left) {
    double again = -2.0;
    CHECK(amp_list_norms((TensorList){1, &v}, 2.0, &again) == AMP_OK);
    if (v->dtype == AMP_FLOAT64) return left == -1.0;
    return isnan(left) ? isnan(again) : left == again;
}

static Status unscale_one(const View *v, float inv, float *found) {
    double left = -2.0;
    Status status = amp_list_unscale((TensorList){1, &v}, inv, found, &left);
    CHECK(same_norm(v, left));
    return status;
}

/* Every size around the vector widths, every position of the bad element; neighbours stay untouched; all levels agree. */
static void test_unscale_sizes(void) {
    static const double bad[] = {INFINITY, -INFINITY, NAN};
    enum { GUARD = 3, MOST = 70 };
    for (int d = 0; d < 4; d++) {
        const int dtype = FLOATS[d];
        const size_t size = amp_itemsize(dtype);
        for (int64_t n = 0; n <= MOST; n++) {
            char *data = zeros((n + 2 * GUARD) * size), *want = zeros((n + 2 * GUARD) * size);
            Matrix m;
            matrix(&m, data + GUARD * size, dtype, 1, n, n, 1);
            for (int64_t at = -1; at < n; at++) {
                float found = 0.0f;
                for (int64_t i = 0; i < n + 2 * GUARD; i++) put(dtype, data, i, noise());
                if (at >= 0) put(dtype, data, GUARD + at, bad[at % 3]);
                memcpy(want, data, (n + 2 * GUARD) * size);
                for (int64_t i = GUARD; i < n + GUARD; i++) {
                    double x = get(dtype, want, i);
                    put(dtype, want, i, dtype == AMP_FLOAT64 ? x * (double)0.3f : (double)((float)x * 0.3f));
                }
                CHECK(unscale_one(&m.v, 0.3f, &found) == AMP_OK);
                CHECK(found == (at >= 0 ? 1.0f : 0.0f));
                for (int64_t i = 0; i < n + 2 * GUARD; i++) {
                    double x = get(dtype, data, i), y = get(dtype, want, i);
                    CHECK(x == y || (isnan(x) && isnan(y)));
                }
            }
            free(data);
            free(want);
        }
    }
}

static void test_unscale_rules(void) {
    uint32_t signalling = 0x7f800001;
    float x[4] = {3.0e38f, -1.0f, 0x1p-149f, 2.0f}, found = 0.0f;
    Matrix m;
    matrix(&m, x, AMP_FLOAT32, 1, 4, 4, 1);
    CHECK(unscale_one(&m.v, 2.0f, &found) == AMP_OK);
    CHECK(found == 0.0f && isinf(x[0]) && x[2] == 0x1p-148f); /* the product overflows: not reported */
    CHECK(unscale_one(&m.v, 0.0f, &found) == AMP_OK);
    CHECK(found == 1.0f && isnan(x[0]) && x[3] == 0.0f); /* inf x 0 */
    x[0] = 1.0f;
    found = 2.0f;
    CHECK(unscale_one(&m.v, 0.5f, &found) == AMP_OK && found == 2.0f); /* never cleared */
    found = NAN;
    CHECK(unscale_one(&m.v, 0.5f, &found) == AMP_OK && isnan(found));
    CHECK(amp_list_unscale((TensorList){0, NULL}, 0.5f, &found, NULL) == AMP_OK);

    /* inv_scale 1: tested, not rewritten */
    uint16_t h[3] = {0x7c01, 0x3c00, 0xfd55};
    matrix(&m, h, AMP_FLOAT16, 1, 3, 3, 1);
    found = 0.0f;
    CHECK(unscale_one(&m.v, 1.0f, &found) == AMP_OK && found == 1.0f && h[0] == 0x7c01 && h[2] == 0xfd55);
    memcpy(x, &signalling, 4);
    matrix(&m, x, AMP_FLOAT32, 1, 4, 4, 1);
    CHECK(unscale_one(&m.v, 1.0f, &found) == AMP_OK && memcmp(x, &signalling, 4) == 0);

    /* a finite fp64 value beyond the fp32 range is finite here */
    double d[2] = {1e300, 1.0};
    matrix(&m, d, AMP_FLOAT64, 1, 2, 2, 1);
    found = 0.0f;
    CHECK(unscale_one(&m.v, 0.5f, &found) == AMP_OK && found == 0.0f && d[0] == 5e299);

    /* tensors before an unsupported dtype are done */
    float a[2] = {2.0f, INFINITY};
    int32_t b[2] = {2, 2};
    float c[2] = {2.0f, 2.0f};
    Matrix ma, mb, mc;
    matrix(&ma, a, AMP_FLOAT32, 1, 2, 2, 1);
    matrix(&mb, b, AMP_INT32, 1, 2, 2, 1);
    matrix(&mc, c, AMP_FLOAT32, 1, 2, 2, 1);
    const View *list[] = {&ma.v, &mb.v, &mc.v};
    double left[3] = {0.0, 0.0, 0.0};
    CHECK(amp_list_unscale((TensorList){3, list}, 0.5f, &found, left) == AMP_BAD_DTYPE);
    CHECK(isinf(left[0]) && left[1] == -1.0 && left[2] == -1.0);
    CHECK(found == 1.0f && a[0] == 1.0f && b[0] == 2 && c[0] == 2.0f);
}

static void test_unscale_layouts(void) {
    enum { N = 40 };
    static const struct {
        int64_t offset, rows, cols, row_stride, col_stride;
    } layouts[] = {{0, N, N, 1, N},           {1, N, 3, N, 1},      {0, N / 2, N, 2 * N, 1}, {0, N, N / 2, N, 2},
                   {N * N - 1, N, N, -N, -1}, {N - 1, N, N, N, -1}, {5, 1, 1, 7, 7}};
    for (int d = 0; d < 4; d++) {
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            const int dtype = FLOATS[d];
            const size_t size = amp_itemsize(dtype);
            char *data = zeros(N * N * size + 1), *before = zeros(N * N * size), *hit = zeros(N * N);
            for (int misaligned = 0; misaligned < 2; misaligned++) {
                char *base = data + misaligned;
                Matrix m;
                float found = 0.0f;
                for (int64_t i = 0; i < N * N; i++)
                    put(dtype, before, i, noise() + (i % 2 ? 2.0 : -2.0)); /* a quarter is exact */
                memcpy(base, before, N * N * size);
                memset(hit, 0, N * N);
                for (int64_t r = 0; r < layouts[l].rows; r++)
                    for (int64_t c = 0; c < layouts[l].cols; c++)
                        hit[layouts[l].offset + r * layouts[l].row_stride + c * layouts[l].col_stride] = 1;
                matrix(&m, base + layouts[l].offset * (int64_t)size, dtype, layouts[l].rows, layouts[l].cols,
                       layouts[l].row_stride, layouts[l].col_stride);
                CHECK(unscale_one(&m.v, 0.25f, &found) == AMP_OK && found == 0.0f);
                for (int64_t i = 0; i < N * N; i++) CHECK(get(dtype, base, i) == get(dtype, before, i) * (hit[i] ? 0.25 : 1.0));
                /* one bad element inside is seen, one outside is not */
                for (int64_t i = 0; i < N * N; i += 31) {
                    put(dtype, base, i, NAN);
                    found = 0.0f;
                    CHECK(unscale_one(&m.v, 0.25f, &found) == AMP_OK && found == (hit[i] ? 1.0f : 0.0f));
                    put(dtype, base, i, 1.0);
                }
            }
            free(data);
            free(before);
            free(hit);
        }
    }
}

/* Long lists of many sizes: every element exactly once, whatever the number of threads; the flag from anywhere. */
static void test_many_tensors(void) {
    enum { COUNT = 150 };
    static Matrix m[COUNT];
    const View *list[COUNT];
    for (int threads = 1; threads <= 4; threads += 3) {
        amp_set_num_threads(threads);
        for (int i = 0; i < COUNT; i++) {
            int64_t n = i % 7 == 0 ? 0 : i % 11 == 0 ? 3 * LIST_CHUNK + i : i;
            matrix(&m[i], zeros((size_t)n * 4), AMP_FLOAT32, 1, n, n, 1);
            for (int64_t j = 0; j < n; j++) ((float *)(void *)m[i].v.data)[j] = (float)(j % 1000);
            list[i] = &m[i].v;
        }
        float found = 0.0f;
        double left[COUNT];
        CHECK(amp_list_unscale((TensorList){COUNT, list}, 0.5f, &found, left) == AMP_OK && found == 0.0f);
        for (int i = 0; i < COUNT; i++) CHECK(same_norm(list[i], left[i]));
        CHECK(amp_list_scale((TensorList){COUNT, list}, 1.0 - 1e-9) == AMP_OK); /* 1 in fp32: nothing is written */
        CHECK(amp_list_scale((TensorList){COUNT, list}, 4.0) == AMP_OK);
        for (int i = 0; i < COUNT; i++)
            for (int64_t j = 0; j < m[i].v.numel; j++) CHECK(((float *)(void *)m[i].v.data)[j] == 2.0f * (float)(j % 1000));
        ((float *)(void *)m[COUNT - 1].v.data)[m[COUNT - 1].v.numel - 1] = INFINITY;
        CHECK(amp_list_unscale((TensorList){COUNT, list}, 0.5f, &found, NULL) == AMP_OK && found == 1.0f);
        CHECK(amp_list_zero((TensorList){COUNT, list}) == AMP_OK);
        for (int i = 0; i < COUNT; i++)
            for (int64_t j = 0; j < m[i].v.numel; j++) CHECK(((uint32_t *)(void *)m[i].v.data)[j] == 0);
        for (int i = 0; i < COUNT; i++) free(m[i].v.data);
    }
    amp_set_num_threads(2);
}

static double norm_one(const View *v, double p) {
    double out = -1.0;
    CHECK(amp_list_norms((TensorList){1, &v}, p, &out) == AMP_OK);
    return out;
}

static double oracle_norm(int dtype, const void *data, int64_t n, double p) {
    long double acc = isinf(p) && p < 0 ? INFINITY : 0.0L;
    for (int64_t i = 0; i < n; i++) {
        long double x = fabsl((long double)get(dtype, data, i));
        if (isinf(p)) acc = p > 0 ? fmaxl(acc, x) : fminl(acc, x);
        else acc += p == 0.0 ? (x != 0.0L) : powl(x, (long double)p);
    }
    return (double)(isinf(p) || p == 0.0 ? acc : powl(acc, 1.0L / (long double)p));
}

static void test_norms(void) {
    static const double orders[] = {2.0, 1.0, 0.0, INFINITY, -INFINITY, 3.0, 0.5, -2.0};
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 513, 30000};
    static double first[4][sizeof sizes / sizeof *sizes]; /* what the first level gave: all levels give the same bits */
    noise_state = 1;
    for (int d = 0; d < 4; d++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const int dtype = FLOATS[d];
            int64_t n = sizes[s];
            char *data = zeros((size_t)n * amp_itemsize(dtype)), *sliced = zeros((size_t)n * 2 * amp_itemsize(dtype));
            Matrix m, every_second;
            for (int64_t i = 0; i < n; i++) {
                put(dtype, data, i, noise() + (i % 2 ? 1.5 : -1.5));
                put(dtype, sliced, 2 * i, get(dtype, data, i));
            }
            matrix(&m, data, dtype, 1, n, n, 1);
            matrix(&every_second, sliced, dtype, n, 1, 2, 1);
            if (first[d][s] == 0.0) first[d][s] = norm_one(&m.v, 2.0);
            CHECK(norm_one(&m.v, 2.0) == first[d][s]);
            for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
                double got = norm_one(&m.v, orders[k]), want = oracle_norm(dtype, data, n, orders[k]);
                CHECK(fabs(got - want) <= 1e-13 * want);
                CHECK(norm_one(&every_second.v, orders[k]) == got);
                amp_set_num_threads(1);
                CHECK(norm_one(&m.v, orders[k]) == got);
                amp_set_num_threads(2);
            }
            put(dtype, data, n / 2, INFINITY);
            CHECK(isinf(norm_one(&m.v, 2.0)) && isinf(norm_one(&m.v, INFINITY)) && isinf(norm_one(&m.v, 3.0)));
            put(dtype, data, n / 3, NAN);
            for (size_t k = 0; k < sizeof orders / sizeof *orders; k++)
                CHECK(orders[k] == 0.0 || isnan(norm_one(&m.v, orders[k])));
            free(data);
            free(sliced);
        }
    }
}

/* Powers leave the range, the norm does not. */
static void test_norm_range(void) {
    float f[2] = {3e38f, 1e38f}, tiny[2] = {0x1p-149f, 0x1p-149f};
    double big[3] = {1e200, -1e200, 1e190}, small[2] = {3e-200, 4e-200}, edge[2] = {3e-162, 4e-162}, zero[2] = {0.0, -0.0},
           most[2] = {1e308, 1e308};
    Matrix m;
    matrix(&m, f, AMP_FLOAT32, 1, 2, 2, 1);
    CHECK(fabs(norm_one(&m.v, 2.0) / hypot((double)f[0], (double)f[1]) - 1.0) < 1e-15);
    CHECK(fabs(norm_one(&m.v, 20.0) / (double)f[0] - 1.0) < 1e-9);
    matrix(&m, tiny, AMP_FLOAT32, 1, 2, 2, 1);
    CHECK(fabs(norm_one(&m.v, 2.0) / (0x1p-149 * sqrt(2.0)) - 1.0) < 1e-15);
    matrix(&m, big, AMP_FLOAT64, 1, 3, 3, 1);
    CHECK(fabs(norm_one(&m.v, 2.0) / (1e200 * sqrt(2.0)) - 1.0) < 1e-15);
    CHECK(fabs(norm_one(&m.v, -3.0) / 1e190 - 1.0) < 1e-15);
    matrix(&m, small, AMP_FLOAT64, 1, 2, 2, 1);
    CHECK(fabs(norm_one(&m.v, 2.0) / 5e-200 - 1.0) < 1e-15);
    CHECK(fabs(norm_one(&m.v, 4.0) / 1e-200 - pow(81.0 + 256.0, 0.25)) < 1e-14);
    matrix(&m, edge, AMP_FLOAT64, 1, 2, 2, 1); /* the squares are subnormal */
    CHECK(fabs(norm_one(&m.v, 2.0) / 5e-162 - 1.0) < 1e-15);
    matrix(&m, most, AMP_FLOAT64, 1, 2, 2, 1);
    CHECK(fabs(norm_one(&m.v, 2.0) / 1e308 - sqrt(2.0)) < 1e-15);
    matrix(&m, zero, AMP_FLOAT64, 1, 2, 2, 1);
    CHECK(norm_one(&m.v, 2.0) == 0.0 && norm_one(&m.v, 3.0) == 0.0 && norm_one(&m.v, -1.0) == 0.0 && norm_one(&m.v, 0.0) == 0.0);
    matrix(&m, zero, AMP_FLOAT64, 1, 0, 0, 1);
    CHECK(norm_one(&m.v, 2.0) == 0.0 && norm_one(&m.v, INFINITY) == 0.0);
}

/* ---- optimizers, against the same formulas in long double ---- */

enum { ROWS = 9, COLS = 13, N = ROWS * COLS, STEPS = 3 };
typedef struct Trial {
    int param, state; /* dtypes */
    SgdOptions sgd;
    AdamOptions adam;
    bool use_adam;
    double grad_scale;
    int layout; /* 0 contiguous, 1 all transposed, 2 every second column */
} Trial;

typedef struct Buffers {
    char *data[5]; /* param, grad, state 1 to 3 */
    Matrix m[5];
} Buffers;

static void oracle_sgd(const SgdOptions *o, long double *p, long double g, long double *buf) {
    if (o->maximize) g = -g;
    g += (long double)o->weight_decay * *p;
    if (o->momentum != 0.0) {
        *buf = o->first ? g : *buf * (long double)o->momentum + (1.0L - (long double)o->dampening) * g;
        g = o->nesterov ? g + (long double)o->momentum * *buf : *buf;
    }
    *p -= (long double)o->lr * g;
}

static void oracle_adam(const AdamOptions *o, double t, double mu_product, long double *p, long double g, long double *m,
                        long double *v, long double *top) {
    if (o->maximize) g = -g;
    if (o->decoupled) *p *= 1.0L - (long double)o->lr * (long double)o->weight_decay;
    else g += (long double)o->weight_decay * *p;
    *m += (g - *m) * (1.0L - (long double)o->beta1);
    *v = *v * (long double)o->beta2 + (1.0L - (long double)o->beta2) * g * g;
    *top = fmaxl(*top, *v);
    long double second = o->amsgrad ? *top : *v, c1 = 1.0L - powl(o->beta1, t), c2 = 1.0L - powl(o->beta2, t);
    long double root = sqrtl(second / c2) + (long double)o->eps;
    if (!o->nadam) {
        *p -= (long double)o->lr / c1 * *m / root;
        return;
    }
    long double mu = o->beta1 * (1.0L - 0.5L * powl(0.96L, t * o->momentum_decay));
    long double next = o->beta1 * (1.0L - 0.5L * powl(0.96L, (t + 1) * o->momentum_decay));
    *p -= (long double)o->lr * (1.0L - mu) / (1.0L - mu_product) * g / root;
    *p -= (long double)o->lr * next / (1.0L - mu_product * next) * *m / root;
}

static void make_buffers(const Trial *t, Buffers *b) {
    const int dtypes[5] = {t->param, t->param, t->state, t->state, t->state};
    for (int k = 0; k < 5; k++) {
        size_t size = amp_itemsize(dtypes[k]);
        b->data[k] = zeros(2 * N * size);
        if (t->layout == 0) matrix(&b->m[k], b->data[k], dtypes[k], ROWS, COLS, COLS, 1);
        else if (t->layout == 1) matrix(&b->m[k], b->data[k], dtypes[k], ROWS, COLS, 1, ROWS);
        else matrix(&b->m[k], b->data[k], dtypes[k], ROWS, COLS, 2 * COLS, 2);
    }
}

static double element(const Buffers *b, int k, int64_t i) {
    const Matrix *m = &b->m[k];
    return get(m->v.dtype, b->data[k], i / COLS * m->stride[0] + i % COLS * m->stride[1]);
}

static void set_element(Buffers *b, int k, int64_t i, double v) {
    const Matrix *m = &b->m[k];
    put(m->v.dtype, b->data[k], i / COLS * m->stride[0] + i % COLS * m->stride[1], v);
}

static TensorList list_of(const View **v, const Matrix *m) {
    *v = &m->v;
    return (TensorList){1, v};
}

static double one_step(const Trial *t, Buffers *b, int step, double mu_product) {
    const View *v[5];
    TensorList l[5];
    double number = step + 1.0;
    for (int k = 0; k < 5; k++) l[k] = list_of(&v[k], &b->m[k]);
    const TensorList none = {0, NULL};
    const bool copied = t->param == AMP_FLOAT32 && t->layout == 0;
    const int kind = step % 2 ? AMP_FLOAT16 : AMP_BFLOAT16;
    uint16_t half[N + 1];
    half[N] = 0x1234;
    Matrix copy;
    const View *vc;
    matrix(&copy, half, kind, ROWS, COLS, COLS, 1);
    TensorList copies = copied ? list_of(&vc, &copy) : none;
    if (t->use_adam) {
        CHECK(amp_list_adam(l[0], l[1], l[2], l[3], t->adam.amsgrad ? l[4] : none, copies, &number, &mu_product, &t->adam,
                            t->grad_scale) == AMP_OK);
    } else {
        SgdOptions o = t->sgd;
        o.first = step == 0;
        if (o.momentum == 0.0) l[2].n = 0;
        CHECK(amp_list_sgd(l[0], l[1], l[2], copies, &o, t->grad_scale) == AMP_OK);
    }
    for (int i = 0; copied && i < N; i++) {
        float p = (float)element(b, 0, i);
        CHECK(half[i] == (kind == AMP_FLOAT16 ? amp_f32_to_f16(p) : amp_f32_to_bf16(p)));
    }
    CHECK(half[N] == 0x1234);
    return mu_product;
}

static bool near(double got, long double want, double unit, double about) {
    return fabsl((long double)got - want) <= (long double)(unit * about);
}

/* One step from exactly known values against the oracle: a few units of the storage, and of the compute type, of what was added up. */
static void check_step(const Trial *t, const Buffers *before, const Buffers *b, int step, double mu_product) {
    const double compute = t->param == AMP_FLOAT64 ? 0x1p-52 : 0x1p-23;
    const double unit[] = {[AMP_FLOAT16] = 0x1p-10, [AMP_BFLOAT16] = 0x1p-7, [AMP_FLOAT32] = 0x1p-23, [AMP_FLOAT64] = 0x1p-52};
    for (int64_t i = 0; i < N; i++) {
        long double p = element(before, 0, i), g = (long double)element(before, 1, i) / (long double)t->grad_scale;
        long double s[3] = {element(before, 2, i), element(before, 3, i), element(before, 4, i)};
        double old = fabs((double)p), grad = fabs((double)g), tiny = t->param == AMP_FLOAT16 ? 0x1p-24 : 0.0;
        if (t->use_adam) oracle_adam(&t->adam, step + 1.0, mu_product, &p, g, &s[0], &s[1], &s[2]);
        else {
            SgdOptions o = t->sgd;
            o.first = step == 0;
            oracle_sgd(&o, &p, g, &s[0]);
        }
        double moved = old + fabs((double)p) + (t->use_adam ? 10.0 * t->adam.lr : t->sgd.lr * (grad + fabs((double)s[0])));
        CHECK(near(element(b, 0, i), p, 4.0 * compute, moved) ||
              near(element(b, 0, i), p, unit[t->param], fabs((double)p) + tiny / unit[t->param]));
        if (t->use_adam || t->sgd.momentum != 0.0)
            CHECK(near(element(b, 2, i), s[0], 3.0 * unit[t->state],
                       fabs((double)s[0]) + fabs(element(before, 2, i)) + grad + old));
        if (t->use_adam) CHECK(near(element(b, 3, i), s[1], 4.0 * unit[t->state], fabs((double)s[1]) + grad * grad + 0x1p-24));
        if (t->use_adam && t->adam.amsgrad)
            CHECK(near(element(b, 4, i), s[2], 4.0 * unit[t->state], fabs((double)s[2]) + 0x1p-24));
        if (t->grad_scale != 1.0) CHECK(near(element(b, 1, i), g, unit[t->param], grad + tiny / unit[t->param]));
        else CHECK(element(b, 1, i) == element(before, 1, i));
    }
}

static void free_buffers(Buffers *b) {
    for (int k = 0; k < 5; k++) free(b->data[k]);
}

static void run_trial(Trial t) {
    Buffers reference[STEPS]; /* baseline, contiguous */
    for (int layout = 0; layout < 3; layout++) {
        for (int level = 0; level < 3; level++) {
            Buffers b;
            double mu_product = 1.0;
            noise_state = 7;
            amp_isa_set_cap(LEVELS[level]);
            t.layout = layout;
            make_buffers(&t, &b);
            for (int64_t i = 0; i < N; i++) set_element(&b, 0, i, noise());
            for (int step = 0; step < STEPS; step++) {
                Buffers before;
                make_buffers(&t, &before);
                for (int64_t i = 0; i < N; i++) set_element(&b, 1, i, noise() * t.grad_scale);
                for (int k = 0; k < 5; k++) memcpy(before.data[k], b.data[k], 2 * N * amp_itemsize(b.m[k].v.dtype));
                mu_product = one_step(&t, &b, step, mu_product);
                if (layout == 0 && level == 0) {
                    check_step(&t, &before, &b, step, mu_product);
                    make_buffers(&t, &reference[step]);
                    for (int k = 0; k < 5; k++) memcpy(reference[step].data[k], b.data[k], 2 * N * amp_itemsize(b.m[k].v.dtype));
                }
                for (int k = 0; k < 5; k++)
                    for (int64_t i = 0; i < N; i++) CHECK(element(&b, k, i) == element(&reference[step], k, i));
                free_buffers(&before);
            }
            free_buffers(&b);
        }
    }
    for (int step = 0; step < STEPS; step++) free_buffers(&reference[step]);
    amp_isa_set_cap("amx");
}

static void test_optimizers(void) {
    static const int pairs[][2] = {{AMP_FLOAT32, AMP_FLOAT32},
                                   {AMP_FLOAT64, AMP_FLOAT64},
                                   {AMP_BFLOAT16, AMP_FLOAT32},
                                   {AMP_FLOAT16, AMP_FLOAT32},
                                   {AMP_BFLOAT16, AMP_BFLOAT16}};
    static const SgdOptions sgd[] = {{.lr = 0.1},
                                     {.lr = 0.1, .momentum = 0.9, .dampening = 0.2, .weight_decay = 0.01},
                                     {.lr = 0.05, .momentum = 0.8, .nesterov = true, .maximize = true}};
    const AdamOptions plain = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 4e-3};
    AdamOptions adam[5] = {plain, plain, plain, plain, plain};
    adam[1].weight_decay = 0.1, adam[1].amsgrad = true, adam[1].maximize = true;
    adam[2].weight_decay = 0.1, adam[2].decoupled = true;
    adam[3].nadam = true, adam[3].weight_decay = 0.05;
    adam[4].beta1 = 0.3, adam[4].beta2 = 0.5, adam[4].amsgrad = true;
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        for (int scaled = 0; scaled < 2; scaled++) {
            Trial t = {.param = pairs[p][0], .state = pairs[p][1], .grad_scale = scaled ? 8.0 : 1.0};
            for (int i = 0; i < 3; i++) {
                t.sgd = sgd[i];
                run_trial(t);
            }
            t.use_adam = true;
            for (int i = 0; i < 5; i++) {
                t.adam = adam[i];
                run_trial(t);
            }
        }
    }
}

/* The running maximum keeps NaN; a first momentum buffer is written without being read; many tensors; refused dtypes. */
static void test_optimizer_details(void) {
    enum { COUNT = 40 };
    float p = 1.0f, g = NAN, m = 0.0f, v = 0.0f, top = 5.0f, buf = NAN;
    const AdamOptions o = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .amsgrad = true};
    double step = 1.0, mu = 1.0;
    Matrix mp, mg, mm, mv, mt, mb;
    matrix(&mp, &p, AMP_FLOAT32, 1, 1, 1, 1);
    matrix(&mg, &g, AMP_FLOAT32, 1, 1, 1, 1);
    matrix(&mm, &m, AMP_FLOAT32, 1, 1, 1, 1);
    matrix(&mv, &v, AMP_FLOAT32, 1, 1, 1, 1);
    matrix(&mt, &top, AMP_FLOAT32, 1, 1, 1, 1);
    matrix(&mb, &buf, AMP_FLOAT32, 1, 1, 1, 1);
    const View *vp = &mp.v, *vg = &mg.v, *vm = &mm.v, *vv = &mv.v, *vt = &mt.v, *vb = &mb.v;
    CHECK(amp_list_adam((TensorList){1, &vp}, (TensorList){1, &vg}, (TensorList){1, &vm}, (TensorList){1, &vv},
                        (TensorList){1, &vt}, (TensorList){0, NULL}, &step, &mu, &o, 1.0) == AMP_OK);
    CHECK(isnan(top) && isnan(p));
    p = 1.0f, g = 2.0f;
    SgdOptions s = {.lr = 0.5, .momentum = 0.9, .first = true};
    CHECK(amp_list_sgd((TensorList){1, &vp}, (TensorList){1, &vg}, (TensorList){1, &vb}, (TensorList){0, NULL}, &s, 1.0) ==
          AMP_OK);
    CHECK(buf == 2.0f && p == 0.0f);
    mp.v.dtype = AMP_INT32;
    CHECK(amp_list_sgd((TensorList){1, &vp}, (TensorList){1, &vg}, (TensorList){1, &vb}, (TensorList){0, NULL}, &s, 1.0) ==
          AMP_BAD_DTYPE);

    static float params[COUNT][700], grads[COUNT][700], first[COUNT][700], second[COUNT][700];
    static Matrix all[4][COUNT];
    const View *views[4][COUNT];
    double steps[COUNT], mus[COUNT];
    for (int i = 0; i < COUNT; i++) {
        float *const data[4] = {params[i], grads[i], first[i], second[i]};
        for (int j = 0; j < 700; j++) params[i][j] = first[i][j] = second[i][j] = 0.0f, grads[i][j] = 1.0f;
        for (int k = 0; k < 4; k++) {
            matrix(&all[k][i], data[k], AMP_FLOAT32, 1, 700, 700, 1);
            views[k][i] = &all[k][i].v;
        }
        steps[i] = i < COUNT / 2 ? 1.0 : 10.0;
        mus[i] = 1.0;
    }
    static uint16_t halves[COUNT][700];
    static Matrix copy[COUNT];
    const View *copies[COUNT];
    for (int i = 0; i < COUNT; i++) {
        matrix(&copy[i], halves[i], AMP_BFLOAT16, 1, 700, 700, 1);
        copies[i] = i % 3 ? &copy[i].v : NULL; /* not every parameter has one */
    }
    const AdamOptions plain = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 0.0};
    CHECK(amp_list_adam((TensorList){COUNT, views[0]}, (TensorList){COUNT, views[1]}, (TensorList){COUNT, views[2]},
                        (TensorList){COUNT, views[3]}, (TensorList){0, NULL}, (TensorList){COUNT, copies}, steps, mus, &plain,
                        1.0) == AMP_OK);
    for (int i = 0; i < COUNT; i++) {
        /* gradient 1 from zero state: m = 0.1, v = 0.01 */
        double want = -0.1 * 0.1 / (1.0 - pow(0.9, steps[i])) / (sqrt(0.01) / sqrt(1.0 - pow(0.99, steps[i])));
        for (int j = 0; j < 700; j++) {
            CHECK(fabs((double)params[i][j] - want) < 1e-6 * fabs(want));
            CHECK(halves[i][j] == (i % 3 ? amp_f32_to_bf16(params[i][j]) : 0));
        }
    }
}

static void test_scale(void) {
    for (int d = 0; d < 4; d++) {
        char data[8 * 9];
        Matrix m;
        const View *v = &m.v;
        for (int i = 0; i < 9; i++) put(FLOATS[d], data, i, i - 4.0);
        matrix(&m, data, FLOATS[d], 3, 3, 1, 3);
        CHECK(amp_list_scale((TensorList){1, &v}, 0.5) == AMP_OK);
        for (int i = 0; i < 9; i++) CHECK(get(FLOATS[d], data, i) == (i - 4.0) * 0.5);
        CHECK(amp_list_scale((TensorList){1, &v}, NAN) == AMP_OK && isnan(get(FLOATS[d], data, 0)));
        CHECK(amp_list_zero((TensorList){1, &v}) == AMP_OK);
        for (int i = 0; i < 9; i++) CHECK(get(FLOATS[d], data, i) == 0.0);
        for (int i = 0; i < 9; i++) put(FLOATS[d], data, i, 5.0);
        matrix(&m, data, FLOATS[d], 2, 3, 4, 1); /* rows with a gap between them */
        CHECK(amp_list_zero((TensorList){1, &v}) == AMP_OK);
        for (int i = 0; i < 9; i++) CHECK(get(FLOATS[d], data, i) == (i < 3 || (i > 3 && i < 7) ? 0.0 : 5.0));
    }
}

/* Tensors that lie one behind the other, cut anywhere, are walked as one: each ends up as it does alone, and what lies between them is
 * left alone. The lists are cut alike, but have their gaps in different places. */
enum { PIECES = 90, STREAMS = 4, GAP = 6, MIXTURES = 6 };
typedef struct Block {
    char *data;
    int64_t nbytes;
    Matrix piece[PIECES];
    const View *list[PIECES];
} Block;

static int64_t piece_length(int i) {
    static const int64_t sizes[] = {0, 1, 5, 16, 33, 700, 1024, LIST_CHUNK, LIST_CHUNK + 3};
    return sizes[(i * 7) % 9] + (i % 10 == 9);
}

/* One dtype; one for seven pieces, then the next; and with gradients of another one. */
static int piece_dtype(int mixture, int i, int stream) {
    return FLOATS[mixture < 4 ? mixture : (i / 7 + (mixture == 5 && stream == 1)) % 4];
}

static int64_t piece_bytes(const Block *b, int i) { return b->piece[i].v.numel * (int64_t)amp_itemsize(b->piece[i].v.dtype); }

/* A gap in front of every `every`th piece; 0: none. */
static void cut(Block *b, int mixture, int stream, int every, bool backwards, const double *value) {
    b->nbytes = 0;
    for (int i = 0; i < PIECES; i++) {
        const int64_t n = piece_length(i);
        matrix(&b->piece[i], NULL, piece_dtype(mixture, i, stream), 1, n, n, 1);
        b->list[i] = &b->piece[i].v;
        b->nbytes += piece_bytes(b, i) + GAP;
    }
    b->data = zeros((size_t)b->nbytes);
    memset(b->data, 0x5a, (size_t)b->nbytes);
    int64_t at = backwards ? b->nbytes : 0, index = 0;
    for (int i = 0; i < PIECES; i++) {
        View *v = &b->piece[i].v;
        const int64_t gap = every && i % every == every - 1 ? GAP : 0;
        at = backwards ? at - piece_bytes(b, i) - gap : at + gap;
        v->data = b->data + at;
        for (int64_t j = 0; j < v->numel; j++) put(v->dtype, v->data, j, value[index++ % 1000]);
        at = backwards ? at : at + piece_bytes(b, i);
    }
}

static bool gaps_untouched(Block *b) {
    int64_t left = 0;
    for (int i = 0; i < PIECES; i++) memset(b->piece[i].v.data, 0, (size_t)piece_bytes(b, i));
    for (int64_t i = 0; i < b->nbytes; i++) left += b->data[i] == 0x5a;
    return left == GAP * PIECES;
}

static void step_pieces(Block *b, bool adam, bool together, double *norms) {
    const AdamOptions a = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.1};
    const SgdOptions s = {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1};
    const TensorList none = {0, NULL};
    double steps[PIECES], mu = 1.0;
    float found = 0.0f;
    for (int i = 0; i < PIECES; i++) steps[i] = 2.0;
    for (int i = 0; i < (together ? 1 : PIECES); i++) {
        TensorList l[STREAMS];
        for (int k = 0; k < STREAMS; k++) l[k] = (TensorList){together ? PIECES : 1, b[k].list + i};
        CHECK(amp_list_unscale(l[1], 0.5f, &found, NULL) == AMP_OK && found == 0.0f);
        CHECK(amp_list_unscale(l[1], 0.25f, &found, norms + i) == AMP_OK && found == 0.0f);
        CHECK(amp_list_scale(l[1], 3.0) == AMP_OK);
        if (adam) CHECK(amp_list_adam(l[0], l[1], l[2], l[3], none, none, steps, &mu, &a, 1.0) == AMP_OK);
        else CHECK(amp_list_sgd(l[0], l[1], l[2], none, &s, 1.0) == AMP_OK);
        CHECK(amp_list_zero(l[3]) == AMP_OK);
    }
}

static void test_neighbours(void) {
    static const int every[][STREAMS] = {{0, 0, 0, 0}, {4, 9, 0, 2}, {1, 1, 1, 1}};
    double value[1000];
    noise_state = 5;
    for (int i = 0; i < 1000; i++) value[i] = fabs(noise()) + 0.01;
    for (int way = 0; way < 8 * MIXTURES * 3; way++) {
        const int gaps = way / 8 % 3, mixture = way / 24;
        Block one[STREAMS], all[STREAMS];
        double norms[2][PIECES];
        for (int k = 0; k < STREAMS; k++) {
            cut(&one[k], mixture, k, every[gaps][k], way & 1, value);
            cut(&all[k], mixture, k, every[gaps][k], way & 1, value);
        }
        amp_set_num_threads(way & 2 ? 2 : 1);
        step_pieces(one, way & 4, false, norms[0]);
        step_pieces(all, way & 4, true, norms[1]);
        CHECK(memcmp(norms[0], norms[1], sizeof norms[0]) == 0);
        for (int k = 0; k < STREAMS; k++) {
            CHECK(memcmp(one[k].data, all[k].data, (size_t)one[k].nbytes) == 0);
            CHECK(gaps_untouched(&all[k]));
            free(one[k].data);
            free(all[k].data);
        }
    }
    amp_set_num_threads(2);
}

int main(void) {
    for (int level = 0; level < 3; level++) {
        amp_isa_set_cap(LEVELS[level]);
        test_unscale_sizes();
        test_unscale_rules();
        test_unscale_layouts();
        test_many_tensors();
        test_norms();
        test_norm_range();
        test_scale();
        test_neighbours();
        test_optimizer_details();
    }
    test_optimizers();
    if (failures) fprintf(stderr, "%d checks failed\n", failures);
    return failures != 0;
}
