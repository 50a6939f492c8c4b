/* Graph nodes and the backward pass.
 *
 *   Tensor --fn--> Node --edge[i]--> Node, or leaf Tensor, or NULL (input i needs no gradient)
 *
 * A Node is immutable once recorded. It keeps the call's arguments as parsed (`arg`, tensors left out) and the tensors that the row's
 * `saves` column names. seq numbers give the order: the engine runs nodes from the newest to the oldest. */
#ifndef AMP_NODE_H
#define AMP_NODE_H
#include "run_op.h"

/* Shape and type of a tensor without its memory. */
typedef struct TensorMeta {
    int8_t ndim, dtype, device;
    int64_t *shape; /* inline_shape, or a heap block above AMP_INLINE_DIMS dimensions */
    int64_t inline_shape[AMP_INLINE_DIMS];
} TensorMeta;

typedef struct Edge {
    PyObject *to; /* Node or leaf Tensor, strong; NULL: nothing to do */
    uint32_t nr;  /* output number of that Node */
} Edge;

typedef struct Saved {
    Tensor *t;        /* strong; an own output is kept as an alias without fn, so that no cycle arises; NULL: not kept */
    uint32_t version; /* of its storage when it was saved */
} Saved;

enum { SAVED_SLOTS = 6 }; /* IN0..IN3, OUT0, OUT1 */
enum {
    NODE_RELEASED = 1,
    NODE_LOSS_SCALED = 2, /* its output is a loss that a GradScaler scaled */
    NODE_OWNS_ARGS = 4    /* arg[] holds lists or texts of its own */
};

struct Node {
    PyObject_HEAD
    uint64_t seq;
    uint16_t op; /* OP_*, or NODE_FUNCTION, NODE_COPY_SLICES, NODE_TO_CHECKPOINT.. */
    uint8_t nout, state, narg;
    uint8_t packed; /* bit i: saved[i].t is no Tensor but what saved_pack made of it */
    uint16_t shown; /* the op that it is named after: its own, or the one that was made of several, of which this is the last */
    int32_t nin;    /* edges */
    uint32_t piece; /* what the numbers of its outputs start at for users: which part of a split() it made */
    Edge *edge;
    TensorMeta *in;  /* nin entries */
    TensorMeta *out; /* nout entries */
    Arg *arg;        /* narg entries in edge's block; ARG_TENSOR kinds hold no pointer */
    Saved saved[SAVED_SLOTS];
    Saved *list; /* nlist entries: saved tensor list (index) */
    int32_t nlist;
    float loss_scale;     /* NODE_LOSS_SCALED: by how much */
    uint32_t loss_number; /* and its scaler's number for it */
    PyObject *context;    /* NODE_FUNCTION: the ctx object; strong */
    struct SliceInfo
        *slice;      /* NODE_COPY_SLICES; OP_as_strided: base_stride and base_offset of the input, NULL if contiguous from 0 */
    PyObject **rare; /* NODE_RARE_COUNT strong entries that may be NULL; NULL for almost all nodes */
    PyObject *weak;
};
enum {
    RARE_TENSOR_HOOKS, /* list of (output number, dict id -> hook(grad)) */
    RARE_RETAIN,       /* list of (output number, weakref to tensor): retain_grad */
    RARE_PRE_HOOKS,    /* dict id -> hook(grad_outputs) */
    RARE_HOOKS,        /* dict id -> hook(grad_inputs, grad_outputs) */
    RARE_METADATA,     /* dict */
    NODE_RARE_COUNT
};
enum { NODE_FUNCTION = OP_COUNT, NODE_COPY_SLICES, NODE_SHOWN /* and above: only in `shown`, see node_face.c */ };

/* An in-place write through a view, seen from the base: node->edge[written] leads to the base's old history, the others as those of
 * `inner`, the node of the operation itself, whose input `written` is the view. */
typedef struct SliceInfo {
    Node *inner; /* strong */
    int written;
    TensorMeta view;
    int64_t *stride, offset; /* of the view inside the base's storage, in elements */
    int64_t *base_stride, base_offset;
} SliceInfo;

