"""Attention by tiles: values and gradients against float64 over shapes, strides, masks, instruction sets, threads; memory; hidden tiles."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ampnative as torch

attend = torch.nn.functional.scaled_dot_product_attention
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Half a unit of the last place of what is rounded; for float32 the error of sums and of exp(score) as well.
UNIT = {torch.float32: 2.0**-19, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
LEVELS = ["baseline", "avx2", "avx512", "avx512_bf16"]


@pytest.fixture
def level(request):
    before = torch._C.isa_name()
    torch._C._set_isa(request.param)
    yield request.param
    torch._C._set_isa(before)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def oracle(q, k, v, g, mask=None, causal=False, scale=None):
    """In float64: output and gradients of q, k, v, and how far float32 and 16-bit results may lie from each, in units (UNIT).

    A unit of the output: its own rounding, and that of the chances. Of dS = P (G V^T - D): its own, and D's, which is formed from a
    rounded output. The gradients follow from dS."""
    group, scale = q.shape[-3] // k.shape[-3], q.shape[-1] ** -0.5 if scale is None else scale
    kk, vv = np.repeat(k, group, -3), np.repeat(v, group, -3)
    scores = q @ np.swapaxes(kk, -1, -2) * scale
    if causal:
        mask = np.tril(np.ones(scores.shape[-2:], bool))
    if mask is not None:
        scores = scores + (np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask)
    top = scores.max(-1, keepdims=True)
    p = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = p.sum(-1, keepdims=True)
    p /= np.where(total == 0.0, 1.0, total)
    t = lambda x: np.swapaxes(x, -1, -2)  # noqa: E731
    shared = lambda x: x.reshape(*k.shape[:-2], group, *x.shape[-2:]).sum(-3)  # noqa: E731
    out = p @ vv
    dp = g @ t(vv)
    ds = p * (dp - (g * out).sum(-1, keepdims=True)) * scale
    unit_out = np.abs(out) + p @ np.abs(vv)
    unit_ds = p * (np.abs(g) @ t(np.abs(vv)) + (np.abs(g) * unit_out).sum(-1, keepdims=True)) * abs(scale) + np.abs(ds)
    values = out, ds @ kk, shared(t(ds) @ q), shared(t(p) @ g)
    units = unit_out, unit_ds @ np.abs(kk), shared(t(unit_ds) @ np.abs(q)), shared(t(p) @ np.abs(g))
    return values, [np.abs(a) + u for a, u in zip(values, units, strict=True)]


def laid_out(a, dtype, layout):
    """A tensor that requires grad with a's values, (B, H, L, E), in memory of another order."""
    if layout == "dense":
        return torch.from_numpy(a).to(dtype).requires_grad_()
    if layout == "heads behind":
        leaf = torch.from_numpy(np.ascontiguousarray(a.swapaxes(1, 2))).to(dtype).requires_grad_()
        return leaf.transpose(1, 2)
    if layout == "columns":
        leaf = torch.from_numpy(np.ascontiguousarray(a.swapaxes(2, 3))).to(dtype).requires_grad_()
        return leaf.transpose(2, 3)
    wide = np.zeros((*a.shape[:-1], a.shape[-1] * 3 + 1))
    wide[..., 1::3] = a
    leaf = torch.from_numpy(wide).to(dtype).requires_grad_()
    return leaf[..., 1::3]


def float64(t):
    return t.detach().to(torch.float64).numpy()


def check(dtype, q, k, v, g, mask=None, layout="dense", **options):
    """attend() forward and backward against the oracle on the rounded inputs."""
    views = [laid_out(a, dtype, layout) for a in (q, k, v)]
    g = torch.from_numpy(g).to(dtype)
    out = attend(*views, mask, enable_gqa=q.shape[1] != k.shape[1], **options)
    grads = torch.autograd.grad(out, views, g)
    exact_mask = None if mask is None else mask.numpy() if mask.dtype is torch.bool else float64(mask)
    want, units = oracle(*map(float64, (*views, g)), exact_mask, options.get("is_causal", False), options.get("scale"))
    for name, got, exact, unit in zip("oqkv", (out, *grads), want, units, strict=True):
        assert got.dtype is dtype and tuple(got.shape) == exact.shape
        error = np.abs(float64(got) - exact)
        assert (error <= UNIT[dtype] * unit * 1.01 + 2e-6).all(), (name, (error / (UNIT[dtype] * unit + 2e-6)).max())
    return out, grads


