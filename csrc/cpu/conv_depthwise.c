/* One input channel per group: each plane of the output's side meets one plane of the input. Planes are widened to the compute type,
 * worked on row by row and rounded once; a thread takes whole planes (the weight gradient: whole channels). */
#include "vectorize.h"

#include <stdatomic.h>

#include "conv.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* How a row of the kernel lies over rows of the image. */
typedef struct Taps {
    int64_t taps, base, step, dilation;
} Taps;

typedef struct RowsF32 {
    void (*read)(float *y, int64_t n, const float *x, int64_t extent, const float *w, const Taps *t);
    void (*write)(float *x, int64_t extent, const float *y, int64_t n, const float *w, const Taps *t);
    void (*sum)(float *w, const float *y, int64_t n, const float *x, int64_t extent, const Taps *t);
} RowsF32;
typedef struct RowsF64 {
    void (*read)(double *y, int64_t n, const double *x, int64_t extent, const double *w, const Taps *t);
    void (*write)(double *x, int64_t extent, const double *y, int64_t n, const double *w, const Taps *t);
    void (*sum)(double *w, const double *y, int64_t n, const double *x, int64_t extent, const Taps *t);
} RowsF64;

#define S       float
#define K(name) name##_f32
#define TARGET
#include "conv_rows.h"
#if defined(__x86_64__)
#define K(name) name##_f32_avx2
#define TARGET  __attribute__((target("avx2")))
#include "conv_rows.h"
#define K(name) name##_f32_avx512
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512")))
#include "conv_rows.h"
#endif
#undef S
#define S       double
#define K(name) name##_f64
#define TARGET
#include "conv_rows.h"
#if defined(__x86_64__)
#define K(name) name##_f64_avx2
#define TARGET  __attribute__((target("avx2")))
#include "conv_rows.h"
#endif

#if defined(__x86_64__)
/* ---- AVX-512, step 1: masks instead of ragged ends ---- */

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

/* Lanes i of [at, at + 16) for which  0 <= i + shift < extent. */
AVX512 static inline __attribute__((always_inline)) __mmask16 lanes_inside(int64_t at, int64_t shift, int64_t extent) {
    const int64_t low = -(at + shift), high = extent - (at + shift);
    if (low <= 0 && high >= 16) return 0xffff;
    if (low >= 16 || high <= 0) return 0;
    const unsigned below = low > 0 ? (1u << low) - 1 : 0, above = high < 16 ? (1u << high) - 1 : 0xffffu;
    return (__mmask16)(above & ~below);
}

/* to[i] += w[k] * from[i + first + k * step] where there is such an element; `to` in registers over all k. */
AVX512 static void correlate(float *to, int64_t n, const float *from, int64_t extent, const float *w, int64_t taps, int64_t first,
                             int64_t step) {
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 there = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        __m512 sum = _mm512_maskz_loadu_ps(there, to + i);
        for (int64_t k = 0; k < taps; k++) {
            const int64_t shift = first + k * step;
            const __mmask16 m = lanes_inside(i, shift, extent) & there;
            const __m512 product = _mm512_mul_ps(_mm512_set1_ps(w[k]), _mm512_maskz_loadu_ps(m, from + i + shift));
            sum = _mm512_mask_add_ps(sum, m, sum, product);
        }
        _mm512_mask_storeu_ps(to + i, there, sum);
    }
}

AVX512 static void read_f32_masked(float *y, int64_t n, const float *x, int64_t extent, const float *w, const Taps *t) {
    if (t->step == 1) correlate(y, n, x, extent, w, t->taps, t->base, t->dilation);
    else read_f32_avx512(y, n, x, extent, w, t);
}

AVX512 static void write_f32_masked(float *x, int64_t extent, const float *y, int64_t n, const float *w, const Taps *t) {
    if (t->step == 1) correlate(x, extent, y, n, w, t->taps, -t->base, -t->dilation);
    else write_f32_avx512(x, extent, y, n, w, t);
}

AVX512 static void sum_f32_masked(float *w, const float *y, int64_t n, const float *x, int64_t extent, const Taps *t) {
    if (t->step != 1) {
        sum_f32_avx512(w, y, n, x, extent, t);
        return;
    }
    for (int64_t k = 0; k < t->taps; k++) {
        const int64_t shift = t->base + k * t->dilation;
        __m512 sum = _mm512_setzero_ps();
        for (int64_t i = 0; i < n; i += 16) {
            const __mmask16 there = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
            const __mmask16 m = lanes_inside(i, shift, extent) & there;
            sum = _mm512_add_ps(sum, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, y + i), _mm512_maskz_loadu_ps(m, x + i + shift)));
        }
        w[k] += _mm512_reduce_add_ps(sum);
    }
}
#endif

