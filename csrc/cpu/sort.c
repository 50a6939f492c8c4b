/* sort, topk, kthvalue, median, nanmedian, mode: one line along a dimension at a time.
 *
 * Each element becomes an unsigned key that orders as the values do, NaN above everything, both zeros alike:
 *
 *     integer   i  ->  i with the sign bit turned
 *     float     + x ->  x with the sign bit set       - x ->  all bits turned      NaN -> all ones
 *
 * A descending order turns all bits of the key. An item is a key and its position; items with equal keys stay in the order of their
 * positions, so that every result is determined, whatever the number of threads. */
#include "sort.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "lines.h"
#include "../core/numeric.h"
#include "../core/ops.h"

typedef struct Item {
    uint64_t key;
    int64_t position;
} Item;

/* How a dtype's bits become keys: its width in bytes, sign bit, and the largest magnitude that is no NaN (0: an integer). */
typedef struct KeyFormat {
    int width;
    uint64_t sign, infinity;
} KeyFormat;

static bool key_format(int dtype, KeyFormat *f) {
    switch (dtype) {
    case AMP_BOOL:
    case AMP_UINT8: *f = (KeyFormat){1, 0, 0}; return true;
    case AMP_INT8: *f = (KeyFormat){1, 0x80, 0}; return true;
    case AMP_INT16: *f = (KeyFormat){2, 0x8000, 0}; return true;
    case AMP_INT32: *f = (KeyFormat){4, 0x80000000u, 0}; return true;
    case AMP_INT64: *f = (KeyFormat){8, (uint64_t)1 << 63, 0}; return true;
    case AMP_FLOAT16: *f = (KeyFormat){2, 0x8000, 0x7c00}; return true;
    case AMP_BFLOAT16: *f = (KeyFormat){2, 0x8000, 0x7f80}; return true;
    case AMP_FLOAT8_E5M2: *f = (KeyFormat){1, 0x80, 0x7c}; return true;
    case AMP_FLOAT8_E4M3FN: *f = (KeyFormat){1, 0x80, 0x7e}; return true;
    case AMP_FLOAT32: *f = (KeyFormat){4, 0x80000000u, 0x7f800000u}; return true;
    case AMP_FLOAT64: *f = (KeyFormat){8, (uint64_t)1 << 63, 0x7ff0000000000000u}; return true;
    default: return false;
    }
}

static inline uint64_t load_bits(const char *p, int width) {
    uint64_t u = 0;
    memcpy(&u, p, (size_t)width); /* the machine is little-endian: the value lies in the low bytes */
    return u;
}

static inline uint64_t make_key(const KeyFormat *f, uint64_t bits) {
    uint64_t all = f->width == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * f->width) - 1;
    if (!f->infinity) return bits ^ f->sign;
    uint64_t size = bits & ~f->sign;
    if (size > f->infinity) return all;
    if (size == 0) bits = 0;
    return bits & f->sign ? ~bits & all : bits | f->sign;
}

static void load_items(const KeyFormat *f, const char *p, int64_t step, int64_t n, bool descending, Item *items) {
    uint64_t turn = !descending ? 0 : f->width == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * f->width) - 1;
    for (int64_t i = 0; i < n; i++, p += step) items[i] = (Item){make_key(f, load_bits(p, f->width)) ^ turn, i};
}

/* ---- sorting ---- */

enum { FEW = 32 };

static void insertion_sort(Item *a, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        Item x = a[i];
        int64_t k = i;
        for (; k > 0 && a[k - 1].key > x.key; k--) a[k] = a[k - 1];
        a[k] = x;
    }
}

/* Bytes of the key from the lowest to the highest; a byte that is the same everywhere is skipped. The result lies in `a`. */
static void radix_sort(Item *a, Item *spare, int64_t n, int width) {
    int64_t count[8][256] = {{0}};
    Item *from = a, *to = spare;
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < width; b++) count[b][a[i].key >> 8 * b & 255]++;
    for (int b = 0; b < width; b++) {
        int64_t start = 0;
        if (count[b][from[0].key >> 8 * b & 255] == n) continue;
        for (int k = 0; k < 256; k++) {
            int64_t size = count[b][k];
            count[b][k] = start;
            start += size;
        }
        for (int64_t i = 0; i < n; i++) to[count[b][from[i].key >> 8 * b & 255]++] = from[i];
        Item *swap = from;
        from = to, to = swap;
    }
    if (from != a) memcpy(a, from, (size_t)n * sizeof *a);
}

static void sort_items(Item *a, Item *spare, int64_t n, int width) {
    if (n <= FEW) insertion_sort(a, n);
    else radix_sort(a, spare, n, width);
}

/* ---- selection ---- */

