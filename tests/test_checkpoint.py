"""Hooks on saved tensors, and checkpointing in both forms."""

import contextlib
import gc
import importlib
import weakref

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

nn = torch.nn
graph = importlib.import_module(torch.__name__ + ".autograd.graph")
utils = importlib.import_module(torch.__name__ + ".utils.checkpoint")
checkpoint = utils.checkpoint
both = pytest.mark.parametrize("reentrant", [True, False])


def leaf(requires_grad=True):
    return torch.tensor([1.0, 2.0, 3.0], requires_grad=requires_grad)


def close(a, b, tolerance=1e-6):
    return np.allclose(np.asarray(a.detach().float().tolist()), np.asarray(b.detach().float().tolist()), rtol=tolerance)


# ---- hooks on saved tensors ----


def test_saved_tensors_go_through_the_hooks():
    packed, unpacked = [], []

    def pack(t):
        packed.append(t.tolist())
        assert not torch.is_grad_enabled()
        return len(packed) - 1, t.clone()

    def unpack(kept):
        unpacked.append(kept[0])
        return kept[1]

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with graph.saved_tensors_hooks(pack, unpack):
        h = x * torch.tensor([2.0, 2.0])
        y = (h * h).exp() * torch.tensor([3.0, 4.0])
    after = (h * h).sum()
    assert [p for p in packed if p == [2.0, 4.0]] == [[2.0, 4.0]] * 2 and unpacked == []
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
    v = np.array([1.0, 2.0])
    e = np.exp(4 * v**2) * np.array([3.0, 4.0])
    assert np.allclose(first.tolist(), 8 * v * e, rtol=1e-5) and np.allclose(second.tolist(), (8 + 64 * v**2) * e, rtol=1e-5)
    assert set(unpacked) == set(range(len(packed)))
    after.backward()
    assert x.grad.tolist() == [8.0, 16.0]


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        y = a * b
        ctx.save_for_backward(a, b, y, None)
        return y

    @staticmethod
    def backward(ctx, g):
        a, b, y, none = ctx.saved_tensors
        assert none is None
        return g * b + 0 * y, g * a


def test_own_functions_pack_and_their_second_derivatives_work():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda kept: kept):
        r = Product.apply(x * torch.ones(2), x)
    (first,) = torch.autograd.grad((r * r).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.tolist() == [4.0, 32.0] and second.tolist() == [12.0, 48.0]


def test_innermost_hooks_win_and_errors_pass():
    seen = []
    x = leaf() * torch.ones(3)
    with graph.saved_tensors_hooks(lambda t: seen.append("outer") or t, lambda k: k):
        with graph.saved_tensors_hooks(lambda t: seen.append("inner") or t, lambda k: k):
            x.exp()
        x.exp()
    assert seen == ["inner", "outer"]
    with pytest.raises(ZeroDivisionError), graph.saved_tensors_hooks(lambda t: 1 / 0, lambda k: k):
        x.exp()
    with graph.saved_tensors_hooks(lambda t: 1, lambda k: 3):
        y = x.exp()
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor but got result of type int"):
        y.sum().backward()
    if not IS_PYTORCH:
        with graph.saved_tensors_hooks(lambda t: 1, lambda k: torch.ones(7)):
            y = x.exp()
        with pytest.raises(RuntimeError, match="differs in shape, dtype or device"):
            y.sum().backward()
    hooks, forbidden = graph.saved_tensors_hooks(lambda t: t, lambda k: k), graph.disable_saved_tensors_hooks("no hooks here")
    with pytest.raises(RuntimeError, match="no hooks here"), forbidden, hooks:
        pass
    with pytest.raises(TypeError), graph.saved_tensors_hooks(1, 2):
        pass


@pytest.mark.skipif(IS_PYTORCH, reason="emulated CUDA")
def test_save_on_cpu():
    with torch.cuda.emulate():
        x = torch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
        with graph.save_on_cpu(pin_memory=True):
            y = (x * torch.ones(2, device="cuda")).exp().sin()
        y.sum().backward()
        want = np.exp([1.0, 2.0]) * np.cos(np.exp([1.0, 2.0]))
        assert x.grad.device.type == "cuda" and np.allclose(x.grad.tolist(), want, rtol=1e-5)


def test_packed_values_are_released_with_the_graph():
    class Box:
        def __init__(self, tensor):
            self.tensor = tensor

    boxes = []

    def pack(t):
        box = Box(t)
        boxes.append(weakref.ref(box))
        return box

    x = leaf() * torch.ones(3)
    with graph.saved_tensors_hooks(pack, lambda box: box.tensor):
        y = x.exp().sin()
    y.sum().backward(retain_graph=True)
    assert boxes and all(box() is not None for box in boxes)
    y.sum().backward()
    gc.collect()
    assert all(box() is None for box in boxes)


# ---- checkpoint ----


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 3), nn.Tanh())


