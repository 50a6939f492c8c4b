"""Views and rearrangements that are made of other ops. What PyTorch calls a view shares the input's memory here too."""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any

from . import _C
from ._C import Tensor
from ._function_names import Names, with_out
from ._ops._common import integers, joined_shape, one_integer

__all__: list[str] = []
_names = Names(__all__)
_MOST_PARTS = 2**28


def _dim(dim: int, ndim: int) -> int:
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


def _sizes(function: str, parameter: str, sizes: tuple[Any, ...]) -> list[int]:
    """Sizes given one by one, or as one sequence."""
    out = integers(function, parameter, sizes[0] if len(sizes) == 1 else sizes)
    if any(s < 0 for s in out):
        raise RuntimeError(f"{function}: Trying to create tensor with negative dimension {min(out)}: {out}")
    return out


def _list(function: str, tensors: tuple[Any, ...]) -> list[Tensor]:
    """Tensors given one by one, or as one sequence."""
    given = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else list(tensors)
    for i, t in enumerate(given):
        if not isinstance(t, Tensor):
            raise TypeError(f"{function}(): expected Tensor as element {i} in argument 0, but got {type(t).__name__}")
    return given


# ---- splitting ----


@_names.both
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts of the given sizes along ``dim``; they must add up to the size (RuntimeError)."""
    return input.split(list(split_sizes), dim)


@_names.both
def tensor_split(
    input: Tensor, indices_or_sections: int | Sequence[int] | Tensor, dim: int = 0
) -> tuple[Tensor, ...]:
    """Views along ``dim``: so many parts of nearly equal size (the first ones larger), or parts that begin at the indices."""
    if input.dim() == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    if isinstance(indices_or_sections, Tensor):
        if indices_or_sections.dim() > 1 or indices_or_sections.dtype != _C.int64:
            raise RuntimeError("tensor_split expected tensor_indices_or_sections to be a zero- or one-dimensional tensor of int64")
        indices_or_sections = indices_or_sections.tolist()
    indices_or_sections = one_integer(indices_or_sections)
    size = input.size(dim)
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        if n <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {n}")
        if n > _MOST_PARTS:
            raise RuntimeError(f"tensor_split: {n} parts are more than memory holds; at most {_MOST_PARTS}")
        starts = [k * (size // n) + min(k, size % n) for k in range(n)]
        ends = starts[1:] + [size]
    else:
        marks = [slice(None, int(i)).indices(size)[1] for i in indices_or_sections]
        starts, ends = [0, *marks], [*marks, size]
    return tuple(input.narrow(dim, s, max(e - s, 0)) for s, e in zip(starts, ends, strict=True))


def _named_split(name: str, input: Tensor, sections: int | Sequence[int], dim: int, least: int) -> tuple[Tensor, ...]:
    if input.dim() < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {input.dim()} dimensions!"
        )
    sections = one_integer(sections)
    if isinstance(sections, int) and (sections <= 0 or input.size(dim) % sections):
        raise RuntimeError(
            f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension {input.size(dim)} is not "
            f"divisible by the split_size {sections}!"
        )
    return tensor_split(input, sections, dim)


@_names.both
def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """:func:`tensor_split` along dimension 1 (0 of a 1-d tensor); a number of sections must divide the size."""
    return _named_split("hsplit", input, indices_or_sections, 0 if input.dim() == 1 else 1, 1)


@_names.both
def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """:func:`tensor_split` along dimension 0 of at least 2."""
    return _named_split("vsplit", input, indices_or_sections, 0, 2)


@_names.both
def dsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """:func:`tensor_split` along dimension 2 of at least 3."""
    return _named_split("dsplit", input, indices_or_sections, 2, 3)


@_names.both
@with_out()
def narrow_copy(input: Tensor, dim: int, start: int, length: int, *, out: Tensor | None = None) -> Tensor:
    """:func:`narrow` as a tensor of its own."""
    return input.narrow(dim, start, length).clone()


# ---- other shapes in place ----


def _reshaped(input: Tensor, name: str, view: Tensor) -> Tensor:
    """The tensor itself, which from now on is what its view is."""
    if input.requires_grad and _C.is_grad_enabled():
        raise RuntimeError(f"{name}: a tensor that requires grad can't change its shape in place. Use the result of {name[:-1]} instead")
    input.data = view
    return input


@_names.method
def squeeze_(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Drops dimensions of size 1 in place; not of a tensor that requires grad (RuntimeError)."""
    return _reshaped(input, "squeeze_", input.detach().squeeze() if dim is None else input.detach().squeeze(dim))


