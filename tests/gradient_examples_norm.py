"""Normalisation."""

from gradient_examples import Example, spaced, torch

F = torch.nn.functional
X, W, B = spaced(3, 4, low=-1.0), spaced(4, low=0.5, seed=1), spaced(4, seed=2)
IMAGE, CW, CB = spaced(2, 4, 3, seed=3), spaced(4, low=0.5, seed=4), spaced(4, seed=5)


def trained(x, *parameters):
    return F.batch_norm(x, None, None, *parameters, training=True)


def fixed(x, *parameters):
    mean, var = (torch.tensor(v, dtype=torch.float64) for v in ([0.1, -0.2, 0.3, 0.0], [1.0, 0.5, 2.0, 1.5]))
    return F.batch_norm(x, mean, var, *parameters)


def bias_only(function):
    return lambda x, b: function(x, None, b)


LAYER = [
    Example(lambda x, *p: F.layer_norm(x, (4,), *p), (X, W, B)),
    Example(lambda x: F.layer_norm(x, (3, 4)), (X,)),
    Example(bias_only(lambda x, w, b: F.layer_norm(x, (4,), w, b)), (X, B)),
]
BATCH = [
    Example(trained, (X, W, B)),
    Example(trained, (IMAGE, CW, CB)),
    Example(bias_only(trained), (IMAGE, CB)),
    Example(fixed, (X, W, B)),
    Example(fixed, (IMAGE, CW, CB)),
]
GROUP = [
    Example(lambda x, *p: F.group_norm(x, 2, *p), (IMAGE, CW, CB)),
    Example(lambda x, *p: F.group_norm(x, 2, *p), (X, W, B)),
    Example(lambda x: F.group_norm(x, 1), (IMAGE,)),
]

EXAMPLES = {
    "layer_norm": LAYER,
    "native_layer_norm": [Example(lambda x, *p: torch.native_layer_norm(x, (4,), *p, 1e-5), (X, W, B))],
    "rms_norm": [
        Example(lambda x, w: F.rms_norm(x, (4,), w), (X, W)),
        Example(lambda x: F.rms_norm(x, (3, 4), eps=0.1), (X,)),
    ],
    "group_norm": GROUP,
    "batch_norm": BATCH,
    "instance_norm": [Example(lambda x, *p: F.instance_norm(x, None, None, *p), (IMAGE, CW, CB))],
    "norm_groups": LAYER[:1] + GROUP[:1],
    "norm_channels": BATCH,
}
