/* dtype, device, Size and Generator: the small objects that tensors are described with. finfo and iinfo are in finfo.c. */
#include <stdio.h>
#include <string.h>

#include "default_device.h"
#include "interop.h"

/* ---- dtype: one immortal object per row of dtypes.def ---- */

typedef struct DTypeObject {
    PyObject_HEAD
    Py_hash_t hash; /* -1: not asked for yet; it may cost an import of ml_dtypes */
    int id;
} DTypeObject;

static int dtype_id(PyObject *self) { return ((DTypeObject *)self)->id; }
static const DTypeInfo *dtype_info(PyObject *self) { return &amp_dtype_info[dtype_id(self)]; }

PyObject *dtype_object(int dtype) { return Py_NewRef(amp_state.dtype[dtype]); }

int dtype_parse(PyObject *o) {
    if (Py_IS_TYPE(o, amp_state.dtype_type)) {
        return dtype_id(o);
    }
    if (o == (PyObject *)&PyFloat_Type) {
        return AMP_FLOAT64;
    }
    if (o == (PyObject *)&PyLong_Type) {
        return AMP_INT64;
    }
    if (o == (PyObject *)&PyBool_Type) {
        return AMP_BOOL;
    }
    if (o == (PyObject *)&PyComplex_Type) {
        return AMP_COMPLEX128;
    }
    int id = array_dtype_id(o);
    if (id < 0 && !PyErr_Occurred()) {
        if (PyType_Check(o) || array_descr_check(o)) {
            PyErr_Format(PyExc_TypeError,
                         "argument 'dtype' must be an ampnative.dtype; %R has no counterpart here. Supported: %s", o,
                         dtype_names());
        } else {
            PyErr_Format(PyExc_TypeError, "argument 'dtype' must be an ampnative.dtype such as ampnative.float32, not %s",
                         Py_TYPE(o)->tp_name);
        }
    }
    return id;
}

const char *dtype_names(void) {
#define DTYPE(id, name, numpy, bytes, category, shortname) " " name
    static char names[sizeof
#include "../core/dtypes.def"
    ];
    const bool made = *names;
    for (int id = 0; !made && id < AMP_DTYPE_COUNT; id++) {
        if (*amp_dtype_info[id].numpy) {
            size_t n = strlen(names);
            PyOS_snprintf(names + n, sizeof names - n, "%s%s", n ? " " : "", amp_dtype_info[id].name);
        }
    }
    return names;
}

static PyObject *dtype_repr(PyObject *self) { return PyUnicode_FromFormat("ampnative.%s", dtype_info(self)->name); }

/* The hash is that of the NumPy dtype, so that a dict keyed by one finds the other. */
static Py_hash_t dtype_hash(PyObject *self) {
    DTypeObject *d = (DTypeObject *)self;
    if (!*dtype_info(self)->numpy) {
        return d->id + 1;
    }
    if (d->hash == -1) {
        PyObject *numpy = array_dtype_of(d->id);
        if (!numpy) {
            return -1;
        }
        d->hash = PyObject_Hash(numpy);
        Py_DECREF(numpy);
    }
    return d->hash;
}

