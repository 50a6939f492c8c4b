/* Output and input gradient at stride 1, in two dimensions: the products of conv_product.c without gathering.
 *
 * A band of an image is copied once, with its padding, into rows of `pitch` elements. What a tap meets is then the copy itself, some
 * elements further on, and the micro-kernels read it where it lies:
 *
 *        ^ . . . . .        kernel 3x3, padding 1: a vector of columns starts at ^ for tap (0, 0), at * for tap (1, 2)
 *        . x * x x .
 *        . x x x x .
 *
 * Vectors of columns start with each row of the grid, or run through the rows in the pitch of the copy, whichever needs fewer; columns
 * beyond the grid are computed and not stored.
 *
 * K runs over channels, then taps, which is the order of the weights in memory. Channels come in blocks, as many as keep a tile of A in
 * the L1 cache. Each element is one chain over K in order, rounded once, whatever the threads do. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "conv.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "bf16_x86.h"
#endif

enum {
    BLOCK_K = 512,
    SMALL_PANEL = 40 * 1024,
    BAND_BYTES = 192 * 1024, /* of the copy: it stays in the L2 cache beside the weights */
    LEAST_COLUMNS = 96,      /* of a band: fewer would read the weights too often */
    WASTE = 10               /* rows of A for which an unused column costs as much as gathering it would */
};
static const double SERIAL_FLOPS = 2e6;

typedef struct Padded {
    const Conv *c;
    MicroSet micro;
    bool pairs;
    int64_t size, width;
    int64_t rows, channels, depth;                   /* of one group; depth: channels as elements of A, pairs count once */
    int64_t weight_row, weight_channel;              /* distances in w, elements */
    int64_t grid[2], from[2], lead[2], halo[2];      /* written pixels, read pixels, padding before, pixels beyond the grid's */
    int64_t pitch;                                   /* elements of a row of the copy */
    int64_t per_row;                                 /* vectors of a row of the grid; 0: they run through the rows */
    int64_t plane;                                   /* elements of a channel of the copy */
    int64_t read_image, read_channel, write_channel; /* distances in pixels */
    int64_t tile, tiles, block, blocks, band, bands; /* rows of A, channels, rows of the grid */
    int64_t a_row, a_col, a_tile;                    /* strides of a tile of A, its elements */
    const char *read;
    char *write;
    int32_t *at; /* where rows of a block lie in the copy */
    char *a;
    size_t copy_bytes, sum_bytes;
    char *scratch; /* the calling thread's */
    pthread_t caller;
    atomic_int status;
} Padded;

/* ------------------------------------------------------------------ weights */

/* A: [group][block][tile], and a tile as conv_lay_out says */
static char *tile_of_a(const Padded *p, int64_t group, int64_t block, int64_t tile) {
    return p->a + ((group * p->blocks + block) * p->tiles + tile) * p->a_tile * p->size;
}

/* One weight in the compute type; pairs: of a channel and the next, or zero. */
static void put_weight(const Padded *p, char *dst, const char *src, bool second) {
    const int dtype = p->c->dtype;
    if (p->pairs) {
        uint16_t pair[2] = {0, 0};
        memcpy(&pair[0], src, 2);
        if (second) memcpy(&pair[1], src + p->weight_channel * 2, 2);
        memcpy(dst, pair, 4);
    } else if (dtype == AMP_FLOAT64) {
        memcpy(dst, src, 8);
    } else {
        const float f = gemm_round_input(gemm_load(src, dtype), p->c->rounding);
        memcpy(dst, &f, 4);
    }
}

static void pack_tiles(void *ctx, int64_t begin, int64_t end) {
    const Padded *p = ctx;
    const Conv *c = p->c;
    const int64_t item = (int64_t)amp_itemsize(c->dtype), per = p->pairs ? 2 : 1;
    for (int64_t i = begin; i < end; i++) {
        const int64_t tile = i % p->tiles, block = i / p->tiles % p->blocks, group = i / (p->tiles * p->blocks);
        const int64_t rows = conv_min(p->tile, p->rows - tile * p->tile);
        const int64_t first = block * p->block, past = conv_min(first + p->block, p->depth);
        char *dst = tile_of_a(p, group, block, tile);
        const char *w = c->w + (group * c->out_channels * c->in_channels * c->taps + tile * p->tile * p->weight_row) * item;
        for (int64_t channel = first; channel < past; channel++)
            for (int64_t tap = 0; tap < c->taps; tap++, dst += p->a_col * p->size)
                for (int64_t r = 0; r < rows; r++)
                    put_weight(p, dst + r * p->a_row * p->size,
                               w + (r * p->weight_row + channel * per * p->weight_channel + tap) * item,
                               channel * per + 1 < p->channels);
    }
}

