/* Data in: numbers, nested sequences, arrays and buffers become tensors. Data out is in data_out.c, DLPack in dlpack.c. */
#include <math.h>
#include <string.h>

#include "../core/numeric.h"
#include "default_device.h"
#include "interop.h"
#include "run_op.h"
#include "tensor_methods.h"

/* ---- single elements ---- */

PyObject *element_get(const char *p, int dtype) {
    union {
        uint8_t u8;
        int8_t i8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        int64_t i64;
        uint16_t half[2];
        float f32[2];
        double f64[2];
    } e;
    memcpy(&e, p, amp_itemsize(dtype));
    switch ((DType)dtype) {
    case AMP_BOOL: return PyBool_FromLong(e.u8);
    case AMP_UINT8: return PyLong_FromLong(e.u8);
    case AMP_INT8: return PyLong_FromLong(e.i8);
    case AMP_INT16: return PyLong_FromLong(e.i16);
    case AMP_INT32: return PyLong_FromLong(e.i32);
    case AMP_INT64: return PyLong_FromLongLong(e.i64);
    case AMP_FLOAT8_E5M2: return PyFloat_FromDouble((double)amp_e5m2_to_f32(e.u8));
    case AMP_FLOAT8_E4M3FN: return PyFloat_FromDouble((double)amp_e4m3_to_f32(e.u8));
    case AMP_FLOAT16: return PyFloat_FromDouble((double)amp_f16_to_f32(e.u16));
    case AMP_BFLOAT16: return PyFloat_FromDouble((double)amp_bf16_to_f32(e.u16));
    case AMP_FLOAT32: return PyFloat_FromDouble((double)e.f32[0]);
    case AMP_FLOAT64: return PyFloat_FromDouble(e.f64[0]);
    case AMP_BCOMPLEX32: return PyComplex_FromDoubles((double)amp_bf16_to_f32(e.half[0]), (double)amp_bf16_to_f32(e.half[1]));
    case AMP_COMPLEX32: return PyComplex_FromDoubles((double)amp_f16_to_f32(e.half[0]), (double)amp_f16_to_f32(e.half[1]));
    case AMP_COMPLEX64: return PyComplex_FromDoubles((double)e.f32[0], (double)e.f32[1]);
    case AMP_COMPLEX128: return PyComplex_FromDoubles(e.f64[0], e.f64[1]);
    case AMP_DTYPE_COUNT: break;
    }
    PyErr_BadInternalCall();
    return NULL;
}

static int does_not_fit(int dtype, PyObject *value) {
    PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow: %R", amp_dtype_info[dtype].name,
                 value);
    return -1;
}

/* What an integer element can take: floats are truncated, the rest goes through __index__ (or, lacking that, __float__). uint8 takes
 * negative numbers down to -255 and wraps them, as PyTorch does. */
static int integer_from_object(PyObject *value, int dtype, int64_t *out) {
    int bits = 8 * (int)amp_itemsize(dtype);
    int64_t high = dtype == AMP_UINT8 ? UINT8_MAX : (int64_t)(UINT64_MAX >> (65 - bits));
    int64_t low = dtype == AMP_UINT8 ? -UINT8_MAX : -high - 1;
    if (PyFloat_Check(value) || (!PyIndex_Check(value) && PyNumber_Check(value) && !PyComplex_Check(value))) {
        double f = PyFloat_AsDouble(value);
        if (f == -1.0 && PyErr_Occurred()) {
            return -1;
        }
        f = trunc(f);
        if (!(f >= -0x1p63 && f < 0x1p63) || (int64_t)f < low || (int64_t)f > high) {
            return does_not_fit(dtype, value);
        }
        *out = (int64_t)f;
        return 0;
    }
    PyObject *number = PyNumber_Index(value);
    if (!number) {
        return -1;
    }
    int overflow;
    *out = PyLong_AsLongLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow) {
        PyErr_Format(PyExc_ValueError, "Overflow when unpacking long long: %R does not fit in 64 bits. Give a floating dtype",
                     value);
        return -1;
    }
    return *out < low || *out > high ? does_not_fit(dtype, value) : 0;
}

