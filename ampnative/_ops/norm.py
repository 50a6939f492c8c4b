"""Normalisation made of other ops."""

from __future__ import annotations

from .. import _C
from .._C import Tensor


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Batch normalisation of one sample that has every channel of every input sample."""
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
    if input.dim() < 2:
        raise RuntimeError(f"instance_norm: the input needs a dimension of samples and one of channels, got {input.dim()}-d")
    samples, channels, *rest = input.shape

    def repeated(t: Tensor | None) -> Tensor | None:
        return None if t is None else t.repeat(samples)

    mean, var = repeated(running_mean), repeated(running_var)
    flat = input.reshape(1, samples * channels, *rest)
    out = _C.functions.batch_norm(
        flat, repeated(weight), repeated(bias), mean, var, use_input_stats, momentum, eps, cudnn_enabled
    )
    for running, updated in ((running_mean, mean), (running_var, var)):
        if running is not None and updated is not None and use_input_stats:
            running.copy_(updated.reshape(samples, channels).mean(0))
    return out.reshape(input.shape)
