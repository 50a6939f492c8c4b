"""How autocast's questions about tables and samples are asked."""

from test_policy import index, torch

FORMS = {
    "embedding": ([(3, 3)], lambda f, w, device: f(w, index(2, device=device))),
    "embedding_grad": ([(2, 3)], lambda f, g, device: f(g, index(2, device=device), 3, -1, False)),
}
SELECTORS = {"embedding": (1, torch.int64), "embedding_grad": (1, torch.int64)}
FLOATS_ONLY = {"embedding_grad"}
# The question takes one tensor of positions.
LEFT_OUT = {"embedding_bag"}
