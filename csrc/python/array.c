/* The only file that includes NumPy. ndarrays and tensors share memory here; bfloat16 and the 8-bit floats come from ml_dtypes, which
 * is imported when first needed. */
#ifndef NPY_NO_DEPRECATED_API
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#endif
#ifndef NPY_TARGET_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#endif
#include "interop.h"

#include <numpy/arrayobject.h>

/* Strong references; NULL for a row of ml_dtypes until it is needed. */
static PyArray_Descr *descr_of[AMP_DTYPE_COUNT];

/* Rows that NumPy itself knows have a type number here, the others -1. */
static const int type_number[AMP_DTYPE_COUNT] = {
    [AMP_BOOL] = NPY_BOOL,       [AMP_UINT8] = NPY_UINT8, [AMP_INT8] = NPY_INT8,           [AMP_INT16] = NPY_INT16,
    [AMP_INT32] = NPY_INT32,     [AMP_INT64] = NPY_INT64, [AMP_FLOAT8_E5M2] = -1,          [AMP_FLOAT8_E4M3FN] = -1,
    [AMP_FLOAT16] = NPY_FLOAT16, [AMP_BFLOAT16] = -1,     [AMP_FLOAT32] = NPY_FLOAT32,     [AMP_FLOAT64] = NPY_FLOAT64,
    [AMP_BCOMPLEX32] = -1,       [AMP_COMPLEX32] = -1,    [AMP_COMPLEX64] = NPY_COMPLEX64, [AMP_COMPLEX128] = NPY_COMPLEX128,
};

int array_init(PyObject *module) {
    (void)module;
    if (PyArray_ImportNumPyAPI() < 0) {
        return -1;
    }
    for (int id = 0; id < AMP_DTYPE_COUNT; id++) {
        if (type_number[id] >= 0) {
            descr_of[id] = PyArray_DescrFromType(type_number[id]);
            if (!descr_of[id]) {
                return -1;
            }
        }
    }
    return 0;
}

/* Fetches the rows that NumPy lacks; 0 or -1 with an exception. */
static int load_ml_dtypes(void) {
    static bool loaded;
    if (loaded) {
        return 0;
    }
    PyObject *ml = PyImport_ImportModule("ml_dtypes");
    if (!ml) {
        return -1;
    }
    for (int id = 0; id < AMP_DTYPE_COUNT; id++) {
        if (descr_of[id] || !*amp_dtype_info[id].numpy) {
            continue;
        }
        PyObject *scalar = PyObject_GetAttrString(ml, amp_dtype_info[id].numpy);
        PyArray_Descr *descr = NULL;
        int good = scalar && PyArray_DescrConverter(scalar, &descr);
        Py_XDECREF(scalar);
        if (!good) {
            Py_DECREF(ml);
            return -1;
        }
        descr_of[id] = descr;
    }
    Py_DECREF(ml);
    loaded = true;
    return 0;
}

int array_check(PyObject *o) { return PyArray_Check(o); }
int array_scalar_check(PyObject *o) { return PyObject_TypeCheck(o, &PyGenericArrType_Type); }
int array_descr_check(PyObject *o) { return PyArray_DescrCheck(o); }
int array_ndim(PyObject *array) { return PyArray_NDIM((PyArrayObject *)array); }
PyObject *array_from_scalar(PyObject *scalar) { return PyArray_FromScalar(scalar, NULL); }
static int id_of_descr(PyArray_Descr *descr) {
    int number = descr->type_num;
    if (number == NPY_LONGLONG && sizeof(npy_longlong) == 8) { /* a second 64-bit integer beside NPY_INT64 */
        return AMP_INT64;
    }
    if (PyTypeNum_ISUSERDEF(number) && load_ml_dtypes() < 0) {
        return -1;
    }
    for (int id = 0; id < AMP_DTYPE_COUNT; id++) {
        if (descr_of[id] && descr_of[id]->type_num == number) {
            return id;
        }
    }
    return -1;
}

