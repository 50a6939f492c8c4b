"""Tables of vectors."""

from gradient_examples import Example, ints, spaced, torch

F = torch.nn.functional
TABLE, INDEX = spaced(4, 3), ints([0, 2, 2], [3, 2, 0])
POSITIONS, STARTS = ints(0, 2, 2, 3, 1), ints(0, 2, 2)


def bag(mode, **options):
    return lambda w, *s: F.embedding_bag(POSITIONS, w, STARTS, mode=mode, per_sample_weights=s[0] if s else None, **options)


EXAMPLES = {
    "embedding": [
        Example(lambda w: F.embedding(INDEX, w), (TABLE,)),
        Example(lambda w: F.embedding(ints(0, 3, 0), w, padding_idx=1), (TABLE,)),
    ],
    "embedding_grad": [Example(lambda g: torch._C.nn._embedding_grad(g, INDEX, 4, 3, True), (spaced(2, 3, 2),))],
    "embedding_bag": [
        Example(bag("sum"), (TABLE, spaced(5, low=0.5, seed=1))),
        Example(bag("mean"), (TABLE,)),
        Example(bag("max"), (TABLE,)),
    ],
}
WITHOUT_EXAMPLE = {"poisson": "random, as bernoulli"}
