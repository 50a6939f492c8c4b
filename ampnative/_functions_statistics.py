"""Covariances, correlations and histograms."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _C
from ._C import Tensor
from ._function_names import Names
from ._ops import _matrix
from ._ops._matrix import array, shown, tensor
from ._ops._undifferentiable import missing, refused

__all__: list[str] = []
_names = Names(__all__)


def _check_weights(name: str, weights: Tensor, observations: int, integral: bool) -> None:
    if weights.dim() > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {weights.dim()} dimensions")
    if integral and (weights.is_floating_point() or weights.is_complex() or weights.dtype == _C.bool):
        raise RuntimeError(f"cov(): expected {name} to have integral dtype but got {name} with {shown(weights.dtype)} dtype")
    if not integral and not weights.is_floating_point():
        raise RuntimeError(f"cov(): expected {name} to have floating point dtype but got {name} with {shown(weights.dtype)} dtype")
    if weights.numel() != observations:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got {weights.numel()} != "
            f"{observations}"
        )
    if observations and float(weights.min()) < 0:
        raise RuntimeError(f"cov(): {name} cannot be negative")


def _check_rows(name: str, input: Tensor) -> None:
    if input.dim() > 2:
        raise RuntimeError(f"{name}(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions")
    if input.dtype == _C.bool:
        raise NotImplementedError(f"{name}(): bool dtype is not supported for input")


@_names.both
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """Covariances of variables, the rows of (variables, observations): (variables, variables); of one variable a number. The sums
    of products are divided by the observations less ``correction``.

    ``fweights`` (observations, integers) counts how often each observation was made, ``aweights`` (floating) weights it.
    RuntimeError for more dimensions, and for weights that are negative, sum to zero or do not fit.
    """
    _check_rows("cov", input)
    x = input if input.dim() == 2 else input.reshape(1, -1)
    observations = x.size(1)
    for name, given, integral in (("fweights", fweights, True), ("aweights", aweights, False)):
        if given is not None:
            _check_weights(name, given, observations, integral)
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    total: Any = observations
    if weights is not None:
        total = weights.sum()
        if not float(total):
            raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    mean = (x if weights is None else x * weights).sum(1) / total
    if aweights is not None and weights is not None and correction:
        freedom = total - correction * (weights * aweights).sum() / total
    else:
        freedom = total - correction
    if not float(freedom) > 0:
        warnings.warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations", stacklevel=2)
        freedom = 0.0
    x = x - mean.unsqueeze(1)
    other = (x if weights is None else x * weights).t()
    return (x.mm(other.conj() if other.is_complex() else other) / freedom).squeeze()


@_names.both
def corrcoef(input: Tensor) -> Tensor:
    """Correlation coefficients of variables, the rows of (variables, observations): (variables, variables), in [-1, 1]; NaN where a
    variable is constant. RuntimeError for more dimensions."""
    _check_rows("corrcoef", input)
    found = cov(input)
    if found.dim() == 0:
        return found / found
    variance = found.diagonal()
    spread = (_C.functions.view_as_real(variance).select(-1, 0) if found.is_complex() else variance).sqrt()
    found = found / spread.unsqueeze(1) / spread.unsqueeze(0)
    if found.is_complex():
        return _C.functions.view_as_complex(_C.functions.view_as_real(found).clamp(-1, 1))
    return found.clamp(-1, 1)


def _edges(input: Tensor, bins: int, range: Sequence[float] | None) -> np.ndarray:
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    low, high = 0.0, 1.0
    if range is not None:
        low, high = (float(end) for end in range)
    elif input.numel():
        low, high = float(input.detach().min()), float(input.detach().max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(f"torch.histogramdd: dimension 0's range [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError(f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension 0")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return array(_C.functions.linspace(low, high, bins + 1, dtype=input.dtype, device="cpu"))


def _given_edges(input: Tensor, bins: Tensor) -> np.ndarray:
    if bins.dim() != 1:
        raise RuntimeError(
            f"torch.histogramdd: bins tensor should have one dimension, but got {bins.dim()} dimensions in the bins tensor for dimension 0"
        )
    if bins.dtype != input.dtype:
        raise RuntimeError(
            "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
            f"{shown(input.dtype)} and bins for dimension 0 with dtype {shown(bins.dtype)}"
        )
    return array(bins)


@_names.both
def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: Any = None,
) -> Any:
    """(hist, bin_edges): how many elements, or the sum of their ``weight``, lie in each bin; with ``density`` divided by the sum and
    the widths. The last bin has both its ends; what lies outside and NaN is left out.

    ``bins``: how many, of equal width between the ends of ``range`` (smallest and largest element), or the edges in ascending order.
    float32 and float64 (NotImplementedError for others). RuntimeError for what does not fit. No derivative:
    backward raises.
    """
    if input.dtype not in (_C.float32, _C.float64):
        raise NotImplementedError(f"\"histogramdd\" not implemented for '{shown(input.dtype)}': convert the input with .float()")
    if weight is not None and weight.shape != input.shape:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor excluding its innermost "
            f"dimension, but got {list(input.shape)} and {list(weight.shape)}"
        )
    if weight is not None and weight.dtype != input.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same dtype, but got "
            f"{shown(input.dtype)} and {shown(weight.dtype)}"
        )
    edges = _given_edges(input, bins) if isinstance(bins, Tensor) else _edges(input, bins, range)
    count = len(edges) - 1
    values = array(input).reshape(-1)
    inside = (values >= edges[0]) & (values <= edges[-1]) if count > 0 else np.zeros(values.shape, bool)
    places = np.clip(np.searchsorted(edges, values[inside], side="right") - 1, 0, max(count - 1, 0))
    weights = None if weight is None else array(weight).reshape(-1)[inside].astype(np.float64)
    hist = np.bincount(places, weights, minlength=count)[:count].astype(np.float64)
    if density:
        with np.errstate(divide="ignore", invalid="ignore"):  # nothing counted: NaN
            hist = hist / (hist.sum() * np.diff(edges))
    result = _matrix.histogram(tensor(hist.astype(edges.dtype), input), tensor(edges, input))
    if out is None:
        arguments = (t for t in (input, bins, weight) if isinstance(t, Tensor))
        return _matrix.histogram(*refused(missing("histogram"), tuple(result), *arguments))
    for place, found in zip(out, result, strict=True):
        place.copy_(found)
    return _matrix.histogram(*out)
