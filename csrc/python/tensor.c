/* The Tensor object: storage, life and death, attributes. Methods that are ops come from ops.def (op_entries.c). */
#include "tensor.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "autocast_region.h"
#include "interop.h"
#include "node.h"
#include "run_op.h"
#include "tensor_methods.h"

/* ---- storage ---- */

enum { STORAGE_POOL = 1024, TENSOR_POOL = 4096 };
static Storage *storage_pool[STORAGE_POOL];
static int storage_pooled;

static Storage *storage_alloc(void) {
    Storage *st = storage_pooled ? storage_pool[--storage_pooled] : PyMem_Malloc(sizeof *st);
    if (!st) {
        PyErr_NoMemory();
        return NULL;
    }
    memset(st, 0, sizeof *st);
    st->refs = 1;
    return st;
}

static Storage *storage_new(int device, size_t nbytes) {
    Storage *st = storage_alloc();
    if (!st) {
        return NULL;
    }
    st->device = (uint8_t)device;
    st->nbytes = nbytes;
    if (device == AMP_META) {
        return st;
    }
    st->data = amp_backend[device]->alloc(nbytes);
    if (!st->data) {
        PyMem_Free(st);
        raise_out_of_memory(nbytes, device);
        return NULL;
    }
    return st;
}

static void storage_drop(Storage *st) {
    if (--st->refs > 0) {
        return;
    }
    if (st->twin) {
        storage_drop(st->twin);
    }
    if (st->owner) {
        Py_DECREF(st->owner);
    } else if (st->data) {
        amp_backend[st->device]->free(st->data, st->nbytes);
    }
    if (storage_pooled < STORAGE_POOL) {
        storage_pool[storage_pooled++] = st;
    } else {
        PyMem_Free(st);
    }
}

/* ---- norms beside the values ---- */

/* The tensor shows all of its storage in order, and nobody outside can write there. */
static bool whole_and_private(const Tensor *t) {
    return t->st->data && !t->st->exported && !t->st->addressed && !t->st->owner && t->v.layout & LAYOUT_CONTIGUOUS &&
           t->v.data == t->st->data && (size_t)t->v.numel * amp_itemsize(t->v.dtype) == t->st->nbytes;
}

enum { TWIN_LEAST = 4096 }; /* elements; smaller copies are cheap */

void tensor_ask_twin(const Tensor *t, int dtype) {
    bool narrow = dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16;
    if (narrow && t->v.dtype == AMP_FLOAT32 && t->v.numel >= TWIN_LEAST && whole_and_private(t)) {
        t->st->copied_as = (int8_t)dtype;
    }
}

static void drop_twin(Storage *st) {
    Storage *twin = st->twin;
    st->twin = NULL;
    st->twin_dtype = 0;
    if (twin) {
        storage_drop(twin);
    }
}

int tensor_wanted_twin(const Tensor *t) {
    int dtype = t->st->copied_as;
    drop_twin(t->st);
    t->st->copied_as = 0;
    return t->v.dtype == AMP_FLOAT32 && whole_and_private(t) ? dtype : 0;
}

void tensor_give_twin(Tensor *t, const Tensor *twin) {
    Storage *st = t->st;
    drop_twin(st);
    st->twin = twin->st;
    st->twin->refs++;
    st->twin_dtype = twin->v.dtype;
    st->twinned = st->writes + 1;
}

void tensor_keep_norm(Tensor *t, double norm) {
    bool keep = !(norm < 0) && whole_and_private(t);
    t->st->normed = keep ? t->st->writes + 1 : 0;
    t->st->norm = norm;
    t->st->norm_dtype = t->v.dtype;
}

bool tensor_kept_norm(const Tensor *t, double *norm) {
    const Storage *st = t->st;
    if (!st->normed || st->normed != st->writes + 1 || st->norm_dtype != t->v.dtype || !whole_and_private(t)) {
        return false;
    }
    *norm = st->norm;
    return true;
}

enum { NORMS_PER_WISH = 16 };
static int norms_wanted; /* so many more times; GIL held */

void tensor_want_norms(void) { norms_wanted = NORMS_PER_WISH; }

bool tensor_norms_wanted(void) {
    norms_wanted -= norms_wanted > 0;
    return norms_wanted > 0;
}

