"""What users of mixed precision trip on: public reports, each as a test that is named by its number."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import ampnative as torch
from ampnative import amp, nn
from ampnative.amp import GradScaler, ScaleFloorError, ScalerGroup, StepStatus

INF, NAN = float("inf"), float("nan")


def parameter(grad=None, dtype=torch.float32):
    p = nn.Parameter(torch.zeros(1 if grad is None else len(grad), dtype=dtype))
    if grad is not None:
        p.grad = torch.tensor(grad, dtype=dtype)
    return p


def sgd(*params, name="w"):
    return torch.optim.SGD([(f"{name}{i}", p) for i, p in enumerate(params)], lr=0.5)


def started(scale=8.0, **kwargs):
    scaler = GradScaler("cpu", init_scale=scale, **kwargs)
    scaler.scale(torch.ones(()))
    return scaler


def run(scaler, pattern, optimizer=None):
    """The scale after each update; `pattern` holds gradient values (scaled)."""
    optimizer = optimizer or sgd(parameter())
    p, scales = optimizer.param_groups[0]["params"][0], []
    for value in pattern:
        p.grad = torch.full((1,), float(value))
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


# ---- scale arithmetic, limits, history -------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [2.0, 1e38])
def test_B001_growth_stays_finite(factor):
    scales = run(started(2.0**16, growth_interval=1, growth_factor=factor), [1.0] * 200)
    assert all(np.isfinite(scales)) and scales[-1] == (2.0**127 if factor == 2 else 2.0**16)


def test_B003_endless_overflow_is_told_once():
    scaler = started(2.0**16, min_scale=2.0**-4, warn_after=25)
    with pytest.warns(UserWarning) as caught:
        scales = run(scaler, [NAN] * 400, sgd(parameter(), name="head."))
    assert len(caught) == 1 and caught[0].filename == __file__
    text = str(caught[0].message)
    assert "25 updates in a row" in text and "head.0" in text and min(scales) == scales[-1] == 2.0**-4
    metrics = scaler.metrics()
    assert (metrics["skipped_total"], metrics["skipped_in_a_row"], metrics["skip_rate"]) == (400, 400, 1.0)
    run(scaler, [1.0])
    with pytest.warns(UserWarning, match="25 updates in a row"):
        run(scaler, [INF] * 30)


def test_B005_floor_is_configurable_and_reported():
    """A loss that is finite in fp16 for scales up to 2^-3 only."""

    def train(scaler):
        p = nn.Parameter(torch.ones(1))
        opt = torch.optim.SGD([p], lr=2.0**-20)
        for _ in range(40):
            opt.zero_grad()
            loss = scaler.scale(p * 2.0**18)
            (loss * (1.0 if loss.item() <= 65504 else INF)).sum().backward()
            scaler.step(opt)
            scaler.update()
        return p.item(), scaler.metrics()

    value, metrics = train(GradScaler("cpu", min_scale=1.0))
    assert value == 1.0 and metrics["scale"] == 1.0 and metrics["floor_hits"] == 24 and metrics["steps"] == 0
    value, metrics = train(GradScaler("cpu", min_scale=2.0**-10))
    assert metrics["floor_hits"] == 0 and metrics["scale"] == 2.0**-3 and metrics["steps"] > 0
    assert value == 1.0 - 0.25 * metrics["steps"]


def test_B007_scale_is_float32_whatever_is_given():
    scaler = GradScaler("cpu", init_scale=np.float16(2**15), growth_interval=1)
    assert scaler.scale(torch.ones((), dtype=torch.float16)).dtype is torch.float32
    assert run(scaler, [1.0]) == [65536.0] and scaler._scale.dtype is torch.float32


def test_B009_floor_raises_warns_or_holds():
    p = parameter()
    scaler = started(4.0, min_scale=2.0, on_floor="raise")
    assert run(scaler, [1.0, INF], sgd(p, name="layer.")) == [4.0, 2.0]
    with pytest.raises(ScaleFloorError, match=r"last good step was 0; in the gradients of layer\.0") as error:
        run(scaler, [INF], sgd(p, name="layer."))
    assert isinstance(error.value, FloatingPointError)
    assert (error.value.scale, error.value.last_good_step, error.value.culprits) == (2.0, 0, ("layer.0",))
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert run(scaler, [1.0]) == [2.0]  # the iteration that raised is over
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(started(4.0, min_scale=2.0), [INF] * 3) == [2.0] * 3
    scaler = started(1.0, min_scale=0.1)  # no fp32 number
    assert run(scaler, [INF] * 4) == [0.5, 0.25, 0.125, float(np.float32(0.1))]
    run(scaler, [INF])
    assert scaler.metrics()["floor_hits"] == 1
    with pytest.warns(UserWarning, match="min_scale=2.0") as caught:
        assert run(started(4.0, min_scale=2.0, on_floor="warn"), [INF] * 5) == [2.0] * 5
    assert len(caught) == 1


def test_B011_cap_and_interval_of_the_scale():
    scales = run(started(1.0, max_scale=8.0, growth_interval=1), [1.0] * 1000)
    assert max(scales) == 8.0 == scales[-1]
    assert run(started(6.0, max_scale=8.0, growth_interval=1), [1.0, 1.0]) == [8.0, 8.0]
    assert GradScaler("cpu", max_scale=8.0).get_scale() == 8.0

    scaler = started(1.0, growth_interval=lambda scale: int(scale))
    assert run(scaler, [1.0] * 8) == [2, 2, 4, 4, 4, 4, 8, 8]
    state = scaler.state_dict()
    assert state["growth_interval"] == 8 == scaler.get_growth_interval() and state["_growth_tracker"] == 1
    plain, same = GradScaler("cpu"), GradScaler("cpu", growth_interval=lambda scale: int(scale))
    plain.load_state_dict(state)
    same.load_state_dict(state)
    assert plain.get_growth_interval() == 8 and run(same, [1.0] * 7) == run(plain, [1.0] * 7) == [8.0] * 6 + [16.0]
    assert (same.get_growth_interval(), plain.get_growth_interval()) == (16, 8)


@pytest.mark.parametrize(
    "consecutive, scales", [(False, [8, 4, 4, 2, 2, 4, 4, 2]), (True, [8, 4, 4, 4, 4, 8, 8, 4])], ids=["cumulative", "consecutive"]
)
def test_B013_hysteresis(consecutive, scales):
    scaler = started(8.0, hysteresis=2, consecutive_hysteresis=consecutive, growth_interval=2)
    assert run(scaler, [INF, INF, 1, INF, 1, 1, INF, INF]) == scales
    assert scaler.metrics()["skipped_total"] == 5 and scaler.metrics()["skip_rate"] == 5 / 8
    assert scaler.history[0].action == "hold" and scaler.history[0].found_inf == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_scale": 0.0}, {"min_scale": 1e-60}, {"max_scale": 1e39}, {"max_scale": INF}, {"max_scale": NAN},
        {"min_scale": 4.0, "max_scale": 2.0}, {"hysteresis": 0}, {"hysteresis": 1.5},
        {"on_floor": "stop", "min_scale": 1.0}, {"on_floor": "raise"}, {"warn_after": 0}, {"on_no_grads": "ignore"},
    ],
)  # fmt: skip
def test_limits_that_make_no_sense(wrong):
    with pytest.raises(ValueError):
        GradScaler("cpu", **wrong)


def test_without_limits_the_state_has_five_keys():
    keys = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}
    assert set(GradScaler("cpu", on_no_grads="skip").state_dict()) == keys
    assert set(GradScaler("cpu", min_scale=1.0).state_dict()) == {*keys, "limits"}


# ---- call order, several optimizers, accumulation --------------------------------------------------------------------


def test_B015_unscale_twice():
    scaler, a, b = started(), sgd(parameter([1.0])), torch.optim.AdamW([parameter([1.0])])
    scaler.unscale_(a)
    scaler.unscale_(b)
    with pytest.raises(RuntimeError, match=r"already been called on this optimizer.*\(SGD\)"):
        scaler.unscale_(a)
    scaler.step(a)
    scaler.step(b)
    scaler.update()
    scaler.unscale_(a)


def test_B017_no_gradients():
    with pytest.raises(AssertionError, match="No inf checks were recorded.*SGD has 2 parameters and the gradient of each is None"):
        started().step(sgd(parameter(), parameter()))
    scaler, empty, full = started(4.0, on_no_grads="skip", growth_interval=2), sgd(parameter()), sgd(parameter([4.0]))
    assert scaler.step(empty) is None and scaler.last_step is StepStatus.NO_GRADS
    scaler.step(full)
    scaler.update()
    assert scaler.last_step is StepStatus.STEPPED and scaler._get_growth_tracker() == 1
    scaler.step(empty)
    scaler.update()
    assert scaler.get_scale() == 4.0 and scaler._get_growth_tracker() == 1 and scaler.metrics()["skipped_total"] == 0
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()


def test_B019_one_update_for_two_optimizers():
    scaler, a, b = started(), sgd(parameter([INF])), sgd(parameter([1.0]))
    scaler.step(a)
    scaler.step(b)
    scaler.update()
    assert scaler.get_scale() == 4.0
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()


def test_B021_two_scalers():
    opt = sgd(parameter([8.0]))
    first, second = started(8.0), started(4.0)
    first.unscale_(opt)
    with pytest.warns(UserWarning, match="two GradScalers work on one SGD"):
        second.step(opt)
    first, second = started(8.0), started(4.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scaler in (first, second, first):
            run(scaler, [1.0], opt)

    first, second = GradScaler("cpu", init_scale=8.0, growth_interval=2), GradScaler("cpu", init_scale=4.0)
    group = ScalerGroup([first, second])
    p, q = parameter(), parameter()
    a, b = torch.optim.SGD([p], lr=1.0), torch.optim.SGD([q], lr=1.0)
    for bad, scale in ((1.0, 8.0), (INF, 4.0), (1.0, 4.0), (1.0, 8.0)):
        a.zero_grad()
        b.zero_grad()
        first.scale((p + q).sum()).backward()
        second.scale((2 * p + bad * q).sum()).backward()
        first.step(a)
        second.step(b)
        group.update()
        assert group.get_scale() == first.get_scale() == second.get_scale() == scale
    actions = [[row.action for row in scaler.history] for scaler in group.scalers]
    assert actions == [["keep", "backoff", "keep", "grow"]] * 2
    assert p.item() == -3.0 * 4 and q.item() == -2.0 * 3  # only q's gradient overflowed
    assert first.explain().total == 0 and second.explain()[0].new_scale == 4.0
    with pytest.raises(RuntimeError, match="ScalerGroup"):
        second.update()
    again = ScalerGroup([GradScaler("cpu"), GradScaler("cpu")])
    again.load_state_dict(group.state_dict())
    assert again.get_scale() == 8.0 and again.scalers[1].get_growth_interval() == 2
    with pytest.raises(ValueError):
        ScalerGroup([])
    with pytest.raises(RuntimeError, match="another group"):
        ScalerGroup([first])


def test_B023_unscale_right_after_resume():
    scaler, opt = GradScaler("cpu"), sgd(parameter([4.0]))
    with pytest.raises(AssertionError, match="made by the first scaler.scale"):
        scaler.unscale_(opt)
    scaler.load_state_dict(started(4.0).state_dict())
    scaler.unscale_(opt)
    assert opt.param_groups[0]["params"][0].grad.item() == 1.0


def test_B025_accumulation_equals_the_big_batch():
    x = np.arange(1.0, 9.0, dtype=np.float32).reshape(8, 1)

    def train(parts):
        w = nn.Parameter(torch.ones(1, 1))
        opt, scaler = torch.optim.SGD([w], lr=2.0**-8), GradScaler("cpu", init_scale=2.0**10)
        for rows in np.split(x, parts):
            loss = (torch.from_numpy(rows) @ w).square().mean() / parts
            scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return w.item(), scaler.history.total

    assert train(1) == train(4) == (1.0 - 2.0**-8 * 2 * (x**2).mean(), 1)


# ---- skipped steps, schedulers, counters -----------------------------------------------------------------------------


def train_with_schedule(pattern):
    p = parameter()
    opt, scaler, statuses = torch.optim.SGD([p], lr=1.0), started(), []
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)
    for value in pattern:
        p.grad = torch.tensor([value])
        scaler.step(opt)
        scaler.update()
        statuses.append(scaler.last_step)
        if scaler.last_step is StepStatus.STEPPED:
            schedule.step()
    return statuses, schedule, scaler


def test_B027_a_skip_is_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        statuses, schedule, _ = train_with_schedule([INF, 1.0])
    assert statuses == [StepStatus.SKIPPED, StepStatus.STEPPED] and schedule.last_epoch == 1


def test_B029_schedule_counts_real_steps():
    statuses, schedule, scaler = train_with_schedule([1.0, INF, 1.0, NAN, 1.0, 1.0, INF, 1.0, 1.0, 1.0])
    assert schedule.last_epoch == 7 == scaler.metrics()["steps"] and len(statuses) == 10


def test_B031_not_attempted_is_not_skipped():
    scaler, p, seen = started(), parameter(), []
    opt = sgd(p)
    for window in ([1.0] * 4, [1.0, INF, 1.0, 1.0]):
        opt.zero_grad()
        for i, value in enumerate(window):
            before = scaler.metrics()
            scaler.scale((p * value).sum()).backward()
            if i < 3:
                assert scaler.metrics() == before
        scaler.step(opt)
        scaler.update()
        seen.append(scaler.last_step)
    assert seen == [StepStatus.STEPPED, StepStatus.SKIPPED]


def test_B033_steps_and_batches_are_counted():
    scaler = started()
    run(scaler, [1.0, INF, 1.0, 1.0, 1.0])
    assert scaler.metrics()["steps"] == 4 and scaler.history.total == 5


# ---- saving ----------------------------------------------------------------------------------------------------------


def test_B035_empty_states():
    full = started(4.0).state_dict()
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        GradScaler("cpu").load_state_dict({})
    for state in ({}, full):
        GradScaler("cpu", enabled=False).load_state_dict(state)
    scaler = GradScaler("cpu")
    scaler.load_state_dict(full)
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("kwargs", [{}, {"hysteresis": 3, "min_scale": 2.0, "max_scale": 2.0**12}], ids=["plain", "limits"])
def test_B037_resume_anywhere(kwargs):
    pattern = np.where(np.random.default_rng(0).random(50) < 0.3, INF, 1.0)
    kwargs = {"growth_interval": 3, **kwargs}
    straight = run(started(2.0**10, **kwargs), pattern)
    for k in range(50):
        first = started(2.0**10, **kwargs)
        head = run(first, pattern[:k])
        second = GradScaler("cpu", **kwargs)
        second.load_state_dict(first.state_dict())
        assert head + run(second, pattern[k:]) == straight


def test_B039_checkpoint_holds_everything(tmp_path):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        opt = torch.optim.AdamW(model.parameters(), lr=0.01)
        return model, opt, GradScaler("cpu", growth_interval=3), torch.optim.lr_scheduler.StepLR(opt, 5)

    def train(model, opt, scaler, schedule, steps):
        for _ in range(steps):
            opt.zero_grad()
            scaler.scale(model(torch.randn(8, 3)).square().mean()).backward()
            scaler.step(opt)
            scaler.update()
            schedule.step()

    state = torch.get_rng_state()
    try:
        straight = make()
        train(*straight, 20)
        half = make()
        train(*half, 10)
        names = ("model", "optimizer", "scaler", "scheduler")
        torch.serialization.save_checkpoint(tmp_path / "c", **dict(zip(names, half, strict=True)))
        resumed = make()
        torch.randn(100)
        torch.serialization.load_checkpoint(tmp_path / "c", **dict(zip(names, resumed, strict=True)))
        train(*resumed, 10)
    finally:
        torch.set_rng_state(state)
    for a, b in zip(straight[0].parameters(), resumed[0].parameters(), strict=True):
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
    assert straight[2].state_dict() == resumed[2].state_dict() and straight[3].state_dict() == resumed[3].state_dict()


def test_B041_pickle_between_iterations_only():
    scaler, opt = started(growth_interval=2, hysteresis=2), sgd(parameter([1.0]))
    run(scaler, [1.0, INF], opt)
    for other in (pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        assert other.state_dict() == scaler.state_dict()
    scaler.unscale_(opt)
    with pytest.raises(AssertionError, match="may only be pickled at the beginning of an iteration"):
        pickle.dumps(scaler)


class Decorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    @amp.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x):
        return self.linear(x)


def test_B043_decorated_modules_can_be_copied():
    model, x = Decorated(), torch.ones(1, 2)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert other(x).dtype is torch.bfloat16 and torch.equal(other(x), model(x))
    assert Decorated.forward.__wrapped__(model, x).dtype is torch.float32


# ---- the form of gradients -------------------------------------------------------------------------------------------


def test_B045_fp16_gradients_are_refused_whole():
    good, half = parameter([8.0]), parameter([8.0], torch.float16)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients: w1 is float16. Keep the parameters in float32"):
        started().unscale_(sgd(good, half))
    assert good.grad.item() == half.grad.item() == 8.0


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_B047_found_inf_is_sticky(order):
    params = [parameter([INF], torch.bfloat16), parameter([1.0]), parameter([1.0], torch.float64)]
    opt = torch.optim.SGD([{"params": [params[i]]} for i in order], lr=0.5)
    scaler = started()
    scaler.step(opt)
    assert scaler.last_step is StepStatus.SKIPPED


class Holder:
    def __init__(self, grad):
        self.grad = grad


class Foreign:
    def __init__(self, *params):
        self.param_groups = [{"params": list(params)}]

    def step(self):
        pass


LAYOUTS = {
    "transposed": lambda a: a.T,
    "sliced": lambda a: a[::2, 1:],
    "negative": lambda a: a[::-1, ::-1],
    "fortran": lambda a: np.asfortranarray(a),
    "byte-swapped": lambda a: a.astype(">f4"),
    "unaligned": lambda a: np.frombuffer(bytearray(b"x" + a.tobytes()), np.uint8)[1:].view(np.float32).reshape(a.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("poison", [False, True])
def test_B049_strides_are_honoured(layout, poison):
    grad = LAYOUTS[layout](np.arange(1, 25, dtype=np.float32).reshape(4, 6))
    if poison:
        grad[1, 1] = NAN
    expected, scaler = np.array(grad) / 8, started()
    scaler.step(Foreign(Holder(grad)))
    np.testing.assert_array_equal(grad, expected)
    assert scaler.last_step is (StepStatus.SKIPPED if poison else StepStatus.STEPPED)


def test_B049_read_only_broadcasts_are_refused():
    with pytest.raises(ValueError, match="read-only"):
        started().unscale_(Foreign(Holder(np.broadcast_to(np.float32(1), (3, 3)))))


def test_B051_empty_gradients_count_as_checked():
    empty = nn.Parameter(torch.zeros(0, 3))
    empty.grad = torch.zeros(0, 3)
    for params in ([empty], [empty, parameter([1.0])]):
        scaler = started()
        scaler.step(sgd(*params))
        scaler.update()
        assert scaler.last_step is StepStatus.STEPPED


# ---- clipping, norm, penalty -----------------------------------------------------------------------------------------


def clipped_run(clip, scale=65536.0):
    p = nn.Parameter(torch.zeros(2))
    opt, scaler = torch.optim.SGD([p], lr=1.0), GradScaler("cpu", init_scale=scale)
    scaler.scale((p * torch.tensor([6.0, 8.0])).sum()).backward()
    clip(scaler, opt, p)
    scaler.step(opt)
    scaler.update()
    return p.detach().numpy()


def test_B053_clip_after_unscaling():
    def by_hand(scaler, opt, p):
        scaler.unscale_(opt)
        assert nn.utils.clip_grad_norm_([p], 1.0).item() == 10.0

    def by_division(scaler, opt, p):
        p.grad.div_(scaler.get_scale())
        nn.utils.clip_grad_norm_([p], 1.0)
        p.grad.mul_(scaler.get_scale())

    def by_scaler(scaler, opt, p):
        assert scaler.clip_grad_norm_(opt, 1.0).item() == 10.0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for clip in (by_hand, by_division, by_scaler):
            np.testing.assert_allclose(clipped_run(clip), [-0.6, -0.8], rtol=1e-6)
        clipped_run(lambda scaler, opt, p: nn.utils.clip_grad_norm_([p], 1.0), scale=1.0)
        p = nn.Parameter(torch.ones(2))
        p.sum().backward()
        started(8.0)
        nn.utils.clip_grad_norm_([p], 1.0)
        GradScaler("cpu", enabled=False).scale(p.sum()).backward()
        nn.utils.clip_grad_value_([p], 1.0)


@pytest.mark.parametrize(
    "clip",
    [
        lambda p: nn.utils.clip_grad_norm_([p], 1.0),
        lambda p: nn.utils.clip_grad_value_([p], 1.0),
        lambda p: nn.utils.clip_grads_with_norm_([p], 1.0, torch.tensor(10.0)),
    ],
)
def test_B053_clipping_scaled_gradients_is_told(clip, monkeypatch):
    def backward(scaler, p):
        p.grad = None
        for part in (scaler.scale(p.sum()) / 2, scaler.scale([p.sum()])[0]):  # also where more follows the scaled loss
            part.backward()

    p, scaler = nn.Parameter(torch.ones(2)), GradScaler("cpu")
    backward(scaler, p)
    with pytest.warns(UserWarning, match=r"still multiplied by the loss scale 65536.*scaler\.unscale_\(optimizer\)") as caught:
        clip(p)
        backward(scaler, p)
        clip(p)
    assert len(caught) == 1 and caught[0].filename == __file__
    monkeypatch.setenv("AMPNATIVE_STRICT", "1")
    backward(scaler, p)
    before = p.grad.clone()
    with pytest.raises(RuntimeError, match="unscale_"):
        clip(p)
    assert torch.equal(p.grad, before)
    assert amp.warn_on_scaled_clip(False) is True
    try:
        clip(p)
    finally:
        assert amp.warn_on_scaled_clip(True) is False


def test_B053_clip_of_the_scaler_leaves_an_overflow_alone():
    p = parameter([8.0, INF])
    scaler, opt = started(), sgd(p)
    assert scaler.clip_grad_norm_(opt, 1.0).item() == INF and p.grad.tolist() == [1.0, INF]
    with pytest.raises(RuntimeError, match="non-finite"):
        scaler.clip_grad_norm_(opt, 1.0, error_if_nonfinite=True)
    scaler.step(opt)
    assert scaler.last_step is StepStatus.SKIPPED
    with pytest.raises(RuntimeError, match="after step"):
        scaler.clip_grad_norm_(opt, 1.0)


def test_B055_infinite_norm():
    p = parameter([INF, 1.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert p.grad.tolist() == [INF, 1.0]
    nn.utils.clip_grad_norm_([p], 1.0)
    assert np.isnan(p.grad[0].item()) and p.grad[1].item() == 0.0  # PyTorch's values


def test_B057_overflow_is_an_element_not_a_norm():
    p, q = parameter([1e19] * 128), parameter([3e38, 3e38])
    scaler = started(1.0)
    scaler.step(sgd(p, q))
    assert scaler.last_step is StepStatus.STEPPED
    np.testing.assert_allclose(nn.utils.get_total_norm([p.grad]).item(), 1e19 * 128**0.5, rtol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 2.0**10, 2.0**16])
def test_B059_gradient_penalty(scale):
    w, x = nn.Parameter(torch.tensor([2.0])), torch.tensor([3.0])
    scaler, opt = started(scale), torch.optim.SGD([w], lr=1.0)
    (scaled,) = torch.autograd.grad(scaler.scale((w * x).pow(2).sum()), [w], create_graph=True)
    penalty = (scaled * (1.0 / scaler.get_scale())).norm()  # |2 w x^2| = 18 w
    scaler.scale((w * x).sum() + penalty).backward()
    scaler.unscale_(opt)
    assert w.grad.item() == 3.0 + 18.0


# ---- after a skip ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
def test_B063_gradients_after_a_skip(fused):
    p = nn.Parameter(torch.zeros(2))
    opt, scaler = torch.optim.SGD([p], lr=1.0, fused=fused), started(8.0)
    p.grad = torch.tensor([8.0, INF])
    scaler.step(opt)
    scaler.update()
    assert scaler.last_step is StepStatus.SKIPPED and p.tolist() == [0.0, 0.0]
    # The unfused path has unscaled; a fused optimizer gets scaled gradients and leaves them so, as in PyTorch.
    assert p.grad.tolist() == [8.0 if fused else 1.0, INF]


# ---- derived ---------------------------------------------------------------------------------------------------------


def test_derived_scale_of_zero_skips():
    scaler = started(8.0)
    scaler.update(0.0)
    p = parameter([0.0])
    scaler.step(sgd(p))
    assert scaler.last_step is StepStatus.SKIPPED and p.item() == 0.0


def test_derived_inf_outside_the_optimizer_is_nobodys_overflow():
    inside, outside = parameter([1.0]), parameter([INF])
    scaler = started()
    scaler.step(sgd(inside))
    assert scaler.last_step is StepStatus.STEPPED and outside.grad.item() == INF


def test_derived_containers_keep_their_type():
    scaler, x = started(2.0), torch.ones(1)
    assert type(scaler.scale([x])) is list and type(scaler.scale((x, [x]))) is tuple
    assert [t.item() for t in scaler.scale(t for t in (x, x))] == [2.0, 2.0]
    assert scaler.scale(torch.ones(())).shape == () and scaler.scale(x).shape == (1,)


def test_derived_alternating_overflow_does_not_drift():
    assert run(started(8.0, growth_interval=1), [INF, 1.0] * 20) == [4.0, 8.0] * 20


@pytest.mark.parametrize("wrong", [1, True, np.float16(2), np.ones(1)])
def test_derived_update_takes_floats_and_tensors(wrong):
    scaler = started()
    with pytest.raises(AttributeError):
        scaler.update(wrong)
    assert scaler.get_scale() == 8.0
