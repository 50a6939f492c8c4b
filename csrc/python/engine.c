/* The backward pass.
 *
 *   1. Walk the graph from the roots; count how many gradients each node and leaf will receive.
 *   2. Run nodes from the newest to the oldest (heap by seq). A node runs when its count is zero; its outputs' gradients are summed in its
 *      slot in the order in which they arrive, a leaf is written once.
 *
 * All state belongs to one Task on the caller's stack, so nested and concurrent passes need nothing more. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "anomaly.h"
#include "classes.h"
#include "autocast_region.h"
#include "derivatives/derivatives.h"
#include "engine_task.h"
#include "observer.h"

static _Thread_local Task *running; /* the innermost pass of this thread */

/* Pass 1. Every edge that is reachable adds one to its target's count. */
static int count_uses(Task *t, int64_t first) {
    for (int64_t i = first; i < t->nslots; i++) {
        if (t->slot[i].is_leaf) {
            continue;
        }
        Node *n = (Node *)t->slot[i].key;
        for (int k = 0; k < n->nin; k++) {
            PyObject *to = n->edge[k].to;
            if (!to) {
                continue;
            }
            int64_t j = find_slot(t, to);
            if (j < 0 && (j = add_slot(t, to)) < 0) {
                return -1;
            }
            t->slot[j].waiting++;
        }
    }
    return 0;
}

static int by_seq(const void *a, const void *b) {
    uint64_t x = (*(Node *const *)a)->seq, y = (*(Node *const *)b)->seq;
    return x < y ? -1 : x > y;
}

/* autograd.grad: only nodes on a way to a captured input run. Oldest first, so that inputs are known before their users. */
static int mark_needed(Task *t) {
    if (!t->ncapture) {
        for (int64_t i = 0; i < t->nslots; i++) {
            t->slot[i].needed = true;
        }
        return 0;
    }
    Node **order = PyMem_Malloc((size_t)(t->nslots + 1) * sizeof *order);
    int64_t n = 0;
    if (!order) {
        PyErr_NoMemory();
        return -1;
    }
    for (int64_t i = 0; i < t->nslots; i++) {
        TaskSlot *s = &t->slot[i];
        s->needed = false;
        for (int c = 0; c < t->ncapture; c++) {
            s->needed |= t->capture[c].key == s->key;
        }
        if (!s->is_leaf) {
            order[n++] = (Node *)s->key;
        }
    }
    qsort(order, (size_t)n, sizeof *order, by_seq);
    for (int64_t i = 0; i < n; i++) {
        TaskSlot *s = &t->slot[find_slot(t, (PyObject *)order[i])];
        for (int k = 0; k < order[i]->nin && !s->needed; k++) {
            s->needed = order[i]->edge[k].to && t->slot[find_slot(t, order[i]->edge[k].to)].needed;
        }
    }
    PyMem_Free(order);
    return 0;
}

/* ---- gradients ---- */

/* Adds g to *sum (takes over the reference to g). In place where nobody else can see the sum. */
static int add_gradient(const Task *t, Tensor **sum, Tensor *g) {
    if (!*sum) {
        *sum = g;
        return 0;
    }
    Tensor *s = *sum;
    if (!t->create_graph && Py_REFCNT(s) == 1 && s->st->refs == 1 && s->v.layout & LAYOUT_CONTIGUOUS &&
        s->v.dtype == g->v.dtype && !s->st->exported) {
        int failed = call_inplace(OP_add, s, g);
        Py_DECREF(g);
        return failed;
    }
    Tensor *total = call_binary(OP_add, s, g);
    Py_DECREF(g);
    Py_SETREF(*sum, total);
    return total ? 0 : -1;
}

/* A copy of g in the leaf's order of dimensions; not recorded. */
static Tensor *gradient_copy(const Tensor *leaf, const Tensor *g) {
    Tensor *copy = tensor_new(g->v.ndim, g->v.shape, g->v.dtype, g->v.device);
    if (!copy) {
        return NULL;
    }
    tensor_keep_layout(copy, leaf);
    if (raw_copy(&copy->v, &g->v) < 0) {
        Py_CLEAR(copy);
    }
    return copy;
}

