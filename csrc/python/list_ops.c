/* The optimizer tail: functions that take whole lists of tensors and make one backend call.
 *
 * Every entry gathers the lists into strong references first: the GIL may be released around the kernel, and another thread may
 * then change the Python lists. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor.h"

enum { INLINE_TENSORS = 24, RELEASE_BYTES = 512 * 1024 };

typedef struct TensorSet {
    int64_t n;
    Tensor **tensor; /* n strong references */
    const View **view;
    void *heap; /* NULL while the inline arrays suffice */
    Tensor *inline_tensor[INLINE_TENSORS];
    const View *inline_view[INLINE_TENSORS];
} TensorSet;

static void set_release(TensorSet *s) {
    for (int64_t i = 0; i < s->n; i++) {
        Py_DECREF(s->tensor[i]);
    }
    s->n = 0;
    PyMem_Free(s->heap);
    s->heap = NULL;
}

static int set_reserve(TensorSet *s, Py_ssize_t n) {
    s->n = 0;
    s->heap = NULL;
    s->tensor = s->inline_tensor;
    s->view = s->inline_view;
    if (n <= INLINE_TENSORS) {
        return 0;
    }
    if ((size_t)n > SIZE_MAX / 2 / (sizeof(Tensor *) + sizeof(View *))) {
        PyErr_NoMemory();
        return -1;
    }
    s->heap = PyMem_Malloc((size_t)n * (sizeof(Tensor *) + sizeof(View *)));
    if (!s->heap) {
        PyErr_NoMemory();
        return -1;
    }
    s->tensor = s->heap;
    s->view = (const View **)(void *)(s->tensor + n);
    return 0;
}

/* `o` is a list or tuple (or any sequence) of tensors; None gives an empty set. */
static int set_gather(TensorSet *s, PyObject *o, const char *what) {
    s->n = 0;
    s->heap = NULL;
    if (o == Py_None) {
        return set_reserve(s, 0);
    }
    PyObject *fast = PySequence_Fast(o, "expected a list or tuple of tensors");
    if (!fast) {
        return -1;
    }
    Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
    if (set_reserve(s, n) < 0) {
        goto fail;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        if (!tensor_check(item)) {
            PyErr_Format(PyExc_TypeError, "%s: item %zd must be a Tensor, not %.100s", what, i, Py_TYPE(item)->tp_name);
            goto fail;
        }
        Py_INCREF(item);
        s->tensor[i] = (Tensor *)item;
        s->view[i] = &((Tensor *)item)->v;
        s->n = i + 1;
    }
    Py_DECREF(fast);
    return 0;
fail:
    set_release(s);
    Py_DECREF(fast);
    return -1;
}

static TensorList set_list(const TensorSet *s) { return (TensorList){s->n, s->view}; }

static int64_t set_bytes(const TensorSet *s) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->n; i++) {
        bytes += s->view[i]->numel * (int64_t)amp_itemsize(s->view[i]->dtype);
    }
    return bytes;
}

static void set_bump(TensorSet *s) {
    for (int64_t i = 0; i < s->n; i++) {
        tensor_bump(s->tensor[i]);
    }
}

/* A kernel runs between these two; `saved` is NULL if the lists are too small to be worth a hand-over of the GIL. */
static PyThreadState *release_gil(int64_t bytes) { return bytes >= RELEASE_BYTES ? PyEval_SaveThread() : NULL; }
static void take_gil(PyThreadState *saved) {
    if (saved) {
        PyEval_RestoreThread(saved);
    }
}

static bool kernel_dtype(int dtype) {
    return dtype == AMP_FLOAT32 || dtype == AMP_FLOAT64 || dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16;
}

static const Backend *backend_of(int device, const char *what) {
    const Backend *backend = amp_backend[device];
    if (!backend || (device == AMP_CUDA && device_require(device) < 0)) {
        if (!PyErr_Occurred()) {
            amp_raise(AMP_NO_KERNEL, what);
        }
        return NULL;
    }
    return backend;
}

