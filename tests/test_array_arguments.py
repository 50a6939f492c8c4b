"""Arrays and numbers in a tensor's place: expressions take both, element-wise functions numbers, everything else only tensors."""

import numpy as np
import pytest

import ampnative as torch
from ampnative import nn

F = nn.functional
N, INDEX, IMAGE = np.ones((2, 3), np.float32), np.array([0, 1]), np.ones((1, 2, 4, 4), np.float32)
T, W = torch.ones(2, 3), torch.ones(4, 3)
REFUSED = {
    "linear": lambda: F.linear(N, W),
    "linear of an array": lambda: F.linear(T, np.ones((4, 3), np.float32)),
    "bias of linear": lambda: F.linear(T, W, np.ones(4, np.float32)),
    "Linear": lambda: nn.Linear(3, 2)(N),
    "Sequential": lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU())(N),
    "Embedding": lambda: nn.Embedding(3, 2)(INDEX),
    "Conv2d": lambda: nn.Conv2d(2, 3, 3)(IMAGE),
    "MaxPool2d": lambda: nn.MaxPool2d(2)(IMAGE),
    "mse_loss": lambda: F.mse_loss(N, N),
    "targets of mse_loss": lambda: F.mse_loss(T, N),
    "targets of cross_entropy": lambda: F.cross_entropy(T, INDEX),
    "targets of BCEWithLogitsLoss": lambda: nn.BCEWithLogitsLoss()(T, N),
    "add": lambda: torch.add(T, N),
    "add to": lambda: torch.add(N, T),
    "x.add_": lambda: T.clone().add_(N),
    "x.copy_": lambda: T.clone().copy_(N),
    "eq": lambda: torch.eq(T, N),
    "maximum": lambda: torch.maximum(T, N),
    "where": lambda: torch.where(T > 0, T, N),
    "masked_fill": lambda: T.masked_fill(N > 0, 1.0),
    "matmul": lambda: torch.matmul(T, N.T),
    "cat": lambda: torch.cat([T, N]),
    "gather": lambda: T.gather(0, np.zeros((1, 3), np.int64)),
    "sum": lambda: torch.sum(N),
    "isclose": lambda: torch.isclose(T, N.astype(np.float64)),
    "allclose": lambda: T.allclose(N),
    "bincount": lambda: torch.bincount(INDEX),
    "one_hot": lambda: F.one_hot(INDEX, 3),
    "numel": lambda: torch.numel(N),
}


@pytest.mark.parametrize("call", REFUSED)
def test_functions_and_modules_refuse_arrays_with_the_cure(call):
    with pytest.raises(TypeError, match=r"(Tensor, not|but got) numpy\.ndarray\. .*from_numpy\(\)"):
        REFUSED[call]()


NUMBERS = {
    "linear": lambda: F.linear(3, W),
    "Linear": lambda: nn.Linear(1, 1)(3),
    "Linear of NumPy's": lambda: nn.Linear(1, 1)(np.float32(3)),
    "Embedding": lambda: nn.Embedding(3, 2)(1),
    "conv2d": lambda: F.conv2d(torch.ones(1, 1, 3, 3), 1.0),
    "matmul": lambda: torch.matmul(T, 5),
    "gather": lambda: T.gather(0, 0),
    "index_add": lambda: T.index_add(0, torch.tensor([0]), 1.0),
}


@pytest.mark.parametrize("call", NUMBERS)
def test_layers_products_and_losses_refuse_numbers(call):
    with pytest.raises(TypeError, match=r"must be Tensor, not (int|float|numpy\.float32)$"):
        NUMBERS[call]()


def test_element_wise_functions_take_numbers():
    assert torch.add(2, T).tolist() == torch.add(T, np.float32(2)).tolist() == [[3] * 3] * 2
    assert torch.eq(T, 1).all() and torch.pow(2, T).sum() == 12 and torch.where(T > 0, 1, T).dtype == torch.float32
    assert torch.clamp(T, 0, 1).sum() == 6 and T.masked_fill(T > 0, 2).sum() == 12 and torch.lerp(T, T, 0.5).sum() == 6
    assert T.clone().fill_(np.float32(2)).sum() == 12 and torch.searchsorted(torch.arange(3.0), 1.5) == 2


EXPRESSIONS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "**": lambda a, b: a**b, "@": lambda a, b: a @ b.T, "==": lambda a, b: a == b, "<": lambda a, b: a < b,
}  # fmt: skip


@pytest.mark.parametrize("sign", EXPRESSIONS)
def test_expressions_of_arrays_and_tensors_are_tensors(sign):
    f = EXPRESSIONS[sign]
    a, b = 1.5 + np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2, np.float32)
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    wanted = f(x, y)
    for found in (f(x, b), f(a, y)):
        assert type(found) is torch.Tensor and found.dtype == wanted.dtype and torch.equal(found, wanted)


def test_arrays_are_written_into_tensors_in_place():
    x = T.clone()
    x += N
    x *= N * 2
    assert x.tolist() == [[4] * 3] * 2
    x[0] = np.zeros(3, np.float32)
    assert x.sum() == 12