/* After an addition to a gradient that carried `before` (0: none, or unknown). */
static void mark_scaled(const Task *t, Tensor *grad, float before) {
    grad->st->scaled = grad->st->writes + 1;
    grad->st->loss_scale = before != 0 && before != t->loss_scale ? NAN : t->loss_scale;
}

/* After an addition of this pass to a gradient: which losses are in it. `have` is what it was before, or NULL for nothing, and `same`
 * whether that was as the last addition left it. */
static void note_loss(const Task *t, Storage *st, const Tensor *have, bool same) {
    if (have && have->st != st) { /* a sum in new memory */
        st->loss_flags = have->st->loss_flags;
        st->loss_first = have->st->loss_first;
        st->loss_last = have->st->loss_last;
        st->loss_count = have->st->loss_count;
    }
    if (!(t->loss_flags & LOSS_KNOWN)) {
        st->loss_flags = !have ? 0 : st->loss_flags ? st->loss_flags | LOSS_UNSURE : 0;
        return;
    }
    if (!have) {
        st->loss_flags = t->loss_flags;
        st->loss_first = st->loss_last = t->loss_number;
        st->loss_count = 1;
        return;
    }
    const bool later = t->loss_number > st->loss_last;
    st->loss_flags |= t->loss_flags | (same && t->loss_number >= st->loss_last ? 0 : LOSS_UNSURE);
    st->loss_count += later;
    st->loss_last = later ? t->loss_number : st->loss_last;
}

/* Threads that add to the gradient of the same leaf in place take turns, because large ones are added without the GIL. Who has a turn
 * stands in a list, which the GIL guards, with an entry on its own stack. Nothing is allocated inside a turn, lest a destructor runs that
 * waits for a thread which waits for the turn. */
enum { TURN_FROM = 1024 }; /* elements; for far more than those run_slot keeps the GIL */
typedef struct Turn {
    const Tensor *leaf;
    unsigned long thread;
    struct Turn *next;
} Turn;
static Turn *turns;

static bool is_others_turn(const Turn *mine) {
    const Turn *t = turns;
    while (t && (t->leaf != mine->leaf || t->thread == mine->thread)) {
        t = t->next;
    }
    return t;
}

static void forget_turns(void) { turns = NULL; } /* in the child of a fork the other threads are gone */
static void register_fork_handler(void) { pthread_atfork(NULL, NULL, forget_turns); }

static void take_turn(Turn *mine, const Tensor *leaf) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *mine = (Turn){.leaf = leaf, .thread = PyThread_get_thread_ident()};
    while (is_others_turn(mine)) {
        PyThreadState *saved = PyEval_SaveThread();
        sched_yield();
        PyEval_RestoreThread(saved);
    }
    pthread_once(&once, register_fork_handler);
    mine->next = turns;
    turns = mine;
}

static void pass_turn(const Turn *mine) {
    Turn **t = &turns;
    while (*t && *t != mine) {
        t = &(*t)->next;
    }
    if (*t) {
        *t = mine->next;
    }
}

/* Adds g to leaf->grad, which is `have`, in place. 1: it is no longer, when it is this thread's turn. *before: the scale it had then. */
static int add_in_place(const Tensor *leaf, Tensor *have, Tensor *g, float *before) {
    if (g->v.numel <= TURN_FROM) {
        return call_inplace(OP_add, have, g);
    }
    Turn turn;
    take_turn(&turn, leaf);
    *before = storage_loss_scale(have->st);
    const int result = leaf->grad == have ? call_inplace(OP_add, have, g) : 1;
    pass_turn(&turn);
    return result;
}

