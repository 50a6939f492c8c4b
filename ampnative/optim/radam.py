"""RAdam: Adam that starts without the second moment, until its variance is small enough to trust."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .._C import Tensor
from .elementwise import ElementwiseOptimizer, counter, decayed, zeros_like
from .optimizer import check_betas, check_non_negative


class RAdam(ElementwiseOptimizer):
    """p -= lr * m * r / (sqrt(v) + eps) once the length rho of the average is above 5, before that p -= lr * m.

    m and v are the bias-corrected running means of the gradient and its square; r grows from 0 to 1 with rho. State:
    ``step``, ``exp_avg`` and ``exp_avg_sq``, of the parameter's shape. ``decoupled_weight_decay`` shrinks the parameter
    instead of changing the gradient. Computed in fp32 for 16-bit parameters, rounded once. ``foreach`` and ``capturable``
    change nothing. ValueError for an option out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = dict(
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            decoupled_weight_decay=decoupled_weight_decay,
            differentiable=differentiable,
        )
        check_non_negative("learning rate", lr)
        check_non_negative("epsilon", eps)
        check_betas(betas)
        check_non_negative("weight_decay", weight_decay)
        super().__init__(params, defaults)

    def _new_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        return {"step": counter(), "exp_avg": zeros_like(param), "exp_avg_sq": zeros_like(param)}

    def _update(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        beta1, beta2 = group["betas"]
        rate, weight_decay = float(group["lr"]), group["weight_decay"]
        if weight_decay != 0 and group["decoupled_weight_decay"]:
            param.mul_(1 - rate * weight_decay)
        else:
            grad = decayed(grad, param, weight_decay)
        mean = state["exp_avg"].lerp_(grad, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        factor = -rate / (1 - beta1**step)
        correction = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / correction
        if length <= 5.0:
            param.add_(mean, alpha=factor)
            return
        numerator = (length - 4) * (length - 2) * longest
        rectified = math.sqrt(numerator / ((longest - 4) * (longest - 2) * length))
        root = square.sqrt().add_(group["eps"])
        param.addcdiv_(mean, root, value=factor * rectified * math.sqrt(correction))
