/* The gemm slot: choice of the path, blocking, threads, epilogue.
 *
 * The result is cut into blocks of rows and columns, the inner dimension into blocks of depth:
 *
 *              block_n
 *        +----+----+----+----+       b: panels of one micro-tile's width, [k][col]
 * block_m|    |    |    |    |       a: rows as they are if they are of the compute type and do not meet in one cache set; otherwise
 *        +----+----+----+----+          a copy, [step of k][row][k], rows an odd number of lines apart
 *        |    | t  |    |    |       t: a tile, what a thread takes: strips (of micro-tiles) by panels
 *        +----+----+----+----+
 *
 * All threads pack (widen, round, transpose) a block's operands into the caller's scratch, then all work on tiles. With few rows, b is
 * not packed so: a tile is one panel by all rows, and its thread packs the panel step by step into memory of its own, while others
 * multiply.
 *
 * Within a tile the depth goes in steps of `step` elements, so that the rows of a, the panel of b and the sums stay in the core's
 * second-level cache: for each step, for each panel, for each strip, one call of the micro-kernel.
 *
 * What must stay true
 *   - Every element is one chain over k in order (gemm_micro.h), so neither blocks nor threads change its bits. On tiles (gemm_amx.c) the
 *     chain is one of steps, so all calls but the last take whole ones: steps and blocks of depth are multiples of MicroSet's.
 *   - alpha, beta * d and the one rounding come after the last k. Until then the sum lies in fp32, in memory of its own: with the
 *     tile's thread, or with the caller if there are several blocks of depth. So d may be c.
 *   - Vectors read and write whole columns of a panel only in scratch; beyond the edges of operands nothing is touched. */
#include <pthread.h>
#include <stdatomic.h>

#include "gemm.h"

enum {
    STEP_BYTES = 2048,      /* of a row of a in one call of the micro-kernel */
    BLOCK_BYTES = 8192,     /* of a row of a per block of depth */
    PACKED_BYTES = 8 << 20, /* of an operand's block, which lies in the cache that the cores share */
    BLOCK_M = 2048,         /* rows whose sums are kept, if there are several blocks of depth */
    PACK_ROWS = 64,         /* of a, per unit of packing: whole cache lines, if it is turned */
    TILE_M = 112,
    TILE_PANELS = 16,
    ROW_PAD = 64,         /* bytes between packed rows of a: an odd number of lines apart, never a power of two */
    ALONE_M = 1036,       /* few rows: each thread packs its own panels, */
    ALONE_PANELS = 4,     /* if every thread has so many */
    IN_PLACE = 64 * 1024, /* elements of an operand that is worth no copy */
    TILES_PER_THREAD = 8  /* at least, to keep all busy to the end */
};
static const double SERIAL_FLOPS = 2e6;  /* below, handing data to another core costs more than it wins; times MicroSet's speed */
static const double TILE_FLOPS = 1e5;    /* below, taking a tile costs too much beside its work; likewise */
static const double SHAPE_FLOPS = 1e4;   /* below, multiply-adds are done before tiles have got their shapes */
static const double SPLIT_FLOPS = 1.5e8; /* below, splitting costs more than tiles win; of more, none is small (gemm_small.c) */

/* How operands are packed: in the compute type, as pairs of bfloat16, or as pairs of parts (gemm_split.c). */
typedef enum Form { FORM_PLAIN, FORM_PAIRS, FORM_SPLIT } Form;

typedef struct Gemm {
    const Product *p;
    const MicroSet *micro;
    int64_t size; /* bytes of the compute type: float, double, or a pair of bfloat16 */
    Form form;
    int64_t depth; /* of the whole product, in elements of the compute type: pairs count once */
    int64_t batch;
    int64_t width; /* of a panel of b */
    bool a_in_place, b_in_place;
    bool b_alone;         /* tiles have all rows, so that each packs what it needs of b */
    bool direct;          /* c can hold the sum and needs no epilogue */
    Source a, b, d;       /* of this batch */
    int64_t a_row, a_col; /* elements: how a is read now */
    int64_t step, block_m, block_n, block_k;
    char *packed_a, *packed_b, *sums, *own; /* own: the caller's sums of a tile, as every thread has them */
    int64_t slot;                           /* bytes of the sums of a micro-tile */
    pthread_t caller;
    atomic_int status;
    /* the block under work; k0 and k count as depth does */
    int64_t m0, m, n0, n, k0, k;
    int64_t packed_m0, packed_n0, packed_k0; /* what lies in the copies */
    int64_t units_a, units_b;
    int64_t strips, strip, panels, tiles_m, tiles_n;
} Gemm;

