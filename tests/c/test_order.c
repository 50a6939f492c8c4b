/* Sorting, selection, running extremes, binary search and scatters, in every number format and memory layout, against what a loop over
 * float64 values says. */
#include "kernel_support.h"

static const int formats[] = {AMP_BOOL,    AMP_UINT8,    AMP_INT8,    AMP_INT16,   AMP_INT32,       AMP_INT64,
                              AMP_FLOAT16, AMP_BFLOAT16, AMP_FLOAT32, AMP_FLOAT64, AMP_FLOAT8_E5M2, AMP_FLOAT8_E4M3FN};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Few different values, so that many are equal, and the special ones. */
static void fill_values(Array *a) {
    bool real = amp_is_floating(a->v.dtype), positive = a->v.dtype <= AMP_UINT8;
    for (int64_t i = 0; i < a->v.numel; i++) {
        double x = (double)(int64_t)(draw() % 9) - (positive ? 0 : 4);
        if (a->v.dtype == AMP_BOOL) x = (double)(draw() & 1);
        if (real && draw() % 8 == 0) x = (double)NAN;
        if (real && draw() % 8 == 0) x = -0.0;
        if (real && a->v.dtype != AMP_FLOAT8_E4M3FN && draw() % 8 == 0) x = draw() & 1 ? (double)INFINITY : -(double)INFINITY;
        set(a, i, x);
    }
}

/* a stands before b in ascending order. */
static bool less(double a, double b) { return isnan(b) ? !isnan(a) : a < b; }
static bool alike(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

/* Positions of a line of n values in stable order. */
static void order_of(const double *x, int64_t n, bool descending, int64_t *at) {
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i;
        for (; k > 0 && (descending ? less(x[at[k - 1]], x[i]) : less(x[i], x[at[k - 1]])); k--) at[k] = at[k - 1];
        at[k] = i;
    }
}

enum { LINES = 3, LONGEST = 300 };

static uint64_t check_sort(int dtype, int64_t n, Layout layout) {
    int64_t shape[2] = {LINES, n}, one[2] = {LINES, 1}, at[LONGEST];
    double x[LONGEST];
    uint64_t hash = 0;
    Array in = make(dtype, 2, shape, layout), out = make(dtype, 2, shape, draw() & 1 ? DENSE : MISALIGNED);
    Array place = make(AMP_INT64, 2, shape, draw() & 1 ? TRANSPOSED : MISALIGNED);
    Array value = make(dtype, 2, one, MISALIGNED), position = make(AMP_INT64, 2, one, DENSE);
    fill_values(&in);
    for (int descending = 0; descending < 2; descending++) {
        Call call = {
            .op = OP_sort, .nin = 1, .nout = 2, .in = {view(&in)}, .out = {view(&out), view(&place)}, .dims = 2, .nnum = 1};
        call.num[0] = (Number){.i = descending, .kind = NUMBER_INT};
        CHECK(amp_cpu_backend.sort(&call) == AMP_OK, "sort");
        for (int64_t line = 0; line < LINES; line++) {
            for (int64_t i = 0; i < n; i++) x[i] = get(&in, line * n + i);
            order_of(x, n, descending, at);
            for (int64_t i = 0; i < n; i++) {
                CHECK((int64_t)get(&place, line * n + i) == at[i] && alike(get(&out, line * n + i), x[at[i]]),
                      "%s n %lld layout %d", amp_dtype_info[dtype].name, (long long)n, layout);
                hash = hash * 31 + (uint64_t)at[i];
            }
            if (n == 0) continue;
            int64_t k = 1 + (int64_t)(draw() % (uint64_t)n);
            Call kth = {
                .op = OP_kthvalue, .nin = 1, .nout = 2, .in = {view(&in)}, .out = {view(&value), view(&position)}, .dims = 2};
            kth.nnum = 1, kth.num[0] = (Number){.i = k, .kind = NUMBER_INT};
            order_of(x, n, false, at);
            CHECK(amp_cpu_backend.sort(&kth) == AMP_OK && (int64_t)get(&position, line) == at[k - 1], "kth %lld", (long long)k);
        }
    }
    for (int64_t k = 0; k <= n; k += 1 + n / 3) {
        int64_t few[2] = {LINES, k};
        Array top = make(dtype, 2, few, SPACED), where = make(AMP_INT64, 2, few, DENSE);
        Call call = {
            .op = OP_topk, .nin = 1, .nout = 2, .in = {view(&in)}, .out = {view(&top), view(&where)}, .dims = 2, .nnum = 1};
        call.num[0] = (Number){.i = 1, .kind = NUMBER_INT};
        CHECK(amp_cpu_backend.sort(&call) == AMP_OK, "topk");
        for (int64_t line = 0; line < LINES; line++) {
            for (int64_t i = 0; i < n; i++) x[i] = get(&in, line * n + i);
            order_of(x, n, true, at);
            for (int64_t i = 0; i < k; i++)
                CHECK((int64_t)get(&where, line * k + i) == at[i] && alike(get(&top, line * k + i), x[at[i]]), "topk %lld",
                      (long long)k);
        }
        free(top.memory), free(where.memory);
    }
    free(in.memory), free(out.memory), free(place.memory), free(value.memory), free(position.memory);
    return hash;
}

