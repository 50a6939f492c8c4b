"""Normalisation: values and gradients against float64 NumPy, running statistics, dtypes, errors, modules."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch

F, nn = torch.nn.functional, torch.nn
# Of the largest value: 16-bit results are computed in fp32 and rounded once.
BOUND = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
DTYPES = list(BOUND)


def float64(t):
    return t.detach().to(torch.float64).numpy()


def close(got, want, dtype, factor=1.0):
    got = float64(got)
    assert got.shape == want.shape
    scale = np.abs(want).max(initial=1e-3)
    assert np.abs(got - want).max(initial=0.0) <= BOUND[dtype] * factor * scale


def close_sum(got, terms, over, dtype, factor=1.0):
    """Sums whose terms cancel are as near as three roundings of the terms allow, not as their own size does."""
    want, rounding = terms.sum(over), 0.0 if dtype is torch.float64 else 3 * 2.0**-24
    assert got.shape == want.shape
    room = BOUND[dtype] * factor * np.abs(want).max(initial=1e-3) + rounding * np.abs(terms).sum(over)
    assert (np.abs(float64(got) - want) <= room).all()


def normalised(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def input_grad(x, gw, axes, eps=1e-5):
    """The input's gradient, gw being that of the normalised values."""
    xhat, rstd = normalised(x, axes, eps), 1 / np.sqrt(x.var(axes, keepdims=True) + eps)
    return rstd * (gw - gw.mean(axes, keepdims=True) - xhat * (gw * xhat).mean(axes, keepdims=True))


def laid_out(values, dtype, layout):
    """A tensor of these values, dense or with gaps or transposed in memory."""
    t = torch.from_numpy(values).to(dtype)
    if layout == "gaps":
        wide = torch.zeros((*t.shape[:-1], 2 * t.shape[-1]), dtype=dtype)
        wide[..., ::2] = t
        t = wide[..., ::2]
    elif layout == "transposed":
        t = t.transpose(0, -1).contiguous().transpose(0, -1)
    return t.detach().requires_grad_()


CASES = st.tuples(
    st.sampled_from(DTYPES), st.sampled_from(["dense", "gaps", "transposed"]), st.booleans(), st.booleans(), st.integers(0, 99)
)


@settings(max_examples=60, deadline=None)
@given(CASES, st.sampled_from([(5, 3), (2, 3, 4), (1, 7), (3, 9), (2, 1100), (70, 6)]), st.integers(1, 2))
def test_layer_norm(case, shape, ndim):
    dtype, layout, affine, mixed, seed = case
    rng = np.random.default_rng(seed)
    x = laid_out(rng.standard_normal(shape) * 2 + 3, dtype, layout)
    size = shape[-ndim:]
    other = torch.float32 if mixed and dtype.itemsize == 2 else dtype
    w, b = (torch.from_numpy(rng.standard_normal(size)).to(other).requires_grad_() for _ in range(2))
    y = F.layer_norm(x, size, w, b) if affine else F.layer_norm(x, size)
    g = torch.from_numpy(rng.standard_normal(shape)).to(dtype)
    y.backward(g)
    axes = tuple(range(len(shape) - ndim, len(shape)))
    x64, g64 = float64(x), float64(g)
    w64, b64 = (float64(w), float64(b)) if affine else (1.0, 0.0)
    assert y.dtype is dtype
    close(y, normalised(x64, axes) * w64 + b64, dtype)
    close(x.grad, input_grad(x64, g64 * w64, axes), dtype, 4.0)
    if affine:
        over = tuple(range(len(shape) - ndim))
        close_sum(w.grad, g64 * normalised(x64, axes), over, other if mixed else dtype, 4.0)
        close_sum(b.grad, g64, over, other if mixed else dtype)


