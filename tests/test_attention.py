"""scaled_dot_product_attention: values against float64, dtypes, masks, errors, the switch for 16-bit arithmetic."""

import itertools
import math

import numpy as np
import pytest

import ampnative as torch

attend = torch.nn.functional.scaled_dot_product_attention
SHAPES = ((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6))


@pytest.fixture(autouse=True)
def settings():
    yield
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)


def arrays(shapes=SHAPES, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s) for s in shapes]


def tensors(dtype, shapes=SHAPES, seed=0):
    return [torch.from_numpy(a).to(dtype) for a in arrays(shapes, seed)]


def float64(*ts):
    return [t.to(torch.float64).numpy() for t in ts]


def oracle(q, k, v, mask=None, causal=False, scale=None):
    """In float64; `mask` is bool or additive. Rows with no finite score give zeros."""
    heads = q.shape[-3] if q.ndim > 2 else 0
    if q.ndim > 2 and k.shape[-3] not in (1, heads):
        k = np.repeat(k, heads // k.shape[-3], -3)
    if q.ndim > 2 and v.shape[-3] not in (1, heads):
        v = np.repeat(v, heads // v.shape[-3], -3)
    scores = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        mask = np.tril(np.ones(scores.shape[-2:], bool))
    if mask is not None:
        scores = scores + (np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask)
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0.0, 1.0, total) @ v


# Relative to the largest value: 16-bit types are computed in fp32 and rounded once, half a unit in the last place. Chances of bfloat16 are
# rounded to it before they meet the values where the machine multiplies pairs of it: half a unit of each product more.
BOUND = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 2.0**-11 * 1.01, torch.bfloat16: 2.0**-8 * 1.01}


def bound(dtype, q, k, v, mask=None, causal=False, scale=None):
    """How far each element may lie from the float64 oracle."""
    want = np.abs(oracle(q, k, v, mask, causal, scale))
    if dtype.itemsize != 2:
        return BOUND[dtype] * want.max(initial=0.0)
    chances = BOUND[dtype] * oracle(q, k, np.abs(v), mask, causal, scale) * (dtype is torch.bfloat16)
    return (BOUND[dtype] * want + chances) * 1.01 + 2e-6


KEEP = np.random.default_rng(7).random((4, 5)) < 0.6
KEEP[1] = False
CASES = {
    "plain": {},
    "causal": {"is_causal": True},
    "bool mask": {"attn_mask": KEEP},
    "bool mask per head": {"attn_mask": np.random.default_rng(8).random((2, 1, 4, 5)) < 0.5},
    "key mask": {"attn_mask": np.array([True, False, True, True, False])},
    "0-dim mask": {"attn_mask": np.array(True)},
    "additive mask": {"attn_mask": np.random.default_rng(9).standard_normal((3, 4, 5)).astype(np.float32)},
    "scale": {"scale": 0.7},
    "negative scale": {"scale": -0.3},
    "no scale": {"scale": 0.0},
}


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_values(case, dtype):
    q, k, v = tensors(dtype)
    options = dict(CASES[case])
    mask = options.pop("attn_mask", None)
    got = attend(q, k, v, None if mask is None else torch.from_numpy(mask), **options)
    causal, scale = options.get("is_causal", False), options.get("scale")
    want = oracle(*float64(q, k, v), mask, causal, scale)
    assert got.dtype is dtype and tuple(got.shape) == want.shape
    difference = np.abs(got.to(torch.float64).numpy() - want)
    assert (difference <= bound(dtype, *float64(q, k, v), mask, causal, scale)).all()


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("additive", [False, True])
def test_rows_without_anything_to_attend_to_are_zero(dtype, additive):
    q, k, v = tensors(dtype)
    for t in (q, k, v):
        t.requires_grad_()
    mask = torch.from_numpy(KEEP)
    if additive:
        mask = torch.zeros(4, 5, dtype=dtype).masked_fill(~mask, -math.inf)
    out = attend(q, k, v, mask)
    assert (out[:, :, 1] == 0).all() and (out[:, :, 0] != 0).any()
    out.sum().backward()
    for t in (q, k, v):
        assert t.grad.dtype is dtype and torch.isfinite(t.grad).all()
    assert (q.grad[:, :, 1] == 0).all()


