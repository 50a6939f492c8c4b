"""Convolution layers, and Unfold and Fold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from .. import _C
from .._C import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

_MODES = ("zeros", "reflect", "replicate", "circular")


def _numbers(value: int | Sequence[int], n: int) -> tuple[int, ...]:
    """One number per spatial dimension: a single one is repeated, others are taken as they are."""
    return tuple(value) if isinstance(value, Iterable) else (value,) * n


def _named(function: FunctionType, owner: type) -> FunctionType:
    """A copy that says in errors that it is a method of ``owner``."""
    made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__, made.__annotations__ = function.__kwdefaults__, function.__annotations__
    made.__qualname__ = f"{owner.__qualname__}.{function.__name__}"
    return made


class _ConvNd(Module):
    """What the six layers share. `spatial` is a class attribute; kernels have that many dimensions."""

    spatial: int
    transposed = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__ == __name__ and "__init__" not in vars(cls):  # else a call without kernel_size names a private class
            cls.__init__ = _named(cls.__init__, cls)  # type: ignore[method-assign,arg-type]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int],
        padding: int | Sequence[int] | str,
        output_padding: int | Sequence[int],
        dilation: int | Sequence[int],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError(f"groups must be a positive integer, got {groups}")
        if in_channels % groups:
            raise ValueError(f"in_channels must be divisible by groups: {in_channels} is not by {groups}")
        if out_channels % groups:
            raise ValueError(f"out_channels must be divisible by groups: {out_channels} is not by {groups}")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {_MODES}, but got padding_mode={padding_mode!r}")
        n = self.spatial
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = _numbers(kernel_size, n), _numbers(stride, n), _numbers(dilation, n)
        self.output_padding, self.padding_mode = _numbers(output_padding, n), padding_mode
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions. Give the padding in numbers")
        self.padding: str | tuple[int, ...] = padding if isinstance(padding, str) else _numbers(padding, n)
        channels = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(_C.functions.empty((*channels, *self.kernel_size), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(_C.functions.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, uniform in +-1/sqrt(inputs of an output); with a seed the numbers are PyTorch's.
        """
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            inputs = math.prod(self.weight.shape[1:])
            if inputs:
                bound = 1 / math.sqrt(inputs)
                init.uniform_(self.bias, -bound, bound)

    def _sides(self) -> list[tuple[int, int]]:
        """Padding before and behind, per spatial dimension."""
        if self.padding == "valid":
            return [(0, 0)] * self.spatial
        if self.padding == "same":
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
            return [(t // 2, t - t // 2) for t in totals]
        return [(p, p) for p in self.padding]  # type: ignore[misc]

    def _convolve(self, input: Tensor, function: Any) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, [p for sides in reversed(self._sides()) for p in sides], mode=self.padding_mode)
            padding = 0
        return function(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _output_padding(self, input: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """What a transposed convolution has to add for `output_size`, with or without leading dimensions."""
        if output_size is None:
            return self.output_padding
        n, sizes = self.spatial, list(output_size)
        leading = input.dim() - n
        if len(sizes) == n + leading:
            sizes = sizes[leading:]
        if len(sizes) != n:
            raise ValueError(
                f"{type(self).__name__}: for {input.dim()}D input, output_size must have {n} or {n + leading} elements "
                f"(got {len(sizes)})"
            )
        least = [
            (input.shape[leading + d] - 1) * self.stride[d] - 2 * self.padding[d] + self.dilation[d] * (self.kernel_size[d] - 1) + 1  # type: ignore[operator]
            for d in range(n)
        ]
        most = [size + self.stride[d] - 1 for d, size in enumerate(least)]
        if not all(low <= size <= high for low, size, high in zip(least, sizes, most)):
            raise ValueError(
                f"requested an output size of {tuple(sizes)}, but valid sizes range from {least} to {most} "
                f"(for an input of {tuple(input.shape[leading:])})"
            )
        return tuple(size - low for size, low in zip(sizes, least))

    def extra_repr(self) -> str:
        n = self.spatial
        parts = [f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}", f"stride={self.stride}"]
        if self.padding != (0,) * n:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * n:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != (0,) * n:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class _Conv(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias, padding_mode, device, dtype
        )


class _ConvTransposeNd(_ConvNd):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}, got {padding_mode!r}')
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation, groups, bias, padding_mode,
            device, dtype,
        )  # fmt: skip

    def _transposed(self, input: Tensor, function: Any, output_size: Sequence[int] | None) -> Tensor:
        extra = self._output_padding(input, output_size)
        return function(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class Conv1d(_Conv):
    """Convolution: (N, in_channels, L) -> (N, out_channels, L'); N may be missing.

    weight (out_channels, in_channels / groups, kernel) and bias (out_channels) start uniform in +-1/sqrt(fan in).
    `padding` is a number per side, "same" or "valid"; `padding_mode` "zeros", "reflect", "replicate" or "circular".
    ValueError for what does not fit together here, RuntimeError for inputs that do not fit.
    """

    spatial = 1

    def forward(self, input: Tensor) -> Tensor:
        return self._convolve(input, F.conv1d)


class Conv2d(_Conv):
    """Convolution: (N, in_channels, H, W) -> (N, out_channels, H', W'). Arguments as for :class:`Conv1d`, per dimension."""

    spatial = 2

    def forward(self, input: Tensor) -> Tensor:
        return self._convolve(input, F.conv2d)


class Conv3d(_Conv):
    """Convolution: (N, in_channels, D, H, W) -> (N, out_channels, D', H', W'). Arguments as for :class:`Conv1d`."""

    spatial = 3

    def forward(self, input: Tensor) -> Tensor:
        return self._convolve(input, F.conv3d)


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution: (N, in_channels, L) -> (N, out_channels, L'); N may be missing.

    weight (in_channels, out_channels / groups, kernel). `forward` takes an `output_size`, which chooses among the sizes that
    a convolution with this stride maps to L; ValueError for others.
    """

    spatial = 1

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._transposed(input, F.conv_transpose1d, output_size)


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution: (N, in_channels, H, W) -> (N, out_channels, H', W'). See :class:`ConvTranspose1d`."""

    spatial = 2

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._transposed(input, F.conv_transpose2d, output_size)


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution: (N, in_channels, D, H, W) -> (N, out_channels, D', H', W'). See :class:`ConvTranspose1d`."""

    spatial = 3

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._transposed(input, F.conv_transpose3d, output_size)


class Unfold(Module):
    """:func:`functional.unfold` as a module."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
    ) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """:func:`functional.fold` as a module."""

    def __init__(
        self,
        output_size: int | Sequence[int],
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )
