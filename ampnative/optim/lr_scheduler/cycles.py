"""Schedulers that go up and down: CosineAnnealingWarmRestarts, OneCycleLR, CyclicLR."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, per_group, require_momentum, require_optimizer, saved_function, set_momentum, set_option


def cosine_annealed(start: float, end: float, share: float) -> float:
    """Between ``start`` (share 0) and ``end`` (share 1) along half a cosine."""
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def linearly_annealed(start: float, end: float, share: float) -> float:
    """The number at ``share`` of the way from ``start`` to ``end``."""
    return (end - start) * share + start


ANNEALING: dict[str, Callable[[float, float, float], float]] = {"cos": cosine_annealed, "linear": linearly_annealed}


def check_strategy(name: str) -> None:
    """ValueError unless it is "cos" or "linear"."""
    if name not in ANNEALING:
        raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {name}")


class CosineAnnealingWarmRestarts(LRScheduler):
    """From the initial rate to ``eta_min`` along half a cosine, again and again: ``T_0`` epochs at first, each time ``T_mult``
    times as many. ``step(epoch)`` takes fractions of epochs.
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min, self.T_cur = T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._rates()
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """To the next epoch, or to ``epoch`` (0 or more, ValueError; may be a fraction)."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            self._place(epoch)
        self.last_epoch = math.floor(epoch) - 1
        self._advance()

    def _place(self, epoch: float) -> None:
        """Sets the cycle, and the position in it, that ``epoch`` falls into."""
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        self.T_i, self.T_cur = self.T_0, epoch  # type: ignore[assignment]
        if epoch < self.T_0:
            return
        if self.T_mult == 1:
            self.T_cur = epoch % self.T_0  # type: ignore[assignment]
            return
        cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
        self.T_cur = epoch - self.T_0 * (self.T_mult**cycle - 1) / (self.T_mult - 1)
        self.T_i = self.T_0 * self.T_mult**cycle


def _positive_int(name: str, value: Any) -> int:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"Expected positive integer {name}, but got {value}")
    return value


class OneCycleLR(LRScheduler):
    """Up from ``max_lr / div_factor`` to ``max_lr`` in the first ``pct_start`` of all steps, then down to the initial rate
    ``/ final_div_factor``; with ``three_phase`` back to the initial rate first, and down to the end after that. The momentum
    (or beta1) goes the other way, from ``max_momentum`` to ``base_momentum`` and back, if ``cycle_momentum``.

    Step once per batch, ``total_steps`` (or ``epochs * steps_per_epoch``) times: one more is a ValueError. ``max_lr`` and the
    momenta may be lists with one number per group.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        if total_steps is not None:
            self.total_steps = _positive_int("total_steps", total_steps)
        elif epochs is not None and steps_per_epoch is not None:
            self.total_steps = _positive_int("epochs", epochs) * _positive_int("steps_per_epoch", steps_per_epoch)
        else:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        check_strategy(anneal_strategy)
        self._schedule_phases = self._phases(pct_start, three_phase)
        self._anneal_func_type = anneal_strategy
        peaks = per_group("max_lr", max_lr, optimizer)
        if last_epoch == -1:
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["initial_lr"] = peak / div_factor
                group["max_lr"], group["min_lr"] = peak, group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = require_momentum(optimizer)
            largest = per_group("max_momentum", max_momentum, optimizer)
            smallest = per_group("base_momentum", base_momentum, optimizer)
            if last_epoch == -1:
                for group, top, bottom in zip(optimizer.param_groups, largest, smallest, strict=True):
                    set_momentum(group, self.use_beta1, top)
                    group["max_momentum"], group["base_momentum"] = top, bottom
        super().__init__(optimizer, last_epoch)

    def _phases(self, pct_start: float, three_phase: bool) -> list[dict[str, Any]]:
        def phase(end_step: float, start_lr: str, end_lr: str, start_momentum: str, end_momentum: str) -> dict[str, Any]:
            return dict(
                end_step=end_step, start_lr=start_lr, end_lr=end_lr, start_momentum=start_momentum, end_momentum=end_momentum
            )

        top = float(pct_start * self.total_steps)
        up = phase(top - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if not three_phase:
            return [up, phase(self.total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        down = phase(2 * top - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum")
        return [up, down, phase(self.total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]

    def get_lr(self) -> list[Any]:
        self._rates()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        start, last = 0.0, self._schedule_phases[-1]
        for phase in self._schedule_phases:
            if step <= phase["end_step"] or phase is last:
                break
            start = phase["end_step"]
        share = (step - start) / (phase["end_step"] - start)
        anneal = ANNEALING[self._anneal_func_type]
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(anneal(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                momentum = anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
                set_momentum(group, self.use_beta1, momentum)
        return rates


_MODES = ("triangular", "triangular2", "exp_range")


class CyclicLR(LRScheduler):
    """Back and forth between ``base_lr`` and ``max_lr``: ``step_size_up`` steps up, ``step_size_down`` (as many) down.

    ``mode``: "triangular"; "triangular2" halves the height every cycle; "exp_range" scales it by gamma ** steps. Or a function
    ``scale_fn`` of the cycle's number (from 1 on) or of the steps (``scale_mode="iterations"``). The momentum (or beta1) goes the
    other way, if ``cycle_momentum``. Step once per batch.
    """

    _skipped_in_state = ("optimizer", "_scale_fn_custom")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        base_lrs = per_group("base_lr", base_lr, optimizer)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                set_option(group, "lr", rate)
        self.max_lrs = per_group("max_lr", max_lr, optimizer)
        up = float(step_size_up)
        down = up if step_size_down is None else float(step_size_down)
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        if mode not in _MODES and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _start_momentum(self, optimizer: Optimizer, base_momentum: Any, max_momentum: Any, last_epoch: int) -> None:
        self.use_beta1 = require_momentum(optimizer)
        self.base_momentums = per_group("base_momentum", base_momentum, optimizer)
        self.max_momentums = per_group("max_momentum", max_momentum, optimizer)
        if last_epoch != -1:
            return
        for group, top, bottom in zip(optimizer.param_groups, self.max_momentums, self.base_momentums, strict=True):
            set_momentum(group, self.use_beta1, top)
            group["max_momentum"], group["base_momentum"] = top, bottom

    def scale_fn(self, x: float) -> float:
        """Height of a cycle, as a share of the whole range."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return {"triangular": lambda: 1.0, "triangular2": lambda: 1 / (2.0 ** (x - 1)), "exp_range": lambda: self.gamma**x}[
            self.mode
        ]()

    def get_lr(self) -> list[Any]:
        self._rates()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, top, bottom in zip(self.optimizer.param_groups, self.max_momentums, self.base_momentums, strict=False):
                set_momentum(group, self.use_beta1, top - (top - bottom) * height * scale)
        return [base + (peak - base) * height * scale for base, peak in zip(self.base_lrs, self.max_lrs, strict=False)]

    def state_dict(self) -> dict[str, Any]:
        """``scale_fn`` is not saved if it is a function; a callable object saves its attributes."""
        function = self._scale_fn_custom
        return {**super().state_dict(), "_scale_fn_custom": None if function is None else saved_function(function)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved state; functions stay those of this scheduler."""
        state = dict(state_dict)
        attributes = state.pop("_scale_fn_custom", None)
        self.__dict__.update(state)
        if attributes is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(attributes)
