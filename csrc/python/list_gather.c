#include "list_gather.h"

#include <stddef.h>

void list_bump(TensorSet *s) {
    for (int64_t i = 0; i < s->n; i++) {
        fetch_storages(s, i);
        tensor_bump(s->tensor[i]);
    }
}

static void uncount(TensorSet *s, bool written) {
    for (int64_t i = 0; i < s->n && written; i++) {
        Tensor *t = s->tensor[i];
        t->st->writes--;
        t->st->version -= !(t->flags & TENSOR_IS_DATA);
    }
}

void list_own(TensorSet *s, bool written) {
    uncount(s, written);
    for (int64_t i = 0; i < s->n; i++) {
        Py_INCREF(s->tensor[i]);
    }
    s->borrowed = false;
}

void list_return(TensorSet *s, bool written) {
    uncount(s, written);
    tensor_set_release(s);
}

void list_settle(TensorSet *s, bool written) {
    int64_t kept = 0;
    if (s->borrowed) {
        return;
    }
    for (int64_t i = 0; i < s->n; i++) {
        Tensor *t = s->tensor[i];
        if (written) {
            fetch_storages(s, i);
            tensor_bump(t);
        } else if (i + FETCH_STORAGE < s->n) {
            fetch_line(s->tensor[i + FETCH_STORAGE], false);
        }
        if (Py_REFCNT(t) > 1) {
            Py_DECREF(t);
        } else {
            s->tensor[kept++] = t;
        }
    }
    s->n = kept;
}

/* ---- one step's tensors ----
 *
 * ROWS parameters at a time go through stages; each looks at what the one before it fetched:
 *
 *     parameter -> gradient -> its storage
 *               -> storage
 *     state     -> dict -> its table -> entries -> their storages and counters */

enum { ROWS = 64, MOST_KEYS = 5 };

typedef struct Row {
    Tensor *param, *grad;
    PyObject *entries, *value[MOST_KEYS];
} Row;

/* Where a set's arrays are. */
typedef struct Column {
    Tensor **tensor;
    const View **view;
    View *copy;
} Column;

typedef struct Walk {
    StepSets *s;
    PyObject *params, *state;
    Py_ssize_t at, place; /* in params, in state */
    int64_t n;            /* rows taken */
    uint32_t traits;      /* of the parameter before */
    PyObject *key[MOST_KEYS];
    Column param, grad, column[MOST_KEYS]; /* of the keys that are present */
} Walk;

/* The stages are compiled once for each usual number of keys. */
#define STAGE static inline __attribute__((always_inline))

/* The next rows; -1: one is unusual. */
STAGE int find_rows(Walk *w, Row *row, int keys) {
    PyObject *const *item = ((PyListObject *)w->params)->ob_item, *owner;
    const Py_ssize_t n = PyList_GET_SIZE(w->params);
    Py_ssize_t at = w->at;
    int count = 0;
    for (; count < ROWS && at < n; at++) {
        Row *r = &row[count];
        if (at + ROWS < n) {
            fetch_param((Tensor *)item[at + ROWS], true);
        }
        if (!tensor_check_exact(item[at])) {
            return -1;
        }
        r->param = (Tensor *)item[at];
        r->grad = r->param->grad;
        if (!r->grad) {
            continue;
        }
        fetch_tensor(r->grad, true);
        fetch_storage(r->param->st, true);
        if (keys) {
            if (!PyDict_Next(w->state, &w->place, &owner, &r->entries) || owner != (PyObject *)r->param) {
                return -1;
            }
            fetch_line(r->entries, true);
            fetch_line(&((PyDictObject *)r->entries)->ma_values, true);
        }
        count++;
    }
    w->at = at;
    return count;
}

