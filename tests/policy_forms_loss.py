"""How losses are called for the question of their dtype."""

import ampnative as torch

M, V = (3, 3), (3,)


def ints(*values, device):
    return torch.tensor(list(values), device=device)


FORMS = {
    "cosine_embedding_loss": ([M, M], lambda f, x, y, device: f(x, y, ints(1, -1, 1, device=device))),
    "hinge_embedding_loss": ([M], lambda f, x, device: f(x, ints([1, -1, 1], device=device))),
    "multi_margin_loss": ([M], lambda f, x, device: f(x, ints(0, 2, 1, device=device))),
    "multilabel_margin_loss": ([M], lambda f, x, device: f(x, ints([0, -1, 0], [1, 2, 0], [2, 1, 0], device=device))),
    "ctc_loss": (
        [(3, 1, 3)],
        lambda f, x, device: f(x, ints([1, 2], device=device), ints(3, device=device), ints(2, device=device)),
    ),
    "ctc_loss_ints": ([(3, 1, 3)], lambda f, x, device: f(x, ints([1, 2], device=device), (3,), (2,))),
}
SELECTORS = {
    "cosine_embedding_loss": (2, torch.int64),
    "hinge_embedding_loss": (1, torch.int64),
    "multi_margin_loss": (1, torch.int64),
    "multilabel_margin_loss": (1, torch.int64),
    "ctc_loss": (1, torch.int64),
    "ctc_loss_ints": (1, torch.int64),
}
# The lengths of ctc_loss are tensors too, of which the question is not told; cross_entropy and ctc_loss alone call their rows.
LEFT_OUT = {"ctc_loss", "ctc_samples", "ctc_samples_grad", "cross_entropy_rows"}
FLOATS_ONLY = {
    "margin_ranking_loss", "triplet_margin_loss", "hinge_embedding_loss", "cosine_embedding_loss", "kl_div", "poisson_nll_loss",
    "soft_margin_loss",
}  # fmt: skip
