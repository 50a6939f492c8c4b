/* GradScaler's kernels: the check for inf and NaN with the unscaling, and the update of the scale. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "list_gather.h"
#include "run_op.h"

/* A one-element helper tensor of the scaler. */
static int check_scalar(PyObject *o, int device, int dtype, const char *what, const char *name) {
    if (!tensor_check(o)) {
        PyErr_Format(PyExc_TypeError, "%s: %s must be a Tensor, not %.100s", what, name, Py_TYPE(o)->tp_name);
        return -1;
    }
    const View *v = &((Tensor *)o)->v;
    if (v->device != device) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s must be on the %s device, as the gradients are: move it with .to()", what, name,
                     device == AMP_CUDA   ? "CUDA"
                     : device == AMP_META ? "meta"
                                          : "CPU");
        return -1;
    }
    if (v->numel != 1) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s must be a 1-element tensor, it has %lld elements", what, name,
                     (long long)v->numel);
        return -1;
    }
    if (v->dtype != dtype) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s must be %s tensor, not %s", what, name,
                     dtype == AMP_INT32 ? "an int" : "a float", amp_dtype_info[v->dtype].name);
        return -1;
    }
    return 0;
}

/* ---- finiteness check and unscaling; records: tests/golden/unscale.json ---- */

/* CUDA narrows fp64 to fp32 before its test: finite values that round to infinity in fp32 count too. */
static bool beyond_float_range(const View *v, int dim, const char *data) {
    if (dim == v->ndim) {
        double x;
        memcpy(&x, data, sizeof x);
        return !(fabs(x) < 0x1.ffffffp127);
    }
    int64_t step = v->stride[dim] * (int64_t)sizeof(double);
    for (int64_t i = 0; i < v->shape[dim]; i++) {
        if (beyond_float_range(v, dim + 1, data + i * step)) {
            return true;
        }
    }
    return false;
}

static bool quirks(void) {
    const char *value = getenv("AMPNATIVE_TORCH_QUIRKS");
    return value && strcmp(value, "1") == 0;
}

/* What is wrong with one gradient; tensors before it have been treated already, as PyTorch does. */
static int check_gradient(const Tensor *t, int device, const char *what) {
    const View *v = &t->v;
    if (v->device != device) {
        return fail_device(what);
    }
    if (!kernel_dtype(v->dtype)) {
        return fail_dtype(what, v->dtype);
    }
    if (device == AMP_CUDA && v->dtype == AMP_BFLOAT16 && quirks()) {
        PyErr_Format(
            PyExc_NotImplementedError,
            "%s: not implemented for 'bfloat16' on cuda, as in PyTorch. Unset AMPNATIVE_TORCH_QUIRKS to let it through, or "
            "use float32, float64 or float16",
            what);
        return -1;
    }
    return check_overlap(v, what) < 0 ? -1 : check_writable(t, what);
}