STAGE bool open_rows(const Row *row, int count, int keys, bool writes_grads) {
    for (const Row *r = row; r < row + count; r++) {
        if (!tensor_check_exact((PyObject *)r->grad) || (keys && !PyDict_CheckExact(r->entries))) {
            return false;
        }
        if (writes_grads) {
            fetch_storage(r->grad->st, true);
        }
        if (keys) {
            const char *table = (const char *)((PyDictObject *)r->entries)->ma_keys;
            fetch_line(table, true);
            fetch_line(table + 64, true);
            if (keys > 1) {
                fetch_line(table + 128, true);
            }
        }
    }
    return true;
}

/* The entries stand in their dict in the order of the keys, with nothing between them. */
STAGE bool find_entries(const Walk *w, Row *row, int count, int keys) {
    for (Row *r = row; r < row + count; r++) {
        Py_ssize_t place = 0;
        PyObject *key;
        for (int k = 0; k < keys; k++) {
            if (!PyDict_Next(r->entries, &place, &key, &r->value[k]) || key != w->key[k]) {
                return false;
            }
            fetch_tensor((Tensor *)r->value[k], true);
        }
    }
    return true;
}

STAGE bool open_entries(const Row *row, int count, int keys, int counters) {
    for (const Row *r = row; r < row + count; r++) {
        for (int k = 0; k < keys; k++) {
            const Tensor *t = (const Tensor *)r->value[k];
            if (!tensor_check_exact(r->value[k])) {
                return false;
            }
            if (k < counters) {
                fetch_line(t->v.data, true);
            } else {
                fetch_line(&t->st->readonly, true);
            }
        }
    }
    return true;
}

/* Number of dimensions, dtype, device and layout, to be compared at once. */
static inline uint32_t traits_of(const View *v) {
    uint32_t traits;
    _Static_assert(offsetof(View, layout) == offsetof(View, ndim) + 3, "four bytes side by side");
    memcpy(&traits, &v->ndim, sizeof traits);
    return traits;
}

STAGE bool alike(const View *a, uint32_t traits, const View *b) {
    bool same = traits_of(b) == traits && a->numel == b->numel;
    for (int d = 0; a->ndim > 1 && same && d < a->ndim; d++) {
        same = a->shape[d] == b->shape[d];
    }
    return same;
}

static inline bool is_counter(const View *v) { return v->numel == 1 && v->dtype == AMP_FLOAT32 && v->device == AMP_CPU; }

STAGE void put(const Column *c, int64_t i, Tensor *t, bool written) {
    t->st->writes += written;
    t->st->version += written && !(t->flags & TENSOR_IS_DATA); /* tensor_bump without a jump */
    c->tensor[i] = t;
    copy_view(&c->copy[i], &t->v);
    c->view[i] = &c->copy[i];
}

/* What is alike to a contiguous parameter is contiguous. */
STAGE bool is_usual(const Walk *w, const Row *r, uint32_t traits, bool writes_grads, int keys, int counters) {
    const View *p = &r->param->v;
    if (traits != w->traits &&
        (!kernel_dtype(p->dtype) || !(p->layout & LAYOUT_CONTIGUOUS) || (w->n && p->device != w->param.copy[0].device))) {
        return false;
    }
    if (r->param->st->readonly || !alike(p, traits, &r->grad->v) || (writes_grads && r->grad->st->readonly)) {
        return false;
    }
    for (int k = 0; k < keys; k++) {
        const Tensor *t = (const Tensor *)r->value[k];
        if (k < counters ? !is_counter(&t->v) : !alike(p, traits, &t->v) || t->st->readonly) {
            return false;
        }
    }
    return true;
}

STAGE bool take_rows(Walk *w, const Row *row, int count, int keys, int counters) {
    Column column[MOST_KEYS + 2] = {w->param, w->grad}; /* here, where no store can have changed them */
    const bool writes_grads = w->s->writes_grads;
    int64_t bytes = 0;
    bool copies = false, usual = true;
    for (int k = 0; k < keys; k++) {
        column[2 + k] = w->column[k];
    }
    for (const Row *r = row; r < row + count; r++) {
        const View *p = &r->param->v;
        const uint32_t traits = traits_of(p);
        usual = is_usual(w, r, traits, writes_grads, keys, counters);
        if (!usual) {
            break;
        }
        w->traits = traits;
        copies |= r->param->st->copied_as || r->param->st->twin_dtype;
        bytes += p->numel * (int64_t)amp_itemsize(p->dtype);
        put(&column[0], w->n, r->param, true);
        put(&column[1], w->n, r->grad, writes_grads);
        for (int k = 0; k < keys; k++) {
            put(&column[2 + k], w->n, (Tensor *)r->value[k], true);
        }
        w->n++;
    }
    w->s->copies |= copies;
    w->s->bytes += bytes;
    return usual;
}

