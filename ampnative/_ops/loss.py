"""Losses made of other ops, and the connectionist temporal classification."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _C
from .._C import Tensor
from ..autograd.function import Function, once_differentiable
from ._common import cast, floating, reduced, rounded, shapes, wide

_where, _log, _exp = _C.functions.where, _C.functions.log, _C.functions.exp


def kl_div(input: Tensor, target: Tensor, reduction: str, log_target: bool) -> Tensor:
    found = floating(input, target)
    input, target = cast(wide(found), input, target)
    if log_target:
        loss = _exp(target) * (target - input)
    else:
        nothing = target == 0  # 0 log 0 is 0, and has no slope
        loss = _where(nothing, 0.0, target * _log(_where(nothing, 1.0, target))) - target * input
    return reduced(loss, reduction, found)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: str) -> Tensor:
    found = floating(input, target)
    input, target = cast(wide(found), input, target)
    loss = _exp(input) - target * input if log_input else input - target * _log(input + eps)
    if full:  # Stirling's approximation of log(target!)
        above = target > 1
        safe = _where(above, target, 2.0)
        loss = loss + _where(above, safe * _log(safe) - safe + 0.5 * _log(2 * math.pi * safe), 0.0)
    return reduced(loss, reduction, found)


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float, reduction: str) -> Tensor:
    if target.dim() > 1:
        raise RuntimeError(f"cosine_embedding_loss: 0D or 1D target tensor expected, multi-target not supported: it has {target.dim()}")
    if input1.dim() != target.dim() + 1 or input2.dim() != target.dim() + 1:
        raise RuntimeError(
            f"cosine_embedding_loss: {target.dim()}D target tensor expects {target.dim() + 1}D input tensors, "
            f"but found inputs with sizes {shapes((input1, input2))}"
        )
    found = floating(input1, input2)
    tiny = 1e-12
    x, y = cast(wide(found), input1, input2)
    product = (x * y).sum(-1)
    cosine = product / (((x * x).sum(-1) + tiny) * ((y * y).sum(-1) + tiny)).sqrt()
    loss = _where(target == 1, 1 - cosine, 0.0) + _where(target == -1, (cosine - margin).clamp(min=0), 0.0)
    return reduced(loss, reduction, found)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float, reduction: str) -> Tensor:
    found = floating(input, target)
    (x,) = cast(wide(found), input)
    loss = _where(target != 1, (margin - x).clamp(min=0), 0.0) + _where(target != -1, x, 0.0)
    return reduced(loss, reduction, found)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float, reduction: str) -> Tensor:
    found = floating(input1, input2, target)
    x, y, sign = cast(wide(found), input1, input2, target)
    return reduced((-sign * (x - y) + margin).clamp(min=0), reduction, found)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str) -> Tensor:
    # PyTorch's CPU kernel writes into a result of the input's dtype.
    found = floating(input) if input.device.type == "cpu" else floating(input, target)
    compute = wide(floating(input, target))
    x, sign = cast(compute, input, target)
    return reduced(_C.nn.softplus(-sign * x), reduction, found)


def _samples(name: str, input: Tensor, target: Tensor) -> tuple[int, int]:
    """Numbers of samples and classes; input (C) is one sample."""
    if input.dim() > 2 or input.shape[-1:] == (0,):
        raise RuntimeError(
            f"{name}: Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}"
        )
    classes = input.size(-1) if input.dim() else 1
    return (input.size(0) if input.dim() == 2 else 1), classes


def _check_classes(name: str, target: Tensor, low: int, classes: int) -> None:
    if target.dtype != _C.int64:
        raise RuntimeError(f"{name}: expected class numbers of scalar type Long, but found {target.dtype}: use .long()")
    if target.device.type != "meta" and target.numel() and bool(((target < low) | (target >= classes)).any()):
        raise RuntimeError(f"{name}: target out of range: class numbers of {classes} classes lie in [{low}, {classes - 1}]")


def multi_margin_loss(input: Tensor, target: Tensor, p: Any, margin: float, weight: Tensor | None, reduction: str) -> Tensor:
    name = "multi_margin_loss"
    if p not in (1, 2):
        raise ValueError(f"only p == 1 and p == 2 supported, but got p={p}")
    samples, classes = _samples(name, input, target)
    if target.dim() > 1 or target.numel() != samples:
        raise RuntimeError(
            f"{name}: target tensor should be 1-D with size equal to the number of input samples (batch size). "
            f"Expected target size [{samples}], but got {list(target.shape)}. Input has shape {list(input.shape)}."
        )
    if weight is not None and weight.shape != (classes,):
        raise RuntimeError(f"{name}: inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    _check_classes(name, target, 0, classes)
    found = input.dtype
    x, y = rounded(input, wide(found)).reshape(samples, classes), target.reshape(samples, 1)
    other = _C.functions.arange(classes, device=input.device) != y
    loss = _where(other, _C.functions.relu(margin - x.gather(1, y) + x), 0.0)
    if p == 2:
        loss = loss * loss
    loss = loss.sum(1) / classes
    if weight is not None:
        loss = loss * rounded(weight, loss.dtype).index_select(0, y.reshape(-1))
    return reduced(loss.reshape(target.shape), reduction, found)


def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str) -> Tensor:
    name = "multilabel_margin_loss"
    samples, classes = _samples(name, input, target)
    if target.shape != input.shape:
        raise RuntimeError(f"{name}: inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    _check_classes(name, target, -1, classes)
    found = input.dtype
    x, labels = rounded(input, wide(found)).reshape(samples, classes), target.reshape(samples, classes)
    given = (labels >= 0).to(_C.int64).cumprod(1) != 0  # a sample's labels end at its first -1
    index = _where(given, labels, 0)
    mentioned = _C.functions.zeros((samples, classes), dtype=_C.int64, device=input.device).scatter_add(1, index, given.to(_C.int64))
    chosen = x.gather(1, index)
    loss = _C.functions.zeros((samples,), dtype=x.dtype, device=input.device)
    for k in range(int(given.sum(1).amax()) if samples else 0):
        active = given[:, k : k + 1] & (mentioned == 0)
        loss = loss + _where(active, _C.functions.relu(1 - chosen[:, k : k + 1] + x), 0.0).sum(1)
    return reduced((loss / classes).reshape(input.shape[:-1]), reduction, found)


def _distance(x: Tensor, y: Tensor, p: float, eps: float) -> Tensor:
    return _C.nn.linalg_vector_norm(x - y + eps, p, -1)


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, p: float, eps: float, swap: bool, reduction: str
) -> Tensor:
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "triplet_margin_loss: The anchor, positive, and negative tensors are expected to have the same number of dimensions, "
            f"but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs"
        )
    found = floating(anchor, positive, negative)
    a, near, far = cast(wide(found), anchor, positive, negative)
    apart = _distance(a, far, p, eps)
    if swap:
        apart = _C.functions.minimum(apart, _distance(near, far, p, eps))
    return reduced((margin + _distance(a, near, p, eps) - apart).clamp(min=0), reduction, found)


# ---- connectionist temporal classification ----
#
# A target of L labels becomes S = 2 L + 1 states, blanks around each label:   _ a _ b _
# A path moves by 0 or 1 states per time step, or by 2 over a blank between different labels. alpha[t, n, s] is the logarithm of
# the summed probability of all paths that are in state s at time t, beta that of what may follow from there; both count the
# emission at t. Everything is computed in float64.


def _states(targets: np.ndarray, lengths: list[int], blank: int) -> tuple[np.ndarray, np.ndarray]:
    """The states' classes (N, S), and whether a path may come to a state from two before."""
    most = max(lengths, default=0)
    states = np.full((len(lengths), 2 * most + 1), blank, dtype=np.int64)
    start = 0
    for n, length in enumerate(lengths):
        row = targets[n, :length] if targets.ndim == 2 else targets[start : start + length]
        states[n, 1 : 2 * length : 2] = row
        start += length
    skip = np.zeros(states.shape, dtype=bool)
    skip[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    return states, skip


def _shifted(a: np.ndarray, by: int) -> np.ndarray:
    """a moved along its last axis, -inf moving in."""
    out = np.full_like(a, -np.inf)
    if by > 0:
        out[:, by:] = a[:, :-by]
    else:
        out[:, :by] = a[:, -by:]
    return out


class _Ctc(Function):
    """The negative log likelihood (N) of log_probs (T, N, C)."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, targets: np.ndarray, steps: list[int], lengths: list[int], blank: int) -> Tensor:
        lp = log_probs.detach().cpu().double().numpy()
        states, skip = _states(targets, lengths, blank)
        rows, last = np.arange(len(lengths)), 2 * np.array(lengths, dtype=np.int64)
        emitted = np.take_along_axis(lp, np.broadcast_to(states, (lp.shape[0], *states.shape)), 2)
        alpha = np.full(emitted.shape, -np.inf)
        alpha[:1, :, :2] = emitted[:1, :, :2]
        with np.errstate(invalid="ignore"):
            for t in range(1, lp.shape[0]):
                before = np.logaddexp(alpha[t - 1], _shifted(alpha[t - 1], 1))
                over = np.where(skip, _shifted(alpha[t - 1], 2), -np.inf)
                alpha[t] = np.logaddexp(before, over) + emitted[t]
            end = np.array(steps, dtype=np.int64) - 1
            if lp.shape[0]:
                final = alpha[np.maximum(end, 0), rows]
                loss = -np.logaddexp(final[rows, last], np.where(last > 0, final[rows, last - 1], -np.inf))
            else:
                loss = np.zeros(len(lengths))
            loss = np.where(end >= 0, loss, np.where(last > 0, np.inf, 0.0))
        ctx.kept = (lp, states, skip, emitted, alpha, end, last, loss)
        ctx.like = log_probs.dtype, log_probs.device
        return _C.from_numpy(loss).to(dtype=log_probs.dtype, device=log_probs.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        lp, states, skip, emitted, alpha, end, last, loss = ctx.kept
        scale = grad.cpu().double().numpy()
        rows = np.arange(len(last))
        result = np.zeros(lp.shape)
        beta = np.full(states.shape, -np.inf)
        start = np.full(states.shape, -np.inf)
        start[rows, last] = 0.0
        start[rows[last > 0], last[last > 0] - 1] = 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            for t in range(lp.shape[0] - 1, -1, -1):
                after = np.logaddexp(beta, _shifted(beta, -1))
                over = np.where(_shifted(skip.astype(np.float64), -2) == 1, _shifted(beta, -2), -np.inf)
                beta = np.logaddexp(after, over)
                beta = np.where((end == t)[:, None], start, beta) + emitted[t]
                # how likely the path is in each state, given the target
                share = np.exp(alpha[t] + beta - emitted[t] + loss[:, None])
                expected = np.zeros(lp.shape[1:])
                np.add.at(expected, (rows[:, None], states), np.where(np.isneginf(emitted[t]), 0.0, share))
                step = (np.exp(lp[t]) - expected) * scale[:, None]
                result[t] = np.where((t <= end)[:, None], np.where(scale[:, None] == 0, 0.0, step), 0.0)
        dtype, device = ctx.like
        return _C.from_numpy(result).to(dtype=dtype, device=device), None, None, None, None


def _ctc_lengths(name: str, lengths: Any, samples: int) -> list[int]:
    if isinstance(lengths, Tensor):
        if lengths.is_floating_point() or lengths.dtype == _C.bool:
            raise RuntimeError(f"ctc_loss: {name} must be integral, not {lengths.dtype}")
        lengths = lengths.reshape(-1).tolist()
    if len(lengths) != samples:
        raise RuntimeError(f"ctc_loss: {name} must be of size batch_size {samples}, but got {len(lengths)} lengths")
    return [int(length) for length in lengths]


def _check_ctc(log_probs: Tensor, targets: Tensor, steps: list[int], lengths: list[int], blank: int) -> None:
    times, _, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: blank must be in label range: it is {blank}, of {classes} classes")
    for name, values, limit in (("input_lengths", steps, times), ("target_lengths", lengths, None)):
        for value in values:
            if value < 0:
                raise RuntimeError(f"ctc_loss: Expected {name} to have value at least 0, but got value {value}")
            if limit is not None and value > limit:
                raise RuntimeError(f"ctc_loss: Expected {name} to have value at most {limit}, but got value {value}")
    needed, dim = (sum(lengths), 0) if targets.dim() == 1 else (max(lengths, default=0), 1)
    size = targets.size(dim)
    if size < needed if dim else size != needed:
        raise RuntimeError(
            f"ctc_loss: Expected tensor to have size {'at least ' if dim else ''}{needed} at dimension {dim}, but got size {size} "
            "for argument #2 'targets'"
        )


def _ctc(log_probs: Tensor, targets: Tensor, steps: Any, lengths: Any, blank: int, reduction: str, zero_infinity: bool) -> Tensor:
    if not log_probs.is_floating_point() or log_probs.dim() not in (2, 3) or targets.dim() not in (1, 2):
        raise RuntimeError(
            "ctc_loss: log_probs is a floating tensor (T, N, C) or (T, C) and targets (N, S) or (sum of target_lengths), "
            f"but got {log_probs.dtype} {list(log_probs.shape)} and {list(targets.shape)}"
        )
    found, batched = log_probs.dtype, log_probs.dim() == 3
    probabilities = rounded(log_probs if batched else log_probs.unsqueeze(1), wide(found))
    samples, classes = probabilities.shape[1:]
    steps, lengths = _ctc_lengths("input_lengths", steps, samples), _ctc_lengths("target_lengths", lengths, samples)
    _check_ctc(probabilities, targets, steps, lengths, blank)
    labels = targets.detach().cpu().to(_C.int64).numpy()
    used = _states(labels, lengths, blank)[0]
    if used.size and not 0 <= used.min() <= used.max() < classes:
        raise RuntimeError(f"ctc_loss: a target is out of range: labels of {classes} classes lie in [0, {classes - 1}]")
    loss = _Ctc.apply(probabilities, labels, steps, lengths, blank)
    if zero_infinity:
        loss = _where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        per_label = _C.tensor([max(n, 1) for n in lengths], dtype=loss.dtype, device=loss.device)
        return rounded((loss / per_label).mean(), found)
    return reduced(loss if batched or reduction != "none" else loss.squeeze(0), reduction, found)


def ctc_loss(log_probs: Tensor, targets: Tensor, steps: Tensor, lengths: Tensor, blank: int, reduction: str, zero_infinity: bool) -> Tensor:
    return _ctc(log_probs, targets, steps, lengths, blank, reduction, zero_infinity)


def ctc_loss_ints(
    log_probs: Tensor, targets: Tensor, steps: tuple[int, ...], lengths: tuple[int, ...], blank: int, reduction: str, zero_infinity: bool
) -> Tensor:
    return _ctc(log_probs, targets, steps, lengths, blank, reduction, zero_infinity)
