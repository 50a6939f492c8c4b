/* Methods of Tensor that are no op rows: conversion, backward, hooks, sizes. */
#include "tensor_methods.h"

#include <string.h>

#include "args.h"
#include "autocast_region.h"
#include "interop.h"
#include "node.h"

/* ---- conversion ---- */

static PyObject *converted(Tensor *t, int dtype, int device, bool copy) {
    if (!copy && t->v.dtype == dtype && t->v.device == device) {
        return Py_NewRef((PyObject *)t);
    }
    if (t->v.dtype == dtype && t->v.device == device) {
        return (PyObject *)call_clone(t);
    }
    return (PyObject *)call_to(t, dtype, device);
}

static PyObject *to_said_twice(const char *what) {
    PyErr_Format(
        PyExc_TypeError,
        "to() received an invalid combination of arguments: the %s is said twice. It takes a dtype, a device, both, or another "
        "tensor, which says both",
        what);
    return NULL;
}

/* to(dtype), to(device), to(device, dtype), to(other), each with non_blocking= copy= memory_format=. */
static PyObject *method_to(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    Tensor *t = (Tensor *)self;
    int dtype = t->v.dtype, device = t->v.device;
    bool copy = false;
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    int flags = 0;
    bool has_dtype = false, has_device = false;
    for (Py_ssize_t i = 0; i < n + nkw; i++) {
        PyObject *o = args[i];
        const char *name = i < n ? NULL : PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i - n));
        if (name && (!strcmp(name, "non_blocking") || !strcmp(name, "memory_format"))) {
            continue;
        }
        if (name && !strcmp(name, "copy")) {
            int truth = PyObject_IsTrue(o);
            if (truth < 0) {
                return NULL;
            }
            copy = truth;
        } else if (o == Py_None) {
            continue;
        } else if (tensor_check(o) && (!name || !strcmp(name, "other"))) {
            if (has_dtype || has_device) {
                return to_said_twice(has_dtype ? "dtype" : "device");
            }
            has_dtype = has_device = true;
            dtype = ((Tensor *)o)->v.dtype;
            device = ((Tensor *)o)->v.device;
        } else if (Py_TYPE(o) == amp_state.dtype_type || PyType_Check(o)) {
            if (has_dtype) {
                return to_said_twice("dtype");
            }
            has_dtype = true;
            dtype = dtype_parse(o);
        } else if (PyBool_Check(o) && !name) { /* non_blocking, then copy */
            copy = flags++ ? o == Py_True : copy;
        } else if (!name || !strcmp(name, "device")) {
            if (has_device) {
                return to_said_twice("device");
            }
            has_device = true;
            device = device_parse(o);
        } else {
            PyErr_Format(
                PyExc_TypeError,
                "to() received an invalid combination of arguments: '%s'. It takes a dtype, a device, both, or another tensor",
                name);
            return NULL;
        }
        if (dtype < 0 || device < 0) {
            return NULL;
        }
    }
    return converted(t, dtype, device, copy);
}

#define CONVERTER(name, id) \
    static PyObject *method_##name(PyObject *self, PyObject *Py_UNUSED(ignored)) { \
        return converted((Tensor *)self, id, ((Tensor *)self)->v.device, false); \
    }
CONVERTER(float, AMP_FLOAT32)
CONVERTER(double, AMP_FLOAT64)
CONVERTER(half, AMP_FLOAT16)
CONVERTER(bfloat16, AMP_BFLOAT16)
CONVERTER(int, AMP_INT32)
CONVERTER(long, AMP_INT64)
CONVERTER(short, AMP_INT16)
CONVERTER(byte, AMP_UINT8)
CONVERTER(char, AMP_INT8)
CONVERTER(bool, AMP_BOOL)
#undef CONVERTER

static PyObject *method_cpu(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n), PyObject *Py_UNUSED(kw)) {
    return converted((Tensor *)self, ((Tensor *)self)->v.dtype, AMP_CPU, false);
}

