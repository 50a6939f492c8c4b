/* Output and input gradient: weights times gathered columns.
 *
 *     written (rows, columns) = A (rows, K) @ B (K, columns) + bias        K = taps x channels
 *
 * Columns are pixels of all images in a row, so that small images fill whole panels. B exists for one strip of columns and one block of K
 * at a time, in the cache of the thread that gathers and uses it.
 *
 * The input's pixels i meet only taps k with  i + padding - k * dilation  a multiple of the stride. So they fall into stride classes per
 * dimension ("phases"), and each is a product of its own with its own taps, in which the source is read at every pixel:
 *
 *     stride 2, kernel 3:      i even: taps 1        i odd: taps 0, 2        (padding 1, one dimension)
 *
 * No element is scattered: each of the result is one chain over K in order, rounded once, whatever the threads do. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "conv.h"

enum { STRIP = 128, BLOCK_K = 512, MOST_ROWS = 512, SMALL_PANEL = 40 * 1024, MOST_PHASES = 1 << 16 };
static const double SERIAL_FLOPS = 2e6;

typedef struct Tap {
    int64_t base[3], weight; /* weight: number of the tap in the kernel */
} Tap;

typedef struct Phase {
    Gather source, target; /* target: where columns are written, from `at` on */
    int64_t at[3];
    int64_t columns; /* of all images */
    const Tap *tap;
    int64_t taps, k, blocks, block; /* k and block in elements of A: pairs count once */
    int64_t a, a_row, a_col;        /* elements before this phase in A; strides of its tiles */
    int64_t a_tile;                 /* elements of a tile */
    int64_t strips, first_unit;
} Phase;

typedef struct ConvProduct {
    const Conv *c;
    MicroSet micro;
    int64_t size, width;
    PackForm form;
    int64_t rows, channels, depth; /* of one group; depth: elements of K per tap */
    int64_t weight_row, weight_channel;
    int64_t tile, tiles;   /* rows of a tile of A, tiles of a group */
    int64_t chunk, chunks; /* rows of a unit: whole tiles; units per strip */
    Phase *phase;
    int64_t phases, units;
    Tap *tap;
    char *a, *scratch; /* scratch: the calling thread's */
    int64_t b_bytes, sum_bytes;
    pthread_t caller;
    atomic_int status;
} ConvProduct;

/* ------------------------------------------------------------------ weights */

/* A: [group][block][tile][k][row of the tile], so that a tile is read as it lies; kernels that want dense rows get [row][k] instead. */
static char *tile_of_a(const ConvProduct *p, const Phase *phase, int64_t group, int64_t block, int64_t tile) {
    return p->a + (phase->a + ((group * phase->blocks + block) * p->tiles + tile) * phase->a_tile) * p->size;
}

/* n weights, `step` bytes apart, of `rows` rows, `row` bytes apart, as n columns of a tile of A. */
#define COPY_WEIGHTS(T, convert) \
    for (int64_t i = 0; i < n; i++, src += step, dst += a_col) \
        for (int64_t r = 0; r < rows; r++) { \
            const T value = convert(src + r * row); \
            memcpy(dst + r * a_row, &value, sizeof value); \
        } \
    break

static inline float plain_f32(const char *p) { return gemm_load(p, AMP_FLOAT32); }
static inline float plain_f16(const char *p) { return gemm_load(p, AMP_FLOAT16); }
static inline float plain_bf16(const char *p) { return gemm_load(p, AMP_BFLOAT16); }
static inline uint16_t plain_half(const char *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}
static inline double plain_f64(const char *p) {
    double d;
    memcpy(&d, p, sizeof d);
    return d;
}

static void copy_weights(const ConvProduct *p, const Phase *phase, char *dst, const char *src, int64_t step, int64_t row,
                         int64_t rows, int64_t n) {
    const InputRounding rounding = p->c->rounding;
    const int64_t a_row = phase->a_row * p->size, a_col = phase->a_col * p->size;
    switch (p->form == PACK_PAIRS ? -1 : p->c->dtype) {
    case -1: COPY_WEIGHTS(uint16_t, plain_half);
    case AMP_FLOAT64: COPY_WEIGHTS(double, plain_f64);
    case AMP_FLOAT16: COPY_WEIGHTS(float, plain_f16);
    case AMP_BFLOAT16: COPY_WEIGHTS(float, plain_bf16);
    default: COPY_WEIGHTS(float, plain_f32);
    }
    if (rounding == INPUT_IEEE) return;
    dst -= n * p->tile * p->size;
    gemm_widen(AMP_FLOAT32, rounding)((float *)(void *)dst, p->tile, dst, p->tile * 4, n, rows);
}

