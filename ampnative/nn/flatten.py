"""Joining and spreading dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from .._C import Tensor
from .._ops._common import integers
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


class Unflatten(Module):
    """Spreads dimension ``dim`` over the sizes ``unflattened_size``, one of which may be -1."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(integers("Unflatten", "unflattened_size", unflattened_size))

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
