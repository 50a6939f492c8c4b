/* The gemm slot against float64 (exact integers, exact bits where the contract fixes them), at every instruction-set level that the
 * machine has, with 1 and 2 threads. Prints what fails; exit status 1 if anything does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "emulation.h"
#include "gemm.h"

static int failures;
static const char *level;
static uint64_t random_state = 1;

static uint32_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}
static int below(int n) { return (int)(random_bits() % (uint32_t)n); }
static double uniform(void) { return (double)random_bits() / 0x1p30 - 1; }

/* ------------------------------------------------------------------ matrices with strange strides */

enum { PLAIN, TRANSPOSED, GAPS, NEGATIVE, ROWS_EQUAL, COLS_EQUAL, PITCHED, MISALIGNED, LAYOUTS };
enum { CANARY = 0xff, MARGIN = 256 }; /* in every format NaN: what is read beyond the edges shows */

typedef struct Tensor {
    View view;
    int64_t shape[3], stride[3];
    char *memory;
    size_t bytes;
} Tensor;

static void make(Tensor *t, int dtype, int64_t batch, int64_t rows, int64_t cols, int layout, bool shared_batch) {
    const int64_t size = (int64_t)amp_itemsize(dtype);
    int64_t row = cols, col = 1, span = rows * cols, offset = 0;
    if (layout == TRANSPOSED) row = 1, col = rows;
    if (layout == GAPS) col = 2, row = 2 * cols + 3, span = rows * row;
    if (layout == PITCHED) row = cols | 1, span = rows * row;
    if (layout == NEGATIVE) row = -cols, offset = (rows - 1) * cols;
    if (layout == ROWS_EQUAL) row = 0;
    if (layout == COLS_EQUAL) row = 1, col = 0;
    if (rows == 0 || cols == 0) offset = 0;
    const bool three = batch > 0;
    const int64_t entries = three && !shared_batch ? batch : 1;
    t->bytes = (size_t)(entries * span * size + 2 * MARGIN + 8);
    t->memory = malloc(t->bytes);
    memset(t->memory, CANARY, t->bytes);
    t->view = (View){.data = t->memory + MARGIN + offset * size + (layout == MISALIGNED), .shape = t->shape, .stride = t->stride};
    t->view.ndim = three ? 3 : 2;
    t->view.dtype = (int8_t)dtype;
    t->view.numel = (three ? batch : 1) * rows * cols;
    const int64_t shape[] = {batch, rows, cols}, stride[] = {shared_batch ? 0 : span, row, col};
    memcpy(t->shape, shape + !three, (size_t)t->view.ndim * 8);
    memcpy(t->stride, stride + !three, (size_t)t->view.ndim * 8);
}

static char *at(const Tensor *t, int64_t b, int64_t i, int64_t j) {
    const int64_t *s = t->stride + t->view.ndim - 2;
    return t->view.data +
           ((t->view.ndim == 3 ? b * t->stride[0] : 0) + i * s[0] + j * s[1]) * (int64_t)amp_itemsize(t->view.dtype);
}
static double get(const Tensor *t, int64_t b, int64_t i, int64_t j) {
    double d;
    if (t->view.dtype != AMP_FLOAT64) return (double)gemm_load(at(t, b, i, j), t->view.dtype);
    memcpy(&d, at(t, b, i, j), sizeof d);
    return d;
}
static void put(Tensor *t, int64_t b, int64_t i, int64_t j, double d) {
    if (t->view.dtype == AMP_FLOAT64) memcpy(at(t, b, i, j), &d, sizeof d);
    else gemm_store(at(t, b, i, j), t->view.dtype, (float)d);
}
static int64_t dim(const Tensor *t, int i) { return t->shape[t->view.ndim - 3 + i]; }
static int64_t batches(const Tensor *t) { return t->view.ndim == 3 ? t->shape[0] : 1; }
static void fill(Tensor *t, double scale) {
    for (int64_t b = 0; b < batches(t); b++)
        for (int64_t i = 0; i < dim(t, 1); i++)
            for (int64_t j = 0; j < dim(t, 2); j++) put(t, b, i, j, scale * uniform());
}

/* ------------------------------------------------------------------ one product against float64 */

typedef struct Case {
    int dtype, out_dtype, d_dtype;
    int64_t batch, m, n, k;
    int a, b, c, d; /* layouts; d -1: no third operand */
    double alpha, beta;
    bool shared, in_place;
    Numerics numerics;
    int threads; /* whose result is compared with that of one */
} Case;

static double operand(const Tensor *t, int64_t b, int64_t i, int64_t j, const Case *x) {
    double v = get(t, b, i, j);
    return x->dtype == AMP_FLOAT32 ? (double)gemm_round_input((float)v, (InputRounding)x->numerics.fp32_inputs) : v;
}

