/* Output at strides 1 and 2, and input gradient at stride 1, in two dimensions, with AVX-512: written channels lie in the lanes of vectors,
 * neighbouring pixels are the rows of a tile, so that no column is wasted however narrow the grid is.
 *
 *     tile (pixels, 32 channels) = sum over k of  x[pixel * stride + at[k]] * w[k][32 channels]       k = channels x taps
 *
 * x is a copy of a band of an image with its padding, as in conv_padded.c, and each of its elements is broadcast; weights are transposed
 * into panels of 32 channels. Where weights do not fit the L2 cache, a panel serves a group of images before the next one is read.
 *
 * Each element is one chain over K in order, rounded once, whatever the threads do. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "conv.h"

#if defined(__x86_64__)
#include "transpose_x86.h"

enum {
    ROWS = 14,
    PANEL = 32,
    BAND_BYTES = 192 * 1024,
    GROUP_BYTES = 768 * 1024,   /* of weights that do not stay: most of a group's bands */
    BLOCK_K = 640,              /* 80 KiB of a panel */
    SMALL_WEIGHTS = 384 * 1024, /* stay in the L2 cache beside a band */
    LEAST_K = 16,
    LONG_K = 80,
    MOST_K = 1 << 20,
    TILE = 16 * PANEL
};
static const double SERIAL_FLOPS = 2e6;

#define AVX512_TARGET "avx512f,avx512bw,avx512vl,avx512dq"

typedef void (*TileFn)(int64_t k, const float *x, const int32_t *at, const float *w, float *tile, bool add);

typedef struct Direct {
    const Conv *c;
    bool pairs;
    int64_t rows, channels, depth, k, panels;    /* rows: written channels of one group; depth, k: pairs count once */
    int64_t weight_row, weight_channel;          /* distances in w, elements */
    int64_t grid[2], from[2], lead[2], reach[2]; /* written pixels, read pixels, padding before, elements a window covers */
    int64_t block, blocks;                       /* of k */
    int64_t step, pitch, plane;                  /* of the copy, elements */
    int64_t tiles, band, bands, group, groups;   /* tiles: of a row of the grid; band: rows; group: images */
    const char *read;
    char *write;
    int64_t read_channel, write_channel; /* pixels */
    int32_t *at;
    char *w, *scratch; /* scratch: the calling thread's */
    size_t copy_bytes;
    pthread_t caller;
    atomic_int status;
} Direct;

/* ------------------------------------------------------------------ kernels */

/* `rows` and `vectors` are constants in every use: sums stay in registers. */
#define BODY(name, target_text, multiply_add) \
    __attribute__((target(target_text))) static inline __attribute__((always_inline)) void name( \
        const int rows, const int vectors, const int step, int64_t k, const float *x, const int32_t *at, const float *w, \
        float *tile, bool add) { \
        __m512 sum[ROWS][2]; \
        _Pragma("GCC unroll 14") for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps(); \
        if (add) { \
            _Pragma("GCC unroll 14") for (int i = 0; i < rows; i++) { \
                sum[i][0] = _mm512_loadu_ps(tile + i * PANEL); \
                if (vectors > 1) sum[i][1] = _mm512_loadu_ps(tile + i * PANEL + 16); \
            } \
        } \
        for (; k > 0; k--, w += PANEL) { \
            const float *from = x + *at++; \
            const __m512 left = _mm512_loadu_ps(w), right = vectors > 1 ? _mm512_loadu_ps(w + 16) : left; \
            _Pragma("GCC unroll 14") for (int i = 0; i < rows; i++) { \
                const __m512 v = _mm512_set1_ps(from[i * step]); \
                sum[i][0] = multiply_add(sum[i][0], v, left); \
                if (vectors > 1) sum[i][1] = multiply_add(sum[i][1], v, right); \
            } \
        } \
        _Pragma("GCC unroll 14") for (int i = 0; i < rows; i++) { \
            _mm512_storeu_ps(tile + i * PANEL, sum[i][0]); \
            if (vectors > 1) _mm512_storeu_ps(tile + i * PANEL + 16, sum[i][1]); \
        } \
    }