/* The first gradient of a leaf. Taken over if nobody else holds it and it lies as the leaf does, else copied. */
static Tensor *first_gradient(const Task *t, const Tensor *leaf, Tensor *g) {
    if (!t->create_graph) {
        const bool ours = Py_REFCNT(g) == 1 && g->st->refs == 1 && g->v.layout & leaf->v.layout & LAYOUT_CONTIGUOUS && !g->base &&
                          !g->fn && !g->st->exported && Py_TYPE(g) == amp_state.tensor_type;
        return ours ? (Tensor *)Py_NewRef((PyObject *)g) : gradient_copy(leaf, g);
    }
    if (leaf->v.layout & g->v.layout & LAYOUT_CONTIGUOUS) {
        return call_clone(g);
    }
    Tensor *copy = tensor_new(g->v.ndim, g->v.shape, g->v.dtype, g->v.device);
    if (copy) {
        tensor_keep_layout(copy, leaf);
        if (call_copy(copy, g) < 0) {
            Py_CLEAR(copy);
        }
    }
    return copy;
}

/* Gives the leaf a new gradient: its first, or the sum with `have`, which has a history. 1: leaf->grad or what stands in it is not what
 * the new one was made from. */
static int replace_gradient(const Task *t, Tensor *leaf, Tensor *have, Tensor *g) {
    Turn turn;
    take_turn(&turn, leaf); /* not kept, as the sum allocates: who writes meanwhile is noticed below */
    pass_turn(&turn);
    const uint32_t writes = have ? have->st->writes : 0;
    Tensor *made = have ? call_binary(OP_add, have, g) : first_gradient(t, leaf, g);
    if (!made) {
        return -1;
    }
    const int stale = leaf->grad != have || is_others_turn(&turn) || (have && have->st->writes != writes);
    if (!stale) {
        leaf->grad = made;
        made = have; /* the leaf's reference */
    }
    Py_XDECREF(made);
    return stale;
}

/* Other threads may give, take or change leaf->grad whenever the GIL is away: what was made for another one is made anew. */
static int add_to_leaf(const Task *t, Tensor *leaf, Tensor *g) {
    for (;;) {
        Tensor *have = (Tensor *)Py_XNewRef((PyObject *)leaf->grad);
        float before = have ? storage_loss_scale(have->st) : 0;
        const bool zeroed = have && have->st->loss_flags == LOSS_ZEROED && have->st->scaled == have->st->writes + 1;
        const int stale = have && !t->create_graph ? add_in_place(leaf, have, g, &before) : replace_gradient(t, leaf, have, g);
        const bool by_hand = leaf->meta &&
                             (leaf->meta->hooks || leaf->meta->before_accumulating); /* a hook may have unscaled it */
        if (stale == 0 && leaf->grad) {
            note_loss(t, leaf->grad->st, zeroed ? NULL : have, before != 0);
            if (by_hand || (leaf->meta && leaf->meta->post_accumulate_hooks)) {
                leaf->grad->st->loss_flags |= leaf->grad->st->loss_flags ? LOSS_PYTHON : 0;
            }
        }
        if (stale == 0 && t->scaled && leaf->grad && !by_hand) {
            mark_scaled(t, leaf->grad, before);
        }
        Py_XDECREF(have);
        if (stale <= 0) {
            return stale;
        }
    }
}

static int accumulate(const Task *t, Tensor *leaf, Tensor *g) {
    if (add_to_leaf(t, leaf, g) < 0) {
        return -1;
    }
    if (!PyObject_GC_IsTracked((PyObject *)leaf)) {
        PyObject_GC_Track((PyObject *)leaf);
    }
    if (leaf->meta && leaf->meta->post_accumulate_hooks) {
        PyObject *list = PyDict_Values(leaf->meta->post_accumulate_hooks);
        for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
            PyObject *r = PyObject_CallOneArg(PyList_GET_ITEM(list, i), (PyObject *)leaf);
            if (!r) {
                Py_CLEAR(list);
                return -1;
            }
            Py_DECREF(r);
        }
        Py_XDECREF(list);
        return PyErr_Occurred() ? -1 : 0;
    }
    return 0;
}

