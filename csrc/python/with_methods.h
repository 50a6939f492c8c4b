/* __enter__ and __exit__ that `with` calls without making objects. */
#ifndef AMP_WITH_METHODS_H
#define AMP_WITH_METHODS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Makes the types of the methods; once, before with_methods_add. */
int with_methods_init(PyObject *module);
/* Puts such methods in place of the __enter__ (METH_NOARGS) and __exit__ (METH_FASTCALL | METH_KEYWORDS) of a heap type. 0, or -1 with an exception. */
int with_methods_add(PyTypeObject *type);
/* For an __exit__ that was not called as `with` does, with three values: TypeError and -1 unless all of `names` are given once, n of them by
 * position. */
int with_methods_exit_names(const char *owner, const char *const names[3], Py_ssize_t n, PyObject *kwnames);

#endif