/* A tile, and the step of its depth under work. */
typedef struct Tile {
    int64_t strip, strips, panel, panels; /* the first, and how many */
    int64_t k0, k;                        /* from the start of the block */
    const char *a;                        /* its rows from k0 on */
    const char *b, *next;                 /* the panel under work from k0 on; the one after it, NULL: nothing to ask for */
    int64_t b_row;
    char *sums;
    int64_t sums_row; /* slots per strip */
} Tile;

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

const MicroSet *gemm_micro_set(bool fp64, bool pairs) {
#if defined(__x86_64__)
    if (pairs) return amp_isa() == ISA_AMX ? &gemm_amx_bf16 : &gemm_avx512_bf16;
    if (amp_isa() >= ISA_AVX512) return fp64 ? &gemm_avx512_f64 : &gemm_avx512_f32;
    if (amp_isa() >= ISA_AVX2) return fp64 ? &gemm_avx2_f64 : &gemm_avx2_f32;
#endif
    (void)pairs;
    return fp64 ? &gemm_portable_f64 : &gemm_portable_f32;
}

bool gemm_in_pairs(const Product *p) {
    if (p->a.dtype != AMP_BFLOAT16 || !amp_isa_bf16_pairs()) return false;
    return amp_isa() != ISA_AMX || 2.0 * (double)p->m * (double)p->n * (double)p->k >= SHAPE_FLOPS;
}

static Source source_of(const Matrix *x, int64_t batch, InputRounding rounding) {
    const int64_t size = (int64_t)amp_itemsize(x->dtype);
    return (Source){gemm_at(x, batch, 0, 0), x->row * size, x->col * size, x->dtype, rounding};
}

/* Where depth k0 lies in the operands, and how many elements of k `k` stands for there. */
static int64_t first_k(const Gemm *g, int64_t k0) {
    return g->form == FORM_PAIRS ? 2 * k0 : g->form == FORM_SPLIT ? k0 / GEMM_SPLIT_WORDS * GEMM_SPLIT_SPAN : k0;
}
static int64_t elements_of_k(const Gemm *g, int64_t k0, int64_t k) {
    return min64(first_k(g, k), g->p->k - first_k(g, k0)); /* every k here but the last stands for whole elements */
}

static Source part(const Source *x, int64_t row, int64_t col) {
    Source s = *x;
    s.data += row * x->row + col * x->col;
    return s;
}

/* ------------------------------------------------------------------ packing */

/* Steps [k0, k0 + k) of one panel of b: rows of `width`, the columns beyond the matrix are zero up to a whole vector. */
static void pack_panel(const Gemm *g, int64_t panel, int64_t k0, int64_t k, char *dst) {
    const int64_t col = panel * g->width, cols = min64(g->width, g->n - col);
    const Source src = part(&g->b, first_k(g, g->k0 + k0), g->n0 + col);
    const int64_t elements = elements_of_k(g, g->k0 + k0, k);
    if (g->form == FORM_SPLIT) gemm_load_split_down(dst, g->width, &src, elements, cols);
    else if (g->form == FORM_PAIRS) gemm_load_pairs_down(dst, g->width, &src, elements, cols);
    else gemm_load_block(dst, g->width, &src, k, cols);
    const int64_t whole = divide_up(cols, g->micro->lanes) * g->micro->lanes;
    if (whole == cols) return;
    for (int64_t i = 0; i < k; i++) memset(dst + (i * g->width + cols) * g->size, 0, (size_t)((whole - cols) * g->size));
}

static const char *rows_of_a(const Gemm *g, int64_t row, int64_t k0) {
    if (g->a_in_place) return g->a.data + (g->m0 + row) * g->a.row + first_k(g, g->k0 + k0) * g->a.col;
    return g->packed_a + (k0 / g->step * g->m + row) * g->a_row * g->size;
}

