/* DLPack both ways: memory shared with other array libraries through capsules that are consumed once. */
#include <string.h>

#include "dlpack.h"
#include "interop.h"
#include "run_op.h"

static const char *const PLAIN = "dltensor", *const VERSIONED = "dltensor_versioned";

/* ---- dtypes ---- */

static const struct {
    uint8_t code, bits;
} type_of[AMP_DTYPE_COUNT] = {
    [AMP_BOOL] = {DL_BOOL, 8},          [AMP_UINT8] = {DL_UINT, 8},           [AMP_INT8] = {DL_INT, 8},
    [AMP_INT16] = {DL_INT, 16},         [AMP_INT32] = {DL_INT, 32},           [AMP_INT64] = {DL_INT, 64},
    [AMP_FLOAT8_E5M2] = {DL_E5M2, 8},   [AMP_FLOAT8_E4M3FN] = {DL_E4M3FN, 8}, [AMP_FLOAT16] = {DL_FLOAT, 16},
    [AMP_BFLOAT16] = {DL_BFLOAT, 16},   [AMP_FLOAT32] = {DL_FLOAT, 32},       [AMP_FLOAT64] = {DL_FLOAT, 64},
    [AMP_COMPLEX32] = {DL_COMPLEX, 32}, [AMP_COMPLEX64] = {DL_COMPLEX, 64},   [AMP_COMPLEX128] = {DL_COMPLEX, 128},
};

static int id_of_type(DLDataType type) {
    for (int id = 0; type.lanes == 1 && id < AMP_DTYPE_COUNT; id++) {
        if (type_of[id].code == type.code && type_of[id].bits == type.bits) {
            return id;
        }
    }
    PyErr_Format(PyExc_BufferError, "DLPack dtype (code %d, %d bits, %d lanes) has no counterpart here. Supported: %s", type.code,
                 type.bits, type.lanes, dtype_names());
    return -1;
}

/* ---- export ---- */

/* One block per export; the tensor in it keeps the memory alive. */
typedef struct Export {
    union {
        DLManagedTensor plain;
        DLManagedTensorVersioned versioned;
    };
    Tensor *holder;
    int64_t numbers[]; /* shape, strides */
} Export;

/* The consumer may be another library's thread without the GIL. */
static void export_free(void *ctx) {
    Export *e = ctx;
    if (Py_IsInitialized()) {
        PyGILState_STATE gil = PyGILState_Ensure();
        Py_DECREF(e->holder);
        PyMem_RawFree(e);
        PyGILState_Release(gil);
    }
}
static void delete_plain(DLManagedTensor *self) { export_free(self->manager_ctx); }
static void delete_versioned(DLManagedTensorVersioned *self) { export_free(self->manager_ctx); }

/* A consumer renames the capsule; under its first name nobody has taken the tensor. */
static void unused_capsule_free(PyObject *capsule) {
    for (int versioned = 0; versioned < 2; versioned++) {
        const char *name = versioned ? VERSIONED : PLAIN;
        if (PyCapsule_IsValid(capsule, name)) {
            export_free(versioned ? ((DLManagedTensorVersioned *)PyCapsule_GetPointer(capsule, name))->manager_ctx
                                  : ((DLManagedTensor *)PyCapsule_GetPointer(capsule, name))->manager_ctx);
        }
    }
}

static PyObject *export_capsule(Tensor *t, bool versioned, bool copied) {
    int ndim = t->v.ndim;
    Export *e = PyMem_RawCalloc(1, sizeof *e + (size_t)(2 * ndim) * sizeof(int64_t));
    if (!e) {
        return PyErr_NoMemory();
    }
    e->holder = tensor_shallow(t);
    if (!e->holder) {
        PyMem_RawFree(e);
        return NULL;
    }
    if (ndim) {
        memcpy(e->numbers, t->v.shape, (size_t)ndim * sizeof(int64_t));
        memcpy(e->numbers + ndim, t->v.stride, (size_t)ndim * sizeof(int64_t));
    }
    DLTensor tensor = {
        .data = t->v.data,
        .device = {DL_CPU, 0},
        .ndim = ndim,
        .dtype = {type_of[t->v.dtype].code, type_of[t->v.dtype].bits, 1},
        .shape = e->numbers,
        .strides = e->numbers + ndim,
    };
    if (versioned) {
        e->versioned = (DLManagedTensorVersioned){.version = {DL_MAJOR, DL_MINOR},
                                                  .manager_ctx = e,
                                                  .deleter = delete_versioned,
                                                  .flags = copied ? DL_IS_COPIED : 0,
                                                  .dl_tensor = tensor};
    } else {
        e->plain = (DLManagedTensor){.dl_tensor = tensor, .manager_ctx = e, .deleter = delete_plain};
    }
    PyObject *capsule = PyCapsule_New(e, versioned ? VERSIONED : PLAIN, unused_capsule_free);
    if (!capsule) {
        export_free(e);
        return NULL;
    }
    t->st->exported = 1;
    return capsule;
}

