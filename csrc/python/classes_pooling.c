/* Pooling: shapes and windows; one kernel call each. */
#include <string.h>

#include "../core/autocast.h"
#include "classes_pooling.h"
#include "node.h"

/* ---- spatial arguments ---- */

void plane_view(PlaneView *p, const Tensor *t, int nd) {
    const View *v = &t->v;
    int lead = v->ndim - nd;
    p->v = *v;
    p->v.ndim = 5;
    p->v.shape = p->shape;
    p->v.stride = p->stride;
    p->v.layout = 0;
    for (int d = 0; d < 5; d++) {
        p->shape[d] = 1;
        p->stride[d] = 0;
    }
    for (int d = 0; d < v->ndim; d++) {
        int to = d < lead ? 2 - lead + d : 5 - nd + d - lead;
        p->shape[to] = v->shape[d];
        p->stride[to] = v->stride[d];
    }
}

PyObject *sizes_text(int n, const int64_t *size) {
    PyObject *tuple = size_from_dims(n, size), *list = tuple ? PySequence_List(tuple) : NULL;
    PyObject *text = list ? PyObject_Str(list) : NULL;
    Py_XDECREF(tuple);
    Py_XDECREF(list);
    return text;
}

Tensor *result_planes(OpCall *c, int i, const Tensor *t, int nd, const int64_t *size, int dtype) {
    int64_t shape[5];
    int lead = t->v.ndim - nd;
    memcpy(shape, t->v.shape, (size_t)lead * sizeof *shape);
    memcpy(shape + lead, size, (size_t)nd * sizeof *shape);
    return result_new(c, i, t->v.ndim, shape, dtype, t->v.device, ALIAS_NEVER);
}

int spatial_list(const OpCall *c, int index, int nd, int64_t *out, int64_t low) {
    static const char *const words[] = {"", "one int", "two ints", "three ints"};
    const Arg *a = &c->arg[index];
    const char *name = c->row->param[index].name;
    if (a->n != 1 && a->n != nd) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s must either be a single int, or a tuple of %s, but has %d entries", c->row->name,
                     name, words[nd], (int)a->n);
        return -1;
    }
    for (int d = 0; d < nd; d++) {
        out[d] = a->ints[a->n == 1 ? 0 : d];
        if (out[d] < low || out[d] > INT32_MAX) {
            bool pad = !strcmp(name, "padding");
            PyErr_Format(PyExc_RuntimeError, "%s: %s %s, but got %s: %lld", c->row->name, pad ? "pad" : name,
                         out[d] > INT32_MAX ? "must be below 2^31"
                         : low == 0         ? "must be non-negative"
                         : out[d] == 0      ? "should not be zero"
                                            : "should be greater than zero",
                         pad ? "pad" : name, (long long)out[d]);
            return -1;
        }
    }
    return 0;
}

int refuse_dtype(const OpCall *c, const Tensor *t, bool integers) {
    int dtype = t->v.dtype;
    if (dtype == AMP_BOOL || amp_is_complex(dtype) || (!integers && amp_is_integral(dtype))) {
        PyErr_Format(PyExc_NotImplementedError, "\"%s\" not implemented for '%s'. Convert the input with .float()", c->row->name,
                     amp_dtype_info[dtype].name);
        return -1;
    }
    return 0;
}

/* The number of spatial dimensions is the digit in the row's name. */
static int spatial_of(const OpCall *c) {
    const char *at = strpbrk(c->row->name, "123");
    return at ? *at - '0' : 0;
}

/* (C, ...) or (N, C, ...); only the batch may be empty. */
static int check_input(const OpCall *c, int nd) {
    const View *v = &c->arg[0].t->v;
    bool ok = v->ndim == nd + 1 || v->ndim == nd + 2;
    for (int d = v->ndim == nd + 2; ok && d < v->ndim; d++) {
        ok = v->shape[d] > 0;
    }
    if (!ok) {
        PyObject *text = sizes_text(v->ndim, v->shape);
        if (text) {
            PyErr_Format(PyExc_RuntimeError,
                         "%s: Expected %dD or %dD (batch mode) tensor with optional 0 dim batch size for input, but got:%U",
                         c->row->name, nd + 1, nd + 2, text);
        }
        Py_XDECREF(text);
        return -1;
    }
    return 0;
}

