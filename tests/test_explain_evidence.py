"""What explain() takes for evidence: whose skips and good steps, which losses are in a gradient, and whether float16 was on the way."""

import copy
import gc
import math
import pickle

import pytest

import ampnative as torch
from ampnative.amp import GradScaler
from ampnative.utils.checkpoint import checkpoint

INF, NAN = math.inf, math.nan


def parameter(*values):
    p = torch.nn.Parameter(torch.tensor(values))
    return p, torch.optim.SGD([p], lr=0.0)


def turns(scaler, bad, good, count, function):
    for _ in range(count):
        for p, optimizer, made in ((*bad, function), (*good, torch.sum)):
            optimizer.zero_grad()
            scaler.scale(made(p.half()).float()).backward()
            scaler.step(optimizer)
            scaler.update()


@pytest.mark.parametrize("function", [lambda p: p.sqrt().sum(), lambda p: (p * p).sum().sqrt()], ids=["inf", "nan"])
def test_another_optimizers_good_steps_prove_nothing(function):
    scaler = GradScaler("cpu", init_scale=2.0**15)
    bad = parameter(0.0, 0.0)
    turns(scaler, bad, parameter(1.0, 1.0, 1.0), 10, function)
    steps = scaler.explain()
    assert [step.in_a_row for step in steps] == list(range(1, 11)) and {step.good_update for step in steps} == {None}
    assert not any("was good" in step.cause for step in steps) and "as the skips went on while the scale fell from" in steps[8].cause
    assert scaler.metrics()["skipped_in_a_row"] == 10


def test_an_own_good_step_does():
    scaler = GradScaler("cpu", init_scale=2.0**19)
    turns(scaler, parameter(1.0, 1.0), parameter(1.0, 1.0, 1.0), 4, torch.sum)
    by_kind = [(step.update, step.good_update, step.good_scale) for step in scaler.explain()]
    assert by_kind == [(0, 4, 2.0**15), (1, 5, 2.0**15), (2, 4, 2.0**15), (3, 5, 2.0**15)]
    assert all(f"as step {step.good_update} at 2^15 was good" in step.cause for step in scaler.explain())
    assert scaler.metrics()["skipped_in_a_row"] == 0


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda scaler: pickle.loads(pickle.dumps(scaler))])
def test_copies_keep_the_runs_apart(twin_of):
    bad, good = parameter(0.0, 0.0), parameter(1.0, 1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**14)
    turns(scaler, bad, good, 2, lambda p: p.sqrt().sum())
    scaler = twin_of(scaler)
    turns(scaler, bad, good, 2, lambda p: p.sqrt().sum())
    assert [(step.in_a_row, step.good_update) for step in scaler.explain()] == [(n, None) for n in (1, 2, 3, 4)]


def test_an_optimizer_that_is_gone_does_not_count_for_ever():
    scaler = GradScaler("cpu", init_scale=2.0**14)
    good = parameter(1.0, 1.0, 1.0)
    turns(scaler, parameter(0.0, 0.0), good, 3, lambda p: p.sqrt().sum())
    gc.collect()
    turns(scaler, good, good, 1, torch.sum)
    assert scaler.metrics()["skipped_in_a_row"] == 0


def test_members_of_a_group_have_runs_of_their_own():
    group = torch.amp.ScalerGroup([GradScaler("cpu", init_scale=2.0**14) for _ in range(2)])
    both = [parameter(1.0, 1.0), parameter(1.0, 1.0)]
    for bad in ((INF, 1.0), (INF, INF), (1.0, INF), (1.0, 1.0)):
        for (p, _), value in zip(both, bad):
            p.grad = None
            group.scale(p.sum()).backward()
            p.grad[0] = value
        for scaler, (_, optimizer) in zip(group.scalers, both):
            scaler.step(optimizer)
        group.update()
    ends = [[(step.update, step.good_update, step.good_scale) for step in scaler.explain()] for scaler in group.scalers]
    assert ends == [[(0, 2, 2.0**12), (1, 2, 2.0**12)], [(1, 3, 2.0**11), (2, 3, 2.0**11)]]


