/* Convolutions: checks, sizes, then the conv slot. What users call becomes the row `convolution`, which records itself. */
#include <string.h>

#include "../core/precision.h"
#include "classes.h"
#include "derivatives/derivatives.h"

enum { MOST_SPATIAL = 3 };

/* ---- arguments ---- */

/* "[1, 2]", as errors show lists; new reference. */
static PyObject *show(const int64_t *numbers, int n) {
    PyObject *list = PyList_New(n), *text;
    for (int i = 0; list && i < n; i++) {
        PyObject *item = PyLong_FromLongLong(numbers[i]);
        if (!item) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, i, item);
        }
    }
    text = list ? PyObject_Repr(list) : NULL;
    Py_XDECREF(list);
    return text;
}

/* RuntimeError with one list in it; `format` has one %U. -1. */
static int complain(const char *format, const int64_t *numbers, int n) {
    PyObject *text = show(numbers, n);
    if (text) {
        PyErr_Format(PyExc_RuntimeError, format, text);
        Py_DECREF(text);
    }
    return -1;
}

/* One number per spatial dimension; a single one counts for all. */
static int numbers_of(const Arg *arg, int spatial, const char *name, int64_t least, int64_t *out) {
    if (arg->n != 1 && arg->n != spatial) {
        PyObject *text = show(arg->ints, arg->n);
        if (text) {
            PyErr_Format(
                PyExc_RuntimeError,
                "expected %s to be a single integer value or a list of %d values to match the convolution dimensions, but "
                "got %s=%U",
                name, spatial, name, text);
            Py_DECREF(text);
        }
        return -1;
    }
    for (int d = 0; d < spatial; d++) {
        out[d] = arg->ints[arg->n == 1 ? 0 : d];
        if (out[d] < least) {
            PyErr_Format(PyExc_RuntimeError, "%s %s is not supported: got %lld, the least is %lld",
                         least ? "non-positive" : "negative", name, (long long)out[d], (long long)least);
            return -1;
        }
    }
    return 0;
}

static int shape_of(const Arg *stride, const Arg *padding, const Arg *dilation, const Arg *groups, int spatial, ConvShape *s) {
    *s = (ConvShape){.groups = groups->i};
    if (numbers_of(stride, spatial, "stride", 1, s->stride) < 0 || numbers_of(padding, spatial, "padding", 0, s->padding) < 0 ||
        numbers_of(dilation, spatial, "dilation", 1, s->dilation) < 0) {
        return -1;
    }
    if (s->groups < 1) {
        PyErr_Format(PyExc_RuntimeError, "non-positive groups is not supported: got %lld", (long long)s->groups);
        return -1;
    }
    return 0;
}

/* Elements that a kernel spans. -1 with OverflowError. */
static int64_t span(int64_t kernel, int64_t dilation) {
    int64_t n;
    if (__builtin_mul_overflow(kernel - 1, dilation, &n) || n == INT64_MAX) {
        PyErr_SetString(PyExc_OverflowError, "convolution: kernel size and dilation are too large together");
        return -1;
    }
    return n + 1;
}

static Tensor *optional(const Arg *arg) { return arg->kind == ARG_TENSOR ? arg->t : NULL; }

static int check_dtypes(const OpCall *c) {
    const Tensor *x = c->arg[0].t, *w = c->arg[1].t, *bias = optional(&c->arg[2]);
    const char *own = amp_dtype_info[x->v.dtype].name;
    if (bias && bias->v.dtype != x->v.dtype) {
        PyErr_Format(PyExc_RuntimeError,
                     "Input type (%s) and bias type (%s) should be the same. Cast one with .to(), or use autocast", own,
                     amp_dtype_info[bias->v.dtype].name);
        return -1;
    }
    if (w->v.dtype != x->v.dtype) {
        PyErr_Format(
            PyExc_RuntimeError,
            "Input type (%s) and weight type (%s) should be the same: expected scalar type %s but found %s. Cast one with "
            ".to(), or use autocast",
            own, amp_dtype_info[w->v.dtype].name, own, amp_dtype_info[w->v.dtype].name);
        return -1;
    }
    return 0;
}

