/* Rows about the ops that run in this thread.
 *
 * A sink is a Python list: [active, row, row, ...]. The thread's sinks stand in a list in the thread state's dict, so they go with the
 * thread. Leaving a report in another thread only clears `active`; the watched thread drops the sink at its next op.
 *
 * A row: [name, arguments as given, arguments as run, results, device, in backward, depth, error]
 *   arguments, results: tuple of (dtype, shape), one per tensor
 * A kept cast that is used again: [None, ((float32, shape),), None, ((dtype, shape),), ...] */
#include "observer.h"

_Thread_local int observer_backward;
static _Thread_local int depth; /* of ops within ops */

enum { ROW_NAME, ROW_GIVEN, ROW_RUN, ROW_RESULTS, ROW_DEVICE, ROW_BACKWARD, ROW_DEPTH, ROW_ERROR, ROW_LENGTH };

static PyObject *key; /* of the thread state's dict */

/* The thread's list of sinks, borrowed; NULL without exception if there is none and `make` is false. */
static PyObject *thread_sinks(bool make) {
    PyObject *dict = PyThreadState_GetDict();
    PyObject *sinks = dict ? PyDict_GetItemWithError(dict, key) : NULL;
    if (sinks || !make || PyErr_Occurred()) {
        return sinks;
    }
    if (!dict) {
        PyErr_SetString(PyExc_RuntimeError, "this thread has no Python state to watch");
        return NULL;
    }
    sinks = PyList_New(0);
    int failed = !sinks || PyDict_SetItem(dict, key, sinks) < 0;
    Py_XDECREF(sinks); /* the dict keeps it */
    return failed ? NULL : sinks;
}

/* Drops sinks that are no longer active; the number of those left, or -1. */
static Py_ssize_t drop_inactive(PyObject *sinks) {
    for (Py_ssize_t i = PyList_GET_SIZE(sinks) - 1; i >= 0; i--) {
        if (PyList_GET_ITEM(PyList_GET_ITEM(sinks, i), 0) != Py_True && PyList_SetSlice(sinks, i, i + 1, NULL) < 0) {
            return -1;
        }
    }
    if (PyList_GET_SIZE(sinks) == 0) {
        amp_mode &= (uint8_t)~MODE_OBSERVER;
    }
    return PyList_GET_SIZE(sinks);
}

