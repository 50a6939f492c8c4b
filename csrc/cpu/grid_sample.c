/* Values of an image between its pixels, at points that a grid gives, and the gradients of both: in two dimensions, bilinear and nearest.
 *
 * Points come in chunks: corners and weights of a chunk are formed once and used for all channels. Bilinear, a point at (x, y) lies between
 * four pixels, of which those outside of the image count as 0:
 *
 *     0 --- 1        0 = (floor x, floor y)        wx, wy: distances from 0
 *     |   . |
 *     2 --- 3                                                                                              */
#include "vectorize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_backend.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { CHUNK = 256, BLOCK = 16, GRAIN = 16 * 1024, OUTSIDE = 2 };
enum { SAMPLE_ZEROS, SAMPLE_BORDER, SAMPLE_REFLECTION };

typedef struct Sampling {
    int64_t width, height;
    int padding;
    bool nearest, corners; /* corners: -1 and 1 are the centres of the outer pixels, not their edges */
} Sampling;

/* at: a pixel from which the next column and row lie in the image too, so far as it has any; dx, dy: where corner 0 lies from there, -1,
 * 0, 1 or OUTSIDE. nearest: at alone, -1 outside. Weights and slopes are of the number type. */
typedef struct SampleChunk {
    int32_t at[CHUNK], dx[CHUNK], dy[CHUNK];
    _Alignas(64) char wx[CHUNK * 8];
    _Alignas(64) char wy[CHUNK * 8];
    _Alignas(64) char slope_x[CHUNK * 8];
    _Alignas(64) char slope_y[CHUNK * 8];
} SampleChunk;

typedef struct SampleKernels {
    void (*prepare)(const Sampling *s, const char *points, int64_t n, SampleChunk *chunk);
    void (*read)(const Sampling *s, const SampleChunk *chunk, int64_t n, const char *from, char *to);
    void (*add)(const Sampling *s, const SampleChunk *chunk, int64_t n, const char *grads, char *to);
    void (*slopes)(const Sampling *s, const SampleChunk *chunk, int64_t n, const char *from, const char *grads, char *sum_x,
                   char *sum_y);
    void (*flush)(char *sum, double *total, int64_t n);
    void (*finish)(const SampleChunk *chunk, int64_t n, const double *total_x, const double *total_y, char *grid);
} SampleKernels;

#define S       double
#define FLOOR   floor
#define RINT    rint
#define FMOD    fmod
#define K(name) name##_f64
#define TARGET
#include "grid_sample_template.h"
#undef S
#undef FLOOR
#undef RINT
#undef FMOD

#define S       float
#define FLOOR   floorf
#define RINT    rintf
#define FMOD    fmodf
#define K(name) name##_f32
#define TARGET
#include "grid_sample_template.h"

static const SampleKernels kernels_f64 = {prepare_f64, read_f64, add_f64, slopes_f64, flush_f64, finish_f64};
static const SampleKernels kernels_f32 = {prepare_f32, read_f32, add_f32, slopes_f32, flush_f32, finish_f32};

#if defined(__x86_64__)
#define AVX512  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512")))
#define K(name) name##_avx512
#define TARGET  AVX512
#include "grid_sample_template.h"

/* Both columns of 16 points in one row, by loads of two neighbours: low and high are those of the base pixel and the next. */
AVX512 static inline void read_pairs(const float *row, __m512i at, __m512 *low, __m512 *high) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i a = _mm512_i32gather_epi64(_mm512_castsi512_si256(at), row, 4);
    const __m512i b = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(at, 1), row, 4);
    *low = _mm512_castsi512_ps(_mm512_permutex2var_epi32(a, even, b));
    *high = _mm512_castsi512_ps(_mm512_permutex2var_epi32(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b));
}

