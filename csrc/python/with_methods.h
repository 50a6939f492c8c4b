/* __enter__ and __exit__ that `with` calls without making objects. */
#ifndef AMP_WITH_METHODS_H
#define AMP_WITH_METHODS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Makes the types of the methods; once, before with_methods_add. */
int with_methods_init(PyObject *module);
/* Puts such methods in place of the __enter__ (METH_NOARGS) and __exit__ (METH_FASTCALL) of a heap type. 0, or -1 with an exception. */
int with_methods_add(PyTypeObject *type);

#endif
