"""Muon: momentum whose matrices are made nearly orthogonal (Jordan et al., 2024)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .. import _C
from .._C import Tensor
from ..autograd.grad_mode import no_grad
from .optimizer import Optimizer, check_rate

_ADJUSTMENTS = (None, "original", "match_rms_adamw")


def _orthogonalised(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Newton-Schulz iterations in bfloat16, which move the singular values of ``x`` towards 1."""
    if steps >= 100:
        raise ValueError(f"Number of steps must be less than 100 for computational efficiency, not {steps}: lower ns_steps")
    if len(coefficients) != 3:
        raise ValueError(f"Coefficients must be a tuple of exactly 3 values, not {len(coefficients)}: see ns_coefficients")
    a, b, c = coefficients
    tall = x.size(0) > x.size(1)
    x = x.bfloat16()
    x = x.T.contiguous() if tall else x
    x = x / x.norm().clamp(min=eps)
    addmm = _C.functions.addmm
    for _ in range(steps):
        gram = x @ x.T
        x = addmm(x, addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Muon(Optimizer):
    """p -= rate * O(d), with O the nearest orthogonal matrix or so and d the running mean of the gradient, with ``nesterov`` moved
    towards it from the gradient; before that p *= 1 - lr * weight_decay.

    For the matrices of hidden layers: ValueError for parameters that aren't 2-dimensional, which belong to another optimizer (AdamW).
    ``adjust_lr_fn``: how the rate follows from ``lr``, by sqrt(max(1, rows / columns)) ("original" or None) or by
    0.2 sqrt(max(rows, columns)), which suits the rates of AdamW ("match_rms_adamw"). O takes ``ns_steps`` iterations x -> a x + (b g +
    c g g) x, g = x x^T, in bfloat16, with the ``ns_coefficients`` (a, b, c). State: ``momentum_buffer``, of the parameter's shape.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_rate(lr)
        for name, value in (("Learning rate", lr), ("momentum", momentum), ("weight decay", weight_decay)):
            if not value >= 0:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in _ADJUSTMENTS:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported: it is one of {_ADJUSTMENTS}")
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients,
            "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for param in group["params"]:
                if param.dim() != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {param.shape}")

    def _step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], grad_scale: float) -> None:
        lr, momentum = float(group["lr"]), group["momentum"]
        with no_grad():
            for param, grad in zip(params, grads, strict=True):
                state = self.state[param]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = _C.functions.zeros_like(grad)
                buffer = state["momentum_buffer"].lerp_(grad, 1 - momentum)
                step = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
                step = _orthogonalised(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
                rows, columns = param.shape
                if group["adjust_lr_fn"] == "match_rms_adamw":
                    factor = 0.2 * math.sqrt(max(rows, columns))
                else:
                    factor = math.sqrt(max(1, rows / columns))
                param.mul_(1 - lr * group["weight_decay"])
                param.add_(step, alpha=-lr * factor)
