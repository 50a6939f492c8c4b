/* Gradients of attention. With chances P, output O, its gradient G and D = rowsum(G O):
 *
 *     dS = P (G V^T - D)        dQ = dS K scale        dK = dS^T Q scale        dV = P^T G
 *
 * A thread takes a part of the keys of one matrix and walks over all queries that see it, in blocks; P is formed again from the scores and
 * the forward call's logarithms, in tiles that stay in the L1 cache, and kept for one block:
 *
 *                keys of the part: BLOCK at a time
 *              +--------+--------+
 *     queries  | P, dS  |        |  -> dq   (queries of the block x E), over all keys of the part
 *     ROWS at  +--------+--------+
 *     a time   |        |        |
 *              +--------+--------+
 *                  |
 *                  v  dk, dv  (keys of the part x E, Ev), over all queries, and over all heads that share the keys
 *
 * A matrix has one part, unless there are few matrices: then each part's dq is kept apart, and they are added in order at the end.
 *
 * What must stay true
 *   - How many parts there are depends on shapes alone, so results do not depend on the number of threads.
 *   - P and dS are 0 wherever a product reads them and a score is hidden or absent: such scores are -inf, and panels that no row of a
 *     tile sees are cleared.
 *   - With pairs, P and dS as left operands of dv and dk pair neighbouring queries, and dS as left operand of dq pairs neighbouring keys
 *     (AttentionTile): tiles have an even number of rows, except the last. */
#include <stdatomic.h>
#include <stdlib.h>

#include "attention.h"

enum {
    BLOCK = 224, /* keys: whole panels, and whole tiles of the widest micro-kernel */
    PITCH = BLOCK + 16,
    ALONG_PITCH = BLOCK / 2 + 16, /* of pairs */
    ROWS = 224,                   /* queries, about */
    ENOUGH_UNITS = 16,
    FEW_PARTS = 4,
    MOST_BYTES = 64 << 20 /* for the gradients of more parts than few */
};
static const float LOG2_E = 0x1.715476p+0f;

typedef struct Backward {
    Attention a;
    const AttentionRows *rows;
    const View *grad, *output;
    const float *logarithms;
    View *dq, *dk, *dv; /* NULL: not wanted */
    bool adjust;        /* scores are scaled in place */
    AttentionPanelsFn panels;
    float factor;
    int64_t block;       /* queries */
    int64_t part, parts; /* keys per part, parts per matrix */
    float *sums;         /* dq of each part: (matrices, parts, L, wide_e), or NULL */
    int64_t bytes;
    atomic_int status;
} Backward;

/* A thread's memory. */
typedef struct Work {
    const Backward *f;
    int64_t first, keys;       /* of the part */
    int64_t matrix, row, rows; /* the block of queries */
    Fetch fetch_part, fetch_block;
    float *key_down, *value_down, *key; /* right operands of the scores, of G V^T, of dq */
    float *dk, *dv;
    Left query, grad;              /* left operands of the scores and of G V^T */
    float *query_rows, *grad_rows; /* memory for them */
    float *query_down, *grad_down; /* right operands of dk and dv */
    float *shift, *delta, *dq;
    float *s, *dp, *add, *output; /* one tile's */
    float *p, *ds, *along;
} Work;

static void pack_keys(Work *w, int64_t kind) {
    const Attention *a = &w->f->a;
    const Source k = attention_source(a->key, kind, w->first), v = attention_source(a->value, kind, w->first);
    const Source k_down = attention_transposed(k), v_down = attention_transposed(v);
    attention_pack_panels(a, w->key_down, &k_down, a->features, w->keys);
    attention_pack_panels(a, w->value_down, &v_down, a->values, w->keys);
    if (w->f->dq) attention_pack_panels(a, w->key, &k, w->keys, a->features);
}

/* delta[i] = the dot product of row i of the gradient and of the output. */
static void find_deltas(Work *w) {
    const Attention *a = &w->f->a;
    for (int64_t at = 0; at < w->rows; at += a->micro->rows) {
        const int64_t rows = attention_min(a->micro->rows, w->rows - at);
        const Source src = attention_source(w->f->output, w->matrix, w->row + at);
        const Left output = attention_left(a, w->output, &src, rows, a->values);
        const float *grad = w->grad.data + at * w->grad.row;
        for (int64_t i = 0; i < rows; i++)
            w->delta[at + i] = w->f->rows->dot(grad + i * w->grad.row, output.data + i * output.row, a->depth_v);
    }
}

