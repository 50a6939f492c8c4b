/* Gradient hooks. */
#include <string.h>

#include "node.h"
#include "tensor.h"

/* A hook may replace a gradient by another of the same shape, dtype and device. */
static int check_replacement(PyObject *hook, const Tensor *g, const Tensor *with) {
    bool size = g->v.ndim == with->v.ndim && !memcmp(g->v.shape, with->v.shape, (size_t)g->v.ndim * sizeof(int64_t));
    if (size && g->v.dtype == with->v.dtype && g->v.device == with->v.device) {
        return 0;
    }
    PyObject *name = PyObject_GetAttrString(hook, "__name__");
    if (!name) {
        PyErr_Clear();
        name = PyObject_Repr(hook);
    }
    PyObject *was = tensor_describe(g), *got = tensor_describe(with);
    if (name && was && got) {
        PyErr_Format(PyExc_RuntimeError, "hook '%S' has changed the %s of value: it was a %U, the hook returned a %U", name,
                     size ? "type" : "size", was, got);
    }
    Py_XDECREF(name);
    Py_XDECREF(was);
    Py_XDECREF(got);
    return -1;
}

int engine_run_hooks(PyObject *hooks, Tensor **g) {
    PyObject *list = PyDict_Values(hooks);
    Py_ssize_t n = list ? PyList_GET_SIZE(list) : -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *result = PyObject_CallOneArg(PyList_GET_ITEM(list, i), (PyObject *)*g);
        if (!result) {
            n = -1;
            break;
        }
        if (result == Py_None) {
            Py_DECREF(result);
            continue;
        }
        if (!tensor_check(result)) {
            PyErr_Format(PyExc_TypeError, "a gradient hook must return a Tensor or None, not %s", Py_TYPE(result)->tp_name);
            Py_DECREF(result);
            n = -1;
            break;
        }
        if (check_replacement(PyList_GET_ITEM(list, i), *g, (Tensor *)result) < 0) {
            Py_DECREF(result);
            n = -1;
            break;
        }
        Py_SETREF(*g, (Tensor *)result);
    }
    Py_XDECREF(list);
    return n < 0 ? -1 : 0;
}
