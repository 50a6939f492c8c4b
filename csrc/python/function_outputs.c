/* What becomes of the tensors that a custom Function's forward returns.
 *
 *   made by forward         the node's output
 *   an input, changed       the node's output; where it is a view, the write becomes a node on its base
 *   an input as it was,     a view that only the node knows the history of, until the memory that it shows is written to
 *   or a view of something */
#include "../core/autocast.h"
#include "function_context.h"
#include "saved_hooks.h"

/* Position of t in a tuple by identity, -1 if absent or the tuple is NULL. */
static Py_ssize_t position(PyObject *tuple, const PyObject *t) {
    for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple); i++) {
        if (PyTuple_GET_ITEM(tuple, i) == t) {
            return i;
        }
    }
    return -1;
}

/* A node for nout outputs that takes over the edges of `first`. */
static Node *with_outputs(Node *first, int nout) {
    if (nout == 1) {
        return (Node *)Py_NewRef((PyObject *)first);
    }
    Node *node = node_new(NODE_FUNCTION, first->nin, nout, 0);
    for (int i = 0; node && i < node->nin; i++) {
        node->edge[i] = first->edge[i];
        first->edge[i] = (Edge){NULL, 0};
        node->in[i] = first->in[i];
        if (first->in[i].shape == first->in[i].inline_shape) {
            node->in[i].shape = node->in[i].inline_shape;
        } else {
            first->in[i].shape = first->in[i].inline_shape;
        }
    }
    return node;
}

/* The write to it shall be recorded as one to its base. */
static int check_dirty_view(const Tensor *t, PyObject *args, Py_ssize_t noutputs) {
    const char *wrong =
        tensor_views_leaf(t)
            ? "a view of a leaf Variable that requires grad is being used in an in-place operation by a custom Function"
        : noutputs > 1 ? "a custom Function modifies inplace an input that is a view, and returns more than one tensor: "
                         "such a write is recorded alone"
        : position(args, (const PyObject *)t) < 0 ? "a view was marked as dirty by a custom Function, but is no argument of it"
        : t->flags & (TENSOR_FUNCTION_VIEW | TENSOR_NO_GRAD_VIEW | TENSOR_IS_DATA)
            ? "a view that a custom Function returned, or that was made under no_grad() or of .data, is being modified "
              "inplace by a custom Function: its base would not see the write"
            : NULL;
    if (wrong) {
        PyErr_Format(PyExc_RuntimeError, "%s. Clone the view first", wrong);
        return -1;
    }
    return 0;
}

static int check_dirty(const Context *ctx, PyObject *args, PyObject *outputs, bool recorded) {
    for (Py_ssize_t i = 0; ctx->dirty && i < PyTuple_GET_SIZE(ctx->dirty); i++) {
        PyObject *o = PyTuple_GET_ITEM(ctx->dirty, i);
        if (!tensor_check(o)) {
            PyErr_Format(PyExc_TypeError, "mark_dirty takes input tensors, not %s", Py_TYPE(o)->tp_name);
            return -1;
        }
        Tensor *t = (Tensor *)o;
        if (position(outputs, o) < 0) {
            PyErr_SetString(
                PyExc_RuntimeError,
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
                "modified inplace must all be outputs of the Function.");
            return -1;
        }
        if (t->base && recorded && check_dirty_view(t, args, PyTuple_GET_SIZE(outputs)) < 0) {
            return -1;
        }
        if (t->flags & TENSOR_REQUIRES_GRAD && !t->fn && amp_grad_enabled) {
            PyErr_SetString(
                PyExc_RuntimeError,
                "a leaf Variable that requires grad is being used in an in-place operation by a custom Function. Clone it first");
            return -1;
        }
    }
    return 0;
}

static void count_writes(const Context *ctx) {
    for (Py_ssize_t i = 0; ctx->dirty && i < PyTuple_GET_SIZE(ctx->dirty); i++) {
        tensor_bump((Tensor *)PyTuple_GET_ITEM(ctx->dirty, i));
    }
}

static void set_history(Tensor *t, Node *node, int nr) {
    Py_XSETREF(t->fn, (Node *)Py_NewRef((PyObject *)node));
    t->out_nr = (uint32_t)nr;
    t->fn_version = t->st->version;
    t->flags &= (uint8_t)~TENSOR_REQUIRES_GRAD;
    if (!PyObject_GC_IsTracked((PyObject *)t)) {
        PyObject_GC_Track((PyObject *)t);
    }
}

/* t was written to: it is an output of node now, or, where that is NULL, has no history any more. 0 or -1. */
static int change_history(Tensor *t, Node *node, int nr) {
    if (!node) {
        Py_CLEAR(t->fn);
        t->out_nr = 0;
        return 0;
    }
    if (t->flags & TENSOR_RETAINS_GRAD && node_move_retain(t, node, (uint32_t)nr) < 0) {
        return -1;
    }
    set_history(t, node, nr);
    return 0;
}

/* A view of t, which is an input that forward returned as it was. New reference. */
static Tensor *view_of_input(Tensor *t) {
    Tensor *view = tensor_shallow(t);
    if (view) {
        node_link_view(view, t);
    }
    return view;
}

/* What apply returns for an output where nothing is recorded. An input that needs a gradient goes on without it. New reference. */
static PyObject *wrap_unrecorded(const Context *ctx, PyObject *args, PyObject *o) {
    if (!tensor_check(o) || position(args, o) < 0 || position(ctx->dirty, o) >= 0) {
        return Py_NewRef(o);
    }
    Tensor *t = (Tensor *)o;
    return (PyObject *)(tensor_requires_grad(t) ? tensor_shallow(t) : view_of_input(t));
}

