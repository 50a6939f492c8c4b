"""Switches that scripts set for repeatability or speed, and that need no other code here.

Every op is deterministic: sums run in a fixed order, whatever the number of threads. So ``use_deterministic_algorithms`` has nothing
to switch; it is remembered.
"""

from __future__ import annotations

from . import _C

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_deterministic_debug_mode",
    "get_num_interop_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_deterministic_debug_mode",
    "set_num_interop_threads",
    "set_warn_always",
    "use_deterministic_algorithms",
]

_MODES = ("default", "warn", "error")
_deterministic = 0  # index into _MODES
_interop_threads = _C.get_num_threads()
_warn_always = False


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Remembers the wish; everything is deterministic in any case. TypeError unless ``mode`` is a bool."""
    global _deterministic
    if not isinstance(mode, bool):
        raise TypeError(f"use_deterministic_algorithms(): argument 'mode' must be bool, not {type(mode).__name__}")
    _deterministic = (1 if warn_only else 2) if mode else 0


def are_deterministic_algorithms_enabled() -> bool:
    """What ``use_deterministic_algorithms`` was told."""
    return _deterministic > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether ``warn_only`` was asked for."""
    return _deterministic == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """0 or "default", 1 or "warn", 2 or "error": remembered. RuntimeError for another value."""
    global _deterministic
    if debug_mode in (0, 1, 2):
        _deterministic = int(debug_mode)
    elif debug_mode in _MODES:
        _deterministic = _MODES.index(debug_mode)
    else:
        raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}")


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2, see ``set_deterministic_debug_mode``."""
    return _deterministic


def set_num_interop_threads(num_threads: int) -> None:
    """Remembered, without effect: ops run one after the other, each on ``get_num_threads()`` threads. RuntimeError unless positive,
    ValueError beyond 32 bits.
    """
    global _interop_threads
    if not isinstance(num_threads, int) or isinstance(num_threads, bool):
        raise RuntimeError(f"set_num_interop_threads expects an int, but got {type(num_threads).__name__}")
    if not -(2**31) <= num_threads < 2**31:
        raise ValueError(f"set_num_interop_threads: {num_threads} does not fit an int of 32 bits")
    if num_threads <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    _interop_threads = num_threads


def get_num_interop_threads() -> int:
    """What ``set_num_interop_threads`` was told."""
    return _interop_threads


def set_warn_always(b: bool) -> None:
    """Remembered, without effect: Python's warning filters decide what is shown twice. TypeError unless a bool."""
    global _warn_always
    if not isinstance(b, bool):
        raise TypeError(f"set_warn_always expects a bool, but got {type(b).__name__}")
    _warn_always = b


def is_warn_always_enabled() -> bool:
    """What ``set_warn_always`` was told."""
    return _warn_always
