/* Derivatives of the normalisation cores. With xhat = (x - mean) rstd and means over a row:
 *
 *     dx = rstd (g w - mean(g w) - xhat mean(g w xhat))        dw = sum g xhat        db = sum g
 *
 * where the second term is missing without centring, and both are with fixed statistics. */
#include "derivatives.h"

#include "../classes.h"
#include "../norm.h"

/* The input as (samples, groups, channels, length) or, by channels, (samples, channels, length); rows lie along `over`. */
typedef struct NormFrame {
    NormPlan plan;
    int ndim, weight, bias; /* edges of weight and bias, -1: absent */
    int64_t shape[4], parameter[4];
    uint64_t over, others; /* others: what a weight does not span */
    double count;
    Tensor *xhat, *rstd, *w;
} NormFrame;

static NormFrame frame_of(Back *b, bool by_channels) {
    NormFrame f = {.weight = ARG(1).kind == ARG_TENSOR ? 1 : -1};
    f.bias = ARG(2).kind == ARG_TENSOR ? 1 + (f.weight == 1) : -1;
    norm_plan(&ARG(0), by_channels, IN_META(0).ndim, IN_META(0).shape, &f.plan);
    NormPlan *p = &f.plan;
    f.shape[f.ndim++] = p->samples;
    if (!by_channels) {
        f.shape[f.ndim++] = p->groups;
    }
    f.shape[f.ndim++] = p->channels;
    f.shape[f.ndim++] = p->length;
    f.over = by_channels ? 5 : 12;
    f.others = by_channels ? 5 : 9;
    f.count = (double)(by_channels ? p->samples * p->length : p->channels * p->length);
    for (int d = 0; d < f.ndim; d++) {
        f.parameter[d] = f.others >> d & 1 ? 1 : f.shape[d];
    }
    return f;
}

static Tensor *row_mean(Back *b, const NormFrame *f, Tensor *x) {
    return scale(b, sum_dims(b, x, f->over, true), 1.0 / f->count);
}

/* Row k of the saved statistics, shaped to meet the input. */
static Tensor *saved_statistic(Back *b, const NormFrame *f, int64_t k, int dtype) {
    Tensor *stats = op1(b, OP_detach, OUT(1));
    return reshape(b, cast(b, narrow(b, stats, 0, k, 1), dtype), f->ndim, f->parameter);
}

static void form_xhat(Back *b, NormFrame *f) {
    Tensor *x = reshape(b, wide(b, IN(0)), f->ndim, f->shape), *off = x;
    if (!x) {
        return;
    }
    if (f->plan.by_channels && !f->plan.training) {
        f->rstd = saved_statistic(b, f, 1, x->v.dtype);
        f->xhat = mul(b, sub(b, x, saved_statistic(b, f, 0, x->v.dtype)), f->rstd);
        return;
    }
    if (f->plan.centered) {
        off = sub(b, x, row_mean(b, f, x));
    }
    f->rstd = op1(b, OP_rsqrt, plus(b, row_mean(b, f, square(b, off)), f->plan.eps));
    f->xhat = mul(b, off, f->rstd);
}

static Tensor *input_grad(Back *b, const NormFrame *f, Tensor *g) {
    Tensor *gw = f->w ? mul(b, g, f->w) : g;
    if (f->plan.by_channels && !f->plan.training) {
        return mul(b, gw, f->rstd);
    }
    Tensor *inner = sub(b, gw, mul(b, f->xhat, row_mean(b, f, mul(b, gw, f->xhat))));
    if (f->plan.centered) {
        inner = sub(b, inner, row_mean(b, f, gw));
    }
    return mul(b, inner, f->rstd);
}

