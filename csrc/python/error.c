#include "state.h"

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
#define STATUS_TYPE_MemoryError         PyExc_MemoryError
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