static int check_export(Tensor *t, PyObject *stream) {
    if (tensor_requires_grad(t)) {
        PyErr_SetString(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
        return -1;
    }
    if (t->v.device != AMP_CPU) {
        PyErr_Format(
            PyExc_BufferError,
            "a tensor on device %S cannot be exported: its memory is not what a consumer expects there. Use tensor.cpu()",
            amp_state.device[t->v.device]);
        return -1;
    }
    if (stream && stream != Py_None) {
        long number = PyLong_AsLong(stream);
        if (number != -1) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_AssertionError, "stream should be None on cpu, got %ld", number);
            }
            return -1;
        }
        PyErr_Clear();
    }
    return 0;
}

/* (type, number) of dl_device, or the CPU. 0 or -1. */
static int check_target(PyObject *dl_device) {
    long type, number;
    if (!dl_device || dl_device == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(dl_device) || PyTuple_GET_SIZE(dl_device) != 2) {
        PyErr_Format(PyExc_TypeError, "dl_device must be a tuple (device type, device number), not %R", dl_device);
        return -1;
    }
    type = PyLong_AsLong(PyTuple_GET_ITEM(dl_device, 0));
    number = PyLong_AsLong(PyTuple_GET_ITEM(dl_device, 1));
    if (PyErr_Occurred()) {
        return -1;
    }
    if (type != DL_CPU || number != 0) {
        PyErr_Format(PyExc_BufferError, "a CPU tensor cannot be exported to DLPack device (%ld, %ld)", type, number);
        return -1;
    }
    return 0;
}

