/* The pool slot: one plane at a time, in float32, float64 or int64. Planes that are stored otherwise are converted first.
 *
 * Gradients and sums run in float64: a position may belong to many windows, and a window may be the whole plane. */
#include "vectorize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cast.h"
#include "pooling.h"

enum { GRAIN = 8 * 1024, LANES = 4 };

/* ---- planes ---- */

bool amp_plane_is_dense(const View *v) {
    int64_t step = 1;
    for (int d = 4; d >= 2; d--) {
        if (v->shape[d] != 1 && v->stride[d] != step) return false;
        step *= v->shape[d];
    }
    return true;
}

/* All rows of a plane of a view, to or from a dense array. */
static void convert_plane(const View *v, int64_t plane, int dtype, char *dense, bool write) {
    int64_t item = (int64_t)amp_itemsize(v->dtype), own = (int64_t)amp_itemsize(dtype), width = v->shape[4];
    char *base = amp_plane_at(v, plane);
    if (amp_plane_is_dense(v)) {
        int64_t n = amp_plane_size(v);
        if (write) amp_convert(dtype, dense, own, v->dtype, base, item, n);
        else amp_convert(v->dtype, base, item, dtype, dense, own, n);
        return;
    }
    for (int64_t z = 0; z < v->shape[2]; z++)
        for (int64_t y = 0; y < v->shape[3]; y++, dense += width * own) {
            char *row = base + (z * v->stride[2] + y * v->stride[3]) * item;
            if (write) amp_convert(dtype, dense, own, v->dtype, row, v->stride[4] * item, width);
            else amp_convert(v->dtype, row, v->stride[4] * item, dtype, dense, own, width);
        }
}

char *amp_plane_place(const View *v, int64_t i, int dtype, char *buffer) {
    return v->dtype == dtype && amp_plane_is_dense(v) ? amp_plane_at(v, i) : buffer;
}

char *amp_plane_read(const View *v, int64_t i, int dtype, char *buffer) {
    char *place = amp_plane_place(v, i, dtype, buffer);
    if (place == buffer) convert_plane(v, i, dtype, buffer, false);
    return place;
}

void amp_plane_write(const View *v, int64_t i, int dtype, const char *from) {
    if (from != amp_plane_at(v, i)) convert_plane(v, i, dtype, (char *)from, true);
}

/* ---- one plane ---- */

/* The windows of one plane: those of the plan, or the plane's own. */
typedef struct Windows {
    const PoolPlan *plan;
    const int64_t *first[3], *count[3], *divide[3];
} Windows;

static void windows_of(Windows *w, const PoolPlan *plan, int64_t plane) {
    w->plan = plan;
    for (int d = 0; d < 3; d++) {
        const PoolDim *dim = &plan->dim[d];
        int64_t skip = plan->per_plane && dim->in > 1 ? plane * dim->out : 0; /* size 1: all planes have the same window */
        w->first[d] = dim->first + skip, w->count[d] = dim->count + skip;
        w->divide[d] = dim->divide ? dim->divide : w->count[d];
    }
}

/* A double: the product of three sizes may leave int64. */
static double divisor_of(const Windows *w, int64_t z, int64_t y, int64_t x) {
    double n = (double)w->divide[0][z] * (double)w->divide[1][y] * (double)w->divide[2][x];
    n = w->plan->divisor ? (double)w->plan->divisor : n;
    return n == 0 ? 1 : n;
}

#define FOR_EACH_WINDOW \
    const PoolDim *dim = w->plan->dim; \
    int64_t at = 0, height = dim[1].in, width = dim[2].in; \
    for (int64_t oz = 0; oz < dim[0].out; oz++) \
        for (int64_t oy = 0; oy < dim[1].out; oy++) \
            for (int64_t ox = 0; ox < dim[2].out; ox++, at++)
/* Runs over the rows of the window at hand: `start` is the position of the row's first element, `n` the number of elements. */
#define FOR_EACH_ROW \
    int64_t n = w->count[2][ox]; \
    for (int64_t kz = 0; kz < w->count[0][oz]; kz++) \
        for (int64_t ky = 0, \
                     start = ((w->first[0][oz] + kz * dim[0].step) * height + w->first[1][oy]) * width + w->first[2][ox]; \
             ky < w->count[1][oy]; ky++, start += dim[1].step * width)

