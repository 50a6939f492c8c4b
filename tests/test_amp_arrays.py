"""scale_loss, unscale_gradients, has_inf_or_nan on plain ndarrays."""

import ml_dtypes
import numpy as np
import pytest

import ampnative as torch
from ampnative import amp

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, BF16])
def test_scale_loss_keeps_the_dtype_of_arrays(dtype):
    out = amp.scale_loss(np.array([1.5, -2.0], dtype), 1024.0)
    assert out.dtype == dtype and out.astype(float).tolist() == [1536.0, -2048.0]


def test_scale_loss_of_scalars():
    for value in (np.float16(2.0), np.array(2.0, np.float16), np.array(2.0, BF16), np.float32(2.0), np.int64(2)):
        out = amp.scale_loss(value, 65536.0)
        assert out.dtype == np.float32 and float(out) == 131072.0  # beyond float16
    assert amp.scale_loss(np.float64(2.0), 65536.0).dtype == np.float64
    assert amp.scale_loss(2.0, 8) == 16.0 and type(amp.scale_loss(2.0, 8)) is float
    assert np.isinf(amp.scale_loss(np.array([2.0], np.float16), 65536.0)).all()


def test_scale_loss_takes_a_scaler():
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    assert amp.scale_loss(np.float32(2.0), scaler) == 32.0
    assert amp.scale_loss([np.float32(1.0), (2.0,)], scaler) == [16.0, (32.0,)]
    t = torch.ones(2)
    assert amp.scale_loss(t, scaler).tolist() == scaler.scale(t).tolist() == [16.0, 16.0]
    assert amp.scale_loss(t, 4.0).tolist() == [4.0, 4.0]
    assert amp.scale_loss(2.0, torch.amp.GradScaler("cpu", enabled=False)) == 2.0
    for bad in ("text", None, np.array(["a"])):
        with pytest.raises(TypeError):
            amp.scale_loss(bad, 2.0)


def test_unscale_is_in_place_and_has_the_scalers_reciprocal():
    g = np.array([3.0, -6.0, 1e-3], np.float32)
    wide, other = g.astype(np.float64), torch.tensor([9.0])
    want = g * np.float32(1.0 / 3.0)
    assert amp.unscale_gradients({"a": g, "b": [None, wide, (other,)]}, 3.0) is False
    assert np.array_equal(g, want)
    assert wide[0] == 3.0 * float(np.float32(1.0 / 3.0)) and other.item() == np.float32(9.0) * np.float32(1.0 / 3.0)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BF16])
def test_unscale_finds_what_is_not_finite(bad, dtype):
    fine, broken = np.ones(3, dtype), np.array([1.0, bad], dtype)
    assert amp.unscale_gradients([fine, broken], 2.0) is True
    assert fine.astype(float).tolist() == [0.5] * 3


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2],
        lambda a: a[::-1],
        lambda a: a.reshape(2, 4).T,
        lambda a: a.reshape(2, 4)[:, 1:3],
        lambda a: a[:0],
        lambda a: a.reshape(2, 2, 2),
    ],
)
def test_unscale_any_layout(view):
    base = np.arange(8, dtype=np.float32)
    want, part = base.copy(), view(base)
    view(want)[...] *= 0.25
    assert amp.unscale_gradients(part, 4.0) is False
    assert np.array_equal(base, want)


def test_unscale_of_swapped_and_misaligned_arrays():
    swapped = np.array([4.0, 8.0], np.dtype(np.float32).newbyteorder())
    raw = np.zeros(9, np.uint8)
    shifted = raw[1:].view(np.float32)
    shifted[:] = [4.0, np.nan]
    assert amp.unscale_gradients(swapped, 4.0) is False and swapped.tolist() == [1.0, 2.0]
    assert amp.unscale_gradients(shifted, 4.0) is True and shifted[0] == 1.0


def test_unscale_refuses_before_it_changes_anything():
    good, half, whole = np.ones(2, np.float32), np.ones(2, np.float16), np.ones(2, np.int64)
    locked = np.ones(2, np.float32)
    locked.flags.writeable = False
    for bad, error, words in [
        (half, ValueError, "Attempting to unscale FP16 gradients"),
        (torch.ones(2, dtype=torch.float16), ValueError, "Attempting to unscale FP16 gradients"),
        (whole, TypeError, "floating dtype"),
        (locked, ValueError, "read-only"),
        (np.float32(1), TypeError, "scalar"),
        ("text", TypeError, "array"),
        (3, TypeError, "array"),
    ]:
        with pytest.raises(error, match=words):
            amp.unscale_gradients([good, bad], 2.0)
        assert good.tolist() == [1.0, 1.0]
    with pytest.raises(TypeError):
        amp.unscale_gradients("text", 2.0)
    assert amp.unscale_gradients(half, 2.0, allow_fp16=True) is False and half.tolist() == [0.5, 0.5]


def test_scales_without_a_finite_reciprocal_count_as_inf():
    for scale in (0.0, 2.0**-130, float("nan"), 1e-40):
        assert amp.unscale_gradients([np.ones(2, np.float32)], scale) is True
    assert amp.unscale_gradients([], 2.0) is False


def test_unscale_takes_a_scaler_and_cuda_tensors():
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with torch.cuda.emulate():
        g, t = np.ones(2, np.float32), torch.full((2,), float("inf"), device="cuda")
        assert amp.unscale_gradients([g, t], scaler) is True
    assert g.tolist() == [0.25, 0.25]


def test_a_loop_of_a_numpy_framework():
    """Linear regression by hand with float16 gradients of the forward pass: scale, unscale, skip."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 3)).astype(np.float32)
    y = x @ np.array([1.0, -2.0, 0.5], np.float32)
    w, scale, skipped = np.zeros(3, np.float32), 2.0**24, 0
    for _ in range(60):
        x16, w16 = x.astype(np.float16), w.astype(np.float16)
        error = (x16 @ w16).astype(np.float32) - y
        with np.errstate(over="ignore", invalid="ignore"):
            slope = amp.scale_loss(error / len(y), scale).astype(np.float16)
            grad = (x16.T @ slope).astype(np.float32)
        if amp.unscale_gradients(grad, scale):
            scale, skipped = scale / 2, skipped + 1
            continue
        w -= 0.5 * grad
    assert skipped > 0 and not amp.has_inf_or_nan(w) and np.abs(w - [1.0, -2.0, 0.5]).max() < 2e-2


def test_has_inf_or_nan():
    inf = float("inf")
    for value in (inf, np.float16(inf), np.array([1.0, np.nan], BF16), [1.0, {"a": (None, -inf)}], torch.tensor([inf]), complex(inf, 0)):
        assert amp.has_inf_or_nan(value) is True, value
    for value in (1, 10**400, True, 1.0, np.ones(3, np.int32), [], [None], torch.ones(2, requires_grad=True), np.zeros(0, BF16)):
        assert amp.has_inf_or_nan(value) is False, value
    assert amp.has_inf_or_nan(g for g in [np.ones(2), np.array(np.nan)]) is True
    for bad in ("text", None, np.array([None]), object()):
        with pytest.raises(TypeError):
            amp.has_inf_or_nan(bad)
