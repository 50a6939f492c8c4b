"""saved_tensors_hooks that keep another dtype than they were given; where hooks are forbidden."""

import pytest

import ampnative as torch
from ampnative.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks

F = torch.nn.functional
classes = torch.tensor([0, 1, 2, 3, 0, 1])
weight = torch.tensor([1.0, 2.0, 0.5, 1.5])
KEEPING = {
    "layer_norm": lambda x: F.layer_norm(x, (4,)).exp(),
    "weighted layer_norm": lambda x: F.layer_norm(x, (4,), weight.to(x.dtype)).exp(),
    "group_norm": lambda x: F.group_norm(x, 3).exp(),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True).exp(),
    "instance_norm": lambda x: F.instance_norm(x).exp(),
    "rms_norm": lambda x: F.rms_norm(x, (4,)).exp(),
    "cross_entropy": lambda x: F.cross_entropy(x.reshape(6, 4), classes),
    "weighted cross_entropy": lambda x: F.cross_entropy(x.reshape(6, 4), classes, weight.to(x.dtype)),
    "smoothed cross_entropy": lambda x: F.cross_entropy(x.reshape(6, 4), classes, label_smoothing=0.1),
    "ctc_loss": lambda x: F.ctc_loss(x.log_softmax(-1), classes[1:4].view(3, 1), torch.tensor([2] * 3), torch.tensor([1] * 3)),
    "logsumexp": lambda x: x.logsumexp(-1),
    "softmax": lambda x: x.softmax(-1).exp(),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "std": lambda x: x.std(-1),
    "matmul": lambda x: x @ x.mT,
    "exp": torch.exp,
}


def slope(f, dtype, pack=None, unpack=None):
    x = (torch.arange(24.0).view(2, 3, 4) * 1.7).sin().to(dtype).requires_grad_()
    if pack is None:
        y = f(x)
    else:
        with saved_tensors_hooks(pack, unpack):
            y = f(x)
    y.sum().backward()
    return x.grad


def narrowed(t):
    return t.bfloat16() if t.is_floating_point() else t


def widened(t):
    return t.float() if t.is_floating_point() else t


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", KEEPING)
def test_hooks_that_compress(name, dtype):
    f = KEEPING[name]
    got, true = slope(f, dtype, narrowed, widened), slope(f, dtype)
    assert got.dtype is dtype and (got - true).abs().max() <= 0.03 * true.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [n for n in KEEPING if "norm" in n or "entropy" in n or "ctc" in n])
def test_statistics_do_not_pass_through_hooks(name, dtype):
    seen = []
    got = slope(KEEPING[name], dtype, lambda t: seen.append(t.dtype) or t, lambda t: t)
    assert set(seen) <= {dtype, torch.int64}
    assert got.tolist() == slope(KEEPING[name], dtype).tolist()


def test_unpack_may_give_another_floating_dtype():
    x = torch.ones(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: t.half(), lambda t: t):
        y = x * x * x
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(g.sum(), x)
    assert g.dtype is torch.float32 and g.tolist() == [3.0] * 3 and second.tolist() == [6.0] * 3


@pytest.mark.parametrize("unpack", [lambda t: t[:2], lambda t: t.view(3, 1), lambda t: t.int(), lambda t: t.to("meta")])
def test_unpack_gives_shape_device_and_kind(unpack):
    x = torch.ones(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: t, unpack):
        y = x * x
    with pytest.raises(RuntimeError, match="differs in shape, dtype or device"):
        y.sum().backward()


def test_hooks_are_not_forbidden_where_they_are_active():
    found, x = [], torch.ones(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: found.append(1) or t, lambda t: t):
        with pytest.raises(RuntimeError, match="no hooks here"):
            disable_saved_tensors_hooks("no hooks here").__enter__()
        x * x
    assert len(found) == 2
    with disable_saved_tensors_hooks("outer"):
        with disable_saved_tensors_hooks("inner"), pytest.raises(RuntimeError, match="inner"):
            saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
        with pytest.raises(RuntimeError, match="outer"):
            saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
    with saved_tensors_hooks(lambda t: found.append(1) or t, lambda t: t):
        x * x
    assert len(found) == 4


def test_forbidding_hooks_decorates_functions():
    @disable_saved_tensors_hooks("not in here")
    def enter(n):
        if n:
            return enter(n - 1)
        with pytest.raises(RuntimeError, match="not in here"):
            saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
        return "left"

    assert enter(0) == enter(2) == "left" and enter.__name__ == "enter"
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        pass