/* SUM: what is added up in. LEAST: the largest of no values. SHARE: a sum divided by a count. */
#define BODIES(K, T, REAL, SUM, LEAST, SHARE) \
    static REAL max_one_##K(const Windows *w, const T *x, int64_t oz, int64_t oy, int64_t ox, int64_t *position) { \
        const PoolDim *dim = w->plan->dim; \
        int64_t height = dim[1].in, width = dim[2].in; \
        bool any = w->count[0][oz] > 0 && w->count[1][oy] > 0 && w->count[2][ox] > 0; \
        int64_t best_at = any ? (w->first[0][oz] * height + w->first[1][oy]) * width + w->first[2][ox] : 0; \
        REAL best = any ? x[best_at] : LEAST; \
        FOR_EACH_ROW { \
            for (int64_t k = 0, p = start; k < n; k++, p += dim[2].step) { \
                REAL v = x[p]; \
                int64_t take = -(int64_t)((v > best) | (v != v)); /* all bits or none: no branch to mispredict */ \
                best_at ^= (best_at ^ p) & take; \
                best = x[best_at]; \
            } \
        } \
        *position = best_at; \
        return best; \
    } \
    static void max_##K(const Windows *w, const char *in, char *out, I64 *index) { \
        const PoolDim *dim = w->plan->dim; \
        const T *x = (const T *)(const void *)in; \
        T *o = (T *)(void *)out; \
        int64_t at = 0, position; \
        for (int64_t oz = 0; oz < dim[0].out; oz++) \
            for (int64_t oy = 0; oy < dim[1].out; oy++) \
                for (int64_t ox = 0; ox < dim[2].out; ox++, at++) { \
                    o[at] = max_one_##K(w, x, oz, oy, ox, &position); \
                    if (index) index[at] = position; \
                } \
    } \
    /* Long rows in LANES sums, which do not wait for each other. */ \
    static SUM sum_##K(const T *x, int64_t n) { \
        SUM lane[LANES] = {0}, rest = 0; \
        int64_t i = 0; \
        for (; i + LANES <= n; i += LANES) \
            for (int l = 0; l < LANES; l++) lane[l] += (SUM)x[i + l]; \
        for (; i < n; i++) rest += (SUM)x[i]; \
        return n < LANES ? rest : rest + ((lane[0] + lane[2]) + (lane[1] + lane[3])); \
    } \
    static void average_##K(const Windows *w, const char *in, char *out) { \
        const T *x = (const T *)(const void *)in; \
        T *o = (T *)(void *)out; \
        FOR_EACH_WINDOW { \
            SUM sum = 0; \
            FOR_EACH_ROW sum += sum_##K(x + start, n); \
            o[at] = (REAL)SHARE(sum, divisor_of(w, oz, oy, ox)); \
        } \
    } \
    static void spread_##K(const Windows *w, const char *in, void *to) { \
        const T *g = (const T *)(const void *)in; \
        SUM *sums = to; \
        FOR_EACH_WINDOW { \
            SUM part = (SUM)SHARE((SUM)g[at], divisor_of(w, oz, oy, ox)); \
            FOR_EACH_ROW { \
                for (int64_t k = 0; k < n; k++) sums[start + k] += part; \
            } \
        } \
    } \
    static bool place_##K(const char *in, const I64 *index, int64_t n, bool add, void *to, int64_t size) { \
        const T *g = (const T *)(const void *)in; \
        SUM *sums = to; \
        for (int64_t i = 0; i < n; i++) { \
            if (index[i] < 0 || index[i] >= size) return false; \
            sums[index[i]] = (add ? sums[index[i]] : 0) + (SUM)g[i]; \
        } \
        return true; \
    } \
    static const Bodies bodies_##K = {max_##K, average_##K, spread_##K, place_##K};

