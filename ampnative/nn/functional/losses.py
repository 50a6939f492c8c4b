"""Losses."""

from __future__ import annotations

import warnings

import numpy as np

from ... import _C
from ..._C import Tensor

_mse_loss = _C.nn.mse_loss


def _legacy_reduction(size_average: bool | None, reduce: bool | None) -> str:
    reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
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
        shape = np.broadcast_shapes(tuple(input.shape), tuple(target.shape))
    except ValueError:
        raise RuntimeError(f"input of size {tuple(input.shape)} and target of size {tuple(target.shape)} cannot be broadcast") from None
    return input.expand(*shape), target.expand(*shape)


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Squared differences: their "mean", "sum" or (reduction="none") themselves. With ``weight`` the mean is a weighted
    one.
    """
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if input.shape != target.shape:
        input, target = _broadcast_pair(input, target)
    if weight is None:
        return _mse_loss(input, target, reduction)
    if weight.shape != input.shape:
        raise ValueError("Inputs and weight must have the same size.")
    loss = _mse_loss(input, target, "none") * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduced(loss, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Absolute differences."""
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if input.shape != target.shape:
        input, target = _broadcast_pair(input, target)
    if weight is None:
        return _C.nn.l1_loss(input, target, reduction)
    if weight.shape != input.shape:
        raise ValueError("Inputs and weight must have the same size.")
    loss = _C.nn.l1_loss(input, target, "none") * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduced(loss, reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Quadratic (over 2 beta) where the difference is below ``beta``, linear above."""
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if input.shape != target.shape:
        input, target = _broadcast_pair(input, target)
    if beta == 0.0:
        return _C.nn.l1_loss(input, target, reduction)
    return _C.nn.smooth_l1_loss(input, target, reduction, beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """Half the square where the difference is below ``delta``, linear above."""
    if input.shape != target.shape:
        input, target = _broadcast_pair(input, target)
    if weight is None:
        return _C.nn.huber_loss(input, target, reduction, delta)
    if weight.shape != input.shape:
        raise ValueError("Inputs and weight must have the same size.")
    loss = _C.nn.huber_loss(input, target, "none", delta) * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduced(loss, reduction)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood: input (N, C, ...) log-probabilities, target (N, ...) int64 class numbers."""
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
    """Cross entropy of logits (N, C, ...) with class numbers (N, ...) int64, or class probabilities of the input's
    shape.
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
    """Cross entropy of probabilities in [0, 1] with targets in [0, 1]; refused under CUDA autocast."""
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
    """Cross entropy of sigmoid(input) with targets in [0, 1], formed without overflow."""
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    return _C.nn.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction)
