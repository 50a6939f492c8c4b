"""Connectionist temporal classification: the kernel against NumPy in float64, at every instruction-set level, and its gradient."""

import math

import numpy as np
import pytest

import ampnative as torch
from ampnative.nn import functional as F

LEVELS = ("baseline", "avx2", "avx512")


@pytest.fixture(params=LEVELS)
def level(request):
    before = torch._C.isa_name()
    torch._C._set_isa(request.param)
    yield request.param
    torch._C._set_isa(before)


def oracle(log_probs, target, blank):
    """The loss of one sequence (T, C), and how often each class is expected at each time, from all pairs of states."""
    states = [blank]
    for label in target:
        states += [label, blank]
    n = len(states)
    may = np.zeros((n, n))
    for s in range(n):
        may[s, s : s + 2] = 1
        if s + 2 < n and states[s + 2] not in (blank, states[s]):
            may[s, s + 2] = 1
    emit = np.exp(log_probs[:, states])
    alpha, beta, scales = np.zeros_like(emit), np.zeros_like(emit), []
    alpha[0, :2] = emit[0, :2]
    for t in range(len(emit)):
        if t:
            alpha[t] = (alpha[t - 1] @ may) * emit[t]
        scales.append(alpha[t].sum())
        alpha[t] /= scales[-1]
    beta[-1, -2:] = 1
    for t in range(len(emit) - 2, -1, -1):
        beta[t] = may @ (beta[t + 1] * emit[t + 1])
        beta[t] /= beta[t].sum()
    share = alpha * beta
    share /= share.sum(1, keepdims=True)
    expected = np.zeros_like(log_probs)
    for s, label in enumerate(states):
        expected[:, label] += share[:, s]
    return -np.log(scales).sum() - math.log(alpha[-1, -2:].sum()), expected


@pytest.mark.parametrize(("dtype", "layout"), [("float32", "TNC"), ("float64", "TNC"), ("float32", "NTC"), ("float64", "CTN")])
@pytest.mark.parametrize(("times", "samples", "classes", "most", "blank"), [(60, 3, 7, 19, 0), (25, 2, 40, 6, 39), (140, 1, 5, 30, 2)])
def test_against_numpy(level, dtype, layout, times, samples, classes, most, blank):
    rng = np.random.default_rng(times)
    logits = 2 * rng.standard_normal((times, samples, classes))
    order = ["TNC".index(d) for d in layout]
    log_probs = torch.tensor(np.ascontiguousarray(logits.transpose(order)), dtype=getattr(torch, dtype))
    log_probs = log_probs.permute(*[layout.index(d) for d in "TNC"]).log_softmax(2).detach().requires_grad_()
    lengths, steps = [most - n for n in range(samples)], [times - 2 * n for n in range(samples)]
    targets = rng.integers(0, classes - 1, (samples, most))
    targets += targets >= blank
    loss = F.ctc_loss(log_probs, torch.tensor(targets), steps, lengths, blank, reduction="none")
    weight = torch.tensor(rng.random(samples), dtype=loss.dtype)
    loss.backward(weight)
    exact, bound = log_probs.detach().double().numpy(), {"float32": 3e-7, "float64": 1e-12}[dtype]
    for n in range(samples):
        want, expected = oracle(exact[: steps[n], n], targets[n, : lengths[n]].tolist(), blank)
        assert math.isclose(loss[n].item(), want, rel_tol=bound)
        slope = weight[n].item() * (np.exp(exact[: steps[n], n]) - expected)
        assert np.allclose(log_probs.grad[: steps[n], n].double().numpy(), slope, rtol=0, atol=bound * 3)
        assert not log_probs.grad[steps[n] :, n].any()


def test_threads_and_levels_do_not_matter():
    torch.manual_seed(0)
    log_probs = torch.randn(40, 6, 9).log_softmax(2).requires_grad_()
    targets, before, found = torch.randint(1, 9, (6, 12)), (torch.get_num_threads(), torch._C.isa_name()), []
    try:
        for threads in (1, 2):
            for isa in LEVELS:
                torch.set_num_threads(threads)
                torch._C._set_isa(isa)
                loss = F.ctc_loss(log_probs, targets, [40] * 6, [12] * 6, reduction="none")
                found.append((loss.tolist(), torch.autograd.grad(loss.sum(), log_probs)[0].tolist()))
    finally:
        torch.set_num_threads(before[0])
        torch._C._set_isa(before[1])
    assert all(f == found[0] for f in found)


def test_an_impossible_alignment():
    log_probs = torch.zeros(3, 2, 3).log_softmax(2).requires_grad_()
    loss = F.ctc_loss(log_probs, torch.tensor([[1, 1], [1, 2]]), (2, 3), (2, 2), reduction="none")
    grad = torch.autograd.grad(loss.sum(), log_probs)[0]
    assert loss[0].item() == math.inf and grad[:2, 0].isnan().all() and not grad[2, 0].any() and grad[:, 1].isfinite().all()


def test_a_class_of_probability_zero_stays_out():
    log_probs = torch.tensor([[[0.25, 0.75, 0.0]], [[0.5, 0.5, 0.0]]]).log().requires_grad_()
    loss = F.ctc_loss(log_probs, torch.tensor([[1]]), (2,), (1,))
    assert math.isclose(loss.item(), -math.log(1 - 0.25 * 0.5), rel_tol=1e-6)
    assert torch.autograd.grad(loss, log_probs)[0].isfinite().all()


def test_the_gradient_is_not_differentiated_again():
    log_probs = torch.zeros(3, 1, 3).log_softmax(2).requires_grad_()
    loss = F.ctc_loss(log_probs, torch.tensor([[1]]), (3,), (1,))
    (grad,) = torch.autograd.grad(loss, log_probs, create_graph=True)
    with pytest.raises(RuntimeError, match="derivative for its gradient is not implemented"):
        grad.sum().backward()


def test_emulated_device_and_16_bits():
    with torch.cuda.emulate():
        log_probs = torch.zeros(4, 2, 3, device="cuda", dtype=torch.float16).log_softmax(2, dtype=torch.float16).requires_grad_()
        loss = F.ctc_loss(log_probs, torch.tensor([1, 2, 1]), (4, 3), (2, 1))
        loss.backward()
        assert loss.dtype == torch.float16 and loss.device.type == "cuda" and log_probs.grad.isfinite().all()
        assert math.isclose(loss.item(), (-math.log(15 / 81) / 2 - math.log(6 / 27)) / 2, rel_tol=2e-3)
