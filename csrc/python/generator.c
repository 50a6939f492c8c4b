/* Generator: random numbers whose state a user can seed, save and restore. */
#include <string.h>

#include "interop.h"

static const uint64_t DEFAULT_SEED = 67280421310721u;

typedef struct GeneratorObject {
    PyObject_HEAD
    Generator *own; /* NULL in the object that stands for the process's default generator */
    int device;
} GeneratorObject;

static Generator *generator_in(PyObject *self) {
    Generator *own = ((GeneratorObject *)self)->own;
    return own ? own : amp_state.generator;
}

Generator *generator_of(PyObject *o) {
    if (!o || o == Py_None) {
        return amp_state.generator;
    }
    if (!PyObject_TypeCheck(o, amp_state.generator_type)) {
        PyErr_Format(PyExc_TypeError, "argument 'generator' must be an ampnative.Generator or None, not %s", Py_TYPE(o)->tp_name);
        return NULL;
    }
    return generator_in(o);
}

static PyObject *generator_tp_new(PyTypeObject *cls, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"device", NULL};
    PyObject *device_arg = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Generator", names, &device_arg)) {
        return NULL;
    }
    int device = device_arg && device_arg != Py_None ? device_parse(device_arg) : AMP_CPU;
    if (device < 0 || device_require(device) < 0) {
        return NULL;
    }
    if (device == AMP_META) {
        PyErr_SetString(PyExc_RuntimeError, "device meta has no random numbers: make the generator on \"cpu\" or \"cuda\"");
        return NULL;
    }
    GeneratorObject *self = (GeneratorObject *)cls->tp_alloc(cls, 0);
    if (!self) {
        return NULL;
    }
    self->device = device;
    self->own = amp_generator_new(DEFAULT_SEED);
    if (!self->own) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void generator_dealloc(PyObject *self) {
    GeneratorObject *g = (GeneratorObject *)self;
    if (g->own) {
        amp_generator_free(g->own);
    }
    plain_dealloc(self);
}

/* Any int from -2^63 to 2^64 - 1, taken modulo 2^64. */
static int seed_from_object(PyObject *o, uint64_t *seed) {
    if (!PyIndex_Check(o)) {
        PyErr_Format(PyExc_RuntimeError, "manual_seed expected a long, but got %s", Py_TYPE(o)->tp_name);
        return -1;
    }
    PyObject *number = PyNumber_Index(o);
    if (!number) {
        return -1;
    }
    int overflow;
    *seed = (uint64_t)PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow > 0) {
        *seed = PyLong_AsUnsignedLongLong(number);
        overflow = PyErr_Occurred() != NULL;
    }
    Py_DECREF(number);
    if (overflow) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "Overflow when unpacking long long: a seed lies between -2**63 and 2**64 - 1, got %R", o);
        return -1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *generator_manual_seed(PyObject *self, PyObject *arg) {
    uint64_t seed;
    if (seed_from_object(arg, &seed) < 0) {
        return NULL;
    }
    amp_generator_seed(generator_in(self), seed);
    return Py_NewRef(self);
}

static PyObject *generator_seed(PyObject *self, PyObject *noargs) {
    (void)noargs;
    PyObject *os = PyImport_ImportModule("os");
    PyObject *bytes = os ? PyObject_CallMethod(os, "urandom", "i", (int)sizeof(uint64_t)) : NULL;
    Py_XDECREF(os);
    if (!bytes) {
        return NULL;
    }
    uint64_t seed = 0;
    memcpy(&seed, PyBytes_AS_STRING(bytes), sizeof seed);
    Py_DECREF(bytes);
    amp_generator_seed(generator_in(self), seed);
    return PyLong_FromUnsignedLongLong(seed);
}

static PyObject *generator_initial_seed(PyObject *self, PyObject *noargs) {
    (void)noargs;
    return PyLong_FromUnsignedLongLong(amp_generator_initial_seed(generator_in(self)));
}

static PyObject *generator_get_state(PyObject *self, PyObject *noargs) {
    (void)noargs;
    int64_t n = (int64_t)amp_generator_state_size();
    Tensor *state = tensor_new(1, &n, AMP_UINT8, AMP_CPU);
    if (state) {
        amp_generator_get_state(generator_in(self), state->v.data);
    }
    return (PyObject *)state;
}

