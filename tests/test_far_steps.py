"""Strides, steps, dilations and sizes at the ends of 64 bits: values where they are never used, errors where they are."""

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

F = torch.nn.functional
FAR = [2**31, 2**48, 2**61, 2**62, 2**63 - 1]

pytestmark = pytest.mark.skipif(IS_PYTORCH, reason="PyTorch's own arithmetic overflows here")


def _leaf(*shape):
    return torch.arange(1.0, 1.0 + int(np.prod(shape))).reshape(shape).requires_grad_()


def _used(x):
    """Which elements of a leaf a gradient came to."""
    return x.grad.ne(0).nonzero().tolist()


@pytest.mark.parametrize("step", FAR)
def test_slices(step):
    x = _leaf(5, 7)
    y = x[::step]
    assert y.tolist() == x[:1].tolist()
    y.sum().backward()
    assert x.grad.tolist() == [[1.0] * 7] + [[0.0] * 7] * 4
    z = x.detach()[2:, ::step][1:, ::step]
    assert z.tolist() == [[22.0], [29.0]] and z.numpy().tolist() == z.tolist() and z.sum().item() == 51
    assert (z + z.t()).tolist() == [[44.0, 51.0], [51.0, 58.0]] and z.sum(1).tolist() == [22, 29] and z.unsqueeze(1).shape == (2, 1, 1)
    z[[1, 0]] = z.clone()
    assert z.tolist() == [[29.0], [22.0]] and z.gather(0, torch.tensor([[1]])).item() == 22 and z.contiguous().cumsum(0)[1].item() == 51
    assert x.detach().double()[::step, ::step].to(torch.complex128)[::step].numpy().tolist() == [[1]]


@pytest.mark.parametrize("stride", FAR)
def test_windows_of_memory(stride):
    x = _leaf(6)
    y = torch.as_strided(x, (1, 3, 1), (stride, 2, stride))
    assert y.tolist() == [[[1.0], [3.0], [5.0]]] and y.detach().numpy().sum() == 9 and (y * 2).sum((0, 2)).tolist() == [2, 6, 10]
    assert y.permute(2, 1, 0).contiguous().flatten().tolist() == [1, 3, 5] and y[:, [2, 0]].flatten().tolist() == [5, 1]
    y.sum().backward()
    assert _used(x) == [[0], [2], [4]]
    nothing = torch.as_strided(x.detach(), (0, 5, stride), (1, stride, stride))
    assert nothing.shape == (0, 5, stride) and nothing.sum().item() == 0 and nothing[:, 2].numel() == 0 and nothing[:, :, 3:].numel() == 0
    with pytest.raises(RuntimeError):
        torch.as_strided(x, (2,), (stride,))


@pytest.mark.parametrize("step", FAR)
def test_unfolded_lines(step):
    x = _leaf(3, 5)
    y = x.unfold(1, 2, step)
    assert y.tolist() == [[[1.0, 2.0]], [[6.0, 7.0]], [[11.0, 12.0]]]
    y.sum().backward()
    assert x.grad.tolist() == [[1, 1, 0, 0, 0]] * 3


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("far", FAR)
def test_convolutions(dims, far):
    conv, transposed = (getattr(F, f"conv{'_transpose' * t}{dims}d") for t in (0, 1))
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x, w = torch.ones((2, 2) + (5,) * dims, dtype=dtype), torch.ones((2, 2) + (3,) * dims, dtype=dtype)
        one = torch.full((2, 2) + (1,) * dims, 2.0, dtype=dtype)
        for stride, dilation, weight in ((far, 1, w), (far, far, one), (1, far, one)):
            a, b = x.clone().requires_grad_(), weight.clone().requires_grad_()
            y = conv(a, b, stride=stride, dilation=dilation)
            want = conv(x, weight, stride=min(stride, 5))
            assert y.shape == want.shape and y.tolist() == want.tolist()
            y.sum().backward()
            c, d = x.clone().requires_grad_(), weight.clone().requires_grad_()
            conv(c, d, stride=min(stride, 5)).sum().backward()
            assert a.grad.tolist() == c.grad.tolist() and b.grad.tolist() == d.grad.tolist()
        dot = torch.ones((2, 2) + (1,) * dims, dtype=dtype)
        a, b = dot.clone().requires_grad_(), w.clone().requires_grad_()
        y = transposed(a, b, stride=far)
        assert y.tolist() == transposed(dot, w).tolist()
        y.sum().backward()
        assert a.grad.tolist() == torch.full_like(dot, 2.0 * 3**dims).tolist() and b.grad.tolist() == torch.full_like(w, 2.0).tolist()


