"""Behaviour that PyTorch has and that was different once: retained gradients, numbers beside 16 bits, bool targets, small groups."""

import math

import pytest
from golden_tools import IS_PYTORCH, torch

F = torch.nn.functional


def test_a_retained_gradient_follows_the_tensor_through_writes():
    for write, wanted in [
        (lambda y: y.mul_(3), [1.0, 1.0, 1.0]),
        (lambda y: y.copy_(torch.ones(3)), [1.0, 1.0, 1.0]),
        (lambda y: y.__setitem__(0, 5.0), [1.0, 1.0, 1.0]),
    ]:
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        y.retain_grad()
        write(y)
        y.sum().backward()
        assert y.grad.tolist() == wanted


def test_backward_with_inputs_that_are_no_leaves():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    z = y.exp().sum()
    z.backward(inputs=[y], retain_graph=True)
    assert y.grad.tolist() == pytest.approx([math.exp(2)] * 3) and x.grad is None
    z.backward(inputs=[y], retain_graph=True)
    assert y.grad.tolist() == pytest.approx([2 * math.exp(2)] * 3)
    z.backward(inputs=[z])
    assert z.grad.item() == 1


def test_autograd_grad_fills_retained_gradients():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    (g,) = torch.autograd.grad(y.sum(), x)
    assert g.tolist() == [2.0] * 3 and y.grad.tolist() == [1.0] * 3


@pytest.mark.parametrize("write", [lambda t: t.div_(2), lambda t: t.mul_(2), lambda t: t * 2])
def test_numbers_are_not_saved_tensors(write):
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(tuple(t.shape)) or t, lambda t: t):
        write(torch.ones(2, requires_grad=True) + 0)
    assert packed == []


