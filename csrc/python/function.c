/* autograd.Function: a node whose derivative is a Python method.
 *
 *   Foo.apply(x, 2, w)   args      x    2    w        one edge per argument, empty for what is no tensor
 *                        node   edge0 edge1 edge2
 *                        ctx = an instance of Foo, the node's context
 *
 * The ctx keeps what save_for_backward was given. An own output would tie a knot (ctx -> output -> node -> ctx), so it is kept as an alias
 * without history, which gets the history back while the backward method runs. */
#include <stddef.h>
#include <string.h>

#include "../core/autocast.h"
#include "function_context.h"
#include "saved_hooks.h"

static PyTypeObject *base_type;
static PyObject *default_setup; /* _FunctionBase.setup_context: not overridden */
static PyObject *default_vjp;   /* _FunctionBase.vjp */
static PyObject *str_setup_context, *str_forward, *str_backward, *str_vjp;

/* ---- the ctx object ---- */

static void drop_kept(Context *ctx) {
    Kept *kept = ctx->kept;
    int n = ctx->nkept;
    ctx->kept = NULL;
    ctx->nkept = 0;
    for (int i = 0; i < n; i++) {
        Py_XDECREF(kept[i].t);
        Py_XDECREF(kept[i].packed);
    }
    PyMem_Free(kept);
}

static int context_traverse(PyObject *self, visitproc visit, void *arg) {
    Context *ctx = (Context *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(ctx->to_save);
    Py_VISIT(ctx->dirty);
    Py_VISIT(ctx->non_differentiable);
    Py_VISIT(ctx->needs_input_grad);
    for (int i = 0; i < ctx->nkept; i++) {
        Py_VISIT(ctx->kept[i].t);
        Py_VISIT(ctx->kept[i].packed);
    }
    return 0;
}

static int context_clear(PyObject *self) {
    Context *ctx = (Context *)self;
    Py_CLEAR(ctx->to_save);
    Py_CLEAR(ctx->dirty);
    Py_CLEAR(ctx->non_differentiable);
    Py_CLEAR(ctx->needs_input_grad);
    drop_kept(ctx);
    return 0;
}

static void context_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    context_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static Context *context_make(PyTypeObject *type) {
    Context *ctx = (Context *)type->tp_alloc(type, 0);
    if (ctx) {
        ctx->materialize = true;
    }
    return ctx;
}

/* An instance that a user makes, about which Function.__init__ warns: a context that no node has. */
static PyObject *context_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    return (PyObject *)context_make(type);
}

static int store_tuple(PyObject **slot, PyObject *args) {
    Py_XSETREF(*slot, Py_NewRef(args));
    return 0;
}

static PyObject *save_for_backward(PyObject *self, PyObject *args) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        PyObject *o = PyTuple_GET_ITEM(args, i);
        if (o != Py_None && !tensor_check(o)) {
            PyErr_Format(
                PyExc_TypeError,
                "save_for_backward can only save variables, but argument %zd is of type %s: keep it as an attribute of ctx", i,
                Py_TYPE(o)->tp_name);
            return NULL;
        }
    }
    store_tuple(&((Context *)self)->to_save, args);
    Py_RETURN_NONE;
}

static PyObject *mark_dirty(PyObject *self, PyObject *args) {
    store_tuple(&((Context *)self)->dirty, args);
    Py_RETURN_NONE;
}

static PyObject *mark_non_differentiable(PyObject *self, PyObject *args) {
    store_tuple(&((Context *)self)->non_differentiable, args);
    Py_RETURN_NONE;
}

static PyObject *save_for_forward(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args)) { Py_RETURN_NONE; }

static PyObject *set_materialize_grads(PyObject *self, PyObject *value) {
    int on = PyObject_IsTrue(value);
    if (on < 0) {
        return NULL;
    }
    ((Context *)self)->materialize = on;
    Py_RETURN_NONE;
}

static PyObject *unpack_hooked(Context *ctx, const Kept *k) {
    if (!ctx->running || (k->output < 0 && k->input < 0)) {
        return (PyObject *)saved_unpack(k->packed, NULL);
    }
    if (k->output < 0) {
        return (PyObject *)saved_unpack(k->packed, &ctx->running->edge[k->input]);
    }
    Edge own = {NULL, (uint32_t)k->output};
    own.to = (PyObject *)node_output_history(ctx->running, ctx->slices, &own.nr);
    PyObject *t = own.to ? (PyObject *)saved_unpack(k->packed, &own) : NULL;
    Py_XDECREF(own.to);
    return t;
}

