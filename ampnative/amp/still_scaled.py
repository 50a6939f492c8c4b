"""Clipping gradients that are still scaled: noticed once per scaler.

Backward through a scaled loss marks the gradients that it accumulates, and any later write to one takes its mark off, so
that gradients which were unscaled, by a scaler or by hand, are never complained about.
"""

from __future__ import annotations

import os
import warnings
from typing import Any
from weakref import WeakSet, ref

from .. import _C
from .limits import caller_depth

__all__ = ["warn_on_scaled_clip"]

_latest: ref[Any] | None = None  # the scaler that scaled last
_told: WeakSet[Any] = WeakSet()
_enabled = True


def warn_on_scaled_clip(enabled: bool) -> bool:
    """Turn the notice about clipping scaled gradients on (the default) or off, for all threads; returns what it was.
    ``AMPNATIVE_STRICT=1`` makes it a RuntimeError."""
    global _enabled
    before, _enabled = _enabled, bool(enabled)
    return before


def mark_scaled(scaler: Any, loss: Any) -> Any:
    """`loss`, which `scaler` has scaled; gradients that come through it will be marked."""
    global _latest
    _C._mark_loss_scaled(loss)
    _latest = ref(scaler)
    return loss


def check(gradients: list[Any], function: str) -> None:
    """Warn, or raise RuntimeError with ``AMPNATIVE_STRICT=1``, if any of `gradients` still carries a loss scale.
    Nothing has been changed then."""
    if _latest is None or not _enabled or not _C._any_loss_scaled(gradients):
        return
    scaler = _latest()
    if scaler is None or scaler.get_scale() == 1.0:
        return
    strict = os.environ.get("AMPNATIVE_STRICT", "") not in ("", "0")
    if not strict and scaler in _told:
        return
    text = (
        f"{function} on gradients that are still multiplied by the loss scale {scaler.get_scale():g}: the threshold acts "
        "on the scaled values. Call scaler.unscale_(optimizer) before clipping, or scaler.clip_grad_norm_(optimizer, "
        "max_norm)"
    )
    if strict:
        raise RuntimeError(text)
    _told.add(scaler)
    warnings.warn(f"{text}; amp.warn_on_scaled_clip(False) turns this warning off", stacklevel=caller_depth())
