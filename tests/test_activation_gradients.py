"""The one-call derivatives of activations and losses against the formulas of ops that serve create_graph."""

import numpy as np
import pytest

import ampnative as torch
from ampnative import Tensor

F = torch.nn.functional
FUNCTIONS = {
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.9, 1.1),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "elu": lambda x: F.elu(x, 1.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.6),
    "softplus": lambda x: F.softplus(x, 1.5, 8.0),
    "clamp": lambda x: x.clamp(-2, 2.5),
    "clamp_low": lambda x: x.clamp(min=-2),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, torch.full_like(x, 0.5), reduction="none", beta=0.7),
    "huber": lambda x: F.huber_loss(x, torch.full_like(x, 0.5), reduction="none", delta=2.0),
    "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, torch.full_like(x, 0.25), reduction="none"),
}


def gradient(function, x: Tensor, g: Tensor, create_graph: bool) -> Tensor:
    """The gradient of function at x for the output gradient g, detached."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(function(x), x, g, create_graph=create_graph)[0].detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_fast_and_composed_agree(name, dtype):
    kinks = torch.tensor([0.0, -0.0, 3.0, -3.0, 6.0, -0.9, 1.1, np.inf, -np.inf, np.nan, -2.0, 2.5])
    x = torch.cat([torch.randn(500) * 4, kinks]).to(dtype)
    g = torch.randn(512).to(dtype)
    fast, composed = (gradient(FUNCTIONS[name], x, g, on).double().numpy() for on in (False, True))
    assert np.array_equal(np.isnan(fast), np.isnan(composed))
    kept = ~np.isnan(fast)
    # the composed steps round a 16-bit value up to three times; the 2^-24 below 1 is the float32 slope's own error near its zero
    bound = 3 * torch.finfo(dtype).eps * np.abs(composed[kept]) + 2.0**-23 * np.abs(g.double().numpy()[kept])
    assert np.all(np.abs(fast[kept] - composed[kept]) <= bound)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_that_are_broadcast_or_strided(name):
    x, g = torch.randn(20, 30) * 3, torch.randn(30, 20)
    want = gradient(FUNCTIONS[name], x, g.t().contiguous(), False)
    assert torch.equal(gradient(FUNCTIONS[name], x, g.t(), False), want)
    one = torch.tensor(0.75)
    want = gradient(FUNCTIONS[name], x, torch.full((20, 30), 0.75), False)
    assert torch.equal(gradient(FUNCTIONS[name], x, one.expand(20, 30), False), want)
    assert torch.equal(gradient(FUNCTIONS[name], x.t(), one.expand(30, 20), False).t(), want)