@_names.method
def unsqueeze_(input: Tensor, dim: int) -> Tensor:
    """Adds a dimension of size 1 in place; not to a tensor that requires grad (RuntimeError)."""
    return _reshaped(input, "unsqueeze_", input.detach().unsqueeze(dim))


@_names.method
def transpose_(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Swaps two dimensions in place; not of a tensor that requires grad (RuntimeError)."""
    return _reshaped(input, "transpose_", input.detach().transpose(dim0, dim1))


@_names.method
def t_(input: Tensor) -> Tensor:
    """Transposes a matrix in place; not one that requires grad (RuntimeError)."""
    return _reshaped(input, "t_", input.detach().t())


for _name in ("swapaxes_", "swapdims_"):
    setattr(Tensor, _name, transpose_)


# ---- writes into a copy ----


@_names.both
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with slice ``index`` along ``dim`` replaced by ``src``."""
    out = input.clone()
    part = out.select(dim, index)
    if part.shape != src.shape:
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {src.shape}, slice size = {part.shape}")
    part.copy_(src)
    return out


@_names.both
@with_out()
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1, *,
    out: Tensor | None = None
) -> Tensor:
    """A copy with the elements ``start:end:step`` along ``dim`` replaced by ``src``."""
    out = input.clone()
    key = (slice(None),) * _dim(dim, input.dim()) + (slice(start, end, step),)
    part = out[key]
    if part.shape != src.shape:
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {src.shape}, slice size = {part.shape}")
    part.copy_(src)
    return out


# ---- repeating and rolling ----


def _copied(expanded: Tensor, shape: Sequence[int]) -> Tensor:
    """In memory of its own, also where the expanded elements could be seen in that shape as they lie."""
    return expanded.clone().reshape(shape)


@_names.method
def repeat(input: Tensor, *repeats: int | Sequence[int]) -> Tensor:
    """Copies side by side: dimension d is repeated ``repeats[d]`` times; more repeats than dimensions add leading ones."""
    times = _sizes("repeat", "repeats", repeats)
    extra = len(times) - input.dim()
    if extra < 0:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: "
            f"got {len(times)} for {input.dim()}"
        )
    shape = [1] * extra + list(input.shape)
    if all(t == 1 for t in times):
        return _C._show_parts("RepeatBackward0", (input.reshape(shape).clone(),))[0]
    apart = [s for size in shape for s in (1, size)]
    wide = [s for size, t in zip(shape, times, strict=True) for s in (t, size)]
    out = _copied(input.reshape(apart).expand(wide), [s * t for s, t in zip(shape, times, strict=True)])
    return _C._show_parts("RepeatBackward0", (out,))[0]


@_names.function
def tile(input: Tensor, dims: Sequence[int]) -> Tensor:
    """:meth:`Tensor.repeat`, with leading ones where ``dims`` is shorter than the shape."""
    times = _sizes("tile", "dims", (dims,))
    return repeat(input, [1] * (input.dim() - len(times)) + times)


def _tile(input: Tensor, *dims: int | Sequence[int]) -> Tensor:
    """:meth:`repeat`, with leading ones where ``dims`` is shorter than the shape."""
    return tile(input, _sizes("tile", "dims", dims))


_names.method(_tile, "tile")


