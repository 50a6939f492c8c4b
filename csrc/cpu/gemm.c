/* The gemm slot: choice of the path, blocking, threads, epilogue.
 *
 * Blocks. The result is cut into blocks of BLOCK_M x BLOCK_N, the inner dimension into BLOCK_K; each block is cut into tiles, which are
 * what threads take, and a tile into what the micro-kernel holds in registers:
 *
 *             BLOCK_N                       b: panels of 1 micro-tile's width, [k][col]
 *          +----+----+----+
 *     B    |    |    |    |  <- tile        a: rows as they are, [row][k], padded so that rows do not meet in one cache set
 *     L    +----+----+----+
 *     K    |    |    |    |
 *     _M   +----+----+----+
 *
 * Each round over k: all threads copy (widen, round, transpose) the operands' blocks to the caller's scratch, then all work on tiles.
 * An operand that is small, dense and of the compute type is used where it lies.
 *
 * What must stay true
 *   - Every element is one chain over k in order (gemm_micro.h), so neither blocks nor threads change its bits.
 *   - alpha, beta * d and the one rounding come after the last k. Until then the sum lies in fp32: in c itself if c is plain fp32 and
 *     nothing else happens to it, otherwise in scratch. So d may be c.
 *   - Vectors read and write whole columns of a panel only in scratch; beyond the edges of operands nothing is touched. */
#include <stdatomic.h>

#include "gemm.h"

enum {
    BLOCK_M = 1024,
    BLOCK_N = 2048,
    BLOCK_K = 512,
    TILE_M = 112,
    TILE_N = 256,
    ROW_PAD = 16,        /* elements between packed rows of a: an odd number of lines apart, never a power of two */
    IN_PLACE = 64 * 1024 /* elements of an operand that is worth no copy */
};
static const double SERIAL_FLOPS = 2e6; /* below, handing data to another core costs more than it wins */

typedef struct Gemm {
    const Product *p;
    const MicroSet *micro;
    int64_t size; /* bytes of the compute type: float, double, or a pair of bfloat16 */
    bool pairs;
    int64_t depth; /* of the whole product, in elements of the compute type: pairs count once */
    int64_t batch;
    int64_t width; /* of a panel of b */
    bool a_in_place, b_in_place;
    bool direct;    /* c itself holds the sum and needs no epilogue */
    Source a, b, d; /* of this batch */
    char *packed_a, *packed_b, *sum;
    int64_t a_row, a_col; /* elements: how a is read now */
    /* the block under work; k0 and k count as depth does */
    int64_t m0, m, n0, n, k0, k;
    int64_t tile_m, tiles_m, tiles_n;
    bool last; /* k */
} Gemm;

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

const MicroSet *gemm_micro_set(bool fp64, bool pairs) {
#if defined(__x86_64__)
    if (pairs) return &gemm_avx512_bf16;
    if (amp_isa() >= ISA_AVX512) return fp64 ? &gemm_avx512_f64 : &gemm_avx512_f32;
    if (amp_isa() >= ISA_AVX2) return fp64 ? &gemm_avx2_f64 : &gemm_avx2_f32;
#endif
    (void)pairs;
    return fp64 ? &gemm_portable_f64 : &gemm_portable_f32;
}

static Source source_of(const Matrix *x, int64_t batch, InputRounding rounding) {
    const int64_t size = (int64_t)amp_itemsize(x->dtype);
    return (Source){gemm_at(x, batch, 0, 0), x->row * size, x->col * size, x->dtype, rounding};
}

/* How many elements of k, in the operands, the block's depth stands for. */
static int64_t elements_of_k(const Gemm *g) { return g->pairs ? min64(2 * g->k, g->p->k - 2 * g->k0) : g->k; }
static int64_t first_k(const Gemm *g) { return g->pairs ? 2 * g->k0 : g->k0; }

static Source part(const Source *x, int64_t row, int64_t col) {
    Source s = *x;
    s.data += row * x->row + col * x->col;
    return s;
}

/* ------------------------------------------------------------------ packing */

