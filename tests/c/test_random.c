/* The generator and the random fills: known words, PyTorch's numbers for a seed, word consumption, layouts, saved state. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "ops.h"
#include "numeric.h"
#include "random.h"

static View vector_view(void *data, int dtype, int64_t *shape, int64_t *stride) {
    return (View){data, shape[0], shape, stride, 1, (int8_t)dtype, AMP_CPU, stride[0] == 1 ? LAYOUT_CONTIGUOUS : 0};
}

static Status fill(Generator *g, int op, View *out, double a, double b) {
    Call call = {.op = (uint16_t)op, .nout = 1, .nnum = 2, .extra = g, .out = {out}};
    call.num[0] = (Number){.f = a, .i = (int64_t)a, .kind = NUMBER_FLOAT};
    call.num[1] = (Number){.f = b, .i = (int64_t)b, .kind = NUMBER_FLOAT};
    return amp_random_fill(&call);
}

static Status fill_vector(Generator *g, int op, void *data, int dtype, int64_t n, double a, double b) {
    int64_t shape[] = {n}, stride[] = {1};
    View v = vector_view(data, dtype, shape, stride);
    return fill(g, op, &v, a, b);
}

/* Words spent since the seed: a second generator is run until both agree on the next ones. */
static int words_spent(Generator *g, uint64_t seed) {
    uint32_t next[4];
    Generator *other = amp_generator_new(seed);
    int found = -1;
    for (int i = 0; i < 4; i++) next[i] = amp_generator_u32(g);
    uint32_t window[4] = {0};
    for (int i = 0; i < 100000 && found < 0; i++) {
        memmove(window, window + 1, 12);
        window[3] = amp_generator_u32(other);
        if (i >= 3 && memcmp(window, next, 16) == 0) found = i - 3;
    }
    amp_generator_free(other);
    return found;
}

/* Published test values of MT19937: word 1, 2, 3 and 10000 for seed 5489. */
static void test_words(void) {
    Generator *g = amp_generator_new(5489);
    CHECK(amp_generator_u32(g) == 3499211612u);
    CHECK(amp_generator_u32(g) == 581869302u);
    CHECK(amp_generator_u32(g) == 3890346734u);
    for (int i = 3; i < 9999; i++) amp_generator_u32(g);
    CHECK(amp_generator_u32(g) == 4123659995u);
    amp_generator_seed(g, 5489);
    CHECK(amp_generator_u64(g) == (((uint64_t)3499211612u << 32) | 581869302u));
    /* only the low 32 bits of the seed count, but all of it is remembered */
    amp_generator_seed(g, (UINT64_C(7) << 32) + 5489);
    CHECK(amp_generator_u32(g) == 3499211612u);
    CHECK(amp_generator_initial_seed(g) == (UINT64_C(7) << 32) + 5489);
    amp_generator_free(g);
}

/* What PyTorch gives for seed 0: rand(5), randn(3), rand(2). */
static void test_known_sequence(void) {
    static const uint32_t first[] = {1056839000, 1061464623, 1035285416, 1040659200, 1050502790},
                          last[] = {1043130716, 1050048652};
    static const uint32_t normal[] = {1057815973, 1049259307, 1059435019};
    float x[5];
    Generator *g = amp_generator_new(0);
    CHECK(fill_vector(g, OP_uniform, x, AMP_FLOAT32, 5, 0, 1) == AMP_OK);
    CHECK(memcmp(x, first, sizeof first) == 0);
    CHECK(fill_vector(g, OP_normal, x, AMP_FLOAT32, 3, 0, 1) == AMP_OK);
    for (int i = 0; i < 3; i++) CHECK(fabsf(x[i] - amp_bits_f32(normal[i])) <= 1e-6f);
    CHECK(fill_vector(g, OP_uniform, x, AMP_FLOAT32, 2, 0, 1) == AMP_OK);
    CHECK(memcmp(x, last, sizeof last) == 0);
    amp_generator_free(g);
}

