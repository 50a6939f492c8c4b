/* The attention slots against float64, at every instruction-set level that the machine has: formats, layouts, masks, shared keys, lengths
 * around tiles, blocks and parts, with 1 and 2 threads. */
#include "kernel_support.h"

typedef struct Case {
    int dtype, mask_dtype; /* -1: no mask */
    Layout layout;
    bool causal;
    double scale;
    int64_t heads, shared, length, keys, features, values;
    Array q, k, v, g, mask, out, logarithms, dq, dk, dv;
    double *want[4], *unit[4]; /* out, dq, dk, dv, and the sums of magnitudes that rounding is relative to */
    double *in[5];             /* q, k, v, g, mask as doubles */
} Case;

static void make_case(Case *c) {
    const int64_t q[] = {2, c->heads, c->length, c->features}, k[] = {2, c->shared, c->keys, c->features},
                  v[] = {2, c->shared, c->keys, c->values}, o[] = {2, c->heads, c->length, c->values},
                  m[] = {2, c->heads, c->length, c->keys};
    c->q = make(c->dtype, 4, q, c->layout), c->dq = make(c->dtype, 4, q, c->layout);
    c->k = make(c->dtype, 4, k, c->layout), c->dk = make(c->dtype, 4, k, c->layout);
    c->v = make(c->dtype, 4, v, c->layout), c->dv = make(c->dtype, 4, v, c->layout);
    c->g = make(c->dtype, 4, o, c->layout), c->out = make(c->dtype, 4, o, c->layout);
    c->mask = make(c->mask_dtype < 0 ? AMP_BOOL : c->mask_dtype, 4, m, c->layout);
    c->logarithms = make(AMP_FLOAT32, 3, o, DENSE);
    fill_uniform(&c->q, -2, 2), fill_uniform(&c->k, -2, 2), fill_uniform(&c->v, -1, 1), fill_uniform(&c->g, -1, 1);
    for (int64_t i = 0; i < c->mask.v.numel; i++) set(&c->mask, i, c->mask_dtype == AMP_BOOL ? draw() % 4 > 0 : uniform(-1, 1));
    const Array *in[] = {&c->q, &c->k, &c->v, &c->g, &c->mask};
    for (int i = 0; i < 5; i++) {
        c->in[i] = calloc((size_t)in[i]->v.numel, 8);
        for (int64_t j = 0; j < in[i]->v.numel; j++) c->in[i][j] = get(in[i], j);
    }
    const int64_t n[] = {c->out.v.numel, c->dq.v.numel, c->dk.v.numel, c->dv.v.numel};
    for (int i = 0; i < 4; i++) c->want[i] = calloc((size_t)n[i], 8), c->unit[i] = calloc((size_t)n[i], 8);
}

static void free_case(Case *c) {
    Array *all[] = {&c->q, &c->k, &c->v, &c->g, &c->mask, &c->out, &c->logarithms, &c->dq, &c->dk, &c->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->memory);
    for (int i = 0; i < 4; i++) free(c->want[i]), free(c->unit[i]);
    for (int i = 0; i < 5; i++) free(c->in[i]);
}

static double value(const Case *c, int which, int64_t i) { return c->in[which][i]; }

