"""Small functions that scripts meet now and then, types by name, and questions about the device's memory."""

import math

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

ours = pytest.mark.skipif(IS_PYTORCH, reason="needs the emulated device")


@pytest.mark.parametrize("name", ["abs", "ceil", "exp", "sigmoid", "sqrt", "relu", "neg", "round", "trunc", "zero", "clamp_", "fill_"])
def test_in_place_functions(name):
    name = name.rstrip("_") + "_"
    args = {"clamp_": (1.0, 2.0), "fill_": (7.0,)}.get(name, ())
    x = torch.tensor([0.25, 1.6, 2.5])
    wanted = getattr(x.clone(), name)(*args)
    assert getattr(torch, name)(x, *args) is x and torch.equal(x, wanted)


def test_values():
    x = torch.tensor([[1.0, -2], [3, 0.5]])
    mantissa, exponent = torch.frexp(x)
    assert mantissa.tolist() == [[0.5, -0.5], [0.75, 0.5]] and exponent.tolist() == [[1, 2], [2, 0]] and exponent.dtype == torch.int32
    with pytest.raises(RuntimeError, match="only supports floating-point dtypes"):
        torch.frexp(x.long())
    i = torch.tensor([[5, 0], [23, 7]])
    assert [t.tolist() for t in torch.unravel_index(i, (2, 3, 4))] == [a.tolist() for a in np.unravel_index(i.numpy(), (2, 3, 4))]
    assert torch.clamp_max(x, 1).tolist() == [[1, -2], [1, 0.5]] and x.clamp_min(0).tolist() == [[1, 0], [3, 0.5]]
    assert torch.fill(x, 3).tolist() == [[3, 3], [3, 3]] and torch.ger(x[0], x[1]).tolist() == [[3, 0.5], [-6, -1]]
    assert torch.nonzero_static(x, size=5).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [-1, -1]]
    assert torch.nonzero_static(x, size=1).tolist() == [[0, 0]]
    assert x.sum_to_size(2).tolist() == [4, -1.5] and x.sum_to_size(1, 2).tolist() == [[4, -1.5]]
    with pytest.raises(RuntimeError, match="is not expandable to size"):
        x.sum_to_size(3)
    assert x.clone().apply_(lambda v: 2 * v).equal(2 * x) and x.clone().map_(x, lambda a, b: a + b).equal(2 * x)
    assert torch.scalar_tensor(3).dtype == torch.float32 and torch.scalar_tensor(3).shape == ()
    with pytest.warns(UserWarning, match="torch.range is deprecated"):
        assert torch.range(1, 2.5, 0.5).tolist() == [1, 1.5, 2, 2.5]
    assert (torch.inf, torch.pi, torch.e, torch.newaxis) == (math.inf, math.pi, math.e, None) and math.isnan(torch.nan)
    assert torch.unsafe_split(x, 1)[1].tolist() == [[3, 0.5]] and torch.unsafe_chunk(x, 2)[0].tolist() == [[1, -2]]


def test_questions():
    x, y = torch.ones(2, 3), torch.ones(1, dtype=torch.uint8)
    assert torch.is_nonzero(y) and torch.is_signed(x) and not y.is_signed() and not torch.is_same_size(x, y)
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        torch.is_nonzero(x)
    assert not (torch.is_conj(x) or torch.is_neg(x) or x.is_shared() or x.is_nested or x.is_xpu or x.is_mps)
    assert torch.resolve_conj(x) is x and x.resolve_neg() is x and x.to_dense() is x and x.dense_dim() == 2 and x.sparse_dim() == 0
    assert torch.get_device(x) == -1 and x.T.dim_order() == (1, 0) and x.const_data_ptr() == x.data_ptr()
    assert x.new(2, 3).shape == (2, 3) and x.new([1, 2]).tolist() == [1, 2]
    assert type(x.as_subclass(torch.nn.Parameter)) is torch.nn.Parameter
    assert torch.typename(x) == "torch.FloatTensor" and torch.typename(torch.nn.Linear).endswith(".linear.Linear")
    assert x.cfloat().dtype == torch.complex64 and torch.get_device_module("cpu") is torch.cpu


