"""Deprecated: ``ampnative.amp.autocast("cuda", ...)`` and the decorators with ``device_type="cuda"``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ... import _C
from ..._deprecated import deprecated
from ...amp import autocast_mode as _mode

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(_mode.autocast):
    """``ampnative.amp.autocast`` for "cuda"; its dtype default is float16 whatever the current autocast dtype is. Warns
    FutureWarning."""

    @deprecated("ampnative.cuda.amp.autocast", "ampnative.amp.autocast('cuda', ...)")
    def __init__(self, enabled: bool = True, dtype: Any = _C.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


@deprecated("ampnative.cuda.amp.custom_fwd", "ampnative.amp.custom_fwd(..., device_type='cuda')")
def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: Any = None) -> Callable[..., Any]:
    """``ampnative.amp.custom_fwd`` for "cuda". Warns FutureWarning."""
    if fwd is None:
        return functools.partial(_mode.custom_fwd, device_type="cuda", cast_inputs=cast_inputs)
    return _mode.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


@deprecated("ampnative.cuda.amp.custom_bwd", "ampnative.amp.custom_bwd(..., device_type='cuda')")
def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """``ampnative.amp.custom_bwd`` for "cuda". Warns FutureWarning."""
    return _mode.custom_bwd(bwd, device_type="cuda")