#define ADD_F32(sum, x, y)   _mm512_fmadd_ps(x, y, sum)
#define ADD_PAIRS(sum, x, y) _mm512_dpbf16_ps(sum, (__m512bh)(x), (__m512bh)(y))
BODY(tile_f32, AVX512_TARGET, ADD_F32)
BODY(tile_pairs, AVX512_TARGET ",avx512bf16", ADD_PAIRS)

#define KERNEL(body, target_text, r, v, s) \
    __attribute__((target(target_text))) static void body##_##r##x##v##_##s(int64_t k, const float *x, const int32_t *at, \
                                                                            const float *w, float *tile, bool add) { \
        body(r, v, s, k, x, at, w, tile, add); \
    }
#define KERNELS_OF(body, text, r) \
    KERNEL(body, text, r, 1, 1) KERNEL(body, text, r, 2, 1) KERNEL(body, text, r, 1, 2) KERNEL(body, text, r, 2, 2)
#define KERNELS(r) KERNELS_OF(tile_f32, AVX512_TARGET, r) KERNELS_OF(tile_pairs, AVX512_TARGET ",avx512bf16", r)
#define ENTRY(body, r) \
    { \
        {body##_##r##x1_1, body##_##r##x2_1}, { body##_##r##x1_2, body##_##r##x2_2 } \
    }
#define ENTRIES(r) {ENTRY(tile_f32, r), ENTRY(tile_pairs, r)},
/* clang-format off */
KERNELS(1) KERNELS(2) KERNELS(3) KERNELS(4) KERNELS(5) KERNELS(6) KERNELS(7)
KERNELS(8) KERNELS(9) KERNELS(10) KERNELS(11) KERNELS(12) KERNELS(13) KERNELS(14)
static const TileFn tile_fn[ROWS][2][2][2] = { /* rows, pairs, stride, vectors */
    ENTRIES(1) ENTRIES(2) ENTRIES(3) ENTRIES(4) ENTRIES(5) ENTRIES(6) ENTRIES(7)
    ENTRIES(8) ENTRIES(9) ENTRIES(10) ENTRIES(11) ENTRIES(12) ENTRIES(13) ENTRIES(14)
};
/* clang-format on */

/* ------------------------------------------------------------------ weights */

/* 16 neighbouring taps (`keep`) of one channel as words: fp32, or pairs of it and the next channel. */
__attribute__((target(AVX512_TARGET))) static inline __m512i words_of(const Direct *p, const char *w, __mmask16 keep,
                                                                      bool second) {
    switch (p->c->dtype) {
    case AMP_FLOAT16: return _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(keep, w)));
    case AMP_BFLOAT16: {
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(keep, w));
        if (!p->pairs) return _mm512_slli_epi32(low, 16);
        const __m256i next = _mm256_maskz_loadu_epi16(second ? keep : 0, w + (second ? p->weight_channel * 2 : 0));
        return _mm512_or_si512(low, _mm512_slli_epi32(_mm512_cvtepu16_epi32(next), 16));
    }
    default: return _mm512_maskz_loadu_epi32(keep, w);
    }
}

/* Half a panel: 16 written channels, all of K. */
__attribute__((target(AVX512_TARGET))) static void pack_halves(void *ctx, int64_t begin, int64_t end) {
    const Direct *p = ctx;
    const Conv *c = p->c;
    const int64_t item = (int64_t)amp_itemsize(c->dtype), per = p->pairs ? 2 : 1;
    for (int64_t i = begin; i < end; i++) {
        const int64_t half = i % (2 * p->panels), group = i / (2 * p->panels), rows = p->rows - half * 16;
        const char *w = c->w + (group * c->out_channels * c->in_channels * c->taps + half * 16 * p->weight_row) * item;
        char *dst = p->w + ((group * p->panels + half / 2) * p->k * PANEL + half % 2 * 16) * 4;
        for (int64_t channel = 0; channel < p->depth; channel++)
            for (int64_t tap = 0; tap < c->taps; tap += 16) {
                const __mmask16 keep = amp_first16(c->taps - tap);
                __m512i r[16];
#pragma GCC unroll 16
                for (int l = 0; l < 16; l++)
                    r[l] = words_of(p, w + ((l < rows ? l : 0) * p->weight_row + channel * per * p->weight_channel + tap) * item,
                                    l < rows ? keep : 0, channel * per + 1 < p->channels);
                amp_transpose_16(r);
                char *to = dst + (channel * c->taps + tap) * PANEL * 4;
                if (c->taps - tap >= 16) {
#pragma GCC unroll 16
                    for (int j = 0; j < 16; j++) _mm512_storeu_si512(to + j * PANEL * 4, r[j]);
                } else {
                    _Alignas(64) char held[16 * 64];
#pragma GCC unroll 16
                    for (int j = 0; j < 16; j++) _mm512_store_si512(held + j * 64, r[j]);
                    for (int64_t j = 0; j < c->taps - tap; j++) memcpy(to + j * PANEL * 4, held + j * 64, 64);
                }
            }
    }
}

