"""Scatters with a reduction, made of scatters without."""

from __future__ import annotations

from .. import _C
from .._C import Tensor


def _reduced(reduce: str) -> str:
    names = {"add": "sum", "multiply": "prod"}
    if reduce not in names:
        raise RuntimeError(f"reduce argument must be either add or multiply, got {reduce!r}")
    return names[reduce]


def scatter_add_or_multiply(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> Tensor:
    return scatter_reduce(input, dim, index, src, _reduced(reduce), True)


def scatter_value_add_or_multiply(input: Tensor, dim: int, index: Tensor, value: float, reduce: str) -> Tensor:
    src = input.new_full(index.shape, value)
    return scatter_reduce(input, dim, index, src, _reduced(reduce), True)


def _identity(dtype: _C.dtype, reduce: str) -> float | int:
    """What changes no result of the reduction."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.is_floating_point:
        return -float("inf") if reduce == "amax" else float("inf")
    if dtype == _C.bool:
        return 0 if reduce == "amax" else 1
    limits = _C.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool) -> Tensor:
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    index = index.long() if index.dtype == _C.int32 else index
    if input.dim() == 0:
        return scatter_reduce(input.reshape(1), dim, index.reshape(-1), src.reshape(-1), reduce, include_self).reshape(())
    start = input if include_self else input.scatter(dim, index, _identity(input.dtype, reduce))
    if reduce == "sum":
        return start.scatter_add(dim, index, src)
    if reduce != "mean":
        # In place the result is written over the input, which the derivative reads: it keeps a copy.
        start = start.clone() if start is input and input.requires_grad else start
        return _C.nn._scatter_into(start, dim, index, src, reduce)
    counts = input.new_full(input.shape, int(include_self), dtype=_C.int64)
    counts = counts.scatter_add(dim, index, index.new_ones(index.shape)).clamp(min=1)
    total = start.scatter_add(dim, index, src)
    return total / counts.to(total.dtype) if total.is_floating_point() else total.div(counts, rounding_mode="floor").to(total.dtype)