/* Sixteen and more: pairs j, j + 8, against the same formula in double; then the redrawn tail. */
static void test_normal_blocks(void) {
    enum { N = 37 };
    float u[64], x[N];
    Generator *g = amp_generator_new(9);
    for (int i = 0; i < N + 16; i++) u[i] = amp_generator_uniform24(g);
    amp_generator_seed(g, 9);
    CHECK(fill_vector(g, OP_normal, x, AMP_FLOAT32, N, 2.0, 3.0) == AMP_OK);
    for (int block = 0; block < 3; block++) {
        const float *from = block < 2 ? u + 16 * block : u + N;
        int start = block < 2 ? 16 * block : N - 16;
        for (int j = 0; j < 8; j++) {
            double r = sqrt(-2.0 * log(1.0 - (double)from[j])), t = 2.0 * 3.14159265358979323846 * (double)from[j + 8];
            if (start + j < N - 16 || block == 2) CHECK(fabs((double)x[start + j] - (2.0 + 3.0 * r * cos(t))) < 4e-6);
            if (start + j + 8 < N - 16 || block == 2) CHECK(fabs((double)x[start + j + 8] - (2.0 + 3.0 * r * sin(t))) < 4e-6);
        }
    }
    amp_generator_free(g);
}

static void test_words_spent(void) {
    static const struct {
        int op, dtype, n, words;
    } cases[] = {{OP_uniform, AMP_FLOAT32, 17, 17},    {OP_uniform, AMP_FLOAT64, 17, 34},    {OP_uniform, AMP_BFLOAT16, 17, 17},
                 {OP_normal, AMP_FLOAT32, 1, 4},       {OP_normal, AMP_FLOAT32, 2, 4},       {OP_normal, AMP_FLOAT32, 15, 32},
                 {OP_normal, AMP_FLOAT32, 16, 16},     {OP_normal, AMP_FLOAT32, 17, 33},     {OP_normal, AMP_FLOAT64, 17, 66},
                 {OP_normal, AMP_FLOAT16, 17, 32},     {OP_normal, AMP_BFLOAT16, 33, 48},    {OP_dropout, AMP_FLOAT32, 5, 10},
                 {OP_bernoulli_fill, AMP_BOOL, 5, 10}, {OP_exponential, AMP_FLOAT32, 5, 10}, {OP_randperm, AMP_INT64, 10, 9},
                 {OP_randint, AMP_INT64, 6, 6},        {OP_uniform, AMP_FLOAT32, 0, 0},      {OP_randperm, AMP_INT64, 1, 0}};
    double data[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Generator *g = amp_generator_new(77);
        double a = cases[i].op == OP_exponential || cases[i].op == OP_dropout ? 0.5 : 0.0;
        CHECK(fill_vector(g, cases[i].op, data, cases[i].dtype, cases[i].n, a, cases[i].op == OP_randint ? 100 : 1) == AMP_OK);
        int words = words_spent(g, 77);
        if (words != cases[i].words) fprintf(stderr, "case %zu: %d words\n", i, words);
        CHECK(words == cases[i].words);
        amp_generator_free(g);
    }
}

static void test_integers(void) {
    int64_t x[100];
    Generator *g = amp_generator_new(3), *h = amp_generator_new(3);
    CHECK(fill_vector(g, OP_randint, x, AMP_INT64, 100, -5, 5) == AMP_OK);
    for (int i = 0; i < 100; i++) CHECK(x[i] == -5 + (int64_t)(amp_generator_u32(h) % 10));
    /* from a range of 2^28 on, two words are spent on one number */
    CHECK(amp_generator_below(g, (UINT64_C(1) << 28) - 1) == amp_generator_u32(h) % ((1u << 28) - 1));
    CHECK(amp_generator_below(g, UINT64_C(1) << 28) == amp_generator_u64(h) % (UINT64_C(1) << 28));
    CHECK(amp_generator_below(g, 0) == amp_generator_u64(h));
    /* the whole int64 range: high - low does not fit int64 */
    int64_t shape[] = {100}, stride[] = {1};
    View v = vector_view(x, AMP_INT64, shape, stride);
    Call call = {.op = OP_randint, .nout = 1, .nnum = 2, .extra = g, .out = {&v}};
    call.num[0] = (Number){.i = INT64_MIN, .kind = NUMBER_INT};
    call.num[1] = (Number){.i = INT64_MAX, .kind = NUMBER_INT};
    CHECK(amp_random_fill(&call) == AMP_OK);
    int negative = 0;
    for (int i = 0; i < 100; i++) negative += x[i] < 0;
    CHECK(negative > 25 && negative < 75);

    int32_t y[57];
    uint8_t seen[57] = {0};
    amp_generator_seed(g, 11);
    CHECK(fill_vector(g, OP_randperm, x, AMP_INT64, 57, 57, 0) == AMP_OK);
    amp_generator_seed(g, 11);
    CHECK(fill_vector(g, OP_randperm, y, AMP_INT32, 57, 57, 0) == AMP_OK);
    for (int i = 0; i < 57; i++) {
        CHECK(x[i] >= 0 && x[i] < 57 && !seen[x[i]] && y[i] == x[i]);
        seen[x[i]] = 1;
    }
    amp_generator_free(g);
    amp_generator_free(h);
}

