/* Cross entropy of class numbers against a scalar reference in float64, and the exponential under it, at every instruction-set level. */
#include "kernel_support.h"

#include "../../csrc/core/numeric_math.h"
#include "../../csrc/cpu/cast.h"
#include "../../csrc/cpu/softmax.h"

static float separate(float x) { return amp_exp_f32_times_2p24(x); }
static float fused(float x) { return amp_exp_f32_times_2p24_fused(x); }

/* The bound that numeric_math.h states, over every order of magnitude, and what must be exact. */
static void test_exponential(float (*function)(float)) {
    double worst = 0;
    for (int i = 0; i < 400000; i++) {
        float x = (float)uniform(-103.9, 71);
        double want = exp((double)x) * 0x1p24, error = fabs((double)function(x) - want) / want;
        worst = error > worst ? error : worst;
    }
    CHECK(worst < 1.5 * 0x1p-24, "relative error %g 2^-24", worst * 0x1p24);
    CHECK(function(0.0f) == 0x1p24f && function(-104.1f) == 0.0f, "ends");
    CHECK(function(-INFINITY) == 0.0f && isnan(function(NAN)), "not finite");
    for (uint32_t payload = 1; payload < 0x200; payload++)
        CHECK(isnan(function(amp_bits_f32(0xffc00000u + payload))), "NaN %x", payload);
}

typedef struct Case {
    int dtype, dim;
    int64_t shape[3];
    Layout layout;
    bool weighted;
    double smoothing;
} Case;

static uint64_t mix(uint64_t hash, double v) {
    uint64_t bits;
    memcpy(&bits, &v, 8);
    return hash * 6364136223846793005u + bits;
}

/* Row r, class c of a (B, C, R) tensor with the classes in the middle. */
static int64_t place(const Case *k, int64_t row, int64_t c) {
    return (row / k->shape[2] * k->shape[1] + c) * k->shape[2] + row % k->shape[2];
}

static uint64_t run_case(const Case *k, uint64_t hash) {
    int64_t n = k->shape[1], rows = k->shape[0] * k->shape[2], pair[2] = {2, rows};
    Array x = make(k->dtype, 3, k->shape, k->layout), dx = make(k->dtype, 3, k->shape, k->layout);
    Array t = make(AMP_INT64, 1, &rows, DENSE), w = make(AMP_FLOAT64, 1, &n, DENSE), g = make(AMP_FLOAT64, 1, &rows, DENSE);
    Array loss = make(AMP_FLOAT64, 1, &rows, DENSE), stats = make(AMP_FLOAT64, 2, pair, DENSE);
    fill_uniform(&x, -9, 9), fill_uniform(&w, 0.1, 2), fill_uniform(&g, -2, 2);
    for (int64_t r = 0; r < rows; r++) set(&t, r, r % 4 == 3 ? -7 : (double)(draw() % (uint64_t)n));
    Call call = {.nin = 3,
                 .nout = 2,
                 .nnum = 2,
                 .in = {view(&x), view(&t), k->weighted ? view(&w) : NULL},
                 .out = {view(&loss), view(&stats)},
                 .num = {{.i = -7, .kind = NUMBER_INT}, {.f = k->smoothing, .kind = NUMBER_FLOAT}},
                 .dims = 2};
    CHECK(amp_cpu_backend.cross_entropy(&call) == AMP_OK, "forward");
    call.nin = 5, call.nout = 1, call.in[3] = view(&stats), call.in[4] = view(&g), call.out[0] = view(&dx);
    CHECK(amp_cpu_backend.cross_entropy_grad(&call) == AMP_OK, "backward");
    bool wide = k->dtype == AMP_FLOAT64;
    double unit = wide ? 0x1p-52 : 0x1p-24, s = k->smoothing, all = 0;
    for (int64_t c = 0; c < n; c++) all += k->weighted ? get(&w, c) : 1;
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = (int64_t)get(&t, r);
        bool kept = target != -7;
        long double total = 0;
        double sum, top = -(double)INFINITY, even = 0, weight = kept ? k->weighted ? get(&w, target) : 1 : 0;
        for (int64_t c = 0; c < n; c++) total += expl(get(&x, place(k, r, c))), top = fmax(top, get(&x, place(k, r, c)));
        sum = (double)total;
        for (int64_t c = 0; c < n; c++) even += (k->weighted ? get(&w, c) : 1) * (log(sum) - get(&x, place(k, r, c)));
        double want = kept ? (1 - s) * weight * (log(sum) - get(&x, place(k, r, target))) + s / (double)n * even : 0;
        CHECK(fabs(get(&loss, r) - want) <= 20 * unit * (weight + s * all / (double)n) * (1 + fabs(log(sum))),
              "loss %.17g, not %.17g", get(&loss, r), want);
        hash = mix(hash, get(&loss, r));
        double gr = kept ? get(&g, r) : 0, b = gr * (1 - s) * weight, d = gr * s / (double)n, a = b + d * all;
        for (int64_t c = 0; c < n; c++) {
            double at = get(&x, place(k, r, c)), p = exp(at) / sum, got = get(&dx, place(k, r, c));
            double less = (c == target ? b : 0) + d * (k->weighted ? get(&w, c) : 1), slope = a * p - less;
            double slack = unit * (fabs(a) * p * (top - at + 6) + 2 * fabs(less));
            CHECK(near_value(k->dtype, got, slope, .501) || fabs(got - slope) <= slack + .501 * ulp(k->dtype, slope),
                  "slope %.17g, not %.17g", got, slope);
            CHECK(kept || got == 0, "ignored row: %g", got);
            hash = mix(hash, got);
        }
    }
    free(x.memory), free(dx.memory), free(t.memory), free(w.memory), free(g.memory), free(loss.memory), free(stats.memory);
    return hash;
}

