/* The pool and resample slots against plain loops in float64, over layouts, dtypes and instruction sets. */
#include "kernel_support.h"

enum { DIMS = 5, WINDOWS = 3 };

typedef struct Planes {
    View v;
    int64_t shape[DIMS], stride[DIMS];
    char *memory;
} Planes;

static Planes planes(int dtype, const int64_t *shape, int layout) {
    Planes p = {.memory = NULL};
    static const int order[2][DIMS] = {{4, 3, 2, 1, 0}, {1, 4, 3, 2, 0}}; /* innermost first: row-major, channels last */
    int64_t item = (int64_t)amp_itemsize(dtype), n = 1, step = layout == 2 ? 3 : 1;
    for (int i = 0; i < DIMS; i++) {
        int d = order[layout == 1][i];
        p.shape[d] = shape[d];
        p.stride[d] = step;
        step *= shape[d] ? shape[d] : 1;
        n *= shape[d];
    }
    p.memory = calloc((size_t)(n * 3 + 2), (size_t)item);
    p.v = (View){.data = p.memory + (layout == 3), .numel = n, .ndim = DIMS, .dtype = (int8_t)dtype};
    return p;
}
static View *planes_view(Planes *p) {
    p->v.shape = p->shape;
    p->v.stride = p->stride;
    return &p->v;
}
static char *place(const Planes *p, int64_t i) {
    char *at = p->v.data;
    for (int d = DIMS - 1; d >= 0; d--) {
        at += i % p->shape[d] * p->stride[d] * (int64_t)amp_itemsize(p->v.dtype);
        i /= p->shape[d];
    }
    return at;
}
static double read_one(const Planes *p, int64_t i) {
    double x;
    amp_convert(p->v.dtype, place(p, i), 0, AMP_FLOAT64, (char *)&x, 0, 1);
    return x;
}
static void write_one(Planes *p, int64_t i, double x) { amp_convert(AMP_FLOAT64, (char *)&x, 0, p->v.dtype, place(p, i), 0, 1); }

/* Three dimensions of sizes in[], WINDOWS windows each that lie inside. */
typedef struct Case {
    int64_t in[3], first[3][WINDOWS], count[3][WINDOWS];
    PoolPlan plan;
} Case;

static void make_case(Case *c, PoolKind kind) {
    c->plan = (PoolPlan){.kind = kind};
    for (int d = 0; d < 3; d++) {
        int64_t step = kind == POOL_MAX ? 1 + (int64_t)(draw() % 2) : 1;
        c->in[d] = 3 + (int64_t)(draw() % 6);
        for (int o = 0; o < WINDOWS; o++) {
            c->first[d][o] = (int64_t)(draw() % (uint64_t)c->in[d]);
            int64_t most = (c->in[d] - 1 - c->first[d][o]) / step + 1;
            c->count[d][o] = 1 + (int64_t)(draw() % (uint64_t)most);
        }
        c->plan.dim[d] = (PoolDim){c->in[d], WINDOWS, step, c->first[d], c->count[d], NULL};
    }
}

static int64_t tap(const Case *c, const int64_t *o, const int64_t *k) {
    int64_t at = 0;
    for (int d = 0; d < 3; d++) at = at * c->in[d] + c->first[d][o[d]] + k[d] * c->plan.dim[d].step;
    return at;
}

#define FOR_OUTPUTS \
    for (int64_t o[3] = {0}, w = 0; w < WINDOWS * WINDOWS * WINDOWS; \
         w++, o[0] = w / (WINDOWS * WINDOWS), o[1] = w / WINDOWS % WINDOWS, o[2] = w % WINDOWS)
#define FOR_TAPS \
    for (int64_t k[3] = {0}; k[0] < c.count[0][o[0]]; k[0]++) \
        for (k[1] = 0; k[1] < c.count[1][o[1]]; k[1]++) \
            for (k[2] = 0; k[2] < c.count[2][o[2]]; k[2]++)

