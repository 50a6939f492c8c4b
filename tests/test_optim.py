"""Optimizers against a float64 twin and recorded numbers; groups, state, hooks, fused steps, schedulers."""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

optim = torch.optim
START = [[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]]
GRADIENTS = [
    [[0.1, -0.2, 0.3], [1.0, -1.0, 0.5]],
    [[-0.4, 0.2, 0.0], [0.3, 0.3, 2.0]],
    [[0.05, -1.5, 0.7], [-0.6, 0.1, 0.9]],
]


def values(t):
    return np.asarray(t.detach().tolist(), dtype=np.float64)


def parameter(dtype=None):
    return torch.nn.Parameter(torch.tensor(START, dtype=dtype or torch.float64))


def run(make, steps=6, dtype=None):
    p = parameter(dtype)
    optimizer = make([p])
    for step in range(steps):
        p.grad = torch.tensor(GRADIENTS[step % 3], dtype=p.dtype)
        optimizer.step()
    return p, optimizer


SGD_RESULT = [
    [1.018110990524292, -1.976222038269043, 0.44158050417900085],
    [0.029375242069363594, 3.151203155517578, -1.292051076889038],
]
ADAM_RESULT = [
    [0.9559503197669983, -1.9052631855010986, 0.3329941928386688],
    [0.06443028151988983, 3.142784833908081, -1.1884377002716064],
]


# ---- float64 twins ----


def sgd_twin(steps=6, lr=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False):
    p, buffer = np.array(START), None
    for step in range(steps):
        d = np.array(GRADIENTS[step % 3]) * (-1 if maximize else 1) + weight_decay * p
        if momentum:
            buffer = d if buffer is None else momentum * buffer + (1 - dampening) * d
            d = d + momentum * buffer if nesterov else buffer
        p = p - lr * d
    return p


def adam_twin(
    steps=6,
    lr=0.1,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    amsgrad=False,
    maximize=False,
    decoupled=False,
    momentum_decay=None,
):
    p, m, v, top, product = np.array(START), 0.0, 0.0, 0.0, 1.0
    for t in range(1, steps + 1):
        g = np.array(GRADIENTS[(t - 1) % 3]) * (-1 if maximize else 1)
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        top = np.maximum(top, v)
        root = np.sqrt((top if amsgrad else v) / (1 - betas[1] ** t)) + eps
        if momentum_decay is None:
            p = p - lr * m / (1 - betas[0] ** t) / root
        else:
            mu, after = (betas[0] * (1 - 0.5 * 0.96 ** (k * momentum_decay)) for k in (t, t + 1))
            product *= mu
            p = p - lr * (1 - mu) / (1 - product) * g / root - lr * after / (1 - product * after) * m / root
    return p


SGD_OPTIONS = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.5},
    {"momentum": 0.9, "nesterov": True},
    {"weight_decay": 0.1},
    {"momentum": 0.5, "weight_decay": 0.1},
    {"maximize": True},
    {"momentum": 0.9, "maximize": True, "weight_decay": 0.01},
]
ADAM_OPTIONS = [{}, {"betas": (0.5, 0.9)}, {"eps": 0.1}, {"weight_decay": 0.1}, {"amsgrad": True}, {"maximize": True}]


@pytest.mark.parametrize("more", [{}, {"foreach": True}, {"fused": True}])
@pytest.mark.parametrize("options", SGD_OPTIONS)
def test_sgd(options, more):
    p, _ = run(lambda ps: optim.SGD(ps, lr=0.1, **options, **more))
    assert np.allclose(values(p), sgd_twin(**options), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("more", [{}, {"foreach": True}, {"fused": True}])
@pytest.mark.parametrize("options", ADAM_OPTIONS)
def test_adam_and_adamw(options, more):
    p, _ = run(lambda ps: optim.Adam(ps, lr=0.1, **options, **more))
    assert np.allclose(values(p), adam_twin(**options), rtol=1e-12, atol=1e-14)
    p, _ = run(lambda ps: optim.AdamW(ps, lr=0.1, **options, **more))
    assert np.allclose(values(p), adam_twin(**{"weight_decay": 0.01, **options}, decoupled=True), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled": True}, {"momentum_decay": 0.5}, {"maximize": True}],
)
def test_nadam(options):
    """mu_product is an fp32 state, in PyTorch too: 1e-6."""
    given = {("decoupled_weight_decay" if k == "decoupled" else k): v for k, v in options.items()}
    p, optimizer = run(lambda ps: optim.NAdam(ps, lr=0.1, **given))
    assert np.allclose(values(p), adam_twin(**{"momentum_decay": 4e-3, **options}), rtol=1e-6, atol=1e-7)
    assert list(optimizer.state[p]) == ["step", "mu_product", "exp_avg", "exp_avg_sq"] and optimizer.state[p]["step"].item() == 6


def test_numbers_of_pytorch():
    """torch 2.15.0, fp32, two steps: SGD(lr=0.1, momentum=0.9, weight_decay=0.01) and Adam(lr=0.1)."""
    p, _ = run(lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01), steps=2, dtype=torch.float32)
    assert np.allclose(values(p), SGD_RESULT, rtol=2e-7)
    p, _ = run(lambda ps: optim.Adam(ps, lr=0.1), steps=2, dtype=torch.float32)
    assert np.allclose(values(p), ADAM_RESULT, rtol=1e-6)


