/* Normalisation: checks in front of the two cores, by groups and by channels, and the cores. */
#include <float.h>
#include <string.h>

#include "classes.h"
#include "norm.h"

/* "[2, 3]" for messages; a new list object. */
static PyObject *shape_list(int ndim, const int64_t *shape) {
    PyObject *size = size_from_dims(ndim, shape), *list = size ? PySequence_List(size) : NULL;
    Py_XDECREF(size);
    return list;
}

/* format has two %R, for lists; they are consumed. Returns -1. */
static int shape_error(const char *format, PyObject *a, PyObject *b) {
    if (a && b) {
        PyErr_Format(PyExc_RuntimeError, format, a, b);
    }
    Py_XDECREF(a);
    Py_XDECREF(b);
    return -1;
}

static Tensor *given(const Arg *a) { return a->kind == ARG_TENSOR ? a->t : NULL; }

static const char *scalar_name(int dtype) {
    switch (dtype) {
    case AMP_FLOAT16: return "Half";
    case AMP_BFLOAT16: return "BFloat16";
    case AMP_FLOAT32: return "Float";
    case AMP_FLOAT64: return "Double";
    default: return amp_dtype_info[dtype].name;
    }
}

/* Parameters have the input's dtype, or all are float32 beside a 16-bit input (mixed: the first one differs from the input). */
static int check_dtypes(const OpCall *c, const Tensor *x, int n, Tensor *const *parameter, bool mixed_allowed) {
    bool first = true, mixed = false;
    if (!amp_is_floating(x->v.dtype)) {
        PyErr_Format(PyExc_NotImplementedError, "\"%s\" not implemented for '%s': convert the input to a floating dtype",
                     c->row->name, amp_dtype_info[x->v.dtype].name);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        if (!parameter[i]) {
            continue;
        }
        int dtype = parameter[i]->v.dtype;
        if (first && mixed_allowed) {
            mixed = dtype != x->v.dtype;
        }
        first = false;
        if (mixed && dtype != AMP_FLOAT32) {
            PyErr_Format(PyExc_RuntimeError, "mixed dtype (CPU): expect parameter to have scalar type of Float, but %s got %s",
                         c->row->name, scalar_name(dtype));
            return -1;
        }
        if (mixed && !amp_is_16bit(x->v.dtype)) {
            PyErr_Format(PyExc_RuntimeError,
                         "mixed dtype (CPU): all inputs must share same datatype: %s got an input of %s with parameters of Float",
                         c->row->name, scalar_name(x->v.dtype));
            return -1;
        }
        if (!mixed && dtype != x->v.dtype) {
            PyErr_Format(PyExc_RuntimeError, "expected scalar type %s but found %s: %s takes parameters of the input's dtype",
                         scalar_name(x->v.dtype), scalar_name(dtype), c->row->name);
            return -1;
        }
    }
    return 0;
}

/* ---- layer and RMS normalisation ---- */

static int check_normalized_shape(const Tensor *x, const Arg *size, const char *format) {
    if (size->n < 1) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
                        "element, but got normalized_shape = []");
        return -1;
    }
    const int64_t *last = x->v.shape + x->v.ndim - size->n;
    if (size->n > x->v.ndim || memcmp(last, size->ints, (size_t)size->n * sizeof *last)) {
        PyObject *want = shape_list(size->n, size->ints), *have = shape_list(x->v.ndim, x->v.shape);
        PyObject *text = want ? PyObject_Str(want) : NULL; /* "[3, 4]" without its bracket follows "[*, " */
        if (text && have) {
            PyObject *rest = PyUnicode_Substring(text, 1, PyUnicode_GetLength(text));
            PyErr_Format(PyExc_RuntimeError, format, want, rest ? rest : Py_None, have);
            Py_XDECREF(rest);
        }
        Py_XDECREF(text);
        Py_XDECREF(want);
        Py_XDECREF(have);
        return -1;
    }
    return 0;
}

