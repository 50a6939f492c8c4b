#include "saved_hooks.h"

#include "../core/autocast.h"
#include "classes.h"

/* List of (pack, unpack) of this thread, innermost last; NULL while there are none. An innermost text forbids hooks: saving raises
 * nothing, entering hooks does. Hooks and texts never lie on each other. */
static _Thread_local PyObject *stack;

static PyObject *innermost(void) { return stack ? PyList_GET_ITEM(stack, PyList_GET_SIZE(stack) - 1) : NULL; }

bool saved_hooks_active(void) { return stack && PyTuple_Check(innermost()); }

static PyObject *call_pack(PyObject *pack, Tensor *t) {
    uint32_t version = t->st->version;
    uint8_t recording = amp_grad_enabled;
    amp_grad_enabled = 0;
    PyObject *packed = PyObject_CallOneArg(pack, (PyObject *)t);
    amp_grad_enabled = recording;
    if (packed && t->st->version != version) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "A saved tensor pack hook is modifying its input in place: what other operations use would change with it. "
            "Write to a clone");
        Py_CLEAR(packed);
    }
    return packed;
}

static void set_history(Tensor *t, Node *fn, uint32_t nr) {
    t->fn = (Node *)Py_NewRef((PyObject *)fn);
    t->out_nr = nr;
    if (!PyObject_GC_IsTracked((PyObject *)t)) {
        PyObject_GC_Track((PyObject *)t);
    }
}

/* What pack makes of an own output. */
static PyObject *pack_output(PyObject *pack, Tensor *t, Node *maker, int nr) {
    Tensor *alias = tensor_shallow(t);
    if (alias && amp_is_floating(t->v.dtype)) {
        set_history(alias, maker, (uint32_t)nr);
    }
    PyObject *packed = alias ? call_pack(pack, alias) : NULL;
    if (packed == (PyObject *)alias && alias) {
        Py_CLEAR(alias->fn);
        alias->out_nr = 0;
    }
    Py_XDECREF(alias);
    return packed;
}

PyObject *saved_pack(Tensor *t, Node *maker, int nr) {
    PyObject *pair = Py_NewRef(innermost()), *pack = PyTuple_GET_ITEM(pair, 0), *kept = NULL;
    PyObject *packed = maker ? pack_output(pack, t, maker, nr) : call_pack(pack, t);
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
    Py_DECREF(pair);
    return kept;
}

/* Derivatives rely on the shape and dtype that they saw when they were recorded: what unpack gave as `dtype`, the one that was packed. New
 * reference. */
static Tensor *as_packed(Tensor *t, PyObject *kept) {
    PyObject *shape = PyTuple_GET_ITEM(kept, 2);
    const int dtype = (int)PyLong_AsLong(PyTuple_GET_ITEM(kept, 3));
    bool same = PyTuple_GET_SIZE(shape) == t->v.ndim && PyLong_AsLong(PyTuple_GET_ITEM(kept, 4)) == t->v.device &&
                (dtype == t->v.dtype || (amp_is_floating(dtype) && amp_is_floating(t->v.dtype)));
    for (int i = 0; same && i < t->v.ndim; i++) {
        same = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i)) == t->v.shape[i];
    }
    if (same) {
        return raw_cast(t, dtype);
    }
    PyObject *text = tensor_describe(t);
    if (text) {
        PyErr_Format(PyExc_RuntimeError,
                     "saved tensor unpack_hook returned a %U, which differs in shape, dtype or device from what was packed: "
                     "shape %R, %s",
                     text, shape, amp_dtype_info[dtype].name);
        Py_DECREF(text);
    }
    return NULL;
}

/* Gives t (not shared) the history that `e` leads to. A leaf is reached through an alias, whose node hands gradients on to it. 0 or -1. */
static int link_history(Tensor *t, const Edge *e) {
    if (!e || !e->to || !amp_is_floating(t->v.dtype)) {
        return 0;
    }
    if (node_check(e->to)) {
        set_history(t, (Node *)e->to, e->nr);
        return 0;
    }
    if (!grad_recording()) {
        return 0;
    }
    Node *fn = NULL;
    uint32_t nr = 0;
    Tensor *alias = call_unary(OP_alias, (Tensor *)e->to);
    int failed = alias ? tensor_history(alias, &fn, &nr) : -1;
    if (fn) {
        set_history(t, fn, nr);
    }
    Py_XDECREF((PyObject *)fn);
    Py_XDECREF(alias);
    return failed;
}

/* unpack may run a pass over the same graph, which lets go of what the node keeps: `kept` and the edge's end are held here. */
Tensor *saved_unpack(PyObject *kept, const Edge *edge) {
    const Edge own = edge ? (Edge){Py_XNewRef(edge->to), edge->nr} : (Edge){NULL, 0}, *e = edge ? &own : NULL;
    Tensor *given = NULL, *result = NULL;
    Py_INCREF(kept);
    PyObject *o = PyObject_CallOneArg(PyTuple_GET_ITEM(kept, 0), PyTuple_GET_ITEM(kept, 1));
    if (!o) {
        goto done;
    }
    if (!tensor_check(o)) {
        PyErr_Format(PyExc_TypeError, "Output of saved tensor unpack_hook expected to be a Tensor but got result of type %s",
                     Py_TYPE(o)->tp_name);
    } else if (!(given = as_packed((Tensor *)o, kept))) {
    } else if (e && e->to == (PyObject *)given) { /* the leaf itself */
        result = (Tensor *)Py_NewRef((PyObject *)given);
    } else if ((result = tensor_shallow(given)) && link_history(result, e) < 0) {
        Py_CLEAR(result);
    }
    Py_XDECREF(given);
    Py_DECREF(o);
done:
    Py_XDECREF(own.to);
    Py_DECREF(kept);
    return result;
}

/* ---- Python face ---- */

static PyObject *push(PyObject *entry) {
    PyObject *top = innermost();
    if (top &&
        PyTuple_Check(top) != PyTuple_Check(entry)) { /* hooks where they are forbidden, or forbidden where there are some */
        PyErr_SetObject(PyExc_RuntimeError, PyUnicode_Check(top) ? top : entry);
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
         "_forbid_saved_tensors_hooks(message, /)\n--\n\nFrom now on pushing hooks in this thread raises; so does this while "
         "there are "
         "some."},
        {"_pop_saved_tensors_hooks", pop_hooks, METH_NOARGS,
         "_pop_saved_tensors_hooks()\n--\n\nTakes back what was pushed or forbidden last."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