@settings(max_examples=30, deadline=None)
@given(CASES, st.sampled_from([(5, 3), (2, 3, 4), (2, 1100)]))
def test_rms_norm(case, shape):
    dtype, layout, weighted, _, seed = case
    rng = np.random.default_rng(seed)
    x = laid_out(rng.standard_normal(shape) + 1, dtype, layout)
    w = torch.from_numpy(rng.standard_normal(shape[-1:])).to(dtype).requires_grad_()
    y = F.rms_norm(x, shape[-1:], w if weighted else None, 0.01)
    g = torch.from_numpy(rng.standard_normal(shape)).to(dtype)
    y.backward(g)
    x64, g64, w64 = float64(x), float64(g), float64(w) if weighted else 1.0
    r = 1 / np.sqrt((x64**2).mean(-1, keepdims=True) + 0.01)
    close(y, x64 * r * w64, dtype)
    close(x.grad, r * (g64 * w64 - x64 * r * (g64 * w64 * x64 * r).mean(-1, keepdims=True)), dtype, 4.0)
    if weighted:
        close_sum(w.grad, g64 * x64 * r, tuple(range(len(shape) - 1)), dtype, 4.0)


SHAPES = st.sampled_from([(4, 6), (3, 4, 5), (2, 6, 3, 2), (1, 4, 9), (2, 2, 1030), (5, 300)])


@settings(max_examples=50, deadline=None)
@given(CASES, SHAPES)
def test_group_norm(case, shape):
    dtype, layout, affine, mixed, seed = case
    rng = np.random.default_rng(seed)
    groups, channels = 2, shape[1]
    x = laid_out(rng.standard_normal(shape) - 2, dtype, layout)
    other = torch.float32 if mixed and dtype.itemsize == 2 else dtype
    w, b = (torch.from_numpy(rng.standard_normal(channels)).to(other).requires_grad_() for _ in range(2))
    one = math.prod(shape[2:]) * channels == groups
    y = F.group_norm(x, groups, w, b) if affine else F.group_norm(x, groups)
    g = torch.from_numpy(rng.standard_normal(shape)).to(dtype)
    y.backward(g)
    assert not one and y.dtype is dtype
    grouped, flat = (shape[0], groups, -1), (1, channels, *[1] * (len(shape) - 2))
    x64, g64 = float64(x), float64(g)
    w64, b64 = (float64(w).reshape(flat), float64(b).reshape(flat)) if affine else (1.0, 0.0)
    xhat = normalised(x64.reshape(grouped), 2).reshape(shape)
    close(y, xhat * w64 + b64, dtype)
    close(x.grad, input_grad(x64.reshape(grouped), (g64 * w64).reshape(grouped), 2).reshape(shape), dtype, 4.0)
    if affine:
        over = (0, *range(2, len(shape)))
        close_sum(w.grad, g64 * xhat, over, other if mixed else dtype, 4.0)
        close_sum(b.grad, g64, over, other if mixed else dtype)


