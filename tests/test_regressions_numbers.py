"""Faults that were found in how numbers, indices and probabilities enter tensors, one test each."""

import cmath
import math

import numpy as np
import pytest
from golden_tools import torch

F = torch.nn.functional
NAN = float("nan")
INF = float("inf")


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_a_complex_number_is_true_if_either_part_is_not_zero(dtype):
    z = torch.tensor([1j, 0, 2, complex(0, NAN)], dtype=torch.complex128).to(dtype)
    truth = [True, False, True, True]
    assert z.bool().tolist() == z.to(torch.bool).tolist() == truth
    assert z[::2].bool().tolist() == [True, True]
    assert torch.zeros(4, dtype=torch.bool).copy_(z).tolist() == truth
    assert z.nonzero().tolist() == torch.argwhere(z).tolist() == [[0], [2], [3]]
    assert torch.where(z)[0].tolist() == [0, 2, 3]
    assert z.any() and not z.all() and torch.count_nonzero(z) == 3


def test_an_imaginary_number_fills_bools_with_true():
    mask = torch.tensor([True, False])
    empty = torch.zeros(2, dtype=torch.bool)
    assert empty.clone().fill_(1j).tolist() == empty.clone().fill_(torch.tensor(1j)).tolist() == [True, True]
    assert empty.masked_fill(mask, 1j).tolist() == empty.masked_fill(mask, torch.tensor(1j)).tolist() == [True, False]
    assert torch.full((1,), 1j, dtype=torch.bool).item() and torch.full_like(empty, 1j).all()


I8 = torch.tensor([1, -2, 100], dtype=torch.int8)
U8 = torch.tensor([1, 2, 250], dtype=torch.uint8)
MASK = torch.tensor([True, False, True])


@pytest.mark.parametrize(
    "call",
    [
        lambda: I8.clamp(min=200),
        lambda: I8.clamp(max=-129),
        lambda: I8.clone().clamp_(min=128),
        lambda: U8.clamp(max=-1),
        lambda: I8.half().clamp(max=1e6),
        lambda: torch.where(MASK, I8, 300),
        lambda: torch.where(MASK, -129, I8),
        lambda: I8.where(MASK, 300),
        lambda: torch.full_like(I8, 300),
        lambda: torch.full_like(I8, -300, dtype=torch.uint8),
        lambda: I8.new_full((2,), 128),
        lambda: F.pad(U8, (1, 1), value=300),
        lambda: F.pad(U8, (1, 1), value=-1),
        lambda: torch.constant_pad_nd(U8, (1, 1), 300),
        lambda: F.threshold(U8, 1, 300),
        lambda: F.threshold(I8, 300, 1),
        lambda: I8**300,
        lambda: torch.add(I8, I8, alpha=300),
        lambda: torch.addcmul(I8, I8, I8, value=300),
        lambda: torch.index_add(I8, 0, torch.tensor([0]), I8[:1], alpha=300),
        lambda: torch.addmm(I8.reshape(1, 3), I8[:1].reshape(1, 1), I8.reshape(1, 3), alpha=300),
        lambda: torch.linspace(0, 300, 3, dtype=torch.int8),
    ],
)
def test_numbers_that_a_dtype_does_not_hold_are_refused(call):
    with pytest.raises(RuntimeError, match="without overflow|outside the representable range"):
        call()


