/* t[key] and t[key] = value. Integers, slices, None and ... give views; tensors and lists of integers or bools select by the index slot. */
#include <string.h>

#include "classes.h"
#include "interop.h"
#include "node.h"
#include "tensor_methods.h"

enum { MAX_INDICES = 8 };

/* What a key asks for: a view, then index tensors for some of the view's dimensions. */
typedef struct Selection {
    Tensor *view;                /* strong */
    Tensor *index[AMP_MAX_DIMS]; /* strong, per dimension of the view; NULL: whole dimension */
    int nindex, ndim;            /* of the tensor */
    int masks, mask_dims;        /* masks of at least one dimension, and how many of the index tensors are theirs */
    bool byte_mask;              /* one of them is uint8 */
    bool basic;                  /* only a view */
    bool whole; /* asked for: 0-dim index tensors select by the index slot like others, the view keeps the tensor's dimensions */
} Selection;

static void selection_done(Selection *s) {
    Py_XDECREF(s->view);
    for (int d = 0; d < AMP_MAX_DIMS; d++) {
        Py_XDECREF(s->index[d]);
    }
}

static int replace_view(Selection *s, PyObject *fresh) {
    if (!fresh) {
        return -1;
    }
    Py_SETREF(s->view, (Tensor *)fresh);
    return 0;
}

static int take_int(Selection *s, int dim, int64_t i) {
    int64_t size = s->view->v.shape[dim];
    if (i < -size || i >= size) {
        PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for dimension %d with size %lld", (long long)i,
                     dim + s->ndim - s->view->v.ndim, (long long)size);
        return -1;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(s->view), arg_int(dim), arg_int(i)};
    return replace_view(s, run_op(&amp_rows[OP_select], arg, false));
}

static int take_slice(Selection *s, int dim, PyObject *slice) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) {
        return -1;
    }
    if (step < 0) {
        PyErr_SetString(PyExc_ValueError, "step must be greater than zero: use flip() to reverse a dimension");
        return -1;
    }
    Py_ssize_t n = PySlice_AdjustIndices(s->view->v.shape[dim], &start, &stop, step);
    if (start == 0 && step == 1 && n == s->view->v.shape[dim]) {
        return 0;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(s->view), arg_int(dim), arg_int(start), arg_int(n), arg_int(step)};
    return replace_view(s, run_op(&amp_rows[OP_slice], arg, false));
}

static int take_none(Selection *s, int dim) { return replace_view(s, (PyObject *)call_unsqueeze(s->view, dim)); }

static bool is_mask(const Tensor *t) { return t->v.dtype == AMP_BOOL || t->v.dtype == AMP_UINT8; }

/* A bool tensor of k dimensions stands for the k columns of its nonzero(). */
static int take_mask(Selection *s, int *dim, Tensor *mask) {
    if (mask->v.ndim == 0) { /* x[True]: a new dimension of size 1, taken or not */
        if (take_none(s, *dim) < 0) {
            return -1;
        }
        Tensor *flat = call_unsqueeze(mask, 0), *where = call_unary(OP_nonzero, flat);
        Tensor *column = where ? call_reshape(where, 1, &where->v.shape[0]) : NULL;
        Py_XDECREF(flat);
        Py_XDECREF(where);
        s->index[(*dim)++] = column;
        s->nindex++;
        return column ? 0 : -1;
    }
    if (*dim + mask->v.ndim > s->view->v.ndim) {
        PyErr_Format(PyExc_IndexError, "too many indices for tensor of dimension %d", s->view->v.ndim);
        return -1;
    }
    for (int k = 0; k < mask->v.ndim; k++) {
        if (mask->v.shape[k] != s->view->v.shape[*dim + k]) {
            PyErr_Format(PyExc_IndexError,
                         "The shape of the mask at dimension %d (%lld) does not match the shape of the indexed tensor at "
                         "dimension %d (%lld)",
                         k, (long long)mask->v.shape[k], *dim + k, (long long)s->view->v.shape[*dim + k]);
            return -1;
        }
    }
    Tensor *where = call_unary(OP_nonzero, mask);
    for (int k = 0; where && k < mask->v.ndim; k++) {
        Arg arg[MAX_ARGS] = {arg_tensor(where), arg_int(1), arg_int(k)};
        Tensor *column = run_op_tensor(OP_select, arg);
        s->index[(*dim)++] = column;
        s->nindex++;
        if (!column) {
            Py_CLEAR(where);
        }
    }
    Py_XDECREF(where);
    return where ? 0 : -1;
}