@settings(max_examples=60, deadline=None)
@given(CASES, SHAPES, st.booleans())
def test_batch_norm(case, shape, training):
    dtype, layout, affine, mixed, seed = case
    rng = np.random.default_rng(seed)
    channels, over, flat = shape[1], (0, *range(2, len(shape))), (1, shape[1], *[1] * (len(shape) - 2))
    x = laid_out(rng.standard_normal(shape) * 3 - 2, dtype, layout)
    other = torch.float32 if mixed and dtype.itemsize == 2 else dtype
    w, b = (torch.from_numpy(rng.standard_normal(channels)).to(other).requires_grad_() for _ in range(2))
    mean = torch.from_numpy(rng.standard_normal(channels)).to(other)
    var = torch.from_numpy(rng.random(channels) + 0.5).to(other)
    mean64, var64 = float64(mean).copy(), float64(var).copy()
    y = F.batch_norm(x, mean, var, w if affine else None, b if affine else None, training, 0.3, 0.01)
    g = torch.from_numpy(rng.standard_normal(shape)).to(dtype)
    y.backward(g)
    x64, g64 = float64(x), float64(g)
    w64, b64 = (float64(w).reshape(flat), float64(b).reshape(flat)) if affine else (1.0, 0.0)
    assert y.dtype is dtype
    if training:
        xhat, n = normalised(x64, over, 0.01), x64.size / channels
        close(mean, 0.7 * mean64 + 0.3 * x64.mean(over), other)
        close(var, 0.7 * var64 + 0.3 * x64.var(over) * n / (n - 1), other)
        close(x.grad, input_grad(x64, g64 * w64, over, 0.01), dtype, 4.0)
    else:
        rstd = 1 / np.sqrt(var64.reshape(flat) + 0.01)
        xhat = (x64 - mean64.reshape(flat)) * rstd
        assert (float64(mean) == mean64).all() and (float64(var) == var64).all()
        close(x.grad, g64 * w64 * rstd, dtype)
    close(y, xhat * w64 + b64, dtype)
    if affine:
        close_sum(w.grad, g64 * xhat, over, other if mixed else dtype, 4.0)
        close_sum(b.grad, g64, over, other if mixed else dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_instance_norm(dtype):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((3, 2, 5))).to(dtype)
    mean, var = torch.zeros(2, dtype=dtype), torch.ones(2, dtype=dtype)
    close(F.instance_norm(x, mean, var, momentum=0.5), normalised(float64(x), 2), dtype)
    close(mean, 0.5 * float64(x).mean(2).mean(0), dtype, 4.0)
    close(var, 0.5 + 0.5 * float64(x).var(2, ddof=1).mean(0), dtype, 4.0)
    want = (float64(x) - float64(mean)[:, None]) / np.sqrt(float64(var)[:, None] + 1e-5)
    close(F.instance_norm(x, mean, var, use_input_stats=False), want, dtype)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_local_response_norm(size):
    x = np.random.default_rng(1).standard_normal((2, 5, 3))
    padded = np.pad(x**2, ((0, 0), (size // 2, (size - 1) // 2), (0, 0)))
    total = sum(padded[:, i : i + 5] for i in range(size))
    got = F.local_response_norm(torch.from_numpy(x), size, alpha=0.3, beta=0.6, k=2.0)
    close(got, x / (2 + 0.3 * total / size) ** 0.6, torch.float64)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_local_response_norm_of_what_is_not_finite_stays_among_neighbours(size, value):
    x = torch.ones(1, 6, 1)
    for channel in range(6):
        bad = x.clone()
        bad[0, channel] = value
        got, plain = F.local_response_norm(bad, size)[0, :, 0], F.local_response_norm(x, size)[0, :, 0]
        for c in range(6):
            if not c - size // 2 <= channel <= c + (size - 1) // 2:
                assert got[c].item() == plain[c].item()
            elif c != channel:
                assert math.isnan(got[c].item()) if math.isnan(value) else got[c].item() == 0.0
    grad = torch.ones(1, 6, 1, requires_grad=True)
    F.local_response_norm(grad, size).sum().backward()
    assert torch.isfinite(grad.grad).all()


def test_normalize():
    x = np.random.default_rng(1).standard_normal((4, 5))
    close(F.normalize(torch.from_numpy(x)), x / np.linalg.norm(x, axis=1, keepdims=True), torch.float64)
    close(F.normalize(torch.from_numpy(x), 1, 0), x / np.abs(x).sum(0), torch.float64)
    assert (F.normalize(torch.zeros(2, 3)) == 0).all()
    out = torch.empty(4, 5, dtype=torch.float64)
    assert F.normalize(torch.from_numpy(x), out=out) is out


def test_statistics_keep_their_precision_far_from_zero():
    """Deviations of 1e-3 around 1000 in fp32: the sums are of differences, not of squares."""
    x = (np.arange(64) % 7 * 2.0**-10 + 1000).astype(np.float32)
    want = normalised(x.astype(np.float64), 0)
    for y in (F.layer_norm(torch.from_numpy(x), (64,)), F.batch_norm(torch.from_numpy(x)[:, None], None, None, training=True)[:, 0]):
        assert np.abs(float64(y) - want).max() < 3e-6
    far = np.full(1000, 1.0, np.float32)
    far[0] = 1e6  # the shift is the value farthest away
    close(F.layer_norm(torch.from_numpy(far), (1000,)), normalised(far.astype(np.float64), 0), torch.float32)


def test_native_layer_norm():
    x = torch.randn(3, 2, 4, dtype=torch.float64)
    _, mean, rstd = torch.native_layer_norm(x, (2, 4), None, None, 0.1)
    assert tuple(mean.shape) == tuple(rstd.shape) == (3, 1, 1)
    close(mean[:, 0, 0], float64(x).mean((1, 2)), torch.float64)
    close(rstd[:, 0, 0], 1 / np.sqrt(float64(x).var((1, 2)) + 0.1), torch.float64)
    half = x.half()
    w = torch.ones(2, 4)
    assert [t.dtype for t in torch.native_layer_norm(half, (2, 4), None, None, 0.1)] == [torch.float16] * 3
    assert [t.dtype for t in torch.native_layer_norm(half, (2, 4), w, None, 0.1)] == [torch.float16, torch.float32, torch.float32]
    with torch.cuda.emulate():
        assert torch.native_layer_norm(half.cuda(), (2, 4), None, None, 0.1)[1].dtype is torch.float32


def test_the_number_of_threads_changes_nothing():
    x = torch.randn(200, 64, requires_grad=True)
    image = torch.randn(6, 32, 40, requires_grad=True)
    w, b = torch.randn(64, requires_grad=True), torch.randn(64, requires_grad=True)

    def everything():
        found = []
        for y, ts in (
            (F.layer_norm(x, (64,), w, b), (x, w, b)),
            (F.batch_norm(x, None, None, w, b, True), (x, w, b)),
            (F.batch_norm(image, None, None, None, None, True), (image,)),
            (F.group_norm(image, 4, w[:32], b[:32]), (image, w, b)),
        ):
            found += [y, *torch.autograd.grad(y, ts, y.detach().cos())]
        return [t.detach().numpy().tobytes() for t in found]

    before = torch.get_num_threads()
    try:
        results = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            results.append(everything())
    finally:
        torch.set_num_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0, 4), (0, 4, 2)])