/* Masks hold 0 and 1 and follow the 53-bit draw; a probability tensor follows the 24-bit draw. */
static void test_masks(void) {
    enum { N = 300 };
    uint16_t half[N];
    uint8_t flag[N];
    float one[N], p[3] = {0.0f, 0.3f, 1.0f};
    Generator *g = amp_generator_new(17), *h = amp_generator_new(17);
    CHECK(fill_vector(g, OP_dropout, half, AMP_FLOAT16, N, 0.1, 0) == AMP_OK);
    for (int i = 0; i < N; i++) CHECK(half[i] == (amp_generator_uniform53(h) < 1.0 - 0.1 ? 0x3c00 : 0));
    CHECK(fill_vector(g, OP_bernoulli_fill, flag, AMP_BOOL, N, 0.25, 0) == AMP_OK);
    for (int i = 0; i < N; i++) CHECK(flag[i] == (amp_generator_uniform53(h) < 0.25));

    int64_t shape[] = {N / 3, 3}, rows[] = {0, 1}, stride[] = {3, 1};
    View probability = {(char *)p, N, shape, rows, 2, AMP_FLOAT32, AMP_CPU, 0};
    View out = {(char *)one, N, shape, stride, 2, AMP_FLOAT32, AMP_CPU, LAYOUT_CONTIGUOUS};
    Call call = {.op = OP_bernoulli, .nin = 1, .nout = 1, .extra = g, .in = {&probability}, .out = {&out}};
    CHECK(amp_random_fill(&call) == AMP_OK);
    for (int i = 0; i < N; i++) CHECK(one[i] == (float)(amp_generator_uniform24(h) < p[i % 3]));
    amp_generator_free(g);
    amp_generator_free(h);
}

/* The upper limit is never drawn, although rounding to a short format would reach it. */
static void test_half_open(void) {
    enum { N = 20000 };
    static uint16_t x[N];
    static const int dtypes[] = {AMP_BFLOAT16, AMP_FLOAT16};
    for (int d = 0; d < 2; d++) {
        Generator *g = amp_generator_new(1);
        CHECK(fill_vector(g, OP_uniform, x, dtypes[d], N, 1.0, 3.0) == AMP_OK);
        for (int i = 0; i < N; i++) {
            float v = d ? amp_f16_to_f32(x[i]) : amp_bf16_to_f32(x[i]);
            CHECK(v >= 1.0f && v < 3.0f);
        }
        amp_generator_free(g);
    }
    static float f[N];
    Generator *g = amp_generator_new(1);
    CHECK(fill_vector(g, OP_uniform, f, AMP_FLOAT32, N, 1.0, 1.0 + 0x1p-22) == AMP_OK);
    for (int i = 0; i < N; i++) CHECK(f[i] >= 1.0f && f[i] < 1.0f + 0x1p-22f);
    amp_generator_free(g);
}

/* A non-contiguous output is filled in the order of its memory, and its normal numbers are drawn pair by pair. */
static void test_layouts(void) {
    float base[6][8], plain[48], gaps[97];
    Generator *g = amp_generator_new(4);
    int64_t shape[] = {8, 6}, stride[] = {1, 8}, flat[] = {48}, step[] = {-2};
    View transposed = {(char *)base, 48, shape, stride, 2, AMP_FLOAT32, AMP_CPU, 0};
    CHECK(fill_vector(g, OP_uniform, plain, AMP_FLOAT32, 48, 0, 1) == AMP_OK);
    amp_generator_seed(g, 4);
    CHECK(fill(g, OP_uniform, &transposed, 0, 1) == AMP_OK);
    CHECK(memcmp(base, plain, sizeof plain) == 0);

    for (int i = 0; i < 97; i++) gaps[i] = 5.0f;
    View reversed = vector_view(gaps + 95, AMP_FLOAT32, flat, step);
    amp_generator_seed(g, 4);
    CHECK(fill(g, OP_uniform, &reversed, 0, 1) == AMP_OK);
    for (int i = 0; i < 48; i++) CHECK(gaps[95 - 2 * i] == plain[i] && gaps[94 - 2 * i] == 5.0f);
    CHECK(gaps[96] == 5.0f);

    amp_generator_seed(g, 4);
    CHECK(fill(g, OP_normal, &transposed, 0, 1) == AMP_OK);
    amp_generator_seed(g, 4);
    for (int i = 0; i < 48; i++) CHECK(((float *)base)[i] == (float)amp_generator_normal(g));

    char raw[4 * 20 + 1];
    amp_generator_seed(g, 4);
    CHECK(fill_vector(g, OP_uniform, raw + 1, AMP_FLOAT32, 20, 0, 1) == AMP_OK);
    CHECK(memcmp(raw + 1, plain, 80) == 0);
    amp_generator_free(g);
}

