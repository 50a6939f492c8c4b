/* The driver: autocast, class function, output handling, recording, in this order for every op. */
#include "run_op.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "args.h"
#include "autocast_region.h"
#include "classes.h"
#include "derivatives/derivatives.h"
#include "node.h"
#include "observer.h"
#include "outputs.h"
#include "selective.h"

/* About 30 us of memory traffic: below that, giving the GIL away costs more than it helps. */
enum { GIL_COST = 256 * 1024 };

/* Kernels that run without the GIL right now. They read Views inside Tensors, so whoever changes a Tensor's View waits for them. */
static _Atomic int unlocked;

void run_slot_settle(void) {
    while (atomic_load(&unlocked)) {
        PyThreadState *thread = PyEval_SaveThread();
        sched_yield();
        PyEval_RestoreThread(thread);
    }
}

PyThreadState *run_slot_unlock(void) {
    atomic_fetch_add(&unlocked, 1);
    return PyEval_SaveThread();
}

void run_slot_lock(PyThreadState *thread) {
    atomic_fetch_sub(&unlocked, 1);
    PyEval_RestoreThread(thread);
}

int run_slot(int device, Slot slot, const Call *call, int64_t cost, const char *name) {
    if (device == AMP_META) { /* shapes without memory: nothing to compute */
        return 0;
    }
    if (!slot) {
        return amp_raise(AMP_NO_KERNEL, name);
    }
    Status status;
    if (cost > GIL_COST) {
        PyThreadState *thread = run_slot_unlock();
        status = slot(call);
        run_slot_lock(thread);
    } else {
        status = slot(call);
    }
    return status == AMP_OK ? 0 : amp_raise(status, name);
}

/* ---- outputs ---- */

static bool same_view(const View *a, const View *b) {
    return a->data == b->data && a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) &&
           !memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof *a->stride);
}

/* 1 if the kernel may not write into out, -1 with RuntimeError if nothing may. */
static int meets_inputs(const OpCall *c, const Tensor *out, Aliasing aliasing) {
    int meets = 0;
    for (int i = 0; i < c->row->nparams; i++) {
        if (i == c->row->out_index) {
            continue;
        }
        int n = c->arg[i].kind == ARG_TENSOR ? 1 : c->arg[i].kind == ARG_TENSORS ? c->arg[i].n : 0;
        Tensor *const *t = n == 1 && c->arg[i].kind == ARG_TENSOR ? &c->arg[i].t : c->arg[i].ts;
        for (int k = 0; k < n; k++) {
            const View *v = &t[k]->v;
            bool own = !t[k]->st->owner && !out->st->owner; /* memory that one storage alone knows */
            if (v->device != out->v.device || (own && t[k]->st != out->st)) {
                continue;
            }
            bool exact = (aliasing == ALIAS_ELEMENTWISE || (aliasing == ALIAS_INPUT && i == 0)) && same_view(&out->v, v) &&
                         v->dtype == out->v.dtype;
            if (exact || !amp_ranges_meet(&out->v, v)) {
                continue;
            }
            meets = 1;
            if (aliasing != ALIAS_NEVER && output_check_apart(c, i, out, t[k]) < 0) {
                return -1;
            }
        }
    }
    return meets;
}

static bool is_input(const OpCall *c, const Tensor *out) {
    for (int i = 0; i < c->row->nparams; i++) {
        if (i != c->row->out_index && c->arg[i].kind == ARG_TENSOR && c->arg[i].t == out) {
            return true;
        }
        for (int k = 0; c->arg[i].kind == ARG_TENSORS && k < c->arg[i].n; k++) {
            if (c->arg[i].ts[k] == out) {
                return true;
            }
        }
    }
    return false;
}

static int shape_mismatch(const OpCall *c, int ndim, const int64_t *shape) {
    PyObject *want = size_from_dims(ndim, shape), *have = size_from_dims(c->out->v.ndim, c->out->v.shape);
    PyObject *a = want ? PySequence_List(want) : NULL, *b = have ? PySequence_List(have) : NULL;
    if (a && b) {
        PyErr_Format(PyExc_RuntimeError,
                     "output with shape %R doesn't match the broadcast shape %R (%s writes to an input: let it make a new "
                     "tensor, or expand the input first)",
                     b, a, c->row->name);
    }
    Py_XDECREF(want);
    Py_XDECREF(have);
    Py_XDECREF(a);
    Py_XDECREF(b);
    return -1;
}