static int check_dimensions(const Tensor *x, const Tensor *w) {
    if (w->v.ndim < 3 || w->v.ndim > 2 + MOST_SPATIAL) {
        PyErr_Format(PyExc_RuntimeError, "weight should have three to five dimensions (channels, channels, kernel...), got %d",
                     w->v.ndim);
        return -1;
    }
    if (x->v.ndim != w->v.ndim) {
        PyObject *wide = show(w->v.shape, w->v.ndim), *text = show(x->v.shape, x->v.ndim);
        if (wide && text) {
            PyErr_Format(
                PyExc_RuntimeError,
                "Expected %d-dimensional input for %d-dimensional weight %U, but got %d-dimensional input of size %U instead",
                w->v.ndim, w->v.ndim, wide, x->v.ndim, text);
        }
        Py_XDECREF(wide);
        Py_XDECREF(text);
        return -1;
    }
    for (int d = 2; d < w->v.ndim; d++) {
        if (w->v.shape[d] < 1) {
            return complain("kernel size should be greater than zero, but got a weight of size %U", w->v.shape, w->v.ndim);
        }
        if (x->v.shape[d] < 1 && x->v.shape[0]) {
            return complain("Only zero batch or zero channel inputs are supported, but got input shape: %U", x->v.shape,
                            x->v.ndim);
        }
    }
    return 0;
}

