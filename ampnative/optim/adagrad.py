"""Adagrad: rates that shrink with the sum of squared gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._C import Tensor
from .elementwise import ElementwiseOptimizer, counter, decayed, full_like
from .optimizer import check_non_negative


class Adagrad(ElementwiseOptimizer):
    """p -= lr / (1 + (step - 1) * lr_decay) * grad / (sqrt(sum of squared gradients) + eps).

    State: ``step`` and ``sum`` (of the parameter's shape, ``initial_accumulator_value`` at first), both there from the start.
    Computed in fp32 for 16-bit parameters, rounded once. ``fused=True`` lets GradScaler hand its scale to the step;
    ``foreach`` changes nothing. ValueError for a negative option.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = dict(
            lr=lr,
            lr_decay=lr_decay,
            eps=eps,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            foreach=foreach,
            maximize=maximize,
            differentiable=differentiable,
            fused=fused,
        )
        check_non_negative("learning rate", lr)
        check_non_negative("lr_decay", lr_decay)
        check_non_negative("weight_decay", weight_decay)
        check_non_negative("initial_accumulator_value", initial_accumulator_value)
        check_non_negative("epsilon", eps)
        super().__init__(params, defaults)
        for group in self.param_groups:
            for param in group["params"]:
                self._state_of(group, param)

    def share_memory(self) -> None:
        """Accepted for scripts; tensors live in this process only."""

    def _new_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        return {"step": counter(), "sum": full_like(param, group["initial_accumulator_value"])}

    def _update(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        grad = decayed(grad, param, group["weight_decay"])
        rate = float(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        total = state["sum"].addcmul_(grad, grad)
        param.addcdiv_(grad, total.sqrt().add_(group["eps"]), value=-rate)