STAGE bool walk(Walk *w, int keys, int counters) {
    Row row[ROWS];
    while (w->at < PyList_GET_SIZE(w->params)) {
        int count = find_rows(w, row, keys);
        if (count < 0 || !open_rows(row, count, keys, w->s->writes_grads) || !find_entries(w, row, count, keys) ||
            !open_entries(row, count, keys, counters) || !take_rows(w, row, count, keys, counters)) {
            return false;
        }
    }
    return true;
}

static bool walk_any(Walk *w, int keys, int counters) {
    if (keys == 0) {
        return walk(w, 0, 0);
    }
    if (keys == 1 && counters == 0) {
        return walk(w, 1, 0);
    }
    return keys == 3 && counters == 1 ? walk(w, 3, 1) : walk(w, keys, counters);
}

/* Where the first parameter with a gradient stands in the state: groups after the first begin in the middle. Looked for only as long as
 * that costs little. */
static Py_ssize_t first_place(PyObject *state, PyObject *params) {
    const Py_ssize_t n = PyList_GET_SIZE(params);
    Py_ssize_t i = 0, place = 0, next = 0;
    PyObject *owner, *entries;
    while (i < n && !grad_of(PyList_GET_ITEM(params, i))) {
        i++;
    }
    for (Py_ssize_t looks = 0; i < n && looks < 8 * n && PyDict_Next(state, &next, &owner, &entries); looks++) {
        if (owner == PyList_GET_ITEM(params, i)) {
            return place;
        }
        place = next;
    }
    return 0;
}

static Column column_of(const TensorSet *s) { return (Column){s->tensor, s->view, s->copy}; }

int list_gather_step(StepSets *s, PyObject *params, PyObject *state) {
    TensorSet *sets[MOST_KEYS + 2] = {s->params, s->grads};
    int count = 2, failed = 0, keys = 0, counters = 0;
    s->copies = false;
    s->bytes = 0;
    if (!PyList_Check(params) || (state && !PyDict_Check(state))) {
        return 0;
    }
    const Py_ssize_t n = PyList_GET_SIZE(params);
    for (int k = 0; k < s->keys; k++) {
        sets[count++] = s->state_set[k];
    }
    int reserved = 0;
    for (; reserved < count && !failed; reserved += !failed) {
        failed = tensor_set_reserve(sets[reserved], reserved < 2 || s->key[reserved - 2] ? n : 0);
    }
    Walk w = {.s = s, .params = params, .state = state};
    bool fits = !failed;
    if (fits) {
        w.param = column_of(s->params);
        w.grad = column_of(s->grads);
        for (int k = 0; k < s->keys; k++) {
            if (s->key[k]) {
                counters += k < s->counters;
                w.column[keys] = column_of(s->state_set[k]);
                w.key[keys++] = s->key[k];
            }
        }
        fetch_first_grads(((PyListObject *)params)->ob_item, n < ROWS ? n : ROWS);
        w.place = keys ? first_place(state, params) : 0;
        fits = walk_any(&w, keys, counters);
    }
    for (int i = 0; i < reserved; i++) {
        const bool written = i != 1 || s->writes_grads;
        sets[i]->n = i < 2 || s->key[i - 2] ? w.n : 0;
        sets[i]->borrowed = true;
        if (!fits) {
            list_return(sets[i], written);
        } else if (s->copies || !gil_is_kept(w.n, s->bytes)) {
            list_own(sets[i], written);
        }
    }
    return failed ? -1 : fits;
}
