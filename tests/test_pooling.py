"""Pooling, padding, interpolation and sampling: values against plain loops in float64 and numbers that PyTorch gave."""

import itertools
import math

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch
from hypothesis import given, settings
from hypothesis import strategies as st

F, nn = torch.nn.functional, torch.nn
# Half a unit in the last place of each dtype, relative; the oracle is float64.
ROUNDING = {"float64": 1e-13, "float32": 2**-23, "float16": 2**-11 + 2**-14, "bfloat16": 2**-8 + 2**-11}
FLOATS = st.sampled_from(sorted(ROUNDING))
QUICK = settings(max_examples=40, deadline=None, database=None)


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def tensor_of(array, dtype="float64"):
    return torch.tensor(array, dtype=getattr(torch, dtype))


def numbers(t):
    return np.array(t.detach().double().tolist(), dtype=np.float64).reshape(tuple(t.shape))


def check(actual, expected, dtype, factor=1.0, size=None):
    """`size`: of what was added up, where it may cancel."""
    actual = numbers(actual)
    assert actual.shape == expected.shape
    bound = ROUNDING[dtype] * factor
    least = 2**-25 if dtype == "float16" else 0  # half of its smallest number
    assert np.all(np.abs(actual - expected) <= bound * (np.abs(expected if size is None else size) + 1e-6 + (factor > 1)) + least)


def layouts(x, which):
    """x again with other strides."""
    if which == "transposed":
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if which == "channels last":
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    if which == "sliced":
        return torch.stack([x, x + 1], dim=-1)[..., 0]
    return x


# ---- windows in plain loops ----


def sliding(size, kernel, stride, padding, dilation, ceil_mode):
    """Per output: positions of the taps, inside the padded line."""
    reach = dilation * (kernel - 1) + 1
    room = size + 2 * padding - reach
    count = (math.ceil if ceil_mode else math.floor)(room / stride) + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    return [[o * stride - padding + k * dilation for k in range(kernel)] for o in range(count)]


def pooled(x, windows, reduce):
    """reduce(values, taps inside the padding) over the last dimensions of x."""
    nd = len(windows)
    out = np.zeros(x.shape[:-nd] + tuple(len(w) for w in windows))
    positions = np.zeros(out.shape, dtype=np.int64)
    sizes = x.shape[-nd:]
    for lead in np.ndindex(*x.shape[:-nd]):
        for o in np.ndindex(*out.shape[-nd:]):
            taps = list(itertools.product(*(w[i] for w, i in zip(windows, o, strict=True))))
            inside = [t for t in taps if all(0 <= p < n for p, n in zip(t, sizes, strict=True))]
            out[lead + o], at = reduce([x[lead + t] for t in inside], taps, inside)
            positions[lead + o] = 0 if at is None else np.ravel_multi_index(inside[at], sizes)
    return out, positions


def largest(found, taps, inside):
    at = max(range(len(found)), key=lambda i: (found[i], -i)) if found else None
    return (found[at] if found else -math.inf), at


