/* The attention slot: scores by tiles, never all of them.
 *
 *                 keys ->   block of BLOCK keys
 *             +---------------+---------------+------
 *    tile of  | s  micro-tile |               |            m    largest score of the row so far
 *    queries  |    by         | then the next |            sum  of exp(s - m)
 *             |    micro-tile |               |            o    sum of exp(s - m) v
 *             +---------------+---------------+------
 *
 * A thread takes a chunk of the queries of one matrix, and of that one tile after the other, as many rows as the micro-kernel holds: the
 * tile's scores with one block of keys stay in the L1 cache, are turned into chances in place, and multiply the block of values at once.
 * If the block raises a row's m, what was summed before is scaled down. Packed keys and values stay in the L2 cache, up to PART of them
 * at a time.
 *
 * What must stay true
 *   - A row's numbers depend on its own scores and on where blocks of keys end, not on its tile, chunk or thread.
 *   - Scores of columns that are hidden, or past the last key up to a whole vector, are -inf before anything reads them.
 *   - Factors and logarithms are in base 2: exp(x - m) = 2^(x factor - shift), factor = scale log2 e.
 *   - With a mask, or a scale that is not positive, scores are scaled in place first, so that the largest score has the largest chance. */
#include "attention.h"

#include <stdatomic.h>

enum {
    BLOCK = 512,        /* keys */
    PART = 16 * BLOCK,  /* keys that are packed at a time */
    CHUNK = 448,        /* queries, at most */
    PITCH = BLOCK + 16, /* rows of scores do not meet in one cache set */
    CHUNKS_PER_THREAD = 4
};
static const float LOG2_E = 0x1.715476p+0f;

typedef struct Forward {
    Attention a;
    const AttentionRows *rows;
    const View *out;
    float *logarithms;
    bool adjust; /* scores are scaled in place */
    float factor;
    int64_t part, chunk, chunks; /* chunks per query matrix */
    int64_t bytes;
    atomic_int status;
} Forward;

/* A thread's memory. */
typedef struct Work {
    const Forward *f;
    int64_t packed, packed_part; /* what lies in key and value; -1: nothing */
    int64_t part_at, part_keys;  /* the part under work */
    int64_t matrix, first;       /* of queries; row of the chunk */
    int64_t next;                /* the chunk after it, -1: none */
    Fetch fetch;
    float *key, *value;         /* panels */
    float *query, *score, *add; /* one tile's */
    float *sum, *top, *o;       /* the chunk's */
} Work;

/* Of a chunk: backwards, since causal ones get lighter. */
static int64_t first_row(const Forward *f, int64_t unit) { return (f->chunks - 1 - unit % f->chunks) * f->chunk; }

static void pack_part(Work *w, int64_t kind) {
    const Attention *a = &w->f->a;
    if (w->packed == kind && w->packed_part == w->part_at) return;
    const Source k = attention_source(a->key, kind, w->part_at), v = attention_source(a->value, kind, w->part_at);
    const Source down = attention_transposed(k);
    attention_pack_panels(a, w->key, &down, a->features, w->part_keys);
    attention_pack_panels(a, w->value, &v, w->part_keys, a->values);
    w->packed = kind;
    w->packed_part = w->part_at;
}

/* Row i of a tile, n keys of it visible, is turned into chances up to `whole`; the row's sums follow. */
static void advance_row(Work *w, int64_t at, float *s, const float *add, int64_t n, int64_t whole, float *o, bool first) {
    const Forward *f = w->f;
    const AttentionRows *r = f->rows;
    if (f->adjust) r->adjust(s, add, whole, (float)f->a.plan->scale);
    for (int64_t j = n; j < whole; j++) s[j] = -INFINITY;
    const float before = w->top[at], block = r->max(s, whole), top = block > before ? block : before;
    const float shift = f->a.mask && top == -INFINITY ? 0.0f : top;
    const float sum = r->exp(s, s, whole, f->factor, shift);
    w->top[at] = top;
    if (first) {
        w->sum[at] = sum;
        return;
    }
    if (top == before) {
        w->sum[at] += sum;
        return;
    }
    const float fade = exp2f((before - shift) * f->factor);
    w->sum[at] = w->sum[at] * fade + sum;
    r->scale(o, f->a.wide_v, fade);
}

