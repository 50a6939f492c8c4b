/* Losses and norms made of other ops. They are written with the shorthands of the derivatives: a Back without a node serves as the frame
 * that owns the temporaries. */
#include "classes.h"

#include <string.h>

#include "../core/autocast.h"
#include "derivatives/derivatives.h"
#include "loss.h"

int frame_end(OpCall *c, Back *b, Tensor *result) {
    Py_XINCREF(result);
    for (int i = 0; i < b->nowned; i++) {
        Py_DECREF(b->owned[i]);
    }
    if (b->owned != b->inline_owned) {
        PyMem_Free(b->owned);
    }
    if (b->failed) {
        Py_CLEAR(result);
    }
    return result_set(c, result);
}

static int reduction_parse(const char *text) {
    static const char *const names[] = {"none", "mean", "sum"};
    for (int i = 0; i < 3; i++) {
        if (!strcmp(text, names[i])) {
            return i;
        }
    }
    if (!strcmp(text, "elementwise_mean")) {
        const char *cure = "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.";
        return PyErr_WarnEx(PyExc_UserWarning, cure, 1) < 0 ? -1 : REDUCE_MEAN;
    }
    PyErr_Format(PyExc_ValueError, "%s is not a valid value for reduction: use 'none', 'mean' or 'sum'", text);
    return -1;
}

static Tensor *reduced(Back *b, Tensor *loss, int reduction) {
    return reduction == REDUCE_MEAN ? op1(b, OP_mean, loss) : reduction == REDUCE_SUM ? op1(b, OP_sum, loss) : loss;
}

/* "[2, 3]" for messages; a new list object. */
static PyObject *shape_list(const Tensor *t) {
    PyObject *size = size_from_dims(t->v.ndim, t->v.shape), *list = size ? PySequence_List(size) : NULL;
    Py_XDECREF(size);
    return list;
}

static int shape_error(PyObject *exception, const char *format, const Tensor *x, const Tensor *y) {
    PyObject *a = shape_list(x), *b = shape_list(y);
    if (a && b) {
        PyErr_Format(exception, format, a, b);
    }
    Py_XDECREF(a);
    Py_XDECREF(b);
    return -1;
}

static bool same_shape(const Tensor *x, const Tensor *y) {
    return x->v.ndim == y->v.ndim && !memcmp(x->v.shape, y->v.shape, (size_t)x->v.ndim * sizeof *x->v.shape);
}

/* max(x, floor) */
static Tensor *at_least(Back *b, Tensor *x, double floor) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), {.kind = ARG_NUMBER, .num = number_float(floor)}};
    return op_args(b, OP_clamp, arg);
}

/* The loss in the dtype of one of its inputs, whatever the others were promoted to. `absent`: no kernel takes these inputs at all. */
static Tensor *loss_in_dtype_of(Back *b, Tensor *loss, const Tensor *x, bool absent) {
    if (loss && amp_is_floating(loss->v.dtype) && amp_is_integral(x->v.dtype)) {
        PyErr_Format(absent ? PyExc_NotImplementedError : PyExc_RuntimeError,
                     "result type %s can't be cast to the desired output type %s: convert it to a float dtype",
                     amp_dtype_info[loss->v.dtype].name, amp_dtype_info[x->v.dtype].name);
        b->failed = true;
        return NULL;
    }
    return loss ? cast(b, loss, x->v.dtype) : NULL;
}

/* ---- distances ---- */

/* x - t. Beside a number that is no bool, a bool is one: what `-` refuses is meant here. */
static Tensor *distance(Back *b, Tensor *x, Tensor *t) {
    Tensor *both[2] = {x, t};
    bool mixed = (x->v.dtype == AMP_BOOL) != (t->v.dtype == AMP_BOOL);
    int common = mixed ? promote_tensors(2, both) : 0;
    return mixed ? sub(b, cast(b, x, common), cast(b, t, common)) : sub(b, x, t);
}

