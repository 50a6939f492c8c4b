/* ModuleBase: the C half of nn.Module.
 *
 * Calls go straight to `forward` unless the instance has hooks. Parameters, submodules and buffers live in three registries (dicts,
 * C fields of the object) and are mirrored as ordinary instance attributes, so that reading `self.weight` is a plain attribute load:
 * there is no __getattr__, and the interpreter's attribute specialisation stays on.
 *
 *     self.fc = Linear(...)   ->  modules["fc"] = linear   and   instance attribute fc = linear
 *
 * The registries are instances of a dict subclass of the package whose own methods write through to the attributes; this file edits
 * them with PyDict_* and keeps both sides equal itself. */
#include <stddef.h>

#include "tensor.h"

#include <structmember.h>

typedef enum Kind { KIND_PARAMETER, KIND_BUFFER, KIND_MODULE, KIND_COUNT } Kind;

typedef struct ModuleBase {
    PyObject_HEAD
    PyObject *registry[KIND_COUNT]; /* dicts; NULL before Module.__init__() */
    char hooked;                    /* calls take the slow path through _call_with_hooks */
} ModuleBase;

/* Filled by module_base_init and _set_registry_type, never released. */
static PyTypeObject *base_type;
static PyObject *registry_type;
static PyObject *str_forward, *str_call_with_hooks, *str_non_persistent, *str_is_buffer, *str_enter_buffer;
static bool all_hooked; /* hooks of all modules exist: every call takes the slow path */

static const char *const kind_plural[KIND_COUNT] = {"parameters", "buffers", "modules"};

enum { INLINE_ARGS = 8 };

/* ---- calling ---- */

static bool is_hooked(PyObject *module) { return all_hooked || ((ModuleBase *)module)->hooked; }