/* What a derivative sees. Results belong to the frame; NULL in gives NULL out; the engine checks once at the end. */
typedef struct Back {
    Node *node;
    Node *slices;   /* the NODE_COPY_SLICES that has `node` inside, or NULL; borrowed */
    Tensor **g_out; /* gradients of the outputs; entries may be NULL (undefined) */
    Tensor *g;      /* g_out[0] */
    Tensor **grad;  /* nin results, borrowed from the frame */
    Tensor **owned; /* the frame: tensors to drop when the derivative has returned */
    int nowned, cap;
    bool failed;             /* an exception is set */
    uint8_t unpacked;        /* bit i: hooks have made tensor[i] of what they kept in slot i; they are asked once */
    const struct Task *task; /* the pass that this is part of */
    uint64_t idle;           /* bit i: this pass was given inputs, and none of them lies behind input i */
    uint32_t rounded;        /* bit i: grad[i] is fp32, of values that in[i]'s dtype has; only where engine_takes_rounded(b, i) */
    Tensor *tensor[SAVED_SLOTS];
    Tensor *inline_owned[24];
} Back;

/* An empty frame, field by field: inline_owned is written before it is read, and clearing it would cost more than a small derivative. */
static inline void back_begin(Back *b) {
    b->node = b->slices = NULL;
    b->g_out = b->grad = NULL;
    b->g = NULL;
    b->owned = b->inline_owned;
    b->nowned = 0;
    b->cap = (int)(sizeof b->inline_owned / sizeof *b->inline_owned);
    b->failed = false;
    b->unpacked = 0;
    b->task = NULL;
    b->idle = 0;
    b->rounded = 0;
}

static inline bool back_needs(const Back *b, int i) { return b->node->edge[i].to != NULL && !(i < 64 && b->idle >> i & 1); }
#define NEED(i) back_needs(b, i)
#define GRAD(i, expression) \
    do { \
        if (NEED(i)) { \
            (b)->grad[i] = (expression); \
        } \
    } while (0)
#define IN(i)      back_saved(b, i)
#define OUT(i)     back_saved(b, 4 + (i))
#define ARG(i)     ((b)->node->arg[i])
#define IN_META(i) ((b)->node->in[i])

Tensor *back_own(Back *b, Tensor *t);  /* gives t (new reference or NULL = failure) to the frame; returns it borrowed */
Tensor *back_saved(Back *b, int slot); /* checks versions; NULL and failed if modified or not saved */

int node_init(PyObject *module);
bool grad_recording(void); /* grad mode is on */
/* Records a call: makes the node, links results to it. 0 or -1. */
int node_record(const OpRow *row, OpCall *call, Arg *arg, int narg);
/* `view` shows src's memory: writes through one reach the history of the other. */
void node_link_view(Tensor *view, Tensor *src);
/* The in-place write to `view`, input `written` of `inner`, becomes a node on the base: see SliceInfo. inner's edge there is the view's old
 * history, which the base's old history replaces. 0 or -1. */
int node_write_view(Tensor *view, Node *inner, int written);
/* The history of output *nr that `node` saved: the node itself, or, where it writes through a view inside of `slices` (else NULL), the view
 * of the base. New reference, NULL with an exception. */
Node *node_output_history(Node *node, Node *slices, uint32_t *nr);
/* RuntimeError; -1. */
int node_refuse_complex(const OpRow *row);
/* A bare node with nin edges, nout outputs and room for narg arguments (metadata and arguments still unset). */
Node *node_new(int op, int nin, int nout, int narg);
/* To be called once the edges are set: a node is newer than all that its edges lead to, also than a view's history that was made
 * only then. The engine counts on it. */
void node_date(Node *n);
/* t, whose gradient is retained, was written to: `to` is its history now, and leads to what .grad shall be. 0 or -1. */
int node_move_retain(Tensor *t, Node *to, uint32_t nr);
int meta_set(TensorMeta *m, const Tensor *t);
void meta_clear(TensorMeta *m);
int edge_set(Edge *e, Tensor *t); /* to t's history, or t itself if it is a leaf that requires grad, or nothing */
/* t's history after lazily rebuilding a view's fn whose base was written to. New reference in *fn (may be NULL). 0 or -1. */
int tensor_history(Tensor *t, Node **fn, uint32_t *nr);
void node_release(Node *n); /* drops what was saved */
int node_clear(PyObject *self);
int node_traverse(PyObject *self, visitproc visit, void *arg);
void node_dealloc(PyObject *self);

