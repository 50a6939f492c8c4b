"""Schedulers and weight averages: recorded numbers of PyTorch, closed forms, saved state, errors and warnings."""

import io
import json
import math
import warnings
from collections import Counter

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

S = torch.optim.lr_scheduler
U = torch.optim.swa_utils


def optimizer(kind="SGD", **options):
    a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    if kind == "SGD":
        options = {"momentum": 0.9, **options}
    return getattr(torch.optim, kind)([{"params": [a], "lr": 0.5}, {"params": [b]}], lr=0.1, **options)


def state_of(o):
    return [x for g in o.param_groups for x in (g["lr"], g["betas"][0] if "betas" in g else g["momentum"])]


def walk(o, scheduler, steps):
    """(rate, momentum) of both groups after each step."""
    seen = []
    for _ in range(steps):
        o.step()
        scheduler.step()
        assert scheduler.get_last_lr() == [g["lr"] for g in o.param_groups]
        seen.append(state_of(o))
    return seen


MAKERS = {
    "lambda": lambda o: S.LambdaLR(o, lambda t: 0.9**t),
    "multiplicative": lambda o: S.MultiplicativeLR(o, [lambda t: 0.9, lambda t: 1 / (t + 1)]),
    "step": lambda o: S.StepLR(o, 3, 0.5),
    "multistep": lambda o: S.MultiStepLR(o, [7, 3, 3, 12], 0.5),
    "exponential": lambda o: S.ExponentialLR(o, 0.9),
    "constant": lambda o: S.ConstantLR(o, 0.25, 4),
    "linear": lambda o: S.LinearLR(o, 0.1, 0.8, 6),
    "polynomial": lambda o: S.PolynomialLR(o, 7, 2.0),
    "cosine": lambda o: S.CosineAnnealingLR(o, 5, 0.01),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "one cycle": lambda o: S.OneCycleLR(o, [1.0, 0.3], total_steps=15),
    "one cycle, linear": lambda o: S.OneCycleLR(
        o, 1.0, epochs=3, steps_per_epoch=5, anneal_strategy="linear", pct_start=0.4, div_factor=10, final_div_factor=100,
        base_momentum=[0.8, 0.7], max_momentum=0.99,
    ),
    "one cycle, three phases": lambda o: S.OneCycleLR(o, 1.0, total_steps=14, three_phase=True),
    "one cycle, no momentum": lambda o: S.OneCycleLR(o, 1.0, total_steps=14, cycle_momentum=False),
    "cyclic": lambda o: S.CyclicLR(o, 0.01, 0.5, step_size_up=4),
    "cyclic, triangular2": lambda o: S.CyclicLR(
        o, [0.01, 0.02], [0.5, 0.3], step_size_up=4, step_size_down=3, mode="triangular2", base_momentum=0.7, max_momentum=0.95
    ),
    "cyclic, exp_range": lambda o: S.CyclicLR(o, 0.01, 0.5, step_size_up=4, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "cyclic, own": lambda o: S.CyclicLR(o, 0.01, 0.5, step_size_up=4, scale_fn=lambda x: 0.5**x, scale_mode="iterations"),
    "sequential": lambda o: S.SequentialLR(
        o, [S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9), S.CosineAnnealingLR(o, 5)], [2, 8]
    ),
    "warm-up": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, total_iters=5), S.CosineAnnealingLR(o, 10)], [5]),
    "warm-up, restarts": lambda o: S.SequentialLR(
        o, [S.LinearLR(o, 0.1, total_iters=4), S.StepLR(o, 2), S.CosineAnnealingWarmRestarts(o, 5)], [4, 8]
    ),
    "chained": lambda o: S.ChainedScheduler([S.LinearLR(o, 0.1, total_iters=5), S.MultiStepLR(o, [3, 6])], optimizer=o),
    "average": lambda o: U.SWALR(o, swa_lr=[0.05, 0.3], anneal_epochs=5),
    "average, linear": lambda o: U.SWALR(o, swa_lr=0.05, anneal_epochs=5, anneal_strategy="linear"),
    "average, at once": lambda o: U.SWALR(o, swa_lr=0.05, anneal_epochs=0),
}
STEPS = 14

