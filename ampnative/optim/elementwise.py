"""What the optimizers that are made of tensor ops share: state per parameter, and fp32 arithmetic for 16-bit parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _C
from .._C import Tensor
from ..autograd.grad_mode import no_grad
from .optimizer import Optimizer, as_counter, check_options, check_steps

_NARROW = (_C.float16, _C.bfloat16)
zeros_like, full_like = _C.functions.zeros_like, _C.functions.full_like


class ElementwiseOptimizer(Optimizer):
    """Subclasses define ``_new_state`` and ``_update``. What ``_update`` sees of a 16-bit parameter, its gradient and its
    state is in fp32, and is rounded once when it returns.
    """

    _counters: tuple[str, ...] = ("step",)
    _plain_steps = False  # whether a step count may be a Python number, which then stays as it is

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        self._step_supports_amp_scaling = check_options(type(self).__name__, defaults, self.param_groups)

    def _new_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        """State of a parameter before its first step; tensors of the parameter's shape and dtype, and counters."""
        raise NotImplementedError

    def _update(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float) -> None:
        """One step (number ``step``, from 1 on) of one parameter, in place; ``grad`` must not be written to."""
        raise NotImplementedError

    def _prepare_state(self) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._state_of(group, param)

    def _state_of(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        state = self.state[param]
        if not state:
            state.update(self._new_state(group, param))
        return state

    def _step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], grad_scale: float) -> None:
        with no_grad():
            for param, grad in zip(params, grads, strict=True):
                state = self._state_of(group, param)
                if isinstance(state["step"], Tensor):
                    state["step"] += 1
                    step = state["step"].item()
                else:
                    if not self._plain_steps or group["foreach"]:
                        check_steps([state])
                    step = state["step"] + 1
                if grad_scale != 1.0:
                    grad.copy_(_widened(grad) / grad_scale)
                if param.dtype in _NARROW:
                    self._update_narrow(group, param, grad, state, step)
                    continue
                self._update(group, param, -grad if group["maximize"] else grad, state, step)

    def _update_narrow(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: float
    ) -> None:
        wide_param, wide_grad = _widened(param), _widened(grad)
        wide_state = {key: _widened(value) if isinstance(value, Tensor) else value for key, value in state.items()}
        self._update(group, wide_param, -wide_grad if group["maximize"] else wide_grad, wide_state, step)
        param.copy_(wide_param)
        for key, value in wide_state.items():
            if key in state and isinstance(state[key], Tensor) and state[key].dtype in _NARROW:
                state[key].copy_(value)
            else:
                state[key] = value


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in _NARROW else tensor


def decayed(grad: Tensor, param: Tensor, weight_decay: float) -> Tensor:
    """The gradient with the weight decay added to it."""
    return grad if weight_decay == 0 else grad.add(param, alpha=weight_decay)


def counter() -> Tensor:
    """A step count at zero."""
    return as_counter(0.0)
