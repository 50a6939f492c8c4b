"""utils.data: data sets, samplers, DataLoader; order for a seed as PyTorch 2.15.0 gives it."""

import collections

import numpy as np
import pytest
from golden_tools import torch

data = torch.utils.data
Dataset, TensorDataset, DataLoader = data.Dataset, data.TensorDataset, data.DataLoader


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i * i


def order(loader):
    return [v for batch in loader for v in batch.tolist()]


def test_tensor_dataset_and_batches():
    x, y = torch.arange(10).reshape(5, 2), torch.arange(5)
    loader = DataLoader(TensorDataset(x, y), batch_size=2)
    batches = list(loader)
    assert len(loader) == 3 and [tuple(b[0].shape) for b in batches] == [(2, 2), (2, 2), (1, 2)]
    assert batches[1][0].tolist() == [[4, 5], [6, 7]] and batches[1][1].tolist() == [2, 3] and isinstance(batches[0], list)
    assert len(DataLoader(TensorDataset(x, y), batch_size=2, drop_last=True)) == 2
    with pytest.raises(AssertionError, match="Size mismatch"):
        TensorDataset(x, torch.arange(4))


# torch 2.15.0
FIRST = [4, 0, 25, 9, 1, 16, 49, 36]
SECOND = [0, 9, 49, 1, 36, 4, 25, 16]
AFTER = 0.455627977848053
GENERATED = [1, 4, 9, 25, 49, 16, 36, 0]
REPLACED = [1, 2, 0, 4, 1, 4, 0, 0, 4]
REPEATED = [0, 1, 2, 1, 2, 0, 1]
SUBSET = [40, 30, 10, 20]
SPLIT = [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]


def test_order_for_a_seed():
    torch.manual_seed(0)
    loader = DataLoader(Squares(8), batch_size=3, shuffle=True)
    assert order(loader) == FIRST
    assert order(loader) == SECOND
    assert torch.rand(1).item() == AFTER
    generator = torch.Generator()
    generator.manual_seed(7)
    assert order(DataLoader(Squares(8), shuffle=True, generator=generator)) == GENERATED
    torch.manual_seed(1)
    sampler = data.RandomSampler(range(5), replacement=True, num_samples=9)
    assert list(sampler) == REPLACED and len(sampler) == 9
    assert list(data.RandomSampler(range(3), num_samples=7)) == REPEATED
    assert list(data.SubsetRandomSampler([10, 20, 30, 40])) == SUBSET


def test_random_split():
    torch.manual_seed(0)
    a, b = data.random_split(range(10), [7, 3])
    assert a.indices == SPLIT[:7] and b.indices == SPLIT[7:] and len(a) == 7 and a[0] == SPLIT[0]
    parts = data.random_split(range(10), [0.5, 0.25, 0.25], generator=torch.Generator().manual_seed(3))
    assert [len(p) for p in parts] == [6, 2, 2] and sorted(i for p in parts for i in p.indices) == list(range(10))
    with pytest.raises(ValueError, match="Sum of input lengths"):
        data.random_split(range(10), [5, 4])


def test_own_samplers_and_collate():
    assert order(DataLoader(Squares(5), batch_size=2, sampler=[4, 0, 2])) == [16, 0, 4]
    assert [b.tolist() for b in DataLoader(Squares(5), batch_sampler=[[1], [2, 3]])] == [[1], [4, 9]]
    assert list(DataLoader(Squares(3), batch_size=2, collate_fn=tuple)) == [(0, 1), (4,)]
    assert list(DataLoader(Squares(3), batch_size=None)) == [0, 1, 4]
    assert list(data.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]


