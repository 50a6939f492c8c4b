"""Inputs on which each op of ops.def is differentiated: row id -> examples.

An example is a function of float64 tensors and their values. Values are distinct and keep away from kinks and poles, where
one-sided slopes differ; those are tested by name in test_autograd.py.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from golden_tools import torch

F = torch.nn.functional


class Example(NamedTuple):
    function: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    second: bool = True  # whether the second derivative is checked too


def spaced(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    """Evenly spaced values in random order: no two alike."""
    n = max(math.prod(shape), 1)
    values = low + (high - low) * (np.arange(n) + 0.4) / n
    return np.random.default_rng(seed).permutation(values).reshape(shape)


def ints(*values: Any) -> Any:
    return torch.tensor(list(values))


def unary(function: Callable, low: float = -2.0, high: float = 2.0, second: bool = True) -> list[Example]:
    return [Example(function, (spaced(2, 3, low=low, high=high),), second)]


def binary(function: Callable, low: float = -2.0, high: float = 2.0, second: bool = True) -> list[Example]:
    """Same shape, both broadcast, a number on either side."""
    x, y = spaced(2, 3, low=low, high=high), spaced(2, 3, low=low + 0.05, high=high + 0.05, seed=1)
    wide = Example(function, (spaced(2, 1, low=low, high=high), spaced(3, low=low + 0.11, high=high, seed=2)), second)
    number = Example(lambda t: function(t, 1.7), (x,), second)
    return [Example(function, (x, y), second), wide, number]


def loss(function: Callable, low: float = -2.0, high: float = 2.0) -> list[Example]:
    x, t = spaced(3, 2, low=low, high=high), spaced(3, 2, low=low + 0.03, high=high - 0.03, seed=3)
    return [Example(lambda a, b, r=r: function(a, b, reduction=r), (x, t)) for r in ("mean", "sum", "none")]


def in_place(method: str, *args: Any) -> Callable:
    return lambda x, *rest: getattr(x.clone(), method)(*args, *rest)


def put(index: Any) -> Callable:
    def function(x, values):
        y = x * 1.0
        y[index] = values
        return y

    return function


def accumulated(x, values):
    return torch.scatter_add(x, 1, ints([0, 1, 0], [2, 2, 1]), values)


def classes(function: Callable, **options: Any) -> list[Example]:
    weight = torch.tensor([0.5, 1.5, 1.0, 2.0], dtype=torch.float64)
    scores, target, ignored = spaced(3, 4), ints(1, 0, 3), ints(1, -100, 3)
    images = spaced(2, 4, 2, seed=4)
    found = []
    for r in ("mean", "sum", "none"):
        found += [
            Example(lambda x, r=r: function(x, target, reduction=r, **options), (scores,)),
            Example(lambda x, r=r: function(x, ignored, weight=weight, reduction=r, **options), (scores,)),
        ]
    found.append(Example(lambda x: function(x, ints([1, 2], [0, 3]), weight=weight, **options), (images,)))
    found.append(Example(lambda x: function(x, torch.tensor(2), **options), (spaced(4),)))
    return found


X23, Y23, Z23 = spaced(2, 3), spaced(2, 3, seed=1), spaced(2, 3, seed=2)
A23, B34, V3 = spaced(2, 3, seed=5), spaced(3, 4, seed=6), spaced(3, seed=7)
A223, B232 = spaced(2, 2, 3, seed=8), spaced(2, 3, 2, seed=9)
Q124, K134, V132 = spaced(1, 2, 4, seed=10), spaced(1, 3, 4, seed=11), spaced(1, 3, 2, seed=12)
GONE = torch.tensor([[True, False, True], [False, False, False]])
MASK = torch.tensor([[True, False, True], [False, False, True]])
CHANCES = torch.tensor([[0.0, 1.0], [0.3, 1.0]], dtype=torch.float64)
WEIGHTS = torch.tensor([0.5, 2.0], dtype=torch.float64)
ZEROS = np.array([[1.5, 0.0, -2.0], [0.0, 3.0, 0.0], [0.5, -1.0, 2.0]])


def reductions(function: Callable, second: bool = True) -> list[Example]:
    return [Example(lambda x: function(x), (X23,), second)]


def dim_reductions(function: Callable, second: bool = True) -> list[Example]:
    return [
        Example(lambda x: function(x, 1), (X23,), second),
        Example(lambda x: function(x, -2, keepdim=True), (X23,), second),
        Example(lambda x: function(x, (0, 2)), (spaced(2, 2, 3, seed=3),), second),
    ]


EXAMPLES: dict[str, list[Example]] = {
    # pointwise, one input
    "abs": unary(torch.abs),
    "neg": unary(torch.neg),
    "exp": unary(torch.exp),
    "exp2": unary(torch.exp2),
    "expm1": unary(torch.expm1),
    "log": unary(torch.log, 0.2, 3.0),
    "log2": unary(torch.log2, 0.2, 3.0),
    "log10": unary(torch.log10, 0.2, 3.0),
    "log1p": unary(torch.log1p, -0.7, 3.0),
    "sqrt": unary(torch.sqrt, 0.2, 3.0),
    "rsqrt": unary(torch.rsqrt, 0.2, 3.0),
    "reciprocal": unary(torch.reciprocal, 0.3, 2.0),
    "sin": unary(torch.sin),
    "cos": unary(torch.cos),
    "tan": unary(torch.tan, -1.2, 1.2),
    "asin": unary(torch.asin, -0.9, 0.9),
    "acos": unary(torch.acos, -0.9, 0.9),
    "atan": unary(torch.atan),
    "sinh": unary(torch.sinh),
    "cosh": unary(torch.cosh),
    "tanh": unary(torch.tanh),
    "asinh": unary(torch.asinh),
    "acosh": unary(torch.acosh, 1.2, 3.0),
    "atanh": unary(torch.atanh, -0.9, 0.9),
    "sigmoid": unary(torch.sigmoid),
    "erf": unary(torch.erf),
    "erfc": unary(torch.erfc),
    "erfinv": unary(torch.erfinv, -0.8, 0.8),
    "square": unary(torch.square),
    "floor": unary(torch.floor),
    "ceil": unary(torch.ceil),
    "round": unary(torch.round),
    "trunc": unary(torch.trunc),
    "frac": unary(torch.frac),
    "sign": unary(torch.sign),
    "nan_to_num": unary(torch.nan_to_num),
    "clamp": unary(lambda x: torch.clamp(x, -0.9, 1.1)) + unary(lambda x: x.clamp(min=0.0)) + unary(lambda x: x.clamp(max=0.5)),
    "relu": unary(torch.relu),
    "relu_nn": unary(lambda x: F.relu(x)) + unary(lambda x: F.relu(x * 1.0, inplace=True)),
    "gelu": unary(F.gelu) + unary(lambda x: F.gelu(x, approximate="tanh")),
    "silu": unary(lambda x: F.silu(x)),
    "leaky_relu": unary(lambda x: F.leaky_relu(x, 0.2)),
    "elu": unary(lambda x: F.elu(x, 1.3)) + unary(lambda x: F.elu(x), -900.0, 900.0),
    "softplus": unary(F.softplus) + unary(lambda x: F.softplus(x, 2.0, 1.5)),
    "logsigmoid": unary(F.logsigmoid) + unary(F.logsigmoid, -900.0, 900.0),
    # pointwise, two inputs
    "add": binary(torch.add) + binary(lambda x, y: torch.add(x, y, alpha=-3)),
    "sub": binary(torch.sub) + binary(lambda x, y: torch.sub(x, y, alpha=2.5)),
    "rsub": [*binary(lambda x, y: torch.rsub(x, y, alpha=2)), Example(lambda x: 1.5 - x, (X23,))],
    "mul": [*binary(torch.mul), Example(lambda x: x * x, (X23,))],
    "div": [*binary(torch.div, 0.3, 2.0), Example(lambda x: 1.5 / x, (spaced(2, 3, low=0.3, high=2.0),))],
    "div_mode": binary(lambda x, y: torch.div(x, y, rounding_mode=None), 0.3, 2.0)
    + binary(lambda x, y: torch.div(x, y, rounding_mode="floor"), 0.3, 2.0),
    "div_trunc": binary(lambda x, y: torch.div(x, y, rounding_mode="trunc"), 0.3, 2.0),
    "floor_divide": binary(lambda x, y: torch.div(x, y, rounding_mode="floor"), 0.3, 2.0),
    "remainder": binary(torch.remainder, 0.3, 2.0),
    "fmod": binary(torch.fmod, 0.3, 2.0),
    "pow": binary(torch.pow, 0.4, 2.0)
    + [Example(lambda x, e=e: x**e, (spaced(2, 3),)) for e in (0, 1, 2, 3)]
    + [Example(lambda x: 1.7**x, (X23,)), Example(lambda x: x**-1.5, (spaced(2, 3, low=0.4, high=2.0),))],
    "atan2": binary(torch.atan2)[:2],
    "hypot": binary(torch.hypot)[:2],
    "maximum": [Example(torch.maximum, (X23, Y23 + 0.05))],
    "minimum": [Example(torch.minimum, (X23, Y23 + 0.05))],
    "max_other": [Example(torch.max, (X23, V3 + 0.05))],
    "min_other": [Example(torch.min, (X23, V3 + 0.05))],
    "fmax": [Example(torch.fmax, (X23, Y23 + 0.05))],
    "fmin": [Example(torch.fmin, (X23, Y23 + 0.05))],
    "copysign": [Example(torch.copysign, (X23, Y23))],
    # pointwise, three inputs
    "where": [
        Example(lambda x, y: torch.where(MASK, x, y), (X23, Y23)),
        Example(lambda x, y: torch.where(MASK, x, y), (V3, spaced(1, seed=3))),
        Example(lambda x: torch.where(MASK, x, 2.5), (X23,)),
    ],
    "addcmul": [Example(lambda x, y, z: torch.addcmul(x, y, z, value=1.7), (X23, Y23, V3))],
    "addcdiv": [Example(lambda x, y, z: torch.addcdiv(x, y, z, value=1.7), (X23, Y23, spaced(3, low=0.4, high=2.0)))],
    "lerp": [Example(torch.lerp, (X23, Y23, Z23)), Example(lambda x, y: torch.lerp(x, y, 0.3), (X23, Y23))],
    "clamp_tensor": [Example(lambda x, a, b: torch.clamp(x, a, b), (X23, np.full(3, -1.05), np.full(3, 1.15)), False)],
    "masked_fill": [
        Example(lambda x: x.masked_fill(MASK, 1.5), (X23,)),
        Example(lambda x, v: x.masked_fill(MASK, v), (X23, np.array(0.7))),
    ],
    # copies and fills
    "clone": unary(lambda x: x.clone()),
    "contiguous": unary(lambda x: x.t().contiguous()),
    "to_copy": unary(lambda x: x.to(torch.float64, copy=True)),
    "copy": [Example(in_place("copy_"), (X23, V3))],
    "fill": [Example(in_place("fill_"), (X23, np.array(0.7))), Example(in_place("fill_", 2.0), (X23,))],
    "zero": [Example(in_place("zero_"), (X23,))],
    # reductions
    "sum": reductions(torch.sum),
    "sum_dim": dim_reductions(torch.sum),
    "mean": reductions(torch.mean),
    "mean_dim": dim_reductions(torch.mean),
    "prod": [
        *reductions(torch.prod),
        Example(torch.prod, (ZEROS,)),
        Example(torch.prod, (ZEROS[2],)),
        Example(torch.prod, (ZEROS[0],)),
    ],
    "prod_dim": [
        Example(lambda x, d=d, k=k: torch.prod(x, d, keepdim=k), (v,)) for d in (0, 1) for k in (False, True) for v in (X23, ZEROS)
    ],
    "max": reductions(torch.max),
    "min": reductions(torch.min),
    "max_dim": [Example(lambda x, k=k: torch.max(x, 1, keepdim=k)[0], (X23,)) for k in (False, True)],
    "min_dim": [Example(lambda x, k=k: torch.min(x, 0, keepdim=k)[0], (X23,)) for k in (False, True)],
    "amax": dim_reductions(torch.amax) + reductions(torch.amax),
    "amin": dim_reductions(torch.amin) + reductions(torch.amin),
    "var": [
        Example(lambda x: torch.var(x), (X23,)),
        Example(lambda x: torch.var(x, dim=1, correction=0, keepdim=True), (X23,)),
    ],
    "var_unbiased": [Example(lambda x: torch.var(x, False), (X23,))],
    "var_dim": [
        Example(lambda x: torch.var(x, 0, True, True), (X23,)),
        Example(lambda x: torch.var(x, (0, 1), False), (X23,)),
    ],
    "std": [
        Example(lambda x: torch.std(x), (X23,)),
        Example(lambda x: torch.std(x, dim=1, correction=0, keepdim=True), (X23,)),
    ],
    "std_unbiased": [Example(lambda x: torch.std(x, False), (X23,))],
    "std_dim": [
        Example(lambda x: torch.std(x, 0, True, True), (X23,)),
        Example(lambda x: torch.std(x, (0, 1), False), (X23,)),
    ],
    "vector_norm": [
        Example(lambda x, p=p: torch.norm(x, p, dim=1, keepdim=True), (X23,), p not in (0, math.inf, -math.inf))
        for p in (0, 0.5, 1, 1.5, 2, 3, 4.5, math.inf, -math.inf)
    ],
    "norm": [
        Example(lambda x: torch.norm(x), (X23,)),
        Example(lambda x: torch.norm(x, "fro", dim=0), (X23,)),
        Example(lambda x: x.norm(3), (X23,)),
    ],
    "logsumexp": [
        Example(lambda x: torch.logsumexp(x, 1), (X23,)),
        Example(lambda x: torch.logsumexp(x, (0, 1), keepdim=True), (X23,)),
    ],
    "cumsum": [Example(lambda x, d=d: torch.cumsum(x, d), (X23,)) for d in (0, -1)],
    "cumprod": [Example(lambda x, d=d: torch.cumprod(x, d), (v,)) for d in (0, -1) for v in (X23, ZEROS)],
    # products
    "mm": [Example(torch.mm, (A23, B34)), Example(lambda x: torch.mm(x, x.t()), (A23,))],
    "bmm": [Example(torch.bmm, (A223, B232))],
    "mv": [Example(torch.mv, (A23, V3))],
    "dot": [Example(torch.dot, (V3, spaced(3, seed=1)))],
    "addmm": [
        Example(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), (spaced(2, 4, seed=3), A23, B34)),
        Example(torch.addmm, (spaced(4, seed=3), A23, B34)),
    ],
    "baddbmm": [Example(lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2.0), (spaced(2, 2, 2, seed=3), A223, B232))],
    "addmv": [Example(lambda c, a, b: torch.addmv(c, a, b, beta=0.5, alpha=2.0), (spaced(2, seed=3), A23, V3))],
    "outer": [Example(torch.outer, (V3, spaced(2, seed=1)))],
    "matmul": [
        Example(torch.matmul, (A23, B34)),
        Example(torch.matmul, (V3, B34)),
        Example(torch.matmul, (A23, V3)),
        Example(torch.matmul, (A223, B34)),
        Example(torch.matmul, (A223, B232[:1])),
    ],
    "linear": [
        Example(F.linear, (A23, spaced(4, 3, seed=3), spaced(4, seed=4))),
        Example(F.linear, (A23, spaced(4, 3, seed=3))),
        Example(F.linear, (A223, spaced(4, 3, seed=3), spaced(4, seed=4))),
        Example(F.linear, (V3, spaced(4, 3, seed=3), spaced(4, seed=4))),
    ],
    # softmax family and losses
    "softmax": [Example(lambda x, d=d: torch.softmax(x, d), (X23,)) for d in (0, -1)],
    "log_softmax": [Example(lambda x, d=d: torch.log_softmax(x, d), (X23,)) for d in (0, -1)],
    "mse_loss": loss(lambda x, t, reduction: F.mse_loss(x, t, reduction=reduction)),
    "l1_loss": loss(lambda x, t, reduction: F.l1_loss(x, t, reduction=reduction)),
    "smooth_l1_loss": loss(lambda x, t, reduction: F.smooth_l1_loss(x, t, reduction=reduction, beta=0.7)),
    "huber_loss": loss(lambda x, t, reduction: F.huber_loss(x, t, reduction=reduction, delta=0.7)),
    "nll_loss": classes(F.nll_loss),
    "cross_entropy": classes(F.cross_entropy)
    + classes(F.cross_entropy, label_smoothing=0.2)
    + [
        Example(
            lambda x, t, r=r, s=s: F.cross_entropy(x, t, reduction=r, label_smoothing=s),
            (spaced(3, 4), spaced(3, 4, low=0.1, high=0.9)),
        )
        for r, s in (("mean", 0.0), ("sum", 0.1), ("none", 0.2))
    ],
    "bce": [
        *loss(lambda x, t, reduction: F.binary_cross_entropy(x, t, reduction=reduction), 0.1, 0.9),
        Example(
            lambda x, t: F.binary_cross_entropy(x, t, weight=WEIGHTS),
            (spaced(3, 2, low=0.1, high=0.9), spaced(3, 2, low=0.1, high=0.9, seed=1)),
        ),
    ],
    "bce_logits": [
        *loss(lambda x, t, reduction: F.binary_cross_entropy_with_logits(x, t, reduction=reduction)),
        Example(
            lambda x: F.binary_cross_entropy_with_logits(x, CHANCES, WEIGHTS, pos_weight=torch.tensor([0.5, 2.0], dtype=torch.float64)),
            (spaced(2, 2),),
        ),
    ],
    # attention
    "scaled_dot_product_attention": [
        Example(F.scaled_dot_product_attention, (Q124, K134, V132)),
        Example(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=-0.4), (Q124, K134, V132)),
        Example(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, GONE), (Q124, K134, V132)),
        Example(F.scaled_dot_product_attention, (Q124, K134, V132, spaced(2, 3, seed=13))),
        Example(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            (spaced(4, 2, 3, seed=10), spaced(2, 2, 3, seed=11), spaced(1, 2, 2, seed=12)),
        ),
    ],
    # views
    "view": unary(lambda x: x.view(3, 2)) + unary(lambda x: x.view(-1)),
    "reshape": unary(lambda x: x.t().reshape(6)),
    "as_strided": [
        Example(lambda x: torch.as_strided(x * 1.0, (2, 2), (1, 2), 1), (X23,)),
        Example(lambda x: torch.as_strided(x * 1.0, (3, 2), (1, 1)), (X23,)),
        Example(lambda x: torch.as_strided(x * 1.0, (2, 3), (0, 2)), (X23,)),
    ],
    "transpose": unary(lambda x: x.transpose(0, -1)),
    "permute": [Example(lambda x: x.permute(2, 0, -2), (A223,))],
    "t": unary(lambda x: x.t()),
    "squeeze": [Example(lambda x: x.squeeze(), (spaced(1, 2, 1, 3),))],
    "squeeze_dim": [
        Example(lambda x: x.squeeze(0), (spaced(1, 2, 1, 3),)),
        Example(lambda x: x.squeeze((0, 2)), (spaced(1, 2, 1, 3),)),
    ],
    "unsqueeze": unary(lambda x: x.unsqueeze(1)) + unary(lambda x: x.unsqueeze(-1)),
    "flatten": [Example(lambda x: x.flatten(1), (A223,))],
    "expand": [Example(lambda x: x.expand(4, 2, 3), (spaced(2, 1),))],
    "select": unary(lambda x: x.select(1, -1)) + unary(lambda x: x[1]) + [Example(lambda x: x[0, 1], (X23,))],
    "slice": [
        Example(lambda x: x[1:4], (spaced(5),)),
        Example(lambda x: x[::2], (spaced(5),)),
        Example(lambda x: x[1::3], (spaced(6),)),
        Example(lambda x: x[:, 1:2], (X23,)),
        Example(lambda x: x[:, 0:0].sum() + x.sum(), (X23,)),
    ],
    "narrow": unary(lambda x: x.narrow(1, 1, 2)) + unary(lambda x: x.narrow(1, -2, 1)),
    # joining, indexing
    "cat": [
        Example(lambda x, y: torch.cat([x, y, x], 1), (X23, spaced(2, 1, seed=1))),
        Example(lambda x, y: torch.cat([x, y]), (X23, spaced(1, 3, seed=1))),
    ],
    "stack": [Example(lambda x, y: torch.stack([x, y, x], 1), (X23, Y23))],
    "gather": unary(lambda x: torch.gather(x, 1, ints([0, 0], [2, 1]))),
    "scatter_add": [Example(accumulated, (X23, Y23))],
    "index_select": unary(lambda x: torch.index_select(x, 1, ints(0, 2, 0))),
    "index": unary(lambda x: x[ints(0, 1, 0)])
    + unary(lambda x: x[ints(0, 1, 0), ints(2, -1, 2)])
    + unary(lambda x: x[:, ints([0, 1], [2, 0])])
    + unary(lambda x: x[MASK]),
    "index_put": [
        Example(put(ints(1, 0)), (X23, Y23)),
        Example(put((slice(None), ints(0, 2))), (X23, np.array(0.7))),
        Example(put(MASK), (X23, spaced(3, seed=1))),
    ],
    "tril": unary(lambda x: torch.tril(x)) + unary(lambda x: torch.tril(x, 1)),
    "triu": unary(lambda x: torch.triu(x)) + unary(lambda x: torch.triu(x, -1)),
    "flip": unary(lambda x: torch.flip(x, (0, 1))),
    "dropout": unary(lambda x: torch.dropout(x, 0.0, True)) + unary(lambda x: torch.dropout(x, 0.5, False)),
}

# Rows with a tensor input that need no example, and why.
WITHOUT_EXAMPLE = {
    "heaviside": "has no derivative: tested in test_undifferentiable.py",
    "attention": "takes fp32 and 16 bits: tested in test_attention_tiles.py",
    "alias": "made by the package itself, never by a caller",
    "where_index": "indices only",
    "bernoulli": "random: the zero gradient is tested in test_autograd.py",
    "uniform": "random, as bernoulli",
    "normal": "random, as bernoulli",
    "bernoulli_fill": "random, as bernoulli",
    "bernoulli_each": "random, as bernoulli",
    "bernoulli_p": "random, as bernoulli",
    "exponential": "random, as bernoulli",
    **dict.fromkeys(
        ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not"],
        "bools; what they write in place ends the history: tested in test_regressions_tensor.py",
    ),
}

# Families with many options keep their examples in files of their own.
for _path in sorted(Path(__file__).parent.glob("gradient_examples_*.py")):
    _family = importlib.import_module(_path.stem)
    assert not EXAMPLES.keys() & _family.EXAMPLES.keys(), _path.stem
    EXAMPLES |= _family.EXAMPLES
    WITHOUT_EXAMPLE |= getattr(_family, "WITHOUT_EXAMPLE", {})