/* ------------------------------------------------------------------ one band */

static void copy_band(const Direct *p, char *copy, int64_t image, int64_t group, int64_t top, int64_t rows) {
    const int64_t item = (int64_t)amp_itemsize(p->c->dtype);
    const int64_t left = conv_max(0, p->lead[1]), skip = left - p->lead[1]; /* a negative lead crops */
    const int64_t n = conv_min(p->from[1] - skip, p->pitch - left);
    memset(copy, 0, (size_t)(p->depth * p->plane * 4));
    if (n <= 0) return;
    for (int64_t r = 0; r < (rows - 1) * p->step + p->reach[0]; r++) {
        const int64_t y = top * p->step + r - p->lead[0];
        if (y < 0 || y >= p->from[0]) continue;
        const int64_t first = (image * p->c->groups + group) * p->channels * p->read_channel + y * p->from[1] + skip;
        const Source src = {p->read + first * item, p->read_channel * item, item, p->c->dtype, p->c->rounding};
        char *dst = copy + (r * p->pitch + left) * 4;
        if (p->pairs) gemm_load_pairs_down(dst, p->plane, &src, p->channels, n);
        else gemm_load_block(dst, p->plane, &src, p->channels, n);
    }
}

/* A tile of pixels by channels as rows of pixels, to element `at` of their channels. */
__attribute__((target(AVX512_TARGET))) static void store_tile(const Direct *p, int64_t channel, int64_t channels, int64_t image,
                                                              int64_t at, const float *tile, int64_t pixels) {
    _Alignas(64) float lines[PANEL * 16];
    float bias[PANEL];
    for (int half = 0; half * 16 < channels; half++) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int l = 0; l < 16; l++) r[l] = _mm512_load_si512(tile + l * PANEL + half * 16);
        amp_transpose_16(r);
#pragma GCC unroll 16
        for (int l = 0; l < 16; l++) _mm512_store_si512(lines + (half * 16 + l) * 16, r[l]);
    }
    for (int64_t i = 0; p->c->bias && i < channels; i++) bias[i] = (float)conv_bias(p->c, channel + i);
    const int64_t first = (image * p->c->groups * p->rows + channel) * p->write_channel;
    const ConvTarget to = {p->write + first * (int64_t)amp_itemsize(p->c->dtype), p->write_channel, p->c->dtype};
    conv_store_fast(&to, at, (const char *)lines, 16, p->c->bias ? bias : NULL, channels, pixels);
}

/* One block of a panel over one band of one image. Tiles go on from `sum`, if K has several blocks. */
static void multiply_band(const Direct *p, const char *copy, float *sum, int64_t block, const float *w, int64_t group,
                          int64_t panel, int64_t image, int64_t top, int64_t rows) {
    const int64_t channel = panel * PANEL, channels = conv_min(PANEL, p->rows - channel);
    const int64_t first = block * p->block, k = conv_min(p->block, p->k - first);
    const bool last = block == p->blocks - 1;
    _Alignas(64) float own[16 * PANEL] = {0};
    for (int64_t y = 0; y < rows; y++)
        for (int64_t i = 0; i < p->tiles; i++) {
            const int64_t x = i * p->grid[1] / p->tiles, n = (i + 1) * p->grid[1] / p->tiles - x;
            const float *from = (const float *)(const void *)copy + (y * p->pitch + x) * p->step;
            float *tile = sum ? sum + (y * p->tiles + i) * TILE : own;
            tile_fn[n - 1][p->pairs][p->step - 1][channels > 16](k, from, p->at + first, w + first * PANEL, tile, block > 0);
            if (last) store_tile(p, group * p->rows + channel, channels, image, (top + y) * p->grid[1] + x, tile, n);
        }
}

