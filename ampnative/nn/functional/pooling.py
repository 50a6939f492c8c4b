"""Pooling. Inputs are (N, C, spatial...) or (C, spatial...); the spatial dimensions are 1, 2 or 3, as the name says.

Sizes (kernel_size, stride, padding, dilation, output_size) are one int or a tuple of one per spatial dimension. Where the
windows do not fit, RuntimeError names the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import _C
from ..._C import Tensor
from ..._C.functions import rand
from ..._ops._common import one_integer

Ints = int | Sequence[int]
_max_pool = {1: _C.functions.max_pool1d, 2: _C.functions.max_pool2d, 3: _C.functions.max_pool3d}
_max_pool_with_indices = {
    1: _C.functions.max_pool1d_with_indices, 2: _C.nn.max_pool2d_with_indices, 3: _C.nn.max_pool3d_with_indices,
}  # fmt: skip
_adaptive_max_pool = {
    1: _C.functions.adaptive_max_pool1d, 2: _C.nn.adaptive_max_pool2d, 3: _C.nn.adaptive_max_pool3d,
}  # fmt: skip

avg_pool1d = _C.nn.avg_pool1d
avg_pool2d = _C.nn.avg_pool2d
avg_pool3d = _C.nn.avg_pool3d
adaptive_avg_pool1d = _C.nn.adaptive_avg_pool1d


def _family(make: Callable[[int], Callable], names: str) -> list[Callable]:
    made = []
    for nd in (1, 2, 3):
        function = make(nd)
        function.__name__ = function.__qualname__ = names.format(nd)
        function.__doc__ = (function.__doc__ or "").format(nd=nd)
        made.append(function)
    return made


def _make_max_pool(nd: int) -> Callable:
    plain, with_indices = _max_pool[nd], _max_pool_with_indices[nd]

    def max_pool(
        input: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The largest value of each window over {nd} dimension(s); NaN wins. With ``return_indices`` a pair: values and their
        positions in the input's plane (int64), for :func:`max_unpool{nd}d`."""
        return (with_indices if return_indices else plain)(input, kernel_size, stride, padding, dilation, ceil_mode)

    return max_pool


max_pool1d, max_pool2d, max_pool3d = _family(_make_max_pool, "max_pool{}d")