# torch 2.15.0: (rate, momentum) of both groups, after 1, 2, 4, 5, 9 and 14 steps
AFTER = (1, 2, 4, 5, 9, 14)
RECORDED = {
    "lambda": [
        [0.45, 0.9, 0.09, 0.9],
        [0.405, 0.9, 0.081, 0.9],
        [0.32805, 0.9, 0.06561, 0.9],
        [0.295245, 0.9, 0.059049, 0.9],
        [0.1937102445, 0.9, 0.0387420489, 0.9],
        [0.1143839623, 0.9, 0.02287679245, 0.9],
    ],
    "multiplicative": [
        [0.45, 0.9, 0.05, 0.9],
        [0.405, 0.9, 0.01666666667, 0.9],
        [0.32805, 0.9, 0.0008333333333, 0.9],
        [0.295245, 0.9, 0.0001388888889, 0.9],
        [0.1937102445, 0.9, 2.755731922e-08, 0.9],
        [0.1143839623, 0.9, 7.647163732e-14, 0.9],
    ],
    "step": [
        [0.5, 0.9, 0.1, 0.9],
        [0.5, 0.9, 0.1, 0.9],
        [0.25, 0.9, 0.05, 0.9],
        [0.25, 0.9, 0.05, 0.9],
        [0.0625, 0.9, 0.0125, 0.9],
        [0.03125, 0.9, 0.00625, 0.9],
    ],
    "multistep": [
        [0.5, 0.9, 0.1, 0.9],
        [0.5, 0.9, 0.1, 0.9],
        [0.125, 0.9, 0.025, 0.9],
        [0.125, 0.9, 0.025, 0.9],
        [0.0625, 0.9, 0.0125, 0.9],
        [0.03125, 0.9, 0.00625, 0.9],
    ],
    "exponential": [
        [0.45, 0.9, 0.09, 0.9],
        [0.405, 0.9, 0.081, 0.9],
        [0.32805, 0.9, 0.06561, 0.9],
        [0.295245, 0.9, 0.059049, 0.9],
        [0.1937102445, 0.9, 0.0387420489, 0.9],
        [0.1143839623, 0.9, 0.02287679245, 0.9],
    ],
    "constant": [
        [0.125, 0.9, 0.025, 0.9],
        [0.125, 0.9, 0.025, 0.9],
        [0.5, 0.9, 0.1, 0.9],
        [0.5, 0.9, 0.1, 0.9],
        [0.5, 0.9, 0.1, 0.9],
        [0.5, 0.9, 0.1, 0.9],
    ],
    "linear": [
        [0.1083333333, 0.9, 0.02166666667, 0.9],
        [0.1666666667, 0.9, 0.03333333333, 0.9],
        [0.2833333333, 0.9, 0.05666666667, 0.9],
        [0.3416666667, 0.9, 0.06833333333, 0.9],
        [0.4, 0.9, 0.08, 0.9],
        [0.4, 0.9, 0.08, 0.9],
    ],
    "polynomial": [
        [0.3673469388, 0.9, 0.07346938776, 0.9],
        [0.2551020408, 0.9, 0.05102040816, 0.9],
        [0.09183673469, 0.9, 0.01836734694, 0.9],
        [0.04081632653, 0.9, 0.008163265306, 0.9],
        [0.0, 0.9, 0.0, 0.9],
        [0.0, 0.9, 0.0, 0.9],
    ],
    "cosine": [
        [0.4532091636, 0.9, 0.09140576475, 0.9],
        [0.3307091636, 0.9, 0.06890576475, 0.9],
        [0.05679083638, 0.9, 0.01859423525, 0.9],
        [0.01, 0.9, 0.01, 0.9],
        [0.4532091636, 0.9, 0.09140576475, 0.9],
        [0.05679083638, 0.9, 0.01859423525, 0.9],
    ],
    "restarts": [
        [0.3775, 0.9, 0.0775, 0.9],
        [0.1325, 0.9, 0.0325, 0.9],
        [0.4671762239, 0.9, 0.09397114317, 0.9],
        [0.3775, 0.9, 0.0775, 0.9],
        [0.5, 0.9, 0.1, 0.9],
        [0.3184106661, 0.9, 0.06664685703, 0.9],
    ],
    "one cycle": [
        [0.2207248951, 0.9311744901, 0.06621746853, 0.9311744901],
        [0.6268100483, 0.8888739533, 0.1880430145, 0.8888739533],
        [0.9944154355, 0.8505584587, 0.2983246306, 0.8505584587],
        [0.950484632, 0.8549515566, 0.2851453896, 0.8549515566],
        [0.4626371027, 0.9037365047, 0.1387911308, 0.9037365047],
        [4e-06, 0.95, 1.2e-06, 0.95],
    ],
    "one cycle, linear": [
        [0.28, 0.952, 0.28, 0.932],
        [0.46, 0.914, 0.46, 0.874],
        [0.82, 0.838, 0.82, 0.758],
        [1.0, 0.8, 1.0, 0.7],
        [0.556, 0.8844444444, 0.556, 0.8288888889],
        [0.001, 0.99, 0.001, 0.99],
    ],
    "one cycle, three phases": [
        [0.2533262882, 0.9277785117, 0.2533262882, 0.9277785117],
        [0.7036880475, 0.8808658284, 0.7036880475, 0.8808658284],
        [0.859411255, 0.8646446609, 0.859411255, 0.8646446609],
        [0.4263566454, 0.9097545161, 0.4263566454, 0.9097545161],
        [0.02654270513, 0.95, 0.02654270513, 0.95],
        [0.002227068698, 0.95, 0.002227068698, 0.95],
    ],
    "one cycle, no momentum": [
        [0.2533262882, 0.9, 0.2533262882, 0.9],
        [0.7036880475, 0.9, 0.7036880475, 0.9],
        [0.9836474969, 0.9, 0.9836474969, 0.9],
        [0.9190443763, 0.9, 0.9190443763, 0.9],
        [0.3577387757, 0.9, 0.3577387757, 0.9],
        [0.02547602461, 0.9, 0.02547602461, 0.9],
    ],
    "cyclic": [
        [0.1325, 0.875, 0.1325, 0.875],
        [0.255, 0.85, 0.255, 0.85],
        [0.5, 0.8, 0.5, 0.8],
        [0.3775, 0.825, 0.3775, 0.825],
        [0.1325, 0.875, 0.1325, 0.875],
        [0.255, 0.85, 0.255, 0.85],
    ],
    "cyclic, triangular2": [
        [0.1325, 0.8875, 0.09, 0.8875],
        [0.255, 0.825, 0.16, 0.825],
        [0.5, 0.7, 0.3, 0.7],
        [0.3366666667, 0.7833333333, 0.2066666667, 0.7833333333],
        [0.1325, 0.8875, 0.09, 0.8875],
        [0.01, 0.95, 0.02, 0.95],
    ],
    "cyclic, exp_range": [
        [0.12025, 0.9, 0.12025, 0.9],
        [0.20845, 0.9, 0.20845, 0.9],
        [0.331489, 0.9, 0.331489, 0.9],
        [0.227005075, 0.9, 0.227005075, 0.9],
        [0.0574590099, 0.9, 0.0574590099, 0.9],
        [0.06604814151, 0.9, 0.06604814151, 0.9],
    ],
    "cyclic, own": [
        [0.07125, 0.8875, 0.07125, 0.8875],
        [0.07125, 0.8875, 0.07125, 0.8875],
        [0.040625, 0.89375, 0.040625, 0.89375],
        [0.021484375, 0.89765625, 0.021484375, 0.89765625],
        [0.01023925781, 0.8999511719, 0.01023925781, 0.8999511719],
        [0.01001495361, 0.8999969482, 0.01001495361, 0.8999969482],
    ],
    "sequential": [
        [0.05, 0.9, 0.01, 0.9],
        [0.5, 0.9, 0.1, 0.9],
        [0.405, 0.9, 0.081, 0.9],
        [0.3645, 0.9, 0.0729, 0.9],
        [0.4522542486, 0.9, 0.09045084972, 0.9],
        [0.04774575141, 0.9, 0.009549150281, 0.9],
    ],
    "warm-up": [
        [0.14, 0.9, 0.028, 0.9],
        [0.23, 0.9, 0.046, 0.9],
        [0.41, 0.9, 0.082, 0.9],
        [0.5, 0.9, 0.1, 0.9],
        [0.3272542486, 0.9, 0.06545084972, 0.9],
        [0.01223587093, 0.9, 0.002447174185, 0.9],
    ],
    "warm-up, restarts": [
        [0.1625, 0.9, 0.0325, 0.9],
        [0.275, 0.9, 0.055, 0.9],
        [0.5, 0.9, 0.1, 0.9],
        [0.5, 0.9, 0.1, 0.9],
        [0.4522542486, 0.9, 0.09045084972, 0.9],
        [0.4522542486, 0.9, 0.09045084972, 0.9],
    ],
    "chained": [
        [0.14, 0.9, 0.028, 0.9],
        [0.23, 0.9, 0.046, 0.9],
        [0.041, 0.9, 0.0082, 0.9],
        [0.05, 0.9, 0.01, 0.9],
        [0.005, 0.9, 0.001, 0.9],
        [0.005, 0.9, 0.001, 0.9],
    ],
    "average": [
        [0.4570288237, 0.9, 0.1190983006, 0.9],
        [0.3445288237, 0.9, 0.1690983006, 0.9],
        [0.09297117627, 0.9, 0.2809016994, 0.9],
        [0.05, 0.9, 0.3, 0.9],
        [0.05, 0.9, 0.3, 0.9],
        [0.05, 0.9, 0.3, 0.9],
    ],
    "average, linear": [
        [0.41, 0.9, 0.09, 0.9],
        [0.32, 0.9, 0.08, 0.9],
        [0.14, 0.9, 0.06, 0.9],
        [0.05, 0.9, 0.05, 0.9],
        [0.05, 0.9, 0.05, 0.9],
        [0.05, 0.9, 0.05, 0.9],
    ],
    "average, at once": [
        [0.05, 0.9, 0.05, 0.9],
        [0.05, 0.9, 0.05, 0.9],
        [0.05, 0.9, 0.05, 0.9],
        [0.05, 0.9, 0.05, 0.9],
        [0.05, 0.9, 0.05, 0.9],
        [0.05, 0.9, 0.05, 0.9],
    ],
}


