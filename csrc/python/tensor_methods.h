/* Doors between the files that make up the Tensor type. */
#ifndef AMP_TENSOR_METHODS_H
#define AMP_TENSOR_METHODS_H
#include "tensor.h"

/* Appends the slots for methods, operators, indexing and the buffer protocol; returns the new count or -1. */
int tensor_add_slots(PyType_Slot *slots, int n, int limit);
int tensor_set_requires_grad(Tensor *t, bool on);    /* of a new tensor */
int tensor_change_requires_grad(Tensor *t, bool on); /* of one that users have */
int tensor_retain_grad(Tensor *t);                   /* a non-leaf keeps its gradient in .grad; nothing for a leaf. 0 or -1 */
/* t takes over src's memory, shape and dtype; its history stays. 0 or -1. */
int tensor_take_data(Tensor *t, Tensor *src);
/* The same for a value from Python, with what t.data = value checks but for the device: also to and from "meta". 0 or -1. */
int tensor_set_data(Tensor *t, PyObject *value);
/* tensor_attributes.c: the attribute table, NULL with an exception if it is too small. */
PyGetSetDef *tensor_attributes(void);
int tensor_setattro(PyObject *self, PyObject *name, PyObject *value); /* tp_setattro */
PyObject *tensor_make_subclass(PyObject *cls, PyObject *data, bool requires_grad);

/* indexing.c */
PyObject *tensor_getitem(PyObject *self, PyObject *key);
/* Index tensors, and None for whole dimensions; values: a Tensor. New reference: self if in place. */
PyObject *tensor_index_put(PyObject *self, PyObject *indices, PyObject *values, bool accumulate, bool inplace);
int tensor_setitem(PyObject *self, PyObject *key, PyObject *value);

/* op_entries.c: METH_FASTCALL entries for every method row of ops.def, and the submodules functions and nn. */
int op_entries_init(PyObject *module);
int op_entries_methods(PyMethodDef *out, int limit); /* appends; returns the count or -1 */

/* operators.c: + - * ... */
int operators_add_slots(PyType_Slot *slots, int n);

#endif