/* Half a unit in the last place of a value near `v`, for the rounding of the result. */
static double half_ulp(int dtype, double v) {
    static const int mantissa[AMP_DTYPE_COUNT] = {[AMP_FLOAT8_E5M2] = 2, [AMP_FLOAT8_E4M3FN] = 3, [AMP_FLOAT16] = 10,
                                                  [AMP_BFLOAT16] = 7,    [AMP_FLOAT32] = 23,      [AMP_FLOAT64] = 52};
    static const int smallest[AMP_DTYPE_COUNT] = {[AMP_FLOAT8_E5M2] = -16, [AMP_FLOAT8_E4M3FN] = -9, [AMP_FLOAT16] = -24,
                                                  [AMP_BFLOAT16] = -133,   [AMP_FLOAT32] = -149,     [AMP_FLOAT64] = -1074};
    int e;
    frexp(v, &e);
    int step = e - 1 - mantissa[dtype];
    return ldexp(0.5, step > smallest[dtype] ? step : smallest[dtype]);
}

static void report(const Case *x, int64_t b, int64_t i, int64_t j, const char *what, double got, double want, double bound) {
    if (failures++ > 20) return;
    printf("%s: %s: %s->%s batch %lld m %lld n %lld k %lld layouts %d %d %d %d at [%lld,%lld,%lld]: %.17g, want %.17g +- %.3g\n",
           level, what, amp_dtype_info[x->dtype].name, amp_dtype_info[x->out_dtype].name, (long long)x->batch, (long long)x->m,
           (long long)x->n, (long long)x->k, x->a, x->b, x->c, x->d, (long long)b, (long long)i, (long long)j, got, want, bound);
}

/* The matrices of batch entry `t` as float64: a by rows, b by columns. */
static void read_operands(const Case *x, const Tensor *a, const Tensor *b, int64_t t, double *rows, double *cols) {
    for (int64_t k = 0; k < x->k; k++) {
        for (int64_t i = 0; i < x->m; i++) rows[i * x->k + k] = operand(a, t, i, k, x);
        for (int64_t j = 0; j < x->n; j++) cols[j * x->k + k] = operand(b, t, k, j, x);
    }
}

static void check_values(const Case *x, const Tensor *a, const Tensor *b, const Tensor *c, const double *d) {
    const double unit = x->dtype == AMP_FLOAT64 ? 0x1p-53 : 0x1p-24, slack = x->dtype == AMP_FLOAT64 ? 2 : 1;
    double *rows = malloc((size_t)((x->m + x->n) * x->k + 1) * sizeof *rows), *cols = rows + x->m * x->k;
    for (int64_t t = 0; t < batches(c); t++) {
        read_operands(x, a, b, t, rows, cols);
        for (int64_t i = 0; i < x->m; i++)
            for (int64_t j = 0; j < x->n; j++) {
                double sum = 0, size = 0;
                for (int64_t k = 0; k < x->k; k++) {
                    double p = rows[i * x->k + k] * cols[j * x->k + k];
                    sum += p;
                    size += fabs(p);
                }
                double extra = d ? x->beta * d[(t * x->m + i) * x->n + j] : 0;
                double want = x->alpha * sum + extra, got = get(c, t, i, j);
                double bound = slack * ((double)x->k + 4) * unit * (fabs(x->alpha) * size + fabs(extra));
                bound += half_ulp(x->out_dtype, fabs(want) + bound) * 1.0001 + 0x1p-149;
                if (x->out_dtype == AMP_FLOAT8_E4M3FN && isnan(got) && fabs(want) + bound >= 464)
                    continue; /* beyond the format */
                if (!(fabs(got - want) <= bound)) report(x, t, i, j, "value", got, want, bound);
            }
    }
    free(rows);
}

static void check_margins(const Case *x, const Tensor *c) {
    for (int i = 0; i < MARGIN; i++)
        if (c->memory[i] != (char)CANARY || c->memory[c->bytes - 1 - (size_t)i] != (char)CANARY) {
            report(x, 0, 0, i, "wrote outside", 0, 0, 0);
            return;
        }
}

/* What the last call wrote is `wide`, rounded to the operands' dtype. */
static void check_rounded(const Case *x, const Tensor *wide, const Tensor *c) {
    for (int64_t t = 0; t < batches(c); t++)
        for (int64_t i = 0; i < x->m; i++)
            for (int64_t j = 0; j < x->n; j++) {
                float f = (float)get(wide, t, i, j), got = (float)get(c, t, i, j);
                float want = x->dtype == AMP_FLOAT16 ? amp_f16_to_f32(amp_f32_to_f16(f)) : amp_bf16_to_f32(amp_f32_to_bf16(f));
                if (memcmp(&got, &want, sizeof got) && !(isnan(got) && isnan(want))) report(x, t, i, j, "rounding", got, want, 0);
            }
    check_margins(x, c);
}

static Number real(double f) { return (Number){.f = f, .i = 0, .kind = NUMBER_FLOAT}; }

