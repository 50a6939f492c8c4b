"""Flatten."""

from __future__ import annotations

from .._C import Tensor
from .module import Module


class Flatten(Module):
    """Joins the dimensions start_dim .. end_dim into one: (N, C, H, W) -> (N, C*H*W) by default, which keeps the
    batch.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
