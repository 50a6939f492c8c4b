"""Activations and the softmax family."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ... import _C
from ..._C import Tensor

_nn, _f = _C.nn, _C.functions

relu, gelu, tanh, sigmoid = _nn.relu, _nn.gelu, _nn.tanh, _nn.sigmoid
softplus, logsigmoid, softsign, tanhshrink = _nn.softplus, _nn.logsigmoid, _nn.softsign, _nn.tanhshrink
silu, mish, selu, hardswish, hardsigmoid = _nn.silu, _nn.mish, _nn.selu, _nn.hardswish, _nn.hardsigmoid
leaky_relu, elu, celu, threshold = _nn.leaky_relu, _nn.elu, _nn.celu, _nn.threshold
hardshrink, prelu = _nn.hardshrink, _nn.prelu

_hardtanh, _glu = _nn.hardtanh, _nn._glu
_softmax, _log_softmax = _f.softmax, _f.log_softmax


def relu_(input: Tensor) -> Tensor:
    """relu in place."""
    return relu(input, True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """leaky_relu in place."""
    return leaky_relu(input, negative_slope, True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """elu in place."""
    return elu(input, alpha, True)


def selu_(input: Tensor) -> Tensor:
    """selu in place."""
    return selu(input, True)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """celu in place."""
    return celu(input, alpha, True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """threshold in place."""
    return _nn.threshold(input, threshold, value, True)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """``input`` limited to [min_val, max_val]; no gradient on the limits and beyond."""
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val: {min_val} > {max_val}")
    if input.dtype == _C.dtypes.bool:
        raise NotImplementedError("Bool inputs not supported for hardtanh: convert the input to a number dtype")
    return _hardtanh(input, min_val, max_val, inplace)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """hardtanh in place."""
    return hardtanh(input, min_val, max_val, True)


def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """Towards zero by ``lambd``, which is not negative; zero where it would cross."""
    if input.is_floating_point() and not 0 <= lambd <= _C.finfo(input.dtype).max:
        raise RuntimeError(f"lambda must be in range [0, {_C.finfo(input.dtype).max:g}] for input dtype {input.dtype}, but found {lambd}")
    return _nn.softshrink(input, lambd, out=out)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """``input`` limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Negative values times slopes: drawn from [lower, upper) one by one when ``training``, else the middle."""
    for name, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise RuntimeError(f"rrelu: {name} bound must be finite, got {bound}")
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound: {lower} > {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    if not input.is_floating_point():
        raise NotImplementedError(f"\"rrelu\" not implemented for '{input.dtype}': convert the input to a floating dtype")
    chosen = input.detach() <= 0
    slopes = _f.empty(int(chosen.sum()), dtype=_C.dtypes.float64).uniform_(lower, upper)
    noise = _f.ones_like(input)
    noise[chosen] = slopes.to(noise.device).to(noise.dtype)
    return input.mul_(noise) if inplace else input * noise


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """rrelu in place."""
    return rrelu(input, lower, upper, training, True)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """First half of ``input`` along ``dim``, times the sigmoid of the second half."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    half, odd = divmod(input.size(dim), 2)
    dim = dim % input.dim()
    if odd:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {2 * half + 1}")
    return _glu(input.narrow(dim, 0, half), input.narrow(dim, half, half))


def _implicit_dim(name: str, ndim: int, stacklevel: int) -> int:
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Pass dim=...", stacklevel=stacklevel)
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input) along ``dim``, divided by its sum; the shape stays. ``dtype``: cast the input first.

    ``dim=None`` warns and takes 0 for inputs of 0, 1 or 3 dimensions, else 1.
    """
    if dim is None:
        dim = _implicit_dim("softmax", input.ndim, _stacklevel)
    return _softmax(input, dim) if dtype is None else _softmax(input, dim, dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax of ``-input``."""
    if dim is None:
        dim = _implicit_dim("softmin", input.ndim, _stacklevel)
    return softmax(-input, dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """Logarithm of ``softmax``, formed without overflow; the shape stays. ``dim`` and ``dtype`` as there."""
    if dim is None:
        dim = _implicit_dim("log_softmax", input.ndim, _stacklevel)
    return _log_softmax(input, dim) if dtype is None else _log_softmax(input, dim, dtype=dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Random weights along ``dim``: softmax((logits + Gumbel noise) / tau). ``hard``: 1 at the largest and 0 elsewhere, with
    the gradient of the soft weights. ``eps`` is not used."""
    noise = -_f.empty_like(logits).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.detach().max(dim, keepdim=True)[1]
    one = _f.zeros_like(soft).scatter_add_(dim, index, _f.ones_like(index).to(soft.dtype))
    return one - soft.detach() + soft
