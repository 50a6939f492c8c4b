"""Parameter and Buffer: tensors that a Module registers when they are assigned as attributes; and both before their shape is known."""

from __future__ import annotations

from typing import Any, SupportsIndex

from .. import _C
from .._C import Tensor

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin", "is_lazy"]


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
        return Tensor._make_subclass(cls, data.detach(), requires_grad)

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


class _BufferType(type):
    """Buffers are plain tensors with a mark: ``isinstance`` asks for it."""

    def __instancecheck__(self, instance: Any) -> bool:
        if self is not Buffer:
            return super().__instancecheck__(instance)
        return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferType):
    """A tensor that a Module registers as a buffer when it is assigned: part of its state, not trained.

    ``data``: a tensor of any shape and dtype, whose storage is shared (None: an empty float tensor). ``persistent=False`` keeps it
    out of ``state_dict``. What comes back is a plain Tensor; ``isinstance(tensor, Buffer)`` knows it.
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = _C.functions.empty(0)
        made: Any = data.detach().requires_grad_(data.requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made


_ALLOWED = frozenset((
    "char", "copy_", "cpu", "cuda", "data", "device", "double", "dtype", "float", "get_device", "grad", "grad_fn", "half",
    "int", "is_complex", "is_floating_point", "is_leaf", "long", "materialize", "cls_to_become", "requires_grad",
    "share_memory_", "short", "size", "to", "type",
))  # fmt: skip
_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer: it comes about when a state_dict with uninitialized parameters is "
    "loaded into a module that has its shapes. Call `forward` first, which gives them shapes"
)


class UninitializedTensorMixin(Tensor):
    """What UninitializedParameter and UninitializedBuffer share: a dtype and a device, and no shape until ``materialize``.

    RuntimeError for ``shape``, ValueError for what computes with it.
    """

    __slots__ = ()
    cls_to_become: type

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Becomes a Parameter (or Tensor) of this shape, uninitialised, of its own dtype and device unless others are given."""
        like = self.data
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        device, dtype = like.device if device is None else device, like.dtype if dtype is None else dtype
        _C._set_data(self, _C.functions.empty(sizes, device=device, dtype=dtype))
        self.__class__ = self.cls_to_become

    def share_memory_(self) -> Any:
        """RuntimeError: there is nothing to share yet."""
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` first, which gives it a shape")

    def __getattribute__(self, name: str) -> Any:
        if name == "shape":
            raise RuntimeError(_NO_SHAPE)
        if not name.startswith("_") and name not in _ALLOWED and name in Tensor.__dict__:
            _refuse(name)
        return super().__getattribute__(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple:
        return _uninitialized, (type(self), self.requires_grad, self.device, self.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = _uninitialized(type(self), self.requires_grad, self.device, self.dtype)
        return memo[id(self)]


def _refuse(name: str) -> Any:
    raise ValueError(
        f"Attempted to use an uninitialized parameter in Tensor.{name}: it has no shape yet. Call the module (LazyLinear and its kin) with "
        "an example first"
    )


def _refusing(name: str) -> Any:
    return lambda self, *args: _refuse(name)


for _name in ("add", "sub", "mul", "truediv", "pow", "matmul", "mod", "floordiv"):
    for _form in (f"__{_name}__", f"__r{_name}__", f"__i{_name}__"):
        setattr(UninitializedTensorMixin, _form, _refusing(_form))
for _name in ("neg", "len", "iter", "getitem", "setitem", "lt", "le", "gt", "ge", "bool", "float", "int", "abs"):
    setattr(UninitializedTensorMixin, f"__{_name}__", _refusing(f"__{_name}__"))


def _uninitialized(cls: type, requires_grad: bool, device: Any, dtype: Any) -> Any:
    made: Any = Tensor._make_subclass(cls, _C.functions.empty(0, device=device, dtype=dtype), requires_grad)
    return made


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter whose shape is not known yet: ``materialize(shape)`` makes it one, uninitialised. See
    :class:`UninitializedTensorMixin`.
    """

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> UninitializedParameter:
        return _uninitialized(cls, bool(requires_grad), device, dtype)


class UninitializedBuffer(UninitializedTensorMixin):
    """A buffer whose shape is not known yet: ``materialize(shape)`` makes it a Tensor, uninitialised.

    ``persistent=False`` keeps it out of ``state_dict``.
    """

    __slots__ = ()
    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> UninitializedBuffer:
        made: Any = _uninitialized(cls, bool(requires_grad), device, dtype)
        made.persistent, made._is_buffer = persistent, True
        return made


def is_lazy(param: Any) -> bool:
    """Whether the tensor waits for its shape."""
    return isinstance(param, UninitializedTensorMixin)
