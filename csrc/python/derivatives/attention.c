/* Derivatives of attention. With chances P = softmax(Q K^T scale + mask), output P V and its gradient G:
 *
 *     dV = P^T G        dP = G V^T        dS = P (dP - rowsum(P dP))        dQ = dS K scale        dK = dS^T Q scale        dmask = dS
 *
 * A key that several heads share gets the sum over these heads. */
#include "../attention.h"

#include <string.h>

#include "../classes.h"

/* (..., H, S, E) -> the sum over the H / heads neighbours that share a key. */
static Tensor *sum_heads(Back *b, Tensor *x, const TensorMeta *m) {
    const int nd = m->ndim;
    int64_t shape[AMP_MAX_DIMS + 1];
    if (!x || nd < 3 || x->v.shape[nd - 3] == m->shape[nd - 3]) {
        return x;
    }
    memcpy(shape, m->shape, (size_t)(nd - 2) * sizeof *shape);
    shape[nd - 2] = x->v.shape[nd - 3] / m->shape[nd - 3];
    shape[nd - 1] = m->shape[nd - 2];
    shape[nd] = m->shape[nd - 1];
    return sum_dims(b, reshape(b, x, nd + 1, shape), (uint64_t)1 << (nd - 2), false);
}

void d_attention(Back *b) {
    Tensor *q = wide(b, IN(0)), *k = wide(b, IN(1)), *v = wide(b, IN(2)), *g = wide(b, b->g);
    Tensor *mask = ARG(3).kind == ARG_TENSOR ? IN(3) : NULL;
    const double factor = ARG(5).f;
    if (!q || !k || !v || !g) {
        return;
    }
    if (q->v.ndim > 2) {
        const int64_t heads = q->v.shape[q->v.ndim - 3];
        k = attention_repeat_heads(b, k, heads);
        v = attention_repeat_heads(b, v, heads);
    }
    Tensor *p = attention_chances(b, q, k, mask, ARG(4).i != 0, factor);
    GRAD(2, sum_heads(b, op2(b, OP_matmul, transpose_last(b, p), g), &IN_META(2)));
    Tensor *dp = op2(b, OP_matmul, g, transpose_last(b, v));
    Tensor *mean = p && dp ? sum_dims(b, mul(b, p, dp), (uint64_t)1 << (p->v.ndim - 1), true) : NULL;
    Tensor *ds = mul(b, p, sub(b, dp, mean));
    GRAD(0, scale(b, op2(b, OP_matmul, ds, k), factor));
    GRAD(1, sum_heads(b, scale(b, op2(b, OP_matmul, transpose_last(b, ds), q), factor), &IN_META(1)));
    if (mask) {
        GRAD(3, ds);
    }
}

/* Gradients of the first three inputs by one kernel call. */
void f_attention(Back *b) {
    const bool masked = ARG(3).kind == ARG_TENSOR;
    if (!b->g || (masked && NEED(3))) {
        d_attention(b);
        return;
    }
    Tensor *in[4] = {IN(0), IN(1), IN(2), masked ? IN(3) : NULL}, *output = OUT(0), *logarithms = OUT(1);
    if (b->failed) {
        return;
    }
    Tensor *g = cast(b, b->g, in[0]->v.dtype);
    if (!g) {
        return;
    }
    int64_t shape[AMP_MAX_DIMS], strides[AMP_MAX_DIMS];
    View mask;
    const AttentionPlan plan = {ARG(5).f, ARG(4).i != 0};
    const View *kept[2] = {&output->v, &logarithms->v};
    const int device = in[0]->v.device;
    Call call;
    amp_call_init(&call, OP_attention);
    call.extra = (void *)&plan;
    call.list = kept;
    call.nlist = 2;
    call.nin = 5;
    call.nout = 3;
    for (int i = 0; i < 3; i++) {
        call.in[i] = &in[i]->v;
        call.out[i] = NULL;
        if (!NEED(i)) {
            continue;
        }
        Tensor *grad = b->grad[i] = back_own(b, tensor_new(in[i]->v.ndim, in[i]->v.shape, in[i]->v.dtype, device));
        if (!grad) {
            return;
        }
        tensor_keep_layout(grad, in[i]);
        call.out[i] = &grad->v;
    }
    call.in[3] = attention_mask_view(masked ? &in[3]->v : NULL, &in[0]->v, &in[1]->v, &mask, shape, strides);
    call.in[4] = &g->v;
    b->failed |= run_slot(device, AMP_BACKEND_SLOT(device, attention_backward), &call, 2 * attention_cost(&in[0]->v, &in[1]->v),
                          amp_rows[node_op(b)].name) < 0;
}