/* ---- windows ---- */

typedef struct Pool {
    int nd;
    int64_t in[AMP_MAX_SPATIAL], out[AMP_MAX_SPATIAL]; /* the op's own dimensions only */
    int64_t kernel[AMP_MAX_SPATIAL], stride[AMP_MAX_SPATIAL], pad[AMP_MAX_SPATIAL], dilation[AMP_MAX_SPATIAL];
    bool ceil_mode;
    PoolPlan plan;
    int64_t *room; /* the plan's arrays */
} Pool;

/* Arrays for `out` windows in each dimension, for each of `planes` if they differ; a missing dimension has one window of one. */
static int windows_new(Pool *p, int64_t planes) {
    static const int64_t zero = 0, one = 1;
    int64_t total = 0;
    for (int d = 0; d < p->nd; d++) {
        int64_t part[3] = {3, planes, p->out[d]}, n = amp_numel(3, part);
        total = n < 0 || total > INT64_MAX / 16 - n ? -1 : total + n;
        if (total < 0 || total > INT64_MAX / 16) {
            PyErr_NoMemory();
            return -1;
        }
    }
    p->room = PyMem_Malloc((size_t)total * sizeof *p->room + 1);
    if (!p->room) {
        PyErr_NoMemory();
        return -1;
    }
    int64_t *at = p->room;
    for (int d = 0; d < 3; d++) {
        PoolDim *dim = &p->plan.dim[d];
        int k = d - (3 - p->nd);
        if (k < 0) {
            *dim = (PoolDim){.in = 1, .out = 1, .step = 1, .first = &zero, .count = &one, .divide = &one};
            continue;
        }
        int64_t n = p->out[k] * planes;
        *dim = (PoolDim){.in = p->in[k], .out = p->out[k], .step = 1, .first = at, .count = at + n, .divide = at + 2 * n};
        at += 3 * n;
    }
    p->plan.per_plane = false;
    p->plan.divisor = 0;
    return 0;
}

/* The writable arrays of the op's dimension k. */
static int64_t *first_of(Pool *p, int k) { return (int64_t *)p->plan.dim[3 - p->nd + k].first; }
static int64_t *count_of(Pool *p, int k) { return (int64_t *)p->plan.dim[3 - p->nd + k].count; }
static int64_t *divide_of(Pool *p, int k) { return (int64_t *)p->plan.dim[3 - p->nd + k].divide; }

/* Windows that slide by stride over the padded input. Those parts that stand over it are cut off:
 *
 *     pad    input        ceil_mode
 *     . . | 0 1 2 3 4 | . .
 *     |_____|                        first = 0, count = 1; divide = 3 with the padding, 1 without
 *               |_____|
 *                         |_____|    only in ceil_mode, and only if it begins inside the input or its left padding */
static int sliding_windows(Pool *p, bool count_padding) {
    if (windows_new(p, 1) < 0) {
        return -1;
    }
    for (int d = 0; d < p->nd; d++) {
        int64_t *first = first_of(p, d), *count = count_of(p, d), *divide = divide_of(p, d), step = p->dilation[d];
        p->plan.dim[3 - p->nd + d].step = step;
        for (int64_t o = 0; o < p->out[d]; o++) {
            int64_t start = o * p->stride[d] - p->pad[d], skip = start < 0 ? (step - 1 - start) / step : 0;
            int64_t inside = start + skip * step < p->in[d] ? (p->in[d] - 1 - start - skip * step) / step + 1 : 0;
            int64_t left = p->kernel[d] > skip ? p->kernel[d] - skip : 0;
            first[o] = start + skip * step;
            count[o] = inside < left ? inside : left;
            int64_t with_padding = p->in[d] + p->pad[d] - start;
            divide[o] = !count_padding ? count[o] : with_padding < p->kernel[d] ? with_padding : p->kernel[d];
        }
    }
    return 0;
}

/* Output o covers floor(o in / out) .. ceil((o + 1) in / out) - 1. */
static int adaptive_windows(Pool *p) {
    if (windows_new(p, 1) < 0) {
        return -1;
    }
    for (int d = 0; d < p->nd; d++) {
        int64_t *first = first_of(p, d), *count = count_of(p, d);
        for (int64_t o = 0; o < p->out[d]; o++) {
            int64_t whole = p->in[d] / p->out[d], rest = p->in[d] % p->out[d]; /* o * in could overflow */
            int64_t end = (o + 1) * whole + ((o + 1) * rest + p->out[d] - 1) / p->out[d];
            first[o] = o * whole + o * rest / p->out[d];
            count[o] = divide_of(p, d)[o] = end - first[o];
        }
    }
    return 0;
}

