"""Autocast regions, and decorators that give a custom autograd function the right one."""

from __future__ import annotations

import functools
from collections import abc
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _C
from .._C import autocast, is_autocast_available

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def autocast_decorator(autocast_instance: autocast, func: Callable[..., Any]) -> Callable[..., Any]:
    """What ``autocast_instance(func)`` returns: `func`, each call inside the region. Of a generator or coroutine function
    only the creation is inside."""

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    return decorate_autocast


def rebuild_autocast(
    kind: type[autocast], device_type: str, dtype: Any, enabled: bool, cache_enabled: bool, attributes: dict[str, Any] | None
) -> autocast:
    """A copy of an instance, also of a subclass with another constructor."""
    region = kind.__new__(kind)
    autocast.__init__(region, device_type, dtype, enabled, cache_enabled)
    region.__dict__.update(attributes or {})
    return region


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """`value` with its floating, non-fp64 tensors on `device_type` cast. Mappings become dicts, lists and tuples keep
    their type, other iterables become generators; str, bytes and ndarrays pass."""
    if isinstance(value, _C.Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type and value.dtype is not _C.float64
        return value.to(dtype) if eligible else value
    if isinstance(value, (str, bytes, np.ndarray)):
        return value
    if isinstance(value, abc.Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, abc.Iterable):
        items = (_cast(item, device_type, dtype) for item in value)
        return type(value)(items) if isinstance(value, (list, tuple)) else items
    return value


def _require_str(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable[..., Any]:
    """Decorator for ``forward`` of an autograd function. The context receives the autocast dtype (``_dtype``) and
    whether the body ran under autocast (``_fwd_used_autocast``), for :func:`custom_bwd`.

    Args:
        device_type: "cpu", "cuda", ...
        cast_inputs: dtype to which floating, non-fp64 tensors of that device are cast inside an autocast region; the
            body then runs with autocast off. Outside a region it has no effect. None: the body runs in the current
            state.

    Raises:
        ValueError: device_type is no str.
    """
    _require_str(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        context._dtype = _C.get_autocast_dtype(device_type)
        enabled = _C.is_autocast_enabled(device_type)
        context._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorator for ``backward``: runs it in the autocast state that :func:`custom_fwd` noted, whatever surrounds
    ``loss.backward()``.

    Raises:
        ValueError: device_type is no str.
        AttributeError: (when called) ``forward`` was not decorated with :func:`custom_fwd`.
    """
    _require_str(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        with autocast(device_type=device_type, enabled=context._fwd_used_autocast, dtype=context._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd
