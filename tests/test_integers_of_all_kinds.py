"""NumPy's integers, and tensors of one integer without dimensions, where a function takes an int or a list of them."""

import numpy as np
import pytest

import ampnative as torch

F = torch.nn.functional
X, IMAGE, WEIGHT = torch.arange(12.0).reshape(3, 4), torch.arange(384.0).reshape(2, 3, 8, 8), torch.ones(4, 3, 2, 2)
CALLS = {
    "sum": lambda d: X.sum(d), "mean": lambda d: X.mean(dim=d), "any": lambda d: X.any(d), "all": lambda d: X.all(d),
    "amax": lambda d: X.amax(d), "std": lambda d: X.std(d), "var_mean": lambda d: torch.var_mean(X, d), "nansum": lambda d: X.nansum(d),
    "logsumexp": lambda d: X.logsumexp(d), "squeeze": lambda d: X[:, :1].squeeze(d), "normalize": lambda d: F.normalize(X, dim=d),
    "count_nonzero": lambda d: X.count_nonzero(d), "aminmax": lambda d: X.aminmax(dim=d),
    "vector_norm": lambda d: torch.linalg.vector_norm(X, dim=d),
    "norm": lambda d: torch.linalg.norm(X, dim=d), "flip": lambda d: X.flip(d), "roll": lambda d: X.roll(d, d), "tile": lambda d: X.tile(d),
    "max_pool": lambda d: torch.nn.MaxPool2d(d)(IMAGE), "avg_pool": lambda d: torch.nn.AvgPool2d(d)(IMAGE),
    "lp_pool": lambda d: torch.nn.LPPool2d(2, d)(IMAGE), "conv": lambda d: F.conv2d(IMAGE, WEIGHT, stride=d, padding=d),
    "unfold": lambda d: F.unfold(IMAGE, d), "movedim": lambda d: torch.movedim(X, d, 0), "split": lambda d: X.split(d),
    "trapezoid": lambda d: torch.trapezoid(X, dim=d), "cumulative_trapezoid": lambda d: torch.cumulative_trapezoid(X, dim=d),
    "fftshift": lambda d: torch.fft.fftshift(X, d), "repeat_interleave": lambda d: X.repeat_interleave(d, 1),
    "tensor_split": lambda d: torch.tensor_split(X, d), "vsplit": lambda d: torch.vsplit(X, d), "zeros": lambda d: torch.zeros(d),
    "linear": lambda d: torch.nn.Linear(d, d).weight * 0,
}  # fmt: skip


def same(a, b):
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return a.dtype is b.dtype and torch.equal(a, b)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32, torch.tensor])
@pytest.mark.parametrize("name", CALLS)
def test_integers_of_all_kinds(name, kind):
    assert same(CALLS[name](kind(1)), CALLS[name](1))


@pytest.mark.parametrize("wrong", [True, 1.0, np.float32(1), np.bool_(True), torch.tensor(1.0), torch.tensor([0, 1])])
def test_other_numbers_are_refused(wrong):
    with pytest.raises(TypeError):
        X.sum(dim=wrong)


def test_an_integer_tensor_is_the_other_operand_of_max_and_min():
    lengths = torch.tensor([0, 3, 5])
    assert torch.max(lengths, torch.tensor(1)).tolist() == [1, 3, 5] and lengths.min(torch.tensor(3)).tolist() == [0, 3, 3]
    assert torch.max(lengths.sum(), torch.tensor(1)).item() == 8 and lengths.max(torch.tensor(True)).tolist() == [1, 3, 5]
    for dim in (0, np.int64(0)):
        values, indices = lengths.max(dim)
        assert values.item() == 5 and indices.item() == 2
    assert torch.min(lengths, dim=torch.tensor(0)).indices.item() == 0


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_arrays_of_parameters_where_nothing_is_recorded(off):
    p = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(RuntimeError, match="requires grad"):
        p.numpy()
    with off():
        p.numpy()[0] = 3
        assert np.asarray(p).tolist() == [3.0, 1.0] and np.exp(p)[1] == np.exp(np.float32(1))
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(p)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), torch.from_numpy):
        y = (p * p).sum()
    y.backward()
    assert p.grad.tolist() == [6.0, 2.0]