/* With the hooks of the leaf's accumulator around it. */
static int accumulate_hooked(const Task *t, Tensor *leaf, Tensor **sum) {
    PyObject *before = Py_XNewRef(leaf->meta->before_accumulating), *after = Py_XNewRef(leaf->meta->after_accumulating);
    PyObject *given = NULL;
    int failed = before && engine_run_node_hooks(before, 1, sum, NULL) < 0 ? -1 : 0;
    if (!failed && after) {
        given = gradients_tuple(1, sum);
        failed = given ? 0 : -1;
    }
    if (!failed && *sum) {
        failed = accumulate(t, leaf, *sum);
    }
    if (!failed && after) {
        failed = engine_run_node_hooks(after, 0, NULL, given);
    }
    Py_XDECREF(given);
    Py_XDECREF(before);
    Py_XDECREF(after);
    return failed;
}

static int capture(Task *t, PyObject *key, uint32_t nr, Tensor *g) {
    for (int c = 0; c < t->ncapture; c++) {
        if (t->capture[c].key == key && t->capture[c].nr == nr && g) {
            Py_XSETREF(t->capture[c].result, (Tensor *)Py_NewRef((PyObject *)g));
        }
    }
    return 0;
}

/* A leaf's count reached zero. */
static int finish_leaf(Task *t, TaskSlot *s) {
    Tensor *leaf = (Tensor *)s->key, **sum = sums_of(s);
    if (!sum || !*sum) {
        return sum ? 0 : -1;
    }
    if (leaf->meta && leaf->meta->hooks && engine_run_hooks(leaf->meta->hooks, sum) < 0) {
        return -1;
    }
    capture(t, s->key, 0, *sum);
    bool captured = false;
    for (int c = 0; c < t->ncapture; c++) {
        captured |= t->capture[c].key == s->key;
    }
    bool wanted = t->accumulate && (!t->ncapture || captured) && tensor_requires_grad(leaf); /* it may have been frozen since */
    int failed = !wanted ? 0 : leaf->meta ? accumulate_hooked(t, leaf, sum) : accumulate(t, leaf, *sum);
    Py_CLEAR(*sum);
    return failed;
}

/* Hands g (reference taken over, may be NULL) to the target of an edge. */
static int deliver(Task *t, const Edge *e, const TensorMeta *m, Tensor *g, bool check) {
    int64_t j = find_slot(t, e->to);
    TaskSlot *s = &t->slot[j];
    if (g && s->needed) {
        Tensor *fit = check ? sum_to_meta(g, m) : (Tensor *)Py_NewRef((PyObject *)g);
        Py_DECREF(g);
        Tensor **sum = fit ? sums_of(s) : NULL;
        if (!sum || add_gradient(t, &sum[s->is_leaf ? 0 : e->nr], fit) < 0) {
            return -1;
        }
    } else {
        Py_XDECREF(g);
    }
    if (--s->waiting == 0) {
        if (s->is_leaf) {
            return s->needed ? finish_leaf(t, s) : 0;
        }
        heap_push(t, j);
    }
    return 0;
}

/* ---- running nodes ---- */

static int apply_node(Task *t, Node *n, Tensor **g_out, Tensor **grad);

static Tensor *strided_window(Tensor *t, int ndim, int64_t *shape, int64_t *stride, int64_t offset) {
    Arg arg[MAX_ARGS] = {arg_tensor(t), arg_ints(shape, ndim), arg_ints(stride, ndim), arg_int(offset)};
    return run_op_tensor(OP_as_strided, arg);
}

/* A fresh buffer in which elements lie as they did in the base's storage, and in *window the base's gradient g inside it. The usual dense
 * base is its own buffer. New references. */
