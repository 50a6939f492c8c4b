"""Distances of vectors."""

from __future__ import annotations

from .._C import Tensor
from . import functional as F
from .module import Module


class PairwiseDistance(Module):
    """p-norms of the differences of vectors: (N, D) or (D) twice -> (N) or ()."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
