/* Weight gradient at stride 1, in two dimensions: the product of conv_weight.c without gathering.
 *
 * A block of the output's side meets a block of the input, which is copied once, with its padding, into lines of `pitch` elements. A
 * weight is the sum over the block's pixels q of  y[q] * copy[q + offset of its tap]:  what a tap meets is the copy itself, some elements
 * further on, and the micro-kernels read it where it lies, line by line:
 *
 *        . . . . . .        kernel 3x3, padding 1: lines of the block start at * for tap (1, 1), with x as many further pixels
 *        . * x x x .
 *        . * x x x .
 *
 * Rows of a tile are channels, or the taps of a row of the kernel, whichever fills tiles better. Columns are output channels: y lies
 * transposed in panels. K runs over the block's pixels alone: what lies between lines is not multiplied, not even by zero.
 *
 * Pairs of bfloat16 are neighbours in a line: element j of the copy is the pair x[j], x[j + 1], and K goes on by two. Lines are even, so
 * that no pair holds an element of the copy which the sum does not contain.
 *
 * Within a block every sum is one chain; blocks are added one by one. Blocks come in chunks, whose sums are added in order at the end,
 * in the compute type, and rounded once. Chunks do not depend on the number of threads. */
#include "vectorize.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "conv.h"

enum {
    PIXELS = 512,            /* most of a block */
    STRIP = 128,             /* output channels of a unit */
    COPY_BYTES = 192 * 1024, /* it stays in the L2 cache beside y */
    CHUNKS = 16,             /* most of them, as long as their sums take less than: */
    SUM_BYTES = 4 << 20,
    MOST_BYTES = 16 << 20, /* of a single chunk's */
    CHUNK_PIXELS = 2048,   /* fewer per chunk are not worth sums of their own */
    LEAST_PIXELS = 96,     /* of a block: with fewer, adding tiles costs more than gathering does, */
    FEW_OUTPUTS = 16,      /* unless so few columns share what is gathered */
    FEW_INPUTS = 3,        /* with so few a gathered row costs more than its pixels */
    LEAST_LINE = 200       /* of pairs: pixels of a line times taps, for the same reason */
};
static const double SERIAL_FLOPS = 2e6;

typedef struct WeightPadded {
    const Conv *c;
    MicroSet micro;
    bool pairs, along; /* along: rows of a tile are taps of a row of the kernel */
    int64_t size, width;
    int64_t halo[2], lines, columns; /* of a block */
    int64_t pitch, plane;            /* elements of a line, of a channel of the copy */
    int64_t per_row, per_image;      /* blocks */
    int64_t block;                   /* channels of a copy */
    int64_t chunk, chunks;           /* blocks of a chunk */
    int64_t strips, split, splits;   /* split: channels of a unit */
    int64_t sum_row;                 /* elements; rows are weights of an output channel */
    size_t copy_bytes, y_bytes;
    char *sums, *scratch; /* scratch: the calling thread's */
    pthread_t caller;
    atomic_int status;
} WeightPadded;

/* ------------------------------------------------------------------ one block */

typedef struct Block {
    const WeightPadded *p;
    int64_t image, group, top, lines, left, columns;
    int64_t first, channels; /* of the copy */
    int64_t column, outputs; /* of the strip */
    char *y, *copy, *sum;
} Block;

static void put_pair(char *at, const char *low, const char *high) {
    uint16_t pair[2] = {0, 0};
    if (low) memcpy(&pair[0], low, 2);
    if (high) memcpy(&pair[1], high, 2);
    memcpy(at, pair, 4);
}

/* n pixels to `at` of a line whose borders are zero. */
static void copy_pairs(char *line, const char *src, int64_t at, int64_t n) {
    const Source from = {src, 2, 2, AMP_BFLOAT16, INPUT_IEEE};
    if (at > 0) put_pair(line + (at - 1) * 4, NULL, src);
    gemm_load_pairs_down(line + at * 4, 0, &from, 2, n - 1);
    put_pair(line + (at + n - 1) * 4, src + (n - 1) * 2, NULL);
}