static int check_channels(const Tensor *x, const Tensor *w, const Tensor *bias, int64_t groups, bool transposed) {
    int64_t channels, outputs = transposed ? w->v.shape[1] : w->v.shape[0];
    PyObject *weight = show(w->v.shape, w->v.ndim), *other = NULL;
    if (!weight) {
        return -1;
    }
    if (w->v.shape[0] < groups) {
        PyErr_Format(PyExc_RuntimeError,
                     "Given groups=%lld, expected weight to be at least %lld at dimension 0, but got weight of size %U instead",
                     (long long)groups, (long long)groups, weight);
    } else if (w->v.shape[0] % groups) {
        PyErr_Format(
            PyExc_RuntimeError,
            "Given groups=%lld, expected weight to be divisible by %lld at dimension 0, but got weight of size [%U] instead",
            (long long)groups, (long long)groups, weight);
    } else if (__builtin_mul_overflow(transposed ? w->v.shape[0] : w->v.shape[1], transposed ? 1 : groups, &channels) ||
               __builtin_mul_overflow(outputs, transposed ? groups : 1, &outputs)) {
        PyErr_SetString(PyExc_OverflowError, "convolution: groups times channels is too large");
    } else if (x->v.shape[1] != channels) {
        other = show(x->v.shape, x->v.ndim);
        if (other) {
            PyErr_Format(
                PyExc_RuntimeError,
                "Given %s=%lld, weight of size %U, expected input%U to have %lld channels, but got %lld channels instead",
                transposed ? "transposed" : "groups", transposed ? 1LL : (long long)groups, weight, other, (long long)channels,
                (long long)x->v.shape[1]);
        }
    } else if (bias && (bias->v.ndim != 1 || bias->v.shape[0] != outputs)) {
        other = show(bias->v.shape, bias->v.ndim);
        if (other) {
            PyErr_Format(PyExc_RuntimeError,
                         "Given weight of size %U, expected bias to be 1-dimensional with %lld elements, but got bias of size %U "
                         "instead",
                         weight, (long long)outputs, other);
        }
    }
    Py_DECREF(weight);
    Py_XDECREF(other);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- sizes of results ---- */

static int output_sizes(const Tensor *x, const Tensor *w, const ConvShape *s, int64_t *out) {
    int64_t padded[MOST_SPATIAL], spans[MOST_SPATIAL];
    bool fits = true;
    int spatial = w->v.ndim - 2;
    for (int d = 0; d < spatial; d++) {
        spans[d] = span(w->v.shape[d + 2], s->dilation[d]);
        if (spans[d] < 0) {
            return -1;
        }
        if (s->padding[d] > (INT64_MAX - x->v.shape[d + 2]) / 2) {
            PyErr_SetString(PyExc_OverflowError, "convolution: the padding is too large");
            return -1;
        }
        padded[d] = x->v.shape[d + 2] + 2 * s->padding[d];
        fits &= padded[d] >= spans[d];
        out[d] = (padded[d] - spans[d]) / s->stride[d] + 1;
    }
    if (fits) {
        return 0;
    }
    PyObject *size = show(padded, spatial), *kernel = show(spans, spatial);
    if (size && kernel) {
        PyErr_Format(
            PyExc_RuntimeError,
            "Calculated padded input size per channel: %U. Kernel size: %U. Kernel size can't be greater than actual input "
            "size",
            size, kernel);
    }
    Py_XDECREF(size);
    Py_XDECREF(kernel);
    return -1;
}

static int transposed_sizes(const Tensor *x, const Tensor *w, const ConvShape *s, const int64_t *extra, int64_t *out) {
    int spatial = w->v.ndim - 2;
    bool some = true;
    for (int d = 0; d < spatial; d++) {
        int64_t n = span(w->v.shape[d + 2], s->dilation[d]), steps, twice;
        if (n < 0) {
            return -1;
        }
        if (extra[d] >= s->stride[d] && extra[d] >= s->dilation[d] && x->v.shape[0]) {
            PyErr_Format(
                PyExc_RuntimeError,
                "output padding must be smaller than either stride or dilation, but got output_padding %lld, stride %lld, "
                "dilation %lld",
                (long long)extra[d], (long long)s->stride[d], (long long)s->dilation[d]);
            return -1;
        }
        if (__builtin_mul_overflow(x->v.shape[d + 2] - 1, s->stride[d], &steps) || __builtin_add_overflow(n, steps, &n) ||
            __builtin_add_overflow(n, extra[d], &n) || __builtin_mul_overflow(s->padding[d], 2, &twice)) {
            PyErr_SetString(PyExc_OverflowError, "transposed convolution: the output is too large");
            return -1;
        }
        out[d] = n - twice;
        some &= out[d] >= 0;
    }
    if (some) {
        return 0;
    }
    PyObject *size = show(x->v.shape + 2, spatial), *result = show(out, spatial);
    if (size && result) {
        PyErr_Format(PyExc_RuntimeError,
                     "Given input size per channel: %U. Calculated output size per channel: %U. Output size is too small", size,
                     result);
    }
    Py_XDECREF(size);
    Py_XDECREF(result);
    return -1;
}

/* ---- the slot ---- */

/* A stride leads from window to window, a dilation from one element of the kernel to the next: where there is no next one, any number is
 * 1, and all that is left stays inside the padded image, whose size fits. */
static void drop_idle_steps(ConvShape *s, int spatial, const int64_t *windows, const int64_t *kernel) {
    for (int d = 0; d < spatial; d++) {
        s->stride[d] = windows[d] <= 1 ? 1 : s->stride[d];
        s->dilation[d] = kernel[d] <= 1 ? 1 : s->dilation[d];
    }
}

/* out = the convolution `op` of a and b; both are made dense. 0 or -1. */
static int form(OpId op, Tensor *a, Tensor *b, Tensor *bias, const ConvShape *shape, Tensor *out, const char *name) {
    Call call;
    amp_call_init(&call, op);
    Status status = amp_product_numerics(out->v.device, out->v.dtype, PRODUCT_CONV, PRECISION_AS_SET, &call.numerics);
    if (status) {
        return amp_raise(status, name);
    }
    Tensor *x = raw_contiguous(a), *y = x ? raw_contiguous(b) : NULL;
    int failed = -1;
    if (y) {
        ConvShape s = *shape;
        const View *weight = op == OP_conv_weight ? &out->v : &y->v, *image = op == OP_convolution ? &out->v : &x->v;
        const View *windows = op == OP_convolution ? &out->v : &x->v;
        drop_idle_steps(&s, weight->ndim - 2, windows->shape + 2, weight->shape + 2);
        int64_t taps = weight->shape[0] ? weight->numel / weight->shape[0] : 0;
        call.nin = 3;
        call.nout = 1;
        call.in[0] = &x->v;
        call.in[1] = &y->v;
        call.in[2] = bias ? &bias->v : NULL;
        call.out[0] = &out->v;
        call.extra = &s;
        failed = run_slot(out->v.device, AMP_BACKEND_SLOT(out->v.device, conv), &call, image->numel * (taps / 4 + 1), name);
    }
    Py_XDECREF(x);
    Py_XDECREF(y);
    return failed;
}

enum { INPUT, WEIGHT, BIAS, STRIDE, PADDING, DILATION, TRANSPOSED, OUTPUT_PADDING, GROUPS };

int run_CONVOLUTION(OpCall *c) {
    Tensor *x = c->arg[INPUT].t, *w = c->arg[WEIGHT].t, *bias = optional(&c->arg[BIAS]);
    bool transposed = c->arg[TRANSPOSED].i != 0;
    ConvShape s;
    int64_t shape[2 + MOST_SPATIAL], extra[MOST_SPATIAL];
    if (check_dtypes(c) < 0 || check_dimensions(x, w) < 0) {
        return -1;
    }
    int nd = w->v.ndim, device = common_device(c);
    if (device < 0 || shape_of(&c->arg[STRIDE], &c->arg[PADDING], &c->arg[DILATION], &c->arg[GROUPS], nd - 2, &s) < 0 ||
        numbers_of(&c->arg[OUTPUT_PADDING], nd - 2, "output_padding", 0, extra) < 0 ||
        check_channels(x, w, bias, s.groups, transposed) < 0) {
        return -1;
    }
    shape[0] = x->v.shape[0];
    shape[1] = transposed ? w->v.shape[1] * s.groups : w->v.shape[0];
    if ((transposed ? transposed_sizes(x, w, &s, extra, shape + 2) : output_sizes(x, w, &s, shape + 2)) < 0) {
        return -1;
    }
    Tensor *out = result_new(c, 0, nd, shape, x->v.dtype, device, ALIAS_NEVER);
    return out ? form(transposed ? OP_conv_input : OP_convolution, x, w, bias, &s, out, c->row->name) : -1;
}

/* conv_input, conv_weight: the gradient that is missing between the two given. Only derivatives call these, with sizes that belong
 * together; a kernel stays inside its tensors whatever they are. */
int run_CONV_GRADIENT(OpCall *c) {
    Tensor *grad = c->arg[0].t, *other = c->arg[1].t;
    bool weight = c->row->op == OP_conv_weight;
    const Arg *size = &c->arg[2];
    int nd = grad->v.ndim;
    ConvShape s;
    int64_t shape[2 + MOST_SPATIAL];
    if (nd < 3 || nd > 2 + MOST_SPATIAL || other->v.ndim != nd || size->n != nd - 2 || grad->v.dtype != other->v.dtype) {
        PyErr_Format(PyExc_RuntimeError, "%s: gradient and operand must have the same number of dimensions and one dtype",
                     c->row->name);
        return -1;
    }
    int device = common_device(c);
    if (device < 0 || shape_of(&c->arg[3], &c->arg[4], &c->arg[5], &c->arg[6], nd - 2, &s) < 0) {
        return -1;
    }
    int64_t channels = grad->v.shape[1];
    bool fits = weight ? grad->v.shape[0] == other->v.shape[0] && other->v.shape[1] % s.groups == 0
                       : channels == other->v.shape[0];
    if (!fits || channels % s.groups) {
        PyErr_Format(PyExc_RuntimeError, "%s: channels and groups of gradient and operand disagree", c->row->name);
        return -1;
    }
    shape[0] = weight ? channels : grad->v.shape[0];
    shape[1] = weight ? other->v.shape[1] / s.groups : other->v.shape[1] * s.groups;
    memcpy(shape + 2, size->ints, (size_t)(nd - 2) * sizeof *shape);
    Tensor *out = result_new(c, 0, nd, shape, grad->v.dtype, device, ALIAS_NEVER);
    return out ? form((OpId)c->row->op, grad, other, NULL, &s, out, c->row->name) : -1;
}

/* ---- what users call ---- */

int run_CONVOLUTION_ALIAS(OpCall *c) {
    Arg arg[MAX_ARGS];
    memcpy(arg, c->arg, (GROUPS + 1) * sizeof *arg);
    return result_set(c, run_op_tensor(OP_convolution, arg));
}

static int spatial_of(const OpRow *row) {
    switch (row->op) {
    case OP_conv1d:
    case OP_conv1d_padding:
    case OP_conv_transpose1d: return 1;
    case OP_conv2d:
    case OP_conv2d_padding:
    case OP_conv_transpose2d: return 2;
    default: return 3;
    }
}

/* The input with a batch dimension, borrowed from the frame. */
static Tensor *batched(Back *b, const OpCall *c, int spatial) {
    Tensor *x = c->arg[0].t;
    if (x->v.ndim == spatial + 1) {
        return unsqueeze(b, x, 0);
    }
    if (x->v.ndim != spatial + 2) {
        PyObject *text = show(x->v.shape, x->v.ndim);
        if (text) {
            PyErr_Format(PyExc_RuntimeError, "Expected %dD (unbatched) or %dD (batched) input to %s, but got input of size: %U",
                         spatial + 1, spatial + 2, c->row->name, text);
            Py_DECREF(text);
        }
        b->failed = true;
        return NULL;
    }
    return x;
}

static int check_weight(const OpCall *c, int spatial) {
    const Tensor *w = c->arg[1].t;
    if (w->v.ndim == spatial + 2) {
        return 0;
    }
    PyErr_Format(PyExc_RuntimeError, "%s: expected a weight of %d dimensions, but got %d", c->row->name, spatial + 2, w->v.ndim);
    return -1;
}

static Tensor *without_batch(Back *b, const OpCall *c, Tensor *y) {
    return y && y->v.ndim > c->arg[0].t->v.ndim ? reshape(b, y, y->v.ndim - 1, y->v.shape + 1) : y;
}

static int convolve(OpCall *c, Arg padding, bool transposed, Arg output_padding, Arg dilation, Arg groups) {
    int spatial = spatial_of(c->row);
    if (check_dtypes(c) < 0 || check_weight(c, spatial) < 0) {
        return -1;
    }
    Back frame, *b = &frame;
    back_begin(b);
    Arg arg[MAX_ARGS] = {arg_tensor(batched(b, c, spatial)),
                         c->arg[1],
                         c->arg[2],
                         c->arg[3],
                         padding,
                         dilation,
                         arg_bool(transposed),
                         output_padding,
                         groups};
    return frame_end(c, b, b->failed ? NULL : without_batch(b, c, op_args(b, OP_convolution, arg)));
}

int run_CONV(OpCall *c) {
    int64_t none[1] = {0};
    return convolve(c, c->arg[4], false, arg_ints(none, 1), c->arg[5], c->arg[6]);
}

int run_CONV_TRANSPOSE(OpCall *c) { return convolve(c, c->arg[4], true, c->arg[5], c->arg[7], c->arg[6]); }

/* "same": half of what the kernel needs on either side; where that is odd, the input gets one more zero behind. */
static Tensor *pad_to_same(Back *b, const OpCall *c, int spatial, int64_t *padding) {
    Tensor *x = batched(b, c, spatial);
    int64_t stride[MOST_SPATIAL], dilation[MOST_SPATIAL];
    bool warned = false;
    if (!x || numbers_of(&c->arg[3], spatial, "stride", 1, stride) < 0 ||
        numbers_of(&c->arg[5], spatial, "dilation", 1, dilation) < 0) {
        b->failed = true;
        return NULL;
    }
    for (int d = 0; d < spatial; d++) {
        if (stride[d] != 1) {
            PyErr_SetString(PyExc_RuntimeError,
                            "padding='same' is not supported for strided convolutions. Give the padding in numbers");
            b->failed = true;
            return NULL;
        }
    }
    for (int d = 0; d < spatial && x; d++) {
        int64_t total = span(c->arg[1].t->v.shape[d + 2], dilation[d]) - 1, shape[2 + MOST_SPATIAL];
        if (total == -2) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_RuntimeError, "padding='same' needs a kernel with at least one element in each dimension");
            }
            b->failed = true;
            return NULL;
        }
        padding[d] = total < 0 ? 0 : total / 2;
        if (total % 2) {
            if (!warned &&
                PyErr_WarnEx(PyExc_UserWarning,
                             "Using padding='same' with even kernel lengths and odd dilation may require a zero-padded copy "
                             "of the input be created: give an odd kernel, or the padding in numbers",
                             1) < 0) {
                b->failed = true;
                return NULL;
            }
            warned = true;
            memcpy(shape, x->v.shape, (size_t)x->v.ndim * sizeof *shape);
            shape[d + 2] = 1;
            Tensor *parts[2] = {x, constant(b, x, x->v.ndim, shape, 0.0)};
            x = cat(b, 2, parts, d + 2);
        }
    }
    return x;
}

