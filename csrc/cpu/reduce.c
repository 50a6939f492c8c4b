/* The reduce slot.
 *
 * Dimensions are split into kept and reduced ones, each group ordered by stride and merged. Then one of two walks:
 *
 *     along rows: the innermost dimension is reduced           along columns: the innermost dimension is kept
 *
 *        kept   [ x x x x x x | x x x ] -> one accumulator        [ x x x x x x ]
 *               blocks of a run are folded by lanes               [ x x x x x x ]  each row is added to a strip
 *                                                                   v v v v v v    of accumulators
 *
 * Where a value may be split over threads, the cut depends on the sizes only; partial results are combined in order. */
#include "reduce.h"

#include "../core/numeric_ops.h"
#include "cast.h"

/* Rows that span more than NEAR_BYTES are read a few at a time: hopping between many would defeat the prefetcher. */
enum { GRAIN = 16 * 1024, CHUNKS = 128, ROW_GROUP = 256, BATCH = 64, NEAR_BYTES = 512 * 1024, FAR_ROWS = 8 };

typedef struct Job {
    const ReducePlan *plan;
    FoldKernel kernel;
    Fold fold;
    int load, op;
    bool plain; /* the accumulated value is the result */
    double num[2], correction, order;
    int64_t repeats; /* how often each of the plan's values counts in a sum */
    Accumulator *partial;
    const char *base; /* of the value whose chunks are reduced in parallel */
    int64_t chunk;
} Job;

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Adds a dimension to a group, keeping falling steps unless the order must stay. */
static int add_dim(int n, int64_t size, const int64_t *step, int64_t *shape, int64_t *const *steps, int nsteps, bool keep_order) {
    int at = n;
    if (!keep_order)
        for (; at > 0 && magnitude(steps[0][at - 1]) < magnitude(step[0]); at--) {
            shape[at] = shape[at - 1];
            for (int v = 0; v < nsteps; v++) steps[v][at] = steps[v][at - 1];
        }
    shape[at] = size;
    for (int v = 0; v < nsteps; v++) steps[v][at] = step[v];
    return n + 1;
}

static int merge(int n, int64_t *shape, int64_t *const *steps, int nsteps) {
    int nd = 0;
    for (int d = 0; d < n; d++) {
        bool join = nd > 0;
        for (int v = 0; join && v < nsteps; v++) join = steps[v][nd - 1] == amp_mul_clamped(steps[v][d], shape[d]);
        if (join) shape[nd - 1] = amp_mul_clamped(shape[nd - 1], shape[d]);
        else shape[nd++] = shape[d];
        for (int v = 0; v < nsteps; v++) steps[v][nd - 1] = steps[v][d];
    }
    return nd;
}

void amp_reduce_plan(ReducePlan *p, const Call *call, bool keep_order) {
    const View *in = call->in[0], *out = call->out[0], *out2 = call->nout > 1 ? call->out[1] : NULL;
    int64_t *const kept_steps[3] = {p->kept_in, p->kept_out, p->kept_out2}, *const reduced_steps[1] = {p->step};
    int64_t item = (int64_t)amp_itemsize(in->dtype);
    p->nkept = p->nreduced = 0;
    p->kept = p->reduced = 1;
    p->in = in->data, p->out = out->data, p->out2 = out2 ? out2->data : NULL;
    p->in_dtype = in->dtype, p->out_dtype = out->dtype;
    for (int d = 0; d < in->ndim; d++) {
        int64_t size = in->shape[d], step[3] = {in->stride[d] * item, 0, 0};
        if (call->dims >> d & 1) {
            p->reduced = amp_mul_clamped(p->reduced, size);
            if (size != 1) p->nreduced = add_dim(p->nreduced, size, step, p->shape, reduced_steps, 1, keep_order);
            continue;
        }
        p->kept = amp_mul_clamped(p->kept, size);
        step[1] = out->stride[d] * (int64_t)amp_itemsize(out->dtype);
        if (out2) step[2] = out2->stride[d] * (int64_t)amp_itemsize(out2->dtype);
        if (size != 1) p->nkept = add_dim(p->nkept, size, step, p->kept_shape, kept_steps, 3, false);
    }
    p->nkept = merge(p->nkept, p->kept_shape, kept_steps, 3);
    p->nreduced = merge(p->nreduced, p->shape, reduced_steps, 1);
    if (p->nkept == 0) p->nkept = 1, p->kept_shape[0] = 1, p->kept_in[0] = p->kept_out[0] = p->kept_out2[0] = 0;
    if (p->nreduced == 0) p->nreduced = 1, p->shape[0] = 1, p->step[0] = 0;
}