static void check(Case x) {
    Tensor a, b, c, d;
    double *old = NULL;
    make(&a, x.dtype, x.batch, x.m, x.k, x.a, x.shared);
    make(&b, x.dtype, x.batch, x.k, x.n, x.b, false);
    make(&c, x.out_dtype, x.batch, x.m, x.n, x.c, false);
    fill(&a, 1);
    fill(&b, 1);
    Call call = {.nin = 2, .nout = 1, .nnum = 2, .in = {&a.view, &b.view}, .out = {&c.view}, .numerics = x.numerics};
    call.num[0] = real(x.beta);
    call.num[1] = real(x.alpha);
    if (x.d >= 0) {
        make(&d, x.in_place ? x.out_dtype : x.d_dtype, x.batch, x.m, x.n, x.d, x.shared);
        Tensor *third = x.in_place ? &c : &d;
        fill(third, x.beta == 0 ? (double)NAN : 2);
        call.in[2] = &third->view;
        call.nin = 3;
        if (x.beta != 0) {
            old = malloc((size_t)(c.view.numel + 1) * sizeof *old);
            for (int64_t t = 0; t < batches(&c); t++)
                for (int64_t i = 0; i < x.m * x.n; i++) old[t * x.m * x.n + i] = get(third, t, i / x.n, i % x.n);
        }
    }
    char *before = malloc(c.bytes), *serial = malloc(c.bytes);
    memcpy(before, c.memory, c.bytes);
    amp_set_num_threads(1);
    if (amp_gemm(&call) != AMP_OK) report(&x, 0, 0, 0, "status", 1, 0, 0);
    check_values(&x, &a, &b, &c, old);
    check_margins(&x, &c);
    memcpy(serial, c.memory, c.bytes);
    memcpy(c.memory, before, c.bytes);
    amp_set_num_threads(x.threads);
    amp_gemm(&call);
    if (!tiles_are_free()) report(&x, 0, 0, 0, "tiles are kept", 0, 0, 0);
    if (memcmp(serial, c.memory, c.bytes)) report(&x, 0, 0, 0, "bits depend on threads", 0, 0, 0);
    if (amp_is_16bit(x.dtype) && x.out_dtype == AMP_FLOAT32) {
        Tensor wide = c;
        wide.memory = serial;
        wide.view.data = serial + (c.view.data - c.memory);
        memcpy(c.memory, before, c.bytes);
        call.numerics.round_result = 1;
        amp_gemm(&call);
        check_rounded(&x, &wide, &c);
    }
    free(before);
    free(serial);
    free(old);
    free(a.memory);
    free(b.memory);
    free(c.memory);
    if (x.d >= 0) free(d.memory);
}

/* ------------------------------------------------------------------ families of cases */

static const int floats[] = {AMP_FLOAT32, AMP_BFLOAT16, AMP_FLOAT16, AMP_FLOAT64, AMP_FLOAT8_E5M2, AMP_FLOAT8_E4M3FN};

static Case plain(int dtype, int64_t m, int64_t n, int64_t k) {
    return (Case){.dtype = dtype,
                  .out_dtype = dtype,
                  .d_dtype = dtype,
                  .m = m,
                  .n = n,
                  .k = k,
                  .d = -1,
                  .alpha = 1,
                  .beta = 1,
                  .threads = 2};
}

static void sizes(void) {
    static const int edge[] = {0, 1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 33, 47, 64, 70, 129, 257};
    for (int f = 0; f < 6; f++)
        for (int i = 0; i < 60; i++) {
            Case x = plain(floats[f], edge[below(18)], edge[below(18)], edge[below(18)]);
            if (x.m * x.n * x.k > 500000) x.m = 5;
            x.a = below(2);
            x.b = below(2);
            check(x);
        }
    for (int f = 0; f < 4; f++)
        for (int t = 0; t < 4; t++) { /* more than one block in each direction, one at a time */
            Case m = plain(floats[f], 1100, 20, 30), n = plain(floats[f], 20, 2100, 30), k = plain(floats[f], 45, 70, 800),
                 all = plain(floats[f], 230, 270, 300);
            /* Blocks are of 8 MiB and 8 KiB deep; many threads share the packed panels, few pack their own. */
            Case wide = plain(floats[f], 16, 1060, 2040), tall = plain(floats[f], 1060, 17, 2040),
                 deep = plain(floats[f], 37, 50, 4200), alone = plain(floats[f], 20, 300, 4200);
            wide.threads = 40;
            Case *const cases[] = {&m, &n, &k, &all, &wide, &tall, &deep, &alone};
            for (int i = 0; i < (t == f ? 8 : 4); i++) { /* the large ones in one layout per format */
                cases[i]->a = t & 1;
                cases[i]->b = t >> 1;
                check(*cases[i]);
            }
        }
    for (int f = 0; f < 4; f++) /* few rows or columns of a long product */
        for (int i = 0; i < 40; i++) {
            Case x = plain(floats[f], 1 + below(5), 1 + below(700), 1 + below(700));
            if (below(2)) x.n = x.m, x.m = 1 + below(700);
            x.a = below(LAYOUTS);
            x.b = below(LAYOUTS);
            x.d = below(4) - 1;
            check(x);
        }
}

