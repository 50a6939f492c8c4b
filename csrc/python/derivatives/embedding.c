/* Derivatives of table look-ups: each is the other's. */
#include "derivatives.h"

#include "../classes.h"

void d_embedding(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_tensor(IN(1)), arg_int(IN_META(0).shape[0]), ARG(2), arg_bool(ARG(3).i != 0)};
    GRAD(0, op_args(b, OP_embedding_grad, arg));
}

/* How often each position's index occurs, with a dimension for the width. */
static Tensor *frequency(Back *b, Tensor *index, const Tensor *like, int64_t rows) {
    int64_t n = index->v.numel;
    Tensor *flat = reshape(b, cast(b, index, AMP_INT64), 1, &n), *one = constant(b, like, 1, &n, 1.0);
    Tensor *count = scatter_add(b, constant(b, like, 1, &rows, 0.0), 0, flat, one);
    Tensor *each = gather(b, count, 0, flat);
    return each ? unsqueeze(b, reshape(b, each, index->v.ndim, index->v.shape), -1) : NULL;
}

void d_embedding_grad(Back *b) {
    Tensor *index = IN(1);
    if (!NEED(0) || !b->g || !index) {
        return;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_tensor(index), arg_int(-1), arg_bool(false), arg_bool(false)};
    Tensor *dg = op_args(b, OP_embedding, arg);
    if (ARG(4).i) {
        dg = divide(b, wide(b, dg), frequency(b, index, wide(b, b->g), ARG(2).i));
    }
    if (ARG(3).i >= 0) {
        dg = zero_where(b, dg, unsqueeze(b, op1k(b, OP_eq, index, (double)ARG(3).i), -1));
    }
    b->grad[0] = dg;
}
