#include "saved_hooks.h"

#include "../core/autocast.h"

/* List of (pack, unpack) of this thread, innermost last; NULL while there are none. An innermost text forbids hooks: saving raises
 * nothing, entering hooks does. */
static _Thread_local PyObject *stack;

static PyObject *innermost(void) { return stack ? PyList_GET_ITEM(stack, PyList_GET_SIZE(stack) - 1) : NULL; }

bool saved_hooks_active(void) { return stack && PyTuple_Check(innermost()); }

PyObject *saved_pack(Tensor *t) {
    PyObject *pair = Py_NewRef(innermost()), *packed = NULL, *kept = NULL;
    Tensor *bare = tensor_shallow(t);
    uint8_t recording = amp_grad_enabled;
    amp_grad_enabled = 0;
    packed = bare ? PyObject_CallOneArg(PyTuple_GET_ITEM(pair, 0), (PyObject *)bare) : NULL;
    amp_grad_enabled = recording;
    PyObject *shape = packed ? PyTuple_New(t->v.ndim) : NULL;
    for (int i = 0; shape && i < t->v.ndim; i++) {
        PyObject *size = PyLong_FromLongLong(t->v.shape[i]);
        if (!size) {
            Py_CLEAR(shape);
            break;
        }
        PyTuple_SET_ITEM(shape, i, size);
    }
    if (shape) {
        kept = Py_BuildValue("(OOOii)", PyTuple_GET_ITEM(pair, 1), packed, shape, (int)t->v.dtype, (int)t->v.device);
    }
    Py_XDECREF(shape);
    Py_XDECREF(packed);
    Py_XDECREF(bare);
    Py_DECREF(pair);
    return kept;
}

/* Derivatives rely on the shape and dtype that they saw when they were recorded. */
static bool same_kind(const Tensor *t, PyObject *kept) {
    PyObject *shape = PyTuple_GET_ITEM(kept, 2);
    bool same = PyTuple_GET_SIZE(shape) == t->v.ndim && PyLong_AsLong(PyTuple_GET_ITEM(kept, 3)) == t->v.dtype &&
                PyLong_AsLong(PyTuple_GET_ITEM(kept, 4)) == t->v.device;
    for (int i = 0; same && i < t->v.ndim; i++) {
        same = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i)) == t->v.shape[i];
    }
    return same;
}

Tensor *saved_unpack(PyObject *kept) {
    PyObject *o = PyObject_CallOneArg(PyTuple_GET_ITEM(kept, 0), PyTuple_GET_ITEM(kept, 1));
    Tensor *result = NULL;
    if (!o) {
        return NULL;
    }
    if (!tensor_check(o)) {
        PyErr_Format(PyExc_TypeError, "Output of saved tensor unpack_hook expected to be a Tensor but got result of type %s",
                     Py_TYPE(o)->tp_name);
    } else if (!same_kind((Tensor *)o, kept)) {
        PyObject *text = tensor_describe((Tensor *)o);
        if (text) {
            PyErr_Format(PyExc_RuntimeError,
                         "saved tensor unpack_hook returned a %U, which differs in shape, dtype or device from what was packed",
                         text);
            Py_DECREF(text);
        }
    } else {
        result = tensor_shallow((Tensor *)o);
    }
    Py_DECREF(o);
    return result;
}

Tensor *saved_link(Tensor *t, const Edge *e) {
    if (e->to && node_check(e->to) && amp_is_floating(t->v.dtype)) {
        t->fn = (Node *)Py_NewRef(e->to);
        t->out_nr = e->nr;
        if (!PyObject_GC_IsTracked((PyObject *)t)) {
            PyObject_GC_Track((PyObject *)t);
        }
    }
    return t;
}

/* ---- Python face ---- */

static PyObject *push(PyObject *entry) {
    PyObject *top = innermost();
    if (top && PyUnicode_Check(top) && PyTuple_Check(entry)) {
        PyErr_SetObject(PyExc_RuntimeError, top);
        return NULL;
    }
    if (!stack && !(stack = PyList_New(0))) {
        return NULL;
    }
    if (PyList_Append(stack, entry) < 0) {
        if (!PyList_GET_SIZE(stack)) {
            Py_CLEAR(stack);
        }
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *push_hooks(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 2 || !PyCallable_Check(args[0]) || !PyCallable_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "saved tensor hooks: expected two functions, pack_hook and unpack_hook");
        return NULL;
    }
    PyObject *pair = PyTuple_Pack(2, args[0], args[1]), *result = pair ? push(pair) : NULL;
    Py_XDECREF(pair);
    return result;
}

static PyObject *forbid_hooks(PyObject *Py_UNUSED(module), PyObject *message) {
    if (!PyUnicode_Check(message)) {
        PyErr_SetString(PyExc_TypeError, "disable_saved_tensors_hooks: expected the text of the error");
        return NULL;
    }
    return push(message);
}

static PyObject *pop_hooks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args)) {
    if (!stack) {
        PyErr_SetString(PyExc_RuntimeError, "saved tensor hooks: there are none to take away");
        return NULL;
    }
    Py_ssize_t n = PyList_GET_SIZE(stack);
    if (PyList_SetSlice(stack, n - 1, n, NULL) < 0) {
        return NULL;
    }
    if (n == 1) {
        Py_CLEAR(stack);
    }
    Py_RETURN_NONE;
}

int saved_hooks_init(PyObject *module) {
    static PyMethodDef functions[] = {
        {"_push_saved_tensors_hooks", (PyCFunction)(void (*)(void))push_hooks, METH_FASTCALL,
         "_push_saved_tensors_hooks(pack, unpack, /)\n--\n\nFrom now on this thread's graph keeps pack(tensor)."},
        {"_forbid_saved_tensors_hooks", forbid_hooks, METH_O,
         "_forbid_saved_tensors_hooks(message, /)\n--\n\nFrom now on pushing hooks in this thread raises."},
        {"_pop_saved_tensors_hooks", pop_hooks, METH_NOARGS,
         "_pop_saved_tensors_hooks()\n--\n\nTakes back what was pushed or forbidden last."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