static void pack_rows(const Gemm *g, int64_t unit) {
    const int64_t row = unit * PACK_ROWS, rows = min64(PACK_ROWS, g->m - row);
    for (int64_t k0 = 0; k0 < g->k; k0 += g->step) {
        const int64_t k = min64(g->step, g->k - k0);
        const Source src = part(&g->a, g->m0 + row, first_k(g, g->k0 + k0));
        char *dst = g->packed_a + (k0 / g->step * g->m + row) * g->a_row * g->size;
        const int64_t elements = elements_of_k(g, g->k0 + k0, k);
        if (g->form == FORM_SPLIT) gemm_load_split_along(dst, g->a_row, &src, rows, elements);
        else if (g->form == FORM_PAIRS) gemm_load_pairs_along(dst, g->a_row, &src, rows, elements);
        else gemm_load_block(dst, g->a_row, &src, rows, k);
    }
}

/* Units: first the panels of b, then groups of rows of a. */
static void pack_units(void *ctx, int64_t begin, int64_t end) {
    const Gemm *g = ctx;
    for (int64_t i = begin; i < end; i++) {
        if (i < g->units_b) pack_panel(g, i, 0, g->k, g->packed_b + i * g->width * g->k * g->size);
        else pack_rows(g, i - g->units_b);
    }
}

/* ------------------------------------------------------------------ epilogue */

/* tile = alpha * tile + beta * d, over whole rows of GEMM_MAX_COLS. */
static void scale_and_add(const Gemm *g, void *tile_data, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    const Product *p = g->p;
    const Source src = p->d.data ? part(&g->d, row, col) : g->d;
    if (g->size == 8) {
        double *tile = tile_data, d[GEMM_TILE_BYTES / 8] = {0};
        if (p->d.data) gemm_load_block(d, GEMM_MAX_COLS, &src, rows, cols);
        for (int64_t i = 0; i < rows * GEMM_MAX_COLS; i++) tile[i] = p->alpha.f * tile[i] + (p->d.data ? p->beta.f * d[i] : 0);
        return;
    }
    float *tile = tile_data, d[GEMM_TILE_BYTES / 4];
    if (!p->d.data) {
        for (int64_t i = 0; i < rows * GEMM_MAX_COLS; i++) tile[i] *= (float)p->alpha.f;
        return;
    }
    const int64_t d_rows = src.row ? rows : 1; /* a bias has one row for all */
    for (int64_t i = 0; i < d_rows && cols < GEMM_MAX_COLS; i++)
        memset(d + i * GEMM_MAX_COLS + cols, 0, (size_t)(GEMM_MAX_COLS - cols) * 4);
    gemm_load_block(d, GEMM_MAX_COLS, &src, d_rows, cols);
    gemm_scale()(tile, rows, (float)p->alpha.f, (float)p->beta.f, d, src.row ? GEMM_MAX_COLS : 0);
}

/* c = the sums of a micro-tile. */
static void finish(const Gemm *g, char *sum, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    const Matrix *c = &g->p->c;
    if (g->direct) {
        for (int64_t i = 0; i < rows; i++)
            memcpy(gemm_at(c, g->batch, row + i, col), sum + i * GEMM_MAX_COLS * g->size, (size_t)(cols * g->size));
        return;
    }
    if (g->p->d.data || g->p->alpha.f != 1) scale_and_add(g, sum, row, col, rows, cols);
    gemm_store_block(c, g->batch, row, col, sum, GEMM_MAX_COLS, rows, cols);
}

/* ------------------------------------------------------------------ tiles */

/* Where the multiplication finds a panel of b, and what it asks for meanwhile. */
static void find_panel(const Gemm *g, Tile *t, int64_t panel, char *alone) {
    const int64_t col = panel * g->width;
    t->next = NULL;
    t->b_row = g->width;
    if (g->b_alone) {
        pack_panel(g, panel, t->k0, t->k, alone);
        t->b = alone;
    } else if (g->b_in_place && col + g->width <= g->n) {
        t->b_row = g->b.row / g->size;
        t->b = g->b.data + (g->k0 + t->k0) * g->b.row + (g->n0 + col) * g->size;
    } else if (g->b_in_place) { /* the last one */
        t->b = g->packed_b + t->k0 * g->width * g->size;
    } else {
        t->b = g->packed_b + (panel * g->k + t->k0) * g->width * g->size;
        if (panel + 1 < t->panel + t->panels && t->k) t->next = t->b + g->k * g->width * g->size;
    }
}