static PyObject *module_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *method = is_hooked(self) ? str_call_with_hooks : str_forward;
    Py_ssize_t npos = PyTuple_GET_SIZE(args), nkw = kwargs ? PyDict_GET_SIZE(kwargs) : 0;
    PyObject *small[INLINE_ARGS + 2], **argv = small;
    if (npos + nkw > INLINE_ARGS) {
        argv = PyMem_Malloc((size_t)(npos + nkw + 2) * sizeof *argv);
        if (!argv) {
            return PyErr_NoMemory();
        }
    }
    /* argv[0] is scratch for the callee: PY_VECTORCALL_ARGUMENTS_OFFSET */
    PyObject *kwnames = NULL, *result = NULL;
    argv[1] = self;
    for (Py_ssize_t i = 0; i < npos; i++) {
        argv[2 + i] = PyTuple_GET_ITEM(args, i);
    }
    if (nkw > 0) {
        kwnames = PyTuple_New(nkw);
        if (!kwnames) {
            goto done;
        }
        PyObject *key, *value;
        Py_ssize_t position = 0, i = 0;
        while (i < nkw && PyDict_Next(kwargs, &position, &key, &value)) {
            PyTuple_SET_ITEM(kwnames, i, Py_NewRef(key));
            argv[2 + npos + i++] = value;
        }
    }
    result = PyObject_VectorcallMethod(method, argv + 1, (size_t)(npos + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
done:
    Py_XDECREF(kwnames);
    if (argv != small) {
        PyMem_Free(argv);
    }
    return result;
}

/* module(x); skips the argument tuple if the class does not override __call__. */
static PyObject *call_one(PyObject *module, PyObject *x) {
    if (Py_TYPE(module)->tp_call == module_call && !is_hooked(module)) {
        PyObject *argv[3] = {NULL, module, x};
        return PyObject_VectorcallMethod(str_forward, argv + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    return PyObject_CallOneArg(module, x);
}

/* x = m(x) for every m; steals x. */
static PyObject *chain(PyObject *m, PyObject *x) {
    Py_INCREF(m);
    PyObject *y = call_one(m, x);
    Py_DECREF(m);
    Py_DECREF(x);
    return y;
}

static PyObject *sequential_forward(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    if (nargs != 2) {
        PyErr_Format(PyExc_TypeError, "sequential_forward takes (modules, input), %zd arguments given", nargs);
        return NULL;
    }
    PyObject *x = Py_NewRef(args[1]);
    if (PyDict_Check(args[0])) {
        PyObject *key, *value;
        Py_ssize_t position = 0;
        while (x && PyDict_Next(args[0], &position, &key, &value)) {
            Py_INCREF(value); /* its forward may take it out of the dict */
            x = chain(value, x);
            Py_DECREF(value);
        }
        return x;
    }
    PyObject *fast = PySequence_Fast(args[0], "sequential_forward: expected a dict, list or tuple of modules");
    if (!fast) {
        Py_DECREF(x);
        return NULL;
    }
    for (Py_ssize_t i = 0; x && i < PySequence_Fast_GET_SIZE(fast); i++) {
        PyObject *member = Py_NewRef(PySequence_Fast_GET_ITEM(fast, i));
        x = chain(member, x);
        Py_DECREF(member);
    }
    Py_DECREF(fast);
    return x;
}

/* ---- attributes ---- */

static bool is_parameter(PyObject *o) { return amp_state.parameter_type && PyObject_TypeCheck(o, amp_state.parameter_type); }

static bool may_hold(Kind kind, PyObject *value) {
    if (value == Py_None) {
        return true;
    }
    switch (kind) {
    case KIND_PARAMETER: return is_parameter(value);
    case KIND_MODULE: return PyObject_TypeCheck(value, base_type);
    default: return tensor_check(value);
    }
}

/* 1 found, 0 not, -1 error */
static int holds(ModuleBase *self, Kind kind, PyObject *name) {
    PyObject *dict = self->registry[kind];
    return dict && PyDict_GET_SIZE(dict) > 0 ? PyDict_Contains(dict, name) : 0;
}

static int forget_non_persistent(PyObject *self, PyObject *name) {
    PyObject *set = PyObject_GetAttr(self, str_non_persistent);
    if (!set) {
        PyErr_Clear();
        return 0;
    }
    int result = PySet_Check(set) ? PySet_Discard(set, name) : 0;
    Py_DECREF(set);
    return result < 0 ? -1 : 0;
}

/* Removes the name from every registry but `keep` (KIND_COUNT: from all). Returns how many held it, -1 on error. */
static int forget(ModuleBase *self, PyObject *name, int keep) {
    int count = 0;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        int found = kind == keep ? 0 : holds(self, (Kind)kind, name);
        if (found < 0 || (found && PyDict_DelItem(self->registry[kind], name) < 0)) {
            return -1;
        }
        if (found && kind == KIND_BUFFER && forget_non_persistent((PyObject *)self, name) < 0) {
            return -1;
        }
        count += found;
    }
    return count;
}

static int store(ModuleBase *self, Kind kind, PyObject *name, PyObject *value) {
    if (PyObject_GenericSetAttr((PyObject *)self, name, value) < 0) {
        return -1;
    }
    return PyDict_SetItem(self->registry[kind], name, value);
}

static int check_name(PyObject *self, Kind kind, PyObject *name) {
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "the name of a %s must be a str, not %.100s",
                     kind == KIND_PARAMETER ? "parameter"
                     : kind == KIND_MODULE  ? "module"
                                            : "buffer",
                     Py_TYPE(name)->tp_name);
        return -1;
    }
    if (PyUnicode_GET_LENGTH(name) == 0 || PyUnicode_FindChar(name, '.', 0, PyUnicode_GET_LENGTH(name), 1) >= 0) {
        PyErr_Format(PyExc_KeyError, "'%U' cannot be registered: the name must not be empty and must not contain '.'", name);
        return -1;
    }
    PyObject *descriptor = PyObject_GetAttr((PyObject *)Py_TYPE(self), name);
    if (descriptor) {
        Py_DECREF(descriptor);
        PyErr_Format(PyExc_KeyError, "attribute '%U' already exists in class %.100s: choose another name", name,
                     Py_TYPE(self)->tp_name);
        return -1;
    }
    PyErr_Clear();
    return 0;
}

/* A Parameter or a Module was assigned: it takes the name over from whatever held it. */
static int adopt(ModuleBase *self, Kind kind, PyObject *name, PyObject *value) {
    if (!self->registry[kind]) {
        PyErr_Format(PyExc_AttributeError, "cannot assign %s before Module.__init__() call",
                     kind == KIND_MODULE ? "module" : kind_plural[kind]);
        return -1;
    }
    int known = holds(self, kind, name);
    if (known < 0 || (!known && check_name((PyObject *)self, kind, name) < 0) || forget(self, name, (int)kind) < 0) {
        return -1;
    }
    return store(self, kind, name, value);
}

