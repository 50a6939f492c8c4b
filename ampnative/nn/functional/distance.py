"""Distances."""

from __future__ import annotations

from ... import _C
from ..._C import Tensor

cosine_similarity = _C.nn.cosine_similarity
pdist = _C.nn.pdist


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """p-norms of ``x1 - x2 + eps`` over the last dimension; the shapes broadcast."""
    return _C.functions.norm(x1 - x2 + eps, p, -1, keepdim)
