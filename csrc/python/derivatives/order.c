/* Derivatives of sorting, of running extremes, and of writes at indices. */
#include "derivatives.h"

#include <math.h>
#include <string.h>

#include "../classes.h"

/* ---- values that stand somewhere in the input ---- */

/* Which parameter is `dim`. */
static int dim_argument(OpId op) { return op == OP_topk || op == OP_kthvalue ? 2 : 1; }

/* Each value is the input's element at its position, which lies in OUT(1). */
void d_by_position(Back *b) {
    const TensorMeta *m = &IN_META(0);
    if (!NEED(0) || !b->g) {
        return;
    }
    int dim = dim_of(ARG(dim_argument(node_op(b))).i, m->ndim);
    Tensor *g = b->g, *at = OUT(1);
    if (m->ndim == 0) {
        b->grad[0] = g->v.ndim == 0 ? g : zeros_meta(b, g, m);
        return;
    }
    if (g->v.ndim < m->ndim) {
        g = unsqueeze(b, g, dim);
        at = unsqueeze(b, at, dim);
    }
    b->grad[0] = scatter_add(b, zeros_meta(b, b->g, m), dim, at, g);
}

/* Equal elements share the gradient; where the result is NaN, the NaNs do. */
void d_median(Back *b) {
    const TensorMeta *m = &IN_META(0);
    if (!NEED(0) || !b->g) {
        return;
    }
    Tensor *x = IN(0), *y = OUT(0);
    Tensor *both = op2(b, OP_logical_and, op1(b, OP_isnan, x), op1(b, OP_isnan, y));
    Tensor *same = op2(b, OP_logical_or, op2(b, OP_eq, x, y), both);
    Tensor *count = same ? sum_dims(b, same, m->ndim ? UINT64_MAX : 0, false) : NULL;
    b->grad[0] = zero_where(b, expand_like(b, divide(b, b->g, count), m), not_(b, same));
}

/* log y_i = log sum_{j<=i} exp x_j:  dx_j = exp(x_j) sum_{i>=j} g_i exp(-y_i), the sum formed in logarithms, for positive and for
 * negative g apart. */
static Tensor *log_sum_onwards(Back *b, Tensor *g, Tensor *x, Tensor *y, int dim) {
    Tensor *absent = op1k(b, OP_le, g, 0.0);
    Tensor *size = fill_where(b, op1(b, OP_log, fill_where(b, g, absent, 1.0)), absent, -(double)INFINITY);
    Tensor *sums = flip(b, op_int(b, OP_logcumsumexp, flip(b, sub(b, size, y), dim), dim), dim);
    return op1(b, OP_exp, add(b, sums, x));
}

void d_logcumsumexp(Back *b) {
    int ndim = IN_META(0).ndim;
    if (!NEED(0) || !b->g) {
        return;
    }
    if (ndim == 0) {
        b->grad[0] = b->g;
        return;
    }
    int dim = dim_of(ARG(1).i, ndim);
    Tensor *g = wide(b, b->g), *x = wide(b, IN(0)), *y = wide(b, OUT(0));
    y = fill_where(b, y, op1k(b, OP_eq, y, -(double)INFINITY), 0.0); /* a sum of nothing: x is -inf there, and stays it */
    b->grad[0] = sub(b, log_sum_onwards(b, g, x, y, dim), log_sum_onwards(b, neg(b, g), x, y, dim));
}

/* ---- scatters; inputs: tensor, index, source ---- */

static Tensor *filled_at(Back *b, Tensor *x, Tensor *index, double value) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), ARG(1), arg_tensor(index), {.kind = ARG_NUMBER, .num = number_float(value)}};
    return op_args(b, OP_scatter_value, arg);
}

/* gather for a tensor that may have no dimensions */
static Tensor *gathered(Back *b, Tensor *x, Tensor *index) { return gather(b, x, dim_of(ARG(1).i, IN_META(0).ndim), index); }

static Tensor *long_index(Back *b) { return cast(b, IN(1), AMP_INT64); }

void d_scatter(Back *b) {
    Tensor *index = long_index(b);
    GRAD(0, filled_at(b, b->g, index, 0.0));
    if (node_op(b) == OP_scatter) {
        GRAD(2, gathered(b, b->g, index));
    }
}

/* The extremes of a place share its gradient. */
static void share_extremes(Back *b, Tensor *index) {
    int dim = dim_of(ARG(1).i, IN_META(0).ndim), dtype = b->g->v.dtype;
    Tensor *top = cast(b, op2(b, OP_eq, IN(0), OUT(0)), dtype);
    Tensor *mine = cast(b, op2(b, OP_eq, IN(2), gathered(b, OUT(0), index)), dtype);
    Tensor *count = scatter_add(b, top, dim, index, mine), *share = divide(b, b->g, count);
    GRAD(0, mul(b, b->g, divide(b, top, fill_where(b, count, op1k(b, OP_eq, count, 0.0), 1.0))));
    GRAD(2, mul(b, gathered(b, share, index), mine));
}

