"""Layers and the batch norm behind them as one layer, for evaluation."""

from __future__ import annotations

import copy
from typing import Any

from ..._C import Tensor
from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _fused(
    weight: Tensor, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, scale: Tensor | None, shift: Tensor | None, channel: int
) -> tuple[Parameter, Parameter]:
    """`channel`: the dimension of the outputs in `weight`."""
    factor = (var + eps).rsqrt()
    factor = factor if scale is None else scale * factor
    shape = [1] * weight.dim()
    shape[channel] = -1
    shifted = ((0 if bias is None else bias) - mean) * factor
    shifted = shifted if shift is None else shifted + shift
    dtype = weight.dtype
    parts = (weight * factor.reshape(shape)).to(dtype), shifted.to(dtype if bias is None else bias.dtype)
    return Parameter(parts[0], weight.requires_grad), Parameter(parts[1], bias is not None and bias.requires_grad)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the convolution (``transpose``: a transposed one) that does what a convolution followed by a batch norm in
    evaluation does. None stands for no bias, weight 1 and bias 0."""
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None
) -> tuple[Parameter, Parameter]:
    """As :func:`fuse_conv_bn_weights`, of a linear layer."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _with_bn(layer: Any, bn: Any, channel: int) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(layer)
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("fusion needs a batch norm with running statistics (track_running_stats=True)")
    weight, bias = _fused(layer.weight, layer.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, channel)
    fused.weight, fused.bias = weight, bias
    return fused


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of the convolution that does what ``bn(conv(x))`` does. AssertionError unless both are in evaluation mode, with running
    statistics."""
    return _with_bn(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of the linear layer that does what ``bn(linear(x))`` does, for inputs (N, in_features). AssertionError unless both are in
    evaluation mode, with running statistics, and ``bn`` has the layer's number of outputs, or 1."""
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    return _with_bn(linear, bn, 0)
