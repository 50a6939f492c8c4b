"""The adaptive softmax: many classes, rare ones in clusters of their own (Grave et al., 2017)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _C
from .._C import Tensor
from . import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log probabilities of targets among ``n_classes``, which must be sorted by frequency, and their negative mean.

    input (N, in_features) or (in_features), target (N) or () int64 -> the named pair (output, loss): (N) or () log probabilities
    of the targets, and a 0-dim loss. ``cutoffs``: the classes at which the clusters after the frequent ones begin. Cluster i is
    projected to ``in_features // div_value ** (i + 1)`` features. ``head_bias``: a bias for the frequent classes.

    Raises:
        ValueError: ``cutoffs`` are not increasing integers between 1 and n_classes - 1.
        RuntimeError: input and target do not fit, or a target is no class.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            any(int(c) != c for c in cutoffs)
            or min(cutoffs) <= 0
            or max(cutoffs) > n_classes - 1
            or any(a >= b for a, b in itertools.pairwise(cutoffs))
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is between 1 "
                f"and n_classes-1, but got {cutoffs} for {n_classes} classes"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = self.cutoffs[0], len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i, (start, end) in enumerate(itertools.pairwise(self.cutoffs)):
            hidden = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(Linear(in_features, hidden, False, device, dtype), Linear(hidden, end - start, False, device, dtype))
            )

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster:  # type: ignore[attr-defined]
                layer.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> _ASMoutput:
        if target.dim() > 1:
            raise RuntimeError(f"0D or 1D target tensor expected, multi-target not supported (got {target.dim()}D)")
        if target.dim() and input.shape[:1] != target.shape:
            raise RuntimeError(
                f"Input and target should have the same size in the batch dimension, but their shapes are {input.shape} and {target.shape}"
            )
        if input.dim() != target.dim() + 1:
            raise RuntimeError(f"{target.dim()}D target tensor expects {target.dim() + 1}D input, but found {input.dim()}D input")
        x, y = (input, target) if target.dim() else (input.unsqueeze(0), target.unsqueeze(0))
        if y.numel() and (int(y.min()) < 0 or int(y.max()) >= self.n_classes):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{int(y.min())}, {int(y.max())}] were found."
            )
        column, rows, values = y.clone(), [], []  # the head's column of each target, and what its cluster adds
        for i, (start, end) in enumerate(itertools.pairwise(self.cutoffs)):
            members = ((y >= start) & (y < end)).nonzero().squeeze(1)
            if members.numel():
                log_probs = F.log_softmax(self.tail[i](x.index_select(0, members)), dim=1)
                rows.append(members)
                values.append(log_probs.gather(1, (y[members] - start).unsqueeze(1)).squeeze(1))
                column[members] = self.shortlist_size + i
        output = F.log_softmax(self.head(x), dim=1).gather(1, column.unsqueeze(1)).squeeze(1)
        if rows:
            order = _C.functions.cat(rows)
            output = output + output.new_zeros(output.shape).index_copy(0, order, _C.functions.cat(values).to(output.dtype))
        loss = (-output).mean()
        return _ASMoutput(output if target.dim() else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log probabilities (N, n_classes) of all classes."""
        head = F.log_softmax(self.head(input), dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            parts.append(F.log_softmax(cluster(input), dim=1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return _C.functions.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row of the input, (N) int64."""
        return self.log_prob(input).argmax(dim=1)
