/* The Tensor object, its storage, and how glue code makes tensors. */
#ifndef AMP_TENSOR_H
#define AMP_TENSOR_H
#include "state.h"

/* Memory shared by views, detach, .data and from_numpy. Reference counted by itself (GIL held). */
typedef struct Storage {
    int32_t refs;
    uint8_t device;
    bool readonly;    /* of an array that is not writeable */
    uint8_t exported; /* handed to NumPy or DLPack: writes from outside bump no counter */
    int8_t norm_dtype;
    uint8_t addressed;  /* data_ptr() was asked for */
    int8_t copied_as;   /* fp16 or bf16: a copy of all of this fp32 memory was made since an optimizer wrote it; else 0 */
    int8_t twin_dtype;  /* 0: there is no twin */
    uint8_t loss_flags; /* LOSS_*: of a gradient, 0 where no scaled loss is known to be in it */
    uint32_t version;   /* autograd's counter: in-place writes through a tensor, not through .data */
    uint32_t writes;    /* every write, .data included: stamps cast slots */
    uint32_t scaled; /* a gradient of a scaled loss: writes + 1 when it was accumulated, so that any later write (unscaling) takes
                       * the mark off */
    float loss_scale; /* the scale it carries then; NaN: parts of it carry different ones */
    uint32_t loss_first, loss_last,
        loss_count;       /* the scaled losses in a gradient, by their scaler's numbers; writes leave them */
    uint32_t twinned;     /* writes + 1 when `twin` was written */
    uint32_t normed;      /* writes + 1 when `norm` was formed: any later write makes it stale; 0: never */
    double norm;          /* 2-norm of all elements in order, read as norm_dtype, bit for bit what the norms slot gives */
    struct Storage *twin; /* counted: the same values as twin_dtype, left by an optimizer for the next such copy; or NULL */
    char *data;
    size_t nbytes;
    PyObject *
        owner; /* strong; memory that someone else owns (ndarray, capsule holder); NULL: allocated by us and freed with the storage */
} Storage;

enum {
    LOSS_KNOWN = 1,   /* a scaled loss was passed */
    LOSS_UNSURE = 2,  /* maybe not only loss_first to loss_last, or not these: written between, or several in one pass */
    LOSS_HALF = 4,    /* a float16 gradient was met on the way */
    LOSS_PYTHON = 16, /* Python code was met on the way, a hook or a Function, which may have computed in float16 */
    LOSS_ZEROED = 8,  /* alone: filled with zeros by zero_grad, if `scaled` says that nothing wrote since */
};

/* The loss scale that a gradient carries; 0: none that is known of. What NumPy has seen may have been unscaled there. */
static inline float storage_loss_scale(const Storage *st) {
    return st->scaled && st->scaled == st->writes + 1 && !st->exported ? st->loss_scale : 0.0f;
}

enum {
    TENSOR_REQUIRES_GRAD = 1, /* leaf only; non-leaves have fn */
    TENSOR_WRAPPED = 2,       /* made from a Python number: takes part in promotion by category only */
    TENSOR_INFERENCE = 4,     /* made in inference mode */
    TENSOR_RETAINS_GRAD = 8,
    TENSOR_IS_DATA = 16,       /* a .data/.detach() alias with its own version counter semantics: writes bump `writes` only */
    TENSOR_NO_GRAD_VIEW = 32,  /* a view made under no_grad: in-place recording on it is refused */
    TENSOR_FUNCTION_VIEW = 64, /* what a custom Function returned of another tensor's memory, or a view of that: only its own node
                                * knows its history, which ends with the next write to that memory */
};

enum { CAST_SLOTS = 2 };
typedef struct CastSlot {
    Tensor *cast;    /* strong */
    uint64_t epoch;  /* autocast epoch in which it was made */
    uint32_t writes; /* of the source's storage when it was made */
} CastSlot;

/* Rare belongings; NULL for almost all tensors. */
typedef struct Meta {
    PyObject *hooks;                 /* dict id -> callable, run on the gradient; strong or NULL */
    PyObject *post_accumulate_hooks; /* dict id -> callable; strong or NULL */
    PyObject *before_accumulating;   /* dict id -> hook(gradients): pre-hooks of the leaf's accumulator; strong or NULL */
    PyObject *after_accumulating;    /* dict id -> hook((), gradients); strong or NULL */
    PyObject *accumulator;           /* weak reference to the AccumulateGrad that Python holds, or NULL */
    CastSlot cast[CAST_SLOTS];
} Meta;

struct Tensor {
    PyObject_HEAD
    View v;          /* first, so that a kernel takes &t->v */
    Storage *st;     /* counted */
    Node *fn;        /* strong; NULL for leaves */
    uint32_t out_nr; /* which output of fn */
    uint8_t flags;
    uint32_t fn_version; /* views: storage version for which fn is right */
    Tensor *grad;        /* strong */
    Tensor *base;        /* strong: the tensor whose history a view shares; NULL for non-views */
    Meta *meta;
    PyObject *dict, *weak;
    int64_t dims[2 * AMP_INLINE_DIMS]; /* shape, then stride; a heap block above AMP_INLINE_DIMS dimensions */
};

