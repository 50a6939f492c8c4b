"""The device that is not the CPU, whichever it is: here "cuda", if there is one or it is emulated."""

from __future__ import annotations

from typing import Any

from . import _C, cuda

__all__ = [
    "current_accelerator",
    "current_device_index",
    "device_count",
    "is_available",
    "set_device_index",
    "synchronize",
]


def is_available() -> bool:
    """Whether there is a GPU, or an emulated one."""
    return cuda.is_available()


def device_count() -> int:
    """How many there are."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Any:
    """``device("cuda")``; None if there is none."""
    return _C.device("cuda") if is_available() else None


def current_device_index() -> int:
    """Number of the current device."""
    return cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device: Any) -> None:
    """Make a device the current one."""
    cuda.set_device(device)


set_device_idx = set_device_index


def synchronize(device: Any = None) -> None:
    """Wait for what has been started on the device."""
    cuda.synchronize(device)
