"""Distances, and norms of matrices."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from .. import _C
from .._C import Tensor
from ._common import cast, joined_shape, promoted, rounded, wide

_norm = _C.nn.linalg_vector_norm
_16_BITS = (_C.float16, _C.bfloat16)
_SHOWN = {_C.float16: "Half", _C.bfloat16: "BFloat16"}
_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


def _check_wide(name: str, *tensors: Tensor) -> None:
    first = tensors[0].dtype
    if first in _16_BITS:
        raise NotImplementedError(f'"{name}" not implemented for \'{_SHOWN[first]}\': convert with .float(), or use autocast')
    if not first.is_floating_point or any(t.dtype != first for t in tensors):
        raise RuntimeError(
            f"{name} takes floating tensors of one dtype: expected scalar type {first} but found "
            f"{', '.join(str(t.dtype) for t in tensors)}"
        )


def _euclidean(x: Tensor, y: Tensor) -> Tensor:
    """|x|^2 - 2 x y + |y|^2: no memory for all differences, but what is close comes out inexact."""
    square = (x * x).sum(-1, keepdim=True) + (y * y).sum(-1).unsqueeze(-2) - 2 * _C.functions.matmul(x, y.transpose(-1, -2))
    apart = ~(square <= 0)  # the root has no slope at 0; NaN stays
    return _C.functions.where(apart, _C.functions.where(apart, square, 1.0).sqrt(), 0.0)


def cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: str | None) -> Tensor:
    if compute_mode is not None and compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode: {', '.join(_MODES)}")
    for name, x in (("X1", x1), ("X2", x2)):
        if x.dim() < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.dim()}D")
    if x1.size(-1) != x2.size(-1):
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.size(-1)} X2: {x2.size(-1)}")
    if p < 0:
        raise RuntimeError(f"cdist only supports non-negative p values, but got {p}")
    _check_wide("cdist", x1, x2)
    many = x1.size(-2) > 25 or x2.size(-2) > 25
    if p == 2 and (compute_mode == _MODES[1] or (many and compute_mode != _MODES[2])):
        return _euclidean(x1, x2)
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


def pdist(input: Tensor, p: float) -> Tensor:
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if p < 0:
        raise RuntimeError(f"pdist only supports non-negative p values, but got {p}")
    _check_wide("pdist", input)
    rows = input.size(0)
    upper = _C.functions.triu(_C.functions.ones((rows, rows), dtype=_C.bool, device=input.device), 1).nonzero()
    return _norm(input.index_select(0, upper[:, 0]) - input.index_select(0, upper[:, 1]), p, -1)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int, eps: float) -> Tensor:
    found = promoted(x1, x2)
    if eps < 0:
        raise RuntimeError(f"cosine_similarity: eps must be non-negative, got: {eps}")
    if not found.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {found}")
    x, y = cast(wide(found), x1, x2)
    shape = joined_shape(x.shape, y.shape)
    x, y = (_normalized(t.expand(*shape), dim, eps) for t in (x, y))
    return rounded((x * y).sum(dim), found)


def _normalized(x: Tensor, dim: int, eps: float) -> Tensor:
    length = _norm(x, 2, dim, keepdim=True)
    short = length.detach()
    return x / (length + _C.functions.where(short < eps, eps - short, 0.0))  # the slope is that of the length, even where eps stands for it


def dist(input: Tensor, other: Tensor, p: float) -> Tensor:
    found = promoted(input, other)
    x, y = cast(wide(found), input, other)
    return rounded(_norm(x - y, p), found)


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    if input.dim() < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.dim()} dimensions")
    if p <= 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported, but p is {p}")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    input.size(dim)  # IndexError for a dimension that is not there
    others = [d for d in range(input.dim()) if d != dim % input.dim()]
    (x,) = cast(wide(input.dtype), input)
    length = _norm(x, p, others, keepdim=True)
    factor = _C.functions.where(length > maxnorm, maxnorm / (length + 1e-7), 1.0)
    return rounded(x * factor, input.dtype)


# ---- norms of matrices ----


def _deprecated(name: str, cure: str) -> None:
    warnings.warn(f"{name} is deprecated and will be removed. Please use {cure} instead", stacklevel=3)


def frobenius_norm(input: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor:
    _deprecated("frobenius_norm", "linalg.vector_norm(A, 2., dim, keepdim)")
    return _norm(input, 2, dim, keepdim)


def nuclear_norm(input: Tensor, keepdim: bool) -> Tensor:
    _deprecated("nuclear_norm", "linalg.matrix_norm(A, 'nuc', dim, keepdim)")
    return matrix_norm(input, "nuc", None, keepdim, None)


def nuclear_norm_dim(input: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor:
    _deprecated("nuclear_norm", "linalg.matrix_norm(A, 'nuc', dim, keepdim)")
    return matrix_norm(input, "nuc", dim, keepdim, None)


def _matrix_dims(input: Tensor, dim: Sequence[int] | None) -> tuple[int, int]:
    n = input.dim()
    if n < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    dims = (-2, -1) if dim is None else tuple(dim)
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dims))}")
    for d in dims:
        if not -n <= d < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
    rows, columns = (d % n for d in dims)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got {dims}")
    return rows, columns


def matrix_norm(input: Tensor, ord: Any, dim: Sequence[int] | None, keepdim: bool, dtype: Any) -> Tensor:
    rows, columns = _matrix_dims(input, dim)
    if not input.is_floating_point() and not input.is_complex():
        raise NotImplementedError(
            f"linalg.matrix_norm: Expected a floating point or complex tensor as input. Got {input.dtype}: convert it with .float()"
        )
    x = input if dtype is None else input.to(dtype)
    if ord == "fro":
        return _norm(x, 2, (rows, columns), keepdim)
    size = None if isinstance(ord, str) else abs(ord)
    if size in (1, math.inf):
        inside, outside = (rows, columns) if size == 1 else (columns, rows)
        sums = _norm(x, 1, inside, keepdim=True)
        if ord > 0 and not sums.size(outside):  # of nothing the largest norm is 0
            result = sums.sum(outside, keepdim=True)
        else:
            result = (sums.amax if ord > 0 else sums.amin)(outside, keepdim=True)
    elif ord == "nuc" or size == 2:
        if x.dtype in _16_BITS:
            raise NotImplementedError(
                f"linalg.matrix_norm: Low precision dtypes not supported. Got {_SHOWN[x.dtype]}: convert with .float()"
            )
        values = _C.nn.linalg_svdvals(x.movedim((rows, columns), (-2, -1)))
        result = values.sum(-1) if ord == "nuc" or not values.size(-1) else (values.amax if ord > 0 else values.amin)(-1)
        for d in sorted((rows, columns)):
            result = result.unsqueeze(d)
    else:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported: 'fro', 'nuc', 1, 2 and inf are, and their negatives.")
    if keepdim:
        return result
    return result.squeeze((rows, columns))


matrix_norm_str = matrix_norm
