#include "tensor_set.h"

#include "run_op.h"

/* Many small ones are gone through in about a millisecond; Python itself lets other threads wait for five. */
enum { RELEASE_BYTES = 512 << 10, RELEASE_BYTES_SMALL = 8 << 20, SMALL_BYTES = 16 << 10 };

void tensor_set_release(TensorSet *s) {
    for (int64_t i = 0; i < s->n && !s->borrowed; i++) {
        Py_DECREF(s->tensor[i]);
    }
    s->n = 0;
    PyMem_Free(s->heap);
    s->heap = NULL;
}

int tensor_set_reserve(TensorSet *s, Py_ssize_t n) {
    tensor_set_clear(s);
    s->tensor = s->inline_tensor;
    s->view = s->inline_view;
    s->copy = s->inline_copy;
    if (n <= INLINE_TENSORS) {
        return 0;
    }
    const size_t each = sizeof(Tensor *) + sizeof(View *) + sizeof(View);
    if ((size_t)n > SIZE_MAX / 2 / each) {
        PyErr_NoMemory();
        return -1;
    }
    s->heap = PyMem_Malloc((size_t)n * each);
    if (!s->heap) {
        PyErr_NoMemory();
        return -1;
    }
    s->copy = s->heap;
    s->view = (const View **)(void *)(s->copy + n);
    s->tensor = (Tensor **)(void *)(s->view + n);
    return 0;
}

int tensor_set_gather(TensorSet *s, PyObject *o, const char *what) {
    tensor_set_clear(s);
    if (o == Py_None) {
        return tensor_set_reserve(s, 0);
    }
    PyObject *fast = PySequence_Fast(o, "expected a list or tuple of tensors");
    if (!fast) {
        return -1;
    }
    Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
    if (tensor_set_reserve(s, n) < 0) {
        goto fail;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        if (!tensor_check(item)) {
            PyErr_Format(PyExc_TypeError, "%s: item %zd must be a Tensor, not %.100s", what, i, Py_TYPE(item)->tp_name);
            goto fail;
        }
        tensor_set_push(s, (Tensor *)item);
    }
    Py_DECREF(fast);
    return 0;
fail:
    tensor_set_release(s);
    Py_DECREF(fast);
    return -1;
}

/* ---- state of an optimizer ----
 *
 * state[owner][key] of a thousand owners lies all over memory: dict objects, their tables, tensors, storages. Dicts are nearly always
 * filled in the order in which they are asked, so nothing needs to be hashed, and what the next owners need is fetched while the
 * caches still wait for this one's. */

enum { AHEAD = 16, MOST_KEYS = 8, LINE = 64 };

static inline void fetch(const void *p) {
    __builtin_prefetch(p);
    __builtin_prefetch((const void *)((uintptr_t)p + LINE));
}

/* The values of the keys if the dict has them in this order: the same objects, and nothing between them. */
static inline bool values_in_order(PyObject *dict, PyObject *const *key, int n, PyObject **value) {
    Py_ssize_t place = 0;
    PyObject *found;
    for (int k = 0; k < n; k++) {
        if (!PyDict_Next(dict, &place, &found, &value[k]) || found != key[k]) {
            return false;
        }
        fetch(value[k]);
    }
    return true;
}

/* Adds the entries of the owners from `begin` on, at most AHEAD of them, as long as everything lies in order; runs no Python code, so
 * that what was found stays where it is. How many it did. */
static int64_t take_in_order(TensorSet *const *s, PyObject *const *key, int n, PyObject *state, const TensorSet *owners,
                             int64_t begin, Py_ssize_t *place) {
    PyObject *entries[AHEAD], *value[AHEAD][MOST_KEYS], *owner;
    Py_ssize_t after[AHEAD], next = *place;
    int64_t found = 0, count = 0, done = 0;
    for (; found < AHEAD && begin + found < owners->n; found++) {
        if (!PyDict_Next(state, &next, &owner, &entries[found]) || owner != (PyObject *)owners->tensor[begin + found]) {
            break;
        }
        after[found] = next;
        __builtin_prefetch(entries[found]);
    }
    while (count < found && PyDict_Check(entries[count])) {
        fetch(((PyDictObject *)entries[count++])->ma_keys);
    }
    while (done < count && values_in_order(entries[done], key, n, value[done])) {
        done++;
    }
    for (int64_t i = 0; i < done; i++) {
        bool tensors = true;
        for (int k = 0; k < n; k++) {
            tensors = tensors && tensor_check(value[i][k]);
        }
        if (!tensors) {
            return i;
        }
        for (int k = 0; k < n; k++) {
            tensor_set_push(s[k], (Tensor *)value[i][k]);
        }
        *place = after[i];
    }
    return done;
}

