/* Normalisation and table look-ups against scalar references in float64, at every instruction-set level that the machine has. */
#include "kernel_support.h"

/* A tensor of one axis, or none. */
static View *flat(Array *a, int64_t n) {
    a->shape[0] = n;
    a->stride[0] = 1;
    a->v.ndim = 1;
    return view(a);
}

static bool close_to(int dtype, double got, double want, double size) {
    double step = dtype == AMP_FLOAT64 ? 1e-12 : dtype == AMP_FLOAT32 ? 3e-6 : 1.1 * ulp(dtype, 1.0);
    return fabs(got - want) <= step * size;
}

static uint64_t mix(uint64_t hash, const Array *a) {
    for (int64_t i = 0; i < a->v.numel; i++) {
        double v = get(a, i);
        uint64_t bits;
        memcpy(&bits, &v, 8);
        hash = hash * 6364136223846793005u + bits;
    }
    return hash;
}

typedef struct Case {
    NormPlan plan;
    int dtype, parameter_dtype;
    Layout layout;
    bool affine;
    double offset, step, slope, outlier; /* x = offset + step u, its first segment + outlier; g = slope u; 0: u itself */
    Array x, y, g, dx, w, b, dw, db, stats, running[2];
    const View *list[2];
} Case;

/* The row and the weight of element i. */
static int64_t row_of(const NormPlan *p, int64_t i) {
    int64_t segment = i / p->length;
    return p->by_channels ? segment % p->channels : segment / p->channels;
}
static int64_t weight_of(const NormPlan *p, int64_t i) { return i / p->length % (p->channels * p->groups); }

static void make_case(Case *c) {
    const NormPlan *p = &c->plan;
    int64_t all = p->channels * p->groups, n = p->samples * all * p->length, rows = p->by_channels ? all : p->samples * p->groups;
    int64_t dense[1] = {n}, vector[1] = {all}, stats[2] = {3, rows};
    c->x = make(c->dtype, 1, dense, c->layout), c->y = make(c->dtype, 1, dense, c->layout);
    c->g = make(c->dtype, 1, dense, DENSE), c->dx = make(c->dtype, 1, dense, c->layout);
    c->w = make(c->parameter_dtype, 1, vector, c->layout), c->b = make(c->parameter_dtype, 1, vector, DENSE);
    c->dw = make(c->parameter_dtype, 1, vector, DENSE), c->db = make(c->parameter_dtype, 1, vector, c->layout);
    c->stats = make(AMP_FLOAT64, 2, stats, DENSE);
    for (int k = 0; k < 2; k++) c->running[k] = make(c->parameter_dtype, 1, vector, k ? SPACED : DENSE);
    fill_uniform(&c->x, 2, 5), fill_uniform(&c->g, -1, 1), fill_uniform(&c->w, 0.5, 2), fill_uniform(&c->b, -1, 1);
    for (int64_t i = 0; i < n && c->step != 0; i++) {
        set(&c->x, i, c->offset + c->step * get(&c->x, i) + (i < p->length ? c->outlier : 0));
        set(&c->g, i, c->slope * get(&c->g, i));
    }
    if (c->step == 0) c->slope = 1;
    fill_uniform(&c->running[0], -1, 1), fill_uniform(&c->running[1], 0.5, 1);
    for (int k = 0; k < 2; k++) c->list[k] = view(&c->running[k]);
}