/* ---- birth ---- */

/* Memory of dead tensors, GC header included, kept for reuse: allocating through the collector would wake it again and again. */
static PyObject *tensor_pool[TENSOR_POOL];
static int tensor_pooled;

static Tensor *tensor_object(PyTypeObject *type) {
    if (type != amp_state.tensor_type) {
        return (Tensor *)type->tp_alloc(type, 0); /* zeroed, tracked */
    }
    Tensor *t;
    if (tensor_pooled) {
        t = (Tensor *)PyObject_Init(tensor_pool[--tensor_pooled], type);
    } else {
        t = PyObject_GC_New(Tensor, type);
        if (!t) {
            return NULL;
        }
    }
    /* Field by field: compilers turn a memset of this size into a string instruction, which costs more than a small op. */
    t->v = (View){.data = NULL};
    t->st = NULL;
    t->fn = NULL;
    t->out_nr = t->fn_version = 0;
    t->flags = 0;
    t->grad = t->base = NULL;
    t->meta = NULL;
    t->dict = t->weak = NULL;
    return t;
}

/* Room for ndim sizes and strides: inline up to AMP_INLINE_DIMS. */
static int tensor_set_ndim(Tensor *t, int ndim) {
    t->v.ndim = (int8_t)ndim;
    if (ndim <= AMP_INLINE_DIMS) {
        t->v.shape = t->dims;
        t->v.stride = t->dims + AMP_INLINE_DIMS;
        return 0;
    }
    if (ndim > AMP_MAX_DIMS) {
        PyErr_Format(PyExc_RuntimeError, "a tensor has at most %d dimensions, not %d", AMP_MAX_DIMS, ndim);
        t->v.ndim = 0;
        return -1;
    }
    t->v.shape = PyMem_Malloc(2 * (size_t)ndim * sizeof(int64_t));
    if (!t->v.shape) {
        t->v.ndim = 0;
        PyErr_NoMemory();
        return -1;
    }
    t->v.stride = t->v.shape + ndim;
    return 0;
}

void tensor_update_layout(Tensor *t) {
    t->v.layout = amp_is_contiguous(t->v.ndim, t->v.shape, t->v.stride) ? LAYOUT_CONTIGUOUS : 0;
}

Tensor *tensor_new(int ndim, const int64_t *shape, int dtype, int device) {
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) {
            PyErr_Format(PyExc_RuntimeError, "Trying to create tensor with negative dimension %lld: sizes must be 0 or more",
                         (long long)shape[i]);
            return NULL;
        }
    }
    int64_t numel = amp_numel(ndim, shape);
    if (numel < 0 || numel > (int64_t)(PY_SSIZE_T_MAX / 16)) {
        PyErr_SetString(PyExc_RuntimeError, "the tensor's size in bytes does not fit 63 bits");
        return NULL;
    }
    Tensor *t = tensor_object(amp_state.tensor_type);
    if (!t) {
        return NULL;
    }
    t->v.dtype = (int8_t)dtype;
    t->v.device = (int8_t)device;
    t->v.numel = numel;
    if (tensor_set_ndim(t, ndim) < 0 || !(t->st = storage_new(device, (size_t)numel * amp_itemsize(dtype)))) {
        Py_DECREF(t);
        return NULL;
    }
    t->v.data = t->st->data;
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        t->v.shape[i] = shape[i];
        t->v.stride[i] = amp_near_stride(numel, shape[i], step);
        step = amp_mul_clamped(step, shape[i] > 1 ? shape[i] : 1);
    }
    t->v.layout = LAYOUT_CONTIGUOUS;
    return t;
}

/* Gives t the shape of a tensor that has elements. */
static void take_shape(Tensor *t, const Tensor *model) {
    int64_t step = 1;
    t->v.numel = model->v.numel;
    for (int i = model->v.ndim - 1; i >= 0; i--) {
        t->v.shape[i] = model->v.shape[i];
        t->v.stride[i] = step;
        step *= model->v.shape[i];
    }
    t->v.layout = LAYOUT_CONTIGUOUS;
}

