/* Positions of extremes: argmax, argmin and the (values, indices) pair of max and min along a dimension. The first occurrence wins; NaN
 * is larger and smaller than everything. */
#include "cast.h"
#include "reduce.h"

typedef struct Search {
    const ReducePlan *plan;
    FoldKernel kernel;
    int load, value_dtype, index_dtype;
    bool max, with_value;
} Search;

static double as_f64(const char *x, int load) {
    if (load == AMP_FLOAT32) {
        float f;
        memcpy(&f, x, sizeof f);
        return (double)f;
    }
    double d;
    memcpy(&d, x, sizeof d);
    return d;
}
static int64_t as_i64(const char *x) {
    int64_t i;
    memcpy(&i, x, sizeof i);
    return i;
}

/* a beats b; equal values do not, so that the first stays. */
static bool beats(const Search *s, const char *a, const char *b) {
    if (s->load == AMP_INT64) return s->max ? as_i64(a) > as_i64(b) : as_i64(a) < as_i64(b);
    double x = as_f64(a, s->load), y = as_f64(b, s->load);
    if (x != x || y != y) return x != x && y == y;
    return s->max ? x > y : x < y;
}
static bool same(const Search *s, const char *a, const char *b) {
    if (s->load == AMP_INT64) return as_i64(a) == as_i64(b);
    double x = as_f64(a, s->load), y = as_f64(b, s->load);
    return x == y || (x != x && y != y);
}

/* The winner among the reduced elements from `base`: its value in `best`, its position returned. Each strip is first reduced by the
 * vector kernel; only a strip with a new best value is searched. */
static int64_t search(const Search *s, const char *base, char *best) {
    const ReducePlan *p = s->plan;
    int64_t at[AMP_MAX_DIMS] = {0}, position = 0, winner = 0, item = (int64_t)amp_itemsize(s->load),
            length = p->shape[p->nreduced - 1];
    int64_t step = p->step[p->nreduced - 1];
    const char *x = base;
    _Alignas(64) char strip[AMP_STRIP * AMP_MAX_ITEM], top[AMP_MAX_ITEM];
    while (position < p->reduced) {
        for (int64_t i = 0; i < length; i += AMP_STRIP) {
            int64_t n = length - i < AMP_STRIP ? length - i : AMP_STRIP;
            amp_convert(p->in_dtype, x + i * step, step, s->load, strip, item, n);
            memcpy(top, strip, (size_t)item);
            s->kernel.fold(top, strip, n, NULL);
            if ((position || i) && !beats(s, top, best)) continue;
            int64_t k = 0;
            while (!same(s, strip + k * item, top)) k++;
            memcpy(best, top, (size_t)item);
            winner = position + i + k;
        }
        position += length;
        for (int d = p->nreduced - 2; d >= 0; d--) {
            x += p->step[d];
            if (++at[d] < p->shape[d]) break;
            x -= at[d] * p->step[d];
            at[d] = 0;
        }
    }
    return winner;
}

static void search_range(void *context, int64_t begin, int64_t end) {
    const Search *s = context;
    const ReducePlan *p = s->plan;
    for (int64_t i = begin; i < end; i++) {
        const char *in = p->in;
        char *out = p->out, *out2 = p->out2;
        int64_t rest = i;
        for (int d = p->nkept - 1; d >= 0; d--) {
            int64_t at = rest % p->kept_shape[d];
            rest /= p->kept_shape[d];
            in += at * p->kept_in[d], out += at * p->kept_out[d];
            if (out2) out2 += at * p->kept_out2[d];
        }
        _Alignas(16) char best[AMP_MAX_ITEM];
        int64_t winner = search(s, in, best);
        if (s->with_value) amp_convert(s->load, best, 0, s->value_dtype, out, 0, 1);
        char *index = s->with_value ? out2 : out;
        if (index) amp_convert(AMP_INT64, (const char *)&winner, 0, s->index_dtype, index, 0, 1);
    }
}

Status amp_reduce_index(const Call *call) {
    ReducePlan plan;
    Search s = {.plan = &plan, .load = amp_compute_dtype(call->in[0]->dtype)};
    s.max = call->op == OP_argmax || call->op == OP_max_dim;
    s.with_value = call->op == OP_max_dim || call->op == OP_min_dim;
    s.kernel = amp_fold_kernel(s.max ? FOLD_MAX : FOLD_MIN, s.load);
    s.value_dtype = call->out[0]->dtype;
    s.index_dtype = s.with_value ? (call->nout > 1 ? call->out[1]->dtype : AMP_INT64) : call->out[0]->dtype;
    if (!s.kernel.acc) return AMP_BAD_DTYPE;
    if (call->out[0]->numel == 0) return AMP_OK;
    amp_reduce_plan(&plan, call, true);
    if (plan.reduced == 0) return AMP_EMPTY_REDUCE;
    amp_parallel_for(plan.kept, 16 * 1024 / plan.reduced + 1, search_range, &s);
    return AMP_OK;
}