static void free_case(Case *c) {
    Array *all[] = {&c->x, &c->y, &c->g, &c->dx, &c->w, &c->b, &c->dw, &c->db, &c->stats, &c->running[0], &c->running[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->memory);
}

typedef struct Row {
    double n, sum, mean, var, rstd, gw, gwx;
} Row;

/* Mean and variance of every row, then the sums that the gradient needs. */
static Row *reference(Case *c, const double *running) {
    const NormPlan *p = &c->plan;
    int64_t rows = c->stats.shape[1];
    Row *r = calloc((size_t)rows, sizeof *r);
    for (int64_t i = 0; i < c->x.v.numel; i++) r[row_of(p, i)].n++, r[row_of(p, i)].sum += get(&c->x, i);
    for (int64_t k = 0; k < rows; k++) r[k].mean = p->centered ? r[k].sum / r[k].n : 0;
    for (int64_t i = 0; i < c->x.v.numel; i++) {
        Row *row = &r[row_of(p, i)];
        row->var += (get(&c->x, i) - row->mean) * (get(&c->x, i) - row->mean) / row->n;
    }
    for (int64_t k = 0; k < rows; k++) {
        if (p->by_channels && !p->training) r[k].mean = running[k], r[k].var = running[rows + k];
        r[k].rstd = 1 / sqrt(r[k].var + p->eps);
    }
    for (int64_t i = 0; i < c->x.v.numel; i++) {
        Row *row = &r[row_of(p, i)];
        double w = c->affine ? get(&c->w, weight_of(p, i)) : 1, xhat = (get(&c->x, i) - row->mean) * row->rstd;
        row->gw += get(&c->g, i) * w / row->n, row->gwx += get(&c->g, i) * w * xhat / row->n;
    }
    return r;
}

static void check_case(Case *c, const Row *r, const double *running) {
    const NormPlan *p = &c->plan;
    int64_t all = p->channels * p->groups;
    double *dw = calloc((size_t)all, sizeof *dw), *db = calloc((size_t)all, sizeof *db);
    bool fixed = p->by_channels && !p->training;
    for (int64_t i = 0; i < c->x.v.numel; i++) {
        const Row *row = &r[row_of(p, i)];
        int64_t k = weight_of(p, i);
        double w = c->affine ? get(&c->w, k) : 1, b = c->affine ? get(&c->b, k) : 0, g = get(&c->g, i);
        double xhat = (get(&c->x, i) - row->mean) * row->rstd, want = xhat * w + b;
        double want_dx = row->rstd * (fixed ? g * w : g * w - (p->centered ? row->gw : 0) - xhat * row->gwx);
        CHECK(close_to(c->dtype, get(&c->y, i), want, 16), "y %.17g, not %.17g", get(&c->y, i), want);
        CHECK(close_to(c->dtype, get(&c->dx, i), want_dx, 16 * row->rstd * c->slope), "dx %.17g, not %.17g", get(&c->dx, i),
              want_dx);
        dw[k] += g * xhat, db[k] += g;
    }
    for (int64_t k = 0; k < all; k++) {
        double size = (4 + (double)(c->x.v.numel / all)) * c->slope;
        CHECK(close_to(c->parameter_dtype, get(&c->dw, k), dw[k], size), "dw %.17g, not %.17g", get(&c->dw, k), dw[k]);
        CHECK(close_to(c->parameter_dtype, get(&c->db, k), db[k], size), "db %.17g, not %.17g", get(&c->db, k), db[k]);
        for (int s = 0; s < 2 && p->by_channels; s++) {
            double now = s ? r[k].var * r[k].n / (r[k].n - 1) : r[k].mean, old = running[s * all + k];
            double want = p->training ? (1 - p->momentum) * old + p->momentum * now : old;
            CHECK(close_to(c->parameter_dtype, get(&c->running[s], k), want, 8), "running %.17g, not %.17g",
                  get(&c->running[s], k), want);
        }
    }
    free(dw), free(db);
}

static uint64_t run_case(Case *c, uint64_t hash) {
    make_case(c);
    int64_t n = c->x.v.numel, all = c->w.v.numel;
    double *running = calloc((size_t)(2 * all), sizeof *running);
    for (int64_t k = 0; k < 2 * all; k++) running[k] = get(&c->running[k / all], k % all);
    Call call = {.nin = 3, .nout = 2, .extra = &c->plan, .in = {flat(&c->x, n)}, .out = {flat(&c->y, n), view(&c->stats)}};
    Call grad = {.nin = 4,
                 .nout = 3,
                 .extra = &c->plan,
                 .in = {flat(&c->g, n), flat(&c->x, n), view(&c->stats)},
                 .out = {flat(&c->dx, n), view(&c->dw), view(&c->db)}};
    if (c->affine) call.in[1] = view(&c->w), call.in[2] = view(&c->b), grad.in[3] = view(&c->w);
    if (c->plan.by_channels) call.list = c->list, call.nlist = 2;
    CHECK(amp_cpu_backend.normalize(&call) == AMP_OK && amp_cpu_backend.normalize_grad(&grad) == AMP_OK, "slots");
    Row *r = reference(c, running);
    check_case(c, r, running);
    hash = mix(mix(mix(hash, &c->y), &c->dx), &c->dw);
    grad.out[0] = NULL, grad.out[1] = NULL;
    CHECK(amp_cpu_backend.normalize_grad(&grad) == AMP_OK, "one gradient alone");
    free(r), free(running);
    free_case(c);
    return hash;
}

static const NormPlan plans[] = {
    {.samples = 5, .groups = 1, .channels = 7, .length = 1, .eps = 1e-5, .centered = true},
    {.samples = 40, .groups = 1, .channels = 33, .length = 1, .eps = 1e-5, .centered = true},
    {.samples = 2, .groups = 1, .channels = 2100, .length = 1, .eps = 1e-2},
    {.samples = 2, .groups = 1, .channels = 16400, .length = 1, .eps = 1e-5, .centered = true},
    {.samples = 41,
     .groups = 1,
     .channels = 75,
     .length = 1,
     .eps = 1e-5,
     .momentum = 0.1,
     .by_channels = true,
     .centered = true,
     .training = true},
    {.samples = 7,
     .groups = 1,
     .channels = 70,
     .length = 4,
     .eps = 1e-5,
     .momentum = 0.1,
     .by_channels = true,
     .centered = true,
     .training = true},
    {.samples = 5, .groups = 1, .channels = 9, .length = 16, .eps = 1e-5, .by_channels = true, .centered = true},
    {.samples = 5,
     .groups = 1,
     .channels = 3,
     .length = 17,
     .eps = 1e-5,
     .momentum = 0.1,
     .by_channels = true,
     .centered = true,
     .training = true},
    {.samples = 700, .groups = 1, .channels = 5, .length = 1, .eps = 1e-5, .centered = true},
    {.samples = 350, .groups = 2, .channels = 3, .length = 1, .eps = 1e-5, .centered = true},
    {.samples = 3, .groups = 2, .channels = 3, .length = 5, .eps = 1e-5, .centered = true},
    {.samples = 2, .groups = 3, .channels = 2, .length = 1100, .eps = 1e-5, .centered = true},
    {.samples = 9, .groups = 2, .channels = 4, .length = 1, .eps = 1e-5, .centered = true},
    {.samples = 6,
     .groups = 1,
     .channels = 300,
     .length = 1,
     .eps = 1e-5,
     .momentum = 0.1,
     .by_channels = true,
     .centered = true,
     .training = true},
    {.samples = 6,
     .groups = 1,
     .channels = 130,
     .length = 1,
     .eps = 1e-5,
     .momentum = 0.1,
     .by_channels = true,
     .centered = true},
    {.samples = 3,
     .groups = 1,
     .channels = 4,
     .length = 9,
     .eps = 1e-5,
     .momentum = 0.3,
     .by_channels = true,
     .centered = true,
     .training = true},
    {.samples = 2,
     .groups = 1,
     .channels = 3,
     .length = 1050,
     .eps = 1e-5,
     .momentum = 0.3,
     .by_channels = true,
     .centered = true},
};

static uint64_t test_norm(void) {
    uint64_t hash = 1;
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++)
        for (int f = 0; f < 4; f++)
            for (int how = 0; how < 4; how++) {
                bool mixed = how == 3 && amp_itemsize(floats[f]) == 2;
                Case c = {.plan = plans[k],
                          .dtype = floats[f],
                          .parameter_dtype = mixed ? AMP_FLOAT32 : floats[f],
                          .layout = how & 1 ? MISALIGNED : DENSE,
                          .affine = how > 0};
                hash = run_case(&c, hash);
            }
    return hash;
}