/* What a Kept stands for: the tensor, or an own output with its history while the node runs. New reference. */
static PyObject *unpack(Context *ctx, const Kept *k) {
    if (k->packed) {
        return unpack_hooked(ctx, k);
    }
    if (!k->t) {
        Py_RETURN_NONE;
    }
    if (k->t->st->version != k->version) {
        PyObject *text = tensor_describe(k->t);
        if (text) {
            PyErr_Format(PyExc_RuntimeError,
                         "one of the variables needed for gradient computation has been modified by an inplace operation: a %U "
                         "saved by %s is at version %u; "
                         "expected version %u instead. Save a clone of it",
                         text, Py_TYPE(ctx)->tp_name, k->t->st->version, k->version);
            Py_DECREF(text);
        }
        return NULL;
    }
    if (k->output < 0) {
        return Py_NewRef((PyObject *)k->t);
    }
    Tensor *t = tensor_shallow(k->t);
    if (t && ctx->running) {
        t->out_nr = (uint32_t)k->output;
        t->fn = node_output_history(ctx->running, ctx->slices, &t->out_nr);
        if (!PyObject_GC_IsTracked((PyObject *)t)) {
            PyObject_GC_Track((PyObject *)t);
        }
        if (!t->fn) {
            Py_CLEAR(t);
        }
    }
    return (PyObject *)t;
}

static PyObject *get_saved_tensors(PyObject *self, void *Py_UNUSED(closure)) {
    Context *ctx = (Context *)self;
    if (ctx->released) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
            "freed). Specify retain_graph=True if you need to backward through the graph a second time");
        return NULL;
    }
    if (!ctx->kept && ctx->to_save) { /* still inside forward */
        return Py_NewRef(ctx->to_save);
    }
    PyObject *tuple = PyTuple_New(ctx->nkept);
    for (int i = 0; tuple && i < ctx->nkept; i++) {
        PyObject *t = unpack(ctx, &ctx->kept[i]);
        if (!t) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, t);
    }
    return tuple;
}

static PyObject *or_none(PyObject *o) { return Py_NewRef(o ? o : Py_None); }

static PyObject *get_needs_input_grad(PyObject *self, void *Py_UNUSED(closure)) {
    return or_none(((Context *)self)->needs_input_grad);
}

static int set_needs_input_grad(PyObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    Py_XSETREF(((Context *)self)->needs_input_grad, Py_XNewRef(value));
    return 0;
}

static PyObject *get_to_save(PyObject *self, void *Py_UNUSED(closure)) { return or_none(((Context *)self)->to_save); }

static PyObject *get_materialize(PyObject *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(((Context *)self)->materialize);
}

/* ---- apply ---- */

static PyObject *needs_of(PyObject *args, bool *any) {
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    PyObject *needs = PyTuple_New(n);
    *any = false;
    for (Py_ssize_t i = 0; needs && i < n; i++) {
        PyObject *o = PyTuple_GET_ITEM(args, i);
        bool need = tensor_check(o) && tensor_requires_grad((Tensor *)o);
        *any |= need;
        PyTuple_SET_ITEM(needs, i, PyBool_FromLong(need));
    }
    return needs;
}

/* Whether a new-style forward has to be asked for the defaults of parameters that n arguments leave out: setup_context gets them too. */
static bool has_more(PyObject *forward, Py_ssize_t n) {
    if (!PyFunction_Check(forward)) {
        return true;
    }
    const PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(forward);
    return n < code->co_argcount || (code->co_flags & CO_VARARGS && PyObject_HasAttrString(forward, "__wrapped__"));
}

/* All arguments of forward in its order; args and kwargs (may be NULL) as apply got them. New tuple. */
static PyObject *bind_arguments(PyObject *cls, bool with_ctx, PyObject *forward, PyObject *args, PyObject *kwargs) {
    if (!(kwargs && PyDict_GET_SIZE(kwargs)) && (with_ctx || !has_more(forward, PyTuple_GET_SIZE(args)))) {
        return Py_NewRef(args);
    }
    PyObject *module = PyImport_ImportModule("ampnative.autograd.function");
    PyObject *bound = module ? PyObject_CallMethod(module, "_bind_arguments", "OOOOO", cls, with_ctx ? Py_True : Py_False,
                                                   forward, args, kwargs ? kwargs : Py_None)
                             : NULL;
    Py_XDECREF(module);
    return bound;
}

