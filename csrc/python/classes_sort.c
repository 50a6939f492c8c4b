/* Sorting, order statistics, running extremes, binary search. */
#include <math.h>
#include <string.h>

#include "classes.h"

/* A tensor as lines along one dimension; a 0-dim tensor is one line of one element. */
typedef struct Lined {
    int ndim, dim;
    int64_t shape[AMP_MAX_DIMS], stride[2][AMP_MAX_DIMS];
} Lined;

static View one_element(const View *v, int64_t *shape, int64_t *stride) {
    View line = *v;
    shape[0] = stride[0] = 1;
    line.ndim = 1;
    line.shape = shape;
    line.stride = stride;
    return line;
}

/* out, which lacks the dimension unless keepdim, with the dimension in place as size 1. */
static View with_dim(const View *out, Lined *l, int which, bool keepdim) {
    View v = *out;
    int n = 0;
    for (int d = 0; d < l->ndim; d++) {
        bool absent = d == l->dim && !keepdim;
        l->shape[d] = absent ? 1 : out->shape[n];
        l->stride[which][d] = absent ? 1 : out->stride[n];
        n += !absent;
    }
    v.ndim = (int8_t)l->ndim;
    v.shape = l->shape;
    v.stride = l->stride[which];
    v.layout = 0;
    return v;
}

static int refuse_complex(const OpCall *c, const Tensor *in) {
    if (!amp_is_complex(in->v.dtype)) {
        return 0;
    }
    bool in_order = c->row->op == OP_sort || c->row->op == OP_topk || c->row->op == OP_logcumsumexp;
    PyErr_Format(in_order ? PyExc_TypeError : PyExc_NotImplementedError,
                 "%s does not support complex dtypes, which have no order: got %s", c->row->name,
                 amp_dtype_info[in->v.dtype].name);
    return -1;
}

/* How many results each line of n elements gives; -1 with an exception. */
static int64_t results_per_line(const OpCall *c, int64_t n, int dim) {
    if (n == 0 && c->row->op != OP_sort && c->row->op != OP_topk) {
        PyErr_Format(PyExc_IndexError, "%s(): Expected reduction dim %d to have non-zero size.", c->row->name, dim);
        return -1;
    }
    switch (c->row->op) {
    case OP_sort: return n;
    case OP_topk:
        if (c->arg[1].i < 0 || c->arg[1].i > n) {
            PyErr_Format(PyExc_RuntimeError, "topk(): selected index k out of range: k is %lld, dimension %d has size %lld",
                         (long long)c->arg[1].i, dim, (long long)n);
            return -1;
        }
        return c->arg[1].i;
    case OP_kthvalue:
        if (c->arg[1].i < 1 || c->arg[1].i > n) {
            PyErr_Format(PyExc_RuntimeError,
                         "kthvalue(): selected number k out of range for dimension %d: k is %lld, the size %lld", dim,
                         (long long)c->arg[1].i, (long long)n);
            return -1;
        }
        return 1;
    default: return 1;
    }
}

/* Which of the row's parameters are dim, keepdim and the slot's number; -1: none. */
typedef struct SortArgs {
    int8_t dim, keepdim, number;
} SortArgs;

static SortArgs sort_args(int op) {
    switch (op) {
    case OP_sort: return (SortArgs){1, -1, 2};
    case OP_topk: return (SortArgs){2, -1, 3};
    case OP_kthvalue: return (SortArgs){2, 3, 1};
    default: return (SortArgs){1, 2, -1};
    }
}

