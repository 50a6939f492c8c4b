"""Dropout of elements and of whole channels. With one seed the masks are PyTorch's."""

from __future__ import annotations

import warnings

from ... import _C
from ..._C import Tensor
from ..._functions_random import alpha_dropout_mask, feature_mask, masked

_dropout = _C.functions.dropout


def check_probability(p: float) -> None:
    """ValueError unless ``p`` is in [0, 1]."""
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


def _channels(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    check_probability(p)
    return masked(input, p, training, inplace, feature_mask)


def _one_sample(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    out = _channels(input.unsqueeze(0), p, training, inplace).squeeze(0)
    return input if inplace else out


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """``dropout`` of whole channels of an input (N, C, L) or (C, L)."""
    check_probability(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input: (N, C, L) or (C, L)")
    return (_channels if input.dim() == 3 else _one_sample)(input, p, training, inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """``dropout`` of whole channels of an input (N, C, H, W). An input of 3 dimensions counts as (N, C, L)."""
    check_probability(p)
    if input.dim() not in (3, 4):
        warnings.warn(
            f"dropout2d: Received a {input.dim()}-D input, which is deprecated: for other dimensions use dropout1d, dropout3d or "
            "dropout",
            stacklevel=2,
        )
    elif input.dim() == 3:
        warnings.warn(
            "dropout2d: Received a 3D input, which is taken as (N, C, L): use dropout1d for it, or add a dimension to (C, H, W)",
            stacklevel=2,
        )
    return _channels(input, p, training, inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """``dropout`` of whole channels of an input (N, C, D, H, W) or (C, D, H, W)."""
    check_probability(p)
    if input.dim() not in (4, 5):
        warnings.warn(
            f"dropout3d: Received a {input.dim()}-D input, which is deprecated: for other dimensions use dropout1d, dropout2d or "
            "dropout",
            stacklevel=2,
        )
    return (_channels if input.dim() == 5 else _one_sample)(input, p, training, inplace)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Sets elements to selu's lower limit with probability ``p`` and rescales, so that mean 0 and variance 1 stay."""
    check_probability(p)
    return masked(input, p, training, inplace, alpha_dropout_mask)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """``alpha_dropout`` of whole channels of an input (N, C, ...)."""
    check_probability(p)
    return masked(input, p, training, inplace, alpha_dropout_mask, True)
