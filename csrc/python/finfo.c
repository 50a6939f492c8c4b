/* finfo and iinfo: the limits of the number formats, read off the formats themselves by decoding bit patterns. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "interop.h"

#include <structmember.h>

typedef struct InfoObject {
    PyObject_HEAD
    int id, bits;
    double eps, max, tiny, resolution; /* finfo */
    long long imin, imax;              /* iinfo */
} InfoObject;

static PyTypeObject *finfo_type, *iinfo_type;

/* The value of a bit pattern; NaN for a failure, which only running out of memory can cause. */
static double decode(int dtype, uint64_t bits) {
    char element[sizeof bits];
    memcpy(element, &bits, sizeof bits); /* little-endian: the low bytes come first */
    PyObject *value = element_get(element, dtype);
    double number = value ? PyFloat_AsDouble(value) : NAN;
    Py_XDECREF(value);
    return number;
}

/* Positive patterns grow with their values, and the non-finite ones lie above all others:
 *
 *     0 | 1 ... subnormal ... | normal ... 1.0, 1.0 + eps ... max | inf, NaN
 *
 * so max and 1.0 are found by bisection, and the smallest normal number is the smallest number at all divided by eps. */
static uint64_t largest_pattern(int dtype, double bound) {
    uint64_t low = 0, high = (uint64_t)1 << (8 * amp_itemsize(dtype) - 1);
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        double value = decode(dtype, middle);
        if (isfinite(value) && value <= bound) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static void measure_floating(InfoObject *info) {
    info->max = decode(info->id, largest_pattern(info->id, INFINITY));
    info->eps = decode(info->id, largest_pattern(info->id, 1.0) + 1) - 1.0;
    info->tiny = decode(info->id, 1) / info->eps;
    info->resolution = pow(10.0, -floor(-log10(info->eps) + 1e-9)); /* decimal digits that survive a round trip */
}

static void measure_integral(InfoObject *info) {
    bool is_signed = info->id != AMP_UINT8;
    info->imax = is_signed ? (long long)(UINT64_MAX >> (65 - info->bits)) : UINT8_MAX;
    info->imin = is_signed ? -info->imax - 1 : 0;
}

static int info_argument(const char *name, PyObject *args, PyObject *kwargs, PyObject **type) {
    static char *names[] = {"type", NULL};
    char format[16];
    snprintf(format, sizeof format, "|O:%s", name);
    return PyArg_ParseTupleAndKeywords(args, kwargs, format, names, type);
}

static int info_dtype(const char *name, PyObject *o) {
    if (!PyType_Check(o) && !array_descr_check(o) && !Py_IS_TYPE(o, amp_state.dtype_type)) {
        PyErr_Format(PyExc_TypeError, "%s(): argument 'type' (position 1) must be an ampnative.dtype, not %s", name,
                     Py_TYPE(o)->tp_name);
        return -1;
    }
    return dtype_parse(o);
}

static PyObject *info_make(PyTypeObject *cls, int id) {
    InfoObject *info = (InfoObject *)cls->tp_alloc(cls, 0);
    if (!info) {
        return NULL;
    }
    info->id = id;
    info->bits = (int)amp_itemsize(id) * 8;
    if (amp_is_floating(id)) {
        measure_floating(info);
    } else {
        measure_integral(info);
    }
    if (PyErr_Occurred()) {
        Py_CLEAR(info);
    }
    return (PyObject *)info;
}

static PyObject *finfo_new(PyTypeObject *cls, PyObject *args, PyObject *kwargs) {
    PyObject *type = NULL;
    if (!info_argument("finfo", args, kwargs, &type)) {
        return NULL;
    }
    int id = type ? info_dtype("finfo", type) : amp_state.default_dtype;
    if (id < 0) {
        return NULL;
    }
    if (amp_is_complex(id)) {
        id = amp_real_of(id);
    }
    if (!amp_is_floating(id)) {
        PyErr_Format(PyExc_TypeError, "finfo() requires a floating point input type, got %s. Use iinfo for integers",
                     amp_dtype_info[id].name);
        return NULL;
    }
    return info_make(cls, id);
}

static PyObject *iinfo_new(PyTypeObject *cls, PyObject *args, PyObject *kwargs) {
    PyObject *type = NULL;
    if (!info_argument("iinfo", args, kwargs, &type)) {
        return NULL;
    }
    if (!type) {
        PyErr_SetString(PyExc_TypeError, "iinfo() missing 1 required positional arguments: \"type\"");
        return NULL;
    }
    int id = info_dtype("iinfo", type);
    if (id < 0) {
        return NULL;
    }
    if (id == AMP_BOOL) {
        PyErr_SetString(PyExc_TypeError, "bool is not supported by iinfo: it is no integer format");
        return NULL;
    }
    if (!amp_is_integral(id)) {
        PyErr_Format(PyExc_TypeError, "iinfo() requires an integer input type, got %s. Use finfo for floating dtypes",
                     amp_dtype_info[id].name);
        return NULL;
    }
    return info_make(cls, id);
}

static PyObject *finfo_repr(PyObject *self) {
    const InfoObject *info = (InfoObject *)self;
    char text[320];
    snprintf(text, sizeof text, "finfo(resolution=%g, min=%g, max=%g, eps=%g, smallest_normal=%g, tiny=%g, dtype=%s)",
             info->resolution, -info->max, info->max, info->eps, info->tiny, info->tiny, amp_dtype_info[info->id].name);
    return PyUnicode_FromString(text);
}

static PyObject *iinfo_repr(PyObject *self) {
    const InfoObject *info = (InfoObject *)self;
    return PyUnicode_FromFormat("iinfo(min=%lld, max=%lld, dtype=%s)", info->imin, info->imax, amp_dtype_info[info->id].name);
}

static PyObject *info_compare(PyObject *self, PyObject *other, int op) {
    if ((op != Py_EQ && op != Py_NE) || !Py_IS_TYPE(other, Py_TYPE(self))) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return PyBool_FromLong((((InfoObject *)self)->id == ((InfoObject *)other)->id) == (op == Py_EQ));
}

static Py_hash_t info_hash(PyObject *self) { return ((InfoObject *)self)->id + 1; }

static PyObject *info_get_dtype(PyObject *self, void *closure) {
    (void)closure;
    return PyUnicode_FromString(amp_dtype_info[((InfoObject *)self)->id].name);
}

static PyObject *finfo_get_min(PyObject *self, void *closure) {
    (void)closure;
    return PyFloat_FromDouble(-((InfoObject *)self)->max);
}

static PyMemberDef finfo_members[] = {
    {"bits", T_INT, offsetof(InfoObject, bits), READONLY, "Bits per number."},
    {"eps", T_DOUBLE, offsetof(InfoObject, eps), READONLY, "The step from 1 to the next larger number."},
    {"max", T_DOUBLE, offsetof(InfoObject, max), READONLY, "The largest finite number."},
    {"tiny", T_DOUBLE, offsetof(InfoObject, tiny), READONLY, "The smallest positive normal number."},
    {"smallest_normal", T_DOUBLE, offsetof(InfoObject, tiny), READONLY, "The smallest positive normal number."},
    {"resolution", T_DOUBLE, offsetof(InfoObject, resolution), READONLY, "10**-n, where n decimal digits are always kept."},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef finfo_getset[] = {
    {"min", finfo_get_min, NULL, "The most negative finite number.", NULL},
    {"dtype", info_get_dtype, NULL, "Name of the format.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMemberDef iinfo_members[] = {
    {"bits", T_INT, offsetof(InfoObject, bits), READONLY, "Bits per number."},
    {"min", T_LONGLONG, offsetof(InfoObject, imin), READONLY, "The smallest number."},
    {"max", T_LONGLONG, offsetof(InfoObject, imax), READONLY, "The largest number."},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef iinfo_getset[] = {
    {"dtype", info_get_dtype, NULL, "Name of the format.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define INFO_SLOTS(name, doc) \
    static PyType_Slot name##_slots[] = { \
        {Py_tp_doc, (void *)(doc)}, \
        {Py_tp_new, (void *)name##_new}, \
        {Py_tp_dealloc, (void *)plain_dealloc}, \
        {Py_tp_repr, (void *)name##_repr}, \
        {Py_tp_richcompare, (void *)info_compare}, \
        {Py_tp_hash, (void *)info_hash}, \
        {Py_tp_members, name##_members}, \
        {Py_tp_getset, name##_getset}, \
        {0, NULL}, \
    }; \
    static PyType_Spec name##_spec = {"ampnative." #name, sizeof(InfoObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, \
                                      name##_slots}
INFO_SLOTS(
    finfo,
    "finfo(type=default dtype)\n--\n\nLimits of a floating dtype (of the parts, for a complex one). TypeError for other dtypes.");
INFO_SLOTS(iinfo, "iinfo(type)\n--\n\nLimits of an integer dtype. TypeError for bool and floating dtypes.");

int finfo_init(PyObject *module) {
    finfo_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &finfo_spec, NULL);
    if (!finfo_type || PyModule_AddType(module, finfo_type) < 0) {
        return -1;
    }
    iinfo_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &iinfo_spec, NULL);
    return iinfo_type ? PyModule_AddType(module, iinfo_type) : -1;
}