Tensor *result_new(OpCall *c, int i, int ndim, const int64_t *shape, int dtype, int device, Aliasing aliasing) {
    Tensor *out = output_of(c, i);
    if (out) {
        if (output_check_dtype(c, dtype, out->v.dtype) < 0) {
            return NULL;
        }
        bool same = out->v.ndim == ndim && (ndim == 0 || !memcmp(out->v.shape, shape, (size_t)ndim * sizeof *shape));
        if (!same && c->inplace) {
            shape_mismatch(c, ndim, shape);
            return NULL;
        }
        if (out->v.device != device && !(c->inplace && device == AMP_CPU)) {
            PyErr_Format(PyExc_RuntimeError,
                         "%s: Expected all tensors to be on the same device: out is on another one than the inputs",
                         c->row->name);
            return NULL;
        }
        int meets = meets_inputs(c, out, aliasing);
        if (meets < 0) {
            return NULL;
        }
        bool read = !same && is_input(c, out); /* resized by deliver_output, after the kernel has read it */
        if (read && aliasing == ALIAS_ELEMENTWISE) {
            shape_mismatch(c, ndim, shape);
            return NULL;
        }
        if (!same && !read && output_resize(out, ndim, shape) < 0) {
            return NULL;
        }
        if (amp_has_internal_overlap(&out->v)) {
            amp_raise(AMP_OVERLAP, c->row->name);
            return NULL;
        }
        if (!read && out->v.dtype == dtype && !meets) {
            c->result[i] = (Tensor *)Py_NewRef(out);
            c->nresult = c->nresult > i ? c->nresult : i + 1;
            return out;
        }
    }
    c->result[i] = tensor_new(ndim, shape, dtype, device);
    if (c->result[i] && c->nresult <= i) {
        c->nresult = i + 1;
    }
    return c->result[i];
}

void tensor_keep_layout(Tensor *out, const Tensor *model) {
    int order[AMP_MAX_DIMS], nd = out->v.ndim;
    if (model->v.layout & LAYOUT_CONTIGUOUS || model->v.ndim != nd ||
        memcmp(model->v.shape, out->v.shape, (size_t)nd * sizeof *out->v.shape)) {
        return;
    }
    if (amp_is_dense(&model->v)) {
        memcpy(out->v.stride, model->v.stride, (size_t)nd * sizeof *out->v.stride);
        tensor_update_layout(out);
        return;
    }
    for (int d = 0; d < nd; d++) { /* outermost first; equal strides keep their order */
        int k = d;
        if (model->v.stride[d] <= 0) {
            return;
        }
        for (; k > 0 && model->v.stride[order[k - 1]] < model->v.stride[d]; k--) {
            order[k] = order[k - 1];
        }
        order[k] = d;
    }
    int64_t step = 1;
    for (int k = nd - 1; k >= 0; k--) {
        out->v.stride[order[k]] = step;
        step *= out->v.shape[order[k]] > 1 ? out->v.shape[order[k]] : 1;
    }
    tensor_update_layout(out);
}

void result_keep_layout(const OpCall *c, Tensor *out, const Tensor *model) {
    if (out != c->out) {
        tensor_keep_layout(out, model);
    }
}

int result_set(OpCall *c, Tensor *t) {
    c->result[0] = t;
    c->nresult = t ? 1 : 0;
    return t ? 0 : -1;
}

/* ---- shared checks ---- */

static int device_conflict(const char *name, int first, int other) {
    PyObject *a = device_object(first < other ? other : first), *b = a ? device_object(first < other ? first : other) : NULL;
    if (b) {
        PyErr_Format(
            PyExc_RuntimeError,
            "%s: Expected all tensors to be on the same device, but found at least two devices, %S and %S! Move one with "
            ".to()",
            name + (*name == '_'), a, b);
    }
    Py_XDECREF(a);
    Py_XDECREF(b);
    return -1;
}

/* Numbers of rows in host memory beside a tensor without memory: nothing reads them. */
static bool indexes_meta(const OpCall *c, int i, int home, const Tensor *t) {
    const char *name = c->row->param[i].name;
    return home == AMP_META && t->v.device == AMP_CPU && (!strcmp(name, "index") || !strcmp(name, "indices"));
}

