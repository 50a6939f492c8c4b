"""Adamax: Adam with the largest decayed gradient in place of the root mean square."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _C
from .._C import Tensor
from .elementwise import ElementwiseOptimizer, counter, decayed, zeros_like
from .optimizer import check_betas, check_non_negative

_maximum = _C.functions.maximum


class Adamax(ElementwiseOptimizer):
    """p -= lr / (1 - beta1^step) * m / u, with m the running mean of the gradient and u = max(beta2 * u, |grad| + eps).

    State: ``step``, ``exp_avg`` (m) and ``exp_inf`` (u), of the parameter's shape. Computed in fp32 for 16-bit parameters,
    rounded once. ``foreach`` and ``capturable`` change nothing. ValueError for an option out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = dict(
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            foreach=foreach,
            maximize=maximize,
            differentiable=differentiable,
            capturable=capturable,
        )
        check_non_negative("learning rate", lr)
        check_non_negative("epsilon", eps)
        check_betas(betas)
        check_non_negative("weight_decay", weight_decay)
        super().__init__(params, defaults)

    def _new_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        return {"step": counter(), "exp_avg": zeros_like(param), "exp_inf": zeros_like(param)}

    def _update(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        beta1, beta2 = group["betas"]
        grad = decayed(grad, param, group["weight_decay"])
        mean = state["exp_avg"].lerp_(grad, 1 - beta1)
        largest = state["exp_inf"]
        largest.copy_(_maximum(largest.mul_(beta2), grad.abs().add_(group["eps"])))
        param.addcdiv_(mean, largest, value=-float(group["lr"]) / (1 - beta1**step))