static int bool_from_object(PyObject *value) {
    if (!PyNumber_Check(value)) {
        PyErr_Format(PyExc_TypeError, "'%s' object cannot be interpreted as a bool element", Py_TYPE(value)->tp_name);
        return -1;
    }
    return PyObject_IsTrue(value);
}

static int integer_set(char *p, int dtype, PyObject *value) {
    int64_t i;
    if (integer_from_object(value, dtype, &i) < 0) {
        return -1;
    }
    memcpy(p, &i, amp_itemsize(dtype)); /* the low bytes, little-endian */
    return 0;
}

static int floating_set(char *p, int dtype, PyObject *value) {
    double f = PyFloat_AsDouble(value);
    if (f == -1.0 && PyErr_Occurred()) {
        return -1;
    }
    union {
        uint8_t u8;
        uint16_t u16;
        float f32;
        double f64;
    } e;
    switch (dtype) {
    case AMP_FLOAT8_E5M2: e.u8 = amp_f64_to_e5m2(f); break;
    case AMP_FLOAT8_E4M3FN: e.u8 = amp_f64_to_e4m3(f); break;
    case AMP_FLOAT16: e.u16 = amp_f64_to_f16(f); break;
    case AMP_BFLOAT16: e.u16 = amp_f64_to_bf16(f); break;
    case AMP_FLOAT32: e.f32 = (float)f; break;
    default: e.f64 = f;
    }
    memcpy(p, &e, amp_itemsize(dtype));
    return 0;
}

static int complex_set(char *p, int dtype, PyObject *value) {
    Py_complex c = PyComplex_AsCComplex(value);
    if (c.real == -1.0 && PyErr_Occurred()) {
        return -1;
    }
    if (dtype == AMP_BCOMPLEX32) {
        uint16_t parts[2] = {amp_f64_to_bf16(c.real), amp_f64_to_bf16(c.imag)};
        memcpy(p, parts, sizeof parts);
    } else if (dtype == AMP_COMPLEX32) {
        uint16_t parts[2] = {amp_f64_to_f16(c.real), amp_f64_to_f16(c.imag)};
        memcpy(p, parts, sizeof parts);
    } else if (dtype == AMP_COMPLEX64) {
        float parts[2] = {(float)c.real, (float)c.imag};
        memcpy(p, parts, sizeof parts);
    } else {
        double parts[2] = {c.real, c.imag};
        memcpy(p, parts, sizeof parts);
    }
    return 0;
}

int element_set(char *p, int dtype, PyObject *value) {
    if (tensor_check(value)) {
        if (((Tensor *)value)->v.numel != 1) {
            PyErr_Format(PyExc_ValueError,
                         "only one element tensors can be converted to Python scalars; this one has %lld elements",
                         (long long)((Tensor *)value)->v.numel);
            return -1;
        }
        PyObject *item = tensor_item((Tensor *)value);
        int rc = item ? element_set(p, dtype, item) : -1;
        Py_XDECREF(item);
        return rc;
    }
    if (dtype == AMP_BOOL) {
        int truth = bool_from_object(value);
        *p = (char)(truth > 0);
        return truth < 0 ? -1 : 0;
    }
    return amp_is_floating(dtype)  ? floating_set(p, dtype, value)
           : amp_is_complex(dtype) ? complex_set(p, dtype, value)
                                   : integer_set(p, dtype, value);
}

/* ---- nested sequences ---- */

/* Something to look into, as opposed to an element. */
static bool is_nested(PyObject *o) {
    if (PyList_Check(o) || PyTuple_Check(o)) {
        return true;
    }
    if (PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyUnicode_Check(o) || PyBytes_Check(o) || tensor_check(o) ||
        array_scalar_check(o)) {
        return false;
    }
    return array_check(o) ? array_ndim(o) > 0 : PySequence_Check(o);
}

static int too_deep(PyObject *o) {
    PyErr_Format(PyExc_ValueError, "too many dimensions '%s'", Py_TYPE(o)->tp_name);
    return -1;
}