static int take_tensor(Selection *s, int *dim, Tensor *t) {
    if (readable_beside("indexing", s->view, t) < 0) {
        return -1;
    }
    if (is_mask(t)) {
        Tensor *mask = t->v.dtype == AMP_BOOL ? (Tensor *)Py_NewRef(t) : call_cast(t, AMP_BOOL);
        int failed = mask ? take_mask(s, dim, mask) : -1;
        s->masks += t->v.ndim > 0;
        s->mask_dims += t->v.ndim;
        s->byte_mask |= t->v.dtype == AMP_UINT8;
        Py_XDECREF(mask);
        return failed;
    }
    if (t->v.dtype != AMP_INT64 && t->v.dtype != AMP_INT32) {
        PyErr_Format(PyExc_IndexError, "tensors used as indices must be long, int, byte or bool tensors, not %s",
                     amp_dtype_info[t->v.dtype].name);
        return -1;
    }
    if (*dim >= s->view->v.ndim) {
        PyErr_Format(PyExc_IndexError, "too many indices for tensor of dimension %d", s->view->v.ndim);
        return -1;
    }
    Tensor *index = call_to(t, AMP_INT64, s->view->v.device);
    s->index[(*dim)++] = index;
    s->nindex++;
    return index ? 0 : -1;
}

static bool is_integer(PyObject *o) { return PyIndex_Check(o) && !PyBool_Check(o) && !tensor_check(o) && !array_check(o); }

static bool is_scalar_index(PyObject *o) {
    return tensor_check(o) && ((Tensor *)o)->v.ndim == 0 && amp_is_integral(((Tensor *)o)->v.dtype) &&
           ((Tensor *)o)->v.dtype != AMP_BOOL && ((Tensor *)o)->v.dtype != AMP_UINT8;
}

/* How many dimensions of the tensor a key item uses up. */
static int consumes(PyObject *o) {
    if (o == Py_None || o == Py_Ellipsis || PyBool_Check(o)) {
        return 0;
    }
    if (tensor_check(o) && is_mask((Tensor *)o)) {
        return ((Tensor *)o)->v.ndim;
    }
    if (array_check(o)) {
        Tensor *t = tensor_for_reading(o);
        int n = t && is_mask(t) ? t->v.ndim : 1;
        Py_XDECREF(t);
        PyErr_Clear();
        return n;
    }
    return 1;
}