static int refuse(PyObject *self, Kind kind, PyObject *name, PyObject *value) {
    static const char *const wanted[KIND_COUNT] = {"a Parameter or None", "a Tensor or None", "a Module or None"};
    static const char *const noun[KIND_COUNT] = {"parameter", "buffer", "child module"};
    PyErr_Format(PyExc_TypeError, "cannot assign '%.100s' object as %s '%U' of %.100s: %s expected%s", Py_TYPE(value)->tp_name,
                 noun[kind], name, Py_TYPE(self)->tp_name, wanted[kind],
                 kind == KIND_PARAMETER && tensor_check(value) ? ". Wrap it: Parameter(tensor), or write into it under no_grad"
                                                               : "");
    return -1;
}

static int module_delattr(PyObject *self, PyObject *name) {
    int known = forget((ModuleBase *)self, name, KIND_COUNT);
    if (known < 0) {
        return -1;
    }
    int result = PyObject_GenericSetAttr(self, name, NULL);
    if (result < 0 && known > 0 && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return 0;
    }
    return result;
}

/* nn.Buffer marks its tensors by an attribute. */
static bool is_marked_buffer(PyObject *o) {
    PyObject *dict = tensor_check(o) ? ((Tensor *)o)->dict : NULL;
    return dict && PyDict_GET_SIZE(dict) > 0 && PyDict_Contains(dict, str_is_buffer) > 0;
}

static int enter_buffer(PyObject *self, PyObject *name, PyObject *value) {
    PyObject *done = PyObject_CallMethodObjArgs(self, str_enter_buffer, name, value, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int module_setattr(PyObject *self, PyObject *name, PyObject *value) {
    if (!value) {
        return module_delattr(self, name);
    }
    ModuleBase *m = (ModuleBase *)self;
    if (is_parameter(value)) {
        return adopt(m, KIND_PARAMETER, name, value);
    }
    if (PyObject_TypeCheck(value, base_type)) {
        /* a name that is registered as a parameter or buffer keeps its kind */
        int parameter = holds(m, KIND_PARAMETER, name);
        return parameter > 0   ? refuse(self, KIND_PARAMETER, name, value)
               : parameter < 0 ? -1
                               : adopt(m, KIND_MODULE, name, value);
    }
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        int found = holds(m, (Kind)kind, name);
        if (found < 0) {
            return -1;
        }
        if (found) {
            if (!may_hold((Kind)kind, value)) {
                return refuse(self, (Kind)kind, name, value);
            }
            return is_marked_buffer(value) ? enter_buffer(self, name, value) : store(m, (Kind)kind, name, value);
        }
    }
    if (is_marked_buffer(value)) {
        return enter_buffer(self, name, value);
    }
    return PyObject_GenericSetAttr(self, name, value);
}

/* Registers without asking what the value is: register_parameter and its kin have checked. */
static PyObject *module_enter(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    long kind = nargs == 3 ? PyLong_AsLong(args[0]) : -1;
    if (kind < 0 || kind >= KIND_COUNT) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "_enter takes (kind, name, value)");
        }
        return NULL;
    }
    if (!may_hold((Kind)kind, args[2])) {
        refuse(self, (Kind)kind, args[1], args[2]);
        return NULL;
    }
    if (adopt((ModuleBase *)self, (Kind)kind, args[1], args[2]) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The registries' side of the mirror: sets or removes the instance attribute only. */
static PyObject *module_mirror(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 1 || nargs > 2) {
        PyErr_SetString(PyExc_TypeError, "_mirror takes (name[, value])");
        return NULL;
    }
    if (PyObject_GenericSetAttr(self, args[0], nargs == 2 ? args[1] : NULL) < 0) {
        if (nargs == 2 || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return NULL;
        }
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

static PyObject *registry_get(PyObject *self, void *closure) {
    Kind kind = (Kind)(intptr_t)closure;
    PyObject *dict = ((ModuleBase *)self)->registry[kind];
    if (!dict) {
        PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '_%s': call super().__init__() first",
                     Py_TYPE(self)->tp_name, kind_plural[kind]);
        return NULL;
    }
    return Py_NewRef(dict);
}

/* Any mapping may be assigned; it becomes a write-through registry of this module. */
static int registry_set(PyObject *self, PyObject *value, void *closure) {
    Kind kind = (Kind)(intptr_t)closure;
    if (!value || !registry_type) {
        PyErr_Format(PyExc_TypeError, "_%s cannot be deleted", kind_plural[kind]);
        return -1;
    }
    PyObject *registry = PyObject_CallFunctionObjArgs(registry_type, self, value, NULL);
    if (!registry) {
        return -1;
    }
    if (!PyDict_Check(registry)) {
        Py_DECREF(registry);
        PyErr_SetString(PyExc_TypeError, "the registry type must be a dict");
        return -1;
    }
    Py_XSETREF(((ModuleBase *)self)->registry[kind], registry);
    return 0;
}

/* ---- type ---- */

static int module_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        Py_VISIT(((ModuleBase *)self)->registry[kind]);
    }
    return 0;
}

