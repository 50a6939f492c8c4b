"""Numbers that ops get beside tensors: which are rounded or refused beside 16 bits, integers and bool, as PyTorch does."""

import math

import pytest
from golden_tools import torch

F = torch.nn.functional
NARROW = [
    lambda x, v: F.hardtanh(x, -v, v), lambda x, v: F.hardtanh_(x, -v, v), F.hardshrink, lambda x, v: torch.logit(x, v),
    lambda x, v: x**v, lambda x, v: x.pow_(v), lambda x, v: x.clamp(max=v), lambda x, v: torch.sub(x, x, alpha=v),
    lambda x, v: F.threshold(x, 0.5, v), F.softshrink,
]  # fmt: skip
WIDE = [
    F.leaky_relu, F.elu, F.celu, F.softplus, lambda x, v: F.softplus(x, 1.0, v), lambda x, v: F.threshold(x, v, 0.5),
    lambda x, v: torch.lerp(x, x, v), lambda x, v: x.lerp_(x, v), lambda x, v: F.leaky_relu_(x, v), lambda x, v: F.elu_(x, v),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "large"), [(torch.float16, 65519.0), (torch.bfloat16, 3.395e38)])
def test_numbers_that_kernels_round_first_fit_the_dtype(dtype, large):
    for call in NARROW:
        for number in (large, 1e39):
            with pytest.raises(RuntimeError, match="without overflow|must be in range"):
                call(torch.ones(3, dtype=dtype), number)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_numbers_fit_fp32(dtype):
    for call in WIDE:
        call(torch.ones(3, dtype=dtype), 70000.0)
        with pytest.raises(RuntimeError, match="without overflow"):
            call(torch.ones(3, dtype=dtype), 1e39)
    assert F.leaky_relu(-torch.ones(2, dtype=torch.float64), 1e39).tolist() == [-1e39] * 2
    assert torch.nan_to_num(torch.tensor([math.nan], dtype=dtype), 1e39).isinf().all()


def test_bounds_are_rounded_beside_16_bits():
    x = torch.tensor([-0.0, 1e-4], dtype=torch.float16).repeat(32)
    assert math.copysign(1, x.clamp(min=1e-9)[0].item()) == -1  # 1e-9 is 0 there
    assert math.copysign(1, x.float().clamp(min=1e-9)[0].item()) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_leaky_relu_of_zero_multiplies(dtype):
    x = torch.tensor([0.0, 1.0] * 16, dtype=dtype)
    assert math.isnan(F.leaky_relu(x, math.nan)[0]) and math.isnan(F.leaky_relu(x, math.inf)[0])
    assert math.copysign(1, F.leaky_relu(x, -0.5)[0].item()) == -1 and F.leaky_relu(x, math.nan)[1] == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_i0_of_infinity(dtype):
    x = torch.tensor([math.inf, -math.inf, 0.0, 12.0], dtype=dtype)
    got = torch.i0(x)
    assert got.isnan().tolist() == [True, True, False, False] and got[2].item() == pytest.approx(1)
    assert torch.special.i1(x).isnan().tolist() == [True, True, False, False]


def test_bool_tensors_beside_numbers():
    b = torch.tensor([True, False])
    assert torch.add(b, b, alpha=-1).tolist() == [True, False] and torch.add(b, b, alpha=0).tolist() == [True, False]
    assert torch.add(b, ~b, alpha=2.5 > 1).tolist() == [True, True]
    assert torch.add(b, ~b, alpha=0).tolist() == [True, False]
    for bounds, wanted in [({"min": 300}, [300, 300]), ({"max": -1}, [-1, -1]), ({"min": 0, "max": True}, [1, 0])]:
        got = b.clamp(**bounds)
        assert got.dtype == torch.int64 and got.tolist() == wanted
    assert b.clamp(max=0.5).dtype == torch.float32
    for call in [
        lambda: b.clamp(max=True), lambda: torch.fmod(b, True), lambda: torch.remainder(b, b), lambda: torch.addcmul(b, b, b),
        lambda: F.softsign(b), lambda: F.tanhshrink(b), lambda: torch.lerp(b.long(), b.long(), 0.5),
    ]:  # fmt: skip
        with pytest.raises(NotImplementedError):
            call()
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        b.clamp_(max=2)
    with pytest.raises(RuntimeError, match="Boolean alpha only supported for Boolean results"):
        torch.add(b, 1, alpha=True)


def test_hardtanh_of_integers():
    x = torch.tensor([0, 9, -4], dtype=torch.int32)
    assert F.hardtanh(x, -2.5, 3e9).tolist() == [0, 9, -2]
    for number in (math.nan, math.inf):
        with pytest.raises(RuntimeError, match="without overflow"):
            F.hardtanh(x, -2, number)
    for call in (F.elu, F.leaky_relu, F.hardshrink, F.softplus):
        with pytest.raises(NotImplementedError):
            call(x, 3e9)


def test_ranges_of_uniform_numbers():
    with pytest.raises(RuntimeError, match="to is out of bounds"):
        torch.ones(2, dtype=torch.float16).uniform_(0, 70000)
    with pytest.raises(RuntimeError, match="from is out of bounds"):
        torch.ones(2).uniform_(-math.inf, 0)
    with pytest.raises(RuntimeError, match="upper bound must be finite"):
        F.rrelu(torch.ones(2), 0.1, math.inf)
    for number in (math.inf, math.nan, -1.0):
        with pytest.raises(RuntimeError, match="lambda must be in range"):
            F.softshrink(torch.ones(2), number)