static int take_item(Selection *s, PyObject *o, int *dim) {
    if (is_integer(o) || (!s->whole && is_scalar_index(o))) {
        PyObject *index = PyNumber_Index(o);
        int64_t i = index ? PyLong_AsLongLong(index) : -1;
        Py_XDECREF(index);
        if (i == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (*dim >= s->view->v.ndim) {
            PyErr_Format(PyExc_IndexError,
                         s->view->v.ndim
                             ? "too many indices for tensor of dimension %d"
                             : "invalid index of a 0-dim tensor. Use `tensor.item()` to convert it to a Python number",
                         s->view->v.ndim);
            return -1;
        }
        return take_int(s, *dim, i);
    }
    if (PySlice_Check(o)) {
        if (*dim >= s->view->v.ndim) {
            PyErr_Format(PyExc_IndexError, "too many indices for tensor of dimension %d", s->view->v.ndim);
            return -1;
        }
        int failed = take_slice(s, *dim, o);
        (*dim)++;
        return failed;
    }
    if (o == Py_None) {
        int failed = take_none(s, *dim);
        (*dim)++;
        return failed;
    }
    Tensor *t = NULL;
    if (tensor_check(o)) {
        t = (Tensor *)Py_NewRef(o);
    } else if (PyBool_Check(o) || PyList_Check(o) || PyTuple_Check(o) || array_check(o) || PyRange_Check(o)) {
        t = array_check(o) ? tensor_for_index(o) : tensor_from_data(o, -1, AMP_CPU);
        if (t && !is_mask(t)) { /* fractions are cut off; [] has a float dtype */
            Py_SETREF(t, call_cast(t, AMP_INT64));
        }
        if (t && !s->whole &&
            is_scalar_index((PyObject *)t)) { /* an array without dimensions: an integer, whose result is a view */
            int failed = take_item(s, (PyObject *)t, dim);
            Py_DECREF(t);
            return failed;
        }
    } else {
        if (PyUnicode_Check(o) || PyBytes_Check(o)) {
            PyErr_Format(PyExc_TypeError, "new(): invalid data type '%s': tensors are indexed by numbers, slices and tensors",
                         Py_TYPE(o)->tp_name);
            return -1;
        }
        PyErr_Format(PyExc_IndexError,
                     "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got %s)",
                     Py_TYPE(o)->tp_name);
        return -1;
    }
    int failed = t ? take_tensor(s, dim, t) : -1;
    Py_XDECREF(t);
    return failed;
}

/* PyTorch's old rule: a short list with an item that is more than a number stands for the tuple of its items. */
static bool stands_for_tuple(PyObject *key) {
    bool wide = false;
    for (Py_ssize_t i = 0; PyList_Check(key) && PyList_GET_SIZE(key) < 32 && i < PyList_GET_SIZE(key); i++) {
        PyObject *o = PyList_GET_ITEM(key, i);
        wide |= tensor_check(o) || PySlice_Check(o) || o == Py_None || o == Py_Ellipsis || PySequence_Check(o);
    }
    return wide;
}

/* In place through s->view. Integers are taken before index tensors are placed: those on either side of one are neighbours, as in
 * PyTorch. */
static int select_key(Tensor *t, PyObject *key, bool whole, Selection *s) {
    PyObject *const *items = &key;
    Py_ssize_t n = 1;
    memset(s, 0, sizeof *s);
    s->whole = whole;
    s->view = (Tensor *)Py_NewRef(t);
    s->ndim = t->v.ndim;
    if (PyTuple_Check(key) || stands_for_tuple(key)) {
        items = PySequence_Fast_ITEMS(key);
        n = PySequence_Fast_GET_SIZE(key);
    }
    if (PyList_Check(key) && items != &key &&
        PyErr_WarnFormat(PyExc_UserWarning, 1,
                         "Using a non-tuple sequence for multidimensional indexing is deprecated: x[[[0, 1], [1, 2]]] means "
                         "x[[0, 1], [1, 2]] here, as in PyTorch; write x[tuple(key)] for that, or x[tensor(key)]") < 0) {
        return -1;
    }
    int used = 0, dim = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        used += consumes(items[i]);
    }
    if (used > t->v.ndim) {
        PyErr_Format(PyExc_IndexError,
                     t->v.ndim || n > 1
                         ? "too many indices for tensor of dimension %d"
                         : "invalid index of a %d-dim tensor. Use `tensor.item()` to convert it to a Python number",
                     t->v.ndim);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (items[i] == Py_Ellipsis) {
            dim += t->v.ndim - used; /* a second one passes over as many again, as in PyTorch */
            continue;
        }
        if (take_item(s, items[i], &dim) < 0) {
            return -1;
        }
    }
    s->basic = s->nindex == 0;
    return 0;
}

