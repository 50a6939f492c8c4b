"""Samples: categories, normal numbers of given moments, random masks; and the shortening of table rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _C
from ._C import Tensor
from ._ops._undifferentiable import flat_in

__all__ = [
    "alpha_dropout",
    "alpha_dropout_",
    "dropout_",
    "embedding_renorm_",
    "feature_alpha_dropout",
    "feature_alpha_dropout_",
    "feature_dropout",
    "feature_dropout_",
    "multinomial",
    "normal",
]

_f = _C.functions
_16_BIT = (_C.dtypes.float16, _C.dtypes.bfloat16)


def _check_probabilities(rows: np.ndarray) -> None:
    if not (np.isfinite(rows).all() and (rows >= 0).all()):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if rows.shape[1] == 0 or (rows.sum(1) <= 0).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")


def _with_replacement(rows: np.ndarray, count: int, generator: Any) -> np.ndarray:
    """Inverts the cumulative sums, which are formed one by one in the compute dtype, at one uniform number per sample."""
    total = np.cumsum(rows, 1, dtype=rows.dtype)
    total /= total[:, -1:]
    at = _f.rand(rows.shape[0], count, dtype=_C.dtypes.float64, generator=generator).numpy()
    found = [np.searchsorted(t.astype(np.float64), u) for t, u in zip(total, at, strict=True)]
    return np.minimum(np.array(found, dtype=np.int64).reshape(at.shape), rows.shape[1] - 1)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, generator: Any = None, out: Tensor | None = None
) -> Tensor:
    """``num_samples`` category numbers per row, int64, drawn with the weights in ``input`` (categories) or (rows, categories),
    which need not sum to 1. With one seed the numbers are PyTorch's.

    RuntimeError for weights that are negative or not finite, that sum to 0, or that are too few without replacement."""
    if out is not None:
        return _C._into("multinomial", "exact", out, multinomial, (input, num_samples, replacement, generator), {})
    if not input.is_floating_point():
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {input.dtype}")
    if input.dim() not in (1, 2):
        raise RuntimeError(f"prob_dist must be 1 or 2 dim, got {input.dim()}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    weights = input.detach().cpu()
    wide = weights.float() if weights.dtype in _16_BIT else weights
    rows = np.atleast_2d(wide.numpy())
    if not replacement and num_samples > rows.shape[1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    _check_probabilities(rows)
    if replacement and num_samples > 1:
        found = _with_replacement(rows, num_samples, generator)
    else:  # the largest of weight / exponential number, which is as random as drawing one after the other
        race = (weights / _f.empty_like(weights).exponential_(1.0, generator=generator)).to(_C.dtypes.float64)
        found = np.argsort(-np.atleast_2d(race.numpy()), axis=1, kind="stable")[:, :num_samples]
    return _C.from_numpy(np.ascontiguousarray(found.reshape(*input.shape[:-1], num_samples))).to(input.device)


def normal(
    mean: Tensor | float,
    std: Tensor | float = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    out: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Normal random numbers with the given means and standard deviations: tensors of one broadcast shape, or two numbers and
    a ``size``. RuntimeError for a negative deviation."""
    if out is not None:
        options = {"dtype": out.dtype, "device": out.device, **options}
        return _C._into("normal", "exact", out, _normal, (mean, std, size, generator, options), {})
    return _normal(mean, std, size, generator, options)


