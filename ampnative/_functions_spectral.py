"""Parts of complex tensors, and windows of short-time transforms."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from . import _C
from ._C import Tensor
from ._function_names import as_method, with_out

__all__ = [
    "adjoint", "angle", "bartlett_window", "blackman_window", "conj", "hamming_window", "hann_window", "imag", "kaiser_window", "real",
]  # fmt: skip


def real(input: Tensor) -> Tensor:
    """The real parts, a view; a real tensor is its own."""
    return _C.functions.view_as_real(input).select(-1, 0) if input.is_complex() else input


def imag(input: Tensor) -> Tensor:
    """The imaginary parts of a complex tensor, a view.

    Raises:
        TypeError: the tensor is real.
    """
    if not input.is_complex():
        raise TypeError("imag is not implemented for tensors with non-complex dtypes.")
    return _C.functions.view_as_real(input).select(-1, 1)


def conj(input: Tensor) -> Tensor:
    """Complex conjugates, a new tensor; a real tensor is its own."""
    return _C.functions.complex(real(input), -imag(input)) if input.is_complex() else input


@with_out("safe", apart=True)
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angles of complex numbers with the positive real axis; of real ones 0 or pi, NaN stays."""
    if input.is_complex():
        return _C.functions.atan2(imag(input), real(input))
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
    found = _C.functions.where(x < 0, math.pi, 0.0).to(x.dtype)
    return _C.functions.where(x.isnan(), x.detach(), found)


def _window(
    name: str, values: Callable[[Tensor], Tensor], length: int, periodic: bool, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``values`` of the places 0 to 2, float64, of the points: 2 is the one after the last (`periodic`) or the last."""
    dtype = dtype if dtype is not None else _C.get_default_dtype()
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}")
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    if length == 1:
        return _C.functions.ones(1, dtype=dtype, device=device, requires_grad=requires_grad)
    places = _C.functions.arange(length, dtype=_C.float64, device=device) * (2 / max(length if periodic else length - 1, 1))
    found = values(places).to(dtype)
    return found.requires_grad_() if requires_grad else found


def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """``0.5 - 0.5 cos(2 pi i / N)`` with N the length (``periodic``) or one less.

    Options of all windows: ``dtype`` (floating, RuntimeError otherwise), ``layout``, ``device``, ``pin_memory``, ``requires_grad``.
    """
    return _window("hann_window", lambda x: 0.5 - 0.5 * (math.pi * x).cos(), window_length, periodic, **options)


def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any) -> Tensor:
    """``alpha - beta cos(2 pi i / N)`` with N the length (``periodic``) or one less; options as for :func:`hann_window`."""
    return _window("hamming_window", lambda x: alpha - beta * (math.pi * x).cos(), window_length, periodic, **options)


def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """``0.42 - 0.5 cos(2 pi i / N) + 0.08 cos(4 pi i / N)`` with N the length (``periodic``) or one less; options as for
    :func:`hann_window`."""

    def values(x: Tensor) -> Tensor:
        return 0.42 - 0.5 * (math.pi * x).cos() + 0.08 * (2 * math.pi * x).cos()

    return _window("blackman_window", values, window_length, periodic, **options)


def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A triangle from 0 up to 1 and back, over the length (``periodic``) or one less; options as for :func:`hann_window`."""
    return _window("bartlett_window", lambda x: 1 - (x - 1).abs(), window_length, periodic, **options)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """``I0(beta sqrt(1 - (2 i / N - 1)^2)) / I0(beta)`` with N the length (``periodic``) or one less, I0 the modified Bessel function;
    options as for :func:`hann_window`."""

    def values(x: Tensor) -> Tensor:
        inside = (beta * beta * (1 - (x - 1) ** 2)).clamp(min=0).sqrt()
        return _C.functions.i0(inside) / _C.functions.i0(_C.functions.full_like(inside, beta))

    return _window("kaiser_window", values, window_length, periodic, **options)


def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, a view, and complex numbers conjugated, a new tensor. A number is its conjugate, with a
    warning.

    Raises:
        RuntimeError: the tensor has one dimension.
    """
    return _adjoint(input, "adjoint()", "tensor.adjoint()")


def _adjoint(input: Tensor, short: str, name: str) -> Tensor:
    if input.dim() == 0:
        warnings.warn(f"{short} is deprecated on 0-D tensors. Consider using x.conj().", stacklevel=3)
        return conj(input)
    if input.dim() == 1:
        raise RuntimeError(f"{name} is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return conj(input.transpose(-2, -1))


def _get_mH(input: Tensor) -> Tensor:
    """As adjoint()."""
    return _adjoint(input, "Tensor.mH", "tensor.mH")


def _get_H(input: Tensor) -> Tensor:
    """A matrix transposed and, where complex, conjugated. RuntimeError for other dimensions; a number is its conjugate."""
    if input.dim() not in (0, 2):
        hint = " For batches of matrices, consider using tensor.mH" if input.dim() > 2 else ""
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {input.dim()}-D tensor.{hint}")
    return _adjoint(input, "Tensor.H", "tensor.H")


for _name, _getter in (("H", _get_H), ("mH", _get_mH)):
    setattr(Tensor, _name, property(_getter, doc=_getter.__doc__))
for _function in (adjoint, conj, angle):
    setattr(Tensor, _function.__name__, as_method(_function))
for _function in (real, imag):
    setattr(Tensor, _function.__name__, property(_function, doc=_function.__doc__))
