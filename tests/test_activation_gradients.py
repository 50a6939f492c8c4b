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
    "softsign": F.softsign,
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["silu", "gelu", "mish", "softsign"])
def test_overflow_before_an_activation_shows_in_its_gradient(name, dtype):
    for create_graph in (False, True):
        x = torch.tensor([np.inf, -np.inf, 2.0] * 11, dtype=dtype, requires_grad=True)
        (slope,) = torch.autograd.grad(getattr(F, name)(x), x, torch.ones_like(x), create_graph=create_graph)
        assert slope.isnan().tolist() == [True, True, False] * 11, create_graph


def test_a_step_after_an_overflow_is_skipped():
    layer = torch.nn.Linear(32, 32)
    with torch.no_grad():
        layer.weight.fill_(200.0)
    optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=4.0)
    with torch.autocast("cpu", torch.float16):
        loss = F.silu(layer(torch.full((4, 32), 60.0))).sigmoid().float().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert loss.item() == 1.0 and scaler.get_scale() == 2.0


@pytest.mark.parametrize("name", ["elu", "selu", "celu"])
def test_curvature_at_zero_is_zero(name):
    x = torch.tensor([0.0, -0.0, 1.0], requires_grad=True)
    (slope,) = torch.autograd.grad(getattr(F, name)(x).sum(), x, create_graph=True)
    assert torch.autograd.grad(slope.sum(), x)[0].tolist() == [0.0, 0.0, 0.0]


def test_hardswish_keeps_nan():
    x = torch.full((64,), np.nan, requires_grad=True)
    for create_graph in (False, True):
        (slope,) = torch.autograd.grad(F.hardswish(x).sum(), x, create_graph=create_graph)
        assert bool(slope.isnan().all())


def test_weighted_huber_loss_is_a_mean_over_elements():
    a, w = torch.tensor([1.0, 2.0, 3.0, 0.1]), torch.tensor([0.5, 1.0, 2.0, 0.1])
    each = F.huber_loss(a, torch.zeros(4), reduction="none") * w
    assert F.huber_loss(a, torch.zeros(4), weight=w).item() == each.mean().item()
