"""Results of ops whose derivative does not exist: they require grad where an argument does, and backward says what is missing."""

from __future__ import annotations

from typing import Any

from .._C import Tensor
from ..autograd.function import Function
from ._matrix import recording


class NotDifferentiable(Function):
    @staticmethod
    def forward(ctx: Any, refusal: Exception, results: tuple[Tensor, ...], *arguments: Tensor) -> Any:
        ctx.refusal = refusal
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise type(ctx.refusal)(*ctx.refusal.args)


def refused(refusal: Exception, results: tuple[Tensor, ...], *arguments: Tensor) -> tuple[Tensor, ...]:
    """``results``, new tensors, which require grad where they are floating and an argument does; their backward raises ``refusal``."""
    if not recording(*arguments):
        return results
    return NotDifferentiable.apply(refusal, results, *arguments)


class Scaled(Function):
    """``result`` for a derivative is itself plus constants times ``input``, which is broadcast."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, result: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return result.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (factor,) = ctx.saved_tensors
        return grad * factor, grad, None


def flat_in(result: Tensor, *arguments: Tensor) -> Tensor:
    """``result``, with slopes of zero in the arguments that require grad."""
    for t in arguments:
        if recording(t):
            result = Scaled.apply(t.to(result.dtype), result, result.new_zeros(result.shape))
    return result


def missing(name: str) -> Exception:
    return RuntimeError(f"derivative for aten::{name} is not implemented: call it on .detach()")


def not_implemented(name: str) -> Exception:
    return NotImplementedError(f"the derivative for '{name}' is not implemented. Call it on .detach()")