/* The check of each gradient ahead of the first that is changed, for callers that promise all or nothing. */
static PyObject *check_unscale(PyObject *module, PyObject *list) {
    (void)module;
    static const char what[] = "unscaling gradients";
    TensorSet grads;
    if (tensor_set_gather(&grads, list, what) < 0) {
        return NULL;
    }
    int failed = 0;
    for (int64_t i = 0; i < grads.n && !failed; i++) {
        failed = check_gradient(grads.tensor[i], grads.view[0]->device, what);
    }
    tensor_set_release(&grads);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* Leaves norms beside the gradients, the last one first. writes[i] is what was or will have been counted after the one write that norm[i]
 * stands for. One that is listed twice, or whose memory another one or another thread wrote, was written more often; of those in a
 * borrowed list the last has the right count, but the first has the last word. */
static void keep_norms(TensorSet *grads, const double *norm, const uint32_t *writes) {
    for (int64_t i = grads->n - 1; i >= 0; i--) {
        if (i >= FETCH_GRAD) {
            fetch_tensor(grads->tensor[i - FETCH_GRAD], false);
        }
        if (i >= FETCH_STORAGE) {
            fetch_storage(grads->tensor[i - FETCH_STORAGE]->st, false);
        }
        Tensor *t = grads->tensor[i];
        tensor_keep_norm(t, t->st->writes == writes[i] ? norm[i] : -1.0);
    }
}

/* Multiplies the gradients. */
static Status unscale_set(const Backend *backend, TensorSet *grads, float inv_scale, float *flag, bool with_norms) {
    struct {
        double norm[INLINE_TENSORS];
        uint32_t writes[INLINE_TENSORS];
    } small;
    const int64_t n = grads->n;
    double *norms = !with_norms          ? NULL
                    : n > INLINE_TENSORS ? PyMem_Malloc((size_t)n * (sizeof *norms + sizeof(uint32_t)))
                                         : small.norm;
    uint32_t *writes = n > INLINE_TENSORS ? (uint32_t *)(void *)(norms ? norms + n : NULL) : small.writes;
    for (int64_t i = 0; with_norms && i < n; i++) {
        Tensor *t = grads->tensor[i];
        uint32_t count = t->st->writes + 1;
        if (grads->borrowed) { /* while it is still in the caches */
            tensor_bump(t);
        }
        if (norms) {
            writes[i] = count;
        }
    }
    PyThreadState *saved = grads->borrowed ? NULL : release_gil(tensor_set_bytes(grads));
    for (int64_t i = 0; i < n && grads->view[0]->device == AMP_CUDA; i++) {
        const View *v = grads->view[i];
        if (v->device == AMP_CUDA && v->dtype == AMP_FLOAT64 && beyond_float_range(v, 0, v->data)) {
            *flag = 1;
        }
    }
    Status status = backend->unscale(tensor_set_list(grads), inv_scale, flag, norms);
    take_gil(saved);
    if (norms && !grads->borrowed) {
        list_bump(grads);
    }
    if (norms && status == AMP_OK) {
        keep_norms(grads, norms, writes);
    }
    list_settle(grads, !norms);
    if (norms != small.norm) {
        PyMem_Free(norms);
    }
    return status;
}

/* Gradients without memory: checked and counted as written, which they are for everyone who asks later. */
static PyObject *unscale_meta(TensorSet *grads, const char *what) {
    for (int64_t i = 0; i < grads->n; i++) {
        if (check_gradient(grads->tensor[i], AMP_META, what) < 0) {
            return NULL;
        }
    }
    tensor_set_bump(grads);
    return Py_NewRef(Py_None);
}

static PyObject *unscale_(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_amp_foreach_non_finite_check_and_unscale_";
    TensorSet grads;
    if (arg_count(what, nargs, 3) < 0 || tensor_set_gather(&grads, args[0], what) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (grads.n == 0) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    int device = grads.view[0]->device;
    if (device == AMP_CPU && tensor_check(args[1]) && ((Tensor *)args[1])->v.device == AMP_CUDA) {
        device = AMP_CUDA;
    }
    const Backend *backend = backend_of(device, what);
    if (!backend || check_scalar(args[2], device, AMP_FLOAT32, what, "inv_scale") < 0 ||
        check_scalar(args[1], device, AMP_FLOAT32, what, "found_inf") < 0) {
        goto done;
    }
    if (device == AMP_META) {
        result = unscale_meta(&grads, what);
        goto done;
    }
    if (!backend->unscale) {
        amp_raise(AMP_NO_KERNEL, what);
        goto done;
    }
    int64_t good = 0;
    while (good < grads.n && check_gradient(grads.tensor[good], device, what) == 0) {
        good++;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Tensor *found = (Tensor *)Py_NewRef(args[1]);
    float before = read_float(&found->v), flag = before;
    while (grads.n > good) {
        Py_DECREF(grads.tensor[--grads.n]);
    }
    Status status = unscale_set(backend, &grads, read_float(&((Tensor *)args[2])->v), &flag, tensor_norms_wanted());
    if (memcmp(&flag, &before, sizeof flag) != 0) {
        memcpy(found->v.data, &flag, sizeof flag);
        tensor_bump(found);
    }
    Py_DECREF(found);
    if (status != AMP_OK) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        amp_raise(status, what);
    } else if (type) {
        PyErr_Restore(type, value, traceback);
    } else {
        result = Py_NewRef(Py_None);
    }
done:
    tensor_set_release(&grads);
    return result;
}

static PyObject *update_scale_(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_amp_update_scale_";
    if (arg_count(what, nargs, 6) < 0) {
        return NULL;
    }
    int device = tensor_check(args[0]) ? ((Tensor *)args[0])->v.device : AMP_CPU;
    if (check_scalar(args[1], device, AMP_INT32, what, "growth_tracker") < 0 ||
        check_scalar(args[0], device, AMP_FLOAT32, what, "current_scale") < 0 ||
        check_scalar(args[2], device, AMP_FLOAT32, what, "found_inf") < 0) {
        return NULL;
    }
    double growth, backoff;
    if (arg_double(args[3], &growth) < 0 || arg_double(args[4], &backoff) < 0) {
        return NULL;
    }
    long long interval = PyLong_AsLongLong(args[5]);
    if (interval == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (device == AMP_CUDA) {
        interval = (int32_t)(uint32_t)(uint64_t)interval; /* the CUDA kernel's parameter has 32 bits */
    } else if (device == AMP_META) {
        return Py_NewRef(args[0]);
    }
    Tensor *scale = (Tensor *)args[0], *tracker = (Tensor *)args[1];
    int32_t count;
    memcpy(&count, tracker->v.data, sizeof count);
    ScaleUpdate next = amp_update_scale(read_float(&scale->v), count, read_float(&((Tensor *)args[2])->v), growth, backoff,
                                        interval);
    memcpy(scale->v.data, &next.scale, sizeof next.scale);
    memcpy(tracker->v.data, &next.tracker, sizeof next.tracker);
    tensor_bump(scale);
    tensor_bump(tracker);
    return Py_NewRef(args[0]);
}

/* The groups' lists of parameters, a new list: finding them may run Python code, if only that of a key that is compared. *n is how many
 * parameters they have; -1: a group that only Python understands. */
static PyObject *parameter_lists(PyObject *groups, Py_ssize_t *n) {
    PyObject *lists = PyList_New(0);
    for (Py_ssize_t i = 0; lists && i < PyList_GET_SIZE(groups); i++) {
        PyObject *group = PyList_GET_ITEM(groups, i);
        PyObject *params = PyDict_Check(group) ? PyDict_GetItemString(group, "params") : NULL;
        if (!params || !PyList_Check(params)) {
            *n = -1;
            return lists;
        }
        if (PyList_Append(lists, params) < 0) {
            Py_CLEAR(lists);
        }
    }
    *n = 0;
    for (Py_ssize_t i = 0; lists && i < PyList_GET_SIZE(lists); i++) {
        *n += PyList_GET_SIZE(PyList_GET_ITEM(lists, i));
    }
    return lists;
}

/* Adds the gradients of one group, and runs no Python code. False: a parameter that only Python understands, a gradient that is not fp32
 * on the device, or made under another loss scale, or the backend would refuse. */
static bool gather_gradients(TensorSet *grads, PyObject *params, int device, float scale, bool count, int64_t *bytes) {
    PyObject *const *item = ((PyListObject *)params)->ob_item;
    const Py_ssize_t n = PyList_GET_SIZE(params);
    fetch_first_grads(item, n);
    for (Py_ssize_t i = 0; i < n; i++) {
        fetch_grads(item, n, i);
        if (!tensor_check(item[i])) {
            return false;
        }
        Tensor *grad = ((Tensor *)item[i])->grad;
        if (!grad) {
            continue;
        }
        float carried = storage_loss_scale(grad->st);
        if (grad->v.dtype != AMP_FLOAT32 || grad->v.device != device || (carried != 0 && carried != scale)) {
            return false;
        }
        if (grad->st->readonly || (!(grad->v.layout & LAYOUT_CONTIGUOUS) && amp_has_internal_overlap(&grad->v))) {
            return false; /* the long way says what is wrong */
        }
        *bytes += grad->v.numel * (int64_t)sizeof(float);
        list_borrow(grads, grad, count);
    }
    return true;
}

/* GradScaler's common case in one call: all gradients of an optimizer are fp32 on the scale's device, and the scale has a finite
 * reciprocal. The flag, or None if that is not so; nothing was changed then. */
static PyObject *unscale_groups(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_unscale_groups";
    if (arg_count(what, nargs, 2) < 0) {
        return NULL;
    }
    if (!PyList_Check(args[0]) || !tensor_check(args[1])) {
        Py_RETURN_NONE;
    }
    const View *scale = &((Tensor *)args[1])->v;
    if (scale->device == AMP_META || scale->dtype != AMP_FLOAT32 || scale->numel != 1 ||
        !isfinite(amp_inverse_scale(read_float(scale)))) {
        Py_RETURN_NONE;
    }
    const int device = scale->device;
    const float value = read_float(scale);
    const Backend *backend = backend_of(device, what);
    Tensor *flag = backend ? tensor_new(0, NULL, AMP_FLOAT32, device) : NULL; /* first: making it may run destructors */
    Py_ssize_t n = 0;
    PyObject *lists = flag ? parameter_lists(args[0], &n) : NULL;
    TensorSet grads;
    if (!lists || tensor_set_reserve(&grads, n < 0 ? 0 : n) < 0) {
        Py_XDECREF(lists);
        Py_XDECREF(flag);
        return NULL;
    }
    const bool with_norms = tensor_norms_wanted();
    bool fits = n > 0 && backend->unscale;
    int64_t bytes = 0;
    grads.borrowed = true;
    for (Py_ssize_t i = 0; fits && i < PyList_GET_SIZE(lists); i++) {
        fits = gather_gradients(&grads, PyList_GET_ITEM(lists, i), device, value, !with_norms, &bytes);
    }
    if (!fits || grads.n == 0) {
        list_return(&grads, !with_norms);
        Py_DECREF(lists);
        Py_DECREF(flag);
        Py_RETURN_NONE;
    }
    if (!gil_is_kept(grads.n, bytes)) {
        list_own(&grads, !with_norms);
    }
    float found = 0;
    Status status = unscale_set(backend, &grads, amp_inverse_scale(value), &found, with_norms);
    memcpy(flag->v.data, &found, sizeof found);
    tensor_set_release(&grads);
    Py_DECREF(lists);
    if (status != AMP_OK) {
        Py_CLEAR(flag);
        amp_raise(status, what);
    }
    return (PyObject *)flag;
}

#define FAST(function) ((PyCFunction)(void (*)(void))(function))
static PyMethodDef methods[] = {
    {"_amp_foreach_non_finite_check_and_unscale_", FAST(unscale_), METH_FASTCALL,
     "_amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inv_scale, /)\n--\n\nMultiplies every gradient in place by "
     "inv_scale; found_inf becomes 1.0 if any element was inf "
     "or NaN."},
    {"_amp_update_scale_", FAST(update_scale_), METH_FASTCALL,
     "_amp_update_scale_(current_scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval, /)\n--\n\n"
     "Updates current_scale in place and returns it."},
    {"_unscale_groups", FAST(unscale_groups), METH_FASTCALL,
     "_unscale_groups(param_groups, scale, /)\n--\n\nDivides the gradients of all groups by the scale; the flag (1.0: inf or NaN "
     "was found), or None, and nothing done, if one is not fp32 on the scale's device, or the scale's reciprocal not finite."},
    {"_check_unscale", check_unscale, METH_O,
     "_check_unscale(grads, /)\n--\n\nRaises what unscaling would raise for a gradient of the list; changes nothing."},
    {NULL, NULL, 0, NULL},
};

int scaler_ops_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
