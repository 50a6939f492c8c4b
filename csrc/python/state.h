/* The one process-wide state and the doors between the glue's rooms. Python.h enters every glue file through this header. */
#ifndef AMP_STATE_H
#define AMP_STATE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../core/backend.h"
#include "../core/core.h"
#include "../core/ops.h"

typedef struct Tensor Tensor;
typedef struct Node Node;

/* Filled once while the module is executed, never changed afterwards (but for default_dtype and python_op). All references are strong. */
typedef struct State {
    PyObject *module;
    PyTypeObject *tensor_type, *node_type, *dtype_type, *device_type, *size_type, *generator_type;
    PyTypeObject *parameter_type;       /* set by the package; NULL until then */
    PyObject *dtype[AMP_DTYPE_COUNT];   /* ampnative.float32, ... one object per row of dtypes.def */
    PyObject *device[AMP_DEVICE_COUNT]; /* device("cpu"), device("cuda", 0), device("meta") */
    PyObject *out_of_memory;            /* ampnative.OutOfMemoryError */
    PyObject *return_types[OP_COUNT];   /* the struct sequence that a row's results are; NULL: a plain tuple */
    int default_dtype;                  /* AMP_FLOAT32 unless set_default_dtype */
    uint8_t cuda_emulated;              /* 1: device "cuda" runs on the CPU kernels */
    Generator *generator;               /* the default generator */
    PyObject *python_op[OP_COUNT];      /* bodies of rows that are Python functions; NULL until the first call */
} State;
extern State amp_state;

/* error.c: sets the exception of status.def for `status` with an op name in front; returns -1. */
int amp_raise(Status status, const char *what);
void raise_out_of_memory(size_t nbytes, int device);        /* sets OutOfMemoryError */
int raise_devices(const char *text, int first, int second); /* RuntimeError; text has %S for each. -1 */
int error_init(PyObject *module);

/* ---- types.c: dtype, device, Size, Generator, finfo, iinfo ---- */
int types_init(PyObject *module);
PyObject *dtype_object(int dtype); /* new reference */
/* dtype object, NumPy dtype or scalar type, or Python float/int/bool/complex -> id; -1 with TypeError. */
int dtype_parse(PyObject *o);
PyObject *device_object(int device); /* new reference: cuda carries index 0 */
/* device object or string ("cpu", "cuda", "cuda:0", "meta") or int (cuda index) -> Device; -1 with PyTorch's exception. Does not ask
 * whether the device is usable. */
int device_parse(PyObject *o);
PyObject *size_from_dims(int ndim, const int64_t *shape); /* a Size */
Generator *generator_of(PyObject *o); /* None or NULL: the default one; NULL with TypeError for anything else */

/* ---- array.c: the only file that includes NumPy ---- */
int array_init(PyObject *module);
int array_check(PyObject *o);                /* ndarray (or subclass) */
int array_scalar_check(PyObject *o);         /* a NumPy scalar such as np.float32(1) */
int array_dtype_id(PyObject *descr_or_type); /* NumPy dtype or scalar type -> id, -1 without exception if it has none here */
PyObject *array_dtype_of(int dtype);         /* NumPy dtype object, new reference; ml_dtypes for bf16 and fp8 */
PyObject *array_from_tensor(Tensor *t);      /* ndarray that shares t's memory and keeps it alive; no checks of grad or device */
/* Shares memory with the ndarray (strides, also negative ones refused as in PyTorch: ValueError), byte order native only.
 * Read-only arrays: UserWarning once. New reference or NULL. */
Tensor *tensor_from_array(PyObject *array);

/* ---- interop.c: data in, data out ---- */
int interop_init(PyObject *module);
/* torch.tensor(data): numbers, nested sequences, ndarrays, NumPy scalars, tensors; dtype -1 = infer. Always copies. */
Tensor *tensor_from_data(PyObject *data, int dtype, int device);
PyObject *tensor_tolist(Tensor *t);
PyObject *tensor_item(Tensor *t); /* Python scalar of the only element; RuntimeError otherwise */
/* Reads element at byte address p as a Python object; writes one (with range checks as in PyTorch). */
PyObject *element_get(const char *p, int dtype);
int element_set(char *p, int dtype, PyObject *value);

/* ---- list_ops.c, scaler_ops.c, module_base.c, recurrent.c ---- */
int list_ops_init(PyObject *module);
int scaler_ops_init(PyObject *module);
int module_base_init(PyObject *module);
int recurrent_init(PyObject *module);

/* ---- precision_nodes.c ---- */
int precision_init(PyObject *module);
/* A call's own `precision` argument -> Precision; PRECISION_AS_SET without one, -2 with an exception. */
int precision_argument(const char *text, int device);

#endif