def test_numbers_that_a_dtype_holds_after_all():
    assert I8.clamp(max=200).tolist() == I8.clamp(min=-200).tolist() == I8.tolist()
    assert U8.clamp(min=-1).tolist() == U8.tolist()
    assert I8.clamp(-128, 127).tolist() == I8.tolist()
    assert torch.where(MASK, I8, torch.tensor(300, dtype=torch.int16)).dtype == torch.int8
    assert torch.full_like(U8, -1).tolist() == [255] * 3
    assert torch.constant_pad_nd(U8, (1, 0), -1).tolist() == [255, 1, 2, 250]
    assert F.threshold(U8, 1, 7).tolist() == [7, 2, 250]
    assert torch.full_like(I8, 300, dtype=torch.bool).all()
    assert (I8 + 300).tolist() == [45, 42, -112]


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.empty(3, dtype=torch.uint8).random_(0, 300),
        lambda: torch.empty(3, dtype=torch.uint8).random_(-1, 3),
        lambda: torch.randint(0, 300, (3,), dtype=torch.uint8),
        lambda: torch.randint_like(U8, 257),
        lambda: torch.randint(-129, 3, (3,), dtype=torch.int8),
        lambda: torch.empty(3, dtype=torch.bool).random_(0, 3),
        lambda: torch.empty(3, dtype=torch.float16).random_(0, 65506),
        lambda: torch.randint(0, 2**31 + 1, (3,), dtype=torch.int32),
    ],
)
def test_draws_that_a_dtype_does_not_hold_are_refused(call):
    with pytest.raises(RuntimeError, match="is out of bounds for"):
        call()


def test_draws_up_to_the_last_value_of_a_dtype():
    assert torch.randint(255, 256, (2,), dtype=torch.uint8).tolist() == [255, 255]
    assert torch.randint(-128, -127, (2,), dtype=torch.int8).tolist() == [-128, -128]
    assert torch.empty(2, dtype=torch.bool).random_(1, 2).tolist() == [True, True]
    assert torch.empty(2, dtype=torch.float16).random_(65504, 65505).tolist() == [65504.0, 65504.0]


def test_the_method_where_keeps_the_tensor():
    assert I8.where(MASK, I8 * 0).tolist() == [1, 0, 100]
    assert I8.where(MASK, 3).tolist() == [1, 3, 100]
    x = torch.ones(3, requires_grad=True)
    x.where(MASK, torch.zeros(3)).sum().backward()
    assert x.grad.tolist() == [1, 0, 1]


def test_index_put_by_numbers_of_no_dimension():
    x = torch.arange(9.0).reshape(3, 3)
    assert x.index_put((torch.tensor(1),), torch.tensor(7.0)).tolist() == [[0, 1, 2], [7, 7, 7], [6, 7, 8]]
    y = x.clone()
    assert y.index_put_((torch.tensor(1), torch.tensor(2)), torch.tensor(7.0)) is y
    assert y.tolist() == [[0, 1, 2], [3, 4, 7], [6, 7, 8]]
    y.index_put_((torch.tensor(1), torch.tensor(2)), torch.tensor(2.0), accumulate=True)
    assert y[1].tolist() == [3, 4, 9]
    mixed = x.index_put((torch.tensor(1), torch.tensor([0, 2])), torch.tensor([7.0, 8.0]))
    assert mixed.tolist() == [[0, 1, 2], [7, 4, 8], [6, 7, 8]]
    masked = x.index_put((torch.tensor(True),), torch.tensor(5.0))
    assert masked.shape == x.shape and (masked == 5).all()
    with pytest.raises(IndexError):
        x.index_put((torch.tensor(-4),), torch.tensor(7.0))
    leaf, values = x.clone().requires_grad_(), torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (leaf.index_put((torch.tensor(1),), values) * x).sum().backward()
    assert leaf.grad.tolist() == [[0, 1, 2], [0, 0, 0], [6, 7, 8]] and values.grad.tolist() == [3, 4, 5]


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 1, 1, 1), (1, 2, 3, 3), (3,)])
def test_values_of_an_indexed_assignment_may_have_leading_ones(shape):
    x = torch.zeros(3, 3, 3)
    x[torch.tensor([0, 2])] = torch.ones(shape)
    assert x.sum(dim=(1, 2)).tolist() == [9, 0, 9]
    with pytest.raises(RuntimeError, match="shape mismatch"):
        x[torch.tensor([0, 2])] = torch.ones(2, 1, 3, 3)