static Tensor *base_buffer(const Node *n, Tensor *g, Tensor **window) {
    const SliceInfo *s = n->slice;
    const TensorMeta *m = &n->out[0];
    Tensor *buffer = NULL;
    if (amp_is_contiguous(m->ndim, m->shape, s->base_stride)) {
        Tensor *rows = call_contiguous(g);
        buffer = rows ? call_clone(rows) : NULL;
        Py_XDECREF(rows);
        *window = (Tensor *)Py_XNewRef((PyObject *)buffer);
        return buffer;
    }
    int64_t extent = 1;
    for (int d = 0; d < m->ndim; d++) {
        extent += (m->shape[d] ? m->shape[d] - 1 : 0) * s->base_stride[d];
    }
    buffer = tensor_new(1, &extent, g->v.dtype, g->v.device);
    if (buffer && raw_fill(buffer, number_int(0)) == 0) {
        *window = strided_window(buffer, m->ndim, m->shape, s->base_stride, 0);
    }
    if (!*window || call_copy(*window, g) < 0) {
        Py_CLEAR(buffer);
    }
    return buffer;
}

static int apply_slices(Task *t, Node *n, Tensor **g_out, Tensor **grad) {
    SliceInfo *s = n->slice;
    Tensor *g = g_out[0];
    int failed = -1;
    Tensor **inner = PyMem_Calloc((size_t)n->nin + 1, sizeof *inner), *whole = NULL, *dense = NULL, *part = NULL, *copy = NULL;
    if (!inner) {
        PyErr_NoMemory();
        return -1;
    }
    if (!(whole = base_buffer(n, g, &dense))) {
        goto done;
    }
    part = strided_window(whole, s->view.ndim, s->view.shape, s->stride, s->offset - s->base_offset);
    copy = part ? call_clone(part) : NULL;
    t->slices = n;
    int applied = copy ? apply_node(t, s->inner, &copy, inner) : -1;
    t->slices = NULL;
    if (applied < 0) {
        goto done;
    }
    const int w = s->written;
    for (int i = 0; i < n->nin; i++) {
        if (i != w) {
            grad[i] = inner[i];
            inner[i] = NULL;
        }
    }
    if (n->edge[w].to) {
        Tensor *zero = inner[w] ? NULL : call_unary(OP_zeros_like, copy);
        Tensor *back = inner[w] ? sum_to_meta(inner[w], &s->view) : zero;
        failed = back ? call_copy(part, back) : -1;
        Py_XDECREF(back);
        grad[w] = failed < 0 ? NULL : (Tensor *)Py_NewRef((PyObject *)dense);
    } else {
        failed = 0;
    }
done:
    for (int i = 0; i < n->nin; i++) {
        Py_XDECREF(inner[i]);
    }
    PyMem_Free(inner);
    Py_XDECREF(whole);
    Py_XDECREF(dense);
    Py_XDECREF(part);
    Py_XDECREF(copy);
    return failed;
}

bool engine_takes_rounded(const Back *b, int i) {
    const Task *t = b->task;
    const Node *n = b->node, *cast = (const Node *)n->edge[i].to;
    if (!cast || !node_check((const PyObject *)cast) || cast->op != OP_to_copy || t->create_graph || t->ncapture || t->slices ||
        amp_mode & MODE_OBSERVER || cast->rare || n->rare) {
        return false;
    }
    const TensorMeta *narrow = &n->in[i], *wide = &cast->in[0];
    if (!amp_is_16bit(narrow->dtype) || wide->dtype != AMP_FLOAT32 || narrow->device != wide->device) {
        return false;
    }
    const TaskSlot *s = &t->slot[find_slot(t, (PyObject *)(uintptr_t)cast)];
    return s->waiting == 1 && (!s->sum || !s->sum[0]); /* nobody else adds to it in 16 bits */
}

