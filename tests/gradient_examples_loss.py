"""Losses made of other ops."""

import numpy as np
from gradient_examples import Example, F, ints, spaced, torch

REDUCTIONS = ("mean", "sum", "none")
# three grids, so that no difference is 0
X, Y, Z = spaced(3, 4), spaced(3, 4, low=-1.9, seed=1), spaced(3, 4, low=-2.07, seed=2)
POSITIVE = spaced(3, 4, low=0.2, high=3.0, seed=3)
SIGNS = torch.tensor([[1.0, -1, 1, 1], [-1, -1, 1, -1], [1, 1, -1, 1]], dtype=torch.float64)
WEIGHT = torch.tensor([0.5, 1.5, 1.0, 2.0], dtype=torch.float64)


def each(function, *inputs, **options):
    return [Example(lambda *t, r=r: function(*t, reduction=r, **options), inputs) for r in REDUCTIONS]


def ctc(steps, targets, lengths):
    def function(x):
        return F.ctc_loss(F.log_softmax(x, 2), targets, steps, lengths, reduction="none")

    return function


EXAMPLES = {
    "cross_entropy_rows": [
        *each(lambda x, reduction: F.cross_entropy(x, ints(1, -100, 3), reduction=reduction), X),
        *each(F.cross_entropy, X, target=ints(1, 2, 3), weight=WEIGHT, ignore_index=2, label_smoothing=0.3),
        *each(F.cross_entropy, spaced(2, 3, 1, 2), target=ints([[1, 0]], [[2, 2]]), ignore_index=2, label_smoothing=0.2),
        Example(lambda x: F.cross_entropy(x, torch.tensor(2), WEIGHT), (spaced(4),)),
    ],
    "kl_div": [
        Example(lambda x, t, r=r, logs=logs: F.kl_div(x, t, reduction=r, log_target=logs), (X, POSITIVE))
        for r in ("batchmean", "sum", "none")
        for logs in (False, True)
    ],
    "poisson_nll_loss": each(F.poisson_nll_loss, X, POSITIVE)
    + each(F.poisson_nll_loss, POSITIVE, spaced(3, 4, low=1.2, high=4.0), log_input=False, full=True),
    "cosine_embedding_loss": [
        *each(lambda x, y, reduction: F.cosine_embedding_loss(x, y, ints(1, -1, 1), 0.1, reduction=reduction), X, Y),
        Example(lambda x, y: F.cosine_embedding_loss(x, y, torch.tensor(1)), (spaced(4), spaced(4, seed=1))),
    ],
    "hinge_embedding_loss": each(lambda x, reduction: F.hinge_embedding_loss(x, SIGNS, 0.7, reduction=reduction), X),
    "margin_ranking_loss": each(lambda x, y, reduction: F.margin_ranking_loss(x, y, SIGNS, 0.3, reduction=reduction), X, Y),
    "soft_margin_loss": each(F.soft_margin_loss, X, target=torch.from_numpy(Y)),
    "multi_margin_loss": [
        *each(lambda x, reduction: F.multi_margin_loss(x, ints(1, 0, 3), margin=0.8, reduction=reduction), X),
        *each(lambda x, reduction: F.multi_margin_loss(x, ints(1, 0, 3), 2, 0.7, WEIGHT, reduction=reduction), X),
        Example(lambda x: F.multi_margin_loss(x, torch.tensor(2), margin=0.8), (spaced(4),)),
    ],
    # scores that lie 1 apart would be on a kink
    "multilabel_margin_loss": [
        *each(
            lambda x, reduction: F.multilabel_margin_loss(x, ints([3, 0, -1, 1], [-1, 2, 0, 1], [2, 1, 0, 3]), reduction=reduction), 0.9 * X
        ),
        Example(lambda x: F.multilabel_margin_loss(x, ints(1, -1, 0, 0)), (0.9 * spaced(4),)),
    ],
    "triplet_margin_loss": [
        *each(F.triplet_margin_loss, X, Y, Z, margin=3.0),
        Example(lambda x, y, z: F.triplet_margin_loss(x, y, z, p=1, margin=3.0, swap=True), (X, Y, Z)),
        Example(lambda x, y, z: F.triplet_margin_loss(x, y, z, p=3, reduction="none"), (X[0], Y[0], Z[0])),
    ],
    # the derivative of ctc_loss holds for logarithms of probabilities that add up to 1, and is not differentiated again
    "ctc_loss": [Example(ctc(ints(5, 4), ints([1, 2, 2], [2, 1, 0]), ints(3, 2)), (spaced(5, 2, 3),), False)],
    "ctc_samples": [
        Example(
            lambda x: torch._C.nn._ctc_samples(F.log_softmax(x, 2), ints([1, 2], [3, 0]), (4, 5), (2, 1), 0, True)[0],
            (spaced(5, 2, 4),),
            False,
        )
    ],
    "ctc_loss_ints": [
        Example(ctc((5, 3), ints(1, 2, 2), (1, 2)), (spaced(5, 2, 3, low=-1.0, high=1.0),), False),
        Example(ctc((5, 4), ints([1, 1], [2, 1]), (2, 0)), (spaced(5, 2, 3),), False),
    ],
    "huber_kernel": [Example(lambda x: torch._C.nn._huber(x, 0.7, 0.5, 0.7), (X,))],
    "bce_logits_kernel": [Example(torch._C.nn._bce_logits, (X, Y))],
}

WITHOUT_EXAMPLE = {"ctc_samples_grad": "not differentiated again: see test_ctc"}
assert np.all(POSITIVE > 0)