/* One panel of b: k rows of `width`, the columns beyond the matrix are zero up to a whole vector. */
static void pack_panel(const Gemm *g, int64_t panel) {
    const int64_t col = panel * g->width, cols = min64(g->width, g->n - col);
    char *dst = g->packed_b + panel * g->width * BLOCK_K * g->size;
    const Source src = part(&g->b, first_k(g), g->n0 + col);
    if (g->pairs) gemm_load_pairs_down(dst, g->width, &src, elements_of_k(g), cols);
    else gemm_load_block(dst, g->width, &src, g->k, cols);
    const int64_t whole = divide_up(cols, g->micro->lanes) * g->micro->lanes;
    if (whole == cols) return;
    for (int64_t i = 0; i < g->k; i++) memset(dst + (i * g->width + cols) * g->size, 0, (size_t)((whole - cols) * g->size));
}

enum { PACK_ROWS = 16 }; /* rows of a per unit of packing */

static void pack_rows(const Gemm *g, int64_t unit) {
    const int64_t row = unit * PACK_ROWS, rows = min64(PACK_ROWS, g->m - row), pitch = BLOCK_K + ROW_PAD;
    const Source src = part(&g->a, g->m0 + row, first_k(g));
    char *dst = g->packed_a + row * pitch * g->size;
    if (g->pairs) gemm_load_pairs_along(dst, pitch, &src, rows, elements_of_k(g));
    else gemm_load_block(dst, pitch, &src, rows, g->k);
}

/* Units: first the panels of b, then groups of rows of a. */
static void pack_units(void *ctx, int64_t begin, int64_t end) {
    const Gemm *g = ctx;
    const int64_t panels = g->b_in_place ? 0 : divide_up(g->n, g->width);
    for (int64_t i = begin; i < end; i++) {
        if (i < panels) pack_panel(g, i);
        else pack_rows(g, i - panels);
    }
}

/* ------------------------------------------------------------------ epilogue */

