"""Averaged stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._C import Tensor
from .elementwise import ElementwiseOptimizer, counter, decayed, zeros_like
from .optimizer import as_counter, check_non_negative


class ASGD(ElementwiseOptimizer):
    """p = (1 - lambd * eta) * p - eta * grad, with the rate eta = lr / (1 + lambd * lr * step)^alpha; ``ax`` in the state is
    the mean of the parameter from step ``t0`` on.

    State: ``step``, ``eta``, ``mu`` (weight of the next mean), ``ax`` (of the parameter's shape). Computed in fp32 for 16-bit
    parameters, rounded once. ``foreach`` and ``capturable`` change nothing. ValueError for a negative lr or weight_decay.
    """

    _plain_steps = True

    _counters = ("step", "eta", "mu")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = dict(
            lr=lr,
            lambd=lambd,
            alpha=alpha,
            t0=t0,
            weight_decay=weight_decay,
            foreach=foreach,
            maximize=maximize,
            differentiable=differentiable,
            capturable=capturable,
        )
        check_non_negative("learning rate", lr)
        check_non_negative("lambd", lambd)
        check_non_negative("alpha", alpha)
        check_non_negative("weight_decay", weight_decay)
        super().__init__(params, defaults)

    def _new_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        return {"step": counter(), "eta": as_counter(group["lr"]), "mu": as_counter(1.0), "ax": zeros_like(param)}

    def _update(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        rate, lambd, eta, mu = float(group["lr"]), group["lambd"], state["eta"].item(), state["mu"].item()
        grad = decayed(grad, param, group["weight_decay"])
        param.mul_(1 - lambd * eta).add_(grad, alpha=-eta)
        mean = state["ax"]
        if mu == 1:
            mean.copy_(param)
        else:
            mean.add_((param - mean).mul_(mu))
        state["eta"] = as_counter(rate / (1 + lambd * rate * step) ** group["alpha"]).to(state["eta"].dtype)
        state["mu"] = as_counter(1 / max(1, step - group["t0"])).to(state["mu"].dtype)