/* The tile's strips times one panel of b. Meanwhile the same steps of the next panel come near, a part with each strip. */
static void multiply_panel(const Gemm *g, const Tile *t, int64_t panel) {
    _Alignas(64) char held[GEMM_TILE_BYTES];
    const int64_t col = panel * g->width, cols = min64(g->width, g->n - col), vectors = divide_up(cols, g->micro->lanes);
    const bool add = g->k0 + t->k0 > 0, last = g->k0 + t->k0 + t->k == g->depth;
    const bool straight = !add && last && g->direct && cols == vectors * g->micro->lanes;
    const bool early = t->next && vectors == 2;
    const int64_t ahead_step = g->width * g->size / t->strips;
    const char *ahead = t->next;
    for (int64_t s = 0; s < t->strips; s++) {
        const int64_t row = (t->strip + s) * g->strip, rows = min64(g->strip, g->m - row);
        const char *a = t->a + s * g->strip * g->a_row * g->size;
        char *sum = straight       ? gemm_at(&g->p->c, g->batch, g->m0 + row, g->n0 + col)
                    : add || !last ? t->sums + (s * t->sums_row + panel - t->panel) * g->slot
                                   : held;
        const int64_t sum_row = straight ? g->p->c.row : GEMM_MAX_COLS;
        if (early) {
            g->micro->ahead[rows - 1](t->k, a, g->a_row, g->a_col, t->b, t->b_row, sum, sum_row, add, ahead, ahead_step);
            ahead += t->k * ahead_step;
        } else {
            g->micro->fn[rows - 1][vectors - 1](t->k, a, g->a_row, g->a_col, t->b, t->b_row, sum, sum_row, add);
        }
        if (last && !straight) finish(g, sum, g->m0 + row, g->n0 + col, rows, cols);
    }
}

/* Bytes of one step of a panel that the thread packs for itself. */
static int64_t panel_bytes(const Gemm *g) { return g->b_alone ? g->step * g->width * g->size : 64; }

/* Bytes of the sums of a tile that a thread keeps. */
static int64_t sums_bytes(const Gemm *g) {
    if (g->depth <= g->step || g->sums) return 0;
    const int64_t strips = min64((g->b_alone ? ALONE_M : TILE_M) / g->micro->rows, divide_up(g->p->m, g->micro->rows));
    return strips * (g->b_alone ? 1 : min64(TILE_PANELS, divide_up(g->p->n, g->width))) * g->slot;
}

/* Evenly cut: part i of n things in `parts`. */
static int64_t cut(int64_t n, int64_t parts, int64_t i) { return n * i / parts; }

/* Tiles are numbered along the rows, so that neighbours share rows of a. */
static void work_on_tiles(void *ctx, int64_t begin, int64_t end) {
    Gemm *g = ctx;
    char *own = pthread_equal(pthread_self(), g->caller) ? g->own : gemm_scratch((size_t)(panel_bytes(g) + sums_bytes(g)));
    if (!own) {
        atomic_store(&g->status, AMP_NO_MEMORY);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t down = i / g->tiles_n, across = i % g->tiles_n;
        Tile t = {.strip = cut(g->strips, g->tiles_m, down), .panel = cut(g->panels, g->tiles_n, across)};
        t.strips = cut(g->strips, g->tiles_m, down + 1) - t.strip;
        t.panels = cut(g->panels, g->tiles_n, across + 1) - t.panel;
        t.sums_row = g->sums ? g->panels : t.panels;
        t.sums = g->sums ? g->sums + (t.strip * g->panels + t.panel) * g->slot : own + panel_bytes(g);
        do { /* once even if there is no k: the epilogue is due */
            t.k = min64(g->step, g->k - t.k0);
            t.a = rows_of_a(g, t.strip * g->strip, t.k0);
            for (int64_t j = t.panel; j < t.panel + t.panels; j++) {
                find_panel(g, &t, j, own);
                multiply_panel(g, &t, j);
            }
            t.k0 += g->step;
        } while (t.k0 < g->k);
    }
    gemm_release(g->micro);
}

/* ------------------------------------------------------------------ blocks */