/* Row `row` of query matrix `m`, by the definition. */
static void reference_row(Case *c, int64_t m, int64_t row, double *p) {
    const int64_t e = c->features, v = c->values, kind = m / (c->heads / c->shared), at = m * c->length + row;
    double top = -INFINITY, sum = 0, mean = 0, noise = 0;
    for (int64_t j = 0; j < c->keys; j++) {
        p[j] = 0;
        for (int64_t i = 0; i < e; i++) p[j] += value(c, 0, at * e + i) * value(c, 1, (kind * c->keys + j) * e + i);
        p[j] *= c->scale;
        const double add = c->mask_dtype < 0 ? 0 : value(c, 4, at * c->keys + j);
        if (c->mask_dtype == AMP_BOOL ? add == 0 : c->causal && j > row) p[j] = -INFINITY;
        else if (c->mask_dtype >= 0 && c->mask_dtype != AMP_BOOL) p[j] += add;
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < c->keys; j++) sum += p[j] = top == -INFINITY ? 0 : exp(p[j] - top);
    for (int64_t j = 0; j < c->keys; j++) p[j] /= sum > 0 ? sum : 1;
    for (int64_t i = 0; i < v; i++) {
        double x = 0, size = 0;
        for (int64_t j = 0; j < c->keys; j++) {
            const double y = value(c, 2, (kind * c->keys + j) * v + i);
            x += p[j] * y, size += p[j] * fabs(y);
        }
        c->want[0][at * v + i] = x, c->unit[0][at * v + i] = size + fabs(x);
        mean += x * value(c, 3, at * v + i), noise += c->unit[0][at * v + i] * fabs(value(c, 3, at * v + i));
    }
    for (int64_t j = 0; j < c->keys; j++) {
        const int64_t key = kind * c->keys + j;
        double dp = 0, size = 0;
        for (int64_t i = 0; i < v; i++) {
            const double g = value(c, 3, at * v + i), y = value(c, 2, key * v + i);
            dp += g * y, size += fabs(g * y);
            c->want[3][key * v + i] += p[j] * g, c->unit[3][key * v + i] += p[j] * fabs(g);
        }
        const double ds = p[j] * (dp - mean) * c->scale, off = p[j] * (size + noise) * fabs(c->scale) + fabs(ds);
        for (int64_t i = 0; i < e; i++) {
            const double x = value(c, 0, at * e + i), y = value(c, 1, key * e + i);
            c->want[1][at * e + i] += ds * y, c->unit[1][at * e + i] += off * fabs(y);
            c->want[2][key * e + i] += ds * x, c->unit[2][key * e + i] += off * fabs(x);
        }
    }
}

static void compare(const Case *c, const Array *got, int which) {
    const double unit = c->dtype == AMP_FLOAT32 ? 0x1p-19 : ulp(c->dtype, 1.0) / 2;
    for (int64_t i = 0; i < got->v.numel; i++) {
        const double want = c->want[which][i], bound = unit * (fabs(want) + c->unit[which][i]) * 1.01 + 2e-6;
        CHECK(fabs(get(got, i) - want) <= bound, "result %d, element %d: %g instead of %g, %lld x %lld", which, (int)i,
              get(got, i), want, (long long)c->length, (long long)c->keys);
    }
}

static void check_case(Case c) {
    make_case(&c);
    double *p = malloc((size_t)c.keys * 8);
    for (int64_t m = 0; m < 2 * c.heads; m++)
        for (int64_t row = 0; row < c.length; row++) reference_row(&c, m, row, p);
    free(p);
    AttentionPlan plan = {c.scale, c.causal};
    Call forward = {.op = OP_attention, .nin = 4, .nout = 2, .extra = &plan};
    forward.in[0] = view(&c.q), forward.in[1] = view(&c.k), forward.in[2] = view(&c.v);
    forward.in[3] = c.mask_dtype < 0 ? NULL : view(&c.mask);
    forward.out[0] = view(&c.out), forward.out[1] = view(&c.logarithms);
    Call backward = forward;
    const View *kept[] = {&c.out.v, &c.logarithms.v};
    backward.in[4] = view(&c.g), backward.nin = 5, backward.list = kept, backward.nlist = 2, backward.nout = 3;
    backward.out[0] = view(&c.dq), backward.out[1] = view(&c.dk), backward.out[2] = view(&c.dv);
    const Array *results[] = {&c.out, &c.dq, &c.dk, &c.dv};
    for (int threads = 1; threads <= 2; threads++) {
        amp_set_num_threads(threads);
        CHECK(amp_cpu_backend.attention(&forward) == AMP_OK && tiles_are_free(), "attention");
        CHECK(amp_cpu_backend.attention_backward(&backward) == AMP_OK && tiles_are_free(), "gradients");
        for (int i = 0; i < 4; i++) compare(&c, results[i], i);
    }
    free_case(&c);
}

static uint64_t test_shapes(void) {
    static const int64_t lengths[][2] = {{1, 1}, {2, 3}, {13, 15}, {14, 16}, {15, 33}, {29, 31}, {5, 258}, {113, 7}, {16, 225}};
    static const int dtypes[] = {AMP_FLOAT32, AMP_FLOAT16, AMP_BFLOAT16}, masks[] = {-1, AMP_BOOL, AMP_FLOAT32, -2};
    int turn = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int d = 0; d < 3; d++)
            for (int m = 0; m < 4; m++, turn++) {
                static const int64_t features[] = {1, 3, 8, 17, 33}, heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {2, 1}};
                Case c = {.dtype = dtypes[d], .mask_dtype = masks[m] == -2 ? dtypes[d] : masks[m]};
                c.layout = (Layout)(turn % BROADCAST);
                c.causal = m == 0 && turn % 2;
                c.scale = turn % 5 == 4 ? -0.3 : 0.4;
                c.heads = heads[turn % 4][0], c.shared = heads[turn % 4][1];
                c.length = lengths[i][0], c.keys = lengths[i][1];
                c.features = features[turn % 5], c.values = features[turn * 3 % 5];
                check_case(c);
            }
    return 0;
}

