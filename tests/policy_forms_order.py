"""How the rows of order and of writes at indices are called."""

import ampnative as torch

M = (3, 3)


def index(*shape, device):
    return torch.zeros(shape, dtype=torch.int64, device=device)


def by_dim(*args):
    return ([M], lambda f, x, device: f(x, *args))


FORMS = {
    "polygamma": by_dim(1),
    "logcumsumexp": by_dim(0),
    "cummax": by_dim(0),
    "cummin": by_dim(0),
    "topk": by_dim(2),
    "kthvalue": by_dim(1),
    "median_dim": by_dim(0),
    "nanmedian_dim": by_dim(0),
    "unfold": by_dim(0, 2, 1),
    "unfold_grad": ([(2, 3, 2)], lambda f, x, device: f(x, [3, 3], 0, 2, 1)),
    "diagonal_scatter": ([M, (3,)], lambda f, x, y, device: f(x, y)),
    "scatter_value": ([M], lambda f, x, device: f(x, 0, index(*M, device=device), 2)),
    "scatter": ([M, M], lambda f, x, y, device: f(x, 0, index(*M, device=device), y)),
    "scatter_value_add_or_multiply": ([M], lambda f, x, device: f(x, 0, index(*M, device=device), 2, reduce="add")),
    "scatter_add_or_multiply": ([M, M], lambda f, x, y, device: f(x, 0, index(*M, device=device), y, reduce="add")),
    "scatter_reduce": ([M, M], lambda f, x, y, device: f(x, 0, index(*M, device=device), y, "amax")),
    "scatter_into": ([M, M], lambda f, x, y, device: f(x, 0, index(*M, device=device), y, "amax")),
    "index_add": ([M, M], lambda f, x, y, device: f(x, 0, index(3, device=device), y)),
    "index_copy": ([M, M], lambda f, x, y, device: f(x, 0, index(3, device=device), y)),
    "index_fill": ([M, ()], lambda f, x, y, device: f(x, 0, index(3, device=device), y)),
}
SELECTORS = {
    name: (1, torch.int64)
    for name in ("scatter_value", "scatter", "scatter_value_add_or_multiply", "scatter_add_or_multiply", "scatter_reduce",
                 "scatter_into", "index_add", "index_copy", "index_fill")
}  # fmt: skip
# Refuse floating dtypes for what no dtype rule says: 16-bit inputs; two different ones.
LEFT_OUT = {"quantile", "nanquantile", "searchsorted"}