int run_MSE_LOSS(OpCall *c) {
    int reduction = reduction_parse(c->arg[2].s);
    if (reduction < 0) {
        return -1;
    }
    if (amp_is_complex(c->arg[0].t->v.dtype) || amp_is_complex(c->arg[1].t->v.dtype)) {
        PyErr_SetString(PyExc_NotImplementedError,
                        "\"mse\" not implemented for complex tensors: take the mean of (input - target).abs() ** 2");
        return -1;
    }
    Back frame, *b = &frame;
    uint8_t recording = amp_grad_enabled;
    back_begin(b);
    amp_grad_enabled = 0; /* the row has a derivative of its own */
    Tensor *x = c->arg[0].t, *t = c->arg[1].t;
    bool one_step = x->v.dtype == t->v.dtype && (x->v.dtype == AMP_FLOAT32 || x->v.dtype == AMP_FLOAT64); /* else each rounds */
    Tensor *squares = one_step ? op2(b, OP_squared_difference, x, t) : square(b, distance(b, x, t)),
           *loss = reduced(b, squares, reduction);
    amp_grad_enabled = recording;
    return frame_end(c, b, loss);
}

int run_COMPOSE_L1(OpCall *c) {
    int reduction = reduction_parse(c->arg[2].s);
    if (reduction < 0) {
        return -1;
    }
    Back frame, *b = &frame;
    back_begin(b);
    return frame_end(c, b, reduced(b, op1(b, OP_abs, sub(b, c->arg[0].t, c->arg[1].t)), reduction));
}

/* Of the difference: near times its square up to delta, a line of slope `far` beyond. */
static Tensor *huber(Back *b, const OpCall *c, double delta, double near, double far) {
    Arg arg[MAX_ARGS] = {arg_tensor(distance(b, c->arg[0].t, c->arg[1].t)), arg_float(delta), arg_float(near), arg_float(far)};
    return op_args(b, OP_huber_kernel, arg);
}

int run_COMPOSE_SMOOTH_L1(OpCall *c) {
    double beta = c->arg[3].f;
    int reduction = reduction_parse(c->arg[2].s);
    if (reduction < 0) {
        return -1;
    }
    if (beta < 0.0) {
        PyErr_SetString(PyExc_RuntimeError, "smooth_l1_loss does not support negative values for beta. Give beta >= 0");
        return -1;
    }
    if (beta == 0.0) {
        return run_COMPOSE_L1(c);
    }
    Back frame, *b = &frame;
    back_begin(b);
    return frame_end(c, b, reduced(b, huber(b, c, beta, 0.5 / beta, 1.0), reduction));
}

int run_COMPOSE_HUBER(OpCall *c) {
    double delta = c->arg[3].f;
    int reduction = reduction_parse(c->arg[2].s);
    if (reduction < 0) {
        return -1;
    }
    if (!(delta > 0.0)) {
        PyErr_SetString(PyExc_RuntimeError, "huber_loss does not support non-positive values for delta. Give delta > 0");
        return -1;
    }
    Back frame, *b = &frame;
    back_begin(b);
    Tensor *loss = reduced(b, huber(b, c, delta, 0.5, delta), reduction);
    const Tensor *x = c->arg[0].t; /* the CPU's result has the input's dtype, CUDA's the promoted one */
    return frame_end(c, b, x->v.device == AMP_CPU ? loss_in_dtype_of(b, loss, x, amp_is_integral(c->arg[1].t->v.dtype)) : loss);
}

/* ---- class numbers ---- */

/* A target of class numbers, checked: `safe` has 0 where `ignored` is true, so that it can index. */
typedef struct Classes {
    Tensor *safe;    /* int64, target's shape */
    Tensor *ignored; /* bool, or NULL: none is ignored */
    int64_t kept;    /* how many are not ignored */
} Classes;

