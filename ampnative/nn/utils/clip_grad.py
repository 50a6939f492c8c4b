"""Gradient clipping by norm and by value.

Norms of 16-bit gradients are formed in fp32 and do not overflow while the result fits; the clip coefficient and the
finiteness check use that number, and the returned tensor has the gradients' dtype. Anything with a ``grad`` that is a
Tensor or an ndarray counts as a parameter.
"""

from __future__ import annotations

import functools
import math
import types
import warnings
from typing import Any

import numpy as np

from ... import _C
from ..._C import Tensor
from ...amp import still_scaled as _still_scaled
from ...amp.optimizer_gradients import shared_array
from ...autograd.grad_mode import no_grad

_float32, _float64 = _C.float32, _C.float64


def _as_tensor(value: Any, copies: list[tuple[np.ndarray, Tensor]]) -> Tensor:
    """A tensor that shares memory with ``value``, so that writing through it changes the original. An array whose layout a
    tensor cannot share gets a copy, and an entry in ``copies``, for :func:`_write_back`."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        if not value.flags.writeable:
            raise ValueError("cannot clip a read-only array: pass a writable copy")
        return shared_array(value, copies)
    raise TypeError(f"gradients must be Tensors or ndarrays, not {type(value).__name__}")


def _write_back(copies: list[tuple[np.ndarray, Tensor]]) -> None:
    for array, copy in copies:
        array[...] = copy.numpy()


def _list_of(values: Any, warn: bool = False) -> list[Any]:
    if isinstance(values, Tensor) or hasattr(values, "grad"):
        return [values]
    if isinstance(values, types.GeneratorType):
        values = list(values)
        if warn and not values:
            warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
        return values
    return list(values)


def _gradients(parameters: list[Any]) -> tuple[list[Tensor], list[tuple[np.ndarray, Tensor]]]:
    copies: list[tuple[np.ndarray, Tensor]] = []
    return [_as_tensor(p.grad, copies) for p in parameters if p.grad is not None], copies


def _norm_of_norms(norms: list[float], p: float) -> float:
    """p-norm of non-negative numbers, scaled so that powers neither overflow nor vanish. NaN wins over infinity."""
    if p == 0:
        return float(sum(n != 0 for n in norms))
    if any(map(math.isnan, norms)):
        return math.nan
    if p == 2:
        return _C._join_norms(norms)
    if p == math.inf:
        return max(norms)
    if p == -math.inf:
        return min(norms)
    scale = max(norms) if p > 0 else min(norms)
    if scale == 0 or math.isinf(scale):
        return scale
    try:
        return math.fsum((n / scale) ** p for n in norms) ** (1.0 / p) * scale
    except OverflowError:
        return math.inf


_FP32_END = float.fromhex("0x1.ffffffp127")  # from here on a number rounds to inf in fp32


def _shapes_only(tensors: list[Tensor], error_if_nonfinite: bool) -> bool:
    """Whether the tensors are on "meta". RuntimeError if only some are, or if their norm is to be looked at."""
    count = sum(t.is_meta for t in tensors)
    if count == 0:
        return False
    if count < len(tensors):
        raise RuntimeError(
            f"cannot form one norm: {count} of {len(tensors)} tensors are on the meta device, which has no values. Move them with "
            ".to_empty(), or clip those of each device apart"
        )
    if error_if_nonfinite:
        raise RuntimeError("error_if_nonfinite: a norm on the meta device has no value. Pass error_if_nonfinite=False")
    return True


def _total_norm(tensors: list[Tensor], p: float, error_if_nonfinite: bool) -> tuple[float, Any]:
    """(norm of all elements, dtype of the tensor that tells it); fp32 range unless a gradient is fp64. Of meta tensors the number
    means nothing. RuntimeError if it is inf or NaN and ``error_if_nonfinite``."""
    dtypes = [t.dtype for t in tensors]
    if _shapes_only(tensors, error_if_nonfinite):
        return 0.0, functools.reduce(_C.promote_types, dtypes)
    total, dtype = _number_norm(tensors, dtypes, p)
    _check_finite(total, p, error_if_nonfinite)
    return total, dtype


def _number_norm(tensors: list[Tensor], dtypes: list[Any], p: float) -> tuple[float, Any]:
    norms = _C._list_norms(tensors, p)
    if any(dtype is _float64 for dtype in dtypes):
        norms = [n if d is _float64 or n < _FP32_END else _narrow(n) for d, n in zip(dtypes, norms, strict=False)]
        return _norm_of_norms(norms, p), _float64
    total = _norm_of_norms([n if n < _FP32_END else _narrow(n) for n in norms], p)
    alike = all(dtype is dtypes[0] for dtype in dtypes)
    return total if total < _FP32_END else _narrow(total), dtypes[0] if alike else _float32


def _narrow(norm: float) -> float:
    """What fp32 makes of a number that is not below _FP32_END."""
    return norm if math.isnan(norm) else math.inf


def _tensor_of(value: float, dtype: Any, device: Any) -> Tensor:
    if dtype is _float32 or dtype is _float64:
        return _C.tensor(value, dtype=dtype, device=device)
    return _C.tensor(value, dtype=_float32, device=device).to(dtype)


def _check_finite(total: float, p: float, error_if_nonfinite: bool) -> None:
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {p} for the gradients is non-finite, so it cannot be clipped. "
            "To clip with it anyway, pass error_if_nonfinite=False"
        )


def _scale_by_norm(gradients: list[Tensor], max_norm: float, total: float) -> None:
    divisor = total + 1e-6
    coefficient = max_norm / divisor if divisor != 0 else math.copysign(math.inf, max_norm)
    if coefficient > 1.0:  # NaN stays
        coefficient = 1.0
    _C._list_scale_(gradients, coefficient)


def get_total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The p-norm of all elements of ``tensors`` together, as a 0-dim tensor on the first one's device.

    Its dtype is that of the tensors (promoted if they differ); fp32 zero for an empty list. RuntimeError if it is inf
    or NaN and ``error_if_nonfinite``.
    """
    given, p = _list_of(tensors), float(norm_type)
    if not given:
        return _C.tensor(0.0)
    values = [_as_tensor(t, []) for t in given]
    total, dtype = _total_norm(values, p, error_if_nonfinite)
    return _tensor_of(total, dtype, values[0].device)


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None) -> None:
    """Multiply all gradients by ``max_norm / (total_norm + 1e-6)``, at most by 1."""
    gradients, copies = _gradients(_list_of(parameters))
    if gradients:
        _still_scaled.check(gradients, "clip_grads_with_norm_()")
        meta = isinstance(total_norm, Tensor) and total_norm.is_meta and _shapes_only(gradients, False)
        _scale_by_norm(gradients, float(max_norm), 0.0 if meta else float(total_norm))
        _write_back(copies)


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients in place so that their joint norm is at most ``max_norm``; returns the norm before.

    RuntimeError, with all gradients untouched, if the norm is inf or NaN and ``error_if_nonfinite``.
    """
    given, p = _list_of(parameters, warn=True), float(norm_type)
    if p == 2.0:
        norm = _C._clip_by_norm_(given, float(max_norm), error_if_nonfinite)
        if norm is not None:
            if error_if_nonfinite:
                _check_finite(norm.item(), p, True)
            return norm
    gradients, copies = _gradients(given)
    if not gradients:
        return _C.tensor(0.0)
    _still_scaled.check(gradients, "clip_grad_norm_()")
    total, dtype = _total_norm(gradients, p, error_if_nonfinite)
    _scale_by_norm(gradients, float(max_norm), total)
    _write_back(copies)
    return _tensor_of(total, dtype, gradients[0].device)


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Old name of ``clip_grad_norm_``."""
    warnings.warn("nn.utils.clip_grad_norm is now deprecated in favor of nn.utils.clip_grad_norm_.", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Clamp all gradients in place to [-clip_value, clip_value]. RuntimeError if no parameter has a gradient."""
    limit = float(clip_value)
    gradients, copies = _gradients(_list_of(parameters))
    if not gradients:
        raise RuntimeError("clip_grad_value_: no parameter has a gradient. Call backward() first")
    _still_scaled.check(gradients, "clip_grad_value_()")
    with no_grad():
        for gradient in gradients:
            gradient.clamp_(min=-limit, max=limit)
    _write_back(copies)