static void layouts(void) {
    static const double factors[] = {1, 1, 0, -0.5, 2};
    for (int f = 0; f < 6; f++)
        for (int i = 0; i < 120; i++) {
            Case x = plain(floats[f], 1 + below(40), 1 + below(70), below(8) ? below(40) : 250 + below(40));
            x.a = below(LAYOUTS);
            x.b = below(LAYOUTS);
            x.c = below(2) ? PLAIN : (int[]){PLAIN, TRANSPOSED, GAPS, NEGATIVE, MISALIGNED}[below(5)];
            x.batch = below(3) ? 0 : 1 + below(4);
            x.shared = x.batch && below(2);
            x.d = below(3) ? below(LAYOUTS) : -1;
            x.alpha = factors[below(5)];
            x.beta = factors[below(5)];
            x.in_place = x.d >= 0 && below(4) == 0 && x.beta != 0;
            if (floats[f] != AMP_FLOAT64 && below(2)) x.out_dtype = AMP_FLOAT32;
            if (floats[f] != AMP_FLOAT64 && below(2)) x.d_dtype = AMP_FLOAT32;
            if (floats[f] == AMP_FLOAT32) x.numerics.fp32_inputs = (uint8_t)below(3);
            check(x);
        }
}

/* So much work that formats of 11 significant bits may be split in two. */
static void large(void) {
    static const int sizes[][3] = {{260, 300, 1007}, {33, 517, 4420}, {1037, 70, 1040}};
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < 3; i++) {
            Case x = plain(floats[f], sizes[i][0], sizes[i][1], sizes[i][2]);
            if (floats[f] == AMP_FLOAT32) x.numerics.fp32_inputs = INPUT_TF32;
            else if (i != 1) x.out_dtype = AMP_FLOAT32;
            x.a = (f + i) & 1;
            x.b = i & 1 ? GAPS : (f + i) >> 1 & 1;
            x.batch = i == 0 ? 2 : 0;
            x.d = i == 2 ? ROWS_EQUAL : -1;
            x.alpha = i == 1 ? -0.5 : 1;
            x.threads = i == 1 ? 2 : 5;
            check(x);
        }
}

/* One element per row of a, so that each result is a product of two factors of 11 significant bits: exact in fp32. */
static void exact_products(void) {
    static const int formats[] = {AMP_FLOAT16, AMP_FLOAT32, AMP_FLOAT32};
    static const double scales[][2] = {{1, 1}, {1, 1}, {0x1p100, 0x1p-118}}; /* low parts that would be denormal */
    const int64_t m = 150, n = 160, k = 3203;
    for (int f = 0; f < 3; f++) {
        Tensor a, b, c;
        make(&a, formats[f], 0, m, k, f & 1, false);
        make(&b, formats[f], 0, k, n, f & 1, false);
        make(&c, AMP_FLOAT32, 0, m, n, PLAIN, false);
        for (int64_t i = 0; i < m; i++)
            for (int64_t l = 0; l < k; l++) put(&a, 0, i, l, l == i * 21 ? (1025 + 2 * below(512)) * 0x1p-10 * scales[f][0] : 0);
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++)
                put(&b, 0, l, j, (below(2) ? -1 : 1) * (1025 + 2 * below(512)) * 0x1p-12 * scales[f][1]);
        Call call = {.nin = 2, .nout = 1, .in = {&a.view, &b.view}, .out = {&c.view}, .numerics = {.fp32_inputs = INPUT_TF32}};
        amp_gemm(&call);
        const Case x = {.dtype = formats[f], .out_dtype = AMP_FLOAT32, .m = m, .n = n, .k = k};
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                const double want = get(&a, 0, i, i * 21) * get(&b, 0, i * 21, j), got = get(&c, 0, i, j);
                if (got != want) report(&x, 0, i, j, "exact product", got, want, 0);
            }
        Tensor *const made[] = {&a, &b, &c};
        for (int t = 0; t < 3; t++) free(made[t]->memory);
    }
}

static void many_batches(void) {
    for (int f = 0; f < 4; f++)
        for (int t = 0; t < 4; t++) {
            Case x = plain(floats[f], 33, 47, 65);
            x.batch = 40;
            x.a = t & 1;
            x.b = t >> 1;
            x.shared = t == 2;
            check(x);
        }
}

/* ------------------------------------------------------------------ micro-kernels */

enum { MOST_K = 45, LINES = 3, MICRO_BYTES = 32 * 1024, C_ROW = 40 };

typedef struct Micro {
    const MicroSet *set;
    bool fp64, pairs;
    int64_t rows, cols, lines, line; /* k = lines * line */
    int left[GEMM_MAX_ROWS][2 * MOST_K], right[2 * MOST_K][GEMM_MAX_COLS];
    char *a, *b, c[MICRO_BYTES]; /* a and b end with their last element */
} Micro;

