/* Weight gradient: a product over all pixels of the batch.
 *
 *     sum_w (taps x in_channels, out_channels) = X (taps x in_channels, pixels) @ Y^T (pixels, out_channels)
 *
 * The batch's pixels come in blocks; images that are smaller share one. Within a block every element is one chain in order, in registers;
 * blocks are then added one by one in fp32. A unit of work is a range of rows and of columns of the result, for which a thread walks the
 * whole batch: so nothing is added across threads, and the weight is rounded once, at the end. */
#include "vectorize.h"

#include <stdatomic.h>

#include "conv.h"

enum { BLOCK = CONV_COLUMNS, ROW_PAD = 16, COLUMNS = 128, MOST_ROWS = 1024 };
static const double SERIAL_FLOPS = 2e6;

typedef struct ConvWeight {
    const Conv *c;
    const MicroSet *micro;
    int64_t size, width, rows; /* rows: taps x in_channels */
    bool pairs;
    Gather x;
    int64_t chunk, chunks, strips; /* of rows, of columns */
    atomic_int status;
} ConvWeight;

typedef struct Unit {
    const ConvWeight *p;
    int64_t group, row, rows, column, columns;
    char *y, *x, *sum;
    Segment segment[BLOCK];
    int segments;
    int64_t pixels; /* of the block; segments begin at even ones, so that no pair spans two */
    Plan plan;
    int64_t planned; /* tap, or -1 */
} Unit;

/* The next block of pixels from *image, *pixel on; false at the end of the batch. */
static bool next_block(Unit *u, int64_t *image, int64_t *pixel) {
    const Conv *c = u->p->c;
    u->segments = 0;
    u->planned = -1;
    for (u->pixels = 0; *image < c->images && u->pixels < BLOCK;) {
        const int64_t n = conv_min(c->out_pixels - *pixel, BLOCK - u->pixels);
        if (u->segments && n < c->out_pixels - *pixel) break; /* a large image gets blocks of its own */
        u->segment[u->segments++] = (Segment){u->pixels, n, *image, *pixel};
        u->pixels += conv_divide_up(n, 2) * 2;
        *pixel += n;
        if (*pixel == c->out_pixels) *pixel = 0, ++*image;
    }
    return u->segments > 0;
}

/* Y^T of the block in panels [pixel][channel], pairs of pixels counting once; zero between segments. */
static void pack_y(const Unit *u) {
    const ConvWeight *p = u->p;
    const Conv *c = p->c;
    const int64_t item = (int64_t)amp_itemsize(c->dtype), per_row = p->pairs ? 2 : 1, depth = u->pixels / per_row;
    for (int64_t j = 0; j < u->columns; j += p->width) {
        const int64_t columns = conv_min(p->width, u->columns - j),
                      whole = conv_divide_up(columns, p->micro->lanes) * p->micro->lanes;
        char *panel = u->y + j * depth * p->size;
        for (int i = 0; i < u->segments; i++) {
            const Segment *s = &u->segment[i];
            const int64_t channel = (s->image * c->groups + u->group) * c->out_channels + u->column + j;
            const Source from = {c->y + (channel * c->out_pixels + s->pixel) * item, item, c->out_pixels * item, c->dtype,
                                 c->rounding};
            char *to = panel + s->at / per_row * p->width * p->size;
            if (p->pairs) {
                gemm_load_pairs_down(to, p->width, &from, s->n, columns);
            } else {
                gemm_load_block(to, p->width, &from, s->n, columns);
                if (s->n & 1) memset(to + s->n * p->width * p->size, 0, (size_t)(p->width * p->size));
            }
        }
        for (int64_t k = 0; k < depth && whole > columns; k++)
            memset(panel + (k * p->width + columns) * p->size, 0, (size_t)((whole - columns) * p->size));
    }
}