/* Where the first owner stands in `state`: groups after the first begin in the middle. Looked for only as long as that costs little. */
static Py_ssize_t first_place(PyObject *state, const TensorSet *owners) {
    Py_ssize_t place = 0, next = 0;
    PyObject *owner, *entries;
    for (int64_t i = 0; owners->n && i < 8 * owners->n && PyDict_Next(state, &next, &owner, &entries); i++) {
        if (owner == (PyObject *)owners->tensor[0]) {
            return place;
        }
        place = next;
    }
    return 0;
}

/* The entries of one owner, wherever they are. 0; 1 if one is missing; -1 with an exception. */
static int take_by_lookup(TensorSet *const *s, PyObject *const *key, int n, PyObject *state, const TensorSet *owners, int64_t i,
                          const char *what) {
    PyObject *entries = PyDict_GetItemWithError(state, (PyObject *)owners->tensor[i]);
    for (int k = 0; k < n; k++) {
        PyObject *value = entries && PyDict_Check(entries) ? PyDict_GetItemWithError(entries, key[k]) : NULL;
        if (!value || !tensor_check(value)) {
            if (value) {
                PyErr_Format(PyExc_TypeError, "%s: the entry %R of parameter %lld must be a Tensor, not %.100s", what, key[k],
                             (long long)i, Py_TYPE(value)->tp_name);
            }
            return PyErr_Occurred() ? -1 : 1;
        }
        tensor_set_push(s[k], (Tensor *)value);
    }
    return 0;
}

int tensor_set_lookup(TensorSet *const *s, PyObject *const *key, int n, PyObject *state, const TensorSet *owners,
                      const char *what) {
    TensorSet *wanted[MOST_KEYS];
    PyObject *wanted_key[MOST_KEYS];
    int reserved = 0, failed = 0, count = 0;
    while (reserved < n && !failed) {
        failed = tensor_set_reserve(s[reserved], key[reserved] ? (Py_ssize_t)owners->n : 0);
        if (key[reserved]) {
            wanted[count] = s[reserved];
            wanted_key[count++] = key[reserved];
        }
        reserved += !failed;
    }
    Py_ssize_t place = first_place(state, owners);
    for (int64_t i = 0, done; i < owners->n && !failed; i += done) {
        done = take_in_order(wanted, wanted_key, count, state, owners, i, &place);
        if (done == 0) {
            failed = take_by_lookup(wanted, wanted_key, count, state, owners, i, what);
            done = 1;
        }
    }
    while (failed && reserved > 0) {
        tensor_set_release(s[--reserved]);
    }
    return failed;
}

int twin_set_make(TwinSet *s, const TensorSet *params) {
    *s = (TwinSet){0};
    for (int64_t i = 0; i < params->n; i++) {
        const Tensor *p = params->tensor[i];
        int dtype = p->st->copied_as || p->st->twin ? tensor_wanted_twin(p) : 0;
        if (!dtype) {
            continue;
        }
        if (!s->n) {
            s->tensor = PyMem_Calloc((size_t)params->n, sizeof *s->tensor + sizeof *s->view + sizeof *s->writes);
            if (!s->tensor) {
                PyErr_NoMemory();
                return -1;
            }
            s->view = (const View **)(void *)(s->tensor + params->n);
            s->writes = (uint32_t *)(void *)(s->view + params->n);
            s->n = params->n;
        }
        Tensor *twin = tensor_new(1, &p->v.numel, dtype, p->v.device);
        if (!twin) {
            twin_set_hand_over(s, params, false);
            return -1;
        }
        s->tensor[i] = twin;
        s->view[i] = &twin->v;
        s->writes[i] = p->st->writes;
    }
    return 0;
}

