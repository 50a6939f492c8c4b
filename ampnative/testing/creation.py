"""make_tensor: random tensors of any dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import _C
from .._C import Tensor

__all__ = ["make_tensor"]


def make_tensor(
    *shape: int | Sequence[int],
    dtype: _C.dtype,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Uniformly random values in [low, high): by default [-9, 9), for unsigned integers [0, 10), for bools both.

    Args:
        shape: sizes, or one sequence of them.
        noncontiguous: every second element of a larger tensor (needs at least two elements).
        exclude_zero: zeros become the smallest positive number.

    Raises:
        ValueError: low is not below high, or a gradient is wanted of integers.
    """
    sizes: tuple[Any, ...] = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    inexact = dtype.is_floating_point or dtype.is_complex
    if requires_grad and not inexact:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype}")
    low, high = _range(dtype, low, high)
    stretched = noncontiguous and math.prod(sizes) > 1
    if stretched:
        sizes = (*sizes[:-1], 2 * sizes[-1])
    if inexact:
        result = _C.functions.empty(sizes, dtype=dtype, device=device)
        target = result.view_as_real() if dtype.is_complex and hasattr(result, "view_as_real") else result
        target.uniform_(low, high)
    else:
        result = _C.functions.randint(int(low), int(high), sizes, dtype=dtype, device=device)
    if stretched:
        result = result[..., 1::2]
    if exclude_zero:
        result[result == 0] = _C.finfo(dtype).tiny if inexact else 1
    return result.requires_grad_() if requires_grad else result


def _range(dtype: Any, low: float | None, high: float | None) -> tuple[float, float]:
    if low is not None and high is not None and low > high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if dtype == _C.bool:
        lowest, highest, default_low, default_high = 0.0, 2.0, 0.0, 2.0
    elif dtype.is_floating_point or dtype.is_complex:
        info = _C.finfo(dtype)
        lowest, highest, default_low, default_high = info.min, info.max, -9.0, 9.0
    else:
        whole = _C.iinfo(dtype)
        lowest, highest = float(whole.min), float(whole.max)
        default_low, default_high = (0.0, 10.0) if whole.min == 0 else (-9.0, 10.0)
    low, high = default_low if low is None else low, default_high if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    low, high = max(low, lowest), min(high, highest)
    if not (dtype.is_floating_point or dtype.is_complex):
        low, high = math.ceil(low), max(math.ceil(high), math.ceil(low) + 1)
    return low, high