/* The shape that the first elements suggest; the others are held against it when they are stored. Returns ndim or -1. */
static int nested_shape(PyObject *data, int64_t *shape) {
    int ndim = 0;
    PyObject *o = Py_NewRef(data);
    while (o && is_nested(o)) {
        if (ndim == AMP_MAX_DIMS) {
            ndim = too_deep(o);
            break;
        }
        Py_ssize_t n = PySequence_Size(o);
        if (n < 0) {
            ndim = -1;
            break;
        }
        shape[ndim++] = n;
        if (n == 0) {
            break;
        }
        Py_SETREF(o, PySequence_GetItem(o, 0));
    }
    if (!o) {
        return -1;
    }
    if (ndim > 0 && PyUnicode_Check(o)) {
        ndim = too_deep(o);
    }
    Py_DECREF(o);
    return ndim;
}

static int merge_dtype(int a, int b) { return a < 0 || a == b ? b : amp_promote_dtypes(a, b); }

static int leaf_dtype(PyObject *o) {
    if (PyFloat_CheckExact(o)) {
        return amp_state.default_dtype;
    }
    if (PyBool_Check(o)) {
        return AMP_BOOL;
    }
    if (PyLong_Check(o)) {
        return AMP_INT64;
    }
    if (tensor_check(o)) {
        return ((Tensor *)o)->v.dtype;
    }
    if (array_scalar_check(o)) {
        int id = array_dtype_id((PyObject *)Py_TYPE(o));
        if (id < 0 && !PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "can't convert a NumPy scalar of type %s. The supported dtypes are: %s",
                         Py_TYPE(o)->tp_name, dtype_names());
        }
        return id;
    }
    if (PyFloat_Check(o)) {
        return amp_state.default_dtype;
    }
    if (PyComplex_Check(o)) {
        return amp_state.default_dtype == AMP_FLOAT64 ? AMP_COMPLEX128 : AMP_COMPLEX64;
    }
    if (PyUnicode_Check(o) || PyBytes_Check(o)) {
        PyErr_Format(PyExc_TypeError, "invalid data type '%s': a tensor holds numbers", Py_TYPE(o)->tp_name);
    } else {
        PyErr_Format(PyExc_RuntimeError,
                     "Could not infer dtype of %s: a tensor is made from numbers, nested sequences of numbers, arrays or tensors",
                     Py_TYPE(o)->tp_name);
    }
    return -1;
}

/* Promotes the dtypes of all elements into *dtype, which starts at -1 and stays there if there are none. 0 or -1. */
static int infer_dtype(PyObject *o, int depth, int *dtype) {
    int found;
    if (array_check(o)) {
        Tensor *t = tensor_for_reading(o);
        if (!t) {
            return -1;
        }
        *dtype = merge_dtype(*dtype, t->v.dtype);
        Py_DECREF(t);
        return 0;
    }
    if (!is_nested(o)) {
        found = leaf_dtype(o);
        *dtype = found < 0 ? *dtype : merge_dtype(*dtype, found);
        return found < 0 ? -1 : 0;
    }
    if (depth == AMP_MAX_DIMS) {
        return too_deep(o);
    }
    PyObject *items = PySequence_Fast(o, "not a sequence");
    if (!items) {
        return -1;
    }
    int rc = 0;
    for (Py_ssize_t i = 0; rc == 0 && i < PySequence_Fast_GET_SIZE(items); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, i);
        if (PyFloat_CheckExact(item) && *dtype == amp_state.default_dtype) {
            continue;
        }
        Py_INCREF(item);
        rc = infer_dtype(item, depth + 1, dtype);
        Py_DECREF(item);
    }
    Py_DECREF(items);
    return rc;
}

typedef struct Filling {
    int ndim, dtype;
    const int64_t *shape;
    char *p; /* next element */
} Filling;

static int wrong_length(const Filling *f, int dim, int64_t n) {
    PyErr_Format(PyExc_ValueError,
                 "expected sequence of length %lld at dim %d (got %lld): all sequences of one level must be equally long",
                 (long long)f->shape[dim], dim, (long long)n);
    return -1;
}