def test_no_elements(shape):
    x = torch.zeros(shape, requires_grad=True)
    w = torch.ones(shape[-1:], requires_grad=True)
    y = F.layer_norm(x, shape[-1:], w)
    y.sum().backward()
    assert tuple(y.shape) == shape and tuple(x.grad.shape) == shape and (w.grad == 0).all()


def test_autocast_and_emulated_cuda():
    with torch.cuda.emulate():
        x = torch.randn(4, 6, 2, device="cuda")
        w = torch.ones(6, device="cuda", requires_grad=True)
        with torch.autocast("cuda", dtype=torch.float16):
            half = x.half()
            assert F.layer_norm(half, (2,)).dtype is torch.float32
            assert F.group_norm(half, 2, w).dtype is torch.float32
            assert F.rms_norm(half, (2,)).dtype is torch.float32
            y = F.batch_norm(half, torch.zeros(6, device="cuda"), torch.ones(6, device="cuda"), w, None, True)
            assert y.dtype is torch.float16
        y.sum().backward()
        assert w.grad.dtype is torch.float32
        with pytest.raises(RuntimeError, match="expected scalar type Half but found Float"):
            F.layer_norm(x.half(), (2,), torch.ones(2, device="cuda"))
    with torch.autocast("cpu"):
        assert F.layer_norm(torch.randn(2, 3).bfloat16(), (3,)).dtype is torch.bfloat16