def _make_max_pool_with_indices(nd: int) -> Callable:
    function = _max_pool_with_indices[nd]

    def max_pool_with_indices(
        input: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """:func:`max_pool{nd}d` with ``return_indices=True``."""
        return function(input, kernel_size, stride, padding, dilation, ceil_mode)

    return max_pool_with_indices


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = _family(
    _make_max_pool_with_indices, "max_pool{}d_with_indices"
)


def _full_size(output_size: Any, input: Tensor, nd: int) -> Any:
    """None stands for the input's own size."""
    if isinstance(output_size, int):
        return output_size
    if output_size is None:
        output_size = (None,) * nd
    if len(output_size) == nd and input.dim() <= nd:
        raise ValueError(f"Input dimension should be at least {nd + 1}")
    spatial = input.shape[-len(output_size) :]
    return [own if size is None else size for size, own in zip(output_size, spatial, strict=False)]


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Averages over windows that divide the plane into ``output_size`` (H, W) parts; None keeps a size."""
    return _C.nn.adaptive_avg_pool2d(input, _full_size(output_size, input, 2))


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Averages over windows that divide the volume into ``output_size`` (D, H, W) parts; None keeps a size."""
    return _C.nn.adaptive_avg_pool3d(input, _full_size(output_size, input, 3))


def _make_adaptive_max_pool(nd: int) -> Callable:
    function = _adaptive_max_pool[nd]

    def adaptive_max_pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        """The largest values of windows that divide {nd} dimension(s) into ``output_size`` parts; None keeps a size. With
        ``return_indices`` a pair: values and positions (int64)."""
        values, indices = function(input, _full_size(output_size, input, nd))
        return (values, indices) if return_indices else values

    return adaptive_max_pool


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = _family(_make_adaptive_max_pool, "adaptive_max_pool{}d")


def _fractional_max_pool(
    nd: int, input: Tensor, kernel_size: Ints, output_size: Any, output_ratio: Any, samples: Tensor | None
) -> tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{nd}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if output_size is None:
        ratios = (output_ratio,) * nd if isinstance(output_ratio, (int, float)) else output_ratio
        output_size = [int(size * ratio) for size, ratio in zip(input.shape[-nd:], ratios, strict=True)]
    if samples is None:
        batch = 1 if input.dim() == nd + 1 else input.shape[0]
        samples = rand(batch, input.shape[-nd - 1], nd, dtype=input.dtype, device=input.device)
    function = _C.nn.fractional_max_pool2d if nd == 2 else _C.nn.fractional_max_pool3d
    return function(input, kernel_size, output_size, samples)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The largest values of windows of ``kernel_size`` that stand at random, nearly even distances, ``output_size`` of them or
    ``output_ratio`` times the input's size. ``_random_samples`` (N, C, 2) in [0, 1) replaces the random numbers."""
    values, indices = _fractional_max_pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return (values, indices) if return_indices else values


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """As :func:`fractional_max_pool2d`, over three dimensions; ``_random_samples`` (N, C, 3)."""
    values, indices = _fractional_max_pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return (values, indices) if return_indices else values


# ---- unpooling ----


def _tuple(value: Ints, n: int) -> list[int]:
    value = one_integer(value)
    return [value] * n if isinstance(value, int) else list(value)


def _unpool_size(input: Tensor, kernel: list[int], stride: list[int], padding: list[int], output_size: Any) -> list[int]:
    n = len(kernel)
    own = [(size - 1) * s - 2 * p + k for size, s, p, k in zip(input.shape[-n:], stride, padding, kernel, strict=True)]
    if output_size is None:
        return own
    if len(output_size) == n + 2:
        output_size = output_size[2:]
    if len(output_size) != n:
        raise ValueError(
            f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length of '{len(output_size)}'"
        )
    for d in range(n):
        low, high = own[d] - stride[d], own[d] + stride[d]
        if not low < output_size[d] < high:
            raise ValueError(f'invalid output_size "{tuple(output_size)}" (dim {d} must be between {low} and {high})')
    return list(output_size)


def _max_unpool(nd: int, input: Tensor, indices: Tensor, kernel_size: Ints, stride: Any, padding: Ints, output_size: Any) -> Tensor:
    kernel, pad = _tuple(kernel_size, nd), _tuple(padding, nd)
    step = kernel if stride is None else _tuple(stride, nd)
    size = _unpool_size(input, kernel, step, pad, output_size)
    if nd == 1:
        return _C.nn.max_unpool2d(input.unsqueeze(-1), indices.unsqueeze(-1), [*size, 1]).squeeze(-1)
    return _C.nn.max_unpool2d(input, indices, size) if nd == 2 else _C.nn.max_unpool3d(input, indices, size, step, pad)


def _make_max_unpool(nd: int) -> Callable:
    def max_unpool(
        input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, output_size: Any = None
    ) -> Tensor:
        """Values put back at the positions that ``max_pool{nd}d(return_indices=True)`` gave, zeros elsewhere. ``output_size``
        tells which of the input sizes that pool to this one is meant; RuntimeError for positions outside."""
        return _max_unpool(nd, input, indices, kernel_size, stride, padding, output_size)

    return max_unpool


max_unpool1d, max_unpool2d, max_unpool3d = _family(_make_max_unpool, "max_unpool{}d")


# ---- power means ----


def _lp_pool(nd: int, input: Tensor, norm_type: float, kernel_size: Ints, stride: Any, ceil_mode: bool) -> Tensor:
    average = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}[nd]
    count = 1
    for size in _tuple(kernel_size, nd):
        count *= size
    mean = average(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (mean.sign() * mean.abs().relu()).mul(count).pow(1.0 / norm_type)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Tensor:
    """The ``norm_type``-norm of each window, without absolute values: (sum of x ** p) ** (1 / p)."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Tensor:
    """As :func:`lp_pool1d`, over two dimensions."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False) -> Tensor:
    """As :func:`lp_pool1d`, over three dimensions."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