static void pack_queries(Work *w) {
    const Attention *a = &w->f->a;
    const Source q = attention_source(a->query, w->matrix, w->row), g = attention_source(w->f->grad, w->matrix, w->row);
    w->query = attention_left(a, w->query_rows, &q, w->rows, a->features);
    w->grad = attention_left(a, w->grad_rows, &g, w->rows, a->values);
    if (w->f->dk) attention_pack_panels(a, w->query_down, &q, w->rows, a->features);
    if (w->f->dv) attention_pack_panels(a, w->grad_down, &g, w->rows, a->values);
    memcpy(w->shift, w->f->logarithms + w->matrix * a->length + w->row, (size_t)w->rows * sizeof *w->shift);
    find_deltas(w);
}

/* How many of the keys from `key` on, at most n, query `row` sees. */
static int64_t seen_by(const Work *w, int64_t row, int64_t key, int64_t n) {
    if (!w->f->a.plan->causal) return n;
    return attention_max(0, attention_min(n, row + 1 - w->first - key));
}

/* What becomes of the scores of `rows` queries at `at` of the block with `cols` keys from column `col` on. */
static AttentionTile tile_at(const Work *w, int64_t at, int64_t rows, int64_t col, int64_t cols) {
    const Attention *a = &w->f->a;
    const int64_t out = attention_depth(a, at) * PITCH + col;
    return (AttentionTile){.s = w->s,
                           .dp = w->dp,
                           .pitch = a->width,
                           .rows = rows,
                           .cols = cols,
                           .shift = w->shift + at,
                           .delta = w->delta + at,
                           .factor = w->f->factor,
                           .p = w->p + out,
                           .ds = w->ds + out,
                           .along = a->pairs ? w->along + at * ALONG_PITCH + col / 2 : NULL,
                           .out_pitch = PITCH,
                           .along_pitch = ALONG_PITCH};
}

/* `rows` queries at `at` of the block, and the panel of `n` keys at `key` + `col`. */
static void form_panel(Work *w, int64_t at, int64_t rows, int64_t key, int64_t col, int64_t n) {
    const Backward *f = w->f;
    const Attention *a = &f->a;
    const int64_t whole = attention_round_up(n, a->micro->lanes), column = key + col;
    attention_product(a, a->depth_e, w->query.data + at * w->query.row, w->query.row, 1, w->key_down + column * a->depth_e, 0, n,
                      w->s, a->width, rows, false);
    attention_product(a, a->depth_v, w->grad.data + at * w->grad.row, w->grad.row, 1, w->value_down + column * a->depth_v, 0, n,
                      w->dp, a->width, rows, false);
    for (int64_t i = 0; i < rows; i++) {
        float *s = w->s + i * a->width;
        if (f->adjust) f->rows->adjust(s, a->mask ? w->add + i * PITCH + col : NULL, whole, (float)a->plan->scale);
        for (int64_t j = seen_by(w, w->row + at + i, column, n); j < whole; j++) s[j] = -INFINITY;
    }
    const AttentionTile tile = tile_at(w, at, rows, col, whole);
    f->rows->tile(&tile);
}

/* As many of the `n` keys at `key` as come in whole panels, none of which is hidden from any of the tile's queries. Returns how many. */
static int64_t form_panels(Work *w, int64_t at, int64_t rows, int64_t key, int64_t n) {
    const Backward *f = w->f;
    const Attention *a = &f->a;
    const int64_t panels = seen_by(w, w->row + at, key, n) / a->width;
    if (!f->panels || f->adjust || rows < a->micro->rows || !panels) return 0;
    const AttentionPanels t = {.query = {w->query.data + at * w->query.row, w->query.row},
                               .grad = {w->grad.data + at * w->grad.row, w->grad.row},
                               .depth_e = a->depth_e,
                               .depth_v = a->depth_v,
                               .key_down = w->key_down + key * a->depth_e,
                               .value_down = w->value_down + key * a->depth_v,
                               .panels = panels,
                               .tile = tile_at(w, at, rows, 0, panels * a->width),
                               .fetch = {&w->fetch_part, &w->fetch_block}};
    f->panels(&t);
    return panels * a->width;
}

/* Clears columns [col, n) of p and ds for a tile. */
static void clear(Work *w, int64_t at, int64_t rows, int64_t col, int64_t n) {
    const int64_t first = attention_depth(&w->f->a, at), past = first + attention_depth(&w->f->a, rows);
    for (int64_t i = first; i < past && col < n; i++) {
        memset(w->p + i * PITCH + col, 0, (size_t)(n - col) * 4);
        memset(w->ds + i * PITCH + col, 0, (size_t)(n - col) * 4);
    }
}

