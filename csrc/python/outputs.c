#include "outputs.h"

#include <string.h>

#include "../core/autocast.h"
#include "classes.h"
#include "derivatives/derivatives.h"
#include "node.h"

typedef enum OutRule { TAKES_SAFE, TAKES_EXACT, TAKES_KIND, TAKES_BYTE, TAKES_ANY } OutRule;

void outputs_find(OpCall *c) {
    const OpRow *row = c->row;
    const Arg *out = &c->arg[row->out_index];
    bool list = out->kind == ARG_TENSORS;
    c->out_list = list ? out->ts : NULL;
    c->nout = list ? out->n : 1;
    c->out = list ? out->ts[0] : out->t;
    if (row->rule == RULE_SUM && row->dtype_index >= 0 && c->arg[row->dtype_index].kind == ARG_NONE) {
        c->arg[row->dtype_index] = (Arg){.kind = ARG_DTYPE, .i = c->out->v.dtype};
    }
}

/* ---- dtypes ---- */

static bool is_safe(int from, int to) {
    return amp_dtype_info[from].category <= amp_dtype_info[to].category ||
           (amp_is_integral(from) && amp_is_integral(to) && to != AMP_BOOL);
}

static OutRule rule_of(const OpCall *c) {
    const OpRow *row = c->row;
    uint16_t flags = row->variants;
    if (c->inplace) {
        return TAKES_SAFE;
    }
    if (row->dtype_index >= 0 && c->arg[row->dtype_index].kind == ARG_DTYPE) { /* said twice */
        return TAKES_EXACT;
    }
    switch (flags & ~VARIANTS) {
    case OUT_SAFE: return TAKES_SAFE;
    case OUT_EXACT: return TAKES_EXACT;
    case OUT_KIND: return TAKES_KIND;
    case OUT_BYTE: return TAKES_BYTE;
    case OUT_ANY: return TAKES_ANY;
    default: break;
    }
    switch ((DTypeRule)row->rule) {
    case RULE_PROMOTE:
    case RULE_BITS:
    case RULE_FLOAT:
    case RULE_CPU_SAME:
    case RULE_BOOL:
    case RULE_INEXACT: return TAKES_SAFE;
    case RULE_REAL: return c->arg[0].kind == ARG_TENSOR && amp_is_complex(c->arg[0].t->v.dtype) ? TAKES_SAFE : TAKES_EXACT;
    default: return TAKES_EXACT;
    }
}

/* Raises TypeError for joined tensors, as PyTorch does for them alone. */
static int check_dtype(OutRule rule, bool joins, const char *name, int from, int to) {
    bool ok = from == to || rule == TAKES_ANY || (rule == TAKES_SAFE && is_safe(from, to)) ||
              (rule == TAKES_KIND && amp_dtype_info[from].category == amp_dtype_info[to].category) ||
              (rule == TAKES_BYTE && (to == AMP_UINT8 || to == AMP_BOOL));
    if (ok) {
        return 0;
    }
    if (rule == TAKES_SAFE) {
        PyErr_Format(joins ? PyExc_TypeError : PyExc_RuntimeError,
                     "%s: result type %s can't be cast to the desired output type %s", name, amp_dtype_info[from].name,
                     amp_dtype_info[to].name);
    } else {
        PyErr_Format(PyExc_RuntimeError,
                     "%s: Expected out tensor to have dtype %s, but got %s instead. Calls with out= are not cast, by autocast "
                     "neither",
                     name, amp_dtype_info[from].name, amp_dtype_info[to].name);
    }
    return -1;
}

int output_check_dtype(const OpCall *c, int from, int to) {
    bool joins = !c->inplace && (c->row->op == OP_cat || c->row->op == OP_stack);
    return check_dtype(rule_of(c), joins, c->row->name, from, to);
}

/* ---- memory ---- */

