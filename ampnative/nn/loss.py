"""Loss modules: each calls the function of the same name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .._C import Tensor
from . import functional as F
from .distance import PairwiseDistance
from .functional.losses import _legacy_reduction
from .module import Module


def _refuse_tensors(loss: Module, **options: Any) -> None:
    """For options that are Tensors of several elements: the class was called as if it were the function. TypeError where the option is
    a word, RuntimeError where its truth, or its size, counts."""
    for option, value in options.items():
        if isinstance(value, Tensor) and value.numel() != 1:
            name = type(loss).__name__
            kind = TypeError if option == "reduction" else RuntimeError
            raise kind(
                f"{name}() got a Tensor of size {tuple(value.shape)} for its option '{option}': {name} is a class, options go to "
                f"it and tensors to its instances: nn.{name}()(input, target), or call the function in nn.functional"
            )


class _Loss(Module):
    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        _refuse_tensors(self, size_average=size_average, reduce=reduce, reduction=reduction)
        if size_average is not None or reduce is not None:
            reduction = _legacy_reduction(size_average, reduce)
        self.reduction = reduction


class MSELoss(_Loss):
    """Squared differences of input and target, both (*): their mean, a 0-dim tensor, or as ``reduction`` says.

    ``reduction``: "mean", "sum", or "none" for the differences of shape (*); ValueError for another word. Unequal
    shapes warn and broadcast. ``size_average`` and ``reduce`` are old spellings of it and warn.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """Absolute differences of input and target, both (*): their mean, or as ``reduction`` says (see MSELoss)."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """d^2 / (2 beta) where the difference d is below ``beta``, |d| - beta / 2 above (Girshick, 2015): input and target
    (*).

    ``beta=0`` is L1Loss, a negative one raises RuntimeError. ``reduction`` as in MSELoss.
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """d^2 / 2 where the difference d is below ``delta``, delta * (|d| - delta / 2) above (Huber, 1964): input and
    target (*).

    ``delta`` must be positive (RuntimeError). ``reduction`` as in MSELoss.
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class _WeightedLoss(_Loss):
    """``weight`` is a buffer, so it moves with the module."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class NLLLoss(_WeightedLoss):
    """Negative log likelihood: -weight[y] * input[n, y] for log-probabilities (N, C), (C) or (N, C, d1, ...).

    The target y holds class numbers (N), () or (N, d1, ...), int64 or uint8 (RuntimeError otherwise; IndexError
    outside 0 .. C-1). ``weight``: one number per class, (C), a buffer. Targets equal to ``ignore_index`` count
    nothing. ``reduction="mean"`` divides by the sum of the weights that took part, so it is NaN where none did; "sum",
    "none".
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """Older name of :class:`NLLLoss`, with its arguments and a FutureWarning."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn("`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead.", FutureWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


class CrossEntropyLoss(NLLLoss):
    """LogSoftmax and NLLLoss in one, for logits (N, C), (C) or (N, C, d1, ...).

    The target holds class numbers (N), () or (N, d1, ...), int64 or uint8, or probabilities of the input's shape and
    dtype. ``weight`` (C), ``ignore_index`` (class numbers only) and ``reduction`` as in NLLLoss. ``label_smoothing``
    in [0, 1] moves that share of the target to all classes equally (Szegedy et al., 2015). Autocast computes it in
    fp32.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(_WeightedLoss):
    """Cross entropy of probabilities: -(y log x + (1 - y) log(1 - x)), input x and target y in [0, 1], both (*).

    Logarithms stop at -100. RuntimeError for an input outside [0, 1], ValueError for unequal shapes. Refused inside
    CUDA autocast, where fp16 has too few bits near 1: use BCEWithLogitsLoss. ``weight`` broadcasts to (*); ``reduction``
    as in MSELoss.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """Sigmoid and BCELoss in one, formed without overflow: input any logits, target in [0, 1], both (*).

    ``pos_weight`` (broadcasts to (*), usually one per class) multiplies the term of positive targets: above 1 it
    favours recall. ``weight`` multiplies each term. ValueError for unequal shapes. ``reduction`` as in MSELoss.
    Autocast computes it in fp32.
    """

    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence: y (log y - x) for log-probabilities x and probabilities y, both (*).

    ``reduction="batchmean"`` divides the sum by the number of samples, which is the divergence; "mean" by that of
    elements, and warns. ``log_target=True``: the target is a logarithm too, which is the safer form.
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", log_target: bool = False
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """Negative log likelihood of counts y under a Poisson distribution, input and target (*): exp(x) - y x for the
    logarithm x of the rate, or (``log_input=False``) x - y log(x + eps) for the rate.

    ``full=True`` adds Stirling's approximation of log(y!). ``reduction`` as in MSELoss.
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        _refuse_tensors(self, log_input=log_input, full=full)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(_Loss):
    """Negative log likelihood of a target under normal distributions of mean ``input`` and variance ``var``: (log var
    + (input - target)^2 / var) / 2, (*).

    ``var`` has the input's shape, lacks its last dimension or has 1 there, or is a number; it counts as at least
    ``eps``, ValueError below 0. ``full=True`` adds log(2 pi) / 2. ``reduction`` as in MSELoss.
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(None, None, reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class _MarginLoss(_Loss):
    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class CosineEmbeddingLoss(_MarginLoss):
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1.

    Inputs (N, D) with target (N), or (D) with a 0-dim target. ``reduction`` as in MSELoss.
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_MarginLoss):
    """max(0, margin - y (x1 - x2)): target y = 1 says that the first should rank higher, -1 the second.

    All three have the same number of dimensions (RuntimeError). ``reduction`` as in MSELoss.
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(_MarginLoss):
    """The input, a distance (*), where the target is 1, max(0, margin - input) where it is -1. ``reduction`` as in
    MSELoss.
    """

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(margin, size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-y x)) for inputs x and targets y of 1 and -1, both (*). ``reduction`` as in MSELoss."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """Mean over the classes j other than the target y of max(0, margin - x[y] + x[j])^p: input (N, C) or (C), target
    (N) or () int64.

    ``p`` is 1 or 2 (ValueError). ``weight`` (C) multiplies by the target's class. ``reduction`` as in MSELoss.
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        _refuse_tensors(self, p=p, margin=margin)
        if p not in (1, 2):
            raise ValueError(f"only p == 1 and p == 2 supported, but got p={p}")
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.dim()}D instead")
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """max(0, 1 - (x[y] - x[j])) over the labels y of a sample and all other classes j, divided by C.

    Input and target (N, C) or (C): the labels are class numbers, ended by -1. ``reduction`` as in MSELoss.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross entropy of logits (N, C) with targets in [0, 1], averaged over the classes: (N) before
    ``reduction``.

    ``weight`` (C) multiplies each class. ``reduction`` as in MSELoss.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, margin + |anchor - positive| - |anchor - negative|) with p-norms over the last dimension: three times (N,
    D) or (D).

    ``swap=True`` takes the distance of positive and negative where it is the smaller one. ValueError unless ``margin``
    is positive. ``reduction`` as in MSELoss.
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        _refuse_tensors(self, margin=margin, p=p)
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap, reduction=self.reduction
        )


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance of the caller's: ``distance_function(x1, x2)``, by default PairwiseDistance().
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, None, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead")
        self.distance_function = distance_function if distance_function is not None else PairwiseDistance()
        self.margin, self.swap = margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class CTCLoss(_Loss):
    """Connectionist temporal classification (Graves et al., 2006): minus the log probability of all alignments of the
    targets with the sequences.

    Called with log_probs (T, N, C) or (T, C) as of log_softmax, targets (N, S) padded or one after the other, and the
    lengths of both (N). ``blank`` is the class between labels. "mean" divides each loss by its number of labels first.
    ``zero_infinity=True``: samples that cannot be aligned count as 0.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int], target_lengths: Tensor | Sequence[int]
    ) -> Tensor:
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)