static int check_nll_shapes(const Tensor *input, const Tensor *target, const Tensor *weight) {
    int64_t nclass = input->v.ndim == 1 ? input->v.shape[0] : input->v.ndim ? input->v.shape[1] : 0;
    if (input->v.ndim == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "Expected 1 or more dimensions (got 0): the input has one per batch, then one of classes");
        return -1;
    }
    if (input->v.ndim == 1 ? target->v.ndim > 1 || target->v.numel != 1 : target->v.ndim == 0) {
        const bool counts = (input->v.ndim > 1 || target->v.ndim == 1) && amp_is_integral(target->v.dtype); /* of the batches */
        return shape_error(counts ? PyExc_ValueError : PyExc_RuntimeError,
                           "size mismatch (got input: %S, target: %S): the target is the input's shape without the classes",
                           input, target);
    }
    if (input->v.ndim > 1 && input->v.shape[0] != target->v.shape[0]) {
        PyErr_Format(PyExc_ValueError, "Expected input batch_size (%lld) to match target batch_size (%lld).",
                     (long long)input->v.shape[0], (long long)target->v.shape[0]);
        return -1;
    }
    if (input->v.ndim == 2 && target->v.ndim != 1) {
        PyErr_SetString(PyExc_RuntimeError,
                        "0D or 1D target tensor expected, multi-target not supported: give one class number per row");
        return -1;
    }
    bool rest = input->v.ndim <= 2 ||
                (target->v.ndim == input->v.ndim - 1 &&
                 !memcmp(target->v.shape + 1, input->v.shape + 2, (size_t)(input->v.ndim - 2) * sizeof(int64_t)));
    if (!rest) {
        return shape_error(PyExc_RuntimeError,
                           "Expected target size to be that of the input without its classes (input %S), got %S", input, target);
    }
    if (target->v.dtype != AMP_INT64 && target->v.dtype != AMP_UINT8) {
        PyErr_Format(PyExc_RuntimeError, "expected target dtype to be Long or Byte, but got %s: convert it with target.long()",
                     amp_dtype_info[target->v.dtype].name);
        return -1;
    }
    if (weight && (weight->v.ndim != 1 || weight->v.shape[0] != nclass)) {
        PyObject *shape = shape_list(weight);
        if (shape) {
            PyErr_Format(
                PyExc_RuntimeError,
                "weight tensor should be defined either for all %lld classes or no classes but got weight tensor of shape: %S",
                (long long)nclass, shape);
            Py_DECREF(shape);
        }
        return -1;
    }
    return 0;
}

/* Every class number in [0, nclass) or ignored; counts those kept. 0 or -1 with IndexError. */
static int check_range(const Tensor *contiguous, int64_t nclass, int64_t ignore, int64_t *kept) {
    const int64_t *t = (const int64_t *)(const void *)contiguous->v.data;
    *kept = 0;
    for (int64_t i = 0; t && i < contiguous->v.numel; i++) {
        if (t[i] == ignore) {
            continue;
        }
        if (t[i] < 0 || t[i] >= nclass) {
            PyErr_Format(PyExc_IndexError, "Target %lld is out of bounds. The input has %lld classes", (long long)t[i],
                         (long long)nclass);
            return -1;
        }
        ++*kept;
    }
    return 0;
}

/* The shape is the target's, but none for the one number of an input without a batch. */
static int classes_of(Back *b, const Tensor *input, Tensor *target, int64_t ignore, Classes *out) {
    const int64_t nclass = input->v.shape[input->v.ndim == 1 ? 0 : 1];
    Tensor *numbers = back_own(b, raw_cast(target, AMP_INT64)), *flat = numbers ? back_own(b, raw_contiguous(numbers)) : NULL;
    flat = flat && input->v.ndim == 1 && flat->v.ndim ? reshape(b, flat, 0, NULL) : flat;
    if (!flat || check_range(flat, nclass, ignore, &out->kept) < 0) {
        b->failed = true;
        return -1;
    }
    out->safe = flat;
    out->ignored = NULL;
    if (out->kept < flat->v.numel) {
        out->ignored = op1k(b, OP_eq, flat, (double)ignore);
        out->safe = zero_where(b, flat, out->ignored);
    }
    return out->safe ? 0 : -1;
}

