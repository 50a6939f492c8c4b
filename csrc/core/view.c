/* Shapes, strides, broadcasting and overlap. */
#include "core.h"

int64_t amp_numel(int ndim, const int64_t *shape) {
    int64_t n = 1;
    bool empty = false;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] == 0) empty = true;
        else if (__builtin_mul_overflow(n, shape[d], &n)) return -1;
    }
    return empty ? 0 : n;
}

bool amp_is_contiguous(int ndim, const int64_t *shape, const int64_t *stride) {
    int64_t expected = 1;
    bool dense = true;
    for (int d = ndim - 1; d >= 0; d--) {
        if (shape[d] == 0) return true;
        if (shape[d] == 1) continue;
        if (stride[d] != expected) dense = false;
        expected = (int64_t)((uint64_t)expected * (uint64_t)shape[d]);
    }
    return dense;
}

void amp_contiguous_strides(int ndim, const int64_t *shape, int64_t *stride) {
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = step;
        if (shape[d] > 1) step = (int64_t)((uint64_t)step * (uint64_t)shape[d]);
    }
}

/* Dimension d joins the one inside it when, in every view, one step of d equals a whole walk along the inner one. */
int amp_coalesce(int n, const View *const *views, int64_t *shape, int64_t strides[][AMP_MAX_DIMS]) {
    int nd = 0;
    const View *first = views[0];
    for (int d = 0; d < first->ndim; d++) {
        if (first->shape[d] == 1) continue;
        bool join = nd > 0;
        for (int v = 0; join && v < n; v++)
            join = strides[v][nd - 1] == (int64_t)((uint64_t)views[v]->stride[d] * (uint64_t)first->shape[d]);
        if (!join) shape[nd++] = 1;
        shape[nd - 1] *= first->shape[d];
        for (int v = 0; v < n; v++) strides[v][nd - 1] = views[v]->stride[d];
    }
    return nd;
}

/* Sorted by the size of the stride, each dimension must step over everything that the smaller ones span. */
bool amp_has_internal_overlap(const View *v) {
    uint64_t step[AMP_MAX_DIMS];
    int64_t size[AMP_MAX_DIMS];
    int nd = 0;
    if (v->numel < 2 || (v->layout & LAYOUT_CONTIGUOUS)) return false;
    for (int d = 0; d < v->ndim; d++) {
        if (v->shape[d] == 1) continue;
        uint64_t s = v->stride[d] < 0 ? 0 - (uint64_t)v->stride[d] : (uint64_t)v->stride[d];
        int at = nd++;
        for (; at > 0 && step[at - 1] > s; at--) {
            step[at] = step[at - 1];
            size[at] = size[at - 1];
        }
        step[at] = s;
        size[at] = v->shape[d];
    }
    uint64_t span = 0; /* largest offset reached so far */
    for (int d = 0; d < nd; d++) {
        if (step[d] <= span) return true;
        span += step[d] * (uint64_t)(size[d] - 1);
    }
    return false;
}

/* First byte and the byte behind the last one. */
static void byte_range(const View *v, uintptr_t *begin, uintptr_t *end) {
    uintptr_t lo = (uintptr_t)v->data, hi = lo;
    size_t item = amp_itemsize(v->dtype);
    for (int d = 0; d < v->ndim; d++) {
        uint64_t walk = (uint64_t)v->stride[d] * (uint64_t)(v->shape[d] - 1) * item; /* modulo 2^64: adds a negative walk too */
        if (v->stride[d] < 0) lo += walk;
        else hi += walk;
    }
    *begin = lo;
    *end = hi + item;
}

bool amp_ranges_meet(const View *a, const View *b) {
    uintptr_t a0, a1, b0, b1;
    if (a->numel == 0 || b->numel == 0) return false;
    byte_range(a, &a0, &a1);
    byte_range(b, &b0, &b1);
    return a0 < b1 && b0 < a1;
}

bool amp_overlap_in_part(const View *a, const View *b) {
    uintptr_t a0, a1, b0, b1;
    if (a->numel == 0 || b->numel == 0) return false;
    byte_range(a, &a0, &a1);
    byte_range(b, &b0, &b1);
    if (a0 >= b1 || b0 >= a1 || !amp_is_dense(a) || !amp_is_dense(b)) return false;
    bool same = a0 == b0 && a1 == b1 && a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++) same = a->stride[d] == b->stride[d] || (a->shape[d] == 1 && b->shape[d] == 1);
    return !same;
}

int amp_broadcast_shapes(int nda, const int64_t *a, int ndb, const int64_t *b, int64_t *out) {
    int nd = nda > ndb ? nda : ndb;
    int64_t size[AMP_MAX_DIMS]; /* `a` and `out` may be the same array */
    for (int i = 1; i <= nd; i++) {
        int64_t x = i <= nda ? a[nda - i] : 1, y = i <= ndb ? b[ndb - i] : 1;
        if (x != y && x != 1 && y != 1) return -1;
        size[nd - i] = x == 1 ? y : x;
    }
    for (int d = 0; d < nd; d++) out[d] = size[d];
    return nd;
}

bool amp_is_dense(const View *v) {
    uint64_t seen = 0;
    int64_t expected = 1;
    for (int k = 0; k < v->ndim; k++) { /* the next dimension outward is the one whose stride is the extent so far */
        int d = 0;
        while (d < v->ndim && ((seen >> d) & 1 || v->shape[d] == 1 || v->stride[d] != expected)) {
            d++;
        }
        if (d == v->ndim) {
            break;
        }
        seen |= (uint64_t)1 << d;
        expected *= v->shape[d];
    }
    return expected == v->numel;
}
