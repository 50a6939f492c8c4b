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
    int8_t prev; /* attribute `prev`: whether ops were recorded before the last switch; -1: there was none */
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
    case MODE_ENABLE_GRAD: s.grad = !s.inference; break; /* in inference mode nothing is recorded, whatever is switched inside */
    case MODE_SET_GRAD: s.grad = r->mode && !s.inference; break;
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
    r->saved[r->depth] = current_state();
    r->prev = (int8_t)r->saved[r->depth++].grad;
    return 0;
}

static const char *const type_names[MODE_KINDS] = {"no_grad", "enable_grad", "set_grad_enabled", "inference_mode"};

/* The one argument: `mode` of set_grad_enabled and inference_mode, or the function that a bare @no_grad decorates. NULL: none. */
static int one_argument(ModeKind kind, PyObject *args, PyObject *kwargs, PyObject **out) {
    static const char *const names[MODE_KINDS] = {"orig_func", "orig_func", "mode", "mode"};
    Py_ssize_t n = PyTuple_GET_SIZE(args), k = kwargs ? PyDict_GET_SIZE(kwargs) : 0;
    *out = n == 1 ? PyTuple_GET_ITEM(args, 0) : k == 1 ? PyDict_GetItemString(kwargs, names[kind]) : NULL;
    if (n + k > 1 || (n + k == 1 && !*out)) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most one argument, '%s'", type_names[kind], names[kind]);
        return -1;
    }
    return 0;
}

/* A region that switches nothing yet: __init__ reads the mode, so that a subclass may have arguments of its own, and copies are made
 * without it. A function in place of the arguments is decorated by a region made without any. */
static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    ModeKind kind = MODE_NO_GRAD;
    while (kind < MODE_SET_INFERENCE && !PyType_IsSubtype(type, region_type[kind])) {
        kind++;
    }
    if (kind != MODE_SET_GRAD) {
        PyObject *given = NULL;
        if (one_argument(kind, args, kwargs, &given) < 0) {
            return NULL;
        }
        if (given && !PyBool_Check(given) && PyCallable_Check(given)) {
            PyObject *region = PyObject_CallNoArgs((PyObject *)type);
            PyObject *wrapped = region ? PyObject_CallOneArg(region, given) : NULL;
            Py_XDECREF(region);
            return wrapped;
        }
    }
    Region *r = (Region *)type->tp_alloc(type, 0);
    if (!r) {
        return NULL;
    }
    r->kind = (uint8_t)kind;
    r->mode = true;
    r->prev = kind == MODE_NO_GRAD ? 0 : -1;
    r->saved = r->few;
    r->cap = (int)(sizeof r->few / sizeof *r->few);
    return (PyObject *)r;
}

static int region_init(PyObject *self, PyObject *args, PyObject *kwargs) {
    Region *r = (Region *)self;
    ModeKind kind = (ModeKind)r->kind;
    PyObject *given = NULL;
    if (one_argument(kind, args, kwargs, &given) < 0) {
        return -1;
    }
    if (kind < MODE_SET_GRAD) {
        if (given && given != Py_None) {
            PyErr_Format(PyExc_TypeError, "%s: expected nothing or a function, got %s", type_names[kind],
                         Py_TYPE(given)->tp_name);
            return -1;
        }
        return 0;
    }
    if (!given && kind == MODE_SET_GRAD) {
        PyErr_SetString(PyExc_TypeError, "set_grad_enabled() missing required argument 'mode': give True or False");
        return -1;
    }
    if (given && !PyBool_Check(given)) {
        PyErr_Format(PyExc_TypeError, "%s: argument 'mode' must be bool, not %R (%s): give True or False", type_names[kind],
                     given, Py_TYPE(given)->tp_name);
        return -1;
    }
    r->mode = !given || given == Py_True;
    if (kind == MODE_SET_GRAD) {
        if (!r->primed && push(r) < 0) {
            return -1;
        }
        r->primed = true;
        switch_on(r);
    }
    return 0;
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

static PyObject *leave(PyObject *self) {
    Region *r = (Region *)self;
    if (r->depth == 0) {
        PyErr_Format(PyExc_RuntimeError, "%s was left without being entered", Py_TYPE(self)->tp_name);
        return NULL;
    }
    const ModeState before = r->saved[--r->depth];
    if (r->kind == MODE_SET_INFERENCE) {
        set_state(before);
    } else { /* inference mode is not theirs: a region may have been made outside of one */
        amp_grad_enabled = before.grad;
    }
    r->primed = false;
    Py_RETURN_NONE;
}

static PyObject *region_exit(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t n, PyObject *kwnames) {
    static const char *const names[] = {"exc_type", "exc_value", "traceback"};
    if ((n != 3 || kwnames) && with_methods_exit_names(type_names[((Region *)self)->kind], names, n, kwnames) < 0) {
        return NULL;
    }
    return leave(self);
}

/* set_grad_enabled(x) used as a decorator: the switch made by its construction is taken back. */
static PyObject *region_take_back(PyObject *self, PyObject *unused) {
    if (((Region *)self)->primed) {
        return leave(self);
    }
    (void)unused;
    Py_RETURN_NONE;
}

static PyObject *region_mode(PyObject *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(((Region *)self)->mode); }

static PyObject *region_prev(PyObject *self, void *Py_UNUSED(closure)) {
    const Region *r = (Region *)self;
    if (r->prev < 0 || r->kind == MODE_SET_INFERENCE) {
        PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute 'prev'%s", type_names[r->kind],
                     r->kind == MODE_SET_INFERENCE ? "" : " before it is entered");
        return NULL;
    }
    return PyBool_FromLong(r->prev);
}

