"""Parts of complex tensors, and windows of short-time transforms."""

from __future__ import annotations

import math
from typing import Any

from . import _C
from ._C import Tensor
from ._function_names import as_method, with_out

__all__ = ["angle", "bartlett_window", "blackman_window", "conj", "hamming_window", "hann_window", "imag", "real"]


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


@with_out("safe")
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angles of complex numbers with the positive real axis; of real ones 0 or pi, NaN stays."""
    if input.is_complex():
        return _C.functions.atan2(imag(input), real(input))
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
    found = _C.functions.where(x < 0, math.pi, 0.0).to(x.dtype)
    return _C.functions.where(x.isnan(), x.detach(), found)


def _cosines(length: int, periodic: bool, weights: tuple[float, ...], dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """Sum of weights[k] * cos(2 pi k i / length)."""
    dtype = dtype if dtype is not None else _C.get_default_dtype()
    if length < 0:
        raise RuntimeError(f"requires non-negative window_length, got window_length={length}")
    if length == 1:
        return _C.functions.ones(1, dtype=dtype, device=device, requires_grad=requires_grad)
    steps = length if periodic else length - 1
    phase = _C.functions.arange(length, dtype=_C.float64, device=device) * (2 * math.pi / max(steps, 1))
    found = _C.functions.zeros(length, dtype=_C.float64, device=device)
    for k, weight in enumerate(weights):
        found = found + weight * (k * phase).cos()
    found = found.to(dtype)
    return found.requires_grad_() if requires_grad else found


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """``0.5 - 0.5 cos(2 pi i / N)`` with N the length (``periodic``) or one less."""
    return _cosines(window_length, periodic, (0.5, -0.5), dtype, device, requires_grad)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """``alpha - beta cos(2 pi i / N)`` with N the length (``periodic``) or one less."""
    return _cosines(window_length, periodic, (alpha, -beta), dtype, device, requires_grad)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """``0.42 - 0.5 cos(2 pi i / N) + 0.08 cos(4 pi i / N)`` with N the length (``periodic``) or one less."""
    return _cosines(window_length, periodic, (0.42, -0.5, 0.08), dtype, device, requires_grad)


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle from 0 up to 1 and back, over the length (``periodic``) or one less."""
    if window_length < 2:
        return _cosines(window_length, periodic, (1.0,), dtype, device, requires_grad)
    steps = window_length if periodic else window_length - 1
    rising = _C.functions.arange(window_length, dtype=_C.float64, device=device) * (2 / steps)
    found = (1 - (rising - 1).abs()).to(dtype if dtype is not None else _C.get_default_dtype())
    return found.requires_grad_() if requires_grad else found


for _function in (conj, angle):
    setattr(Tensor, _function.__name__, as_method(_function))
for _function in (real, imag):
    setattr(Tensor, _function.__name__, property(_function, doc=_function.__doc__))