int array_dtype_id(PyObject *o) {
    if (PyArray_DescrCheck(o)) {
        PyArray_Descr *descr = (PyArray_Descr *)o;
        return PyArray_ISNBO(descr->byteorder) ? id_of_descr(descr) : -1;
    }
    if (!PyType_Check(o) || !PyType_IsSubtype((PyTypeObject *)o, &PyGenericArrType_Type)) {
        return -1;
    }
    if (o == (PyObject *)&PyLongLongArrType_Type) {
        return AMP_INT64;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int id = 0; id < AMP_DTYPE_COUNT; id++) {
            if (descr_of[id] && (PyObject *)descr_of[id]->typeobj == o) {
                return id;
            }
        }
        /* The scalar types of ml_dtypes derive from numpy.generic directly, those of NumPy do not. */
        if (((PyTypeObject *)o)->tp_base != &PyGenericArrType_Type || load_ml_dtypes() < 0) {
            return -1;
        }
    }
    return -1;
}

PyObject *array_dtype_of(int dtype) {
    if (!descr_of[dtype] && load_ml_dtypes() < 0) {
        return NULL;
    }
    if (!descr_of[dtype]) {
        PyErr_Format(PyExc_TypeError, "NumPy has no dtype for %s. Convert first: tensor.to(complex64)",
                     amp_dtype_info[dtype].name);
    }
    return Py_XNewRef((PyObject *)descr_of[dtype]);
}

/* The array's base is a second tensor on the same storage: `t.data = other` may take the storage away from t itself. */
PyObject *array_from_tensor(Tensor *t) {
    PyArray_Descr *descr = (PyArray_Descr *)array_dtype_of(t->v.dtype);
    Tensor *base = descr ? tensor_shallow(t) : NULL;
    if (!base) {
        Py_XDECREF(descr);
        return NULL;
    }
    npy_intp shape[AMP_MAX_DIMS], strides[AMP_MAX_DIMS];
    for (int d = 0; d < t->v.ndim; d++) {
        shape[d] = (npy_intp)t->v.shape[d];
        strides[d] = (npy_intp)(t->v.stride[d] * (int64_t)amp_itemsize(t->v.dtype));
    }
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, t->v.ndim, shape, strides, t->v.data,
                                           t->st->readonly ? 0 : NPY_ARRAY_WRITEABLE, NULL);
    if (!array) {
        Py_DECREF(base);
        return NULL;
    }
    PyArray_UpdateFlags((PyArrayObject *)array, NPY_ARRAY_UPDATE_ALL);
    if (PyArray_SetBaseObject((PyArrayObject *)array, (PyObject *)base) < 0) { /* steals base in any case */
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

PyObject *array_as(PyObject *o, PyObject *dtype, int copy) {
    PyArrayObject *array = (PyArrayObject *)o;
    PyArray_Descr *descr = NULL;
    if (dtype && dtype != Py_None && !PyArray_DescrConverter(dtype, &descr)) {
        return NULL;
    }
    bool cast = descr && !PyArray_EquivTypes(descr, PyArray_DESCR(array));
    if (cast && copy == 0) {
        PyErr_Format(PyExc_ValueError,
                     "Unable to avoid copy: the tensor's dtype is %R, but %R was asked for together with copy=False",
                     (PyObject *)PyArray_DESCR(array), (PyObject *)descr);
        Py_DECREF(descr);
        return NULL;
    }
    if (cast) {
        return PyArray_CastToType(array, descr, 0); /* takes the reference */
    }
    Py_XDECREF(descr);
    return copy == 1 ? PyArray_NewCopy(array, NPY_KEEPORDER) : Py_NewRef(o);
}

static int check_dtype(PyArrayObject *array) {
    PyArray_Descr *descr = PyArray_DESCR(array);
    if (!PyArray_ISNBO(descr->byteorder)) {
        PyErr_Format(PyExc_TypeError,
                     "the array has dtype %R, a byte order different from the native one. Convert it first: "
                     "array.astype(array.dtype.newbyteorder('='))",
                     (PyObject *)descr);
        return -1;
    }
    int id = id_of_descr(descr);
    if (id < 0 && !PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "can't convert a numpy.ndarray of %R to a tensor. The supported dtypes are: %s",
                     (PyObject *)descr, dtype_names());
    }
    return id;
}