/* An ndarray inside the nest: its elements are converted in one go. */
static int fill_from_array(Filling *f, int dim, PyObject *array) {
    Tensor *t = tensor_for_reading(array);
    if (!t) {
        return -1;
    }
    int rc = -1;
    View src = t->v;
    int64_t strides[AMP_MAX_DIMS];
    for (int d = 0; d < src.ndim && dim + d < f->ndim; d++) {
        if (src.shape[d] != f->shape[dim + d]) {
            wrong_length(f, dim + d, src.shape[d]);
            goto done;
        }
    }
    if (src.ndim != f->ndim - dim) {
        PyErr_Format(PyExc_ValueError, "expected an array of %d dimensions at dim %d (got %d)", f->ndim - dim, dim,
                     (int)src.ndim);
        goto done;
    }
    amp_contiguous_strides(src.ndim, src.shape, strides);
    View dst = {.data = f->p,
                .numel = src.numel,
                .shape = src.shape,
                .stride = strides,
                .ndim = src.ndim,
                .dtype = (int8_t)f->dtype,
                .device = AMP_CPU,
                .layout = LAYOUT_CONTIGUOUS};
    Call call = {.op = OP_COUNT, .nin = 1, .nout = 1, .in = {&src}, .out = {&dst}};
    rc = run_slot(AMP_CPU, amp_backend[AMP_CPU]->copy, &call, src.numel * 8, "tensor");
    f->p += (size_t)src.numel * amp_itemsize(f->dtype);
done:
    Py_DECREF(t);
    return rc;
}

/* Exact floats and ints into the commonest dtypes without a call per element. Returns how many elements were stored. */
static Py_ssize_t fill_quickly(Filling *f, PyObject *items, Py_ssize_t n) {
    Py_ssize_t i = 0;
    if (f->dtype == AMP_FLOAT32) {
        for (; i < n && PyFloat_CheckExact(PySequence_Fast_GET_ITEM(items, i)); i++, f->p += sizeof(float)) {
            float value = (float)PyFloat_AS_DOUBLE(PySequence_Fast_GET_ITEM(items, i));
            memcpy(f->p, &value, sizeof value);
        }
    } else if (f->dtype == AMP_FLOAT64) {
        for (; i < n && PyFloat_CheckExact(PySequence_Fast_GET_ITEM(items, i)); i++, f->p += sizeof(double)) {
            double value = PyFloat_AS_DOUBLE(PySequence_Fast_GET_ITEM(items, i));
            memcpy(f->p, &value, sizeof value);
        }
    } else if (f->dtype == AMP_INT64) {
        for (; i < n && PyLong_CheckExact(PySequence_Fast_GET_ITEM(items, i)); i++, f->p += sizeof(int64_t)) {
            int overflow;
            int64_t value = PyLong_AsLongLongAndOverflow(PySequence_Fast_GET_ITEM(items, i), &overflow);
            if (overflow) {
                break; /* the slow path words the error */
            }
            memcpy(f->p, &value, sizeof value);
        }
    }
    return i;
}

static int fill(Filling *f, int dim, PyObject *o) {
    if (dim == f->ndim) {
        int rc = element_set(f->p, f->dtype, o);
        f->p += amp_itemsize(f->dtype);
        return rc;
    }
    if (array_check(o)) {
        return fill_from_array(f, dim, o);
    }
    if (!is_nested(o)) {
        PyErr_Format(PyExc_TypeError, "not a sequence: expected one of length %lld at dim %d, got %s", (long long)f->shape[dim],
                     dim, Py_TYPE(o)->tp_name);
        return -1;
    }
    PyObject *items = PySequence_Fast(o, "not a sequence");
    if (!items) {
        return -1;
    }
    Py_ssize_t n = (Py_ssize_t)f->shape[dim];
    int rc = PySequence_Fast_GET_SIZE(items) == n ? 0 : wrong_length(f, dim, PySequence_Fast_GET_SIZE(items));
    for (Py_ssize_t i = rc == 0 && dim == f->ndim - 1 ? fill_quickly(f, items, n) : 0; rc == 0 && i < n; i++) {
        if (PySequence_Fast_GET_SIZE(items) != n) { /* __index__ or __float__ of an element changed the list */
            rc = wrong_length(f, dim, PySequence_Fast_GET_SIZE(items));
            break;
        }
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(items, i));
        rc = fill(f, dim + 1, item);
        Py_DECREF(item);
    }
    Py_DECREF(items);
    return rc;
}