/* Where float32 sums leave their range or cancel: values far from zero, squares and products beyond 2^127 and below 2^-126, a first
 * sample that says nothing about the others. */
static uint64_t test_ranges(void) {
    static const NormPlan layer = {.samples = 9, .groups = 1, .channels = 300, .length = 1, .centered = true};
    static const NormPlan group = {.samples = 2, .groups = 2, .channels = 3, .length = 70, .centered = true};
    static const NormPlan batch = {.samples = 2000,
                                   .groups = 1,
                                   .channels = 2,
                                   .length = 3,
                                   .by_channels = true,
                                   .centered = true,
                                   .training = true,
                                   .momentum = 0.1};
    static const double how[][4] = {{1e6, 1, 1, 0}, {0, 1e25, 0, 0}, {0, 1e-25, 1e-25, 0}, {0, 1e-3, 1, 10007}};
    uint64_t hash = 1;
    for (int k = 0; k < 4; k++)
        for (int which = 0; which < 3; which++) {
            Case c = {.plan = which == 0   ? layer
                              : which == 1 ? group
                                           : batch,
                      .dtype = AMP_FLOAT32,
                      .parameter_dtype = AMP_FLOAT32,
                      .affine = which != 2,
                      .offset = how[k][0],
                      .step = how[k][1],
                      .slope = how[k][2],
                      .outlier = how[k][3]};
            if (which == 2) c.plan.momentum = 0; /* the running variance would leave float32 */
            hash = run_case(&c, hash);
        }
    return hash;
}