/* See Back.idle. Inside a write through a view the edges are not the pass's own. */
static uint64_t idle_edges(const Task *t, const Node *n) {
    uint64_t idle = 0;
    for (int i = 0; t->ncapture && !t->slices && i < n->nin && i < 64; i++) {
        int64_t slot = n->edge[i].to ? find_slot(t, n->edge[i].to) : -1;
        idle |= (uint64_t)(slot >= 0 && !t->slot[slot].needed) << i;
    }
    return idle;
}

static int apply_row(Task *t, Node *n, Tensor **g_out, Tensor **grad) {
    const OpRow *row = &amp_rows[n->op];
    Back b;
    back_begin(&b);
    b.node = n;
    b.slices = t->slices;
    b.g_out = g_out;
    b.g = g_out[0];
    b.grad = grad;
    b.task = t;
    b.idle = idle_edges(t, n);
    DerivativeFn f = row->fast && !t->create_graph ? row->fast : row->derivative;
    f(&b);
    int failed = b.failed || PyErr_Occurred() ? -1 : 0;
    t->rounded = b.rounded;
    for (int i = 0; i < n->nin; i++) {
        Py_XINCREF(grad[i]);
    }
    for (int i = 0; i < b.nowned; i++) {
        Py_DECREF(b.owned[i]);
    }
    if (b.owned != b.inline_owned) {
        PyMem_Free(b.owned);
    }
    return failed;
}

/* grad: nin entries, zeroed; new references on return. */
static int apply_node(Task *t, Node *n, Tensor **g_out, Tensor **grad) {
    if (n->op == NODE_COPY_SLICES) {
        return apply_slices(t, n, g_out, grad);
    }
    if (n->op == NODE_FUNCTION) {
        t->loss_flags |= LOSS_PYTHON;
        return function_backward(n, t->slices, g_out, grad, t->create_graph);
    }
    return apply_row(t, n, g_out, grad);
}

static int before_node(Task *t, Node *n, Tensor **sum) {
    PyObject *hooks = node_rare(n, RARE_TENSOR_HOOKS), *retain = node_rare(n, RARE_RETAIN);
    if (hooks) { /* list of (output number, dict) */
        t->loss_flags |= LOSS_PYTHON;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(hooks); i++) {
            PyObject *pair = PyList_GET_ITEM(hooks, i);
            long nr = PyLong_AsLong(PyTuple_GET_ITEM(pair, 0));
            if (sum[nr] && engine_run_hooks(PyTuple_GET_ITEM(pair, 1), &sum[nr]) < 0) {
                return -1;
            }
        }
    }
    if (retain) { /* list of (output number, weak reference to the tensor) */
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(retain); i++) {
            PyObject *pair = PyList_GET_ITEM(retain, i);
            long nr = PyLong_AsLong(PyTuple_GET_ITEM(pair, 0));
            PyObject *o = PyObject_CallNoArgs(PyTuple_GET_ITEM(pair, 1));
            if (!o) {
                return -1;
            }
            if (tensor_check(o) && sum[nr]) {
                Tensor *kept = (Tensor *)o, *g = sum[nr];
                bool spread = amp_has_internal_overlap(&g->v); /* clipping must be able to write to it */
                Tensor *total = kept->grad ? call_binary(OP_add, kept->grad, g)
                                : spread   ? gradient_copy(kept, g)
                                           : (Tensor *)Py_NewRef((PyObject *)g);
                if (!total) {
                    Py_DECREF(o);
                    return -1;
                }
                Py_XSETREF(kept->grad, total);
            }
            Py_DECREF(o);
        }
    }
    for (uint32_t k = 0; k < n->nout; k++) {
        capture(t, (PyObject *)n, k, sum[k]);
    }
    return 0;
}

/* Hooks see the gradients of what next_functions shows. */
static int run_after_hooks(PyObject *hooks, const Node *n, Tensor **grad, PyObject *given) {
    const int shown = node_shown_inputs(n);
    if (shown == n->nin) {
        return engine_run_node_hooks(hooks, n->nin, grad, given);
    }
    Tensor **some = PyMem_Malloc((size_t)(shown ? shown : 1) * sizeof *some);
    if (!some) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0, k = 0; i < n->nin; i++) {
        if (node_input_shown(n, i)) {
            some[k++] = grad[i];
        }
    }
    int failed = engine_run_node_hooks(hooks, shown, some, given);
    for (int i = 0, k = 0; i < n->nin; i++) {
        if (node_input_shown(n, i)) {
            grad[i] = some[k++];
        }
    }
    PyMem_Free(some);
    return failed;
}

