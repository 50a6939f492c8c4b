"""The C functions that take lists of tensors: arguments and rules beyond the recordings."""

import math

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

unscale, update = torch._amp_foreach_non_finite_check_and_unscale_, torch._amp_update_scale_
pytestmark = pytest.mark.filterwarnings("ignore")


def scalar(value, dtype=None, device="cpu"):
    return torch.tensor(value, dtype=dtype or torch.float32, device=device)


@pytest.fixture
def cuda():
    if IS_PYTORCH:
        pytest.skip("PyTorch has no CUDA without a GPU")
    torch.cuda.emulate()
    yield "cuda"
    torch.cuda.emulate(False)


def test_unscale_multiplies_and_flags():
    grads = [
        torch.tensor([2.0, -4.0]),
        torch.tensor([8.0], dtype=torch.float64),
        torch.tensor([2.0], dtype=torch.bfloat16),
    ]
    found = scalar(0.0)
    versions = [g._version for g in grads]
    unscale(grads, found, scalar(0.5))
    assert [g.tolist() for g in grads] == [[1.0, -2.0], [4.0], [1.0]] and found.item() == 0.0
    assert IS_PYTORCH or all(g._version > v for g, v in zip(grads, versions, strict=True))
    unscale([torch.tensor([1.0, math.nan])], found, scalar(0.5))
    assert found.item() == 1.0
    unscale([torch.tensor([3e38])], found2 := scalar(2.0), scalar(2.0))
    assert found2.item() == 2.0


@pytest.mark.parametrize(
    "call, error, phrase",
    [
        (lambda: unscale([torch.ones(2)], torch.zeros(2), scalar(1.0)), RuntimeError, "1-element tensor"),
        (lambda: unscale([torch.ones(2)], scalar(0.0), torch.ones(2)), RuntimeError, "1-element tensor"),
        (lambda: unscale([torch.ones(2)], scalar(0.0), scalar(1.0, torch.float64)), RuntimeError, "float tensor"),
        (lambda: unscale([torch.ones(2)], scalar(0, torch.int32), scalar(1.0)), RuntimeError, "float tensor"),
        (lambda: unscale([torch.ones(1).expand(3)], scalar(0.0), scalar(2.0)), RuntimeError, "share|single memory"),
        (lambda: unscale([3], scalar(0.0), scalar(2.0)), TypeError, ""),
        (lambda: unscale(3, scalar(0.0), scalar(2.0)), TypeError, ""),
        (
            lambda: update(scalar(1.0, torch.float64), scalar(0, torch.int32), scalar(0.0), 2, 0.5, 3),
            RuntimeError,
            "float",
        ),
        (lambda: update(scalar(1.0), scalar(0, torch.int64), scalar(0.0), 2, 0.5, 3), RuntimeError, "int"),
        (
            lambda: update(torch.ones(2), scalar(0, torch.int32), scalar(0.0), 2, 0.5, 3),
            RuntimeError,
            "1-element tensor",
        ),
        (
            lambda: update(scalar(1.0), scalar(0, torch.int32), torch.ones(2), 2, 0.5, 3),
            RuntimeError,
            "1-element tensor",
        ),
    ],
)
def test_refused_arguments(call, error, phrase):
    with pytest.raises(error, match=phrase):
        call()


def test_an_empty_list_is_not_checked():
    unscale([], torch.zeros(5, dtype=torch.int32), torch.zeros(5))


@pytest.mark.parametrize("dtype", ["int32", "int64", "float8_e4m3fn", "float8_e5m2", "bool"])
def test_earlier_gradients_are_done_before_a_bad_dtype_raises(dtype):
    first, last = torch.tensor([4.0, math.inf]), torch.tensor([4.0])
    found = scalar(0.0)
    with pytest.raises(NotImplementedError):
        unscale([first, torch.zeros(2).to(getattr(torch, dtype)), last], found, scalar(0.5))
    assert first.tolist() == [2.0, math.inf] and last.tolist() == [4.0] and found.item() == 1.0


def test_update_returns_the_scale_itself():
    scale, tracker = scalar(4.0), scalar(1, torch.int32)
    assert update(scale, tracker, scalar(0.0), 2.0, 0.5, 2) is scale
    assert scale.item() == 8.0 and tracker.item() == 0
    update(scale, tracker, scalar(-1.0), 2.0, 0.25, 2)
    assert scale.item() == 2.0 and tracker.item() == 0