/* table[class] for a 1-d table, of the target's shape. */
static Tensor *look_up(Back *b, Tensor *table, Tensor *classes) {
    int64_t flat[1] = {classes->v.numel};
    Tensor *picked = gather(b, table, 0, reshape(b, classes, 1, flat));
    return reshape(b, picked, classes->v.ndim, classes->v.shape);
}

static Tensor *without(Back *b, Tensor *x, Tensor *ignored) { return ignored ? zero_where(b, x, ignored) : x; }

/* The mean over what is not ignored, weighted by `w` (NULL: all alike); loss already carries the weights. */
static Tensor *class_mean(Back *b, Tensor *loss, Tensor *w, const Classes *k) {
    if (!w && !k->ignored) {
        return op1(b, OP_mean, loss);
    }
    Tensor *sum = op1(b, OP_sum, wide(b, loss));
    Tensor *mean = w ? divide(b, sum, op1(b, OP_sum, wide(b, w))) : op1k(b, OP_div, sum, (double)k->kept);
    return loss ? cast(b, mean, loss->v.dtype) : NULL;
}

/* -input[class] weight[class], reduced; shapes are checked. */
static Tensor *nll(Back *b, Tensor *input, Tensor *weight, const Classes *k, int reduction) {
    int dim = input->v.ndim == 1 ? 0 : 1;
    Tensor *picked;
    if (input->v.ndim == 1) {
        picked = look_up(b, input, k->safe);
    } else {
        picked = gather(b, input, dim, unsqueeze(b, k->safe, dim));
        picked = reshape(b, picked, k->safe->v.ndim, k->safe->v.shape);
    }
    Tensor *w = weight ? without(b, look_up(b, weight, k->safe), k->ignored) : NULL;
    Tensor *loss = neg(b, w ? mul(b, picked, w) : picked);
    loss = without(b, loss, k->ignored);
    return reduction == REDUCE_MEAN ? class_mean(b, loss, w, k) : reduced(b, loss, reduction);
}

int run_COMPOSE_NLL(OpCall *c) {
    Tensor *input = c->arg[0].t, *target = c->arg[1].t, *weight = c->arg[2].kind == ARG_TENSOR ? c->arg[2].t : NULL;
    int reduction = reduction_parse(c->arg[4].s);
    if (reduction < 0 || common_device(c) < 0 || check_nll_shapes(input, target, weight) < 0 || needs_no_gradient(c, 2) < 0) {
        return -1;
    }
    if (weight && weight->v.dtype != input->v.dtype) {
        PyErr_Format(PyExc_RuntimeError, "nll_loss: expected scalar type %s but found %s: give the weight the input's dtype",
                     amp_dtype_info[input->v.dtype].name, amp_dtype_info[weight->v.dtype].name);
        return -1;
    }
    Back frame, *b = &frame;
    Classes k;
    back_begin(b);
    bool ok = classes_of(b, input, target, c->arg[3].i, &k) == 0;
    return frame_end(c, b, ok ? nll(b, input, weight, &k, reduction) : NULL);
}

/* ---- cross entropy ---- */

/* log softmax over the classes, in the input's dtype unless autocast says fp32 */
static Tensor *log_probabilities(Back *b, Tensor *input) {
    Arg arg[MAX_ARGS] = {arg_tensor(input), arg_int(input->v.ndim == 1 ? 0 : 1)};
    return op_args(b, OP_log_softmax, arg);
}

/* A weight per class, shaped to meet (N, C, ...). */
static Tensor *weight_along(Back *b, Tensor *weight, const Tensor *input) {
    int64_t shape[AMP_MAX_DIMS];
    for (int d = 0; d < input->v.ndim; d++) {
        shape[d] = d == 1 ? input->v.shape[1] : 1;
    }
    return input->v.ndim == 1 ? weight : reshape(b, weight, input->v.ndim, shape);
}

static uint64_t class_bit(const Tensor *input) { return input->v.ndim == 1 ? 1 : 2; }

