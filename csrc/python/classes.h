/* What class functions (run_<CLASS>) use. A class function checks shapes and dtypes, gets its results from result_new and calls one
 * backend slot; composites call other ops and store the result. */
#ifndef AMP_CLASSES_H
#define AMP_CLASSES_H
#include "run_op.h"

#define OP(id, name, variants, signature, cls, dtype, cuda, cpu, saves, derivative, fast) int run_##cls(OpCall *c);
#include "../core/ops.def"
#undef OP

/* What out= or the in-place target may share memory with while the kernel runs: inputs that are the very same elements, input 0 alone in
 * that way (it is copied, then the others are read), nothing. An overlap in part is refused; ALIAS_NEVER: not even that, the result is made
 * apart and copied. */
typedef enum Aliasing { ALIAS_ELEMENTWISE, ALIAS_INPUT, ALIAS_APART, ALIAS_NEVER } Aliasing;

/* A tensor to write result i into, stored in c->result[i]: the given output where shape, dtype and overlap allow it, else a new one that
 * run_op copies over afterwards. Raises for a target that cannot take the result. Borrowed, or NULL. */
Tensor *result_new(OpCall *c, int i, int ndim, const int64_t *shape, int dtype, int device, Aliasing aliasing);
/* Gives a tensor that was just made model's order of dimensions in memory (same shape): what element-wise ops, copies and *_like keep.
 * result_keep_layout leaves a given output as it is. */
void result_keep_layout(const OpCall *c, Tensor *out, const Tensor *model);
void tensor_keep_layout(Tensor *out, const Tensor *model);
/* Stores a finished tensor (reference taken over; NULL = failed) as the result. 0 or -1. */
int result_set(OpCall *c, Tensor *t);

/* The device of all tensor arguments; 0-dim CPU tensors may join any. -1 with RuntimeError. */
int common_device(const OpCall *c);
/* The same for ops whose result lies where their first tensor does: all others must be there too. 0, or -1 with RuntimeError. */
int same_device(const OpCall *c);
/* An index: where self is, or on the CPU beside a self on "cuda"; what is beside a self on "meta" is not read. 0, or -1 with RuntimeError. */
int readable_beside(const char *name, const Tensor *self, const Tensor *t);
/* 0, or -1 with RuntimeError if argument i is a tensor that requires grad while gradients are recorded. */
int needs_no_gradient(const OpCall *c, int i);
/* t converted by the copy slot, not recorded; t itself if it has the dtype. New reference. */
Tensor *raw_cast(Tensor *t, int dtype);
Tensor *raw_contiguous(Tensor *t);
/* Real and imaginary part of z, which stand side by side: (..., n) complex is (..., n, 2) real. New references in part[0] and part[1], of
 * which there may be one after a failure, too. 0 or -1. */
int complex_parts(Tensor *z, Tensor **part);
/* dst <- src by the copy slot (same shape). 0 or -1. */
int raw_copy(View *dst, const View *src);
int raw_fill(Tensor *t, Number value);
/* RuntimeError, -1, for a number that a fill of this dtype refuses. */
int check_number(const Number *n, int dtype);
int check_bound(const Number *n, int dtype, bool is_min); /* the same for a bound of clamp */
int fill_number(Tensor *t, const Number *n);              /* check_number, then raw_fill: for numbers that users give */
int check_value(const Tensor *value, int dtype);          /* the same for a 0-dim tensor in a number's place */
Number number_int(int64_t i);
Number number_float(double f);
PyObject *number_object(const Number *n); /* as Python has it; new reference */

/* View v as if broadcast to (ndim, shape): strides go to the caller's array. The shapes are known to be compatible. */
View broadcast_view(const View *v, int ndim, int64_t *shape, int64_t *strides);

int dims_mask(const Arg *arg, int ndim, uint64_t *mask); /* int[]? / int / absent -> bit mask; empty or None: all */
/* Composites are written with derivatives/derivatives.h on a frame (back_begin). frame_end stores `result` (borrowed from the frame; NULL: failed) and
 * drops everything else. 0 or -1. */
struct Back;
int frame_end(OpCall *c, struct Back *b, Tensor *result);
#define AMP_BACKEND_SLOT(device, slot) (amp_backend[device] ? amp_backend[device]->slot : NULL)
/* v's memory as a matrix; shape and strides go to dims. Field by field: a structure that is copied and then changed is what a small
 * layer would notice. */
static inline void matrix_view(View *m, int64_t *dims, const View *v, int64_t rows, int64_t cols, int64_t row, int64_t col) {
    dims[0] = rows;
    dims[1] = cols;
    dims[2] = row;
    dims[3] = col;
    m->data = v->data;
    m->numel = rows * cols;
    m->shape = dims;
    m->stride = dims + 2;
    m->ndim = 2;
    m->dtype = v->dtype;
    m->device = v->device;
    m->layout = 0;
}
/* out = a @ b by the gemm slot on 2-d views, not recorded; `precision`: the call's own, or ARG_NONE. 0 or -1. */
int raw_product(const View *a, const View *b, View *out, const Arg *precision, bool rounded, const char *name);
#endif
