"""Limits on the loss scale (all opt-in), several scalers with one scale, and the warning about two scalers on one
optimizer."""

from __future__ import annotations

import math
import numbers
import struct
import sys
import warnings
from collections.abc import Iterable
from typing import Any
from weakref import ref

from .explain import scale_text

_FP32_MAX = 3.4028234663852886e38

__all__ = ["ScaleFloorError", "ScalerGroup"]


def check_fits_fp32(value: Any) -> None:
    """RuntimeError for a finite number beyond fp32's range."""
    value = value.item() if hasattr(value, "item") else value  # a NumPy scalar would compare in its own narrow type
    if isinstance(value, complex) or (abs(value) > _FP32_MAX and not math.isinf(value)):
        raise RuntimeError(
            f"value cannot be converted to type float32 without overflow: the loss scale {value!r} exceeds {_FP32_MAX}"
        )


def check_numbers(**given: Any) -> None:
    """TypeError for what is no number of Python's or NumPy's and no Tensor, here, not in the middle of the first step."""
    for name, value in given.items():
        if not isinstance(value, numbers.Number) and not hasattr(value, "item"):
            raise TypeError(f"GradScaler: {name} must be a number, not {value!r} ({type(value).__name__})")


class ScaleFloorError(FloatingPointError):
    """An overflow at ``min_scale``: a smaller scale is not allowed.

    Attributes:
        scale: the scale, at the floor.
        last_good_step: number of the last update without inf or NaN, from 0; None if there was none.
        culprits: names of the parameters whose gradients were not finite.
    """

    def __init__(self, message: str, scale: float, last_good_step: int | None, culprits: tuple[str, ...]) -> None:
        super().__init__(message)
        self.scale = scale
        self.last_good_step = last_good_step
        self.culprits = culprits

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.scale, self.last_good_step, self.culprits)