static Tensor *tensor_from_nest(PyObject *data, int dtype) {
    int64_t shape[AMP_MAX_DIMS];
    int ndim = nested_shape(data, shape);
    if (ndim < 0) {
        return NULL;
    }
    if (dtype < 0 && infer_dtype(data, 0, &dtype) < 0) {
        return NULL;
    }
    Tensor *t = tensor_new(ndim, shape, dtype < 0 ? amp_state.default_dtype : dtype, AMP_CPU);
    if (!t) {
        return NULL;
    }
    Filling filling = {.ndim = ndim, .dtype = t->v.dtype, .shape = shape, .p = t->v.data};
    if (t->v.numel == 0 && ndim > 0 && shape[0] == 0) {
        return t;
    }
    if (fill(&filling, 0, data) < 0) {
        Py_CLEAR(t);
    }
    return t;
}

/* ---- whole tensors ---- */

Tensor *tensor_copy_data(Tensor *t) {
    Tensor *copy = tensor_new(t->v.ndim, t->v.shape, t->v.dtype, t->v.device);
    if (!copy || t->v.device == AMP_META) {
        return copy;
    }
    Call call = {.op = OP_COUNT, .nin = 1, .nout = 1, .in = {&t->v}, .out = {&copy->v}};
    if (run_slot(t->v.device, amp_backend[t->v.device]->copy, &call, t->v.numel * (int64_t)amp_itemsize(t->v.dtype) * 2, "copy") <
        0) {
        Py_CLEAR(copy);
    }
    return copy;
}

/* A tensor without history on its own memory, converted. dtype -1: as it is. */
static Tensor *copy_converted(Tensor *t, int dtype, int device) {
    dtype = dtype < 0 ? t->v.dtype : dtype;
    if (device == AMP_META) {
        return tensor_new(t->v.ndim, t->v.shape, dtype, device);
    }
    if (dtype == t->v.dtype && device == t->v.device) {
        return tensor_copy_data(t);
    }
    Tensor *bare = tensor_shallow(t); /* no history: nothing is recorded */
    Tensor *copy = bare ? call_to(bare, dtype, device) : NULL;
    Py_XDECREF(bare);
    return copy;
}

static Tensor *move_to(Tensor *t, int device) {
    if (!t || t->v.device == device) {
        return t;
    }
    Tensor *moved = copy_converted(t, -1, device);
    Py_DECREF(t);
    return moved;
}

Tensor *tensor_from_data(PyObject *data, int dtype, int device) {
    if (tensor_check(data)) {
        return copy_converted((Tensor *)data, dtype, device);
    }
    PyObject *array = array_check(data) ? Py_NewRef(data) : array_scalar_check(data) ? array_from_scalar(data) : NULL;
    if (!array) {
        return PyErr_Occurred() ? NULL : move_to(tensor_from_nest(data, dtype), device);
    }
    Tensor *shared = tensor_for_reading(array);
    Tensor *t = shared ? copy_converted(shared, dtype, device) : NULL;
    Py_XDECREF(shared);
    Py_DECREF(array);
    return t;
}

/* ---- Python functions ---- */

int take_arguments(const char *function, const char *const *names, int npos, int required, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kwnames, PyObject **out) {
    if (nargs > npos) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d positional argument%s but %zd were given", function, npos,
                     npos == 1 ? "" : "s", nargs);
        return -1;
    }
    for (int i = 0; names[i]; i++) {
        out[i] = i < nargs ? args[i] : NULL;
    }
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        int i = 0;
        while (names[i] && PyUnicode_CompareWithASCIIString(name, names[i]) != 0) {
            i++;
        }
        if (!names[i] || out[i]) {
            PyErr_Format(PyExc_TypeError,
                         names[i] ? "%s() got multiple values for argument '%U'" : "%s() got an unexpected keyword argument '%U'",
                         function, name);
            return -1;
        }
        out[i] = args[nargs + k];
    }
    for (int i = 0; i < required; i++) {
        if (!out[i]) {
            PyErr_Format(PyExc_TypeError, "%s() missing 1 required positional arguments: \"%s\"", function, names[i]);
            return -1;
        }
    }
    return 0;
}

static bool given(PyObject *o) { return o && o != Py_None; }