static bool regular_strides(PyArrayObject *array) {
    npy_intp itemsize = PyArray_ITEMSIZE(array);
    for (int d = 0; d < PyArray_NDIM(array); d++) {
        npy_intp stride = PyArray_STRIDE(array, d);
        if (PyArray_DIM(array, d) > 1 && (stride < 0 || stride % itemsize)) {
            return false;
        }
    }
    return true;
}

static int warn_read_only(void) {
    static bool warned;
    if (warned) {
        return 0;
    }
    warned = true;
    return PyErr_WarnEx(
        PyExc_UserWarning,
        "the given NumPy array is not writable: writing to the tensor will be an error. Copy the array first (array.copy()) or "
        "make it writable. This warning is shown once",
        1);
}

/* Strides of dimensions with fewer than two entries mean nothing; NumPy leaves anything in them, so they get the contiguous value. */
static int element_strides(PyArrayObject *array, int64_t *shape, int64_t *stride) {
    npy_intp itemsize = PyArray_ITEMSIZE(array);
    int64_t dense = 1;
    for (int d = PyArray_NDIM(array) - 1; d >= 0; d--) {
        npy_intp bytes = PyArray_STRIDE(array, d);
        shape[d] = PyArray_DIM(array, d);
        if (shape[d] > 1 && bytes < 0) {
            PyErr_Format(
                PyExc_ValueError,
                "at least one stride of the NumPy array is negative (dimension %d: %zd bytes); tensors with negative strides are "
                "not supported. Make a copy first: array.copy()",
                d, (Py_ssize_t)bytes);
            return -1;
        }
        if (shape[d] > 1 && bytes % itemsize) {
            PyErr_Format(
                PyExc_ValueError,
                "the strides of the NumPy array are not a multiple of the element size (dimension %d: %zd bytes, element: %zd "
                "bytes). Make a copy first: array.copy()",
                d, (Py_ssize_t)bytes, (Py_ssize_t)itemsize);
            return -1;
        }
        stride[d] = shape[d] > 1 ? bytes / itemsize : dense;
        dense *= shape[d] > 1 ? shape[d] : 1;
    }
    return 0;
}

static Tensor *share(PyArrayObject *array, int id) {
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS];
    if (element_strides(array, shape, stride) < 0) {
        return NULL;
    }
    size_t itemsize = amp_itemsize(id), last = 0;
    for (int d = 0; d < PyArray_NDIM(array); d++) {
        last += shape[d] > 1 ? (size_t)((shape[d] - 1) * stride[d]) : 0;
    }
    size_t nbytes = PyArray_SIZE(array) ? (last + 1) * itemsize : 0;
    Tensor *t = tensor_from_memory(PyArray_BYTES(array), nbytes, (PyObject *)array, PyArray_NDIM(array), shape, stride, id,
                                   AMP_CPU);
    if (t) {
        t->st->readonly = !PyArray_ISWRITEABLE(array);
    }
    return t;
}

Tensor *tensor_from_array(PyObject *o) {
    PyArrayObject *array = (PyArrayObject *)o;
    if (!PyArray_Check(o)) {
        PyErr_Format(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(o)->tp_name);
        return NULL;
    }
    int id = check_dtype(array);
    return id < 0 || (!PyArray_ISWRITEABLE(array) && warn_read_only() < 0) ? NULL : share(array, id);
}

Tensor *tensor_for_index(PyObject *o) {
    int type = PyArray_TYPE((PyArrayObject *)o);
    if (!PyTypeNum_ISUNSIGNED(type) || type == NPY_UBYTE) {
        return tensor_for_reading(o);
    }
    PyObject *wide = PyArray_Cast((PyArrayObject *)o, NPY_INT64);
    Tensor *t = wide ? tensor_for_reading(wide) : NULL;
    Py_XDECREF(wide);
    return t;
}

Tensor *tensor_for_reading(PyObject *o) {
    int id = check_dtype((PyArrayObject *)o);
    if (id < 0) {
        return NULL;
    }
    if (regular_strides((PyArrayObject *)o)) {
        return share((PyArrayObject *)o, id);
    }
    PyObject *copy = PyArray_NewCopy((PyArrayObject *)o, NPY_CORDER);
    Tensor *t = copy ? share((PyArrayObject *)copy, id) : NULL;
    Py_XDECREF(copy);
    return t;
}