static int conv_same(OpCall *c) {
    static const OpId rows[] = {OP_conv1d, OP_conv2d, OP_conv3d};
    int spatial = spatial_of(c->row);
    int64_t padding[MOST_SPATIAL];
    if (check_weight(c, spatial) < 0) {
        return -1;
    }
    Back frame, *b = &frame;
    back_begin(b);
    Arg arg[MAX_ARGS] = {arg_tensor(pad_to_same(b, c, spatial, padding)),
                         c->arg[1],
                         c->arg[2],
                         c->arg[3],
                         arg_ints(padding, spatial),
                         c->arg[5],
                         c->arg[6]};
    return frame_end(c, b, b->failed ? NULL : without_batch(b, c, op_args(b, rows[spatial - 1], arg)));
}

int run_CONV_PADDED(OpCall *c) {
    static const OpId rows[] = {OP_conv1d, OP_conv2d, OP_conv3d};
    const char *text = c->arg[4].s;
    if (!strcmp(text, "same")) {
        return conv_same(c);
    }
    if (strcmp(text, "valid")) {
        PyErr_Format(PyExc_RuntimeError, "Invalid padding string: '%s'. It is 'same' or 'valid'", text);
        return -1;
    }
    int64_t none[1] = {0};
    Arg arg[MAX_ARGS] = {c->arg[0], c->arg[1], c->arg[2], c->arg[3], arg_ints(none, 1), c->arg[5], c->arg[6]};
    return result_set(c, run_op_tensor(rows[spatial_of(c->row) - 1], arg));
}

