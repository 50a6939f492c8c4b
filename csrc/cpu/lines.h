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

#endif
