"""Clipping beyond the recordings: large norms, mixed dtypes, ndarray gradients, foreign parameters, arguments."""

import math
import types

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

utils = torch.nn.utils
own_rule = pytest.mark.skipif(IS_PYTORCH, reason="our rule where PyTorch's norm overflows, or an extension")


def with_grad(values, dtype=None):
    p = torch.nn.Parameter(torch.zeros(np.shape(values), dtype=dtype or torch.float32))
    p.grad = torch.tensor(values, dtype=dtype or torch.float32)
    return p


def test_scales_to_the_norm_and_returns_the_old_one():
    a, b = with_grad([3.0, 0.0]), with_grad([[4.0]])
    norm = utils.clip_grad_norm_([a, b], 1.0)
    assert norm.item() == 5.0 and norm.shape == () and norm.dtype == torch.float32
    assert np.allclose([a.grad[0].item(), b.grad.item()], [0.6, 0.8], rtol=1e-6)
    assert utils.clip_grad_norm_(iter([a, b]), 2.0).item() == pytest.approx(1.0, rel=1e-6)
    assert np.allclose([a.grad[0].item(), b.grad.item()], [0.6, 0.8], rtol=1e-6)


def test_a_single_tensor_and_no_gradients():
    assert utils.clip_grad_norm_(with_grad([6.0, 8.0]), 1.0).item() == 10.0
    assert utils.clip_grad_norm_([], 1.0).item() == 0.0
    empty = torch.nn.Parameter(torch.zeros(2))
    assert utils.clip_grad_norm_([empty], 1.0).dtype == torch.float32 and empty.grad is None
    with pytest.warns(UserWarning, match="empty generator"):
        utils.clip_grad_norm_((p for p in ()), 1.0)
    with pytest.raises(RuntimeError):
        utils.clip_grad_value_([empty], 1.0)


@own_rule
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("p", [2.0, 3.0, 0.5, 10.0])
def test_norms_that_fit_do_not_overflow_or_vanish(name, p):
    """Values near the largest or smallest whose norm is still in the range in which it is formed."""
    dtype = getattr(torch, name)
    big = {"float32": 1e38, "bfloat16": 1e38, "float16": 60000.0, "float64": 1e307}[name]
    small = {"float32": 1e-30, "bfloat16": 1e-30, "float16": 2.0**-10, "float64": 1e-290}[name]
    for size in (big, small):
        size = torch.tensor(size, dtype=torch.float64).to(dtype).item()
        q = with_grad([size, size], dtype)
        true = size * 2 ** (1 / p)
        norm = utils.get_total_norm([q.grad], p)
        tolerance = 1e-2 if name == "bfloat16" else 1e-3
        assert norm.dtype == dtype
        if true <= torch.finfo(dtype).max:
            assert norm.item() == pytest.approx(true, rel=tolerance)
        if name == "float64" or true < 3e38:
            utils.clip_grad_norm_([q], 1.0, p)
            want = size * min(1.0, 1.0 / (true + 1e-6))
            assert np.allclose(q.grad.tolist(), [want, want], rtol=tolerance, atol=0)


@own_rule
def test_fp16_norm_above_the_range():
    q = with_grad([60000.0] * 4, torch.float16)
    norm = utils.clip_grad_norm_([q], 1.0, error_if_nonfinite=True)
    assert norm.dtype == torch.float16 and norm.item() == math.inf
    assert q.grad.tolist() == [0.5] * 4


def test_non_finite_gradients():
    for bad in (math.inf, math.nan):
        q = with_grad([bad, 1.0])
        with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
            utils.clip_grad_norm_([q], 1.0, error_if_nonfinite=True)
        assert q.grad[1].item() == 1.0
        utils.clip_grad_norm_([q], 1.0)
        assert math.isnan(q.grad[0].item()) and (math.isnan(q.grad[1].item()) if math.isnan(bad) else q.grad[1].item() == 0.0)


def test_mixed_dtypes_promote():
    grads = [torch.ones(4, dtype=torch.float16), torch.ones(4, dtype=torch.bfloat16)]
    norm = utils.get_total_norm(grads)
    assert norm.dtype == torch.float32 and norm.item() == pytest.approx(math.sqrt(8), rel=1e-6)
    assert utils.get_total_norm([*grads, torch.ones(1, dtype=torch.float64)]).dtype == torch.float64


def test_given_norm():
    q = with_grad([3.0, 4.0])
    utils.clip_grads_with_norm_([q], 1.0, torch.tensor(10.0))
    assert np.allclose(q.grad.tolist(), [0.3, 0.4], rtol=1e-6)


def test_values():
    q = with_grad([-3.0, 0.5, math.inf, math.nan])
    utils.clip_grad_value_([q], 1)
    assert q.grad.tolist()[:3] == [-1.0, 0.5, 1.0] and math.isnan(q.grad[3].item())


def test_old_name_warns():
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        utils.clip_grad_norm([with_grad([1.0])], 1.0)


@own_rule
def test_ndarray_gradients_are_clipped_in_place():
    a = types.SimpleNamespace(grad=np.array([3.0, 0.0], dtype=np.float32))
    b = types.SimpleNamespace(grad=np.array([[4.0]]))
    c = types.SimpleNamespace(grad=None)
    kept = a.grad
    assert utils.clip_grad_norm_([a, b, c], 1.0).item() == 5.0
    assert a.grad is kept and np.allclose(kept, [0.6, 0]) and np.allclose(b.grad, 0.8)
    utils.clip_grad_value_([a, b], 0.5)
    assert kept[0] == 0.5 and b.grad.item() == 0.5
    strided = types.SimpleNamespace(grad=np.ones((4, 4), dtype=np.float16)[::2, 1:3])
    utils.clip_grad_norm_(strided, 1.0)
    assert np.allclose(strided.grad.astype(float), 0.5, rtol=1e-3)
    locked = np.ones(2)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        utils.clip_grad_norm_([types.SimpleNamespace(grad=locked)], 0.1)
    with pytest.raises(TypeError, match="Tensors or ndarrays"):
        utils.clip_grad_norm_([types.SimpleNamespace(grad="x")], 1.0)


def test_strided_gradients():
    base = torch.ones(4, 6)
    q = torch.nn.Parameter(torch.zeros(3, 2))
    q.grad = base.t()[::2, 1:3]
    assert utils.clip_grad_norm_([q], math.sqrt(6) / 2).item() == pytest.approx(math.sqrt(6))
    want = np.ones((4, 6))
    want[1:3, ::2] = 0.5
    assert np.allclose(base.tolist(), want, rtol=1e-5)