/* ------------------------------------------------------------------ the copy */

/* Channels [first, first + channels) (elements of A) of a band that starts at row `top` of the grid. */
static void copy_band(const Padded *p, char *copy, int64_t image, int64_t group, int64_t first, int64_t channels, int64_t top,
                      int64_t rows) {
    const int64_t item = (int64_t)amp_itemsize(p->c->dtype), per = p->pairs ? 2 : 1;
    const int64_t left = conv_max(0, p->lead[1]), skip = left - p->lead[1]; /* a negative lead crops */
    const int64_t n = conv_min(p->from[1] - skip, p->pitch - left);
    const int64_t real = conv_min(channels * per, p->channels - first * per);
    memset(copy, 0, (size_t)(channels * p->plane * p->size));
    if (n <= 0) return;
    for (int64_t r = 0; r < rows + p->halo[0]; r++) {
        const int64_t y = top + r - p->lead[0];
        if (y < 0 || y >= p->from[0]) continue;
        const Source src = {
            p->read +
                (image * p->read_image + (group * p->channels + first * per) * p->read_channel + y * p->from[1] + skip) * item,
            p->read_channel * item, item, p->c->dtype, p->c->rounding};
        char *dst = copy + (r * p->pitch + left) * p->size;
        if (p->pairs) gemm_load_pairs_down(dst, p->plane, &src, real, n);
        else gemm_load_block(dst, p->plane, &src, real, n);
    }
}

/* ------------------------------------------------------------------ results */

#if defined(__x86_64__)
#define STORE_RUN(name, target_text, put) \
    __attribute__((target(target_text))) static void name(const ConvTarget *to, int64_t at, const float *tile, int64_t pitch, \
                                                          const float *bias, int64_t rows, int64_t n) { \
        for (int64_t j = 0; j < n; j += 16) { \
            const __mmask16 m = n - j >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << (n - j)) - 1); \
            for (int64_t i = 0; i < rows; i++) { \
                const __m512 v = _mm512_maskz_loadu_ps(m, tile + i * pitch + j); \
                put(to->data, i * to->row + at + j, m, bias ? _mm512_add_ps(v, _mm512_set1_ps(bias[i])) : v); \
            } \
        } \
    }
#define PUT_F32(data, at, m, v)  _mm512_mask_storeu_ps((data) + (at)*4, m, v)
#define PUT_F16(data, at, m, v)  _mm256_mask_storeu_epi16((data) + (at)*2, m, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT))
#define PUT_BF16(data, at, m, v) _mm256_mask_storeu_epi16((data) + (at)*2, m, amp_bf16_narrow16(v))
STORE_RUN(store_f32_avx512, "avx512f,avx512bw,avx512vl", PUT_F32)
STORE_RUN(store_f16_avx512, "avx512f,avx512bw,avx512vl", PUT_F16)
STORE_RUN(store_bf16_avx512, "avx512f,avx512bw,avx512vl", PUT_BF16)

bool conv_store_fast(const ConvTarget *to, int64_t at, const char *tile, int64_t pitch, const float *bias, int64_t rows,
                     int64_t n) {
    if (amp_isa() < ISA_AVX512 || to->dtype == AMP_FLOAT64) return false;
    const float *from = (const float *)(const void *)tile;
    if (to->dtype == AMP_FLOAT16) store_f16_avx512(to, at, from, pitch, bias, rows, n);
    else if (to->dtype == AMP_BFLOAT16) store_bf16_avx512(to, at, from, pitch, bias, rows, n);
    else store_f32_avx512(to, at, from, pitch, bias, rows, n);
    return true;
}
#else
bool conv_store_fast(const ConvTarget *to, int64_t at, const char *tile, int64_t pitch, const float *bias, int64_t rows,
                     int64_t n) {
    (void)to, (void)at, (void)tile, (void)pitch, (void)bias, (void)rows, (void)n;
    return false;
}
#endif

