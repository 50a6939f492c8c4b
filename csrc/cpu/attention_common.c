/* Operands of attention as matrices, their packing, and masks. */
#include "attention.h"
#include "cast.h"

enum { FETCH_ELEMENTS = 128 * 1024 };

void attention_describe(Attention *a, const Call *call) {
    const View *q = call->in[0], *k = call->in[1], *v = call->in[2];
    const int nd = q->ndim;
    *a = (Attention){.plan = call->extra, .query = q, .key = k, .value = v, .mask = call->in[3], .caller = pthread_self()};
    a->kinds = k->numel / (k->shape[nd - 2] * k->shape[nd - 1]);
    a->group = nd > 2 ? q->shape[nd - 3] / k->shape[nd - 3] : 1;
    a->length = q->shape[nd - 2];
    a->keys = k->shape[nd - 2];
    a->features = q->shape[nd - 1];
    a->values = v->shape[nd - 1];
    a->fetches = q->numel + k->numel > FETCH_ELEMENTS;
    a->pairs = q->dtype == AMP_BFLOAT16 && amp_isa_bf16_pairs();
    a->micro = gemm_micro_set(false, a->pairs);
    a->width = 2 * a->micro->lanes;
    a->depth_e = attention_depth(a, a->features);
    a->depth_v = attention_depth(a, a->values);
    a->wide_e = attention_round_up(a->features, a->micro->lanes);
    a->wide_v = attention_round_up(a->values, a->micro->lanes);
}

/* Elements from the view's start to row `row` of matrix i. */
static int64_t offset_of(const View *x, int64_t i, int64_t row) {
    int64_t at = row * x->stride[x->ndim - 2];
    for (int d = x->ndim - 3; d >= 0; d--) {
        at += i % x->shape[d] * x->stride[d];
        i /= x->shape[d];
    }
    return at;
}

Source attention_source(const View *x, int64_t i, int64_t row) {
    const int64_t item = (int64_t)amp_itemsize(x->dtype);
    return (Source){x->data + offset_of(x, i, row) * item, x->stride[x->ndim - 2] * item, x->stride[x->ndim - 1] * item, x->dtype,
                    INPUT_IEEE};
}

Matrix attention_matrix(const View *x, int64_t i, int64_t row) {
    const int64_t *step = x->stride + x->ndim - 2;
    char *data = x->data + offset_of(x, i, row) * (int64_t)amp_itemsize(x->dtype);
    return (Matrix){.data = data, .row = step[0], .col = step[1], .dtype = x->dtype};
}

void attention_pack_panels(const Attention *a, float *dst, const Source *src, int64_t k, int64_t cols) {
    const int64_t depth = attention_depth(a, k);
    for (int64_t col = 0; col < cols; col += a->width, dst += depth * a->width) {
        const int64_t n = attention_min(a->width, cols - col), whole = attention_round_up(n, a->micro->lanes);
        Source part = *src;
        part.data += col * src->col;
        if (a->pairs) gemm_load_pairs_down(dst, a->width, &part, k, n);
        else gemm_load_block(dst, a->width, &part, k, n);
        for (int64_t i = 0; n < whole && i < depth; i++) memset(dst + i * a->width + n, 0, (size_t)(whole - n) * 4);
    }
}

Left attention_left(const Attention *a, float *memory, const Source *src, int64_t rows, int64_t k) {
    const int64_t item = a->pairs ? 2 : 4, pitch = attention_depth(a, k);
    const bool plain = src->dtype == (a->pairs ? AMP_BFLOAT16 : AMP_FLOAT32) && src->col == item && k * item % 4 == 0;
    const bool crowded = src->row % 2048 == 0; /* rows that meet in few sets of the first-level cache */
    if (plain && !crowded && src->row % 4 == 0 && ((uintptr_t)src->data & 3) == 0)
        return (Left){(const float *)(const void *)src->data, src->row / 4};
    if (a->pairs) gemm_load_pairs_along(memory, pitch, src, rows, k);
    else gemm_load_block(memory, pitch, src, rows, k);
    return (Left){memory, pitch};
}

void attention_want(Fetch *f, const View *x, int64_t i, int64_t row, int64_t rows) {
    if (!x || rows <= 0 || f->ranges == ATTENTION_RANGES) return;
    const Source src = attention_source(x, i, row);
    const int64_t item = (int64_t)amp_itemsize(x->dtype);
    if (src.col != item) return;
    f->range[f->ranges].at = src.data;
    f->range[f->ranges].row = src.row;
    f->range[f->ranges].rows = rows;
    f->range[f->ranges++].bytes = x->shape[x->ndim - 1] * item;
}

void attention_pace(Fetch *f, int64_t calls) {
    int64_t rows = 0;
    for (int i = 0; i < f->ranges; i++) rows += f->range[i].rows;
    f->pace = attention_divide_up(rows, attention_max(1, calls));
}

void attention_fetch(Fetch *f) {
    enum { LINE = 64 };
    for (int64_t left = f->pace; left > 0 && f->now < f->ranges; f->now++) {
        const int64_t row = f->range[f->now].row, bytes = f->range[f->now].bytes, n = attention_min(left, f->range[f->now].rows);
        const char *at = f->range[f->now].at;
        for (int64_t i = 0; i < n; i++, at += row)
            for (int64_t b = 0; b < bytes; b += LINE) __builtin_prefetch(at + b, 0, 2);
        left -= n;
        f->range[f->now].at = at;
        f->range[f->now].rows -= n;
        if (f->range[f->now].rows > 0) break;
    }
}

int64_t attention_next(const Attention *a, int64_t unit, int64_t begin, int64_t end, int64_t units) {
    if (unit + 1 < end) return unit + 1;
    const bool up = pthread_equal(pthread_self(), a->caller);
    const int64_t next = up ? end : begin - (end - begin) * attention_max(1, amp_get_num_threads() - 1);
    return next < units ? attention_max(next, -1) : -1;
}

void attention_product(const Attention *a, int64_t k, const float *left, int64_t row, int64_t col, const float *panels,
                       int64_t panel, int64_t cols, float *c, int64_t c_row, int64_t rows, bool add) {
    const MicroFn *fn = a->micro->fn[rows - 1];
    for (; cols > a->micro->lanes; cols -= a->width, panels += panel, c += a->width)
        fn[1](k, left, row, col, panels, a->width, c, c_row, add);
    if (cols > 0) fn[0](k, left, row, col, panels, a->width, c, c_row, add);
}

void attention_load_mask(const Attention *a, int64_t i, int64_t row, int64_t rows, int64_t col, int64_t cols, float *dst,
                         int64_t pitch) {
    Source src = attention_source(a->mask, i, row);
    src.data += col * src.col;
    for (int64_t r = 0; r < rows; r++, dst += pitch) {
        if (r > 0 && src.row == 0) {
            memcpy(dst, dst - pitch, (size_t)cols * 4);
            continue;
        }
        amp_convert(src.dtype, src.data + r * src.row, src.col, AMP_FLOAT32, (char *)dst, 4, cols);
        for (int64_t j = 0; src.dtype == AMP_BOOL && j < cols; j++) dst[j] = dst[j] != 0.0f ? 0.0f : -INFINITY;
    }
}
