"""Look-ups in tables of vectors."""

from __future__ import annotations

from ... import _C
from ..._C import Tensor
from ..._functions_random import embedding_renorm_
from ...autograd.grad_mode import no_grad

_int64 = _C.dtypes.int64
_embedding, _arange = _C.functions.embedding, _C.functions.arange
_MODES = {"sum": 0, "mean": 1, "max": 2}


def _row(padding_idx: int | None, rows: int) -> int:
    """``padding_idx`` counted from the start, -1 for None."""
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise AssertionError(f"Padding_idx must be within num_embeddings: {padding_idx} is not within {rows}")
    return padding_idx % rows


def _shortened(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    with no_grad():
        embedding_renorm_(weight, input, max_norm, norm_type)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` (V, D) at ``input`` (...) int64 or int32: (..., D).

    Row ``padding_idx`` gets no gradient; rows longer than ``max_norm`` (their ``norm_type``-norm) are shortened in place first;
    ``scale_grad_by_freq`` divides a row's gradient by how often it was looked up. IndexError for indices outside 0 .. V-1."""
    if padding_idx is not None or max_norm is not None:
        padding_idx = _row(padding_idx, weight.shape[0])
        if max_norm is not None:
            _shortened(weight, input, max_norm, norm_type)
        return _embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)
    return _embedding(weight, input, -1, scale_grad_by_freq, sparse)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sum, mean or maximum of rows of ``weight`` (V, D), bag by bag: (bags, D). Bags without rows give zeros.

    ``input`` (B, N): B bags of N; or (positions), where bag b starts at ``offsets[b]`` (with ``include_last_offset`` the last
    entry is the end). ``per_sample_weights`` (input's shape) multiplies rows, for mode "sum"; positions that hold
    ``padding_idx`` do not count."""
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, "
            f"then it must have the same shape as the input ({input.shape})"
        )
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as its rows are the bags. However, found offsets of type "
                f"{type(offsets)}"
            )
        rows, each = input.shape
        offsets = _arange(rows, device=input.device) * each
        include_last_offset = False
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    elif input.dim() != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    elif offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    elif offsets.dim() != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if mode not in _MODES:
        raise ValueError(f"mode has to be one of sum, mean or max, not {mode!r}")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode != "sum" and per_sample_weights is not None:
        raise NotImplementedError(
            f"embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got mode='{mode}')."
        )
    if max_norm is not None:
        _shortened(weight, input, max_norm, norm_type)
    return _C.functions.embedding_bag(
        weight, input, offsets, scale_grad_by_freq, _MODES[mode], sparse, per_sample_weights, include_last_offset,
        None if padding_idx is None else _row(padding_idx, weight.shape[0]),
    )[0]  # fmt: skip


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int64 (..., num_classes): 1 at the class numbers in ``input`` (...) int64, else 0. -1: one more than the largest."""
    if input.dtype != _int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type LongTensor, got {input.dtype}: use input.long()")
    if input.is_meta:
        if num_classes < 0:
            raise RuntimeError("Can not infer total number of classes from a meta tensor, which has no values. Give num_classes")
        return _C.functions.zeros((*input.shape, num_classes), dtype=_int64, device="meta")
    if input.numel() == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor. Give num_classes")
    elif int(input.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    if num_classes == -1:
        num_classes = int(input.max()) + 1
    elif input.numel() and int(input.max()) >= num_classes:
        raise RuntimeError(f"Class values must be smaller than num_classes. Largest is {int(input.max())}, num_classes {num_classes}")
    found = _C.functions.zeros((*input.shape, num_classes), dtype=_int64, device=input.device)
    index = input.unsqueeze(-1)
    return found.scatter_add_(-1, index, _C.functions.ones_like(index))