static PyObject *dtype_compare(PyObject *self, PyObject *other, int op) {
    if (op != Py_EQ && op != Py_NE) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    bool same = self == other;
    if (!same && !Py_IS_TYPE(other, amp_state.dtype_type)) {
        if (!PyType_Check(other) && !array_descr_check(other)) {
            Py_RETURN_NOTIMPLEMENTED;
        }
        same = array_dtype_id(other) == dtype_id(self);
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    return PyBool_FromLong(same == (op == Py_EQ));
}

static PyObject *dtype_get_floating(PyObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(amp_is_floating(dtype_id(self)));
}

static PyObject *dtype_get_complex(PyObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(amp_is_complex(dtype_id(self)));
}

static PyObject *dtype_get_signed(PyObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(dtype_id(self) != AMP_BOOL && dtype_id(self) != AMP_UINT8);
}

static PyObject *dtype_get_itemsize(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(dtype_info(self)->itemsize);
}

static PyObject *dtype_get_name(PyObject *self, void *closure) {
    (void)closure;
    return PyUnicode_FromString(dtype_info(self)->name);
}

static PyObject *dtype_get_abbr(PyObject *self, void *closure) {
    (void)closure;
    return PyUnicode_FromString(dtype_info(self)->shortname);
}

static PyObject *dtype_get_numpy(PyObject *self, void *closure) {
    (void)closure;
    return array_dtype_of(dtype_id(self));
}

static PyObject *dtype_to_complex(PyObject *self, PyObject *noargs) {
    (void)noargs;
    switch (dtype_id(self)) {
    case AMP_BFLOAT16:
    case AMP_BCOMPLEX32: return dtype_object(AMP_BCOMPLEX32);
    case AMP_FLOAT16:
    case AMP_COMPLEX32: return dtype_object(AMP_COMPLEX32);
    case AMP_FLOAT32:
    case AMP_COMPLEX64: return dtype_object(AMP_COMPLEX64);
    case AMP_FLOAT64:
    case AMP_COMPLEX128: return dtype_object(AMP_COMPLEX128);
    default: break;
    }
    PyErr_Format(PyExc_RuntimeError,
                 "Unknown Complex ScalarType for %s: only float16, float32 and float64 have a complex counterpart",
                 dtype_info(self)->name);
    return NULL;
}

static PyObject *dtype_to_real(PyObject *self, PyObject *noargs) {
    (void)noargs;
    int id = dtype_id(self);
    return dtype_object(amp_real_of(id));
}

/* A string makes pickle store a global name and lets copy() return the object itself. */
static PyObject *dtype_reduce(PyObject *self, PyObject *noargs) {
    (void)noargs;
    return PyUnicode_FromString(dtype_info(self)->name);
}

static PyGetSetDef dtype_getset[] = {
    {"is_floating_point", dtype_get_floating, NULL, "True for float64, float32, the 16-bit and the 8-bit floats.", NULL},
    {"is_complex", dtype_get_complex, NULL, "True for complex64 and complex128.", NULL},
    {"is_signed", dtype_get_signed, NULL, "False for bool and uint8.", NULL},
    {"itemsize", dtype_get_itemsize, NULL, "Bytes per element.", NULL},
    {"name", dtype_get_name, NULL, "The name without the package, such as \"float16\".", NULL},
    {"abbr", dtype_get_abbr, NULL, "A short name for tables.", NULL},
    {"dtype", dtype_get_numpy, NULL, "The NumPy dtype (from ml_dtypes for bfloat16 and the 8-bit floats).", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef dtype_methods[] = {
    {"to_complex", dtype_to_complex, METH_NOARGS,
     "to_complex($self, /)\n--\n\nThe complex dtype whose parts have this dtype; RuntimeError if there is none."},
    {"to_real", dtype_to_real, METH_NOARGS,
     "to_real($self, /)\n--\n\nThe dtype of the real part; this dtype itself if it is not complex."},
    {"__reduce__", dtype_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot dtype_slots[] = {
    {Py_tp_doc,
     (void *)"A number format: ampnative.float32 and its kin. Equal to, and hashes like, the NumPy dtype of that name."},
    {Py_tp_repr, (void *)dtype_repr},
    {Py_tp_hash, (void *)dtype_hash},
    {Py_tp_richcompare, (void *)dtype_compare},
    {Py_tp_getset, dtype_getset},
    {Py_tp_methods, dtype_methods},
    {0, NULL},
};
static PyType_Spec dtype_spec = {"ampnative.dtype", sizeof(DTypeObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, dtype_slots};

static const struct {
    const char *name;
    DType id;
} dtype_aliases[] = {
    {"half", AMP_FLOAT16}, {"float", AMP_FLOAT32}, {"double", AMP_FLOAT64},   {"short", AMP_INT16},
    {"int", AMP_INT32},    {"long", AMP_INT64},    {"cfloat", AMP_COMPLEX64}, {"cdouble", AMP_COMPLEX128},
};

static int add_dtype(PyObject *module, PyObject *sub, const char *name, int id) {
    return PyModule_AddObjectRef(module, name, amp_state.dtype[id]) < 0 ? -1
                                                                        : PyModule_AddObjectRef(sub, name, amp_state.dtype[id]);
}

/* The module gets every dtype, and so does a submodule of that alone, for `from ._C.dtypes import *`. */
static int dtypes_init(PyObject *module) {
    static const char submodule[] = "ampnative._C.dtypes";
    PyObject *sub = PyModule_New(submodule);
    int failed = !sub || PyDict_SetItemString(PyImport_GetModuleDict(), submodule, sub) < 0 ||
                 PyModule_AddObjectRef(module, "dtypes", sub) < 0;
    Py_XDECREF(sub);
    if (failed) {
        return -1;
    }
    for (int id = 0; id < AMP_DTYPE_COUNT; id++) {
        DTypeObject *d = PyObject_New(DTypeObject, amp_state.dtype_type);
        if (!d) {
            return -1;
        }
        d->id = id;
        d->hash = -1;
        amp_state.dtype[id] = (PyObject *)d;
        if (add_dtype(module, sub, amp_dtype_info[id].name, id) < 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < sizeof dtype_aliases / sizeof *dtype_aliases; i++) {
        if (add_dtype(module, sub, dtype_aliases[i].name, dtype_aliases[i].id) < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- device ---- */

typedef struct DeviceObject {
    PyObject_HEAD
    int type;  /* Device */
    int index; /* -1: none given */
} DeviceObject;

static const char *const device_names[AMP_DEVICE_COUNT] = {"cpu", "cuda", "meta"};
enum { MAX_DEVICE_INDEX = 127 };

static PyObject *device_new(int type, int index) {
    DeviceObject *d = PyObject_New(DeviceObject, amp_state.device_type);
    if (d) {
        d->type = type;
        d->index = index;
    }
    return (PyObject *)d;
}

PyObject *device_object(int device) { return Py_NewRef(amp_state.device[device]); }

/* "cuda:3" -> type and index; the index has no sign and no leading zero. */
static int device_split(const char *s, int *type, int *index) {
    const char *colon = strchr(s, ':');
    size_t length = colon ? (size_t)(colon - s) : strlen(s);
    *index = -1;
    if (!*s) {
        PyErr_SetString(PyExc_RuntimeError, "Device string must not be empty: write \"cpu\", \"cuda\", \"cuda:0\" or \"meta\"");
        return -1;
    }
    for (*type = 0; *type < AMP_DEVICE_COUNT; ++*type) {
        if (strlen(device_names[*type]) == length && !memcmp(s, device_names[*type], length)) {
            break;
        }
    }
    if (*type == AMP_DEVICE_COUNT) {
        PyErr_Format(PyExc_RuntimeError, "Expected one of cpu, cuda, meta device type at start of device string: %s", s);
        return -1;
    }
    if (!colon) {
        return 0;
    }
    const char *digits = colon + 1;
    size_t n = strlen(digits);
    bool good = n > 0 && n <= 3 && strspn(digits, "0123456789") == n && (n == 1 || *digits != '0');
    *index = 0;
    for (size_t i = 0; good && i < n; i++) {
        *index = *index * 10 + (digits[i] - '0');
    }
    if (!good || *index > MAX_DEVICE_INDEX) {
        PyErr_Format(PyExc_RuntimeError, "Invalid device string: '%s'. After the colon comes a device number from 0 to %d", s,
                     MAX_DEVICE_INDEX);
        return -1;
    }
    return 0;
}

static int device_index_from_int(PyObject *o, int *index) {
    long i = PyLong_AsLong(o);
    if (i == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (i < 0 || i > MAX_DEVICE_INDEX) {
        PyErr_Format(PyExc_RuntimeError, i < 0 ? "Device index must not be negative, got %ld" : "Device index %ld is too large",
                     i);
        return -1;
    }
    *index = (int)i;
    return 0;
}

static int device_from_object(PyObject *o, int *type, int *index) {
    if (Py_IS_TYPE(o, amp_state.device_type)) {
        *type = ((DeviceObject *)o)->type;
        *index = ((DeviceObject *)o)->index;
        return 0;
    }
    if (PyUnicode_Check(o)) {
        const char *s = PyUnicode_AsUTF8(o);
        return s ? device_split(s, type, index) : -1;
    }
    if (PyLong_Check(o) && !PyBool_Check(o)) {
        *type = AMP_CUDA;
        return device_index_from_int(o, index);
    }
    PyErr_Format(PyExc_TypeError,
                 "argument 'device' must be an ampnative.device, a str such as \"cuda:0\" or a device number, not %s",
                 Py_TYPE(o)->tp_name);
    return -1;
}

int device_parse(PyObject *o) {
    int type, index;
    if (device_from_object(o, &type, &index) < 0) {
        return -1;
    }
    if (type == AMP_CUDA && index > 0) {
        PyErr_Format(PyExc_RuntimeError, "CUDA error: invalid device ordinal: cuda:%d was asked for, but only cuda:0 exists",
                     index);
        return -1;
    }
    return type;
}

static PyObject *device_tp_new(PyTypeObject *cls, PyObject *args, PyObject *kwargs) {
    (void)cls;
    static char *names_type[] = {"type", "index", NULL};
    static char *names_device[] = {"device", NULL};
    PyObject *type_arg = NULL, *index_arg = Py_None;
    int type, index;
    bool named_device = kwargs && PyDict_GetItemString(kwargs, "device");
    bool parsed = named_device ? PyArg_ParseTupleAndKeywords(args, kwargs, "O:device", names_device, &type_arg)
                               : PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:device", names_type, &type_arg, &index_arg);
    if (!parsed || device_from_object(type_arg, &type, &index) < 0) {
        return NULL;
    }
    if (index_arg == Py_None) {
        return Py_IS_TYPE(type_arg, amp_state.device_type) ? Py_NewRef(type_arg) : device_new(type, index);
    }
    if (!PyUnicode_Check(type_arg)) {
        PyErr_SetString(PyExc_TypeError, "device() takes an index only beside a device type given as str: device(\"cuda\", 0)");
        return NULL;
    }
    if (index >= 0) {
        PyErr_Format(PyExc_RuntimeError, "type (string) must not include an index because index was passed explicitly: %U",
                     type_arg);
        return NULL;
    }
    return device_index_from_int(index_arg, &index) < 0 ? NULL : device_new(type, index);
}

void plain_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *device_repr(PyObject *self) {
    DeviceObject *d = (DeviceObject *)self;
    return d->index < 0 ? PyUnicode_FromFormat("device(type='%s')", device_names[d->type])
                        : PyUnicode_FromFormat("device(type='%s', index=%d)", device_names[d->type], d->index);
}

static PyObject *device_str(PyObject *self) {
    DeviceObject *d = (DeviceObject *)self;
    return d->index < 0 ? PyUnicode_FromString(device_names[d->type])
                        : PyUnicode_FromFormat("%s:%d", device_names[d->type], d->index);
}

static Py_hash_t device_hash(PyObject *self) {
    DeviceObject *d = (DeviceObject *)self;
    return (Py_hash_t)(d->type + 1) * 1000 + d->index + 1;
}

static PyObject *device_compare(PyObject *self, PyObject *other, int op) {
    if ((op != Py_EQ && op != Py_NE) || !Py_IS_TYPE(other, amp_state.device_type)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    DeviceObject *a = (DeviceObject *)self, *b = (DeviceObject *)other;
    return PyBool_FromLong((a->type == b->type && a->index == b->index) == (op == Py_EQ));
}

static PyObject *device_get_type(PyObject *self, void *closure) {
    (void)closure;
    return PyUnicode_InternFromString(device_names[((DeviceObject *)self)->type]);
}

static PyObject *device_get_index(PyObject *self, void *closure) {
    (void)closure;
    int index = ((DeviceObject *)self)->index;
    return index < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(index);
}

static PyObject *device_reduce(PyObject *self, PyObject *noargs) {
    (void)noargs;
    PyObject *text = device_str(self);
    return text ? Py_BuildValue("(O(N))", (PyObject *)Py_TYPE(self), text) : NULL;
}

static PyObject *device_enter(PyObject *self, PyObject *noargs) {
    (void)noargs;
    int device = device_parse(self);
    return device < 0 || default_device_enter(device) < 0 ? NULL : Py_NewRef(self);
}

static PyObject *device_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self, (void)args, (void)nargs;
    return default_device_exit() < 0 ? NULL : Py_NewRef(Py_None);
}

static PyGetSetDef device_getset[] = {
    {"type", device_get_type, NULL, "\"cpu\", \"cuda\" or \"meta\".", NULL},
    {"index", device_get_index, NULL, "The device number, or None if none was given.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef device_methods[] = {
    {"__reduce__", device_reduce, METH_NOARGS, NULL},
    {"__enter__", device_enter, METH_NOARGS, NULL},
    {"__exit__", FAST(device_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot device_slots[] = {
    {Py_tp_doc,
     (void *)"device(type, index=None)\n--\n\nA place for tensors: device(\"cpu\"), device(\"cuda:0\"), device(\"cuda\", 0). In "
             "a with "
             "statement: the default device of factories inside, in this thread.\n\n"
             "Raises RuntimeError for an unknown type or a malformed string, TypeError for anything that is no str, int or "
             "device."},
    {Py_tp_new, (void *)device_tp_new},
    {Py_tp_dealloc, (void *)plain_dealloc},
    {Py_tp_repr, (void *)device_repr},
    {Py_tp_str, (void *)device_str},
    {Py_tp_hash, (void *)device_hash},
    {Py_tp_richcompare, (void *)device_compare},
    {Py_tp_getset, device_getset},
    {Py_tp_methods, device_methods},
    {0, NULL},
};
static PyType_Spec device_spec = {"ampnative.device", sizeof(DeviceObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                                  device_slots};

/* ---- Size: a tuple of ints ---- */

/* Not tracked by the garbage collector: it holds ints only, so it cannot be part of a cycle. */
static PyObject *size_alloc(Py_ssize_t n) {
    PyObject *size = (PyObject *)PyObject_GC_NewVar(PyTupleObject, amp_state.size_type, n);
    if (size) {
        memset(((PyTupleObject *)size)->ob_item, 0, (size_t)n * sizeof(PyObject *));
    }
    return size;
}

PyObject *size_from_dims(int ndim, const int64_t *shape) {
    PyObject *size = size_alloc(ndim);
    for (int d = 0; size && d < ndim; d++) {
        PyObject *item = PyLong_FromLongLong(shape[d]);
        if (!item) {
            Py_CLEAR(size);
            break;
        }
        PyTuple_SET_ITEM(size, d, item);
    }
    return size;
}

/* Steals a tuple (may be NULL) of ints. */
static PyObject *size_from_tuple(PyObject *tuple) {
    if (!tuple) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    PyObject *size = size_alloc(n);
    for (Py_ssize_t i = 0; size && i < n; i++) {
        PyTuple_SET_ITEM(size, i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
    }
    Py_DECREF(tuple);
    return size;
}

static PyObject *size_tp_new(PyTypeObject *cls, PyObject *args, PyObject *kwargs) {
    (void)cls;
    PyObject *iterable = NULL;
    if (kwargs && PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Size() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_UnpackTuple(args, "Size", 0, 1, &iterable)) {
        return NULL;
    }
    PyObject *given = iterable ? PySequence_Tuple(iterable) : PyTuple_New(0);
    if (!given) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(given);
    PyObject *size = size_alloc(n);
    for (Py_ssize_t i = 0; size && i < n; i++) {
        PyObject *item = PyTuple_GET_ITEM(given, i);
        PyObject *number = PyNumber_Index(item);
        if (!number) {
            if (PyErr_ExceptionMatches(PyExc_TypeError)) {
                PyErr_Format(PyExc_TypeError, "ampnative.Size() takes an iterable of 'int' (item %zd is '%s')", i,
                             Py_TYPE(item)->tp_name);
            }
            Py_CLEAR(size);
            break;
        }
        PyTuple_SET_ITEM(size, i, number);
    }
    Py_DECREF(given);
    return size;
}

static PyObject *size_repr(PyObject *self) {
    PyObject *list = PySequence_List(self);
    PyObject *text = list ? PyUnicode_FromFormat("ampnative.Size(%R)", list) : NULL;
    Py_XDECREF(list);
    return text;
}

static PyObject *size_numel(PyObject *self, PyObject *noargs) {
    (void)noargs;
    PyObject *product = PyLong_FromLong(1);
    for (Py_ssize_t i = 0; product && i < PyTuple_GET_SIZE(self); i++) {
        Py_SETREF(product, PyNumber_Multiply(product, PyTuple_GET_ITEM(self, i)));
    }
    return product;
}

static PyObject *size_reduce(PyObject *self, PyObject *noargs) {
    (void)noargs;
    PyObject *plain = PyTuple_GetSlice(self, 0, PyTuple_GET_SIZE(self));
    return plain ? Py_BuildValue("(O(N))", (PyObject *)Py_TYPE(self), plain) : NULL;
}

static PyObject *size_subscript(PyObject *self, PyObject *key) {
    PyObject *result = PyTuple_Type.tp_as_mapping->mp_subscript(self, key);
    if (!PySlice_Check(key) || (result && Py_IS_TYPE(result, amp_state.size_type))) {
        return result;
    }
    return size_from_tuple(result);
}

static bool all_ints(PyObject *tuple) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (!PyLong_Check(PyTuple_GET_ITEM(tuple, i))) {
            return false;
        }
    }
    return true;
}

static PyObject *size_add(PyObject *a, PyObject *b) {
    if (!PyTuple_Check(a) || !PyTuple_Check(b)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (!all_ints(a) || !all_ints(b)) { /* an ordinary tuple then */
        return PyTuple_Type.tp_as_sequence->sq_concat(a, b);
    }
    Py_ssize_t na = PyTuple_GET_SIZE(a), nb = PyTuple_GET_SIZE(b);
    PyObject *size = size_alloc(na + nb);
    for (Py_ssize_t i = 0; size && i < na + nb; i++) {
        PyTuple_SET_ITEM(size, i, Py_NewRef(i < na ? PyTuple_GET_ITEM(a, i) : PyTuple_GET_ITEM(b, i - na)));
    }
    return size;
}

static PyObject *size_repeat(PyObject *self, Py_ssize_t n) {
    PyObject *result = PyTuple_Type.tp_as_sequence->sq_repeat(self, n);
    return result && Py_IS_TYPE(result, amp_state.size_type) ? result : size_from_tuple(result);
}

static PyMethodDef size_methods[] = {
    {"numel", size_numel, METH_NOARGS,
     "numel($self, /)\n--\n\nNumber of elements of a tensor of this shape: the product of the entries, 1 if there are none."},
    {"__reduce__", size_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot size_slots[] = {
    {Py_tp_doc, (void *)"Size(iterable=())\n--\n\nThe shape of a tensor: a tuple of ints. Slices and sums of Sizes are Sizes."},
    {Py_tp_base, &PyTuple_Type},
    {Py_tp_new, (void *)size_tp_new},
    {Py_tp_repr, (void *)size_repr},
    {Py_tp_methods, size_methods},
    {Py_mp_subscript, (void *)size_subscript},
    {Py_nb_add, (void *)size_add},
    {Py_sq_repeat, (void *)size_repeat},
    {0, NULL},
};
static PyType_Spec size_spec = {"ampnative.Size", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, size_slots};

int types_init(PyObject *module) {
    struct {
        PyTypeObject **slot;
        PyType_Spec *spec;
    } types[] = {
        {&amp_state.dtype_type, &dtype_spec}, {&amp_state.device_type, &device_spec}, {&amp_state.size_type, &size_spec}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        *types[i].slot = (PyTypeObject *)PyType_FromModuleAndSpec(module, types[i].spec, NULL);
        if (!*types[i].slot || PyModule_AddType(module, *types[i].slot) < 0) {
            return -1;
        }
    }
    for (int d = 0; d < AMP_DEVICE_COUNT; d++) {
        amp_state.device[d] = device_new(d, d == AMP_CUDA ? 0 : -1);
        if (!amp_state.device[d]) {
            return -1;
        }
    }
    return dtypes_init(module) < 0 || generator_init(module) < 0 || finfo_init(module) < 0 ? -1 : 0;
}
