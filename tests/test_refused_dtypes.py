"""Dtypes that PyTorch has no kernels for are refused as there; complex numbers have a variance."""

import pytest
from golden_tools import torch

F = torch.nn.functional
BOOL, INT = torch.tensor([True, False]), torch.tensor([1, -2])
FLOATING_ONLY = ("gelu", "silu", "softplus", "logsigmoid", "elu", "selu", "celu", "mish", "leaky_relu", "hardswish", "hardsigmoid")


@pytest.mark.parametrize("name", FLOATING_ONLY)
@pytest.mark.parametrize("x", [BOOL, INT], ids=["bool", "int"])
def test_activations_of_integers(name, x):
    with pytest.raises(NotImplementedError):
        getattr(F, name)(x)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_integers(name):
    with pytest.raises(NotImplementedError):
        getattr(torch, name)(INT, 0)
    want = getattr(torch, name)(INT.double(), 0)
    torch.testing.assert_close(getattr(F, name)(INT, 0, dtype=torch.float64), want)


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc", "relu", "abs"])
def test_numbers_are_wanted(name):
    with pytest.raises(NotImplementedError):
        getattr(torch, name)(BOOL)
    with pytest.raises(NotImplementedError):
        getattr(BOOL.clone(), name + "_")()
    assert getattr(torch, name)(INT).dtype == torch.int64


def test_other_ops_of_bool():
    for call in (lambda: -BOOL, lambda: F.threshold(BOOL, 0, 0), lambda: torch.fix(BOOL)):
        with pytest.raises(NotImplementedError):
            call()


def test_variance_of_complex_numbers():
    z = torch.tensor([[1 + 2j, 3 - 1j, 0j], [-2 + 0.5j, 1j, 4 + 0j]])
    both = lambda f: f(z.real) + f(z.imag)  # noqa: E731
    for f in (torch.var, lambda t: torch.var(t, 1), lambda t: torch.var(t, 0, keepdim=True), lambda t: torch.var(t, False),
              lambda t: torch.var(t, dim=(0, 1), correction=0)):  # fmt: skip
        torch.testing.assert_close(f(z), both(f))
    torch.testing.assert_close(torch.std(z, 1), both(lambda t: torch.var(t, 1)).sqrt())
    torch.testing.assert_close(z.std(unbiased=False), both(lambda t: torch.var(t, False)).sqrt())
    assert torch.var(z).dtype == torch.float32 and torch.std(z.to(torch.complex128)).dtype == torch.float64
    spread, middle = torch.var_mean(z, 1)
    torch.testing.assert_close(spread, torch.var(z, 1))
    torch.testing.assert_close(middle, z.mean(1))
