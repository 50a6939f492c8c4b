"""Reverse-mode differentiation: backward, grad, own functions, grad mode, checks against finite differences."""

from __future__ import annotations

import warnings
from typing import Any

from .. import _C
from . import graph
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .function import Function
from .grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from .gradcheck import GradcheckError, gradcheck, gradgradcheck

__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]


class _VariableType(type):
    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, _C.Tensor)


class Variable(metaclass=_VariableType):
    """The old name of a tensor that may require gradients: ``Variable(x, requires_grad=False)`` is a leaf that shares x's memory."""

    def __new__(cls, data: _C.Tensor, requires_grad: bool = False, volatile: Any = None) -> _C.Tensor:  # type: ignore[misc]
        if volatile is not None:
            warnings.warn("volatile was removed and now has no effect. Use `with no_grad():` instead.", stacklevel=2)
        return data.detach().requires_grad_(requires_grad)


def _tensors(value: Any) -> tuple:
    return (value,) if isinstance(value, (_C.Tensor, graph.GradientEdge)) else tuple(value)


def _gradients(value: Any, count: int) -> tuple:
    if value is None:
        return (None,) * count
    gradients = _tensors(value)
    if len(gradients) != count:
        raise RuntimeError(f"got {count} tensors and {len(gradients)} gradients: give one gradient (or None) per tensor")
    return gradients


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Adds the gradients of the sum of ``tensors`` to ``.grad`` of the leaves (or of ``inputs`` only).

    ``grad_tensors`` weights each tensor; None is allowed for tensors of one element. ``retain_graph`` defaults to
    ``create_graph``.
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) mean the same: give only grad_tensors")
        grad_tensors = grad_variables
    roots = _tensors(tensors)
    wanted = () if inputs is None else _tensors(inputs)
    if inputs is not None and not wanted:
        raise RuntimeError("`inputs` argument to `backward` cannot be empty. Leave it out to reach all leaves")
    keep = create_graph if retain_graph is None else bool(retain_graph)
    _C._engine_backward(roots, _gradients(grad_tensors, len(roots)), keep, bool(create_graph), wanted, True, True)


def _zeros(value: Any) -> _C.Tensor:
    if isinstance(value, graph.GradientEdge):
        raise RuntimeError("grad(materialize_grads=True) takes tensors as inputs: a gradient edge that is not used has no zeros")
    return _C.functions.zeros_like(value)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple:
    """The gradients of the sum of ``outputs`` with respect to ``inputs``, as a tuple; ``.grad`` is left alone.

    Inputs that ``outputs`` do not depend on raise, or give None (``allow_unused``) or zeros (``materialize_grads``).
    """
    if is_grads_batched:
        raise NotImplementedError("grad(is_grads_batched=True) is not supported: call grad once per row of grad_outputs")
    if allow_unused is False and materialize_grads:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    roots, wanted = _tensors(outputs), _tensors(inputs)
    if not wanted:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    for given in wanted:
        if not isinstance(given, (_C.Tensor, graph.GradientEdge)):
            raise RuntimeError(f"all inputs have to be Tensors or GradientEdges, but got {type(given).__name__}")
    keep = create_graph if retain_graph is None else bool(retain_graph)
    unused = materialize_grads if allow_unused is None else bool(allow_unused)
    result = _C._engine_backward(roots, _gradients(grad_outputs, len(roots)), keep, bool(create_graph), wanted, False, unused)
    if materialize_grads:
        result = tuple(_zeros(t) if g is None else g for t, g in zip(wanted, result, strict=True))
    return result


from . import functional  # noqa: E402  which uses grad