static Accumulator identity(Fold fold, int acc) {
    Accumulator a = {.c128 = {0, 0}};
    double limit = fold == FOLD_MAX                           ? -(double)INFINITY
                   : fold == FOLD_MIN || fold == FOLD_ABS_MIN ? (double)INFINITY
                                                              : fold == FOLD_PROD;
    switch (acc) {
    case AMP_FLOAT32: a.f32 = (float)limit; break;
    case AMP_INT32: a.i32 = fold == FOLD_MAX ? INT32_MIN : fold == FOLD_MIN ? INT32_MAX : 0; break;
    case AMP_INT64: a.i64 = fold == FOLD_MAX ? INT64_MIN : fold == FOLD_MIN ? INT64_MAX : fold == FOLD_PROD; break;
    case AMP_COMPLEX128: a.c128.re = limit; break;
    default: a.f64 = limit;
    }
    return a;
}

/* Folds elements [begin, end) of the reduced dimensions, counted from `base`, into *acc. */
static void fold_range(const Job *job, const double *num, const char *base, int64_t begin, int64_t end, Accumulator *acc) {
    const ReducePlan *p = job->plan;
    int64_t at[AMP_MAX_DIMS], rest = begin, item = (int64_t)amp_itemsize(job->load);
    int last = p->nreduced - 1;
    bool direct = p->in_dtype == job->load && (p->step[last] == item || p->shape[last] == 1);
    _Alignas(64) char strip[AMP_STRIP * AMP_MAX_ITEM];
    int64_t block = direct ? AMP_FOLD_BLOCK : AMP_STRIP;
    const char *x = base;
    if (begin == end) return;
    for (int d = last; d >= 0; d--) {
        at[d] = rest % p->shape[d];
        rest /= p->shape[d];
        x += at[d] * p->step[d];
    }
    while (begin < end) {
        int64_t n = p->shape[last] - at[last];
        if (n > end - begin) n = end - begin;
        for (int64_t i = 0; i < n; i += block) {
            int64_t m = n - i < block ? n - i : block;
            const char *values = x + i * p->step[last];
            if (!direct) {
                amp_convert(p->in_dtype, values, p->step[last], job->load, strip, item, m);
                values = strip;
            }
            job->kernel.fold(acc, values, m, num);
        }
        begin += n;
        if (begin == end) break;
        x -= at[last] * p->step[last];
        at[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            x += p->step[d];
            if (++at[d] < p->shape[d]) break;
            x -= at[d] * p->step[d];
            at[d] = 0;
        }
    }
}

static void fold_chunks(void *context, int64_t begin, int64_t end) {
    const Job *job = context;
    for (int64_t c = begin; c < end; c++) {
        int64_t first = c * job->chunk, last = first + job->chunk;
        if (last > job->plan->reduced) last = job->plan->reduced;
        job->partial[c] = identity(job->fold, job->kernel.acc);
        fold_range(job, job->num, job->base, first, last, &job->partial[c]);
    }
}

/* How accumulators of a fold join. */
static Fold joining(Fold fold) {
    switch (fold) {
    case FOLD_PROD:
    case FOLD_MAX:
    case FOLD_MIN: return fold;
    case FOLD_ABS_MAX: return FOLD_MAX;
    case FOLD_ABS_MIN: return FOLD_MIN;
    default: return FOLD_SUM;
    }
}

static void combine(const Job *job, Accumulator *a, const Accumulator *b) {
    static const double one[2] = {1, 1};
    amp_fold_kernel(joining(job->fold), job->kernel.acc).rows(a, (const char *)b, 1, 1, 0, one);
}

/* All reduced elements of one value, in chunks that threads share if `parallel`. */
static Accumulator fold_value(const Job *job, const double *num, const char *base, bool parallel) {
    int64_t n = job->plan->reduced;
    Accumulator acc = identity(job->fold, job->kernel.acc);
    if (n <= 2 * GRAIN) {
        fold_range(job, num, base, 0, n, &acc);
        return acc;
    }
    Accumulator partial[CHUNKS];
    Job part = *job;
    part.base = base;
    part.partial = partial;
    part.num[0] = num[0], part.num[1] = num[1];
    part.chunk = GRAIN * ((n + (int64_t)GRAIN * CHUNKS - 1) / ((int64_t)GRAIN * CHUNKS));
    int64_t chunks = (n + part.chunk - 1) / part.chunk;
    if (parallel) amp_parallel_for(chunks, 1, fold_chunks, &part);
    else fold_chunks(&part, 0, chunks);
    for (int64_t c = 0; c < chunks; c++) combine(job, &acc, &partial[c]);
    return acc;
}

