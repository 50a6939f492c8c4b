"""Adafactor against its formulas in float64."""

import copy
import math

import numpy as np
import pytest
from golden_tools import torch


def expected(p, grads, own_eps, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, maximize=False):
    least = own_eps if eps[0] is None else eps[0]
    row = column = full = 0.0
    for t, g in enumerate(grads, 1):
        g = -g if maximize else g
        keep = 1 - t**beta2_decay
        size = max(eps[1], np.sqrt(np.mean(p**2))) * min(lr, 1 / math.sqrt(t))
        p = p * (1 - lr * weight_decay)
        if p.ndim > 1:
            row = keep * row + (1 - keep) * np.mean(g**2, axis=-1, keepdims=True)
            column = keep * column + (1 - keep) * np.mean(g**2, axis=-2, keepdims=True)
            v = row @ column / np.maximum(np.mean(row, axis=-2, keepdims=True), least)
        else:
            v = full = keep * full + (1 - keep) * g**2
        u = g / np.maximum(np.sqrt(v), least)
        p = p - size * u / max(1.0, np.sqrt(np.mean(u**2)) / d)
    return p


OPTIONS = [
    {}, {"lr": 0.1, "weight_decay": 0.1}, {"maximize": True}, {"eps": (1e-3, 0.7)}, {"d": 1.5, "lr": 0.5}, {"beta2_decay": -0.5},
    {"foreach": False},
]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (3,), (1, 4), (2, 3), (2, 2, 3)])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps(shape, options, dtype):
    rng = np.random.default_rng(0)
    start, grads = rng.normal(size=shape), rng.normal(size=(4, *shape))
    p = torch.nn.Parameter(torch.tensor(start).to(dtype))
    optimizer = torch.optim.Adafactor([p], **options)
    start, grads = p.detach().double().numpy().copy(), torch.tensor(grads).to(dtype)
    for g in grads:
        p.grad = g.clone()
        optimizer.step()
    known = {key: value for key, value in options.items() if key != "foreach"}
    wanted = expected(start, grads.double().numpy(), torch.finfo(dtype).eps, **known)
    assert np.allclose(p.detach().double().numpy(), wanted, rtol=0, atol=1e-6 if dtype == torch.float32 else 4e-2)
    state = optimizer.state[p]
    if len(shape) > 1:
        assert list(state) == ["step", "row_var", "col_var"] and state["row_var"].shape == (*shape[:-1], 1)
        assert state["col_var"].shape == (*shape[:-2], 1, shape[-1]) and state["col_var"].dtype == dtype
    else:
        assert list(state) == ["step", "variance"] and state["variance"].shape == shape
    assert state["step"].item() == 4


def test_a_loaded_state_goes_on():
    def made():
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        return layer, torch.optim.Adafactor(layer.parameters(), lr=0.1)

    def step(layer, optimizer):
        optimizer.zero_grad()
        layer(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()

    layer, optimizer = made()
    other, resumed = made()
    step(layer, optimizer)
    other.load_state_dict(layer.state_dict())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for pair in ((layer, optimizer), (other, resumed)):
        step(*pair)
    assert torch.equal(layer.weight, other.weight) and torch.equal(layer.bias, other.bias)


WRONG = [
    ({"lr": -1}, "Learning rate should be >= 0"), ({"beta2_decay": 1}, "beta2_decay should be <= 0"),
    ({"eps": (-1, 1e-3)}, "epsilon1 should be >= 0"),
    ({"eps": (None, -1)}, "epsilon2 should be >= 0"), ({"d": 0.5}, "Clipping threshold d should be >= 1"),
    ({"weight_decay": -1}, "weight_decay should be >= 0"), ({"lr": torch.tensor([1.0, 2.0])}, "Tensor lr must be 1-element"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "phrase"), WRONG)
def test_wrong_options(options, phrase):
    with pytest.raises(ValueError, match=phrase):
        torch.optim.Adafactor([torch.nn.Parameter(torch.ones(2))], **options)