static PyObject *method_cuda(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n), PyObject *Py_UNUSED(kw)) {
    return converted((Tensor *)self, ((Tensor *)self)->v.dtype, AMP_CUDA, false);
}

/* type(): a name; type(dtype): a conversion. */
static PyObject *method_type(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    static const char *const names[] = {"dtype", "non_blocking", NULL};
    PyObject *got[2] = {NULL, NULL};
    Tensor *t = (Tensor *)self;
    if (take_arguments("type", names, 2, 0, args, n, kwnames, got) < 0) {
        return NULL;
    }
    if (!got[0] || got[0] == Py_None) {
        return PyUnicode_FromFormat("ampnative.%s%sTensor", t->v.device == AMP_CUDA ? "cuda." : "",
                                    amp_dtype_info[t->v.dtype].name);
    }
    int dtype = dtype_parse(got[0]);
    return dtype < 0 ? NULL : converted(t, dtype, t->v.device, false);
}

static PyObject *method_type_as(PyObject *self, PyObject *other) {
    if (!tensor_check(other)) {
        PyErr_Format(PyExc_TypeError, "type_as(): argument 'other' must be Tensor, not %s", Py_TYPE(other)->tp_name);
        return NULL;
    }
    return converted((Tensor *)self, ((Tensor *)other)->v.dtype, ((Tensor *)other)->v.device, false);
}

/* ---- sizes ---- */

/* The one optional argument `dim`. */
static int only_dim(const char *name, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject **dim) {
    static const char *const names[] = {"dim", NULL};
    return take_arguments(name, names, 1, 0, args, n, kwnames, dim);
}

static PyObject *method_size(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    Tensor *t = (Tensor *)self;
    PyObject *given = NULL;
    if (only_dim("size", args, n, kwnames, &given) < 0) {
        return NULL;
    }
    if (!given || given == Py_None) {
        return size_from_dims(t->v.ndim, t->v.shape);
    }
    long dim = PyLong_AsLong(given);
    if (dim == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (t->v.ndim == 0) {
        PyErr_Format(PyExc_IndexError, "Dimension specified as %ld but tensor has no dimensions", dim);
        return NULL;
    }
    int d = wrap_dim(dim, t->v.ndim);
    return d < 0 ? NULL : PyLong_FromLongLong(t->v.shape[d]);
}

static PyObject *method_stride(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    Tensor *t = (Tensor *)self;
    PyObject *given = NULL;
    if (only_dim("stride", args, n, kwnames, &given) < 0) {
        return NULL;
    }
    if (!given || given == Py_None) {
        PyObject *tuple = PyTuple_New(t->v.ndim);
        for (int d = 0; tuple && d < t->v.ndim; d++) {
            PyTuple_SET_ITEM(tuple, d, PyLong_FromLongLong(t->v.stride[d]));
        }
        return tuple;
    }
    long dim = PyLong_AsLong(given);
    if (dim == -1 && PyErr_Occurred()) {
        return NULL;
    }
    int d = wrap_dim(dim, t->v.ndim);
    return d < 0 ? NULL : PyLong_FromLongLong(t->v.ndim ? t->v.stride[d] : 1);
}

static PyObject *method_numel(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLongLong(((Tensor *)self)->v.numel);
}

static PyObject *method_dim(PyObject *self, PyObject *Py_UNUSED(ignored)) { return PyLong_FromLong(((Tensor *)self)->v.ndim); }

static PyObject *method_element_size(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromSize_t(amp_itemsize(((Tensor *)self)->v.dtype));
}

/* Whoever knows the address may write there unseen. */
static PyObject *method_data_ptr(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    ((Tensor *)self)->st->addressed = 1;
    return PyLong_FromVoidPtr(((Tensor *)self)->v.numel ? ((Tensor *)self)->v.data : NULL);
}

static PyObject *method_storage_offset(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    Tensor *t = (Tensor *)self;
    return PyLong_FromLongLong((t->v.data - t->st->data) / (int64_t)amp_itemsize(t->v.dtype));
}

static PyObject *method_is_contiguous(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n),
                                      PyObject *Py_UNUSED(kw)) {
    return PyBool_FromLong(((Tensor *)self)->v.layout & LAYOUT_CONTIGUOUS);
}

