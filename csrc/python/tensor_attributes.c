/* Attributes of Tensor: shape, dtype, grad, data, ... */
#include <string.h>

#include "autocast_region.h"
#include "interop.h"
#include "node.h"
#include "tensor_methods.h"

static PyObject *get_shape(PyObject *self, void *Py_UNUSED(closure)) {
    Tensor *t = (Tensor *)self;
    return size_from_dims(t->v.ndim, t->v.shape);
}

static PyObject *get_dtype(PyObject *self, void *Py_UNUSED(closure)) { return dtype_object(((Tensor *)self)->v.dtype); }

static PyObject *get_device(PyObject *self, void *Py_UNUSED(closure)) { return device_object(((Tensor *)self)->v.device); }

static PyObject *get_ndim(PyObject *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(((Tensor *)self)->v.ndim); }

static PyObject *get_requires_grad(PyObject *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(tensor_requires_grad((Tensor *)self));
}

/* `only`: how the message begins, which tells a new tensor from an old one. */
static int switch_requires_grad(Tensor *t, bool on, const char *only) {
    Node *fn;
    uint32_t nr;
    if (tensor_history(t, &fn, &nr) < 0) {
        return -1;
    }
    Py_XDECREF(fn);
    if (!on && t->fn) {
        PyErr_SetString(PyExc_RuntimeError,
                        "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
                        "subgraph that doesn't require differentiation use var_no_grad = var.detach().");
        return -1;
    }
    if (on && !amp_is_floating(t->v.dtype)) {
        if (amp_is_complex(t->v.dtype)) {
            PyErr_SetString(PyExc_RuntimeError,
                            "complex tensors cannot require gradients here: autograd covers floating dtypes only");
        } else {
            PyErr_Format(PyExc_RuntimeError,
                         "%s Tensors of floating point and complex dtype can require gradients (here only floating ones), not %s",
                         only, amp_dtype_info[t->v.dtype].name);
        }
        return -1;
    }
    if (on && (t->flags & TENSOR_INFERENCE) && !(amp_mode & MODE_INFERENCE)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.");
        return -1;
    }
    if (on && !t->fn) {
        t->flags |= TENSOR_REQUIRES_GRAD;
    } else if (!on) {
        t->flags &= (uint8_t)~TENSOR_REQUIRES_GRAD;
    }
    return 0;
}

int tensor_set_requires_grad(Tensor *t, bool on) { return switch_requires_grad(t, on, "Only"); }

int tensor_change_requires_grad(Tensor *t, bool on) { return switch_requires_grad(t, on, "only"); }

static int set_requires_grad(PyObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (!value || !PyBool_Check(value)) {
        PyErr_SetString(PyExc_RuntimeError, "requires_grad must be a bool");
        return -1;
    }
    return tensor_change_requires_grad((Tensor *)self, value == Py_True);
}

static PyObject *get_is_leaf(PyObject *self, void *Py_UNUSED(closure)) {
    Node *fn; /* a view whose base was written to gets its node when asked */
    uint32_t nr;
    if (tensor_history((Tensor *)self, &fn, &nr) < 0) {
        return NULL;
    }
    Py_XDECREF(fn);
    return PyBool_FromLong(!fn);
}

static PyObject *get_grad_fn(PyObject *self, void *Py_UNUSED(closure)) {
    Node *fn;
    uint32_t nr;
    if (tensor_history((Tensor *)self, &fn, &nr) < 0) {
        return NULL;
    }
    return fn ? node_face(fn) : Py_NewRef(Py_None);
}