static uint64_t test_pool(void) {
    enum { N = 2, C = 3, OUT = WINDOWS * WINDOWS * WINDOWS };
    uint64_t hash = 1;
    for (int round = 0; round < 60; round++)
        for (int f = 0; f < 4; f++) {
            Case c;
            PoolKind kind = round % 3 == 0 ? POOL_MAX : round % 3 == 1 ? POOL_AVERAGE : POOL_AVERAGE_GRAD;
            make_case(&c, kind);
            int64_t size = c.in[0] * c.in[1] * c.in[2];
            int64_t large[DIMS] = {N, C, c.in[0], c.in[1], c.in[2]}, small[DIMS] = {N, C, WINDOWS, WINDOWS, WINDOWS};
            bool back = kind == POOL_AVERAGE_GRAD;
            Planes in = planes(floats[f], back ? small : large, (int)(draw() % 4)),
                   out = planes(floats[f], back ? large : small, (int)(draw() % 4)),
                   at = planes(AMP_INT64, small, (int)(draw() % 4));
            for (int64_t i = 0; i < in.v.numel; i++) write_one(&in, i, uniform(-1, 1));
            Call call = {.nin = 1, .nout = kind == POOL_MAX ? 2 : 1, .in = {planes_view(&in)}, .extra = &c.plan};
            call.out[0] = planes_view(&out);
            call.out[1] = planes_view(&at);
            CHECK(amp_cpu_backend.pool(&call) == AMP_OK, "pool");
            for (int64_t p = 0; p < N * C; p++) {
                double grad[512] = {0};
                FOR_OUTPUTS {
                    double sum = 0, best = -(double)INFINITY;
                    int64_t best_at = -1, taps = c.count[0][o[0]] * c.count[1][o[1]] * c.count[2][o[2]];
                    FOR_TAPS {
                        int64_t t = tap(&c, o, k);
                        if (back) {
                            grad[t] += read_one(&in, p * OUT + w) / (double)taps;
                            continue;
                        }
                        double x = read_one(&in, p * size + t);
                        sum += x;
                        if (x > best) best = x, best_at = t;
                    }
                    if (back) continue;
                    double got = read_one(&out, p * OUT + w);
                    double want = kind == POOL_MAX ? best : sum / (double)taps;
                    CHECK(fabs(got - want) <= .51 * ulp(floats[f], want) + 1e-14, "kind %d: %g, not %g", (int)kind, got, want);
                    if (kind == POOL_MAX) CHECK((int64_t)read_one(&at, p * OUT + w) == best_at, "position");
                }
                for (int64_t t = 0; back && t < size; t++) {
                    double got = read_one(&out, p * size + t);
                    CHECK(fabs(got - grad[t]) <= .51 * ulp(floats[f], grad[t]) + 1e-14, "gradient %g, not %g", got, grad[t]);
                }
            }
            for (int64_t i = 0; i < out.v.numel; i++) hash = hash * 6364136223846793005u + (uint64_t)(read_one(&out, i) * 1e9);
            free(in.memory), free(out.memory), free(at.memory);
        }
    return hash;
}

/* Added and written at positions; positions outside are refused. */
static void test_positions(void) {
    int64_t small[DIMS] = {1, 2, 1, 1, 3}, large[DIMS] = {1, 2, 1, 2, 2};
    static const int64_t where[6] = {3, 0, 3, 1, 1, 1};
    static const double add[8] = {2, 0, 0, 4, 0, 15, 0, 0}, put[8] = {2, 0, 0, 3, 0, 6, 0, 0};
    for (int kind = POOL_ADD_AT; kind <= POOL_PUT_AT; kind++) {
        PoolPlan plan = {.kind = (PoolKind)kind};
        Planes x = planes(AMP_FLOAT16, small, 2), at = planes(AMP_INT64, small, 1), out = planes(AMP_FLOAT16, large, 1);
        for (int64_t i = 0; i < 6; i++) write_one(&x, i, (double)(i + 1)), write_one(&at, i, (double)where[i]);
        Call call = {.nin = 2, .nout = 1, .in = {planes_view(&x), planes_view(&at)}, .extra = &plan};
        call.out[0] = planes_view(&out);
        CHECK(amp_cpu_backend.pool(&call) == AMP_OK, "at");
        for (int64_t i = 0; i < 8; i++) {
            double want = kind == POOL_ADD_AT ? add[i] : put[i];
            CHECK(read_one(&out, i) == want, "element %d: %g, not %g", (int)i, read_one(&out, i), want);
        }
        for (int bad = 0; bad < 2; bad++) {
            write_one(&at, 5, bad ? 4 : -1);
            CHECK(amp_cpu_backend.pool(&call) == AMP_BAD_POSITION, "outside");
        }
        free(x.memory), free(at.memory), free(out.memory);
    }
}

