"""Losses."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from ... import _C
from ..._C import Tensor
from ..._ops._common import joined_shape
from .distance import pairwise_distance

_mse_loss = _C.nn.mse_loss


def _legacy_reduction(size_average: bool | None, reduce: bool | None) -> str:
    for option, value in (("size_average", size_average), ("reduce", reduce)):
        if isinstance(value, Tensor) and value.numel() != 1:
            raise RuntimeError(
                f"{option} must be a bool, not a Tensor of size {tuple(value.shape)}: weights and other tensors are given by name"
            )
    keep = reduce is not None and not reduce
    reduction = "none" if keep else "sum" if size_average is not None and not size_average else "mean"
    warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.", stacklevel=3)
    return reduction


def _broadcast_pair(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both with their common shape; warns, since this is rarely meant."""
    warnings.warn(
        f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). "
        "Both are broadcast, which is rarely what a loss should do. Give them the same size.",
        stacklevel=3,
    )
    try:
        shape = joined_shape(input.shape, target.shape)
    except RuntimeError:
        raise RuntimeError(f"input of size {tuple(input.shape)} and target of size {tuple(target.shape)} cannot be broadcast") from None
    return input.expand(*shape), target.expand(*shape)


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _weighted(differences: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """Of differences that ops without a policy for losses made: in a region they keep their dtype."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"Invalid reduction mode: {reduction}. Expected one of 'none', 'mean', 'sum'.")
    loss = differences * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduced(loss, reduction)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Squared differences of input and target: their "mean", "sum" or (reduction="none") themselves.

    Unequal shapes warn and broadcast. ``weight``, of the input's shape (ValueError), multiplies each; the mean is then
    divided by the sum of the weights. Integers have no mean (RuntimeError). ``size_average`` and ``reduce`` are old
    spellings of ``reduction`` and warn.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if input.shape != target.shape:
        input, target = _broadcast_pair(input, target)
    if weight is None:
        return _mse_loss(input, target, reduction)
    if weight.shape != input.shape:
        raise ValueError("Inputs and weight must have the same size.")
    return _weighted(_C.functions.pow(input - target, 2), weight, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Absolute differences of input and target; ``reduction`` and ``weight`` as in ``mse_loss``."""
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if input.shape != target.shape:
        input, target = _broadcast_pair(input, target)
    if weight is None:
        return _C.nn.l1_loss(input, target, reduction)
    if weight.shape != input.shape:
        raise ValueError("Inputs and weight must have the same size.")
    return _weighted((input - target).abs(), weight, reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d^2 / (2 beta) where the difference d is below ``beta``, |d| - beta / 2 above; ``beta=0`` is ``l1_loss``.

    RuntimeError for a negative ``beta``. ``reduction`` as in ``mse_loss``.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if input.shape != target.shape:
        input, target = _broadcast_pair(input, target)
    if beta == 0.0:
        return _C.nn.l1_loss(input, target, reduction)
    return _C.nn.smooth_l1_loss(input, target, reduction, beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """d^2 / 2 where the difference d is below ``delta``, delta * (|d| - delta / 2) above.

    RuntimeError unless ``delta`` is positive. ``reduction`` as in ``mse_loss``; ``weight`` multiplies the losses before it, and "mean"
    divides by their number, not by the sum of the weights as ``mse_loss`` does: that is PyTorch's rule.
    """
    if input.shape != target.shape:
        input, target = _broadcast_pair(input, target)
    if weight is None:
        return _C.nn.huber_loss(input, target, reduction, delta)
    if weight.shape != input.shape:
        raise ValueError("Inputs and weight must have the same size.")
    return _reduced(_C.nn.huber_loss(input, target, "none", delta) * weight, reduction)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood: input (N, C, ...) or (C) log-probabilities, target (N, ...) or () class numbers.

    The target is int64 or uint8 (RuntimeError), 0 .. C-1 (IndexError) or ``ignore_index``, which counts nothing.
    ``weight`` (C) multiplies each class; the "mean" divides by the sum of the weights that took part.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    return _C.nn.nll_loss(input, target, weight, ignore_index, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits (N, C, ...) or (C) with class numbers (N, ...) or (), or class probabilities of the
    input's shape.

    Class numbers are int64 or uint8 (RuntimeError), 0 .. C-1 (IndexError) or ``ignore_index``, which counts nothing.
    ``weight`` (C) multiplies each class; the "mean" divides by the sum of the weights that took part.
    ``label_smoothing`` in [0, 1] (RuntimeError) moves that share of the target to all classes equally.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    return _C.nn.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy of probabilities with targets, both in [0, 1]; logarithms stop at -100. Refused under CUDA
    autocast.

    RuntimeError for an input outside [0, 1] or another dtype than the target's, ValueError for unequal shapes.
    ``weight`` broadcasts and multiplies each term.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) is refused. "
            "Give both the same size."
        )
    return _C.nn.binary_cross_entropy(input, target, weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Cross entropy of sigmoid(input) with targets in [0, 1], formed without overflow.

    ``pos_weight`` broadcasts and multiplies the terms of positive targets, ``weight`` all terms. The result has the
    target's dtype. ValueError for unequal shapes.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    return _C.nn.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """``target * (log(target) - input)`` of log-probabilities ``input``; with ``log_target`` the target is a logarithm too.

    "batchmean" divides the sum by the number of samples, which is the divergence; "mean" divides by that of elements.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    elif reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides only by the "
            "batch size, which is the divergence that the name promises. Give reduction='batchmean', or 'sum' and a divisor.",
            stacklevel=2,
        )
    if reduction != "batchmean":
        return _C.nn.kl_div(input, target, reduction, log_target)
    loss = _C.nn.kl_div(input, target, "sum", log_target)
    return loss / input.size(0) if input.dim() else loss


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of counts under a Poisson distribution, of which ``input`` is the rate or (``log_input``) its
    logarithm. ``full`` adds Stirling's approximation of ``log(target!)``.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    return _C.nn.poisson_nll_loss(input, target, log_input, full, eps, reduction)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Negative log likelihood under normal distributions of means ``input`` and variances ``var`` (at least ``eps``; of the
    input's shape, without its last dimension, with a last dimension of 1, or one number). ``full`` adds the constant term.
    """
    if not isinstance(var, Tensor):
        var = _C.functions.full_like(input, var)
    if bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif not (input.dim() == var.dim() and input.shape[:-1] == var.shape[:-1] and var.size(-1) == 1):
            raise ValueError(f"var is of incorrect size: {list(var.shape)} for an input of {list(input.shape)}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid: reduction is 'none', 'mean' or 'sum'")
    var = var.clone()
    recording = _C.is_grad_enabled()
    _C._set_grad_enabled(False)
    try:
        var.clamp_(min=eps)  # the slope goes through, as if var had been larger
    finally:
        _C._set_grad_enabled(recording)
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """One minus the cosine of two vectors where target is 1; where it is -1, what the cosine has above ``margin``.

    Inputs (N, D) with target (N), or (D) with a 0-dim target.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    return _C.nn.cosine_embedding_loss(input1, input2, target, margin, reduction)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The input where target is 1, ``max(0, margin - input)`` where it is -1."""
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    return _C.nn.hinge_embedding_loss(input, target, margin, reduction)


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, margin - target * (input1 - input2))``: target 1 says that the first should rank higher, -1 the second."""
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.size()}, input2: {input2.size()}, target: {target.size()}"
        )
    return _C.nn.margin_ranking_loss(input1, input2, target, margin, reduction)