static void spatial_sizes(Pool *p, const Tensor *t) {
    memcpy(p->in, t->v.shape + t->v.ndim - p->nd, (size_t)p->nd * sizeof *p->in);
}

static int too_small(const OpCall *c, const Pool *p) {
    PyObject *in = sizes_text(p->nd, p->in), *out = sizes_text(p->nd, p->out);
    if (in && out) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s: Given input size: %U. Calculated output size: %U. Output size is too small: take a smaller kernel",
                     c->row->name, in, out);
    }
    Py_XDECREF(in);
    Py_XDECREF(out);
    return -1;
}

/* kernel_size, stride, padding from parameter `at` on; dilation behind them if the op has it. The input's sizes are set. */
static int sliding_arguments(OpCall *c, Pool *p, int at, bool dilated) {
    int ceil_at = at + (dilated ? 4 : 3);
    if (spatial_list(c, at, p->nd, p->kernel, 1) < 0 || spatial_list(c, at + 2, p->nd, p->pad, 0) < 0) {
        return -1;
    }
    if (c->arg[at + 1].kind == ARG_NONE || c->arg[at + 1].n == 0) {
        memcpy(p->stride, p->kernel, sizeof p->stride);
    } else if (spatial_list(c, at + 1, p->nd, p->stride, 1) < 0) {
        return -1;
    }
    if (dilated && spatial_list(c, at + 3, p->nd, p->dilation, 1) < 0) {
        return -1;
    }
    p->ceil_mode = c->arg[ceil_at].i != 0;
    for (int d = 0; d < p->nd; d++) {
        if (p->in[d] > LARGEST) {
            PyErr_Format(PyExc_RuntimeError, "%s: a spatial size of %lld is too large", c->row->name, (long long)p->in[d]);
            return -1;
        }
        p->dilation[d] = dilated ? p->dilation[d] : 1;
        int64_t reach = p->dilation[d] * (p->kernel[d] - 1) + 1;
        if (p->pad[d] > p->kernel[d] / 2) {
            PyErr_Format(PyExc_RuntimeError,
                         "%s: pad should be at most half of kernel size (at most half of effective kernel size), but got "
                         "pad=%lld, kernel_size=%lld and "
                         "dilation=%lld",
                         c->row->name, (long long)p->pad[d], (long long)p->kernel[d], (long long)p->dilation[d]);
            return -1;
        }
        int64_t room = p->in[d] + 2 * p->pad[d] - reach + (p->ceil_mode ? p->stride[d] - 1 : 0);
        p->out[d] = room < 0 ? 0 : room / p->stride[d] + 1;
        p->out[d] -= p->ceil_mode && p->out[d] > 0 && (p->out[d] - 1) * p->stride[d] >= p->in[d] + p->pad[d];
    }
    for (int d = 0; d < p->nd; d++) {
        if (p->out[d] < 1) {
            return too_small(c, p);
        }
    }
    return 0;
}

/* ---- running ---- */

static int run_pool(OpCall *c, Pool *p, PoolKind kind, const Tensor *in, const Tensor *at, Tensor *out, Tensor *out_at) {
    PlaneView x, index, y, y_index;
    Call call;
    amp_call_init(&call, c->row->op);
    p->plan.kind = kind;
    plane_view(&x, in, p->nd);
    plane_view(&y, out, p->nd);
    call.nin = at ? 2 : 1;
    call.nout = out_at ? 2 : 1;
    call.in[0] = &x.v;
    call.out[0] = &y.v;
    if (at) {
        plane_view(&index, at, p->nd);
        call.in[1] = &index.v;
    }
    if (out_at) {
        plane_view(&y_index, out_at, p->nd);
        call.out[1] = &y_index.v;
    }
    call.extra = &p->plan;
    int64_t work = in->v.numel > out->v.numel ? in->v.numel : out->v.numel;
    int failed = run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, pool), &call, work * 8, c->row->name);
    PyMem_Free(p->room);
    p->room = NULL;
    return failed;
}