@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 8), (5, 8), (5, 6)),
        ((3, 4, 8), (1, 5, 8), (1, 5, 6)),
        ((3, 4, 8), (1, 3, 5, 8), (1, 3, 5, 8)),
        ((2, 3, 4, 8), (1, 3, 5, 8), (1, 3, 5, 8)),
        ((1, 1, 2, 0), (1, 1, 3, 0), (1, 1, 3, 2)),
        ((1, 1, 2, 4), (1, 1, 0, 4), (1, 1, 0, 4)),
        ((1, 1, 0, 4), (1, 1, 3, 4), (1, 1, 3, 4)),
        ((0, 1, 2, 4), (0, 1, 3, 4), (0, 1, 3, 4)),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_shapes(shapes, causal):
    q, k, v = arrays(shapes)
    if k.shape[-2] == 0:
        want = np.zeros((*q.shape[:-1], v.shape[-1]))
    elif q.size == 0 and q.shape[-1] == 0:
        rows = [v[..., : i + 1 if causal else None, :].mean(-2) for i in range(q.shape[-2])]
        want = np.stack(rows, -2)
    elif q.size == 0:
        want = np.zeros((*q.shape[:-1], v.shape[-1]))
    else:
        want = oracle(q, k, v, causal=causal)
    got = attend(*map(torch.from_numpy, (q, k, v)), is_causal=causal)
    assert tuple(got.shape) == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=1e-14)


@pytest.mark.parametrize("heads", [(6, 3, 3), (6, 3, 2), (6, 6, 1)])
def test_grouped_heads(heads):
    q, k, v = arrays([(2, h, 4, 8) for h in heads])
    got = attend(*map(torch.from_numpy, (q, k, v)), enable_gqa=True)
    np.testing.assert_allclose(got.numpy(), oracle(q, k, v), rtol=0, atol=1e-14)
    with pytest.raises(RuntimeError, match=r"[Nn]umber of heads in key and value must divide"):
        attend(torch.ones(2, 5, 4, 8), torch.ones(2, 3, 4, 8), torch.ones(2, 3, 4, 8), enable_gqa=True)
    with pytest.raises(IndexError, match="Dimension out of range"):
        attend(torch.ones(4, 8), torch.ones(4, 8), torch.ones(4, 8), enable_gqa=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_switch_computes_in_16_bits(dtype):
    q, k, v = tensors(dtype, [(64, 64)] * 3)
    want = oracle(*float64(q, k, v))
    fine, in_fp32 = attend(q, k, v), [t.to(torch.float32) for t in (q, k, v)]
    wide = attend(*in_fp32)
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    coarse = attend(q, k, v)
    half = 0.125**0.5
    steps = torch.softmax((q * half) @ (k * half).t(), -1) @ v
    assert coarse.dtype is dtype and torch.equal(coarse, steps)
    assert torch.equal(attend(*in_fp32), wide)
    error = [np.abs(t.to(torch.float64).numpy() - want).max() for t in (fine, coarse)]
    assert error[0] < error[1] / 2, error
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)
    assert torch.equal(attend(q, k, v), fine)