int common_device(const OpCall *c) {
    int device = -1;
    bool fixed = false;
    for (int i = 0; i < c->row->nparams; i++) {
        int n = c->arg[i].kind == ARG_TENSOR ? 1 : c->arg[i].kind == ARG_TENSORS ? c->arg[i].n : 0;
        Tensor *const *t = c->arg[i].kind == ARG_TENSOR ? &c->arg[i].t : c->arg[i].ts;
        for (int k = 0; k < n && i != c->row->out_index; k++) {
            bool loose = t[k]->v.device == AMP_CPU && t[k]->v.ndim == 0;
            if (device < 0 || (!fixed && !loose)) {
                if (device < 0 || !loose) {
                    device = t[k]->v.device;
                    fixed = !loose;
                }
            } else if (t[k]->v.device != device && !loose && !indexes_meta(c, i, device, t[k])) {
                return device_conflict(c->row->name, device, t[k]->v.device);
            }
        }
    }
    return device < 0 ? AMP_CPU : device;
}

int readable_beside(const char *name, const Tensor *self, const Tensor *t) {
    const int home = self->v.device, device = t->v.device;
    return device == home || home == AMP_META || (device == AMP_CPU && home == AMP_CUDA) ? 0
                                                                                         : device_conflict(name, home, device);
}

int same_device(const OpCall *c) {
    const Tensor *self = c->arg[0].t;
    for (int i = 1; i < c->row->nparams; i++) {
        const Tensor *t = c->arg[i].kind == ARG_TENSOR && i != c->row->out_index ? c->arg[i].t : NULL;
        if (t && t->v.device != self->v.device && (t->v.ndim || t->v.device != AMP_CPU) &&
            !indexes_meta(c, i, self->v.device, t)) {
            return device_conflict(c->row->name, self->v.device, t->v.device);
        }
    }
    return 0;
}

int needs_no_gradient(const OpCall *c, int i) {
    if (c->arg[i].kind != ARG_TENSOR || !tensor_requires_grad(c->arg[i].t) || !grad_recording()) {
        return 0;
    }
    PyErr_Format(PyExc_RuntimeError,
                 "%s: not differentiable with respect to argument '%s', which requires grad: pass %s.detach()", c->row->name,
                 c->row->param[i].name, c->row->param[i].name);
    return -1;
}

int wrap_dim(int64_t dim, int ndim) {
    int n = ndim ? ndim : 1;
    if (dim < -n || dim >= n) {
        PyErr_Format(PyExc_IndexError, "Dimension out of range (expected to be in range of [%d, %d], but got %lld)", -n, n - 1,
                     (long long)dim);
        return -1;
    }
    return (int)(dim < 0 ? dim + n : dim);
}

int dims_mask(const Arg *arg, int ndim, uint64_t *mask) {
    uint64_t all = ndim == 64 ? UINT64_MAX : ((uint64_t)1 << ndim) - 1;
    if (!arg || arg->kind == ARG_NONE || (arg->kind == ARG_INTS && arg->n == 0)) {
        *mask = all;
        return 0;
    }
    int n = arg->kind == ARG_INTS ? arg->n : 1;
    *mask = 0;
    for (int i = 0; i < n; i++) {
        int d = wrap_dim(arg->kind == ARG_INTS ? arg->ints[i] : arg->i, ndim);
        if (d < 0) {
            return -1;
        }
        if (*mask & ((uint64_t)1 << d)) {
            PyErr_Format(PyExc_RuntimeError, "dim %d appears multiple times in the list of dims", d);
            return -1;
        }
        *mask |= (uint64_t)1 << d;
    }
    *mask &= all; /* a 0-dim tensor has dim 0 by courtesy only */
    return 0;
}

View broadcast_view(const View *v, int ndim, int64_t *shape, int64_t *strides) {
    View b = *v;
    int extra = ndim - v->ndim;
    for (int d = 0; d < ndim; d++) {
        bool real = d >= extra && v->shape[d - extra] == shape[d];
        strides[d] = real ? v->stride[d - extra] : 0;
    }
    b.ndim = (int8_t)ndim;
    b.shape = shape;
    b.stride = strides;
    b.numel = amp_numel(ndim, shape);
    b.layout = 0;
    return b;
}

/* Highest dtype of one standing: tensors with dimensions, 0-dim tensors, Python numbers. ABSENT: nobody there. */
enum { ABSENT = -1 };
typedef struct Standing {
    int dim, zero, wrapped;
} Standing;

static int join(int a, int b) { return a == ABSENT ? b : b == ABSENT ? a : amp_promote_dtypes(a, b); }