@pytest.mark.parametrize("name", MAKERS)
def test_numbers_of_pytorch(name):
    o = optimizer()
    seen = walk(o, MAKERS[name](o), STEPS)
    assert np.allclose([seen[t - 1] for t in AFTER], RECORDED[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_resumed_run_goes_on_alike(name):
    """State dicts of scheduler and optimizer, taken over by fresh ones; the scheduler's is JSON but for its numbers."""
    o = optimizer()
    scheduler = MAKERS[name](o)
    walk(o, scheduler, 5)
    saved, groups = scheduler.state_dict(), o.state_dict()
    saved = json.loads(json.dumps(saved)) if not IS_PYTORCH else saved
    fresh = optimizer()
    other = MAKERS[name](fresh)
    fresh.load_state_dict(groups)
    other.load_state_dict(saved)
    assert other.get_last_lr() == scheduler.get_last_lr()
    assert np.allclose(walk(fresh, other, 6), walk(o, scheduler, 6), rtol=1e-13)


@pytest.mark.parametrize("kind", ["alone", "sequential", "chained"])
def test_milestones_survive_a_file(kind):
    def make(o):
        if kind == "alone":
            return MAKERS["multistep"](o)
        if kind == "chained":
            return S.ChainedScheduler([MAKERS["multistep"](o), MAKERS["exponential"](o)])
        return S.SequentialLR(o, [MAKERS["constant"](o), MAKERS["multistep"](o)], [2])

    o, fresh = optimizer(), optimizer()
    scheduler, other = make(o), make(fresh)
    walk(o, scheduler, 5)
    torch.save({"scheduler": scheduler.state_dict(), "optimizer": o.state_dict()}, file := io.BytesIO())
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    if kind == "alone":
        assert type(saved["scheduler"]["milestones"]) is Counter
    fresh.load_state_dict(saved["optimizer"])
    other.load_state_dict(saved["scheduler"])
    assert walk(fresh, other, 6) == walk(o, scheduler, 6)


CLOSED = ["step", "multistep", "exponential", "constant", "linear", "polynomial", "cosine"]


@pytest.mark.parametrize("name", CLOSED)
def test_closed_form_is_the_chain(name):
    o, jumping = optimizer(), optimizer()
    scheduler, jumper = MAKERS[name](o), MAKERS[name](jumping)
    jumping.step()
    for epoch in range(1, 8):
        o.step()
        scheduler.step()
        with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step"):
            jumper.step(epoch)
        assert np.allclose(state_of(o), state_of(jumping), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_momentum_of_adam_is_its_first_beta(kind):
    o = optimizer(kind)
    scheduler = S.OneCycleLR(o, 1.0, total_steps=10, base_momentum=0.5, max_momentum=0.75)
    betas = [o.param_groups[0]["betas"]]
    for _ in range(9):
        o.step()
        scheduler.step()
        betas.append(o.param_groups[0]["betas"])
    assert betas[0] == (0.75, 0.999) and betas[2] == (0.5, 0.999) and betas[-1] == pytest.approx((0.75, 0.999))


def test_rates_that_are_tensors():
    p = torch.nn.Parameter(torch.ones(2))
    rate = torch.tensor(0.5)
    o = torch.optim.SGD([p], lr=rate)
    scheduler = S.ExponentialLR(o, 0.5)
    o.step()
    scheduler.step()
    assert o.param_groups[0]["lr"] is rate and rate.item() == 0.25 and scheduler.base_lrs[0].item() == 0.5
    assert scheduler.get_last_lr()[0].item() == 0.25 and scheduler.get_last_lr()[0] is not rate


def plateau_twin(metrics, lr, factor, patience, threshold, cooldown, low, eps, better):
    best, bad, rest, rates = None, 0, 0, []
    for m in metrics:
        if best is None or better(m, best, threshold):
            best, bad = m, 0
        else:
            bad += 1
        if rest:
            rest, bad = rest - 1, 0
        if bad > patience:
            new = max(lr * factor, low)
            lr, bad, rest = new if lr - new > eps else lr, 0, cooldown
        rates.append(lr)
    return rates


BETTER = {
    ("min", "rel"): lambda m, best, t: m < best * (1 - t),
    ("min", "abs"): lambda m, best, t: m < best - t,
    ("max", "rel"): lambda m, best, t: m > best * (1 + t),
    ("max", "abs"): lambda m, best, t: m > best + t,
}


@pytest.mark.parametrize("options", [{}, {"patience": 1, "cooldown": 2}, {"patience": 0, "min_lr": 0.01, "eps": 0.02}])
@pytest.mark.parametrize("mode, threshold_mode", BETTER)
def test_plateau(mode, threshold_mode, options):
    metrics = [2 + math.cos(0.3 * t) * (1 + 0.01 * t) + (0 if t % 7 else 0.3) for t in range(40)]
    given = dict(factor=0.5, patience=10, threshold=0.1, cooldown=0, min_lr=0.0, eps=1e-8) | options
    o = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.8)
    scheduler = S.ReduceLROnPlateau(o, mode=mode, threshold_mode=threshold_mode, **given)
    seen = []
    for metric in metrics:
        o.step()
        scheduler.step(torch.tensor(metric, dtype=torch.float64))
        seen.append(scheduler.get_last_lr()[0])
    low = given.pop("min_lr")
    assert seen == plateau_twin(metrics, 0.8, low=low, better=BETTER[mode, threshold_mode], **given)
    assert scheduler.state_dict()["last_epoch"] == 40 and "optimizer" not in scheduler.state_dict()


def test_plateau_with_a_rate_per_group_and_added_groups():
    o = optimizer()
    scheduler = S.ReduceLROnPlateau(o, patience=0, min_lr=[0.1, 0.05])
    for _ in range(3):
        scheduler.step(1.0)
    assert [g["lr"] for g in o.param_groups] == [0.1, 0.05]
    o.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 1.0})
    with pytest.raises(RuntimeError, match="min_lrs"):
        scheduler.step(1.0)
    scheduler = S.ReduceLROnPlateau(optimizer(), patience=0)
    scheduler.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 1.0})
    scheduler.step(1.0), scheduler.step(1.0)
    assert scheduler.get_last_lr() == pytest.approx([0.05, 0.01, 0.1])


