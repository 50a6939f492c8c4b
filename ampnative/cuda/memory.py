"""Questions about the device's memory. Of the emulated device they tell what its allocator knows; the machine's memory is its size."""

from __future__ import annotations

import os
from typing import Any

from .. import _C

__all__ = [
    "get_per_process_memory_fraction", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_cached", "memory_stats",
    "memory_summary", "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "set_per_process_memory_fraction",
]  # fmt: skip


def _stats() -> tuple[int, ...]:
    return _C._memory_stats("cuda")


def max_memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator holds, cached blocks included: the present number, the largest isn't counted."""
    return max(_stats()[1], _stats()[2])


def memory_cached(device: Any = None) -> int:
    """Older name of ``memory_reserved``."""
    return _stats()[2]


def max_memory_cached(device: Any = None) -> int:
    """Older name of :func:`max_memory_reserved`."""
    return max_memory_reserved(device)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, whole) memory in bytes. RuntimeError without CUDA."""
    from . import _index

    _index(device)
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def memory_stats(device: Any = None) -> dict[str, int]:
    """The allocator's numbers under PyTorch's keys: bytes allocated and reserved, now and at their peak, and numbers of allocations."""
    allocated, peak, reserved, allocations, frees = _stats()
    return {
        "allocated_bytes.all.current": allocated, "allocated_bytes.all.peak": peak, "reserved_bytes.all.current": reserved,
        "reserved_bytes.all.peak": max(peak, reserved), "allocation.all.allocated": allocations, "allocation.all.freed": frees,
        "allocation.all.current": allocations - frees, "num_alloc_retries": 0, "num_ooms": 0,
    }  # fmt: skip


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """:func:`memory_stats` as a table to print."""
    lines = [f"  {key:<32}{value:>20,}" for key, value in memory_stats(device).items()]
    return "\n".join(["memory of device cuda:0 (emulated)", *lines])


def reset_max_memory_allocated(device: Any = None) -> None:
    """Older name of ``reset_peak_memory_stats``."""
    from . import reset_peak_memory_stats

    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """Older name of ``reset_peak_memory_stats``."""
    reset_max_memory_allocated(device)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Nothing: counts go on."""


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Accepted for a fraction in [0, 1], and changes nothing. ValueError for another."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")


def get_per_process_memory_fraction(device: Any = None) -> float:
    """1: all of the memory may be used."""
    return 1.0
