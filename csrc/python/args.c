#include "args.h"
#include "interop.h"

#include <string.h>

/* ---- signatures ---- */

static const struct {
    const char *text;
    uint8_t kind;
} type_names[] = {
    {"Tensor[]", ARG_TENSORS}, {"Tensor", ARG_TENSOR}, {"Number", ARG_NUMBER}, {"int[]", ARG_INTS},
    {"int", ARG_INT},          {"float", ARG_FLOAT},   {"bool", ARG_BOOL},     {"str", ARG_STR},
    {"dtype", ARG_DTYPE},      {"device", ARG_DEVICE}, {"any", ARG_ANY},
};

static int parse_default(const char *text, size_t n, Param *p) {
    Arg *a = &p->fallback;
    p->has_default = true;
    char buffer[32];
    if (n >= sizeof buffer) {
        return -1;
    }
    memcpy(buffer, text, n);
    buffer[n] = 0;
    if (!strcmp(buffer, "None")) {
        a->kind = ARG_NONE;
        return 0;
    }
    a->kind = p->kind;
    if (p->kind == ARG_INTS && !strcmp(buffer, "()")) {
        a->n = 0;
        a->ints = NULL;
        return 0;
    }
    if (buffer[0] == '\'') {
        char *copy = PyMem_Malloc(n);
        if (!copy) {
            return -1;
        }
        memcpy(copy, buffer + 1, n - 2);
        copy[n - 2] = 0;
        a->kind = ARG_STR;
        a->s = copy;
        return 0;
    }
    if (p->kind == ARG_INTS) { /* one number stands for all entries */
        a->n = 1;
        a->ints = PyMem_Malloc(sizeof *a->ints);
        if (!a->ints) {
            return -1;
        }
        a->ints[0] = strtoll(buffer, NULL, 10);
        return 0;
    }
    bool truth = !strcmp(buffer, "True");
    double f = truth ? 1.0 : strtod(buffer, NULL);
    a->num.f = f;
    a->num.i = (int64_t)f;
    switch (p->kind) {
    case ARG_BOOL:
        a->num.kind = NUMBER_BOOL;
        a->i = truth;
        return 0;
    case ARG_INT:
        a->num.kind = NUMBER_INT;
        a->i = (int64_t)f;
        return 0;
    case ARG_FLOAT:
        a->num.kind = NUMBER_FLOAT;
        a->f = f;
        return 0;
    case ARG_INTS:
        a->n = 1;
        a->ints = PyMem_Malloc(sizeof *a->ints); /* lives as long as the table */
        if (!a->ints) {
            PyErr_NoMemory();
            return -1;
        }
        a->ints[0] = (int64_t)f;
        return 0;
    case ARG_NUMBER: a->num.kind = strpbrk(buffer, ".e") ? NUMBER_FLOAT : NUMBER_INT; return 0;
    default: return -1;
    }
}

/* One "type name=default" between commas. */
static int parse_param(const char *s, size_t n, Param *p) {
    for (size_t k = 0; k < sizeof type_names / sizeof *type_names; k++) {
        size_t len = strlen(type_names[k].text);
        if (n > len && !strncmp(s, type_names[k].text, len) && strchr(" ?*[", s[len])) {
            p->kind = type_names[k].kind;
            s += len;
            n -= len;
            break;
        }
    }
    if (p->kind == ARG_NONE) {
        return -1;
    }
    if (p->kind == ARG_TENSOR && n > 2 && *s == '[' && s[2] == ']') { /* Tensor[2] */
        p->kind = ARG_TENSORS;
        p->count = (uint8_t)(s[1] - '0');
        s += 3;
        n -= 3;
    }
    for (; n && (*s == '?' || *s == '*'); s++, n--) {
        p->optional |= *s == '?';
        p->varargs |= *s == '*';
    }
    if (!n || *s != ' ') {
        return -1;
    }
    s++, n--;
    const char *eq = memchr(s, '=', n);
    size_t len = eq ? (size_t)(eq - s) : n;
    p->interned = PyUnicode_FromStringAndSize(s, (Py_ssize_t)len);
    if (!p->interned) {
        return -1;
    }
    PyUnicode_InternInPlace(&p->interned);
    p->name = PyUnicode_AsUTF8(p->interned);
    if (!p->name) {
        return -1;
    }
    return eq ? parse_default(eq + 1, n - len - 1, p) : 0;
}

