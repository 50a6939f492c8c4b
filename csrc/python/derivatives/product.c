/* Derivatives of matrix products. */
#include "../classes.h"
#include "derivatives.h"

/* mm or bmm in the precision that the forward call asked for, if it did. */
static Tensor *multiply(Back *b, OpId op, Tensor *x, Tensor *y, Arg precision) {
    if (!x || !y) {
        return NULL;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(x), arg_tensor(y)};
    arg[amp_rows[op].precision_index] = precision;
    return op_args(b, op, arg);
}

static Arg own_precision(const Back *b) { return ARG(amp_rows[node_op(b)].precision_index); }

/* mm and bmm: C = A B gives dA = G B^T, dB = A^T G. */
void d_mm(Back *b) {
    OpId op = node_op(b);
    GRAD(0, multiply(b, op, b->g, transpose_last(b, IN(1)), own_precision(b)));
    GRAD(1, multiply(b, op, transpose_last(b, IN(0)), b->g, own_precision(b)));
}

void d_mv(Back *b) {
    GRAD(0, b->g ? mul(b, unsqueeze(b, b->g, 1), unsqueeze(b, IN(1), 0)) : NULL);
    GRAD(1, op2(b, OP_mv, transpose_last(b, IN(0)), b->g));
}

/* addmm, baddbmm: beta input + alpha A B */
void d_addmm(Back *b) {
    OpId op = node_op(b) == OP_addmm ? OP_mm : OP_bmm;
    double beta = ARG(3).num.f, alpha = ARG(4).num.f;
    GRAD(0, scale(b, b->g, beta));
    GRAD(1, scale(b, multiply(b, op, b->g, transpose_last(b, IN(2)), own_precision(b)), alpha));
    GRAD(2, scale(b, multiply(b, op, transpose_last(b, IN(1)), b->g, own_precision(b)), alpha));
}

/* (..., K) as a matrix of K columns */
static Tensor *matrix(Back *b, Tensor *x, int64_t columns) {
    if (!x || x->v.ndim == 2) {
        return x;
    }
    int64_t rows = columns > 0 ? x->v.numel / columns : amp_numel(x->v.ndim - 1, x->v.shape), shape[2] = {rows, columns};
    return reshape(b, x, 2, shape);
}

/* linear: input (..., K), weight (N, K) or (K), bias (N) or scalar */
void d_linear(Back *b) {
    const TensorMeta *input = &IN_META(0), *weight = &IN_META(1);
    int64_t k = weight->shape[weight->ndim - 1], n = weight->ndim == 2 ? weight->shape[0] : 1;
    if (!b->g) {
        return;
    }
    Tensor *g = NEED(0) || NEED(1) ? matrix(b, b->g, n) : NULL;
    if (weight->ndim == 1 && g && g->v.shape[g->v.ndim - 1] != 1) {
        int64_t column[2] = {b->g->v.numel, 1}; /* without the output feature, g may look like a matrix */
        g = reshape(b, b->g, 2, column);
    }
    Arg precision = own_precision(b);
    if (weight->ndim == 1 && precision.kind != ARG_STR) { /* matrix times vector */
        precision = (Arg){.kind = ARG_STR, .s = "ieee"};
    }
    GRAD(0, reshape_like(b, multiply(b, OP_mm, g, matrix(b, IN(1), k), precision), input));
    GRAD(1, reshape_like(b, multiply(b, OP_mm, transpose_last(b, g), matrix(b, IN(0), k), precision), weight));
    if (b->node->nin > 2) {
        GRAD(2, b->g);
    }
}

/* ---- linear without recording: three kernel calls on views, no graph, no intermediate views as objects ---- */

/* Rows of t's last dimension as a (rows, columns) matrix, or its transpose; t is dense. */
static void as_rows(View *m, int64_t *dims, const Tensor *t, int64_t columns, bool transposed) {
    int64_t rows = columns ? t->v.numel / columns : 0;
    if (transposed) {
        matrix_view(m, dims, &t->v, columns, rows, 1, columns);
    } else {
        matrix_view(m, dims, &t->v, rows, columns, columns, 1);
    }
}

/* An uninitialised gradient for input i, in the frame. */
static Tensor *fresh(Back *b, int i, int dtype) {
    const TensorMeta *m = &IN_META(i);
    return back_own(b, tensor_new(m->ndim, m->shape, dtype, b->g->v.device));
}

static Tensor *dense(Back *b, Tensor *t) { return t ? back_own(b, raw_contiguous(t)) : NULL; }

void f_linear(Back *b) {
    const TensorMeta *weight = &IN_META(1);
    bool sizes_agree = b->g && weight->ndim == 2 && b->g->v.numel > 0 && weight->shape[1] > 0;
    if (!sizes_agree) {
        d_linear(b);
        return;
    }
    int64_t n = weight->shape[0], k = weight->shape[1], dg[4], dx[4], dw[4];
    Tensor *g = NEED(0) || NEED(1) ? dense(b, b->g) : NULL;
    const Arg *precision = &ARG(amp_rows[node_op(b)].precision_index);
    if (g && NEED(0)) {
        const bool rounded = engine_takes_rounded(b, 0);
        Tensor *w = dense(b, IN(1)), *out = w ? fresh(b, 0, rounded ? AMP_FLOAT32 : b->g->v.dtype) : NULL;
        if (out) {
            View vg, vw, vo;
            as_rows(&vg, dg, g, n, false);
            as_rows(&vw, dw, w, k, false);
            as_rows(&vo, dx, out, k, false);
            b->failed |= raw_product(&vg, &vw, &vo, precision, rounded, "linear") < 0;
            b->grad[0] = out;
            b->rounded |= (uint32_t)rounded;
        }
    }
    if (g && NEED(1)) {
        const bool rounded = engine_takes_rounded(b, 1);
        Tensor *x = dense(b, IN(0)), *out = x ? fresh(b, 1, rounded ? AMP_FLOAT32 : b->g->v.dtype) : NULL;
        if (out) {
            View vg, vx, vo;
            as_rows(&vg, dg, g, n, true);
            as_rows(&vx, dx, x, k, false);
            as_rows(&vo, dw, out, k, false);
            b->failed |= raw_product(&vg, &vx, &vo, precision, rounded, "linear") < 0;
            b->grad[1] = out;
            b->rounded |= (uint32_t)rounded << 1;
        }
    }
    if (b->node->nin > 2) {
        GRAD(2, b->g);
    }
}
