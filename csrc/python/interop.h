/* What the interop files offer each other and the Tensor type: methods and slots for its tables. */
#ifndef AMP_INTEROP_H
#define AMP_INTEROP_H
#include "tensor.h"

#define FAST(f) ((PyCFunction)(void (*)(void))(f))

/* ---- for the Tensor type ---- */

/* Ends with a NULL entry: numpy __array__ tolist item __complex__ __dlpack__ __dlpack_device__ __copy__ __deepcopy__ __reduce_ex__
 * __format__ */
extern PyMethodDef interop_methods[];
/* Ends with a NULL entry: __array_priority__ __dict__ */
extern PyGetSetDef interop_getset[];

int tensor_bool(PyObject *self);                                  /* nb_bool */
PyObject *tensor_int(PyObject *self);                             /* nb_int */
PyObject *tensor_float(PyObject *self);                           /* nb_float */
PyObject *tensor_index(PyObject *self);                           /* nb_index */
Py_ssize_t tensor_length(PyObject *self);                         /* mp_length, sq_length */
int tensor_contains(PyObject *self, PyObject *value);             /* sq_contains */
int tensor_getbuffer(PyObject *self, Py_buffer *view, int flags); /* bf_getbuffer */
void tensor_releasebuffer(PyObject *self, Py_buffer *view);       /* bf_releasebuffer */

/* ---- between the interop files ---- */

/* generator.c, finfo.c: called by types_init; dlpack.c, data_out.c: called by interop_init */
int generator_init(PyObject *module);
int finfo_init(PyObject *module);
int dlpack_init(PyObject *module);
int data_out_init(PyObject *module);

/* types.c: "bool uint8 ...", the formats that NumPy has, for error texts */
const char *dtype_names(void);
/* For types without Python references: frees the object and drops the type. */
void plain_dealloc(PyObject *self);

/* array.c */
int array_descr_check(PyObject *o);            /* a NumPy dtype instance */
PyObject *array_from_scalar(PyObject *scalar); /* NumPy scalar -> 0-dim ndarray, new reference */
int array_ndim(PyObject *array);
/* dtype: anything NumPy takes, NULL or None for the array's. copy: 1 always, -1 if needed, 0 never (ValueError). New reference. */
PyObject *array_as(PyObject *array, PyObject *dtype, int copy);
/* A tensor to read from at once: like tensor_from_array, but silent about read-only arrays, and odd or negative strides are copied. */
Tensor *tensor_for_reading(PyObject *array);
/* The same for an array of indices: unsigned numbers that no tensor holds become int64. */
Tensor *tensor_for_index(PyObject *array);

/* A tensor with the same values whose memory the CPU can read: t itself where possible. New reference or NULL. */
Tensor *tensor_on_host(Tensor *t);
/* A contiguous copy without history. */
Tensor *tensor_copy_data(Tensor *t);

/* dlpack.c */
Tensor *tensor_from_dlpack(PyObject *o);
PyObject *tensor_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *tensor_dlpack_device(PyObject *self, PyObject *noargs);

/* Whether o is True; TypeError for what is no bool but only counts as one. 1, 0 or -1. */
int bool_argument(PyObject *o, const char *function, const char *name);

/* Sorts a vectorcall's arguments into out[] by name: the first `npos` names may be positional, `required` of them must be given; absent
 * ones stay NULL. `names` ends with NULL. 0 or -1 with TypeError. */
int take_arguments(const char *function, const char *const *names, int npos, int required, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kwnames, PyObject **out);

#endif