int args_compile(OpRow *row) {
    const char *s = row->signature;
    bool keyword_only = false;
    row->out_index = row->dtype_index = row->precision_index = row->dim_index = row->keepdim_index = -1;
    row->nparams = row->npositional = row->ntensors = row->nnumbers = 0;
    while (*s) {
        const char *end = strstr(s, ", ");
        size_t n = end ? (size_t)(end - s) : strlen(s);
        if (n == 1 && *s == '*') {
            keyword_only = true;
        } else {
            if (row->nparams == MAX_ARGS) {
                PyErr_Format(PyExc_SystemError, "ops.def: %s has more than %d parameters", row->id, MAX_ARGS);
                return -1;
            }
            Param *p = &row->param[row->nparams];
            if (parse_param(s, n, p) < 0) {
                PyErr_Format(PyExc_SystemError, "ops.def: bad signature of %s near '%s'", row->id, s);
                return -1;
            }
            p->keyword_only = keyword_only;
            p->listed = p->kind == ARG_INTS &&
                        (!strcmp(p->name, "size") || !strcmp(p->name, "shape") || !strcmp(p->name, "normalized_shape"));
            p->strict = p->kind == ARG_TENSOR &&
                        (!strcmp(p->name, "index") || !strcmp(p->name, "indices") || !strcmp(p->name, "mask"));
            if (!keyword_only) {
                row->npositional++;
            }
            if ((p->kind == ARG_TENSOR || p->kind == ARG_TENSORS) && !strcmp(p->name, "out")) {
                row->out_index = (int8_t)row->nparams;
            } else if (p->kind == ARG_TENSOR || p->kind == ARG_TENSORS) {
                row->tensor[row->ntensors++] = row->nparams;
            } else if (p->kind == ARG_STR && !strcmp(p->name, "precision")) {
                row->precision_index = (int8_t)row->nparams;
            } else if (p->kind != ARG_ANY && p->kind != ARG_DTYPE && row->nnumbers < AMP_MAX_NUM) {
                row->number[row->nnumbers++] = row->nparams;
            } else if (p->kind == ARG_DTYPE) {
                row->dtype_index = (int8_t)row->nparams;
            }
            if (!strcmp(p->name, "dim")) {
                row->dim_index = (int8_t)row->nparams;
            } else if (!strcmp(p->name, "keepdim")) {
                row->keepdim_index = (int8_t)row->nparams;
            }
            row->nparams++;
        }
        s += n;
        s += end ? 2 : 0;
    }
    return 0;
}

/* ---- values ---- */

void args_done(ArgFrame *f) {
    for (int i = 0; i < f->ntemps; i++) {
        Py_DECREF(f->temps[i]);
    }
    for (int i = 0; i < f->nheap; i++) {
        PyMem_Free(f->heap[i]);
    }
    f->ntemps = f->nheap = 0;
}

/* Room for n entries of `size` bytes: inline space first. NULL with MemoryError. */
static void *frame_room(ArgFrame *f, int *used, int limit, char *inline_space, Py_ssize_t n, size_t size) {
    if (n <= limit - *used) {
        void *room = inline_space + (size_t)*used * size;
        *used += (int)n;
        return room;
    }
    void *room = f->nheap < 4 ? PyMem_Malloc((size_t)n * size) : NULL;
    if (!room) {
        PyErr_NoMemory();
        return NULL;
    }
    f->heap[f->nheap++] = room;
    return room;
}

/* Takes over the reference. 1 or -1. */
static int keep_temp(ArgFrame *f, Arg *arg, Tensor *t) {
    if (!t) {
        return -1;
    }
    if (f->ntemps == FRAME_TEMPS) {
        Py_DECREF(t);
        PyErr_SetString(PyExc_RuntimeError, "too many numbers in one call");
        return -1;
    }
    f->temps[f->ntemps++] = (PyObject *)t;
    arg->kind = ARG_TENSOR;
    arg->t = t;
    return 1;
}

