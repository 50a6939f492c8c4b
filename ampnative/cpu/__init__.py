"""The device "cpu": memory statistics of its tensors, and the names that device-independent scripts ask for."""

from __future__ import annotations

from typing import Any

from .. import _C
from . import amp

__all__ = [
    "amp",
    "current_device",
    "device_count",
    "empty_cache",
    "is_available",
    "is_initialized",
    "max_memory_allocated",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "set_device",
    "synchronize",
]


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1: the CPU is one device, however many cores it has."""
    return 1


def current_device() -> str:
    """The string "cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing to select."""


def synchronize(device: Any = None) -> None:
    """Work on the CPU is done when its call returns."""


def memory_allocated() -> int:
    """Bytes in tensors that ampnative allocated (not in shared NumPy arrays)."""
    return _C._memory_stats("cpu")[0]


def max_memory_allocated() -> int:
    """Largest value of ``memory_allocated()`` since the start or ``reset_peak_memory_stats()``."""
    return _C._memory_stats("cpu")[1]


def memory_reserved() -> int:
    """Bytes that the allocator holds, cached blocks included."""
    return _C._memory_stats("cpu")[2]


def reset_peak_memory_stats() -> None:
    """Let ``max_memory_allocated()`` start again from what is allocated now."""
    _C._memory_reset_peak("cpu")


def empty_cache() -> None:
    """Give cached blocks back to the system."""
    _C._memory_empty_cache("cpu")
