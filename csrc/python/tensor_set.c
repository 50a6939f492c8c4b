#include "tensor_set.h"

#include "run_op.h"

enum { RELEASE_BYTES = 512 * 1024 };

void tensor_set_release(TensorSet *s) {
    for (int64_t i = 0; i < s->n; i++) {
        Py_DECREF(s->tensor[i]);
    }
    s->n = 0;
    PyMem_Free(s->heap);
    s->heap = NULL;
}

int tensor_set_reserve(TensorSet *s, Py_ssize_t n) {
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

int tensor_set_gather(TensorSet *s, PyObject *o, const char *what) {
    s->n = 0;
    s->heap = NULL;
    if (o == Py_None) {
        return tensor_set_reserve(s, 0);
    }
    PyObject *fast = PySequence_Fast(o, "expected a list or tuple of tensors");
    if (!fast) {
        return -1;
    }
    Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
    if (tensor_set_reserve(s, n) < 0) {
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
    tensor_set_release(s);
    Py_DECREF(fast);
    return -1;
}

int tensor_set_lookup(TensorSet *const *s, PyObject *const *key, int n, PyObject *state, const TensorSet *owners,
                      const char *what) {
    int reserved = 0, failed = 0;
    while (reserved < n && !failed) {
        failed = tensor_set_reserve(s[reserved], key[reserved] ? (Py_ssize_t)owners->n : 0);
        reserved += !failed;
    }
    for (int64_t i = 0; i < owners->n && !failed; i++) {
        PyObject *entries = PyDict_GetItemWithError(state, (PyObject *)owners->tensor[i]);
        for (int k = 0; k < n && !failed; k++) {
            if (!key[k]) {
                continue;
            }
            PyObject *value = entries && PyDict_Check(entries) ? PyDict_GetItemWithError(entries, key[k]) : NULL;
            if (value && tensor_check(value)) {
                tensor_set_push(s[k], (Tensor *)value);
                continue;
            }
            if (value) {
                PyErr_Format(PyExc_TypeError, "%s: the entry %R of parameter %lld must be a Tensor, not %.100s", what, key[k],
                             (long long)i, Py_TYPE(value)->tp_name);
            }
            failed = PyErr_Occurred() ? -1 : 1;
        }
    }
    while (failed && reserved > 0) {
        tensor_set_release(s[--reserved]);
    }
    return failed;
}

int twin_set_make(TwinSet *s, const TensorSet *params) {
    *s = (TwinSet){0};
    for (int64_t i = 0; i < params->n; i++) {
        const Tensor *p = params->tensor[i];
        int dtype = p->st->copied_as || p->st->twin ? tensor_wanted_twin(p) : 0;
        if (!dtype) {
            continue;
        }
        if (!s->n) {
            s->tensor = PyMem_Calloc((size_t)params->n, sizeof *s->tensor + sizeof *s->view + sizeof *s->writes);
            if (!s->tensor) {
                PyErr_NoMemory();
                return -1;
            }
            s->view = (const View **)(void *)(s->tensor + params->n);
            s->writes = (uint32_t *)(void *)(s->view + params->n);
            s->n = params->n;
        }
        Tensor *twin = tensor_new(1, &p->v.numel, dtype, p->v.device);
        if (!twin) {
            twin_set_hand_over(s, params, false);
            return -1;
        }
        s->tensor[i] = twin;
        s->view[i] = &twin->v;
        s->writes[i] = p->st->writes;
    }
    return 0;
}

/* Only who was written once, by the step, has the values of its twin: no one that is listed twice or was written by another thread. */
void twin_set_hand_over(TwinSet *s, const TensorSet *params, bool written) {
    for (int64_t i = 0; i < s->n; i++) {
        Tensor *p = params->tensor[i], *twin = s->tensor[i];
        if (twin && written && p->st->writes == s->writes[i] + 1) {
            tensor_give_twin(p, twin);
        }
        Py_XDECREF(twin);
    }
    PyMem_Free(s->tensor);
    *s = (TwinSet){0};
}

TensorList tensor_set_list(const TensorSet *s) { return (TensorList){s->n, s->view}; }

int64_t tensor_set_bytes(const TensorSet *s) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->n; i++) {
        bytes += s->view[i]->numel * (int64_t)amp_itemsize(s->view[i]->dtype);
    }
    return bytes;
}

void tensor_set_bump(TensorSet *s) {
    for (int64_t i = 0; i < s->n; i++) {
        tensor_bump(s->tensor[i]);
    }
}

PyThreadState *release_gil(int64_t bytes) { return bytes >= RELEASE_BYTES ? run_slot_unlock() : NULL; }
void take_gil(PyThreadState *saved) {
    if (saved) {
        run_slot_lock(saved);
    }
}

bool kernel_dtype(int dtype) {
    return dtype == AMP_FLOAT32 || dtype == AMP_FLOAT64 || dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16;
}

const Backend *backend_of(int device, const char *what) {
    const Backend *backend = amp_backend[device];
    if (!backend || (device == AMP_CUDA && device_require(device) < 0)) {
        if (!PyErr_Occurred()) {
            amp_raise(AMP_NO_KERNEL, what);
        }
        return NULL;
    }
    return backend;
}

int fail_device(const char *what) {
    PyErr_Format(PyExc_RuntimeError,
                 "%s: Expected all tensors to be on the same device. Move them with .to(device), or make one call per device",
                 what);
    return -1;
}

int fail_dtype(const char *what, int dtype) {
    PyErr_Format(PyExc_NotImplementedError, "%s: not implemented for '%s'. Use float32, float64, float16 or bfloat16", what,
                 amp_dtype_info[dtype].name);
    return -1;
}

int check_overlap(const View *v, const char *what) {
    if (!(v->layout & LAYOUT_CONTIGUOUS) && amp_has_internal_overlap(v)) {
        return amp_raise(AMP_OVERLAP, what);
    }
    return 0;
}

int arg_count(const char *what, Py_ssize_t n, Py_ssize_t want) {
    if (n != want) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments (%zd given)", what, want, n);
        return -1;
    }
    return 0;
}

int arg_double(PyObject *o, double *out) {
    *out = PyFloat_AsDouble(o);
    return *out == -1.0 && PyErr_Occurred() ? -1 : 0;
}