/* A tile's P and dS for n keys at `key`; then its dq. */
static void form_tile(Work *w, int64_t at, int64_t key, int64_t n) {
    const Backward *f = w->f;
    const Attention *a = &f->a;
    const int64_t rows = attention_min(a->micro->rows, w->rows - at), seen = seen_by(w, w->row + at + rows - 1, key, n);
    int64_t col = form_panels(w, at, rows, key, n);
    if (a->mask && seen > 0) attention_load_mask(a, w->matrix, w->row + at, rows, w->first + key, n, w->add, PITCH);
    for (; col < seen; col += a->width) {
        attention_fetch(&w->fetch_part);
        attention_fetch(&w->fetch_block);
        form_panel(w, at, rows, key, col, attention_min(a->width, n - col));
    }
    clear(w, at, rows, col, n);
    if (!f->dq || seen == 0) return;
    const int64_t pitch = a->pairs ? ALONG_PITCH : PITCH;
    const float *left = (a->pairs ? w->along : w->ds) + at * pitch;
    const int64_t depth = attention_depth(a, w->keys);
    attention_product(a, attention_depth(a, seen), left, pitch, 1, w->key + attention_depth(a, key) * a->width, depth * a->width,
                      a->features, w->dq + at * a->wide_e, a->wide_e, rows, key > 0);
}

/* dk and dv of `rows` keys at `key` + `col`, from the queries that see any of them. */
static void add_keys(Work *w, int64_t key, int64_t col, int64_t rows) {
    const Backward *f = w->f;
    const Attention *a = &f->a;
    const int64_t tile = a->micro->rows, before = w->first + key + col - w->row;
    const int64_t at = a->plan->causal && before > 0 ? before / tile * tile : 0, top = attention_depth(a, at);
    const int64_t k = attention_depth(a, w->rows - at), panel = attention_depth(a, w->rows) * a->width;
    if (f->dv)
        attention_product(a, k, w->p + top * PITCH + col, 1, PITCH, w->grad_down + top * a->width, panel, a->values,
                          w->dv + (key + col) * a->wide_v, a->wide_v, rows, true);
    if (f->dk)
        attention_product(a, k, w->ds + top * PITCH + col, 1, PITCH, w->query_down + top * a->width, panel, a->features,
                          w->dk + (key + col) * a->wide_e, a->wide_e, rows, true);
}

static void keep_dq(Work *w, int64_t part) {
    const Backward *f = w->f;
    const Attention *a = &f->a;
    if (!f->dq) return;
    f->rows->scale(w->dq, w->rows * a->wide_e, (float)a->plan->scale);
    if (f->sums) {
        float *to = f->sums + ((w->matrix * f->parts + part) * a->length + w->row) * a->wide_e;
        memcpy(to, w->dq, (size_t)(w->rows * a->wide_e) * sizeof *to);
        return;
    }
    const Matrix to = attention_matrix(f->dq, w->matrix, w->row);
    gemm_store_block(&to, 0, 0, 0, w->dq, a->wide_e, w->rows, a->features);
}

/* About how many panels of tiles are formed of so many queries. */
static int64_t panels_of(const Work *w, int64_t rows) {
    const Attention *a = &w->f->a;
    const int64_t panels = attention_divide_up(rows, a->micro->rows) * attention_divide_up(w->keys, a->width);
    return a->plan->causal ? panels / 2 : panels;
}

/* Results of this part, and the keys of the next. */
static void plan_part(Work *w, int64_t unit, int64_t next) {
    const Backward *f = w->f;
    const Attention *a = &f->a;
    w->fetch_part = (Fetch){.now = 0};
    if (!a->fetches) return;
    if (next >= 0) {
        const int64_t first = next % f->parts * f->part, keys = attention_min(f->part, a->keys - first);
        attention_want(&w->fetch_part, a->key, next / f->parts, first, keys);
        attention_want(&w->fetch_part, a->value, next / f->parts, first, keys);
    }
    attention_want(&w->fetch_part, f->dk, unit / f->parts, w->first, w->keys);
    attention_want(&w->fetch_part, f->dv, unit / f->parts, w->first, w->keys);
    attention_pace(&w->fetch_part, a->group * panels_of(w, a->length));
}