@_names.both
def repeat_interleave(
    input: Tensor, repeats: int | Tensor | None = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (``dim`` None) or slice along ``dim`` so many times in a row. With one argument: the numbers
    0, 1, ... each as often as the int tensor says."""
    if repeats is None:
        if input.dim() != 1 or input.is_floating_point():
            raise RuntimeError("repeat_interleave only accept 1D vector of integers as repeat")
        repeats, input, dim = input, _C.functions.arange(input.numel(), device=input.device), 0
    if dim is None:
        input, dim = input.reshape(-1), 0
    if not isinstance(repeats, Tensor):
        repeats = one_integer(repeats)
    dim = one_integer(dim)
    if isinstance(repeats, bool) or not isinstance(repeats, (int, Tensor)) or not isinstance(dim, int):
        raise TypeError(
            "repeat_interleave() received an invalid combination of arguments: repeats has to be an int or a tensor of ints and "
            f"dim an int or None, got {type(repeats).__name__} and {type(dim).__name__}"
        )
    dim = _dim(dim, input.dim())
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError(f"Repeats must be non-negative, got {repeats}")
        shape = list(input.shape)
        wide = [*shape[: dim + 1], repeats, *shape[dim + 1 :]]
        shape[dim] *= repeats
        out = _copied(input.unsqueeze(dim + 1).expand(wide), shape)
    else:
        counts = repeats.reshape(-1)
        if counts.is_floating_point() or repeats.dim() > 1:
            raise RuntimeError("repeats has to be a 0-dim or 1-dim tensor of Long or Int type")
        counts = counts.expand(input.size(dim)) if counts.numel() == 1 else counts
        if counts.numel() != input.size(dim):
            raise RuntimeError(
                f"repeats must have the same size as input along dim, but got repeats.size(0) = {counts.numel()} and "
                f"input.size({dim}) = {input.size(dim)}"
            )
        if counts.numel() and int(counts.min()) < 0:
            raise RuntimeError("repeats can not be negative")
        ends = counts.cumsum(0)
        total = int(ends[-1]) if counts.numel() else 0
        index = _C.functions.searchsorted(ends, _C.functions.arange(total, device=input.device), right=True)
        out = input.index_select(dim, index)
    if output_size is not None and out.size(dim) != output_size:
        raise RuntimeError(f"repeat_interleave: output_size is {output_size}, but the repeats give {out.size(dim)}")
    return out


@_names.both
def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved by ``shifts`` along ``dims``, what leaves at the end coming back at the beginning; without ``dims``
    the flattened tensor is rolled."""
    steps = integers("roll", "shifts", shifts)
    if dims is None or (not isinstance(dims, int) and not dims):
        if len(steps) != 1:
            raise RuntimeError("shifts and dimensions must align. shifts: "
                               f"{len(steps)}, dims: 0")  # fmt: skip
        return _C._show_parts("RollBackward0", (roll(input.reshape(-1), steps, 0).reshape(input.shape),))[0]
    places = integers("roll", "dims", dims)
    if len(steps) != len(places):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(steps)}, dims:{len(places)}")
    out = input
    if input.dim() == 0:
        raise IndexError("roll: Dimension specified as 0 but tensor has no dimensions")
    for step, place in zip(steps, places, strict=True):
        dim = _dim(place, input.dim())
        size = input.size(dim)
        step = step % size if size else 0
        if step and input.numel():
            out = _C.functions.cat([out.narrow(dim, size - step, step), out.narrow(dim, 0, size - step)], dim)
    return _C._show_parts("RollBackward0", (out.clone() if out is input else out,))[0]


@_names.both
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """``k`` quarter turns in the plane of two dimensions, from the first towards the second."""
    if len(dims) != 2 or input.dim() < 2:
        raise RuntimeError(
            f"expected total rotation dims == 2 in a tensor of at least 2, but got dims = {len(dims)}, total dims = {input.dim()}"
        )
    a, b = (_dim(d, input.dim()) for d in dims)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    k %= 4
    if k == 1:
        return input.flip(b).transpose(a, b).contiguous()
    if k == 2:
        return input.flip((a, b))
    return input.flip(a).transpose(a, b).contiguous() if k == 3 else input.clone()


@_names.both
def fliplr(input: Tensor) -> Tensor:
    """Reversed along dimension 1."""
    if input.dim() < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return input.flip(1)


@_names.both
def flipud(input: Tensor) -> Tensor:
    """Reversed along dimension 0."""
    if input.dim() < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return input.flip(0)


# ---- diagonals ----


@_names.both
@with_out()
def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a new vector."""
    if input.dim() == 1:
        return diag_embed(input, diagonal)
    if input.dim() != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.dim()}D")
    return input.diagonal(diagonal).clone()


@_names.both
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension on the diagonal of two new ones, zeros around it."""
    ndim = input.dim() + 1
    if input.dim() == 0:
        raise IndexError("diag_embed: the input needs at least one dimension")
    a, b = _dim(dim1, ndim), _dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = input.size(-1) + abs(offset)
    shape = list(input.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, size)
    return input.new_zeros(shape).diagonal_scatter(input, offset, a, b)