class Limits:
    """Configuration and counters of one scaler; see GradScaler for what the arguments mean."""

    def __init__(
        self,
        min_scale: float | None = None,
        max_scale: float | None = None,
        hysteresis: int = 1,
        consecutive: bool = False,
        on_floor: str = "hold",
        warn_after: int | None = None,
    ) -> None:
        self.min_scale, self.max_scale = min_scale, max_scale
        self.hysteresis, self.consecutive = hysteresis, consecutive
        self.on_floor, self.warn_after = on_floor, warn_after
        self.left = hysteresis  # overflows until the scale backs off
        self.updates = self.overflows_in_a_row = self.floor_hits = 0
        self.last_good_step: int | None = None
        self._at_floor = False  # the update in progress wanted to go below min_scale
        self._warned_of_floor = False

    def clamp(self, scale: float) -> float:
        """`scale` moved between the limits."""
        low, high = self.min_scale, self.max_scale
        if low is not None and scale < low:
            return low
        return high if high is not None and scale > high else scale

    def absorbs(self, found: float) -> bool:
        """Whether this overflow leaves the scale; counts down, and up again after a clean update if consecutive."""
        if not found:
            if self.consecutive:
                self.left = self.hysteresis
            return False
        if self.left > 1:
            self.left -= 1
            return True
        return False

    def interval(self, interval: Any, scale: float, tracker: int) -> int:
        """The growth interval at `scale`. A callable's value that the tracker has passed already counts as reached."""
        if not callable(interval):
            return interval
        value = int(interval(scale))
        if value < 1:
            raise ValueError(f"growth_interval({scale!r}) returned {value}: it must be at least 1")
        return max(value, tracker + 1)

    def limit(self, before: float, after: float) -> float:
        """The scale to set, given the one before the update and what growth or backoff made of it."""
        self._at_floor = False
        if after < before:
            low = self.min_scale
            if low is None or after >= low:
                return after
            self._at_floor = before <= low
            return min(before, low)
        if after > before:
            self.left = self.hysteresis
            high = self.max_scale
            return after if high is None or after <= high else max(before, high)
        return after

    def why_held(self, scale: float) -> str:
        """Which limit kept the scale at an overflow."""
        return "min_scale" if scale == self.min_scale else "hysteresis"

    def report(self, scale: float, found: float, skipped: Iterable[Any]) -> None:
        """Count the update that has ended, and warn or raise about it."""
        number = self.updates
        self.updates += 1
        at_floor, self._at_floor = self._at_floor, False
        if not found:
            self.last_good_step = number
            self.overflows_in_a_row = 0
            self._warned_of_floor = False
            return
        self.overflows_in_a_row += 1
        self.floor_hits += at_floor
        if self.overflows_in_a_row == self.warn_after:
            text = f"{self.overflows_in_a_row} updates in a row saw inf or NaN; {self._where(scale, skipped)}"
            warnings.warn(text, stacklevel=caller_depth())
        if not at_floor or self.on_floor == "hold":
            return
        text = (
            f"inf or NaN at the smallest loss scale allowed, min_scale={self.min_scale!r}; {self._where(scale, skipped)}. "
            "If the loss or a derivative is inf or NaN by itself, no scale helps: look for the layer (scaler.explain()). "
            "Else lower min_scale"
        )
        if self.on_floor == "raise":
            raise ScaleFloorError(text, scale, self.last_good_step, _names(skipped))
        if not self._warned_of_floor:
            self._warned_of_floor = True
            warnings.warn(text, stacklevel=caller_depth())

    def _where(self, scale: float, skipped: Iterable[Any]) -> str:
        names = _names(skipped)
        good = "no step was good so far" if self.last_good_step is None else f"the last good step was {self.last_good_step}"
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"scale {scale_text(scale)}, {good}; in the gradients of {'; '.join(names[:3]) or 'none'}{more}"

    def state_dict(self) -> dict[str, Any]:
        """What the next updates depend on."""
        names = ("left", "updates", "overflows_in_a_row", "floor_hits", "last_good_step")
        return {**{name: getattr(self, name) for name in names}, "warned_of_floor": self._warned_of_floor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a saved state; missing fields start afresh."""
        self.left = min(state.get("left", self.hysteresis), self.hysteresis)
        self.updates = state.get("updates", 0)
        self.overflows_in_a_row = state.get("overflows_in_a_row", 0)
        self.floor_hits = state.get("floor_hits", 0)
        self.last_good_step = state.get("last_good_step")
        self._warned_of_floor = state.get("warned_of_floor", False)


def _fp32(name: str, value: Any) -> float | None:
    """`value` as the scale will hold it, so that a scale which was set to it compares equal."""
    if value is None:
        return None
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        rounded = math.inf
    except struct.error:
        raise TypeError(f"{name} must be a number, got {type(value).__name__}") from None
    if not (math.isfinite(rounded) and rounded > 0):
        raise ValueError(f"{name} must be a positive number within float32's range, got {value!r}")
    return rounded


def limits_from(
    min_scale: Any, max_scale: Any, hysteresis: Any, consecutive: Any, on_floor: Any, warn_after: Any, by_scale: bool
) -> Limits | None:
    """The limits, checked; None if every argument has its default."""
    low, high = _fp32("min_scale", min_scale), _fp32("max_scale", max_scale)
    if min_scale is not None and max_scale is not None and min_scale > max_scale:
        raise ValueError(f"min_scale {min_scale!r} is above max_scale {max_scale!r}")
    for name, value in (("hysteresis", hysteresis), ("warn_after", 1 if warn_after is None else warn_after)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    if on_floor not in ("hold", "warn", "raise"):
        raise ValueError(f"on_floor must be 'hold', 'warn' or 'raise', got {on_floor!r}")
    if on_floor != "hold" and min_scale is None:
        raise ValueError(f"on_floor={on_floor!r} needs min_scale: without it there is no floor")
    if min_scale is None and max_scale is None and hysteresis == 1 and warn_after is None and not by_scale:
        return None
    return Limits(low, high, hysteresis, bool(consecutive), on_floor, warn_after)


def _names(skipped: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(culprit.name for step in skipped for culprit in step.culprits))


def caller_depth() -> int:
    """Stack level, for a warning raised by the caller, of the first frame outside this package."""
    depth = 1
    frame = sys._getframe(1)
    package = __name__.partition(".")[0] + "."
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(package):
        frame = frame.f_back
        depth += 1
    return depth


# The scaler that works on an optimizer in the current iteration, by id(optimizer). The scaler holds the optimizer, so no
# id is used twice while its entry lives; what scalers that died in mid-iteration leave behind is swept out now and then.
_claims: dict[int, ref[Any]] = {}
_MAX_CLAIMS = 256


def claim(key: int, optimizer: Any, scaler: Any) -> None:
    """Note that `scaler` works on the optimizer with id `key`; warns if another one does in the same iteration."""
    mine = ref(scaler)
    other = _claims.get(key)
    if other is not None and other is not mine and other() is not None:
        warnings.warn(
            f"two GradScalers work on one {type(optimizer).__name__} in the same iteration: its gradients are unscaled "
            "twice. Use one scaler for it, and call its update() before another takes over",
            stacklevel=caller_depth(),
        )
    if len(_claims) >= _MAX_CLAIMS:
        for old in [old for old, owner in list(_claims.items()) if owner() is None]:
            _claims.pop(old, None)
    _claims[key] = mine


def release(held: dict[int, Any]) -> None:
    """The iteration of the scaler that held these optimizers is over."""
    for key in held:
        _claims.pop(key, None)
    held.clear()


class ScalerGroup:
    """Several enabled scalers with one scale, for optimizers that share a graph: an overflow that any of them sees
    backs all off, and all grow together.

    The first scaler leads: its scale, factors, interval and limits are those of the group, and the others take over its
    scale now and after every ``update``. Call ``update`` of the group, not of its members (that raises RuntimeError).

    Raises:
        TypeError: something that is no scaler.
        ValueError: no scaler, a disabled one, one listed twice, or on another device type.
        RuntimeError: a scaler that is in another group, or in mid-iteration.
    """

    def __init__(self, scalers: Iterable[Any]) -> None:
        members = tuple(scalers)
        for scaler in members:
            if not hasattr(scaler, "is_enabled"):
                raise TypeError(f"a ScalerGroup is made of GradScalers, not {type(scaler).__name__}")
        if not members or len({id(s) for s in members}) != len(members):
            raise ValueError("a ScalerGroup needs at least one scaler, and each once")
        lead = members[0]
        for scaler in members:
            if not scaler.is_enabled() or scaler._device != lead._device:
                raise ValueError(f"the scalers of a group must be enabled and on one device type, got {scaler!r}")
            if scaler._group is not None or scaler._held:
                raise RuntimeError(f"{scaler!r} is in another group, or between unscale_() and update()")
        self.scalers = members
        for scaler in members:
            scaler._group = self
            scaler._losses = lead._losses  # whichever scaled one
        self._spread()

    def _spread(self) -> None:
        state = self.scalers[0].state_dict()
        for scaler in self.scalers[1:]:
            scaler.load_state_dict(state)

    def scale(self, outputs: Any) -> Any:
        """``scale`` of the first scaler; the others' gives the same values."""
        return self.scalers[0].scale(outputs)

    @property
    def device(self) -> Any:
        """Where the common scale lies; None before the first ``scale()``."""
        scales = (scaler._scale for scaler in self.scalers)
        return next((scale.device for scale in scales if scale is not None), None)

    def get_scale(self) -> float:
        """The common scale."""
        return self.scalers[0].get_scale()

    def update(self, new_scale: Any = None) -> None:
        """End the iteration of all members: one backoff if any saw inf or NaN, one step towards growth otherwise. Raises
        what ``GradScaler.update`` raises."""
        lead, *others = self.scalers
        if lead._scale is None:
            for scaler in others:
                if scaler._scale is not None:
                    lead._lazy_init_scale_growth_tracker(scaler._scale.device)
                    break
        before = lead.get_scale()
        states, pending = lead._per_optimizer_states, lead._pending  # the others' too, while the lead decides
        theirs = [skipped for scaler in others for skipped in scaler._pending.values()]
        for scaler in others:
            for key, state in scaler._per_optimizer_states.items():
                states[key, id(scaler)] = state
            for key, skipped in scaler._pending.items():
                pending[key, id(scaler)] = skipped
        try:
            lead._update(new_scale)
        finally:
            if lead._per_optimizer_states is states:  # the update was refused
                for table in (states, pending):
                    for key in [key for key in table if isinstance(key, tuple)]:
                        del table[key]
            else:
                for skipped in theirs:
                    if skipped in lead._skips:
                        lead._skips.remove(skipped)
                self._end(others, before)

    def _end(self, others: list[Any], before: float) -> None:
        row = self.scalers[0].history[-1]
        self._spread()
        for scaler in others:
            if scaler._skips.runs:
                scaler._end_runs(scaler.history.total, before)
            release(scaler._held)
            scaler._per_optimizer_states.clear()
            history = scaler.history
            if scaler._pending:
                scaler._close_pending(history.total, row.scale, "" if row.action != "hold" else "the group")
            history.append_row(row)

    def state_dict(self) -> dict[str, Any]:
        """The state of the group: that of its first scaler."""
        return self.scalers[0].state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state of a group or of a single scaler, in all members."""
        for scaler in self.scalers:
            scaler.load_state_dict(state_dict)

    def __repr__(self) -> str:
        return f"ScalerGroup({len(self.scalers)} scalers, scale={self.get_scale()!r})"