def rprop():
    return torch.optim.Rprop([torch.nn.Parameter(torch.ones(1))])


def both(first, second):
    return [S.StepLR(first, 1), S.StepLR(second, 1)]


def with_member(make):
    o = optimizer()
    return make(o)


ERRORS = [
    (lambda: S.LambdaLR(optimizer(), [lambda t: 1]), ValueError, "Expected 2 lr_lambdas, but got 1"),
    (lambda: S.MultiplicativeLR(optimizer(), [lambda t: 1]), ValueError, "Expected 2 lr_lambdas, but got 1"),
    (lambda: S.ConstantLR(optimizer(), 1.5), ValueError, "expected to be between 0 and 1"),
    (lambda: S.LinearLR(optimizer(), 0.0), ValueError, "expected to be greater than 0"),
    (lambda: S.LinearLR(optimizer(), 0.5, 1.5), ValueError, "expected to be between 0 and 1"),
    (lambda: S.SequentialLR(optimizer(), [], []), ValueError, "expects at least one scheduler"),
    (lambda: with_member(lambda o: S.SequentialLR(o, [S.StepLR(o, 1)], [1])), ValueError, "number of schedulers"),
    (lambda: with_member(lambda o: S.SequentialLR(o, both(o, optimizer()), [1])), ValueError, "the same optimizer"),
    (
        lambda: with_member(lambda o: S.SequentialLR(o, [S.ReduceLROnPlateau(o), S.StepLR(o, 1)], [1])),
        ValueError,
        "does not support `ReduceLROnPlateau`",
    ),
    (lambda: S.ChainedScheduler([]), ValueError, "expects at least one scheduler"),
    (lambda: S.ChainedScheduler(both(optimizer(), optimizer())), ValueError, "the same optimizer"),
    (lambda: S.CosineAnnealingWarmRestarts(optimizer(), 0), ValueError, "Expected positive integer T_0"),
    (lambda: S.CosineAnnealingWarmRestarts(optimizer(), 1, 0.5), ValueError, "Expected integer T_mult >= 1"),
    (lambda: S.CosineAnnealingWarmRestarts(optimizer(), 1, 1, "x"), ValueError, "Expected float or int eta_min"),
    (lambda: S.CosineAnnealingWarmRestarts(optimizer(), 4).step(-1), ValueError, "Expected non-negative epoch"),
    (lambda: S.OneCycleLR(optimizer(), 1.0), ValueError, "either total_steps OR"),
    (lambda: S.OneCycleLR(optimizer(), 1.0, 0), ValueError, "Expected positive integer total_steps"),
    (lambda: S.OneCycleLR(optimizer(), 1.0, epochs=0, steps_per_epoch=1), ValueError, "Expected positive integer epochs"),
    (lambda: S.OneCycleLR(optimizer(), 1.0, 10, pct_start=2), ValueError, "Expected float between 0 and 1 pct_start"),
    (lambda: S.OneCycleLR(optimizer(), 1.0, 10, anneal_strategy="x"), ValueError, "must be one of 'cos' or 'linear'"),
    (lambda: S.OneCycleLR(optimizer(), [1.0], 10), ValueError, "max_lr must have the same length"),
    (lambda: S.OneCycleLR(rprop(), 1.0, 10), ValueError, "must support momentum or beta1"),
    (lambda: S.CyclicLR(rprop(), 0.1, 1), ValueError, "must support momentum or beta1"),
    (lambda: S.CyclicLR(optimizer(), 0.1, 1, mode="x"), ValueError, "mode is invalid and scale_fn is None"),
    (lambda: S.CyclicLR(optimizer(), [0.1], 1), ValueError, "base_lr must have the same length"),
    (lambda: S.CyclicLR(3, 0.1, 1), TypeError, "is not an Optimizer"),
    (lambda: S.ReduceLROnPlateau(optimizer(), factor=1.0), ValueError, "Factor should be < 1.0."),
    (lambda: S.ReduceLROnPlateau(3), TypeError, "is not an Optimizer"),
    (lambda: S.ReduceLROnPlateau(optimizer(), min_lr=[1.0]), ValueError, "expected 2 min_lrs, got 1"),
    (lambda: S.ReduceLROnPlateau(optimizer(), mode="x"), ValueError, "mode x is unknown!"),
    (lambda: S.ReduceLROnPlateau(optimizer(), threshold_mode="x"), ValueError, "threshold mode x is unknown!"),
    (lambda: U.SWALR(optimizer(), [0.1]), ValueError, "swa_lr must have the same length"),
    (lambda: U.SWALR(optimizer(), 0.1, anneal_strategy="x"), ValueError, "must be one of 'cos' or 'linear'"),
    (lambda: U.SWALR(optimizer(), 0.1, anneal_epochs=-1), ValueError, "anneal_epochs must be equal or greater than 0"),
    (lambda: U.get_ema_avg_fn(1.5), ValueError, "Invalid decay value 1.5"),
    (lambda: U.get_ema_multi_avg_fn(-1), ValueError, "Invalid decay value -1"),
]


