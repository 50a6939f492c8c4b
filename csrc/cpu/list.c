/* Whole lists of tensors in one parallel region: the check-and-unscale of gradients, norms, scaling; and the walk that the
 * optimizers share. */
#include "list.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../core/numeric.h"

enum { MIN_ELEMENTS = 32768 }; /* less than this is not worth waking a worker for */

/* ---- plan ---- */

static int64_t chunks_of(int64_t numel) { return numel / LIST_CHUNK + (numel % LIST_CHUNK != 0); }

/* One list of those that are walked together, and where its run begins. */
typedef struct Edge {
    const View *const *v;
    char *begin; /* NULL: there is no tensor */
    int64_t size;
    int stream; /* -1: 16-bit copies */
    uint8_t dtype, layout;
} Edge;

/* So long may a run be that one list's does not reach into another's: a tensor must be written before the next one is read. */
static inline int64_t longest_run(const Edge *edge, int count) {
    int64_t most = INT64_MAX;
    for (const Edge *e = edge + 1; e < edge + count; e++)
        for (const Edge *f = edge; f < e; f++) {
            if (!e->begin || !f->begin) continue;
            const Edge *low = e->begin < f->begin ? e : f, *high = low == e ? f : e;
            const int64_t room = (high->begin - low->begin) >> __builtin_ctzll((uint64_t)low->size);
            if (room < most) most = room;
        }
    return most;
}

/* Whether the tensors with this number stand behind the `numel` elements of the run; what is done to those is then done to them, too. */
static inline bool joins(const Edge *edge, int count, int64_t t, int64_t numel, int64_t most) {
    if (edge[0].v[t]->numel > most - numel) return false;
    for (const Edge *e = edge; e < edge + count; e++) {
        const View *v = e->v[t];
        if (!v && !e->begin) continue;
        if (!v || v->data != e->begin + numel * e->size || v->dtype != e->dtype || !(v->layout & e->layout & LAYOUT_CONTIGUOUS))
            return false;
    }
    return true;
}

static bool start_run(Edge *edge, int count, int64_t t, ListRun *run, ListSpan *span) {
    const View *first = edge[0].v[t];
    bool known = true;
    run->tensor = t;
    run->numel = first->numel;
    run->wide = first->dtype == AMP_FLOAT64;
    run->direct = run->wide || first->dtype == AMP_FLOAT32;
    *span = (ListSpan){0};
    for (Edge *e = edge; e < edge + count; e++) {
        const View *v = e->v[t];
        e->begin = v ? v->data : NULL;
        if (!v) continue;
        e->size = (int64_t)amp_itemsize(v->dtype);
        e->dtype = (uint8_t)v->dtype;
        e->layout = v->layout;
        known = known && amp_list_dtype_ok(v->dtype);
        run->direct = run->direct && e->stream >= 0 && v->dtype == first->dtype && (v->layout & LAYOUT_CONTIGUOUS) &&
                      ((uintptr_t)v->data & (uintptr_t)(e->size - 1)) == 0;
        if (e->stream >= 0) span->at[e->stream] = v->data;
    }
    return known;
}

static bool reserve(ListPlan *plan, int64_t n) {
    plan->run = plan->small;
    plan->span = plan->small_span;
    if (n <= LIST_SMALL) return true;
    const size_t each = sizeof *plan->run + sizeof *plan->span;
    if ((uint64_t)n >= SIZE_MAX / each - 1) return false;
    plan->run = malloc(((size_t)n + 1) * each);
    plan->span = (ListSpan *)(void *)(plan->run + n + 1);
    return plan->run;
}

/* Fills the runs but for their chunk numbers. False: a dtype has no kernel. */
static inline __attribute__((always_inline)) bool find_runs(ListPlan *plan, TensorList list, Edge *edge, int edges,
                                                            int64_t *elements) {
    const bool join = plan->join;
    int64_t n = 0, length = 0, most = 0; /* runs, elements of the last one, and what it may have at most */
    bool known = true;
    for (int64_t t = 0; t < list.n; t++) {
        const int64_t numel = list.v[t]->numel;
        if (join && t && joins(edge, edges, t, length, most)) {
            length += numel;
            continue;
        }
        if (n) plan->run[n - 1].numel = length;
        *elements += length;
        known &= start_run(edge, edges, t, &plan->run[n], &plan->span[n]);
        if (join) most = longest_run(edge, edges);
        length = numel;
        n++;
    }
    if (n) plan->run[n - 1].numel = length;
    *elements += length;
    plan->n = n;
    return known;
}