/* Corners of 16 points from `i` on; where dx is 1 the base pixel's neighbour is column 0, where it is -1 the base pixel is column 1. */
AVX512 static inline void corners_of_16(const Sampling *s, const SampleChunk *chunk, int64_t i, __mmask16 keep,
                                        const float *plane, __m512 v[4]) {
    const __m512i at = _mm512_maskz_loadu_epi32(keep, chunk->at + i), one = _mm512_set1_epi32(1), minus = _mm512_set1_epi32(-1);
    const __m512i dx = _mm512_loadu_epi32(chunk->dx + i), dy = _mm512_loadu_epi32(chunk->dy + i);
    const __mmask16 x_low = _mm512_cmpeq_epi32_mask(dx, minus), x_same = _mm512_testn_epi32_mask(dx, dx);
    const __mmask16 x_high = _mm512_cmpeq_epi32_mask(dx, one), y_low = _mm512_cmpeq_epi32_mask(dy, minus);
    const __mmask16 y_same = _mm512_testn_epi32_mask(dy, dy), y_high = _mm512_cmpeq_epi32_mask(dy, one);
    __m512 low[2], high[2];
    read_pairs(plane, at, &low[0], &high[0]);
    read_pairs(plane + s->width, at, &low[1], &high[1]);
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) { /* rows of the image to rows of the point */
        const __m512 left = _mm512_mask_mov_ps(_mm512_maskz_mov_ps(x_same, low[k]), x_high, high[k]);
        const __m512 right = _mm512_mask_mov_ps(_mm512_maskz_mov_ps(x_same, high[k]), x_low, low[k]);
        low[k] = left;
        high[k] = right;
    }
    v[0] = _mm512_mask_mov_ps(_mm512_maskz_mov_ps(y_same, low[0]), y_high, low[1]);
    v[1] = _mm512_mask_mov_ps(_mm512_maskz_mov_ps(y_same, high[0]), y_high, high[1]);
    v[2] = _mm512_mask_mov_ps(_mm512_maskz_mov_ps(y_same, low[1]), y_low, low[0]);
    v[3] = _mm512_mask_mov_ps(_mm512_maskz_mov_ps(y_same, high[1]), y_low, high[0]);
}

AVX512 static inline __mmask16 lanes_of(int64_t n) { return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1); }

/* The same as read_f32 and slopes_f32, bit by bit. */
AVX512 static void read_16(const Sampling *s, const SampleChunk *chunk, int64_t n, const char *from, char *to) {
    const float *plane = (const float *)(const void *)from;
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 keep = lanes_of(n - i);
        if (s->nearest) {
            const __m512i at = _mm512_maskz_loadu_epi32(keep, chunk->at + i);
            const __mmask16 inside = _mm512_mask_cmpge_epi32_mask(keep, at, _mm512_setzero_si512());
            _mm512_mask_storeu_ps((float *)(void *)to + i, keep,
                                  _mm512_mask_i32gather_ps(_mm512_setzero_ps(), inside, at, plane, 4));
            continue;
        }
        const __m512 x = _mm512_load_ps((const float *)(const void *)chunk->wx + i), one = _mm512_set1_ps(1.0f);
        const __m512 y = _mm512_load_ps((const float *)(const void *)chunk->wy + i), fx = _mm512_sub_ps(one, x),
                     fy = _mm512_sub_ps(one, y);
        __m512 v[4];
        corners_of_16(s, chunk, i, keep, plane, v);
        __m512 sum = _mm512_mul_ps(v[0], _mm512_mul_ps(fy, fx));
        sum = _mm512_add_ps(sum, _mm512_mul_ps(v[1], _mm512_mul_ps(fy, x)));
        sum = _mm512_add_ps(sum, _mm512_mul_ps(v[2], _mm512_mul_ps(y, fx)));
        sum = _mm512_add_ps(sum, _mm512_mul_ps(v[3], _mm512_mul_ps(y, x)));
        _mm512_mask_storeu_ps((float *)(void *)to + i, keep, sum);
    }
}

