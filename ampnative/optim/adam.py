"""Adam, and what its family shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .. import _C
from .._C import Tensor
from .optimizer import Optimizer, as_counter, check_betas, check_non_negative, check_options, check_steps

_zeros_like = _C.functions.zeros_like
_adam: Callable[..., bool | None] = _C._adam_


class AdamFamily(Optimizer):
    """Checks, state and the C call of Adam, AdamW and NAdam. Computed in fp32 for 16-bit parameters, rounded once."""

    _nadam = False
    _counters: tuple[str, ...] = ("step",)

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        check_non_negative("learning rate", defaults["lr"])
        check_non_negative("epsilon", defaults["eps"])
        check_betas(defaults["betas"])
        check_non_negative("weight_decay", defaults["weight_decay"])
        self._check_own(defaults)
        super().__init__(params, defaults)
        self._step_supports_amp_scaling = check_options(type(self).__name__, defaults, self.param_groups)

    def _check_own(self, defaults: dict[str, Any]) -> None:
        """Checks that come after those of the family."""

    def _make_state(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Fills the states of parameters that have none, and adds what ``amsgrad`` needs where it was switched on since; KeyError for one
        that lost a part, and nothing made. Tensors of one kind are made one after the other: those of small parameters lie side by
        side then, and a step walks through them as through one.
        """
        makers: dict[str, Callable[[Tensor], Tensor]] = {"step": lambda _: as_counter(0.0)}
        if self._nadam:
            makers["mu_product"] = lambda _: as_counter(1.0)
        makers["exp_avg"] = makers["exp_avg_sq"] = _zeros_like
        for p in params:
            missing = [key for key in makers if self.state[p] and key not in self.state[p]]
            if missing:
                raise KeyError(
                    f"{missing[0]}: the state of a parameter of shape {tuple(p.shape)} has {', '.join(map(repr, self.state[p]))} but not "
                    "this. Load a complete state_dict, or clear the state to start it anew"
                )
        if group.get("amsgrad"):
            makers["max_exp_avg_sq"] = _zeros_like
        made = [[(p, key, make(p)) for p in params if key not in self.state[p]] for key, make in makers.items()]
        for entries in made:
            for p, key, value in entries:
                self.state[p][key] = value

    def _prepare_state(self) -> None:
        for group in self.param_groups:
            lacking = [p for p in group["params"] if p.grad is not None and "exp_avg_sq" not in self.state[p]]
            self._make_state(group, lacking)

    def _step_usual(self, group: dict[str, Any], grad_scale: float) -> bool:
        return self._call(group, group["params"], None, grad_scale) is not False

    def _step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], grad_scale: float) -> None:
        try:
            done = self._call(group, params, grads, grad_scale)
        except TypeError:
            check_steps(self.state[p] for p in params)
            raise
        if done is not False:
            return
        self._make_state(group, params)
        self._step_group(group, params, grads, grad_scale)

    def _call(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor] | None, grad_scale: float) -> bool | None:
        """The step in C; False: some state isn't there yet, or without `grads` something is unusual."""
        beta1, beta2 = group["betas"]
        return _adam(
            params,
            grads,
            self.state,
            None,
            None,
            None,
            None,
            group["lr"],
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            group["momentum_decay"] if self._nadam else 0.0,
            group.get("amsgrad", False),
            group["maximize"],
            group["decoupled_weight_decay"],
            self._nadam,
            grad_scale,
        )


class Adam(AdamFamily):
    """p -= lr * m / (sqrt(v) + eps), with m and v the bias-corrected running means of the gradient and its square
    (Kingma and Ba, 2014):

    m = beta1 * m + (1 - beta1) * grad, divided by 1 - beta1^t; v likewise with beta2 and grad^2.

    ``amsgrad`` divides by the largest v so far; ``weight_decay`` is added to the gradient (``decoupled_weight_decay``:
    shrinks the parameter, as AdamW); ``maximize`` steps uphill. 16-bit parameters are computed in fp32 and rounded
    once. ``fused=True`` lets GradScaler hand its scale to the step; ``foreach`` and ``capturable`` change nothing.
    ValueError for negative options, betas outside [0, 1) or of two kinds (both are floats, or both tensors), and a tensor as ``lr`` or
    betas with ``foreach=True`` unless ``capturable``.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True: give a number")
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=(betas[0], betas[1]),
                eps=eps,
                weight_decay=weight_decay,
                amsgrad=amsgrad,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
                fused=fused,
                decoupled_weight_decay=decoupled_weight_decay,
            ),
        )

    def _check_own(self, defaults: dict[str, Any]) -> None:
        beta1, beta2 = defaults["betas"][:2]
        for kind in (float, Tensor):
            if isinstance(beta1, kind) and isinstance(beta2, kind):
                break
        else:
            kinds = f"{type(beta1).__name__} and {type(beta2).__name__}"
            raise ValueError(f"betas must be either both floats or both Tensors, not {kinds}")
        if isinstance(beta1, Tensor) and defaults["foreach"] and not defaults["capturable"]:
            raise ValueError("betas[0] as a Tensor is not supported for capturable=False and foreach=True: give numbers")
