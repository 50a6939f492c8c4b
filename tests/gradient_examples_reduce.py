"""Reductions made of other ops."""

from gradient_examples import Example, spaced, torch

EXAMPLES = {
    "trace": [Example(torch.trace, (spaced(3, 3),)), Example(torch.trace, (spaced(2, 3),)), Example(torch.trace, (spaced(3, 2),))],
}
