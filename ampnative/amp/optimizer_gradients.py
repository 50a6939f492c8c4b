"""What the scaler asks of an optimizer's gradients, and the errors for those that it cannot unscale."""

from __future__ import annotations

import inspect
from typing import Any

from .. import _C
from .explain import parameter_name

_Tensor = _C.Tensor
_float16 = _C.float16
_float32 = _C.float32


def device_of_gradients(optimizer: Any) -> Any:
    """Device of the first gradient (ndarrays are on the CPU), None without gradients."""
    for group in optimizer.param_groups:
        for param in group["params"]:
            gradient = getattr(param, "grad", None)
            if gradient is not None:
                return gradient.device if isinstance(gradient, _Tensor) else _C.device("cpu")
    return None


def no_tensor(group: Any, group_index: int, index: int, param: Any) -> AssertionError:
    """The error for a parameter that is no Tensor and has no gradient that is a Tensor or ndarray."""
    name = parameter_name(group, group_index, index)
    return AssertionError(
        f"{name} must be a Tensor or have a .grad that is a Tensor or ndarray, got {type(param).__name__}"
    )


def check_dtype(group: Any, group_index: int, index: int, dtype: Any, allow_fp16: bool) -> None:
    """ValueError for a float16 gradient where it may not be unscaled, NotImplementedError for one that is not
    floating.
    """
    if dtype is _float16 and not allow_fp16:
        name = parameter_name(group, group_index, index)
        raise ValueError(
            f"Attempting to unscale FP16 gradients: {name} is float16. Keep the parameters in float32 and let "
            "autocast make the float16 copies"
        )
    if not dtype.is_floating_point:
        name = parameter_name(group, group_index, index)
        raise NotImplementedError(f"the gradient of {name} is {dtype}; only floating-point gradients can be unscaled")


def shared_tensor(
    group: Any, group_index: int, index: int, param: Any, gradient: Any, write_back: list[tuple[Any, Any]]
) -> Any:
    """A Tensor on the memory of an ndarray gradient. Layouts that a Tensor cannot share (negative or odd strides, foreign
    byte order, misaligned elements) get a copy, and an entry in `write_back`."""
    import numpy as np

    if not isinstance(gradient, np.ndarray):
        name = parameter_name(group, group_index, index)
        raise AssertionError(f"the gradient of {name} must be a Tensor or ndarray, got {type(gradient).__name__}")
    if not gradient.flags.writeable:
        name = parameter_name(group, group_index, index)
        raise ValueError(
            f"the gradient of {name} is a read-only ndarray and cannot be unscaled in place: assign a copy to .grad"
        )
    return shared_array(gradient, write_back)


def shared_array(array: Any, write_back: list[tuple[Any, Any]]) -> Any:
    """A Tensor on the memory of a writable ndarray, or a copy and an entry in `write_back`; an array that is listed twice has
    one copy."""
    import numpy as np

    whole = all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
    if whole and array.flags.aligned and array.dtype.isnative:
        return _C.from_numpy(array)
    for known, copy in write_back:
        if known is array:
            return copy
    copy = _C.from_numpy(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape))
    write_back.append((array, copy))
    return copy


def collect_gradients(optimizer: Any, allow_fp16: bool) -> tuple[dict[Any, list[Any]], list[tuple[Any, Any]]]:
    """The gradients by device, each checked, and the ndarrays that take back what happens to their copies."""
    per_device: dict[Any, list[Any]] = {}
    device = None
    gradients: list[Any] = []
    write_back: list[tuple[Any, Any]] = []
    for group_index, group in enumerate(optimizer.param_groups):
        for index, param in enumerate(group["params"]):
            try:
                gradient = param.grad
            except AttributeError:
                raise no_tensor(group, group_index, index, param) from None
            if gradient is None:
                continue
            if not isinstance(gradient, _Tensor):
                gradient = shared_tensor(group, group_index, index, param, gradient, write_back)
            dtype = gradient.dtype
            if dtype is not _float32:
                check_dtype(group, group_index, index, dtype, allow_fp16)
            where = gradient.device
            if where is not device:
                device = where
                gradients = per_device.setdefault(where, [])
            gradients.append(gradient)
    return per_device, write_back


def no_checks_text(optimizer: Any) -> str:
    """Why no gradient was found, with what to look at."""
    if device_of_gradients(optimizer) is not None:
        return (
            f"No inf checks were recorded for this optimizer: {type(optimizer).__name__} had no gradients when unscale_() was called, and "
            "those that it has now are still multiplied by the scale. Call backward() before unscale_()"
        )
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    return (
        f"No inf checks were recorded for this optimizer: {type(optimizer).__name__} has {count} parameter{'s' * (count != 1)} and the "
        "gradient of each is None. Was backward() called on a loss that depends on them?"
    )


def takes_grad_scaler(step: Any) -> bool:
    """Whether ``optimizer.step`` has a parameter named grad_scaler."""
    code = getattr(step, "__code__", None)
    if code is not None and not hasattr(step, "__wrapped__") and not hasattr(step, "__signature__"):
        return "grad_scaler" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        return "grad_scaler" in inspect.signature(step).parameters
    except (TypeError, ValueError):
        return False
