"""Ops along lines that do not lie innermost, which go in blocks of neighbours: values, bits of every level, odd sizes and strides."""

import numpy as np
import pytest

import ampnative as torch
from ampnative.nn import functional as F

LEVELS = ("baseline", "avx2", "avx512")
# shape, dimension, how the view is made of dense values: every kind of neighbourhood, among them none
CASES = (
    ((2, 5, 7, 9), 1, lambda x: x),
    ((3, 20, 300), 1, lambda x: x),
    ((33, 17), 0, lambda x: x),
    ((2, 6, 12, 9), 1, lambda x: x[:, :, ::2, 1::2]),
    ((40, 3, 11), 2, lambda x: x.permute(2, 1, 0)),
    ((3, 11, 10), 1, lambda x: x.transpose(0, 2)),
    ((4, 1, 64), 1, lambda x: x),
    ((1, 37, 1), 1, lambda x: x.expand(3, 37, 10)),
    ((2, 1000, 19), 1, lambda x: x),
    ((9, 4), 1, lambda x: x),
)


@pytest.fixture
def at_levels():
    before = torch._C.isa_name()

    def run(function, fused=False):
        """The results at every level that this machine has, which must have the same bits; `fused`: above the baseline, which has
        no fused multiply-adds. Then the baseline's results come first, and the other levels' second."""
        results = []
        for level in LEVELS:
            torch._C._set_isa(level)
            results.append([np.asarray(t.detach().to(torch.float64)) for t in function()])
        for other in results[fused:-1]:
            for a, b in zip(other, results[-1], strict=True):
                assert a.tobytes() == b.tobytes()
        torch._C._set_isa(before)
        return [results[0], results[-1]] if fused else results[-1]

    yield run
    torch._C._set_isa(before)


def spread(shape, view, dtype, seed=0):
    dense = np.random.default_rng(seed).standard_normal(shape) * 4
    return view(torch.tensor(dense.astype(np.float32)).to(dtype)).requires_grad_()


def close(got, want, dtype, largest=0.0):
    """Within half a unit in the last place of 16 bits, and the error of exp(x - max), which grows with max - x; `largest`: of
    what a difference is made of."""
    half_unit = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(dtype, 0)
    error = 2.0**-48 if dtype == torch.float64 else 2.0**-19
    size = np.maximum(np.abs(want), 2.0**-14 if dtype == torch.float16 else 0)
    bound = (half_unit + error) * size + error / 8 * max(np.abs(want).max(), largest)
    assert (np.abs(got - want) <= bound).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("logarithm", [False, True])
def test_softmax_along_any_dimension(at_levels, dtype, logarithm):
    for shape, dim, view in CASES:
        x = spread(shape, view, dtype)
        function = torch.log_softmax if logarithm else torch.softmax
        slopes = torch.tensor(np.random.default_rng(1).standard_normal(x.shape)).to(dtype)

        def call(x=x, dim=dim, slopes=slopes, function=function):
            y = function(x, dim)
            return [y, torch.autograd.grad(y, x, slopes)[0]]

        v, g = np.asarray(x.detach().double()), np.asarray(slopes.double())
        shifted = v - v.max(dim, keepdims=True)
        log = shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))
        p = np.exp(log)
        for y, dx in at_levels(call, fused=True):
            close(y, log if logarithm else p, dtype)
            # the gradient is made of the rounded output
            want = g - np.exp(y) * g.sum(dim, keepdims=True) if logarithm else y * (g - (g * y).sum(dim, keepdims=True))
            close(dx, want, dtype, np.abs(g).max())