@st.composite
def calls(draw):
    length, keys = draw(st.integers(1, 130)), draw(st.one_of(st.integers(1, 130), st.integers(220, 300)))
    features = draw(st.sampled_from([1, 2, 3, 7, 8, 17, 33, 64, 65]))
    values = draw(st.sampled_from([features, 1, 5, 16, 40, 63]))
    kind = draw(st.sampled_from(["none", "causal", "bool", "float32", "own"]))
    mask_shape = draw(st.sampled_from([(length, keys), (keys,), (length, 1), (2, 1, length, keys), (2, 1, keys)]))
    heads = draw(st.sampled_from([1, 2]))
    scale, layout = draw(st.sampled_from([None, 0.5, -0.3, 0.0])), draw(st.sampled_from(["dense", "heads behind", "columns", "gaps"]))
    return length, keys, features, values, heads, kind, mask_shape, scale, layout, draw(st.sampled_from(DTYPES)), draw(st.integers(0, 99))


@given(calls())
def test_values_and_gradients(call):
    length, keys, features, values, heads, kind, mask_shape, scale, layout, dtype, seed = call
    rng = np.random.default_rng(seed)
    shapes = (2, length, features), (heads, keys, features), (heads, keys, values), (2, length, values)
    q, k, v, g = (rng.standard_normal((2, *s)) for s in shapes)
    mask = None
    if kind == "bool":
        mask = torch.from_numpy(rng.random(mask_shape) < 0.7)
    elif kind in ("float32", "own"):
        mask = torch.from_numpy(rng.standard_normal(mask_shape)).to(torch.float32 if kind == "float32" else dtype)
    check(dtype, q, k, v, g, mask, layout, is_causal=kind == "causal", scale=scale)