static PyObject *method_is_floating_point(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(amp_is_floating(((Tensor *)self)->v.dtype));
}

static PyObject *method_is_complex(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(amp_is_complex(((Tensor *)self)->v.dtype));
}

static PyObject *method_get_device(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLong(((Tensor *)self)->v.device == AMP_CUDA ? 0 : -1);
}

static bool same_shape(const Tensor *a, const Tensor *b) {
    return a->v.ndim == b->v.ndim && !memcmp(a->v.shape, b->v.shape, (size_t)a->v.ndim * sizeof(int64_t));
}

/* equal(): same shape and all elements equal. */
static PyObject *method_equal(PyObject *self, PyObject *other) {
    if (!tensor_check(other)) {
        PyErr_Format(PyExc_TypeError, "equal(): argument 'other' must be Tensor, not %s", Py_TYPE(other)->tp_name);
        return NULL;
    }
    if (!same_shape((Tensor *)self, (Tensor *)other)) {
        Py_RETURN_FALSE;
    }
    Tensor *same = call_binary(OP_eq, (Tensor *)self, (Tensor *)other), *all = same ? call_unary(OP_all, same) : NULL;
    Py_XDECREF(same);
    PyObject *result = all ? tensor_item(all) : NULL;
    Py_XDECREF(all);
    return result;
}

/* Shapes of another tensor. */
static PyObject *like_other(PyObject *self, PyObject *other, Tensor *(*f)(Tensor *, int, const int64_t *)) {
    if (!tensor_check(other)) {
        PyErr_Format(PyExc_TypeError, "argument 'other' must be Tensor, not %s", Py_TYPE(other)->tp_name);
        return NULL;
    }
    return (PyObject *)f((Tensor *)self, ((Tensor *)other)->v.ndim, ((Tensor *)other)->v.shape);
}

static PyObject *method_view_as(PyObject *self, PyObject *other) { return like_other(self, other, call_reshape); }

static PyObject *method_expand_as(PyObject *self, PyObject *other) { return like_other(self, other, call_expand); }

/* ---- gradients ---- */

static PyObject *method_requires_grad_(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    static const char *const names[] = {"requires_grad", NULL};
    PyObject *got[1] = {NULL};
    if (take_arguments("requires_grad_", names, 1, 0, args, n, kwnames, got) < 0) {
        return NULL;
    }
    int on = got[0] ? bool_argument(got[0], "requires_grad_", names[0]) : 1;
    return on < 0 || tensor_change_requires_grad((Tensor *)self, on) < 0 ? NULL : Py_NewRef(self);
}

/* detach_(): the tensor forgets its history. */
static PyObject *method_detach_(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    Tensor *t = (Tensor *)self;
    if (t->base) {
        PyErr_SetString(PyExc_RuntimeError, "Can't detach views in-place. Use detach() instead.");
        return NULL;
    }
    Py_CLEAR(t->fn);
    t->flags &= (uint8_t)~TENSOR_REQUIRES_GRAD;
    return Py_NewRef(self);
}

