/* Nodes as Python sees them: grad_fn, the accumulators behind leaves, gradient edges. */
#include "node.h"

#include <stddef.h>
#include <structmember.h>
#include <string.h>

/* The end of a way backward: what next_functions shows for a leaf. Hooks on it belong to the leaf. */
typedef struct Accumulator {
    PyObject_HEAD
    Tensor *leaf;       /* strong */
    PyObject *metadata; /* dict or NULL */
    PyObject *weak;
} Accumulator;

static PyTypeObject *accumulator_type;

/* ---- rare belongings ---- */

PyObject **node_rare_slot(Node *n, int which) {
    if (!n->rare && !(n->rare = PyMem_Calloc(NODE_RARE_COUNT, sizeof *n->rare))) {
        PyErr_NoMemory();
        return NULL;
    }
    return &n->rare[which];
}

int node_move_retain(Tensor *t, Node *to, uint32_t nr) {
    PyObject *list = t->fn ? node_rare(t->fn, RARE_RETAIN) : NULL;
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        PyObject *ref = PyTuple_GET_ITEM(PyList_GET_ITEM(list, i), 1);
        if (PyWeakref_GetObject(ref) != (PyObject *)t) {
            continue;
        }
        PyObject **slot = node_rare_slot(to, RARE_RETAIN), *pair = Py_BuildValue("(kO)", (unsigned long)nr, ref);
        int failed = !slot || !pair || (!*slot && !(*slot = PyList_New(0))) || PyList_Append(*slot, pair) < 0;
        Py_XDECREF(pair);
        return failed ? -1 : PyList_SetSlice(list, i, i + 1, NULL);
    }
    return 0;
}

void node_rare_clear(Node *n) {
    PyObject **rare = n->rare;
    n->rare = NULL;
    for (int i = 0; i < NODE_RARE_COUNT; i++) {
        Py_XDECREF(rare[i]);
    }
    PyMem_Free(rare);
}

static PyObject *made_dict(PyObject **slot) {
    if (slot && !*slot) {
        *slot = PyDict_New();
    }
    return slot ? *slot : NULL;
}

PyObject *node_metadata(Node *n) { return made_dict(node_rare_slot(n, RARE_METADATA)); }

PyObject *register_in(PyObject **slot, PyObject *hook) {
    PyObject *dict = made_dict(slot), *module = dict ? PyImport_ImportModule("ampnative.utils.hooks") : NULL;
    PyObject *handle = module ? PyObject_CallMethod(module, "register", "OO", dict, hook) : NULL;
    Py_XDECREF(module);
    return handle;
}

/* ---- names ---- */

/* PyTorch's derivatives are named after its own ops, which aren't always the ones that users call. */
static const struct {
    uint16_t op;
    const char *name;
} renamed[] = {
    {OP_norm_channels, "NativeBatchNormBackward0"},
    {OP_selu, "EluBackward0"},
    {OP_logsigmoid, "LogSigmoidBackward0"},
    {OP_prelu_kernel, "PreluKernelBackward0"},
    {OP_clamp, "ClampBackward1"},
    {OP_square, "PowBackward0"},
    {OP_fill, "FillBackward2"},
    {OP_copy, "torch::autograd::CopyBackwards"},
    {OP_softsign, "DivBackward0"},
    {OP_div_trunc, "DivBackward2"},
    {OP_div_mode, "DivBackward2"},
    {OP_floor_divide, "NotImplemented"},
    {OP_heaviside, "NotImplemented"},
    {OP_scatter_value, "ScatterBackward1"},
    {OP_layer_norm, "NativeLayerNormBackward0"},
    {OP_rms_norm, "MulBackward0"},
    {OP_group_norm, "NativeGroupNormBackward0"},
    {OP_grid_sample, "GridSampler2DBackward0"},
    {OP_inverse, "LinalgInvExBackward0"},
    {OP_linalg_inv, "LinalgInvExBackward0"},
    {OP_linalg_solve, "LinalgSolveExBackward0"},
    {OP_linalg_cholesky, "LinalgCholeskyExBackward0"},
    {OP_svd, "LinalgSvdBackward0"},
    {OP_logdet, "LinalgSlogdetBackward0"},
    {OP_squeeze_dim, "SqueezeBackward1"},
    {OP_sum_dim, "SumBackward1"},
    {OP_mean_dim, "MeanBackward1"},
    {OP_prod_dim, "ProdBackward1"},
    {OP_max, "MaxBackward1"},
    {OP_min, "MinBackward1"},
    {OP_narrow, "SliceBackward0"},
    {OP_rsub, "RsubBackward1"},
    {OP_attention, "ScaledDotProductFlashAttentionForCpuBackward0"},
};

