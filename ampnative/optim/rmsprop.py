"""RMSprop: gradients divided by the root of their running mean square."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._C import Tensor
from .elementwise import ElementwiseOptimizer, counter, decayed, zeros_like
from .optimizer import check_non_negative


class RMSprop(ElementwiseOptimizer):
    """p -= lr * grad / (sqrt(v) + eps), v the running mean (weight ``alpha``) of grad²; ``centered``: minus the square of the
    running mean; with ``momentum`` the quotients are summed up in a buffer first.

    State: ``step``, ``square_avg``, with momentum ``momentum_buffer``, centered ``grad_avg``, of the parameter's shape.
    Computed in fp32 for 16-bit parameters, rounded once. ``foreach`` and ``capturable`` change nothing. ValueError for a
    negative option.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = dict(
            lr=lr,
            momentum=momentum,
            alpha=alpha,
            eps=eps,
            centered=centered,
            weight_decay=weight_decay,
            capturable=capturable,
            foreach=foreach,
            maximize=maximize,
            differentiable=differentiable,
        )
        check_non_negative("learning rate", lr)
        check_non_negative("epsilon", eps)
        check_non_negative("momentum", momentum)
        check_non_negative("weight_decay", weight_decay)
        check_non_negative("alpha", alpha)
        super().__init__(params, defaults)

    def _new_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        state = {"step": counter(), "square_avg": zeros_like(param)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(param)
        if group["centered"]:
            state["grad_avg"] = zeros_like(param)
        return state

    def _update(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        alpha, rate = group["alpha"], float(group["lr"])
        grad = decayed(grad, param, group["weight_decay"])
        square = state["square_avg"].mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"].lerp_(grad, 1 - alpha)
            square = square.addcmul(mean, mean, value=-1)
        root = square.sqrt().add_(group["eps"])
        if group["momentum"] > 0:
            buffer = state["momentum_buffer"].mul_(group["momentum"]).addcdiv_(grad, root)
            param.add_(buffer, alpha=-rate)
        else:
            param.addcdiv_(grad, root, value=-rate)
