/* Kernels that know about dimensions (reductions, softmax, running sums, indexing, arranging, views) against scalar references in
 * float64, at every instruction-set level that the machine has. */
#include "kernel_support.h"

/* ---- reductions ---- */

static double reduce_reference(int op, double order, const double *x, int64_t n) {
    long double s = 0, p = 1, mean = 0;
    double top = -(double)INFINITY, low = (double)INFINITY;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        s += x[i], p *= x[i];
        if (isnan(x[i]) || x[i] > top) top = isnan(top) ? top : x[i];
        if (isnan(x[i]) || x[i] < low) low = isnan(low) ? low : x[i];
        count += x[i] != 0;
    }
    mean = s / n;
    long double squares = 0, dev = 0, powers = 0;
    for (int64_t i = 0; i < n; i++)
        squares += (long double)x[i] * x[i], dev += (x[i] - mean) * (x[i] - mean),
            powers += powl(fabsl((long double)x[i]), (long double)order);
    switch (op) {
    case OP_sum: return (double)s;
    case OP_mean: return (double)mean;
    case OP_prod: return (double)p;
    case OP_amax: return top;
    case OP_amin: return low;
    case OP_count_nonzero: return (double)count;
    case OP_any: return count > 0;
    case OP_all: return count == n;
    case OP_var: return (double)(dev / (n > 1 ? n - 1 : 0));
    case OP_std: return sqrt((double)(dev / (n > 1 ? n - 1 : 0)));
    default: return order == 2 ? (double)sqrtl(squares) : (double)powl(powers, 1 / (long double)order);
    }
}

static void check_reduce(int op, double order, int dtype, int ndim, const int64_t *shape, uint64_t dims, Layout layout,
                         uint64_t *hash) {
    int64_t kept[4], n = 1, m = 1;
    for (int d = 0; d < ndim; d++) {
        bool reduced = dims >> d & 1;
        kept[d] = reduced ? 1 : shape[d];
        n *= reduced ? shape[d] : 1, m *= kept[d];
    }
    bool test = op == OP_any || op == OP_all, count = op == OP_count_nonzero;
    Array in = make(dtype, ndim, shape, layout), out = make(test    ? AMP_BOOL
                                                            : count ? AMP_INT64
                                                                    : dtype,
                                                            ndim, kept, draw() & 1 ? DENSE : MISALIGNED);
    fill_uniform(&in, op == OP_prod ? 0.9 : -1, op == OP_prod ? 1.1 : 1);
    Call call = {.op = (uint16_t)op, .nin = 1, .nout = 1, .in = {view(&in)}, .out = {view(&out)}, .dims = dims};
    if (op == OP_vector_norm || op == OP_var || op == OP_std)
        call.nnum = 1, call.num[0] = (Number){.f = op == OP_vector_norm ? order : 1, .kind = NUMBER_FLOAT};
    CHECK(amp_cpu_backend.reduce(&call) == AMP_OK, "reduce");
    double *x = malloc(sizeof *x * (size_t)(n + 1));
    for (int64_t k = 0; k < m; k++) {
        int64_t fill = 0;
        for (int64_t i = 0; i < in.v.numel; i++) {
            int64_t rest = i, place = 0, step = 1;
            for (int d = ndim - 1; d >= 0; d--) {
                if (!(dims >> d & 1)) place += rest % shape[d] * step, step *= shape[d];
                rest /= shape[d];
            }
            if (place == k) x[fill++] = get(&in, i);
        }
        double want = reduce_reference(op, order, x, n), got = get(&out, k), size = 0;
        for (int64_t i = 0; i < n; i++) size += fabs(x[i]);
        /* one rounding of the result; for float64 that of the additions, for sums of the others three to float32 */
        double slack = dtype == AMP_FLOAT64 ? 40 * 0x1p-53 * (size + 1) : 1e-12 * size;
        if (dtype != AMP_FLOAT64 && (op == OP_sum || op == OP_mean))
            slack += 3.1 * 0x1p-24 * size / (op == OP_mean ? (double)n : 1);
        CHECK(near_value(dtype, got, want, .501) || fabs(got - want) <= slack + .501 * ulp(dtype, want),
              "op %d %s n=%lld dims=%llx layout %d: %.17g, not %.17g", op, amp_dtype_info[dtype].name, (long long)n,
              (unsigned long long)dims, (int)layout, got, want);
        uint64_t bits;
        memcpy(&bits, &got, 8);
        *hash = *hash * 6364136223846793005u + bits;
    }
    free(x), free(in.memory), free(out.memory);
}

