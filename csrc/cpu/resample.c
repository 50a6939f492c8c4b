/* The resample slot: separable linear maps of planes (D, H, W): interpolation, padding that repeats the input, and their transposes.
 *
 * With weights a plane is carried through float64, one dimension after the other, the last first:
 *
 *     (D, H, W)  ->  (D, H, W')  ->  (D, H', W')  ->  (D', H', W')
 *
 * Weights of zero take no part, so that an infinite neighbour which counts for nothing makes no NaN. */
#include "vectorize.h"

#include <stdlib.h>
#include <string.h>

#include "cast.h"
#include "pooling.h"

enum { GRAIN = 4 * 1024 };

typedef struct Job {
    const ResamplePlan *plan;
    const View *in, *out;
    int64_t stage; /* the largest number of elements of a plane on its way */
    int no_memory;
} Job;

/* ---- copies ---- */

#define COPY_ROW(T) \
    for (int64_t i = 0; i < n; i++) *(T *)(void *)(to + i * step) = *(const T *)(const void *)(from + index[i] * from_step);

static void copy_row(size_t item, const char *from, int64_t from_step, const int64_t *index, char *to, int64_t step, int64_t n) {
    switch (item) {
    case 1: COPY_ROW(U8) break;
    case 2: COPY_ROW(U16) break;
    case 4: COPY_ROW(I32) break;
    case 8: COPY_ROW(I64) break;
    default:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * step, from + index[i] * from_step, item);
    }
}

static void copy_planes(void *context, int64_t begin, int64_t end) {
    const Job *job = context;
    const View *in = job->in, *out = job->out;
    const ResampleDim *dim = job->plan->dim;
    int64_t item = (int64_t)amp_itemsize(in->dtype), width = dim[2].out;
    for (int64_t i = begin; i < end; i++) {
        char *from = amp_plane_at(in, i), *to = amp_plane_at(out, i);
        for (int64_t z = 0; z < dim[0].out; z++)
            for (int64_t y = 0, last = -1; y < dim[1].out; y++) {
                int64_t row = dim[1].index[y];
                char *place = to + (z * out->stride[2] + y * out->stride[3]) * item;
                if (row == last && out->stride[4] == 1) {
                    memcpy(place, place - out->stride[3] * item, (size_t)(width * item));
                } else {
                    const char *source = from + (dim[0].index[z] * in->stride[2] + row * in->stride[3]) * item;
                    copy_row((size_t)item, source, in->stride[4] * item, dim[2].index, place, out->stride[4] * item, width);
                }
                last = row;
            }
    }
}

/* ---- weighted sums ---- */

static double weight_of(const ResampleDim *dim, int64_t k) { return dim->weight ? dim->weight[k] : 1.0; }

/* Along the last dimension of `rows` rows. */
static void along_rows(const ResampleDim *dim, int64_t rows, const F64 *x, F64 *o) {
    for (int64_t r = 0; r < rows; r++, x += dim->in, o += dim->out)
        for (int64_t i = 0; i < dim->out; i++) {
            double sum = 0;
            for (int64_t k = i * dim->taps; k < (i + 1) * dim->taps; k++) {
                double w = weight_of(dim, k);
                if (w != 0) sum += w * x[dim->index[k]];
            }
            o[i] = sum;
        }
}

static void along_rows_transposed(const ResampleDim *dim, int64_t rows, const F64 *g, F64 *o) {
    memset(o, 0, (size_t)(rows * dim->in) * sizeof *o);
    for (int64_t r = 0; r < rows; r++, g += dim->out, o += dim->in)
        for (int64_t i = 0; i < dim->out; i++)
            for (int64_t k = i * dim->taps; k < (i + 1) * dim->taps; k++) {
                double w = weight_of(dim, k);
                if (w != 0) o[dim->index[k]] += w * g[i];
            }
}

/* Along a dimension with `inner` elements behind it, of which whole rows take part. */
static void across_rows(const ResampleDim *dim, bool transposed, int64_t outer, int64_t inner, const F64 *x, F64 *o) {
    int64_t from = transposed ? dim->out : dim->in, to = transposed ? dim->in : dim->out;
    memset(o, 0, (size_t)(outer * to * inner) * sizeof *o);
    for (int64_t a = 0; a < outer; a++, x += from * inner, o += to * inner)
        for (int64_t i = 0; i < dim->out; i++)
            for (int64_t k = i * dim->taps; k < (i + 1) * dim->taps; k++) {
                double w = weight_of(dim, k);
                const F64 *row = x + (transposed ? i : dim->index[k]) * inner;
                F64 *sums = o + (transposed ? dim->index[k] : i) * inner;
                if (w == 0) continue;
                IVDEP for (int64_t j = 0; j < inner; j++) sums[j] += w * row[j];
            }
}

