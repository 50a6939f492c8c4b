"""What explain() takes for the cause of skipped steps: the scale or a derivative, by the evidence there is, or both."""

import copy
import math
import pickle

import pytest

import ampnative as torch
from ampnative.amp import GradScaler

INF, NAN = math.inf, math.nan
SCALE, DERIVATIVE = "the scale was too large", "a derivative is inf by itself (sqrt or log at 0, say)"
OVERFLOWED, MADE_NAN = "16-bit gradient overflowed on the way, and inf times 0 is NaN", "a derivative made NaN"


class Trainer:
    """A parameter whose gradients are set, or made of a function."""

    def __init__(self, scale, values=(1.0, 1.0, 1.0), **options):
        self.p = torch.nn.Parameter(torch.tensor(values))
        self.optimizer = torch.optim.SGD([self.p], lr=0.0)
        self.scaler = GradScaler("cpu", init_scale=scale, **options)

    def step(self, gradient=None, function=torch.sum, new_scale=None):
        self.optimizer.zero_grad()
        self.scaler.scale(function(self.p.half()).float()).backward()
        if gradient is not None:
            self.p.grad.copy_(torch.tensor(gradient))
        self.scaler.step(self.optimizer)
        self.scaler.update(new_scale)
        return self

    @property
    def causes(self):
        return [step.cause for step in self.scaler.explain()]


@pytest.mark.parametrize("exponent", [32, 40])
def test_a_scale_that_overflows_inside_backward_is_not_called_a_derivative(exponent):
    with torch.cuda.emulate():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).to("cuda")
        optimizer = torch.optim.AdamW(net.named_parameters(), lr=1e-3)
        scaler = GradScaler("cuda", init_scale=2.0**exponent)
        x, y = torch.randn(64, 16, device="cuda"), torch.randint(10, (64,), device="cuda")
        for number in range(exponent - 5):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            if not number:
                first = scaler.explain()[0].cause
            scaler.update()
    steps = scaler.explain()
    good, scale = steps[-1].update + 1, math.frexp(steps[-1].new_scale)[1] - 1
    assert first.startswith("nan but no inf in the gradients, and the loss was finite: most likely the scale was too large")
    assert OVERFLOWED in first and "else a derivative made NaN" in first
    assert all(f"it seems that {SCALE}" in step.cause and MADE_NAN not in step.cause for step in steps)
    assert all(step.cause.endswith(f", as step {good} at 2^{scale} was good") for step in steps)


@pytest.mark.parametrize(("bad", "one", "other"), [(INF, SCALE, DERIVATIVE), (NAN, OVERFLOWED, MADE_NAN)])
def test_both_are_named_while_nothing_tells(bad, one, other):
    trainer = Trainer(2.0**16).step([1.0, bad, 2.0**15])
    (cause,) = trainer.causes
    assert one in cause and f", or {other}" in cause and "then a lower one won't end the skips" in cause
    assert "loss, a layer" not in cause
    trainer.step([1.0, bad, 2.0**14]).step([2.0**13] * 3)
    assert all(one in cause and other not in cause and "as step 2 at 2^14 was good" in cause for cause in trainer.causes)


def test_a_good_step_at_the_same_scale_tells_nothing():
    trainer = Trainer(2.0**16, hysteresis=2).step([1.0, INF, 2.0**15]).step([1.0] * 3)
    assert trainer.scaler.get_scale() == 2.0**16 and f"{SCALE}, or {DERIVATIVE}" in trainer.causes[0]


@pytest.mark.parametrize("values", [(0.0, 1.0, 1.0), (0.0,)])
def test_a_derivative_that_is_inf_is_found_out_as_the_scale_falls(values):
    trainer = Trainer(2.0**16, values, min_scale=4.0)
    for _ in range(32):
        trainer.step(function=lambda p: p.sqrt().sum())
    causes = trainer.causes
    assert all(f"{SCALE}, or {DERIVATIVE}" in cause for cause in causes[:8])
    assert all(cause.endswith(f"likely {DERIVATIVE}, as the skips went on while the scale fell from 2^16") for cause in causes[8:10])
    small = f"likely {DERIVATIVE}, as the scale and the finite gradients are far below float16's largest number"
    assert all(cause.endswith(small) for cause in causes[10:])
    assert trainer.scaler.explain()[31].held == "min_scale"


def test_a_limit_that_keeps_the_scale_from_telling_is_named():
    trainer = Trainer(2.0**10, min_scale=2.0**10)
    for _ in range(12):
        trainer.step([1.0, INF, 1.0])
    assert all(cause.endswith(f"{DERIVATIVE}: min_scale keeps it from falling, which would tell") for cause in trainer.causes)


