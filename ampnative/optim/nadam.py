"""NAdam: Adam with Nesterov momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _C
from .._C import Tensor
from .adam import AdamFamily
from .optimizer import check_non_negative


class NAdam(AdamFamily):
    """Adam whose first moment looks one step ahead (Dozat, 2016); its weight mu_t = beta1 * (1 - 0.5 * 0.96^(t *
    momentum_decay)) grows with t. Other arguments as in Adam.
    """

    _nadam = True
    _counters = ("step", "mu_product")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                momentum_decay=momentum_decay,
                decoupled_weight_decay=decoupled_weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _check_own(self, defaults: dict[str, Any]) -> None:
        check_non_negative("momentum_decay", defaults["momentum_decay"])

    def _call(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor] | None, grad_scale: float) -> bool | None:
        """A loaded ``mu_product`` has the parameter's dtype; of 16 bits it is stepped in fp32 and rounded."""
        if grads is None:  # such products are unusual
            return super()._call(group, params, grads, grad_scale)
        narrow = [s for p in params if (s := self.state[p]) and s["mu_product"].dtype in (_C.float16, _C.bfloat16)]
        kept = [state["mu_product"] for state in narrow]
        for state, product in zip(narrow, kept, strict=True):
            state["mu_product"] = product.float()
        try:
            return super()._call(group, params, grads, grad_scale)
        finally:
            for state, product in zip(narrow, kept, strict=True):
                state["mu_product"] = product.copy_(state["mu_product"])
