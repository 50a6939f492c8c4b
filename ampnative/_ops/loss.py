"""Losses made of other ops, and connectionist temporal classification."""

from __future__ import annotations

import math
from typing import Any

from .. import _C
from .._C import Tensor
from ._common import cast, floating, needs_no_gradient, reduced, rounded, shapes, wide

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
    needs_no_gradient("soft_margin_loss", "target", target)
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
    needs_no_gradient(name, "weight", weight)
    _check_classes(name, target, 0, classes)
    found = input.dtype
    x, y = rounded(input, wide(found)).reshape(samples, classes), target.reshape(samples, 1)
    other = _C.functions.arange(classes, device=input.device) != y
    missing = margin - x.gather(1, y) + x
    loss = _where(other & (missing > 0), missing, 0.0)  # NaN counts as reached, as in PyTorch
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
    most = classes if input.is_meta else int(given.sum(1).amax()) if samples else 0
    for k in range(most):
        active = given[:, k : k + 1] & (mentioned == 0)
        missing = 1 - chosen[:, k : k + 1] + x
        loss = loss + _where(active & (missing > 0), missing, 0.0).sum(1)
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
    floating = log_probs.is_floating_point()
    if not floating or log_probs.dim() not in (2, 3) or targets.dim() not in (1, 2):
        raise (RuntimeError if floating else NotImplementedError)(
            "ctc_loss: log_probs is a floating tensor (T, N, C) or (T, C) and targets (N, S) or (sum of target_lengths), "
            f"but got {log_probs.dtype} {list(log_probs.shape)} and {list(targets.shape)}"
        )
    if log_probs.numel() == 0:
        raise RuntimeError(f"ctc_loss: log_probs tensor must not be empty, but its shape is {list(log_probs.shape)}")
    found, batched = log_probs.dtype, log_probs.dim() == 3
    probabilities = rounded(log_probs if batched else log_probs.unsqueeze(1), wide(found))
    samples = probabilities.size(1)
    steps, lengths = _ctc_lengths("input_lengths", steps, samples), _ctc_lengths("target_lengths", lengths, samples)
    _check_ctc(probabilities, targets, steps, lengths, blank)
    labels = targets.detach().to(dtype=_C.int64, device=log_probs.device)
    loss = _C.nn._ctc_samples(probabilities, labels, steps, lengths, blank, zero_infinity)[0]
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