/* conv_tbc: input (time, batch, channels), weight (kernel, in, out). The sequence's dimension leads. */
static int check_tbc(const OpCall *c) {
    const Tensor *x = c->arg[0].t, *w = c->arg[1].t, *bias = c->arg[2].t;
    const char *wrong = x->v.ndim != 3      ? "Input must have 3 dims: time, batch, in_channel"
                        : w->v.ndim != 3    ? "Weight tensor must have 3 dims: kernel_width, in_channels, out_channels"
                        : bias->v.ndim != 1 ? "Bias must be 1-D"
                        : x->v.shape[2] != w->v.shape[1]    ? "Input dim 2 (input channels) is not == dim 1 in the weight tensor"
                        : bias->v.shape[0] != w->v.shape[2] ? "Bias size must equal dim 2 in the weight tensor (output channels)"
                                                            : NULL;
    if (wrong) {
        PyErr_Format(PyExc_RuntimeError, "conv_tbc: %s", wrong);
        return -1;
    }
    if (x->v.dtype != w->v.dtype) {
        PyErr_Format(PyExc_RuntimeError, "conv_tbc: self and mat2 must have the same dtype, but got %s and %s",
                     amp_dtype_info[x->v.dtype].name, amp_dtype_info[w->v.dtype].name);
        return -1;
    }
    return 0;
}

