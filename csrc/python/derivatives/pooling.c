/* Derivatives of pooling, padding and interpolation. All of them are linear, or linear once the positions of the largest values are
 * known, so a derivative is the transposed map, and the derivative of that is the map again. */
#include "derivatives.h"

#include <string.h>

/* The spatial sizes of input 0, nd of them, as an argument. */
static Arg spatial_sizes(Back *b, int nd) { return arg_ints(IN_META(0).shape + IN_META(0).ndim - nd, nd); }

/* x (..., spatial) at positions inside its planes, which stand in `at` (..., other spatial): both without batch, or both with. */
static Tensor *take_at(Back *b, Tensor *x, Tensor *at, int nd) {
    if (!x || !at) {
        return NULL;
    }
    int64_t flat[AMP_MAX_DIMS];
    int lead = x->v.ndim - nd;
    memcpy(flat, x->v.shape, (size_t)lead * sizeof *flat);
    flat[lead] = amp_numel(nd, x->v.shape + lead);
    Tensor *line = reshape(b, x, lead + 1, flat);
    flat[lead] = amp_numel(nd, at->v.shape + lead);
    Tensor *taken = gather(b, line, lead, reshape(b, at, lead + 1, flat));
    return reshape(b, taken, at->v.ndim, at->v.shape);
}

static int spatial_of_row(const Back *b) {
    const char *at = strpbrk(amp_rows[node_op(b)].name, "123");
    return at ? *at - '0' : 1;
}

void d_max_pool(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_tensor(NEED(0) ? OUT(1) : NULL), spatial_sizes(b, spatial_of_row(b))};
    GRAD(0, b->g ? op_args(b, OP_max_pool_grad, arg) : NULL);
}

/* Values that were put or added at the positions in input 1. */
void d_at(Back *b) { GRAD(0, take_at(b, b->g, IN(1), node_op(b) == OP_max_pool_grad ? ARG(2).n : spatial_of_row(b))); }

/* ---- averages ---- */

void d_avg_pool(Back *b) {
    bool divisor = amp_rows[node_op(b)].nparams > 6;
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), spatial_sizes(b, spatial_of_row(b)), ARG(1), ARG(2), ARG(3), ARG(4), ARG(5)};
    if (divisor) {
        arg[7] = ARG(6);
    }
    GRAD(0, op_args(b, OP_avg_pool_grad, arg));
}

void d_avg_pool_grad(Back *b) {
    static const OpId forward[] = {OP_avg_pool1d, OP_avg_pool2d, OP_avg_pool3d};
    int nd = ARG(1).n;
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), ARG(2), ARG(3), ARG(4), ARG(5), ARG(6)};
    if (nd > 1) {
        arg[6] = ARG(7);
    }
    GRAD(0, op_args(b, forward[nd - 1], arg));
}

void d_adaptive_avg_pool(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), spatial_sizes(b, spatial_of_row(b))};
    GRAD(0, op_args(b, OP_adaptive_avg_pool_grad, arg));
}

void d_adaptive_avg_pool_grad(Back *b) {
    static const OpId forward[] = {OP_adaptive_avg_pool1d, OP_adaptive_avg_pool2d, OP_adaptive_avg_pool3d};
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), spatial_sizes(b, ARG(1).n)};
    GRAD(0, op_args(b, forward[ARG(1).n - 1], arg));
}

/* ---- padding ---- */

void d_constant_pad(Back *b) {
    int64_t pad[2 * AMP_MAX_DIMS];
    for (int i = 0; i < ARG(1).n; i++) {
        pad[i] = -ARG(1).ints[i];
    }
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_ints(pad, ARG(1).n), {.kind = ARG_NUMBER, .num = {.kind = NUMBER_INT}}};
    GRAD(0, op_args(b, OP_constant_pad_nd, arg));
}

void d_pad(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_int(node_op(b)), spatial_sizes(b, ARG(1).n / 2), ARG(1)};
    GRAD(0, op_args(b, OP_pad_grad, arg));
}

void d_pad_grad(Back *b) {
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), ARG(3)};
    GRAD(0, op_args(b, (OpId)ARG(1).i, arg));
}

/* ---- interpolation ---- */

/* Parameter numbers of a forward row: align_corners may be missing in front of the scales. */
static int scales_at(OpId forward) { return amp_rows[forward].param[2].kind == ARG_BOOL ? 3 : 2; }

void d_upsample(Back *b) {
    int nd = IN_META(0).ndim - 2, at = scales_at(node_op(b));
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_int(node_op(b)), spatial_sizes(b, nd), at == 3 ? ARG(2) : arg_bool(false)};
    for (int d = 0; d < nd; d++) {
        arg[4 + 3 - nd + d] = ARG(at + d);
    }
    GRAD(0, op_args(b, OP_upsample_grad, arg));
}

void d_upsample_grad(Back *b) {
    OpId forward = (OpId)ARG(1).i;
    int nd = ARG(2).n, at = scales_at(forward);
    Arg arg[MAX_ARGS] = {arg_tensor(b->g), spatial_sizes(b, nd), ARG(3)};
    for (int d = 0; d < nd; d++) {
        arg[at + d] = ARG(4 + 3 - nd + d);
    }
    GRAD(0, op_args(b, forward, arg));
}