def test_checkpoint_of_a_saved_result_written_to_by_a_number():
    x = torch.ones(2, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda a: a.exp().div_(2), x, use_reentrant=False)
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([math.e / 2] * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("loss", [F.mse_loss, F.huber_loss, F.smooth_l1_loss])
def test_bool_targets(loss, dtype):
    x, t = torch.tensor([0.5, 2.0, -1.0], dtype=dtype, requires_grad=True), torch.tensor([True, False, True])
    got, wanted = loss(x, t), loss(x, t.to(dtype))
    assert got.dtype == wanted.dtype and got.item() == wanted.item()
    if loss is not F.huber_loss:  # PyTorch has no gradient there
        assert torch.autograd.grad(got, x)[0].tolist() == torch.autograd.grad(wanted, x)[0].tolist()


def test_group_norm_of_groups_with_one_value():
    assert torch.nn.GroupNorm(4, 4)(torch.ones(8, 4)).tolist() == [[0.0] * 4] * 8
    with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
        torch.nn.GroupNorm(4, 4)(torch.ones(1, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_are_rounded_beside_16_bits_except_as_factors(dtype):
    x, number = torch.tensor([1.75, -3.0, 0.3125, 7.0], dtype=dtype), 1.2345678
    rounded = torch.tensor(number, dtype=dtype).item()
    near, far = torch.tensor(number), torch.tensor(rounded)
    assert rounded != number
    for op in [
        lambda a, b: a + b, lambda a, b: b + a, lambda a, b: a - b, lambda a, b: b - a, lambda a, b: b**a.abs(),
        torch.fmod, torch.remainder, lambda a, b: torch.add(a, a, alpha=float(b)), lambda a, b: a.clone().add_(b),
    ]:  # fmt: skip
        for exact, other in ((number, rounded), (near, far)):
            assert op(x, exact).tolist() == op(x, other).tolist()
    assert (x - rounded == x - number).all() and (torch.tensor([rounded], dtype=dtype) == number).all()
    wide = x.float()
    for op in [lambda a, b: a * b, lambda a, b: b * a, lambda a, b: a / b]:
        assert op(x, number).tolist() == op(wide, number).to(dtype).tolist()
    assert (x * near).tolist() == (wide * number).to(dtype).tolist()
    assert (near * x).tolist() == (wide * rounded).to(dtype).tolist()


@pytest.mark.parametrize(("dtype", "large"), [(torch.float16, 65519.0), (torch.float16, -1e9), (torch.bfloat16, 1e39)])
def test_numbers_beyond_16_bits(dtype, large):
    def x():
        return torch.ones(2, 2, dtype=dtype)

    for call in [
        lambda: x().fill_(large), lambda: torch.full((2,), large, dtype=dtype), lambda: torch.full_like(x(), large),
        lambda: F.pad(x(), (1, 0), value=large), lambda: x().index_fill(0, torch.tensor([0]), large),
        lambda: torch.nn.init.constant_(x(), large), lambda: x().fill_diagonal_(large), lambda: torch.add(x(), x(), alpha=large),
        lambda: F.threshold(x(), 2.0, large), lambda: x().masked_fill(x() > 0, large),
        lambda: x().__setitem__(0, large), lambda: x().__setitem__(x() > 0, large),
    ]:  # fmt: skip
        with pytest.raises(RuntimeError, match="without overflow"):
            call()
    if abs(large) < 1e38:  # computed in fp32: only the result is too large
        assert math.isinf(torch.addcmul(x() * 4, x() * 4, x() * 4, value=large)[0, 0].item())
    assert torch.where(x() > 0, math.copysign(1e39, large), x()).tolist() == [[math.copysign(math.inf, large)] * 2] * 2


@pytest.mark.skipif(IS_PYTORCH, reason="memory statistics of the CPU are ours")
def test_grad_of_one_input_computes_no_other_gradient():
    """autograd.grad(y, [x]) leaves the weight's gradient alone: it is neither computed nor held for a while."""
    room = torch.cpu
    x, weight = torch.ones(1, 1024, requires_grad=True), torch.ones(1024, 1024, requires_grad=True)
    weight_bytes = 4 << 20
    for y, wanted in [(F.linear(x, weight).sum(), 1024.0), ((x @ weight).sum(), 1024.0), ((x * weight).sum(), 1024.0)]:
        before = room.memory_allocated()
        room.reset_peak_memory_stats()
        (g,) = torch.autograd.grad(y, [x], retain_graph=True)
        needs = weight_bytes if y.grad_fn.next_functions[0][0].name().startswith("Mul") else 0  # x's gradient before its sum
        assert room.max_memory_allocated() - before < needs + weight_bytes // 4
        assert g.unique().tolist() == [wanted] and weight.grad is None
        y.backward()
        assert weight.grad.unique().tolist() == [1.0]
        x.grad = weight.grad = None


def test_numbers_assigned_to_places_of_16_bits():
    """One element that integers and slices chose takes infinity; more, or chosen by a mask or a list, refuse what does not fit."""
    for value in (70000, 70000.0, -1e9):
        for key in (1, slice(1, 2)):
            x = torch.zeros(3, dtype=torch.float16)
            x[key] = value
            assert x.tolist() == [0.0, math.copysign(math.inf, value), 0.0]
        for key in (slice(1, None), ..., [0, 1], torch.tensor([True, False, True])):
            with pytest.raises(RuntimeError, match="without overflow"):
                torch.zeros(3, dtype=torch.float16)[key] = value
    x = torch.zeros(3, dtype=torch.float16)
    x[1:] = 65504
    assert x.tolist() == [0.0, 65504.0, 65504.0]


def test_an_index_out_of_bounds_names_the_tensors_dimension():
    for key, dimension in [((0, 7), 1), ((slice(None), 0, 9), 2)]:
        with pytest.raises(IndexError, match=f"dimension {dimension} with size"):
            torch.zeros(2, 3, 4)[key]


def test_modules_call_what_functional_has_now(monkeypatch):
    x = torch.ones(1, 1, 2, 2)
    for name, module in [
        ("linear", torch.nn.Linear(2, 2)), ("relu", torch.nn.ReLU()), ("gelu", torch.nn.GELU()), ("conv2d", torch.nn.Conv2d(1, 1, 1)),
        ("max_pool2d", torch.nn.MaxPool2d(2)), ("avg_pool2d", torch.nn.AvgPool2d(2)), ("layer_norm", torch.nn.LayerNorm(2)),
        ("adaptive_avg_pool2d", torch.nn.AdaptiveAvgPool2d(1)), ("dropout", torch.nn.Dropout()), ("silu", torch.nn.SiLU()),
    ]:  # fmt: skip
        calls = []
        monkeypatch.setattr(F, name, lambda *args, calls=calls, **named: calls.append(len(args)))
        module(x)
        assert len(calls) == 1, name


def test_groups_of_an_optimizer_may_be_tuples():
    for name, options in [("SGD", {"momentum": 0.5}), ("AdamW", {}), ("RMSprop", {})]:
        params = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
        optimizer = getattr(torch.optim, name)(params, lr=1.0, **options)
        optimizer.param_groups[0]["params"] = tuple(params)
        for _ in range(2):
            optimizer.zero_grad()
            (params[0].sum() + 2 * params[1].sum()).backward()
            optimizer.step()
        assert params[0].tolist() != [1.0, 1.0] and params[1].tolist() != [1.0, 1.0]
        optimizer.zero_grad()
        assert params[0].grad is None
        params[0].grad = torch.ones(2)
        optimizer.zero_grad(set_to_none=False)
        assert params[0].grad.tolist() == [0.0, 0.0]


def test_split_as_a_method_and_as_a_function():
    x = torch.arange(5)
    assert [p.tolist() for p in x.split(split_size=2)] == [[0, 1], [2, 3], [4]]
    assert [p.tolist() for p in x.split([1, 4], dim=0)] == [[0], [1, 2, 3, 4]]
    assert [p.tolist() for p in torch.split(x, split_size_or_sections=3, dim=0)] == [[0, 1, 2], [3, 4]]