static size_t bytes_of_unit(const Direct *p) {
    const int64_t tiles = p->blocks > 1 ? p->band * p->tiles : 0;
    return (size_t)p->group * (p->copy_bytes + (size_t)(tiles * TILE * 4));
}

/* Units: bands fastest, then groups of images, then groups of channels. */
static void run_units(void *ctx, int64_t begin, int64_t end) {
    Direct *p = ctx;
    char *copy = pthread_equal(pthread_self(), p->caller) ? p->scratch : gemm_scratch(bytes_of_unit(p));
    if (!copy) {
        atomic_store(&p->status, AMP_NO_MEMORY);
        return;
    }
    float *sum = p->blocks > 1 ? (float *)(void *)(copy + (size_t)p->group * p->copy_bytes) : NULL;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t top = unit % p->bands * p->band, rows = conv_min(p->band, p->grid[0] - top);
        const int64_t group = unit / (p->bands * p->groups), first = unit / p->bands % p->groups * p->group;
        const int64_t images = conv_min(p->group, p->c->images - first);
        for (int64_t i = 0; i < images; i++) copy_band(p, copy + i * (int64_t)p->copy_bytes, first + i, group, top, rows);
        for (int64_t panel = 0; panel < p->panels; panel++)
            for (int64_t block = 0; block < p->blocks; block++) {
                const float *w = (const float *)(const void *)p->w + (group * p->panels + panel) * p->k * PANEL;
                for (int64_t i = 0; i < images; i++)
                    multiply_band(p, copy + i * (int64_t)p->copy_bytes, sum ? sum + i * p->band * p->tiles * TILE : NULL, block,
                                  w, group, panel, first + i, top, rows);
            }
    }
}

/* ------------------------------------------------------------------ set-up */

static void describe(Direct *p) {
    const Conv *c = p->c;
    const bool output = c->kind == CONV_OUTPUT;
    p->pairs = c->dtype == AMP_BFLOAT16 && amp_isa_fast_bf16_dot();
    p->rows = output ? c->out_channels : c->in_channels;
    p->panels = conv_divide_up(p->rows, PANEL);
    p->channels = output ? c->in_channels : c->out_channels;
    p->depth = p->pairs ? conv_divide_up(p->channels, 2) : p->channels;
    p->k = p->depth * c->taps;
    p->blocks = conv_divide_up(p->k, BLOCK_K);
    p->block = conv_divide_up(p->k, p->blocks);
    p->blocks = conv_divide_up(p->k, p->block);
    p->weight_row = output ? c->in_channels * c->taps : c->taps;
    p->weight_channel = output ? c->taps : c->in_channels * c->taps;
    p->read = output ? c->x : c->y;
    p->write = output ? c->y : c->x;
    p->read_channel = output ? c->in_pixels : c->out_pixels;
    p->write_channel = output ? c->out_pixels : c->in_pixels;
    p->step = c->stride[1];
    for (int d = 0; d < 2; d++) {
        p->grid[d] = output ? c->out[d + 1] : c->in[d + 1];
        p->from[d] = output ? c->in[d + 1] : c->out[d + 1];
        p->reach[d] = (c->kernel[d + 1] - 1) * c->dilation[d + 1] + 1;
        p->lead[d] = output ? c->padding[d + 1] : p->reach[d] - 1 - c->padding[d + 1];
    }
    p->pitch = (p->grid[1] - 1) * p->step + p->reach[1];
    p->tiles = conv_divide_up(p->grid[1], ROWS);
}