/* `low` counts only if its category is higher: then it decides, but a complex number takes its width from a real tensor. */
static int join_standing(int high, int low) {
    if (high == ABSENT || low == ABSENT) {
        return high == ABSENT ? low : high;
    }
    if (amp_dtype_info[low].category <= amp_dtype_info[high].category) {
        return high;
    }
    if (amp_is_floating(high)) {
        return amp_complex_of(high);
    }
    return high == AMP_BOOL || amp_is_floating(low) || amp_is_complex(low) ? amp_promote_dtypes(high, low) : high;
}

int promote_tensors(int n, Tensor *const *t) {
    Standing s = {ABSENT, ABSENT, ABSENT};
    for (int i = 0; i < n; i++) {
        int dtype = t[i]->v.dtype;
        if (t[i]->flags & TENSOR_WRAPPED) {
            dtype = amp_is_floating(dtype) ? amp_state.default_dtype : dtype;
            s.wrapped = join(s.wrapped, dtype);
        } else if (t[i]->v.ndim == 0) {
            s.zero = join(s.zero, dtype);
        } else {
            s.dim = join(s.dim, dtype);
        }
    }
    return join_standing(s.dim, join_standing(s.zero, s.wrapped));
}

/* ---- copies below the graph ---- */

int raw_copy(View *dst, const View *src) {
    if (src->device == AMP_META && dst->device != AMP_META) {
        PyErr_SetString(PyExc_NotImplementedError, "Cannot copy out of meta tensor; no data! A meta tensor has a shape only");
        return -1;
    }
    Call call;
    amp_call_one(&call, OP_copy, src, dst);
    return run_slot(dst->device, AMP_BACKEND_SLOT(dst->device, copy), &call, dst->numel * 8, "copy");
}

Tensor *raw_cast(Tensor *t, int dtype) {
    if (t->v.dtype == dtype) {
        return (Tensor *)Py_NewRef(t);
    }
    Tensor *out = tensor_new(t->v.ndim, t->v.shape, dtype, t->v.device);
    if (out && raw_copy(&out->v, &t->v) < 0) {
        Py_CLEAR(out);
    }
    return out;
}

Tensor *raw_contiguous(Tensor *t) {
    if (t->v.layout & LAYOUT_CONTIGUOUS) {
        return (Tensor *)Py_NewRef(t);
    }
    Tensor *out = tensor_new(t->v.ndim, t->v.shape, t->v.dtype, t->v.device);
    if (out && raw_copy(&out->v, &t->v) < 0) {
        Py_CLEAR(out);
    }
    return out;
}

int raw_fill(Tensor *t, Number value) {
    Call call;
    amp_call_one(&call, OP_fill, NULL, &t->v);
    call.nnum = 1;
    call.num[0] = value;
    return run_slot(t->v.device, AMP_BACKEND_SLOT(t->v.device, fill), &call, t->v.numel * (int64_t)amp_itemsize(t->v.dtype),
                    "fill");
}

Number number_int(int64_t i) { return (Number){.f = (double)i, .i = i, .kind = NUMBER_INT}; }

Number number_float(double f) { return (Number){.f = f, .kind = NUMBER_FLOAT}; }

/* ---- the driver ---- */

int check_writable(const Tensor *t, const char *what) {
    if (t->st->readonly) {
        PyErr_Format(PyExc_RuntimeError, "%s: cannot write to a tensor on read-only memory: make a clone() first", what);
        return -1;
    }
    return 0;
}

/* Through .data anything may be written. */
static int check_inference(const OpRow *row, const Tensor *t, const char *mark) {
    if ((t->flags & (TENSOR_INFERENCE | TENSOR_IS_DATA)) == TENSOR_INFERENCE && !(amp_mode & MODE_INFERENCE)) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s%s: Inplace update to inference tensor outside InferenceMode is not allowed. Make a clone first",
                     row->name, mark);
        return -1;
    }
    return 0;
}