/* The p-norm from its sum, or again with the values scaled by the largest if the sum left the range of float64. */
static double finish_norm(const Job *job, const char *base, double sum, double p, bool parallel) {
    double norm = p == 2 ? sqrt(sum) : p == 1 ? sum : pow(sum, 1 / p);
    bool sound = p == 2 ? sum < (double)INFINITY && sum > 0x1p-900 : norm < (double)INFINITY && norm > 0 && sum > 0x1p-900;
    if (sound || sum != sum || job->plan->reduced == 0 || p == 1 || !base) return norm;
    Job largest = *job;
    largest.fold = p > 0 ? FOLD_ABS_MAX : FOLD_ABS_MIN;
    largest.kernel = amp_fold_kernel(largest.fold, job->load);
    double m = fold_value(&largest, job->num, base, parallel).f64;
    if (!(m > 0 && m < (double)INFINITY)) return p > 0 ? m : norm;
    int e = ilogb(m);
    double num[2] = {ldexp(1.0, e < -1000 ? 1000 : e > 1000 ? -1000 : -e), p};
    double scaled = fold_value(job, num, base, parallel).f64;
    return (p == 2 ? sqrt(scaled) : pow(scaled, 1 / p)) / num[0];
}

/* Every sum once for each repeat; n accumulators behind each other. */
static void repeat(const Job *job, void *accumulators, int64_t n) {
    if (job->repeats == 1) return;
    if (job->kernel.acc == AMP_INT64) {
        int64_t *a = accumulators;
        for (int64_t i = 0; i < n; i++) a[i] = amp_i64_mul(a[i], job->repeats);
        return;
    }
    double *a = accumulators, times = (double)job->repeats;
    if (job->kernel.acc == AMP_COMPLEX128) n *= 2;
    for (int64_t i = 0; i < n; i++) a[i] *= times;
}

/* From the accumulated value to the result; `base` is where the value's elements start. */
static void finish(const Job *job, const char *base, Accumulator *acc, bool parallel) {
    int64_t elements = job->plan->reduced * job->repeats;
    double n = (double)elements;
    switch (job->op) {
    case OP_mean:
    case OP_mean_dim:
        if (job->kernel.acc == AMP_COMPLEX128) acc->c128.re /= n, acc->c128.im /= n;
        else if (job->kernel.acc == AMP_INT64) acc->i64 = elements ? acc->i64 / elements : 0;
        else acc->f64 /= n;
        break;
    case OP_any:
    case OP_any_dim: acc->i64 = acc->i64 > 0; break;
    case OP_all:
    case OP_all_dim: acc->i64 = acc->i64 == elements; break;
    case OP_vector_norm:
        if (job->fold == FOLD_SQUARES || job->fold == FOLD_POWERS || job->fold == FOLD_ABS_SUM)
            acc->f64 = finish_norm(job, base, acc->f64, job->order, parallel);
        break;
    default: break;
    }
}

/* Mean, then the squares of the deviations: two passes lose nothing to cancellation. */
static Accumulator variance(const Job *job, const char *base, bool parallel) {
    double n = (double)job->plan->reduced, free = n - job->correction;
    Job sum = *job;
    sum.fold = FOLD_SUM_WIDE;
    sum.kernel = amp_fold_kernel(FOLD_SUM_WIDE, job->load);
    double num[2] = {fold_value(&sum, job->num, base, parallel).f64 / n, 0};
    Accumulator acc = fold_value(job, num, base, parallel);
    acc.f64 /= free > 0 ? free : 0;
    if (job->op == OP_std || job->op == OP_std_unbiased || job->op == OP_std_dim) acc.f64 = sqrt(acc.f64);
    return acc;
}

static Accumulator one_value(const Job *job, const char *base, bool parallel) {
    if (job->fold == FOLD_DEVIATION) return variance(job, base, parallel);
    Accumulator acc = fold_value(job, job->num, base, parallel);
    repeat(job, &acc, 1);
    finish(job, base, &acc, parallel);
    return acc;
}