/* One tile of A in all blocks: weights of `rows` written channels. Row by row within a tap and channel: one of the two directions has a
 * line of memory per row, the other a line per channel. */
static void pack_tile(const ConvProduct *p, const Phase *phase, int64_t group, int64_t tile, int64_t rows) {
    const Conv *c = p->c;
    const int64_t item = (int64_t)amp_itemsize(c->dtype), pairs = p->form == PACK_PAIRS;
    const int64_t step = p->weight_channel * item, row = p->weight_row * item;
    const char *from = c->w + group * c->out_channels * c->in_channels * c->taps * item + tile * p->tile * row;
    for (int64_t k = 0; k < phase->k;) {
        const int64_t tap = k / p->depth, i = k % p->depth, block = k / phase->block, at = k % phase->block;
        const int64_t n = conv_min(p->depth - i, phase->block - at);
        const char *src = from + phase->tap[tap].weight * item + (i << pairs) * step;
        char *dst = tile_of_a(p, phase, group, block, tile) + at * phase->a_col * p->size;
        if (pairs) {
            const int64_t second = conv_min(n, (p->channels - 2 * i) / 2); /* an odd last channel is paired with zero */
            copy_weights(p, phase, dst, src, 2 * step, row, rows, n);
            copy_weights(p, phase, dst + 2, src + step, 2 * step, row, rows, second);
            for (int64_t r = 0; r < rows && second < n; r++)
                memset(dst + (second * phase->a_col + r * phase->a_row) * 4 + 2, 0, 2);
        } else {
            copy_weights(p, phase, dst, src, step, row, rows, n);
        }
        k += n;
    }
}

static void pack_tiles(void *ctx, int64_t begin, int64_t end) {
    const ConvProduct *p = ctx;
    for (int64_t i = begin; i < end; i++) {
        const int64_t tile = i % p->tiles, group = i / p->tiles % p->c->groups;
        pack_tile(p, &p->phase[i / (p->tiles * p->c->groups)], group, tile, conv_min(p->tile, p->rows - tile * p->tile));
    }
}

/* ------------------------------------------------------------------ one strip of columns */

typedef struct Strip {
    const ConvProduct *p;
    const Phase *phase;
    int64_t group, row, rows, columns;
    Segment segment[STRIP];
    int segments;
    Plan source, target;
    char *b, *sum;
} Strip;

static void find_segments(Strip *s, int64_t column) {
    const int64_t pixels = s->phase->columns / s->p->c->images;
    s->segments = 0;
    for (int64_t at = 0; at < s->columns;) {
        const int64_t image = (column + at) / pixels, pixel = (column + at) % pixels;
        const int64_t n = conv_min(pixels - pixel, s->columns - at);
        s->segment[s->segments++] = (Segment){at, n, image, pixel};
        at += n;
    }
}

/* Rows [first, first + block) of B: parts of taps. */
static void gather_block(Strip *s, int64_t first, int64_t count, int64_t *planned) {
    const ConvProduct *p = s->p;
    Gather g = s->phase->source;
    const int64_t per_row = p->form == PACK_PAIRS ? 2 : 1;
    g.data += s->group * p->channels * g.channel * (int64_t)amp_itemsize(g.dtype);
    for (int64_t k = first; k < first + count;) {
        const int64_t tap = k / p->depth, i = k % p->depth, rows = conv_min(p->depth - i, first + count - k);
        if (*planned != tap) conv_plan(&s->source, p->form, &g, s->phase->tap[tap].base, s->columns, s->segment, s->segments);
        *planned = tap;
        const Packed to = {s->b + (k - first) * p->width * p->size, p->width, count * p->width, p->width};
        conv_pack(&to, p->form, &s->source, &g, i * per_row, conv_min(rows * per_row, p->channels - i * per_row));
        k += rows;
    }
}

static void add_bias(const ConvProduct *p, char *tile, int64_t channel, int64_t rows, int64_t pitch, int64_t columns) {
    for (int64_t i = 0; p->c->bias && i < rows; i++) {
        const double bias = conv_bias(p->c, channel + i);
        if (p->size == 8) {
            double *x = (double *)(void *)tile + i * pitch;
            for (int64_t j = 0; j < columns; j++) x[j] += bias;
        } else {
            float *x = (float *)(void *)tile + i * pitch;
            for (int64_t j = 0; j < columns; j++) x[j] += (float)bias;
        }
    }
}