IMAGE = torch.ones(2, 4, 3)
REFUSED = {
    "given normalized_shape=[5], expected input with shape [*, 5], but got input of size[2, 4, 3]": lambda: F.layer_norm(IMAGE, (5,)),
    "normalized_shape to be at least 1-dimensional": lambda: F.layer_norm(IMAGE, ()),
    "expected weight to be of same shape as normalized_shape": lambda: F.layer_norm(IMAGE, (3,), torch.ones(2)),
    "expected bias to be of same shape as normalized_shape": lambda: F.layer_norm(IMAGE, (3,), None, torch.ones(2)),
    "mixed dtype (cpu): expect parameter": lambda: F.layer_norm(IMAGE, (3,), torch.ones(3).half()),
    "mixed dtype (cpu): all inputs must": lambda: F.layer_norm(IMAGE.double(), (3,), torch.ones(3)),
    "expected scalar type float but found half": lambda: F.layer_norm(IMAGE, (3,), torch.ones(3), torch.ones(3).half()),
    "divisible by num_groups": lambda: F.group_norm(IMAGE, 3),
    "expected weight to be a vector of size": lambda: F.group_norm(IMAGE, 2, torch.ones(3)),
    "expected bias to be a vector of size": lambda: F.group_norm(IMAGE, 2, None, torch.ones(3)),
    "at least 2 dimensions": lambda: F.group_norm(torch.ones(3), 1),
    "num groups to be greater than 0": lambda: F.group_norm(IMAGE, 0),
    "running_mean must be defined in evaluation mode": lambda: F.batch_norm(IMAGE, None, None),
    "running_var should contain 4 elements not 3": lambda: F.batch_norm(IMAGE, torch.ones(4), torch.ones(3)),
    "weight should contain 4 elements not 3": lambda: F.batch_norm(IMAGE, None, None, torch.ones(3), None, True),
    "to be defined when use_input_stats is false": lambda: F.instance_norm(IMAGE, use_input_stats=False),
}
REFUSED_VALUES = {
    "expected more than 1 value per channel when training": lambda: F.batch_norm(torch.ones(1, 4), None, None, training=True),
    "expected more than 1 value per channel": lambda: F.group_norm(torch.ones(1, 4), 4),
    "expected more than 1 spatial element when training": lambda: F.instance_norm(torch.ones(2, 4, 1)),
    "eps must be non-negative": lambda: F.batch_norm(IMAGE, None, None, training=True, eps=-1.0),
    "expected 3d or higher": lambda: F.local_response_norm(torch.ones(2, 3), 2),
    "expected 4d input (got 3d input)": lambda: nn.BatchNorm2d(4)(IMAGE),
    "expected 2d or 3d input (got 1d input)": lambda: nn.BatchNorm1d(4)(torch.ones(4)),
    "num_channels (4) must be divisible by num_groups (3)": lambda: nn.GroupNorm(3, 4),
    "to match num_features (5), but got: 4": lambda: nn.InstanceNorm1d(5, affine=True)(IMAGE),
}


@pytest.mark.parametrize("phrase", [*REFUSED, *REFUSED_VALUES])
def test_refused(phrase):
    with pytest.raises(RuntimeError if phrase in REFUSED else ValueError) as info:
        (REFUSED | REFUSED_VALUES)[phrase]()
    assert phrase in str(info.value).lower()


def test_integers_have_no_statistics():
    with pytest.raises(NotImplementedError, match="not implemented for 'int64'"):
        F.layer_norm(torch.ones(2, 3, dtype=torch.int64), (3,))


def test_running_statistics_and_versions():
    m = nn.BatchNorm1d(3)
    x = torch.randn(8, 3)
    before = m.running_mean._version
    y = m(x.requires_grad_())
    assert m.running_mean._version == before + 1 and m.num_batches_tracked.item() == 1
    m.eval()
    z = m(x)
    with torch.no_grad():
        m.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (y + z).sum().backward()


def test_cumulative_average():
    m = nn.BatchNorm1d(2, momentum=None)
    batches = np.random.default_rng(3).standard_normal((3, 5, 2)).astype(np.float32)
    for batch in batches:
        m(torch.from_numpy(batch))
    close(m.running_mean, batches.astype(np.float64).mean(1).mean(0), torch.float32)
    m.reset_running_stats()
    assert (m.running_mean == 0).all() and (m.running_var == 1).all() and m.num_batches_tracked.item() == 0