static int check_layer_parameter(const Tensor *t, const char *name, const Arg *size) {
    if (!t || (t->v.ndim == size->n && !memcmp(t->v.shape, size->ints, (size_t)size->n * sizeof *t->v.shape))) {
        return 0;
    }
    const char *format =
        !strcmp(name, "weight")
            ? "Expected weight to be of same shape as normalized_shape, but got weight of shape %R and normalized_shape = %R"
            : "Expected bias to be of same shape as normalized_shape, but got bias of shape %R and normalized_shape = %R";
    return shape_error(format, shape_list(t->v.ndim, t->v.shape), shape_list(size->n, size->ints));
}

/* (result, statistics) of the core; new reference. */
static PyObject *by_groups(Tensor *x, const Arg *weight, const Arg *bias, int64_t samples, int64_t groups, int64_t channels,
                           double eps, bool centered) {
    Arg arg[MAX_ARGS] = {arg_tensor(x),   *weight,           *bias,          arg_int(samples),
                         arg_int(groups), arg_int(channels), arg_float(eps), arg_bool(centered)};
    return run_op(&amp_rows[OP_norm_groups], arg, false);
}

static PyObject *layer_norm(const OpCall *c) {
    Tensor *x = c->arg[0].t, *parameter[2] = {given(&c->arg[2]), given(&c->arg[3])};
    const Arg *size = &c->arg[1];
    if (check_normalized_shape(x, size, "Given normalized_shape=%R, expected input with shape [*, %U, but got input of size%R") <
            0 ||
        check_layer_parameter(parameter[0], "weight", size) < 0 || check_layer_parameter(parameter[1], "bias", size) < 0 ||
        check_dtypes(c, x, 2, parameter, x->v.device != AMP_CUDA) < 0 || common_device(c) < 0) {
        return NULL;
    }
    int64_t n = amp_numel(size->n, size->ints), samples = amp_numel(x->v.ndim - size->n, x->v.shape);
    return by_groups(x, &c->arg[2], &c->arg[3], samples, 1, n, c->arg[4].f, true);
}

static int set_first(OpCall *c, PyObject *pair) {
    Tensor *first = pair ? (Tensor *)Py_NewRef(PyTuple_GET_ITEM(pair, 0)) : NULL;
    Py_XDECREF(pair);
    return result_set(c, first);
}

int run_LAYER_NORM(OpCall *c) { return set_first(c, layer_norm(c)); }

/* Row k of the statistics, with the input's dimensions, in the dtype that goes with parameters. */
static Tensor *statistic(const OpCall *c, Tensor *stats, int64_t k) {
    const Tensor *x = c->arg[0].t, *weight = given(&c->arg[2]), *bias = given(&c->arg[3]);
    int64_t shape[AMP_MAX_DIMS];
    int dtype = weight ? weight->v.dtype : bias ? bias->v.dtype : x->v.dtype;
    if (x->v.device == AMP_CUDA && amp_is_16bit(dtype)) {
        dtype = AMP_FLOAT32;
    }
    for (int d = 0; d < x->v.ndim; d++) {
        shape[d] = d < x->v.ndim - c->arg[1].n ? x->v.shape[d] : 1;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(stats), arg_int(0), arg_int(k)};
    Tensor *row = run_op_tensor(OP_select, arg), *cast = row ? call_cast(row, dtype) : NULL;
    Tensor *shaped = cast ? call_reshape(cast, x->v.ndim, shape) : NULL;
    Py_XDECREF(row);
    Py_XDECREF(cast);
    return shaped;
}

int run_NATIVE_LAYER_NORM(OpCall *c) {
    PyObject *pair = layer_norm(c);
    if (!pair) {
        return -1;
    }
    Tensor *stats = (Tensor *)PyTuple_GET_ITEM(pair, 1);
    c->nresult = 3;
    c->result[0] = (Tensor *)Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    c->result[1] = statistic(c, stats, 0);
    c->result[2] = c->result[1] ? statistic(c, stats, 1) : NULL;
    Py_DECREF(pair);
    return c->result[2] ? 0 : -1;
}

