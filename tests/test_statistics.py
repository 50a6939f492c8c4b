"""Covariances, correlations and histograms against NumPy; windows; transposes of matrices."""

import math
import warnings

import numpy as np
import pytest
from golden_tools import torch
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(2, 7), st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 99))
def test_cov(variables, observations, correction, by_count, by_weight, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((variables, observations))
    counts = rng.integers(1, 5, observations) if by_count else None
    weights = rng.random(observations) + 0.5 if by_weight else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = np.cov(x, ddof=correction, fweights=counts, aweights=weights)
        got = torch.cov(
            torch.tensor(x), correction=correction, fweights=None if counts is None else torch.tensor(counts),
            aweights=None if weights is None else torch.tensor(weights),
        )  # fmt: skip
    assert got.shape == want.shape and got.dtype == torch.float64
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-10, atol=1e-12)


def test_cov_of_other_dtypes():
    x = torch.tensor([[0.0, 1, 2], [3, 5, 4]])
    for dtype in (torch.int64, torch.float16, torch.bfloat16, torch.float32):
        got = torch.cov(x.to(dtype))
        assert got.dtype == (torch.float32 if dtype == torch.int64 else dtype) and got.tolist() == [[1, 0.5], [0.5, 1]]
    z = torch.complex(x, x.flip(1))
    np.testing.assert_allclose(torch.cov(z).numpy(), np.cov(z.numpy()), rtol=1e-6, atol=1e-6)
    assert x[0].cov().item() == 1 and x.cov().shape == (2, 2)
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert math.isnan(torch.cov(torch.tensor(1.0)).item())
    a = torch.tensor([[0.0, 1, 2.5], [3, 5, 4]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(torch.cov, a) and torch.autograd.gradcheck(torch.corrcoef, a)


def test_cov_refuses():
    x, w = torch.randn(3, 5), torch.tensor([1, 2, 0, 1, 3])
    cases = [
        (x.view(1, 3, 5), {}, "expected input to have two or fewer dimensions"),
        (x, {"fweights": w.float()}, "expected fweights to have integral dtype"),
        (x, {"aweights": w}, "expected aweights to have floating point dtype"),
        (x, {"fweights": w[:2]}, "expected fweights to have the same numel as there are observations"),
        (x, {"fweights": w.view(1, 5)}, "expected fweights to have one or fewer dimensions"),
        (x, {"fweights": -w}, "fweights cannot be negative"),
        (x, {"aweights": -w.float()}, "aweights cannot be negative"),
        (x, {"fweights": w * 0}, "weights sum to zero, can't be normalized"),
    ]
    for tensor, options, text in cases:
        with pytest.raises(RuntimeError, match=text):
            torch.cov(tensor, **options)
    with pytest.raises(RuntimeError, match=r"corrcoef\(\): expected input to have two or fewer dimensions"):
        torch.corrcoef(x.view(1, 3, 5))
    with pytest.raises(NotImplementedError, match="bool dtype is not supported"):
        torch.cov(x > 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 4), st.integers(2, 6), st.booleans(), st.integers(0, 99))
def test_corrcoef(variables, observations, whole, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((variables, observations)) + (1j * rng.standard_normal((variables, observations)) if whole else 0)
    np.testing.assert_allclose(torch.corrcoef(torch.tensor(x)).numpy(), np.corrcoef(x), rtol=1e-10, atol=1e-12)
    assert torch.corrcoef(torch.tensor(x[0].real)).item() == 1
    assert torch.ones(2, 3).corrcoef().isnan().all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.booleans(), st.booleans(), st.booleans(), st.sampled_from([np.float32, np.float64]), st.integers(0, 99))
def test_histogram(bins, ranged, weighted, density, dtype, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(-8, 9, (4, 5)).astype(dtype) / 4  # exact, so that elements on edges are asked for too
    w = rng.integers(0, 5, x.shape).astype(dtype) if weighted else None
    ends = (-1.0, 1.0) if ranged else None
    hist, edges = torch.histogram(
        torch.tensor(x), bins, range=ends, weight=None if w is None else torch.tensor(w), density=density
    )
    assert hist.dtype == edges.dtype == torch.tensor(x).dtype
    low, high = ends or (x.min(), x.max())
    np.testing.assert_allclose(edges.numpy(), np.linspace(low, high, bins + 1), rtol=1e-6, atol=1e-6)
    with np.errstate(invalid="ignore"):
        want, _ = np.histogram(x, edges.numpy(), weights=w, density=density)
    np.testing.assert_allclose(hist.numpy(), want, rtol=1e-6)


def test_histogram_of_given_edges_and_odd_inputs():
    h = torch.tensor([1.0, 2, 1, 4, 0.5, 9, 4])
    result = torch.histogram(h, torch.tensor([0.0, 1, 2, 4, 8]), weight=torch.arange(7.0))
    assert result.hist.tolist() == [4, 2, 1, 9] and result.bin_edges.tolist() == [0, 1, 2, 4, 8]
    assert h.histogram(4).hist.tolist() == [4, 2, 0, 1]
    assert torch.histogram(torch.ones(3), 3).hist.tolist() == [0, 3, 0]
    assert torch.histogram(torch.empty(0), 2).bin_edges.tolist() == [0, 0.5, 1]
    assert torch.histogram(torch.tensor([1.0, math.nan]), 3, range=(0.0, 1.0)).hist.tolist() == [0, 0, 1]
    out = torch.empty(2), torch.empty(3)
    assert torch.histogram(h, 2, out=out).hist.data_ptr() == out[0].data_ptr() and out[0].tolist() == [6, 1]
    for args, options, text in [
        ((h, 0), {}, "bins must be > 0"),
        ((h, 3), {"range": (2.0, 1.0)}, "min should not exceed max"),
        ((torch.tensor([1.0, math.nan]), 3), {}, "is not finite"),
        ((h, 3), {"weight": torch.ones(3)}, "should have the same shape as the input tensor"),
        ((h, 3), {"weight": torch.ones(7, dtype=torch.float64)}, "should have the same dtype"),
        ((h, torch.ones(2, 2)), {}, "bins tensor should have one dimension"),
        ((h, torch.tensor([0, 1, 2])), {}, "input tensor and bins tensors should have the same dtype"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            torch.histogram(*args, **options)
    for dtype in (torch.int64, torch.float16):
        with pytest.raises(NotImplementedError, match='"histogramdd" not implemented for'):
            torch.histogram(h.to(dtype), 3)


@pytest.mark.parametrize("n", [2, 5, 16])
def test_windows(n):
    oracles = {
        "hann": np.hanning, "hamming": np.hamming, "blackman": np.blackman, "bartlett": np.bartlett, "kaiser": lambda n: np.kaiser(n, 12.0)
    }  # fmt: skip
    for name, oracle in oracles.items():
        window = getattr(torch, f"{name}_window")
        np.testing.assert_allclose(window(n, False, dtype=torch.float64).numpy(), oracle(n), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(window(n).numpy(), oracle(n + 1)[:n], rtol=1e-6, atol=1e-7)
        assert window(n, dtype=torch.float16).dtype == torch.float16 and window(n, requires_grad=True).requires_grad
        assert window(1).tolist() == [1] and window(0).shape == (0,)
        with pytest.raises(RuntimeError, match=f"{name}_window requires non-negative window_length"):
            window(-1)
        with pytest.raises(RuntimeError, match=f"{name}_window expects floating point dtypes"):
            window(3, dtype=torch.int64)
    np.testing.assert_allclose(torch.kaiser_window(n, False, 5.0, dtype=torch.float64).numpy(), np.kaiser(n, 5.0), rtol=1e-12)


def test_transposes_of_matrices():
    z = torch.complex(torch.randn(2, 3), torch.randn(2, 3))
    for found in (z.H, z.mH, z.adjoint(), torch.adjoint(z)):
        assert np.array_equal(found.numpy(), z.numpy().T.conj())
    x = torch.randn(4, 2, 3, requires_grad=True)
    assert torch.equal(x.mH, x.mT) and x.mT.shape == (4, 3, 2)
    (x.mH * 2).sum().backward()
    assert torch.equal(x.grad, torch.full((4, 2, 3), 2.0))
    with pytest.raises(RuntimeError, match=r"tensor.H is only supported on matrices \(2-D tensors\). Got 3-D tensor"):
        x.H  # noqa: B018
    for name in ("H", "mH", "mT"):
        with pytest.raises(RuntimeError, match=f"tensor.{name} is only supported on matrices"):
            getattr(torch.ones(3), name)
        with pytest.warns(UserWarning, match=f"Tensor.{name} is deprecated on 0-D tensors"):
            assert getattr(torch.tensor(2.0), name).item() == 2
