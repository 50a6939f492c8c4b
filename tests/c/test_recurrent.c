/* The recurrent slot against scalar references in float64, and its gradients against central differences of them, for all cells, formats
 * and pitches, at every instruction-set level that the machine has. */
#include "kernel_support.h"

enum { MOST = 4 };
static const int gates_of[RECURRENT_KINDS] = {4, 3, 1, 1};

static double logistic(double x) { return 1 / (1 + exp(-x)); }

/* One feature: a, b the gates' parts, s the state before; h[0] hidden state, h[1] cell. */
static void reference(int kind, const double *a, const double *b, double s, double *h) {
    h[1] = 0;
    if (kind == RECURRENT_LSTM) {
        h[1] = logistic(a[1] + b[1]) * s + logistic(a[0] + b[0]) * tanh(a[2] + b[2]);
        h[0] = logistic(a[3] + b[3]) * tanh(h[1]);
    } else if (kind == RECURRENT_GRU) {
        double n = tanh(a[2] + logistic(a[0] + b[0]) * b[2]), z = logistic(a[1] + b[1]);
        h[0] = (1 - z) * n + z * s;
    } else {
        h[0] = kind == RECURRENT_TANH ? tanh(a[0] + b[0]) : fmax(a[0] + b[0], 0);
    }
}

/* A matrix of `rows` rows, dense along the row, with `gap` unused elements between rows. */
static Array matrix(int dtype, int64_t rows, int64_t columns, int64_t gap, bool misaligned) {
    Array a = make(dtype, 2, (int64_t[]){rows, columns + gap}, misaligned ? MISALIGNED : DENSE);
    a.shape[1] = columns;
    a.v.numel = rows * columns;
    fill_uniform(&a, -1.5, 1.5);
    return a;
}

typedef struct Case {
    int kind, dtype, state;
    int64_t rows, hidden, gap;
    bool misaligned, bias, keeps_work;
} Case;

static void mix(uint64_t *hash, double x) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    *hash = *hash * 6364136223846793005u + bits;
}

static void run(const Case *c, uint64_t *hash) {
    const int gates = gates_of[c->kind], kind = c->kind;
    const bool lstm = kind == RECURRENT_LSTM, gru = kind == RECURRENT_GRU;
    const int64_t n = c->hidden, b = c->rows;
    Array x = matrix(c->dtype, b, gates * n, c->gap, c->misaligned), g = matrix(c->dtype, b, gates * n, 0, false);
    Array bias = make(c->dtype, 1, (int64_t[]){gates * n}, DENSE), s = matrix(c->state, b, n, c->gap, c->misaligned);
    Array h = matrix(c->state, b, n, c->gap, false), cell = matrix(c->state, b, n, 0, c->misaligned);
    Array work = matrix(c->state, b, 4 * n, 0, false);
    fill_uniform(&bias, -1, 1);
    Number what[2] = {{.i = kind, .kind = NUMBER_INT}, {.i = 0, .kind = NUMBER_INT}};
    View *last = c->keeps_work ? view(&work) : NULL;
    Call call = {.nin = 4, .nout = 3, .nnum = 2};
    memcpy(call.num, what, sizeof what);
    call.in[0] = view(&x), call.in[1] = view(&g), call.in[2] = c->bias ? view(&bias) : NULL;
    call.in[3] = lstm || gru ? view(&s) : NULL;
    call.out[0] = view(&h), call.out[1] = lstm ? view(&cell) : gru ? last : NULL, call.out[2] = lstm ? last : NULL;
    CHECK(amp_cpu_backend.recurrent(&call) == AMP_OK, "forward");

    Array gh = matrix(c->state, b, n, 0, false), gc = matrix(c->state, b, n, 0, false),
          gx = matrix(c->state, b, gates * n, c->gap, false);
    Array second = matrix(c->state, b, gru ? gates * n : n, 0, c->misaligned), direct = matrix(c->state, b, n, 0, false);
    if (c->keeps_work) {
        Call back = {.nin = 4, .nout = 3, .nnum = 2};
        memcpy(back.num, what, sizeof what);
        back.num[1].i = 1;
        back.in[0] = view(&gh), back.in[1] = lstm || gru ? view(&work) : view(&h);
        back.in[2] = lstm || gru ? view(&s) : NULL, back.in[3] = lstm ? view(&gc) : NULL;
        back.out[0] = view(&gx), back.out[1] = lstm || gru ? view(&second) : NULL, back.out[2] = gru ? view(&direct) : NULL;
        CHECK(amp_cpu_backend.recurrent(&back) == AMP_OK, "backward");
    }
    const double slack = c->state == AMP_FLOAT64 ? 4 : .501,
                 loose = c->state == AMP_FLOAT64 ? 1e-8 : 8 * ulp(c->state, 1.0) + 1e-7;
    for (int64_t i = 0; i < b * n; i++) {
        int64_t row = i / n, k = i % n;
        double a[MOST], d[MOST], want[2], plus[2], minus[2], state = get(&s, i);
        for (int q = 0; q < gates; q++) {
            a[q] = get(&x, row * gates * n + q * n + k);
            d[q] = get(&g, row * gates * n + q * n + k) + (c->bias ? get(&bias, q * n + k) : 0);
        }
        reference(kind, a, d, state, want);
        CHECK(near_value(c->state, get(&h, i), want[0], slack) || fabs(get(&h, i) - want[0]) < 1e-11,
              "kind %d %s: %.17g, not %.17g", kind, amp_dtype_info[c->state].name, get(&h, i), want[0]);
        if (lstm) CHECK(near_value(c->state, get(&cell, i), want[1], slack) || fabs(get(&cell, i) - want[1]) < 1e-11, "cell");
        mix(hash, get(&h, i));
        bool kink = kind == RECURRENT_RELU && fabs(a[0] + d[0]) < 1e-3;
        if (!c->keeps_work || kink) continue;
        for (int q = 0; q <= gates; q++) { /* the last: the state before */
            double e = 1e-5, got, from_h = get(&gh, i), from_c = lstm ? get(&gc, i) : 0, *moved = q < gates ? &a[q] : &state,
                   kept = *moved;
            *moved = kept + e, reference(kind, a, d, state, plus);
            *moved = kept - e, reference(kind, a, d, state, minus);
            *moved = kept;
            double slope = (from_h * (plus[0] - minus[0]) + from_c * (plus[1] - minus[1])) / (2 * e);
            if (q == gates && !lstm && !gru) continue;
            got = q < gates ? get(&gx, row * gates * n + q * n + k) : lstm ? get(&second, i) : get(&direct, i);
            CHECK(fabs(got - slope) <= loose * 4, "kind %d gate %d %s: %.17g, not %.17g", kind, q, amp_dtype_info[c->state].name,
                  got, slope);
            mix(hash, got);
        }
        for (int q = 0; gru && q < gates; q++) {
            double e = 1e-5, kept = d[q], got = get(&second, row * gates * n + q * n + k);
            d[q] = kept + e, reference(kind, a, d, state, plus);
            d[q] = kept - e, reference(kind, a, d, state, minus);
            d[q] = kept;
            double slope = get(&gh, i) * (plus[0] - minus[0]) / (2 * e);
            CHECK(fabs(got - slope) <= loose * 4, "hidden gate %d: %.17g, not %.17g", q, got, slope);
        }
    }
    Array *all[] = {&x, &g, &bias, &s, &h, &cell, &work, &gh, &gc, &gx, &second, &direct};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->memory);
}