static Tensor *entropy_of_probabilities(Back *b, Tensor *input, Tensor *target, Tensor *weight, double smoothing, int reduction) {
    int64_t nclass = input->v.shape[input->v.ndim == 1 ? 0 : 1];
    Tensor *logp = log_probabilities(b, input);
    if (smoothing > 0.0) {
        target = plus(b, scale(b, target, 1.0 - smoothing), smoothing / (double)nclass);
    }
    Tensor *terms = mul(b, logp, target);
    if (weight) {
        terms = mul(b, terms, weight_along(b, weight, input));
    }
    if (reduction == REDUCE_NONE) {
        return neg(b, sum_dims(b, terms, class_bit(input), false));
    }
    Tensor *sum = neg(b, op1(b, OP_sum, terms));
    return reduction == REDUCE_SUM ? sum : op1k(b, OP_div, sum, (double)input->v.numel / (double)nclass);
}

/* The share `smoothing` of each target is spread evenly over all classes. */
static Tensor *smoothed(Back *b, Tensor *logp, Tensor *likelihood, Tensor *weight, const Classes *k, double smoothing,
                        int reduction) {
    Tensor *terms = logp, *w = NULL;
    if (weight) {
        terms = mul(b, logp, weight_along(b, weight, logp));
        w = without(b, look_up(b, weight, k->safe), k->ignored);
    }
    Tensor *even = neg(b, sum_dims(b, terms, class_bit(logp), false));
    even = without(b, reshape(b, even, k->safe->v.ndim, k->safe->v.shape), k->ignored);
    even = reduction == REDUCE_MEAN ? class_mean(b, even, w, k) : reduced(b, even, reduction);
    double nclass = (double)logp->v.shape[logp->v.ndim == 1 ? 0 : 1];
    return add(b, scale(b, likelihood, 1.0 - smoothing), scale(b, even, smoothing / nclass));
}

static int check_probabilities(const Tensor *input, const Tensor *target, const Tensor *weight, int64_t ignore) {
    int64_t nclass = input->v.ndim ? input->v.shape[input->v.ndim == 1 ? 0 : 1] : 0;
    if (!amp_is_floating(target->v.dtype)) {
        PyErr_Format(PyExc_RuntimeError, "Expected floating point type for target with class probabilities, got %s",
                     amp_dtype_info[target->v.dtype].name);
        return -1;
    }
    if (input->v.ndim == 0) {
        PyErr_SetString(PyExc_RuntimeError, "cross_entropy: the input needs a dimension of classes, got a 0-dim tensor");
        return -1;
    }
    if (ignore >= 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "ignore_index is not supported for floating point target: leave it out, or give class numbers");
        return -1;
    }
    if (weight && (weight->v.ndim != 1 || weight->v.shape[0] != nclass)) {
        PyErr_Format(PyExc_RuntimeError,
                     "cross_entropy: weight tensor should be defined either for all %lld classes or no classes",
                     (long long)nclass);
        return -1;
    }
    return 0;
}

/* Through the ops log_softmax and nll_loss, because autocast has a policy for each. */
static Tensor *entropy_of_classes(Back *b, const OpCall *c, int reduction) {
    Tensor *input = c->arg[0].t, *weight = c->arg[2].kind == ARG_TENSOR ? c->arg[2].t : NULL;
    double smoothing = c->arg[5].f;
    Tensor *logp = log_probabilities(b, input);
    Arg arg[MAX_ARGS] = {arg_tensor(logp), c->arg[1], c->arg[2], c->arg[3], c->arg[4]};
    Tensor *likelihood = logp ? op_args(b, OP_nll_loss, arg) : NULL;
    if (!likelihood || smoothing == 0.0) {
        return likelihood;
    }
    Classes k;
    if (classes_of(b, input, c->arg[1].t, c->arg[3].i, &k) < 0) {
        return NULL;
    }
    return smoothed(b, logp, likelihood, weight, &k, smoothing, reduction);
}