static void put_word(const Micro *x, char *memory, int64_t i, int low, int high) {
    const uint16_t pair[2] = {amp_f32_to_bf16((float)low), amp_f32_to_bf16((float)high)};
    const float f = (float)low;
    const double d = low;
    if (x->pairs) memcpy(memory + i * 4, pair, 4);
    else if (x->fp64) memcpy(memory + i * 8, &d, 8);
    else memcpy(memory + i * 4, &f, 4);
}

static double sum_at(const Micro *x, int64_t i, int64_t j) {
    double d;
    float f;
    memcpy(&d, x->c + (i * C_ROW + j) * 8, 8);
    memcpy(&f, x->c + (i * C_ROW + j) * 4, 4);
    return x->fp64 ? d : (double)f;
}

/* Which element of k element l of a call is, as the operands are numbered: pairs count once. */
static void check_sums(const Micro *x, const char *what, int old) {
    const int64_t k = x->lines * x->line * (x->pairs ? 2 : 1);
    for (int64_t i = 0; i < GEMM_MAX_ROWS; i++)
        for (int64_t j = 0; j < C_ROW; j++) {
            double want = old;
            for (int64_t l = 0; l < k; l++) want += j < x->cols && i < x->rows ? x->left[i][l] * x->right[l][j] : 0;
            const double got = sum_at(x, i, j);
            if (i < x->rows && j < x->cols ? got == want : isnan(got)) continue;
            if (failures++ < 20)
                printf("%s: kernel %s of %lldx%lld, %lldx%lld: [%lld,%lld] is %g, want %g\n", level, what, (long long)x->rows,
                       (long long)x->cols, (long long)x->lines, (long long)x->line, (long long)i, (long long)j, got, want);
            return;
        }
}

/* Fills the sums with what a call shall go on from, and everything else with NaN. */
static void prepare_sums(Micro *x, bool add, int old) {
    memset(x->c, CANARY, sizeof x->c);
    for (int64_t i = 0; add && i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++) {
            const float f = (float)old;
            const double d = old;
            memcpy(x->c + (i * C_ROW + j) * (x->fp64 ? 8 : 4), x->fp64 ? (const void *)&d : (const void *)&f, x->fp64 ? 8 : 4);
        }
}

static void one_kernel(Micro *x, int64_t r, int64_t v) {
    const int64_t lanes = x->set->lanes, per = x->pairs ? 2 : 1;
    x->rows = r;
    x->cols = v * lanes;
    x->lines = below(2) ? 1 : LINES;
    x->line = 1 + below(x->lines > 1 ? MOST_K / LINES : MOST_K);
    const int64_t k = x->lines * x->line, a_line = x->line + 2, b_row = 2 * lanes + below(3);
    const int64_t pitch = LINES * (x->line + 2);
    const int64_t rows_by_col[4][2] = {{pitch, 1}, {1, GEMM_MAX_ROWS + 1}, {2 * pitch, 2}, {3 * pitch, 3}};
    const int64_t *stride = rows_by_col[below(4)], a_row = stride[0], a_col = stride[1];
    int32_t at_place[MOST_K];
    for (int64_t l = 0; l < per * k; l++) {
        for (int64_t i = 0; i < r; i++) x->left[i][l] = below(15) - 7;
        for (int64_t j = 0; j < x->cols; j++) x->right[l][j] = below(13) - 6;
    }
    const size_t size = x->fp64 ? 8 : 4, last = (size_t)((x->lines - 1) * a_line + x->line - 1);
    const size_t a_bytes = ((size_t)((r - 1) * a_row) + last * (size_t)a_col + 1) * size;
    const size_t b_bytes = (size_t)((k - 1) * b_row + x->cols) * size;
    x->a = memset(malloc(a_bytes), CANARY, a_bytes);
    x->b = memset(malloc(b_bytes), CANARY, b_bytes);
    for (int64_t l = 0; l < k; l++) {
        const int64_t place = l / x->line * a_line + l % x->line;
        at_place[l] = (int32_t)((k - 1 - l) * b_row);
        for (int64_t i = 0; i < r; i++)
            put_word(x, x->a, i * a_row + place * a_col, x->left[i][per * l], x->left[i][per * l + per - 1]);
        for (int64_t j = 0; j < x->cols; j++)
            put_word(x, x->b, l * b_row + j, x->right[per * l][j], x->right[per * l + per - 1][j]);
    }
    const bool add = below(2);
    const int old = add ? 100 : 0;
    prepare_sums(x, add, old);
    x->set->in[r - 1][v - 1](x->lines, x->line, x->a, a_row, a_col, a_line * a_col, x->b, b_row, x->c, C_ROW, add);
    check_sums(x, "in", old);
    if (x->lines > 1) goto done;
    prepare_sums(x, add, old);
    x->set->fn[r - 1][v - 1](k, x->a, a_row, a_col, x->b, b_row, x->c, C_ROW, add);
    check_sums(x, "fn", old);
    if (v == 2) {
        prepare_sums(x, add, old);
        x->set->ahead[r - 1](k, x->a, a_row, a_col, x->b, b_row, x->c, C_ROW, add, x->a, 64);
        check_sums(x, "ahead", old);
    }
    memset(x->b, CANARY, b_bytes); /* rows backwards */
    for (int64_t l = 0; l < k; l++)
        for (int64_t j = 0; j < x->cols; j++)
            put_word(x, x->b, at_place[l] + j, x->right[per * l][j], x->right[per * l + per - 1][j]);
    prepare_sums(x, add, old);
    x->set->at[r - 1][v - 1](k, x->a, a_row, a_col, x->b, at_place, lanes, x->c, C_ROW, add);
    check_sums(x, "at", old);
done:
    free(x->a);
    free(x->b);
}