int run_SORT(OpCall *c) {
    Tensor *in = c->arg[0].t;
    SortArgs a = sort_args(c->row->op);
    int dim = wrap_dim(c->arg[a.dim].i, in->v.ndim), nd = 0;
    if (dim < 0 || refuse_complex(c, in) < 0) {
        return -1;
    }
    int64_t k = results_per_line(c, in->v.ndim ? in->v.shape[dim] : 1, dim);
    if (k < 0) {
        return -1;
    }
    bool keep = a.keepdim < 0 || c->arg[a.keepdim].i;
    int64_t shape[AMP_MAX_DIMS], one[2], step[2];
    for (int d = 0; d < in->v.ndim; d++) {
        if (d != dim || keep) {
            shape[nd++] = d == dim ? k : in->v.shape[d];
        }
    }
    if (in->v.ndim == 0 && k == 0) { /* topk(0) of one element */
        shape[nd++] = 0;
    }
    Aliasing aliasing = c->row->op == OP_sort || c->row->op == OP_topk ? ALIAS_APART : ALIAS_NEVER; /* as in PyTorch */
    Tensor *values = result_new(c, 0, nd, shape, in->v.dtype, in->v.device, aliasing);
    Tensor *positions = values ? result_new(c, 1, nd, shape, AMP_INT64, in->v.device, ALIAS_NEVER) : NULL;
    if (!positions) {
        return -1;
    }
    Lined l = {.ndim = in->v.ndim, .dim = dim};
    View from = in->v, to[2];
    if (in->v.ndim == 0) {
        from = one_element(&in->v, &one[0], &step[0]);
        to[0] = one_element(&values->v, &one[0], &step[0]);
        to[1] = one_element(&positions->v, &one[0], &step[0]);
    } else {
        to[0] = with_dim(&values->v, &l, 0, keep);
        to[1] = with_dim(&positions->v, &l, 1, keep);
    }
    Call call = {.op = c->row->op, .nin = 1, .nout = 2, .in = {&from}, .out = {&to[0], &to[1]}, .dims = (uint64_t)1 << dim};
    if (a.number >= 0) {
        call.nnum = 1;
        call.num[0] = number_int(c->arg[a.number].i);
    }
    return run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, sort), &call, in->v.numel * 64, c->row->name);
}

/* The middle element of all; NaN of none. */
int run_MEDIAN(OpCall *c) {
    Tensor *in = c->arg[0].t;
    if (refuse_complex(c, in) < 0) {
        return -1;
    }
    Tensor *out = result_new(c, 0, 0, NULL, in->v.dtype, in->v.device, ALIAS_NEVER);
    if (!out) {
        return -1;
    }
    if (in->v.numel == 0) {
        return raw_fill(out, amp_is_floating(in->v.dtype) ? number_float((double)NAN) : number_int(INT64_MIN));
    }
    Tensor *line = raw_contiguous(in), *position = line ? tensor_new(0, NULL, AMP_INT64, in->v.device) : NULL;
    int failed = -1;
    if (position) {
        int64_t size = line->v.numel, one, step, stride = 1;
        View from = line->v, to[2] = {one_element(&out->v, &one, &step), one_element(&position->v, &one, &step)};
        from.ndim = 1;
        from.shape = &size;
        from.stride = &stride;
        Call call = {.op = c->row->op, .nin = 1, .nout = 2, .in = {&from}, .out = {&to[0], &to[1]}, .dims = 1};
        failed = run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, sort), &call, size * 64, c->row->name);
    }
    Py_XDECREF(line);
    Py_XDECREF(position);
    return failed;
}

/* One scan along a dimension with one result, or with positions too. */
static int run_scan(OpCall *c, int nout) {
    Tensor *in = c->arg[0].t, *out[2] = {NULL, NULL};
    int dim = wrap_dim(c->arg[1].i, in->v.ndim);
    if (dim < 0 || refuse_complex(c, in) < 0) {
        return -1;
    }
    View from = in->v, to[2];
    int64_t one, step;
    Call call = {.op = c->row->op, .nin = 1, .nout = (uint8_t)nout, .dims = (uint64_t)1 << dim};
    for (int i = 0; i < nout; i++) {
        out[i] = result_new(c, i, in->v.ndim, in->v.shape, i ? AMP_INT64 : in->v.dtype, in->v.device,
                            c->row->op == OP_logcumsumexp ? ALIAS_APART : ALIAS_NEVER);
        if (!out[i]) {
            return -1;
        }
        to[i] = in->v.ndim ? out[i]->v : one_element(&out[i]->v, &one, &step);
        call.out[i] = &to[i];
    }
    if (in->v.ndim == 0) {
        from = one_element(&in->v, &one, &step);
    }
    call.in[0] = &from;
    return run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, scan), &call, in->v.numel * 32, c->row->name);
}