/* How many tiles: of the size that fits the cache, and smaller where threads would go idle. */
static void cut_block(Gemm *g, bool serial) {
    const double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    const int64_t threads = serial ? 1 : amp_get_num_threads();
    const int64_t wanted = threads > 1 ? min64(threads * TILES_PER_THREAD, (int64_t)(flops / (TILE_FLOPS * g->micro->speed))) : 1;
    g->strips = divide_up(g->m, g->micro->rows);
    g->strip = divide_up(g->m, g->strips); /* even heights: no thin last strip */
    g->panels = divide_up(g->n, g->width);
    if (g->b_alone) {
        g->tiles_m = 1;
        g->tiles_n = g->panels;
        return;
    }
    g->tiles_m = divide_up(g->strips, TILE_M / g->micro->rows);
    g->tiles_n = divide_up(g->panels, TILE_PANELS);
    while (g->tiles_m * g->tiles_n < wanted && (g->tiles_m < g->strips || g->tiles_n < g->panels)) {
        const int64_t rows = g->m / g->tiles_m, cols = g->n / g->tiles_n;
        if (g->tiles_n == g->panels || (g->tiles_m < g->strips && rows > cols)) g->tiles_m++;
        else g->tiles_n++;
    }
}

/* Copies that an earlier block made stay. */
static void pack_block(Gemm *g, bool serial) {
    if (!g->k) return;
    const bool new_a = g->packed_m0 != g->m0 || g->packed_k0 != g->k0, new_b = g->packed_n0 != g->n0 || g->packed_k0 != g->k0;
    g->units_a = g->a_in_place || !new_a ? 0 : divide_up(g->m, PACK_ROWS);
    g->units_b = g->b_in_place || g->b_alone || !new_b ? 0 : g->panels;
    if (g->b_in_place && g->n % g->width)
        pack_panel(g, g->panels - 1, 0, g->k, g->packed_b); /* only the last panel needs a copy */
    const int64_t units = g->units_a + g->units_b;
    amp_parallel_for(units, serial ? units : 1, pack_units, g);
    g->packed_m0 = g->m0;
    g->packed_n0 = g->n0;
    g->packed_k0 = g->k0;
}

static void run_block(Gemm *g) {
    const bool serial = 2.0 * (double)g->m * (double)g->n * (double)g->k < SERIAL_FLOPS * g->micro->speed;
    cut_block(g, serial);
    pack_block(g, serial);
    const int64_t tiles = g->tiles_m * g->tiles_n;
    amp_parallel_for(tiles, serial ? tiles : 1, work_on_tiles, g);
}

static void run_batch(Gemm *g, int64_t batch) {
    const Product *p = g->p;
    g->batch = batch;
    g->packed_k0 = -1;
    g->a = source_of(&p->a, batch, g->a.rounding);
    g->b = source_of(&p->b, batch, g->b.rounding);
    if (p->d.data) g->d = source_of(&p->d, batch, INPUT_IEEE);
    for (g->m0 = 0; g->m0 < p->m; g->m0 += g->block_m) {
        g->m = min64(g->block_m, p->m - g->m0);
        for (g->n0 = 0; g->n0 < p->n; g->n0 += g->block_n) {
            g->n = min64(g->block_n, p->n - g->n0);
            g->k0 = 0;
            do {
                g->k = min64(g->block_k, g->depth - g->k0);
                run_block(g);
                g->k0 += g->block_k;
            } while (g->k0 < g->depth);
        }
    }
}

/* ------------------------------------------------------------------ set-up */

static bool aligned(const Matrix *x, int64_t size) { return ((uintptr_t)x->data & (uintptr_t)(size - 1)) == 0; }

/* Elements from one packed row of a to the next; whole lines where tiles read them. */
static int64_t pitch_of_a(const Gemm *g) {
    const int64_t k = min64(g->step, g->depth);
    return g->micro->step > 1 ? (divide_up(k, g->micro->step) | 1) * g->micro->step : k + ROW_PAD / g->size;
}