static void copy_block(const Block *s) {
    const WeightPadded *p = s->p;
    const Conv *c = p->c;
    const int64_t item = (int64_t)amp_itemsize(c->dtype), *in = c->in + 1;
    const int64_t y = s->top - c->padding[1], x = s->left - c->padding[2]; /* of element 0 of the copy */
    const int64_t low = conv_max(0, -y), high = conv_min(s->lines + p->halo[0], in[0] - y);
    const int64_t at = conv_max(0, -x), n = conv_min(s->columns + p->halo[1], in[1] - x) - at;
    const bool inside = low == 0 && at == 0 && high == s->lines + p->halo[0] && n == s->columns + p->halo[1];
    if (!inside) memset(s->copy, 0, (size_t)(s->channels * p->plane * p->size));
    if (n <= 0 || high <= low) return;
    const char *from = c->x + (((s->image * c->groups + s->group) * c->in_channels + s->first) * c->in_pixels +
                               (y + low) * in[1] + x + at) *
                                  item;
    char *to = s->copy + (low * p->pitch + at) * p->size;
    if (p->pairs) {
        for (int64_t channel = 0; channel < s->channels; channel++)
            for (int64_t r = low; r < high; r++)
                copy_pairs(s->copy + (channel * p->plane + r * p->pitch) * p->size,
                           from + (channel * c->in_pixels + (r - low) * in[1]) * item, at, n);
    } else if (s->channels > high - low) {
        for (int64_t r = 0; r < high - low; r++) {
            const Source src = {from + r * in[1] * item, c->in_pixels * item, item, c->dtype, c->rounding};
            gemm_load_block(to + r * p->pitch * p->size, p->plane, &src, s->channels, n);
        }
    } else {
        for (int64_t channel = 0; channel < s->channels; channel++) {
            const Source src = {from + channel * c->in_pixels * item, in[1] * item, item, c->dtype, c->rounding};
            gemm_load_block(to + channel * p->plane * p->size, p->pitch, &src, high - low, n);
        }
    }
}

/* Elements of a line, and of K of a block. */
static int64_t line_of(const Block *s) { return s->p->pairs ? s->columns / 2 : s->columns; }
static int64_t depth_of(const Block *s) { return s->lines * line_of(s); }

/* Output channels [j, j + columns) of the strip in a panel [pixel][channel]. */
static void pack_panel(const Block *s, char *panel, int64_t j, int64_t columns) {
    const WeightPadded *p = s->p;
    const Conv *c = p->c;
    const int64_t item = (int64_t)amp_itemsize(c->dtype), row = p->width * p->size;
    const int64_t channel = (s->image * c->groups + s->group) * c->out_channels + s->column + j;
    const bool one = s->columns == c->out[2]; /* run of pixels */
    const int64_t runs = one ? 1 : s->lines, pixels = one ? s->lines * s->columns : s->columns;
    for (int64_t r = 0; r < runs; r++) {
        const Source src = {c->y + (channel * c->out_pixels + (s->top + r) * c->out[2] + s->left) * item, item,
                            c->out_pixels * item, c->dtype, c->rounding};
        char *to = panel + r * line_of(s) * row;
        if (p->pairs) gemm_load_pairs_down(to, p->width, &src, pixels, columns);
        else gemm_load_block(to, p->width, &src, pixels, columns);
    }
    const int64_t whole = conv_divide_up(columns, p->micro.lanes) * p->micro.lanes;
    for (int64_t k = 0; k < depth_of(s) && whole > columns; k++)
        memset(panel + k * row + columns * p->size, 0, (size_t)((whole - columns) * p->size));
}

static void pack_y(const Block *s) {
    const WeightPadded *p = s->p;
    for (int64_t j = 0; j < s->outputs; j += p->width)
        pack_panel(s, s->y + j * depth_of(s) * p->size, j, conv_min(p->width, s->outputs - j));
}

#define ADD_TILE(name, target, T) \
    target static void name(char *restrict to, int64_t to_row, const char *restrict from, int64_t rows, int64_t columns) { \
        for (int64_t i = 0; i < rows; i++) { \
            T *restrict sum = (T *)(void *)to + i * to_row; \
            const T *restrict tile = (const T *)(const void *)from + i * GEMM_MAX_COLS; \
            for (int64_t j = 0; j < columns; j++) sum[j] += tile[j]; \
        } \
    }