/* What a copy has of its original, with the attributes of a subclass. Entries are the original's. */
static PyObject *region_getstate(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    const Region *r = (Region *)self;
    PyObject *dict = PyObject_GetAttrString(self, "__dict__");
    if (!dict) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return NULL;
        }
        PyErr_Clear();
        dict = Py_NewRef(Py_None);
    }
    return Py_BuildValue("(OiN)", r->mode ? Py_True : Py_False, r->prev, dict);
}

static PyObject *region_setstate(PyObject *self, PyObject *state) {
    Region *r = (Region *)self;
    int mode, prev;
    PyObject *dict;
    if (!PyTuple_Check(state)) {
        PyErr_Format(PyExc_TypeError, "%s.__setstate__() takes what __getstate__() gave, not %s", type_names[r->kind],
                     Py_TYPE(state)->tp_name);
        return NULL;
    }
    if (!PyArg_ParseTuple(state, "piO", &mode, &prev, &dict)) {
        return NULL;
    }
    if (dict != Py_None) {
        PyObject *own = PyObject_GetAttrString(self, "__dict__");
        int failed = own ? PyDict_Update(own, dict) : -1;
        Py_XDECREF(own);
        if (failed < 0) {
            return NULL;
        }
    }
    r->mode = mode;
    r->prev = (int8_t)(prev < 0 ? -1 : prev > 0);
    Py_RETURN_NONE;
}

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
    {"__exit__", (PyCFunction)(void (*)(void))region_exit, METH_FASTCALL | METH_KEYWORDS,
     "__exit__($self, /, exc_type, exc_value, traceback)\n--\n\nRestores what the matching __enter__ saved; exceptions "
     "propagate."},
    {"__getstate__", region_getstate, METH_NOARGS, NULL},
    {"__setstate__", region_setstate, METH_O, NULL},
    {"_take_back", region_take_back, METH_NOARGS,
     "_take_back($self, /)\n--\n\nUndoes the switch that set_grad_enabled() makes when it is built, unless it was entered."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef region_getset[] = {
    {"mode", region_mode, NULL, "What the region switches to.", NULL},
    {"prev", region_prev, NULL, "Whether ops were recorded before the last switch.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static int add_region_type(PyObject *module, ModeKind kind, const char *name) {
    static const char *const docs[MODE_KINDS] = {
        "_no_grad(orig_func=None)\n--\n\nContext manager: nothing is recorded in this thread.",
        "_enable_grad(orig_func=None)\n--\n\nContext manager: ops are recorded in this thread.",
        "_set_grad(mode)\n--\n\nSwitches recording in this thread; leaving it switches back.",
        "_inference_mode(mode=True)\n--\n\nContext manager: what this thread makes is never recorded.",
    };
    PyType_Slot slots[] = {
        {Py_tp_new, region_new},
        {Py_tp_init, region_init},
        {Py_tp_dealloc, region_dealloc},
        {Py_tp_methods, region_methods},
        {Py_tp_getset, region_getset},
        {Py_tp_doc, (void *)(uintptr_t)docs[kind]},
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