def test_convolutions_of_one_channel_each():
    for far in FAR:
        x, w = _leaf(1, 4, 6, 6), torch.ones(4, 1, 3, 3)
        y = F.conv2d(x, w, stride=far, groups=4)
        assert y.shape == (1, 4, 1, 1) and y[0, 0].item() == x.detach()[0, 0, :3, :3].sum().item()
        y.sum().backward()
        assert x.grad.sum().item() == 36


@pytest.mark.parametrize("far", FAR)
def test_folded_windows(far):
    x = _leaf(1, 1, 4, 4)
    y = F.unfold(x, (2, 1), stride=far, dilation=(1, far))
    assert y.tolist() == [[[1.0], [5.0]]]
    y.sum().backward()
    assert _used(x) == [[0, 0, 0, 0], [0, 0, 1, 0]]
    back = F.fold(y.detach(), (4, 4), (2, 1), stride=far, dilation=(1, far))
    assert back.sum().item() == 6 and back[0, 0, 1, 0].item() == 5


@pytest.mark.parametrize("far", [2**60, 2**61, 2**62, 2**63 - 1])
def test_paddings_that_are_refused_or_too_large(far):
    x, w = torch.ones(1, 1, 4), torch.ones(1, 1, 3)
    for call in (
        lambda: F.conv1d(x, w, padding=far), lambda: F.unfold(x[None], (1, 2), padding=far), lambda: F.conv_transpose1d(x, w, stride=far),
        lambda: F.conv_transpose1d(x, w, stride=far, padding=far),
    ):  # fmt: skip
        with pytest.raises((RuntimeError, OverflowError, MemoryError, ValueError)):
            call()
    half = min(far, 2**60) // 2
    assert F.conv1d(x, torch.ones(1, 1, 1), stride=2 * half, padding=half).tolist() == [[[0.0, 0.0]]]
    assert F.conv1d(x, torch.ones(1, 1, 1), stride=half, padding=half).tolist() == [[[0.0, 1.0, 0.0]]]


@pytest.mark.parametrize("shape", [(2**62, 0), (0, 2**62), (2**31, 0, 2**31), (0, 2**31, 2**31)])
def test_empty_tensors_of_huge_shape(shape):
    x = torch.empty(shape)
    assert (x + 1).shape == shape and x.t().contiguous().numel() == 0 if x.dim() == 2 else x.transpose(0, 2).contiguous().numel() == 0
    assert x.sum().item() == 0 and x.prod().item() == 1 and torch.linalg.vector_norm(x).item() == 0 and bool(x.all())
    assert x.unsqueeze(0).shape == (1, *shape) and x[..., 2**30 :].numel() == 0 and x.double().numel() == 0
    assert x.diagonal(2**30).numel() == 0 and x.reshape(0, 5).sum(0).tolist() == [0.0] * 5
    if shape[0]:
        assert x[shape[0] - 1].numel() == 0 and x[:: shape[0] - 1].numel() == 0


def test_decimals():
    assert torch.round(torch.tensor([123.456]), decimals=-(2**63)).isnan().item()
    assert torch.round(torch.tensor([123.456]), decimals=2**63 - 1).isnan().item()
