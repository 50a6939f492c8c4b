"""Dynamic loss scaling.

The scale is a 0-dim fp32 tensor and its growth tracker a 0-dim int32 tensor; both are made by the first ``scale()`` on
the device of the tensor that it meets. Each optimizer moves READY -> UNSCALED -> STEPPED between two ``update()``
calls, and its inf flags are recorded when its gradients are unscaled, never later: gradients spoilt after ``unscale_``
do not stop a step.
"""

from __future__ import annotations

import enum
import math
import warnings
from collections import abc, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _C
from . import history as _history
from .explain import Explanation, ScaledLosses, SkipLog, SkippedStep, find_culprits
from .limits import Limits, caller_depth, check_fits_fp32, check_numbers, claim, limits_from, release
from .multi_device import _MultiDeviceReplicator
from .optimizer_gradients import (
    collect_gradients,
    device_of_gradients,
    no_checks_text,
    takes_grad_scaler,
)
from .status import StepStatus
from .still_scaled import check_scales, mark_scaled

__all__ = ["GradScaler", "OptState"]

_EXPLAINED_STEPS = 32  # skipped steps that explain() remembers

_Tensor = _C.Tensor
_ScaleHistory = _history.ScaleHistory
_float32 = _C.float32
_int32 = _C.int32
_unscale_groups = _C._unscale_groups