static int fail_device(const char *what) {
    PyErr_Format(PyExc_RuntimeError,
                 "%s: Expected all tensors to be on the same device. Move them with .to(device), or make one call per device",
                 what);
    return -1;
}

static int fail_dtype(const char *what, int dtype) {
    PyErr_Format(PyExc_NotImplementedError, "%s: not implemented for '%s'. Use float32, float64, float16 or bfloat16", what,
                 amp_dtype_info[dtype].name);
    return -1;
}

static int check_overlap(const View *v, const char *what) {
    if (!(v->layout & LAYOUT_CONTIGUOUS) && amp_has_internal_overlap(v)) {
        return amp_raise(AMP_OVERLAP, what);
    }
    return 0;
}

/* The tensors of one optimizer list are written in place: floating, one device, no element twice. */
static int check_written(const TensorSet *s, int device, const char *what) {
    for (int64_t i = 0; i < s->n; i++) {
        const View *v = s->view[i];
        if (v->device != device) {
            return fail_device(what);
        }
        if (!kernel_dtype(v->dtype)) {
            return fail_dtype(what, v->dtype);
        }
        if (check_overlap(v, what) < 0) {
            return -1;
        }
    }
    return 0;
}

static int check_matches(const TensorSet *params, const TensorSet *other, const char *what, const char *name) {
    if (other->n != params->n) {
        PyErr_Format(PyExc_RuntimeError, "%s: %lld parameters but %lld entries in %s", what, (long long)params->n,
                     (long long)other->n, name);
        return -1;
    }
    for (int64_t i = 0; i < params->n; i++) {
        const View *a = params->view[i], *b = other->view[i];
        if (a->ndim != b->ndim || (a->ndim > 0 && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(int64_t)) != 0)) {
            PyErr_Format(PyExc_RuntimeError, "%s: parameter %lld and its entry in %s have different shapes", what, (long long)i,
                         name);
            return -1;
        }
        if (a->dtype != b->dtype) {
            PyErr_Format(PyExc_RuntimeError, "%s: parameter %lld is %s but its entry in %s is %s", what, (long long)i,
                         amp_dtype_info[a->dtype].name, name, amp_dtype_info[b->dtype].name);
            return -1;
        }
    }
    return check_written(other, params->view[0]->device, what);
}

static int arg_count(const char *what, Py_ssize_t n, Py_ssize_t want) {
    if (n != want) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments (%zd given)", what, want, n);
        return -1;
    }
    return 0;
}

static int arg_double(PyObject *o, double *out) {
    *out = PyFloat_AsDouble(o);
    return *out == -1.0 && PyErr_Occurred() ? -1 : 0;
}

static int arg_bool(PyObject *o, bool *out) {
    int truth = PyObject_IsTrue(o);
    *out = truth > 0;
    return truth < 0 ? -1 : 0;
}

static float read_float(const View *v) {
    float f;
    memcpy(&f, v->data, sizeof f);
    return f;
}

