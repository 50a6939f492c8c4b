/* What derivatives are written with.
 *
 * A derivative turns the gradients of a node's outputs into gradients of its inputs, out of ops only: with grad mode off nothing is
 * recorded, with it on (create_graph) the ops record themselves, and so second derivatives need no code of their own.
 *
 *     void d_mul(Back *b) {
 *         GRAD(0, mul(b, b->g, IN(1)));
 *         GRAD(1, mul(b, b->g, IN(0)));
 *     }
 *
 * Every function below gives its result to the frame and returns it borrowed. A NULL tensor gives NULL without an exception: an undefined
 * gradient runs through a whole formula that way, and so does a failure, which is noted in b->failed. Broadcast gradients and gradients
 * of another dtype than the input's are put right by the engine. */
#ifndef AMP_DERIVATIVES_H
#define AMP_DERIVATIVES_H
#include "../node.h"

/* void d_mul(Back *), void f_none(Back *), ... */
#define OP(id, name, variants, signature, cls, dtype, cuda, cpu, saves, derivative, fast) \
    void derivative(Back *b); \
    void fast(Back *b);
#include "../../core/ops.def"
#undef OP

/* One op. op1k: the second operand is a number. */
Tensor *op1(Back *b, OpId op, Tensor *x);
Tensor *op2(Back *b, OpId op, Tensor *x, Tensor *y);
Tensor *op1k(Back *b, OpId op, Tensor *x, double number);
/* An op whose arguments behind the tensors are all integers. */
Tensor *op_int(Back *b, OpId op, Tensor *x, int64_t i);
Tensor *op_int2(Back *b, OpId op, Tensor *x, int64_t i, int64_t k);

static inline Tensor *add(Back *b, Tensor *x, Tensor *y) { return op2(b, OP_add, x, y); }
static inline Tensor *sub(Back *b, Tensor *x, Tensor *y) { return op2(b, OP_sub, x, y); }
static inline Tensor *mul(Back *b, Tensor *x, Tensor *y) { return op2(b, OP_mul, x, y); }
static inline Tensor *divide(Back *b, Tensor *x, Tensor *y) { return op2(b, OP_div, x, y); }
static inline Tensor *neg(Back *b, Tensor *x) { return op1(b, OP_neg, x); }
static inline Tensor *square(Back *b, Tensor *x) { return op2(b, OP_mul, x, x); }
static inline Tensor *plus(Back *b, Tensor *x, double number) { return op1k(b, OP_add, x, number); }
static inline Tensor *one_minus(Back *b, Tensor *x) { return op1k(b, OP_rsub, x, 1.0); }
static inline Tensor *not_(Back *b, Tensor *mask) { return op1(b, OP_logical_not, mask); }
Tensor *scale(Back *b, Tensor *x, double factor); /* x itself for 1, neg for -1 */

/* x with `value` where mask is true: unlike a product with the mask, it stops NaN and inf. */
Tensor *fill_where(Back *b, Tensor *x, Tensor *mask, double value);
static inline Tensor *zero_where(Back *b, Tensor *x, Tensor *mask) { return fill_where(b, x, mask, 0.0); }

Tensor *cast(Back *b, Tensor *x, int dtype);
Tensor *on_device(Back *b, Tensor *x, int device);
/* 16-bit tensors as fp32, others as they are: for formulas of several steps that shall round once. */
Tensor *wide(Back *b, Tensor *x);

Tensor *reshape(Back *b, Tensor *x, int ndim, const int64_t *shape);
Tensor *expand(Back *b, Tensor *x, int ndim, const int64_t *shape);
Tensor *reshape_like(Back *b, Tensor *x, const TensorMeta *m);
Tensor *expand_like(Back *b, Tensor *x, const TensorMeta *m);
Tensor *transpose(Back *b, Tensor *x, int dim0, int dim1);
Tensor *transpose_last(Back *b, Tensor *x); /* x^T of a matrix or a batch of them */
Tensor *unsqueeze(Back *b, Tensor *x, int dim);
Tensor *narrow(Back *b, Tensor *x, int dim, int64_t start, int64_t length);
Tensor *flip(Back *b, Tensor *x, int dim);
Tensor *cat(Back *b, int n, Tensor **x, int dim);
Tensor *sum_dims(Back *b, Tensor *x, uint64_t dims, bool keepdim); /* dims: bit mask; no bit: x itself */

/* New constants, of x's dtype and device. */
Tensor *constant(Back *b, const Tensor *x, int ndim, const int64_t *shape, double value);
static inline Tensor *zeros_like(Back *b, const Tensor *x) { return x ? constant(b, x, x->v.ndim, x->v.shape, 0.0) : NULL; }
static inline Tensor *zeros_meta(Back *b, const Tensor *x, const TensorMeta *m) { return constant(b, x, m->ndim, m->shape, 0.0); }

/* An op on parsed arguments, for those with no shorthand. */
Tensor *op_args(Back *b, OpId op, Arg *arg);
/* scatter_add, gather along dim */
Tensor *scatter_add(Back *b, Tensor *x, int dim, Tensor *index, Tensor *src);
Tensor *gather(Back *b, Tensor *x, int dim, Tensor *index);

static inline OpId node_op(const Back *b) { return (OpId)b->node->op; }
/* A dimension argument as 0 .. ndim-1; 0 for 0-dim tensors. */
static inline int dim_of(int64_t dim, int ndim) { return ndim == 0 ? 0 : (int)(dim < 0 ? dim + ndim : dim); }

#endif