/* Only who was written once, by the step, has the values of its twin: no one that is listed twice or was written by another thread. */
void twin_set_hand_over(TwinSet *s, const TensorSet *params, bool written) {
    for (int64_t i = 0; i < s->n; i++) {
        Tensor *p = params->tensor[i], *twin = s->tensor[i];
        if (twin && written && p->st->writes == s->writes[i] + 1) {
            tensor_give_twin(p, twin);
        }
        Py_XDECREF(twin);
    }
    PyMem_Free(s->tensor);
    *s = (TwinSet){0};
}

TensorList tensor_set_list(const TensorSet *s) { return (TensorList){s->n, s->view}; }

int64_t tensor_set_bytes(const TensorSet *s) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->n; i++) {
        bytes += s->view[i]->numel * (int64_t)amp_itemsize(s->view[i]->dtype);
    }
    return bytes;
}

void tensor_set_bump(TensorSet *s) {
    for (int64_t i = 0; i < s->n; i++) {
        tensor_bump(s->tensor[i]);
    }
}

bool gil_is_kept(int64_t n, int64_t bytes) {
    return bytes < RELEASE_BYTES || (bytes < RELEASE_BYTES_SMALL && bytes <= n * SMALL_BYTES);
}

PyThreadState *release_gil(int64_t bytes) { return bytes >= RELEASE_BYTES ? run_slot_unlock() : NULL; }
void take_gil(PyThreadState *saved) {
    if (saved) {
        run_slot_lock(saved);
    }
}

bool kernel_dtype(int dtype) {
    return dtype == AMP_FLOAT32 || dtype == AMP_FLOAT64 || dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16;
}

static Status scale_nothing(TensorList tensors, double factor) {
    (void)tensors, (void)factor;
    return AMP_OK;
}

static Status zero_nothing(TensorList tensors) {
    (void)tensors;
    return AMP_OK;
}

static Status sgd_nothing(TensorList params, TensorList grads, TensorList momentum, TensorList copies, const SgdOptions *options,
                          double grad_scale) {
    (void)params, (void)grads, (void)momentum, (void)copies, (void)options, (void)grad_scale;
    return AMP_OK;
}

static Status adam_nothing(TensorList params, TensorList grads, TensorList exp_avg, TensorList exp_avg_sq,
                           TensorList max_exp_avg_sq, TensorList copies, const double *step, double *mu_product,
                           const AdamOptions *options, double grad_scale) {
    (void)params, (void)grads, (void)exp_avg, (void)exp_avg_sq, (void)max_exp_avg_sq, (void)copies, (void)step;
    (void)mu_product, (void)options, (void)grad_scale;
    return AMP_OK;
}

/* Tensors without memory: what writes them has nothing to do; what would give numbers is absent. */
static const Backend meta_backend = {.scale = scale_nothing, .zero = zero_nothing, .sgd = sgd_nothing, .adam = adam_nothing};

const Backend *backend_of(int device, const char *what) {
    const Backend *backend = device == AMP_META ? &meta_backend : amp_backend[device];
    if (!backend || (device == AMP_CUDA && device_require(device) < 0)) {
        if (!PyErr_Occurred()) {
            amp_raise(AMP_NO_KERNEL, what);
        }
        return NULL;
    }
    return backend;
}

int fail_device(const char *what) {
    PyErr_Format(PyExc_RuntimeError,
                 "%s: Expected all tensors to be on the same device. Move them with .to(device), or make one call per device",
                 what);
    return -1;
}

int fail_dtype(const char *what, int dtype) {
    PyErr_Format(PyExc_NotImplementedError, "%s: not implemented for '%s'. Use float32, float64, float16 or bfloat16", what,
                 amp_dtype_info[dtype].name);
    return -1;
}

int check_overlap(const View *v, const char *what) {
    if (!(v->layout & LAYOUT_CONTIGUOUS) && amp_has_internal_overlap(v)) {
        return amp_raise(AMP_OVERLAP, what);
    }
    return 0;
}

int arg_count(const char *what, Py_ssize_t n, Py_ssize_t want) {
    if (n != want) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments (%zd given)", what, want, n);
        return -1;
    }
    return 0;
}

int arg_double(PyObject *o, double *out) {
    *out = PyFloat_AsDouble(o);
    return *out == -1.0 && PyErr_Occurred() ? -1 : 0;
}