/* Results of this chunk, and what the next one reads. */
static void plan_fetch(Work *w, int64_t rows) {
    const Forward *f = w->f;
    const Attention *a = &f->a;
    w->fetch = (Fetch){.now = 0};
    if (!a->fetches) return;
    if (w->next >= 0) {
        const int64_t matrix = w->next / f->chunks, first = first_row(f, w->next), kind = matrix / a->group;
        attention_want(&w->fetch, a->query, matrix, first, attention_min(f->chunk, a->length - first));
        if (kind != w->matrix / a->group || f->part < a->keys) {
            attention_want(&w->fetch, a->key, kind, 0, f->part);
            attention_want(&w->fetch, a->value, kind, 0, f->part);
        }
    }
    attention_want(&w->fetch, f->out, w->matrix, w->first, rows);
    attention_pace(&w->fetch, rows);
}

/* One tile with the keys of the part that any of its rows sees. */
static void advance_tile(Work *w, int64_t at, int64_t rows) {
    const Forward *f = w->f;
    const Attention *a = &f->a;
    const int64_t row = w->first + at, lanes = a->micro->lanes;
    const int64_t seen = a->plan->causal ? attention_min(w->part_keys, row + rows - w->part_at) : w->part_keys;
    float *o = w->o + at * a->wide_v;
    if (seen <= 0) return;
    const Source q = attention_source(a->query, w->matrix, row);
    const Left left = attention_left(a, w->query, &q, rows, a->features);
    for (int64_t key = 0; key < seen; key += BLOCK) {
        const int64_t n = attention_min(BLOCK, seen - key), whole = attention_round_up(n, lanes);
        const bool first = w->part_at + key == 0;
        attention_product(a, a->depth_e, left.data, left.row, 1, w->key + key * a->depth_e, a->depth_e * a->width, n, w->score,
                          PITCH, rows, false);
        if (a->mask) attention_load_mask(a, w->matrix, row, rows, w->part_at + key, n, w->add, PITCH);
        for (int64_t i = 0; i < rows; i++) {
            const int64_t past = row + i + 1 - w->part_at - key;
            const int64_t own = a->plan->causal ? attention_max(0, attention_min(n, past)) : n;
            attention_fetch(&w->fetch);
            advance_row(w, at + i, w->score + i * PITCH, a->mask ? w->add + i * PITCH : NULL, own, whole, o + i * a->wide_v,
                        first);
        }
        const int64_t depth = attention_depth(a, n), total = attention_depth(a, w->part_keys);
        attention_product(a, depth, w->score, PITCH, 1, w->value + attention_depth(a, key) * a->width, total * a->width,
                          a->values, o, a->wide_v, rows, !first);
    }
}

static void finish_rows(Work *w, int64_t rows) {
    const Forward *f = w->f;
    const Attention *a = &f->a;
    for (int64_t i = 0; i < rows; i++) {
        const bool empty = a->mask && w->sum[i] == 0.0f;
        f->rows->scale(w->o + i * a->wide_v, a->wide_v, empty ? 0.0f : 1.0f / w->sum[i]);
        f->logarithms[w->matrix * a->length + w->first + i] = empty ? INFINITY : w->top[i] + log2f(w->sum[i]) / f->factor;
    }
    const Matrix to = attention_matrix(f->out, w->matrix, w->first);
    gemm_store_block(&to, 0, 0, 0, w->o, a->wide_v, rows, a->values);
}