@pytest.mark.skipif(IS_PYTORCH, reason="our rule: fp32 arithmetic, one rounding")
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_16_bit_parameters_round_once(name):
    dtype = getattr(torch, name)
    p, optimizer = run(lambda ps: optim.Adam(ps, lr=0.1), steps=1, dtype=dtype)
    want = torch.tensor(adam_one_step(dtype)).to(dtype)
    assert p.tolist() == want.tolist() and optimizer.state[p]["exp_avg"].dtype == dtype
    tiny = torch.nn.Parameter(torch.zeros(2, dtype=dtype))
    tiny.grad = torch.zeros(2, dtype=dtype)
    optim.Adam([tiny], lr=0.1).step()
    assert tiny.tolist() == [0.0, 0.0]  # eps does not vanish: no 0 / 0


def adam_one_step(dtype):
    g = values(torch.tensor(GRADIENTS[0]).to(dtype))
    m, v = (1 - 0.9) * g, (1 - 0.999) * g * g
    return values(torch.tensor(START).to(dtype)) - 0.1 * (m / (1 - 0.9)) / (np.sqrt(v / (1 - 0.999)) + 1e-8)


# ---- groups and state ----


def test_groups_take_options_and_defaults():
    a, b = parameter(), parameter()
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0}], lr=0.5)
    a.grad, b.grad = torch.ones(2, 3, dtype=torch.float64), torch.ones(2, 3, dtype=torch.float64)
    optimizer.step()
    assert np.array_equal(values(a), np.array(START) - 0.5) and np.array_equal(values(b), np.array(START) - 1)
    c = parameter()
    optimizer.add_param_group({"params": [c], "weight_decay": 0.5})
    assert [g["lr"] for g in optimizer.param_groups] == [0.5, 1.0, 0.5] and optimizer.param_groups[2]["weight_decay"] == 0.5
    assert optimizer.state_dict()["param_groups"][2]["params"] == [2]


def test_edited_options_and_missing_gradients():
    a, b = parameter(), parameter()
    optimizer = optim.SGD([a, b], lr=1.0, momentum=0.9)
    a.grad = torch.ones(2, 3, dtype=torch.float64)
    optimizer.step()
    assert np.array_equal(values(b), np.array(START)) and a in optimizer.state and not optimizer.state.get(b)
    optimizer.param_groups[0]["lr"] = 0.0
    b.grad = torch.ones(2, 3, dtype=torch.float64)
    optimizer.step()
    assert np.array_equal(values(a), np.array(START) - 1) and np.allclose(values(optimizer.state[a]["momentum_buffer"]), 1.9)
    assert np.allclose(values(optimizer.state[b]["momentum_buffer"]), 1.0)


def test_dtypes_may_be_mixed_in_a_group():
    ps = [parameter(torch.float64), parameter(torch.float32), parameter(torch.float16)]
    optimizer = optim.SGD(ps, lr=0.5)
    for p in ps:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert all(np.array_equal(values(p), np.array(START) - 0.5) for p in ps)


def test_zero_grad():
    p, optimizer = run(lambda ps: optim.SGD(ps, lr=0.1), steps=1)
    gradient = p.grad
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is gradient and not values(gradient).any()
    optimizer.zero_grad()
    assert p.grad is None
    optimizer.step()