/* Calls forward, old style with ctx as its first argument or new style with setup (else NULL) behind it; nothing is recorded. */
static PyObject *run_forward(PyObject *forward, PyObject *setup, Context *ctx, PyObject *args) {
    uint8_t recording = amp_grad_enabled;
    PyObject *result = NULL;
    amp_grad_enabled = 0;
    if (!setup) {
        Py_ssize_t n = PyTuple_GET_SIZE(args);
        PyObject *with_ctx = PyTuple_New(n + 1);
        for (Py_ssize_t i = 0; with_ctx && i <= n; i++) {
            PyTuple_SET_ITEM(with_ctx, i, Py_NewRef(i ? PyTuple_GET_ITEM(args, i - 1) : (PyObject *)ctx));
        }
        result = with_ctx ? PyObject_CallObject(forward, with_ctx) : NULL;
        Py_XDECREF(with_ctx);
    } else if ((result = PyObject_CallObject(forward, args))) {
        PyObject *none = PyObject_CallFunctionObjArgs(setup, (PyObject *)ctx, args, result, NULL);
        if (!none) {
            Py_CLEAR(result);
        }
        Py_XDECREF(none);
    }
    amp_grad_enabled = recording;
    return result;
}

/* The node with its edges, made before forward runs: an input changed in place still has its old history then. */
static Node *make_node(PyObject *args) {
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    Node *node = node_new(NODE_FUNCTION, (int)n, 1, 0);
    for (Py_ssize_t i = 0; node && i < n; i++) {
        PyObject *o = PyTuple_GET_ITEM(args, i);
        if (!tensor_check(o)) {
            node->in[i].dtype = NO_TENSOR;
        } else if (edge_set(&node->edge[i], (Tensor *)o) < 0 || meta_set(&node->in[i], (Tensor *)o) < 0) {
            Py_CLEAR(node);
        }
    }
    if (node) {
        node_date(node);
    }
    return node;
}

/* apply with all arguments in forward's order. */
static PyObject *apply_bound(PyObject *cls, PyObject *forward, PyObject *setup, PyObject *args) {
    bool any;
    PyObject *result = NULL, *raw = NULL, *outputs = NULL;
    Node *first = NULL;
    Context *ctx = context_make((PyTypeObject *)cls);
    if (!ctx || !(ctx->needs_input_grad = needs_of(args, &any))) {
        goto done;
    }
    if (any && amp_grad_enabled && !(first = make_node(args))) {
        goto done;
    }
    if (!(result = run_forward(forward, setup, ctx, args))) {
        goto done;
    }
    raw = PyTuple_Check(result) ? Py_NewRef(result) : PyTuple_Pack(1, result);
    outputs = raw ? function_finish(ctx, args, raw, first) : NULL;
    if (outputs && !PyTuple_Check(result)) {
        Py_SETREF(outputs, Py_NewRef(PyTuple_GET_ITEM(outputs, 0)));
    }
done:
    Py_XDECREF(first);
    Py_XDECREF(raw);
    Py_XDECREF(result);
    Py_XDECREF(ctx);
    return outputs;
}

static PyObject *function_apply(PyObject *cls, PyObject *args, PyObject *kwargs) {
    PyObject *setup = PyObject_GetAttr(cls, str_setup_context);
    PyObject *forward = setup ? PyObject_GetAttr(cls, str_forward) : NULL;
    bool with_ctx = setup == default_setup;
    PyObject *bound = forward ? bind_arguments(cls, with_ctx, forward, args, kwargs) : NULL;
    PyObject *outputs = bound ? apply_bound(cls, forward, with_ctx ? NULL : setup, bound) : NULL;
    Py_XDECREF(bound);
    Py_XDECREF(forward);
    Py_XDECREF(setup);
    return outputs;
}

/* ---- backward ---- */

/* The gradient of output k as the method sees it: zeros or None where it is undefined. New reference. */
static PyObject *incoming(const Context *ctx, const Node *n, int k, Tensor *g) {
    const TensorMeta *m = &n->out[k];
    if (g) {
        return Py_NewRef((PyObject *)g);
    }
    if (!ctx->materialize || m->ndim < 0) {
        Py_RETURN_NONE;
    }
    Tensor *zeros = tensor_new(m->ndim, m->shape, m->dtype, m->device);
    if (zeros && m->device != AMP_META) {
        memset(zeros->v.data, 0, (size_t)zeros->v.numel * amp_itemsize(m->dtype));
    }
    return (PyObject *)zeros;
}

