/* Derivatives of convolutions. Output y, input x and weight w meet in one trilinear form, so each of the three rows is the derivative of
 * the other two, and second derivatives stay among them. */
#include "../classes.h"
#include "derivatives.h"

/* Stride, padding, dilation and groups of the recorded call. */
typedef struct Kernel {
    Arg stride, padding, dilation, groups;
} Kernel;

/* A gradient missing between two operands, of spatial size `like`. */
static Tensor *gradient(Back *b, OpId op, Tensor *grad, Tensor *other, const Kernel *k, const TensorMeta *like) {
    if (!grad || !other) {
        return NULL;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(grad), arg_tensor(other), arg_ints(like->shape + 2, like->ndim - 2), k->stride, k->padding,
                         k->dilation,      k->groups};
    return op_args(b, op, arg);
}

/* y from x and w. An output padding of a stride or more, which a dilation allows, gave x elements that no y reaches: they give y more
 * elements than there are, which fall away. Zeros where one of both has no pixels, which convolutions refuse. */
static Tensor *output(Back *b, Tensor *x, Tensor *w, const Kernel *k, const TensorMeta *like) {
    int64_t none[1] = {0};
    if (!x || !w) {
        return NULL;
    }
    for (int d = 2; d < like->ndim; d++) {
        if (!x->v.shape[d] || !like->shape[d]) {
            return zeros_meta(b, x, like);
        }
    }
    Arg arg[MAX_ARGS] = {arg_tensor(x), arg_tensor(w),   {.kind = ARG_NONE}, k->stride, k->padding,
                         k->dilation,   arg_bool(false), arg_ints(none, 1),  k->groups};
    Tensor *y = op_args(b, OP_convolution, arg);
    for (int d = 2; y && d < like->ndim; d++) {
        if (y->v.shape[d] > like->shape[d]) {
            y = narrow(b, y, d, 0, like->shape[d]);
        }
    }
    return y;
}

void d_convolution(Back *b) {
    const Kernel k = {ARG(3), ARG(4), ARG(5), ARG(8)};
    const TensorMeta *input = &IN_META(0), *weight = &IN_META(1);
    if (ARG(6).i) { /* transposed: its input stands where y does */
        GRAD(0, output(b, b->g, IN(1), &k, input));
        GRAD(1, gradient(b, OP_conv_weight, IN(0), b->g, &k, weight));
    } else {
        GRAD(0, gradient(b, OP_conv_input, b->g, IN(1), &k, input));
        GRAD(1, gradient(b, OP_conv_weight, b->g, IN(0), &k, weight));
    }
    if (b->node->nin > 2) {
        GRAD(2, sum_dims(b, b->g, ~(uint64_t)2, false));
    }
}

/* x from y and w */
void d_conv_input(Back *b) {
    const Kernel k = {ARG(3), ARG(4), ARG(5), ARG(6)};
    GRAD(0, output(b, b->g, IN(1), &k, &IN_META(0)));
    GRAD(1, gradient(b, OP_conv_weight, IN(0), b->g, &k, &IN_META(1)));
}

/* w from y and x */
void d_conv_weight(Back *b) {
    const Kernel k = {ARG(3), ARG(4), ARG(5), ARG(6)};
    GRAD(0, output(b, IN(1), b->g, &k, &IN_META(0)));
    GRAD(1, gradient(b, OP_conv_input, IN(0), b->g, &k, &IN_META(1)));
}

/* im2col and col2im: copies and sums of the same pairs of elements */
void d_im2col(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_ints(IN_META(0).shape + 2, 2), ARG(1), ARG(2), ARG(3), ARG(4)};
    GRAD(0, b->g ? op_args(b, OP_col2im, arg) : NULL);
}

void d_col2im(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), ARG(2), ARG(3), ARG(4), ARG(5)};
    GRAD(0, b->g ? op_args(b, OP_im2col, arg) : NULL);
}