/* A one-element helper tensor of the scaler. */
static int check_scalar(PyObject *o, int device, int dtype, const char *what, const char *name) {
    if (!tensor_check(o)) {
        PyErr_Format(PyExc_TypeError, "%s: %s must be a Tensor, not %.100s", what, name, Py_TYPE(o)->tp_name);
        return -1;
    }
    const View *v = &((Tensor *)o)->v;
    if (v->device != device) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s must be on the %s device", what, name, device == AMP_CUDA ? "CUDA" : "CPU");
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
static int check_gradient(const View *v, int device, const char *what) {
    if (v->device != device) {
        return fail_device(what);
    }
    if (!kernel_dtype(v->dtype) || (device == AMP_CUDA && v->dtype == AMP_BFLOAT16 && quirks())) {
        return fail_dtype(what, v->dtype);
    }
    return check_overlap(v, what);
}

static PyObject *unscale_(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_amp_foreach_non_finite_check_and_unscale_";
    TensorSet grads;
    if (arg_count(what, nargs, 3) < 0 || set_gather(&grads, args[0], what) < 0) {
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
    if (!backend->unscale) {
        amp_raise(AMP_NO_KERNEL, what);
        goto done;
    }
    int64_t good = 0;
    while (good < grads.n && check_gradient(grads.view[good], device, what) == 0) {
        good++;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);

    Tensor *found = (Tensor *)args[1];
    float inv_scale = read_float(&((Tensor *)args[2])->v), before = read_float(&found->v), flag = before;
    int64_t all = grads.n, bytes = set_bytes(&grads);
    Py_INCREF(found);
    grads.n = good;
    PyThreadState *saved = release_gil(bytes);
    if (device == AMP_CUDA) {
        for (int64_t i = 0; i < good; i++) {
            if (grads.view[i]->dtype == AMP_FLOAT64 && beyond_float_range(grads.view[i], 0, grads.view[i]->data)) {
                flag = 1;
            }
        }
    }
    Status status = backend->unscale(set_list(&grads), inv_scale, &flag);
    take_gil(saved);
    if (memcmp(&flag, &before, sizeof flag) != 0) {
        memcpy(found->v.data, &flag, sizeof flag);
        tensor_bump(found);
    }
    Py_DECREF(found);
    set_bump(&grads);
    grads.n = all;
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
    set_release(&grads);
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
        amp_raise(AMP_NO_KERNEL, what);
        return NULL;
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

/* ---- norms and scaling, for clipping ---- */

static PyObject *doubles_to_list(const double *values, int64_t n) {
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (int64_t i = 0; list && i < n; i++) {
        PyObject *f = PyFloat_FromDouble(values[i]);
        if (!f) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, f);
    }
    return list;
}

/* Neighbours of one device in a list: where the run that starts at `begin` ends. */
static int64_t run_end(const TensorSet *s, int64_t begin) {
    int64_t end = begin;
    while (end < s->n && s->view[end]->device == s->view[begin]->device) {
        end++;
    }
    return end;
}

static int norms_run(const TensorSet *s, int64_t begin, int64_t end, double p, double *norms, const char *what) {
    for (int64_t i = begin; i < end; i++) {
        if (!kernel_dtype(s->view[i]->dtype)) {
            return fail_dtype(what, s->view[i]->dtype);
        }
    }
    const Backend *backend = backend_of(s->view[begin]->device, what);
    if (!backend) {
        return -1;
    }
    if (!backend->norms) {
        return amp_raise(AMP_NO_KERNEL, what);
    }
    PyThreadState *saved = release_gil(set_bytes(s));
    Status status = backend->norms((TensorList){end - begin, s->view + begin}, p, norms + begin);
    take_gil(saved);
    return status == AMP_OK ? 0 : amp_raise(status, what);
}

static PyObject *list_norms(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_list_norms";
    double p;
    TensorSet tensors;
    if (arg_count(what, nargs, 2) < 0 || arg_double(args[1], &p) < 0 || set_gather(&tensors, args[0], what) < 0) {
        return NULL;
    }
    double small[INLINE_TENSORS];
    double *norms = tensors.n <= INLINE_TENSORS ? small : PyMem_Calloc((size_t)tensors.n, sizeof *norms);
    int failed = !norms;
    if (failed) {
        PyErr_NoMemory();
    }
    for (int64_t begin = 0, end; begin < tensors.n && !failed; begin = end) {
        end = run_end(&tensors, begin);
        failed = norms_run(&tensors, begin, end, p, norms, what) < 0;
    }
    PyObject *result = failed ? NULL : doubles_to_list(norms, tensors.n);
    if (norms != small) {
        PyMem_Free(norms);
    }
    set_release(&tensors);
    return result;
}

static int scale_run(const TensorSet *s, int64_t begin, int64_t end, double factor, const char *what) {
    const Backend *backend = backend_of(s->view[begin]->device, what);
    if (!backend) {
        return -1;
    }
    if (!backend->scale) {
        return amp_raise(AMP_NO_KERNEL, what);
    }
    PyThreadState *saved = release_gil(set_bytes(s));
    Status status = backend->scale((TensorList){end - begin, s->view + begin}, factor);
    take_gil(saved);
    for (int64_t i = begin; i < end; i++) {
        tensor_bump(s->tensor[i]);
    }
    return status == AMP_OK ? 0 : amp_raise(status, what);
}

static PyObject *list_scale_(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_list_scale_";
    double factor;
    TensorSet tensors;
    if (arg_count(what, nargs, 2) < 0 || arg_double(args[1], &factor) < 0 || set_gather(&tensors, args[0], what) < 0) {
        return NULL;
    }
    int failed = 0;
    for (int64_t i = 0; i < tensors.n && !failed; i++) {
        failed = !kernel_dtype(tensors.view[i]->dtype) ? fail_dtype(what, tensors.view[i]->dtype)
                                                       : check_overlap(tensors.view[i], what);
    }
    for (int64_t begin = 0, end; begin < tensors.n && !failed; begin = end) {
        end = run_end(&tensors, begin);
        failed = scale_run(&tensors, begin, end, factor, what);
    }
    set_release(&tensors);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* ---- optimizers ---- */

static PyObject *sgd_(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_sgd_";
    TensorSet params = {0}, grads = {0}, buffers = {0};
    SgdOptions o;
    double grad_scale;
    if (arg_count(what, nargs, 11) < 0 || arg_double(args[3], &o.lr) < 0 || arg_double(args[4], &o.momentum) < 0 ||
        arg_double(args[5], &o.dampening) < 0 || arg_double(args[6], &o.weight_decay) < 0 || arg_bool(args[7], &o.nesterov) < 0 ||
        arg_bool(args[8], &o.maximize) < 0 || arg_bool(args[9], &o.first) < 0 || arg_double(args[10], &grad_scale) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (set_gather(&params, args[0], what) < 0 || set_gather(&grads, args[1], what) < 0 ||
        set_gather(&buffers, args[2], what) < 0) {
        goto done;
    }
    if (params.n == 0) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    int device = params.view[0]->device;
    const Backend *backend = backend_of(device, what);
    if (!backend || check_written(&params, device, what) < 0 || check_matches(&params, &grads, what, "the gradients") < 0 ||
        (args[2] != Py_None && check_matches(&params, &buffers, what, "the momentum buffers") < 0)) {
        goto done;
    }
    if (!backend->sgd) {
        amp_raise(AMP_NO_KERNEL, what);
        goto done;
    }
    PyThreadState *saved = release_gil(set_bytes(&params));
    Status status = backend->sgd(set_list(&params), set_list(&grads), set_list(&buffers), &o, grad_scale);
    take_gil(saved);
    set_bump(&params);
    set_bump(&buffers);
    if (grad_scale != 1) {
        set_bump(&grads);
    }
    if (status != AMP_OK) {
        amp_raise(status, what);
        goto done;
    }
    result = Py_NewRef(Py_None);
done:
    set_release(&params);
    set_release(&grads);
    set_release(&buffers);
    return result;
}

/* Step counters and NAdam's running products are 0-dim fp32 or fp64 tensors in host memory. */
static int counter_check(const TensorSet *s, int64_t n, const char *what, const char *name) {
    if (s->n != n) {
        PyErr_Format(PyExc_RuntimeError, "%s: %lld parameters but %lld entries in %s", what, (long long)n, (long long)s->n, name);
        return -1;
    }
    for (int64_t i = 0; i < n; i++) {
        const View *v = s->view[i];
        if (v->numel != 1 || (v->dtype != AMP_FLOAT32 && v->dtype != AMP_FLOAT64) || v->device != AMP_CPU) {
            PyErr_Format(PyExc_RuntimeError, "%s: %s must be one-element float32 or float64 tensors on the CPU", what, name);
            return -1;
        }
    }
    return 0;
}

static double counter_get(const View *v) {
    if (v->dtype == AMP_FLOAT32) {
        return (double)read_float(v);
    }
    double d;
    memcpy(&d, v->data, sizeof d);
    return d;
}

static void counter_set(const View *v, double value) {
    if (v->dtype == AMP_FLOAT32) {
        float f = (float)value;
        memcpy(v->data, &f, sizeof f);
    } else {
        memcpy(v->data, &value, sizeof value);
    }
}

typedef struct AdamLists {
    TensorSet params, grads, exp_avg, exp_avg_sq, max_exp_avg_sq, steps, mu_products;
} AdamLists;

static int adam_check(const AdamLists *l, const AdamOptions *o, const char *what) {
    if (check_written(&l->params, l->params.view[0]->device, what) < 0 ||
        check_matches(&l->params, &l->grads, what, "the gradients") < 0 ||
        check_matches(&l->params, &l->exp_avg, what, "exp_avg") < 0 ||
        check_matches(&l->params, &l->exp_avg_sq, what, "exp_avg_sq") < 0 ||
        (o->amsgrad && check_matches(&l->params, &l->max_exp_avg_sq, what, "max_exp_avg_sq") < 0) ||
        counter_check(&l->steps, l->params.n, what, "step") < 0) {
        return -1;
    }
    return o->nadam ? counter_check(&l->mu_products, l->params.n, what, "mu_product") : 0;
}

static int adam_run(AdamLists *l, const AdamOptions *o, double grad_scale, const char *what) {
    const Backend *backend = backend_of(l->params.view[0]->device, what);
    if (!backend) {
        return -1;
    }
    if (!backend->adam) {
        return amp_raise(AMP_NO_KERNEL, what);
    }
    int64_t n = l->params.n;
    double small[2 * INLINE_TENSORS];
    double *step = n <= INLINE_TENSORS ? small : PyMem_Calloc((size_t)n, 2 * sizeof *step);
    if (!step) {
        PyErr_NoMemory();
        return -1;
    }
    double *mu = step + n;
    for (int64_t i = 0; i < n; i++) {
        step[i] = counter_get(l->steps.view[i]) + 1;
        mu[i] = o->nadam ? counter_get(l->mu_products.view[i]) : 1;
    }
    PyThreadState *saved = release_gil(set_bytes(&l->params));
    Status status = backend->adam(set_list(&l->params), set_list(&l->grads), set_list(&l->exp_avg), set_list(&l->exp_avg_sq),
                                  set_list(&l->max_exp_avg_sq), step, o->nadam ? mu : NULL, o, grad_scale);
    take_gil(saved);
    for (int64_t i = 0; i < n && status == AMP_OK; i++) {
        counter_set(l->steps.view[i], step[i]);
        if (o->nadam) {
            counter_set(l->mu_products.view[i], mu[i]);
        }
    }
    if (step != small) {
        PyMem_Free(step);
    }
    set_bump(&l->params);
    set_bump(&l->exp_avg);
    set_bump(&l->exp_avg_sq);
    set_bump(&l->max_exp_avg_sq);
    set_bump(&l->steps);
    set_bump(&l->mu_products);
    if (grad_scale != 1) {
        set_bump(&l->grads);
    }
    return status == AMP_OK ? 0 : amp_raise(status, what);
}

static PyObject *adam_(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_adam_";
    AdamOptions o;
    double grad_scale;
    if (arg_count(what, nargs, 18) < 0 || arg_double(args[7], &o.lr) < 0 || arg_double(args[8], &o.beta1) < 0 ||
        arg_double(args[9], &o.beta2) < 0 || arg_double(args[10], &o.eps) < 0 || arg_double(args[11], &o.weight_decay) < 0 ||
        arg_double(args[12], &o.momentum_decay) < 0 || arg_bool(args[13], &o.amsgrad) < 0 ||
        arg_bool(args[14], &o.maximize) < 0 || arg_bool(args[15], &o.decoupled) < 0 || arg_bool(args[16], &o.nadam) < 0 ||
        arg_double(args[17], &grad_scale) < 0) {
        return NULL;
    }
    AdamLists l;
    TensorSet *sets[] = {&l.params, &l.grads, &l.exp_avg, &l.exp_avg_sq, &l.max_exp_avg_sq, &l.steps, &l.mu_products};
    enum { SETS = sizeof sets / sizeof *sets };
    int gathered = 0, failed = 0;
    while (gathered < SETS && !failed) {
        failed = set_gather(sets[gathered], args[gathered], what) < 0;
        gathered += !failed;
    }
    if (!failed && l.params.n > 0) {
        failed = adam_check(&l, &o, what) < 0 || adam_run(&l, &o, grad_scale, what) < 0;
    }
    while (gathered > 0) {
        set_release(sets[--gathered]);
    }
    return failed ? NULL : Py_NewRef(Py_None);
}

/* ---- gradients of a list of parameters ---- */

/* A list of all gradients, or None if any parameter has none or the parameters are on several devices. */
static PyObject *grads_of(PyObject *module, PyObject *params) {
    (void)module;
    if (!PyList_Check(params)) {
        PyErr_SetString(PyExc_TypeError, "_grads_of: expected a list of tensors");
        return NULL;
    }
    Py_ssize_t n = PyList_GET_SIZE(params);
    PyObject *grads = PyList_New(n);
    int device = -1;
    for (Py_ssize_t i = 0; grads && i < n; i++) {
        PyObject *p = PyList_GET_ITEM(params, i);
        Tensor *grad = tensor_check(p) ? ((Tensor *)p)->grad : NULL;
        bool fits = grad && (i == 0 || grad->v.device == device);
        device = grad ? grad->v.device : device;
        if (!fits) {
            Py_DECREF(grads);
            return Py_NewRef(Py_None);
        }
        PyList_SET_ITEM(grads, i, Py_NewRef((PyObject *)grad));
    }
    return grads;
}

/* p.grad = None for every parameter of a list. A destructor may run and change the list: the size is read anew each time. */
static PyObject *clear_grads(PyObject *module, PyObject *params) {
    (void)module;
    if (!PyList_Check(params)) {
        PyErr_SetString(PyExc_TypeError, "_clear_grads: expected a list of tensors");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); i++) {
        PyObject *p = PyList_GET_ITEM(params, i);
        if (tensor_check(p)) {
            Py_CLEAR(((Tensor *)p)->grad);
        }
    }
    Py_RETURN_NONE;
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
    {"_list_norms", FAST(list_norms), METH_FASTCALL,
     "_list_norms(tensors, p, /)\n--\n\nThe list of float p-norms, formed in fp32 (fp64 for fp64); devices may be mixed."},
    {"_list_scale_", FAST(list_scale_), METH_FASTCALL,
     "_list_scale_(tensors, factor, /)\n--\n\nMultiplies every tensor in place."},
    {"_sgd_", FAST(sgd_), METH_FASTCALL,
     "_sgd_(params, grads, momentum_buffers, lr, momentum, dampening, weight_decay, nesterov, maximize, first, grad_scale, "
     "/)\n--\n\n"
     "One step of SGD on lists of tensors; momentum_buffers may be None."},
    {"_adam_", FAST(adam_), METH_FASTCALL,
     "_adam_(params, grads, exp_avg, exp_avg_sq, max_exp_avg_sq, steps, mu_products, lr, beta1, beta2, eps, weight_decay, "
     "momentum_decay, amsgrad, maximize, decoupled, nadam, grad_scale, /)\n--\n\n"
     "One step of the Adam family on lists of tensors; max_exp_avg_sq and mu_products may be None. steps are 0-dim tensors and "
     "are counted up."},
    {"_grads_of", grads_of, METH_O,
     "_grads_of(params, /)\n--\n\nThe list of gradients, or None if any parameter has none or they are on several devices."},
    {"_clear_grads", clear_grads, METH_O, "_clear_grads(params, /)\n--\n\np.grad = None for each of the list."},
    {NULL, NULL, 0, NULL},
};

int list_ops_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