def arrays(length, keys, features=24, values=20, heads=2, shared=1, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (heads, length, features), (shared, keys, features), (shared, keys, values), (heads, length, values)
    return [rng.standard_normal((1, *s)) for s in shapes]


@pytest.mark.parametrize("level", LEVELS, indirect=True)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_instruction_sets(level, dtype, causal):
    check(dtype, *arrays(310, 270), is_causal=causal)
    check(dtype, *arrays(131, 35, heads=1), None if causal else torch.from_numpy(np.arange(35) % 5 > 0), is_causal=causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_keys_in_several_parts(dtype, causal):
    """Gradients cut the keys of few matrices into parts of about 448; the forward pass packs 4096 at a time."""
    check(dtype, *arrays(960, 930, 8, 8), is_causal=causal)
    if not causal:
        check(dtype, *arrays(9, 4200, 8, 8), torch.from_numpy(np.arange(4200) >= 4090))


def test_rows_that_see_keys_of_later_parts():
    q, k, v, _ = arrays(4300, 4300, 4, 4, heads=1)
    out = attend(*(torch.from_numpy(a).to(torch.float32) for a in (q, k, v)), is_causal=True)
    for row in (0, 4095, 4096, 4299):
        p = np.exp((q[0, 0, row] @ k[0, 0, : row + 1].T) / 2)
        np.testing.assert_allclose(out[0, 0, row].numpy(), p @ v[0, 0, : row + 1] / p.sum(), atol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_largest_scores_in_any_block(dtype):
    """The running maximum rises, falls, or starts at -inf where a mask hides the first block of keys."""
    q, k, v, g = arrays(40, 600)
    order = np.argsort(k.sum(-1)[0, 0])
    hidden = np.ones((40, 600), bool)
    hidden[:10, :256] = hidden[10:20, 256:512] = hidden[20:30, :512] = hidden[35] = False
    for keys in (order, order[::-1]):
        check(dtype, q + 1.0, k[:, :, keys], v, g)
        check(dtype, q + 1.0, k[:, :, keys], v, g, torch.from_numpy(hidden))


def test_large_scores():
    q, k, v, g = arrays(50, 300)
    out, grads = check(torch.float16, q * 100, k * 100, v, g * 1e-3, torch.zeros(50, 300))
    assert all(torch.isfinite(t).all() for t in (out, *grads))


def test_hidden_tiles_are_not_read():
    """What no row of a tile sees is skipped: NaN there leaves the other rows' bits alone."""
    q, k, v = (torch.from_numpy(a).to(torch.bfloat16) for a in arrays(640, 640)[:3])
    cut = 448
    k[:, :, cut:], v[:, :, cut:] = math.nan, math.nan
    whole = attend(q, k, v, is_causal=True, enable_gqa=True)
    part = attend(q[:, :, :cut], k[:, :, :cut], v[:, :, :cut], is_causal=True, enable_gqa=True)
    assert torch.equal(whole[:, :, :cut], part)
    assert torch.isnan(whole[:, :, cut:]).all()


@pytest.mark.parametrize("level", LEVELS, indirect=True)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nothing_stays_of_an_earlier_call(level, dtype, threads):
    threads(1)
    q = torch.full((1, 2, 256, 40), math.nan, dtype=dtype, requires_grad=True)
    attend(q, q, q, torch.full((256, 256), math.nan)).sum().backward()
    for length, keys, features, values in ((7, 5, 3, 9), (15, 13, 17, 1), (33, 31, 9, 35)):
        check(dtype, *arrays(length, keys, features, values))
        check(dtype, *arrays(length, keys, features, values), torch.from_numpy(np.arange(keys) % 3 > 0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1000, 1000, 1, 1), (300, 200, 6, 2), (30, 40, 8, 8)])
def test_threads_give_the_same_bits(threads, dtype, shape):
    length, keys, heads, shared = shape
    q, k, v, g = (torch.from_numpy(a).to(dtype) for a in arrays(length, keys, 16, 16, heads, shared))
    results = []
    for n in (1, 2, 5):
        threads(n)
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        out = attend(*leaves, is_causal=True, enable_gqa=True)
        out.backward(g)
        results.append([out.detach(), *(t.grad for t in leaves)])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_recorded_backward_and_second_derivatives():
    """With create_graph the gradients are formed by ops; they, and what derives from them, agree with float64."""
    arrays_ = arrays(12, 20, 6, 5, heads=4, shared=2)
    mask = np.random.default_rng(3).standard_normal((12, 20))
    results = []
    for dtype in (torch.float32, torch.float64):
        q, k, v = (torch.from_numpy(a).to(dtype).requires_grad_() for a in arrays_[:3])
        m = torch.from_numpy(mask).to(dtype).requires_grad_()
        out = attend(q, k, v, m, scale=0.4, enable_gqa=True)
        first = torch.autograd.grad(out, (q, k, v, m), torch.from_numpy(arrays_[3]).to(dtype), create_graph=True)
        second = torch.autograd.grad(sum((t * t).sum() for t in first), (q, k, v, m))
        results.append([*first, *second])
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(float64(got), float64(want), rtol=0, atol=2e-5 * np.abs(float64(want)).max())


def test_mask_gradient_beside_the_tiles():
    q, k, v, g = arrays(33, 47, heads=2, shared=2)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [torch.from_numpy(a).to(dtype).requires_grad_() for a in (q, k, v, np.zeros((1, 47)))]
        attend(*leaves).backward(torch.from_numpy(g).to(dtype))
        results.append([float64(t.grad) for t in leaves])
    for got, want in zip(*results, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (1, 2)])
def test_only_what_is_wanted(wanted):
    a = arrays(30, 50)
    full = [torch.from_numpy(x).to(torch.bfloat16).requires_grad_() for x in a[:3]]
    some = [torch.from_numpy(x).to(torch.bfloat16).requires_grad_(i in wanted) for i, x in enumerate(a[:3])]
    for leaves in (full, some):
        attend(*leaves, enable_gqa=True).sum().backward()
    for i in range(3):
        assert torch.equal(some[i].grad, full[i].grad) if i in wanted else some[i].grad is None


def test_broadcast_batches():
    q, k, v = (torch.from_numpy(a[0]).to(torch.float32).requires_grad_() for a in arrays(20, 30, heads=3, shared=1)[:3])
    wide = [t.detach().expand(2, 3, *t.shape[1:]).clone().requires_grad_() for t in (q, k, v)]
    attend(q.expand(2, 3, 20, 24), k, v).square().sum().backward()
    attend(*wide).square().sum().backward()
    for t, w in zip((q, k, v), wide, strict=True):
        want = w.grad.sum(0) if t is q else w.grad.sum((0, 1))[None]
        np.testing.assert_allclose(t.grad.numpy(), want.numpy(), atol=2e-5)


def test_results_lie_in_memory_as_the_query_does():
    """(B, L, H, E) in, (B, L, H, E) out: the heads can be joined again without a copy."""
    leaf = torch.randn(2, 30, 3 * 4 * 8).bfloat16().requires_grad_()
    q, k, v = (t.reshape(2, 30, 4, 8).transpose(1, 2) for t in leaf.split(32, 2))
    out = attend(q, k, v, is_causal=True)
    assert out.transpose(1, 2).is_contiguous()
    joined = out.transpose(1, 2).reshape(2, 30, 32)
    assert joined.data_ptr() == out.data_ptr()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_allocations(device):
    """Forward and backward take what inputs, output, gradients and one number per row take: no scores."""
    with torch.cuda.emulate():
        room = torch.cuda if device == "cuda" else torch.cpu
        q, k, v = (torch.randn(1, 2, 1024, 8, device=device, requires_grad=True) for _ in range(3))
        room.reset_peak_memory_stats()
        before = room.memory_allocated()
        attend(q, k, v).sum().backward()
        assert room.max_memory_allocated() - before < 8 * 2 * 1024 * 8 * 4 < 1024 * 1024


MEMORY = """
import resource, ampnative as torch
q, k, v = (torch.randn(1, 1, 8192, 16).bfloat16().requires_grad_() for _ in range(3))
torch.set_num_threads(2)
f = torch.nn.functional.scaled_dot_product_attention
f(q[:, :, :32], k, v, is_causal=True).sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
f(q, k, v, is_causal=True).sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_of_the_process():
    """In KiB: the scores of 8192 x 8192 would be 256 MiB in float32."""
    out = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert int(out.stdout) < 48 * 1024


@pytest.mark.parametrize("level", LEVELS, indirect=True)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [-1e4, -1e7, -1e8, -1e9, -3e9, -3e10, -1e12, -1e20, -1e30, -3e38])
def test_rows_with_nothing_but_huge_masks_stay_what_they_are(level, dtype, masked):
    q = torch.ones(1, 4, 8, dtype=dtype, requires_grad=True)
    v = torch.ones(1, 8, 8, dtype=dtype, requires_grad=True)
    out = attend(q, v, v, attn_mask=torch.full((4, 8), masked, dtype=dtype))
    out.sum().backward()
    assert out.detach().float().numpy() == pytest.approx(1.0)
    assert (v.grad.float().numpy() > 0).all() and (v.grad.float().numpy() <= 4.0).all()  # four chances of at most 1
    assert np.abs(q.grad.float().numpy()).max() <= 8.0


@pytest.mark.parametrize("level", LEVELS, indirect=True)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padding", [511, 512, 550])
def test_padding_by_the_smallest_number_leaves_the_other_keys(level, dtype, padding):
    q, mask = torch.randn(1, 3, 8).to(dtype), torch.zeros(1, 600, dtype=dtype)
    k, v = (torch.randn(1, 600, 8).to(dtype) for _ in range(2))
    mask[:, :padding] = torch.finfo(dtype).min
    out = attend(q, k, v, attn_mask=mask).float().numpy()
    want = attend(q, k[:, padding:], v[:, padding:]).float().numpy()
    assert out == pytest.approx(want, abs=1e-5 if dtype is torch.float32 else 3e-2)


@pytest.mark.parametrize("level", LEVELS, indirect=True)
def test_huge_scores_choose_among_equals(level):
    q, k, v = torch.full((1, 1, 1), 1e5), torch.full((1, 4, 1), 1e5), torch.ones(1, 4, 1, requires_grad=True)
    out = attend(q, k, v)
    out.sum().backward()
    assert out.item() == 1.0 and all(0 < g <= 1 for g in v.grad.flatten().tolist())
