/* Graph nodes: life, recording, histories of views. */
#include "node.h"

#include <string.h>

#include "anomaly.h"
#include "autocast_region.h"
#include "derivatives/derivatives.h"
#include "saved_hooks.h"

enum { NODE_POOL = 8192 };
static PyObject *node_pool[NODE_POOL];
static int node_pooled;
static uint64_t next_seq = 1;

bool grad_recording(void) { return amp_grad_enabled; }

/* ---- metadata ---- */

static int meta_set_shape(TensorMeta *m, int ndim, const int64_t *shape) {
    m->ndim = (int8_t)ndim;
    m->shape = m->inline_shape;
    if (ndim > AMP_INLINE_DIMS) {
        m->shape = PyMem_Malloc((size_t)ndim * sizeof *shape);
        if (!m->shape) {
            m->ndim = 0;
            PyErr_NoMemory();
            return -1;
        }
    }
    for (int d = 0; d < ndim; d++) {
        m->shape[d] = shape[d];
    }
    return 0;
}

int meta_set(TensorMeta *m, const Tensor *t) {
    m->dtype = t->v.dtype;
    m->device = t->v.device;
    return meta_set_shape(m, t->v.ndim, t->v.shape);
}

void meta_clear(TensorMeta *m) {
    if (m->shape != m->inline_shape) {
        PyMem_Free(m->shape);
    }
    m->shape = m->inline_shape;
    m->ndim = 0;
}

/* ---- life ---- */

/* Edges, input and output metadata and arguments in one block; small ones come from a free list, because nodes come and go with every
 * op. */
typedef struct Block {
    struct Block *next;
} Block;
enum { SMALL_IN = 3, SMALL_ARGS = 6, SMALL_BLOCKS = 4096 };
static Block *small_blocks;
static int nsmall;

static size_t block_bytes(int nin, int nout, int narg) {
    return (size_t)nin * (sizeof(Edge) + sizeof(TensorMeta)) + (size_t)nout * sizeof(TensorMeta) + (size_t)narg * sizeof(Arg);
}

static bool is_small(int nin, int nout, int narg) { return nin <= SMALL_IN && nout == 1 && narg <= SMALL_ARGS; }

static void *block_take(int nin, int nout, int narg) {
    if (!is_small(nin, nout, narg)) {
        return PyMem_Malloc(block_bytes(nin, nout, narg));
    }
    Block *b = small_blocks;
    if (!b) {
        return PyMem_Malloc(block_bytes(SMALL_IN, 1, SMALL_ARGS));
    }
    small_blocks = b->next;
    nsmall--;
    return b;
}

static void block_give(void *block, int nin, int nout, int narg) {
    if (is_small(nin, nout, narg) && nsmall < SMALL_BLOCKS) {
        Block *b = block;
        b->next = small_blocks;
        small_blocks = b;
        nsmall++;
        return;
    }
    PyMem_Free(block);
}

Node *node_new(int op, int nin, int nout, int narg) {
    Node *n;
    if (node_pooled) {
        n = (Node *)PyObject_Init(node_pool[--node_pooled], amp_state.node_type);
    } else if (!(n = PyObject_GC_New(Node, amp_state.node_type))) {
        return NULL;
    }
    n->edge = NULL;
    n->state = n->packed = 0;
    n->list = NULL;
    n->nlist = 0;
    n->context = n->weak = NULL;
    n->rare = NULL;
    n->slice = NULL;
    for (int i = 0; i < SAVED_SLOTS; i++) {
        n->saved[i] = (Saved){NULL, 0};
    }
    n->nin = n->nout = n->narg = 0;
    char *block = block_take(nin, nout, narg);
    if (!block) {
        Py_DECREF(n);
        PyErr_NoMemory();
        return NULL;
    }
    n->op = n->shown = (uint16_t)op;
    n->piece = 0;
    n->nin = nin;
    n->nout = (uint8_t)nout;
    n->seq = next_seq++;
    n->edge = (Edge *)(void *)block;
    n->in = (TensorMeta *)(void *)(block + (size_t)nin * sizeof(Edge));
    n->out = n->in + nin;
    n->arg = (Arg *)(void *)(n->out + nout);
    n->narg = (uint8_t)narg;
    for (int i = 0; i < nin; i++) {
        n->edge[i] = (Edge){NULL, 0};
    }
    for (int i = 0; i < nin + nout; i++) {
        n->in[i].ndim = 0;
        n->in[i].shape = n->in[i].inline_shape;
    }
    PyObject_GC_Track((PyObject *)n);
    if (anomaly_enabled && anomaly_note(n) < 0) {
        Py_CLEAR(n);
    }
    return n;
}