@pytest.mark.parametrize("call, error, words", ERRORS)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_one_step_too_many():
    o = optimizer()
    scheduler = S.OneCycleLR(o, 1.0, 4)
    walk(o, scheduler, 4)
    with pytest.raises(ValueError, match="Tried to step 5 times. The specified number of total steps is 4"):
        scheduler.step()


def test_warnings_about_the_order():
    scheduler = S.StepLR(optimizer(), 1)
    with pytest.warns(UserWarning, match="please use `get_last_lr"):
        scheduler.get_lr()
    o = optimizer()
    scheduler = S.StepLR(o, 1)
    o.step = lambda: None
    with pytest.warns(UserWarning, match="has been overridden after learning rate scheduler initialization"):
        scheduler.step()
    o = optimizer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        walk(o, MAKERS["warm-up, restarts"](o), 12)


class Decay:
    def __init__(self):
        self.rate = 0.5

    def __call__(self, x):
        return self.rate**x


@pytest.mark.parametrize(
    "make", [lambda o, f: S.LambdaLR(o, f), lambda o, f: S.MultiplicativeLR(o, f), lambda o, f: S.CyclicLR(o, 0.1, 1, 4, scale_fn=f)]
)
def test_callable_objects_are_saved(make):
    first, second = Decay(), Decay()
    scheduler, other = make(optimizer(), first), make(optimizer(), second)
    first.rate = 0.25
    other.load_state_dict(scheduler.state_dict())
    assert second.rate == 0.25