Status amp_list_plan(ListPlan *plan, const TensorList *lists, int operands, bool copies, unsigned written, bool join) {
    const TensorList list = lists[0];
    Edge edge[LIST_STREAMS + 1];
    int edges = 0;
    plan->v = list.v;
    plan->lists = lists;
    plan->written = written;
    plan->operands = operands;
    plan->join = join;
    if (!reserve(plan, list.n)) return AMP_NO_MEMORY;
    for (int i = 0; i < operands + copies; i++)
        if (lists[i].n) edge[edges++] = (Edge){.v = lists[i].v, .stream = i < operands ? i : -1};
    int64_t chunks = 0, elements = 0;
    bool known;
    switch (edges) { /* the usual numbers of lists are compiled each on its own */
    case 1: known = find_runs(plan, list, edge, 1, &elements); break;
    case 2: known = find_runs(plan, list, edge, 2, &elements); break;
    case 3: known = find_runs(plan, list, edge, 3, &elements); break;
    case 4: known = find_runs(plan, list, edge, 4, &elements); break;
    default: known = find_runs(plan, list, edge, edges, &elements);
    }
    const int64_t n = plan->n;
    for (int64_t r = 0; r < n; r++) {
        plan->run[r].first = chunks;
        plan->span[r].n = plan->run[r].direct ? plan->run[r].numel : 0;
        chunks += chunks_of(plan->run[r].numel);
    }
    plan->run[n] = (ListRun){.first = chunks};
    plan->span[n] = (ListSpan){0};
    plan->chunks = chunks;
    /* Chunks of small tensors are small: take so many that they hold enough elements on average. */
    int64_t average = chunks ? elements / chunks + 1 : 1;
    plan->grain = MIN_ELEMENTS / average + 1;
    if (!known) amp_list_plan_free(plan);
    return known ? AMP_OK : AMP_BAD_DTYPE;
}

void amp_list_plan_free(ListPlan *plan) {
    if (plan->run != plan->small) free(plan->run);
}

/* The run that holds a chunk; runs without elements hold none and are never found. */
static int64_t run_of(const ListPlan *plan, int64_t chunk) {
    int64_t low = 0, high = plan->n;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (plan->run[middle].first <= chunk) low = middle;
        else high = middle;
    }
    return low;
}

typedef struct RunContext {
    const ListPlan *plan;
    ListBody body;
    ListSpans spans;
    void *ctx;
} RunContext;

/* A part of a direct run. */
static void run_part(const RunContext *c, int64_t r, int64_t begin, int64_t end) {
    const ListRun *run = &c->plan->run[r];
    ListSpan part[2] = {c->plan->span[r], end == run->numel ? c->plan->span[r + 1] : (ListSpan){0}};
    part[0].n = end - begin;
    for (int i = 0; i < LIST_STREAMS; i++)
        if (part[0].at[i]) part[0].at[i] += begin * (int64_t)(run->wide ? sizeof(double) : sizeof(float));
    c->spans(c->ctx, run, part, 1);
}

static void run_range(void *ctx, int64_t begin, int64_t end) {
    const RunContext *c = ctx;
    const ListRun *run = c->plan->run;
    int64_t r = run_of(c->plan, begin);
    for (int64_t chunk = begin; chunk < end; r++) {
        const int64_t from = chunk - run[r].first;
        int64_t stop = run[r + 1].first < end ? run[r + 1].first : end;
        if (stop <= chunk) continue;
        int64_t last = (stop - run[r].first) * LIST_CHUNK;
        if (last > run[r].numel) last = run[r].numel;
        chunk = stop;
        if (!c->spans || !run[r].direct) c->body(c->ctx, &run[r], from * LIST_CHUNK, last);
        else if (from > 0 || last < run[r].numel) run_part(c, r, from * LIST_CHUNK, last);
        else {
            int64_t first = r;
            while (c->plan->join && r + 1 < c->plan->n && run[r + 1].direct && run[r + 1].wide == run[first].wide &&
                   run[r + 2].first <= end)
                r++;
            chunk = run[r + 1].first;
            c->spans(c->ctx, &run[first], &c->plan->span[first], r + 1 - first);
        }
    }
}

