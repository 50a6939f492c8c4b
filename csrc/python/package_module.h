/* The type of the package's modules that have a __getattr__. */
#ifndef AMP_PACKAGE_MODULE_H
#define AMP_PACKAGE_MODULE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

int package_module_init(PyObject *module); /* PackageModule */

#endif