static inline bool is_number(PyObject *o) { return PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o); }

/* Integers from 2^63 to 2^64 become floats, which args_parse lets pass where something floating takes them. */
static int read_number(PyObject *o, ArgFrame *f, Number *n) {
    if (number_from_object(o, n) == 0) {
        return 0;
    }
    if (!PyLong_Check(o)) {
        return -1;
    }
    PyErr_Clear();
    unsigned long long u = PyLong_AsUnsignedLongLong(o);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return number_from_object(o, n);
    }
    *n = (Number){.f = (double)u, .kind = NUMBER_FLOAT};
    f->odd |= ODD_BEYOND;
    return 0;
}

/* A floating tensor or a dtype, which the op holds against the number. */
static int check_beyond(const OpRow *row, const Arg *arg) {
    bool taken = row->dtype_index >= 0 && arg[row->dtype_index].kind == ARG_DTYPE;
    for (int k = 0; k < row->ntensors; k++) {
        const Arg *a = &arg[row->tensor[k]];
        taken |= a->kind == ARG_TENSOR && !(a->t->flags & TENSOR_WRAPPED) && !amp_is_integral(a->t->v.dtype);
    }
    if (!taken) {
        PyErr_Format(PyExc_RuntimeError, "%s: value cannot be converted to type int64_t without overflow: it is 2^63 or more",
                     row->name);
    }
    return taken ? 1 : -1;
}

/* numbers: whether they stand for tensors; NUMBERS_FIRST if o is the first argument. */
enum { NUMBERS_NOT, NUMBERS_TAKEN, NUMBERS_FIRST };

static int to_tensor(PyObject *o, ArgFrame *f, Arg *arg, int numbers) {
    const bool number = is_number(o);
    if (!number && tensor_check(o)) {
        arg->kind = ARG_TENSOR;
        arg->t = (Tensor *)o;
        return 1;
    }
    if (!numbers) {
        return 0;
    }
    if (number || array_scalar_check(o)) {
        Number n;
        if (read_number(o, f, &n) < 0) {
            return -1;
        }
        if (numbers == NUMBERS_FIRST) {
            f->odd |= ODD_FIRST;
        }
        return keep_temp(f, arg, tensor_from_number(n, number_default_dtype(&n), AMP_CPU, true));
    }
    return 0;
}

static int to_int(PyObject *o, int64_t *out) {
    if (PyLong_Check(o)) {
        *out = PyLong_AsLongLong(o);
    } else if (tensor_check(o) || array_scalar_check(o) || PyIndex_Check(o)) {
        PyObject *index = PyNumber_Index(o);
        if (!index) {
            if (PyErr_ExceptionMatches(PyExc_TypeError)) {
                PyErr_Clear();
                return 0;
            }
            return -1;
        }
        *out = PyLong_AsLongLong(index);
        Py_DECREF(index);
    } else {
        return 0;
    }
    return *out == -1 && PyErr_Occurred() ? -1 : 1;
}

int args_int_list(PyObject *o, ArgFrame *f, Arg *arg) {
    arg->kind = ARG_INTS;
    if (PyLong_Check(o) && !PyBool_Check(o)) {
        int64_t *room = frame_room(f, &f->nints, FRAME_INTS, (char *)f->ints, 1, sizeof *room);
        if (!room) {
            return -1;
        }
        arg->ints = room;
        arg->n = 1;
        return to_int(o, room);
    }
    if (!PyTuple_Check(o) && !PyList_Check(o)) { /* NumPy's integers and tensors without dimensions stand for a list of one */
        int64_t one;
        int ok = PyBool_Check(o) || array_check(o) || (tensor_check(o) && ((Tensor *)o)->v.ndim) ? 0 : to_int(o, &one);
        int64_t *room = ok > 0 ? frame_room(f, &f->nints, FRAME_INTS, (char *)f->ints, 1, sizeof *room) : NULL;
        if (!room) {
            return ok > 0 ? -1 : ok;
        }
        room[0] = one;
        arg->ints = room;
        arg->n = 1;
        return 1;
    }
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    int64_t *room = frame_room(f, &f->nints, FRAME_INTS, (char *)f->ints, n, sizeof *room);
    if (!room) {
        return -1;
    }
    arg->ints = room;
    arg->n = (int32_t)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (i >= PySequence_Fast_GET_SIZE(o)) { /* an item's __index__ shortened the list */
            PyErr_SetString(PyExc_RuntimeError, "the list of integers changed its size while it was read");
            return -1;
        }
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(o, i));
        int ok = to_int(item, &room[i]);
        Py_DECREF(item);
        if (ok <= 0) {
            return ok;
        }
    }
    return 1;
}