/* A node that has hooks of its own, or any node while anomalies are looked for. */
static int apply_watched(Task *t, Node *n, Tensor **sum, Tensor **grad) {
    PyObject *before = Py_XNewRef(node_rare(n, RARE_PRE_HOOKS)), *after = Py_XNewRef(node_rare(n, RARE_HOOKS)), *given = NULL;
    Node *outer = anomaly_enter(anomaly_enabled ? n : NULL);
    t->loss_flags |= before || after ? LOSS_PYTHON : 0;
    int failed = before && engine_run_node_hooks(before, n->nout, sum, NULL) < 0 ? -1 : 0;
    if (!failed && after) { /* held, so that the derivative doesn't compute in their memory */
        given = gradients_tuple(n->nout, sum);
        failed = given ? 0 : -1;
    }
    failed = failed ? -1 : apply_node(t, n, sum, grad);
    if (!failed && after) {
        failed = run_after_hooks(after, n, grad, given);
    }
    if (anomaly_enabled && (failed || anomaly_check(n, grad) < 0)) {
        anomaly_report(n);
        failed = -1;
    }
    anomaly_enter(outer);
    Py_XDECREF(given);
    Py_XDECREF(before);
    Py_XDECREF(after);
    return failed;
}

static int run_node(Task *t, int64_t i) {
    enum { FEW = 8 };
    Node *n = (Node *)t->slot[i].key;
    Tensor *few[FEW] = {NULL}, **grad = few, **sum = sums_of(&t->slot[i]);
    bool any = false, wanted = false;
    if (!sum || before_node(t, n, sum) < 0) {
        return -1;
    }
    for (int k = 0; k < n->nout; k++) {
        any |= sum[k] != NULL;
        t->loss_flags |= sum[k] && n->out[k].dtype == AMP_FLOAT16 ? LOSS_HALF : 0;
    }
    for (int k = 0; k < n->nin; k++) {
        wanted |= n->edge[k].to && t->slot[find_slot(t, n->edge[k].to)].needed;
    }
    if (n->nin > FEW && !(grad = PyMem_Calloc((size_t)n->nin, sizeof *grad))) {
        PyErr_NoMemory();
        return -1;
    }
    int failed = 0;
    t->rounded = 0;
    if (any && wanted) {
        if (n->state & NODE_LOSS_SCALED) {
            t->loss_scale = t->scaled && t->loss_scale != n->loss_scale ? NAN : n->loss_scale;
            t->loss_flags |= t->loss_flags & LOSS_KNOWN && t->loss_number != n->loss_number ? LOSS_KNOWN | LOSS_UNSURE
                                                                                            : LOSS_KNOWN;
            t->loss_number = n->loss_number;
            t->scaled = true;
        }
        /* The frame of this node holds the only references to its incoming gradients. */
        failed = n->rare || anomaly_enabled ? apply_watched(t, n, sum, grad) : apply_node(t, n, sum, grad);
        if (!t->keep_graph && !failed) {
            node_release(n);
        }
    }
    sum = t->slot[i].sum;
    const uint32_t rounded = t->rounded;
    for (int k = 0; k < n->nout; k++) {
        Py_CLEAR(sum[k]);
    }
    for (int k = 0; k < n->nin; k++) {
        if (!n->edge[k].to || failed) {
            Py_XDECREF(grad[k]);
            continue;
        }
        failed = deliver(t, &n->edge[k], &n->in[k], grad[k], k >= 32 || !(rounded >> k & 1));
    }
    if (grad != few) {
        PyMem_Free(grad);
    }
    return failed;
}