ADD_TILE(add_f32, , float)
ADD_TILE(add_f64, , double)
#if defined(__x86_64__)
ADD_TILE(add_f32_avx2, __attribute__((target("avx2"))), float)
#endif

static void add_tile(const WeightPadded *p, char *to, int64_t to_row, const char *from, int64_t rows, int64_t columns) {
#if defined(__x86_64__)
    if (p->size == 4 && amp_isa() >= ISA_AVX2) {
        add_f32_avx2(to, to_row, from, rows, columns);
        return;
    }
#endif
    (p->size == 8 ? add_f64 : add_f32)(to, to_row, from, rows, columns);
}

/* `rows` weights from `weight` on, `stride` apart; what they meet lies from `a` on, a_row apart. Lines [low, high) of the block. */
static void multiply_tile(const Block *s, const char *a, int64_t a_row, int64_t rows, int64_t weight, int64_t stride, int64_t low,
                          int64_t high) {
    const WeightPadded *p = s->p;
    const int64_t depth = depth_of(s);
    _Alignas(64) char tile[GEMM_TILE_BYTES];
    for (int64_t j = 0; j < s->outputs; j += p->width) {
        const int64_t vectors = conv_divide_up(conv_min(p->width, s->outputs - j), p->micro.lanes);
        const char *b = s->y + (j * depth + low * line_of(s) * p->width) * p->size;
        p->micro.in[rows - 1][vectors - 1](high - low, line_of(s), a + low * p->pitch * p->size, a_row, p->pairs ? 2 : 1,
                                           p->pitch, b, p->width, tile, GEMM_MAX_COLS, false);
        add_tile(p, s->sum + (weight * p->sum_row + j) * p->size, stride * p->sum_row, tile, rows, vectors * p->micro.lanes);
    }
}

/* Rows of tiles: as many as possible, evenly. */
static int64_t even_rows(const WeightPadded *p, int64_t n) { return conv_divide_up(n, conv_divide_up(n, p->micro.rows)); }

static void multiply_block(const Block *s) {
    const WeightPadded *p = s->p;
    const Conv *c = p->c;
    const int64_t all = p->along ? c->kernel[2] : s->channels, step = even_rows(p, all);
    const int64_t a_row = p->along ? c->dilation[2] : p->plane, stride = p->along ? 1 : c->taps;
    for (int64_t row = 0; row < all; row += step)
        for (int64_t channel = 0; channel < (p->along ? s->channels : 1); channel++)
            for (int64_t h = 0; h < c->kernel[1]; h++) {
                const int64_t y = s->top + h * c->dilation[1] - c->padding[1]; /* of the input, for line 0 */
                const int64_t low = conv_max(0, -y), high = conv_min(s->lines, c->in[1] - y);
                for (int64_t w = 0; low < high && w < (p->along ? 1 : c->kernel[2]); w++) {
                    const int64_t from = channel * p->plane + h * c->dilation[1] * p->pitch + w * c->dilation[2] + row * a_row;
                    const int64_t weight = (s->first + channel) * c->taps + h * c->kernel[2] + w + row * stride;
                    multiply_tile(s, s->copy + from * p->size, a_row, conv_min(step, all - row), weight, stride, low, high);
                }
            }
}

/* ------------------------------------------------------------------ units */

/* Sums of a chunk and a group: [weight][output channel]. */
static char *sums_of(const WeightPadded *p, int64_t chunk, int64_t group) {
    return p->sums + (chunk * p->c->groups + group) * p->c->in_channels * p->c->taps * p->sum_row * p->size;
}

