"""What bodies of several families share."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any

from .. import _C
from .._C import Tensor, dtype, promote_types, result_type

_WIDE = {_C.float16: _C.float32, _C.bfloat16: _C.float32}


def promoted(*tensors: Tensor) -> dtype:
    """The dtype that an element-wise op on these tensors gives: 0-dim ones count only by their category."""
    first = tensors[0].dtype
    if all(t.dtype == first for t in tensors):
        return first
    shaped = [t.dtype for t in tensors if t.dim()]
    scalars = [t.dtype for t in tensors if not t.dim()]
    if not shaped or not scalars:
        return functools.reduce(promote_types, shaped or scalars)
    high, low = functools.reduce(promote_types, shaped), functools.reduce(promote_types, scalars)
    return result_type(_C.functions.empty((0,), dtype=high, device="cpu"), _C.functions.empty((), dtype=low, device="cpu"))


def floating(*tensors: Tensor) -> dtype:
    """As :func:`promoted`; integers become the default dtype."""
    found = promoted(*tensors)
    return found if found.is_floating_point or found.is_complex else _C.get_default_dtype()


def wide(found: dtype) -> dtype:
    """Where results of that dtype are computed: 16-bit ones in float32, so that they are rounded once."""
    return _WIDE.get(found, found)


def cast(found: dtype, *tensors: Tensor) -> list[Tensor]:
    return [t if t.dtype == found else t.to(found) for t in tensors]


def rounded(result: Tensor, found: dtype) -> Tensor:
    return result if result.dtype == found else result.to(found)


def reduced(loss: Tensor, reduction: str, found: dtype) -> Tensor:
    """The loss of elements or samples, reduced as asked and rounded to the result's dtype."""
    if reduction == "mean":
        loss = loss.mean()
    elif reduction == "sum":
        loss = loss.sum()
    elif reduction != "none":
        raise ValueError(f"{reduction} is not a valid value for reduction: it is 'mean', 'sum' or 'none'")
    return rounded(loss, found)


def no_tensor(argument: str, value: Any) -> TypeError:
    """The error, as C's functions give it, for an argument that is no Tensor."""
    kind, array = type(value), hasattr(value, "__array_interface__")
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    cure = ". Make one of the array with from_numpy(), which shares its memory, or as_tensor()" if array else ""
    return TypeError(f"{argument} must be Tensor, not {name}{cure}")


def needs_no_gradient(function: str, parameter: str, given: Tensor | None) -> None:
    """RuntimeError for a tensor that requires grad while gradients are recorded."""
    if given is not None and given.requires_grad and _C.is_grad_enabled():
        raise RuntimeError(
            f"{function}: not differentiable with respect to argument '{parameter}', which requires grad: pass {parameter}.detach()"
        )


def integers(function: str, parameter: str, given: Any) -> list[int]:
    """One integer, or a sequence of them, as a list. TypeError for others."""
    many = isinstance(given, Iterable) and not isinstance(given, str) and getattr(given, "ndim", 1) > 0
    out = []
    for i, item in enumerate(given if many else (given,)):
        if not hasattr(item, "__index__"):
            kind = type(item).__name__
            where = f"found element of type {kind} at index {i}" if many else f"got {kind}"
            cure = ". Divide by //, or round by int()" if isinstance(item, float) else ""
            raise TypeError(f"{function}(): argument '{parameter}' must be tuple of ints, but {where}: {item!r}{cure}")
        out.append(operator.index(item))
    return out


def one_integer(value: Any) -> Any:
    """An integer of NumPy's, or in a tensor without dimensions, as Python's; everything else as it is."""
    if isinstance(value, (int, list, tuple)) or getattr(value, "ndim", True) or not hasattr(value, "__index__"):
        return value
    return value if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()) else operator.index(value)


def joined_shape(*shapes: Any) -> tuple[int, ...]:
    """The shape that tensors of these shapes broadcast to; numbers stand for (n,). RuntimeError where there is none."""
    out: list[int] = []
    for shape in shapes:
        sizes = [shape] if isinstance(shape, int) else list(shape)
        out = [1] * (len(sizes) - len(out)) + out
        for d in range(1, len(sizes) + 1):
            if sizes[-d] != 1 and out[-d] not in (1, sizes[-d]):
                raise RuntimeError(
                    f"Shape mismatch: objects cannot be broadcast to a single shape: The size of tensor a ({out[-d]}) must match the "
                    f"size of tensor b ({sizes[-d]}) at non-singleton dimension {len(out) - d}"
                )
            out[-d] = sizes[-d] if out[-d] == 1 else out[-d]
    return _C.Size(out)


def shapes(tensors: Iterable[Any]) -> str:
    return ", ".join(str(list(t.shape)) for t in tensors)
