/* Recurrent layers in one direction: what ampnative/_ops/recurrent.py leaves to C, the loop over time steps.
 *
 * Sequences lie packed, step after step; a step has the rows of those sequences that are as long. They are sorted by length, so
 * that the rows of a step are the first ones of the states:
 *
 *     step 0        step 1     step 2
 *     | a b c d |   | a b c |  | a |        batch sizes 4, 3, 1
 *
 * The states hold one row per sequence and are updated in place. Forwards in time, a row that is no longer in the batch keeps its last
 * state; backwards in time, a row that is not yet in it keeps its first one. So both directions are one loop. */
#include <string.h>

#include "args.h"
#include "classes.h"

typedef struct Recurrence {
    RecurrentKind kind;
    bool reverse;
    const char *name;
    ArgFrame frame;
    Arg batches, precision;
    int64_t rows, most; /* packed rows of all steps; rows of the largest */
    int64_t hidden;     /* features of a cell */
    int device;
} Recurrence;

static const char *const names[RECURRENT_KINDS] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};

static int64_t gates_of(RecurrentKind kind) { return kind == RECURRENT_LSTM ? 4 : kind == RECURRENT_GRU ? 3 : 1; }

/* Work per feature: the activated gates; the cells without gates are known by their output. */
static int64_t work_of(RecurrentKind kind) { return kind <= RECURRENT_GRU ? 4 : 1; }

/* A row range of a matrix. */
typedef struct Rows {
    View v;
    int64_t dims[4];
} Rows;

static View *rows_of(Rows *r, const Tensor *t, int64_t from, int64_t n) {
    r->v = t->v;
    r->dims[0] = n;
    r->dims[1] = t->v.shape[1];
    r->dims[2] = t->v.stride[0];
    r->dims[3] = t->v.stride[1];
    r->v.shape = r->dims;
    r->v.stride = r->dims + 2;
    r->v.numel = n * r->dims[1];
    r->v.data += from * r->dims[2] * (int64_t)amp_itemsize(t->v.dtype);
    r->v.layout = t->v.layout;
    return &r->v;
}

static View *transposed(Rows *r, const Tensor *t) {
    rows_of(r, t, 0, t->v.shape[0]);
    for (int i = 0; i < 4; i += 2) {
        int64_t first = r->dims[i];
        r->dims[i] = r->dims[i + 1];
        r->dims[i + 1] = first;
    }
    r->v.layout = 0;
    return &r->v;
}

/* ---- arguments. They come from the package alone; the checks keep a wrong call inside its memory. ---- */

static int wrong(const char *what) {
    PyErr_Format(PyExc_RuntimeError, "recurrent step: %s does not have the shape, dtype or device that the step needs", what);
    return -1;
}

/* The tensor, NULL for None where that is allowed; *failed is set for anything else. rows, columns -1: any. */
static Tensor *matrix(PyObject *o, int64_t rows, int64_t columns, bool optional, const char *what, bool *failed) {
    if (o == Py_None && optional) {
        return NULL;
    }
    Tensor *t = tensor_check(o) ? (Tensor *)o : NULL;
    bool fits = t && t->v.ndim == 2 && amp_is_floating(t->v.dtype) && t->v.layout & LAYOUT_CONTIGUOUS &&
                (rows < 0 || t->v.shape[0] == rows) && (columns < 0 || t->v.shape[1] == columns);
    if (!fits && !*failed) {
        wrong(what);
    }
    *failed |= !fits;
    return fits ? t : NULL;
}

static Tensor *vector(PyObject *o, int64_t n, const char *what, bool *failed) {
    if (o == Py_None) {
        return NULL;
    }
    Tensor *t = tensor_check(o) ? (Tensor *)o : NULL;
    bool fits = t && t->v.ndim == 1 && t->v.shape[0] == n && amp_is_floating(t->v.dtype) && t->v.layout & LAYOUT_CONTIGUOUS;
    if (!fits && !*failed) {
        wrong(what);
    }
    *failed |= !fits;
    return fits ? t : NULL;
}