/* Neither samples nor elements: the sums are zero and nothing else is touched. */
static void test_nothing(void) {
    NormPlan plan = {.samples = 0, .groups = 1, .channels = 3, .length = 1, .eps = 1e-5, .centered = true};
    int64_t none[1] = {0}, three[1] = {3}, rows[2] = {2, 0};
    Array x = make(AMP_FLOAT32, 1, none, DENSE), w = make(AMP_FLOAT32, 1, three, DENSE),
          stats = make(AMP_FLOAT64, 2, rows, DENSE);
    fill_uniform(&w, 1, 2);
    Call call = {.nin = 3, .nout = 2, .extra = &plan, .in = {view(&x)}, .out = {view(&x), view(&stats)}};
    Call grad = {
        .nin = 4, .nout = 3, .extra = &plan, .in = {view(&x), view(&x), view(&stats)}, .out = {view(&x), view(&w), NULL}};
    CHECK(amp_cpu_backend.normalize(&call) == AMP_OK && amp_cpu_backend.normalize_grad(&grad) == AMP_OK, "slots");
    CHECK(get(&w, 0) == 0 && get(&w, 2) == 0, "gradient of no samples");
    plan = (NormPlan){.samples = 2, .groups = 1, .channels = 3, .length = 0, .eps = 1e-5, .by_channels = true, .training = true};
    rows[1] = 3;
    Array more = make(AMP_FLOAT64, 2, rows, DENSE);
    fill_uniform(&w, 1, 2);
    call.out[1] = view(&more), grad.in[2] = view(&more);
    CHECK(amp_cpu_backend.normalize(&call) == AMP_OK && amp_cpu_backend.normalize_grad(&grad) == AMP_OK, "no elements");
    CHECK(get(&w, 0) == 0 && get(&w, 2) == 0, "gradient of no elements");
    free(more.memory);
    free(x.memory), free(w.memory), free(stats.memory);
}

static uint64_t test_embedding(void) {
    uint64_t hash = 1;
    static const int64_t widths[] = {1, 7, 1030};
    for (int f = 0; f < 4; f++)
        for (int w = 0; w < 3; w++)
            for (int how = 0; how < 4; how++) {
                int64_t table[2] = {6, widths[w]}, rows[2] = {13, widths[w]}, count[1] = {13}, times[6] = {0}, width = widths[w];
                Array t = make(floats[f], 2, table, how & 1 ? MISALIGNED : DENSE), y = make(floats[f], 2, rows, DENSE),
                      i = make(AMP_INT64, 1, count, how & 1 ? MISALIGNED : DENSE), d = make(floats[f], 2, table, DENSE);
                fill_uniform(&t, -1, 1);
                for (int64_t k = 0; k < 13; k++) set(&i, k, (double)(draw() % 5)), times[(int)get(&i, k)]++;
                Call call = {.op = OP_embedding, .nin = 2, .nout = 1, .in = {view(&t), view(&i)}, .out = {view(&y)}};
                Call grad = {
                    .op = OP_embedding_grad, .nin = 2, .nout = 1, .in = {view(&y), view(&i)}, .out = {view(&d)}, .nnum = 2};
                grad.num[0] = (Number){.i = how > 1 ? 2 : -1}, grad.num[1] = (Number){.i = how == 3};
                CHECK(amp_cpu_backend.embedding(&call) == AMP_OK && amp_cpu_backend.embedding(&grad) == AMP_OK, "slots");
                for (int64_t k = 0; k < 13 * width; k++)
                    CHECK(get(&y, k) == get(&t, (int64_t)get(&i, k / width) * width + k % width), "row of element %d", (int)k);
                for (int64_t k = 0; k < 6 * width; k++) {
                    int64_t row = k / width, n = row == grad.num[0].i ? 0 : how == 3 ? times[row] > 0 : times[row];
                    CHECK(near_value(floats[f], get(&d, k), get(&t, k) * (double)n, 1.1), "sum of row %d", (int)row);
                }
                hash = mix(hash, &d);
                set(&i, 12, how & 1 ? -1 : 6);
                CHECK(amp_cpu_backend.embedding(&call) == AMP_BAD_INDEX && amp_cpu_backend.embedding(&grad) == AMP_BAD_INDEX,
                      "index");
                free(t.memory), free(y.memory), free(i.memory), free(d.memory);
            }
    return hash;
}

static uint64_t group(int k) {
    if (k == 0) return test_norm();
    if (k == 1) return test_embedding();
    test_nothing();
    return test_ranges();
}

int main(void) { return run_levels(3, group); }