typedef struct Bodies {
    void (*max)(const Windows *w, const char *in, char *out, I64 *index);
    void (*average)(const Windows *w, const char *in, char *out);
    void (*spread)(const Windows *w, const char *in, void *sums);
    bool (*place)(const char *in, const I64 *index, int64_t n, bool add, void *sums, int64_t size);
} Bodies;

static double share_float(double sum, double n) { return sum / n; }
static int64_t share_int(uint64_t sum, double n) {
    if (n == -1) return (int64_t)(0 - sum); /* the one quotient that may not fit */
    return fabs(n) < 0x1p53 ? (int64_t)sum / (int64_t)n : 0;
}
BODIES(f32, F32, float, double, -INFINITY, share_float)
BODIES(f64, F64, double, double, -(double)INFINITY, share_float)
BODIES(i64, I64, int64_t, uint64_t, INT64_MIN, share_int) /* wraps */

/* ---- the largest of four windows at once ---- */

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourInts __attribute__((vector_size(16)));

/* The four windows from ox on are as wide as each other, not empty, and equally far apart: *apart elements. */
static bool four_alike(const Windows *w, int64_t ox, int64_t *apart) {
    const int64_t *first = w->first[2] + ox, *count = w->count[2] + ox;
    const int64_t step = first[1] - first[0];
    *apart = step;
    return count[0] > 0 && ((count[1] ^ count[0]) | (count[2] ^ count[0]) | (count[3] ^ count[0])) == 0 &&
           first[2] - first[1] == step && first[3] - first[2] == step;
}

static void max_four(const Windows *w, const F32 *x, F32 *o, I64 *index, int64_t oz, int64_t oy, int64_t ox, int64_t apart) {
    const PoolDim *dim = w->plan->dim;
    const int64_t height = dim[1].in, width = dim[2].in;
    const int64_t begin = (w->first[0][oz] * height + w->first[1][oy]) * width + w->first[2][ox];
    const int32_t gap = (int32_t)apart;
    const FourInts spread = {0, gap, 2 * gap, 3 * gap};
    Four best = {x[begin], x[begin + apart], x[begin + 2 * apart], x[begin + 3 * apart]};
    FourInts best_at = (int32_t)begin + spread;
    FOR_EACH_ROW {
        for (int64_t k = 0, p = start; k < n; k++, p += dim[2].step) {
            Four v = {x[p], x[p + apart], x[p + 2 * apart], x[p + 3 * apart]};
            FourInts take = (v > best) | (v != v);
            best = (Four)(((FourInts)v & take) | ((FourInts)best & ~take));
            best_at = (((int32_t)p + spread) & take) | (best_at & ~take);
        }
    }
    for (int i = 0; i < 4; i++) o[i] = best[i];
    for (int i = 0; index && i < 4; i++) index[i] = best_at[i];
}

/* max_f32, where positions fit 32 bits. */
static void max_by_fours(const Windows *w, const char *in, char *out, I64 *index) {
    const F32 *x = (const F32 *)(const void *)in;
    F32 *o = (F32 *)(void *)out;
    const PoolDim *dim = w->plan->dim;
    if ((double)dim[0].in * (double)dim[1].in * (double)dim[2].in > INT32_MAX) {
        max_f32(w, in, out, index);
        return;
    }
    for (int64_t oz = 0, at = 0; oz < dim[0].out; oz++)
        for (int64_t oy = 0; oy < dim[1].out; oy++) {
            const bool rows = w->count[0][oz] > 0 && w->count[1][oy] > 0;
            for (int64_t ox = 0, done; ox < dim[2].out; ox += done, at += done) {
                int64_t apart, position;
                if (rows && ox + 4 <= dim[2].out && four_alike(w, ox, &apart)) {
                    max_four(w, x, o + at, index ? index + at : NULL, oz, oy, ox, apart);
                    done = 4;
                    continue;
                }
                o[at] = max_one_f32(w, x, oz, oy, ox, &position);
                if (index) index[at] = position;
                done = 1;
            }
        }
}

/* ---- the slot ---- */

typedef struct Job {
    const PoolPlan *plan;
    const View *in, *index, *out, *out_index; /* index: input of the kinds that write at positions */
    const Bodies *bodies;
    int type, sum_type; /* of one value; of sums */
    int status;
} Job;

