"""Loss scaling on plain ndarrays, for NumPy frameworks with optimizers of their own: scale the loss, unscale the
gradients, see whether any of them is inf or NaN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .. import _C
from .grad_scaler import GradScaler

__all__ = ["has_inf_or_nan", "scale_loss", "unscale_gradients"]

_FLOATS = (_C.float32, _C.float16, _C.bfloat16, _C.float64)


def _is_float(value: Any) -> bool:
    if isinstance(value, _C.Tensor):
        return value.is_floating_point()
    return any(value.dtype.newbyteorder("=") == dtype.dtype for dtype in _FLOATS)


def _number(scale: Any) -> float:
    """The scale as a float32 value."""
    value = scale.get_scale() if isinstance(scale, GradScaler) else float(scale)
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def scale_loss(loss: Any, scale: Any) -> Any:
    """`loss` times the loss scale.

    Arrays and tensors with a dimension keep their dtype (a float16 loss may overflow to inf); a 0-dim 16-bit loss becomes
    float32, as in ``GradScaler.scale``; a Python number stays one. Integers become float32.

    Args:
        loss: a number, NumPy scalar, ndarray or Tensor, or a list or tuple of them.
        scale: a number, or a GradScaler, whose current scale is taken (1.0 if it is disabled). This is a scaler's first
            ``scale()`` if there was none, so that its ``step`` and ``update`` may follow.

    Raises:
        TypeError: something else.
    """
    if isinstance(loss, (list, tuple)):
        scaled = [scale_loss(item, scale) for item in loss]
        return loss._make(scaled) if hasattr(loss, "_make") else type(loss)(scaled)
    if isinstance(scale, GradScaler) and scale.is_enabled() and scale._scale is None:
        scale._lazy_init_scale_growth_tracker(loss.device if isinstance(loss, _C.Tensor) else _C.device("cpu"))
    factor = _number(scale)
    if isinstance(loss, _C.Tensor):
        return scale.scale(loss) if isinstance(scale, GradScaler) else loss * _C.tensor(factor, device=loss.device)
    if isinstance(loss, (bool, int, float)):
        return loss * factor
    if not isinstance(loss, (np.ndarray, np.generic)):
        raise TypeError(f"scale_loss() takes numbers, ndarrays and tensors, not {type(loss).__name__}")
    if not _is_float(loss):
        if not np.issubdtype(loss.dtype, np.integer) and loss.dtype != np.bool_:
            raise TypeError(f"a loss of dtype {loss.dtype} cannot be scaled")
        loss = loss.astype(np.float32)
    dtype = loss.dtype if loss.ndim or loss.dtype == np.float64 else np.dtype(np.float32)
    wide = np.float64 if dtype == np.float64 else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        return (loss.astype(wide) * wide(factor)).astype(dtype)


def _listed(gradients: Any) -> list[Any]:
    if isinstance(gradients, (np.ndarray, _C.Tensor)):
        return [gradients]
    if isinstance(gradients, Mapping):
        gradients = gradients.values()
    if not isinstance(gradients, Iterable) or isinstance(gradients, (str, bytes)):
        raise TypeError(f"gradients must be arrays or tensors, not {type(gradients).__name__}")
    found: list[Any] = []
    for item in gradients:
        if item is None:
            continue
        if isinstance(item, (list, tuple, Mapping)):
            found += _listed(item)
        elif isinstance(item, (np.ndarray, np.generic, _C.Tensor)):
            found.append(item)
        else:
            raise TypeError(f"a gradient must be an array or a tensor, not {type(item).__name__}")
    return found


def _check_gradient(g: Any, allow_fp16: bool) -> None:
    if isinstance(g, np.generic):
        raise TypeError("a NumPy scalar cannot be unscaled in place: make it a 0-dim array with np.asarray")
    if not _is_float(g):
        raise TypeError(f"gradients must have a floating dtype of this library, got {g.dtype}")
    if isinstance(g, np.ndarray) and not g.flags.writeable:
        raise ValueError("a gradient is read-only: it is unscaled in place, so give a writable array")
    is_half = g.dtype is _C.float16 if isinstance(g, _C.Tensor) else g.dtype.newbyteorder("=") == np.float16
    if is_half and not allow_fp16:
        raise ValueError("Attempting to unscale FP16 gradients: small ones would vanish. Keep master gradients in float32")


def _shared(g: Any) -> tuple[_C.Tensor, np.ndarray | None]:
    """A tensor to unscale, and the array to copy it back to where a tensor cannot look at that array's memory."""
    if isinstance(g, _C.Tensor):
        return g.detach(), None
    plain = g.flags.aligned and g.dtype.isnative and all(s >= 0 and s % g.itemsize == 0 for s in g.strides)
    if plain and not (g.size > 1 and 0 in g.strides):
        return _C.from_numpy(g.view(np.ndarray)), None
    return _C.from_numpy(np.array(g, dtype=g.dtype.newbyteorder("="), order="C", subok=False)), g


