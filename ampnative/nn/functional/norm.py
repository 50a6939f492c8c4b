"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence

from ... import _C
from ..._C import Tensor

_layer_norm, _rms_norm, _group_norm = _C.nn.layer_norm, _C.nn.rms_norm, _C.nn.group_norm


def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) over the last dimensions, which have ``normalized_shape``, times ``weight``
    plus ``bias`` of that shape. Statistics of 16-bit and float32 inputs are formed in wider precision."""
    return _layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """input / sqrt(mean of squares + eps) over the last dimensions, times ``weight``; eps None: the machine epsilon of the
    dtype that is computed in."""
    return _rms_norm(input, normalized_shape, weight, eps)


def _check_several(count: int, shape: Sequence[int], what: str = "value per channel") -> None:
    if count == 1:
        raise ValueError(f"Expected more than 1 {what} when training, got input size {shape}: one alone has no variance")


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalises each of ``num_groups`` groups of channels of an input (N, C, ...) by its own statistics; ``weight`` and
    ``bias`` (C)."""
    if input.dim() >= 2 and num_groups > 0:  # PyTorch counts the samples in, though each has statistics of its own
        _check_several(input.numel() // num_groups, list(input.shape))
    return _group_norm(input, num_groups, weight, bias, eps)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises each channel of an input (N, C, ...) over all samples: by the input's statistics when ``training``, which
    then move the running ones by ``momentum``, else by the running ones. Vectors have C elements, the input's dtype, or
    all float32 beside a 16-bit input."""
    if training and input.dim() >= 2:
        _check_several(input.numel() // max(input.shape[1], 1), input.shape)
    if eps < 0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    return _C.functions.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises each channel of each sample of an input (N, C, ...) by its own statistics, or by the running ones."""
    if use_input_stats and input.dim() > 2:
        _check_several(input[0, 0].numel() if input.numel() else 0, input.shape, "spatial element")
    return _C.functions.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """input / max(p-norm along ``dim``, eps)."""
    size = input.norm(p, dim, keepdim=True).clamp(min=eps)
    return _C.functions.div(input, size.expand(*input.shape), out=out)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """input / (k + alpha * mean of squares over ``size`` neighbouring channels) ** beta; input (N, C, ...), and channels
    beyond the ends count as 0."""
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if input.numel() == 0:
        return input
    channels = input.shape[1]
    wide = input.float() if input.dtype.itemsize == 2 else input
    squares = wide * wide
    total = _C.functions.zeros_like(squares)
    for offset in range(max(-(size // 2), 1 - channels), min((size - 1) // 2, channels - 1) + 1):  # the neighbour at c + offset
        inside = squares.narrow(1, max(offset, 0), channels - abs(offset))
        edge = _C.functions.zeros_like(squares.narrow(1, 0, abs(offset)))
        total = total + _C.functions.cat([edge, inside] if offset < 0 else [inside, edge], 1)
    mean = total / size
    # A region on the CPU computes means over channels as it does the pools of such inputs: in float32.
    keeps = input.dim() > 3 and input.device.type == "cpu" and _C.is_autocast_enabled("cpu")
    return input / (mean if keeps else mean.to(input.dtype)).mul(alpha).add(k).pow(beta)