Tensor *tensor_new_like(const Tensor *model, int dtype, int device) {
    const int64_t numel = model->v.numel;
    if (numel == 0 || numel > (int64_t)(PY_SSIZE_T_MAX / 16)) {
        return tensor_new(model->v.ndim, model->v.shape, dtype, device);
    }
    Tensor *t = tensor_object(amp_state.tensor_type);
    if (!t) {
        return NULL;
    }
    t->v.dtype = (int8_t)dtype;
    t->v.device = (int8_t)device;
    if (tensor_set_ndim(t, model->v.ndim) < 0 || !(t->st = storage_new(device, (size_t)numel * amp_itemsize(dtype)))) {
        Py_DECREF(t);
        return NULL;
    }
    t->v.data = t->st->data;
    take_shape(t, model);
    return t;
}

/* A tensor of its own: the storage changes hands. */
Tensor *tensor_take_twin(const Tensor *t, int dtype) {
    Storage *st = t->st;
    if (!st->twin) {
        return NULL;
    }
    if (st->twinned != st->writes + 1) {
        drop_twin(st);
        return NULL;
    }
    Tensor *out = st->twin_dtype == dtype && whole_and_private(t) ? tensor_object(amp_state.tensor_type) : NULL;
    if (!out || tensor_set_ndim(out, t->v.ndim) < 0) {
        Py_XDECREF(out);
        PyErr_Clear(); /* a copy is made, or fails for the same reason */
        return NULL;
    }
    out->v.dtype = (int8_t)dtype;
    out->v.device = t->v.device;
    take_shape(out, t);
    out->st = st->twin;
    out->v.data = out->st->data;
    st->twin = NULL;
    st->twin_dtype = 0;
    return out;
}

static Tensor *window_of_type(PyTypeObject *type, Tensor *src, int ndim, const int64_t *shape, const int64_t *stride,
                              int64_t offset) {
    Tensor *t = tensor_object(type);
    if (!t) {
        return NULL;
    }
    t->v.dtype = src->v.dtype;
    t->v.device = src->v.device;
    if (tensor_set_ndim(t, ndim) < 0) {
        Py_DECREF(t);
        return NULL;
    }
    t->st = src->st;
    t->st->refs++;
    int64_t numel = 1;
    bool overflow = false;
    for (int i = 0; i < ndim; i++) {
        t->v.shape[i] = shape[i];
        overflow |= __builtin_mul_overflow(numel, shape[i], &numel);
    }
    if (overflow && (numel = amp_numel(ndim, shape)) < 0) { /* stride 0 makes any size possible */
        Py_DECREF(t);
        PyErr_SetString(PyExc_RuntimeError,
                        "numel: integer multiplication overflow: the view's number of elements does not fit 63 bits");
        return NULL;
    }
    for (int i = 0; i < ndim; i++) {
        t->v.stride[i] = amp_near_stride(numel, shape[i], stride[i]);
    }
    t->v.data = src->v.data + amp_near_stride(numel, 2, offset) * (int64_t)amp_itemsize(src->v.dtype);
    t->v.numel = numel;
    tensor_update_layout(t);
    t->flags = src->flags & TENSOR_INFERENCE;
    return t;
}

Tensor *tensor_window(Tensor *src, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset) {
    return window_of_type(amp_state.tensor_type, src, ndim, shape, stride, offset);
}

Tensor *tensor_from_memory(char *data, size_t nbytes, PyObject *owner, int ndim, const int64_t *shape, const int64_t *stride,
                           int dtype, int device) {
    Tensor *t = tensor_object(amp_state.tensor_type);
    if (!t) {
        return NULL;
    }
    t->v.dtype = (int8_t)dtype;
    t->v.device = (int8_t)device;
    if (tensor_set_ndim(t, ndim) < 0 || !(t->st = storage_alloc())) {
        Py_DECREF(t);
        return NULL;
    }
    t->st->device = (uint8_t)device;
    t->st->data = data;
    t->st->nbytes = nbytes;
    t->st->owner = Py_NewRef(owner);
    t->st->exported = 1;
    t->v.data = data;
    t->v.numel = amp_numel(ndim, shape);
    memcpy(t->v.shape, shape, (size_t)ndim * sizeof *shape);
    for (int d = 0; d < ndim; d++) {
        t->v.stride[d] = amp_near_stride(t->v.numel, shape[d], stride[d]);
    }
    tensor_update_layout(t);
    return t;
}