int output_check_overlap(const OpCall *c, const Tensor *out, const Tensor *in) {
    if (in->st != out->st || !amp_overlap_in_part(&out->v, &in->v)) {
        return 0;
    }
    switch (c->row->op) { /* PyTorch lets these, too: they read a number first, or are made without out */
    case OP_fill:
    case OP_masked_fill:
    case OP_index_fill:
    case OP_threshold:
    case OP_logsigmoid: return 0;
    default: return amp_raise(AMP_PART_OVERLAP, c->row->name);
    }
}

/* Ops that read parameter i while they write at places of their own choice: it may not even be the very elements written to. */
static bool reads_while_writing(const OpCall *c, int i) {
    switch (c->row->op) {
    case OP_gather:
    case OP_index_select: return true;
    case OP_index_add:
    case OP_index_copy:
    case OP_scatter:
    case OP_scatter_add:
    case OP_scatter_value:
    case OP_scatter_add_or_multiply:
    case OP_scatter_value_add_or_multiply:
    case OP_scatter_reduce: return i >= 2; /* index and source */
    case OP_index_fill: return i == 2;     /* its value is read before */
    default: return false;
    }
}

int output_check_apart(const OpCall *c, int i, const Tensor *out, const Tensor *in) {
    if (output_check_overlap(c, out, in) < 0) {
        return -1;
    }
    if (!reads_while_writing(c, i) || in->st != out->st || !amp_ranges_meet(&out->v, &in->v)) {
        return 0;
    }
    /* of others PyTorch does not look whether they meet */
    bool seen = in == out || (amp_is_dense(&in->v) && amp_is_dense(&out->v));
    return seen ? amp_raise(AMP_PART_OVERLAP, c->row->name) : 0;
}

/* ---- shapes ---- */

int output_resize(Tensor *out, int ndim, const int64_t *shape) {
    if (out->v.numel != 0 &&
        PyErr_WarnFormat(
            PyExc_UserWarning, 1,
            "An output with one or more elements was resized since it had a different shape than the result. Give out= the "
            "result's shape, or a tensor with no elements") < 0) {
        return -1;
    }
    Tensor *fresh = tensor_new(ndim, shape, out->v.dtype, out->v.device);
    if (!fresh) {
        return -1;
    }
    int failed = PyObject_SetAttrString((PyObject *)out, "data", (PyObject *)fresh);
    Py_DECREF(fresh);
    return failed;
}