int tensor_init(PyObject *module);

static inline bool tensor_check_exact(PyObject *o) {
    return Py_TYPE(o) == amp_state.tensor_type || Py_TYPE(o) == amp_state.parameter_type;
}
static inline bool tensor_check(PyObject *o) {
    return tensor_check_exact(o) || PyType_IsSubtype(Py_TYPE(o), amp_state.tensor_type);
}

/* A parameter's gradient was filled with zeros: the losses that were in it are in it no longer. */
static inline void tensor_forget_losses(PyObject *param) {
    Storage *st = tensor_check(param) && ((Tensor *)param)->grad ? ((Tensor *)param)->grad->st : NULL;
    if (st && st->loss_flags) {
        st->loss_flags = LOSS_ZEROED;
        st->loss_scale = 0;
        st->scaled = st->writes + 1;
    }
}
/* A view whose base got a history by an in-place write requires grad although it has no fn yet. */
static inline bool tensor_requires_grad(const Tensor *t) {
    return (t->flags & TENSOR_REQUIRES_GRAD) || t->fn ||
           (t->base && t->fn_version != t->st->version && !(t->flags & (TENSOR_IS_DATA | TENSOR_NO_GRAD_VIEW)) &&
            (t->base->fn || (t->base->flags & TENSOR_REQUIRES_GRAD)));
}

/* Of a view: whether a leaf that requires grad is its base, or is itself a view of a base without history; only so does a view have a
 * history that its base has not. */
static inline bool tensor_views_leaf(const Tensor *view) {
    return !view->base->fn && (view->base->flags & TENSOR_REQUIRES_GRAD || view->fn);
}

/* All return a new reference, or NULL with an exception. */
Tensor *tensor_new(int ndim, const int64_t *shape, int dtype, int device); /* contiguous, uninitialised */
/* The same in the shape of `model`, which is known to be a possible one. */
Tensor *tensor_new_like(const Tensor *model, int dtype, int device);
/* A window onto src's storage; offset in elements relative to src's first element. No history, no base: the driver adds them. */
Tensor *tensor_window(Tensor *src, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset);
static inline Tensor *tensor_shallow(Tensor *src) { return tensor_window(src, src->v.ndim, src->v.shape, src->v.stride, 0); }
/* Memory of someone else; `owner` is kept (strong) until the storage dies. */
Tensor *tensor_from_memory(char *data, size_t nbytes, PyObject *owner, int ndim, const int64_t *shape, const int64_t *stride,
                           int dtype, int device);
Tensor *tensor_from_number(Number number, int dtype, int device, bool wrapped); /* 0-dim */
/* Python int/float/bool/complex -> Number; 0, or -1 with an exception. */
int number_from_object(PyObject *o, Number *out);
int number_default_dtype(const Number *n); /* bool, int64, default dtype or its complex */

/* Norms left beside gradients by whoever formed them, for clipping. `norm` is the 2-norm of what t holds now; negative: not known. */
void tensor_keep_norm(Tensor *t, double norm);
bool tensor_kept_norm(const Tensor *t, double *norm); /* false: none, or something was or may have been written since */
/* Copies of fp32 weights in 16 bits, made by the optimizer in passing. A copy of all of a tensor's memory asks for the next one; once
 * the optimizer has written it (tensor_give_twin; `twin` has as many elements, contiguous), the next copy takes it for its own. */
void tensor_ask_twin(const Tensor *t, int dtype);
int tensor_wanted_twin(const Tensor *t); /* dtype, or 0; what was left and not taken is dropped */
void tensor_give_twin(Tensor *t, const Tensor *twin);
Tensor *tensor_take_twin(const Tensor *t, int dtype); /* NULL, without exception: there is none */

/* Forming norms costs time where gradients fit the cache: it is done while somebody asks for them every few steps. */
void tensor_want_norms(void);
bool tensor_norms_wanted(void);

Meta *tensor_meta(Tensor *t);               /* made on demand; NULL with MemoryError */
void tensor_update_layout(Tensor *t);       /* after shape or stride changed */
static inline void tensor_bump(Tensor *t) { /* after a write through t */
    t->st->writes++;
    if (!(t->flags & TENSOR_IS_DATA)) {
        t->st->version++;
    }
}
/* Raises where PyTorch does: a CUDA device without GPU or emulation. 0 or -1. */
int device_require(int device);

/* Tensor -> "Tensor of shape (2, 3), float32, cpu" for error texts; a new str. */
PyObject *tensor_describe(const Tensor *t);

#endif