/* Columns [column, column + columns) of the strip, rows [row, row + rows) of the group, to where they belong. */
static void store_tile(const Strip *s, char *tile, int64_t pitch, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const ConvProduct *p = s->p;
    const Gather *to = &s->phase->target;
    const int64_t channel = s->group * p->rows + row, item = (int64_t)amp_itemsize(to->dtype);
    char *data = p->c->kind == CONV_INPUT ? p->c->x : p->c->y;
    add_bias(p, tile, channel, rows, pitch, columns);
    for (int i = 0; i < s->target.runs; i++) {
        const Run *r = &s->target.run[i];
        const int64_t first = conv_max(r->at, column), past = conv_min(r->at + r->n, column + columns);
        if (first >= past) continue;
        const Matrix m = {.data = data + (r->from + (first - r->at) * to->step[2] + channel * to->channel) * item,
                          .row = to->channel,
                          .col = to->step[2],
                          .dtype = to->dtype};
        gemm_store_block(&m, 0, 0, 0, tile + (first - column) * p->size, pitch, rows, past - first);
    }
}

/* One tile of A, `row` rows down the strip, and one panel. */
static void multiply_tile(Strip *s, int64_t block, int64_t count, int64_t row, int64_t column) {
    const ConvProduct *p = s->p;
    const int64_t rows = conv_min(p->tile, s->rows - row);
    const int64_t columns = conv_min(p->width, s->columns - column), vectors = conv_divide_up(columns, p->micro.lanes);
    const char *a = tile_of_a(p, s->phase, s->group, block, (s->row + row) / p->tile);
    const char *b = s->b + column * count * p->size;
    _Alignas(64) char tile[GEMM_TILE_BYTES];
    char *c = s->sum ? s->sum + (row * STRIP + column) * p->size : tile;
    const int64_t c_row = s->sum ? STRIP : GEMM_MAX_COLS;
    p->micro.fn[rows - 1][vectors - 1](count, a, s->phase->a_row, s->phase->a_col, b, p->width, c, c_row, block > 0);
    if (block == s->phase->blocks - 1) store_tile(s, c, c_row, s->row + row, rows, column, columns);
}

/* What is small enough stays in the L1 cache while the other operand passes by: a panel of B, or else a tile of A. */
static void multiply_block(Strip *s, int64_t block, int64_t count) {
    const ConvProduct *p = s->p;
    if (count * p->width * p->size <= SMALL_PANEL) {
        for (int64_t column = 0; column < s->columns; column += p->width)
            for (int64_t row = 0; row < s->rows; row += p->tile) multiply_tile(s, block, count, row, column);
        return;
    }
    for (int64_t row = 0; row < s->rows; row += p->tile)
        for (int64_t column = 0; column < s->columns; column += p->width) multiply_tile(s, block, count, row, column);
}

static void run_strip(Strip *s, int64_t column) {
    const Phase *phase = s->phase;
    int64_t planned = -1;
    find_segments(s, column);
    conv_plan(&s->target, PACK_COMPUTE, &phase->target, phase->at, s->columns, s->segment, s->segments);
    for (int64_t block = 0; block < phase->blocks; block++) {
        const int64_t first = block * phase->block, count = conv_min(phase->block, phase->k - first);
        gather_block(s, first, count, &planned);
        multiply_block(s, block, count);
    }
}

static const Phase *phase_of(const ConvProduct *p, int64_t unit) {
    int64_t low = 0, high = p->phases;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (p->phase[middle].first_unit <= unit) low = middle;
        else high = middle;
    }
    return &p->phase[low];
}

/* Units of a phase: chunks of rows fastest, then strips, then groups. */
static void run_units(void *ctx, int64_t begin, int64_t end) {
    ConvProduct *p = ctx;
    char *scratch = pthread_equal(pthread_self(), p->caller) ? p->scratch : gemm_scratch((size_t)(p->b_bytes + p->sum_bytes));
    if (!scratch) {
        atomic_store(&p->status, AMP_NO_MEMORY);
        return;
    }
    Strip s = {.p = p, .b = scratch};
    for (int64_t unit = begin; unit < end; unit++) {
        s.phase = phase_of(p, unit);
        const int64_t i = unit - s.phase->first_unit, strip = i / p->chunks % s.phase->strips;
        s.sum = s.phase->blocks > 1 ? scratch + p->b_bytes : NULL;
        s.row = i % p->chunks * p->chunk;
        s.rows = conv_min(p->chunk, p->rows - s.row);
        s.group = i / (p->chunks * s.phase->strips);
        s.columns = conv_min(STRIP, s.phase->columns - strip * STRIP);
        run_strip(&s, strip * STRIP);
    }
    gemm_release(&p->micro);
}

/* ------------------------------------------------------------------ phases */

