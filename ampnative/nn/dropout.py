"""Dropout."""

from __future__ import annotations

from .._C import Tensor
from . import functional as F
from .functional.activations import check_probability
from .module import Module


class Dropout(Module):
    """In training mode zeroes elements with probability ``p`` and multiplies the others by 1 / (1 - p)."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        check_probability(p)
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