/* What apply returns for output nr of the node. New reference. `outputs` has those before. */
static PyObject *wrap_output(Context *ctx, PyObject *args, PyObject *raw, PyObject *outputs, Node *node, int nr) {
    PyObject *o = PyTuple_GET_ITEM(raw, nr);
    if (!tensor_check(o)) {
        node->out[nr].ndim = -1;
        return Py_NewRef(o);
    }
    if (meta_set(&node->out[nr], (Tensor *)o) < 0) {
        return NULL;
    }
    Tensor *t = (Tensor *)o;
    Py_ssize_t first = position(raw, o);
    if (first < nr && PyTuple_GET_ITEM(outputs, first) == o) { /* returned twice: the last one counts */
        if (t->fn == node) {
            t->out_nr = (uint32_t)nr;
        }
        return Py_NewRef(o);
    }
    bool fixed = position(ctx->non_differentiable, o) >= 0 || !amp_is_floating(t->v.dtype);
    if (position(ctx->dirty, o) >= 0) {
        if (!fixed && t->base && node_write_view(t, node, (int)position(args, o)) < 0) {
            return NULL;
        }
        if (!t->base && change_history(t, fixed ? NULL : node, nr) < 0) {
            return NULL;
        }
        return Py_NewRef(o);
    }
    bool given = position(args, o) >= 0,
         foreign = given || tensor_requires_grad(t); /* someone else's: it keeps its own history */
    Tensor *out = !foreign ? (Tensor *)Py_NewRef(o) : fixed || (!given && !t->base) ? tensor_shallow(t) : view_of_input(t);
    if (out && !fixed) {
        set_history(out, node, nr);
        out->flags &= (uint8_t)~TENSOR_NO_GRAD_VIEW;
        out->flags |= out->base ? TENSOR_FUNCTION_VIEW : 0;
    }
    return (PyObject *)out;
}

/* Turns to_save into kept. `raw`: the outputs as forward returned them. */
static int keep_saved(Context *ctx, PyObject *args, PyObject *raw, Node *node) {
    Py_ssize_t n = ctx->to_save ? PyTuple_GET_SIZE(ctx->to_save) : 0;
    if (n == 0) {
        return 0;
    }
    ctx->kept = PyMem_Calloc((size_t)n, sizeof *ctx->kept);
    if (!ctx->kept) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GET_ITEM(ctx->to_save, i);
        Kept *k = &ctx->kept[ctx->nkept++];
        k->output = -1;
        if (o == Py_None) {
            continue;
        }
        Tensor *t = (Tensor *)o;
        if (t->flags & TENSOR_INFERENCE) {
            PyErr_Format(
                PyExc_RuntimeError,
                "Inference tensors cannot be saved for backward, and argument %zd of save_for_backward is one. Make a clone() "
                "outside inference mode and use that",
                i);
            return -1;
        }
        k->version = t->st->version;
        k->output = position(ctx->non_differentiable, o) >= 0 || !amp_is_floating(t->v.dtype) ? -1 : (int)position(raw, o);
        if (k->output >= 0 && !(t->base && position(ctx->dirty, o) >= 0)) {
            /* -1: an input that was returned as it is: its history is its own */
            k->output = t->fn == node ? (int)t->out_nr : -1;
        }
        if (saved_hooks_want(t)) {
            k->input = (int)position(args, o);
            k->packed = saved_pack(t, k->output >= 0 ? node : NULL, k->output);
        } else {
            k->t = k->output >= 0 ? tensor_shallow(t) : (Tensor *)Py_NewRef(o);
        }
        if (!k->t && !k->packed) {
            return -1;
        }
    }
    return 0;
}

PyObject *function_finish(Context *ctx, PyObject *args, PyObject *raw, Node *first) {
    Py_ssize_t n = PyTuple_GET_SIZE(raw);
    Node *node = NULL;
    PyObject *outputs = NULL;
    if (n > UINT8_MAX) {
        PyErr_Format(PyExc_RuntimeError, "%s returned %zd outputs: at most 255 can be recorded", Py_TYPE(ctx)->tp_name, n);
        return NULL;
    }
    if (check_dirty(ctx, args, raw, first != NULL) < 0 || (first && n && !(node = with_outputs(first, (int)n)))) {
        return NULL;
    }
    if (node) {
        node->context = Py_NewRef((PyObject *)ctx);
        count_writes(ctx); /* before all else: views among the outputs are right as from now on */
    }
    outputs = PyTuple_New(n);
    for (Py_ssize_t i = 0; outputs && i < n; i++) {
        PyObject *o = node ? wrap_output(ctx, args, raw, outputs, node, (int)i)
                           : wrap_unrecorded(ctx, args, PyTuple_GET_ITEM(raw, i));
        if (!o) {
            Py_CLEAR(outputs);
            break;
        }
        PyTuple_SET_ITEM(outputs, i, o);
    }
    if (outputs && node && keep_saved(ctx, args, raw, node) < 0) {
        Py_CLEAR(outputs);
    }
    Py_CLEAR(ctx->to_save); /* kept, or not needed where nothing is recorded */
    Py_CLEAR(ctx->dirty);
    Py_CLEAR(ctx->non_differentiable);
    Py_XDECREF(node);
    return outputs;
}

/* A view of a custom Function was written over: as_strided of the base would pass by the Function's derivative, and its own node passes
 * by the write's. */
int function_refuse_stale(const Tensor *t) {
    PyObject *name = t->fn ? node_name(t->fn) : PyUnicode_FromString("a view");
    if (name) {
        PyErr_Format(
            PyExc_RuntimeError,
            "Output %u of %U is a view and its base or another view of its base has been modified inplace since: a custom "
            "Function returned it, whose backward knows nothing of that write. Return a clone from forward, or clone "
            "before the write",
            t->out_nr, name);
        Py_DECREF(name);
    }
    return -1;
}