static bool same_shape(const View *a, const View *b) {
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

static int check_device(const char *name, const Tensor *out, const Tensor *result) {
    if (out->v.device == result->v.device) {
        return 0;
    }
    PyErr_Format(PyExc_RuntimeError, "%s: Expected all tensors to be on the same device: out is on another one than the inputs",
                 name);
    return -1;
}

/* The dtype has been checked. */
static int write_result(const char *name, Tensor *out, const Tensor *result) {
    if (check_device(name, out, result) < 0 ||
        (!same_shape(&out->v, &result->v) && output_resize(out, result->v.ndim, result->v.shape) < 0)) {
        return -1;
    }
    if (amp_has_internal_overlap(&out->v)) {
        return amp_raise(AMP_OVERLAP, name);
    }
    return raw_copy(&out->v, &result->v);
}

/* ---- delivery ---- */

static int refuse_count(const char *name, Py_ssize_t want, int have) {
    PyErr_Format(PyExc_TypeError, "%s(): the call has %zd results and out= is %d of them: give a tuple of as many tensors", name,
                 want, have);
    return -1;
}

/* The tuple's type with the outputs in it: a struct sequence takes a sequence, a named tuple its items. */
static PyObject *like_tuple(PyObject *tuple, PyObject *items) {
    PyTypeObject *type = Py_TYPE(tuple);
    if (type == &PyTuple_Type) {
        return Py_NewRef(items);
    }
    bool sequence = PyObject_HasAttrString((PyObject *)type, "n_sequence_fields");
    return sequence ? PyObject_CallOneArg((PyObject *)type, items) : PyObject_Call((PyObject *)type, items, NULL);
}

static int deliver_tuple(OpCall *c) {
    PyObject *tuple = c->object;
    bool whole = PyTuple_Check(tuple) && PyTuple_GET_SIZE(tuple) == c->nout && (c->out_list || c->nout > 1);
    if (!whole) {
        return refuse_count(c->row->name, PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : 1, c->nout);
    }
    for (int i = 0; i < c->nout; i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        if (!tensor_check(item)) {
            PyErr_Format(PyExc_TypeError, "%s(): result %d is no tensor and cannot go to out=", c->row->name, i);
            return -1;
        }
        if (output_check_dtype(c, ((Tensor *)item)->v.dtype, output_of(c, i)->v.dtype) < 0) {
            return -1;
        }
    }
    PyObject *items = PyTuple_New(c->nout);
    for (int i = 0; items && i < c->nout; i++) {
        Tensor *out = output_of(c, i);
        if (write_result(c->row->name, out, (Tensor *)PyTuple_GET_ITEM(tuple, i)) < 0) {
            Py_CLEAR(items);
            break;
        }
        PyTuple_SET_ITEM(items, i, Py_NewRef(out));
    }
    PyObject *same = items ? like_tuple(tuple, items) : NULL;
    Py_XDECREF(items);
    if (!same) {
        return -1;
    }
    Py_SETREF(c->object, same);
    return 0;
}

/* Ops made of others, or whose result is copied, that refuse an overlap in part all the same. */
static __attribute__((noinline)) int check_composite(const OpCall *c, const Tensor *out) {
    int n = c->row->nparams;
    switch (c->row->op) {
    case OP_addmm: /* of these, as in PyTorch, what is added to */
    case OP_addmv:
    case OP_baddbmm:
    case OP_addbmm:
    case OP_addr: n = 1; break;
    case OP_cross:
    case OP_linalg_cross:
    case OP_nextafter:
    case OP_renorm:
    case OP_scatter_add_or_multiply:
    case OP_scatter_value_add_or_multiply:
    case OP_scatter_reduce:
    case OP_stack: break;
    default: return 0;
    }
    for (int i = 0; i < n; i++) {
        int count = i == c->row->out_index ? 0 : c->arg[i].kind == ARG_TENSORS ? c->arg[i].n : c->arg[i].kind == ARG_TENSOR;
        Tensor *const *t = c->arg[i].kind == ARG_TENSORS ? c->arg[i].ts : &c->arg[i].t;
        for (int k = 0; k < count; k++) {
            if (output_check_apart(c, i, out, t[k]) < 0) {
                return -1;
            }
        }
    }
    return 0;
}

int outputs_deliver(OpCall *c) {
    if (c->object && c->nout && !c->inplace) {
        return deliver_tuple(c);
    }
    if (c->nout > 1 && c->nresult != c->nout) {
        return refuse_count(c->row->name, c->nresult, c->nout);
    }
    for (int i = 0; i < c->nout; i++) {
        Tensor *out = output_of(c, i), *result = c->result[i];
        if (result == out) {
            continue;
        }
        if (output_check_dtype(c, result->v.dtype, out->v.dtype) < 0 || check_composite(c, out) < 0) {
            return -1;
        }
        bool recorded = c->row->derivative == d_composite && c->inplace;
        if (recorded ? call_copy(out, result) < 0 : write_result(c->row->name, out, result) < 0) {
            return -1;
        }
        Py_SETREF(c->result[i], (Tensor *)Py_NewRef(out));
    }
    return 0;
}

/* ---- functions written in Python ---- */

/* Whether an argument, or an item of one that is a list, requires grad. */
static bool needs_grad(PyObject *o) {
    if (tensor_check(o)) {
        return tensor_requires_grad((Tensor *)o);
    }
    if (!PyTuple_Check(o) && !PyList_Check(o)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(o, i);
        if (tensor_check(item) && tensor_requires_grad((Tensor *)item)) {
            return true;
        }
    }
    return false;
}

static int check_call(const char *name, PyObject *out, PyObject *args, PyObject *kwargs) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    bool any = grad_recording() && needs_grad(out);
    for (Py_ssize_t i = 0; grad_recording() && i < PyTuple_GET_SIZE(args); i++) {
        any |= needs_grad(PyTuple_GET_ITEM(args, i));
    }
    while (grad_recording() && PyDict_Next(kwargs, &at, &key, &value)) {
        any |= needs_grad(value);
    }
    if (any) {
        PyErr_Format(PyExc_RuntimeError, OUT_NEEDS_GRAD, name);
        return -1;
    }
    return 0;
}