/* Every kernel, with sums that are exact, and NaN wherever it may neither read nor write. */
static void kernels(void) {
    Micro *x = malloc(sizeof *x);
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 2 && !amp_isa_bf16_pairs()) continue;
        x->fp64 = kind == 1;
        x->pairs = kind == 2;
        x->set = gemm_micro_set(x->fp64, x->pairs);
        for (int i = 0; i < 6; i++)
            for (int64_t r = 1; r <= x->set->rows; r++)
                for (int64_t v = 1; v <= 2; v++) one_kernel(x, r, v);
        gemm_release(x->set);
    }
    free(x);
}

/* An infinite element reaches its row or column and no other, wherever k ends. */
static void infinities(void) {
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < 16; i++) {
            Tensor a, b, c;
            const bool big = i == 0 && amp_isa() == ISA_AMX;
            const int64_t m = big ? 190 : 33, n = big ? 210 : 35, k = big ? 2001 : 13 + 7 * i,
                          row = below((int)m < (int)n ? (int)m : (int)n);
            const int64_t last = k - 1 - below(3);
            make(&a, floats[f], 0, m, k, below(2), false);
            make(&b, floats[f], 0, k, n, below(2), false);
            make(&c, floats[f], 0, m, n, PLAIN, false);
            fill(&a, 1);
            fill(&b, 1);
            const bool of_a = below(2), first = below(2); /* the first k is what fills up could be made of */
            const int64_t at_k = first ? 0 : last;
            put(of_a ? &a : &b, 0, of_a ? row : at_k, of_a ? at_k : row, (double)INFINITY);
            for (int64_t j = 0; j < (of_a ? n : m); j++) put(of_a ? &b : &a, 0, of_a ? at_k : j, of_a ? j : at_k, 0.5);
            Call call = {.nin = 2, .nout = 1, .in = {&a.view, &b.view}, .out = {&c.view}};
            if (floats[f] == AMP_FLOAT32 && i % 2 == 0) call.numerics.fp32_inputs = INPUT_TF32;
            amp_gemm(&call);
            const Case x = {.dtype = floats[f], .out_dtype = floats[f], .m = m, .n = n, .k = k};
            for (int64_t r = 0; r < m; r++)
                for (int64_t j = 0; j < n; j++) {
                    const double got = get(&c, 0, r, j);
                    if ((of_a ? r : j) == row ? got != (double)INFINITY : !isfinite(got))
                        report(&x, 0, r, j, "infinity", got, 0, 0);
                }
            Tensor *const made[] = {&a, &b, &c};
            for (int t = 0; t < 3; t++) free(made[t]->memory);
        }
}

/* A result with gaps between its columns takes the long way through blocks; the short ways for little work give its bits. */
static void paths(void) {
    static const double biases[] = {1, 0x1p-128, 0};
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < 40; i++) {
            const bool medium = i % 4 == 0; /* in parts, if there is another thread */
            const int64_t m = medium ? 100 + below(100) : 5 + below(60), n = medium ? 100 + below(100) : 5 + below(70);
            const int64_t k = medium ? 200 + below(100) : 1 + below(70);
            const int out = below(2) ? AMP_FLOAT32 : floats[f];
            Tensor a, b, bias, c[2];
            make(&a, floats[f], 0, m, k, below(3) ? below(2) : PITCHED, false);
            make(&b, floats[f], 0, k, n, below(2), false);
            make(&bias, floats[f], 0, m, n, ROWS_EQUAL, false);
            make(&c[0], out, 0, m, n, PLAIN, false);
            make(&c[1], out, 0, m, n, GAPS, false);
            const double scale = below(3) ? 1 : 0x1p-70; /* sums, or sums with a bias, that are denormal */
            fill(&a, scale);
            fill(&b, scale);
            fill(&bias, biases[below(3)]);
            Call call = {.nin = 3, .nout = 1, .nnum = 2, .in = {&a.view, &b.view, below(2) ? &bias.view : NULL}};
            call.num[0] = call.num[1] = (Number){.f = 1, .i = 1, .kind = NUMBER_FLOAT};
            call.numerics.round_result = (uint8_t)below(2);
            for (int path = 0; path < 2; path++) {
                amp_set_num_threads(medium ? 2 - path : 1);
                call.out[0] = &c[path].view;
                amp_gemm(&call);
            }
            int64_t wrong = 0;
            for (int64_t row = 0; row < m; row++)
                for (int64_t col = 0; col < n; col++)
                    wrong += memcmp(at(&c[0], 0, row, col), at(&c[1], 0, row, col), amp_itemsize(out)) != 0;
            const Case x = {.dtype = floats[f], .out_dtype = out, .m = m, .n = n, .k = k};
            if (wrong) report(&x, 0, 0, 0, "bits depend on the path", (double)wrong, 0, 0);
            check_margins(&x, &c[0]);
            Tensor *const made[] = {&a, &b, &bias, &c[0], &c[1]};
            for (int t = 0; t < 5; t++) free(made[t]->memory);
        }
}

