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

static inline uint64_t all_bits(int width) { return UINT64_MAX >> (64 - 8 * width); }

static inline uint64_t load_bits(const char *p, int width) {
    uint64_t u = 0;
    memcpy(&u, p, (size_t)width); /* the machine is little-endian: the value lies in the low bytes */
    return u;
}

static inline __attribute__((always_inline)) uint64_t make_key(const KeyFormat *f, int width, const char *p) {
    uint64_t bits = load_bits(p, width), size = bits & ~f->sign;
    if (!f->infinity) return bits ^ f->sign;
    if (size > f->infinity) return all_bits(width);
    if (size == 0) bits = 0;
    return bits & f->sign ? ~bits & all_bits(width) : bits | f->sign;
}

/* Code for each width, so that the loads are single instructions. */
#define BY_WIDTH(f, CALL) \
    switch ((f)->width) { \
    case 1: CALL(1); break; \
    case 2: CALL(2); break; \
    case 4: CALL(4); break; \
    default: CALL(8); break; \
    }

/* A line of elements as keys; `turn` is added bit by bit: all ones for a descending order. */
typedef struct Source {
    const KeyFormat *format;
    const char *data;
    int64_t step, n;
    uint64_t turn;
} Source;

static inline __attribute__((always_inline)) void load_width(const Source *s, int width, Item *items) {
    const char *p = s->data;
    for (int64_t i = 0; i < s->n; i++, p += s->step) items[i] = (Item){make_key(s->format, width, p) ^ s->turn, i};
}

static void load_items(const Source *s, Item *items) {
#define LOAD(width) load_width(s, width, items)
    BY_WIDTH(s->format, LOAD)
#undef LOAD
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
    if (k < n && k > 0 && n > FEW) {
        Item last = select_item(a, spare, n, k - 1, width);
        int64_t m = 0;
        for (int64_t i = 0; i < n; i++)
            if (not_after(a[i], last)) a[m++] = a[i];
        n = k;
    }
    sort_items(a, spare, n, width);
}

/* Few of many: the elements pass by, and what is not before the k-th of those seen so far is dropped at once. Room for 2 k + MARGIN. */
enum { MARGIN = 64 };
static inline __attribute__((always_inline)) int64_t sieve_width(const Source *s, int width, Item *kept, Item *spare, int64_t k) {
    const char *p = s->data;
    int64_t m = 0;
    uint64_t bound = UINT64_MAX;
    bool bounded = false;
    for (int64_t i = 0; i < s->n; i++, p += s->step) {
        uint64_t key = make_key(s->format, width, p) ^ s->turn;
        if (bounded && key >= bound) continue; /* an equal one that comes later is after it */
        kept[m++] = (Item){key, i};
        if (m < 2 * k + MARGIN) continue;
        take_first(kept, spare, m, k, width);
        m = k, bound = kept[k - 1].key, bounded = true;
    }
    return m;
}

static void sieve(const Source *s, Item *kept, Item *spare, int64_t k) {
    int64_t m = 0;
#define SIEVE(width) m = sieve_width(s, width, kept, spare, k)
    BY_WIDTH(s->format, SIEVE)
#undef SIEVE
    take_first(kept, spare, m, k, s->format->width);
}

/* ---- one value per line ---- */

static bool is_nan_key(const KeyFormat *f, uint64_t key) { return f->infinity && key == all_bits(f->width); }

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

/* The most frequent value, the smallest of several; where it stands last. A NaN equals no other. */
static Item mode_item(const KeyFormat *f, Item *a, Item *spare, int64_t n) {
    int64_t best = 0, run = 0;
    Item found = a[0];
    sort_items(a, spare, n, f->width);
    for (int64_t i = 0; i < n; i++) {
        run = i && a[i].key == a[i - 1].key && !is_nan_key(f, a[i].key) ? run + 1 : 1;
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
    case OP_mode: items[0] = mode_item(&s->format, items, spare, n); break;
    default: items[0] = median_item(&s->format, items, spare, n, s->op == OP_nanmedian || s->op == OP_nanmedian_dim); break;
    }
}

/* k of the line are so few that the rest need not be kept. */
static bool sifts(const Sorting *s) { return s->op == OP_topk && s->k > 0 && 8 * s->k + 4 * MARGIN < s->lines.length; }

static void sort_range(void *context, int64_t begin, int64_t end) {
    Sorting *s = context;
    const Lines *l = &s->lines;
    bool few = sifts(s);
    int64_t room = few ? 2 * s->k + MARGIN : l->length;
    Source source = {.format = &s->format, .step = l->along[0], .n = l->length};
    if (s->descending) source.turn = all_bits(s->format.width);
    Item *items = malloc((size_t)room * 2 * sizeof *items);
    if (!items) {
        atomic_store(&s->no_memory, true);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        char *ptr[AMP_MAX_LINE_VIEWS];
        amp_line_at(l, i, ptr);
        source.data = ptr[0];
        if (few) {
            sieve(&source, items, items + room, s->k);
        } else {
            load_items(&source, items);
            order_line(s, items, items + room);
        }
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