@st.composite
def pools(draw):
    nd = draw(st.integers(1, 3))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *(draw(st.integers(2, 7)) for _ in range(nd)))
    kernel = tuple(draw(st.integers(1, min(3, n))) for n in shape[2:])
    stride = tuple(draw(st.integers(1, 3)) for _ in range(nd))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    dilation = tuple(draw(st.integers(1, 2)) if (n - 1) // 2 >= k - 1 else 1 for n, k in zip(shape[2:], kernel, strict=True))
    return nd, shape, kernel, stride, padding, dilation, draw(st.booleans())


@QUICK
@given(pools(), FLOATS, st.sampled_from(["", "transposed", "channels last", "sliced"]))
def test_max_pool(case, dtype, layout):
    nd, shape, kernel, stride, padding, dilation, ceil_mode = case
    x = tensor_of(values(*shape), dtype)
    windows = [sliding(*w, ceil_mode) for w in zip(shape[2:], kernel, stride, padding, dilation, strict=True)]
    expected, positions = pooled(numbers(x), windows, largest)
    function = getattr(F, f"max_pool{nd}d")
    y, indices = function(layouts(x, layout), kernel, stride, padding, dilation, ceil_mode, return_indices=True)
    assert y.dtype == x.dtype and indices.dtype == torch.int64
    assert np.array_equal(numbers(y), expected)
    real = np.isfinite(expected)  # a window wholly in the padding has no position
    assert np.array_equal(numbers(indices)[real], positions[real])
    assert torch.equal(function(x, kernel, stride, padding, dilation, ceil_mode), y)
    if real.all():
        leaf = x.double().requires_grad_()
        function(leaf, kernel, stride, padding, dilation, ceil_mode).sum().backward()
        counts = np.zeros((math.prod(shape[:2]), math.prod(shape[2:])))
        for plane, found in zip(counts, positions.reshape(len(counts), -1), strict=True):
            np.add.at(plane, found, 1)
        assert np.array_equal(numbers(leaf.grad).ravel(), counts.ravel())


@QUICK
@given(pools(), FLOATS, st.booleans(), st.sampled_from([None, 3, -2]), st.sampled_from(["", "channels last", "sliced"]))
def test_avg_pool(case, dtype, count_include_pad, divisor, layout):
    nd, shape, kernel, stride, padding, _, ceil_mode = case
    x = tensor_of(values(*shape), dtype)
    windows = [sliding(*w, 1, ceil_mode) for w in zip(shape[2:], kernel, stride, padding, strict=True)]

    def mean(found, taps, inside):
        limits = [n + p for n, p in zip(shape[2:], padding, strict=True)]
        padded = sum(all(t < limit for t, limit in zip(tap, limits, strict=True)) for tap in taps)
        return sum(found) / (divisor or (padded if count_include_pad else len(inside))), None

    divisor = divisor if nd > 1 else None
    expected, _ = pooled(numbers(x), windows, mean)
    options = {} if nd == 1 else {"divisor_override": divisor}
    function = getattr(F, f"avg_pool{nd}d")
    y = function(layouts(x, layout), kernel, stride, padding, ceil_mode, count_include_pad, **options)
    assert y.dtype == x.dtype
    check(y, expected, dtype)
    leaf = x.detach().requires_grad_()
    function(leaf, kernel, stride, padding, ceil_mode, count_include_pad, **options).sum().backward()
    linear = function(torch.ones(shape, dtype=torch.float64), kernel, stride, padding, ceil_mode, count_include_pad, **options)
    total = numbers(linear).sum()
    assert leaf.grad.dtype == x.dtype
    assert abs(numbers(leaf.grad).sum() - total) <= ROUNDING[dtype] * np.abs(numbers(leaf.grad)).sum() + 1e-12


@QUICK
@given(pools(), st.lists(st.integers(1, 9), min_size=3, max_size=3), FLOATS)
def test_adaptive_pools(case, outputs, dtype):
    nd, shape, *_ = case
    x = tensor_of(values(*shape), dtype)
    outputs = tuple(outputs[:nd])
    windows = [
        [list(range(o * n // count, -((-(o + 1) * n) // count))) for o in range(count)]
        for n, count in zip(shape[2:], outputs, strict=True)
    ]
    expected, positions = pooled(numbers(x), windows, largest)
    y, indices = getattr(F, f"adaptive_max_pool{nd}d")(x, outputs, return_indices=True)
    assert np.array_equal(numbers(y), expected) and np.array_equal(numbers(indices), positions)
    (expected, _), (size, _) = (
        pooled(exact, windows, lambda found, taps, inside: (sum(found) / len(found), None)) for exact in (numbers(x), np.abs(numbers(x)))
    )
    check(getattr(F, f"adaptive_avg_pool{nd}d")(x, outputs), expected, dtype, size=size if dtype == "float64" else None)


def test_sizes_may_be_kept():
    x = torch.ones(2, 3, 5, 7)
    assert F.adaptive_avg_pool2d(x, (None, 2)).shape == (2, 3, 5, 2)
    assert F.adaptive_max_pool2d(x[0], (4, None)).shape == (3, 4, 7)
    assert nn.AdaptiveAvgPool3d((None, 1, None))(x).shape == (2, 3, 1, 7)


def test_nan_and_infinity():
    nan, inf = math.nan, math.inf
    y, indices = F.max_pool1d(torch.tensor([[1.0, nan, 2.0, -inf, -inf, inf, inf, 0.0]]), 2, return_indices=True)
    assert str(y.tolist()) == "[[nan, 2.0, inf, inf]]" and indices.tolist() == [[1, 2, 5, 6]]
    assert F.max_pool1d(torch.tensor([[-inf, -inf]]), 2, return_indices=True)[1].item() == 0


def test_integers():
    x = torch.tensor([[[5, 6, -8, 3], [4, 3, 8, 9007199254740993]]])
    assert F.max_pool2d(x, 2).tolist() == [[[6, 9007199254740993]]]
    assert F.avg_pool2d(torch.tensor([[[5, 6], [4, 3]], [[-5, -6], [-4, -3]]]), 2).tolist() == [[[4]], [[-4]]]
    for refused in (lambda: F.adaptive_avg_pool2d(x, 1), lambda: F.max_pool2d(x.bool(), 1)):
        with pytest.raises((NotImplementedError, RuntimeError), match="not implemented"):
            refused()


def test_empty_batches_and_planes():
    for function in (lambda t: F.max_pool2d(t, 2), lambda t: F.avg_pool2d(t, 2), lambda t: F.adaptive_avg_pool2d(t, 2)):
        assert function(torch.ones(0, 2, 4, 4)).shape == (0, 2, 2, 2)
        with pytest.raises(RuntimeError, match=r"Expected|non-zero"):
            function(torch.ones(2, 2, 0, 4))
    assert F.adaptive_avg_pool2d(torch.ones(1, 2, 4, 4), 0).shape == (1, 2, 0, 0)


@pytest.mark.parametrize(
    ("call", "phrase"),
    [
        (lambda x: F.max_pool2d(x, 9), "Output size is too small"),
        (lambda x: F.max_pool2d(x, 2, padding=2), "pad should be at most half of"),
        (lambda x: F.max_pool2d(x, 2, stride=0), "stride should not be zero"),
        (lambda x: F.max_pool2d(x, 2, padding=-1), "pad must be non-negative"),
        (lambda x: F.max_pool2d(x, (2, 2, 2)), "kernel_size must either be a single int, or a tuple of two ints"),
        (lambda x: F.max_pool1d(x, 2), "Expected 2D or 3D"),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=0), "divisor must be not zero"),
        (lambda x: F.avg_pool3d(x, (4, 2, 2), padding=(2, 0, 0)), "smaller than kernel size"),
        (lambda x: F.adaptive_avg_pool2d(x, (2, 2, 2)), "output_size must be 2"),
        (lambda x: F.adaptive_avg_pool2d(x, -1), "greater than or equal to 0"),
        (lambda x: F.fractional_max_pool2d(x, 2, output_size=8), "too large relative to input"),
        (lambda x: F.max_unpool2d(x, torch.full((2, 3, 4, 4), 64), 2), "index"),
        (lambda x: F.max_unpool2d(x, torch.zeros(2, 3, 4, 4).int(), 2), "should be type int64"),
        (lambda x: F.pad(x, (1,)), "must be divisible by 2"),
        (lambda x: F.pad(x, (1,) * 10), "less than or equal to two times the input dimension"),
        (lambda x: F.pad(x, (-3, -2)), "length must be non-negative"),
        (lambda x: F.pad(x, (4, 0, 0, 0), mode="reflect"), "Padding size should be less than the corresponding input dimension"),
        (lambda x: F.pad(x, (5, 0, 0, 0), mode="circular"), "wrapping around more than once"),
        (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect", value=1.0), "doesn't take in value argument"),
        (lambda x: F.interpolate(x, size=0), "should be greater than 0"),
        (lambda x: F.grid_sample(x, torch.zeros(1, 2, 2, 2)), "same batch size"),
        (lambda x: F.grid_sample(x, torch.zeros(2, 2, 2, 3)), "size 2 in last dimension"),
        (lambda x: F.grid_sample(x, torch.zeros(2, 2, 2, 2).half()), "expected scalar type Float but found Half"),
        (lambda x: F.pixel_shuffle(x, 2), "not divisible by 4"),
        (lambda x: F.pixel_unshuffle(x, 3), "height to be divisible"),
        (lambda x: F.channel_shuffle(x, 2), "divisible by groups"),
    ],
)
@pytest.mark.filterwarnings("ignore:Default grid_sample")
def test_errors(call, phrase):
    with pytest.raises(RuntimeError, match=phrase) if phrase != "index" else pytest.raises(RuntimeError):
        call(torch.zeros(2, 3, 4, 4))


def test_more_errors():
    x = torch.zeros(2, 3, 4, 4)
    with pytest.raises(NotImplementedError, match="Padding size 2 is not supported for 4D"):
        F.pad(x, (1, 1), mode="reflect")
    with pytest.raises(NotImplementedError, match="bilinear mode needs 4D"):
        F.interpolate(x[0], size=4, mode="bilinear")
    with pytest.raises(NotImplementedError, match="got foo"):
        F.interpolate(x, size=4, mode="foo")
    for options, phrase in (
        ({}, "either size or scale_factor"),
        ({"size": 2, "scale_factor": 2}, "only one of"),
        ({"size": (2, 2, 2)}, "same number of spatial dimensions"),
        ({"size": 2, "align_corners": True}, "align_corners option"),
        ({"size": 2, "antialias": True}, "Anti-alias option is restricted"),
        ({"size": 2, "recompute_scale_factor": True}, "not meaningful"),
    ):
        with pytest.raises(ValueError, match=phrase):
            F.interpolate(x, **options)
    with pytest.raises(ValueError, match="expected mode to be"):
        F.grid_sample(x, x, mode="foo", align_corners=False)
    with pytest.raises(ValueError, match="requires specifying either"):
        nn.FractionalMaxPool2d(2)
    with pytest.raises(ValueError, match="invalid output_size"):
        F.max_unpool2d(x, x.long(), 2, output_size=(20, 20))


# ---- fractional pooling, unpooling, power means ----


def test_fractional_windows_are_pytorchs():
    torch.manual_seed(0)
    x = torch.arange(50.0).reshape(1, 2, 5, 5)
    _, indices = F.fractional_max_pool2d(x, 2, output_size=3, return_indices=True)
    assert indices.tolist() == [
        [[[6, 8, 9], [11, 13, 14], [21, 23, 24]], [[6, 7, 9], [11, 12, 14], [21, 22, 24]]]
    ]  # PyTorch 2.15 with this seed


def test_unpooling_undoes_pooling():
    for nd in (1, 2, 3):
        x = torch.rand(2, 3, *[6] * nd) + 0.5
        y, indices = getattr(F, f"max_pool{nd}d")(x, 2, return_indices=True)
        back = getattr(F, f"max_unpool{nd}d")(y, indices, 2)
        kept = back != 0
        assert back.shape == x.shape and kept.sum().item() == y.numel()
        assert torch.equal(back[kept], x[kept])


def test_lp_pool():
    x = np.abs(values(2, 3, 6, 6)) + 0.1
    y = F.lp_pool2d(tensor_of(x), 3.0, 2)
    blocks = x.reshape(2, 3, 3, 2, 3, 2)
    np.testing.assert_allclose(numbers(y), ((blocks**3).sum((3, 5))) ** (1 / 3), rtol=1e-12)


# ---- padding ----

NUMPY_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@QUICK
@given(
    st.sampled_from(sorted(NUMPY_MODES)), st.integers(1, 3), st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.sampled_from(["float64", "float16", "bfloat16"]), st.booleans(), st.sampled_from(["", "channels last"]),
)  # fmt: skip
def test_padding_repeats_the_input(mode, nd, pad, dtype, batch, layout):
    x = tensor_of(values(2, 2, *[4, 5, 6][:nd]), dtype)
    x = layouts(x, layout) if batch else x[0]
    pad = pad[: 2 * nd]
    y = F.pad(x, pad, mode=mode)
    pairs = [(0, 0)] * (x.dim() - nd) + [(pad[2 * k], pad[2 * k + 1]) for k in reversed(range(nd))]
    assert y.dtype == x.dtype
    assert np.array_equal(numbers(y), np.pad(numbers(x), pairs, mode=NUMPY_MODES[mode]))


@QUICK
@given(st.lists(st.integers(-2, 3), min_size=6, max_size=6), st.sampled_from([2, 4, 6]), st.sampled_from([None, 1.5]))
def test_constant_padding(pad, n, value):
    x, pad = values(4, 5, 4), pad[:n]
    y = F.pad(tensor_of(x), pad, value=value)
    pairs = [(0, 0)] * (3 - n // 2) + [(pad[2 * k], pad[2 * k + 1]) for k in reversed(range(n // 2))]
    framed = np.pad(x, [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=value or 0)
    cut = tuple(slice(-min(a, 0), size + min(b, 0)) for (a, b), size in zip(pairs, framed.shape, strict=True))
    assert np.array_equal(numbers(y), framed[cut])


def test_padding_of_any_dtype():
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.complex64):
        x = torch.ones(1, 2, 3, dtype=dtype)
        assert F.pad(x, (1, 1)).sum(-1).tolist() == [[3, 3]]
        for mode in NUMPY_MODES:
            assert F.pad(x, (1, 2), mode=mode).dtype == dtype


# ---- interpolation ----


def weights(mode, size, out, align, scale=None):
    """The matrix (out, size) of a one-dimensional interpolation."""
    m = np.zeros((out, size))
    step = (size - 1) / (out - 1) if align and out > 1 else 0.0 if align else 1 / scale if scale else size / out
    for o in range(out):
        at = step * o if align else step * (o + 0.5) - 0.5
        if mode == "linear":
            at = max(at, 0.0)
            low = min(int(at), size - 1)
            m[o, low] += 1 - (at - low)
            m[o, min(low + 1, size - 1)] += at - low
        elif mode == "cubic":
            low = math.floor(at)
            for k in range(-1, 3):
                t, a = abs(at - low - k), -0.75
                w = (a + 2) * t**3 - (a + 3) * t**2 + 1 if t <= 1 else a * (t**3 - 5 * t**2 + 8 * t - 4)
                m[o, min(max(low + k, 0), size - 1)] += w
        else:
            at = np.float32(o) + np.float32(0.5 if mode == "exact" else 0)
            step32 = np.float32(1 / scale) if scale else np.float32(size) / np.float32(out)
            m[o, min(math.floor(at * step32), size - 1)] = 1
    return m


def apply_matrices(x, matrices):
    for d, m in enumerate(matrices):
        x = np.moveaxis(np.tensordot(m, x, (1, 2 + d)), 0, 2 + d)
    return x


KINDS = [("nearest", "nearest"), ("nearest-exact", "exact"), ("linear", "linear"), ("bicubic", "cubic")]
LINEAR_NAMES = {1: "linear", 2: "bilinear", 3: "trilinear"}


@QUICK
@given(
    st.sampled_from(KINDS), st.integers(1, 3), st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.lists(st.integers(1, 9), min_size=3, max_size=3), st.booleans(), st.sampled_from([None, 0.7, 2.0, 1.5]), FLOATS,
    st.sampled_from(["", "channels last"]),
)  # fmt: skip
def test_interpolation(kind, nd, sizes, out, align, scale, dtype, layout):
    name, short = kind
    nd = 2 if short == "cubic" else nd
    mode = LINEAR_NAMES[nd] if short == "linear" else name
    align = align if short in ("linear", "cubic") else None
    x = tensor_of(values(2, 2, *sizes[:nd]), dtype)
    if scale:
        out = [math.floor(n * scale) for n in sizes]
    if 0 in out[:nd]:
        return
    options = {"scale_factor": scale} if scale else {"size": out[:nd]}
    y = F.interpolate(layouts(x, layout), mode=mode, align_corners=align, **options)
    assert y.dtype == x.dtype
    expected = apply_matrices(numbers(x), [weights(short, n, o, align, scale) for n, o in zip(sizes[:nd], out, strict=False)])
    if short in ("nearest", "exact"):
        assert np.array_equal(numbers(y), expected)
    else:
        check(y, expected, dtype, 4.0)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_antialiased(mode):
    """A constant stays, a ramp stays a ramp away from the edges, and shrinking averages noise."""
    flat = F.interpolate(torch.full((1, 1, 9, 7), 2.5), size=(4, 3), mode=mode, antialias=True)
    assert torch.allclose(flat, torch.full((1, 1, 4, 3), 2.5), rtol=1e-6)
    ramp = F.interpolate(torch.arange(24.0).reshape(1, 1, 1, 24), size=(1, 6), mode=mode, antialias=True)[0, 0, 0]
    assert torch.allclose(ramp[2:4], torch.tensor([9.5, 13.5]), atol=0.05)
    noise = torch.tensor(values(1, 1, 64, 64))
    small, sharp = (F.interpolate(noise, size=8, mode="bilinear", antialias=a).std().item() for a in (True, False))
    assert small < 0.3 < sharp


def test_area_is_adaptive_averaging():
    x = torch.rand(2, 3, 7, 5)
    assert torch.equal(F.interpolate(x, size=(3, 4), mode="area"), F.adaptive_avg_pool2d(x, (3, 4)))


def test_infinite_neighbours_without_weight_do_not_count():
    x = torch.tensor([[[1.0, math.inf, 3.0]]])
    assert F.interpolate(x, size=5, mode="linear", align_corners=True).tolist() == [[[1.0, math.inf, math.inf, math.inf, 3.0]]]


# ---- sampling ----


def test_identity_grids():
    for shape in ((2, 3, 4, 5), (1, 2, 3, 4, 5)):
        nd = len(shape) - 2
        x = torch.tensor(values(*shape))
        theta = torch.eye(nd, nd + 1, dtype=torch.float64).unsqueeze(0).expand(shape[0], nd, nd + 1)
        for align in (False, True):
            grid = F.affine_grid(theta, shape, align_corners=align)
            assert grid.shape == (shape[0], *shape[2:], nd)
            for mode in ("bilinear", "nearest", "bicubic"):
                y = F.grid_sample(x, grid, mode, align_corners=align)
                assert torch.allclose(y, x, atol=1e-12), (mode, align)


def test_grid_sample_outside():
    x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]], dtype=torch.float64)
    at = torch.tensor([[[[-3.0, -3.0], [3.0, 1.0], [0.0, 0.0], [math.nan, 0.0]]]], dtype=torch.float64)
    found = {
        (mode, pad): numbers(F.grid_sample(x, at, mode, pad, align_corners=False)).ravel()
        for mode in ("bilinear", "nearest") for pad in ("zeros", "border", "reflection")
    }  # fmt: skip
    np.testing.assert_allclose(found["bilinear", "zeros"], [0, 0, 2.5, math.nan])  # as PyTorch 2.15
    np.testing.assert_allclose(found["bilinear", "border"], [1, 4, 2.5, 2.0])
    np.testing.assert_allclose(found["bilinear", "reflection"], [4, 3, 2.5, 2.0])
    np.testing.assert_allclose(found["nearest", "zeros"], [0, 0, 1, 0])
    np.testing.assert_allclose(found["nearest", "border"], [1, 4, 1, 1])


def test_a_nearest_grid_has_slope_zero():
    grid = torch.zeros(1, 2, 2, 2, requires_grad=True)
    F.grid_sample(torch.ones(1, 1, 3, 3), grid, "nearest", align_corners=True).sum().backward()
    assert grid.grad.tolist() == torch.zeros(1, 2, 2, 2).tolist()


# ---- shuffles ----


def test_shuffles():
    x = values(2, 8, 3, 5)
    y = F.pixel_shuffle(tensor_of(x), 2)
    assert np.array_equal(numbers(y), x.reshape(2, 2, 2, 2, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 10))
    assert torch.equal(F.pixel_unshuffle(y, 2), tensor_of(x))
    assert numbers(F.channel_shuffle(torch.arange(6.0).reshape(1, 6, 1), 2)).ravel().tolist() == [0, 3, 1, 4, 2, 5]


# ---- devices, modules ----


@pytest.mark.skipif(IS_PYTORCH, reason="emulation")
def test_emulated_cuda_and_autocast():
    x = torch.tensor(values(2, 4, 6, 6), dtype=torch.float32)
    calls = [
        lambda t: F.max_pool2d(t, 2), lambda t: F.avg_pool2d(t, 3, 2, 1), lambda t: F.adaptive_avg_pool2d(t, 1),
        lambda t: F.pad(t, (1, 1, 1, 1), mode="reflect"), lambda t: F.interpolate(t, scale_factor=2, mode="bilinear"),
    ]  # fmt: skip
    with torch.cuda.emulate():
        for call in calls:
            assert torch.equal(call(x.cuda()).cpu(), call(x))
        with torch.autocast("cuda"):
            half = x.cuda().half()
            assert F.interpolate(half, scale_factor=2).dtype == torch.float32
            assert F.max_pool2d(half, 2).dtype == torch.float16
    with torch.autocast("cpu"):
        low = x.bfloat16()
        assert F.pad(low, (1, 1, 1, 1), mode="replicate").dtype == torch.float32
        assert F.avg_pool3d(low.unsqueeze(2), (1, 2, 2)).dtype == torch.float32
        assert F.max_pool3d(low.unsqueeze(2), (1, 2, 2), return_indices=True)[0].dtype == torch.bfloat16  # another op, not listed


def test_results_do_not_depend_on_threads():
    x = torch.tensor(values(3, 5, 33, 47), dtype=torch.float32, requires_grad=True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = F.interpolate(F.avg_pool2d(F.max_pool2d(x, 3, 2, 1), 3, 1, 1), scale_factor=1.7, mode="bilinear")
            found.append((y.detach(), *torch.autograd.grad((y * y).sum(), x)))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize(
    ("module", "shape", "text", "out"),
    [
        (lambda: nn.MaxPool1d(2), (2, 3, 8), "MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)", (2, 3, 4)),
        (lambda: nn.MaxPool2d((2, 3), stride=1), (3, 4, 8),
         "MaxPool2d(kernel_size=(2, 3), stride=1, padding=0, dilation=1, ceil_mode=False)", (3, 3, 6)),
        (lambda: nn.AvgPool1d(2), (3, 8), "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))", (3, 4)),
        (lambda: nn.AvgPool2d(2, divisor_override=3), (2, 3, 8, 8), "AvgPool2d(kernel_size=2, stride=2, padding=0)", (2, 3, 4, 4)),
        (lambda: nn.AdaptiveAvgPool2d((None, 3)), (2, 3, 8, 8), "AdaptiveAvgPool2d(output_size=(None, 3))", (2, 3, 8, 3)),
        (lambda: nn.AdaptiveMaxPool3d(1), (2, 3, 4, 4, 4), "AdaptiveMaxPool3d(output_size=1)", (2, 3, 1, 1, 1)),
        (lambda: nn.LPPool2d(2, 2), (2, 3, 4, 4), "LPPool2d(norm_type=2, kernel_size=2, stride=None, ceil_mode=False)", (2, 3, 2, 2)),
        (lambda: nn.FractionalMaxPool2d(2, output_ratio=0.5), (2, 3, 8, 8), "FractionalMaxPool2d()", (2, 3, 4, 4)),
        (lambda: nn.ReflectionPad2d((1, 2, 3, 0)), (3, 4, 4), "ReflectionPad2d((1, 2, 3, 0))", (3, 7, 7)),
        (lambda: nn.ReplicationPad3d(1), (3, 4, 4, 4), "ReplicationPad3d((1, 1, 1, 1, 1, 1))", (3, 6, 6, 6)),
        (lambda: nn.ZeroPad2d(1), (3, 4, 4), "ZeroPad2d((1, 1, 1, 1))", (3, 6, 6)),
        (lambda: nn.ConstantPad1d(1, 2.5), (3, 4), "ConstantPad1d(padding=(1, 1), value=2.5)", (3, 6)),
        (lambda: nn.CircularPad1d(1), (2, 3, 4), "CircularPad1d((1, 1))", (2, 3, 6)),
        (lambda: nn.Upsample(scale_factor=2), (1, 2, 3), "Upsample(scale_factor=2.0, mode='nearest')", (1, 2, 6)),
        (lambda: nn.UpsamplingBilinear2d(size=(4, 5)), (1, 2, 3, 3), "UpsamplingBilinear2d(size=(4, 5), mode='bilinear')", (1, 2, 4, 5)),
        (lambda: nn.PixelShuffle(2), (4, 3, 3), "PixelShuffle(upscale_factor=2)", (1, 6, 6)),
        (lambda: nn.PixelUnshuffle(2), (1, 4, 4), "PixelUnshuffle(downscale_factor=2)", (4, 2, 2)),
        (lambda: nn.ChannelShuffle(2), (1, 4, 4), "ChannelShuffle(groups=2)", (1, 4, 4)),
    ],
)  # fmt: skip
def test_modules(module, shape, text, out):
    made = module()
    assert repr(made) == text and made.state_dict() == {}
    assert made(torch.rand(shape)).shape == out


def test_unpool_module():
    x = torch.tensor([[[1.0, 5.0, 2.0, 3.0]]])
    y, indices = nn.MaxPool1d(2, return_indices=True)(x)
    unpool = nn.MaxUnpool1d(2)
    assert unpool(y, indices).tolist() == [[[0.0, 5.0, 0.0, 3.0]]]
    assert unpool(y, indices, output_size=(1, 1, 5)).shape == (1, 1, 5)
    assert repr(nn.MaxUnpool2d((2, 3), stride=2)) == "MaxUnpool2d(kernel_size=(2, 3), stride=(2, 2), padding=(0, 0))"


@pytest.mark.parametrize("width", [3, 4, 5, 8, 11, 16, 21])
@pytest.mark.parametrize(
    "options",
    [
        dict(kernel_size=2),
        dict(kernel_size=3, stride=2, padding=1),
        dict(kernel_size=3, stride=1, padding=1),
        dict(kernel_size=2, stride=3, ceil_mode=True),
        dict(kernel_size=(1, 2), stride=1, dilation=(1, 2)),
    ],
)
def test_largest_of_four_windows_at_once_is_the_largest_of_each(width, options):
    """float32 takes four windows together, float64 each alone: ties, NaN, infinities and zeros of both signs included."""
    few = torch.tensor([0.0, -0.0, 1.0, 2.0, 2.5, -1.0, float("inf"), float("-inf"), float("nan")])
    generator = torch.Generator().manual_seed(width)
    x = few[torch.randint(0, 9, (3, 2, 7, width), generator=generator)]
    x[0] = torch.randn(2, 7, width, generator=generator)
    a, at = torch.nn.functional.max_pool2d(x, return_indices=True, **options)
    b, bt = torch.nn.functional.max_pool2d(x.double(), return_indices=True, **options)
    assert torch.equal(at, bt) and np.array_equal(a.double().numpy(), b.numpy(), equal_nan=True)
    assert np.array_equal(np.signbit(a.numpy()), np.signbit(b.numpy()))
    for y in (x.transpose(2, 3), x[:, :, :, ::2]):
        if y.shape[3] < 3 or y.shape[2] < 3:
            continue
        a = torch.nn.functional.adaptive_max_pool2d(y, (3, 5 if y.shape[3] > 5 else 2))
        b = torch.nn.functional.adaptive_max_pool2d(y.double(), (3, 5 if y.shape[3] > 5 else 2))
        assert np.array_equal(a.double().numpy(), b.numpy(), equal_nan=True)