static void choose_places(Gemm *g) {
    const Product *p = g->p;
    const Matrix *a = &p->a, *b = &p->b, *c = &p->c;
    const int64_t item = (int64_t)amp_itemsize(a->dtype);
    const bool plain = a->dtype == (g->size == 8 ? AMP_FLOAT64 : AMP_FLOAT32) && g->a.rounding == INPUT_IEEE;
    const bool pairs = g->form == FORM_PAIRS;
    /* Rows of a at a multiple of a page meet in one cache set. */
    const bool crowded = a->col == 1 && a->row * item % 4096 == 0 && p->k > 64 && p->m > 8;
    const bool small = p->m * p->k <= IN_PLACE || p->n <= g->width;
    g->b_in_place = plain && aligned(b, g->size) && b->col == 1 && (p->n * p->k <= IN_PLACE || p->m <= g->micro->rows);
    g->b_alone = !g->b_in_place && p->m <= ALONE_M / g->micro->rows * g->micro->rows &&
                 p->n >= ALONE_PANELS * g->width * amp_get_num_threads() && p->n * p->k > IN_PLACE;
    g->direct = !p->d.data && p->alpha.f == 1 && !c->via && c->dtype == (g->size == 8 ? AMP_FLOAT64 : AMP_FLOAT32) &&
                c->col == 1 && aligned(c, g->size);
    if (pairs) g->a_in_place = a->col == 1 && a->row % 2 == 0 && p->k % 2 == 0; /* pairs lie as such, if rows start on one */
    else g->a_in_place = plain && (a->col == 1 || small);
    g->a_in_place = g->a_in_place && aligned(a, g->size) && !crowded;
    g->a_row = g->a_in_place ? (pairs ? a->row / 2 : a->row) : pitch_of_a(g);
    g->a_col = g->a_in_place && !pairs ? a->col : 1;
}

/* Parts of `total`, of one size as nearly as `unit` allows, at most `most`. */
static int64_t part_size(int64_t total, int64_t most, int64_t unit) {
    const int64_t parts = divide_up(total, max64(most, unit));
    return divide_up(divide_up(total, parts), unit) * unit;
}

static void choose_blocks(Gemm *g) {
    const Product *p = g->p;
    g->block_k = BLOCK_BYTES / g->size;
    const int64_t lines = PACKED_BYTES / (max64(min64(g->depth, g->block_k), 1) * g->size); /* rows or columns of a block */
    const bool deep = g->depth > g->block_k;                                                /* so that sums are kept */
    const int64_t most_m = g->a_in_place || g->b_alone ? p->m : lines,
                  most_n = g->b_in_place || (g->b_alone && !deep) ? p->n : lines;
    g->block_m = part_size(p->m, deep ? min64(most_m, BLOCK_M) : most_m, g->micro->rows);
    g->block_n = part_size(p->n, most_n, g->width);
}

/* Carves the buffers out of this thread's scratch. */
static Status reserve(Gemm *g) {
    const Product *p = g->p;
    const int64_t k = min64(g->depth, g->block_k), m = min64(g->block_m, p->m), panels = divide_up(g->block_n, g->width);
    const int64_t b = g->b_alone ? 0 : (g->b_in_place ? 1 : panels) * g->width * k * g->size;
    const int64_t a = g->a_in_place ? 0 : divide_up(k, g->step) * m * g->a_row * g->size;
    g->slot = g->micro->rows * GEMM_MAX_COLS * g->size;
    const int64_t sums = g->depth > g->block_k ? divide_up(m, g->micro->rows) * panels * g->slot : sums_bytes(g);
    char *base = gemm_scratch((size_t)(b + divide_up(a, 64) * 64 + panel_bytes(g) + sums));
    if (!base) return AMP_NO_MEMORY;
    g->packed_b = base;
    g->packed_a = base + b;
    g->own = base + b + divide_up(a, 64) * 64;
    if (g->depth > g->block_k) g->sums = g->own + panel_bytes(g);
    return AMP_OK;
}

/* Batches [begin, end). */
static Status run_blocks(const Product *p, InputRounding rounding, Form form, int64_t begin, int64_t end) {
    const bool fp64 = p->a.dtype == AMP_FLOAT64;
    Gemm g = {.p = p,
              .micro = gemm_micro_set(fp64, form != FORM_PLAIN),
              .size = fp64 ? 8 : 4,
              .form = form,
              .depth = form == FORM_PAIRS   ? divide_up(p->k, 2)
                       : form == FORM_SPLIT ? divide_up(p->k, GEMM_SPLIT_SPAN) * GEMM_SPLIT_WORDS
                                            : p->k,
              .caller = pthread_self()};
    g.a.rounding = g.b.rounding = rounding;
    g.width = 2 * g.micro->lanes;
    g.step = STEP_BYTES / g.size;
    atomic_init(&g.status, AMP_OK);
    choose_places(&g);
    choose_blocks(&g);
    const Status status = reserve(&g);
    if (status) return status;
    for (int64_t batch = begin; batch < end; batch++) run_batch(&g, batch);
    return (Status)atomic_load(&g.status);
}