PyObject *tensor_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    static const char *const names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *a[4];
    Tensor *t = (Tensor *)self;
    if (take_arguments("__dlpack__", names, 1, 0, args, nargs, kwnames, a) < 0 || check_export(t, a[0]) < 0 ||
        check_target(a[2]) < 0) {
        return NULL;
    }
    long major = 0;
    if (a[1] && a[1] != Py_None) {
        if (!PyTuple_Check(a[1]) || PyTuple_GET_SIZE(a[1]) != 2) {
            PyErr_Format(PyExc_TypeError, "max_version must be a tuple (major, minor), not %R", a[1]);
            return NULL;
        }
        major = PyLong_AsLong(PyTuple_GET_ITEM(a[1], 0));
        if (major == -1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    int copy = a[3] && a[3] != Py_None ? PyObject_IsTrue(a[3]) : 0;
    if (copy < 0) {
        return NULL;
    }
    if (!copy) {
        return export_capsule(t, major >= DL_MAJOR, false);
    }
    Tensor *own = tensor_copy_data(t);
    PyObject *capsule = own ? export_capsule(own, major >= DL_MAJOR, true) : NULL;
    Py_XDECREF(own);
    return capsule;
}

PyObject *tensor_dlpack_device(PyObject *self, PyObject *noargs) {
    (void)noargs;
    Tensor *t = (Tensor *)self;
    if (t->v.device == AMP_META) {
        PyErr_SetString(PyExc_BufferError, "a meta tensor has no data to export");
        return NULL;
    }
    return Py_BuildValue("(ii)", t->v.device == AMP_CUDA ? DL_CUDA : DL_CPU, 0);
}

/* ---- import ---- */

/* The consumed tensor: freed when the storage that uses its memory dies. */
static void consumed_free(PyObject *owner) {
    bool versioned = PyCapsule_GetContext(owner) != NULL;
    void *managed = PyCapsule_GetPointer(owner, "ampnative.dlpack");
    if (!managed) {
        PyErr_Clear();
    } else if (versioned) {
        DLManagedTensorVersioned *m = managed;
        if (m->deleter) {
            m->deleter(m);
        }
    } else {
        DLManagedTensor *m = managed;
        if (m->deleter) {
            m->deleter(m);
        }
    }
}

/* What the memory spans, in elements from the first one on; -1 with an exception. Fills stride. */
static int64_t span_of(const DLTensor *d, int64_t *stride) {
    int64_t last = 0, numel = d->ndim <= AMP_MAX_DIMS && d->ndim >= 0 ? amp_numel(d->ndim, d->shape) : -1;
    for (int i = 0; numel >= 0 && i < d->ndim; i++) {
        numel = d->shape[i] < 0 ? -1 : numel;
    }
    if (numel < 0) {
        PyErr_Format(PyExc_BufferError, "the DLPack tensor has a shape that no tensor can have (%d dimensions)", (int)d->ndim);
        return -1;
    }
    amp_contiguous_strides(d->ndim, d->shape, stride);
    for (int i = 0; d->strides && i < d->ndim; i++) {
        int64_t reach;
        if (d->shape[i] < 2) {
            continue;
        }
        stride[i] = d->strides[i];
        if (stride[i] < 0 || __builtin_mul_overflow(d->shape[i] - 1, stride[i], &reach) ||
            __builtin_add_overflow(last, reach, &last)) {
            PyErr_Format(PyExc_BufferError,
                         "the DLPack tensor has stride %lld in dimension %d; negative strides are not supported: export a copy",
                         (long long)stride[i], i);
            return -1;
        }
    }
    if (numel == 0) {
        return 0;
    }
    return d->strides ? last + 1 : numel;
}

static Tensor *adopt(const DLTensor *d, PyObject *owner) {
    int64_t stride[AMP_MAX_DIMS];
    static char nothing[1];
    if (d->device.device_type != DL_CPU) {
        PyErr_Format(PyExc_BufferError, "the DLPack tensor lies on device type %d; only CPU memory (1) can be taken over",
                     (int)d->device.device_type);
        return NULL;
    }
    int id = id_of_type(d->dtype);
    int64_t span = id < 0 ? -1 : span_of(d, stride);
    if (span < 0) {
        return NULL;
    }
    if (span > 0 && (!d->data || span > PTRDIFF_MAX / (int64_t)amp_itemsize(id))) {
        PyErr_SetString(PyExc_BufferError, "the DLPack tensor has elements but no memory that could hold them");
        return NULL;
    }
    char *data = d->data ? (char *)d->data + d->byte_offset : nothing;
    return tensor_from_memory(data, (size_t)span * amp_itemsize(id), owner, d->ndim, d->shape, stride, id, AMP_CPU);
}

/* Takes the managed tensor out of the capsule, which is renamed so that nobody else does. */
static Tensor *consume(PyObject *capsule) {
    bool versioned = PyCapsule_IsValid(capsule, VERSIONED);
    if (!versioned && !PyCapsule_IsValid(capsule, PLAIN)) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "from_dlpack received an invalid capsule. A DLTensor capsule can be consumed only once: ask the array for a "
            "new one");
        return NULL;
    }
    void *managed = PyCapsule_GetPointer(capsule, versioned ? VERSIONED : PLAIN);
    DLManagedTensorVersioned *v = versioned ? managed : NULL;
    if (v && v->version.major != DL_MAJOR) {
        PyErr_Format(PyExc_BufferError, "the DLPack capsule has version %u.%u; only version %d is understood", v->version.major,
                     v->version.minor, DL_MAJOR);
        return NULL;
    }
    PyObject *owner = PyCapsule_New(managed, "ampnative.dlpack", NULL);
    if (!owner || PyCapsule_SetContext(owner, versioned ? managed : NULL) < 0 ||
        PyCapsule_SetName(capsule, versioned ? "used_dltensor_versioned" : "used_dltensor") < 0) {
        Py_XDECREF(owner);
        return NULL;
    }
    PyCapsule_SetDestructor(capsule, NULL);
    PyCapsule_SetDestructor(owner, consumed_free); /* from here on the tensor is ours to free */
    Tensor *t = adopt(v ? &v->dl_tensor : &((DLManagedTensor *)managed)->dl_tensor, owner);
    if (t) {
        t->st->exported = 1;
    }
    if (t && v && (v->flags & DL_READ_ONLY)) { /* tensors can be written to, this memory must not be */
        Py_SETREF(t, tensor_copy_data(t));
    }
    Py_DECREF(owner);
    return t;
}

