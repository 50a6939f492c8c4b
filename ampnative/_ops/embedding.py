"""Bags of table rows: sums, means and maxima of several rows at a time."""

from __future__ import annotations

import itertools

import numpy as np

from .. import _C
from .._C import Tensor

_int64 = _C.dtypes.int64
SUM, MEAN, MAX = range(3)


def _bounds(offsets: np.ndarray, positions: int, include_last: bool) -> np.ndarray:
    """Where each bag starts, and where the last one ends."""
    if include_last and offsets.size == 0:
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    if offsets.size and offsets[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
            f"However, got {offsets[0]}"
        )
    if offsets.size and offsets[-1] > positions:
        raise RuntimeError(f"offsets[-1] can not be greater than input's length {positions} but got offsets[-1] of {offsets[-1]}")
    bounds = offsets if include_last else np.append(offsets, positions)
    if (np.diff(bounds) < 0).any():
        raise RuntimeError("offsets have to ascend: a bag ends where the next one starts")
    return bounds


def _largest(rows: Tensor, bounds: np.ndarray) -> np.ndarray:
    """(bags, width): which row has the largest value, the first of several; 0 for bags without rows. NaN is largest."""
    values = rows.detach().cpu().to(_C.dtypes.float64).numpy()
    found = np.zeros((len(bounds) - 1, values.shape[1]), np.int64)
    for bag, (start, end) in enumerate(itertools.pairwise(bounds)):
        if end > start:
            found[bag] = start + values[start:end].argmax(0)
    return found


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(bags, width); bag of each position; rows per bag; for MAX the chosen indices, else again rows per bag."""
    if sparse:
        raise NotImplementedError(
            "embedding_bag(sparse=True) asks for sparse gradients, which do not exist here: leave it out, the dense gradient has "
            "the same values"
        )
    if weight.dim() != 2 or indices.dim() != 1 or offsets.dim() != 1:
        raise RuntimeError("embedding_bag: weight has to be 2-D, indices and offsets 1-D")
    if per_sample_weights is not None and (mode != SUM or per_sample_weights.dtype != weight.dtype):
        raise RuntimeError(
            f"embedding_bag: per_sample_weights go with mode sum and have the weight's dtype {weight.dtype}, "
            f"got {per_sample_weights.dtype}"
        )

    for name, given in (("indices", indices), ("offsets", offsets)):
        if given.is_floating_point() or given.is_complex() or given.dtype == _C.bool:
            raise RuntimeError(
                f"Expected tensor for argument '{name}' to have one of the following scalar types: Long, Int; but got {given.dtype} "
                "instead (while checking arguments for embedding_bag)"
            )
    rows = weight.size(0)
    wrong = ((indices < 0) | (indices >= rows)).nonzero()
    if wrong.numel():
        at = int(wrong[0, 0])
        raise RuntimeError(f"Index {at} of input takes value {int(indices[at])} which is not in the valid range [0, {rows})")

    def placed(values: np.ndarray) -> Tensor:
        return _C.from_numpy(np.ascontiguousarray(values)).to(weight.device)

    count = weight.shape[0]
    bounds = _bounds(offsets.cpu().numpy(), indices.numel(), include_last_offset)
    bags = len(bounds) - 1
    bag = np.repeat(np.arange(bags), np.diff(bounds))
    offset2bag = placed(bag)
    taken = indices.to(_int64)[: len(bag)]
    if per_sample_weights is not None:
        per_sample_weights = per_sample_weights[: len(bag)]
    if padding_idx is not None:
        kept = np.flatnonzero(taken.cpu().numpy() != padding_idx % count)
        bag, taken = bag[kept], taken[placed(kept)]
        per_sample_weights = None if per_sample_weights is None else per_sample_weights[placed(kept)]
    sizes = np.bincount(bag, minlength=bags) if bags else np.zeros(0, np.int64)
    size = placed(sizes.astype(np.int64))
    read = _C.functions.embedding(weight, taken, -1, scale_grad_by_freq)
    if mode == MAX:
        best = placed(_largest(read, np.concatenate([[0], np.cumsum(sizes)])))
        if not len(bag):
            return read.new_zeros((bags, weight.shape[1])) + weight.sum() * 0.0, offset2bag, size, best
        chosen = taken[best].masked_fill(size.eq(0).unsqueeze(1), 0)
        out = read.gather(0, best).masked_fill(size.eq(0).unsqueeze(1), 0.0)
        return out, offset2bag, size, chosen
    wide = read.float() if read.dtype.itemsize == 2 else read
    if per_sample_weights is not None:
        wide = wide * per_sample_weights.to(wide.dtype).unsqueeze(1)
    out = _C.nn._embedding_grad(wide, placed(bag), bags, -1, False)
    if mode == MEAN:
        out = out / size.clamp(min=1).unsqueeze(1)
    return out.to(read.dtype), offset2bag, size, size.clone()
