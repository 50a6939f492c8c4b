/* im2col and col2im: the windows of an image as columns, and back, adding up.
 *
 *     row (c, kernel row, kernel column) of the columns, window (h, w)   <->   pixel of channel c
 */
#include "cast.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_backend.h"

#include "../core/numeric_ops.h"
#include "../core/ops.h"

typedef struct Windows {
    const ConvShape *s;
    char *columns, *image; /* one of them is written */
    int dtype;
    int64_t item, size[2], count[2], taps;
    atomic_int status;
} Windows;

/* First and past the last window w for which  w * stride + at  lies in the image. */
static void inside(const Windows *f, int d, int64_t at, int64_t *first, int64_t *past) {
    const int64_t stride = f->s->stride[d];
    *first = at >= 0 ? 0 : (-at + stride - 1) / stride;
    *past = at < f->size[d] ? (f->size[d] - 1 - at) / stride + 1 : 0;
    if (*past > f->count[d]) *past = f->count[d];
    if (*past < *first) *past = *first;
}

/* Units: rows of the columns. */
static void write_columns(void *ctx, int64_t begin, int64_t end) {
    const Windows *f = ctx;
    for (int64_t row = begin; row < end; row++) {
        const int64_t tap = row % f->taps, stride = f->s->stride[1];
        const int64_t y = tap / f->s->kernel[1] * f->s->dilation[0] - f->s->padding[0];
        const int64_t x = tap % f->s->kernel[1] * f->s->dilation[1] - f->s->padding[1];
        const char *plane = f->image + row / f->taps * f->size[0] * f->size[1] * f->item;
        char *dst = f->columns + row * f->count[0] * f->count[1] * f->item;
        int64_t first, past;
        inside(f, 1, x, &first, &past);
        memset(dst, 0, (size_t)(f->count[0] * f->count[1] * f->item));
        for (int64_t h = 0; h < f->count[0]; h++, dst += f->count[1] * f->item) {
            const int64_t line = h * f->s->stride[0] + y;
            if (line < 0 || line >= f->size[0] || first == past) continue;
            const char *src = plane + (line * f->size[1] + first * stride + x) * f->item;
            if (stride == 1) memcpy(dst + first * f->item, src, (size_t)((past - first) * f->item));
            else
                for (int64_t w = first; w < past; w++, src += stride * f->item) memcpy(dst + w * f->item, src, (size_t)f->item);
        }
    }
}

#define ADD_LINE(T, plus) \
    { \
        T *to = (T *)(void *)sum + at * step; \
        const T *from = (const T *)(const void *)line; \
        for (int64_t i = 0; i < m; i++) { \
            const T a = to[i * step], b = from[i]; \
            to[i * step] = plus; \
        } \
        break; \
    }

/* sum (compute type) += the windows w of one row of columns */
static void add_windows(const Windows *f, int compute, char *sum, int64_t step, const char *src, int64_t n) {
    _Alignas(16) char line[AMP_STRIP * AMP_MAX_ITEM];
    for (int64_t at = 0; at < n; at += AMP_STRIP) {
        const int64_t m = n - at < AMP_STRIP ? n - at : AMP_STRIP;
        amp_convert(f->dtype, src + at * f->item, f->item, compute, line, (int64_t)amp_itemsize(compute), m);
        switch (compute) {
        case AMP_FLOAT32: ADD_LINE(float, a + b);
        case AMP_FLOAT64: ADD_LINE(double, a + b);
        case AMP_INT64: ADD_LINE(int64_t, amp_i64_add(a, b));
        default: ADD_LINE(AmpComplex, amp_c128_add(a, b));
        }
    }
}

/* Units: rows of the image, each summed in the compute type: taps in order. */
static void write_images(void *ctx, int64_t begin, int64_t end) {
    Windows *f = ctx;
    const int compute = amp_compute_dtype(f->dtype);
    const int64_t wide = (int64_t)amp_itemsize(compute);
    char *sum = malloc((size_t)(f->size[1] * wide));
    if (!sum) {
        atomic_store(&f->status, AMP_NO_MEMORY);
        return;
    }
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t plane = unit / f->size[0], line = unit % f->size[0];
        char *dst = f->image + unit * f->size[1] * f->item;
        memset(sum, 0, (size_t)(f->size[1] * wide));
        for (int64_t tap = 0; tap < f->taps; tap++) {
            const int64_t up = line - (tap / f->s->kernel[1] * f->s->dilation[0] - f->s->padding[0]);
            const int64_t x = tap % f->s->kernel[1] * f->s->dilation[1] - f->s->padding[1], h = up / f->s->stride[0];
            int64_t first, past;
            if (up < 0 || up % f->s->stride[0] || h >= f->count[0]) continue;
            inside(f, 1, x, &first, &past);
            if (first == past) continue;
            const char *src = f->columns + (((plane * f->taps + tap) * f->count[0] + h) * f->count[1] + first) * f->item;
            add_windows(f, compute, sum + (first * f->s->stride[1] + x) * wide, f->s->stride[1], src, past - first);
        }
        amp_convert(compute, sum, wide, f->dtype, dst, f->item, f->size[1]);
    }
    free(sum);
}

Status amp_fold(const Call *call) {
    const bool columns = call->op == OP_im2col;
    const View *image = columns ? call->in[0] : call->out[0];
    Windows f = {.s = call->extra,
                 .columns = columns ? call->out[0]->data : call->in[0]->data,
                 .image = image->data,
                 .dtype = image->dtype,
                 .item = (int64_t)amp_itemsize(image->dtype),
                 .size = {image->shape[2], image->shape[3]},
                 .count = {call->num[0].i, call->num[1].i}};
    atomic_init(&f.status, AMP_OK);
    f.taps = f.s->kernel[0] * f.s->kernel[1];
    if (!call->out[0]->numel) return AMP_OK;
    const int64_t planes = image->shape[0] * image->shape[1], units = columns ? planes * f.taps : planes * f.size[0];
    const int64_t work = call->out[0]->numel / units + 1;
    amp_parallel_for(units, 16384 / work + 1, columns ? write_columns : write_images, &f);
    return (Status)atomic_load(&f.status);
}