/* n neighbours of `rows` rows, with the bias, to element `at` of their channels. The tile is changed. */
static void store_run(const Padded *p, const ConvTarget *to, int64_t at, char *tile, int64_t pitch, const double *bias,
                      int64_t rows, int64_t n) {
    float narrow[GEMM_MAX_ROWS];
    for (int64_t i = 0; bias && i < rows; i++) narrow[i] = (float)bias[i];
    if (conv_store_fast(to, at, tile, pitch, bias ? narrow : NULL, rows, n)) return;
    for (int64_t i = 0; bias && i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            char *x = tile + (i * pitch + j) * p->size;
            if (p->size == 8) ((double *)(void *)x)[0] += bias[i];
            else ((float *)(void *)x)[0] += narrow[i];
        }
    const Matrix m = {.data = to->data + at * (int64_t)amp_itemsize(to->dtype), .row = to->row, .col = 1, .dtype = to->dtype};
    gemm_store_block(&m, 0, 0, 0, tile, pitch, rows, n);
}

/* ------------------------------------------------------------------ one band */

typedef struct Band {
    const Padded *p;
    int64_t image, group, top, rows, vectors;
    char *copy, *sum;
    int64_t sum_row;
} Band;

static int64_t vectors_of_band(const Padded *p, int64_t rows, int64_t per_row) {
    return per_row ? rows * per_row : conv_divide_up((rows - 1) * p->pitch + p->grid[1], p->micro.lanes);
}

/* Element of the copy where vector v starts. */
static int64_t start_of(const Padded *p, int64_t v) {
    return p->per_row ? v / p->per_row * p->pitch + v % p->per_row * p->micro.lanes : v * p->micro.lanes;
}

/* `columns` columns of the copy from element `start` on, as far as they belong to the grid. */
static void store_columns(const Band *s, const ConvTarget *to, char *tile, int64_t pitch, const double *bias, int64_t rows,
                          int64_t start, int64_t columns) {
    const Padded *p = s->p;
    int64_t y = start / p->pitch, x = start % p->pitch;
    for (int64_t j = 0; j < columns && y < s->rows; j += p->pitch - x, y++, x = 0) {
        const int64_t n = conv_min(p->grid[1] - x, columns - j);
        if (n > 0) store_run(p, to, y * p->grid[1] + x, tile + j * p->size, pitch, bias, rows, n);
    }
}

/* Vectors [first, first + vectors) of rows [row, row + rows). */
static void store_tile(const Band *s, char *tile, int64_t pitch, int64_t row, int64_t rows, int64_t first, int64_t vectors) {
    const Padded *p = s->p;
    const int64_t channel = s->group * p->rows + row, item = (int64_t)amp_itemsize(p->c->dtype), lanes = p->micro.lanes;
    double bias[GEMM_MAX_ROWS];
    for (int64_t i = 0; p->c->bias && i < rows; i++) bias[i] = conv_bias(p->c, channel + i);
    const ConvTarget to = {p->write +
                               ((s->image * p->c->groups * p->rows + channel) * p->write_channel + s->top * p->grid[1]) * item,
                           p->write_channel, p->c->dtype};
    const int64_t start = start_of(p, first), second = start_of(p, first + 1);
    const bool joined = vectors == 2 && second == start + lanes;
    store_columns(s, &to, tile, pitch, p->c->bias ? bias : NULL, rows, start, joined ? 2 * lanes : lanes);
    if (vectors == 2 && !joined)
        store_columns(s, &to, tile + lanes * p->size, pitch, p->c->bias ? bias : NULL, rows, second, lanes);
}

static void multiply_tile(const Band *s, int64_t block, int64_t row, int64_t first) {
    const Padded *p = s->p;
    const int64_t rows = conv_min(p->tile, p->rows - row), vectors = conv_min(2, s->vectors - first), lanes = p->micro.lanes;
    const int64_t k = conv_min(p->block, p->depth - block * p->block) * p->c->taps, start = start_of(p, first);
    const char *a = tile_of_a(p, s->group, block, row / p->tile);
    _Alignas(64) char tile[GEMM_TILE_BYTES];
    char *c = s->sum ? s->sum + (row * s->sum_row + first * lanes) * p->size : tile;
    const int64_t c_row = s->sum ? s->sum_row : GEMM_MAX_COLS;
    p->micro.at[rows - 1][vectors - 1](k, a, p->a_row, p->a_col, s->copy + start * p->size, p->at, start_of(p, first + 1) - start,
                                       c, c_row, block > 0);
    if (block == p->blocks - 1) store_tile(s, c, c_row, row, rows, first, vectors);
}

