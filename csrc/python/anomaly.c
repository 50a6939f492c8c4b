#include "anomaly.h"

#include "autocast_region.h"
#include "../core/autocast.h"

bool anomaly_enabled;
static bool check_nan = true;
static _Thread_local Node *evaluating; /* borrowed: the engine that runs it holds it */

/* A function of autograd/anomaly_mode.py, called in a neutral mode. New reference or NULL. */
static PyObject *call_python(const char *name, PyObject *args) {
    PyObject *module = args ? PyImport_ImportModule("ampnative.autograd.anomaly_mode") : NULL;
    PyObject *f = module ? PyObject_GetAttrString(module, name) : NULL;
    uint8_t mode = amp_mode, recording = amp_grad_enabled;
    amp_mode = 0;
    amp_grad_enabled = 0;
    PyObject *result = f ? PyObject_CallObject(f, args) : NULL;
    amp_mode = mode;
    amp_grad_enabled = recording;
    Py_XDECREF(f);
    Py_XDECREF(module);
    Py_XDECREF(args);
    return result;
}

Node *anomaly_enter(Node *n) {
    Node *before = evaluating;
    evaluating = n;
    return before;
}

int anomaly_note(Node *n) {
    PyObject *metadata = node_metadata(n), *stack = metadata ? call_python("_stack", PyTuple_New(0)) : NULL;
    int failed = !stack || PyDict_SetItemString(metadata, "traceback_", stack) < 0 ||
                 (evaluating && PyDict_SetItemString(metadata, "parent_", (PyObject *)evaluating) < 0);
    Py_XDECREF(stack);
    return failed ? -1 : 0;
}

int anomaly_check(const Node *n, Tensor *const *grad) {
    if (!check_nan) {
        return 0;
    }
    PyObject *gradients = gradients_tuple(n->nin, grad), *name = gradients ? node_name(n) : NULL;
    PyObject *result = name ? call_python("_refuse_nan", PyTuple_Pack(2, name, gradients)) : NULL;
    Py_XDECREF(gradients);
    Py_XDECREF(name);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

void anomaly_report(Node *n) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *result = call_python("_report", PyTuple_Pack(1, (PyObject *)n));
    if (!result) { /* the warning was turned into an error: the pass's own exception says more */
        PyErr_Clear();
    }
    Py_XDECREF(result);
    PyErr_Restore(type, value, trace);
}

static PyObject *set_anomaly(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 1 || nargs > 2 || !PyBool_Check(args[0]) || !PyBool_Check(args[nargs - 1])) {
        PyErr_SetString(PyExc_TypeError, "set_anomaly_enabled() takes (mode, check_nan=True), both bool");
        return NULL;
    }
    anomaly_enabled = args[0] == Py_True;
    check_nan = nargs == 1 || args[1] == Py_True;
    Py_RETURN_NONE;
}

static PyObject *is_enabled(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args)) { return PyBool_FromLong(anomaly_enabled); }

static PyObject *is_checking(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args)) { return PyBool_FromLong(check_nan); }

int anomaly_init(PyObject *module) {
    static PyMethodDef functions[] = {
        {"set_anomaly_enabled", (PyCFunction)(void (*)(void))set_anomaly, METH_FASTCALL,
         "set_anomaly_enabled(mode, check_nan=True, /)\n--\n\nTurns anomaly detection on or off for the whole process."},
        {"is_anomaly_enabled", is_enabled, METH_NOARGS, "is_anomaly_enabled()\n--\n\nWhether anomaly detection is on."},
        {"is_anomaly_check_nan_enabled", is_checking, METH_NOARGS,
         "is_anomaly_check_nan_enabled()\n--\n\nWhether anomaly detection, when it is on, looks for NaN."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
