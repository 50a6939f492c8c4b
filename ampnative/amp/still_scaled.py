"""Loss scales where they do harm: gradients that are clipped while they carry one, and gradients unscaled by another one.

Backward through a scaled loss stamps the gradients that it accumulates with the scale. Any later write to one takes the stamp
off, and one with a hook of its own gets none, so that gradients which were unscaled, by a scaler or by hand, are never
complained about.
"""

from __future__ import annotations

import math
import os
import warnings
from typing import Any
from weakref import WeakSet, ref

from .. import _C
from .limits import caller_depth

__all__ = ["warn_on_scaled_clip"]

_latest: ref[Any] | None = None  # the scaler that scaled last
_told: WeakSet[Any] = WeakSet()
_told_of_mixing: WeakSet[Any] = WeakSet()
_enabled = True


def warn_on_scaled_clip(enabled: bool) -> bool:
    """Turn the notices about loss scales on (the default) or off, for all threads; returns what it was: about clipping
    gradients that are still scaled, and about unscaling gradients that were made under another scale, each once per scaler.
    ``AMPNATIVE_STRICT=1`` makes them RuntimeErrors."""
    global _enabled
    before, _enabled = _enabled, bool(enabled)
    return before


def mark_scaled(scaler: Any, loss: Any, scaled: Any, scale: Any) -> Any:
    """`scaled`, which `scaler` has made of `loss` with `scale`; gradients that come through it will be stamped."""
    global _latest
    _C._mark_loss_scaled(scaled, scale, scaler._losses.note(loss))
    _latest = ref(scaler)
    return scaled


def _strict() -> bool:
    return os.environ.get("AMPNATIVE_STRICT", "") not in ("", "0")


def _notice(text: str, scaler: Any, told: WeakSet[Any]) -> None:
    if _strict():
        raise RuntimeError(text)
    if scaler is not None and scaler in told:
        return
    if scaler is not None:
        told.add(scaler)
    warnings.warn(f"{text}; amp.warn_on_scaled_clip(False) turns this warning off", stacklevel=caller_depth())


def check(gradients: list[Any], function: str) -> None:
    """Warn, or raise RuntimeError with ``AMPNATIVE_STRICT=1``, if any of `gradients` still carries a loss scale.
    Nothing has been changed then."""
    if _latest is None or not _enabled:
        return
    scales = [scale for scale in _C._loss_scales(gradients) if scale != 1.0]
    if not scales:
        return
    how_much = "several loss scales" if math.isnan(scales[0]) else f"the loss scale {scales[0]:g}"
    text = (
        f"{function} on gradients that are still multiplied by {how_much}: the threshold acts "
        "on the scaled values. Call scaler.unscale_(optimizer) before clipping, or scaler.clip_grad_norm_(optimizer, "
        "max_norm)"
    )
    _notice(text, _latest(), _told)


def check_scales(scaler: Any, gradients: list[Any]) -> None:
    """The same for gradients that `scaler` is about to unscale although they carry another scale than its own."""
    if not _enabled:
        return
    own = scaler.get_scale()
    others = [scale for scale in _C._loss_scales(gradients) if scale != own]
    if not others:
        return
    if math.isnan(others[0]):
        text = (
            f"{type(scaler).__name__} unscales by {own:g} gradients whose parts were made under different loss scales: change the "
            "scale only at the end of an accumulation window, update() after step() and zero_grad(), and give losses that share "
            "parameters one scaler, or a ScalerGroup"
        )
    else:
        text = (
            f"{type(scaler).__name__} unscales by {own:g} gradients that were made under the loss scale {others[0]:g}: another scaler "
            "scaled the loss (use one for both, or a ScalerGroup), or update() ran between backward() and step()"
        )
    _notice(text, scaler, _told_of_mixing)