static void run_band(const Band *s) {
    const Padded *p = s->p;
    for (int64_t block = 0; block < p->blocks; block++) {
        const int64_t first = block * p->block, channels = conv_min(p->block, p->depth - first);
        copy_band(p, s->copy, s->image, s->group, first, channels, s->top, s->rows);
        /* What is small enough stays in the L1 cache while the other operand passes by. */
        if (channels * p->c->taps * p->width * p->size <= SMALL_PANEL) {
            for (int64_t v = 0; v < s->vectors; v += 2)
                for (int64_t row = 0; row < p->rows; row += p->tile) multiply_tile(s, block, row, v);
        } else {
            for (int64_t row = 0; row < p->rows; row += p->tile)
                for (int64_t v = 0; v < s->vectors; v += 2) multiply_tile(s, block, row, v);
        }
    }
}

static void run_units(void *ctx, int64_t begin, int64_t end) {
    Padded *p = ctx;
    char *scratch = pthread_equal(pthread_self(), p->caller) ? p->scratch : gemm_scratch(p->copy_bytes + p->sum_bytes);
    if (!scratch) {
        atomic_store(&p->status, AMP_NO_MEMORY);
        return;
    }
    for (int64_t unit = begin; unit < end; unit++) {
        Band s = {.p = p, .copy = scratch, .sum = p->blocks > 1 ? scratch + p->copy_bytes : NULL};
        s.top = unit % p->bands * p->band;
        s.rows = conv_min(p->band, p->grid[0] - s.top);
        s.vectors = vectors_of_band(p, s.rows, p->per_row);
        s.sum_row = (s.vectors + 1) / 2 * p->width;
        s.group = unit / p->bands % p->c->groups;
        s.image = unit / (p->bands * p->c->groups);
        run_band(&s);
    }
    gemm_release(&p->micro);
}

/* ------------------------------------------------------------------ set-up */

static void describe(Padded *p) {
    const Conv *c = p->c;
    const bool output = c->kind == CONV_OUTPUT;
    p->pairs = c->dtype == AMP_BFLOAT16 && amp_isa_bf16_pairs();
    p->micro = *gemm_micro_set(c->dtype == AMP_FLOAT64, p->pairs);
    p->size = c->dtype == AMP_FLOAT64 ? 8 : 4;
    p->width = 2 * p->micro.lanes;
    p->rows = output ? c->out_channels : c->in_channels;
    p->channels = output ? c->in_channels : c->out_channels;
    p->depth = p->pairs ? conv_divide_up(p->channels, 2) : p->channels;
    p->weight_row = output ? c->in_channels * c->taps : c->taps;
    p->weight_channel = output ? c->taps : c->in_channels * c->taps;
    p->read = output ? c->x : c->y;
    p->write = output ? c->y : c->x;
    p->read_channel = output ? c->in_pixels : c->out_pixels;
    p->write_channel = output ? c->out_pixels : c->in_pixels;
    p->read_image = c->groups * p->channels * p->read_channel;
    for (int d = 0; d < 2; d++) {
        p->grid[d] = output ? c->out[d + 1] : c->in[d + 1];
        p->from[d] = output ? c->in[d + 1] : c->out[d + 1];
        p->halo[d] = (c->kernel[d + 1] - 1) * c->dilation[d + 1];
        p->lead[d] = output ? c->padding[d + 1] : p->halo[d] - c->padding[d + 1];
    }
    p->pitch = p->grid[1] + p->halo[1];
    p->tiles = conv_divide_up(p->rows, p->micro.rows);
    p->tile = conv_divide_up(p->rows, p->tiles); /* even tiles: no thin last one */
    p->tiles = conv_divide_up(p->rows, p->tile);
    p->blocks = conv_divide_up(p->depth * c->taps, BLOCK_K);
    p->block = conv_divide_up(p->depth, p->blocks);
    p->blocks = conv_divide_up(p->depth, p->block);
    conv_lay_out(&p->micro, p->tile, p->block * c->taps, &p->a_row, &p->a_col, &p->a_tile);
}