/* Rows [row, row + rows) of X for the block, [row][pixel]. */
static void pack_x(Unit *u, int64_t row, int64_t rows) {
    const ConvWeight *p = u->p;
    const Conv *c = p->c;
    Gather g = p->x;
    const int64_t pitch = (BLOCK + ROW_PAD) / (p->pairs ? 2 : 1), item = p->pairs ? 2 : p->size,
                  elements = pitch * p->size / item;
    g.data += u->group * c->in_channels * g.channel * (int64_t)amp_itemsize(g.dtype);
    for (int64_t done = 0; done < rows;) {
        const int64_t tap = (row + done) / c->in_channels, channel = (row + done) % c->in_channels;
        const int64_t n = conv_min(rows - done, c->in_channels - channel);
        if (tap != u->planned) {
            const int64_t w = tap % c->kernel[2], h = tap / c->kernel[2] % c->kernel[1], d = tap / c->kernel[2] / c->kernel[1];
            const int64_t base[3] = {d * c->dilation[0] - c->padding[0], h * c->dilation[1] - c->padding[1],
                                     w * c->dilation[2] - c->padding[2]};
            conv_plan(&u->plan, p->pairs ? PACK_PLAIN : PACK_COMPUTE, &g, base, u->pixels, u->segment, u->segments);
            u->planned = tap;
        }
        const Packed to = {u->x + done * pitch * p->size, elements, CONV_LANES, CONV_LANES};
        conv_pack(&to, p->pairs ? PACK_PLAIN : PACK_COMPUTE, &u->plan, &g, channel, n);
        done += n;
    }
}

#define ADD_TILE(name, target, T) \
    target static void name(T *restrict sum, const T *restrict tile, int64_t rows, int64_t columns) { \
        for (int64_t i = 0; i < rows; i++, sum += COLUMNS, tile += GEMM_MAX_COLS) { \
            if (columns == GEMM_MAX_COLS) \
                for (int j = 0; j < GEMM_MAX_COLS; j++) sum[j] += tile[j]; \
            else \
                for (int64_t j = 0; j < columns; j++) sum[j] += tile[j]; \
        } \
    }
ADD_TILE(add_f32, , float)
ADD_TILE(add_f64, , double)
#if defined(__x86_64__)
ADD_TILE(add_f32_avx2, __attribute__((target("avx2"))), float)
#endif

static void add_tile(const ConvWeight *p, char *sum, const char *tile, int64_t rows, int64_t columns) {
    if (p->size == 8) {
        add_f64((double *)(void *)sum, (const double *)(const void *)tile, rows, columns);
        return;
    }
    float *to = (float *)(void *)sum;
    const float *from = (const float *)(const void *)tile;
#if defined(__x86_64__)
    if (amp_isa() >= ISA_AVX2) {
        add_f32_avx2(to, from, rows, columns);
        return;
    }
#endif
    add_f32(to, from, rows, columns);
}

static void multiply_block(Unit *u) {
    const ConvWeight *p = u->p;
    const int64_t pitch = (BLOCK + ROW_PAD) / (p->pairs ? 2 : 1), depth = u->pixels / (p->pairs ? 2 : 1);
    const int64_t step = conv_divide_up(u->rows, conv_divide_up(u->rows, p->micro->rows));
    _Alignas(64) char tile[GEMM_TILE_BYTES];
    pack_y(u);
    for (int64_t row = 0; row < u->rows; row += step) {
        const int64_t rows = conv_min(step, u->rows - row);
        pack_x(u, u->row + row, rows);
        for (int64_t j = 0; j < u->columns; j += p->width) {
            const int64_t columns = conv_min(p->width, u->columns - j), vectors = conv_divide_up(columns, p->micro->lanes);
            p->micro->fn[rows - 1][vectors - 1](depth, u->x, pitch, 1, u->y + j * depth * p->size, p->width, tile, GEMM_MAX_COLS,
                                                false);
            add_tile(p, u->sum + (row * COLUMNS + j) * p->size, tile, rows, columns);
        }
    }
}

