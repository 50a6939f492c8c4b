"""Fills of a whole block of memory draw what element by element fills draw, at every instruction-set level."""

import numpy as np
import pytest

import ampnative as torch

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool]


@pytest.fixture(params=["baseline", "best"])
def level(request):
    before = torch._C.isa_name()
    if request.param == "baseline":
        torch._C._set_isa("baseline")
    yield
    torch._C._set_isa(before)


def dense(n, dtype):
    return torch.zeros(n, dtype=dtype)


def spaced(n, dtype):
    """A vector with gaps: filled one element at a time."""
    return torch.zeros(2 * n, dtype=dtype)[::2]


@pytest.mark.parametrize("skipped", [0, 1, 2, 623])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bernoulli_of_a_block(dtype, skipped, level):
    for n, p in ((1, 0.5), (311, 0.0), (312, 1.0), (313, 0.3), (2000, 0.75)):
        results = []
        for make in (dense, spaced):
            generator = torch.Generator().manual_seed(n)
            if skipped:
                torch.rand(skipped, generator=generator)
            results.append((make(n, dtype).bernoulli_(p, generator=generator).tolist(), torch.rand(5, generator=generator).tolist()))
        assert results[0] == results[1]
        assert abs(np.mean(results[0][0]) - p) < 4 * (p * (1 - p) / n) ** 0.5 + 1e-12


def test_draws_do_not_depend_on_the_level():
    drawn, before = [], torch._C.isa_name()
    for level in ("baseline", "avx2", before):
        torch._C._set_isa(level)
        try:
            torch.manual_seed(3)
            drawn.append([torch.rand(1999), torch.randint(0, 1000, (700,)), torch.zeros(1501).bernoulli_(0.2), torch.randperm(50)])
        finally:
            torch._C._set_isa(before)
    assert all(torch.equal(a, b) for one in drawn[1:] for a, b in zip(one, drawn[0], strict=True))


@pytest.mark.parametrize("dtype", DTYPES[:4])
def test_dropout_keeps_its_share_and_scales_it(dtype):
    torch.manual_seed(0)
    y = torch.nn.functional.dropout(torch.ones(40_000, dtype=dtype), 0.25).double()
    values = set(y.unique().tolist())
    assert len(values) == 2 and 0.0 in values and max(values) == pytest.approx(4 / 3, rel=1e-2)
    assert abs((y > 0).double().mean().item() - 0.75) < 0.01


@pytest.mark.parametrize("seed", [3.0, 3.9, "3", np.float64(3.0), torch.tensor(3)])
def test_seeds_are_what_int_makes_of_them(seed):
    """Scripts seed with time.time(), or with what a file of settings holds."""
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(seed)
    assert torch.equal(torch.rand(4), expected)
    for wrong, error in ((None, TypeError), ("a", ValueError), (2**64, ValueError)):
        with pytest.raises(error):
            torch.manual_seed(wrong)
    with pytest.raises(RuntimeError, match="expected a long"):
        torch.Generator().manual_seed(3.0)


def test_normal_numbers_that_require_grad():
    x = torch.normal(0.0, 1.0, (2,), requires_grad=True)
    assert x.requires_grad and x.is_leaf and not torch.normal(0.0, 1.0, (2,), requires_grad=None).requires_grad