static PyObject *method_backward(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    static const char *const names[] = {"gradient", "retain_graph", "create_graph", "inputs", NULL};
    PyObject *got[4] = {NULL, NULL, NULL, NULL};
    if (take_arguments("backward", names, 4, 0, args, n, kwnames, got) < 0) {
        return NULL;
    }
    int create = got[2] ? PyObject_IsTrue(got[2]) : 0;
    int keep = got[1] && got[1] != Py_None ? PyObject_IsTrue(got[1]) : create;
    if (create < 0 || keep < 0) {
        return NULL;
    }
    PyObject *inputs = NULL;
    if (got[3] && got[3] != Py_None) {
        inputs = edge_check(got[3]) ? PyTuple_Pack(1, got[3]) : PySequence_Tuple(got[3]);
        if (inputs && PyTuple_GET_SIZE(inputs) == 0) {
            PyErr_SetString(PyExc_RuntimeError, "'inputs' argument to backward() cannot be empty.");
            Py_CLEAR(inputs);
        }
    } else {
        inputs = PyTuple_New(0);
    }
    PyObject *roots = PyTuple_Pack(1, self), *gradients = PyTuple_Pack(1, got[0] ? got[0] : Py_None);
    int failed = !inputs || !roots || !gradients
                     ? -1
                     : engine_backward_objects(roots, gradients, keep, create, inputs, true, true, NULL);
    Py_XDECREF(inputs);
    Py_XDECREF(roots);
    Py_XDECREF(gradients);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* The dict of hooks that runs on the gradient of t; made on demand, borrowed. */
static PyObject *hooks_of(Tensor *t) {
    Node *fn;
    uint32_t nr;
    if (tensor_history(t, &fn, &nr) < 0) {
        return NULL;
    }
    if (!fn) {
        Meta *m = tensor_meta(t);
        if (m && !m->hooks) {
            m->hooks = PyDict_New();
        }
        if (m && !PyObject_GC_IsTracked((PyObject *)t)) {
            PyObject_GC_Track((PyObject *)t);
        }
        return m ? m->hooks : NULL;
    }
    PyObject *dict = NULL, **list = node_rare_slot(fn, RARE_TENSOR_HOOKS);
    for (Py_ssize_t i = 0; list && *list && i < PyList_GET_SIZE(*list); i++) {
        PyObject *pair = PyList_GET_ITEM(*list, i);
        if (PyLong_AsUnsignedLong(PyTuple_GET_ITEM(pair, 0)) == nr) {
            dict = PyTuple_GET_ITEM(pair, 1);
        }
    }
    if (!dict && list && (*list || (*list = PyList_New(0)))) {
        PyObject *fresh = PyDict_New(), *pair = fresh ? Py_BuildValue("(kO)", (unsigned long)nr, fresh) : NULL;
        if (pair && PyList_Append(*list, pair) == 0) {
            dict = fresh;
        }
        Py_XDECREF(pair);
        Py_XDECREF(fresh);
    }
    Py_DECREF(fn);
    return dict;
}

static PyObject *method_register_hook(PyObject *self, PyObject *hook) {
    if (!tensor_requires_grad((Tensor *)self)) {
        PyErr_SetString(PyExc_RuntimeError, "cannot register a hook on a tensor that doesn't require gradient");
        return NULL;
    }
    PyObject *hooks = hooks_of((Tensor *)self);
    return hooks ? register_in(&hooks, hook) : NULL;
}

static PyObject *method_register_post_accumulate_grad_hook(PyObject *self, PyObject *hook) {
    Tensor *t = (Tensor *)self;
    if (t->fn || !(t->flags & TENSOR_REQUIRES_GRAD)) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "post accumulate grad hooks cannot be registered on non-leaf tensors or on tensors that don't require gradient");
        return NULL;
    }
    Meta *m = tensor_meta(t);
    if (!PyObject_GC_IsTracked(self)) {
        PyObject_GC_Track(self);
    }
    return m ? register_in(&m->post_accumulate_hooks, hook) : NULL;
}

int tensor_retain_grad(Tensor *t) {
    Node *fn;
    uint32_t nr;
    if (tensor_history(t, &fn, &nr) < 0) {
        return -1;
    }
    if (!fn || t->flags & TENSOR_RETAINS_GRAD) {
        Py_XDECREF(fn);
        return 0;
    }
    PyObject *ref = PyWeakref_NewRef((PyObject *)t, NULL), *pair = ref ? Py_BuildValue("(kO)", (unsigned long)nr, ref) : NULL;
    PyObject **list = pair ? node_rare_slot(fn, RARE_RETAIN) : NULL;
    int failed = !list || (!*list && !(*list = PyList_New(0))) || PyList_Append(*list, pair) < 0;
    Py_XDECREF(ref);
    Py_XDECREF(pair);
    Py_DECREF(fn);
    if (failed) {
        return -1;
    }
    t->flags |= TENSOR_RETAINS_GRAD;
    return 0;
}

