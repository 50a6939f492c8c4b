"""Tables of vectors and samples of categories: values and gradients against NumPy, PyTorch's numbers for a seed, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch

F, nn = torch.nn.functional, torch.nn
STEP = {torch.float64: 2.0**-50, torch.float32: 2.0**-22, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def float64(t):
    return t.detach().to(torch.float64).numpy()


def close(got, want, dtype):
    want = np.asarray(want, dtype=np.float64)
    assert tuple(got.shape) == want.shape
    assert np.abs(float64(got) - want).max(initial=0.0) <= STEP[dtype] * np.abs(want).max(initial=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(STEP)), st.integers(1, 9), st.sampled_from([1, 3, 1030]), st.sampled_from([(), (5,), (2, 3), (0,), (40,)]),
    st.booleans(), st.booleans(), st.sampled_from([torch.int64, torch.int32]), st.integers(0, 99),
)  # fmt: skip
def test_embedding(dtype, rows, width, shape, padded, by_frequency, index_dtype, seed):
    rng = np.random.default_rng(seed)
    w = torch.from_numpy(rng.standard_normal((width, rows)).T).to(dtype)
    w = (w if seed % 2 else w.contiguous()).requires_grad_()
    index = rng.integers(0, rows, shape)
    padding = int(rng.integers(-rows, rows)) if padded else None
    y = F.embedding(torch.tensor(index).to(index_dtype), w, padding, scale_grad_by_freq=by_frequency)
    assert y.dtype is dtype and (float64(y) == float64(w)[index]).all()
    g = torch.from_numpy(rng.standard_normal(y.shape)).to(dtype)
    y.backward(g)
    want = np.zeros((rows, width))
    np.add.at(want, index.reshape(-1), float64(g).reshape(-1, width))
    if by_frequency:
        want /= np.maximum(np.bincount(index.reshape(-1), minlength=rows), 1)[:, None]
    if padded:
        want[padding] = 0
    close(w.grad, want, dtype)


def test_many_small_terms_are_summed_in_wider_precision():
    """1 + 4096 * 2^-13 in bfloat16: added one by one in 8 bits the small ones would all be lost."""
    w = torch.zeros(1, 2, dtype=torch.bfloat16, requires_grad=True)
    g = torch.full((4097, 2), 2.0**-13, dtype=torch.bfloat16)
    g[0] = 1.0
    F.embedding(torch.zeros(4097, dtype=torch.int64), w).backward(g)
    assert (float64(w.grad) == 1.5).all()


def test_longest_rows_are_shortened():
    w = torch.tensor([[3.0, 4.0], [0.3, 0.4], [30.0, 40.0]], requires_grad=True)
    before = w._version
    y = F.embedding(torch.tensor([0, 1, 0]), w, max_norm=1.0)
    assert np.allclose(float64(w), [[0.6, 0.8], [0.3, 0.4], [30.0, 40.0]], rtol=1e-6) and w._version > before
    y.sum().backward()
    assert w.grad.tolist() == [[2.0, 2.0], [1.0, 1.0], [0.0, 0.0]]
    assert np.allclose(float64(torch.embedding_renorm_(w.detach(), torch.tensor([2]), 7.0, 1.0))[2], [3.0, 4.0], rtol=1e-6)


def bags(w, index, offsets, mode, weights=None, padding=None):
    found = []
    for start, end in zip(offsets, [*offsets[1:], len(index)], strict=True):
        keep = [i for i in range(start, end) if index[i] != padding]
        rows = np.array([w[index[i]] * (1.0 if weights is None else weights[i]) for i in keep]).reshape(len(keep), w.shape[1])
        found.append(getattr(rows, mode)(0) if keep else np.zeros(w.shape[1]))
    return np.array(found)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(STEP)), st.sampled_from(["sum", "mean", "max"]), st.booleans(), st.booleans(), st.integers(0, 99))
def test_embedding_bag(dtype, mode, weighted, padded, seed):
    rng = np.random.default_rng(seed)
    n, count = int(rng.integers(0, 12)), int(rng.integers(1, 5))
    w = torch.from_numpy(rng.standard_normal((6, 3))).to(dtype).requires_grad_()
    index = rng.integers(0, 6, n)
    offsets = np.sort(np.r_[0, rng.integers(0, n + 1, count - 1)])
    scale = torch.from_numpy(rng.random(n)).to(dtype).requires_grad_() if weighted and mode == "sum" else None
    padding = 2 if padded else None
    y = F.embedding_bag(
        torch.tensor(index), w, torch.tensor(offsets), mode=mode, per_sample_weights=scale, padding_idx=padding
    )
    want = bags(float64(w), index, offsets, mode, None if scale is None else float64(scale), padding)
    assert y.dtype is dtype
    close(y, want, dtype)
    ends = F.embedding_bag(
        torch.tensor(index), w, torch.tensor([*offsets, n]), mode=mode, per_sample_weights=scale, padding_idx=padding,
        include_last_offset=True,
    )  # fmt: skip
    assert (float64(ends) == float64(y)).all()
    y.sum().backward()
    assert w.grad.shape == w.shape
    if mode == "sum" and scale is None:
        kept = index[index != padding] if padded else index
        close(w.grad, np.repeat(np.bincount(kept, minlength=6)[:, None], 3, 1), dtype)


def test_bags_of_one_length():
    w = torch.randn(5, 2, dtype=torch.float64)
    index = torch.tensor([[0, 1], [4, 4], [2, 3]])
    assert (float64(F.embedding_bag(index, w)) == float64(w)[index.numpy()].mean(1)).all()
    out, of, size, best = torch.embedding_bag(w, torch.tensor([3, 1, 0]), torch.tensor([0, 1, 1]), False, 2)
    assert of.tolist() == [0, 2, 2] and size.tolist() == [1, 0, 2] and best[0].tolist() == [3, 3] and best[1].tolist() == [0, 0]
    assert (float64(out)[2] == float64(w)[[1, 0]].max(0)).all()


def test_one_hot():
    assert F.one_hot(torch.tensor([[0, 2], [1, 0]])).tolist() == [[[1, 0, 0], [0, 0, 1]], [[0, 1, 0], [1, 0, 0]]]
    assert F.one_hot(torch.tensor(1), 4).tolist() == [0, 1, 0, 0]
    assert tuple(F.one_hot(torch.zeros(0, 3, dtype=torch.int64), 4).shape) == (0, 3, 4)


TABLE, ONE = torch.ones(5, 3), torch.tensor([1])
REFUSED = [
    (IndexError, "index out of range", lambda: F.embedding(torch.tensor([5]), TABLE)),
    (IndexError, "index out of range", lambda: F.embedding(torch.tensor([-1]), TABLE)),
    (IndexError, "index out of range", lambda: F.embedding(torch.tensor([5]), TABLE.clone(), max_norm=1.0)),
    (RuntimeError, "scalar types: Long, Int; but got float32", lambda: F.embedding(torch.tensor([1.0]), TABLE)),
    (RuntimeError, "'weight' must be 2-D", lambda: F.embedding(ONE, TABLE[0])),
    (AssertionError, "Padding_idx must be within num_embeddings", lambda: F.embedding(ONE, TABLE, padding_idx=5)),
    (AssertionError, "Padding_idx must be within num_embeddings", lambda: nn.Embedding(5, 3, padding_idx=-6)),
    (AssertionError, "expected to be 2-dimensional", lambda: nn.Embedding.from_pretrained(TABLE[0])),
    (AssertionError, "Shape of weight does not match", lambda: nn.Embedding(4, 3, _weight=TABLE)),
    (NotImplementedError, "sparse gradients", lambda: F.embedding(ONE, TABLE, sparse=True)),
    (NotImplementedError, "sparse gradients", lambda: F.embedding_bag(ONE, TABLE, torch.tensor([0]), sparse=True)),
    (ValueError, "offsets has to be a 1D Tensor but got None", lambda: F.embedding_bag(ONE, TABLE)),
    (ValueError, "offsets has to be None", lambda: F.embedding_bag(ONE[None], TABLE, ONE)),
    (ValueError, "mode has to be one of", lambda: F.embedding_bag(ONE[None], TABLE, mode="x")),
    (ValueError, "same shape as the input", lambda: F.embedding_bag(ONE[None], TABLE, mode="sum", per_sample_weights=torch.ones(1))),
    (NotImplementedError, "only supported for mode='sum'", lambda: F.embedding_bag(ONE[None], TABLE, per_sample_weights=torch.ones(1, 1))),
    (RuntimeError, "offsets[0] has to be 0", lambda: F.embedding_bag(ONE, TABLE, ONE)),
    (RuntimeError, "can not be greater than input's length", lambda: F.embedding_bag(ONE, TABLE, torch.tensor([0, 3]))),
    (RuntimeError, "one_hot is only applicable", lambda: F.one_hot(torch.tensor([1.0]))),
    (RuntimeError, "must be smaller than num_classes", lambda: F.one_hot(ONE, 1)),
    (RuntimeError, "must be non-negative", lambda: F.one_hot(torch.tensor([-1]), 3)),
    (RuntimeError, "Can not infer", lambda: F.one_hot(torch.zeros(0, dtype=torch.int64))),
    (RuntimeError, "n_sample > prob_dist.size(-1)", lambda: torch.multinomial(torch.ones(2), 3)),
    (RuntimeError, "n_sample <= 0", lambda: torch.multinomial(torch.ones(2), 0)),
    (RuntimeError, "sum of probabilities <= 0", lambda: torch.multinomial(torch.zeros(2), 1)),
    (RuntimeError, "element < 0", lambda: torch.multinomial(torch.tensor([1.0, -1.0]), 1)),
    (RuntimeError, "1 or 2 dim", lambda: torch.multinomial(torch.ones(2, 2, 2), 1)),
    (RuntimeError, "floating-point dtypes", lambda: torch.multinomial(torch.tensor([1, 2]), 1)),
    (RuntimeError, "invalid Poisson rate", lambda: torch.poisson(torch.tensor([-1.0]))),
    (RuntimeError, "invalid Poisson rate", lambda: torch.poisson(torch.tensor([float("inf")]))),
    (NotImplementedError, "not implemented for 'int64'", lambda: torch.poisson(ONE)),
    (RuntimeError, "std >= 0.0", lambda: torch.normal(torch.ones(2), -1.0)),
    (RuntimeError, "std >= 0.0", lambda: torch.normal(0.0, torch.tensor([-1.0]))),
    (TypeError, "needs a size", lambda: torch.normal(1.0, 2.0)),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c[1][:40])
def test_refused(case):
    error, phrase, function = case
    with pytest.raises(error) as info:
        function()
    assert phrase in str(info.value)


def test_modules():
    torch.manual_seed(0)
    e = nn.Embedding(5, 3, padding_idx=-2)
    torch.manual_seed(0)
    want = torch.randn(5, 3)
    want[3] = 0
    assert (e.weight == want).all() and list(e.state_dict()) == ["weight"] and tuple(e(ONE).shape) == (1, 3)
    assert repr(e) == "Embedding(5, 3, padding_idx=3)"
    assert repr(nn.Embedding(5, 3, max_norm=2.0, scale_grad_by_freq=True)) == "Embedding(5, 3, max_norm=2.0, scale_grad_by_freq=True)"
    assert repr(nn.EmbeddingBag(5, 3, padding_idx=1, max_norm=1.0)) == "EmbeddingBag(5, 3, max_norm=1.0, mode='mean', padding_idx=1)"
    frozen = nn.Embedding.from_pretrained(TABLE)
    assert not frozen.weight.requires_grad and frozen.weight.data_ptr() == TABLE.data_ptr()
    assert nn.EmbeddingBag.from_pretrained(TABLE, freeze=False, mode="sum").weight.requires_grad
    bag = nn.EmbeddingBag(5, 3, mode="sum", padding_idx=0)
    assert (bag(torch.tensor([[0, 1]])) == bag.weight[1]).all()


def test_under_autocast_and_on_emulated_cuda():
    with torch.cuda.emulate():
        w = torch.randn(4, 3, device="cuda", requires_grad=True)
        with torch.autocast("cuda"):
            y = F.embedding(torch.tensor([1, 2], device="cuda"), w)
            z = F.embedding_bag(torch.tensor([[1, 2]], device="cuda"), w, mode="max")
        assert y.dtype is z.dtype is torch.float32 and z.device.type == "cuda"
        (y.sum() + z.sum()).backward()
        assert w.grad.sum().item() == 9.0
        assert torch.multinomial(torch.ones(3, device="cuda"), 2).device.type == "cuda"


SAMPLES = [
    [4, 3, 6, 2],
    [7, 5, 4, 4, 7, 3],
    [[1, 2, 2], [1, 3, 2]],
    [0.0, 1.0, 0.0, 10.0, 73.0, 9870.0],
    [1.6081, 2.0, 4.4649],
    [1.654, -2.9241],
]


# What PyTorch 2.15 draws on the CPU after manual_seed(5), call by call.
def test_samples_are_pytorchs():
    torch.manual_seed(5)
    weights = torch.arange(1.0, 9.0)
    drawn = [
        torch.multinomial(weights, 4).tolist(),
        torch.multinomial(weights.double(), 6, True).tolist(),
        torch.multinomial(weights.reshape(2, 4), 3, replacement=True).tolist(),
        torch.poisson(torch.tensor([0.0, 0.5, 3.0, 12.0, 80.0, 1e4])).tolist(),
        [round(v, 4) for v in torch.normal(weights[:3], torch.tensor([0.5, 0.0, 2.0])).tolist()],
        [round(v, 4) for v in torch.normal(2.0, weights[:2]).tolist()],
    ]
    assert drawn == SAMPLES