def test_modules():
    shown = {
        "LayerNorm((3,), eps=1e-05, elementwise_affine=True, bias=True)": nn.LayerNorm(3),
        "RMSNorm((3,), eps=None, elementwise_affine=True)": nn.RMSNorm(3),
        "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)": nn.GroupNorm(2, 4),
        "BatchNorm2d(3, eps=1e-05, momentum=None, affine=True, bias=True, track_running_stats=True)": nn.BatchNorm2d(3, momentum=None),
        "InstanceNorm1d(3, eps=1e-05, momentum=0.1, affine=False, bias=False, track_running_stats=False)": nn.InstanceNorm1d(3),
        "LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1.0)": nn.LocalResponseNorm(2),
    }
    for text, module in shown.items():
        assert repr(module) == text
    assert list(nn.BatchNorm3d(2).state_dict()) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert list(nn.BatchNorm1d(2, track_running_stats=False, bias=False).state_dict()) == ["weight"]
    old = {"weight": torch.ones(2), "bias": torch.ones(2), "running_mean": torch.ones(2), "running_var": torch.ones(2)}
    m = nn.Sequential(nn.BatchNorm1d(2))
    m.load_state_dict({f"0.{k}": v for k, v in old.items()})
    assert (m[0].running_mean == 1).all() and m[0].num_batches_tracked.item() == 0
    with pytest.raises(RuntimeError, match="Unexpected running stats"):
        nn.InstanceNorm1d(2).load_state_dict({"running_mean": torch.ones(2)})
    single = torch.randn(4, 3, 3)
    assert tuple(nn.InstanceNorm2d(4)(single).shape) == (4, 3, 3)
    untracked = nn.BatchNorm2d(4, track_running_stats=False).eval()
    close(untracked(IMAGE[None].reshape(2, 4, 3, 1) * 2), np.zeros((2, 4, 3, 1)), torch.float32)
    with pytest.warns(UserWarning, match="does not match num_features"):
        nn.InstanceNorm1d(3)(IMAGE)
    with pytest.raises(NotImplementedError, match="use BatchNorm1d"):
        nn.SyncBatchNorm(3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(700, 37), (300, 1030), (261, 16)])
def test_layer_norm_of_many_rows(shape, dtype):
    """Rows enough for several of them at once, and some left over; the same bits at every level."""
    rng = np.random.default_rng(3)
    v, g = rng.normal(3, 2, shape), rng.normal(size=shape)
    w, b = rng.normal(size=shape[1]), rng.normal(size=shape[1])
    unit = 2.0**-24 if dtype == torch.float32 else 2.0**-53
    kept, before = None, torch._C.isa_name()
    for level in ("baseline", "avx2", "avx512"):
        x, weight, bias = (torch.tensor(t).to(dtype).requires_grad_() for t in (v, w, b))
        slopes = torch.tensor(g).to(dtype)
        torch._C._set_isa(level)
        try:
            F.layer_norm(x, shape[1:], weight, bias).backward(slopes)
        finally:
            torch._C._set_isa(before)
        results = [np.asarray(t.grad.double()) for t in (x, weight, bias)]
        kept = kept or results
        assert all(one.tobytes() == other.tobytes() for one, other in zip(kept, results, strict=True))
    x64, g64, w64 = (np.asarray(t.detach().double()) for t in (x, slopes, weight))
    rstd = 1 / np.sqrt(x64.var(1, keepdims=True) + 1e-5)
    xhat, gw = (x64 - x64.mean(1, keepdims=True)) * rstd, g64 * w64
    dx = rstd * (gw - gw.mean(1, keepdims=True) - xhat * (gw * xhat).mean(1, keepdims=True))
    assert np.abs(kept[0] - dx).max() < 64 * unit
    assert np.abs(kept[1] - (g64 * xhat).sum(0)).max() < 64 * unit * np.sqrt(shape[0])
    assert np.abs(kept[2] - g64.sum(0)).max() < 64 * unit * np.sqrt(shape[0])