class OptState(enum.Enum):
    """Where one optimizer is between two ``update()`` calls."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


# Members of an enum are slow to look up.
_READY, _UNSCALED, _STEPPED = OptState.READY, OptState.UNSCALED, OptState.STEPPED
_TAKEN = StepStatus.STEPPED


def _refresh_per_optimizer_state() -> dict[str, Any]:
    return {"stage": _READY, "found_inf_per_device": {}}


class GradScaler:
    """Multiplies the loss so that small fp16 gradients survive, divides the gradients before the optimizer sees them,
    skips steps whose gradients are not finite, and adapts the scale.

    Args:
        device: device type the scaler is meant for, "cuda" or "cpu". "cuda" without CUDA warns and disables the scaler.
        init_scale: first scale.
        growth_factor: above 1; multiplies the scale after `growth_interval` clean updates in a row.
        backoff_factor: below 1; multiplies the scale after an update that saw inf or NaN.
        growth_interval: clean updates before growth. Growth happens when the tracker *reaches* the interval: lowering
            it below the current tracker stops growth until the next overflow resets the tracker.
        enabled: False makes every method do nothing but call the optimizer.
        min_scale, max_scale: limits that backoff and growth stop at; a first scale beyond them is moved to them.
        hysteresis: overflows that it takes to back off. Those before leave the scale and reset the tracker.
        consecutive_hysteresis: count afresh after every clean update; else only after growth, so that once the scale has
            backed off, every overflow until the next growth backs it off again.
        on_floor: what ``update`` does about an overflow at `min_scale`: nothing ("hold"), one warning until the next
            clean update ("warn"), or ScaleFloorError, with the iteration ended all the same ("raise").
        warn_after: warn when so many updates in a row saw inf or NaN: once, until the next clean update.
        on_no_grads: what ``step`` does with an optimizer without any gradient: "raise", or "skip" (status NO_GRADS).

    `growth_interval` may be a callable of the scale that returns an integer; saved is its value, and a scaler with a
    callable keeps it when a state is loaded. With `min_scale` to `warn_after` or a callable, the state has a key "limits" with
    their counters; the limits themselves are arguments of the scaler that loads it.

    Beyond PyTorch: ``clip_grad_norm_``, ``last_step``, ``history``, ``metrics()``, ``log_to()``, ``explain()``. A step taken at a scale
    whose reciprocal is not finite (0, NaN, below 2^-128) counts as an overflow and is skipped. Any object with
    ``param_groups`` and ``step()`` may be the optimizer if the gradients are Tensors or ndarrays; ndarrays are unscaled
    in place.

    Raises:
        TypeError: `device` is a number (init_scale in its place), or one of the numbers is none (only when enabled).
        AssertionError: growth_factor <= 1 or backoff_factor >= 1 (only when enabled).
        ValueError: limits that contradict each other, or an unknown word.
    """

    _limits: Limits | None = None
    _group: Any = None  # the ScalerGroup that updates this scaler
    _on_no_grads = "raise"
    _last_step: StepStatus | None = None
    _history: _history.ScaleHistory | None = None
    _restored = False  # a state was loaded: the scale has a value before the first scale()
    _own_unscale = True  # no subclass unscales in its own way

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._own_unscale = cls._unscale_grads_ is GradScaler._unscale_grads_

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int | Callable[[float], int] = 2000,
        enabled: bool = True,
        *,
        min_scale: float | None = None,
        max_scale: float | None = None,
        hysteresis: int = 1,
        consecutive_hysteresis: bool = False,
        on_floor: str = "hold",
        warn_after: int | None = None,
        on_no_grads: str = "raise",
    ) -> None:
        if isinstance(device, (int, float)):
            raise TypeError(f"device must be a str such as 'cuda', not {device!r}: did you mean init_scale={device!r}?")
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda" and not _cuda_is_available():
            warnings.warn(
                "ampnative.cuda.amp.GradScaler is enabled, but CUDA is not available. Disabling. ampnative.cuda.emulate() runs "
                "CUDA's rules on the CPU",
                stacklevel=caller_depth(),
            )
            self._enabled = False
        if not self._enabled:
            return
        check_numbers(init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor)
        if not callable(growth_interval):
            check_numbers(growth_interval=growth_interval)
        if growth_factor <= 1.0:
            raise AssertionError(f"growth factor must be > 1.0, got {growth_factor}")
        if backoff_factor >= 1.0:
            raise AssertionError(f"backoff factor must be < 1.0, got {backoff_factor}")
        if on_no_grads not in ("raise", "skip"):
            raise ValueError(f"on_no_grads must be 'raise' or 'skip', got {on_no_grads!r}")
        if on_no_grads != "raise":
            self._on_no_grads = on_no_grads
        limits = limits_from(
            min_scale, max_scale, hysteresis, consecutive_hysteresis, on_floor, warn_after, callable(growth_interval)
        )
        if limits is not None:
            self._limits = limits
            init_scale = limits.clamp(init_scale)
        self._init_scale = init_scale
        self._scale: Any = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Any = None
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_refresh_per_optimizer_state)
        self._steps_taken = self._steps_skipped = 0
        self._skips = SkipLog(maxlen=_EXPLAINED_STEPS)
        self._held: dict[int, Any] = {}  # the optimizers behind those states: no id is used twice in an iteration
        self._pending: dict[int, SkippedStep] = {}  # overflows since the last update, by id(optimizer)
        self._losses = ScaledLosses()  # since then

    # ---- scaling the loss --------------------------------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """`outputs` times the scale.

        A tensor keeps its dtype if it has a dimension; a 0-dim 16-bit loss becomes float32. Lists and tuples (nested
        too) give the same container; any other iterable a lazy ``map``, of which nothing is scaled before it is
        consumed. Numbers and ndarrays: :func:`scale_loss`. Disabled: `outputs`.

        Raises:
            ValueError: neither a tensor nor an iterable.
            RuntimeError: first use with a finite ``init_scale`` beyond fp32's range.
            OverflowError: first use with an int beyond int64.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, _Tensor):
            scale = self._scale
            if scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
                scale = self._scale
            device = outputs.device
            if scale.device is not device and scale.device != device:
                scale = scale.to(device=device)
            return mark_scaled(self, outputs, outputs * scale, scale)
        return self._scale_nested(outputs, [])

    def _scale_nested(self, value: Any, replicator: list[_MultiDeviceReplicator]) -> Any:
        """`replicator` is empty until the first tensor: one copy of the scale per device and call."""
        if isinstance(value, _Tensor):
            device = value.device
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(device)
            if self._scale.device == device:
                return mark_scaled(self, value, value * self._scale, self._scale)
            if not replicator:
                replicator.append(_MultiDeviceReplicator(self._scale))
            return mark_scaled(self, value, value * replicator[0].get(device), self._scale)
        if isinstance(value, abc.Iterable) and not isinstance(value, np.ndarray):
            scaled = map(lambda item: self._scale_nested(item, replicator), value)
            return type(value)(scaled) if isinstance(value, (list, tuple)) else scaled
        raise ValueError(
            f"outputs must be a Tensor or an iterable of Tensors, got {type(value).__name__}. Numbers and ndarrays are scaled by "
            "amp.scale_loss(loss, scaler)"
        )

    def _lazy_init_scale_growth_tracker(self, device: Any) -> None:
        if self._growth_tracker is not None:
            raise AssertionError("_growth_tracker initialized before _scale: set neither by hand")
        if isinstance(self._init_scale, int) and self._init_scale >= 2**63:
            bits = self._init_scale.bit_length()
            raise OverflowError(f"init_scale is an int of {bits} bits, beyond int64: write a float, such as 2.0**{bits - 1}")
        check_fits_fp32(self._init_scale)
        scale = _C.functions.full((), self._init_scale, dtype=_float32, device=device)
        self._growth_tracker = _C.functions.full((), self._init_growth_tracker, dtype=_int32, device=device)
        self._scale = scale

    def _check_scale_growth_tracker(self, funcname: str, optimizer: Any = None) -> tuple[Any, Any]:
        if self._scale is None and self._restored and optimizer is not None:
            device = device_of_gradients(optimizer)
            if device is None and self._group is not None:  # the group has a scale, this optimizer no gradient
                device = self._group.device
            if device is not None:
                self._lazy_init_scale_growth_tracker(device)
        for name in ("_scale", "_growth_tracker"):
            if getattr(self, name) is None:
                raise AssertionError(
                    f"{funcname}() was called but {name} is None: the scale is made by the first scaler.scale(loss). "
                    f"Call that before {funcname}()"
                )
        return self._scale, self._growth_tracker

    def _state_of(self, optimizer: Any) -> dict[str, Any]:
        key = id(optimizer)
        if key not in self._held:
            claim(key, optimizer, self)
            self._held[key] = optimizer
        return self._per_optimizer_states[key]

    # ---- gradients ---------------------------------------------------------------------------------------------------

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of `optimizer` by the scale, in place, and record whether any is inf or NaN. At most
        once per optimizer between two ``update()`` calls; ``step`` does it if you did not. Call it before you clip or
        inspect gradients.

        Raises:
            AssertionError: nothing was scaled yet, or a parameter is no tensor.
            RuntimeError: called twice, or after ``step``.
            ValueError: a gradient is float16. No gradient was changed then.
        """
        if not self._enabled:
            return
        if self._scale is None or self._growth_tracker is None:
            self._check_scale_growth_tracker("unscale_", optimizer)
        state = self._state_of(optimizer)
        stage = state["stage"]
        if stage is not _READY:
            what = type(optimizer).__name__
            if stage is _UNSCALED:
                raise RuntimeError(
                    f"unscale_() has already been called on this optimizer since the last update() ({what}). Call it "
                    "once per step"
                )
            raise RuntimeError(
                f"unscale_() is being called after step() ({what}). Call it between backward() and step()"
            )
        self._unscale(optimizer, state)

    def clip_grad_norm_(
        self, optimizer: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Any:
        """``unscale_`` if that has not happened since the last ``update``, then ``nn.utils.clip_grad_norm_`` over the
        optimizer's parameters; returns the norm before, a 0-dim tensor. After an overflow the gradients are left as they
        are: the step will be skipped.

        Raises:
            RuntimeError: called after ``step``; a norm that is inf or NaN with `error_if_nonfinite`.
        """
        from ..nn.utils import clip_grad

        parameters = [param for group in optimizer.param_groups for param in group["params"]]
        if self._enabled:
            state = self._per_optimizer_states.get(id(optimizer))
            if state is None or state["stage"] is not _UNSCALED:
                self.unscale_(optimizer)
            if any(not flag.is_meta and flag.item() for flag in self._found_inf_per_device(optimizer).values()):
                gradients = [param.grad for param in parameters if param.grad is not None]
                return clip_grad.get_total_norm(gradients, norm_type, error_if_nonfinite)
        return clip_grad.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite)

    def _unscale(self, optimizer: Any, state: dict[str, Any]) -> None:
        scale = self._scale
        flag = _unscale_groups(optimizer.param_groups, scale) if self._own_unscale else None
        if flag is not None:
            state["found_inf_per_device"] = {flag.device: flag}
            state["stage"] = _UNSCALED
            if flag.item():
                self._note_overflow(optimizer, scale.item(), True, scaled=False)
            return
        inv_scale = scale.reciprocal()  # of fp32: rounded as the double-precision quotient would be
        found_inf = inv_scale - inv_scale  # 0, or NaN
        usable = scale.is_meta or found_inf.item() == 0.0
        if not usable:
            found_inf.fill_(1.0)
        flags = self._unscale_grads_(optimizer, inv_scale, found_inf, False)
        state["found_inf_per_device"] = flags
        state["stage"] = _UNSCALED
        # Looked into at once: clipping would smear one NaN over all gradients before step() sees them.
        for flag in flags.values():
            if not flag.is_meta and flag.item():  # a flag on "meta" has no value: step() raises
                self._note_overflow(optimizer, scale.item(), usable, scaled=False)
                break

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Any]:
        """Multiply every gradient by `inv_scale`; returns {device: flag tensor}, empty without gradients. All gradients
        are collected and checked before the first is changed."""
        per_device, write_back = collect_gradients(optimizer, allow_fp16)
        for gradients in per_device.values():
            _C._check_unscale(gradients)
            if not inv_scale.is_meta:
                check_scales(self, gradients)
        flags = {}
        home = inv_scale.device
        for where, gradients in per_device.items():
            if where is home or where == home:
                flag, inverse = found_inf.clone(), inv_scale
            else:
                flag, inverse = found_inf.to(device=where, copy=True), inv_scale.to(device=where)
            _C._amp_foreach_non_finite_check_and_unscale_(gradients, flag, inverse)  # records nothing
            flags[where] = flag
        for array, tensor in write_back:
            array[...] = tensor.numpy()
        return flags

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Any]:
        """Record inf flags of `optimizer` without touching its gradients (fused optimizers unscale themselves)."""
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        value = scale.item()
        usable = math.isfinite(scale.reciprocal().item())
        one = _C.functions.full((), 1.0, dtype=_float32, device=scale.device)
        found_inf = _C.functions.full((), 0.0 if usable else 1.0, dtype=_float32, device=scale.device)
        state = self._state_of(optimizer)
        flags = state["found_inf_per_device"] = self._unscale_grads_(optimizer, one, found_inf, True)
        for flag in flags.values():
            if flag.item():
                self._note_overflow(optimizer, value, usable, scaled=True)
                break
        return flags

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Any]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    def _note_overflow(self, optimizer: Any, scale: float, usable: bool, scaled: bool) -> None:
        culprits = find_culprits(optimizer, scale, scaled, self.history.total) if usable else ()
        note = "" if usable else f"the scale {scale!r} has no finite reciprocal in float32. Set it with update(new_scale)"
        label = f"optimizer {list(self._per_optimizer_states).index(id(optimizer))} ({type(optimizer).__name__})"
        gradients = [optimizer.param_groups[one.group]["params"][one.index].grad for one in culprits]
        skipped = self._losses.judge(SkippedStep(scale, culprits, note, optimizer=label), gradients)
        self._pending[id(optimizer)] = self._skips.following(skipped, optimizer)

    # ---- the step ----------------------------------------------------------------------------------------------------

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale if ``unscale_`` was not called, then ``optimizer.step(*args, **kwargs)`` unless a gradient was inf or
        NaN. Returns what the optimizer returned, None if it was skipped; ``last_step`` tells which.

        Raises:
            RuntimeError: a ``closure`` keyword, or a second call before ``update``.
            AssertionError: nothing was scaled yet, or the optimizer has no gradient at all, or had none when
                ``unscale_`` was called.
        """
        if not self._enabled:
            result = optimizer.step(*args, **kwargs)
            self._last_step = _TAKEN
            return result
        if "closure" in kwargs:
            raise RuntimeError(
                "Closure use is not currently supported while the GradScaler is enabled: compute the loss outside of "
                "step()"
            )
        if self._scale is None or self._growth_tracker is None:
            self._check_scale_growth_tracker("step", optimizer)
        state = self._state_of(optimizer)
        stage = state["stage"]
        if stage is _STEPPED:
            raise RuntimeError(
                f"step() has already been called since the last update() ({type(optimizer).__name__}). Call "
                "scaler.update() once per iteration"
            )
        self._last_step = None
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_amp_aware(optimizer, state, args, kwargs)
        if stage is _READY:
            self.unscale_(optimizer)
        if not state["found_inf_per_device"]:
            return self._not_checked(optimizer, state)
        given = args or kwargs
        result = self._maybe_opt_step(optimizer, state, *args, **kwargs) if given else self._maybe_opt_step(optimizer, state)
        state["stage"] = _STEPPED
        return result

    def _not_checked(self, optimizer: Any, state: dict[str, Any]) -> None:
        self._last_step = StepStatus.NO_GRADS
        if self._on_no_grads != "skip":
            raise AssertionError(no_checks_text(optimizer))
        state["stage"] = _STEPPED

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        for flag in optimizer_state["found_inf_per_device"].values():
            if flag.item():
                self._count_step(optimizer, StepStatus.SKIPPED)
                return None
        result = optimizer.step(*args, **kwargs) if args or kwargs else optimizer.step()
        self._last_step = _TAKEN
        self._steps_taken += 1
        if self._skips.runs:
            self._skips.stepped(optimizer, False)
        return result

    def _step_amp_aware(
        self, optimizer: Any, state: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Optimizers that take the scale and the flag themselves. ``optimizer.step`` always runs; skipping is its
        business."""
        if takes_grad_scaler(optimizer.step):
            warnings.warn(
                "GradScaler is going to stop passing itself to optimizer.step as a keyword: the optimizer should "
                "read its attributes grad_scale and found_inf",
                FutureWarning,
                stacklevel=3,
            )
            result = optimizer.step(*args, **{**kwargs, "grad_scaler": self})
            flags = state["found_inf_per_device"]
            if flags:  # else nothing was recorded, and only the optimizer knows what it did
                self._count_step(optimizer, StepStatus.SKIPPED if any(f.item() for f in flags.values()) else _TAKEN)
        else:
            stage = state["stage"]
            if stage is _READY:
                self._check_inf_per_device(optimizer)
            elif not state["found_inf_per_device"] and device_of_gradients(optimizer) is not None:
                return self._not_checked(optimizer, state)  # unscale_() came before there were gradients: they are still scaled
            scale = self._get_scale_async()
            flags = state["found_inf_per_device"]
            found_inf = sum(flag.to(device=scale.device) for flag in flags.values())
            given = getattr(optimizer, "grad_scale", None)
            if stage is _UNSCALED:
                optimizer.grad_scale = given
            else:
                optimizer.grad_scale = scale * (1 if given is None else given)
            optimizer.found_inf = found_inf
            result = optimizer.step(*args, **kwargs)
            if flags:
                self._count_step(optimizer, StepStatus.SKIPPED if found_inf.item() else _TAKEN)
            else:
                self._last_step = StepStatus.NO_GRADS
            del optimizer.grad_scale
            del optimizer.found_inf
        state["stage"] = _STEPPED
        return result

    def _count_step(self, optimizer: Any, status: StepStatus) -> None:
        self._last_step = status
        if status is _TAKEN:
            self._steps_taken += 1
        else:
            self._steps_skipped += 1
        self._skips.stepped(optimizer, status is not _TAKEN)

    # ---- the scale ---------------------------------------------------------------------------------------------------

    def update(self, new_scale: Any = None) -> None:
        """End the iteration: back the scale off if any optimizer saw inf or NaN since the last call, grow it after
        ``growth_interval`` clean calls in a row. Call it once, after all ``step`` calls.

        Args:
            new_scale: a float or a one-element tensor on the scaler's device type to use instead; the tracker is kept.

        Raises:
            AssertionError: no optimizer was checked; nothing scaled yet; `new_scale` is a tensor with several elements,
                on another device or with requires_grad.
            AttributeError: `new_scale` is neither float nor tensor.
            RuntimeError: a finite `new_scale` beyond fp32's range; the scaler belongs to a ScalerGroup.
            ScaleFloorError: an overflow at `min_scale` with ``on_floor="raise"``.
        """
        if self._group is not None:
            raise RuntimeError("this scaler belongs to a ScalerGroup: call update() of the group")
        self._update(new_scale)

    def _update(self, new_scale: Any) -> None:
        if not self._enabled:
            return
        scale, tracker = self._scale, self._growth_tracker
        if scale is None or tracker is None:
            self._check_scale_growth_tracker("update")
        found = 0.0
        before = scale.item()
        if new_scale is not None:
            self._set_scale(new_scale)
            action = _history.SET
            states = self._per_optimizer_states.values()
            found = float(sum(flag.item() for state in states for flag in state["found_inf_per_device"].values()))
        else:
            flags: list[Any] = []
            for state in self._per_optimizer_states.values():
                flags += state["found_inf_per_device"].values()
            if flags:
                found, action = self._next_scale(scale, tracker, before, flags)
            elif self._on_no_grads == "skip" and self._per_optimizer_states:
                action = _history.KEEP
            else:
                raise AssertionError(
                    "No inf checks were recorded prior to update(): call scaler.step(optimizer) or "
                    "scaler.unscale_(optimizer) first, with gradients"
                )
        after = scale.item()
        count = tracker.item()
        if action < 0:
            # An interval of 1 leaves the tracker at 0 too, so a refused growth shows as: tracker 0, scale as before.
            action = _history.KEEP if count else _history.GROW if after != before else _history.HOLD
        if self._skips.runs:
            self._end_runs(self.history.total, before)
        release(self._held)
        self._losses.clear()
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)
        history = self._history
        if history is None:
            history = self.history
        pending = self._pending
        if pending:
            held = self._limits.why_held(after) if self._limits is not None and action == _history.HOLD else ""
            self._close_pending(history.total, after, held)
        history.append(after, found, count, action)
        if self._limits is not None and new_scale is None:
            self._limits.report(after, found, pending.values())

    def _next_scale(self, scale: Any, tracker: Any, before: float, flags: list[Any]) -> tuple[float, int]:
        """Change scale and tracker; returns the sum of the flags and what was done, -1 if the caller can see it."""
        found_inf = flags[0]
        device = scale.device
        if found_inf.device != device:
            found_inf = found_inf.to(device=device)
        for flag in flags[1:]:
            found_inf += flag if flag.device == device else flag.to(device=device)
        found = found_inf.item()
        interval: Any = self._growth_interval
        limits = self._limits
        if limits is not None:
            if limits.absorbs(found):
                tracker.fill_(0)
                return found, _history.HOLD
            interval = limits.interval(interval, before, tracker.item())
        _C._amp_update_scale_(scale, tracker, found_inf, self._growth_factor, self._backoff_factor, interval)
        if limits is not None:
            after = scale.item()
            limited = limits.limit(before, after)
            if limited != after:
                scale.fill_(limited)
            if found and limited == before:
                return found, _history.HOLD
        if found:
            after = scale.item()
            return found, _history.BACKOFF if after != before and after == after else _history.HOLD  # 0 and NaN stay
        return found, -1

    def _set_scale(self, new_scale: Any) -> None:
        if isinstance(new_scale, float):
            check_fits_fp32(new_scale)
            self._scale.fill_(new_scale)
            return
        if not isinstance(new_scale, _Tensor):
            raise AttributeError(
                f"{type(new_scale).__name__!r} object has no attribute 'device': new_scale must be a Python float or "
                "a one-element Tensor"
            )
        what = "new_scale should be a float or a Tensor with one element on the scaler's device and requires_grad=False"
        if new_scale.device.type != self._device:
            raise AssertionError(f"{what}; its device is {new_scale.device}, the scaler's {self._device!r}")
        if new_scale.numel() != 1:
            raise AssertionError(f"{what}; it has {new_scale.numel()} elements")
        if new_scale.requires_grad:
            raise AssertionError(f"{what}; it requires grad, use new_scale.detach()")
        self._scale.copy_(new_scale.reshape(()))

    def _end_runs(self, number: int, scale: float) -> None:
        """For the optimizers whose gradients, made at this scale, were finite."""
        for key, optimizer in self._held.items():
            if self._per_optimizer_states[key]["found_inf_per_device"] and key not in self._pending:
                self._skips.end_run(optimizer, number, scale)

    def _close_pending(self, number: int, scale: float, held: str = "") -> None:
        for skipped in self._pending.values():
            skipped.update, skipped.new_scale, skipped.held = number, scale, held
            self._skips.append(skipped)
        self._pending = {}

    def _get_scale_async(self) -> Any:
        return self._scale

    def get_scale(self) -> float:
        """The current scale; 1.0 if disabled. Exactly ``init_scale`` until the first ``scale()``."""
        if not self._enabled:
            return 1.0
        scale = self._get_scale_async()
        return self._init_scale if scale is None else scale.item()

    def get_growth_factor(self) -> float:
        """Factor of growth."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Replace the growth factor; unchecked."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Factor of backoff."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Replace the backoff factor; unchecked."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Clean updates before growth, at the current scale if the interval is a callable."""
        interval = self._growth_interval
        return int(interval(self.get_scale())) if callable(interval) else interval

    def set_growth_interval(self, new_interval: int | Callable[[float], int]) -> None:
        """Replace the interval; unchecked. See the class about intervals below the current tracker."""
        if callable(new_interval) and self._limits is None:
            self._limits = Limits()
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        tracker = self._growth_tracker
        return self._init_growth_tracker if tracker is None else tracker.item()

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    # ---- saving ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """scale, growth_factor, backoff_factor, growth_interval, _growth_tracker, and "limits" if a limit is set;
        {} if disabled. Take it after ``update``."""
        if not self._enabled:
            return {}
        state: dict[str, Any] = {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self.get_growth_interval(),
            "_growth_tracker": self._get_growth_tracker(),
        }
        if self._limits is not None:
            state["limits"] = self._limits.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state, before or after the first ``scale()``; ``unscale_`` and ``step`` work right after
        it. A disabled scaler ignores it.

        Raises:
            RuntimeError: empty: it was saved by a disabled scaler.
            KeyError: a field is missing (those before it in the order of ``state_dict`` are taken over).
        """
        if not self._enabled:
            return
        if not state_dict and state_dict is not None:
            raise RuntimeError(
                "The source state dict is empty: it was saved from a disabled GradScaler. Start with a fresh scaler "
                "instead of loading it"
            )
        check_fits_fp32(state_dict["scale"])
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        interval = state_dict["growth_interval"]
        if not callable(self._growth_interval):
            self._growth_interval = interval
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])
        if self._limits is not None:
            self._limits.load_state_dict(state_dict.get("limits", {}))
        self._restored = True

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler may only be pickled at the beginning of an iteration, or at the end after "
                    "scaler.update()"
                )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_held"] = {}
            state["_losses"] = ScaledLosses()
            state["_scale"] = None
            state["_growth_tracker"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    # ---- what happened -----------------------------------------------------------------------------------------------

    @property
    def last_step(self) -> StepStatus | None:
        """What the latest ``step()`` did. None before the first, after one in which the optimizer raised, and for
        optimizers that take the scaler as an argument and recorded no check."""
        return self._last_step

    @property
    def history(self) -> _ScaleHistory:
        """One row per ``update()``, see :class:`ScaleHistory`. Assign another ScaleHistory for another capacity."""
        history = self._history
        if history is None:
            history = _history.ScaleHistory()
            if self._enabled:
                self._history = history
        return history

    @history.setter
    def history(self, history: _ScaleHistory) -> None:
        if not isinstance(history, _history.ScaleHistory):
            raise TypeError(f"history must be a ScaleHistory, got {type(history).__name__}")
        self._history = history

    def metrics(self) -> dict[str, float]:
        """Flat dict for a progress bar or logger: scale, growth_tracker, steps taken, skipped_total (by step()),
        skipped_in_a_row (of the optimizer with most), skip_rate, and with limits floor_hits."""
        taken = skipped = in_a_row = 0
        if self._enabled:
            taken, skipped, in_a_row = self._steps_taken, self._steps_skipped, self._skips.in_a_row
        metrics: dict[str, float] = {
            "scale": float(self.get_scale()),
            "growth_tracker": self._get_growth_tracker(),
            "steps": taken,
            "skipped_total": skipped,
            "skipped_in_a_row": in_a_row,
            "skip_rate": skipped / (taken + skipped) if taken + skipped else 0.0,
        }
        if self._limits is not None:
            metrics["floor_hits"] = self._limits.floor_hits
        return metrics

    def log_to(self, writer: Any, step: int) -> None:
        """Send ``metrics()`` to anything with ``add_scalar(name, value, step)``."""
        for name, value in self.metrics().items():
            writer.add_scalar(f"amp/{name}", value, step)

    def explain(self) -> Explanation:
        """Why steps were skipped: for each of the last 32, the parameters with inf or NaN, their counts, the scale before and
        after, and the cause: where scale, gradients, losses and neighbouring steps do not tell it, what it may have been. A step that
        the script itself left out, after unscale_() found inf or NaN, counts as skipped here."""
        if not self._enabled:
            return Explanation((), 0)
        steps = (*self._skips, *self._pending.values())
        skipped = max(self._steps_skipped, self._skips.total + len(self._pending))
        return Explanation(steps[-_EXPLAINED_STEPS:], skipped, self._steps_taken + skipped)

    def __repr__(self) -> str:
        if not self._enabled:
            return f"{type(self).__name__}(device={self._device!r}, enabled=False)"
        return (
            f"{type(self).__name__}(device={self._device!r}, scale={self.get_scale()!r}, "
            f"growth_tracker={self._get_growth_tracker()})"
        )


# ---- the caller ------------------------------------------------------------------------------------------------------


def _cuda_is_available() -> bool:
    from .. import cuda

    return cuda.is_available()