AVX512 static void slopes_16(const Sampling *s, const SampleChunk *chunk, int64_t n, const char *from, const char *grads,
                             char *sum_x, char *sum_y) {
    float *to_x = (float *)(void *)sum_x, *to_y = (float *)(void *)sum_y;
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 keep = lanes_of(n - i);
        const __m512 g = _mm512_maskz_loadu_ps(keep, (const float *)(const void *)grads + i), one = _mm512_set1_ps(1.0f);
        const __m512 x = _mm512_load_ps((const float *)(const void *)chunk->wx + i);
        const __m512 y = _mm512_load_ps((const float *)(const void *)chunk->wy + i);
        __m512 v[4];
        corners_of_16(s, chunk, i, keep, (const float *)(const void *)from, v);
        const __m512 along_x = _mm512_add_ps(_mm512_mul_ps(_mm512_sub_ps(v[1], v[0]), _mm512_sub_ps(one, y)),
                                             _mm512_mul_ps(_mm512_sub_ps(v[3], v[2]), y));
        const __m512 along_y = _mm512_add_ps(_mm512_mul_ps(_mm512_sub_ps(v[2], v[0]), _mm512_sub_ps(one, x)),
                                             _mm512_mul_ps(_mm512_sub_ps(v[3], v[1]), x));
        _mm512_mask_storeu_ps(to_x + i, keep, _mm512_add_ps(_mm512_maskz_loadu_ps(keep, to_x + i), _mm512_mul_ps(g, along_x)));
        _mm512_mask_storeu_ps(to_y + i, keep, _mm512_add_ps(_mm512_maskz_loadu_ps(keep, to_y + i), _mm512_mul_ps(g, along_y)));
    }
}

static const SampleKernels kernels_avx512 = {prepare_avx512, read_16, add_avx512, slopes_16, flush_avx512, finish_avx512};
static const SampleKernels kernels_thin = {prepare_avx512, read_avx512, add_avx512, slopes_avx512, flush_avx512, finish_avx512};
#endif

typedef struct Sample {
    const SampleKernels *k;
    Sampling s;
    int64_t images, channels, pixels, points, item, chunks, block, blocks; /* block: channels of a unit */
    const char *input, *grid, *grad;
    char *out, *out_grid;
} Sample;

/* One chunk of points, all channels. */
static void read_units(void *context, int64_t begin, int64_t end) {
    const Sample *m = context;
    SampleChunk chunk;
    memset(&chunk, 0, sizeof chunk);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / m->chunks, first = unit % m->chunks * CHUNK;
        const int64_t n = m->points - first < CHUNK ? m->points - first : CHUNK;
        m->k->prepare(&m->s, m->grid + (image * m->points + first) * 2 * m->item, n, &chunk);
        for (int64_t c = image * m->channels; c < (image + 1) * m->channels; c++)
            m->k->read(&m->s, &chunk, n, m->input + c * m->pixels * m->item, m->out + (c * m->points + first) * m->item);
    }
}

/* One block of channels, all points: no two units write one plane. */
static void add_units(void *context, int64_t begin, int64_t end) {
    const Sample *m = context;
    SampleChunk chunk;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / m->blocks, from = unit % m->blocks * m->block;
        const int64_t past = m->channels - from < m->block ? m->channels : from + m->block;
        const int64_t first = image * m->channels + from, last = image * m->channels + past;
        memset(m->out + first * m->pixels * m->item, 0, (size_t)((last - first) * m->pixels * m->item));
        for (int64_t at = 0; at < m->points; at += CHUNK) {
            const int64_t n = m->points - at < CHUNK ? m->points - at : CHUNK;
            m->k->prepare(&m->s, m->grid + (image * m->points + at) * 2 * m->item, n, &chunk);
            for (int64_t c = first; c < last; c++)
                m->k->add(&m->s, &chunk, n, m->grad + (c * m->points + at) * m->item, m->out + c * m->pixels * m->item);
        }
    }
}

