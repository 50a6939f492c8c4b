/* The gradient of cross entropy by rows. With p = softmax(x), class t, weight w and the share s spread over C classes, per row
 *
 *     d/dx[c] = g (a p[c] - b [c = t] - d w[c]),   b = (1 - s) w[t],  d = s / C,  a = b + d sum of w
 *
 * where g is the row's gradient, divided by the sum of the weights w[t] for a mean; rows of the ignored class have none. */
#include "derivatives.h"

#include "../classes.h"
#include "../loss.h"

static double *doubles(const Tensor *t) { return (double *)(void *)t->v.data; }

static Tensor *dense(Back *b, Tensor *t, int dtype) {
    Tensor *converted = t ? back_own(b, raw_cast(t, dtype)) : NULL;
    return converted ? back_own(b, raw_contiguous(converted)) : NULL;
}

static Tensor *weight_of(Back *b) { return ARG(ENTROPY_WEIGHT).kind == ARG_TENSOR ? dense(b, IN(2), AMP_FLOAT64) : NULL; }

/* What each row's gradient is divided by. */
static double divisor(Back *b, const Tensor *stats) {
    return ARG(ENTROPY_REDUCTION).i == REDUCE_MEAN ? doubles(stats)[stats->v.numel - 1] : 1.0;
}

/* The factors of one row each, 0 where it is ignored, and its class number, 0 there too; shaped like the input with one class. */
typedef struct Factors {
    Tensor *a, *b, *d, *t;
    int dim;
} Factors;

static int factors_of(Back *b, const Tensor *weight, const Tensor *stats, Factors *f) {
    const TensorMeta *m = &IN_META(0);
    Tensor *target = IN(1);
    int64_t shape[AMP_MAX_DIMS], ignore = ARG(ENTROPY_IGNORE).i;
    f->dim = m->ndim == 1 ? 0 : 1;
    for (int d = 0; d < m->ndim; d++) {
        shape[d] = d == f->dim ? 1 : m->shape[d];
    }
    double s = ARG(ENTROPY_SMOOTHING).f, nclass = (double)m->shape[f->dim], all = weight ? 0.0 : nclass;
    for (int64_t i = 0; weight && i < m->shape[f->dim]; i++) {
        all += doubles(weight)[i];
    }
    f->a = back_own(b, tensor_new(m->ndim, shape, AMP_FLOAT64, m->device));
    f->b = back_own(b, tensor_new(m->ndim, shape, AMP_FLOAT64, m->device));
    f->d = back_own(b, tensor_new(m->ndim, shape, AMP_FLOAT64, m->device));
    f->t = back_own(b, tensor_new(m->ndim, shape, AMP_INT64, m->device));
    if (b->failed || !target) {
        return -1;
    }
    const int64_t *given = (const int64_t *)(const void *)target->v.data;
    int64_t *number = (int64_t *)(void *)f->t->v.data;
    double by = divisor(b, stats);
    for (int64_t row = 0; row < target->v.numel; row++) {
        bool kept = given[row] != ignore;
        number[row] = kept ? given[row] : 0;
        double w = weight ? doubles(weight)[number[row]] : 1.0, bt = (1.0 - s) * w / by, d = s / nclass / by;
        doubles(f->b)[row] = kept ? bt : 0.0;
        doubles(f->d)[row] = kept ? d : 0.0;
        doubles(f->a)[row] = !kept ? 0.0 : s > 0.0 ? bt + d * all : bt;
    }
    return 0;
}

void d_cross_entropy(Back *b) {
    if (!b->g || !NEED(0)) {
        return;
    }
    Tensor *x = wide(b, IN(0)), *stats = OUT(1), *weight = weight_of(b), *g = wide(b, b->g);
    Factors f;
    if (!x || !stats || b->failed || factors_of(b, weight, stats, &f) < 0) {
        return;
    }
    int dtype = x->v.dtype;
    if (ARG(ENTROPY_REDUCTION).i == REDUCE_NONE) {
        g = reshape(b, g, f.a->v.ndim, f.a->v.shape);
    }
    Tensor *slope = mul(b, mul(b, g, cast(b, f.a, dtype)), op_int(b, OP_softmax, x, f.dim));
    slope = scatter_add(b, slope, f.dim, f.t, neg(b, mul(b, g, cast(b, f.b, dtype))));
    if (ARG(ENTROPY_SMOOTHING).f > 0.0) {
        Tensor *even = mul(b, g, cast(b, f.d, dtype));
        if (weight) {
            int64_t shape[AMP_MAX_DIMS];
            for (int d = 0; d < x->v.ndim; d++) {
                shape[d] = d == f.dim ? x->v.shape[d] : 1;
            }
            even = mul(b, even, reshape(b, cast(b, weight, dtype), x->v.ndim, shape));
        }
        slope = sub(b, slope, even);
    }
    b->grad[0] = slope;
}

/* One kernel call. */
void f_cross_entropy(Back *b) {
    if (!b->g || !NEED(0)) {
        return;
    }
    Tensor *x = IN(0), *target = IN(1), *stats = OUT(1), *weight = weight_of(b), *g = dense(b, b->g, AMP_FLOAT64);
    if (!x || !target || !stats || !g || b->failed) {
        return;
    }
    int device = x->v.device;
    double by = divisor(b, stats);
    Tensor *out = back_own(b, tensor_new(x->v.ndim, x->v.shape, x->v.dtype, device));
    Tensor *row_grad = back_own(b, tensor_new(g->v.ndim, g->v.shape, AMP_FLOAT64, device));
    if (!out || !row_grad) {
        return;
    }
    tensor_keep_layout(out, x);
    for (int64_t i = 0; i < g->v.numel; i++) {
        doubles(row_grad)[i] = doubles(g)[i] / by;
    }
    Call call;
    amp_call_init(&call, node_op(b));
    call.nin = 5;
    call.in[0] = &x->v;
    call.in[1] = &target->v;
    call.in[2] = weight ? &weight->v : NULL;
    call.in[3] = &stats->v;
    call.in[4] = &row_grad->v;
    call.nout = 1;
    call.out[0] = &out->v;
    call.nnum = 2;
    call.num[0] = number_int(ARG(ENTROPY_IGNORE).i);
    call.num[1] = number_float(ARG(ENTROPY_SMOOTHING).f);
    call.dims = (uint64_t)(x->v.ndim == 1 ? 1 : 2);
    b->failed |= run_slot(device, AMP_BACKEND_SLOT(device, cross_entropy_grad), &call, x->v.numel * 8,
                          amp_rows[node_op(b)].name) < 0;
    b->grad[0] = out;
}