int run_CUMULATE(OpCall *c) { return run_scan(c, 2); }

int run_LOG_SCAN(OpCall *c) { return run_scan(c, 1); }

/* ---- searchsorted ---- */

static int search_error(const char *text) {
    PyErr_Format(PyExc_RuntimeError, "torch.searchsorted(): %s", text);
    return -1;
}

static int check_search(const OpCall *c, const Tensor *sequence, const Tensor *values, const Tensor *sorter, bool *right) {
    if (c->arg[4].kind == ARG_STR) {
        bool side_right = !strcmp(c->arg[4].s, "right");
        if (!side_right && strcmp(c->arg[4].s, "left")) {
            PyErr_Format(PyExc_RuntimeError, "torch.searchsorted(): side can only be 'left' or 'right' but got %s", c->arg[4].s);
            return -1;
        }
        if (*right && !side_right) {
            return search_error("side and right can't be set to opposites, got side of left while right was True");
        }
        *right = side_right;
    }
    if (sequence->v.ndim == 0) {
        return search_error("boundaries tensor should have positive dimension");
    }
    if (values->v.ndim == 0 && sequence->v.ndim != 1) {
        PyErr_Format(PyExc_RuntimeError,
                     "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we got "
                     "boundaries tensor dim(%d)",
                     sequence->v.ndim);
        return -1;
    }
    bool lines = sequence->v.ndim == 1 || sequence->v.ndim == values->v.ndim;
    for (int d = 0; lines && sequence->v.ndim > 1 && d < sequence->v.ndim - 1; d++) {
        lines = sequence->v.shape[d] == values->v.shape[d];
    }
    if (!lines) {
        return search_error("boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input "
                            "value tensor must match");
    }
    if (sorter && (sorter->v.dtype != AMP_INT64 || sorter->v.ndim != sequence->v.ndim ||
                   memcmp(sorter->v.shape, sequence->v.shape, (size_t)sequence->v.ndim * sizeof(int64_t)))) {
        return search_error("boundary and sorter must have the same size, and sorter must be of dtype long (int64)");
    }
    return 0;
}

int run_SEARCH(OpCall *c) {
    Tensor *sequence = c->arg[0].t, *values = c->arg[1].t, *sorter = c->arg[5].kind == ARG_TENSOR ? c->arg[5].t : NULL;
    bool right = c->arg[3].i != 0;
    int device = common_device(c);
    if (device < 0 || check_search(c, sequence, values, sorter, &right) < 0) {
        return -1;
    }
    /* Both are compared in the dtype that arithmetic of the two would have. */
    int common = promote_tensors(2, (Tensor *const[]){sequence, values});
    if (common == AMP_BOOL && sequence->v.numel && values->v.numel) {
        PyErr_Format(PyExc_NotImplementedError, "%s: not implemented for bool: there is no order to search in", c->row->name);
        return -1;
    }
    Tensor *out = result_new(c, 0, values->v.ndim, values->v.shape, c->arg[2].i ? AMP_INT32 : AMP_INT64, device, ALIAS_NEVER);
    Tensor *edges = out ? raw_cast(sequence, common) : NULL, *sought = edges ? raw_cast(values, common) : NULL;
    int failed = -1;
    if (sought) {
        Call call = {.op = c->row->op,
                     .nin = 3,
                     .nout = 1,
                     .in = {&edges->v, &sought->v, sorter ? &sorter->v : NULL},
                     .out = {&out->v},
                     .nnum = 1,
                     .num = {number_int(right)}};
        failed = run_slot(device, AMP_BACKEND_SLOT(device, search), &call, values->v.numel * 128, c->row->name);
        if (failed < 0 && PyErr_ExceptionMatches(PyExc_IndexError)) {
            PyErr_Clear();
            search_error("sorter index out of range: it holds a position that the boundaries do not have");
        }
    }
    Py_XDECREF(edges);
    Py_XDECREF(sought);
    return failed;
}
