"""Resilient backpropagation: a step size per element, steered by the gradient's sign alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _C
from .._C import Tensor
from .elementwise import ElementwiseOptimizer, counter, full_like, zeros_like
from .optimizer import check_non_negative

_where = _C.functions.where


class Rprop(ElementwiseOptimizer):
    """p -= sign(grad) * size. An element's size is multiplied by ``etas[1]`` while the sign stays, by ``etas[0]`` when it
    changes (it then pauses for a step), within ``step_sizes``.

    For whole-batch gradients. State: ``step``, ``prev`` (the last gradient) and ``step_size`` (``lr`` at first), of the
    parameter's shape. Computed in fp32 for 16-bit parameters, rounded once. ``foreach`` and ``capturable`` change nothing.
    ValueError for a negative lr, or unless etas[0] < 1 < etas[1].
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = dict(
            lr=lr,
            etas=etas,
            step_sizes=step_sizes,
            foreach=foreach,
            maximize=maximize,
            differentiable=differentiable,
            capturable=capturable,
        )
        check_non_negative("learning rate", lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, defaults)

    def _new_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        return {"step": counter(), "prev": zeros_like(param), "step_size": full_like(param, float(group["lr"]))}

    def _update(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        shrink, grow = group["etas"]
        smallest, largest = group["step_sizes"]
        agreement = (grad * state["prev"]).sign()
        turned = agreement < 0
        size = state["step_size"]
        factor = _where(agreement > 0, full_like(size, grow), _where(turned, full_like(size, shrink), full_like(size, 1)))
        size.copy_(size.mul_(factor).clamp(smallest, largest))
        grad = grad.masked_fill(turned, 0)
        param.addcmul_(grad.sign(), size, value=-1)
        state["prev"].copy_(grad)