# ---- float16 on the way ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "blamed"), [(torch.bfloat16, False), (torch.float16, True), (torch.float32, False)])
def test_a_bad_batch_without_float16_is_not_laid_to_the_scale(dtype, blamed):
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    scaler = GradScaler("cpu", init_scale=2.0**12)
    for first in (NAN, 1.0):
        x = torch.ones(2, 2)
        x[0] = first
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            y = net(x)
        loss = torch.where(torch.tensor([[False], [True]]), y, torch.zeros_like(y)).float().sum()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    (step,) = scaler.explain()
    assert step.float16 is blamed and ("the scale was too large" in step.cause) is blamed
    assert "a derivative made NaN" in step.cause and "or the input held inf or NaN" in step.cause
    assert ("as step 1 at 2^11 was good, but with other data" in step.cause) is blamed


def test_a_scale_that_overflows_float32_may_be_named():
    p, optimizer = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**126)
    scaler.scale((p * 4).sum() * 0.25).backward()
    p.grad[0] = INF
    scaler.step(optimizer)
    assert scaler.explain()[0].float16 is False and "the scale was too large" in scaler.explain()[0].cause


@pytest.mark.parametrize("how", ["plain", "checkpoint", "below a checkpoint"])
def test_float16_is_met_wherever_it_is(how):
    p, optimizer = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**17)
    half = lambda x: x.half().sum().float()  # noqa: E731
    if how == "plain":
        loss = half(p)
    elif how == "checkpoint":
        loss = checkpoint(half, p, use_reentrant=True)
    else:
        loss = checkpoint(half, p * 1, use_reentrant=True)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    (step,) = scaler.explain()
    assert step.float16 is True and step.loss_finite is True


def test_nothing_is_known_of_gradients_from_elsewhere():
    p, optimizer = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**12)
    scaler.scale(torch.ones(()))
    p.grad = torch.tensor([INF, 1.0])
    scaler.step(optimizer)
    assert scaler.explain()[0].float16 is None and "the scale was too large, or a derivative" in scaler.explain()[0].cause


# ---- which losses are in a gradient ----------------------------------------------------------------------------------


def overflowed(scaler, p, optimizer):
    scaler.scale(p.half().sum().float()).backward()
    scaler.step(optimizer)
    return scaler.explain()[-1]


@pytest.mark.parametrize("to_none", [True, False])
def test_a_batch_that_was_dropped_is_not_the_cause(to_none):
    p, optimizer = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**20)
    scaler.scale(p.half().sum().float() * NAN).backward()  # and neither step() nor update()
    optimizer.zero_grad(set_to_none=to_none)
    step = overflowed(scaler, p, optimizer)
    assert step.loss_finite is True and "the scale was too large, or" in step.cause


@pytest.mark.parametrize("how", ["zero_", "clone", "scaled by hand"])
def test_what_others_did_to_a_gradient_is_not_known(how):
    p, optimizer = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**20)
    scaler.scale(p.half().sum().float() * NAN).backward()
    if how == "zero_":
        p.grad.zero_()
    elif how == "clone":
        p.grad = p.grad.clone()
    else:
        p.grad.mul_(0.5)
    step = overflowed(scaler, p, optimizer)
    assert step.loss_mixed and step.cause.startswith("one of the losses was inf or NaN before it was scaled: if")


def test_nor_is_what_came_before_the_last_update():
    """A loss of another iteration that reached this gradient too, which nobody cleared since."""
    p, optimizer = parameter(1.0, 1.0)
    q, other = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**12)
    scaler.scale((p.sum() + q.sum()) * NAN).backward()
    scaler.step(other)
    scaler.update()
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    step = scaler.explain()[-1]
    assert step.loss_finite is None and "or the loss, a layer or the input held inf or NaN" in step.cause


def test_nor_is_another_parameters_loss():
    p, optimizer = parameter(1.0, 1.0)
    q, other = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**20)
    scaler.scale(q.sum() * NAN).backward()
    other.zero_grad()
    scaler.scale(q.sum() * 1e30 * 1e8).backward()
    assert overflowed(scaler, p, optimizer).loss_finite is True and not scaler.explain()[-1].loss_overflowed


