"""How functions written in Python become functions of the package and methods of Tensor."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from . import _C
from ._C import Tensor

F = TypeVar("F", bound=Callable[..., Any])


def with_out(takes: str = "exact", apart: bool = False) -> Callable[[F], F]:
    """Lets callers give the function's keyword ``out``, which its body leaves alone: a tensor, or a tuple for several results.

    The rules are those of op rows: no autocast, no gradients, the result's shape, and its dtype (``exact``), another that it
    goes to (``safe``) or one of its kind (``kind``). With ``apart`` it may be an input, but not
    overlap one in part. Methods made of such a function do not have ``out``.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            out = kwargs.pop("out", None)
            if out is None:
                return function(*args, **kwargs)
            return _C._into(function.__name__, takes, out, function, args, kwargs, apart)

        @functools.wraps(function)
        def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            if "out" in kwargs:
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument 'out'")
            return function(self, *args, **kwargs)

        own = inspect.signature(function)
        method.__signature__ = own.replace(parameters=[p for p in own.parameters.values() if p.name != "out"])  # type: ignore[attr-defined]
        call._method = method  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def as_method(function: Any) -> Any:
    """What a function is as a method of Tensor."""
    return getattr(function, "_method", function)


class Names:
    """The public names of one module of functions, with decorators that add to them."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def function(self, function: Any) -> Any:
        """A function of the package."""
        self.names.append(function.__name__)
        return function

    def method(self, function: Any, name: str | None = None) -> Any:
        """A method of Tensor alone; under another name the function takes it."""
        if name is not None:
            function.__name__ = function.__qualname__ = name
        setattr(Tensor, function.__name__, as_method(function))
        return function

    def both(self, function: Any) -> Any:
        """A function of the package, and a method by its first argument."""
        return self.function(self.method(function))

    def with_in_place(self, function: Any) -> Any:
        """Both, and the method ``name_`` that writes the result over the tensor."""

        made = as_method(function)

        @functools.wraps(made)
        def in_place(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            read = input
            if _C.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in (input, *args, *kwargs.values())):
                read = input.clone()  # what the backward pass reads must not be written over
            result = made(read, *args, **kwargs)
            if not _C.can_cast(result.dtype, input.dtype):
                raise RuntimeError(
                    f"{function.__name__}_(): result type {result.dtype} can't be cast to the desired output type {input.dtype}"
                )
            return input.copy_(result)

        in_place.__name__ = in_place.__qualname__ = function.__name__ + "_"
        in_place.__doc__ = f"In-place version of {function.__name__}."
        self.method(in_place)
        return self.both(function)

    def alias(self, namespace: dict[str, Any], alias: str, name: str) -> None:
        """A second name of a function, its method and its in-place method, where these exist."""
        function = namespace.get(name) or getattr(_C.functions, name, None)
        if function is not None:
            namespace[alias] = function
            self.names.append(alias)
        for suffix in ("", "_"):
            method = Tensor.__dict__.get(name + suffix)
            if method is not None:
                setattr(Tensor, alias + suffix, method)