static uint64_t test_rows(void) {
    static const int64_t classes[] = {1, 2, 15, 17, 63, 65, 257, 2048, 2049, 4500}, inner[] = {1, 3, 21, 19};
    uint64_t hash = 1;
    for (int f = 0; f < 4; f++)
        for (int c = 0; c < 10; c++)
            for (int how = 0; how < 8; how++) {
                Case k = {.dtype = floats[f],
                          .shape = {2, classes[c], inner[how & 3]},
                          .layout = (Layout)(how + c) % BROADCAST,
                          .weighted = how & 2,
                          .smoothing = how & 4 ? 0.25 : 0};
                hash = run_case(&k, hash);
            }
    return hash;
}

/* Masked and broken logits: -inf has probability and slope 0 wherever it stands, NaN and inf spoil their own row only. */
static void test_special_values(void) {
    enum { N = 5000 };
    static const double broken[] = {(double)NAN, (double)INFINITY};
    int64_t shape[3] = {3, N, 1}, rows = 3, pair[2] = {2, 3}, one = 1;
    Array x = make(AMP_FLOAT32, 3, shape, DENSE), dx = make(AMP_FLOAT32, 3, shape, DENSE), t = make(AMP_INT64, 1, &rows, DENSE);
    Array g = make(AMP_FLOAT64, 1, &one, DENSE), loss = make(AMP_FLOAT64, 1, &rows, DENSE),
          stats = make(AMP_FLOAT64, 2, pair, DENSE);
    set(&g, 0, 65536);
    for (int which = 0; which < 2; which++) {
        for (int64_t c = 0; c < N; c++) {
            set(&x, c, c < N - 2 ? -(double)INFINITY : 1);              /* all but the last two */
            set(&x, N + c, c == 7 ? broken[which] : -(double)INFINITY); /* nothing else in the row */
            set(&x, 2 * N + c, 0);
        }
        set(&t, 0, N - 1), set(&t, 1, 3), set(&t, 2, 0);
        Call call = {.nin = 3,
                     .nout = 2,
                     .nnum = 2,
                     .in = {view(&x), view(&t), NULL},
                     .out = {view(&loss), view(&stats)},
                     .num = {{.i = -100, .kind = NUMBER_INT}, {.f = 0, .kind = NUMBER_FLOAT}},
                     .dims = 2};
        CHECK(amp_cpu_backend.cross_entropy(&call) == AMP_OK, "forward");
        call.nin = 5, call.nout = 1, call.in[3] = view(&stats), call.in[4] = view(&g), call.out[0] = view(&dx);
        CHECK(amp_cpu_backend.cross_entropy_grad(&call) == AMP_OK, "backward");
        CHECK(fabs(get(&loss, 0) - log(2)) < 1e-7 && isnan(get(&loss, 1)) && fabs(get(&loss, 2) - log(N)) < 1e-6,
              "losses %g %g %g", get(&loss, 0), get(&loss, 1), get(&loss, 2));
        CHECK(get(&dx, 0) == 0 && get(&dx, N - 3) == 0 && get(&dx, N - 2) == 32768 && get(&dx, N - 1) == -32768, "masked row");
        CHECK(isnan(get(&dx, N)) && isnan(get(&dx, 2 * N - 1)), "broken row");
        CHECK(fabs(get(&dx, 2 * N + 1) - 65536.0 / N) < 1e-5, "row after it");
        set(&t, 1, N);
        CHECK(amp_cpu_backend.cross_entropy_grad(&call) == AMP_BAD_INDEX, "class out of range");
    }
    free(x.memory), free(dx.memory), free(t.memory), free(g.memory), free(loss.memory), free(stats.memory);
}