/* tile = alpha * tile + beta * d, over whole rows of GEMM_MAX_COLS. */
static void scale_and_add(const Gemm *g, void *tile_data, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    const Product *p = g->p;
    const Source src = p->d.data ? part(&g->d, row, col) : g->d;
    if (g->size == 8) {
        double *tile = tile_data, d[GEMM_MAX_ROWS * GEMM_MAX_COLS] = {0};
        if (p->d.data) gemm_load_block(d, GEMM_MAX_COLS, &src, rows, cols);
        for (int64_t i = 0; i < rows * GEMM_MAX_COLS; i++) tile[i] = p->alpha.f * tile[i] + (p->d.data ? p->beta.f * d[i] : 0);
        return;
    }
    float *tile = tile_data, d[GEMM_MAX_ROWS * GEMM_MAX_COLS];
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

/* ------------------------------------------------------------------ tiles */

static const char *panel_of_b(const Gemm *g, int64_t panel, int64_t *row) {
    const int64_t col = panel * g->width;
    if (g->b_in_place && col + g->width <= g->n) {
        *row = g->b.row / g->size;
        return g->b.data + g->k0 * g->b.row + (g->n0 + col) * g->size;
    }
    *row = g->width;
    return g->packed_b + (g->b_in_place ? 0 : col * BLOCK_K * g->size);
}

static const char *rows_of_a(const Gemm *g, int64_t row) {
    if (g->a_in_place) return g->a.data + (g->m0 + row) * g->a.row + first_k(g) * g->a.col;
    return g->packed_a + row * (BLOCK_K + ROW_PAD) * g->size;
}

/* Rows [row, row + rows) of the block times one panel of b. */
static void micro_tile(const Gemm *g, int64_t row, int64_t rows, int64_t panel, const char *b, int64_t b_row) {
    _Alignas(64) char tile[GEMM_MAX_ROWS * GEMM_MAX_COLS * 8];
    const int64_t col = panel * g->width, cols = min64(g->width, g->n - col), vectors = divide_up(cols, g->micro->lanes);
    const MicroFn micro = g->micro->fn[rows - 1][vectors - 1];
    const char *a = rows_of_a(g, row);
    const bool whole = cols == vectors * g->micro->lanes, add = g->k0 > 0;
    const Matrix *c = &g->p->c;

    /* Where the sum lies between rounds over k. */
    char *sum = g->direct ? gemm_at(c, g->batch, g->m0 + row, g->n0 + col)
                : g->sum  ? g->sum + (row * BLOCK_N + col) * g->size
                          : NULL;
    const int64_t sum_row = g->direct ? c->row : BLOCK_N;
    if (sum && (whole || !g->direct) && (g->direct || !g->last)) {
        micro(g->k, a, g->a_row, g->a_col, b, b_row, sum, sum_row, add);
        return;
    }
    if (add)
        for (int64_t i = 0; i < rows; i++)
            memcpy(tile + i * GEMM_MAX_COLS * g->size, sum + i * sum_row * g->size, (size_t)(cols * g->size));
    micro(g->k, a, g->a_row, g->a_col, b, b_row, tile, GEMM_MAX_COLS, add);
    if (g->direct) {
        for (int64_t i = 0; i < rows; i++)
            memcpy(sum + i * sum_row * g->size, tile + i * GEMM_MAX_COLS * g->size, (size_t)(cols * g->size));
        return;
    }
    if (g->p->d.data || g->p->alpha.f != 1) scale_and_add(g, tile, g->m0 + row, g->n0 + col, rows, cols);
    gemm_store_block(c, g->batch, g->m0 + row, g->n0 + col, tile, GEMM_MAX_COLS, rows, cols);
}

/* Tiles are numbered down the columns, so that neighbours share panels of b. */
static void work_on_tiles(void *ctx, int64_t begin, int64_t end) {
    const Gemm *g = ctx;
    const int64_t panels_per_tile = TILE_N / g->width, panels = divide_up(g->n, g->width);
    for (int64_t t = begin; t < end; t++) {
        const int64_t top = t % g->tiles_m * g->tile_m, height = min64(g->tile_m, g->m - top);
        const int64_t first = t / g->tiles_m * panels_per_tile, past = min64(first + panels_per_tile, panels);
        const int64_t step = divide_up(height, divide_up(height, g->micro->rows)); /* even heights: no thin last row of tiles */
        for (int64_t panel = first; panel < past; panel++) {
            int64_t b_row;
            const char *b = panel_of_b(g, panel, &b_row);
            for (int64_t row = 0; row < height; row += step) micro_tile(g, top + row, min64(step, height - row), panel, b, b_row);
        }
    }
}

/* ------------------------------------------------------------------ blocks */

static void run_block(Gemm *g) {
    const bool serial = 2.0 * (double)g->m * (double)g->n * (double)g->k < SERIAL_FLOPS;
    const int64_t panels = divide_up(g->n, g->width);
    const int64_t units = g->k ? (g->b_in_place ? 0 : panels) + (g->a_in_place ? 0 : divide_up(g->m, PACK_ROWS)) : 0;
    if (g->k && g->b_in_place && g->n % g->width) { /* only the last panel needs a copy; it lies first */
        char *packed = g->packed_b;
        g->packed_b -= (panels - 1) * g->width * BLOCK_K * g->size;
        pack_panel(g, panels - 1);
        g->packed_b = packed;
    }
    amp_parallel_for(units, serial ? units : 4, pack_units, g);
    g->tiles_m = divide_up(g->m, TILE_M);
    g->tile_m = divide_up(g->m, g->tiles_m);
    g->tiles_n = divide_up(g->n, TILE_N);
    const int64_t tiles = g->tiles_m * g->tiles_n;
    amp_parallel_for(tiles, serial ? tiles : 1, work_on_tiles, g);
}

static void run_batch(Gemm *g, int64_t batch) {
    const Product *p = g->p;
    g->batch = batch;
    g->a = source_of(&p->a, batch, g->a.rounding);
    g->b = source_of(&p->b, batch, g->b.rounding);
    if (p->d.data) g->d = source_of(&p->d, batch, INPUT_IEEE);
    for (g->m0 = 0; g->m0 < p->m; g->m0 += BLOCK_M) {
        g->m = min64(BLOCK_M, p->m - g->m0);
        for (g->n0 = 0; g->n0 < p->n; g->n0 += BLOCK_N) {
            g->n = min64(BLOCK_N, p->n - g->n0);
            g->k0 = 0;
            do { /* once even if there is no k: the epilogue is due */
                g->k = min64(BLOCK_K, g->depth - g->k0);
                g->last = g->k0 + g->k == g->depth;
                run_block(g);
                g->k0 += BLOCK_K;
            } while (g->k0 < g->depth);
        }
    }
}

/* ------------------------------------------------------------------ set-up */

static bool aligned(const Matrix *x, int64_t size) { return ((uintptr_t)x->data & (uintptr_t)(size - 1)) == 0; }

static void choose_places(Gemm *g) {
    const Product *p = g->p;
    const Matrix *a = &p->a, *b = &p->b, *c = &p->c;
    const bool plain = a->dtype == (g->size == 8 ? AMP_FLOAT64 : AMP_FLOAT32) && g->a.rounding == INPUT_IEEE;
    /* Rows of a at a large power of two meet in one cache set. */
    const bool crowded = a->col == 1 && a->row * g->size % 1024 == 0 && p->k > 64 && p->m > 8;
    g->a_in_place = plain && aligned(a, g->size) && !crowded && (p->m * p->k <= IN_PLACE || p->n <= g->width);
    g->b_in_place = plain && aligned(b, g->size) && b->col == 1 && (p->n * p->k <= IN_PLACE || p->m <= g->micro->rows);
    g->direct = !p->d.data && p->alpha.f == 1 && !c->via && c->dtype == (g->size == 8 ? AMP_FLOAT64 : AMP_FLOAT32) &&
                c->col == 1 && aligned(c, g->size);
    if (g->pairs) { /* rows of a are pairs already, if they start on one */
        g->a_in_place = a->col == 1 && a->row % 2 == 0 && p->k % 2 == 0 && aligned(a, 4) && a->row % 512 &&
                        (p->m * p->k <= IN_PLACE || p->n <= g->width);
        g->a_row = g->a_in_place ? a->row / 2 : BLOCK_K + ROW_PAD;
        g->a_col = 1;
        return;
    }
    g->a_row = g->a_in_place ? a->row : BLOCK_K + ROW_PAD;
    g->a_col = g->a_in_place ? a->col : 1;
}

/* Carves the three buffers out of this thread's scratch. */
static Status reserve(Gemm *g) {
    const Product *p = g->p;
    const int64_t m = min64(BLOCK_M, p->m), n = divide_up(min64(BLOCK_N, p->n), g->width) * g->width;
    const int64_t a = g->a_in_place ? 0 : m * (BLOCK_K + ROW_PAD);
    const int64_t b = (g->b_in_place ? g->width : n) * BLOCK_K;
    const int64_t sum = g->direct || g->depth <= BLOCK_K ? 0 : m * BLOCK_N;
    const int64_t pad = 64; /* bytes */
    char *base = gemm_scratch((size_t)((a + b + sum) * g->size + 2 * pad));
    if (!base) return AMP_NO_MEMORY;
    g->packed_b = base;
    g->packed_a = base + b * g->size + pad;
    g->sum = sum ? base + (a + b) * g->size + 2 * pad : NULL;
    return AMP_OK;
}

static Status run_range(const Product *p, int64_t begin, int64_t end) {
    const bool fp64 = p->a.dtype == AMP_FLOAT64;
    const InputRounding rounding = p->a.dtype == AMP_FLOAT32 ? (InputRounding)p->numerics.fp32_inputs : INPUT_IEEE;
    Status status = AMP_OK;
    if (gemm_is_skinny(p)) {
        for (int64_t batch = begin; batch < end && !status; batch++) status = gemm_skinny(p, rounding, batch);
        return status;
    }
    if (gemm_is_small(p)) return gemm_small(p, rounding, begin, end);
    const bool pairs = p->a.dtype == AMP_BFLOAT16 && amp_isa_fast_bf16_dot();
    Gemm g = {.p = p,
              .micro = gemm_micro_set(fp64, pairs),
              .size = fp64 ? 8 : 4,
              .pairs = pairs,
              .depth = pairs ? divide_up(p->k, 2) : p->k};
    g.a.rounding = g.b.rounding = rounding;
    g.width = 2 * g.micro->lanes;
    choose_places(&g);
    status = reserve(&g);
    if (status) return status;
    for (int64_t batch = begin; batch < end; batch++) run_batch(&g, batch);
    return AMP_OK;
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
    if (p->batches < 2 || (p->batches < 2 * amp_get_num_threads() && flops >= SERIAL_FLOPS)) return run_range(p, 0, p->batches);
    Batches all = {.p = p};
    atomic_init(&all.status, AMP_OK);
    const double grain = SERIAL_FLOPS / 2 / flops;
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