static Tensor *scatter_into(Back *b, Tensor *x, Tensor *index, Tensor *src) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), ARG(1), arg_tensor(index), arg_tensor(src), ARG(4)};
    return op_args(b, OP_scatter_into, arg);
}

/* The product of all others, zeros among them included: a zero is replaced by 1 where it is the only one of its place. */
static void product_slopes(Back *b, Tensor *index) {
    int dim = dim_of(ARG(1).i, IN_META(0).ndim);
    Tensor *x = IN(0), *src = IN(2), *g = b->g;
    if (NEED(0)) {
        Tensor *ones = fill_where(b, x, op1k(b, OP_eq, x, 0.0), 1.0);
        b->grad[0] = divide(b, mul(b, g, scatter_into(b, ones, index, src)), ones);
    }
    if (NEED(2)) {
        Tensor *zero = op1k(b, OP_eq, src, 0.0),
               *count = scatter_add(b, zeros_like(b, x), dim, index, cast(b, zero, x ? x->v.dtype : 0));
        Tensor *single = op2(b, OP_logical_and, zero, op1k(b, OP_eq, gathered(b, count, index), 1.0));
        Tensor *others = scatter_into(b, x, index, fill_where(b, src, single, 1.0));
        Tensor *usual = divide(b, gathered(b, mul(b, g, OUT(0)), index), fill_where(b, src, zero, 1.0));
        Arg arg[MAX_ARGS] = {arg_tensor(single), arg_tensor(gathered(b, mul(b, g, others), index)), arg_tensor(usual)};
        b->grad[2] = op_args(b, OP_where, arg);
    }
}

void d_scatter_into(Back *b) {
    Tensor *index = long_index(b);
    if (!b->g || !index) {
        return;
    }
    if (strcmp(ARG(4).s, "prod")) {
        share_extremes(b, index);
    } else {
        product_slopes(b, index);
    }
}

/* ---- writes of rows; inputs: tensor, index, source ---- */

static Tensor *rows(Back *b, Tensor *x, Tensor *index) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), ARG(1), arg_tensor(index)};
    return op_args(b, OP_index_select, arg);
}

/* The rows of g at the index, in the source's shape. */
static Tensor *source_rows(Back *b, Tensor *index) {
    const TensorMeta *m = &IN_META(0);
    if (!b->g) {
        return NULL;
    }
    Tensor *part = m->ndim ? rows(b, b->g, index) : b->g;
    return reshape_like(b, part, &IN_META(2));
}

static Tensor *rows_filled(Back *b, Tensor *x, Tensor *index) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), ARG(1), arg_tensor(index), arg_tensor(x ? constant(b, x, 0, NULL, 0.0) : NULL)};
    return op_args(b, OP_index_fill, arg);
}

void d_index_add(Back *b) {
    GRAD(0, b->g);
    GRAD(2, scale(b, source_rows(b, long_index(b)), ARG(4).num.f));
}

void d_index_copy(Back *b) {
    Tensor *index = long_index(b);
    GRAD(0, rows_filled(b, b->g, index));
    GRAD(2, source_rows(b, index));
}

/* The value stands at all places that the index names, however often it names them. */
void d_index_fill(Back *b) {
    Tensor *index = long_index(b);
    GRAD(0, rows_filled(b, b->g, index));
    if (NEED(2) && b->g) {
        Tensor *kept = rows_filled(b, b->g, index), *taken = sub(b, b->g, kept);
        b->grad[2] = sum_dims(b, taken, UINT64_MAX, false);
    }
}

/* ---- diagonals and windows ---- */

static Tensor *diagonal_scatter(Back *b, Tensor *x, Tensor *src, int first) {
    Arg arg[MAX_ARGS] = {arg_tensor(x), arg_tensor(src), ARG(first), ARG(first + 1), ARG(first + 2)};
    return op_args(b, OP_diagonal_scatter, arg);
}

void d_diagonal(Back *b) { GRAD(0, b->g ? diagonal_scatter(b, zeros_meta(b, b->g, &IN_META(0)), b->g, 1) : NULL); }

void d_diagonal_scatter(Back *b) {
    if (!b->g) {
        return;
    }
    GRAD(0, diagonal_scatter(b, b->g, zeros_meta(b, b->g, &IN_META(1)), 2));
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), ARG(2), ARG(3), ARG(4)};
    GRAD(1, op_args(b, OP_diagonal, arg));
}

void d_unfold(Back *b) {
    const TensorMeta *m = &IN_META(0);
    Arg arg[MAX_ARGS] = {arg_tensor(wide(b, b->g)), arg_ints(m->shape, m->ndim), ARG(1), ARG(2), ARG(3)};
    GRAD(0, op_args(b, OP_unfold_grad, arg));
}

void d_unfold_grad(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), ARG(2), ARG(3), ARG(4)};
    GRAD(0, op_args(b, OP_unfold, arg));
}