static void weigh_planes(void *context, int64_t begin, int64_t end) {
    Job *job = context;
    bool transposed = job->plan->transposed;
    double *buffer = malloc((size_t)job->stage * 2 * sizeof *buffer);
    if (!buffer) {
        __atomic_store_n(&job->no_memory, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        double *next = buffer, *spare = buffer + job->stage;
        const F64 *x = (F64 *)(void *)amp_plane_read(job->in, i, AMP_FLOAT64, (char *)next);
        int64_t size[3] = {job->in->shape[2], job->in->shape[3], job->in->shape[4]};
        if (x == next) next = spare, spare = buffer;
        for (int d = 2; d >= 0; d--) {
            const ResampleDim *dim = &job->plan->dim[d];
            int64_t outer = d == 0 ? 1 : d == 1 ? size[0] : size[0] * size[1];
            int64_t inner = d == 2 ? 1 : d == 1 ? size[2] : size[1] * size[2];
            if (dim->in == 1 && dim->out == 1 && !dim->weight) continue;
            if (inner != 1) across_rows(dim, transposed, outer, inner, x, next);
            else if (transposed) along_rows_transposed(dim, outer, x, next);
            else along_rows(dim, outer, x, next);
            size[d] = transposed ? dim->in : dim->out;
            double *done = next;
            x = done, next = spare, spare = done;
        }
        amp_plane_write(job->out, i, AMP_FLOAT64, (const char *)x);
    }
    free(buffer);
}

/* The transpose of a copy of rows: gradients of a row are summed where neighbours come from one element, then added to its row. */
static void add_planes(void *context, int64_t begin, int64_t end) {
    Job *job = context;
    const ResampleDim *dim = job->plan->dim;
    const View *in = job->in;
    const int64_t wide = dim[2].out, width = dim[2].in, item = (int64_t)amp_itemsize(in->dtype), pixels = dim[1].in * width;
    const int64_t *index = dim[2].index;
    double *line = malloc((size_t)(wide + width + pixels) * sizeof *line), *sums = line + wide, *plane = sums + width;
    if (!line) {
        __atomic_store_n(&job->no_memory, 1, __ATOMIC_RELAXED);
        return;
    }
    memset(sums, 0, (size_t)width * sizeof *sums); /* what no element comes from stays 0 */
    for (int64_t i = begin; i < end; i++) {
        const char *from = amp_plane_at(in, i);
        memset(plane, 0, (size_t)pixels * sizeof *plane);
        for (int64_t y = 0; y < dim[1].out; y++) {
            double *row = plane + dim[1].index[y] * width;
            amp_convert(in->dtype, from + y * in->stride[3] * item, in->stride[4] * item, AMP_FLOAT64, (char *)line, sizeof *line,
                        wide);
            for (int64_t x = 0; x < wide;) {
                const int64_t to = index[x];
                double sum = line[x++];
                while (x < wide && index[x] == to) sum += line[x++];
                sums[to] = sum;
            }
            IVDEP for (int64_t x = 0; x < width; x++) row[x] += sums[x];
        }
        amp_plane_write(job->out, i, AMP_FLOAT64, (const char *)plane);
    }
    free(line);
}

/* Whether equal indices are neighbours. */
static bool ascends(const ResampleDim *dim) {
    for (int64_t i = 1; i < dim->out; i++)
        if (dim->index[i] < dim->index[i - 1]) return false;
    return true;
}

/* Sizes are those of tensors that exist, or lie between them dimension by dimension; the product may still be too large. */
static bool set_stage(Job *job) {
    int64_t size[3] = {job->in->shape[2], job->in->shape[3], job->in->shape[4]};
    job->stage = size[0] * size[1] * size[2];
    for (int d = 2; d >= 0; d--) {
        size[d] = job->out->shape[2 + d];
        int64_t n = amp_numel(3, size);
        if (n < 0 || n > INT64_MAX / 16) return false;
        if (n > job->stage) job->stage = n;
    }
    return true;
}

Status amp_resample(const Call *call) {
    Job job = {.plan = call->extra, .in = call->in[0], .out = call->out[0], .no_memory = 0};
    const ResampleDim *dim = job.plan->dim;
    bool copies = true;
    if (job.out->numel == 0) return AMP_OK;
    for (int d = 0; d < 3; d++) copies = copies && !dim[d].weight && dim[d].taps == 1;
    bool adds = copies && job.plan->transposed && dim[0].in == 1 && dim[0].out == 1 && ascends(&dim[2]);
    copies = copies && !job.plan->transposed;
    if (!copies && (amp_is_complex(job.in->dtype) || amp_compute_dtype(job.in->dtype) == AMP_INT64)) return AMP_BAD_DTYPE;
    if (!set_stage(&job)) return AMP_NO_MEMORY;
    amp_parallel_for(amp_planes(job.out), GRAIN / job.stage + 1, copies ? copy_planes : adds ? add_planes : weigh_planes, &job);
    return job.no_memory ? AMP_NO_MEMORY : AMP_OK;
}