/* Index tensors in one run of dimensions: permutes the view if they are apart. *adjacent tells where their result goes. */
static int gather_indices(Selection *s, Tensor **list, int *n, int *first, bool *adjacent) {
    int64_t order[AMP_MAX_DIMS];
    int count = 0, lowest = -1, highest = -1, k = 0;
    for (int d = 0; d < s->view->v.ndim; d++) {
        if (s->index[d]) {
            lowest = lowest < 0 ? d : lowest;
            highest = d;
            if (count < MAX_INDICES) {
                list[count] = s->index[d];
            }
            count++;
        }
    }
    if (count > MAX_INDICES) {
        PyErr_Format(PyExc_IndexError, "at most %d index tensors are supported, got %d", MAX_INDICES, count);
        return -1;
    }
    *n = count;
    bool run = highest - lowest + 1 == count;
    *adjacent = run;
    *first = lowest;
    if (run) {
        return 0;
    }
    *first = 0;
    for (int d = 0; d < s->view->v.ndim; d++) {
        if (s->index[d]) {
            order[k++] = d;
        }
    }
    for (int d = 0; d < s->view->v.ndim; d++) {
        if (!s->index[d]) {
            order[k++] = d;
        }
    }
    return replace_view(s, (PyObject *)call_permute(s->view, order));
}

PyObject *tensor_getitem(PyObject *self, PyObject *key) {
    Selection s;
    PyObject *result = NULL;
    if (select_key((Tensor *)self, key, false, &s) < 0) {
        goto done;
    }
    if (s.basic) {
        result = s.view == (Tensor *)self ? (PyObject *)call_unary(OP_alias, s.view) : Py_NewRef((PyObject *)s.view);
        goto done;
    }
    Tensor *list[MAX_INDICES];
    int n, first;
    bool adjacent;
    if (gather_indices(&s, list, &n, &first, &adjacent) < 0) {
        goto done;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(s.view), {.kind = ARG_TENSORS, .n = n, .ts = list}, arg_int(first), arg_int(adjacent)};
    result = run_op(&amp_rows[OP_index], arg, false);
done:
    selection_done(&s);
    return result;
}

/* The right-hand side as a tensor: numbers become 0-dim tensors of the target's dtype. New reference. Beyond 16 bits a number is refused,
 * unless it is for one element that integers and slices chose: there it becomes infinite, as in PyTorch. */
static Tensor *value_tensor(Tensor *target, PyObject *value, bool one_element) {
    if (tensor_check(value)) {
        Tensor *v = (Tensor *)value;
        bool moves = v->v.device == target->v.device || v->v.ndim == 0 || target->v.device == AMP_META;
        return moves ? call_to(v, v->v.dtype, target->v.device) : (Tensor *)Py_NewRef(value);
    }
    if (array_check(value)) {
        return tensor_for_reading(value);
    }
    if (PyList_Check(value) || PyTuple_Check(value)) {
        return tensor_from_data(value, target->v.dtype, target->v.device);
    }
    if (!PyFloat_Check(value) && !PyLong_Check(value) && !PyComplex_Check(value) && !array_scalar_check(value)) {
        PyErr_Format(PyExc_TypeError, "can't assign a %s to a tensor of %s", Py_TYPE(value)->tp_name,
                     amp_dtype_info[target->v.dtype].name);
        return NULL;
    }
    Number n;
    bool fraction = PyFloat_Check(value) || PyComplex_Check(value);
    bool checked = PyComplex_Check(value) || (amp_is_16bit(target->v.dtype) ? !one_element : fraction);
    if (checked && (number_from_object(value, &n) < 0 || check_number(&n, target->v.dtype) < 0)) {
        return NULL;
    }
    Tensor *number = tensor_new(0, NULL, target->v.dtype, target->v.device);
    if (number && target->v.device != AMP_META && element_set(number->v.data, target->v.dtype, value) < 0) {
        Py_CLEAR(number);
    }
    return number;
}