static int run_all(Task *t, int n, const Edge *edges, Tensor *const *gradients) {
    for (int i = 0; i < n; i++) {
        if (deliver(t, &edges[i], NULL, (Tensor *)Py_NewRef((PyObject *)gradients[i]), false) < 0) {
            return -1;
        }
    }
    while (t->nheap) {
        if (run_node(t, heap_pop(t)) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; t->at_end && i < PyList_GET_SIZE(t->at_end); i++) { /* one may queue another */
        PyObject *done = PyObject_CallNoArgs(PyList_GET_ITEM(t->at_end, i));
        if (!done) {
            return -1;
        }
        Py_DECREF(done);
    }
    return 0;
}

bool engine_for_inputs(void) { return running && running->ncapture; }

int64_t engine_task(void) { return running ? running->number : -1; }

bool engine_reaches(PyObject *key) {
    int64_t i = running ? find_slot(running, key) : -1;
    return i >= 0 && running->slot[i].needed;
}

int engine_at_end(PyObject *callback) {
    if (!running) {
        PyErr_SetString(PyExc_RuntimeError, "Final callbacks can only be installed during backward pass: call this in a hook");
        return -1;
    }
    return running->at_end || (running->at_end = PyList_New(0)) ? PyList_Append(running->at_end, callback) : -1;
}

int engine_backward(int n, const Edge *edges, Tensor *const *gradients, bool keep_graph, bool create_graph, int ninputs,
                    const Edge *inputs, bool accumulate_grads, bool allow_unused, Tensor **results) {
    static int64_t passes;
    Task t;
    uint8_t mode = amp_mode, grad_mode = amp_grad_enabled;
    Task *outer = running;
    int failed = -1;
    t.keep_graph = keep_graph;
    t.create_graph = create_graph;
    t.accumulate = accumulate_grads;
    t.number = passes++;
    if (task_begin(&t, ninputs, inputs) < 0) {
        goto done;
    }
    for (int i = 0; i < n; i++) {
        int64_t j = find_slot(&t, edges[i].to);
        if (j < 0 && (j = add_slot(&t, edges[i].to)) < 0) {
            goto done;
        }
        t.slot[j].waiting++;
    }
    if (count_uses(&t, 0) < 0 || mark_needed(&t) < 0) {
        goto done;
    }
    if (t.nslots > FIRST_SLOTS && !(t.heap = PyMem_Malloc((size_t)(t.nslots + 1) * sizeof *t.heap))) {
        PyErr_NoMemory();
        goto done;
    }
    amp_mode &= (uint8_t) ~(MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA |
                            MODE_SELECT); /* casts were recorded: the forward pass decided the dtypes */
    amp_grad_enabled = create_graph;
    if (outer) {
        t.loss_flags = outer->loss_flags;
        t.loss_number = outer->loss_number;
    }
    running = &t;
    observer_backward++;
    bool ran = run_all(&t, n, edges, gradients) == 0;
    observer_backward--;
    running = outer;
    if (outer) {
        outer->loss_flags |= t.loss_flags & (LOSS_HALF | LOSS_PYTHON);
    }
    if (!ran) {
        goto done;
    }
    for (int i = 0; i < ninputs && results; i++) {
        if (!t.capture[i].result && !allow_unused) {
            PyErr_Format(PyExc_RuntimeError,
                         "The differentiated Tensor at index %d appears to not have been used in the graph. Set "
                         "allow_unused=True if this is the desired behavior.",
                         i);
            goto done;
        }
        results[i] = (Tensor *)Py_XNewRef((PyObject *)t.capture[i].result);
    }
    failed = 0;
done:
    amp_mode = (uint8_t)((mode & ~MODE_OBSERVER) | (amp_mode & MODE_OBSERVER)); /* a hook may have begun or ended a report */
    amp_grad_enabled = grad_mode;
    task_free(&t);
    return failed;
}