/* Whether one kernel does it all: the CPU, where autocast has decided already; odd dtypes take the ops. */
static bool entropy_in_one(const Tensor *input, const Tensor *target, const Tensor *weight) {
    int dtype = input->v.dtype;
    bool floating = dtype == AMP_FLOAT32 || dtype == AMP_FLOAT64 || amp_is_16bit(dtype);
    bool plain_weight = !weight || weight->v.dtype == dtype;
    return floating && plain_weight && input->v.device == AMP_CPU && target->v.device == AMP_CPU && input->v.numel > 0;
}

static int entropy_by_rows(OpCall *c, int reduction) {
    Tensor *input = c->arg[0].t, *numbers = raw_cast(c->arg[1].t, AMP_INT64), *flat = numbers ? raw_contiguous(numbers) : NULL;
    int64_t kept;
    PyObject *pair = NULL;
    if (flat && check_range(flat, input->v.shape[input->v.ndim == 1 ? 0 : 1], c->arg[3].i, &kept) == 0) {
        Arg arg[MAX_ARGS] = {c->arg[0], arg_tensor(flat), c->arg[2], c->arg[3], arg_int(reduction), c->arg[5]};
        pair = run_op(&amp_rows[OP_cross_entropy_rows], arg, false);
    }
    Py_XDECREF(numbers);
    Py_XDECREF(flat);
    Tensor *loss = pair ? (Tensor *)Py_NewRef(PyTuple_GET_ITEM(pair, 0)) : NULL;
    Py_XDECREF(pair);
    return result_set(c, loss);
}

int run_COMPOSE_CROSS_ENTROPY(OpCall *c) {
    Tensor *input = c->arg[0].t, *target = c->arg[1].t, *weight = c->arg[2].kind == ARG_TENSOR ? c->arg[2].t : NULL;
    double smoothing = c->arg[5].f;
    int reduction = reduction_parse(c->arg[4].s);
    bool probabilities = same_shape(input, target);
    if (reduction < 0 || common_device(c) < 0) {
        return -1;
    }
    if (!(smoothing >= 0.0 && smoothing <= 1.0)) {
        PyObject *number = PyFloat_FromDouble(smoothing);
        PyErr_Format(PyExc_RuntimeError, "label_smoothing must be between 0.0 and 1.0. Got: %S", number ? number : Py_None);
        Py_XDECREF(number);
        return -1;
    }
    if (probabilities ? check_probabilities(input, target, weight, c->arg[3].i) < 0
                      : check_nll_shapes(input, target, weight) < 0 || needs_no_gradient(c, 2) < 0) {
        return -1;
    }
    if (!probabilities && entropy_in_one(input, target, weight)) {
        return entropy_by_rows(c, reduction);
    }
    Back frame, *b = &frame;
    back_begin(b);
    return frame_end(c, b,
                     probabilities ? entropy_of_probabilities(b, input, target, weight, smoothing, reduction)
                                   : entropy_of_classes(b, c, reduction));
}

/* ---- binary cross entropy ---- */

/* 0 if all elements are in [0, 1] (NaN is not), else -1 with an exception: `which` they are, and the cure. */
static int check_unit_range(Back *b, Tensor *x, const char *which, const char *cure) {
    Tensor *inside = op1(b, OP_all, op2(b, OP_logical_and, op1k(b, OP_ge, x, 0.0), op1k(b, OP_le, x, 1.0)));
    PyObject *item = inside && inside->v.device != AMP_META ? tensor_item(inside) : NULL;
    int ok = item ? PyObject_IsTrue(item) : inside && !PyErr_Occurred() ? 1 : -1;
    Py_XDECREF(item);
    if (ok == 0) {
        PyErr_Format(PyExc_RuntimeError, "binary_cross_entropy: all elements of %s should be between 0 and 1: %s", which, cure);
    }
    return ok == 1 ? 0 : -1;
}

/* max(log x, -100): log 0 shall not make the loss infinite. */
static Tensor *clamped_log(Back *b, Tensor *log) { return at_least(b, log, -100.0); }