/* One phase: the output's side reads the input at every tap. */
static int64_t output_phase(ConvProduct *p) {
    const Conv *c = p->c;
    Phase *f = &p->phase[0];
    Tap *tap = p->tap;
    for (int64_t d = 0; d < c->kernel[0]; d++)
        for (int64_t h = 0; h < c->kernel[1]; h++)
            for (int64_t w = 0; w < c->kernel[2]; w++)
                *tap++ = (Tap){
                    {d * c->dilation[0] - c->padding[0], h * c->dilation[1] - c->padding[1], w * c->dilation[2] - c->padding[2]},
                    (d * c->kernel[1] + h) * c->kernel[2] + w};
    *f = (Phase){.tap = p->tap, .taps = c->taps, .columns = c->images * c->out_pixels};
    for (int d = 0; d < 3; d++) {
        f->source.grid[d] = f->target.grid[d] = f->target.extent[d] = c->out[d];
        f->source.step[d] = c->stride[d];
        f->source.extent[d] = c->in[d];
        f->target.step[d] = 1;
    }
    f->source.data = c->x;
    f->source.channel = c->in_pixels;
    f->source.image = c->groups * c->in_channels * c->in_pixels;
    f->target.channel = c->out_pixels;
    f->target.image = c->groups * c->out_channels * c->out_pixels;
    return 1;
}

/* The taps of one dimension that pixels  residue + i * stride  meet, and where: number and source coordinate of i = 0. */
static int64_t taps_of(const Conv *c, int d, int64_t residue, int64_t k, int64_t *base) {
    for (; k < c->kernel[d]; k++) {
        const int64_t at = residue + c->padding[d] - k * c->dilation[d];
        if (at % c->stride[d] == 0) {
            *base = at / c->stride[d];
            break;
        }
    }
    return k;
}

static Tap *list_taps(const Conv *c, const int64_t residue[3], Tap *tap) {
    int64_t base[3];
    for (int64_t d = taps_of(c, 0, residue[0], 0, &base[0]); d < c->kernel[0]; d = taps_of(c, 0, residue[0], d + 1, &base[0]))
        for (int64_t h = taps_of(c, 1, residue[1], 0, &base[1]); h < c->kernel[1]; h = taps_of(c, 1, residue[1], h + 1, &base[1]))
            for (int64_t w = taps_of(c, 2, residue[2], 0, &base[2]); w < c->kernel[2];
                 w = taps_of(c, 2, residue[2], w + 1, &base[2]))
                *tap++ = (Tap){{base[0], base[1], base[2]}, (d * c->kernel[1] + h) * c->kernel[2] + w};
    return tap;
}

static int64_t input_phases(ConvProduct *p) {
    const Conv *c = p->c;
    Tap *tap = p->tap;
    int64_t count = 0, residue[3];
    for (residue[0] = 0; residue[0] < conv_min(c->stride[0], c->in[0]); residue[0]++)
        for (residue[1] = 0; residue[1] < conv_min(c->stride[1], c->in[1]); residue[1]++)
            for (residue[2] = 0; residue[2] < conv_min(c->stride[2], c->in[2]); residue[2]++) {
                Phase *f = &p->phase[count++];
                *f = (Phase){.tap = tap, .columns = c->images};
                tap = list_taps(c, residue, tap);
                f->taps = tap - f->tap;
                for (int d = 0; d < 3; d++) {
                    f->source.grid[d] = f->target.grid[d] = conv_divide_up(c->in[d] - residue[d], c->stride[d]);
                    f->source.step[d] = 1;
                    f->source.extent[d] = c->out[d];
                    f->target.step[d] = c->stride[d];
                    f->target.extent[d] = c->in[d];
                    f->columns *= f->source.grid[d];
                    f->at[d] = residue[d];
                }
                f->source.data = c->y;
                f->source.channel = c->out_pixels;
                f->source.image = c->groups * c->out_channels * c->out_pixels;
                f->target.channel = c->in_pixels;
                f->target.image = c->groups * c->in_channels * c->in_pixels;
            }
    return count;
}

/* ------------------------------------------------------------------ set-up */

static int64_t lay_out_phases(ConvProduct *p) {
    int64_t a = 0;
    for (int64_t i = 0; i < p->phases; i++) {
        Phase *f = &p->phase[i];
        f->source.dtype = f->target.dtype = p->c->dtype;
        f->source.rounding = p->c->rounding;
        f->k = f->taps * p->depth;
        f->blocks = conv_max(1, conv_divide_up(f->k, BLOCK_K));
        f->block = conv_divide_up(conv_divide_up(f->k, f->blocks), p->micro.step) * p->micro.step; /* even: no thin last one */
        f->blocks = conv_max(1, f->block ? conv_divide_up(f->k, f->block) : 1);
        f->a = a;
        conv_lay_out(&p->micro, p->tile, conv_max(1, f->block), &f->a_row, &f->a_col, &f->a_tile);
        f->strips = conv_divide_up(f->columns, STRIP);
        a += p->c->groups * f->blocks * p->tiles * f->a_tile;
        p->b_bytes = conv_max(p->b_bytes, conv_max(1, f->block) * STRIP * p->size);
    }
    return a * p->size;
}