static void fail(Job *job, Status status) { __atomic_store_n(&job->status, (int)status, __ATOMIC_RELAXED); }

/* Room for a plane of `v` in `dtype`; 0 where the memory itself serves. */
static size_t room(const View *v, int dtype, bool needed) {
    bool direct = !v || (!needed && v->dtype == dtype && amp_plane_is_dense(v));
    return direct ? 0 : ((size_t)amp_plane_size(v) * amp_itemsize(dtype) + 63) / 64 * 64;
}

static bool one_plane(const Job *job, int64_t i, char *in_buffer, char *out_buffer, char *index_buffer) {
    const PoolPlan *plan = job->plan;
    const char *in = amp_plane_read(job->in, i, job->type, in_buffer);
    Windows w;
    if (plan->kind == POOL_ADD_AT || plan->kind == POOL_PUT_AT) {
        int64_t size = amp_plane_size(job->out), n = amp_plane_size(job->in);
        const char *index = amp_plane_read(job->index, i, AMP_INT64, index_buffer);
        memset(out_buffer, 0, (size_t)size * amp_itemsize(job->sum_type));
        if (!job->bodies->place(in, (const I64 *)(const void *)index, n, plan->kind == POOL_ADD_AT, out_buffer, size))
            return false;
        amp_plane_write(job->out, i, job->sum_type, out_buffer);
        return true;
    }
    windows_of(&w, plan, i);
    if (plan->kind == POOL_AVERAGE_GRAD) {
        memset(out_buffer, 0, (size_t)amp_plane_size(job->out) * amp_itemsize(job->sum_type));
        job->bodies->spread(&w, in, out_buffer);
        amp_plane_write(job->out, i, job->sum_type, out_buffer);
        return true;
    }
    char *out = amp_plane_place(job->out, i, job->type, out_buffer);
    if (plan->kind == POOL_MAX) {
        I64 *index = NULL;
        if (job->out_index) index = (I64 *)(void *)amp_plane_place(job->out_index, i, AMP_INT64, index_buffer);
        (job->bodies == &bodies_f32 ? max_by_fours : job->bodies->max)(&w, in, out, index);
        if (index) amp_plane_write(job->out_index, i, AMP_INT64, (const char *)index);
    } else {
        job->bodies->average(&w, in, out);
    }
    amp_plane_write(job->out, i, job->type, out);
    return true;
}

static void planes(void *context, int64_t begin, int64_t end) {
    Job *job = context;
    bool sums = job->plan->kind >= POOL_AVERAGE_GRAD;
    size_t in = room(job->in, job->type, false), out = room(job->out, sums ? job->sum_type : job->type, sums);
    size_t index = room(job->index ? job->index : job->out_index, AMP_INT64, false);
    char *buffer = malloc(in + out + index + 1);
    if (!buffer) {
        fail(job, AMP_NO_MEMORY);
        return;
    }
    for (int64_t i = begin; i < end; i++)
        if (!one_plane(job, i, buffer, buffer + in, buffer + in + out)) {
            fail(job, AMP_BAD_POSITION);
            break;
        }
    free(buffer);
}

Status amp_pool(const Call *call) {
    const View *in = call->in[0], *out = call->out[0];
    Job job = {.plan = call->extra, .in = in, .index = call->in[1], .out = out, .status = AMP_OK};
    job.out_index = call->nout > 1 ? call->out[1] : NULL;
    job.type = amp_compute_dtype(in->dtype);
    job.sum_type = job.type == AMP_INT64 ? AMP_INT64 : AMP_FLOAT64;
    if (job.type == AMP_COMPLEX128) return AMP_BAD_DTYPE;
    job.bodies = job.type == AMP_FLOAT32 ? &bodies_f32 : job.type == AMP_FLOAT64 ? &bodies_f64 : &bodies_i64;
    if (out->numel == 0) return AMP_OK;
    int64_t work = amp_plane_size(in) > amp_plane_size(out) ? amp_plane_size(in) : amp_plane_size(out);
    amp_parallel_for(amp_planes(out), GRAIN / (work + 1) + 1, planes, &job);
    return (Status)job.status;
}