static int to_tensor_list(PyObject *o, ArgFrame *f, Arg *arg) {
    if (!PyTuple_Check(o) && !PyList_Check(o)) {
        return 0;
    }
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    if (PyList_Check(o)) { /* the frame holds the tensors: another thread may clear the list while the op runs */
        if (f->ntemps == FRAME_TEMPS || !(o = PyList_AsTuple(o))) {
            return PyErr_Occurred() ? -1 : 0;
        }
        f->temps[f->ntemps++] = o;
        n = PyTuple_GET_SIZE(o);
    }
    Tensor **room = frame_room(f, &f->ntensors, FRAME_TENSORS, (char *)f->tensors, n, sizeof *room);
    if (!room) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(o, i);
        if (!tensor_check(item)) {
            return 0;
        }
        room[i] = (Tensor *)item;
    }
    arg->kind = ARG_TENSORS;
    arg->ts = room;
    arg->n = (int32_t)n;
    return 1;
}

static int to_number(PyObject *o, ArgFrame *f, Arg *arg, uint8_t kind) {
    /* A tensor that requires grad stays a tensor: as a number its gradient would be lost. */
    bool scalar_tensor = tensor_check(o) && ((Tensor *)o)->v.ndim == 0 && !tensor_requires_grad((Tensor *)o);
    if (!is_number(o) && !array_scalar_check(o) && !scalar_tensor) {
        return 0;
    }
    PyObject *item = scalar_tensor ? tensor_item((Tensor *)o) : Py_NewRef(o);
    if (!item) {
        return -1;
    }
    int failed = read_number(item, f, &arg->num);
    Py_DECREF(item);
    if (failed) {
        return -1;
    }
    if (kind == ARG_FLOAT) {
        if (arg->num.kind == NUMBER_COMPLEX) {
            return 0;
        }
        arg->f = arg->num.f;
    }
    arg->kind = kind;
    return 1;
}