/* Keys in several parts, blocks of queries and keys that do not end together, and the causal edge through them. */
static uint64_t test_long(void) {
    for (int d = 0; d < 2; d++)
        for (int causal = 0; causal < 2; causal++)
            check_case((Case){.dtype = d ? AMP_BFLOAT16 : AMP_FLOAT32,
                              .mask_dtype = -1,
                              .causal = causal,
                              .scale = 0.5,
                              .heads = 1,
                              .shared = 1,
                              .length = causal ? 470 : 30,
                              .keys = 905,
                              .features = 3,
                              .values = 2});
    return 0;
}

/* A query's results do not depend on the tile that it lies in: the same bits alone as among others. */
static uint64_t test_alone(void) {
    enum { LENGTH = 45, KEYS = 101, E = 6 };
    for (int dtype = 0; dtype < 2; dtype++)
        for (int causal = 0; causal < 2; causal++) {
            const int64_t q[] = {1, 1, LENGTH, E}, k[] = {1, 1, KEYS, E}, l[] = {1, 1, LENGTH};
            const int64_t *shapes[] = {q, k, k, q, q, q, k, k};
            Array x[9]; /* q, k, v, g, out, dq, dk, dv, logarithms */
            for (int i = 0; i < 8; i++) x[i] = make(dtype ? AMP_BFLOAT16 : AMP_FLOAT32, 4, shapes[i], DENSE);
            x[8] = make(AMP_FLOAT32, 3, l, DENSE);
            for (int i = 0; i < 4; i++) fill_uniform(&x[i], -2, 2);
            double want[2][LENGTH * E];
            for (int64_t row = -1; row < LENGTH;
                 row += causal ? LENGTH - 1 : 1) { /* -1: all; causal: a row alone is another problem */
                Array one[9];
                memcpy(one, x, sizeof x);
                const int moved[] = {0, 3, 4, 5, 8};
                for (int i = 0; i < 5 && row >= 0; i++) {
                    Array *a = &one[moved[i]];
                    a->shape[2] = causal ? LENGTH - 1 : 1;
                    a->v.numel = a->shape[2] * (moved[i] == 8 ? 1 : E);
                    if (!causal) a->v.data = element(&x[moved[i]], row * (moved[i] == 8 ? 1 : E));
                }
                AttentionPlan plan = {0.7, causal};
                Call forward = {.op = OP_attention, .nin = 4, .nout = 2, .extra = &plan};
                for (int i = 0; i < 3; i++) forward.in[i] = view(&one[i]);
                forward.out[0] = view(&one[4]), forward.out[1] = view(&one[8]);
                Call backward = forward;
                const View *kept[] = {&one[4].v, &one[8].v};
                backward.in[4] = view(&one[3]), backward.nin = 5, backward.list = kept, backward.nlist = 2, backward.nout = 3;
                for (int i = 0; i < 3; i++) backward.out[i] = view(&one[5 + i]);
                CHECK(amp_cpu_backend.attention(&forward) == AMP_OK, "attention");
                CHECK(amp_cpu_backend.attention_backward(&backward) == AMP_OK, "gradients");
                for (int64_t i = 0; i < one[4].v.numel; i++) {
                    const int64_t at = row < 0 || causal ? i : row * E + i;
                    for (int j = 0; j < 2; j++) {
                        const double got = get(&one[4 + j], i);
                        if (row < 0) want[j][at] = got;
                        else CHECK(got == want[j][at], "result %d of row %d", j, (int)(at / E));
                    }
                }
            }
            for (int i = 0; i < 9; i++) free(x[i].memory);
        }
    return 0;
}

static uint64_t group(int k) { return k == 0 ? test_shapes() : k == 1 ? test_long() : test_alone(); }

int main(void) { return run_levels(3, group); }
