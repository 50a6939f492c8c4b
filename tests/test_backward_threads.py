"""Threads whose backward passes end in the same parameters: every gradient arrives, as PyTorch promises."""

import gc
import threading

import pytest

import ampnative as torch


def run_together(count, work):
    start = threading.Barrier(count)

    def go():
        start.wait()
        work()

    threads = [threading.Thread(target=go) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("there", [True, False], ids=["added", "first"])
def test_no_gradient_is_lost(there):
    for _ in range(12):
        weight = torch.zeros(500_000, 4, requires_grad=True)
        if there:
            weight.grad = torch.zeros(500_000, 4)
        run_together(4, lambda weight=weight: weight.sum().backward())
        assert float(weight.grad.min()) == float(weight.grad.max()) == 4


@pytest.mark.filterwarnings("ignore:Using backward")
def test_nor_with_a_graph_of_its_own():
    weight = torch.ones(300_000, requires_grad=True)
    for _ in range(8):
        weight.grad = None
        run_together(3, lambda: (weight * weight).sum().backward(create_graph=True))
        assert float(weight.grad.detach().min()) == float(weight.grad.detach().max()) == 6
    weight.grad = None


@pytest.mark.filterwarnings("ignore:Using backward")
def test_nor_where_only_some_keep_a_graph():
    weight = torch.ones(300_000, requires_grad=True)
    for _ in range(20):
        weight.grad = torch.zeros(300_000)
        kinds = [True, False, True, False]
        run_together(4, lambda kinds=kinds: (weight * 2).sum().backward(create_graph=kinds.pop()))
        assert float(weight.grad.detach().min()) == float(weight.grad.detach().max()) == 8
    weight.grad = None


def test_gradients_under_two_scales_are_marked_as_mixed():
    for _ in range(15):
        weight = torch.zeros(1_000_000, requires_grad=True)
        weight.grad = torch.zeros(1_000_000)
        scalers = [torch.amp.GradScaler("cpu", init_scale=scale) for scale in (8.0, 4.0)]
        run_together(2, lambda weight=weight, scalers=scalers: scalers.pop().scale(weight.sum() * 1).backward())
        (scale,) = torch._C._loss_scales([weight.grad])
        assert scale != scale and float(weight.grad.max()) == 12


def test_gradients_that_were_replaced_are_freed():
    weight = torch.zeros(300_000, requires_grad=True)
    for _ in range(3):
        weight.grad = None
        run_together(4, lambda: weight.sum().backward())
    gc.collect()
    before = torch.cpu.memory_allocated()
    for _ in range(10):
        weight.grad = None
        run_together(4, lambda: weight.sum().backward())
    gc.collect()
    assert torch.cpu.memory_allocated() == before


def test_a_pass_inside_a_turn():
    """The gradient that is replaced runs a pass of its own over the same parameter."""
    weight = torch.zeros(5000, requires_grad=True)
    passes = []

    class Watcher(torch.Tensor):
        def __del__(self):
            passes.append(1)
            if len(passes) == 1:
                weight.sum().backward()

    weight.grad = torch.zeros(5000).as_subclass(Watcher)
    weight.sum().backward(create_graph=True)
    assert len(passes) == 1
    weight.sum().backward()
    assert weight.grad is not None and float(weight.grad.detach().min()) >= 2


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_gradient_with_a_graph_is_the_leafs_own():
    """Leaves, and whoever gave the root's gradient, do not share memory with it; it has no element twice."""
    a, b = (torch.zeros(3, 4).t().detach().requires_grad_() for _ in range(2))
    root = torch.ones(4, 3)
    ((a + b) * torch.ones(4, 3)).backward(root, create_graph=True)
    assert len({a.grad.data_ptr(), b.grad.data_ptr(), root.data_ptr()}) == 3
    assert a.grad.stride() == a.stride() and torch.equal(a.grad, torch.ones(4, 3))
    turned = torch.ones(20, 30, requires_grad=True)
    (turned.t() ** 2).sum().backward(create_graph=True)
    assert turned.grad.stride() == (30, 1)
    turned.grad = None
    c = torch.zeros(5, requires_grad=True)
    (c + c).sum().backward(create_graph=True)
    assert c.grad.stride() == (1,)
    assert float(torch.nn.utils.clip_grad_norm_([c], 100.0)) == pytest.approx(2 * 5**0.5)
    (c * 3).sum().backward()
    assert c.grad.tolist() == [5.0] * 5
    d = torch.ones(3, requires_grad=True)
    (d**3).sum().backward(create_graph=True)
    (second,) = torch.autograd.grad(d.grad.sum(), d)
    assert second.tolist() == [6.0] * 3
    d.grad = None


@pytest.mark.parametrize("shape", [(3, 4), (700, 500)])
def test_a_gradient_lies_as_its_parameter(shape):
    for make in (lambda x: x.t(), lambda x: x):
        leaf = make(torch.rand(shape)).detach().requires_grad_()
        leaf.exp().sum().backward()
        assert leaf.grad.stride() == leaf.stride()
        assert torch.equal(leaf.grad, leaf.exp())
    images = torch.rand(2, 3, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
    (images * 2).sum().backward()
    assert images.grad.stride() == images.stride()
    spread = torch.rand(4, 1).expand(4, 3).detach().requires_grad_()
    (spread * 3).sum().backward()
    assert spread.grad.is_contiguous()
