"""Functions with a hand-written derivative."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from .. import _C

__all__ = ["Function", "FunctionCtx", "once_differentiable"]

FunctionCtx = _C._FunctionBase


class Function(_C._FunctionBase):
    """Base of operations with an own derivative.

    Subclasses define static methods, either ``forward(ctx, *args)`` or ``forward(*args)`` with ``setup_context(ctx, inputs,
    output)``, and ``backward(ctx, *grads)``, which returns one gradient (or None) per argument of forward, in forward's order. They
    are called by ``Sub.apply(*args, **kwargs)``; with ``setup_context``, ``inputs`` has the defaults of what was left out too.

    A view that forward returns (also an input as it is) has no history any more once its memory was written to: using it is a
    RuntimeError then, and so are in-place writes to it. Return a clone where that is not wanted.

    Instances are of no use: making one warns (DeprecationWarning), calling one is a RuntimeError.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated: the methods of an autograd function are static. Call "
            f"{type(self).__name__}.apply(...)",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Make forward and backward static methods "
            f"that take ctx first, and call {type(self).__name__}.apply(...)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Override: the result from the arguments of ``apply``; with ctx first, unless ``setup_context`` is defined.
        """
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function: a static method forward(ctx, ...)"
        )

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Override: one gradient per argument of ``forward`` (None where there is none) from one per result."""
        vjp = type(ctx).vjp
        if vjp is not FunctionCtx.vjp:
            return vjp(ctx, *grad_outputs)
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD: "
            f"{type(ctx).__name__} has neither"
        )


def _bind_arguments(cls: type, with_ctx: bool, forward: Callable, args: tuple, kwargs: dict[str, Any] | None) -> tuple:
    """The arguments of forward by position: defaults stand in for those between the given ones and, without ctx, behind them."""
    try:
        signature = inspect.signature(forward)
        bound = signature.bind(*(None,) * with_ctx, *args, **(kwargs or {}))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{cls.__name__}.apply(): forward() does not take these arguments: {error}") from None
    last = 0
    for i, (name, parameter) in enumerate(signature.parameters.items()):
        if name not in bound.arguments:
            continue
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            raise TypeError(f"{cls.__name__}.apply(): forward() got a keyword for {name!r}, which it does not take by position")
        last = i + 1
    bound.apply_defaults()
    return bound.args[1 : max(last, 1 + len(args))] if with_ctx else bound.args


class _DifferentiatedTwice(Function):
    @staticmethod
    def forward(ctx, *outputs):
        return tuple(t.detach() for t in outputs)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(function: Callable) -> Callable:
    """For backward methods not made of recorded ops: their results refuse to be differentiated again."""

    @functools.wraps(function)
    def inside(ctx, *args):
        recording = _C.is_grad_enabled()
        _C._set_grad_enabled(False)
        try:
            outputs = function(ctx, *args)
        finally:
            _C._set_grad_enabled(recording)
        if not recording or not any(isinstance(a, _C.Tensor) and a.requires_grad for a in args):
            return outputs
        several = isinstance(outputs, tuple)
        given = outputs if several else (outputs,)
        tensors = [t.detach().requires_grad_() for t in given if t is not None]
        guarded = _DifferentiatedTwice.apply(*tensors)
        rest = iter(guarded if isinstance(guarded, tuple) else (guarded,))
        result = tuple(None if t is None else next(rest) for t in given)
        return result if several else result[0]

    return inside