/* 1 fits, 0 does not, -1 failed. */
static int convert(const Param *p, PyObject *o, ArgFrame *f, Arg *arg, int numbers) {
    if (o == Py_None && (p->optional || p->kind == ARG_ANY)) {
        arg->kind = ARG_NONE;
        arg->num.kind = NUMBER_NONE;
        return 1;
    }
    int ok;
    switch ((ArgKind)p->kind) {
    case ARG_TENSOR: return to_tensor(o, f, arg, p->strict ? NUMBERS_NOT : numbers);
    case ARG_TENSORS: ok = to_tensor_list(o, f, arg); return ok > 0 && p->count && arg->n != p->count ? 0 : ok;
    case ARG_NUMBER:
    case ARG_FLOAT: return to_number(o, f, arg, p->kind);
    case ARG_INT:
        if (PyBool_Check(o) || PyFloat_Check(o)) {
            return 0;
        }
        ok = to_int(o, &arg->i);
        arg->kind = ARG_INT;
        arg->num = (Number){.f = (double)arg->i, .i = arg->i, .kind = NUMBER_INT};
        return ok;
    case ARG_BOOL:
        if (!PyBool_Check(o)) {
            return 0;
        }
        arg->kind = ARG_BOOL;
        arg->i = o == Py_True;
        arg->num = (Number){.f = (double)arg->i, .i = arg->i, .kind = NUMBER_BOOL};
        return 1;
    case ARG_INTS: return p->listed && !PyTuple_Check(o) && !PyList_Check(o) ? 0 : args_int_list(o, f, arg);
    case ARG_STR:
        if (!PyUnicode_Check(o)) {
            if (!strcmp(p->name, "reduction")) { /* PyTorch compares it with the names that there are */
                PyErr_Format(PyExc_ValueError, "%R is not a valid value for reduction: use 'none', 'mean' or 'sum'", o);
                return -1;
            }
            return 0;
        }
        arg->kind = ARG_STR;
        arg->s = PyUnicode_AsUTF8(o);
        if (arg->s && (Py_ssize_t)strlen(arg->s) != PyUnicode_GET_LENGTH(o) &&
            PyUnicode_FindChar(o, 0, 0, PyUnicode_GET_LENGTH(o), 1) >= 0) {
            PyErr_Format(PyExc_ValueError, "embedded null character in %R", o);
            return -1;
        }
        return arg->s ? 1 : -1;
    case ARG_DTYPE:
        if (Py_TYPE(o) != amp_state.dtype_type && !PyType_Check(o) && !array_descr_check(o)) {
            return 0;
        }
        arg->kind = ARG_DTYPE;
        arg->i = dtype_parse(o);
        return arg->i < 0 ? -1 : 1;
    case ARG_DEVICE:
        if (Py_TYPE(o) != amp_state.device_type && !PyUnicode_Check(o) && !(PyLong_Check(o) && !PyBool_Check(o))) {
            return 0;
        }
        arg->kind = ARG_DEVICE;
        arg->i = device_parse(o);
        return arg->i < 0 ? -1 : 1;
    case ARG_ANY:
        arg->kind = ARG_ANY;
        arg->o = o;
        return 1;
    case ARG_NONE: break;
    }
    return 0;
}

static const char *kind_text(const Param *p) {
    for (size_t k = 0; k < sizeof type_names / sizeof *type_names; k++) {
        if (type_names[k].kind == p->kind) {
            return p->kind == ARG_INTS ? "tuple of ints" : p->kind == ARG_TENSORS ? "tuple of Tensors" : type_names[k].text;
        }
    }
    return "?";
}

/* Whether o is no integer, as args_int_list takes them. Errors of its __index__ count as such. */
static bool no_int(PyObject *o) {
    int64_t ignored;
    int ok = to_int(o, &ignored);
    PyErr_Clear();
    return ok <= 0;
}

/* The first of n items that does not fit a list of p's kind, or -1. */
static Py_ssize_t odd_item(const Param *p, PyObject *const *items, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) {
        if (p->kind == ARG_TENSORS ? !tensor_check(items[i]) : no_int(items[i])) {
            return i;
        }
    }
    return -1;
}

/* What to do with o, which is no Tensor. */
static const char *cure_of(PyObject *o) {
    return array_check(o) ? ". Make one of the array with from_numpy(), which shares its memory, or as_tensor()" : "";
}

static __attribute__((noinline)) void report_item(const OpRow *row, int index, bool method, Py_ssize_t at, PyObject *item) {
    const Param *p = &row->param[index];
    const int position = index + (method ? 0 : 1);
    if (p->kind == ARG_TENSORS) {
        PyErr_Format(PyExc_TypeError,
                     "%s(): argument '%s' (position %d): expected Tensor as element %zd in argument %d, but got %s%s", row->name,
                     p->name, position, at, index, Py_TYPE(item)->tp_name, cure_of(item));
        return;
    }
    PyErr_Format(PyExc_TypeError,
                 "%s(): argument '%s' (position %d) must be tuple of ints, but found element of type %s at index %zd: %R%s",
                 row->name, p->name, position, Py_TYPE(item)->tp_name, at, item,
                 PyFloat_Check(item) ? ". Divide by //, or round by int()" : "");
}