static void free_arg(Arg *a) {
    if (a->kind == ARG_INTS) {
        PyMem_Free(a->ints);
    } else if (a->kind == ARG_STR) {
        PyMem_Free((char *)(uintptr_t)a->s);
    }
}

void node_release(Node *n) {
    bool saved = false;
    for (int i = 0; i < SAVED_SLOTS; i++) {
        if (n->saved[i].t) {
            saved = true;
            Py_CLEAR(n->saved[i].t);
        }
    }
    for (int i = 0; i < n->nlist; i++) {
        saved = true;
        Py_CLEAR(n->list[i].t);
    }
    if (n->op == NODE_FUNCTION && n->context) {
        function_release(n);
    }
    if (saved) {
        n->state |= NODE_RELEASED;
    }
    if (n->slice && n->slice->inner) {
        node_release(n->slice->inner);
        n->state |= n->slice->inner->state & NODE_RELEASED;
    }
}

static void slice_free(SliceInfo *s) {
    Py_CLEAR(s->inner);
    meta_clear(&s->view);
    PyMem_Free(s->stride);
    PyMem_Free(s);
}

int node_clear(PyObject *self) {
    Node *n = (Node *)self;
    for (int i = 0; i < n->nin; i++) {
        Py_CLEAR(n->edge[i].to);
    }
    for (int i = 0; i < SAVED_SLOTS; i++) {
        Py_CLEAR(n->saved[i].t);
    }
    for (int i = 0; i < n->nlist; i++) {
        Py_CLEAR(n->list[i].t);
    }
    Py_CLEAR(n->context);
    if (n->rare) {
        node_rare_clear(n);
    }
    if (n->slice) {
        Py_CLEAR(n->slice->inner);
    }
    return 0;
}

int node_traverse(PyObject *self, visitproc visit, void *arg) {
    Node *n = (Node *)self;
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; i < n->nin; i++) {
        Py_VISIT(n->edge[i].to);
    }
    for (int i = 0; i < SAVED_SLOTS; i++) {
        Py_VISIT(n->saved[i].t);
    }
    for (int i = 0; i < n->nlist; i++) {
        Py_VISIT(n->list[i].t);
    }
    Py_VISIT(n->context);
    if (n->rare) {
        for (int i = 0; i < NODE_RARE_COUNT; i++) {
            Py_VISIT(n->rare[i]);
        }
    }
    if (n->slice) {
        Py_VISIT(n->slice->inner);
    }
    return 0;
}

static void node_free(Node *n) {
    PyTypeObject *type = Py_TYPE(n);
    if (n->weak) {
        PyObject_ClearWeakRefs((PyObject *)n);
    }
    node_clear((PyObject *)n);
    for (int i = 0; n->state & NODE_OWNS_ARGS && i < n->narg; i++) {
        free_arg(&n->arg[i]);
    }
    PyMem_Free(n->list);
    if (n->slice) {
        slice_free(n->slice);
    }
    if (n->edge) {
        for (int i = 0; i < n->nin + n->nout; i++) {
            meta_clear(&n->in[i]);
        }
        block_give(n->edge, n->nin, n->nout, n->narg);
    }
    if (node_pooled < NODE_POOL) {
        node_pool[node_pooled++] = (PyObject *)n;
    } else {
        type->tp_free((PyObject *)n);
    }
    Py_DECREF(type);
}

/* A dying node lets go of its inputs' nodes, which may die in turn: they queue up here and are freed in a loop, so that a graph may be
 * as deep as memory allows. */
static PyObject **dying;
static Py_ssize_t ndying, dying_cap;
static bool draining;

