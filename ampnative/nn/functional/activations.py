"""Activations, the softmax family and dropout."""

from __future__ import annotations

import warnings
from typing import Any

from ... import _C
from ..._C import Tensor

relu = _C.nn.relu
gelu = _C.nn.gelu
tanh = _C.nn.tanh
sigmoid = _C.nn.sigmoid
softplus = _C.nn.softplus
logsigmoid = _C.nn.logsigmoid

_silu, _leaky_relu, _elu = _C.nn.silu, _C.nn.leaky_relu, _C.nn.elu
_softmax, _log_softmax, _dropout = _C.functions.softmax, _C.functions.log_softmax, _C.functions.dropout


def relu_(input: Tensor) -> Tensor:
    return relu(input, True)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * sigmoid(input)``."""
    return input.copy_(_silu(input)) if inplace else _silu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    out = _leaky_relu(input, negative_slope)
    return input.copy_(out) if inplace else out


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    out = _elu(input, alpha)
    return input.copy_(out) if inplace else out


def _implicit_dim(name: str, ndim: int, stacklevel: int) -> int:
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Pass dim=...", stacklevel=stacklevel)
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input) along ``dim``, divided by its sum; ``dtype``: cast the input first."""
    if dim is None:
        dim = _implicit_dim("softmax", input.ndim, _stacklevel)
    return _softmax(input, dim) if dtype is None else _softmax(input, dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """Logarithm of ``softmax``, formed without overflow."""
    if dim is None:
        dim = _implicit_dim("log_softmax", input.ndim, _stacklevel)
    return _log_softmax(input, dim) if dtype is None else _log_softmax(input, dim, dtype=dtype)


def check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero elements with probability ``p`` and multiply the others by 1 / (1 - p); the identity unless ``training``."""
    check_probability(p)
    if not inplace:
        return _dropout(input, p, training)
    if training:
        input.mul_(_dropout(_C.functions.ones_like(input), p, True))
    return input