static RowsF32 rows_f32(void) {
#if defined(__x86_64__)
    if (amp_isa() >= ISA_AVX512) return (RowsF32){read_f32_masked, write_f32_masked, sum_f32_masked};
    if (amp_isa() >= ISA_AVX2) return (RowsF32){read_f32_avx2, write_f32_avx2, sum_f32_avx2};
#endif
    return (RowsF32){read_f32, write_f32, sum_f32};
}

static RowsF64 rows_f64(void) {
#if defined(__x86_64__)
    if (amp_isa() >= ISA_AVX2) return (RowsF64){read_f64_avx2, write_f64_avx2, sum_f64_avx2};
#endif
    return (RowsF64){read_f64, write_f64, sum_f64};
}

typedef struct Depthwise {
    const Conv *c;
    RowsF32 f32;
    RowsF64 f64;
    int64_t size;
    atomic_int status;
} Depthwise;

/* The thread's memory: a plane of the input, one of the output, weights and their sums. */
typedef struct Planes {
    char *x, *y, *w, *sum;
} Planes;

static bool reserve(Depthwise *p, Planes *planes) {
    const Conv *c = p->c;
    const int64_t x = c->in_pixels * p->size, y = c->out_pixels * p->size, w = c->taps * p->size;
    char *base = gemm_scratch((size_t)(x + y + 2 * w + 4 * 64));
    if (!base) {
        atomic_store(&p->status, AMP_NO_MEMORY);
        return false;
    }
    *planes = (Planes){.x = base};
    planes->y = planes->x + conv_divide_up(x, 64) * 64;
    planes->w = planes->y + conv_divide_up(y, 64) * 64;
    planes->sum = planes->w + conv_divide_up(w, 64) * 64;
    return true;
}

/* n elements in the compute type */
static void load(const Depthwise *p, char *dst, const char *tensor, int64_t first, int64_t n) {
    const char *src = tensor + first * (int64_t)amp_itemsize(p->c->dtype);
    if (p->size == 8) memcpy(dst, src, (size_t)(n * 8));
    else gemm_widen(p->c->dtype, p->c->rounding)((float *)(void *)dst, 0, src, 0, 1, n);
}

static void store(const Depthwise *p, char *tensor, int64_t first, const char *src, int64_t n) {
    char *dst = tensor + first * (int64_t)amp_itemsize(p->c->dtype);
    if (p->size == 8) memcpy(dst, src, (size_t)(n * 8));
    else gemm_narrow(p->c->dtype)(dst, 0, (const float *)(const void *)src, 0, 1, n);
}

static void fill(const Depthwise *p, char *plane, int64_t n, double value) {
    if (p->size == 8)
        for (int64_t i = 0; i < n; i++) ((double *)(void *)plane)[i] = value;
    else
        for (int64_t i = 0; i < n; i++) ((float *)(void *)plane)[i] = (float)value;
}

/* One row of the output's side with one row of the kernel. */
static void meet_row(const Depthwise *p, char *x, char *w, char *y, const Taps *t) {
    const int64_t n = p->c->out[2], extent = p->c->in[2];
    if (p->size == 8) {
        double *a = (double *)(void *)x, *b = (double *)(void *)w, *d = (double *)(void *)y;
        if (p->c->kind == CONV_OUTPUT) p->f64.read(d, n, a, extent, b, t);
        else if (p->c->kind == CONV_INPUT) p->f64.write(a, extent, d, n, b, t);
        else p->f64.sum(b, d, n, a, extent, t);
    } else {
        float *a = (float *)(void *)x, *b = (float *)(void *)w, *d = (float *)(void *)y;
        if (p->c->kind == CONV_OUTPUT) p->f32.read(d, n, a, extent, b, t);
        else if (p->c->kind == CONV_INPUT) p->f32.write(a, extent, d, n, b, t);
        else p->f32.sum(b, d, n, a, extent, t);
    }
}