def test_names():
    model = torch.nn.Linear(2, 2)
    optimizer = optim.Adam(model.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="with/without names"):
        optim.SGD([("a", parameter()), parameter()], lr=0.1)
    with pytest.raises(ValueError, match="with/without names"):
        optimizer.add_param_group({"params": [parameter()]})


@pytest.mark.parametrize(
    "make",
    [
        lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9),
        lambda ps: optim.Adam(ps, lr=0.1, amsgrad=True),
        lambda ps: optim.AdamW(ps, lr=0.1),
        lambda ps: optim.NAdam(ps, lr=0.1),
    ],
)
def test_resuming_gives_the_same_bits(make):
    p, _ = run(make, steps=6)
    q, half = run(make, steps=3)
    saved = copy.deepcopy(half.state_dict())
    assert list(saved["state"]) == [0] and saved["param_groups"][0]["params"] == [0]
    again = torch.nn.Parameter(q.detach().clone())
    optimizer = make([again])
    optimizer.load_state_dict(saved)
    for step in range(3):
        again.grad = torch.tensor(GRADIENTS[step % 3], dtype=torch.float64)
        optimizer.step()
    if IS_PYTORCH and isinstance(optimizer, optim.NAdam):
        return  # it casts mu_product to the parameter's dtype when loading
    assert again.tolist() == p.tolist()


def test_loading_casts_state_to_the_parameter():
    _, optimizer = run(lambda ps: optim.Adam(ps, lr=0.1), steps=2)
    narrow = parameter(torch.float32)
    other = optim.Adam([narrow], lr=0.5)
    other.load_state_dict(optimizer.state_dict())
    assert other.state[narrow]["exp_avg"].dtype == torch.float32 and other.state[narrow]["step"].dtype == torch.float32
    assert other.param_groups[0]["lr"] == 0.1 and other.param_groups[0]["params"][0] is narrow
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optim.Adam([{"params": [parameter()]}, {"params": [parameter()]}]).load_state_dict(optimizer.state_dict())
    with pytest.raises(ValueError, match="doesn't match the size"):
        optim.Adam([parameter(), parameter()]).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_step_on_their_own(copier):
    p, optimizer = run(lambda ps: optim.Adam(ps, lr=0.1, fused=True), steps=2)
    twin = copier(optimizer)
    q = twin.param_groups[0]["params"][0]
    assert q is not p and twin.state[q]["exp_avg"].tolist() == optimizer.state[p]["exp_avg"].tolist()
    assert IS_PYTORCH or twin._step_supports_amp_scaling is True
    q.grad = torch.tensor(GRADIENTS[2], dtype=torch.float64)
    twin.step()
    p.grad = torch.tensor(GRADIENTS[2], dtype=torch.float64)
    assert p.tolist() != q.tolist()
    optimizer.step()
    assert p.tolist() == q.tolist()


