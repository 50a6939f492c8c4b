#include "state.h"

static const char out_of_memory_doc[] =
    "The memory for a tensor is exhausted, on the CPU or the device.\n\nA RuntimeError, as scripts that look for the largest "
    "batch expect, and a MemoryError.";

int error_init(PyObject *module) {
    if (!amp_state.out_of_memory) {
        PyObject *bases = PyTuple_Pack(2, PyExc_RuntimeError, PyExc_MemoryError);
        amp_state.out_of_memory = bases ? PyErr_NewExceptionWithDoc("ampnative.OutOfMemoryError", out_of_memory_doc, bases, NULL)
                                        : NULL;
        Py_XDECREF(bases);
    }
    return amp_state.out_of_memory ? PyModule_AddObjectRef(module, "OutOfMemoryError", amp_state.out_of_memory) : -1;
}

/* The first words of each are what scripts look for that retry with less. */
void raise_out_of_memory(size_t nbytes, int device) {
    PyErr_Format(
        amp_state.out_of_memory, "%s %zu bytes for a tensor. Smaller batches need less",
        device == AMP_CUDA ? "CUDA out of memory. Tried to allocate" : "DefaultCPUAllocator: can't allocate memory:", nbytes);
}

int raise_devices(const char *text, int first, int second) {
    PyObject *a = device_object(first), *b = a ? device_object(second) : NULL;
    if (b) {
        PyErr_Format(PyExc_RuntimeError, text, a, b);
    }
    Py_XDECREF(a);
    Py_XDECREF(b);
    return -1;
}

int amp_raise(Status status, const char *what) {
    static const char *const message[] = {
#define STATUS(code, exception, text) text,
#include "../core/status.def"
#undef STATUS
    };
    PyObject *exception = NULL;
    switch (status) {
#define STATUS(code, type, text) \
    case AMP_##code: \
        exception = STATUS_TYPE_##type; \
        break;
#define STATUS_TYPE_SystemError         PyExc_SystemError
#define STATUS_TYPE_OutOfMemoryError    amp_state.out_of_memory
#define STATUS_TYPE_NotImplementedError PyExc_NotImplementedError
#define STATUS_TYPE_IndexError          PyExc_IndexError
#define STATUS_TYPE_RuntimeError        PyExc_RuntimeError
#include "../core/status.def"
#undef STATUS
    case AMP_STATUS_COUNT: break;
    }
    if (!exception) {
        exception = PyExc_SystemError;
    }
    PyErr_Format(exception, "%s: %s", what, message[status]);
    return -1;
}