/* ---- memory that is listed twice ---- */

/* Of one run's part of an operand. */
typedef struct Extent {
    uintptr_t begin, end;
    int64_t run;
    bool gaps; /* or another order than that of the index */
} Extent;

static Extent extent_of(const View *v, int64_t numel, int64_t run) {
    const int64_t size = (int64_t)amp_itemsize(v->dtype);
    const uintptr_t data = (uintptr_t)v->data;
    if (v->layout & LAYOUT_CONTIGUOUS) return (Extent){data, data + (uintptr_t)(numel * size), run, false};
    Extent e = {data, data + (uintptr_t)size, run, true};
    for (int d = 0; d < v->ndim; d++) {
        const int64_t far = (v->shape[d] - 1) * v->stride[d] * size;
        if (far < 0) e.begin += (uintptr_t)far;
        else e.end += (uintptr_t)far;
    }
    return e;
}

static int by_begin(const void *a, const void *b) {
    const Extent *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* By begin. Tensors that were made one after the other rise or fall as they are. */
static void sort_extents(Extent *extent, int64_t n) {
    bool rising = true, falling = true;
    for (int64_t i = 1; i < n; i++) {
        rising &= extent[i - 1].begin <= extent[i].begin;
        falling &= extent[i].begin <= extent[i - 1].begin;
    }
    if (rising) return;
    for (int64_t i = 0; falling && i < n / 2; i++) {
        const Extent e = extent[i];
        extent[i] = extent[n - 1 - i], extent[n - 1 - i] = e;
    }
    if (!falling) qsort(extent, (size_t)n, sizeof *extent, by_begin);
}

static int64_t list_extents(const ListPlan *plan, TensorList list, Extent *extent) {
    int64_t n = 0;
    for (int64_t r = 0; list.n && r < plan->n; r++) {
        const View *v = list.v[plan->run[r].tensor];
        if (v && plan->run[r].numel) extent[n++] = extent_of(v, plan->run[r].numel, r);
    }
    sort_extents(extent, n);
    return n;
}

/* One operand's sorted extents among themselves. */
static bool are_apart(const Extent *x, int64_t n) {
    for (int64_t i = 1; i < n; i++)
        if (x[i - 1].end > x[i].begin) return false;
    return true;
}

/* Two operands' sorted extents, of which x are apart. Of one run they may be the same memory in the same order: its elements keep to
 * themselves. */
static bool keep_apart(const Extent *x, int64_t n, const Extent *y, int64_t m) {
    for (int64_t i = 0, j = 0; i < n; i++) {
        while (j < m && y[j].end <= x[i].begin) j++;
        for (int64_t k = j; k < m && y[k].begin < x[i].end; k++)
            if (y[k].end > x[i].begin && (y[k].run != x[i].run || y[k].begin != x[i].begin || x[i].gaps || y[k].gaps))
                return false;
    }
    return true;
}

/* Whether runs may be worked on at the same time: none writes what another one writes or reads. */
static bool runs_are_apart(const ListPlan *plan) {
    if (!plan->written) return true;
    const int64_t all = plan->n * plan->operands;
    Extent small[LIST_SMALL], *extent = all > LIST_SMALL ? malloc((size_t)all * sizeof *extent) : small, *of[LIST_STREAMS];
    int64_t n[LIST_STREAMS];
    bool apart = extent != NULL;
    for (int a = 0; apart && a < plan->operands; a++) {
        of[a] = extent + a * plan->n;
        n[a] = list_extents(plan, plan->lists[a], of[a]);
        if (plan->written >> a & 1) apart = are_apart(of[a], n[a]);
    }
    for (int a = 0; apart && a < plan->operands; a++)
        for (int b = 0; apart && plan->written >> a & 1 && b < plan->operands; b++)
            if (b != a) apart = keep_apart(of[a], n[a], of[b], n[b]);
    if (extent != small) free(extent);
    return apart;
}

void amp_list_run(const ListPlan *plan, ListBody body, ListSpans spans, void *ctx) {
    RunContext run = {plan, body, spans, ctx};
    if (plan->chunks == 0) return;
    if (plan->chunks <= plan->grain || amp_get_num_threads() == 1 || !runs_are_apart(plan)) run_range(&run, 0, plan->chunks);
    else amp_parallel_for(plan->chunks, plan->grain, run_range, &run);
}

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- streams ---- */

/* True if all views cover a gap-free block with the same strides: a transposed weight with its transposed state. Element-wise work
 * may then follow memory instead of the index. */
static bool dense_together(int n, const View *const *v) {
    bool contiguous = true;
    for (int i = 0; i < n; i++) contiguous = contiguous && (v[i]->layout & LAYOUT_CONTIGUOUS);
    if (contiguous) return true;
    uint64_t left = 0;
    for (int d = 0; d < v[0]->ndim; d++) {
        if (v[0]->shape[d] == 1) continue;
        left |= UINT64_C(1) << d;
        for (int i = 1; i < n; i++)
            if (v[i]->stride[d] != v[0]->stride[d]) return false;
    }
    for (int64_t expected = 1; left;) {
        int d = 0;
        while (d < v[0]->ndim && !(((left >> d) & 1) && v[0]->stride[d] == expected)) d++;
        if (d == v[0]->ndim) return false;
        left &= ~(UINT64_C(1) << d);
        expected *= v[0]->shape[d];
    }
    return true;
}

void amp_list_open(ListStreams *streams, int n, const View *const *views, bool wide) {
    const int own = wide ? AMP_FLOAT64 : AMP_FLOAT32;
    const uintptr_t align = wide ? sizeof(double) : sizeof(float);
    bool dense = dense_together(n, views), all_direct = true;
    streams->n = n;
    for (int i = 0; i < n; i++) {
        ListStream *s = &streams->s[i];
        s->v = views[i];
        s->dense = dense;
        s->wide = wide;
        s->direct = dense && views[i]->dtype == own && ((uintptr_t)views[i]->data & (align - 1)) == 0;
        s->buffer = streams->buffer[i];
        all_direct = all_direct && s->direct;
    }
    streams->block = all_direct ? INT64_MAX : LIST_BLOCK;
}

static double load_one(int dtype, const char *p) {
    double d;
    float f;
    uint16_t h;
    switch (dtype) {
    case AMP_FLOAT64: memcpy(&d, p, 8); return d;
    case AMP_FLOAT32: memcpy(&f, p, 4); return (double)f;
    case AMP_FLOAT16: memcpy(&h, p, 2); return (double)amp_f16_to_f32(h);
    default: memcpy(&h, p, 2); return (double)amp_bf16_to_f32(h);
    }
}

/* From the compute type; a wide value is rounded once, an fp32 value is exact as a double. */
static void store_one(int dtype, char *p, double v) {
    switch (dtype) {
    case AMP_FLOAT64: memcpy(p, &v, 8); break;
    case AMP_FLOAT32: memcpy(p, &(float){(float)v}, 4); break;
    case AMP_FLOAT16: memcpy(p, &(uint16_t){amp_f64_to_f16(v)}, 2); break;
    default: memcpy(p, &(uint16_t){amp_f64_to_bf16(v)}, 2); break;
    }
}

/* `n` elements in steps of `stride` elements. */
static void load_run(const ListStream *s, int64_t at, const char *p, int64_t stride, int64_t n) {
    const int dtype = s->v->dtype;
    float *narrow = (float *)s->buffer + at;
    if (!s->wide && stride == 1 && dtype == AMP_FLOAT16) amp_list_rows()->load_f16(narrow, p, n);
    else if (!s->wide && stride == 1 && dtype == AMP_BFLOAT16) amp_list_rows()->load_bf16(narrow, p, n);
    else {
        const int64_t step = stride * (int64_t)amp_itemsize(dtype);
        for (int64_t i = 0; i < n; i++) {
            double v = load_one(dtype, p + i * step);
            if (s->wide) ((double *)s->buffer)[at + i] = v;
            else narrow[i] = (float)v;
        }
    }
}

static void store_run(const ListStream *s, int64_t at, char *p, int64_t stride, int64_t n) {
    const int dtype = s->v->dtype;
    const float *narrow = (const float *)s->buffer + at;
    if (!s->wide && stride == 1 && dtype == AMP_FLOAT16) amp_list_rows()->store_f16(p, narrow, n);
    else if (!s->wide && stride == 1 && dtype == AMP_BFLOAT16) amp_list_rows()->store_bf16(p, narrow, n);
    else {
        const int64_t step = stride * (int64_t)amp_itemsize(dtype);
        for (int64_t i = 0; i < n; i++)
            store_one(dtype, p + i * step, s->wide ? ((const double *)s->buffer)[at + i] : (double)narrow[i]);
    }
}

/* Elements [begin, begin + n) in C order, run by run along the last dimension. */
static void walk_strided(const ListStream *s, int64_t begin, int64_t n, bool store) {
    const View *v = s->v;
    const int64_t size = (int64_t)amp_itemsize(v->dtype);
    int64_t at[AMP_MAX_DIMS] = {0}, rest = begin, offset = 0;
    const int last = v->ndim - 1;
    for (int d = last; d >= 0; d--) {
        at[d] = rest % v->shape[d];
        rest /= v->shape[d];
        offset += at[d] * v->stride[d];
    }
    for (int64_t done = 0; done < n;) {
        int64_t run = last < 0 ? 1 : v->shape[last] - at[last], stride = last < 0 ? 1 : v->stride[last];
        if (run > n - done) run = n - done;
        if (store) store_run(s, done, v->data + offset * size, stride, run);
        else load_run(s, done, v->data + offset * size, stride, run);
        done += run;
        if (done >= n) break;
        at[last] += run;
        offset += run * stride;
        for (int d = last; d > 0 && at[d] == v->shape[d]; d--) {
            offset += v->stride[d - 1] - v->shape[d] * v->stride[d];
            at[d] = 0;
            at[d - 1]++;
        }
    }
}

void *amp_list_place(ListStream *s, int64_t begin) {
    return s->direct ? s->v->data + begin * (int64_t)amp_itemsize(s->v->dtype) : s->buffer;
}

void *amp_list_read(ListStream *s, int64_t begin, int64_t n) {
    if (s->direct) return amp_list_place(s, begin);
    if (s->dense) load_run(s, 0, s->v->data + begin * (int64_t)amp_itemsize(s->v->dtype), 1, n);
    else walk_strided(s, begin, n, false);
    return s->buffer;
}

void amp_list_write(ListStream *s, int64_t begin, int64_t n) {
    if (s->direct) return;
    if (s->dense) store_run(s, 0, s->v->data + begin * (int64_t)amp_itemsize(s->v->dtype), 1, n);
    else walk_strided(s, begin, n, true);
}

/* The tensors in front of the first one whose dtype has no kernel: those are done before the call fails. */
static TensorList supported(TensorList list) {
    int64_t n = 0;
    while (n < list.n && amp_list_dtype_ok(list.v[n]->dtype)) n++;
    return (TensorList){n, list.v};
}

/* ---- unscale and scale ---- */

typedef struct MultiplyContext {
    const ListPlan *plan;
    double factor;
    bool check;
    double *
        partial; /* with check: sums of squares of what stands there afterwards, one per chunk, as norm_body forms them; or NULL */
    atomic_bool bad;
} MultiplyContext;

/* In place. */
static bool multiply(const MultiplyContext *c, const ListSpan *span, int64_t count, bool wide) {
    const ListKernels *k = amp_list_kernels(wide);
    if (c->check) return k->unscale(span, count, c->factor);
    k->scale(span, count, c->factor);
    return false;
}

static bool multiply_block(const MultiplyContext *c, void *x, int64_t n, bool wide) {
    return multiply(c, (const ListSpan[]){{n, {x}}, {0}}, 1, wide);
}

/* One block of gradients that have to be converted; the sum of squares is that of values as they are stored. */
static double unscale_block(const MultiplyContext *c, ListStream *s, int64_t begin, int64_t n, bool *bad) {
    const ListKernels *k = amp_list_kernels(s->wide);
    void *x = amp_list_read(s, begin, n);
    *bad |= multiply_block(c, x, n, s->wide);
    if (c->factor == 1.0) return k->sum_squares(x, n);
    amp_list_write(s, begin, n);
    return k->sum_squares(amp_list_read(s, begin, n), n);
}

/* `s` is NULL for a direct run. */
static void unscale_chunks(MultiplyContext *c, const ListRun *run, int64_t begin, int64_t end, ListStream *s, bool *bad) {
    const ListKernels *k = amp_list_kernels(run->wide);
    const int64_t size = run->wide ? (int64_t)sizeof(double) : (int64_t)sizeof(float), next_numel = run[1].numel;
    char *data = c->plan->v[run->tensor]->data;
    for (int64_t chunk = begin; chunk < end; chunk += LIST_CHUNK) {
        int64_t stop = at_most(chunk + LIST_CHUNK, end);
        double acc = 0.0;
        for (int64_t i = chunk, n; i < stop; i += n) {
            n = at_most(LIST_BLOCK, stop - i);
            bool last = i + n == run->numel && next_numel >= n;
            acc += s ? unscale_block(c, s, i, n, bad)
                     : k->unscale_squares(data + i * size, n, c->factor, last ? c->plan->v[run[1].tensor]->data : NULL, bad);
        }
        c->partial[run->first + chunk / LIST_CHUNK] = acc;
    }
}

static void convert_chunks(MultiplyContext *c, const ListRun *run, int64_t begin, int64_t end, bool *bad) {
    const View *v = c->plan->v[run->tensor];
    ListStreams s;
    amp_list_open(&s, 1, &v, run->wide);
    if (c->partial) {
        unscale_chunks(c, run, begin, end, &s.s[0], bad);
        return;
    }
    for (int64_t i = begin, n; i < end; i += n) {
        n = at_most(s.block, end - i);
        *bad |= multiply_block(c, amp_list_read(&s.s[0], i, n), n, run->wide);
        /* Unchanged values are not stored: a conversion there and back would quiet signalling NaNs. */
        if (c->factor != 1.0) amp_list_write(&s.s[0], i, n);
    }
}

static void multiply_body(void *ctx, const ListRun *run, int64_t begin, int64_t end) {
    MultiplyContext *c = ctx;
    bool bad = false;
    if (c->partial && run->direct) unscale_chunks(c, run, begin, end, NULL, &bad);
    else convert_chunks(c, run, begin, end, &bad);
    if (bad) atomic_store_explicit(&c->bad, true, memory_order_relaxed);
}

static void multiply_spans(void *ctx, const ListRun *run, const ListSpan *span, int64_t count) {
    MultiplyContext *c = ctx;
    if (multiply(c, span, count, run->wide)) atomic_store_explicit(&c->bad, true, memory_order_relaxed);
}

/* norms may be NULL. */
static Status multiply_list(TensorList list, double factor, bool check, bool *bad, double *norms) {
    ListPlan plan;
    TensorList usable = list;
    double small[LIST_SMALL], *partial = NULL;
    Status status = amp_list_plan(&plan, &usable, 1, false, 1, !norms);
    if (status == AMP_BAD_DTYPE) {
        usable = supported(list);
        status = amp_list_plan(&plan, &usable, 1, false, 1, !norms);
    }
    if (status != AMP_OK) return status;
    if (norms)
        partial = plan.chunks > LIST_SMALL ? malloc((size_t)plan.chunks * sizeof *partial) : small; /* can be done without */
    MultiplyContext c = {.plan = &plan, .factor = factor, .check = check, .partial = partial};
    amp_list_run(&plan, multiply_body, partial ? NULL : multiply_spans, &c);
    for (int64_t t = 0; norms && t < list.n; t++) {
        double acc = 0.0;
        bool known = partial && t < usable.n && list.v[t]->dtype != AMP_FLOAT64; /* fp64 may have left the range: see trusted() */
        for (int64_t i = known ? plan.run[t].first : 0, end = known ? plan.run[t + 1].first : 0; i < end; i++) acc += partial[i];
        norms[t] = known ? sqrt(acc) : -1.0;
    }
    if (partial != small) free(partial);
    amp_list_plan_free(&plan);
    *bad = atomic_load(&c.bad);
    return usable.n < list.n ? AMP_BAD_DTYPE : AMP_OK;
}

/* The test comes before the product: a product that overflows is not reported. The flag is never cleared. */
Status amp_list_unscale(TensorList grads, float inv_scale, float *found_inf, double *norms) {
    bool bad = false;
    Status status = multiply_list(grads, (double)inv_scale, true, &bad, norms);
    if (bad) *found_inf = 1.0f;
    return status;
}

Status amp_list_scale(TensorList tensors, double factor) {
    bool bad = false;
    if ((double)(float)factor == 1.0 && factor != 1.0) { /* 1 for fp32 and 16 bits: their values would stay as they are */
        bool wide = false;
        for (int64_t t = 0; t < tensors.n; t++) wide |= tensors.v[t]->dtype == AMP_FLOAT64;
        if (!wide) factor = 1.0;
    }
    if (factor == 1.0) return supported(tensors).n < tensors.n ? AMP_BAD_DTYPE : AMP_OK;
    return multiply_list(tensors, factor, false, &bad, NULL);
}

/* ---- zeros ---- */

static void zero_body(void *ctx, const ListRun *run, int64_t begin, int64_t end) {
    const ListPlan *plan = ctx;
    const View *v = plan->v[run->tensor];
    const int64_t size = (int64_t)amp_itemsize(v->dtype);
    ListStreams s;
    bool dense = v->layout & LAYOUT_CONTIGUOUS;
    if (!dense) {
        amp_list_open(&s, 1, &v, v->dtype == AMP_FLOAT64);
        dense = s.s[0].dense;
    }
    if (dense) {
        memset(v->data + begin * size, 0, (size_t)((end - begin) * size));
        return;
    }
    memset(s.buffer[0], 0, sizeof s.buffer[0]);
    for (int64_t i = begin; i < end; i += LIST_BLOCK) amp_list_write(&s.s[0], i, at_most(LIST_BLOCK, end - i));
}

static void zero_spans(void *ctx, const ListRun *run, const ListSpan *span, int64_t count) {
    (void)ctx;
    amp_list_kernels(run->wide)->zero(span, count);
}

Status amp_list_zero(TensorList tensors) {
    ListPlan plan;
    Status status = amp_list_plan(&plan, &tensors, 1, false, 1, true);
    if (status != AMP_OK) return status;
    amp_list_run(&plan, zero_body, zero_spans, &plan);
    amp_list_plan_free(&plan);
    return AMP_OK;
}

/* ---- norms ---- */

typedef enum NormKind { NORM_ZERO, NORM_ONE, NORM_TWO, NORM_MAX, NORM_MIN, NORM_P } NormKind;

static NormKind norm_kind(double p) {
    if (p == 2.0) return NORM_TWO;
    if (p == 1.0) return NORM_ONE;
    if (p == 0.0) return NORM_ZERO;
    if (isinf(p)) return p > 0 ? NORM_MAX : NORM_MIN;
    return NORM_P;
}

typedef struct NormContext {
    const ListPlan *plan;
    NormKind kind;
    double p, divisor; /* elements are divided by `divisor` first */
    double *partial;   /* one per chunk */
} NormContext;

/* What an empty set gives, also the start value. */
static double norm_identity(NormKind kind) { return kind == NORM_MIN ? (double)INFINITY : 0.0; }

/* `a` is the value so far; NaN stays. */
static double norm_combine(NormKind kind, double a, double b) {
    if (kind == NORM_MAX) return isnan(a) || a > b ? a : b;
    if (kind == NORM_MIN) return isnan(a) || a < b ? a : b;
    return a + b;
}

static double norm_term(const NormContext *c, double x) {
    switch (c->kind) {
    case NORM_ZERO: return x != 0.0;
    case NORM_TWO: return (x / c->divisor) * (x / c->divisor);
    case NORM_P: return pow(fabs(x) / c->divisor, c->p);
    default: return fabs(x);
    }
}

static double norm_block(const NormContext *c, const void *x, int64_t n, bool wide) {
    if (c->kind == NORM_TWO && c->divisor == 1.0) return amp_list_kernels(wide)->sum_squares(x, n);
    double acc = norm_identity(c->kind);
    for (int64_t i = 0; i < n; i++)
        acc = norm_combine(c->kind, acc, norm_term(c, wide ? ((const double *)x)[i] : (double)((const float *)x)[i]));
    return acc;
}

static void norm_body(void *ctx, const ListRun *run, int64_t begin, int64_t end) {
    NormContext *c = ctx;
    const View *v = c->plan->v[run->tensor];
    bool wide = v->dtype == AMP_FLOAT64;
    ListStreams s;
    amp_list_open(&s, 1, &v, wide);
    /* Blocks of one size whether memory is read directly or converted: sliced and misaligned tensors sum like their copies. */
    for (int64_t chunk = begin; chunk < end; chunk += LIST_CHUNK) {
        int64_t stop = at_most(chunk + LIST_CHUNK, end);
        double acc = norm_identity(c->kind);
        for (int64_t i = chunk, n; i < stop; i += n) {
            n = at_most(LIST_BLOCK, stop - i);
            acc = norm_combine(c->kind, acc, norm_block(c, amp_list_read(&s.s[0], i, n), n, wide));
        }
        c->partial[run->first + chunk / LIST_CHUNK] = acc;
    }
}

static double norm_of_partials(const NormContext *c, int64_t tensor) {
    double acc = norm_identity(c->kind);
    for (int64_t i = c->plan->run[tensor].first; i < c->plan->run[tensor + 1].first; i++)
        acc = norm_combine(c->kind, acc, c->partial[i]);
    if (c->kind == NORM_TWO) return c->divisor * sqrt(acc);
    if (c->kind == NORM_P) return c->divisor * pow(acc, 1.0 / c->p);
    return acc;
}

static double pass(NormContext *c, int64_t tensor) {
    int64_t numel = c->plan->v[tensor]->numel;
    if (numel) norm_body(c, &c->plan->run[tensor], 0, numel);
    return norm_of_partials(c, tensor);
}

/* Again with every element divided by the largest (for a negative p: smallest) magnitude, when powers left the range of a double.
 * Rare, hence serial. */
static double norm_rescaled(const NormContext *c, int64_t tensor) {
    NormContext again = *c;
    again.kind = c->p < 0 ? NORM_MIN : NORM_MAX;
    double extreme = pass(&again, tensor);
    if (!isfinite(extreme) || extreme == 0.0) return extreme;
    again.kind = c->kind;
    again.divisor = extreme;
    return pass(&again, tensor);
}

/* Sums of powers are trusted between these limits; outside, digits or everything may be lost. Squares of fp32 values always fit. */
static bool trusted(const NormContext *c, int64_t tensor) {
    double acc = 0.0;
    if (c->kind != NORM_P && (c->kind != NORM_TWO || c->plan->v[tensor]->dtype != AMP_FLOAT64)) return true;
    for (int64_t i = c->plan->run[tensor].first; i < c->plan->run[tensor + 1].first; i++) acc += c->partial[i];
    return acc > 0x1p-900 && acc < 0x1p1000;
}

Status amp_list_norms(TensorList tensors, double p, double *norms) {
    ListPlan plan;
    double small[LIST_SMALL], *partial = small;
    Status status = amp_list_plan(&plan, &tensors, 1, false, 0, false);
    if (status != AMP_OK) return status;
    if (plan.chunks > LIST_SMALL) partial = malloc((size_t)plan.chunks * sizeof *partial);
    if (!partial) {
        status = AMP_NO_MEMORY;
        goto done;
    }
    NormContext c = {&plan, norm_kind(p), p, 1.0, partial};
    amp_list_run(&plan, norm_body, NULL, &c);
    for (int64_t t = 0; t < tensors.n; t++) {
        bool redo = tensors.v[t]->numel > 0 && !trusted(&c, t);
        norms[t] = redo ? norm_rescaled(&c, t) : norm_of_partials(&c, t);
    }
done:
    if (partial != small) free(partial);
    amp_list_plan_free(&plan);
    return status;
}
