"""Adafactor: a second moment of rows and columns, not of elements."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .. import _C
from .._C import Tensor
from .elementwise import ElementwiseOptimizer, counter, zeros_like
from .optimizer import check_rate

_finfo, _zeros = _C.finfo, _C.functions.zeros


class Adafactor(ElementwiseOptimizer):
    """p -= max(eps2, RMS(p)) * min(lr, 1 / sqrt(t)) * u (Shazeer and Stern, 2018), with u = grad / sqrt(v), divided by
    RMS(u) / d where that is above 1.

    v is a running mean of grad^2, of weight t^beta2_decay for the newest. Of a parameter with two dimensions or more it is kept
    as means over the last dimension (``row_var``) and over the one before (``col_var``), whose product takes its place; else as
    ``variance``. ``eps`` is (eps1, eps2): sqrt(v) is eps1 at least (None: the dtype's finfo.eps). ``weight_decay`` shrinks
    the parameter by lr * weight_decay. Computed in fp32 for 16-bit parameters, rounded once; ``foreach`` changes nothing.
    ValueError for options out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_rate(lr)
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(
            params,
            dict(
                lr=lr,
                beta2_decay=beta2_decay,
                eps=eps,
                d=d,
                weight_decay=weight_decay,
                foreach=foreach,
                maximize=maximize,
            ),
        )

    def _new_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        if param.dim() < 2:
            return {"step": counter(), "variance": zeros_like(param)}
        *outer, rows, columns = param.shape

        def zeros(*size: int) -> Tensor:
            return _zeros([*outer, *size], dtype=param.dtype, device=param.device)

        return {"step": counter(), "row_var": zeros(rows, 1), "col_var": zeros(1, columns)}

    def _update_narrow(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        least, eps2 = group["eps"]
        least = _finfo(param.dtype).eps if least is None else least
        super()._update_narrow({**group, "eps": (least, eps2)}, param, grad, state, step)

    def _update(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        least, eps2 = group["eps"]
        least = _finfo(param.dtype).eps if least is None else least
        rate, newest = float(group["lr"]), step ** group["beta2_decay"]
        size = max(eps2, _root_mean_square(param)) * min(rate, 1 / math.sqrt(step))
        if group["weight_decay"]:
            param.mul_(1 - rate * group["weight_decay"])
        squares = grad.square()
        if "variance" in state:
            mean = state["variance"].lerp_(squares, newest)
        else:
            rows = state["row_var"].lerp_(squares.mean(dim=-1, keepdim=True), newest)
            columns = state["col_var"].lerp_(squares.mean(dim=-2, keepdim=True), newest)
            mean = (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=least))
        step_by = grad / mean.clamp(min=least * least).sqrt_()
        param.add_(step_by, alpha=-size / max(1.0, _root_mean_square(step_by) / group["d"]))


def _root_mean_square(x: Tensor) -> float:
    return x.norm().item() / math.sqrt(max(x.numel(), 1))
