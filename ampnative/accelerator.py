"""The device that is not the CPU, whichever it is: here "cuda", if there is one or it is emulated."""

from __future__ import annotations

from typing import Any

from . import _C, cuda

__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index", "empty_cache",
    "empty_host_cache", "get_memory_info", "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
    "memory_reserved", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_device_idx",
    "set_device_index", "set_stream", "synchronize",
]  # fmt: skip


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


def current_stream(device: Any = None, /) -> Any:
    """The stream in use."""
    return cuda.current_stream(device)


def set_stream(stream: Any) -> None:
    """Accepted: there is one stream."""
    cuda.set_stream(stream)


class device_index:
    """``with device_index(i):`` makes device i the current one inside; None changes nothing."""

    def __init__(self, device: int | None, /) -> None:
        self.idx = device

    def __enter__(self) -> None:
        if self.idx is not None:
            self._before = cuda.current_device()
            cuda.set_device(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        if self.idx is not None:
            cuda.set_device(self._before)


def empty_cache() -> None:
    """Give cached blocks back to the system."""
    if is_available():
        cuda.empty_cache()


def empty_host_cache() -> None:
    """Nothing: there is no pinned memory."""


def get_memory_info(device_index: Any = None, /) -> tuple[int, int]:
    """(free, whole) memory in bytes. RuntimeError without a device."""
    return cuda.mem_get_info(device_index)


def memory_allocated(device_index: Any = None, /) -> int:
    """Bytes in tensors on the device now; 0 without one."""
    return cuda.memory_allocated(device_index) if is_available() else 0


def max_memory_allocated(device_index: Any = None, /) -> int:
    """Largest number of bytes in tensors since the start or ``reset_peak_memory_stats()``; 0 without a device."""
    return cuda.max_memory_allocated(device_index) if is_available() else 0


def memory_reserved(device_index: Any = None, /) -> int:
    """Bytes that the allocator holds, cached blocks included; 0 without a device."""
    return cuda.memory_reserved(device_index) if is_available() else 0


def max_memory_reserved(device_index: Any = None, /) -> int:
    """As ``cuda.max_memory_reserved``; 0 without a device."""
    return cuda.max_memory_reserved(device_index) if is_available() else 0


def memory_stats(device_index: Any = None, /) -> dict[str, int]:
    """The allocator's numbers, as ``cuda.memory_stats``; empty without a device."""
    return cuda.memory_stats(device_index) if is_available() else {}


def reset_accumulated_memory_stats(device_index: Any = None, /) -> None:
    """Nothing: counts go on."""


def reset_peak_memory_stats(device_index: Any = None, /) -> None:
    """Let ``max_memory_allocated()`` start again from what is allocated now."""
    if is_available():
        cuda.reset_peak_memory_stats(device_index)