/* The windows are there (failed < 0: they are not); makes the results and runs. */
static int max_over(OpCall *c, Pool *p, int failed, bool positions) {
    const Tensor *in = c->arg[0].t;
    Tensor *out = failed < 0 ? NULL : result_planes(c, 0, in, p->nd, p->out, in->v.dtype);
    Tensor *at = out && positions ? result_planes(c, 1, in, p->nd, p->out, AMP_INT64) : NULL;
    if (!out || (positions && !at)) {
        PyMem_Free(p->room);
        return -1;
    }
    return run_pool(c, p, POOL_MAX, in, NULL, out, at);
}

static int max_pool(OpCall *c, bool positions) {
    Pool p = {.nd = spatial_of(c)};
    if (refuse_dtype(c, c->arg[0].t, true) < 0 || check_input(c, p.nd) < 0) {
        return -1;
    }
    spatial_sizes(&p, c->arg[0].t);
    return sliding_arguments(c, &p, 1, true) < 0 ? -1 : max_over(c, &p, sliding_windows(&p, false), positions);
}

int run_MAX_POOL_INDICES(OpCall *c) { return max_pool(c, true); }

/* Positions are formed only where the backward pass will want them. */
int run_MAX_POOL(OpCall *c) {
    static const OpId with_indices[] = {OP_max_pool1d_with_indices, OP_max_pool2d_with_indices, OP_max_pool3d_with_indices};
    if (grad_recording() && tensor_requires_grad(c->arg[0].t)) {
        return result_set(c, run_op_tensor(with_indices[spatial_of(c) - 1], c->arg));
    }
    return max_pool(c, false);
}

/* output_size of the adaptive ops and the input's sizes. */
static int adaptive_arguments(OpCall *c, Pool *p) {
    const View *v = &c->arg[0].t->v;
    const Arg *size = &c->arg[1];
    p->nd = spatial_of(c);
    bool ok = v->ndim == p->nd + 1 || v->ndim == p->nd + 2;
    for (int d = v->ndim == p->nd + 2 ? 1 : 0; ok && d < v->ndim; d++) {
        ok = v->shape[d] > 0 || d < v->ndim - p->nd;
    }
    if (!ok) {
        PyObject *text = sizes_text(v->ndim, v->shape);
        if (text) {
            PyErr_Format(PyExc_RuntimeError,
                         "%s(): Expected %dD or %dD tensor with non-zero size for non-batch dimensions, but got %U", c->row->name,
                         p->nd + 1, p->nd + 2, text);
        }
        Py_XDECREF(text);
        return -1;
    }
    if (size->n != p->nd && size->n != 1) {
        PyErr_Format(PyExc_RuntimeError, "%s: output_size must be %d, got %d entries", c->row->name, p->nd, (int)size->n);
        return -1;
    }
    for (int d = 0; d < p->nd; d++) {
        p->out[d] = size->ints[size->n == 1 ? 0 : d];
        if (p->out[d] < 0 || p->out[d] > INT32_MAX) {
            PyErr_Format(PyExc_RuntimeError,
                         "%s: elements of output_size must be greater than or equal to 0 (and below 2^31) but received %lld",
                         c->row->name, (long long)p->out[d]);
            return -1;
        }
    }
    spatial_sizes(p, c->arg[0].t);
    return 0;
}

int run_ADAPTIVE_MAX_POOL(OpCall *c) {
    Pool p = {0};
    if (refuse_dtype(c, c->arg[0].t, false) < 0 || adaptive_arguments(c, &p) < 0) {
        return -1;
    }
    return max_over(c, &p, adaptive_windows(&p), true);
}

/* ---- fractional ---- */

/* Window starts of one plane and dimension from a number in [0, 1), in the arithmetic of `dtype`:
 *
 *     start[i] = floor((i + u) alpha) - floor(u alpha),  alpha = (in - kernel) / (out - 1);  the last one ends with the input */
