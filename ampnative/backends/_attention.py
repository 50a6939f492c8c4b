"""Which ways of computing attention may be taken. It follows from the call: tiles of scores where
they can be taken, else products and a softmax. The switches are remembered, and change nothing."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.Enum):
    """PyTorch's ways of computing ``scaled_dot_product_attention``."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_allowed = dict.fromkeys(SDPBackend, True)


def switch(backend: SDPBackend) -> tuple[Any, Any]:
    """(set, get) of one way."""

    def enable(enabled: bool) -> None:
        """Remembered; how attention is computed follows from the call."""
        _allowed[backend] = bool(enabled)

    def enabled() -> bool:
        """What was set last; True at first."""
        return _allowed[backend]

    return enable, enabled


@contextlib.contextmanager
def sdpa_kernel(backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Context manager: only these ways may be taken inside. Remembered, and without effect on values."""
    chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not all(isinstance(b, SDPBackend) for b in chosen):
        raise AssertionError(f"sdpa_kernel() takes members of SDPBackend, got {chosen}")
    before = dict(_allowed)
    _allowed.update({b: b in chosen for b in _allowed})
    try:
        yield
    finally:
        _allowed.update(before)
