"""Losses: old spellings of reduction, empty and complex inputs; the warning of gradients that keep their graph."""

import os
import subprocess
import sys
import warnings

import pytest
from golden_tools import torch

F, nn = torch.nn.functional, torch.nn
X, Y, CLASSES = torch.tensor([[0.5, 1.0], [2.0, -1.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 1])
LOSSES = {
    "mse_loss": (X, Y), "l1_loss": (X, Y), "smooth_l1_loss": (X, Y), "cross_entropy": (X, CLASSES), "nll_loss": (X, CLASSES),
    "binary_cross_entropy": (X.sigmoid(), Y), "binary_cross_entropy_with_logits": (X, Y), "kl_div": (X, Y), "poisson_nll_loss": (X, Y),
    "soft_margin_loss": (X, Y), "multilabel_soft_margin_loss": (X, Y), "multi_margin_loss": (X, CLASSES), "hinge_embedding_loss": (X, Y),
    "triplet_margin_loss": (X, Y, X + 1), "margin_ranking_loss": (X, Y, Y), "cosine_embedding_loss": (X, Y, torch.tensor([1.0, -1.0])),
    "multilabel_margin_loss": (X, torch.tensor([[0, -1], [1, 0]])),
}  # fmt: skip
MODULES = {
    "mse_loss": "MSELoss", "l1_loss": "L1Loss", "smooth_l1_loss": "SmoothL1Loss", "cross_entropy": "CrossEntropyLoss",
    "nll_loss": "NLLLoss",
    "binary_cross_entropy": "BCELoss", "binary_cross_entropy_with_logits": "BCEWithLogitsLoss", "kl_div": "KLDivLoss",
    "poisson_nll_loss": "PoissonNLLLoss", "soft_margin_loss": "SoftMarginLoss", "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss",
    "multi_margin_loss": "MultiMarginLoss", "hinge_embedding_loss": "HingeEmbeddingLoss", "triplet_margin_loss": "TripletMarginLoss",
    "margin_ranking_loss": "MarginRankingLoss", "cosine_embedding_loss": "CosineEmbeddingLoss",
    "multilabel_margin_loss": "MultiLabelMarginLoss",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("old", [(None, True), (None, False), (True, None), (False, None), (False, True), (True, False)])
def test_old_spellings_of_reduction(name, old):
    average, reduce = old
    wanted = "none" if reduce is False else "sum" if average is False else "mean"
    options = {"size_average": average, "reduce": reduce}
    with pytest.warns(UserWarning, match=f"size_average and reduce args will be deprecated, please use reduction='{wanted}' instead."):
        got = getattr(F, name)(*LOSSES[name], **options)
    assert torch.equal(got, getattr(F, name)(*LOSSES[name], reduction=wanted))
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated"):
        module = getattr(nn, MODULES[name])(**options)
    assert module.reduction == wanted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "reduction: 'mean' divides")
        assert torch.equal(module(*LOSSES[name]), got)


def test_elementwise_mean():
    with pytest.warns(UserWarning, match="reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead."):
        assert F.mse_loss(X, Y, reduction="elementwise_mean") == F.mse_loss(X, Y)


@pytest.mark.parametrize("shape", [(0, 2, 3), (5, 0, 3), (0, 3)])
def test_ctc_loss_of_nothing(shape):
    count = shape[1] if len(shape) == 3 else 1
    targets = torch.ones(count, 2, dtype=torch.long) if len(shape) == 3 else torch.ones(2, dtype=torch.long)
    with pytest.raises(RuntimeError, match="log_probs tensor must not be empty"):
        F.ctc_loss(torch.zeros(shape), targets, torch.full((count,), shape[0]), torch.full((count,), 2))


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_complex_inputs_are_refused(loss):
    z = torch.tensor([1 + 2j, 0.5 - 1j])
    with pytest.raises(NotImplementedError):
        loss(z, z)


def test_warning_of_gradients_that_keep_their_graph():
    code = f"""
import warnings, {torch.__name__} as torch
def run(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        x = torch.ones(2, requires_grad=True)
        call(x)
    return [w.category.__name__ for w in seen if "create_graph=True will create a reference cycle" in str(w.message)]
print(run(lambda x: torch.autograd.grad((x * x).sum(), x, create_graph=True)))
print(run(lambda x: (x * x).sum().backward()))
print(run(lambda x: (x * x).sum().backward(create_graph=True)))
print(run(lambda x: torch.autograd.backward((x * x).sum(), create_graph=True)))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ).stdout.split("\n")
    assert out[:4] == ["[]", "[]", "['UserWarning']", "[]"]


@pytest.mark.parametrize(
    ("name", "target"), [("multi_margin_loss", [0, 2, 1]), ("multilabel_margin_loss", [[0, -1, 0], [2, 1, -1], [1, 0, -1]])]
)
def test_a_margin_to_nan_counts_as_reached(name, target):
    x = torch.tensor([[-1.0, -0.75, -0.5], [-0.25, float("nan"), 0.25], [0.5, 0.75, 1.0]], requires_grad=True)
    loss = getattr(F, name)(x, torch.tensor(target), reduction="sum")
    loss.backward()
    assert loss.item() == pytest.approx(1.75 if name == "multi_margin_loss" else 2.0) and x.grad.isfinite().all() and x.grad[1, 1] == 0


@pytest.mark.parametrize("target", [2.0, -1.0, float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_targets_of_binary_cross_entropy_are_probabilities(target, dtype):
    with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
        F.binary_cross_entropy(torch.tensor([0.5, 0.5], dtype=dtype), torch.tensor([1.0, target], dtype=dtype))