/* A list is no value for what integers chose, the one element. 0, or -1 with TypeError. */
static int check_element(const Tensor *target, PyObject *value) {
    if (!PyList_Check(value) && !PyTuple_Check(value)) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "can't assign a %s to one element of a tensor of %s: give a number, or choose more elements",
                 Py_TYPE(value)->tp_name, amp_dtype_info[target->v.dtype].name);
    return -1;
}

/* Leading dimensions of size 1 that the target does not have are dropped, as in PyTorch. */
static Tensor *fit_value(Tensor *value, int ndim) {
    int extra = value->v.ndim - ndim, drop = 0;
    while (drop < extra && value->v.shape[drop] == 1) {
        drop++;
    }
    return drop > 0 ? call_reshape(value, value->v.ndim - drop, value->v.shape + drop) : (Tensor *)Py_NewRef(value);
}

/* One element for what a single mask chose is a fill, as in PyTorch: its dtype need not be the tensor's. */
static bool is_fill(const Selection *s, const Tensor *value) {
    return s->masks == 1 && s->nindex == s->mask_dims && value->v.numel == 1;
}

/* The element of a fill in the target's dtype and memory of its own: x[mask] = x[0] reads while it writes. New reference. */
static Tensor *fill_element(const Selection *s, Tensor *value) {
    if (s->byte_mask) {
        PyErr_SetString(PyExc_RuntimeError, "index_put: masked_fill_ only supports boolean masks, but got a mask of dtype uint8");
        return NULL;
    }
    Number n;
    bool same = value->v.dtype == s->view->v.dtype || value->v.device == AMP_META;
    if (!same && (number_from_object((PyObject *)value, &n) < 0 || check_number(&n, s->view->v.dtype) < 0)) {
        return NULL;
    }
    Tensor *fit = call_cast(value, s->view->v.dtype);
    if (fit && fit->st == s->view->st) {
        Py_SETREF(fit, call_clone(fit));
    }
    return fit;
}

/* x[True] = v and x[False] = v, the key being nothing but that: everything or nothing. */
static int select_bool(Tensor *t, Selection *s) {
    memset(s, 0, sizeof *s);
    s->ndim = t->v.ndim;
    s->basic = true;
    return (s->view = call_unsqueeze(t, 0)) ? 0 : -1;
}

int tensor_setitem(PyObject *self, PyObject *key, PyObject *value) {
    Selection s;
    int failed = -1;
    Tensor *raw = NULL, *fit = NULL;
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "Tensor does not support deleting items");
        return -1;
    }
    if ((PyBool_Check(key) ? select_bool((Tensor *)self, &s) : select_key((Tensor *)self, key, false, &s)) < 0 ||
        (s.basic && s.view->v.ndim == 0 && check_element((Tensor *)self, value) < 0) ||
        !(raw = value_tensor((Tensor *)self, value, s.basic && s.view->v.numel == 1))) {
        goto done;
    }
    if (key == Py_False) {
        failed = 0;
        goto done;
    }
    if (s.basic) {
        fit = fit_value(raw, s.view->v.ndim);
        if (fit && fit->st == s.view->st) { /* may be a part of what it is spread over */
            Py_SETREF(fit, call_expand(fit, s.view->v.ndim, s.view->v.shape));
        }
        failed = fit ? call_copy(s.view, fit) : -1;
        goto done;
    }
    Tensor *list[MAX_INDICES];
    int n, first;
    bool adjacent;
    if (gather_indices(&s, list, &n, &first, &adjacent) < 0) {
        goto done;
    }
    int batch = 0;
    for (int i = 0; i < n; i++) {
        batch = list[i]->v.ndim > batch ? list[i]->v.ndim : batch;
    }
    fit = fit_value(raw, s.view->v.ndim - n + batch);
    if (fit && array_check(value)) { /* NumPy's dtypes are not chosen: 2.5 is a float64 there */
        Py_SETREF(fit, call_cast(fit, s.view->v.dtype));
    }
    if (fit && is_fill(&s, fit)) {
        Py_SETREF(fit, fill_element(&s, fit));
    }
    if (!fit) {
        goto done;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(s.view), {.kind = ARG_TENSORS, .n = n, .ts = list},
                         arg_tensor(fit),    arg_int(first),
                         arg_int(adjacent),  arg_bool(false)};
    PyObject *written = run_op(&amp_rows[OP_index_put], arg, true);
    failed = written ? 0 : -1;
    Py_XDECREF(written);
