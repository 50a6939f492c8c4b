/* Data out: Python numbers and lists, ndarrays, the buffer protocol, copies and pickles of a Tensor. */
#include <string.h>

#include "../core/autocast.h"
#include "interop.h"
#include "run_op.h"
#include "tensor_methods.h"

Tensor *tensor_on_host(Tensor *t) {
    if (t->v.device == AMP_CPU || (t->v.device == AMP_CUDA && amp_state.cuda_emulated)) {
        return (Tensor *)Py_NewRef(t);
    }
    if (t->v.device == AMP_META) {
        PyErr_SetString(PyExc_NotImplementedError, "Cannot copy out of meta tensor; no data!");
        return NULL;
    }
    Tensor *bare = tensor_shallow(t);
    Tensor *host = bare ? call_to(bare, t->v.dtype, AMP_CPU) : NULL;
    Py_XDECREF(bare);
    return host;
}

/* ---- numbers and lists ---- */

PyObject *tensor_item(Tensor *t) {
    if (t->v.numel != 1) {
        PyErr_Format(PyExc_RuntimeError,
                     "a Tensor with %lld elements cannot be converted to Scalar: item() needs exactly one element",
                     (long long)t->v.numel);
        return NULL;
    }
    if (t->v.device == AMP_META) {
        PyErr_SetString(PyExc_RuntimeError, "Tensor.item() cannot be called on meta tensors: they have no data");
        return NULL;
    }
    if (t->v.device == AMP_CPU) {
        return element_get(t->v.data, t->v.dtype);
    }
    Tensor *host = tensor_on_host(t);
    PyObject *item = host ? element_get(host->v.data, host->v.dtype) : NULL;
    Py_XDECREF(host);
    return item;
}