@pytest.mark.parametrize("logarithm", [False, True])
def test_softmax_of_what_is_not_finite(logarithm):
    x = np.zeros((3, 4, 16), np.float32)
    x[0, 1, 2], x[1, :, 3], x[2, 2, 5], x[0, 0, 7] = np.nan, -np.inf, np.inf, -np.inf
    function = torch.log_softmax if logarithm else torch.softmax
    y = np.asarray(function(torch.tensor(x), 1))
    lines = np.asarray(function(torch.tensor(np.ascontiguousarray(x.transpose(0, 2, 1))), 2)).transpose(0, 2, 1)
    assert np.array_equal(np.isnan(y), np.isnan(lines))
    assert np.isnan(y[0, :, 2]).all() and np.isnan(y[1, :, 3]).all() and np.isnan(y[2, :, 5]).all()
    assert y[0, 0, 7] == (-np.inf if logarithm else 0)
    np.testing.assert_allclose(y, lines, rtol=3e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_pictures(at_levels, dtype, weighted):
    for shape, view in (
        ((2, 5, 7, 9), lambda x: x),
        ((3, 21, 30), lambda x: x),
        ((2, 6, 12, 9), lambda x: x[:, :, ::2, 1::2]),
        ((40, 5, 2), lambda x: x.permute(2, 1, 0)),
        ((3, 8, 4), lambda x: x.transpose(1, 2)),
    ):
        x = spread(shape, view, dtype)
        rng = np.random.default_rng(2)
        classes = x.shape[1]
        t = rng.integers(0, classes, (x.shape[0], *x.shape[2:]))
        t.flat[::5] = -100
        w = rng.uniform(0.5, 2, classes).astype(np.float32)
        weight = torch.tensor(w).to(dtype) if weighted else None
        w = np.asarray(weight.double()) if weighted else np.ones(classes)
        slopes = torch.tensor(rng.standard_normal(t.shape)).to(dtype)

        target = torch.tensor(t)

        def call(x=x, t=target, weight=weight, slopes=slopes):
            loss = F.cross_entropy(x, t, weight, reduction="none")
            return [loss, torch.autograd.grad(loss, x, slopes)[0]]

        v, g = np.moveaxis(np.asarray(x.detach().double()), 1, -1), np.asarray(slopes.double())
        shifted = v - v.max(-1, keepdims=True)
        log = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        kept = t != -100
        hot = np.eye(classes)[np.where(kept, t, 0)]
        each = w[np.where(kept, t, 0)] * kept
        slope = (np.exp(log) - hot) * (g * each)[..., None]
        for loss, dx in at_levels(call, fused=True):
            close(loss, -(log * hot).sum(-1) * each, dtype)
            close(np.moveaxis(dx, 1, -1), slope, dtype, np.abs(g).max())
            assert not np.moveaxis(dx, 1, -1)[~kept].any()


def test_ignored_pixels_have_no_gradient_and_hide_no_nan():
    x = torch.zeros(1, 3, 4, 4)
    x[0, :, 1, 2] = float("nan")
    x.requires_grad_()
    target = torch.full((1, 4, 4), -100)
    F.cross_entropy(x, target, reduction="sum").backward()
    nan = x.grad.isnan()
    assert nan[0, :, 1, 2].all() and nan.sum() == 3 and x.grad[~nan].eq(0).all()
    x = torch.zeros(1, 3, 4, 4)
    with pytest.raises((IndexError, RuntimeError)):
        F.cross_entropy(x, target + 103)


def test_blocks_do_not_depend_on_threads():
    x = spread((3, 20, 3000), lambda x: x, torch.float32)
    t = torch.tensor(np.random.default_rng(0).integers(0, 20, (3, 3000)))
    before, seen = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            loss = F.cross_entropy(x, t)
            results = [torch.softmax(x, 1), torch.log_softmax(x, 1), loss, torch.autograd.grad(loss, x)[0]]
            seen.append([np.asarray(r.detach()).tobytes() for r in results])
    finally:
        torch.set_num_threads(before)
    assert seen[0] == seen[1] == seen[2]


REDUCED = (
    ((64, 37), lambda x: x, -1),
    ((64, 37), lambda x: x, 0),
    ((9, 200), lambda x: x, 1),
    ((300, 7), lambda x: x, 1),
    ((5, 70), lambda x: x[:, ::3], 1),
    ((4, 33000), lambda x: x, None),
    ((6, 1, 65), lambda x: x.expand(6, 40, 65), 1),
    ((6, 33, 1), lambda x: x.expand(6, 33, 40), 2),
    ((6, 33, 1), lambda x: x.expand(6, 33, 40), (0, 2)),
    ((6, 33, 1), lambda x: x.expand(6, 33, 40), 1),
    ((1,), lambda x: x.expand(50, 60), None),
    ((1, 3), lambda x: x.expand(50, 3), 0),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_reductions(at_levels, dtype):
    """Sums of float32 and 16-bit numbers: three roundings to float32 in trees of eight values, then float64, then one to the result.
    With dtype=float64 all of it is in float64.
    """
    for shape, view, dim in REDUCED:
        x = spread(shape, view, dtype).detach()
        dims = tuple(range(x.ndim)) if dim is None else dim

        def call(x=x, dims=dims):
            y = x.to(torch.float64) / 16 + 1  # near 1: products stay in range
            y = y.to(x.dtype).expand_as(x)
            product = y.prod(dims) if isinstance(dims, int) else y.prod()
            return [x.sum(dims), x.mean(dims), x.amax(dims), x.amin(dims), product, x.ne(0).all(), x.sum(dims, dtype=torch.float64)]

        total, mean, top, low, _, nonzero, wide = at_levels(call)
        v = np.asarray(x.double())
        size = np.abs(v).sum(dims).max()
        unit = {torch.float64: 0, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}[dtype]
        for got, want, scale in ((total, v.sum(dims), 1), (mean, v.mean(dims), total.size / v.size), (wide, v.sum(dims), 0)):
            bound = (unit if scale else 0) * np.abs(want) * 1.001 + 2.0**-50 * size + 2.0**-25 * (dtype == torch.float16)
            bound = bound + scale * 3 * 2.0**-24 * size * (dtype != torch.float64)
            assert (np.abs(got - want) <= bound).all()
        assert np.array_equal(top, v.max(dims)) and np.array_equal(low, v.min(dims)) and nonzero == v.all()


def test_reductions_of_repeated_values_of_other_kinds():
    whole = torch.tensor([[3], [-2], [2**62 + 1]]).expand(3, 6)
    assert whole.sum(1).tolist() == [18, -12, (6 * (2**62 + 1) + 2**63) % 2**64 - 2**63]
    assert whole.amax(1).tolist() == [3, -2, 2**62 + 1]
    assert torch.tensor([True, False]).reshape(2, 1).expand(2, 5).sum(1).tolist() == [5, 0]
    assert torch.tensor([True, False]).reshape(2, 1).expand(2, 5).all(1).tolist() == [True, False]
    assert torch.tensor([[1 + 2j]]).expand(2, 5).sum(1).tolist() == [5 + 10j] * 2
    assert torch.tensor([[1.5]]).expand(2, 5).std(1).tolist() == [0, 0]
    assert torch.tensor([[2.0]]).expand(2, 3).prod(1).tolist() == [8, 8]
    assert torch.zeros(3, 1).expand(3, 0).sum(1).tolist() == [0, 0, 0]
    assert torch.tensor([[float("inf")]]).expand(2, 3).sum(1).tolist() == [float("inf")] * 2


@pytest.mark.parametrize("n", [1, 5, 16, 17, 63, 64, 65, 200])
def test_nan_wins_wherever_it_stands(at_levels, n):
    for at in {0, n // 2, n - 1}:
        x = np.zeros((8, n), np.float32)
        x[3, at] = np.nan

        rows = torch.tensor(x)

        def call(x=rows):
            return [x.amax(1), x.amin(1), x.t().amax(0), x.sum(1)]

        for y in at_levels(call):
            assert np.isnan(y[3]) and not np.delete(y, 3).any()


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32, torch.int64, torch.complex128])
@pytest.mark.parametrize("n", [1, 3, 16, 37])
def test_flip(dtype, n):
    x = torch.arange(2 * n).reshape(2, n).to(dtype)
    v = np.arange(2 * n).reshape(2, n)
    for dims in ((0,), (1,), (0, 1)):
        assert np.array_equal(np.asarray(x.flip(dims).to(torch.complex128)), np.flip(v, dims))
    assert np.array_equal(np.asarray(x[:, ::2].flip(1).to(torch.complex128)), np.flip(v[:, ::2], 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_running_sums_along_any_dimension(dtype):
    for shape, dim, view in CASES:
        x = view((torch.arange(int(np.prod(shape))) % 3 - 1).reshape(shape).to(dtype))
        v = np.asarray(x.to(torch.float64))
        assert np.array_equal(np.asarray(x.cumsum(dim).to(torch.float64)), v.cumsum(dim))
        signs = np.where(v < 0, -1, 1)
        assert np.array_equal(np.asarray(torch.tensor(signs).to(dtype).cumprod(dim).to(torch.float64)), signs.cumprod(dim))
        if dtype.is_floating_point:
            onwards = np.flip(np.flip(v, dim).cumsum(dim), dim)
            leaf = torch.zeros(v.shape, dtype=dtype, requires_grad=True)
            leaf.cumsum(dim).backward(x)
            assert np.array_equal(np.asarray(leaf.grad.to(torch.float64)), onwards)
            recorded = torch.autograd.grad(leaf.cumsum(dim), leaf, x, create_graph=True)[0]
            assert np.array_equal(np.asarray(recorded.detach().to(torch.float64)), onwards)


def test_running_sums_of_lines_have_the_bits_of_columns():
    x = np.random.default_rng(3).standard_normal((3, 70, 40)).astype(np.float32)
    lines = torch.tensor(np.ascontiguousarray(x.transpose(0, 2, 1))).cumsum(2)
    assert np.array_equal(np.asarray(torch.tensor(x).cumsum(1)), np.asarray(lines).transpose(0, 2, 1))
    empty = torch.zeros(0, 3, requires_grad=True)
    empty.cumsum(0).sum().backward()
    assert empty.grad.shape == (0, 3)
