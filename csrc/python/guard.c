/* The type of the package's functions that are written in Python, as users have them: an AttributeError or a RuntimeError that such a
 * function lets out is looked at once more, since it may come from an argument that is no tensor. It stands in front of the function
 * without being a function in Python itself, so that calls that end well pay for no check and warnings name the caller's line. In all
 * else, __class__ included, it is the function. */
#include "guard.h"

#include <structmember.h>
#include <string.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function, *weak;
    bool method; /* its first argument is no argument to the caller */
} Guard;

/* error: normalised. The exception to raise instead, Py_None for none; NULL with an exception. New reference. */
static PyObject *ask(const Guard *g, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject *error) {
    PyObject *module = PyImport_ImportModule("ampnative._wrong_arguments");
    PyObject *explain = module ? PyObject_GetAttrString(module, "explain") : NULL;
    PyObject *tuple = explain ? PyTuple_New(n) : NULL, *dict = tuple ? PyDict_New() : NULL, *answer = NULL;
    for (Py_ssize_t i = 0; dict && i < n; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
    }
    for (Py_ssize_t k = 0; dict && kwnames && k < PyTuple_GET_SIZE(kwnames); k++) {
        if (PyDict_SetItem(dict, PyTuple_GET_ITEM(kwnames, k), args[n + k]) < 0) {
            Py_CLEAR(dict);
        }
    }
    if (dict) {
        answer = PyObject_CallFunctionObjArgs(explain, g->function, tuple, dict, error, g->method ? Py_True : Py_False, NULL);
    }
    Py_XDECREF(module);
    Py_XDECREF(explain);
    Py_XDECREF(tuple);
    Py_XDECREF(dict);
    return answer;
}

/* An exception is set, and is so afterwards or has given way to what `ask` found. */
static __attribute__((noinline)) void look_again(const Guard *g, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace) { /* `ask` looks at where it came from */
        PyException_SetTraceback(error, trace);
    }
    PyObject *answer = ask(g, args, n, kwnames, error);
    if (answer && PyExceptionInstance_Check(answer)) {
        PyErr_SetObject((PyObject *)Py_TYPE(answer), answer);
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
    } else {
        PyErr_Restore(type, error, trace); /* in place of an exception of `ask` */
    }
    Py_XDECREF(answer);
}

static PyObject *guard_call(PyObject *self, PyObject *const *args, size_t n, PyObject *kwnames) {
    const Guard *g = (const Guard *)self;
    PyObject *result = PyObject_Vectorcall(g->function, args, n, kwnames);
    if (!result && (PyErr_Occurred() == PyExc_AttributeError || PyErr_Occurred() == PyExc_RuntimeError)) {
        look_again(g, args, PyVectorcall_NARGS(n), kwnames);
    }
    return result;
}

static PyObject *guard_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"function", "method", NULL};
    PyObject *function;
    int method = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|p:Guard", names, &PyFunction_Type, &function, &method)) {
        return NULL;
    }
    Guard *g = (Guard *)type->tp_alloc(type, 0);
    if (g) {
        g->call = guard_call;
        g->function = Py_NewRef(function);
        g->method = method;
    }
    return (PyObject *)g;
}

/* There is no tp_clear: a guard always has its function, and the function breaks cycles. */
static int guard_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Guard *)self)->function);
    return 0;
}

static void guard_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((Guard *)self)->weak) {
        PyObject_ClearWeakRefs(self);
    }
    Py_XDECREF(((Guard *)self)->function);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *guard_bind(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type)) {
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

/* The function's attributes, but for those that say what stands in front of it. */
static PyObject *guard_get(PyObject *self, PyObject *name) {
    if (PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0) {
        return Py_NewRef(((Guard *)self)->function);
    }
    if (PyUnicode_CompareWithASCIIString(name, "__reduce__") == 0 ||
        PyUnicode_CompareWithASCIIString(name, "__reduce_ex__") == 0 || PyUnicode_CompareWithASCIIString(name, "__get__") == 0 ||
        PyUnicode_CompareWithASCIIString(name, "__call__") == 0) {
        return PyObject_GenericGetAttr(self, name);
    }
    return PyObject_GetAttr(((Guard *)self)->function, name);
}

static int guard_set(PyObject *self, PyObject *name, PyObject *value) {
    return PyObject_SetAttr(((Guard *)self)->function, name, value);
}

static PyObject *guard_repr(PyObject *self) { return PyObject_Repr(((Guard *)self)->function); }

/* Pickled and copied as what is found at its place: the function alone is not what its own name leads to. */
static PyObject *guard_reduce(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    PyObject *module = PyImport_ImportModule("ampnative._wrong_arguments");
    PyObject *result = module ? PyObject_CallMethod(module, "reduced", "OO", ((Guard *)self)->function,
                                                    ((Guard *)self)->method ? Py_True : Py_False)
                              : NULL;
    Py_XDECREF(module);
    return result;
}

int guard_init(PyObject *module) {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Guard, call), READONLY, NULL},
        {"__weaklistoffset__", T_PYSSIZET, offsetof(Guard, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyMethodDef methods[] = {
        {"__reduce__", guard_reduce, METH_NOARGS, "What makes it."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, guard_new},
        {Py_tp_dealloc, guard_dealloc},
        {Py_tp_traverse, guard_traverse},
        {Py_tp_call, PyVectorcall_Call},
        {Py_tp_descr_get, guard_bind},
        {Py_tp_getattro, guard_get},
        {Py_tp_setattro, guard_set},
        {Py_tp_repr, guard_repr},
        {Py_tp_members, members},
        {Py_tp_methods, methods},
        {Py_tp_doc,
         "Guard(function, method=False)\n--\n\nA function whose errors about arguments that are no tensors become TypeErrors."},
        {0, NULL},
    };
    static PyType_Spec spec = {.name = "ampnative._C.Guard",
                               .basicsize = sizeof(Guard),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                        Py_TPFLAGS_METHOD_DESCRIPTOR,
                               .slots = slots};
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int failed = type ? PyModule_AddObjectRef(module, "Guard", type) : -1;
    Py_XDECREF(type);
    return failed;
}