/* What comes back through mean and rstd as outputs: dmean/dx = 1 / n, drstd/dx = -rstd^2 xhat / n. */
static Tensor *statistics_grad(Back *b, const NormFrame *f, Tensor *g) {
    int64_t shape[4] = {f->plan.samples, f->plan.groups, 1, 1};
    if (!g || !f->xhat) {
        return NULL;
    }
    g = scale(b, cast(b, g, f->xhat->v.dtype), 1.0 / f->count);
    Tensor *gm = reshape(b, narrow(b, g, 0, 0, 1), 4, shape), *gr = reshape(b, narrow(b, g, 0, 1, 1), 4, shape);
    Tensor *by_rstd = mul(b, neg(b, mul(b, gr, square(b, f->rstd))), f->xhat);
    return f->plan.centered ? add(b, by_rstd, gm) : by_rstd;
}

static void derive(Back *b, bool by_channels) {
    NormFrame f = frame_of(b, by_channels);
    Tensor *g = b->g ? reshape(b, wide(b, b->g), f.ndim, f.shape) : NULL, *g_stats = by_channels ? NULL : b->g_out[1];
    if (f.weight > 0) {
        f.w = reshape(b, wide(b, IN(1)), f.ndim, f.parameter);
    }
    form_xhat(b, &f);
    if (NEED(0)) {
        Tensor *through = g ? input_grad(b, &f, g) : NULL, *other = statistics_grad(b, &f, g_stats);
        Tensor *dx = through && other ? add(b, through, other) : through ? through : other;
        b->grad[0] = dx ? reshape_like(b, dx, &IN_META(0)) : NULL;
    }
    if (f.weight > 0 && NEED(f.weight) && g) {
        b->grad[f.weight] = reshape_like(b, sum_dims(b, mul(b, g, f.xhat), f.others, true), &IN_META(f.weight));
    }
    if (f.bias > 0 && NEED(f.bias) && g) {
        b->grad[f.bias] = reshape_like(b, sum_dims(b, g, f.others, true), &IN_META(f.bias));
    }
}

void d_norm_groups(Back *b) { derive(b, false); }

void d_norm_channels(Back *b) { derive(b, true); }

/* An uninitialised gradient for input i, in the frame; NULL if there is none to form. */
static Tensor *fresh(Back *b, int i, int dtype) {
    const TensorMeta *m = &IN_META(i);
    return back_own(b, tensor_new(m->ndim, m->shape, dtype, b->g->v.device));
}

static Tensor *dense(Back *b, Tensor *t) { return t ? back_own(b, raw_contiguous(t)) : NULL; }

/* One kernel call for all three. */
static void derive_fast(Back *b, bool by_channels) {
    if (!b->g || (!by_channels && b->g_out[1])) {
        derive(b, by_channels);
        return;
    }
    NormFrame f = frame_of(b, by_channels);
    int64_t dims[3][2];
    View flat[3];
    Call call;
    Tensor *x = dense(b, IN(0)), *g = dense(b, b->g), *stats = OUT(1), *w = f.weight > 0 ? dense(b, IN(1)) : NULL;
    if (!x || !g || !stats || b->failed) {
        return;
    }
    amp_call_init(&call, OP_norm_groups);
    call.extra = &f.plan;
    call.nin = 4;
    call.nout = 3;
    call.in[0] = &g->v;
    call.in[1] = &x->v;
    call.in[2] = &stats->v;
    if (w) {
        flat[0] = norm_flat(&w->v, dims[0]);
        call.in[3] = &flat[0];
    }
    const int edge[3] = {0, f.weight, f.bias};
    for (int i = 0; i < 3; i++) {
        call.out[i] = NULL;
        if (edge[i] < 0 || !NEED(edge[i])) {
            continue;
        }
        Tensor *out = b->grad[edge[i]] = fresh(b, edge[i], IN_META(edge[i]).dtype);
        if (!out) {
            return;
        }
        if (i > 0) {
            flat[i] = norm_flat(&out->v, dims[i]);
        }
        call.out[i] = i > 0 ? &flat[i] : &out->v;
    }
    int device = g->v.device;
    b->failed |= run_slot(device, AMP_BACKEND_SLOT(device, normalize_grad), &call, g->v.numel * 16, amp_rows[node_op(b)].name) <
                 0;
}

void f_norm_groups(Back *b) { derive_fast(b, false); }

void f_norm_channels(Back *b) { derive_fast(b, true); }