static void slope_units(void *context, int64_t begin, int64_t end) {
    const Sample *m = context;
    SampleChunk chunk;
    memset(&chunk, 0, sizeof chunk);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / m->chunks, first = unit % m->chunks * CHUNK;
        const int64_t n = m->points - first < CHUNK ? m->points - first : CHUNK;
        _Alignas(64) char sum[2][CHUNK * 8] = {{0}};
        double total[2][CHUNK] = {{0}};
        m->k->prepare(&m->s, m->grid + (image * m->points + first) * 2 * m->item, n, &chunk);
        for (int64_t i = 0; i < m->channels; i++) {
            const int64_t c = image * m->channels + i;
            m->k->slopes(&m->s, &chunk, n, m->input + c * m->pixels * m->item, m->grad + (c * m->points + first) * m->item,
                         sum[0], sum[1]);
            if (i % BLOCK < BLOCK - 1 && i < m->channels - 1) continue;
            m->k->flush(sum[0], total[0], n);
            m->k->flush(sum[1], total[1], n);
        }
        m->k->finish(&chunk, n, total[0], total[1], m->out_grid + (image * m->points + first) * 2 * m->item);
    }
}

static Status describe(Sample *m, const Call *call) {
    const View *x = call->in[0], *grid = call->in[1];
    if (x->dtype != AMP_FLOAT32 && x->dtype != AMP_FLOAT64) return AMP_BAD_DTYPE;
    *m = (Sample){.images = x->shape[0],
                  .channels = x->shape[1],
                  .pixels = x->shape[2] * x->shape[3],
                  .points = grid->shape[1] * grid->shape[2],
                  .item = (int64_t)amp_itemsize(x->dtype),
                  .input = x->data,
                  .grid = grid->data};
    m->s = (Sampling){.width = x->shape[3],
                      .height = x->shape[2],
                      .nearest = call->num[0].i == 1,
                      .padding = (int)call->num[1].i,
                      .corners = call->num[2].i != 0};
    m->chunks = (m->points + CHUNK - 1) / CHUNK;
    m->k = x->dtype == AMP_FLOAT64 ? &kernels_f64 : &kernels_f32;
#if defined(__x86_64__)
    if (x->dtype == AMP_FLOAT32 && amp_isa() >= ISA_AVX512)
        m->k = m->s.width < 2 || m->s.height < 2 ? &kernels_thin : &kernels_avx512;
#endif
    return m->pixels > INT32_MAX ? AMP_BAD_VALUE : AMP_OK;
}

Status amp_grid_sample(const Call *call) {
    Sample m;
    Status status = describe(&m, call);
    if (status != AMP_OK || !call->out[0]->numel) return status;
    m.out = call->out[0]->data;
    amp_parallel_for(m.images * m.chunks, GRAIN / (CHUNK * (m.channels + 4)) + 1, read_units, &m);
    return AMP_OK;
}

Status amp_grid_sample_grad(const Call *call) {
    Sample m;
    Status status = describe(&m, call);
    if (status != AMP_OK) return status;
    m.grad = call->in[2]->data;
    if (call->out[0] && call->out[0]->numel) {
        const int64_t planes = m.images * m.channels, even = planes / (2 * amp_get_num_threads());
        m.out = call->out[0]->data;
        m.block = even < 1 ? 1 : even > BLOCK ? BLOCK : even;
        m.block = m.block < m.channels ? m.block : m.channels;
        m.blocks = (m.channels + m.block - 1) / m.block;
        amp_parallel_for(m.images * m.blocks, GRAIN / (m.points * m.block + 1) + 1, add_units, &m);
    }
    if (call->out[1] && call->out[1]->numel) {
        m.out_grid = call->out[1]->data;
        if (m.s.nearest) memset(m.out_grid, 0, (size_t)(call->out[1]->numel * m.item));
        else amp_parallel_for(m.images * m.chunks, GRAIN / (CHUNK * (m.channels + 4)) + 1, slope_units, &m);
    }
    return AMP_OK;
}