static PyObject *generator_set_state(PyObject *self, PyObject *arg) {
    if (!tensor_check(arg)) {
        PyErr_Format(PyExc_TypeError, "expected a uint8 tensor as get_state() returns it, but got %s", Py_TYPE(arg)->tp_name);
        return NULL;
    }
    Tensor *given = (Tensor *)arg;
    if (given->v.dtype != AMP_UINT8 || given->v.device != AMP_CPU) {
        PyErr_Format(PyExc_TypeError, "RNG state must be a uint8 tensor on the CPU, not %s", amp_dtype_info[given->v.dtype].name);
        return NULL;
    }
    Tensor *state = given->v.layout & LAYOUT_CONTIGUOUS ? (Tensor *)Py_NewRef(arg) : tensor_copy_data(given);
    if (!state) {
        return NULL;
    }
    int rc = amp_generator_set_state(generator_in(self), state->v.data, (size_t)state->v.numel);
    Py_DECREF(state);
    if (rc < 0) {
        PyErr_Format(PyExc_RuntimeError,
                     "the tensor of %lld bytes is no generator state: expected the %zu bytes that get_state() returned",
                     (long long)given->v.numel, amp_generator_state_size());
        return NULL;
    }
    return Py_NewRef(self);
}

static PyObject *generator_clone_state(PyObject *self, PyObject *noargs) {
    (void)noargs;
    PyObject *copy = PyObject_CallFunctionObjArgs((PyObject *)amp_state.generator_type, NULL);
    PyObject *state = copy ? generator_get_state(self, NULL) : NULL;
    PyObject *done = state ? generator_set_state(copy, state) : NULL;
    Py_XDECREF(state);
    Py_XDECREF(copy);
    if (done) {
        ((GeneratorObject *)done)->device = ((GeneratorObject *)self)->device;
    }
    return done;
}

static PyObject *generator_get_device(PyObject *self, void *closure) {
    (void)closure;
    return device_object(((GeneratorObject *)self)->device);
}

static PyGetSetDef generator_getset[] = {
    {"device", generator_get_device, NULL, "The device whose tensors the numbers are for.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef generator_methods[] = {
    {"manual_seed", generator_manual_seed, METH_O,
     "manual_seed($self, seed, /)\n--\n\nStarts the sequence that belongs to `seed` (-2**63 to 2**64 - 1, else ValueError); "
     "returns the generator."},
    {"seed", generator_seed, METH_NOARGS,
     "seed($self, /)\n--\n\nSeeds from the operating system's entropy and returns the seed."},
    {"initial_seed", generator_initial_seed, METH_NOARGS, "initial_seed($self, /)\n--\n\nThe seed that was set last."},
    {"get_state", generator_get_state, METH_NOARGS, "get_state($self, /)\n--\n\nThe state as a 1-dim uint8 tensor; a copy."},
    {"set_state", generator_set_state, METH_O,
     "set_state($self, state, /)\n--\n\nContinues where get_state() was called. TypeError unless uint8 on the CPU, RuntimeError "
     "for a wrong size."},
    {"clone_state", generator_clone_state, METH_NOARGS, "clone_state($self, /)\n--\n\nA new generator in the same state."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot generator_slots[] = {
    {Py_tp_doc, (void *)"Generator(device=\"cpu\")\n--\n\nA stream of random numbers: PyTorch's CPU numbers for a given seed."},
    {Py_tp_new, (void *)generator_tp_new},
    {Py_tp_dealloc, (void *)generator_dealloc},
    {Py_tp_getset, generator_getset},
    {Py_tp_methods, generator_methods},
    {0, NULL},
};
static PyType_Spec generator_spec = {"ampnative.Generator", sizeof(GeneratorObject), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE, generator_slots};

/* Makes the default generator too, unless the module has one already. */
int generator_init(PyObject *module) {
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &generator_spec, NULL);
    amp_state.generator_type = type;
    if (!type || PyModule_AddType(module, type) < 0) {
        return -1;
    }
    if (!amp_state.generator) {
        amp_state.generator = amp_generator_new(DEFAULT_SEED);
        if (!amp_state.generator) {
            PyErr_NoMemory();
            return -1;
        }
    }
    GeneratorObject *standing = (GeneratorObject *)type->tp_alloc(type, 0);
    if (!standing) {
        return -1;
    }
    standing->device = AMP_CPU;
    int rc = PyModule_AddObjectRef(module, "default_generator", (PyObject *)standing);
    Py_DECREF(standing);
    return rc;
}
