/* The convolution slot. */
#include "conv.h"

#include "../core/ops.h"

static ConvKind kind_of(int op) { return op == OP_conv_weight ? CONV_WEIGHT : op == OP_conv_input ? CONV_INPUT : CONV_OUTPUT; }

/* A kernel of one element that reads every pixel once: images are rows. */
static void flatten(Conv *c) {
    for (int d = 0; d < 3; d++)
        if (c->kernel[d] != 1 || c->stride[d] != 1 || c->padding[d] != 0 || c->in[d] != c->out[d]) return;
    c->in[0] = c->in[1] = c->out[0] = c->out[1] = 1;
    c->in[2] = c->out[2] = c->in_pixels;
}

static void describe(const Call *call, Conv *c) {
    const ConvShape *shape = call->extra;
    c->kind = kind_of(call->op);
    /* x, w, y in the order of the arguments, then the result */
    const View *x = c->kind == CONV_INPUT ? call->out[0] : call->in[c->kind == CONV_WEIGHT];
    const View *w = c->kind == CONV_WEIGHT ? call->out[0] : call->in[1];
    const View *y = c->kind == CONV_OUTPUT ? call->out[0] : call->in[0];
    const int spatial = x->ndim - 2;
    c->x = x->data, c->w = w->data, c->y = y->data;
    c->bias = call->in[2];
    c->dtype = x->dtype;
    c->rounding = c->dtype == AMP_FLOAT32 ? (InputRounding)call->numerics.fp32_inputs : INPUT_IEEE;
    c->images = x->shape[0];
    c->groups = shape->groups;
    c->in_channels = w->shape[1];
    c->out_channels = w->shape[0] / shape->groups;
    c->in_pixels = c->out_pixels = c->taps = 1;
    for (int d = 0; d < 3; d++) {
        const int from = d - (3 - spatial);
        const bool there = from >= 0;
        c->in[d] = there ? x->shape[from + 2] : 1;
        c->out[d] = there ? y->shape[from + 2] : 1;
        c->kernel[d] = there ? w->shape[from + 2] : 1;
        c->stride[d] = there ? shape->stride[from] : 1;
        c->padding[d] = there ? shape->padding[from] : 0;
        c->dilation[d] = there ? shape->dilation[from] : 1;
        c->in_pixels *= c->in[d];
        c->out_pixels *= c->out[d];
        c->taps *= c->kernel[d];
    }
    flatten(c);
}

Status amp_conv(const Call *call) {
    Conv c;
    describe(call, &c);
    if (!call->out[0]->numel) return AMP_OK;
    const bool fast = c.dtype == AMP_FLOAT32 || c.dtype == AMP_FLOAT64 || amp_is_16bit(c.dtype);
    if (!fast && (c.dtype == AMP_BOOL || amp_is_floating(c.dtype))) return AMP_BAD_DTYPE;
    const bool some = c.images && c.in_channels && c.out_channels && c.in_pixels && c.out_pixels && c.taps;
    if (!fast || !some) return conv_reference(&c);
    if (conv_is_depthwise(&c)) return conv_depthwise(&c);
    if (conv_is_direct(&c)) return conv_direct(&c);
    if (conv_is_padded(&c)) return conv_padded(&c);
    if (conv_weight_is_padded(&c)) return conv_weight_padded(&c);
    return c.kind == CONV_WEIGHT ? conv_weight(&c) : conv_product(&c);
}

Status amp_conv_reference(const Call *call) {
    Conv c;
    describe(call, &c);
    return call->out[0]->numel ? conv_reference(&c) : AMP_OK;
}