def unscale_gradients(gradients: Any, scale: Any, allow_fp16: bool = False) -> bool:
    """Divides gradients in place by the loss scale, and says whether any was inf or NaN: then the step should be skipped.

    The reciprocal is formed in float64 and rounded to float32 once, as ``GradScaler.unscale_`` does. A scale without a
    finite reciprocal counts as an inf. Gradients that are not finite are multiplied too.

    Args:
        gradients: an ndarray or Tensor of any shape and floating dtype, or an iterable or mapping of them, nested too; None
            is skipped. An array that is listed twice is unscaled twice.
        scale: a number, or a GradScaler, whose current scale is taken.
        allow_fp16: unscale float16 gradients too, which loses small ones.

    Returns:
        True if a value was not finite.

    Raises:
        TypeError, ValueError: a gradient that cannot be unscaled (integers, read-only memory, float16 without
            `allow_fp16`). Nothing has been changed then.
    """
    found = _listed(gradients)
    for g in found:
        _check_gradient(g, allow_fp16)
    factor = _number(scale)
    with np.errstate(over="ignore", divide="ignore"):
        inverse = float(np.float32(np.float64(1.0) / np.float64(factor)))
    flag = not np.isfinite(inverse)
    by_id = {id(g): _shared(g) for g in found}  # one copy of an array that is listed twice
    targets = [by_id[id(g)] for g in found]
    groups = {device: [t for t, _ in targets if t.device.type == device] for device in {t.device.type for t, _ in targets}}
    for group in groups.values():
        _C._check_unscale(group)
    for device, group in groups.items():
        found_inf = _C.tensor(0.0, device=device)
        _C._amp_foreach_non_finite_check_and_unscale_(group, found_inf, _C.tensor(inverse, device=device))
        flag = flag or found_inf.item() != 0.0
    for tensor, array in by_id.values():
        if array is not None:
            array[...] = tensor.numpy()
    return flag


def has_inf_or_nan(values: Any) -> bool:
    """Whether any element is inf or NaN. Integers never are.

    Args:
        values: an ndarray, NumPy scalar, Tensor or Python number, or an iterable or mapping of them, nested too; None is
            skipped.

    Raises:
        TypeError: something else.
    """
    if isinstance(values, int):
        return False
    if isinstance(values, (float, complex, np.generic)):
        return not bool(np.isfinite(values))
    if not isinstance(values, (np.ndarray, _C.Tensor)):
        if isinstance(values, Mapping):
            values = values.values()
        if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
            raise TypeError(f"has_inf_or_nan() takes arrays, tensors and numbers, not {type(values).__name__}")
        return any(has_inf_or_nan(item) for item in values if item is not None)
    if isinstance(values, _C.Tensor):
        return not bool(values.detach().isfinite().all())
    if values.dtype == object:
        raise TypeError("has_inf_or_nan() takes arrays of numbers, not of objects")
    return not bool(np.isfinite(values).all())
