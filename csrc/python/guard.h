/* The type of functions whose errors are looked at once more. */
#ifndef AMP_GUARD_H
#define AMP_GUARD_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

int guard_init(PyObject *module); /* Guard */

#endif
