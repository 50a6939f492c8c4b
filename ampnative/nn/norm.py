"""Normalisation modules."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from .. import _C
from .._C import Tensor
from . import functional as F
from .module import Module
from .parameter import Parameter

_zeros, _ones = _C.functions.zeros, _C.functions.ones


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(normalized_shape) if isinstance(normalized_shape, Iterable) else (normalized_shape,)


class _Affine(Module):
    """Weight of ones and bias of zeros, where wanted."""

    weight: Parameter | None
    bias: Parameter | None

    def _make_affine(self, shape: Sequence[int], weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        for name, wanted, make in (("weight", weight, _ones), ("bias", bias, _zeros)):
            self.register_parameter(name, Parameter(make(shape, device=device, dtype=dtype)) if wanted else None)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        for name, value in (("weight", 1), ("bias", 0)):
            parameter = getattr(self, name, None)
            if parameter is not None:
                parameter.data.fill_(value)


class LayerNorm(_Affine):
    """Normalises over the last dimensions, which must have ``normalized_shape``; weight and bias of that shape."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = _shape(normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        self._make_affine(self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class RMSNorm(_Affine):
    """Divides by the root of the mean square over the last dimensions; weight of ``normalized_shape``."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = _shape(normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        weight = Parameter(_ones(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Normalises groups of channels of an input (N, num_channels, ...); weight and bias (num_channels)."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._make_affine((num_channels,), affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"affine={self.affine}, bias={self.bias is not None}"
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, {affine}"


class _NormBase(_Affine):
    """Weight, bias and running statistics per channel."""

    _version = 2  # 1: without num_batches_tracked

    running_mean: Any  # tensors, or None if statistics are not tracked
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._make_affine((num_features,), affine, affine and bias, device, dtype)
        tracked = (
            (
                _zeros(num_features, device=device, dtype=dtype),
                _ones(num_features, device=device, dtype=dtype),
                _zeros((), device=device, dtype=_C.dtypes.int64),
            )
            if track_running_stats
            else (None, None, None)
        )
        for name, value in zip(("running_mean", "running_var", "num_batches_tracked"), tracked, strict=True):
            self.register_buffer(name, value)

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batch seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Running statistics, weight and bias as at the start."""
        self.reset_running_stats()
        super().reset_parameters()

    def extra_repr(self) -> str:
        affine = f"affine={self.affine}, bias={self.bias is not None}"
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, {affine}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any) -> None:
        """States from before the counter existed (version 1, or of no known version) lack it: it stays as it is."""
        key, counter = prefix + "num_batches_tracked", self.num_batches_tracked
        if (local_metadata.get("version") or 1) < 2 and self.track_running_stats and key not in state_dict:
            known = counter is not None and counter.device.type != "meta"
            state_dict = {**state_dict, key: counter.clone() if known else _zeros((), dtype=_C.dtypes.int64)}
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    """Normalises each channel over the batch: in training by the batch's statistics, in evaluation by the running ones
    (by the batch's if none are tracked). ``momentum`` None: running statistics are plain averages of all batches seen."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        running = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if running else (None, None)
        return F.batch_norm(input, mean, var, self.weight, self.bias, by_batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Over inputs (N, C) or (N, C, L)."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class BatchNorm2d(_BatchNorm):
    """Over inputs (N, C, H, W)."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 4:
            raise ValueError(f"expected 4D input (got {input.dim()}D input)")


class BatchNorm3d(_BatchNorm):
    """Over inputs (N, C, D, H, W)."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 5:
            raise ValueError(f"expected 5D input (got {input.dim()}D input)")


class SyncBatchNorm(_BatchNorm):
    """Refused: it joins the statistics of several processes, and there is one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "SyncBatchNorm joins batch statistics over processes, and ampnative runs in one: use BatchNorm1d, BatchNorm2d or "
            "BatchNorm3d, which do the same there"
        )

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Refused, like the class."""
        raise NotImplementedError("SyncBatchNorm is not available in one process: leave the BatchNorm modules as they are")


class _InstanceNorm(_NormBase):
    """Normalises each channel of each sample by its own statistics, in evaluation by the running ones if they are tracked."""

    _batched = 0  # dimensions of an input with its dimension of samples

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def _normalised(self, input: Tensor) -> Tensor:
        by_input = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        return F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias, by_input, momentum, self.eps)

    def forward(self, input: Tensor) -> Tensor:
        alone = self._batched - 1
        if input.dim() not in (alone, self._batched):
            raise ValueError(f"expected {alone}D or {self._batched}D input (got {input.dim()}D input)")
        dim = input.dim() - alone
        if input.shape[dim] != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={dim} to match num_features ({self.num_features}), but got: {input.shape[dim]}."
                )
            warnings.warn(
                f"input's size at dim={dim} does not match num_features. Without affine the number is not used: leave it out.",
                stacklevel=2,
            )
        return self._normalised(input) if dim else self._normalised(input.unsqueeze(0)).squeeze(0)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any) -> None:
        """States of no known version may have statistics that were never asked for: they are an error, in lenient loads too."""
        error_msgs: list[str] = rest[-1]
        extra = [k for k in ("running_mean", "running_var") if prefix + k in state_dict]
        if extra and not self.track_running_stats and local_metadata.get("version") is None:
            names = " and ".join(f'"{k}"' for k in extra)
            error_msgs.append(
                f"Unexpected running stats buffer(s) {names} for {type(self).__name__} with track_running_stats=False: remove them, "
                f"or make the module with track_running_stats=True"
            )
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class InstanceNorm1d(_InstanceNorm):
    """Over inputs (N, C, L) or (C, L)."""

    _batched = 3


class InstanceNorm2d(_InstanceNorm):
    """Over inputs (N, C, H, W) or (C, H, W)."""

    _batched = 4


class InstanceNorm3d(_InstanceNorm):
    """Over inputs (N, C, D, H, W) or (C, D, H, W)."""

    _batched = 5


class LocalResponseNorm(Module):
    """Divides by a power of the mean square of ``size`` neighbouring channels; input (N, C, ...)."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Older form of :class:`LocalResponseNorm`, for (N, C, H, W): divides by ``(k + alpha / size * s) ** beta``, s the sum of squares
    of the channel and of ``(size - 1) // 2`` on either side.

    As in PyTorch, an even ``size`` counts as the next smaller odd one, and the square of channel 0 stays in all sums from channel
    ``(size + 1) // 2`` on. The gradient is that of this forward pass, the leftover square included. ValueError unless 4-dimensional.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        reach = int((self.size - 1) / 2 + 1)
        squares = input * input
        sums = []
        for c in range(input.size(1)):
            first, end = max(c - reach + 1, 0), min(c + reach, input.size(1))
            found = squares[:, first:end].sum(1)
            sums.append(found + squares[:, 0] if first > 0 else found)
        scale = _C.functions.stack(sums, 1) * (self.alpha / self.size) + self.k
        return input * scale ** (-self.beta)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