/* The same bits whatever the number of threads. */
static uint64_t test_threads(void) {
    uint64_t hash[2];
    for (int threads = 1; threads < 3; threads++) {
        seed = 5;
        amp_set_num_threads(threads);
        Case k = {.dtype = AMP_FLOAT32, .shape = {37, 3001, 1}, .smoothing = 0.1};
        hash[threads - 1] = run_case(&k, 1);
    }
    CHECK(hash[0] == hash[1], "bits depend on the threads");
    return hash[0];
}

/* Stores around the caches write the same values, wherever they begin and end. */
static void test_streams(int dtype) {
    enum { N = 300, FREE = 20 };
    const SoftmaxKernels *k = amp_softmax_kernels(dtype);
    const size_t item = amp_itemsize(dtype);
    _Alignas(64) char x[N * sizeof(double)], near[N * sizeof(double)], far[(N + FREE) * sizeof(double)];
    for (int i = 0; i < N; i++) {
        double v = uniform(-20, 0);
        amp_convert(AMP_FLOAT64, (const char *)&v, 0, dtype, x + (size_t)i * item, 0, 1);
    }
    for (size_t first = 0; first < FREE; first++)
        for (int64_t n = 1; n < N; n += 1 + n / 7) {
            memset(far, 0x55, sizeof far);
            k->slope(x, near, n, 0.5, 3, 0.25, false);
            k->slope(x, far + first * item, n, 0.5, 3, 0.25, true);
            CHECK(memcmp(near, far + first * item, (size_t)n * item) == 0, "%d values from %zu on", (int)n, first);
            for (size_t i = 0; i < sizeof far; i++)
                CHECK(far[i] == 0x55 || (i >= first * item && i < (first + (size_t)n) * item), "outside, byte %zu", i);
        }
}

static uint64_t group(int k) {
    if (k == 0) return test_rows();
    if (k == 1) return test_threads();
    test_exponential(separate);
    test_exponential(fused);
    test_special_values();
    test_streams(AMP_FLOAT32);
    test_streams(AMP_FLOAT64);
    return 0;
}

int main(void) { return run_levels_fused(3, 3, group); }