/* Integers wrap; compared with arithmetic of 64 bits cut to the width. */
static void integers(void) {
    static const int types[] = {AMP_UINT8, AMP_INT8, AMP_INT16, AMP_INT32, AMP_INT64};
    for (int f = 0; f < 5; f++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            const int64_t m = 1 + below(9), n = 1 + below(9), k = below(50), size = (int64_t)amp_itemsize(types[f]);
            Tensor a, b, c, d;
            make(&a, types[f], 0, m, k, layout, false);
            make(&b, types[f], 0, k, n, layout, false);
            make(&c, types[f], 0, m, n, PLAIN, false);
            make(&d, types[f], 0, m, n, layout, false);
            Tensor *const filled[] = {&a, &b, &d};
            for (int t = 0; t < 3; t++)
                for (size_t i = 0; i < filled[t]->bytes; i++) filled[t]->memory[i] = (char)random_bits();
            Call call = {.nin = 3, .nout = 1, .nnum = 2, .in = {&a.view, &b.view, &d.view}, .out = {&c.view}};
            call.num[0] = (Number){.f = 3, .i = 3, .kind = NUMBER_INT};
            call.num[1] = (Number){.f = -2, .i = -2, .kind = NUMBER_INT};
            amp_gemm(&call);
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++) {
                    uint64_t sum = 0, x, y;
                    for (int64_t l = 0; l < k; l++) { /* low bytes are enough: wrapping ignores what is above */
                        x = y = 0;
                        memcpy(&x, at(&a, 0, i, l), (size_t)size);
                        memcpy(&y, at(&b, 0, l, j), (size_t)size);
                        sum += x * y;
                    }
                    x = 0;
                    memcpy(&x, at(&d, 0, i, j), (size_t)size);
                    sum = 3 * x - 2 * sum;
                    if (memcmp(&sum, at(&c, 0, i, j), (size_t)size)) {
                        failures++;
                        printf("%s: %s product is wrong\n", level, amp_dtype_info[types[f]].name);
                    }
                }
            free(a.memory);
            free(b.memory);
            free(c.memory);
            free(d.memory);
        }
}

static void complexes(void) {
    enum { M = 3, N = 4, K = 5 };
    static const int types[] = {AMP_COMPLEX64, AMP_COMPLEX128};
    for (int which = 0; which < 2; which++) {
        const int type = types[which];
        Tensor a, b, c;
        double x[M * K * 2], y[K * N * 2];
        make(&a, type, 0, M, K, PLAIN, false);
        make(&b, type, 0, K, N, TRANSPOSED, false);
        make(&c, type, 0, M, N, PLAIN, false);
        Tensor *const t[] = {&a, &b};
        double *const v[] = {x, y};
        for (int o = 0; o < 2; o++)
            for (int64_t i = 0; i < dim(t[o], 1); i++)
                for (int64_t j = 0; j < dim(t[o], 2); j++)
                    for (int part = 0; part < 2; part++) {
                        double value = (double)(float)uniform();
                        float f = (float)value;
                        v[o][(i * dim(t[o], 2) + j) * 2 + part] = value;
                        if (type == AMP_COMPLEX64) memcpy(at(t[o], 0, i, j) + part * 4, &f, 4);
                        else memcpy(at(t[o], 0, i, j) + part * 8, &value, 8);
                    }
        Call call = {.nin = 2, .nout = 1, .in = {&a.view, &b.view}, .out = {&c.view}};
        amp_gemm(&call);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                double re = 0, im = 0, got[2];
                float f[2];
                for (int k = 0; k < K; k++) {
                    const double *p = x + (i * K + k) * 2, *q = y + (k * N + j) * 2;
                    re += p[0] * q[0] - p[1] * q[1];
                    im += p[0] * q[1] + p[1] * q[0];
                }
                memcpy(got, at(&c, 0, i, j), type == AMP_COMPLEX128 ? 16 : 8);
                memcpy(f, at(&c, 0, i, j), 8);
                if (type == AMP_COMPLEX64) got[0] = (double)f[0], got[1] = (double)f[1];
                double bound = type == AMP_COMPLEX64 ? 1e-6 : 1e-15;
                if (!(fabs(got[0] - re) <= bound * 10 && fabs(got[1] - im) <= bound * 10)) {
                    failures++;
                    printf("%s: complex product is wrong\n", level);
                }
            }
        free(a.memory);
        free(b.memory);
        free(c.memory);
    }
}