static uint64_t group(int kind) {
    uint64_t hash = 1;
    static const int64_t sizes[][2] = {{1, 1}, {3, 7}, {2, 128}, {5, 131}, {0, 4}, {2, 0}};
    for (size_t f = 0; f < 4; f++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int form = 0; form < 8; form++) {
                bool wide_state = form & 4 && amp_is_16bit(floats[f]);
                Case c = {kind,        floats[f],   wide_state ? AMP_FLOAT32 : floats[f],
                          sizes[i][0], sizes[i][1], form & 1 ? 5 : 0,
                          form & 2,    !(form & 1), form != 3};
                run(&c, &hash);
            }
    return hash;
}

/* States are updated in place. */
static void test_in_place(void) {
    Array x = matrix(AMP_BFLOAT16, 3, 40, 0, false), g = matrix(AMP_BFLOAT16, 3, 40, 0, false),
          c = matrix(AMP_FLOAT32, 3, 10, 2, false);
    Array h = matrix(AMP_BFLOAT16, 3, 10, 0, false), h2 = matrix(AMP_BFLOAT16, 3, 10, 0, false),
          c2 = matrix(AMP_FLOAT32, 3, 10, 0, false);
    Call call = {.nin = 4, .nout = 3, .nnum = 2, .num = {{.i = RECURRENT_LSTM}, {.i = 0}}};
    call.in[0] = view(&x), call.in[1] = view(&g), call.in[3] = view(&c);
    call.out[0] = view(&h2), call.out[1] = view(&c2), call.out[2] = NULL;
    CHECK(amp_cpu_backend.recurrent(&call) == AMP_OK, "apart");
    call.out[0] = view(&h), call.out[1] = view(&c);
    CHECK(amp_cpu_backend.recurrent(&call) == AMP_OK, "in place");
    for (int64_t i = 0; i < 30; i++) CHECK(get(&h, i) == get(&h2, i) && get(&c, i) == get(&c2, i), "element %d", (int)i);
    Array *all[] = {&x, &g, &c, &h, &h2, &c2};
    for (size_t i = 0; i < 6; i++) free(all[i]->memory);
}

int main(void) {
    int failed = run_levels(RECURRENT_KINDS, group);
    test_in_place();
    return failed || failures;
}
