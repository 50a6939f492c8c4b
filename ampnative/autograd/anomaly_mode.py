"""Anomaly detection is accepted, and says where to look instead."""

from __future__ import annotations

import warnings
from typing import Any

__all__ = ["detect_anomaly", "is_anomaly_enabled", "set_detect_anomaly"]

_CURE = (
    "anomaly detection is not available and checks nothing: GradScaler names the parameters whose gradients are not finite, and a hook "
    "on a tensor (register_hook) or module (register_full_backward_hook) sees the gradients"
)


class set_detect_anomaly:
    """Warns that nothing is checked; also a context manager."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        if mode:
            warnings.warn(f"set_detect_anomaly: {_CURE}", UserWarning, stacklevel=2)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: Any) -> None:
        pass


class detect_anomaly(set_detect_anomaly):
    """Warns that nothing is checked; a context manager."""

    def __init__(self, check_nan: bool = True) -> None:
        warnings.warn(f"detect_anomaly: {_CURE}", UserWarning, stacklevel=2)


def is_anomaly_enabled() -> bool:
    """False."""
    return False