void node_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    if (draining) {
        if (ndying == dying_cap) {
            Py_ssize_t cap = dying_cap ? 2 * dying_cap : 256;
            PyObject **more = PyMem_Realloc(dying, (size_t)cap * sizeof *more);
            if (!more) { /* recursion is what is left without memory */
                node_free((Node *)self);
                return;
            }
            dying = more;
            dying_cap = cap;
        }
        dying[ndying++] = self;
        return;
    }
    draining = true;
    node_free((Node *)self);
    while (ndying) {
        node_free((Node *)dying[--ndying]);
    }
    draining = false;
}

/* ---- recording ---- */

int edge_set(Edge *e, Tensor *t) {
    Node *fn;
    uint32_t nr;
    if (tensor_history(t, &fn, &nr) < 0) {
        return -1;
    }
    if (fn) {
        *e = (Edge){(PyObject *)fn, nr};
    } else if (t->flags & TENSOR_REQUIRES_GRAD) {
        *e = (Edge){Py_NewRef((PyObject *)t), 0};
    } else {
        *e = (Edge){NULL, 0};
    }
    return 0;
}

static void track(Tensor *t) {
    if (!PyObject_GC_IsTracked((PyObject *)t)) {
        PyObject_GC_Track((PyObject *)t);
    }
}