/* Where kept element i lies in input and output. */
static void locate(const ReducePlan *p, int64_t i, const char **in, char **out) {
    *in = p->in, *out = p->out;
    for (int d = p->nkept - 1; d >= 0; d--) {
        int64_t at = i % p->kept_shape[d];
        i /= p->kept_shape[d];
        *in += at * p->kept_in[d];
        *out += at * p->kept_out[d];
    }
}

/* finish() for m rows, `step` bytes apart. */
static void finish_rows(const Job *job, const char *base, int64_t step, Accumulator *acc, int64_t m) {
    if ((job->op == OP_mean || job->op == OP_mean_dim) && job->kernel.acc == AMP_FLOAT64) {
        const double n = (double)(job->plan->reduced * job->repeats);
        for (int64_t k = 0; k < m; k++) acc[k].f64 /= n;
    } else
        for (int64_t k = 0; k < m; k++) finish(job, base + k * step, &acc[k], false);
}

/* Results are stored in batches. */
static void along_rows(void *context, int64_t begin, int64_t end) {
    const Job *job = context;
    const ReducePlan *p = job->plan;
    int inner = p->nkept - 1;
    int64_t n = p->reduced, width = p->kept_shape[inner];
    bool plain = p->nreduced == 1 && p->in_dtype == job->load && n <= AMP_FOLD_BLOCK && job->fold != FOLD_DEVIATION &&
                 (p->step[0] == (int64_t)amp_itemsize(job->load) || n == 1);
    Accumulator acc[BATCH], start = identity(job->fold, job->kernel.acc);
    for (int64_t i = begin, m; i < end; i += m) {
        const char *in;
        char *out;
        locate(p, i, &in, &out);
        m = width - i % width;
        if (m > end - i) m = end - i;
        if (m > BATCH) m = BATCH;
        for (int64_t k = 0; k < m; k++) {
            const char *base = in + k * p->kept_in[inner];
            if (!plain) {
                acc[k] = one_value(job, base, false);
                continue;
            }
            acc[k] = start;
            job->kernel.fold(&acc[k], base, n, job->num);
            repeat(job, &acc[k], 1);
        }
        if (plain && !job->plain) finish_rows(job, in, p->kept_in[inner], acc, m);
        amp_convert(job->kernel.acc, (const char *)acc, sizeof *acc, p->out_dtype, out, p->kept_out[inner], m);
    }
}

/* Rows [0, count) that lie `step` bytes apart join the n accumulators of a group. */
static void fold_rows(const Job *job, const char *x, int64_t n, int64_t count, int64_t step, char *group) {
    const ReducePlan *p = job->plan;
    int64_t item = (int64_t)amp_itemsize(job->load), in_item = (int64_t)amp_itemsize(p->in_dtype),
            along = p->kept_in[p->nkept - 1];
    _Alignas(64) char strip[AMP_STRIP * AMP_MAX_ITEM];
    if (p->in_dtype == job->load && along == item) {
        int64_t at_once = magnitude(step) * count <= NEAR_BYTES ? count : FAR_ROWS;
        for (int64_t r = 0; r < count; r += at_once)
            job->kernel.rows(group, x + r * step, n, count - r < at_once ? count - r : at_once, step, job->num);
        return;
    }
    int64_t fit = (int64_t)sizeof strip / (n * item);
    for (int64_t r = 0; r < count; r += fit) {
        int64_t m = count - r < fit ? count - r : fit;
        if (along == in_item && step == n * in_item)
            amp_convert(p->in_dtype, x + r * step, in_item, job->load, strip, item, m * n);
        else
            for (int64_t k = 0; k < m; k++)
                amp_convert(p->in_dtype, x + (r + k) * step, along, job->load, strip + k * n * item, item, n);
        job->kernel.rows(group, strip, n, m, n * item, job->num);
    }
}