int run_COMPOSE_BCE(OpCall *c) {
    Tensor *x = c->arg[0].t, *t = c->arg[1].t, *weight = c->arg[2].kind == ARG_TENSOR ? c->arg[2].t : NULL, *loss = NULL;
    int reduction = reduction_parse(c->arg[3].s);
    if (reduction < 0 || common_device(c) < 0) {
        return -1;
    }
    if (!same_shape(x, t)) {
        return shape_error(PyExc_ValueError, "binary_cross_entropy: input %S and target %S differ in size", x, t);
    }
    if (x->v.dtype != t->v.dtype) {
        PyErr_Format(PyExc_RuntimeError, "Found dtype %s but expected %s: convert the target", amp_dtype_info[t->v.dtype].name,
                     amp_dtype_info[x->v.dtype].name);
        return -1;
    }
    if (needs_no_gradient(c, 2) < 0) {
        return -1;
    }
    Back frame, *b = &frame;
    uint8_t recording = amp_grad_enabled;
    back_begin(b);
    amp_grad_enabled = 0; /* the row has a derivative of its own */
    if (check_unit_range(b, x, "input", "apply sigmoid first, or use binary_cross_entropy_with_logits") == 0 &&
        check_unit_range(b, t, "target", "they are probabilities; labels of -1 and 1 are (1 + label) / 2") == 0) {
        Tensor *of_ones = mul(b, t, clamped_log(b, op1(b, OP_log, x)));
        Tensor *of_zeros = mul(b, one_minus(b, t), clamped_log(b, op1(b, OP_log1p, neg(b, x))));
        loss = neg(b, add(b, of_ones, of_zeros));
        loss = reduced(b, weight ? cast(b, mul(b, loss, weight), x->v.dtype) : loss, reduction);
    } else {
        b->failed = true;
    }
    amp_grad_enabled = recording;
    return frame_end(c, b, loss);
}

/* -p t log s(x) - (1 - t) log s(-x): two terms of one sign, so that neither the loss nor its slope cancels for confident inputs. In 16
 * bits a scaled gradient times p alone may be beyond the range. */
static Tensor *weighted_bce(Back *b, Tensor *x, Tensor *t, Tensor *pos_weight) {
    if (amp_is_16bit(x->v.dtype) && t->v.dtype == x->v.dtype && pos_weight->v.dtype == x->v.dtype) {
        Tensor *loss = weighted_bce(b, cast(b, x, AMP_FLOAT32), cast(b, t, AMP_FLOAT32), cast(b, pos_weight, AMP_FLOAT32));
        return cast(b, loss, x->v.dtype);
    }
    Tensor *positive = mul(b, mul(b, pos_weight, t), op1(b, OP_logsigmoid, x));
    Tensor *negative = mul(b, one_minus(b, t), op1(b, OP_logsigmoid, neg(b, x)));
    return neg(b, add(b, positive, negative));
}

/* (1 - t) x - (1 + (pos_weight - 1) t) log sigmoid(x) */
int run_COMPOSE_BCE_LOGITS(OpCall *c) {
    Tensor *x = c->arg[0].t, *t = c->arg[1].t, *weight = c->arg[2].kind == ARG_TENSOR ? c->arg[2].t : NULL;
    Tensor *pos_weight = c->arg[3].kind == ARG_TENSOR ? c->arg[3].t : NULL;
    int reduction = reduction_parse(c->arg[4].s);
    if (reduction < 0 || common_device(c) < 0) {
        return -1;
    }
    if (!same_shape(x, t)) {
        return shape_error(PyExc_ValueError,
                           "Target and input differ in size (input %S, target %S): the target must be the same as input size", x,
                           t);
    }
    if (needs_no_gradient(c, 2) < 0 || needs_no_gradient(c, 3) < 0) {
        return -1;
    }
    Back frame, *b = &frame;
    back_begin(b);
    Tensor *loss = pos_weight ? weighted_bce(b, x, t, pos_weight) : op2(b, OP_bce_logits_kernel, x, t);
    loss = reduced(b, weight ? mul(b, loss, weight) : loss, reduction);
    return frame_end(c, b, loss_in_dtype_of(b, loss, t, amp_is_integral(x->v.dtype) || t->v.dtype == AMP_BOOL));
}