def test_random_numbers():
    """Recorded: PyTorch's for a seed."""

    def drawn(call):
        torch.manual_seed(0)
        return call().tolist()

    assert drawn(lambda: torch.empty(4).random_(0, 10)) == [4, 9, 3, 0] == drawn(lambda: torch.empty(4, dtype=torch.int64).random_(10))
    assert drawn(lambda: torch.empty(3).random_()) == [8325664, 12888472, 1484222]
    assert drawn(lambda: torch.empty(3, dtype=torch.int64).random_()) == [900450186894289455, 3969543146641149120, 1895649597198586619]
    assert drawn(lambda: torch.empty(3, dtype=torch.uint8).random_()) == [172, 47, 117]
    assert drawn(lambda: torch.empty(3, dtype=torch.bool).random_()) == [False, True, True]
    assert drawn(lambda: torch.empty(3, dtype=torch.float16).random_()) == [1277, 1017, 1661]
    assert drawn(lambda: torch.empty(18).log_normal_())[:3] == pytest.approx([59.263, 1.5116, 0.034819], rel=1e-4)
    assert drawn(lambda: torch.randint_like(torch.zeros(3), 10)) == [4, 9, 3]
    assert drawn(lambda: torch.randint_like(torch.zeros(3, dtype=torch.int64), 2, 5)) == [4, 2, 4]
    with pytest.raises(RuntimeError, match="random_ expects 'from' to be less than 'to'"):
        torch.empty(3).random_(5, 5)


def test_types_by_name():
    x = torch.ones(2)
    assert x.type() == "torch.FloatTensor" and x.half().type() == "torch.HalfTensor" and x.long().type() == "torch.LongTensor"
    for kind, dtype in (("torch.DoubleTensor", torch.float64), (torch.BFloat16Tensor, torch.bfloat16), (torch.int32, torch.int32)):
        assert x.type(kind).dtype == dtype
    with pytest.raises(ValueError, match="invalid type: 'torch.NoTensor'"):
        x.type("torch.NoTensor")
    try:
        with pytest.warns() if IS_PYTORCH else pytest.MonkeyPatch.context():
            torch.set_default_tensor_type(torch.DoubleTensor)
        assert torch.ones(1).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@ours
def test_types_and_memory_of_the_device():
    with torch.cuda.emulate():
        x = torch.ones(2).type("torch.cuda.HalfTensor")
        assert x.device.type == "cuda" and x.dtype == torch.float16 and x.type() == "torch.cuda.HalfTensor"
        assert isinstance(x, torch.cuda.HalfTensor) and not isinstance(x, torch.HalfTensor)
        assert torch.cuda.FloatTensor([1, 2]).is_cuda and torch.get_device(x) == 0
        free, whole = torch.cuda.mem_get_info()
        stats = torch.cuda.memory_stats()
        assert 0 < free < whole and 4 <= stats["allocated_bytes.all.current"] <= stats["reserved_bytes.all.current"]
        assert torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved() == torch.cuda.memory_cached()
        assert f"{stats['allocation.all.allocated']:,}" in torch.cuda.memory_summary()
        states = torch.cuda.get_rng_state_all()
        first = torch.rand(3, device="cuda")
        torch.cuda.set_rng_state_all(states)
        assert torch.equal(torch.rand(3, device="cuda"), first)
        torch.cuda.manual_seed(4)
        assert torch.cuda.initial_seed() == 4
        with pytest.raises(ValueError, match="Invalid fraction value"):
            torch.cuda.set_per_process_memory_fraction(2)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extrema_of_no_dim_given_are_of_all(name):
    f, most = getattr(torch, name), 5.0 if name == "amax" else 0.0
    x = torch.arange(6.0).view(2, 3)
    for y in (f(x, None), f(x, dim=None), f(x), f(x, ()), getattr(x, name)(None), getattr(x, name)(dim=None)):
        assert y.shape == () and y.item() == most
    for y in (f(x, None, True), f(x, dim=None, keepdim=True), getattr(x, name)(keepdim=True)):
        assert y.tolist() == [[most]]
    for keepdim in (False, True):
        x.requires_grad_().grad = None
        f(x, None, keepdim).sum().backward()
        assert x.grad.tolist() == (x == most).float().tolist()


def test_any_and_all_without_a_dim():
    x = torch.tensor([[0, 2], [3, 0]])
    assert torch.any(x, keepdim=True).tolist() == [[True]] and x.all(keepdim=True).tolist() == [[False]]
    for f in (torch.any, torch.all):
        assert f(x, None).shape == () and f(x, ()).tolist() == f(x.t(), dim=[]).t().tolist() == [[False, True], [True, False]]
