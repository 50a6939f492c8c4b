"""Which operation's derivative failed, or made NaN, and where the forward pass called it."""

from __future__ import annotations

import sys
import traceback
import warnings
from types import FrameType
from typing import Any

from .. import _C
from .._C import is_anomaly_enabled

__all__ = ["detect_anomaly", "is_anomaly_enabled", "set_detect_anomaly"]


class set_detect_anomaly:
    """Turns anomaly detection on or off for the whole process, at once; as a context manager, until its end.

    While it is on, every recorded operation keeps the Python stack that called it. Where a derivative raises, a UserWarning shows the
    stack of the operation's forward call; with ``check_nan`` a derivative that gives NaN raises RuntimeError. It costs time and
    memory: for debugging only.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _C.is_anomaly_enabled(), _C.is_anomaly_check_nan_enabled()
        _C.set_anomaly_enabled(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: Any) -> None:
        _C.set_anomaly_enabled(*self._before)


class detect_anomaly(set_detect_anomaly):
    """Context manager: anomaly detection is on inside. See ``set_detect_anomaly``."""

    def __init__(self, check_nan: bool = True) -> None:
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
            UserWarning,
            stacklevel=2,
        )
        self._before = _C.is_anomaly_enabled(), _C.is_anomaly_check_nan_enabled()
        self._check_nan = check_nan

    def __enter__(self) -> None:
        self._before = _C.is_anomaly_enabled(), _C.is_anomaly_check_nan_enabled()
        _C.set_anomaly_enabled(True, self._check_nan)


# What csrc/python/anomaly.c calls.


def _stack() -> list[str]:
    frame: FrameType | None = sys._getframe(1)
    return traceback.format_stack(frame)


def _refuse_nan(name: str, gradients: tuple[_C.Tensor | None, ...]) -> None:
    for i, g in enumerate(gradients):
        if g is not None and g.device.type != "meta" and bool((g != g).any()):
            raise RuntimeError(f"Function '{name}' returned nan values in its {i}th output.")


def _report(node: Any) -> None:
    stack = node.metadata.get("traceback_")
    if stack is None:
        text = "No forward pass information available. Enable detect anomaly during forward pass for more information."
    else:
        text = "Traceback of forward call that caused the error:\n" + "".join(stack)
    warnings.warn(f"Error detected in {node.name()}. {text}", UserWarning, stacklevel=2)
    seen = {node}
    while (node := node.metadata.get("parent_")) is not None and node not in seen:
        seen.add(node)
        stack = node.metadata.get("traceback_")
        text = (
            "No forward pass information available."
            if stack is None
            else "Traceback of forward call that induced the previous calculation:\n" + "".join(stack)
        )
        warnings.warn(f"\n\nPrevious calculation was induced by {node.name()}. {text}", UserWarning, stacklevel=2)
