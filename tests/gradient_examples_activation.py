"""Activations."""

import numpy as np
from gradient_examples import Example, in_place, spaced, torch, unary

F = torch.nn.functional
X, Y = spaced(2, 3), spaced(2, 3, low=0.2, seed=1)


def flagged(function, *args):
    """As a new tensor, and written over the input."""
    return unary(lambda x: function(x, *args)) + unary(lambda x: function(x * 1.0, *args, inplace=True))


EXAMPLES = {
    "silu_nn": unary(lambda x: F.silu(x * 1.0, True)),
    "mish": flagged(F.mish),
    "mish_nn": unary(lambda x: F.mish(x * 1.0, True)),
    "leaky_relu_nn": flagged(F.leaky_relu, 0.3),
    "elu_nn": flagged(F.elu, 1.7),
    "selu": unary(F.selu),
    "selu_nn": unary(lambda x: F.selu_(x * 1.0)),
    "celu": unary(lambda x: F.celu(x, 0.6)),
    "celu_nn": unary(lambda x: F.celu_(x * 1.0, 0.6)),
    "hardtanh": unary(lambda x: F.hardtanh(x, -0.9, 1.1)),
    "hardtanh_nn": unary(lambda x: F.hardtanh_(x * 1.0, -0.9, 1.1)) + unary(F.relu6),
    "hardswish": unary(F.hardswish, -4.1, 4.0),
    "hardswish_nn": unary(lambda x: F.hardswish(x * 1.0, True), -4.1, 4.0),
    "hardsigmoid": unary(F.hardsigmoid, -4.1, 4.0),
    "hardsigmoid_nn": unary(lambda x: F.hardsigmoid(x * 1.0, True), -4.1, 4.0),
    "threshold": unary(lambda x: F.threshold(x, 0.3, 5.0)),
    "threshold_nn": unary(lambda x: F.threshold_(x * 1.0, 0.3, 5.0)),
    "hardshrink": unary(lambda x: F.hardshrink(x, 0.8)),
    "softshrink": unary(lambda x: F.softshrink(x, 0.8)),
    "softsign": unary(F.softsign),
    "tanhshrink": unary(F.tanhshrink),
    "logit": unary(torch.logit, 0.1, 0.9) + unary(lambda x: torch.logit(x, 0.25), 0.1, 0.9) + unary(in_place("logit_"), 0.1, 0.9),
    "sinc": unary(torch.sinc) + [Example(torch.sinc, (np.array([0.0, 0.011, -0.3]),))],
    "xlogy": [
        Example(torch.xlogy, (X, Y)),
        Example(torch.xlogy, (np.array([0.0, 0.5]), np.array([1.5, 0.3]))),
        Example(lambda y: torch.xlogy(1.5, y), (Y,)),
        Example(lambda x: torch.xlogy(x, 2.5), (X,)),
    ],
    "glu": [Example(lambda x: F.glu(x, 0), (spaced(4, 2),))],
    "prelu": [Example(F.prelu, (X, spaced(3, low=0.1))), Example(F.prelu, (X, spaced(1)))],
    "prelu_kernel": [Example(torch._C.nn._prelu, (X, Y))],
}