@_names.both
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The flattened elements on the diagonal of a matrix."""
    return diag_embed(input.reshape(-1), offset)


def _triangle(row: int, col: int, offset: int, lower: bool, dtype: Any, device: Any) -> Tensor:
    if row < 0 or col < 0:
        raise RuntimeError(f"row and col must be non-negative, got {row} and {col}")
    mask = _C.functions.ones((row, col), dtype=_C.bool, device="cpu")
    mask = mask.tril(offset) if lower else mask.triu(offset)
    place = _C.get_default_device() if device is None else device
    return mask.nonzero().t().contiguous().to(place, _C.int64 if dtype is None else dtype)


@_names.function
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None
) -> Tensor:
    """Where the lower triangle of a (row, col) matrix stands: two rows, of row numbers and of column numbers."""
    return _triangle(row, col, offset, True, dtype, device)


@_names.function
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None
) -> Tensor:
    """Where the upper triangle of a (row, col) matrix stands."""
    return _triangle(row, col, offset, False, dtype, device)


# ---- joining ----


def _at_least(name: str, tensors: tuple[Any, ...], widen: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return widen(tensors[0])
    return tuple(widen(t) for t in _list(name, tensors))


@_names.function
def atleast_1d(*tensors: Any) -> Any:
    """The tensor, a 0-dim one as (1,); a tuple for several tensors or a sequence of them."""
    return _at_least("atleast_1d", tensors, lambda t: t.reshape(1) if t.dim() == 0 else t)


@_names.function
def atleast_2d(*tensors: Any) -> Any:
    """The tensor with at least 2 dimensions: (1, n) for a vector."""
    return _at_least(
        "atleast_2d", tensors, lambda t: t.reshape(1, 1) if t.dim() == 0 else t.unsqueeze(0) if t.dim() == 1 else t
    )


@_names.function
def atleast_3d(*tensors: Any) -> Any:
    """The tensor with at least 3 dimensions: (1, n, 1) for a vector, (m, n, 1) for a matrix."""

    def widen(t: Tensor) -> Tensor:
        t = t.reshape(1) if t.dim() == 0 else t
        t = t.unsqueeze(0) if t.dim() == 1 else t
        return t.unsqueeze(-1) if t.dim() == 2 else t

    return _at_least("atleast_3d", tensors, widen)


@_names.function
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along dimension 1, vectors along 0."""
    parts = [atleast_1d(t) for t in _list("hstack", (tensors,))]
    if not parts:
        raise RuntimeError("hstack expects a non-empty TensorList")
    return _C.functions.cat(parts, 0 if parts[0].dim() == 1 else 1, out=out)


@_names.function
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along dimension 0, vectors as rows."""
    parts = [atleast_2d(t) for t in _list("vstack", (tensors,))]
    if not parts:
        raise RuntimeError("vstack expects a non-empty TensorList")
    return _C.functions.cat(parts, 0, out=out)


@_names.function
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along dimension 2."""
    parts = [atleast_3d(t) for t in _list("dstack", (tensors,))]
    if not parts:
        raise RuntimeError("dstack expects a non-empty TensorList")
    return _C.functions.cat(parts, 2, out=out)


@_names.function
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along dimension 1, vectors as columns."""
    parts = [t if t.dim() > 1 else t.reshape(-1, 1) for t in _list("column_stack", (tensors,))]
    if not parts:
        raise RuntimeError("column_stack expects a non-empty TensorList")
    return _C.functions.cat(parts, 1, out=out)


_names.alias(globals(), "row_stack", "vstack")


@_names.function
def block_diag(*tensors: Any) -> Tensor:
    """Matrices (also vectors and numbers) along the diagonal of one matrix, zeros around them."""
    parts = [atleast_2d(t) for t in _list("block_diag", tensors)]
    for t in parts:
        if t.dim() > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input has {t.dim()} dimensions")
    if not parts:
        return _C.functions.empty((1, 0))
    dtype = parts[0].dtype
    for t in parts[1:]:
        dtype = _C.promote_types(dtype, t.dtype)
    width, left, rows = sum(t.size(1) for t in parts), 0, []
    for t in parts:
        t = t.to(dtype)
        right = width - left - t.size(1)
        rows.append(_C.functions.cat([t.new_zeros((t.size(0), left)), t, t.new_zeros((t.size(0), right))], 1))
        left += t.size(1)
    return _C.functions.cat(rows, 0)


# ---- broadcasting, products of index sets ----


@_names.function
def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that tensors of these shapes broadcast to; numbers stand for (n,)."""
    return joined_shape(*shapes)