def test_cuda_narrows_doubles_before_the_test(cuda):
    """The largest double that rounds to a finite fp32 passes, the next one does not; on the CPU both do."""
    edge = float.fromhex("0x1.ffffffp127")
    for value, flag in ((math.nextafter(edge, 0), 0.0), (edge, 1.0), (-1e300, 1.0), (math.nan, 1.0)):
        found = scalar(0.0, device=cuda)
        grad = torch.tensor([[1.0, value]], dtype=torch.float64, device=cuda)
        unscale([grad.t()], found, scalar(0.5, device=cuda))
        assert found.item() == flag, value
        assert grad.tolist()[0][0] == 0.5
        on_cpu = scalar(0.0)
        unscale([torch.tensor([value], dtype=torch.float64)], on_cpu, scalar(0.5))
        assert on_cpu.item() == float(math.isnan(value))


def test_cuda_bfloat16_and_quirks(cuda, monkeypatch):
    grad, found = torch.ones(2, dtype=torch.bfloat16, device=cuda), scalar(0.0, device=cuda)
    unscale([grad], found, scalar(0.5, device=cuda))
    assert grad.tolist() == [0.5, 0.5]
    monkeypatch.setenv("AMPNATIVE_TORCH_QUIRKS", "1")
    with pytest.raises(NotImplementedError):
        unscale([grad], found, scalar(0.5, device=cuda))
    assert grad.tolist() == [0.5, 0.5]


def test_devices_must_agree(cuda):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        unscale([torch.ones(2, device=cuda), torch.ones(2)], scalar(0.0, device=cuda), scalar(1.0, device=cuda))
    with pytest.raises(RuntimeError, match="must be on the CUDA device"):
        unscale([torch.ones(2, device=cuda)], scalar(0.0), scalar(1.0, device=cuda))
    with pytest.raises(RuntimeError, match="must be on the"):
        update(scalar(1.0, device=cuda), scalar(0, torch.int32), scalar(0.0, device=cuda), 2.0, 0.5, 3)


def test_cuda_compares_32_bits_of_the_interval(cuda):
    for device, grown in (("cpu", 1.0), (cuda, 2.0)):
        scale = scalar(1.0, device=device)
        update(scale, scalar(0, torch.int32, device), scalar(0.0, device=device), 2.0, 0.5, 2**32 + 1)
        assert scale.item() == grown


def test_one_optimizer_on_two_devices(cuda):
    ps = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2, device=cuda))]
    for make in (lambda: torch.optim.SGD(ps, lr=0.5, momentum=0.9), lambda: torch.optim.Adam(ps, lr=0.5)):
        optimizer = make()
        for p in ps:
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert ps[0].tolist() == ps[1].tolist() != [1.0, 1.0]
    norm = torch.nn.utils.clip_grad_norm_(ps, 1.0)
    assert norm.item() == 2.0 and norm.device.type == "cpu" and np.allclose(ps[1].grad.tolist(), 0.5)


@pytest.mark.skipif(IS_PYTORCH, reason="names of our own")
def test_optimizer_lists_are_checked():
    sgd = torch._C._sgd_
    p, g = torch.ones(2), torch.ones(3)
    rest = (0.1, 0.0, 0.0, 0.0, False, False, False, 1.0)
    with pytest.raises(RuntimeError, match="different shapes"):
        sgd([p], [g], None, *rest)
    with pytest.raises(RuntimeError, match="entries in the gradients"):
        sgd([p], [], None, *rest)
    with pytest.raises(RuntimeError, match="float32 but its entry"):
        sgd([p], [torch.ones(2, dtype=torch.float16)], None, *rest)
    with pytest.raises(RuntimeError, match="share memory"):
        sgd([torch.ones(1).expand(2)], [torch.ones(2)], None, *rest)
    with pytest.raises(TypeError, match="takes 11 arguments"):
        sgd([p], [p])
    many = [torch.ones(3) for _ in range(100)]
    sgd(many, [torch.ones(3) for _ in range(100)], None, *rest)
    assert all(np.allclose(q.tolist(), 0.9) for q in many)
