"""Embedding and EmbeddingBag."""

from __future__ import annotations

from typing import Any

from .. import _C
from .._C import Tensor
from ..autograd.grad_mode import no_grad
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class _Table(Module):
    """A table (num_embeddings, embedding_dim) of vectors that start standard normal, the padding row as zeros."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None

    def _make_table(self, padding_idx: int | None, given: Tensor | None, freeze: bool, device: Any, dtype: Any) -> None:
        rows, width = self.num_embeddings, self.embedding_dim
        if padding_idx is not None:
            if not -rows <= padding_idx < rows:
                raise AssertionError(f"Padding_idx must be within num_embeddings: {padding_idx} is not within {rows}")
            padding_idx %= rows
        self.padding_idx = padding_idx
        if given is not None:
            if tuple(given.shape) != (rows, width):
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(given, requires_grad=not freeze)
            return
        self.weight = Parameter(_C.functions.empty((rows, width), device=device, dtype=dtype), requires_grad=not freeze)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Standard normal numbers; zeros in the padding row."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def _shown(self, defaults: tuple[tuple[str, Any], ...]) -> str:
        shown = [f"{self.num_embeddings}, {self.embedding_dim}"]
        shown += [f"{name}={getattr(self, name)!r}" for name, default in defaults if getattr(self, name) != default]
        return ", ".join(shown)


def _check_matrix(embeddings: Tensor) -> None:
    if embeddings.dim() != 2:
        raise AssertionError("Embeddings parameter is expected to be 2-dimensional")


def _check_dense(name: str, sparse: bool) -> None:
    if sparse:
        raise NotImplementedError(
            f"{name}(sparse=True) asks for sparse gradients, which do not exist here: leave it out, the dense gradient has the same values"
        )


class Embedding(_Table):
    """Rows of ``weight`` (num_embeddings, embedding_dim) by index: (...) int64 -> (..., embedding_dim)."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_dense(type(self).__name__, sparse)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self._make_table(padding_idx, _weight, _freeze, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        options = (
            ("padding_idx", None), ("max_norm", None), ("norm_type", 2.0), ("scale_grad_by_freq", False), ("sparse", False),
        )  # fmt: skip
        return self._shown(options)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A module on the table ``embeddings`` (V, D), which it shares; ``freeze``: it is not trained."""
        _check_matrix(embeddings)
        rows, width = embeddings.shape
        return cls(rows, width, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)


class EmbeddingBag(_Table):
    """Sum, mean or maximum of rows of ``weight`` by bags of indices: see ``functional.embedding_bag``."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_dense(type(self).__name__, sparse)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.mode, self.sparse = scale_grad_by_freq, mode, sparse
        self.include_last_offset = include_last_offset
        self._make_table(padding_idx, _weight, False, device, dtype)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        shown = self._shown((("max_norm", None), ("norm_type", 2.0), ("scale_grad_by_freq", False)))
        shown += f", mode={self.mode!r}"
        return shown if self.padding_idx is None else f"{shown}, padding_idx={self.padding_idx}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A module on the table ``embeddings`` (V, D), which it shares; ``freeze``: it is not trained."""
        _check_matrix(embeddings)
        rows, width = embeddings.shape
        bag = cls(rows, width, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset, padding_idx)
        bag.weight.requires_grad = not freeze
        return bag