@_names.function
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Views of all tensors in the shape that they broadcast to."""
    given = _list("broadcast_tensors", tensors)
    shape = broadcast_shapes(*(t.shape for t in given))
    return tuple(t.expand(shape) for t in given)


@_names.both
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """A view of the given shape: :meth:`Tensor.expand`."""
    return input.expand(size)


@functools.cache
def _warn_of_indexing() -> None:
    """Once."""
    warnings.warn(
        "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument: 'ij' is what happens now",
        stacklevel=3,
    )


@_names.function
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Views of vectors (or numbers) spread over the grid that they span: the i-th along dimension i; ``"xy"`` swaps the
    first two dimensions."""
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    given = _list("meshgrid", tensors)
    if not given:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if any(t.dim() > 1 for t in given):
        raise RuntimeError("torch.meshgrid: Expected 0D or 1D tensor in the tensor list")
    if any(t.dtype != given[0].dtype for t in given):
        raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    if indexing is None:
        _warn_of_indexing()
    swap = indexing == "xy" and len(given) > 1
    order = [given[1], given[0], *given[2:]] if swap else given
    shape = [t.numel() for t in order]
    grids = [t.reshape([-1 if d == k else 1 for d in range(len(shape))]).expand(shape) for k, t in enumerate(order)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@_names.function
def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of one element of each vector, a row each; of one vector the vector."""
    given = _list("cartesian_prod", tensors)
    if any(t.dim() != 1 for t in given):
        raise RuntimeError("Expect a 1D vector")
    if len(given) == 1:
        return given[0]
    return _C.functions.stack([g.reshape(-1) for g in meshgrid(*given, indexing="ij")], 1)


@_names.both
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of ``r`` elements of a vector in their order, a row each."""
    if input.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got {input.dim()} dimensions")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.numel()), r))
    index = _C.tensor(rows, dtype=_C.int64, device=input.device).reshape(len(rows), r)
    return input[index]


@_names.both
@with_out("safe")
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Kronecker product: each element of ``input`` times all of ``other``, over the last dimensions."""
    n = max(input.dim(), other.dim())
    a, b = [1] * (n - input.dim()) + list(input.shape), [1] * (n - other.dim()) + list(other.shape)
    left = input.reshape([s for size in a for s in (size, 1)])
    right = other.reshape([s for size in b for s in (1, size)])
    return (left * right).reshape([x * y for x, y in zip(a, b, strict=True)])


@_names.function
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector's elements, a row each: x^(N-1), ... x^1, x^0, from the lowest if ``increasing``."""
    if x.dim() != 1:
        raise RuntimeError(f"x must be a one-dimensional tensor, but it has {x.dim()}")
    n = x.size(-1) if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative")
    x = x if x.is_floating_point() or x.is_complex() else x.long()
    powers = [_C.functions.ones_like(x)]
    for _ in range(1, n):
        powers.append(powers[-1] * x)
    if n == 0:
        return x.new_empty((*x.shape, 0))
    out = _C.functions.stack(powers, -1)
    return out if increasing else out.flip(-1)


@_names.function
def logspace(
    start: float, end: float, steps: int, base: float = 10.0, *, out: Tensor | None = None, dtype: Any = None,
    device: Any = None, requires_grad: bool = False
) -> Tensor:
    """``steps`` numbers whose logarithms to ``base`` are evenly spaced from ``start`` to ``end``."""
    if out is not None:
        options = {"dtype": out.dtype if dtype is None else dtype, "device": out.device}
        return _C._into("logspace", "exact", out, logspace, (start, end, steps, base), options)
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got {steps}")
    wanted = _C.get_default_dtype() if dtype is None else dtype
    place = _C.get_default_device() if device is None else device
    exponents = _C.functions.linspace(start, end, steps, dtype=_C.float64, device="cpu")
    if not math.isfinite(base):
        raise RuntimeError(f"logspace: base must be finite, got {base}")
    out = _C.functions.pow(_C.tensor(base, dtype=_C.float64, device="cpu"), exponents).to(place, wanted)
    return out.requires_grad_() if requires_grad else out
