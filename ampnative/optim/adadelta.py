"""Adadelta: steps in the units of the parameter, by the ratio of two running roots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._C import Tensor
from .elementwise import ElementwiseOptimizer, counter, decayed, zeros_like
from .optimizer import check_non_negative


class Adadelta(ElementwiseOptimizer):
    """p -= lr * d with d = grad * sqrt(u + eps) / sqrt(v + eps), where v and u are the running means (weight ``rho``) of grad²
    and d².

    State: ``step``, ``square_avg`` (v) and ``acc_delta`` (u), of the parameter's shape. Computed in fp32 for 16-bit
    parameters, rounded once. ``foreach`` and ``capturable`` change nothing. ValueError for an option out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = dict(
            lr=lr,
            rho=rho,
            eps=eps,
            weight_decay=weight_decay,
            maximize=maximize,
            capturable=capturable,
            foreach=foreach,
            differentiable=differentiable,
        )
        check_non_negative("learning rate", lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_non_negative("epsilon", eps)
        check_non_negative("weight_decay", weight_decay)
        super().__init__(params, defaults)

    def _new_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        return {"step": counter(), "square_avg": zeros_like(param), "acc_delta": zeros_like(param)}

    def _update(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        rho, eps = group["rho"], group["eps"]
        grad = decayed(grad, param, group["weight_decay"])
        root = state["square_avg"].mul_(rho).addcmul_(grad, grad, value=1 - rho).add(eps).sqrt_()
        delta = state["acc_delta"].add(eps).sqrt_().div_(root).mul_(grad)
        state["acc_delta"].mul_(rho).addcmul_(delta, delta, value=1 - rho)
        param.add_(delta, alpha=-float(group["lr"]))