static void run_unit(Block *s, int64_t chunk, int64_t first, int64_t channels) {
    const WeightPadded *p = s->p;
    const Conv *c = p->c;
    const int64_t past = conv_min((chunk + 1) * p->chunk, c->images * p->per_image);
    const int64_t padded = conv_divide_up(s->outputs, p->micro.lanes) * p->micro.lanes;
    for (int64_t i = first * c->taps; i < (first + channels) * c->taps; i++)
        memset(s->sum + i * p->sum_row * p->size, 0, (size_t)(padded * p->size));
    for (int64_t block = chunk * p->chunk; block < past; block++) {
        s->image = block / p->per_image;
        s->top = block % p->per_image / p->per_row * p->lines;
        s->left = block % p->per_row * p->columns;
        s->lines = conv_min(p->lines, c->out[1] - s->top);
        s->columns = conv_min(p->columns, c->out[2] - s->left);
        pack_y(s);
        for (int64_t channel = 0; channel < channels; channel += p->block) {
            s->first = first + channel;
            s->channels = conv_min(p->block, channels - channel);
            copy_block(s);
            multiply_block(s);
        }
    }
}

static void run_units(void *ctx, int64_t begin, int64_t end) {
    WeightPadded *p = ctx;
    const Conv *c = p->c;
    char *scratch = pthread_equal(pthread_self(), p->caller) ? p->scratch : gemm_scratch(p->copy_bytes + p->y_bytes);
    if (!scratch) {
        atomic_store(&p->status, AMP_NO_MEMORY);
        return;
    }
    Block s = {.p = p, .copy = scratch, .y = scratch + p->copy_bytes};
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t split = unit % p->splits, strip = unit / p->splits % p->strips, rest = unit / (p->splits * p->strips);
        const int64_t chunk = rest / c->groups, first = split * p->split;
        s.group = rest % c->groups;
        s.column = strip * STRIP;
        s.outputs = conv_min(STRIP, c->out_channels - s.column);
        s.sum = sums_of(p, chunk, s.group) + s.column * p->size;
        run_unit(&s, chunk, first, conv_min(p->split, c->in_channels - first));
    }
    gemm_release(&p->micro);
}

/* Weights [begin, end) of all groups: chunks in order, rounded once. */
static void finish(void *ctx, int64_t begin, int64_t end) {
    const WeightPadded *p = ctx;
    const Conv *c = p->c;
    const int64_t weights = c->in_channels * c->taps, step = sums_of(p, 1, 0) - p->sums;
    for (int64_t i = begin; i < end; i++) {
        const int64_t group = i / weights, weight = i % weights;
        char *sum = sums_of(p, 0, group) + weight * p->sum_row * p->size;
        for (int64_t chunk = 1; chunk < p->chunks; chunk++) add_tile(p, sum, 0, sum + chunk * step, 1, c->out_channels);
        const Matrix to = {.data = c->w + (group * c->out_channels * weights + weight) * (int64_t)amp_itemsize(c->dtype),
                           .col = weights,
                           .dtype = c->dtype};
        gemm_store_block(&to, 0, 0, 0, sum, p->sum_row, 1, c->out_channels);
    }
}

/* ------------------------------------------------------------------ set-up */

/* All sums of a chunk. */
static int64_t sums_bytes(const WeightPadded *p) { return p->c->groups * p->c->in_channels * p->c->taps * p->sum_row * p->size; }

static void describe(WeightPadded *p) {
    const Conv *c = p->c;
    p->pairs = c->dtype == AMP_BFLOAT16 && amp_isa_bf16_pairs();
    p->micro = *gemm_micro_set(c->dtype == AMP_FLOAT64, p->pairs);
    p->size = c->dtype == AMP_FLOAT64 ? 8 : 4;
    p->width = 2 * p->micro.lanes;
    for (int d = 0; d < 2; d++) p->halo[d] = (c->kernel[d + 1] - 1) * c->dilation[d + 1];
    p->per_row = conv_divide_up(c->out[2], PIXELS);
    p->columns = conv_divide_up(conv_divide_up(c->out[2], p->per_row), 2) * 2; /* all but the last piece are even */
    p->columns = conv_min(p->columns, c->out[2]);
    p->per_row = conv_divide_up(c->out[2], p->columns);
    const int64_t bands = conv_divide_up(c->out[1], conv_max(1, PIXELS / p->columns));
    p->lines = conv_divide_up(c->out[1], bands);
    p->per_image = p->per_row * conv_divide_up(c->out[1], p->lines);
    p->pitch = p->columns + p->halo[1];
    /* An odd number of cache lines: channels do not meet in sets. */
    p->plane = (conv_divide_up((p->lines + p->halo[0]) * p->pitch, 16) | 1) * 16;
    p->sum_row = conv_divide_up(c->out_channels, p->width) * p->width;
    const int64_t blocks = c->images * p->per_image;
    p->chunks = conv_min(conv_min(CHUNKS, SUM_BYTES / sums_bytes(p)), c->images * c->out_pixels / CHUNK_PIXELS);
    p->chunk = conv_divide_up(blocks, conv_max(1, conv_min(p->chunks, blocks)));
    p->chunks = conv_divide_up(blocks, p->chunk);
    p->strips = conv_divide_up(c->out_channels, STRIP);
}

