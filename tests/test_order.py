"""Sorting, order statistics, running extremes and binary search against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool]  # fmt: skip
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0]


@pytest.fixture(params=["cpu", "cuda"], autouse=True, scope="module")
def device(request):
    with torch.cuda.emulate():
        yield request.param


@st.composite
def arrays(draw, dims=(0, 3)):
    """A tensor of any dtype with many equal elements, as it is and as seen by NumPy; strided ways of lying in memory."""
    shape = draw(st.lists(st.integers(0, 5), min_size=dims[0], max_size=dims[1]))
    if shape and draw(st.booleans()):
        shape[draw(st.integers(0, len(shape) - 1))] = draw(st.integers(30, 90))
    dtype = draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = rng.integers(-6, 7, size=shape) / 4
    if dtype.is_floating_point:
        values = np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, size=shape), values)
    elif dtype in (torch.uint8, torch.bool):
        values = np.abs(values)
    x = torch.tensor(values.tolist(), dtype=torch.float64).reshape(shape).to(dtype)
    if shape and draw(st.booleans()):
        x = x.transpose(0, -1)
    if shape and draw(st.booleans()):
        x = x[::2]
    return x


def as_numpy(x):
    x = x.cpu()
    return x.double().numpy() if x.is_floating_point() else x.numpy()


def stable(x, dim, descending=False):
    """Values and positions of a stable sort with NaN greatest."""
    x = as_numpy(x).astype(np.float64) if as_numpy(x).dtype == bool else as_numpy(x)
    order = np.argsort(np.flip(x, dim) if descending else x, axis=dim, kind="stable")
    if descending:  # the stable ascending order of the reversed line, read backwards
        order = np.flip(x.shape[dim] - 1 - order, dim)
    return np.take_along_axis(x, order, dim), order


def same(got, want):
    np.testing.assert_array_equal(as_numpy(got), want)


@settings(max_examples=60, deadline=None)
@given(arrays(dims=(1, 3)), st.data())
def test_sort(device, x, data):
    dim = data.draw(st.integers(-x.dim(), x.dim() - 1))
    descending = data.draw(st.booleans())
    x = x.to(device)
    values, positions = torch.sort(x, dim, descending)
    want, order = stable(x, dim, descending)
    same(values, want)
    same(positions, order)
    assert values.dtype == x.dtype and positions.dtype == torch.int64
    same(x.argsort(dim, descending), order)
    n = x.size(dim)
    k = data.draw(st.integers(0, n))
    if x.numel():
        values, positions = x.topk(k, dim, largest=descending)
        same(values, want.take(range(k), dim))
        same(positions, order.take(range(k), dim))
    if n and not descending:
        k = data.draw(st.integers(1, n))
        values, positions = x.kthvalue(k, dim)
        same(values, want.take(k - 1, dim))
        same(positions, order.take(k - 1, dim))


@settings(max_examples=60, deadline=None)
@given(arrays(dims=(1, 3)), st.data())
def test_medians_and_mode(device, x, data):
    dim = data.draw(st.integers(-x.dim(), x.dim() - 1))
    x = x.to(device)
    if x.size(dim) == 0:
        for name in ("median", "nanmedian", "mode"):
            with pytest.raises(IndexError, match="non-zero size"):
                getattr(x, name)(dim)
        return
    lines = np.moveaxis(as_numpy(x), dim, -1)
    flat = lines.reshape(-1, lines.shape[-1]).astype(np.float64)
    medians = [np.nan if np.isnan(v).any() else np.sort(v)[(len(v) - 1) // 2] for v in flat]
    alive = [v[~np.isnan(v)] for v in flat]
    nanmedians = [np.sort(v)[(len(v) - 1) // 2] if len(v) else np.nan for v in alive]
    for name, want in (("median", medians), ("nanmedian", nanmedians)):
        values, positions = getattr(torch, name)(x, dim)
        np.testing.assert_array_equal(as_numpy(values).reshape(-1), np.asarray(want).reshape(-1))
        np.testing.assert_array_equal(as_numpy(x.gather(dim, positions.unsqueeze(dim)).squeeze(dim)), as_numpy(values))
        assert getattr(torch, name)(x, dim, True)[0].dim() == x.dim()
    values, positions = torch.mode(x, dim)
    for v, got, at in zip(flat, as_numpy(values).reshape(-1), as_numpy(positions).reshape(-1)):
        kinds, counts = np.unique(v, return_counts=True, equal_nan=False)  # a NaN equals no other
        want = kinds[counts == counts.max()][0]
        assert got == want or (np.isnan(got) and np.isnan(want))
        assert at == (0 if np.isnan(want) else np.flatnonzero(v == want)[-1])


def test_median_of_all(device):
    x = torch.tensor([[3.0, 1.0], [2.0, 4.0]], device=device)
    assert x.median().item() == 2 and x.t().median().item() == 2
    assert torch.tensor([1.0, np.nan, 0.0], device=device).nanmedian().item() == 0
    assert np.isnan(torch.empty(0, device=device).median().item())


@settings(max_examples=40, deadline=None)
@given(arrays(dims=(1, 3)), st.data())
def test_running_extremes(device, x, data):
    dim = data.draw(st.integers(0, x.dim() - 1))
    x = x.to(device)
    for name, function in (("cummax", np.maximum), ("cummin", np.minimum)):
        values, positions = getattr(torch, name)(x, dim)
        same(values, function.accumulate(as_numpy(x), dim))
        if x.numel():
            np.testing.assert_array_equal(as_numpy(x.gather(dim, positions)), as_numpy(values))
    again = torch.tensor([1.0, 1.0, 0.0, 2.0, np.nan, 3.0], device=device)
    assert again.cummax(0).indices.tolist() == [0, 1, 1, 3, 4, 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_logcumsumexp(device, dtype):
    x = torch.tensor([[-np.inf, -np.inf, 1.0, 800.0, -3.0], [0.5, -2.0, np.inf, 1.0, np.nan]], dtype=dtype, device=device)
    want = np.logaddexp.accumulate(as_numpy(x), 1)
    np.testing.assert_allclose(as_numpy(x.logcumsumexp(1)), want, rtol=torch.finfo(dtype).eps)
    with pytest.raises(NotImplementedError):
        torch.logcumsumexp(torch.tensor([1, 2]), 0)


def test_long_lines_of_every_width(device):
    """Long enough for the radix passes of each key width."""
    rng = np.random.default_rng(0)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.int64, torch.int16, torch.uint8):
        x = torch.tensor((rng.standard_normal(3000) * 100).tolist(), dtype=torch.float64).abs_().to(dtype)
        x = x if dtype == torch.uint8 else x - x.flip(0)
        x = x.to(device)
        for descending in (False, True):
            want, order = stable(x, 0, descending)
            values, positions = x.sort(0, descending)
            same(values, want)
            same(positions, order)
            top = x.topk(17, largest=descending)
            same(top.values, want[:17])
            same(top.indices, order[:17])


def test_named_results(device):
    x = torch.tensor([[2.0, 1.0]], device=device)
    pair = torch.sort(x)
    assert type(pair) is torch.return_types.sort and pair.values is pair[0] and pair.indices is pair[1]
    for name in ("topk", "kthvalue"):
        assert type(getattr(torch, name)(x, 1)).__name__ == name
    for name in ("median", "nanmedian", "mode", "cummax", "cummin", "max", "min"):
        assert type(getattr(torch, name)(x, 1)) is getattr(torch.return_types, name)
    low, high = torch.aminmax(x, dim=1)
    assert low.item() == 1 and high.item() == 2 and torch.aminmax(x).min.item() == 1


def test_refusals(device):
    x = torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match="selected index k out of range"):
        x.topk(4)
    with pytest.raises(RuntimeError, match="selected number k out of range"):
        x.kthvalue(0)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sort(1)
    with pytest.raises(TypeError, match="complex"):
        torch.sort(torch.tensor([1j]))
    with pytest.raises(TypeError):
        x.topk(1.5)


def test_results_do_not_depend_on_threads(device):
    x = torch.tensor(np.random.default_rng(1).integers(0, 50, (64, 300)).tolist(), device=device, dtype=torch.float32)
    before = torch.get_num_threads()
    try:
        outs = []
        for n in (1, 4):
            torch.set_num_threads(n)
            outs.append([x.sort(1, True)[1], x.topk(9)[1], x.mode(1)[1], x.cummax(0)[1]])
        assert all(torch.equal(a, b) for a, b in zip(*outs))
    finally:
        torch.set_num_threads(before)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-5, 5), max_size=8), st.lists(st.integers(-6, 6), max_size=6), st.booleans(),
       st.sampled_from([torch.float32, torch.int64, torch.bfloat16]))  # fmt: skip
def test_searchsorted(device, line, values, right, dtype):
    edges = torch.tensor(sorted(line), dtype=dtype, device=device)
    x = torch.tensor(values, dtype=dtype, device=device)
    want = np.searchsorted(sorted(line), values, side="right" if right else "left")
    same(torch.searchsorted(edges, x, right=right), want)
    same(torch.bucketize(x, edges, right=right), want)
    order = torch.tensor(line, dtype=dtype, device=device)
    same(torch.searchsorted(order, x, right=right, sorter=order.argsort(stable=True)), want)
    assert torch.searchsorted(edges, 0, out_int32=True, side="right").dtype == torch.int32


def test_searchsorted_lines_and_nan(device):
    lines = torch.tensor([[1.0, 3.0, 5.0], [2.0, 4.0, np.nan]], device=device)
    x = torch.tensor([[3.0, np.nan], [9.0, 2.0]], device=device)
    assert torch.searchsorted(lines, x).tolist() == [[1, 3], [3, 0]]  # a NaN among the edges is below nothing
    assert torch.searchsorted(lines.t().contiguous().t(), x, right=True).tolist() == [[2, 3], [3, 1]]
    with pytest.raises(RuntimeError, match="opposites"):
        torch.searchsorted(lines[0], x, right=True, side="left")
    with pytest.raises(RuntimeError, match="dimension"):
        torch.searchsorted(lines, torch.ones(3, 2, device=device))
    with pytest.raises(RuntimeError, match="1 dimension"):
        torch.bucketize(x, lines)
    with pytest.raises(RuntimeError, match="sorter index out of range"):
        torch.searchsorted(lines[0], x, sorter=torch.tensor([0, 1, 7], device=device))


NUMBERS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.mark.parametrize("edge", NUMBERS)
def test_searchsorted_compares_in_the_joint_dtype(device, edge):
    edges = torch.tensor([0.5, 1.0, 2.0, 3.0], device=device).to(edge)
    for dtype in (*NUMBERS, torch.bool):
        x = torch.tensor([0.0, 0.75, 1.0, 1.3, 2.5, 9.0], device=device).to(dtype)
        for right in (False, True):
            common = torch.promote_types(edge, dtype)
            line, sought = edges.to(common).double().cpu().numpy(), x.to(common).double().cpu().numpy()
            want = np.searchsorted(line, sought, side="right" if right else "left")
            same(torch.bucketize(x, edges, right=right), want)
            same(torch.searchsorted(edges, x, right=right), want)
            same(torch.searchsorted(edges.flip(0), x, right=right, sorter=torch.tensor([3, 2, 1, 0], device=device)), want)
            same(torch.searchsorted(edges, x, right=right, out=torch.empty(0, dtype=torch.int64, device=device)), want)
            assert torch.searchsorted(edges.expand(2, 4), x.expand(2, 6), right=right).tolist() == [want.tolist()] * 2


def test_searchsorted_joint_dtypes_round(device):
    """2**24 + 1 is 2**24 in float32; a number or a tensor of no dimensions follows the edges where it may."""
    def at(values, edges, value_dtype, edge_dtype):
        edges = torch.tensor(edges, dtype=edge_dtype, device=device)
        return torch.bucketize(torch.tensor(values, dtype=value_dtype, device=device), edges).tolist()

    assert at([2**24 + 1], [2.0**24], torch.int64, torch.float32) == [0]
    assert at([1 / 3], [1 / 3], torch.float32, torch.float16) == [1]
    assert at([1 / 3], [1 / 3], torch.float16, torch.float32) == [0]
    assert at([0.1], [0.1], torch.float64, torch.float32) == [0]
    assert at(0.1, [0.1], torch.float64, torch.float32) == 0
    assert at([300], [1, 44, 45], torch.int64, torch.uint8) == [3]
    assert at(300, [1, 44, 45], torch.int64, torch.uint8) == 1
    assert torch.bucketize(0.3, torch.tensor([0, 1], device=device)).item() == 1
    with torch.autocast(device, dtype=torch.bfloat16):
        y = torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)
        assert torch.bucketize(y, torch.tensor([1.0, 2.0, 3.0], device=device)).tolist() == [[1, 1], [1, 1]]
    for edges, x in (([True], torch.tensor(True)), ([1.0], torch.tensor([1j])), ([1j], torch.tensor([1.0]))):
        with pytest.raises(NotImplementedError):
            torch.searchsorted(torch.tensor(edges, device=device), x.to(device))


@settings(max_examples=40, deadline=None)
@given(arrays())
def test_unique(device, x):
    x = x.to(device)
    plain = as_numpy(x)
    want, inverse, counts = np.unique(plain, return_inverse=True, return_counts=True, equal_nan=False)
    got = torch.unique(x, return_inverse=True, return_counts=True)
    same(got[0], want)
    if not np.isnan(plain.astype(np.float64)).any():
        same(got[1], inverse.reshape(plain.shape))
        same(got[2], counts)
    runs = torch.unique_consecutive(x, return_counts=True)
    assert int(runs[1].sum()) == x.numel() and runs[0].numel() == runs[1].numel()
    np.testing.assert_array_equal(np.repeat(as_numpy(runs[0]), runs[1].cpu().numpy()), plain.reshape(-1))


def test_unique_slices(device):
    x = torch.tensor([[1, 2, 1], [1, 2, 1], [0, 5, 0], [1, 2, 1]], device=device)
    values, inverse, counts = torch.unique(x, dim=0, return_inverse=True, return_counts=True)
    assert values.tolist() == [[0, 5, 0], [1, 2, 1]] and inverse.tolist() == [1, 1, 0, 1] and counts.tolist() == [1, 3]
    assert torch.unique(x, dim=1).tolist() == [[1, 2], [1, 2], [0, 5], [1, 2]]
    runs, inverse, counts = torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0)
    assert runs.tolist() == [[1, 2, 1], [0, 5, 0], [1, 2, 1]] and counts.tolist() == [2, 1, 1] and inverse.tolist() == [0, 0, 1, 2]


def test_counts(device):
    x = torch.tensor([1, 1, 3], device=device)
    assert torch.bincount(x).tolist() == [0, 2, 0, 1] and x.bincount(minlength=6).numel() == 6
    weights = torch.tensor([0.5, 1.0, 2.0], device=device)
    assert torch.bincount(x, weights).tolist() == [0, 1.5, 0, 2] and torch.bincount(x, weights).dtype == torch.float32
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.bincount(-x)
    with pytest.raises(NotImplementedError):
        torch.bincount(weights)
    with pytest.raises(NotImplementedError):
        torch.bincount(x > 0)
    none = torch.bincount(x[:0], weights[:0], 3)
    assert none.tolist() == [0, 0, 0] and none.dtype == torch.int64
    y = torch.tensor([0.0, 1.0, 2.0, 3.0, 10.0, np.nan], device=device)
    assert y.histc(3, 0, 3).tolist() == [1, 1, 2] and y[:4].histc(2).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="not finite"):
        y.histc(3)
    with pytest.raises(RuntimeError, match="max must be larger"):
        y.histc(3, 2, 1)
    assert torch.isin(x, torch.tensor([3, 4], device=device)).tolist() == [False, False, True]
    assert torch.isin(x, 1, invert=True).tolist() == [False, False, True]
    assert torch.isin(x, x[:0]).tolist() == [False] * 3


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(device, interpolation):
    rng = np.random.default_rng(3)
    values = rng.standard_normal((3, 7))
    x = torch.tensor(values.tolist(), dtype=torch.float64, device=device)
    q = torch.tensor([0.0, 0.3, 0.55, 1.0], dtype=torch.float64, device=device)
    for dim in (0, 1, None):
        want = np.quantile(values, as_numpy(q), axis=dim, method=interpolation)
        np.testing.assert_allclose(as_numpy(x.quantile(q, dim, interpolation=interpolation)), want, rtol=1e-12)
        kept = torch.quantile(x, 0.3, dim, True, interpolation=interpolation)
        np.testing.assert_allclose(as_numpy(kept), np.quantile(values, 0.3, axis=dim, keepdims=True, method=interpolation), rtol=1e-12)
    values[1, 2:] = np.nan
    x = torch.tensor(values.tolist(), dtype=torch.float64, device=device)
    assert torch.quantile(x, 0.5, 1).isnan().tolist() == [False, True, False]
    np.testing.assert_allclose(as_numpy(x.nanquantile(q, 1)), np.nanquantile(values, as_numpy(q), axis=1), rtol=1e-12)


def test_quantile_refuses(device):
    x = torch.ones(3, device=device)
    for bad, match in ((1.5, "range"), (torch.tensor([2.0], device=device), "range"), (x.double(), "same dtype")):
        with pytest.raises(RuntimeError, match=match):
            torch.quantile(x, bad)
    with pytest.raises(RuntimeError, match="float or double"):
        x.half().quantile(0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.ones(3, dtype=torch.bfloat16).quantile(0.5).dtype == torch.float32


def test_nan_statistics(device):
    x = torch.tensor([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]], device=device)
    assert x.nansum().item() == 4 and x.nansum(1).tolist() == [4, 0] and torch.tensor([1, 2]).nansum().dtype == torch.int64
    assert x.half().nansum(dtype=torch.float32).dtype == torch.float32
    mean = x.nanmean(1)
    assert mean[0].item() == 2 and mean[1].isnan().item()
    y = torch.tensor([[1.0, 2.0, 6.0]], device=device)
    std, mean = torch.std_mean(y, 1)
    assert mean.item() == 3 and std.item() == pytest.approx(7**0.5)
    var, mean = torch.var_mean(y, False)
    assert var.item() == pytest.approx(14 / 3) and mean.dim() == 0
    assert [t.shape for t in torch.var_mean(y, 1, correction=0, keepdim=True)] == [(1, 1), (1, 1)]