static int give_to_sinks(PyObject *row, PyObject *sinks) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sinks); i++) {
        if (PyList_Append(PyList_GET_ITEM(sinks, i), row) < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- rows ---- */

static PyObject *describe(const View *v) {
    PyObject *shape = size_from_dims(v->ndim, v->shape);
    return shape ? Py_BuildValue("(ON)", amp_state.dtype[v->dtype], shape) : NULL;
}

static int append_tensor(PyObject *list, const Tensor *t) {
    if (t->flags & TENSOR_WRAPPED) { /* a Python number */
        return 0;
    }
    PyObject *pair = describe(&t->v);
    int failed = pair ? PyList_Append(list, pair) : -1;
    Py_XDECREF(pair);
    return failed;
}

static PyObject *describe_arguments(const OpCall *c) {
    PyObject *list = PyList_New(0), *tuple = NULL;
    int failed = list ? 0 : -1;
    for (int i = 0; i < c->row->nparams && !failed; i++) {
        if (i == c->row->out_index) {
            continue;
        }
        if (c->arg[i].kind == ARG_TENSOR) {
            failed = append_tensor(list, c->arg[i].t);
        }
        for (int k = 0; c->arg[i].kind == ARG_TENSORS && k < c->arg[i].n && !failed; k++) {
            failed = append_tensor(list, c->arg[i].ts[k]);
        }
    }
    if (!failed) {
        tuple = PyList_AsTuple(list);
    }
    Py_XDECREF(list);
    return tuple;
}

static PyObject *describe_result(PyObject *result) {
    PyObject *list = PyList_New(0), *tuple = NULL;
    int failed = list ? 0 : -1;
    if (tensor_check(result)) {
        failed = failed ? -1 : append_tensor(list, (Tensor *)result);
    }
    for (Py_ssize_t i = 0; PyTuple_Check(result) && i < PyTuple_GET_SIZE(result) && !failed; i++) {
        PyObject *o = PyTuple_GET_ITEM(result, i);
        failed = tensor_check(o) ? append_tensor(list, (Tensor *)o) : 0;
    }
    if (!failed) {
        tuple = PyList_AsTuple(list);
    }
    Py_XDECREF(list);
    return tuple;
}

static PyObject *device_name(int device) {
    static const char *const name[AMP_DEVICE_COUNT] = {"cpu", "cuda", "meta"};
    return PyUnicode_FromString(name[device]);
}

static int argument_device(const OpCall *c) {
    for (int i = 0; i < c->row->nparams; i++) {
        if (c->arg[i].kind == ARG_TENSOR && !(c->arg[i].t->flags & TENSOR_WRAPPED)) {
            return c->arg[i].t->v.device;
        }
        if (c->arg[i].kind == ARG_TENSORS && c->arg[i].n) {
            return c->arg[i].ts[0]->v.device;
        }
    }
    return AMP_CPU;
}

/* A finished list, its parts taken over; NULL if a part is NULL. */
static PyObject *row_new(PyObject *name, PyObject *given, PyObject *results, int device) {
    PyObject *row = NULL, *on = device_name(device);
    if (name && given && results && on) {
        row = Py_BuildValue("[OOOOOOiO]", name, given, given, results, on, observer_backward ? Py_True : Py_False, depth,
                            Py_None);
    }
    Py_XDECREF(name);
    Py_XDECREF(given);
    Py_XDECREF(results);
    Py_XDECREF(on);
    return row;
}

int observer_begin(const OpCall *c, PyObject **out) {
    PyObject *sinks = thread_sinks(false);
    Py_ssize_t watching = sinks ? drop_inactive(sinks) : 0;
    *out = NULL;
    if (watching <= 0) {
        amp_mode &= (uint8_t)~MODE_OBSERVER;
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *name = PyUnicode_FromFormat(c->inplace ? "%s_" : "%s", c->row->name);
    PyObject *row = row_new(name, describe_arguments(c), PyTuple_New(0), argument_device(c));
    if (!row || give_to_sinks(row, sinks) < 0) {
        Py_XDECREF(row);
        return -1;
    }
    depth++;
    *out = row;
    return 0;
}

int observer_casts_done(PyObject *row, const OpCall *c) {
    PyObject *run = row ? describe_arguments(c) : NULL;
    return !row ? 0 : run ? PyList_SetItem(row, ROW_RUN, run) : -1;
}

PyObject *observer_end(PyObject *row, PyObject *result) {
    if (!row) {
        return result;
    }
    depth--;
    int failed = 0;
    if (result) {
        PyObject *results = describe_result(result);
        failed = results ? PyList_SetItem(row, ROW_RESULTS, results) : -1;
        if (!failed && tensor_check(result)) { /* a factory has no argument that says where it works */
            PyObject *device = device_name(((Tensor *)result)->v.device);
            failed = device ? PyList_SetItem(row, ROW_DEVICE, device) : -1;
        }
    } else {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyObject *name = type ? PyObject_GetAttrString(type, "__name__") : NULL;
        if (!name || PyList_SetItem(row, ROW_ERROR, name) < 0) {
            PyErr_Clear();
        }
        PyErr_Restore(type, value, traceback);
    }
    Py_DECREF(row);
    if (failed) {
        Py_DECREF(result);
        return NULL;
    }
    return result;
}

static int note(PyObject *row) {
    PyObject *sinks = thread_sinks(false);
    int failed = !row || (sinks && give_to_sinks(row, sinks) < 0) ? -1 : 0;
    Py_XDECREF(row);
    return failed;
}

static PyObject *one_tuple(PyObject *item) {
    PyObject *tuple = item ? PyTuple_Pack(1, item) : NULL;
    Py_XDECREF(item);
    return tuple;
}

int observer_cache_hit(const Tensor *weight, int dtype) {
    View as = weight->v;
    as.dtype = (int8_t)dtype;
    return note(row_new(Py_NewRef(Py_None), one_tuple(describe(&weight->v)), one_tuple(describe(&as)), weight->v.device));
}

int observer_product(const View *a, const View *b, const View *out) {
    PyObject *x = describe(a), *y = describe(b), *pair = x && y ? PyTuple_Pack(2, x, y) : NULL;
    Py_XDECREF(x);
    Py_XDECREF(y);
    return note(row_new(PyUnicode_FromString("mm"), pair, one_tuple(describe(out)), out->device));
}

/* ---- from Python ---- */

static PyObject *observe_start(PyObject *Py_UNUSED(self), PyObject *sink) {
    if (!PyList_CheckExact(sink) || PyList_GET_SIZE(sink) < 1) {
        PyErr_SetString(PyExc_TypeError, "_observe_start() takes a list that begins with True");
        return NULL;
    }
    PyObject *sinks = thread_sinks(true);
    if (!sinks || PyList_Append(sinks, sink) < 0) {
        return NULL;
    }
    amp_mode |= MODE_OBSERVER;
    Py_RETURN_NONE;
}

static PyObject *observe_stop(PyObject *Py_UNUSED(self), PyObject *sink) {
    if (!PyList_CheckExact(sink) || PyList_GET_SIZE(sink) < 1) {
        PyErr_SetString(PyExc_TypeError, "_observe_stop() takes the list that _observe_start() got");
        return NULL;
    }
    PyObject *sinks = thread_sinks(false);
    if (PyErr_Occurred() || PyList_SetItem(sink, 0, Py_NewRef(Py_False)) < 0 || (sinks && drop_inactive(sinks) < 0)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

int observer_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"_observe_start", observe_start, METH_O,
         "_observe_start(sink, /)\n--\n\nAppends a row to the list `sink` ([True]) for each op that this thread runs."},
        {"_observe_stop", observe_stop, METH_O, "_observe_stop(sink, /)\n--\n\nEnds that, from any thread."},
        {NULL, NULL, 0, NULL},
    };
    key = PyUnicode_InternFromString("ampnative.observers");
    return key ? PyModule_AddFunctions(module, methods) : -1;
}