int number_from_object(PyObject *o, Number *out) {
    if (PyBool_Check(o)) {
        *out = (Number){.f = o == Py_True, .i = o == Py_True, .kind = NUMBER_BOOL};
        return 0;
    }
    if (PyFloat_CheckExact(o)) {
        *out = (Number){.f = PyFloat_AS_DOUBLE(o), .kind = NUMBER_FLOAT};
        return 0;
    }
    if (PyLong_Check(o)) {
        int overflow;
        int64_t i = PyLong_AsLongLongAndOverflow(o, &overflow);
        if (overflow) {
            PyErr_SetString(PyExc_RuntimeError, "value cannot be converted to type int64_t without overflow");
            return -1;
        }
        *out = (Number){.f = (double)i, .i = i, .kind = NUMBER_INT};
        return 0;
    }
    if (PyComplex_Check(o)) {
        Py_complex c = PyComplex_AsCComplex(o);
        *out = (Number){.f = c.real, .imag = c.imag, .kind = NUMBER_COMPLEX};
        return 0;
    }
    if (!PyFloat_Check(o)) { /* a NumPy scalar: its own .item() knows best */
        PyObject *item = PyObject_CallMethod(o, "item", NULL);
        if (!item) {
            return -1;
        }
        bool plain = PyBool_Check(item) || PyFloat_Check(item) || PyLong_Check(item) || PyComplex_Check(item);
        int failed = plain ? number_from_object(item, out) : -1;
        if (!plain) {
            double f = PyFloat_AsDouble(item); /* ml_dtypes scalars give floats or themselves */
            failed = f == -1.0 && PyErr_Occurred() ? -1 : 0;
            *out = (Number){.f = f, .kind = NUMBER_FLOAT};
        }
        Py_DECREF(item);
        return failed;
    }
    *out = (Number){.f = PyFloat_AsDouble(o), .kind = NUMBER_FLOAT};
    return 0;
}

int number_default_dtype(const Number *n) {
    switch (n->kind) {
    case NUMBER_BOOL: return AMP_BOOL;
    case NUMBER_INT: return AMP_INT64;
    case NUMBER_COMPLEX: return amp_state.default_dtype == AMP_FLOAT64 ? AMP_COMPLEX128 : AMP_COMPLEX64;
    default: return amp_state.default_dtype;
    }
}

Tensor *tensor_from_number(Number number, int dtype, int device, bool wrapped) {
    Tensor *t = tensor_new(0, NULL, dtype, device);
    if (!t) {
        return NULL;
    }
    if (wrapped && number.kind == NUMBER_FLOAT && dtype != AMP_FLOAT64) {
        /* keep the double: binary ops cast from it once, so that x * 0.1 in fp64 sees 0.1, not fp32's 0.1 */
        t->v.dtype = AMP_FLOAT64;
        storage_drop(t->st);
        if (!(t->st = storage_new(device, sizeof(double)))) {
            Py_DECREF(t);
            return NULL;
        }
        t->v.data = t->st->data;
    }
    if (wrapped) {
        t->flags |= TENSOR_WRAPPED;
    }
    if (device == AMP_META) {
        return t;
    }
    switch (t->v.dtype) { /* the usual four without a trip through the backend */
    case AMP_FLOAT64: memcpy(t->v.data, &number.f, sizeof number.f); return t;
    case AMP_FLOAT32: {
        float f = (float)number.f;
        memcpy(t->v.data, &f, sizeof f);
        return t;
    }
    case AMP_INT64:
        if (number.kind == NUMBER_INT || number.kind == NUMBER_BOOL) {
            memcpy(t->v.data, &number.i, sizeof number.i);
            return t;
        }
        break;
    default: break;
    }
    Call call;
    amp_call_one(&call, OP_fill, NULL, &t->v);
    call.nnum = 1;
    call.num[0] = number;
    Status status = amp_backend[device]->fill(&call);
    if (status != AMP_OK) {
        amp_raise(status, "fill");
        Py_DECREF(t);
        return NULL;
    }
    return t;
}

