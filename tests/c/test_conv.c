/* Convolutions and windows against plain loops, on memory of exactly the size that the tensors need, at every instruction-set level. */
#include "../../csrc/cpu/conv.h"
#include "kernel_support.h"

typedef struct Dense {
    View v;
    int64_t shape[5], stride[5];
    char *memory;
} Dense;

/* Values are small integers over 8: sums of their products are exact in fp32, so that every path must give the same bits. */
static void dense(Dense *t, int dtype, int ndim, const int64_t *shape, int misaligned) {
    t->v = (View){.ndim = (int8_t)ndim, .dtype = (int8_t)dtype, .numel = 1, .layout = LAYOUT_CONTIGUOUS};
    for (int d = 0; d < ndim; d++) t->shape[d] = shape[d], t->v.numel *= shape[d];
    amp_contiguous_strides(ndim, t->shape, t->stride);
    t->v.shape = t->shape, t->v.stride = t->stride;
    const size_t item = amp_itemsize(dtype);
    t->memory = malloc((size_t)t->v.numel * item + (size_t)misaligned);
    t->v.data = t->memory + misaligned;
    for (int64_t i = 0; i < t->v.numel; i++) {
        const double x = (double)((int64_t)(draw() % 17) - 8) / (amp_is_floating(dtype) ? 8 : 1);
        amp_convert(AMP_FLOAT64, (const char *)&x, 0, dtype, t->v.data + i * (int64_t)item, 0, 1);
    }
}

typedef struct Case {
    int spatial;
    int64_t images, groups, in_channels, out_channels, in[3], kernel[3];
    ConvShape s;
} Case;

static Case draw_case(void) {
    Case c = {.spatial = 1 + (int)(draw() % 3),
              .images = 1 + (int64_t)(draw() % 3),
              .groups = draw() % 3 ? 1 : 1 + (int64_t)(draw() % 4)};
    c.in_channels = draw() % 3 ? 1 + (int64_t)(draw() % 9) : 1;
    c.out_channels = draw() % 3 ? 1 + (int64_t)(draw() % 20) : 1 + (int64_t)(draw() % 2);
    if (draw() % 12 == 0) c.in_channels = 70 + (int64_t)(draw() % 40); /* several blocks of the inner dimension */
    c.s.groups = c.groups;
    for (int d = 0; d < c.spatial; d++) {
        c.kernel[d] = 1 + (int64_t)(draw() % 4);
        c.s.stride[d] = draw() & 1 ? 1 : 1 + (int64_t)(draw() % 3);
        c.s.dilation[d] = draw() & 1 ? 1 : 1 + (int64_t)(draw() % 3);
        c.s.padding[d] = (int64_t)(draw() % 4);
        const int64_t least = (c.kernel[d] - 1) * c.s.dilation[d] + 1 - 2 * c.s.padding[d];
        c.in[d] = 1 + (int64_t)(draw() % (c.spatial == 3 ? 6 : d == c.spatial - 1 ? 60 : 12));
        if (c.in[d] < least) c.in[d] = least;
    }
    return c;
}

