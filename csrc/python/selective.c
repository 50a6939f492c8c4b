#include "selective.h"

#include <string.h>

#include "../core/autocast.h"
#include "args.h"
#include "classes.h"
#include "derivatives/derivatives.h"

typedef struct Region {
    struct Region *outer;
    PyObject *selector; /* strong */
    bool replaying;
} Region;

static _Thread_local Region *region; /* the innermost one; MODE_SELECT is on while there is one */

/* The position of the default generator: an op that drew numbers must draw them again. */
static void *generator_state(void) {
    void *state = PyMem_Malloc(amp_generator_state_size());
    if (!state) {
        PyErr_NoMemory();
        return NULL;
    }
    memset(state, 0, amp_generator_state_size());
    amp_generator_get_state(amp_state.generator, state);
    return state;
}

static PyObject *arguments_of(const OpCall *c) {
    PyObject *args = PyTuple_New(c->row->nparams);
    for (int i = 0; args && i < c->row->nparams; i++) {
        PyObject *o = arg_object(&c->arg[i]);
        if (!o) {
            Py_CLEAR(args);
            break;
        }
        PyTuple_SET_ITEM(args, i, o);
    }
    return args;
}

static PyObject *results_of(const OpCall *c) {
    PyObject *results = PyTuple_New(c->nresult);
    for (int i = 0; results && i < c->nresult; i++) {
        Tensor *alias = tensor_shallow(c->result[i]); /* without the history that the result is about to get */
        if (!alias) {
            Py_CLEAR(results);
            break;
        }
        PyTuple_SET_ITEM(results, i, (PyObject *)alias);
    }
    return results;
}

static int run_first(OpCall *c, PyObject *selector) {
    void *before = generator_state(), *after = NULL;
    PyObject *args = before ? arguments_of(c) : NULL, *results = NULL, *done = NULL;
    if (args && c->row->run(c) == 0 && (after = generator_state())) {
        bool drew = memcmp(before, after, amp_generator_state_size()) != 0;
        bool fresh = (!c->out || c->inplace) && !c->is_view && !c->object && c->nresult > 0 && !drew;
        results = fresh ? results_of(c) : Py_NewRef(Py_None);
        done = results ? PyObject_CallFunction(selector, "iOOi", (int)c->row->op, args, results, (int)c->inplace) : NULL;
    }
    PyMem_Free(before);
    PyMem_Free(after);
    Py_XDECREF(args);
    Py_XDECREF(results);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* An in-place write of which the result is known. What it starts from may be what was kept, and hold the result by now. */
static Tensor *overwritten(Tensor *out, const Tensor *result) {
    bool done = out->v.data == result->v.data;
    return done || raw_copy(&out->v, &result->v) == 0 ? (Tensor *)Py_NewRef((PyObject *)out) : NULL;
}

static int run_again(OpCall *c, PyObject *selector) {
    PyObject *kept = PyObject_CallFunction(selector, "i", (int)c->row->op);
    if (!kept || kept == Py_None) {
        Py_XDECREF(kept);
        return kept ? c->row->run(c) : -1;
    }
    Py_ssize_t n = PyTuple_Check(kept) ? PyTuple_GET_SIZE(kept) : 0;
    int failed = n > 0 && n <= MAX_RESULTS ? 0 : -1;
    for (Py_ssize_t i = 0; !failed && i < n; i++) {
        PyObject *t = PyTuple_GET_ITEM(kept, i);
        c->result[i] = !tensor_check(t) ? NULL : c->inplace ? overwritten(c->out, (Tensor *)t) : tensor_shallow((Tensor *)t);
        c->nresult = c->result[i] ? (int)i + 1 : (int)i;
        failed = c->result[i] ? 0 : -1;
    }
    Py_DECREF(kept);
    if (failed && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "a selector gives None or a tuple of Tensors");
    }
    return failed;
}

int selective_run(OpCall *c) {
    const Region *r = region;
    if (!r || c->row->derivative == d_composite) {
        return c->row->run(c);
    }
    PyObject *selector = Py_NewRef(r->selector);
    amp_mode &= (uint8_t)~MODE_SELECT; /* what is called from here is no part of the region; run_op restores the byte */
    int failed = r->replaying ? run_again(c, selector) : run_first(c, selector);
    Py_DECREF(selector);
    return failed;
}

/* ---- Python face ---- */

static PyObject *push_selector(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs) {
    Region *r = nargs == 2 && PyCallable_Check(args[0]) ? PyMem_Malloc(sizeof *r) : NULL;
    if (!r) {
        PyErr_SetString(PyExc_TypeError, "_push_selector(): expected a function and a bool");
        return NULL;
    }
    *r = (Region){region, Py_NewRef(args[0]), args[1] == Py_True};
    region = r;
    amp_mode |= MODE_SELECT;
    Py_RETURN_NONE;
}

static PyObject *pop_selector(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args)) {
    Region *r = region;
    if (!r) {
        PyErr_SetString(PyExc_RuntimeError, "_pop_selector(): there is none to take away");
        return NULL;
    }
    region = r->outer;
    if (!region) {
        amp_mode &= (uint8_t)~MODE_SELECT;
    }
    Py_DECREF(r->selector);
    PyMem_Free(r);
    Py_RETURN_NONE;
}

int selective_init(PyObject *module) {
    static PyMethodDef functions[] = {
        {"_push_selector", (PyCFunction)(void (*)(void))push_selector, METH_FASTCALL,
         "_push_selector(selector, replaying, /)\n--\n\nFrom now on the ops of this thread go through selector(row, args, "
         "results), "
         "or, replaying, through selector(row), which gives their results or None."},
        {"_pop_selector", pop_selector, METH_NOARGS, "_pop_selector()\n--\n\nTakes back what was pushed last."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