@both
@pytest.mark.parametrize("autocast", [None, "bfloat16", "float16"])
def test_gradients_are_those_without(reentrant, autocast):
    """The same numbers, dropout and casts included; the random state afterwards is the same too."""

    def run(checkpointed):
        m, x = model(), torch.ones(4, 3, requires_grad=True)
        context = torch.autocast("cpu", dtype=getattr(torch, autocast)) if autocast else contextlib.nullcontext()
        with context:
            h = x * 2
            y = checkpoint(m, h, use_reentrant=reentrant) if checkpointed else m(h)
        torch.rand(5)
        y.float().square().sum().backward()
        return [y.detach().float(), x.grad, *(p.grad for p in m.parameters()), torch.rand(3)]

    plain, again = run(False), run(True)
    # torch casts a weight once per region and adds its gradients in 16 bits
    assert all(close(a, b, 1e-6 if autocast is None or not IS_PYTORCH else 1e-2) for a, b in zip(plain, again, strict=True))


@both
def test_the_function_runs_again_with_the_autocast_state_of_then(reentrant):
    seen = []

    def f(x):
        seen.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()))
        return torch.mm(x, x)

    x = torch.ones(3, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
        y = checkpoint(f, x, use_reentrant=reentrant)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y.float().sum().backward()
    assert seen == [(True, torch.float16, False)] * 2 and x.grad.tolist() == [[6.0] * 3] * 3


@both
def test_random_numbers(reentrant):
    def draws(preserve):
        seen = []

        def f(x):
            seen.append(torch.rand(2).tolist())
            return x.exp() * x

        torch.manual_seed(0)
        y = checkpoint(f, leaf() * torch.ones(3), use_reentrant=reentrant, preserve_rng_state=preserve)
        state = torch.get_rng_state().tolist()
        y.sum().backward()
        return seen[0] == seen[1], state == torch.get_rng_state().tolist()

    assert draws(True) == (True, True) and draws(False) == (False, False)


@both
def test_arguments_that_are_no_tensors_and_several_outputs(reentrant):
    x = leaf()
    a, b = checkpoint(lambda x, k, name: (x * k, x * x), x, 3.0, "name", use_reentrant=reentrant)
    (a + b).sum().backward()
    assert x.grad.tolist() == [5.0, 7.0, 9.0]
    with torch.no_grad():
        assert not checkpoint(lambda x: x * x, x, use_reentrant=reentrant).requires_grad


@both
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_nested(reentrant):
    runs = []

    def inner(x):
        runs.append("inner")
        return x.exp().sin()

    def outer(x):
        runs.append("outer")
        return checkpoint(inner, x * 0.5, use_reentrant=reentrant).cos() * x

    x, twin = leaf(), leaf()
    y = checkpoint(outer, x * torch.ones(3), use_reentrant=reentrant)
    assert runs == ["outer", "inner"]
    y.sum().backward()
    ((twin * 0.5).exp().sin().cos() * twin).sum().backward()
    assert close(x.grad, twin.grad) and runs.count("outer") == 2 and runs.count("inner") == 3


@both
def test_backward_twice(reentrant):
    x = leaf()
    y = checkpoint(lambda x: (x * x).exp(), x, use_reentrant=reentrant)
    y.sum().backward(retain_graph=True)
    once = x.grad.clone()
    y.sum().backward()
    assert close(x.grad, 2 * once)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()


@both
def test_sequential(reentrant):
    m, x, twin = model().eval(), torch.ones(2, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    for segments in (1, 2, 3):
        y = utils.checkpoint_sequential(m, segments, x, use_reentrant=reentrant)
        assert close(y, m(twin))
        y.sum().backward()
        m(twin).sum().backward()
        assert close(x.grad, twin.grad)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: foo"):
        utils.checkpoint_sequential(m, 1, x, use_reentrant=reentrant, foo=1)


def test_what_only_the_recorded_form_can():
    w, x = leaf(), leaf(False)
    y = checkpoint(lambda pair, k: {"a": pair[0] * w * k}, [x], k=2.0, use_reentrant=False)
    y["a"].sum().backward()
    assert w.grad.tolist() == [2.0, 4.0, 6.0]
    x = leaf()
    y = checkpoint(lambda x: (x * x).exp(), x * torch.ones(3), use_reentrant=False)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    v = np.array([1.0, 2.0, 3.0])
    assert np.allclose(second.tolist(), (2 + 4 * v**2) * np.exp(v**2), rtol=1e-5)
    order = []

    @contextlib.contextmanager
    def noted(name):
        order.append(name)
        yield

    y = checkpoint(lambda x: x.exp(), x * torch.ones(3), use_reentrant=False, context_fn=lambda: (noted("first"), noted("second")))
    y.sum().backward()
    assert order == ["first", "second"]


def test_what_the_reentrant_form_cannot():
    x = leaf()
    y = checkpoint(lambda x: x * x, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match=r"incompatible with .grad\(\)"):
        torch.autograd.grad(y.sum(), x)
    with pytest.raises(RuntimeError, match=r"incompatible with .grad\(\)"):
        checkpoint(lambda x: x * x, x, use_reentrant=True).sum().backward(inputs=[x])
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        assert not checkpoint(lambda x: x * x, leaf(False), use_reentrant=True).requires_grad
    with pytest.raises(ValueError, match="Unexpected keyword arguments: k"):
        checkpoint(lambda x, k: x, x, k=1, use_reentrant=True)
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        checkpoint(lambda x: x, x, use_reentrant=True, context_fn=lambda: (None, None))


def test_stops_early():
    seen = []

    def f(x):
        seen.append("a")
        y = x.exp()
        seen.append("b")
        return y + 1

    for early, want in ((True, ["a", "b", "a"]), (False, ["a", "b", "a", "b"])):
        seen.clear()
        with utils.set_checkpoint_early_stop(early):
            y = checkpoint(f, leaf() * torch.ones(3), use_reentrant=False)
        y.sum().backward()
        assert seen == want


def test_another_computation_the_second_time():
    def varying(first, second):
        runs = []

        def f(x):
            runs.append(1)
            return (first if len(runs) == 1 else second)(x)

        return checkpoint(f, leaf() * torch.ones(3), use_reentrant=False)

    with pytest.raises(utils.CheckpointError, match="A different number of tensors was saved"):
        varying(lambda x: x.exp().sin(), lambda x: x.exp()).sum().backward()
    with pytest.raises(utils.CheckpointError, match="have different metadata"):
        varying(lambda x: x.double().exp(), lambda x: x.exp()).sum().backward()
    with pytest.raises(ValueError, match="determinism_check should be one of"):
        checkpoint(lambda x: x, leaf(), use_reentrant=False, determinism_check="maybe").sum().backward()
    x = leaf()
    checkpoint(lambda x: x * x, x, use_reentrant=False, determinism_check="none").sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def test_please_say_which():
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(lambda x: x * x, leaf())


@pytest.mark.skipif(IS_PYTORCH, reason="weak references to what the graph keeps")
@both
def test_intermediate_values_are_not_kept(reentrant):
    alive = []

    def f(x):
        for _ in range(5):
            x = x.exp().sin()
            alive.append(weakref.ref(x))
        return x * 2

    y = checkpoint(f, leaf() * torch.ones(3), use_reentrant=reentrant)
    gc.collect()
    assert not any(ref() is not None for ref in alive[:5])
    y.sum().backward()


@pytest.mark.skipif(IS_PYTORCH, reason="emulated CUDA")
@both
def test_fp16_with_a_scaler_on_emulated_cuda(reentrant):
    def train(checkpointed):
        m = model().cuda()
        optimizer, scaler = torch.optim.SGD(m.parameters(), lr=0.1), torch.amp.GradScaler("cuda", init_scale=1024.0)
        x = torch.ones(4, 3, device="cuda", requires_grad=True)
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                y = checkpoint(m, x, use_reentrant=reentrant) if checkpointed else m(x)
                loss = y.float().square().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return [*m.parameters(), torch.tensor(scaler.get_scale())]

    with torch.cuda.emulate():
        assert all(close(a, b, 1e-3) for a, b in zip(train(False), train(True), strict=True))