@pytest.mark.parametrize("dtype, rows", [(torch.float32, 2100), (torch.bfloat16, 4200)])
def test_a_large_result_has_the_bits_of_its_parts(dtype, rows):
    """What is too large for the caches is stored around them; a quarter of the rows is not."""
    x = torch.tensor(np.random.default_rng(4).normal(1, 2, (rows, 2064)).astype(np.float32)).to(dtype)
    before = torch._C.isa_name()

    def both(part):
        part = part.detach().requires_grad_()
        y = F.layer_norm(part, (2064,))
        y.backward(part.detach())
        return [np.asarray(t.detach().float()).tobytes() for t in (y, part.grad)]

    for level in ("baseline", "avx2", "avx512"):
        torch._C._set_isa(level)
        try:
            whole, parts = both(x), [both(x[k * rows // 4 : (k + 1) * rows // 4]) for k in range(4)]
        finally:
            torch._C._set_isa(before)
        assert all(whole[k] == b"".join(part[k] for part in parts) for k in range(2))


@pytest.mark.parametrize("size", [1e-110, 1e-103, 1.0, 1e100, 1e149])
def test_gradients_of_rows_of_any_size_in_float64(size):
    x = (torch.tensor([[1.0, 2, 4, -3]], dtype=torch.float64) * size).requires_grad_()
    g = torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64)
    F.layer_norm(x, [4], eps=0.0).backward(g)
    unit = torch.tensor([[1.0, 2, 4, -3]], dtype=torch.float64, requires_grad=True)
    F.layer_norm(unit, [4], eps=0.0).backward(g)
    assert x.grad.numpy() * size == pytest.approx(unit.grad.numpy(), rel=1e-12)


NORMS = [lambda: nn.BatchNorm1d(2), lambda: nn.BatchNorm2d(2, affine=False), lambda: nn.InstanceNorm1d(2, track_running_stats=True)]


@pytest.mark.parametrize("make", [*NORMS, lambda: nn.LazyBatchNorm1d(), lambda: nn.InstanceNorm3d(2)])
def test_states_of_layers_with_statistics_are_of_version_2(make):
    m = make()
    assert m._version == 2 and m.state_dict()._metadata == {"": {"version": 2}}
    assert nn.Sequential(m).state_dict()._metadata == {"": {"version": 1}, "0": {"version": 2}}
    assert nn.GroupNorm(1, 2)._version == nn.LayerNorm(2)._version == 1


@pytest.mark.parametrize("make", NORMS)
@pytest.mark.parametrize("version", ["no metadata", None, 1, 2, 3])
def test_states_without_the_counter(make, version):
    """They load where the state is older than the counter, or of no known version; the counter stays."""
    saved = make().state_dict()
    del saved["num_batches_tracked"]
    saved._metadata = {"": {} if version is None else {"version": version}}
    saved = dict(saved) if version == "no metadata" else saved
    m = make()
    m.num_batches_tracked.fill_(7)
    if version in (2, 3):
        with pytest.raises(RuntimeError, match='Missing key\\(s\\) in state_dict: "num_batches_tracked"'):
            m.load_state_dict(saved)
        assert m.load_state_dict(saved, strict=False).missing_keys == ["num_batches_tracked"]
    else:
        assert m.load_state_dict(saved).missing_keys == []
    assert int(m.num_batches_tracked) == 7 and "num_batches_tracked" not in saved


def test_a_counter_without_data_starts_at_zero():
    m, saved = nn.BatchNorm1d(2).to("meta"), dict(nn.BatchNorm1d(2).state_dict())
    del saved["num_batches_tracked"]
    m.load_state_dict(saved, assign=True)
    assert m.num_batches_tracked.device.type == "cpu" and int(m.num_batches_tracked) == 0


def test_statistics_that_were_not_asked_for():
    """Of a state of no known version they are an error in any case, else of a strict load."""
    m, saved = nn.InstanceNorm1d(2), nn.InstanceNorm1d(2, track_running_stats=True).state_dict()
    assert m.load_state_dict(saved, strict=False).unexpected_keys == ["running_mean", "running_var", "num_batches_tracked"]
    with pytest.raises(RuntimeError, match="Unexpected key"):
        m.load_state_dict(saved)
    with pytest.raises(RuntimeError, match=r'Unexpected running stats buffer\(s\) "running_mean" and "running_var" for InstanceNorm1d'):
        m.load_state_dict(dict(saved), strict=False)