static int module_clear(PyObject *self) {
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        Py_CLEAR(((ModuleBase *)self)->registry[kind]);
    }
    return 0;
}

static void module_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    module_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

#define FAST(function) ((PyCFunction)(void (*)(void))(function))
static PyMethodDef module_methods[] = {
    {"_enter", FAST(module_enter), METH_FASTCALL,
     "_enter($self, kind, name, value, /)\n--\n\nRegisters; kind 0 parameter, 1 buffer, 2 module."},
    {"_mirror", FAST(module_mirror), METH_FASTCALL,
     "(name[, value]): set or remove the instance attribute of a registered name."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef module_getset[] = {
    {"_parameters", registry_get, registry_set, "registered parameters by name", (void *)(intptr_t)KIND_PARAMETER},
    {"_buffers", registry_get, registry_set, "registered buffers by name", (void *)(intptr_t)KIND_BUFFER},
    {"_modules", registry_get, registry_set, "child modules by name", (void *)(intptr_t)KIND_MODULE},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef module_members[] = {
    {"_hooked", T_BOOL, offsetof(ModuleBase, hooked), 0, "calls look at the hook dicts"},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot module_slots[] = {
    {Py_tp_doc, "C half of ampnative.nn.Module: calls and attribute registration."},
    {Py_tp_call, module_call},
    {Py_tp_setattro, module_setattr},
    {Py_tp_traverse, module_traverse},
    {Py_tp_clear, module_clear},
    {Py_tp_dealloc, module_dealloc},
    {Py_tp_methods, module_methods},
    {Py_tp_getset, module_getset},
    {Py_tp_members, module_members},
    {0, NULL},
};

static PyType_Spec module_spec = {
    .name = "ampnative._C.ModuleBase",
    .basicsize = sizeof(ModuleBase),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = module_slots,
};

/* ---- module functions ---- */

static PyObject *set_parameter_type(PyObject *module, PyObject *type) {
    (void)module;
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, amp_state.tensor_type)) {
        PyErr_SetString(PyExc_TypeError, "_set_parameter_type: expected a subclass of Tensor");
        return NULL;
    }
    Py_INCREF(type);
    Py_XSETREF(amp_state.parameter_type, (PyTypeObject *)type);
    Py_RETURN_NONE;
}

static PyObject *set_registry_type(PyObject *module, PyObject *type) {
    (void)module;
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &PyDict_Type)) {
        PyErr_SetString(PyExc_TypeError, "_set_registry_type: expected a subclass of dict");
        return NULL;
    }
    Py_INCREF(type);
    Py_XSETREF(registry_type, type);
    Py_RETURN_NONE;
}

static PyObject *set_all_hooked(PyObject *module, PyObject *on) {
    (void)module;
    int truth = PyObject_IsTrue(on);
    if (truth < 0) {
        return NULL;
    }
    all_hooked = truth;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_set_all_modules_hooked", set_all_hooked, METH_O,
     "_set_all_modules_hooked(on, /)\n--\n\nWhether the calls of all modules look at hooks."},
    {"_set_parameter_type", set_parameter_type, METH_O,
     "_set_parameter_type(type, /)\n--\n\nThe class whose instances nn.Module registers as parameters."},
    {"_set_registry_type", set_registry_type, METH_O,
     "_set_registry_type(type, /)\n--\n\nThe dict subclass of nn.Module's registries."},
    {"sequential_forward", FAST(sequential_forward), METH_FASTCALL,
     "sequential_forward(modules, input, /)\n--\n\nCalls one module after the other."},
    {NULL, NULL, 0, NULL},
};

int module_base_init(PyObject *module) {
    str_forward = PyUnicode_InternFromString("forward");
    str_call_with_hooks = PyUnicode_InternFromString("_call_with_hooks");
    str_non_persistent = PyUnicode_InternFromString("_non_persistent_buffers_set");
    base_type = (PyTypeObject *)PyType_FromSpec(&module_spec);
    str_is_buffer = PyUnicode_InternFromString("_is_buffer");
    str_enter_buffer = PyUnicode_InternFromString("_enter_buffer");
    if (!str_is_buffer || !str_enter_buffer || !str_forward || !str_call_with_hooks || !str_non_persistent || !base_type) {
        return -1;
    }
    if (PyModule_AddObjectRef(module, "ModuleBase", (PyObject *)base_type) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