/* Ops that are made of others here, and of one piece there. */
static const uint16_t whole[] = {
    OP_rms_norm,   OP_layer_norm,       OP_group_norm,      OP_nll_loss,
    OP_bce_logits, OP_smooth_l1_loss,   OP_huber_loss,      OP_stack,
    OP_logsumexp,  OP_pixel_shuffle,    OP_pixel_unshuffle, OP_trace,
    OP_cdist,      OP_linalg_cross,     OP_linalg_solve,    OP_linalg_inv,
    OP_inverse,    OP_linalg_det,       OP_linalg_cholesky, OP_linalg_svd,
    OP_svd,        OP_linalg_qr,        OP_linalg_eigh,     OP_linalg_slogdet,
    OP_logdet,     OP_soft_margin_loss, OP_scatter_value,   OP_scatter,
    OP_renorm,     OP_div_mode,
};

static const char *const shown_names[] = {"SplitBackward0", "SplitWithSizesBackward0", "UnbindBackward0", "RepeatBackward0",
                                          "RollBackward0"}; /* NODE_SHOWN + i */

int node_show_parts(const char *name, PyObject *parts) {
    size_t i = 0;
    while (i < sizeof shown_names / sizeof *shown_names && strcmp(shown_names[i], name) != 0) {
        i++;
    }
    if (i == sizeof shown_names / sizeof *shown_names) {
        PyErr_Format(PyExc_ValueError, "no operation is shown as %s", name);
        return -1;
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(parts); k++) {
        PyObject *part = PyTuple_GET_ITEM(parts, k);
        Node *n = tensor_check(part) ? ((Tensor *)part)->fn : NULL;
        if (n && Py_TYPE(n) == amp_state.node_type) { /* nobody has seen it */
            n->shown = (uint16_t)(NODE_SHOWN + i);
            n->piece = (uint32_t)k;
        }
    }
    return 0;
}

void node_show_as(const OpRow *row, const OpCall *c) {
    if (!grad_recording()) {
        return;
    }
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        for (int k = 0; whole[i] == row->op && k < c->nresult; k++) {
            Node *n = c->result[k] ? c->result[k]->fn : NULL;
            if (n && Py_TYPE(n) == amp_state.node_type) { /* nobody has seen it */
                n->shown = row->op;
            }
        }
    }
}

/* Names that the operands decide: numbers have no edges and no dimensions. */
static const char *name_by_operands(const Node *n) {
    bool left = n->nin > 0 && n->edge[0].to, right = n->nin > 1 && n->edge[1].to, biased = n->nin > 2 && n->in[2].ndim;
    switch (n->shown) {
    case OP_linear:
        if (n->in[0].ndim == 2) {
            return biased ? "AddmmBackward0" : "MmBackward0";
        }
        return n->in[0].ndim > 2 || biased ? "UnsafeViewBackward0" : "SqueezeBackward4";
    case OP_sub: return !left && right && n->in[0].ndim == 0 ? "RsubBackward1" : NULL;
    case OP_pow: return !right ? "PowBackward0" : left || n->in[0].ndim ? "PowBackward1" : "PowBackward2";
    default: return NULL;
    }
}