static void fractional_starts(int64_t *start, double u, int dtype, int64_t in, int64_t out, int64_t kernel) {
    float u32 = (float)u, alpha32 = out > 1 ? (float)(in - kernel) / (float)(out - 1) : 0;
    double alpha = out > 1 ? (double)(in - kernel) / (double)(out - 1) : 0;
    for (int64_t i = 0; i + 1 < out; i++) {
        start[i] = dtype == AMP_FLOAT64 ? (int64_t)(((double)i + u) * alpha) - (int64_t)(u * alpha)
                                        : (int64_t)(((float)i + u32) * alpha32) - (int64_t)(u32 * alpha32);
    }
    if (out > 0) {
        start[out - 1] = in - kernel;
    }
}

static int check_samples(const OpCall *c, const Pool *p) {
    const View *v = &c->arg[0].t->v, *s = &c->arg[3].t->v;
    int64_t batch = v->ndim == p->nd + 2 ? v->shape[0] : 1, channels = v->shape[v->ndim - p->nd - 1];
    if (s->ndim != 3 || s->shape[0] < batch || s->shape[1] != channels || s->shape[2] != p->nd) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s: Expect _random_samples of the sizes (batch, channels, %d) of the input, here (%lld, %lld, %d)",
                     c->row->name, p->nd, (long long)batch, (long long)channels, p->nd);
        return -1;
    }
    if (s->dtype != v->dtype) {
        PyErr_Format(PyExc_RuntimeError, "%s: Expect _random_samples to have the same dtype as input, got %s and %s",
                     c->row->name, amp_dtype_info[s->dtype].name, amp_dtype_info[v->dtype].name);
        return -1;
    }
    for (int d = 0; d < p->nd; d++) {
        /* in three dimensions there must be one place more than windows */
        if (p->kernel[d] > p->in[d] || p->out[d] > p->in[d] - p->kernel[d] + (p->nd == 2)) {
            PyErr_Format(PyExc_RuntimeError,
                         "%s(): pool size %lld too large relative to input size %lld: there is no room for %lld windows",
                         c->row->name, (long long)p->kernel[d], (long long)p->in[d], (long long)p->out[d]);
            return -1;
        }
    }
    return 0;
}

/* Samples stand in the order W, H in two dimensions, D, H, W in three. */
static int fractional_windows(OpCall *c, Pool *p, int64_t planes) {
    Tensor *wide = raw_cast(c->arg[3].t, AMP_FLOAT64), *samples = wide ? raw_contiguous(wide) : NULL;
    Py_XDECREF(wide);
    if (!samples || windows_new(p, planes) < 0) {
        Py_XDECREF(samples);
        return -1;
    }
    p->plan.per_plane = true;
    for (int64_t i = 0; i < planes && c->arg[0].t->v.device != AMP_META; i++) {
        for (int d = 0; d < p->nd; d++) {
            double u;
            memcpy(&u, samples->v.data + (i * p->nd + (p->nd == 2 ? 1 - d : d)) * (int64_t)sizeof u, sizeof u);
            u = u >= 0 && u < 1 ? u : 0;
            fractional_starts(first_of(p, d) + i * p->out[d], u, c->arg[3].t->v.dtype, p->in[d], p->out[d], p->kernel[d]);
            for (int64_t o = 0; o < p->out[d]; o++) {
                count_of(p, d)[i * p->out[d] + o] = p->kernel[d];
            }
        }
    }
    Py_DECREF(samples);
    return 0;
}

int run_FRACTIONAL_MAX_POOL(OpCall *c) {
    Pool p = {.nd = spatial_of(c)};
    const View *v = &c->arg[0].t->v;
    if (refuse_dtype(c, c->arg[0].t, false) < 0 || common_device(c) < 0 || check_input(c, p.nd) < 0 ||
        spatial_list(c, 1, p.nd, p.kernel, 1) < 0 || spatial_list(c, 2, p.nd, p.out, 0) < 0) {
        return -1;
    }
    spatial_sizes(&p, c->arg[0].t);
    if (check_samples(c, &p) < 0) {
        return -1;
    }
    int64_t planes = v->shape[v->ndim - p.nd - 1] * (v->ndim == p.nd + 2 ? v->shape[0] : 1);
    return max_over(c, &p, fractional_windows(c, &p, planes), true);
}

/* ---- averages ---- */

static int set_divisor(OpCall *c, Pool *p, int index) {
    const Arg *a = index < c->row->nparams ? &c->arg[index] : NULL;
    if (a && a->kind == ARG_INT) {
        if (a->i == 0) {
            PyErr_Format(PyExc_RuntimeError, "%s: divisor must be not zero", c->row->name);
            return -1;
        }
        p->plan.divisor = a->i;
    }
    return 0;
}

