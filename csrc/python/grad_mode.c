/* Grad mode and inference mode: the raw switches, and the context managers that autograd/grad_mode.py completes with decorators. */
#include "../core/autocast.h"
#include "function.h"
#include "with_methods.h"

#include <string.h>

typedef enum ModeKind { MODE_NO_GRAD, MODE_ENABLE_GRAD, MODE_SET_GRAD, MODE_SET_INFERENCE, MODE_KINDS } ModeKind;

typedef struct ModeState {
    uint8_t grad, inference;
} ModeState;

/* A region. An instance may be entered while entered (recursion, threads): every entry leaves a saved state on its stack. */
typedef struct Region {
    PyObject_HEAD
    uint8_t kind;
    bool mode;   /* MODE_SET_GRAD, MODE_SET_INFERENCE: what to switch to */
    bool primed; /* set_grad_enabled(x) switches when it is made: the coming __enter__ finds its saved state on the stack */
    int depth, cap;
    ModeState *saved; /* `few`, or a heap block */
    ModeState few[4];
} Region;

static PyTypeObject *region_type[MODE_KINDS];

static ModeState current_state(void) { return (ModeState){amp_grad_enabled, (amp_mode & MODE_INFERENCE) != 0}; }

static void set_state(ModeState s) {
    amp_grad_enabled = s.grad;
    amp_mode = (uint8_t)((amp_mode & ~MODE_INFERENCE) | (s.inference ? MODE_INFERENCE : 0));
}

static void switch_on(const Region *r) {
    ModeState s = current_state();
    switch ((ModeKind)r->kind) {
    case MODE_NO_GRAD: s.grad = 0; break;
    case MODE_ENABLE_GRAD: s.grad = 1; break;
    case MODE_SET_GRAD: s.grad = r->mode; break;
    default: /* inference needs no graph; leaving it (mode False) records again */ s = (ModeState){!r->mode, r->mode}; break;
    }
    set_state(s);
}

static int push(Region *r) {
    if (r->depth == r->cap) {
        int cap = 2 * r->cap;
        ModeState *more = PyMem_Malloc((size_t)cap * sizeof *more);
        if (!more) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(more, r->saved, (size_t)r->depth * sizeof *more);
        if (r->saved != r->few) {
            PyMem_Free(r->saved);
        }
        r->saved = more;
        r->cap = cap;
    }
    r->saved[r->depth++] = current_state();
    return 0;
}

/* The one argument: `mode` of set_grad_enabled and inference_mode, or the function that a bare @no_grad decorates. NULL: none. */
static int one_argument(ModeKind kind, PyObject *args, PyObject *kwargs, PyObject **out) {
    static const char *const names[MODE_KINDS] = {"orig_func", "orig_func", "mode", "mode"};
    static const char *const types[MODE_KINDS] = {"no_grad", "enable_grad", "set_grad_enabled", "inference_mode"};
    Py_ssize_t n = PyTuple_GET_SIZE(args), k = kwargs ? PyDict_GET_SIZE(kwargs) : 0;
    *out = n == 1 ? PyTuple_GET_ITEM(args, 0) : k == 1 ? PyDict_GetItemString(kwargs, names[kind]) : NULL;
    if (n + k > 1 || (n + k == 1 && !*out)) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most one argument, '%s'", types[kind], names[kind]);
        return -1;
    }
    if (!*out && kind == MODE_SET_GRAD) {
        PyErr_SetString(PyExc_TypeError, "set_grad_enabled() missing required argument 'mode': give True or False");
        return -1;
    }
    return 0;
}

static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    ModeKind kind = MODE_NO_GRAD;
    while (kind < MODE_SET_INFERENCE && !PyType_IsSubtype(type, region_type[kind])) {
        kind++;
    }
    PyObject *given = NULL, *function = NULL;
    if (one_argument(kind, args, kwargs, &given) < 0) {
        return NULL;
    }
    bool mode = true;
    if (given && given != Py_None) {
        if (PyBool_Check(given) && kind >= MODE_SET_GRAD) {
            mode = given == Py_True;
        } else if (PyCallable_Check(given) && kind != MODE_SET_GRAD) {
            function = given;
        } else {
            PyErr_Format(PyExc_TypeError, "%s: expected %s, got %s", type->tp_name,
                         kind >= MODE_SET_GRAD ? "a bool" : "nothing or a function", Py_TYPE(given)->tp_name);
            return NULL;
        }
    }
    Region *r = (Region *)type->tp_alloc(type, 0);
    if (!r) {
        return NULL;
    }
    r->kind = (uint8_t)kind;
    r->mode = mode;
    r->saved = r->few;
    r->cap = (int)(sizeof r->few / sizeof *r->few);
    if (function) {
        PyObject *wrapped = PyObject_CallOneArg((PyObject *)r, function);
        Py_DECREF(r);
        return wrapped;
    }
    if (kind == MODE_SET_GRAD) {
        if (push(r) < 0) {
            Py_DECREF(r);
            return NULL;
        }
        r->primed = true;
        switch_on(r);
    }
    return (PyObject *)r;
}

