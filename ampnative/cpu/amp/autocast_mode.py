"""Deprecated: ``ampnative.amp.autocast("cpu", ...)``."""

from __future__ import annotations

from typing import Any

from ... import _C
from ..._deprecated import deprecated
from ...amp import autocast_mode as _mode

__all__ = ["autocast"]


class autocast(_mode.autocast):
    """``ampnative.amp.autocast`` for "cpu"; its dtype default is bfloat16 whatever the current autocast dtype is. Warns
    FutureWarning."""

    @deprecated("ampnative.cpu.amp.autocast", "ampnative.amp.autocast('cpu', ...)")
    def __init__(self, enabled: bool = True, dtype: Any = _C.bfloat16, cache_enabled: bool = True) -> None:
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)