/* The arguments of a new node, which are unset until then. */
static int copy_args(Node *n, const Arg *arg) {
    for (int i = 0; i < n->narg; i++) {
        Arg *to = &n->arg[i];
        if (arg[i].kind == ARG_TENSOR || arg[i].kind == ARG_TENSORS || arg[i].kind == ARG_ANY || arg[i].kind == ARG_NONE) {
            to->kind = arg[i].kind;
            to->n = arg[i].n;
            to->o = NULL;
            continue;
        }
        *to = arg[i];
        if (arg[i].kind == ARG_INTS || arg[i].kind == ARG_STR) {
            n->state |= NODE_OWNS_ARGS;
        }
        if (arg[i].kind == ARG_INTS) {
            size_t bytes = (size_t)arg[i].n * sizeof(int64_t);
            to->ints = PyMem_Malloc(bytes ? bytes : 1);
            if (to->ints && bytes) {
                memcpy(to->ints, arg[i].ints, bytes);
            }
        } else if (arg[i].kind == ARG_STR) {
            char *text = PyMem_Malloc(strlen(arg[i].s) + 1);
            if (text) {
                strcpy(text, arg[i].s);
            }
            to->s = text;
        }
        if ((arg[i].kind == ARG_INTS || arg[i].kind == ARG_STR) && !to->o) {
            for (int k = i; k < n->narg; k++) {
                n->arg[k].kind = ARG_NONE;
            }
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

/* What hooks make of t, which is what the call overwrites, or an output, or neither. */
static PyObject *keep_packed(Node *n, int slot, Tensor *t, bool overwritten) {
    if (!overwritten) {
        return saved_pack(t, slot < 4 ? NULL : n, slot - 4);
    }
    Tensor *alias = tensor_shallow(t); /* the node will be t's history */
    PyObject *kept = alias ? saved_pack(alias, NULL, 0) : NULL;
    Py_XDECREF(alias);
    return kept;
}

/* Keeps t, or an alias for it (an own output: fn is filled in when it is read, back_saved), or what a hook makes of it. */
static int keep(Node *n, int slot, Tensor *t, uint32_t version, bool overwritten) {
    bool statistics = slot == 5 && t->v.dtype == AMP_FLOAT64; /* the node's own, which hooks would narrow: users never see them */
    bool pack = !statistics && saved_hooks_want(t);
    PyObject *kept = pack ? keep_packed(n, slot, t, overwritten) : slot < 4 ? Py_NewRef(t) : (PyObject *)tensor_shallow(t);
    n->saved[slot] = (Saved){(Tensor *)kept, version};
    n->packed |= (uint8_t)(pack << slot);
    return kept ? 0 : -1;
}

static int save_tensors(Node *n, const OpRow *row, OpCall *call, int ntensor, Tensor *const *in) {
    uint16_t saves = row->saves;
    bool want[4] = {(saves & SAVE_IN0) != 0, (saves & SAVE_IN1) != 0, (saves & SAVE_IN2) != 0, (saves & SAVE_IN3) != 0};
    if (saves & SAVE_CROSS && ntensor > 1) {
        want[0] |= n->edge[1].to != NULL;
        want[1] |= n->edge[0].to != NULL;
    }
    for (int i = 0; i < 4 && i < ntensor; i++) {
        if (!want[i]) {
            continue;
        }
        Tensor *t = i == 0 && call->original ? call->original : in[i];
        if (t->flags & TENSOR_INFERENCE) {
            PyErr_SetString(PyExc_RuntimeError,
                            "Inference tensors cannot be saved for backward. Make a clone() outside inference mode and use that");
            return -1;
        }
        /* What the call itself overwrote (y.mul_(y)) is not what the derivative needs: its version was the one before. */
        uint32_t overwritten = call->inplace && t->st == call->out->st;
        if (keep(n, i, t, t->st->version - overwritten, overwritten) < 0) {
            return -1;
        }
    }
    for (int i = 0; i < 2 && i < call->nresult; i++) {
        if (saves & (SAVE_OUT0 << i) && keep(n, 4 + i, call->result[i], call->result[i]->st->version, call->inplace) < 0) {
            return -1;
        }
    }
    return 0;
}

/* The list argument of index and index_put: the index tensors, which need no gradient. */
static int save_list(Node *n, const Arg *arg, int narg) {
    for (int i = 0; i < narg; i++) {
        if (arg[i].kind != ARG_TENSORS) {
            continue;
        }
        n->list = PyMem_Calloc((size_t)arg[i].n, sizeof *n->list);
        if (!n->list) {
            PyErr_NoMemory();
            return -1;
        }
        n->nlist = arg[i].n;
        for (int k = 0; k < arg[i].n; k++) {
            n->list[k] = (Saved){(Tensor *)Py_NewRef(arg[i].ts[k]), arg[i].ts[k]->st->version};
        }
        return 0;
    }
    return 0;
}

void node_date(Node *n) { n->seq = next_seq++; }

/* Makes `node` the history of the call's results. */
static int link_results(OpCall *call, Node *node) {
    if (call->inplace && call->out->base) {
        return node_write_view(call->out, node, 0);
    }
    for (int i = 0; i < call->nresult; i++) {
        Tensor *t = call->result[i];
        if (!amp_is_floating(t->v.dtype)) {
            continue;
        }
        if (t->flags & TENSOR_RETAINS_GRAD && node_move_retain(t, node, (uint32_t)i) < 0) {
            return -1;
        }
        Py_XSETREF(t->fn, (Node *)Py_NewRef((PyObject *)node));
        t->out_nr = (uint32_t)i;
        t->flags &= (uint8_t)~TENSOR_REQUIRES_GRAD;
        track(t);
    }
    return 0;
}

/* A view remembers whose memory it shows, so that in-place writes reach the history of all who see it. */
void node_link_view(Tensor *view, Tensor *src) {
    Tensor *base = src->base ? src->base : src;
    if (view == base) {
        return;
    }
    view->base = (Tensor *)Py_NewRef((PyObject *)base);
    view->fn_version = view->st->version;
    view->flags |= src->flags & (TENSOR_IS_DATA | TENSOR_NO_GRAD_VIEW | TENSOR_FUNCTION_VIEW);
    if (!amp_grad_enabled && tensor_requires_grad(src)) {
        view->flags |= TENSOR_NO_GRAD_VIEW;
    }
    track(view);
}

enum { MAX_INPUTS = 64 };

static int64_t offset_of(const Tensor *t) { return (t->v.data - t->st->data) / (int64_t)amp_itemsize(t->v.dtype); }

/* as_strided counts in the storage: its derivative must know where the input lay there, unless that is the usual place. */
static int keep_layout(Node *n, int ndim, const int64_t *stride, int64_t offset) {
    SliceInfo *s = PyMem_Calloc(1, sizeof *s);
    if (!s) {
        PyErr_NoMemory();
        return -1;
    }
    n->slice = s;
    s->view.shape = s->view.inline_shape;
    s->stride = s->base_stride = PyMem_Malloc((size_t)(ndim ? ndim : 1) * sizeof *s->stride);
    if (!s->stride) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(s->base_stride, stride, (size_t)ndim * sizeof *stride);
    s->base_offset = offset;
    return 0;
}

static int note_layout(Node *n, const Tensor *input) {
    bool usual = input->v.layout & LAYOUT_CONTIGUOUS && input->v.data == input->st->data;
    return usual ? 0 : keep_layout(n, input->v.ndim, input->v.stride, offset_of(input));
}

int node_refuse_complex(const OpRow *row) {
    PyErr_Format(PyExc_RuntimeError,
                 "%s: a complex result has no derivative here, but an argument requires grad: call it on .detach(), or under "
                 "no_grad()",
                 row->name);
    return -1;
}

/* Whether the call's results get a node; -1 with RuntimeError for complex ones, whose history would end without a word. */
static int is_wanted(const OpRow *row, const OpCall *call, const Arg *arg) {
    bool wanted = false, floating = false, is_complex = false;
    if (!amp_grad_enabled || row->derivative == d_none) {
        return 0;
    }
    for (int i = 0; i < row->ntensors && !wanted; i++) {
        const Arg *a = &arg[row->tensor[i]];
        if (a->kind == ARG_TENSOR) {
            wanted = tensor_requires_grad(a->t);
        }
        for (int k = 0; a->kind == ARG_TENSORS && k < a->n && !wanted; k++) {
            wanted = tensor_requires_grad(a->ts[k]);
        }
    }
    for (int i = 0; wanted && i < call->nresult; i++) {
        floating |= amp_is_floating(call->result[i]->v.dtype);
        is_complex |= amp_is_complex(call->result[i]->v.dtype);
    }
    if (is_complex) {
        return node_refuse_complex(row);
    }
    return floating;
}

int node_record(const OpRow *row, OpCall *call, Arg *arg, int narg) {
    Tensor *few[MAX_INPUTS], **in = few;
    int n = 0, total = 0;
    int wanted = is_wanted(row, call, arg);
    Node *node = NULL;
    if (wanted < 0) {
        return -1;
    }
    if (!wanted && !call->is_view) {
        if (call->inplace) {
            tensor_bump(call->out);
        }
        return 0;
    }
    for (int i = 0; i < row->ntensors; i++) {
        const Arg *a = &arg[row->tensor[i]];
        total += a->kind == ARG_TENSOR ? 1 : a->kind == ARG_TENSORS ? a->n : 0;
    }
    if (total > MAX_INPUTS && !(in = PyMem_Malloc((size_t)total * sizeof *in))) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < row->ntensors; i++) {
        const Arg *a = &arg[row->tensor[i]];
        if (a->kind == ARG_TENSOR) {
            in[n++] = a->t;
        } else if (a->kind == ARG_TENSORS) {
            memcpy(in + n, a->ts, (size_t)a->n * sizeof *in);
            n += a->n;
        }
    }
    int failed = 0;
    if (wanted) {
        failed = -1;
        if (!(node = node_new(row->op, n, call->nresult, narg))) {
            goto done;
        }
        for (int i = 0; i < n; i++) {
            if (edge_set(&node->edge[i], in[i]) < 0 || meta_set(&node->in[i], in[i]) < 0) {
                goto done;
            }
        }
        node_date(node);
        if (call->inplace) {
            tensor_bump(call->out);
        }
        for (int i = 0; i < call->nresult; i++) {
            if (meta_set(&node->out[i], call->result[i]) < 0) {
                goto done;
            }
        }
        if (row->op == OP_as_strided && note_layout(node, in[0]) < 0) {
            goto done;
        }
        if (copy_args(node, arg) < 0 || (row->saves & ~SAVE_META && save_tensors(node, row, call, n, in) < 0) ||
            (row->saves & SAVE_LIST && save_list(node, arg, narg) < 0) || link_results(call, node) < 0) {
            goto done;
        }
        failed = 0;
    } else if (call->inplace) {
        tensor_bump(call->out);
    }
    if (call->is_view && failed == 0) {
        node_link_view(call->result[0], in[0]);
    }
done:
    Py_XDECREF(node);
    if (in != few) {
        PyMem_Free(in);
    }
    return failed;
}

/* ---- views ---- */

int node_write_view(Tensor *view, Node *inner, int written) {
    Tensor *base = view->base;
    Node *n = node_new(NODE_COPY_SLICES, inner->nin, 1, 0);
    SliceInfo *s = n ? PyMem_Calloc(1, sizeof *s) : NULL;
    if (!s) {
        Py_XDECREF(n);
        PyErr_NoMemory();
        return -1;
    }
    n->slice = s;
    s->view.shape = s->view.inline_shape;
    size_t dims = (size_t)(view->v.ndim + base->v.ndim);
    s->stride = PyMem_Malloc((dims ? dims : 1) * sizeof *s->stride);
    if (!s->stride || meta_set(&s->view, view) < 0 || meta_set(&n->out[0], base) < 0 || meta_set(&n->in[written], base) < 0 ||
        edge_set(&n->edge[written], base) < 0) {
        Py_DECREF(n);
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        return -1;
    }
    s->inner = (Node *)Py_NewRef((PyObject *)inner);
    s->written = written;
    s->base_stride = s->stride + view->v.ndim;
    memcpy(s->stride, view->v.stride, (size_t)view->v.ndim * sizeof *s->stride);
    memcpy(s->base_stride, base->v.stride, (size_t)base->v.ndim * sizeof *s->stride);
    s->offset = offset_of(view);
    s->base_offset = offset_of(base);
    for (int i = 0; i < inner->nin; i++) {
        if (i == written) {
            continue;
        }
        n->edge[i].to = Py_XNewRef(inner->edge[i].to);
        n->edge[i].nr = inner->edge[i].nr;
        n->in[i].dtype = inner->in[i].dtype;
        n->in[i].device = inner->in[i].device;
        if (meta_set_shape(&n->in[i], inner->in[i].ndim, inner->in[i].shape) < 0) {
            Py_DECREF(n);
            return -1;
        }
    }
    if (base->flags & TENSOR_RETAINS_GRAD && node_move_retain(base, n, 0) < 0) {
        Py_DECREF(n);
        return -1;
    }
    Py_XSETREF(base->fn, n);
    base->out_nr = 0;
    base->flags &= (uint8_t)~TENSOR_REQUIRES_GRAD;
    track(base);
    return 0; /* the view's own fn is rebuilt when asked for: its fn_version is behind now */
}

int tensor_history(Tensor *t, Node **fn, uint32_t *nr) {
    if (t->base && t->fn_version != t->st->version && amp_is_floating(t->v.dtype) &&
        !(t->flags & (TENSOR_IS_DATA | TENSOR_NO_GRAD_VIEW)) &&
        (t->flags & TENSOR_FUNCTION_VIEW || tensor_requires_grad(t->base))) {
        if (t->flags & TENSOR_FUNCTION_VIEW) {
            return function_refuse_stale(t);
        }
        Arg arg[4] = {
            {.kind = ARG_TENSOR}, arg_ints(t->v.shape, t->v.ndim), arg_ints(t->v.stride, t->v.ndim), arg_int(offset_of(t))};
        Node *n = node_new(OP_as_strided, 1, 1, 4);
        if (!n || edge_set(&n->edge[0], t->base) < 0 || meta_set(&n->in[0], t->base) < 0 || meta_set(&n->out[0], t) < 0 ||
            copy_args(n, arg) < 0 || note_layout(n, t->base) < 0) {
            Py_XDECREF(n);
            return -1;
        }
        Py_XSETREF(t->fn, n);
        t->out_nr = 0;
        t->fn_version = t->st->version;
    }
    *fn = (Node *)Py_XNewRef((PyObject *)t->fn);
    *nr = t->out_nr;
    return 0;
}

/* ---- what a derivative reads ---- */

Tensor *back_own(Back *b, Tensor *t) {
    if (!t) {
        b->failed = b->failed || PyErr_Occurred();
        return NULL;
    }
    if (b->nowned == b->cap) {
        int cap = 2 * b->cap;
        Tensor **more = b->owned == b->inline_owned ? PyMem_Malloc((size_t)cap * sizeof *more)
                                                    : PyMem_Realloc(b->owned, (size_t)cap * sizeof *more);
        if (!more) {
            Py_DECREF(t);
            PyErr_NoMemory();
            b->failed = true;
            return NULL;
        }
        if (b->owned == b->inline_owned) {
            memcpy(more, b->inline_owned, sizeof b->inline_owned);
        }
        b->owned = more;
        b->cap = cap;
    }
    b->owned[b->nowned++] = t;
    return t;
}

/* A new as_strided node, without its edge, that shows the view of a NODE_COPY_SLICES in the base that it made. */
static Node *window_of_slices(const Node *slices) {
    const SliceInfo *s = slices->slice;
    const TensorMeta *base = &slices->out[0], *view = &s->view;
    Arg arg[4] = {{.kind = ARG_TENSOR}, arg_ints(view->shape, view->ndim), arg_ints(s->stride, view->ndim), arg_int(s->offset)};
    Node *n = node_new(OP_as_strided, 1, 1, 4);
    if (!n) {
        return NULL;
    }
    n->in[0].dtype = n->out[0].dtype = base->dtype;
    n->in[0].device = n->out[0].device = base->device;
    bool usual = s->base_offset == 0 && amp_is_contiguous(base->ndim, base->shape, s->base_stride);
    if (meta_set_shape(&n->in[0], base->ndim, base->shape) < 0 || meta_set_shape(&n->out[0], view->ndim, view->shape) < 0 ||
        copy_args(n, arg) < 0 || (!usual && keep_layout(n, base->ndim, s->base_stride, s->base_offset) < 0)) {
        Py_CLEAR(n);
    }
    return n;
}

Node *node_output_history(Node *node, Node *slices, uint32_t *nr) {
    if (!slices) {
        return (Node *)Py_NewRef((PyObject *)node);
    }
    *nr = 0;
    Node *n = window_of_slices(slices);
    if (n) {
        n->edge[0].to = Py_NewRef((PyObject *)slices);
    }
    return n;
}

/* What hooks make of what they kept. Borrowed from the frame. */
static Tensor *unpacked(Back *b, int slot) {
    Node *n = b->node;
    if (!(b->unpacked >> slot & 1)) {
        b->tensor[slot] = back_own(b, saved_unpack((PyObject *)n->saved[slot].t, slot < 4 ? &n->edge[slot] : NULL));
        b->unpacked |= (uint8_t)(1u << slot);
    }
    return b->tensor[slot];
}

Tensor *back_saved(Back *b, int slot) {
    Node *n = b->node;
    Saved *s = &n->saved[slot];
    if (b->failed) {
        return NULL;
    }
    if (!s->t) {
        if (n->state & NODE_RELEASED) {
            PyErr_SetString(
                PyExc_RuntimeError,
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
                "been "
                "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
                "retain_graph=True if you need to backward through the graph a second time");
        } else if (saved_hooks_active()) {
            PyErr_Format(
                PyExc_RuntimeError,
                "%s: its backward runs before all is saved: a pack hook cannot differentiate the output that it is given",
                amp_rows[n->op].name);
        } else {
            PyErr_Format(PyExc_SystemError, "%s: the derivative asks for a tensor that the row does not save",
                         amp_rows[n->op].name);
        }
        b->failed = true;
        return NULL;
    }
    bool packed = n->packed >> slot & 1;
    Tensor *kept = packed ? unpacked(b, slot) : s->t;
    if (!kept) {
        return NULL;
    }
    if (!packed && kept->st->version != s->version) {
        PyObject *text = tensor_describe(kept);
        if (text) {
            PyErr_Format(PyExc_RuntimeError,
                         "one of the variables needed for gradient computation has been modified by an inplace operation: a %U, "
                         "which %s saved, is at version %u; "
                         "expected version %u instead. Clone it before the in-place write.",
                         text, amp_rows[n->op].name, kept->st->version, s->version);
        }
        Py_XDECREF(text);
        b->failed = true;
        return NULL;
    }
    if (slot < 4 && packed) {
        return kept;
    }
    if (slot < 4) { /* a reference of the frame's own: another pass over the same graph may release the node meanwhile */
        return back_own(b, (Tensor *)Py_NewRef((PyObject *)kept));
    }
    /* An own output: give the alias its history for the time of this derivative, so that second derivatives reach the node. */
    Tensor *alias = back_own(b, tensor_shallow(kept));
    if (alias && amp_is_floating(alias->v.dtype)) {
        alias->out_nr = (uint32_t)(slot - 4);
        alias->fn = node_output_history(b->node, b->slices, &alias->out_nr);
        b->failed = !alias->fn;
        track(alias);
    }
    return alias;
}