def test_bernoulli_takes_a_probability_per_element():
    p = torch.tensor([0.0, 1.0, 1.0, 0.0])
    assert torch.full((2, 4), 7.0).bernoulli_(p).tolist() == [[0, 1, 1, 0]] * 2
    assert torch.zeros(4, dtype=torch.int64).bernoulli_(p=p.double()).tolist() == [0, 1, 1, 0]
    assert p.bernoulli_(p).tolist() == [0, 1, 1, 0]
    torch.manual_seed(0)
    drawn = torch.zeros(8).bernoulli_(torch.full((8,), 0.5))
    torch.manual_seed(0)
    assert drawn.tolist() == torch.bernoulli(torch.full((8,), 0.5)).tolist()
    assert torch.zeros(3).bernoulli_(1).tolist() == [1, 1, 1]


@pytest.mark.parametrize("p", [1.5, -0.1, NAN])
def test_probabilities_outside_0_to_1_are_refused(p):
    for call in (
        lambda: torch.bernoulli(torch.tensor([0.5, p])),
        lambda: torch.zeros(2).bernoulli_(torch.tensor([0.5, p])),
        lambda: torch.zeros(2).bernoulli_(torch.tensor(p)),
        lambda: torch.zeros(2).bernoulli_(p),
    ):
        with pytest.raises(RuntimeError, match="p_in|expects p to be in"):
            call()


def test_logsumexp_of_complex_numbers():
    z = np.array([[1 + 1j, 2 - 1j, -3 + 0.5j], [0, 2j, 1e3 + 1j]])
    expected = [cmath.log(sum(cmath.exp(v) for v in z[0])), 1e3 + 1j]
    np.testing.assert_allclose(torch.logsumexp(torch.tensor(z), 1).numpy(), expected, rtol=1e-14)
    none = torch.logsumexp(torch.tensor([complex(-INF, 0), complex(-INF, 1)]), 0)
    assert none.real == -INF


def test_a_dimension_with_one_out_is_no_elementwise_maximum():
    x = torch.arange(6.0).reshape(2, 3)
    for op in (torch.max, torch.min):
        for arguments in ((x, 1), (x, 1.5)):
            with pytest.raises(TypeError, match="must be tuple of Tensors|must be int"):
                op(*arguments, out=torch.empty(2))
    assert torch.max(x, torch.tensor(2.0)).tolist() == [[2, 2, 2], [3, 4, 5]]


def test_as_strided_far_beyond_the_storage():
    for size, stride, offset in (((2,), (2**63 - 1,), None), ((3,), (2**62,), 0), ((0, 2), (1, 2**63 - 1), -1)):
        with pytest.raises(RuntimeError, match="overflowed|require a storage|storage offset|out of bounds"):
            torch.zeros(3).as_strided(size, stride, offset)
    assert torch.zeros(3).as_strided((0, 2), (1, 2**63 - 1), 2**63 - 1).shape == (0, 2)


def test_integers_beyond_63_bits_beside_floating_tensors():
    n, ones = 2**63, torch.ones(2)
    assert (ones * n).tolist() == (n * ones).tolist() == (ones + n).tolist() == [2.0**63] * 2
    assert (torch.zeros(2) == n).tolist() == [False, False] and (ones < 2**64 - 1).all()
    assert torch.full((1,), n, dtype=torch.float32).tolist() == torch.full_like(ones[:1], n).tolist() == [2.0**63]
    assert ones.clone().fill_(n).tolist() == torch.where(ones > 0, n, ones).tolist() == [2.0**63] * 2
    for call in (
        lambda: torch.full((1,), n),
        lambda: torch.full((1,), n, dtype=torch.int64),
        lambda: torch.full_like(ones.long(), n),
        lambda: ones.long().fill_(n),
    ):
        with pytest.raises(RuntimeError, match="without overflow"):
            call()
    with pytest.raises((RuntimeError, OverflowError)):
        ones * 2**64


