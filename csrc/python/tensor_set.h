/* Lists of tensors as the optimizer tail takes them: gathered into strong references first, since the GIL may be released around the
 * kernel, and another thread may then change the Python lists. */
#ifndef AMP_TENSOR_SET_H
#define AMP_TENSOR_SET_H
#include <stddef.h>
#include <string.h>

#include "tensor.h"

enum { INLINE_TENSORS = 24 };

/* Of many small tensors, taking and dropping the references costs as much as the work. While the GIL stays held and nothing runs that
 * could drop a tensor, a set may do without: it is borrowed.
 *
 * The views are copies, side by side: a long list is walked several times, and a worker that read the views inside the tensors would
 * fetch, and send back, the cache lines with the reference counts that the caller writes. */
typedef struct TensorSet {
    int64_t n;
    Tensor **tensor;   /* n references, strong unless borrowed */
    const View **view; /* view[i] == &copy[i] */
    View *copy;
    void *heap; /* NULL while the inline arrays suffice */
    bool borrowed;
    Tensor *inline_tensor[INLINE_TENSORS];
    const View *inline_view[INLINE_TENSORS];
    View inline_copy[INLINE_TENSORS];
} TensorSet;

static inline void tensor_set_clear(TensorSet *s) { /* for a set that may be released without having been made */
    s->n = 0;
    s->heap = NULL;
    s->borrowed = false;
}
/* `o` is a list or tuple (or any sequence) of tensors; None gives an empty set. 0, or -1 with an exception and nothing held. */
int tensor_set_gather(TensorSet *s, PyObject *o, const char *what);
/* An empty set with room for n; 0, or -1 with an exception. */
int tensor_set_reserve(TensorSet *s, Py_ssize_t n);
/* Field by field: assigning a whole View may become a string instruction, which takes longer to start than to copy. */
static inline void copy_view(View *to, const View *from) {
    to->data = from->data;
    to->numel = from->numel;
    to->shape = from->shape;
    to->stride = from->stride;
    memcpy(&to->ndim, &from->ndim, sizeof *to - offsetof(View, ndim)); /* dtype, device, layout */
}
static inline void tensor_set_borrow(TensorSet *s, Tensor *t) { /* there is room */
    s->tensor[s->n] = t;
    copy_view(&s->copy[s->n], &t->v);
    s->view[s->n] = &s->copy[s->n];
    s->n++;
}
static inline void tensor_set_push(TensorSet *s, Tensor *t) { tensor_set_borrow(s, (Tensor *)Py_NewRef((PyObject *)t)); }
/* At most 8 sets: s[k] gets state[owner][key[k]] of every tensor of `owners`; `state` is a dict of dicts, a NULL key gives an empty set. 0; 1 if
 * an entry is missing, with nothing held and no exception; -1 with an exception. */
int tensor_set_lookup(TensorSet *const *s, PyObject *const *key, int n, PyObject *state, const TensorSet *owners,
                      const char *what);
void tensor_set_release(TensorSet *s);
TensorList tensor_set_list(const TensorSet *s);
int64_t tensor_set_bytes(const TensorSet *s);
void tensor_set_bump(TensorSet *s);

/* The 16-bit copies that an optimizer writes in passing: for each parameter a new tensor, or NULL where nobody asked for one. */
typedef struct TwinSet {
    int64_t n; /* 0: nobody asked */
    Tensor **tensor;
    const View **view;
    uint32_t *writes; /* of each parameter's memory before the step */
} TwinSet;
int twin_set_make(TwinSet *s, const TensorSet *params);                     /* before the step; 0, or -1 with an exception */
void twin_set_hand_over(TwinSet *s, const TensorSet *params, bool written); /* after it; frees the set */
static inline TensorList twin_set_list(const TwinSet *s) { return (TensorList){s->n, s->view}; }

/* Whether a kernel over n tensors, `bytes` in all, runs under the GIL: they are too small to be worth a hand-over. */
bool gil_is_kept(int64_t n, int64_t bytes);
/* A kernel runs between these two; `saved` is NULL if the GIL was not released. */
PyThreadState *release_gil(int64_t bytes);
void take_gil(PyThreadState *saved);

/* Checks. The int ones return 0, or -1 with an exception that begins with `what`; the fail_ ones -1. */
bool kernel_dtype(int dtype);
const Backend *backend_of(int device, const char *what);
int fail_device(const char *what);
int fail_dtype(const char *what, int dtype);
int check_overlap(const View *v, const char *what);
int arg_count(const char *what, Py_ssize_t n, Py_ssize_t want);
int arg_double(PyObject *o, double *out);

/* The first element of an fp32 view. */
static inline float read_float(const View *v) {
    float f;
    memcpy(&f, v->data, sizeof f);
    return f;
}

#endif