static __attribute__((noinline)) void report_type(const OpRow *row, int index, bool method, PyObject *o) {
    const Param *p = &row->param[index];
    if ((p->kind == ARG_INTS || p->kind == ARG_TENSORS) && (PyTuple_Check(o) || PyList_Check(o))) {
        PyObject *items = PySequence_Tuple(o); /* an item's __index__ may change the list */
        Py_ssize_t at = items ? odd_item(p, PySequence_Fast_ITEMS(items), PyTuple_GET_SIZE(items)) : -1;
        if (at >= 0) {
            report_item(row, index, method, at, PyTuple_GET_ITEM(items, at));
        }
        Py_XDECREF(items);
        if (PyErr_Occurred()) {
            return;
        }
    }
    PyErr_Format(PyExc_TypeError, "%s(): argument '%s' (position %d) must be %s, not %s%s", row->name, p->name,
                 index + (method ? 0 : 1), kind_text(p), Py_TYPE(o)->tp_name, p->kind == ARG_TENSOR ? cure_of(o) : "");
}

/* 1 for what was probably meant for p and is refused for a detail, else 0. */
static __attribute__((noinline)) int nearly(const Param *p, PyObject *const *args, Py_ssize_t n) {
    const bool list = PyTuple_Check(args[0]) || PyList_Check(args[0]);
    return p->kind == ARG_TENSORS
               ? list
               : p->kind == ARG_INTS && (list || ((!p->listed || p->varargs) && is_number(args[0])) || (p->varargs && n > 1));
}

static int find_keyword(const OpRow *row, PyObject *name) {
    for (int i = 0; i < row->nparams; i++) {
        if (row->param[i].interned == name) {
            return i;
        }
    }
    for (int i = 0; i < row->nparams; i++) {
        if (PyUnicode_Compare(row->param[i].interned, name) == 0) {
            return i;
        }
    }
    if (row->nparams && PyUnicode_CompareWithASCIIString(name, "axis") == 0) { /* NumPy's names, as in PyTorch */
        for (int i = 0; i < row->nparams; i++) {
            if (!strcmp(row->param[i].name, "dim")) {
                return i;
            }
        }
    }
    if (row->nparams && PyUnicode_CompareWithASCIIString(name, "keepdims") == 0) {
        for (int i = 0; i < row->nparams; i++) {
            if (!strcmp(row->param[i].name, "keepdim")) {
                return i;
            }
        }
    }
    return -1;
}

static int parse_keywords(const OpRow *row, bool method, PyObject *const *values, PyObject *kwnames, ArgFrame *frame, Arg *arg,
                          uint32_t *given, bool report) {
    Py_ssize_t n = PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        int i = find_keyword(row, name);
        if (i < 0) {
            if (report) {
                PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", row->name, name);
            }
            return 0;
        }
        if (*given & (1u << i)) {
            if (report) {
                PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", row->name, name);
            }
            return 0;
        }
        int ok = convert(&row->param[i], values[k], frame, &arg[i], i > 0 && i != row->out_index ? NUMBERS_TAKEN : NUMBERS_NOT);
        if (ok <= 0) {
            frame->reached++;
            if (ok == 0 && report) {
                report_type(row, i, method, values[k]);
            }
            return ok;
        }
        *given |= 1u << i;
        frame->reached += 2;
    }
    return 1;
}

/* All remaining positional arguments are the integers of a `int[]*` list. */
static int parse_varargs(const OpRow *row, int index, bool method, PyObject *const *args, Py_ssize_t n, ArgFrame *frame, Arg *arg,
                         bool report) {
    if (n == 1 && (PyTuple_Check(args[0]) || PyList_Check(args[0]))) {
        int ok = args_int_list(args[0], frame, arg);
        if (ok == 0 && report) {
            report_type(row, index, method, args[0]);
        }
        return ok;
    }
    int64_t *room = frame_room(frame, &frame->nints, FRAME_INTS, (char *)frame->ints, n, sizeof *room);
    if (!room) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        int ok = to_int(args[i], &room[i]);
        if (ok <= 0) {
            if (ok == 0 && report && n > 1) {
                report_item(row, index, method, i, args[i]);
            } else if (ok == 0 && report) {
                report_type(row, index, method, args[i]);
            }
            return ok;
        }
    }
    arg->kind = ARG_INTS;
    arg->ints = room;
    arg->n = (int32_t)n;
    return 1;
}

