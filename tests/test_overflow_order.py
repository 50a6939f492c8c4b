"""Where gradients overflow, vanish or are NaN: the history of a loss scale hangs on it, so it is as in PyTorch (values of 2.15.0)."""

import math

import numpy as np
import pytest

import ampnative as torch

F = torch.nn.functional
INF, NAN = math.inf, math.nan


def gradients(function, incoming, *values, dtype=torch.float16):
    leaves = [torch.tensor(v).to(dtype).requires_grad_() for v in values]
    out = function(*leaves)
    out.backward(torch.full(out.shape, incoming).to(out.dtype))
    return [leaf.grad.tolist() for leaf in leaves]


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (0.5, [[10248.0, 7248.0, -10248.0], [5624.0, 6892.0, INF], [0.0, 0.0, 0.0]]),
        (2, [[1225.0, 2450.0, -1225.0], [2496.0, 1664.0, 8.3203125], [0.0, 0.0, 0.0]]),
    ],
)
def test_norms_of_small_rows(p, expected):
    rows = [[0.01, 0.02, -0.01], [300.0, 200.0, 1.0], [0.0, 0.0, 0.0]]
    for norm in (lambda x: x.norm(p, dim=-1), lambda x: torch.linalg.vector_norm(x, p, dim=-1)):
        assert gradients(norm, 3000.0, rows) == [expected]


def test_a_distance_does_not_halve_the_scale():
    """The quotient of a gradient and a small norm is beyond float16; the gradient is not."""
    a = torch.nn.Parameter(torch.tensor([[0.25, 0.5], [0.75, 1.0]]))
    optimizer, scaler = torch.optim.SGD([a], lr=1e-3), torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.pairwise_distance((a @ torch.eye(2)), (a.detach() + 0.01) @ torch.eye(2)).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0**14 and np.isfinite(a.grad.numpy()).all()


@pytest.mark.parametrize(
    ("dtype", "incoming", "values", "expected"),
    [
        (torch.float16, 4.0, [200.0, 300.0, 0.5], [600.0, 400.0, INF]),
        (torch.float16, 0.01, [1e-3, 1e-3, 0.5], [4.76837158203125e-06, 4.76837158203125e-06, 0.0]),
        (torch.float32, 10.0, [1e20, 1e18, 1.0], [1e19, 1e21, INF]),
    ],
)
def test_products(dtype, incoming, values, expected):
    for product in (lambda x: x.prod(), lambda x: x.prod(0)):
        (got,) = gradients(product, incoming, values, dtype=dtype)
        assert got == pytest.approx(expected, rel=1e-3)


def test_xlogy():
    assert gradients(torch.xlogy, 1e-3, [100.0], [5e-4])[1] == [200.0]


@pytest.mark.parametrize("reduction", ["none", "sum"])
@pytest.mark.parametrize("weight", [None, 0.5])
def test_binary_cross_entropy(reduction, weight):
    target = torch.tensor([0.5, 0.2]).half()
    factor = None if weight is None else torch.full((2,), weight).half()
    (got,) = gradients(lambda p: F.binary_cross_entropy(p, target, factor, reduction=reduction), 1e-3, [1e-7, 0.3])
    assert got == [e * (weight or 1.0) for e in (-4196.0, 0.00047659873962402344)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("threshold", [0.1, 0.3, 1 / 3])
def test_what_a_threshold_keeps_has_a_gradient(dtype, threshold):
    x = torch.tensor([0.1001, 0.3, 0.333, 0.334]).to(dtype).requires_grad_()
    y = F.threshold(x, threshold, 0.0)
    y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0)


# ---- cross entropy ----


LAYOUTS = {
    "rows": lambda logits, target: (logits, target),
    "images": lambda logits, target: (logits.t()[None].contiguous(), target[None]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_an_ignored_line_without_a_softmax_is_nan(dtype, smoothing, twice, layout):
    """An overflow in the forward pass is not hidden by its line being padding: its gradient is 0 times NaN."""
    for line, nan in (([INF, 1.0, 2.0], True), ([NAN, 1.0, 2.0], True), ([-INF] * 3, True), ([-INF, 1.0, 2.0], False)):
        logits = torch.tensor([[1.0, 2.0, 3.0], line, [3.0, 2.0, 1.0]]).to(dtype)
        logits, target = LAYOUTS[layout](logits, torch.tensor([0, -100, 1]))
        logits.requires_grad_()
        loss = F.cross_entropy(logits, target, label_smoothing=smoothing)
        (grad,) = torch.autograd.grad(loss, logits, create_graph=twice)
        grad = grad[0].t() if layout == "images" else grad
        assert math.isfinite(loss.item())
        assert grad[1].isnan().all() if nan else (grad[1] == 0).all()
        assert grad[[0, 2]].isfinite().all()


def test_overflow_of_padding_is_a_skip():
    weight = torch.nn.Parameter(torch.ones(4, 8))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    x, target = torch.ones(3, 8), torch.tensor([0, 1, -100])
    x[2] = 60000.0
    for scale in (512.0, 256.0):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(x @ weight.t(), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale and (weight == 1).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("odd", [INF, NAN])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_weight_of_an_absent_class_counts_nowhere(reduction, odd, twice, layout):
    """Such as 1 / count for a class that the data do not have."""
    grads = []
    for last in (odd, 7.0):
        logits, target = LAYOUTS[layout](torch.ones(2, 3), torch.tensor([0, 1]))
        logits.requires_grad_()
        loss = F.cross_entropy(logits, target, weight=torch.tensor([0.2, 1 / 3, last]), reduction=reduction)
        grads.append(torch.autograd.grad(loss, logits, create_graph=twice)[0])
    assert torch.equal(*grads) and grads[0].isfinite().all()


def test_an_infinite_weight_of_an_absent_class_skips_no_step():
    p = torch.nn.Parameter(torch.ones(2, 3))
    optimizer, scaler = torch.optim.SGD([p], lr=0.1), torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(F.cross_entropy(p, torch.tensor([0, 1]), weight=1 / torch.tensor([5.0, 3.0, 0.0]))).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 8.0 and p.isfinite().all()


def test_weighted_logits_overflow_only_where_the_gradient_does():
    target, weight = torch.tensor([1.0]).half(), torch.tensor([4.0]).half()
    (got,) = gradients(lambda x: F.binary_cross_entropy_with_logits(x, target, pos_weight=weight, reduction="sum"), 2.0**15, [2.0])
    assert got == pytest.approx([-15616.0], rel=2e-3)


def test_norms_of_negative_order_are_flat_at_0():
    for p in (-1, -0.5, -2):
        assert gradients(lambda x, p=p: x.norm(p), 1.0, [0.0, 1.0, -2.0], dtype=torch.float32) == [[0.0, 0.0, 0.0]]
