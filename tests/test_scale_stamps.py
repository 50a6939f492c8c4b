"""Gradients carry the loss scale that they were made with: clipping them, or unscaling them by another one, is told."""

import warnings

import numpy as np
import pytest

import ampnative as torch
from ampnative import amp

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _no_strictness(monkeypatch):
    monkeypatch.delenv("AMPNATIVE_STRICT", raising=False)


def made(scale=8.0, **kwargs):
    p = torch.nn.Parameter(torch.full((3,), 2.0))
    return p, torch.optim.SGD([p], lr=1.0), amp.GradScaler("cpu", init_scale=scale, **kwargs)


def told(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(w.message) for w in caught]


def test_b021_another_scalers_gradients_are_told():
    p, optimizer, a = made(8.0)
    b = amp.GradScaler("cpu", init_scale=4.0)
    b.scale(torch.ones(()))
    a.scale(p.sum()).backward()
    (text,) = told(lambda: b.unscale_(optimizer))
    assert "unscales by 4 gradients that were made under the loss scale 8" in text and "ScalerGroup" in text
    assert p.grad.tolist() == [2.0] * 3  # as in PyTorch
    b.update()
    p.grad = None
    a.scale(p.sum()).backward()
    assert not told(lambda: b.unscale_(optimizer))  # once per scaler


def test_b021_two_losses_of_two_scalers_on_one_parameter():
    p, optimizer, a = made(8.0)
    b = amp.GradScaler("cpu", init_scale=4.0)
    (a.scale(p.sum()) + b.scale((p * p).sum())).backward()
    (text,) = told(lambda: a.unscale_(optimizer))
    assert "parts were made under different loss scales" in text


def test_b025_an_update_inside_an_accumulation_window_is_told():
    p, optimizer, scaler = made(8.0)
    scaler.scale(p.sum()).backward()
    scaler.update(4.0)
    scaler.scale(p.sum()).backward()
    (text,) = told(lambda: scaler.step(optimizer))
    assert "at the end of an accumulation window" in text


def test_b025_an_update_between_backward_and_step_is_told():
    p, optimizer, scaler = made(8.0)
    scaler.scale(p.sum()).backward()
    scaler.update(4.0)
    (text,) = told(lambda: scaler.step(optimizer))
    assert "update() ran between backward() and step()" in text


def test_b025_four_micro_batches_are_silent_and_equal_one_batch():
    p, optimizer, scaler = made(2.0**10)
    q, other, single = made(2.0**10)
    x = torch.arange(24.0).reshape(8, 3)
    for part in x.chunk(4):
        scaler.scale((part * p).sum() / 8).backward()
    single.scale((x * q).sum() / 8).backward()
    assert not told(lambda: (scaler.step(optimizer), scaler.update(), single.step(other), single.update()))
    np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2**-22)


def test_strict_raises_and_leaves_the_gradients(monkeypatch):
    monkeypatch.setenv("AMPNATIVE_STRICT", "1")
    p, optimizer, scaler = made(8.0)
    scaler.scale(p.sum()).backward()
    scaler.update(4.0)
    with pytest.raises(RuntimeError, match="loss scale 8"):
        scaler.step(optimizer)
    assert p.grad.tolist() == [8.0] * 3


def test_the_notice_can_be_switched_off():
    p, optimizer, scaler = made(8.0)
    scaler.scale(p.sum()).backward()
    scaler.update(4.0)
    before = amp.warn_on_scaled_clip(False)
    try:
        assert before is True and not told(lambda: scaler.step(optimizer))
    finally:
        amp.warn_on_scaled_clip(before)


def test_silent_where_all_is_well():
    p, optimizer, scaler = made(8.0, growth_interval=1)

    def train():
        for _ in range(5):
            optimizer.zero_grad()
            scaler.scale((p * p).sum()).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_([p], 1.0)
            scaler.step(optimizer)
            scaler.update()

    def by_hand():
        p.grad = None
        scaler.scale(p.sum()).backward()
        p.grad /= scaler.get_scale()
        torch.nn.utils.clip_grad_norm_([p], 1.0)

    assert not told(train) and not told(by_hand)
    a, b = amp.GradScaler("cpu", init_scale=4.0), amp.GradScaler("cpu", init_scale=4.0)
    group = amp.ScalerGroup([a, b])
    p.grad = None
    a.scale(p.sum()).backward()
    b.scale(p.sum()).backward()
    assert not told(lambda: (b.step(optimizer), group.update()))


def test_a_hook_that_unscales_takes_the_stamp_off():
    p, _, scaler = made(8.0)
    p.register_hook(lambda g: g / 8)
    scaler.scale(p.sum()).backward()
    assert not told(lambda: torch.nn.utils.clip_grad_norm_([p], 1.0))


@pytest.mark.parametrize("later", ["scale of one", "collected"])
def test_clipping_is_told_whatever_another_scaler_did_since(later):
    p, _, scaler = made(8.0)
    scaler.scale(p.sum()).backward()
    other = amp.GradScaler("cpu", init_scale=1.0 if later == "scale of one" else 4.0)
    other.scale(torch.ones((), requires_grad=True))
    if later == "collected":
        del other
    (text,) = told(lambda: torch.nn.utils.clip_grad_norm_([p], 1.0))
    assert "still multiplied by the loss scale 8" in text


