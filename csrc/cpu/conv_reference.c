/* Convolutions of every dtype by plain loops over the trilinear form: sums in fp64, exact 64-bit integers (wrapping), or complex. Also what
 * calls without any product come to. */
#include "cast.h"
#include "conv.h"

#include "../core/numeric_ops.h"

typedef struct Sum {
    double f;
    int64_t i;
    AmpComplex z;
} Sum;

typedef struct Loops {
    const Conv *c;
    int compute; /* FLOAT32, FLOAT64, INT64, COMPLEX128 */
} Loops;

static void read_element(const Loops *l, const char *tensor, int64_t at, Sum *v) {
    const int dtype = l->c->dtype;
    const char *p = tensor + at * (int64_t)amp_itemsize(dtype);
    if (l->compute == AMP_INT64) amp_convert(dtype, p, 0, AMP_INT64, (char *)&v->i, 0, 1);
    else if (l->compute == AMP_COMPLEX128) amp_convert(dtype, p, 0, AMP_COMPLEX128, (char *)&v->z, 0, 1);
    else amp_convert(dtype, p, 0, AMP_FLOAT64, (char *)&v->f, 0, 1);
    if (dtype == AMP_FLOAT32) v->f = (double)gemm_round_input((float)v->f, l->c->rounding);
}

static void write_element(const Loops *l, char *tensor, int64_t at, const Sum *v) {
    const int dtype = l->c->dtype;
    char *p = tensor + at * (int64_t)amp_itemsize(dtype);
    if (l->compute == AMP_INT64) amp_convert(AMP_INT64, (const char *)&v->i, 0, dtype, p, 0, 1);
    else if (l->compute == AMP_COMPLEX128) amp_convert(AMP_COMPLEX128, (const char *)&v->z, 0, dtype, p, 0, 1);
    else amp_convert(AMP_FLOAT64, (const char *)&v->f, 0, dtype, p, 0, 1);
}

static void add_product(const Loops *l, Sum *sum, const char *s, int64_t i, const char *t, int64_t k) {
    Sum a = {0}, b = {0};
    read_element(l, s, i, &a);
    read_element(l, t, k, &b);
    if (l->compute == AMP_INT64) sum->i = amp_i64_add(sum->i, amp_i64_mul(a.i, b.i));
    else if (l->compute == AMP_COMPLEX128) sum->z = amp_c128_add(sum->z, amp_c128_mul(a.z, b.z));
    else sum->f += a.f * b.f;
}

static Sum first_value(const Loops *l, int64_t channel) {
    Sum v = {0};
    const View *bias = l->c->bias;
    if (bias) read_element(l, bias->data, channel * bias->stride[0], &v);
    return v;
}

/* The pixel of the input that pixel q of the output and tap k meet; -1: none. */
static int64_t met_pixel(const Conv *c, int64_t q, int64_t k) {
    const int64_t out[3] = {q / (c->out[1] * c->out[2]), q / c->out[2] % c->out[1], q % c->out[2]};
    const int64_t tap[3] = {k / (c->kernel[1] * c->kernel[2]), k / c->kernel[2] % c->kernel[1], k % c->kernel[2]};
    int64_t pixel = 0;
    for (int d = 0; d < 3; d++) {
        const int64_t at = out[d] * c->stride[d] + tap[d] * c->dilation[d] - c->padding[d];
        if (at < 0 || at >= c->in[d]) return -1;
        pixel = pixel * c->in[d] + at;
    }
    return pixel;
}

/* The pixel of the output that pixel i of the input and tap k meet; -1: none. */
static int64_t met_output(const Conv *c, int64_t i, int64_t k) {
    const int64_t in[3] = {i / (c->in[1] * c->in[2]), i / c->in[2] % c->in[1], i % c->in[2]};
    const int64_t tap[3] = {k / (c->kernel[1] * c->kernel[2]), k / c->kernel[2] % c->kernel[1], k % c->kernel[2]};
    int64_t pixel = 0;
    for (int d = 0; d < 3; d++) {
        const int64_t at = in[d] + c->padding[d] - tap[d] * c->dilation[d];
        if (at < 0 || at % c->stride[d] || at / c->stride[d] >= c->out[d]) return -1;
        pixel = pixel * c->out[d] + at / c->stride[d];
    }
    return pixel;
}

