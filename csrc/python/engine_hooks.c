/* Gradient hooks. */
#include <string.h>

#include "node.h"
#include "tensor.h"

static PyObject *hook_name(PyObject *hook) {
    PyObject *name = PyObject_GetAttrString(hook, "__name__");
    if (!name) {
        PyErr_Clear();
        name = PyObject_Repr(hook);
    }
    return name;
}

/* A hook may replace a gradient by another of the same shape, dtype and device. */
static int check_replacement(PyObject *hook, const Tensor *g, const Tensor *with) {
    bool size = g->v.ndim == with->v.ndim && !memcmp(g->v.shape, with->v.shape, (size_t)g->v.ndim * sizeof(int64_t));
    if (size && g->v.dtype == with->v.dtype && g->v.device == with->v.device) {
        return 0;
    }
    PyObject *name = hook_name(hook);
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

PyObject *gradients_tuple(int n, Tensor *const *g) {
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(g[i] ? (PyObject *)g[i] : Py_None));
    }
    return tuple;
}

/* What a node's hook returned takes the place of g. */
static int replace_gradients(PyObject *hook, int n, Tensor **g, PyObject *with) {
    if (!PyTuple_Check(with)) {
        PyErr_Format(PyExc_TypeError, "expected tuple, but hook returned '%s'", Py_TYPE(with)->tp_name);
        return -1;
    }
    if (PyTuple_GET_SIZE(with) != n) {
        PyObject *name = hook_name(hook);
        if (name) {
            PyErr_Format(PyExc_RuntimeError, "hook '%S' has returned an incorrect number of values (got %zd, but expected %d)",
                         name, PyTuple_GET_SIZE(with), n);
            Py_DECREF(name);
        }
        return -1;
    }
    for (int i = 0; i < n; i++) {
        PyObject *o = PyTuple_GET_ITEM(with, i);
        if (o != Py_None && !tensor_check(o)) {
            PyErr_Format(PyExc_TypeError, "expected Variable or None, but hook returned '%s'", Py_TYPE(o)->tp_name);
            return -1;
        }
        if (o != Py_None && g[i] && check_replacement(hook, g[i], (Tensor *)o) < 0) {
            return -1;
        }
        Py_XSETREF(g[i], o == Py_None ? NULL : (Tensor *)Py_NewRef(o));
    }
    return 0;
}

int engine_run_node_hooks(PyObject *hooks, int n, Tensor **g, PyObject *outputs) {
    PyObject *list = PyDict_Values(hooks);
    int failed = list ? 0 : -1;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(list); i++) {
        PyObject *hook = PyList_GET_ITEM(list, i), *now = gradients_tuple(n, g);
        PyObject *result = now ? PyObject_CallFunctionObjArgs(hook, now, outputs, NULL) : NULL;
        Py_XDECREF(now);
        failed = !result ? -1 : result == Py_None ? 0 : replace_gradients(hook, n, g, result);
        Py_XDECREF(result);
    }
    Py_XDECREF(list);
    return failed;
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