static PyObject *region_enter(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    Region *r = (Region *)self;
    if (!r->primed && push(r) < 0) {
        return NULL;
    }
    r->primed = false;
    switch_on(r);
    Py_RETURN_NONE;
}

static PyObject *region_exit(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs)) {
    Region *r = (Region *)self;
    if (r->depth == 0) {
        PyErr_Format(PyExc_RuntimeError, "%s was left without being entered", Py_TYPE(self)->tp_name);
        return NULL;
    }
    set_state(r->saved[--r->depth]);
    r->primed = false;
    Py_RETURN_NONE;
}

/* set_grad_enabled(x) used as a decorator: the switch made by its construction is taken back. */
static PyObject *region_take_back(PyObject *self, PyObject *unused) {
    if (((Region *)self)->primed) {
        return region_exit(self, NULL, 0);
    }
    (void)unused;
    Py_RETURN_NONE;
}

static PyObject *region_mode(PyObject *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(((Region *)self)->mode); }

static void region_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Region *r = (Region *)self;
    if (r->saved != r->few) {
        PyMem_Free(r->saved);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef region_methods[] = {
    {"__enter__", region_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))region_exit, METH_FASTCALL, NULL},
    {"_take_back", region_take_back, METH_NOARGS,
     "_take_back($self, /)\n--\n\nUndoes the switch that set_grad_enabled() makes when it is built, unless it was entered."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef region_getset[] = {
    {"mode", region_mode, NULL, "What the region switches to.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static int add_region_type(PyObject *module, ModeKind kind, const char *name) {
    PyType_Slot slots[] = {
        {Py_tp_new, region_new},
        {Py_tp_dealloc, region_dealloc},
        {Py_tp_methods, region_methods},
        {Py_tp_getset, region_getset},
        {Py_tp_doc, "Context manager for autograd's mode in this thread."},
        {0, NULL},
    };
    PyType_Spec spec = {
        .name = name, .basicsize = sizeof(Region), .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .slots = slots};
    region_type[kind] = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return region_type[kind] && with_methods_add(region_type[kind]) == 0 ? PyModule_AddType(module, region_type[kind]) : -1;
}

/* ---- raw switches ---- */

static PyObject *set_grad_enabled(PyObject *Py_UNUSED(module), PyObject *on) {
    if (!PyBool_Check(on)) {
        PyErr_Format(PyExc_TypeError, "_set_grad_enabled takes a bool, not %s", Py_TYPE(on)->tp_name);
        return NULL;
    }
    amp_grad_enabled = on == Py_True;
    Py_RETURN_NONE;
}

static PyObject *set_inference(PyObject *Py_UNUSED(module), PyObject *on) {
    if (!PyBool_Check(on)) {
        PyErr_Format(PyExc_TypeError, "_set_inference takes a bool, not %s", Py_TYPE(on)->tp_name);
        return NULL;
    }
    set_state((ModeState){on == Py_False, on == Py_True});
    Py_RETURN_NONE;
}

static PyObject *is_grad_enabled(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(amp_grad_enabled);
}

static PyObject *is_inference_mode_enabled(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(amp_mode & MODE_INFERENCE);
}

int grad_mode_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"set_grad_enabled", set_grad_enabled, METH_O, "set_grad_enabled(on, /)\n--\n\nSwitches recording in this thread."},
        {"_set_grad_enabled", set_grad_enabled, METH_O, "_set_grad_enabled(on, /)\n--\n\nSwitches recording in this thread."},
        {"_set_inference", set_inference, METH_O,
         "_set_inference(on, /)\n--\n\nSwitches inference mode in this thread; grad mode becomes its opposite."},
        {"is_grad_enabled", is_grad_enabled, METH_NOARGS, "is_grad_enabled()\n--\n\nWhether ops are recorded in this thread."},
        {"is_inference_mode_enabled", is_inference_mode_enabled, METH_NOARGS,
         "is_inference_mode_enabled()\n--\n\nWhether this thread is in inference mode."},
        {NULL, NULL, 0, NULL},
    };
    if (add_region_type(module, MODE_NO_GRAD, "ampnative._C._no_grad") < 0 ||
        add_region_type(module, MODE_ENABLE_GRAD, "ampnative._C._enable_grad") < 0 ||
        add_region_type(module, MODE_SET_GRAD, "ampnative._C._set_grad") < 0 ||
        add_region_type(module, MODE_SET_INFERENCE, "ampnative._C._inference_mode") < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, methods);
}