static void store(const Unit *u) {
    const ConvWeight *p = u->p;
    const Conv *c = p->c;
    for (int64_t i = 0; i < u->rows; i++) {
        const int64_t tap = (u->row + i) / c->in_channels, channel = (u->row + i) % c->in_channels;
        const int64_t first = (u->group * c->out_channels + u->column) * c->in_channels * c->taps + channel * c->taps + tap;
        const Matrix to = {
            .data = c->w + first * (int64_t)amp_itemsize(c->dtype), .col = c->in_channels * c->taps, .dtype = c->dtype};
        gemm_store_block(&to, 0, 0, 0, u->sum + i * COLUMNS * p->size, COLUMNS, 1, u->columns);
    }
}

static void run_units(void *ctx, int64_t begin, int64_t end) {
    ConvWeight *p = ctx;
    const int64_t y = BLOCK * COLUMNS * p->size, x = p->micro->rows * (BLOCK + ROW_PAD) * p->size,
                  sum = p->chunk * COLUMNS * p->size;
    char *scratch = gemm_scratch((size_t)(y + x + sum));
    if (!scratch) {
        atomic_store(&p->status, AMP_NO_MEMORY);
        return;
    }
    Unit u = {.p = p, .y = scratch, .x = scratch + y, .sum = scratch + y + x};
    for (int64_t unit = begin; unit < end; unit++) {
        u.row = unit % p->chunks * p->chunk;
        u.rows = conv_min(p->chunk, p->rows - u.row);
        u.column = unit / p->chunks % p->strips * COLUMNS;
        u.columns = conv_min(COLUMNS, p->c->out_channels - u.column);
        u.group = unit / p->chunks / p->strips;
        memset(u.sum, 0, (size_t)(u.rows * COLUMNS * p->size));
        for (int64_t image = 0, pixel = 0; next_block(&u, &image, &pixel);) multiply_block(&u);
        store(&u);
    }
    gemm_release(p->micro);
}

Status conv_weight(const Conv *c) {
    const bool pairs = c->dtype == AMP_BFLOAT16 && amp_isa_bf16_pairs();
    ConvWeight p = {.c = c,
                    .micro = gemm_micro_set(c->dtype == AMP_FLOAT64, pairs),
                    .size = c->dtype == AMP_FLOAT64 ? 8 : 4,
                    .rows = c->taps * c->in_channels,
                    .pairs = pairs,
                    .strips = conv_divide_up(c->out_channels, COLUMNS)};
    atomic_init(&p.status, AMP_OK);
    p.width = 2 * p.micro->lanes;
    p.x = (Gather){.image = c->groups * c->in_channels * c->in_pixels,
                   .channel = c->in_pixels,
                   .data = c->x,
                   .dtype = c->dtype,
                   .rounding = c->rounding};
    for (int d = 0; d < 3; d++) p.x.grid[d] = c->out[d], p.x.step[d] = c->stride[d], p.x.extent[d] = c->in[d];
    const double flops = 2.0 * (double)(c->groups * c->out_channels * p.rows) * (double)(c->images * c->out_pixels);
    const bool serial = flops < SERIAL_FLOPS;
    /* No more units than threads: each packs all of y that it meets. */
    const int64_t wanted = serial ? 1 : conv_divide_up(amp_get_num_threads(), p.strips * c->groups);
    const int64_t least = conv_divide_up(p.rows, MOST_ROWS), most = conv_divide_up(p.rows, p.micro->rows);
    p.chunks = conv_max(least, conv_min(wanted, most));
    p.chunk = conv_divide_up(conv_divide_up(p.rows, p.chunks), p.micro->rows) * p.micro->rows; /* whole tiles */
    p.chunks = conv_divide_up(p.rows, p.chunk);
    const int64_t units = p.chunks * p.strips * c->groups;
    amp_parallel_for(units, serial ? units : 1, run_units, &p);
    return (Status)atomic_load(&p.status);
}