/* The method of a class, which may be written as backward or as vjp, not both. New reference. */
static PyObject *backward_of(PyObject *cls) {
    PyObject *method = PyObject_GetAttr(cls, str_backward), *vjp = method ? PyObject_GetAttr(cls, str_vjp) : NULL;
    if (vjp && vjp != default_vjp) {
        PyObject *module = PyImport_ImportModule("ampnative.autograd.function");
        PyObject *function = module ? PyObject_GetAttrString(module, "Function") : NULL;
        PyObject *inherited = function ? PyObject_GetAttrString(function, "backward") : NULL;
        if (inherited && inherited != method) {
            PyErr_Format(PyExc_RuntimeError,
                         "Implementing both 'backward' and 'vjp' for a custom Function is not allowed: %s has both. Leave one of "
                         "them out",
                         ((PyTypeObject *)cls)->tp_name);
        }
        Py_XDECREF(inherited);
        Py_XDECREF(function);
        Py_XDECREF(module);
        if (PyErr_Occurred()) {
            Py_CLEAR(vjp);
        }
    }
    if (!vjp) {
        Py_CLEAR(method);
    }
    Py_XDECREF(vjp);
    return method;
}

static PyObject *call_backward(Context *ctx, Node *n, Node *slices, Tensor **g_out) {
    PyObject *method = backward_of((PyObject *)Py_TYPE(ctx)), *result = NULL;
    PyObject *args = method ? PyTuple_New(n->nout + 1) : NULL;
    if (!args) {
        goto done;
    }
    PyTuple_SET_ITEM(args, 0, Py_NewRef((PyObject *)ctx));
    for (int k = 0; k < n->nout; k++) {
        PyObject *g = incoming(ctx, n, k, g_out[k]);
        if (!g) {
            goto done;
        }
        PyTuple_SET_ITEM(args, k + 1, g);
    }
    Node *outer = ctx->running, *outer_slices = ctx->slices;
    ctx->running = n;
    ctx->slices = slices;
    result = PyObject_CallObject(method, args);
    ctx->running = outer;
    ctx->slices = outer_slices;
done:
    Py_XDECREF(args);
    Py_XDECREF(method);
    return result;
}

/* Distributes what the method returned. Trailing None beyond the arguments are allowed. */
static int store_gradients(Node *n, PyObject *returned, Tensor **grad) {
    const char *name = Py_TYPE(n->context)->tp_name;
    Py_ssize_t count = PyTuple_GET_SIZE(returned);
    while (count > n->nin && PyTuple_GET_ITEM(returned, count - 1) == Py_None) {
        count--;
    }
    if (count != n->nin) {
        PyErr_Format(PyExc_RuntimeError,
                     "function %sBackward returned an incorrect number of gradients (expected %d, got %zd): one per argument of "
                     "forward, None "
                     "where there is none",
                     name, n->nin, PyTuple_GET_SIZE(returned));
        return -1;
    }
    for (int i = 0; i < n->nin; i++) {
        PyObject *g = PyTuple_GET_ITEM(returned, i);
        if (g == Py_None) {
            continue;
        }
        if (n->in[i].dtype == NO_TENSOR) {
            PyErr_Format(
                PyExc_RuntimeError,
                "function %sBackward returned a gradient different than None at position %d, but the corresponding forward "
                "input was not a Variable: return None for what is no tensor",
                name, i + 1);
            return -1;
        }
        if (!tensor_check(g)) {
            PyErr_Format(PyExc_RuntimeError, "function %sBackward: expected Variable or None (got %s) as gradient %d", name,
                         Py_TYPE(g)->tp_name, i);
            return -1;
        }
        if (n->edge[i].to) {
            grad[i] = (Tensor *)Py_NewRef(g);
        }
    }
    return 0;
}

int function_backward(Node *n, Node *slices, Tensor **g_out, Tensor **grad, bool create_graph) {
    Context *ctx = (Context *)n->context;
    uint8_t recording = amp_grad_enabled;
    amp_grad_enabled = create_graph;
    PyObject *result = call_backward(ctx, n, slices, g_out);
    amp_grad_enabled = recording;
    if (!result) {
        return -1;
    }
    PyObject *returned = PyTuple_Check(result) ? Py_NewRef(result) : PyTuple_Pack(1, result);
    int failed = returned ? store_gradients(n, returned, grad) : -1;
    Py_XDECREF(returned);
    Py_DECREF(result);
    return failed;
}

