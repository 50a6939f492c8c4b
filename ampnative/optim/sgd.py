"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .. import _C
from .._C import Tensor
from .optimizer import Optimizer, check_not_negative, check_options

_zeros_like = _C.functions.zeros_like
_sgd: Callable[..., bool | None] = _C._sgd_


class SGD(Optimizer):
    """p -= lr * d, with d = grad + weight_decay * p, or its running sum with momentum:

    buffer = momentum * buffer + (1 - dampening) * d, from buffer = d at first; nesterov: d + momentum * buffer is
    used.

    ``maximize`` steps uphill. 16-bit parameters are computed in fp32 and rounded once. ``fused=True`` lets GradScaler
    hand its scale to the step; ``foreach`` changes nothing. ValueError for negative options, or nesterov without
    momentum.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_not_negative("learning rate", lr)
        check_not_negative("momentum", momentum)
        check_not_negative("weight_decay", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=nesterov,
                maximize=maximize,
                foreach=foreach,
                differentiable=differentiable,
                fused=fused,
            ),
        )
        self._step_supports_amp_scaling = check_options("SGD", self.defaults, self.param_groups)

    def _step_usual(self, group: dict[str, Any], grad_scale: float) -> bool:
        return self._call(group, group["params"], None, grad_scale) is not False

    def _step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], grad_scale: float) -> None:
        try:
            done = self._call(group, params, grads, grad_scale)
        except TypeError:
            if group["momentum"] == 0 or not _forget_none(self.state[p] for p in params):
                raise
            done = False
        if done is False:
            self._step_with_new_buffers(group, params, grads, grad_scale)

    def _call(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor] | None, grad_scale: float) -> bool | None:
        momentum = group["momentum"]
        if momentum == 0:
            return _sgd(
                params,
                grads,
                None,
                group["lr"],
                0.0,
                0.0,
                group["weight_decay"],
                False,
                group["maximize"],
                False,
                grad_scale,
            )
        return _sgd(
            params,
            grads,
            self.state,
            group["lr"],
            momentum,
            group["dampening"],
            group["weight_decay"],
            group["nesterov"],
            group["maximize"],
            False,
            grad_scale,
        )

    def _step_with_new_buffers(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], grad_scale: float) -> None:
        """Some parameters have no buffer yet; theirs starts as the gradient itself, without dampening."""
        old: list[tuple[Tensor, Tensor]] = []
        new: list[tuple[Tensor, Tensor]] = []
        for pair in zip(params, grads, strict=False):
            (old if "momentum_buffer" in self.state[pair[0]] else new).append(pair)
        for pairs, first in ((old, False), (new, True)):
            if not pairs:
                continue
            ps, gs = [p for p, _ in pairs], [g for _, g in pairs]
            buffers = [_zeros_like(p) if first else self.state[p]["momentum_buffer"] for p in ps]
            _sgd(
                ps,
                gs,
                buffers,
                group["lr"],
                group["momentum"],
                group["dampening"],
                group["weight_decay"],
                group["nesterov"],
                group["maximize"],
                first,
                grad_scale,
            )
            for p, buffer in zip(ps, buffers, strict=False):
                self.state[p]["momentum_buffer"] = buffer

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _forget_none(values for values in self.state.values() if isinstance(values, dict))


def _forget_none(states: Iterable[dict[str, Any]]) -> bool:
    """A buffer of None is one that doesn't exist yet. Whether there were any."""
    absent = [state for state in states if state.get("momentum_buffer", state) is None]
    for state in absent:
        del state["momentum_buffer"]
    return bool(absent)