/* In-place writes to leaves and their views lose gradients: refused before anything is written. */
static int check_inplace(const OpRow *row, Tensor *self) {
    if (check_writable(self, row->name) < 0 || check_inference(row, self, "_") < 0) {
        return -1;
    }
    if (!grad_recording()) {
        return 0;
    }
    if ((self->flags & (TENSOR_NO_GRAD_VIEW | TENSOR_IS_DATA)) == TENSOR_NO_GRAD_VIEW && self->base &&
        tensor_requires_grad(self->base)) {
        PyErr_Format(
            PyExc_RuntimeError,
            "%s_: A view was created in no_grad mode and is being modified inplace with grad mode enabled: its base requires "
            "grad, and would not see the write. Do both under no_grad(), or neither",
            row->name);
        return -1;
    }
    if ((self->flags & (TENSOR_FUNCTION_VIEW | TENSOR_NO_GRAD_VIEW)) == TENSOR_FUNCTION_VIEW) {
        PyErr_Format(
            PyExc_RuntimeError,
            "%s_: a view that a custom Function returned is being modified inplace: its backward knows nothing of that write. "
            "Return a clone from forward, or clone the view first",
            row->name);
        return -1;
    }
    if (self->flags & TENSOR_REQUIRES_GRAD && !self->fn) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s_: a leaf Variable that requires grad is being used in an in-place operation. Do it under no_grad()",
                     row->name);
        return -1;
    }
    if (self->base && tensor_views_leaf(self)) {
        PyErr_Format(
            PyExc_RuntimeError,
            "%s_: a view of a leaf Variable that requires grad is being used in an in-place operation. Do it under no_grad()",
            row->name);
        return -1;
    }
    return 0;
}

static PyObject *pack_results(OpCall *c) {
    if (c->object) {
        return c->object;
    }
    if (c->nresult == 1) {
        return (PyObject *)c->result[0];
    }
    PyObject *type = amp_state.return_types[c->row->op];
    PyObject *tuple = type ? PyStructSequence_New((PyTypeObject *)type) : PyTuple_New(c->nresult);
    if (!tuple) {
        return NULL;
    }
    for (int i = 0; i < c->nresult; i++) {
        PyTuple_SET_ITEM(tuple, i, (PyObject *)c->result[i]);
    }
    return tuple;
}

/* In place, a derivative that reads input 0 needs it as it was before the write: its values, and its history for the second
 * derivative. */
static int keep_original(OpCall *c) {
    uint16_t saves = c->row->saves;
    Tensor *self = c->out;
    if (!grad_recording() || !(saves & (SAVE_IN0 | SAVE_CROSS))) {
        return 0;
    }
    bool other = c->row->nparams > 1 && c->arg[1].kind == ARG_TENSOR && tensor_requires_grad(c->arg[1].t);
    bool needed = saves & SAVE_CROSS ? other : tensor_requires_grad(self) || other;
    if (!needed) {
        return 0;
    }
    Tensor *original = c->original = tensor_new(self->v.ndim, self->v.shape, self->v.dtype, self->v.device);
    if (!original || raw_copy(&original->v, &self->v) < 0) {
        return -1;
    }
    return tensor_requires_grad(self) ? tensor_history(self, &original->fn, &original->out_nr) : 0;
}

static bool any_requires_grad(const OpCall *c) {
    bool any = false;
    for (int i = 0; i < c->row->nparams && !any; i++) {
        if (c->arg[i].kind == ARG_TENSOR) {
            any = tensor_requires_grad(c->arg[i].t);
        }
        for (int k = 0; c->arg[i].kind == ARG_TENSORS && k < c->arg[i].n && !any; k++) {
            any = tensor_requires_grad(c->arg[i].ts[k]);
        }
    }
    return any;
}

/* In place, what the graph could not keep is refused before anything is written. */
static int check_keeping(const OpCall *c) {
    uint16_t saves = c->row->saves;
    bool self_needs = tensor_requires_grad(c->out);
    for (int i = 1; i < c->row->nparams && i < 4; i++) {
        bool kept = (saves & (SAVE_IN0 << i)) || (i == 1 && saves & SAVE_CROSS && self_needs);
        if (kept && c->arg[i].kind == ARG_TENSOR && (self_needs || tensor_requires_grad(c->arg[i].t)) &&
            c->arg[i].t->flags & TENSOR_INFERENCE) {
            PyErr_SetString(PyExc_RuntimeError,
                            "Inference tensors cannot be saved for backward. Make a clone() outside inference mode and use that");
            return -1;
        }
    }
    return 0;
}