def _normal(mean: Tensor | float, std: Tensor | float, size: Any, generator: Any, options: dict[str, Any]) -> Tensor:
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if size is None:
            raise TypeError("normal() of two numbers needs a size: normal(mean, std, size)")
        if not isinstance(size, (tuple, list)):
            raise TypeError(f"normal(): argument 'size' (position 3) must be tuple of ints, not {type(size).__name__}")
        required = options.pop("requires_grad", False)
        drawn = _f.empty(size, **{"device": "cpu", **options}).normal_(mean, std, generator=generator)
        return drawn.requires_grad_() if required else drawn
    if isinstance(std, Tensor):
        if std.numel() and bool((std < 0).any()):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    shape = (tensors[0] + tensors[-1]).shape  # RuntimeError if they do not broadcast
    for t in tensors:
        if not t.is_floating_point():
            raise NotImplementedError(f'"normal" not implemented for \'{t.dtype}\': convert it to a floating dtype')
    drawn = _f.empty(shape, dtype=options.get("dtype", tensors[0].dtype), device=tensors[0].device)
    mean, std = (t.detach() if isinstance(t, Tensor) else t for t in (mean, std))
    return flat_in(drawn.normal_(0.0, 1.0, generator=generator).mul_(std).add_(mean), *tensors)


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Shortens those rows of ``input`` (V, D) named by ``indices`` whose ``norm_type``-norm is above ``max_norm``, in place."""
    used = np.unique(indices.detach().cpu().numpy())
    if used.size == 0:
        return input
    if used[0] < 0 or used[-1] >= input.shape[0]:
        raise IndexError(f"index out of range in self: {used[-1] if used[0] >= 0 else used[0]} of {input.shape[0]} rows")
    chosen = _C.from_numpy(used.astype(np.int64)).to(input.device)
    rows = input.detach()[chosen]
    size = rows.norm(norm_type, 1, keepdim=True)
    input[chosen] = _f.where(size > max_norm, rows * (max_norm / (size + 1e-7)), rows)
    return input


# ---- dropout: a mask is a factor and an offset ----

_SELU_LIMIT = 1.7580993408473766  # selu approaches minus this


def element_mask(input: Tensor, p: float, by_channel: bool = False) -> Tensor:
    """1 with probability 1 - p, else 0: one per element, or per sample and channel."""
    if by_channel and input.dim() < 2:
        raise RuntimeError(f"Feature dropout requires at least 2 dimensions in the input, got {input.dim()}")
    shape = (*input.shape[:2], *[1] * (input.dim() - 2)) if by_channel else input.shape
    return _f.empty(shape, dtype=input.dtype, device=input.device).bernoulli_(1 - p)


def feature_mask(input: Tensor, p: float, by_channel: bool = True) -> tuple[Tensor, None]:
    """A factor per sample and channel, 0 or 1 / (1 - p)."""
    return element_mask(input, p, by_channel).div_(1 - p), None


def alpha_dropout_mask(input: Tensor, p: float, by_channel: bool = False) -> tuple[Tensor, Tensor]:
    """Factor and offset that put selu's lower limit where the mask is 0 and keep mean 0 and variance 1."""
    keep = element_mask(input, p, by_channel)
    a = 1.0 / math.sqrt((_SELU_LIMIT * _SELU_LIMIT * p + 1) * (1 - p))
    return keep.mul(a), keep.add(-1).mul_(_SELU_LIMIT * a).add_(_SELU_LIMIT * a * p)


def masked(input: Tensor, p: float, train: bool, inplace: bool, mask: Callable[..., Any], *options: bool) -> Tensor:
    """``input * factor + offset``; the identity unless ``train``."""
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not train or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input.mul_(0.0) if inplace else input * 0.0
    factor, offset = mask(input, p, *options)
    out = input.mul_(factor) if inplace else input * factor
    return out if offset is None else out.add_(offset) if inplace else out + offset


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``dropout`` in place."""
    return masked(input, p, train, True, feature_mask, False)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``dropout`` of whole channels of an input (N, C, ...)."""
    return masked(input, p, train, False, feature_mask)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``feature_dropout`` in place."""
    return masked(input, p, train, True, feature_mask)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Sets elements to selu's lower limit with probability ``p`` and rescales, so that mean 0 and variance 1 stay."""
    return masked(input, p, train, False, alpha_dropout_mask)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``alpha_dropout`` in place."""
    return masked(input, p, train, True, alpha_dropout_mask)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``alpha_dropout`` of whole channels of an input (N, C, ...)."""
    return masked(input, p, train, False, alpha_dropout_mask, True)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``feature_alpha_dropout`` in place."""
    return masked(input, p, train, True, alpha_dropout_mask, True)


for _method in (multinomial,):
    setattr(Tensor, _method.__name__, _method)
