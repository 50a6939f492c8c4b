/* Walks that take one line along a dimension at a time: softmax, scans, argmax. */
#ifndef AMP_LINES_H
#define AMP_LINES_H
#include "../core/backend.h"

enum { AMP_MAX_LINE_VIEWS = 3 };

/* `count` lines of `length` elements; all views have one shape. Steps in bytes. */
typedef struct Lines {
    int nview, nd;
    int64_t count, length;
    int dtype[AMP_MAX_LINE_VIEWS];
    char *data[AMP_MAX_LINE_VIEWS];
    int64_t along[AMP_MAX_LINE_VIEWS];
    int64_t shape[AMP_MAX_DIMS], step[AMP_MAX_LINE_VIEWS][AMP_MAX_DIMS];
} Lines;

/* The lowest dimension in a set of dimensions. */
static inline int amp_first_dim(uint64_t dims) { return dims ? __builtin_ctzll(dims) : 0; }

/* A view without dimensions is one line of one element. */
static inline void amp_lines(Lines *l, int nview, const View *const *view, int dim) {
    l->nview = nview;
    l->nd = 0;
    l->count = l->length = 1;
    for (int v = 0; v < nview; v++) l->dtype[v] = view[v]->dtype, l->data[v] = view[v]->data, l->along[v] = 0;
    for (int d = 0; d < view[0]->ndim; d++) {
        int64_t size = view[0]->shape[d];
        for (int v = 0; v < nview; v++) {
            int64_t step = view[v]->stride[d] * (int64_t)amp_itemsize(view[v]->dtype);
            if (d == dim) l->along[v] = step;
            else l->step[v][l->nd] = step;
        }
        if (d == dim) {
            l->length = size;
        } else {
            l->shape[l->nd++] = size;
            l->count *= size;
        }
    }
}

static inline void amp_line_at(const Lines *l, int64_t i, char **ptr) {
    for (int v = 0; v < l->nview; v++) ptr[v] = l->data[v];
    for (int d = l->nd - 1; d >= 0; d--) {
        int64_t at = i % l->shape[d];
        i /= l->shape[d];
        for (int v = 0; v < l->nview; v++) ptr[v] += at * l->step[v][d];
    }
}

/* Lines beside each other: where neighbours lie closer together than a line's own elements, the line numbers [i width, i width + width)
 * of the `count` blocks are taken at once, in groups of `group`.
 *
 *       neighbours ->
 *     [ x x x x | x x x x | x x ]   a line runs down; a block is one group of neighbours over the whole length */
typedef struct LineBlocks {
    int64_t width, group, per_run, count;
} LineBlocks;

/* The dimension whose neighbours are nearest, or -1. */
static inline int amp_nearest_neighbours(const Lines *l) {
    int best = -1;
    int64_t nearest = 0;
    for (int v = 0; v < l->nview; v++) nearest += l->along[v] < 0 ? -l->along[v] : l->along[v];
    for (int d = 0; d < l->nd; d++) {
        int64_t near = 0;
        for (int v = 0; v < l->nview; v++) near += l->step[v][d] < 0 ? -l->step[v][d] : l->step[v][d];
        if (l->shape[d] > 1 && near < nearest) nearest = near, best = d;
    }
    return best;
}

/* Joins dimensions that lie behind each other in every view; line numbers stay what they are. */
static inline void amp_merge_lines(Lines *l) {
    int nd = 0;
    for (int d = 0; d < l->nd; d++) {
        bool join = nd > 0;
        for (int v = 0; join && v < l->nview; v++) join = l->step[v][nd - 1] == l->step[v][d] * l->shape[d];
        l->shape[nd - join] = join ? l->shape[nd - 1] * l->shape[d] : l->shape[d];
        for (int v = 0; v < l->nview; v++) l->step[v][nd - join] = l->step[v][d];
        nd += !join;
    }
    l->nd = nd;
}

/* False where lines are better taken one by one. `keep_order`: line numbers keep their meaning. Blocks hold about `elements`, at most
 * `widest` neighbours. */
static inline bool amp_line_blocks(Lines *l, LineBlocks *b, bool keep_order, int64_t elements, int64_t widest) {
    enum { NARROWEST = 8, LONGEST = 32 * 1024 };
    if (l->length < 2 || l->length > LONGEST || l->count < NARROWEST) return false;
    int near = amp_nearest_neighbours(l);
    if (near < 0 || (keep_order && near != l->nd - 1)) return false;
    for (; near < l->nd - 1; near++) {
        int64_t size = l->shape[near];
        l->shape[near] = l->shape[near + 1], l->shape[near + 1] = size;
        for (int v = 0; v < l->nview; v++) {
            int64_t step = l->step[v][near];
            l->step[v][near] = l->step[v][near + 1], l->step[v][near + 1] = step;
        }
    }
    amp_merge_lines(l);
    b->width = l->shape[l->nd - 1];
    if (b->width < NARROWEST) return false;
    b->group = elements / l->length / 16 * 16;
    b->group = b->group < 16 ? 16 : b->group > widest ? widest : b->group;
    b->per_run = (b->width + b->group - 1) / b->group;
    b->count = l->count / b->width * b->per_run;
    return true;
}

/* The first line of a block; returns the number of lines in it. */
static inline int64_t amp_block_at(const LineBlocks *b, int64_t block, int64_t *first) {
    int64_t at = block % b->per_run * b->group;
    *first = block / b->per_run * b->width + at;
    return b->width - at < b->group ? b->width - at : b->group;
}

#endif
