"""How functions written in Python become functions of the package and methods of Tensor."""

from __future__ import annotations

import functools
from typing import Any

from . import _C
from ._C import Tensor


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
        setattr(Tensor, function.__name__, function)
        return function

    def both(self, function: Any) -> Any:
        """A function of the package, and a method by its first argument."""
        return self.function(self.method(function))

    def with_in_place(self, function: Any) -> Any:
        """Both, and the method ``name_`` that writes the result over the tensor."""

        @functools.wraps(function)
        def in_place(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            result = function(input, *args, **kwargs)
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
