"""Order, running extremes, writes at indices, diagonals and windows, functions around gamma."""

from gradient_examples import Example, binary, ints, spaced, torch, unary

X = spaced(3, 4)
POINTS = ints([0, 1, 2, 0], [2, 0, 0, 1])
APART = ints([0, 1, 2, 0], [2, 0, 1, 1])
SOURCE = spaced(2, 4, low=-1.9, high=1.7, seed=5)


def along(name, *args, **kwargs):
    """A function of one tensor, by dimension 0 and 1, and of a 0-dim tensor where it takes one."""
    return [Example(lambda x, d=d: first(getattr(torch, name)(x, *args, dim=d, **kwargs)), (X,)) for d in (0, -1)]


def first(result):
    return result[0] if isinstance(result, tuple) else result


def scatters(function, index=POINTS, x=X, src=SOURCE):
    return [Example(lambda a, s: function(a, 0, index, s), (x, src)),
            Example(lambda a, s: function(a.clone(), 0, index, s).t(), (x, src))]  # fmt: skip


def reductions(x=X, src=SOURCE):
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (True, False):
            yield Example(
                lambda a, s, r=reduce, i=include: torch.scatter_reduce(a, 0, POINTS, s, r, include_self=i), (x, src)
            )


def scaled_diagonal(x):
    y = x * x
    y.diagonal().mul_(3)
    return y


ZEROS = SOURCE.copy()
ZEROS[0, 0] = ZEROS[1, 1] = 0
ZERO_X = X.copy()
ZERO_X[2, 1] = 0

EXAMPLES = {
    "lgamma": unary(torch.lgamma, 0.3, 6),
    "digamma": unary(torch.digamma, 0.3, 6),
    "polygamma": [*unary(lambda x: torch.polygamma(1, x), 0.5, 6), *unary(lambda x: torch.polygamma(2, x), -0.9, -0.2)],
    "i0": unary(torch.i0),
    "i0e": unary(torch.special.i0e),
    "i1": unary(torch.special.i1),
    "i1e": unary(torch.special.i1e),
    "entr": unary(torch.special.entr, 0.3, 1.7),
    "ndtri": unary(torch.special.ndtri, 0.02, 0.9),
    "logaddexp": binary(torch.logaddexp),
    "logaddexp2": binary(torch.logaddexp2),
    "logcumsumexp": [*along("logcumsumexp"), Example(lambda x: -x.logcumsumexp(1), (X,)),
                     Example(lambda x: x.logcumsumexp(0), (spaced(),))],
    "cummax": along("cummax"),
    "cummin": along("cummin"),
    "nansum": [Example(torch.nansum, (X,)), *along("nansum")],
    "quantile": [*along("quantile", 0.3), Example(lambda x: x.quantile(0.5, interpolation="midpoint"), (X,))],
    "nanquantile": along("nanquantile", 0.7),
    "sort": [*along("sort"), *along("sort", descending=True), Example(lambda x: torch.sort(x)[0], (spaced(),))],
    "topk": [*along("topk", 2), *along("topk", 1, largest=False)],
    "kthvalue": [*along("kthvalue", 2), *along("kthvalue", 1, keepdim=True)],
    "median": [Example(torch.median, (X,))],
    "median_dim": along("median"),
    "nanmedian": [Example(torch.nanmedian, (X,))],
    "nanmedian_dim": along("nanmedian", keepdim=True),
    "mode": along("mode"),
    "diagonal": [Example(lambda x, o=o: torch.diagonal(x, o), (X,)) for o in (0, 1, -2)]
    + [Example(lambda x: x.diagonal(1, 2, 0), (spaced(2, 3, 4),)), Example(scaled_diagonal, (X,))],
    "diagonal_scatter": [Example(lambda x, s: torch.diagonal_scatter(x, s, 1), (X, spaced(3, seed=2)))],
    "unfold": [Example(lambda x, n=n, s=s: x.unfold(1, n, s), (spaced(2, 7),)) for n, s in ((3, 1), (2, 3), (3, 2), (7, 1))],
    "unfold_grad": [Example(lambda g: torch._C.nn._unfold_grad(g, [2, 7], 1, 3, 2), (spaced(2, 3, 3),))],
    "scatter_value": [Example(lambda x: torch.scatter(x, 0, POINTS, 1.5), (X,))],
    "scatter": scatters(torch.scatter, APART),
    "scatter_add_or_multiply": scatters(lambda *a: torch.scatter(*a, reduce="add"))
    + scatters(lambda *a: torch.scatter(*a, reduce="multiply")),
    "scatter_value_add_or_multiply": [Example(lambda x: torch.scatter(x, 0, POINTS, 1.5, reduce="multiply"), (X,))],
    "scatter_reduce": list(reductions()),
    "scatter_into": [
        *(Example(lambda a, s, r=r: torch._C.nn._scatter_into(a, 0, POINTS, s, r), (X, SOURCE)) for r in ("prod", "amax", "amin")),
        Example(lambda a, s: torch._C.nn._scatter_into(a, 0, POINTS, s, "prod"), (ZERO_X, ZEROS), False),
    ],
    "index_add": [Example(lambda x, s: torch.index_add(x, 1, ints(2, 0, 2), s, alpha=2), (X, spaced(3, 3, seed=4)))],
    "index_copy": [Example(lambda x, s: torch.index_copy(x, 1, ints(2, 0, 1), s), (X, spaced(3, 3, seed=4)))],
    "index_fill": [Example(lambda x, v: torch.index_fill(x, 1, ints(2, 0, 2), v), (X, spaced()))],
}

WITHOUT_EXAMPLE = {"nextafter": "made by NumPy: its slopes are tested in test_undifferentiable.py"}