/* A random map and its transpose: <map x, y> = <x, transpose y>; a map of one tap without weights copies any dtype. */
static uint64_t test_resample(void) {
    enum { MOST = 8 * 3 };
    uint64_t hash = 1;
    for (int round = 0; round < 60; round++) {
        int64_t index[3][MOST], in[3], out[3], taps = round % 3 == 0 ? 1 : 1 + (int64_t)(draw() % 3);
        double weight[3][MOST], left = 0, right = 0;
        ResamplePlan plan = {.transposed = false};
        for (int d = 0; d < 3; d++) {
            in[d] = 1 + (int64_t)(draw() % 6), out[d] = 1 + (int64_t)(draw() % 8);
            for (int64_t k = 0; k < out[d] * taps; k++)
                index[d][k] = (int64_t)(draw() % (uint64_t)in[d]), weight[d][k] = draw() % 5 ? uniform(-1, 1) : 0;
            plan.dim[d] = (ResampleDim){in[d], out[d], taps, index[d], round % 3 == 0 ? NULL : weight[d]};
        }
        int64_t from[DIMS] = {2, 3, in[0], in[1], in[2]}, to[DIMS] = {2, 3, out[0], out[1], out[2]};
        Planes x = planes(AMP_FLOAT64, from, (int)(draw() % 4)), y = planes(AMP_FLOAT64, to, (int)(draw() % 4)),
               g = planes(AMP_FLOAT64, to, (int)(draw() % 4)), back = planes(AMP_FLOAT64, from, (int)(draw() % 4));
        for (int64_t i = 0; i < x.v.numel; i++) write_one(&x, i, uniform(-1, 1));
        for (int64_t i = 0; i < g.v.numel; i++) write_one(&g, i, uniform(-1, 1));
        Call call = {.nin = 1, .nout = 1, .in = {planes_view(&x)}, .extra = &plan};
        call.out[0] = planes_view(&y);
        CHECK(amp_cpu_backend.resample(&call) == AMP_OK, "map");
        plan.transposed = true;
        call.in[0] = planes_view(&g);
        call.out[0] = planes_view(&back);
        CHECK(amp_cpu_backend.resample(&call) == AMP_OK, "transposed map");
        for (int64_t i = 0; i < y.v.numel; i++) left += read_one(&y, i) * read_one(&g, i);
        for (int64_t i = 0; i < x.v.numel; i++) right += read_one(&x, i) * read_one(&back, i);
        CHECK(fabs(left - right) < 1e-10, "%g, not %g", left, right);
        if (round % 3 == 0) {
            plan.transposed = false;
            for (int t = 0; t < AMP_DTYPE_COUNT; t++) {
                Planes a = planes(t, from, (int)(draw() % 4)), b = planes(t, to, (int)(draw() % 4));
                size_t item = amp_itemsize(t);
                for (int64_t i = 0; i < a.v.numel; i++) memset(place(&a, i), (int)(i % 251), item);
                call.in[0] = planes_view(&a);
                call.out[0] = planes_view(&b);
                CHECK(amp_cpu_backend.resample(&call) == AMP_OK, "copy");
                for (int64_t i = 0; i < b.v.numel; i++) {
                    int64_t ox = i % out[2], oy = i / out[2] % out[1], oz = i / out[2] / out[1] % out[0];
                    int64_t p = i / (out[0] * out[1] * out[2]);
                    int64_t at = ((p * in[0] + index[0][oz]) * in[1] + index[1][oy]) * in[2] + index[2][ox];
                    CHECK(!memcmp(place(&b, i), place(&a, at), item), "dtype %d", t);
                }
                free(a.memory), free(b.memory);
            }
        }
        hash = hash * 6364136223846793005u + (uint64_t)(left * 1e9);
        free(x.memory), free(y.memory), free(g.memory), free(back.memory);
    }
    return hash;
}

static uint64_t group(int k) {
    if (k == 0) return test_pool();
    if (k == 1) return test_resample();
    test_positions();
    return 0;
}

int main(void) { return run_levels(3, group); }