/* Kinds from `first` on. */
static void check_case(const Case *c, int dtype, int first, uint64_t *hash) {
    static const int ops[] = {OP_convolution, OP_conv_input, OP_conv_weight};
    int64_t x[5] = {c->images, c->groups * c->in_channels}, w[5] = {c->groups * c->out_channels, c->in_channels};
    int64_t y[5] = {c->images, c->groups * c->out_channels};
    for (int d = 0; d < c->spatial; d++) {
        x[d + 2] = c->in[d], w[d + 2] = c->kernel[d];
        y[d + 2] = (c->in[d] + 2 * c->s.padding[d] - (c->kernel[d] - 1) * c->s.dilation[d] - 1) / c->s.stride[d] + 1;
    }
    for (int kind = first; kind < 3; kind++) {
        const int64_t *const shapes[3][3] = {{x, w, y}, {y, w, x}, {y, x, w}};
        Dense a, b, bias, got, want;
        ConvShape s = c->s;
        const int misaligned = draw() % 3 == 0, ndim = c->spatial + 2;
        dense(&a, dtype, ndim, shapes[kind][0], misaligned);
        dense(&b, dtype, ndim, shapes[kind][1], misaligned);
        dense(&got, dtype, ndim, shapes[kind][2], misaligned);
        dense(&want, dtype, ndim, shapes[kind][2], 0);
        dense(&bias, dtype, 1, shapes[kind][2] + 1, 0);
        Call call = {.op = (uint16_t)ops[kind], .nin = 3, .nout = 1, .in = {&a.v, &b.v}, .out = {&got.v}, .extra = &s};
        if (kind != 2 && draw() & 1) call.in[2] = &bias.v;
        call.numerics.fp32_inputs = draw() & 1 ? INPUT_TF32 : INPUT_IEEE; /* the values are exact in TF32 */
        CHECK(amp_cpu_backend.conv(&call) == AMP_OK && tiles_are_free(), "conv");
        call.out[0] = &want.v;
        CHECK(amp_conv_reference(&call) == AMP_OK, "reference");
        const size_t bytes = (size_t)got.v.numel * amp_itemsize(dtype);
        int64_t at = 0;
        for (const size_t item = amp_itemsize(dtype); at < got.v.numel; at++) {
            double p, q;
            amp_convert(dtype, got.v.data + at * (int64_t)item, 0, AMP_FLOAT64, (char *)&p, 0, 1);
            amp_convert(dtype, want.v.data + at * (int64_t)item, 0, AMP_FLOAT64, (char *)&q, 0, 1);
            if (p != q) break;
        }
        CHECK(at == got.v.numel, "%s, kind %d, %d spatial, groups %lld, channels %lld %lld, element %lld",
              amp_dtype_info[dtype].name, kind, c->spatial, (long long)c->groups, (long long)c->in_channels,
              (long long)c->out_channels, (long long)at);
        for (size_t i = 0; i < bytes; i++) *hash = *hash * 31 + (uint8_t)got.v.data[i];
        free(a.memory), free(b.memory), free(got.memory), free(want.memory), free(bias.memory);
    }
}

static uint64_t test_conv(void) {
    static const int dtypes[] = {AMP_FLOAT32, AMP_FLOAT16, AMP_BFLOAT16, AMP_FLOAT64, AMP_INT32};
    uint64_t hash = 0;
    for (int i = 0; i < 60; i++) {
        const Case c = draw_case();
        for (int k = 0; k < 5; k++) check_case(&c, dtypes[k], 0, &hash);
    }
    return hash;
}

/* What conv_padded.c takes: stride 1, rows long enough; several bands and several blocks of channels. */
static uint64_t test_padded(void) {
    static const int64_t channels[] = {1, 3, 16, 70, 9, 2};
    uint64_t hash = 0;
    for (int i = 0; i < 6; i++) {
        Case c = {.spatial = i == 5 ? 1 : 2, .images = 1 + (int64_t)(draw() % 2), .groups = 1 + (i == 1)};
        c.in_channels = channels[i];
        c.out_channels = 1 + (int64_t)(draw() % 20);
        c.s.groups = c.groups;
        for (int d = 0; d < c.spatial; d++) {
            const bool last = d == c.spatial - 1;
            c.kernel[d] = last ? 2 + (int64_t)(draw() % 4) : 1 + (int64_t)(draw() % 5);
            c.s.stride[d] = 1;
            c.s.dilation[d] = draw() % 3 ? 1 : 2;
            c.s.padding[d] = (int64_t)(draw() % 4);
            c.in[d] = last ? 28 + (int64_t)(draw() % 50) : 9 + (int64_t)(draw() % (i == 2 ? 40 : 12));
        }
        for (int k = 0; k < 4; k++) check_case(&c, floats[k], 0, &hash);
    }
    return hash;
}

/* What conv_weight_padded.c takes: several chunks and bands; pieces of long rows; tiles of taps and of channels; groups; several panels
 * and strips of outputs; several copies of a block. */
static uint64_t test_padded_weight(void) {
    static const Case cases[] = {
        {2, 8, 1, 1, 6, {28, 28}, {5, 5}, {.groups = 1, .stride = {1, 1}, .dilation = {1, 1}}},
        {2, 1, 1, 1, 3, {2, 1100}, {2, 3}, {.groups = 1, .stride = {1, 1}, .dilation = {1, 2}, .padding = {1, 2}}},
        {2, 1, 2, 5, 40, {12, 14}, {3, 3}, {.groups = 2, .stride = {1, 1}, .dilation = {1, 1}, .padding = {1, 1}}},
        {2, 1, 1, 17, 130, {10, 12}, {1, 3}, {.groups = 1, .stride = {1, 1}, .dilation = {1, 1}}},
        {2, 1, 1, 72, 1, {33, 51}, {2, 2}, {.groups = 1, .stride = {1, 1}, .dilation = {3, 1}}},
        {1, 40, 1, 2, 5, {70}, {17}, {.groups = 1, .stride = {1}, .dilation = {1}, .padding = {3}}},
    };
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 4; k++) check_case(&cases[i], floats[k], 2, &hash);
    return hash;
}

