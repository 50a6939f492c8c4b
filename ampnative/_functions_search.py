"""Indexing by tensors, sets, counts, statistics and differences, made of other ops."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _C
from ._C import Tensor
from ._function_names import Names, with_out
from ._ops._common import joined_shape
from ._ops._undifferentiable import missing, not_implemented, refused

__all__: list[str] = []
_names = Names(__all__)


def _dim(dim: int, ndim: int) -> int:
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


# ---- order ----


@_names.both
@with_out()
def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The positions, int64, that sort along ``dim``; always stable."""
    return input.sort(dim, descending)[1]


@_names.both
@with_out(apart=True)
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sorted along dimension 0."""
    return input.sort(0)[0]


@_names.function
def bucketize(
    input: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Tensor | None = None
) -> Tensor:
    """The number of the bucket of each element: how many sorted ``boundaries`` (1-d) lie below it; with ``right`` those
    equal to it too."""
    if boundaries.dim() != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.dim()})")
    return _C.functions.searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


def _pieces(out: Tensor, inverse: Tensor, counts: Tensor, return_inverse: bool, return_counts: bool) -> Any:
    parts = [out] + [inverse] * return_inverse + [counts] * return_counts
    return parts[0] if len(parts) == 1 else tuple(parts)


def _runs(same_as_before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Starts, lengths and numbers of the runs: element i + 1 belongs to element i's run where True."""
    n = same_as_before.numel() + 1
    first = _C.functions.cat([same_as_before.new_ones((1,)), ~same_as_before])
    starts = first.nonzero().reshape(-1)
    ends = _C.functions.cat([starts[1:], starts.new_full((1,), n)])
    return starts, ends - starts, first.cumsum(0) - 1


@_names.both
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The different elements (``dim`` None) or slices along ``dim``, sorted; then, where asked for, for each element its
    number among them, and how often each occurs (int64). The elements require grad where ``input`` does, but have no derivative:
    backward raises NotImplementedError."""
    if dim is not None:
        return _refused("unique_dim", input, _unique_slices(input.detach(), dim, return_inverse, return_counts))
    return _refused("_unique2", input, _unique_elements(input.detach(), return_inverse, return_counts))


def _refused(name: str, input: Tensor, pieces: Any) -> Any:
    several = isinstance(pieces, tuple)
    (out,) = refused(not_implemented(name), (pieces[0] if several else pieces,), input)
    return (out, *pieces[1:]) if several else out


def _unique_elements(input: Tensor, return_inverse: bool, return_counts: bool) -> Any:
    if input.is_complex():
        raise NotImplementedError(f'"unique" not implemented for \'{input.dtype}\', which has no order')
    flat = input.reshape(-1)
    if flat.numel() == 0:
        empty = flat.new_empty((0,), dtype=_C.int64)
        return _pieces(flat, empty.reshape(input.shape), empty, return_inverse, return_counts)
    values, order = flat.sort(0)
    starts, counts, number = _runs(values[1:] == values[:-1])
    inverse = number.new_empty(number.shape).scatter(0, order, number).reshape(input.shape)
    return _pieces(values[starts], inverse, counts, return_inverse, return_counts)


def _as_rows(input: Tensor, dim: int) -> Tensor:
    """The slices along dim as rows."""
    size = input.size(dim)
    if input.numel() == 0 and size:
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    return input.movedim(dim, 0).reshape(size, -1 if size else 0)


def _unique_slices(input: Tensor, dim: int, return_inverse: bool, return_counts: bool) -> Any:
    size = input.size(dim)
    rows = _as_rows(input, dim)
    # Stable sorts from the last column to the first bring the slices into lexicographic order.
    order = _C.functions.arange(size, device=input.device)
    for column in range(rows.size(1) - 1, -1, -1):
        order = order[rows[order, column].sort(0)[1]]
    if size == 0:
        return _pieces(input, order, order, return_inverse, return_counts)
    lines = rows[order]
    starts, counts, number = _runs((lines[1:] == lines[:-1]).all(1))
    inverse = number.new_empty(number.shape).scatter(0, order, number)
    return _pieces(input.index_select(dim, order[starts]), inverse, counts, return_inverse, return_counts)


@_names.both
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The first of each run of equal elements (``dim`` None: of the flattened tensor) or slices along ``dim``, then as
    for :func:`unique`."""
    return _refused("unique_consecutive", input, _runs_of(input.detach(), return_inverse, return_counts, dim))