static uint64_t test_reduce(void) {
    static const int ops[] = {OP_sum, OP_mean, OP_prod, OP_amax, OP_amin, OP_count_nonzero, OP_any, OP_all, OP_var, OP_std};
    static const double orders[] = {1, 2, 3};
    uint64_t hash = 1;
    for (int k = 0; k < 13; k++)
        for (int f = 0; f < 4; f++) {
            int op = k < 10 ? ops[k] : OP_vector_norm;
            double order = k < 10 ? 0 : orders[k - 10];
            for (int64_t n = 1; n < 68; n += n < 20 ? 1 : 7)
                check_reduce(op, order, floats[f], 1, &n, 1, (Layout)(draw() % LAYOUTS), &hash);
            int64_t long_line = 9001, cube[3] = {5, 6, 7}, tall[2] = {600, 9};
            check_reduce(op, order, floats[f], 1, &long_line, 1, DENSE, &hash);
            for (uint64_t dims = 0; dims < 8; dims++)
                for (int layout = 0; layout < LAYOUTS; layout++)
                    check_reduce(op, order, floats[f], 3, cube, dims, (Layout)layout, &hash);
            check_reduce(op, order, floats[f], 2, tall, 1, DENSE, &hash);
        }
    return hash;
}

static void test_reduce_rest(void) {
    /* norms whose squares leave the range */
    int64_t n = 5, one = 1;
    static const double scales[] = {1e200, 1e-200, 1e-310};
    for (int s = 0; s < 3; s++) {
        Array in = make(AMP_FLOAT64, 1, &n, DENSE), out = make(AMP_FLOAT64, 1, &one, DENSE);
        for (int64_t i = 0; i < n; i++) set(&in, i, 3 * scales[s]);
        Call call = {.op = OP_vector_norm,
                     .nin = 1,
                     .nout = 1,
                     .nnum = 1,
                     .in = {view(&in)},
                     .out = {view(&out)},
                     .dims = 1,
                     .num = {{.f = 2, .kind = NUMBER_FLOAT}}};
        CHECK(amp_cpu_backend.reduce(&call) == AMP_OK, "norm");
        CHECK(fabs(get(&out, 0) / (3 * scales[s] * sqrt(5)) - 1) < 1e-9, "norm %g", get(&out, 0));
        free(in.memory), free(out.memory);
    }
    /* positions: first occurrence, NaN wins */
    int64_t shape[2] = {4, 6}, column[2] = {4, 1};
    static const double rows[4][6] = {
        {1, 5, 5, 2, 0, 0}, {0, (double)NAN, 9, (double)NAN, 0, 0}, {-1, -2, -1, -3, -4, -5}, {0, 0, 0, 0, 0, 0}};
    static const double top[4] = {1, 1, 0, 0}, low[4] = {4, 1, 5, 0};
    for (int f = 0; f < 4; f++)
        for (int layout = 0; layout < BROADCAST; layout++) {
            Array in = make(floats[f], 2, shape, (Layout)layout), value = make(floats[f], 2, column, DENSE),
                  index = make(AMP_INT64, 2, column, DENSE);
            for (int64_t i = 0; i < 24; i++) set(&in, i, rows[i / 6][i % 6]);
            Call call = {
                .op = OP_max_dim, .nin = 1, .nout = 2, .in = {view(&in)}, .out = {view(&value), view(&index)}, .dims = 2};
            CHECK(amp_cpu_backend.reduce(&call) == AMP_OK, "max_dim");
            for (int i = 0; i < 4; i++) {
                double want = rows[i][(int)top[i]];
                CHECK(get(&index, i) == top[i] && (get(&value, i) == want || isnan(want)), "row %d: %g at %g", i, get(&value, i),
                      get(&index, i));
            }
            call.op = OP_argmin, call.nout = 1, call.out[0] = view(&index);
            CHECK(amp_cpu_backend.reduce(&call) == AMP_OK, "argmin");
            for (int i = 0; i < 4; i++) CHECK(get(&index, i) == low[i], "argmin row %d: %g", i, get(&index, i));
            free(in.memory), free(value.memory), free(index.memory);
        }
    /* the same sum whatever the number of threads */
    int64_t big = 3000000;
    Array in = make(AMP_FLOAT64, 1, &big, DENSE), out = make(AMP_FLOAT64, 1, &one, DENSE);
    fill_uniform(&in, -1, 1);
    double sums[2];
    for (int t = 0; t < 2; t++) {
        amp_set_num_threads(t + 1);
        Call call = {.op = OP_sum, .nin = 1, .nout = 1, .in = {view(&in)}, .out = {view(&out)}, .dims = 1};
        CHECK(amp_cpu_backend.reduce(&call) == AMP_OK, "sum");
        sums[t] = get(&out, 0);
    }
    CHECK(sums[0] == sums[1], "%a with one thread, %a with two", sums[0], sums[1]);
    /* nothing to reduce */
    int64_t zero = 0;
    Array empty = make(AMP_FLOAT64, 1, &zero, DENSE);
    Call call = {.op = OP_sum, .nin = 1, .nout = 1, .in = {view(&empty)}, .out = {view(&out)}, .dims = 1};
    CHECK(amp_cpu_backend.reduce(&call) == AMP_OK && get(&out, 0) == 0, "empty sum");
    call.op = OP_prod;
    CHECK(amp_cpu_backend.reduce(&call) == AMP_OK && get(&out, 0) == 1, "empty product");
    call.op = OP_mean;
    CHECK(amp_cpu_backend.reduce(&call) == AMP_OK && isnan(get(&out, 0)), "empty mean");
    call.op = OP_amax;
    CHECK(amp_cpu_backend.reduce(&call) == AMP_EMPTY_REDUCE, "empty maximum");
    free(in.memory), free(out.memory), free(empty.memory);
}