static PyObject *method_retain_grad(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    if (!tensor_requires_grad((Tensor *)self)) {
        PyErr_SetString(PyExc_RuntimeError, "can't retain_grad on Tensor that has requires_grad=False");
        return NULL;
    }
    return tensor_retain_grad((Tensor *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *method_is_inference(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong((((Tensor *)self)->flags & TENSOR_INFERENCE) != 0);
}

static PyObject *method_make_subclass(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *cls, *data, *requires_grad = Py_False;
    if (!PyArg_ParseTuple(args, "OO|O:_make_subclass", &cls, &data, &requires_grad)) {
        return NULL;
    }
    int on = bool_argument(requires_grad, "_make_subclass", "requires_grad");
    return on < 0 ? NULL : tensor_make_subclass(cls, data, on);
}

/* ---- iteration ---- */

static PyObject *method_unbind(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    PyObject *got[1] = {NULL};
    if (only_dim("unbind", args, n, kwnames, got) < 0) {
        return NULL;
    }
    Tensor *t = (Tensor *)self;
    long wanted = got[0] ? PyLong_AsLong(got[0]) : 0;
    if (wanted == -1 && PyErr_Occurred()) {
        return NULL;
    }
    int dim = wrap_dim(wanted, t->v.ndim);
    if (dim < 0) {
        return NULL;
    }
    if (t->v.ndim == 0) {
        PyErr_SetString(PyExc_RuntimeError, "unbind: expects at least a 1-dimensional tensor");
        return NULL;
    }
    PyObject *tuple = PyTuple_New((Py_ssize_t)t->v.shape[dim]);
    for (int64_t i = 0; tuple && i < t->v.shape[dim]; i++) {
        Arg arg[MAX_ARGS] = {arg_tensor(t), arg_int(dim), arg_int(i)};
        PyObject *part = run_op(&amp_rows[OP_select], arg, false);
        if (!part) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, part);
    }
    if (tuple && grad_recording() && tensor_requires_grad(t) && node_show_parts("UnbindBackward0", tuple) < 0) {
        Py_CLEAR(tuple);
    }
    return tuple;
}

/* ---- index_put ---- */

static PyObject *index_put(PyObject *self, PyObject *args, PyObject *kwargs, bool inplace) {
    static char *names[] = {"indices", "values", "accumulate", NULL};
    PyObject *indices, *values;
    int accumulate = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!|p", names, &indices, amp_state.tensor_type, &values, &accumulate)) {
        return NULL;
    }
    return tensor_index_put(self, indices, values, accumulate, inplace);
}

static PyObject *method_index_put(PyObject *self, PyObject *args, PyObject *kwargs) {
    return index_put(self, args, kwargs, false);
}

static PyObject *method_index_put_(PyObject *self, PyObject *args, PyObject *kwargs) {
    return index_put(self, args, kwargs, true);
}

static PyObject *tensor_iter(PyObject *self) {
    if (((Tensor *)self)->v.ndim == 0) {
        PyErr_SetString(PyExc_TypeError, "iteration over a 0-d tensor");
        return NULL;
    }
    PyObject *rows = method_unbind(self, NULL, 0, NULL);
    PyObject *iterator = rows ? PyObject_GetIter(rows) : NULL;
    Py_XDECREF(rows);
    return iterator;
}

#define KW(f) ((PyCFunction)(void (*)(void))f), METH_FASTCALL | METH_KEYWORDS
static PyMethodDef own_methods[] = {
    {"to", KW(method_to),
     "to(dtype) | to(device, dtype=None) | to(other), copy=False\n\nThe tensor in another dtype or on another device; itself if "
     "nothing changes."},
    {"float", method_float, METH_NOARGS, "float($self, /)\n--\n\nTo float32."},
    {"double", method_double, METH_NOARGS, "double($self, /)\n--\n\nTo float64."},
    {"half", method_half, METH_NOARGS, "half($self, /)\n--\n\nTo float16; values beyond 65504 become inf."},
    {"bfloat16", method_bfloat16, METH_NOARGS, "bfloat16($self, /)\n--\n\nTo bfloat16."},
    {"int", method_int, METH_NOARGS, "int($self, /)\n--\n\nTo int32."},
    {"long", method_long, METH_NOARGS, "long($self, /)\n--\n\nTo int64."},
    {"short", method_short, METH_NOARGS, "short($self, /)\n--\n\nTo int16."},
    {"byte", method_byte, METH_NOARGS, "byte($self, /)\n--\n\nTo uint8."},
    {"char", method_char, METH_NOARGS, "char($self, /)\n--\n\nTo int8."},
    {"bool", method_bool, METH_NOARGS, "bool($self, /)\n--\n\nTo bool."},
    {"cpu", KW(method_cpu), "To device cpu."},
    {"cuda", KW(method_cuda), "To device cuda."},
    {"type", KW(method_type), "type() names the type, type(dtype) converts."},
    {"type_as", method_type_as, METH_O, "type_as($self, other, /)\n--\n\nTo the dtype and device of another tensor."},
    {"size", KW(method_size), "size($self, dim=None)\n--\n\nSizes of all dimensions, or of one."},
    {"stride", KW(method_stride), "stride($self, dim=None)\n--\n\nSteps in elements between neighbours along each dimension."},
    {"numel", method_numel, METH_NOARGS, "numel($self, /)\n--\n\nNumber of elements."},
    {"nelement", method_numel, METH_NOARGS, "nelement($self, /)\n--\n\nNumber of elements."},
    {"dim", method_dim, METH_NOARGS, "dim($self, /)\n--\n\nNumber of dimensions."},
    {"ndimension", method_dim, METH_NOARGS, "ndimension($self, /)\n--\n\nNumber of dimensions."},
    {"element_size", method_element_size, METH_NOARGS, "element_size($self, /)\n--\n\nBytes of one element."},
    {"data_ptr", method_data_ptr, METH_NOARGS, "data_ptr($self, /)\n--\n\nAddress of the first element."},
    {"storage_offset", method_storage_offset, METH_NOARGS,
     "storage_offset($self, /)\n--\n\nFirst element's place in the storage, in elements."},
    {"is_contiguous", KW(method_is_contiguous), "True if the elements lie in row-major order without gaps."},
    {"is_floating_point", method_is_floating_point, METH_NOARGS, "is_floating_point($self, /)\n--\n\nTrue for floating dtypes."},
    {"is_complex", method_is_complex, METH_NOARGS, "is_complex($self, /)\n--\n\nTrue for complex dtypes."},
    {"get_device", method_get_device, METH_NOARGS, "get_device($self, /)\n--\n\n0 on cuda, -1 on cpu."},
    {"equal", method_equal, METH_O, "equal($self, other, /)\n--\n\nTrue if shapes and all elements are equal."},
    {"view_as", method_view_as, METH_O, "view_as($self, other, /)\n--\n\nreshape to the shape of another tensor."},
    {"reshape_as", method_view_as, METH_O, "reshape_as($self, other, /)\n--\n\nreshape to the shape of another tensor."},
    {"expand_as", method_expand_as, METH_O, "expand_as($self, other, /)\n--\n\nexpand to the shape of another tensor."},
    {"requires_grad_", KW(method_requires_grad_),
     "requires_grad_($self, requires_grad=True)\n--\n\nSets requires_grad and returns the tensor."},
    {"detach_", method_detach_, METH_NOARGS, "detach_($self, /)\n--\n\nForgets the tensor's history in place."},
    {"backward", KW(method_backward),
     "backward($self, gradient=None, retain_graph=None, create_graph=False, inputs=None)\n--\n\n"
     "Accumulates into .grad of the leaves (or of `inputs`) the gradients of this tensor, weighted by `gradient` (1 for a single "
     "element)."},
    {"register_hook", method_register_hook, METH_O,
     "register_hook($self, hook, /)\n--\n\nhook(grad) runs when the gradient is computed and may return another one. Returns a "
     "handle with remove()."},
    {"register_post_accumulate_grad_hook", method_register_post_accumulate_grad_hook, METH_O,
     "register_post_accumulate_grad_hook($self, hook, /)\n--\n\nhook(tensor) runs after .grad of a leaf was written."},
    {"retain_grad", method_retain_grad, METH_NOARGS, "retain_grad($self, /)\n--\n\nLets a non-leaf keep its gradient in .grad."},
    {"is_inference", method_is_inference, METH_NOARGS, "is_inference($self, /)\n--\n\nTrue if made in inference mode."},
    {"index_put", (PyCFunction)(void (*)(void))method_index_put, METH_VARARGS | METH_KEYWORDS,
     "index_put($self, indices, values, accumulate=False)\n--\n\nA copy with values put, or added, where the index tensors say."},
    {"index_put_", (PyCFunction)(void (*)(void))method_index_put_, METH_VARARGS | METH_KEYWORDS,
     "index_put_($self, indices, values, accumulate=False)\n--\n\nPuts or adds values where the index tensors say."},
    {"unbind", KW(method_unbind), "unbind($self, dim=0)\n--\n\nThe slices along a dimension, a tuple of views."},
    {"_make_subclass", method_make_subclass, METH_VARARGS | METH_STATIC,
     "_make_subclass(cls, data, requires_grad=False, /)\n--\n\nAn instance of cls that shares data's memory."},
    {NULL, NULL, 0, NULL},
};

int tensor_add_slots(PyType_Slot *slots, int n, int limit) {
    enum { METHOD_LIMIT = 1024 };
    static PyMethodDef methods[METHOD_LIMIT];
    int m = op_entries_methods(methods, METHOD_LIMIT);
    if (m < 0) {
        return -1;
    }
    const PyMethodDef *tables[2] = {own_methods, interop_methods};
    for (int k = 0; k < 2; k++) {
        for (const PyMethodDef *d = tables[k]; d->ml_name; d++) {
            if (m + 1 >= METHOD_LIMIT) {
                PyErr_SetString(PyExc_SystemError, "too many methods for the table");
                return -1;
            }
            methods[m++] = *d;
        }
    }
    slots[n++] = (PyType_Slot){Py_tp_methods, methods};
    slots[n++] = (PyType_Slot){Py_tp_iter, (void *)tensor_iter};
    slots[n++] = (PyType_Slot){Py_mp_subscript, (void *)tensor_getitem};
    slots[n++] = (PyType_Slot){Py_mp_ass_subscript, (void *)tensor_setitem};
    slots[n++] = (PyType_Slot){Py_mp_length, (void *)tensor_length};
    slots[n++] = (PyType_Slot){Py_sq_contains, (void *)tensor_contains};
    slots[n++] = (PyType_Slot){Py_nb_bool, (void *)tensor_bool};
    slots[n++] = (PyType_Slot){Py_nb_int, (void *)tensor_int};
    slots[n++] = (PyType_Slot){Py_nb_float, (void *)tensor_float};
    slots[n++] = (PyType_Slot){Py_nb_index, (void *)tensor_index};
    slots[n++] = (PyType_Slot){Py_bf_getbuffer, (void *)tensor_getbuffer};
    slots[n++] = (PyType_Slot){Py_bf_releasebuffer, (void *)tensor_releasebuffer};
    n = operators_add_slots(slots, n);
    if (n >= limit) {
        PyErr_SetString(PyExc_SystemError, "too many slots for the table");
        return -1;
    }
    return n;
}