static void run_chunk(Work *w, int64_t unit) {
    const Forward *f = w->f;
    const Attention *a = &f->a;
    w->matrix = unit / f->chunks;
    w->first = first_row(f, unit);
    const int64_t rows = attention_min(f->chunk, a->length - w->first);
    const int64_t seen = a->plan->causal ? attention_min(a->keys, w->first + rows) : a->keys;
    for (int64_t i = 0; i < rows; i++) w->top[i] = -INFINITY;
    plan_fetch(w, rows);
    for (w->part_at = 0; w->part_at < seen; w->part_at += f->part) {
        w->part_keys = attention_min(f->part, a->keys - w->part_at);
        pack_part(w, w->matrix / a->group);
        for (int64_t at = 0; at < rows; at += a->micro->rows) advance_tile(w, at, attention_min(a->micro->rows, rows - at));
    }
    finish_rows(w, rows);
}

static float *take(float **memory, int64_t n) {
    float *p = *memory;
    if (p) *memory = p + attention_round_up(n, 16);
    return p;
}

/* Cuts the scratch up; NULL: only counts. Bytes. */
static int64_t lay_out(const Forward *f, Work *w, float *memory) {
    const Attention *a = &f->a;
    const int64_t keys = attention_round_up(f->part, a->width), rows = a->micro->rows;
    const int64_t size[] = {keys * a->depth_e, attention_depth(a, f->part) * attention_round_up(a->values, a->width),
                            rows * a->depth_e, rows * PITCH,
                            rows * PITCH,      f->chunk,
                            f->chunk,          f->chunk * a->wide_v};
    float **const at[] = {&w->key, &w->value, &w->query, &w->score, &w->add, &w->sum, &w->top, &w->o};
    int64_t total = 0;
    for (int i = 0; i < 8; i++) {
        *at[i] = take(&memory, size[i]);
        total += attention_round_up(size[i], 16);
    }
    return total * 4;
}

static void run_units(void *ctx, int64_t begin, int64_t end) {
    Forward *f = ctx;
    Work w = {.f = f, .packed = -1};
    float *memory = gemm_scratch((size_t)f->bytes);
    if (!memory) {
        atomic_store(&f->status, AMP_NO_MEMORY);
        return;
    }
    lay_out(f, &w, memory);
    for (int64_t unit = begin; unit < end; unit++) {
        w.next = attention_next(&f->a, unit, begin, end, f->a.kinds * f->a.group * f->chunks);
        run_chunk(&w, unit);
    }
    gemm_release(f->a.micro);
}

/* Chunks are whole tiles; more of them where there are few matrices. */
static void choose_chunks(Forward *f) {
    const Attention *a = &f->a;
    const int64_t tile = a->micro->rows, tiles = attention_divide_up(a->length, tile), matrices = a->kinds * a->group;
    const int64_t wanted = attention_divide_up(CHUNKS_PER_THREAD * amp_get_num_threads(), matrices);
    f->chunks = attention_max(attention_divide_up(a->length, CHUNK), attention_min(wanted, attention_divide_up(tiles, 4)));
    f->chunk = attention_divide_up(tiles, f->chunks) * tile;
    f->chunks = attention_divide_up(a->length, f->chunk);
}

Status amp_attention(const Call *call) {
    Forward f = {.out = call->out[0], .logarithms = (float *)(void *)call->out[1]->data};
    Work none;
    attention_describe(&f.a, call);
    f.rows = attention_rows(f.a.pairs);
    f.adjust = attention_adjusts(&f.a);
    f.factor = f.adjust ? LOG2_E : (float)(f.a.plan->scale * 0x1.71547652b82fep+0);
    f.part = attention_min(PART, f.a.keys);
    choose_chunks(&f);
    f.bytes = lay_out(&f, &none, NULL);
    atomic_init(&f.status, AMP_OK);
    const int64_t units = f.a.kinds * f.a.group * f.chunks;
    const double work = (double)f.chunk * (double)f.a.keys * (double)(f.a.features + f.a.values); /* of a unit */
    const double grain = 1e6 / work;
    amp_parallel_for(units, grain < (double)units ? (int64_t)grain + 1 : units, run_units, &f);
    return (Status)atomic_load(&f.status);
}