# ---- averages of weights ----


def model():
    m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1)).double()
    m.register_buffer("scale", torch.tensor([1.0, 2.0], dtype=torch.float64))
    m.register_buffer("count", torch.tensor(3))
    return m


def weights(m):
    return np.concatenate([np.asarray(p.detach().reshape(-1).tolist()) for p in m.parameters()])


RULES = {
    "mean": ({}, lambda a, v, n: a + (v - a) / (n + 1)),
    "mean of each": (dict(avg_fn=U.get_swa_avg_fn()), lambda a, v, n: a + (v - a) / (n + 1)),
    "ema": (dict(multi_avg_fn=U.get_ema_multi_avg_fn(0.9)), lambda a, v, n: 0.9 * a + 0.1 * v),
    "ema of each": (dict(avg_fn=U.get_ema_avg_fn(0.9)), lambda a, v, n: 0.9 * a + 0.1 * v),
    "own": (dict(avg_fn=lambda a, v, n: 0.5 * a + 0.25 * v), lambda a, v, n: 0.5 * a + 0.25 * v),
}


@pytest.mark.parametrize("name", RULES)
def test_averaged_model(name):
    options, rule = RULES[name]
    m = model()
    average = U.AveragedModel(m, **options)
    want = None
    for step in range(5):
        value = weights(m)
        average.update_parameters(m)
        want = value if step == 0 else rule(want, value, step)
        assert np.allclose(weights(average), want, rtol=1e-12, atol=1e-14)
        assert average.module.scale.tolist() == m.scale.tolist() and average.module.count.item() == 3 + step
        with torch.no_grad():
            for p in m.parameters():
                p.add_(math.sin(step))
            m.scale.mul_(1.5)
            m.count.add_(1)
    assert average.n_averaged.item() == 5 and average.n_averaged.dtype == torch.int64
    assert list(average.state_dict()) == ["n_averaged", *(f"module.{k}" for k in m.state_dict())]
    assert average(torch.ones(1, 2, dtype=torch.float64)).shape == (1, 1)
    assert all(a is not b for a, b in zip(average.parameters(), m.parameters()))