void function_release(Node *n) {
    Context *ctx = (Context *)n->context;
    if (ctx->kept) {
        ctx->released = true;
        drop_kept(ctx);
    }
}

/* ---- the type ---- */

static PyObject *setup_context(PyObject *Py_UNUSED(ignored), PyObject *Py_UNUSED(args)) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "setup_context is not defined: write it as a static method (ctx, inputs, output), or let forward take ctx");
    return NULL;
}

static PyObject *no_vjp(PyObject *Py_UNUSED(ignored), PyObject *Py_UNUSED(args)) {
    PyErr_SetString(PyExc_NotImplementedError, "vjp is not defined: write it as a static method (ctx, *grads), or call backward");
    return NULL;
}

static PyMethodDef context_methods[] = {
    {"apply", (PyCFunction)(void (*)(void))function_apply, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "apply($type, *args, **kwargs)\n--\n\nRuns forward and records the Function as one node. Backward's gradients are in the "
     "order of "
     "forward's parameters, however they were given."},
    {"setup_context", setup_context, METH_VARARGS | METH_STATIC,
     "setup_context(ctx, inputs, output, /)\n--\n\nFills ctx behind a forward that does not take it."},
    {"vjp", no_vjp, METH_VARARGS | METH_STATIC,
     "vjp(ctx, /, *grads)\n--\n\nAnother name for backward: a Function has one of them."},
    {"save_for_backward", save_for_backward, METH_VARARGS,
     "save_for_backward($self, *tensors)\n--\n\nKeeps tensors (or None) for backward; call it once."},
    {"save_for_forward", save_for_forward, METH_VARARGS,
     "save_for_forward($self, *tensors)\n--\n\nAccepted; there is no forward-mode differentiation."},
    {"mark_dirty", mark_dirty, METH_VARARGS,
     "mark_dirty($self, *tensors)\n--\n\nNames inputs that forward changed in place; they must be returned."},
    {"mark_non_differentiable", mark_non_differentiable, METH_VARARGS,
     "mark_non_differentiable($self, *tensors)\n--\n\nNames outputs that have no gradient."},
    {"set_materialize_grads", set_materialize_grads, METH_O,
     "set_materialize_grads($self, value, /)\n--\n\nFalse: backward gets None instead of zeros for outputs without gradient."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef context_getset[] = {
    {"saved_tensors", get_saved_tensors, NULL, "What save_for_backward was given.", NULL},
    {"needs_input_grad", get_needs_input_grad, set_needs_input_grad, "One bool per argument of forward; may be replaced.", NULL},
    {"to_save", get_to_save, NULL, "What was given to save_for_backward so far.", NULL},
    {"materialize_grads", get_materialize, NULL, "Whether undefined gradients reach backward as zeros.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

int function_init(PyObject *module) {
    PyType_Slot slots[] = {
        {Py_tp_new, context_new},
        {Py_tp_dealloc, context_dealloc},
        {Py_tp_traverse, context_traverse},
        {Py_tp_clear, context_clear},
        {Py_tp_methods, context_methods},
        {Py_tp_getset, context_getset},
        {Py_tp_doc, "Base of autograd.Function and its ctx objects."},
        {0, NULL},
    };
    PyType_Spec spec = {.name = "ampnative._C._FunctionBase",
                        .basicsize = sizeof(Context),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                        .slots = slots};
    base_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    if (!base_type || PyModule_AddType(module, base_type) < 0) {
        return -1;
    }
    default_setup = PyObject_GetAttrString((PyObject *)base_type, "setup_context");
    str_setup_context = PyUnicode_InternFromString("setup_context");
    str_forward = PyUnicode_InternFromString("forward");
    str_backward = PyUnicode_InternFromString("backward");
    str_vjp = PyUnicode_InternFromString("vjp");
    if (!str_setup_context || !str_forward || !str_backward || !str_vjp) {
        return -1;
    }
    default_vjp = PyObject_GetAttrString((PyObject *)base_type, "vjp");
    return default_setup && default_vjp ? grad_mode_init(module) : -1;
}
