"""Derivatives of ops that overwrite their input, directly or through views."""

import numpy as np
import pytest
from golden_tools import torch


def leaf(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def through_view(write):
    """x^2, its first two elements changed through a view; the view and the whole."""

    def function(x):
        whole = x * x
        view = whole[:2]
        write(view, x)
        return view.sum() + whole.sum()

    return function


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 1).mul_(x),
        lambda x: (x * 1).pow_(3),
        lambda x: (x * 1).div_(x + 1),
        lambda x: (x * 2).sin_().add_(x),
        through_view(lambda view, x: view.mul_(x[:2])),
        through_view(lambda view, x: view.mul_(2.0)),
        through_view(lambda view, x: view.view(2).exp_()),
        through_view(lambda view, x: view[:1].mul_(x[2])),
        through_view(lambda view, x: view.__setitem__(0, x[2])),
    ],
)
def test_derivatives_of_in_place_ops(function):
    """What an op overwrote keeps its history; a view's history is remade after a write, and is younger then than what reads it."""
    x = leaf([1.0, 2.0, 3.0])
    assert torch.autograd.gradcheck(function, (x,)) and torch.autograd.gradgradcheck(function, (x,))


def test_own_function_after_a_write_through_a_view():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf([1.0, 2.0, 3.0])
    view = (x * x)[:2]
    view.mul_(x[:2])
    Double.apply(view).sum().backward()
    assert x.grad.tolist() == [6.0, 24.0, 0.0]


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.mul_(y),
        lambda y: y.div_(y),
        lambda y: y.pow_(y),
        lambda y: y.mul_(y.view(-1)),
        lambda y: y[::2].mul_(y[:2]),
    ],
)
def test_an_op_that_overwrites_its_other_input_is_refused_in_backward(write):
    y = leaf([1.0, 2.0, 3.0]) * 1
    write(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("write", [lambda view: view.exp_(), lambda view: view.tanh_(), lambda view: view[:, :1].sigmoid_()])
def test_second_derivative_through_a_written_view_frees_each_node_once(write):
    """The op saved what it wrote: the view of the base, whose history is the base's."""
    x = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()

    def slopes(x):
        whole = (x * x).t()
        write(whole[1:])
        return torch.autograd.grad((whole * whole).sum(), x, create_graph=True)[0]

    assert torch.autograd.gradcheck(slopes, (x,))
    (second,) = torch.autograd.grad(slopes(x).sum(), x)
    assert second.shape == x.shape


def views_of_a_leaf_that_is_a_view():
    leaf = torch.ones(2, 3)[0].requires_grad_()
    ranged = torch.arange(6.0).reshape(2, 3).requires_grad_()
    return {
        "part": lambda: leaf[:2].zero_(), "whole": lambda: leaf.view(-1).mul_(2), "element": lambda: leaf[0].mul_(2),
        "transposed": lambda: leaf.t().add_(1), "row": lambda: ranged[0].mul_(2), "array": lambda: torch.from_numpy(np.ones((2, 2)))[0]
        .requires_grad_()[:1].exp_(), "item": lambda: leaf.__setitem__(slice(0, 2), 0.0),
    }  # fmt: skip


@pytest.mark.parametrize("write", views_of_a_leaf_that_is_a_view())
def test_views_of_a_leaf_that_is_a_view_are_not_written_to(write):
    """The leaf would lose its gradient: its base has no history that the write could join."""
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        views_of_a_leaf_that_is_a_view()[write]()
    with torch.no_grad():
        views_of_a_leaf_that_is_a_view()[write]()


def test_a_base_that_was_written_to_takes_more_writes():
    base, w = torch.zeros(2, 3), torch.ones(3, requires_grad=True)
    base[0] = w
    base[0][:2].mul_(3)
    view = base[1]
    view.add_(w)
    base.sum().backward()
    assert w.grad.tolist() == [4.0, 4.0, 2.0]