/* ---- softmax, scans, indexing, arranging ---- */

static uint64_t test_softmax(void) {
    uint64_t hash = 1;
    static const int64_t widths[] = {1, 3, 8, 67, 1500};
    for (int f = 0; f < 4; f++)
        for (int w = 0; w < 5; w++)
            for (int layout = 0; layout < BROADCAST; layout++)
                for (int log_form = 0; log_form < 2; log_form++) {
                    int64_t shape[2] = {3, widths[w]}, n = widths[w];
                    Array x = make(floats[f], 2, shape, (Layout)layout), y = make(floats[f], 2, shape, DENSE),
                          g = make(floats[f], 2, shape, DENSE), d = make(floats[f], 2, shape, (Layout)layout);
                    fill_uniform(&x, -6, 6);
                    fill_uniform(&g, -1, 1);
                    Call call = {.op = log_form ? OP_log_softmax : OP_softmax,
                                 .nin = 1,
                                 .nout = 1,
                                 .in = {view(&x)},
                                 .out = {view(&y)},
                                 .dims = 2};
                    Call grad = {.op = log_form ? OP_log_softmax_grad : OP_softmax_grad,
                                 .nin = 2,
                                 .nout = 1,
                                 .in = {view(&g), view(&y)},
                                 .out = {view(&d)},
                                 .dims = 2};
                    CHECK(amp_cpu_backend.softmax(&call) == AMP_OK && amp_cpu_backend.softmax(&grad) == AMP_OK, "softmax");
                    bool single = floats[f] == AMP_FLOAT32;
                    double bound = floats[f] == AMP_FLOAT64 ? 20 : single ? 2 : 1.1;
                    for (int64_t r = 0; r < 3; r++) {
                        double sum = 0, dot = 0, total = 0, top = -(double)INFINITY;
                        for (int64_t i = 0; i < n; i++)
                            sum += exp(get(&x, r * n + i)), dot += get(&g, r * n + i) * get(&y, r * n + i),
                                total += get(&g, r * n + i), top = fmax(top, get(&x, r * n + i));
                        for (int64_t i = 0; i < n; i++) {
                            int64_t k = r * n + i;
                            double want = log_form ? get(&x, k) - log(sum) : exp(get(&x, k)) / sum, got = get(&y, k);
                            double want_d = log_form ? get(&g, k) - exp(got) * total : got * (get(&g, k) - dot),
                                   got_d = get(&d, k);
                            /* of float32: x - max is rounded before the exponential is taken, which has 1.5 units of its own */
                            double slack = !single ? 1e-8 : log_form ? 4 * 0x1p-24 : want * (top - get(&x, k) + 4) * 0x1p-24;
                            double slack_d = !single ? 1e-8 : log_form ? 4 * 0x1p-24 * fabs(exp(got) * total) : 1e-8;
                            if (floats[f] == AMP_FLOAT64) slack = slack_d = 1e-15;
                            CHECK(near_value(floats[f], got, want, single && !log_form ? 0 : bound) ||
                                      fabs(got - want) <= slack + (log_form && single ? 1.1 * ulp(AMP_FLOAT32, want) : 0),
                                  "softmax: %.17g, not %.17g", got, want);
                            CHECK(near_value(floats[f], got_d, want_d, bound) ||
                                      fabs(got_d - want_d) <= slack_d + 1.1 * ulp(floats[f], want_d),
                                  "gradient: %.17g, not %.17g", got_d, want_d);
                            uint64_t bits;
                            memcpy(&bits, &got, 8);
                            hash = hash * 6364136223846793005u + bits;
                        }
                    }
                    free(x.memory), free(y.memory), free(g.memory), free(d.memory);
                }
    return hash;
}