Meta *tensor_meta(Tensor *t) {
    if (!t->meta) {
        t->meta = PyMem_Calloc(1, sizeof *t->meta);
        if (!t->meta) {
            PyErr_NoMemory();
        }
    }
    return t->meta;
}

/* ---- death and the collector ---- */

static int tensor_traverse(PyObject *self, visitproc visit, void *arg) {
    Tensor *t = (Tensor *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(t->fn);
    Py_VISIT(t->grad);
    Py_VISIT(t->base);
    Py_VISIT(t->dict);
    if (t->meta) {
        Py_VISIT(t->meta->hooks);
        Py_VISIT(t->meta->post_accumulate_hooks);
        Py_VISIT(t->meta->before_accumulating);
        Py_VISIT(t->meta->after_accumulating);
        for (int i = 0; i < CAST_SLOTS; i++) {
            Py_VISIT(t->meta->cast[i].cast);
        }
    }
    return 0;
}

static void meta_free(Tensor *t) {
    Meta *m = t->meta;
    if (!m) {
        return;
    }
    t->meta = NULL;
    Py_XDECREF(m->hooks);
    Py_XDECREF(m->post_accumulate_hooks);
    Py_XDECREF(m->before_accumulating);
    Py_XDECREF(m->after_accumulating);
    Py_XDECREF(m->accumulator);
    for (int i = 0; i < CAST_SLOTS; i++) {
        Py_XDECREF(m->cast[i].cast);
    }
    PyMem_Free(m);
}

static int tensor_clear(PyObject *self) {
    Tensor *t = (Tensor *)self;
    Py_CLEAR(t->fn);
    Py_CLEAR(t->grad);
    Py_CLEAR(t->base);
    Py_CLEAR(t->dict);
    meta_free(t);
    return 0;
}

static void tensor_dealloc(PyObject *self) {
    Tensor *t = (Tensor *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (t->weak) {
        PyObject_ClearWeakRefs(self);
    }
    if (t->fn || t->grad || t->base || t->dict || t->meta) {
        tensor_clear(self);
    }
    if (t->v.shape && t->v.shape != t->dims) {
        PyMem_Free(t->v.shape);
    }
    if (t->st) {
        storage_drop(t->st);
    }
    if (type == amp_state.tensor_type && tensor_pooled < TENSOR_POOL) {
        tensor_pool[tensor_pooled++] = self;
    } else {
        type->tp_free(self);
    }
    Py_DECREF(type);
}

/* ---- description ---- */

PyObject *tensor_describe(const Tensor *t) {
    PyObject *size = size_from_dims(t->v.ndim, t->v.shape);
    if (!size) {
        return NULL;
    }
    PyObject *tuple = PySequence_Tuple(size);
    PyObject *text = tuple ? PyUnicode_FromFormat("tensor of shape %R, %s", tuple, amp_dtype_info[t->v.dtype].name) : NULL;
    Py_DECREF(size);
    Py_XDECREF(tuple);
    return text;
}

int device_require(int device) {
    if (device == AMP_CUDA && !amp_state.cuda_emulated) {
        PyErr_SetString(PyExc_RuntimeError,
                        "CUDA is not available: this version of ampnative has no GPU backend. To run device "
                        "\"cuda\" on the CPU with CUDA's rules, call "
                        "ampnative.cuda.emulate(), set AMPNATIVE_EMULATE_CUDA=1, or start with `ampnative run --emulate-cuda`");
        return -1;
    }
    return 0;
}

/* ---- x.data = y ---- */

int tensor_take_data(Tensor *t, Tensor *src) {
    run_slot_settle();
    View old = t->v;
    if (tensor_set_ndim(t, src->v.ndim) < 0) {
        t->v = old;
        return -1;
    }
    if (old.shape != t->dims) {
        PyMem_Free(old.shape);
    }
    Py_CLEAR(t->base);
    for (int i = 0; t->meta && i < CAST_SLOTS; i++) {
        Py_CLEAR(t->meta->cast[i].cast);
    }
    memcpy(t->v.shape, src->v.shape, (size_t)src->v.ndim * sizeof(int64_t));
    memcpy(t->v.stride, src->v.stride, (size_t)src->v.ndim * sizeof(int64_t));
    src->st->refs++;
    storage_drop(t->st);
    t->st = src->st;
    t->st->writes++;
    t->v.data = src->v.data;
    t->v.numel = src->v.numel;
    t->v.dtype = src->v.dtype;
    t->v.device = src->v.device;
    t->v.layout = src->v.layout;
    return 0;
}

static PyMemberDef tensor_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Tensor, weak), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Tensor, dict), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* Tensor(data) makes a float32 tensor, Tensor(2, 3) an uninitialised one: PyTorch's old constructor. */
static PyObject *tensor_tp_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    Tensor *t = NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    if (n == 1 && !PyLong_Check(PyTuple_GET_ITEM(args, 0))) {
        PyObject *data = PyTuple_GET_ITEM(args, 0);
        t = tensor_check(data) ? tensor_shallow((Tensor *)data) : tensor_from_data(data, amp_state.default_dtype, AMP_CPU);
    } else {
        int64_t shape[AMP_MAX_DIMS];
        if (n > AMP_MAX_DIMS) {
            PyErr_SetString(PyExc_RuntimeError, "too many dimensions");
            return NULL;
        }
        for (Py_ssize_t i = 0; i < n; i++) {
            shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(args, i));
            if (shape[i] == -1 && PyErr_Occurred()) {
                return NULL;
            }
        }
        int64_t none = 0;
        t = n ? tensor_new((int)n, shape, amp_state.default_dtype, AMP_CPU)
              : tensor_new(1, &none, amp_state.default_dtype, AMP_CPU);
    }
    if (!t || type == amp_state.tensor_type) {
        return (PyObject *)t;
    }
    Tensor *sub = window_of_type(type, t, t->v.ndim, t->v.shape, t->v.stride, 0);
    Py_DECREF(t);
    return (PyObject *)sub;
}