def test_averaged_buffers_and_saved_averages():
    m = model()
    average = U.AveragedModel(m, multi_avg_fn=U.get_ema_multi_avg_fn(0.5), use_buffers=True)
    average.update_parameters(m)
    m.scale.mul_(3.0)
    m.count.add_(5)
    average.update_parameters(m)
    assert average.module.scale.tolist() == [2.0, 4.0] and average.module.count.item() == 5
    other = U.AveragedModel(model(), multi_avg_fn=U.get_ema_multi_avg_fn(0.5), use_buffers=True)
    other.load_state_dict(average.state_dict())
    assert other.n_averaged.item() == 2 and np.array_equal(weights(other), weights(average))
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        U.AveragedModel(m, avg_fn=U.get_swa_avg_fn(), multi_avg_fn=U.get_swa_multi_avg_fn())


@pytest.mark.skipif(IS_PYTORCH, reason="our rule: fp32 arithmetic, one rounding")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_averages_round_once(dtype):
    dtype = getattr(torch, dtype)
    a, v = (torch.tensor(x, dtype=dtype) for x in ([1.0, 3.0, -0.3], [1.01, 2.0, 0.7]))
    want = (a.float() + (v.float() - a.float()) * (1 / 3)).to(dtype)
    U.get_swa_multi_avg_fn()([a], [v], 2)
    assert a.tolist() == want.tolist()