int run_RMS_NORM(OpCall *c) {
    Tensor *x = c->arg[0].t, *weight = given(&c->arg[2]);
    const Arg *size = &c->arg[1], none = {.kind = ARG_NONE};
    if (check_normalized_shape(x, size, "Given normalized_shape=%R, expected input with shape [*, %U, but got input of size%R") <
            0 ||
        check_layer_parameter(weight, "weight", size) < 0 || check_dtypes(c, x, 0, NULL, false) < 0 || common_device(c) < 0) {
        return -1;
    }
    double eps = c->arg[3].kind == ARG_FLOAT ? c->arg[3].f : x->v.dtype == AMP_FLOAT64 ? DBL_EPSILON : (double)FLT_EPSILON;
    int64_t n = amp_numel(size->n, size->ints), samples = amp_numel(x->v.ndim - size->n, x->v.shape);
    return set_first(c, by_groups(x, &c->arg[2], &none, samples, 1, n, eps, false));
}

/* ---- group normalisation ---- */

static int check_channel_vector(const Tensor *t, const char *name, const Tensor *x) {
    if (!t || (t->v.ndim == 1 && t->v.numel == x->v.shape[1])) {
        return 0;
    }
    const char *format = !strcmp(name, "weight")
                             ? "Expected weight to be a vector of size equal to the number of channels in input, "
                               "but got weight of shape %R and input of shape %R"
                             : "Expected bias to be a vector of size equal to the number of channels in input, "
                               "but got bias of shape %R and input of shape %R";
    return shape_error(format, shape_list(t->v.ndim, t->v.shape), shape_list(x->v.ndim, x->v.shape));
}

int run_GROUP_NORM(OpCall *c) {
    Tensor *x = c->arg[0].t, *parameter[2] = {given(&c->arg[2]), given(&c->arg[3])};
    int64_t groups = c->arg[1].i;
    if (x->v.ndim < 2) {
        PyErr_Format(PyExc_RuntimeError, "Expected at least 2 dimensions for input tensor but received %d", x->v.ndim);
        return -1;
    }
    if (groups <= 0) {
        PyErr_Format(PyExc_RuntimeError, "Expected num groups to be greater than 0, got %lld", (long long)groups);
        return -1;
    }
    if (x->v.shape[1] % groups) {
        PyObject *shape = shape_list(x->v.ndim, x->v.shape);
        PyErr_Format(PyExc_RuntimeError,
                     "Expected number of channels in input to be divisible by num_groups, but got input of shape %R and "
                     "num_groups=%lld",
                     shape ? shape : Py_None, (long long)groups);
        Py_XDECREF(shape);
        return -1;
    }
    if (x->v.shape[0] > 0 && x->v.numel == 0) {
        PyErr_SetString(PyExc_RuntimeError, "Expected HxW to be greater than 0, got 0: a group has no element to normalise");
        return -1;
    }
    if (check_channel_vector(parameter[0], "weight", x) < 0 || check_channel_vector(parameter[1], "bias", x) < 0 ||
        check_dtypes(c, x, 2, parameter, true) < 0 || common_device(c) < 0) {
        return -1;
    }
    return set_first(c, by_groups(x, &c->arg[2], &c->arg[3], x->v.shape[0], groups, x->v.shape[1] / groups, c->arg[4].f, true));
}

/* ---- batch normalisation ---- */

static int check_channels(const Tensor *t, const char *name, int64_t channels) {
    if (t && t->v.numel != channels) {
        PyErr_Format(PyExc_RuntimeError, "%s should contain %lld elements not %lld", name, (long long)channels,
                     (long long)t->v.numel);
        return -1;
    }
    return 0;
}

int run_BATCH_NORM(OpCall *c) {
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    static const int order[] = {2, 3, 0, 1}; /* running statistics are looked at first */
    Tensor *x = c->arg[0].t, *parameter[4];
    bool training = c->arg[5].i != 0;
    for (int i = 0; i < 4; i++) {
        parameter[i] = given(&c->arg[1 + i]);
    }
    for (int i = 2; i < 4; i++) {
        if (!training && !parameter[i]) {
            PyErr_Format(PyExc_RuntimeError, "%s must be defined in evaluation mode", names[i]);
            return -1;
        }
    }
    int64_t channels = x->v.ndim > 1 ? x->v.shape[1] : 0;
    for (int k = 0; k < 4; k++) {
        if (check_channels(parameter[order[k]], names[order[k]], channels) < 0) {
            return -1;
        }
    }
    if (x->v.ndim < 2) {
        PyErr_Format(PyExc_RuntimeError, "batch_norm: the input needs a dimension of samples and one of channels, got %d-d",
                     x->v.ndim);
        return -1;
    }
    if (check_dtypes(c, x, 4, parameter, true) < 0 || common_device(c) < 0 || needs_no_gradient(c, 3) < 0 ||
        needs_no_gradient(c, 4) < 0) {
        return -1;
    }
    Arg arg[MAX_ARGS] = {c->arg[0], c->arg[1], c->arg[2], c->arg[3], c->arg[4], c->arg[5], c->arg[6], c->arg[7]};
    return set_first(c, run_op(&amp_rows[OP_norm_channels], arg, false));
}

