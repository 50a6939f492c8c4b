"""Powers whose exponent is a number: values of the short kernels, and their gradients."""

import numpy as np
import pytest

import ampnative as torch

X = [2.5, -1.5, 0.375, -0.0, 0.0, np.inf, -np.inf, np.nan, 3e30, 1e-30]
STEPS = {
    0: lambda x: np.ones_like(x),
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -1: lambda x: 1 / x,
    -2: lambda x: 1 / (x * x),
    0.5: np.sqrt,
    -0.5: lambda x: 1 / np.sqrt(x),
}


@pytest.mark.parametrize("exponent", STEPS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@np.errstate(all="ignore")
def test_simple_exponents_take_the_steps_of_their_name(exponent, dtype):
    x = np.array(X * 40, dtype)
    t = torch.tensor(x)
    want = STEPS[exponent](x)
    for e in (exponent, float(exponent)):
        for got in (t**e, torch.pow(t, e), t.clone().pow_(e), (t.reshape(20, 20).t() ** e).t().reshape(-1)):
            assert got.numpy().tobytes() == want.tobytes() or np.array_equal(got.numpy(), want, equal_nan=True)
            assert np.array_equal(np.signbit(got.numpy())[want == want], np.signbit(want)[want == want])


@pytest.mark.parametrize("exponent", STEPS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_round_once(exponent, dtype):
    x = torch.rand(300).add(0.25).to(dtype)
    want = torch.pow(x.double(), exponent).to(dtype)
    got = x**exponent
    assert got.dtype == dtype
    assert float(((got.double() - want.double()).abs() / want.double()).max()) <= torch.finfo(dtype).eps


def test_float16_roots_of_minus_infinity_are_those_of_pow():
    x = torch.tensor([-np.inf, -0.0], dtype=torch.float16)
    assert (x**0.5).tolist() == [np.inf, 0.0] and (x**-0.5).tolist() == [0.0, np.inf]


def test_integers():
    x = torch.tensor([3, -4, 0])
    assert [(x**e).tolist() for e in (0, 1, 2, 3)] == [[1, 1, 1], [3, -4, 0], [9, 16, 0], [27, -64, 0]]
    assert (x**2.0).dtype == torch.float32 and (x**True).dtype == torch.int64


@pytest.mark.parametrize("exponent", STEPS)
def test_gradients(exponent):
    x = torch.tensor([0.5, 1.25, 3.0], requires_grad=True)
    (x**exponent).sum().backward()
    want = exponent * x.detach().double() ** (exponent - 1)
    assert np.allclose(x.grad.numpy(), want.numpy(), rtol=4 * 2.0**-24, atol=0)