/* Options common to all makers; absent ones keep the fallback. 0 or -1. */
static int parse_dtype_device(PyObject *dtype_arg, PyObject *device_arg, int *dtype, int *device) {
    if (given(dtype_arg) && (*dtype = dtype_parse(dtype_arg)) < 0) {
        return -1;
    }
    return given(device_arg) && ((*device = device_parse(device_arg)) < 0 || device_require(*device) < 0) ? -1 : 0;
}

/* Where data goes that is given no device: a tensor stays where it is, unless factories were sent elsewhere. */
static int device_of_data(PyObject *data) { return default_device_or(tensor_check(data) ? ((Tensor *)data)->v.device : AMP_CPU); }

int bool_argument(PyObject *o, const char *function, const char *name) {
    if (!PyBool_Check(o)) {
        PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be bool, not %s", function, name, Py_TYPE(o)->tp_name);
        return -1;
    }
    return o == Py_True;
}

static int is_true(PyObject *o) { return given(o) ? PyObject_IsTrue(o) : 0; }

/* Steals t (may be NULL). */
static PyObject *with_grad(Tensor *t, PyObject *requires_grad, const char *function) {
    int on = t && requires_grad ? bool_argument(requires_grad, function, "requires_grad") : 0;
    if (on < 0 || (on && tensor_set_requires_grad(t, true) < 0)) {
        Py_CLEAR(t);
    }
    return (PyObject *)t;
}

static PyObject *py_tensor(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    (void)module;
    static const char *const names[] = {"data", "dtype", "device", "requires_grad", "pin_memory", NULL};
    PyObject *a[5];
    if (take_arguments("tensor", names, 1, 1, args, nargs, kwnames, a) < 0) {
        return NULL;
    }
    int dtype = -1, device = device_of_data(a[0]);
    if (parse_dtype_device(a[1], a[2], &dtype, &device) < 0) {
        return NULL;
    }
    if (tensor_check(a[0]) &&
        PyErr_WarnEx(PyExc_UserWarning,
                     "To copy construct from a tensor, it is recommended to use source.detach().clone(), rather than "
                     "tensor(source)",
                     1) < 0) {
        return NULL;
    }
    return with_grad(tensor_from_data(a[0], dtype, device), a[3], "tensor");
}

/* Shares memory if neither dtype nor device changes; otherwise the result of a conversion. New reference. */
static Tensor *share_or_convert(Tensor *t, int dtype, int device) {
    dtype = dtype < 0 ? t->v.dtype : dtype;
    if (dtype == t->v.dtype && device == t->v.device) {
        return (Tensor *)Py_NewRef(t);
    }
    return call_to(t, dtype, device);
}

static PyObject *py_as_tensor(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    (void)module;
    static const char *const names[] = {"data", "dtype", "device", NULL};
    PyObject *a[3];
    if (take_arguments("as_tensor", names, 3, 1, args, nargs, kwnames, a) < 0) {
        return NULL;
    }
    int dtype = -1, device = device_of_data(a[0]);
    if (parse_dtype_device(a[1], a[2], &dtype, &device) < 0) {
        return NULL;
    }
    if (tensor_check(a[0])) {
        return (PyObject *)share_or_convert((Tensor *)a[0], dtype, device);
    }
    if (!array_check(a[0])) {
        return (PyObject *)tensor_from_data(a[0], dtype, device);
    }
    Tensor *t = tensor_from_array(a[0]);
    Tensor *result = t ? share_or_convert(t, dtype, device) : NULL;
    Py_XDECREF(t);
    return (PyObject *)result;
}

static PyObject *py_from_numpy(PyObject *module, PyObject *array) {
    (void)module;
    return (PyObject *)tensor_from_array(array);
}

/* Keeps a Py_buffer alive inside a capsule, the owner of the tensor's memory. */
static void buffer_capsule_free(PyObject *capsule) {
    Py_buffer *buffer = PyCapsule_GetPointer(capsule, "ampnative.buffer");
    if (buffer) {
        PyBuffer_Release(buffer);
        PyMem_Free(buffer);
    }
}

