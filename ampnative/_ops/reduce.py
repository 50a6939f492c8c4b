"""Reductions made of other ops, and what NumPy computes."""

from __future__ import annotations

import numpy as np

from .. import _C
from .._C import Tensor
from ._common import joined_shape
from ._matrix import recording
from ._undifferentiable import Scaled, flat_in


def trace(input: Tensor) -> Tensor:
    if input.dim() != 2:
        raise RuntimeError(f"trace: expected a matrix, but got a tensor of {input.dim()} dimensions")
    if input.dtype == _C.bool:
        raise NotImplementedError('"trace" not implemented for \'Bool\': convert the input with .long()')
    return input.diagonal().sum()


def nansum(input: Tensor, dim: tuple[int, ...] | None, keepdim: bool, dtype: _C.dtype | None) -> Tensor:
    if input.is_complex():
        raise NotImplementedError("nansum does not support complex inputs")
    if dtype is not None and dtype.is_complex and input.is_floating_point():
        raise NotImplementedError(f"nansum is not implemented for {dtype}: sum in a real dtype")
    if input.is_floating_point():
        input = input.masked_fill(input.isnan(), 0)
    return input.sum(dim, keepdim, dtype=dtype)


# ---- quantiles ----

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _levels(input: Tensor, q: Tensor | float) -> Tensor:
    """q as a tensor like the input, checked."""
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"quantile() q must be in the range [0, 1] but got {q}")
        return _C.tensor(q, dtype=input.dtype, device=input.device)
    if q.dim() > 1:
        raise RuntimeError("quantile() q must be a scalar or 1D tensor")
    if q.dtype != input.dtype:
        raise RuntimeError(f"quantile() q tensor must be same dtype as the input tensor, got {q.dtype} for {input.dtype}")
    if q.device != input.device:
        raise RuntimeError("quantile() q tensor must be on the same device as the input tensor")
    if not bool(((q >= 0) & (q <= 1)).all()):
        raise RuntimeError("quantile() q values must be in the range [0, 1]")
    return q


def _quantile(
    input: Tensor, q: Tensor | float, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool
) -> Tensor:
    if input.dtype not in (_C.float32, _C.float64):
        raise RuntimeError(f"quantile() input tensor must be either float or double dtype, not {input.dtype}")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    if input.numel() == 0:
        raise RuntimeError("quantile() input tensor must be non-empty")
    levels = _levels(input, q)
    kept = list(input.shape)
    if dim is None:
        line, kept = input.reshape(-1), [1] * len(kept)
    else:
        if not -max(input.dim(), 1) <= dim < max(input.dim(), 1):
            raise IndexError(f"Dimension out of range (expected to be in range of [{-max(input.dim(), 1)}, {max(input.dim(), 1) - 1}],"
                             f" but got {dim})")  # fmt: skip
        line = input.reshape(1) if input.dim() == 0 else input.movedim(dim, -1)
        if kept:
            kept[dim] = 1
    values = line.sort(-1)[0]
    # Ranks of the levels among a line's elements; a NaN, which stands last, is every quantile of its line, or none.
    nans = values.isnan()
    count = (~nans).sum(-1, keepdim=True).to(input.dtype) if skip_nan else values.new_full((1,) * values.dim(), values.shape[-1])
    ranks = (levels.reshape(-1) * (count - 1)).clamp(min=0)
    if not skip_nan:
        ranks = ranks.expand(*values.shape[:-1], -1).masked_fill(nans.any(-1, keepdim=True), values.shape[-1] - 1)
    if interpolation == "nearest":
        ranks = ranks.round()
    elif interpolation == "lower":
        ranks = ranks.floor()
    elif interpolation == "higher":
        ranks = ranks.ceil()
    ranks = ranks.expand(*values.shape[:-1], levels.numel())
    low = ranks.long()
    result = values.gather(-1, low)
    if interpolation in ("linear", "midpoint"):
        high = values.gather(-1, ranks.ceil().long())
        weight = ranks - low if interpolation == "linear" else (ranks.ceil() - low) * 0.5
        result = result.lerp(high, weight)
    result = result.movedim(-1, 0)
    shape = kept if keepdim else [s for d, s in enumerate(kept) if dim is not None and kept and d != dim % len(kept)]
    return result.reshape((*levels.shape, *shape))


def quantile(input: Tensor, q: Tensor | float, dim: int | None, keepdim: bool, interpolation: str) -> Tensor:
    return _quantile(input, q, dim, keepdim, interpolation, False)


def nanquantile(input: Tensor, q: Tensor | float, dim: int | None, keepdim: bool, interpolation: str) -> Tensor:
    return _quantile(input, q, dim, keepdim, interpolation, True)


# ---- nextafter ----


def _next_16(x: np.ndarray, y: np.ndarray, bits: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Bits of the neighbour of x on y's side: the pattern one up or down, as sign and magnitude."""
    away = (y > x) == (x > 0)
    step = np.where(x == 0, (other & np.int16(-0x8000)) | np.int16(1), (bits + np.where(away, 1, -1)).astype(np.int16))
    return np.where(x == y, other, np.where(np.isnan(x), bits, np.where(np.isnan(y), other, step)))


def nextafter(input: Tensor, other: Tensor) -> Tensor:
    dtype = _C.result_type(input, other)
    if not dtype.is_floating_point:
        raise NotImplementedError(f"nextafter is not implemented for {dtype}: it works on floating tensors")
    a, b = (t.detach().to("cpu", dtype) for t in (input, other))
    a, b = (t.contiguous().expand(joined_shape(a.shape, b.shape)).contiguous() for t in (a, b))
    if dtype in (_C.float32, _C.float64):
        result = _C.from_numpy(np.asarray(np.nextafter(a.numpy(), b.numpy())))
    else:
        x, y = a.float().numpy(), b.float().numpy()
        bits, other_bits = (t.view(_C.int16).numpy() for t in (a, b))
        result = _C.from_numpy(np.asarray(_next_16(x, y, bits, other_bits))).view(dtype)
    result = result.to(input.device if input.dim() or other.dim() == 0 else other.device)
    if recording(input):
        result = Scaled.apply(input.to(dtype), result, (a != b).to(result.device, dtype))
    return flat_in(result, other)
