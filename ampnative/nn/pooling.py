"""Pooling modules: :mod:`ampnative.nn.functional` with the options kept. Inputs are (N, C, spatial...) or (C, spatial...)."""

from __future__ import annotations

from typing import Any, ClassVar

from .._C import Tensor
from . import functional as F
from .functional.pooling import Ints
from .module import Module


def _tuple(value: Any, n: int) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n


class _Pool(Module):
    """What all share: the function, and the options that printing shows."""

    _pool: ClassVar[str]  # of functional: looked up at each call, as it may have been replaced
    _shown: ClassVar[tuple[str, ...]] = ()

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)


class _MaxPoolNd(_Pool):
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._pool)(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool1d(_MaxPoolNd):
    """The largest value of each window; with ``return_indices`` also its position (int64)."""

    _pool = "max_pool1d"


class MaxPool2d(_MaxPoolNd):
    """The largest value of each window; with ``return_indices`` also its position in the plane (int64)."""

    _pool = "max_pool2d"


class MaxPool3d(_MaxPoolNd):
    """The largest value of each window; with ``return_indices`` also its position in the volume (int64)."""

    _pool = "max_pool3d"


class _AvgPoolNd(_Pool):
    kernel_size: Any
    stride: Any
    padding: Any
    _shown = ("kernel_size", "stride", "padding")


class AvgPool1d(_AvgPoolNd):
    """The mean of each window; padding counts as zeros unless ``count_include_pad`` is False."""

    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False, count_include_pad: bool = True
    ) -> None:
        super().__init__()
        self.kernel_size = _tuple(kernel_size, 1)
        self.stride = _tuple(stride if stride is not None else kernel_size, 1)
        self.padding = _tuple(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolWithDivisor(_AvgPoolNd):
    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._pool)(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override
        )


class AvgPool2d(_AvgPoolWithDivisor):
    """The mean of each window; padding counts as zeros unless ``count_include_pad`` is False; ``divisor_override`` divides
    instead."""

    _pool = "avg_pool2d"


class AvgPool3d(_AvgPoolWithDivisor):
    """As :class:`AvgPool2d`, over three dimensions."""

    _pool = "avg_pool3d"


class _AdaptiveAvgPoolNd(_Pool):
    _shown = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._pool)(input, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means over windows that divide the line into ``output_size`` parts."""

    _pool = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means over windows that divide the plane into ``output_size`` (H, W) parts; None keeps a size."""

    _pool = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means over windows that divide the volume into ``output_size`` (D, H, W) parts; None keeps a size."""

    _pool = "adaptive_avg_pool3d"


class _AdaptiveMaxPoolNd(_Pool):
    _shown = ("output_size",)

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._pool)(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Largest values of windows that divide the line into ``output_size`` parts; with ``return_indices`` also positions."""

    _pool = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Largest values of windows that divide the plane into ``output_size`` (H, W) parts; None keeps a size."""

    _pool = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Largest values of windows that divide the volume into ``output_size`` (D, H, W) parts; None keeps a size."""

    _pool = "adaptive_max_pool3d"


class _MaxUnpoolNd(_Pool):
    _dims = 0
    _shown = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        super().__init__()
        self.kernel_size = _tuple(kernel_size, self._dims)
        self.stride = _tuple(stride if stride is not None else kernel_size, self._dims)
        self.padding = _tuple(padding, self._dims)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return getattr(F, self._pool)(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts values back where ``MaxPool1d(return_indices=True)`` found them, zeros elsewhere."""

    _dims, _pool = 1, "max_unpool1d"


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts values back where ``MaxPool2d(return_indices=True)`` found them, zeros elsewhere."""

    _dims, _pool = 2, "max_unpool2d"


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts values back where ``MaxPool3d(return_indices=True)`` found them, zeros elsewhere."""

    _dims, _pool = 3, "max_unpool3d"


class _LPPoolNd(_Pool):
    _shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._pool)(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPoolNd):
    """(sum of x ** norm_type) ** (1 / norm_type) over each window."""

    _pool = "lp_pool1d"


class LPPool2d(_LPPoolNd):
    """(sum of x ** norm_type) ** (1 / norm_type) over each window."""

    _pool = "lp_pool2d"


class LPPool3d(_LPPoolNd):
    """(sum of x ** norm_type) ** (1 / norm_type) over each window."""

    _pool = "lp_pool3d"


class _FractionalMaxPool(_Pool):
    _dims = 0
    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: Ints,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = _tuple(kernel_size, self._dims)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else _tuple(output_size, self._dims)
        self.output_ratio = None if output_ratio is None else _tuple(output_ratio, self._dims)
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._pool)(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, _random_samples=self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Largest values of windows at random, nearly even distances: ``output_size`` of them, or ``output_ratio`` in (0, 1) of
    the input's size."""

    _dims, _pool = 2, "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPool):
    """As :class:`FractionalMaxPool2d`, over three dimensions."""

    _dims, _pool = 3, "fractional_max_pool3d"