/* What must hold before a tensor that exists is written to. */
static int check_destination(OpCall *c) {
    const OpRow *row = c->row;
    if (c->inplace && amp_is_complex(c->out->v.dtype) && grad_recording() && any_requires_grad(c)) {
        return node_refuse_complex(row);
    }
    if (c->inplace) {
        return check_inplace(row, c->out) < 0 || (grad_recording() && check_keeping(c) < 0) ? -1 : keep_original(c);
    }
    if (grad_recording() && any_requires_grad(c)) {
        PyErr_Format(PyExc_RuntimeError, OUT_NEEDS_GRAD, row->name);
        return -1;
    }
    for (int i = 0; i < c->nout; i++) {
        if (check_writable(output_of(c, i), row->name) < 0 || check_inference(row, output_of(c, i), "(out=)") < 0) {
            return -1;
        }
    }
    return 0;
}

/* Whether t is an argument or a view of one: in inference mode it is then what that argument is. */
static bool is_of_argument(const OpCall *c, const Tensor *t) {
    for (int i = 0; i < c->row->nparams; i++) {
        const int n = c->arg[i].kind == ARG_TENSOR ? 1 : c->arg[i].kind == ARG_TENSORS ? c->arg[i].n : 0;
        Tensor *const *given = c->arg[i].kind == ARG_TENSOR ? &c->arg[i].t : c->arg[i].ts;
        for (int k = 0; k < n; k++) {
            if (given[k]->st == t->st) {
                return true;
            }
        }
    }
    return false;
}

/* mode: amp_mode as it is now. */
static PyObject *run_core(OpCall *c, int narg, ClassFn run, uint8_t mode) {
    const OpRow *row = c->row;
    if (c->out && check_destination(c) < 0) {
        goto fail;
    }
    if (run(c) < 0 || (c->nout && outputs_deliver(c) < 0)) {
        goto fail;
    }
    if (mode & MODE_INFERENCE && !c->out && !c->object) {
        for (int i = 0; i < c->nresult; i++) {
            if (!is_of_argument(c, c->result[i])) {
                c->result[i]->flags |= TENSOR_INFERENCE;
            }
        }
    }
    if (row->derivative == d_composite) {
        node_show_as(row, c);
    } else if (!c->object && node_record(row, c, c->arg, narg) < 0) {
        goto fail;
    }
    for (int i = 0; i < c->nout && !c->inplace; i++) {
        tensor_bump(output_of(c, i));
    }
    Py_XDECREF(c->original);
    return pack_results(c);
fail:
    Py_XDECREF(c->original);
    for (int i = 0; i < c->nresult; i++) {
        Py_XDECREF(c->result[i]);
    }
    Py_XDECREF(c->object);
    return NULL;
}

/* The way with a feature on. Kept apart so that the common way stays short. */
static PyObject *run_with_mode(OpCall *c) {
    uint8_t mode = amp_mode;
    AutocastKeep keep;
    keep.t = keep.few;
    keep.list = NULL;
    keep.n = 0;
    bool autocast = mode & (MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA) && !c->out;
    if (c->out && !c->inplace) {
        amp_mode &= (uint8_t) ~(MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA); /* nor are the ops that a composite one calls */
    }
    PyObject *row = NULL, *result = NULL;
    if (mode & MODE_OBSERVER && observer_begin(c, &row) < 0) {
        amp_mode = mode;
        return NULL;
    }
    if ((!autocast || autocast_apply(c->row, c->arg, &keep) == 0) && (keep.n == 0 || observer_casts_done(row, c) == 0)) {
        result = run_core(c, c->row->nparams, mode & MODE_SELECT ? selective_run : c->row->run, mode);
    }
    result = row ? observer_end(row, result) : result;
    amp_mode = (uint8_t)((mode & ~MODE_OBSERVER) | (amp_mode & MODE_OBSERVER)); /* a hook may have begun or ended a report */
    autocast_keep_done(&keep);
    return result;
}

PyObject *run_op(const OpRow *row, Arg *arg, bool inplace) {
    OpCall c = {.row = row, .arg = arg, .inplace = inplace};
    if (inplace) {
        c.out = arg[0].t;
        c.nout = 1;
    } else if (row->out_index >= 0 && arg[row->out_index].kind != ARG_NONE) {
        outputs_find(&c);
    }
    return amp_mode ? run_with_mode(&c) : run_core(&c, row->nparams, row->run, 0);
}

Tensor *run_op_tensor(OpId op, Arg *arg) {
    PyObject *o = run_op(&amp_rows[op], arg, false);
    if (o && PyTuple_Check(o)) {
        PyObject *first = Py_NewRef(PyTuple_GET_ITEM(o, 0));
        Py_DECREF(o);
        return (Tensor *)first;
    }
    return (Tensor *)o;
}