static void output_channel(const Loops *l, int64_t image, int64_t group, int64_t o) {
    const Conv *c = l->c;
    const int64_t channel = group * c->out_channels + o;
    for (int64_t q = 0; q < c->out_pixels; q++) {
        Sum sum = first_value(l, channel);
        for (int64_t k = 0; k < c->taps; k++) {
            const int64_t pixel = met_pixel(c, q, k);
            for (int64_t i = 0; i < c->in_channels && pixel >= 0; i++)
                add_product(l, &sum, c->x, ((image * c->groups + group) * c->in_channels + i) * c->in_pixels + pixel, c->w,
                            (channel * c->in_channels + i) * c->taps + k);
        }
        write_element(l, c->y, (image * c->groups * c->out_channels + channel) * c->out_pixels + q, &sum);
    }
}

static void input_channel(const Loops *l, int64_t image, int64_t group, int64_t i) {
    const Conv *c = l->c;
    const int64_t channel = group * c->in_channels + i;
    for (int64_t pixel = 0; pixel < c->in_pixels; pixel++) {
        Sum sum = first_value(l, channel);
        for (int64_t k = 0; k < c->taps; k++) {
            const int64_t q = met_output(c, pixel, k);
            for (int64_t o = 0; o < c->out_channels && q >= 0; o++)
                add_product(l, &sum, c->y, ((image * c->groups + group) * c->out_channels + o) * c->out_pixels + q, c->w,
                            ((group * c->out_channels + o) * c->in_channels + i) * c->taps + k);
        }
        write_element(l, c->x, (image * c->groups * c->in_channels + channel) * c->in_pixels + pixel, &sum);
    }
}

static void weight_channel(const Loops *l, int64_t group, int64_t o, int64_t i) {
    const Conv *c = l->c;
    const int64_t channel = group * c->out_channels + o;
    for (int64_t k = 0; k < c->taps; k++) {
        Sum sum = {0};
        for (int64_t image = 0; image < c->images; image++)
            for (int64_t q = 0; q < c->out_pixels; q++) {
                const int64_t pixel = met_pixel(c, q, k);
                if (pixel < 0) continue;
                add_product(l, &sum, c->y, (image * c->groups * c->out_channels + channel) * c->out_pixels + q, c->x,
                            ((image * c->groups + group) * c->in_channels + i) * c->in_pixels + pixel);
            }
        write_element(l, c->w, (channel * c->in_channels + i) * c->taps + k, &sum);
    }
}

static void run_channels(void *ctx, int64_t begin, int64_t end) {
    const Loops *l = ctx;
    const Conv *c = l->c;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t inner = c->kind == CONV_INPUT ? c->in_channels : c->out_channels;
        if (c->kind == CONV_WEIGHT) {
            const int64_t i = unit % c->in_channels, o = unit / c->in_channels % c->out_channels;
            weight_channel(l, unit / (c->in_channels * c->out_channels), o, i);
        } else if (c->kind == CONV_OUTPUT) {
            output_channel(l, unit / (inner * c->groups), unit / inner % c->groups, unit % inner);
        } else {
            input_channel(l, unit / (inner * c->groups), unit / inner % c->groups, unit % inner);
        }
    }
}

Status conv_reference(const Conv *c) {
    Loops l = {c, amp_compute_dtype(c->dtype)};
    int64_t units = c->groups * c->images * (c->kind == CONV_INPUT ? c->in_channels : c->out_channels);
    if (c->kind == CONV_WEIGHT) units = c->groups * c->in_channels * c->out_channels;
    amp_parallel_for(units, 1, run_channels, &l);
    return AMP_OK;
}
