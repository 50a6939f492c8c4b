"""Parameter: a tensor that a Module registers when it is assigned as an attribute."""

from __future__ import annotations

from typing import Any, SupportsIndex

from .. import _C
from .._C import Tensor


class Parameter(Tensor):
    """A leaf tensor that shares storage with ``data``; assigning it to a Module attribute registers it there.

    ``data``: a tensor of any shape and dtype (None: an empty float tensor). ``requires_grad=True`` needs a floating or
    complex dtype (RuntimeError otherwise).
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = _C.functions.empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(
                f"Parameter needs a Tensor, got {type(data).__name__}: convert it with tensor(...) or from_numpy(...)"
            )
        return Tensor._make_subclass(cls, data.detach(), bool(requires_grad))

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]
        copy = memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)  # without .grad, as in PyTorch
        return copy

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple:
        return type(self), (self.detach(), self.requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


_C._set_parameter_type(Parameter)