static Tensor *permuted(Back *b, Tensor *x, int64_t first, int64_t second, int64_t third) {
    int64_t dims[3] = {first, second, third};
    return x && !b->failed ? back_own(b, call_permute(x, dims)) : NULL;
}

int run_CONV_TBC(OpCall *c) {
    int64_t one[1] = {1}, none[1] = {0}, pad[1] = {c->arg[3].i};
    if (check_tbc(c) < 0) {
        return -1;
    }
    Back frame, *b = &frame;
    back_begin(b);
    Arg arg[MAX_ARGS] = {arg_tensor(permuted(b, c->arg[0].t, 1, 2, 0)),
                         arg_tensor(permuted(b, c->arg[1].t, 2, 1, 0)),
                         arg_tensor(cast(b, c->arg[2].t, c->arg[0].t->v.dtype)),
                         arg_ints(one, 1),
                         arg_ints(pad, 1),
                         arg_ints(one, 1),
                         arg_bool(false),
                         arg_ints(none, 1),
                         arg_int(1)};
    Tensor *y = permuted(b, op_args(b, OP_convolution, arg), 2, 0, 1);
    return frame_end(c, b, y && !b->failed ? back_own(b, call_contiguous(y)) : NULL);
}

/* ---- windows: im2col, col2im ---- */