def test_finite_gradients_near_the_limit_speak_for_a_small_scale_too():
    assert f"{SCALE}, or" in Trainer(32.0).step([INF, 60000.0, 1.0]).causes[0]
    assert f"likely {DERIVATIVE}" in Trainer(32.0).step([INF, 64.0, 1.0]).causes[0]


def test_gradients_that_were_not_cleared():
    kept = "the same tensors were not finite at step {} either: if nothing cleared them since (optimizer.zero_grad()), they stay so"
    trainer = Trainer(8.0)
    for factor in (NAN, 1.0, 1.0):
        trainer.scaler.scale(trainer.p.sum() * factor).backward()
        trainer.scaler.step(trainer.optimizer)
        trainer.scaler.update()
    assert trainer.causes[0].startswith("the loss itself was inf or NaN")
    assert [kept.format(n) in cause for n, cause in enumerate(trainer.causes[1:])] == [True, True]
    trainer.step([1.0] * 3)
    assert kept.format(0) in trainer.causes[1] and "the same tensors" not in trainer.causes[0]
    cleared = Trainer(8.0).step([INF, 1.0, 1.0]).step([INF, 1.0, 1.0])
    assert not any("the same tensors" in cause for cause in cleared.causes)
    copy.deepcopy(trainer.scaler), pickle.loads(pickle.dumps(trainer.scaler))


@pytest.mark.parametrize("known", [True, False])
def test_one_of_two_losses_was_not_finite(known):
    """What is in a gradient is known unless someone else put it there."""
    scaler = GradScaler("cpu", init_scale=2.0**24)
    both = [Trainer(1.0), Trainer(1.0)]
    for trainer, factor in zip(both, (NAN, 1.0), strict=True):
        trainer.optimizer.zero_grad()
        scaler.scale(trainer.p.half().sum().float() * factor).backward()
        if not known:
            trainer.p.grad = trainer.p.grad.clone()
    both[1].p.grad[0] = INF
    for trainer in both:
        scaler.step(trainer.optimizer)
    scaler.update()
    one, other = (step.cause for step in scaler.explain())
    if known:
        assert one.startswith("the loss itself was inf or NaN") and "most likely the scale was too large" in other
        return
    assert one == other and one.startswith("one of the losses was inf or NaN before it was scaled: if these gradients are its, no")
    assert "if not, the scale was too large or a derivative is not finite" in other


def test_one_line_tells_each_reason_once_and_how_often():
    trainer = Trainer(2.0**20)
    for gradient in ([INF, 1.0, 1.0], [INF, 1.0, 1.0], [1.0] * 3, [NAN, 1.0, 1.0], [1.0] * 3, [INF, 1.0, 1.0], [1.0] * 3):
        trainer.step(gradient)
    line = trainer.scaler.explain().short()
    assert line.count("it seems that") == 1 and "step 2" not in line
    assert "parameter 0 of group 0; inf in" in line and f"{SCALE}, as step 6 at 2^16 was good (3 of 4)" in line
    assert "as step 4 at 2^17 was good, but with other data (1 of 4)" in line
    assert "of 1)" not in Trainer(2.0**20).step([INF, 1.0, 1.0]).scaler.explain().short()


def test_one_line_counts_parameters_without_names():
    params = [torch.nn.Parameter(torch.ones(1)) for _ in range(6)]
    optimizer = torch.optim.SGD([{"params": params[:2]}, {"params": params[2:]}], lr=0.0)
    scaler = GradScaler("cpu", init_scale=2.0**20)
    (scaler.scale(sum(params)) * INF).backward()
    scaler.step(optimizer)
    scaler.update()
    assert "; parameters 0, 1 of group 0, parameter 0 of group 1 and 3 more; " in scaler.explain().short()


def test_a_run_of_skips_begins_anew_after_a_good_step():
    trainer = Trainer(2.0**30)
    for _ in range(3):
        trainer.step([INF, 1.0, 1.0])
    trainer.step([1.0] * 3).step([INF, 1.0, 1.0])
    steps = trainer.scaler.explain()
    assert [(step.in_a_row, step.first_scale) for step in steps] == [(1, 2.0**30), (2, 2.0**30), (3, 2.0**30), (1, 2.0**27)]
    assert [(step.good_update, step.good_scale) for step in steps] == [(3, 2.0**27)] * 3 + [(None, None)]


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda scaler: pickle.loads(pickle.dumps(scaler))])
def test_copies_know_where_a_run_ended(copied):
    trainer = Trainer(2.0**16).step([INF, 1.0, 1.0]).step([1.0] * 3)
    trainer.scaler = copied(trainer.scaler)
    trainer.step([1.0] * 3).step([INF, 1.0, 1.0])
    trainer.scaler = copied(trainer.scaler)
    trainer.step([INF, 1.0, 1.0])
    steps = trainer.scaler.explain()
    assert [(step.in_a_row, step.good_update) for step in steps] == [(1, 1), (1, None), (2, None)]


