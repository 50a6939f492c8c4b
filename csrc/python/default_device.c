/* The device of factories that aren't told one: set_default_device() and `with device(...)`, for each thread by itself. */
#include "default_device.h"

static _Thread_local int current = -1; /* none chosen */
static _Thread_local int8_t *outer;    /* what was current at each open `with`, innermost last */
static _Thread_local Py_ssize_t depth, room;

int default_device_or(int fallback) { return current < 0 ? fallback : current; }

int default_device_enter(int device) {
    if (depth == room) {
        Py_ssize_t more = room ? 2 * room : 8;
        int8_t *larger = PyMem_RawRealloc(outer, (size_t)more);
        if (!larger) {
            PyErr_NoMemory();
            return -1;
        }
        outer = larger;
        room = more;
    }
    outer[depth++] = (int8_t)current;
    current = device;
    return 0;
}

int default_device_exit(void) {
    if (!depth) {
        PyErr_SetString(PyExc_RuntimeError, "device.__exit__() without __enter__() before it in this thread");
        return -1;
    }
    current = outer[--depth];
    if (!depth) {
        PyMem_RawFree(outer);
        outer = NULL;
        room = 0;
    }
    return 0;
}

static PyObject *set_default_device(PyObject *Py_UNUSED(module), PyObject *device) {
    int id = device == Py_None ? -1 : device_parse(device);
    if (id < 0 && device != Py_None) {
        return NULL;
    }
    current = id;
    Py_RETURN_NONE;
}

static PyObject *get_default_device(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args)) {
    return device_object(default_device_or(AMP_CPU));
}

int default_device_init(PyObject *module) {
    static PyMethodDef functions[] = {
        {"set_default_device", set_default_device, METH_O,
         "set_default_device(device, /)\n--\n\nFactories of this thread that are given no device make their tensors there from "
         "now "
         "on; None: on the CPU. A `with device(...)` around it ends it, too."},
        {"get_default_device", get_default_device, METH_NOARGS,
         "get_default_device()\n--\n\nThe device of factories that are given none, in this thread."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
