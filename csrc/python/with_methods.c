/* `with` looks __enter__ and __exit__ up at the type and binds both. What CPython's own method descriptor binds to is a new object of the
 * garbage collector, and two of them take longer than all that an empty region does. The methods here bind to objects that are used again:
 *
 *     type.__dict__["__enter__"]   Method   --plain-->   CPython's descriptor of the same function
 *             | __get__
 *             v
 *     instance.__enter__           Bound    --owner-->   instance
 *
 * All but a call as `with` makes it (attributes, repr, pickling, wrong arguments) is answered by CPython's own objects. */
#include "with_methods.h"

#include <stdbool.h>
#include <stddef.h>
#include <structmember.h>

typedef struct Method {
    PyObject_HEAD
    vectorcallfunc call;
    PyMethodDescrObject *plain; /* strong; never changes */
} Method;

typedef struct Bound {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *owner; /* strong */
    Method *method;  /* strong */
} Bound;

enum { SPARES = 4 }; /* two for each of two regions, one inside the other */

static PyTypeObject *method_type, *bound_type;
static Bound *spare[SPARES]; /* without references of theirs, not tracked, reference count 0; GIL held */
static int spares;

/* What CPython would have bound. New reference. */
static PyObject *plain_bound(const Bound *b) {
    PyObject *plain = (PyObject *)b->method->plain;
    return Py_TYPE(plain)->tp_descr_get(plain, b->owner, (PyObject *)Py_TYPE(b->owner));
}

static PyObject *bound_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Bound *b = (Bound *)self;
    const PyMethodDef *def = b->method->plain->d_method;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (!kwnames && n == 3 && def->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
        return ((_PyCFunctionFastWithKeywords)(void (*)(void))def->ml_meth)(b->owner, args, n, NULL);
    }
    if (!kwnames && n == 0 && def->ml_flags == METH_NOARGS) {
        return def->ml_meth(b->owner, NULL);
    }
    PyObject *plain = plain_bound(b);
    PyObject *result = plain ? PyObject_Vectorcall(plain, args, nargsf, kwnames) : NULL;
    Py_XDECREF(plain);
    return result;
}

static PyObject *bound_attribute(PyObject *self, PyObject *name) {
    PyObject *plain = plain_bound((Bound *)self);
    PyObject *value = plain ? PyObject_GetAttr(plain, name) : NULL;
    Py_XDECREF(plain);
    return value;
}

static PyObject *bound_repr(PyObject *self) {
    PyObject *plain = plain_bound((Bound *)self);
    PyObject *text = plain ? PyObject_Repr(plain) : NULL;
    Py_XDECREF(plain);
    return text;
}

static PyObject *bound_compare(PyObject *a, PyObject *b, int op) {
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(a) != bound_type || Py_TYPE(b) != bound_type) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    bool same = ((Bound *)a)->owner == ((Bound *)b)->owner && ((Bound *)a)->method == ((Bound *)b)->method;
    return PyBool_FromLong(same == (op == Py_EQ));
}

static Py_hash_t bound_hash(PyObject *self) {
    return _Py_HashPointer(((Bound *)self)->owner) ^ _Py_HashPointer(((Bound *)self)->method) ^
           1; /* never -1: pointers are even */
}

/* There is no tp_clear: both are constant, like a tuple's items, and a cycle goes through an attribute of the owner. */
static int bound_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Bound *)self)->owner);
    Py_VISIT(((Bound *)self)->method);
    return 0;
}

static void bound_dealloc(PyObject *self) {
    Bound *b = (Bound *)self;
    PyObject_GC_UnTrack(self);
    PyObject *owner = b->owner;
    Method *method = b->method;
    if (spares < SPARES) {
        spare[spares++] = b; /* with its reference to the type */
    } else {
        PyTypeObject *type = Py_TYPE(self);
        PyObject_GC_Del(self);
        Py_DECREF(type);
    }
    Py_DECREF(owner);
    Py_DECREF(method);
}

static PyObject *method_get(PyObject *self, PyObject *owner, PyObject *type) {
    Method *m = (Method *)self;
    if (!owner || !PyObject_TypeCheck(owner, m->plain->d_common.d_type)) {
        PyObject *plain = (PyObject *)m->plain;
        return owner ? Py_TYPE(plain)->tp_descr_get(plain, owner, type) : Py_NewRef(self);
    }
    Bound *b;
    if (spares) {
        b = spare[--spares];
        Py_SET_REFCNT(b, 1);
    } else {
        b = PyObject_GC_New(Bound, bound_type);
        if (!b) {
            return NULL;
        }
        b->call = bound_call;
    }
    b->owner = Py_NewRef(owner);
    b->method = (Method *)Py_NewRef(self);
    PyObject_GC_Track(b);
    return (PyObject *)b;
}

