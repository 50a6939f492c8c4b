"""Every differentiable op against central differences in float64, first and second derivatives, recorded and not."""

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch
from gradient_examples import EXAMPLES, WITHOUT_EXAMPLE

CASES = [pytest.param(example, id=f"{row}-{i}") for row, examples in EXAMPLES.items() for i, example in enumerate(examples)]


def tensors(example):
    return tuple(torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in example.inputs)


@pytest.mark.parametrize("example", CASES)
def test_first_derivative(example):
    assert torch.autograd.gradcheck(example.function, tensors(example), nondet_tol=0.0, check_grad_dtypes=True)


@pytest.mark.parametrize("example", CASES)
def test_second_derivative(example):
    if example.second:
        assert torch.autograd.gradgradcheck(example.function, tensors(example))


@pytest.mark.skipif(IS_PYTORCH, reason="reads our row table")
def test_every_differentiable_row_has_an_example():
    rows = {r["id"]: r for r in torch._C.op_rows()}
    differentiable = {i for i, r in rows.items() if r["signature"].startswith("Tensor") and r["derivative"] != "d_none"}
    assert differentiable - EXAMPLES.keys() - WITHOUT_EXAMPLE.keys() == set()
    assert EXAMPLES.keys() - rows.keys() == set()
    assert WITHOUT_EXAMPLE.keys() - rows.keys() == set()


def wrong(factor):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x * factor

    return Wrong.apply


def double(*values):
    return torch.tensor(list(values), dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_wrong_derivative_is_found(fast_mode):
    assert torch.autograd.gradcheck(wrong(2.0), (double(1.0, -2.0),), fast_mode=fast_mode)
    with pytest.raises(RuntimeError, match=r"Jacobian mismatch|not equal"):
        torch.autograd.gradcheck(wrong(2.01), (double(1.0, -2.0),), fast_mode=fast_mode)
    assert torch.autograd.gradcheck(wrong(2.01), (double(1.0, -2.0),), raise_exception=False, fast_mode=fast_mode) is False


def test_a_wrong_second_derivative_is_found():
    class Detached(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3.0 * x.detach() ** 2

    assert torch.autograd.gradcheck(Detached.apply, (double(1.0, 2.0),))
    with pytest.raises(RuntimeError, match="mismatch"):
        torch.autograd.gradgradcheck(Detached.apply, (double(1.0, 2.0),))


def test_inputs_are_checked():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        torch.autograd.gradcheck(torch.exp, (torch.ones(2, dtype=torch.float64),))
    with pytest.warns(UserWarning, match="double precision"):
        torch.autograd.gradcheck(torch.exp, (torch.ones(2, requires_grad=True),), raise_exception=False)


def test_inputs_are_left_as_they_were():
    x = double(1.0, 2.0, 3.0)
    torch.autograd.gradcheck(torch.exp, (x,))
    assert x.tolist() == [1.0, 2.0, 3.0]
    assert x.grad is None


def test_given_weights_of_the_second_derivative():
    x, w = double(1.0, 2.0), double(0.5, -1.0)
    assert torch.autograd.gradgradcheck(torch.sin, (x,), (w,))
    assert torch.autograd.gradgradcheck(torch.sin, (x,), gen_non_contig_grad_outputs=True)


@pytest.mark.skipif(IS_PYTORCH, reason="PyTorch has no pair of derivatives")
def test_plain_and_fast_derivatives_are_compared():
    """Where a row has a fast derivative, gradcheck sees both; here both are taken by hand for 16 bits, where rounding could
    tell them apart: the plain form is computed in fp32 and rounded once, like the kernel."""
    rng = np.random.default_rng(0)
    names = {r["name"]: r for r in torch._C.op_rows() if r["fast"] not in ("f_none", None)}
    assert {"relu", "tanh", "sigmoid", "gelu", "softmax", "log_softmax"} <= names.keys()
    for dtype in (torch.float16, torch.bfloat16):
        values, weight = (torch.tensor(rng.standard_normal((16, 8)), dtype=dtype) for _ in range(2))
        for name, bound in (("relu", 0), ("tanh", 0), ("sigmoid", 0), ("softmax", 1), ("log_softmax", 1)):
            x = values.clone().requires_grad_()
            function = getattr(torch, name)
            y = function(x, 1) if "softmax" in name else function(x)
            (fast,) = torch.autograd.grad(y, x, weight, retain_graph=True)
            (plain,) = torch.autograd.grad(y, x, weight, create_graph=True)
            assert fast.dtype == plain.dtype == dtype
            difference = np.abs(fast.double().numpy() - plain.detach().double().numpy())
            unit = (
                np.spacing(np.abs(fast.float().numpy()).astype(np.float16))
                if dtype == torch.float16
                else 2.0**-7 * np.abs(fast.float().numpy())
            )
            assert np.all(difference <= bound * unit), name


@pytest.mark.parametrize("options", [{}, {"fast_mode": True}, {"check_grad_dtypes": True}], ids=str)
@pytest.mark.parametrize("size", [(0,), (0, 3), (2,)], ids=str)
def test_empty_inputs_and_outputs(size, options):
    def zeros(*shape):
        return torch.zeros(*shape, dtype=torch.float64, requires_grad=True)

    functions = (torch.sum, lambda a: a * 2, lambda a: (a.sum(), a * a), lambda a: a[:0], lambda a: (a[:0], a * a))
    for function in functions:
        assert torch.autograd.gradcheck(function, [zeros(*size)], **options) is True
        assert torch.autograd.gradgradcheck(function, [zeros(*size)], **options) is True
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda a, b: a.sum() + (b * b).sum(), [zeros(*size), zeros(0)], **options) is True
    assert torch.autograd.gradcheck(lambda a: a.detach(), [zeros(0)], **options) is True