@pytest.mark.parametrize("kind", ["foreign", "reversed"])
def test_clipping_through_the_scaler_writes_arrays_of_any_layout_back(kind):
    class Bag:
        grad = np.full(2, 24.0, ">f4") if kind == "foreign" else np.full(2, 24.0, np.float32)[::-1]

    class Optimizer:
        param_groups = ({"params": [Bag]},)

    scaler = amp.GradScaler("cpu", init_scale=8.0)
    amp.scale_loss(1.0, scaler)
    norm = scaler.clip_grad_norm_(Optimizer, 1.0)
    assert norm.item() == pytest.approx(3.0 * 2**0.5) and np.linalg.norm(Bag.grad) == pytest.approx(1.0, rel=1e-5)


def test_a_member_of_a_group_without_gradients():
    p, optimizer, a = made(8.0)
    _, without, b = made(8.0, on_no_grads="skip")
    group = amp.ScalerGroup([a, b])
    group.scale(p.sum()).backward()
    a.step(optimizer)
    b.step(without)
    assert b.last_step is amp.StepStatus.NO_GRADS and group.update() is None
    with pytest.raises(TypeError, match="made of GradScalers, not int"):
        amp.ScalerGroup([3])


def test_the_floor_warning_is_not_repeated_after_a_resume():
    p, optimizer, scaler = made(4.0, min_scale=4.0, on_floor="warn")

    def overflow(s):
        p.grad = torch.full((3,), float("inf"))
        s.step(optimizer)
        s.update()

    scaler.scale(torch.ones(()))
    assert len(told(lambda: overflow(scaler))) == 1
    resumed = amp.GradScaler("cpu", min_scale=4.0, on_floor="warn")
    resumed.load_state_dict(scaler.state_dict())
    assert not told(lambda: overflow(resumed))


def test_a_refused_gradient_leaves_all_as_they_were():
    a = np.full(3, 8, np.float32)
    with pytest.raises(RuntimeError):
        amp.unscale_gradients([a, torch.ones(1).expand(3)], 2.0)
    assert a.tolist() == [8.0] * 3
    p, q = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    p.grad, q.grad = torch.full((3,), 8.0), torch.ones(1).expand(3)
    scaler = amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(()))
    with pytest.raises(RuntimeError, match="share memory"):
        scaler.unscale_(torch.optim.SGD([p, q], lr=1.0))
    assert p.grad.tolist() == [8.0] * 3


@pytest.mark.parametrize("loss", [lambda p: p.mean(), lambda p: p.mean(0).sum(), lambda p: (p + 1).mean(), lambda p: -p.mean()])
def test_gradients_of_a_mean_can_be_unscaled(loss):
    p = torch.nn.Parameter(torch.ones(2, 3))
    optimizer, scaler = torch.optim.SGD([p], lr=1.0), amp.GradScaler("cpu", init_scale=8.0)
    expected = torch.autograd.grad(loss(p), p)[0]
    p.grad = torch.autograd.grad(scaler.scale(loss(p)), p)[0]
    scaler.unscale_(optimizer)
    assert torch.equal(p.grad, expected)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "NAdam"])
def test_optimizers_read_expanded_gradients(kind):
    results = []
    for grad in (torch.ones(1, 3).expand(2, 3), torch.ones(2, 3)):
        p = torch.nn.Parameter(torch.ones(2, 3))
        p.grad = grad
        getattr(torch.optim, kind)([p], lr=0.1).step()
        results.append(p.detach())
    assert torch.equal(*results)


def test_a_retained_gradient_can_be_clipped():
    p = torch.ones(3, requires_grad=True)
    x = p * p
    x.retain_grad()
    x.sum().backward()
    torch.nn.utils.clip_grad_norm_([x], 1.0)
    np.testing.assert_allclose(x.grad.numpy(), 3**-0.5, rtol=1e-5)


def test_read_only_memory_is_not_written(tmp_path):
    np.arange(4, dtype=np.float32).tofile(tmp_path / "numbers")
    mapped = np.memmap(tmp_path / "numbers", np.float32, "r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t = torch.from_numpy(mapped)
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = t
    writes = {
        "mul_": lambda: t.mul_(2),
        "item": lambda: t.__setitem__(0, 1.0),
        "out": lambda: torch.add(t, 1, out=t),
        "view": lambda: t[1:].zero_(),
        "data": lambda: t.data.zero_(),
        "random": lambda: t.normal_(),
        "clip": lambda: torch.nn.utils.clip_grad_norm_([p], 1.0),
        "unscale": lambda: amp.unscale_gradients([t], 2.0),
        "parameter": lambda: torch.optim.SGD([torch.nn.Parameter(t)], lr=1.0),
        "backward": lambda: p.sum().backward(),
    }
    for name, write in writes.items():
        if name == "parameter":
            read_only = torch.nn.Parameter(t)
            read_only.grad = torch.ones(4)
            write = torch.optim.SGD([read_only], lr=1.0).step
        with pytest.raises(RuntimeError, match="read-only memory"):
            write()
    assert t.tolist() == [0.0, 1.0, 2.0, 3.0] and not t.numpy().flags.writeable and (t + 1).tolist()[0] == 1.0