/* One strip of at most AMP_STRIP kept neighbours. Groups of rows are summed apart and then added, which shortens the chains. */
static void reduce_strip(const Job *job, const char *in, char *out, int64_t n) {
    const ReducePlan *p = job->plan;
    int64_t acc_item = (int64_t)amp_itemsize(job->kernel.acc), at[AMP_MAX_DIMS];
    int inner = p->nkept - 1, last = p->nreduced - 1;
    _Alignas(64) char total[AMP_STRIP * AMP_MAX_ITEM], group[AMP_STRIP * AMP_MAX_ITEM];
    Accumulator start = identity(job->fold, job->kernel.acc);
    RowsFn join = p->reduced > ROW_GROUP ? amp_fold_kernel(joining(job->fold), job->kernel.acc).rows : NULL;
    for (int d = 0; d <= last; d++) at[d] = 0;
    amp_convert(job->kernel.acc, (const char *)&start, 0, job->kernel.acc, total, acc_item, n);
    const char *x = in;
    for (int64_t r = 0; r < p->reduced;) {
        int64_t in_group = 0;
        char *sums = r == 0 ? total : group;
        if (sums == group) amp_convert(job->kernel.acc, (const char *)&start, 0, job->kernel.acc, group, acc_item, n);
        while (in_group < ROW_GROUP && r < p->reduced) {
            int64_t count = p->shape[last] - at[last];
            if (count > ROW_GROUP - in_group) count = ROW_GROUP - in_group;
            fold_rows(job, x, n, count, p->step[last], sums);
            in_group += count, r += count, x += count * p->step[last], at[last] += count;
            for (int d = last; d > 0 && at[d] == p->shape[d]; d--) {
                x += p->step[d - 1] - at[d] * p->step[d];
                at[d] = 0;
                at[d - 1]++;
            }
        }
        if (sums == group) join(total, group, n, 1, 0, job->num);
    }
    repeat(job, total, n);
    for (int64_t i = 0; i < n && !job->plain; i++) {
        Accumulator acc;
        memcpy(&acc, total + i * acc_item, (size_t)acc_item);
        finish(job, in + i * p->kept_in[inner], &acc, false);
        memcpy(total + i * acc_item, &acc, (size_t)acc_item);
    }
    amp_convert(job->kernel.acc, total, acc_item, p->out_dtype, out, p->kept_out[inner], n);
}

/* Columns do not depend on each other: narrower strips only mean that more threads can share them. */
static int64_t strip_width(const ReducePlan *p) {
    int64_t width = p->kept_shape[p->nkept - 1] / 4 / 64 * 64;
    return width < 256 ? 256 : width > AMP_STRIP ? AMP_STRIP : width;
}
static int64_t strips_per_run(const ReducePlan *p) { return (p->kept_shape[p->nkept - 1] + strip_width(p) - 1) / strip_width(p); }

static void along_columns(void *context, int64_t begin, int64_t end) {
    const Job *job = context;
    const ReducePlan *p = job->plan;
    int64_t width = p->kept_shape[p->nkept - 1], strips = strips_per_run(p), strip = strip_width(p);
    for (int64_t s = begin; s < end; s++) {
        int64_t first = s % strips * strip, n = width - first < strip ? width - first : strip;
        const char *in;
        char *out;
        locate(p, s / strips * width + first, &in, &out);
        reduce_strip(job, in, out, n);
    }
}

static void run_job(Job *job) {
    const ReducePlan *p = job->plan;
    int64_t inner_kept = magnitude(p->kept_in[p->nkept - 1]), inner_reduced = magnitude(p->step[p->nreduced - 1]);
    bool columns = p->kept_shape[p->nkept - 1] >= 4 && (p->reduced == 1 || inner_kept < inner_reduced) && p->reduced > 0 &&
                   job->fold != FOLD_DEVIATION;
    if (columns) {
        int64_t strips = p->kept / p->kept_shape[p->nkept - 1] * strips_per_run(p), work = p->reduced * strip_width(p);
        amp_parallel_for(strips, GRAIN / work + 1, along_columns, job);
    } else if (p->kept < 8) {
        for (int64_t i = 0; i < p->kept; i++) {
            const char *in;
            char *out;
            locate(p, i, &in, &out);
            Accumulator acc = one_value(job, in, true);
            amp_convert(job->kernel.acc, (const char *)&acc, 0, p->out_dtype, out, 0, 1);
        }
    } else {
        amp_parallel_for(p->kept, GRAIN / (p->reduced + 1) + 1, along_rows, job);
    }
}

/* Reduced dimensions along which a value only repeats are not walked; the product of their sizes. */
static int64_t drop_repeats(ReducePlan *p) {
    int64_t repeats = 1;
    int nd = 0;
    for (int d = 0; d < p->nreduced; d++) {
        if (p->step[d] == 0 && p->shape[d] > 0) {
            repeats *= p->shape[d];
            p->reduced /= p->shape[d];
            continue;
        }
        p->shape[nd] = p->shape[d];
        p->step[nd++] = p->step[d];
    }
    if (nd == 0) nd = 1, p->shape[0] = 1, p->step[0] = 0;
    p->nreduced = nd;
    return repeats;
}

