"""Pointwise functions that are short compositions of other ops."""

from __future__ import annotations

import math
from typing import Any

from . import _C
from ._C import Tensor
from ._function_names import Names, with_out

__all__: list[str] = []
_names = Names(__all__)


@_names.both
def positive(input: Tensor) -> Tensor:
    """The input itself; bool tensors have no sign (NotImplementedError)."""
    if input.dtype == _C.bool:
        raise NotImplementedError("The `+` operator, on a bool tensor is not supported.")
    return input


@_names.with_in_place
@with_out(apart=True)
def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sign; of a complex number z / |z|, 0 for 0."""
    if not input.is_complex():
        return input.sign()
    parts = input.unsqueeze(-1).view(input.dtype.to_real())
    size = parts.select(-1, 0).hypot(parts.select(-1, 1)).unsqueeze(-1)
    return (parts / size.masked_fill(size == 0, 1)).view(input.dtype).squeeze(-1)


@_names.with_in_place
@with_out("safe", apart=True)
def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Degrees as radians: times pi / 180."""
    return input * (math.pi / 180)


@_names.with_in_place
@with_out("safe", apart=True)
def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Radians as degrees: times 180 / pi."""
    return input * (180 / math.pi)


@_names.with_in_place
@with_out("safe", apart=True)
def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """input * 2**other, rounded once, of the dtype that the two promote to."""
    if not isinstance(other, Tensor):
        raise TypeError(f"ldexp(): argument 'other' must be Tensor, not {type(other).__name__}")
    dtype = _C.result_type(input, other)
    dtype = dtype if dtype.is_floating_point or dtype.is_complex else _C.get_default_dtype()
    value, power = _wide(input), _wide(other)
    exponent = power.detach()  # a far power alone may be too large, or nothing, where the product is not: it is taken in thirds
    third = _C.functions.where((exponent.abs() > 800) & exponent.isfinite(), (exponent / 3).trunc(), 0.0)
    part = _C.functions.pow(2.0, third)
    return (value * part * part * _C.functions.pow(2.0, power - 2 * third)).to(dtype)


def _wide(x: Any) -> Any:
    return x.to(_C.complex128 if x.is_complex() else _C.float64) if isinstance(x, Tensor) else x


@_names.function
@with_out()
def float_power(input: Any, exponent: Any, *, out: Tensor | None = None) -> Tensor:
    """input ** exponent in float64 (complex128 if one is complex); tensors or numbers, not two numbers."""
    if not isinstance(input, Tensor) and not isinstance(exponent, Tensor):
        raise TypeError("float_power(): one of input and exponent must be a Tensor")
    if isinstance(input, Tensor):
        return _C.functions.pow(_wide(input), _wide(exponent))
    dtype = _C.complex128 if isinstance(input, complex) else _C.float64
    base = _C.tensor(input, dtype=dtype, device=exponent.device)
    return _C.functions.pow(base, _wide(exponent))


def _float_power(input: Tensor, exponent: Any) -> Tensor:
    """The tensor raised to a power in float64 (complex128 if one is complex)."""
    return float_power(input, exponent)


def _float_power_(input: Tensor, exponent: Any) -> Tensor:
    """In-place power of a float64 tensor."""
    complex_result = input.is_complex() or (exponent.is_complex() if isinstance(exponent, Tensor) else isinstance(exponent, complex))
    dtype = _C.complex128 if complex_result else _C.float64
    if input.dtype != dtype:
        raise RuntimeError(f"the base given to float_power_ has dtype {input.dtype} but the operation's result requires dtype {dtype}")
    return input.copy_(float_power(input, exponent))


_names.method(_float_power, "float_power")
_names.method(_float_power_, "float_power_")


@_names.function
@with_out("safe", apart=True)
def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The n-th derivative of :func:`digamma`, n >= 0."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, got {n}")
    return input.digamma() if n == 0 else _C.nn._polygamma(input, n)


def _polygamma(input: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma, n >= 0."""
    return polygamma(n, input)


_names.method(_polygamma, "polygamma")


@_names.both
@with_out("safe")
def mvlgamma(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension ``p``."""
    if p < 1:
        raise RuntimeError(f"p has to be greater than or equal to 1, got {p}")
    shifts = _C.functions.arange(p, device=input.device, dtype=input.dtype if input.is_floating_point() else None) / 2
    return (input.unsqueeze(-1) - shifts).lgamma().sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


@_names.both
@with_out()
def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is +inf."""
    return input == math.inf if input.is_floating_point() else input.new_zeros(input.shape, dtype=_C.bool)


@_names.both
@with_out()
def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is -inf."""
    return input == -math.inf if input.is_floating_point() else input.new_zeros(input.shape, dtype=_C.bool)


@_names.both
def isreal(input: Tensor) -> Tensor:
    """Whether each element has no imaginary part."""
    if not input.is_complex():
        return input.new_ones(input.shape, dtype=_C.bool)
    return input.unsqueeze(-1).view(input.dtype.to_real()).select(-1, 1) == 0