static void meet_plane(const Depthwise *p, char *x, char *w, char *y) {
    const Conv *c = p->c;
    const Taps t = {c->kernel[2], -c->padding[2], c->stride[2], c->dilation[2]};
    for (int64_t d = 0; d < c->out[0]; d++)
        for (int64_t h = 0; h < c->out[1]; h++)
            for (int64_t kd = 0; kd < c->kernel[0]; kd++) {
                const int64_t z = d * c->stride[0] + kd * c->dilation[0] - c->padding[0];
                if (z < 0 || z >= c->in[0]) continue;
                for (int64_t kh = 0; kh < c->kernel[1]; kh++) {
                    const int64_t v = h * c->stride[1] + kh * c->dilation[1] - c->padding[1];
                    if (v < 0 || v >= c->in[1]) continue;
                    meet_row(p, x + (z * c->in[1] + v) * c->in[2] * p->size,
                             w + (kd * c->kernel[1] + kh) * c->kernel[2] * p->size, y + (d * c->out[1] + h) * c->out[2] * p->size,
                             &t);
                }
            }
}

/* Units: planes of the input. */
static void run_planes(void *ctx, int64_t begin, int64_t end) {
    Depthwise *p = ctx;
    const Conv *c = p->c;
    Planes m;
    if (!reserve(p, &m)) return;
    for (int64_t i = begin; i < end; i++) {
        const int64_t group = i % c->groups;
        if (c->kind == CONV_OUTPUT) load(p, m.x, c->x, i * c->in_pixels, c->in_pixels);
        else fill(p, m.x, c->in_pixels, 0);
        for (int64_t o = 0; o < c->out_channels; o++) {
            const int64_t plane = i * c->out_channels + o, channel = group * c->out_channels + o;
            load(p, m.w, c->w, channel * c->taps, c->taps);
            if (c->kind == CONV_OUTPUT) fill(p, m.y, c->out_pixels, conv_bias(c, channel));
            else load(p, m.y, c->y, plane * c->out_pixels, c->out_pixels);
            meet_plane(p, m.x, m.w, m.y);
            if (c->kind == CONV_OUTPUT) store(p, c->y, plane * c->out_pixels, m.y, c->out_pixels);
        }
        if (c->kind == CONV_INPUT) {
            const double bias = conv_bias(c, group);
            if (c->bias && p->size == 8)
                for (int64_t k = 0; k < c->in_pixels; k++) ((double *)(void *)m.x)[k] += bias;
            else if (c->bias)
                for (int64_t k = 0; k < c->in_pixels; k++) ((float *)(void *)m.x)[k] += (float)bias;
            store(p, c->x, i * c->in_pixels, m.x, c->in_pixels);
        }
    }
}

static void add_sums(const Depthwise *p, char *sum, const char *w) {
    for (int64_t k = 0; k < p->c->taps; k++) {
        if (p->size == 8) ((double *)(void *)sum)[k] += ((const double *)(const void *)w)[k];
        else ((float *)(void *)sum)[k] += ((const float *)(const void *)w)[k];
    }
}

/* Units: channels of the output's side; sums of planes are added up. */
static void run_channels(void *ctx, int64_t begin, int64_t end) {
    Depthwise *p = ctx;
    const Conv *c = p->c;
    Planes m;
    if (!reserve(p, &m)) return;
    for (int64_t channel = begin; channel < end; channel++) {
        fill(p, m.sum, c->taps, 0);
        for (int64_t image = 0; image < c->images; image++) {
            fill(p, m.w, c->taps, 0);
            load(p, m.x, c->x, (image * c->groups + channel / c->out_channels) * c->in_pixels, c->in_pixels);
            load(p, m.y, c->y, (image * c->groups * c->out_channels + channel) * c->out_pixels, c->out_pixels);
            meet_plane(p, m.x, m.w, m.y);
            add_sums(p, m.sum, m.w);
        }
        store(p, c->w, channel * c->taps, m.sum, c->taps);
    }
}

bool conv_is_depthwise(const Conv *c) { return c->in_channels == 1 && c->out_channels <= 2; }

Status conv_depthwise(const Conv *c) {
    Depthwise p = {.c = c, .f32 = rows_f32(), .f64 = rows_f64(), .size = c->dtype == AMP_FLOAT64 ? 8 : 4};
    atomic_init(&p.status, AMP_OK);
    const bool weight = c->kind == CONV_WEIGHT;
    const int64_t units = weight ? c->groups * c->out_channels : c->images * c->groups;
    const int64_t work = c->taps * c->out_pixels * (weight ? c->images : c->out_channels) + c->in_pixels;
    amp_parallel_for(units, conv_max(1, 100000 / conv_max(1, work)), weight ? run_channels : run_planes, &p);
    return (Status)atomic_load(&p.status);
}
