"""The per-device names that PyTorch keeps for old scripts, each with its FutureWarning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


def deprecated(name: str, instead: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator for a function or an ``__init__``: warns at the caller's line, then runs it."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def _deprecated_init(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(f"{name} is deprecated: use {instead}", FutureWarning, stacklevel=2)
            return function(*args, **kwargs)

        return _deprecated_init

    return decorate