static PyObject *get_grad(PyObject *self, void *Py_UNUSED(closure)) {
    Tensor *t = (Tensor *)self;
    if (t->grad) {
        return Py_NewRef(t->grad);
    }
    if (t->fn && !(t->flags & TENSOR_RETAINS_GRAD)) {
        if (PyErr_WarnEx(PyExc_UserWarning,
                         "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't "
                         "be populated during "
                         "backward(). Call .retain_grad() on it first.",
                         1) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static int set_grad(PyObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    Tensor *t = (Tensor *)self;
    if (!value || value == Py_None) {
        Py_CLEAR(t->grad);
        return 0;
    }
    if (!tensor_check(value)) {
        PyErr_Format(PyExc_TypeError, "assigned grad expected to be a Tensor or None but got grad of type %s",
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    Tensor *g = (Tensor *)value;
    if (g == t) {
        PyErr_SetString(PyExc_RuntimeError, "can't assign Variable as its own grad");
        return -1;
    }
    bool same = g->v.ndim == t->v.ndim && !memcmp(g->v.shape, t->v.shape, (size_t)t->v.ndim * sizeof(int64_t));
    if (!same) {
        PyErr_Format(PyExc_RuntimeError,
                     "assigned grad has data of a different size: expected %zd dimensions like the tensor, and the same sizes",
                     (Py_ssize_t)t->v.ndim);
        return -1;
    }
    if (g->v.dtype != t->v.dtype) {
        PyErr_Format(PyExc_RuntimeError, "assigned grad has data of a different type: the tensor is %s, the gradient %s",
                     amp_dtype_info[t->v.dtype].name, amp_dtype_info[g->v.dtype].name);
        return -1;
    }
    if (g->v.device != t->v.device) {
        return raise_devices("assigned grad has data of a different device: the tensor is on %S, the gradient on %S. Move it "
                             "with .to()",
                             t->v.device, g->v.device);
    }
    Py_XSETREF(t->grad, (Tensor *)Py_NewRef(value));
    PyObject_GC_UnTrack(self);
    PyObject_GC_Track(self);
    return 0;
}

static PyObject *get_data(PyObject *self, void *Py_UNUSED(closure)) {
    Tensor *t = tensor_shallow((Tensor *)self);
    if (t) {
        t->flags |= TENSOR_IS_DATA;
    }
    return (PyObject *)t;
}

int tensor_set_data(Tensor *t, PyObject *value) {
    if (!value || !tensor_check(value)) {
        PyErr_Format(PyExc_TypeError, "Variable data has to be a tensor, but got %s",
                     value ? Py_TYPE(value)->tp_name : "nothing");
        return -1;
    }
    Tensor *src = (Tensor *)value;
    if (src == t) {
        return 0;
    }
    if (tensor_requires_grad(t) && !amp_is_floating(src->v.dtype)) {
        PyErr_Format(PyExc_RuntimeError,
                     "data set to a tensor that requires gradients must be floating point or complex dtype, not %s",
                     amp_dtype_info[src->v.dtype].name);
        return -1;
    }
    Node *fn = NULL; /* a view's history is settled while it still shows its base's memory */
    uint32_t nr;
    if (t->base && tensor_history(t, &fn, &nr) < 0) {
        return -1;
    }
    Py_XDECREF(fn);
    return tensor_take_data(t, src);
}

/* x.data = y: x takes over y's memory, shape and dtype; its history stays. */
static int set_data(PyObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    Tensor *t = (Tensor *)self;
    if (value && tensor_check(value) && (t->v.device == AMP_META) != (((Tensor *)value)->v.device == AMP_META)) {
        PyErr_Format(
            PyExc_RuntimeError,
            "x.data = y: incompatible tensor type, %s on the meta device, which has no memory: make a new tensor of y, or "
            "move whole modules with .to() and .to_empty()",
            t->v.device == AMP_META ? "x is" : "y is");
        return -1;
    }
    return tensor_set_data(t, value);
}

static PyObject *get_version(PyObject *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLong(((Tensor *)self)->st->version);
}

static PyObject *get_base(PyObject *self, void *Py_UNUSED(closure)) {
    Tensor *t = (Tensor *)self;
    return Py_NewRef(t->base ? (PyObject *)t->base : Py_None);
}

static PyObject *get_output_nr(PyObject *self, void *Py_UNUSED(closure)) {
    const Tensor *t = (Tensor *)self;
    return PyLong_FromUnsignedLong(t->out_nr + (t->fn ? t->fn->piece : 0));
}

static PyObject *get_itemsize(PyObject *self, void *Py_UNUSED(closure)) {
    return PyLong_FromSize_t(amp_itemsize(((Tensor *)self)->v.dtype));
}

static PyObject *get_nbytes(PyObject *self, void *Py_UNUSED(closure)) {
    Tensor *t = (Tensor *)self;
    return PyLong_FromLongLong(t->v.numel * (int64_t)amp_itemsize(t->v.dtype));
}

static PyObject *get_is_cuda(PyObject *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(((Tensor *)self)->v.device == AMP_CUDA);
}

static PyObject *get_is_cpu(PyObject *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(((Tensor *)self)->v.device == AMP_CPU);
}

static PyObject *get_is_meta(PyObject *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(((Tensor *)self)->v.device == AMP_META);
}

static PyObject *get_false(PyObject *Py_UNUSED(self), void *Py_UNUSED(closure)) { Py_RETURN_FALSE; }

static PyObject *get_retains_grad(PyObject *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong((((Tensor *)self)->flags & TENSOR_RETAINS_GRAD) != 0);
}

static PyObject *transposed(PyObject *self, bool last_two) {
    Tensor *t = (Tensor *)self;
    int nd = t->v.ndim;
    if (last_two && nd == 0 &&
        PyErr_WarnEx(PyExc_UserWarning, "Tensor.mT is deprecated on 0-D tensors: it is the tensor itself there", 1) < 0) {
        return NULL;
    }
    if (last_two && nd == 1) {
        PyErr_Format(PyExc_RuntimeError, "tensor.mT is only supported on matrices or batches of matrices. Got %d-D tensor.", nd);
        return NULL;
    }
    if (nd < 2) {
        return (PyObject *)call_unary(OP_alias, t);
    }
    if (last_two || nd == 2) {
        return (PyObject *)call_transpose(t, nd - 2, nd - 1);
    }
    int64_t dims[AMP_MAX_DIMS];
    for (int i = 0; i < nd; i++) {
        dims[i] = nd - 1 - i;
    }
    return (PyObject *)call_permute(t, dims);
}

/* UserWarning the first time that it is called with this flag. 0 or -1. */
static int warn_once(bool *warned, const char *text) {
    if (*warned) {
        return 0;
    }
    *warned = true;
    return PyErr_WarnEx(PyExc_UserWarning, text, 1);
}

static PyObject *get_T(PyObject *self, void *Py_UNUSED(closure)) {
    static bool warned_of_many, warned_of_none;
    int ndim = ((Tensor *)self)->v.ndim, failed = 0;
    if (ndim == 0) {
        failed = warn_once(&warned_of_none, "Tensor.T is deprecated on 0-D tensors: it changes nothing there. Leave it out.");
    } else if (ndim != 2) {
        failed = warn_once(&warned_of_many,
                           "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated. Use x.mT "
                           "for the last two dimensions, or x.permute().");
    }
    return failed < 0 ? NULL : transposed(self, false);
}

static PyObject *get_mT(PyObject *self, void *Py_UNUSED(closure)) { return transposed(self, true); }

static PyGetSetDef tensor_getset[] = {
    {"shape", get_shape, NULL, "Sizes of the dimensions, a Size.", NULL},
    {"dtype", get_dtype, NULL, "Number format of the elements.", NULL},
    {"device", get_device, NULL, "Where the memory lives.", NULL},
    {"ndim", get_ndim, NULL, "Number of dimensions.", NULL},
    {"requires_grad", get_requires_grad, set_requires_grad, "True if operations on the tensor are recorded.", NULL},
    {"is_leaf", get_is_leaf, NULL, "True if no recorded operation made the tensor.", NULL},
    {"grad_fn", get_grad_fn, NULL, "The graph node that made the tensor, or None.", NULL},
    {"grad", get_grad, set_grad, "The accumulated gradient, or None.", NULL},
    {"data", get_data, set_data, "The same memory without history; writes through it are not seen by autograd.", NULL},
    {"_version", get_version, NULL, "How often the memory was written in place.", NULL},
    {"_base", get_base, NULL, "The tensor this one is a view of, or None.", NULL},
    {"output_nr", get_output_nr, NULL, "Which output of grad_fn the tensor is.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of one element.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"is_cuda", get_is_cuda, NULL, "True on device cuda, emulated or not.", NULL},
    {"is_cpu", get_is_cpu, NULL, "True on device cpu.", NULL},
    {"is_sparse", get_false, NULL, "Always False: tensors are strided.", NULL},
    {"is_quantized", get_false, NULL, "Always False.", NULL},
    {"is_meta", get_is_meta, NULL, "True on device meta: a shape and a dtype, no memory.", NULL},
    {"retains_grad", get_retains_grad, NULL, "True for a non-leaf whose gradient is kept.", NULL},
    {"T", get_T, NULL, "The tensor with its dimensions reversed.", NULL},
    {"mT", get_mT, NULL, "The tensor with its last two dimensions swapped.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* Own attributes may tie a knot that only the collector can undo. */
int tensor_setattro(PyObject *self, PyObject *name, PyObject *value) {
    int failed = PyObject_GenericSetAttr(self, name, value);
    if (!failed && ((Tensor *)self)->dict && !PyObject_GC_IsTracked(self)) {
        PyObject_GC_Track(self);
    }
    return failed;
}

/* Own attributes, then those of interop.c. NULL: too many. */
PyGetSetDef *tensor_attributes(void) {
    enum { LIMIT = 64 };
    static PyGetSetDef table[LIMIT];
    const PyGetSetDef *parts[2] = {tensor_getset, interop_getset};
    int n = 0;
    for (int i = 0; i < 2; i++) {
        for (const PyGetSetDef *g = parts[i]; g->name; g++) {
            if (n + 1 == LIMIT) {
                PyErr_SetString(PyExc_SystemError, "too many attributes for the table");
                return NULL;
            }
            table[n++] = *g;
        }
    }
    return table;
}