/* Sums that are rounded must not depend on the number of threads. */
static uint64_t test_threads(void) {
    static const int64_t shapes[][7] = {{9, 1, 8, 28, 28, 5, 2}, {3, 40, 24, 16, 30, 3, 1}, {1, 64, 8, 20, 20, 3, 0}};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++) {
            const int64_t *d = shapes[i], side = 2 * d[6] + 1 - d[5];
            const int64_t x[4] = {d[0], d[1], d[3], d[4]}, y[4] = {d[0], d[2], d[3] + side, d[4] + side},
                          w[4] = {d[2], d[1], d[5], d[5]};
            ConvShape s = {.stride = {1, 1}, .padding = {d[6], d[6]}, .dilation = {1, 1}, .groups = 1};
            Dense a, b, one, many;
            dense(&a, floats[k], 4, y, 0), dense(&b, floats[k], 4, x, 0), dense(&one, floats[k], 4, w, 0),
                dense(&many, floats[k], 4, w, 0);
            for (int64_t j = 0; j < a.v.numel; j++) {
                const double third = (double)((int64_t)(draw() % 2001) - 1000) / 300;
                amp_convert(AMP_FLOAT64, (const char *)&third, 0, floats[k], a.v.data + j * (int64_t)amp_itemsize(floats[k]), 0,
                            1);
            }
            Call call = {.op = OP_conv_weight, .nin = 2, .nout = 1, .in = {&a.v, &b.v}, .out = {&one.v}, .extra = &s};
            const int threads = amp_get_num_threads();
            amp_set_num_threads(1);
            CHECK(amp_cpu_backend.conv(&call) == AMP_OK, "one thread");
            amp_set_num_threads(5);
            call.out[0] = &many.v;
            CHECK(amp_cpu_backend.conv(&call) == AMP_OK && tiles_are_free(), "five threads");
            amp_set_num_threads(threads);
            CHECK(!memcmp(one.v.data, many.v.data, (size_t)one.v.numel * amp_itemsize(floats[k])), "%s, shape %d: threads",
                  amp_dtype_info[floats[k]].name, i);
            free(a.memory), free(b.memory), free(one.memory), free(many.memory);
        }
    return 0;
}

/* The last column of x is NaN and meets the last tap of a row only. */
static uint64_t test_last_column(void) {
    for (int k = 0; k < 4; k++)
        for (int64_t width = 8; width < 24; width += 5) {
            const int64_t x[4] = {2, 2, 6, width}, w[4] = {3, 2, 3, 3}, y[4] = {2, 3, 4, width - 2},
                          item = (int64_t)amp_itemsize(floats[k]);
            ConvShape s = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
            Dense a, b, out;
            dense(&a, floats[k], 4, y, 0), dense(&b, floats[k], 4, x, 0), dense(&out, floats[k], 4, w, 0);
            const double nan = (double)NAN;
            for (int64_t i = width - 1; i < b.v.numel; i += width)
                amp_convert(AMP_FLOAT64, (const char *)&nan, 0, floats[k], b.v.data + i * item, 0, 1);
            Call call = {.op = OP_conv_weight, .nin = 2, .nout = 1, .in = {&a.v, &b.v}, .out = {&out.v}, .extra = &s};
            CHECK(amp_cpu_backend.conv(&call) == AMP_OK && tiles_are_free(), "conv");
            for (int64_t i = 0; i < out.v.numel; i++) {
                double v;
                amp_convert(floats[k], out.v.data + i * item, 0, AMP_FLOAT64, (char *)&v, 0, 1);
                CHECK(isnan(v) == (i % 3 == 2), "width %lld, weight %lld is %g", (long long)width, (long long)i, v);
            }
            free(a.memory), free(b.memory), free(out.memory);
        }
    return 0;
}