static PyObject *list_from(const View *v, int dim, const char *p) {
    if (dim == v->ndim) {
        return element_get(p, v->dtype);
    }
    PyObject *list = PyList_New((Py_ssize_t)v->shape[dim]);
    int64_t step = v->stride[dim] * (int64_t)amp_itemsize(v->dtype);
    for (int64_t i = 0; list && i < v->shape[dim]; i++) {
        PyObject *item = list_from(v, dim + 1, p + i * step);
        if (!item) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

PyObject *tensor_tolist(Tensor *t) {
    Tensor *host = tensor_on_host(t);
    PyObject *list = host ? list_from(&host->v, 0, host->v.data) : NULL;
    Py_XDECREF(host);
    return list;
}

static PyObject *method_item(PyObject *self, PyObject *noargs) {
    (void)noargs;
    return tensor_item((Tensor *)self);
}

static PyObject *method_tolist(PyObject *self, PyObject *noargs) {
    (void)noargs;
    return tensor_tolist((Tensor *)self);
}

int tensor_bool(PyObject *self) {
    Tensor *t = (Tensor *)self;
    if (t->v.numel != 1) {
        PyErr_Format(PyExc_RuntimeError, "Boolean value of Tensor with %s is ambiguous%s",
                     t->v.numel ? "more than one value" : "no values", t->v.numel ? ": use any() or all()" : "");
        return -1;
    }
    PyObject *item = tensor_item(t);
    int truth = item ? PyObject_IsTrue(item) : -1;
    Py_XDECREF(item);
    return truth;
}

static PyObject *only_item(PyObject *self) {
    if (((Tensor *)self)->v.numel != 1) {
        PyErr_Format(PyExc_ValueError, "only one element tensors can be converted to Python scalars; this one has %lld elements",
                     (long long)((Tensor *)self)->v.numel);
        return NULL;
    }
    return tensor_item((Tensor *)self);
}

/* Steals item (may be NULL): a complex number with an imaginary part has no real counterpart. */
static PyObject *real_item(PyObject *item, const char *type) {
    if (!item || !PyComplex_Check(item)) {
        return item;
    }
    Py_complex c = PyComplex_AsCComplex(item);
    if (c.imag != 0.0) {
        PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow: %R has an imaginary part", type,
                     item);
        Py_DECREF(item);
        return NULL;
    }
    Py_DECREF(item);
    return PyFloat_FromDouble(c.real);
}

PyObject *tensor_int(PyObject *self) {
    PyObject *item = real_item(only_item(self), "int64_t");
    PyObject *number = item ? PyNumber_Long(item) : NULL;
    Py_XDECREF(item);
    return number;
}

static int warn_of_lost_gradient(Tensor *t) {
    static bool warned;
    if (warned || !tensor_requires_grad(t)) {
        return 0;
    }
    warned = true;
    return PyErr_WarnEx(
        PyExc_UserWarning,
        "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior. Consider using tensor.detach() "
        "first. This warning is shown once",
        1);
}

PyObject *tensor_float(PyObject *self) {
    PyObject *item = real_item(only_item(self), "double");
    if (item && warn_of_lost_gradient((Tensor *)self) < 0) {
        Py_CLEAR(item);
    }
    PyObject *number = item ? PyNumber_Float(item) : NULL;
    Py_XDECREF(item);
    return number;
}

PyObject *tensor_index(PyObject *self) {
    Tensor *t = (Tensor *)self;
    if (t->v.numel != 1 || !amp_is_integral(t->v.dtype)) {
        PyErr_Format(PyExc_TypeError,
                     "only integer tensors of a single element can be converted to an index; this one is %s with %lld elements",
                     amp_dtype_info[t->v.dtype].name, (long long)t->v.numel);
        return NULL;
    }
    PyObject *item = tensor_item(t);
    PyObject *number = item ? PyNumber_Long(item) : NULL;
    Py_XDECREF(item);
    return number;
}

static PyObject *method_complex(PyObject *self, PyObject *noargs) {
    (void)noargs;
    PyObject *item = only_item(self);
    if (!item || PyComplex_Check(item)) {
        return item;
    }
    double real = PyFloat_AsDouble(item);
    Py_DECREF(item);
    return real == -1.0 && PyErr_Occurred() ? NULL : PyComplex_FromDoubles(real, 0.0);
}

Py_ssize_t tensor_length(PyObject *self) {
    Tensor *t = (Tensor *)self;
    if (t->v.ndim == 0) {
        PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
        return -1;
    }
    return (Py_ssize_t)t->v.shape[0];
}

int tensor_contains(PyObject *self, PyObject *value) {
    Tensor *t = (Tensor *)self, *other;
    Number number;
    if (tensor_check(value)) {
        other = (Tensor *)Py_NewRef(value);
    } else if (PyFloat_Check(value) || PyLong_Check(value) || PyComplex_Check(value)) {
        if (number_from_object(value, &number) < 0) {
            return -1;
        }
        other = tensor_from_number(number, number_default_dtype(&number), t->v.device, true);
    } else {
        PyErr_Format(PyExc_RuntimeError, "Tensor.__contains__ only supports Tensor or scalar, but you passed in a %R",
                     (PyObject *)Py_TYPE(value));
        return -1;
    }
    Tensor *equal = other ? call_binary(OP_eq, t, other) : NULL;
    Tensor *found = call_unary(OP_any, equal);
    int truth = found ? tensor_bool((PyObject *)found) : -1;
    Py_XDECREF(other);
    Py_XDECREF(equal);
    Py_XDECREF(found);
    return truth;
}

static PyObject *method_format(PyObject *self, PyObject *spec) {
    if (((Tensor *)self)->v.ndim == 0 && ((Tensor *)self)->v.device != AMP_META) {
        PyObject *item = tensor_item((Tensor *)self);
        PyObject *text = item ? PyObject_Format(item, spec) : NULL;
        Py_XDECREF(item);
        return text;
    }
    return PyObject_CallMethod((PyObject *)&PyBaseObject_Type, "__format__", "OO", self, spec);
}

/* ---- ndarrays ---- */

/* What numpy(), __array__ and their kin refuse. 0 or -1. */
static int check_exportable(Tensor *t, PyObject *exception) {
    if (amp_grad_enabled && tensor_requires_grad(t)) {
        PyErr_SetString(exception, "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.");
        return -1;
    }
    if (t->v.device != AMP_CPU) {
        PyErr_Format(PyExc_TypeError,
                     "can't convert %S device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
                     amp_state.device[t->v.device]);
        return -1;
    }
    return 0;
}

static PyObject *export_array(Tensor *t) {
    PyObject *array = array_from_tensor(t);
    if (array) {
        t->st->exported = 1;
    }
    return array;
}

static PyObject *method_numpy(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    static const char *const names[] = {"force", NULL};
    PyObject *a[1];
    if (take_arguments("numpy", names, 1, 0, args, nargs, kwnames, a) < 0) {
        return NULL;
    }
    Tensor *t = (Tensor *)self;
    int force = a[0] ? PyObject_IsTrue(a[0]) : 0;
    if (force < 0 || (!force && check_exportable(t, PyExc_RuntimeError) < 0)) {
        return NULL;
    }
    if (t->v.device == AMP_CPU) {
        return export_array(t);
    }
    Tensor *bare = tensor_shallow(t);
    Tensor *host = bare ? call_to(bare, t->v.dtype, AMP_CPU) : NULL;
    PyObject *array = host ? export_array(host) : NULL;
    Py_XDECREF(bare);
    Py_XDECREF(host);
    return array;
}

static PyObject *method_array(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    static const char *const names[] = {"dtype", "copy", NULL};
    PyObject *a[2];
    if (take_arguments("__array__", names, 2, 0, args, nargs, kwnames, a) < 0 ||
        check_exportable((Tensor *)self, PyExc_RuntimeError) < 0) {
        return NULL;
    }
    int copy = a[1] && a[1] != Py_None ? PyObject_IsTrue(a[1]) : -1;
    PyObject *array = copy < 0 && PyErr_Occurred() ? NULL : export_array((Tensor *)self);
    PyObject *result = array ? array_as(array, a[0], copy) : NULL;
    Py_XDECREF(array);
    return result;
}

static PyObject *get_array_priority(PyObject *self, void *closure) {
    (void)self, (void)closure;
    return PyLong_FromLong(1000); /* ndarray * tensor is left to the tensor */
}

/* For reading at once: does not count as an export, and does not ask about gradients and devices. */
static PyObject *py_peek(PyObject *module, PyObject *o) {
    (void)module;
    if (!tensor_check(o)) {
        PyErr_Format(PyExc_TypeError, "_peek() takes a Tensor, not %s", Py_TYPE(o)->tp_name);
        return NULL;
    }
    Tensor *host = tensor_on_host((Tensor *)o);
    if (host && !*amp_dtype_info[host->v.dtype].numpy) { /* complex32 */
        Tensor *bare = tensor_shallow(host);
        Py_SETREF(host, bare ? call_to(bare, AMP_COMPLEX64, host->v.device) : NULL);
        Py_XDECREF(bare);
    }
    PyObject *array = host ? array_from_tensor(host) : NULL;
    Py_XDECREF(host);
    return array;
}

/* ---- buffer protocol ---- */

static char *const buffer_format[AMP_DTYPE_COUNT] = {
    [AMP_BOOL] = "?",       [AMP_UINT8] = "B",       [AMP_INT8] = "b",
    [AMP_INT16] = "h",      [AMP_INT32] = "i",       [AMP_INT64] = sizeof(long) == 8 ? "l" : "q",
    [AMP_FLOAT16] = "e",    [AMP_FLOAT32] = "f",     [AMP_FLOAT64] = "d",
    [AMP_COMPLEX64] = "Zf", [AMP_COMPLEX128] = "Zd",
};

static bool fortran_order(const View *v) {
    int64_t dense = 1;
    for (int d = 0; d < v->ndim; d++) {
        if (v->shape[d] != 1 && v->stride[d] != dense) {
            return v->numel == 0;
        }
        dense *= v->shape[d];
    }
    return true;
}

static const char *buffer_refusal(const Tensor *t, int flags) {
    bool c = t->v.layout & LAYOUT_CONTIGUOUS, fortran = fortran_order(&t->v);
    if (tensor_requires_grad(t)) {
        return "a tensor that requires grad has no buffer: use tensor.detach()";
    }
    if (t->v.device != AMP_CPU) {
        return "a tensor on another device than the CPU has no buffer: use tensor.cpu()";
    }
    if (!buffer_format[t->v.dtype]) {
        return "the buffer protocol has no letter for this dtype: use tensor.numpy() where NumPy has the dtype, or convert it "
               "(tensor.float())";
    }
    bool fits = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS       ? c
                : (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS     ? fortran
                : (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS ? c || fortran
                                                                         : c || (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    return fits ? NULL : "the tensor is not contiguous in the way that was asked for: use tensor.contiguous()";
}

/* The view belongs to a second tensor on the same storage: `t.data = other` may take the storage away from t itself. */
int tensor_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    Tensor *t = (Tensor *)self;
    const char *refusal = buffer_refusal(t, flags);
    view->obj = NULL;
    if (refusal) {
        PyErr_SetString(PyExc_BufferError, refusal);
        return -1;
    }
    int ndim = t->v.ndim;
    Py_ssize_t itemsize = (Py_ssize_t)amp_itemsize(t->v.dtype);
    Py_ssize_t *numbers = PyMem_Malloc((size_t)(2 * ndim + 1) * sizeof *numbers);
    Tensor *holder = numbers ? tensor_shallow(t) : (Tensor *)PyErr_NoMemory();
    if (!holder) {
        PyMem_Free(numbers);
        return -1;
    }
    for (int d = 0; d < ndim; d++) {
        numbers[d] = (Py_ssize_t)t->v.shape[d];
        numbers[ndim + d] = (Py_ssize_t)t->v.stride[d] * itemsize;
    }
    t->st->exported = 1;
    *view = (Py_buffer){
        .buf = t->v.data,
        .obj = (PyObject *)holder,
        .len = (Py_ssize_t)t->v.numel * itemsize,
        .itemsize = itemsize,
        .ndim = (flags & PyBUF_ND) == PyBUF_ND ? ndim : 1,
        .format = flags & PyBUF_FORMAT ? buffer_format[t->v.dtype] : NULL,
        .shape = (flags & PyBUF_ND) == PyBUF_ND ? numbers : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? numbers + ndim : NULL,
        .internal = numbers,
    };
    return 0;
}

void tensor_releasebuffer(PyObject *self, Py_buffer *view) {
    (void)self;
    PyMem_Free(view->internal);
}

/* ---- copies and pickles ---- */

/* Steals t (may be NULL): gives it self's class and requires_grad, and a dict (borrowed, may be NULL). */
static PyObject *like(Tensor *t, PyObject *cls, bool requires_grad, PyObject *dict) {
    if (t && cls != (PyObject *)amp_state.tensor_type) {
        PyObject *sub = tensor_make_subclass(cls, (PyObject *)t, requires_grad);
        Py_SETREF(t, (Tensor *)sub);
    } else if (t && requires_grad && tensor_set_requires_grad(t, true) < 0) {
        Py_CLEAR(t);
    }
    if (t && dict && PyDict_GET_SIZE(dict)) {
        Py_XSETREF(t->dict, Py_NewRef(dict));
    }
    return (PyObject *)t;
}

static PyObject *method_copy(PyObject *self, PyObject *noargs) {
    (void)noargs;
    Tensor *t = (Tensor *)self;
    PyObject *dict = t->dict ? PyDict_Copy(t->dict) : NULL;
    if (t->dict && !dict) {
        return NULL;
    }
    PyObject *copy = like(tensor_shallow(t), (PyObject *)Py_TYPE(self), tensor_requires_grad(t), dict);
    Py_XDECREF(dict);
    return copy;
}

/* copy.deepcopy(o, memo); NULL for NULL, without exception then. */
static PyObject *deep(PyObject *o, PyObject *memo) {
    if (!o) {
        return NULL;
    }
    PyObject *module = PyImport_ImportModule("copy");
    PyObject *copy = module ? PyObject_CallMethod(module, "deepcopy", "OO", o, memo) : NULL;
    Py_XDECREF(module);
    return copy;
}

static PyObject *deep_copy(Tensor *t, PyObject *key, PyObject *memo) {
    PyObject *copy = like(tensor_copy_data(t), (PyObject *)Py_TYPE(t), tensor_requires_grad(t), NULL);
    if (!copy || PyObject_SetItem(memo, key, copy) < 0) {
        goto fail;
    }
    PyObject *grad = deep((PyObject *)t->grad, memo);
    if (t->grad && !grad) {
        goto fail;
    }
    ((Tensor *)copy)->grad = (Tensor *)grad;
    PyObject *dict = deep(t->dict, memo);
    if (t->dict && !dict) {
        goto fail;
    }
    Py_XSETREF(((Tensor *)copy)->dict, dict);
    return copy;
fail:
    Py_XDECREF(copy);
    return NULL;
}

static PyObject *method_deepcopy(PyObject *self, PyObject *memo) {
    Tensor *t = (Tensor *)self;
    if (t->fn) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment: "
                        "copy tensor.detach() instead");
        return NULL;
    }
    PyObject *key = PyLong_FromVoidPtr(self);
    PyObject *copy = key && PyDict_Check(memo) ? Py_XNewRef(PyDict_GetItemWithError(memo, key)) : NULL;
    if (key && !PyDict_Check(memo)) {
        PyErr_SetString(PyExc_TypeError, "__deepcopy__() needs a memo dict: call copy.deepcopy(tensor)");
    }
    if (key && !copy && !PyErr_Occurred()) {
        copy = deep_copy(t, key, memo);
    }
    Py_XDECREF(key);
    return copy;
}

/* Pickled as (class, dtype, shape, bytes in C order, requires_grad, device, attributes). */
static PyObject *method_reduce_ex(PyObject *self, PyObject *protocol) {
    (void)protocol;
    Tensor *t = (Tensor *)self;
    Tensor *host = tensor_on_host(t);
    if (host && !(host->v.layout & LAYOUT_CONTIGUOUS)) {
        Py_SETREF(host, tensor_copy_data(host));
    }
    PyObject *rebuild = host ? PyObject_GetAttrString(amp_state.module, "_rebuild_tensor") : NULL;
    PyObject *shape = rebuild ? size_from_dims(t->v.ndim, t->v.shape) : NULL;
    PyObject *bytes = shape
                          ? PyBytes_FromStringAndSize(host->v.data, (Py_ssize_t)(t->v.numel * (int64_t)amp_itemsize(t->v.dtype)))
                          : NULL;
    PyObject *result = NULL;
    if (bytes) {
        result = Py_BuildValue("(O(OOOOOOO))", rebuild, (PyObject *)Py_TYPE(self), amp_state.dtype[t->v.dtype], shape, bytes,
                               tensor_requires_grad(t) ? Py_True : Py_False, amp_state.device[t->v.device],
                               t->dict ? t->dict : Py_None);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(shape);
    Py_XDECREF(rebuild);
    Py_XDECREF(host);
    return result;
}

static int parse_shape(PyObject *shape, int64_t *dims) {
    Py_ssize_t n = PyTuple_GET_SIZE(shape);
    if (n > AMP_MAX_DIMS) {
        PyErr_SetString(PyExc_ValueError, "a pickled tensor has too many dimensions");
        return -1;
    }
    for (Py_ssize_t d = 0; d < n; d++) {
        dims[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
        if (dims[d] < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "a pickled tensor has a negative size");
            }
            return -1;
        }
    }
    return (int)n;
}

static PyObject *py_rebuild(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *cls, *dtype_arg, *shape, *bytes, *device_arg, *dict;
    int requires_grad;
    int64_t dims[AMP_MAX_DIMS];
    if (!PyArg_ParseTuple(args, "OOO!SpOO:_rebuild_tensor", &cls, &dtype_arg, &PyTuple_Type, &shape, &bytes, &requires_grad,
                          &device_arg, &dict)) {
        return NULL;
    }
    int dtype = dtype_parse(dtype_arg), device = dtype < 0 ? -1 : device_parse(device_arg),
        ndim = device < 0 ? -1 : parse_shape(shape, dims);
    int64_t numel = ndim < 0 ? 0 : amp_numel(ndim, dims);
    if (ndim < 0 || device_require(device) < 0) {
        return NULL;
    }
    if (numel < 0 || (uint64_t)numel != (uint64_t)PyBytes_GET_SIZE(bytes) / amp_itemsize(dtype) ||
        (uint64_t)PyBytes_GET_SIZE(bytes) % amp_itemsize(dtype)) {
        PyErr_SetString(PyExc_ValueError, "a pickled tensor is damaged: its shape and its bytes do not belong together");
        return NULL;
    }
    Tensor *t = tensor_new(ndim, dims, dtype, AMP_CPU);
    if (t) {
        memcpy(t->v.data, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    }
    if (t && device != AMP_CPU) {
        Py_SETREF(t, call_to(t, dtype, device));
    }
    return like(t, cls, requires_grad, PyDict_Check(dict) ? dict : NULL);
}

/* ---- tables ---- */

PyMethodDef interop_methods[] = {
    {"item", method_item, METH_NOARGS,
     "item($self, /)\n--\n\nThe only element as a Python number; RuntimeError if there is not exactly one."},
    {"tolist", method_tolist, METH_NOARGS,
     "tolist($self, /)\n--\n\nNested lists of Python numbers; a number for a 0-dim tensor."},
    {"numpy", FAST(method_numpy), METH_FASTCALL | METH_KEYWORDS,
     "numpy($self, /, *, force=False)\n--\n\nAn ndarray that shares the tensor's memory (ml_dtypes for bfloat16 and the 8-bit "
     "floats).\n\n"
     "TypeError on another device than the CPU, RuntimeError if the tensor requires grad; force=True detaches and copies "
     "instead."},
    {"__array__", FAST(method_array), METH_FASTCALL | METH_KEYWORDS,
     "__array__($self, dtype=None, copy=None)\n--\n\nFor numpy.asarray()."},
    {"__complex__", method_complex, METH_NOARGS, NULL},
    {"__format__", method_format, METH_O, "__format__($self, spec, /)\n--\n\nA 0-dim tensor is formatted as its number."},
    {"__dlpack__", FAST(tensor_dlpack), METH_FASTCALL | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nA DLPack capsule that shares the "
     "memory.\n\n"
     "BufferError if the tensor requires grad or its memory is not what the asker wants."},
    {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\n(device type, device number) in DLPack's terms."},
    {"__copy__", method_copy, METH_NOARGS, NULL},
    {"__deepcopy__", method_deepcopy, METH_O, NULL},
    {"__reduce_ex__", method_reduce_ex, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

PyGetSetDef interop_getset[] = {
    {"__array_priority__", get_array_priority, NULL, NULL, NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *py_set_data(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 2 || !tensor_check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "_set_data() takes a tensor and its new data");
        return NULL;
    }
    return tensor_set_data((Tensor *)args[0], args[1]) < 0 ? NULL : Py_NewRef(Py_None);
}

int data_out_init(PyObject *module) {
    static PyMethodDef functions[] = {
        {"_peek", py_peek, METH_O,
         "_peek(tensor, /)\n--\n\nAn ndarray on the tensor's memory (a copy if that is not host memory), to be read at once."},
        {"_set_data", FAST(py_set_data), METH_FASTCALL,
         "_set_data(tensor, data, /)\n--\n\ntensor.data = data, also to and from the meta device."},
        {"_rebuild_tensor", py_rebuild, METH_VARARGS, "Makes a tensor from its pickled parts."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