static void test_state(void) {
    size_t n = amp_generator_state_size();
    char *state = malloc(n);
    double x[3], y[3];
    Generator *g = amp_generator_new(42), *h = amp_generator_new(1);
    if (!state || !g || !h) exit(2);
    CHECK(fill_vector(g, OP_normal, x, AMP_FLOAT64, 3, 0, 1) == AMP_OK); /* leaves a kept number */
    amp_generator_get_state(g, state);
    CHECK(amp_generator_set_state(h, state, n) == 0);
    CHECK(amp_generator_initial_seed(h) == 42);
    CHECK(fill_vector(g, OP_normal, x, AMP_FLOAT64, 3, 0, 1) == AMP_OK);
    CHECK(fill_vector(h, OP_normal, y, AMP_FLOAT64, 3, 0, 1) == AMP_OK);
    CHECK(memcmp(x, y, sizeof x) == 0);
    /* seeding forgets the kept number */
    CHECK(fill_vector(g, OP_normal, x, AMP_FLOAT64, 1, 0, 1) == AMP_OK);
    amp_generator_seed(g, 42);
    amp_generator_seed(h, 42);
    CHECK(amp_generator_normal(g) == amp_generator_normal(h));
    /* what is no state is refused and changes nothing */
    uint32_t huge = 625;
    CHECK(amp_generator_set_state(h, state, n - 1) == -1);
    memcpy(state + 24, &huge, 4);
    CHECK(amp_generator_set_state(h, state, n) == -1);
    state[0] ^= 1;
    CHECK(amp_generator_set_state(h, state, n) == -1);
    CHECK(amp_generator_normal(g) == amp_generator_normal(h));
    amp_generator_free(g);
    amp_generator_free(h);
    free(state);
}

static void test_distributions(void) {
    enum { N = 40000 };
    static double x[N];
    double sum = 0, squares = 0;
    Generator *g = amp_generator_new(5), *h = amp_generator_new(5);
    CHECK(fill_vector(g, OP_exponential, x, AMP_FLOAT64, N, 2.0, 0) == AMP_OK);
    for (int i = 0; i < N; i++) CHECK(fabs(x[i] + log1p(-amp_generator_uniform53(h)) / 2.0) < 1e-15);
    CHECK(fill_vector(g, OP_normal, x, AMP_FLOAT64, N, 1.0, 2.0) == AMP_OK);
    for (int i = 0; i < N; i++) sum += x[i];
    for (int i = 0; i < N; i++) squares += (x[i] - sum / N) * (x[i] - sum / N);
    CHECK(fabs(sum / N - 1.0) < 0.05 && fabs(squares / N - 4.0) < 0.15);
    amp_generator_free(g);
    amp_generator_free(h);
}

static void test_refusals(void) {
    int32_t x[4];
    Generator *g = amp_generator_new(5);
    CHECK(fill_vector(g, OP_uniform, x, AMP_INT32, 4, 0, 1) == AMP_BAD_DTYPE);
    CHECK(fill_vector(g, OP_normal, x, AMP_BOOL, 4, 0, 1) == AMP_BAD_DTYPE);
    CHECK(fill_vector(g, OP_add, x, AMP_FLOAT32, 4, 0, 1) == AMP_NO_KERNEL);
    CHECK(words_spent(g, 5) == 0);
    amp_generator_free(g);
}

int main(void) {
    test_words();
    test_known_sequence();
    test_normal_blocks();
    test_words_spent();
    test_integers();
    test_masks();
    test_half_open();
    test_layouts();
    test_state();
    test_distributions();
    test_refusals();
    if (failures) fprintf(stderr, "%d checks failed\n", failures);
    return failures != 0;
}