def test_complex_numbers_are_refused_where_nothing_can_hold_them():
    ones = torch.ones(2)
    for op in (torch.add, torch.sub, torch.rsub):
        with pytest.raises(RuntimeError, match="alpha must not be a complex number"):
            op(ones, ones, alpha=2j)
    calls = [
        lambda: torch.clamp(ones, 0.0, 1j),
        lambda: F.threshold(ones, 0.0, 1j),
        lambda: F.threshold(ones, 2j, 1),
        lambda: torch.addcmul(ones, ones, ones, value=1j),
        lambda: torch.addr(torch.ones(2, 2), ones, ones, beta=2j),
        lambda: torch.addr(torch.ones(2, 2), ones, ones, alpha=3j),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="value cannot be converted to type .* without overflow"):
            call()
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="alpha must not be a complex number"):
        x.add_(ones, alpha=2j)
    assert x.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="Boolean alpha only supported for Boolean results"):
        torch.add(ones, ones, alpha=True)
    assert torch.addr(torch.ones(1, 1, dtype=torch.complex64), ones[:1], ones[:1], beta=2j).tolist() == [[1 + 2j]]


@pytest.mark.parametrize("how", ["function", "method", "in place"])
def test_tensors_as_bounds_of_clamp_share_the_gradient_at_ties(how):
    def clamped(x, **bounds):
        if how == "function":
            return torch.clamp(x, **bounds)
        return x.clamp(**bounds) if how == "method" else (x * 1).clamp_(**bounds)

    def gradient(**bounds):
        x = torch.tensor([0.0, 1, 2, 3, 4], requires_grad=True)
        y = clamped(x, **bounds)
        y.sum().backward()
        return y.tolist(), x.grad.tolist()

    one, three = torch.tensor(1.0), torch.tensor(3.0)
    assert gradient(min=one) == ([1, 1, 2, 3, 4], [0, 0.5, 1, 1, 1])
    assert gradient(max=three) == ([0, 1, 2, 3, 3], [1, 1, 1, 0.5, 0])
    assert gradient(min=one, max=three) == ([1, 1, 2, 3, 3], [0, 0.5, 1, 0.5, 0])
    assert gradient(min=one.expand(5), max=three) == gradient(min=one, max=three)
    assert gradient(min=1.0, max=3.0) == gradient(min=one, max=3.0) == ([1, 1, 2, 3, 3], [0, 0, 1, 0, 0])
    with pytest.raises(TypeError, match="clamp"):
        clamped(torch.ones(5), min=1.0, max=three.expand(5))


def test_a_tensor_as_bound_takes_part_in_the_dtype_of_clamp():
    assert torch.clamp(torch.tensor([True, False]), min=torch.tensor(2, dtype=torch.int32)).dtype == torch.int32
    assert torch.clamp(torch.arange(3), torch.tensor(0.5)).tolist() == [0.5, 1, 2]
    assert torch.clamp(torch.ones(2).half(), torch.tensor(0.0, dtype=torch.float64)).dtype == torch.float16


@pytest.mark.parametrize(
    "x, low, high, expected",
    [
        (("uint8", [1, 200]), ("int64", -5), ("int64", [300, 300]), ("int64", [1, 200])),
        (("uint8", [1, 200]), ("int64", 300), ("int64", [400, 400]), ("int64", [300, 300])),
        (("int8", [1, 2]), ("int64", 200), ("float32", [1.5, 300]), ("float32", [1.5, 200])),
        (("float16", [0, 5]), ("float32", 2 + 2**-13), ("float32", [9, 9]), ("float32", [2 + 2**-13, 5])),
        (("float16", [0, 5]), ("float32", 2 + 2**-13), ("float64", 9), ("float16", [2, 5])),
        (("bool", [True, False]), ("float16", 0.5), ("float32", 2), ("float32", [1, 0.5])),
        (("int64", [1, 5]), ("float32", 2.5), ("float64", 3), ("float64", [2.5, 3])),
        (("int32", [1, 5]), ("bool", [True, False]), ("int8", 3), ("int32", [1, 3])),
        (("float32", [1, 5]), ("bfloat16", [2, 2]), ("float64", [3, 3]), ("float64", [2, 3])),
    ],
)
def test_all_arguments_of_clamp_are_compared_in_one_dtype(x, low, high, expected):
    x, low, high = (torch.tensor(value, dtype=getattr(torch, dtype)) for dtype, value in (x, low, high))
    dtype = getattr(torch, expected[0])
    with torch.autocast("cpu", torch.bfloat16):
        for y in (torch.clamp(x, low, high), x.clip(min=low, max=high)):
            assert (y.dtype, y.tolist()) == (dtype, expected[1])
    out = torch.empty(2, dtype=torch.float64)
    assert torch.clamp(x, low, high, out=out) is out and out.tolist() == expected[1]
    if torch.can_cast(dtype, x.dtype):
        assert x.clone().clamp_(low, high).tolist() == torch.tensor(expected[1]).to(x.dtype).tolist()
    else:
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
            x.clamp_(low, high)


