"""autograd.Function used wrongly: what backward may return, and instances."""

import warnings

import numpy as np
import pytest

import ampnative as torch


def returning(make):
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments):
            return arguments[0] * 1.0

        @staticmethod
        def backward(ctx, g):
            return make(g)

    return Own


def run(make, *more):
    x = torch.ones(3, requires_grad=True)
    returning(make).apply(x, *more).sum().backward()
    return x.grad


@pytest.mark.parametrize("value", [3, 3.5, True, "a", [1], {}, np.ones(3), torch.Size([3])], ids=repr)
def test_gradients_are_tensors(value):
    if isinstance(value, tuple):
        with pytest.raises(RuntimeError, match=r"expected Variable or None \(got int\)"):
            run(lambda g: value)
        return
    kind = "numpy.ndarray" if isinstance(value, np.ndarray) else type(value).__name__
    for make in (lambda g: value, lambda g: (value,)):
        with pytest.raises(RuntimeError, match=rf"expected Variable or None \(got {kind}\)"):
            run(make)
    with pytest.raises(RuntimeError, match="expected Variable or None"):  # the same for what needs none
        run(lambda g: (g, value), torch.ones(3))


@pytest.mark.parametrize("value", [3, torch.ones(3), torch.ones(5), (), [1]], ids=repr)
@pytest.mark.parametrize("argument", [5, None, "text"])
def test_what_is_no_tensor_has_no_gradient(argument, value):
    with pytest.raises(RuntimeError, match="a gradient different than None at position 2, but the corresponding forward input"):
        run(lambda g: (g, value), argument)
    assert run(lambda g: (g, None), argument).tolist() == [1.0] * 3


def test_instances_warn_and_cannot_be_called():
    own = returning(lambda g: g)
    for make in (own, lambda: own(1, key=2), torch.autograd.Function):
        with pytest.warns(DeprecationWarning, match="should not be instantiated"):
            made = make()
        assert isinstance(made, torch.autograd.Function) and made.saved_tensors == ()
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward method is deprecated"):
        made(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # apply makes a context without a warning, and so does an __init__ of one's own
        own.apply(x).sum().backward()

        class Holds(own):
            def __init__(self, a):
                self.a = a

        held = Holds(5)
        assert held.a == 5 and held.apply(x).tolist() == [1.0] * 3


def test_inference_tensors_are_not_saved():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x, None, factor)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[2], None

    with torch.inference_mode():
        floating, indices = torch.ones(2), torch.arange(2)
    x = torch.ones(2, requires_grad=True)
    for saved in (floating, indices):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            Scaled.apply(x, saved)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), pytest.raises(RuntimeError, match="Inference"):
            Scaled.apply(x, saved)
        assert Scaled.apply(x.detach(), saved).tolist() == [2.0, 2.0]  # nothing is recorded
    with torch.inference_mode():
        assert Scaled.apply(x, floating).tolist() == [2.0, 2.0]
    Scaled.apply(x, floating.clone()).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
