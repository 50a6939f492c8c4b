"""Schedulers made of schedulers: one after the other, or all at once."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, current_rates, set_option
from .plateau import ReduceLROnPlateau


def _check_members(owner: str, schedulers: Sequence[LRScheduler], optimizer: Optimizer) -> None:
    for index, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{owner} at index {index} should have `optimizer` as its attribute.")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{owner} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be specified when "
                f"calling `step`, but got one at index {index} in the given schedulers sequence."
            )
        if scheduler.optimizer is not optimizer:
            raise ValueError(
                f"{owner} expects all schedulers to belong to the same optimizer, but got scheduler {type(scheduler).__name__} "
                f"at index {index} has another {type(scheduler.optimizer).__name__}"
            )


class _Combined(LRScheduler):
    _schedulers: list[LRScheduler]
    _skipped_in_state = ("optimizer", "_schedulers")

    def state_dict(self) -> dict[str, Any]:
        """The members' states are in a list under "_schedulers"."""
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        members = state.pop("_schedulers")
        self.__dict__.update(state)
        for scheduler, saved in zip(self._schedulers, members, strict=False):
            scheduler.load_state_dict(saved)


class SequentialLR(_Combined):
    """One scheduler after the other: number i + 1 takes over at epoch ``milestones[i]``, from its own epoch 0."""

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        _check_members("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, "
                f"but got number of schedulers {len(schedulers)} and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            set_option(group, "lr", group["initial_lr"])
        for scheduler in schedulers:  # all have made their first step on the same rates: take it back
            scheduler.last_epoch -= 1
        schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Go to the next epoch."""
        self.last_epoch += 1
        index = bisect.bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            scheduler._advance(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Combined):
    """All schedulers step, one on the result of the other."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        self.optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        _check_members("ChainedScheduler", schedulers, self.optimizer)
        self._schedulers = list(schedulers)
        self._last_lr = current_rates(self.optimizer)

    def step(self) -> None:  # type: ignore[override]
        """Go to the next epoch."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = current_rates(self.optimizer)