static uint64_t test_sort(void) {
    static const int64_t lengths[] = {0, 1, 2, 7, 32, 33, 100, LONGEST};
    uint64_t hash = 0;
    for (int f = 0; f < FORMATS; f++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
            for (int layout = DENSE; layout < LAYOUTS; layout++)
                hash = hash * 33 + check_sort(formats[f], lengths[k], (Layout)layout);
    return hash;
}

/* median, nanmedian, mode, cummax of one line. */
static uint64_t test_statistics(void) {
    uint64_t hash = 0;
    for (int f = 0; f < FORMATS; f++) {
        for (int64_t n = 1; n < 70; n += 4) {
            int64_t one = 1, at[LONGEST], dead = 0, best = 0, mode = 0;
            double x[LONGEST];
            Array in = make(formats[f], 1, &n, n % 8 == 1 ? REVERSED : MISALIGNED), value = make(formats[f], 1, &one, MISALIGNED);
            Array place = make(AMP_INT64, 1, &one, MISALIGNED), run = make(formats[f], 1, &n, SPACED),
                  runs = make(AMP_INT64, 1, &n, SPACED);
            fill_values(&in);
            for (int64_t i = 0; i < n; i++) x[i] = get(&in, i), dead += isnan(x[i]);
            order_of(x, n, false, at);
            Call call = {.nin = 1, .nout = 2, .in = {view(&in)}, .out = {view(&value), view(&place)}, .dims = 1};
            call.op = OP_median_dim;
            CHECK(amp_cpu_backend.sort(&call) == AMP_OK, "median");
            CHECK(dead ? isnan(get(&value, 0)) && isnan(x[(int64_t)get(&place, 0)]) : (int64_t)get(&place, 0) == at[(n - 1) / 2],
                  "median");
            call.op = OP_nanmedian_dim;
            CHECK(amp_cpu_backend.sort(&call) == AMP_OK, "nanmedian");
            CHECK(dead == n ? isnan(get(&value, 0)) : (int64_t)get(&place, 0) == at[(n - dead - 1) / 2], "nanmedian");
            for (int64_t i = 0, same = 0; i < n; i++) {
                same = i && x[at[i]] == x[at[i - 1]] ? same + 1 : 1;
                if (same > best) best = same, mode = at[i];
            }
            call.op = OP_mode;
            CHECK(amp_cpu_backend.sort(&call) == AMP_OK && (int64_t)get(&place, 0) == mode && alike(get(&value, 0), x[mode]),
                  "mode");
            for (int max = 0; max < 2; max++) {
                int64_t top = 0;
                Call scan = {.nin = 1, .nout = 2, .in = {view(&in)}, .out = {view(&run), view(&runs)}, .dims = 1};
                scan.op = max ? OP_cummax : OP_cummin;
                CHECK(amp_cpu_backend.scan(&scan) == AMP_OK, "running extremes");
                for (int64_t i = 0; i < n; i++) {
                    if (isnan(x[i]) || (!isnan(x[top]) && (max ? x[i] >= x[top] : x[i] <= x[top]))) top = i;
                    CHECK((int64_t)get(&runs, i) == top && alike(get(&run, i), x[top]), "element %lld", (long long)i);
                    hash = hash * 31 + (uint64_t)top;
                }
            }
            free(in.memory), free(value.memory), free(place.memory), free(run.memory), free(runs.memory);
        }
    }
    return hash;
}

static uint64_t test_search(void) {
    for (int f = 0; f < FORMATS; f++) {
        for (int64_t n = 0; n < 20; n++) {
            int64_t m = 9, at[LONGEST];
            double x[LONGEST];
            Array line = make(formats[f], 1, &n, MISALIGNED), values = make(formats[f], 1, &m, REVERSED);
            Array places = make(AMP_INT32, 1, &m, MISALIGNED), sorter = make(AMP_INT64, 1, &n, SPACED);
            fill_values(&line), fill_values(&values);
            for (int64_t i = 0; i < n; i++) {
                if (isnan(get(&line, i))) set(&line, i, 1);
                x[i] = get(&line, i);
            }
            order_of(x, n, false, at);
            for (int64_t i = 0; i < n; i++) set(&sorter, i, (double)at[i]);
            for (int right = 0; right < 2; right++) {
                Call call = {.op = OP_searchsorted,
                             .nin = 3,
                             .nout = 1,
                             .in = {view(&line), view(&values), view(&sorter)},
                             .out = {view(&places)}};
                call.nnum = 1, call.num[0] = (Number){.i = right, .kind = NUMBER_INT};
                CHECK(amp_cpu_backend.search(&call) == AMP_OK, "search");
                for (int64_t i = 0; i < m; i++) {
                    double v = get(&values, i);
                    int64_t want = 0;
                    for (int64_t k = 0; k < n; k++) want += isnan(v) || (right ? x[k] <= v : x[k] < v);
                    CHECK((int64_t)get(&places, i) == want, "%g of %lld: %g", v, (long long)n, get(&places, i));
                }
            }
            free(line.memory), free(values.memory), free(places.memory), free(sorter.memory);
        }
    }
    return 0;
}

static uint64_t test_scatter(void) {
    for (int f = 1; f < FORMATS; f++) {
        for (int layout = DENSE; layout < BROADCAST; layout++) {
            int64_t shape[2] = {2, 5}, part[2] = {2, 4};
            Array out = make(formats[f], 2, shape, (Layout)layout), src = make(formats[f], 2, part, REVERSED),
                  index = make(AMP_INT64, 2, part, SPACED);
            for (int way = 0; way < 3; way++) {
                double want[10];
                int op = way == 0 ? OP_scatter : OP_scatter_into;
                for (int64_t i = 0; i < 10; i++) set(&out, i, want[i] = (double)(draw() % 3));
                for (int64_t i = 0; i < 8; i++) {
                    int64_t to = (int64_t)(draw() % 5);
                    double v = (double)(draw() % 3), *place = &want[i / 4 * 5 + to];
                    set(&index, i, (double)to), set(&src, i, v);
                    *place = way == 0 ? v : way == 1 ? fmax(*place, v) : *place * v;
                }
                Call call = {.op = (uint16_t)op,
                             .nin = 2,
                             .nout = 1,
                             .in = {view(&src), view(&index)},
                             .out = {view(&out)},
                             .dims = 2,
                             .nnum = 1};
                call.num[0] = (Number){.i = way == 1 ? OP_maximum : OP_mul, .kind = NUMBER_INT};
                CHECK(amp_cpu_backend.gather(&call) == AMP_OK, "scatter");
                for (int64_t i = 0; i < 10; i++)
                    CHECK(get(&out, i) == want[i], "%s way %d: %g, not %g", amp_dtype_info[formats[f]].name, way, get(&out, i),
                          want[i]);
                set(&index, 7, 5);
                CHECK(amp_cpu_backend.gather(&call) == AMP_BAD_POSITION && get(&out, 0) == want[0], "out of range");
            }
            free(out.memory), free(src.memory), free(index.memory);
        }
    }
    return 0;
}

static uint64_t group(int k) {
    switch (k) {
    case 0: return test_sort();
    case 1: return test_statistics();
    case 2: return test_search();
    default: return test_scatter();
    }
}

int main(void) { return run_levels(4, group); }