static void test_scan(void) {
    int64_t shape[2] = {3, 700};
    for (int f = 2; f < 4; f++)
        for (int layout = 0; layout < BROADCAST; layout++) {
            Array x = make(floats[f], 2, shape, (Layout)layout), y = make(floats[f], 2, shape, DENSE);
            fill_uniform(&x, -1, 1);
            Call call = {.op = OP_cumsum, .nin = 1, .nout = 1, .in = {view(&x)}, .out = {view(&y)}, .dims = 2};
            CHECK(amp_cpu_backend.scan(&call) == AMP_OK, "cumsum");
            for (int64_t r = 0; r < 3; r++) {
                double s = 0;
                for (int64_t i = 0; i < 700; i++) {
                    s += get(&x, r * 700 + i);
                    CHECK(near_value(floats[f], get(&y, r * 700 + i), s, .51), "cumsum: %.17g, not %.17g", get(&y, r * 700 + i),
                          s);
                }
            }
            free(x.memory), free(y.memory);
        }
}

static void test_index(void) {
    int64_t table_shape[3] = {5, 4, 3}, at[1] = {6}, out_shape[2] = {6, 3};
    static const double first[6] = {0, -1, 4, 2, 2, 0}, second[6] = {3, 0, -4, 1, 1, 3};
    for (int f = 0; f < 4; f++)
        for (int layout = 0; layout < BROADCAST; layout++) {
            Array t = make(floats[f], 3, table_shape, (Layout)layout), i = make(AMP_INT64, 1, at, DENSE),
                  j = make(AMP_INT64, 1, at, REVERSED), out = make(floats[f], 2, out_shape, (Layout)layout);
            for (int64_t k = 0; k < 60; k++) set(&t, k, (double)k);
            for (int64_t k = 0; k < 6; k++) set(&i, k, first[k]), set(&j, k, second[k]);
            const View *list[2] = {view(&i), view(&j)};
            Call call = {.op = OP_index, .nin = 1, .nout = 1, .in = {view(&t)}, .out = {view(&out)}, .list = list, .nlist = 2};
            CHECK(amp_cpu_backend.index(&call) == AMP_OK, "index");
            for (int64_t k = 0; k < 18; k++) {
                int64_t a = (int64_t)first[k / 3], b = (int64_t)second[k / 3];
                int64_t place = ((a < 0 ? a + 5 : a) * 4 + (b < 0 ? b + 4 : b)) * 3 + k % 3;
                CHECK(get(&out, k) == (double)place, "index %lld: %g", (long long)k, get(&out, k));
            }
            /* twice the same place: accumulate adds both, assign keeps the last */
            for (int64_t k = 0; k < 18; k++) set(&out, k, 1 + (double)(k / 3));
            Call put = {.op = OP_index_put,
                        .nin = 1,
                        .nout = 1,
                        .nnum = 1,
                        .in = {view(&out)},
                        .out = {view(&t)},
                        .list = list,
                        .nlist = 2,
                        .num = {{.i = 1, .f = 1, .kind = NUMBER_BOOL}}};
            CHECK(amp_cpu_backend.index_put(&put) == AMP_OK, "index_put");
            CHECK(get(&t, (2 * 4 + 1) * 3) == 27 + 4 + 5 && get(&t, 9) == 9 + 1 + 6, "accumulate: %g %g", get(&t, 27),
                  get(&t, 9));
            put.num[0].i = 0;
            CHECK(amp_cpu_backend.index_put(&put) == AMP_OK && get(&t, 27) == 5 && get(&t, 9) == 6, "assign: %g %g", get(&t, 27),
                  get(&t, 9));
            set(&i, 5, 5);
            set(&out, 0, 77);
            CHECK(amp_cpu_backend.index(&call) == AMP_BAD_INDEX && get(&out, 0) == 77, "index out of range");
            free(t.memory), free(i.memory), free(j.memory), free(out.memory);
        }
    int64_t shape[2] = {2, 4}, pick[2] = {2, 2};
    Array x = make(AMP_FLOAT32, 2, shape, TRANSPOSED), i = make(AMP_INT64, 2, pick, DENSE), y = make(AMP_FLOAT32, 2, pick, DENSE);
    for (int64_t k = 0; k < 8; k++) set(&x, k, (double)k);
    static const double columns[4] = {3, 0, 1, 1};
    for (int64_t k = 0; k < 4; k++) set(&i, k, columns[k]);
    Call call = {.op = OP_gather, .nin = 2, .nout = 1, .in = {view(&x), view(&i)}, .out = {view(&y)}, .dims = 2};
    CHECK(amp_cpu_backend.gather(&call) == AMP_OK && get(&y, 0) == 3 && get(&y, 1) == 0 && get(&y, 2) == 5 && get(&y, 3) == 5,
          "gather");
    Call scatter = {.op = OP_scatter_add, .nin = 2, .nout = 1, .in = {view(&y), view(&i)}, .out = {view(&x)}, .dims = 2};
    CHECK(amp_cpu_backend.gather(&scatter) == AMP_OK && get(&x, 5) == 15 && get(&x, 3) == 6, "scatter_add: %g %g", get(&x, 5),
          get(&x, 3));
    set(&i, 0, 4);
    CHECK(amp_cpu_backend.gather(&call) == AMP_BAD_POSITION, "gather out of range");
    free(x.memory), free(i.memory), free(y.memory);
}