/* Rows of the grid per band: as many as fit, evenly, in at least `wanted` bands. */
static void choose_bands(Padded *p, int64_t wanted) {
    const int64_t row = p->block * p->pitch * p->size;
    const int64_t least = conv_divide_up(LEAST_COLUMNS, p->pitch), fit = conv_max(least, BAND_BYTES / row - p->halo[0]);
    p->bands = conv_divide_up(p->grid[0], conv_max(1, conv_min(fit, p->grid[0])));
    p->bands = conv_max(p->bands, conv_min(wanted, conv_divide_up(p->grid[0], least)));
    p->band = conv_divide_up(p->grid[0], p->bands);
    p->bands = conv_divide_up(p->grid[0], p->band);
    const int64_t per_row = conv_divide_up(p->grid[1], p->micro.lanes);
    if (vectors_of_band(p, p->band, per_row) <= vectors_of_band(p, p->band, 0)) p->per_row = per_row;
    /* The last panel of the last tap reads up to a panel further than the copy. An odd number of lines: channels do not meet in sets. */
    p->plane = (conv_divide_up((p->band + p->halo[0]) * p->pitch + p->width, 16) | 1) * 16;
}

/* Neither threads nor the number of images may decide: another way adds up in another order. */
bool conv_is_padded(const Conv *c) {
    if (c->kind == CONV_WEIGHT || c->taps < 2 || c->in[0] != 1 || c->kernel[0] != 1 || c->out[0] != 1 || c->padding[0] ||
        c->stride[1] != 1 || c->stride[2] != 1)
        return false;
    Padded p = {.c = c};
    const int64_t far = 1 << 20;
    for (int d = 1; d < 3; d++)
        if (c->dilation[d] > far || c->kernel[d] > far || c->padding[d] > far || c->in[d] > far || c->out[d] > far) return false;
    if (c->taps > BLOCK_K) return false;
    describe(&p);
    choose_bands(&p, 1);
    if (p.block * p.plane > 1 << 24) return false;
    const int64_t computed = vectors_of_band(&p, p.band, p.per_row) * p.micro.lanes, used = p.band * p.grid[1];
    return (computed - used) * p.rows <= WASTE * used;
}

/* Where the rows of B begin in the padded copy: channel by channel, then tap by tap; the input's gradient sees the kernel turned. */
void conv_place(const Conv *c, int64_t channels, int64_t plane, int64_t pitch, int32_t *at) {
    for (int64_t channel = 0; channel < channels; channel++)
        for (int64_t h = 0; h < c->kernel[1]; h++)
            for (int64_t w = 0; w < c->kernel[2]; w++) {
                const int64_t y = c->kind == CONV_OUTPUT ? h : c->kernel[1] - 1 - h;
                const int64_t x = c->kind == CONV_OUTPUT ? w : c->kernel[2] - 1 - w;
                *at++ = (int32_t)(channel * plane + y * c->dilation[1] * pitch + x * c->dilation[2]);
            }
}

Status conv_padded(const Conv *c) {
    Padded p = {.c = c};
    atomic_init(&p.status, AMP_OK);
    describe(&p);
    choose_bands(&p, conv_divide_up(4 * amp_get_num_threads(), c->images * c->groups));
    const int64_t a_bytes = conv_divide_up(c->groups * p.blocks * p.tiles * p.a_tile * p.size, 64) * 64;
    const int64_t columns = (vectors_of_band(&p, p.band, p.per_row) + 1) / 2 * p.width;
    p.copy_bytes = (size_t)(conv_divide_up(p.block * p.plane * p.size, 64) * 64);
    p.sum_bytes = p.blocks > 1 ? (size_t)(p.rows * columns * p.size) : 0;
    p.at = malloc((size_t)(p.block * c->taps) * sizeof *p.at);
    p.a = p.at ? gemm_scratch((size_t)a_bytes + p.copy_bytes + p.sum_bytes) : NULL;
    if (!p.a) {
        free(p.at);
        return AMP_NO_MEMORY;
    }
    conv_place(c, p.block, p.plane, p.pitch, p.at);
    p.scratch = p.a + a_bytes;
    p.caller = pthread_self();
    const double flops = 2.0 * (double)(c->groups * c->out_channels * c->in_channels * c->taps) *
                         (double)(c->images * p.grid[0] * p.grid[1]);
    const bool serial = flops < SERIAL_FLOPS;
    const int64_t tiles = c->groups * p.blocks * p.tiles, units = c->images * c->groups * p.bands;
    amp_parallel_for(tiles, serial ? tiles : 8, pack_tiles, &p);
    amp_parallel_for(units, serial ? units : 1, run_units, &p);
    free(p.at);
    return (Status)atomic_load(&p.status);
}