/* out as the tensors to write into; the row of this stand-in is the caller's. 0, or -1 with TypeError. */
static int read_outputs(OpCall *c, PyObject *out) {
    bool list = PyTuple_Check(out) || PyList_Check(out);
    Py_ssize_t n = list ? PySequence_Fast_GET_SIZE(out) : 1;
    PyObject **items = list ? PySequence_Fast_ITEMS(out) : &out;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!tensor_check(items[i])) {
            PyErr_Format(PyExc_TypeError, "%s(): argument 'out' must be Tensor or tuple of Tensors, not %s", c->row->name,
                         Py_TYPE(items[i])->tp_name);
            return -1;
        }
        if (check_writable((Tensor *)items[i], c->row->name) < 0) {
            return -1;
        }
    }
    if (n < 1 || n > INT32_MAX) {
        return refuse_count(c->row->name, 1, 0);
    }
    c->nout = (int)n;
    c->out = (Tensor *)items[0];
    c->out_list = list ? (Tensor *const *)(void *)items : NULL;
    return 0;
}

static int check_apart(const OpCall *c, PyObject *args) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        PyObject *in = PyTuple_GET_ITEM(args, i);
        if (tensor_check(in) && output_check_overlap(c, c->out, (Tensor *)in) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *call_into(PyObject *Py_UNUSED(self), PyObject *values) {
    OpRow row = {.rule = RULE_SAME, .out_index = -1, .dtype_index = -1, .precision_index = -1};
    OpCall c = {.row = &row};
    PyObject *out, *function, *args, *kwargs, *result = NULL;
    const char *takes;
    int apart = 0;
    if (!PyArg_ParseTuple(values, "ssOOO!O!|p:_into", &row.name, &takes, &out, &function, &PyTuple_Type, &args, &PyDict_Type,
                          &kwargs, &apart)) {
        return NULL;
    }
    static const struct {
        const char *name;
        uint16_t flag;
    } rules[] = {{"exact", OUT_EXACT}, {"safe", OUT_SAFE}, {"kind", OUT_KIND}, {"any", OUT_ANY}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        row.variants |= !strcmp(takes, rules[i].name) ? rules[i].flag : 0;
    }
    row.op = OP_COUNT;
    out = PyList_Check(out) ? PyList_AsTuple(out) : Py_NewRef(out);
    if (!out || check_call(row.name, out, args, kwargs) < 0 || read_outputs(&c, out) < 0 ||
        (apart && check_apart(&c, args) < 0)) {
        goto done;
    }
    uint8_t mode = amp_mode;
    amp_mode &= (uint8_t) ~(MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA);
    PyObject *made = PyObject_Call(function, args, kwargs);
    amp_mode = (uint8_t)(amp_mode | (mode & (MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA)));
    if (!made) {
        goto done;
    }
    if (tensor_check(made)) {
        c.result[0] = (Tensor *)made;
        c.nresult = 1;
        result = c.out_list ? (refuse_count(row.name, 1, c.nout), NULL) : outputs_deliver(&c) < 0 ? NULL : Py_NewRef(c.out);
        Py_DECREF(c.result[0]);
    } else {
        c.object = made;
        result = outputs_deliver(&c) < 0 ? NULL : Py_NewRef(c.object);
        Py_DECREF(c.object);
    }
    for (int i = 0; result && i < c.nout; i++) {
        tensor_bump(output_of(&c, i));
    }
done:
    Py_XDECREF(out);
    return result;
}

int outputs_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"_into", call_into, METH_VARARGS,
         "_into(name, takes, out, function, args, kwargs, apart=False, /)\n--\n\nCalls the function without autocast and writes "
         "its "
         "results into out, which is returned. takes: exact, safe, kind or any, as in ops.def. apart: out may be one of args but "
         "not "
         "overlap it in part."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, methods);
}
