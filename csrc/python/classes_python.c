/* Ops whose body is Python: short compositions of other ops, and what NumPy computes. Driver, autocast policy, parsing, names and stubs
 * are those of every other row; the body is the function ampnative._ops.<family>.<row id>, called with one positional argument per
 * parameter (out= left out), as they are after autocast's casts. It is imported when it is first called.
 *
 * The class of the row names the family: PY_LOSS is ampnative/_ops/loss.py. Such a row says d_composite: the ops that the body calls
 * record themselves, or it calls an autograd.Function.
 *
 * Autocast does not act on the ops inside, whatever the row's policy: to PyTorch most of these ops are one kernel. Classes that end in
 * _OPEN are for those that PyTorch itself composes of listed ops. */
#include <string.h>

#include "../core/autocast.h"
#include "args.h"
#include "classes.h"

/* The body of a row, borrowed. Looked up once; a failed import is tried again at the next call. */
static PyObject *body_of(const OpRow *row, const char *module) {
    PyObject **slot = &amp_state.python_op[row->op];
    if (!*slot) {
        PyObject *family = PyImport_ImportModule(module);
        PyObject *function = family ? PyObject_GetAttrString(family, row->id) : NULL;
        Py_XDECREF(family);
        if (!*slot) { /* the import may have run other Python code, which may have called this op */
            *slot = function;
        } else {
            Py_XDECREF(function);
        }
    }
    return *slot;
}

static PyObject *int_tuple(const Arg *a) {
    PyObject *tuple = PyTuple_New(a->n);
    for (int i = 0; tuple && i < a->n; i++) {
        PyObject *item = PyLong_FromLongLong(a->ints[i]);
        if (!item) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, i, item);
        }
    }
    return tuple;
}

static PyObject *tensor_list(const Arg *a) {
    PyObject *list = PyList_New(a->n);
    for (int i = 0; list && i < a->n; i++) {
        PyList_SET_ITEM(list, i, Py_NewRef(a->ts[i]));
    }
    return list;
}

PyObject *arg_object(const Arg *a) {
    switch ((ArgKind)a->kind) {
    case ARG_TENSOR: return Py_NewRef(a->t);
    case ARG_TENSORS: return tensor_list(a);
    case ARG_NUMBER: return number_object(&a->num);
    case ARG_INT: return PyLong_FromLongLong(a->i);
    case ARG_FLOAT: return PyFloat_FromDouble(a->f);
    case ARG_BOOL: return PyBool_FromLong(a->i != 0);
    case ARG_INTS: return int_tuple(a);
    case ARG_STR: return PyUnicode_FromString(a->s);
    case ARG_DTYPE: return dtype_object((int)a->i);
    case ARG_DEVICE: return device_object((int)a->i);
    case ARG_ANY: return Py_NewRef(a->o);
    case ARG_NONE: break;
    }
    Py_RETURN_NONE;
}

/* A tensor is a result like that of other rows; tuples and whatever else are handed on as they are. */
static int take_result(OpCall *c, PyObject *value) {
    if (value && PyObject_TypeCheck(value, amp_state.tensor_type)) {
        return result_set(c, (Tensor *)value);
    }
    c->object = value;
    return value ? 0 : -1;
}

static int run_body(OpCall *c, const char *module) {
    PyObject *args[MAX_ARGS], *body = body_of(c->row, module);
    int n = 0, status = -1;
    if (!body) {
        return -1;
    }
    for (int i = 0; i < c->row->nparams; i++) {
        if (i == c->row->out_index) {
            continue;
        }
        args[n] = arg_object(&c->arg[i]);
        if (!args[n]) {
            goto done;
        }
        n++;
    }
    status = take_result(c, PyObject_Vectorcall(body, args, (size_t)n, NULL));
done:
    while (n > 0) {
        Py_DECREF(args[--n]);
    }
    return status;
}

static int run_closed(OpCall *c, const char *module) {
    amp_mode &= (uint8_t) ~(MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA); /* run_op restores the byte */
    return run_body(c, module);
}

#define FAMILY(CLASS, module) \
    int run_##CLASS(OpCall *c) { return run_closed(c, "ampnative._ops." module); }
#define FAMILY_OPEN(CLASS, module) \
    int run_##CLASS(OpCall *c) { return run_body(c, "ampnative._ops." module); }
FAMILY(PY_REDUCE, "reduce")
FAMILY(PY_LOSS, "loss")
FAMILY(PY_PRODUCT, "product")
FAMILY_OPEN(PY_PRODUCT_OPEN, "product")
FAMILY(PY_DISTANCE, "distance")
FAMILY(PY_LINALG, "linalg")
FAMILY_OPEN(PY_LINALG_OPEN, "linalg")
FAMILY(PY_FFT, "fft")
FAMILY(PY_INDEX, "index")
FAMILY(PY_RESAMPLE, "resample")
FAMILY(PY_NORM, "norm")
FAMILY(PY_ACTIVATION, "activation")
FAMILY(PY_EMBEDDING, "embedding")
FAMILY(PY_RECURRENT, "recurrent")
FAMILY_OPEN(PY_RECURRENT_OPEN, "recurrent")