done:
    selection_done(&s);
    Py_XDECREF(raw);
    Py_XDECREF(fit);
    return failed;
}

/* ---- index_put ---- */

/* The key that a sequence of index tensors and Nones stands for: None is a whole dimension here. New reference. */
static PyObject *key_of_indices(PyObject *indices) {
    PyObject *items = PySequence_Fast(indices, "index_put(): indices must be a tuple or list of tensors");
    PyObject *whole = items ? PySlice_New(NULL, NULL, NULL) : NULL, *key = NULL;
    if (whole && (key = PyTuple_New(PySequence_Fast_GET_SIZE(items)))) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
            PyObject *item = PySequence_Fast_GET_ITEM(items, i);
            PyTuple_SET_ITEM(key, i, Py_NewRef(item == Py_None ? whole : item));
        }
    }
    Py_XDECREF(whole);
    Py_XDECREF(items);
    return key;
}

/* The dimensions of `result`, which is like s->view, in the order of the tensor that was indexed. Steals result. */
static PyObject *in_first_order(const Selection *s, bool permuted, PyObject *result) {
    int64_t back[AMP_MAX_DIMS];
    int k = 0;
    if (!result || !permuted) {
        return result;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int d = 0; d < s->view->v.ndim; d++) {
            if ((s->index[d] != NULL) == (pass == 0)) {
                back[d] = k++;
            }
        }
    }
    Tensor *ordered = call_permute((Tensor *)result, back);
    Py_DECREF(result);
    return (PyObject *)ordered;
}

PyObject *tensor_index_put(PyObject *self, PyObject *indices, PyObject *values, bool accumulate, bool inplace) {
    Selection s = {0};
    Tensor *list[MAX_INDICES], *fit = NULL;
    int n, first;
    bool adjacent;
    PyObject *result = NULL, *key = key_of_indices(indices);
    if (!key || select_key((Tensor *)self, key, true, &s) < 0) {
        goto done;
    }
    if (!inplace && s.view->v.ndim != ((Tensor *)self)->v.ndim) { /* a 0-dim mask: its view is no result */
        PyObject *copy = (PyObject *)call_clone((Tensor *)self);
        result = copy ? tensor_index_put(copy, indices, values, accumulate, true) : NULL;
        Py_XDECREF(copy);
        goto done;
    }
    if (s.basic) {
        PyErr_SetString(PyExc_IndexError, "index_put(): indices must hold at least one tensor");
        goto done;
    }
    if (gather_indices(&s, list, &n, &first, &adjacent) < 0) {
        goto done;
    }
    bool permuted = s.view != (Tensor *)self;
    if (!accumulate && is_fill(&s, (Tensor *)values)) {
        fit = fill_element(&s, (Tensor *)values);
        if (!fit) {
            goto done;
        }
    }
    Arg arg[MAX_ARGS] = {arg_tensor(s.view),
                         {.kind = ARG_TENSORS, .n = n, .ts = list},
                         arg_tensor(fit ? fit : (Tensor *)values),
                         arg_int(first),
                         arg_int(adjacent),
                         arg_bool(accumulate)};
    result = run_op(&amp_rows[OP_index_put], arg, inplace);
    if (inplace && result) {
        Py_SETREF(result, Py_NewRef(self));
    } else {
        result = in_first_order(&s, permuted, result);
    }
done:
    Py_XDECREF(key);
    Py_XDECREF(fit);
    selection_done(&s);
    return result;
}