/* The cost rule: what gathering copies, a few times over, against the copy with its halo and against tiles of short sums. */
bool conv_weight_is_padded(const Conv *c) {
    if (c->kind != CONV_WEIGHT || c->in[0] != 1 || c->kernel[0] != 1 || c->out[0] != 1 || c->padding[0] || c->stride[1] != 1 ||
        c->stride[2] != 1)
        return false;
    const int64_t far = 1 << 20;
    for (int d = 1; d < 3; d++)
        if (c->dilation[d] > far || c->kernel[d] > far || (c->kernel[d] - 1) * c->dilation[d] > far || c->padding[d] > far ||
            c->in[d] > far || c->out[d] > far)
            return false;
    WeightPadded p = {.c = c};
    describe(&p);
    if (p.plane > 1 << 24 || sums_bytes(&p) > MOST_BYTES) return false;
    const int64_t pixels = p.lines * p.columns, copied = (p.lines + p.halo[0]) * (p.columns + p.halo[1]);
    if (copied > 2 * c->taps * pixels + PIXELS) return false;
    if (p.pairs && (c->out[2] & 1 || c->taps < 2 || (c->in_channels > FEW_INPUTS && c->out[2] * c->taps < LEAST_LINE)))
        return false;
    return pixels >= LEAST_PIXELS || c->out_channels <= FEW_OUTPUTS;
}

Status conv_weight_padded(const Conv *c) {
    WeightPadded p = {.c = c};
    atomic_init(&p.status, AMP_OK);
    describe(&p);
    const double flops = 2.0 * (double)(c->groups * c->out_channels * c->in_channels * c->taps) *
                         (double)(c->images * c->out_pixels);
    const bool serial = flops < SERIAL_FLOPS;
    const int64_t fixed = p.chunks * c->groups * p.strips, wanted = serial ? 1 : conv_divide_up(2 * amp_get_num_threads(), fixed);
    const int64_t tile = even_rows(&p, c->in_channels), tiles = conv_divide_up(c->in_channels, tile);
    p.split = conv_divide_up(tiles, conv_min(wanted, tiles)) * tile;
    p.splits = conv_divide_up(c->in_channels, p.split);
    p.along = even_rows(&p, c->kernel[2]) > tile;
    p.block = conv_max(1, conv_min(p.split, COPY_BYTES / (p.plane * p.size)));
    if (p.block >= tile) p.block = p.block / tile * tile;
    p.copy_bytes = (size_t)(conv_divide_up(p.block * p.plane * p.size, 64) * 64);
    p.y_bytes = (size_t)(conv_min(STRIP, p.sum_row) * p.lines * p.columns * p.size);
    const size_t sums = (size_t)(p.chunks * sums_bytes(&p));
    p.sums = gemm_scratch(sums + p.copy_bytes + p.y_bytes);
    if (!p.sums) return AMP_NO_MEMORY;
    p.scratch = p.sums + sums;
    p.caller = pthread_self();
    const int64_t units = fixed * p.splits, weights = c->groups * c->in_channels * c->taps;
    amp_parallel_for(units, serial ? units : 1, run_units, &p);
    if (atomic_load(&p.status) == AMP_OK)
        amp_parallel_for(weights, serial ? weights : conv_divide_up(65536, p.sum_row), finish, &p);
    return (Status)atomic_load(&p.status);
}
