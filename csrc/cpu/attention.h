/* Scaled dot-product attention: what the files attention*.c share.
 *
 *   attention.c           the slot; forward by tiles of scores, with an online softmax
 *   attention_backward.c  gradients by the same tiles, formed again
 *   attention_panels.c    whole tiles of backward on AVX512 with pairs, products included
 *   attention_rows.c      what happens to the scores between the products, at each instruction-set level (attention_rows.h)
 *   attention_common.c    operands as matrices, packing, masks
 *
 * Products run on the micro-kernels of gemm.h. With pairs, elements of their operands are two bfloat16 that are neighbours along the inner
 * dimension, 4 bytes; otherwise fp32. An element is 4 bytes in any case, so sizes and pitches below do not depend on the form. */
#ifndef AMP_ATTENTION_H
#define AMP_ATTENTION_H
#include <pthread.h>

#include "../core/backend.h"
#include "gemm.h"

typedef struct Attention {
    const AttentionPlan *plan;
    const View *query, *key, *value, *mask; /* mask may be NULL */
    int64_t kinds, group;                   /* keys, and queries per key */
    int64_t length, keys, features, values; /* L, S, E, Ev */
    const MicroSet *micro;
    bool pairs;
    int64_t width;            /* of a panel */
    int64_t depth_e, depth_v; /* E and Ev in elements of the products */
    int64_t wide_e, wide_v;   /* E and Ev rounded up to whole vectors */
    bool fetches;             /* operands are larger than what a core has near anyway */
    pthread_t caller;
} Attention;

void attention_describe(Attention *a, const Call *call);

static inline int64_t attention_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t attention_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t attention_divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t attention_round_up(int64_t a, int64_t b) { return attention_divide_up(a, b) * b; }
/* n neighbours along the inner dimension as elements of the products. */
static inline int64_t attention_depth(const Attention *a, int64_t n) { return a->pairs ? (n + 1) / 2 : n; }

/* Matrix number i (over all dimensions but the last two), from its row `row` on. */
Source attention_source(const View *x, int64_t i, int64_t row);
Matrix attention_matrix(const View *x, int64_t i, int64_t row);

/* Rows of a left operand, `row` elements apart. */
typedef struct Left {
    const float *data;
    int64_t row;
} Left;

/* src (rows, k) as a left operand: where it lies, if its rows are elements of the products already, or else a copy in `memory`, which has
 * room for rows of depth(k) elements. */
Left attention_left(const Attention *a, float *memory, const Source *src, int64_t rows, int64_t k);

/* Panels of a right operand src (k, cols): panel p has depth(k) rows of `width`, columns beyond cols are zero up to a whole vector. */
void attention_pack_panels(const Attention *a, float *dst, const Source *src, int64_t k, int64_t cols);

/* Memory that is read or written later and comes near meanwhile: ranges of rows, a few rows with each call, since the machine takes few
 * such wishes at a time. */
enum { ATTENTION_RANGES = 8 };
typedef struct Fetch {
    struct {
        const char *at;
        int64_t row, rows, bytes;
    } range[ATTENTION_RANGES];
    int ranges, now;
    int64_t pace; /* rows of a call */
} Fetch;

/* Adds rows of matrix i; x may be NULL. */
void attention_want(Fetch *f, const View *x, int64_t i, int64_t row, int64_t rows);
/* Chooses the pace so that about so many calls fetch all. */
void attention_pace(Fetch *f, int64_t calls);
void attention_fetch(Fetch *f);

/* The unit that this thread will probably take after `unit` of its range [begin, end), or -1: it's the next one, or if it was the last, the
 * first of the range that the pool hands out next, to the caller of amp_parallel_for going up, to workers going down. */
int64_t attention_next(const Attention *a, int64_t unit, int64_t begin, int64_t end, int64_t units);

/* c (rows, cols) = [c +] left @ panels, one row of micro-tiles. panel: elements from one panel to the next. */
void attention_product(const Attention *a, int64_t k, const float *left, int64_t row, int64_t col, const float *panels,
                       int64_t panel, int64_t cols, float *c, int64_t c_row, int64_t rows, bool add);

/* The mask of query matrix i at rows x cols, as what is added to scores: dst (rows, pitch). */
void attention_load_mask(const Attention *a, int64_t i, int64_t row, int64_t rows, int64_t col, int64_t cols, float *dst,
                         int64_t pitch);

static inline Source attention_transposed(Source s) {
    const int64_t row = s.row;
    s.row = s.col;
    s.col = row;
    return s;
}

/* Whether scores are scaled, and masks added, before anything is made of them; else the scale is part of the exponent's factor. Far
 * smaller ones would not have a reciprocal there. */
static inline bool attention_adjusts(const Attention *a) { return a->mask || !(a->plan->scale > 0x1p-60); }

/* ---- between the products (attention_rows.c). Differences of scores are formed before they are multiplied: of products of huge scores,
 * such as masks of -1e9, only rounding errors would be left. ----
 * Counts n are whole vectors of the level's micro-kernels. ---- */

/* One tile of probabilities and what derives from it, `cols` wide.
 *   p = exp2((s - shift[i]) * factor), at most 1,   ds = p * (dp - delta[i])
 * Without pairs p and ds are stored as they are. With pairs they are rounded; `p` and `ds` get zipped rows (element i / 2: rows i and
 * i + 1), `along` gets ds once more, as pairs along the row. */
typedef struct AttentionTile {
    const float *s, *dp; /* of this pitch */
    int64_t pitch, rows, cols;
    const float *shift, *delta;
    float factor;
    float *p, *ds, *along;
    int64_t out_pitch, along_pitch;
} AttentionTile;

typedef struct AttentionRows {
    float (*max)(const float *s, int64_t n);
    /* out = exp2((s - shift) * factor), as fp32 or bfloat16, may be s itself; returns the sum before rounding. */
    float (*exp)(const float *s, float *out, int64_t n, float factor, float shift);
    /* s = s * scale + add; add may be NULL. */
    void (*adjust)(float *s, const float *add, int64_t n, float scale);
    void (*scale)(float *x, int64_t n, float factor);
    float (*dot)(const float *x, const float *y, int64_t n); /* of any number of elements of the products */
    void (*tile)(const AttentionTile *t);
} AttentionRows;

const AttentionRows *attention_rows(bool pairs);

/* Below, 2^x is 0: chances that small change nothing, and denormal operands would cost much. */
#define ATTENTION_LEAST (-125.0f)

/* The products and what follows them in one, for `panels` whole panels of keys with a whole tile of queries, of which nothing is hidden or
 * adjusted: the sums stay in registers. The same bits as two products and AttentionRows.tile. */
typedef struct AttentionPanels {
    Left query, grad;
    int64_t depth_e, depth_v;
    const float *key_down, *value_down; /* panel after panel */
    int64_t panels;
    AttentionTile tile; /* from the first panel on; s, dp and their pitch are unused */
    Fetch *fetch[2];
} AttentionPanels;
typedef void (*AttentionPanelsFn)(const AttentionPanels *p);
/* NULL: there is none. */
AttentionPanelsFn attention_panels(const Attention *a);

#endif