static int parse_kind(PyObject *o, Recurrence *r) {
    long kind = PyLong_Check(o) ? PyLong_AsLong(o) : -1;
    if (kind < 0 || kind >= RECURRENT_KINDS) {
        PyErr_Format(PyExc_ValueError, "recurrent step: no cell has the number %R", o);
        return -1;
    }
    r->kind = (RecurrentKind)kind;
    r->name = names[kind];
    return 0;
}

/* (batch sizes, reverse, precision) */
static int parse_steps(PyObject *const *args, Recurrence *r) {
    args_begin(&r->frame);
    int reverse = PyObject_IsTrue(args[1]);
    if (reverse < 0 || args_int_list(args[0], &r->frame, &r->batches) <= 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "recurrent step: batch sizes must be integers");
        }
        return -1;
    }
    r->reverse = reverse;
    r->precision = (Arg){.kind = ARG_STR, .s = PyUnicode_Check(args[2]) ? PyUnicode_AsUTF8(args[2]) : NULL};
    if (!r->precision.s) {
        r->precision.kind = ARG_NONE;
    }
    r->rows = 0;
    r->most = r->batches.n > 0 ? r->batches.ints[0] : 0;
    for (int t = 0; t < r->batches.n; t++) {
        int64_t b = r->batches.ints[t];
        if (b < 0 || b > r->most || (t > 0 && b > r->batches.ints[t - 1]) || r->rows > INT64_MAX - b) {
            PyErr_SetString(PyExc_RuntimeError, "recurrent step: batch sizes must not grow from step to step");
            return -1;
        }
        r->rows += b;
    }
    return 0;
}

static Tensor *scratch(const Recurrence *r, int64_t rows, int64_t columns, int dtype) {
    int64_t shape[2] = {rows, columns};
    return tensor_new(2, shape, dtype, r->device);
}

static int run_step(const Recurrence *r, bool backward, int64_t rows, const View *const *in, View *const *out) {
    Call call;
    amp_call_init(&call, OP_tanh);
    call.nin = AMP_MAX_IN;
    call.nout = AMP_MAX_OUT;
    memcpy(call.in, in, sizeof call.in);
    memcpy(call.out, out, sizeof call.out);
    call.nnum = 2;
    call.num[0] = number_int(r->kind);
    call.num[1] = number_int(backward);
    return run_slot(r->device, AMP_BACKEND_SLOT(r->device, recurrent), &call, rows * r->hidden * 64, r->name);
}

/* The step that is number `i` in time order of the pass, and where its rows begin. */
static int64_t step_at(const Recurrence *r, int i, bool from_the_end, int64_t *offset) {
    bool last_first = r->reverse != from_the_end;
    int n = r->batches.n;
    int t = last_first ? n - 1 - i : i;
    if (i == 0) {
        *offset = last_first ? r->rows - r->batches.ints[t] : 0;
    } else {
        *offset += last_first ? -r->batches.ints[t] : r->batches.ints[t - 1];
    }
    return r->batches.ints[t];
}

/* ---- one cell, for the functions of single steps ---- */