@pytest.mark.parametrize("how", [torch.clamp, lambda x, *bounds: (x * 1).clamp_(*bounds)])
def test_arguments_of_clamp_get_gradients_of_their_own_dtypes(how):
    x = torch.tensor([0.0, 3, 5], requires_grad=True)
    low, high = (torch.tensor(v, dtype=d, requires_grad=True) for v, d in ((2.0, torch.float16), ([4.0] * 3, torch.bfloat16)))
    how(x, low, high).sum().backward()
    assert (x.grad.dtype, low.grad.dtype, high.grad.dtype) == (torch.float32, torch.float16, torch.bfloat16)
    assert (x.grad.tolist(), low.grad.tolist(), high.grad.tolist()) == ([0, 1, 0], 1, [0, 0, 1])


def test_clamp_refuses_what_has_no_order():
    flags = torch.tensor([True, False])
    for call in (lambda: torch.clamp(flags, flags, flags), lambda: torch.clamp(torch.ones(2), flags, torch.tensor(1j))):
        with pytest.raises(NotImplementedError, match="clamp"):
            call()


def test_a_weight_of_lerp_is_rounded_if_it_is_a_tensor():
    start, end = (torch.tensor(v, dtype=torch.bfloat16) for v in ([0.0, 1, 3.14, -2], [1.0, 2, 5.5, 7]))
    weight = torch.tensor(0.7003)
    expected = [0.69921875, 1.703125, 4.78125, 4.28125]
    assert torch.lerp(start, end, weight).tolist() == start.clone().lerp_(end, weight.double()).tolist() == expected
    assert torch.lerp(start, end, 0.7003).tolist() == [*expected[:3], 4.3125]


def test_complex_numbers_raised_in_double_precision():
    power = torch.float_power(2j, torch.tensor([1, 2]))
    assert power.dtype == torch.complex128 and abs(power - torch.tensor([2j, -4])).max() < 1e-14
    for x, exponent in ((torch.ones(2).double(), 2j), (torch.ones(2).double(), torch.tensor([1j, 2])), (torch.ones(2) * 1j, 2)):
        with pytest.raises(RuntimeError, match="requires dtype"):
            x.float_power_(exponent)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_finite_terms_beside_infinity_have_no_part_in_logsumexp(dtype):
    largest = torch.finfo(dtype).max
    for values, want in (
        ([INF, largest, 0.0, -INF], [math.nan, 0, 0, 0]), ([-INF, 0.0], [0, 1]), ([-INF, -INF], [math.nan] * 2),
        ([INF, INF], [math.nan] * 2), ([math.nan, 1.0], [math.nan] * 2), ([largest, -largest], [1, 0]),
    ):  # fmt: skip
        x = torch.tensor(values, dtype=dtype, requires_grad=True)
        y = torch.logsumexp(x, 0)
        (slope,) = torch.autograd.grad(y, x)
        assert str(slope.double().tolist()) == str([float(v) for v in want])
        assert str(y.item()) == str(x.detach().sum().item() if math.nan in values else max(values))