/* Results of this block, and the rows of the next: of this matrix, of the one after it, or of the next part's first. */
static void plan_block(Work *w, int64_t next_unit) {
    const Backward *f = w->f;
    const Attention *a = &f->a;
    const int64_t past = w->row + w->rows;
    int64_t matrix = w->matrix, row = past;
    if (past >= a->length && (w->matrix + 1) % a->group) matrix++, row = a->plan->causal ? w->first : 0;
    else if (past >= a->length) matrix = next_unit < 0 ? -1 : next_unit / f->parts * a->group, row = 0;
    const int64_t rows = attention_min(f->block, a->length - row);
    w->fetch_block = (Fetch){.now = 0};
    if (!a->fetches) return;
    if (matrix >= 0) {
        attention_want(&w->fetch_block, a->query, matrix, row, rows);
        attention_want(&w->fetch_block, f->grad, matrix, row, rows);
        attention_want(&w->fetch_block, f->output, matrix, row, rows);
    }
    if (!f->sums) attention_want(&w->fetch_block, f->dq, w->matrix, w->row, w->rows);
    attention_pace(&w->fetch_block, panels_of(w, w->rows));
}

static void run_block(Work *w, int64_t part, int64_t next_unit) {
    const Attention *a = &w->f->a;
    const int64_t tile = a->micro->rows, seen = seen_by(w, w->row + w->rows - 1, 0, w->keys);
    pack_queries(w);
    plan_block(w, next_unit);
    for (int64_t key = 0; key < seen; key += BLOCK) {
        const int64_t n = attention_min(BLOCK, seen - key);
        for (int64_t at = 0; at < w->rows; at += tile) form_tile(w, at, key, n);
        for (int64_t col = 0; col < n; col += tile) add_keys(w, key, col, attention_min(tile, n - col));
    }
    keep_dq(w, part);
}

static void run_part(Work *w, int64_t unit, int64_t next) {
    const Backward *f = w->f;
    const Attention *a = &f->a;
    const int64_t kind = unit / f->parts, part = unit % f->parts;
    w->first = part * f->part;
    w->keys = attention_min(f->part, a->keys - w->first);
    pack_keys(w, kind);
    plan_part(w, unit, next);
    memset(w->dk, 0, (size_t)(w->keys * a->wide_e) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(w->keys * a->wide_v) * sizeof *w->dv);
    for (w->matrix = kind * a->group; w->matrix < (kind + 1) * a->group; w->matrix++)
        for (w->row = a->plan->causal ? w->first : 0; w->row < a->length; w->row += f->block) {
            w->rows = attention_min(f->block, a->length - w->row);
            run_block(w, part, next);
        }
    if (f->dk) {
        f->rows->scale(w->dk, w->keys * a->wide_e, (float)a->plan->scale);
        const Matrix to = attention_matrix(f->dk, kind, w->first);
        gemm_store_block(&to, 0, 0, 0, w->dk, a->wide_e, w->keys, a->features);
    }
    if (f->dv) {
        const Matrix to = attention_matrix(f->dv, kind, w->first);
        gemm_store_block(&to, 0, 0, 0, w->dv, a->wide_v, w->keys, a->values);
    }
}

static float *take(float **memory, int64_t n) {
    float *p = *memory;
    if (p) *memory = p + attention_round_up(n, 16);
    return p;
}

/* Cuts the scratch up; NULL: only counts. Bytes. */
static int64_t lay_out(const Backward *f, Work *w, float *memory) {
    const Attention *a = &f->a;
    const int64_t keys = attention_round_up(f->part, a->width), tile = a->micro->rows, block = f->block;
    const int64_t panels_e = attention_round_up(a->features, a->width), panels_v = attention_round_up(a->values, a->width);
    const int64_t depth = attention_depth(a, block), scores = depth * PITCH;
    const struct {
        float **at;
        int64_t n;
    } piece[] = {
        {&w->key_down, keys * a->depth_e},
        {&w->value_down, keys * a->depth_v},
        {&w->key, attention_depth(a, f->part) * panels_e},
        {&w->dk, f->part * a->wide_e},
        {&w->dv, f->part * a->wide_v},
        {&w->query_rows, block * a->depth_e},
        {&w->grad_rows, block * a->depth_v},
        {&w->query_down, depth * panels_e},
        {&w->grad_down, depth * panels_v},
        {&w->shift, block},
        {&w->delta, block},
        {&w->dq, block * a->wide_e},
        {&w->s, tile * a->width},
        {&w->dp, tile * a->width},
        {&w->add, tile * PITCH},
        {&w->output, tile * a->depth_v},
        {&w->p, scores},
        {&w->ds, scores},
        {&w->along, a->pairs ? block * ALONG_PITCH : 0},
    };
    int64_t total = 0;
    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++) {
        *piece[i].at = take(&memory, piece[i].n);
        total += attention_round_up(piece[i].n, 16);
    }
    return total * 4;
}