class Norm(torch.nn.Module):
    """Keeps what update_bn asks of a batch norm: momentum None means an equal mean."""

    def __init__(self):
        super().__init__()
        self.momentum = 0.1
        self.register_buffer("running_mean", torch.zeros(()))
        self.seen = []

    def reset_running_stats(self):
        self.running_mean.zero_()
        self.seen.clear()

    def forward(self, x):
        self.seen.append((self.training, self.momentum, torch.is_grad_enabled()))
        return x


@pytest.mark.skipif(IS_PYTORCH, reason="a stand-in for BatchNorm")
def test_update_bn():
    norm = Norm()
    m = torch.nn.Sequential(torch.nn.Linear(2, 2), norm).eval()
    U.update_bn([torch.ones(3, 2), (torch.ones(3, 2), torch.zeros(3))], m, device="cpu")
    assert norm.seen == [(True, None, False)] * 2 and norm.momentum == 0.1 and not m.training
    with pytest.raises(ZeroDivisionError):
        U.update_bn((1 / 0 for _ in range(1)), m)
    assert norm.momentum == 0.1 and not m.training


ORDER = "Detected call of `lr_scheduler.step"
ORDERS = [  # a step of the optimizer, a new scheduler, a step of the newest or the oldest
    "new newest_WARNS",
    "new step newest newest",
    "step new newest_WARNS",  # no scheduler saw the step
    "new step new newest",  # the first scheduler saw it
    "new step new oldest newest",
    "new new newest_WARNS oldest_WARNS",
    "new new step newest oldest",
]


@pytest.mark.parametrize("calls", ORDERS)
@pytest.mark.parametrize("kind", ["StepLR", "SWALR", "LinearLR", "SequentialLR"])
def test_which_order_of_steps_warns(calls, kind):
    makers = {
        "StepLR": lambda o: S.StepLR(o, 1),
        "SWALR": lambda o: U.SWALR(o, 0.05),
        "LinearLR": lambda o: S.LinearLR(o),
        "SequentialLR": lambda o: S.SequentialLR(o, [S.ConstantLR(o), S.ExponentialLR(o, 0.9)], [2]),
    }
    o, made = optimizer(), []
    for call in calls.split():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            if call == "new":
                made.append(makers[kind](o))
            elif call == "step":
                o.step()
            else:
                made[0 if call.startswith("oldest") else -1].step()
        told = [w for w in seen if str(w.message).startswith(ORDER)]
        assert bool(told) == call.endswith("WARNS"), call


@pytest.mark.parametrize("make", [
    lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.5), lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    lambda o: torch.optim.lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.5), lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.1, 1.0),
])  # fmt: skip
def test_a_group_added_later_has_no_rate(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0, momentum=0.9)
    scheduler = make(optimizer)
    optimizer.step()
    scheduler.step()
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 5.0})
    optimizer.step()
    with pytest.raises(ValueError, match="make the scheduler after the last add_param_group"):
        scheduler.step()