def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """``log(1 + exp(-target * input))`` for targets 1 and -1."""
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    return _C.nn.soft_margin_loss(input, target, reduction)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """What the other classes' scores have above the target's minus ``margin``, to the power ``p`` (1 or 2), averaged over the
    classes. Input (N, C) or (C), target (N) or () int64.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    return _C.nn.multi_margin_loss(input, target, p, margin, weight, reduction)


def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """Margins between the scores of a sample's labels and of all other classes. Input and target (N, C) or (C): the labels of
    a sample are class numbers, ended by -1.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    return _C.nn.multilabel_margin_loss(input, target, reduction)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross entropy of logits, averaged over the classes (the last dimension)."""
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    loss = -(target * _C.nn.logsigmoid(input) + (1 - target) * _C.nn.logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid: reduction is 'none', 'mean' or 'sum'")
    return _reduced(loss.sum(dim=input.dim() - 1) / input.size(-1), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, margin + |anchor - positive| - |anchor - negative|)`` with p-norms over the last dimension. With ``swap`` the
    distance of positive and negative counts where it is smaller than that of anchor and negative.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _C.nn.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """As :func:`triplet_margin_loss`, with a distance of the caller's (default: ``pairwise_distance``)."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = distance_function if distance_function is not None else pairwise_distance
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _C.functions.minimum(far, distance(positive, negative))
    return _reduced((margin + near - far).clamp(min=0), reduction)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification: minus the log probability of all alignments of ``targets`` with the sequences.

    Args:
        log_probs: (T, N, C) or (T, C): logarithms, as of ``log_softmax``; the gradient counts on that.
        targets: (N, S) padded, or one after the other (sum of target_lengths); class numbers other than ``blank``.
        input_lengths, target_lengths: (N), each at most T, and S: both integral tensors, or both sequences of ints.
        reduction: "mean" divides each sample's loss by its number of labels first.
        zero_infinity: samples that cannot be aligned, whose loss is infinite, count as 0 and have no gradient.
    """
    return _C.nn.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