/* ---- the cores ---- */

int norm_plan(const Arg *arg, bool by_channels, int ndim, const int64_t *shape, NormPlan *plan) {
    int64_t numel = amp_numel(ndim, shape);
    *plan = (NormPlan){.by_channels = by_channels, .groups = 1, .centered = true, .length = 1};
    if (by_channels) {
        plan->samples = shape[0];
        plan->channels = shape[1];
        plan->training = arg[5].i != 0;
        plan->momentum = arg[6].f;
        plan->eps = arg[7].f;
    } else {
        plan->samples = arg[3].i;
        plan->groups = arg[4].i;
        plan->channels = arg[5].i;
        plan->eps = arg[6].f;
        plan->centered = arg[7].i != 0;
    }
    int64_t segments = plan->samples * plan->groups * plan->channels;
    if (segments > 0) {
        plan->length = numel / segments; /* 0 for channels without elements */
    }
    return by_channels ? 3 : 2;
}

View norm_flat(const View *v, int64_t *dims) {
    View flat = *v;
    dims[0] = v->numel;
    dims[1] = 1;
    flat.ndim = 1;
    flat.shape = dims;
    flat.stride = dims + 1;
    flat.layout = LAYOUT_CONTIGUOUS;
    return flat;
}

static int run_norm(OpCall *c, bool by_channels) {
    Tensor *x = c->arg[0].t, *dense[3] = {NULL}, *running[2] = {NULL, NULL};
    const View *list[2];
    View flat[2];
    NormPlan plan;
    int64_t dims[2][2];
    int kinds = norm_plan(c->arg, by_channels, x->v.ndim, x->v.shape, &plan), device = x->v.device, status = -1;
    int64_t stats_shape[2] = {kinds, by_channels ? plan.channels : plan.samples * plan.groups};
    Tensor *y = result_new(c, 0, x->v.ndim, x->v.shape, x->v.dtype, device, ALIAS_NEVER);
    Tensor *stats = y ? result_new(c, 1, 2, stats_shape, AMP_FLOAT64, device, ALIAS_NEVER) : NULL;
    if (!stats) {
        return -1;
    }
    Call call;
    amp_call_init(&call, c->row->op);
    call.extra = &plan;
    call.nin = 3;
    call.nout = 2;
    for (int i = 0; i < 3; i++) {
        Tensor *t = given(&c->arg[i]);
        if (t && !(dense[i] = raw_contiguous(t))) {
            goto done;
        }
        if (t && i > 0) {
            flat[i - 1] = norm_flat(&dense[i]->v, dims[i - 1]);
            call.in[i] = &flat[i - 1];
        }
    }
    call.in[0] = &dense[0]->v;
    for (int i = 0; by_channels && i < 2; i++) {
        running[i] = given(&c->arg[3 + i]);
        list[i] = running[i] ? &running[i]->v : NULL;
    }
    if (running[0] || running[1]) {
        call.list = list;
        call.nlist = 2;
    }
    call.out[0] = &y->v;
    call.out[1] = &stats->v;
    status = run_slot(device, AMP_BACKEND_SLOT(device, normalize), &call, x->v.numel * 12, amp_rows[c->row->op].name);
    for (int i = 0; i < 2 && plan.training && status == 0; i++) {
        if (running[i]) {
            tensor_bump(running[i]);
        }
    }
done:
    for (int i = 0; i < 3; i++) {
        Py_XDECREF(dense[i]);
    }
    return status;
}

int run_NORM_GROUPS(OpCall *c) { return run_norm(c, false); }

int run_NORM_CHANNELS(OpCall *c) { return run_norm(c, true); }