static void run_parts(void *ctx, int64_t begin, int64_t end) {
    Backward *f = ctx;
    Work w = {.f = f};
    float *memory = gemm_scratch((size_t)f->bytes);
    if (!memory) {
        atomic_store(&f->status, AMP_NO_MEMORY);
        return;
    }
    lay_out(f, &w, memory);
    for (int64_t unit = begin; unit < end; unit++)
        run_part(&w, unit, attention_next(&f->a, unit, begin, end, f->a.kinds * f->parts));
    gemm_release(f->a.micro);
}

/* Rows of dq, numbered over all matrices: the sum over the parts that the query sees, in order. */
static void add_parts(void *ctx, int64_t begin, int64_t end) {
    const Backward *f = ctx;
    const Attention *a = &f->a;
    for (int64_t i = begin; i < end; i++) {
        const int64_t matrix = i / a->length, row = i % a->length;
        float *sum = f->sums + (matrix * f->parts * a->length + row) * a->wide_e;
        for (int64_t part = 1; part < f->parts && (!a->plan->causal || part * f->part <= row); part++) {
            const float *other = sum + part * a->length * a->wide_e;
            for (int64_t j = 0; j < a->features; j++) sum[j] += other[j];
        }
        const Matrix to = attention_matrix(f->dq, matrix, row);
        gemm_store_block(&to, 0, 0, 0, sum, a->wide_e, 1, a->features);
    }
}

static void choose_parts(Backward *f) {
    const Attention *a = &f->a;
    const double bytes = (double)(a->kinds * a->group * a->length) * (double)a->wide_e * 4.0;
    int64_t parts = attention_min(attention_divide_up(ENOUGH_UNITS, a->kinds), a->keys / (2 * BLOCK));
    if (parts > FEW_PARTS && bytes * (double)parts > MOST_BYTES) parts = attention_max(FEW_PARTS, (int64_t)(MOST_BYTES / bytes));
    f->part = attention_round_up(attention_divide_up(a->keys, attention_max(1, parts)), BLOCK);
    f->part = attention_min(f->part, a->keys);
    f->parts = attention_divide_up(a->keys, f->part);
}

static Status run(Backward *f) {
    const Attention *a = &f->a;
    const int64_t matrices = a->kinds * a->group, units = a->kinds * f->parts;
    const double work = (double)(a->group * a->length) * (double)f->part * (double)(a->features + a->values); /* of a unit */
    const double grain = 5e5 / work;
    if (f->parts > 1 && f->dq) {
        f->sums = malloc((size_t)(matrices * f->parts * a->length * a->wide_e) * sizeof *f->sums);
        if (!f->sums) return AMP_NO_MEMORY;
    }
    amp_parallel_for(units, grain < (double)units ? (int64_t)grain + 1 : units, run_parts, f);
    const Status status = (Status)atomic_load(&f->status);
    if (f->sums && status == AMP_OK) amp_parallel_for(matrices * a->length, 64, add_parts, f);
    free(f->sums);
    return status;
}

Status amp_attention_backward(const Call *call) {
    Backward f = {.grad = call->in[4],
                  .output = call->list[0],
                  .logarithms = (const float *)(const void *)call->list[1]->data,
                  .dq = call->out[0],
                  .dk = call->out[1],
                  .dv = call->out[2]};
    Work none;
    attention_describe(&f.a, call);
    f.rows = attention_rows(f.a.pairs);
    f.panels = attention_panels(&f.a);
    f.adjust = attention_adjusts(&f.a);
    f.factor = f.adjust ? LOG2_E : (float)(f.a.plan->scale * 0x1.71547652b82fep+0);
    const int64_t blocks = attention_divide_up(f.a.length, ROWS);
    f.block = attention_round_up(attention_divide_up(f.a.length, blocks), f.a.micro->rows); /* even: no thin last one */
    choose_parts(&f);
    f.bytes = lay_out(&f, &none, NULL);
    atomic_init(&f.status, AMP_OK);
    return run(&f);
}