/* The item that sorting would put at k: the bucket that holds it is narrowed byte by byte, from the highest. */
static Item select_item(const Item *a, Item *spare, int64_t n, int64_t k, int width) {
    const Item *from = a;
    for (int b = width - 1; b >= 0 && n > 1; b--) {
        int64_t count[256] = {0}, before = 0, m = 0;
        int digit = 0;
        for (int64_t i = 0; i < n; i++) count[from[i].key >> 8 * b & 255]++;
        while (before + count[digit] <= k) before += count[digit++];
        k -= before;
        if (count[digit] == n) continue;
        for (int64_t i = 0; i < n; i++)
            if ((int)(from[i].key >> 8 * b & 255) == digit) spare[m++] = from[i];
        from = spare, n = m;
    }
    return from[k];
}

static inline bool not_after(Item a, Item last) { return a.key < last.key || (a.key == last.key && a.position <= last.position); }

/* The first k items in order, at the beginning of a. */
static void take_first(Item *a, Item *spare, int64_t n, int64_t k, int width) {
    if (k < n && k > 0) {
        Item last = select_item(a, spare, n, k - 1, width);
        int64_t m = 0;
        for (int64_t i = 0; i < n; i++)
            if (not_after(a[i], last)) a[m++] = a[i];
    }
    sort_items(a, spare, k, width);
}

/* ---- one value per line ---- */

static bool is_nan_key(const KeyFormat *f, uint64_t key) {
    return f->infinity && key == (f->width == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * f->width) - 1);
}

/* The middle element, the lower of two. A NaN is the median of a line that has one; nanmedian looks at the others only. */
static Item median_item(const KeyFormat *f, const Item *a, Item *spare, int64_t n, bool skip_nan) {
    int64_t nans = 0, first = -1;
    for (int64_t i = 0; i < n; i++) {
        if (!is_nan_key(f, a[i].key)) continue;
        first = first < 0 ? i : first;
        nans++;
    }
    if (nans && (!skip_nan || nans == n)) return a[first];
    return select_item(a, spare, n, (n - nans - 1) / 2, f->width);
}

/* The most frequent value, the smallest of several; where it stands last. */
static Item mode_item(Item *a, Item *spare, int64_t n, int width) {
    int64_t best = 0, run = 0;
    Item found = a[0];
    sort_items(a, spare, n, width);
    for (int64_t i = 0; i < n; i++) {
        run = i && a[i].key == a[i - 1].key ? run + 1 : 1;
        if (run > best) best = run, found = a[i];
    }
    return found;
}

/* ---- the slot ---- */

typedef struct Sorting {
    Lines lines; /* input, values, positions */
    KeyFormat format;
    int op;
    int64_t k, results; /* results per line */
    bool descending;
    atomic_bool no_memory;
} Sorting;

static void order_line(const Sorting *s, Item *items, Item *spare) {
    int64_t n = s->lines.length;
    switch (s->op) {
    case OP_sort: sort_items(items, spare, n, s->format.width); break;
    case OP_topk: take_first(items, spare, n, s->k, s->format.width); break;
    case OP_kthvalue: items[0] = select_item(items, spare, n, s->k - 1, s->format.width); break;
    case OP_mode: items[0] = mode_item(items, spare, n, s->format.width); break;
    default: items[0] = median_item(&s->format, items, spare, n, s->op == OP_nanmedian || s->op == OP_nanmedian_dim); break;
    }
}

static void sort_range(void *context, int64_t begin, int64_t end) {
    Sorting *s = context;
    const Lines *l = &s->lines;
    Item *items = malloc((size_t)l->length * 2 * sizeof *items);
    if (!items) {
        atomic_store(&s->no_memory, true);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        char *ptr[AMP_MAX_LINE_VIEWS];
        amp_line_at(l, i, ptr);
        load_items(&s->format, ptr[0], l->along[0], l->length, s->descending, items);
        order_line(s, items, items + l->length);
        for (int64_t j = 0; j < s->results; j++) {
            memcpy(ptr[1] + j * l->along[1], ptr[0] + items[j].position * l->along[0], (size_t)s->format.width);
            memcpy(ptr[2] + j * l->along[2], &items[j].position, sizeof items[j].position);
        }
    }
    free(items);
}

Status amp_sort(const Call *call) {
    const View *view[3] = {call->in[0], call->out[0], call->out[1]};
    int dim = amp_first_dim(call->dims);
    Sorting s = {.op = call->op};
    if (!key_format(call->in[0]->dtype, &s.format)) return AMP_BAD_DTYPE;
    if (call->out[0]->numel == 0) return AMP_OK;
    amp_lines(&s.lines, 3, view, dim);
    s.results = call->out[0]->ndim ? call->out[0]->shape[dim] : 1;
    if (call->op == OP_sort) s.descending = call->nnum > 0 && call->num[0].i;
    if (call->op == OP_topk) s.k = s.results, s.descending = call->nnum > 0 && call->num[0].i;
    if (call->op == OP_kthvalue) s.k = call->num[0].i;
    if (s.lines.length >= INT64_MAX / (int64_t)(2 * sizeof(Item))) return AMP_NO_MEMORY;
    amp_parallel_for(s.lines.count, 4 * 1024 / s.lines.length + 1, sort_range, &s);
    return atomic_load(&s.no_memory) ? AMP_NO_MEMORY : AMP_OK;
}