static PyObject *cell(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs) {
    Recurrence r = {0};
    bool failed = nargs != 7;
    if (failed || parse_kind(args[0], &r) < 0) {
        return failed ? (wrong("the call"), NULL) : NULL;
    }
    Tensor *before = matrix(args[3], -1, -1, true, "state", &failed), *h = matrix(args[4], -1, -1, false, "output", &failed);
    if (failed) {
        return NULL;
    }
    int64_t b = h->v.shape[0], gates = gates_of(r.kind);
    r.hidden = h->v.shape[1];
    r.device = h->v.device;
    Tensor *x = matrix(args[1], b, gates * r.hidden, false, "input gates", &failed);
    Tensor *g = matrix(args[2], b, gates * r.hidden, false, "hidden gates", &failed);
    Tensor *c = matrix(args[5], b, r.hidden, r.kind != RECURRENT_LSTM, "cell", &failed);
    Tensor *work = matrix(args[6], b, work_of(r.kind) * r.hidden, true, "work", &failed);
    if (!failed && r.kind <= RECURRENT_GRU && (!before || before->v.shape[0] != b || before->v.shape[1] != r.hidden)) {
        wrong("state");
        failed = true;
    }
    if (failed) {
        return NULL;
    }
    View *last = work ? &work->v : NULL;
    const View *in[AMP_MAX_IN] = {&x->v, &g->v, NULL, before ? &before->v : NULL};
    View *out[AMP_MAX_OUT] = {&h->v, c ? &c->v : r.kind == RECURRENT_GRU ? last : NULL, r.kind == RECURRENT_LSTM ? last : NULL};
    if (run_step(&r, false, b, in, out) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *cell_grad(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs) {
    Recurrence r = {0};
    bool failed = nargs != 8;
    if (failed || parse_kind(args[0], &r) < 0) {
        return failed ? (wrong("the call"), NULL) : NULL;
    }
    Tensor *g = matrix(args[1], -1, -1, false, "gradient", &failed);
    if (failed) {
        return NULL;
    }
    int64_t b = g->v.shape[0], gates = gates_of(r.kind);
    bool lstm = r.kind == RECURRENT_LSTM, gru = r.kind == RECURRENT_GRU;
    r.hidden = g->v.shape[1];
    r.device = g->v.device;
    Tensor *work = matrix(args[2], b, work_of(r.kind) * r.hidden, false, "work", &failed);
    Tensor *before = matrix(args[3], b, r.hidden, !lstm && !gru, "state", &failed);
    Tensor *gc = matrix(args[4], b, r.hidden, !lstm, "cell's gradient", &failed);
    Tensor *gx = matrix(args[5], b, gates * r.hidden, false, "gates' gradient", &failed);
    Tensor *gh = matrix(args[6], b, gru ? gates * r.hidden : r.hidden, !lstm && !gru, "second gradient", &failed);
    Tensor *direct = matrix(args[7], b, r.hidden, !gru, "state's gradient", &failed);
    if (failed) {
        return NULL;
    }
    const View *in[AMP_MAX_IN] = {&g->v, &work->v, before ? &before->v : NULL, gc ? &gc->v : NULL};
    View *out[AMP_MAX_OUT] = {&gx->v, gh ? &gh->v : NULL, direct ? &direct->v : NULL};
    if (run_step(&r, true, b, in, out) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- a layer ---- */

typedef struct Layer {
    Tensor *gates, *weight, *projection;        /* packed (rows, GH); (GH, P); (P, H) or NULL: P = H */
    View *bias;                                 /* (GH) or NULL */
    Tensor *h, *c;                              /* states (most, P), (most, H); c for the LSTM only */
    Tensor *out;                                /* packed (rows, P) */
    Tensor *old_h, *old_c, *work, *unprojected; /* kept for the backward pass, packed; or NULL */
    Tensor *hidden_gates, *operand, *cell_out;  /* of one step, owned */
    Tensor *across;                             /* weight transposed, (P, GH), owned; NULL: a few steps are faster without */
} Layer;

enum { TRANSPOSED_ONCE = 4 }; /* steps that make up for the copy of the weight */

static int forward_step(const Recurrence *r, const Layer *l, int64_t at, int64_t b) {
    Rows h, c, rows, gates, hidden, weight, work, full;
    View *state = rows_of(&h, l->h, 0, b), *operand = state, *cell_view = l->c ? rows_of(&c, l->c, 0, b) : NULL;
    bool lstm = r->kind == RECURRENT_LSTM;
    if (l->old_h && raw_copy(rows_of(&rows, l->old_h, at, b), state) < 0) {
        return -1;
    }
    if (l->old_c && raw_copy(rows_of(&rows, l->old_c, at, b), cell_view) < 0) {
        return -1;
    }
    if (l->operand) {
        operand = rows_of(&rows, l->operand, 0, b);
        if (raw_copy(operand, state) < 0) {
            return -1;
        }
    }
    View *hidden_gates = rows_of(&hidden, l->hidden_gates, 0, b);
    const View *across = l->across ? &l->across->v : transposed(&weight, l->weight);
    if (raw_product(operand, across, hidden_gates, &r->precision, false, r->name) < 0) {
        return -1;
    }
    View *made = l->unprojected  ? rows_of(&full, l->unprojected, at, b)
                 : l->projection ? rows_of(&full, l->cell_out, 0, b)
                                 : state;
    View *last = l->work ? rows_of(&work, l->work, at, b) : NULL;
    const View *in[AMP_MAX_IN] = {rows_of(&gates, l->gates, at, b), hidden_gates, l->bias, lstm ? cell_view : state};
    View *out[AMP_MAX_OUT] = {made, lstm ? cell_view : r->kind == RECURRENT_GRU ? last : NULL, lstm ? last : NULL};
    if (run_step(r, false, b, in, out) < 0) {
        return -1;
    }
    if (l->projection && raw_product(made, transposed(&weight, l->projection), state, &r->precision, false, r->name) < 0) {
        return -1;
    }
    return raw_copy(rows_of(&rows, l->out, at, b), state);
}

/* (kind, gates, weight_hh, bias_hh, weight_hr, h, c, batch sizes, reverse, precision, out, old_h, old_c, work, unprojected) */
static int parse_layer(PyObject *const *args, Recurrence *r, Layer *l) {
    bool failed = false;
    if (parse_kind(args[0], r) < 0 || parse_steps(args + 7, r) < 0) {
        return -1;
    }
    int64_t gates = gates_of(r->kind);
    l->gates = matrix(args[1], r->rows, -1, false, "gates", &failed);
    l->h = matrix(args[5], r->most, -1, false, "hidden state", &failed);
    if (failed) {
        return -1;
    }
    int64_t wide = l->gates->v.shape[1], width = l->h->v.shape[1];
    r->hidden = wide / gates;
    r->device = l->gates->v.device;
    l->weight = matrix(args[2], wide, width, false, "weight_hh", &failed);
    Tensor *bias = vector(args[3], wide, "bias_hh", &failed);
    l->bias = bias ? &bias->v : NULL;
    l->projection = matrix(args[4], width, r->hidden, true, "weight_hr", &failed);
    bool lstm = r->kind == RECURRENT_LSTM;
    l->c = matrix(args[6], r->most, r->hidden, !lstm, "cell", &failed);
    l->out = matrix(args[10], r->rows, width, false, "output", &failed);
    l->old_h = matrix(args[11], r->rows, width, true, "old hidden state", &failed);
    l->old_c = matrix(args[12], r->rows, r->hidden, true, "old cell", &failed);
    l->work = matrix(args[13], r->rows, work_of(r->kind) * r->hidden, true, "work", &failed);
    l->unprojected = matrix(args[14], r->rows, r->hidden, true, "unprojected state", &failed);
    if (failed) {
        return -1;
    }
    bool fits = wide == gates * r->hidden && l->gates->v.dtype == l->weight->v.dtype && (l->projection || width == r->hidden) &&
                (!l->old_c || l->c) && (!l->unprojected || l->projection);
    return fits ? 0 : wrong("the layer");
}

static PyObject *layer(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs) {
    Recurrence r = {0};
    Layer l = {0};
    int64_t at = 0;
    int failed = -1;
    if (nargs != 15) {
        wrong("the call");
        return NULL;
    }
    args_begin(&r.frame);
    if (parse_layer(args, &r, &l) < 0) {
        goto done;
    }
    int dtype = l.weight->v.dtype;
    l.hidden_gates = scratch(&r, r.most, l.gates->v.shape[1], dtype);
    l.operand = l.h->v.dtype != dtype ? scratch(&r, r.most, l.h->v.shape[1], dtype) : NULL;
    l.cell_out = l.projection && !l.unprojected ? scratch(&r, r.most, r.hidden, dtype) : NULL;
    if (r.batches.n >= TRANSPOSED_ONCE && !PyErr_Occurred()) {
        Rows weight;
        l.across = scratch(&r, l.weight->v.shape[1], l.weight->v.shape[0], dtype);
        if (l.across) {
            raw_copy(&l.across->v, transposed(&weight, l.weight));
        }
    }
    failed = PyErr_Occurred() ? -1 : 0;
    for (int i = 0; i < r.batches.n && !failed; i++) {
        int64_t b = step_at(&r, i, false, &at);
        failed = b > 0 ? forward_step(&r, &l, at, b) : 0;
    }
done:
    Py_XDECREF(l.hidden_gates);
    Py_XDECREF(l.operand);
    Py_XDECREF(l.cell_out);
    Py_XDECREF(l.across);
    args_done(&r.frame);
    return failed ? NULL : Py_NewRef(Py_None);
}

typedef struct Gradient {
    Tensor *weight, *projection;
    Tensor *from_out;      /* packed (rows, P) or NULL */
    Tensor *h, *c;         /* gradients of the states, updated in place: (most, P), (most, H) */
    Tensor *work, *old;    /* packed; without gates, work is the output */
    Tensor *gates;         /* result, packed (rows, GH) */
    Tensor *hidden;        /* result of the GRU, packed (rows, GH): its hidden gates have gradients of their own */
    Tensor *projected;     /* result with a projection, packed (rows, P): the gradient that reaches it */
    Tensor *full, *direct; /* of one step, owned */
} Gradient;

static int add_rows(const Recurrence *r, View *sum, const View *term) {
    Call call = {.op = OP_add, .nin = 2, .nout = 1, .in = {sum, term}, .out = {sum}, .nnum = 1, .num = {number_int(1)}};
    return run_slot(r->device, AMP_BACKEND_SLOT(r->device, binary), &call, sum->numel * 16, r->name);
}

static int backward_step(const Recurrence *r, const Gradient *g, int64_t at, int64_t b) {
    Rows h, c, term, full, work, old, gates, hidden, direct, projected;
    View *state = rows_of(&h, g->h, 0, b), *made = state, *cell_view = g->c ? rows_of(&c, g->c, 0, b) : NULL;
    bool gru = r->kind == RECURRENT_GRU;
    if (g->from_out && add_rows(r, state, rows_of(&term, g->from_out, at, b)) < 0) {
        return -1;
    }
    if (g->projection) {
        View *reaching = rows_of(&projected, g->projected, at, b);
        made = rows_of(&full, g->full, 0, b);
        if (raw_copy(reaching, state) < 0 || raw_product(reaching, &g->projection->v, made, &r->precision, false, r->name) < 0) {
            return -1;
        }
    }
    View *gate_grad = rows_of(&gates, g->gates, at, b), *hidden_grad = gru ? rows_of(&hidden, g->hidden, at, b) : gate_grad;
    View *rest = gru ? rows_of(&direct, g->direct, 0, b) : NULL;
    const View *in[AMP_MAX_IN] = {made, rows_of(&work, g->work, at, b), g->old ? rows_of(&old, g->old, at, b) : NULL, cell_view};
    View *out[AMP_MAX_OUT] = {gate_grad, gru ? hidden_grad : cell_view, rest};
    if (run_step(r, true, b, in, out) < 0 || raw_product(hidden_grad, &g->weight->v, state, &r->precision, false, r->name) < 0) {
        return -1;
    }
    return gru ? add_rows(r, state, rest) : 0;
}

/* (kind, weight_hh, weight_hr, batch sizes, reverse, precision, from_out, h, c, work, old, gates, hidden, projected) */
static int parse_gradient(PyObject *const *args, Recurrence *r, Gradient *g) {
    bool failed = false;
    if (parse_kind(args[0], r) < 0 || parse_steps(args + 3, r) < 0) {
        return -1;
    }
    bool lstm = r->kind == RECURRENT_LSTM, gru = r->kind == RECURRENT_GRU;
    g->weight = matrix(args[1], -1, -1, false, "weight_hh", &failed);
    if (failed) {
        return -1;
    }
    int64_t wide = g->weight->v.shape[0], width = g->weight->v.shape[1];
    r->hidden = wide / gates_of(r->kind);
    r->device = g->weight->v.device;
    g->projection = matrix(args[2], width, r->hidden, true, "weight_hr", &failed);
    g->from_out = matrix(args[6], r->rows, width, true, "output's gradient", &failed);
    g->h = matrix(args[7], r->most, width, false, "hidden state's gradient", &failed);
    g->c = matrix(args[8], r->most, r->hidden, !lstm, "cell's gradient", &failed);
    g->work = matrix(args[9], r->rows, work_of(r->kind) * r->hidden, false, "work", &failed);
    g->old = matrix(args[10], r->rows, r->hidden, !lstm && !gru, "old state", &failed);
    g->gates = matrix(args[11], r->rows, wide, false, "gates' gradient", &failed);
    g->hidden = matrix(args[12], r->rows, wide, !gru, "hidden gates' gradient", &failed);
    g->projected = matrix(args[13], r->rows, width, !g->projection, "projection's gradient", &failed);
    if (failed) {
        return -1;
    }
    bool fits = wide == gates_of(r->kind) * r->hidden && g->gates->v.dtype == g->weight->v.dtype &&
                (!gru || g->hidden->v.dtype == g->weight->v.dtype) && (g->projection || width == r->hidden) &&
                (!g->from_out || g->from_out->v.dtype == g->h->v.dtype) &&
                (!g->projection || (g->projected->v.dtype == g->projection->v.dtype));
    return fits ? 0 : wrong("the layer");
}

static PyObject *layer_grad(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs) {
    Recurrence r = {0};
    Gradient g = {0};
    int64_t at = 0;
    int failed = -1;
    if (nargs != 14) {
        wrong("the call");
        return NULL;
    }
    args_begin(&r.frame);
    if (parse_gradient(args, &r, &g) < 0) {
        goto done;
    }
    g.full = g.projection ? scratch(&r, r.most, r.hidden, g.h->v.dtype) : NULL;
    g.direct = r.kind == RECURRENT_GRU ? scratch(&r, r.most, r.hidden, g.h->v.dtype) : NULL;
    failed = PyErr_Occurred() ? -1 : 0;
    for (int i = 0; i < r.batches.n && !failed; i++) {
        int64_t b = step_at(&r, i, true, &at);
        failed = b > 0 ? backward_step(&r, &g, at, b) : 0;
    }
done:
    Py_XDECREF(g.full);
    Py_XDECREF(g.direct);
    args_done(&r.frame);
    return failed ? NULL : Py_NewRef(Py_None);
}

int recurrent_init(PyObject *module) {
#define FAST(function) ((PyCFunction)(void (*)(void))(function))
    static PyMethodDef methods[] = {
        {"_recurrent_cell", FAST(cell), METH_FASTCALL,
         "_recurrent_cell(kind, input_gates, hidden_gates, state, h, c, work, /)\n--\n\nOne step after its products; writes h, c "
         "and "
         "work."},
        {"_recurrent_cell_grad", FAST(cell_grad), METH_FASTCALL,
         "_recurrent_cell_grad(kind, grad_h, work, state, grad_c, gates, second, direct, /)\n--\n\nIts gradients, written to the "
         "last three."},
        {"_recurrent_layer", FAST(layer), METH_FASTCALL,
         "_recurrent_layer(kind, gates, weight_hh, bias_hh, weight_hr, h, c, batch_sizes, reverse, precision, out, old_h, old_c, "
         "work, unprojected, /)\n--\n\nAll steps of one direction; writes the states h and c, and all behind precision."},
        {"_recurrent_layer_grad", FAST(layer_grad), METH_FASTCALL,
         "_recurrent_layer_grad(kind, weight_hh, weight_hr, batch_sizes, reverse, precision, from_out, h, c, work, old, gates, "
         "hidden, projected, /)\n--\n\nThe same backwards; h and c hold the states' gradients, the last three are results."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, methods);
}