static int average_over(OpCall *c, Pool *p, PoolKind kind, const int64_t *size) {
    const Tensor *in = c->arg[0].t;
    Tensor *out = result_planes(c, 0, in, p->nd, size, in->v.dtype);
    if (!out) {
        PyMem_Free(p->room);
        return -1;
    }
    return run_pool(c, p, kind, in, NULL, out, NULL);
}

/* In three dimensions the padding does not count. */
static int check_volume(const OpCall *c, const Pool *p) {
    for (int d = 0; d < p->nd && p->nd == 3; d++) {
        if (p->in[d] < p->kernel[d]) {
            PyErr_Format(PyExc_RuntimeError, "%s: input image of size %lld smaller than kernel size %lld", c->row->name,
                         (long long)p->in[d], (long long)p->kernel[d]);
            return -1;
        }
    }
    return 0;
}

int run_AVG_POOL(OpCall *c) {
    Pool p = {.nd = spatial_of(c)};
    if (refuse_dtype(c, c->arg[0].t, true) < 0 || check_input(c, p.nd) < 0) {
        return -1;
    }
    spatial_sizes(&p, c->arg[0].t);
    if (sliding_arguments(c, &p, 1, false) < 0 || check_volume(c, &p) < 0 || sliding_windows(&p, c->arg[5].i != 0) < 0) {
        return -1;
    }
    if (set_divisor(c, &p, 6) < 0) {
        PyMem_Free(p.room);
        return -1;
    }
    return average_over(c, &p, POOL_AVERAGE, p.out);
}

/* Parameter 1: the spatial sizes of the input whose gradient is formed. */
static int read_sizes(const OpCall *c, Pool *p, int index) {
    const Arg *a = &c->arg[index];
    const View *v = &c->arg[0].t->v;
    p->nd = a->n;
    if (a->n < 1 || a->n > AMP_MAX_SPATIAL || (v->ndim != a->n + 1 && v->ndim != a->n + 2)) {
        PyErr_Format(PyExc_RuntimeError, "%s: %d spatial sizes do not fit a tensor of %d dimensions", c->row->name, (int)a->n,
                     v->ndim);
        return -1;
    }
    for (int d = 0; d < p->nd; d++) {
        if (a->ints[d] < 0 || a->ints[d] > LARGEST) {
            PyErr_Format(PyExc_RuntimeError, "%s: sizes must be non-negative and below 2^60, got %lld", c->row->name,
                         (long long)a->ints[d]);
            return -1;
        }
        p->in[d] = a->ints[d];
    }
    return refuse_dtype(c, c->arg[0].t, true);
}

static int check_gradient_sizes(const OpCall *c, const Pool *p) {
    const View *v = &c->arg[0].t->v;
    if (memcmp(v->shape + v->ndim - p->nd, p->out, (size_t)p->nd * sizeof *p->out)) {
        PyErr_Format(PyExc_RuntimeError, "%s: the gradient has other sizes than the outputs of an input of these sizes",
                     c->row->name);
        return -1;
    }
    return 0;
}

int run_AVG_POOL_GRAD(OpCall *c) {
    Pool p = {0};
    if (read_sizes(c, &p, 1) < 0 || sliding_arguments(c, &p, 2, false) < 0 || check_gradient_sizes(c, &p) < 0 ||
        sliding_windows(&p, c->arg[6].i != 0) < 0) {
        return -1;
    }
    if (set_divisor(c, &p, 7) < 0) {
        PyMem_Free(p.room);
        return -1;
    }
    return average_over(c, &p, POOL_AVERAGE_GRAD, p.in);
}

static bool one_window(const Pool *p) {
    bool one = true;
    for (int d = 0; d < p->nd; d++) {
        one &= p->out[d] == 1;
    }
    return one;
}

/* One window per plane is a mean. */
static int mean_of_planes(OpCall *c, const Pool *p) {
    const Tensor *in = c->arg[0].t;
    Tensor *out = result_planes(c, 0, in, p->nd, p->out, in->v.dtype);
    if (!out) {
        return -1;
    }
    Call call;
    amp_call_init(&call, OP_mean_dim);
    call.nin = call.nout = 1;
    call.in[0] = &in->v;
    call.out[0] = &out->v;
    for (int d = in->v.ndim - p->nd; d < in->v.ndim; d++) {
        call.dims |= (uint64_t)1 << d;
    }
    return run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, reduce), &call, in->v.numel * 4, c->row->name);
}