/* node_face.c: nodes as Python sees them. */
static inline PyObject *node_rare(const Node *n, int which) { return n->rare ? n->rare[which] : NULL; }
PyObject **node_rare_slot(Node *n, int which); /* made on demand; NULL with MemoryError */
void node_rare_clear(Node *n);
PyObject *node_name(const Node *n);
/* The node as users get to see it: its type is named as it is (a subtype of Node). Takes over the reference; NULL stays NULL. */
PyObject *node_face(Node *n);
/* Names the nodes behind a composite's results after it, where PyTorch does. */
void node_show_as(const OpRow *row, const OpCall *c);
/* The same for parts (a tuple of tensors) of what is one operation there: numbered as its outputs. 0, or -1 for an unknown name. */
int node_show_parts(const char *name, PyObject *parts);
/* Node or leaf? */
static inline bool node_check(const PyObject *o) {
    return Py_TYPE(o) == amp_state.node_type || Py_TYPE(o)->tp_dealloc == node_dealloc;
}
PyObject *node_metadata(Node *n);                       /* borrowed */
PyObject *register_in(PyObject **dict, PyObject *hook); /* adds to a dict that is made on demand; its handle */
/* What a root or an input of a backward pass says: a Tensor, or a GradientEdge. New reference in e->to (NULL: no history). With meta:
 * borrowed shape and type. 0 or -1. */
bool edge_check(PyObject *o); /* it is one of these */
int edge_parse(PyObject *o, Edge *e, TensorMeta *meta);

/* An argument of a custom Function that is no tensor has an edge that leads nowhere and users don't see. */
enum { NO_TENSOR = -1 }; /* its dtype in Node.in */
static inline bool node_input_shown(const Node *n, int i) { return n->op != NODE_FUNCTION || n->in[i].dtype != NO_TENSOR; }
static inline int node_shown_inputs(const Node *n) {
    int shown = 0;
    for (int i = 0; i < n->nin; i++) {
        shown += node_input_shown(n, i);
    }
    return shown;
}

/* function.c: autograd.Function. slices: the node that has n inside, or NULL. grad[i]: new references or NULL. */
int function_backward(Node *n, Node *slices, Tensor **g_out, Tensor **grad, bool create_graph);
void function_release(Node *n);
/* function_outputs.c */
int function_refuse_stale(const Tensor *t); /* RuntimeError for a TENSOR_FUNCTION_VIEW that was written over; -1 */

/* engine_hooks.c: runs hooks (dict id -> callable) on *g; a hook may return a replacement, which takes g's place. 0 or -1. */
int engine_run_hooks(PyObject *hooks, Tensor **g);
/* Runs hooks of a node: on its n incoming gradients, or (after it ran) on what it made, beside `outputs`, a tuple. Entries may be NULL;
 * hooks may replace them. 0 or -1. */
int engine_run_node_hooks(PyObject *hooks, int n, Tensor **g, PyObject *outputs);
PyObject *gradients_tuple(int n, Tensor *const *g);

/* engine.c */
int engine_backward(int n, const Edge *roots, Tensor *const *gradients, bool keep_graph, bool create_graph, int ninputs,
                    const Edge *inputs, bool accumulate, bool allow_unused, Tensor **results);
int engine_init(PyObject *module);
/* Input i is a 16-bit cast of a fp32 tensor, and this node's gradient is the only one of it that anybody sees: it may be written in fp32
 * at once, rounded through the 16-bit type, so that the cast's own node has nothing left to convert. */
bool engine_takes_rounded(const Back *b, int i);
/* About the pass that runs in this thread. */
bool engine_for_inputs(void);                /* there is one, and it was given inputs */
int64_t engine_task(void);                   /* its number, -1: none */
bool engine_reaches(PyObject *node_or_leaf); /* it computes a gradient of that */
int engine_at_end(PyObject *callback);       /* to be called when it has ended well; -1: there is none, with an exception */
/* engine_entry.c: the same over tuples of Python objects; *out (may be NULL): tuple of the inputs' gradients. */
int engine_backward_objects(PyObject *roots, PyObject *gradients, bool keep_graph, bool create_graph, PyObject *inputs,
                            bool accumulate, bool allow_unused, PyObject **out);
/* Reduces a broadcast gradient to the metadata's shape and dtype; new reference. */
Tensor *sum_to_meta(Tensor *g, const TensorMeta *m);

#endif
