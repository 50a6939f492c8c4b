"""Sums: how far from exact they may be, what happens beyond float32's range, and that neither threads nor the walk change a bit."""

import math

import numpy as np
import pytest

import ampnative as torch

KINDS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # half a unit in the last place of 1


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("n", [1, 7, 15, 16, 17, 127, 128, 129, 1000, 4096, 4097, 100_003])
def test_close_to_the_exact_sum(dtype, n):
    """Values are added eight at a time in float32, three roundings deep, and in float64 from there."""
    x = torch.tensor(np.random.default_rng(n).normal(size=n), dtype=KINDS[dtype])
    values = x.double().numpy()
    exact, size = math.fsum(values), np.abs(values).sum()
    bound = 3.1 * 2.0**-24 * size + 1.01 * UNIT[dtype] * abs(exact)
    for got in (x.sum(), x.view(1, n).sum(1)[0], x.view(n, 1).sum(0)[0]):
        assert abs(got.item() - exact) <= bound
    assert abs(x.mean().item() - exact / n) <= bound / n
    wide = x.sum(dtype=torch.float64).item()
    assert abs(wide - exact) <= 3.1 * 2.0**-24 * size


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(1, 40), (7, 40), (8, 33), (9, 16), (300, 70), (64, 5)])
def test_columns(dtype, shape):
    x = torch.tensor(np.random.default_rng(1).normal(size=shape), dtype=KINDS[dtype])
    values = x.double().numpy()
    bound = 3.1 * 2.0**-24 * np.abs(values).sum(0) + 1.01 * UNIT[dtype] * np.abs(values.sum(0))
    assert (np.abs(x.sum(0).double().numpy() - values.sum(0)) <= bound).all()
    assert torch.equal(x.t().sum(1), x.t().contiguous().sum(1)) or dtype == "float32"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_beyond_the_range_of_float32(dtype):
    big = 3e38
    for n in (128, 200, 4097):
        values = np.zeros(n)
        values[:4], values[-4:] = big, -big
        x = torch.tensor(values, dtype=KINDS[dtype])
        assert x.sum().item() == 0
        x = torch.full((n,), big, dtype=KINDS[dtype])
        assert x.mean().item() == x[0].item() and x.sum().item() == math.inf
        columns = torch.tensor(np.repeat(values[:, None], 33, 1), dtype=KINDS[dtype])
        assert (columns.sum(0) == 0).all()
        columns[3, 5] = math.inf
        columns[4, 6] = math.nan
        total = columns.sum(0)
        assert total[5].item() == math.inf and total[6].isnan().item() and total[7].item() == 0
        assert columns.sum(1)[3].item() == math.inf


@pytest.mark.parametrize("dtype", KINDS)
def test_threads_do_not_change_a_sum(dtype):
    x = torch.tensor(np.random.default_rng(2).normal(size=(700, 333)), dtype=KINDS[dtype])
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append([x.sum(), x.sum(0), x.sum(1), x.mean(), x.std(), x.norm(), x.max(), x.min(1)[0]])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_folds_that_read_sixteen_bits_themselves(dtype):
    rng = np.random.default_rng(4)
    for shape in ((3, 5), (40, 70), (1000,), (2, 3, 40)):
        x = torch.tensor(rng.normal(size=shape) * 10.0 ** rng.uniform(-6, 3, shape), dtype=KINDS[dtype])
        wide = x.double()
        for dim in range(len(shape)):
            for name in ("amax", "amin"):
                assert torch.equal(getattr(x, name)(dim), getattr(wide, name)(dim).to(x.dtype))
            for order in (1, 2, math.inf, -math.inf, 0, 3):
                got = torch.linalg.vector_norm(x, order, dim=dim)
                assert torch.equal(got, torch.linalg.vector_norm(wide, order, dim=dim).to(x.dtype)), order
            assert torch.equal(x.var(dim), wide.var(dim).to(x.dtype)) if shape[dim] > 1 else True
            assert torch.equal(x.count_nonzero(dim), wide.count_nonzero(dim))
            assert torch.equal(x.any(dim), wide.any(dim)) and torch.equal(x.all(dim), wide.all(dim))
    special = torch.tensor([1.0, math.nan, 2.0] * 20, dtype=KINDS[dtype])
    assert special.max().isnan().item() and special.min().isnan().item()
    special = torch.tensor([1.0, -math.inf, math.inf, 6e-8] * 20, dtype=KINDS[dtype])
    assert special.max().item() == math.inf and special.min().item() == -math.inf


def test_the_variance_of_values_far_from_zero():
    """The mean that is subtracted isn't rounded to float32 on the way."""
    x = torch.tensor((1e4 + np.random.default_rng(5).normal(size=5000) * 0.01).astype("float32"))
    values = x.double().numpy()
    part = (x.view(5, 1000).var(1)[2], values[2000:3000].var(ddof=1))
    for got, want in ((x.var(), values.var(ddof=1)), (x.std(), values.std(ddof=1)), part):
        assert abs(got.item() - want) <= 1e-6 * want


@pytest.mark.parametrize("order", [3, 4.5, 0.5, -1, -3, -50, 100])
def test_norms_of_float32_are_those_of_float64(order):
    """Within the last rounding, whatever the sizes; rows of 1 to 70, of which some end in part of a vector."""
    generator = np.random.default_rng(int(order) % 97)
    inf, nan = float("inf"), float("nan")
    special = [[inf, inf], [inf, 1.0], [0.0, 0.0], [0.0, 1.0], [nan, 1.0], [1e-45, 1e-45], [3e38, 3e38], [-inf]]
    rows = [generator.standard_normal(n) * 10.0**scale for n in (1, 2, 15, 16, 17, 49, 70) for scale in (-40, -30, -5, 0, 7, 37)]
    for values in [*special, *rows]:
        x = torch.tensor(values, dtype=torch.float32)
        got, want = torch.linalg.vector_norm(x, order).item(), torch.linalg.vector_norm(x.double(), order).item()
        if want >= float.fromhex("0x1.ffffffp127"):
            assert got == inf
        else:
            assert got == pytest.approx(want, rel=2.0**-23, abs=2.0**-149, nan_ok=True), values