def test_state_keys_and_repr():
    _, plain = run(lambda ps: optim.SGD(ps, lr=0.1), steps=1)
    assert plain.state_dict()["state"] == {}
    p, adam = run(lambda ps: optim.Adam(ps, amsgrad=True), steps=2)
    assert list(adam.state[p]) == ["step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
    step = adam.state[p]["step"]
    assert step.item() == 2.0 and step.dtype == torch.float32 and step.shape == ()
    assert (
        repr(plain)
        == """SGD (
Parameter Group 0
    dampening: 0
    differentiable: False
    foreach: None
    fused: None
    lr: 0.1
    maximize: False
    momentum: 0
    nesterov: False
    weight_decay: 0
)"""
    )


@pytest.mark.parametrize(
    "make, error, phrase",
    [
        (lambda: optim.SGD([], lr=0.1), ValueError, "empty parameter list"),
        (lambda: optim.SGD(parameter(), lr=0.1), TypeError, "iterable of Tensors or dicts"),
        (lambda: optim.SGD([parameter()], lr=-1), ValueError, "Invalid learning rate: -1"),
        (lambda: optim.SGD([parameter()], momentum=-1), ValueError, "Invalid momentum value"),
        (lambda: optim.SGD([parameter()], weight_decay=-1), ValueError, "Invalid weight_decay value"),
        (lambda: optim.SGD([parameter()], nesterov=True), ValueError, "Nesterov momentum requires"),
        (lambda: optim.SGD([parameter() * 2]), ValueError, "can't optimize a non-leaf Tensor"),
        (lambda: optim.SGD([3]), TypeError, "can only optimize Tensors"),
        (lambda: optim.SGD([{"lr": 1}]), KeyError, "params"),
        (lambda: optim.SGD([parameter()]).add_param_group([1]), TypeError, "must be a dict"),
        (lambda: optim.Adam([parameter()], betas=(1.0, 0.9)), ValueError, "beta parameter at index 0"),
        (lambda: optim.AdamW([parameter()], betas=(0.5, -1)), ValueError, "beta parameter at index 1"),
        (lambda: optim.Adam([parameter()], eps=-1), ValueError, "Invalid epsilon value"),
        (lambda: optim.NAdam([parameter()], momentum_decay=-1), ValueError, "Invalid momentum_decay value"),
        (lambda: optim.SGD([parameter()], fused=True, foreach=True), RuntimeError, "cannot be `True` together"),
        (
            lambda: optim.Adam([parameter()], fused=True, differentiable=True),
            RuntimeError,
            "does not support `differentiable`",
        ),
        (lambda: optim.NAdam([parameter()], fused=True), TypeError, "fused"),
    ],
)
def test_errors(make, error, phrase):
    with pytest.raises(error, match=phrase):
        make()


def test_one_parameter_in_two_groups():
    p = parameter()
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([{"params": [p]}, {"params": [p]}])
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD([p, p])


def test_closure_and_hooks():
    p, log = parameter(), []
    optimizer = optim.SGD([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == pytest.approx(np.square(START).sum())
    assert np.allclose(values(p), np.array(START) * 0.8)
    before = optimizer.register_step_pre_hook(lambda o, args, kwargs: log.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: log.append("after"))
    optimizer.step()
    before.remove()
    optimizer.step()
    assert log == ["before", "after", "after"]


def test_steps_are_not_recorded_and_bump_versions():
    p = parameter()
    optimizer = optim.SGD([p], lr=0.1)
    y = (p * p).sum()
    p.grad = torch.ones(2, 3, dtype=torch.float64)
    optimizer.step()
    assert p.is_leaf and p.grad_fn is None
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_strided_parameters():
    base = torch.zeros(3, 4, dtype=torch.float64)
    p = base.t()[1:3].detach().requires_grad_()
    p.grad = torch.ones(2, 3, dtype=torch.float64)
    optim.SGD([p], lr=1.0).step()
    assert base.tolist() == [[0, -1, -1, 0]] * 3


# ---- fused: what GradScaler asks for ----


def fused_step(optimizer, found_inf, grad_scale):
    optimizer.found_inf, optimizer.grad_scale = found_inf, grad_scale
    optimizer.step()
    del optimizer.found_inf, optimizer.grad_scale


@pytest.mark.parametrize(
    "make", [lambda ps, **k: optim.SGD(ps, lr=0.5, momentum=0.9, **k), lambda ps, **k: optim.Adam(ps, lr=0.5, **k)]
)
def test_fused_step_divides_or_skips(make):
    p, q = parameter(torch.float32), parameter(torch.float32)
    fused, plain = make([p], fused=True), make([q])
    assert fused._step_supports_amp_scaling is True
    for found in ([] if IS_PYTORCH else [1.0]) + [0.0, 0.0]:
        p.grad, q.grad = torch.tensor(GRADIENTS[0]) * 1024.0, torch.tensor(GRADIENTS[0])
        before = p.tolist()
        fused_step(fused, torch.tensor(found), torch.tensor(1024.0))
        if found:
            assert p.tolist() == before and p.grad.tolist() == (q.grad * 1024.0).tolist()
        else:
            plain.step()
            assert np.allclose(values(p), values(q), rtol=1e-6) and np.allclose(values(p.grad), values(q.grad), rtol=1e-6)
    before, steps = p.tolist(), [s["step"].item() for s in fused.state.values() if "step" in s]
    fused_step(fused, torch.tensor(1.0), None)
    assert p.tolist() == before and steps == [s["step"].item() for s in fused.state.values() if "step" in s]


@pytest.mark.skipif(IS_PYTORCH, reason="our rule: any non-zero found_inf skips")
@pytest.mark.parametrize("found", [2.0, 0.5, math.nan, -1.0])
def test_any_non_zero_found_inf_skips(found):
    p = parameter()
    optimizer = optim.SGD([p], lr=0.5, fused=True)
    p.grad = torch.ones(2, 3, dtype=torch.float64)
    fused_step(optimizer, torch.tensor(found), None)
    assert p.tolist() == START


def test_unfused_refuses_the_scalers_attributes():
    p = parameter()
    optimizer = optim.SGD([p], lr=0.5)
    p.grad = torch.ones(2, 3, dtype=torch.float64)
    optimizer.found_inf = torch.tensor(0.0)
    with pytest.raises(AssertionError):
        optimizer.step()


# ---- schedulers: closed forms, PyTorch's chaining ----


def rates(make, epochs=8, lr=0.8):
    optimizer = optim.SGD([parameter()], lr=lr)
    scheduler = make(optimizer)
    seen = [optimizer.param_groups[0]["lr"]]
    for _ in range(epochs):
        optimizer.step()
        scheduler.step()
        assert scheduler.get_last_lr() == [optimizer.param_groups[0]["lr"]]
        seen.append(scheduler.get_last_lr()[0])
    return seen


def cosine(t, t_max=5, low=0.1):
    return low + (0.8 - low) * (1 + math.cos(math.pi * t / t_max)) / 2


@pytest.mark.parametrize(
    "make, want",
    [
        (lambda o: optim.lr_scheduler.StepLR(o, 3, 0.5), [0.8 * 0.5 ** (t // 3) for t in range(9)]),
        (
            lambda o: optim.lr_scheduler.MultiStepLR(o, [2, 5, 5], 0.5),
            [0.8 * 0.5 ** sum(t >= m for m in (2, 5, 5)) for t in range(9)],
        ),
        (lambda o: optim.lr_scheduler.ExponentialLR(o, 0.9), [0.8 * 0.9**t for t in range(9)]),
        (lambda o: optim.lr_scheduler.LambdaLR(o, lambda t: 1 / (t + 1)), [0.8 / (t + 1) for t in range(9)]),
        (lambda o: optim.lr_scheduler.ConstantLR(o, 0.25, 3), [0.8 * (0.25 if t < 3 else 1) for t in range(9)]),
        (
            lambda o: optim.lr_scheduler.LinearLR(o, 0.25, 1.0, 4),
            [0.8 * (0.25 + 0.75 * min(t, 4) / 4) for t in range(9)],
        ),
        (lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 5, 0.1), [cosine(t) for t in range(9)]),
    ],
)
def test_schedules(make, want):
    assert np.allclose(rates(make), want, rtol=1e-12)


def test_scheduler_state_and_groups():
    optimizer = optim.SGD([{"params": [parameter()]}, {"params": [parameter()], "lr": 0.2}], lr=0.8)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.4, 0.1] and scheduler.base_lrs == [0.8, 0.2]
    state = scheduler.state_dict()
    assert state["last_epoch"] == 1 and state["step_size"] == 1 and "optimizer" not in state
    other = optim.lr_scheduler.StepLR(optim.SGD([{"params": [parameter()]}, {"params": [parameter()]}], lr=0.8), 7)
    other.load_state_dict(state)
    assert other.last_epoch == 1 and other.step_size == 1 and other.get_last_lr() == [0.4, 0.1]
    with pytest.raises(KeyError, match="initial_lr"):
        optim.lr_scheduler.StepLR(optim.SGD([parameter()], lr=0.1), 1, last_epoch=3)
    with pytest.raises(TypeError, match="is not an Optimizer"):
        optim.lr_scheduler.StepLR(object(), 1)


def test_scheduler_before_optimizer_warns():
    optimizer = optim.SGD([parameter()], lr=0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match=r"Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()
    optimizer = optim.SGD([parameter()], lr=0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()


def test_a_skipped_first_fused_step_leaves_fresh_state():
    p = torch.nn.Parameter(torch.ones(2, 3))
    optimizer = torch.optim.AdamW([p], lr=0.1, fused=True)
    p.grad = torch.full((2, 3), float("inf"))
    optimizer.found_inf, optimizer.grad_scale = torch.ones(()), None
    optimizer.step()
    state = optimizer.state_dict()["state"][0]
    assert float(state["step"]) == 0 and not state["exp_avg"].any() and not state["exp_avg_sq"].any()
    assert p.tolist() == [[1.0] * 3] * 2
