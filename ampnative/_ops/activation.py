"""Activations made of other ops."""

from __future__ import annotations

from .. import _C
from .._C import Tensor


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Slopes of negative values: one for all, or one per channel (dimension 1)."""
    if input.dtype != weight.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}: convert the weight to the input's dtype"
        )
    if weight.dim() > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}")
    if weight.numel() != 1:
        channels = input.shape[1] if input.dim() > 1 else 1
        if input.dim() == 0:
            raise RuntimeError("prelu: Not allow zero-dim input tensor with more than one slope")
        if weight.numel() != channels:
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. "
                f"Found parameter numbers = {weight.numel()} and channel size = {channels}."
            )
    shape = [1] * input.dim()
    if input.dim() > 1:
        shape[1] = weight.numel()
    return _C.nn._prelu(input, weight.reshape(shape))