/* New reference to the capsule; *buffer points into it. */
static PyObject *buffer_open(PyObject *o, Py_buffer **buffer) {
    Py_buffer *b = PyMem_Calloc(1, sizeof *b);
    if (!b) {
        return PyErr_NoMemory();
    }
    if (PyObject_GetBuffer(o, b, PyBUF_WRITABLE) < 0) {
        PyErr_Clear();
        if (PyObject_GetBuffer(o, b, PyBUF_SIMPLE) < 0) {
            PyMem_Free(b);
            return NULL;
        }
        if (PyErr_WarnEx(
                PyExc_UserWarning,
                "the given buffer is not writable, but a tensor can always be written to. Copy it first: bytearray(buffer)",
                1) < 0) {
            PyBuffer_Release(b);
            PyMem_Free(b);
            return NULL;
        }
    }
    PyObject *capsule = PyCapsule_New(b, "ampnative.buffer", buffer_capsule_free);
    if (!capsule) {
        PyBuffer_Release(b);
        PyMem_Free(b);
        return NULL;
    }
    *buffer = b;
    return capsule;
}

static Tensor *tensor_from_buffer(PyObject *o, int dtype, Py_ssize_t count, Py_ssize_t offset) {
    if (!PyObject_CheckBuffer(o)) {
        PyErr_Format(PyExc_ValueError, "object does not implement Python buffer protocol: %s", Py_TYPE(o)->tp_name);
        return NULL;
    }
    Py_buffer *buffer = NULL;
    Py_ssize_t size = (Py_ssize_t)amp_itemsize(dtype);
    PyObject *owner = buffer_open(o, &buffer);
    if (!owner) {
        return NULL;
    }
    Py_ssize_t length = buffer->len, rest = length - offset;
    Tensor *t = NULL;
    if (length == 0 || count == 0) {
        PyErr_Format(PyExc_ValueError, "both buffer length (%zd) and count (%zd) must not be 0", length, count);
    } else if (offset < 0 || offset >= length) {
        PyErr_Format(PyExc_ValueError,
                     "offset (%zd bytes) must be non-negative and no greater than buffer length (%zd bytes) minus 1", offset,
                     length);
    } else if (count < 0 && rest % size) {
        PyErr_Format(PyExc_ValueError,
                     "buffer length (%zd bytes) after offset (%zd bytes) must be a multiple of element size (%zd)", length,
                     offset, size);
    } else if (count > 0 && count > rest / size) {
        PyErr_Format(PyExc_ValueError,
                     "requested buffer length (%zd * %zd bytes) after offset (%zd bytes) must not be greater than actual buffer "
                     "length (%zd "
                     "bytes)",
                     count, size, offset, length);
    } else {
        int64_t n = count > 0 ? count : rest / size, stride = 1;
        t = tensor_from_memory((char *)buffer->buf + offset, (size_t)(n * size), owner, 1, &n, &stride, dtype, AMP_CPU);
    }
    Py_DECREF(owner);
    return t;
}

static PyObject *py_frombuffer(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    (void)module;
    static const char *const names[] = {"buffer", "dtype", "count", "offset", "requires_grad", NULL};
    PyObject *a[5];
    if (take_arguments("frombuffer", names, 1, 2, args, nargs, kwnames, a) < 0) {
        return NULL;
    }
    int dtype = dtype_parse(a[1]);
    Py_ssize_t count = a[2] ? PyNumber_AsSsize_t(a[2], PyExc_OverflowError) : -1;
    Py_ssize_t offset = a[3] && !PyErr_Occurred() ? PyNumber_AsSsize_t(a[3], PyExc_OverflowError) : 0;
    if (dtype < 0 || PyErr_Occurred()) {
        return NULL;
    }
    return with_grad(tensor_from_buffer(a[0], dtype, count, offset), a[4], "frombuffer");
}

/* asarray: the tensor that shares obj's memory, or NULL without exception if obj's kind cannot be shared. */
static Tensor *alias_of(PyObject *obj, int dtype) {
    if (tensor_check(obj)) {
        return (Tensor *)Py_NewRef(obj);
    }
    if (array_check(obj)) {
        return tensor_from_array(obj);
    }
    if (PyObject_HasAttrString(obj, "__dlpack__")) {
        return tensor_from_dlpack(obj);
    }
    if (PyObject_CheckBuffer(obj) && !array_scalar_check(obj)) {
        return tensor_from_buffer(obj, dtype < 0 ? AMP_UINT8 : dtype, -1, 0);
    }
    return NULL;
}