/* type.__enter__(instance) */
static PyObject *method_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    return PyObject_Vectorcall((PyObject *)((Method *)self)->plain, args, nargsf, kwnames);
}

static PyObject *method_attribute(PyObject *self, PyObject *name) {
    return PyObject_GetAttr((PyObject *)((Method *)self)->plain, name);
}

static PyObject *method_repr(PyObject *self) { return PyObject_Repr((PyObject *)((Method *)self)->plain); }

static int method_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Method *)self)->plain);
    return 0;
}

static void method_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_DECREF(((Method *)self)->plain);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static int replace(PyTypeObject *type, const char *name) {
    PyObject *plain = PyObject_GetAttrString((PyObject *)type, name);
    if (!plain) {
        return -1;
    }
    Method *m = PyObject_GC_New(Method, method_type);
    if (!m) {
        Py_DECREF(plain);
        return -1;
    }
    m->call = method_call;
    m->plain = (PyMethodDescrObject *)plain;
    PyObject_GC_Track(m);
    int failed = PyObject_SetAttrString((PyObject *)type, name, (PyObject *)m);
    Py_DECREF(m);
    return failed;
}

int with_methods_exit_names(const char *owner, const char *const names[3], Py_ssize_t n, PyObject *kwnames) {
    Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (n + named != 3) {
        PyErr_Format(PyExc_TypeError,
                     "%s.__exit__() takes %s, %s and %s, three arguments (%zd given): None for each without an exception", owner,
                     names[0], names[1], names[2], n + named);
        return -1;
    }
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        int i = 0;
        while (i < 3 && PyUnicode_CompareWithASCIIString(name, names[i])) {
            i++;
        }
        if (i == 3 || i < n) { /* names in kwnames differ from each other: with the count right, all three are there */
            PyErr_Format(PyExc_TypeError,
                         i == 3 ? "%s.__exit__() got an unexpected keyword argument '%U': it takes %s, %s and %s"
                                : "%s.__exit__() got multiple values for argument '%U': it takes %s, %s and %s",
                         owner, name, names[0], names[1], names[2]);
            return -1;
        }
    }
    return 0;
}

int with_methods_add(PyTypeObject *type) { return replace(type, "__enter__") < 0 || replace(type, "__exit__") < 0 ? -1 : 0; }

/* pydoc asks past tp_getattro. */
static PyObject *documentation(PyObject *self, void *Py_UNUSED(closure)) { return PyObject_GetAttrString(self, "__doc__"); }

int with_methods_init(PyObject *module) {
    static PyGetSetDef getset[] = {{"__doc__", documentation, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
    static PyMemberDef method_members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Method, call), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyMemberDef bound_members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Bound, call), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot method_slots[] = {
        {Py_tp_dealloc, method_dealloc},
        {Py_tp_traverse, method_traverse},
        {Py_tp_descr_get, method_get},
        {Py_tp_call, PyVectorcall_Call},
        {Py_tp_repr, method_repr},
        {Py_tp_getattro, method_attribute},
        {Py_tp_members, method_members},
        {Py_tp_getset, getset},
        {0, NULL},
    };
    static PyType_Slot bound_slots[] = {
        {Py_tp_dealloc, bound_dealloc},
        {Py_tp_traverse, bound_traverse},
        {Py_tp_call, PyVectorcall_Call},
        {Py_tp_repr, bound_repr},
        {Py_tp_getattro, bound_attribute},
        {Py_tp_richcompare, bound_compare},
        {Py_tp_hash, bound_hash},
        {Py_tp_members, bound_members},
        {Py_tp_getset, getset},
        {0, NULL},
    };
    enum { FLAGS = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION };
    static PyType_Spec method_spec = {"ampnative._C._with_method", sizeof(Method), 0, FLAGS | Py_TPFLAGS_METHOD_DESCRIPTOR,
                                      method_slots};
    static PyType_Spec bound_spec = {"ampnative._C._bound_with_method", sizeof(Bound), 0, FLAGS, bound_slots};
    method_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &method_spec, NULL);
    bound_type = method_type ? (PyTypeObject *)PyType_FromModuleAndSpec(module, &bound_spec, NULL) : NULL;
    return bound_type ? 0 : -1;
}