def test_collate_keeps_structure():
    Point = collections.namedtuple("Point", "x y")
    batch = [{"a": 1, "b": (1.5, "s"), "c": np.ones(2, dtype=np.float32), "p": Point(1, 2.0)} for _ in range(3)]
    out = data.default_collate(batch)
    assert out["a"].tolist() == [1, 1, 1] and out["a"].dtype == torch.int64
    assert out["b"][0].dtype == torch.float64 and list(out["b"][1]) == ["s"] * 3
    assert out["c"].shape == (3, 2) and out["c"].dtype == torch.float32
    assert isinstance(out["p"], Point) and out["p"].y.tolist() == [2.0] * 3
    assert data.default_collate([torch.ones(2), torch.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert data.default_collate([np.float32(1.5), np.float32(2.5)]).dtype == torch.float32
    with pytest.raises(RuntimeError, match="equal size"):
        data.default_collate([[1, 2], [1]])
    with pytest.raises(TypeError, match="batch must contain"):
        data.default_collate([object()])


def test_streams():
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(5))

    assert [b.tolist() for b in DataLoader(Stream(), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in DataLoader(Stream(), batch_size=2, drop_last=True)] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="IterableDataset"):
        DataLoader(Stream(), shuffle=True)


def test_concat_and_subset():
    both = Squares(3) + Squares(2)
    assert [both[i] for i in range(len(both))] == [0, 1, 4, 0, 1] and both[-1] == 1
    assert list(DataLoader(data.Subset(Squares(5), [4, 1]), batch_size=None)) == [16, 1]


@pytest.mark.parametrize(
    "kwargs, phrase",
    [
        ({"shuffle": True, "sampler": [0]}, "mutually exclusive"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, "mutually exclusive"),
        ({"batch_size": 0}, "positive integer"),
        ({"num_workers": -1}, "non-negative"),
    ],
)
def test_errors(kwargs, phrase):
    with pytest.raises(ValueError, match=phrase):
        DataLoader(Squares(3), **kwargs)


# ---- batches of whole tensors ----

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


class OneByOne(torch.utils.data.TensorDataset):
    """Not exactly a TensorDataset: each sample is asked for."""


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_taken_at_once_are_the_samples_joined(dtype):
    base = torch.arange(11 * 6).reshape(11, 2, 3)
    tensors = [(base % 2).to(dtype), base.transpose(1, 2).to(dtype)[:, ::2], torch.arange(11)]
    batches = [
        list(torch.utils.data.DataLoader(kind(*tensors), batch_size=4, sampler=[3, 0, -1, 7, 3, 10]))
        for kind in (torch.utils.data.TensorDataset, OneByOne)
    ]
    assert [len(b) for b in batches[0]] == [3, 3] and all(type(b) is list for b in batches[0])
    for a, b in zip(*batches, strict=True):
        for x, y in zip(a, b, strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape and torch.equal(x, y) and x.is_contiguous() and y.is_contiguous()


def test_rows_of_subsets_and_with_a_gradient():
    x = torch.arange(20.0, requires_grad=True)
    whole = torch.utils.data.TensorDataset(x, torch.arange(20))
    inner = torch.utils.data.Subset(whole, range(5, 15))
    outer = torch.utils.data.Subset(inner, [9, 0, -1, 4])
    (batch,) = torch.utils.data.DataLoader(outer, batch_size=4)
    assert batch[0].tolist() == batch[1].tolist() == [14, 5, 14, 9]
    batch[0].sum().backward()
    assert x.grad.nonzero().flatten().tolist() == [5, 9, 14] and x.grad[14] == 2


def test_rows_are_copies():
    x = torch.zeros(4)
    (batch,) = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=4)
    batch[0].add_(1)
    assert not x.any()


@pytest.mark.parametrize("index", [4, -5])
def test_an_index_out_of_range_is_an_error(index):
    dataset = torch.utils.data.TensorDataset(torch.zeros(4))
    with pytest.raises(IndexError):
        list(torch.utils.data.DataLoader(dataset, batch_size=2, sampler=[0, index]))
    with pytest.raises(IndexError):
        list(torch.utils.data.DataLoader(torch.utils.data.Subset(dataset, [0, index]), batch_size=2))


def test_indices_that_are_no_ints_are_asked_for_one_by_one():
    dataset = torch.utils.data.TensorDataset(torch.arange(5), torch.arange(10).reshape(5, 2))
    for sampler in (np.array([4, 2]), torch.tensor([4, 2]), [np.int64(4), 2]):
        (batch,) = torch.utils.data.DataLoader(dataset, batch_size=2, sampler=sampler)
        assert batch[0].tolist() == [4, 2] and batch[1].tolist() == [[8, 9], [4, 5]]