/* ---- logsumexp, norm ---- */

/* log sum exp(x - m) + m with m the maximum, so that nothing overflows. A maximum of -inf is taken as 0, of inf as the largest
 * number: finite x behind it vanish, and have the gradient 0. */
int run_LOGSUMEXP(OpCall *c) {
    Tensor *x = c->arg[0].t;
    bool keepdim = c->arg[2].i;
    uint64_t dims;
    if (dims_mask(&c->arg[1], x->v.ndim, &dims) < 0) {
        return -1;
    }
    Back frame, *b = &frame;
    back_begin(b);
    if (amp_is_integral(x->v.dtype)) {
        x = cast(b, x, amp_state.default_dtype);
    }
    Tensor *sum, *m = NULL;
    if (x && x->v.numel == 0) {
        sum = sum_dims(b, op1(b, OP_exp, x), dims, true);
    } else {
        Tensor *size = op1(b, OP_detach, x); /* what exp must not overflow at: of complex numbers the real part */
        size = x && amp_is_complex(x->v.dtype) ? cast(b, size, amp_real_of(x->v.dtype)) : size;
        Arg arg[MAX_ARGS] = {arg_tensor(size), c->arg[1], arg_bool(true)};
        m = op_args(b, OP_amax, arg);
        Arg ends[MAX_ARGS] = {arg_tensor(m), arg_float((double)NAN), {.kind = ARG_NONE}, arg_float(0.0)};
        m = op_args(b, OP_nan_to_num, ends);
        sum = sum_dims(b, op1(b, OP_exp, sub(b, x, m)), dims, true);
    }
    Tensor *result = op1(b, OP_log, sum);
    result = m ? add(b, result, m) : result;
    if (result && !keepdim) {
        int64_t shape[AMP_MAX_DIMS];
        int n = 0;
        for (int d = 0; d < result->v.ndim; d++) {
            if (!(dims >> d & 1)) {
                shape[n++] = result->v.shape[d];
            }
        }
        result = reshape(b, result, n, shape);
    }
    return frame_end(c, b, result);
}

/* The order from p: a number, None, 'fro'. 0 or -1 with an exception. */
static int norm_order(const Arg *p, Number *order) {
    *order = number_float(2.0);
    if (p->kind == ARG_NONE || p->kind == ARG_STR || p->o == Py_None) {
        return 0;
    }
    if (PyUnicode_Check(p->o)) {
        if (PyUnicode_CompareWithASCIIString(p->o, "fro") == 0) {
            return 0;
        }
        PyErr_Format(PyExc_RuntimeError, "norm: Order %U not supported: give 'fro', 'nuc', a number or inf", p->o);
        return -1;
    }
    if (number_from_object(p->o, order) < 0) {
        return -1;
    }
    return 0;
}

int run_NORM(OpCall *c) {
    Number order;
    Tensor *x = c->arg[0].t;
    PyObject *p = c->arg[1].kind == ARG_ANY ? c->arg[1].o : NULL;
    if (p && PyUnicode_Check(p) && PyUnicode_CompareWithASCIIString(p, "nuc") == 0) {
        Arg arg[MAX_ARGS] = {c->arg[0], {.kind = ARG_STR, .s = "nuc"}, c->arg[2], c->arg[3], c->arg[4]};
        return result_set(c, run_op_tensor(OP_matrix_norm_str, arg));
    }
    if (norm_order(&c->arg[1], &order) < 0) {
        return -1;
    }
    if (!amp_is_floating(x->v.dtype) && !amp_is_complex(x->v.dtype)) {
        PyErr_Format(PyExc_NotImplementedError,
                     "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s: convert it with .float()",
                     amp_dtype_info[x->v.dtype].name);
        return -1;
    }
    Arg arg[MAX_ARGS] = {c->arg[0], {.kind = ARG_NUMBER, .num = order}, c->arg[2], c->arg[3], c->arg[4]};
    return result_set(c, run_op_tensor(OP_vector_norm, arg));
}