static PyObject *py_asarray(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    (void)module;
    static const char *const names[] = {"obj", "dtype", "device", "copy", "requires_grad", NULL};
    PyObject *a[5];
    if (take_arguments("asarray", names, 1, 1, args, nargs, kwnames, a) < 0) {
        return NULL;
    }
    int dtype = -1, copy = is_true(a[3]);
    if (copy < 0) {
        return NULL;
    }
    bool never_copy = given(a[3]) && !copy;
    int device = default_device_or(-1);
    if (parse_dtype_device(a[1], a[2], &dtype, &device) < 0) {
        return NULL;
    }
    Tensor *alias = alias_of(a[0], dtype), *result;
    if (!alias) {
        if (PyErr_Occurred()) {
            return NULL;
        }
        if (never_copy) {
            PyErr_Format(PyExc_ValueError, "can't alias arbitrary sequence into a tensor (copy=False was given for a %s)",
                         Py_TYPE(a[0])->tp_name);
            return NULL;
        }
        return with_grad(tensor_from_data(a[0], dtype, device < 0 ? AMP_CPU : device), given(a[4]) ? a[4] : NULL, "asarray");
    }
    int to_dtype = dtype < 0 ? alias->v.dtype : dtype, to_device = device < 0 ? alias->v.device : device;
    bool same = to_dtype == alias->v.dtype && to_device == alias->v.device;
    if (never_copy && !same) {
        PyErr_Format(PyExc_ValueError,
                     "can't alias tensor with dtype '%s' into dtype '%s' or another device (copy=False was given)",
                     amp_dtype_info[alias->v.dtype].name, amp_dtype_info[to_dtype].name);
        result = NULL;
    } else if (copy && same) {
        result = a[4] == Py_True ? tensor_copy_data(alias) : call_clone(alias);
    } else {
        result = share_or_convert(alias, to_dtype, to_device);
    }
    Py_DECREF(alias);
    return result && tensor_requires_grad(result) ? (PyObject *)result : with_grad(result, given(a[4]) ? a[4] : NULL, "asarray");
}

static PyMethodDef interop_functions[] = {
    {"tensor", FAST(py_tensor), METH_FASTCALL | METH_KEYWORDS,
     "tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False)\n--\n\n"
     "A new tensor with a copy of `data`: a number, nested sequences of numbers, an ndarray, a NumPy scalar or a tensor.\n\n"
     "Without dtype: bool, int64, the default dtype or its complex, arrays and tensors keep theirs.\n"
     "ValueError: sequences of unequal length, integers beyond 64 bits. RuntimeError: a value does not fit in the integer dtype, "
     "or\n"
     "no dtype can be inferred. TypeError: an element is no number."},
    {"as_tensor", FAST(py_as_tensor), METH_FASTCALL | METH_KEYWORDS,
     "as_tensor(data, dtype=None, device=None)\n--\n\nLike tensor(), but shares memory with tensors and ndarrays of that dtype "
     "and device."},
    {"from_numpy", py_from_numpy, METH_O,
     "from_numpy(array, /)\n--\n\nA tensor that shares memory with the ndarray, any strides but negative ones (ValueError).\n\n"
     "TypeError: not an ndarray, or a dtype or byte order that tensors do not have."},
    {"asarray", FAST(py_asarray), METH_FASTCALL | METH_KEYWORDS,
     "asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False)\n--\n\n"
     "A tensor from a tensor, ndarray, DLPack exporter, buffer or nested sequence. copy=None shares where possible, True never, "
     "False\n"
     "raises ValueError where sharing is impossible."},
    {"frombuffer", FAST(py_frombuffer), METH_FASTCALL | METH_KEYWORDS,
     "frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False)\n--\n\n"
     "A 1-dim tensor that shares memory with a buffer: `count` elements (-1: all) from byte `offset` on. ValueError if they do "
     "not fit."},
    {NULL, NULL, 0, NULL},
};

int interop_init(PyObject *module) {
    if (PyModule_AddFunctions(module, interop_functions) < 0) {
        return -1;
    }
    return data_out_init(module) < 0 || dlpack_init(module) < 0 ? -1 : 0;
}
