"""Fourier transforms under PyTorch's names, computed by NumPy in float32, float64, complex64 and complex128.

16-bit tensors are refused outside autocast on the CPU, which casts them. Complex tensors carry no gradient: an argument that requires
grad is an error that says so.
"""

from __future__ import annotations

import math
from typing import Any

from . import _C
from ._absent import absent_op
from ._C import Tensor
from ._function_names import with_out
from ._ops import fft as _bodies
from ._ops._common import one_integer

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
    "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

fft = _C.nn.fft_fft
ifft = _C.nn.fft_ifft
rfft = _C.nn.fft_rfft
irfft = _C.nn.fft_irfft
hfft = _C.nn.fft_hfft
ihfft = _C.nn.fft_ihfft
fft2 = _C.nn.fft_fft2
ifft2 = _C.nn.fft_ifft2
rfft2 = _C.nn.fft_rfft2
irfft2 = _C.nn.fft_irfft2
fftn = _C.nn.fft_fftn
ifftn = _C.nn.fft_ifftn
rfftn = _C.nn.fft_rfftn
irfftn = _C.nn.fft_irfftn


def _step(n: int, d: float) -> float:
    """1 / (n d); points that stand on each other have infinite frequencies."""
    return 1.0 / (n * d) if n * d != 0 else math.copysign(math.inf, n * d)


@with_out("kind")
def hfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """:func:`hfft` along the last of ``dim`` (all dimensions) and :func:`fft` along the others: of half the spectrum of a signal that is
    Hermitian, the real transform. ``s``: sizes of the result, -1 keeps one."""
    return _bodies.fft_hfftn(input, _sizes(s), _sizes(dim), norm)


@with_out("kind")
def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Undoes :func:`hfftn`: :func:`ihfft` of a real input along the last of ``dim`` (all dimensions), :func:`ifft` along the others."""
    return _bodies.fft_ihfftn(input, _sizes(s), _sizes(dim), norm)


@with_out("kind")
def hfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """:func:`hfftn` over the last two dimensions."""
    return hfftn(input, s, dim, norm)


@with_out("kind")
def ihfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """:func:`ihfftn` over the last two dimensions."""
    return ihfftn(input, s, dim, norm)


def _sizes(value: Any) -> Any:
    value = one_integer(value)
    return (value,) if isinstance(value, int) else value


def fftfreq(
    n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The frequencies of a transform of ``n`` points ``d`` apart: 0, 1, ... up to the middle, then the negative ones."""
    if out is not None:
        return _C._into("fftfreq", "exact", out, fftfreq, (n, d), {"dtype": dtype or out.dtype, "device": out.device})
    arange = _C.functions.arange
    order = _C.functions.cat([arange((n + 1) // 2, device=device), arange(-(n // 2), 0, device=device)])
    found = order.to(dtype if dtype is not None else _C.get_default_dtype()) * _step(n, d)
    return found.requires_grad_() if requires_grad else found


def rfftfreq(
    n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The frequencies of :func:`rfft`: those that are not negative."""
    if out is not None:
        return _C._into("rfftfreq", "exact", out, rfftfreq, (n, d), {"dtype": dtype or out.dtype, "device": out.device})
    order = _C.functions.arange(n // 2 + 1, device=device)
    found = order.to(dtype if dtype is not None else _C.get_default_dtype()) * _step(n, d)
    return found.requires_grad_() if requires_grad else found


def _rolled(input: Tensor, dim: int | list[int] | tuple[int, ...] | None, back: bool) -> Tensor:
    dim = one_integer(dim)
    dims = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    for d in dims:
        size = input.size(d)
        first = size // 2 if back else (size + 1) // 2  # the elements that go to the end
        if size > 1:
            input = _C.functions.cat([input.narrow(d, first, size - first), input.narrow(d, 0, first)], d)
    return input


def fftshift(input: Tensor, dim: int | list[int] | tuple[int, ...] | None = None) -> Tensor:
    """Moves frequency 0 to the middle along ``dim`` (all dimensions)."""
    return _rolled(input, dim, False)


def ifftshift(input: Tensor, dim: int | list[int] | tuple[int, ...] | None = None) -> Tensor:
    """Undoes :func:`fftshift`."""
    return _rolled(input, dim, True)


def __getattr__(name: str) -> Any:
    raise absent_op(f"fft_{name}", f"fft.{name}") or AttributeError(f"module 'ampnative.fft' has no attribute '{name}'")