@pytest.mark.parametrize("region", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_mixed_operands_under_autocast_give_one_dtype(device, region):
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    with torch.cuda.emulate(), torch.autocast(device, dtype=region):
        plain = attend(*(t.to(device) for t in tensors(torch.float32)))
        assert plain.dtype is region
        for mixed in itertools.product(dtypes, repeat=4):
            q, k, v = (t.to(device).to(d) for t, d in zip(tensors(torch.float32), mixed, strict=False))
            mask = torch.zeros(4, 5, device=device, dtype=mixed[3])
            assert attend(q, k, v).dtype is region
            assert attend(q, k, v, mask).dtype is region
            assert attend(q, k, v, torch.ones(4, 5, device=device, dtype=torch.bool)).dtype is region
        assert torch.is_autocast_enabled(device)


def test_autocast_rounds_once():
    """The steps inside do not follow the lists: what the op computes in fp32 stays fp32."""
    q, k, v = tensors(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = attend(q, k, v)
    assert torch.equal(inside, attend(q.bfloat16(), k.bfloat16(), v.bfloat16()))


def test_dropout():
    q, k, v = tensors(torch.float32, [(2, 64, 8), (2, 64, 8), (2, 64, 8)])
    torch.manual_seed(3)
    first = attend(q, k, v, dropout_p=0.5)
    torch.manual_seed(3)
    chances = torch.dropout(torch.softmax((q * 8**-0.25) @ (k * 8**-0.25).transpose(1, 2), -1), 0.5, True)
    assert torch.equal(first, chances @ v)
    assert (attend(q, k, v, dropout_p=1.0) == 0).all()
    for p in (-0.1, 1.5, math.nan):
        with pytest.raises(RuntimeError, match="dropout probability has to be between 0 and 1"):
            attend(q, k, v, dropout_p=p)


def test_mask_gets_its_gradient():
    q, k, v = tensors(torch.float32)
    mask = torch.zeros(4, 5, requires_grad=True)
    attend(q, k, v, mask).square().sum().backward()
    assert tuple(mask.grad.shape) == (4, 5) and (mask.grad != 0).any()
    np.testing.assert_allclose(mask.grad.sum(-1).numpy(), 0, atol=1e-5)


def test_errors():
    q, k, v = tensors(torch.float32)
    mask = torch.ones(4, 5, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="Expected query, key, and value to have the same dtype"):
        attend(q, k.half(), v)
    with pytest.raises(RuntimeError, match="at least 2 dimensional"):
        attend(torch.ones(3), torch.ones(3), torch.ones(3))
    for wrong in (torch.int64, torch.float16, torch.float64):
        with pytest.raises(RuntimeError, match="Expected attn_mask dtype to be bool or float or to match query dtype"):
            attend(q, k, v, mask.to(wrong))
    with pytest.raises(RuntimeError, match="Explicit attn_mask should not be set when is_causal=True"):
        attend(q, k, v, mask, is_causal=True)
    with pytest.raises(RuntimeError, match=r"attn_mask of shape .*\[4, 4\].* does not broadcast to .*\[2, 3, 4, 5\]"):
        attend(q, k, v, torch.ones(4, 4, dtype=torch.bool))
    with pytest.raises(RuntimeError, match=r"attn_mask of shape .*\[2, 3, 4, 5\].* does not broadcast to .*\[3, 4, 5\]"):
        attend(q[0], k[0], v[0], torch.ones(2, 3, 4, 5, dtype=torch.bool))
    for bad in ((q, k[..., :7], v), (q, k, v[:, :, :4]), (q[:, :2], k, v)):
        with pytest.raises(RuntimeError):
            attend(*bad)
    with pytest.raises(RuntimeError, match="expected scalar type Float but found"):
        attend(q.long(), k.long(), v.long())
    with pytest.raises(TypeError):
        attend(q, k, v, None, 0.0, False, None)
    with torch.cuda.emulate(), pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        attend(q, k.to("cuda"), v)


@pytest.mark.parametrize("weights", [False, True])
def test_the_inference_path_does_not_look_at_is_causal(weights):
    m = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 3, 8)
    with pytest.raises(RuntimeError, match="Need attn_mask"), torch.no_grad():
        m(x, x, x, is_causal=True)
    m.eval()
    with torch.no_grad():
        want, got = m(x, x, x, need_weights=weights)[0], m(x, x, x, is_causal=True, need_weights=weights)[0]
        hidden = torch.zeros(3, 3, dtype=torch.bool)
        masked = m(x, x, x, attn_mask=hidden, is_causal=True, need_weights=weights)[0]
        with pytest.raises(RuntimeError, match="Need attn_mask"):
            m(x, x * 1, x, is_causal=True)
        layer = torch.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True).eval()
        assert torch.equal(layer(x, x, tgt_is_causal=True), layer(x, x))
        model = torch.nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
        assert torch.equal(model(x, x, tgt_is_causal=True), model(x, x))
    assert torch.equal(got, want) and torch.allclose(masked, want, atol=1e-6)
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        m(x, x, x, is_causal=True)  # a gradient is asked for