/* Asks for a versioned capsule; producers of before version 1 do not know the keyword. */
static PyObject *request_capsule(PyObject *o) {
    PyObject *method = PyObject_GetAttrString(o, "__dlpack__");
    PyObject *empty = method ? PyTuple_New(0) : NULL;
    PyObject *kwargs = empty ? Py_BuildValue("{s(ii)}", "max_version", DL_MAJOR, DL_MINOR) : NULL;
    PyObject *capsule = kwargs ? PyObject_Call(method, empty, kwargs) : NULL;
    if (kwargs && !capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_CallNoArgs(method);
    }
    Py_XDECREF(kwargs);
    Py_XDECREF(empty);
    Py_XDECREF(method);
    return capsule;
}

static int check_source_device(PyObject *o) {
    PyObject *device = PyObject_CallMethod(o, "__dlpack_device__", NULL);
    if (!device) {
        return -1;
    }
    PyObject *first = PySequence_GetItem(device, 0);
    long type = first ? PyLong_AsLong(first) : -1;
    Py_XDECREF(first);
    Py_DECREF(device);
    if (type == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (type != DL_CPU) {
        PyErr_Format(PyExc_BufferError,
                     "%s lies on DLPack device type %ld; only CPU memory (1) can be taken over. Copy it to the host first",
                     Py_TYPE(o)->tp_name, type);
        return -1;
    }
    return 0;
}

Tensor *tensor_from_dlpack(PyObject *o) {
    if (PyCapsule_CheckExact(o)) {
        return consume(o);
    }
    if (!PyObject_HasAttrString(o, "__dlpack__")) {
        PyErr_Format(PyExc_RuntimeError,
                     "from_dlpack received an invalid capsule: %s is neither a DLPack capsule nor an array with __dlpack__",
                     Py_TYPE(o)->tp_name);
        return NULL;
    }
    if (PyObject_HasAttrString(o, "__dlpack_device__") && check_source_device(o) < 0) {
        return NULL;
    }
    PyObject *capsule = request_capsule(o);
    if (capsule && !PyCapsule_CheckExact(capsule)) {
        PyErr_Format(PyExc_TypeError, "%s.__dlpack__() returned %s, no capsule", Py_TYPE(o)->tp_name, Py_TYPE(capsule)->tp_name);
        Py_CLEAR(capsule);
    }
    Tensor *t = capsule ? consume(capsule) : NULL;
    Py_XDECREF(capsule);
    return t;
}

static PyObject *py_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    (void)module;
    static const char *const names[] = {"ext_tensor", "device", "copy", NULL};
    PyObject *a[3];
    if (take_arguments("from_dlpack", names, 1, 1, args, nargs, kwnames, a) < 0) {
        return NULL;
    }
    int device = a[1] && a[1] != Py_None ? device_parse(a[1]) : AMP_CPU;
    int copy = a[2] && a[2] != Py_None ? PyObject_IsTrue(a[2]) : 0;
    Tensor *t = device < 0 || copy < 0 || device_require(device) < 0 ? NULL : tensor_from_dlpack(a[0]);
    if (t && device != AMP_CPU) {
        Py_SETREF(t, call_to(t, t->v.dtype, device));
    } else if (t && copy) {
        Py_SETREF(t, tensor_copy_data(t));
    }
    return (PyObject *)t;
}

static PyObject *py_to_dlpack(PyObject *module, PyObject *tensor) {
    (void)module;
    if (!tensor_check(tensor)) {
        PyErr_Format(PyExc_TypeError, "to_dlpack() takes a Tensor, not %s", Py_TYPE(tensor)->tp_name);
        return NULL;
    }
    return tensor_dlpack(tensor, NULL, 0, NULL);
}

int dlpack_init(PyObject *module) {
    static PyMethodDef functions[] = {
        {"from_dlpack", FAST(py_from_dlpack), METH_FASTCALL | METH_KEYWORDS,
         "from_dlpack(ext_tensor, *, device=None, copy=None)\n--\n\n"
         "A tensor that shares memory with an array that has __dlpack__, or with a DLPack capsule (which is used up). Read-only "
         "memory is\n"
         "copied. BufferError: memory, dtype or strides that a CPU tensor cannot have. RuntimeError: a capsule used before."},
        {"to_dlpack", py_to_dlpack, METH_O, "to_dlpack(tensor, /)\n--\n\nA DLPack capsule that shares the tensor's memory."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