/* Two numbers, of at least `least`. */
static int pair_of(const Arg *arg, const char *name, int64_t least, int64_t *out) {
    if (arg->n != 1 && arg->n != 2) {
        PyErr_Format(PyExc_RuntimeError, "It is expected %s equals to 2 numbers or one, but got size %d", name, arg->n);
        return -1;
    }
    for (int d = 0; d < 2; d++) {
        out[d] = arg->ints[arg->n == 1 ? 0 : d];
        if (out[d] < least) {
            PyErr_Format(PyExc_RuntimeError, "%s should be %s, but got %lld", name, least ? "greater than zero" : "non-negative",
                         (long long)out[d]);
            return -1;
        }
    }
    return 0;
}

static int window_shape(const OpCall *c, int first, ConvShape *s) {
    *s = (ConvShape){.groups = 1};
    return pair_of(&c->arg[first], "kernel_size", 1, s->kernel) < 0 ||
                   pair_of(&c->arg[first + 1], "dilation", 1, s->dilation) < 0 ||
                   pair_of(&c->arg[first + 2], "padding", 0, s->padding) < 0 ||
                   pair_of(&c->arg[first + 3], "stride", 1, s->stride) < 0
               ? -1
               : 0;
}

/* Windows per dimension of an image of `size`. */
static int count_windows(const int64_t *size, const ConvShape *s, int64_t *count) {
    for (int d = 0; d < 2; d++) {
        int64_t n = span(s->kernel[d], s->dilation[d]);
        if (n < 0) {
            return -1;
        }
        if (s->padding[d] > INT64_MAX / 4 || size[d] > INT64_MAX / 4) {
            PyErr_SetString(PyExc_OverflowError, "the padding is too large");
            return -1;
        }
        int64_t room = size[d] + 2 * s->padding[d] - n;
        count[d] = room < 0 ? 0 : room / s->stride[d] + 1;
        if (count[d] < 1) {
            PyErr_Format(
                PyExc_RuntimeError,
                "Given spatial size %lld x %lld, the windows (kernel_size %lld x %lld) do not fit: the calculated shape of the "
                "array of sliding blocks is too small (non-positive)",
                (long long)size[0], (long long)size[1], (long long)s->kernel[0], (long long)s->kernel[1]);
            return -1;
        }
    }
    return 0;
}

