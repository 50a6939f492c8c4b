/* How the optimizer tail reaches a thousand small tensors quickly. What it looks at (objects, storages, dicts) lies all over memory and
 * is rarely in the first cache: it is fetched a few tensors ahead, and looked at in as few passes as possible. */
#ifndef AMP_LIST_GATHER_H
#define AMP_LIST_GATHER_H
#include "tensor_set.h"

enum { FETCH_STORAGE = 16, FETCH_GRAD = 32, FETCH_PARAM = 48 }; /* so many parameters ahead */

/* Far: to the second cache only, which waits for more lines at a time than the first; for whoever asks for many at once. */
static inline void fetch_line(const void *p, bool far) {
    if (far) {
        __builtin_prefetch(p, 0, 2);
    } else {
        __builtin_prefetch(p);
    }
}

/* Objects begin anywhere in a cache line: each is asked for at its first and last field in use. */
static inline void fetch_tensor(const Tensor *t, bool far) { /* head, view, storage, flags */
    fetch_line(t, far);
    fetch_line(&t->flags, far);
}
static inline void fetch_param(const Tensor *t, bool far) {
    fetch_tensor(t, far);
    fetch_line(&t->grad, far);
}
static inline void fetch_storage(const Storage *st, bool far) { /* flags and counters */
    fetch_line(&st->readonly, far);
    fetch_line(&st->loss_scale, far);
}

static inline Tensor *grad_of(PyObject *param) { return tensor_check_exact(param) ? ((Tensor *)param)->grad : NULL; }

/* In front of looking at item[i]->grad, one parameter after the other. */
static inline void fetch_grads(PyObject *const *item, Py_ssize_t n, Py_ssize_t i) {
    Tensor *grad;
    if (i + FETCH_PARAM < n) {
        fetch_param((Tensor *)item[i + FETCH_PARAM], false);
    }
    if (i + FETCH_GRAD < n && (grad = grad_of(item[i + FETCH_GRAD]))) {
        fetch_tensor(grad, false);
    }
    if (i + FETCH_STORAGE < n && (grad = grad_of(item[i + FETCH_STORAGE]))) {
        fetch_storage(grad->st, false);
    }
}

/* After a kernel, tensors and storages are out of the caches again: in front of looking at s->tensor[i]->st. */
static inline void fetch_storages(const TensorSet *s, int64_t i) {
    if (i + FETCH_GRAD < s->n) {
        fetch_tensor(s->tensor[i + FETCH_GRAD], false);
    }
    if (i + FETCH_STORAGE < s->n) {
        fetch_storage(s->tensor[i + FETCH_STORAGE]->st, false);
    }
}

static inline void fetch_first_grads(PyObject *const *item, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n && i < FETCH_PARAM; i++) {
        fetch_param((Tensor *)item[i], false);
    }
}

/* tensor_set_bump for a long list. */
void list_bump(TensorSet *s);
/* For a long list that will be released: tensor_set_bump if it was written, and lets go of the tensors that somebody else holds, too.
 * What only we hold stays in the set: no destructor runs here, so that what was written is counted before anybody can look. Nothing to
 * do for borrowed ones. */
void list_settle(TensorSet *s, bool written);

/* Of a list that may stay borrowed, writes are counted while tensors are looked at anyway, before they happen: nobody can look.
 * list_own: it cannot stay so: takes the references, and the counts back; they will be made afterwards. */
static inline void list_borrow(TensorSet *s, Tensor *t, bool written) {
    if (written) {
        tensor_bump(t);
    }
    tensor_set_borrow(s, t);
}
void list_own(TensorSet *s, bool written);
/* Releases a borrowed list to which nothing was done; takes the counts back. */
void list_return(TensorSet *s, bool written);

/* What one step reads and writes, taken from parameters that are nothing special, and from their state.
 *
 * `state` is a dict parameter -> dict, or NULL; state_set[k] gets the entries of keys[k], a NULL key an empty set. The first `counters`
 * of them are one-element fp32 tensors on the CPU, the others like their parameters. Parameters without a gradient are left out.
 *
 * 1: so it is; 0, with nothing held: something is unusual or missing, and the long way will find out what; -1: exception. It is usual
 * that all are plain tensors of one device, that what is written is contiguous and no read-only memory, that gradients and state have
 * the shape and dtype of their parameter, and that dicts were filled in the order in which they are asked. Runs no Python code. */
typedef struct StepSets {
    TensorSet *params, *grads;
    TensorSet *const *state_set;
    PyObject *const *key;
    int keys, counters;
    bool writes_grads;
    bool copies;   /* result: a parameter was asked for a 16-bit copy */
    int64_t bytes; /* result: of all parameters */
    /* All sets are borrowed if bytes are few and there are no copies (making those may run destructors). */
} StepSets;
int list_gather_step(StepSets *s, PyObject *params, PyObject *state);

#endif