@pytest.mark.parametrize("where", range(3))
@pytest.mark.parametrize("bad", [INF, NAN])
def test_losses_of_an_accumulation_are(where, bad):
    p, optimizer = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**10)
    for i in range(3):
        scaler.scale(p.sum() * (bad if i == where else 1.0)).backward()
    scaler.step(optimizer)
    assert scaler.explain()[0].cause.startswith("the loss itself was inf or NaN")


def test_between_those_of_others_it_is_not_known():
    """Three losses, of which the middle one is of another parameter: it may be in a gradient that has the first and the third."""
    p, optimizer = parameter(1.0, 1.0)
    q, _ = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**20)
    for one, factor in ((p, 1.0), (q, NAN), (p, 1.0)):
        scaler.scale(one.half().sum().float() * factor).backward()
    scaler.step(optimizer)
    (step,) = scaler.explain()
    assert step.loss_mixed and step.cause.startswith("one of the losses was inf or NaN before it was scaled: if")


def test_a_sum_of_scaled_losses():
    p, optimizer = parameter(1.0, 1.0)
    q, other = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=2.0**20)
    (scaler.scale(p.half().sum().float()) + scaler.scale(q.sum() * NAN)).backward()
    scaler.step(optimizer)
    scaler.step(other)
    causes = [step.cause for step in scaler.explain()]
    assert causes[0].startswith("one of the losses was inf or NaN") and causes[1].startswith("the loss itself was inf or NaN")


def test_thousands_of_losses_are_remembered_in_little():
    p, optimizer = parameter(1.0, 1.0)
    scaler = GradScaler("cpu", init_scale=1.0)
    for i in range(3000):
        scaler.scale(p.sum() * (NAN if i == 5 else 1.0)).backward()
    assert len(scaler._losses._judged) <= 1100
    scaler.step(optimizer)
    assert scaler.explain()[0].loss_finite is False


def halved(where):
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad.half().float()

    net = torch.nn.Linear(4, 1)
    if where == "tensor":
        net.weight.register_hook(lambda grad: grad.half().float())
    elif where == "after":
        net.weight.register_post_accumulate_grad_hook(lambda p: p.grad.copy_(p.grad.half()))
    return net, Half.apply if where == "function" else lambda x: x.register_hook(lambda grad: grad.half().float()) and x


@pytest.mark.parametrize("where", ["tensor", "after", "function", "output"])
def test_what_python_code_computes_in_float16_is_not_called_float32(where):
    net, wrap = halved(where)
    optimizer = torch.optim.SGD(net.named_parameters(), lr=1e-4)
    scaler = GradScaler("cpu", init_scale=2.0**16)
    for _ in range(6):
        optimizer.zero_grad()
        out = net(torch.ones(4, 4) * 3)
        scaler.scale((wrap(out) if where in ("function", "output") else out).sum() * 40).backward()
        scaler.step(optimizer)
        scaler.update()
    steps = scaler.explain()
    assert steps and all(step.float16 is None and "no float16 gradient" not in step.cause for step in steps)
    assert all("the scale was too large" in step.cause for step in steps)


def test_a_good_batch_after_a_bad_one_proves_nothing_far_from_the_limits():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([("p", p)], lr=1e-6)
    scaler = GradScaler("cpu", init_scale=2.0**8)
    for i in range(5):
        optimizer.zero_grad()
        loss = ((p.half() - (p.detach().half() if i == 2 else 0)).abs().float().sqrt() * 1e-4).sum()  # sqrt at 0
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    (step,) = scaler.explain()
    assert "it seems" not in step.cause and "or a derivative" in step.cause and "was good, but with other data" in step.cause


def test_steps_that_the_script_leaves_out_count_all_the_same():
    p = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([p], lr=1e-6)
    scaler = GradScaler("cpu", init_scale=2.0**8)
    for i in range(40):
        scaler.scale(p * float("inf")).backward()
        scaler.unscale_(optimizer)
        if i % 20 == 0:
            scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    told = scaler.explain()
    assert len(told) == 32 and str(told).startswith("40 skipped of 40 steps") and scaler.metrics()["skipped_total"] == 2
    assert str(copy.deepcopy(scaler).explain()) == str(told)