static void test_arrange(void) {
    int64_t shape[3] = {2, 4, 5};
    for (int layout = 0; layout < BROADCAST; layout++)
        for (int64_t diagonal = -6; diagonal < 7; diagonal++) {
            Array x = make(AMP_BFLOAT16, 3, shape, (Layout)layout), y = make(AMP_BFLOAT16, 3, shape, DENSE);
            for (int64_t k = 0; k < 40; k++) set(&x, k, (double)k + 1);
            for (int upper = 0; upper < 2; upper++) {
                Call call = {.op = upper ? OP_triu : OP_tril,
                             .nin = 1,
                             .nout = 1,
                             .nnum = 1,
                             .in = {view(&x)},
                             .out = {view(&y)},
                             .num = {{.i = diagonal, .f = (double)diagonal, .kind = NUMBER_INT}}};
                CHECK(amp_cpu_backend.arrange(&call) == AMP_OK, "triangle");
                for (int64_t k = 0; k < 40; k++) {
                    int64_t row = k / 5 % 4, col = k % 5;
                    bool keep = upper ? col >= row + diagonal : col <= row + diagonal;
                    CHECK(get(&y, k) == (keep ? (double)k + 1 : 0), "triangle %d %lld at %lld: %g", upper, (long long)diagonal,
                          (long long)k, get(&y, k));
                }
            }
            Call flip = {.op = OP_flip, .nin = 1, .nout = 1, .in = {view(&x)}, .out = {view(&y)}, .dims = 5};
            CHECK(amp_cpu_backend.arrange(&flip) == AMP_OK, "flip");
            for (int64_t k = 0; k < 40; k++)
                CHECK(get(&y, k) == (double)((1 - k / 20) * 20 + k / 5 % 4 * 5 + 4 - k % 5) + 1, "flip");
            int64_t count = -1;
            set(&x, 7, 0), set(&x, 0, (double)NAN);
            Call nonzero = {.op = OP_nonzero, .nin = 1, .in = {view(&x)}, .extra = &count};
            CHECK(amp_cpu_backend.nonzero(&nonzero) == AMP_OK && count == 39, "count %lld", (long long)count);
            int64_t places[2] = {39, 3};
            Array p = make(AMP_INT64, 2, places, DENSE);
            nonzero.out[0] = view(&p), nonzero.nout = 1;
            CHECK(amp_cpu_backend.nonzero(&nonzero) == AMP_OK && get(&p, 7 * 3 + 1) == 1 && get(&p, 7 * 3 + 2) == 3, "positions");
            free(x.memory), free(y.memory), free(p.memory);
        }
    int64_t n = 11;
    Array x = make(AMP_FLOAT32, 1, &n, SPACED);
    Call call = {.op = OP_linspace,
                 .nout = 1,
                 .nnum = 2,
                 .out = {view(&x)},
                 .num = {{.f = 0, .kind = NUMBER_FLOAT}, {.f = 1, .kind = NUMBER_FLOAT}}};
    CHECK(amp_cpu_backend.arrange(&call) == AMP_OK && get(&x, 10) == 1 && get(&x, 3) == (double)0.3f, "linspace");
    Call range = {.op = OP_arange,
                  .nout = 1,
                  .nnum = 3,
                  .out = {view(&x)},
                  .num = {{.f = 1, .kind = NUMBER_FLOAT}, {.f = 2, .kind = NUMBER_FLOAT}, {.f = .1, .kind = NUMBER_FLOAT}}};
    CHECK(amp_cpu_backend.arrange(&range) == AMP_OK && get(&x, 0) == 1 && get(&x, 7) == (double)(float)1.7, "arange %g",
          get(&x, 7));
    free(x.memory);
}

