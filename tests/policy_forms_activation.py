"""How autocast's questions about activations are asked."""

FORMS = {
    "threshold": ([(3, 3)], lambda f, x, device: f(x, 0.5, 2.0)),
    "threshold_nn": ([(3, 3)], lambda f, x, device: f(x, 0.5, 2.0)),
    "prelu": ([(3, 3), (3,)], lambda f, x, w, device: f(x, w)),
}
FLOATS_ONLY = {
    "prelu", "silu_grad", "mish_grad", "leaky_relu_grad", "inside_grad", "hardswish_grad",
    "elu_grad", "softplus_grad", "huber_grad", "shrink_grad", "bce_logits_kernel", "bce_logits_grad",
}