/* Rows of the grid per band and images per unit: as many as stay in the L2 cache, and enough units for so many threads. */
static void choose_units(Direct *p, int64_t threads) {
    const int64_t row = p->depth * p->pitch * 4, weights = p->k * p->panels * PANEL * 4;
    const int64_t most = weights > SMALL_WEIGHTS ? 2 * BAND_BYTES : BAND_BYTES;
    const int64_t fit = conv_max(1, (most / row - p->reach[0]) / p->step + 1);
    const int64_t wanted = threads > 1 ? conv_divide_up(2 * threads, p->c->images * p->c->groups) : 1;
    p->bands = conv_max(conv_divide_up(p->grid[0], fit), conv_min(wanted, conv_divide_up(p->grid[0], 4)));
    p->band = conv_divide_up(p->grid[0], p->bands);
    p->bands = conv_divide_up(p->grid[0], p->band);
    p->plane = ((p->band - 1) * p->step + p->reach[0]) * p->pitch;
    p->copy_bytes = (size_t)(conv_divide_up(p->depth * p->plane * 4, 64) * 64);
    p->group = 1;
    if (p->bands == 1 && weights > SMALL_WEIGHTS)
        p->group = conv_max(1, conv_min(GROUP_BYTES / (int64_t)p->copy_bytes, conv_divide_up(p->c->images, threads)));
    p->groups = conv_divide_up(p->c->images, p->group);
}

/* Lanes without a channel are few; and K is long beside the transpose of a tile, or else the columns would have to be gathered. */
static bool pays(const Direct *p) {
    const int64_t tail = p->rows % PANEL, computed = p->rows - tail + (tail == 0 ? 0 : tail <= 16 ? 16 : PANEL);
    return computed * 7 <= p->rows * 8 && (p->step == 2 || p->k >= LONG_K);
}

/* Neither threads nor the number of images may decide: another way adds up in another order. */
bool conv_is_direct(const Conv *c) {
    const int64_t far = 1 << 20;
    if (amp_isa() < ISA_AVX512 || c->dtype == AMP_FLOAT64 || c->rounding != INPUT_IEEE || c->kind == CONV_WEIGHT || c->taps < 2)
        return false;
    if (c->dtype == AMP_BFLOAT16 && amp_isa() == ISA_AMX) return false; /* tiles are several times as fast */
    if (c->in[0] != 1 || c->kernel[0] != 1 || c->out[0] != 1 || c->padding[0]) return false;
    if (c->stride[1] != c->stride[2] || c->stride[1] > (c->kind == CONV_OUTPUT ? 2 : 1)) return false;
    for (int d = 1; d < 3; d++)
        if (c->dilation[d] > far || c->kernel[d] > far || c->padding[d] > far || c->in[d] > far || c->out[d] > far) return false;
    Direct p = {.c = c};
    describe(&p);
    if (p.k < LEAST_K || p.k > MOST_K || p.pitch > far || p.depth * p.pitch > 1 << 22) return false;
    choose_units(&p, 1);
    return p.depth * p.plane < 1 << 26 && pays(&p);
}

Status conv_direct(const Conv *c) {
    Direct p = {.c = c};
    atomic_init(&p.status, AMP_OK);
    describe(&p);
    choose_units(&p, amp_get_num_threads());
    const size_t w_bytes = (size_t)(c->groups * p.panels * p.k * PANEL * 4);
    p.at = malloc((size_t)p.k * sizeof *p.at);
    p.w = p.at ? gemm_scratch(w_bytes + bytes_of_unit(&p)) : NULL;
    if (!p.w) {
        free(p.at);
        return AMP_NO_MEMORY;
    }
    conv_place(c, p.depth, p.plane, p.pitch, p.at);
    p.scratch = p.w + w_bytes;
    p.caller = pthread_self();
    const double flops = 2.0 * (double)(c->groups * p.rows * p.channels * c->taps) * (double)(c->images * p.grid[0] * p.grid[1]);
    const int64_t halves = 2 * p.panels * c->groups, units = p.bands * p.groups * c->groups;
    amp_parallel_for(halves, flops < SERIAL_FLOPS ? halves : 1, pack_halves, &p);
    amp_parallel_for(units, flops < SERIAL_FLOPS ? units : 1, run_units, &p);
    free(p.at);
    return (Status)atomic_load(&p.status);
}
#else
bool conv_is_direct(const Conv *c) {
    (void)c;
    return false;
}
Status conv_direct(const Conv *c) { return conv_reference(c); }
#endif