def test_a_good_step_whose_update_sets_the_scale_ends_a_run():
    trainer = Trainer(2.0**16).step([INF, 1.0, 1.0])
    for _ in range(3):
        trainer.step([1.0] * 3, new_scale=2.0**12)
    trainer.step([INF, 1.0, 1.0]).step([INF, 1.0, 1.0], new_scale=2.0**10).step([1.0] * 3)
    steps = trainer.scaler.explain()
    assert [(step.in_a_row, step.good_update, step.good_scale) for step in steps] == [
        (1, 1, 2.0**15),
        (1, 6, 2.0**10),
        (2, 6, 2.0**10),
    ]


@pytest.mark.parametrize(
    ("loss", "scale", "overflowed"),
    [
        (torch.tensor(1e30), 2.0**16, False), (torch.tensor(1e36), 2.0**16, True), (torch.tensor(-1e36), 2.0**16, True),
        (torch.tensor([2.0], dtype=torch.float16), 2.0**16, True), (torch.tensor(2.0, dtype=torch.float16), 2.0**16, False),
        (torch.tensor(1e36, dtype=torch.float64), 2.0**16, False), (torch.tensor([2, 3]), 2.0**16, False),
        (torch.tensor([1.0, NAN]), 2.0**127, False), (torch.ones(0), 2.0**16, False),
    ],
)  # fmt: skip
def test_a_scaled_loss_that_overflows_proves_the_scale(loss, scale, overflowed):
    scaler, p = GradScaler("cpu", init_scale=scale), torch.nn.Parameter(torch.ones(2))
    scaled = scaler.scale(loss)
    assert bool(torch.isinf(scaled).any()) is overflowed
    p.grad = torch.tensor([INF, 1.0])
    scaler.step(torch.optim.SGD([p], lr=0.1))
    (step,) = scaler.explain()
    assert step.loss_overflowed is overflowed
    assert ("the scale was far too large: the loss times it overflowed" in step.cause) is overflowed


def test_a_loss_that_was_not_seen_may_have_been_the_cause():
    scaler, p = GradScaler("cpu", init_scale=2.0**16), torch.nn.Parameter(torch.ones(2))
    scaler.scale(torch.ones(5000))
    p.grad = torch.tensor([INF, 1.0])
    scaler.step(torch.optim.SGD([p], lr=0.1))
    assert f"{DERIVATIVE}, or the loss, a layer or the input held inf or NaN" in scaler.explain()[0].cause


@pytest.mark.parametrize("bad", [INF, NAN])
def test_a_scale_that_does_not_enlarge_is_not_blamed(bad):
    (cause,) = Trainer(1.0).step([bad, 1.0, 1.0]).causes
    assert "the scale does not enlarge them, so a derivative" in cause and "too large" not in cause


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda scaler: pickle.loads(pickle.dumps(scaler))])
def test_a_run_of_skips_outlives_copies(twin_of):
    trainer = Trainer(2.0**16).step([INF, 1.0, 1.0])
    trainer.scaler = twin_of(trainer.scaler)
    trainer.step([INF, 1.0, 1.0]).step([1.0] * 3)
    assert [step.in_a_row for step in trainer.scaler.explain()] == [1, 2]
    assert [step.good_update for step in trainer.scaler.explain()] == [2, 2]


def test_the_lead_of_a_group_ends_the_runs_of_all():
    group = torch.amp.ScalerGroup([GradScaler("cpu", init_scale=2.0**16) for _ in range(2)])
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizers = [torch.optim.SGD([p], lr=0.0) for p in parameters]
    for bad in (INF, INF, 1.0, INF):
        group.scale(sum(p.sum() for p in parameters)).backward()
        parameters[1].grad = torch.tensor([bad, 2.0**15])
        for scaler, optimizer in zip(group.scalers, optimizers):
            scaler.step(optimizer)
        group.update()
    steps = group.scalers[1].explain()
    assert [step.good_scale for step in steps] == [2.0**14, 2.0**14, None] and [step.in_a_row for step in steps] == [1, 2, 1]
    assert not group.scalers[0].explain()