PyObject *node_name(const Node *n) {
    const char *known = n->shown >= NODE_SHOWN         ? shown_names[n->shown - NODE_SHOWN]
                        : n->shown == NODE_COPY_SLICES ? "torch::autograd::CopySlices"
                                                       : name_by_operands(n);
    if (n->shown == NODE_FUNCTION) {
        return PyUnicode_FromFormat("%sBackward", n->context ? Py_TYPE(n->context)->tp_name : "Function");
    }
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed && !known; i++) {
        known = renamed[i].op == n->shown ? renamed[i].name : NULL;
    }
    if (known) {
        return PyUnicode_FromString(known);
    }
    PyObject *text = PyUnicode_FromString(amp_rows[n->shown].name),
             *title = text ? PyObject_CallMethod(text, "title", NULL) : NULL;
    PyObject *joined = title ? PyObject_CallMethod(title, "replace", "ss", "_", "") : NULL;
    PyObject *name = joined ? PyUnicode_FromFormat("%UBackward0", joined) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(title);
    Py_XDECREF(joined);
    return name;
}

/* ---- types ---- */

static PyObject *type_of_name; /* short name -> subtype of Node; strong */

/* Shown without "builtins.", which the type needs for its __module__. */
static PyTypeObject *named_shortly(PyTypeObject *type) {
    if (type) {
        type->tp_name = strrchr(type->tp_name, '.') + 1;
    }
    return type;
}

