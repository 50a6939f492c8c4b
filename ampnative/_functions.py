"""Functions that are short compositions of ops, and the second names that some ops have.

Each function whose first argument is a tensor is a method of Tensor too, as in PyTorch.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any

from . import _C, _functions_math, _functions_search, _functions_shape, _functions_small, _functions_statistics
from ._C import Tensor
from ._ops._common import integers, one_integer

__all__: list[str] = []

# PyTorch's second names: of the function, the method and the in-place method, where the first name has them.
_ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "clip": "clamp", "concat": "cat", "concatenate": "cat", "divide": "div", "greater": "gt", "greater_equal": "ge",
    "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg", "not_equal": "ne", "subtract": "sub", "swapaxes": "transpose",
    "swapdims": "transpose", "true_divide": "div", "fix": "trunc",
}  # fmt: skip


def _public(function: Any) -> Any:
    __all__.append(function.__name__)
    return function


def _method(function: Any) -> Any:
    setattr(Tensor, function.__name__, function)
    return _public(function)


def _add_aliases() -> None:
    for alias, name in _ALIASES.items():
        function = getattr(_C.functions, name, None)
        if function is not None:
            globals()[alias] = function
            __all__.append(alias)
        for suffix in ("", "_"):
            method = Tensor.__dict__.get(name + suffix)
            if method is not None:
                setattr(Tensor, alias + suffix, method)


_add_aliases()


def _rdiv(self: Tensor, other: Tensor | float) -> Tensor:
    """``other / self``: PyTorch's older name of ``__rtruediv__``, which autocast's lists use."""
    return other / self


Tensor.__rdiv__ = _rdiv


@_public
def is_tensor(obj: Any) -> bool:
    """Whether ``obj`` is a Tensor."""
    return isinstance(obj, Tensor)


@_public
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is floating."""
    return input.is_floating_point()


@_public
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return input.is_complex()


@_public
def numel(input: Tensor) -> int:
    """Number of elements."""
    return input.numel()


@_public
def equal(input: Tensor, other: Tensor) -> bool:
    """True if shapes and all elements are equal."""
    return input.equal(other)


@_public
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along ``dim``, a tuple of views."""
    return input.unbind(dim)


@_method
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """``|input - other| <= atol + rtol * |other|`` per element; equal infinities are close. Both of one dtype (RuntimeError)."""
    if input.dtype != other.dtype:
        raise RuntimeError(f"isclose: {input.dtype} did not match {other.dtype}: give both tensors one dtype")
    close = input == other
    if equal_nan and input.is_floating_point():
        close = close | (input.isnan() & other.isnan())
    if rtol == 0 and atol == 0:
        return close
    if not input.is_floating_point() and not input.is_complex():
        input, other = input.double(), other.double()
    error = (input - other).abs()
    return close | (error.isfinite() & (error <= atol + rtol * other.abs()))


@_method
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close, see :func:`isclose`."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@_public
def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts along ``dim``: of one size (the last may be smaller), or of the given sizes, which must add up."""
    size = tensor.size(dim)
    split_size_or_sections = one_integer(split_size_or_sections)
    if isinstance(split_size_or_sections, int):
        step = split_size_or_sections
        if step < 0 or (step == 0 and size > 0):
            raise RuntimeError(f"split expects split_size be positive, but got split_size={step}")
        sizes = [min(step, size - start) for start in range(0, size, step)] if size else [0]
    else:
        sizes = integers("split", "split_size_or_sections", split_size_or_sections)
        if sum(sizes) != size:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension {dim}), "
                f"but got split_sizes={sizes}"
            )
    parts, start = [], 0
    for length in sizes:
        parts.append(tensor.narrow(dim, start, length))
        start += length
    name = "SplitBackward0" if isinstance(split_size_or_sections, int) else "SplitWithSizesBackward0"
    return _C._show_parts(name, tuple(parts))


