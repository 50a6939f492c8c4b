"""Averages of weights along training: AveragedModel, its averaging rules, its schedule, and update_bn."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import _C
from .._C import Tensor
from ..autograd.grad_mode import no_grad
from ..nn.module import Module
from .lr_scheduler.base import LRScheduler, per_group, require_optimizer
from .lr_scheduler.cycles import check_strategy
from .optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

_NARROW = (_C.float16, _C.bfloat16)
PairFunction = Callable[[Tensor, Tensor, Any], Tensor]
ListFunction = Callable[[list[Tensor], list[Tensor], Any], None]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _in_fp32(rule: Callable[[Tensor, Tensor], Tensor], average: Tensor, value: Tensor) -> Tensor:
    """``rule`` of the two, computed in fp32 and rounded once where both have the same 16 bits."""
    if average.dtype == value.dtype and average.dtype in _NARROW:
        return rule(average.float(), value.float()).to(average.dtype)
    return rule(average, value)


def _mixed(average: Tensor, value: Tensor, decay: float) -> Tensor:
    """decay * average + (1 - decay) * value; fp32 for integers."""
    return _in_fp32(lambda a, v: a * decay + v * (1 - decay), average, value)


def _move_all(averages: list[Tensor], values: list[Tensor], weight: float) -> None:
    """average += weight * (value - average), in place."""
    for average, value in zip(averages, values, strict=True):
        average.copy_(_in_fp32(lambda a, v: a.lerp(v.to(a.dtype), weight), average, value))


def _have_fractions(averages: list[Tensor]) -> bool:
    return bool(averages) and averages[0].is_floating_point()


def get_ema_avg_fn(decay: float = 0.999) -> PairFunction:
    """(average, value, number averaged) -> decay * average + (1 - decay) * value, of integers in fp32. ValueError unless
    0 <= decay <= 1.
    """
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return _mixed(ema_param, current_param, decay)

    return ema_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> ListFunction:
    """The exponential moving average of a whole list, in place; integers are cut off."""
    _check_decay(decay)

    def ema_update(ema_param_list: list[Tensor], current_param_list: list[Tensor], _: Any) -> None:
        with no_grad():
            if _have_fractions(ema_param_list):
                _move_all(ema_param_list, current_param_list, 1 - decay)
                return
            for average, value in zip(ema_param_list, current_param_list, strict=True):
                average.copy_(_mixed(average, value, decay))

    return ema_update


def get_swa_avg_fn() -> PairFunction:
    """(average, value, number averaged) -> the equal mean of all values so far, of integers in fp32 (their difference wraps around)."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return _in_fp32(lambda a, v: a + (v - a) / (num_averaged + 1), averaged_param, current_param)

    return swa_update


def get_swa_multi_avg_fn() -> ListFunction:
    """The equal mean of a whole list, in place. RuntimeError for integers: the mean of one by one (:func:`get_swa_avg_fn`) takes them."""

    def swa_update(averaged_param_list: list[Tensor], current_param_list: list[Tensor], num_averaged: Any) -> None:
        with no_grad():
            if not _have_fractions(averaged_param_list):
                _refuse_integers(averaged_param_list, num_averaged)
            _move_all(averaged_param_list, current_param_list, float(1 / (num_averaged + 1)))

    return swa_update


def _refuse_integers(averages: list[Tensor], count: Any) -> None:
    for average in averages[:1]:
        if average.dtype == _C.bool:
            raise NotImplementedError("Subtraction, the `-` operator, with two bool tensors is not supported: averages need numbers")
        if isinstance(count, Tensor):
            what = "Integer division with addcdiv is no longer supported"
        else:
            what = "For integral input tensors, argument alpha must not be a floating point number"
        raise RuntimeError(f"{what}: averages are {average.dtype}, which has no fractions. Use get_swa_avg_fn() as avg_fn")


class AveragedModel(Module):
    """A copy of ``model`` (``module``) whose parameters become averages of the model's: call ``update_parameters(model)``
    after optimizer steps.

    The rule is the equal mean unless ``avg_fn(average, value, n_averaged)`` (returns the new average) or ``multi_avg_fn(averages,
    values, n_averaged)`` (in place) is given. ``use_buffers``: average buffers too (integers are cut off; bool ones are an error of
    equal means), else copy them. ``device``: where the average lives.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: PairFunction | None = None,
        multi_avg_fn: ListFunction | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _C.tensor(0, dtype=_C.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the model's present parameters into the average; the first ones are copied."""
        averages: list[Tensor] = list(self.module.parameters())
        values: list[Tensor] = list(model.parameters())
        if self.use_buffers:
            averages += self.module.buffers()
            values += model.buffers()
        averages = [a.detach() for a in averages]
        values = [v.detach().to(a.device) for v, a in zip(values, averages, strict=True)]
        with no_grad():
            if int(self.n_averaged) == 0:
                for average, value in zip(averages, values, strict=True):
                    average.copy_(value)
            elif self.multi_avg_fn is not None:
                kinds: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
                for average, value in zip(averages, values, strict=True):
                    kind = kinds.setdefault((average.device.type, average.dtype), ([], []))
                    kind[0].append(average)
                    kind[1].append(value)
                for some, theirs in kinds.values():
                    self.multi_avg_fn(some, theirs, self.n_averaged)
            else:
                rule = self.avg_fn or get_swa_avg_fn()
                for average, value in zip(averages, values, strict=True):
                    average.copy_(rule(average, value, self.n_averaged.to(average.device)))
            if not self.use_buffers:
                for mine, its in zip(self.module.buffers(), model.buffers(), strict=True):
                    mine.detach().copy_(its.detach())
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of all batch-norm layers by one pass of ``loader`` (batches, or sequences whose first
    item is one) through ``model``, as equal means over the batches. Modes and momenta are as before afterwards.
    """
    layers = {m: getattr(m, "momentum", None) for m in model.modules() if hasattr(m, "reset_running_stats")}
    if not layers:
        return
    was_training = model.training
    model.train()
    for layer in layers:
        layer.momentum = None
        layer.reset_running_stats()
    try:
        with no_grad():
            for batch in loader:
                inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(inputs if device is None else inputs.to(device))
    finally:
        for layer, momentum in layers.items():
            layer.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """From the rate at that moment to ``swa_lr`` (a number, or one per group) in ``anneal_epochs`` epochs, by a cosine ("cos")
    or linearly; constant afterwards.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        for rate, group in zip(per_group("swa_lr", swa_lr, optimizer), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        check_strategy(anneal_strategy)
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _weight(self, step: int) -> float:
        share = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return share if self._anneal_strategy == "linear" else (1.0 - math.cos(math.pi * share)) / 2

    def get_lr(self) -> list[Any]:
        """The first rate is recovered from the present one, so that a rate that the user edits stays edited."""
        rates = self._rates()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._weight(step - 1), self._weight(step)
        result = []
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            end = group["swa_lr"]
            first = end if before == 1 else (rate - before * end) / (1 - before)
            result.append(end * now + first * (1 - now))
        return result