int run_ADAPTIVE_AVG_POOL(OpCall *c) {
    Pool p = {0};
    if (refuse_dtype(c, c->arg[0].t, false) < 0 || adaptive_arguments(c, &p) < 0) {
        return -1;
    }
    if (one_window(&p) && amp_is_floating(c->arg[0].t->v.dtype)) {
        return mean_of_planes(c, &p);
    }
    if (adaptive_windows(&p) < 0) {
        return -1;
    }
    return average_over(c, &p, POOL_AVERAGE, p.out);
}

/* Every element of a plane gets the gradient of its mean. */
static int spread_over_planes(OpCall *c, const Pool *p) {
    int64_t elements = 1, strides[AMP_MAX_DIMS];
    for (int d = 0; d < p->nd; d++) {
        elements *= p->in[d];
    }
    Tensor *g = c->arg[0].t, *out = result_planes(c, 0, g, p->nd, p->in, g->v.dtype);
    Arg arg[MAX_ARGS] = {arg_tensor(g),
                         {.kind = ARG_TENSOR, .t = tensor_from_number(number_int(elements), AMP_INT64, g->v.device, true)}};
    uint8_t recording = amp_grad_enabled;
    amp_grad_enabled = 0; /* the row has a derivative of its own */
    Tensor *part = out && arg[1].t ? run_op_tensor(OP_div, arg) : NULL;
    amp_grad_enabled = recording;
    int failed = -1;
    if (part) {
        View all = broadcast_view(&part->v, out->v.ndim, out->v.shape, strides);
        failed = raw_copy(&out->v, &all);
    }
    Py_XDECREF(arg[1].t);
    Py_XDECREF(part);
    return failed;
}

int run_ADAPTIVE_AVG_POOL_GRAD(OpCall *c) {
    Pool p = {0};
    const View *v = &c->arg[0].t->v;
    if (read_sizes(c, &p, 1) < 0) {
        return -1;
    }
    memcpy(p.out, v->shape + v->ndim - p.nd, (size_t)p.nd * sizeof *p.out);
    if (one_window(&p)) {
        return spread_over_planes(c, &p);
    }
    if (adaptive_windows(&p) < 0) {
        return -1;
    }
    return average_over(c, &p, POOL_AVERAGE_GRAD, p.in);
}

/* ---- values at positions ---- */

static int check_positions(const OpCall *c) {
    const View *x = &c->arg[0].t->v, *at = &c->arg[1].t->v;
    if (at->dtype != AMP_INT64) {
        PyErr_Format(PyExc_RuntimeError, "%s: elements in indices should be type int64 but got: %s", c->row->name,
                     amp_dtype_info[at->dtype].name);
        return -1;
    }
    if (x->ndim != at->ndim || memcmp(x->shape, at->shape, (size_t)x->ndim * sizeof *x->shape)) {
        PyObject *a = sizes_text(x->ndim, x->shape), *b = sizes_text(at->ndim, at->shape);
        if (a && b) {
            PyErr_Format(
                PyExc_RuntimeError,
                "%s: Expected shape of indices to be same as that of the input tensor (%U) but got indices tensor with shape: %U",
                c->row->name, a, b);
        }
        Py_XDECREF(a);
        Py_XDECREF(b);
        return -1;
    }
    return common_device(c) < 0 ? -1 : 0;
}

static int values_at(OpCall *c, PoolKind kind) {
    Pool p = {0};
    Tensor *in = c->arg[0].t;
    if (check_positions(c) < 0 || read_sizes(c, &p, 2) < 0) {
        return -1;
    }
    Tensor *out = result_planes(c, 0, in, p.nd, p.in, in->v.dtype);
    return out ? run_pool(c, &p, kind, in, c->arg[1].t, out, NULL) : -1;
}

int run_ADD_AT(OpCall *c) { return values_at(c, POOL_ADD_AT); }

int run_PUT_AT(OpCall *c) {
    if (refuse_dtype(c, c->arg[0].t, false) < 0) {
        return -1;
    }
    return values_at(c, POOL_PUT_AT);
}