/* Subtypes add nothing but their name. */
static PyObject *make_named_type(const char *name) {
    PyType_Slot slots[] = {{Py_tp_dealloc, node_dealloc}, {Py_tp_traverse, node_traverse}, {Py_tp_clear, node_clear}, {0, NULL}};
    char full[200];
    if ((size_t)PyOS_snprintf(full, sizeof full, "builtins.%s", name) >= sizeof full) {
        return Py_NewRef((PyObject *)amp_state.node_type);
    }
    PyType_Spec spec = {
        .name = full,
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpecWithBases(&spec, (PyObject *)amp_state.node_type);
    return (PyObject *)named_shortly(type);
}

PyObject *node_face(Node *n) {
    if (!n || Py_TYPE(n) != amp_state.node_type) {
        return (PyObject *)n;
    }
    PyObject *name = node_name(n), *type = NULL;
    const char *text = name ? PyUnicode_AsUTF8(name) : NULL, *last = text ? strrchr(text, ':') : NULL;
    last = last ? last + 1 : text;
    if (last && (type_of_name || (type_of_name = PyDict_New())) &&
        !(type = Py_XNewRef(PyDict_GetItemString(type_of_name, last)))) {
        type = make_named_type(last);
        if (type && PyDict_SetItemString(type_of_name, last, type) < 0) {
            Py_CLEAR(type);
        }
    }
    Py_XDECREF(name);
    if (!type) {
        Py_DECREF(n);
        return NULL;
    }
    PyTypeObject *before = Py_TYPE(n);
    Py_SET_TYPE(n, (PyTypeObject *)type); /* the reference goes along */
    Py_DECREF(before);
    return (PyObject *)n;
}

/* ---- what both kinds have ---- */

static bool is_node(PyObject *o) { return node_check(o); }
static bool is_accumulator(PyObject *o) { return Py_TYPE(o) == accumulator_type; }

static PyObject *face_name(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return is_node(self) ? node_name((Node *)self) : PyUnicode_FromString("torch::autograd::AccumulateGrad");
}

static PyObject *face_repr(PyObject *self) { return PyUnicode_FromFormat("<%s object at %p>", Py_TYPE(self)->tp_name, self); }

/* The one accumulator of a leaf as long as somebody holds it. New reference. */
static PyObject *accumulator_of(Tensor *leaf) {
    Meta *m = tensor_meta(leaf);
    PyObject *known = m && m->accumulator ? PyObject_CallNoArgs(m->accumulator) : NULL;
    if (!m || (known && known != Py_None)) {
        return known;
    }
    Py_XDECREF(known);
    Accumulator *a = PyErr_Occurred() ? NULL : (Accumulator *)accumulator_type->tp_alloc(accumulator_type, 0);
    if (!a) {
        return NULL;
    }
    a->leaf = (Tensor *)Py_NewRef((PyObject *)leaf);
    Py_XSETREF(m->accumulator, PyWeakref_NewRef((PyObject *)a, NULL));
    if (!m->accumulator) {
        Py_CLEAR(a);
    }
    return (PyObject *)a;
}

static PyObject *face_next(PyObject *self, void *Py_UNUSED(closure)) {
    Node *n = is_node(self) ? (Node *)self : NULL;
    PyObject *tuple = PyTuple_New(n ? node_shown_inputs(n) : 0);
    for (int i = 0, k = 0; tuple && n && i < n->nin; i++) {
        if (!node_input_shown(n, i)) {
            continue;
        }
        PyObject *to = n->edge[i].to;
        PyObject *shown = !to           ? Py_NewRef(Py_None)
                          : is_node(to) ? node_face((Node *)Py_NewRef(to))
                                        : accumulator_of((Tensor *)to);
        uint32_t nr = n->edge[i].nr + (to && is_node(to) ? ((Node *)to)->piece : 0);
        PyObject *pair = shown ? Py_BuildValue("(NI)", shown, nr) : NULL;
        PyTuple_SET_ITEM(tuple, k++, pair);
        if (!pair) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

static PyObject *face_metadata(PyObject *self, void *Py_UNUSED(closure)) {
    return Py_XNewRef(is_node(self) ? node_metadata((Node *)self) : made_dict(&((Accumulator *)self)->metadata));
}

static PyObject *face_requires_grad(PyObject *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(is_node(self) || tensor_requires_grad(((Accumulator *)self)->leaf));
}

/* Where hooks of this kind are kept: with the node, or with the leaf. */
static PyObject **hooks_slot(PyObject *self, bool before) {
    if (is_node(self)) {
        return node_rare_slot((Node *)self, before ? RARE_PRE_HOOKS : RARE_HOOKS);
    }
    Tensor *leaf = ((Accumulator *)self)->leaf;
    Meta *m = tensor_meta(leaf);
    if (m && !PyObject_GC_IsTracked((PyObject *)leaf)) {
        PyObject_GC_Track((PyObject *)leaf);
    }
    return m ? before ? &m->before_accumulating : &m->after_accumulating : NULL;
}

static PyObject *face_register_hook(PyObject *self, PyObject *hook) { return register_in(hooks_slot(self, false), hook); }

static PyObject *face_register_prehook(PyObject *self, PyObject *hook) { return register_in(hooks_slot(self, true), hook); }

static PyObject *face_sequence(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromUnsignedLongLong(is_node(self) ? ((Node *)self)->seq : UINT64_MAX); /* accumulators run at once */
}

static char register_hook_doc[] = "register_hook($self, fn, /)\n--\n\nfn(grad_inputs, grad_outputs), two tuples of Tensors or "
                                  "None, runs after this node and may "
                                  "return a tuple in place of grad_inputs. Returns a handle with remove().";
static char register_prehook_doc[] =
    "register_prehook($self, fn, /)\n--\n\nfn(grad_outputs), a tuple of Tensors or None, runs before this node and may return a "
    "tuple in its place. Returns a handle with remove().";

static PyMethodDef face_methods[] = {
    {"name", face_name, METH_NOARGS, "name($self, /)\n--\n\nThe node's name, such as MulBackward0."},
    {"register_hook", face_register_hook, METH_O, register_hook_doc},
    {"register_prehook", face_register_prehook, METH_O, register_prehook_doc},
    {"_sequence_nr", face_sequence, METH_NOARGS,
     "_sequence_nr($self, /)\n--\n\nNewer nodes have greater numbers, and run first."},
    {NULL, NULL, 0, NULL},
};

static char next_doc[] = "Where the inputs' gradients go: (node, output number) for each, (None, 0) where they go nowhere.";
static char metadata_doc[] = "A dict for whoever wants to note something about the node.";
static char requires_doc[] = "Whether gradients reach it.";

/* ---- nodes ---- */

/* The node of a custom Function also answers what its ctx does: y.grad_fn.saved_tensors, y.grad_fn.anything_set_in_forward. */
static PyObject *node_getattr(PyObject *self, PyObject *name) {
    PyObject *own = PyObject_GenericGetAttr(self, name), *context = ((Node *)self)->context;
    if (own || !context || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return own;
    }
    PyErr_Clear();
    return PyObject_GetAttr(context, name);
}

static PyTypeObject *make_node_type(PyObject *module) {
    static char doc[] = "A recorded operation: the grad_fn of what it made.";
    static PyGetSetDef getset[] = {
        {"next_functions", face_next, NULL, next_doc, NULL},
        {"metadata", face_metadata, NULL, metadata_doc, NULL},
        {"requires_grad", face_requires_grad, NULL, requires_doc, NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyMemberDef members[] = {
        {"__weaklistoffset__", T_PYSSIZET, offsetof(Node, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_clear, node_clear},      {Py_tp_getset, getset},
        {Py_tp_dealloc, node_dealloc},  {Py_tp_doc, doc},
        {Py_tp_methods, face_methods},  {Py_tp_traverse, node_traverse},
        {Py_tp_getattro, node_getattr}, {Py_tp_members, members},
        {Py_tp_repr, face_repr},        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "ampnative.autograd.Node",
        .basicsize = sizeof(Node),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}

/* ---- accumulators ---- */

static int accumulator_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Accumulator *)self)->leaf);
    Py_VISIT(((Accumulator *)self)->metadata);
    return 0;
}

static int accumulator_clear(PyObject *self) {
    Py_CLEAR(((Accumulator *)self)->metadata); /* the leaf stays: methods count on it */
    return 0;
}

static void accumulator_dealloc(PyObject *self) {
    Accumulator *a = (Accumulator *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (a->weak) {
        PyObject_ClearWeakRefs(self);
    }
    Py_XDECREF(a->leaf);
    Py_XDECREF(a->metadata);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyTypeObject *make_accumulator_type(PyObject *module) {
    static char doc[] = "What adds a gradient to .grad of a leaf: the end of next_functions.";
    static PyGetSetDef getset[] = {
        {"next_functions", face_next, NULL, next_doc, NULL},
        {"metadata", face_metadata, NULL, metadata_doc, NULL},
        {"requires_grad", face_requires_grad, NULL, requires_doc, NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyMemberDef members[] = {
        {"variable", T_OBJECT, offsetof(Accumulator, leaf), READONLY, "The leaf."},
        {"__weaklistoffset__", T_PYSSIZET, offsetof(Accumulator, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_clear, accumulator_clear},
        {Py_tp_getset, getset},
        {Py_tp_dealloc, accumulator_dealloc},
        {Py_tp_doc, doc},
        {Py_tp_methods, face_methods},
        {Py_tp_traverse, accumulator_traverse},
        {Py_tp_members, members},
        {Py_tp_repr, face_repr},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "builtins.AccumulateGrad",
        .basicsize = sizeof(Accumulator),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return named_shortly((PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL));
}

/* ---- edges ---- */

bool edge_check(PyObject *o) {
    PyObject *to = PyTuple_Check(o) && PyTuple_GET_SIZE(o) >= 2 ? PyTuple_GET_ITEM(o, 0) : NULL;
    return tensor_check(o) || (to && (is_node(to) || is_accumulator(to)));
}

int edge_parse(PyObject *o, Edge *e, TensorMeta *meta) {
    const Tensor *t = tensor_check(o) ? (Tensor *)o : NULL;
    *e = (Edge){NULL, 0};
    if (t && edge_set(e, (Tensor *)o) < 0) {
        return -1;
    }
    if (!t) {
        PyObject *to = edge_check(o) ? PyTuple_GET_ITEM(o, 0) : NULL;
        if (!to) {
            PyErr_Format(PyExc_TypeError, "backward takes Tensors and gradient edges, not %s", Py_TYPE(o)->tp_name);
            return -1;
        }
        t = is_accumulator(to) ? ((Accumulator *)to)->leaf : NULL;
        unsigned long nr = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(o, 1));
        nr -= t || PyErr_Occurred() ? 0 : ((Node *)to)->piece; /* too small a number becomes a large one */
        if (nr >= (t ? 1u : ((Node *)to)->nout)) {             /* (unsigned long)-1 with an exception is one of these */
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_IndexError, "gradient edge: the node has no output %lu", nr);
            }
            return -1;
        }
        *e = (Edge){Py_NewRef(t ? (PyObject *)(uintptr_t)t : to), (uint32_t)nr};
        if (!t && meta) {
            *meta = ((Node *)to)->out[nr];
        }
    }
    if (t && meta) {
        *meta = (TensorMeta){.ndim = t->v.ndim, .dtype = t->v.dtype, .device = t->v.device, .shape = t->v.shape};
    }
    return 0;
}

static PyObject *gradient_edge(PyObject *Py_UNUSED(module), PyObject *o) {
    Edge e = {NULL, 0};
    if (!tensor_check(o)) {
        PyErr_Format(PyExc_TypeError, "get_gradient_edge() takes a Tensor, not %s", Py_TYPE(o)->tp_name);
        return NULL;
    }
    if (edge_set(&e, (Tensor *)o) < 0) {
        return NULL;
    }
    if (!e.to) {
        PyErr_SetString(PyExc_RuntimeError,
                        "It is not possible to get the gradient edge for a Tensor that does not require gradients");
        return NULL;
    }
    if (is_node(e.to)) {
        e.to = node_face((Node *)e.to);
    } else {
        Py_SETREF(e.to, accumulator_of((Tensor *)e.to));
    }
    return e.to ? Py_BuildValue("(NI)", e.to, e.nr + (is_node(e.to) ? ((Node *)e.to)->piece : 0)) : NULL;
}

static PyObject *show_parts(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *name;
    PyObject *parts;
    if (!PyArg_ParseTuple(args, "sO!", &name, &PyTuple_Type, &parts) || node_show_parts(name, parts) < 0) {
        return NULL;
    }
    return Py_NewRef(parts);
}

static PyObject *bump_version(PyObject *Py_UNUSED(module), PyObject *o) {
    if (!tensor_check(o)) {
        PyErr_Format(PyExc_TypeError, "increment_version() takes Tensors, not %s", Py_TYPE(o)->tp_name);
        return NULL;
    }
    tensor_bump((Tensor *)o);
    Py_RETURN_NONE;
}

static PyObject *graph_task(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args)) { return PyLong_FromLongLong(engine_task()); }

static PyObject *graph_task_reaches(PyObject *Py_UNUSED(module), PyObject *o) {
    bool accumulator = is_accumulator(o);
    if (!accumulator && !is_node(o)) {
        PyErr_Format(PyExc_TypeError, "_graph_task_reaches() takes a node, not %s", Py_TYPE(o)->tp_name);
        return NULL;
    }
    return PyBool_FromLong(engine_reaches(accumulator ? (PyObject *)((Accumulator *)o)->leaf : o));
}

static PyObject *queue_callback(PyObject *Py_UNUSED(module), PyObject *callback) {
    return engine_at_end(callback) < 0 ? NULL : Py_NewRef(Py_None);
}

int node_init(PyObject *module) {
    static PyMethodDef functions[] = {
        {"_gradient_edge", gradient_edge, METH_O,
         "_gradient_edge(tensor, /)\n--\n\n(node, output number) that the tensor's gradient goes to."},
        {"_show_parts", show_parts, METH_VARARGS,
         "_show_parts(name, parts, /)\n--\n\nParts, a tuple of new tensors, whose nodes are shown as outputs of one of that "
         "name."},
        {"_increment_version", bump_version, METH_O,
         "_increment_version(tensor, /)\n--\n\nCounts a write that the library did not see."},
        {"_graph_task", graph_task, METH_NOARGS, "_graph_task()\n--\n\nThe number of the pass that runs in this thread, or -1."},
        {"_graph_task_reaches", graph_task_reaches, METH_O,
         "_graph_task_reaches(node, /)\n--\n\nWhether the pass that runs in this thread comes to the node."},
        {"_queue_callback", queue_callback, METH_O,
         "_queue_callback(callback, /)\n--\n\nCalls callback() at the end of the pass that runs in this thread."},
        {NULL, NULL, 0, NULL},
    };
    amp_state.node_type = make_node_type(module);
    accumulator_type = make_accumulator_type(module);
    if (!amp_state.node_type || !accumulator_type || PyModule_AddFunctions(module, functions) < 0 ||
        PyModule_AddObjectRef(module, "AccumulateGrad", (PyObject *)accumulator_type) < 0) {
        return -1;
    }
    return PyModule_AddObjectRef(module, "Node", (PyObject *)amp_state.node_type);
}