/* Whether numbers stand where a tensor must be among them, or where the condition must be one. Four functions take numbers alone, as in
 * PyTorch. */
static bool numbers_alone(const OpRow *row, const Arg *arg) {
    static const uint16_t taken[] = {OP_add, OP_sub, OP_mul, OP_div};
    for (size_t k = 0; k < sizeof taken / sizeof *taken; k++) {
        if (!strcmp(row->name, amp_rows[taken[k]].name)) {
            return false;
        }
    }
    for (int k = 1; k < row->ntensors && row->op != OP_where; k++) {
        const Arg *a = &arg[row->tensor[k]];
        if (a->kind == ARG_TENSOR && !(a->t->flags & TENSOR_WRAPPED)) {
            return false;
        }
    }
    return true;
}

static __attribute__((noinline)) int count_lacking(const OpRow *row, uint32_t given) {
    int n = 0;
    for (int k = 0; k < row->nparams; k++) {
        n += !(given & (1u << k)) && !row->param[k].has_default;
    }
    return n;
}

static __attribute__((noinline)) int check_odd(const OpRow *row, PyObject *const *args, const ArgFrame *frame, const Arg *arg,
                                               bool report) {
    if (frame->odd & ODD_FIRST && numbers_alone(row, arg)) {
        if (report) {
            report_type(row, 0, false, args[0]);
        }
        return 0;
    }
    return frame->odd & ODD_BEYOND ? check_beyond(row, arg) : 1;
}

int args_parse(const OpRow *row, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, ArgFrame *frame,
               Arg *arg, bool report) {
    int i = 0;
    bool method = self != NULL;
    uint32_t given = 0;
    if (self) {
        arg[0].kind = ARG_TENSOR;
        arg[0].t = (Tensor *)self;
        given = 1;
        i = 1;
    }
    Py_ssize_t used = 0;
    const int first_number = !method && row->ntensors > 1 ? NUMBERS_FIRST
                                                          : NUMBERS_NOT; /* torch.pow(2, t), torch.where(c, 1, t) */
    for (; used < nargs; i++, used++) {
        if (i >= row->npositional) {
            if (report) {
                PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments (%zd given)", row->name,
                             row->npositional - (method ? 1 : 0), nargs);
            }
            frame->reached = 2 * (int)used;
            return 0;
        }
        const Py_ssize_t first = used;
        int ok;
        if (row->param[i].varargs) {
            ok = parse_varargs(row, i, method, args + used, nargs - used, frame, &arg[i], report);
            used = ok > 0 ? nargs - 1 : used;
        } else {
            ok = convert(&row->param[i], args[used], frame, &arg[i],
                         i == row->out_index ? NUMBERS_NOT
                         : i > 0             ? NUMBERS_TAKEN
                                             : first_number);
            if (ok == 0 && report) {
                report_type(row, i, method, args[used]);
            }
        }
        if (ok <= 0) {
            frame->reached = 2 * (int)used + nearly(&row->param[i], args + first, nargs - first);
            return ok;
        }
        given |= 1u << i;
    }
    if (kwnames && PyTuple_GET_SIZE(kwnames)) {
        frame->reached = 2 * (int)used;
        int ok = parse_keywords(row, method, args + nargs, kwnames, frame, arg, &given, report);
        if (ok <= 0) {
            return ok;
        }
    }
    for (i = 0; i < row->nparams; i++) {
        if (given & (1u << i)) {
            continue;
        }
        const Param *p = &row->param[i];
        if (!p->has_default) {
            frame->reached = 2 * (int)used;
            frame->lacking = count_lacking(row, given);
            if (report) {
                PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s' (position %d)", row->name, p->name,
                             i + (method ? 0 : 1));
            }
            return 0;
        }
        arg[i] = p->fallback;
    }
    return frame->odd ? check_odd(row, args, frame, arg, report) : 1;
}