static void test_views(void) {
    int64_t shape[3] = {2, 3, 4}, overlap[2] = {3, 4};
    Array a = make(AMP_FLOAT32, 3, shape, DENSE), b = make(AMP_FLOAT32, 2, overlap, DENSE);
    CHECK(!amp_has_internal_overlap(view(&a)), "dense");
    b.stride[0] = 2, b.stride[1] = 1;
    CHECK(amp_has_internal_overlap(view(&b)), "overlapping rows");
    b.stride[0] = 4, b.stride[1] = 0;
    CHECK(amp_has_internal_overlap(view(&b)), "expanded");
    const View *both[2] = {view(&a), view(&a)};
    int64_t merged[AMP_MAX_DIMS], strides[2][AMP_MAX_DIMS], out[8], wide[2] = {3, 1}, narrow[1] = {4};
    CHECK(amp_coalesce(2, both, merged, strides) == 1 && merged[0] == 24 && strides[1][0] == 1, "coalesce");
    CHECK(amp_broadcast_shapes(2, wide, 1, narrow, out) == 2 && out[0] == 3 && out[1] == 4, "broadcast");
    CHECK(amp_broadcast_shapes(2, overlap, 1, (int64_t[]){3}, out) == -1, "broadcast of 4 and 3");
    CHECK(amp_numel(2, (int64_t[]){INT64_MAX, 2}) == -1 &&
              amp_numel(3, (int64_t[]){INT64_MAX, 2, 0}) == -1 + 1 * (amp_numel(3, (int64_t[]){INT64_MAX, 2, 0}) == 0),
          "overflow");
    CHECK(amp_promote_dtypes(AMP_FLOAT16, AMP_BFLOAT16) == AMP_FLOAT32 && amp_promote_dtypes(AMP_UINT8, AMP_INT8) == AMP_INT16,
          "promotion");
    CHECK(amp_promote_dtypes(AMP_INT64, AMP_FLOAT16) == AMP_FLOAT16 &&
              amp_promote_dtypes(AMP_FLOAT64, AMP_COMPLEX64) == AMP_COMPLEX128,
          "promotion");
    free(a.memory), free(b.memory);
}

static uint64_t group(int k) {
    if (k == 0) return test_reduce();
    if (k == 1) return test_softmax();
    test_views();
    test_reduce_rest();
    test_scan();
    test_index();
    test_arrange();
    return 0;
}

int main(void) { return run_levels_fused(1 << 1, 3, group); }