/* fp16 and TF32 as sums of two bfloat16: only where tiles multiply them, and by m n k alone, as gemm_in_pairs. */
static bool may_split(const Product *p, InputRounding rounding) {
    if (amp_isa() != ISA_AMX || p->m < GEMM_MAX_ROWS || p->n < GEMM_MAX_COLS) return false;
    if (p->a.dtype != AMP_FLOAT16 && !(p->a.dtype == AMP_FLOAT32 && rounding == INPUT_TF32)) return false;
    return 2.0 * (double)p->m * (double)p->n * (double)p->k > SPLIT_FLOPS;
}

static Status run_range(const Product *p, int64_t begin, int64_t end) {
    const InputRounding rounding = p->a.dtype == AMP_FLOAT32 ? (InputRounding)p->numerics.fp32_inputs : INPUT_IEEE;
    Status status = AMP_OK;
    if (gemm_is_skinny(p)) {
        for (int64_t batch = begin; batch < end && !status; batch++) status = gemm_skinny(p, rounding, batch);
        return status;
    }
    if (gemm_is_small(p)) return gemm_small(p, rounding, begin, end);
    if (!may_split(p, rounding)) return run_blocks(p, rounding, gemm_in_pairs(p) ? FORM_PAIRS : FORM_PLAIN, begin, end);
    for (int64_t batch = begin; batch < end && !status;
         batch++) { /* each by itself: an infinity changes no bits of other matrices */
        const Source a = source_of(&p->a, batch, rounding), b = source_of(&p->b, batch, rounding);
        const bool splits = gemm_can_split(&a, p->m, p->k) && gemm_can_split(&b, p->k, p->n);
        status = run_blocks(p, rounding, splits ? FORM_SPLIT : FORM_PLAIN, batch, batch + 1);
    }
    return status;
}

typedef struct Batches {
    const Product *p;
    atomic_int status;
} Batches;

static void run_batches(void *ctx, int64_t begin, int64_t end) {
    Batches *all = ctx;
    Status status = run_range(all->p, begin, end);
    if (status) atomic_store(&all->status, (int)status);
}

/* Many small products: a thread takes whole ones. Few or large: all threads share each. */
static Status run_product(const Product *p) {
    const double flops = 2.0 * (double)p->m * (double)p->n * (double)(p->k + 1);
    if (p->batches < 2) return run_range(p, 0, p->batches);
    const double serial = SERIAL_FLOPS * gemm_micro_set(p->a.dtype == AMP_FLOAT64, gemm_in_pairs(p))->speed;
    if (p->batches < 2 * amp_get_num_threads() && flops >= serial) return run_range(p, 0, p->batches);
    Batches all = {.p = p};
    atomic_init(&all.status, AMP_OK);
    const double grain = serial / 2 / flops;
    amp_parallel_for(p->batches, grain > 1 ? (int64_t)grain : 1, run_batches, &all);
    return (Status)atomic_load(&all.status);
}

/* c = a @ b  <=>  c' = b' @ a': rows of c become dense, or the product gets fewer rows than columns. */
static void swap_sides(Product *p) {
    const Matrix a = p->a;
    p->a = p->b;
    p->b = a;
    Matrix *const all[] = {&p->a, &p->b, &p->c, &p->d};
    for (int i = 0; i < 4; i++) {
        const int64_t row = all[i]->row;
        all[i]->row = all[i]->col;
        all[i]->col = row;
    }
    const int64_t m = p->m;
    p->m = p->n;
    p->n = m;
}

static bool needs_loops(const Product *p) {
    if (!amp_is_floating(p->a.dtype)) return true;
    if (p->a.dtype == AMP_FLOAT16 && p->numerics.fp16_accumulate) return true;
    return amp_is_16bit(p->a.dtype) && p->numerics.split_k > 1 && p->numerics.round_partials;
}

Status amp_gemm(const Call *call) {
    Product p;
    Status status = gemm_describe(call, &p);
    if (status) return status;
    if (!p.batches || !p.m || !p.n) return AMP_OK;
    if (needs_loops(&p)) return gemm_by_loops(&p);
    const bool few_cols = p.n <= GEMM_SKINNY && p.m > p.n && p.a.dtype != AMP_FLOAT64;
    if (few_cols || (p.c.col != 1 && p.c.row == 1 && p.m > GEMM_SKINNY)) swap_sides(&p);
    return run_product(&p);
}