/* The format in which sums, products and norms read their input: the result's kind decides. */
static int load_dtype(int in, int out) {
    int compute = amp_compute_dtype(out);
    if (compute == AMP_FLOAT32 || compute == AMP_FLOAT64) return amp_compute_dtype(in) == AMP_FLOAT32 ? AMP_FLOAT32 : AMP_FLOAT64;
    return compute;
}

static Fold norm_fold(double order) {
    if (order == (double)INFINITY) return FOLD_ABS_MAX;
    if (order == -(double)INFINITY) return FOLD_ABS_MIN;
    return order == 0 ? FOLD_COUNT : order == 1 ? FOLD_ABS_SUM : order == 2 ? FOLD_SQUARES : FOLD_POWERS;
}

Status amp_reduce(const Call *call) {
    const View *in = call->in[0], *out = call->out[0];
    Job job = {.op = call->op, .num = {1, 1}, .repeats = 1};
    bool needs_element = false;
    switch (call->op) {
    case OP_argmax:
    case OP_argmin:
    case OP_max_dim:
    case OP_min_dim: return amp_reduce_index(call);
    case OP_sum:
    case OP_sum_dim:
    case OP_mean:
    case OP_mean_dim: job.fold = FOLD_SUM; break;
    case OP_prod:
    case OP_prod_dim: job.fold = FOLD_PROD; break;
    case OP_max:
    case OP_amax: job.fold = FOLD_MAX; break;
    case OP_min:
    case OP_amin: job.fold = FOLD_MIN; break;
    case OP_any:
    case OP_any_dim:
    case OP_all:
    case OP_all_dim:
    case OP_count_nonzero: job.fold = FOLD_COUNT; break;
    case OP_var:
    case OP_var_unbiased:
    case OP_var_dim:
    case OP_std:
    case OP_std_unbiased:
    case OP_std_dim:
        job.fold = FOLD_DEVIATION;
        job.correction = call->nnum > 0 && call->num[0].kind != NUMBER_NONE ? call->num[0].f : 1;
        break;
    case OP_vector_norm:
        job.order = call->nnum > 0 && call->num[0].kind != NUMBER_NONE ? call->num[0].f : 2;
        job.fold = norm_fold(job.order);
        job.num[1] = job.order;
        needs_element = job.order == -(double)INFINITY;
        break;
    default: return AMP_NO_KERNEL;
    }
    needs_element = needs_element || job.fold == FOLD_MAX || job.fold == FOLD_MIN;
    job.load = job.fold == FOLD_COUNT || job.fold == FOLD_MAX || job.fold == FOLD_MIN ? amp_compute_dtype(in->dtype)
                                                                                      : load_dtype(in->dtype, out->dtype);
    if (job.load == amp_compute_dtype(in->dtype) && amp_fold_kernel(job.fold, in->dtype).acc) job.load = in->dtype;
    /* dtype=float64 asks for float64 all the way. */
    bool wide = job.fold == FOLD_SUM && out->dtype == AMP_FLOAT64 && amp_fold_kernel(FOLD_SUM_WIDE, job.load).acc;
    job.kernel = amp_fold_kernel(wide ? FOLD_SUM_WIDE : job.fold, job.load);
    if (!job.kernel.acc) return AMP_BAD_DTYPE;
    if (out->numel == 0) return AMP_OK;
    ReducePlan plan;
    amp_reduce_plan(&plan, call, false);
    if (needs_element && plan.reduced == 0) return AMP_EMPTY_REDUCE;
    job.plain = job.fold == FOLD_MAX || job.fold == FOLD_MIN || job.fold == FOLD_PROD || call->op == OP_sum ||
                call->op == OP_sum_dim;
    bool extreme = job.fold == FOLD_MAX || job.fold == FOLD_MIN;
    if ((extreme || job.fold == FOLD_SUM || job.fold == FOLD_COUNT) && plan.reduced > 0) {
        int64_t repeats = drop_repeats(&plan);
        job.repeats = extreme ? 1 : repeats;
    }
    job.plan = &plan;
    run_job(&job);
    return AMP_OK;
}