def _split_method(self: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """As :func:`split`, whose argument has another name."""
    return split(self, split_size, dim)


_split_method.__name__ = "split"
setattr(Tensor, "split", _split_method)  # noqa: B010


@_method
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` views of equal size along ``dim`` (the last may be smaller)."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if input.size(dim) == 0:
        return tuple(input.narrow(dim, 0, 0) for _ in range(chunks))
    return split(input, max(math.ceil(input.size(dim) / chunks), 1), dim)


def _dims(name: str, value: Any) -> list[int]:
    """The dimensions that movedim's argument names: an integer (also a 0-dim tensor of one), or several."""
    try:
        if isinstance(value, Tensor) and value.dim():
            raise TypeError
        return [operator.index(d) for d in value] if isinstance(value, (tuple, list)) else [operator.index(value)]
    except TypeError:
        text = f"movedim(): argument '{name}' must be an int or a tuple of ints, not {value!r} ({type(value).__name__})"
        raise TypeError(text) from None


@_method
def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """A view with dimensions ``source`` moved to ``destination``; the others keep their order."""
    sources, targets = _dims("source", source), _dims("destination", destination)
    n = input.dim()
    if len(sources) != len(targets):
        raise RuntimeError(f"movedim: source has {len(sources)} dims, destination {len(targets)}: they must be as many")
    for d in (*sources, *targets):
        if not -n <= d < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
    for name, dims in (("source", sources), ("destination", targets)):
        if len({d % n for d in dims}) < len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({dims}): give each dimension once")
    placed = {d % n: s % n for s, d in zip(sources, targets, strict=True)}
    rest = iter([d for d in range(n) if d not in placed.values()])
    return input.permute([placed[d] if d in placed else next(rest) for d in range(n)])


moveaxis = Tensor.moveaxis = movedim
__all__.append("moveaxis")


@_method
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """A view with dimension ``dim`` spread over several; one of ``sizes`` may be -1."""
    input.size(dim)  # IndexError for a dimension that is not there
    dim = dim % input.dim()
    return input.reshape(*input.shape[:dim], *sizes, *input.shape[dim + 1 :])


@_method
def ravel(input: Tensor) -> Tensor:
    """The elements in one dimension."""
    return input.reshape(-1)


@_public
def is_storage(obj: Any) -> bool:
    """Always False: storages are not objects of their own."""
    return False


def _deprecated(name: str, replacement: str, function: Any, *kinds: type) -> Any:
    def wrapper(*args: Any) -> Any:
        for arg, kind in zip(args, kinds, strict=False):
            if not isinstance(arg, kind):
                raise TypeError(f"{name}(): argument must be {kind.__name__}, not {type(arg).__name__}")
        warnings.warn(f"torch.{name}() is deprecated. Please use torch.{replacement} instead.", DeprecationWarning, stacklevel=2)
        return function(*args)

    wrapper.__name__ = wrapper.__qualname__ = name
    wrapper.__doc__ = f"Deprecated spelling of {replacement}."
    globals()[name] = wrapper
    __all__.append(name)
    return wrapper


def _deprecated_autocast() -> None:
    """The per-device spellings of the autocast state functions."""
    for suffix, device in (("cpu", "cpu"), ("ipu", "ipu"), ("xla", "xla")):
        _deprecated(f"is_autocast_{suffix}_enabled", f"is_autocast_enabled('{device}')", lambda d=device: _C.is_autocast_enabled(d))
        _deprecated(f"set_autocast_{suffix}_enabled", f"set_autocast_enabled('{device}', enabled)",
                    lambda on, d=device: _C.set_autocast_enabled(d, on), bool)  # fmt: skip
    for suffix, device in (("cpu", "cpu"), ("gpu", "cuda"), ("ipu", "ipu"), ("xla", "xla")):
        _deprecated(f"get_autocast_{suffix}_dtype", f"get_autocast_dtype('{device}')", lambda d=device: _C.get_autocast_dtype(d))
        _deprecated(f"set_autocast_{suffix}_dtype", f"set_autocast_dtype('{device}', dtype)",
                    lambda dtype, d=device: _C.set_autocast_dtype(d, dtype), _C.dtype)  # fmt: skip


_deprecated_autocast()


def _include(module: Any) -> None:
    """Another file of functions."""
    for name in module.__all__:
        globals()[name] = getattr(module, name)
        __all__.append(name)


for _module in (_functions_shape, _functions_search, _functions_math, _functions_statistics, _functions_small):
    _include(_module)