def _runs_of(input: Tensor, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    lines = input.reshape(input.numel(), 1) if dim is None else _as_rows(input, dim)
    if lines.size(0) == 0:
        empty = input.new_empty((0,), dtype=_C.int64)
        out, inverse = (input.reshape(-1), empty.reshape(input.shape)) if dim is None else (input, empty)
        return _pieces(out, inverse, empty, return_inverse, return_counts)
    starts, counts, number = _runs((lines[1:] == lines[:-1]).all(1))
    out = lines.reshape(-1)[starts] if dim is None else input.index_select(dim, starts)
    return _pieces(out, number.reshape(input.shape) if dim is None else number, counts, return_inverse, return_counts)


@_names.function
@with_out()
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False, out: Tensor | None = None
) -> Tensor:
    """Whether each element is among the test elements."""
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError("isin(): one of elements and test_elements must be a Tensor")
    device = elements.device if isinstance(elements, Tensor) else test_elements.device
    dtype = _C.result_type(elements, test_elements)
    a, b = (t.detach() if isinstance(t, Tensor) else _C.tensor(t, device=device) for t in (elements, test_elements))
    if dtype.is_complex:
        raise NotImplementedError(f"Unsupported input type encountered for isin(): {dtype}, which has no order")
    a, table = a.to(dtype), b.reshape(-1).to(dtype).sort(0)[0]
    if table.numel() == 0:
        found = a.new_zeros(a.shape, dtype=_C.bool)
    else:
        place = _C.functions.searchsorted(table, a).clamp(max=table.numel() - 1)
        found = table[place] == a
    return ~found if invert else found


@_names.both
@with_out()
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None) -> Tensor:
    """How many elements lie in each of ``bins`` equal bins between min and max (both 0: the least and the greatest
    element); others do not count. In the input's dtype."""
    if not input.is_floating_point():
        raise NotImplementedError(f"histc is not implemented for {input.dtype}: it works on floating tensors")
    if isinstance(bins, bool) or not hasattr(bins, "__index__") or (isinstance(bins, Tensor) and bins.dim()):
        raise TypeError(f"histc(): argument 'bins' must be int, not {bins!r} ({type(bins).__name__})")
    bins = operator.index(bins)
    if bins <= 0:
        raise RuntimeError(f"bins must be > 0, but got {bins}")
    values = input.detach().cpu().reshape(-1).double().numpy()
    low, high = float(min), float(max)
    if low == high and values.size:
        low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    inside = values[(values >= low) & (values <= high)]
    places = np.minimum(((inside - low) / (high - low) * bins).astype(np.int64), bins - 1)
    counts = np.bincount(places, minlength=bins)
    return _C.from_numpy(counts).to(input.device, input.dtype)


@_names.both
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often 0, 1, 2, ... occur in a vector of integers, or the sums of their weights: int64, float32 for float32
    weights, otherwise float64. No derivative: backward raises."""
    if input.is_floating_point() or input.is_complex() or input.dtype == _C.bool:
        raise NotImplementedError(f"bincount is not implemented for {input.dtype}: it counts integers")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    values = input.detach().cpu().numpy()
    if values.ndim != 1 or (values.size and values.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != input.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    dtype = _C.int64 if weights is None or not values.size else _C.float32 if weights.dtype == _C.float32 else _C.float64
    each = None if weights is None else weights.detach().cpu().to(_C.float64).numpy()
    counts = np.bincount(values.astype(np.int64, copy=False), each, minlength)
    result = _C.from_numpy(counts).to(input.device, dtype)
    return result if weights is None else refused(missing("bincount"), (result,), weights)[0]


@_names.both
def argwhere(input: Tensor) -> Tensor:
    """Positions of the elements that are not zero: (count, ndim), int64."""
    return input.nonzero()


# ---- indexing ----


@_names.function
def index_put(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with ``values`` put, or added, where the index tensors say; None stands for a whole dimension."""
    return input.index_put(indices, values, accumulate)


