"""Schedulers with one rule per epoch. All but LambdaLR change the group's current rate, so a rate that the user edits stays
edited.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterable
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, as_functions, saved_function


class _ByFunctions(LRScheduler):
    """Functions are not saved; callable objects save their attributes."""

    _skipped_in_state = ("optimizer", "lr_lambdas")

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Iterable[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        self.lr_lambdas = as_functions(lr_lambda, optimizer)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "lr_lambdas": [saved_function(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        saved = state.pop("lr_lambdas")
        self.__dict__.update(state)
        for function, attributes in zip(self.lr_lambdas, saved, strict=False):
            if attributes is not None:
                function.__dict__.update(attributes)


class LambdaLR(_ByFunctions):
    """Initial rate times ``lr_lambda(epoch)``; one function, or a list with one per group."""

    def get_lr(self) -> list[Any]:
        self._rates()
        return [base * function(self.last_epoch) for function, base in zip(self.lr_lambdas, self.base_lrs, strict=False)]


class MultiplicativeLR(_ByFunctions):
    """Rate times ``lr_lambda(epoch)`` every epoch; one function, or a list with one per group."""

    def get_lr(self) -> list[Any]:
        rates = self._rates()
        if self._is_initial:
            return rates
        return [rate * function(self.last_epoch) for function, rate in zip(self.lr_lambdas, rates, strict=False)]


class StepLR(LRScheduler):
    """Rate times ``gamma`` every ``step_size`` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        rates = self._rates()
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return rates
        return [rate * self.gamma for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Rate times ``gamma`` at each of the ``milestones`` (epochs; one listed twice counts twice)."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones, self.gamma = collections.Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        count = self.milestones.get(self.last_epoch, 0)
        return [rate * self.gamma**count if count else rate for rate in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        passed = sum(count for milestone, count in self.milestones.items() if milestone <= self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Milestones may have become a plain dict, or its keys text, in a file."""
        super().load_state_dict(state_dict)
        self.milestones = collections.Counter({int(milestone): count for milestone, count in dict(self.milestones).items()})


class ExponentialLR(LRScheduler):
    """Rate times ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        rates = self._rates()
        return rates if self._is_initial else [rate * self.gamma for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Rate times ``factor`` for the first ``total_iters`` epochs."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        rates = self._rates()
        if self.last_epoch == 0:
            return [rate * self.factor for rate in rates]
        if self.last_epoch != self.total_iters:
            return rates
        return [rate * (1.0 / self.factor) for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * (self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Factor that goes linearly from ``start_factor`` to ``end_factor`` in ``total_iters`` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        rates = self._rates()
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in rates]
        if self._is_initial or self.last_epoch > self.total_iters:
            return rates
        difference = self.end_factor - self.start_factor
        step = 1.0 + difference / (self.total_iters * self.start_factor + (self.last_epoch - 1) * difference)
        return [rate * step for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * share) for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Initial rate times (1 - epoch / total_iters) ** power, 0 after ``total_iters`` epochs."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        rates = self._rates()
        if self._is_initial or self.last_epoch > self.total_iters:
            return rates
        left, before = 1.0 - self.last_epoch / self.total_iters, 1.0 - (self.last_epoch - 1) / self.total_iters
        return [rate * (left / before) ** self.power for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (1.0 - share) ** self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to ``eta_min`` along half a cosine in ``T_max`` epochs, and back."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        epoch, rates = self.last_epoch, self._rates()
        if self._is_initial:
            return rates
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - self.eta_min) * rise for base, rate in zip(self.base_lrs, rates, strict=False)]
        factor = (1 + math.cos(math.pi * epoch / self.T_max)) / (1 + math.cos(math.pi * (epoch - 1) / self.T_max))
        return [factor * (rate - self.eta_min) + self.eta_min for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]
