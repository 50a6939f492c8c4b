"""autograd.functional, against derivatives that are known and Jacobians by central differences."""

import warnings

import numpy as np
import pytest
from golden_tools import torch

A = torch.autograd.functional
double = torch.float64


def exp_of_rows(x):
    return x.exp().sum(dim=1)


def cubes(x):
    return x.pow(3).sum()


def several(x, y):
    return (x * x * y).sum(), x.sin() * y


def mixed(x, y):
    return (x * y * y).sum()


@pytest.fixture
def x():
    return torch.rand(2, 2, dtype=double, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def y():
    return torch.rand(2, 2, dtype=double, generator=torch.Generator().manual_seed(1))


def differences(func, inputs, out, which, eps=1e-6):
    """The Jacobian of output `out` by input `which`."""
    columns = []
    for i in range(inputs[which].numel()):
        ends = []
        for sign in (1, -1):
            moved = [t.clone() for t in inputs]
            moved[which].view(-1)[i] += sign * eps
            found = func(*moved)
            ends.append((found[out] if isinstance(found, tuple) else found).numpy())
        columns.append((ends[0] - ends[1]) / (2 * eps))
    return np.stack(columns, -1).reshape(*columns[0].shape, *inputs[which].shape)


def test_jacobian(x, y):
    found = A.jacobian(several, (x, y))
    for out in range(2):
        for which in range(2):
            np.testing.assert_allclose(found[out][which].numpy(), differences(several, (x, y), out, which), atol=1e-8)
    single = A.jacobian(exp_of_rows, x)
    assert single.shape == (2, 2, 2) and not single.requires_grad
    np.testing.assert_allclose(single.numpy(), np.einsum("ij,ik->ikj", x.exp().numpy(), np.eye(2)), rtol=1e-12)
    assert torch.equal(A.jacobian(exp_of_rows, x, vectorize=True), single)
    assert torch.equal(A.jacobian(exp_of_rows, x, vectorize=True, strategy="forward-mode"), single)
    leaf = x.clone().requires_grad_()
    A.jacobian(exp_of_rows, leaf, create_graph=True).sum().backward()
    torch.testing.assert_close(leaf.grad, x.exp())
    assert A.jacobian(lambda x: torch.ones(2), x).eq(0).all()
    with torch.no_grad():
        assert torch.equal(A.jacobian(exp_of_rows, x), single)


def test_hessian(x, y):
    found = A.hessian(cubes, x)
    np.testing.assert_allclose(found.reshape(4, 4).numpy(), np.diag(6 * x.numpy().reshape(-1)), rtol=1e-12)
    (xx, xy), (yx, yy) = A.hessian(mixed, (x, y))
    eye = np.eye(4)
    assert xx.eq(0).all()
    np.testing.assert_allclose(xy.reshape(4, 4).numpy(), eye * 2 * y.numpy().reshape(-1), rtol=1e-12)
    np.testing.assert_allclose(yx.reshape(4, 4).numpy(), xy.reshape(4, 4).numpy().T)
    np.testing.assert_allclose(yy.reshape(4, 4).numpy(), eye * 2 * x.numpy().reshape(-1), rtol=1e-12)
    assert A.hessian(lambda x: x.sum().view(1), x).eq(0).all()
    leaf = x.clone().requires_grad_()
    A.hessian(cubes, leaf, create_graph=True).sum().backward()
    torch.testing.assert_close(leaf.grad, torch.full((2, 2), 6.0, dtype=double))


def test_products_with_vectors(x, y):
    """Each is the full Jacobian or Hessian times the vector."""
    v = torch.tensor([1.0, -2.0], dtype=double)
    outputs, found = A.vjp(exp_of_rows, x, v)
    assert torch.equal(outputs, exp_of_rows(x)) and not outputs.requires_grad
    torch.testing.assert_close(found, torch.einsum("i,ijk->jk", v, A.jacobian(exp_of_rows, x)))
    outputs, found = A.jvp(exp_of_rows, x, y)
    torch.testing.assert_close(found, torch.einsum("ijk,jk->i", A.jacobian(exp_of_rows, x), y))
    outputs, found = A.jvp(several, (x, y), (y, x))
    jac = A.jacobian(several, (x, y))
    for out in range(2):
        pairs = zip(jac[out], (y, x), strict=True)
        torch.testing.assert_close(found[out], sum((j * t).sum((-2, -1)) for j, t in pairs))
    (_, by_x), (yx, yy) = A.hessian(mixed, (x, y))
    for product in (A.vhp, A.hvp):
        value, (px, py) = product(mixed, (x, y), (y, x))
        assert value.item() == pytest.approx(mixed(x, y).item())
        torch.testing.assert_close(px, (by_x * x).sum((-2, -1)))
        torch.testing.assert_close(py, (yx * y).sum((-2, -1)) + (yy * x).sum((-2, -1)))
        assert product(lambda x: x.sum(), x, y)[1].eq(0).all()
        leaf = x.clone().requires_grad_()
        product(cubes, leaf, y, create_graph=True)[1].sum().backward()
        torch.testing.assert_close(leaf.grad, 6 * y)
        assert product(cubes, torch.tensor([2.0]))[1].tolist() == [12]
    assert A.vjp(cubes, x)[1].equal(3 * x * x) or torch.allclose(A.vjp(cubes, x)[1], 3 * x * x)
    assert A.jvp(lambda t: t.exp(), torch.zeros(1, 1))[1].item() == 1
    leaf = x.clone().requires_grad_()
    A.jvp(exp_of_rows, leaf, y, create_graph=True)[1].sum().backward()
    torch.testing.assert_close(leaf.grad, x.exp() * y)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: A.jacobian(lambda x: 3, x), TypeError, "must be either a Tensor or a tuple of Tensors"),
        (lambda x: A.jacobian(exp_of_rows, 3), TypeError, "The inputs given to jacobian must be either a Tensor"),
        (lambda x: A.jacobian(exp_of_rows, x, strategy="no"), AssertionError, "Expected strategy to be either"),
        (lambda x: A.hessian(cubes, x, outer_jacobian_strategy="forward-mode"), NotImplementedError, "`vectorize=True`"),
        (lambda x: A.jacobian(lambda x: torch.ones(2), x, strict=True), RuntimeError, "does not require gradients"),
        (lambda x: A.jacobian(lambda x: x.clone(), x, strict=True, create_graph=True), RuntimeError, "is independent of input 0"),
        (lambda x: A.hessian(exp_of_rows, x), RuntimeError, "should contain a single element"),
        (lambda x: A.hessian(lambda x: (x, x), x), RuntimeError, "should return a single Tensor"),
        (lambda x: A.hessian(lambda x: x.sum(), x, strict=True), RuntimeError, "is independent of the input"),
        (lambda x: A.hvp(lambda x: x.sum(), x, x, strict=True), RuntimeError, "is independent of the input"),
        (lambda x: A.vjp(exp_of_rows, x), RuntimeError, "The vector v can only be None if the user-provided function returns"),
        (lambda x: A.jvp(exp_of_rows, x), RuntimeError, "The vector v can only be None if the input to the user-provided function"),
        (lambda x: A.vjp(exp_of_rows, x, torch.ones(3)), RuntimeError, "v has invalid size"),
        (lambda x: A.vhp(cubes, x, (x, x)), RuntimeError, "The given v should contain a single Tensor"),
    ],
)
def test_what_is_refused(call, error, text, x):
    with pytest.raises(error, match=text):
        call(x)


def test_a_gradient_with_history_keeps_it_when_more_is_added():
    a = torch.tensor([2.0, 3.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (a**3).sum().backward(create_graph=True)
    g = a.grad
    (a * 2).sum().backward()
    assert a.grad is g and g.requires_grad and g.tolist() == [14, 29]
    assert torch.autograd.grad(g.sum(), a)[0].tolist() == [12, 18]