PyObject *tensor_make_subclass(PyObject *cls, PyObject *data, bool requires_grad) {
    if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, amp_state.tensor_type) || !tensor_check(data)) {
        PyErr_SetString(PyExc_TypeError, "_make_subclass() takes a subclass of Tensor and a Tensor");
        return NULL;
    }
    Tensor *src = (Tensor *)data;
    Tensor *t = window_of_type((PyTypeObject *)cls, src, src->v.ndim, src->v.shape, src->v.stride, 0);
    if (t && requires_grad && tensor_set_requires_grad(t, true) < 0) {
        Py_CLEAR(t);
    }
    return (PyObject *)t;
}

static PyObject *tensor_repr(PyObject *self) {
    PyObject *module = PyImport_ImportModule("ampnative._tensor_str");
    if (!module) {
        return NULL;
    }
    PyObject *text = PyObject_CallMethod(module, "tensor_repr", "O", self);
    Py_DECREF(module);
    return text;
}

static Py_hash_t tensor_hash(PyObject *self) { return (Py_hash_t)((uintptr_t)self >> 4); }

int tensor_init(PyObject *module) {
    PyGetSetDef *getset = tensor_attributes();
    if (!getset) {
        return -1;
    }
    static PyType_Slot slots[64] = {
        {Py_tp_new, tensor_tp_new},
        {Py_tp_dealloc, tensor_dealloc},
        {Py_tp_traverse, tensor_traverse},
        {Py_tp_clear, tensor_clear},
        {Py_tp_getset, NULL},
        {Py_tp_members, tensor_members},
        {Py_tp_setattro, tensor_setattro},
        {Py_tp_repr, tensor_repr},
        {Py_tp_hash, tensor_hash},
        {Py_tp_doc, "An n-dimensional array with autograd. Make one with ampnative.tensor, zeros, randn, from_numpy, ..."},
    };
    slots[4].pfunc = getset;
    int n = 10;
    n = tensor_add_slots(slots, n, (int)(sizeof slots / sizeof *slots));
    if (n < 0) {
        return -1;
    }
    PyType_Spec spec = {
        .name = "ampnative.Tensor",
        .basicsize = sizeof(Tensor),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    amp_state.tensor_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    if (!amp_state.tensor_type) {
        return -1;
    }
    return PyModule_AddObjectRef(module, "Tensor", (PyObject *)amp_state.tensor_type);
}