@_names.function
def index_put_(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Puts or adds ``values`` where the index tensors say, in place."""
    return input.index_put_(indices, values, accumulate)


def _flat_index(name: str, input: Tensor, index: Tensor) -> Tensor:
    if index.dtype != _C.int64:
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {index.dtype}")
    n = input.numel()
    wrong = (index < -n) | (index >= n)
    if bool(wrong.any()):
        raise IndexError(f"out of range: tried to access index {index[wrong][0].item()} on a tensor of {n} elements.")
    return index


@_names.both
@with_out(apart=True)
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elements of the flattened input by int64 positions, in the index's shape."""
    return input.reshape(-1)[_flat_index("take", input, index)]


@_names.both
@with_out(apart=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """:func:`gather` with index and input broadcast against each other apart from ``dim``; without it both are flat."""
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    if indices.dtype != _C.int64:
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {indices.dtype}")
    if input.dim() != indices.dim():
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{input.dim()} dimensions for input, and {indices.dim()} dimensions for indices"
        )
    n = input.dim()
    if n == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    dim = _dim(dim, n)
    shape = [i if j == 1 else j for i, j in zip(input.shape, indices.shape, strict=True)]
    wide = [input.size(dim) if d == dim else s for d, s in enumerate(shape)]
    shape[dim] = indices.size(dim)
    indices = indices.expand(shape)
    indices = (indices + (indices < 0) * input.size(dim)) if input.numel() else indices
    return input.expand(wide).gather(dim, indices)


@_names.with_in_place
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with ``source`` put, or added, at positions of the flattened tensor."""
    if index.numel() != source.numel():
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source.numel()}, index.numel() = {index.numel()}"
        )
    if source.dtype != input.dtype:
        raise RuntimeError(f"put_(): self and source expected to have the same dtype, but got {input.dtype} and {source.dtype}")
    places = _flat_index("put_", input, index).reshape(-1)
    return input.reshape(-1).index_put((places,), source.reshape(-1), accumulate).reshape(input.shape)


@_names.function
@with_out(apart=True)
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where the mask is True, broadcast against each other, in one dimension."""
    if mask.dtype != _C.bool:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, but got {mask.dtype}")
    shape = joined_shape(input.shape, mask.shape)
    found = input.expand(shape).reshape(-1)[mask.expand(shape).reshape(-1)]
    return found


_names.method(masked_select)


@_names.with_in_place
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements where the mask is True replaced by those of ``source``, in order."""
    if mask.dtype != _C.bool:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    if source.dtype != input.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got {input.dtype} and {source.dtype}")
    shape = joined_shape(input.shape, mask.shape)
    places = mask.expand(shape).reshape(-1).nonzero().reshape(-1)
    if places.numel() > source.numel():
        raise RuntimeError(
            f"Number of elements of source < number of ones in mask: {source.numel()} < {places.numel()}"
        )
    values = source.reshape(-1).narrow(0, 0, places.numel())
    return input.expand(shape).reshape(-1).index_put((places,), values).reshape(shape)


@_names.with_in_place
@with_out(apart=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True,
    out: Tensor | None = None
) -> Tensor:
    """A copy with the slices of ``source`` reduced into those that a vector of positions along ``dim`` names; reduce:
    prod, mean, amax or amin."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    dim = _dim(dim, input.dim())
    if index.dim() > 1:
        raise IndexError(f"index_reduce_(): Index is supposed to be a vector, but got a tensor of {index.dim()} dimensions")
    if index.dtype not in (_C.int64, _C.int32):
        raise RuntimeError(f"index_reduce_(): Expected dtype int32/int64 for index but got: {index.dtype}")
    if (source.size(dim) if dim < source.dim() else 1) != index.numel():
        raise RuntimeError(f"index_reduce_(): Number of indices ({index.numel()}) should be equal to source.size(dim), for dim: {dim}")
    if (source.dim(), source.shape[:dim], source.shape[dim + 1 :]) != (input.dim(), input.shape[:dim], input.shape[dim + 1 :]):
        raise RuntimeError(
            "index_reduce(): source tensor shape must match self tensor shape, excluding the specified dimension: got "
            f"{tuple(input.shape)} and {tuple(source.shape)}"
        )
    size = input.shape[dim] if input.dim() else 1
    if not index.is_meta and index.numel() and not 0 <= int(index.min()) <= int(index.max()) < size:
        raise IndexError(f"index_reduce_(): index out of range in self: it has to be in [0, {size})")
    if input.dim() == 0:
        index, shape = index.reshape(()), []
    else:
        shape = [1] * source.dim()
        shape[dim] = index.numel()
    return input.scatter_reduce(dim, index.reshape(shape).expand(source.shape), source, reduce, include_self=include_self)


# ---- statistics ----


@_names.both
@with_out("kind")
def nanmean(
    input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None,
    out: Tensor | None = None
) -> Tensor:
    """The mean of the elements that are not NaN; NaN where there are none."""
    if not input.is_floating_point():
        raise NotImplementedError(f"nanmean(): expected input to have floating point or complex dtype but got {input.dtype}")
    count = (~input.isnan()).sum(dim, keepdim)
    return input.nansum(dim, keepdim, dtype=dtype) / count


def _with_mean(spread: Any, input: Tensor, dim: Any, unbiased: bool, keepdim: bool, correction: float | None) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    degrees = int(unbiased) if correction is None else correction
    mean = input.mean() if dim is None and not keepdim else input.mean(dim, keepdim)
    return spread(input, dim, correction=degrees, keepdim=keepdim), mean


@_names.function
def std_mean(
    input: Tensor, dim: int | Sequence[int] | bool | None = None, unbiased: bool = True, keepdim: bool = False, *,
    correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """The pair of :func:`std` and :func:`mean`; a bool in the place of ``dim`` is ``unbiased``."""
    return _with_mean(_C.functions.std, input, dim, unbiased, keepdim, correction)


@_names.function
def var_mean(
    input: Tensor, dim: int | Sequence[int] | bool | None = None, unbiased: bool = True, keepdim: bool = False, *,
    correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """The pair of :func:`var` and :func:`mean`; a bool in the place of ``dim`` is ``unbiased``."""
    return _with_mean(_C.functions.var, input, dim, unbiased, keepdim, correction)


@_names.both
@with_out()
def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False, out: tuple[Tensor, Tensor] | None = None
) -> Any:
    """The named pair (min, max) of all elements, or along ``dim``."""
    from .return_types import aminmax as pair

    if input.is_complex():
        raise TypeError(f"aminmax not implemented for {input.dtype}, which has no order")
    if dim is None:
        if input.numel() == 0:
            raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
        low, high = (input.amin(), input.amax())
        shape = (1,) * input.dim()
        return pair((low.reshape(shape), high.reshape(shape)) if keepdim else (low, high))
    return pair((input.amin(dim, keepdim), input.amax(dim, keepdim)))


# ---- differences and integrals ----


@_names.both
@with_out("safe", apart=True)
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *,
    out: Tensor | None = None
) -> Tensor:
    """Differences of neighbours along ``dim``, ``n`` times over, of the tensor with what is to stand before and after it."""
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if input.dim() == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    parts = [t for t in (prepend, input, append) if t is not None]
    for part in parts:
        if part.dim() != input.dim():
            raise RuntimeError(
                f"diff expects prepend or append to be the same dimension as input, got {part.dim()}-D beside {input.dim()}-D"
            )
    if n == 0:  # what is to stand around it does not count, as in PyTorch
        return input.clone()
    out = _C.functions.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(builtin_min(n, out.size(dim))):
        size = out.size(dim)
        if size == 0:
            break
        after, before = out.narrow(dim, 1, size - 1), out.narrow(dim, 0, size - 1)
        out = after ^ before if out.dtype == _C.bool else after - before
    return out.clone() if out is input else out


builtin_min = min


def _steps(y: Tensor, x: Tensor, dim: int) -> Tensor:
    """Distances between neighbouring points; y has dim moved to the end."""
    if x.dim() == 1:
        if x.numel() != y.size(-1):
            raise RuntimeError(
                f"trapezoid: There must be one `x` value for each sample point, got {x.numel()} for {y.size(-1)}"
            )
        return x[1:] - x[:-1]
    x = x.movedim(dim, -1)
    return x[..., 1:] - x[..., :-1]


@_names.function
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """The integral along ``dim`` by the trapezoidal rule, at points ``x`` or ``dx`` apart."""
    line = y.movedim(dim, -1)
    if line.size(-1) == 0:
        return line.new_zeros(line.shape[:-1])
    if x is None:
        return (line.sum(-1) - (line[..., 0] + line[..., -1]) * 0.5) * dx
    return ((line[..., 1:] + line[..., :-1]) * _steps(line, x, dim)).sum(-1) / 2


@_names.function
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """The running integral along ``dim``, one element shorter."""
    line = y.movedim(dim, -1)
    pairs = line[..., 1:] + line[..., :-1]
    sums = pairs.cumsum(-1) * (dx / 2) if x is None else (pairs * _steps(line, x, dim)).cumsum(-1) / 2
    return sums.movedim(-1, dim)


_names.alias(globals(), "trapz", "trapezoid")