static float one_result(int dtype, int64_t k, const float *a, const float *b, Numerics numerics) {
    Tensor ta, tb, tc;
    make(&ta, dtype, 0, 1, k, PLAIN, false);
    make(&tb, dtype, 0, k, 1, PLAIN, false);
    make(&tc, dtype, 0, 1, 1, PLAIN, false);
    for (int64_t i = 0; i < k; i++) put(&ta, 0, 0, i, (double)a[i]), put(&tb, 0, i, 0, (double)b[i]);
    Call call = {.nin = 2, .nout = 1, .in = {&ta.view, &tb.view}, .out = {&tc.view}, .numerics = numerics};
    amp_gemm(&call);
    float r = (float)get(&tc, 0, 0, 0);
    free(ta.memory);
    free(tb.memory);
    free(tc.memory);
    return r;
}

static void expect(const char *what, float got, float want) {
    if (got == want || (isnan(got) && isnan(want))) return;
    failures++;
    printf("%s: %s: %.9g, want %.9g\n", level, what, (double)got, (double)want);
}

/* Values that only the stated numerics give. */
static void switches(void) {
    const Numerics ieee = {0}, tf32 = {.fp32_inputs = INPUT_TF32}, bf16 = {.fp32_inputs = INPUT_BF16},
                   chain = {.fp16_accumulate = 1};
    float a[4096], b[4096];
    for (int i = 0; i < 4096; i++) a[i] = b[i] = 1;
    a[0] = 1024.5f;
    expect("ieee keeps the input", one_result(AMP_FLOAT32, 1, a, b, ieee), 1024.5f);
    expect("tf32 ties go away from zero", one_result(AMP_FLOAT32, 1, a, b, tf32), 1025);
    a[0] = 257;
    expect("bf16 inputs tie to even", one_result(AMP_FLOAT32, 1, a, b, bf16), 256);
    a[0] = 1;
    expect("fp16 sums in fp32", one_result(AMP_FLOAT16, 4096, a, b, ieee), 4096);
    expect("fp16 chain stops at 2048", one_result(AMP_FLOAT16, 4096, a, b, chain), 2048);
    a[0] = b[0] = 256;
    expect("fp16 overflows to infinity", one_result(AMP_FLOAT16, 1, a, b, ieee), INFINITY);
    a[0] = 65504, a[1] = -65504, b[0] = b[1] = 2;
    expect("fp32 sums beyond fp16", one_result(AMP_FLOAT16, 3, a, b, ieee), 1);
    Numerics split = {.split_k = 3, .round_partials = 1}, whole = {.split_k = 3};
    expect("a partial sum overflows", one_result(AMP_FLOAT16, 3, a, b, split), NAN);
    expect("partial sums stay fp32", one_result(AMP_FLOAT16, 3, a, b, whole), 1);
    a[0] = INFINITY;
    expect("inf - finite", one_result(AMP_FLOAT32, 3, a, b, ieee), INFINITY);
    a[1] = -INFINITY;
    expect("inf - inf", one_result(AMP_FLOAT32, 3, a, b, ieee), NAN);
    a[0] = 0x1p-24f, b[0] = 1;
    expect("fp16 denormals survive", one_result(AMP_FLOAT16, 1, a, b, ieee), 0x1p-24f);
    a[0] = 0x1p-133f;
    expect("bf16 denormals", one_result(AMP_BFLOAT16, 1, a, b, ieee),
           amp_isa_fast_bf16_dot() ? 0 : 0x1p-133f); /* gemm_avx512.c */
    Tensor t;
    make(&t, AMP_BOOL, 0, 1, 1, PLAIN, false);
    Call call = {.nin = 2, .nout = 1, .in = {&t.view, &t.view}, .out = {&t.view}};
    expect("bool is refused", (float)amp_gemm(&call), AMP_BAD_DTYPE);
    free(t.memory);
}

int main(void) {
    static const char *const levels[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};
    if (!emulation_works()) failures++;
    for (int i = 0; i <= (int)amp_isa_best(); i++) {
        if (!is_tested(i)) continue;
        level = levels[i];
        amp_isa_set_cap(level);
        kernels();
        infinities();
        sizes();
        if (amp_isa() == ISA_AMX) {
            large();
            exact_products();
        }
        layouts();
        many_batches();
        paths();
        integers();
        complexes();
        switches();
    }
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