static int run_fold(OpCall *c, Tensor *x, const ConvShape *shape, const int64_t *count, int ndim, const int64_t *out_shape) {
    int device = common_device(c), failed = -1;
    Tensor *out = device < 0 ? NULL : result_new(c, 0, ndim, out_shape, x->v.dtype, device, ALIAS_NEVER);
    Tensor *dense = out ? raw_contiguous(x) : NULL;
    if (dense) {
        ConvShape s = *shape;
        drop_idle_steps(&s, 2, count, s.kernel);
        Call call;
        amp_call_init(&call, c->row->op);
        call.nin = call.nout = 1;
        call.in[0] = &dense->v;
        call.out[0] = &out->v;
        call.nnum = 2;
        call.num[0] = number_int(count[0]);
        call.num[1] = number_int(count[1]);
        call.extra = &s;
        int64_t elements = out->v.numel > dense->v.numel ? out->v.numel : dense->v.numel;
        failed = run_slot(device, AMP_BACKEND_SLOT(device, fold), &call, elements * 8, c->row->name);
        Py_DECREF(dense);
    }
    return failed;
}

int run_IM2COL(OpCall *c) {
    Tensor *x = c->arg[0].t;
    ConvShape s;
    int64_t count[2], shape[3];
    if (x->v.ndim != 4 || x->v.shape[1] == 0 || x->v.shape[2] == 0 || x->v.shape[3] == 0) {
        return complain(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but "
            "got: %U",
            x->v.shape, x->v.ndim);
    }
    if (window_shape(c, 1, &s) < 0 || count_windows(x->v.shape + 2, &s, count) < 0) {
        return -1;
    }
    shape[0] = x->v.shape[0];
    if (__builtin_mul_overflow(s.kernel[0], s.kernel[1], &shape[1]) ||
        __builtin_mul_overflow(shape[1], x->v.shape[1], &shape[1]) || __builtin_mul_overflow(count[0], count[1], &shape[2])) {
        PyErr_SetString(PyExc_OverflowError, "im2col: the result is too large");
        return -1;
    }
    return run_fold(c, x, &s, count, 3, shape);
}

int run_COL2IM(OpCall *c) {
    Tensor *x = c->arg[0].t;
    ConvShape s;
    int64_t count[2], size[2], taps, windows;
    if (x->v.ndim != 3 || x->v.shape[1] == 0 || x->v.shape[2] == 0) {
        return complain(
            "Expected 2D or 3D (batch mode) tensor with possibly 0 batch size and non-zero dimensions for input, but got: %U",
            x->v.shape, x->v.ndim);
    }
    if (pair_of(&c->arg[1], "output_size", 1, size) < 0 || window_shape(c, 2, &s) < 0 || count_windows(size, &s, count) < 0) {
        return -1;
    }
    if (__builtin_mul_overflow(s.kernel[0], s.kernel[1], &taps) || x->v.shape[1] % taps) {
        PyErr_Format(
            PyExc_RuntimeError,
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input.size(1)=%lld "
            "and kernel_size=(%lld, %lld)",
            (long long)x->v.shape[1], (long long)s.kernel[0], (long long)s.kernel[1]);
        return -1;
    }
    if (__builtin_mul_overflow(count[0], count[1], &windows) || x->v.shape[2] != windows) {
        PyErr_Format(
            PyExc_RuntimeError,
            "Given output_size=(%lld, %lld), expected size of input's dimension 2 to match the calculated number of sliding "
            "blocks %lld * %lld, but got input.size(2)=%lld",
            (long long)size[0], (long long)size[1], (long long)count[0], (long long)count[1], (long long)x->v.shape[2]);
        return -1;
    }
    int64_t shape[4] = {x->v.shape[0], x->v.shape[1] / taps, size[0], size[1]};
    return run_fold(c, x, &s, count, 4, shape);
}
