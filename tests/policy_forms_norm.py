"""How autocast's questions about normalisation are asked."""

FORMS = {
    "layer_norm": ([(3, 3)], lambda f, x, device: f(x, (3,))),
    "native_layer_norm": ([(3, 3)], lambda f, x, device: f(x, (3,), None, None, 1e-5)),
    "rms_norm": ([(3, 3), (3,)], lambda f, x, w, device: f(x, (3,), w)),
    "group_norm": ([(2, 4)], lambda f, x, device: f(x, 2)),
    "batch_norm": ([(3, 3)], lambda f, x, device: f(x, None, None, None, None, True, 0.1, 1e-5, True)),
    "instance_norm": ([(3, 3)], lambda f, x, device: f(x, None, None, None, None, True, 0.1, 1e-5, True)),
}
# Reached through the ops above only.
LEFT_OUT = {"norm_groups", "norm_channels"}