/* Fewer rows per unit where strips alone cannot keep all threads busy. */
static void choose_units(ConvProduct *p) {
    int64_t strips = 0;
    bool blocks = false;
    for (int64_t i = 0; i < p->phases; i++) {
        strips += p->phase[i].strips * p->c->groups;
        blocks |= p->phase[i].blocks > 1;
    }
    const int64_t wanted = conv_divide_up(2 * amp_get_num_threads(), conv_max(1, strips));
    const int64_t least = conv_divide_up(p->rows, MOST_ROWS), most = conv_divide_up(p->rows, 2 * p->micro.rows);
    p->chunks = conv_max(least, conv_min(wanted, most));
    p->chunk = conv_divide_up(p->tiles, p->chunks) * p->tile;
    p->chunks = conv_divide_up(p->rows, p->chunk);
    p->sum_bytes = blocks ? p->chunk * STRIP * p->size : 0;
    for (int64_t i = 0; i < p->phases; i++) {
        p->phase[i].first_unit = p->units;
        p->units += p->phase[i].strips * p->c->groups * p->chunks;
    }
}

static void describe(ConvProduct *p) {
    const Conv *c = p->c;
    const bool output = c->kind == CONV_OUTPUT, pairs = c->dtype == AMP_BFLOAT16 && amp_isa_bf16_pairs();
    p->micro = *gemm_micro_set(c->dtype == AMP_FLOAT64, pairs);
    p->size = c->dtype == AMP_FLOAT64 ? 8 : 4;
    p->width = 2 * p->micro.lanes;
    p->form = pairs ? PACK_PAIRS : PACK_COMPUTE;
    p->rows = output ? c->out_channels : c->in_channels;
    p->tiles = conv_divide_up(p->rows, p->micro.rows);
    p->tile = conv_divide_up(p->rows, p->tiles); /* even tiles: no thin last one */
    p->tiles = conv_divide_up(p->rows, p->tile);
    p->channels = output ? c->in_channels : c->out_channels;
    p->depth = pairs ? conv_divide_up(p->channels, 2) : p->channels;
    p->weight_row = output ? c->in_channels * c->taps : c->taps;
    p->weight_channel = output ? c->taps : c->in_channels * c->taps;
}

static Status multiply(ConvProduct *p) {
    const Conv *c = p->c;
    const int64_t a_bytes = lay_out_phases(p);
    choose_units(p);
    p->a = gemm_scratch((size_t)(a_bytes + p->b_bytes + p->sum_bytes + 64));
    if (!p->a) return AMP_NO_MEMORY;
    p->scratch = p->a + conv_divide_up(a_bytes, 64) * 64;
    p->caller = pthread_self();
    const double flops = 2.0 * (double)(c->groups * c->out_channels * c->in_channels * c->taps) *
                         (double)(c->images * c->out_pixels);
    const bool serial = flops < SERIAL_FLOPS;
    const int64_t tiles = p->phases * c->groups * p->tiles;
    amp_parallel_for(tiles, serial ? tiles : 1, pack_tiles, p);
    amp_parallel_for(p->units, serial ? p->units : 1, run_units, p);
    return (Status)atomic_load(&p->status);
}

Status conv_product(const Conv *c) {
    const int64_t phases = c->kind == CONV_OUTPUT ? 1
                                                  : conv_min(c->stride[0], c->in[0]) * conv_min(c->stride[1], c->in[1]) *
                                                        conv_min(c->stride[2], c->in[2]);
    if (phases > MOST_PHASES) return conv_reference(c);
    ConvProduct p = {.c = c};
    Status status = AMP_NO_MEMORY;
    atomic_init(&p.status, AMP_OK);
    p.phase = malloc((size_t)phases * sizeof *p.phase);
    p.tap = malloc((size_t)c->taps * sizeof *p.tap);
    if (!p.phase || !p.tap) goto done;
    describe(&p);
    p.phases = c->kind == CONV_OUTPUT ? output_phase(&p) : input_phases(&p);
    status = multiply(&p);
done:
    free(p.phase);
    free(p.tap);
    return status;
}