/* What lies beyond runs of an image must not reach a result: not even as 0 * NaN. */
static uint64_t test_neighbours(void) {
    for (int kind = 0; kind < 2; kind++)
        for (int k = 0; k < 4; k++) {
            const int64_t x[4] = {2, 2, 3, 5}, w[4] = {3, 2, 3, 3}, y[4] = {2, 3, 3, 5};
            Dense a, b, out;
            ConvShape s = {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
            dense(&a, floats[k], 4, kind ? y : x, 0);
            dense(&b, floats[k], 4, w, 0);
            dense(&out, floats[k], 4, kind ? x : y, 0);
            const double nan = (double)NAN;
            const int64_t half = a.v.numel / 2; /* the second image */
            for (int64_t i = half; i < a.v.numel; i++)
                amp_convert(AMP_FLOAT64, (const char *)&nan, 0, floats[k], a.v.data + i * (int64_t)amp_itemsize(floats[k]), 0, 1);
            Call call = {.op = kind ? OP_conv_input : OP_convolution,
                         .nin = 2,
                         .nout = 1,
                         .in = {&a.v, &b.v},
                         .out = {&out.v},
                         .extra = &s};
            CHECK(amp_cpu_backend.conv(&call) == AMP_OK && tiles_are_free(), "conv");
            for (int64_t i = 0; i < out.v.numel; i++) {
                double v;
                amp_convert(floats[k], out.v.data + i * (int64_t)amp_itemsize(floats[k]), 0, AMP_FLOAT64, (char *)&v, 0, 1);
                CHECK(isnan(v) == (i >= out.v.numel / 2), "element %lld is %g", (long long)i, v);
            }
            free(a.memory), free(b.memory), free(out.memory);
        }
    return 0;
}

static uint64_t test_windows(void) {
    uint64_t hash = 0;
    for (int i = 0; i < 40; i++) {
        ConvShape s = {.groups = 1};
        int64_t image[4] = {1 + (int64_t)(draw() % 2), 1 + (int64_t)(draw() % 3)}, count[2], columns[3];
        for (int d = 0; d < 2; d++) {
            s.kernel[d] = 1 + (int64_t)(draw() % 3), s.stride[d] = 1 + (int64_t)(draw() % 3);
            s.dilation[d] = 1 + (int64_t)(draw() % 2), s.padding[d] = (int64_t)(draw() % 3);
            image[d + 2] = (s.kernel[d] - 1) * s.dilation[d] + 1 + (int64_t)(draw() % 9);
            count[d] = (image[d + 2] + 2 * s.padding[d] - (s.kernel[d] - 1) * s.dilation[d] - 1) / s.stride[d] + 1;
        }
        columns[0] = image[0], columns[1] = image[1] * s.kernel[0] * s.kernel[1], columns[2] = count[0] * count[1];
        Dense x, c, back;
        const int dtype = floats[draw() % 4];
        dense(&x, dtype, 4, image, 0), dense(&c, dtype, 3, columns, 0), dense(&back, dtype, 4, image, 0);
        Call call = {.op = OP_im2col, .nin = 1, .nout = 1, .nnum = 2, .in = {&x.v}, .out = {&c.v}, .extra = &s};
        for (int d = 0; d < 2; d++) call.num[d] = (Number){.f = (double)count[d], .i = count[d], .kind = NUMBER_INT};
        CHECK(amp_cpu_backend.fold(&call) == AMP_OK, "im2col");
        call.op = OP_col2im, call.in[0] = &c.v, call.out[0] = &back.v;
        CHECK(amp_cpu_backend.fold(&call) == AMP_OK, "col2im");
        for (size_t k = 0; k < (size_t)c.v.numel * amp_itemsize(dtype); k++) hash = hash * 31 + (uint8_t)c.v.data[k];
        for (size_t k = 0; k < (size_t)back.v.numel * amp_itemsize(dtype); k++) hash = hash * 31 + (uint8_t)back.v.data[k];
        free(x.memory), free(c.memory), free(back.memory);
    }
    return hash;
}

static uint64_t group(int k) {
    static uint64_t (*const tests[])(void) = {test_conv,        test_padded,     test_padded_weight, test_threads,
                                              test_last_column, test_neighbours, test_windows};
    return tests[k]();
}

int main(void) { return run_levels(7, group); }
