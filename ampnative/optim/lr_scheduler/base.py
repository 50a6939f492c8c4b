"""LRScheduler: what all schedulers share."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..._C import Tensor
from ..optimizer import Optimizer


class LRScheduler:
    """Base: subclasses define ``get_lr``, the rates of all groups for ``self.last_epoch``.

    TypeError without an Optimizer; KeyError if ``last_epoch`` resumes groups that have no "initial_lr".
    """

    _skipped_in_state: tuple[str, ...] = ("optimizer",)
    _get_closed_form_lr: Callable[[], list[Any]]  # defined by those that have one
    _last_lr: list[Any]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        require_optimizer(optimizer)
        self.optimizer = optimizer
        for index, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{index}] when resuming a scheduler: load the "
                    "optimizer's state first, or leave last_epoch at -1"
                )
        self.base_lrs = [_copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._is_initial = self._get_lr_called_within_step = False
        _count_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count, self._is_initial = 0, True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[Any]:
        """The rates for ``last_epoch``; of use inside ``step`` only, see ``get_last_lr``."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr")

    def get_last_lr(self) -> list[Any]:
        """The rates that the last ``step`` set, one per group."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or, deprecated, to ``epoch``) and set the groups' learning rates."""
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warn_epoch()
        self._advance(epoch)

    def _check_order(self) -> None:
        if not getattr(self.optimizer.step, "_tells_scheduler", False):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization: make the "
                "scheduler last, so that it sees the steps",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_stepped", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: its first value is skipped. "
                "Call them in the opposite order.",
                UserWarning,
                stacklevel=3,
            )

    def _advance(self, epoch: int | None = None) -> None:
        """To the next epoch, or to ``epoch`` by the closed form where there is one."""
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                rates = self.get_lr()
            else:
                self.last_epoch = epoch
                rates = self._get_closed_form_lr() if hasattr(self, "_get_closed_form_lr") else self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        if len(rates) != len(self.optimizer.param_groups):
            raise ValueError(
                f"{type(self).__name__} has rates for {len(rates)} groups, but the optimizer has {len(self.optimizer.param_groups)}: "
                "make the scheduler after the last add_param_group()"
            )
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_option(group, "lr", rate)
        self._last_lr = current_rates(self.optimizer)

    def _rates(self) -> list[Any]:
        """The groups' rates, for ``get_lr``."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.", UserWarning, stacklevel=3
            )
        return current_rates(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer (and functions, see there)."""
        return {key: value for key, value in self.__dict__.items() if key not in self._skipped_in_state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state. The optimizer's own state, with the current rates in it, is loaded apart."""
        self.__dict__.update(state_dict)


def require_optimizer(optimizer: Any) -> None:
    """TypeError for what is no Optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def warn_epoch() -> None:
    """The warning about ``step(epoch)``."""
    warnings.warn(
        "The epoch parameter in `scheduler.step()` is deprecated: call step() without it.", UserWarning, stacklevel=3
    )


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def current_rates(optimizer: Optimizer) -> list[Any]:
    """The rates in use, one per group."""
    return [_copied(group["lr"]) for group in optimizer.param_groups]


def set_option(group: dict[str, Any], key: str, value: Any) -> None:
    """Assigns an option of a group; one that is a tensor is filled in place."""
    if isinstance(group[key], Tensor):
        group[key].fill_(value.item() if isinstance(value, Tensor) else value)
    else:
        group[key] = value


def per_group(name: str, value: Any, optimizer: Optimizer) -> list[Any]:
    """A number for all groups, or a list with one for each (ValueError for another length)."""
    groups = optimizer.param_groups
    if not isinstance(value, (list, tuple)):
        return [value] * len(groups)
    if len(value) != len(groups):
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
            f"param_groups has {len(groups)}."
        )
    return list(value)


def require_momentum(optimizer: Optimizer) -> bool:
    """Whether the momentum to cycle is the first of "betas". ValueError if there is neither that nor "momentum"."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return "betas" in optimizer.defaults


def set_momentum(group: dict[str, Any], use_beta1: bool, value: float) -> None:
    """Assigns the momentum of a group, or the first of its betas."""
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def saved_function(function: Any) -> dict[str, Any] | None:
    """What is saved of a function: nothing, or the attributes of a callable object."""
    return None if isinstance(function, types.FunctionType) else dict(getattr(function, "__dict__", {}))


def as_functions(given: Any, optimizer: Optimizer) -> list[Callable[[int], float]]:
    """One function for all groups, or a sequence with one for each (ValueError for another length)."""
    count = len(optimizer.param_groups)
    functions = list(given) if isinstance(given, Sequence) else [given] * count
    if len(functions) != count:
        raise ValueError(f"Expected {count} lr_lambdas, but got {len(functions)}")
    return functions


def _count_steps(optimizer: Optimizer) -> None:
    """Lets this scheduler, and those made later, see whether the optimizer has stepped since."""
    if getattr(optimizer.step, "_tells_scheduler", False):
        return
    inner = optimizer.step

    @functools.wraps(inner)
    def step(*args: Any, **kwargs: Any) -> Any:
        optimizer._stepped = True  # type: ignore[attr-defined]
        return inner(*args, **kwargs)

    step._tells_scheduler = True  # type: ignore[attr-defined]
    optimizer.step = step  # type: ignore[method-assign]
